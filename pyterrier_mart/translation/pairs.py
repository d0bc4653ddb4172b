"""Sentence pairs from files of parallel text, as they are published: Europarl, OPUS, TMX, tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal
from xml.etree.ElementTree import Element

from pyterrier_mart.archives import plain_name
from pyterrier_mart.lines import decoded, lines, open_binary, raw_lines
from pyterrier_mart.problems import Faults, TableFormatError
from pyterrier_mart.text import language_code, language_of
from pyterrier_mart.translation.formats.common import Package, Text, listing, records

__all__ = ["SentencePairs", "read_pairs"]

#: The ending that tells the language of a file: ``Europarl.de-en.de``, ``dev.so.txt``, ``so.txt``.
_ENDING = re.compile(r"(?:^|(?<=/)|\.)([a-z]{2,3})(?:\.txt)?$", re.IGNORECASE)
_TAG = re.compile(r"<[a-z/!?][^<>]*>", re.IGNORECASE)
#: What stands for formatting in the segments of a TMX file; its content is code, not text.
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})


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
        self._kept = self._with_text(found, faults)

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

    def _with_text(self, found: Iterator[tuple[str, str]], faults: Faults) -> Iterator[tuple[str, str]]:
        kept = 0
        for pair in found:
            if all(side.strip() and not _TAG.fullmatch(side.strip()) for side in pair):
                kept += 1
                yield pair
            else:
                self.without_text += 1
        if not kept and not faults.malformed:
            empty = f"all of its {self.without_text:,} are empty" if self.without_text else "the file is empty"
            raise TableFormatError(f"{faults.where}: no sentence pairs, {empty}")
        faults.warn_of_skipped()


def read_pairs(
    path: str | os.PathLike[str],
    target_path: str | os.PathLike[str] | None = None,
    *,
    columns: tuple[int, int] | None = None,
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
        path: Text with both sentences on a line, separated by tabs, without quoting, or by ``|||`` as fast_align
            reads it; or, with ``target_path``, the source sentences alone; or, with ``languages``, any of the above.
        target_path: The target sentences, line by line parallel to ``path`` (the Moses and OPUS layout).
        columns: Numbers, from 1, of the source and target column where both sentences are on a line. If they are
            given, the file is such a one, whatever its name says. ``None``: the first two.
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
    if columns is not None and (len(columns) != 2 or not all(isinstance(n, int) and n >= 1 for n in columns)):
        raise ValueError(f"columns must be two numbers from 1, not {columns!r}")
    if columns is not None and target_path is not None:
        raise ValueError("columns is for one file of pairs; two parallel files have none")
    codes = None if languages is None else (language_code(languages[0]), language_code(languages[1]))
    given = Path(path)
    faults = Faults(str(given), on_error)
    sides = None
    if columns is None:
        sides = (given, Path(target_path)) if target_path is not None else codes and beside(given, codes)
    if sides:
        named = [split_ending(side.name)[1] for side in sides]
        if codes is not None and named == [*codes[::-1]] and codes[0] != codes[1]:
            raise ValueError(f"{path} is named for {named[0]}, expected {'-'.join(codes)}; name the source side first")
        texts = [Text(str(side), partial(open_binary, side)) for side in sides]
        return SentencePairs(", ".join(side.name for side in sides), (), parallel(texts[0], texts[1], faults), faults)
    archive = next((parent for parent in given.parents if parent.is_file()), given)
    package = Package(archive)
    names = ["a TMX file"] if plain_name(given.name).lower().endswith(".tmx") else package.names
    members: tuple[str, ...] = ()
    texts = [Text(str(given), partial(open_binary, given))]
    if codes is None:
        if names is not None:
            raise ValueError(f"{path} holds {listing(names)}; pass languages=, the codes of source and target")
    elif package.names is not None:
        part = given.relative_to(archive).as_posix() if archive != given else ""
        members = choose(package, part, codes, columns is None)
        texts = [Text(package.where(member), partial(package.open, member)) for member in members]
    if len(texts) == 2:
        found = parallel(texts[0], texts[1], faults)
    elif codes is not None and plain_name(texts[0].where).lower().endswith(".tmx"):
        if columns is not None:
            raise ValueError(f"columns is for files of pairs; {texts[0].where} has none")
        found = tmx(texts[0], codes, faults)
    else:
        found = in_columns(texts[0], columns or (1, 2), faults)
    return SentencePairs(archive.name, members, found, faults)


def split_ending(name: str) -> tuple[str, str]:
    """Returns what comes before the ending of a name that tells a language, and the language; ``""`` if none does."""
    name = plain_name(name)
    match = _ENDING.search(name)
    return (name[: match.start()], language_of(match[1]) or "") if match else (name, "")


def beside(path: Path, codes: tuple[str, str]) -> tuple[Path, Path] | None:
    """Finds two parallel files, of which one, or what their names have in common, is given."""
    exists = path.exists()
    stem, lang = split_ending(path.name) if exists else (path.name, "")
    if path.is_dir() or not path.parent.is_dir() or (exists and lang not in codes):
        return None
    files = [file for file in sorted(path.parent.iterdir()) if file.is_file()]
    found = [[file for file in files if split_ending(file.name) == (stem, code)] for code in codes]
    if exists:
        found[codes.index(lang)] = [path]
    if [len(side) for side in found] == [1, 1]:
        return found[0][0], found[1][0]
    if exists or all(found):
        several = f"found {listing([file.name for side in found for file in side])}; name two files, or the columns of "
        several += "one with both sentences on a line"
        raise FileNotFoundError(f"expected {stem}.{codes[0]} and {stem}.{codes[1]} in {path.parent}, {several}")
    return None


def choose(package: Package, part: str, codes: tuple[str, str], parallel: bool) -> tuple[str, ...]:
    """Chooses the two parallel files of a package, or its one file of pairs.

    Args:
        package: The package.
        part: What follows the package in the path: a file, what names have in common, or a folder.
        codes: The languages.
        parallel: Whether it may be two parallel files.
    """
    names = package.names or []
    if part:
        stem = split_ending(part)[0]
        names = [name for name in names if name in (part, stem) or name.startswith((f"{part}/", f"{stem}."))]
    by_stem: dict[str, dict[str, str]] = {}
    for name in names:
        stem, lang = split_ending(name)
        if lang in codes:
            by_stem.setdefault(stem, {})[lang] = name
    both = {stem: files for stem, files in by_stem.items() if parallel and len(files) == len(set(codes))}
    if len(both) == 1:
        (files,) = both.values()
        return files[codes[0]], files[codes[1]]
    one = [name for name in names if name.lower().endswith((".tmx", ".tsv"))]
    if not parallel and not one:  # such as the deu.txt beside the _about.txt of a download
        one = names[:2] if len(names) == 1 else [name for files in by_stem.values() for name in files.values()]
    if len(one) == 1 and not both:
        return (one[0],)
    found = f"several: {listing(list(both))}; say which" if both else listing(package.names or [])
    two = f"two files whose names end in .{codes[0]} and .{codes[1]}, or one .tmx or .tsv file"
    expected = two if parallel else f"one file, one .tsv file or one whose name ends in .{codes[0]} or .{codes[1]}"
    raise ValueError(f"{package.path / part} must hold {expected}, not {found}")


def in_columns(text: Text, columns: tuple[int, int], faults: Faults) -> Iterator[tuple[str, str]]:
    """Yields two columns. What separates them, the first line of any tells: tabs, or ``|||`` where it has none."""
    separator = ""
    with text.open() as stream:
        for n, line in lines(stream, faults, text.where):
            if line and not separator:
                separator = "|||" if "|||" in line and "\t" not in line else "\t"
            cells = line.split(separator or "\t")
            if len(cells) >= max(columns):
                yield cells[columns[0] - 1], cells[columns[1] - 1]
            else:
                kind = "tab-separated columns" if separator != "|||" else "columns separated by |||"
                faults.bad(f"expected at least {max(columns)} {kind}, found {len(cells)}", n, text.where)


def parallel(source: Text, target: Text, faults: Faults) -> Iterator[tuple[str, str]]:
    """Yields the lines of two files; where one is skipped, its partner is skipped too."""
    with source.open() as s_stream, target.open() as t_stream:
        for one, other in zip_longest(raw_lines(s_stream, source.where), raw_lines(t_stream, target.where)):
            n = (one or other)[0]
            if one is None or other is None:
                (shorter, longer) = (source, target) if one is None else (target, source)
                faults.bad(f"{shorter.where} has only {n - 1} lines, expected as many", n, longer.where)
                return
            pair = [
                line.rstrip("\r\n")
                for (_, raw), text in ((one, source), (other, target))
                if (line := decoded(raw, faults, n, text.where)) is not None
            ]
            if n == 1 and len(pair) == 2 and "\t" in pair[0] and "\t" in pair[1]:
                raise TableFormatError(
                    f"{source.where} and {target.where} have tabs in their first lines, as files of pairs do; expected "
                    "a file of sentences in each language. Join files of pairs into one"
                )
            if len(pair) == 2:
                yield pair[0], pair[1]


def tmx(text: Text, codes: tuple[str, str], faults: Faults) -> Iterator[tuple[str, str]]:
    """Yields the segments of the translation units that have both languages."""
    others: dict[str, None] = {}
    pairs = 0
    with text.open() as stream:
        for unit in records(stream, faults, text.where, frozenset({"tu"})):
            segments: dict[str | None, str] = {}
            for variant in unit.iter("tuv"):
                name = variant.get("lang") or ""
                segment = variant.find("seg")
                if segment is not None:
                    segments.setdefault(language_of(re.split("[-_]", name)[0]), segment_text(segment))
                    others[name] = None
            if codes[0] in segments and codes[1] in segments:
                pairs += 1
                yield segments[codes[0]], segments[codes[1]]
    if not pairs and others:
        raise TableFormatError(f"{text.where}: no unit in {codes[0]} and {codes[1]}; found {listing(list(others))}")


def segment_text(element: Element) -> str:
    """Returns the text of a segment without what stands for formatting."""
    parts = [element.text or ""]
    for inner in element:
        parts += ["" if inner.tag in _CODES else segment_text(inner), inner.tail or ""]
    return "".join(parts)
