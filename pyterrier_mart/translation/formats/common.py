"""What the formats share: files opened plain or compressed, their lines and fields, and the way they are written."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, TextIO

import pyterrier as pt

from pyterrier_mart.files import atomic_file
from pyterrier_mart.text import language_code
from pyterrier_mart.translation.faults import Faults, TableFormatError

__all__ = [
    "CountedStream", "check_direction", "damage", "fields", "lines", "number", "open_binary", "rows", "text_writer",
]  # fmt: skip

#: What the standard library raises on a damaged or truncated compressed file.
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile)
_LONGEST_LINE = 1 << 20
_BUFFER = 1 << 20
_BLANKS = re.compile("[ \t]+")
_DIRECTION = re.compile(r"(?<![a-z])([a-z]{2,3})-([a-z]{2,3})(?![a-z-])")


class _CountedFile(io.FileIO):
    """A file that moves a progress bar by what is read from it: for compressed files, the compressed bytes."""

    def __init__(self, path: Path, bar: Any):
        super().__init__(os.fspath(path))  # as messages show it
        self._bar = bar

    def readinto(self, buffer: Any) -> int:
        n = super().readinto(buffer) or 0
        self._bar.update(n)
        return n


class CountedStream(io.RawIOBase):
    """A stream that reports how much is read from it."""

    def __init__(self, stream: IO[bytes], progress: Callable[[int], object]):
        self._stream, self._progress = stream, progress

    def readable(self) -> bool:
        """Returns that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads as many bytes as there is room for, or fewer."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._progress(len(data))
        return len(data)


@contextmanager
def open_binary(path: Path, verbose: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file, decompressed if its first bytes say that it is a gzip file.

    Raises:
        OSError: If it cannot be opened.
        TableFormatError: If its name ends in ``.gz`` or ``.dz`` and it is not a gzip file.
    """
    with (
        pt.tqdm(total=os.stat(path).st_size, unit="B", unit_scale=True, desc=path.name, disable=not verbose) as bar,
        _CountedFile(path, bar) as file,
        io.BufferedReader(file, _BUFFER) as raw,
    ):
        if raw.peek(2)[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=raw) as unpacked:
                # GzipFile is a stream of buffered bytes by itself; a larger buffer makes short lines cheaper.
                yield io.BufferedReader(unpacked, _BUFFER)
        elif path.suffix in (".gz", ".dz") and raw.peek(1):
            raise TableFormatError(f"{path}: not a gzip file, although its name ends in {path.suffix}")
        else:
            yield raw


@contextmanager
def damage(where: str) -> Iterator[None]:
    """Turns what goes wrong inside a compressed file into one sentence.

    Raises:
        TableFormatError: In place of the decompressor's error.
    """
    try:
        yield
    except _DAMAGE as err:
        raise TableFormatError(f"{where}: the compressed file is damaged or truncated ({err})") from err


def lines(
    stream: IO[bytes], faults: Faults, where: str | None = None, *, ends: bool = False
) -> Iterator[tuple[int, str]]:
    """Yields the lines of UTF-8 text and their numbers from 1, without byte order mark and line ends.

    Lines that are not UTF-8 or longer than 1 MiB are reported to ``faults``.

    Args:
        stream: The bytes.
        faults: Where malformed lines are reported.
        where: What messages call the file; ``None``: what ``faults`` calls it.
        ends: Whether lines keep their ends (needed where quoted fields may contain some).

    Raises:
        TableFormatError: If a line is malformed (unless skipped), or the compressed file is damaged.
    """
    where = where or faults.where
    n = 0
    try:
        for n, raw in enumerate(iter(partial(stream.readline, _LONGEST_LINE), b""), start=1):
            if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
                while rest := stream.readline(_LONGEST_LINE):
                    if rest.endswith(b"\n"):
                        break
                faults.bad(f"the line is longer than {_LONGEST_LINE:,} bytes", n, where)
                continue
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as err:
                faults.bad(f"byte {err.start + 1} of the line ({raw[err.start]:#04x}) is not UTF-8", n, where)
                continue
            if n == 1:
                line = line.removeprefix("\ufeff")
            yield n, line if ends else line.rstrip("\r\n")
    except _DAMAGE as err:
        raise TableFormatError(f"{where}, after line {n}: the compressed file is damaged or truncated ({err})") from err


def fields(line: str, n: int) -> list[str]:
    """Splits a line at blanks and tabs; ``n`` is how many fields are expected."""
    found = line.split()
    # str.split is fast but also splits at rare spaces (U+00A0, U+3000) that are part of a word here.
    return found if len(found) == n else _BLANKS.split(line.strip(" \t"))


def rows(
    stream: IO[bytes], faults: Faults, where: str | None = None, *, delimiter: str, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yields the fields of delimited text, with the number of the line where each row starts; blank lines are left out.

    Args:
        stream: The bytes.
        faults: Where malformed lines are reported.
        where: What messages call the file; ``None``: what ``faults`` calls it.
        delimiter: What separates fields.
        quoted: Whether fields may be quoted as in CSV; otherwise a quotation mark is a character like any other.

    Raises:
        TableFormatError: If a line is malformed (unless skipped), or the compressed file is damaged.
    """
    if not quoted:
        for n, line in lines(stream, faults, where):
            if line and not line.isspace():
                yield n, line.split(delimiter)
        return

    at = start = 0

    def feed() -> Iterator[str]:
        nonlocal at, start
        for at, line in lines(stream, faults, where, ends=True):
            start = start or at
            yield line

    reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        start = 0
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as err:
            faults.bad(f"not CSV: {err}", start or at, where)
            continue
        if row:
            yield start, row


def number(text: str, faults: Faults, line: int, kind: Callable[[str], Any] = float, where: str = "") -> Any:
    """Returns the number that a field holds, or ``None`` if it holds none, which is reported."""
    try:
        return kind(text)
    except ValueError:
        faults.bad(f"expected a number, found {text!r}", line, where or None)
        return None


@contextmanager
def text_writer(path: Path) -> Iterator[TextIO]:
    """Opens a text file that appears when the block ends without an error, gzipped if its name ends in ``.gz``."""
    with atomic_file(path) as tmp, open(tmp, "wb") as raw:
        if path.suffix in (".gz", ".dz"):
            # No name and time in the file: the same table gives the same bytes.
            with (
                gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
                io.TextIOWrapper(io.BufferedWriter(packed, _BUFFER), encoding="utf-8", newline="\n") as text,
            ):
                yield text
        else:
            with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as text:
                yield text


class _HasLanguages(Protocol):
    @property
    def lang(self) -> str: ...


def check_direction(
    path: Path,
    source: _HasLanguages,
    target: _HasLanguages,
    *,
    found: Sequence[str] | None = None,
    ordered: bool = True,
) -> None:
    """Compares the languages that a file names with those asked for.

    Args:
        path: The file, named in messages.
        source: Analyzer of the source language.
        target: Analyzer of the target language.
        found: The two language codes that the file names; ``None``: those in its name (``de-en.txt``), if any.
        ordered: Whether their order matters; otherwise the file serves both directions.

    Raises:
        ValueError: If they differ.
    """
    if found is None:
        match = _DIRECTION.search(path.name.lower())
        found = match.groups() if match else ()
    try:
        codes = [language_code(code) for code in found]
    except ValueError:
        return  # a name that only looks like a pair of languages
    wanted = [source.lang, target.lang]
    if codes and (codes if ordered else sorted(codes)) != (wanted if ordered else sorted(wanted)):
        raise ValueError(f"{path} holds {'-'.join(codes)}, but {'-'.join(wanted)} was asked for")
