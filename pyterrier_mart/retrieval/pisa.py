"""BM25 with PISA, embedded: no Java, no server."""

from __future__ import annotations

import contextlib
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
from pyterrier_mart.retrieval.inversion import invert
from pyterrier_mart.retrieval.types import Document, Hits

NAME = "pisa"
# PISA reads a query's weights as whole numbers of repetitions.
# They cost time in proportion: ten thousand keep four decimals of a weight and a query below 5 ms.
_TOKS_SCALE = 10_000.0
RESOLUTION = 1 / _TOKS_SCALE
LONGEST_DOCNO: int | None = None

_ROOM = 8 << 20  # bytes that must be free before a small index is built or compressed

_lock = threading.Lock()


def build(documents: Iterable[Document], path: Path, threads: int, verbose: bool) -> None:
    """Writes a PISA index of the documents' ``toks`` into the empty directory ``path``.

    Raises:
        OSError: If the disk is nearly full.
    """
    check_room(path)
    with quiet(verbose):
        invert(documents, path)
        build_binlex(str(path / "fwd.documents"), str(path / "fwd.doclex"))
        build_binlex(str(path / "fwd.terms"), str(path / "fwd.termlex"))
    # So that the directory is an artifact of pyterrier_pisa too; stemming and stop words are the analyzer's business.
    kind = {"type": "sparse_index", "format": "pisa", "package_hint": "pyterrier-pisa", "stemmer": "none"}
    (path / META).write_bytes(meta_bytes(kind))


class PisaSearcher:
    """A PISA index opened for retrieval."""

    def __init__(self, path: Path, k1: float, b: float, num_results: int, threads: int, verbose: bool):
        if not any(path.glob("bm25.*")):
            check_room(path)  # it is about to be compressed for the first time
        index = pyterrier_pisa.PisaIndex(str(path), stemmer="none", stops="none", threads=threads)
        with quiet(verbose):  # it compresses the index for these parameters when it meets them first
            self._retriever = index.bm25(
                k1=k1, b=b, num_results=num_results, query_weighted=True, toks_scale=1.0, verbose=verbose
            )

    def search(self, queries: list[dict[str, float]]) -> Hits:
        """Finds the best documents."""
        # Scaled here and not by pyterrier_pisa, after which PISA would round down.
        bags = [{term: float(round(weight * _TOKS_SCALE)) for term, weight in query.items()} for query in queries]
        frame = pd.DataFrame({"qid": np.arange(len(queries)).astype(str), "query_toks": bags})
        try:
            hits = Hits.of(self._retriever(frame))
        except SystemError as err:  # how Ctrl-C and what other signals raise comes out of PISA
            raise (err.__cause__ or err) from None
        return hits._replace(score=hits.score / _TOKS_SCALE)


searcher = PisaSearcher


def check_room(path: Path) -> None:
    """Refuses a nearly full disk, since PISA would end the process there without a word.

    Raises:
        OSError: If there is too little room beside the index or for PISA's temporary files.
    """
    for place in (os.fspath(path), os.environ.get("TMPDIR", tempfile.gettempdir())):
        if os.path.isdir(place) and (free := shutil.disk_usage(place).free) < _ROOM:
            raise OSError(
                f"only {free // 1024:,} KiB are free in {place}, PISA needs at least {_ROOM // 1024:,} KiB; use "
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
