"""What is different between two translation tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyterrier_mart.translation.matrix import check_same_words
from pyterrier_mart.translation.table import TranslationTable

__all__ = ["Change", "Comparison", "compare"]

#: Distances up to this are rounding: probabilities are float32.
_SAME = 1e-6


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
        return self._changes(self.new_best, top)

    def largest_changes(self, top: int | None = None) -> list[Change]:
        """Returns the words whose translations changed, those that changed most first."""
        return self._changes(self.distances > _SAME, top)

    def _changes(self, which: npt.NDArray[np.bool_], top: int | None) -> list[Change]:
        chosen = np.flatnonzero(which)
        # Stable: of equal changes, the word that comes first in the topics, or in the alphabet.
        chosen = chosen[np.argsort(-self.distances[chosen], kind="stable")][:top]
        a, b = self._tables
        changes = []
        for i in chosen.tolist():
            word = self.shared[i]
            best = *next(iter(a.translations(word, 1).items())), *next(iter(b.translations(word, 1).items()))
            changes.append(Change(word, *best, float(self.distances[i])))
        return changes

    def to_frame(self) -> pd.DataFrame:
        """Returns :meth:`largest_changes` as a frame."""
        return pd.DataFrame(self.largest_changes(), columns=list(Change._fields))

    def as_json(self) -> dict[str, Any]:
        """Returns the numbers and all words as JSON values."""
        return {
            "shared": len(self.shared), "only_a": len(self.only_a), "only_b": len(self.only_b),
            "changed": self.changed, "new_best": int(self.new_best.sum()), "mean_distance": self.mean_distance,
            "words_only_in_a": self.only_a, "words_only_in_b": self.only_b,
            "words_with_new_best": [change._asdict() for change in self.new_best_words()],
            "largest_changes": [change._asdict() for change in self.largest_changes()],
        }  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"Comparison({len(self.only_a):,} source words only in A, {len(self.only_b):,} only in B, "
            f"{len(self.shared):,} in both, {self.changed:,} of them changed)"
        )


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
    check_same_words(a, b)
    numbers_a, numbers_b = ({word: i for i, word in enumerate(table.source_words[:])} for table in (a, b))
    if words is None:  # numbers last: tables have many, which say little
        asked: Iterable[str] = sorted(
            numbers_a.keys() | numbers_b.keys(), key=lambda word: (any(map(str.isdigit, word)), word)
        )
    else:
        asked = dict.fromkeys(words)
    shared = [word for word in asked if word in numbers_a and word in numbers_b]
    number = {word: i for i, word in enumerate(sorted({*a.target_words, *b.target_words}))}
    rows_a, rows_b = (shared_rows(table, shared, number) for table in (a, b))
    both = rows_a.merge(rows_b, on=["row", "target"], how="outer", suffixes=("_a", "_b")).fillna(0.0)
    both["difference"] = (both["prob_a"] - both["prob_b"]).abs()
    distances = both.groupby("row")["difference"].sum().to_numpy() / 2
    return Comparison(
        only_a=[word for word in asked if word in numbers_a and word not in numbers_b],
        only_b=[word for word in asked if word in numbers_b and word not in numbers_a],
        shared=shared,
        distances=np.minimum(distances, 1.0),
        new_best=is_beaten(both, "prob_a", "prob_b") & is_beaten(both, "prob_b", "prob_a"),
        _tables=(a, b),
    )


def shared_rows(table: TranslationTable, words: Sequence[str], number: Mapping[str, int]) -> pd.DataFrame:
    """Returns some rows of a table: the place of the word, the number of the target, and probabilities summing to 1.

    Args:
        table: The table.
        words: The source words.
        number: Numbers of the target words, in their order.
    """
    place = np.full(len(table.source_words), -1)
    place[[table.source_words.find(word) for word in words]] = np.arange(len(words))
    targets = np.array([number[word] for word in table.target_words[:]], dtype=np.int64)
    rows = pd.DataFrame({
        "row": place[table.row_numbers], "target": targets[table.columns], "prob": table.probs.astype(np.float64)
    })  # fmt: skip
    rows = rows[rows["row"] >= 0]
    return rows.assign(prob=rows["prob"] / rows.groupby("row")["prob"].transform("sum"))


def is_beaten(both: pd.DataFrame, one: str, other: str) -> npt.NDArray[np.bool_]:
    """Returns whether the best translation of each word in one table is less probable than another in the other."""
    best = both.sort_values(["row", one, "target"], ascending=[True, False, True]).groupby("row")[other].first()
    beaten: npt.NDArray[np.bool_] = (best < both.groupby("row")[other].max() - _SAME).to_numpy(bool)
    return beaten
