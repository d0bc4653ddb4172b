"""What was wrong in a collection's files: kept while reading goes on, and shown when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

__all__ = ["Problems"]


class Problems:
    r"""Collects what was wrong in files without stopping, in memory that does not grow with the damage.

    Every problem is counted by its kind; the first ones of each kind are kept in full.

    Example::

        problems = Problems()
        problems.add("la010194.gz", "byte 3456", "a document without a number", kind="documents without a number")
        print("\n".join(problems.summary()))

    Attributes:
        counts: How many problems there were, by kind.
        keep: How many messages of each kind are kept.
    """

    def __init__(self, *, keep: int = 20):
        """Creates an empty collection.

        Args:
            keep: How many messages of each kind are kept.
        """
        self.keep = keep
        self.counts: Counter[str] = Counter()
        self._messages: dict[str, list[str]] = {}

    def add(self, file: str, where: str, what: str, *, kind: str = "damage") -> None:
        """Takes a problem.

        Args:
            file: The file, as the user knows it.
            where: The place in the file, such as ``"line 12"`` or ``"byte 3456"``; may be empty.
            what: What was found, and what was expected.
            kind: What such problems are called in counts: a plural, without what differs from one to the next.
        """
        self.counts[kind] += 1
        kept = self._messages.setdefault(kind, [])
        if len(kept) < self.keep:
            kept.append(f"{file}, {where}: {what}" if where else f"{file}: {what}")

    def note(self, kind: str, count: int = 1) -> None:
        """Counts what needs no message of its own.

        Args:
            kind: What is counted: a plural.
            count: How many more there were.
        """
        if count:
            self.counts[kind] += count

    @property
    def messages(self) -> list[str]:
        """The messages that are kept, by kind and in the order in which they came."""
        return [message for messages in self._messages.values() for message in messages]

    def summary(self) -> list[str]:
        """Returns lines for people: per kind how many there were, and the messages that are kept, indented."""
        lines = []
        for kind, count in self.counts.items():
            kept = self._messages.get(kind, [])
            lines.append(f"{count:,} {kind}{':' if kept else ''}")
            lines += [f"  {message}" for message in kept]
            if kept and count > len(kept):
                lines.append(f"  and {count - len(kept):,} more")
        return lines

    def update(self, other: Problems) -> None:
        """Adds the problems of another collection to these.

        Args:
            other: The other collection, which stays as it is.
        """
        self.counts.update(other.counts)
        for kind, messages in other._messages.items():
            kept = self._messages.setdefault(kind, [])
            kept += messages[: max(0, self.keep - len(kept))]

    def since(self, earlier: Problems) -> Problems:
        """Returns what came in after a copy was made.

        Args:
            earlier: What :meth:`copy` returned then.
        """
        later = Problems(keep=self.keep)
        later.counts = self.counts - earlier.counts
        for kind, messages in self._messages.items():
            if new := messages[len(earlier._messages.get(kind, [])) :]:
                later._messages[kind] = new
        return later

    def copy(self) -> Problems:
        """Returns a collection with the same problems, which later ones do not change."""
        copied = Problems(keep=self.keep)
        copied.update(self)
        return copied

    def to_json(self) -> dict[str, Any]:
        """Returns what :meth:`from_json` makes the problems of again."""
        return {"counts": dict(self.counts), "messages": {kind: list(kept) for kind, kept in self._messages.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, keep: int = 20) -> Problems:
        """Makes problems of what :meth:`to_json` returned.

        Args:
            data: What it returned.
            keep: How many messages of each kind are kept.

        Raises:
            ValueError: If ``data`` is something else.
        """
        problems = cls(keep=keep)
        try:
            for kind, count in data["counts"].items():
                problems.counts[str(kind)] = int(count)
            for kind, kept in data["messages"].items():
                problems._messages[str(kind)] = [str(message) for message in kept[:keep]]
        except (KeyError, TypeError, AttributeError) as err:
            raise ValueError(f"expected counts and messages of problems, found {str(data)[:60]!r}") from err
        return problems

    def __len__(self) -> int:
        return self.counts.total()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problems):
            return NotImplemented
        return self.counts == other.counts and self._messages == other._messages

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Problems({dict(self.counts)})"
