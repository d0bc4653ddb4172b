"""Writing results: to a pipe, or to a partial file that the same command goes on with after an interruption."""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyterrier_mart.cli.console import errors
from pyterrier_mart.files import atomic_file

__all__ = ["Partial", "Pipe", "Sink"]

_FORMAT = 1


class Sink:
    """Where results go, and how many there are."""

    def __init__(self) -> None:
        self.queries = self.rows = 0
        self.queries_before = self.rows_before = 0  # of an earlier command
        self.seconds = 0.0

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *reason: Any) -> None:
        pass

    def put(self, text: str, queries: int, rows: int) -> None:
        """Writes a chunk of lines."""
        self.queries, self.rows = self.queries + queries, self.rows + rows

    def finish(self) -> None:
        """Called when everything was written."""


class Pipe(Sink):
    """Standard output, or a device or pipe; nothing can be resumed."""

    def __init__(self, name: str):
        super().__init__()
        self._name = name
        self._stream: IO[bytes] = sys.stdout.buffer

    def __enter__(self) -> Pipe:
        if self._name != "-":
            self._stream = open(self._name, "wb")
        return self

    def __exit__(self, *reason: Any) -> None:
        if self._name != "-":
            with _naming(self._name):
                self._stream.close()

    def put(self, text: str, queries: int, rows: int) -> None:
        """Writes a chunk of lines."""
        with _naming(self._name):
            self._stream.write(text.encode())
            self._stream.flush()
        super().put(text, queries, rows)


class Partial(Sink):
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

    def __enter__(self) -> Partial:
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
        """Writes a chunk of lines, and to the record that they are there."""
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
        """Moves the complete file to where it belongs."""
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
