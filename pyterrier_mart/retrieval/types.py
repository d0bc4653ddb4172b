"""What the engines of BM25 take and give, and what one must do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["Document", "Engine", "Hits", "Postings", "Scoring", "Searcher"]

#: A document as engines take it: ``{"docno": str, "toks": dict[str, int]}``.
Document = dict[str, Any]
#: k1 and b of BM25; ``None`` where frequencies are impacts: what a document has of a term, times the term's weight.
Scoring = tuple[float, float] | None


class Postings(NamedTuple):
    """Consecutive documents as arrays.

    Attributes:
        docnos: Their names (n).
        bounds: int64 (n + 1), the terms of document ``i`` are ``terms[bounds[i]:bounds[i + 1]]``.
        terms: int64 (m), places in ``words``; no document has one twice.
        freqs: int64 (m), frequencies above 0.
        words: str objects, the same array for all documents of an index.
    """

    docnos: list[str]
    bounds: npt.NDArray[np.int64]
    terms: npt.NDArray[np.int64]
    freqs: npt.NDArray[np.int64]
    words: npt.NDArray[np.object_]

    def documents(self) -> Iterator[Document]:
        """Yields them one by one."""
        terms, freqs = self.words[self.terms].tolist(), self.freqs.tolist()
        for docno, (i, j) in zip(self.docnos, pairwise(self.bounds.tolist()), strict=True):
            yield {"docno": docno, "toks": dict(zip(terms[i:j], freqs[i:j], strict=True))}


class Hits(NamedTuple):
    """Results of several queries; those of a query stand together, the best first.

    Attributes:
        query: int64 (n), which of the queries.
        docno: str objects (n).
        score: float64 (n).
    """

    query: npt.NDArray[np.int64]
    docno: npt.NDArray[np.object_]
    score: npt.NDArray[np.float64]

    @classmethod
    def of(cls, results: pd.DataFrame) -> Hits:
        """Returns what a retriever found for queries whose ``qid`` is their position; threads finish in any order."""
        results = results.assign(qid=results["qid"].astype("int64")).sort_values(["qid", "rank"])
        return cls(*(results[name].to_numpy() for name in ("qid", "docno", "score")))


class Searcher(Protocol):
    """An index opened for retrieval with fixed parameters."""

    def search(self, queries: list[dict[str, float]]) -> Hits:
        """Finds the best documents; each query is not empty and its largest weight is 1."""


class Engine(Protocol):
    """A module that builds and opens indexes: :mod:`.pisa` or :mod:`.terrier`."""

    #: Its name.
    NAME: str
    #: Weights below this, relative to a query's largest, do not reach the engine.
    RESOLUTION: float
    #: Maximum number of characters in a docno, in units of UTF-16; ``None`` for any number.
    LONGEST_DOCNO: int | None

    def build(
        self, documents: Iterable[Document | Postings], path: Path, threads: int, verbose: bool, impacts: bool = False
    ) -> None:
        """Writes an index into the empty directory ``path``; what reading the documents raises comes out.

        Args:
            documents: The documents.
            path: The directory.
            threads: Threads of the engine.
            verbose: Whether its log is shown.
            impacts: Whether frequencies are impacts.
        """

    def searcher(self, path: Path, scoring: Scoring, num_results: int, threads: int, verbose: bool) -> Searcher:
        """Opens the index for retrieval."""
