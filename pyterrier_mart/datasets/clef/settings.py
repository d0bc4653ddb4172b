"""The settings of the CLEF experiments of the MART paper: which documents and topics a pair of languages has.

Huang et al. Mixed Attention Transformer for Leveraging Word-Level Knowledge to Neural Cross-Lingual Information
Retrieval. CIKM 2021, https://doi.org/10.1145/3459637.3482452.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyterrier_mart.datasets.clef.collections import COLLECTIONS

__all__ = [
    "DOCUMENT_LANGUAGES", "PAPER_PAIRS", "PAPER_TOPICS", "QUERY_LANGUAGES", "collections_of", "topic_languages",
]  # fmt: skip

_FORWARD = ("fr", "it", "de", "es")
_LOW_RESOURCE = ("so", "sw")

#: How many topics the paper has, by languages of topics and documents. It does not say so of the other pairs.
PAPER_TOPICS: Mapping[tuple[str, str], int] = {
    **{(query, "en"): 246 for query in _FORWARD},
    **{(query, "en"): 151 for query in _LOW_RESOURCE},
}
#: The pairs of the paper: languages of topics and documents.
PAPER_PAIRS: tuple[tuple[str, str], ...] = (*PAPER_TOPICS, *(("en", document) for document in _FORWARD))
#: The languages that CLEF has documents in.
DOCUMENT_LANGUAGES = tuple(sorted({collection.language for collection in COLLECTIONS.values()}))
#: The languages that names are listed for: CLEF's, and those that Bonab et al. translated topics to (ICTIR 2019).
QUERY_LANGUAGES = tuple(sorted({*DOCUMENT_LANGUAGES, *_LOW_RESOURCE}))


def collections_of(language: str) -> tuple[str, ...]:
    """Returns the usual collections of a language: all, but of English the Los Angeles Times alone, as in the paper."""
    of_language = tuple(key for key, known in COLLECTIONS.items() if known.language == language)
    return ("lat94",) if language == "en" else of_language


def topic_languages(query: str, document: str) -> tuple[str, ...]:
    """Returns the languages in which a topic must exist to be one of a pair.

    The pairs from French, Italian, German and Spanish to English share their topics, so that they can be compared.

    Args:
        query: The language of the queries.
        document: The language of the documents.
    """
    asked = {query, document}
    if query in _FORWARD and document == "en":
        asked.update(_FORWARD)
    return tuple(sorted(asked))
