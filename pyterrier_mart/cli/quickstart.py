"""``pyterrier-mart quickstart``: from a query in one language to a ranking in another, measured, in one command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import typer
from rich.table import Table

from pyterrier_mart import TranslationTable
from pyterrier_mart.cli.console import arrow, errors, out, say
from pyterrier_mart.cli.measuring import MEASURES, Outcome, measure, measure_reranking
from pyterrier_mart.cli.table.shared import check_output, write_json
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.encoders import PACKAGED, find
from pyterrier_mart.text import LANGUAGES, language_code

__all__ = ["quickstart"]

_SIGNIFICANT = 0.05
_NARROW = 75  # columns in which values and their differences do not fit side by side


def quickstart(
    pair: Annotated[str, typer.Option(help="Question and document language.", metavar="Q-D")] = "de-en",
    engine: Annotated[
        Literal["auto", "pisa", "terrier"], typer.Option(help="Search engine; auto is PISA where it is installed.")
    ] = "auto",
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
    languages = languages_of(pair)
    known = TranslationTable.load("-".join(languages) if table is None else table)
    if known.languages != languages:
        raise ValueError(f"the table {table} translates {'-'.join(known.languages)}, not {'-'.join(languages)}")
    check_output(json_file)
    if dense or rerank:
        check_encoder(encoder)  # what is missing is better known before the work than after it
    options: Any = {"engine": engine, "stop": stop, "progress": True}
    q, d = (LANGUAGES[lang] for lang in languages)
    title = f"{q} questions {arrow()} {d} sentences"
    say(f"{q} questions, {d} sentences; translating with {known!r}", errors)
    outcome = measure(*languages, known, encoder=encoder if dense else None, **options)
    written, settings = as_json(outcome), outcome.settings
    out.print(as_table(outcome.table, title))
    out.print(
        f"{settings['topics']} topics, {settings['documents']} documents; BM25 by {settings['engine']} "
        f"(k1={settings['k1']}, b={settings['b']}). Below each "
        "value: difference from the first row, and p of a two-tailed paired t-test."
    )
    if dense:
        out.print(
            f"Dense: vectors of {encoder}, not trained; centred: the mean of each language subtracted; hybrid: PSQ-HMM "
            "and dense, zero-shot together."
        )
    raw, smt, human = (outcome.row(name)["AP@100"] for name in ("no translation", "SMT (table)", "human translation"))
    reach = f", {smt / human:.0%} of the {human:.3f} that human translation reaches" if human > 0 else ""
    out.print(
        f"\nSearching {d} with {q} words finds little ({raw:.3f} AP@100); translating each word with the table "
        f"gives {smt:.3f}{reach} ({verdict(outcome, 'SMT (table)')} from no translation)."
    )
    if rerank:
        again = measure_reranking(*languages, known, encoder=encoder, **options)
        written["reranking"], settings = as_json(again), again.settings
        out.print()
        out.print(as_table(again.table, f"{title}, re-ranked"))
        smt, mart, _ = again.table["AP@100"]
        out.print(
            f"MART on {settings['encoder']}, trained on {settings['training_questions']} questions, re-ranks the "
            f"first {settings['depth']} sentences of {settings['topics']} other questions, about other articles.\n"
            f"On these, re-ranking takes AP@100 from {smt:.3f} to {mart:.3f} ({verdict(again, 'MART')})."
        )
    write_json(json_file, written)
    out.print(
        f"Next: try [bold]pyterrier-mart table lookup {'-'.join(languages)} WORD[/bold] to see what the table knows, "
        "train one on your own sentence pairs with [bold]pyterrier-mart table train[/bold], or compose "
        "[bold]SMTQueryTranslator(table) >> bm25 >> MARTReRanker(encoder, table)[/bold] over your own documents "
        "(README)."
    )


def languages_of(pair: str) -> tuple[str, str]:
    """Returns the languages of questions and documents.

    Raises:
        ValueError: If they are not two of XQuAD-R's.
    """
    codes = [language_code(code) for code in pair.split("-")]
    if len(codes) != 2 or codes[0] == codes[1] or not set(codes) <= set(xquad_r.LANGUAGES):
        usable = [name for name in TranslationTable.bundled() if set(name.split("-")) <= set(xquad_r.LANGUAGES)]
        raise ValueError(
            f"--pair must be two languages of XQuAD-R ({', '.join(xquad_r.LANGUAGES)}), such as de-en, not {pair!r}; "
            f"bundled tables: {', '.join(usable)}"
        )
    return codes[0], codes[1]


def check_encoder(name: str) -> None:
    """Raises an error if there is no such encoder."""
    from pyterrier_mart.encoders.loading import load_config

    try:
        load_config(find(name))
    except OSError as err:
        raise ValueError(
            f"--encoder must be one of {', '.join(PACKAGED)}, a directory, or a model on the hub that can be loaded: "
            f"{err}"
        ) from err


def verdict(outcome: Outcome, name: str) -> str:
    """Says whether a system differs from the first."""
    significant = outcome.row(name)["AP@100 p-value"] < _SIGNIFICANT
    return "a significant difference" if significant else "no significant difference"


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Returns the settings and results as JSON values."""
    rows = json.loads(outcome.table.to_json(orient="records", double_precision=15))
    return {"settings": outcome.settings, "results": rows}


def as_table(frame: pd.DataFrame, title: str) -> Table:
    """Returns a table of each system's values and their differences from the first system's."""
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
