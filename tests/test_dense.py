"""The dense room: what a retriever scores and finds, and what its indexes hold."""

import configparser
import importlib.metadata
import itertools
import json
import pickle
import shutil
import warnings
from functools import partial
from pathlib import Path

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
from pyterrier_dr import FlexIndex
from sentence_transformers import SentenceTransformer

from pyterrier_mart.dense import retriever
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.index import DenseIndex, Provenance
from pyterrier_mart.dense.retriever import DenseRetriever
from pyterrier_mart.meta import EmptyLanguageError, MetaConfig, MetaSBERTRetriever

pytestmark = pytest.mark.usefixtures("one_thread")


# ----------------------------------------------------------------------------------------------------------- re-ranking


def test_scores_are_cosines_of_the_encoders_vectors():
    model = SentenceTransformer(str(models.bert()), device="cpu")
    out = dense()(ROWS.assign(score=1.0, rank=3))
    queries, documents = (model.encode(ROWS[c].tolist(), normalize_embeddings=True) for c in ("query", "text"))
    assert np.allclose(out["score"], (queries * documents).sum(axis=1), atol=1e-5)


def test_what_does_not_learn_scores_the_same():
    made = DenseRetriever(models.bert(), device="cpu", max_length=(3, 3))
    assert same(made, dense(config=MetaConfig(max_length=(3, 3)))) and not same(made, dense())
    assert repr(made) != repr(DenseRetriever(models.bert())) and "max_length=(3, 3)" in repr(made)


def test_what_is_not_there_is_said_when_it_is_loaded(tmp_path):
    made = MetaSBERTRetriever(tmp_path / "no", index())
    assert list(made(TOPICS.iloc[:0])) == [*TOPICS, "docno", "doc_lang", "score", "rank"]
    with pytest.raises(FileNotFoundError, match="there is no model at .*no"):
        made.load_model()


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
    monkeypatch.setattr("pyterrier_mart.vectors._PART", 3)
    assert np.allclose(scores(dense(batch_size=1)), usual, atol=1e-6)
    assert repr(dense(batch_size=1, device=None)) == repr(dense()) != repr(dense(config=MetaConfig(k_shot=3)))


def test_vectors_of_the_input_are_kept_and_not_used():
    rows = ROWS.assign(query_vec=[np.ones(3)] * len(ROWS), doc_vec=[np.ones(3)] * len(ROWS))
    out = dense()(rows)
    assert np.allclose(out["score"], scores(dense())) and out["doc_vec"][0].tolist() == [1, 1, 1]


def test_broken_weights_raise(tmp_path):
    broken = MetaSBERTRetriever(SentenceTransformer(str(models.bert()), device="cpu"))
    with torch.no_grad():
        broken.encoder.model[0].model.encoder.layer[0].output.dense.weight.fill_(float("nan"))
    for use in (lambda: broken(ROWS), lambda: broken.index(tmp_path / "broken", DOCS)):
        with pytest.raises(ValueError, match=r"the vector of a .* is not finite: the weights of .* are damaged"):
            use()
    assert list(tmp_path.iterdir()) == []


def test_bars_are_shown_when_asked_for(capsys, tmp_path):
    loud = dense(verbose=True)
    made = loud.index(tmp_path / "loud", iter(DOCS.to_dict("records")))
    assert "MetaSBERTRetriever index" in capsys.readouterr().err
    for system, rows in ((loud, ROWS), (loud.retriever(made), TOPICS), (loud.query_encoder(), TOPICS)):
        system(rows)
        assert "MetaSBERTRetriever" in capsys.readouterr().err
    LanguageCentering.fit_corpus(loud, corpus(), sample=5)
    assert "LanguageCentering" in capsys.readouterr().err
    LanguageCentering.fit_corpus(dense(), corpus(), sample=5)
    assert capsys.readouterr() == ("", "")


# -------------------------------------------------------------------------------------------------------- what it takes


@pytest.mark.parametrize(("options", "message"), [
    ({"algorithm": "mamal"}, "algorithm must be one of maml-align, maml, .*zero-shot, not 'mamal'"),
    ({"num_results": 0}, "num_results must be a whole number >= 1, not 0"),
    ({"batch_size": True}, "batch_size must be a whole number >= 1, not True"),
    ({"query_lang": 3}, "query_lang must be None or languages"),
    ({"doc_langs": "de"}, r"doc_langs must be None or languages \(such as 'de'\), not 'de'"),
    ({"doc_langs": ()}, r"doc_langs must be None or languages \(such as 'de'\), not \(\)"),
])  # fmt: skip
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MetaSBERTRetriever(**{"model": models.bert(), **options})


def test_attributes_may_be_set():
    for name, value in (("num_results", 2), ("doc_langs", ("de",)), ("query_lang", "de")):
        made = dense(dense_index=index())
        made(TOPICS)
        setattr(made, name, value)
        pd.testing.assert_frame_equal(made(TOPICS), dense(dense_index=index(), **{name: value})(TOPICS))
    made = dense()
    made(ROWS)
    made.post = centring()
    assert same(made, dense(post=centring())) and not same(made, dense())
    made.post, made.config = None, MetaConfig(max_length=(3, 3))
    assert same(made, dense(config=MetaConfig(max_length=(3, 3)))) and not same(made, dense())
    made.config, made.model = None, models.bert(0.2)
    assert same(made, dense(model=models.bert(0.2))) and not same(made, dense())


def test_a_model_may_be_given():
    model = SentenceTransformer(str(models.bert()), device="cpu")
    made = MetaSBERTRetriever(model)
    assert made.encoder.model is model and same(made, dense())
    assert " at 0x" not in repr(made) and repr(made) == repr(MetaSBERTRetriever(model))
    copy = pickle.loads(pickle.dumps(made))
    assert repr(copy) == repr(made) and same(copy, made)
    before = made.fingerprint
    with torch.no_grad():
        model[0].model.encoder.layer[0].output.dense.bias.add_(1)
    assert made.fingerprint != before and repr(made) != repr(copy)


@pytest.mark.parametrize("backend", ["inplace", "functional"])
def test_vectors_are_as_long_as_the_model_says(backend, tmp_path):
    model = SentenceTransformer(str(models.bert()), device="cpu", truncate_dim=8)
    made = DenseRetriever(model)
    texts = TOPICS["query"].tolist()
    vectors = made.encode(texts, "query")
    assert np.allclose(vectors, model.encode(texts, normalize_embeddings=True), atol=1e-5)
    assert vectors.shape == (len(texts), 8) == (len(texts), made.encoder.dimension)
    assert made.fingerprint != DenseRetriever(models.bert()).fingerprint
    full = made.retriever(made.index(tmp_path / "index", corpus()), num_results=3)
    assert full.dense_index.vectors.shape[1] == 8 and len(full(TOPICS)) == 3 * len(TOPICS)
    model.truncate_dim = 4
    with pytest.raises(ValueError, match=r"was made by .*, and the retriever is"):
        full(TOPICS)
    part = corpus()
    learner = MetaSBERTRetriever(model, config=QUICK.replace(backend=backend), corpus=part)
    learner.fit(part.topics, part.qrels).save(tmp_path / "saved")
    assert MetaSBERTRetriever.load(tmp_path / "saved").encode(texts, "query").shape == (len(texts), 4)


# -------------------------------------------------------------------------------------------------------------- indexes


def test_retrieval_is_exact():
    out = dense().retriever(index(), num_results=5)(TOPICS)
    queries, documents = dense().encode(TOPICS["query"], "query"), dense().encode(DOCS["text"], "document")
    best = np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :5]
    assert out["docno"].tolist() == DOCS["docno"].to_numpy()[best].ravel().tolist()
    assert np.allclose(out["score"], np.sort(queries @ documents.T)[:, ::-1][:, :5].ravel(), atol=1e-6)
    assert out["rank"].tolist() == list(range(5)) * 4
    assert out["doc_lang"].tolist() == [docno[:2] for docno in out["docno"]]
    assert list(out) == [*TOPICS, "docno", "doc_lang", "score", "rank"]


def test_all_ways_to_rank_agree(tmp_path):
    centred = dense(post=centring())
    for made, of, encoder in (
        (dense(), index(), dense().query_encoder()),
        (centred, centred.index(tmp_path / "agree", corpus()), dense().query_encoder() >> centring()),
    ):
        full = made.retriever(of)
        found = full(TOPICS)
        ways = {
            "texts": full(found.merge(DOCS[["docno", "text"]], on="docno")), "the index's vectors": full(found),
            "query_vec": (encoder >> of.retriever())(TOPICS),
            "pyterrier_dr": (made.query_encoder() >> of.flex.torch_retriever(num_results=1000))(TOPICS),
        }  # fmt: skip
        for way, again in ways.items():
            merged = found.merge(again, on=["qid", "docno"], suffixes=("", "_again"))
            assert len(merged) == len(found) and np.allclose(merged["score"], merged["score_again"], atol=1e-5), way


def test_vectors_of_queries_are_searched():
    rows = dense().query_encoder()(TOPICS)
    search = index().retriever(num_results=3)
    usual = dense().retriever(index(), num_results=3)(TOPICS)
    pd.testing.assert_frame_equal(search(rows).drop(columns="query_vec"), usual)
    german = index().retriever(num_results=3, doc_langs=["de"], device="cpu")(rows)
    assert set(german["doc_lang"]) == {"de"} and len(german) == 12
    assert list(search(rows.iloc[:0])) == [*rows, "docno", "doc_lang", "score", "rank"]
    pd.testing.assert_frame_equal((search % 2).compile()(rows), (search % 2)(rows))
    assert search.fuse_rank_cutoff(3) is None
    assert repr(search.fuse_rank_cutoff(2)) == repr(index().retriever(num_results=2))
    with pytest.raises(pt.validate.InputValidationError, match="query_vec"):
        search(TOPICS)
    assert index().retriever(doc_langs=["deu"]).doc_langs == ("de",)
    with pytest.raises(ValueError, match="doc_langs must be None or languages"):
        index().retriever(doc_langs=[])


def test_only_some_languages():
    full = dense().retriever(index())
    everything = full(TOPICS)
    for langs in (("de",), ("el", "en"), ("deu", "de")):
        out = full.languages(*langs)(TOPICS)
        wanted = everything[everything["doc_lang"].isin([lang[:2] for lang in langs])]
        found, expected = (sorted(zip(of["qid"], of["docno"], strict=True)) for of in (out, wanted))
        assert found == expected and np.allclose(out["score"], wanted["score"], atol=1e-6)
    assert repr(full.languages("de").languages()) == repr(full) != repr(full.languages("de"))
    for make in (
        lambda: full.languages("fr"), lambda: dense().retriever(index(), doc_langs=["fr"]),
        lambda: MetaSBERTRetriever(models.bert(), index(), doc_langs=["de", "fr"]),
    ):  # fmt: skip
        with pytest.raises(EmptyLanguageError, match="plain has no documents in fr; it has de, el, en"):
            make()


def made_of(path, docnos, vectors, langs=None):
    """An index of given vectors."""
    chunk = docnos, langs or [None] * len(docnos), vectors
    return DenseIndex.write(path, [chunk], Provenance("given vectors", "0"))


def test_scores_below_zero_are_found_before_other_languages(tmp_path):
    # Where scores of other documents are merely set to 0, they are better than negative ones.
    vectors = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    made = made_of(tmp_path / "i", [f"d{i}" for i in range(6)], vectors, ["de", "en"] * 3)
    query = -vectors[0] - vectors[2] - vectors[4]
    found = made.retriever(num_results=3, doc_langs=["de"])(pd.DataFrame({"qid": ["q"], "query_vec": [query]}))
    assert found["score"].max() < 0 and set(found["docno"]) == {"d0", "d2", "d4"}


def test_relative_paths_are_those_of_the_moment(tmp_path, monkeypatch):
    dense().index(tmp_path / "i", DOCS)
    (tmp_path / "model").symlink_to(models.bert())
    usual = dense().retriever(DenseIndex(tmp_path / "i"))(TOPICS)
    monkeypatch.chdir(tmp_path)
    for model in ("model", Path("model")):
        made = DenseRetriever(model, "i", device="cpu")
        monkeypatch.chdir("/")
        pd.testing.assert_frame_equal(made(TOPICS), usual)
        pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(made))(TOPICS), usual)
        monkeypatch.chdir(tmp_path)


def test_one_result_for_each_query(tmp_path):
    one, best = dense().retriever(index(), num_results=1), dense().retriever(index())(TOPICS)
    pd.testing.assert_frame_equal(one(TOPICS), best[best["rank"] == 0].reset_index(drop=True))
    assert len(one(TOPICS.head(1))) == 1
    made = dense().index(tmp_path / "i", DOCS.head(6).assign(doc_lang=["fr", *["de"] * 5]))
    out = dense().retriever(made).languages("fr")(TOPICS)
    assert out["docno"].tolist() == ["de-00"] * 4 and out["rank"].tolist() == [0] * 4


def test_what_can_be_indexed(tmp_path):
    data = pt.get_dataset("mart:xquad-r/de-en")
    few = list(itertools.islice(data.get_corpus_iter(verbose=False), 5))
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


def test_a_dataset_says_its_language(tmp_path, monkeypatch):
    data = pt.get_dataset("mart:xquad-r/de-en")
    rows = list(itertools.islice(data.get_corpus_iter(verbose=False), 4))
    monkeypatch.setattr(type(data), "get_corpus_iter", lambda self, verbose=True: iter(rows))
    for documents in (data, "mart:xquad-r/de-en"):
        assert dense().index(tmp_path / "index", documents, overwrite=True).languages == ("en",)


def test_documents_without_a_language_are_in_none(tmp_path):
    made = dense().index(tmp_path / "i", DOCS.assign(doc_lang=[None, float("nan"), "  ", *DOCS["doc_lang"][3:]]))
    out = dense().retriever(made)(TOPICS.head(1))
    unknown = out[out["docno"].isin(DOCS["docno"][:3])]
    assert len(unknown) == 3 and unknown["doc_lang"].isna().all()
    assert sum(int(made.mask([lang]).sum()) for lang in LANGS) == len(DOCS) - 3


def test_documents_are_encoded_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(retriever, "CHUNK", 5)
    read, sizes = [], []
    made = dense()
    usual = made.encode
    monkeypatch.setattr(made, "encode", lambda *args, **options: sizes.append(len(read)) or usual(*args, **options))
    again = made.index(tmp_path / "i", (read.append(row) or row for row in DOCS.to_dict("records")))
    assert sizes == [*range(5, 72, 5), 72]
    assert np.allclose(again.vectors, index().vectors, atol=1e-6) and again.doc_langs() == index().doc_langs()


def test_documents_of_a_file(tmp_path):
    path = tmp_path / "docs.jsonl.gz"
    DOCS.rename(columns={"docno": "_id"}).to_json(path, orient="records", lines=True)
    made = dense().index(tmp_path / "i", str(path))
    assert np.allclose(made.vectors, index().vectors, atol=1e-6) and made.doc_langs() == index().doc_langs()


def bad(change):
    rows = DOCS.head(6).to_dict("records")
    change(rows)
    return rows


@pytest.mark.parametrize(("documents", "message"), [
    ([], "there are no documents to index"),
    (bad(lambda rows: rows[4].update(docno=rows[1]["docno"])), "document 5: the docno 'de-n00' occurs twice"),
    (bad(lambda rows: rows[2].pop("text")), r"document 3: 'el-00' has no field 'text'; found \['doc_lang', 'docno'\]"),
    (bad(lambda rows: rows[0].update(docno="a b")), "document 1: its docno must be of printable ASCII .* not 'a b'"),
    (bad(lambda rows: rows[5].update(docno="é")), "document 6: its docno must be of printable ASCII .* not 'é'"),
    (DOCS.head(1), "cannot store the docnos of these 1 documents, 'de-00' to 'de-00'"),
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


def test_documents_without_text_are_counted(tmp_path):
    docs = DOCS.assign(text=pd.Series([None, 3.5, *DOCS["text"][2:]], dtype=object))
    with pytest.warns(UserWarning) as caught:
        dense().index(tmp_path / "i", docs)
    assert messages(caught) == ["2 of 72 documents have no text in 'text' and count as empty"]
    assert caught[0].filename == __file__


def test_other_weights_or_another_centring_are_refused(tmp_path):
    for made, what in (
        (trained().apply_attributes(post=None), "with no centring, and the retriever is .*bert-0.1"),
        (dense(post=centring()), r"with no centring, and the retriever is .* with LanguageCentering\(\)<"),
        (dense(config=MetaConfig(max_length=(5, 5))), "bert-0.1 .weights .*bert-0.1 .weights"),
    ):
        for rows in (TOPICS, ROWS.drop(columns="text")):
            with pytest.raises(ValueError, match=rf"the index .*plain was made by .*{what}"):
                made.retriever(index())(rows)
    of_centred = dense(post=centring()).index(tmp_path / "i", index())
    with pytest.raises(ValueError, match=r"was made by .* with LanguageCentering\(\)<.* is .* with no centring"):
        dense().retriever(of_centred)(TOPICS)
    assert len(dense(post=centring(), batch_size=3).retriever(of_centred, num_results=1)(TOPICS)) == 4


@pytest.mark.parametrize("options", [{}, {"sides": "documents"}, None], ids=str)
def test_vectors_of_an_index_are_used_again(options, tmp_path, monkeypatch):
    made = dense(post=options if options is None else LanguageCentering.fit_corpus(base(), corpus(), **options))
    encoded = made.index(tmp_path / "encoded", corpus())
    monkeypatch.setattr(made, "encode", lambda *_, **__: pytest.fail("texts are encoded"))
    monkeypatch.setattr("pyterrier_mart.dense.index.CHUNK", 5)
    again = made.index(tmp_path / "again", index())
    monkeypatch.undo()
    assert np.allclose(again.vectors, encoded.vectors, atol=1e-6) and again.meta == encoded.meta
    everything = np.arange(len(encoded))
    assert again.docnos(everything) == encoded.docnos(everything) and again.doc_langs() == encoded.doc_langs()
    pd.testing.assert_frame_equal(made.retriever(again)(TOPICS), made.retriever(encoded)(TOPICS))


def test_languages_of_an_index_that_is_used_again(tmp_path):
    raw = dense().index(tmp_path / "raw", DOCS.assign(doc_lang=["xx", *[None] * 3, *DOCS["doc_lang"][4:]]))
    with pytest.warns(UserWarning, match=r"from 4 document vectors .*does not know: none \(3\), xx \(1\)") as caught:
        again = dense(post=centring(), verbose=True).index(tmp_path / "i", raw)
    assert len(messages(caught)) == 1 and caught[0].filename == __file__
    assert again.doc_langs()[:5] == ["xx", None, None, None, DOCS["doc_lang"][4]]
    known = dense(doc_lang="fr").index(tmp_path / "i", raw, overwrite=True)
    assert known.doc_langs()[:5] == ["xx", "fr", "fr", "fr", DOCS["doc_lang"][4]]


def test_an_index_of_other_vectors_is_not_used_again(tmp_path):
    centred = dense(post=centring()).index(tmp_path / "centred", index())
    for made, source in ((dense(post=centring()), centred), (dense(config=MetaConfig(max_length=(5, 5))), index())):
        with pytest.raises(ValueError, match="was made by .*, and the retriever is .*: their vectors cannot"):
            made.index(tmp_path / "i", source)
    assert [path.name for path in tmp_path.iterdir()] == ["centred"]


def test_docnos_that_are_not_in_the_index():
    rows = ROWS[["qid", "query", "docno"]].astype({"docno": object})
    for docno in ("nope", "ü", None, 7):
        rows.loc[2, "docno"] = docno
        with pytest.raises(ValueError, match=r"1 of 16 rows have a docno that is not in the index .*plain, such as"):
            dense().retriever(index())(rows)


@pytest.mark.parametrize("docnos", [
    ["00001", "00002", "00010"], ["1000000000001", "1000000000002", "3"], ["5635039037966449933479", "93", "4"],
    [f"{i:04d}" for i in range(300)] + ["x1", "x2"], ["a" * 300, "b"],
])  # fmt: skip
def test_docnos_that_npids_gets_wrong(docnos, tmp_path):
    vectors = np.eye(len(docnos), dtype=np.float32)
    made = made_of(tmp_path / "i", docnos, vectors)
    assert made.docids(docnos[::-1]).tolist() == list(range(len(docnos)))[::-1]
    found = made.retriever(num_results=1)(pd.DataFrame({"qid": docnos, "query_vec": list(vectors)}))
    assert found["docno"].tolist() == docnos
    assert [row["docno"] for row in made.flex.get_corpus_iter(verbose=False)] == docnos


def test_pyterrier_loads_the_index(monkeypatch):
    # By the entry point as it stands in setup.cfg, whenever the package was installed.
    config = configparser.ConfigParser()
    config.read(Path(__file__).parent.parent / "setup.cfg")
    lines = dict(line.split(" = ") for line in config["options.entry_points"]["pyterrier.artifact"].split("\n") if line)
    point = importlib.metadata.EntryPoint("dense_index.mart", lines["dense_index.mart"], "pyterrier.artifact")
    monkeypatch.setattr(pt.utils, "entry_points", lambda group: [point])
    loaded = pt.Artifact.load(str(index().path))
    assert type(loaded) is DenseIndex and loaded == index() and loaded.languages == LANGS
    assert loaded.provenance == dense().provenance
    with pytest.raises(ValueError, match="their vectors cannot be compared"):
        dense(post=centring()).retriever(loaded)(TOPICS)


def test_pyterrier_dr_reads_the_index():
    flex = pt.Artifact.load(str(index().path / "flex"))
    assert isinstance(flex, FlexIndex) and len(flex) == 72
    assert [row["docno"] for row in flex.get_corpus_iter(verbose=False)] == DOCS["docno"].tolist()


def flip(name, path):
    """Changes a bit in the middle of a file."""
    data = bytearray((path / name).read_bytes())
    data[-len(data) // 3] ^= 1
    (path / name).write_bytes(data)


def test_indexes_of_earlier_versions_have_no_checksums(tmp_path):
    copy = shutil.copytree(index().path, tmp_path / "copy")
    meta = json.loads((copy / "pt_meta.json").read_text())
    assert meta.pop("checksums") and "checksums" not in index().meta
    (copy / "pt_meta.json").write_text(json.dumps(meta))
    assert DenseIndex(copy).meta == index().meta
    (copy / "pt_meta.json").write_text(json.dumps({**meta, "checksums": [1]}))
    with pytest.raises(ValueError, match="copy: pt_meta.json has the checksums"):
        DenseIndex(copy)


@pytest.mark.parametrize(("damage", "message"), [
    (lambda path: (path / "flex" / "vecs.f4").write_bytes(b"12"), "vecs.f4 or doc_langs.npy lacks some of 72"),
    (lambda path: (path / "doc_langs.npy").unlink(), "doc_langs.npy"),
    (lambda path: (path / "doc_langs.npy").write_bytes(b""), "damaged index of vectors"),
    (lambda path: np.save(path / "doc_langs.npy", np.zeros(3, np.int16)), "doc_langs.npy lacks some of 72 documents"),
    *(
        (partial(flip, name), f"damaged index of vectors .*: {name} is missing, or not as it was saved")
        for name in ("doc_langs.npy", "flex/vecs.f4", "flex/docnos.npids")
    ),
    (partial(flip, "flex/pt_meta.json"), "damaged index of vectors .*flex.*pt_meta.json"),
    (lambda path: (path / "pt_meta.json").write_text("{"), "pt_meta.json is not JSON"),
    (lambda path: shutil.copy(path / "flex" / "pt_meta.json", path), "is no index of vectors: pt_meta.json says"),
])  # fmt: skip
def test_what_is_no_index(damage, message, tmp_path):
    copy = shutil.copytree(index().path, tmp_path / "copy")
    damage(copy)
    with pytest.raises(ValueError, match=message) as caught:
        MetaSBERTRetriever(models.bert(), copy)
    assert str(copy) in str(caught.value)
    with pytest.raises(FileNotFoundError, match="no index of vectors at .*nothing"):
        MetaSBERTRetriever(models.bert(), tmp_path / "nothing")


def test_indexes_are_values(tmp_path):
    again, copy = DenseIndex(index().path), DenseIndex(shutil.copytree(index().path, tmp_path / "copy"))
    assert again == index() and hash(again) == hash(index()) and index() != copy and index() != "plain"
    assert pickle.loads(pickle.dumps(index())) == index()
    assert repr(index()).endswith("plain', 72 documents in de, el, en)")


# ------------------------------------------------------------------------------------------------------------ pipelines


def test_a_cutoff_retrieves_less_and_still_cuts_rankings():
    full = dense().retriever(index())
    fused = (full % 2).compile()
    assert "num_results=2" in repr(fused)
    for rows in (TOPICS, ROWS):
        pd.testing.assert_frame_equal(fused(rows), (full % 2)(rows))
        assert len(fused(rows)) == 2 * len(TOPICS)
    assert full.fuse_rank_cutoff(1000) is None and dense().fuse_rank_cutoff(2) is None


def test_the_same_query_twice_has_its_rows_twice():
    rows = pd.concat([TOPICS.iloc[[1, 0]], TOPICS.iloc[[1]].assign(qid="again")]).set_axis([7, 7, 3])
    out = dense().retriever(index(), num_results=3)(rows.assign(score=1.0, rank=0, docno_before="x"))
    assert out["qid"].tolist() == [qid for qid in rows["qid"] for _ in range(3)]
    assert out["docno"].tolist()[:3] == out["docno"].tolist()[6:] and out["rank"].tolist() == [0, 1, 2] * 3
    assert list(out.index) == list(range(9))


def test_vectors_as_columns():
    for made in (dense(), dense(post=centring(), text_field="body")):
        topics = made.query_encoder()(TOPICS.assign(query_vec=1))
        docs = made.doc_encoder()(DOCS.rename(columns={"text": made.text_field}))
        assert topics["query_vec"][0].dtype == np.float32 and list(topics) == [*TOPICS, "query_vec"]
        expected = made.encode(DOCS["text"], "document", DOCS["doc_lang"].tolist())
        assert np.allclose(np.stack(docs["doc_vec"]), expected, atol=1e-6)
        assert np.allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-6)
    assert repr(dense().query_encoder()) != repr(dense().doc_encoder())
    encoder = dense().doc_encoder()
    assert (encoder % 2).compile() == pt.RankCutoff(2) >> encoder  # what is cut need not be encoded


# ------------------------------------------------------------------------------------------------------------- centring


def test_languages_come_from_columns_or_arguments():
    centred = dense(post=centring())
    usual = scores(centred)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        german = ROWS.assign(query_lang="de", doc_lang=ROWS["doc_lang"].where(ROWS["doc_lang"] != "de"))
        named = dense(post=centring(), query_lang="deu", doc_lang="de")
        assert np.allclose(
            scores(named, german.drop(columns="query_lang")), scores(centred, ROWS.assign(query_lang="de"))
        )
        assert not np.allclose(scores(named, german), usual)
    with pytest.warns(UserWarning) as caught:
        centred(ROWS.drop(columns="query_lang"))
    (message,) = messages(caught)
    assert "from 4 query vectors in languages that the centring does not know: none (4)" in message
    assert "query_lang" in message


def test_a_centring_of_other_vectors_is_refused():
    other = dense(config=MetaConfig(max_length=(4, 4)), post=centring())
    with pytest.raises(ValueError, match="post must be fitted on the vectors of .*bert-0.1 with the fingerprint"):
        other(ROWS)
    vectors = pd.DataFrame({"doc_vec": [np.ones(3, np.float32), np.zeros(3, np.float32)], "doc_lang": ["de", "en"]})
    short = LanguageCentering(sides="documents").fit(None, vectors)
    with pytest.raises(ValueError, match=r"vectors must be of shape \(4, 3\) .*, not \(4, 32\)"):
        dense(post=short)(ROWS)
    with pytest.raises(ValueError, match="is not fitted"):
        dense(post=LanguageCentering())(ROWS)


def test_fitting_it_with_frames_or_a_corpus_is_the_same():
    part = corpus()
    frames = LanguageCentering().fit(dense().query_encoder()(part.topics), dense().doc_encoder()(part.docs))
    assert same(dense(post=frames), dense(post=centring())) and centring().encoder == base().fingerprint
    few = LanguageCentering.fit_corpus(dense(post=centring()), part, sample=5)
    again = LanguageCentering.fit_corpus(base(), part, sample=5)
    assert few.fingerprint == again.fingerprint != centring().fingerprint
    with pytest.raises(ValueError, match="sample must be None or a whole number >= 1, not 0"):
        LanguageCentering.fit_corpus(base(), part, sample=0)


# ------------------------------------------------------------------------------------------------------------ identity


def test_copies_share_the_weights_and_pickles_hold_only_what_was_trained():
    assert dense().retriever(index()).languages("de").encoder.model is base().encoder.model
    assert trained().apply_attributes(num_results=3).encoder.model is trained().encoder.model
    assert trained().apply_attributes(model=models.bert()).weights is None
    elsewhere = trained().apply_attributes(device="meta")  # which must not take the weights along
    assert elsewhere.encoder.device.type == "meta" and trained().encoder.device.type == "cpu"
    assert elsewhere.encoder.model is not trained().encoder.model and repr(elsewhere) == repr(trained())
    assert len(pickle.dumps(dense(dense_index=index()))) < 5_000 < 100_000 < len(pickle.dumps(trained()))
    copy = pickle.loads(pickle.dumps(trained()))
    assert repr(copy) == repr(trained()) and same(copy, trained())
