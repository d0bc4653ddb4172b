"""Files and directories that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_directory", "atomic_file"]


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a temporary path to write to, and renames it to ``path`` when the block ends without an error.

    An existing file stays as it was until then. Missing parent directories are made. A symbolic link stays one: what
    it points to is replaced.

    Raises:
        IsADirectoryError: If ``path`` is a directory.
        OSError: If the directory cannot be written.
    """
    path = _target(path)
    if path.is_dir():
        raise IsADirectoryError(f"cannot write the file {path}: it is a directory")
    tmp = _temporary_name(path)
    try:
        yield tmp
        os.replace(tmp, path)
    finally:
        tmp.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Gives a temporary directory to fill, and renames it to ``path`` when the block ends without an error.

    Of several writers to one path, the last one to finish wins, or fails if it may not overwrite; the directory is
    always that of one of them. A symbolic link stays one: what it points to is replaced.

    Args:
        path: The directory to make. Missing parents are made.
        overwrite: Whether an existing directory is replaced. It stays in place until the new one is complete.

    Raises:
        FileExistsError: If ``path`` exists and ``overwrite`` is false, or if it is a file. An empty directory
            counts as none.
        OSError: If the parent directory cannot be written.
    """
    path = _target(path)
    _check_free(path, overwrite)
    tmp = _temporary_name(path)
    tmp.mkdir()
    try:
        yield tmp
        while not _put(tmp, path, overwrite):
            pass
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def _check_free(path: Path, overwrite: bool) -> bool:
    """Raises if nothing may be written to a path; returns whether there is a directory to be replaced."""
    try:  # one look: another writer may be moving directories here
        if not stat.S_ISDIR(path.stat().st_mode):
            raise FileExistsError(f"cannot write the directory {path}: it is a file")
        if not overwrite and any(path.iterdir()):
            raise FileExistsError(f"{path} exists; name another path or pass overwrite=True")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _put(tmp: Path, path: Path, overwrite: bool) -> bool:
    """Renames a directory, replacing an older one; returns False if another writer came between."""
    old = _temporary_name(path) if _check_free(path, overwrite) else None
    if old:
        try:
            os.replace(path, old)
        except FileNotFoundError:
            return False
    try:
        os.replace(tmp, path)
    except OSError as err:
        if err.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not path.is_dir():
            if old:
                os.replace(old, path)
            raise
        moved = False
    else:
        moved = True
    if old:
        shutil.rmtree(old, ignore_errors=True)
    return moved


def _target(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    return path.resolve() if path.is_symlink() else path


def _temporary_name(path: Path) -> Path:
    """A free name beside ``path`` with the same ending, so that writers which look at the ending do what they should.

    A name and not an open file: the writer creates it, with the permissions that the user's umask gives.
    """
    parent = path.parent
    if not parent.exists():
        parent.mkdir(parents=True, exist_ok=True)
    if not parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {parent} is not a directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {path}: no permission to write in {parent}")
    suffix = "".join(path.suffixes[-2:])
    return parent / f".{path.name[: len(path.name) - len(suffix)]}.{uuid.uuid4().hex[:8]}.tmp{suffix}"
