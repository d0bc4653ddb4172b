"""What MART is trained and validated on: made of a first stage's results and judgments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.checks import check_columns
from pyterrier_mart.frames import texts_of, warn
from pyterrier_mart.mart.options import TrainingOptions
from pyterrier_mart.query_terms import specs_of

__all__ = [
    "MEASURE", "Example", "average_precision", "check_language", "examples", "fingerprint", "judgments",
    "results_with_texts", "text_source", "validation_set", "validator",
]  # fmt: skip

#: What validation measures.
MEASURE = "AP@100"


@dataclass(frozen=True)
class Example:
    """A query with a relevant document and those that negatives are drawn from."""

    query: str
    positive: str
    negatives: tuple[str, ...]


def check_language(frame: pd.DataFrame, name: str, target: str | None) -> None:
    """Refuses documents found with words of another language than the table's, which would not be linked.

    Args:
        frame: The documents.
        name: What messages call it.
        target: The language that the table translates to; None: no words are linked.

    Raises:
        ValueError: If the queries were translated to another language.
    """
    specs = specs_of(frame["query_toks"]) if target is not None and "query_toks" in frame else []
    if others := [spec["lang"] for spec in specs if spec["lang"] != target]:
        raise ValueError(
            f"the queries of {name} were translated to {others[0]!r} (query_toks), but the re-ranker's table is for "
            f"documents in {target!r}"
        )


def results_with_texts(frame: pd.DataFrame, name: str, text_field: str, target: str | None = None) -> pd.DataFrame:
    """Returns a first stage's results with identifiers that are text.

    Raises:
        ValueError: If the argument of this name is no frame of results with texts, empty, or of another language.
    """
    check_columns(name, frame, ("qid", "query", "docno", text_field), "; texts come from dataset.text_loader()")
    if frame.empty:
        raise ValueError(f"{name} is empty: the first stage found nothing, or there are no topics")
    check_language(frame, name, target)
    return _with_text_identifiers(frame)


def judgments(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Returns judgments with identifiers that are text and labels that are whole numbers.

    Raises:
        ValueError: If the argument of this name is no frame of judgments.
    """
    check_columns(name, frame, ("qid", "docno", "label"))
    labels = pd.to_numeric(frame["label"], errors="coerce").astype("float64")
    wrong = ~(labels - labels.round() == 0)  # infinity and what is not a number, too
    if wrong.any():
        raise ValueError(f"{name}: a label must be a whole number, not {frame['label'][wrong].iloc[0]!r}")
    return _with_text_identifiers(frame).assign(label=labels.astype("int64"))


def _with_text_identifiers(frame: pd.DataFrame) -> pd.DataFrame:
    # As they are compared and as measures want them.
    return frame.assign(**{name: frame[name].astype(str) for name in ("qid", "docno")})


def text_source(source: Any, text_field: str) -> Callable[[pd.DataFrame], Any] | None:
    """Returns a function from rows of qid, query and docno to texts.

    Args:
        source: A dataset with a ``text_loader``, a transformer, a function from docnos to texts, or None.
        text_field: The column with the texts.

    Raises:
        ValueError: If the source is something else.
    """
    if hasattr(source, "text_loader"):
        source = source.text_loader()
    if isinstance(source, pt.Transformer):
        loader: Any = source
        return lambda rows: loader(rows)[text_field].tolist()
    if source is not None and not callable(source):
        raise ValueError(
            f"positives_text must be a dataset, a transformer or a function from docnos to texts, not {source!r}"
        )

    def load(rows: pd.DataFrame) -> Any:
        texts = source(rows["docno"].tolist())
        return list(texts) if isinstance(texts, Iterator) else texts

    return load if source is not None else None


def examples(
    results: pd.DataFrame,
    qrels: pd.DataFrame,
    text_field: str,
    depth: int,
    load: Callable[[pd.DataFrame], Any] | None = None,
) -> list[Example]:
    """Makes training examples of a first stage's results and judgments.

    Args:
        results: Columns qid, query, docno, ``text_field``, and rank or score if there is an order.
        qrels: Columns qid, docno, label; labels above 0 are relevant, what is not judged is not.
        text_field: The column with the documents' text.
        depth: Number of first documents of each query that negatives come from.
        load: Gives the text of relevant documents that the first stage missed, for rows of qid, query, docno. Without
            it they are left out, with a warning that counts them, as are queries without a document to learn against.

    Raises:
        ValueError: If no query has both a relevant document and another one.
    """
    relevant = qrels[qrels["label"] > 0][["qid", "docno"]].drop_duplicates()
    results = in_order(results).drop_duplicates(["qid", "docno"])
    # In an order of their own, so that the order of judgments does not matter.
    relevant = relevant[relevant["qid"].isin(results["qid"])].sort_values(["qid", "docno"], ignore_index=True)
    if relevant.empty:
        raise ValueError(
            f"nothing to learn from: none of the {results['qid'].nunique()} queries with results has a relevant "
            f"document (label > 0) in the {len(qrels)} judgments; are the query identifiers the same?"
        )
    queries = results.drop_duplicates("qid").set_index("qid")["query"]
    judged = relevant.merge(results[["qid", "docno", text_field]], on=["qid", "docno"], how="left", indicator=True)
    missed = judged["_merge"] == "left_only"
    if missed.any() and load is not None:
        rows = judged.loc[missed, ["qid", "docno"]].assign(query=judged.loc[missed, "qid"].map(queries))
        found = load(rows)
        if isinstance(found, (str, bytes, Mapping)) or not hasattr(found, "__len__") or len(found) != len(rows):
            raise ValueError(f"positives_text must give {len(rows)} texts, one for each docno, not {found!r:.80}")
        judged[text_field] = judged[text_field].astype(object)
        judged.loc[missed, text_field] = pd.Series(list(found), index=rows.index, dtype=object)
        missed &= ~judged[text_field].map(lambda text: bool(text_or_empty(text).strip()))
    if missed.any():
        hint = "have no text from positives_text" if load is not None else "pass positives_text to load them"
        warn(
            f"{missed.sum()} of {len(judged)} relevant documents are not among the first stage's results and are not "
            f"trained on; {hint}"
        )
    judged = judged[~missed]
    others = results.groupby("qid", sort=False).head(depth).merge(relevant.assign(_relevant=True), how="left")
    others = others[others["_relevant"].isna()]
    negatives = {
        qid: tuple(text_or_empty(x) for x in group) for qid, group in others.groupby("qid", sort=False)[text_field]
    }
    if lost := judged.loc[~judged["qid"].isin(negatives), "qid"].nunique():
        warn(
            f"{lost} of {judged['qid'].nunique()} queries are not trained on, since all their first {depth} candidates "
            "are relevant; a first stage that returns more gives them negatives"
        )
    out = [
        Example(text_or_empty(queries[qid]), text_or_empty(text), negatives[qid])
        for qid, text in zip(judged["qid"], judged[text_field], strict=True)
        if qid in negatives
    ]
    if not out:
        raise ValueError(
            "nothing to learn from: no query has both a relevant document whose text is known and one that is not "
            "relevant among the first stage's results"
        )
    return out


def validation_set(
    results: pd.DataFrame | None, qrels: pd.DataFrame | None, text_field: str, target: str | None,
    options: TrainingOptions,
) -> tuple[pd.DataFrame, pd.DataFrame] | None:  # fmt: skip
    """Returns the results and judgments that validation uses, of the arguments ``topics_or_res_va`` and ``qrels_va``.

    Without results there are none, with a warning if the frame is empty.

    Raises:
        ValueError: If judgments are missing, no document is relevant, or a frame is not what it should be.
    """
    if results is None or options.validation_queries == 0:
        return None
    if results.empty:
        warn(f"there are no results for validation queries: training runs for all {options.epochs} epochs")
        return None
    if qrels is None:
        raise ValueError("qrels_va is missing: validation results need judgments")
    results = results_with_texts(results, "topics_or_res_va", text_field, target)
    qids = np.unique(results["qid"])
    if options.validation_queries is not None and options.validation_queries < len(qids):
        qids = np.random.default_rng(options.seed).choice(qids, options.validation_queries, replace=False)
    results = in_order(results[results["qid"].isin(qids)]).groupby("qid", sort=False).head(options.validation_depth)
    qrels = judgments(qrels, "qrels_va")
    qrels = qrels[qrels["qid"].isin(qids)]
    if not (qrels["label"] > 0).any():
        raise ValueError("no validation query has a relevant document (label > 0) in qrels_va")
    return results, qrels


def validator(
    valid: tuple[pd.DataFrame, pd.DataFrame] | None, text_field: str, scorer: Callable[[Any], Callable[..., Any]]
) -> tuple[Callable[[Any], float] | None, list[pd.DataFrame]]:
    """Returns what measures a model on validation queries, and the frames that decide what it measures.

    Args:
        valid: What :func:`validation_set` returned.
        text_field: The column with the documents' text.
        scorer: Gives what scores queries and documents with a model.
    """
    if valid is None:
        return None, []
    ranked, relevant = valid
    texts = texts_of(ranked, "query"), texts_of(ranked, text_field)

    def validate(model: Any) -> float:
        return average_precision(ranked.assign(score=scorer(model)(*texts)), relevant)

    return validate, [ranked.rename(columns={text_field: "text"}), relevant]


def in_order(results: pd.DataFrame) -> pd.DataFrame:
    """Returns results in the order of their ranks or scores, if they have one."""
    if "rank" in results:
        return results.sort_values(["rank"], kind="stable")
    return results.sort_values(["score"], ascending=False, kind="stable") if "score" in results else results


def text_or_empty(value: object) -> str:
    """Returns a text as it is; what is no text, such as NaN, is empty."""
    return value if isinstance(value, str) else ""


def average_precision(frame: pd.DataFrame, qrels: pd.DataFrame) -> float:
    """Returns AP@100 of a run over the queries of the judgments."""
    measure = ir_measures.parse_measure(MEASURE)
    run = frame.rename(columns={"qid": "query_id", "docno": "doc_id"})[["query_id", "doc_id", "score"]]
    judged = qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    values = [metric.value for metric in ir_measures.iter_calc([measure], judged, run)]
    return float(np.mean(values)) if values else 0.0


def fingerprint(made: Sequence[Example], *frames: pd.DataFrame) -> str:
    """Returns a fingerprint of what is trained on, and of the content of frames."""
    digest = hashlib.sha256()
    for example in made:
        for text in (example.query, example.positive, *example.negatives):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(b"\0")
    for frame in frames:
        for name in sorted(set(frame) & {"qid", "query", "docno", "text", "label", "rank", "score"}):
            digest.update(name.encode())
            digest.update(pd.util.hash_pandas_object(frame[name], index=False).to_numpy().tobytes())
    return digest.hexdigest()[:16]
