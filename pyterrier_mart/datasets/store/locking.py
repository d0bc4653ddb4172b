"""One process at a time."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pyterrier as pt

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["locked"]

#: What a file system says that has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def locked(path: Path, *, verbose: bool = False) -> Iterator[None]:
    """Lets one process at a time do what is in the block; the others wait for it.

    Args:
        path: What is built there. The lock is beside it, and gone when nobody builds.
        verbose: Whether to say that another process is waited for.

    Raises:
        BlockingIOError: If there is no way to wait, and another process seems to be in the block.
    """
    lock = Path(f"{path}.lock")
    while True:
        with open(lock, "a+b") as stream:
            if not _wait(stream, path, verbose):
                with _exclusive(path, Path(f"{path}.building")):
                    yield
                return
            # The process before us may have removed the file that we have waited for.
            if lock.exists() and os.path.samestat(os.fstat(stream.fileno()), lock.stat()):
                try:
                    yield
                finally:
                    lock.unlink(missing_ok=True)
                return


def _wait(stream: IO[bytes], path: Path, verbose: bool) -> bool:
    """Waits for a lock; returns False where there are no such locks: on Windows, and on some network file systems."""
    if fcntl is None:
        return False
    try:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if verbose:
                pt.tqdm.write(f"waiting for another process that builds {path.name}")
            fcntl.flock(stream, fcntl.LOCK_EX)
    except OSError as err:
        if err.errno not in _NO_LOCKS:
            raise
        return False
    return True


@contextmanager
def _exclusive(path: Path, mark: Path) -> Iterator[None]:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        raise BlockingIOError(
            f"another process seems to build {path}: wait for it, or delete {mark} if there is none"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):
            mark.unlink()
