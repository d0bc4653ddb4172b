"""The MART re-ranker: a cross-encoder with word-level translation knowledge in its attention."""

from pyterrier_mart.mart.modeling import MartConfig, MartForRanking, MartModel
from pyterrier_mart.mart.options import TrainingOptions
from pyterrier_mart.mart.reranker import DEFAULT_ENCODER, MARTReRanker

__all__ = ["DEFAULT_ENCODER", "MARTReRanker", "MartConfig", "MartForRanking", "MartModel", "TrainingOptions"]
