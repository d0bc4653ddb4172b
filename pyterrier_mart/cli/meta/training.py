"""``pyterrier-mart meta train``: meta-learns on a fold of XQuAD-R and saves the model."""

from __future__ import annotations

import json
import shutil
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyterrier_mart.artifact import META
from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.cli.meta.data import (
    FOLDS,
    Device,
    DocText,
    DocTextName,
    Languages,
    check_encoder,
    find_device,
    xquad_r_fold,
)
from pyterrier_mart.cli.meta.settings import ConfigFile, Preset, PresetName, Settings, Transfer, read_settings
from pyterrier_mart.files import check_free
from pyterrier_mart.meta.arrangements import transfer_paths
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.errors import EmptyLanguageError

if TYPE_CHECKING:
    from pyterrier_mart.datasets.corpus import MultilingualCorpus
    from pyterrier_mart.meta.folds import Fold
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever
    from pyterrier_mart.meta.training import TrainingLog

__all__ = ["train"]

_RECORD = "meta-training.json"


class AlgorithmName(str, Enum):
    """The choices of ``--algorithm``."""

    maml_align = "maml-align"
    maml = "maml"
    reptile = "reptile"
    meta_sgd = "meta-sgd"
    fine_tune = "fine-tune"


def train(
    output: Annotated[Path, typer.Option("--out", "-o", help="Directory to save the model to.", metavar="DIR")],
    encoder: Annotated[
        str, typer.Option(help="The encoder to start from: a packaged one, a directory, or one on a hub.")
    ] = "e5-small",
    algorithm: Annotated[AlgorithmName, typer.Option(help="How to learn.")] = AlgorithmName.maml_align,
    transfer: Transfer = None,
    fold: Annotated[int, typer.Option(help="Which articles are held out.", min=0, max=FOLDS - 1)] = 0,
    preset: PresetName = Preset.recommended,
    config: ConfigFile = None,
    settings: Settings = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Meta-steps at most. [default: 20 epochs; it stops when the development score no longer rises]",
            min=0,
            show_default=False,
        ),
    ] = None,
    langs: Languages = None,
    doc_text: DocTextName = DocText.sentence,
    device: Device = "auto",
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="Where to leave checkpoints and log.csv. [default: OUT.checkpoints, deleted when done]",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard what an interrupted command left.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
) -> None:
    """Meta-learn to align languages, on a fold of XQuAD-R, and save the model.

    Learns from the training articles of the fold. The weights with the best AP@20 over all languages on its validation
    articles are kept; its test articles are left for "meta evaluate". A command that was interrupted goes on where it
    was when it is given again.
    """
    made = read_settings(
        preset, config, settings, {"transfer": ("--transfer", transfer), "max_steps": ("--steps", steps)}
    )
    _check_sets(algorithm.value, made)
    where = find_device(device)
    try:
        check_free(output, overwrite, META)
    except FileExistsError as err:
        raise FileExistsError(str(err).replace("overwrite=True", "--overwrite")) from err
    check_encoder(encoder, "--encoder")
    data = xquad_r_fold(fold, langs, doc_text)
    folder = checkpoints or output.with_name(f"{output.name}.checkpoints")
    if restart and (folder / _RECORD).exists():
        shutil.rmtree(folder)
    _say(f"{algorithm.value} on {encoder}, XQuAD-R fold {fold}, {_size(data.train)} to learn from, {_size(data.valid)} "
         f"to choose the best step; checkpoints and log.csv are in {folder}")  # fmt: skip
    model = _fit(encoder, algorithm.value, made, data, where, folder)
    model.save(output, overwrite=overwrite)
    assert model.history is not None
    out.print(_summary(model.history), markup=False, soft_wrap=True)
    if checkpoints is None:
        shutil.rmtree(folder)
    out.print(f"wrote {output}", markup=False, emoji=False, soft_wrap=True)
    out.print(f"Next: pyterrier-mart meta evaluate {output} --fold {fold}", markup=False, emoji=False, soft_wrap=True)


def _check_sets(algorithm: str, config: MetaConfig) -> None:
    """Raises an error if the tasks do not suit the algorithm, which is otherwise known only after evaluation."""
    sets = min(len(path) for path in transfer_paths(config.transfer))
    if algorithm == "maml-align" and sets < 3:
        raise ValueError(
            f"--transfer {config.transfer}: maml-align needs a support set and two query sets, such as mono-bi-multi; "
            "with one query set, use --algorithm maml"
        )


def _fit(
    encoder: str, algorithm: str, config: MetaConfig, data: Fold[MultilingualCorpus], device: str, folder: Path
) -> MetaSBERTRetriever:
    """Trains; what an interruption leaves is said."""
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever

    model = MetaSBERTRetriever(
        encoder, algorithm=algorithm, config=config, corpus=data.train, valid_corpus=data.valid, device=device,
        output_dir=folder, verbose=errors.is_terminal,
    )  # fmt: skip
    try:
        return model.fit(data.train.topics, data.train.qrels, data.valid.topics, data.valid.qrels)
    except EmptyLanguageError as err:
        raise ValueError(f"--transfer {config.transfer}: {err}") from err
    except ValueError as err:
        if not str(err).startswith("output_dir"):
            raise
        raise ValueError(f"{str(err).replace('output_dir', '--checkpoints', 1)}; --restart deletes it") from err
    except (KeyboardInterrupt, SystemExit):
        _say(_left(folder))
        raise


def _left(folder: Path) -> str:
    """What an interrupted training left."""
    try:
        progress = json.loads((folder / _RECORD).read_text(encoding="utf-8"))["progress"]
    except (OSError, ValueError, KeyError):
        progress = None
    if progress is None:
        return "interrupted before the first checkpoint: the same command starts again"
    return f"interrupted; the same command goes on after meta-step {progress['step']} (checkpoints in {folder})"


def _size(corpus: MultilingualCorpus) -> str:
    return f"{corpus.topics['qgroup'].nunique()} questions in {len(corpus.query_langs)} languages"


def _summary(log: TrainingLog) -> str:
    """What training did to the development set."""
    last = log.steps[-1]["step"]
    why = {"patience": ", as the development score no longer rose"}.get(log.stopped, "")
    rows = {row["step"]: row for row in log.evaluations}
    kept, first = rows.get(log.best_step), rows.get(0)
    scores = ""
    if kept is not None and first is not None:
        scores = "; AP@20 x100 on the validation articles: " + ", ".join(
            f"{name.removeprefix('dev_')} {first[name]:.1f} -> {value:.1f}"
            for name, value in kept.items()
            if name.startswith("dev_")
        )
    return f"stopped after meta-step {last}{why}, and kept that of meta-step {log.best_step}{scores}"


def _say(message: str) -> None:
    errors.print(message, markup=False, emoji=False, soft_wrap=True)
