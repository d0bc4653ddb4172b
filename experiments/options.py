"""Types of options: what they accept, and one sentence about what they do not."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

__all__ = ["at_least", "device"]

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


def device(text: str) -> str:
    """Is a type of option: the name of a device, which need not be there."""
    if not _DEVICE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"expected cpu, mps, cuda or cuda:N such as cuda:0, found {text!r}")
    return text
