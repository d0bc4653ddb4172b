"""From the characters of a text to those of words in normal form.

The heart is one translation map from character to replacement, applied in C by :meth:`str.translate` to text that was
NFKC-normalised and case-folded: letters become their folded form, marks that are diacritics vanish, everything that
is not part of a word becomes a space.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

__all__ = ["clusters", "normalized", "without_surrogates"]

# How an apostrophe inside a word is read. Romance elision (l'eau, dell'arte) and Turkish case endings on names
# (Ankara'da) separate words; in Somali (go'aan), Swahili (ng'ombe) and Hausa ('ya) it is a letter that writers also
# leave out, so it is dropped without a break; in English it closes a possessive or an abbreviated word.
_JOIN, _ENGLISH, _SPLIT = "join", "english", "split"
_APOSTROPHE_RULES = {"en": _ENGLISH, "so": _JOIN, "sw": _JOIN, "ha": _JOIN, "yo": _JOIN, "uk": _JOIN}
_APOSTROPHES = frozenset("'\u2018\u2019\u201b\u02bb\u02bc\u02b9\u02bd\u02be\u02bf\u2032\u055a\ua78c`\uff07")

# Letters whose mark is drawn into the letter, so that Unicode does not decompose them, and Arabic letters that
# writers use one for another at the same place of a word (alef with or without hamza, final yeh without dots).
_FOLDED_LETTERS = {
    "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ŋ": "ng", "þ": "th",
    "ŧ": "t", "ɓ": "b", "ɗ": "d", "ƙ": "k", "ƴ": "y", "ɛ": "e", "ɔ": "o", "ə": "e", "ƒ": "f", "ĸ": "k",
    "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ی": "ي", "ک": "ك",
}  # fmt: skip

# Letters that writers of a language use one for another, since version 2 of its rules: feminine ta without dots, the
# shapes of he, yeh and kaf (as Lucene's normalisers for Arabic and Persian fold them), and the seat of a hamza, which
# differs by country in Arabic (all become the letter hamza) and falls with the hamza in Persian.
_SHAPES = {"ة": "ه", "ۃ": "ه", "ۀ": "ه", "ہ": "ه", "ۂ": "ه", "ھ": "ه", "ە": "ه", "ے": "ي", "ۓ": "ي", "ڪ": "ك"}
_VARIANTS: dict[str, dict[str, str]] = {
    "ar": {**_SHAPES, "ؤ": "ء", "ئ": "ء"},
    "fa": {**_SHAPES, "ؤ": "و", "ئ": "ي"},
}

_FIRST_HAN = 0x3400
_ZERO_WIDTH_SPACE = 0x200B  # the one invisible character that does separate words
_TATWEEL = 0x0640
_MIDDLE_DOT = 0xB7  # joins in Catalan (col·lecció), separates elsewhere

# Normalising takes time quadratic in the number of marks in succession, and no writing system has many: those after
# the first 64 are dropped. Every eighth character shows whether there may be that many.
_MOST_MARKS = 64
_MARKS_SAMPLED = re.compile(r"[^\w\s\x00-\x7f]{8}")
_MARKS = re.compile(r"[^\w\s\x00-\x7f]{64,}")


def is_latin_greek_cyrillic_mark(code: int) -> bool:
    """Returns whether a character is a diacritic of Latin, Greek or Cyrillic letters."""
    return 0x0300 <= code <= 0x036F or 0x1AB0 <= code <= 0x1AFF or 0x1DC0 <= code <= 0x1DFF or 0xFE20 <= code <= 0xFE2F


def is_arabic_vowel_mark(code: int) -> bool:
    """Returns whether a character is one of the vowel marks that Arabic writers mostly leave out."""
    return 0x064B <= code <= 0x065F or code == 0x0670 or 0x0610 <= code <= 0x061A or 0x06D6 <= code <= 0x06ED


class CharacterMap(dict[int, str]):
    """Maps a character of case-folded NFKC text to what stands for it in words; entries are made when first met."""

    def __init__(self, lang: str, fold: bool, version: int):
        self._letters = _FOLDED_LETTERS | (_VARIANTS.get(lang, {}) if version > 1 else {})
        self._chinese = lang == "zh" and version > 1
        self._turkish = lang == "tr"
        self._fold = fold
        self._joining_dot = lang == "ca"
        self._apostrophe = {_JOIN: "", _SPLIT: " ", _ENGLISH: "'"}[_APOSTROPHE_RULES.get(lang, _SPLIT)]

    def __missing__(self, code: int) -> str:
        self[code] = out = self.replacement(code)
        return out

    def replacement(self, code: int) -> str:
        """Returns what stands for a character."""
        char = chr(code)
        if char in _APOSTROPHES:
            return self._apostrophe
        if code == _ZERO_WIDTH_SPACE:
            return " "
        if code == _MIDDLE_DOT and self._joining_dot:
            return ""
        category = unicodedata.category(char)
        if code == _TATWEEL or category in ("Cf", "Me") or is_variation_selector(code):
            return ""
        if category[0] == "M":
            if is_latin_greek_cyrillic_mark(code):
                return "" if self._fold else char
            return "" if is_arabic_vowel_mark(code) else char
        if category == "Nd":
            return str(unicodedata.decimal(char))
        if category[0] == "L":
            return self.letter(char) if self._fold else char
        return char if category[0] == "N" else " "

    def letter(self, char: str) -> str:
        """Returns a letter without its diacritics, or the one that stands for its variants."""
        if char in self._letters:
            return char if char == "ı" and self._turkish else self._letters[char]
        if self._chinese and ord(char) >= _FIRST_HAN:
            return converter()(char)
        bare = "".join(c for c in unicodedata.normalize("NFD", char) if not is_latin_greek_cyrillic_mark(ord(c)))
        # The base of a decomposed letter may itself have a drawn-in mark (ǿ is ø with an acute accent).
        return unicodedata.normalize("NFC", "".join(self._letters.get(c, c) if c != char else c for c in bare))


@cache
def converter() -> Callable[[str], str]:
    """Returns what turns traditional into simplified characters.

    Raises:
        ImportError: If the package that does is not installed.
    """
    try:
        from opencc import OpenCC
    except ImportError as err:
        raise ImportError(
            f"Chinese text needs a table of character variants: pip install 'pyterrier-mart[zh]' ({err})"
        ) from err
    convert: Callable[[str], str] = OpenCC("t2s").convert
    return convert


def drop_marks(match: re.Match[str]) -> str:
    """Returns a stretch with at most 64 marks in succession."""
    kept, marks = [], 0
    for char in match.group():
        marks = marks + 1 if unicodedata.category(char)[0] == "M" else 0
        if marks <= _MOST_MARKS:
            kept.append(char)
    return "".join(kept)


def is_variation_selector(code: int) -> bool:
    """Returns whether a character only chooses between shapes of the one before."""
    return 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F


@cache
def character_map(lang: str, fold: bool, version: int) -> CharacterMap:
    """Returns the map of a language, which all of its analyzers share."""
    return CharacterMap(lang, fold, version)


def normalized(text: str, lang: str, fold: bool, version: int = 1) -> str:
    """Returns a text with single characters for words' letters and spaces for what separates them.

    Args:
        text: The text.
        lang: ISO 639-1 code of its language.
        fold: Whether diacritics are removed, and variants of letters fall together.
        version: Of the language's rules.
    """
    if not text.isascii():
        if _MARKS_SAMPLED.search(text[::8]):
            text = _MARKS.sub(drop_marks, text)
        # The acute accent's two forms before NFKC, which would make a space and a combining mark of them.
        text = unicodedata.normalize("NFKC", text.replace("\u00b4", "'").replace("\u1ffd", "'"))
    if lang == "tr":
        text = text.replace("İ", "i").replace("I", "ı")
    text = (text.lower() if text.isascii() else text.casefold()).translate(character_map(lang, fold, version))
    if text.isascii():
        return text
    # Characters that came together because something between them went may form one letter.
    text = unicodedata.normalize("NFC", text)
    return text.replace("\u0e4d\u0e32", "\u0e33") if lang == "th" else text  # NFKC splits SARA AM


def clusters(text: str) -> Iterator[tuple[int, int]]:
    """Yields the offsets of stretches that normalise independently of their neighbours.

    A letter and the marks, invisible characters and Hangul vowels or finals after it can interact; letters cannot.
    The zero-width space is invisible, but separates.
    """
    start = 0
    for i in range(1, len(text)):
        char = text[i]
        if char.isascii() or not continues(char):
            yield start, i
            start = i
    if text:
        yield start, len(text)


@lru_cache(maxsize=4096)
def continues(char: str) -> bool:
    """Returns whether a character interacts with the letter before it."""
    code = ord(char)
    # U+0E33 and U+0EB3 decompose into a mark and a letter; half-width kana marks and Hangul jamo compose.
    return (
        (unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf") and code != _ZERO_WIDTH_SPACE)
        or 0x1160 <= code <= 0x11FF
        or code in (0x0E32, 0x0E33, 0xFF9E, 0xFF9F)
    )


_SURROGATES = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which no tokenizer takes, one for one."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)
