"""Questions, candidates and judgments in several languages, and graded sentence pairs: what meta-tasks are made of."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyterrier_mart.datasets import sts17, xquad_r
from pyterrier_mart.datasets.base import MartDataset, choose_language
from pyterrier_mart.meta.arrangements import TransferPath, transfer_paths
from pyterrier_mart.meta.errors import EmptyLanguageError

__all__ = ["STS_TRACKS", "XQUAD_R_LANGS", "MultilingualCorpus", "PairCorpus", "normalised"]

#: The languages of the paper's experiments on XQuAD-R (LAReQA).
XQUAD_R_LANGS = ("ar", "de", "el", "hi", "ru", "th", "tr")
#: The tracks of STS17 without ``es-en-wmt``, which has most sentences several times.
STS_TRACKS = tuple(track for track in sts17.TRACKS if track != "es-en-wmt")

_TOPICS = ["qid", "query", "query_lang", "qgroup", "group"]
_DOCS = ["docno", "text", "doc_lang", "dgroup", "group"]
_QRELS = ["qid", "docno", "label"]
_PAIRS = ["pair_id", "sentence1", "sentence2", "score", "lang1", "lang2", "track", "row"]
_NAMED = 5  # culprits that an error names


def normalised(text: str) -> str:
    """Returns the form in which texts are compared: NFKC, case-folded, with single spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


@dataclass(frozen=True, eq=False)
class MultilingualCorpus:
    """Questions and candidates in several languages, and which candidates answer which questions.

    Make one with :meth:`xquad_r`, :meth:`from_dataset` or :meth:`from_frames`, which check what they are given. The
    frames are shared between corpora and must not be changed.

    Attributes:
        topics: ``qid``, ``query``, ``query_lang``, ``qgroup`` (the same question in all languages), ``group`` (what
            must stay in one split, such as an article). Each question has a relevant candidate.
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
        """Returns XQuAD-R as the answer retrieval task LAReQA: each sentence of each paragraph is a candidate.

        A question is relevant to the sentence with its answer in every language. A question's ``qid`` is its language,
        ``-``, and the id that it has in all languages, which is its ``qgroup``. ``group`` is the title of the article.
        Answer sentences that have a question in common share a ``dgroup``, also when that is so by way of a third one:
        sentences were split differently in each language.

        Args:
            langs: The languages, out of :data:`pyterrier_mart.datasets.xquad_r.LANGUAGES`.
            doc_text: Whether a candidate is the sentence, or the sentence followed by its paragraph, which is what
                the paper encodes.

        Raises:
            ValueError: If XQuAD-R does not have a language, one is named twice, or there is none.
        """
        if doc_text not in ("sentence", "sentence+context"):
            raise ValueError(f"doc_text must be 'sentence' or 'sentence+context', not {doc_text!r}")
        langs = _names("langs", langs)
        codes = _distinct("langs", [choose_language(lang, xquad_r.LANGUAGES) for lang in langs])
        collections = [xquad_r.load(code) for code in codes]
        questions = collections[0].questions  # the same ones in the same order in every language

        answers = [[(q.paragraph, q.sentence) for q in collection.questions] for collection in collections]
        links = _Links(len(questions))
        for places in answers:
            first: dict[tuple[int, int], int] = {}
            for i, place in enumerate(places):
                links.join(first.setdefault(place, i), i)
        dgroups = [questions[links.find(i)].id for i in range(len(questions))]

        topics: dict[str, list[str]] = {column: [] for column in _TOPICS}
        docs: dict[str, list[str]] = {column: [] for column in _DOCS}
        qids: list[str] = []
        docnos: list[str] = []
        names = [[f"{code}-{p:03d}-{s:02d}" for p, s in places] for code, places in zip(codes, answers, strict=True)]
        for code, collection, answering in zip(codes, collections, names, strict=True):
            dgroup_of = dict(zip(answering, dgroups, strict=True))
            for paragraph in collection.paragraphs:
                for i, sentence in enumerate(paragraph.sentences):
                    docno = f"{code}-{paragraph.index:03d}-{i:02d}"
                    docs["docno"].append(docno)
                    docs["text"].append(sentence if doc_text == "sentence" else f"{sentence} {paragraph.context}")
                    docs["doc_lang"].append(code)
                    docs["dgroup"].append(dgroup_of.get(docno, docno))
                    docs["group"].append(paragraph.title)
            for i, question in enumerate(collection.questions):
                qid = f"{code}-{question.id}"
                topics["qid"].append(qid)
                topics["query"].append(question.text)
                topics["query_lang"].append(code)
                topics["qgroup"].append(question.id)
                topics["group"].append(collection.articles[question.article].title)
                qids.extend([qid] * len(codes))
                docnos.extend(of_lang[i] for of_lang in names)
        qrels = pd.DataFrame({"qid": qids, "docno": docnos, "label": 1})
        return cls(pd.DataFrame(topics), pd.DataFrame(docs), qrels, f"xquad-r/{','.join(codes)}")

    @classmethod
    def from_frames(
        cls, topics: pd.DataFrame, docs: pd.DataFrame, qrels: pd.DataFrame, name: str = "corpus"
    ) -> MultilingualCorpus:
        """Returns a corpus of the user's own. The frames are copied; columns that are not named here are left out.

        Judgments with a label of 0 or less are left out, and then questions without a relevant document.

        Args:
            topics: ``qid``, ``query``, ``query_lang``; ``qgroup`` if the same question is there in several languages
                (by default each stands alone); ``group`` if known.
            docs: ``docno``, ``text``, ``doc_lang``; ``dgroup`` if the same document is there in several languages;
                ``group`` if known.
            qrels: ``qid``, ``docno``, ``label``. No topics and no judgments make a corpus of candidates.
            name: What to call it in messages.

        ``group`` is what must stay in one split. Where only one frame has it, it is carried over along the judgments;
        where neither has, questions and documents are one group if judgments, ``qgroup`` or ``dgroup`` link them.

        Raises:
            TypeError: If something that should be a frame is not one.
            ValueError: If a column or value is missing, a text is not a string, an id is there twice, a language is
                not a code of letters, a judgment is about an unknown question or document, or groups cannot be
                carried over because a question's documents are in several. The message names the culprits.
        """
        topics = _frame("topics", topics, "qid", "query", "query_lang", ("qgroup", "group"))
        docs = _frame("docs", docs, "docno", "text", "doc_lang", ("dgroup", "group"))
        if docs.empty:
            raise ValueError("docs: a corpus needs at least one document, found none")
        qrels = _judgments(qrels, topics["qid"], docs["docno"])
        topics = topics[_among(topics["qid"], qrels["qid"])].reset_index(drop=True)
        for frame, own, other in ((topics, "qid", "qgroup"), (docs, "docno", "dgroup")):
            if other not in frame:
                frame[other] = frame[own]
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
            ValueError: If a language is not given and not known, a field is missing, or :meth:`from_frames` refuses
                what the dataset has.
        """
        if isinstance(dataset, sts17.STS17):
            raise ValueError(f"dataset: {dataset!r} has graded pairs, not judgments; use PairCorpus.sts17")
        fields = _names("fields", fields)
        languages = []
        for argument, given, method in (
            ("query_lang", query_lang, "get_topics_lang"),
            ("doc_lang", doc_lang, "get_corpus_lang"),
        ):
            language = given if given is not None else getattr(dataset, method, lambda: None)()
            if language is None:
                raise ValueError(f"{argument}: {dataset!r} does not say its language; give it, such as 'de'")
            languages.append(language)
        topics = dataset.get_topics()
        if "query" not in topics.columns:
            raise ValueError(f"topics of {dataset!r}: expected a column query, found {', '.join(topics.columns)}")
        topics = topics[["qid", "query"]].assign(query_lang=languages[0])
        rows = []
        for document in dataset.get_corpus_iter(verbose=False):
            if missing := [field for field in fields if field not in document]:
                raise ValueError(
                    f"fields: document {document.get('docno')} of {dataset!r} has no {', '.join(missing)}; "
                    f"it has {', '.join(document)}"
                )
            rows.append((document["docno"], " ".join(document[field] for field in fields)))
        docs = pd.DataFrame(rows, columns=["docno", "text"]).assign(doc_lang=languages[1])
        qrels = dataset.get_qrels()
        if isinstance(dataset, xquad_r.XQuADR):
            titles = [article.title for article in xquad_r.load(dataset.languages[0]).articles]
            article_of = [p.article for p in xquad_r.load(dataset.languages[1]).paragraphs]
            topics["qgroup"] = topics["qid"].str.partition("-")[2]
            topics["group"] = topics["qid"].map(dataset.articles()).map(titles.__getitem__)
            docs["group"] = [titles[article_of[int(docno.split("-")[1])]] for docno in docs["docno"]]
        elif hasattr(dataset, "articles"):
            topics["group"] = topics["qid"].map(dataset.articles())
        name = dataset.name if isinstance(dataset, MartDataset) else str(dataset)
        return cls.from_frames(topics, docs, qrels, name)

    @cached_property
    def queries(self) -> Mapping[str, str]:
        """The text of each question by qid, in order."""
        return MappingProxyType(dict(zip(self.topics["qid"].tolist(), self.topics["query"].tolist(), strict=True)))

    @cached_property
    def documents(self) -> Mapping[str, str]:
        """The text of each candidate by docno, in order."""
        return MappingProxyType(dict(zip(self.docs["docno"].tolist(), self.docs["text"].tolist(), strict=True)))

    @cached_property
    def relevant(self) -> Mapping[str, frozenset[str]]:
        """The docnos that are relevant to each question, in all languages."""
        found: dict[str, list[str]] = {qid: [] for qid in self.topics["qid"]}
        for qid, docno in zip(self.qrels["qid"].tolist(), self.qrels["docno"].tolist(), strict=True):
            found[qid].append(docno)
        return MappingProxyType({qid: frozenset(docnos) for qid, docnos in found.items()})

    @cached_property
    def query_langs(self) -> tuple[str, ...]:
        """The languages of the questions, sorted."""
        return tuple(sorted(self.topics["query_lang"].unique()))

    @cached_property
    def doc_langs(self) -> tuple[str, ...]:
        """The languages of the candidates, sorted."""
        return tuple(sorted(self.docs["doc_lang"].unique()))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups in the order in which questions have them, then those of documents only."""
        return tuple(dict.fromkeys([*self.topics["group"].unique(), *self.docs["group"].unique()]))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all rows in their order, in hexadecimal digits; the name does not count."""
        return _fingerprint(self.topics[_TOPICS], self.docs[_DOCS], self.qrels[_QRELS])

    def restrict(
        self, query_langs: Iterable[str] | None = None, doc_langs: Iterable[str] | None = None
    ) -> MultilingualCorpus:
        """Returns the corpus with questions and candidates in some languages only.

        Questions that have no relevant candidate left are left out.

        Args:
            query_langs: Languages of the questions; ``None`` for all.
            doc_langs: Languages of the candidates; ``None`` for all.

        Raises:
            EmptyLanguageError: If there are no questions or candidates in one of them.
        """
        topics, docs = self.topics, self.docs
        parts = [self.name]
        if query_langs is not None:
            wanted = self._languages("query_langs", query_langs, self.query_langs, "questions")
            topics = topics[_among(topics["query_lang"], wanted)]
            parts.append(f"questions {','.join(wanted)}")
        if doc_langs is not None:
            wanted = self._languages("doc_langs", doc_langs, self.doc_langs, "candidates")
            docs = docs[_among(docs["doc_lang"], wanted)]
            parts.append(f"candidates {','.join(wanted)}")
        return self._cut(topics, docs, ", ".join(parts))

    def subset(self, groups: Iterable[str], name: str | None = None) -> MultilingualCorpus:
        """Returns the questions and candidates of some groups, in the order they have here.

        Questions that have no relevant candidate left are left out.

        Args:
            groups: The groups, such as articles.
            name: What to call it; by default as this corpus.

        Raises:
            ValueError: If there is no such group, or none is given.
        """
        wanted = _known("groups", groups, self.groups, self.name)
        topics = self.topics[_among(self.topics["group"], wanted)]
        docs = self.docs[_among(self.docs["group"], wanted)]
        return self._cut(topics, docs, self.name if name is None else name)

    def paths(self, transfer: str, split: str = "train") -> tuple[TransferPath, ...]:
        """Returns the transfer paths of a mode or of arrangements, if the corpus has their languages.

        Args:
            transfer: As in :func:`~pyterrier_mart.meta.arrangements.transfer_paths`.
            split: One of ``"train"``, ``"valid"`` and ``"test"``, in which modes may differ.

        Raises:
            EmptyLanguageError: If there are no questions or candidates in a language; the message has arrangements
                that would work.
            ValueError: If it is neither a mode nor arrangements.
        """
        paths = transfer_paths(transfer, split)
        lacking: list[str] = []
        for kind, present, used in (
            ("questions", self.query_langs, [s.question_lang for path in paths for s in path]),
            ("candidates", self.doc_langs, [lang for path in paths for s in path for lang in s.doc_langs]),
        ):
            lacking.extend(f"{kind} in {lang}" for lang in dict.fromkeys(used) if lang not in present)
        if lacking:
            message = f"transfer {transfer!r}: {self.name} has no {', no '.join(lacking)}; it has {self._has()}"
            working = self._working(len(paths[0]))
            raise EmptyLanguageError(f"{message}. {working!r} would work" if working else message)
        return paths

    def _working(self, sets: int) -> str:
        """Arrangements of as many sets that the corpus has the languages of: from one language to more."""
        if not self.query_langs:
            return ""
        question = next((lang for lang in self.query_langs if lang in self.doc_langs), self.query_langs[0])
        first, *others = sorted(self.doc_langs, key=lambda lang: lang != question)
        support = f"{question}_{first}"
        bi = f"{question}_{others[0]}" if others else support
        multi = f"{question}_{','.join(sorted([first, *others[:2]]))}"
        return "-".join([support, bi, multi][:sets])

    def _has(self) -> str:
        return (
            f"questions in {', '.join(self.query_langs) or 'no language'} and candidates in {', '.join(self.doc_langs)}"
        )

    def _languages(self, argument: str, wanted: Iterable[str], present: Sequence[str], kind: str) -> tuple[str, ...]:
        wanted = _names(argument, wanted)
        if missing := [lang for lang in wanted if lang not in present]:
            raise EmptyLanguageError(
                f"{argument}: {self.name} has no {kind} in {', '.join(missing)}; it has {self._has()}"
            )
        return wanted

    def _cut(self, topics: pd.DataFrame, docs: pd.DataFrame, name: str) -> MultilingualCorpus:
        """Makes the judgments fit, and drops questions without any."""
        qrels = self.qrels[_among(self.qrels["qid"], topics["qid"]) & _among(self.qrels["docno"], docs["docno"])]
        topics = topics[_among(topics["qid"], qrels["qid"])]
        topics, docs, qrels = (frame.reset_index(drop=True) for frame in (topics, docs, qrels))
        return type(self)(topics, docs, qrels, name)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name}: {self.topics['qgroup'].nunique()} questions "
            f"({','.join(self.query_langs)}), {len(self.docs)} candidates ({','.join(self.doc_langs)}), "
            f"{len(self.groups)} groups>"
        )


@dataclass(frozen=True, eq=False)
class PairCorpus:
    """Sentence pairs with graded similarity.

    Make one with :meth:`sts17` or :meth:`from_frame`, which check what they are given. The frame must not be changed.

    Attributes:
        pairs: ``pair_id``, ``sentence1``, ``sentence2``, ``score`` (0 to 5), ``lang1``, ``lang2``, ``track`` (the
            list of pairs it is from), ``row`` (what must stay in one split: position in the track).
        name: What it is called in messages.
    """

    pairs: pd.DataFrame
    name: str = "pairs"

    @classmethod
    def sts17(cls, tracks: Sequence[str] = STS_TRACKS) -> PairCorpus:
        """Returns tracks of STS17: 250 pairs each.

        The same row of two tracks has different pairs: tracks were made from different sentences.

        Args:
            tracks: Names of :data:`pyterrier_mart.datasets.sts17.TRACKS`.

        Raises:
            ValueError: If there is no such track, one is named twice, or there is none.
        """
        datasets = [sts17.STS17(track) for track in _names("tracks", tracks)]
        names = _distinct("tracks", [dataset.track for dataset in datasets])
        frames = []
        for dataset in datasets:
            frame = dataset.pairs()
            frames.append(
                frame.assign(
                    lang1=dataset.languages[0], lang2=dataset.languages[1], track=dataset.track, row=range(len(frame))
                )
            )
        return cls.from_frame(pd.concat(frames, ignore_index=True), f"sts17/{','.join(names)}")

    @classmethod
    def from_frame(cls, pairs: pd.DataFrame, name: str = "pairs") -> PairCorpus:
        """Returns pairs of the user's own. The frame is copied; columns that are not named here are left out.

        Args:
            pairs: ``pair_id``, ``sentence1``, ``sentence2``, ``score``, ``lang1``, ``lang2``; by default ``track`` is
                the languages joined by ``-``, and ``row`` the position in the track.
            name: What to call it in messages.

        Raises:
            TypeError: If it is not a frame.
            ValueError: If a column or value is missing, a sentence is not a string, an id is there twice, a language
                is not a code of letters, or a score is not from 0 to 5. The message names the culprits.
        """
        optional = [column for column in ("track", "row") if isinstance(pairs, pd.DataFrame) and column in pairs]
        pairs = _select("pairs", pairs, [*_PAIRS[:6], *optional])
        if pairs.empty:
            raise ValueError("pairs: expected at least one pair, found none")
        _identify("pairs", pairs, "pair_id")
        for column in ("sentence1", "sentence2"):
            _check_texts("pairs", pairs, "pair_id", column)
        for column in ("lang1", "lang2"):
            _check_languages("pairs", pairs, "pair_id", column)
        scores = pd.to_numeric(pairs["score"], errors="coerce")
        _refuse(pairs.loc[~scores.between(0, 5), "pair_id"], "pairs", "score: expected a number from 0 to 5 for")
        pairs["score"] = scores.astype("float64")
        if "track" not in pairs:
            pairs["track"] = pairs["lang1"] + "-" + pairs["lang2"]
        if "row" not in pairs:
            pairs["row"] = pairs.groupby("track", sort=False).cumcount()
        rows = pd.to_numeric(pairs["row"], errors="coerce")
        _refuse(pairs.loc[rows.isna() | (rows % 1 != 0), "pair_id"], "pairs", "row: expected a whole number for")
        pairs["row"] = rows.astype("int64")
        return cls(pairs[_PAIRS], name)

    @cached_property
    def tracks(self) -> tuple[str, ...]:
        """The tracks, in order."""
        return tuple(self.pairs["track"].unique())

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The distinct rows, sorted."""
        return tuple(int(row) for row in sorted(self.pairs["row"].unique()))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all pairs in their order, in hexadecimal digits; the name does not count."""
        return _fingerprint(self.pairs[_PAIRS])

    def restrict(self, tracks: Iterable[str]) -> PairCorpus:
        """Returns the pairs of some tracks, in the order they have here.

        Raises:
            ValueError: If there is no such track, or none is given.
        """
        wanted = _known("tracks", tracks, self.tracks, self.name)
        pairs = self.pairs[_among(self.pairs["track"], wanted)].reset_index(drop=True)
        return type(self)(pairs, f"{self.name}, tracks {','.join(wanted)}")

    def subset(self, rows: Iterable[int], name: str | None = None) -> PairCorpus:
        """Returns the pairs at some rows of every track, in the order they have here.

        Args:
            rows: The rows.
            name: What to call it; by default as this corpus.

        Raises:
            ValueError: If there is no such row, or none is given.
        """
        wanted = _known("rows", rows, self.rows, self.name)
        pairs = self.pairs[_among(self.pairs["row"], wanted)].reset_index(drop=True)
        return type(self)(pairs, self.name if name is None else name)

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self)} pairs ({','.join(self.tracks)})>"


class _Links:
    """Union-find over numbers; the name of a component is its smallest number."""

    def __init__(self, size: int):
        self.parent = list(range(size))

    def find(self, i: int) -> int:
        parent = self.parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(self, i: int, j: int) -> None:
        i, j = self.find(i), self.find(j)
        self.parent[max(i, j)] = min(i, j)


def _complete_groups(topics: pd.DataFrame, docs: pd.DataFrame, qrels: pd.DataFrame) -> None:
    """Adds the column ``group`` where it is missing."""
    if "group" in topics and "group" in docs:
        return
    if "group" in docs:
        found = _carried(qrels["qid"], qrels["docno"], docs.set_index("docno")["group"], "qid", "documents")
        topics["group"] = topics["qid"].map(found)
    elif "group" in topics:
        found = _carried(qrels["docno"], qrels["qid"], topics.set_index("qid")["group"], "docno", "questions")
        docs["group"] = docs["docno"].map(found).fillna(docs["docno"])
    else:
        # The numbers of topics come first, so that a group is called as its first question, if it has one.
        numbers = {qid: i for i, qid in enumerate(topics["qid"])}
        places = {docno: len(topics) + i for i, docno in enumerate(docs["docno"])}
        links = _Links(len(topics) + len(docs))
        for qid, docno in zip(qrels["qid"], qrels["docno"], strict=True):
            links.join(numbers[qid], places[docno])
        for column, start in ((topics["qgroup"], 0), (docs["dgroup"], len(topics))):
            first: dict[str, int] = {}
            for i, value in enumerate(column, start):
                links.join(first.setdefault(value, i), i)
        names = [*topics["qid"], *docs["docno"]]
        found = [names[links.find(i)] for i in range(len(names))]
        topics["group"] = pd.Series(found[: len(topics)], index=topics.index, dtype=docs["docno"].dtype)
        docs["group"] = pd.Series(found[len(topics) :], index=docs.index, dtype=docs["docno"].dtype)


def _carried(ids: pd.Series, others: pd.Series, group_of: pd.Series, kind: str, other: str) -> pd.Series:
    """The group of each id that is judged, from what it is judged with."""
    linked = pd.DataFrame({"id": ids, "group": others.map(group_of)}).drop_duplicates()
    if (split := linked["id"].duplicated(keep=False)).any():
        culprit = linked.loc[split, "id"].iloc[0]
        groups = linked.loc[linked["id"] == culprit, "group"]
        raise ValueError(
            f"group: {kind} {culprit} is judged with {other} of several groups ({_list(groups)}); give group in both "
            "topics and docs, or in neither"
        )
    return linked.set_index("id")["group"]


def _frame(
    argument: str, frame: pd.DataFrame, id_column: str, text: str, lang: str, optional: tuple[str, ...]
) -> pd.DataFrame:
    """Checks and copies topics or docs."""
    given = [column for column in optional if isinstance(frame, pd.DataFrame) and column in frame]
    frame = _select(argument, frame, [id_column, text, lang, *given])
    _identify(argument, frame, id_column)
    _check_texts(argument, frame, id_column, text)
    _check_languages(argument, frame, id_column, lang)
    for column in given:
        frame[column] = frame[column].astype(str)
    return frame


def _judgments(qrels: pd.DataFrame, qids: pd.Series, docnos: pd.Series) -> pd.DataFrame:
    """Checks and copies judgments, without those that are not relevant."""
    qrels = _select("qrels", qrels, _QRELS)
    for column in ("qid", "docno"):
        qrels[column] = qrels[column].astype(str)
    labels = pd.to_numeric(qrels["label"], errors="coerce")
    _refuse(qrels.loc[labels.isna(), "qid"], "qrels", "label: expected a number for qid")
    qrels["label"] = labels
    qrels = qrels[labels > 0].reset_index(drop=True)
    _refuse(qrels.loc[~_among(qrels["qid"], qids), "qid"].drop_duplicates(), "qrels", "not in topics: qid")
    _refuse(qrels.loc[~_among(qrels["docno"], docnos), "docno"].drop_duplicates(), "qrels", "not in docs: docno")
    twice = qrels[qrels.duplicated(["qid", "docno"])]
    _refuse(twice["qid"] + " " + twice["docno"], "qrels", "judged twice: qid and docno")
    return qrels


def _select(argument: str, frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Copies columns of a frame, which must have them and all their values."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"{argument}: expected a DataFrame, found {type(frame).__name__}")
    if missing := [column for column in columns if column not in frame.columns]:
        raise ValueError(
            f"{argument}: missing column {', '.join(missing)}; found {', '.join(map(str, frame.columns)) or 'none'}"
        )
    frame = frame[columns].reset_index(drop=True)
    for column in columns:
        if (empty := frame[column].isna()).any():
            row = frame[empty].iloc[0]
            raise ValueError(f"{argument}: {column} is missing in {int(empty.sum())} rows, such as {row.to_dict()}")
    return frame


def _identify(argument: str, frame: pd.DataFrame, column: str) -> None:
    frame[column] = frame[column].astype(str)
    twice = frame.loc[frame[column].duplicated(), column].drop_duplicates()
    _refuse(twice, argument, f"more than one row with {column}")


def _check_texts(argument: str, frame: pd.DataFrame, id_column: str, column: str) -> None:
    wrong = ~frame[column].map(lambda text: isinstance(text, str)).astype(bool)
    _refuse(frame.loc[wrong, id_column], argument, f"{column}: expected a string for {id_column}")


def _check_languages(argument: str, frame: pd.DataFrame, id_column: str, column: str) -> None:
    # Arrangements such as el_ar,el-el_ar name languages, so that they cannot have other characters in them.
    for language in frame[column].unique():
        if not isinstance(language, str) or not language.isalpha():
            where = _list(frame.loc[frame[column] == language, id_column])
            raise ValueError(
                f"{argument}: {column} must be a code of letters such as 'de', not {language!r} ({id_column} {where})"
            )


def _among(values: pd.Series, wanted: Iterable[Any]) -> npt.NDArray[np.bool_]:
    """Whether each value is wanted: several times faster than ``isin`` where strings are those of Arrow."""
    found = set(wanted.tolist() if isinstance(wanted, pd.Series) else wanted)
    return np.fromiter((value in found for value in values.tolist()), dtype=bool, count=len(values))


def _refuse(culprits: pd.Series, argument: str, what: str) -> None:
    if len(culprits):
        raise ValueError(f"{argument}: {what} {_list(culprits)}")


def _list(values: Collection[Any]) -> str:
    """The first few values, and how many more there are."""
    shown = ", ".join(str(value) for value in list(values)[:_NAMED])
    return f"{shown} and {len(values) - _NAMED} more" if len(values) > _NAMED else shown


def _names(argument: str, values: Iterable[str]) -> tuple[str, ...]:
    """Refuses a string in the place of strings, nothing, and what is not a string."""
    if isinstance(values, str):
        raise TypeError(f"{argument}: expected several names such as [{values!r}], found the string {values!r}")
    values = tuple(values)
    if wrong := [value for value in values if not isinstance(value, str)]:
        raise TypeError(f"{argument}: expected names, found {wrong[0]!r}")
    return _distinct(argument, values)


def _distinct(argument: str, values: Sequence[str]) -> tuple[str, ...]:
    if not values:
        raise ValueError(f"{argument}: expected at least one, found none")
    if twice := [value for i, value in enumerate(values) if value in values[:i]]:
        raise ValueError(f"{argument}: {twice[0]} is named twice")
    return tuple(values)


def _known(argument: str, values: Iterable[Any], present: Sequence[Any], name: str) -> tuple[Any, ...]:
    if isinstance(values, str):
        raise TypeError(f"{argument}: expected several, such as [{values!r}], found the string {values!r}")
    values = tuple(dict.fromkeys(values))
    if not values:
        raise ValueError(f"{argument}: expected at least one, found none")
    known = set(present)
    if unknown := [value for value in values if value not in known]:
        raise ValueError(f"{argument}: {name} has no {_list(unknown)}; it has {_list(present)}")
    return values


def _fingerprint(*frames: pd.DataFrame) -> str:
    digest = hashlib.sha256()
    for frame in frames:
        for column in frame:
            values = frame[column].tolist()
            if column == "label":
                values = [float(value) for value in values]  # 1 and 1.0 mean the same
            digest.update(json.dumps([column, values]).encode())
    return digest.hexdigest()
