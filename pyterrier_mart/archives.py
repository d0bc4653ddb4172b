"""Files inside archives and compressed files, one after the other, with nothing unpacked on disk.

What a file is, its first bytes say, not its name: gzip, bzip2, xz, zip, tar and Debian packages are opened, one inside
the other if need be; everything else is a file to be read. Compressed streams are decompressed on the way, so memory
stays flat however large an archive is.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

__all__ = ["ArchiveError", "Member", "files", "members", "plain_name"]

_BUFFER = 1 << 20
_STEP = 1 << 14  # so much of what comes before damage may be lost, with read() all of it
_HEAD = 512  # a tar says what it is in the first 512 bytes
_DEEPEST = 4  # a zip of tars of gzip files is three deep; more is hostile
_LONGEST_HEADER = 1 << 20  # tarfile reads those that hold a name or the like as a whole
_HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_COMPRESSED = (".gz", ".bz2", ".xz", ".dz", ".lzma")
_ARCHIVES = (".tar", ".tgz", ".zip", ".tbz2", ".txz", ".tbz", ".deb")
#: What the standard library raises on damaged or truncated archives. bz2 raises an OSError without a number.
_DAMAGE = (
    *(EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, struct.error),
    *(NotImplementedError, UnicodeDecodeError, OverflowError),
)


class ArchiveError(ValueError):
    """An archive is damaged, truncated, encrypted or nested too deep; the message names it and the member."""


class Member(NamedTuple):
    """A file, in a folder or in an archive.

    Attributes:
        name: Where it is, for messages and for finding it again: the path of the outermost file, and the names inside
            archives behind it, with one ``/`` between parts, also where an archive has ``/a``, ``./a`` or ``b//a``.
        stream: Its content. It can be read until the next member is asked for.
    """

    name: str
    stream: IO[bytes]


def members(
    path: str | os.PathLike[str],
    *,
    wanted: Callable[[str], bool] | None = None,
    progress: Callable[[int], object] | None = None,
    damaged: Callable[[ArchiveError], object] | None = None,
) -> Generator[Member, None, None]:
    """Yields the files in a file, archive or folder, in the order in which they are stored (in a folder: sorted).

    Links inside archives, and files in folders whose names begin with a dot, are passed over. Nothing that an archive
    says can write to the disk.

    Example::

        for name, stream in members("glasgow_herald_95.tar.gz", wanted=lambda name: name.endswith(".sgml")):
            ...

    Args:
        path: A file or a folder.
        wanted: Called with the :attr:`Member.name` of each file, without the ending of a compressed one (``.gz``);
            others are not opened. ``None``: all are wanted.
        progress: Called with the number of bytes that were read from the disk since the last call.
        damaged: Called with what is wrong with an archive, after which the next file or member is gone on with. What
            is wrong with a stream is an error where it is read, with or without this. ``None``: raises the error.

    Raises:
        ArchiveError: If an archive is damaged, encrypted or nested too deep; also while a stream is read.
        OSError: If a file cannot be read.
    """
    for file in files(Path(path)):
        with _CountedFile(file, progress) as raw, io.BufferedReader(raw, _BUFFER) as stream:
            with _passing_over(damaged):
                yield from _open(stream, str(file), _Request(wanted or (lambda _: True), damaged), 0)


class _Request(NamedTuple):
    """What :func:`members` was asked for."""

    wanted: Callable[[str], bool]
    damaged: Callable[[ArchiveError], object] | None


@contextmanager
def _passing_over(damaged: Callable[[ArchiveError], object] | None) -> Iterator[None]:
    try:
        yield
    except ArchiveError as err:
        if damaged is None:
            raise
        damaged(err)


def files(path: Path) -> Iterator[Path]:
    """Yields a file, or the files in a folder and its folders, sorted.

    Those whose names begin with a dot are passed over. Links are followed, but each folder is entered once.
    """
    if not path.is_dir():
        yield path
        return
    seen = set()
    for folder, folders, names in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder) / name
            if not name.startswith(".") and file.is_file():
                yield file


def _open(
    stream: IO[bytes], name: str, request: _Request, depth: int, *, decompressed: bool = False
) -> Iterator[Member]:
    if depth > _DEEPEST:
        raise ArchiveError(f"{name}: archives within archives, more than {_DEEPEST} deep")
    if not _opened_anyway(name) and not request.wanted(plain_name(name)):
        return
    with _naming(name):
        head = _peek(stream)
        kind = _kind(head, plain_name(name) if decompressed else name)
        if kind == "zip":
            yield from _zip(stream, name, request, depth)
        elif kind == "tar":
            yield from _tar(stream, name, request, depth)
        elif kind == "deb":
            yield from _deb(stream, name, request, depth)
        elif kind:
            with _decompressed(kind, stream) as inner, io.BufferedReader(_Guarded(inner, name), _BUFFER) as plain:
                yield from _open(plain, name, request, depth + 1, decompressed=True)
        elif request.wanted(plain_name(name)):
            yield Member(name, stream)


def _kind(head: bytes, name: str) -> str:
    for magic, kind in (
        (b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\x00", "xz"), (b"PK\x03\x04", "zip"),
        (b"PK\x05\x06", "zip"), (b"!<arch>\n", "deb"),
    ):  # fmt: skip
        if head.startswith(magic):
            return kind
    if head.startswith(b"\x1f\x9d"):
        raise ArchiveError(f"{name}: made by compress (.Z), which Python cannot read; unpack it with gunzip first")
    if head[257:262] == b"ustar" or (name.lower().endswith(".tar") and len(head) == _HEAD):
        return "tar"
    lowered = name.lower()
    for ending in (".gz", ".tgz", ".bz2", ".xz", ".zip"):
        if lowered.endswith(ending) and head:
            raise ArchiveError(f"{name}: not a {ending[1:]} file, although its name ends in {ending}")
    return ""


@contextmanager
def _decompressed(kind: str, stream: IO[bytes]) -> Iterator[Any]:
    if kind == "gz":
        with gzip.GzipFile(fileobj=stream) as inner:
            yield inner
    elif kind == "bz2":
        with bz2.BZ2File(stream) as inner:
            yield inner
    else:
        with lzma.LZMAFile(stream) as inner:
            yield inner


def _zip(stream: IO[bytes], name: str, request: _Request, depth: int) -> Iterator[Member]:
    with _seekable(stream) as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            inner = _inside(name, info.filename)
            if not info.filename or info.is_dir() or not (_opened_anyway(inner) or request.wanted(plain_name(inner))):
                continue
            with _passing_over(request.damaged), _naming(inner):
                if info.flag_bits & 1:
                    raise ArchiveError(f"{inner}: encrypted; unpack it with its password first")
                with archive.open(info) as opened, io.BufferedReader(_Guarded(opened, inner), _BUFFER) as plain:
                    yield from _open(plain, inner, request, depth + 1)


def _tar(stream: IO[bytes], name: str, request: _Request, depth: int) -> Iterator[Member]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_TarInfo) as archive:
        for info in archive:
            inner = _inside(name, info.name)
            if not info.isfile() or not (_opened_anyway(inner) or request.wanted(plain_name(inner))):
                continue
            opened = archive.extractfile(info)
            if opened is not None:
                with _passing_over(request.damaged), io.BufferedReader(_Guarded(opened, inner), _BUFFER) as plain:
                    yield from _open(plain, inner, request, depth + 1)


class _TarInfo(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _TarInfo:
        info = super().frombuf(buf, encoding, errors)
        if info.type in _HEADERS and info.size > _LONGEST_HEADER:
            raise tarfile.TarError(f"a header of {info.size:,} bytes, expected at most {_LONGEST_HEADER:,}")
        return info


def _deb(stream: IO[bytes], name: str, request: _Request, depth: int) -> Iterator[Member]:
    """The files of a Debian package: an ``ar`` archive, whose member ``data.tar.*`` holds them."""
    stream.read(8)
    while header := stream.read(60):
        try:
            inner, size = header[:16].decode("ascii").rstrip(" /"), int(header[48:58])
            if size < 0:
                raise ValueError
        except ValueError:
            raise ArchiveError(f"{name}: a damaged Debian package") from None
        if inner.startswith("data.tar"):
            with io.BufferedReader(_Guarded(_Part(stream, size), name), _BUFFER) as plain:
                yield from _open(plain, f"{name}/{inner}", request, depth + 1)
            return
        _pass_over(stream, size, name)
        stream.read(size % 2)  # which may be missing at the end


def _pass_over(stream: IO[bytes], size: int, name: str) -> None:
    while size:
        data = stream.read(min(size, _BUFFER))
        if not data:
            raise ArchiveError(f"{name}: the archive is truncated: {size:,} bytes are missing")
        size -= len(data)


def _inside(archive: str, name: str) -> str:
    """Returns what a file in an archive is called, however the archive spells it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return "/".join([archive, *(parts or ["."])])


def _opened_anyway(name: str) -> bool:
    """Whether a file is an archive by its name, and what is in it may be wanted."""
    return plain_name(name).lower().endswith(_ARCHIVES)


def plain_name(name: str) -> str:
    """Returns a name without the ending of a compressed file (``.gz``)."""
    lowered = name.lower()
    for ending in _COMPRESSED:
        if lowered.endswith(ending):
            return name[: -len(ending)]
    return name


def _peek(stream: IO[bytes]) -> bytes:
    head: bytes = stream.peek(_HEAD)[:_HEAD]  # type: ignore[attr-defined]  # always a BufferedReader
    return head


@contextmanager
def _seekable(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """A zip file has its table of contents at the end: one inside another archive is copied to a temporary file."""
    if stream.seekable():
        yield stream
        return
    with tempfile.TemporaryFile(prefix="pyterrier-mart-") as file:
        shutil.copyfileobj(stream, file, _BUFFER)
        file.seek(0)
        yield file


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except ArchiveError:
        raise
    except _DAMAGE as err:
        raise ArchiveError(f"{name}: the archive is damaged or truncated ({str(err) or type(err).__name__})") from err
    except (OSError, RuntimeError) as err:  # bz2 and gzip have OSErrors of their own, without a number
        # Offsets in a damaged archive may lead nowhere, which makes seeking an invalid argument.
        if isinstance(err, OSError) and err.errno not in (None, errno.EINVAL):
            raise
        raise ArchiveError(f"{name}: the archive is damaged or truncated ({err})") from err


class _CountedFile(io.FileIO):
    """A file that reports how much is read from it."""

    def __init__(self, path: Path, progress: Callable[[int], object] | None):
        super().__init__(os.fspath(path))
        self._progress = progress

    def readinto(self, buffer: Any) -> int:
        n = super().readinto(buffer) or 0
        if self._progress is not None:
            self._progress(n)
        return n


class _Guarded(io.RawIOBase):
    """A stream whose errors name the archive, wherever it is read."""

    def __init__(self, inner: Any, name: str):
        self._inner, self._name = inner, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _naming(self._name):
            data = self._inner.read1(min(len(buffer), _STEP))
        buffer[: len(data)] = data
        return len(data)


class _Part:
    """The next so many bytes of a stream."""

    def __init__(self, stream: IO[bytes], size: int):
        self._stream, self._left = stream, size

    def read1(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data
