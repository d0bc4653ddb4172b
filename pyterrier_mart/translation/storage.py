"""A translation table as arrays, and the arrays as files."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
import tarfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyterrier_mart.archives import naming
from pyterrier_mart.artifact import META, check_files, checksums, meta_bytes, read_meta
from pyterrier_mart.text import language_of
from pyterrier_mart.translation.entries import Entries
from pyterrier_mart.translation.vocabulary import Vocabulary

__all__ = [
    "ARRAYS", "BUNDLED_SUFFIX", "FILES", "OWN_META", "Arrays", "bundled", "bundled_parts", "check", "fingerprint",
    "from_entries",    "open_directory", "pack", "provenance", "read_bundled", "unpack", "write",
]  # fmt: skip

FORMAT_VERSION = 1

#: Ending of the bundled tables, in the form of :func:`pack`.
BUNDLED_SUFFIX = ".table.xz"

Arrays = Mapping[str, npt.NDArray[Any]]

#: The arrays of a table and their types; see :class:`~pyterrier_mart.TranslationTable`.
ARRAYS: dict[str, type[np.generic]] = {
    "source_text": np.uint8, "source_offsets": np.int64, "target_text": np.uint8, "target_offsets": np.int64,
    "rows": np.int64, "columns": np.int32, "probs": np.float32,
}  # fmt: skip
#: All that a table directory holds.
FILES = frozenset({META, *(f"{name}.npy" for name in ARRAYS)})

#: The part of the metadata that the table itself determines.
OWN_META = frozenset({
    "type", "format", "package_hint", "format_version", "languages", "direction", "meaning", "analyzers", "entries",
    "source_words", "target_words", "fingerprint", "checksums",
})  # fmt: skip
#: How Python stands for the bytes of file names and arguments that are not UTF-8.
_UNDECODED = re.compile("[\udc80-\udcff]")

_KIND = {"type": "translation_table", "format": "mart", "format_version": FORMAT_VERSION}


def from_entries(entries: Entries) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Returns arrays and metadata of a table: rows are normalised, and the best translation of each word comes first.

    Equal pairs are summed (``uniform``: counted once). Words without an entry are left out.
    """
    size = max(len(entries.target_words), 1)
    keys, position = np.unique(entries.s * size + entries.t, return_inverse=True)
    w = entries.w
    if entries.weights == "count":  # only their proportions matter, and sums must be finite: a power of two is exact
        largest = np.zeros(len(entries.source_words))
        np.maximum.at(largest, entries.s, w)
        w = np.ldexp(w, -np.frexp(largest)[1][entries.s])
    w = np.bincount(position, weights=w, minlength=len(keys)).astype(np.float64)
    s, t = np.divmod(keys[w > 0], size)
    w = np.ones(len(s)) if entries.weights == "uniform" else w[w > 0]
    if entries.weights != "probability":
        w = w / np.bincount(s, weights=w, minlength=1)[s]
    probs = np.minimum(w, 1.0).astype(np.float32)
    keep = probs > 0  # a weight may be too small for float32
    s, t, probs = s[keep], t[keep], probs[keep]

    used_s, s = np.unique(s, return_inverse=True)
    used_t, t = np.unique(t, return_inverse=True)
    order = np.lexsort((t, -probs, s))
    rows = np.zeros(len(used_s) + 1, dtype=np.int64)
    np.cumsum(np.bincount(s, minlength=len(used_s)), out=rows[1:])
    sources = Vocabulary.from_words(entries.source_words[i] for i in used_s)
    targets = Vocabulary.from_words(entries.target_words[i] for i in used_t)
    arrays: dict[str, npt.NDArray[Any]] = {
        "source_text": sources.text, "source_offsets": sources.offsets, "target_text": targets.text,
        "target_offsets": targets.offsets, "rows": rows, "columns": t[order].astype(np.int32), "probs": probs[order],
    }  # fmt: skip
    source, target = entries.source, entries.target
    meta: dict[str, Any] = {
        "type": _KIND["type"], "format": _KIND["format"], "package_hint": "pyterrier-mart",
        "format_version": FORMAT_VERSION, "languages": [source.lang, target.lang],
        "direction": f"{source.lang}-{target.lang}", "meaning": "P(target | source)",
        "analyzers": {"source": source.spec, "target": target.spec}, "entries": len(probs),
        "source_words": len(sources), "target_words": len(targets), **provenance(entries.meta),
    }  # fmt: skip
    return arrays, {**meta, "fingerprint": fingerprint(arrays, meta)}


def fingerprint(arrays: Arrays, meta: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a table's content: analyzers, words and probabilities."""
    digest = hashlib.sha256(json.dumps(meta["analyzers"], sort_keys=True).encode("ascii"))
    for name in ARRAYS:
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {len(array)} {array.dtype.str}\n".encode("ascii"))
        digest.update(array.view(np.uint8).data)
    return digest.hexdigest()


def provenance(meta: Mapping[str, Any]) -> dict[str, Any]:
    r"""Checks metadata that a caller adds, and returns them as they will be read from the file.

    Bytes that are not UTF-8, as in names of files, become escapes such as ``\xe9``.

    Raises:
        ValueError: If they are not JSON values, or one belongs to the table itself.
    """
    if clash := sorted(meta.keys() & OWN_META):
        raise ValueError(f"{', '.join(clash)} cannot be set: the table itself determines it")
    try:
        text = json.dumps(dict(meta), ensure_ascii=False, allow_nan=False)
        text = _UNDECODED.sub(lambda found: f"\\\\x{ord(found[0]) & 0xFF:02x}", text)
        text.encode("utf-8")
        return dict(json.loads(text))
    except (TypeError, ValueError) as err:
        raise ValueError(f"metadata must be JSON values, not {dict(meta)!r} ({err})") from err


def open_directory(directory: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Maps the arrays of a table directory into memory, and reads its metadata.

    The arrays are compared with their checksums, which are those of samples: damage between them, and to tables that
    were saved without checksums, is for :meth:`pyterrier_mart.TranslationTable.verify` to find.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not a table or is damaged.
    """
    meta = read_meta(directory, "translation table", _KIND, {"analyzers": dict, "fingerprint": str})
    expected = meta.pop("checksums", None)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in ARRAYS:
        try:
            # A plain array: every look into one of the subclass goes through Python.
            arrays[name] = np.asarray(np.lib.format.open_memmap(directory / f"{name}.npy", mode="r"))
        except Exception as err:  # a damaged header fails in many ways
            raise ValueError(f"damaged translation table {directory}: cannot map {name}.npy ({err})") from err
    if expected is not None:
        if not isinstance(expected, dict) or {*expected} != FILES or expected.pop(META) != own_digest(meta):
            raise ValueError(f"damaged translation table {directory}: {META} is not as it was saved")
        check_files(directory, "translation table", expected)
    return arrays, meta


def write(arrays: Arrays, meta: Mapping[str, Any], directory: Path) -> None:
    """Writes the files of a table into a directory."""
    for name in ARRAYS:
        np.save(directory / f"{name}.npy", arrays[name])
    found = checksums(directory, (f"{name}.npy" for name in ARRAYS))
    (directory / META).write_bytes(meta_bytes({**meta, "checksums": {META: own_digest(meta), **found}}))


def own_digest(meta: Mapping[str, Any]) -> str:
    """Returns a fingerprint of the part of the metadata that the table itself determines."""
    own = {key: value for key, value in meta.items() if key in OWN_META}
    return hashlib.blake2b(json.dumps(own, sort_keys=True).encode(), digest_size=16).hexdigest()


def pack(arrays: Arrays, meta: Mapping[str, Any]) -> bytes:
    """Returns a table as one compressed file, the form of the bundled tables (the same bytes every time)."""
    files = {META: meta_bytes(meta)}
    for name in ARRAYS:
        stream = io.BytesIO()
        np.save(stream, arrays[name])
        files[f"{name}.npy"] = stream.getvalue()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def unpack(packed: bytes, where: str = "in memory") -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Returns the arrays and metadata of :func:`pack`.

    Raises:
        ArchiveError: If it is damaged; the message names ``where`` it is.
    """
    with naming(where), tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed))) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    arrays = {name: np.load(io.BytesIO(files[f"{name}.npy"]), allow_pickle=False) for name in ARRAYS}
    return arrays, json.loads(files[META])


def bundled() -> list[str]:
    """Returns the directions of the tables that come with the package."""
    names = [entry.name for entry in resources.files(__package__).joinpath("data").iterdir()]
    return sorted(name.removesuffix(BUNDLED_SUFFIX) for name in names if name.endswith(BUNDLED_SUFFIX))


def bundled_parts(name: str) -> list[str]:
    """Returns the bundled table that a direction names (``deu-eng`` is ``de-en``), or the two that make it.

    Those are into English and out of it; there are none if one of them is not bundled.
    """
    codes = [str(language_of(code)) for code in name.split("-")]
    known = bundled()
    if "-".join(codes) in known:
        return ["-".join(codes)]
    halves = [f"{codes[0]}-en", f"en-{codes[-1]}"]
    return halves if len(codes) == 2 and codes[0] != codes[1] and {*halves} <= {*known} else []


def read_bundled(name: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Returns the arrays and metadata of one of the :func:`bundled` tables.

    Raises:
        ArchiveError: If it is damaged.
    """
    file = resources.files(__package__).joinpath("data").joinpath(name + BUNDLED_SUFFIX)
    return unpack(file.read_bytes(), str(file))


def check(arrays: Arrays, meta: Mapping[str, Any], where: str) -> None:
    """Checks what can be checked without reading the arrays: types and lengths that must agree."""
    types = all(arrays[name].dtype == dtype and arrays[name].ndim == 1 for name, dtype in ARRAYS.items())
    ends = [("source_offsets", "source_text"), ("target_offsets", "target_text"), ("rows", "columns")]
    sizes = {"source_words": "source_offsets", "target_words": "target_offsets", "entries": "probs"}
    if not (
        types
        and all(len(arrays[a]) >= 1 and arrays[a][0] == 0 and arrays[a][-1] == len(arrays[b]) for a, b in ends)
        and all(meta.get(key) == len(arrays[name]) - (key != "entries") for key, name in sizes.items())
        and len(arrays["rows"]) == len(arrays["source_offsets"])
        and len(arrays["probs"]) == len(arrays["columns"])
    ):
        raise ValueError(f"damaged translation table {where}: types or lengths of its arrays do not fit together")
