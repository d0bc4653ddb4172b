"""What is different between two tables, against plain computation."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_mart import Analyzer, TranslationTable
from pyterrier_mart.translation.comparison import Change, compare

A = TranslationTable.from_dict(
    {"haus": {"house": 0.75, "home": 0.25}, "katze": {"cat": 1.0}, "maus": {"mouse": 0.5}, "alt": {"old": 0.9}},
    "de", "en",
)  # fmt: skip
B = TranslationTable.from_dict(
    {"haus": {"house": 0.25, "building": 0.75}, "katze": {"tom": 1.0}, "maus": {"mouse": 1.0}, "neu": {"new": 1.0}},
    "de", "en",
)  # fmt: skip


def test_words_and_distances():
    found = compare(A, B)
    assert (found.only_a, found.only_b, found.shared) == (["alt"], ["neu"], ["haus", "katze", "maus"])
    # haus: (|0.75 - 0.25| + 0.25 + 0.75) / 2; maus: both rows are made to sum to 1
    assert found.distances == pytest.approx([0.75, 1.0, 0.0]) and found.mean_distance == pytest.approx(1.75 / 3)
    assert found.new_best.tolist() == [True, True, False] and found.changed == 2
    assert found.largest_changes() == found.new_best_words() == [
        Change("katze", "cat", 1.0, "tom", 1.0, 1.0), Change("haus", "house", 0.75, "building", 0.75, 0.75),
    ]  # fmt: skip
    assert [change.word for change in found.largest_changes(top=1)] == ["katze"]
    assert found.to_frame()["best_b"].tolist() == ["tom", "building"]
    assert repr(found) == "Comparison(1 source words only in A, 1 only in B, 3 in both, 2 of them changed)"
    values = json.loads(json.dumps(found.as_json()))
    assert values["new_best"] == values["changed"] == 2 and values["words_only_in_a"] == ["alt"]
    assert [change["word"] for change in values["largest_changes"]] == ["katze", "haus"]


def test_only_some_words():
    found = compare(A, B, ["neu", "katze", "unbekannt", "haus", "alt", "haus"])
    assert (found.only_a, found.only_b, found.shared) == (["alt"], ["neu"], ["katze", "haus"])
    assert found.distances == pytest.approx([1.0, 0.75])
    nothing = compare(A, B, [])
    assert nothing.shared == [] and nothing.mean_distance == 0.0 and nothing.as_json()["changed"] == 0


def test_ties_are_no_change():
    entries = {"haus": {"home": 0.5, "house": 0.5}, "x": {"a": 0.5, "b": 0.5}}
    a = TranslationTable.from_dict(entries, "de", "en")
    b = TranslationTable.from_dict({"haus": {"house": 1.0}, "x": {"c": 1.0}}, "de", "en")
    for found in (compare(a, b), compare(b, a)):
        assert found.new_best.tolist() == [False, True] and found.distances == pytest.approx([0.5, 1.0])


def test_empty_and_different_tables():
    empty = TranslationTable.from_dict({}, "de", "en")
    assert compare(A, empty).only_a == A.source_words[:] and compare(empty, empty).shared == []
    with pytest.raises(ValueError, match="the analyzers differ"):
        compare(A, A.invert())
    unfolded = TranslationTable.from_dict({"haus": {"house": 1.0}}, Analyzer("de", fold=False), "en")
    with pytest.raises(ValueError, match="the analyzers differ"):
        compare(A, unfolded)


WORDS = st.sampled_from(list("abcdefg"))
TABLES = st.dictionaries(WORDS, st.dictionaries(WORDS, st.integers(1, 9), min_size=1), max_size=6).map(
    lambda entries: TranslationTable.from_dict(entries, "de", "en", weights="count")
)


@settings(max_examples=50, deadline=None)
@given(a=TABLES, b=TABLES)
def test_against_plain_computation(a, b):
    found = compare(a, b)
    assert found.shared == sorted(set(a.source_words) & set(b.source_words))
    assert found.only_a == sorted(set(a.source_words) - set(b.source_words))
    for word, distance, new in zip(found.shared, found.distances, found.new_best, strict=True):
        p, q = a.translations(word), b.translations(word)
        plain = sum(abs(p.get(t, 0) / sum(p.values()) - q.get(t, 0) / sum(q.values())) for t in {*p, *q}) / 2
        assert distance == pytest.approx(plain, abs=1e-6)
        best_p, best_q = next(iter(p)), next(iter(q))
        assert new == (q.get(best_p, 0) < q[best_q] and p.get(best_q, 0) < p[best_p])


def test_large_tables_take_seconds():
    rng = np.random.default_rng(1)
    n = 60_000
    frame = TranslationTable.load("de-en").to_frame().sample(n, replace=True, random_state=1)
    frame["source"] = [f"w{i}" for i in rng.integers(0, 20_000, n)]
    frame = frame.drop_duplicates(["source", "target"])
    a = TranslationTable.from_frame(frame, "de", "en", weights="count")
    b = a.prune(top_k=2)
    start = time.process_time()
    found = compare(a, b)
    assert time.process_time() - start < 2
    assert not found.only_a and found.changed > 1000
