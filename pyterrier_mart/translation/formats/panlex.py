"""PanLex: exported translations, and the CSV dump of the database."""

from __future__ import annotations

import io
import os
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyterrier as pt

from pyterrier_mart.text import language_code
from pyterrier_mart.translation.builder import TableBuilder, TableFormatError, Weights
from pyterrier_mart.translation.formats.columns import Column, read_delimited
from pyterrier_mart.translation.formats.common import CountedStream, damage, number, open_binary, rows

__all__ = ["read_panlex", "read_panlex_dump"]

_BUFFER = 1 << 20


def read_panlex(
    path: Path,
    builder: TableBuilder,
    *,
    verbose: bool,
    columns: Sequence[Column] | None = None,
    delimiter: str | None = None,
) -> Weights:
    """Reads exported translations: a header, then source text, target text and perhaps a translation quality.

    The qualities of a source word's translations, divided by their sum, are its probabilities.

    Args:
        path: The file, plain or gzipped.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.
        columns: Source, target and quality, by name or by position from 0; two for an export without qualities.
            ``None``: ``source``, ``target`` and ``quality``; the last may be missing from a file of two columns.
        delimiter: What separates columns; ``None``: a comma if the name says CSV, otherwise a tab. Fields separated
            by other characters than a tab may be quoted.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a line is malformed or a column is missing.
        ValueError: If an option does not fit.
    """
    if delimiter is None:
        delimiter = "," if ".csv" in path.suffixes[-2:] else "\t"
    names = ("source", "target", "quality")
    with open_binary(path, verbose) as stream:
        weights = read_delimited(stream, builder, columns, True, delimiter, quoted=delimiter != "\t", defaults=names)
    return "count" if weights == "probability" else weights


def read_panlex_dump(
    path: Path,
    builder: TableBuilder,
    *,
    verbose: bool,
    source_variety: int | None = None,
    target_variety: int | None = None,
) -> Weights:
    """Reads the database dump: two expressions that share a meaning are translations of each other.

    The weight of a pair is the sum of the quality of the sources that attest it. Sources of one group (``grp``) are not
    independent of each other, so each group counts once, with its best source. Files needed, with columns in any order:
    ``langvar.csv`` (id, lang_code, var_code), ``expr.csv`` (id, langvar, txt), and either ``denotationx.csv``
    (meaning, source, grp, quality, expr) or ``denotation.csv`` (meaning, expr), ``meaning.csv`` (id, source) and
    ``source.csv`` (id, grp, quality; without ``grp``, each source is its own group).

    The files are streamed; memory holds the expressions of the two languages and their denotations.

    Args:
        path: The directory or zip file.
        builder: Takes the entries.
        verbose: Whether to show a progress bar for each file.
        source_variety: ``var_code`` of the source language's variety; ``None``: all varieties.
        target_variety: ``var_code`` of the target language's variety; ``None``: all varieties.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a file or column is missing, or a line is malformed.
        ValueError: If the dump lacks a language.
    """
    with _Dump(path, builder, verbose) as dump:
        source_vars = _varieties(dump, builder.source.lang, source_variety)
        target_vars = _varieties(dump, builder.target.lang, target_variety)
        side = dict.fromkeys(source_vars, 0) | dict.fromkeys(target_vars, 1)
        texts: tuple[dict[int, str], dict[int, str]] = {}, {}
        for n, (expr, langvar, txt) in dump.rows("expr", "id", "langvar", "txt"):
            # Expressions of other languages are most of the file; their rows are looked at no further.
            if langvar in side and (key := dump.number(expr, "expr", n)) is not None:
                texts[side[langvar]][key] = txt
        denotations = _denotations(dump, texts)
        for s, t, quality in zip(*_score(*denotations), strict=True):
            builder.add(texts[0][s], texts[1][t], quality)
    return "count"


class _Dump:
    """The CSV files of a dump in a directory or zip file."""

    def __init__(self, path: Path, builder: TableBuilder, verbose: bool):
        self.path, self.builder, self.verbose = path, builder, verbose
        self._zip: zipfile.ZipFile | None = None
        if path.is_dir():
            dated = sorted(path.glob("*/langvar.csv"))
            if dated and not (path / "langvar.csv").exists():
                self.path = dated[-1].parent  # the zip file was unpacked here
            self.names = {name: name for name in os.listdir(self.path)}
        else:
            with damage(str(path)):
                self._zip = zipfile.ZipFile(path)
            # Dumps are packed within a directory named after their date.
            self.names = {name.rsplit("/", 1)[-1]: name for name in self._zip.namelist()}

    def __enter__(self) -> _Dump:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._zip is not None:
            self._zip.close()

    def has(self, name: str) -> bool:
        return f"{name}.csv" in self.names

    def where(self, name: str) -> str:
        return str(self.path / f"{name}.csv")

    def number(self, text: str, name: str, line: int) -> int | None:
        found: int | None = number(text, self.builder, line, _id, self.where(name))
        return found

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        if not self.has(name):
            raise TableFormatError(
                f"{self.path}: missing {name}.csv; found {', '.join(sorted(self.names)) or 'nothing'}"
            )
        member = self.names[f"{name}.csv"]
        if self._zip is None:
            with open_binary(self.path / member, self.verbose) as stream:
                yield stream
        else:
            total = self._zip.getinfo(member).file_size
            with (
                damage(self.where(name)),
                self._zip.open(member) as stream,
                pt.tqdm(total=total, unit="B", unit_scale=True, desc=f"{name}.csv", disable=not self.verbose) as bar,
            ):
                yield io.BufferedReader(CountedStream(stream, bar.update), _BUFFER)

    def rows(self, name: str, *columns: str, optional: str = "") -> Iterator[tuple[int, list[str]]]:
        """Yields line number and the named columns of each row; those in ``optional`` are empty where missing."""
        where = self.where(name)
        with self._open(name) as stream:
            found = rows(stream, self.builder, where, delimiter=",", quoted=True)
            _, header = next(found, (0, []))
            if missing := [column for column in columns if column not in header and column != optional]:
                raise TableFormatError(
                    f"{where}, line 1: missing column {', '.join(map(repr, missing))}; found {', '.join(header)}"
                )
            places = [header.index(column) if column in header else len(header) for column in columns]
            for n, row in found:
                if len(row) != len(header):
                    self.builder.bad(f"expected {len(header)} columns, found {len(row)}", n, where)
                    continue
                row.append("")  # what a missing optional column reads
                yield n, [row[place] for place in places]


def _id(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 53:  # what an array of float64 holds exactly
        raise ValueError(text)
    return value


def _varieties(dump: _Dump, lang: str, variety: int | None) -> set[str]:
    """The ids of the varieties of a language."""
    found = {}
    for n, (langvar, code, var_code) in dump.rows("langvar", "id", "lang_code", "var_code"):
        try:
            if language_code(code) != lang:
                continue
        except ValueError:
            continue  # one of the thousands of languages that are not supported
        if (key := dump.number(var_code, "langvar", n)) is not None:
            found[langvar] = key
    chosen = {langvar for langvar, var_code in found.items() if variety in (None, var_code)}
    if not chosen:
        which = f"variety {variety} of {lang!r}; found {sorted(found.values())}" if found else f"language {lang!r}"
        raise ValueError(f"{dump.where('langvar')}: no {which}")
    return chosen


_Ints = npt.NDArray[np.int64]
_Side = tuple[_Ints, _Ints]


def _denotations(
    dump: _Dump, texts: tuple[dict[int, str], dict[int, str]]
) -> tuple[_Side, _Side, dict[int, tuple[int, float]]]:
    """(meaning, expression) of both languages, and the group and quality of the meanings that both express."""
    extended = dump.has("denotationx")
    name = "denotationx" if extended else "denotation"
    columns = ("meaning", "expr") + (("source", "grp", "quality") if extended else ())
    sides = (array("q"), array("q")), (array("q"), array("q"))
    attested: dict[int, tuple[int, float]] = {}
    for n, row in dump.rows(name, *columns):
        meaning, expr = dump.number(row[0], name, n), dump.number(row[1], name, n)
        if meaning is None or expr is None:
            continue
        for (meanings, exprs), known in zip(sides, texts, strict=True):
            if expr in known:
                meanings.append(meaning)
                exprs.append(expr)
                if extended and meaning not in attested:
                    _attest(dump, name, n, attested, meaning, row[2:])
    (s_meaning, s_expr), (t_meaning, t_expr) = [
        tuple(np.array(part, dtype=np.int64) for part in side) for side in sides
    ]
    if not extended:
        shared = set(np.intersect1d(s_meaning, t_meaning).tolist())
        sources: dict[str, list[str]] = {}
        for _, (source, grp, quality) in dump.rows("source", "id", "grp", "quality", optional="grp"):
            sources[source] = [source, grp, quality]
        for n, (text, source) in dump.rows("meaning", "id", "source"):
            meaning = dump.number(text, "meaning", n)
            if meaning is not None and meaning in shared:
                if source in sources:
                    _attest(dump, "meaning", n, attested, meaning, sources[source])
                else:
                    dump.builder.bad(f"the source {source!r} is not in source.csv", n, dump.where("meaning"))
    return (s_meaning, s_expr), (t_meaning, t_expr), attested


def _attest(
    dump: _Dump, name: str, line: int, attested: dict[int, tuple[int, float]], meaning: int, row: Sequence[str]
) -> None:
    """Notes the group (the source itself where it has none) and the quality of the source of a meaning."""
    source, grp, quality = row
    group = dump.number(grp or source, name, line)
    value = number(quality, dump.builder, line, where=dump.where(name))
    if group is None or value is None:
        return
    if 0 <= value < float("inf"):
        attested[meaning] = group, value
    else:
        dump.builder.bad(f"the quality {quality!r} is not a finite number >= 0", line, dump.where(name))


def _score(
    source: _Side, target: _Side, attested: dict[int, tuple[int, float]]
) -> tuple[list[int], list[int], list[float]]:
    """Joins denotations on the meaning; returns source expressions, target expressions and their scores."""
    s_meaning, s = source
    order = np.argsort(target[0], kind="stable")
    t_meaning, t = target[0][order], target[1][order]
    start, end = np.searchsorted(t_meaning, s_meaning, "left"), np.searchsorted(t_meaning, s_meaning, "right")
    count = end - start
    pair = np.repeat(np.arange(len(s)), count)
    nth = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    s, t = s[pair], t[start[pair] + nth]
    evidence = np.array([attested.get(meaning, (0, 0.0)) for meaning in s_meaning[pair].tolist()]).reshape(-1, 2)
    group, quality = evidence[:, 0], evidence[:, 1]

    # By pair and group, the best source of each group first: only that one counts.
    order = np.lexsort((-quality, group, t, s))
    s, t, group, quality = s[order], t[order], group[order], quality[order]
    new_pair = np.ones(len(s), dtype=bool)
    new_pair[1:] = (np.diff(s) != 0) | (np.diff(t) != 0)
    new_group = new_pair.copy()
    new_group[1:] |= np.diff(group) != 0
    scores = np.bincount(np.cumsum(new_pair) - 1, weights=quality * new_group) if len(s) else quality
    return s[new_pair].tolist(), t[new_pair].tolist(), scores.tolist()
