"""Files inside what resources are published as: an archive, one compressed file, or a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pyterrier as pt

from pyterrier_mart.archives import Member, files, members, plain_name

__all__ = ["Package", "listing"]

_SHOWN = 12


class Package:
    """The files in an archive or folder, by their names.

    Each file is read from the archive anew: two of them can be read side by side, even from a compressed tar, with
    nothing unpacked on disk. Archives inside a folder are left closed.

    Args:
        path: The archive, or the folder.

    Attributes:
        names: The names of the files, with ``/`` between folders and without the endings of compressed ones (``.gz``);
            ``None`` if the path is a single file and not an archive.

    Raises:
        ArchiveError: If the archive is damaged.
        OSError: If it cannot be read.
    """

    names: list[str] | None

    def __init__(self, path: Path):
        self.path = path
        if path.is_dir():
            self._files = {plain_name(file.relative_to(path).as_posix()): file for file in files(path)}
            self.names = list(self._files)
        else:
            self._files = {}
            self.names = self._inside()

    def _inside(self) -> list[str] | None:
        found: list[str] = []
        outer = plain_name(str(self.path))

        def look(name: str) -> bool:
            if name == outer:
                return True  # or nothing inside is looked at
            found.append(name[len(str(self.path)) + 1 :])
            return False

        with _members(self.path, wanted=look) as opened:
            return None if any(True for _ in opened) else found

    def where(self, name: str) -> str:
        """Returns what messages call a file."""
        return f"{self.path}/{name}"

    @contextmanager
    def open(self, name: str, verbose: bool = False) -> Iterator[IO[bytes]]:
        """Opens one of :attr:`names`, decompressed.

        Args:
            name: The file.
            verbose: Whether to show a progress bar, of what is read of the archive.

        Raises:
            ArchiveError: If the archive is damaged; also while the file is read.
            FileNotFoundError: If it is not there any more.
        """
        file = self._files.get(name, self.path)
        wanted = {plain_name(str(file)), self.where(name)}
        with (
            pt.tqdm(
                total=os.stat(file).st_size,
                unit="B",
                unit_scale=True,
                desc=name.rsplit("/", 1)[-1],
                disable=not verbose,
            ) as bar,
            _members(file, wanted=lambda inner: inner in wanted, progress=bar.update) as opened,
        ):
            for member in opened:
                yield member.stream
                return
        raise FileNotFoundError(f"{self.where(name)} is gone: {self.path} was changed while it was read")


def listing(names: Sequence[str]) -> str:
    """Returns the first names of many, for messages."""
    if not names:
        return "nothing"
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _members(path: Path, **options: Any) -> AbstractContextManager[Iterator[Member]]:
    # A file that is left half read is closed at once, and not when the generator is collected.
    return closing(members(path, **options))
