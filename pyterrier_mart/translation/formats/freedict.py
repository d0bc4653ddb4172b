"""FreeDict dictionaries: released packages, the files of the dictd server in them, and their TEI sources."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial, reduce
from itertools import groupby
from pathlib import Path

from pyterrier_mart.lines import lines, open_binary
from pyterrier_mart.text import language_of
from pyterrier_mart.translation.builder import EntryBuilder, TableFormatError
from pyterrier_mart.translation.entries import Weights
from pyterrier_mart.translation.formats.common import Package, Text, check_direction, listing, text_writer
from pyterrier_mart.translation.formats.tei import clean, read_tei, terms
from pyterrier_mart.translation.matrix import WordMatrix

__all__ = ["read_freedict", "write_freedict"]

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_ENDINGS = (".index", ".dict.dz", ".dict")
_PART = 1 << 20
_MOST_DIGITS = 10
_LINE_END = ord("\n")
_TEI = re.compile(r"\.tei(\.(gz|bz2|xz))?$", re.IGNORECASE)
#: The languages in the names of packages and dictionaries.
_DIRECTION = re.compile(r"(?:^|freedict-)([a-z]{2,3})-([a-z]{2,3})(?=[._-]|$)")

_INFLECTED = re.compile(r"^\s*[A-Z][\w ]* of \{[^}]*\}:")  # "Plural of {kiatu}: shoe"
_SENSE = re.compile(r"^\s*\d+\.(?!\S)")
_OTHER_LINES = re.compile(r'^\s*(?:(?:synonyms?|antonyms?|see|see also|note):|")', re.IGNORECASE)


def read_freedict(path: Path, builder: EntryBuilder, *, verbose: bool) -> Weights:
    """Reads the headwords and translations of a dictionary; the translations share a source word equally.

    In dictd's files, an entry is a line with the headword, its pronunciation and grammar, followed by lines of
    translations separated by commas; in TEI, see :func:`~pyterrier_mart.translation.formats.tei.read_tei`. Grammar,
    field labels, remarks, examples, synonyms and references are left out. An entry that the index lists under several
    words (an abbreviation, an inflected form) is read for each of them.

    Args:
        path: A released package (``freedict-deu-eng-1.9-fd1.dictd.tar.xz``, ``....src.tar.xz``, a Debian package) or
            the folder that one was unpacked to; ``NAME.index``, ``NAME.dict.dz``, ``NAME.dict`` or just ``NAME``; or
            ``NAME.tei``. If a name contains a direction (``deu-eng``), it is checked.
        builder: Takes the entries. Places in messages are lines of the index.
        verbose: Whether to show a progress bar for each file.

    Returns:
        What the weights mean.

    Raises:
        FileNotFoundError: If one of the two files is missing.
        TableFormatError: If there is no dictionary in the package, or more than one; an index line is malformed,
            points beyond the end of the dictionary or to what is not UTF-8; or the XML is not well-formed.
        ArchiveError: If a package or a compressed file is damaged.
        ValueError: If the files are named for another direction.
    """
    check_direction(path, builder, languages_in(path.name))
    package = Package(path) if path.exists() and not path.name.endswith(_ENDINGS) else None
    if package is None:
        files = [Text(str(file), partial(open_binary, file, verbose)) for file in index_and_dictionary(path)]
    elif package.names is None:
        files = [Text(str(path), partial(open_binary, path, verbose))]
    else:
        found = choose(package, builder)
        files = [Text(package.where(name), partial(package.open, name, verbose)) for name in found]
    builder.where = files[0].where
    if len(files) == 1:
        with files[0].open() as stream:
            read_tei(stream, builder)
    else:
        read_dictd(files[0], files[1], builder)
    return "uniform"


def languages_in(name: str) -> tuple[str, ...]:
    """Returns the languages in the path of a dictionary, if there are any."""
    match = _DIRECTION.search(name.rsplit("/", 1)[-1].lower())
    return match.groups() if match else ()


def choose(package: Package, builder: EntryBuilder) -> tuple[str, ...]:
    """Returns the names of the index and the dictionary in a package, or of the TEI file."""
    names = package.names or []
    found: list[tuple[str, ...]] = [
        (f"{name[:-5]}.index", name) for name in names if name.endswith(".dict") and f"{name[:-5]}.index" in names
    ]
    found = found or [(name,) for name in names if _TEI.search(name)]
    if len(found) > 1:  # a folder of several: the one of these languages
        wanted = [builder.source.lang, builder.target.lang]
        found = [files for files in found if [*map(language_of, languages_in(files[0]))] == wanted] or found
    if len(found) != 1:
        problem = "holds no FreeDict dictionary" if not found else "holds several dictionaries"
        raise TableFormatError(
            f"{package.path} {problem}; expected NAME.index and NAME.dict.dz, or NAME.tei, found {listing(names)}"
        )
    check_direction(package.path / found[0][0], builder, languages_in(found[0][0]))
    return found[0]


def index_and_dictionary(path: Path) -> tuple[Path, Path]:
    """Returns the index and the dictionary that belong to a path or to their common prefix."""
    index, *dictionaries = (path.with_name(prefix_of(path) + ending) for ending in _ENDINGS)
    named = [path] if path in dictionaries else dictionaries
    dictionary = next((file for file in named if file.exists()), named[0])
    for file in (index, dictionary):
        if not file.exists():
            raise FileNotFoundError(f"missing {file}; a dictionary is {index.name} and {dictionary.name}")
    return index, dictionary


def prefix_of(path: Path) -> str:
    """Returns what the names of an index and its dictionary have in common."""
    prefix = path.name
    for ending in _ENDINGS:
        prefix = prefix.removesuffix(ending)
    return prefix


def read_dictd(index: Text, dictionary: Text, builder: EntryBuilder) -> None:
    """Adds the entries of a dictionary, each of which the index may list under several words."""
    headwords: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
    with index.open() as stream:
        for n, line in lines(stream, builder):
            if line.startswith(("00database", "00-database")):
                continue
            try:
                # A fourth field may hold the headword as it was before it was normalised for sorting.
                headword, *span = line.split("\t")[:3]
                headwords[decode(span[0]), decode(span[1])].append((n, headword))
            except (ValueError, IndexError, TypeError):  # TypeError: no digit at all
                builder.bad(f"expected headword, offset and length (base-64 digits), found {line[:80]!r}", n)
    text = bytearray()
    end = max((start + length for start, length in headwords), default=0)
    with dictionary.open() as stream:
        while len(text) < end and (part := stream.read(_PART)):  # not what no entry is in, however much it is
            text += part
    for (start, length), found in headwords.items():
        line_number = found[0][0]
        entry = text[start : start + length]
        if start + length > len(text):
            builder.bad(f"offset {start:,} + length {length:,} is beyond the end of {dictionary.where}", line_number)
            continue
        if start and text[start - 1] != _LINE_END:
            builder.bad(f"at offset {start:,} of {dictionary.where}, no line begins, as entries do", line_number)
            continue
        try:
            sources, targets = parse(entry.decode("utf-8"), [headword for _, headword in found])
        except UnicodeDecodeError:
            builder.bad(f"the entry at offset {start:,} of {dictionary.where} is not UTF-8", line_number)
            continue
        for source in sources:
            for target in targets:
                builder.add(source, target, 1.0, line_number)


def parse(entry: str, headwords: list[str]) -> tuple[set[str], set[str]]:
    """Returns the words that an entry is about and their translations.

    The index spells words in lower case and without punctuation, so the entry's own spelling is preferred.
    """
    head, *rest = entry.split("\n")
    sources = terms(head)
    if len(headwords) > 1:
        squashed = {squash(source) for source in (*sources, clean(head))}
        sources.update(headword for headword in headwords if squash(headword) not in squashed)
    kept = [line for line in rest if line and not _OTHER_LINES.match(line)]
    return sources, {target for line in kept for target in terms(_SENSE.sub("", _INFLECTED.sub("", line)))}


def squash(word: str) -> str:
    """Returns the letters and digits of a word, as the index compares them."""
    return "".join(filter(str.isalnum, word.casefold()))


def decode(digits: str) -> int:
    """Returns the number of base-64 digits, of which the first is the highest.

    Raises:
        ValueError: If it is none, or far beyond the end of any file.
    """
    if len(digits) > _MOST_DIGITS:
        raise ValueError
    return reduce(lambda value, digit: value * 64 + digit, map(_DIGITS.index, digits))


def encode(value: int) -> str:
    """Returns a number in base-64 digits."""
    digits = _DIGITS[value % 64]
    while value := value // 64:
        digits = _DIGITS[value % 64] + digits
    return digits


def write_freedict(table: WordMatrix, path: Path) -> None:
    """Writes ``NAME.index`` and ``NAME.dict.dz``, the most probable translations of a word first.

    The format has no place for probabilities. The dictionary appears before its index, each of them whole.

    Args:
        table: The table.
        path: As for :func:`read_freedict`; ``NAME.dict`` is written uncompressed.
    """
    prefix = prefix_of(path)
    offset = 0
    with (
        text_writer(path.with_name(prefix + ".index")) as index_out,
        text_writer(path.with_name(prefix + (".dict" if path.name.endswith(".dict") else ".dict.dz"))) as dict_out,
    ):
        for source, entries in groupby(table.entries(), key=lambda entry: entry[0]):
            entry = f"{source}\n{', '.join(target for _, target, _ in entries)}\n"
            dict_out.write(entry)
            length = len(entry.encode("utf-8"))
            index_out.write(f"{source}\t{encode(offset)}\t{encode(length)}\n")
            offset += length
