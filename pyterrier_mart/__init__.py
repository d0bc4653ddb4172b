__version__ = "0.1.0"
__doc__ = """Cross-lingual information retrieval in PyTerrier: from a query in one language to documents in another."""

import importlib
from typing import TYPE_CHECKING, Any

from pyterrier_mart.retrieval import BM25Index, BM25Retriever, bm25_index
from pyterrier_mart.text import Analyzer, language_code
from pyterrier_mart.translation import SMTQueryTranslator, TranslationTable

if TYPE_CHECKING:
    from pyterrier_mart.datasets.languages import languages_of
    from pyterrier_mart.mart import MARTReRanker, TrainingOptions
    from pyterrier_mart.meta import (
        DenseIndex,
        LanguageCentering,
        MetaConfig,
        MetaSBERTModel,
        MetaSBERTRetriever,
        MultilingualCorpus,
    )

__all__ = [
    "Analyzer",
    "BM25Index",
    "BM25Retriever",
    "DenseIndex",
    "LanguageCentering",
    "MARTReRanker",
    "MetaConfig",
    "MetaSBERTModel",
    "MetaSBERTRetriever",
    "MultilingualCorpus",
    "SMTQueryTranslator",
    "TrainingOptions",
    "TranslationTable",
    "bm25_index",
    "language_code",
    "languages_of",
]

#: The packages of names that are imported when they are first asked for: most of them need torch.
_LATER = {
    "languages_of": "pyterrier_mart.datasets.languages",
    **dict.fromkeys(("MARTReRanker", "TrainingOptions"), "pyterrier_mart.mart"),
    **dict.fromkeys(
        (
            "DenseIndex", "LanguageCentering", "MetaConfig", "MetaSBERTModel", "MetaSBERTRetriever",
            "MultilingualCorpus",
        ),
        "pyterrier_mart.meta",
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imports what not every user needs when it is first asked for."""
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists what is imported later too."""
    return sorted({*globals(), *__all__})
