"""What transformers read from frames, and how they warn of it."""

from __future__ import annotations

import sys
import warnings

import pandas as pd

__all__ = ["texts_of", "warn"]


def texts_of(frame: pd.DataFrame, column: str) -> list[str]:
    """Returns the texts of a column. What is no text, such as NaN, counts as empty, with a warning that counts them."""
    values = frame[column].tolist()
    if missing := sum(not isinstance(value, str) for value in values):
        warn(f"{missing} of {len(values)} values in the column {column!r} are not text and count as empty")
        return [value if isinstance(value, str) else "" for value in values]
    return values


def warn(message: str) -> None:
    """Warns at the line that called this package, or PyTerrier which called it, wherever in it this is found out."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pyterrier"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
