"""What is different between two translation tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyterrier_mart.translation.table import TranslationTable
from pyterrier_mart.translation.vocabulary import Vocabulary

__all__ = ["Change", "Comparison", "compare"]

_Ids = npt.NDArray[np.int64]


class Change(NamedTuple):
    """A source word and what the two tables say of it.

    Attributes:
        word: The source word.
        best_a: Its best translation in the first table.
        prob_a: With this probability.
        best_b: Its best translation in the second table.
        prob_b: With this probability.
        distance: Total variation distance of its translations, from 0 (the same) to 1 (nothing in common).
    """

    word: str
    best_a: str
    prob_a: float
    best_b: str
    prob_b: float
    distance: float


@dataclass(frozen=True, repr=False)
class Comparison:
    """The differences of two tables A and B.

    Attributes:
        only_a: Source words that only A has: sorted, numbers last, or in the order of the words that were asked for.
        only_b: Source words that only B has.
        shared: Source words that both have.
        distances: The total variation distance of the translations of each of ``shared``.
        new_best: Which of ``shared`` have another best translation in B. Of equally probable ones none is the best:
            the best of neither table is among those of the other.
    """

    only_a: list[str]
    only_b: list[str]
    shared: list[str]
    distances: npt.NDArray[np.float64]
    new_best: npt.NDArray[np.bool_]
    _tables: tuple[TranslationTable, TranslationTable] = field(compare=False)
    _rows: tuple[_Ids, _Ids] = field(compare=False)

    @property
    def changed(self) -> int:
        """How many of ``shared`` have other translations or probabilities in B (rounding apart)."""
        return int(np.count_nonzero(self.distances > _SAME))

    @property
    def mean_distance(self) -> float:
        """The mean of ``distances``; 0 if no word is shared."""
        return float(self.distances.mean()) if len(self.distances) else 0.0

    def new_best_words(self, top: int | None = None) -> list[Change]:
        """Returns the words whose best translation is another one in B, those that changed most first."""
        return self._changes(self._order(np.flatnonzero(self.new_best))[:top])

    def largest_changes(self, top: int | None = None) -> list[Change]:
        """Returns the words whose translations changed, those that changed most first."""
        return self._changes(self._order(np.flatnonzero(self.distances > _SAME))[:top])

    def _order(self, chosen: _Ids) -> _Ids:
        # Stable: of equal changes, the word that comes first in the topics, or in the alphabet.
        ordered: _Ids = chosen[np.argsort(-self.distances[chosen], kind="stable")]
        return ordered

    def _changes(self, chosen: _Ids) -> list[Change]:
        found = []
        for i in chosen.tolist():
            (best_a, prob_a), (best_b, prob_b) = (
                _best(table, int(rows[i])) for table, rows in zip(self._tables, self._rows, strict=True)
            )
            found.append(Change(self.shared[i], best_a, prob_a, best_b, prob_b, float(self.distances[i])))
        return found

    def to_frame(self) -> pd.DataFrame:
        """Returns :meth:`largest_changes` as a frame."""
        return pd.DataFrame(self.largest_changes(), columns=list(Change._fields))

    def as_json(self, top: int | None = None) -> dict[str, Any]:
        """Returns the numbers, and at most ``top`` words of each kind, as JSON values."""
        return {
            "shared": len(self.shared), "only_a": len(self.only_a), "only_b": len(self.only_b),
            "changed": self.changed, "new_best": int(self.new_best.sum()), "mean_distance": self.mean_distance,
            "words_only_in_a": self.only_a[:top], "words_only_in_b": self.only_b[:top],
            "words_with_new_best": [change._asdict() for change in self.new_best_words(top)],
            "largest_changes": [change._asdict() for change in self.largest_changes(top)],
        }  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"Comparison({len(self.only_a):,} source words only in A, {len(self.only_b):,} only in B, "
            f"{len(self.shared):,} in both, {self.changed:,} of them changed)"
        )


#: Distances up to this are rounding: probabilities are float32.
_SAME = 1e-6


def compare(a: TranslationTable, b: TranslationTable, words: Iterable[str] | None = None) -> Comparison:
    """Compares two tables of the same languages and analyzers.

    For the distance, the probabilities of each word's translations are made to sum to 1.

    Example::

        >>> compare(TranslationTable.load("de-en"), TranslationTable.load("mine.table")).largest_changes(top=20)

    Args:
        a: A table.
        b: Another one.
        words: Only these source words, in normal form and in this order, such as the terms of queries; ``None``: all.

    Raises:
        ValueError: If languages or analyzers differ.
    """
    a._check_same_words(b)
    if words is None:
        numbers_b = {word: i for i, word in enumerate(b.source_words[:])}
        numbers_a = {word: i for i, word in enumerate(a.source_words[:])}
        asked: Iterable[str] = sorted(numbers_a.keys() | numbers_b.keys(), key=_words_first)
    else:
        asked = dict.fromkeys(words)
        numbers_a, numbers_b = (
            {word: i for word in asked if (i := table.source_words.find(word)) >= 0} for table in (a, b)
        )
    shared = [word for word in asked if word in numbers_a and word in numbers_b]
    rows_a, rows_b = (
        np.array([numbers[word] for word in shared], dtype=np.int64) for numbers in (numbers_a, numbers_b)
    )
    ids_a, ids_b, size = _merged(a.target_words, b.target_words)
    keys_a, probs_a = _entries(a, rows_a, ids_a, size)
    keys_b, probs_b = _entries(b, rows_b, ids_b, size)
    keys, position = np.unique(np.concatenate([keys_a, keys_b]), return_inverse=True)
    signed = np.concatenate([probs_a, -probs_b])
    difference = np.abs(np.bincount(position, weights=signed, minlength=len(keys)))
    distances = np.bincount(keys // size, weights=difference, minlength=len(shared)) / 2
    return Comparison(
        only_a=[word for word in asked if word in numbers_a and word not in numbers_b],
        only_b=[word for word in asked if word in numbers_b and word not in numbers_a],
        shared=shared,
        distances=np.minimum(distances, 1.0),
        new_best=_is_beaten(a, rows_a, ids_a, keys_b, probs_b, size)
        & _is_beaten(b, rows_b, ids_b, keys_a, probs_a, size),
        _tables=(a, b),
        _rows=(rows_a, rows_b),
    )


def _words_first(word: str) -> tuple[bool, str]:
    """Orders words before numbers, of which tables have many that say little."""
    return any(map(str.isdigit, word)), word


def _merged(a: Vocabulary, b: Vocabulary) -> tuple[_Ids, _Ids, int]:
    """The words of two vocabularies as numbers in a common one, and its size, at least 1."""
    number: dict[str, int] = {}
    a_ids, b_ids = (
        np.array([number.setdefault(word, len(number)) for word in words[:]], dtype=np.int64) for words in (a, b)
    )
    return a_ids, b_ids, max(len(number), 1)


def _entries(table: TranslationTable, rows: _Ids, targets: _Ids, size: int) -> tuple[_Ids, npt.NDArray[np.float64]]:
    """Keys, the place of a row x ``size`` + the number of a target, and probabilities that sum to 1 in each row."""
    start = np.asarray(table.rows[rows])
    counts = table.rows[rows + 1] - start
    row = np.repeat(np.arange(len(rows)), counts)
    at = np.arange(len(row)) + np.repeat(start - np.cumsum(counts) + counts, counts)
    probs = table.probs[at].astype(np.float64)
    sums = np.bincount(row, weights=probs, minlength=len(rows))
    return row * size + targets[table.columns[at]], probs / sums[row]


def _is_beaten(
    table: TranslationTable, rows: _Ids, targets: _Ids, keys: _Ids, probs: npt.NDArray[np.float64], size: int
) -> npt.NDArray[np.bool_]:
    """Whether the best translation in each row of a table is less probable than another one in the other table.

    Args:
        table: The table.
        rows: The rows.
        targets: The common numbers of its targets.
        keys: The entries of the other table's rows, as of :func:`_entries`.
        probs: Their probabilities.
        size: Size of the common vocabulary.
    """
    row = np.arange(len(rows))
    best = row * size + targets[table.columns[table.rows[rows]]]
    highest = np.zeros(len(rows))
    np.maximum.at(highest, keys // size, probs)
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys[order], best), max(len(keys) - 1, 0))
    found = order[at]
    there = np.where(keys[found] == best, probs[found], 0.0) if len(keys) else highest
    beaten: npt.NDArray[np.bool_] = there < highest - _SAME
    return beaten


def _best(table: TranslationTable, row: int) -> tuple[str, float]:
    first = int(table.rows[row])
    return table.target_words[int(table.columns[first])], float(table.probs[first])
