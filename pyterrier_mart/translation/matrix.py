"""P(target word | source word) in arrays: what a translation table answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyterrier_mart.checks import check_whole
from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation.vocabulary import Vocabulary

__all__ = ["WordMatrix", "check_same_words"]


class WordMatrix:
    """One row of translations a source word, sorted by falling probability.

    The best ``k`` translations are therefore the first ``k`` of a row. Words are in the normal form of the analyzers.

    Attributes:
        rows: int64 (n_source + 1); row ``i`` is ``rows[i]:rows[i + 1]`` of the entries.
        columns: int32 (n_entries), numbers of target words.
        probs: float32 (n_entries).
        source_words: The source words, sorted.
        target_words: The target words, sorted.
        source: Analyzer of the source language.
        target: Analyzer of the target language.
    """

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]
    probs: npt.NDArray[np.float32]
    source_words: Vocabulary
    target_words: Vocabulary
    source: Analyzer
    target: Analyzer

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source.lang, self.target.lang

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by their names on disk."""
        return {
            "source_text": self.source_words.text, "source_offsets": self.source_words.offsets,
            "target_text": self.target_words.text, "target_offsets": self.target_words.offsets,
            "rows": self.rows, "columns": self.columns, "probs": self.probs,
        }  # fmt: skip

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.probs)

    def source_id(self, word: str) -> int:
        """Returns the number of a source word, or -1. A word that is not in normal form is analysed first."""
        return find(self.source_words, self.source, word)

    def target_id(self, word: str) -> int:
        """Returns the number of a target word, or -1. A word that is not in normal form is analysed first."""
        return find(self.target_words, self.target, word)

    def translations(self, word: str, top_k: int | None = None, threshold: float = 0.0) -> dict[str, float]:
        """Returns the translations of a word and their probabilities, the best first; none for an unknown word.

        Args:
            word: A source word.
            top_k: Maximum number of translations; ``None`` for all.
            threshold: Least probability of a translation.
        """
        check_whole("top_k", top_k, optional=True)
        i = self.source_id(word)
        if i < 0:
            return {}
        columns, probs = self.row(i)
        end = int(np.count_nonzero(probs[:top_k] >= np.float32(threshold)))  # as rows are sorted
        found = zip(columns[:end].tolist(), probs[:end].tolist(), strict=True)
        return {self.target_words[column]: prob for column, prob in found}

    def prob(self, target: str, source: str) -> float:
        """Returns P(target | source), 0 where the table has no entry."""
        i, j = self.source_id(source), self.target_id(target)
        if i < 0 or j < 0:
            return 0.0
        columns, probs = self.row(i)
        return float(probs[columns == j].sum())

    def row(self, i: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Returns the numbers of the translations of source word ``i`` and their probabilities, the best first.

        Raises:
            ValueError: If they cannot be that: the files are damaged where they were not compared with checksums.
        """
        row = slice(self.rows[i], self.rows[i + 1])
        columns, probs = self.columns[row], self.probs[row]
        # NaN fails each of these; a negative number is a large one without sign.
        if not (len(probs) and probs[0] <= 1 and probs[-1] >= 0 and (probs[1:] <= probs[:-1]).all()
                and columns.view(np.uint32).max() < len(self.target_words)):  # fmt: skip
            found = f"{probs[:5].tolist()} of the words {columns[:5].tolist()}"
            raise ValueError(f"damaged {self!r}: the translations of {self.source_words[i]!r} have P = {found}")
        return columns, probs

    def check_entries(self) -> None:
        """Checks all entries in the way of :meth:`row`, before they are read as whole arrays.

        Raises:
            ValueError: If they cannot be those of a table.
        """
        probs = self.probs
        if not (np.diff(self.rows) > 0).all() or (len(probs) and not (
            0 <= probs.min() and probs.max() <= 1 and self.columns.view(np.uint32).max() < len(self.target_words)
        )):  # fmt: skip
            raise ValueError(f"damaged {self!r}: it holds numbers that are no probabilities, or belong to no words")

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.source_id(word) >= 0

    def coverage(self, words: Iterable[str]) -> float:
        """Returns the share of the given source words that the table knows (repeated words count repeatedly).

        No words at all are covered fully.
        """
        counts = Counter(words)
        return sum(n for word, n in counts.items() if word in self) / counts.total() if counts else 1.0

    @property
    def row_numbers(self) -> npt.NDArray[np.int64]:
        """For each entry the number of its source word; all entries are checked."""
        self.check_entries()
        return np.repeat(np.arange(len(self.source_words)), np.diff(self.rows))

    def to_frame(self) -> pd.DataFrame:
        """Returns the entries as a frame: ``source``, ``target``, ``prob``."""
        s_words, t_words = np.array(self.source_words[:], dtype=object), np.array(self.target_words[:], dtype=object)
        return pd.DataFrame(
            {"source": s_words[self.row_numbers], "target": t_words[self.columns], "prob": np.array(self.probs)}
        )

    def entries(self) -> Iterator[tuple[str, str, float]]:
        """Yields (source, target, probability) in order, without building a frame of them."""
        targets = self.target_words[:]
        for i, word in enumerate(self.source_words):
            for j, prob in zip(*(part.tolist() for part in self.row(i)), strict=True):
                yield word, targets[j], prob


def find(words: Vocabulary, analyzer: Analyzer, word: str) -> int:
    """Returns the number of a word that may not be in normal form, or -1."""
    i = words.find(word)
    if i < 0:
        analysed = analyzer.tokens(word)
        if len(analysed) == 1 and analysed[0] != word:
            i = words.find(analysed[0])
    return i


def check_same_words(one: WordMatrix, *others: WordMatrix) -> None:
    """Checks that tables can be combined or compared.

    Raises:
        ValueError: If their languages or analyzers differ.
    """
    for other in others:
        if (other.source.spec, other.target.spec) != (one.source.spec, one.target.spec):
            raise ValueError(
                f"cannot combine {one!r} with {other!r}: the analyzers differ "
                f"({one.source.spec}, {one.target.spec} and {other.source.spec}, {other.target.spec})"
            )
