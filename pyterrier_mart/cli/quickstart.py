"""``pyterrier-mart quickstart``: from a query in one language to a ranking in another, measured, in one command."""

from __future__ import annotations

import json
import math
import platform
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import pyterrier as pt
import typer
from ir_measures import AP, P, R
from rich.table import Table

from pyterrier_mart import BM25Index, SMTQueryTranslator, TranslationTable, __version__, bm25_index
from pyterrier_mart.cli.console import arrow, errors, out
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.encoders import PACKAGED, resolve
from pyterrier_mart.evaluation import split
from pyterrier_mart.files import atomic_file
from pyterrier_mart.text import LANGUAGES, language_code

__all__ = ["Outcome", "measure", "measure_reranking", "quickstart"]

_MEASURES = ("AP@100", "P@10", "R@100")
_SIGNIFICANT = 0.05
_SEED = 42
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
    with _index(data, stop, engine, progress) as index:
        bm25 = index.bm25(num_results=100)
        systems = {
            "no translation": bm25,
            "SMT (table)": SMTQueryTranslator(table, stop=stop) >> bm25,
            "human translation": data.human_translation() >> bm25,
        }
        topics = data.get_topics()
        frame = _experiment(systems, topics, data.get_qrels(), verbose=progress)
        return Outcome(frame, _settings(data, topics, index, bm25, stop, table))


def measure_reranking(
    question_language: str,
    document_language: str,
    table: TranslationTable,
    *,
    encoder: str = "e5-small",
    questions: int | None = None,
    epochs: int = 2,
    depth: int = 10,
    freeze_layers: int = 6,
    test_questions: int | None = None,
    engine: str = "auto",
    stop: bool = False,
    progress: bool = False,
) -> Outcome:
    """Trains MART on some questions and re-ranks the first stage's best documents for others.

    Questions are split by article (:func:`pyterrier_mart.evaluation.split`, first fold): what is tested is about other
    articles than what is trained on.

    Args:
        question_language: As in :func:`measure`.
        document_language: As in :func:`measure`.
        table: As in :func:`measure`.
        encoder: What :func:`pyterrier_mart.encoders.resolve` takes.
        questions: At most so many questions to train on; ``None`` for all of the fold, about 720.
        epochs: How often.
        depth: Documents to re-rank for each question; the rest follow in the first stage's order.
        freeze_layers: So many of the encoder's layers, and its embeddings, are not trained, which saves time.
        test_questions: At most so many; ``None`` for all of the fold.
        engine: As in :func:`measure`.
        stop: As in :func:`measure`.
        progress: Whether to show progress bars.

    Returns:
        As :func:`measure`; the baseline is query translation.
    """
    from pyterrier_mart import MARTReRanker, TrainingOptions

    data = xquad_r.XQuADR(question_language, document_language)
    topics, qrels = data.get_topics(), data.get_qrels()
    fold = split(topics, seed=_SEED, groups=data.articles())[0]
    by_qid = topics.set_index("qid", drop=False)
    chosen = np.random.default_rng(_SEED).permutation(fold.train)[:questions]
    options = TrainingOptions(
        epochs=epochs, learning_rate=1e-4, new_learning_rate=1e-3, accumulation=4, seed=_SEED,
        freeze_layers=freeze_layers, trainer={"lr_scheduler_type": "linear"},
    )  # fmt: skip
    rank = MARTReRanker(encoder, table, training=options, positives_text=data, verbose=progress)
    with _index(data, stop, engine, progress=False) as index:
        bm25 = index.bm25(num_results=100)
        smt = SMTQueryTranslator(table, stop=stop) >> bm25
        pipeline: Any = smt % depth >> data.text_loader() >> rank
        pipeline.fit(by_qid.loc[chosen].reset_index(drop=True), qrels)
        systems = {
            "SMT (table)": smt,
            "MART": pipeline ^ smt,
            "human translation": data.human_translation() >> bm25,
        }
        tested = by_qid.loc[list(fold.test)[:test_questions]].reset_index(drop=True)
        frame = _experiment(systems, tested, qrels[qrels["qid"].isin(tested["qid"])])
        settings = _settings(data, tested, index, bm25, stop, table)
    settings |= {
        "encoder": encoder, "training_questions": len(chosen), "depth": depth, "training": options.as_json(),
        "loss": [round(entry["loss"], 4) for entry in rank.history or [] if "loss" in entry],
    }  # fmt: skip
    return Outcome(frame, settings)


@contextmanager
def _index(data: xquad_r.XQuADR, stop: bool, engine: str, progress: bool) -> Iterator[BM25Index]:
    with tempfile.TemporaryDirectory(prefix="pyterrier-mart-") as tmp:
        yield bm25_index(data, Path(tmp) / "index", stop=stop, engine=engine, progress=progress)


def _experiment(systems: dict[str, Any], topics: pd.DataFrame, qrels: pd.DataFrame, **options: Any) -> pd.DataFrame:
    with warnings.catch_warnings():  # that systems share components
        warnings.filterwarnings("ignore", message="There are shared pipeline components")
        measures = [AP @ 100, P @ 10, R @ 100]
        return pt.Experiment(
            list(systems.values()), topics, qrels, measures, names=list(systems), baseline=0, **options
        )


def _settings(
    data: xquad_r.XQuADR, topics: pd.DataFrame, index: BM25Index, bm25: Any, stop: bool, table: TranslationTable
) -> dict[str, Any]:
    return {
        "dataset": f"mart:{data.name}", "topics": len(topics), "documents": len(index),
        "engine": index.engine, "k1": bm25.k1, "b": bm25.b, "stop": stop, "top_k": 10,
        "table": {"direction": "-".join(table.languages), "entries": len(table), "fingerprint": table.fingerprint},
        "versions": _versions(index.engine),
    }  # fmt: skip


def quickstart(
    pair: Annotated[str, typer.Option(help="Question and document language.", metavar="Q-D")] = "de-en",
    engine: Annotated[EngineName, typer.Option(help="Search engine; auto is PISA where it is installed.")] = (
        EngineName.auto
    ),
    table: Annotated[
        str | None, typer.Option(help="Your own translation table (a directory) instead of the bundled one.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Leave stop words out of queries and index.")] = False,
    rerank: Annotated[
        bool, typer.Option("--rerank/--no-rerank", help="Fine-tune MART and re-rank, which takes minutes.")
    ] = True,
    encoder: Annotated[
        str, typer.Option(help="The pretrained encoder of MART: a packaged one, a directory, or one on a hub.")
    ] = "e5-small",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers and settings to this file.", metavar="FILE")
    ] = None,
) -> None:
    """Ask questions in one language, search sentences in another, and see what translation and re-ranking are worth.

    Everything is in packages: 1190 questions and about 1200 sentences (XQuAD-R), the translation table, the encoder.
    """
    languages = _languages(pair)
    known = _table(table, languages)
    if rerank:
        _check_encoder(encoder)  # what is missing is better known before the work than after it
    q, d = (LANGUAGES[lang] for lang in languages)
    title = f"{q} questions {arrow()} {d} sentences"
    errors.print(f"{q} questions, {d} sentences; translating with {known!r}", markup=False, soft_wrap=True)
    # Entered first, for the same reason.
    with atomic_file(json_file) if json_file is not None else nullcontext() as tmp:
        outcome = measure(*languages, known, engine=engine.value, stop=stop, progress=True)
        written = _as_json(outcome)
        settings = outcome.settings
        out.print(_as_table(outcome.table, title))
        out.print(
            f"{settings['topics']} topics, {settings['documents']} documents; BM25 by {settings['engine']} "
            f"(k1={settings['k1']}, b={settings['b']}). Below each "
            "value: difference from the first row, and p of a two-tailed paired t-test."
        )
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


def _versions(engine: str) -> dict[str, str]:
    names = ["python-terrier", "pyterrier", "numpy", "pandas"] + (["pyterrier-pisa"] if engine == "pisa" else [])
    names += ["torch", "transformers"]
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
