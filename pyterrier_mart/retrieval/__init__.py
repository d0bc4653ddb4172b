"""First-stage retrieval in words: BM25, and probabilistic structured queries."""

from pyterrier_mart.retrieval.bm25 import BM25Index, BM25Retriever, bm25_index
from pyterrier_mart.retrieval.psq import PSQIndex, PSQRetriever, psq_index

__all__ = ["BM25Index", "BM25Retriever", "PSQIndex", "PSQRetriever", "bm25_index", "psq_index"]
