"""Word lists without probabilities: MUSE dictionaries, and lists with English such as CLDR's names."""

from __future__ import annotations

from pathlib import Path

from pyterrier_mart.translation.builder import EntryBuilder
from pyterrier_mart.translation.entries import Weights
from pyterrier_mart.translation.formats.common import check_direction, fields, lines, open_binary, rows, text_writer
from pyterrier_mart.translation.matrix import WordMatrix

__all__ = ["read_lexicon", "read_muse", "write_muse"]

_CLDR_COLUMNS = 4


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
    target`` (Panlexia); ``kind, id, english, target`` (CLDR). CLDR fills names that a language lacks with the English
    ones, so rows of that layout whose two names are equal say nothing and are left out. Most terms have several words:
    ``phrases="split"`` uses those on the target side.

    Args:
        path: The file, plain or compressed. If its name contains a direction (``en-so.tsv``), the languages are
            checked.
        builder: Takes the entries; one of its languages must be English.
        verbose: Whether to show a progress bar.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line has fewer than two or more than four columns, or not as many as the first.
        ValueError: If neither language is English, or the file is named for other languages.
    """
    languages = builder.source.lang, builder.target.lang
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
