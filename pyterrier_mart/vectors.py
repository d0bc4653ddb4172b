"""Arithmetic of vectors that several rooms share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["unit"]


def unit(vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Returns vectors of shape (texts, dimension) scaled to length 1; a vector of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
