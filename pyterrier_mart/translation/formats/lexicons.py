"""Bilingual word lists with English: Unicode CLDR names, TICO-19 terms, Panlexia concepts, and their like."""

from __future__ import annotations

from pathlib import Path

from pyterrier_mart.translation.builder import TableBuilder, Weights
from pyterrier_mart.translation.formats.common import check_direction, open_binary, rows

__all__ = ["read_lexicon"]

_CLDR_COLUMNS = 4


def read_lexicon(path: Path, builder: TableBuilder, *, verbose: bool) -> Weights:
    """Reads tab-separated lines that end in an English term and its translation, in either direction.

    Layouts, without header: ``english, target``; ``origin, english, target`` (TICO-19 terms); ``concept, english,
    target`` (Panlexia); ``kind, id, english, target`` (CLDR). CLDR fills names that a language lacks with the English
    ones, so rows of that layout whose two names are equal say nothing and are left out. The translations share a
    source word equally. Most terms have several words: ``phrases="split"`` uses those on the target side.

    Args:
        path: The file, plain or gzipped. If its name contains a direction (``en-so.tsv``), the languages are checked.
        builder: Takes the entries; one of its languages must be English.
        verbose: Whether to show a progress bar.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line has fewer than two or more than four columns, or not as many as the first.
        ValueError: If neither language is English, or the file is named for other languages.
    """
    if "en" not in (builder.source.lang, builder.target.lang):
        raise ValueError(
            f"{path}: a lexicon translates from or to English, not {builder.source.lang}-{builder.target.lang}"
        )
    check_direction(path, builder.source, builder.target, ordered=False)
    from_english = builder.source.lang == "en"
    width = 0
    with open_binary(path, verbose) as stream:
        for n, row in rows(stream, builder, delimiter="\t", quoted=False):
            width = width or min(max(len(row), 2), _CLDR_COLUMNS)
            if len(row) != width:
                builder.bad(f"expected {width} columns, found {len(row)}", n)
                continue
            english, other = row[-2:]
            if width == _CLDR_COLUMNS and english == other:
                continue
            source, target = (english, other) if from_english else (other, english)
            builder.add(source, target, 1.0, n)
    return "uniform"
