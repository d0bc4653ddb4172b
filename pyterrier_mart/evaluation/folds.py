"""Divisions of topics, corpora and sentence pairs into training, validation and test sets."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import pandas as pd

from pyterrier_mart.checks import check_choice, check_whole
from pyterrier_mart.datasets.columns import checked_columns, listed
from pyterrier_mart.datasets.corpus import MultilingualCorpus, normalised
from pyterrier_mart.datasets.graded_pairs import PairCorpus

__all__ = ["Fold", "LeakageError", "check_leakage", "kfold_by_group", "kfold_pairs", "qids_of", "shuffled",
           "split"]  # fmt: skip

T = TypeVar("T")
C = TypeVar("C", MultilingualCorpus, PairCorpus)

_SPLITS = ("train", "valid", "test")
_FRAGMENT = 3  # letters and digits below which a text is a fragment and not a sentence


class LeakageError(ValueError):
    """An article, query or sentence is in two splits."""


@dataclass(frozen=True)
class Fold(Generic[T]):
    """One fold of a cross-validation: what trains, what chooses the model, and what tests it.

    Attributes:
        index: Position of the fold, from 0.
        train: What to train on: sorted qids (:func:`split`), or a corpus (:func:`kfold_by_group`, :func:`kfold_pairs`).
        valid: What to choose the best model by.
        test: What to test on.
        seed: A seed for what is random in training, another one in each fold.
    """

    index: int
    train: T
    valid: T
    test: T
    seed: int


def split(
    topics: pd.DataFrame, folds: int = 5, *, seed: int = 42, groups: pd.Series | str | None = None
) -> list[Fold[tuple[str, ...]]]:
    """Splits topics for cross-validation: with five folds 60 % train, 20 % validate and 20 % test.

    The queries are dealt into as many parts as there are folds. Fold ``i`` tests on part ``i``, validates on the part
    after it (after the last comes the first) and trains on all others, so that every query tests once. The split
    depends on the qids, their groups and the seed, and not on the order of the rows.

    Example::

        data = pt.get_dataset('mart:xquad-r/de-en')
        first = split(data.get_topics())[0]
        len(first.train), len(first.valid), len(first.test)     # (714, 238, 238)

    The setup is that of Huang et al. Mixed Attention Transformer for Leveraging Word-Level Knowledge to Neural
    Cross-Lingual Information Retrieval. CIKM 2021, https://doi.org/10.1145/3459637.3482452.

    Args:
        topics: A frame with a ``qid`` in each row, each one once.
        folds: How many folds, at least three.
        seed: Another seed makes another split. The seed of a fold is ``seed + index``.
        groups: What keeps queries together: queries of one group (say, the questions about one article) are in the
            same part, and the parts are about equally large. The name of a column of the topics, or a series of
            groups indexed by qid.

    Raises:
        ValueError: If there are fewer than three folds or more folds than queries or groups, if a qid is missing or
            twice in the topics, or if a query has no group.
    """
    check_whole("folds", folds, 3)
    qids = sorted(qids_of(topics))
    if isinstance(groups, str):
        check_choice("groups", groups, topics.columns)
        series = pd.Series(topics[groups].array, index=topics["qid"].array)
    else:
        series = pd.Series(qids, index=qids) if groups is None else groups
    group_of = {str(qid): str(group) for qid, group in series.dropna().items()}
    if without := [qid for qid in qids if qid not in group_of]:
        raise ValueError(f"groups must have a group for every qid; there is none for {listed(without)}")
    units: dict[str, list[str]] = {}
    for qid in qids:
        units.setdefault(group_of[qid], []).append(qid)
    if folds > len(units):
        what = "queries" if groups is None else "groups"
        raise ValueError(f"folds must be no more folds than {what} in the topics, {len(units)}, not {folds}")
    parts: list[list[str]] = [[] for _ in range(folds)]
    for unit in sorted(shuffled(units, seed), key=lambda unit: -len(units[unit])):  # keeps the order of equal sizes
        min(parts, key=len).extend(units[unit])
    return [
        Fold(
            index=i,
            train=tuple(sorted(qid for j, part in enumerate(parts) if j not in (i, (i + 1) % folds) for qid in part)),
            valid=tuple(sorted(parts[(i + 1) % folds])),
            test=tuple(sorted(parts[i])),
            seed=seed + i,
        )
        for i in range(folds)
    ]


def qids_of(topics: pd.DataFrame) -> list[str]:
    """Returns the qids of topics, as strings and in their order.

    Raises:
        ValueError: If there is no ``qid`` column, or if a qid is missing or there twice.
    """
    return list(checked_columns("topics", topics, ["qid"], [])["qid"])


def shuffled(values: Iterable[str], seed: int, purpose: str = "") -> list[str]:
    """Returns values in an order that the seed gives: the same on every machine, however they came."""
    return sorted(values, key=lambda value: (hashlib.sha256(f"{seed}\t{purpose}\t{value}".encode()).digest(), value))


# ------------------------------------------------------------------------------------------------------------- corpora


def kfold_by_group(
    corpus: MultilingualCorpus, n_splits: int = 5, valid: Literal["last", "rotating"] = "last", seed: int | None = None
) -> Iterator[Fold[MultilingualCorpus]]:
    """Divides a corpus into training, validation and test sets that have no group in common.

    The groups that have queries are cut into ``n_splits`` stretches in their order, as scikit-learn's ``KFold`` does,
    and each is the test set once. Groups of documents only are divided in the same way, by themselves.

    For XQuAD-R the defaults give the folds of M'hamdi et al., arXiv 2309.08185 (Section 4.1). They have validation sets
    in common: folds 0, 1 and 2 have the same one.

    Args:
        corpus: The corpus.
        n_splits: Number of folds, at least 3.
        valid: Whether the validation set is the last groups that are not in the test set, as many as those
            (``"last"``, the authors'), or the test set of the next fold (``"rotating"``).
        seed: Puts the groups into random order before; ``None`` to keep the corpus's.

    Returns:
        The folds; each is made and checked with :func:`check_leakage` when it is asked for.

    Raises:
        LeakageError: If a query has a relevant document in another group, or a fold's splits share anything.
        ValueError: If there are too few groups, or an argument is out of range.
    """
    topics, docs, qrels = corpus.topics, corpus.docs, corpus.qrels
    asked_in = qrels["qid"].map(topics.set_index("qid")["group"])
    crossing = qrels[asked_in != qrels["docno"].map(docs.set_index("docno")["group"])]
    if len(crossing):
        culprits = listed(crossing["qid"] + " and " + crossing["docno"])
        raise LeakageError(f"{corpus.name}: relevant documents in another group than the query: {culprits}")
    count = topics["group"].nunique()
    return _kfold(corpus, [corpus.groups[:count], corpus.groups[count:]], n_splits, valid, seed)


def kfold_pairs(
    pairs: PairCorpus, n_splits: int = 5, valid: Literal["last", "rotating"] = "last", seed: int | None = None
) -> Iterator[Fold[PairCorpus]]:
    """Divides pairs by row, the same rows in all tracks: STS17 into 150, 50 and 50 pairs of each track.

    Args:
        pairs: The pairs.
        n_splits: Number of folds, at least 3.
        valid: Which rows validate, as in :func:`kfold_by_group`.
        seed: Puts the rows into random order before; ``None`` to keep theirs.

    Returns:
        The folds; each is made and checked with :func:`check_leakage` when it is asked for.

    Raises:
        LeakageError: If a sentence is in two splits.
        ValueError: If there are too few rows, or an argument is out of range.
    """
    return _kfold(pairs, [pairs.rows], n_splits, valid, seed)


def _kfold(corpus: C, parts: list[Sequence[Any]], n_splits: int, valid: str, seed: int | None) -> Iterator[Fold[C]]:
    """Divides each of the parts by itself."""
    check_whole("n_splits", n_splits, 3)
    check_choice("valid", valid, ("last", "rotating"))
    size = len(parts[0])
    if size < n_splits or (valid == "last" and size <= 2 * -(-size // n_splits)):
        raise ValueError(f"n_splits {n_splits} is too much for {size} groups or rows of {corpus.name}")
    if seed is not None:
        rng = np.random.default_rng(seed)
        parts = [[items[i] for i in rng.permutation(len(items))] for items in parts]

    def folds() -> Iterator[Fold[C]]:
        for index in range(n_splits):
            chosen: tuple[list[Any], ...] = ([], [], [])
            for items in parts:
                stretches = np.array_split(np.arange(len(items)), n_splits)  # the first ones are longer, as KFold's
                test = stretches[index]
                rest = np.setdiff1d(np.arange(len(items)), test)
                last = rest[max(0, len(rest) - len(test)) :]
                dev = last if valid == "last" else stretches[(index + 1) % n_splits]
                for of_split, places in zip(chosen, (np.setdiff1d(rest, dev), dev, test), strict=True):
                    of_split.extend(items[i] for i in places)
            train, dev_set, test_set = (
                corpus.subset(of_split, f"{corpus.name} fold {index} {name}")
                for name, of_split in zip(_SPLITS, chosen, strict=True)
            )
            check_leakage(train, dev_set, test_set)
            yield Fold(index, train, dev_set, test_set, seed=index)

    return folds()


def check_leakage(train: C, valid: C | None = None, test: C | None = None) -> None:
    """Checks that nothing of one split is known from another.

    Of two corpora, these must not be in both: a ``group``, a ``qgroup``, a ``dgroup``, the text of a query, and the
    text of a document that answers a query in either. Texts are compared in normal form
    (:func:`~pyterrier_mart.datasets.corpus.normalised`). Two kinds of text may be in both, as they tell nothing about a
    query: documents that answer nothing in either (XQuAD-R has the footnote mark "citation needed" as a sentence of
    several articles in Arabic, Hindi and Chinese), and fragments of less than three letters and digits, which sentence
    splitting makes (XQuAD-R has a Turkish sentence "I." in two articles, once with an answer).

    Of pairs, the rows and the sentences must be different ones.

    Args:
        train: The training set.
        valid: The validation set, if any.
        test: The test set, if any.

    Raises:
        LeakageError: If something is in two; the message names what, and where it is.
    """
    named = zip(_SPLITS, (train, valid, test), strict=True)
    splits = [(name, _keys(split), _answers(split)) for name, split in named if split is not None]
    for (first, ours, our_answers), (second, theirs, their_answers) in combinations(splits, 2):
        for what, keys in ours.items():
            shared = [key for key in keys if key in theirs[what]]
            if what == "document text":
                shared = [key for key in shared if key in our_answers or key in their_answers]
            if shared:
                where = listed([f"{key!r:.60} ({keys[key]} and {theirs[what][key]})" for key in shared])
                raise LeakageError(f"{first} and {second} share a {what}: {where}")


def _keys(corpus: MultilingualCorpus | PairCorpus) -> dict[str, dict[Hashable, str]]:
    """Returns what splits are compared by, and for each key the first id that has it."""
    if isinstance(corpus, PairCorpus):
        pairs = corpus.pairs
        ids = pairs["pair_id"].tolist()
        sentences = map(normalised, [*pairs["sentence1"], *pairs["sentence2"]])
        return {"row": _first(pairs["row"], ids), "sentence": _first(sentences, [*ids, *ids])}
    topics, docs = corpus.topics, corpus.docs
    qids, docnos = topics["qid"].tolist(), docs["docno"].tolist()
    return {
        "group": _first([*topics["group"], *docs["group"]], [*qids, *docnos]),
        "qgroup": _first(topics["qgroup"], qids),
        "dgroup": _first(docs["dgroup"], docnos),
        "query text": _first(map(normalised, topics["query"]), qids),
        "document text": _first(map(normalised, docs["text"]), docnos),
    }


def _answers(corpus: MultilingualCorpus | PairCorpus) -> set[str]:
    """Returns the texts of documents that answer a query, without fragments."""
    if isinstance(corpus, PairCorpus):
        return set()
    texts = {normalised(corpus.documents[docno]) for docno in set(corpus.qrels["docno"])}
    return {text for text in texts if sum(map(str.isalnum, text)) >= _FRAGMENT}


def _first(keys: Iterable[Hashable], ids: Sequence[str]) -> dict[Hashable, str]:
    found: dict[Hashable, str] = {}
    for key, where in zip(keys, ids, strict=True):
        found.setdefault(key, where)
    return found
