"""Word-level translation knowledge: tables, where they come from, and queries translated with them."""

from pyterrier_mart.translation.query import SMTQueryTranslator
from pyterrier_mart.translation.table import TranslationTable

__all__ = ["SMTQueryTranslator", "TranslationTable"]
