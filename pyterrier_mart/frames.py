"""What the transformers of the package share, what they read from frames, and how they warn of it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyterrier as pt

__all__ = ["Pipeline", "Transformer", "texts_of", "warn"]


class Transformer(pt.Transformer):
    """What all transformers of the package are.

    Each is equal to itself only: ``pt.GridScan`` and ``pt.GridSearch`` keep transformers as keys of dictionaries and
    change their settings meanwhile, so that two would fall together if they were compared by value.
    """

    __hash__ = object.__hash__  # PyTerrier's follows the settings

    def transform_iter(self, inp: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Transforms rows."""
        return transformed(self, inp)

    def __rshift__(self, right: pt.Transformer) -> Pipeline:
        return Pipeline(self, right)


class Pipeline(pt.Compose):
    """A pipeline whose first step is a transformer of the package.

    PyTerrier hands rows that are no frame from step to step one by one, so that steps of its own (``%``, ``*``,
    ``pt.text.sliding``) fail where a query finds nothing: of no rows they see a frame without columns.
    """

    def __init__(self, *transformers: pt.Transformer):
        super().__init__(*pt.Compose(*transformers))  # without pipelines inside

    def transform_iter(self, inp: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Transforms rows as one frame."""
        return transformed(self, inp)

    def __rshift__(self, right: pt.Transformer) -> Pipeline:
        return Pipeline(self, right)


def transformed(transformer: pt.Transformer, inp: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows that a transformer makes of rows; none of none, for which there would be no columns."""
    rows = list(inp)
    return transformer.transform(pd.DataFrame(rows)).to_dict(orient="records") if rows else []


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
