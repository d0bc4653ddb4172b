"""Translations and their weights as plain arrays: what files and aligners give, and what a table is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pyterrier_mart.text import Analyzer

__all__ = ["Entries", "Weights", "table_analyzer"]

#: What the weights of entries mean: P(target | source); counts or scores, to be divided by their sum over the source
#: word; or nothing, because a dictionary lists translations without weights and they share the source word equally.
Weights = Literal["probability", "count", "uniform"]


@dataclass(frozen=True)
class Entries:
    """Entries (source word, target word, weight); equal pairs may occur repeatedly, and words may have none.

    Attributes:
        source: Analyzer of the source language.
        target: Analyzer of the target language.
        source_words: The source words in normal form, sorted and distinct.
        target_words: The target words likewise.
        s: int64, for each entry the position of its source word.
        t: int64, for each entry the position of its target word.
        w: float64, for each entry its weight.
        weights: What the weights mean.
        meta: Provenance (JSON values).
    """

    source: Analyzer
    target: Analyzer
    source_words: list[str]
    target_words: list[str]
    s: npt.NDArray[np.int64]
    t: npt.NDArray[np.int64]
    w: npt.NDArray[np.float64]
    weights: Weights = "probability"
    meta: Mapping[str, Any] = field(default_factory=dict)


def table_analyzer(analyzer: Analyzer | str) -> Analyzer:
    """Returns the analyzer of a language that keeps stop words: whether they are used, queries and indexes decide."""
    return Analyzer(analyzer) if isinstance(analyzer, str) else Analyzer.from_spec(analyzer.spec)
