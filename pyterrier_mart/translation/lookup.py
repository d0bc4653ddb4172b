"""What a table says of a query term, and failing that, what it says of the term's relatives."""

from __future__ import annotations

from pyterrier_mart.translation.backoff import relatives
from pyterrier_mart.translation.table import TranslationTable

__all__ = ["heaviest_first", "look_up"]


def look_up(
    table: TranslationTable, word: str, top_k: int | None = None, threshold: float = 0.0, *, relate: bool = True
) -> dict[str, float]:
    """Returns the translations of a word in normal form and their weights, the heaviest first; none if there are none.

    Args:
        table: The table.
        word: A word of its source language.
        top_k: At most so many; ``None`` for all.
        threshold: Only those of at least this probability.
        relate: Whether a word that the table lacks gets the translations of its relatives. Their weights may add up
            to more than 1, since each part of a compound contributes a meaning.
    """
    weights = table.translations(word, top_k, threshold)
    if weights or not relate or word in table:
        return weights
    for i, share in relatives(word, table.source_words, table.source.lang):
        for target, prob in table.translations(table.source_words[i], top_k, threshold).items():
            weights[target] = weights.get(target, 0.0) + share * prob
    return dict(sorted(weights.items(), key=heaviest_first)[:top_k])


def heaviest_first(item: tuple[str, float]) -> tuple[float, str]:
    """Orders (word, weight) items by falling weight, then by word."""
    return -item[1], item[0]
