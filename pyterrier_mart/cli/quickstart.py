"""``pyterrier-mart quickstart``: from a query in one language to a ranking in another, measured, in one command."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.table import Table

from pyterrier_mart import TranslationTable
from pyterrier_mart.cli.console import arrow, errors, out
from pyterrier_mart.cli.measuring import MEASURES, Outcome, measure, measure_reranking
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.encoders import PACKAGED, resolve
from pyterrier_mart.files import atomic_file
from pyterrier_mart.text import LANGUAGES, language_code

__all__ = ["quickstart"]

_SIGNIFICANT = 0.05
_NARROW = 75  # columns in which values and their differences do not fit side by side


class EngineName(str, Enum):
    """The choices of ``--engine``."""

    auto = "auto"
    pisa = "pisa"
    terrier = "terrier"


def quickstart(
    pair: Annotated[str, typer.Option(help="Question and document language.", metavar="Q-D")] = "de-en",
    engine: Annotated[EngineName, typer.Option(help="Search engine; auto is PISA where it is installed.")] = (
        EngineName.auto
    ),
    table: Annotated[
        str | None, typer.Option(help="Your own translation table (a directory) instead of the bundled one.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Leave stop words out of queries and index.")] = False,
    dense: Annotated[
        bool,
        typer.Option("--dense/--no-dense", help="Also retrieve with vectors of the encoder, which takes a minute."),
    ] = True,
    rerank: Annotated[
        bool, typer.Option("--rerank/--no-rerank", help="Fine-tune MART and re-rank, which takes minutes.")
    ] = True,
    encoder: Annotated[
        str, typer.Option(help="The pretrained encoder of both: a packaged one, a directory, or one on a hub.")
    ] = "e5-small",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers and settings to this file.", metavar="FILE")
    ] = None,
) -> None:
    """Ask questions in one language, search sentences in another: what are translation, vectors, re-ranking worth?

    Everything is in packages: 1190 questions and about 1200 sentences (XQuAD-R), the translation table, the encoder.
    """
    languages = _languages(pair)
    known = _table(table, languages)
    if dense or rerank:
        _check_encoder(encoder)  # what is missing is better known before the work than after it
    q, d = (LANGUAGES[lang] for lang in languages)
    title = f"{q} questions {arrow()} {d} sentences"
    errors.print(f"{q} questions, {d} sentences; translating with {known!r}", markup=False, soft_wrap=True)
    # Entered first, for the same reason.
    with atomic_file(json_file) if json_file is not None else nullcontext() as tmp:
        outcome = measure(
            *languages, known, encoder=encoder if dense else None, engine=engine.value, stop=stop, progress=True
        )
        written = _as_json(outcome)
        settings = outcome.settings
        out.print(_as_table(outcome.table, title))
        out.print(
            f"{settings['topics']} topics, {settings['documents']} documents; BM25 by {settings['engine']} "
            f"(k1={settings['k1']}, b={settings['b']}). Below each "
            "value: difference from the first row, and p of a two-tailed paired t-test."
        )
        if dense:
            out.print(f"Dense: vectors of {encoder}, not trained; centred: the mean of each language subtracted.")
        out.print()
        out.print(_sentence(outcome.table, q, d))
        if rerank:
            out.print()
            again = _rerank(languages, known, encoder, engine.value, stop, title)
            written["reranking"] = _as_json(again)
        if tmp is not None:
            tmp.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    out.print(
        f"Next: try [bold]pyterrier-mart table lookup {'-'.join(languages)} WORD[/bold] to see what the table knows, "
        "train one on your own sentence pairs with [bold]pyterrier-mart table train[/bold], or compose "
        "[bold]SMTQueryTranslator(table) >> bm25 >> MARTReRanker(encoder, table)[/bold] over your own documents "
        "(README)."
    )


def _check_encoder(name: str) -> None:
    """Raises an error if an encoder cannot be had."""
    path = resolve(name)
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(path)
    except OSError as err:
        raise ValueError(
            f"--encoder {name}: there is no such encoder here, and it could not be loaded from the hub; expected "
            f"{', '.join(PACKAGED)}, a directory, or the name of a model on the hub"
        ) from err


def _rerank(
    languages: tuple[str, str], table: TranslationTable, encoder: str, engine: str, stop: bool, title: str
) -> Outcome:
    """Measures re-ranking and prints it."""
    outcome = measure_reranking(*languages, table, encoder=encoder, engine=engine, stop=stop, progress=True)
    settings = outcome.settings
    out.print(_as_table(outcome.table, f"{title}, re-ranked"))
    out.print(
        f"MART on {settings['encoder']}, trained on {settings['training_questions']} questions, re-ranks the first "
        f"{settings['depth']} sentences of {settings['topics']} other questions, about other articles."
    )
    smt, mart, _ = outcome.table["AP@100"]
    p = outcome.table["AP@100 p-value"].iloc[1]
    verdict = "a significant difference" if p < _SIGNIFICANT else "no significant difference"
    out.print(f"On these, re-ranking takes AP@100 from {smt:.3f} to {mart:.3f} ({verdict}).")
    return outcome


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


def _as_json(outcome: Outcome) -> dict[str, Any]:
    rows = json.loads(outcome.table.to_json(orient="records", double_precision=15))
    return {"settings": outcome.settings, "results": rows}


def _as_table(frame: pd.DataFrame, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("system")
    for name in MEASURES:
        table.add_column(name, justify="right", no_wrap=True)
    for _, row in frame.iterrows():
        cells = [str(row["name"])]
        for name in MEASURES:
            cell, p = f"{row[name]:.3f}", row[f"{name} p-value"]
            if not math.isnan(p):
                between = "\n" if out.width < _NARROW else ", "
                cell += f"\n{row[name] - frame[name].iloc[0]:+.3f}{between}{'p<.001' if p < 0.001 else f'p={p:.3f}'}"
            cells.append(cell)
        table.add_row(*cells)
    return table


def _sentence(frame: pd.DataFrame, q: str, d: str) -> str:
    """What the numbers mean."""
    by_name = frame.set_index("name")
    raw, smt, human = (by_name["AP@100"][name] for name in ("no translation", "SMT (table)", "human translation"))
    p = by_name["AP@100 p-value"]["SMT (table)"]
    verdict = "a significant difference" if p < _SIGNIFICANT else "no significant difference"
    reach = f", {smt / human:.0%} of the {human:.3f} that human translation reaches" if human > 0 else ""
    return (
        f"Searching {d} with {q} words finds little ({raw:.3f} AP@100); translating each word with the table gives "
        f"{smt:.3f}{reach} ({verdict} from no translation)."
    )
