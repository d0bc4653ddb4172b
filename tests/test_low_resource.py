import gzip
import json
import math
import sys

import numpy as np
import pytest

from experiments import low_resource, report, tables
from experiments.low_resource import Questions
from pyterrier_mart import TranslationTable
from pyterrier_mart.datasets.ciral import published

PAIRS = [("magaalo guduud", "the red city"), ("biyo", "water"), ("", "nothing"), ("Mudug", "Mudug?")]


def table(**entries):
    return TranslationTable.from_dict(entries, "so", "en")


def write(root, name, rows):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join("\t".join(row) + "\n" for row in rows).encode()))


@pytest.fixture
def root(tmp_path):
    write(tmp_path, "parallel/hornmt/so-en.tsv.gz", [("magaalo weyn", "big city")] * 3)
    write(tmp_path, "parallel/flores200/dev.so.txt.gz", [("biyo",)])
    write(tmp_path, "parallel/flores200/dev.en.txt.gz", [("water",)])
    write(tmp_path, "parallel/flores200/devtest.so.txt.gz", [("guri",)])
    write(tmp_path, "parallel/flores200/devtest.en.txt.gz", [("house",)])
    rows = [("symbol", str(i), *pair) for i, pair in enumerate([("big city", "magaalo"), ("water", "biyo")] * 5)]
    write(tmp_path, "lexicons/cldr/en-so.tsv.gz", [(kind, i, en, so) for kind, i, en, so in rows])
    return tmp_path


def test_sources_are_left_out_as_a_whole(root):
    assert [(source.name, n) for source, n in low_resource.sources(root, "so")] == [
        ("CLDR", 10), ("HornMT", 3), ("FLORES-200", 2),
    ]  # fmt: skip
    assert len(low_resource.sources(root, "so")[2][0].corpora) == 2
    assert low_resource.sources(root, "yo") == []


def test_a_word_list_alone_needs_no_aligner(root):
    cldr = low_resource.sources(root, "so")[0][0]
    to_english, from_english = low_resource.alone(root, "so", cldr)
    assert to_english.languages == ("so", "en") and from_english.languages == ("en", "so")
    assert to_english.translations("magaalo") == {"big": 0.5, "city": 0.5}
    assert from_english.translations("water") == {"biyo": 1.0} and "big" not in from_english


def test_tables_are_learned_once(tmp_path):
    made = (table(biyo={"water": 1.0}), TranslationTable.from_dict({"water": {"biyo": 1.0}}, "en", "so"))
    calls = []

    def learn():
        calls.append(1)
        return made

    for _ in range(2):
        assert low_resource.kept(tmp_path, "so", "without TICO-19 terms", learn) == made
    assert len(calls) == 1
    low_resource.kept(tmp_path, "so", "without TICO-19", learn)
    assert len(calls) == 2


def test_freedict(tmp_path):
    assert low_resource.freedict(tmp_path, "sw") is None
    there = TranslationTable.from_dict({"maji": {"water": 1.0}}, "sw", "en")
    back = TranslationTable.from_dict({"water": {"maji": 1.0}}, "en", "sw")
    there.write(tmp_path / "freedict-swh-eng.index")
    back.write(tmp_path / "freedict-eng-swh.index")
    assert low_resource.freedict(tmp_path, "sw") == (there, back)


def test_measures():
    values = Questions("so", "en", PAIRS).measure(
        table(magaalo={"city": 0.6, "town": 0.4}, guduud={"crimson": 0.7, "red": 0.3}, biyo={"water": 1.0})
    )
    # "the" is a stop word, and so is "nothing"; Mudug is kept as it is.
    assert values["recall@1"].tolist()[:2] == [0.5, 1.0] and values["recall@10"].tolist()[:2] == [1.0, 1.0]
    assert values["recall@10"][3] == 1.0 and math.isnan(values["recall@10"][2])
    assert values["recall@10, stop words too"].tolist() == pytest.approx([2 / 3, 1.0, 0.0, 1.0])
    assert values["recall@1, stop words too"][0] == pytest.approx(1 / 3)
    assert values["coverage"].tolist()[:2] == [1.0, 1.0] and values["coverage"][3] == 0.0
    assert math.isnan(values["coverage"][2])
    # All words of the references are in one of four: their idf is the same. Words in none have a higher one.
    seen, unseen = math.log(1 + 3.5 / 1.5), math.log(1 + 4.5 / 0.5)
    dot = (0.6 + 0.3) * seen * seen
    norms = math.hypot(0.6 * seen, 0.4 * unseen, 0.7 * unseen, 0.3 * seen) * math.sqrt(3) * seen
    assert values["cosine"].tolist() == pytest.approx([dot / norms, 1.0, 0.0, 1.0])


def test_no_table_leaves_the_words():
    values = Questions("so", "en", PAIRS).measure(None)
    assert values["recall@10"].tolist()[:2] == [0.0, 0.0] and values["recall@10"][3] == 1.0
    assert values["cosine"].tolist() == pytest.approx([0.0, 0.0, 0.0, 1.0])
    assert np.nansum(values["coverage"]) == 0.0


def test_difference():
    rng = np.random.default_rng(1)
    before = rng.random(400)
    found = low_resource.difference(np.append(before - 0.1 + rng.normal(0, 0.2, 400), math.nan), np.append(before, 1.0))
    assert found["low"] < -0.1 < found["high"] < -0.05 and found["p"] < 1e-9
    assert found["difference"] == pytest.approx(-0.1, abs=0.03)
    same = low_resource.difference(before, before)
    assert same["difference"] == same["low"] == same["high"] == 0.0 and same["p"] == 1.0


def rows(*changes):
    against = {"difference": 0.0, "low": -0.01, "high": 0.01, "p": 0.9}
    made = [{"name": low_resource.ALL, "recall@10": 0.5}]
    made.append({"name": low_resource.AGAIN, "recall@10": 0.5, "against": {"recall@10": against, "cosine": against}})
    for name, value, difference, p in changes:
        change = {**against, "difference": difference, "p": p}
        made.append({"name": f"without {name}", "recall@10": 0.5 + difference, "against": {"recall@10": change}})
        made.append({"name": f"{name} alone", "recall@10": value, "against": {"recall@10": change}})
    return made


def test_conclusion():
    text = low_resource.conclusion(rows(("A", 0.3, -0.1, 0.001), ("B", 0.4, -0.02, 0.2)))
    assert "best source alone is B (0.400; all sources 0.500)" in text and "missed most is A (-0.100, a sign" in text
    assert "again changes recall@10 by +0.000 and cosine by +0.000" in text
    assert "no significant change" in low_resource.conclusion(rows(("A", 0.3, -0.001, 0.4)))
    assert "no significant change" in low_resource.conclusion(rows(("A", 0.3, 0.1, 0.001)))


def test_end_to_end(root, tmp_path, monkeypatch, capsys):
    learned = []
    entries = TranslationTable.load("so-en").to_frame().iloc[::40]
    made = TranslationTable.from_frame(entries, "so", "en")
    small = made, made.invert()

    def learn(folder, lang, held_out=()):
        learned.append({corpus.name for corpus in held_out})
        return small

    monkeypatch.setattr(tables, "learn", learn)
    pairs = dict(list(published.query_pairs("so").items())[:20])
    monkeypatch.setattr(published, "query_pairs", lambda lang: pairs)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    arguments = ["--data", str(root), "--languages", "so", "--tables", str(tmp_path / "tables")]
    monkeypatch.setattr(sys, "argv", ["low_resource", *arguments])
    low_resource.main()
    # Twice all, each left out, each with sentences alone.
    assert len(learned) == 7 and {"CLDR"} in learned and {"FLORES-200 dev", "FLORES-200 devtest"} in learned
    text = (tmp_path / "results/low-resource.md").read_text(encoding="utf-8")
    assert "## so-en: Somali" in text and "20 queries." in text and "| no table |" in text and "CLDR alone" in text
    results = json.loads((tmp_path / "results/low-resource.json").read_text(encoding="utf-8"))["results"]
    assert set(results) == {"so-en", "en-so"}
    named = {row["name"]: row for row in results["so-en"]}
    assert named["no table"]["recall@10"] < named["all sources"]["recall@10"] < named["the bundled table"]["recall@10"]
    assert named["no table"]["against"]["recall@10"]["p"] < 0.05
