from collections import Counter
from itertools import product

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP
from scipy import stats

from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.datasets.graded_pairs import PairCorpus
from pyterrier_mart.evaluation.lareqa import (
    ALL_LANGUAGES,
    MODES,
    by_language,
    language_bias,
    lareqa_evaluate,
    lareqa_run,
    paired_tests,
    summarise,
)
from pyterrier_mart.evaluation.sts import sts_evaluate

LANGS = ("ar", "de", "el")


class Vectors:
    """An encoder that knows the vectors of its texts, and what it was asked for."""

    def __init__(self, vectors):
        self.vectors = vectors
        self.asked = Counter()

    def encode(self, texts, side):
        texts = list(texts)
        self.asked.update((side, text) for text in texts)
        return np.array([self.vectors[side, text] for text in texts], dtype=np.float32)


def corpus(questions=8, extra=30, langs=LANGS):
    """Each question is relevant to the answer in every language; there are other documents."""
    topics = [(f"{lang}-q{i}", f"question {i} in {lang}", lang, f"q{i}") for lang in langs for i in range(questions)]
    docs = [(f"{lang}-a{i}", f"answer {i} in {lang}", lang, f"a{i}") for lang in langs for i in range(questions)]
    # Not equally many in all languages, and in an order that is not that of the docnos.
    docs += [(f"{lang}-x{i}", f"other {i} in {lang}", lang, f"{lang}-x{i}")
             for n, lang in enumerate(langs) for i in reversed(range(extra + 3 * n))]  # fmt: skip
    qrels = [(f"{a}-q{i}", f"{b}-a{i}", 1) for a, b in product(langs, langs) for i in range(questions)]
    return MultilingualCorpus.from_frames(
        pd.DataFrame(topics, columns=["qid", "query", "query_lang", "qgroup"]),
        pd.DataFrame(docs, columns=["docno", "text", "doc_lang", "dgroup"]),
        pd.DataFrame(qrels, columns=["qid", "docno", "label"]),
        name="toy",
    )


def encoder(of, seed=0, noise=1.5, bias=0.0, size=24):
    """Questions are near their answers, with noise, and with a part that is the same in all texts of a language."""
    chance = np.random.default_rng(seed)
    meaning = {f"{i}": chance.normal(size=size) for i in range(200)}
    language = {lang: bias * chance.normal(size=size) for lang in LANGS}
    vectors = {}
    for frame, side, text, lang in (
        (of.topics, "query", "query", "query_lang"),
        (of.docs, "document", "text", "doc_lang"),
    ):
        for line, code in zip(frame[text], frame[lang], strict=True):
            kind, number = line.split(" ")[:2]
            core = meaning[number] if kind != "other" else chance.normal(size=size)
            vectors[side, line] = core + noise * chance.normal(size=size) + language[code]
    return Vectors(vectors)


def by_hand(system, of, mode, query_lang, doc_lang, metric):
    """AP of a ranking of the whole pool, each by itself."""
    topics = of.topics[of.topics["query_lang"] == query_lang]
    docs = of.docs if mode == "multi" else of.docs[of.docs["doc_lang"] == doc_lang]
    a, b = (system.encode(x, s).astype(float) for x, s in ((topics["query"], "query"), (docs["text"], "document")))
    cosine = (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T
    run = [(q, d, s) for q, row in zip(topics["qid"], cosine, strict=True)
           for d, s in zip(docs["docno"], row, strict=True)]  # fmt: skip
    qrels = of.qrels[of.qrels["qid"].isin(topics["qid"]) & of.qrels["docno"].isin(docs["docno"])]
    values = ir_measures.iter_calc(
        [metric],
        qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"}),
        pd.DataFrame(run, columns=["query_id", "doc_id", "score"]),
    )
    return {value.query_id: value.value for value in values}


@pytest.mark.parametrize("k", [20, 3])
def test_values_are_those_of_trec_eval_on_full_rankings(k):
    of = corpus()
    system = encoder(of)
    frame = lareqa_evaluate(system, of, k=k)
    assert list(frame.columns) == ["mode", "query_lang", "doc_lang", "qid", "value"]
    assert frame["value"].between(0.05, 0.95).any()
    pools = {("mono", a, a) for a in LANGS} | {("multi", a, ALL_LANGUAGES) for a in LANGS}
    pools |= {("bi", a, b) for a, b in product(LANGS, LANGS) if a != b}
    found = {key: dict(zip(rows["qid"], rows["value"], strict=True))
             for key, rows in frame.groupby(["mode", "query_lang", "doc_lang"])}  # fmt: skip
    assert set(found) == pools
    for pool in pools:
        assert found[pool] == pytest.approx(by_hand(system, of, *pool, AP @ k)), pool


def test_documents_alike_are_ranked_by_docno():
    of = corpus(questions=3, extra=40)
    same = Vectors({("query", text): [1.0, 2.0] for text in of.topics["query"]}
                   | {("document", text): [2.0, 4.0] for text in of.docs["text"]})  # fmt: skip
    run = lareqa_run(same, of, k=7)
    first = sorted(of.docs["docno"])[:7]
    for _, rows in run.groupby("qid"):
        assert rows["docno"].tolist() == first and rows["rank"].tolist() == list(range(7))
    mono = lareqa_evaluate(same, of, ["mono"]).set_index("qid")["value"]
    assert mono["de-q0"] == 1.0 and mono["de-q1"] == pytest.approx(1 / 2) and mono["de-q2"] == pytest.approx(1 / 3)


def test_each_text_is_encoded_once():
    of = corpus()
    system = encoder(of)
    kept = {}
    first = lareqa_evaluate(system, of, vectors=kept)
    assert set(system.asked.values()) == {1}
    assert len(system.asked) == len(of.topics) + len(of.docs) == len(kept)
    again = lareqa_evaluate(system, of, vectors=kept)
    language_bias(system, of, vectors=kept)
    assert set(system.asked.values()) == {1}
    pd.testing.assert_frame_equal(first, again)


def test_unfit_arguments():
    of = corpus()
    with pytest.raises(ValueError, match="modes must be one of mono, bi, multi, not 'tri'"):
        lareqa_evaluate(encoder(of), of, ["tri"])
    with pytest.raises(ValueError, match="k must be a whole number >= 1, not 0"):
        lareqa_evaluate(encoder(of), of, k=0)


def test_one_language_has_no_pairs():
    of = corpus(langs=("de",))
    assert lareqa_evaluate(encoder(of), of, ["bi"]).empty
    assert set(lareqa_evaluate(encoder(of), of)["mode"]) == {"mono", "multi"}


def test_queries_without_an_answer_in_a_pool_are_not_counted():
    of = corpus()
    unanswered = of.qrels[~((of.qrels["qid"] == "de-q0") & of.qrels["docno"].str.startswith("el"))]
    of = MultilingualCorpus.from_frames(of.topics, of.docs, unanswered)
    frame = lareqa_evaluate(encoder(of), of)
    assert frame.loc[frame["qid"] == "de-q0", "doc_lang"].tolist() == ["de", "ar", ALL_LANGUAGES]
    assert frame.loc[frame["qid"] == "de-q1", "doc_lang"].tolist() == ["de", "ar", "el", ALL_LANGUAGES]


def test_averages_are_over_languages_and_not_over_queries():
    rows = [("mono", "de", "de", "de-1", 1.0), ("mono", "de", "de", "de-2", 0.5), ("mono", "el", "el", "el-1", 0.0),
            ("bi", "de", "el", "de-1", 1.0), ("bi", "de", "el", "de-2", 1.0), ("bi", "de", "ar", "de-1", 0.0),
            ("bi", "el", "de", "el-1", 0.2)]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["mode", "query_lang", "doc_lang", "qid", "value"])
    assert summarise(frame) == pytest.approx({"mono": (75 + 0) / 2, "bi": (100 + 0 + 20) / 3})
    table = by_language(frame)
    assert list(table.columns) == ["mono", "bi"]
    assert table.loc["de"].tolist() == pytest.approx([75, 50]) and table.loc["el"].tolist() == pytest.approx([0, 20])


class Centred:
    """Takes the mean of each language away."""

    def __init__(self, of, system):
        self.means = {}
        for side, texts, langs in (
            ("query", of.topics["query"], of.topics["query_lang"]),
            ("document", of.docs["text"], of.docs["doc_lang"]),
        ):
            vectors = system.encode(texts, side)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            self.means |= {(side, lang): vectors[langs == lang].mean(axis=0) for lang in LANGS}

    def apply(self, vectors, langs, side):
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        return np.array([v - self.means[side, lang] for v, lang in zip(vectors, langs, strict=True)])


def test_language_bias_is_found_and_centring_takes_it_away():
    of = corpus()
    system = encoder(of, noise=0.5, bias=5.0)
    biased = language_bias(system, of)
    assert biased["query_lang"].tolist() == list(LANGS)
    assert (biased["share"] > 0.9).all()
    assert biased["pool_share"].tolist() == pytest.approx([38 / 123, 41 / 123, 44 / 123])
    post = Centred(of, system)
    centred = language_bias(system, of, post=post)
    assert (centred["share"] < 0.6).all()
    pd.testing.assert_frame_equal(language_bias(lareqa_run(system, of), of), biased)
    before, after = summarise(lareqa_evaluate(system, of)), summarise(lareqa_evaluate(system, of, post=post))
    assert after["multi"] > before["multi"] + 10


class Retriever:
    def __init__(self, encoder, post=None):
        self.encoder, self.post = encoder, post


def test_retrievers_are_measured_with_what_they_do_to_vectors():
    of = corpus()
    system = encoder(of, bias=5.0)
    post = Centred(of, system)
    pd.testing.assert_frame_equal(lareqa_evaluate(Retriever(system), of), lareqa_evaluate(system, of))
    pd.testing.assert_frame_equal(lareqa_evaluate(Retriever(system, post), of), lareqa_evaluate(system, of, post=post))


# ------------------------------------------------------------------------------------------------------------- STS


def test_correlations_of_sts_tracks():
    pairs = PairCorpus.sts17(["ar-ar", "tr-en"])
    chance = np.random.default_rng(3)
    texts = [*pairs.pairs["sentence1"], *pairs.pairs["sentence2"]]
    system = Vectors({("query", text): chance.normal(size=5) for text in texts})
    table = sts_evaluate(system, pairs)
    assert table["track"].tolist() == ["ar-ar", "tr-en"] and table["pairs"].tolist() == [250, 250]
    for row in table.itertuples():
        rows = pairs.pairs[pairs.pairs["track"] == row.track]
        first, second = (system.encode(rows[name], "query").astype(float) for name in ("sentence1", "sentence2"))
        cosine = [round(a @ b / np.linalg.norm(a) / np.linalg.norm(b), 6) for a, b in zip(first, second, strict=True)]
        assert row.pearson == pytest.approx(100 * stats.pearsonr(cosine, rows["score"]).statistic, abs=1e-3)
        assert row.spearman == pytest.approx(100 * stats.spearmanr(cosine, rows["score"]).statistic, abs=1e-3)


def test_a_correlation_of_what_does_not_vary_is_not_a_number():
    pairs = PairCorpus.sts17(["ar-ar"])
    same = Vectors({("query", text): [1.0, 0.0] for text in [*pairs.pairs["sentence1"], *pairs.pairs["sentence2"]]})
    table = sts_evaluate(same, pairs)
    assert np.isnan(table["pearson"].iloc[0]) and np.isnan(table["spearman"].iloc[0])


# ----------------------------------------------------------------------------------------------------------- tests


def test_p_values_are_those_of_an_experiment():
    of = corpus(questions=12, langs=("de",))
    systems = {f"system {seed}": encoder(of, seed, noise) for seed, noise in enumerate((1.5, 1.0, 2.5, 1.6))}
    frames = {name: lareqa_evaluate(system, of, ["mono"]) for name, system in systems.items()}
    found = paired_tests(frames, "system 0")
    runs = [pt.Transformer.from_df(lareqa_run(system, of)) for system in systems.values()]
    expected = pt.Experiment(runs, of.topics, of.qrels, [AP @ 20], list(systems), baseline=0, correction="holm")
    assert found["name"].tolist() == list(systems)[1:] and set(found["n"]) == {12}
    assert found["p-value"].tolist() == pytest.approx(expected["AP@20 p-value"].tolist()[1:])
    assert found["p-value corrected"].tolist() == pytest.approx(expected["AP@20 p-value corrected"].tolist()[1:])
    gains = 100 * (expected["AP@20"] - expected["AP@20"][0])
    assert found["difference"].tolist() == pytest.approx(gains.tolist()[1:])
    plain = paired_tests(frames, "system 0", correction=None)
    assert plain["p-value corrected"].tolist() == plain["p-value"].tolist() == found["p-value"].tolist()


def test_translations_of_a_query_count_once():
    of = corpus(questions=12)
    frames = {name: lareqa_evaluate(encoder(of, seed), of) for name, seed in (("a", 1), ("b", 2))}
    assert set(paired_tests(frames, "a")["n"]) == {36}
    found = paired_tests(frames, "a", groups=dict(zip(of.topics["qid"], of.topics["qgroup"], strict=True)))
    assert found["mode"].tolist() == list(MODES) and set(found["n"]) == {12}
    means = {name: frame[frame["mode"] == "multi"].set_index("qid")["value"] for name, frame in frames.items()}
    a, b = (values.groupby(values.index.str[3:]).mean() for values in means.values())
    assert found["p-value"].iloc[2] == pytest.approx(stats.ttest_rel(b, a).pvalue)
    with pytest.raises(ValueError, match=r"groups must have every qid, not all but ar-q0, .* and 30 more"):
        paired_tests(frames, "a", groups={"de-q0": "q0"})


def test_nothing_speaks_for_a_difference_between_the_same_values():
    of = corpus()
    frame = lareqa_evaluate(encoder(of), of)
    found = paired_tests({"a": frame, "b": frame, "c": lareqa_evaluate(encoder(of, 1), of)}, "a")
    assert (found.loc[found["name"] == "b", ["p-value", "p-value corrected"]] == 1).all().all()
    assert found["p-value corrected"].notna().all()


def test_systems_that_cannot_be_compared():
    of = corpus()
    frame = lareqa_evaluate(encoder(of), of)
    with pytest.raises(ValueError, match="baseline must be one of a, not 'z'"):
        paired_tests({"a": frame}, "z")
    with pytest.raises(ValueError, match="'b' was measured on 23 queries in the mode 'mono', and 'a' on 24"):
        paired_tests({"a": frame, "b": frame[frame["qid"] != "de-q1"]}, "a")
    with pytest.raises(ValueError, match="'b' was measured on 0 queries in the mode 'multi'"):
        paired_tests({"a": frame, "b": frame[frame["mode"] != "multi"]}, "a")
