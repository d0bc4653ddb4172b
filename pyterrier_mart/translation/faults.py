"""What to do about malformed lines: stop at the first, or skip and count them."""

from __future__ import annotations

import warnings
from typing import Literal

from pyterrier_mart.checks import check_choice

__all__ = ["Faults", "TableFormatError"]


class TableFormatError(ValueError):
    """Input does not have the expected form; the message names the file, the line and the reason."""


class Faults:
    """Takes reports of malformed input.

    Args:
        where: What messages call the input, usually a path.
        on_error: ``"raise"`` at the first malformed entry, or ``"skip"`` and count them.
    """

    def __init__(self, where: str, on_error: Literal["raise", "skip"] = "raise"):
        check_choice("on_error", on_error, ("raise", "skip"))
        self.where, self.on_error = where, on_error
        self.malformed = 0
        self._first = ""

    def bad(self, reason: str, line: int = 0, where: str | None = None) -> None:
        """Reports a malformed entry: raises :class:`TableFormatError`, or counts it where errors are skipped.

        ``where`` names the file if entries come from several; ``line`` 0 means that the entry has no line.
        """
        where = where or self.where
        message = f"{where}, line {line}: {reason}" if line else f"{where}: {reason}"
        if self.on_error == "raise":
            raise TableFormatError(message)
        self.malformed += 1
        self._first = self._first or message

    def warn_of_skipped(self, stacklevel: int = 2) -> None:
        """Warns, if any entry was skipped, how many were and what was wrong with the first."""
        if self.malformed:
            entries = "entry" if self.malformed == 1 else "entries"
            warnings.warn(
                f"{self.where}: skipped {self.malformed} malformed {entries}, the first: {self._first}",
                stacklevel=stacklevel + 1,
            )
