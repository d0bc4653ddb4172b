__version__ = "0.1.0"
__doc__ = """Cross-lingual information retrieval in PyTerrier: from a query in one language to documents in another."""

import importlib
from typing import TYPE_CHECKING, Any

from pyterrier_mart.retrieval import BM25Index, BM25Retriever, PSQIndex, PSQRetriever, bm25_index, psq_index
from pyterrier_mart.retrieval.merging import merge_languages
from pyterrier_mart.text import Analyzer, language_code
from pyterrier_mart.translation import SMTQueryTranslator, TranslationTable

if TYPE_CHECKING:
    from pyterrier_mart.datasets.corpus import MultilingualCorpus
    from pyterrier_mart.datasets.languages import languages_of
    from pyterrier_mart.dense.centring import LanguageCentering
    from pyterrier_mart.dense.hybrid import Hybrid
    from pyterrier_mart.dense.index import DenseIndex
    from pyterrier_mart.dense.retriever import DenseRetriever
    from pyterrier_mart.mart import MARTReRanker, TrainingOptions
    from pyterrier_mart.meta.config import MetaConfig
    from pyterrier_mart.meta.retriever import MetaSBERTModel, MetaSBERTRetriever
    from pyterrier_mart.translation.neural import NeuralDocumentTranslator, NeuralQueryTranslator

__all__ = [
    "Analyzer",
    "BM25Index",
    "BM25Retriever",
    "DenseIndex",
    "DenseRetriever",
    "Hybrid",
    "LanguageCentering",
    "MARTReRanker",
    "MetaConfig",
    "MetaSBERTModel",
    "MetaSBERTRetriever",
    "MultilingualCorpus",
    "NeuralDocumentTranslator",
    "NeuralQueryTranslator",
    "PSQIndex",
    "PSQRetriever",
    "SMTQueryTranslator",
    "TrainingOptions",
    "TranslationTable",
    "bm25_index",
    "language_code",
    "languages_of",
    "merge_languages",
    "psq_index",
]

#: Where names come from that are imported when they are first asked for: most of them need torch.
_LATER = {
    "datasets.corpus": "MultilingualCorpus",
    "datasets.languages": "languages_of",
    "dense.centring": "LanguageCentering",
    "dense.hybrid": "Hybrid",
    "dense.index": "DenseIndex",
    "dense.retriever": "DenseRetriever",
    "mart": "MARTReRanker TrainingOptions",
    "meta.config": "MetaConfig",
    "meta.retriever": "MetaSBERTModel MetaSBERTRetriever",
    "translation.neural": "NeuralDocumentTranslator NeuralQueryTranslator",
}


def __getattr__(name: str) -> Any:
    """Imports what not every user needs when it is first asked for."""
    for module, names in _LATER.items():
        if name in names.split():
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists what is imported later too."""
    return sorted({*globals(), *__all__})
