"""Semantic textual similarity: correlations of cosines with gold scores."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyterrier_mart.datasets.graded_pairs import PairCorpus
from pyterrier_mart.evaluation.lareqa import Encoder, Post, Vectors, encoded

__all__ = ["sts_evaluate"]


def sts_evaluate(
    system: Encoder, pairs: PairCorpus, *, post: Post | None = None, vectors: Vectors | None = None
) -> pd.DataFrame:
    """Correlates the cosine of sentence pairs with the gold similarity, track by track.

    Both sentences are encoded as queries are: the task is symmetric.

    Args:
        system: The encoder, or a retriever that has one as ``encoder`` (its ``post`` is used if none is given).
        pairs: The pairs.
        post: What changes the vectors before they are compared.
        vectors: Vectors of texts, by side and text. Those that lack are encoded and added.

    Returns:
        ``track``, ``pairs`` (their number), ``pearson`` and ``spearman``, both times 100; NaN for fewer than two pairs
        or where all scores are the same.
    """
    from scipy import stats

    frame = pairs.pairs
    first, second = (
        encoded(system, frame[text].tolist(), "query", frame[lang].tolist(), post, vectors)
        for text, lang in (("sentence1", "lang1"), ("sentence2", "lang2"))
    )
    # Rounded, so that pairs of the same sentence twice are tied.
    cosine = np.einsum("ij,ij->i", first, second, dtype=np.float64).round(6)
    rows = []
    for track, index in frame.reset_index(drop=True).groupby("track", sort=False).groups.items():
        found, gold = cosine[index], frame["score"].to_numpy(dtype=np.float64)[index]
        constant = len(index) < 2 or np.ptp(found) == 0 or np.ptp(gold) == 0
        pearson, spearman = (
            np.nan if constant else 100 * float(correlation(found, gold).statistic)
            for correlation in (stats.pearsonr, stats.spearmanr)
        )
        rows.append((track, len(index), pearson, spearman))
    return pd.DataFrame(rows, columns=["track", "pairs", "pearson", "spearman"])
