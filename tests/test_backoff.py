"""Other forms of unknown words in small vocabularies."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_mart.translation.backoff import other_forms
from pyterrier_mart.translation.vocabulary import Vocabulary


def found(word, *known, lang="de"):
    words = Vocabulary.from_words(sorted(known))
    return [(words[i], weight) for i, weight in other_forms(word, words, lang)]


MANY = [f"stamm{letter}" for letter in "abcdefgh"]
SPLITS = ["staat", "sangehorigkeit", "angehorigkeit", "staatsange", "horigkeit"]


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("hauser", ["haus", "maus"], {"haus": 1.0}),
        ("haus", ["hauser", "maus"], {"hauser": 1.0}),
        ("hausern", ["hauser", "haus"], {"hauser": 1.0}),  # the longest stem wins
        ("kauften", ["kaufte", "kauf"], {"kaufte": 1.0}),
        # forms of the same stem share the weight
        ("kinderns", ["kindern", "kindernd"], {"kindern": 0.5, "kindernd": 0.5}),
        ("stamm", MANY, dict.fromkeys(MANY[:5], 0.2)),
        # at most three letters are cut off or put on
        ("abcdefghijklm", ["abcdefghij"], {"abcdefghij": 1.0}),
        ("abcdefghijklm", ["abcdefghi"], {}),
        ("abcdefghij", ["abcdefghijklm"], {"abcdefghijklm": 1.0}),
        ("abcdefghij", ["abcdefghijklmn"], {}),
        # stems are not too short: four letters, and 0.6 of the word
        ("rot", ["rote"], {}),
        ("rote", ["roten"], {"roten": 1.0}),
        ("hause", ["hau"], {}),
        ("abcdefg", ["abcd"], {}),
        ("abcdef", ["abcd"], {"abcd": 1.0}),
        # compounds, where there are no forms
        ("hausdach", ["haus", "dach"], {"haus": 1.0, "dach": 1.0}),
        ("hausdach", ["haus"], {}),
        ("hausdach", ["dach"], {}),
        ("hausdachs", ["hausdach", "haus", "dachs"], {"hausdach": 1.0}),
        # the split with the longest shorter part; a last part known as it stands counts two letters more
        ("staatsangehorigkeit", SPLITS, {"staatsange": 1.0, "horigkeit": 1.0}),
        ("abcdefghijkl", ["abcde", "fghijkl", "abcdef", "ghijklm"], {"abcde": 1.0, "fghijkl": 1.0}),
    ],
)
def test_forms_and_parts(word, known, expected):
    assert dict(found(word, *known)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("word", "first", "last", "lang"),
    [
        ("arbeitsvertrags", "arbeit", "vertrag", "de"),  # the last part may have other endings
        ("arbeitsvertrag", "arbeit", "vertrag", "de"),
        ("bundesland", "bund", "land", "de"),
        ("sonnenschein", "sonne", "schein", "de"),
        ("frauenrecht", "frau", "recht", "de"),
        ("hundehutte", "hund", "hutte", "de"),
        ("kinderbuch", "kind", "buch", "de"),
        ("stadsbestuur", "stad", "bestuur", "nl"),
        ("arbetsmarknad", "arbet", "marknad", "sv"),
        ("kirjakauppa", "kirja", "kauppa", "fi"),
    ],
)
def test_letters_may_link_the_parts(word, first, last, lang):
    assert found(word, first, last, lang=lang) == [(first, 1.0), (last, 1.0)]


def test_only_some_languages_form_compounds():
    assert found("hausdach", "haus", "dach", lang="en") == []
    assert found("hausdach", "haus", "dach", lang="tr") == []
    assert found("arbeitsvertrag", "arbeit", "vertrag", lang="fi") == []  # which links without letters


@pytest.mark.parametrize("word", ["1517", "b2b4", "a1234", "covid19", "", "x", "u.s.a", "3-4"])
def test_numbers_and_codes_have_none(word):
    assert found(word, "1518", "15170", "b2b", "b2b4x", "a12345", "covid", "covid18") == []


@given(st.text("abn", min_size=1, max_size=24), st.sets(st.text("abn", min_size=1, max_size=8), max_size=30))
@settings(max_examples=200, deadline=None)
def test_weights_and_words(word, known):
    pairs = found(word, *(known - {word}))
    assert all(other in known and 0 < weight <= 1 for other, weight in pairs)
    assert sum(weight for _, weight in pairs) == pytest.approx(1 if pairs and pairs[0][1] < 1 else len(pairs))
    assert len(pairs) <= 5
