"""Translation tables: how entries become one, what it answers, what is made of it, and its files."""

import json
import os
import pickle
import re
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lz4.frame import LZ4FrameFile

from pyterrier_mart import Analyzer
from pyterrier_mart.translation import storage
from pyterrier_mart.translation.builder import TableFormatError
from pyterrier_mart.translation.table import TranslationTable
from pyterrier_mart.translation.vocabulary import Vocabulary

ENTRIES = {
    "haus": {"house": 0.6, "home": 0.3, "building": 0.05},
    "katze": {"cat": 0.9, "kitten": 0.1},
    "straße": {"street": 0.5, "road": 0.5},
}
FILES = ["pt_meta.json", *(f"{name}.npy" for name in storage.ARRAYS)]


def build(entries, **options):
    return TranslationTable.from_dict(entries, "de", "en", **options)


@pytest.fixture
def table():
    return build(ENTRIES, meta={"source": "test", "licence": "CC0"})


@pytest.fixture
def saved(table, tmp_path):
    return table.save(tmp_path / "table")


def rows(table):
    """The table as {source: {target: probability}} with rounded probabilities."""
    out = {}
    for source, target, prob in table.entries():
        out.setdefault(source, {})[target] = round(prob, 6)
    return out


def content(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# --------------------------------------------------------------------------------------------------------- building


@pytest.mark.parametrize(
    ("entries", "options", "expected", "dropped"),
    [
        # words are put into normal form
        ({"Straße": {"Street": 0.5, "ROAD": 0.5}}, {}, {"strasse": {"road": 0.5, "street": 0.5}}, 0),
        # source spellings are averaged, target spellings summed
        (
            {"Haus": {"house": 0.6, "House": 0.2}, "haus": {"house": 0.4, "home": 0.6}}, {},
            {"haus": {"house": 0.6, "home": 0.3}}, 0,
        ),
        (
            {"Haus": {"house": 6, "House": 2}, "haus": {"house": 4, "home": 4}}, {"weights": "count"},
            {"haus": {"house": 0.75, "home": 0.25}}, 0,
        ),
        # what is not one word is dropped and counted, or split if it is a target
        ({"das Haus": {"house": 1.0}, "!": {"x": 1.0}, "": {"y": 1.0}, "haus": {"the house": 0.5, "?": 0}}, {}, {}, 5),
        ({"das haus": {"a b": 1.0}}, {"phrases": "split"}, {}, 1),
        (
            {"haus": {"big house": 0.5, "house": 0.25, "very big house": 0.25}}, {"phrases": "split"},
            {"haus": {"house": 0.583333, "big": 0.333333, "very": 0.083333}}, 0,
        ),
        # weights are probabilities, counts or nothing; an entry of weight 0 is none
        ({"haus": {"house": 0.5, "home": 0.0}}, {}, {"haus": {"house": 0.5}}, 0),
        ({"haus": {"house": 3, "home": 1, "hut": 0}}, {"weights": "count"}, {"haus": {"house": 0.75, "home": 0.25}}, 0),
        ({"haus": {"house": 3, "home": 1, "hut": 0}}, {"weights": "uniform"}, {"haus": {"home": 0.5, "house": 0.5}}, 0),
    ],
)  # fmt: skip
def test_entries_become_rows(entries, options, expected, dropped):
    table = build(entries, **options)
    assert rows(table) == expected and table.meta.get("entries_not_of_single_words", 0) == dropped


def test_unknown_weights():
    with pytest.raises(ValueError, match="weights must be one of probability, count, uniform, not 'prob'"):
        build(ENTRIES, weights="prob")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        *(({"prob": weight}, "") for weight in (float("nan"), float("inf"), -0.1, 1.5, "0.5", None, True, [1])),
        *(
            ({column: word}, "expected two words")
            for column in ("source", "target")
            for word in (None, float("nan"), 5, b"haus")
        ),
    ],
)
def test_cells_that_are_no_words_and_probabilities(cells, reason):
    source, target, weight = ({"source": "haus", "target": "house", "prob": 0.5} | cells).values()
    with pytest.raises(TableFormatError, match=f"dict: {reason}"):
        build({source: {target: weight}})
    frame = pd.DataFrame({"source": ["a", source], "target": ["b", target], "prob": [0.5, weight]}, dtype=object)
    with pytest.raises(TableFormatError, match=f"frame, line 2: {reason}"):
        TranslationTable.from_frame(frame, "de", "en")


def test_probabilities_that_sum_to_more_than_one():
    assert len(build({"haus": {"house": 0.503, "home": 0.504}})) == 2  # printed with a few decimals
    with pytest.raises(TableFormatError, match="'haus' sum to 1.2, expected at most 1; are the source and target"):
        build({"katze": {"cat": 1.0}, "haus": {"house": 0.6, "home": 0.6}})
    assert len(build({"haus": {"house": 0.6, "home": 0.6}}, weights="count")) == 2


def test_pairs_listed_twice_are_named_with_their_line():
    frame = pd.DataFrame({"source": ["a", "b", "a"], "target": ["x", "x", "x"], "prob": [0.25, 0.5, 0.25]})
    with pytest.raises(TableFormatError, match="file.tsv, line 3: the pair 'a' -> 'x' is listed before"):
        TranslationTable.from_frame(frame, "de", "en", where="file.tsv")
    with pytest.warns(UserWarning, match="file.tsv: skipped 1 malformed entry, the first: file.tsv, line 3"):
        table = TranslationTable.from_frame(frame, "de", "en", where="file.tsv", on_error="skip")
    assert rows(table) == {"a": {"x": 0.25}, "b": {"x": 0.5}} and table.meta["malformed_entries_skipped"] == 1
    assert rows(TranslationTable.from_frame(frame, "de", "en", weights="count")) == {"a": {"x": 1.0}, "b": {"x": 1.0}}


def test_columns_of_frames():
    frame = pd.DataFrame({"src": ["haus", "haus"], "tgt": ["house", "home"], "n": [3, 1]}, index=[9, 4])
    read = TranslationTable.from_frame(frame, "de", "en", columns=("src", "tgt", "n"), weights="count")
    assert rows(read) == {"haus": {"house": 0.75, "home": 0.25}}
    uniform = TranslationTable.from_frame(frame, "de", "en", columns=("src", "tgt", None))
    assert rows(uniform) == {"haus": {"home": 0.5, "house": 0.5}}
    with pytest.raises(TableFormatError, match=r"missing column 'prob'; found \['src', 'tgt', 'n'\]"):
        TranslationTable.from_frame(frame, "de", "en", columns=("src", "tgt", "prob"))


@pytest.mark.parametrize(
    "meta", [{"fingerprint": "x"}, {"entries": 5}, {"path": os}, {"x": float("nan")}, {"x": np.float32(1)}, {"x": {1}}]
)
def test_metadata_that_cannot_be(meta, table):
    for make in (lambda: build(ENTRIES, meta=meta), lambda: table.with_meta(**meta)):
        with pytest.raises(ValueError, match="the table itself determines it|must be JSON values"):
            make()


def test_metadata(table):
    assert table.meta["source"] == "test" and table.meta["licence"] == "CC0"
    more = table.with_meta(licence="CC-BY", note=("a", 1))
    assert more.meta["licence"] == "CC-BY" and more.meta["note"] == ["a", 1] and table.meta["licence"] == "CC0"
    assert more == table
    assert table.meta["direction"] == "de-en" and table.meta["meaning"] == "P(target | source)"
    assert (table.meta["entries"], table.meta["source_words"], table.meta["target_words"]) == (7, 3, 7)
    with pytest.raises(TypeError):
        table.meta["licence"] = "mine"


# -------------------------------------------------------------------------------------------------------- looking up


def test_lookups(table):
    assert table.translations("haus") == pytest.approx(ENTRIES["haus"])
    assert list(table.translations("haus")) == ["house", "home", "building"]
    assert list(table.translations("strasse")) == ["road", "street"]  # equal probabilities: by word
    assert table.prob("cat", "katze") == pytest.approx(0.9)
    assert table.prob("dog", "katze") == table.prob("cat", "hund") == table.prob("house", "katze") == 0.0
    assert table.translations("hund") == {} and "hund" not in table and "haus" in table and 5 not in table
    assert len(table) == 7 and table.languages == ("de", "en")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"top_k": 2}, ["house", "home"]),
        ({"top_k": 99}, ["house", "home", "building"]),
        ({"threshold": 0.3}, ["house", "home"]),  # although 0.3 is no float32
        ({"top_k": 1, "threshold": 0.7}, []),
    ],
)
def test_the_best_translations(table, options, expected):
    assert list(table.translations("haus", **options)) == expected
    for top_k in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="top_k must be None or a whole number >= 1"):
            table.translations("haus", top_k=top_k)


def test_coverage(table):
    assert table.coverage(["haus", "Katze", "hund", "haus"]) == 0.75
    assert table.coverage([]) == 1.0 and table.coverage(iter(["hund"])) == 0.0


def test_entries_and_frame(table):
    entries = list(table.entries())
    assert [entry[:2] for entry in entries[:3]] == [("haus", "house"), ("haus", "home"), ("haus", "building")]
    frame = table.to_frame()
    assert list(frame.columns) == ["source", "target", "prob"] and len(frame) == 7
    assert list(frame.itertuples(index=False, name=None)) == entries
    again = TranslationTable.from_frame(frame, "de", "en")
    assert again == table and again.fingerprint == table.fingerprint
    frame["prob"] = 0.0
    assert table.prob("cat", "katze") > 0


def test_empty_table(tmp_path):
    empty = build({})
    assert (
        len(empty) == 0 and empty.translations("haus") == {} and empty.to_frame().empty and list(empty.entries()) == []
    )
    for made in (empty.prune(top_k=1, cumulative=0.5), empty.normalize(), empty.interpolate(empty), empty.invert()):
        assert len(made) == 0
    again = empty.save(tmp_path / "empty")
    again.verify()
    assert again == empty and pickle.loads(pickle.dumps(empty)) == empty
    assert empty.interpolate(build(ENTRIES)) == build(ENTRIES)


# ---------------------------------------------------------------------------------------------------------- values


def test_tables_do_not_change(table, saved):
    for each in (table, saved, pickle.loads(pickle.dumps(table)), table.with_meta(x=1)):
        for array in (each.rows, each.columns, each.probs, each.source_words.text, each.target_words.offsets):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


def test_pickles_of_files_are_small(table, saved, tmp_path, monkeypatch):
    again = pickle.loads(pickle.dumps(saved))
    assert again == saved and again.path == saved.path and isinstance(again.probs.base, np.memmap)
    assert len(pickle.dumps(saved)) < 300
    memory = pickle.loads(pickle.dumps(table))
    assert memory == table and memory.translations("Haus") == table.translations("haus")
    assert dict(memory.meta) == dict(table.meta)
    monkeypatch.chdir(tmp_path)
    opened = TranslationTable("table")
    data = pickle.dumps(opened)
    monkeypatch.chdir("/")
    assert pickle.loads(data) == pickle.loads(pickle.dumps(opened)) == table


def test_vocabulary():
    words = ["a", "aa", "b", "straße", "日本", "😀"]
    vocabulary = Vocabulary.from_words(words)
    assert list(vocabulary) == words and vocabulary[1:3] == ["aa", "b"] and vocabulary[-1] == "😀"
    assert [vocabulary.find(word) for word in words] == list(range(6))
    assert all(vocabulary.find(word) == -1 for word in ("", "0", "ab", "z", "😁", "\ud800"))
    assert list(vocabulary.with_prefix("a")) == [0, 1] and list(vocabulary.with_prefix("c")) == []
    for i in (6, -7):
        with pytest.raises(IndexError, match=f"word {i} of a vocabulary of 6"):
            vocabulary[i]
    for wrong in (["b", "a"], ["a", "a"]):
        with pytest.raises(ValueError, match="sorted and distinct"):
            Vocabulary.from_words(wrong)


# ---------------------------------------------------------------------------------------------------- derived tables


def test_prune(table):
    assert rows(table.prune(top_k=1)) == {"haus": {"house": 0.6}, "katze": {"cat": 0.9}, "strasse": {"road": 0.5}}
    assert rows(table.prune(threshold=0.5)) == {
        "haus": {"house": 0.6}, "katze": {"cat": 0.9}, "strasse": {"road": 0.5, "street": 0.5},
    }  # fmt: skip
    assert rows(table.prune(threshold=0.6)) == {"haus": {"house": 0.6}, "katze": {"cat": 0.9}}  # nor is 0.6 a float32
    assert rows(table.prune(threshold=0.3, renormalize=True))["haus"] == {"house": 0.666667, "home": 0.333333}
    assert table.prune() == table and len(table.prune(threshold=1.0)) == 0
    for wrong in ({"top_k": 0}, {"cumulative": 0}, {"cumulative": 1.1}, {"cumulative": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            table.prune(**wrong)


def test_prune_to_a_cumulative_share(table):
    # The row sums to 0.95; the entry with which the sum reaches the share stays.
    assert list(rows(table.prune(cumulative=0.6))["haus"]) == ["house"]
    assert list(rows(table.prune(cumulative=0.65))["haus"]) == ["house", "home"]
    assert list(rows(table.prune(cumulative=0.99))["haus"]) == ["house", "home", "building"]
    assert list(rows(table.prune(cumulative=0.5))["strasse"]) == ["road"]
    assert table.prune(cumulative=1) == table
    tiny = build({"haus": {"house": 1e-12}, "katze": {"cat": 1e-12, "dog": 1e-13}})
    assert list(tiny.prune(cumulative=0.5).source_words) == ["haus", "katze"]


WORDS = [f"w{i}" for i in range(5)]
DENSE = st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=5, max_size=5).map(np.array)


def from_dense(weights):
    entries = {
        WORDS[i]: {WORDS[j]: int(w) for j, w in enumerate(row) if w} for i, row in enumerate(weights) if row.any()
    }
    return build(entries, weights="count")


def to_dense(table, n_source, n_target):
    out = np.zeros((n_source, n_target))
    for source, target, prob in table.entries():
        out[WORDS.index(source), WORDS.index(target)] = prob
    return out


def share(weights, axis=1):
    total = weights.sum(axis=axis, keepdims=True)
    return np.divide(weights, total, out=np.zeros(weights.shape), where=total > 0)


@settings(max_examples=60, deadline=None)
@given(weights=DENSE)
def test_tables_against_dense_arrays(weights):
    table = from_dense(weights)
    np.testing.assert_allclose(to_dense(table, 5, 4), share(weights), atol=1e-6)
    assert TranslationTable.from_frame(table.to_frame(), "de", "en") == table
    for row, end in zip(table.rows, table.rows[1:], strict=False):
        assert end > row and (np.diff(table.probs[row:end]) <= 0).all()


@settings(max_examples=60, deadline=None)
@given(weights=DENSE, prior=st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_invert_is_bayes_rule(weights, prior):
    table = from_dense(weights)
    conditional = share(weights)
    np.testing.assert_allclose(to_dense(table.invert(), 4, 5), share(conditional.T), atol=1e-6)
    joint = conditional * np.array(prior)[:, None]
    inverted = table.invert(pd.Series(prior, WORDS))
    np.testing.assert_allclose(to_dense(inverted, 4, 5), share(joint.T), atol=1e-6)
    assert inverted.languages == ("en", "de") and inverted.meta["inverted_from"] == table.fingerprint


@settings(max_examples=60, deadline=None)
@given(a=DENSE, b=DENSE)
def test_compose_against_dense_arrays(a, b):
    first, second = from_dense(a), from_dense(b).invert()  # the words between: w0 to w3, and w0 to w4 of what follows
    second = TranslationTable.from_frame(second.to_frame(), "en", "fr")
    made = first.compose(second, top_k=None, threshold=0)
    dense = share(a) @ to_dense(second, 4, 5)
    np.testing.assert_allclose(to_dense(made, 5, 5), dense, atol=1e-6)
    assert made.languages == ("de", "fr") and [p["direction"] for p in made.meta["composed"]] == ["de-en", "en-fr"]


@settings(max_examples=60, deadline=None)
@given(a=DENSE, b=DENSE, c=DENSE, mix=st.lists(st.sampled_from([0.25, 1, 3]), min_size=3, max_size=3))
def test_interpolate_against_dense_arrays(a, b, c, mix):
    known = np.array([weights.any(axis=1) for weights in (a, b, c)])
    total = sum(m * share(weights) for m, weights in zip(mix, (a, b, c), strict=True))
    norm = (known * np.array(mix)[:, None]).sum(axis=0)
    expected = np.divide(total, norm[:, None], out=np.zeros((5, 4)), where=norm[:, None] > 0)
    mixed = from_dense(a).interpolate(from_dense(b), from_dense(c), weights=mix)
    np.testing.assert_allclose(to_dense(mixed, 5, 4), expected, atol=1e-6)
    assert [entry["weight"] for entry in mixed.meta["interpolated"]] == mix


def test_combinations_that_cannot_be(table):
    other = build({"haus": {"house": 1.0}, "hund": {"dog": 1.0}}, meta={"source": "other"})
    assert [entry["source"] for entry in table.interpolate(other).meta["interpolated"]] == ["test", "other"]
    assert table.interpolate(weights=[7]) == table.interpolate() == table
    for weights in ([1], [1, 0], [1, float("nan")], [1, float("inf")], [1, 1, 1]):
        with pytest.raises(ValueError, match="weights must be 2 positive numbers"):
            table.interpolate(other, weights=weights)
    for alien in (table.invert(), TranslationTable.from_dict({}, Analyzer("de", fold=False), "en")):
        for combine in (table.interpolate, table.backfill):
            with pytest.raises(ValueError, match="cannot combine .* the analyzers differ"):
                combine(alien)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="the prior of 'haus' must be a number >= 0"):
            table.invert({"haus": wrong})


# ----------------------------------------------------------------------------------------------------------- files


def test_save_and_open(table, tmp_path):
    path = tmp_path / "new" / "table"
    saved = table.save(path)
    assert sorted(content(path)) == sorted(FILES)
    for again in (saved, TranslationTable(path), TranslationTable(str(path)), TranslationTable.load(path)):
        assert again == table and again.path == path and dict(again.meta) == dict(table.meta)
        assert rows(again) == rows(table) and again.translations("Straße") == table.translations("strasse")
        assert all(isinstance(array.base, np.memmap) for array in again.arrays.values())
        again.verify()
    table.verify()
    assert all(np.load(path / name).ndim == 1 for name in FILES if name.endswith(".npy"))
    assert content(path) == content(saved.save(tmp_path / "copy").path)


def test_save_does_not_overwrite_unasked(table, saved):
    other = build({"hund": {"dog": 1.0}})
    with pytest.raises(FileExistsError, match="overwrite=True"):
        other.save(saved.path)
    assert other.save(saved.path, overwrite=True) == other
    assert rows(saved) == rows(table)  # what was mapped stays readable


@pytest.mark.skipif(os.name == "nt", reason="other names")
def test_provenance_with_bytes_that_are_not_utf8(table, tmp_path):
    name = os.fsdecode(b"caf\xe9.tsv")
    saved = table.with_meta(source=[name], members={name: "é"}).save(tmp_path / "t")
    assert saved.meta["source"] == [r"caf\xe9.tsv"] and saved.meta["members"] == {r"caf\xe9.tsv": "é"}
    with pytest.raises(ValueError, match="metadata must be JSON values"):
        table.with_meta(source="\ud800")


def without_checksums(path):
    """Makes a saved table one of an earlier version, which is only looked at where it is read."""
    meta = json.loads((path / "pt_meta.json").read_text())
    del meta["checksums"]
    (path / "pt_meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits(saved, name):
    data = (saved.path / name).read_bytes()
    for bit in range(0, 8 * len(data), 23):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        (saved.path / name).write_bytes(changed)
        try:
            found = TranslationTable(saved.path)
        except ValueError as error:
            assert str(saved.path) in str(error)
        else:  # in the provenance, or in the word "checksums"
            assert name == "pt_meta.json" and found == saved and rows(found) == rows(saved)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("probs", [0.6, value, 0.05, 0.9, 0.1, 0.5, 0.5]) for value in (float("nan"), 7e30, -0.1)),
        *(("columns", [4, value, 0, 1, 5, 3, 6]) for value in (-1, 7)),
        ("rows", [0, 9, 5, 7]),
        ("rows", [0, 0, 5, 7]),
        ("target_text", [0xFF] * 42),
    ],
)
def test_damage_that_is_found_where_it_is_read(saved, name, content):
    array = np.load(saved.path / f"{name}.npy")
    np.save(saved.path / f"{name}.npy", np.resize(np.array(content, array.dtype), array.shape))
    refused(saved.path, f"{name}.npy is missing, or not as it was saved")
    without_checksums(saved.path)
    found = TranslationTable(saved.path)
    for read in (lambda: found.translations("haus"), lambda: list(found.entries()), found.to_frame, found.verify):
        with pytest.raises(ValueError, match="damaged") as error:
            read()
        assert str(saved.path) in str(error.value)


def test_tables_without_checksums_and_of_any_size(saved, tmp_path):
    without_checksums(saved.path)
    TranslationTable(saved.path).verify()
    words = {f"w{i:08d}": {"x": 1.0} for i in range(80_000)}
    large = build(words).save(tmp_path / "large")
    path = large.path / "source_text.npy"  # too large for all of it to be compared on opening, but its end is
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"!")
    refused(large.path, "source_text.npy is missing, or not as it was saved")
    path.write_bytes(data[:20_000] + b"!" + data[20_001:])
    with pytest.raises(ValueError, match="damaged TranslationTable.*large.*its content has the fingerprint"):
        TranslationTable(large.path).verify()


def refused(path, message):
    """Checks that a directory is refused with one message that names it."""
    with pytest.raises(ValueError, match=message) as error:
        TranslationTable(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", FILES)
def test_damaged_missing_and_other_files(saved, name):
    data = (saved.path / name).read_bytes()
    for damaged in (b"", data[:-3], b"PK\x03\x04" + data):  # what NumPy takes for a zip file
        (saved.path / name).write_bytes(damaged)
        refused(saved.path, "damaged translation table")
    if name.endswith(".npy"):
        (saved.path / name).write_bytes(data)
        array = np.load(saved.path / name)
        for wrong in (array.astype(np.float64), array.reshape(1, -1), np.append(array, array[-1:]), array[:0]):
            np.save(saved.path / name, wrong)
            refused(saved.path, "damaged translation table")
        np.save(saved.path / name, array.astype(object), allow_pickle=True)
        refused(saved.path, f"cannot map {name}")
    (saved.path / name).unlink()
    refused(saved.path, f"cannot map {name}|it has no {name}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "sparse_index"}, "is no translation table: pt_meta.json says .*sparse_index"),
        ({"format": "other"}, "is no translation table"),
        ({"format_version": 2}, "its format_version is 2, this version of pyterrier_mart reads 1"),
        ({"format_version": None}, "its format_version is None"),
        ({"analyzers": None}, "damaged translation table .*: pt_meta.json has analyzers None"),
        ({"analyzers": {"source": "de", "target": "en"}}, "cannot use the translation table .* its analyzers are"),
        (
            {"analyzers": {"source": {"lang": "de", "fold": True, "version": 0}, "target": {}}},
            r"cannot use the translation table .*made by the analyzer .*'version': 0.*rebuild it",
        ),
    ],
)
def test_metadata_of_another_kind(saved, change, message):
    without_checksums(saved.path)
    meta = json.loads((saved.path / "pt_meta.json").read_text())
    (saved.path / "pt_meta.json").write_text(json.dumps({**meta, **change}))
    refused(saved.path, message)
    for key in change:
        del meta[key]
    (saved.path / "pt_meta.json").write_text(json.dumps(meta))
    refused(saved.path, "translation table|format_version")


def test_load_lists_what_there_is():
    names = TranslationTable.bundled()
    assert names == sorted(names)
    for unknown in ("sw-bg", "de-de", "nothing", "a/b"):
        with pytest.raises(FileNotFoundError, match=f"no translation table at '{unknown}'.*bundled direction") as error:
            TranslationTable.load(unknown)
        assert ", ".join(names) in str(error.value)


#: Words and what they mean, in the language and in English.
MEANINGS = {
    "ar": "ماء water; حكومة government", "de": "Wasser water; Regierung government",
    "el": "γάτα cat; κυβέρνηση government",
    "es": "agua water; gobierno government", "fa": "کتاب book; خانه home", "fr": "eau water; gouvernement government",
    "ha": "ruwa water; ɓera mouse", "hi": "पानी water; सरकार government", "it": "acqua water; governo government",
    "nl": "regering government; kat cat", "pt": "água water; governo government",
    "ru": "вода water; правительство government",
    "so": "biyo water; dowladda government", "sw": "maji water; serikali government", "th": "น้ำ water; แมว cat",
    "tr": "su water; hükümet government", "vi": "mèo cat; sách book", "yo": "omi water; ọba king",
    "zh": "政府 government; 學習 learning",
}  # fmt: skip


def test_each_language_has_tables_that_know_words_and_name_their_licences():
    assert TranslationTable.bundled() == sorted(name for lang in MEANINGS for name in (f"{lang}-en", f"en-{lang}"))
    licences = (Path(storage.__file__).parent / "data" / "LICENSE-DATA.md").read_text(encoding="utf-8")
    for lang, pairs in MEANINGS.items():
        there, back = TranslationTable.load(f"{lang}-en"), TranslationTable.load(f"en-{lang}")
        for word, english in (pair.split() for pair in pairs.split("; ")):
            assert english in there.translations(word, top_k=1), (lang, word)
            assert there.source.tokens(word)[0] in back.translations(english, top_k=5), (lang, english)
        for table in (there, back):
            table.verify()
            assert set(table.languages) == {lang, "en"} and table.meta["licence"] == "CC BY-SA 4.0"
            for corpus in table.meta["corpora"]:
                assert re.sub(r" (dev|devtest|terms|\(.*)$", "", corpus["name"]) in licences
                assert "NC" not in corpus["licence"]


def test_tables_through_english():
    with pytest.warns(UserWarning, match="deu-fr is composed of de-en and en-fr") as caught:
        table = TranslationTable.load("deu-fr")
    assert caught[0].filename == __file__ and table.languages == ("de", "fr") and "de-fr" not in table.bundled()
    for word, translation in {"Hund": "chien", "Wasser": "eau", "Regierung": "gouvernement", "Baum": "arbre"}.items():
        assert table.translations(word, top_k=1).keys() == {translation}
    halves = [TranslationTable.load(name) for name in ("de-en", "en-fr")]
    assert table == halves[0].compose(halves[1]) != halves[0].compose(halves[1], top_k=1)
    assert [part["fingerprint"] for part in table.meta["composed"]] == [half.fingerprint for half in halves]
    assert table.meta["licence"] == "CC BY-SA 4.0" and np.diff(table.rows).max() == 10
    with pytest.raises(ValueError, match="cannot compose.*one is into .*'fr'.*, the other from .*'de'"):
        halves[1].compose(halves[0])


def test_bundled_tables(table, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "de-en.table.xz").write_bytes(storage.pack(table.arrays, table.meta))
    (tmp_path / "data" / "README").write_text("text")
    monkeypatch.setattr("pyterrier_mart.translation.storage.resources.files", lambda package: tmp_path)
    assert TranslationTable.bundled() == ["de-en"]
    monkeypatch.chdir(tmp_path)
    for name in ("de-en", "deu-eng", "DE-EN"):
        loaded = TranslationTable.load(name)
        loaded.verify()
        assert loaded == table and dict(loaded.meta) == dict(table.meta)
    build({"x": {"y": 1.0}}).save("de-en")
    assert len(TranslationTable.load("de-en")) == 1  # a directory comes first
    again = build(ENTRIES, meta={"source": "test", "licence": "CC0"})
    assert storage.pack(table.arrays, table.meta) == storage.pack(again.arrays, again.meta)


# ------------------------------------------------------------------------------------------------ PyTerrier artifacts


def unpack(package, directory):
    with LZ4FrameFile(package) as file, tarfile.open(fileobj=file, mode="r|") as tar:
        tar.extractall(directory, filter="data")
    return TranslationTable(directory)


def test_package(table, saved, tmp_path, monkeypatch):
    info = {}
    path = table.build_package(str(tmp_path / "memory.tar.lz4"), verbose=False, metadata_out=info)
    assert path == str(tmp_path / "memory.tar.lz4") and info["fingerprint"] == table.fingerprint
    assert unpack(path, tmp_path / "a") == table
    assert unpack(saved.build_package(verbose=False), tmp_path / "b") == table
    assert (tmp_path / "table.tar.lz4").read_bytes() == (tmp_path / "memory.tar.lz4").read_bytes()
    path = str(tmp_path / "parts.tar.lz4")  # in segments, PyTerrier reads a path like a download
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path / "home"))
    table.build_package(path, verbose=False, max_file_size=300)
    loaded = pt.Artifact.from_url(path)
    assert isinstance(loaded, TranslationTable) and loaded == table
    monkeypatch.chdir(tmp_path)
    assert table.build_package(verbose=False) == "de-en.tar.lz4"


def test_backfill_adds_only_rows_of_unknown_source_words():
    text = TranslationTable.from_dict({"haus": {"house": 0.7}}, "de", "en")
    words = TranslationTable.from_dict({"haus": {"home": 1.0}, "katze": {"cat": 1.0}}, "de", "en", weights="uniform")
    filled = text.backfill(words)
    assert filled.translations("haus") == text.translations("haus")
    assert filled.translations("katze") == {"cat": 1.0}
    assert len(filled) == 2
    assert [entry["weight"] for entry in filled.meta["backfilled"]] == [1.0, 1.0]
