"""``pyterrier-mart clef ...`` and ``ciral ...``: say where a licensed collection lies, and see what is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.table import Table

from pyterrier_mart.cli.console import errors, out, say
from pyterrier_mart.datasets import ciral, paths
from pyterrier_mart.datasets.ciral.passages import VARIABLE as CIRAL_VARIABLE
from pyterrier_mart.datasets.ciral.summary import topics as ciral_topics
from pyterrier_mart.datasets.clef.campaigns import ranges
from pyterrier_mart.datasets.clef.catalogue import Catalogue, scan
from pyterrier_mart.datasets.clef.collections import COLLECTIONS
from pyterrier_mart.datasets.clef.dataset import CLEF, HOME_VARIABLE
from pyterrier_mart.datasets.clef.settings import PAPER_PAIRS, PAPER_TOPICS, topic_languages
from pyterrier_mart.datasets.clef.stores import build, built, documents_found, unknown_judged, unplaced
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
        others = [
            f"{sentence}: {files[0]}{', ...' * (len(files) > 1)}" for sentence, files in unplaced(catalogue).items()
        ]
        raise ValueError(
            f"{folder} holds no documents and no judgments of CLEF's newspapers, so that it is not set up; found "
            f"{'; '.join([f'{len(catalogue.topics)} languages with topics', *others])}"
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
    if missing := [key for key in COLLECTIONS if not catalogue.count(key)]:
        _say(f"not there: {', '.join(missing)}")
    if catalogue.topics:
        topics = [
            (f"{LANGUAGES.get(language, language)} ({language})", len(known), ranges(map(int, known)))
            for language, known in catalogue.topics.items()
        ]
        out.print(_grid("Topics", ("language", "topics", "qids"), topics))
    out.print(_pairs(catalogue))
    _say(f"{catalogue.files:,} files, of which {catalogue.ignored:,} hold no documents, topics or judgments")
    _say_first([f"  {name}" for name in catalogue.ignored_names], _MOST_NAMES, catalogue.ignored)
    for sentence, files in unplaced(catalogue).items():
        _say(f"{sentence}:")
        _say_first([f"  {line}" for line in files], _MOST_NAMES)
    if catalogue.repeated:
        _say(f"{catalogue.repeated:,} judgments stand in more than one place, with the same label")
    problems = Problems()
    problems.update(catalogue.problems)
    for key in catalogue.documents:
        if store := built(catalogue, key):
            problems.update(store.problems)
    _say_first(problems.summary(), _MOST_PROBLEMS)


def _documents(catalogue: Catalogue) -> Table:
    """What there is of each newspaper. Narrow enough for a line each."""
    rows: list[tuple[Any, ...]] = []
    for key, known in COLLECTIONS.items():
        judged = len({docno for labels in catalogue.labels(key).values() for docno in labels})
        found, absent = documents_found(catalogue, key), unknown_judged(catalogue, key)
        if found or judged:
            style = "" if found == known.documents else "yellow"
            missing = None if absent is None else len(absent)
            rows.append((key, known.name, found, known.documents, judged, missing, style))
    if others := catalogue.count(""):
        rows.append(("", "of no known collection", others, None, None, None, ""))
    title = "Documents, beside CLEF's number of them; absent are those that are judged and not found"
    return _grid(title, ("key", "collection", "found", "CLEF", "judged", "absent"), rows)


def _pairs(catalogue: Catalogue) -> Table:
    rows = []
    for query, document in PAPER_PAIRS:
        dataset = CLEF.of(catalogue, query, document)
        missing = [f"topics in {code}" for code in topic_languages(query, document) if code not in catalogue.topics]
        if absent := [key for key in dataset.collections if not catalogue.count(key)]:
            missing.append(f"documents of {', '.join(absent)}")
        if not dataset.judgments():
            missing.append("judgments")
        topics, stated = len(dataset.found_qids()), PAPER_TOPICS.get(dataset.languages)
        if not missing and not topics:
            missing.append(f"judgments (there are of {ranges(sorted(map(int, dataset.judgments())))})")
        style = "" if not missing and stated in (None, topics) else "yellow"
        rows.append((f"mart:{dataset.name}", topics, stated, "; ".join(missing), style))
    return _grid("Pairs of the paper", ("dataset", "topics", "paper", "missing"), rows)


@ciral_app.command("setup")
def ciral_setup(folder: Folder) -> None:
    """Look for CIRAL's passages in a folder, remember it, and read them."""
    found = ciral.scan(folder)
    if not found.files:
        raise ValueError(f"{found.describe(reasons=True)}; expected CIRAL's passages, in files such as somali.jsonl.gz")
    home = paths.remember("ciral", folder)
    problems = Problems()
    _show_ciral(found, ciral.check(found, problems, verbose=True), problems)
    _warn_of_variable(CIRAL_VARIABLE, home)


@ciral_app.command("info")
def ciral_info() -> None:
    """Show what of CIRAL is there: topics and judgments, which come with the package, and passages."""
    topics = ciral_topics()
    out.print(_grid("Topics and judgments", list(topics), list(topics.itertuples(index=False))))
    try:
        folder = paths.home("ciral", CIRAL_VARIABLE)
    except FileNotFoundError as err:  # topics and judgments are of use without passages
        _say(f"No passages: {err}")
        return
    problems = Problems()
    found = ciral.scan(folder)
    _show_ciral(found, ciral.check(found, problems, build=False), problems)


def _show_ciral(found: ciral.Scan, passages: pd.DataFrame, problems: Problems) -> None:
    out.print(_grid("Passages", list(passages), list(passages.itertuples(index=False))))
    _say(found.describe())
    if found.ignored:
        _say(f"{len(found.ignored):,} files are not read:")
        _say_first([f"  {name}: {why}" for name, why in found.ignored.items()], _MOST_NAMES)
    _say_first(problems.summary(), _MOST_PROBLEMS)


def _grid(title: str, columns: Sequence[str], rows: Sequence[Any]) -> Table:
    """Makes a table of rows, which may have a style after their cells."""
    grid = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        whole = any(isinstance(row[i], int) for row in rows)
        grid.add_column(column, justify="right" if whole else "left", overflow="fold", no_wrap=i == 0)
    for row in rows:
        cells = ["" if pd.isna(cell) else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
        grid.add_row(*cells[: len(columns)], style="".join(cells[len(columns) :]))
    return grid


def _say_first(lines: Sequence[str], most: int, count: int | None = None) -> None:
    """Shows the first lines, and how many more there are."""
    for line in lines[:most]:
        _say(line)
    if (rest := (count or len(lines)) - len(lines[:most])) > 0:
        _say(f"  and {rest:,} more")


def _say(text: str) -> None:
    say(text.encode("utf-8", "replace").decode())  # names of files need not be Unicode


def _warn_of_variable(variable: str, folder: Path) -> None:
    """Says that a variable sends readers to another folder than the one that was set up."""
    given = os.environ.get(variable, "").strip()
    if given and Path(given).expanduser().resolve() != folder:
        text = f"warning: {variable} is {given}, which counts more than the folder that was set up"
        say(text, errors, style="yellow")
