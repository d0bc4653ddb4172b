"""``pyterrier-mart table diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pyterrier_mart import TranslationTable, __version__
from pyterrier_mart.cli.console import out
from pyterrier_mart.cli.table.queries import Topics, Variant, read_queries
from pyterrier_mart.cli.table.shared import TableName, check_json, named_tables, write_json
from pyterrier_mart.translation.comparison import Change, compare
from pyterrier_mart.translation.quality import count_terms

__all__ = ["diff"]


def diff(
    a: TableName,
    b: Annotated[str, typer.Argument(help="Another one of the same direction.", metavar="TABLE")],
    topics: Topics = None,
    variant: Variant = None,
    top: Annotated[int, typer.Option(help="Show so many words of each kind.", min=1)] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all differences here.", metavar="FILE")
    ] = None,
) -> None:
    """Show what is different between two tables: words, best translations, probabilities.

    With --topics, only the terms of the queries are compared, the most frequent first.
    """
    check_json(json_file)
    names, tables = named_tables([a, b])
    first, second = tables
    counts: dict[str, int] = {}
    if topics is not None:
        queries = read_queries(topics, variant, first.source.lang)
        counts = dict(count_terms(first, queries).most_common())
    found = compare(first, second, None if topics is None else counts)
    of_topics = f" of the {len(counts):,} terms of {topics}" if topics is not None else ""
    _say(f"A: {names[0]} ({_size(first)}); B: {names[1]} ({_size(second)})")
    _say(
        f"Source words{of_topics}: {len(found.shared):,} in both, {len(found.only_a):,} only in A, "
        f"{len(found.only_b):,} only in B. Of those in both, {found.changed:,} have other probabilities and "
        f"{int(found.new_best.sum()):,} another best translation; mean distance {found.mean_distance:.3f}."
    )
    for name, words in (("A", found.only_a), ("B", found.only_b)):
        if words:
            shown = [f"{word} ({counts[word]})" if counts else word for word in words[:top]]
            _say(f"Only in {name}: {', '.join(shown)}{', ...' if len(words) > top else ''}")
    same = [change for change in found.largest_changes() if change.best_a == change.best_b]
    kinds = (("Another best translation", found.new_best_words(top)), ("The same best translation", same[:top]))
    for title, changes in kinds:
        if changes:
            out.print(_as_table(title, changes))
    write_json(json_file, {"version": __version__, "a": a, "b": b, "topics": topics, **found.as_json()})


def _say(text: str) -> None:
    out.print(text, markup=False, emoji=False)


def _size(table: TranslationTable) -> str:
    return f"{len(table.source_words):,} source words, {len(table):,} entries"


def _as_table(title: str, changes: list[Change]) -> Table:
    grid = Table(title=Text(title), title_justify="left")
    for heading in ("word", "A", "B"):
        grid.add_column(heading, overflow="fold")
    grid.add_column("distance", justify="right", no_wrap=True)
    for change in changes:
        best = (f"{change.best_a} {change.prob_a:.3f}", f"{change.best_b} {change.prob_b:.3f}")
        grid.add_row(Text(change.word), *map(Text, best), f"{change.distance:.3f}")
    return grid
