"""``pyterrier-mart table``: look at, look up, learn and convert translation tables."""

from __future__ import annotations

import json
import math
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from pyterrier_mart import TranslationTable
from pyterrier_mart.artifact import META
from pyterrier_mart.cli.console import arrow, errors, out, speaks_unicode
from pyterrier_mart.files import check_free
from pyterrier_mart.text import LANGUAGES, language_code
from pyterrier_mart.translation import formats
from pyterrier_mart.translation.pairs import read_pairs
from pyterrier_mart.translation.relatives import relatives

__all__ = ["app"]

app = typer.Typer(help="Look at, look up, learn and convert translation tables.", no_args_is_help=True)

TableName = Annotated[str, typer.Argument(help="A table directory, or a bundled one such as de-en.", metavar="TABLE")]
_COLUMNS = "1,2"
_NARROW = 60
SkipMalformed = Annotated[
    bool, typer.Option("--skip-malformed", help="Skip and count malformed lines instead of stopping at the first.")
]


class AlignerName(str, Enum):
    """The choices of ``--aligner``."""

    eflomal = "eflomal"
    fast_align = "fast_align"


@app.command()
def info(
    table: Annotated[
        str | None, typer.Argument(help="A table; without it, the bundled ones are listed.", metavar="TABLE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metadata as JSON.")] = False,
) -> None:
    """Show what a table is: languages, size, provenance, licence."""
    if table is None:
        bundled = [TranslationTable.load(name) for name in TranslationTable.bundled()]
        if as_json:
            _print_json({"-".join(known.languages): dict(known.meta) for known in bundled})
        else:
            _list(bundled)
        return
    known = TranslationTable.load(table)
    if as_json:
        _print_json(dict(known.meta))
        return
    rows = np.diff(known.rows)
    best = known.probs[known.rows[:-1]] if len(known) else np.zeros(1)
    source, target = known.languages
    grid = Table(title=Text(table), title_justify="left", show_header=False)
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    grid.add_row("direction", f"{LANGUAGES[source]} {arrow()} {LANGUAGES[target]}")
    grid.add_row("source words", f"{len(known.source_words):,}")
    grid.add_row("target words", f"{len(known.target_words):,}")
    grid.add_row("entries", f"{len(known):,} ({rows.mean() if len(rows) else 0:.1f} a source word)")
    grid.add_row("best translation", f"has P = {best.mean():.2f} on average")
    shown = {"type", "format", "package_hint", "format_version", "languages", "direction", "entries", "source_words",
             "target_words", "meaning"}  # fmt: skip
    for key, value in known.meta.items():
        if key not in shown:
            grid.add_row(Text(key.replace("_", " ")), Text(_readable(value)))
    out.print(grid)


@app.command()
def lookup(
    table: TableName,
    words: Annotated[list[str], typer.Argument(help="Source words.", metavar="WORD")],
    top_k: Annotated[int, typer.Option(help="At most so many translations a word.", min=1)] = 10,
) -> None:
    """Look up words: their translations and probabilities."""
    known = TranslationTable.load(table)
    source, target = known.languages
    direction = f"({source} {arrow()} {target})"
    bar = "█" if speaks_unicode() else "#"
    width = 20 if out.width >= _NARROW else 0  # the words need the room more
    nothing = True
    for given in words:
        parts = known.source.tokens(given)
        if not parts:
            out.print(f"{given!r} has no word in it", markup=False, emoji=False)
        for word in parts:
            found = known.translations(word, top_k)
            if found:
                nothing = False
                grid = Table(title=Text(f"{word} {direction}"), title_justify="left", show_header=False)
                grid.add_column(overflow="fold")
                grid.add_column(no_wrap=True)
                grid.add_column(no_wrap=True)
                for translation, prob in found.items():
                    grid.add_row(Text(translation), f"{prob:.4f}", bar * round(width * prob))
                out.print(grid)
                continue
            related = [known.source_words[i] for i, _ in relatives(word, known.source_words, source)]
            hint = f"; related words that it knows: {', '.join(related)}" if related else ""
            out.print(f"{word}: not in the table {direction}{hint}", markup=False, emoji=False)
    if nothing:
        raise typer.Exit(1)


@app.command()
def train(
    pairs: Annotated[
        list[Path],
        typer.Argument(
            help="Tab-separated sentence pairs, or two line-parallel files (source, then target); may be gzipped.",
            metavar="PAIRS [TARGET]",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write the table to.")],
    source: Annotated[str, typer.Option("--source", "-s", help="Source language.")],
    target: Annotated[str, typer.Option("--target", "-t", help="Target language.")],
    reverse: Annotated[
        Path | None, typer.Option(help="Directory for P(source | target) from the same alignment.")
    ] = None,
    aligner: Annotated[AlignerName, typer.Option(help="Word aligner.")] = AlignerName.eflomal,
    columns: Annotated[str, typer.Option(help="Columns of source and target, from 1.", metavar="S,T")] = _COLUMNS,
    prefixes: Annotated[
        str, typer.Option(help="Align by first letters, one alignment for each length; 0: by whole words.")
    ] = "0",
    top_k: Annotated[int, typer.Option(help="Keep at most so many translations of a word.", min=1)] = 10,
    min_count: Annotated[float, typer.Option(help="Keep entries linked at least so often.", min=0)] = 1.0,
    licence: Annotated[str | None, typer.Option(help="Licence of the sentence pairs, kept with the table.")] = None,
    skip_malformed: SkipMalformed = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing tables.")] = False,
) -> None:
    """Learn a table from sentence pairs (needs the extra: pip install 'pyterrier-mart[align]')."""
    if len(pairs) > 2:
        raise ValueError(f"expected one file of pairs or two parallel files, found {len(pairs)} files")
    if len(pairs) == 2 and columns != _COLUMNS:
        raise ValueError("--columns is for one file of pairs; two parallel files have no columns")
    if not math.isfinite(min_count):
        raise ValueError(f"--min-count {min_count}: expected a finite number")
    both = [output] if reverse is None else [output, reverse]
    if len({path.resolve() for path in both}) < len(both):
        raise ValueError(f"--output and --reverse are both {output}: name two directories")
    for directory in both:  # known before the work, not after it
        _check_output(directory, overwrite, is_table=True)
    s_column, t_column = _numbers("--columns", columns, least=1, n=2)
    sentences = read_pairs(*pairs, columns=(s_column, t_column), on_error="skip" if skip_malformed else "raise")
    meta = {"source": ", ".join(path.name for path in pairs)} | ({"licence": licence} if licence else {})
    lengths = [n or None for n in _numbers("--prefixes", prefixes, least=0)]
    forward, backward = TranslationTable.train_both(
        sentences, source, target, aligner=aligner.value, prefixes=lengths, top_k=top_k, min_count=min_count,
        meta=meta, verbose=True,
    )  # fmt: skip
    if not len(forward):
        raise ValueError(f"no table is written: no two words were linked at least --min-count {min_count:g} times")
    for table, path in ((forward, output), (backward, reverse)):
        if path is not None:
            _say_written(path, table.save(path, overwrite=overwrite))


@app.command()
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

    Formats: table (a directory of this package), moses-target-source, source-target, tsv, csv, parquet, psq, panlex,
    panlex-dump, freedict, muse, lexicon.
    """
    names = ("table", *formats.FORMATS)
    for option, value in (("--from", from_format), ("--to", to_format)):
        if value is not None and value not in names:
            raise ValueError(f"{option} {value!r} is not a format; expected one of {', '.join(names)}")
    to_table = to_format == "table" or (to_format is None and target_path.suffix in ("", ".table"))
    _check_output(target_path, overwrite, is_table=to_table)
    if from_format == "table" or (from_format is None and _is_table(Path(source_path))):
        table = _load(source_path, source, target)
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
    _say_written(target_path, table)


def _is_table(path: Path) -> bool:
    """Whether an input without ``--from`` is a table: any directory that no format knows, or a bundled name."""
    if path.is_dir():
        return not (path / "langvar.csv").exists() and not path.name.startswith("freedict-")
    return not path.exists()


def _load(name: str, source: str | None, target: str | None) -> TranslationTable:
    if not name or not (Path(name).exists() or name in TranslationTable.bundled()):
        raise FileNotFoundError(
            f"no file or table {name!r}; bundled tables are {', '.join(TranslationTable.bundled())}"
        )
    table = TranslationTable.load(name)
    wanted = tuple(known if given is None else language_code(given)
                   for given, known in zip((source, target), table.languages, strict=True))  # fmt: skip
    if wanted != table.languages:
        raise ValueError(
            f"the table {name} translates {'-'.join(table.languages)}, but --source and --target say {'-'.join(wanted)}"
        )
    return table


def _check_output(path: Path, overwrite: bool, *, is_table: bool) -> None:
    """Raises if nothing may be written to a path, in the words of the command line."""
    if is_table:
        check_free(path, True, META)
    if not overwrite and (any(path.iterdir()) if path.is_dir() and is_table else path.exists()):
        raise FileExistsError(f"{path} exists; name another path or pass --overwrite")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {parent} is not a directory")


def _say_written(path: Path, table: TranslationTable) -> None:
    size = f"{'-'.join(table.languages)}, {len(table):,} entries"
    out.print(f"wrote {path} ({size})", markup=False, emoji=False, soft_wrap=True)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not speaks_unicode()))


def _list(tables: list[TranslationTable]) -> None:
    grid = Table(title="Bundled tables", title_justify="left")
    for heading in ("name", "direction"):
        grid.add_column(heading, overflow="fold")
    for heading in ("source words", "entries"):
        grid.add_column(heading, justify="right", overflow="fold")
    for table in tables:
        direction = f" {arrow()} ".join(LANGUAGES[lang] for lang in table.languages)
        grid.add_row("-".join(table.languages), direction, f"{len(table.source_words):,}", f"{len(table):,}")
    out.print(grid)


def _readable(value: Any) -> str:
    if isinstance(value, list):
        return ("\n" if any(isinstance(item, dict) for item in value) else ", ").join(map(_readable, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_readable(item)}" for key, item in value.items())
    return "none" if value is None else str(value)


def _numbers(option: str, text: str, *, least: int, n: int | None = None) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or (n is not None and len(numbers) != n) or min(numbers) < least:
        wanted = f"{n} whole numbers" if n is not None else "whole numbers"
        raise ValueError(f"{option} {text!r}: expected {wanted} from {least} with commas between")
    return numbers
