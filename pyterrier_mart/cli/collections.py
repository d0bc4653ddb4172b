"""``pyterrier-mart clef ...`` and ``ciral ...``: say where a licensed collection lies, and see what is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from pandas.api.types import is_numeric_dtype
from rich.table import Table

from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.datasets import ciral, paths
from pyterrier_mart.datasets.ciral.passages import VARIABLE as CIRAL_VARIABLE
from pyterrier_mart.datasets.ciral.summary import topics as ciral_topics
from pyterrier_mart.datasets.clef.catalogue import Catalogue, scan
from pyterrier_mart.datasets.clef.collections import COLLECTIONS
from pyterrier_mart.datasets.clef.dataset import CLEF, HOME_VARIABLE
from pyterrier_mart.datasets.clef.settings import PAPER_PAIRS, PAPER_TOPICS, topic_languages
from pyterrier_mart.datasets.clef.stores import build, built, documents_found, examples, unknown_judged
from pyterrier_mart.problems import Problems
from pyterrier_mart.text import LANGUAGES

__all__ = ["ciral_app", "clef_app"]

clef_app = typer.Typer(help="Set up the CLEF ad-hoc collections, or see what is there.", no_args_is_help=True)
ciral_app = typer.Typer(help="Set up the passages of CIRAL, or see what is there.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The folder with the files, as they came.", metavar="DIR")]
_MOST_PROBLEMS = 60
_MOST_NAMES = 20


@clef_app.command("setup")
def clef_setup(
    folder: Folder,
    documents: Annotated[bool, typer.Option(help="Read the documents now, and not when they are first needed.")] = True,
) -> None:
    """Look through a folder with CLEF's files, remember it, and read the documents.

    Files may have any names, and may be packed. An interrupted command resumes with the next newspaper.
    """
    catalogue = scan(folder, verbose=True)
    if not any(catalogue.count(key) or catalogue.judged.get(key) for key in COLLECTIONS):
        raise ValueError(
            f"{folder} holds no documents and no judgments of CLEF's newspapers, so that it is not set up; found "
            f"{len(catalogue.topics)} languages with topics and {catalogue.count(''):,} documents of other collections"
        )
    paths.remember("clef", folder)
    if documents:
        for key in COLLECTIONS:
            if key in catalogue.documents:
                build(catalogue, key, verbose=True)
    _show_clef(catalogue)
    _warn_of_variable(HOME_VARIABLE, catalogue.home)


@clef_app.command("info")
def clef_info() -> None:
    """Show what of CLEF is there: documents, topics, judgments, and the pairs of languages they make."""
    _show_clef(scan(paths.home("clef", HOME_VARIABLE), verbose=True))


def _show_clef(catalogue: Catalogue) -> None:
    _say(f"CLEF in {catalogue.home}, what was read of it in {catalogue.cache}")
    out.print(_documents(catalogue))
    missing = [key for key in COLLECTIONS if not catalogue.count(key)]
    if missing:
        _say(f"not there: {', '.join(missing)}")
    if catalogue.topics:
        topics = [
            (f"{LANGUAGES.get(language, language)} ({language})", len(known), _ranges(list(map(int, known))))
            for language, known in catalogue.topics.items()
        ]
        out.print(_grid("Topics", pd.DataFrame(topics, columns=["language", "topics", "qids"])))
    out.print(_pairs(catalogue))
    _say(f"{catalogue.files:,} files, of which {catalogue.ignored:,} hold no documents, topics or judgments")
    _list(catalogue.ignored_names, catalogue.ignored)
    if unplaced := [docno for labels in catalogue.labels("").values() for docno in labels]:
        _say(f"{len(unplaced):,} judgments of documents of no known collection: {examples(unplaced)}")
    if catalogue.repeated:
        _say(f"{catalogue.repeated:,} judgments stand in more than one place, with the same label")
    problems = Problems()
    problems.update(catalogue.problems)
    for key in catalogue.documents:
        if store := built(catalogue, key):
            problems.update(store.problems)
    _show_problems(problems)


def _documents(catalogue: Catalogue) -> Table:
    """What there is of each newspaper. Narrow enough for a line each."""
    grid = _grid(
        "Documents, beside CLEF's number of them; absent are those that are judged and not found",
        pd.DataFrame({"key": [""], "collection": "", "found": 0, "CLEF": 0, "judged": 0, "absent": 0}).iloc[:0],
    )
    for key, known in COLLECTIONS.items():
        judged = len({docno for labels in catalogue.labels(key).values() for docno in labels})
        found = documents_found(catalogue, key)
        if found or judged:
            unknown = unknown_judged(catalogue, key)
            absent = "" if unknown is None else f"{len(unknown):,}"
            style = "" if found == known.documents else "yellow"
            grid.add_row(key, known.name, f"{found:,}", f"{known.documents:,}", f"{judged:,}", absent, style=style)
    if others := catalogue.count(""):
        grid.add_row("", "of no known collection", f"{others:,}", "", "", "")
    return grid


def _ranges(numbers: list[int]) -> str:
    """Writes sorted numbers as ranges: 41-90, 141-200."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def _pairs(catalogue: Catalogue) -> Table:
    grid = _grid("Pairs of the paper", pd.DataFrame({"dataset": [""], "topics": 0, "paper": 0, "missing": ""}).iloc[:0])
    for query, document in PAPER_PAIRS:
        dataset = CLEF.of(catalogue, query, document)
        missing = [f"topics in {code}" for code in topic_languages(query, document) if code not in catalogue.topics]
        if absent := [key for key in dataset.collections if not catalogue.count(key)]:
            missing.append(f"documents of {', '.join(absent)}")
        if not dataset.judgments():
            missing.append("judgments")
        topics, stated = len(dataset.found_qids()), PAPER_TOPICS.get(dataset.languages)
        style = "" if not missing and stated in (None, topics) else "yellow"
        grid.add_row(f"mart:{dataset.name}", f"{topics:,}", str(stated or ""), "; ".join(missing), style=style)
    return grid


@ciral_app.command("setup")
def ciral_setup(folder: Folder) -> None:
    """Look for CIRAL's passages in a folder, remember it, and read them."""
    found = ciral.scan(folder)
    if not found.files:
        raise ValueError(f"{found.describe()}; expected CIRAL's passages, in files such as somali.jsonl.gz")
    home = paths.remember("ciral", folder)
    problems = Problems()
    _show_ciral(found, ciral.check(found, problems, verbose=True), problems)
    _warn_of_variable(CIRAL_VARIABLE, home)


@ciral_app.command("info")
def ciral_info() -> None:
    """Show what of CIRAL is there: topics and judgments, which come with the package, and passages."""
    out.print(_grid("Topics and judgments", ciral_topics()))
    try:
        folder = paths.home("ciral", CIRAL_VARIABLE)
    except FileNotFoundError as err:  # topics and judgments are of use without passages
        _say(f"No passages: {err}")
        return
    problems = Problems()
    found = ciral.scan(folder)
    _show_ciral(found, ciral.check(found, problems, build=False), problems)


def _show_ciral(found: ciral.Scan, passages: pd.DataFrame, problems: Problems) -> None:
    out.print(_grid("Passages", passages))
    _say(found.describe())
    if found.ignored:
        _say(f"{len(found.ignored):,} files are not read:")
        _list([f"{name}: {why}" for name, why in found.ignored.items()], len(found.ignored))
    _show_problems(problems)


def _grid(title: str, frame: pd.DataFrame) -> Table:
    grid = Table(title=title, title_justify="left")
    for column in frame.columns:
        numeric = is_numeric_dtype(frame[column])
        grid.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in frame.itertuples(index=False):
        grid.add_row(*("" if pd.isna(cell) else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    return grid


def _show_problems(problems: Problems) -> None:
    lines = problems.summary()
    for line in lines[:_MOST_PROBLEMS]:
        _say(line)
    if len(lines) > _MOST_PROBLEMS:
        _say(f"and {len(lines) - _MOST_PROBLEMS:,} more lines")


def _list(names: Sequence[str], count: int) -> None:
    """Shows the first of so many names."""
    shown = names[:_MOST_NAMES]
    for name in shown:
        _say(f"  {name}")
    if count > len(shown):
        _say(f"  and {count - len(shown):,} more")


def _say(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()  # names of files need not be Unicode
    out.print(text, markup=False, emoji=False, soft_wrap=True)


def _warn_of_variable(variable: str, folder: Path) -> None:
    """Says that a variable sends readers to another folder than the one that was set up."""
    given = os.environ.get(variable, "").strip()
    if given and Path(given).expanduser().resolve() != folder:
        errors.print(
            f"warning: {variable} is {given}, which counts more than the folder that was set up",
            style="yellow", markup=False, emoji=False, soft_wrap=True,
        )  # fmt: skip
