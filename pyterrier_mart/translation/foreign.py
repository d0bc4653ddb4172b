"""Indexes that Terrier or PISA made of texts, with their own idea of a word."""

from __future__ import annotations

import pyterrier as pt

from pyterrier_mart.frames import warn
from pyterrier_mart.text import Analyzer

__all__ = ["check_following", "other_words"]

_LAST = 200  # terms of a lexicon; accented letters come after "z"


def check_following(step: pt.Transformer, analyzer: Analyzer) -> None:
    """Warns if the index that follows a translation has other words than an analyzer spells."""
    following = step[0] if isinstance(step, pt.Compose) else step
    if made := other_words(following, analyzer):
        warn(
            f"{following} searches {made}, which lack words with accents as {analyzer!r} spells them; make the index "
            "with bm25_index, or as the class SMTQueryTranslator describes"
        )


def other_words(retriever: object, analyzer: Analyzer) -> str | None:
    """Returns how an index came to other words than an analyzer spells; ``None`` where nothing speaks for it.

    English is left out, as next to no word is lost there.

    Args:
        retriever: What follows a translation; only retrievers of Terrier and PISA are looked at.
        analyzer: What spells the terms of queries.
    """
    if analyzer.lang == "en":
        return None
    if isinstance(retriever, pt.terrier.Retriever):
        index = pt.terrier.IndexFactory.of(retriever.indexref)
        if made := pt.java.cast("org.terrier.structures.PropertiesIndex", index).getIndexProperty("termpipelines", ""):
            return f"Terrier's own words, and {made} after"
        lexicon = index.getLexicon()
        size = lexicon.numberOfEntries()
        terms = [lexicon.getIthLexiconEntry(i).getKey() for i in range(max(0, size - _LAST), size)]
        found = [term for term in map(str, terms) if analyzer.normalize(term) != term]
        return f"words such as {found[0]!r}" if found else None
    if type(retriever).__module__.partition(".")[0] == "pyterrier_pisa":
        stemmer = getattr(getattr(getattr(retriever, "index", None), "stemmer", None), "value", "none")
        return None if stemmer == "none" else f"PISA's own words, and the stemmer {stemmer}"
    return None
