"""Tables in columns: Moses and GIZA++ lexical files, TSV, CSV, Parquet, and what PanLex exports."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType

from pyterrier_mart.files import atomic_file
from pyterrier_mart.lines import lines, open_binary
from pyterrier_mart.translation.builder import EntryBuilder, TableFormatError
from pyterrier_mart.translation.entries import Weights
from pyterrier_mart.translation.formats.common import check_direction, fields, number, rows, text_writer
from pyterrier_mart.translation.matrix import WordMatrix

__all__ = [
    "read_delimited", "read_lexical", "read_panlex", "read_parquet", "write_delimited", "write_lexical",
    "write_parquet",
]  # fmt: skip

#: A column by its name, or by its position from 0 (from the end if negative).
Column = str | int

_DEFAULT_COLUMNS = ("source", "target", "prob")
_PARQUET_META = b"pyterrier_mart"


def read_lexical(path: Path, builder: EntryBuilder, *, verbose: bool, target_first: bool) -> Weights:
    """Reads lines of two words and a probability, separated by white space.

    Both programs print P(predicted word | given word), and the table needs the predicted word to be the target:

    * Target first, Moses. ``train-model.perl --f S --e T`` writes lines ``e f P(e | f)`` to ``lex.f2e`` and
      ``f e P(f | e)`` to ``lex.e2f``: always the predicted word first. P(T | S) is in ``lex.f2e``; ``lex.e2f`` is
      the table of the opposite direction.
    * Source first, GIZA++. Trained with S as the source corpus, its ``*.actual.ti.final`` holds lines
      ``s t P(t | s)``.

    Lines with the word ``NULL`` (aligned to nothing) are left out.

    Args:
        path: The file, plain or compressed.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.
        target_first: Whether the target word stands before the source word.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line is malformed.
    """
    s, t = (1, 0) if target_first else (0, 1)
    with open_binary(path, verbose) as stream:
        for n, line in lines(stream, builder):
            found = fields(line, 3)
            if len(found) != 3:
                if line.strip():
                    builder.bad(f"expected two words and a probability, found {line[:80]!r}", n)
            elif "NULL" not in found[:2] and (prob := number(found[2], builder, n)) is not None:
                builder.add(found[s], found[t], prob, n)
    return "probability"


def write_lexical(table: WordMatrix, path: Path, *, target_first: bool) -> None:
    """Writes lines of two words and a probability, see :func:`read_lexical`."""
    with text_writer(path) as out:
        for source, target, prob in table.entries():
            words = f"{target} {source}" if target_first else f"{source} {target}"
            out.write(f"{words} {prob:.9g}\n")


def read_delimited(
    path: Path,
    builder: EntryBuilder,
    *,
    verbose: bool,
    columns: Sequence[Column] | None = None,
    header: bool = True,
    delimiter: str,
) -> Weights:
    """Reads columns separated by tabs, without quoting, or by another character, quoted as in RFC 4180 where needed.

    Args:
        path: The file, plain or compressed.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.
        columns: Source, target and probability, by name or by position from 0; two for a list without
            probabilities, whose translations share a source word equally. ``None``: ``source``, ``target`` and
            ``prob``, or the first columns of a file without header; probabilities may be missing from a file of
            two columns.
        header: Whether the first line names the columns.
        delimiter: What separates columns.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line is malformed or a column is missing.
        ValueError: If an option does not fit.
    """
    return read_columns(path, builder, verbose, columns, header, delimiter, _DEFAULT_COLUMNS)


def read_panlex(
    path: Path,
    builder: EntryBuilder,
    *,
    verbose: bool,
    columns: Sequence[Column] | None = None,
    delimiter: str | None = None,
) -> Weights:
    """Reads translations that PanLex exports: a header, then source text, target text and perhaps a quality.

    The qualities of a source word's translations, divided by their sum, are its probabilities.

    Args:
        path: The file, plain or compressed.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.
        columns: Source, target and quality, by name or by position from 0; two for an export without qualities.
            ``None``: ``source``, ``target`` and ``quality``; the last may be missing from a file of two columns.
        delimiter: What separates columns; ``None``: a comma if the name says CSV, otherwise a tab. Fields separated
            by other characters than a tab may be quoted.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line is malformed or a column is missing.
        ValueError: If an option does not fit.
    """
    if delimiter is None:
        delimiter = "," if ".csv" in path.suffixes[-2:] else "\t"
    found = read_columns(path, builder, verbose, columns, True, delimiter, ("source", "target", "quality"))
    return "count" if found == "probability" else found


def read_columns(
    path: Path,
    builder: EntryBuilder,
    verbose: bool,
    columns: Sequence[Column] | None,
    header: bool,
    delimiter: str,
    defaults: tuple[str, str, str],
) -> Weights:
    """Reads delimited text of words and perhaps weights; ``defaults`` are the names that ``columns=None`` means."""
    with open_binary(path, verbose) as stream:
        found = rows(stream, builder, delimiter)
        first = next(found, None)
        if first is None:
            return "uniform"  # nothing in the file, which the caller reports
        names = first[1] if header else list(range(len(first[1])))
        s, t, *w = positions(names, columns, defaults, f"{path}, line {first[0]}")
        for n, row in found if header else chain([first], found):
            weight = number(row[w[0]], builder, n) if w else 1.0
            if weight is not None:
                builder.add(row[s], row[t], weight, n)
    return "probability" if w else "uniform"


def positions(
    names: Sequence[Column], columns: Sequence[Column] | None, defaults: tuple[str, str, str], where: str
) -> list[int]:
    """Returns the positions of source, target and, where there are weights, of the weight.

    Args:
        names: The names of the file's columns, or their positions if they have none.
        columns: The columns that were asked for.
        defaults: The names that ``None`` means.
        where: What messages call the place of the names.
    """
    if columns is None:
        # Two columns are a list without weights; more columns without the name of one are a mistake to report.
        known: list[Column] = [*defaults] if isinstance(names[0], str) else [*range(3)]
        columns = known[: max(2, min(len(names), 3))]
    if isinstance(columns, str) or not 2 <= len(columns) <= 3:
        raise ValueError(f"columns must be those of source, target and perhaps weight, not {columns!r}")
    places = []
    for column in columns:
        if isinstance(column, int) and -len(names) <= column < len(names):
            places.append(column % len(names))
        elif isinstance(column, str) and names.count(column) == 1:
            places.append(names.index(column))
        else:
            raise TableFormatError(
                f"{where}: {'more than one' if column in names else 'missing'} column {column!r}; found "
                f"{', '.join(map(repr, names))}; if this is no header, say which format it is, such as 'muse'"
            )
    return places


def write_delimited(
    table: WordMatrix,
    path: Path,
    *,
    columns: Sequence[str] = _DEFAULT_COLUMNS,
    header: bool = True,
    delimiter: str,
) -> None:
    """Writes delimited columns: source, target and probability, after a line of their names if ``header``."""
    if isinstance(columns, str) or len(set(columns)) != 3:
        raise ValueError(f"columns must be three different names, not {columns!r}")
    # Words in normal form contain nothing that has to be quoted.
    with text_writer(path) as out:
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        if header:
            writer.writerow(columns)
        writer.writerows((source, target, f"{prob:.9g}") for source, target, prob in table.entries())


def read_parquet(path: Path, builder: EntryBuilder, *, verbose: bool, columns: Sequence[str] | None = None) -> Weights:
    """Reads the columns of a Parquet file; places in messages are numbers of rows, from 1.

    Args:
        path: The file.
        builder: Takes the entries.
        verbose: Without effect.
        columns: Names of the columns of source, target and probability; two for a list without probabilities.
            ``None``: ``source``, ``target`` and ``prob``; the last may be missing from a file of two columns.

    Returns:
        What the weights mean.

    Raises:
        ImportError: If pyarrow is not installed.
        TableFormatError: If the file is no Parquet file, a column is missing, or a cell is no word or number.
        ValueError: If an option does not fit, or the file says that it was written for other languages.
    """
    pa, pq = pyarrow_modules()
    with open(path, "rb") as raw:
        try:  # what Arrow raises for damage may be an OSError without the name, or no error of its own
            content = pq.read_table(raw)
            content.validate(full=True)  # else texts that are none are found where they are used
            found = content.to_pandas()
            meta = json.loads((content.schema.metadata or {}).get(_PARQUET_META, b"{}"))
            languages = [str(code) for code in meta.get("languages", ())]
        except Exception as err:
            raise TableFormatError(f"{path}: not a Parquet file that can be read ({err})") from err
    check_direction(path, builder, languages)
    names = content.schema.names
    s, t, *w = positions(names, columns, _DEFAULT_COLUMNS, str(path))
    builder.add_frame(found, (names[s], names[t], names[w[0]] if w else None))
    return "probability" if w else "uniform"


def write_parquet(table: WordMatrix, path: Path, *, columns: Sequence[str] = _DEFAULT_COLUMNS) -> None:
    """Writes a Parquet file of three columns; its metadata name the languages, which reading checks.

    Raises:
        ImportError: If pyarrow is not installed.
    """
    pa, pq = pyarrow_modules()
    content = pa.Table.from_pandas(table.to_frame().set_axis(list(columns), axis=1), preserve_index=False)
    meta = {_PARQUET_META: json.dumps({"languages": table.languages}).encode("ascii")}
    with atomic_file(path) as tmp:
        pq.write_table(content.replace_schema_metadata(meta), os.fspath(tmp))


def pyarrow_modules() -> tuple[ModuleType, ModuleType]:
    """Imports pyarrow and its Parquet module."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as err:
        raise ImportError("Parquet files need pyarrow: pip install 'pyterrier-mart[parquet]'") from err
    return pyarrow, pyarrow.parquet
