"""``pyterrier-mart table report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pyterrier_mart import __version__
from pyterrier_mart.cli.console import arrow, out
from pyterrier_mart.cli.table.queries import Topics, Variant, read_queries
from pyterrier_mart.cli.table.shared import check_json, named_tables, write_json
from pyterrier_mart.text import LANGUAGES
from pyterrier_mart.translation import quality

__all__ = ["report"]


def report(
    tables: Annotated[
        list[str], typer.Argument(help="Tables of one direction: directories, or bundled ones.", metavar="TABLE...")
    ],
    topics: Topics = None,
    variant: Variant = None,
    gold: Annotated[Path | None, typer.Option(help="A MUSE dictionary of the tables' direction.")] = None,
    missing: Annotated[int, typer.Option(help="Show so many of the terms that a table lacks.", min=0)] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers and all missing terms here.", metavar="FILE")
    ] = None,
) -> None:
    """Measure tables: size, certainty, coverage of queries, and precision against a dictionary."""
    check_json(json_file)
    names, known = named_tables(tables)
    queries = None if topics is None else read_queries(topics, variant, known[0].source.lang)
    found = [quality.report(table, queries, gold) for table in known]
    out.print(_as_table(names, found, topics, gold))
    for name, result in zip(names, found, strict=True):
        if result.coverage and result.coverage.missing and missing:
            shown = [f"{term} ({n})" for term, n in list(result.coverage.missing.items())[:missing]]
            lacking = len(result.coverage.missing)
            out.print(
                f"{name} lacks {lacking:,} terms, of which {result.coverage.related_types:,} have other forms in it; "
                f"the most frequent: {', '.join(shown)}",
                markup=False, emoji=False,
            )  # fmt: skip
    write_json(
        json_file,
        {
            "version": __version__, "topics": topics, "variant": variant, "gold": gold and gold.name,
            "tables": {
                name: {"fingerprint": table.fingerprint, **result.as_json()}
                for name, table, result in zip(names, known, found, strict=True)
            },
        },
    )  # fmt: skip


def _as_table(names: list[str], found: list[quality.Quality], topics: str | None, gold: Path | None) -> Table:
    source, target = found[0].direction.split("-")
    title = f"{LANGUAGES[source]} {arrow()} {LANGUAGES[target]}"
    grid = Table(
        title=Text(title), title_justify="left", caption_justify="left", caption=_caption(found[0], topics, gold)
    )
    grid.add_column("", overflow="fold")
    for name in names:
        grid.add_column(Text(name), justify="right", overflow="fold")

    def row(label: str, cells: list[str]) -> None:
        grid.add_row(label, *cells)

    row("entries", [f"{one.entries:,}" for one in found])
    row("source words", [f"{one.source_words:,}" for one in found])
    row("entropy, bits", [f"{one.entropy:.2f}" for one in found])
    row("translations, effective", [f"{one.effective_translations:.2f}" for one in found])
    row("best is the word itself", [f"{one.identity:.1%}" for one in found])
    if coverages := [one.coverage for one in found if one.coverage]:
        row("coverage of tokens", [f"{one.of_tokens:.1%}" for one in coverages])
        row("coverage of types", [f"{one.of_types:.1%}" for one in coverages])
    if accuracies := [one.accuracy for one in found if one.accuracy]:
        row("dictionary words known", [f"{one.coverage:.1%}" for one in accuracies])
        row("P@1", [f"{one.p_at_1:.3f}" for one in accuracies])
        row("P@5", [f"{one.p_at_5:.3f}" for one in accuracies])
        row("P@1 if known", [f"{one.p_at_1_if_known:.3f}" for one in accuracies])
    return grid


def _caption(one: quality.Quality, topics: str | None, gold: Path | None) -> Text:
    parts = []
    if one.coverage:
        parts.append(f"{topics}: {one.coverage.tokens:,} tokens of {one.coverage.types:,} types, stop words included.")
    if one.accuracy and gold:
        parts.append(f"{gold.name}: {one.accuracy.words:,} source words; one that a table lacks counts as wrong.")
    return Text(" ".join(parts))
