"""Files in UTF-16 as UTF-8, in which ASCII stands for itself and tags can be looked for in the bytes."""

from __future__ import annotations

import codecs
import io
import re
from typing import Any

__all__ = ["AsUtf8", "utf_16_of"]

#: A byte order mark, or ASCII with NULs between.
_UTF_16 = (
    (re.compile(rb"\xff\xfe|(?:[\t\n\r -~]\0){4}"), "utf-16-le"),
    (re.compile(rb"\xfe\xff|(?:\0[\t\n\r -~]){4}"), "utf-16-be"),
)
_CHUNK = 1 << 16


def utf_16_of(head: bytes) -> str | None:
    """Returns the codec of a file in UTF-16, or None if it is in another encoding.

    Args:
        head: How the file begins.
    """
    return next((codec for pattern, codec in _UTF_16 if pattern.match(head)), None)


class AsUtf8(io.RawIOBase):
    """A stream in UTF-8, made of one in UTF-16; without the byte order mark."""

    def __init__(self, stream: io.RawIOBase, codec: str):
        """Wraps a stream.

        Args:
            stream: The stream, from its beginning.
            codec: What :func:`utf_16_of` returned.
        """
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(codec)("replace")
        self._ready = b""
        self._begun = self._ended = False

    def readable(self) -> bool:
        """Returns true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads some bytes into a buffer, and returns how many."""
        while not (self._ready or self._ended):
            data = self._stream.read(_CHUNK) or b""
            self._ended = not data
            text = self._decoder.decode(data, self._ended)
            if text and not self._begun:
                self._begun, text = True, text.removeprefix("\ufeff")
            self._ready = text.encode("utf-8", "replace")
        part = self._ready[: len(buffer)]
        self._ready = self._ready[len(part) :]
        buffer[: len(part)] = part
        return len(part)
