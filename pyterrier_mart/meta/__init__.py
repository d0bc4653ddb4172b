"""Meta-learned multilingual retrieval with vectors: MAML and MAML-Align (M'hamdi et al., arXiv 2309.08185)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyterrier_mart.meta.arrangements import TRANSFER_MODES, Arrangement, parse_arrangements
    from pyterrier_mart.meta.centring import LanguageCentering
    from pyterrier_mart.meta.config import MetaConfig
    from pyterrier_mart.meta.corpus import MultilingualCorpus, PairCorpus
    from pyterrier_mart.meta.encoder import TextEncoder, load_sentence_transformer
    from pyterrier_mart.meta.errors import AlignmentError, BackendError, EmptyLanguageError, LeakageError
    from pyterrier_mart.meta.evaluation import language_bias, lareqa_evaluate, sts_evaluate, summarise
    from pyterrier_mart.meta.folds import Fold, kfold_by_group, kfold_pairs
    from pyterrier_mart.meta.index import DenseIndex
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever
    from pyterrier_mart.meta.sampling import PairTaskSampler, TripletTaskSampler
    from pyterrier_mart.meta.saved import MetaSBERTModel

__all__ = [
    "TRANSFER_MODES",
    "AlignmentError",
    "Arrangement",
    "BackendError",
    "DenseIndex",
    "EmptyLanguageError",
    "Fold",
    "LanguageCentering",
    "LeakageError",
    "MetaConfig",
    "MetaSBERTModel",
    "MetaSBERTRetriever",
    "MultilingualCorpus",
    "PairCorpus",
    "PairTaskSampler",
    "TextEncoder",
    "TripletTaskSampler",
    "kfold_by_group",
    "kfold_pairs",
    "language_bias",
    "lareqa_evaluate",
    "load_sentence_transformer",
    "parse_arrangements",
    "sts_evaluate",
    "summarise",
]

#: Where names come from: they are imported when they are first asked for, since some need transformers.
_MODULES = {
    "AlignmentError": "errors",
    "Arrangement": "arrangements",
    "BackendError": "errors",
    "DenseIndex": "index",
    "EmptyLanguageError": "errors",
    "Fold": "folds",
    "LanguageCentering": "centring",
    "LeakageError": "errors",
    "MetaConfig": "config",
    "MetaSBERTModel": "saved",
    "MetaSBERTRetriever": "retriever",
    "MultilingualCorpus": "corpus",
    "PairCorpus": "corpus",
    "PairTaskSampler": "sampling",
    "TRANSFER_MODES": "arrangements",
    "TextEncoder": "encoder",
    "TripletTaskSampler": "sampling",
    "kfold_by_group": "folds",
    "kfold_pairs": "folds",
    "language_bias": "evaluation",
    "lareqa_evaluate": "evaluation",
    "load_sentence_transformer": "encoder",
    "parse_arrangements": "arrangements",
    "sts_evaluate": "evaluation",
    "summarise": "evaluation",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists what is imported later too."""
    return sorted({*globals(), *__all__})
