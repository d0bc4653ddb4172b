"""PSQ tables: JSON objects of the form ``{source: {target: probability}}``, as Patapsco and its kin use them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

from pyterrier_mart.lines import open_binary
from pyterrier_mart.translation.builder import EntryBuilder, TableFormatError
from pyterrier_mart.translation.entries import Weights
from pyterrier_mart.translation.formats.common import is_zero, text_writer
from pyterrier_mart.translation.matrix import WordMatrix

__all__ = ["read_psq", "write_psq"]

_PART = 1 << 20
_LONGEST_ROW = 1 << 24  # characters; a hundred thousand translations have a quarter of it
_BLANKS = re.compile(r"[ \t\n\r]*")


def read_psq(path: Path, builder: EntryBuilder, *, verbose: bool) -> Weights:
    """Reads an object of objects of probabilities, one source word at a time.

    A key that is listed twice is malformed: JSON libraries silently keep the last one.

    Args:
        path: The file, plain or compressed.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If the file is not such an object.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                builder.bad(f"the key {key!r} is listed twice in one object")
            else:
                found[key] = value
        return found

    def probability(text: str) -> float | str:
        value = float(text)
        return value if value or is_zero(text) else text  # which is reported

    seen = set()
    decoder = json.JSONDecoder(object_pairs_hook=unique, parse_int=float, parse_float=probability)
    with open_binary(path, verbose) as stream:
        encoding = json.detect_encoding(stream.peek(4)[:4])  # type: ignore[attr-defined]
        with io.TextIOWrapper(stream, encoding=encoding) as text:
            for source, translations in items(text, decoder, str(path)):
                if source in seen:
                    builder.bad(f"the key {source!r} is listed twice in one object")
                elif isinstance(translations, dict):
                    builder.add_values((source, target, prob) for target, prob in translations.items())
                else:
                    builder.bad(f"expected an object at {source!r}, found {translations!r:.80}")
                seen.add(source)
    return "probability"


def items(stream: TextIO, decoder: json.JSONDecoder, where: str) -> Iterator[tuple[str, Any]]:
    """Yields the keys of an object and their values. Memory holds one of them; nothing at all is an empty object.

    Raises:
        TableFormatError: If this is no object, or not JSON.
    """
    text = Part(stream, decoder, where)
    if (opening := text.next()) != "{":
        if opening:
            found = f"found {text.value()!r:.80}"
            raise TableFormatError(f"{where}: expected an object {{source: {{target: probability}}}}, {found}")
        return
    text.at += 1
    comma = False
    while text.next() != "}" or comma:
        key = text.value() if text.next() == '"' else text.fail("expected a name in double quotes")
        text.skip(":")
        yield key, text.value()
        comma = text.next() == ","
        if comma:
            text.at += 1
        elif text.next() != "}":
            text.fail("expected ',' or '}'")
    text.at += 1
    if text.next():
        text.fail("more after the end of the object")


class Part:
    """The part of a JSON text that is in memory.

    Attributes:
        at: Where in the part reading goes on.
    """

    def __init__(self, stream: TextIO, decoder: json.JSONDecoder, where: str):
        self._stream, self._decoder, self._where = stream, decoder, where
        self.text, self.at, self._line = "", 0, 1

    def more(self) -> bool:
        """Reads on; returns whether there was anything."""
        try:
            new = self._stream.read(_PART)
        except UnicodeDecodeError as err:
            self.fail(str(err))
        self._line += self.text.count("\n", 0, self.at)
        self.text, self.at = self.text[self.at :] + new, 0
        return bool(new)

    def fail(self, reason: str, at: int | None = None) -> Any:
        """Raises an error that names the line."""
        line = self._line + self.text.count("\n", 0, self.at if at is None else at)
        raise TableFormatError(f"{self._where}, line {line}: not JSON in UTF-8: {reason}")

    def next(self) -> str:
        """Returns the next character that is not blank, without moving past it; ``""`` at the end."""
        while True:
            self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def skip(self, expected: str) -> None:
        """Moves past a character."""
        if self.next() != expected:
            self.fail(f"expected {expected!r}")
        self.at += 1

    def value(self) -> Any:
        """Returns the next value and moves past it."""
        self.next()
        while True:
            try:
                found, end = self._decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError as err:  # perhaps only because the value goes on
                if len(self.text) - self.at > _LONGEST_ROW or not self.more():
                    self.fail(err.msg, err.pos)
            except (ValueError, RecursionError) as err:
                if isinstance(err, TableFormatError):
                    raise
                self.fail(str(err))
            else:
                if end < len(self.text) or isinstance(found, (dict, list, str)) or not self.more():
                    self.at = end
                    return found


def write_psq(table: WordMatrix, path: Path) -> None:
    """Writes a JSON object with one line a source word."""
    with text_writer(path) as out:
        out.write("{")
        before = "\n"
        for source, entries in groupby(table.entries(), key=lambda entry: entry[0]):
            row = ", ".join(f"{dumped(target)}: {prob:.9g}" for _, target, prob in entries)
            out.write(f"{before}{dumped(source)}: {{{row}}}")
            before = ",\n"
        out.write("\n}\n")


def dumped(word: str) -> str:
    """Returns a word as JSON."""
    return json.dumps(word, ensure_ascii=False)
