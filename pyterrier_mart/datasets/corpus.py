"""Queries and documents in several languages, and which documents answer which queries."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd

from pyterrier_mart.checks import check_choice
from pyterrier_mart.datasets import sts17, xquad_r
from pyterrier_mart.datasets.base import MartDataset, choose_language
from pyterrier_mart.datasets.columns import (
    among,
    checked_columns,
    distinct,
    fingerprint_of,
    known,
    listed,
    refuse,
    select_columns,
)
from pyterrier_mart.text import language_of

__all__ = ["XQUAD_R_LANGS", "EmptyLanguageError", "MultilingualCorpus", "normalised"]

#: The languages of the paper's experiments on XQuAD-R (LAReQA).
XQUAD_R_LANGS = ("ar", "de", "el", "hi", "ru", "th", "tr")

_TOPICS = ["qid", "query", "query_lang", "qgroup", "group"]
_DOCS = ["docno", "text", "doc_lang", "dgroup", "group"]
_QRELS = ["qid", "docno", "label"]


class EmptyLanguageError(ValueError):
    """There are no queries or documents in a language."""


def normalised(text: str) -> str:
    """Returns the form in which texts are compared: NFKC, case-folded, with single spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


@dataclass(frozen=True, eq=False)
class MultilingualCorpus:
    """Queries and documents in several languages, and which documents answer which queries.

    Make one with :meth:`xquad_r`, :meth:`from_dataset` or :meth:`from_frames`, which check what they are given. The
    frames are shared between corpora and must not be changed.

    Attributes:
        topics: ``qid``, ``query``, ``query_lang``, ``qgroup`` (the same query in all languages), ``group`` (what
            must stay in one split, such as an article). Each query has a relevant document.
        docs: ``docno``, ``text``, ``doc_lang``, ``dgroup`` (the same answer in all languages), ``group``.
        qrels: ``qid``, ``docno``, ``label`` > 0.
        name: What it is called in messages.
    """

    topics: pd.DataFrame
    docs: pd.DataFrame
    qrels: pd.DataFrame
    name: str = "corpus"

    @classmethod
    def xquad_r(
        cls,
        langs: Sequence[str] = XQUAD_R_LANGS,
        doc_text: Literal["sentence", "sentence+context"] = "sentence",
    ) -> MultilingualCorpus:
        """Returns XQuAD-R as the answer retrieval task LAReQA: each sentence of each paragraph is a document.

        The sentence with a query's answer is relevant in every language. A query's ``qid`` is its language, ``-``, and
        the id that it has in all languages, which is its ``qgroup``. ``group`` is the title of the article. Answer
        sentences that have a query in common share a ``dgroup``, also when that is so by way of a third one: sentences
        were split differently in each language.

        Args:
            langs: The languages, out of :data:`pyterrier_mart.datasets.xquad_r.LANGUAGES`.
            doc_text: Whether a document is the sentence, or the sentence followed by its paragraph, which is what
                the paper encodes.

        Raises:
            ValueError: If XQuAD-R does not have a language, or one is named twice.
        """
        check_choice("doc_text", doc_text, ("sentence", "sentence+context"))
        codes = distinct("langs", [choose_language(lang, xquad_r.LANGUAGES) for lang in langs])
        collections = [xquad_r.load(code) for code in codes]
        questions = collections[0].questions  # the same ones in the same order in every language
        answers = [
            [f"{code}-{question.paragraph:03d}-{question.sentence:02d}" for question in collection.questions]
            for code, collection in zip(codes, collections, strict=True)
        ]
        first: dict[str, int] = {}
        links = [(first.setdefault(docno, i), i) for of_lang in answers for i, docno in enumerate(of_lang)]
        dgroups = [questions[i].id for i in _components(len(questions), links)]

        topics: list[tuple[Any, ...]] = []
        docs: list[tuple[Any, ...]] = []
        qrels: list[tuple[Any, ...]] = []
        for code, collection, of_lang in zip(codes, collections, answers, strict=True):
            dgroup_of = dict(zip(of_lang, dgroups, strict=True))
            for paragraph in collection.paragraphs:
                for i, sentence in enumerate(paragraph.sentences):
                    docno = f"{code}-{paragraph.index:03d}-{i:02d}"
                    text = sentence if doc_text == "sentence" else f"{sentence} {paragraph.context}"
                    docs.append((docno, text, code, dgroup_of.get(docno, docno), paragraph.title))
            for i, question in enumerate(collection.questions):
                qid = f"{code}-{question.id}"
                topics.append((qid, question.text, code, question.id, collection.articles[question.article].title))
                qrels.extend((qid, relevant[i], 1) for relevant in answers)
        return cls(
            pd.DataFrame(topics, columns=_TOPICS),
            pd.DataFrame(docs, columns=_DOCS),
            pd.DataFrame(qrels, columns=_QRELS),
            f"xquad-r/{','.join(codes)}",
        )

    @classmethod
    def from_frames(
        cls, topics: pd.DataFrame, docs: pd.DataFrame, qrels: pd.DataFrame, name: str = "corpus"
    ) -> MultilingualCorpus:
        """Returns a corpus of the user's own. The frames are copied; columns that are not named here are left out.

        Judgments with a label of 0 or less are left out, and then queries without a relevant document.

        Args:
            topics: ``qid``, ``query``, ``query_lang``; ``qgroup`` if the same query is there in several languages
                (by default each stands alone); ``group`` if known.
            docs: ``docno``, ``text``, ``doc_lang``; ``dgroup`` if the same document is there in several languages;
                ``group`` if known.
            qrels: ``qid``, ``docno``, ``label``. No topics and no judgments make a corpus of documents.
            name: What to call it in messages.

        ``group`` is what must stay in one split. Where only one frame has it, it is carried over along the judgments;
        where neither has, queries and documents are one group if judgments, ``qgroup`` or ``dgroup`` link them.

        Raises:
            ValueError: If a column or value is missing, a text is not a string, an id is there twice, a language is
                not a code of letters, a judgment is about an unknown query or document, or groups cannot be
                carried over because a query's documents are in several. The message names the culprits.
        """
        topics = checked_columns("topics", topics, _TOPICS[:3], _TOPICS[3:])
        docs = checked_columns("docs", docs, _DOCS[:3], _DOCS[3:])
        qrels = _judgments(qrels, topics["qid"], docs["docno"])
        topics = topics[among(topics["qid"], qrels["qid"])].reset_index(drop=True)
        topics["qgroup"] = topics.get("qgroup", topics["qid"])
        docs["dgroup"] = docs.get("dgroup", docs["docno"])
        _complete_groups(topics, docs, qrels)
        return cls(topics[_TOPICS], docs[_DOCS], qrels, name)

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        query_lang: str | None = None,
        doc_lang: str | None = None,
        fields: Sequence[str] = ("text",),
    ) -> MultilingualCorpus:
        """Returns the topics, documents and judgments of a PyTerrier dataset, such as ``mart:xquad-r/de-en``.

        Args:
            dataset: A dataset with topics, judgments and a corpus.
            query_lang: Language of the topics; by default what the dataset says.
            doc_lang: Language of the documents; by default what the dataset says.
            fields: The fields that make up the text of a document, joined by a space.

        Raises:
            ValueError: If a language is not given and not known, or :meth:`from_frames` refuses what the dataset has.
        """
        if isinstance(dataset, sts17.STS17):
            raise ValueError(f"dataset must have judgments, not graded pairs as {dataset!r}; use PairCorpus.sts17")
        query_lang = query_lang or language_of(getattr(dataset, "get_topics_lang", lambda: None)())
        doc_lang = doc_lang or language_of(getattr(dataset, "get_corpus_lang", lambda: None)())
        if query_lang is None or doc_lang is None:
            name = "doc_lang" if query_lang else "query_lang"
            raise ValueError(f"{name}: {dataset!r} does not say its language; give it, such as {name}='de'")
        topics = dataset.get_topics().assign(query_lang=query_lang)
        rows = ((doc["docno"], " ".join(doc[f] for f in fields)) for doc in dataset.get_corpus_iter(verbose=False))
        docs = pd.DataFrame(rows, columns=["docno", "text"]).assign(doc_lang=doc_lang)
        if isinstance(dataset, xquad_r.XQuADR):
            titles = [article.title for article in xquad_r.load(dataset.languages[0]).articles]
            article_of = [p.article for p in xquad_r.load(dataset.languages[1]).paragraphs]
            topics["qgroup"] = topics["qid"].str.partition("-")[2]
            topics["group"] = topics["qid"].map(dataset.articles()).map(titles.__getitem__)
            docs["group"] = [titles[article_of[int(docno.split("-")[1])]] for docno in docs["docno"]]
        name = dataset.name if isinstance(dataset, MartDataset) else str(dataset)
        return cls.from_frames(topics, docs, dataset.get_qrels(), name)

    @cached_property
    def queries(self) -> Mapping[str, str]:
        """The text of each query by qid, in order."""
        return MappingProxyType(dict(zip(self.topics["qid"].tolist(), self.topics["query"].tolist(), strict=True)))

    @cached_property
    def documents(self) -> Mapping[str, str]:
        """The text of each document by docno, in order."""
        return MappingProxyType(dict(zip(self.docs["docno"].tolist(), self.docs["text"].tolist(), strict=True)))

    @cached_property
    def relevant(self) -> Mapping[str, frozenset[str]]:
        """The docnos that are relevant to each query, in all languages."""
        found: dict[str, list[str]] = {qid: [] for qid in self.topics["qid"]}
        for qid, docno in zip(self.qrels["qid"].tolist(), self.qrels["docno"].tolist(), strict=True):
            found[qid].append(docno)
        return MappingProxyType({qid: frozenset(docnos) for qid, docnos in found.items()})

    @cached_property
    def query_langs(self) -> tuple[str, ...]:
        """The languages of the queries, sorted."""
        return tuple(sorted(self.topics["query_lang"].unique()))

    @cached_property
    def doc_langs(self) -> tuple[str, ...]:
        """The languages of the documents, sorted."""
        return tuple(sorted(self.docs["doc_lang"].unique()))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups in the order in which queries have them, then those of documents only."""
        return tuple(dict.fromkeys([*self.topics["group"].unique(), *self.docs["group"].unique()]))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all rows in their order, in hexadecimal digits; the name does not count."""
        return fingerprint_of(self.topics[_TOPICS], self.docs[_DOCS], self.qrels[_QRELS])

    def restrict(
        self, query_langs: Iterable[str] | None = None, doc_langs: Iterable[str] | None = None
    ) -> MultilingualCorpus:
        """Returns the corpus with queries and documents in some languages only.

        Queries that have no relevant document left are left out.

        Args:
            query_langs: Languages of the queries; ``None`` for all.
            doc_langs: Languages of the documents; ``None`` for all.

        Raises:
            EmptyLanguageError: If there are no queries or documents in one of them.
        """
        queries = self.query_langs if query_langs is None else tuple(query_langs)
        documents = self.doc_langs if doc_langs is None else tuple(doc_langs)
        self.check_languages(queries, documents)
        name = f"{self.name}, queries {','.join(queries)}, documents {','.join(documents)}"
        topics = self.topics[among(self.topics["query_lang"], queries)]
        return self._cut(topics, self.docs[among(self.docs["doc_lang"], documents)], name)

    def check_languages(self, query_langs: Iterable[str], doc_langs: Iterable[str]) -> None:
        """Checks that there are queries and documents in some languages.

        Raises:
            EmptyLanguageError: If there are none in one of them.
        """
        lacking = [f"queries in {lang}" for lang in dict.fromkeys(query_langs) if lang not in self.query_langs]
        lacking += [f"documents in {lang}" for lang in dict.fromkeys(doc_langs) if lang not in self.doc_langs]
        if lacking:
            raise EmptyLanguageError(
                f"{self.name} has no {', no '.join(lacking)}; it has queries in "
                f"{', '.join(self.query_langs) or 'no language'} and documents in {', '.join(self.doc_langs)}"
            )

    def subset(self, groups: Iterable[str], name: str | None = None) -> MultilingualCorpus:
        """Returns the queries and documents of some groups, in the order they have here.

        Queries that have no relevant document left are left out.

        Args:
            groups: The groups, such as articles.
            name: What to call it; by default as this corpus.

        Raises:
            ValueError: If there is no such group.
        """
        wanted = known("groups", groups, self.groups, self.name)
        topics = self.topics[among(self.topics["group"], wanted)]
        return self._cut(topics, self.docs[among(self.docs["group"], wanted)], self.name if name is None else name)

    def _cut(self, topics: pd.DataFrame, docs: pd.DataFrame, name: str) -> MultilingualCorpus:
        """Makes the judgments fit, and drops queries without any."""
        qrels = self.qrels[among(self.qrels["qid"], topics["qid"]) & among(self.qrels["docno"], docs["docno"])]
        topics = topics[among(topics["qid"], qrels["qid"])]
        topics, docs, qrels = (frame.reset_index(drop=True) for frame in (topics, docs, qrels))
        return type(self)(topics, docs, qrels, name)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name}: {self.topics['qgroup'].nunique()} queries "
            f"({','.join(self.query_langs)}), {len(self.docs)} documents ({','.join(self.doc_langs)}), "
            f"{len(self.groups)} groups>"
        )


def _components(size: int, links: Sequence[tuple[int, int]]) -> list[int]:
    """Returns for each of some numbers the smallest one that it is linked with, directly or by way of others."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    rows, columns = np.array(links, dtype=np.int64).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    _, first = np.unique(labels, return_index=True)
    return [int(i) for i in first[labels]]


def _complete_groups(topics: pd.DataFrame, docs: pd.DataFrame, qrels: pd.DataFrame) -> None:
    """Adds the column ``group`` where it is missing."""
    if "group" in topics and "group" in docs:
        return
    if "group" in docs:
        topics["group"] = topics["qid"].map(_carried(qrels, "qid", "docno", docs))
    elif "group" in topics:
        docs["group"] = docs["docno"].map(_carried(qrels, "docno", "qid", topics)).fillna(docs["docno"])
    else:
        # Queries come first, so that a group is called as its first query, if it has one.
        names = [*topics["qid"], *docs["docno"]]
        place = {qid: i for i, qid in enumerate(topics["qid"])}
        place_of_doc = {docno: i for i, docno in enumerate(docs["docno"], len(topics))}
        links = [(place[q], place_of_doc[d]) for q, d in zip(qrels["qid"], qrels["docno"], strict=True)]
        for column, start in ((topics["qgroup"], 0), (docs["dgroup"], len(topics))):
            first: dict[str, int] = {}
            links += [(first.setdefault(value, i), i) for i, value in enumerate(column, start)]
        found = pd.Series([names[i] for i in _components(len(names), links)], dtype=docs["docno"].dtype)
        topics["group"] = found[: len(topics)].set_axis(topics.index)
        docs["group"] = found[len(topics) :].set_axis(docs.index)


def _carried(qrels: pd.DataFrame, column: str, other: str, known: pd.DataFrame) -> pd.Series:
    """Returns the group of each id that is judged, from what it is judged with."""
    group_of = qrels[other].map(known.set_index(other)["group"])
    linked = pd.DataFrame({"id": qrels[column], "group": group_of}).drop_duplicates()
    if (split := linked["id"].duplicated(keep=False)).any():
        culprit = linked.loc[split, "id"].iloc[0]
        groups = listed(linked.loc[linked["id"] == culprit, "group"])
        raise ValueError(
            f"group: {column} {culprit} is judged with a {other} of several groups ({groups}); give group in both "
            "topics and docs, or in neither"
        )
    return linked.set_index("id")["group"]


def _judgments(qrels: pd.DataFrame, qids: pd.Series, docnos: pd.Series) -> pd.DataFrame:
    """Checks and copies judgments, without those that are not relevant."""
    qrels = select_columns("qrels", qrels, _QRELS).astype({"qid": str, "docno": str})
    labels = pd.to_numeric(qrels["label"], errors="coerce")
    refuse(qrels.loc[labels.isna(), "qid"], "qrels: label must be a number; it is not for qid")
    qrels = qrels.assign(label=labels)[labels > 0].reset_index(drop=True)
    refuse(qrels.loc[~among(qrels["qid"], qids), "qid"].drop_duplicates(), "qrels: not in topics: qid")
    refuse(qrels.loc[~among(qrels["docno"], docnos), "docno"].drop_duplicates(), "qrels: not in docs: docno")
    twice = qrels[qrels.duplicated(["qid", "docno"])]
    refuse(twice["qid"] + " " + twice["docno"], "qrels: judged twice: qid and docno")
    return qrels
