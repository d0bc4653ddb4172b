__version__ = '0.1.0'
__doc__ = """Cross-lingual information retrieval in PyTerrier: from a query in one language to documents in another."""

from typing import TYPE_CHECKING, Any

from pyterrier_mart.retrieval import BM25Index, BM25Retriever, bm25_index
from pyterrier_mart.text import Analyzer, language_code
from pyterrier_mart.translation import SMTQueryTranslator, TranslationTable

if TYPE_CHECKING:
    from pyterrier_mart.mart import MARTReRanker, TrainingOptions

__all__ = [
    "Analyzer",
    "BM25Index",
    "BM25Retriever",
    "MARTReRanker",
    "SMTQueryTranslator",
    "TrainingOptions",
    "TranslationTable",
    "bm25_index",
    "language_code",
]

_FROM_MART = ("MARTReRanker", "TrainingOptions")


def __getattr__(name: str) -> Any:
    """Imports what needs torch when it is first asked for."""
    if name in _FROM_MART:
        from pyterrier_mart import mart

        return getattr(mart, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists what is imported later too."""
    return sorted({*globals(), *__all__})
