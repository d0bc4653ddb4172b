"""``pyterrier-mart table info`` and ``lookup``."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from pyterrier_mart import TranslationTable
from pyterrier_mart.cli.console import arrow, out, speaks_unicode
from pyterrier_mart.cli.table.shared import TableName, print_json
from pyterrier_mart.text import LANGUAGES
from pyterrier_mart.translation.backoff import other_forms

__all__ = ["info", "lookup"]

_NARROW = 60


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
            print_json({"-".join(known.languages): dict(known.meta) for known in bundled})
        else:
            _list(bundled)
        return
    known = TranslationTable.load(table)
    if as_json:
        print_json(dict(known.meta))
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
            related = [known.source_words[i] for i, _ in other_forms(word, known.source_words, source)]
            hint = f"; related words that it knows: {', '.join(related)}" if related else ""
            out.print(f"{word}: not in the table {direction}{hint}", markup=False, emoji=False)
    if nothing:
        raise typer.Exit(1)


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
