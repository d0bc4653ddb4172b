"""Words and vectors together, with a tiny encoder; that they are better than either is measured in experiments."""

import math

import models
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_mart import DenseRetriever, Hybrid, LanguageCentering, MultilingualCorpus
from pyterrier_mart.dense.hybrid import _length

pytestmark = pytest.mark.usefixtures("one_thread")

CORPUS = MultilingualCorpus.xquad_r(("de", "en"))
CORPUS = CORPUS.subset(CORPUS.groups[:2])
DOCS = CORPUS.docs
TOPICS = CORPUS.topics[CORPUS.topics["query_lang"] == "en"][["qid", "query"]].head(3).reset_index(drop=True)
#: Two documents of the first query and one of the second, each the last but some.
RUN = pd.DataFrame({
    "qid": TOPICS["qid"].iloc[[0, 0, 1]].tolist(),
    "docno": DOCS["docno"].iloc[[-1, -2, 3]].tolist(),
    "score": [9.0, 2.0, 5.0],
})  # fmt: skip
WORDS = pt.Transformer.from_df(RUN)


@pytest.fixture(scope="module")
def dense():
    made = DenseRetriever(models.bert(), device="cpu")
    return made.retriever(made.index(models.folder() / "hybrid", CORPUS))


def expected(dense, topics, weight):
    """The score of each document for each query, by the formula."""
    documents = dense.encode(DOCS["text"], "document")
    found = dense.encode(topics["query"], "query") @ documents.T / dense.dense_index.spread
    place = {docno: i for i, docno in enumerate(DOCS["docno"])}
    for row in RUN.itertuples():
        i = topics["qid"].tolist().index(row.qid)
        found[i, place[row.docno]] += weight * row.score / math.sqrt(len(topics["query"][i].split()))
    return found


@pytest.mark.parametrize("weight", [0.0, 0.4, 50.0])
def test_scores_are_the_sum(dense, weight):
    out = Hybrid(WORDS, dense, weight=weight)(TOPICS)
    scores = expected(dense, TOPICS, weight)
    assert len(out) == scores.size, "all documents, as the vectors find them all"
    for i, qid in enumerate(TOPICS["qid"]):
        own = out[out["qid"] == qid]
        best = np.argsort(-scores[i], kind="stable")
        np.testing.assert_allclose(own["score"], scores[i][best], rtol=1e-4, atol=1e-4)
        assert set(own["docno"].head(2)) == set(DOCS["docno"].iloc[best[:2]])
        assert own["rank"].tolist() == list(range(len(own)))


def test_documents_that_only_words_find_get_their_vectors_score(dense):
    few = dense.retriever(dense.dense_index, num_results=2)
    whole = Hybrid(WORDS, dense)(TOPICS).set_index(["qid", "docno"])["score"]
    out = Hybrid(WORDS, few)(TOPICS).set_index(["qid", "docno"])["score"]
    assert len(out) == 3 * 2 + len(RUN)
    assert (out - whole.loc[out.index]).abs().max() < 1e-4, "a score depends on what else was found"
    assert {tuple(pair) for pair in RUN[["qid", "docno"]].to_numpy()} <= set(out.index)


def test_a_cutoff_cuts_the_output_and_not_what_is_compared(dense):
    hybrid = Hybrid(WORDS, dense, weight=50.0)
    fused = hybrid.fuse_rank_cutoff(2)
    cut = (hybrid % 2)(TOPICS)
    pd.testing.assert_frame_equal(fused(TOPICS), cut)
    assert cut["docno"].head(2).tolist() == RUN["docno"].head(2).tolist()
    assert hybrid.fuse_rank_cutoff(1000) is None


def test_languages_of_the_dense_retriever_are_those_of_all_documents(dense):
    german = dense.languages("de")
    out = Hybrid(WORDS, german)(TOPICS)
    assert set(out["doc_lang"]) == {"de"}
    lost = set(DOCS.loc[DOCS["docno"].isin(RUN["docno"]) & (DOCS["doc_lang"] == "en"), "docno"])
    assert lost and not lost & set(out["docno"])


def test_words_that_find_nothing_leave_the_vectors(dense):
    nothing = pt.Transformer.from_df(RUN.iloc[:0].astype({"qid": "str", "docno": "str"}))
    out, alone = Hybrid(nothing, dense)(TOPICS), dense(TOPICS)
    assert out["docno"].tolist() == alone["docno"].tolist()


def test_what_cannot_be_compared_is_an_error(dense):
    with pytest.raises(ValueError, match="dense must be a dense retriever with an index"):
        Hybrid(WORDS, DenseRetriever(models.bert()))
    with pytest.raises(ValueError, match="weight must be"):
        Hybrid(WORDS, dense, weight=-1)
    elsewhere = pt.Transformer.from_df(RUN.assign(docno="elsewhere"))
    with pytest.raises(ValueError, match="3 of 3 rows have a docno that is not in the index .*'elsewhere'"):
        Hybrid(elsewhere, dense)(TOPICS)
    with pytest.raises(ValueError, match="what words returns: missing column docno, score"):
        Hybrid(pt.Transformer.identity(), dense)(TOPICS)
    with pytest.raises(ValueError, match="is there twice"):
        Hybrid(WORDS, dense)(pd.concat([TOPICS, TOPICS.head(1)]))


def test_the_weight_can_be_searched_for(dense):
    hybrid = Hybrid(WORDS, dense)
    qrels = RUN[["qid", "docno"]].assign(label=1).iloc[[0, 2]]
    best = pt.GridSearch(hybrid, {hybrid: {"weight": [0.0, 50.0]}}, TOPICS.head(2), qrels, "map", verbose=False)
    assert best.weight == 50.0


def test_the_spread_is_of_documents_in_one_language(dense, tmp_path):
    index = dense.dense_index
    vectors, langs = np.array(index.vectors), np.array(index.doc_langs())
    within = []
    for lang in ("de", "en"):
        own = vectors[langs == lang]
        pairs = np.array([own[i] @ own[j] for i in range(len(own)) for j in range(i)])
        within.append(pairs - pairs.mean())
    assert index.spread == pytest.approx(np.concatenate(within).std(), rel=1e-4)
    assert type(index)(index.path).spread == index.spread
    # Centring moves documents apart, and the spread with them.
    centring = LanguageCentering.fit_corpus(dense, CORPUS, keep_global=False)
    centred = dense.apply_attributes(post=centring, query_lang="en", dense_index=None)
    moved = centred.index(tmp_path / "centred", index)
    assert moved.spread > index.spread
    out = Hybrid(WORDS, centred.retriever(moved), weight=0.0)(TOPICS)
    assert out.groupby("qid")["score"].std().between(0.3, 3).all(), "differences are not of the order of one spread"


def test_a_few_documents_are_too_few_to_measure(dense, tmp_path):
    few = dense.index(tmp_path / "few", DOCS.head(3).to_dict("records"))
    assert few.spread == pytest.approx(few.meta["vec_size"] ** -0.5)
    alike = [{"docno": str(i), "text": "the same"} for i in range(30)]
    assert dense.index(tmp_path / "alike", alike).spread > 0


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", 1),
        ("Katze", 1),
        ("Wo liegt die Katze?", 4),
        ("猫在哪里睡觉呢", 4),  # cat, at, where, sleep, particle
        ("แมวนอนอยู่ที่ไหน", 4),  # cat, sleep, be, where
    ],
)
def test_length_of_queries(query, words):
    assert _length(query) == pytest.approx(words, abs=0.6)
