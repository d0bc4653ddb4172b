"""Sentence pairs from files of parallel text, as they are published: Europarl, OPUS, TMX, tables."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple
from xml.etree.ElementTree import Element

from pyterrier_mart.archives import ArchiveError, plain_name
from pyterrier_mart.text import language_code
from pyterrier_mart.translation.faults import Faults, TableFormatError
from pyterrier_mart.translation.formats.common import lines, open_binary
from pyterrier_mart.translation.formats.markup import records
from pyterrier_mart.translation.formats.packages import Package, listing

__all__ = ["SentencePairs", "read_pairs"]

#: The ending that tells the language of a file: ``Europarl.de-en.de``, ``dev.so.txt``, ``so.txt``.
_ENDING = re.compile(r"(?:^|(?<=/)|\.)([a-z]{2,3})(?:\.txt)?$", re.IGNORECASE)
_TMX = re.compile(r"\.tmx$", re.IGNORECASE)
_TSV = re.compile(r"\.tsv$", re.IGNORECASE)
_TAG = re.compile(r"<[a-z/!?][^<>]*>", re.IGNORECASE)
#: What stands for formatting in the segments of a TMX file; its content is code, not text.
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
_SHOWN = 10


class SentencePairs(Iterator[tuple[str, str]]):
    """Sentence pairs (source, target), read once, one after the other.

    Attributes:
        source: What they are read from, for messages and provenance.
        members: The files that were read in an archive or folder; empty for files that were named.
        without_text: How many pairs were left out so far because a side was empty or nothing but a tag, such as the
            ``<CHAPTER ID=1>`` of Europarl.
    """

    def __init__(self, source: str, members: tuple[str, ...], found: Iterator[tuple[str, str]], faults: Faults):
        self.source, self.members = source, members
        self.without_text = 0
        self._faults = faults
        self._kept = self._with_text(found)

    def __next__(self) -> tuple[str, str]:
        return next(self._kept)

    @property
    def provenance(self) -> dict[str, Any]:
        """What to note in the metadata of a table that was learned from the pairs, after they were read."""
        noted: dict[str, Any] = {"source": self.source}
        if self.members:
            noted["members"] = list(self.members)
        if self.without_text:
            noted["pairs_without_text"] = self.without_text
        return noted

    def _with_text(self, found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        kept = 0
        for pair in found:
            if _is_text(pair[0]) and _is_text(pair[1]):
                kept += 1
                yield pair
            else:
                self.without_text += 1
        if not kept and not self._faults.malformed:
            empty = f"all of its {self.without_text:,} are empty" if self.without_text else "the file is empty"
            raise TableFormatError(f"{self._faults.where}: no sentence pairs, {empty}")
        self._faults.warn_of_skipped()


def read_pairs(
    path: str | os.PathLike[str],
    target_path: str | os.PathLike[str] | None = None,
    *,
    columns: tuple[int, int] = (1, 2),
    languages: tuple[str, str] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> SentencePairs:
    """Opens sentence pairs of UTF-8 text, plain or compressed.

    With ``languages``, ``path`` may be what a corpus is published as: an archive (zip, tar) or folder with two
    line-parallel files whose names end in the languages (``Europarl.de-en.de`` and ``.en``), one of two such files, or
    what their names have in common (``europarl-v7.de-en``); a TMX file; or an archive with one TMX or TSV file. Where
    an archive holds several pairs of files, ``ARCHIVE/NAME`` says which. Archives are read as they are.

    Pairs of which a side is empty or nothing but a tag are left out and counted.

    Example::

        read_pairs("de-en.txt.zip", languages=("de", "en"))

    Args:
        path: Tab-separated text with both sentences on a line, without quoting; or, with ``target_path``, the source
            sentences alone; or, with ``languages``, any of the above.
        target_path: The target sentences, line by line parallel to ``path`` (the Moses and OPUS layout).
        columns: Numbers, from 1, of the source and target column of tab-separated text.
        languages: Codes of the source and target language.
        on_error: ``"raise"`` on a line that lacks a column or is not UTF-8, or ``"skip"`` the pair and warn in the
            end.

    Raises:
        TableFormatError: If a line is malformed, parallel files differ in length, or there is no pair; the message
            names the file, and the line.
        ArchiveError: If an archive is found to be damaged while it is read.
        OSError: If a file cannot be read.
        ValueError: If no files of the languages, or too many, are found in an archive or folder.
    """
    if len(columns) != 2 or not all(isinstance(column, int) and column >= 1 for column in columns):
        raise ValueError(f"columns must be two numbers from 1, not {columns!r}")
    codes = None if languages is None else (language_code(languages[0]), language_code(languages[1]))
    name = os.fspath(path)
    faults = _Faults(name, on_error)
    given = Path(path)
    if target_path is not None:
        _check_order(given, Path(target_path), codes)
        found = _parallel(_file(given), _file(Path(target_path)), faults)
        return SentencePairs(f"{given.name}, {Path(target_path).name}", (), found, faults)
    files = _beside(given, codes)
    if files is not None:
        found = _parallel(_file(files[0]), _file(files[1]), faults)
        return SentencePairs(", ".join(file.name for file in files), (), found, faults)
    package, part = _package(given)
    if package.names is None:
        one = _file(given)
        found = _tmx(one, codes, faults) if _TMX.search(plain_name(given.name)) else _columns(one, columns, faults)
        return SentencePairs(given.name, (), found, faults)
    if codes is None:
        raise ValueError(f"{name} holds {listing(package.names)}; pass languages=, the codes of source and target")
    members = _choose(package, part, codes)
    texts = [_Text(package.where(member), partial(package.open, member)) for member in members]
    if len(texts) == 2:
        found = _parallel(texts[0], texts[1], faults)
    elif _TMX.search(members[0]):
        found = _tmx(texts[0], codes, faults)
    else:
        found = _columns(texts[0], columns, faults)
    return SentencePairs(package.path.name, members, found, faults)


class _Text(NamedTuple):
    """A file, wherever it is."""

    where: str
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def _file(path: Path) -> _Text:
    if path.suffix.lower() in (".bz2", ".xz"):
        package = Package(path)
        if package.names is not None:
            raise ValueError(f"{path} is an archive; name it alone, or unpack it")
        return _Text(str(path), partial(package.open, ""))
    return _Text(str(path), partial(open_binary, path))


def _language(name: str) -> tuple[str, str]:
    """What comes before the ending of a name that tells a language, and the language; ``""`` if none does."""
    match = _ENDING.search(name)
    if match:
        try:
            return name[: match.start()], language_code(match[1])
        except ValueError:
            pass
    return name, ""


def _check_order(source: Path, target: Path, codes: tuple[str, str] | None) -> None:
    named = _language(plain_name(source.name))[1], _language(plain_name(target.name))[1]
    if codes is not None and named == codes[::-1] and named[0] != named[1]:
        raise ValueError(
            f"{source} and {target} are named for {'-'.join(named)}, but {'-'.join(codes)} was asked for; name the "
            "source sentences first"
        )


def _beside(path: Path, codes: tuple[str, str] | None) -> tuple[Path, Path] | None:
    """Two parallel files, of which one, or what their names have in common, is given."""
    if codes is None or path.is_dir():
        return None
    stem, lang = _language(plain_name(path.name))
    if path.exists() and lang not in codes:
        return None
    found: list[list[Path]] = [[], []]
    if path.parent.is_dir():
        wanted = {path.name, stem} if path.exists() else {path.name}
        for file in sorted(path.parent.iterdir()):
            other_stem, other = _language(plain_name(file.name))
            if other in codes and other_stem in wanted and file.is_file():
                found[codes.index(other)].append(file)
    if path.exists():
        found[codes.index(lang)] = [path]
    if not all(found):
        if path.exists():
            missing = codes[not found[1]]
            raise FileNotFoundError(
                f"{path} is named for {lang}, and there is no {stem}.{missing} beside it; name both files, or one file "
                "of pairs"
            )
        return None
    if any(len(files) > 1 for files in found):
        raise ValueError(f"{path} may be {listing([file.name for files in found for file in files])}; name two files")
    return found[0][0], found[1][0]


def _package(path: Path) -> tuple[Package, str]:
    """The archive or folder that a path names, and what follows it in the path."""
    if not path.exists():
        for parent in path.parents:
            if parent.is_file():
                return Package(parent), path.relative_to(parent).as_posix()
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    try:
        return Package(path), ""
    except ArchiveError as err:
        raise TableFormatError(str(err)) from err


def _choose(package: Package, part: str, codes: tuple[str, str]) -> tuple[str, ...]:
    """The two parallel files of a package, or the one file of pairs."""
    names = package.names or []
    if part:
        stem = _language(plain_name(part))[0]
        names = [name for name in names if name in (part, stem) or name.startswith((f"{part}/", f"{stem}."))]
    by_stem: dict[str, dict[str, str]] = {}
    for name in names:
        stem, lang = _language(name)
        if lang in codes:
            by_stem.setdefault(stem, {})[lang] = name
    both = {stem: files for stem, files in by_stem.items() if len(files) == len(set(codes))}
    if len(both) == 1:
        (files,) = both.values()
        return files[codes[0]], files[codes[1]]
    if len(both) > 1:
        raise ValueError(
            f"{package.path} holds {len(both)} pairs of files in {codes[0]} and {codes[1]}: {listing(list(both))}; "
            f"say which, such as {package.where(next(iter(both)))}"
        )
    for pattern in (_TMX, _TSV):
        if len(one := [name for name in names if pattern.search(name)]) == 1:
            return (one[0],)
    asked = f" under {part}" if part else ""
    raise ValueError(
        f"{package.path} holds no two files{asked} whose names end in .{codes[0]} and .{codes[1]}; found "
        f"{listing(package.names or [])}"
    )


def _columns(text: _Text, columns: tuple[int, int], faults: Faults) -> Iterator[tuple[str, str]]:
    s, t = columns[0] - 1, columns[1] - 1
    with text.open() as stream:
        for n, line in lines(stream, faults, text.where):
            cells = line.split("\t")
            if len(cells) > max(s, t):
                yield cells[s], cells[t]
            else:
                faults.bad(
                    f"expected at least {max(s, t) + 1} tab-separated columns, found {len(cells)}", n, text.where
                )


def _parallel(source: _Text, target: _Text, faults: _Faults) -> Iterator[tuple[str, str]]:
    with source.open() as s_stream, target.open() as t_stream:
        left, right = lines(s_stream, faults, source.where), lines(t_stream, faults, target.where)
        s, t = next(left, None), next(right, None)
        if s and t and "\t" in s[1] and "\t" in t[1]:
            raise TableFormatError(
                f"{source.where} and {target.where} have tabs in their first lines, as files of pairs do; expected a "
                "file of sentences in each language. Join files of pairs into one"
            )
        s_end = t_end = 0  # numbers of the last lines so far
        while s is not None or t is not None:
            # Lines that were skipped on one side leave a gap in the numbers; their partners are skipped too.
            n, m = s[0] if s else math.inf, t[0] if t else math.inf
            if s and t and n == m:
                yield s[1], t[1]
            if s and n <= m:
                s_end, s = s[0], next(left, None)
            if t and m <= n:
                t_end, t = t[0], next(right, None)
    s_end, t_end = max(s_end, faults.last.get(source.where, 0)), max(t_end, faults.last.get(target.where, 0))
    if s_end != t_end:
        (end, shorter), (_, longer) = sorted([(s_end, source.where), (t_end, target.where)])
        faults.bad(f"{shorter} has only {end} lines, expected as many", end + 1, longer)


def _tmx(text: _Text, codes: tuple[str, str] | None, faults: Faults) -> Iterator[tuple[str, str]]:
    """The segments of the translation units that have both languages."""
    if codes is None:
        raise ValueError(f"{text.where} is a TMX file; pass languages=, the codes of source and target")
    others: dict[str, None] = {}
    pairs = 0
    with text.open() as stream:
        for _, unit in records(stream, faults, text.where, frozenset({"tu"})):
            segments: dict[str, str] = {}
            for variant in unit.iter("tuv"):
                name = variant.get("xml:lang") or variant.get("lang") or ""
                segment = variant.find("seg")
                if segment is not None:
                    segments.setdefault(_tmx_language(name), _segment(segment))
                    if len(others) < _SHOWN:
                        others[name] = None
            if codes[0] in segments and codes[1] in segments:
                pairs += 1
                yield segments[codes[0]], segments[codes[1]]
    if not pairs and others:
        raise TableFormatError(f"{text.where}: no unit in {codes[0]} and {codes[1]}; found {', '.join(others)}")


def _tmx_language(name: str) -> str:
    try:
        return language_code(re.split("[-_]", name)[0])
    except ValueError:
        return ""


def _segment(element: Element) -> str:
    parts = [element.text or ""]
    for inner in element:
        if inner.tag not in _CODES:
            parts.append(_segment(inner))
        parts.append(inner.tail or "")
    return "".join(parts)


def _is_text(line: str) -> bool:
    line = line.strip()
    return bool(line) and not (line[0] == "<" and _TAG.fullmatch(line))


class _Faults(Faults):
    """Remembers the last malformed line of each file: it may be the file's last line."""

    def __init__(self, where: str, on_error: Literal["raise", "skip"]):
        super().__init__(where, on_error)
        self.last: dict[str, int] = {}

    def bad(self, reason: str, line: int = 0, where: str | None = None) -> None:
        self.last[where or self.where] = line
        super().bad(reason, line, where)
