"""In which encoding a file of CLEF's is, whether it says so or not."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any

from pyterrier_mart.archives import ArchiveError

__all__ = ["ascii_parts", "decode", "decode_mixed", "declared_encoding", "eight_bit", "read_head", "utf_16_of"]

_CHUNK = 1 << 20
#: A byte order mark, or ASCII with NULs between.
_UTF_16 = (
    (re.compile(rb"\xff\xfe|(?:[\t\n\r -~]\0){4}"), "utf-16-le"),
    (re.compile(rb"\xfe\xff|(?:\0[\t\n\r -~]){4}"), "utf-16-be"),
)
_DECLARED = re.compile(rb"""\s*<\?xml[^>]{1,200}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
_PRINTABLE = "".join(map(chr, range(32, 127)))
#: What a text is in that is not in UTF-8 and does not say so; Windows-1252, which is ISO-8859-1 and more, of others.
_EIGHT_BIT = {
    **dict.fromkeys(("bg", "ru", "uk"), "cp1251"),
    **dict.fromkeys(("cs", "hr", "hu", "pl", "ro", "sk", "sl"), "cp1250"),
    **dict.fromkeys(("et", "lt", "lv"), "cp1257"),
    **dict.fromkeys(("ar", "fa"), "cp1256"),
    "el": "cp1253", "th": "cp874", "tr": "cp1254", "vi": "cp1258", "zh": "gb18030",
}  # fmt: skip
#: Encodings of Cyrillic letters, the usual one first, with the letters that more than half of a text consists of.
_CYRILLIC = {codec: "оеаинтсрвлОЕАИНТСРВЛ".encode(codec) for codec in ("cp1251", "koi8-u", "iso8859-5", "cp866")}
_ASCII = bytes(range(128))
_STRAY = re.compile(rb"((?:[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})+)|[\x80-\xff]")


def utf_16_of(head: bytes) -> str | None:
    """Returns the codec of a file in UTF-16, or None if it is in another encoding.

    Args:
        head: How the file begins.
    """
    return next((codec for pattern, codec in _UTF_16 if pattern.match(head)), None)


def declared_encoding(head: bytes) -> str:
    """Returns the encoding that a byte order mark or XML declaration says; "" if there is none.

    ISO-8859-1 and ASCII are Windows-1252, which is what people mean who write so.

    Args:
        head: How the file begins; UTF-16 is known by :func:`utf_16_of`.

    Raises:
        LookupError: If the declaration names an encoding that is unknown, or in which it could not be read itself.
    """
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8"
    match = _DECLARED.match(head)
    if match is None:
        return ""
    name = match[1].decode("ascii")
    try:
        codec = codecs.lookup(name).name
        readable = "escape" not in codec and _PRINTABLE.encode("ascii").decode(codec) == _PRINTABLE
    except (LookupError, ValueError):
        readable = False
    if not readable:
        raise LookupError(f"the encoding {name} is unknown, or not that of the file")
    return "cp1252" if codec in ("iso8859-1", "ascii") else codec


def eight_bit(data: bytes, language: str) -> str:
    """Returns the encoding of eight bits (Chinese: of two bytes) that a text is in which does not say so.

    Args:
        data: The text.
        language: ISO 639-1 code of its language; "" if it is not known.
    """
    codec = _EIGHT_BIT.get(language, "cp1252")
    if codec not in _CYRILLIC:
        return codec
    return min(_CYRILLIC, key=lambda name: len(data.translate(None, _CYRILLIC[name])))


def decode(data: bytes, language: str = "") -> tuple[str, str]:
    """Returns the text of a whole file, and its encoding if that is a guess.

    It is none if the file is in what it says, or in UTF-8. ISO-8859-1 counts as a guess even if the file says so, for
    it lacks letters of the languages whose encoding is another one.

    Args:
        data: The file.
        language: ISO 639-1 code of its language; "" if it is not known.
    """
    if codec := utf_16_of(data):
        return data.decode(codec, "replace").removeprefix("\ufeff"), ""
    if data.startswith(codecs.BOM_UTF8):
        return data.decode("utf-8-sig", "replace"), ""
    try:
        declared = declared_encoding(data)
    except LookupError:
        declared = ""
    for encoding in (declared.replace("cp1252", "") or "utf-8", "utf-8"):
        try:
            return data.decode(encoding), ""
        except ValueError:
            continue
    codec = eight_bit(data, language)
    try:
        return data.decode(codec), codec
    except ValueError:  # five bytes stand for nothing in Windows-1252
        return data.decode("iso-8859-1" if codec == "cp1252" else codec, "replace"), codec


def decode_mixed(data: bytes, codec: str) -> str:
    """Returns a text in an encoding of eight bits in which some characters may be in UTF-8.

    In languages that have many letters beyond ASCII, two of them can happen to look like a character in UTF-8.
    """
    kept = data.decode("utf-8", "ignore")
    if not kept.isascii() and (
        codec == "cp1252" or len(kept.encode().translate(None, _ASCII)) * 2 > len(data.translate(None, _ASCII))
    ):
        parts = _STRAY.sub(lambda match: match[0] if match[1] else match[0].decode(codec, "replace").encode(), data)
        return parts.decode("utf-8", "replace")
    try:
        return data.decode(codec)
    except UnicodeDecodeError:  # five bytes stand for nothing in Windows-1252
        return data.decode("latin-1" if codec == "cp1252" else codec, "replace")


def read_head(stream: Any, size: int, head: bytes = b"") -> bytes:
    """Reads the beginning of a file; of a damaged one, what there is.

    Args:
        stream: The file, with ``read1``: ``read`` would lose what comes before damage.
        size: How many bytes to read, if there are as many.
        head: What was read already.

    Raises:
        ArchiveError: If there is nothing before the damage.
    """
    try:
        while len(head) < size and (part := stream.read1(size - len(head))):
            head += part
    except ArchiveError:
        if not head:
            raise
    return head


def ascii_parts(stream: Any, head: bytes) -> Iterator[bytes]:
    """Yields the parts of a file as bytes in which ASCII stands for itself: UTF-16 becomes UTF-8.

    Args:
        stream: The rest of the file.
        head: How the file begins, as :func:`read_head` returned it.
    """
    codec = utf_16_of(head)
    decoder = codecs.getincrementaldecoder(codec)("replace") if codec else None
    while head:
        yield decoder.decode(head).encode("utf-8", "replace") if decoder else head
        head = stream.read1(_CHUNK)
    if decoder:
        yield decoder.decode(b"", True).encode("utf-8", "replace")
