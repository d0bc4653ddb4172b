"""What the commands work on: a fold of XQuAD-R, an encoder, a device."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import pyterrier as pt
import typer

from pyterrier_mart.cli.console import errors
from pyterrier_mart.encoders import PACKAGED, resolve

if TYPE_CHECKING:
    from pyterrier_mart.datasets.corpus import MultilingualCorpus
    from pyterrier_mart.meta.folds import Fold

__all__ = [
    "FOLDS", "Device", "DocText", "DocTextName", "Languages", "check_encoder", "find_device", "progress_bar",
    "xquad_r_fold",
]  # fmt: skip

FOLDS = 5


class DocText(str, Enum):
    """The choices of ``--doc-text``."""

    sentence = "sentence"
    context = "sentence+context"


Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps, ...")]
DocTextName = Annotated[
    DocText, typer.Option("--doc-text", help="What a candidate is: a sentence, or a sentence and its paragraph.")
]
Languages = Annotated[
    str | None,
    typer.Option(
        "--langs",
        help="Languages of XQuAD-R. [default: ar,de,el,hi,ru,th,tr, the paper's]",
        metavar="L,L,...",
        show_default=False,
    ),
]


def find_device(name: str) -> str:
    """Returns a device that is here.

    Raises:
        ValueError: If there is none.
    """
    from pyterrier_mart.devices import resolve_device

    try:
        return str(resolve_device(name))
    except ValueError as err:
        raise ValueError(f"--device {name}: {err}") from err


def check_encoder(name: str, option: str) -> None:
    """Raises an error if an encoder cannot be had, which is better known before the work than after it."""
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(resolve(name))
    except (OSError, ValueError) as err:
        raise ValueError(
            f"{option} {name}: there is no such encoder here, and it could not be loaded from the hub; expected "
            f"{', '.join(PACKAGED)}, a directory, or the name of a model on the hub"
        ) from err


def xquad_r_fold(index: int, langs: str | None, doc_text: DocText) -> Fold[MultilingualCorpus]:
    """Returns a fold of XQuAD-R, divided by article.

    Raises:
        ValueError: If there is no such language.
    """
    from pyterrier_mart.datasets.corpus import XQUAD_R_LANGS, MultilingualCorpus
    from pyterrier_mart.meta.folds import kfold_by_group

    wanted = XQUAD_R_LANGS if langs is None else tuple(part.strip() for part in langs.split(","))
    try:
        corpus = MultilingualCorpus.xquad_r(wanted, "sentence" if doc_text is DocText.sentence else "sentence+context")
    except ValueError as err:
        raise ValueError(f"--langs {langs}: {err}") from err
    return next(fold for fold in kfold_by_group(corpus, FOLDS) if fold.index == index)


def progress_bar(**options: Any) -> Any:
    """Returns a progress bar, which is shown if messages go to a terminal, and not after it is done."""
    return pt.tqdm(disable=not errors.is_terminal, leave=False, **options)
