"""What BM25 needs of a search engine, and which engine to take."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ENGINES", "Engine", "Hits", "Searcher", "engine", "pick_engine"]

ENGINES = ("pisa", "terrier")

#: A document as engines take it: ``{"docno": str, "toks": dict[str, int]}``.
Document = dict[str, Any]


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


class Searcher(Protocol):
    """An index opened for retrieval with fixed parameters."""

    def search(self, queries: list[dict[str, float]]) -> Hits:
        """Finds the best documents; each query is not empty and its largest weight is 1."""


class Engine(Protocol):
    """A module that builds and opens indexes: :mod:`.pisa` or :mod:`.terrier`."""

    #: Weights below this, relative to a query's largest, do not reach the engine.
    RESOLUTION: float
    #: How many characters a docno may have; ``None``: any number.
    LONGEST_DOCNO: int | None

    def build(self, documents: Iterable[Document], path: Path, threads: int, verbose: bool) -> None:
        """Writes an index into the empty directory ``path``."""

    def searcher(self, path: Path, k1: float, b: float, num_results: int, threads: int, verbose: bool) -> Searcher:
        """Opens the index for retrieval."""


def pick_engine(name: str) -> str:
    """Returns the engine to use for ``"auto"``, ``"pisa"`` or ``"terrier"``.

    ``"auto"`` is PISA where it is installed (it has wheels for Linux on x86-64 only) and Terrier elsewhere.

    Raises:
        ValueError: If there is no such engine.
        ImportError: If PISA is asked for and not installed.
    """
    has_pisa = find_spec("pyterrier_pisa") is not None
    if name == "auto":
        return "pisa" if has_pisa else "terrier"
    if name not in ENGINES:
        raise ValueError(f"engine must be 'auto', 'pisa' or 'terrier', not {name!r}")
    if name == "pisa" and not has_pisa:
        raise ImportError(
            "engine='pisa' needs the package pyterrier-pisa, which exists for Linux on x86-64 only; use "
            "engine='terrier'"
        )
    return name


def engine(name: str) -> Engine:
    """Returns the module of an engine; this is where its package is imported."""
    if pick_engine(name) == "pisa":
        from pyterrier_mart.retrieval import pisa

        return pisa
    from pyterrier_mart.retrieval import terrier

    return terrier
