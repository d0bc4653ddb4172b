"""From (source word, target word, weight) entries, as some file spells them, to entries in normal form."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyterrier_mart.checks import check_choice
from pyterrier_mart.problems import Faults, TableFormatError
from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation.entries import Entries, Weights, table_analyzer

__all__ = ["EntryBuilder", "Phrases", "TableFormatError"]

#: What to do with a target of several words: drop it, or split its weight evenly over them.
Phrases = Literal["drop", "split"]

_ROW_SUM_TOLERANCE = 0.01  # tables are printed with a few decimals


class EntryBuilder(Faults):
    """Collects entries as they are spelled.

    Words are analysed once per spelling. A source that is not exactly one word for its analyzer (a phrase,
    punctuation, GIZA++'s NULL) is dropped and counted. Source spellings that become the same word (Haus, haus) are
    averaged, target spellings are summed.

    Args:
        source: Analyzer of the source language, or its code.
        target: Analyzer of the target language, or its code.
        where: What messages name as the place of an entry, usually a path.
        phrases: What to do with a target of several words: ``"drop"`` it, or ``"split"`` its weight evenly over them.
        on_error: ``"raise"`` on a malformed entry, or ``"skip"`` it and report the number in the end.
    """

    def __init__(
        self,
        source: Analyzer | str,
        target: Analyzer | str,
        *,
        where: str = "entries",
        phrases: Phrases = "drop",
        on_error: Literal["raise", "skip"] = "raise",
    ):
        super().__init__(where, on_error)
        check_choice("phrases", phrases, ("drop", "split"))
        self.source, self.target, self.phrases = table_analyzer(source), table_analyzer(target), phrases
        self._sources: dict[str, int] = {}  # spelling -> number, in order of appearance
        self._targets: dict[str, int] = {}
        self._s, self._t, self._w, self._lines = array("q"), array("q"), array("d"), array("q")

    def add(self, source: str, target: str, weight: float = 1.0, line: int = 0) -> None:
        """Adds one entry as it is spelled; ``line`` is its place for messages (0: none)."""
        if not 0.0 <= weight < float("inf"):  # NaN fails too
            self.bad(f"the weight {weight!r} is not a finite number >= 0", line)
            return
        self._s.append(self._sources.setdefault(source, len(self._sources)))
        self._t.append(self._targets.setdefault(target, len(self._targets)))
        self._w.append(weight)
        self._lines.append(line)

    def add_values(self, rows: Iterable[tuple[Any, Any, Any]], *, numbered: bool = False) -> None:
        """Adds entries of which it is not known whether they are two words and a number.

        Args:
            rows: The entries.
            numbered: Whether messages give the number of an entry, from 1.
        """
        for n, (source, target, weight) in enumerate(rows, start=1):
            line = n if numbered else 0
            if not isinstance(source, str) or not isinstance(target, str):
                self.bad(f"expected two words, found {source!r} and {target!r}", line)
            elif isinstance(weight, bool) or not isinstance(weight, Real):
                self.bad(f"expected a number as the weight of {source!r} -> {target!r}, found {weight!r}", line)
            else:
                self.add(source, target, float(weight), line)

    def add_frame(self, frame: pd.DataFrame, columns: tuple[str, str, str | None]) -> None:
        """Adds the rows of a frame; ``columns`` names those of source, target and weight (``None``: weight 1).

        Raises:
            TableFormatError: If a column is missing, or a cell is not a word or number (unless skipped).
        """
        if missing := [name for name in columns if name is not None and name not in frame.columns]:
            raise TableFormatError(
                f"{self.where}: missing column {', '.join(map(repr, missing))}; found {list(map(str, frame.columns))}"
            )
        weights = [1.0] * len(frame) if columns[2] is None else frame[columns[2]].tolist()
        self.add_values(
            zip(frame[columns[0]].tolist(), frame[columns[1]].tolist(), weights, strict=True), numbered=True
        )

    def __len__(self) -> int:
        return len(self._w)

    def entries(self, weights: Weights, meta: Mapping[str, Any] | None = None) -> Entries:
        """Returns the entries in normal form.

        Args:
            weights: What the weights mean.
            meta: Provenance (JSON values), such as ``source`` and ``licence``.

        Raises:
            TableFormatError: If a probability is above 1, the probabilities of a source word sum to more than 1 (the
                usual cause: source and target columns are swapped), or a pair is listed twice.
        """
        check_choice("weights", weights, get_args(Weights))
        s, t = np.array(self._s, dtype=np.int64), np.array(self._t, dtype=np.int64)
        w = np.array(self._w, dtype=np.float64)
        if weights == "probability":
            keep = self._check_probabilities(s, t, w)
            s, t, w = s[keep], t[keep], w[keep]
        s_words, s_start, s_counts, s_flat = analyse(self._sources, self.source, split=False)
        t_words, t_start, t_counts, t_flat = analyse(self._targets, self.target, split=self.phrases == "split")

        n_parts = s_counts[s] * t_counts[t]  # a source has one part or none
        entry = np.repeat(np.arange(len(s)), n_parts)
        nth = np.arange(len(entry)) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
        s, t, w = s[entry], t[entry], w[entry] / n_parts[entry]
        s_ids, t_ids = s_flat[s_start[s]], t_flat[t_start[t] + nth]
        if weights == "probability":
            # Several spellings of a word are averaged: those of which an entry is left.
            spelled = s_flat[s_start[np.unique(s)]]
            w = w / np.bincount(spelled, minlength=1)[s_ids]

        noted = dict(meta or {})
        if dropped := int(np.count_nonzero(n_parts == 0)):
            noted["entries_not_of_single_words"] = dropped
        if self.malformed:
            noted["malformed_entries_skipped"] = self.malformed
            self.warn_of_skipped()
        return Entries(self.source, self.target, s_words, t_words, s_ids, t_ids, w, weights, noted)

    def _check_probabilities(
        self, s: npt.NDArray[np.int64], t: npt.NDArray[np.int64], w: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Checks that the weights are conditional probabilities; returns which entries to keep."""
        keep = w <= 1.0
        for i in np.flatnonzero(~keep):
            self.bad(f"the probability {w[i]:g} is above 1", self._lines[i])
        pairs = pd.Series(s * (len(self._targets) + 1) + t)[keep]
        s_words, t_words = list(self._sources), list(self._targets)
        for i in pairs.index[pairs.duplicated()]:
            self.bad(f"the pair {s_words[s[i]]!r} -> {t_words[t[i]]!r} is listed before", self._lines[i])
            keep[i] = False
        sums = np.bincount(s[keep], weights=w[keep], minlength=1)
        if sums.max() > 1.0 + _ROW_SUM_TOLERANCE:
            worst = int(sums.argmax())
            raise TableFormatError(
                f"{self.where}: the probabilities of the source word {s_words[worst]!r} sum to "
                f"{sums[worst]:.4g}, expected at most 1; are the source and target columns in the right order?"
            )
        return keep


_Ids = npt.NDArray[np.int64]


def analyse(spellings: Iterable[str], analyzer: Analyzer, *, split: bool) -> tuple[list[str], _Ids, _Ids, _Ids]:
    """Analyses each spelling once.

    Returns:
        The sorted words, and which of them each spelling consists of: spelling ``i`` is the words
        ``flat[start[i] : start[i] + counts[i]]`` of ``start``, ``counts`` and ``flat``. A spelling of no word, or of
        several where ``split`` is false, consists of none.
    """
    parts = [words if split or len(words) == 1 else [] for words in map(analyzer.tokens, spellings)]
    vocabulary = sorted({word for words in parts for word in words})
    number = {word: i for i, word in enumerate(vocabulary)}
    counts = np.array([len(words) for words in parts], dtype=np.int64)
    flat = np.array([number[word] for words in parts for word in words], dtype=np.int64)
    return vocabulary, np.cumsum(counts) - counts, counts, flat
