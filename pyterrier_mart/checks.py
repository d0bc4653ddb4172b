"""Checks of a user's arguments: each says which argument, what it must be, and what it is."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import pandas as pd

__all__ = ["check_choice", "check_columns", "check_flag", "check_number", "check_stop", "check_whole"]


def check_whole(name: str, value: Any, least: int = 1, *, optional: bool = False) -> None:
    """Checks that an argument is a whole number.

    Args:
        name: The argument.
        value: Its value.
        least: The smallest value that is allowed.
        optional: Whether ``None`` is allowed.

    Raises:
        ValueError: If it is something else, such as a ``bool`` or a ``float``.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be {'None or ' if optional else ''}a whole number >= {least}, not {value!r}")


def check_number(
    name: str, value: Any, low: float = 0.0, high: float = math.inf, *, positive: bool = False, optional: bool = False
) -> None:
    """Checks that an argument is a finite number in a closed interval.

    Args:
        name: The argument.
        value: Its value.
        low: The smallest value that is allowed.
        high: The largest value that is allowed.
        positive: Whether it must be above 0.
        optional: Whether ``None`` is allowed.

    Raises:
        ValueError: If it is something else.
    """
    if optional and value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high or (positive and value <= 0):
        kind = "a positive number" if positive else f"a number >= {low:g}" if high == math.inf else None
        expected = kind if high == math.inf else f"in {'(' if positive else '['}{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {'None or ' if optional else ''}{expected}, not {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Checks that an argument is ``True`` or ``False``.

    Raises:
        ValueError: If it is something else.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}")


def check_stop(value: Any) -> None:
    """Checks that the argument ``stop`` is ``True``, ``False`` or a collection of words.

    Raises:
        ValueError: If it is something else, such as a single word.
    """
    if isinstance(value, bool):
        return
    if isinstance(value, str) or not isinstance(value, Collection) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"stop must be True, False or a collection of words, not {value!r}")


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Checks that an argument is one of some names.

    Raises:
        ValueError: If it is something else; the message lists the names.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def check_columns(name: str, frame: Any, columns: Collection[str], hint: str = "") -> None:
    """Checks that an argument is a data frame with some columns.

    Args:
        name: The argument.
        frame: Its value.
        columns: The columns that it must have.
        hint: What the message says to do.

    Raises:
        ValueError: If it is something else, or lacks a column.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"{name} must be a data frame, not {frame!r:.80}")
    if missing := [column for column in columns if column not in frame]:
        raise ValueError(f"{name}: missing column {', '.join(missing)}; found {', '.join(map(str, frame)):.500}{hint}")
