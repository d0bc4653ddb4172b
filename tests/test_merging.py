"""Several languages in one ranking."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_mart import SMTQueryTranslator, TranslationTable, bm25_index, merge_languages

TOPICS = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["a", "b", "c"]})


def run(rows):
    return pt.Transformer.from_df(pd.DataFrame(rows, columns=["qid", "docno", "score"]))


GERMAN = run([("1", "de1", 4.0), ("1", "de2", 3.0), ("1", "de3", 0.5), ("2", "de1", 1.0)])
TURKISH = run([("1", "tr1", 1.0), ("1", "tr2", 9.0)])  # not sorted


@pytest.mark.parametrize(
    ("how", "docnos", "scores"),
    [
        ("score", ["tr2", "de1", "de2", "tr1", "de3"], [9.0, 4.0, 3.0, 1.0, 0.5]),
        ("rrf", ["tr2", "de1", "de2", "tr1", "de3"], [1 / 61, 1 / 61.5, 1 / 62, 1 / 62.5, 1 / 63]),
        ("round-robin", ["tr2", "de1", "de2", "tr1", "de3"], [0.0, -1.0, -2.0, -3.0, -4.0]),
    ],
)
def test_merged(how, docnos, scores):
    out = merge_languages({"deu": GERMAN, "tr": TURKISH}, how)(TOPICS)
    first, second = out[out["qid"] == "1"], out[out["qid"] == "2"]
    assert first["docno"].tolist() == docnos and first["score"].tolist() == pytest.approx(scores)
    assert first["doc_lang"].tolist() == [docno[:2] for docno in docnos]
    assert first["rank"].tolist() == [0, 1, 2, 3, 4] and first["query"].tolist() == ["a"] * 5
    assert second["docno"].tolist() == ["de1"] and "3" not in set(out["qid"])
    cut = merge_languages({"de": GERMAN, "tr": TURKISH}, how, num_results=2)(TOPICS)
    pd.testing.assert_frame_equal(cut[cut["qid"] == "1"], first.head(2))


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="'de1' was found in two languages, tr and another, for query '1'"):
        merge_languages({"de": GERMAN, "tr": GERMAN})(TOPICS)
    with pytest.raises(ValueError, match="what the pipeline of tr returns: missing column docno, score"):
        merge_languages({"de": GERMAN, "tr": pt.Transformer.identity()})(TOPICS)
    with pytest.raises(ValueError, match="how must be one of"):
        merge_languages({"de": GERMAN}, "sum")
    with pytest.raises(ValueError, match="pipelines must have"):
        merge_languages({})
    with pytest.raises(ValueError, match="klingon"):
        merge_languages({"klingon": GERMAN})


def test_bags_of_two_languages(tmp_path):
    texts = {"de": ["Die Katze schläft.", "Der Hund bellt."], "es": ["El gato duerme.", "La casa es blanca."]}
    words = {"de": {"cat": {"katze": 1.0}}, "es": {"cat": {"gato": 0.9, "gata": 0.1}}}
    pipelines = {}
    for lang, lines in texts.items():
        documents = [{"docno": f"{lang}{i}", "text": text} for i, text in enumerate(lines)]
        bm25 = bm25_index(documents, tmp_path / lang, lang, progress=False).bm25()
        pipelines[lang] = SMTQueryTranslator(TranslationTable.from_dict(words[lang], "en", lang)) >> bm25
    out = merge_languages(pipelines).search("cat")
    assert sorted(out["docno"]) == ["de0", "es0"] and out["query"].tolist() == ["cat"] * 2
