"""``pyterrier-mart table convert`` and ``mix``."""

from __future__ import annotations

import math
from functools import reduce
from pathlib import Path
from typing import Annotated

import typer

from pyterrier_mart import TranslationTable
from pyterrier_mart.artifact import META
from pyterrier_mart.cli.console import errors
from pyterrier_mart.cli.table.shared import Overwrite, SkipMalformed, check_output, load, named_tables, say_written
from pyterrier_mart.translation import formats

__all__ = ["convert", "mix"]


def convert(
    source_path: Annotated[str, typer.Argument(metavar="INPUT", help="A file, a table directory or a bundled table.")],
    target_path: Annotated[Path, typer.Argument(metavar="OUTPUT", help="A file, or a directory for a table.")],
    source: Annotated[str | None, typer.Option("--source", "-s", help="Source language (of a file).")] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Target language (of a file).")] = None,
    from_format: Annotated[str | None, typer.Option("--from", help="Format of INPUT, else by its name.")] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", help="Format of OUTPUT, else by its name; without ending or .table: table.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Keep at most so many translations of a word.", min=1)] = None,
    skip_malformed: SkipMalformed = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Convert between tables and the files of other programs.

    Released packages are read as they are: panlex-20240101-csv.zip, freedict-deu-eng-1.9.dictd.tar.xz, de-en.txt.

    Formats: table (a directory of this package), moses-target-source, source-target, tsv, csv, parquet, psq, panlex,
    panlex-dump, freedict, muse, lexicon.
    """
    names = ("table", *formats.FORMATS)
    for option, value in (("--from", from_format), ("--to", to_format)):
        if value is not None and value not in names:
            raise ValueError(f"{option} {value!r} is not a format; expected one of {', '.join(names)}")
    to_table = to_format == "table" or (to_format is None and target_path.suffix in ("", ".table"))
    check_output(target_path, overwrite, is_table=to_table)
    if from_format == "table" or (from_format is None and _is_table(Path(source_path))):
        table = load(source_path, source, target)
    elif source is None or target is None:
        raise ValueError(f"{source_path} does not say which languages it is for: pass --source and --target")
    else:
        on_error = "skip" if skip_malformed else "raise"
        table = TranslationTable.read(
            source_path, source, target, format=from_format, on_error=on_error, verbose=errors.is_terminal
        )
    if top_k is not None:
        table = table.prune(top_k=top_k)
    if to_table:
        table = table.save(target_path, overwrite=overwrite)
    else:
        table.write(target_path, format=to_format)
    say_written(target_path, table)


def mix(
    tables: Annotated[
        list[str], typer.Argument(help="Tables of one direction: directories, or bundled ones.", metavar="TABLE...")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write the table to.")],
    weights: Annotated[
        str | None, typer.Option(help="A weight for each table; without it, all alike.", metavar="W,W,...")
    ] = None,
    backfill: Annotated[
        bool,
        typer.Option("--backfill", help="Each table only gives the words that those before it lack, unweighted."),
    ] = False,
    top_k: Annotated[int | None, typer.Option(help="Keep at most so many translations of a word.", min=1)] = None,
    overwrite: Overwrite = False,
) -> None:
    """Mix tables: the weighted mean of their probabilities, or one and what others add to it.

    A source word that some of the tables lack is averaged over those that have it.
    """
    if len(tables) < 2:
        raise ValueError(f"expected two tables or more, found only {tables[0]}")
    if backfill and weights is not None:
        raise ValueError("--backfill takes words as they are; leave out --weights, or mix in two steps")
    shares = None if weights is None else _weights(weights, len(tables))
    check_output(output, overwrite, is_table=True)
    _, known = named_tables(tables)
    if backfill:
        mixed = reduce(TranslationTable.backfill, known)
    else:
        mixed = known[0].interpolate(*known[1:], weights=shares)
    licences = dict.fromkeys(str(table.meta["licence"]) for table in known if "licence" in table.meta)
    if licences:
        mixed = mixed.with_meta(licence="; ".join(licences))
    if top_k is not None:
        mixed = mixed.prune(top_k=top_k)
    say_written(output, mixed.save(output, overwrite=overwrite))


def _weights(text: str, n: int) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != n or not all(0 < weight < math.inf for weight in found):
        raise ValueError(f"--weights {text!r}: expected {n} positive numbers with commas between, one for each table")
    return found


def _is_table(path: Path) -> bool:
    """Whether an input without ``--from`` is a table: any directory that no format knows, or a bundled name."""
    if path.is_dir():
        return (path / META).exists() or formats.guess(path) is None
    return not path.exists() and not path.with_name(path.name + ".index").exists()  # NAME of a dictionary
