"""Files of lines of text: opened plain or packed, read with their numbers, and cut into cells."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import pyterrier as pt

from pyterrier_mart.archives import members, plain_name
from pyterrier_mart.problems import Faults, TableFormatError

__all__ = [
    "cells_of",
    "decoded",
    "first_of",
    "lines",
    "open_binary",
    "raw_lines",
    "read_lines",
    "record_parser",
    "table_parser",
]

_T = TypeVar("_T")
_LONGEST_LINE = 1 << 20
_LONGEST_DOCUMENT = 64 << 20  # where documents are on a line each


@contextmanager
def open_binary(path: Path, verbose: bool = False, member: str = "") -> Iterator[IO[bytes]]:
    """Opens a file, decompressed if its first bytes say that it is compressed.

    Args:
        path: The file.
        verbose: Whether to show a progress bar.
        member: The file in an archive that is meant, after the archive's path.

    Raises:
        ArchiveError: If it is damaged, or named like a compressed file and none; also while it is read.
        OSError: If it cannot be opened.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    wanted = {plain_name(str(path)), member}
    size = os.stat(path).st_size
    with (
        pt.tqdm(total=size, unit="B", unit_scale=True, desc=(member or path.name).rsplit("/", 1)[-1],
                disable=not verbose) as bar,
        closing(members(path, wanted=wanted.__contains__, progress=bar.update)) as opened,
    ):  # fmt: skip
        found = next(opened, None)
        if found is None:
            raise TableFormatError(f"{member or path} is an archive, or gone from one; expected a file")
        yield found.stream


def lines(
    stream: IO[bytes], faults: Faults, where: str | None = None, *, ends: bool = False, longest: int = _LONGEST_LINE
) -> Iterator[tuple[int, str]]:
    """Yields the lines of UTF-8 text and their numbers from 1, without byte order mark and line ends.

    Args:
        stream: The lines as bytes.
        faults: Where lines that are not UTF-8 are reported.
        where: What messages call the file; ``None``: what ``faults`` calls it.
        ends: Whether lines keep their ends (needed where quoted fields may contain some).
        longest: Bytes of a line that is too long.

    Raises:
        TableFormatError: If a line is malformed (unless skipped), or so long that this is no text in lines.
    """
    for n, raw in raw_lines(stream, where or faults.where, longest):
        if (line := decoded(raw, faults, n, where)) is not None:
            yield n, line if ends else line.rstrip("\r\n")


def raw_lines(stream: IO[bytes], where: str, longest: int = _LONGEST_LINE) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a file as bytes, with their ends, and their numbers from 1.

    Where the file begins with carriage returns and no line feeds, as old programs for the Mac write, those end lines.

    Raises:
        TableFormatError: If a line is so long that this is no text in lines. No more of it is read.
    """
    head = stream.peek() if isinstance(stream, io.BufferedReader) else b""
    readline: Callable[[int], bytes] = stream.readline
    text = None
    if b"\r" in head and b"\n" not in head:
        text = io.TextIOWrapper(stream, encoding="latin-1")  # bytes as they are, but for ends of lines

        def readline(size: int) -> bytes:
            return text.readline(size).encode("latin-1")

    try:
        for n, raw in enumerate(iter(partial(readline, longest), b""), start=1):
            if len(raw) == longest:
                raise TableFormatError(f"{where}, line {n}: longer than {longest:,} bytes")
            yield n, raw
    finally:
        if text is not None:
            text.detach()  # it would close the stream


def decoded(raw: bytes, faults: Faults, n: int, where: str | None = None) -> str | None:
    """Returns line ``n``, without a byte order mark, or ``None`` if it is no text in UTF-8, which is reported."""
    if b"\0" in raw:
        faults.bad(f"byte {raw.index(0) + 1} of the line is NUL, which no text in UTF-8 has", n, where)
        return None
    try:
        return raw.decode("utf-8-sig" if n == 1 else "utf-8")
    except UnicodeDecodeError as err:
        faults.bad(f"byte {err.start + 1} of the line ({raw[err.start]:#04x}) is not UTF-8", n, where)
        return None


def read_lines(path: str, parse: Callable[[str], _T | None], *, verbose: bool = False) -> Iterator[tuple[int, _T]]:
    """Yields the number of each line and what ``parse`` makes of it, unless that is None; names malformed lines."""
    opened = nullcontext(sys.stdin.buffer) if path == "-" else open_binary(Path(path), verbose)
    with opened as stream:
        for n, line in lines(stream, Faults(path), longest=_LONGEST_DOCUMENT):
            try:
                found = None if not line or line.isspace() else parse(line)
            except (ValueError, RecursionError) as err:
                raise ValueError(f"{path}, line {n}: {err}") from err
            if found is not None:
                yield n, found


def cells_of(line: str, names: list[str]) -> dict[str, str] | None:
    """Returns the tab-separated cells of a line by name, or None for a line of the names."""
    cells = line.split("\t")
    if len(cells) != len(names):
        raise ValueError(f"expected {len(names)} tab-separated columns, {', '.join(names):.200}, found {len(cells)}")
    return dict(zip(names, cells, strict=True)) if cells != names else None


def table_parser(names: list[str], *required: str) -> Callable[[str], dict[str, str] | None]:
    """Returns what reads the cells of tab-separated rows by name; the first row fills ``names``."""

    def parse(line: str) -> dict[str, str] | None:
        if not names:
            names.extend(line.split("\t"))
            if not {*required} <= {*names} or len({*names}) < len(names):
                expected = f"a header with {', '.join(required)}" if required else "a header"
                raise ValueError(f"expected {expected}, each name once, found {line[:80]!r}")
        return cells_of(line, names)

    return parse


def record_parser(path: str, columns: list[str], ids: Collection[str]) -> Callable[[str], dict[str, Any] | None]:
    """Returns what reads the lines of a file of JSON objects, or of tab-separated columns; a header is None.

    Args:
        path: The file. What is not named like JSON is what its first line is.
        columns: The columns, if the first line does not name them.
        ids: What a header may call the column of ids: it is a header if it has one of them.
    """
    name = path.lower().removesuffix(".gz")
    read: Callable[[str], Any] | None = json_object if name.endswith((".jsonl", ".json", ".ndjson")) else None

    def parse(line: str) -> dict[str, Any] | None:
        nonlocal read
        if read is None and line.startswith("{"):
            read = json_object
        elif read is None:
            read = table_parser(columns if set(ids).isdisjoint(line.split("\t")) else [])
        return read(line)

    return parse


def json_object(line: str) -> dict[str, Any]:
    """Returns the JSON object that a line holds."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, found {line[:60]!r}")
    return found


def first_of(found: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Returns the value of the first of some names that a record has; a number, as ids may be, as text.

    Raises:
        ValueError: If it has none.
    """
    for name in names:
        if name in found:
            return str(found[name]) if type(found[name]) is int else found[name]
    raise ValueError(f"expected {' or '.join(names)}, found {', '.join(found) or 'none'!s:.80}")
