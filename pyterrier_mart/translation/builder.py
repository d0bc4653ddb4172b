"""From (source word, target word, weight) entries, as some file or aligner spells them, to a table."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation.faults import Faults, TableFormatError

if TYPE_CHECKING:
    from pyterrier_mart.translation.table import TranslationTable

__all__ = ["TableBuilder", "TableFormatError", "Weights"]

#: What the weights of entries mean: P(target | source); counts or scores, to be divided by their sum over the source
#: word; or nothing, because a dictionary lists translations without weights and they share the source word equally.
Weights = Literal["probability", "count", "uniform"]

_ROW_SUM_TOLERANCE = 0.01  # tables are printed with a few decimals


class TableBuilder(Faults):
    """Collects entries and makes a :class:`~pyterrier_mart.TranslationTable` of them.

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
        phrases: Literal["drop", "split"] = "drop",
        on_error: Literal["raise", "skip"] = "raise",
    ):
        # Stop words belong in tables: whether a query or an index uses them is decided there.
        self.source = Analyzer(source) if isinstance(source, str) else Analyzer.from_spec(source.spec)
        self.target = Analyzer(target) if isinstance(target, str) else Analyzer.from_spec(target.spec)
        if phrases not in ("drop", "split"):
            raise ValueError(f"phrases must be 'drop' or 'split', not {phrases!r}")
        super().__init__(where, on_error)
        self.phrases = phrases
        self._sources: dict[str, int] = {}  # spelling -> number, in order of appearance
        self._targets: dict[str, int] = {}
        self._s, self._t, self._lines = array("i"), array("i"), array("q")
        self._w = array("d")

    def add(self, source: str, target: str, weight: float = 1.0, line: int = 0) -> None:
        """Adds one entry as it is spelled; ``line`` is its place for messages (0: none)."""
        if not 0.0 <= weight < float("inf"):  # NaN fails too
            self.bad(f"the weight {weight!r} is not a finite number >= 0", line)
            return
        self._s.append(self._sources.setdefault(source, len(self._sources)))
        self._t.append(self._targets.setdefault(target, len(self._targets)))
        self._w.append(weight)
        self._lines.append(line)

    def add_frame(self, frame: pd.DataFrame, columns: tuple[str, str, str | None], first: int = 1) -> None:
        """Adds the rows of a frame; ``columns`` names those of source, target and weight (``None``: weight 1).

        The place of a row in messages is its number; ``first`` is that of the first row.

        Raises:
            TableFormatError: If a column is missing, or a cell is not a word or number (unless skipped).
        """
        if missing := [name for name in columns if name is not None and name not in frame.columns]:
            raise TableFormatError(
                f"{self.where}: missing column {', '.join(map(repr, missing))}; found {list(map(str, frame.columns))}"
            )
        s_name, t_name, w_name = columns
        weights = frame[w_name].tolist() if w_name is not None else [1.0] * len(frame)
        rows = zip(frame[s_name].tolist(), frame[t_name].tolist(), weights, strict=True)
        for line, (source, target, weight) in enumerate(rows, start=first):
            if not isinstance(source, str) or not isinstance(target, str):
                self.bad(f"expected two words, found {source!r} and {target!r}", line)
            elif isinstance(weight, bool) or not isinstance(weight, Real):
                self.bad(f"expected a number in column {w_name!r}, found {weight!r}", line)
            else:
                self.add(source, target, float(weight), line)

    def __len__(self) -> int:
        return len(self._w)

    def table(self, weights: Weights, meta: Mapping[str, Any] | None = None) -> TranslationTable:
        """Makes the table.

        Args:
            weights: What the weights mean.
            meta: Provenance to keep with the table (JSON values), such as ``source`` and ``licence``.

        Raises:
            TableFormatError: If a probability is above 1, the probabilities of a source word sum to more than 1 (the
                usual cause: source and target columns are swapped), or a pair is listed twice.
        """
        from pyterrier_mart.translation.table import TranslationTable

        if weights not in get_args(Weights):
            raise ValueError(f"weights must be one of {', '.join(map(repr, get_args(Weights)))}, not {weights!r}")
        s = np.array(self._s, dtype=np.int64)
        t = np.array(self._t, dtype=np.int64)
        w = np.array(self._w, dtype=np.float64)
        if weights == "probability":
            keep = self._check_probabilities(s, t, w)
            s, t, w = s[keep], t[keep], w[keep]
        s_words, s_parts = _analyse(self._sources, self.source, split=False)
        t_words, t_parts = _analyse(self._targets, self.target, split=self.phrases == "split")

        n_parts = s_parts.counts[s] * t_parts.counts[t]  # a source has one part or none
        entry = np.repeat(np.arange(len(s)), n_parts)
        nth = np.arange(len(entry)) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
        s, t, w = s[entry], t[entry], w[entry] / n_parts[entry]
        s_ids, t_ids = s_parts.words[s_parts.start[s]], t_parts.words[t_parts.start[t] + nth]
        if weights == "probability":
            # Several spellings of a word are averaged: those of which an entry is left.
            spelled = s_parts.words[s_parts.start[np.unique(s)]]
            w = w / np.bincount(spelled, minlength=1)[s_ids]

        meta = dict(meta or {})
        if dropped := int(np.count_nonzero(n_parts == 0)):
            meta["entries_not_of_single_words"] = dropped
        if self.malformed:
            meta["malformed_entries_skipped"] = self.malformed
            self.warn_of_skipped(stacklevel=3)
        return TranslationTable._from_entries(
            s_words, t_words, s_ids, t_ids, w, weights=weights, source=self.source, target=self.target, meta=meta
        )

    def _check_probabilities(
        self, s: npt.NDArray[np.int64], t: npt.NDArray[np.int64], w: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Checks that the weights are conditional probabilities; returns which entries to keep."""
        keep = np.ones(len(w), dtype=bool)
        s_words, t_words = list(self._sources), list(self._targets)
        for i in np.flatnonzero(w > 1.0):
            self.bad(f"the probability {w[i]:g} is above 1", self._lines[i])
            keep[i] = False
        kept = np.flatnonzero(keep)
        order = kept[np.argsort(s[kept] * (len(t_words) + 1) + t[kept], kind="stable")]
        again = order[1:][(np.diff(s[order]) == 0) & (np.diff(t[order]) == 0)]
        for i in np.sort(again):
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


class _Parts(NamedTuple):
    """The words that each spelling consists of: ``words[start[i] : start[i] + counts[i]]`` for spelling ``i``."""

    start: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]


def _analyse(spellings: Iterable[str], analyzer: Analyzer, *, split: bool) -> tuple[list[str], _Parts]:
    """Analyses each spelling once; returns the sorted words and which of them each spelling consists of.

    A spelling of no word, or of several where ``split`` is false, consists of none.
    """
    parts = [words if split or len(words) == 1 else [] for words in map(analyzer.tokens, spellings)]
    vocabulary = sorted({word for words in parts for word in words})
    number = {word: i for i, word in enumerate(vocabulary)}
    counts = np.array([len(words) for words in parts], dtype=np.int64)
    flat = np.array([number[word] for words in parts for word in words], dtype=np.int64)
    return vocabulary, _Parts(np.cumsum(counts) - counts, counts, flat)
