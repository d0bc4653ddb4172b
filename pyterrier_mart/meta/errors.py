"""What can be wrong with tasks, corpora and backends. All name the offending qid, docno, language or setting."""

from __future__ import annotations

__all__ = ["AlignmentError", "BackendError", "EmptyLanguageError", "LeakageError"]


class LeakageError(ValueError):
    """An article, paragraph or sentence is in two splits."""


class AlignmentError(ValueError):
    """The positive of a row is not relevant to its anchor, or a negative is."""


class BackendError(ValueError):
    """The fast weights that are asked for cannot work with this model or these settings."""


class EmptyLanguageError(ValueError):
    """A corpus has no questions or candidates in a language."""
