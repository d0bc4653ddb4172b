"""Meta-learned multilingual retrieval with vectors: MAML and MAML-Align (M'hamdi et al., arXiv 2309.08185)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyterrier_mart.datasets.corpus import EmptyLanguageError, MultilingualCorpus
    from pyterrier_mart.datasets.graded_pairs import PairCorpus
    from pyterrier_mart.dense.centring import LanguageCentering
    from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
    from pyterrier_mart.dense.index import DenseIndex
    from pyterrier_mart.evaluation.folds import Fold, LeakageError, kfold_by_group, kfold_pairs
    from pyterrier_mart.evaluation.lareqa import language_bias, lareqa_evaluate, summarise
    from pyterrier_mart.evaluation.sts import sts_evaluate
    from pyterrier_mart.meta.config import MetaConfig
    from pyterrier_mart.meta.fast_weights import BackendError
    from pyterrier_mart.meta.retriever import MetaSBERTModel, MetaSBERTRetriever
    from pyterrier_mart.meta.sampling import PairTaskSampler, TripletTaskSampler
    from pyterrier_mart.meta.tasks import TRANSFER_MODES, AlignmentError, Arrangement, parse_arrangements

__all__ = [
    "TRANSFER_MODES", "AlignmentError", "Arrangement", "BackendError", "DenseIndex", "EmptyLanguageError", "Fold",
    "LanguageCentering", "LeakageError", "MetaConfig", "MetaSBERTModel", "MetaSBERTRetriever", "MultilingualCorpus",
    "PairCorpus", "PairTaskSampler", "TextEncoder", "TripletTaskSampler", "kfold_by_group", "kfold_pairs",
    "language_bias", "lareqa_evaluate", "load_sentence_transformer", "parse_arrangements", "sts_evaluate", "summarise",
]  # fmt: skip

#: Where names come from: they are imported when they are first asked for, since some need transformers.
_MODULES = {
    "datasets.corpus": "EmptyLanguageError MultilingualCorpus",
    "datasets.graded_pairs": "PairCorpus",
    "dense.centring": "LanguageCentering",
    "dense.encoder": "TextEncoder load_sentence_transformer",
    "dense.index": "DenseIndex",
    "evaluation.folds": "Fold LeakageError kfold_by_group kfold_pairs",
    "evaluation.lareqa": "language_bias lareqa_evaluate summarise",
    "evaluation.sts": "sts_evaluate",
    "meta.config": "MetaConfig",
    "meta.fast_weights": "BackendError",
    "meta.retriever": "MetaSBERTModel MetaSBERTRetriever",
    "meta.sampling": "PairTaskSampler TripletTaskSampler",
    "meta.tasks": "TRANSFER_MODES AlignmentError Arrangement parse_arrangements",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"pyterrier_mart.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists what is imported later too."""
    return sorted({*globals(), *__all__})
