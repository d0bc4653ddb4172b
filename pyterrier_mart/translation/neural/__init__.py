"""Neural translation of queries and documents, with the sequence-to-sequence models of transformers."""

from pyterrier_mart.translation.neural.translators import NeuralDocumentTranslator, NeuralQueryTranslator

__all__ = ["NeuralDocumentTranslator", "NeuralQueryTranslator"]
