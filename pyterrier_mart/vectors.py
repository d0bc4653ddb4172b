"""Arithmetic of vectors that several rooms share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["dot_products", "unit"]

_PART = 65536  # rows that are multiplied at a time


def unit(vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Returns vectors of shape (texts, dimension) scaled to length 1; a vector of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def dot_products(
    left: npt.NDArray[np.float32],
    left_rows: npt.NDArray[np.int64],
    right: npt.NDArray[np.float32],
    right_rows: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Returns the dot product of some rows of two matrices, pair by pair, a part at a time."""
    scores = np.empty(len(left_rows), dtype=np.float64)
    for start in range(0, len(scores), _PART):
        part = slice(start, start + _PART)
        scores[part] = np.einsum("ij,ij->i", left[left_rows[part]], right[right_rows[part]])
    return scores
