"""``pyterrier-mart rerank``: scores a first stage's results with a saved model, in a stream that can be resumed."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import math
import os
import re
import sqlite3
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt
import typer

from pyterrier_mart import TranslationTable, __version__
from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.datasets import MartDataset
from pyterrier_mart.files import atomic_file
from pyterrier_mart.translation.formats.common import damage, open_binary

if TYPE_CHECKING:
    from pyterrier_mart import MARTReRanker

__all__ = ["rerank"]

_CHUNK = 2048  # rows that are scored and written at a time, not counting the last query's
_DEPTH = 100
_TAG = "mart"
_FORMAT = 1
_LONGEST_LINE = 1 << 26
_BATCH = 1000  # documents that are looked up in a dataset at a time
_DATASET = re.compile("[a-z][a-z0-9_-]+:")
_TREC = "qid Q0 docno rank score tag"


class MissingName(str, Enum):
    """The choices of ``--missing``."""

    error = "error"
    empty = "empty"


class DtypeName(str, Enum):
    """The choices of ``--dtype``."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class _Query(NamedTuple):
    """A query and the documents to rank; the texts are None if they are still to be looked up."""

    qid: str
    text: str
    docnos: list[str]
    texts: list[str] | None


def rerank(
    model: Annotated[Path, typer.Option(help="Directory of a saved MARTReRanker.", metavar="DIR")],
    output: Annotated[str, typer.Option("--output", "-o", help="TREC run to write, .gz for gzipped; - for a pipe.")],
    run: Annotated[
        Path | None, typer.Option(help="TREC run of the first stage, grouped by query; may be gzipped.", metavar="FILE")
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option(help="Queries: tab-separated qid and query, or a dataset such as mart:xquad-r/de-en."),
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(help="Texts: JSON lines or tab-separated docno and text, or a dataset such as irds:NAME."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Instead of these three: tab-separated rows grouped by query, with a header that names "
            "qid, query, docno and text; - for a pipe.",
            metavar="FILE",
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(help=f"Re-rank each query's first so many. [default: {_DEPTH}; with --rows all]", min=1),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Translation table to use instead of the model's: a directory or a bundled one.")
    ] = None,
    accept_table: Annotated[
        bool, typer.Option("--accept-table", help="Use --table although the model was trained with another.")
    ] = False,
    missing: Annotated[
        MissingName, typer.Option(help="What to do about documents without text: stop, or score an empty text.")
    ] = MissingName.error,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...")] = "auto",
    dtype: Annotated[DtypeName, typer.Option(help="What to compute in.")] = DtypeName.auto,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens of a batch, padding included.", min=1)] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard what an interrupted command left.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Re-rank a first stage's results with a saved model.

    A command that was interrupted goes on where it was when it is given again: until it is done, the results are in
    OUTPUT.partial. Files are UTF-8 text without quoting, plain or gzipped.
    """
    source = _source(run, topics, documents, rows, depth)
    target = _target(output, overwrite)
    known = _queries(source)
    with (
        tempfile.TemporaryDirectory(prefix="pyterrier-mart-") as folder,
        closing(_Texts(Path(folder))) as texts,
    ):
        # All input is read before the work, so that what is wrong with it shows now: first what takes little time.
        total = _check(source, known, texts) if source.regular else None
        reranker = _load(model, table, accept_table, device, dtype, batch_tokens)
        inputs = _inputs(source, known, reranker, missing) if source.regular else None
        with _Pipe(output) if target is None else _Partial(target, inputs, restart) as sink:
            if source.documents is not None:
                _fill(texts, source.documents, missing)
            _score(reranker, _read(source, known), texts, sink, total)
            sink.finish()
    _say_done(sink, output)


# ---------------------------------------------------------------------------------------------------------- arguments


@dataclass(frozen=True)
class _Source:
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


def _source(
    run: Path | None, topics: str | None, documents: str | None, rows: str | None, depth: int | None
) -> _Source:
    three = {"--run": run, "--topics": topics, "--documents": documents}
    given = [name for name, value in three.items() if value is not None]
    if rows is not None:
        if given:
            raise ValueError(f"--rows holds queries and texts already: leave out {', '.join(given)}")
        if rows != "-":
            _readable(Path(rows))
        return _Source(None, None, None, rows, depth)
    if len(given) < len(three):
        lacking = ", ".join(name for name in three if name not in given)
        raise ValueError(f"pass --run, --topics and --documents, or --rows; there is no {lacking}")
    assert run is not None and topics is not None and documents is not None
    for path in (run, *(Path(name) for name in (topics, documents) if not _is_dataset(name))):
        _readable(path)
    if not run.is_file():
        raise ValueError(f"--run {run}: it is read twice, so that it must be a file and not a pipe")
    if not _is_dataset(documents):
        _document_format(Path(documents))
    return _Source(run, topics, documents, None, depth or _DEPTH)


def _readable(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file, it is a directory")
    if not path.is_fifo():  # opening one and closing it would end the writer
        open(path, "rb").close()


def _is_dataset(name: str) -> bool:
    return _DATASET.match(name) is not None and not Path(name).exists()


def _target(output: str, overwrite: bool) -> Path | None:
    """Returns the file to write, or None for standard output, a device or a pipe, after checking that it may be."""
    path = Path(output)
    if output == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
        return None
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir():
        raise IsADirectoryError(f"cannot write the file {output}: it is a directory")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{output} exists; name another path or pass --overwrite")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise NotADirectoryError(f"cannot write {output}: {parent} is not a directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {output}: no permission to write in {parent}")
    return path


def _load(
    path: Path, table: str | None, accept_table: bool, device: str, dtype: DtypeName, batch_tokens: int | None
) -> MARTReRanker:
    from pyterrier_mart import MARTReRanker
    from pyterrier_mart.mart.inference import resolve_device

    resolve_device(device)  # known before a model is loaded
    given = None if table is None else TranslationTable.load(table)
    try:
        return MARTReRanker.load(
            path, given, accept_table=accept_table, dtype=dtype.value, device=device, batch_tokens=batch_tokens
        )
    except ValueError as err:
        raise ValueError(str(err).replace("accept_table=True", "--accept-table")) from err


def _inputs(
    source: _Source, known: dict[str, str], reranker: MARTReRanker, missing: MissingName
) -> dict[str, Any]:  # fmt: skip
    """Returns what decides the output: interrupted commands go on only if it is the same."""
    found: dict[str, Any] = {
        "the version": __version__,
        "the weights of --model": reranker._weights,
        "the settings of --model, or --table": reranker._inference_settings(),
        "--dtype": str(reranker._scorer().dtype).removeprefix("torch."),
        "--depth": source.depth,
        "--missing": missing.value,
    }
    if source.rows is not None:
        found["--rows"] = _digest(Path(source.rows))
    if source.run is not None:
        found["--run"] = _digest(source.run)
        found["--topics"] = {"digest": hashlib.sha256(repr(sorted(known.items())).encode()).hexdigest()[:32]}
    if source.documents is not None and _is_dataset(source.documents):
        found["--documents"] = source.documents
    elif source.documents is not None:  # much to read, so that size and time must do
        stat = os.stat(source.documents)
        found["--documents"] = {"size": stat.st_size, "modified": stat.st_mtime_ns}
    return dict(json.loads(json.dumps(found)))  # as it is when it is read again


def _digest(path: Path) -> dict[str, str]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(partial(file.read, 1 << 20), b""):
            digest.update(part)
    return {"digest": digest.hexdigest()[:32]}


# ------------------------------------------------------------------------------------------------------------ reading


def _fail(where: str, line: int, reason: str) -> NoReturn:
    raise ValueError(f"{where}, line {line}: {reason}")


def _open(path: Path) -> AbstractContextManager[IO[bytes]]:
    return open_binary(path, verbose=errors.is_terminal)


def _lines(stream: IO[bytes], where: str) -> Iterator[tuple[int, str]]:
    """Yields the lines and their numbers from 1; blank lines are left out.

    Unlike the lines of tables, they may be as long as documents are.
    """
    n = 0
    with damage(where):
        for n, raw in enumerate(iter(partial(stream.readline, _LONGEST_LINE), b""), start=1):
            if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
                _fail(where, n, f"the line is longer than {_LONGEST_LINE:,} bytes")
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as err:
                _fail(where, n, f"byte {err.start + 1} of the line ({raw[err.start]:#04x}) is not UTF-8")
            if n == 1:
                line = line.removeprefix("\ufeff")
            line = line.rstrip("\r\n")
            if line and not line.isspace():
                yield n, line


def _queries(source: _Source) -> dict[str, str]:
    """Returns the queries by qid."""
    if source.topics is None:
        return {}
    if _is_dataset(source.topics):
        frame = pt.get_dataset(source.topics).get_topics()
        if lacking := [column for column in ("qid", "query") if column not in frame]:
            raise ValueError(f"--topics {source.topics} has no {', '.join(lacking)}; it has {', '.join(frame)}")
        return dict(zip(frame["qid"].astype(str), frame["query"], strict=True))
    path, found = source.topics, dict[str, str]()
    with _open(Path(path)) as stream:
        for n, line in _lines(stream, path):
            cells = line.split("\t")
            if not found and cells == ["qid", "query"]:
                continue
            if len(cells) != 2:
                _fail(path, n, f"expected 2 tab-separated columns, qid and query, found {len(cells)}")
            if cells[0] in found:
                _fail(path, n, f"the qid {cells[0]!r} is there twice")
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


def _read(source: _Source, known: dict[str, str]) -> Iterator[_Query]:
    """Yields the queries in order, with the documents in order of their ranks."""
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
                _fail(where, row.line, f"the query {qid!r} was there before: expected rows grouped by qid; sort them")
            if not kept and source.rows is None and not isinstance(known.get(qid), str):
                _fail(where, row.line, f"the query {qid!r} is not in --topics {source.topics}")
            if row.docno in docnos:
                _fail(where, row.line, f"the document {row.docno!r} was there before for the query {qid!r}")
            if kept and row.query != kept[0].query:
                _fail(where, row.line, f"the query {qid!r} has two texts, {kept[0].query!r} and {row.query!r}")
            docnos.add(row.docno)
            if source.rows is None or source.depth is None or len(kept) < source.depth:
                kept.append(row)
        seen.add(qid)
        if source.rows is None:
            kept = sorted(kept, key=lambda row: row.rank)[: source.depth]
            yield _Query(qid, known[qid], [row.docno for row in kept], None)
        else:
            yield _Query(qid, kept[0].query, [row.docno for row in kept], [row.text or "" for row in kept])
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
    for n, line in _lines(stream, where):
        fields = line.split()
        if len(fields) != 6:
            _fail(where, n, f"expected 6 fields, {_TREC}, found {len(fields)}")
        try:
            rank = int(fields[3])
        except ValueError:
            _fail(where, n, f"expected a whole number as rank, found {fields[3]!r}")
        try:
            finite = math.isfinite(float(fields[4]))
        except ValueError:
            finite = False
        if not finite:
            _fail(where, n, f"expected a number as score, found {fields[4]!r}")
        yield _Row(n, fields[0], fields[2], rank, "", None)


def _given_rows(stream: IO[bytes], where: str) -> Iterator[_Row]:
    lines = _lines(stream, where)
    n, header = next(lines, (0, ""))
    if not n:
        raise ValueError(f"{where}: there is nothing to re-rank")
    names = header.split("\t")
    if lacking := [name for name in ("qid", "query", "docno", "text") if name not in names]:
        _fail(where, n, f"expected a header with the columns qid, query, docno and text, found no {', '.join(lacking)}")
    qid, query, docno, text = (names.index(name) for name in ("qid", "query", "docno", "text"))
    for n, line in lines:
        cells = line.split("\t")
        if len(cells) != len(names):
            _fail(where, n, f"expected {len(names)} tab-separated columns as in the header, found {len(cells)}")
        for what, cell in (("qid", cells[qid]), ("docno", cells[docno])):
            if cell.split() != [cell]:
                _fail(where, n, f"expected a {what} without white space, found {cell!r}")
        yield _Row(n, cells[qid], cells[docno], 0, cells[query], cells[text])


# ---------------------------------------------------------------------------------------------------------- documents


class _Texts:
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


def _check(source: _Source, known: dict[str, str], texts: _Texts) -> tuple[int, int]:
    """Reads all rows and notes which texts are wanted; returns the numbers of queries and rows."""
    queries = rows = 0
    with pt.tqdm(desc="reading", unit="row", disable=not errors.is_terminal, leave=False) as bar:
        for query in _read(source, known):
            queries, rows = queries + 1, rows + len(query.docnos)
            if query.texts is None:
                texts.want(query.docnos)
            bar.update(len(query.docnos))
    return queries, rows


def _fill(texts: _Texts, documents: str, missing: MissingName) -> None:
    """Reads the texts that are wanted."""
    if _is_dataset(documents):
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


def _document_format(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".jsonl", ".json", ".ndjson")):
        return "json"
    if name.endswith((".tsv", ".txt", ".tab")):
        return "tsv"
    raise ValueError(f"--documents {path}: expected a file named .jsonl or .tsv, plain or .gz, or a dataset")


def _file_texts(path: Path) -> Iterator[tuple[str, str]]:
    where, is_json = str(path), _document_format(path) == "json"
    with _open(path) as stream:
        for n, line in _lines(stream, where):
            if is_json:
                yield _json_document(where, n, line)
                continue
            cells = line.split("\t")
            if len(cells) != 2:
                _fail(where, n, f"expected 2 tab-separated columns, docno and text, found {len(cells)}")
            if n > 1 or cells != ["docno", "text"]:
                yield cells[0], cells[1]


def _json_document(where: str, n: int, line: str) -> tuple[str, str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as err:
        _fail(where, n, f"not JSON: {err}")
    if not isinstance(value, dict):
        _fail(where, n, f"expected an object with docno and text, found {line[:60]!r}")
    docno, text = value.get("docno"), value.get("text")
    if isinstance(docno, int) and not isinstance(docno, bool):
        docno = str(docno)
    for name, found in (("docno", docno), ("text", text)):
        if name not in value:
            _fail(where, n, f"expected docno and text, found {', '.join(map(repr, value)) or 'nothing'}")
        if not isinstance(found, str):
            _fail(where, n, f"expected text as {name}, found {repr(found)[:60]}")
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


# ------------------------------------------------------------------------------------------------------------ writing


class _Sink:
    """Where results go, and how many there are."""

    def __init__(self) -> None:
        self.queries = self.rows = 0
        self.queries_before = self.rows_before = 0  # of an earlier command
        self.seconds = 0.0

    def __enter__(self) -> _Sink:
        return self

    def __exit__(self, *reason: Any) -> None:
        pass

    def put(self, text: str, queries: int, rows: int) -> None:
        """Writes a chunk of lines."""
        self.queries, self.rows = self.queries + queries, self.rows + rows

    def finish(self) -> None:
        """Called when everything was written."""


class _Pipe(_Sink):
    """Standard output, or a device or pipe; nothing can be resumed."""

    def __init__(self, name: str):
        super().__init__()
        self._name = name
        self._stream: IO[bytes] = sys.stdout.buffer

    def __enter__(self) -> _Pipe:
        if self._name != "-":
            self._stream = open(self._name, "wb")
        return self

    def __exit__(self, *reason: Any) -> None:
        if self._name != "-":
            with _naming(self._name):
                self._stream.close()

    def put(self, text: str, queries: int, rows: int) -> None:
        with _naming(self._name):
            self._stream.write(text.encode())
            self._stream.flush()
        super().put(text, queries, rows)


class _Partial(_Sink):
    """A file beside the output, and a record of what is in it, until the output is complete.

    Args:
        target: The output.
        inputs: What decides its content; None if the input can be read only once, so that nothing can be resumed.
        restart: Whether what an earlier command left is discarded.
    """

    def __init__(self, target: Path, inputs: dict[str, Any] | None, restart: bool):
        super().__init__()
        self._target, self._inputs, self._restart = target, inputs, restart
        self._path = target.with_name(f"{target.name}.partial")
        self._record = target.with_name(f"{target.name}.partial.json")
        self._done = False

    def __enter__(self) -> _Partial:
        with _naming(self._target):
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._path, "ab")
        try:
            _lock(self._file, self._path)
            self._file.truncate(self._resumed())
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, kind: Any, *reason: Any) -> None:
        self._file.close()
        if self._done:
            return
        if self._inputs is None or not self.rows:
            self._path.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)
        elif kind is not None:
            errors.print(
                f"{self.queries:,} queries are in {self._path}; the same command goes on after them",
                markup=False, emoji=False, soft_wrap=True,
            )  # fmt: skip

    def _resumed(self) -> int:
        """Returns the bytes of the partial file to keep."""
        size = self._file.tell()
        if self._restart or self._inputs is None or not size:
            if size and not self._restart:
                raise FileExistsError(
                    f"{self._path} was left by an interrupted command, and a pipe cannot be resumed; pass --restart to "
                    "discard it"
                )
            self._record.unlink(missing_ok=True)
            return 0
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            inputs, length = record["inputs"], int(record["bytes"])
            queries, rows = int(record["queries"]), int(record["rows"])
            known = record["format"] == _FORMAT and isinstance(inputs, dict) and 0 <= length <= size
        except (OSError, ValueError, KeyError, TypeError):
            known = False
        if not known:
            raise FileExistsError(
                f"{self._path} exists, but {self._record} does not tell what is in it; pass --restart to discard both"
            )
        if inputs != self._inputs:
            raise FileExistsError(
                f"{self._path} was begun with something else ({_differences(inputs, self._inputs)}); pass the same as "
                "before to go on, or --restart to discard it"
            )
        self.queries = self.queries_before = queries
        self.rows = self.rows_before = rows
        return length

    def put(self, text: str, queries: int, rows: int) -> None:
        data = text.encode()
        if self._target.suffix == ".gz":
            data = _gzipped(data)
        with _naming(self._target):
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        super().put(text, queries, rows)
        if self._inputs is not None:
            record = {"format": _FORMAT, "queries": self.queries, "rows": self.rows, "bytes": self._file.tell(),
                      "inputs": self._inputs}  # fmt: skip
            with atomic_file(self._record) as tmp:
                tmp.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def finish(self) -> None:
        with _naming(self._target):
            if os.name == "nt":  # where open files cannot be renamed
                self._file.close()
            os.replace(self._path, self._target)
        self._done = True
        self._record.unlink(missing_ok=True)


def _gzipped(data: bytes) -> bytes:
    """Compresses a chunk to a gzip file of its own, without a time: such files one after the other are one again."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    found = []
    for name in dict.fromkeys([*before, *now]):
        a, b = before.get(name), now.get(name)
        if a == b:
            continue
        plain = not isinstance(a, dict) and not isinstance(b, dict) and "weights" not in name
        found.append(f"{name} was {a}, now it is {b}" if plain else f"{name} changed")
    return "; ".join(found)


def _lock(file: IO[bytes], path: Path) -> None:
    """Raises if another command writes the file."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        raise BlockingIOError(f"another command is writing {path}") from err
    except OSError:  # a file system without locks
        return
    if not path.exists() or not os.path.samestat(os.stat(path), os.fstat(file.fileno())):
        raise BlockingIOError(f"another command has just finished {path}")


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Makes errors of writing name the output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as err:
        name = "standard output" if str(path) == "-" else path
        error = type(err)(f"cannot write {name}: {err.strerror or err}")
        error.errno = err.errno
        raise error from err


# ------------------------------------------------------------------------------------------------------------ scoring


def _chunks(queries: Iterable[_Query]) -> Iterator[list[_Query]]:
    """Puts queries together. Where chunks end does not depend on where reading began after an earlier chunk."""
    chunk: list[_Query] = []
    size = 0
    for query in queries:
        chunk.append(query)
        size += len(query.docnos)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _score(
    reranker: MARTReRanker, queries: Iterator[_Query], texts: _Texts, sink: _Sink, total: tuple[int, int] | None
) -> None:
    scorer = reranker._scorer()
    of = f"/{total[0]:,}" if total else ""
    with pt.tqdm(
        total=total[1] if total else None, initial=sink.rows, desc="MART", unit="pair", disable=not errors.is_terminal
    ) as bar:
        begin = time.perf_counter()
        for chunk in _chunks(itertools.islice(queries, sink.queries, None)):
            bar.set_postfix_str(f"query {sink.queries:,}{of}")
            asked = [query.text for query in chunk for _ in query.docnos]
            read: list[str] = []
            for query in chunk:
                read += texts.get(query.docnos) if query.texts is None else query.texts
            sink.put(_as_trec(chunk, scorer.score(asked, read, bar.update)), len(chunk), len(read))
        sink.seconds = time.perf_counter() - begin


def _as_trec(chunk: Iterable[_Query], scores: npt.NDArray[np.float64]) -> str:
    """Writes results as :func:`pt.io.write_results` does, the best of each query first."""
    lines, start = [], 0
    for query in chunk:
        own = scores[start : start + len(query.docnos)]
        start += len(own)
        for rank, i in enumerate(np.argsort(-own, kind="stable").tolist(), start=pt.model.FIRST_RANK):
            lines.append(f"{query.qid} Q0 {query.docnos[i]} {rank} {float(own[i])!r} {_TAG}\n")
    return "".join(lines)


def _say_done(sink: _Sink, output: str) -> None:
    now = sink.rows - sink.rows_before
    rate = f"{now:,} pairs in {sink.seconds:.1f} s, {now / max(sink.seconds, 1e-9):,.0f} pairs/s"
    earlier = f", {sink.rows_before:,} of them earlier" if sink.rows_before else ""
    message = f"{sink.queries:,} queries, {sink.rows:,} pairs{earlier}; {rate}"
    if isinstance(sink, _Pipe):
        errors.print(f"scored {message}", markup=False, emoji=False, soft_wrap=True)
    else:
        out.print(f"wrote {output} ({message})", markup=False, emoji=False, soft_wrap=True)
