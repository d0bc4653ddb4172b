"""LanguageCentering: what it subtracts, what it does about little data, and what it keeps on disk."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from safetensors.numpy import load_file, save_file

from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.evaluation.lareqa import lareqa_evaluate, summarise
from pyterrier_mart.vectors import unit

SIZE = 16


def planted(queries=40, noise=0.3, bias=3.0, langs=("de", "el", "en"), seed=0):
    """Vectors of queries and their answers: what is said, and a large part that only the language decides."""
    rng = np.random.default_rng(seed)
    said = rng.normal(size=(queries, SIZE))
    topics, docs = [], []
    for lang in langs:
        of_lang = bias * rng.normal(size=SIZE)
        for side, rows, name in (("query", topics, "q"), ("doc", docs, "d")):
            for i in range(queries):
                vector = said[i] + of_lang + noise * rng.normal(size=SIZE)
                rows.append({"id": f"{name}{i}-{lang}", f"{side}_vec": vector.astype(np.float32), f"{side}_lang": lang})
    return pd.DataFrame(topics), pd.DataFrame(docs)


TOPICS, DOCS = planted()


class Planted:
    """An encoder whose texts are the names of planted vectors."""

    def __init__(self, topics, docs):
        self.known = {
            **dict(zip(topics["id"], topics["query_vec"], strict=True)),
            **dict(zip(docs["id"], docs["doc_vec"], strict=True)),
        }

    def encode(self, texts, side, **_):
        return np.stack([self.known[text] for text in texts])


def corpus_of(topics, docs):
    qrels = topics[["id"]].merge(docs[["id"]], how="cross", suffixes=("", "_d"))
    same = qrels["id"].str[1:].str.partition("-")[0] == qrels["id_d"].str[1:].str.partition("-")[0]
    qrels = qrels[same].rename(columns={"id": "qid", "id_d": "docno"}).assign(label=1)
    return MultilingualCorpus.from_frames(
        topics.assign(qid=topics["id"], query=topics["id"], qgroup=topics["id"].str.partition("-")[0]),
        docs.assign(docno=docs["id"], text=docs["id"]),
        qrels,
    )


def scores(post=None):
    return summarise(lareqa_evaluate(Planted(TOPICS, DOCS), corpus_of(TOPICS, DOCS), post=post))


@pytest.fixture
def centring():
    return LanguageCentering(keep_global=False, shrinkage=0).fit(TOPICS, DOCS)


# ----------------------------------------------------------------------------------------------------- what it is for


def test_it_removes_a_planted_language_bias(centring):
    before, after = scores(), scores(centring)
    assert after["multi"] > before["multi"] + 20
    assert after["bi"] >= before["bi"] - 1 and after["mono"] >= before["mono"] - 1


def test_centring_documents_alone_needs_no_language_of_queries():
    centring = LanguageCentering(sides="documents").fit(None, DOCS)
    vectors = np.stack(TOPICS["query_vec"])
    assert np.array_equal(centring.apply(vectors, [None] * len(TOPICS), "query"), unit(vectors))
    assert scores(centring)["multi"] > scores()["multi"] + 10


# -------------------------------------------------------------------------------------------------------- arithmetic


def test_the_mean_of_a_language_is_subtracted(centring):
    vectors = unit(np.stack(TOPICS["query_vec"]))
    of_el = (TOPICS["query_lang"] == "el").to_numpy()
    expected = unit(vectors[of_el] - vectors[of_el].mean(axis=0))
    found = centring.apply(vectors, TOPICS["query_lang"].tolist(), "query")
    assert found.dtype == np.float32
    assert np.allclose(found[of_el], expected, atol=1e-6)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("sides", ["both", "documents"])
@pytest.mark.parametrize("kept", [True, False])
def test_the_mean_over_all_languages_may_be_added_again(sides, kept):
    centring = LanguageCentering(sides=sides, keep_global=kept, shrinkage=0).fit(TOPICS, DOCS)
    vectors = unit(np.stack(DOCS["doc_vec"]))
    langs = DOCS["doc_lang"].to_numpy()
    means = np.stack([vectors[langs == lang].mean(axis=0) for lang in langs])
    expected = unit(vectors - means + (vectors.mean(axis=0) if kept else 0))
    assert np.allclose(centring.apply(vectors, langs, "document"), expected, atol=1e-6)


def test_shrinkage_weighs_with_the_number_of_texts():
    few = pd.concat([DOCS[DOCS["doc_lang"] == "de"], DOCS[DOCS["doc_lang"] == "en"].head(2)])
    vectors = unit(np.stack(few["doc_vec"]))
    langs, whole = few["doc_lang"].to_numpy(), unit(np.stack(few["doc_vec"])).mean(axis=0)
    centring = LanguageCentering(sides="documents", keep_global=False, shrinkage=6).fit(None, few)
    for lang, weight in (("de", 40 / 46), ("en", 2 / 8)):
        own = vectors[langs == lang]
        mean = weight * own.mean(axis=0) + (1 - weight) * whole
        assert np.allclose(centring.apply(own, [lang] * len(own), "document"), unit(own - mean), atol=1e-6)


def test_texts_that_are_their_languages_mean_stay_apart():
    one = DOCS.groupby("doc_lang").head(1)
    vectors, langs = np.stack(one["doc_vec"]), one["doc_lang"].tolist()
    found = LanguageCentering(shrinkage=0).fit(TOPICS, one).apply(vectors, langs, "document")
    assert np.allclose(found @ found.T, 1, atol=1e-5)
    found = LanguageCentering().fit(TOPICS, one).apply(vectors, langs, "document")
    assert (found @ found.T)[np.triu_indices(3, 1)].max() < 0.99


def test_a_vector_of_zeros_stays_finite():
    centring = LanguageCentering(keep_global=False, shrinkage=0).fit(TOPICS, DOCS)
    zeros = np.zeros((1, SIZE), dtype=np.float32)
    assert np.isfinite(centring.apply(zeros, ["de"], "query")).all()
    assert np.array_equal(unit(zeros), zeros)


# ----------------------------------------------------------------------------------------------------------- languages


def test_unknown_languages_get_the_mean_of_all_with_one_warning(centring):
    vectors = unit(np.stack(DOCS["doc_vec"])[:4])
    with pytest.warns(
        UserWarning, match=r"from 3 document vectors .* know: none \(2\), fr \(1\); it knows de, el, en"
    ) as caught:
        found = centring.apply(vectors, ["fr", None, float("nan"), "deu"], "document")
    assert len(caught) == 1
    whole = unit(np.stack(DOCS["doc_vec"])).mean(axis=0)
    assert np.allclose(found[:3], unit(vectors[:3] - whole), atol=1e-6)
    assert not np.allclose(found[3], unit(vectors - whole)[3], atol=1e-3)


def test_texts_without_a_language_are_not_learned_from(centring):
    more = pd.concat([DOCS, DOCS.head(30).assign(doc_lang=None)])
    assert LanguageCentering(keep_global=False, shrinkage=0).fit(TOPICS, more).fingerprint == centring.fingerprint


# -------------------------------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(("options", "message"), [
    ({"sides": "queries"}, "sides must be one of both, documents, not 'queries'"),
    ({"keep_global": 1}, "keep_global must be True or False, not 1"),
    ({"shrinkage": -1}, "shrinkage must be a number >= 0, not -1"),
])  # fmt: skip
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LanguageCentering(**options)


@pytest.mark.parametrize(("topics", "docs", "message"), [
    (None, DOCS, "topics must be a frame with query_vec and query_lang, not None"),
    (TOPICS.drop(columns="query_lang"), DOCS, r"query_lang, not a frame with \['id', 'query_vec'\]"),
    (TOPICS, DOCS.iloc[:0], "docs: there is no text with a language to learn means from"),
    (TOPICS, DOCS.assign(doc_lang=None), "docs: there is no text with a language"),
    (TOPICS, DOCS.assign(doc_vec=[np.full(SIZE, np.nan)] * len(DOCS)), "docs: a vector is not finite"),
])  # fmt: skip
def test_what_it_cannot_learn_from(topics, docs, message):
    with pytest.raises(ValueError, match=message):
        LanguageCentering().fit(topics, docs)


def test_it_must_be_fitted_and_fit(centring):
    with pytest.raises(ValueError, match="is not fitted: call fit"):
        LanguageCentering().apply(np.zeros((1, SIZE)), ["de"], "query")
    for vectors, langs in ((np.zeros((2, 3)), ["de", "de"]), (np.zeros((2, SIZE)), ["de"]), (np.zeros(SIZE), ["de"])):
        with pytest.raises(ValueError, match=rf"vectors must be of shape \({len(langs)}, 16\) .*, not \("):
            centring.apply(vectors, langs, "query")


def test_it_transforms_columns(centring):
    both = TOPICS.head(9).join(DOCS.head(9).drop(columns="id"))
    out = centring(both)
    for side, prefix in (("query", "query"), ("document", "doc")):
        expected = centring.apply(np.stack(both[f"{prefix}_vec"]), both[f"{prefix}_lang"], side)
        assert np.array_equal(np.stack(out[f"{prefix}_vec"]), expected)
    assert list(out) == list(both) and list(centring(TOPICS.iloc[:0])) == list(TOPICS)
    with pytest.raises(pt.validate.InputValidationError, match="query_vec"):
        centring(TOPICS.drop(columns="query_vec"))


# ---------------------------------------------------------------------------------------------------- identity and disk


def test_the_repr_tells_what_it_makes_of_vectors(centring):
    same = LanguageCentering(keep_global=False, shrinkage=0).fit(TOPICS.copy(), DOCS.copy())
    assert repr(same) == repr(centring)
    others = [
        LanguageCentering(keep_global=False, shrinkage=0), LanguageCentering().fit(TOPICS, DOCS),
        LanguageCentering(shrinkage=0).fit(TOPICS, DOCS),
        LanguageCentering(keep_global=False, shrinkage=0).fit(TOPICS, DOCS.iloc[1:]),
    ]  # fmt: skip
    assert repr(centring.apply_attributes(shrinkage=2, keep_global=True)) == repr(others[1])
    assert len({repr(other) for other in [*others, centring]}) == 5
    assert repr(LanguageCentering()) == "LanguageCentering()"


def test_it_is_saved_whole(centring, tmp_path):
    path = tmp_path / "centring.safetensors"
    of_documents = LanguageCentering(sides="documents").fit(None, DOCS)
    of_documents.encoder = "0123"
    for made in (centring, of_documents):
        made.save(path)
        loaded = LanguageCentering.load(path)
        assert repr(loaded) == repr(made) and loaded.encoder == made.encoder
        vectors, langs = np.stack(DOCS["doc_vec"]), DOCS["doc_lang"].tolist()
        assert np.array_equal(loaded.apply(vectors, langs, "document"), made.apply(vectors, langs, "document"))
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_loaded(centring, tmp_path):
    path = tmp_path / "centring.safetensors"
    with pytest.raises(FileNotFoundError, match="centring.safetensors"):
        LanguageCentering.load(path)
    centring.save(path)
    whole = path.read_bytes()
    for damaged in (b"", b"{}", whole[:-7], whole[:50], whole[:-4] + b"\x00\x00\x80\x3f"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{path} is no saved LanguageCentering, or damaged"):
            LanguageCentering.load(path)
    path.write_bytes(whole)
    save_file(load_file(path), path)  # without what says what it is
    with pytest.raises(ValueError, match="is no saved LanguageCentering"):
        LanguageCentering.load(path)
