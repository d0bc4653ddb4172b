"""FreeDict dictionaries: released packages, the files of the dictd server in them, and their TEI sources."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from pyterrier_mart.text import language_code
from pyterrier_mart.translation.builder import TableBuilder, TableFormatError, Weights
from pyterrier_mart.translation.formats.common import check_direction, damage, lines, open_binary, text_writer
from pyterrier_mart.translation.formats.packages import Package, listing
from pyterrier_mart.translation.formats.tei import read_tei
from pyterrier_mart.translation.formats.terms import clean, terms

if TYPE_CHECKING:
    from pyterrier_mart.translation.table import TranslationTable

__all__ = ["read_freedict", "write_freedict"]

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_ENDINGS = (".index", ".dict.dz", ".dict")
_CHUNK = 1 << 20
_TEI = re.compile(r"\.tei(\.(gz|bz2|xz))?$", re.IGNORECASE)
#: The languages in the names of packages and dictionaries.
_DIRECTION = re.compile(r"(?:^|freedict-)([a-z]{2,3})-([a-z]{2,3})(?=[._-]|$)")

_INFLECTED = re.compile(r"^\s*[A-Z][\w ]* of \{[^}]*\}:")  # "Plural of {kiatu}: shoe"
_SENSE = re.compile(r"^\s*\d+\.(?!\S)")
_OTHER_LINES = re.compile(r'^\s*(?:(?:synonyms?|antonyms?|see|see also|note):|")', re.IGNORECASE)


def read_freedict(path: Path, builder: TableBuilder, *, verbose: bool) -> Weights:
    """Reads the headwords and translations of a dictionary; the translations share a source word equally.

    In dictd's files, an entry is a line with the headword, its pronunciation and grammar, followed by lines of
    translations separated by commas; in TEI, see :func:`~pyterrier_mart.translation.formats.tei.read_tei`. Grammar,
    field labels, remarks, examples, synonyms and references are left out. An entry that the index lists under several
    words (an abbreviation, an inflected form) is read for each of them.

    Args:
        path: A released package (``freedict-deu-eng-1.9-fd1.dictd.tar.xz``, ``....src.tar.xz``, a Debian package) or
            the folder that one was unpacked to; ``NAME.index``, ``NAME.dict.dz``, ``NAME.dict`` or just ``NAME``; or
            ``NAME.tei``. If a name contains a direction (``deu-eng``), it is checked.
        builder: Takes the entries. Places in messages are lines of the index or the TEI file.
        verbose: Whether to show a progress bar for each file.

    Returns:
        What the weights mean.

    Raises:
        FileNotFoundError: If one of the two files is missing.
        TableFormatError: If there is no dictionary in the package, or more than one; an index line is malformed,
            points beyond the end of the dictionary or to what is not UTF-8; the XML is not well-formed; or a
            compressed file is damaged.
        ArchiveError: If a package is damaged.
        ValueError: If the files are named for another direction.
    """
    _check_name(path, path.name, builder)
    package = Package(path) if path.exists() and not path.name.endswith(_ENDINGS) else None
    if package is not None and package.names is not None:
        files = _chosen(package, builder, verbose)
    elif package is not None and _TEI.search(path.name):
        files = [_File(str(path), partial(package.open, "", verbose))]
    else:
        files = [_File(str(file), partial(open_binary, file, verbose)) for file in _files(path)]
    builder.where = files[0].where
    if len(files) == 1:
        with files[0].open() as stream:
            read_tei(stream, builder)
    else:
        _read_dictd(files[0], files[1], builder)
    return "uniform"


class _File(NamedTuple):
    """A file, wherever it is."""

    where: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def _check_name(path: Path, name: str, builder: TableBuilder) -> None:
    """Compares the languages in the name of a dictionary, if there are any, with those asked for."""
    match = _DIRECTION.search(name.lower())
    if match:
        check_direction(path, builder.source, builder.target, found=match.groups())


def _chosen(package: Package, builder: TableBuilder, verbose: bool) -> list[_File]:
    """The index and the dictionary in a package, or the TEI file."""
    names = package.names or []
    dictionaries = [name for name in names if name.endswith(".dict") and f"{name[:-5]}.index" in names]
    found: list[tuple[str, ...]] = [(f"{name[:-5]}.index", name) for name in dictionaries]
    found = found or [(name,) for name in names if _TEI.search(name)]
    if len(found) > 1:  # a folder of several: the one of these languages
        found = [files for files in found if _is_for(files[0], builder)] or found
    if len(found) != 1:
        problem = "holds no FreeDict dictionary" if not found else "holds several dictionaries"
        raise TableFormatError(
            f"{package.path} {problem}; expected NAME.index and NAME.dict.dz, or NAME.tei, found {listing(names)}"
        )
    _check_name(package.path / found[0][0], found[0][0].rsplit("/", 1)[-1], builder)
    return [_File(package.where(name), partial(package.open, name, verbose)) for name in found[0]]


def _is_for(name: str, builder: TableBuilder) -> bool:
    match = _DIRECTION.search(name.rsplit("/", 1)[-1].lower())
    try:
        return match is not None and (builder.source.lang, builder.target.lang) == tuple(
            language_code(code) for code in match.groups()
        )
    except ValueError:
        return False


def _read_dictd(index: _File, dictionary: _File, builder: TableBuilder) -> None:
    headwords: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
    with index.open() as stream:
        for n, headword, offset, length in _index(stream, builder):
            headwords[offset, length].append((n, headword))
    spans = sorted(headwords)
    name = dictionary.where.rsplit("/", 1)[-1]
    with dictionary.open() as stream, damage(dictionary.where):
        for span, piece in zip(spans, _pieces(stream, spans), strict=True):
            found = headwords[span]
            line = found[0][0]
            if len(piece) < span[1]:
                builder.bad(f"offset {span[0]:,} + length {span[1]:,} is beyond the end of {name}", line)
                continue
            try:
                entry = piece.decode("utf-8")
            except UnicodeDecodeError:
                builder.bad(f"the entry at offset {span[0]:,} of {name} is not UTF-8", line)
                continue
            sources, targets = _parse(entry, [headword for _, headword in found])
            for source in sources:
                for target in targets:
                    builder.add(source, target, 1.0, line)


def _files(path: Path) -> tuple[Path, Path]:
    """The index and the dictionary that belong to a path or to their common prefix."""
    prefix = path.name
    for ending in _ENDINGS:
        prefix = prefix.removesuffix(ending)
    index, *dicts = (path.with_name(prefix + ending) for ending in _ENDINGS)
    if not index.exists():
        raise FileNotFoundError(f"missing {index}, the index of the dictionary")
    for candidate in [path, *dicts] if path in dicts else dicts:
        if candidate.exists():
            return index, candidate
    raise FileNotFoundError(f"missing {dicts[0]}, the dictionary that {index.name} belongs to")


def _index(stream: IO[bytes], builder: TableBuilder) -> Iterator[tuple[int, str, int, int]]:
    """Yields line, headword, offset and length of the entries."""
    for n, line in lines(stream, builder):
        # A fourth field may hold the headword as it was before it was normalised for sorting.
        parts = line.split("\t")
        if len(parts) not in (3, 4):
            builder.bad(f"expected headword, offset and length, found {line[:80]!r}", n)
        elif not parts[0].startswith(("00database", "00-database")):
            offset, length = _number(parts[1]), _number(parts[2])
            if offset is None or length is None:
                bad = parts[1] if offset is None else parts[2]
                builder.bad(f"expected a number of base-64 digits (A-Z a-z 0-9 + /), found {bad!r}", n)
            else:
                yield n, parts[0], offset, length


def _number(digits: str) -> int | None:
    if not digits or len(digits) > 10:  # 60 bits
        return None
    value = 0
    for digit in digits:
        if digit not in _VALUES:
            return None
        value = value * 64 + _VALUES[digit]
    return value


def _pieces(stream: IO[bytes], spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yields the bytes at sorted (offset, length) in one pass over a stream, so that it need not be in memory."""
    start, window = 0, b""
    for offset, length in spans:
        gap = offset - start - len(window)
        if gap > 0:
            while gap > 0 and (skipped := len(stream.read(min(gap, _CHUNK)))):
                gap -= skipped
            window = b""
        else:
            window = window[offset - start :]  # spans may overlap
        start = offset
        if length > len(window):
            window += stream.read(length - len(window))
        yield window[:length]


def _parse(entry: str, headwords: list[str]) -> tuple[set[str], set[str]]:
    """The words that an entry is about and their translations.

    The index spells words in lower case and without punctuation, so the entry's own spelling is preferred.
    """
    head, *rest = entry.split("\n")
    sources = terms(head)
    if len(headwords) > 1:
        squashed = {_squash(source) for source in (*sources, clean(head))}
        sources.update(headword for headword in headwords if _squash(headword) not in squashed)
    targets = set()
    for line in rest:
        if line and not _OTHER_LINES.match(line):
            targets |= terms(_SENSE.sub("", _INFLECTED.sub("", line)))
    return sources, targets


def _squash(word: str) -> str:
    return "".join(filter(str.isalnum, word.casefold()))


def write_freedict(table: TranslationTable, path: Path) -> None:
    """Writes ``NAME.index`` and ``NAME.dict.dz``, the most probable translations of a word first.

    The format has no place for probabilities. The dictionary appears before its index, each of them whole.

    Args:
        table: The table.
        path: As for :func:`read_freedict`; ``NAME.dict`` is written uncompressed.
    """
    prefix = path.name
    for ending in _ENDINGS:
        prefix = prefix.removesuffix(ending)
    dict_ending = ".dict" if path.name.endswith(".dict") else ".dict.dz"
    offset = 0
    index = []
    with (
        text_writer(path.with_name(prefix + ".index")) as index_out,
        text_writer(path.with_name(prefix + dict_ending)) as dict_out,
    ):
        for source, entries in groupby(table.entries(), key=lambda entry: entry[0]):
            entry = f"{source}\n{', '.join(target for _, target, _ in entries)}\n"
            dict_out.write(entry)
            length = len(entry.encode("utf-8"))
            index.append(f"{source}\t{_digits(offset)}\t{_digits(length)}\n")
            offset += length
        index_out.writelines(index)


def _digits(value: int) -> str:
    digits = _DIGITS[value % 64]
    while value := value // 64:
        digits = _DIGITS[value % 64] + digits
    return digits
