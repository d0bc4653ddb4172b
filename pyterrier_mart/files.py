"""Files and directories that appear whole or not at all.

Those of ``pt.io`` would not do: what they write may be written by everybody, whatever the umask says, they replace
symbolic links by what was written, and no directory that holds something.

A writer holds a lock on what it writes under a temporary name, so that the next one to the same path can tell what was
left by processes that were killed, and removes it. Where there are no such locks (Windows, network file systems)
nothing is removed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "CACHE_VARIABLE", "atomic_directory", "atomic_file", "check_free", "check_regular", "in_cache", "read_json",
    "sha256",
]  # fmt: skip

#: Environment variable with the folder for what can be made again: document stores, converted encoders.
CACHE_VARIABLE = "PYTERRIER_MART_CACHE"

#: What is raised without the name of a file when there is no room for what is written to it.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: What is raised when another writer has moved a directory away, or to the same place.
_MOVED = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)
#: Seconds after which a file without a lock is a left-over; some writers put another one in the place of the locked.
_RECENT = 60


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a temporary path to write to, and renames it to ``path`` when the block ends without an error.

    An existing file stays as it was until then. Missing parent directories are made. A symbolic link stays one: what
    it points to is replaced. A device or pipe (``/dev/stdout``) is written to directly.

    Raises:
        IsADirectoryError: If ``path`` is a directory.
        OSError: If the file cannot be written; the message names ``path``.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"cannot write the file {path}: it is a directory")
    if path.exists() and not path.is_file():  # renaming would put a file in the place of the device
        with naming(path, path):
            yield path
        return
    path = resolve(path)
    with temporary(path, Path.touch) as tmp:  # made before the work, to show whether it can be written
        try:
            mode = tmp.stat().st_mode
            yield tmp
            give_mode(tmp, mode)
            os.replace(tmp, path)
        finally:
            tmp.unlink(missing_ok=True)


@contextmanager
def atomic_directory(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    marker: str | None = None,
    files: Collection[str] | None = None,
) -> Iterator[Path]:
    """Gives a temporary directory to fill, and renames it to ``path`` when the block ends without an error.

    Of several writers to one path, the last one to finish wins, or fails if it may not overwrite; the directory is
    always that of one of them. A symbolic link stays one: what it points to is replaced.

    Args:
        path: The directory to make. Missing parents are made.
        overwrite: Whether an existing directory is replaced. It stays in place until the new one is complete.
        marker: The file by which directories that may be replaced are known. Others are refused: a mistyped path
            must not cost a user what is there.
        files: All that a directory that may be replaced holds. One with anything else is refused: users may have put
            other files there. ``None``: whatever is there is replaced.

    Raises:
        FileExistsError: If ``path`` exists and ``overwrite`` is false, or if it is a file, lacks the ``marker`` or
            holds other than the ``files``. An empty directory counts as none.
        OSError: If the directory cannot be written; the message names ``path``.
    """
    path = resolve(path)
    check_free(path, overwrite, marker, files)
    with temporary(path, Path.mkdir) as tmp:
        try:
            yield tmp
            mode = tmp.stat().st_mode & 0o666  # that of a directory without what is for directories only
            for file in tmp.rglob("*"):
                if file.is_file():
                    give_mode(file, mode)
            while not _put(tmp, path, replaces=check_free(path, overwrite, marker, files)):
                pass
        finally:
            shutil.rmtree(tmp, ignore_errors=True)


def check_free(path: Path, overwrite: bool, marker: str | None = None, files: Collection[str] | None = None) -> bool:
    """Raises if :func:`atomic_directory` may not write to a path; returns whether there is a directory to replace."""
    try:  # one look: another writer may be moving directories here
        names = {entry.name for entry in path.iterdir()}
    except (FileNotFoundError, NotADirectoryError) as err:
        if path.is_file():
            raise FileExistsError(f"cannot write the directory {path}: it is a file") from err
        return False
    others = sorted(names.difference(names if files is None else files))
    if names and marker is not None and marker not in names:
        found = f"holds no {marker}"
    else:
        found = f"also holds {', '.join(others[:3])}{' and more' if len(others) > 3 else ''}" if others else ""
    if found:
        raise FileExistsError(f"{path} exists and is not replaced, since it {found}; name another path")
    if names and not overwrite:
        raise FileExistsError(f"{path} exists; name another path or pass overwrite=True")
    return True


def _put(tmp: Path, path: Path, *, replaces: bool) -> bool:
    """Renames a directory, replacing an older one; returns False if another writer came between."""
    old, lock = beside(path), None
    try:
        if replaces:
            with suppress(OSError):
                lock = locked(path)  # or another writer would take it for a left-over
            os.replace(path, old)
        os.replace(tmp, path)
        return True
    except OSError as err:
        if err.errno not in _MOVED or not tmp.exists():
            if old.exists():
                os.replace(old, path)
            raise
        return False
    finally:
        shutil.rmtree(old, ignore_errors=True)
        unlock(lock)


@contextmanager
def temporary(path: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """Makes a file or directory beside ``path`` and holds a lock on it; errors name ``path``.

    What killed writers to ``path`` have left is removed.
    """
    sweep(path)
    while True:
        tmp, lock = beside(path), None
        with naming(path, tmp):
            make(tmp)
        try:
            lock = locked(tmp)
        except (BlockingIOError, FileNotFoundError):  # another writer took it for a left-over just now
            continue
        except OSError:
            pass
        if tmp.exists():
            break
        unlock(lock)
    try:
        with naming(path, tmp):
            yield tmp
    finally:
        unlock(lock)


def sweep(path: Path) -> None:
    """Removes what killed writers to a path have left beside it."""
    before, after = map(re.escape, beside(path, "\0").name.split("\0"))
    name = re.compile(f"{before}[0-9a-f]{{8}}{after}")
    with suppress(OSError):
        found = [Path(entry) for entry in os.scandir(path.parent) if name.fullmatch(entry.name)]
        for tmp in found:
            with suppress(OSError):
                folder = tmp.is_dir()
                if (folder or time.time() - tmp.stat().st_mtime > _RECENT) and (lock := locked(tmp)) is not None:
                    shutil.rmtree(tmp, ignore_errors=True) if folder else tmp.unlink()
                    unlock(lock)


def locked(path: Path) -> int | None:
    """Returns a descriptor that holds a lock on a file or directory; ``None`` where there are no locks.

    Raises:
        BlockingIOError: If another one has it.
        OSError: If there is nothing, a symbolic link, or the file system cannot lock it.
    """
    if fcntl is None:
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def unlock(descriptor: int | None) -> None:
    """Lets a lock go."""
    if descriptor is not None:
        os.close(descriptor)


def give_mode(path: Path, mode: int) -> None:
    """Gives a file the permissions that the user's umask gives.

    safetensors and others write to files that only their owner may read, and rename these.
    """
    if stat.S_IMODE(path.stat().st_mode) != stat.S_IMODE(mode):
        path.chmod(stat.S_IMODE(mode))


@contextmanager
def in_cache(path: Path) -> Iterator[None]:
    """Makes errors of writing to ``path`` in the cache tell where users may put the cache.

    Raises:
        OSError: Of the same type and number.
    """
    try:
        yield
    except OSError as err:
        name = os.fspath(err.filename or "")
        if os.fspath(path.parent) not in str(err) and not (name and os.fspath(path).startswith(name)):
            raise
        error = type(err)(f"{err}; set {CACHE_VARIABLE} to a folder that can be written, on a disk with room")
        error.errno = err.errno
        raise error from err


@contextmanager
def naming(path: Path, tmp: Path) -> Iterator[None]:
    """Makes errors of writing name ``path``, where they would name the temporary path, or none because a disk is full.

    Raises:
        OSError: Of the same type and number; of other errors' number, if they say that a disk is full.
    """
    try:
        yield
    except OSError as err:
        name = os.fsdecode(err.filename) if isinstance(err.filename, (str, bytes, os.PathLike)) else ""
        if not name.startswith(os.fspath(tmp)) and (name or err.errno not in _FULL):
            raise
        error = type(err)(f"cannot write {path}: {err.strerror or err}")
        error.errno = err.errno
        raise error from err
    except Exception as err:
        # safetensors has an exception of its own, which says what the system did and not to which file.
        found = re.search(r"\(os error (\d+)\)", str(err))
        if found is None or int(found[1]) not in _FULL:
            raise
        full = OSError(f"cannot write {path}: {os.strerror(int(found[1]))}")
        full.errno = int(found[1])
        raise full from err


def resolve(path: str | os.PathLike[str]) -> Path:
    """Returns what a path points to, in a directory that exists now."""
    path = Path(os.path.realpath(path) if os.path.islink(path) else path)  # Path.resolve fails at a link to itself
    if path.parent.exists() and not path.parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {path.parent} is not a directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def beside(path: Path, mark: str | None = None) -> Path:
    """Returns a free name beside a path with the same ending, which writers may look at.

    A name and not an open file: the writer creates it, with the permissions that the user's umask gives.
    """
    suffix = "".join(path.suffixes[-2:])
    return path.parent / f".{path.name.removesuffix(suffix)}.{mark or uuid.uuid4().hex[:8]}.tmp{suffix}"


def check_regular(path: Path) -> None:
    """Refuses a folder, pipe or device: a library that opens a pipe waits for ever, and hears no Ctrl-C.

    Raises:
        OSError: If it is one, or is not there; the message names it.
    """
    if not path.is_file():
        path.stat()
        raise OSError(f"{path} is no file, but a folder, pipe or device")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds something else; the message names it.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as err:
        raise ValueError(f"{path} is not JSON ({err})") from err
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, not {found!r:.80}")
    return found


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal digits, reading a part at a time."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
