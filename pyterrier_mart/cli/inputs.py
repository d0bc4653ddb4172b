"""What commands read: topics, runs and rows, in files, pipes and datasets."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pyterrier_mart import BM25Index, PSQIndex
from pyterrier_mart.artifact import reader_of
from pyterrier_mart.lines import first_of, read_lines, record_parser, table_parser
from pyterrier_mart.query_terms import terms_of
from pyterrier_mart.retrieval.document_files import dataset_or_file
from pyterrier_mart.text import language_of

__all__ = [
    "Row", "open_index", "read_frame", "read_queries", "read_topics", "rows_parser", "run_parser", "topics_frame",
]  # fmt: skip

#: What files call a qid and a query: PyTerrier, ir_datasets, BEIR, NeuCLIR.
_QIDS = ("qid", "query_id", "_id", "id", "topic_id")
_QUERIES = ("query", "text", "title")


class Row(NamedTuple):
    """A document to re-rank; ``text`` is None if it is still to be looked up."""

    qid: str
    query: str
    docno: str
    rank: int
    text: str | None


def read_topics(topics: str) -> dict[str, str]:
    """Returns the queries of a dataset or file by qid.

    Raises:
        ValueError: If they are malformed.
    """
    frame = topics_frame(topics)
    return dict(zip(frame["qid"], frame["query"], strict=True))


def topics_frame(topics: str) -> pd.DataFrame:
    """Returns the queries of a dataset or file: ``qid``, ``query``, and where they are translated ``query_toks``.

    The frame's ``attrs`` have the language that a dataset says they are in, ``lang``.

    Raises:
        OSError: If there is no such dataset or file.
        ValueError: If they are malformed; the message names file and line.
    """
    source = dataset_or_file(topics)
    if not isinstance(source, Path):
        frame = source.get_topics()
        if "query" not in frame:
            raise ValueError(f"--topics {topics} has no query; it has {', '.join(frame)}")
        frame = frame.loc[[isinstance(query, str) for query in frame["query"]], ["qid", "query"]]
        frame = frame.astype({"qid": str}).reset_index(drop=True)
        frame.attrs["lang"] = language_of(source.get_topics_lang()) if hasattr(source, "get_topics_lang") else None
        return frame
    found: dict[str, dict[str, Any]] = {}
    for n, topic in read_lines(topics, topic_parser(topics)):
        if topic["qid"] in found:
            raise ValueError(f"{topics}, line {n}: the qid {topic['qid']!r} is there twice")
        found[topic["qid"]] = topic
    if not found:
        raise ValueError(f"{topics}: there are no queries")
    if 0 < sum("query_toks" in topic for topic in found.values()) < len(found):
        raise ValueError(f"{topics}: some queries have query_toks, and others do not")
    return pd.DataFrame([*found.values()])


def topic_parser(topics: str) -> Callable[[str], dict[str, Any] | None]:
    """Returns what reads the lines of a file of queries: JSON objects, or tab-separated columns."""
    record = record_parser(topics, ["qid", "query"], _QIDS)

    def parse(line: str) -> dict[str, Any] | None:
        found = record(line)
        if found is None:
            return None
        topic = {"qid": first_of(found, _QIDS), "query": first_of(found, _QUERIES)}
        if wrong := [name for name, value in topic.items() if not isinstance(value, str)]:
            raise ValueError(f"expected text in {wrong[0]}, found {topic[wrong[0]]!r:.60}")
        if isinstance(found.get("query_toks"), dict):
            (terms,) = terms_of([found["query_toks"]])
            terms.spec, terms.query = found.get("analyzer"), topic["query"]
            topic["query_toks"] = terms
        return topic

    return parse


def open_index(path: Path) -> BM25Index | PSQIndex:
    """Opens an index of words.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is something else, or damaged.
    """
    return (PSQIndex if reader_of(path) == "PSQIndex" else BM25Index)(path)


def run_parser(topics: dict[str, str]) -> Callable[[str], Row]:
    """Returns what reads the lines of a TREC run, given the queries by qid."""

    def parse(line: str) -> Row:
        fields = line.split()
        if len(fields) != 6 or fields[0] not in topics:
            raise ValueError(f"expected qid Q0 docno rank score tag, the qid one of --topics, found {line[:80]!r}")
        return Row(fields[0], topics[fields[0]], fields[2], int(fields[3]), None)

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
