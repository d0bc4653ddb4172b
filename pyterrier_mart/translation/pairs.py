"""Sentence pairs from files of parallel text."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pyterrier_mart.translation.faults import Faults, TableFormatError
from pyterrier_mart.translation.formats.common import lines, open_binary

__all__ = ["read_pairs"]


def read_pairs(
    path: str | os.PathLike[str],
    target_path: str | os.PathLike[str] | None = None,
    *,
    columns: tuple[int, int] = (1, 2),
    on_error: Literal["raise", "skip"] = "raise",
) -> Iterator[tuple[str, str]]:
    """Yields sentence pairs (source, target) of UTF-8 text, plain or gzipped, one a line.

    Args:
        path: Tab-separated text with both sentences on a line, without quoting; or, with ``target_path``, the source
            sentences alone.
        target_path: The target sentences, line by line parallel to ``path`` (the Moses and OPUS layout).
        columns: Numbers, from 1, of the source and target column of tab-separated text.
        on_error: ``"raise"`` on a line that lacks a column or is not UTF-8, or ``"skip"`` the pair and warn in the
            end.

    Raises:
        TableFormatError: If a line is malformed, parallel files differ in length, or there is no line; the message
            names the file, and the line.
        OSError: If a file cannot be read.
    """
    if len(columns) != 2 or not all(isinstance(column, int) and column >= 1 for column in columns):
        raise ValueError(f"columns must be two numbers from 1, not {columns!r}")
    faults = _Faults(os.fspath(path), on_error)
    if target_path is None:
        found = _columns(Path(path), columns[0] - 1, columns[1] - 1, faults)
    else:
        found = _parallel(Path(path), Path(target_path), faults)
    n = 0
    for n, pair in enumerate(found, start=1):  # noqa: B007  # counted
        yield pair
    if not n and not faults.malformed:
        raise TableFormatError(f"{os.fspath(path)}: no sentence pairs, the file is empty")
    faults.warn_of_skipped()


def _columns(path: Path, s: int, t: int, faults: Faults) -> Iterator[tuple[str, str]]:
    with open_binary(path) as stream:
        for n, line in lines(stream, faults):
            cells = line.split("\t")
            if len(cells) > max(s, t):
                yield cells[s], cells[t]
            else:
                faults.bad(f"expected at least {max(s, t) + 1} tab-separated columns, found {len(cells)}", n)


def _parallel(source: Path, target: Path, faults: _Faults) -> Iterator[tuple[str, str]]:
    with open_binary(source) as s_stream, open_binary(target) as t_stream:
        left, right = lines(s_stream, faults, str(source)), lines(t_stream, faults, str(target))
        s, t = next(left, None), next(right, None)
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
    s_end, t_end = max(s_end, faults.last.get(str(source), 0)), max(t_end, faults.last.get(str(target), 0))
    if s_end != t_end:
        (end, shorter), (_, longer) = sorted([(s_end, str(source)), (t_end, str(target))])
        faults.bad(f"{shorter} has only {end} lines, expected as many", end + 1, longer)


class _Faults(Faults):
    """Remembers the last malformed line of each file: it may be the file's last line."""

    def __init__(self, where: str, on_error: Literal["raise", "skip"]):
        super().__init__(where, on_error)
        self.last: dict[str, int] = {}

    def bad(self, reason: str, line: int = 0, where: str | None = None) -> None:
        self.last[where or self.where] = line
        super().bad(reason, line, where)
