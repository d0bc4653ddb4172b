"""The file of a store: an SQLite database with one row for each document, written once and then only read.

Texts are not compressed: zlib would make a store of news half as large, and building and reading it several times as
slow.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["BATCH", "PARAMETERS", "clean", "column_names", "connect", "create", "read_header", "write_meta"]

#: Rows that are read and written at a time. Documents are of a few kilobytes.
BATCH = 500
#: SQLite refuses more parameters than that in old builds.
PARAMETERS = 900

#: In the header of the SQLite file: "MART" in ASCII, and the version of the format.
_APPLICATION, _VERSION = 0x4D415254, 1


def create(connection: sqlite3.Connection, fields: Sequence[str]) -> None:
    """Makes the tables of a store in an empty database.

    Args:
        connection: The database.
        fields: Names of the documents' fields.
    """
    columns = ", ".join(f"{column} TEXT NOT NULL" for column in column_names(fields))
    connection.executescript(
        f"""
        PRAGMA application_id = {_APPLICATION};
        PRAGMA user_version = {_VERSION};
        BEGIN;
        CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE done (source INTEGER PRIMARY KEY, problems TEXT NOT NULL);
        CREATE TABLE documents (id INTEGER PRIMARY KEY, docno TEXT NOT NULL UNIQUE, source INTEGER NOT NULL, {columns});
        COMMIT;
        """
    )


def column_names(fields: Sequence[str]) -> list[str]:
    """Returns the columns of fields: names of our own, so that a field can have any."""
    return [f"field{i}" for i in range(len(fields))]


def connect(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """Opens the database, without SQLite's locks, which fail on some network file systems.

    A complete store never changes, and one that is being written has a lock of our own.

    Args:
        path: An absolute path.
        write: Whether to write, and to make the file if there is none.
    """
    options = "nolock=1" if write else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, check_same_thread=False)


def read_header(connection: sqlite3.Connection) -> dict[str, Any]:
    """Returns what the store says of itself.

    Raises:
        ValueError: If the database is something else.
        sqlite3.DatabaseError: If it is none.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise ValueError("the file is something else")
    if version != _VERSION:
        raise ValueError(f"its format is version {version}, expected {_VERSION}")
    return {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM meta")}


def write_meta(connection: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """Adds to what the store says of itself.

    Args:
        connection: The database.
        values: JSON values by name.
    """
    rows = [(key, json.dumps(value)) for key, value in values.items()]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)


def clean(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can have and SQLite refuses."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
