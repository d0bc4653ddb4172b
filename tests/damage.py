"""Damaged copies of files for tests: always the same ones, of every kind that disks, networks and people make."""

import bz2
import gzip
import io
import json
import lzma
import os
import random
import re
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HTML = b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head>\n<body>\n<p>No such page.</p>\n</html>\n"
PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\0\0\0\x02\0\x08\x06\0\0\0\xf4x\xd4\xfa" + bytes(range(256)) * 2
_HUGE = b"9" * 5000  # more digits than Python makes a number of
_NUMBER = re.compile(rb"(?<![\w.#-])\d+(?:\.\d+)?(?![\w.#-])")
_WORD = re.compile(rb"[A-Za-z]{2,}")


class Mutant(NamedTuple):
    """A way to damage a file.

    Attributes:
        name: What it is called.
        damage: Puts something else in the place of a file.
        strict: Whether its reader has to notice, or to read what was there before. Otherwise the file is a valid one
            of other content, and must only be read without a crash.
    """

    name: str
    damage: Callable[[Path], None]
    strict: bool = True


def mutants(path: Path, seed: int = 0, *, separator: str = "\t", most: int | None = None) -> list[Mutant]:
    """Returns the ways to damage a file, by what is in it.

    Args:
        path: The file as it should be.
        seed: Of what is left to chance.
        separator: What separates the cells of a text.
        most: Maximum number of mutants, chosen at random: for a file that is slow to read.
    """
    data = path.read_bytes()
    rng = random.Random(f"{path.name} {seed}")
    try:
        text = data.decode("utf-8") if b"\0" not in data else ""
    except UnicodeDecodeError:
        text = ""
    if not text:
        made = binary(data, rng)
    elif text.lstrip().startswith("{") and "\n{" not in text.strip():
        made = as_json(data, rng)
    else:
        made = as_text(data, rng, separator.encode())
    found = [Mutant(name, writing(content), strict) for name, content, strict in (*common(data, rng), *made)]
    found += [Mutant(f.__name__.replace("_", " "), f) for f in NO_FILES]
    if most is None:
        return found
    rng.shuffle(found)
    others = [mutant for mutant in found if not mutant.strict][: most // 3]
    return [*[mutant for mutant in found if mutant.strict][: most - len(others)], *others]


def writing(content: bytes) -> Callable[[Path], None]:
    """Returns what writes a file."""

    def damage(path: Path) -> None:
        path.write_bytes(content)

    return damage


_Made = Iterator[tuple[str, bytes, bool]]


def common(data: bytes, rng: random.Random) -> _Made:
    """Yields contents that no reader takes for what was there: name, content, whether it has to be noticed."""
    yield "empty", b"", True
    yield "NULs of the same size", bytes(len(data)), True  # what a crash of the machine leaves
    yield "random bytes", rng.randbytes(2000), True
    yield "a picture", PICTURE, True
    yield "a web page", HTML, True
    yield "gzipped", gzip.compress(data, mtime=0), True
    yield "bzip2", bz2.compress(data), True
    yield "xz, cut off", lzma.compress(data)[:-9], True
    packed = bytearray(gzip.compress(data, mtime=0))
    yield "gzip, cut off", bytes(packed[:-5]), True
    packed[-6] ^= 0x10
    yield "gzip, damaged", bytes(packed), True
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("inside"), data)  # with no time in it
    yield "zip", out.getvalue(), True
    locked = bytearray(out.getvalue())
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.find(magic) + at] |= 1
    yield "encrypted zip", bytes(locked), True


def binary(data: bytes, rng: random.Random) -> _Made:
    """Yields damage to bytes."""
    for end in (1, len(data) // 3, len(data) * 2 // 3, len(data) - 1):
        yield f"cut off at byte {end}", data[:end], True
    for i in range(8):
        at = rng.randrange(min(len(data), 128) if i < 3 else len(data))
        bit = 1 << rng.randrange(8)
        yield f"bit {bit} of byte {at} flipped", data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :], True
    at = len(data) // 2
    yield "bytes inserted", data[:at] + rng.randbytes(7) + data[at:], True
    yield "bytes lost", data[:at] + data[at + 5 :], True
    yield "a hole of NULs", data[: at - 8] + bytes(16) + data[at + 8 :], True
    yield "ones", b"\xff" * len(data), True


def as_text(data: bytes, rng: random.Random, separator: bytes) -> _Made:
    """Yields damage to lines of cells."""
    lines = data.splitlines(keepends=True)
    text = data.decode("utf-8")
    yield "with a byte order mark", b"\xef\xbb\xbf" + data, True
    yield "CRLF line ends", data.replace(b"\n", b"\r\n"), True
    yield "CR line ends", data.replace(b"\n", b"\r"), True
    yield "UTF-16", text.encode("utf-16"), True
    yield "UTF-16 without a mark", text.encode("utf-16-le"), True
    word = rng.choice([*_WORD.finditer(data)])
    inside = word.start() + 1
    yield "a byte of Latin-1", data[:inside] + b"\xe4" + data[inside:], True
    yield "a NUL", data[:inside] + b"\0" + data[inside:], True
    yield "a surrogate", data[:inside] + b"\xed\xa0\x80" + data[inside:], True
    yield "a very long line", data + b"x" * (3 << 20), True
    yield "a very long word", data[:inside] + b"x" * (3 << 20) + data[inside:], False
    yield "JSON of another kind", b'["text"]\n', True
    yield "JSON nested deeply", b"[" * 200_000, True
    last = lines[-1].rfind(separator)
    yield "cut off before the last cell", b"".join(lines[:-1]) + lines[-1][: max(last, 1)], last >= 0
    line = rng.randrange(len(lines))

    def changed(new: bytes) -> bytes:
        return b"".join([*lines[:line], new, *lines[line + 1 :]])

    cells = lines[line].rstrip(b"\r\n").split(separator)
    yield "a column is missing", b"".join(entry.partition(separator)[2] or entry for entry in lines), False
    yield "a cell is missing", changed(separator.join(cells[1:]) + b"\n"), len(cells) > 1
    yield "a column twice", b"".join(entry.partition(separator)[0] + separator + entry for entry in lines), False
    swapped = (separator.join(entry.strip().split(separator)[::-1]) + b"\n" for entry in lines)
    yield "columns swapped", b"".join(swapped), False
    yield "a line twice", changed(lines[line] * 2), False
    numbers = [*_NUMBER.finditer(data)]
    if numbers:
        found = rng.choice(numbers)
        for new in (b"nan", b"inf", b"-1", b"1e999", b"1e308", _HUGE, "\u0660.\u0665".encode()):
            yield f"the number {new[:8]!r}", data[: found.start()] + new + data[found.end() :], False
    for _ in range(3):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        yield f"bit {bit} of byte {at} flipped", data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :], False
    at = rng.randrange(len(data))
    yield f"cut off at byte {at}", data[:at], False


def as_json(data: bytes, rng: random.Random) -> _Made:
    """Yields damage to a JSON object."""
    text = data.decode("utf-8")
    for name, content in (
        ("null", b"null"), ("a list", b"[]"), ("a list of the object", b"[" + data + b"]"), ("a number", b"5"),
        ("a string", b'"text"'), ("an empty object", b"{}"), ("no number", b"NaN"), ("a huge number", _HUGE),
        ("nested deeply", b"[" * 200_000), ("objects nested deeply", b'{"a":' * 200_000),
    ):  # fmt: skip
        yield f"JSON: {name}", content, True
    for part in (3, 2):
        yield f"cut off at 1/{part}", data[: len(data) // part], True
    yield "more behind it", data + b"}", True
    yield "UTF-16 without a mark", text.encode("utf-16-le"), True
    yield "a byte of Latin-1", data.replace(b'"', b'"\xe4', 1), True
    found = json.loads(text)
    for key in rng.sample(list(found), min(6, len(found))):
        values = (None, [], {}, "text", -1, True, [[None]], 1e308)
        for value in values if len(data) < 1 << 16 else rng.sample(values, 1):
            if type(value) is not type(found[key]):
                yield f"{key} is {value!r}", json.dumps({**found, key: value}).encode(), False
        yield f"{key} is missing", json.dumps({k: v for k, v in found.items() if k != key}).encode(), False
        yield f"{key} is huge", json.dumps({**found, key: 0}).encode().replace(b'": 0', b'": ' + _HUGE, 1), False


# ------------------------------------------------------------------------------------------- what is no file any more


def gone(path: Path) -> None:
    """Deletes it."""
    path.unlink()


def folder(path: Path) -> None:
    """Puts an empty folder there."""
    path.unlink()
    path.mkdir()


def dangling_link(path: Path) -> None:
    """Puts a link there that leads nowhere."""
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def link_to_itself(path: Path) -> None:
    """Puts a link there that leads to itself."""
    path.unlink()
    path.symlink_to(path)


def null_device(path: Path) -> None:
    """Puts a link to an empty device there."""
    path.unlink()
    path.symlink_to(os.devnull)


def empty_pipe(path: Path) -> None:
    """Puts a pipe there; see :func:`writers`."""
    path.unlink()
    os.mkfifo(path)


NO_FILES = (gone, folder, dangling_link, link_to_itself, null_device, empty_pipe)


@contextmanager
def writers(folder: Path) -> Iterator[None]:
    """Opens and closes the other ends of pipes in a folder, so that what reads one comes to an end."""
    pipes = [path for path in (folder, *folder.rglob("*")) if path.is_fifo()]
    done = threading.Event()

    def close() -> None:
        while not done.wait(0.02):
            for path in pipes:
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                except OSError:  # nobody reads it
                    pass

    thread = threading.Thread(target=close)
    if pipes:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if pipes:
            thread.join()


def copy(source: Path, target: Path) -> Path:
    """Copies a file or folder."""
    if source.is_dir():
        return shutil.copytree(source, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    return shutil.copy(source, target)
