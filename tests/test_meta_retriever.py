"""MetaSBERTRetriever: what it learns, and what it keeps on disk."""

import pickle
import shutil

import models
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from multilingual import (
    DOCS,
    LANGS,
    QUICK,
    ROWS,
    TOPICS,
    base,
    centring,
    corpus,
    dense,
    index,
    messages,
    same,
    scores,
    trained,
)
from sentence_transformers import SentenceTransformer

from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.evaluation.lareqa import lareqa_evaluate
from pyterrier_mart.meta import EmptyLanguageError, MetaSBERTModel, MetaSBERTRetriever
from pyterrier_mart.meta.training_data import few_queries

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def saved():
    return trained().save(models.folder() / "saved", overwrite=True).path


def state(system):
    return {name: value.clone() for name, value in system.encoder.model.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ------------------------------------------------------------------------------------------------------------- learning


def test_training_changes_what_is_found():
    made = trained()
    assert made.history is not None and made.weights is not None
    assert repr(made) != repr(dense(config=QUICK, post=made.post))
    assert not same(made, dense())
    assert [row["step"] for row in made.history.steps] == [0, 1, 2, 3]
    assert all("dev_multi" in row for row in made.history.steps)
    assert made.post.encoder == made.fingerprint
    assert equal(state(dense()), state(base()))


def test_few_validation_queries_are_ranked_against_all_documents(monkeypatch):
    part, asked = corpus(), []
    evaluation = "pyterrier_mart.meta.retriever.lareqa_evaluate"
    monkeypatch.setattr(evaluation, lambda encoder, of: asked.append(of) or lareqa_evaluate(encoder, of))
    for most in (2, 2, 1, 99, None):
        config = QUICK.replace(max_steps=0, valid_questions=most)
        made = dense(config=config, algorithm="fine-tune", corpus=part)
        made.fit(part.topics, part.qrels, part.topics.head(35), part.qrels)
        assert asked[-1].docs.equals(part.docs) and len(made.history.evaluations) == 1
    two, again, one, many, everything = (set(of.topics["qid"]) for of in asked)
    assert two == again > one and many == everything == set(part.topics["qid"].head(35))
    assert asked[0].topics["query_lang"].value_counts().to_dict() == dict.fromkeys(LANGS, 2)
    assert set(asked[0].qrels["qid"]) == two and len(asked[0].qrels) == 18
    other = few_queries(part, 2, seed=7)
    assert set(other.topics["qid"]) != two and set(other.topics["query_lang"]) == set(LANGS)


def test_training_again_starts_again_and_gives_the_same():
    part = corpus()
    made = trained().apply_attributes(post=LanguageCentering())
    made.fit(part.topics, part.qrels, part.topics.head(9), part.qrels)
    assert equal(state(made), state(trained())) and repr(made) == repr(trained())
    assert made.fingerprint == trained().fingerprint


def test_pipelines_pass_rows_with_texts():
    part = corpus()
    rows = part.topics.merge(part.docs.drop(columns="group"), how="cross")
    first = pt.Transformer.from_df(rows.drop(columns=["query", "query_lang"]).assign(score=1.0, rank=0))
    made = dense(config=QUICK)
    (first >> made).fit(part.topics, part.qrels, None, None)
    assert made.weights is not None and [row["step"] for row in made.history.steps] == [1, 2, 3]
    whole = dense(config=QUICK, corpus=part).fit(part.topics, part.qrels)
    assert equal(state(made), state(whole))


def test_languages_may_be_arguments():
    part = corpus().restrict(["en"], ["en"])
    config = QUICK.replace(transfer="en_en-en_en", max_steps=1)
    topics, rows = part.topics[["qid", "query"]], part.docs[["docno", "text"]].to_dict("records")

    class Data:
        def get_corpus_iter(self, verbose=True):
            return iter(rows)

        def get_corpus_lang(self):
            return "en"

    for options in ({"corpus": Data(), "query_lang": "en"}, {"corpus": part}):
        made = dense(config=config, algorithm="maml", **options).fit(topics, part.qrels)
        assert made.weights is not None
    with pytest.raises(ValueError, match="the language of 12 of 12 rows is not known; add the column query_lang, or"):
        dense(config=config, corpus=Data()).fit(topics, part.qrels)
    with pytest.raises(ValueError, match="of 1 of 1 rows is not known; add the column doc_lang, or pass doc_lang="):
        dense(config=config, query_lang="en").fit(topics.assign(docno="x", text="y"), part.qrels)


@pytest.mark.parametrize("algorithm", ["maml-align", "maml", "fine-tune"])
def test_each_algorithm(algorithm):
    part = corpus()
    config = QUICK.replace(inner_steps=3, max_steps=1)
    made = dense(config=config, algorithm=algorithm, corpus=part, doc_langs=["de"]).fit(part.topics, part.qrels)
    assert made.weights not in (None, trained().weights) and len(made.history.steps) == 1


def test_zero_shot_learns_nothing():
    made = dense(algorithm="zero-shot")
    assert made.fit(None, None) is made and made.weights is None and made.history is None


def test_a_given_model_is_not_trained():
    model = SentenceTransformer(str(models.bert()), device="cpu")
    part = corpus()
    made = MetaSBERTRetriever(model, config=QUICK.replace(max_steps=1), corpus=part)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    untrained = scores(made)
    made.fit(part.topics, part.qrels)
    assert equal(before, model.state_dict()) and not np.allclose(scores(made), untrained)


def test_an_index_of_before_training_is_refused():
    part = corpus()
    made = dense(dense_index=index(), config=QUICK.replace(max_steps=1), corpus=part).fit(part.topics, part.qrels)
    with pytest.raises(ValueError, match="index the documents again"):
        made(TOPICS)
    assert len(made(ROWS)) == len(ROWS)


@pytest.mark.parametrize(("change", "message"), [
    (lambda t, q: (t.iloc[:0], q), "topics_or_res_tr is empty"),
    (lambda t, q: (t.drop(columns="query"), q), "topics_or_res_tr: missing column query"),
    (lambda t, q: (t, q.drop(columns="label")), "qrels_tr: missing column label"),
    (lambda t, q: (t, q.assign(label=0)), r"no query of topics_or_res_tr has a relevant document \(label > 0\)"),
    (lambda t, q: (t, q.iloc[:0]), "no query of topics_or_res_tr has a relevant document"),
    (lambda t, q: (t.assign(qid="x" + t["qid"]), q), "no query of topics_or_res_tr has a relevant document"),
])  # fmt: skip
def test_what_it_cannot_learn_from(change, message):
    part = corpus()
    topics, qrels = change(part.topics[["qid", "query", "query_lang"]], part.qrels)
    made = dense(config=QUICK, corpus=part)
    with pytest.raises(ValueError, match=message):
        made.fit(topics, qrels)
    assert made.weights is None


def test_documents_to_learn_from_must_be_somewhere():
    part = corpus()
    with pytest.raises(ValueError, match="topics_or_res_tr lacks docno and 'text', it has .*; pass corpus="):
        dense(config=QUICK).fit(part.topics, part.qrels)
    with pytest.raises(EmptyLanguageError, match="no queries in hi"):
        dense(corpus=part).fit(part.topics, part.qrels)
    with pytest.raises(ValueError, match="qrels_va is missing"):
        dense(config=QUICK, corpus=part).fit(part.topics, part.qrels, part.topics)


def test_relevant_documents_that_are_not_there_are_counted():
    part = corpus()
    qrels = pd.concat([part.qrels, pd.DataFrame({"qid": ["de-0", "el-3"], "docno": "gone", "label": [1, 1]})])
    with pytest.warns(UserWarning) as caught:
        dense(config=QUICK.replace(max_steps=1), corpus=part).fit(part.topics, qrels)
    assert messages(caught)[0] == (
        "2 of 110 relevant documents in qrels_tr are not among the documents and are left out"
    )


def test_adapting_leaves_the_original_as_it_is():
    part = corpus()
    made = dense(corpus=part, post=centring(), config=QUICK)
    before, untouched = state(made), scores(made)
    adapted = made.adapt(part.topics.head(5), part.qrels, steps=3, lr=0.05)
    assert equal(before, state(made)) and np.array_equal(scores(made), untouched)
    assert made.weights is None and made.post is centring()
    assert adapted.weights is not None and not np.allclose(scores(adapted), untouched) and repr(adapted) != repr(made)
    assert equal(state(adapted), state(made.adapt(part.topics.head(5), part.qrels, steps=3, lr=0.05)))
    nothing = made.adapt(part.topics.head(5), part.qrels, steps=0)
    assert equal(state(nothing), before)
    again = adapted.adapt(part.topics.head(2), part.qrels, steps=1, lr=0.05)
    assert not np.allclose(scores(again), scores(adapted))
    with pytest.raises(ValueError, match="steps must be None or a whole number >= 0"):
        made.adapt(part.topics, part.qrels, steps=-1)


def test_adapting_to_mined_negatives():
    part = corpus()
    config = QUICK.replace(negatives="hard", n_neg=2, loss="triplet", k_shot=3)
    made = dense(corpus=part, config=config).adapt(part.topics.head(4), part.qrels, lr=0.05)
    assert not same(made, dense())


# ------------------------------------------------------------------------------------------------------------- on disk


def test_what_is_saved_scores_as_before(saved):
    for loaded in (
        MetaSBERTRetriever.load(saved, device="cpu"),
        MetaSBERTModel(saved).retriever(device="cpu"),
        pickle.loads(pickle.dumps(MetaSBERTRetriever.load(saved, device="cpu"))),
    ):
        assert np.array_equal(scores(loaded), scores(trained())) and repr(loaded) == repr(trained())
        assert loaded.config == QUICK and loaded.num_results == 7
        assert loaded.post.fingerprint == trained().post.fingerprint
        assert [row["step"] for row in loaded.history.steps] == [0, 1, 2, 3] and loaded.query_lang == "en"
        assert loaded.provenance == trained().provenance  # which lets it search indexes of before


def test_sentence_transformers_loads_it(saved):
    model = SentenceTransformer(str(saved), device="cpu")
    vectors = model.encode(DOCS["text"].tolist(), normalize_embeddings=True)
    assert np.allclose(vectors, trained().encode(DOCS["text"], "document", post=False), atol=1e-5)
    assert same(MetaSBERTRetriever(saved, device="cpu"), trained().apply_attributes(post=None))


def test_it_is_an_artifact(saved):
    model = pt.Artifact.load(str(saved))
    assert type(model) is MetaSBERTModel and repr(model).endswith("bert-0.1, maml-align)")
    assert pt.inspect.artifact_type_format(model) == ("text_encoder", "mart_sbert")
    assert model.retriever(num_results=3, doc_langs=["de"], device="cpu").doc_langs == ("de",)


def test_the_untrained_and_the_given_can_be_saved_too(tmp_path):
    model = SentenceTransformer(str(models.bert()), device="cpu")
    for number, made in enumerate(
        (dense(doc_langs=["de"]), MetaSBERTRetriever(model), dense(model=str(models.bert())))
    ):
        path = tmp_path / str(number)
        made.save(path)
        loaded = MetaSBERTRetriever.load(path, device="cpu")
        assert np.array_equal(scores(loaded), scores(made)) and loaded.history is None
        loaded.save(path, overwrite=True)
        assert repr(MetaSBERTRetriever.load(path)) == repr(loaded)


def test_every_damaged_file_is_named(saved, tmp_path):
    copied = shutil.copytree(saved, tmp_path / "copy")
    names = [path.relative_to(copied).as_posix() for path in sorted(copied.rglob("*")) if path.is_file()]
    assert {"meta_config.json", "language_centring.safetensors", "train_log.json", "model.safetensors"} <= set(names)
    for name in set(names) - {"pt_meta.json"}:
        whole = (copied / name).read_bytes()
        for content in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[: len(whole) // 2], None):
            (copied / name).unlink() if content is None else (copied / name).write_bytes(content)
            with pytest.raises(ValueError, match=f"damaged saved MetaSBERTRetriever .*copy: {name} is missing, or not"):
                MetaSBERTRetriever.load(copied, device="cpu")
        (copied / name).write_bytes(whole)
    assert repr(MetaSBERTRetriever.load(copied, device="cpu")) == repr(trained())


def test_what_cannot_be_loaded_or_replaced(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="no saved MetaSBERTRetriever at .*nowhere"):
        MetaSBERTRetriever.load("nowhere")
    with pytest.raises(ValueError, match="is no saved MetaSBERTRetriever: it has no pt_meta.json"):
        MetaSBERTRetriever.load(models.bert())
    with pytest.raises(FileExistsError, match="saved exists; name another path or pass overwrite=True"):
        dense().save(saved)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="is not replaced, since it holds no pt_meta.json"):
        dense().save(tmp_path, overwrite=True)
