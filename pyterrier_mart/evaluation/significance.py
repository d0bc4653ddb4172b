"""Significance tests for :func:`pyterrier.Experiment` that have a p-value for any two systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyterrier_mart.checks import check_choice

__all__ = ["paired_test"]

Values = npt.NDArray[np.float64]
_TESTS = {"t": "ttest_rel", "wilcoxon": "wilcoxon"}


def paired_test(test: str | Callable[[Values, Values], Any] = "t") -> Callable[[Any, Any], tuple[None, float]]:
    """Returns a test for the argument ``test`` of :func:`pyterrier.Experiment`, whose p-value is never NaN.

    PyTerrier has none for a system that equals the baseline, or if a topic has no judgments, and such a NaN spoils the
    correction of the other systems' p-values. Here it is 1 where nothing speaks against the null hypothesis, and topics
    without a value are left out.

    Example::

        pt.Experiment(systems, topics, qrels, [AP @ 100], baseline=0, correction="holm", test=paired_test())

    Args:
        test: ``"t"`` (``scipy.stats.ttest_rel``), ``"wilcoxon"``, or a function of the values of a system and of the
            baseline, topic by topic, whose second result is the p-value.

    Raises:
        ValueError: If there is no such test.
    """
    from scipy import stats

    if isinstance(test, str):
        check_choice("test", test, _TESTS)
    compare = getattr(stats, _TESTS[test]) if isinstance(test, str) else test

    def compared(values: Values, baseline: Values) -> tuple[None, float]:
        known = ~(np.isnan(values) | np.isnan(baseline))
        values, baseline = values[known], baseline[known]
        if len(values) < 2 or np.array_equal(values, baseline):
            return None, 1.0
        p = float(compare(values, baseline)[1])
        return None, 1.0 if np.isnan(p) else p

    return compared
