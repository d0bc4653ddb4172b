"""MetaSBERTRetriever as a transformer: what it scores, finds, learns, keeps, and refuses."""

import itertools
import json
import pickle
import shutil
import warnings
from functools import cache

import models
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from pyterrier_dr import FlexIndex
from sentence_transformers import SentenceTransformer

from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense import index as dense_index
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.index import DenseIndex
from pyterrier_mart.evaluation.lareqa import lareqa_evaluate
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.errors import EmptyLanguageError
from pyterrier_mart.meta.retriever import MetaSBERTModel, MetaSBERTRetriever
from pyterrier_mart.meta.training_data import few_questions

pytestmark = pytest.mark.usefixtures("one_thread")

LANGS = ("de", "el", "en")


@cache
def corpus():
    """Twelve questions with an answer in each of three languages, and as many documents that answer none."""
    words = iter(models.words())
    topics, docs, judged = [], [], []
    for i in range(12):
        for lang in LANGS:
            said = [next(words) for _ in range(3)]
            topics.append((f"{lang}-{i}", " ".join(said[:2]), lang, f"g{i}"))
            docs.append((f"{lang}-{i:02d}", " ".join(said[1:]), lang, f"a{i}"))
            docs.append((f"{lang}-n{i:02d}", " ".join(next(words) for _ in range(3)), lang, f"n{i}"))
            judged.extend((f"{lang}-{i}", f"{other}-{i:02d}", 1) for other in LANGS)
    return MultilingualCorpus.from_frames(
        pd.DataFrame(topics, columns=["qid", "query", "query_lang", "qgroup"]),
        pd.DataFrame(docs, columns=["docno", "text", "doc_lang", "dgroup"]),
        pd.DataFrame(judged, columns=["qid", "docno", "label"]),
    )


TOPICS = corpus().topics[["qid", "query", "query_lang"]].iloc[[0, 1, 5, 9]].reset_index(drop=True)
DOCS = corpus().docs[["docno", "text", "doc_lang"]]
ROWS = TOPICS.merge(DOCS.iloc[[0, 3, 8, 20]], how="cross")
QUICK = MetaConfig(
    transfer="en_en-en_de-en_de,el", k_shot=2, q_query=2, inner_steps=2, meta_batch_size=2, max_steps=3, eval_steps=1,
    outer_lr=1e-3, inner_lr=0.01, n_tasks=(8, 4, 4),
)  # fmt: skip


@cache
def base():
    """Its weights, which take long to load, are shared by all that are made of it."""
    made = MetaSBERTRetriever(models.bert(), device="cpu")
    made.load_model()
    return made


def dense(**options):
    return base().apply_attributes(**options)


@cache
def trained():
    """A retriever that was trained and has a centring; tests do not change it."""
    part = corpus()
    made = dense(config=QUICK, corpus=part, post=LanguageCentering(), query_lang="en", num_results=7)
    return made.fit(part.topics, part.qrels, part.topics.head(9), part.qrels)


@pytest.fixture(scope="module")
def centring():
    return LanguageCentering.fit_corpus(base(), corpus())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture(scope="module")
def index(folder):
    return dense().index(folder / "plain", corpus())


@pytest.fixture(scope="module")
def saved(folder):
    trained().save(folder / "saved")
    return folder / "saved"


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of what was saved, to damage."""
    return shutil.copytree(saved, tmp_path / "copy")


@pytest.fixture
def damaged(index, tmp_path):
    """A copy of the index, to damage."""
    return shutil.copytree(index.path, tmp_path / "copy")


def scores(system, rows=ROWS):
    return system(rows)["score"].to_numpy()


def same(one, other, rows=ROWS):
    return np.allclose(scores(one, rows), scores(other, rows), atol=1e-6)


def state(system):
    return {name: value.clone() for name, value in system.encoder.model.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def messages(caught):
    return [str(w.message) for w in caught if issubclass(w.category, UserWarning)]


# ----------------------------------------------------------------------------------------------------------- re-ranking


def test_scores_are_cosines_of_the_encoders_vectors():
    model = SentenceTransformer(str(models.bert()), device="cpu")
    out = dense()(ROWS.assign(score=1.0, rank=3))
    queries, documents = (model.encode(ROWS[c].tolist(), normalize_embeddings=True) for c in ("query", "text"))
    assert np.allclose(out["score"], (queries * documents).sum(axis=1), atol=1e-5)
    for _, group in out.groupby("qid"):
        assert group.sort_values("score", ascending=False)["rank"].tolist() == list(range(len(group)))


def test_an_empty_frame_needs_no_model(tmp_path, index):
    for made in (MetaSBERTRetriever(tmp_path / "no", verbose=True), MetaSBERTRetriever(tmp_path / "no", index)):
        assert list(made(ROWS.iloc[:0])) == [*ROWS, "score", "rank"]
        for encoder, name in ((made.query_encoder(), "query_vec"), (made.doc_encoder(), "doc_vec")):
            assert list(encoder(ROWS.iloc[:0])) == [*ROWS, name]
    assert list(made(TOPICS.iloc[:0])) == [*TOPICS, "docno", "doc_lang", "score", "rank"]
    with pytest.raises(FileNotFoundError, match="there is no encoder at .*no"):
        made.load_model()


def test_what_is_expected_is_said(index):
    for columns, message in (
        (["qid", "query"], r"needs an index to retrieve from: dense.retriever\(index\)"),
        (["qid", "query", "docno"], r"needs vectors of documents: dense.retriever\(index\)"),
        (["qid", "docno", "text"], "query"),
    ):
        with pytest.raises(pt.validate.InputValidationError, match=message):
            dense()(ROWS[columns])
    with pytest.raises(pt.validate.InputValidationError, match="docno"):
        dense(text_field="body", dense_index=index)(ROWS[["qid", "text"]])
    assert len(pt.inspect.transformer_inputs(dense())) == 1
    assert pt.inspect.transformer_inputs(dense(dense_index=index))[1:] == [["qid", "docno", "query"], ["qid", "query"]]


def test_each_text_is_encoded_once(monkeypatch):
    made = dense()
    encoder, seen = made.load_model(), []
    monkeypatch.setattr(made, "load_model", lambda: encoder)
    monkeypatch.setattr(
        encoder,
        "features",
        lambda texts, side, of=encoder.features: seen.extend((side, t) for t in texts) or of(texts, side),
    )
    made(pd.concat([ROWS] * 3))
    assert len(seen) == len(set(seen)) == TOPICS["query"].nunique() + 4


def test_batches_and_parts_change_nothing(monkeypatch):
    usual = scores(dense())
    monkeypatch.setattr("pyterrier_mart.dense.rows._PART", 3)
    assert np.allclose(scores(dense(batch_size=1)), usual, atol=1e-6)


def test_vectors_of_the_input_are_kept_and_not_used():
    rows = ROWS.assign(query_vec=[np.ones(3)] * len(ROWS), doc_vec=[np.ones(3)] * len(ROWS))
    out = dense()(rows)
    assert np.allclose(out["score"], scores(dense())) and out["doc_vec"][0].tolist() == [1, 1, 1]


def test_missing_texts_are_counted_once_for_each_column():
    rows = ROWS.assign(text=pd.Series([None, float("nan"), 3, *ROWS["text"][3:]], dtype=object))
    with pytest.warns(UserWarning) as caught:
        out = dense()(rows)
    assert messages(caught) == ["3 of 16 values in the column 'text' are not text and count as empty"]
    assert out["score"][0] == out["score"][1] == out["score"][2]


def test_broken_weights_raise(index):
    broken = MetaSBERTRetriever(SentenceTransformer(str(models.bert()), device="cpu"))
    with torch.no_grad():
        broken.encoder.model[0].model.encoder.layer[0].output.dense.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="16 of 16 scores are not finite"):
        broken(ROWS)
    with pytest.raises(ValueError, match=f"the vector of the document {DOCS.docno[0]!r} is not finite"):
        broken.index(index.path.parent / "broken", DOCS)
    assert not (index.path.parent / "broken").exists()


def test_bars_are_shown_when_asked_for(capsys, tmp_path):
    loud = dense(verbose=True)
    made = loud.index(tmp_path / "loud", iter(DOCS.to_dict("records")))
    assert "MetaSBERT index" in capsys.readouterr().err
    for system, rows in ((loud, ROWS), (loud.retriever(made), TOPICS), (loud.query_encoder(), TOPICS)):
        system(rows)
        assert "MetaSBERT" in capsys.readouterr().err
    quiet = dense()
    quiet.retriever(quiet.index(tmp_path / "quiet", DOCS))(TOPICS)
    assert capsys.readouterr() == ("", "")


def test_a_centring_that_is_fitted_shows_a_bar(capsys):
    one = LanguageCentering.fit_corpus(dense(verbose=True), corpus(), sample=5)
    assert "LanguageCentering" in capsys.readouterr().err
    seen = []
    again = LanguageCentering.fit_corpus(dense(verbose=True), corpus(), sample=5, progress=seen.append)
    assert one == again and sum(seen) == 30
    assert LanguageCentering.fit_corpus(dense(), corpus(), sample=5) == one and capsys.readouterr() == ("", "")


# -------------------------------------------------------------------------------------------------------- what it takes


@pytest.mark.parametrize(("options", "message"), [
    ({"model": 3}, "model must be the name of an encoder, a directory or a SentenceTransformer, not 3"),
    ({"dense_index": 3}, "dense_index must be a DenseIndex or its directory, not 3"),
    ({"algorithm": "mamal"}, "algorithm must be one of maml-align, maml, .*zero-shot, not 'mamal'"),
    ({"config": {"k_shot": 3}}, "config must be a MetaConfig, not {"),
    ({"post": "centring"}, "post must be a LanguageCentering, not 'centring'"),
    ({"num_results": 0}, "num_results must be a whole number >= 1, not 0"),
    ({"batch_size": True}, "batch_size must be a whole number >= 1, not True"),
    ({"query_lang": 3}, "query_lang must be None or a language such as 'de', not 3"),
    ({"doc_lang": ""}, "doc_lang must be None or a language such as 'de', not ''"),
    ({"doc_langs": "de"}, r"doc_langs must be None or languages such as \('de', 'en'\), not 'de'"),
    ({"doc_langs": ()}, r"doc_langs must be None or languages such as \('de', 'en'\), not \(\)"),
    ({"doc_langs": ["de", 3]}, "doc_langs must be None or languages"),
    ({"text_field": ""}, "text_field must be the name of a column, not ''"),
])  # fmt: skip
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MetaSBERTRetriever(**{"model": models.bert(), **options})


def test_a_device_that_does_not_exist():
    with pytest.raises(ValueError, match="device must be"):
        dense(device="gpu")(ROWS)


def test_attributes_may_be_set(index, centring):
    full = dense(dense_index=index)
    usual = full(TOPICS)
    for name, value in (("num_results", 2), ("doc_langs", ["deu"]), ("post", None), ("query_lang", "deu")):
        made = dense(dense_index=index)
        made(TOPICS)
        setattr(made, name, value)
        again = dense(dense_index=index, **{name: value})
        pd.testing.assert_frame_equal(made(TOPICS), again(TOPICS))
    assert len(usual) == 4 * 72
    made = dense()
    made(ROWS)
    made.post = centring
    assert same(made, dense(post=centring)) and not same(made, dense())
    made.config = MetaConfig(max_length=(3, 3))
    made.post = None
    assert same(made, dense(config=MetaConfig(max_length=(3, 3)))) and not same(made, dense())


def test_a_search_for_parameters():
    made = dense()
    found = pt.GridScan(pt.Transformer.from_df(ROWS) >> made, {made: {"batch_size": [1, 8]}}, TOPICS, corpus().qrels,
        ["map"], verbose=False)  # fmt: skip
    assert len(found) == 2 and found["map"].nunique() == 1


def test_a_model_may_be_given():
    model = SentenceTransformer(str(models.bert()), device="cpu")
    made = MetaSBERTRetriever(model)
    assert made.encoder.model is model and same(made, dense())
    assert made == MetaSBERTRetriever(model) and made != dense()
    assert " at 0x" not in repr(made) and repr(made) == repr(MetaSBERTRetriever(model))
    copy = pickle.loads(pickle.dumps(made))
    assert copy == made and same(copy, made)
    before = made.fingerprint
    with torch.no_grad():
        model[0].model.encoder.layer[0].output.dense.bias.add_(1)
    assert made.fingerprint != before and made != copy


# -------------------------------------------------------------------------------------------------------------- indexes


def test_retrieval_is_exact(index):
    out = dense().retriever(index, num_results=5)(TOPICS)
    queries, documents = dense().encode(TOPICS["query"], "query"), dense().encode(DOCS["text"], "document")
    best = np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :5]
    assert out["docno"].tolist() == DOCS["docno"].to_numpy()[best].ravel().tolist()
    assert np.allclose(out["score"], np.sort(queries @ documents.T)[:, ::-1][:, :5].ravel(), atol=1e-6)
    assert out["rank"].tolist() == list(range(5)) * 4
    assert out["doc_lang"].tolist() == [docno[:2] for docno in out["docno"]]
    assert list(out) == [*TOPICS, "docno", "doc_lang", "score", "rank"]


def test_retrieving_and_reranking_agree(index, centring, folder):
    for made, made_index in (
        (dense(), index),
        (dense(post=centring), dense(post=centring).index(folder / "agree", corpus())),
    ):
        full = made.retriever(made_index)
        found = full(TOPICS)
        texts = found.merge(DOCS[["docno", "text"]], on="docno")
        for rows in (texts, found):
            again = full(rows)
            merged = found.merge(again, on=["qid", "docno"], suffixes=("", "_again"))
            assert len(merged) == len(found) and np.allclose(merged["score"], merged["score_again"], atol=1e-5)
        vectors = (made.query_encoder() >> made_index.flex.torch_retriever(num_results=1000))(TOPICS)
        merged = found.merge(vectors, on=["qid", "docno"], suffixes=("", "_flex"))
        assert len(merged) == len(found) and np.allclose(merged["score"], merged["score_flex"], atol=1e-6)


def test_only_some_languages(index):
    full = dense().retriever(index)
    everything = full(TOPICS)
    for langs in (("de",), ("el", "en"), ("deu", "de")):
        part = full.languages(*langs)
        out = part(TOPICS)
        wanted = everything[everything["doc_lang"].isin([lang[:2] for lang in langs])]
        assert sorted(zip(out["qid"], out["docno"], strict=True)) == sorted(
            zip(wanted["qid"], wanted["docno"], strict=True)
        )
        assert np.allclose(out["score"], wanted["score"], atol=1e-6)
    assert full.languages("de").languages() == full and full.languages("de") != full
    for make in (
        lambda: full.languages("fr"), lambda: dense().retriever(index, doc_langs=["fr"]),
        lambda: MetaSBERTRetriever(models.bert(), index, doc_langs=["de", "fr"]),
    ):  # fmt: skip
        with pytest.raises(EmptyLanguageError, match="plain has no documents in fr; it has de, el, en"):
            make()


def test_scores_below_zero_are_found_before_other_languages(tmp_path):
    # Where scores of other documents are merely set to 0, they are better than negative ones.
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(6, 8)).astype(np.float32)
    docs = [{"docno": f"d{i}", "text": str(i), "doc_lang": ("de", "en")[i % 2]} for i in range(6)]
    made = DenseIndex.build(tmp_path / "i", docs, lambda texts, _: vectors[[int(t) for t in texts]], dense().maker)
    hits = made.search(-vectors[[0]] - vectors[[2]] - vectors[[4]], 3, ("de",), "cpu")
    assert hits.score.max() < 0 and set(hits.docid) == {0, 2, 4}


def test_one_result_for_each_question(index, tmp_path):
    full = dense().retriever(index)
    one = dense().retriever(index, num_results=1)
    best = full(TOPICS)
    pd.testing.assert_frame_equal(one(TOPICS), best[best["rank"] == 0].reset_index(drop=True))
    assert len(one(TOPICS.head(1))) == 1
    made = dense().index(tmp_path / "i", DOCS.head(6).assign(doc_lang=["fr", *["de"] * 5]))
    out = dense().retriever(made).languages("fr")(TOPICS)
    assert out["docno"].tolist() == ["de-00"] * 4 and out["rank"].tolist() == [0] * 4


def test_masks_are_kept(index):
    made = DenseIndex(index.path)
    assert made.mask(["en", "de"]) is made.mask(["de", "en", "de"]) and made.mask(["de"]).sum() == 24
    with pytest.raises(EmptyLanguageError):
        made.mask(["fr"])


def test_what_can_be_indexed(tmp_path, index):
    data = pt.get_dataset("mart:xquad-r/de-en")
    few = [row for row, _ in zip(data.get_corpus_iter(verbose=False), range(5), strict=False)]
    frame = DOCS.rename(columns={"text": "body"}).assign(extra=1)
    for number, (documents, options, langs) in enumerate((
        (DOCS.to_dict("records"), {}, LANGS),
        (frame, {"text_field": "body"}, LANGS),
        (({"docno": row.docno, "text": row.text} for row in DOCS.itertuples()), {}, ()),
        (DOCS.drop(columns="doc_lang"), {"doc_lang": "eng"}, ("en",)),
        (DOCS.assign(doc_lang=[None, *DOCS["doc_lang"][1:]]), {}, LANGS),
        (few, {}, ()),
    )):  # fmt: skip
        made = dense(**options).index(tmp_path / str(number), documents)
        assert made.languages == langs and len(made) in (5, len(DOCS))
        out = dense(**options).retriever(made, num_results=3)(TOPICS[["qid", "query"]])
        assert ("doc_lang" in out) == bool(langs)
    assert made.meta["languages"] == [] and few[0]["docno"].startswith("en")


def test_a_dataset_says_its_language(tmp_path, monkeypatch):
    data = pt.get_dataset("mart:xquad-r/de-en")
    rows = list(itertools.islice(data.get_corpus_iter(verbose=False), 4))
    monkeypatch.setattr(type(data), "get_corpus_iter", lambda self, verbose=True: iter(rows))
    for documents in (data, "mart:xquad-r/de-en"):
        assert dense().index(tmp_path / "index", documents, overwrite=True).languages == ("en",)


def test_documents_without_a_language_are_in_none(tmp_path):
    docs = DOCS.assign(doc_lang=[None, float("nan"), "  ", *DOCS["doc_lang"][3:]])
    made = dense().index(tmp_path / "i", docs)
    out = dense().retriever(made)(TOPICS.head(1))
    unknown = out[out["docno"].isin(DOCS["docno"][:3])]
    assert len(unknown) == 3 and unknown["doc_lang"].isna().all()
    assert sum(int(made.mask([lang]).sum()) for lang in LANGS) == len(DOCS) - 3


def test_documents_are_encoded_in_chunks(tmp_path, index, monkeypatch):
    monkeypatch.setattr(dense_index, "_CHUNK", 5)
    sizes, read = [], []

    def encode(texts, langs):
        sizes.append((len(texts), len(read)))
        return dense().encode(texts, "document", langs)

    documents = (read.append(row) or row for row in DOCS.to_dict("records"))
    made = DenseIndex.build(tmp_path / "i", documents, encode, dense().maker)
    assert sizes == [(5, 5 * (i + 1)) for i in range(14)] + [(2, 72)]
    files = {path.name: path.read_bytes() for path in made.path.iterdir()}
    assert np.allclose(
        np.frombuffer(files["vecs.f4"], "f4"), np.frombuffer((index.path / "vecs.f4").read_bytes(), "f4"), atol=1e-6
    )
    assert files["doc_langs.npy"] == (index.path / "doc_langs.npy").read_bytes()


def bad(change):
    rows = DOCS.head(6).to_dict("records")
    change(rows)
    return rows


@pytest.mark.parametrize(("documents", "message"), [
    ([], "there are no documents to index"),
    (DOCS.iloc[:0], "there are no documents to index"),
    (bad(lambda rows: rows[4].update(docno=rows[1]["docno"])), "document 5: the docno 'de-n00' occurs twice"),
    (bad(lambda rows: rows[2].pop("text")), r"document 3: 'el-00' has no field 'text'; found \['doc_lang', 'docno'\]"),
    (bad(lambda rows: rows[0].pop("docno")), "document 1: expected a docno of printable ASCII .* found None"),
    (bad(lambda rows: rows[0].update(docno=7)), "document 1: expected a docno of printable ASCII .* found 7"),
    (bad(lambda rows: rows[0].update(docno="")), "document 1: expected a docno .* found ''"),
    (bad(lambda rows: rows[0].update(docno="a b")), "document 1: expected a docno .* found 'a b'"),
    (bad(lambda rows: rows[5].update(docno="é")), "document 6: expected a docno of printable ASCII .* found 'é'"),
    (["text"], "document 1: expected a dict with docno and text, found 'text'"),
])  # fmt: skip
def test_documents_that_cannot_be_indexed(documents, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        dense().index(tmp_path / "i", documents)
    assert list(tmp_path.iterdir()) == []


def test_an_index_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "i"
    first = dense().index(path, DOCS.head(3))
    with pytest.raises(FileExistsError, match="i exists; name another path or pass overwrite=True"):
        dense().index(path, DOCS)

    def breaks():
        yield from DOCS.head(10).to_dict("records")
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        dense().index(path, breaks(), overwrite=True)
    assert len(DenseIndex(path)) == 3 and DenseIndex(path) == first and list(tmp_path.iterdir()) == [path]
    second = dense().index(path, DOCS.head(5), overwrite=True)
    assert len(second) == 5 and second != first
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="mine exists and is not replaced, since it holds no pt_meta.json"):
        dense().index(tmp_path / "mine", DOCS, overwrite=True)


def test_documents_without_text_are_counted(tmp_path):
    docs = DOCS.assign(text=pd.Series([None, 3.5, *DOCS["text"][2:]], dtype=object))
    with pytest.warns(UserWarning) as caught:
        dense().index(tmp_path / "i", docs)
    assert messages(caught) == ["2 of 72 documents have no text in 'text' and count as empty"]


def test_other_weights_or_another_centring_are_refused(index, centring, tmp_path):
    other = trained()
    for made, what in (
        (other.apply_attributes(post=None), "with no post-processing, and the retriever is .*bert-0.1"),
        (dense(post=centring), r"with no post-processing, and the retriever is .* with LanguageCentering\(\)<"),
        (dense(config=MetaConfig(max_length=(5, 5))), "bert-0.1 .weights .*bert-0.1 .weights"),
    ):
        for rows in (TOPICS, ROWS.drop(columns="text")):
            with pytest.raises(ValueError, match=rf"the index .*plain was made by .*{what}"):
                made.retriever(index)(rows)
    of_centred = dense(post=centring).index(tmp_path / "i", DOCS)
    with pytest.raises(ValueError, match=r"was made by .* with LanguageCentering\(\)<.* is .* with no post-processing"):
        dense().retriever(of_centred)(TOPICS)
    assert len(dense(post=centring, batch_size=3).retriever(of_centred, num_results=1)(TOPICS)) == 4


@pytest.mark.parametrize("options", [{}, {"sides": "documents"}, None], ids=str)
def test_vectors_of_an_index_are_used_again(options, index, tmp_path, monkeypatch):
    made = dense(post=options if options is None else LanguageCentering.fit_corpus(base(), corpus(), **options))
    anew = made.index(tmp_path / "anew", corpus())
    encoder = made.load_model()
    monkeypatch.setattr(made, "load_model", lambda: encoder)
    monkeypatch.setattr(encoder, "features", lambda texts, side: pytest.fail("texts are encoded"))
    monkeypatch.setattr(dense_index, "_CHUNK", 5)
    again = made.index(tmp_path / "again", index)
    everything = np.arange(len(anew))
    assert np.allclose(again.vectors(everything), anew.vectors(everything), atol=1e-6)
    assert again.docnos(everything) == anew.docnos(everything) and again.maker == anew.maker == made.maker
    assert again.doc_langs(everything) == anew.doc_langs(everything)
    assert {**again.meta, "content": ""} == {**anew.meta, "content": ""}
    monkeypatch.undo()
    pd.testing.assert_frame_equal(made.retriever(again)(TOPICS), made.retriever(anew)(TOPICS))


def test_languages_of_an_index_that_is_used_again(centring, tmp_path):
    raw = dense().index(tmp_path / "raw", DOCS.assign(doc_lang=["xx", *[None] * 3, *DOCS["doc_lang"][4:]]))
    with pytest.warns(UserWarning, match=r"from 4 document vectors .*does not know: none \(3\), xx \(1\)") as caught:
        again = dense(post=centring, verbose=True).index(tmp_path / "i", raw)
    assert len(messages(caught)) == 1 and caught[0].filename == __file__
    assert again.doc_langs(np.arange(5)) == ["xx", None, None, None, DOCS["doc_lang"][4]]
    known = dense(doc_lang="fr").index(tmp_path / "i", raw, overwrite=True)
    assert known.doc_langs(np.arange(5)) == ["xx", "fr", "fr", "fr", DOCS["doc_lang"][4]]


def test_an_index_of_other_vectors_is_not_used_again(index, centring, tmp_path):
    centred = dense(post=centring).index(tmp_path / "centred", index)
    for made in (dense(post=centring), dense()):
        with pytest.raises(ValueError, match=r"centred was made by .*LanguageCentering.*: its vectors are centred"):
            made.index(tmp_path / "i", centred)
    with pytest.raises(ValueError, match=r"plain was made by .*, and the retriever is .*: its vectors cannot be used"):
        dense(config=MetaConfig(max_length=(5, 5))).index(tmp_path / "i", index)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        dense(post=centring).index(tmp_path / "centred", index)
    assert [path.name for path in tmp_path.iterdir()] == ["centred"]


def test_docnos_that_are_not_in_the_index(index):
    full = dense().retriever(index)
    for docno in ("nope", "ü", "", None, 7):
        rows = ROWS[["qid", "query", "docno"]].astype({"docno": object})
        rows.loc[2, "docno"] = docno
        with pytest.raises(ValueError, match=r"1 of 16 rows have a docno that is not in the index .*plain, such as"):
            full(rows)


@pytest.mark.parametrize("docnos", [
    ["00001", "00002", "00010"], ["1000000000001", "1000000000002", "3"], ["4fad77e7", "98", "x"],
    ["5635039037966449933479", "93", "4"], [f"{i:04d}" for i in range(300)] + ["x1", "x2"], ["a" * 300, "b"],
])  # fmt: skip
def test_docnos_that_npids_gets_wrong(docnos, tmp_path):
    texts = [str(i) for i in range(len(docnos))]
    frame = pd.DataFrame({"docno": docnos, "text": texts})
    vectors = np.eye(len(docnos), dtype=np.float32)
    made = DenseIndex.build(
        tmp_path / "i", frame.to_dict("records"), lambda texts, _: vectors[[int(t) for t in texts]], dense().maker
    )
    assert made.docids(docnos[::-1]).tolist() == list(range(len(docnos)))[::-1]
    hits = made.search(vectors, 1, None, "cpu")
    assert made.docnos(hits.docid) == docnos
    assert [row["docno"] for row in made.flex.get_corpus_iter(verbose=False)] == docnos


def test_a_single_document_cannot_be_indexed(tmp_path):
    with pytest.raises(ValueError, match="cannot store the docnos of these 1 documents, 'de-00' to 'de-00'"):
        dense().index(tmp_path / "i", DOCS.head(1))
    assert list(tmp_path.iterdir()) == []


def test_pyterrier_dr_reads_the_index(index):
    flex = pt.Artifact.load(index.path)
    assert isinstance(flex, FlexIndex) and len(flex) == 72
    assert [row["docno"] for row in flex.get_corpus_iter(verbose=False)] == DOCS["docno"].tolist()


def test_a_flex_index_of_something_else(tmp_path):
    flex = FlexIndex(str(tmp_path / "flex"), verbose=False)
    flex.index([{"docno": docno, "doc_vec": np.ones(3, dtype=np.float32)} for docno in "ab"])
    with pytest.raises(ValueError, match=r"flex is a FlexIndex that MetaSBERTRetriever.index\(\) did not make"):
        DenseIndex(flex.index_path)
    (tmp_path / "empty").mkdir()
    for path, error, message in (
        ("nothing", FileNotFoundError, "no index of vectors at .*nothing"),
        ("empty", ValueError, "empty is no index of vectors: it has no pt_meta.json"),
    ):
        with pytest.raises(error, match=message):
            MetaSBERTRetriever(models.bert(), tmp_path / path)


@pytest.mark.parametrize(("damage", "message"), [
    (lambda path: (path / "vecs.f4").write_bytes(b"12"), r"damaged index of vectors .*: vecs.f4 has 2 bytes, expected"),
    (lambda path: (path / "vecs.f4").unlink(), "damaged index of vectors .*: vecs.f4 has None bytes"),
    (lambda path: (path / "docnos.npids").unlink(), "docnos.npids has None bytes, expected a file"),
    (lambda path: (path / "doc_langs.npy").unlink(), "cannot read doc_langs.npy"),
    (lambda path: (path / "doc_langs.npy").write_bytes(b""), "cannot read doc_langs.npy"),
    (lambda path: np.save(path / "doc_langs.npy", np.zeros(3, np.uint8)), r"shape \(3,\), expected uint8 of shape"),
    (lambda path: (path / "pt_meta.json").write_text("{"), "pt_meta.json is not JSON"),
    (lambda path: meta(path, "languages", None), "pt_meta.json lacks languages"),
    (lambda path: meta(path, "mart_version", 9), "its mart_version is 9, this version of pyterrier_mart reads 1"),
    (lambda path: meta(path, "type", "sparse_index"), "is no index of vectors"),
])  # fmt: skip
def test_a_damaged_index(damage, message, damaged):
    damage(damaged)
    with pytest.raises(ValueError, match=message) as caught:
        DenseIndex(damaged)
    assert str(damaged) in str(caught.value)


def meta(path, key, value):
    """Changes a value of pt_meta.json; ``None`` removes it."""
    values = json.loads((path / "pt_meta.json").read_text())
    values[key] = value
    (path / "pt_meta.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def test_indexes_are_values(index, damaged):
    again = DenseIndex(index.path)
    assert again == index and hash(again) == hash(index) and index != DenseIndex(damaged) and index != "plain"
    assert pickle.loads(pickle.dumps(index)) == index
    assert repr(index).endswith("plain', 72 documents in de, el, en)")


def test_without_pyterrier_dr(index, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyterrier_dr", None)
    with pytest.raises(ImportError, match="pip install pyterrier-dr"):
        dense().index(tmp_path / "i", DOCS)
    with pytest.raises(ImportError, match="pip install pyterrier-dr"):
        DenseIndex(index.path).flex  # noqa: B018


# ------------------------------------------------------------------------------------------------------------ pipelines


def test_a_cutoff_retrieves_less_and_still_cuts_rankings(index):
    full = dense().retriever(index)
    fused = (full % 2).compile()
    assert "num_results=2" in repr(fused)
    for rows in (TOPICS, ROWS):
        pd.testing.assert_frame_equal(fused(rows), (full % 2)(rows))
        assert len(fused(rows)) == 2 * len(TOPICS)
    assert full.fuse_rank_cutoff(1000) is None and dense().fuse_rank_cutoff(2) is None


def test_the_same_question_twice_has_its_rows_twice(index):
    rows = pd.concat([TOPICS.iloc[[1, 0]], TOPICS.iloc[[1]].assign(qid="again")]).set_axis([7, 7, 3])
    out = dense().retriever(index, num_results=3)(rows.assign(score=1.0, rank=0, docno_before="x"))
    assert out["qid"].tolist() == [qid for qid in rows["qid"] for _ in range(3)]
    assert out["docno"].tolist()[:3] == out["docno"].tolist()[6:] and out["rank"].tolist() == [0, 1, 2] * 3
    assert list(out.index) == list(range(9))


def test_search(index):
    out = dense().retriever(index, num_results=4).search(DOCS["text"][8])
    assert out["docno"][0] == DOCS["docno"][8] and len(out) == 4


def test_experiments(index):
    full = dense().retriever(index)
    qrels = corpus().qrels
    for plan in ("linear", "tree"):
        table = pt.Experiment([full, full.languages("de"), full >> dense().retriever(index)], TOPICS, qrels,
            ["map"], names=["all", "de", "twice"], plan=plan)  # fmt: skip
        assert table["map"][0] == pytest.approx(table["map"][2])


def test_vectors_as_columns(centring):
    for made in (dense(), dense(post=centring, text_field="body")):
        topics = made.query_encoder()(TOPICS.assign(query_vec=1))
        docs = made.doc_encoder()(DOCS.rename(columns={"text": made.text_field}))
        assert topics["query_vec"][0].dtype == np.float32 and list(topics) == [*TOPICS, "query_vec"]
        expected = made.encode(DOCS["text"], "document", DOCS["doc_lang"].tolist())
        assert np.allclose(np.stack(docs["doc_vec"]), expected, atol=1e-6)
        assert np.allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-6)
    with pytest.raises(pt.validate.InputValidationError, match="body"):
        made.doc_encoder()(DOCS)
    with pytest.raises(ValueError, match="side must be 'query' or 'document', not 'doc'"):
        type(made.doc_encoder())(made, "doc")


def test_encode_wants_a_language_for_each_text():
    with pytest.raises(ValueError, match="expected a language for each of 2 texts, found 1"):
        dense().encode(["a", "b"], "query", ["de"])


# ------------------------------------------------------------------------------------------------------------- centring


def test_languages_come_from_columns_or_arguments(centring):
    centred = dense(post=centring)
    usual = scores(centred)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        german = ROWS.assign(query_lang="de", doc_lang=ROWS["doc_lang"].where(ROWS["doc_lang"] != "de"))
        named = dense(post=centring, query_lang="deu", doc_lang="de")
        assert np.allclose(
            scores(named, german.drop(columns="query_lang")), scores(centred, ROWS.assign(query_lang="de"))
        )
        assert not np.allclose(scores(named, german), usual)
    with pytest.warns(UserWarning) as caught:
        centred(ROWS.drop(columns="query_lang"))
    (message,) = messages(caught)
    assert "from 16 query vectors in languages that the centring does not know: none (16)" in message
    assert "query_lang" in message


def test_unknown_languages_of_documents_are_counted_once_in_an_index(centring, tmp_path, monkeypatch):
    monkeypatch.setattr(dense_index, "_CHUNK", 10)
    with pytest.warns(UserWarning) as caught:
        dense(post=centring).index(tmp_path / "i", DOCS.assign(doc_lang=["fr"] * 70 + [None] * 2))
    (message,) = messages(caught)
    assert "from 72 document vectors" in message and "fr (70), none (2)" in message


def test_a_centring_of_other_vectors_is_refused(centring):
    other = dense(config=MetaConfig(max_length=(4, 4)), post=centring)
    with pytest.raises(ValueError, match="post was fitted on the vectors of an encoder with the fingerprint"):
        other(ROWS)
    vectors = pd.DataFrame({"doc_vec": [np.ones(3, np.float32), np.zeros(3, np.float32)], "doc_lang": ["de", "en"]})
    short = LanguageCentering(sides="documents").fit(None, vectors)
    with pytest.raises(ValueError, match="fitted on vectors of length 3, and those of .* have 32"):
        dense(post=short)(ROWS)
    with pytest.raises(ValueError, match="is not fitted"):
        dense(post=LanguageCentering())(ROWS)
    assert list(dense(post=LanguageCentering())(ROWS.iloc[:0])) == [*ROWS, "score", "rank"]


def test_fitting_it_with_frames_or_a_corpus_is_the_same(centring):
    part = corpus()
    frames = LanguageCentering().fit(dense().query_encoder()(part.topics), dense().doc_encoder()(part.docs))
    assert same(dense(post=frames), dense(post=centring))
    few = LanguageCentering.fit_corpus(base(), part, sample=5)
    assert few == LanguageCentering.fit_corpus(base(), part, sample=5) != centring
    with pytest.raises(ValueError, match="sample must be None or a whole number >= 1, not 0"):
        LanguageCentering.fit_corpus(base(), part, sample=0)
    assert centring.encoder == base().fingerprint


def test_evaluation_takes_a_retriever_as_it_is(centring):
    frame = lareqa_evaluate(dense(post=centring), corpus())
    pd.testing.assert_frame_equal(frame, lareqa_evaluate(dense().encoder, corpus(), post=centring))


# ------------------------------------------------------------------------------------------------------------- learning


def test_training_changes_what_is_found():
    made = trained()
    assert made.history is not None and made.weights is not None and made != dense(config=QUICK, post=made.post)
    assert not same(made, dense())
    assert [row["step"] for row in made.history.steps] == [0, 1, 2, 3]
    assert all("dev_multi" in row for row in made.history.steps)
    assert made.post.encoder == made.fingerprint
    assert equal(state(dense()), state(base()))


def test_few_validation_questions_are_asked_over_all_documents(monkeypatch):
    part, asked = corpus(), []
    evaluation = "pyterrier_mart.evaluation.lareqa.lareqa_evaluate"
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
    other = few_questions(part, 2, seed=7)
    assert set(other.topics["qid"]) != two and set(other.topics["query_lang"]) == set(LANGS)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
def test_no_validation_questions_are_too_few(value):
    with pytest.raises(ValueError, match=f"valid_questions must be None or a whole number >= 1, not {value!r}"):
        MetaConfig(valid_questions=value)
    config = MetaConfig(valid_questions=3)
    assert MetaConfig.from_json(config.to_json()) == config and "valid_questions=3" in config.short()


def test_training_again_starts_again_and_gives_the_same():
    part = corpus()
    made = trained().apply_attributes(post=LanguageCentering())
    made.fit(part.topics, part.qrels, part.topics.head(9), part.qrels)
    assert equal(state(made), state(trained())) and made == trained() and made.fingerprint == trained().fingerprint


def test_pipelines_pass_rows_with_texts():
    part = corpus()
    candidates = part.topics.merge(part.docs.drop(columns="group"), how="cross")
    first = pt.Transformer.from_df(candidates.drop(columns=["query", "query_lang"]).assign(score=1.0, rank=0))
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


@pytest.mark.parametrize("algorithm", ["maml-align", "maml", "reptile", "meta-sgd", "fine-tune"])
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


def test_training_goes_on_where_it_was(tmp_path):
    part = corpus()
    options = {"config": QUICK, "corpus": part, "output_dir": tmp_path / "run"}
    made = dense(**options).fit(part.topics, part.qrels)
    again = dense(**options).fit(part.topics, part.qrels)
    assert equal(state(made), state(again)) and (tmp_path / "run" / "log.csv").exists()


def test_an_index_of_before_training_is_refused(index):
    part = corpus()
    made = dense(dense_index=index, config=QUICK.replace(max_steps=1), corpus=part).fit(part.topics, part.qrels)
    with pytest.raises(ValueError, match=r"index the documents again, with index\(\)"):
        made(TOPICS)
    assert len(made(ROWS)) == len(ROWS)


@pytest.mark.parametrize(("change", "message"), [
    (lambda t, q: (None, q), "topics_or_res_tr must be a data frame, not None"),
    (lambda t, q: (t.iloc[:0], q), "topics_or_res_tr is empty"),
    (lambda t, q: (t.drop(columns="query"), q), "topics_or_res_tr lacks the column 'query'"),
    (lambda t, q: (t, q.drop(columns="label")), "qrels_tr lacks the column 'label'"),
    (lambda t, q: (t, q.assign(label=0)), r"no question of topics_or_res_tr has a relevant document \(label > 0\)"),
    (lambda t, q: (t, q.iloc[:0]), "no question of topics_or_res_tr has a relevant document"),
    (lambda t, q: (t.assign(qid="x" + t["qid"]), q), "no question of topics_or_res_tr has a relevant document"),
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
    with pytest.raises(EmptyLanguageError, match="no questions in hi"):
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


def test_adapting_leaves_the_original_as_it_is(centring):
    part = corpus()
    made = dense(corpus=part, post=centring, config=QUICK)
    before, untouched = state(made), scores(made)
    adapted = made.adapt(part.topics.head(5), part.qrels, steps=3, lr=0.05)
    assert equal(before, state(made)) and np.array_equal(scores(made), untouched)
    assert made.weights is None and made.post is centring
    assert adapted.weights is not None and not np.allclose(scores(adapted), untouched) and adapted != made
    assert equal(state(adapted), state(made.adapt(part.topics.head(5), part.qrels, steps=3, lr=0.05)))
    nothing = made.adapt(part.topics.head(5), part.qrels, steps=0)
    assert equal(state(nothing), before)
    again = adapted.adapt(part.topics.head(2), part.qrels, steps=1, lr=0.05)
    assert not np.allclose(scores(again), scores(adapted))
    for options, message in (({"steps": -1}, "steps must be None or a number >= 0, not -1"), ({"lr": True}, "lr must")):
        with pytest.raises(ValueError, match=message):
            made.adapt(part.topics, part.qrels, **options)


def test_adapting_to_mined_negatives():
    part = corpus()
    config = QUICK.replace(negatives="hard", n_neg=2, loss="triplet", k_shot=3)
    made = dense(corpus=part, config=config).adapt(part.topics.head(4), part.qrels, lr=0.05)
    assert not same(made, dense())


# ------------------------------------------------------------------------------------------------------------ identity


def test_equality_is_by_value(index, centring):
    assert dense() == MetaSBERTRetriever(models.bert()) and dense() == dense(batch_size=3, device=None)
    others = [
        dense(dense_index=index), dense(post=centring), dense(query_lang="de"), dense(doc_lang="de"),
        dense(num_results=3), dense(doc_langs=["de"]), dense(text_field="body"), dense(algorithm="maml"),
        dense(config=QUICK), dense(model=models.bert(0.2)), trained(),
    ]  # fmt: skip
    for one, other in itertools.combinations([dense(), *others], 2):
        assert one != other and repr(one) != repr(other)
    assert dense().query_encoder() == dense().query_encoder() != dense().doc_encoder()


def test_copies_share_the_weights(index):
    made = base()
    for other in (made.retriever(index), made.retriever(index).languages("de"), made.apply_attributes(verbose=True)):
        assert other.encoder.model is made.encoder.model
    assert trained().apply_attributes(num_results=3).encoder.model is trained().encoder.model
    assert trained().apply_attributes(model=models.bert()).weights is None
    with pytest.raises(ValueError, match="unknown argument modle; expected some of model, dense_index"):
        made.apply_attributes(modle="x")


def test_pickles_hold_only_what_was_trained(index):
    assert len(pickle.dumps(dense(dense_index=index))) < 5_000 < 100_000 < len(pickle.dumps(trained()))
    for made, rows in ((trained(), ROWS), (dense(dense_index=index), TOPICS)):
        made(rows)
        copy = pickle.loads(pickle.dumps(made))
        assert copy == made and np.allclose(scores(copy, rows), scores(made, rows), atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- on disk


def test_what_is_saved_scores_as_before(saved):
    for loaded in (
        MetaSBERTRetriever.load(saved, device="cpu"),
        MetaSBERTModel(saved).retriever(device="cpu"),
        pickle.loads(pickle.dumps(MetaSBERTRetriever.load(saved, device="cpu"))),
    ):
        assert np.array_equal(scores(loaded), scores(trained())) and loaded == trained()
        assert loaded.config == QUICK and loaded.post == trained().post and loaded.num_results == 7
        assert [row["step"] for row in loaded.history.steps] == [0, 1, 2, 3] and loaded.query_lang == "en"


def test_sentence_transformers_loads_it(saved):
    model = SentenceTransformer(str(saved), device="cpu")
    vectors = model.encode(DOCS["text"].tolist(), normalize_embeddings=True)
    assert np.allclose(vectors, trained().encode(DOCS["text"], "document", post=False), atol=1e-5)
    assert same(MetaSBERTRetriever(saved, device="cpu"), trained().apply_attributes(post=None))


def test_it_is_an_artifact(saved, index):
    model = MetaSBERTModel.load(saved)
    assert model.meta["type"] == "text_encoder" and repr(model).endswith("bert-0.1, maml-align)")
    assert pt.inspect.artifact_type_format(model) == ("text_encoder", "mart_sbert")
    assert model.retriever(num_results=3, doc_langs=["de"], device="cpu").doc_langs == ("de",)


def test_an_index_may_be_searched_after_loading(saved, tmp_path):
    made = trained().index(tmp_path / "i", corpus())
    usual = trained().retriever(made)(TOPICS)
    again = MetaSBERTRetriever.load(saved, tmp_path / "i", device="cpu")(TOPICS)
    pd.testing.assert_frame_equal(usual, again)


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
        assert MetaSBERTRetriever.load(path) == loaded


def test_only_what_was_saved_here_is_replaced(saved, tmp_path):
    with pytest.raises(FileExistsError, match="saved exists; name another path or pass overwrite=True"):
        dense().save(saved)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="is not replaced, since it holds no pt_meta.json"):
        dense().save(tmp_path, overwrite=True)


def test_every_damaged_file_is_named(copied):
    names = [path.relative_to(copied).as_posix() for path in sorted(copied.rglob("*")) if path.is_file()]
    assert {"meta_config.json", "language_centring.safetensors", "train_log.json", "model.safetensors"} <= set(names)
    for name in names:
        if name == "pt_meta.json":
            continue
        whole = (copied / name).read_bytes()
        changed = bytearray(whole)
        changed[-1] ^= 1
        for content in (bytes(changed), whole[: len(whole) // 2], b"", None):
            if content is None:
                (copied / name).unlink()
            else:
                (copied / name).write_bytes(content)
            with pytest.raises(ValueError, match="damaged saved MetaSBERTRetriever") as caught:
                MetaSBERTRetriever.load(copied, device="cpu")
            assert str(copied) in str(caught.value)
            assert name in str(caught.value) or name == "model.safetensors"
            (copied / name).write_bytes(whole)
    assert MetaSBERTRetriever.load(copied, device="cpu") == trained()


@pytest.mark.parametrize(("key", "value", "message"), [
    ("weights", "0", "its weights are not those that were saved"),
    ("fingerprint", "0", "its weights are not those that were saved"),
    ("settings", {}, "has the settings {}"),
    ("files", {}, "has the files {}"),
    ("files", None, "pt_meta.json lacks files"),
    ("format", "mart", "is no saved MetaSBERTRetriever: pt_meta.json says"),
    ("format_version", 2, "its format_version is 2, this version of pyterrier_mart reads 1"),
])  # fmt: skip
def test_damaged_metadata(key, value, message, copied):
    meta(copied, key, value)
    with pytest.raises(ValueError, match=message) as caught:
        MetaSBERTRetriever.load(copied, device="cpu")
    assert str(copied) in str(caught.value)


def test_what_is_not_there():
    with pytest.raises(FileNotFoundError, match="no saved MetaSBERTRetriever at nowhere"):
        MetaSBERTRetriever.load("nowhere")
    with pytest.raises(ValueError, match="is no saved MetaSBERTRetriever: it has no pt_meta.json"):
        MetaSBERTRetriever.load(models.bert())


def test_pyterrier_loads_a_saved_model(tmp_path):
    dense = MetaSBERTRetriever(models.bert(), device="cpu")
    dense.save(tmp_path / "saved")
    loaded = pt.Artifact.load(str(tmp_path / "saved"))
    assert type(loaded).__name__ == "MetaSBERTModel"
    assert loaded.retriever(device="cpu").fingerprint == dense.fingerprint
