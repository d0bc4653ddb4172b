"""The command: its arguments, and the scoring."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pyterrier as pt
import typer

from pyterrier_mart import TranslationTable, __version__
from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.cli.rerank.inputs import Query, Source, is_dataset, read_queries, read_topics
from pyterrier_mart.cli.rerank.output import Partial, Pipe, Sink
from pyterrier_mart.cli.rerank.texts import MissingName, Texts, document_format, fill

if TYPE_CHECKING:
    from pyterrier_mart import MARTReRanker

__all__ = ["rerank"]

_CHUNK = 2048  # rows that are scored and written at a time, not counting the last query's
_DEPTH = 100
_TAG = "mart"


class DtypeName(str, Enum):
    """The choices of ``--dtype``."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


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
    dtype: Annotated[
        DtypeName, typer.Option(help="What to compute in; auto is bfloat16 where that is faster, which is less exact.")
    ] = DtypeName.float32,
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
    known = read_topics(source)
    with (
        tempfile.TemporaryDirectory(prefix="pyterrier-mart-") as folder,
        closing(Texts(Path(folder))) as texts,
    ):
        # All input is read before the work, so that what is wrong with it shows now: first what takes little time.
        total = _check(source, known, texts) if source.regular else None
        reranker = _load(model, table, accept_table, device, dtype, batch_tokens)
        inputs = _inputs(source, known, reranker, missing) if source.regular else None
        with Pipe(output) if target is None else Partial(target, inputs, restart) as sink:
            if source.documents is not None:
                fill(texts, source.documents, missing)
            _score(reranker, read_queries(source, known), texts, sink, total)
            sink.finish()
    _say_done(sink, output)


# ---------------------------------------------------------------------------------------------------------- arguments


def _source(run: Path | None, topics: str | None, documents: str | None, rows: str | None, depth: int | None) -> Source:
    three = {"--run": run, "--topics": topics, "--documents": documents}
    given = [name for name, value in three.items() if value is not None]
    if rows is not None:
        if given:
            raise ValueError(f"--rows holds queries and texts already: leave out {', '.join(given)}")
        if rows != "-":
            _readable(Path(rows))
        return Source(None, None, None, rows, depth)
    if len(given) < len(three):
        lacking = ", ".join(name for name in three if name not in given)
        raise ValueError(f"pass --run, --topics and --documents, or --rows; there is no {lacking}")
    assert run is not None and topics is not None and documents is not None
    for path in (run, *(Path(name) for name in (topics, documents) if not is_dataset(name))):
        _readable(path)
    if not run.is_file():
        raise ValueError(f"--run {run}: it is read twice, so that it must be a file and not a pipe")
    if not is_dataset(documents):
        document_format(Path(documents))
    return Source(run, topics, documents, None, depth or _DEPTH)


def _readable(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file, it is a directory")
    if not path.is_fifo():  # opening one and closing it would end the writer
        open(path, "rb").close()


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
    from pyterrier_mart.devices import resolve_device

    resolve_device(device)  # known before a model is loaded
    given = None if table is None else TranslationTable.load(table)
    try:
        return MARTReRanker.load(
            path, given, accept_table=accept_table, dtype=dtype.value, device=device, batch_tokens=batch_tokens
        )
    except ValueError as err:
        raise ValueError(str(err).replace("accept_table=True", "--accept-table")) from err


def _inputs(
    source: Source, known: dict[str, str], reranker: MARTReRanker, missing: MissingName
) -> dict[str, Any]:  # fmt: skip
    """Returns what decides the output: interrupted commands go on only if it is the same."""
    found: dict[str, Any] = {
        "the version": __version__,
        "the weights of --model": reranker.weights,
        "the settings of --model, or --table": reranker.settings(),
        "--dtype": str(reranker.scorer().dtype).removeprefix("torch."),
        "--depth": source.depth,
        "--missing": missing.value,
    }
    if source.rows is not None:
        found["--rows"] = _digest(Path(source.rows))
    if source.run is not None:
        found["--run"] = _digest(source.run)
        found["--topics"] = {"digest": hashlib.sha256(repr(sorted(known.items())).encode()).hexdigest()[:32]}
    if source.documents is not None and is_dataset(source.documents):
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


# ------------------------------------------------------------------------------------------------------------ scoring


def _check(source: Source, known: dict[str, str], texts: Texts) -> tuple[int, int]:
    """Reads all rows and notes which texts are wanted; returns the numbers of queries and rows."""
    queries = rows = 0
    with pt.tqdm(desc="reading", unit="row", disable=not errors.is_terminal, leave=False) as bar:
        for query in read_queries(source, known):
            queries, rows = queries + 1, rows + len(query.docnos)
            if query.texts is None:
                texts.want(query.docnos)
            bar.update(len(query.docnos))
    return queries, rows


def _chunks(queries: Iterable[Query]) -> Iterator[list[Query]]:
    """Puts queries together. Where chunks end does not depend on where reading began after an earlier chunk."""
    chunk: list[Query] = []
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
    reranker: MARTReRanker, queries: Iterator[Query], texts: Texts, sink: Sink, total: tuple[int, int] | None
) -> None:
    scorer = reranker.scorer()
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


def _as_trec(chunk: Iterable[Query], scores: npt.NDArray[np.float64]) -> str:
    """Writes results as :func:`pt.io.write_results` does, the best of each query first."""
    lines, start = [], 0
    for query in chunk:
        own = scores[start : start + len(query.docnos)]
        start += len(own)
        for rank, i in enumerate(np.argsort(-own, kind="stable").tolist(), start=pt.model.FIRST_RANK):
            lines.append(f"{query.qid} Q0 {query.docnos[i]} {rank} {float(own[i])!r} {_TAG}\n")
    return "".join(lines)


def _say_done(sink: Sink, output: str) -> None:
    now = sink.rows - sink.rows_before
    rate = f"{now:,} pairs in {sink.seconds:.1f} s, {now / max(sink.seconds, 1e-9):,.0f} pairs/s"
    earlier = f", {sink.rows_before:,} of them earlier" if sink.rows_before else ""
    message = f"{sink.queries:,} queries, {sink.rows:,} pairs{earlier}; {rate}"
    if isinstance(sink, Pipe):
        errors.print(f"scored {message}", markup=False, emoji=False, soft_wrap=True)
    else:
        out.print(f"wrote {output} ({message})", markup=False, emoji=False, soft_wrap=True)
