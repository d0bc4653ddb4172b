"""``pyterrier-mart rerank``: scores a first stage's results with a saved model, in a stream that can be resumed."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import pyterrier as pt
import typer
from filelock import FileLock

from pyterrier_mart import __version__
from pyterrier_mart.cli.console import errors, say
from pyterrier_mart.cli.inputs import (
    Row,
    open_index,
    read_queries,
    read_topics,
    rows_parser,
    run_parser,
)
from pyterrier_mart.files import atomic_file, sha256
from pyterrier_mart.retrieval.document_files import DocumentFile, dataset_or_file

__all__ = ["rerank"]

_CHUNK = 2048  # rows that are scored and written at a time, not counting the last query's
_DEPTH = 100


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
        typer.Option(
            help="Texts: JSON lines or tab-separated docno and text, a dataset such as irds:NAME, or an index that "
            "stores them."
        ),
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
        typer.Option(help=f"Documents of each query to re-rank. [default: {_DEPTH}; with --rows all]", min=1),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Translation table to use instead of the model's: a directory or a bundled one.")
    ] = None,
    accept_table: Annotated[
        bool, typer.Option("--accept-table", help="Use --table although the model was trained with another.")
    ] = False,
    missing: Annotated[
        Literal["error", "empty"],
        typer.Option(help="What to do about documents without text: stop, or score an empty text."),
    ] = "error",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...")] = "auto",
    dtype: Annotated[
        Literal["float32", "auto", "bfloat16", "float16"],
        typer.Option(help="What to compute in; auto is bfloat16 where that is faster, which is less exact."),
    ] = "float32",
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens of a batch, padding included.", min=1)] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard what an interrupted command left.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Re-rank a first stage's results with a saved model.

    An interrupted command resumes when it is given again, unless it reads a pipe: until it is done, the results are in
    OUTPUT.partial. Files are UTF-8 text without quoting, plain or gzipped.
    """
    from pyterrier_mart import MARTReRanker

    target = Path(output)
    is_file = output != "-" and (target.is_file() or not target.exists())
    if is_file and target.exists() and not overwrite:
        raise FileExistsError(f"{output} exists; name another path or pass --overwrite")
    three = {"--run": run, "--topics": topics, "--documents": documents}
    if len([value for value in three.values() if value is not None]) != (3 if rows is None else 0):
        raise ValueError("pass --run, --topics and --documents, or only --rows")
    known = read_topics(topics) if topics is not None else {}
    inputs = {**three, "--rows": rows}
    piped = {name for name, value in inputs.items() if value is not None and (value == "-" or Path(value).is_fifo())}
    if "--run" in piped:
        raise ValueError(f"--run must be a file, since it is read twice, not the pipe {run}")

    def read() -> Iterator[list[Row]]:
        if rows is not None:
            return read_queries(rows, rows_parser(), depth)
        return read_queries(str(run), run_parser(known), depth or _DEPTH)

    with closing(Texts()) as texts, ExitStack() as stack:
        total = None
        if "--rows" not in piped:
            # What is wrong with the rows should show before the work.
            queries = pt.tqdm(read(), desc="reading", unit="query", disable=not errors.is_terminal, leave=False)
            total = sum(map(texts.want, queries))
        reranker = MARTReRanker.load(
            model, table, accept_table=accept_table, dtype=dtype, device=device, batch_tokens=batch_tokens
        )
        reranker.warn_untrained()
        scorer = reranker.scorer()
        if documents is not None:
            texts.fill(documents, missing)
        sink: IO[bytes] = sys.stdout.buffer
        if is_file:
            settings = {"version": __version__, "weights": reranker.weights, **reranker.settings()}
            settings |= {"--dtype": str(scorer.dtype), "--depth": depth, "--missing": missing}
            for name, value in inputs.items():
                settings[name] = sha256(Path(value)) if value and Path(value).is_file() else value
            if piped:  # nobody knows whether another pipe holds the same
                settings["time"] = time.time()
            sink = stack.enter_context(resumable(target, settings, restart, keeps=not piped))
        elif output != "-":
            sink = stack.enter_context(open(output, "wb"))
        done = score(scorer, chunked(read()), texts, sink, total, resumes=is_file)
    if is_file:
        say(f"wrote {output} ({done})")
    else:
        say(f"scored {done}", errors)


class Texts:
    """The texts of the documents to re-rank, in a temporary file: memory does not grow with their number."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # a file without a name, which ends when it is closed
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("PRAGMA cache_size = -16384")  # KiB
        self._file.execute("CREATE TABLE texts (docno TEXT PRIMARY KEY, text TEXT)")
        self._file.execute("BEGIN")
        self.close = self._file.close

    def want(self, rows: list[Row]) -> int:
        """Notes which texts are to be looked up; returns how many rows there are."""
        docnos = [(row.docno,) for row in rows if row.text is None]
        self._file.executemany("INSERT OR IGNORE INTO texts VALUES (?, NULL)", docnos)
        return len(rows)

    def wanted(self) -> Iterator[list[str]]:
        """Yields the docnos of the texts that are to be looked up, some at a time."""
        last, query = 0, "SELECT rowid, docno FROM texts WHERE rowid > ? ORDER BY rowid LIMIT 1000"
        while rows := self._file.execute(query, (last,)).fetchall():
            last = rows[-1][0]
            yield [docno for _, docno in rows]

    def fill(self, documents: str, missing: str) -> None:
        """Reads the texts that are to be looked up, of a document that comes twice the first."""
        source = dataset_or_file(documents)
        if isinstance(source, Path) and source.is_dir():
            found = index_texts(source, self.wanted())
        elif isinstance(source, Path):
            found = file_texts(source)
        else:
            found = dataset_texts(source, self.wanted())
        # No text holds half a character: JSON may, databases and tokenizers do not.
        rows = ([part.encode("utf-8", "replace").decode() for part in (text, docno)] for docno, text in found)
        self._file.executemany("UPDATE texts SET text = ? WHERE docno = ? AND text IS NULL", rows)
        (n,) = self._file.execute("SELECT COUNT(*) FROM texts WHERE text IS NULL").fetchone()
        if n:
            some = self._file.execute("SELECT docno FROM texts WHERE text IS NULL ORDER BY rowid LIMIT 3").fetchall()
            names = ", ".join(repr(docno) for (docno,) in some) + (", ..." if n > len(some) else "")
            message = f"{documents} has no text of {n:,} of the documents to re-rank: {names}"
            if missing == "error":
                raise ValueError(f"{message}; pass --missing empty to score empty texts in their place")
            warnings.warn(f"{message}; they are scored as empty texts", stacklevel=2)

    def get(self, row: Row) -> str:
        """Returns the text of a row, an empty one if the document has none."""
        if row.text is not None:
            return row.text
        (text,) = self._file.execute("SELECT text FROM texts WHERE docno = ?", (row.docno,)).fetchone()
        return text or ""


def file_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the docno and text of the documents in a file."""
    documents = DocumentFile(path, verbose=errors.is_terminal)
    for document in documents:
        if not isinstance(document["docno"], str) or not isinstance(document.get("text"), str):
            raise ValueError(f"{documents.where}: expected docno and text, found {document!r:.60}")
        yield document["docno"], document["text"]


def index_texts(path: Path, wanted: Iterable[list[str]]) -> Iterator[tuple[str, str]]:
    """Yields the docno and text of those documents wanted that an index has."""
    store = open_index(path).documents()
    for docnos in wanted:
        yield from ((docno, "\n".join(fields.values())) for docno, fields in store.get_many(docnos).items())


def dataset_texts(dataset: Any, wanted: Iterable[list[str]]) -> Iterator[tuple[str, str]]:
    """Yields the docno and text of documents of a dataset: of those wanted, where it can look them up."""
    if hasattr(dataset, "irds_ref"):  # not its text loader, which fails without saying which documents there are not
        store = dataset.irds_ref().docs_store()
        for document in itertools.chain.from_iterable(map(store.get_many_iter, wanted)):
            # Some have no field of this name.
            yield document.doc_id, document.text if hasattr(document, "text") else document.default_text()
    else:
        yield from ((document["docno"], document["text"]) for document in dataset.get_corpus_iter(verbose=False))


def score(
    scorer: Any, chunks: Iterable[list[Row]], texts: Texts, sink: IO[bytes], total: int | None, *, resumes: bool
) -> str:
    """Scores rows and writes the results, without those that a file already holds; returns what was done."""
    n = earlier = 0
    with pt.tqdm(total=total, desc="MART", unit="pair", disable=not errors.is_terminal) as bar:
        begin = time.perf_counter()
        for rows in chunks:
            n += len(rows)
            resumes = resumes and holds(sink, rows)
            if resumes:
                earlier = n
                bar.update(len(rows))
                continue
            scores = scorer.score([row.query for row in rows], [texts.get(row) for row in rows], bar.update)
            sink.write(as_trec(rows, scores).encode())
            sink.flush()
        rate = (n - earlier) / max(time.perf_counter() - begin, 1e-9)
    return f"{n:,} pairs{f', {earlier:,} of them earlier' if earlier else ''}; {rate:,.0f} pairs/s"


def chunked(queries: Iterable[list[Row]]) -> Iterator[list[Row]]:
    """Puts queries together, always the same ones: what is scored together after an interruption is so without one."""
    chunk: list[Row] = []
    for rows in queries:
        chunk += rows
        if len(chunk) >= _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def as_trec(rows: list[Row], scores: Iterable[float]) -> str:
    """Writes results as :func:`pt.io.write_results` does, the best of each query first."""
    lines = []
    for qid, scored in itertools.groupby(zip(rows, map(float, scores), strict=True), key=lambda pair: pair[0].qid):
        best = sorted(scored, key=lambda pair: -pair[1])
        for rank, (row, score) in enumerate(best, start=pt.model.FIRST_RANK):
            lines.append(f"{qid} Q0 {row.docno} {rank} {score!r} mart\n")
    return "".join(lines)


def holds(sink: IO[bytes], rows: list[Row]) -> bool:
    """Returns whether the results of these rows come next in a file; if not, the file is cut off here."""
    begin = sink.tell()
    lines = [sink.readline().decode("utf-8", "replace") for _ in rows]
    found = {tuple(line.split(" ")[:3:2]) for line in lines}
    if lines[-1].endswith("\n") and found == {(row.qid, row.docno) for row in rows}:
        return True
    sink.seek(begin)
    sink.truncate()
    return False


@contextmanager
def resumable(target: Path, settings: dict[str, Any], restart: bool, *, keeps: bool) -> Iterator[IO[bytes]]:
    """Gives a file beside the output for its lines; when the block ends without an error, they become the output.

    Its first line tells the settings: what another command left, with other settings, is not continued. After an error
    it is kept to resume from, or deleted.
    """
    path, lock = (target.with_name(f"{target.name}.partial{ending}") for ending in ("", ".lock"))
    target.parent.mkdir(parents=True, exist_ok=True)
    head = (json.dumps(settings, ensure_ascii=False, default=str) + "\n").encode()
    with FileLock(lock, timeout=0):
        try:
            with open(path, "a+b") as file:
                file.seek(0)
                begun = file.readline()
                if restart or not begun.endswith(b"\n"):
                    file.seek(0)
                    file.truncate()
                    file.write(head)
                elif begun != head:
                    raise FileExistsError(
                        f"{path} was begun with something else, as its first line says: pass the same to resume, or "
                        "--restart to discard it"
                    )
                try:
                    yield file
                except BaseException:
                    if keeps:
                        say(f"results so far are in {path}; the same command resumes", errors)
                    else:
                        path.unlink()
                    raise
                file.truncate()
                file.seek(len(head))
                with atomic_file(target) as tmp, pt.io.autoopen(str(tmp), "wb") as out:
                    shutil.copyfileobj(file, out)
            path.unlink()
        finally:
            with suppress(OSError):  # where open files cannot be deleted
                lock.unlink()
