"""MUSE dictionaries (Conneau et al., 2018): one pair of words a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyterrier_mart.translation.builder import TableBuilder, Weights
from pyterrier_mart.translation.formats.common import check_direction, fields, lines, open_binary, text_writer

if TYPE_CHECKING:
    from pyterrier_mart.translation.table import TranslationTable

__all__ = ["read_muse", "write_muse"]


def read_muse(path: Path, builder: TableBuilder, *, verbose: bool) -> Weights:
    """Reads pairs ``source target``, separated by a tab or by blanks; the translations share a source word equally.

    Args:
        path: The file, plain or gzipped. If its name contains a direction (``de-en.0-5000.txt``), it is checked.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line is not a pair.
        ValueError: If the file is named for another direction.
    """
    check_direction(path, builder.source, builder.target)
    with open_binary(path, verbose) as stream:
        for n, line in lines(stream, builder):
            pair = line.split("\t") if "\t" in line else fields(line, 2)
            if len(pair) == 2:
                builder.add(pair[0], pair[1], 1.0, n)
            elif line.strip():
                builder.bad(f"expected 'source target', found {line[:80]!r}", n)
    return "uniform"


def write_muse(table: TranslationTable, path: Path) -> None:
    """Writes pairs, the most probable translations of a word first. The format has no place for probabilities."""
    with text_writer(path) as out:
        for source, target, _ in table.entries():
            out.write(f"{source} {target}\n")
