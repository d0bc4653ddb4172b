"""BM25 and sums of impacts with PISA, embedded: no Java, no server.

PISA compresses an index for the parameters of BM25 when it first meets them, into the index's own directory, where a
killed process or another one that searches would leave halves; and it ends the process on files that are not whole.
Here an index is complete when it is built, for BM25's defaults, and never written to again: what other parameters
need (the best scores of blocks of postings, a second for 20 million postings) is made in a temporary directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyterrier_pisa
from pyterrier_pisa._pisathon import build_binlex

from pyterrier_mart.artifact import META, meta_bytes
from pyterrier_mart.frames import warn
from pyterrier_mart.retrieval.inversion import invert
from pyterrier_mart.retrieval.types import Document, Hits, Postings, Scoring

NAME = "pisa"
# PISA reads a query's weights as whole numbers of repetitions.
# They cost time in proportion: ten thousand keep four decimals of a weight and a query below 5 ms.
_TOKS_SCALE = 10_000.0
_FEW = 6
RESOLUTION = 1 / _TOKS_SCALE
LONGEST_DOCNO: int | None = None

_PREPARED = (0.9, 0.4)  # k1 and b
_IMPACTS = "impacts"
_ROOM = 8 << 20  # bytes that must be free before a small index is built or compressed
_BASE = ("inv.docs", "inv.freqs", "inv.sizes")
_LEXICONS = {"fwd.documents": "fwd.doclex", "fwd.terms": "fwd.termlex"}

_lock = threading.Lock()


def build(
    documents: Iterable[Document | Postings], path: Path, threads: int, verbose: bool, impacts: bool = False
) -> None:
    """Writes a PISA index of the documents' ``toks`` into the empty directory ``path``.

    Raises:
        OSError: If the disk is nearly full.
    """
    check_room(path)
    with quiet(verbose):
        invert(documents, path)
        for text, lexicon in _LEXICONS.items():
            build_binlex(str(path / text), str(path / lexicon))
    # So that the directory is an artifact of pyterrier_pisa too; stemming and stop words are the analyzer's business.
    kind = {"type": "sparse_index", "format": "pisa", "package_hint": "pyterrier-pisa", "stemmer": "none"}
    prepared = None if impacts else _PREPARED
    (path / META).write_bytes(meta_bytes({**kind, "prepared": prepared or _IMPACTS}))
    check_room(path, path)
    opened(path, prepared, threads=threads, verbose=verbose)


def opened(path: Path, scoring: Scoring, *, threads: int, verbose: bool, num_results: int = 1) -> Any:
    """Returns PISA's retriever over a directory, where PISA writes what it lacks for these parameters."""
    index = pyterrier_pisa.PisaIndex(str(path), stemmer="none", stops="none", threads=threads)
    options: dict[str, Any] = {
        "num_results": num_results,
        "query_weighted": True,
        "toks_scale": 1.0,
        "verbose": verbose,
    }
    with quiet(verbose):
        return index.quantized(**options) if scoring is None else index.bm25(k1=scoring[0], b=scoring[1], **options)


def link(path: Path, scratch: Path, k1: float, b: float) -> None:
    """Makes a directory of links to the files of an index, but for what PISA is to make for other parameters."""
    check_room(scratch, path)
    for name in (*_BASE, *_LEXICONS.values(), META):
        (scratch / name).symlink_to(path / name)
    # Postings are compressed alike for all parameters. A name that PISA would spell otherwise costs time only.
    (scratch / compressed_name(k1, b)).symlink_to(path / compressed_name(*_PREPARED))


def compressed_name(k1: float, b: float) -> str:
    """Returns the name that PISA gives to compressed postings."""
    return "bm25.k1-{}.b-{}.q0.bmw.64.block_simdbp".format(*(str(np.float32(x)).removesuffix(".0") for x in (k1, b)))


def link_old(path: Path, scratch: Path) -> None:
    """The same of an index of an earlier version of this package, which left the rest to the first search.

    Nothing that a search has made there is used.

    Raises:
        ValueError: If the rest is damaged.
    """
    size = {name: (path / name).stat().st_size for name in (*_BASE, *_LEXICONS) if (path / name).is_file()}
    whole = len(size) == len(_BASE) + len(_LEXICONS) and all(size.values())
    header = np.fromfile(path / "inv.sizes", np.uint32, 1).tolist() if whole else []
    if header != [size["inv.sizes"] // 4 - 1] or size["inv.docs"] != size["inv.freqs"] + 8:
        raise ValueError(f"damaged index {path}: the sizes of its files do not fit together ({size}); build it again")
    warn(f"{path} is an index of an earlier version, which is compressed whenever it is opened; build it again")
    check_room(scratch, path)
    for name in (*_BASE, META):
        (scratch / name).symlink_to(path / name)
    with quiet(False):
        for text, lexicon in _LEXICONS.items():
            build_binlex(str(path / text), str(scratch / lexicon))


class PisaSearcher:
    """A PISA index opened for retrieval."""

    def __init__(self, path: Path, scoring: Scoring, num_results: int, threads: int, verbose: bool):
        prepared = json.loads((path / META).read_bytes()).get("prepared")
        with tempfile.TemporaryDirectory() as scratch:  # PISA maps files: it needs no names of them any more
            ready = scoring is None or prepared == list(scoring)
            if prepared is None:
                link_old(path, Path(scratch))
            elif scoring is not None and not ready:
                link(path, Path(scratch), *scoring)
            self._retriever = opened(
                path if ready else Path(scratch), scoring, threads=threads, verbose=verbose, num_results=num_results
            )

    def search(self, queries: list[dict[str, float]]) -> Hits:
        """Finds the best documents."""
        # Scaled here and not by pyterrier_pisa, after which PISA would round down.
        scales = np.array([repetitions(query) for query in queries])
        bags = [
            {term: float(round(weight * scale)) for term, weight in query.items()}
            for query, scale in zip(queries, scales.tolist(), strict=True)
        ]
        frame = pd.DataFrame({"qid": np.arange(len(queries)).astype(str), "query_toks": bags})
        try:
            hits = Hits.of(self._retriever(frame))
        except SystemError as err:  # how Ctrl-C and what other signals raise comes out of PISA
            raise (err.__cause__ or err) from None
        return hits._replace(score=hits.score / scales[hits.query])


def repetitions(query: dict[str, float]) -> float:
    """Returns how often PISA reads a term of weight 1: few times where that makes all weights whole numbers."""
    few = (n for n in range(1, _FEW + 1) if all((weight * n).is_integer() for weight in query.values()))
    return next(few, _TOKS_SCALE)


searcher = PisaSearcher


def check_room(place: Path, index: Path | None = None) -> None:
    """Refuses a nearly full disk, since PISA would end the process there without a word.

    Args:
        place: The directory to write to.
        index: The index to compress, which takes less room than its postings have.

    Raises:
        OSError: If there is too little room in that directory or for PISA's temporary files.
    """
    room = _ROOM + (0 if index is None else (index / "inv.docs").stat().st_size)
    for name in (os.fspath(place), os.environ.get("TMPDIR", tempfile.gettempdir())):
        if os.path.isdir(name) and (free := shutil.disk_usage(name).free) < room:
            raise OSError(
                f"only {free // 1024:,} KiB are free in {name}, PISA needs at least {room // 1024:,} KiB; use "
                "another disk, or name another temporary directory in TMPDIR"
            )


@contextlib.contextmanager
def quiet(verbose: bool) -> Iterator[None]:
    """Keeps PISA's log from the user: it writes progress to the process's output streams from C++.

    Python's ``sys.stderr`` still writes to the terminal, so that progress bars stay visible.
    """
    if verbose:
        yield
        return
    logger = pyterrier_pisa.indexers._logger  # what its Python code writes to; it would also show its own bars
    with _lock, open(os.devnull, "wb") as nowhere:
        sys.stdout.flush()
        sys.stderr.flush()
        saved = os.dup(1), os.dup(2)
        stderr: Any = sys.stderr
        try:
            pyterrier_pisa.indexers._logger = SimpleNamespace(info=lambda *args: None, pbar=lambda it, **kwargs: it)
            if sys.__stderr__ is stderr:  # and not a notebook's
                sys.stderr = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace", buffering=1)
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            for descriptor, original in zip((1, 2), saved, strict=True):
                os.dup2(original, descriptor)
                os.close(original)
            if sys.stderr is not stderr:
                sys.stderr.close()
                sys.stderr = stderr
            pyterrier_pisa.indexers._logger = logger
