"""Training data: a corpus of the frames, judgments and datasets that fit and adapt take, and support sets of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.datasets.columns import select_columns
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.frames import warn
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.negatives import NegativeMiner
from pyterrier_mart.meta.tasks import Row, TripletSet
from pyterrier_mart.retrieval.documents import documents_of
from pyterrier_mart.text import language_of

__all__ = ["corpus_of", "few_queries", "support_sets"]


def corpus_of(
    frame: pd.DataFrame,
    qrels: pd.DataFrame,
    source: Any,
    query_lang: str | None = None,
    doc_lang: str | None = None,
    text_field: str = "text",
    suffix: str = "",
) -> MultilingualCorpus:
    """Makes a corpus of queries, judgments, and documents from wherever they are available.

    Args:
        frame: Queries, and without ``source`` documents; see :meth:`MetaSBERTRetriever.fit`.
        qrels: Judgments.
        source: Documents: a corpus, a dataset or its name, or ``None``.
        query_lang: Language of queries that do not say theirs.
        doc_lang: Language of documents that do not say theirs.
        text_field: The column with the documents' text.
        suffix: ``"_tr"`` and ``"_va"`` for training and validation: how messages name the frames.

    Raises:
        ValueError: If columns, languages or documents are missing, or no query has a relevant document.
    """
    name, judged = f"topics_or_res{suffix}" if suffix else "support_topics", f"qrels{suffix}"
    select_columns(name, frame, ["qid", "query"])
    select_columns(judged, qrels, ["qid", "docno", "label"])
    if frame.empty:
        raise ValueError(f"{name} is empty: there are no queries, or the first stage found nothing")
    source = pt.get_dataset(source) if isinstance(source, str) else source
    topics = frame.assign(qid=frame["qid"].astype(str)).drop_duplicates("qid")
    if isinstance(source, MultilingualCorpus):
        known = source.topics.set_index("qid").reindex(topics["qid"])
        for column in ("query_lang", "qgroup", "group"):
            if column not in topics and known[column].notna().all():
                topics[column] = known[column].to_numpy()
    topics = _with_language(topics, "query_lang", query_lang, source, name)
    docs = _documents(frame, source, text_field, name)
    docs = _with_language(docs, "doc_lang", doc_lang, source, name if source is None else "corpus")
    if source is None and "group" in topics:  # of documents nothing is known
        topics = topics.drop(columns="group")
    qrels = qrels.assign(qid=qrels["qid"].astype(str), docno=qrels["docno"].astype(str))
    own = qrels[qrels["qid"].isin(set(topics["qid"]))]
    there = own["docno"].isin(set(docs["docno"]))
    if lost := int((~there & (own["label"] > 0)).sum()):
        warn(
            f"{lost} of {int((own['label'] > 0).sum())} relevant documents in {judged} are not among the documents "
            "and are left out" + ("; corpus= can name all documents" if source is None else "")
        )
    corpus = MultilingualCorpus.from_frames(topics, docs, own[there].drop_duplicates(["qid", "docno"]), name)
    if corpus.topics.empty:
        raise ValueError(f"no query of {name} has a relevant document (label > 0) in {judged}")
    return corpus


def few_queries(corpus: MultilingualCorpus, most: int | None, seed: int) -> MultilingualCorpus:
    """Returns a corpus with fewer queries and all of its documents.

    Args:
        corpus: The corpus.
        most: Maximum number of queries of each language; ``None`` for all.
        seed: What decides which. Those of a smaller number are among those of a greater one.
    """
    if most is None:
        return corpus
    topics = corpus.topics
    shuffled = topics.iloc[np.random.default_rng(seed).permutation(len(topics))]
    chosen = topics[topics["qid"].isin(shuffled.groupby("query_lang").head(most)["qid"])].reset_index(drop=True)
    qrels = corpus.qrels[corpus.qrels["qid"].isin(chosen["qid"])].reset_index(drop=True)
    return MultilingualCorpus(chosen, corpus.docs, qrels, corpus.name)


def support_sets(corpus: MultilingualCorpus, config: MetaConfig, encoder: TextEncoder) -> list[TripletSet]:
    """Returns support sets of all queries: a row for each relevant document, ``config.k_shot`` queries a set.

    Args:
        corpus: Queries, judgments and documents.
        config: How many queries, and which negatives.
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
        made.append(TripletSet.build(rows, corpus.queries, corpus.documents, relevant))
    return made


def _documents(frame: pd.DataFrame, source: Any, text_field: str, name: str) -> pd.DataFrame:
    if isinstance(source, MultilingualCorpus):
        return source.docs
    if source is not None:
        docs = pd.DataFrame(list(documents_of(source)[0]))
        select_columns("corpus", docs, ["docno", text_field])
    elif {"docno", text_field} <= set(frame.columns):
        docs = frame
    else:
        raise ValueError(
            f"there are no documents to learn from: {name} lacks docno and {text_field!r}, it has {list(frame)}; pass "
            "corpus=, or load texts with dataset.text_loader() before this"
        )
    docs = docs.assign(docno=docs["docno"].astype(str), text=docs[text_field]).drop_duplicates("docno")
    return docs[["docno", "text", *(column for column in ("doc_lang", "dgroup") if column in docs)]]


def _with_language(frame: pd.DataFrame, column: str, default: str | None, source: Any, name: str) -> pd.DataFrame:
    """Adds the language of rows that do not say theirs: the default, or what the dataset says."""
    said = getattr(source, "get_topics_lang" if column == "query_lang" else "get_corpus_lang", lambda: None)()
    default = language_of(default) or language_of(said)
    langs = [language_of(value) or default for value in frame.get(column, [None] * len(frame))]
    if None in langs:
        raise ValueError(
            f"{name}: the language of {langs.count(None)} of {len(langs)} rows is not known; add the column {column}, "
            f"or pass {column}="
        )
    return frame.assign(**{column: langs})
