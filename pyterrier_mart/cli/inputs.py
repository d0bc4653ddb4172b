"""What commands read: topics, runs and rows, in files, pipes and datasets."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import pandas as pd
import pyterrier as pt

from pyterrier_mart.problems import Faults
from pyterrier_mart.translation.formats.common import lines, open_binary

__all__ = [
    "Row", "cells_of", "is_dataset", "read_frame", "read_lines", "read_queries", "read_topics", "rows_parser",
    "run_parser",
]  # fmt: skip

_T = TypeVar("_T")
_LONGEST_LINE = 64 << 20  # documents are on a line each


class Row(NamedTuple):
    """A document to re-rank; ``text`` is None if it is still to be looked up."""

    qid: str
    query: str
    docno: str
    rank: int
    text: str | None


def is_dataset(name: str) -> bool:
    """Returns whether this names a dataset, such as irds:NAME, and not a file."""
    return ":" in name and not Path(name).exists()


def read_lines(path: str, parse: Callable[[str], _T | None], *, verbose: bool = False) -> Iterator[tuple[int, _T]]:
    """Yields the number of each line and what ``parse`` makes of it, unless that is None; names malformed lines."""
    opened = nullcontext(sys.stdin.buffer) if path == "-" else open_binary(Path(path), verbose)
    with opened as stream:
        for n, line in lines(stream, Faults(path), longest=_LONGEST_LINE):
            try:
                found = None if not line or line.isspace() else parse(line)
            except (ValueError, RecursionError) as err:
                raise ValueError(f"{path}, line {n}: {err}") from err
            if found is not None:
                yield n, found


def cells_of(line: str, names: list[str]) -> dict[str, str] | None:
    """Returns the tab-separated cells of a line by name, or None for a line of the names."""
    cells = line.split("\t")
    if len(cells) != len(names):
        raise ValueError(f"expected {len(names)} tab-separated columns, {', '.join(names):.200}, found {len(cells)}")
    return dict(zip(names, cells, strict=True)) if cells != names else None


def read_topics(topics: str) -> dict[str, str]:
    """Returns the queries of a dataset or file by qid.

    Raises:
        ValueError: If they are malformed.
    """
    if is_dataset(topics):
        frame = pt.get_dataset(topics).get_topics()
        if "query" not in frame:
            raise ValueError(f"--topics {topics} has no query; it has {', '.join(frame)}")
        return {str(qid): q for qid, q in zip(frame["qid"], frame["query"], strict=True) if isinstance(q, str)}
    found: dict[str, str] = {}
    for n, cells in read_lines(topics, partial(cells_of, names=["qid", "query"])):
        if cells["qid"] in found:
            raise ValueError(f"{topics}, line {n}: the qid {cells['qid']!r} is there twice")
        found[cells["qid"]] = cells["query"]
    if not found:
        raise ValueError(f"{topics}: there are no queries")
    return found


def run_parser(topics: dict[str, str]) -> Callable[[str], Row]:
    """Returns what reads the lines of a TREC run, given the queries by qid."""

    def parse(line: str) -> Row:
        fields = line.split()
        if len(fields) != 6 or fields[0] not in topics:
            raise ValueError(f"expected qid Q0 docno rank score tag, the qid one of --topics, found {line[:80]!r}")
        return Row(fields[0], topics[fields[0]], fields[2], int(fields[3]), None)

    return parse


def table_parser(names: list[str], *required: str) -> Callable[[str], dict[str, str] | None]:
    """Returns what reads the cells of tab-separated rows by name; the first row fills ``names``."""

    def parse(line: str) -> dict[str, str] | None:
        if not names:
            names.extend(line.split("\t"))
            if not {*required} <= {*names} or len({*names}) < len(names):
                expected = f"a header with {', '.join(required)}" if required else "a header"
                raise ValueError(f"expected {expected}, each name once, found {line[:80]!r}")
        return cells_of(line, names)

    return parse


def read_frame(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Returns a file of tab-separated columns, which its first line names, every value as text.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If a line is malformed; the message names file and line.
    """
    names: list[str] = []
    rows = [cells for _, cells in read_lines(os.fspath(path), table_parser(names))]
    return pd.DataFrame(rows, columns=names, dtype=str)


def rows_parser() -> Callable[[str], Row | None]:
    """Returns what reads tab-separated rows, of which the first one names the columns."""
    read = table_parser([], "qid", "query", "docno", "text")

    def parse(line: str) -> Row | None:
        cells = read(line)
        if cells is None:
            return None
        if any(cells[name].split() != [cells[name]] for name in ("qid", "docno")):
            raise ValueError(f"expected qid and docno without white space, found {cells['qid']!r}, {cells['docno']!r}")
        return Row(cells["qid"], cells["query"], cells["docno"], 0, cells["text"])

    return parse


def read_queries(path: str, parse: Callable[[str], Row | None], depth: int | None) -> Iterator[list[Row]]:
    """Yields the rows of each query, which stand together in a file, in order of their ranks down to ``depth``."""
    seen: set[str] = set()
    for qid, entries in itertools.groupby(read_lines(path, parse), key=lambda found: found[1].qid):
        found: dict[str, Row] = {}
        for n, row in entries:
            query = next(iter(found.values()), row).query
            if qid in seen or row.docno in found or row.query != query:
                what = f"its document {row.docno!r}" if row.docno in found else f"the query {qid!r}"
                what += " was there before" + " with another text" * (row.query != query)
                raise ValueError(f"{path}, line {n}: {what}; expected rows grouped by qid, each once")
            found[row.docno] = row
        seen.add(qid)
        yield sorted(found.values(), key=lambda row: row.rank)[:depth]
    if not seen:
        raise ValueError(f"{path}: there is nothing to re-rank")
