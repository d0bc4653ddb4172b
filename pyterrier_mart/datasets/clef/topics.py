"""Topics of the CLEF ad-hoc track in every form in which they were published, and tab-separated topics of one's own.

SGML without a root element (CLEF 2000 to 2003, also TREC's), XML (DIRECT) and TSV. SGML and XML are read alike, by
their tags: files of both kinds hold ``&`` and ``<`` that an XML parser refuses.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, NamedTuple

from pyterrier_mart.problems import Problems
from pyterrier_mart.text import LANGUAGES, language_code

__all__ = ["NUMBER_COLUMN", "Topic", "is_topic", "language_of_name", "read_topics", "topic_number"]

#: Real files of topics have some hundred kilobytes.
_LONGEST = 64 << 20
_DAMAGE = "damaged topics"

_NUMBER = re.compile(r"(?:10\.2452/)?C?0*([1-9][0-9]{0,5})(?:-AH)?", re.IGNORECASE)
_DECLARED = re.compile(rb"""\s*<\?xml[^>]{1,200}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
_PRINTABLE = "".join(map(chr, range(32, 127)))
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_OPENING = re.compile(r"<(top|topic)(\s[^<>]*)?>", re.IGNORECASE)
_ROOT = re.compile(r"<topics(\s[^<>]*)?>", re.IGNORECASE)
_FIELD = re.compile(
    r"<(?:([a-z]{2})-)?(num|identifier|title|desc|description|narr|narrative)(\s[^<>]*)?>", re.IGNORECASE
)
_FIELD_END = re.compile(r"</(?:[a-z]{2}-)?(?:num|identifier|title|desc\w*|narr\w*)\s*>", re.IGNORECASE)
_END = re.compile(r"</top(?:ic)?\s*>", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(?:^|[\s:])lang\s*=\s*["']?\s*([a-z]{2,3})\b""", re.IGNORECASE)
_FIELDS = {
    "num": "number", "identifier": "number", "title": "title", "desc": "description", "description": "description",
    "narr": "narrative", "narrative": "narrative",
}  # fmt: skip
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# TREC's topics name the field once more, in the text.
_TREC_LABEL = re.compile(r"\s*(?:Number|Topic|Description|Narrative)\s*:", re.IGNORECASE)
#: What the first cell of a table's first line may say.
NUMBER_COLUMN = ("id", "qid", "num", "number", "topic", "topic_id", "query_id")
_NAMES = {name.lower(): code for code, name in LANGUAGES.items()}


class Topic(NamedTuple):
    """A topic in one language.

    Attributes:
        number: The number without prefix and suffix, the same in all languages: ``"141"``.
        language: ISO 639-1 code.
        title: A few words.
        description: A sentence, or "".
        narrative: What is relevant and what is not, or "".
    """

    number: str
    language: str
    title: str
    description: str = ""
    narrative: str = ""


def topic_number(text: str) -> str:
    """Returns the number of an ad-hoc topic, from any of its spellings: C041, 41, 41-AH and 10.2452/41-AH are "41".

    Raises:
        ValueError: If the text is something else, such as a topic of another track (``GC026``).
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text.strip()[:60]!r} is not the number of a topic: expected one such as C141 or 141-AH")
    return match[1]


def language_of_name(name: str) -> str | None:
    """Returns the language that the name of a file, or else of the folder it is in, says: ``topics.so.tsv`` is "so".

    Args:
        name: The name, with ``/`` between folders.

    Returns:
        An ISO 639-1 code; None if no language is named, or several are.
    """
    for part in list(reversed(PurePosixPath(name.replace("\\", "/")).parts))[:2]:
        found = {code for word in re.split(r"[^A-Za-z]+", part) if (code := _language_of_word(word))}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def read_topics(stream: IO[bytes], name: str, problems: Problems, language: str | None = None) -> Iterator[Topic]:
    """Yields the topics of a file. A topic that is damaged is reported, and the others are read.

    Args:
        stream: The content of the file, decompressed.
        name: Its name, for messages, and for the language if the file itself does not say it.
        problems: Where damage is reported.
        language: The language of topics that do not say it themselves.

    Raises:
        ValueError: If the language is neither in the file nor in its name nor given, or the file is not one of topics.
    """
    data = stream.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise ValueError(f"{name}: larger than {_LONGEST >> 20} MiB, which no file of topics is")
    text = _decode(data)
    code = language_code(language) if language is not None else None
    if _OPENING.search(text):
        yield from _marked_up(text, name, problems, code)
    else:
        yield from _tab_separated(text, name, problems, code or _of_name(name))


def is_topic(line: str) -> bool:
    """Returns whether the first line of a file is one of tab-separated topics."""
    cells = [cell.strip() for cell in line.split("\t")]
    if not 2 <= len(cells) <= 4 or not cells[1]:
        return False
    return cells[0].lower() in NUMBER_COLUMN or _NUMBER.fullmatch(cells[0]) is not None


def _of_name(name: str) -> str:
    code = language_of_name(name)
    if code is None:
        raise ValueError(f"{name}: the language of the topics is unknown; name the file like topics.so.tsv")
    return code


def _language_of_word(word: str) -> str | None:
    lowered = word.lower()
    if lowered in _NAMES:
        return _NAMES[lowered]
    try:
        return language_code(word) if 2 <= len(word) <= 3 else None
    except ValueError:
        return None


def _decode(data: bytes) -> str:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace")
    for encoding in (*_declared(data), "utf-8", "windows-1252"):
        try:
            return data.decode(encoding)
        except ValueError:
            continue
    return data.decode("iso-8859-1")


def _declared(data: bytes) -> list[str]:
    """The encoding that an XML declaration names, if it is one in which the declaration itself can be read."""
    match = _DECLARED.match(data)
    if match is None:
        return []
    try:
        name = codecs.lookup(match[1].decode("ascii")).name
        if "escape" in name or _PRINTABLE.encode("ascii").decode(name) != _PRINTABLE:
            return []
    except (LookupError, ValueError):
        return []
    return ["windows-1252" if name == "iso8859-1" else name]  # which people write who mean Windows-1252


# ---------------------------------------------------------------------------------------------------- SGML and XML


def _marked_up(text: str, name: str, problems: Problems, language: str | None) -> Iterator[Topic]:
    root = _ROOT.search(text)
    outer = _language_of(root[1] if root else None) or language
    openings = list(_OPENING.finditer(text))
    lines = 1
    counted = 0
    ends = [*(opening.start() for opening in openings[1:]), len(text)]
    for opening, end in zip(openings, ends, strict=True):
        lines += text.count("\n", counted, opening.start())
        counted = opening.start()
        closing = _END.search(text, opening.end(), end)
        body = text[opening.end() : closing.start() if closing else end]
        spoken = _language_of(opening[2]) or outer
        number, fields = _fields(body, spoken, trec=opening[1].lower() == "top")
        try:
            number = topic_number(number)
        except ValueError as err:
            what = str(err) if number else "a topic without a number"
            problems.add(name, f"line {lines}", what, kind=_DAMAGE)
            continue
        if not fields:
            problems.add(name, f"line {lines}", f"topic {number} has no title", kind=_DAMAGE)
        for code, texts in fields.items():
            if not texts.get("title"):
                problems.add(name, f"line {lines}", f"topic {number} has no title", kind=_DAMAGE)
                continue
            yield Topic(number, code or _of_name(name), **texts)


def _fields(body: str, language: str | None, *, trec: bool) -> tuple[str, dict[str | None, dict[str, str]]]:
    """Returns the number of a topic as it is written, and its texts by language; the first of two like fields."""
    number = ""
    texts: dict[str | None, dict[str, str]] = {}
    opened = list(_FIELD.finditer(body))
    ends = [*(tag.start() for tag in opened[1:]), len(body)]
    for tag, end in zip(opened, ends, strict=False):
        closing = _FIELD_END.search(body, tag.end(), end)
        value = _text(body[tag.end() : closing.start() if closing else end], trec and tag[1] is None)
        field = _FIELDS[tag[2].lower()]
        if field == "number":
            number = number or value
            continue
        code = _code(tag[1]) if tag[1] else _language_of(tag[3]) or language
        texts.setdefault(code, {}).setdefault(field, value)
    return number, texts


def _text(raw: str, trec: bool) -> str:
    if trec:
        raw = _TREC_LABEL.sub("", raw, count=1) if _TREC_LABEL.match(raw) else raw
    raw = _CDATA.sub(lambda match: match[1].replace("&", "&amp;"), raw)
    return " ".join(_ENTITY.sub(lambda match: html.unescape(match[0]), raw).split())


def _language_of(attributes: str | None) -> str | None:
    match = _LANGUAGE.search(attributes or "")
    return _code(match[1]) if match else None


def _code(text: str) -> str:
    try:
        return language_code(text)
    except ValueError:  # Japanese, say: no language of this package, but no damage either
        return text.lower()


# -------------------------------------------------------------------------------------------------------------- TSV


def _tab_separated(text: str, name: str, problems: Problems, language: str) -> Iterator[Topic]:
    first = True
    for i, line in enumerate(text.split("\n"), start=1):
        cells = [" ".join(cell.split()) for cell in line.split("\t")]
        if not any(cells):
            continue
        header, first = first and cells[0].lower() in NUMBER_COLUMN, False
        if header:
            continue
        if not 2 <= len(cells) <= 4 or not cells[1]:
            what = f"expected a number, a title and at most two more cells, found {line.strip()[:60]!r}"
            problems.add(name, f"line {i}", what, kind=_DAMAGE)
            continue
        try:
            number = topic_number(cells[0])
        except ValueError as err:
            problems.add(name, f"line {i}", str(err), kind=_DAMAGE)
            continue
        yield Topic(number, language, *cells[1:])
