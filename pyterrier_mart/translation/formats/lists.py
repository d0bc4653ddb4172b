"""Word lists without probabilities: MUSE dictionaries, and lists with English such as CLDR's names."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial
from pathlib import Path

from pyterrier_mart.archives import plain_name
from pyterrier_mart.lines import lines, open_binary
from pyterrier_mart.text import language_of
from pyterrier_mart.translation.builder import EntryBuilder, TableFormatError
from pyterrier_mart.translation.entries import Weights
from pyterrier_mart.translation.formats.common import Package, Text, check_direction, fields, listing, rows, text_writer
from pyterrier_mart.translation.matrix import WordMatrix

__all__ = ["read_lexicon", "read_muse", "write_muse"]

_CLDR_COLUMNS = 4
#: What the columns of Panlexia's files are called that tell the concept and a word for it, and where names say the
#: language.
_ID, _WORD = "id", "word"
_LANGUAGE = re.compile(r"(?:^|[/._-])([a-z]{2,3})\.(?:tsv|txt)$", re.IGNORECASE)


def read_muse(path: Path, builder: EntryBuilder, *, verbose: bool) -> Weights:
    """Reads a MUSE dictionary (Conneau et al., 2018): pairs ``source target``, separated by a tab or by blanks.

    Args:
        path: The file, plain or compressed. If its name contains a direction (``de-en.0-5000.txt``), it is checked.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line is not a pair.
        ValueError: If the file is named for another direction.
    """
    check_direction(path, builder)
    with open_binary(path, verbose) as stream:
        for n, line in lines(stream, builder):
            pair = line.split("\t") if "\t" in line else fields(line, 2)
            if len(pair) == 2:
                builder.add(pair[0], pair[1], 1.0, n)
            elif line.strip():
                builder.bad(f"expected 'source target', found {line[:80]!r}", n)
    return "uniform"


def write_muse(table: WordMatrix, path: Path) -> None:
    """Writes pairs, the most probable translations of a word first. The format has no place for probabilities."""
    with text_writer(path) as out:
        for source, target, _ in table.entries():
            out.write(f"{source} {target}\n")


def read_lexicon(path: Path, builder: EntryBuilder, *, verbose: bool) -> Weights:
    """Reads tab-separated lines that end in an English term and its translation, in either direction.

    Layouts, without header: ``english, target``; ``origin, english, target`` (TICO-19 terms); ``concept, english,
    target`` (Panlexia, joined); ``kind, id, english, target`` (CLDR). CLDR fills names that a language lacks with the
    English ones, so rows of that layout whose two names are equal say nothing and are left out. Most terms have several
    words: ``phrases="split"`` uses those on the target side.

    Panlexia itself has a file for each language (``eng.tsv``), with a header that names the columns ``id`` and
    ``word`` among others. Words of two languages that share an id are translations; neither need be English.

    Args:
        path: The file, plain or compressed. If its name contains a direction (``en-so.tsv``), the languages are
            checked. Of Panlexia, the folder or archive, or the file of one language, beside which that of the other is.
        builder: Takes the entries; one of its languages must be English.
        verbose: Whether to show a progress bar.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line has fewer than two or more than four columns, or not as many as the first; or if a
            file of Panlexia is missing.
        ValueError: If neither language is English, or the file is named for other languages.
    """
    languages = builder.source.lang, builder.target.lang
    package = Package(path)
    if package.names is not None:
        read_panlexia(package, list(package.names), builder, verbose)
        return "uniform"
    with open_binary(path) as stream:
        _, header = next(lines(stream, builder), (0, ""))
    if {_ID, _WORD} <= set(header.lower().split("\t")):
        names = [file.name for file in sorted(path.parent.iterdir()) if file.is_file()]
        read_panlexia(Package(path.parent), names, builder, verbose)
        return "uniform"
    if "en" not in languages:
        raise ValueError(f"{path}: a lexicon translates from or to English, not {'-'.join(languages)}")
    check_direction(path, builder, ordered=False)
    with open_binary(path, verbose) as stream:
        for n, row in rows(stream, builder, "\t"):
            if not 2 <= len(row) <= _CLDR_COLUMNS:
                builder.bad(f"expected 2 to {_CLDR_COLUMNS} columns, found {len(row)}", n)
            elif len(row) < _CLDR_COLUMNS or row[-2] != row[-1]:
                source, target = row[-2:] if languages[0] == "en" else row[:-3:-1]
                builder.add(source, target, 1.0, n)
    return "uniform"


def read_panlexia(package: Package, names: list[str], builder: EntryBuilder, verbose: bool) -> None:
    """Adds the words of two files of Panlexia that share an id."""
    sides: list[dict[str, list[str]]] = []
    for lang in (builder.source.lang, builder.target.lang):
        named = [(name, _LANGUAGE.search(plain_name(name))) for name in names]
        found = [plain_name(name) for name, match in named if match and language_of(match[1]) == lang]
        if len(found) != 1:
            raise TableFormatError(
                f"{package.path} must hold one file of words in {lang}, such as {lang}.tsv, with the columns {_ID} and "
                f"{_WORD}, as Panlexia has them, not {listing(found or names)}"
            )
        sides.append(words_by_id(Text(package.where(found[0]), partial(package.open, found[0], verbose)), builder))
    for concept, sources in sides[0].items():
        for source in sources:
            for target in sides[1].get(concept, ()):
                builder.add(source, target)


def words_by_id(text: Text, builder: EntryBuilder) -> dict[str, list[str]]:
    """Returns the words of a file of Panlexia by concept."""
    found: dict[str, list[str]] = defaultdict(list)
    with text.open() as stream:
        numbered = lines(stream, builder, text.where)
        header = next(numbered, (0, ""))[1].lower().split("\t")
        if missing := [name for name in (_ID, _WORD) if name not in header]:
            raise TableFormatError(
                f"{text.where}, line 1: missing column {', '.join(missing)}; found {listing(header)}"
            )
        places = header.index(_ID), header.index(_WORD)
        for n, line in numbered:
            cells = line.split("\t")
            if len(cells) > max(places):
                found[cells[places[0]]].append(cells[places[1]])
            elif line.strip():
                builder.bad(f"expected at least {max(places) + 1} columns, found {len(cells)}", n, text.where)
    return found
