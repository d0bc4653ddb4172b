"""Text becomes words here, and nowhere else.

Tables, indexes, queries and the attention matrices of the re-ranker all ask an :class:`Analyzer` what a word is, so
that one spelling of a word is one string everywhere. Two analyzers whose :attr:`Analyzer.spec` are equal spell every
word alike.

Characters are folded first (:mod:`pyterrier_mart.characters`). What is left to do for each word is rare (English
possessives) or the work of a segmenter (Chinese, Thai).
"""

from __future__ import annotations

import copy
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import pandas as pd
import pyterrier as pt

from pyterrier_mart.characters import clusters, normalized
from pyterrier_mart.checks import check_stop
from pyterrier_mart.frames import Transformer
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.stopwords import function_words, long_list

__all__ = ["LANGUAGES", "Analyzer", "Word", "language_code", "language_of"]

#: Versions of the rules: 1, except where they have changed. The version is part of every analyzer's specification. A
#: table or index that was made under older rules keeps them, and is refused together with one that was made under
#: others, instead of silently failing to match.
RULES_VERSIONS = {"ar": 2, "fa": 2, "zh": 2}

#: The supported languages: ISO 639-1 code and English name.
LANGUAGES: dict[str, str] = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fr": "French",
    "ha": "Hausa", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian",
    "lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "so": "Somali", "sv": "Swedish",
    "sw": "Swahili", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "yo": "Yoruba",
    "zh": "Chinese",
}  # fmt: skip

_ALIASES: dict[str, str] = {
    "ara": "ar", "arb": "ar", "bul": "bg", "cat": "ca", "ces": "cs", "cze": "cs", "dan": "da", "deu": "de",
    "ger": "de", "ell": "el", "gre": "el", "eng": "en", "spa": "es", "est": "et", "ekk": "et", "fas": "fa", "per": "fa",
    "pes": "fa", "fin": "fi", "fra": "fr", "fre": "fr", "hau": "ha", "hin": "hi", "hrv": "hr", "hun": "hu",
    "ind": "id", "ita": "it", "lit": "lt", "lav": "lv", "lvs": "lv", "nld": "nl", "dut": "nl", "nor": "no",
    "nob": "no", "pol": "pl", "por": "pt", "ron": "ro", "rum": "ro", "rus": "ru", "slk": "sk", "slo": "sk",
    "slv": "sl", "som": "so", "swe": "sv", "swa": "sw", "swh": "sw", "tha": "th", "tur": "tr", "ukr": "uk",
    "vie": "vi", "yor": "yo", "zho": "zh", "chi": "zh", "cmn": "zh",
}  # fmt: skip


def language_code(code: str) -> str:
    """Returns the ISO 639-1 code of a supported language.

    Args:
        code: An ISO 639-1 or 639-3 code, in any case (``"de"``, ``"deu"``, ``"DE"``).

    Raises:
        ValueError: If the code is not a string or not one of :data:`LANGUAGES`.
    """
    if isinstance(code, str):
        low = code.strip().lower()
        low = _ALIASES.get(low, low)
        if low in LANGUAGES:
            return low
    raise ValueError(f"unknown language code {code!r}; expected one of {', '.join(LANGUAGES)} (or its ISO 639-3 code)")


def language_of(value: object) -> str | None:
    """Returns the language that a value names: its ISO 639-1 code where there is one.

    Missing values and what is not text name none. Codes that are not known stand for themselves.
    """
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        return language_code(value)
    except ValueError:
        return value.strip()


class Word(NamedTuple):
    """A word of a text: its normal form, and where in the text it stands (half-open offsets in code points)."""

    text: str
    start: int
    end: int


# Marks that carry the word's identity: without them six Vietnamese words fall into one.
_KEEP_DIACRITICS = frozenset({"vi"})


def segmenter(lang: str) -> Callable[[str], list[str]]:
    """Returns what splits a stretch of Chinese or Thai into words.

    Raises:
        ImportError: If the package that does is not installed.
    """
    try:
        if lang == "zh":
            import rjieba

            cut: Callable[[str], list[str]] = rjieba.cut
            return cut
        from pythainlp.tokenize import word_tokenize
    except ImportError as err:
        raise ImportError(
            f"{LANGUAGES[lang]} text needs a word segmenter: pip install 'pyterrier-mart[{lang}]' ({err})"
        ) from err
    # "safe": the plain engine looks ahead without bound in long stretches that can be split in many ways
    return lambda token: word_tokenize(token, engine="newmm-safe", keep_whitespace=False)


#: The scripts in which words are not separated.
_UNSEPARATED = {
    "zh": re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), "th": re.compile("[\u0e00-\u0e7f]"),
}  # fmt: skip

_CHUNK = re.compile(r"\S+")
_LONGEST_CACHED_CHUNK = 64


class Analyzer(Transformer):
    """Normalises a text of one language and splits it into words; as a transformer, adds ``toks`` to documents.

    The rules follow "Text Pre-processing" of the MART paper: compatibility forms and case are folded, diacritics of
    Latin, Greek and Cyrillic letters and the vowel marks and tatweel of Arabic are removed (vowel signs of Devanagari
    or Thai are letters and stay), what is neither letter nor digit separates words, nothing is stemmed. Vietnamese
    keeps its diacritics. Unlike the paper, numbers are kept: they are the same word in every language. Letters that
    writers use one for another have one form: in Arabic and Persian those that Lucene's normalisers fold (such as ta
    marbuta and ha, yeh with and without dots) and the seats of hamza, in Chinese traditional and simplified characters.

    Time is linear in the length of the text.

    .. cite.dblp:: conf/cikm/HuangBSRA21

    Example::

        >>> Analyzer("de").tokens("Die Straße zum Café")
        ['die', 'strasse', 'zum', 'cafe']
        >>> (Analyzer("en") >> index.toks_indexer("toks", scale=1.0)).index(dataset.get_corpus_iter())

    Args:
        lang: Language of the text: ISO 639-1 or 639-3 code, one of :data:`LANGUAGES`. Chinese and Thai need the
            extras ``zh`` and ``th``.
        stop: Whether stop words are left out: ``True`` for the language's function words
            (:mod:`pyterrier_mart.stopwords`; Czech, Lithuanian, Persian, Slovenian and Vietnamese have only the long
            lists of ``stopwordsiso``), or the words to leave out.
        fold: Whether diacritics are removed and variants of letters have one form; ``None`` means yes, except in
            Vietnamese.
        numbers: Whether words without a letter are kept.
        text_field: The column of documents that :meth:`transform` reads.
        verbose: Whether :meth:`transform` shows a progress bar.

    Raises:
        ValueError: If the language is unknown.
    """

    schematic = {"label": "Analyzer", "help_url": HELP_URL}

    def __init__(
        self,
        lang: str,
        *,
        stop: bool | Collection[str] = False,
        fold: bool | None = None,
        numbers: bool = True,
        text_field: str = "text",
        verbose: bool = False,
    ):
        self.lang = language_code(lang)
        check_stop(stop)
        self.stop = stop if isinstance(stop, bool) else frozenset(stop)
        self.fold = self.lang not in _KEEP_DIACRITICS if fold is None else bool(fold)
        self.numbers = bool(numbers)
        self.text_field = text_field
        self.verbose = verbose
        self.version = RULES_VERSIONS.get(self.lang, 1)

    # --- what it is -------------------------------------------------------------------------------------------

    @property
    def spec(self) -> dict[str, Any]:
        """What decides how a word is spelled: language, folding, version of the rules (JSON values).

        Stop words and numbers are not part of it. They decide which words are used, not how they are written, so a
        table serves indexes with and without stop words.
        """
        return {"lang": self.lang, "fold": self.fold, "version": self.version}

    @classmethod
    def from_spec(cls, spec: dict[str, Any], **options: Any) -> Analyzer:
        """Returns the analyzer that a table's or index's metadata describe.

        Args:
            spec: What :attr:`spec` was.
            **options: More arguments of the class.

        Raises:
            ValueError: If this version of the package does not know the rules that the metadata were written under.
        """
        analyzer = cls(spec.get("lang", ""), fold=spec.get("fold"), **options)
        if spec.get("version") in range(1, analyzer.version):
            analyzer.version = spec["version"]
        if analyzer.spec != spec:
            raise ValueError(
                f"made by the analyzer {spec}, but this version of pyterrier_mart offers {analyzer.spec}; rebuild it"
            )
        return analyzer

    def __repr__(self) -> str:
        stop = f", stop={self.stop if isinstance(self.stop, bool) else set(self.stop)}" if self.stop else ""
        fold = f", fold={self.fold}" if self.fold is (self.lang in _KEEP_DIACRITICS) else ""
        return f"Analyzer({self.lang!r}{stop}{fold}{'' if self.numbers else ', numbers=False'})"

    def __getstate__(self) -> dict[str, Any]:
        own = ("lang", "stop", "fold", "numbers", "text_field", "verbose", "version")
        return {name: self.__dict__[name] for name in own}  # not the caches: a segmenter does not pickle

    # --- words ------------------------------------------------------------------------------------------------

    @cached_property
    def stop_words(self) -> frozenset[str]:
        """The stop words in normal form, whether or not this analyzer removes them."""
        words = self.stop
        if isinstance(words, bool):
            words = function_words(self.lang) or long_list(self.lang)
        # Entries that are several words here ("d'un", "thank you") are left out: their parts may be content words.
        analysed = (self.all_words(word) for word in words)
        return frozenset(parts[0] for parts in analysed if len(parts) == 1)

    def without(self, stop: bool | Collection[str]) -> Analyzer:
        """Returns the same analyzer, leaving out other stop words."""
        made = copy.copy(self)
        made.stop = stop if isinstance(stop, bool) else frozenset(stop)
        return made

    def normalize(self, text: str) -> str:
        """Returns the text folded, with single characters for words' letters and spaces for what separates them."""
        return normalized(text, self.lang, self.fold, self.version)

    def tokens(self, text: str) -> list[str]:
        """Returns the words of a text in order, without stop words if this analyzer leaves them out."""
        words = self.all_words(text)
        if not self.numbers:
            words = [word for word in words if any(map(str.isalpha, word))]
        if self.stop:
            stop = self.stop_words
            words = [word for word in words if word not in stop]
        return words

    def counts(self, text: str) -> dict[str, int]:
        """Returns the words of a text and how often each occurs, in order of first occurrence."""
        return dict(Counter(self.tokens(text)))

    def spans(self, text: str) -> list[Word]:
        """Returns the same words as :meth:`tokens` with their places in the text as given.

        This is what links words to a model's wordpieces. Each stretch between white space is analysed once and
        remembered, so that running text costs little more than :meth:`tokens`.
        """
        out: list[Word] = []
        stop = self.stop_words if self.stop else frozenset()
        for match in _CHUNK.finditer(text):
            base, chunk = match.start(), match.group()
            words = self._cached_chunk(chunk) if len(chunk) <= _LONGEST_CACHED_CHUNK else self._align(chunk)
            for word, start, end in words:
                if word not in stop and (self.numbers or any(map(str.isalpha, word))):
                    out.append(Word(word, base + start, base + end))
        return out

    def all_words(self, text: str) -> list[str]:
        """Returns the words of a text, stop words and numbers included."""
        text = self.normalize(text)
        words = text.split()
        if self.lang in _UNSEPARATED:
            words = [word for token in words for word, _, _ in self._parts(token)]
        elif "'" in text:  # few tokens have one
            words = [
                word
                for token in words
                for word in ([part.text for part in self._parts(token)] if "'" in token else [token])
            ]
        return words if text.isascii() else [word for word in words if is_word(word)]

    def _parts(self, token: str) -> Iterator[Word]:
        """Yields the words of a normalised stretch without white space, with their offsets in it."""
        if "'" in token:  # English only: possessives end, other apostrophes join (don't, o'clock)
            start, end = len(token) - len(token.lstrip("'")), len(token)
            while token.endswith(("'", "'s"), 0, end):  # several in a row: 'John's'
                end -= 1 if token[end - 1] == "'" else 2
            if word := token[start:end].replace("'", ""):
                yield Word(unicodedata.normalize("NFC", word), start, end)
            return
        if self.lang in _UNSEPARATED and _UNSEPARATED[self.lang].search(token):
            at = 0
            for word in self._segment(token):
                at = token.index(word, at)
                yield Word(word, at, at + len(word))
                at += len(word)
            return
        yield Word(token, 0, len(token))

    @cached_property
    def _segment(self) -> Callable[[str], list[str]]:
        return segmenter(self.lang)

    @cached_property
    def _cached_chunk(self) -> Callable[[str], list[Word]]:
        return lru_cache(maxsize=1 << 16)(self._align)

    def _align(self, chunk: str) -> list[Word]:
        """Finds the words of a stretch without white space and the characters that each came from."""
        normal: list[str] = []
        origins: list[tuple[int, int]] = []  # for each character of the normal form, the offsets it came from
        for start, end in clusters(chunk):
            piece = self.normalize(chunk[start:end])
            normal.append(piece)
            origins.extend([(start, end)] * len(piece))
        words = []
        for match in _CHUNK.finditer("".join(normal)):
            for word, start, end in self._parts(match.group()):
                if is_word(word):
                    first, last = match.start() + start, match.start() + end - 1
                    # Marks on both sides of what vanished came together only now.
                    words.append(Word(unicodedata.normalize("NFC", word), origins[first][0], origins[last][1]))
        return words

    # --- PyTerrier --------------------------------------------------------------------------------------------

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds ``toks``, a dict from word to count, made from the column ``text_field``.

        A missing text (None, NaN, not a string) has no words.
        """
        pt.validate.columns(inp, includes=[self.text_field], context=self)
        texts = inp[self.text_field].tolist()
        if self.verbose and texts:
            texts = pt.tqdm(texts, desc=f"analyse {self.lang}", unit="doc")
        toks = [self.counts(text) if isinstance(text, str) else {} for text in texts]
        return inp.assign(toks=pd.Series(toks, index=inp.index, dtype=object))


def is_word(word: str) -> bool:
    """Returns whether there is a letter or digit: a mark that lost its letter is no word."""
    return word[0].isalnum() or any(map(str.isalnum, word))
