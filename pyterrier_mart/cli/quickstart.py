"""``pyterrier-mart quickstart``: from a query in one language to BM25 in another, measured, in one command."""

from __future__ import annotations

import json
import math
import platform
import tempfile
from contextlib import nullcontext
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import pyterrier as pt
import typer
from ir_measures import AP, P, R
from rich.table import Table

from pyterrier_mart import SMTQueryTranslator, TranslationTable, __version__, bm25_index
from pyterrier_mart.cli.console import arrow, errors, out
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.files import atomic_file
from pyterrier_mart.text import LANGUAGES, language_code

__all__ = ["Outcome", "measure", "quickstart"]

_MEASURES = ("AP@100", "P@10", "R@100")
_SIGNIFICANT = 0.05
_NARROW = 75  # columns in which values and their differences do not fit side by side


class EngineName(str, Enum):
    """The choices of ``--engine``."""

    auto = "auto"
    pisa = "pisa"
    terrier = "terrier"


class Outcome(NamedTuple):
    """The table of :func:`measure` and what it was made with."""

    table: pd.DataFrame
    settings: dict[str, Any]


def measure(
    question_language: str,
    document_language: str,
    table: TranslationTable,
    *,
    engine: str = "auto",
    stop: bool = False,
    progress: bool = False,
) -> Outcome:
    """Compares no translation, query translation with a table, and human translation on XQuAD-R sentences.

    Args:
        question_language: Language of the 1190 questions.
        document_language: Language of the candidate sentences.
        table: A table in that direction.
        engine: ``"auto"``, ``"pisa"`` or ``"terrier"``.
        stop: Whether stop words are left out of queries and index.
        progress: Whether to show progress bars.

    Returns:
        A :func:`pt.Experiment` table with AP@100, P@10 and R@100, the first row being the baseline of the differences
        and of the paired t-tests.
    """
    data = xquad_r.XQuADR(question_language, document_language)
    with tempfile.TemporaryDirectory(prefix="pyterrier-mart-") as tmp:
        index = bm25_index(data, Path(tmp) / "index", stop=stop, engine=engine, progress=progress)
        bm25 = index.bm25(num_results=100)
        systems = {
            "no translation": bm25,
            "SMT (table)": SMTQueryTranslator(table, stop=stop) >> bm25,
            "human translation": data.human_translation() >> bm25,
        }
        metrics = [AP @ 100, P @ 10, R @ 100]
        topics, qrels = data.get_topics(), data.get_qrels()
        frame = pt.Experiment(
            list(systems.values()), topics, qrels, metrics, names=list(systems), baseline=0, verbose=progress
        )
        settings = {
            "dataset": f"mart:xquad-r/{question_language}-{document_language}", "topics": len(topics),
            "documents": len(index), "engine": index.engine, "k1": bm25.k1, "b": bm25.b, "stop": stop, "top_k": 10,
            "table": {"direction": "-".join(table.languages), "entries": len(table), "fingerprint": table.fingerprint},
            "versions": _versions(index.engine),
        }  # fmt: skip
    return Outcome(frame, settings)


def quickstart(
    pair: Annotated[str, typer.Option(help="Question and document language.", metavar="Q-D")] = "de-en",
    engine: Annotated[EngineName, typer.Option(help="Search engine; auto is PISA where it is installed.")] = (
        EngineName.auto
    ),
    table: Annotated[
        str | None, typer.Option(help="Your own translation table (a directory) instead of the bundled one.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Leave stop words out of queries and index.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers and settings to this file.", metavar="FILE")
    ] = None,
) -> None:
    """Ask questions in one language, search sentences in another, and see what translation is worth.

    Everything is in the package: 1190 questions and about 1200 sentences (XQuAD-R), and the translation table.
    """
    languages = _languages(pair)
    known = _table(table, languages)
    q, d = (LANGUAGES[lang] for lang in languages)
    errors.print(f"{q} questions, {d} sentences; translating with {known!r}", markup=False, soft_wrap=True)
    # Entered first: a path that cannot be written is better known before the work than after it.
    with atomic_file(json_file) if json_file is not None else nullcontext() as tmp:
        outcome = measure(*languages, known, engine=engine.value, stop=stop, progress=True)
        if tmp is not None:
            tmp.write_text(json.dumps(_as_json(outcome), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    settings = outcome.settings
    out.print(_as_table(outcome.table, f"{q} questions {arrow()} {d} sentences"))
    out.print(
        f"{settings['topics']} topics, {settings['documents']} documents; BM25 by {settings['engine']} "
        f"(k1={settings['k1']}, b={settings['b']}). Below each "
        "value: difference from the first row, and p of a two-tailed paired t-test."
    )
    out.print()
    out.print(_sentence(outcome.table, q, d))
    out.print(
        f"Next: try [bold]pyterrier-mart table lookup {'-'.join(languages)} WORD[/bold] to see what the table knows, "
        "train one on your own sentence pairs with [bold]pyterrier-mart table train[/bold], or compose "
        "[bold]SMTQueryTranslator(table) >> bm25[/bold] over your own documents (README)."
    )


def _languages(pair: str) -> tuple[str, str]:
    parts = pair.split("-")
    if len(parts) != 2:
        raise ValueError(f"--pair {pair!r} is not of the form Q-D, such as de-en; bundled: {', '.join(_usable())}")
    try:
        q, d = map(language_code, parts)
    except ValueError as err:
        raise ValueError(f"--pair {pair!r}: {err}") from err
    if missing := [lang for lang in (q, d) if lang not in xquad_r.LANGUAGES]:
        raise ValueError(
            f"--pair {pair}: XQuAD-R has no {LANGUAGES[missing[0]]}; it has {', '.join(xquad_r.LANGUAGES)}"
        )
    if q == d:
        raise ValueError(f"--pair {pair}: nothing to translate; name two languages")
    return q, d


def _table(name: str | None, languages: tuple[str, str]) -> TranslationTable:
    direction = "-".join(languages)
    if name is None and direction not in TranslationTable.bundled():
        raise ValueError(
            f"--pair {direction}: no bundled table translates {direction}; name your own with --table, or a pair of "
            f"{', '.join(_usable())}"
        )
    table = TranslationTable.load(direction if name is None else name)
    if table.languages != languages:
        raise ValueError(f"the table {name} translates {'-'.join(table.languages)}, expected {direction}")
    return table


def _usable() -> list[str]:
    """The bundled tables between languages of XQuAD-R."""
    return [name for name in TranslationTable.bundled() if set(name.split("-")) <= set(xquad_r.LANGUAGES)]


def _versions(engine: str) -> dict[str, str]:
    names = ["python-terrier", "pyterrier", "numpy", "pandas"] + (["pyterrier-pisa"] if engine == "pisa" else [])
    return {"pyterrier-mart": __version__, "python": platform.python_version()} | {n: version(n) for n in names}


def _as_json(outcome: Outcome) -> dict[str, Any]:
    rows = json.loads(outcome.table.to_json(orient="records", double_precision=15))
    return {"settings": outcome.settings, "results": rows}


def _as_table(frame: pd.DataFrame, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("system")
    for name in _MEASURES:
        table.add_column(name, justify="right", no_wrap=True)
    for _, row in frame.iterrows():
        cells = [str(row["name"])]
        for name in _MEASURES:
            cell, p = f"{row[name]:.3f}", row[f"{name} p-value"]
            if not math.isnan(p):
                between = "\n" if out.width < _NARROW else ", "
                cell += f"\n{row[name] - frame[name].iloc[0]:+.3f}{between}{'p<.001' if p < 0.001 else f'p={p:.3f}'}"
            cells.append(cell)
        table.add_row(*cells)
    return table


def _sentence(frame: pd.DataFrame, q: str, d: str) -> str:
    """What the numbers mean."""
    raw, smt, human = frame["AP@100"]
    p = frame["AP@100 p-value"].iloc[1]
    verdict = "a significant difference" if p < _SIGNIFICANT else "no significant difference"
    reach = f", {smt / human:.0%} of the {human:.3f} that human translation reaches" if human > 0 else ""
    return (
        f"Searching {d} with {q} words finds little ({raw:.3f} AP@100); translating each word with the table gives "
        f"{smt:.3f}{reach} ({verdict} from no translation)."
    )
