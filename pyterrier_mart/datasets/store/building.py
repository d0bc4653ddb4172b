"""Building a document store from files, in as many attempts as it takes."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyterrier as pt

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.datasets.store.format import (
    BATCH,
    PARAMETERS,
    clean,
    column_names,
    connect,
    create,
    read_header,
    write_meta,
)
from pyterrier_mart.datasets.store.locking import locked
from pyterrier_mart.datasets.store.reading import DocumentStore
from pyterrier_mart.problems import Problems

__all__ = ["build_store"]

#: A batch ends earlier when its texts are longer than that.
_CHARACTERS = 8 << 20
#: A commit waits for the disk. Sources that take less time share one.
_SECONDS = 1.0

_Read = Callable[[Path, Callable[[int], None]], Iterator[tuple[str, Mapping[str, str]]]]


def build_store(
    path: str | os.PathLike[str],
    sources: Sequence[Path],
    read: _Read,
    *,
    fields: Sequence[str],
    meta: Mapping[str, Any] | None = None,
    problems: Problems | None = None,
    verbose: bool = False,
) -> DocumentStore:
    """Puts the documents of files into a store, unless that was done before.

    If the process is stopped at any time, the same call goes on with the sources that were not complete; until all
    are, the file is called ``path`` and ``.partial``. Of documents with the same number the first one is kept. Of
    several processes that build a store, one does so while the others wait for it.

    Args:
        path: The file to write. A complete store of the same sources, fields and meta is opened; any other one is
            built anew, and replaced when the new one is complete.
        sources: The files. One is known by its name, size and time, so that they can be moved to another folder.
        read: Yields the number and the fields of the documents of a source. It is called with the source, and with a
            function to tell how many bytes were read from it since the last call.
        fields: Names of the fields to keep; every document must have them.
        meta: What is to be known of the documents: JSON values.
        problems: Where damage is reported, also that which an earlier call found; ``read`` may add to it. ``None``: a
            damaged archive is an error. Otherwise what can be read of it is kept.
        verbose: Whether to show a progress bar.

    Raises:
        ValueError: If there are no fields, or if a document lacks one.
        BlockingIOError: If another process seems to build the store, and there is no way to wait for it.
        OSError: If the store cannot be written.
    """
    path = Path(path).absolute()
    plan = _Plan(
        tuple(fields), json.loads(json.dumps(dict(meta or {}))), [_identity(Path(source)) for source in sources]
    )
    if not plan.fields:
        raise ValueError("fields=(): expected at least one")
    path.parent.mkdir(parents=True, exist_ok=True)
    store = _complete(path, plan)
    if store is None:
        with locked(path, verbose=verbose):
            store = _complete(path, plan)
            if store is None:
                _build(path, list(map(Path, sources)), read, plan, problems, verbose)
                return DocumentStore(path)
    if problems is not None:
        problems.update(store.problems)
    return store


class _Plan(NamedTuple):
    fields: tuple[str, ...]
    meta: dict[str, Any]
    sources: list[list[Any]]


def _identity(source: Path) -> list[Any]:
    """Name, size and time: of a folder, the size of all that is in it, and the latest time."""
    if not source.is_dir():
        stat = source.stat()
        return [source.name, stat.st_size, stat.st_mtime_ns]
    stats = [file.stat() for file in source.rglob("*") if file.is_file()]
    return [source.name, sum(stat.st_size for stat in stats), max((stat.st_mtime_ns for stat in stats), default=0)]


def _complete(path: Path, plan: _Plan) -> DocumentStore | None:
    try:
        store = DocumentStore(path)
    except (FileNotFoundError, ValueError):
        return None
    if (store.fields, store.meta, store._sources) != (plan.fields, plan.meta, plan.sources):
        store.close()
        return None
    return store


def _build(
    path: Path,
    sources: Sequence[Path],
    read: _Read,
    plan: _Plan,
    problems: Problems | None,
    verbose: bool,
) -> None:
    partial = Path(f"{path}.partial")
    try:
        _write(partial, sources, read, plan, problems, verbose)
    except sqlite3.Error as err:
        raise OSError(f"cannot write the document store {path}: {err}; if that stays so, delete {partial}") from err
    with open(partial, "r+b") as stream:
        os.fsync(stream.fileno())
    os.replace(partial, path)


def _write(
    partial: Path,
    sources: Sequence[Path],
    read: _Read,
    plan: _Plan,
    problems: Problems | None,
    verbose: bool,
) -> None:
    with closing(_resumed(partial, plan)) as connection, pt.tqdm(
        total=sum(size for _, size, _ in plan.sources),
        unit="B",
        unit_scale=True,
        desc=f"building {partial.stem}",
        disable=not verbose,
    ) as bar:  # fmt: skip
        writer = _Writer(connection, plan.fields, sources, problems)
        committed = time.monotonic()
        for i, source in enumerate(sources):
            after = bar.n + plan.sources[i][1]
            if not writer.done(i):
                with writer.source(i):
                    writer.write(i, read(source, bar.update))
            bar.update(after - bar.n)  # the reader may have stopped early
            if time.monotonic() - committed > _SECONDS:
                connection.commit()
                committed = time.monotonic()
        write_meta(connection, {"documents": writer.count(), "problems": writer.found.to_json(), "complete": True})
        connection.commit()


class _Writer:
    """Writes documents, one source after the other.

    Attributes:
        found: The problems of all sources, those of earlier calls too.
    """

    def __init__(
        self, connection: sqlite3.Connection, fields: Sequence[str], sources: Sequence[Path], problems: Problems | None
    ):
        self.found = Problems()
        self._connection, self._fields, self._sources = connection, fields, sources
        self._strict = problems is None
        self._problems = Problems() if problems is None else problems
        self._done = set()
        for i, text in connection.execute("SELECT source, problems FROM done ORDER BY source"):
            self._done.add(i)
            self.found.update(Problems.from_json(json.loads(text)))
        self._problems.update(self.found)
        self._columns = ", ".join(column_names(fields))
        marks = ", ".join("?" * (2 + len(fields)))
        self._insert = f"INSERT INTO documents (source, docno, {self._columns}) VALUES ({marks})"

    def done(self, source: int) -> bool:
        return source in self._done

    def count(self) -> int:
        (count,) = self._connection.execute("SELECT COUNT(*) FROM documents").fetchone()
        return int(count)

    def write(self, source: int, documents: Iterator[tuple[str, Mapping[str, str]]]) -> None:
        for batch in _batches(self._rows(source, documents)):
            self._connection.executemany(self._insert, self._new(batch))

    @contextmanager
    def source(self, source: int) -> Iterator[None]:
        """Takes what is written and reported in the block for all of a source."""
        before = self._problems.copy()
        yield
        found = self._problems.since(before)
        self.found.update(found)
        self._connection.execute("INSERT INTO done VALUES (?, ?)", (source, json.dumps(found.to_json())))

    def _rows(self, source: int, documents: Iterator[tuple[str, Mapping[str, str]]]) -> Iterator[tuple[Any, ...]]:
        fields = self._fields
        try:
            for docno, values in documents:
                try:
                    yield _storable(source, docno, *[values[field] for field in fields])
                except KeyError as err:
                    raise ValueError(f"{self._sources[source]}: document {docno!r} has no field {err}") from None
        except ArchiveError as err:
            if self._strict:
                raise
            self._problems.add(self._sources[source].name, "", str(err), kind="damaged archives")

    def _new(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Returns the rows whose numbers were not there before, and reports the others."""
        new: dict[str, tuple[Any, ...]] = {}
        again = []
        for row in rows:
            if row[1] in new:
                again.append(row)
            else:
                new[row[1]] = row
        docnos = list(new)
        for start in range(0, len(docnos), PARAMETERS):
            part = docnos[start : start + PARAMETERS]
            marks = ",".join("?" * len(part))
            for (docno,) in self._connection.execute(f"SELECT docno FROM documents WHERE docno IN ({marks})", part):
                again.append(new.pop(docno))
        for row in again:
            self._again(row, new)
        return list(new.values())

    def _again(self, row: tuple[Any, ...], new: dict[str, tuple[Any, ...]]) -> None:
        """Takes the number of a document that was there before: reports it, or puts the whole in place of a part."""
        docno = row[1]
        kept = new.get(docno)
        if kept is None:
            sql = f"SELECT source, docno, {self._columns} FROM documents WHERE docno = ?"
            kept = self._connection.execute(sql, [docno]).fetchone()
        if kept[2:] == row[2:]:
            self._problems.note("documents that are there twice, with the same text")
        elif _begins(row, kept) or _begins(kept, row):
            self._problems.note("documents that are there twice, once cut off: the whole one is kept")
            if len("".join(row[2:])) > len("".join(kept[2:])):
                if docno in new:
                    new[docno] = row
                else:
                    marks = ", ".join(f"{column} = ?" for column in ["source", *self._columns.split(", ")])
                    self._connection.execute(f"UPDATE documents SET {marks} WHERE docno = ?", [row[0], *row[2:], docno])
        else:
            self._problems.add(
                self._sources[row[0]].name,
                f"document {docno}",
                f"another text than in {self._sources[kept[0]].name}, which is kept",
                kind="documents that are there twice, with different texts",
            )


def _begins(part: tuple[Any, ...], whole: tuple[Any, ...]) -> bool:
    """Whether a document is the beginning of another one, as a file that was cut off holds it."""
    return all(b.startswith(a.rstrip()) for a, b in zip(part[2:], whole[2:], strict=True))


def _storable(source: int, *texts: str) -> tuple[Any, ...]:
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        texts = tuple(map(clean, texts))
    return source, *texts


def _batches(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    batch: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(map(len, row[1:]))
        if len(batch) == BATCH or size > _CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _resumed(partial: Path, plan: _Plan) -> sqlite3.Connection:
    """Opens what an earlier call began, if it was of the same plan, or else begins."""
    if partial.exists():
        connection = connect(partial, write=True)
        try:
            header = read_header(connection)
            if (header["fields"], header["meta"], header["sources"]) == (list(plan.fields), plan.meta, plan.sources):
                return connection
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError):
            pass
        connection.close()
    for file in (partial, Path(f"{partial}-journal")):
        file.unlink(missing_ok=True)
    connection = connect(partial, write=True)
    create(connection, plan.fields)
    write_meta(connection, {"fields": plan.fields, "meta": plan.meta, "sources": plan.sources})
    connection.commit()
    return connection
