"""What a word that a table lacks is backed off to: its other inflected forms, and the parts of a compound."""

from __future__ import annotations

from pyterrier_mart.translation.vocabulary import Vocabulary

__all__ = ["other_forms"]

# Short enough to find inflected forms, long enough to keep strangers out: first choices, not tuned; experiments/results
# has what they are worth.
_SHORTEST_STEM = 4
_SMALLEST_SHARE = 0.6  # of the word that its stem must be
_LONGEST_ENDING = 3  # letters that may be cut off or put on
_MOST_FORMS = 5

# Languages that write compounds as one word, with what may stand between the parts.
_LINKING_LETTERS = {
    "de": ("", "s", "es", "n", "en", "e", "er"),
    "nl": ("", "s", "en", "e"),
    "sv": ("", "s"),
    "da": ("", "s", "e"),
    "no": ("", "s", "e"),
    "fi": ("",),
    "hu": ("",),
    "et": ("",),
}

# Arabic writes the article, prepositions and "and" as one word with the noun; longest first.
_PROCLITICS = {"ar": ("وال", "بال", "كال", "فال", "لل", "ال", "و", "ب", "ل", "ف", "ك")}
_ARTICLES = {"ar": "ال"}
_SHORTEST_NOUN = 3


def other_forms(word: str, words: Vocabulary, lang: str) -> list[tuple[int, float]]:
    """Finds words of a vocabulary that an unknown word is probably a form or a compound of.

    First, in Arabic, the word without what is written together with it, or with the article. Then other forms of the
    word: those that begin with the longest stem of it that any begins with, at most three letters of either being cut
    off. They share a weight of 1. If there are none and the language forms compounds, the best split of the word into
    two known parts; each part weighs 1, since each contributes a meaning.

    Args:
        word: A word in normal form that is not in the vocabulary.
        words: The known words.
        lang: ISO 639-1 code of the word's language.

    Returns:
        Numbers of words in the vocabulary, and weights.
    """
    if any(map(str.isdigit, word)):
        return []  # numbers and codes: another one that looks alike means something else
    forms = without_clitics(word, words, lang) or inflected(word, words)
    if forms:
        return [(i, 1 / len(forms)) for i in forms]
    return [(i, 1.0) for i in compound_parts(word, words, lang)]


def without_clitics(word: str, words: Vocabulary, lang: str) -> list[int]:
    """Finds an Arabic word without what is written together with it, or with the article."""
    article = _ARTICLES.get(lang, "")
    for clitic in (*_PROCLITICS.get(lang, ()), ""):
        noun = word[len(clitic) :]
        if word.startswith(clitic) and len(noun) >= _SHORTEST_NOUN:
            # The word as it stands is unknown, so that without a clitic only the article is left to try.
            if found := {words.find(noun), words.find(article + noun)} - {-1}:
                return sorted(found)
    return []


def inflected(word: str, words: Vocabulary) -> list[int]:
    """Finds the words that share the longest stem with a word, a few letters apart."""
    for cut in range(_LONGEST_ENDING + 1):
        stem = word[: len(word) - cut]
        if len(stem) < max(_SHORTEST_STEM, _SMALLEST_SHARE * len(word)):
            break
        if found := [i for i in words.with_prefix(stem) if len(words[i]) <= len(stem) + _LONGEST_ENDING]:
            return found[:_MOST_FORMS]
    return []


def compound_parts(word: str, words: Vocabulary, lang: str) -> list[int]:
    """Finds the split whose shorter part is longest; a last part known as it stands is worth two letters more."""
    linking = _LINKING_LETTERS.get(lang, ())
    best: tuple[int, list[int]] = (0, [])
    for cut in range(_SHORTEST_STEM, len(word) - _SHORTEST_STEM + 1):
        last = words.find(word[cut:])
        ends = [last] if last >= 0 else inflected(word[cut:], words)[:1]
        for link in linking if ends else ():
            first = word[: cut - len(link)]
            value = min(len(first), len(word) - cut) + (2 if last >= 0 else 0)
            if len(first) < _SHORTEST_STEM or not word[:cut].endswith(link) or value <= best[0]:
                continue
            if (i := words.find(first)) >= 0:
                best = (value, [i, *ends])
    return best[1]
