"""A translation table as arrays, and the arrays as files."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyterrier_mart.artifact import META, meta_bytes, read_meta

__all__ = [
    "ARRAYS", "FILES", "FORMAT_VERSION", "Arrays", "check", "fingerprint", "open_directory", "pack", "unpack", "write",
]  # fmt: skip

FORMAT_VERSION = 1

Arrays = Mapping[str, npt.NDArray[Any]]

#: The arrays of a table and their types; see :class:`~pyterrier_mart.TranslationTable`.
ARRAYS: dict[str, type[np.generic]] = {
    "source_text": np.uint8, "source_offsets": np.int64, "target_text": np.uint8, "target_offsets": np.int64,
    "rows": np.int64, "columns": np.int32, "probs": np.float32,
}  # fmt: skip
#: All that a table directory holds.
FILES = frozenset({META, *(f"{name}.npy" for name in ARRAYS)})

_KIND = {"type": "translation_table", "format": "mart", "format_version": FORMAT_VERSION}


def fingerprint(arrays: Arrays, meta: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a table's content: analyzers, words and probabilities."""
    digest = hashlib.sha256(json.dumps(meta["analyzers"], sort_keys=True).encode("ascii"))
    for name in ARRAYS:
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {len(array)} {array.dtype.str}\n".encode("ascii"))
        digest.update(array.view(np.uint8).data)
    return digest.hexdigest()


def open_directory(directory: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Maps the arrays of a table directory into memory, and reads its metadata.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not a table or is damaged.
    """
    meta = read_meta(directory, "translation table", _KIND, ("analyzers", "fingerprint"))
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in ARRAYS:
        try:
            arrays[name] = np.lib.format.open_memmap(directory / f"{name}.npy", mode="r")
        except Exception as err:  # a damaged header fails in many ways
            raise ValueError(f"damaged translation table {directory}: cannot map {name}.npy ({err})") from err
    return arrays, meta


def write(arrays: Arrays, meta: Mapping[str, Any], directory: Path) -> None:
    """Writes the files of a table into a directory."""
    for name, pieces in _files(arrays, meta):
        with open(directory / name, "wb") as file:
            file.writelines(pieces)


def pack(arrays: Arrays, meta: Mapping[str, Any]) -> bytes:
    """Returns a table as one compressed file, the form of the bundled tables (the same bytes every time)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, pieces in _files(arrays, meta):
            content = b"".join(pieces)
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def unpack(packed: bytes) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Returns the arrays and metadata of :func:`pack`."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed))) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    arrays = {name: np.load(io.BytesIO(files[f"{name}.npy"]), allow_pickle=False) for name in ARRAYS}
    return arrays, json.loads(files[META])


def _files(arrays: Arrays, meta: Mapping[str, Any]) -> Iterator[tuple[str, list[bytes | memoryview]]]:
    """Yields name and content of each file, the content in pieces so that no array is copied."""
    yield META, [meta_bytes(meta)]
    for name in ARRAYS:
        header = io.BytesIO()
        array = np.ascontiguousarray(arrays[name])
        np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
        yield f"{name}.npy", [header.getvalue(), array.view(np.uint8).data]


def check(arrays: Arrays, meta: Mapping[str, Any], where: str) -> None:
    """Checks what can be checked without reading the arrays: types and lengths that must agree."""
    for name, dtype in ARRAYS.items():
        if arrays[name].dtype != dtype or arrays[name].ndim != 1:
            raise ValueError(
                f"damaged translation table {where}: {name} is {arrays[name].dtype} of shape {arrays[name].shape}, "
                f"expected {np.dtype(dtype)} of one dimension"
            )
    ends = [("source_offsets", "source_text"), ("target_offsets", "target_text"), ("rows", "columns")]
    consistent = all(len(arrays[a]) >= 1 and arrays[a][0] == 0 and arrays[a][-1] == len(arrays[b]) for a, b in ends)
    sizes = {"source_words": "source_offsets", "target_words": "target_offsets", "entries": "probs"}
    if not (
        consistent
        and all(meta.get(key) == len(arrays[name]) - (key != "entries") for key, name in sizes.items())
        and len(arrays["rows"]) == len(arrays["source_offsets"])
        and len(arrays["probs"]) == len(arrays["columns"])
    ):
        raise ValueError(f"damaged translation table {where}: the lengths of its arrays do not fit together")
