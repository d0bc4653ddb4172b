"""``pyterrier-mart meta evaluate``: measures a model on a fold of XQuAD-R, or on STS17."""

from __future__ import annotations

import json
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import pyterrier as pt
import typer
from rich.table import Table
from rich.text import Text

from pyterrier_mart import __version__
from pyterrier_mart.artifact import META
from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.cli.meta.data import (
    FOLDS,
    Device,
    DocText,
    DocTextName,
    Languages,
    check_encoder,
    find_device,
    progress_bar,
    xquad_r_fold,
)
from pyterrier_mart.files import atomic_file

if TYPE_CHECKING:
    from pyterrier_mart.datasets.corpus import MultilingualCorpus
    from pyterrier_mart.evaluation.lareqa import Vectors
    from pyterrier_mart.meta.folds import Fold
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever

__all__ = ["evaluate"]

_SAMPLE = 200  # texts of each language and side that centring learns from


class DataName(str, Enum):
    """The choices of ``--data``."""

    xquad_r = "xquad-r"
    sts17 = "sts17"


class SplitName(str, Enum):
    """The choices of ``--split``."""

    test = "test"
    valid = "valid"


def evaluate(
    model: Annotated[
        str,
        typer.Argument(help="What meta train saved, or an encoder as it is: e5-small, a directory, one on a hub."),
    ],
    data: Annotated[DataName, typer.Option(help="What to measure on.")] = DataName.xquad_r,
    fold: Annotated[
        int | None,
        typer.Option(help="Which fold. [default: 0; with sts17 all pairs]", min=0, max=FOLDS - 1, show_default=False),
    ] = None,
    split: Annotated[SplitName, typer.Option(help="Which of the fold's articles.")] = SplitName.test,
    centre: Annotated[
        bool, typer.Option("--centre", help="Subtract the mean vector of each language, learned from training texts.")
    ] = False,
    k: Annotated[int, typer.Option(help="Depth of the rankings, in AP@k and language bias.", min=1)] = 20,
    langs: Languages = None,
    doc_text: DocTextName = DocText.sentence,
    device: Device = "auto",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers to this file.", metavar="FILE")
    ] = None,
    run_file: Annotated[
        Path | None,
        typer.Option(
            "--run", help="Write the k best over all languages as a TREC run, .gz for gzipped.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Measure a model: AP@20 in one, across two and over all languages, and its bias to the question's language.

    mono: candidates in the question's language; bi: in one other language, mean over all pairs; multi: in all languages
    at once, of which each has one answer. With --data sts17: correlation of cosine and gold similarity of sentence
    pairs.
    """
    if data is DataName.sts17:
        for option, given in (("--run", run_file), ("--centre", centre), ("--langs", langs)):
            if given:
                raise ValueError(f"{option} is for --data xquad-r, not sts17")
    where = find_device(device)
    with ExitStack() as stack:
        # Entered first, so that what cannot be written is known before the work.
        files = [stack.enter_context(atomic_file(path)) if path else None for path in (json_file, run_file)]
        dense = _load(model, where)
        if data is DataName.sts17:
            found = _pairs(dense, fold, split.value)
        else:
            found = _rankings(dense, xquad_r_fold(fold or 0, langs, doc_text), split.value, centre, k, files[1])
        found = {"model": model, "data": data.value, "pyterrier-mart": __version__, **found}
        if files[0] is not None:
            files[0].write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    out.print(_sts_table(found) if data is DataName.sts17 else _table(found))
    if data is DataName.xquad_r:
        out.print(
            f"AP@{k} x100 for {found['questions']} questions and {found['candidates']} candidates, {found['split']} "
            f"articles of fold {found['fold']}{', centred' if found['centred'] else ''}. Language bias: how much of "
            f"the first {k} over all languages is in the question's language, and how much of all candidates is."
        )


def _load(name: str, device: str) -> MetaSBERTRetriever:
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever

    if (Path(name) / META).exists():
        return MetaSBERTRetriever.load(name, device=device)
    check_encoder(name, "MODEL")
    return MetaSBERTRetriever(name, device=device)


def _encode(dense: MetaSBERTRetriever, queries: list[str], documents: list[str]) -> Vectors:
    """Encodes texts, with a progress bar."""
    encoder = dense.load_model()
    queries, documents = list(dict.fromkeys(queries)), list(dict.fromkeys(documents))
    with progress_bar(total=len(queries) + len(documents), desc="encoding", unit="text") as bar:
        asked = encoder.encode(queries, "query", progress=bar.update)
        vectors: Vectors = {("query", text): vector for text, vector in zip(queries, asked, strict=True)}
        read = encoder.encode(documents, "document", progress=bar.update)
        vectors.update({("document", text): vector for text, vector in zip(documents, read, strict=True)})
    return vectors


def _as_json(frame: pd.DataFrame) -> Any:
    """The rows of a frame as JSON objects by the values of its index."""
    return json.loads(frame.to_json(orient="index", double_precision=15))


# ------------------------------------------------------------------------------------------------------------ rankings


def _rankings(
    dense: MetaSBERTRetriever, fold: Fold[MultilingualCorpus], split: str, centre: bool, k: int, run_file: Path | None
) -> dict[str, Any]:
    from pyterrier_mart.dense.centring import LanguageCentering
    from pyterrier_mart.evaluation import lareqa as evaluation

    if centre:
        errors.print(f"centring: {_SAMPLE} training texts of each language and side", markup=False, soft_wrap=True)
        dense.post = LanguageCentering.fit_corpus(dense, fold.train, sample=_SAMPLE)
    corpus = fold.test if split == "test" else fold.valid
    vectors = _encode(dense, corpus.topics["query"].tolist(), corpus.docs["text"].tolist())
    frame = evaluation.lareqa_evaluate(dense, corpus, k=k, vectors=vectors)
    run = evaluation.lareqa_run(dense, corpus, k, vectors=vectors)
    bias = evaluation.language_bias(run, corpus, k)
    if run_file is not None:
        pt.io.write_results(run, str(run_file), run_name="mart")
    return {
        "fold": fold.index, "split": split, "k": k, "centred": dense.post is not None,
        "questions": len(corpus.topics), "candidates": len(corpus.docs),
        "mean": evaluation.summarise(frame),
        "languages": _as_json(evaluation.by_language(frame).join(bias.set_index("query_lang").add_prefix("bias_"))),
    }  # fmt: skip


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=Text(found["model"]), title_justify="left")
    table.add_column("questions")
    columns = {"mono": "mono", "bi": "bi", "multi": "multi", "bias_share": "own language", "bias_pool_share": "of all"}
    for title in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    rows = pd.DataFrame(found["languages"]).T
    for lang, row in rows.iterrows():
        table.add_row(str(lang), *(_cell(row.get(name), name) for name in columns))
    table.add_section()
    mean = {**rows.mean().to_dict(), **found["mean"]}
    table.add_row("mean", *(_cell(mean.get(name), name) for name in columns), style="bold")
    return table


def _cell(value: float | None, name: str) -> str:
    if value is None or pd.isna(value):
        return ""
    return f"{value:.0%}" if name.startswith("bias") else f"{value:.1f}"


# --------------------------------------------------------------------------------------------------------------- pairs


def _pairs(dense: MetaSBERTRetriever, fold: int | None, split: str) -> dict[str, Any]:
    from pyterrier_mart.datasets.corpus import PairCorpus
    from pyterrier_mart.evaluation.lareqa import sts_evaluate
    from pyterrier_mart.meta.folds import kfold_pairs

    pairs = PairCorpus.sts17()
    if fold is not None:
        part = next(part for part in kfold_pairs(pairs, FOLDS) if part.index == fold)
        pairs = part.test if split == "test" else part.valid
    sentences = [*pairs.pairs["sentence1"], *pairs.pairs["sentence2"]]
    frame = sts_evaluate(dense, pairs, vectors=_encode(dense, sentences, []))
    kinds = frame["track"].str.split("-").map(lambda langs: "mono" if langs[0] == langs[1] else "bi")
    means = frame.groupby(kinds)[["pearson", "spearman"]].mean()
    return {
        "fold": fold, "split": split if fold is not None else None,
        "tracks": _as_json(frame.set_index("track")), "mean": _as_json(means),
    }  # fmt: skip


def _sts_table(found: dict[str, Any]) -> Table:
    table = Table(title=Text(f"{found['model']}: STS17"), title_justify="left")
    table.add_column("track")
    for name in ("pairs", "Pearson", "Spearman"):
        table.add_column(name, justify="right", no_wrap=True)
    for track, row in found["tracks"].items():
        table.add_row(track, str(row["pairs"]), _cell(row["pearson"], ""), _cell(row["spearman"], ""))
    table.add_section()
    for kind in ("mono", "bi"):
        row = found["mean"][kind]
        table.add_row(f"mean {kind}", "", _cell(row["pearson"], ""), _cell(row["spearman"], ""), style="bold")
    return table
