"""Measures of tables, against values computed by hand and those of the bundled tables."""

import json
from pathlib import Path

import pandas as pd
import pytest

from experiments.tables import against_muse
from pyterrier_mart import TranslationTable
from pyterrier_mart.translation import quality

DATA = Path(__file__).parents[2] / "shared" / "data"
ENTRIES = {
    "haus": {"house": 0.5, "home": 0.25, "building": 0.25},  # 1.5 bits
    "hauser": {"houses": 1.0},
    "berlin": {"berlin": 0.6},  # sums to less than 1: as good as certain
    "bank": {"bench": 0.25, "bank": 0.25},  # 1 bit; of two equal ones the first in the alphabet is the best
}
TABLE = TranslationTable.from_dict(ENTRIES, "de", "en")


def test_size_and_entropy():
    found = quality.report(TABLE)
    assert (found.direction, found.entries, found.source_words, found.target_words) == ("de-en", 7, 4, 7)
    assert found.entropy == pytest.approx((1.5 + 0 + 0 + 1) / 4)
    assert found.effective_translations == pytest.approx(2**0.625)
    assert found.identity == 0.5 and next(iter(TABLE.translations("bank"))) == "bank"
    assert found.coverage is None and found.accuracy is None


@pytest.mark.parametrize("frame", [True, False])
def test_coverage(frame):
    queries = ["Das Haus in Berlin", "HÄUSER, das Haus?", "", "Bahnhaus das"]
    topics = pd.DataFrame({"qid": range(5), "query": [*queries, None]}) if frame else iter(queries)
    found = quality.report(TABLE, topics).coverage
    # das haus in berlin | hauser das haus | bahnhaus das
    assert (found.tokens, found.types, found.known_tokens, found.known_types) == (9, 6, 4, 3)
    assert found.missing == {"das": 3, "bahnhaus": 1, "in": 1} and list(found.missing) == ["das", "bahnhaus", "in"]
    assert found.of_tokens == pytest.approx(4 / 9) and found.of_types == 0.5
    assert found.related_types == 0
    assert quality.coverage(TABLE, ["Hausern"]).related_types == 1


def test_coverage_of_nothing():
    found = quality.coverage(TABLE, [])
    assert (found.of_tokens, found.of_types, found.missing) == (1.0, 1.0, {})
    with pytest.raises(ValueError, match="must have a column 'query', not only qid, title"):
        quality.coverage(TABLE, pd.DataFrame({"qid": ["1"], "title": ["Haus"]}))
    with pytest.raises(ValueError, match="not the string 'Haus'"):
        quality.coverage(TABLE, "Haus")


def test_accuracy(tmp_path):
    path = tmp_path / "de-en.5000-6500.txt"
    path.write_text("Haus home\nHaus building\nHäuser houses\nBank bank\nHund dog\nBerlin capital of\n")
    with pytest.raises(ValueError, match=r"de-en\.5000-6500\.txt, line 6"):
        quality.report(TABLE, gold=path)
    path.write_text(path.read_text().replace(" of\n", "\n"))
    found = quality.report(TABLE, gold=str(path)).accuracy
    # haus: home is second; hauser and bank: right; hund: unknown; berlin: wrong
    assert found == quality.Accuracy(words=5, known=4, right_at_1=2, right_at_5=3)
    assert (found.coverage, found.p_at_1, found.p_at_5, found.p_at_1_if_known) == (0.8, 0.4, 0.6, 0.5)
    none = TranslationTable.from_dict({"x": {"y": 1.0}}, "de", "en")
    assert quality.accuracy(none, TABLE).p_at_1_if_known == 0
    with pytest.raises(ValueError, match=r"holds de-en, but en-de was asked for"):
        quality.report(TABLE.invert(), gold=path)
    with pytest.raises(ValueError, match="the dictionary translates de-en, the table en-de"):
        quality.accuracy(TABLE.invert(), TABLE)
    with pytest.raises(FileNotFoundError):
        quality.report(TABLE, gold=tmp_path / "nowhere.txt")


def test_frames_and_json():
    found = quality.report(TABLE, ["das Haus"], TABLE)
    frames = [found.to_frame("a"), quality.report(TABLE).to_frame("b")]
    both = pd.concat(frames, axis=1)
    assert both.loc["entries", "a"] == 7 and both.loc["coverage of tokens", "a"] == 0.5
    assert both["b"].isna().sum() == 6 and both.loc["P@1", "a"] == 1.0
    values = json.loads(json.dumps(found.as_json()))
    assert values["coverage"]["missing"] == {"das": 1} and values["coverage"]["of_types"] == 0.5
    assert values["accuracy"]["p_at_1"] == 1.0 and values["entropy"] == found.entropy
    assert quality.report(TABLE).as_json()["coverage"] is None


@pytest.mark.skipif(not DATA.is_dir(), reason="the data are not here")
@pytest.mark.parametrize("name", ["de-en", "en-it"])
def test_the_numbers_of_the_bundled_tables(name):
    results = Path(__file__).parents[1] / "experiments" / "results" / "tables.json"
    known = json.loads(results.read_text(encoding="utf-8"))["results"][name]
    table = TranslationTable.load(name)
    if table.fingerprint != known["fingerprint"]:
        pytest.skip("the tables were learned anew")
    assert against_muse(table, DATA) == pytest.approx(known["muse"])
    assert against_muse(TABLE.invert().invert(), Path("nowhere")) is None
