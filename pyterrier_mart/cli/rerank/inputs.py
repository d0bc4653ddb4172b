"""Reading runs, rows and topics; what is malformed is named with its line."""

from __future__ import annotations

import gzip
import io
import itertools
import math
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import pyterrier as pt

from pyterrier_mart.cli.console import errors
from pyterrier_mart.translation.formats.common import damage, open_binary

__all__ = ["Query", "Source", "fail", "is_dataset", "open_file", "read_lines", "read_queries", "read_topics"]

_LONGEST_LINE = 1 << 26
_DATASET = re.compile("[a-z][a-z0-9_-]+:")
_TREC = "qid Q0 docno rank score tag"


@dataclass(frozen=True)
class Source:
    """Where the rows come from: ``rows`` or the three others."""

    run: Path | None
    topics: str | None
    documents: str | None
    rows: str | None
    depth: int | None

    @property
    def regular(self) -> bool:
        """Whether it can be read twice."""
        return self.rows is None or Path(self.rows).is_file()


class Query(NamedTuple):
    """A query and the documents to rank; the texts are None if they are still to be looked up."""

    qid: str
    text: str
    docnos: list[str]
    texts: list[str] | None


def is_dataset(name: str) -> bool:
    """Returns whether this names a dataset, such as irds:NAME, and not a file."""
    return _DATASET.match(name) is not None and not Path(name).exists()


def fail(where: str, line: int, reason: str) -> NoReturn:
    """Raises an error about a line.

    Raises:
        ValueError: Always.
    """
    raise ValueError(f"{where}, line {line}: {reason}")


def open_file(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Opens a file, plain or gzipped, and shows on a terminal how much of it was read."""
    return open_binary(path, verbose=errors.is_terminal)


def read_lines(stream: IO[bytes], where: str) -> Iterator[tuple[int, str]]:
    """Yields the lines and their numbers from 1; blank lines are left out.

    Unlike the lines of tables, they may be as long as documents are.

    Raises:
        ValueError: If a line is too long or not UTF-8, or the file is damaged.
    """
    n = 0
    with damage(where):
        for n, raw in enumerate(iter(partial(stream.readline, _LONGEST_LINE), b""), start=1):
            if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
                fail(where, n, f"the line is longer than {_LONGEST_LINE:,} bytes")
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as err:
                fail(where, n, f"byte {err.start + 1} of the line ({raw[err.start]:#04x}) is not UTF-8")
            if n == 1:
                line = line.removeprefix("\ufeff")
            line = line.rstrip("\r\n")
            if line and not line.isspace():
                yield n, line


def read_topics(source: Source) -> dict[str, str]:
    """Returns the queries by qid, none if the source has no topics of its own.

    Raises:
        ValueError: If the topics are malformed.
    """
    if source.topics is None:
        return {}
    if is_dataset(source.topics):
        frame = pt.get_dataset(source.topics).get_topics()
        if lacking := [column for column in ("qid", "query") if column not in frame]:
            raise ValueError(f"--topics {source.topics} has no {', '.join(lacking)}; it has {', '.join(frame)}")
        return dict(zip(frame["qid"].astype(str), frame["query"], strict=True))
    path, found = source.topics, dict[str, str]()
    with open_file(Path(path)) as stream:
        for n, line in read_lines(stream, path):
            cells = line.split("\t")
            if not found and cells == ["qid", "query"]:
                continue
            if len(cells) != 2:
                fail(path, n, f"expected 2 tab-separated columns, qid and query, found {len(cells)}")
            if cells[0] in found:
                fail(path, n, f"the qid {cells[0]!r} is there twice")
            found[cells[0]] = cells[1]
    if not found:
        raise ValueError(f"{path}: no queries")
    return found


class _Row(NamedTuple):
    line: int
    qid: str
    docno: str
    rank: int
    query: str
    text: str | None


def read_queries(source: Source, known: dict[str, str]) -> Iterator[Query]:
    """Yields the queries in order, with the documents in order of their ranks.

    Args:
        source: Where they come from.
        known: The topics.

    Raises:
        ValueError: If the rows are malformed, not grouped by query, or none.
    """
    where = str(source.run) if source.rows is None else "standard input" if source.rows == "-" else source.rows
    if source.rows == "-":
        rows = _given_rows(_standard_input(), where)
    elif source.rows is not None:
        rows = _opened(Path(source.rows), _given_rows)
    else:
        rows = _opened(Path(where), _run_rows)
    seen: set[str] = set()
    for qid, group in itertools.groupby(rows, key=lambda row: row.qid):
        kept: list[_Row] = []
        docnos: set[str] = set()
        for row in group:
            if not kept and qid in seen:
                fail(where, row.line, f"the query {qid!r} was there before: expected rows grouped by qid; sort them")
            if not kept and source.rows is None and not isinstance(known.get(qid), str):
                fail(where, row.line, f"the query {qid!r} is not in --topics {source.topics}")
            if row.docno in docnos:
                fail(where, row.line, f"the document {row.docno!r} was there before for the query {qid!r}")
            if kept and row.query != kept[0].query:
                fail(where, row.line, f"the query {qid!r} has two texts, {kept[0].query!r} and {row.query!r}")
            docnos.add(row.docno)
            if source.rows is None or source.depth is None or len(kept) < source.depth:
                kept.append(row)
        seen.add(qid)
        if source.rows is None:
            kept = sorted(kept, key=lambda row: row.rank)[: source.depth]
            yield Query(qid, known[qid], [row.docno for row in kept], None)
        else:
            yield Query(qid, kept[0].query, [row.docno for row in kept], [row.text or "" for row in kept])
    if not seen:
        raise ValueError(f"{where}: there is nothing to re-rank")


def _standard_input() -> IO[bytes]:
    stream: Any = sys.stdin.buffer
    zipped = hasattr(stream, "peek") and stream.peek(2)[:2] == b"\x1f\x8b"
    return io.BufferedReader(gzip.GzipFile(fileobj=stream)) if zipped else stream


def _opened(path: Path, read: Any) -> Iterator[_Row]:
    with open_binary(path) as stream:
        yield from read(stream, str(path))


def _run_rows(stream: IO[bytes], where: str) -> Iterator[_Row]:
    for n, line in read_lines(stream, where):
        fields = line.split()
        if len(fields) != 6:
            fail(where, n, f"expected 6 fields, {_TREC}, found {len(fields)}")
        try:
            rank = int(fields[3])
        except ValueError:
            fail(where, n, f"expected a whole number as rank, found {fields[3]!r}")
        try:
            finite = math.isfinite(float(fields[4]))
        except ValueError:
            finite = False
        if not finite:
            fail(where, n, f"expected a number as score, found {fields[4]!r}")
        yield _Row(n, fields[0], fields[2], rank, "", None)


def _given_rows(stream: IO[bytes], where: str) -> Iterator[_Row]:
    lines = read_lines(stream, where)
    n, header = next(lines, (0, ""))
    if not n:
        raise ValueError(f"{where}: there is nothing to re-rank")
    names = header.split("\t")
    if lacking := [name for name in ("qid", "query", "docno", "text") if name not in names]:
        fail(where, n, f"expected a header with the columns qid, query, docno and text, found no {', '.join(lacking)}")
    qid, query, docno, text = (names.index(name) for name in ("qid", "query", "docno", "text"))
    for n, line in lines:
        cells = line.split("\t")
        if len(cells) != len(names):
            fail(where, n, f"expected {len(names)} tab-separated columns as in the header, found {len(cells)}")
        for what, cell in (("qid", cells[qid]), ("docno", cells[docno])):
            if cell.split() != [cell]:
                fail(where, n, f"expected a {what} without white space, found {cell!r}")
        yield _Row(n, cells[qid], cells[docno], 0, cells[query], cells[text])
