"""What is learned from: a corpus of the frames, judgments and datasets that fit and adapt take, and support sets."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.episodes import Row, TripletEpisode
from pyterrier_mart.meta.negatives import NegativeMiner
from pyterrier_mart.retrieval.documents import documents_of
from pyterrier_mart.text import language_of

__all__ = ["Languages", "corpus_of", "episodes", "few_questions"]


class Languages(NamedTuple):
    """The languages of rows that do not say theirs, if they are known.

    Attributes:
        query: That of questions.
        doc: That of documents.
    """

    query: str | None = None
    doc: str | None = None


def corpus_of(
    frame: pd.DataFrame,
    qrels: pd.DataFrame,
    source: Any,
    languages: Languages,
    text_field: str = "text",
    suffix: str = "",
) -> MultilingualCorpus:
    """Makes a corpus of questions, judgments, and documents from where they are to be had.

    Args:
        frame: Questions, and without ``source`` documents; see :meth:`MetaSBERTRetriever.fit`.
        qrels: Judgments.
        source: Documents: a corpus, a dataset or its name, or ``None``.
        languages: Those of rows that do not say theirs.
        text_field: The column with the documents' text.
        suffix: ``"_tr"`` and ``"_va"`` for training and validation: how messages name the frames.

    Raises:
        ValueError: If columns, languages or documents are missing, or no question has a relevant document.
    """
    name, judged = f"topics_or_res{suffix}" if suffix else "support_topics", f"qrels{suffix}"
    _check_columns(frame, name, ("qid", "query"))
    _check_columns(qrels, judged, ("qid", "docno", "label"))
    if frame.empty:
        raise ValueError(f"{name} is empty: there are no questions, or the first stage found nothing")
    source = pt.get_dataset(source) if isinstance(source, str) else source
    known = source.topics if isinstance(source, MultilingualCorpus) else None
    topics = frame.assign(qid=frame["qid"].astype(str)).drop_duplicates("qid")
    lang = languages.query or _said(source, "get_topics_lang")
    if known is not None:
        rows = known.set_index("qid").reindex(topics["qid"])
        for column in ("query_lang", "qgroup", "group"):
            if column not in topics and rows[column].notna().all():
                topics[column] = rows[column].to_numpy()
    topics = _with_language(topics, "query_lang", lang, name)
    docs = _candidates(frame, source, languages, text_field, name)
    if source is None and "group" in topics:  # of documents nothing is known
        topics = topics.drop(columns="group")
    qrels = qrels.assign(qid=qrels["qid"].astype(str), docno=qrels["docno"].astype(str))
    own = qrels[qrels["qid"].isin(set(topics["qid"]))]
    there = own["docno"].isin(set(docs["docno"]))
    if lost := int((~there & (own["label"] > 0)).sum()):
        warnings.warn(
            f"{lost} of {int((own['label'] > 0).sum())} relevant documents in {judged} are not among the documents "
            "and are left out" + ("; corpus= can name all documents" if source is None else ""),
            stacklevel=4,
        )
    corpus = MultilingualCorpus.from_frames(topics, docs, own[there].drop_duplicates(["qid", "docno"]), name)
    if corpus.topics.empty:
        raise ValueError(f"no question of {name} has a relevant document (label > 0) in {judged}")
    return corpus


def few_questions(corpus: MultilingualCorpus, most: int | None, seed: int) -> MultilingualCorpus:
    """Returns a corpus with fewer questions and all of its documents.

    Args:
        corpus: The corpus.
        most: Questions of each language at most; ``None`` for all.
        seed: What decides which. Those of a smaller number are among those of a greater one.
    """
    if most is None:
        return corpus
    topics = corpus.topics
    shuffled = topics.iloc[np.random.default_rng(seed).permutation(len(topics))]
    chosen = topics[topics["qid"].isin(shuffled.groupby("query_lang").head(most)["qid"])].reset_index(drop=True)
    qrels = corpus.qrels[corpus.qrels["qid"].isin(chosen["qid"])].reset_index(drop=True)
    return MultilingualCorpus(chosen, corpus.docs, qrels, corpus.name)


def episodes(corpus: MultilingualCorpus, config: MetaConfig, encoder: TextEncoder) -> list[TripletEpisode]:
    """Returns support sets of all questions: a row for each relevant document, ``config.k_shot`` questions a set.

    Args:
        corpus: Questions, judgments and documents.
        config: How many questions, and which negatives.
        encoder: What mines the negatives.
    """
    miner = NegativeMiner(corpus, config, encoder if config.negatives != "random" else None)
    rng = np.random.default_rng(config.seed)
    qids = list(corpus.queries)
    made = []
    for start in range(0, len(qids), config.k_shot):
        part = qids[start : start + config.k_shot]
        rows = [
            Row(qid, docno, miner.sample(qid, docno, corpus.doc_langs, config.n_neg, rng))
            for qid in part
            for docno in sorted(corpus.relevant[qid])
        ]
        relevant = {qid: miner.answers(qid) for qid in part}
        made.append(TripletEpisode.build(rows, corpus.queries, corpus.documents, relevant))
    return made


def _candidates(frame: pd.DataFrame, source: Any, languages: Languages, text_field: str, name: str) -> pd.DataFrame:
    if isinstance(source, MultilingualCorpus):
        return source.docs
    if source is not None:
        rows, _ = documents_of(source)
        docs = pd.DataFrame(list(rows))
        _check_columns(docs, "corpus", ("docno", text_field))
        name = "corpus"
    elif {"docno", text_field} <= set(frame.columns):
        docs = frame
    else:
        raise ValueError(
            f"there are no documents to learn from: {name} lacks docno and {text_field!r}, it has "
            f"{list(frame)}; pass corpus=, or load texts with dataset.text_loader() before this"
        )
    docs = docs.assign(docno=docs["docno"].astype(str), text=docs[text_field]).drop_duplicates("docno")
    docs = docs[["docno", "text", *(column for column in ("doc_lang", "dgroup") if column in docs)]]
    return _with_language(docs, "doc_lang", languages.doc or _said(source, "get_corpus_lang"), name)


def _check_columns(frame: object, name: str, columns: tuple[str, ...]) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"{name} must be a data frame, not {frame!r:.80}")
    if missing := [column for column in columns if column not in frame]:
        raise ValueError(f"{name} lacks the column {', '.join(map(repr, missing))}, it has {list(frame)}")


def _said(dataset: Any, method: str) -> str | None:
    """The language that a dataset says its topics or documents are in."""
    return language_of(getattr(dataset, method, lambda: None)())


def _with_language(frame: pd.DataFrame, column: str, default: str | None, name: str) -> pd.DataFrame:
    values = frame[column].tolist() if column in frame else [None] * len(frame)
    langs = [language_of(value) or language_of(default) for value in values]
    if None in langs:
        raise ValueError(
            f"{name}: the language of {langs.count(None)} of {len(langs)} rows is not known; add the column {column}, "
            f"or pass {column}="
        )
    return frame.assign(**{column: langs})
