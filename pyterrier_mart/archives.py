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
_STEP = 1 << 14  # at most this much of what comes before damage is lost; with read() it would be all
_HEAD = 512  # a tar says what it is in the first 512 bytes
_DEEPEST = 4  # a zip of tars of gzip files is three deep; more is hostile
_LONGEST_HEADER = 1 << 20  # tarfile reads those that hold a name or the like as a whole
_HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_COMPRESSED = (".gz", ".bz2", ".xz", ".dz", ".lzma")
_ARCHIVES = (".tar", ".tgz", ".zip", ".tbz2", ".txz", ".tbz", ".deb")
_MAGIC = {
    b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip",
    b"!<arch>\n": "deb", b"]\0\0": "xz", b"\x1f\x9d": "compress (.Z)", b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!\x1a\x07": "RAR", b"(\xb5/\xfd": "Zstandard",
}  # fmt: skip
_UNREADABLE = ("compress (.Z)", "7-Zip", "RAR", "Zstandard")
#: What the standard library raises on damaged or truncated archives.
_DAMAGE = (
    *(EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, struct.error),
    *(NotImplementedError, UnicodeDecodeError, OverflowError, OSError, RuntimeError),
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

    Links inside archives, and files in folders whose names begin with a dot, are skipped. Nothing that an archive
    says can write to the disk.

    Example::

        for name, stream in members("glasgow_herald_95.tar.gz", wanted=lambda name: name.endswith(".sgml")):
            ...

    Args:
        path: A file or a folder.
        wanted: Called with the :attr:`Member.name` of each file, without the ending of a compressed one (``.gz``);
            others are not opened. ``None``: all are wanted.
        progress: Called with the number of bytes that were read from the disk since the last call.
        damaged: Called with what is wrong with an archive, after which the next file or member follows. What
            is wrong with a stream is an error where it is read, with or without this. ``None``: raises the error.

    Raises:
        ArchiveError: If an archive is damaged, encrypted or nested too deep; also while a stream is read.
        OSError: If a file cannot be read.
    """
    opener = _Opener(wanted or (lambda _: True), damaged)
    for file in files(Path(path)):
        with CountedFile(file, progress) as raw, io.BufferedReader(raw, _BUFFER) as stream, opener.skipping():
            yield from opener.open(stream, str(file))


def files(path: Path, *, unreadable: Callable[[OSError], object] | None = None) -> Iterator[Path]:
    """Yields a file, or the files in a folder and its folders, sorted.

    Those whose names begin with a dot are skipped. Links are followed, but each folder is entered once.

    Args:
        path: The file or folder.
        unreadable: Called with the error of a folder that cannot be read, after which the next one follows. ``None``:
            raises the error.

    Raises:
        OSError: If a folder cannot be read; the error has its name.
    """

    def failed(err: OSError) -> None:
        if unreadable is None:
            raise err
        unreadable(err)

    if not path.is_dir():
        yield path
        return
    seen = set()
    for folder, folders, names in os.walk(path, followlinks=True, onerror=failed):
        real = os.path.realpath(folder)
        if real in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder) / name
            try:
                wanted = not name.startswith(".") and file.is_file()
            except OSError as err:  # of a folder whose names alone can be read
                failed(err)
                break
            if wanted:
                yield file


class _Opener:
    """Opens files and what is inside them, as :func:`members` was asked to."""

    def __init__(self, wanted: Callable[[str], bool], damaged: Callable[[ArchiveError], object] | None):
        self._wanted, self._damaged = wanted, damaged

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """Ends the block at damage, if that need not be an error."""
        try:
            yield
        except ArchiveError as err:
            if self._damaged is None:
                raise
            self._damaged(err)

    def looks_wanted(self, name: str) -> bool:
        """Returns whether a file is wanted, or an archive by its name, in which there may be one that is."""
        plain = plain_name(name)
        return plain.lower().endswith(_ARCHIVES) or self._wanted(plain)

    def open(self, stream: Any, name: str, depth: int = 0, *, decompressed: bool = False) -> Iterator[Member]:
        """Yields a file, or those in an archive or compressed file."""
        if depth > _DEEPEST:
            raise ArchiveError(f"{name}: archives within archives, more than {_DEEPEST} deep")
        if not self.looks_wanted(name):
            return
        with naming(name):
            kind = kind_of(stream.peek(_HEAD)[:_HEAD], plain_name(name) if decompressed else name)
            if kind in ("zip", "tar", "deb"):
                walk = {"zip": self.zip, "tar": self.tar, "deb": self.deb}[kind]
                for inner, opened in walk(stream, name):
                    with self.skipping(), io.BufferedReader(GuardedStream(opened, inner), _BUFFER) as plain:
                        yield from self.open(plain, inner, depth + 1)
            elif kind:
                opener: Any = {"gz": gzip.GzipFile, "bz2": bz2.BZ2File, "xz": lzma.LZMAFile}[kind]
                with opener(**{"fileobj" if kind == "gz" else "filename": stream}) as opened:
                    with io.BufferedReader(GuardedStream(opened, name), _BUFFER) as plain:
                        yield from self.open(plain, name, depth + 1, decompressed=True)
            elif self._wanted(plain_name(name)):
                yield Member(name, stream)

    def zip(self, stream: Any, name: str) -> Iterator[tuple[str, Any]]:
        """Yields the files in a zip, whose table of contents is at the end: one in a stream is copied to a file."""
        with tempfile.TemporaryFile(prefix="pyterrier-mart-") as copy:
            if not stream.seekable():
                shutil.copyfileobj(stream, copy, _BUFFER)
            with zipfile.ZipFile(stream if stream.seekable() else copy) as archive:
                for info in archive.infolist():
                    inner = inner_name(name, info.filename)
                    if info.filename and not info.is_dir() and self.looks_wanted(inner):
                        with self.skipping(), naming(inner):
                            if info.flag_bits & 1:
                                raise ArchiveError(f"{inner}: encrypted; unpack it with its password first")
                            with archive.open(info) as opened:
                                yield inner, opened

    def tar(self, stream: Any, name: str) -> Iterator[tuple[str, Any]]:
        """Yields the files in a tar."""
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=BoundedTarInfo) as archive:
            for info in archive:
                inner = inner_name(name, info.name)
                if info.isfile() and self.looks_wanted(inner):
                    yield inner, archive.extractfile(info)

    def deb(self, stream: Any, name: str) -> Iterator[tuple[str, Any]]:
        """Yields what holds the files of a Debian package: an ``ar`` archive's member ``data.tar.*``."""
        stream.read(8)
        while len(header := stream.read(60)) == 60:
            if not header[48:58].strip().isdigit():
                break
            part = Part(stream, int(header[48:58]))
            inner = header[:16].decode("ascii").rstrip(" /")
            if inner.startswith("data.tar"):
                yield f"{name}/{inner}", part
                return
            while part.read1(_BUFFER):
                pass
            stream.read(part.size % 2)
        raise EOFError("no data.tar in it")


class BoundedTarInfo(tarfile.TarInfo):
    """A header of a tar, refused if it would fill the memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> BoundedTarInfo:
        """Reads a header."""
        info = super().frombuf(buf, encoding, errors)
        if info.type in _HEADERS and info.size > _LONGEST_HEADER:
            raise tarfile.TarError(f"a header of {info.size:,} bytes, expected at most {_LONGEST_HEADER:,}")
        return info


def kind_of(head: bytes, name: str) -> str:
    """Returns the kind of archive or compressed file that begins so; "" if it is a file to be read.

    Raises:
        ArchiveError: If it cannot be opened.
    """
    lowered = name.lower()
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")
    if kind in _UNREADABLE:
        raise ArchiveError(f"{name}: made by {kind}, which Python cannot read; unpack it first")
    if not kind and (head[257:262] == b"ustar" or (lowered.endswith(".tar") and len(head) == _HEAD)):
        return "tar"
    for ending in (".gz", ".tgz", ".bz2", ".xz", ".zip"):
        if not kind and head and lowered.endswith(ending):
            raise ArchiveError(f"{name}: not a {ending[1:]} file, although its name ends in {ending}")
    return kind


def inner_name(archive: str, name: str) -> str:
    """Returns what a file in an archive is called, however the archive spells it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return "/".join([archive, *(parts or ["."])])


def plain_name(name: str) -> str:
    """Returns a name without the ending of a compressed file (``.gz``)."""
    lowered = name.lower()
    for ending in _COMPRESSED:
        if lowered.endswith(ending):
            return name[: -len(ending)]
    return name


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Makes errors about damage name the archive."""
    try:
        yield
    except ArchiveError:
        raise
    except _DAMAGE as err:
        # bz2 and gzip have OSErrors without a number; offsets in a damaged archive may lead nowhere.
        if isinstance(err, OSError) and err.errno not in (None, errno.EINVAL):
            raise
        if isinstance(err, NotImplementedError):  # methods of other programs: LZMA2, PPMd, Deflate64
            raise ArchiveError(f"{name}: packed in a way that Python cannot read ({err}); unpack it first") from err
        raise ArchiveError(f"{name}: the archive is damaged or truncated ({str(err) or type(err).__name__})") from err


class CountedFile(io.FileIO):
    """A file that reports how much is read from it."""

    def __init__(self, path: Path, progress: Callable[[int], object] | None):
        """Opens the file."""
        super().__init__(os.fspath(path))
        self._progress = progress

    def readinto(self, buffer: Any) -> int:
        """Reads some bytes into a buffer, and returns how many."""
        n = super().readinto(buffer) or 0
        if self._progress is not None:
            self._progress(n)
        return n


class GuardedStream(io.RawIOBase):
    """A stream whose errors name the archive, wherever it is read."""

    def __init__(self, inner: Any, name: str):
        """Wraps a stream with ``read1``."""
        self._inner, self._name = inner, name

    def readable(self) -> bool:
        """Returns true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads some bytes into a buffer, and returns how many."""
        with naming(self._name):
            data = self._inner.read1(min(len(buffer), _STEP))
        buffer[: len(data)] = data
        return len(data)


class Part:
    """The next bytes of a stream, up to a given number."""

    def __init__(self, stream: IO[bytes], size: int):
        """Begins where the stream is."""
        self.size = self._left = size
        self._stream = stream

    def read1(self, size: int) -> bytes:
        """Returns some bytes, or none at the end."""
        data = self._stream.read(max(0, min(size, self._left)))
        self._left -= len(data)
        return data
