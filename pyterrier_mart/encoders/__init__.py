"""Pretrained encoders: from hubs, from local directories, and from packages of a package index.

The packaged encoders need no model hub. They are converted once, into :func:`cache_dir`, to directories that
``transformers.AutoModel``, ``transformers.AutoTokenizer`` and ``sentence_transformers.SentenceTransformer`` load.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyterrier_mart.encoders.conversion import PackagedEncoder, cache_dir, converted
from pyterrier_mart.encoders.e5 import E5_SMALL
from pyterrier_mart.encoders.minilm import MINILM_L6

__all__ = ["PACKAGED", "PackagedEncoder", "cache_dir", "resolve"]

#: The packaged encoders by name.
PACKAGED: Mapping[str, PackagedEncoder] = MappingProxyType({e.name: e for e in (E5_SMALL, MINILM_L6)})


def resolve(name: str | os.PathLike[str]) -> str:
    """Returns what ``from_pretrained`` of transformers and ``SentenceTransformer`` take.

    Args:
        name: One of

            - a packaged encoder (see :data:`PACKAGED`), which is converted if that has not been done: the result is
              the directory of the converted encoder in :func:`cache_dir`;
            - a directory: a path object, or text that begins with ``/``, ``.`` or ``~`` or is the path of a directory;
            - the name of a model on a hub, which is returned as it is. Nothing is looked up.

    A packaged encoder is taken from the version of its package that is known, if that is installed, and its files must
    have the known checksums. From another version it is taken if its files are as that version's list of files says
    and have the same layout. A converted encoder is checked before it is used (sizes, checksums of the smaller files,
    samples of the larger ones) and made anew if it is damaged.

    Raises:
        ImportError: If the package of a packaged encoder is not installed.
        FileNotFoundError: If there is no such directory, or a file is missing in it.
        NotADirectoryError: If the path is a file.
        ValueError: If a file of a packaged encoder is damaged or of another version, or ``name`` is no name.
    """
    if isinstance(name, str) and name in PACKAGED:
        return os.fspath(converted(PACKAGED[name]))
    text = os.fspath(name)
    separators = tuple(filter(None, (os.sep, os.altsep)))
    if not isinstance(name, str) or text.startswith((*separators, ".", "~")) or os.path.isabs(text):
        return os.fspath(_local(Path(text)))
    # The rules of the hub.
    if (
        not re.fullmatch(r"([A-Za-z0-9_][\w.-]*/)?[A-Za-z0-9_][\w.-]{0,95}", text, re.ASCII)
        or ".." in text
        or "--" in text
    ):
        if text.strip() and os.path.isdir(text):
            return os.fspath(_local(Path(text)))
        raise ValueError(
            f"{text!r} names no encoder: expected one of {', '.join(PACKAGED)}, a directory, or a model on a hub such "
            f"as 'intfloat/multilingual-e5-small'"
        )
    return os.fspath(_local(Path(text))) if os.path.isdir(text) else text


def _local(path: Path) -> Path:
    path = path.expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no encoder at {path}: no such directory")
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no encoder: expected a directory with a config.json, found a file")
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"{path} is no encoder: it has no config.json")
    return path
