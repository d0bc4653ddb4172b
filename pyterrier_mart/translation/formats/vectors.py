"""Aligned word vectors (MUSE, fastText): a table of each word's nearest neighbours in the other language."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyterrier as pt

from pyterrier_mart.checks import check_number, check_whole
from pyterrier_mart.lines import lines, open_binary
from pyterrier_mart.text import LANGUAGES, Analyzer, language_of
from pyterrier_mart.translation.builder import EntryBuilder, TableFormatError
from pyterrier_mart.translation.entries import Entries

__all__ = ["nearest", "read_vectors"]

_CSLS_NEIGHBOURS = 10  # as Conneau et al.

_NAMED = re.compile(r"(?:^|\.)([a-z]{2,3})\.vec(?:\.gz)?$")

_HEADER = re.compile(r"\d+ [1-9]\d*", re.ASCII)

_Matrix = npt.NDArray[np.float32]


def read_vectors(
    source_vec: str | os.PathLike[str],
    target_vec: str | os.PathLike[str],
    source: Analyzer | str,
    target: Analyzer | str,
    *,
    k: int = 5,
    max_words: int = 200_000,
    min_cosine: float = 0.0,
    csls: bool = False,
    block: int = 128,
    on_error: Literal["raise", "skip"] = "raise",
    meta: Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> Entries:
    """Makes a table of two files of vectors in one space: each source word's ``k`` nearest target words.

    Their cosines, divided by their sum, are the probabilities (the MART paper takes the 5 nearest). A file holds lines
    ``word x1 ... xd``, frequent words first, with or without a first line ``n d``. Where several spellings become the
    same word, the first one, the most frequent, is kept; what is not exactly one word is left out.

    Time is that of the product of the two matrices; memory, besides them, is ``block`` x target words.

    Args:
        source_vec: Vectors of the source language, plain or compressed.
        target_vec: Vectors of the target language, in the same space.
        source: Source language code or analyzer.
        target: Target language code or analyzer.
        k: Number of neighbours.
        max_words: How many lines of each file are read.
        min_cosine: Only neighbours whose cosine is above this, and above 0.
        csls: Whether neighbours are found by cross-domain similarity local scaling (Conneau et al., 2018) instead of
            the cosine: it skips "hubs", target words that are near to everything. The probabilities are made
            of cosines all the same. Doubles the time.
        block: How many source words are compared with all target words at once.
        on_error: ``"raise"`` on a malformed line, or ``"skip"`` it and report the number in the end.
        meta: Provenance, such as ``licence``.
        verbose: Whether to show progress bars.

    Returns:
        The entries of the table.

    Raises:
        OSError: If a file cannot be read.
        TableFormatError: If a line is malformed, the dimensions differ, or nothing is near anything.
        ValueError: If an option does not fit, or a file is named for another language (``wiki.multi.de.vec``).
    """
    for name, value in (("k", k), ("max_words", max_words), ("block", block)):
        check_whole(name, value)
    check_number("min_cosine", min_cosine, -1.0, 1.0)
    paths = Path(source_vec), Path(target_vec)
    builder = EntryBuilder(source, target, where=str(paths[0]), on_error=on_error)
    for path, analyzer in zip(paths, (builder.source, builder.target), strict=True):
        match = _NAMED.search(path.name.lower())
        if match and (named := language_of(match[1])) in LANGUAGES and named != analyzer.lang:
            raise ValueError(f"{path} is named for {named}, but vectors of {analyzer.lang} were asked for")
    s_words, s_vectors = load(paths[0], builder.source, builder, max_words, verbose)
    t_words, t_vectors = load(paths[1], builder.target, builder, max_words, verbose)
    if s_vectors.shape[1] != t_vectors.shape[1]:
        raise TableFormatError(
            f"{paths[0]} holds vectors of {s_vectors.shape[1]} numbers and {paths[1]} of {t_vectors.shape[1]}; "
            "expected vectors in one space"
        )
    hubness = None
    if csls:
        _, cosines = nearest(t_vectors, s_vectors, _CSLS_NEIGHBOURS, block, verbose)
        hubness = cosines.mean(axis=1)
    neighbours, cosines = nearest(s_vectors, t_vectors, k, block, verbose, hubness)
    threshold = max(0.0, min_cosine)
    for i, j in np.argwhere(cosines > threshold).tolist():
        # Rounding lets a word and itself come out a little above 1.
        builder.add(s_words[i], t_words[neighbours[i, j]], min(float(cosines[i, j]), 1.0))
    if not len(builder):
        raise TableFormatError(f"{paths[0]}, {paths[1]}: no two words have a cosine above {threshold:g}")
    own = {"source": [path.name for path in paths], "source_format": "vectors", "k": k, "csls": csls}
    return builder.entries("count", {**own, **(meta or {})})


def load(
    path: Path, analyzer: Analyzer, builder: EntryBuilder, max_words: int, verbose: bool
) -> tuple[list[str], _Matrix]:
    """Reads words in normal form and their vectors, scaled to length 1."""
    seen: dict[str, None] = {}
    flat = array("f")
    promised = dimensions = read = 0
    with open_binary(path, verbose) as stream:
        for n, line in lines(stream, builder, str(path)):
            line = line.replace("\t", " ").rstrip(" ")
            if n == 1 and _HEADER.fullmatch(line):
                promised, dimensions = map(int, line.split())
                continue
            if read == max_words:
                break
            if not line or line.isspace():
                continue
            read += 1
            dimensions = dimensions or max(line.count(" "), 1)
            # From the right: a word may contain spaces (and be nothing but a rare one).
            word, *numbers = line.rsplit(" ", dimensions)
            try:
                # Python's float would take 0_5 and ٠.٥ too.
                plain = line.isascii() or "".join(numbers).isascii()
                vector = np.array(list(map(float, numbers)) if plain and "_" not in line[len(word) :] else [])
                length = float(np.sqrt(vector @ vector))
            except ValueError:
                length = 0.0
            if len(numbers) != dimensions or not 0.0 < length < float("inf"):  # NaN fails too
                expected = f"a word and {dimensions} finite numbers that are not all 0"
                builder.bad(f"expected {expected}, found {line[:80]!r}", n, str(path))
                continue
            words = analyzer.tokens(word)
            if len(words) == 1 and words[0] not in seen:
                seen[words[0]] = None
                flat.frombytes((vector / length).astype(np.float32).tobytes())
    if read < min(promised, max_words) and not builder.malformed:
        raise TableFormatError(f"{path}: expected {promised:,} vectors as its first line says, found {read:,}")
    if not seen:
        raise TableFormatError(f"{path}: no vectors of single words")
    return list(seen), np.frombuffer(flat, dtype=np.float32).reshape(-1, dimensions)


def nearest(
    a: _Matrix, b: _Matrix, k: int, block: int, verbose: bool, penalty: _Matrix | None = None
) -> tuple[npt.NDArray[np.int64], _Matrix]:
    """Returns for each row of ``a`` the ``k`` rows of ``b`` of the highest cosine, and their cosines.

    With a ``penalty`` for each row of ``b``, those of the highest 2 cosine - penalty (CSLS; the corresponding penalty
    of the row of ``a`` does not change the order).
    """
    k = min(k, len(b))
    found = np.empty((len(a), k), dtype=np.int64)
    cosines = np.empty((len(a), k), dtype=np.float32)
    with pt.tqdm(total=len(a), unit="word", desc="nearest neighbours", disable=not verbose) as bar:
        for start in range(0, len(a), block):
            part = slice(start, start + block)
            cosine = a[part] @ b.T
            score = cosine if penalty is None else 2 * cosine - penalty
            best = np.argpartition(score, len(b) - k, axis=1)[:, len(b) - k :]
            found[part], cosines[part] = best, np.take_along_axis(cosine, best, axis=1)
            bar.update(len(cosine))
    return found, cosines
