"""First-stage retrieval: BM25 over documents that the package's analyzers have split into words."""

from pyterrier_mart.retrieval.bm25 import BM25Index, BM25Retriever, bm25_index

__all__ = ["BM25Index", "BM25Retriever", "bm25_index"]
