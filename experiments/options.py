"""Options: types, which say in one sentence what they do not accept, and presets, which change the defaults."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["at_least", "between", "device", "norm", "parse", "words"]

_DEVICE = re.compile(r"cpu|mps|cuda(:(0|[1-9][0-9]*))?")


def at_least(least: int) -> Callable[[str], int]:
    """Returns a type of option: whole numbers from one on."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"expected a whole number >= {least}, found {text!r}")
        return value

    return number


def between(low: float, high: float = math.inf) -> Callable[[str], float]:
    """Returns a type of option: finite numbers in a closed interval."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high or math.isinf(value):
            expected = f">= {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise argparse.ArgumentTypeError(f"expected a number {expected}, found {text!r}")
        return value

    return number


def device(text: str) -> str:
    """Is a type of option: the name of a device, which need not be there."""
    if not _DEVICE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected cpu, mps, cuda or cuda:N such as cuda:0, found {text!r}")
    return text


def norm(text: str) -> float | None:
    """Is a type of option: what gradients are scaled down to, or none."""
    return None if text.lower() == "none" else between(sys.float_info.min)(text)


def words(text: str) -> bool | tuple[str, ...]:
    """Is a type of option: the usual stop words, none, or those of a file, one a line."""
    if text in ("usual", "none"):
        return text == "usual"
    try:
        found = set(Path(text).read_text(encoding="utf-8").split())
    except (OSError, ValueError) as err:
        raise argparse.ArgumentTypeError(f"expected usual, none, or a file with a word a line: {text}: {err}") from err
    if not found:
        raise argparse.ArgumentTypeError(f"expected a file with a word a line, found none in {text}")
    return tuple(sorted(found))


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str], presets: Mapping[str, Mapping[str, Any]]
) -> argparse.Namespace:
    """Returns the options; those that are not given are the preset's, where it has them.

    Args:
        parser: Has the option ``--preset``.
        argv: The arguments.
        presets: By name, the values of options. Those that the parser does not know are left out.
    """
    parser.add_argument(
        "--preset", choices=list(presets), default=next(iter(presets)), help="the settings to start from"
    )
    first = parser.parse_args(argv)
    parser.set_defaults(**{name: value for name, value in presets[first.preset].items() if name in vars(first)})
    return parser.parse_args(argv)
