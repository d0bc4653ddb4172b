"""What a table says of a query term; the only place that knows what becomes of a term that the table lacks."""

from __future__ import annotations

from pyterrier_mart.translation.backoff import other_forms
from pyterrier_mart.translation.table import TranslationTable

__all__ = ["IDENTITIES", "heaviest_first", "look_up"]

#: Which words are their own translations.
IDENTITIES = ("unknown", "always", "never")


def look_up(
    table: TranslationTable,
    word: str,
    top_k: int | None = None,
    threshold: float = 0.0,
    *,
    relate: bool = True,
    identity: str = "unknown",
) -> dict[str, float]:
    """Returns the translations of a word in normal form and their weights, the heaviest first.

    A word that the table knows has the table's translations, even if the threshold leaves none, and nothing else
    unless ``identity`` is ``"always"``. A word that it lacks is its own translation with weight 1, in the normal form
    of the target language: names, numbers and loan words are often the same there. The translations of its known
    other forms are added to it. Their weights may add up to more than 1, since each part of a compound contributes a
    meaning.

    Args:
        table: The table.
        word: A word of its source language.
        top_k: Maximum number of translations that the table gives; ``None`` for all.
        threshold: Least probability of a translation.
        relate: Whether an unknown word gets the translations of its other forms and of its parts.
        identity: Which words are their own translations: those that are ``"unknown"``, ``"always"``, or ``"never"``.
    """
    weights = table.translations(word, top_k, threshold)
    known = bool(weights) or word in table
    if known and identity != "always":
        return weights
    if relate and not known:
        for i, share in other_forms(word, table.source_words, table.source.lang):
            for target, prob in table.translations(table.source_words[i], top_k, threshold).items():
                weights[target] = weights.get(target, 0.0) + share * prob
        weights = dict(sorted(weights.items(), key=heaviest_first)[:top_k])
    if identity != "never":
        for target in table.target.tokens(word) or [word]:
            weights[target] = weights.get(target, 0.0) + 1.0
    return dict(sorted(weights.items(), key=heaviest_first))


def heaviest_first(item: tuple[str, float]) -> tuple[float, str]:
    """Orders (word, weight) items by falling weight, then by word."""
    return -item[1], item[0]
