"""The texts of the documents: where they come from, and the temporary file that holds them."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path

import pandas as pd
import pyterrier as pt

from pyterrier_mart.cli.rerank.inputs import fail, is_dataset, open_file, read_lines
from pyterrier_mart.datasets import MartDataset

__all__ = ["MissingName", "Texts", "document_format", "fill"]

_BATCH = 1000  # documents that are looked up in a dataset at a time


class MissingName(str, Enum):
    """The choices of ``--missing``."""

    error = "error"
    empty = "empty"


class Texts:
    """The texts of the wanted documents, in a temporary file: memory does not grow with their number."""

    def __init__(self, folder: Path):
        self._file = sqlite3.connect(folder / "texts.sqlite", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("PRAGMA cache_size = -65536")  # KiB
        self._file.execute("CREATE TABLE wanted (number INTEGER PRIMARY KEY, docno TEXT UNIQUE NOT NULL)")
        self._file.execute("CREATE TABLE texts (number INTEGER PRIMARY KEY, text BLOB NOT NULL)")
        self._file.execute("BEGIN")

    def want(self, docnos: Iterable[str]) -> None:
        """Adds documents whose texts are wanted."""
        self._file.executemany("INSERT OR IGNORE INTO wanted (docno) VALUES (?)", ((docno,) for docno in docnos))

    def wanted(self) -> Iterator[list[str]]:
        """Yields the wanted documents, some at a time."""
        last = 0
        query = "SELECT number, docno FROM wanted WHERE number > ? ORDER BY number LIMIT ?"
        while found := self._file.execute(query, (last, _BATCH)).fetchall():
            last = found[-1][0]
            yield [docno for _, docno in found]

    def fill(self, documents: Iterable[tuple[str, str]]) -> None:
        """Keeps the texts that are wanted; of a document that comes twice, the first."""
        query = "INSERT OR IGNORE INTO texts SELECT number, ? FROM wanted WHERE docno = ?"
        rows = (
            (text.encode("utf-8", "surrogatepass"), docno.encode("utf-8", "backslashreplace").decode())
            for docno, text in documents
        )
        self._file.executemany(query, rows)

    def missing(self) -> tuple[int, list[str]]:
        """Returns how many wanted texts are missing, and the first three."""
        without = "FROM wanted LEFT JOIN texts USING (number) WHERE text IS NULL"
        (n,) = self._file.execute(f"SELECT COUNT(*) {without}").fetchone()
        some = self._file.execute(f"SELECT docno {without} ORDER BY number LIMIT 3").fetchall()
        return n, [docno for (docno,) in some]

    def get(self, docnos: Iterable[str]) -> list[str]:
        """Returns texts, empty ones for documents without."""
        query = "SELECT text FROM texts JOIN wanted USING (number) WHERE docno = ?"
        found = (self._file.execute(query, (docno,)).fetchone() for docno in docnos)
        return ["" if row is None else row[0].decode("utf-8", "surrogatepass") for row in found]

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def fill(texts: Texts, documents: str, missing: MissingName) -> None:
    """Reads the texts that are wanted.

    Args:
        texts: Where they are put.
        documents: The file or dataset to read.
        missing: What to do about documents without text.

    Raises:
        ValueError: If documents are malformed, or have no text although that is an error.
    """
    if is_dataset(documents):
        texts.fill(_dataset_texts(documents, texts.wanted()))
    else:
        texts.fill(_file_texts(Path(documents)))
    n, some = texts.missing()
    if n:
        message = f"{documents} has no text of {n:,} of the documents to re-rank: {', '.join(map(repr, some))}"
        message += ", ..." if n > len(some) else ""
        if missing is MissingName.error:
            raise ValueError(f"{message}; pass --missing empty to score empty texts in their place")
        warnings.warn(f"{message}; they are scored as empty texts", stacklevel=2)


def document_format(path: Path) -> str:
    """Returns the format of a file of documents, json or tsv.

    Raises:
        ValueError: If the name does not tell.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".jsonl", ".json", ".ndjson")):
        return "json"
    if name.endswith((".tsv", ".txt", ".tab")):
        return "tsv"
    raise ValueError(f"--documents {path}: expected a file named .jsonl or .tsv, plain or .gz, or a dataset")


def _file_texts(path: Path) -> Iterator[tuple[str, str]]:
    where, is_json = str(path), document_format(path) == "json"
    with open_file(path) as stream:
        for n, line in read_lines(stream, where):
            if is_json:
                yield _json_document(where, n, line)
                continue
            cells = line.split("\t")
            if len(cells) != 2:
                fail(where, n, f"expected 2 tab-separated columns, docno and text, found {len(cells)}")
            if n > 1 or cells != ["docno", "text"]:
                yield cells[0], cells[1]


def _json_document(where: str, n: int, line: str) -> tuple[str, str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as err:
        fail(where, n, f"not JSON: {err}")
    if not isinstance(value, dict):
        fail(where, n, f"expected an object with docno and text, found {line[:60]!r}")
    docno, text = value.get("docno"), value.get("text")
    if isinstance(docno, int) and not isinstance(docno, bool):
        docno = str(docno)
    for name, found in (("docno", docno), ("text", text)):
        if name not in value:
            fail(where, n, f"expected docno and text, found {', '.join(map(repr, value)) or 'nothing'}")
        if not isinstance(found, str):
            fail(where, n, f"expected text as {name}, found {repr(found)[:60]}")
    return str(docno), str(text)


def _dataset_texts(name: str, wanted: Iterator[list[str]]) -> Iterator[tuple[str, str]]:
    dataset = pt.get_dataset(name)
    if isinstance(dataset, MartDataset):
        documents = dataset.documents()
        for docnos in wanted:
            yield from ((docno, documents[docno]["text"]) for docno in docnos if docno in documents)
    elif hasattr(dataset, "irds_ref"):
        # Not its text loader, which fails without saying which documents there are not.
        store = dataset.irds_ref().docs_store()
        for docnos in wanted:
            for document in store.get_many_iter(docnos):
                yield document.doc_id, document.text if hasattr(document, "text") else document.default_text()
    elif hasattr(dataset, "text_loader"):
        loader = dataset.text_loader("text")
        for docnos in wanted:
            found = loader(pd.DataFrame({"qid": "1", "docno": docnos}))
            yield from ((d, t) for d, t in zip(found["docno"], found["text"], strict=True) if isinstance(t, str))
    else:
        raise ValueError(f"--documents {name}: this dataset gives no texts by docno (it has no text_loader)")
