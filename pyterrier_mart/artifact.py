"""``pt_meta.json``: how the package's artifacts say on disk what they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_mart.files import read_json, sha256

if TYPE_CHECKING:
    import torch

__all__ = [
    "META", "check_files", "checksums", "digests_of", "meta_bytes", "read_meta", "reader_of", "sampled",
    "weights_digest",
]  # fmt: skip

META = "pt_meta.json"
#: What reads the package's artifacts, by their type and format.
_READERS = {
    ("dense_index", "mart"): "DenseIndex",
    ("reranker", "mart"): "MARTReRanker.load",
    ("sparse_index", "mart"): "BM25Index",
    ("sparse_index", "mart_psq"): "PSQIndex",
    ("text_encoder", "mart_sbert"): "MetaSBERTRetriever.load",
    ("translation_table", "mart"): "TranslationTable.load",
}

_SAMPLE, _BLOCK = 32, 1 << 14  # blocks of a file, and their bytes: opening it must not take longer for its size


def meta_bytes(meta: Mapping[str, Any]) -> bytes:
    """Returns metadata as the content of ``pt_meta.json``."""
    return (json.dumps(dict(meta), ensure_ascii=False, indent=2) + "\n").encode("utf-8")


def read_meta(directory: Path, what: str, expected: Mapping[str, Any], required: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the metadata of an artifact and checks that it is of the expected kind.

    Args:
        directory: The artifact.
        what: What messages call it, such as ``"translation table"``.
        expected: The values that tell its kind (``type``, ``format``) and version (``format_version``).
        required: Keys that must be there, and the types of their values.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is something else, of another version, or damaged; the message names the directory.
    """
    if not directory.exists():
        raise FileNotFoundError(f"no {what} at {directory}")
    try:
        meta = read_json(directory / META)
    except (FileNotFoundError, NotADirectoryError):
        encoder = "; it is an encoder to start from" if (directory / "config.json").is_file() else ""
        raise ValueError(f"{directory} is no {what}: it has no {META}{encoder}") from None
    except ValueError as err:
        raise ValueError(f"damaged {what}: {err}") from err
    kind = {key: value for key, value in expected.items() if key != "format_version"}
    found = {key: meta.get(key) for key in kind}
    if found != kind:
        reader = reader_of(directory)
        hint = f"; {reader}({str(directory)!r}) reads it" if reader is not None else ""
        raise ValueError(f"{directory} is no {what}: {META} says {found}, expected {kind}{hint}")
    if meta.get("format_version") != expected.get("format_version"):
        raise ValueError(
            f"cannot read the {what} {directory}: its format_version is {meta.get('format_version')!r}, this version "
            f"of pyterrier_mart reads {expected.get('format_version')}"
        )
    if missing := [key for key in required if key not in meta]:
        raise ValueError(f"damaged {what} {directory}: {META} lacks {', '.join(missing)}")
    if wrong := [key for key, kind in required.items() if not isinstance(meta[key], kind)]:
        raise ValueError(f"damaged {what} {directory}: {META} has {wrong[0]} {meta[wrong[0]]!r:.80}")
    return meta


def reader_of(directory: Path) -> str | None:
    """Returns what reads a directory, such as ``"TranslationTable.load"``; None if it is no artifact of the package."""
    try:
        meta = json.loads((directory / META).read_bytes())
        return _READERS.get((meta["type"], meta["format"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def digests_of(directory: Path, *, skip: Collection[str] = ()) -> dict[str, str]:
    """Returns the SHA-256 of each file of an artifact, for its metadata.

    Args:
        directory: The artifact.
        skip: Names of files and directories at its top whose content is checked otherwise.
    """
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    names = {path.relative_to(directory): path for path in files}
    return {name.as_posix(): sha256(path) for name, path in names.items() if name.parts[0] not in skip}


def checksums(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Returns a fingerprint of each of some files: of all that a small one holds, of samples and the size of others."""
    return {name: sampled(directory / name) for name in names}


def sampled(path: Path) -> str:
    """Returns a fingerprint of a file's size and of 32 blocks of it, evenly spaced: all of 512 KiB."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())  # of what is at hand the fastest
    with open(path, "rb", buffering=0) as stream:
        for i in range(_SAMPLE):
            stream.seek(max(size - _BLOCK, 0) * i // (_SAMPLE - 1) if size > _SAMPLE * _BLOCK else i * _BLOCK)
            digest.update(stream.read(_BLOCK))
    return digest.hexdigest()


def check_files(
    directory: Path, what: str, expected: Mapping[str, str], fingerprint: Callable[[Path], str] = sampled
) -> None:
    """Checks that files are as :func:`checksums` or, with ``sha256``, :func:`digests_of` found them.

    Raises:
        ValueError: If one is missing or differs; the message names it.
    """
    if not isinstance(expected, dict):
        raise ValueError(f"damaged {what} {directory}: {META} has the checksums {expected!r:.80}")
    for name, digest in expected.items():
        if not (directory / name).is_file() or fingerprint(directory / name) != digest:
            raise ValueError(f"damaged {what} {directory}: {name} is missing, or not as it was saved")


def weights_digest(model: torch.nn.Module, described: str | None = None) -> str:
    """Returns a fingerprint of a model's weights, in 32 hexadecimal digits.

    Args:
        model: The model.
        described: What else the fingerprint depends on, such as settings. ``None``: the fingerprint is that of the
            names and values alone, which saved re-rankers hold.
    """
    import torch

    digest = hashlib.blake2b((described or "").encode(), digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update((name if described is None else f"{name} {value.dtype} {tuple(value.shape)}").encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
