"""Splits of topics for cross-validation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

__all__ = ["Fold", "split"]


@dataclass(frozen=True)
class Fold:
    """One fold of a cross-validation: which queries train, which choose the model, and which test it.

    Attributes:
        index: Position of the fold, from 0.
        train: The qids to train on, sorted.
        valid: The qids to choose the best model by, sorted.
        test: The qids to test on, sorted.
        seed: A seed for what is random in training, another one in each fold.
    """

    index: int
    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    seed: int


def split(topics: pd.DataFrame, folds: int = 5, *, seed: int = 42, groups: pd.Series | str | None = None) -> list[Fold]:
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
    qids = sorted(qids_of(topics))
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 3:
        raise ValueError(f"folds={folds!r}: expected a whole number from 3 on, to train, validate and test on.")
    units: dict[str, list[str]] = {}
    for qid, group in zip(qids, _groups(topics, qids, groups), strict=True):
        units.setdefault(group, []).append(qid)
    if folds > len(units):
        what = "queries" if groups is None else "groups"
        raise ValueError(f"folds={folds}: expected no more folds than {what} in the topics, which are {len(units)}.")
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
    if "qid" not in topics.columns:
        raise ValueError(f"topics: expected a column 'qid', found {list(topics.columns)}.")
    if topics["qid"].isna().any():
        raise ValueError(f"topics: expected a qid in every row, {int(topics['qid'].isna().sum())} have none.")
    qids = topics["qid"].astype(str)
    if qids.duplicated().any():
        twice = qids[qids.duplicated()].unique()
        raise ValueError(f"topics: expected every qid once, found {some(twice)} more than once.")
    return list(qids)


def shuffled(values: Iterable[str], seed: int, purpose: str = "") -> list[str]:
    """Returns values in an order that the seed gives: the same on every machine, however they came."""
    return sorted(values, key=lambda value: (hashlib.sha256(f"{seed}\t{purpose}\t{value}".encode()).digest(), value))


def _groups(topics: pd.DataFrame, qids: list[str], groups: pd.Series | str | None) -> list[str]:
    """Returns the group of each of the qids, written as text."""
    if groups is None:
        return qids
    if isinstance(groups, str):
        if groups not in topics.columns:
            raise ValueError(f"groups={groups!r}: expected a column of the topics, found {list(topics.columns)}.")
        series = pd.Series(topics[groups].array, index=topics["qid"].array)
    else:
        series = groups
    found = {str(qid): group for qid, group in series.items() if not pd.isna(group)}
    without = [qid for qid in qids if qid not in found]
    if without:
        raise ValueError(f"groups: expected a group for every qid, in a series by qid, found none for {some(without)}.")
    return [str(found[qid]) for qid in qids]


def some(values: Iterable[str], limit: int = 3) -> str:
    """Returns some of the values, to name them in a message."""
    values = list(values)
    return ", ".join(map(repr, values[:limit])) + (f" and {len(values) - limit} more" if len(values) > limit else "")
