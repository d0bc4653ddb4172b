__version__ = '0.1.0'
__doc__ = """Cross-lingual information retrieval in PyTerrier: from a query in one language to documents in another."""

from pyterrier_mart.retrieval import BM25Index, BM25Retriever, bm25_index
from pyterrier_mart.text import Analyzer, language_code
from pyterrier_mart.translation import SMTQueryTranslator, TranslationTable

__all__ = [
    "Analyzer",
    "BM25Index",
    "BM25Retriever",
    "SMTQueryTranslator",
    "TranslationTable",
    "bm25_index",
    "language_code",
]
