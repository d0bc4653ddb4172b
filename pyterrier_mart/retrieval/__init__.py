"""First-stage retrieval: BM25 over documents that the package's analyzers have split into words."""

from pyterrier_mart.retrieval.index import BM25Index, bm25_index
from pyterrier_mart.retrieval.retriever import BM25Retriever

__all__ = ["BM25Index", "BM25Retriever", "bm25_index"]
