"""Pretrained encoders: from hubs, from local directories, and from packages of a package index.

The packaged encoders need no model hub. They are converted once, into :func:`cache_dir`, to directories that
``transformers.AutoModel``, ``transformers.AutoTokenizer`` and ``sentence_transformers.SentenceTransformer`` load.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from pyterrier_mart.artifact import reader_of
from pyterrier_mart.encoders.conversion import PackagedEncoder, cache_dir, converted
from pyterrier_mart.encoders.e5 import E5_SMALL
from pyterrier_mart.encoders.loading import Source, is_local, nearest
from pyterrier_mart.encoders.minilm import MINILM_L6

__all__ = ["PACKAGED", "PackagedEncoder", "Source", "anchored", "cache_dir", "find", "resolve"]

T = TypeVar("T")

#: The packaged encoders by name.
PACKAGED: Mapping[str, PackagedEncoder] = {e.name: e for e in (E5_SMALL, MINILM_L6)}


def resolve(name: str | os.PathLike[str]) -> str:
    """Returns what ``from_pretrained`` of transformers and ``SentenceTransformer`` take.

    Args:
        name: One of

            - a packaged encoder (see :data:`PACKAGED`), which is converted if that has not been done: the result is
              the directory of the converted encoder in :func:`cache_dir`;
            - a directory: a path object, or text that begins with ``/``, ``.`` or ``~`` or is the path of a directory;
            - the name of a model on a hub, which is returned as it is. Nothing is looked up.

    A packaged encoder is taken from the version of its package that is known, if that is installed, and its files must
    have the known checksums. From another version it is taken if its files have the same layout. A converted encoder
    is checked before it is used (checksums of the smaller files, samples of the larger ones) and rebuilt if it is
    damaged.

    Raises:
        ImportError: If the package of a packaged encoder is not installed.
        FileNotFoundError: If there is no such directory, or a file is missing in it.
        ValueError: If a file of a packaged encoder is damaged or of another version, or ``name`` is no name.
    """
    if isinstance(name, str) and name in PACKAGED:
        return os.fspath(converted(PACKAGED[name]))
    path = Path(name).expanduser()
    if (
        not isinstance(name, str)
        or name.startswith((os.sep, ".", "~"))
        or path.is_absolute()
        or (name and path.is_dir())
    ):
        if (reader := reader_of(path)) not in (None, "MetaSBERTRetriever.load"):  # what that reads is an encoder, too
            raise ValueError(f"there is no model at {path}, but what {reader}({os.fspath(name)!r}) reads")
        if not any((path / file).is_file() for file in ("config.json", "modules.json")):
            meant = nearest(path.name, PACKAGED)
            raise FileNotFoundError(f"there is no model at {path}: no directory with a config.json{meant}")
        return os.fspath(path)
    try:
        validate_repo_id(name)
    except HFValidationError as err:
        raise ValueError(
            f"an encoder must be one of {', '.join(PACKAGED)}, a directory, or a model on a hub, not {name!r}"
        ) from err
    return name


def anchored(model: T) -> T:
    """Returns the name of an encoder as one that is the same wherever the process goes: directories become absolute.

    What is loaded later must not depend on the working directory of that moment. Other values are returned as they are.
    """
    if (
        not isinstance(model, (str, os.PathLike))
        or model in PACKAGED
        or os.path.isabs(model)
        or not os.path.isdir(model)
    ):
        return model
    path = Path(model).absolute()
    return os.fspath(path) if isinstance(model, str) else path  # type: ignore[return-value]


def find(name: str | os.PathLike[str], organisation: str | None = None) -> Source:
    """Returns what :func:`resolve` does, and how it is to be loaded; the hub is asked once whether it has the model.

    Args:
        name: As for :func:`resolve`.
        organisation: Where the hub is asked for names without an organisation, too.

    Raises:
        OSError: If there is no such model, or the hub cannot be reached and the model was not downloaded earlier; the
            message has names like this one.
    """
    path = resolve(name)
    if os.path.isdir(path):
        return Source(path, local=True)
    names = set(PACKAGED)
    with suppress(OSError):  # what was mistyped may be a directory
        names |= {entry.name for entry in os.scandir() if entry.is_dir()}
    return Source(path, is_local(path, names, organisation))
