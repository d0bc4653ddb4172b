"""How good a translation table is: what it knows of the queries, how often it is right, how sure it is."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_mart.translation.backoff import other_forms
from pyterrier_mart.translation.table import TranslationTable

__all__ = ["Accuracy", "Coverage", "Quality", "accuracy", "coverage", "report"]

_RANKS = 5


@dataclass(frozen=True)
class Coverage:
    """What a table knows of the terms of queries.

    Attributes:
        tokens: Number of terms, repeated ones counted repeatedly.
        types: Number of different terms.
        known_tokens: How many of the former the table has.
        known_types: How many of the latter the table has.
        related_types: How many of the terms that it lacks have other forms or parts of compounds in it,
            whose translations :class:`~pyterrier_mart.SMTQueryTranslator` takes instead.
        missing: The terms that it lacks and how often each occurs, the most frequent first.
    """

    tokens: int
    types: int
    known_tokens: int
    known_types: int
    related_types: int
    missing: dict[str, int]

    @property
    def of_tokens(self) -> float:
        """The share of tokens that the table has; 1 if there are none."""
        return self.known_tokens / self.tokens if self.tokens else 1.0

    @property
    def of_types(self) -> float:
        """The share of types that the table has; 1 if there are none."""
        return self.known_types / self.types if self.types else 1.0


@dataclass(frozen=True)
class Accuracy:
    """How often a table is right about the source words of a dictionary.

    Attributes:
        words: Number of source words of the dictionary.
        known: How many of them the table has.
        right_at_1: How many have a translation of the dictionary as their best one; a word that the table lacks is
            wrong.
        right_at_5: How many have one among the five best.
    """

    words: int
    known: int
    right_at_1: int
    right_at_5: int

    @property
    def coverage(self) -> float:
        """The share of the dictionary's source words that the table has."""
        return self.known / self.words

    @property
    def p_at_1(self) -> float:
        """The share that is right at rank 1."""
        return self.right_at_1 / self.words

    @property
    def p_at_5(self) -> float:
        """The share that is right among the first five."""
        return self.right_at_5 / self.words

    @property
    def p_at_1_if_known(self) -> float:
        """The share of those that the table has that is right at rank 1; 0 if it has none."""
        return self.right_at_1 / self.known if self.known else 0.0


@dataclass(frozen=True)
class Quality:
    """What :func:`report` found out about a table.

    Attributes:
        direction: Source and target language, such as ``de-en``.
        entries: Number of entries.
        source_words: Number of source words.
        target_words: Number of target words.
        entropy: Mean entropy in bits of a source word's translations, whose probabilities are made to sum to 1.
        identity: Share of source words whose best translation is the word itself, as with names and numbers.
        coverage: Of the topics' terms; ``None`` without topics.
        accuracy: Against a dictionary; ``None`` without one.
    """

    direction: str
    entries: int
    source_words: int
    target_words: int
    entropy: float
    identity: float
    coverage: Coverage | None = None
    accuracy: Accuracy | None = None

    @property
    def effective_translations(self) -> float:
        """How many equally probable translations have the mean entropy: 2 to its power."""
        return float(2**self.entropy)

    def as_json(self) -> dict[str, Any]:
        """Returns everything as JSON values, the derived shares included."""
        values = {**asdict(self), "effective_translations": self.effective_translations}
        if self.coverage:
            values["coverage"] |= {"of_tokens": self.coverage.of_tokens, "of_types": self.coverage.of_types}
        if self.accuracy:
            shares = ("coverage", "p_at_1", "p_at_5", "p_at_1_if_known")
            values["accuracy"] |= {name: getattr(self.accuracy, name) for name in shares}
        return values

    def to_frame(self, name: str = "value") -> pd.DataFrame:
        """Returns the numbers as a frame with a row for each; join those of several tables with ``axis=1``.

        Args:
            name: The heading of the column, such as the table's name.
        """
        rows: dict[str, float] = {
            "entries": self.entries, "source words": self.source_words, "target words": self.target_words,
            "entropy": self.entropy, "effective translations": self.effective_translations, "identity": self.identity,
        }  # fmt: skip
        if self.coverage:
            rows |= {"coverage of tokens": self.coverage.of_tokens, "coverage of types": self.coverage.of_types}
        if self.accuracy:
            rows |= {
                "dictionary coverage": self.accuracy.coverage, "P@1": self.accuracy.p_at_1,
                "P@5": self.accuracy.p_at_5, "P@1 if known": self.accuracy.p_at_1_if_known,
            }  # fmt: skip
        return pd.DataFrame({name: pd.Series(rows, dtype=object)})


def report(
    table: TranslationTable,
    topics: pd.DataFrame | Iterable[str] | None = None,
    gold: TranslationTable | str | os.PathLike[str] | None = None,
) -> Quality:
    """Measures a table.

    Example::

        >>> report(TranslationTable.load("de-en"), pt.get_dataset("mart:xquad-r/de-en").get_topics()).to_frame()

    Args:
        table: The table.
        topics: Queries in its source language: a frame with a column ``query``, or strings.
        gold: A dictionary in its direction: a MUSE file (``de-en.5000-6500.txt``), or a table.

    Raises:
        OSError: If the dictionary cannot be read.
        ValueError: If it is malformed or in another direction, or the topics have no queries.
    """
    n = max(len(table.source_words), 1)
    rows, probs = table.row_numbers, table.probs.astype(np.float64)
    probs = probs / np.bincount(rows, weights=probs, minlength=1)[rows]
    targets = table.target_words[:]
    best = [targets[column] for column in table.columns[table.rows[:-1]].tolist()]  # the first of each row
    return Quality(
        direction="-".join(table.languages),
        entries=len(table),
        source_words=len(table.source_words),
        target_words=len(targets),
        entropy=float(-(probs * np.log2(probs)).sum() / n),
        identity=sum(word == other for word, other in zip(table.source_words[:], best, strict=True)) / n,
        coverage=None if topics is None else coverage(table, topics),
        accuracy=None if gold is None else accuracy(table, gold),
    )


def coverage(table: TranslationTable, topics: pd.DataFrame | Iterable[str]) -> Coverage:
    """Measures what a table knows of the terms of queries, stop words included.

    Args:
        table: The table.
        topics: As for :func:`report`.

    Raises:
        ValueError: If a frame has no column ``query``.
    """
    terms = count_terms(table, topics)
    missing = {term: n for term, n in terms.items() if table.source_words.find(term) < 0}
    ordered = dict(sorted(missing.items(), key=lambda item: (-item[1], item[0])))
    tokens = sum(terms.values())
    related = sum(bool(other_forms(term, table.source_words, table.source.lang)) for term in missing)
    return Coverage(tokens, len(terms), tokens - sum(missing.values()), len(terms) - len(missing), related, ordered)


def count_terms(table: TranslationTable, topics: pd.DataFrame | Iterable[str]) -> Counter[str]:
    """Counts the terms of queries, in the normal form of a table's source language.

    Raises:
        ValueError: If a frame has no column ``query``, or the topics are one string.
    """
    if isinstance(topics, str):
        raise ValueError(f"topics must be a frame or several strings, not the string {topics[:40]!r}")
    if isinstance(topics, pd.DataFrame):
        if "query" not in topics:
            raise ValueError(f"topics must have a column 'query', not only {', '.join(map(str, topics.columns))}")
        topics = topics["query"].tolist()
    texts = [query for query in topics if isinstance(query, str)]  # a missing query has no terms
    return Counter(term for text in texts for term in table.source.tokens(text))


def accuracy(table: TranslationTable, gold: TranslationTable | str | os.PathLike[str]) -> Accuracy:
    """Measures how often a table is right about the source words of a dictionary.

    A translation of several words in the dictionary is right if one of its words is found.

    Args:
        table: The table.
        gold: As for :func:`report`.

    Raises:
        OSError: If the dictionary cannot be read.
        ValueError: If it is malformed or in another direction.
    """
    if not isinstance(gold, TranslationTable):
        gold = TranslationTable.read(gold, table.source, table.target, format="muse", phrases="split")
    if gold.languages != table.languages:
        raise ValueError(f"the dictionary translates {'-'.join(gold.languages)}, the table {'-'.join(table.languages)}")
    known = right_at_1 = right_at_5 = 0
    for word in gold.source_words:
        found = list(table.translations(word, _RANKS))
        right = gold.translations(word)
        known += bool(found)
        right_at_1 += found[:1] != [] and found[0] in right
        right_at_5 += any(translation in right for translation in found)
    return Accuracy(len(gold.source_words), known, right_at_1, right_at_5)
