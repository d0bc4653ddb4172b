"""Document stores as mappings from document numbers to fields."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pyterrier_mart.datasets.store.format import BATCH, PARAMETERS, clean, column_names, connect, read_header
from pyterrier_mart.problems import Problems

__all__ = ["DocumentStore", "StoreUnion"]


_REMEDY = "delete it to build it anew"


class _Documents(Mapping[str, Mapping[str, str]]):
    """What one store and several have in common."""

    def get_many(self, docnos: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns the documents with these numbers, in the order of the numbers; others are left out.

        Args:
            docnos: Document numbers.
        """
        asked = list(dict.fromkeys(docnos))
        found = self._look_up(asked)
        return {docno: found[docno] for docno in asked if docno in found}

    def items(self) -> ItemsView[str, Mapping[str, str]]:
        """Returns numbers and fields, read in one pass."""
        return _Items(self)

    def values(self) -> ValuesView[Mapping[str, str]]:
        """Returns the fields, read in one pass."""
        return _Values(self)

    def _look_up(self, docnos: Sequence[str]) -> dict[str, dict[str, str]]:
        raise NotImplementedError

    def _scan(self) -> Iterator[tuple[str, dict[str, str]]]:
        raise NotImplementedError

    def __getitem__(self, docno: str) -> dict[str, str]:
        found = self._look_up([docno])
        if not found:
            raise KeyError(docno)
        return found[docno]


class _Items(ItemsView[str, Mapping[str, str]]):
    _mapping: _Documents

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        return self._mapping._scan()


class _Values(ValuesView[Mapping[str, str]]):
    _mapping: _Documents

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        return (fields for _, fields in self._mapping._scan())


class DocumentStore(_Documents):
    """The fields of documents by document number, in corpus order.

    The file is opened for reading when it is first needed, once in each process. Objects can be used in several threads
    at a time, pickled, and taken along by forked processes.

    Example::

        store = DocumentStore("lat94.store")
        store["LA010194-0001"]["text"]
        store.get_many(["LA010194-0001", "LA010194-0002"])

    Attributes:
        path: The file.
        fields: Names of the fields.
        meta: What was said of the documents when the store was built.
        problems: What was wrong in the files that it was built from.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Opens a store.

        Args:
            path: The file that :func:`build_store` wrote.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is not a complete store. A text that is damaged is found where it is read.
        """
        self.path = Path(path).absolute()
        self._opened: _Opened | None = None
        header = self._header()
        try:
            self.fields: tuple[str, ...] = tuple(header["fields"])
            self.meta: Mapping[str, Any] = MappingProxyType(header["meta"])
            self.problems = Problems.from_json(header["problems"])
            self._sources = header["sources"]
            self._length = int(header["documents"])
        except (KeyError, TypeError, ValueError) as err:
            raise ValueError(
                f"{self.path}: what the document store says of itself is damaged ({err}); {_REMEDY}"
            ) from err
        self._columns = ", ".join(column_names(self.fields))

    def close(self) -> None:
        """Closes the file in this process. It is opened again when it is needed."""
        opened, self._opened = self._opened, None
        if opened is not None and opened.process == os.getpid():
            with opened.lock:
                opened.connection.close()

    def _look_up(self, docnos: Sequence[str]) -> dict[str, dict[str, str]]:
        found = {}
        for start in range(0, len(docnos), PARAMETERS):
            part = [docno for docno in docnos[start : start + PARAMETERS] if _is_text(docno)]
            marks = ",".join("?" * len(part))
            sql = f"SELECT docno, {self._columns} FROM documents WHERE docno IN ({marks})"
            for docno, *values in self._query(sql, part):
                found[docno] = dict(zip(self.fields, values, strict=True))
        return found

    def _scan(self) -> Iterator[tuple[str, dict[str, str]]]:
        for docno, *values in self._rows(f"docno, {self._columns}"):
            yield docno, dict(zip(self.fields, values, strict=True))

    def _rows(self, columns: str) -> Iterator[Sequence[Any]]:
        """Reads by ranges of rows and not with one cursor: other threads, and a fork, may come between."""
        last = 0
        while rows := self._query(
            f"SELECT {columns}, id FROM documents WHERE id > ? ORDER BY id LIMIT {BATCH}", [last]
        ):
            last = rows[-1][-1]
            for row in rows:
                yield row[:-1]

    def _query(self, sql: str, parameters: Sequence[object]) -> list[Sequence[Any]]:
        opened = None
        try:
            opened = self._open()
            with opened.lock:
                return opened.connection.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as err:
            if isinstance(err, sqlite3.ProgrammingError) and opened is not self._opened:  # another thread closed it
                return self._query(sql, parameters)
            if not self.path.exists():
                raise FileNotFoundError(f"{self.path}: the document store is not there any more") from err
            raise ValueError(f"{self.path}: the document store is damaged ({err}); {_REMEDY}") from err

    def _open(self) -> _Opened:
        opened = self._opened
        if opened is None or opened.process != os.getpid():
            opened = self._opened = _Opened(os.getpid(), threading.Lock(), connect(self.path))
            weakref.finalize(self, opened.connection.close)
        return opened

    def _header(self) -> dict[str, Any]:
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path}: there is no such document store")
        try:
            with closing(connect(self.path)) as connection:
                header = read_header(connection)
        except (sqlite3.DatabaseError, TypeError, ValueError) as err:
            raise ValueError(f"{self.path} is not a document store ({err})") from err
        if not header.get("complete"):
            raise ValueError(f"{self.path} is a document store that was not written to its end; build it again")
        return header

    def __contains__(self, docno: object) -> bool:
        return _is_text(docno) and bool(self._query("SELECT 1 FROM documents WHERE docno = ?", [docno]))

    def __iter__(self) -> Iterator[str]:
        return (docno for (docno,) in self._rows("docno"))

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return self.path == other.path if isinstance(other, DocumentStore) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"DocumentStore({str(self.path)!r}, {self._length} documents)"


class StoreUnion(_Documents):
    """Several stores as one: those of a corpus that is made of several newspapers.

    No number may be in two of them; that is not checked.

    Attributes:
        stores: The stores, in corpus order.
        fields: Names of the fields, the same in all stores.
        meta: What was said of the documents of each store, by the name of its file.
        problems: What was wrong in the files of all stores.
    """

    def __init__(self, stores: Sequence[DocumentStore]):
        """Puts stores together.

        Args:
            stores: The stores, in corpus order.

        Raises:
            ValueError: If there are none, or if they have different fields.
        """
        self.stores = tuple(stores)
        if not self.stores:
            raise ValueError("stores=[]: expected at least one store")
        self.fields = self.stores[0].fields
        for store in self.stores:
            if store.fields != self.fields:
                raise ValueError(f"{store!r} has the fields {store.fields}, expected {self.fields} as in the first one")
        self.meta: Mapping[str, Any] = MappingProxyType({store.path.name: store.meta for store in self.stores})

    @property
    def problems(self) -> Problems:
        """What was wrong in the files of all stores."""
        problems = Problems()
        for store in self.stores:
            problems.update(store.problems)
        return problems

    def close(self) -> None:
        """Closes the files in this process. They are opened again when they are needed."""
        for store in self.stores:
            store.close()

    def _look_up(self, docnos: Sequence[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for store in self.stores:
            if len(found) < len(docnos):
                found |= store._look_up([docno for docno in docnos if docno not in found])
        return found

    def _scan(self) -> Iterator[tuple[str, dict[str, str]]]:
        for store in self.stores:
            yield from store._scan()

    def __contains__(self, docno: object) -> bool:
        return any(docno in store for store in self.stores)

    def __iter__(self) -> Iterator[str]:
        for store in self.stores:
            yield from store

    def __len__(self) -> int:
        return sum(map(len, self.stores))

    def __getstate__(self) -> dict[str, Any]:
        return {"stores": self.stores}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["stores"])  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return self.stores == other.stores if isinstance(other, StoreUnion) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.stores)

    def __repr__(self) -> str:
        return f"StoreUnion({list(self.stores)!r})"


class _Opened(NamedTuple):
    process: int  # a connection must not be used in a forked process
    lock: threading.Lock
    connection: sqlite3.Connection


def _is_text(docno: object) -> bool:
    """Whether a number can be in a store: others, and text that is not Unicode, SQLite refuses with an error."""
    return isinstance(docno, str) and (docno.isascii() or docno == clean(docno))
