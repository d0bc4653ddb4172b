"""What retrievers over indexes of words share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt

from pyterrier_mart.checks import check_whole
from pyterrier_mart.frames import Transformer, warn
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.query_terms import index_terms, terms_of
from pyterrier_mart.retrieval.engines import engine_of
from pyterrier_mart.retrieval.index import WordIndex
from pyterrier_mart.retrieval.types import Scoring, Searcher

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["WordRetriever"]


class WordRetriever(Transformer):
    """Retrieval of weighted terms from a :class:`WordIndex`.

    Args:
        index: The index.
        num_results: Maximum number of documents for each query.
        threads: How many queries are answered at once.
        verbose: Whether to show progress and the engine's log.

    Raises:
        ValueError: If a parameter is out of range.
    """

    schematic: dict[str, Any] = {"label": "words", "help_url": HELP_URL}

    def __init__(self, index: WordIndex, num_results: int, threads: int, verbose: bool):
        check_whole("num_results", num_results)
        self.index, self.num_results, self.threads, self.verbose = index, num_results, threads, verbose
        self._searcher: Searcher | None = None
        self._opened_with: tuple[object, ...] = ()

    @property
    def scoring(self) -> Scoring:
        """How the engine scores."""
        raise NotImplementedError

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the best documents of each query, with ``docno``, ``score`` and ``rank``."""
        with pt.validate.any(inp, context=self) as v:
            v.query_frame(extra_columns=["query_toks"], mode="terms")
            v.query_frame(extra_columns=["query"], mode="text")
        if "query_toks" in inp.columns:  # the output has them too, and must have what can be hashed
            inp = inp.assign(query_toks=pd.Series(terms_of(inp["query_toks"]), index=inp.index, dtype=object))
        bags = self.bags(inp)
        asked = np.array([i for i, bag in enumerate(bags) if any(bag.values())], dtype=np.int64)
        if not len(asked):
            empty = {name: pd.Series(dtype=kind) for name, kind in (("docno", "str"), ("score", float), ("rank", int))}
            return inp.iloc[:0].reset_index(drop=True).assign(**empty)
        largest = np.array([max(bags[i].values()) for i in asked], dtype=np.float64)
        hits = self._open().search(self._scaled([bags[i] for i in asked], largest))
        out = inp.iloc[asked[hits.query]].reset_index(drop=True)
        rank = pd.Series(hits.query).groupby(hits.query).cumcount()
        return out.assign(docno=pd.Series(hits.docno, dtype="str"), score=hits.score * largest[hits.query], rank=rank)

    def bags(self, rows: pd.DataFrame) -> list[dict[str, float]]:
        """Returns the weighted terms of each query, as the index spells them."""
        return index_terms(rows, self.index.analyzer, repr(self.index))

    def _scaled(self, bags: list[dict[str, float]], largest: npt.NDArray[np.float64]) -> list[dict[str, float]]:
        """Divides each query's weights by the largest, so that their size does not matter to the engine's precision."""
        resolution = engine_of(self.index.engine).RESOLUTION
        queries, lost = [], 0
        for bag, top in zip(bags, largest.tolist(), strict=True):
            queries.append({term: weight / top for term, weight in bag.items() if weight / top >= resolution})
            lost += sum(0 < weight / top < resolution for weight in bag.values())
        if lost:
            warn(
                f"{lost} query terms weigh less than {resolution:g} of their query's heaviest term, which "
                f"{self.index.engine} cannot represent; they are left out"
            )
        return queries

    def _open(self) -> Searcher:
        options = self.scoring, self.num_results, self.threads, self.verbose
        # Searches for the best parameters set attributes.
        if self._searcher is None or self._opened_with != (self.index, *options):
            self.index.check()
            self._searcher = engine_of(self.index.engine).searcher(self.index.path / "index", *options)
            self._opened_with = (self.index, *options)
        return self._searcher

    def fuse_rank_cutoff(self, k: int) -> Self:
        """Retrieves fewer documents instead of cutting them off afterwards (PyTerrier's optimiser asks)."""
        fewer = pt.inspect.transformer_apply_attributes(self, num_results=k)
        return self if k >= self.num_results else cast("Self", fewer)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_searcher": None}
