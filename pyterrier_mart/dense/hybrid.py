"""Words and vectors together: one ranking by a sum of two scores, without training."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.checks import check_columns, check_number, check_whole
from pyterrier_mart.dense.retriever import DenseRetriever
from pyterrier_mart.frames import Transformer, texts_of
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.vectors import dot_products

__all__ = ["Hybrid"]

# Scripts in which words are not separated, and how many characters make one, about.
_UNSEPARATED = ((re.compile("[\u3040-\u30ff\u3400-\u9fff]"), 2), (re.compile("[\u0e00-\u0eff\u1780-\u17ff]"), 5))


class Hybrid(Transformer):
    """Ranks documents by a first stage in words and by vectors at once: on XQuAD-R, better than either alone.

    The score of a document is ``cosine / spread + weight * words / sqrt(n)``. The spread is the standard deviation of
    the cosine of two documents of the index (:attr:`DenseIndex.spread`): encoders differ in how far apart their cosines
    are, and what is divided by it means the same for all of them. n is the number of words of the query, with which
    scores that sum over terms grow. So a score depends neither on judgments nor on what else was found, other than with
    min-max normalisation or reciprocal ranks.

    The default weight was chosen on half of the articles of XQuAD-R, for BM25 of translated queries and PSQ-HMM alike
    (``alpha=0.3``): for both, it is within 0.003 AP@100 of what is best for each, on average over eight pairs.

    Documents are those that either finds: as many of each as ``words`` and ``dense`` retrieve. The vectors score all of
    them; those that ``words`` did not find have the words score 0, that of a document without a term of the query.
    ``words`` should therefore retrieve many (1000, as is the default of retrievers): with 100, AP@100 on XQuAD-R is
    lower by up to 0.02.

    Example::

        >>> words = SMTQueryTranslator(table) >> bm25_index(data, "words.index").bm25()
        >>> dense = MetaSBERTRetriever("e5-small")
        >>> hybrid = Hybrid(words, dense.retriever(dense.index("vectors.index", data)))

    Args:
        words: A retriever or pipeline that adds ``docno`` and ``score`` to queries: scores that sum over terms, of the
            size of BM25's or of a query likelihood's.
        dense: A retriever with an index of the same documents.
        weight: What the words are worth; more where the table is good, or the encoder poor.
        num_results: Maximum number of documents for each query.

    Raises:
        ValueError: If ``dense`` has no index, or an argument is out of range.
    """

    schematic = {"label": "Hybrid", "help_url": HELP_URL}

    def __init__(self, words: pt.Transformer, dense: DenseRetriever, *, weight: float = 0.4, num_results: int = 1000):
        check_number("weight", weight)
        check_whole("num_results", num_results)
        if not isinstance(dense, DenseRetriever) or dense.dense_index is None:
            raise ValueError(f"dense must be a dense retriever with an index, dense.retriever(index), not {dense!r}")
        self.words, self.dense, self.weight, self.num_results = words, dense, weight, num_results

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the best documents of each query, with ``docno``, ``doc_lang`` (if known), ``score`` and ``rank``.

        Raises:
            ValueError: If two rows have one qid, ``words`` gives no ``docno`` or ``score``, or it found a document that
                is not in the index of ``dense``.
        """
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        if (twice := inp["qid"].duplicated()).any():
            raise ValueError(f"each query needs a qid of its own; {inp['qid'][twice].iloc[0]!r} is there twice")
        asked = inp.assign(query=pd.Series(texts_of(inp, "query"), index=inp.index, dtype=object))
        by_words = self.words.transform(asked)
        check_columns("what words returns", by_words, ("qid", "docno", "score"))
        dense, index = self.dense, self.dense.dense_index
        assert index is not None
        if len(inp):
            index.check(dense.provenance)
        queries, places = dense.encode_rows(asked, "query")
        by_vectors = index.search(queries[places], dense.num_results, dense.doc_langs, dense.device)

        # A pair of a query and a document is one number.
        row_of = dict(zip(inp["qid"], range(len(inp)), strict=True))
        docids = index.docids(by_words["docno"].tolist())
        pairs = by_words["qid"].map(row_of).to_numpy(dtype=np.int64) * len(index) + docids
        scores = by_words["score"].to_numpy(dtype=np.float64)
        if dense.doc_langs is not None:
            inside = index.mask(dense.doc_langs)[docids]
            pairs, scores = pairs[inside], scores[inside]
        known = by_vectors["qid"].to_numpy() * len(index) + by_vectors["docid"].to_numpy()
        found = np.union1d(pairs, known)
        rows, docids = np.divmod(found, len(index))
        total = np.full(len(found), np.nan)
        total[np.searchsorted(found, known)] = by_vectors["score"].to_numpy()
        only_words = np.flatnonzero(np.isnan(total))
        total[only_words] = dot_products(queries, places[rows[only_words]], index.vectors, docids[only_words])
        total /= index.spread
        lengths = np.array([_length(query) for query in asked["query"]])
        total[np.searchsorted(found, pairs)] += self.weight * scores / np.sqrt(lengths[pairs // len(index)])

        order = np.lexsort((-total, rows))
        first = np.searchsorted(rows, rows)  # rows ascend
        rank = np.arange(len(order)) - first
        kept = rank < self.num_results
        best = order[kept]
        ranked = {"qid": rows[best], "docid": docids[best], "score": total[best], "rank": rank[kept]}
        return index.rows(inp, pd.DataFrame(ranked))

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """Returns fewer documents, of as many as before (PyTerrier's optimiser asks)."""
        return pt.inspect.transformer_apply_attributes(self, num_results=k) if k < self.num_results else None

    def __repr__(self) -> str:
        return f"Hybrid({self.words!r}, {self.dense!r}, weight={self.weight}, num_results={self.num_results})"


def _length(query: str) -> float:
    """Returns about how many words a query has, at least one."""
    return max(1, len(query.split()) + sum(len(script.findall(query)) / size for script, size in _UNSEPARATED))
