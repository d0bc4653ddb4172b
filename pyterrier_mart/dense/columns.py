"""Vectors as columns of data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt

from pyterrier_mart.dense.encoder import Side
from pyterrier_mart.frames import texts_of
from pyterrier_mart.links import HELP_URL

if TYPE_CHECKING:
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever

__all__ = ["MetaSBERTEncoder"]

Vectors = npt.NDArray[np.float32]


class MetaSBERTEncoder(pt.Transformer):
    """Adds the vectors of queries or documents; see :meth:`MetaSBERTRetriever.query_encoder`.

    Vectors of a column that is there already are replaced.

    Args:
        dense: What encodes.
        side: Whether to encode ``query`` to ``query_vec`` (``"query"``) or text to ``doc_vec`` (``"document"``).
    """

    def __init__(self, dense: MetaSBERTRetriever, side: Side = "query"):
        if side not in ("query", "document"):
            raise ValueError(f"side must be 'query' or 'document', not {side!r}")
        self.dense, self.side = dense, side
        self.schematic = {"label": "Query Vectors" if side == "query" else "Doc Vectors", "help_url": HELP_URL}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds a column of float32 arrays of length 1."""
        dense, prefix = self.dense, "query" if self.side == "query" else "doc"
        column = "query" if self.side == "query" else dense.text_field
        pt.validate.columns(inp, includes=[column], context=self)
        vectors: list[Vectors] = []
        if len(inp):
            texts = texts_of(inp, column, 4)
            with dense._bar(len(set(texts))) as progress:
                rows = dense._encoded(texts, self.side, dense._langs(inp, prefix), progress)
            vectors = list(rows.distinct[rows.places])
        return inp.assign(**{f"{prefix}_vec": pd.Series(vectors, index=inp.index, dtype=object)})

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Cuts a ranking before, rather than after, texts are encoded."""
        return pt.RankCutoff(k) >> self

    def subtransformers(self) -> dict[str, Any]:
        """There are none: it does not call ``dense`` as one."""
        return {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetaSBERTEncoder):
            return NotImplemented
        return (self.dense, self.side) == (other.dense, other.side)

    def __hash__(self) -> int:
        return hash((MetaSBERTEncoder, self.dense, self.side))

    def __repr__(self) -> str:
        return f"{self.dense!r}.{'query' if self.side == 'query' else 'doc'}_encoder()"
