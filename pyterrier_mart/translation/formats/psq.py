"""PSQ tables: JSON objects of the form ``{source: {target: probability}}``, as Patapsco and its kin use them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_mart.translation.builder import TableBuilder, TableFormatError, Weights
from pyterrier_mart.translation.formats.common import damage, open_binary, text_writer

if TYPE_CHECKING:
    from pyterrier_mart.translation.table import TranslationTable

__all__ = ["read_psq", "write_psq"]

_DEEPEST = 50
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')  # and strings, to pass over those in them
_SPACE = re.compile(r"[ \t\r\n]*")


def read_psq(path: Path, builder: TableBuilder, *, verbose: bool) -> Weights:
    """Reads an object of objects of probabilities. The text of the file is held in memory.

    A key that is listed twice is an error: JSON libraries silently keep the last one.

    Args:
        path: The file, plain or gzipped.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If the file is not such an object; the message names the line.
    """
    with open_binary(path, verbose) as stream, damage(str(path)):
        raw = stream.read()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = raw.count(b"\n", 0, err.start) + 1
        raise TableFormatError(f"{path}, line {line}: {raw[err.start]:#04x} is not UTF-8") from err
    if text and not text.isspace():
        _Scanner(text, builder).read()
    return "probability"


def write_psq(table: TranslationTable, path: Path) -> None:
    """Writes a JSON object with one line a source word."""
    with text_writer(path) as out:
        out.write("{")
        last = None
        for source, target, prob in table.entries():
            if source != last:
                out.write(("\n" if last is None else "},\n") + _json(source) + ": {")
            else:
                out.write(", ")
            out.write(f"{_json(target)}: {prob:.9g}")
            last = source
        out.write("\n}\n" if last is None else "}\n}\n")


def _json(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


class _Scanner:
    """Walks over the two levels of keys, so that it knows the line of each; the standard decoder reads the values."""

    def __init__(self, text: str, builder: TableBuilder):
        self._text, self._builder = text, builder
        self._at = 0
        self._line, self._counted = 1, 0
        self._decode = json.JSONDecoder(parse_int=float).raw_decode  # integers of any length

    def read(self) -> None:
        sources: dict[str, int] = {}
        self._expect("{", "an object {source: {target: probability}}")
        while self._more():
            source, line = self._key()
            if source in sources:
                self._builder.bad(f"the key {source!r} is listed before, in line {sources[source]}", line)
                self._value()
            else:
                sources[source] = line
                self._translations(source, line)
        if self._peek():
            raise self._error("nothing after the object")

    def _translations(self, source: str, line: int) -> None:
        if self._peek() != "{":
            self._builder.bad(f"expected an object at {source!r}, found {self._value()!r}", line)
            return
        self._at += 1
        seen = set()
        while self._more():
            target, line = self._key()
            prob = self._value()
            if target in seen:
                self._builder.bad(f"the key {source!r}: {target!r} is listed before", line)
            elif not isinstance(prob, float):
                self._builder.bad(f"expected a number at {source!r}: {target!r}, found {prob!r}", line)
            else:
                self._builder.add(source, target, prob, line)
            seen.add(target)

    def _peek(self) -> str:
        """The next character that is not white space; the line is brought up to date."""
        char = self._text[self._at : self._at + 1]
        if not char or char not in " \t\r\n":
            return char  # most of the time
        at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # matches anywhere
        self._line += self._text.count("\n", self._counted, at)
        self._at = self._counted = at
        return self._text[at : at + 1]

    def _expect(self, char: str, what: str) -> None:
        if self._peek() != char:
            raise self._error(what)
        self._at += 1

    def _more(self) -> bool:
        """Steps over what stands before a key; false, after the closing brace, if there are no more keys."""
        first = self._text[self._at - 1] == "{"  # the last thing that was read
        char = self._peek()
        if char == "}":
            self._at += 1
            return False
        if not first:
            self._expect(",", "',' or '}'")
        return True

    def _key(self) -> tuple[str, int]:
        if self._peek() != '"':
            raise self._error("a key in quotation marks")
        line = self._line
        key = self._value()
        self._expect(":", "':'")
        return key, line

    def _value(self) -> Any:
        if self._peek() in ("[", "{") and self._is_deep():
            raise self._error(f"a JSON value of at most {_DEEPEST} levels")
        try:
            value, self._at = self._decode(self._text, self._at)
        except json.JSONDecodeError as err:
            raise self._error("a JSON value") from err
        return value

    def _is_deep(self) -> bool:
        """Whether the value here has more levels than the decoder, which is recursive, has stack for in any process."""
        depth = 0
        for match in _BRACKETS.finditer(self._text, self._at):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
            if not 0 < depth <= _DEEPEST:
                break
        return depth > _DEEPEST

    def _error(self, expected: str) -> TableFormatError:
        found = repr(self._text[self._at : self._at + 20]) if self._at < len(self._text) else "the end of the file"
        return TableFormatError(f"{self._builder.where}, line {self._line}: expected {expected}, found {found}")
