"""Rows of vectors of which many are the same, and bars that show how many texts are encoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyterrier as pt

__all__ = ["Bar", "Rows", "each"]

Vectors = npt.NDArray[np.float32]

_PART = 65536  # rows that are scored at a time


class Rows:
    """Vectors of rows, of which many are the same.

    Args:
        get: Returns vectors by their places.
        places: The place of each row.
        distinct: All vectors, where they are in memory.
    """

    def __init__(
        self,
        get: Callable[[Any], Vectors],
        places: npt.NDArray[np.int64],
        distinct: Vectors | None = None,
    ):
        self._get, self.places = get, places
        self._distinct = distinct

    @property
    def distinct(self) -> Vectors:
        """All vectors."""
        assert self._distinct is not None
        return self._distinct

    def dot(self, other: Rows) -> npt.NDArray[np.float64]:
        """Returns the dot product of each row with that of the other, a part at a time."""
        scores = np.empty(len(self.places), dtype=np.float64)
        for start in range(0, len(scores), _PART):
            part = slice(start, start + _PART)
            left, right = self._get(self.places[part]), other._get(other.places[part])
            scores[part] = np.einsum("ij,ij->i", left, right)
        return scores


class Bar:
    """A progress bar, or none if there is nothing to do; gives what moves it on.

    Args:
        total: How many texts there are to encode.
        name: What is said before it.
    """

    def __init__(self, total: int, name: str):
        self._total, self._name, self._bar = total, name, None

    def __enter__(self) -> Callable[[int], object] | None:
        if not self._total:
            return None
        self._bar = pt.tqdm(total=self._total, desc=self._name, unit="text")
        return self._bar.update  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def each(
    places: npt.NDArray[np.int64], queries: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Gives each row the hits of its query.

    Args:
        places: The query of each row.
        queries: The query of each hit, sorted.

    Returns:
        The row, and the position of the hit, of each pair of the two.
    """
    starts, ends = (np.searchsorted(queries, places, side=side) for side in ("left", "right"))
    counts = ends - starts
    rows = np.repeat(np.arange(len(places)), counts)
    return rows, np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - starts, counts)
