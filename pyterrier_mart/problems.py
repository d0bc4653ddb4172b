"""What was wrong in files: kept while they are read, and shown at the end; or an error at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pyterrier_mart.checks import check_choice
from pyterrier_mart.frames import warn

__all__ = ["Faults", "Problems", "TableFormatError"]


@dataclass
class Problems:
    r"""Collects what was wrong in files without stopping, in memory that does not grow with the damage.

    Every problem is counted by its kind; the first ones of each kind are kept in full. ``dataclasses.asdict`` makes
    JSON values of all problems, and ``Problems(**values)`` problems of those.

    Example::

        problems = Problems()
        problems.add("la010194.gz", "byte 3456", "a document without a docno", kind="documents without a docno")
        print("\n".join(problems.summary()))

    Attributes:
        counts: How many problems there were, by kind.
        kept: The messages that are kept, by kind.
        keep: How many messages of each kind are kept.
    """

    counts: dict[str, int] = field(default_factory=dict)
    kept: dict[str, list[str]] = field(default_factory=dict)
    keep: int = 20

    def add(self, file: str, where: str, what: str, *, kind: str = "damage") -> None:
        """Takes a problem.

        Args:
            file: The file, as the user knows it.
            where: The place in the file, such as ``"line 12"`` or ``"byte 3456"``; may be empty.
            what: What was found, and what was expected.
            kind: What such problems are called in counts: a plural, without what differs from one to the next.
        """
        self.note(kind)
        kept = self.kept.setdefault(kind, [])
        if len(kept) < self.keep:
            kept.append(f"{file}, {where}: {what}" if where else f"{file}: {what}")

    def note(self, kind: str) -> None:
        """Counts what needs no message of its own.

        Args:
            kind: What is counted: a plural.
        """
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def update(self, other: Problems) -> None:
        """Adds the problems of another collection to these."""
        for kind, count in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        for kind, messages in other.kept.items():
            self.kept[kind] = [*self.kept.get(kind, []), *messages][: self.keep]

    @property
    def messages(self) -> list[str]:
        """The messages that are kept, by kind and in the order in which they came."""
        return [message for messages in self.kept.values() for message in messages]

    def summary(self) -> list[str]:
        """Returns lines for people: per kind how many there were, and the messages that are kept, indented."""
        lines = []
        for kind, count in self.counts.items():
            kept = self.kept.get(kind, [])
            lines.append(f"{count:,} {kind}{':' if kept else ''}")
            lines += [f"  {message}" for message in kept]
            if kept and count > len(kept):
                lines.append(f"  and {count - len(kept):,} more")
        return lines

    def __len__(self) -> int:
        return sum(self.counts.values())


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

    def warn_of_skipped(self) -> None:
        """Warns, if any entry was skipped, how many were and what was wrong with the first."""
        if self.malformed:
            entries = "entry" if self.malformed == 1 else "entries"
            warn(f"{self.where}: skipped {self.malformed} malformed {entries}, the first: {self._first}")
