"""Meta-learned multilingual retrieval with vectors: MAML and MAML-Align (M'hamdi et al., arXiv 2309.08185)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyterrier_mart.datasets.corpus import MultilingualCorpus, PairCorpus
    from pyterrier_mart.dense.centring import LanguageCentering
    from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
    from pyterrier_mart.dense.index import DenseIndex
    from pyterrier_mart.evaluation.lareqa import language_bias, lareqa_evaluate, sts_evaluate, summarise
    from pyterrier_mart.meta.arrangements import TRANSFER_MODES, Arrangement, parse_arrangements
    from pyterrier_mart.meta.config import MetaConfig
    from pyterrier_mart.meta.errors import AlignmentError, BackendError, EmptyLanguageError, LeakageError
    from pyterrier_mart.meta.folds import Fold, kfold_by_group, kfold_pairs
    from pyterrier_mart.meta.retriever import MetaSBERTModel, MetaSBERTRetriever
    from pyterrier_mart.meta.sampling import PairTaskSampler, TripletTaskSampler

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
    "AlignmentError": "meta.errors",
    "Arrangement": "meta.arrangements",
    "BackendError": "meta.errors",
    "DenseIndex": "dense.index",
    "EmptyLanguageError": "meta.errors",
    "Fold": "meta.folds",
    "LanguageCentering": "dense.centring",
    "LeakageError": "meta.errors",
    "MetaConfig": "meta.config",
    "MetaSBERTModel": "meta.retriever",
    "MetaSBERTRetriever": "meta.retriever",
    "MultilingualCorpus": "datasets.corpus",
    "PairCorpus": "datasets.corpus",
    "PairTaskSampler": "meta.sampling",
    "TRANSFER_MODES": "meta.arrangements",
    "TextEncoder": "dense.encoder",
    "TripletTaskSampler": "meta.sampling",
    "kfold_by_group": "meta.folds",
    "kfold_pairs": "meta.folds",
    "language_bias": "evaluation.lareqa",
    "lareqa_evaluate": "evaluation.lareqa",
    "load_sentence_transformer": "dense.encoder",
    "parse_arrangements": "meta.arrangements",
    "sts_evaluate": "evaluation.lareqa",
    "summarise": "evaluation.lareqa",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"pyterrier_mart.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists what is imported later too."""
    return sorted({*globals(), *__all__})
