"""``pyterrier-mart table``: look at, look up, learn and convert translation tables."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from pyterrier_mart import TranslationTable
from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.text import LANGUAGES
from pyterrier_mart.translation import formats
from pyterrier_mart.translation.pairs import read_pairs
from pyterrier_mart.translation.relatives import relatives

__all__ = ["app"]

app = typer.Typer(help="Look at, look up, learn and convert translation tables.", no_args_is_help=True)

TableName = Annotated[str, typer.Argument(help="A table directory, or a bundled one such as de-en.", metavar="TABLE")]
OnError = Annotated[
    bool, typer.Option("--skip-malformed", help="Skip and count malformed lines instead of stopping at the first.")
]


class AlignerName(str, Enum):
    """The choices of ``--aligner``."""

    eflomal = "eflomal"
    fast_align = "fast_align"


@app.command()
def info(
    table: Annotated[str | None, typer.Argument(help="A table; without it, the bundled ones are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metadata as JSON.")] = False,
) -> None:
    """Show what a table is: languages, size, provenance, licence."""
    if table is None:
        _list_bundled()
        return
    known = TranslationTable.load(table)
    if as_json:
        typer.echo(json.dumps(dict(known.meta), indent=2, ensure_ascii=False))
        return
    rows = np.diff(known.rows)
    best = known.probs[known.rows[:-1]] if len(known) else np.zeros(1)
    source, target = known.languages
    grid = Table(title=escape(repr(known)), title_justify="left", show_header=False)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("direction", f"{LANGUAGES[source]} → {LANGUAGES[target]}")
    grid.add_row("source words", f"{len(known.source_words):,}")
    grid.add_row("target words", f"{len(known.target_words):,}")
    grid.add_row("entries", f"{len(known):,} ({rows.mean() if len(rows) else 0:.1f} a source word)")
    grid.add_row("best translation", f"has P = {best.mean():.2f} on average")
    shown = {"type", "format", "package_hint", "format_version", "languages", "direction", "entries", "source_words",
             "target_words", "meaning"}  # fmt: skip
    for key, value in known.meta.items():
        if key not in shown:
            grid.add_row(key.replace("_", " "), escape(_readable(value)))
    out.print(grid)


@app.command()
def lookup(
    table: TableName,
    words: Annotated[list[str], typer.Argument(help="Source words.")],
    top_k: Annotated[int, typer.Option(help="At most so many translations a word.", min=1)] = 10,
) -> None:
    """Look up words: their translations and probabilities."""
    known = TranslationTable.load(table)
    source, target = known.languages
    missing = 0
    for given in words:
        parts = known.source.tokens(given)
        if not parts:
            missing += 1
            out.print(f"[bold]{escape(given)}[/bold]: has no word in it")
        for word in parts:
            found = known.translations(word, top_k)
            if found:
                grid = Table(title=f"{escape(word)} ({source} → {target})", title_justify="left", show_header=False)
                for translation, prob in found.items():
                    grid.add_row(escape(translation), f"{prob:.4f}", "█" * round(20 * prob))
                out.print(grid)
                continue
            missing += 1
            related = [known.source_words[i] for i, _ in relatives(word, known.source_words, source)]
            hint = f"; related words that it knows: {', '.join(related)}" if related else ""
            out.print(f"[bold]{escape(word)}[/bold]: not in the table{escape(hint)}")
    if missing == len(words):
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
    columns: Annotated[str, typer.Option(help="Columns of source and target, from 1.", metavar="S,T")] = "1,2",
    prefixes: Annotated[
        str, typer.Option(help="Align by first letters, one alignment for each length; 0: by whole words.")
    ] = "0",
    top_k: Annotated[int, typer.Option(help="Keep at most so many translations of a word.", min=1)] = 10,
    min_count: Annotated[float, typer.Option(help="Keep entries linked at least so often.", min=0)] = 1.0,
    licence: Annotated[str | None, typer.Option(help="Licence of the sentence pairs, kept with the table.")] = None,
    skip_malformed: OnError = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing tables.")] = False,
) -> None:
    """Learn a table from sentence pairs (needs the extra: pip install 'pyterrier-mart[align]')."""
    if len(pairs) > 2:
        raise ValueError(f"expected one file of pairs or two parallel files, found {len(pairs)} files")
    for path in (output, reverse):
        if path is not None and path.exists() and not overwrite:
            raise FileExistsError(f"{path} exists; name another path or pass --overwrite")
    sentences = read_pairs(
        *pairs, columns=_numbers("--columns", columns, 2), on_error="skip" if skip_malformed else "raise"
    )
    meta = {"source": ", ".join(path.name for path in pairs)} | ({"licence": licence} if licence else {})
    lengths = [n or None for n in _numbers("--prefixes", prefixes)]
    forward, backward = TranslationTable.train_both(
        sentences, source, target, aligner=aligner.value, prefixes=lengths, top_k=top_k, min_count=min_count,
        meta=meta, verbose=True,
    )  # fmt: skip
    for table, path in ((forward, output), (backward, reverse)):
        if path is not None:
            out.print(f"wrote {table.save(path, overwrite=overwrite)!r}", markup=False)


@app.command()
def convert(
    source_path: Annotated[str, typer.Argument(metavar="INPUT", help="A file, a table directory or a bundled table.")],
    target_path: Annotated[Path, typer.Argument(metavar="OUTPUT", help="A file, or a directory with --to table.")],
    source: Annotated[str | None, typer.Option("--source", "-s", help="Source language (of a file).")] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Target language (of a file).")] = None,
    from_format: Annotated[str | None, typer.Option("--from", help="Format of INPUT, else by its name.")] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", help="Format of OUTPUT, else by its name; without ending: table.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Keep at most so many translations of a word.", min=1)] = None,
    skip_malformed: OnError = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Convert between tables and the files of other programs.

    Formats: table (a directory of this package), moses-target-source, source-target, tsv, csv, parquet, psq, panlex,
    panlex-dump, freedict, muse, lexicon.
    """
    if target_path.exists() and not overwrite:
        raise FileExistsError(f"{target_path} exists; name another path or pass --overwrite")
    names = ("table", *formats.FORMATS)
    for option, value in (("--from", from_format), ("--to", to_format)):
        if value is not None and value not in names:
            raise ValueError(f"{option} {value!r} is not a format; expected one of {', '.join(names)}")
    is_table = from_format == "table" or (
        from_format is None
        and ((Path(source_path) / "pt_meta.json").exists() or source_path in TranslationTable.bundled())
    )
    if is_table:
        table = TranslationTable.load(source_path)
    elif source is None or target is None:
        raise ValueError(f"{source_path} does not say which languages it is for: pass --source and --target")
    else:
        on_error = "skip" if skip_malformed else "raise"
        table = TranslationTable.read(
            source_path, source, target, format=from_format, on_error=on_error, verbose=errors.is_terminal
        )
    if top_k is not None:
        table = table.prune(top_k=top_k)
    if to_format == "table" or (to_format is None and not target_path.suffix):
        table.save(target_path, overwrite=overwrite)
    else:
        table.write(target_path, format=to_format)
    out.print(f"wrote {target_path}: {table!r}", markup=False)


def _list_bundled() -> None:
    grid = Table(title="Bundled tables", title_justify="left")
    for heading in ("name", "direction"):
        grid.add_column(heading)
    for heading in ("source words", "entries"):
        grid.add_column(heading, justify="right")
    for name in TranslationTable.bundled():
        table = TranslationTable.load(name)
        direction = " → ".join(LANGUAGES[lang] for lang in table.languages)
        grid.add_row(name, direction, f"{len(table.source_words):,}", f"{len(table):,}")
    out.print(grid)


def _readable(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(_readable, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_readable(item)}" for key, item in value.items())
    return str(value)


def _numbers(option: str, text: str, n: int | None = None) -> Any:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or (n is not None and len(numbers) != n) or min(numbers) < 0:
        wanted = f"{n} numbers" if n is not None else "numbers"
        raise ValueError(f"{option} {text!r}: expected {wanted} with commas between")
    return numbers
