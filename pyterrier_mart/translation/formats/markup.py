"""XML of any size, one record after the other, from files that nobody vouches for."""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import IO, Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from pyterrier_mart.translation.faults import Faults, TableFormatError
from pyterrier_mart.translation.formats.common import damage

__all__ = ["records"]

_CHUNK = 1 << 16
_LONGEST_RECORD = 1 << 20  # characters
_LONGEST_TAG = 1 << 22  # bytes; the parser holds a tag or comment in memory until it ends
_DEEPEST = 100


def records(stream: IO[bytes], faults: Faults, where: str, tags: frozenset[str]) -> Iterator[tuple[int, Element]]:
    """Yields the elements of some tags and the lines where they begin. Memory holds one of them.

    Nothing outside the file is read, and no entity that it declares is expanded. Prefixes of namespaces are cut off
    from tags, and kept in the names of attributes (``xml:lang``). Elements of these tags inside one another come out
    one by one, the inner before the outer, which lacks them.

    Args:
        stream: The bytes, in the encoding that they declare.
        faults: Takes what is wrong: elements that are too long, and, where the file is not well-formed, that it was
            read up to there.
        where: What messages call the file.
        tags: The tags.

    Raises:
        TableFormatError: If something is wrong (unless skipped); and if the file declares entities, has tags of many
            megabytes or nested many deep, or is damaged.
    """
    reader = _Reader(faults, where, tags)
    silent, events = 0, 0
    with damage(where):
        for chunk in chain(iter(partial(stream.read, _CHUNK), b""), [b""]):
            problem = None
            try:
                reader.parser.Parse(chunk, not chunk)
            except expat.ExpatError as err:
                problem = err
            yield from reader.taken()
            if problem is not None:  # there is no going on behind it
                faults.bad(f"not well-formed XML: {expat.ErrorString(problem.code)}", problem.lineno, where)
                return
            silent = silent + len(chunk) if reader.events == events else 0
            events = reader.events
            if silent > _LONGEST_TAG:
                raise reader.error(f"a tag or comment longer than {_LONGEST_TAG:,} bytes")


class _Reader:
    """Builds the elements of some tags from the parser's events."""

    def __init__(self, faults: Faults, where: str, tags: frozenset[str]):
        self.faults, self.where, self.tags = faults, where, tags
        self.events = 0
        self._depth = 0
        self._open: list[_Open] = []
        self._done: list[tuple[int, Element]] = []
        self.parser: Any = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = lambda name, parameter: self._data(html.unescape(f"&{name};"))

    def taken(self) -> list[tuple[int, Element]]:
        """Returns what is complete, once."""
        done, self._done = self._done, []
        return done

    def error(self, reason: str) -> TableFormatError:
        return TableFormatError(f"{self.where}, line {self.parser.CurrentLineNumber}: {reason}")

    def _entity(self, name: str, *_: object) -> None:
        raise self.error(f"declares the entity {name!r}; XML with entities of its own is not read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.events += 1
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.error(f"tags nested more than {_DEEPEST} deep")
        name = name.rpartition(":")[2]
        if name in self.tags:
            self._open.append(_Open(self.parser.CurrentLineNumber, self._depth))
        if self._open:
            self._grow(len(name) + sum(map(len, attributes.values())))
            if not self._open[-1].too_long:
                self._open[-1].builder.start(name, attributes)

    def _data(self, text: str) -> None:
        self.events += 1
        if self._open:
            self._grow(len(text))
            if not self._open[-1].too_long:
                self._open[-1].builder.data(text)

    def _end(self, name: str) -> None:
        self.events += 1
        if self._open:
            record = self._open[-1]
            if not record.too_long:
                record.builder.end(name.rpartition(":")[2])
            if record.depth == self._depth:
                self._open.pop()
                if record.too_long:
                    self.faults.bad(f"longer than {_LONGEST_RECORD:,} characters", record.line, self.where)
                else:
                    self._done.append((record.line, record.builder.close()))
        self._depth -= 1

    def _grow(self, size: int) -> None:
        record = self._open[-1]
        record.size += size + 1
        if record.size > _LONGEST_RECORD and not record.too_long:
            record.too_long = True
            record.builder = TreeBuilder()  # gives the memory back


class _Open:
    """A record that has begun."""

    def __init__(self, line: int, depth: int):
        self.line, self.depth = line, depth
        self.size = 0
        self.too_long = False
        self.builder = TreeBuilder()
