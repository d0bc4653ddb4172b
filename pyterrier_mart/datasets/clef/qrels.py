"""Relevance judgments: ``topic 0 docno label`` or ``topic docno label``, with the topics spelled in any way."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.datasets.clef.collections import of_docno
from pyterrier_mart.datasets.clef.topics import QID_COLUMNS, canonical_qid
from pyterrier_mart.problems import Problems

__all__ = ["Judgment", "are_judgments", "is_judgment", "names_documents", "parse_judgment", "read_qrels"]

_LONGEST_LINE = 4096
_ENDLESS = 64 << 20
_LIKE_DOCNO = re.compile(r"[^\W\d]\D*\d")  # and not a word or number that ends a title
_SEPARATORS = re.compile(r"[\s,;|\"]+")
_LABEL = re.compile(r"(-?[0-9]{1,3})(?:\.0{1,9})?")


class Judgment(NamedTuple):
    """What an assessor said of a document.

    Attributes:
        qid: The topic, as :func:`~pyterrier_mart.datasets.clef.topics.canonical_qid` spells it.
        docno: The document.
        label: 0, or more if it is relevant.
    """

    qid: str
    docno: str
    label: int


def parse_judgment(line: str) -> Judgment | None:
    """Returns the judgment in a line; None if it is something else, such as a line of a run."""
    cells = line.split()
    label = _LABEL.fullmatch(cells[-1]) if len(cells) in (3, 4) else None
    try:
        return Judgment(canonical_qid(cells[0]), cells[-2], int(label[1])) if label else None
    except ValueError:
        return None


def is_judgment(line: str) -> bool:
    """Returns whether a line is a judgment, and not one of tab-separated topics.

    The documents of those without a second column of ``0`` must be CLEF's: a title may be a number, say of a year.
    """
    found = parse_judgment(line)
    cells = line.split()
    return found is not None and ((len(cells) == 4 and cells[1].upper() in ("0", "Q0")) or bool(of_docno(found.docno)))


def are_judgments(lines: Sequence[str]) -> bool:
    """Returns whether the first lines of a file are judgments, if need be of documents that are not CLEF's."""
    if any(map(is_judgment, lines)):
        return True
    rows = [line for line in lines if not line.startswith("#") and line.split()[0].lower() not in QID_COLUMNS]
    return bool(rows) and all(
        judged and _LIKE_DOCNO.search(judged.docno) and 0 <= judged.label < 10 for judged in map(parse_judgment, rows)
    )


def names_documents(line: str) -> bool:
    """Returns whether a line names a topic and a document of CLEF's, but is neither a judgment nor a line of a run."""
    cells = [cell for cell in _SEPARATORS.split(line.strip()) if cell]
    try:
        return bool(2 <= len(cells) <= 5 and any(map(of_docno, cells)) and canonical_qid(cells[0]))
    except ValueError:
        return False


def read_qrels(parts: Iterable[bytes], name: str, problems: Problems) -> Iterator[Judgment]:
    """Yields the judgments of a file, in any order; a malformed line is reported, and the others are read.

    Lines that begin with ``#`` are comments, and the first line may name the columns.

    Args:
        parts: The content of the file, decompressed, in UTF-8.
        name: Its name, for messages.
        problems: Where damage is reported.

    Raises:
        ArchiveError: If a line has no end, as in an archive that was made to fill memories.
    """
    for i, line in enumerate(lines_of(parts, name), start=1):
        first = line.split(maxsplit=1)[:1]
        if not first or first[0].startswith("#") or (i == 1 and first[0].lower() in QID_COLUMNS):
            continue
        if judgment := parse_judgment(line):
            yield judgment
        else:
            what = f"expected 'topic 0 docno label', found {line.strip()[:60]!r}"
            problems.add(name, f"line {i}", what, kind="damaged lines of judgments")


def lines_of(parts: Iterable[bytes], name: str) -> Iterator[str]:
    """Yields lines with any kind of end; of one that is too long, its beginning."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    read = 0  # since a line began
    for part in parts:
        read += len(part)
        if read > _ENDLESS:
            raise ArchiveError(f"{name}: a line has no end in {_ENDLESS >> 20} MB; what is before it is kept")
        *lines, rest = (rest + decoder.decode(part)).splitlines(keepends=True) or [""]
        read = 0 if lines else read
        yield from (line[:_LONGEST_LINE].removeprefix("\ufeff") for line in lines)  # files are put together
        rest = rest[:_LONGEST_LINE] + rest[_LONGEST_LINE:][-1:]  # with the end of the line
    if rest:
        yield rest.removeprefix("\ufeff")
