__version__ = '0.1.0'
__doc__ = """Cross-lingual information retrieval in PyTerrier: from a query in one language to documents in another."""

from pyterrier_mart.text import Analyzer, language_code

__all__ = ["Analyzer", "language_code"]
