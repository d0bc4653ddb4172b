"""Cross-validation that keeps articles together, and checks that splits have nothing in common."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from pyterrier_mart.datasets.corpus import MultilingualCorpus, PairCorpus, normalised
from pyterrier_mart.meta.errors import LeakageError

__all__ = ["Fold", "check_leakage", "kfold_by_group", "kfold_pairs"]

C = TypeVar("C", MultilingualCorpus, PairCorpus)

_FRAGMENT = 3  # letters and digits below which a text is a fragment and not a sentence
_SHOWN = 3  # culprits that an error names


@dataclass(frozen=True, eq=False)
class Fold(Generic[C]):
    """A division of a corpus into three.

    Attributes:
        index: Position among the folds.
        train: What is trained with.
        valid: What the best step is chosen with.
        test: What is reported.
    """

    index: int
    train: C
    valid: C
    test: C


def kfold_by_group(
    corpus: MultilingualCorpus,
    n_splits: int = 5,
    valid: Literal["last", "rotating"] = "last",
    shuffle: bool = False,
    seed: int | None = None,
) -> Iterator[Fold[MultilingualCorpus]]:
    """Divides a corpus into training, validation and test sets that have no group in common (Section 4.1 of the paper).

    The groups that have questions are cut into ``n_splits`` stretches in their order, as scikit-learn's ``KFold`` does,
    and each is the test set once. Groups of documents only are divided in the same way, by themselves.

    For XQuAD-R the defaults give the paper's folds. They have validation sets in common: folds 0, 1 and 2 have the same
    one.

    Args:
        corpus: The corpus.
        n_splits: Number of folds, at least 3.
        valid: Whether the validation set is the last groups that are not in the test set, as many as those
            (``"last"``, the authors'), or the test set of the next fold (``"rotating"``).
        shuffle: Whether groups are put into random order before.
        seed: Of the order, if they are.

    Returns:
        The folds; each is made and checked with :func:`check_leakage` when it is asked for.

    Raises:
        LeakageError: If a question has a relevant document in another group, or a fold's splits share anything.
        ValueError: If there are too few groups, or the arguments do not fit together.
    """
    crossing = _crossing_judgments(corpus)
    if crossing:
        raise LeakageError(f"{corpus.name}: relevant documents in another group than the question: {crossing}")
    count = corpus.topics["group"].nunique()
    rng = _generator(shuffle, seed)
    asked, other = _order(corpus.groups[:count], rng), _order(corpus.groups[count:], rng)
    _check_splits(n_splits, valid, len(asked), "groups with questions", corpus.name)

    def folds() -> Iterator[Fold[MultilingualCorpus]]:
        for index in range(n_splits):
            parts = [
                [*first, *second]
                for first, second in zip(
                    _divide(asked, index, n_splits, valid), _divide(other, index, n_splits, valid), strict=True
                )
            ]
            train, dev, test = (
                corpus.subset(groups, f"{corpus.name} fold {index} {split}")
                for split, groups in zip(("train", "valid", "test"), parts, strict=True)
            )
            check_leakage(train, dev, test)
            yield Fold(index, train, dev, test)

    return folds()


def kfold_pairs(
    pairs: PairCorpus,
    n_splits: int = 5,
    valid: Literal["last", "rotating"] = "last",
    shuffle: bool = False,
    seed: int | None = None,
) -> Iterator[Fold[PairCorpus]]:
    """Divides pairs by row, the same rows in all tracks: STS17 into 150, 50 and 50 pairs of each track.

    Args:
        pairs: The pairs.
        n_splits: As in :func:`kfold_by_group`.
        valid: As there.
        shuffle: As there.
        seed: As there.

    Returns:
        The folds; each is made and checked with :func:`check_leakage` when it is asked for.

    Raises:
        LeakageError: If a sentence is in two splits.
        ValueError: If there are too few rows, or the arguments do not fit together.
    """
    rows = _order(pairs.rows, _generator(shuffle, seed))
    _check_splits(n_splits, valid, len(rows), "rows", pairs.name)

    def folds() -> Iterator[Fold[PairCorpus]]:
        for index in range(n_splits):
            train, dev, test = (
                pairs.subset(part, f"{pairs.name} fold {index} {split}")
                for split, part in zip(("train", "valid", "test"), _divide(rows, index, n_splits, valid), strict=True)
            )
            check_leakage(train, dev, test)
            yield Fold(index, train, dev, test)

    return folds()


def check_leakage(train: C, valid: C | None = None, test: C | None = None) -> None:
    """Checks that nothing of one split is known from another.

    Of two corpora, these must not be in both: a ``group``, a ``qgroup``, a ``dgroup``, the text of a question, and the
    text of a candidate that answers a question in either. Texts are compared in normal form
    (:func:`~pyterrier_mart.datasets.corpus.normalised`). Two kinds of text may be in both, as they tell nothing about a
    question: candidates that answer nothing in either (XQuAD-R has the footnote mark "citation needed" as a sentence of
    several articles in Arabic, Hindi and Chinese), and fragments of less than three letters and digits, which sentence
    splitting makes (XQuAD-R has a Turkish sentence "I." in two articles, once with an answer).

    Of pairs, the rows and the sentences must be different ones.

    Args:
        train: The training set.
        valid: The validation set, if any.
        test: The test set, if any.

    Raises:
        LeakageError: If something is in two; the message names what, and where it is.
        TypeError: If the sets are not all corpora or all pairs.
    """
    splits = [
        (name, split) for name, split in (("train", train), ("valid", valid), ("test", test)) if split is not None
    ]
    for kind in (MultilingualCorpus, PairCorpus):
        if all(isinstance(split, kind) for _, split in splits):
            break
    else:
        found = ", ".join(f"{name} {type(split).__name__}" for name, split in splits)
        raise TypeError(f"expected all splits to be MultilingualCorpus or all PairCorpus, found {found}")
    views = [
        (name, _corpus_keys(split) if isinstance(split, MultilingualCorpus) else _pair_keys(split))
        for name, split in splits
    ]
    for i, (first, of_first) in enumerate(views):
        for second, of_second in views[i + 1 :]:
            for what, keys in of_first.items():
                other = of_second[what]
                shared = [key for key in keys.where if key in other.where and (key in keys.leak or key in other.leak)]
                if shared:
                    named = "; ".join(f"{key!r} ({keys.where[key]} and {other.where[key]})" for key in shared[:_SHOWN])
                    more = f" and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
                    raise LeakageError(f"{first} and {second} share a {what}: {named}{more}")


@dataclass(frozen=True)
class _Keys:
    """What splits are compared by.

    Attributes:
        where: For each key, what has it first.
        leak: The keys that must not be in another split.
    """

    where: dict[Hashable, str]
    leak: frozenset[Hashable] | dict[Hashable, str]


def _corpus_keys(corpus: MultilingualCorpus) -> dict[str, _Keys]:
    topics, docs = corpus.topics, corpus.docs
    qids, docnos = topics["qid"].tolist(), docs["docno"].tolist()
    texts = [normalised(text) for text in docs["text"].tolist()]
    answering = set(corpus.qrels["docno"].tolist())
    answers = frozenset(t for t, docno in zip(texts, docnos, strict=True) if docno in answering and not _fragment(t))
    return {
        "group": _all([*topics["group"].tolist(), *docs["group"].tolist()], [*qids, *docnos]),
        "qgroup": _all(topics["qgroup"].tolist(), qids),
        "dgroup": _all(docs["dgroup"].tolist(), docnos),
        "question text": _all(map(normalised, topics["query"].tolist()), qids),
        "candidate text": _Keys(_first(texts, docnos), answers),
    }


def _pair_keys(corpus: PairCorpus) -> dict[str, _Keys]:
    pairs = corpus.pairs
    ids = pairs["pair_id"].tolist()
    texts = map(normalised, [*pairs["sentence1"], *pairs["sentence2"]])
    return {"row": _all(pairs["row"], ids), "sentence": _all(texts, [*ids, *ids])}


def _all(keys: Iterable[Hashable], ids: Iterable[str]) -> _Keys:
    where = _first(keys, ids)
    return _Keys(where, where)


def _first(keys: Iterable[Hashable], ids: Iterable[str]) -> dict[Hashable, str]:
    found: dict[Hashable, str] = {}
    for key, where in zip(keys, ids, strict=True):
        found.setdefault(key, where)
    return found


def _fragment(text: str) -> bool:
    return sum(map(str.isalnum, text)) < _FRAGMENT


def _crossing_judgments(corpus: MultilingualCorpus) -> str:
    """The first judgments whose question and document are in different groups."""
    qrels = corpus.qrels
    asked = qrels["qid"].map(corpus.topics.set_index("qid")["group"])
    found = qrels["docno"].map(corpus.docs.set_index("docno")["group"])
    rows = qrels[asked != found].head(_SHOWN)
    return ", ".join(
        f"{qid} ({asked[i]}) and {docno} ({found[i]})"
        for i, qid, docno in zip(rows.index, rows["qid"], rows["docno"], strict=True)
    )


T = TypeVar("T")


def _generator(shuffle: bool, seed: int | None) -> np.random.Generator | None:
    if shuffle != (seed is not None):
        raise ValueError(f"seed and shuffle go together, found shuffle={shuffle} and seed={seed}")
    return np.random.default_rng(seed) if shuffle else None


def _order(items: Sequence[T], rng: np.random.Generator | None) -> Sequence[T]:
    return items if rng is None else [items[i] for i in rng.permutation(len(items))]


def _check_splits(n_splits: int, valid: str, size: int, what: str, name: str) -> None:
    if valid not in ("last", "rotating"):
        raise ValueError(f"valid must be 'last' or 'rotating', not {valid!r}")
    if isinstance(n_splits, bool) or not isinstance(n_splits, int) or n_splits < 3:
        raise ValueError(f"n_splits must be a whole number >= 3 (training, validation, test), not {n_splits!r}")
    largest = -(-size // n_splits)
    if size < n_splits or (valid == "last" and size <= 2 * largest):
        raise ValueError(f"n_splits {n_splits} is too much for the {size} {what} of {name}: a split would be empty")


def _divide(items: Sequence[T], index: int, n_splits: int, valid: str) -> tuple[list[T], list[T], list[T]]:
    """The items of training, validation and test set in a fold."""
    stretches = np.array_split(np.arange(len(items)), n_splits)  # the first ones are longer, as KFold's
    test = stretches[index]
    rest = np.setdiff1d(np.arange(len(items)), test)
    chosen = rest[max(0, len(rest) - len(test)) :] if valid == "last" else stretches[(index + 1) % n_splits]
    train = np.setdiff1d(rest, chosen)
    return [items[i] for i in train], [items[i] for i in chosen], [items[i] for i in test]
