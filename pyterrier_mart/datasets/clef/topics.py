"""Topics of the CLEF ad-hoc track in every form in which they were published, and tab-separated topics of one's own.

SGML without a root element (CLEF 2000 to 2003), XML (DIRECT) and TSV. SGML and XML are read alike, by
their tags: files of both kinds hold ``&`` and ``<`` that an XML parser refuses.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from pyterrier_mart.datasets.clef.encodings import decode
from pyterrier_mart.datasets.naming import contradiction, named_languages
from pyterrier_mart.problems import Problems
from pyterrier_mart.text import LANGUAGES, language_of

__all__ = ["QID_COLUMNS", "Topic", "canonical_qid", "is_topic", "language_of_name", "read_topics"]

_DAMAGE = "damaged topics"
_LONGEST = 64 << 20  # files of topics have some hundred kilobytes

_QID = re.compile(r"(?:10\.2452/)?C?0*([1-9][0-9]{0,5})(?:-AH)?", re.IGNORECASE)
_OPENING = re.compile(r"<top(?:ic)?(\s[^<>]*)?>", re.IGNORECASE)
_ROOT = re.compile(r"<topics(\s[^<>]*)?>", re.IGNORECASE)
_FIELD = re.compile(
    r"<(?:([a-z]{2})-)?(num|identifier|title|desc|description|narr|narrative)(\s[^<>]*)?>", re.IGNORECASE
)
_FIELD_END = re.compile(r"</(?:[a-z]{2}-)?(?:num|identifier|title|desc\w*|narr\w*)\s*>", re.IGNORECASE)
_END = re.compile(r"</top(?:ic)?\s*>", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(?:^|[\s:])lang\s*=\s*["']?\s*([a-z]{2,3})\b""", re.IGNORECASE)
_FIELDS = {
    "num": "qid", "identifier": "qid", "title": "title", "desc": "description", "description": "description",
    "narr": "narrative", "narrative": "narrative",
}  # fmt: skip
#: What fields begin with in topics of TREC.
_TREC_LABELS = {
    "qid": "Number:", "title": "Topic:", "description": "Description:", "narrative": "Narrative:",
}  # fmt: skip
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
#: What the first cell of a table's first line may say.
QID_COLUMNS = ("id", "qid", "num", "number", "topic", "topic_id", "query_id")


class Topic(NamedTuple):
    """A topic in one language.

    Attributes:
        qid: The topic's number without prefix and suffix, the same in all languages: ``"141"``.
        language: ISO 639-1 code.
        title: A few words.
        description: A sentence, or "".
        narrative: What is relevant and what is not, or "".
    """

    qid: str
    language: str
    title: str
    description: str = ""
    narrative: str = ""


def canonical_qid(text: str) -> str:
    """Returns the number of an ad-hoc topic, from any of its spellings: C041, 41, 41-AH and 10.2452/41-AH are "41".

    Raises:
        ValueError: If the text is something else, such as a topic of another track (``GC026``).
    """
    match = _QID.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"a topic must be one such as C141 or 141-AH, not {text.strip()[:60]!r}")
    return match[1]


def language_of_name(name: str) -> str:
    """Returns the language that the name of a file, or else of the folder it is in, says: ``topics.so.tsv`` is "so".

    Args:
        name: The name, with ``/`` between folders.

    Returns:
        An ISO 639-1 code.

    Raises:
        ValueError: If no language is named, or several are, or one that this package does not know.
    """
    told = next(filter(None, map(named_languages, list(reversed(PurePosixPath(name).parts))[:2])), set())
    if len(told) == 1 and told <= LANGUAGES.keys():
        return told.pop()
    what = f" (its name tells {' and '.join(sorted(told))})" if told else ""
    raise ValueError(f"{name}: the language of the topics is unknown{what}; name the file like topics.so.tsv")


def read_topics(parts: Iterable[bytes], name: str, problems: Problems) -> Iterator[Topic]:
    """Yields the topics of a file. A topic that is damaged is reported, and the others are read.

    Args:
        parts: The content of the file, decompressed.
        name: Its name, for messages, and for the language if the file itself does not say it.
        problems: Where damage is reported.

    Raises:
        ValueError: If the language is neither in the file nor in its name, or the file is too large for one of topics.
    """
    chunks = bytearray()
    for part in parts:
        chunks += part
        if len(chunks) > _LONGEST:
            raise ValueError(f"{name}: larger than {_LONGEST >> 20} MB, which no file of topics is")
    data = bytes(chunks)
    text, guess = decode(data)
    if n := text.count("\0"):
        problems.add(name, "", f"{n:,} NULs, which no text has; they are read as blanks", kind=_DAMAGE)
        text = text.replace("\0", " ")
    read = marked_up if _OPENING.search(text) else tab_separated
    found = Problems()
    topics = list(read(text, name, found))
    others = {topic.language for topic in topics} - {"en"}
    if guess and len(others) == 1 and (codec := (again := decode(data, *others))[1]) != guess:
        found = Problems()
        topics = list(read(again[0], name, found))
        what = f"neither in UTF-8 nor in another encoding that it says: read as {codec}"
        found.add(name, "", what, kind="files in encodings that they do not say")
    problems.update(found)
    for language in dict.fromkeys(topic.language for topic in topics):
        texts = "\n".join(" ".join(topic[2:]) for topic in topics if topic.language == language)
        if language in LANGUAGES and (looks := contradiction(texts, language)):
            what = f"topics in {looks}, it seems, but the file says that they are in {LANGUAGES[language]}"
            problems.add(name, "", what, kind="files of topics in another language than they say")
    yield from topics


def is_topic(line: str) -> bool:
    """Returns whether the first line of a file is one of tab-separated topics."""
    cells = [cell.strip() for cell in line.split("\t")]
    if not 2 <= len(cells) <= 4 or not cells[1]:
        return False
    return cells[0].lower() in QID_COLUMNS or _QID.fullmatch(cells[0]) is not None


# ---------------------------------------------------------------------------------------------------- SGML and XML


def marked_up(text: str, name: str, problems: Problems) -> Iterator[Topic]:
    """Yields the topics of an SGML or XML file."""
    root = _ROOT.search(text)
    outer = attribute_language(root[1] if root else None)
    openings = list(_OPENING.finditer(text))
    ends = [*(opening.start() for opening in openings[1:]), len(text)]
    line, counted = 1, 0
    for opening, end in zip(openings, ends, strict=True):
        line += text.count("\n", counted, opening.start())
        counted = opening.start()
        closing = _END.search(text, opening.end(), end)
        body = text[opening.end() : closing.start() if closing else end]
        given, fields = topic_fields(body, attribute_language(opening[1]) or outer)
        try:
            qid = canonical_qid(given)
        except ValueError as err:
            what = str(err) if given else "a topic without a number"
            problems.add(name, f"line {line}", what, kind=_DAMAGE)
            continue
        for code, texts in (fields or {None: {}}).items():
            if texts.get("title"):
                yield Topic(qid, code or language_of_name(name), **texts)
            else:
                problems.add(name, f"line {line}", f"topic {qid} has no title", kind=_DAMAGE)


def topic_fields(body: str, language: str | None) -> tuple[str, dict[str | None, dict[str, str]]]:
    """Returns the number of a topic as it is written, and its texts by language; the first of two like fields."""
    qid = ""
    texts: dict[str | None, dict[str, str]] = {}
    opened = list(_FIELD.finditer(body))
    ends = [*(tag.start() for tag in opened[1:]), len(body)]
    for tag, end in zip(opened, ends, strict=False):
        closing = _FIELD_END.search(body, tag.end(), end)
        value = body[tag.end() : closing.start() if closing else end]
        value = _CDATA.sub(lambda match: match[1].replace("&", "&amp;"), value)
        value = " ".join(_ENTITY.sub(lambda match: html.unescape(match[0]), value).split())
        field = _FIELDS[tag[2].lower()]
        value = value.removeprefix(_TREC_LABELS[field]).lstrip()
        if field == "qid":
            qid = qid or value
        else:
            code = language_of(tag[1].lower()) if tag[1] else attribute_language(tag[3]) or language
            texts.setdefault(code, {}).setdefault(field, value)
    return qid, texts


def attribute_language(attributes: str | None) -> str | None:
    """Returns the language that the attributes of a tag say; Japanese, say, which is none of this package, too."""
    match = _LANGUAGE.search(attributes or "")
    return language_of(match[1].lower()) if match else None


# -------------------------------------------------------------------------------------------------------------- TSV


def tab_separated(text: str, name: str, problems: Problems) -> Iterator[Topic]:
    """Yields the topics of a file of number, title, and if they are there description and narrative."""
    language = language_of_name(name)
    first = True
    for i, line in enumerate(text.split("\n"), start=1):
        cells = [" ".join(cell.split()) for cell in line.split("\t")]
        if not any(cells):
            continue
        header, first = first and cells[0].lower() in QID_COLUMNS, False
        if header:
            continue
        try:
            if not 2 <= len(cells) <= 4 or not cells[1]:
                raise ValueError(f"expected a number, a title and at most two more cells, found {line.strip()[:60]!r}")
            yield Topic(canonical_qid(cells[0]), language, *cells[1:])
        except ValueError as err:
            problems.add(name, f"line {i}", str(err), kind=_DAMAGE)
