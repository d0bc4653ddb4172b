"""BM25 over an index of analysed documents."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.links import HELP_URL
from pyterrier_mart.retrieval import engines
from pyterrier_mart.text import QUERY_TOKS_SPEC

if TYPE_CHECKING:
    from pyterrier_mart.retrieval.index import BM25Index

__all__ = ["BM25Retriever"]


class BM25Retriever(pt.Transformer):
    """BM25 over a :class:`BM25Index`.

    Takes weighted terms from ``query_toks`` where a query has that column (as
    :class:`~pyterrier_mart.SMTQueryTranslator` adds it); else the index's analyzer splits ``query`` into words. A
    term's score is proportional to its weight. Queries without a term, and terms whose weight is below the engine's
    resolution (1e-4 of the query's largest weight in PISA, 1e-6 in Terrier), find nothing.

    .. cite.dblp:: journals/ftir/RobertsonZ09

    Args:
        index: The index.
        k1: BM25's saturation of term frequency.
        b: BM25's length normalisation.
        num_results: At most so many documents a query.
        threads: How many queries are answered at once.
        verbose: Whether to show progress and the engine's log.

    Raises:
        ValueError: If a parameter is out of range.
    """

    schematic = {"label": "BM25", "help_url": HELP_URL}

    def __init__(
        self,
        index: BM25Index,
        *,
        k1: float = 0.9,
        b: float = 0.4,
        num_results: int = 1000,
        threads: int = 1,
        verbose: bool = False,
    ):
        if not (0 <= k1 < math.inf):
            raise ValueError(f"k1 must be a number >= 0, not {k1!r}")
        if not (0 <= b <= 1):
            raise ValueError(f"b must be in [0, 1], not {b!r}")
        if num_results < 1:
            raise ValueError(f"num_results must be at least 1, not {num_results!r}")
        self.index, self.k1, self.b = index, k1, b
        self.num_results, self.threads, self.verbose = num_results, threads, verbose
        self._searcher: engines.Searcher | None = None
        self._opened_with: tuple[object, ...] = ()

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the best documents of each query, with ``docno``, ``score`` and ``rank``."""
        with pt.validate.any(inp, context=self) as v:
            v.query_frame(extra_columns=["query_toks"], mode="terms")
            v.query_frame(extra_columns=["query"], mode="text")
        if "query_toks" in inp.columns:
            self._check_spelling(inp.attrs.get(QUERY_TOKS_SPEC))
            bags = [toks if isinstance(toks, dict) else {} for toks in inp["query_toks"]]
        else:
            bags = [self.index.analyzer.counts(q) if isinstance(q, str) else {} for q in inp["query"]]
        queries, largest = self._scaled(bags)
        asked = [i for i, bag in enumerate(queries) if bag]
        if not asked:
            out = inp.iloc[:0].reset_index(drop=True)
            return out.assign(
                docno=pd.Series(dtype="str"), score=pd.Series(dtype="float64"), rank=pd.Series(dtype="int64")
            )
        hits = self._open().search([queries[i] for i in asked])
        row = np.array(asked)[hits.query]
        out = inp.iloc[row].reset_index(drop=True)
        score = hits.score * np.array(largest, dtype=np.float64)[row]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        rank = np.arange(len(row)) - np.repeat(starts, np.diff(np.append(starts, len(row))))
        return out.assign(docno=pd.Series(hits.docno, dtype="str"), score=score, rank=rank)

    def _check_spelling(self, spec: dict[str, Any] | None) -> None:
        """Refuses words that a translator spelled otherwise than this index: they would silently find nothing."""
        if spec is not None and spec != self.index.analyzer.spec:
            raise ValueError(
                f"the words in query_toks were made by the analyzer {spec}, but {self.index!r} by "
                f"{self.index.analyzer.spec}; use a table whose target language and analyzer are those of the index"
            )

    def _scaled(self, bags: list[dict[str, float]]) -> tuple[list[dict[str, float]], list[float]]:
        """Divides each query's weights by the largest, so that their size does not matter to the engine's precision."""
        resolution = engines.engine(self.index.engine).RESOLUTION if bags else 0.0
        queries, largest, lost = [], [], 0
        for bag in bags:
            if not all(math.isfinite(weight) and weight >= 0 for weight in bag.values()):
                raise ValueError(f"the weights in query_toks must be finite and not negative: {bag!r}")
            top = float(max(bag.values(), default=0.0)) or 1.0
            kept = {term: weight / top for term, weight in bag.items() if weight / top >= resolution}
            lost += sum(0 < weight / top < resolution for weight in bag.values())
            queries.append(kept)
            largest.append(top)
        if lost:
            warnings.warn(
                f"{lost} query terms weigh less than {resolution:g} of their query's heaviest term, which "
                f"{self.index.engine} cannot represent; they are left out",
                stacklevel=3,
            )
        return queries, largest

    def _open(self) -> engines.Searcher:
        options = self.k1, self.b, self.num_results, self.threads, self.verbose
        # Searches for the best parameters set attributes.
        if self._searcher is None or self._opened_with != (self.index, *options):
            self._searcher = engines.engine(self.index.engine).searcher(self.index.path / "index", *options)
            self._opened_with = (self.index, *options)
        return self._searcher

    def fuse_rank_cutoff(self, k: int) -> BM25Retriever:
        """Retrieves fewer documents instead of cutting them off afterwards (PyTerrier's optimiser asks)."""
        if k >= self.num_results:
            return self
        return self.index.bm25(k1=self.k1, b=self.b, num_results=k, threads=self.threads, verbose=self.verbose)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_searcher": None}

    def _key(self) -> tuple[object, ...]:
        return self.index, self.k1, self.b, self.num_results

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, BM25Retriever) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"BM25Retriever({self.index!r}, k1={self.k1}, b={self.b}, num_results={self.num_results})"
