"""Relevance judgments: ``topic 0 docno label``, with the topics spelled in any way."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO, NamedTuple

from pyterrier_mart.datasets.clef.topics import NUMBER_COLUMN, topic_number
from pyterrier_mart.problems import Problems

__all__ = ["Judgment", "Judgments", "is_judgment", "read_qrels"]

_LONGEST_LINE = 4096
_DAMAGE = "damaged lines of judgments"
_LABEL = re.compile(r"(-?[0-9]{1,3})(?:\.0{1,9})?")


class Judgment(NamedTuple):
    """What an assessor said of a document.

    Attributes:
        number: The topic, as :func:`~pyterrier_mart.datasets.clef.topics.topic_number` gives it.
        docno: The document.
        label: 0, or more if it is relevant.
    """

    number: str
    docno: str
    label: int


def read_qrels(stream: IO[bytes], name: str, problems: Problems) -> Iterator[Judgment]:
    """Yields the judgments of a file, in any order; a malformed line is reported, and the others are read.

    Lines that begin with ``#`` are comments, and the first line may name the columns.

    Args:
        stream: The content of the file, decompressed.
        name: Its name, for messages.
        problems: Where damage is reported.
    """
    numbers: dict[str, str] = {}
    for i, line in enumerate(_lines(stream), start=1):
        cells = line.split()
        if not cells or cells[0].startswith("#") or (i == 1 and cells[0].lower() in NUMBER_COLUMN):
            continue
        try:
            given, _, docno, label = cells
            number = numbers.get(given)
            if number is None:
                number = numbers[given] = topic_number(given)
            value = _label(label)
        except ValueError:
            problems.add(
                name, f"line {i}", f"expected 'topic 0 docno label', found {line.strip()[:60]!r}", kind=_DAMAGE
            )
            continue
        yield Judgment(number, docno, value)


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Yields lines with any kind of end; of one that is too long, its beginning."""
    text = io.TextIOWrapper(stream, "utf-8", errors="replace")
    try:
        while line := text.readline(_LONGEST_LINE):
            yield line.removeprefix("\ufeff")
            while len(line) == _LONGEST_LINE and not line.endswith("\n"):
                line = text.readline(_LONGEST_LINE)
    finally:
        text.detach()  # or it would close the stream


def _label(text: str) -> int:
    match = _LABEL.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a whole number, found {text!r}")
    return int(match[1])


def is_judgment(line: str) -> bool:
    """Returns whether a line is a judgment, and not one of a run or of tab-separated topics."""
    cells = line.split()
    if len(cells) != 4 or cells[1].upper() not in ("0", "Q0"):
        return False
    try:
        topic_number(cells[0])
        _label(cells[3])
    except ValueError:
        return False
    return True


class Judgments:
    """Judgments of several files as one: of two that differ about a document the higher label counts.

    Attributes:
        repeated: How many judgments were there before, with the same label.
    """

    def __init__(self, problems: Problems):
        """Creates an empty collection.

        Args:
            problems: Where different judgments of one document are reported.
        """
        self.repeated = 0
        self._problems = problems
        # A label with the file that it is from; few such pairs exist, and documents share them.
        self._judged: dict[str, dict[str, tuple[int, str]]] = {}
        self._shared: dict[tuple[int, str], tuple[int, str]] = {}

    def add(self, judgment: Judgment, file: str) -> None:
        """Takes a judgment.

        Args:
            judgment: The judgment.
            file: The file that it is from.
        """
        number, docno, label = judgment
        known = self._judged.setdefault(number, {})
        before = known.get(docno)
        if before is not None:
            if before[0] == label:
                self.repeated += 1
                return
            self._problems.add(
                file,
                f"topic {number}",
                f"{docno} has label {label}, but {before[0]} in {before[1]}: the higher one counts",
                kind="judgments that differ",
            )
            if before[0] > label:
                return
        origin = label, file
        known[docno] = self._shared.setdefault(origin, origin)

    def __iter__(self) -> Iterator[Judgment]:
        """Gives every document of every topic once."""
        for number, known in self._judged.items():
            for docno, (label, _) in known.items():
                yield Judgment(number, docno, label)
