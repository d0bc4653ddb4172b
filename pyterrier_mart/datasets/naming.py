"""Which language a file of texts is in: what its name tells, and whether the texts agree."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache

from pyterrier_mart.text import LANGUAGES, Analyzer, language_of

__all__ = ["contradiction", "named_languages"]

_ENDINGS = re.compile(r"(?:\.(?:txt|tsv|csv|xml|sgml?|jsonl?|dat|gz|bz2|xz|zip|tgz|tar))+$")
#: What names begin and end with around the language.
_SILENT = re.compile(
    r"(?:v|part|top|topic|query|queries|passage|corpus|doc|document|clef|ciral|title|desc|description|narr|narrative"
    r"|test|dev|train)?s?\d*"
)
_PART = re.compile(r"([a-z]+)(?:\d{2}|\d{4})?")  # of German topics of 2003, say: de03
_NAMES = {name.lower(): code for code, name in LANGUAGES.items()}
#: ISO 639-1, for a code of a language that is none of this package's says that a file is in no other language.
_CODES = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu".split()
)

_SCRIPTS = {
    "bg": "Cyrillic", "ru": "Cyrillic", "uk": "Cyrillic", "ar": "Arabic", "fa": "Arabic", "el": "Greek",
    "hi": "Devanagari", "th": "Thai", "zh": "Cjk",
}  # fmt: skip
_UNSEPARATED = ("th", "zh")  # a text has no words to be counted without a segmenter
_SAMPLE = 1 << 16  # characters that are looked at
_FEWEST_LETTERS, _FEWEST_WORDS = 20, 30  # of fewer nothing can be said
# On the titles and topics of CLEF and CIRAL, in 16 languages, their own stop words are always the most frequent ones.
_LIKELY, _TIMES = 0.08, 1.5


def named_languages(name: str) -> set[str]:
    """Returns the languages that the name of a file or folder tells, as ISO 639-1 codes, known to this package or not.

    A language is a whole part of a name: a code where languages stand (``topics.so.tsv``, ``Top-de03.txt``,
    ``sw_queries.tsv``), or the English name anywhere. ``clef06fr`` and the first word of ``no_narr`` are none.
    """
    found = set()
    parts = _ENDINGS.sub("", name.lower()).split(".")
    for i, part in enumerate(parts):
        words = [word for word in re.split(r"[\W_]+", part) if word]
        found |= {_NAMES[match[1]] for word in words if (match := _PART.fullmatch(word)) and match[1] in _NAMES}
        if i and len(words) == 1 and re.fullmatch("[a-z]{3}", part) and not _SILENT.fullmatch(part):
            found.add(language_of(part) or "")
            continue
        # "no" is Norwegian, but not before a word.
        places = [word for i, word in enumerate(words) if word != "no" or i == len(words) - 1]
        while places and _SILENT.fullmatch(places[0]):
            places.pop(0)
        while places and _SILENT.fullmatch(places[-1]):
            places.pop()
        for word in (*places[:1], *places[-1:]):
            code = language_of(match[1]) if (match := _PART.fullmatch(word)) else None
            if code in LANGUAGES or code in _CODES:
                found.add(str(code))
    return found


def contradiction(text: str, language: str) -> str:
    """Returns what a text is in, if that is not a language: "Greek letters", "Dutch"; otherwise "".

    Its script is compared, and if there are enough words, the share of them that are stop words.

    Args:
        text: The text.
        language: ISO 639-1 code of one of the supported languages.
    """
    sample = text[:_SAMPLE]
    letters: Counter[str] = Counter()
    for char, count in Counter(sample).items():
        if char.isalpha():
            letters[unicodedata.name(char, "").partition(" ")[0].capitalize()] += count
    expected = _SCRIPTS.get(language, "Latin")
    if letters.total() < _FEWEST_LETTERS:
        return ""
    if letters[expected] * 2 < letters.total():
        return f"{letters.most_common(1)[0][0]} letters"
    if language in _UNSEPARATED or len(sample.split()) < _FEWEST_WORDS:
        return ""
    alike = [code for code in LANGUAGES if _SCRIPTS.get(code, "Latin") == expected and analyzer(code).stop_words]
    shares = {code: stop_share(sample, code) for code in alike}
    best = max(alike, key=lambda code: shares[code])
    if language in shares and shares[best] >= max(_LIKELY, _TIMES * shares[language]):
        return LANGUAGES[best] if best != language else ""
    return ""


def stop_share(text: str, language: str) -> float:
    """Returns the share of a text's words that are stop words of a language."""
    words = analyzer(language).tokens(text)
    return sum(word in analyzer(language).stop_words for word in words) / max(1, len(words))


@cache
def analyzer(language: str) -> Analyzer:
    """Returns the analyzer of a language, which knows its stop words."""
    return Analyzer(language)
