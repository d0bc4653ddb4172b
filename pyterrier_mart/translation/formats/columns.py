"""Tables in columns: Moses and GIZA++ lexical files, TSV, CSV, Parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING

import pyterrier as pt

from pyterrier_mart.files import atomic_file
from pyterrier_mart.translation.builder import TableBuilder, TableFormatError, Weights
from pyterrier_mart.translation.formats.common import (
    check_direction,
    fields,
    lines,
    number,
    open_binary,
    rows,
    text_writer,
)

if TYPE_CHECKING:
    from pyterrier_mart.translation.table import TranslationTable

__all__ = [
    "GIZA_ORDER", "MOSES_ORDER", "read_csv", "read_delimited", "read_lexical", "read_parquet",
    "read_tsv", "write_csv", "write_lexical", "write_parquet", "write_tsv",
]  # fmt: skip

#: Moses' ``lex.f2e`` and ``lex.e2f``: the predicted word stands first.
MOSES_ORDER = "target source prob"
#: GIZA++'s ``*.actual.ti.final``: the given word stands first.
GIZA_ORDER = "source target prob"

#: A column by its name, or by its position from 0 (from the end if negative).
Column = str | int

_DEFAULT_COLUMNS = ("source", "target", "prob")
_PARQUET_META = b"pyterrier_mart"


# --- Moses and GIZA++ -----------------------------------------------------------------------------------------------


def read_lexical(path: Path, builder: TableBuilder, *, verbose: bool, order: str) -> Weights:
    """Reads lines of two words and a probability, separated by white space.

    Both programs print P(predicted word | given word), and the table needs the predicted word to be the target:

    * ``"target source prob"``, Moses. ``train-model.perl --f S --e T`` writes lines ``e f P(e | f)`` to ``lex.f2e`` and
      ``f e P(f | e)`` to ``lex.e2f``: always the predicted word first. P(T | S) is in ``lex.f2e``; ``lex.e2f`` is
      the table of the opposite direction.
    * ``"source target prob"``, GIZA++. Trained with S as the source corpus, its ``*.actual.ti.final`` holds lines
      ``s t P(t | s)``.

    Lines with the word ``NULL`` (aligned to nothing) are left out.

    Args:
        path: The file, plain or gzipped.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.
        order: The order of the columns, a permutation of ``"source target prob"``.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line is malformed.
        ValueError: If ``order`` is not such a permutation.
    """
    s, t, p = _order(order)
    with open_binary(path, verbose) as stream:
        for n, line in lines(stream, builder):
            found = fields(line, 3)
            if len(found) != 3:
                if line.strip():
                    builder.bad(f"expected {order!r}, found {line[:80]!r}", n)
                continue
            source, target = found[s], found[t]
            if source != "NULL" and target != "NULL" and (prob := number(found[p], builder, n)) is not None:
                builder.add(source, target, prob, n)
    return "probability"


def write_lexical(table: TranslationTable, path: Path, *, order: str) -> None:
    """Writes lines of two words and a probability in the given order, see :func:`read_lexical`."""
    places = _order(order)
    with text_writer(path) as out:
        for source, target, prob in table.entries():
            values = dict(zip(places, (source, target, f"{prob:.9g}"), strict=True))
            out.write(f"{values[0]} {values[1]} {values[2]}\n")


def _order(order: str) -> tuple[int, int, int]:
    """The positions of source, target and probability."""
    names = order.split()
    if sorted(names) != ["prob", "source", "target"]:
        raise ValueError(f"order must name the columns source, target and prob in their order, not {order!r}")
    return names.index("source"), names.index("target"), names.index("prob")


# --- TSV and CSV ----------------------------------------------------------------------------------------------------


def read_tsv(
    path: Path,
    builder: TableBuilder,
    *,
    verbose: bool,
    columns: Sequence[Column] | None = None,
    header: bool = True,
    delimiter: str = "\t",
) -> Weights:
    """Reads tab-separated columns without quoting: a quotation mark is a character like any other.

    Args:
        path: The file, plain or gzipped.
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
    with open_binary(path, verbose) as stream:
        return read_delimited(stream, builder, columns, header, delimiter, quoted=False)


def read_csv(
    path: Path,
    builder: TableBuilder,
    *,
    verbose: bool,
    columns: Sequence[Column] | None = None,
    header: bool = True,
    delimiter: str = ",",
) -> Weights:
    """Reads comma-separated columns, quoted where needed as in RFC 4180; otherwise as :func:`read_tsv`."""
    with open_binary(path, verbose) as stream:
        return read_delimited(stream, builder, columns, header, delimiter, quoted=True)


def read_delimited(
    stream: IO[bytes],
    builder: TableBuilder,
    columns: Sequence[Column] | None,
    header: bool,
    delimiter: str,
    *,
    quoted: bool,
    defaults: tuple[str, str, str] = _DEFAULT_COLUMNS,
) -> Weights:
    """Reads delimited text of words and maybe weights; ``defaults`` are the names that ``columns=None`` means."""
    found: Iterator[tuple[int, list[str]]] = rows(stream, builder, delimiter=_check_delimiter(delimiter), quoted=quoted)
    first = next(found, None)
    if first is None:
        return "uniform"  # nothing in the file, which the caller reports
    line, names = first
    width = len(names)
    s, t, w = _positions(names if header else None, width, columns, defaults, f"{builder.where}, line {line}")
    if not header:
        found = chain([first], found)
    for n, row in found:
        if len(row) != width:
            builder.bad(f"expected {width} columns, found {len(row)}", n)
        elif w is None:
            builder.add(row[s], row[t], 1.0, n)
        elif (weight := number(row[w], builder, n)) is not None:
            builder.add(row[s], row[t], weight, n)
    return "uniform" if w is None else "probability"


def _positions(
    header: Sequence[str] | None,
    width: int,
    columns: Sequence[Column] | None,
    defaults: tuple[str, str, str],
    where: str,
) -> tuple[int, int, int | None]:
    """The positions of source, target and weight (``None``: no weights)."""
    if columns is None:
        # Two columns are a list without weights; more columns without the name of one are a mistake to report.
        n = min(width, 3)
        columns = defaults[: max(n, 2)] if header is not None else range(n)
        if len(columns) < 2:
            raise TableFormatError(f"{where}: expected two or three columns, found one")
    elif isinstance(columns, str) or not 2 <= len(columns) <= 3:
        raise ValueError(f"columns must be those of source, target and perhaps weight, not {columns!r}")
    places = []
    for column in columns:
        if isinstance(column, int):
            if not -width <= column < width:
                raise TableFormatError(f"{where}: expected a column {column}, found {width} columns")
            places.append(column % width)
        elif header is None:
            raise ValueError(f"columns must be positions where there is no header, not {column!r}")
        elif header.count(column) != 1:
            reason = "missing column" if column not in header else "more than one column"
            hint = "; if this is no header, say which format it is, such as 'muse'" if "missing" in reason else ""
            raise TableFormatError(f"{where}: {reason} {column!r}; found {', '.join(map(repr, header))}{hint}")
        else:
            places.append(header.index(column))
    return places[0], places[1], places[2] if len(places) == 3 else None


def _check_delimiter(delimiter: str) -> str:
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(f"delimiter must be one character and no quotation mark or line end, not {delimiter!r}")
    return delimiter


def write_tsv(
    table: TranslationTable,
    path: Path,
    *,
    columns: Sequence[str] = _DEFAULT_COLUMNS,
    header: bool = True,
    delimiter: str = "\t",
) -> None:
    """Writes delimited columns: source, target and probability, after a line of their names if ``header``."""
    _write_delimited(table, path, columns, header, delimiter)


def write_csv(
    table: TranslationTable,
    path: Path,
    *,
    columns: Sequence[str] = _DEFAULT_COLUMNS,
    header: bool = True,
    delimiter: str = ",",
) -> None:
    """Writes comma-separated columns as :func:`write_tsv`."""
    _write_delimited(table, path, columns, header, delimiter)


def _write_delimited(table: TranslationTable, path: Path, columns: Sequence[str], header: bool, delimiter: str) -> None:
    # Words in normal form contain nothing that has to be quoted, so TSV and CSV differ in the delimiter only.
    _check_three(columns)
    with text_writer(path) as out:
        writer = csv.writer(out, delimiter=_check_delimiter(delimiter), lineterminator="\n")
        if header:
            writer.writerow(columns)
        writer.writerows((source, target, f"{prob:.9g}") for source, target, prob in table.entries())


def _check_three(columns: Sequence[str]) -> None:
    if isinstance(columns, str) or len(set(columns)) != 3:
        raise ValueError(f"columns must be three different names, not {columns!r}")


# --- Parquet --------------------------------------------------------------------------------------------------------


def read_parquet(path: Path, builder: TableBuilder, *, verbose: bool, columns: Sequence[str] | None = None) -> Weights:
    """Reads the columns of a Parquet file; places in messages are numbers of rows, from 1.

    Args:
        path: The file.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.
        columns: Names of the columns of source, target and probability; two for a list without probabilities.
            ``None``: ``source``, ``target`` and ``prob``; the last may be missing from a file of two columns.

    Returns:
        What the weights mean.

    Raises:
        ImportError: If pyarrow is not installed.
        TableFormatError: If the file is no Parquet file, a column is missing, or a cell is no word or number.
        ValueError: If an option does not fit, or the file says that it was written for other languages.
    """
    pa, pq = _pyarrow()
    with open(path, "rb") as raw, _arrow_errors(path, pa.ArrowException):
        file = pq.ParquetFile(raw)
        schema = file.schema_arrow
        meta = json.loads((schema.metadata or {}).get(_PARQUET_META, b"{}"))
        if "languages" in meta:
            check_direction(path, builder.source, builder.target, found=meta["languages"])
        s, t, w = _positions(schema.names, len(schema.names), columns, _DEFAULT_COLUMNS, str(path))
        names = (schema.names[s], schema.names[t], None if w is None else schema.names[w])
        rows_read = 0
        with pt.tqdm(total=file.metadata.num_rows, unit="row", desc=path.name, disable=not verbose) as bar:
            for batch in file.iter_batches(columns=[name for name in names if name is not None]):
                builder.add_frame(batch.to_pandas(), names, first=rows_read + 1)
                rows_read += len(batch)
                bar.update(len(batch))
    return "uniform" if w is None else "probability"


def write_parquet(table: TranslationTable, path: Path, *, columns: Sequence[str] = _DEFAULT_COLUMNS) -> None:
    """Writes a Parquet file of three columns; its metadata name the languages, which reading checks.

    Raises:
        ImportError: If pyarrow is not installed.
    """
    pa, pq = _pyarrow()
    _check_three(columns)
    frame = table.to_frame().set_axis(list(columns), axis=1)
    content = pa.Table.from_pandas(frame, preserve_index=False)
    meta = {_PARQUET_META: json.dumps({"languages": table.languages}).encode("ascii")}
    with atomic_file(path) as tmp:
        pq.write_table(content.replace_schema_metadata(meta), os.fspath(tmp))


@contextmanager
def _arrow_errors(path: Path, error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (error, json.JSONDecodeError) as err:
        raise TableFormatError(f"{path}: not a Parquet file that can be read ({err})") from err


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as err:
        raise ImportError(
            "Parquet files need pyarrow: pip install 'pyterrier-mart[parquet]' (which installs pyarrow)"
        ) from err
    return pyarrow, pyarrow.parquet
