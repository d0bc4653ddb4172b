"""Documents in a file: looked up by docno, read in corpus order, never all in memory.

A store is an SQLite database with one row for each document, written once and then only read. Texts are not compressed:
zlib would make a store of news half as large, and building and reading it several times as slow. SQLite's own locks are
not used: they fail on some network file systems.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyterrier as pt
from filelock import FileLock

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.files import in_cache
from pyterrier_mart.problems import Problems

__all__ = ["DocumentStore", "build_store", "new_store"]

_FORMAT = 2
#: Rows that are read at a time, of a few kilobytes each. Old builds of SQLite refuse more than 999 parameters.
_BATCH = 900

#: Yields the docno and the fields of the documents of a source.
Reader = Callable[[Path, Callable[[int], object], Problems], Iterable[tuple[str, Mapping[str, str]]]]


class _Items(ItemsView[str, Mapping[str, str]]):
    _mapping: DocumentStore

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        return self._mapping.scan()


class DocumentStore(Mapping[str, Mapping[str, str]]):
    """The fields of documents by docno, in corpus order, from one file or several.

    Each look-up opens the file for itself, so that objects can be used in several threads and processes.

    Example::

        store = DocumentStore("lat94.store", "gh95.store")
        store["LA010194-0001"]["text"]
        store.get_many(["LA010194-0001", "GH950102-000001"])

    Attributes:
        paths: The files, in corpus order.
        fields: Names of the fields.
        problems: What was wrong in the files that the store was built from.
    """

    def __init__(self, *paths: str | os.PathLike[str]):
        """Opens a store.

        Args:
            paths: The files that :func:`build_store` wrote, with the same fields; no document is in two of them.

        Raises:
            ValueError: If one of them is not a complete store. A text that is damaged is found where it is read.
        """
        self.paths = tuple(Path(path).absolute() for path in paths)
        headers = [read_header(path) for path in self.paths]
        self.fields = tuple(headers[0]["fields"])
        self.problems = Problems()
        for header in headers:
            self.problems.update(Problems(**header["problems"]))
        self._columns = column_list(self.fields)
        self._length = sum(header["documents"] for header in headers)

    def get_many(self, docnos: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the documents with these docnos, in any order; those that do not exist are left out."""
        asked = [docno for docno in dict.fromkeys(docnos) if isinstance(docno, str)]  # SQLite takes 5 for "5"
        found = {}
        for path in self.paths:
            for start in range(0, len(asked), _BATCH):
                part = asked[start : start + _BATCH]
                marks = ", ".join("?" * len(part))
                sql = f"SELECT docno, {self._columns} FROM documents WHERE docno IN ({marks})"
                for docno, *values in read_rows(path, sql, part):
                    found[docno] = dict(zip(self.fields, values, strict=True))
        return found

    def scan(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yields docnos and fields, read in one pass."""
        for path in self.paths:
            last = 0
            sql = f"SELECT id, docno, {self._columns} FROM documents WHERE id > ? ORDER BY id LIMIT {_BATCH}"
            while rows := read_rows(path, sql, [last]):
                last = rows[-1][0]
                for _, docno, *values in rows:
                    yield docno, dict(zip(self.fields, values, strict=True))

    def items(self) -> ItemsView[str, Mapping[str, str]]:
        """Returns docnos and fields, read in one pass."""
        return _Items(self)

    def __getitem__(self, docno: str) -> dict[str, str]:
        return self.get_many([docno])[docno]

    def __iter__(self) -> Iterator[str]:
        return (docno for docno, _ in self.scan())

    def __len__(self) -> int:
        return self._length


def build_store(
    path: str | os.PathLike[str],
    sources: Sequence[Path],
    read: Reader,
    *,
    fields: Sequence[str],
    meta: Any = None,
    verbose: bool = False,
) -> DocumentStore:
    """Puts the documents of files into a store, unless that was done before.

    Of documents with the same docno the first one is kept, or the whole one if the other is cut off. What can be read
    of a damaged archive is kept. One process builds a store while others wait for it; if it is stopped, there is none.

    Args:
        path: The file to write. A store of the same sources, fields and meta is opened; any other one is rebuilt.
        sources: The files. One is known by its name, size and time, so that they can be moved to another folder.
        read: Yields the docno and the fields of the documents of a source. It is called with the source, a function to
            tell how many bytes were read from it since the last call, and the problems to add to.
        fields: Names of the fields to keep, which are those of columns; every document must have them.
        meta: What else the documents depend on: JSON values.
        verbose: Whether to show a progress bar.

    Raises:
        OSError: If the store cannot be written.
    """
    path = Path(path).absolute()
    stats = [(source.name, source.stat()) for source in sources]
    identities = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]
    plan = {"format": _FORMAT, "fields": [*fields], "meta": meta, "sources": identities}
    if not is_built(path, plan):
        with in_cache(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):
                if not is_built(path, plan):
                    write_whole(path, sources, read, plan, verbose)
    return DocumentStore(path)


def write_whole(path: Path, sources: Sequence[Path], read: Reader, plan: Mapping[str, Any], verbose: bool) -> None:
    """Writes a store that appears when it is complete."""
    partial = Path(f"{path}.partial")
    partial.unlink(missing_ok=True)
    try:
        write_store(partial, sources, read, plan, verbose)
        partial.replace(path)
    except sqlite3.OperationalError as err:
        raise OSError(f"cannot write the document store {path}: {err}") from err
    finally:
        partial.unlink(missing_ok=True)


def write_store(path: Path, sources: Sequence[Path], read: Reader, plan: Mapping[str, Any], verbose: bool) -> None:
    """Writes a store in one transaction."""
    sizes = [size for _, size, _ in plan["sources"]]
    bar = pt.tqdm(total=sum(sizes), unit="B", unit_scale=True, desc=f"building {path.stem}", disable=not verbose)
    with bar, closing(sqlite3.connect(f"{path.as_uri()}?nolock=1", uri=True)) as connection, connection:
        connection.execute("PRAGMA journal_mode = OFF")  # a file that is not complete is thrown away
        create(connection, plan["fields"])
        problems = Problems()
        for i, source in enumerate(sources):
            after = sum(sizes[: i + 1])
            try:
                for docno, values in read(source, bar.update, problems):
                    texts = {field: values[field] for field in plan["fields"]}
                    add_document(connection, sources, i, docno, texts, problems)
            except ArchiveError as err:
                problems.add(source.name, "", str(err), kind="damaged archives")
            bar.update(after - bar.n)  # the reader may have stopped early
        finish(connection, plan, problems)


@contextmanager
def new_store(path: Path, fields: Sequence[str]) -> Iterator[Callable[[Mapping[str, Any]], object]]:
    """Gives a function that takes documents, each docno once, into a new store, which is complete when the block ends.

    Documents are dicts with ``docno``. Of fields that are missing, or no text, an empty text is stored. The function
    may be called in another thread.

    Raises:
        OSError: If the store cannot be written.
    """
    insert = f"INSERT INTO documents (docno, {column_list(fields)}) VALUES (?{', ?' * len(fields)})"

    def put(document: Mapping[str, Any]) -> None:
        texts = (document.get(field) for field in fields)
        values = [clean(text) if isinstance(text, str) else "" for text in texts]
        connection.execute(insert, [document["docno"], *values])

    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?nolock=1", uri=True, check_same_thread=False)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            with connection:
                create(connection, fields)
                yield put
                finish(connection, {"format": _FORMAT, "fields": [*fields]}, Problems())
    except sqlite3.OperationalError as err:
        raise OSError(f"cannot write the document store {path}: {err}") from err


def create(connection: sqlite3.Connection, fields: Sequence[str]) -> None:
    """Makes the table of documents."""
    columns = "".join(f', "{field}" TEXT NOT NULL' for field in fields)
    connection.execute(
        f"CREATE TABLE documents (id INTEGER PRIMARY KEY, docno TEXT NOT NULL UNIQUE, source INTEGER{columns})"
    )


def finish(connection: sqlite3.Connection, plan: Mapping[str, Any], problems: Problems) -> None:
    """Writes what a store says of itself."""
    (count,) = connection.execute("SELECT COUNT(*) FROM documents").fetchone()
    header = {**plan, "documents": count, "problems": asdict(problems)}
    connection.execute("CREATE TABLE header (json TEXT)")
    connection.execute("INSERT INTO header VALUES (?)", [json.dumps(header)])


def add_document(
    connection: sqlite3.Connection,
    sources: Sequence[Path],
    source: int,
    docno: str,
    fields: Mapping[str, str],
    problems: Problems,
) -> None:
    """Adds a document; of two with one docno, reports the other, or puts the whole in place of a part."""
    columns, marks = column_list(list(fields)), ", ?" * len(fields)
    texts = tuple(map(clean, fields.values()))
    docno = clean(docno)
    insert = f"INSERT OR IGNORE INTO documents (docno, source, {columns}) VALUES (?, ?{marks})"
    if connection.execute(insert, [docno, source, *texts]).rowcount:
        return
    find = f"SELECT source, {columns} FROM documents WHERE docno = ?"
    origin, *before = connection.execute(find, [docno]).fetchone()
    if texts == tuple(before):
        problems.note("documents that are there twice, with the same text")
    elif begins(texts, before) or begins(before, texts):
        problems.note("documents that are there twice, once cut off: the whole one is kept")
        if len("".join(texts)) > len("".join(before)):
            update = f"UPDATE documents SET (source, {columns}) = (?{marks}) WHERE docno = ?"
            connection.execute(update, [source, *texts, docno])
    else:
        what = f"another text than in {sources[origin].name}, which is kept"
        kind = "documents that are there twice, with different texts"
        problems.add(sources[source].name, f"document {docno}", what, kind=kind)


def begins(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Returns whether a document is the beginning of another one, as a file that was cut off holds it."""
    return all(b.startswith(a.rstrip()) for a, b in zip(part, whole, strict=True))


def clean(text: str) -> str:
    """Returns a text without halves of surrogate pairs, which JSON can have and SQLite refuses."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def column_list(fields: Sequence[str]) -> str:
    """Returns the columns of fields, for SQL."""
    return ", ".join(f'"{field}"' for field in fields)


def read_rows(path: Path, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
    """Returns what a query finds.

    Raises:
        ValueError: If the file is gone, damaged, or something else.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            return connection.execute(sql, parameters).fetchall()
    except sqlite3.DatabaseError as err:
        raise ValueError(damaged(path, err)) from err


def damaged(path: Path, why: object) -> str:
    """Returns what is said of a damaged store."""
    return f"{path} is not a document store, or damaged ({why}); delete it to have it rebuilt"


def read_header(path: Path) -> dict[str, Any]:
    """Returns what a store says of itself.

    Raises:
        ValueError: If it is something else, or not there.
    """
    rows = read_rows(path, "SELECT json FROM header")
    try:
        ((text,),) = rows
        header: dict[str, Any] = json.loads(text)
        Problems(**header["problems"])
        if isinstance(header["documents"], int) and all(isinstance(field, str) for field in header["fields"]):
            return header
        reason: object = "its header is of other types"
    except (ValueError, TypeError, KeyError, RecursionError) as err:
        reason = err
    raise ValueError(damaged(path, reason))


def is_built(path: Path, plan: Mapping[str, Any]) -> bool:
    """Returns whether there is a store of a plan."""
    try:
        header = read_header(path)
    except ValueError:
        return False
    return all(header.get(key) == value for key, value in plan.items())
