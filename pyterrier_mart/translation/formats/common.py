"""What the formats share: files opened plain or packed, their lines and fields, and the way they are written."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from html.entities import html5
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO
from xml.etree.ElementTree import Element, ParseError, XMLParser, iterparse

from pyterrier_mart.archives import ArchiveError, files, members, plain_name
from pyterrier_mart.files import atomic_file
from pyterrier_mart.lines import lines, open_binary
from pyterrier_mart.problems import Faults, TableFormatError
from pyterrier_mart.text import LANGUAGES, language_of
from pyterrier_mart.translation.builder import EntryBuilder

__all__ = [
    "Package", "Text", "check_direction", "fields", "is_zero", "listing", "number", "records", "rows", "text_writer",
]  # fmt: skip

_SHOWN = 12
_LONGEST_RECORD = 1 << 26
_DEEPEST = 100  # what works on records may be recursive
_BLANKS = re.compile("[ \t]+")
_NOT_ZERO = re.compile("[^e]*[1-9]", re.IGNORECASE)
_DIRECTION = re.compile(r"(?<![a-z])([a-z]{2,3})-([a-z]{2,3})(?![a-z-])")
_ENTITIES = {name.removesuffix(";"): text for name, text in html5.items()}


# --- files ----------------------------------------------------------------------------------------------------------


class Package:
    """The files in an archive or folder, by their names.

    Each file is read from the start of the archive: two of them can be read side by side, even from a compressed tar,
    with nothing unpacked on disk. Archives inside a folder are left closed.

    Args:
        path: The archive, or the folder.

    Attributes:
        names: The names of the files, with ``/`` between folders and without the endings of compressed ones (``.gz``);
            ``None`` if the path is a single file and not an archive.

    Raises:
        ArchiveError: If the archive is damaged.
        OSError: If it cannot be read.
    """

    def __init__(self, path: Path):
        self.path = path
        self.names: list[str] | None = None
        self._files: dict[str, Path] = {}
        if path.is_dir():
            self._files = {plain_name(file.relative_to(path).as_posix()): file for file in files(path)}
            self.names = list(self._files)
            return
        found: list[str] = []
        outer = plain_name(str(path))

        def look(name: str) -> bool:
            if name != outer:  # or nothing inside is looked at
                found.append(name[len(str(path)) + 1 :])
            return name == outer

        with closing(members(path, wanted=look)) as opened:
            if next(opened, None) is None:
                self.names = found

    def where(self, name: str) -> str:
        """Returns what messages call a file."""
        return f"{self.path}/{name}"

    @contextmanager
    def open(self, name: str, verbose: bool = False) -> Iterator[IO[bytes]]:
        """Opens one of :attr:`names`, decompressed.

        Args:
            name: The file.
            verbose: Whether to show a progress bar, of what is read of the archive.

        Raises:
            ArchiveError: If the archive is damaged; also while the file is read.
        """
        with open_binary(self._files.get(name, self.path), verbose, self.where(name)) as stream:
            yield stream


class Text(NamedTuple):
    """A file, wherever it is."""

    where: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def listing(names: Sequence[str]) -> str:
    """Returns the first names of many, for messages."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more


def check_direction(
    path: Path, builder: EntryBuilder, found: Sequence[str] | None = None, *, ordered: bool = True
) -> None:
    """Compares the languages that a file names with those asked for.

    Args:
        path: The file, named in messages.
        builder: Has the languages asked for.
        found: The two language codes that the file names; ``None``: those in its name (``de-en.txt``), if any.
        ordered: Whether their order matters; otherwise the file serves both directions.

    Raises:
        ValueError: If they differ.
    """
    if found is None:
        match = _DIRECTION.search(path.name.lower())
        found = match.groups() if match else ()
    codes, wanted = [language_of(code) for code in found], [builder.source.lang, builder.target.lang]
    if not all(code in LANGUAGES for code in codes):
        return  # a name that only looks like a pair of languages
    if codes and codes != wanted and (ordered or codes != wanted[::-1]):
        raise ValueError(f"{path} holds {'-'.join(map(str, codes))}, but {'-'.join(wanted)} was asked for")


@contextmanager
def text_writer(path: Path) -> Iterator[TextIO]:
    """Opens a text file that appears when the block ends without an error, gzipped if its name ends in ``.gz``."""
    with atomic_file(path) as tmp, open(tmp, "wb") as raw:
        packed: Any = raw
        if path.suffix in (".gz", ".dz"):  # no name and time in the file: the same table gives the same bytes
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0)
        with packed, io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text:
            yield text


# --- lines ----------------------------------------------------------------------------------------------------------


def fields(line: str, n: int) -> list[str]:
    """Splits a line at blanks and tabs; ``n`` is how many fields are expected."""
    found = line.split()
    # str.split is fast but also splits at rare spaces (U+00A0, U+3000) that are part of a word here.
    return found if len(found) == n else _BLANKS.split(line.strip(" \t"))


def rows(
    stream: IO[bytes], faults: Faults, delimiter: str, where: str | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yields the fields of delimited text, with the number of the line where each row starts.

    Rows without text are left out. Rows of more or fewer fields than the first one are malformed.

    Args:
        stream: The bytes.
        faults: Where malformed lines are reported.
        delimiter: What separates fields. Between tabs, a quotation mark is a character like any other; between other
            characters, fields may be quoted as in CSV (RFC 4180).
        where: What messages call the file; ``None``: what ``faults`` calls it.

    Raises:
        TableFormatError: If a line is malformed (unless skipped).
    """
    width = 0
    last = [0]  # the number of the line that was read last

    def feed() -> Iterator[str]:
        for last[0], line in lines(stream, faults, where, ends=True):
            yield line

    reader = csv.reader(
        feed(), delimiter=delimiter, quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL, strict=True
    )
    while True:
        start = last[0] + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as err:  # of a quotation mark that is not closed, at the end of the file
            faults.bad(f"not CSV: {err}", start, where)
            continue
        if "".join(row).strip():
            width = width or len(row)
            if len(row) == width:
                yield start, row
            else:
                faults.bad(f"expected {width} columns, found {len(row)}", start, where)


def number(text: str, faults: Faults, line: int) -> float | None:
    """Returns the number that a field holds, or ``None`` if it holds none, which is reported.

    What only Python takes for one is none (``0_0.5``, ``٠.٥``), nor is what is too small to be told from zero.
    """
    try:
        value = float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        value = None
    if value is None or (value == 0 and not is_zero(text)):
        faults.bad(f"expected a number, found {text!r}", line)
        return None
    return value


def is_zero(text: str) -> bool:
    """Returns whether the digits of a number are zeros; what is not, such as ``1e-400``, may still become zero."""
    return not _NOT_ZERO.match(text)


# --- XML ------------------------------------------------------------------------------------------------------------


def records(stream: IO[bytes], faults: Faults, where: str, tags: frozenset[str]) -> Iterator[Element]:
    """Yields the elements of some tags from XML of any size. Memory holds one of them.

    Nothing outside the file is read. Prefixes of namespaces are cut off from tags and the names of attributes.
    Elements of these tags inside one another come out one by one, the inner before the outer, which lacks them.

    Args:
        stream: The bytes, in the encoding that they declare.
        faults: Takes where the file is not well-formed; it is read up to there.
        where: What messages call the file.
        tags: The tags.

    Raises:
        TableFormatError: If the file is not well-formed (unless skipped), tags are nested many deep, or an element is
            so long that it is none of these.
    """
    bounded = BoundedReads(stream, where)
    parser = XMLParser()
    parser.entity.update(_ENTITIES)  # those of HTML, which a document type somewhere else may declare
    open_elements: list[Element] = []
    try:
        for event, element in iterparse(bounded, events=("start", "end"), parser=parser):
            if event == "start":
                open_elements.append(element)
                if len(open_elements) > _DEEPEST:
                    raise TableFormatError(f"{where}: tags nested more than {_DEEPEST} deep")
                continue
            open_elements.pop()
            element.tag = element.tag.rpartition("}")[2]
            element.attrib = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
            if element.tag in tags:
                yield element
                element.clear()
            if open_elements and not any(outer.tag.rpartition("}")[2] in tags for outer in open_elements):
                open_elements[-1].clear()
                bounded.since = 0
    except ParseError as err:
        faults.bad(f"not well-formed XML: {err}", err.position[0], where)
    except (TableFormatError, ArchiveError):
        raise
    except (LookupError, ValueError) as err:  # the declared encoding does not exist, or expat cannot read it
        faults.bad(f"not readable as XML: {err}", 1, where)


class BoundedReads:
    """A stream of XML that is refused if an element in it would fill the memory.

    Attributes:
        since: The number of bytes that were read since an element of those that are kept ended.
    """

    def __init__(self, stream: IO[bytes], where: str):
        self._stream, self._where, self.since = stream, where, 0

    def read(self, size: int = -1, /) -> bytes:
        """Reads some bytes."""
        data = self._stream.read(size)
        self.since += len(data)
        if self.since > _LONGEST_RECORD:
            raise TableFormatError(f"{self._where}: an element of more than {_LONGEST_RECORD:,} bytes")
        return data
