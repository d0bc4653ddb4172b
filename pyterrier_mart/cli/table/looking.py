"""``pyterrier-mart table info``, ``verify``, ``lookup``, ``report`` and ``diff``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from pyterrier_mart import TranslationTable, __version__
from pyterrier_mart.cli.console import arrow, out, say, speaks_unicode
from pyterrier_mart.cli.table import shared
from pyterrier_mart.cli.table.shared import TableName, TableNames, Topics, Variant
from pyterrier_mart.text import LANGUAGES
from pyterrier_mart.translation import quality
from pyterrier_mart.translation.backoff import other_forms
from pyterrier_mart.translation.comparison import compare

__all__ = ["diff", "info", "lookup", "report", "verify"]

_NARROW = 60
#: What a report shows of :meth:`pyterrier_mart.translation.quality.Quality.to_frame`, under which label.
_MEASURES = {
    "entries": ("entries", "{:,}"), "source words": ("source words", "{:,}"), "entropy": ("entropy, bits", "{:.2f}"),
    "effective translations": ("translations, effective", "{:.2f}"),
    "identity": ("best is the word itself", "{:.1%}"), "coverage of tokens": ("coverage of tokens", "{:.1%}"),
    "coverage of types": ("coverage of types", "{:.1%}"),
    "dictionary coverage": ("dictionary words known", "{:.1%}"), "P@1": ("P@1", "{:.3f}"), "P@5": ("P@5", "{:.3f}"),
    "P@1 if known": ("P@1 if known", "{:.3f}"),
}  # fmt: skip
_SHOWN_ELSEWHERE = ("type", "format", "package_hint", "format_version", "languages", "direction", "entries",
                    "source_words", "target_words", "meaning")  # fmt: skip


def info(
    table: Annotated[
        str | None, typer.Argument(help="A table; without it, the bundled ones are listed.", metavar="TABLE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metadata as JSON.")] = False,
) -> None:
    """Show what a table is: languages, size, provenance, licence."""
    if table is None:
        bundled = {name: TranslationTable.load(name) for name in TranslationTable.bundled()}
        if as_json:
            shared.print_json({name: dict(known.meta) for name, known in bundled.items()})
            return
        sizes = [[name, direction(known), *map("{:,}".format, (len(known.source_words), len(known)))]
                 for name, known in bundled.items()]  # fmt: skip
        out.print(grid("Bundled tables", ["name", "direction", "source words", "entries"], sizes))
        return
    known = TranslationTable.load(table)
    if as_json:
        shared.print_json(dict(known.meta))
        return
    known.check_entries()
    n = max(len(known.source_words), 1)
    best = known.probs[known.rows[:-1]] if len(known) else np.zeros(1)
    rows = [
        ["direction", direction(known)],
        ["source words", f"{len(known.source_words):,}"],
        ["target words", f"{len(known.target_words):,}"],
        ["entries", f"{len(known):,} ({len(known) / n:.1f} a source word)"],
        ["best translation", f"has P = {best.mean():.2f} on average"],
    ]
    rows += [
        [key.replace("_", " "), readable(value)] for key, value in known.meta.items() if key not in _SHOWN_ELSEWHERE
    ]
    out.print(grid(table, None, rows))


def verify(
    tables: Annotated[list[str], typer.Argument(help="Tables: directories, or bundled ones.", metavar="TABLE...")],
) -> None:
    """Read all of each table and compare it with its fingerprint: fails if one is damaged."""
    for name in tables:
        known = TranslationTable.load(name)
        known.verify()
        say(f"{name}: undamaged ({len(known):,} entries, fingerprint {known.fingerprint})")


def lookup(
    table: TableName,
    words: Annotated[list[str], typer.Argument(help="Source words.", metavar="WORD")],
    top_k: Annotated[int, typer.Option(help="Maximum number of translations of a word.", min=1)] = 10,
) -> None:
    """Look up words: their translations and probabilities."""
    known = TranslationTable.load(table)
    languages = f"({known.languages[0]} {arrow()} {known.languages[1]})"
    bar = "█" if speaks_unicode() else "#"
    width = 20 if out.width >= _NARROW else 0  # the words need the room more
    nothing = True
    for given in words:
        if any("\ud800" <= char <= "\udfff" for char in given):  # the word would be cut there
            raise ValueError(f"expected words in UTF-8, found {os.fsencode(given)!r}")
        parts = known.source.tokens(given)
        if not parts:
            say(f"{given!r} has no word in it")
        for word in parts:
            if found := known.translations(word, top_k):
                nothing = False
                rows = [[other, f"{prob:.4f}", bar * round(width * prob)] for other, prob in found.items()]
                out.print(grid(f"{word} {languages}", None, rows))
                continue
            related = [known.source_words[i] for i, _ in other_forms(word, known.source_words, known.languages[0])]
            hint = f"; related words that it knows: {', '.join(related)}" if related else ""
            out.print(f"{word}: not in the table {languages}{hint}", markup=False, emoji=False)
    if nothing:
        raise typer.Exit(1)


def report(
    tables: TableNames,
    topics: Topics = None,
    variant: Variant = None,
    gold: Annotated[Path | None, typer.Option(help="A MUSE dictionary of the tables' direction.")] = None,
    missing: Annotated[int, typer.Option(help="Number of terms to show that a table lacks.", min=0)] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers and all missing terms here.", metavar="FILE")
    ] = None,
) -> None:
    """Measure tables: size, certainty, coverage of queries, and precision against a dictionary."""
    shared.check_output(json_file)
    known = shared.named_tables(tables)
    first = next(iter(known.values()))
    queries = shared.read_queries(topics, variant, first.source.lang)
    found = {name: quality.report(table, queries, gold) for name, table in known.items()}
    frames = [result.to_frame()["value"] for result in found.values()]
    rows = [
        [label, *(text.format(frame[measure]) for frame in frames)]
        for measure, (label, text) in _MEASURES.items()
        if measure in frames[0].index
    ]
    caption = []
    one = next(iter(found.values()))
    if one.coverage:
        caption.append(f"{topics}: {one.coverage.tokens:,} tokens of {one.coverage.types:,} types, with stop words.")
    if one.accuracy and gold:
        caption.append(f"{gold.name}: {one.accuracy.words:,} source words; one that a table lacks counts as wrong.")
    out.print(grid(direction(first), ["", *found], rows, caption=" ".join(caption)))
    for name, result in found.items():
        if result.coverage and result.coverage.missing and missing:
            lacking = result.coverage.missing
            shown = ", ".join(f"{term} ({n})" for term, n in list(lacking.items())[:missing])
            out.print(
                f"{name} lacks {len(lacking):,} terms, of which {result.coverage.related_types:,} have other forms in "
                f"it; the most frequent: {shown}",
                markup=False, emoji=False,
            )  # fmt: skip
    numbers = {name: {"fingerprint": known[name].fingerprint, **result.as_json()} for name, result in found.items()}
    settings = {"version": __version__, "topics": topics, "variant": variant, "gold": gold and gold.name}
    shared.write_json(json_file, {**settings, "tables": numbers})


def diff(
    a: TableName,
    b: Annotated[str, typer.Argument(help="Another one of the same direction.", metavar="TABLE")],
    topics: Topics = None,
    variant: Variant = None,
    top: Annotated[int, typer.Option(help="Number of words of each kind to show.", min=1)] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all differences here.", metavar="FILE")
    ] = None,
) -> None:
    """Show what is different between two tables: words, best translations, probabilities.

    With --topics, only the terms of the queries are compared, the most frequent first.
    """
    shared.check_output(json_file)
    (name_a, first), (name_b, second) = shared.named_tables([a, b]).items()
    queries = shared.read_queries(topics, variant, first.source.lang)
    counts = None if queries is None else dict(quality.count_terms(first, queries).most_common())
    found = compare(first, second, counts)
    of_topics = "" if counts is None else f" of the {len(counts):,} terms of {topics}"
    sizes = [f"{len(table.source_words):,} source words, {len(table):,} entries" for table in (first, second)]
    texts = [
        f"A: {name_a} ({sizes[0]}); B: {name_b} ({sizes[1]})",
        f"Source words{of_topics}: {len(found.shared):,} in both, {len(found.only_a):,} only in A, "
        f"{len(found.only_b):,} only in B. Of those in both, {found.changed:,} have other probabilities and "
        f"{int(found.new_best.sum()):,} another best translation; mean distance {found.mean_distance:.3f}.",
    ]
    for name, words in (("A", found.only_a), ("B", found.only_b)):
        shown = [f"{word} ({counts[word]})" if counts else word for word in words[:top]]
        texts += [f"Only in {name}: {', '.join(shown)}{', ...' if len(words) > top else ''}"] if words else []
    for text in texts:
        out.print(text, markup=False, emoji=False)
    same = [change for change in found.largest_changes() if change.best_a == change.best_b]
    kinds = (("Another best translation", found.new_best_words(top)), ("The same best translation", same[:top]))
    for title, changes in kinds:
        rows = [[one.word, f"{one.best_a} {one.prob_a:.3f}", f"{one.best_b} {one.prob_b:.3f}", f"{one.distance:.3f}"]
                for one in changes]  # fmt: skip
        if rows:
            out.print(grid(title, ["word", "A", "B", "distance"], rows))
    shared.write_json(json_file, {"version": __version__, "a": a, "b": b, "topics": topics, **found.as_json()})


def direction(table: TranslationTable) -> str:
    """Returns the languages of a table in words."""
    return f" {arrow()} ".join(LANGUAGES[lang] for lang in table.languages)


def grid(title: str, headings: list[str] | None, rows: list[list[str]], caption: str = "") -> Table:
    """Returns a table to print, in which long cells are folded and columns of numbers are to the right."""
    made = Table(title=Text(title), title_justify="left", caption=Text(caption) if caption else None,
                 caption_justify="left", show_header=headings is not None)  # fmt: skip
    for i, cells in enumerate(zip(*rows, strict=True)):
        numeric = headings is not None and all(cell[:1].isdigit() and " " not in cell for cell in cells)
        made.add_column(Text(headings[i]) if headings else "", justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def readable(value: Any) -> str:
    """Returns a value of the metadata in one or more lines."""
    if isinstance(value, list):
        return ("\n" if any(isinstance(item, dict) for item in value) else ", ").join(map(readable, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {readable(item)}" for key, item in value.items())
    return "none" if value is None else str(value)
