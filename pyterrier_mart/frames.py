"""What transformers read from frames."""

from __future__ import annotations

import warnings

import pandas as pd

__all__ = ["texts_of"]


def texts_of(frame: pd.DataFrame, column: str, stacklevel: int = 3) -> list[str]:
    """Returns the texts of a column. What is no text, such as NaN, counts as empty, with a warning that counts them.

    Args:
        frame: The rows.
        column: The column.
        stacklevel: As for :func:`warnings.warn`, from here: the warning should name the user's line.
    """
    values = frame[column].tolist()
    if missing := sum(not isinstance(value, str) for value in values):
        warnings.warn(
            f"{missing} of {len(values)} values in the column {column!r} are not text and count as empty",
            stacklevel=stacklevel,
        )
        return [value if isinstance(value, str) else "" for value in values]
    return values
