import pickle
from importlib import resources

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_mart.datasets import STS17, MartDatasetProvider, XQuADR, sts17, xquad_r

SENTENCES = {
    "ar": 1222, "de": 1276, "el": 1234, "en": 1180, "es": 1215, "hi": 1244, "ru": 1219, "th": 852, "tr": 1167,
    "vi": 1209, "zh": 1196,
}  # fmt: skip
ANSWERING = {
    "ar": 790, "de": 818, "el": 798, "en": 787, "es": 796, "hi": 798, "ru": 787, "th": 603, "tr": 764,
    "vi": 794, "zh": 784,
}  # fmt: skip
languages = pytest.mark.parametrize("language", SENTENCES)


def corpus(dataset):
    return pd.DataFrame(dataset.get_corpus_iter(verbose=False))


# ---------------------------------------------------------------------------------------------------------- XQuAD-R


def test_sentences_are_as_many_as_published():
    sizes = {language: len(XQuADR(language).get_corpus_iter(verbose=False)) for language in xquad_r.LANGUAGES}
    assert sizes == SENTENCES
    assert sum(sizes.values()) == 13014


@languages
def test_sentences(language):
    dataset = XQuADR("en", language)
    docs, qrels = corpus(dataset), dataset.get_qrels()
    assert list(docs.columns) == ["docno", "text", "title", "context"]
    assert docs["docno"].is_unique and docs["docno"].str.fullmatch(rf"{language}-\d{{3}}-\d{{2}}").all()
    assert (docs["text"] == docs["text"].str.strip()).all() and (docs["text"] != "").all()
    assert docs["context"].nunique() == 240 and docs["title"].nunique() == 48
    assert len(qrels) == qrels["qid"].nunique() == 1190
    assert qrels["docno"].nunique() == ANSWERING[language] and set(qrels["docno"]) <= set(docs["docno"])
    assert list(qrels.columns) == ["qid", "docno", "label"] and (qrels["label"] == 1).all()
    assert qrels["label"].dtype == "int64"
    assert qrels["qid"].tolist() == dataset.get_topics()["qid"].tolist()


@languages
def test_paragraphs(language):
    dataset = XQuADR("en", language, paragraphs=True)
    docs, qrels = corpus(dataset), dataset.get_qrels()
    assert list(docs.columns) == ["docno", "text", "title"]
    assert docs["docno"].tolist() == [f"{language}-{i:03d}" for i in range(240)]
    assert len(qrels) == qrels["qid"].nunique() == 1190 and qrels["docno"].nunique() == 240
    sentences = XQuADR("en", language).get_qrels()
    assert qrels["docno"].tolist() == sentences["docno"].str[:6].tolist()


@languages
def test_answers_begin_in_exactly_one_sentence(language):
    collection = xquad_r.load(language)
    crossing = 0
    for question in collection.questions:
        paragraph = collection.paragraphs[question.paragraph]
        start, end = paragraph.breaks[question.sentence]
        assert any(
            paragraph.context.startswith(question.answer, i) and sum(s <= i < e for s, e in paragraph.breaks) == 1
            for i in range(start, end)
        )
        crossing += question.answer not in paragraph.context[start:end]
    assert crossing <= 20


@languages
def test_collections_are_parallel(language):
    english, other = xquad_r.load("en"), xquad_r.load(language)
    assert [(q.id, q.article, q.paragraph) for q in other.questions] == [
        (q.id, q.article, q.paragraph) for q in english.questions
    ]
    assert len(other.questions) == 1190 and len(other.paragraphs) == 240 and len(other.articles) == 48
    assert [p.title for p in other.paragraphs] == [p.title for p in english.paragraphs]
    assert [p.index for p in other.paragraphs] == list(range(240))
    assert tuple(p for a in other.articles for p in a.paragraphs) == other.paragraphs
    assert all(other.articles[p.article].title == p.title for p in other.paragraphs)
    shifted = sum(
        p.context[start:end].strip() != sentence
        for p in other.paragraphs
        for sentence, (start, end) in zip(p.sentences, p.breaks, strict=True)
    )
    assert shifted == (2 if language == "tr" else 0)


def test_collections_are_read_once():
    assert xquad_r.load("de") is xquad_r.load("de") and xquad_r.load("deu") == xquad_r.load("de")
    with pytest.raises(ValueError, match="language must be one of ar, .*, zh, not 'fr'"):
        xquad_r.load("fr")


def test_topics_and_variants():
    dataset = XQuADR("de", "en")
    topics = dataset.get_topics()
    assert list(topics.columns) == ["qid", "query"] and len(topics) == topics["qid"].nunique() == 1190
    assert topics["qid"].str.startswith("de-").all()
    assert topics.iloc[0].tolist() == [
        "de-56beb4343aeaaa14008c925b",
        "Wie viele Punkte gab die Verteidigung der Panthers ab?",
    ]
    english = dataset.get_topics("en")
    assert english["qid"].tolist() == topics["qid"].tolist()
    assert english["query"].tolist() == XQuADR("en").get_topics()["query"].tolist()
    pd.testing.assert_frame_equal(dataset.get_topics("eng"), english)
    assert english["query"][0] == "How many points did the Panthers defense surrender?"
    translated, qrels = dataset.get_topicsqrels("en")
    pd.testing.assert_frame_equal(translated, english)
    pd.testing.assert_frame_equal(qrels, dataset.get_qrels())
    for method in (dataset.get_topics, dataset.get_qrels):
        with pytest.raises(ValueError, match="language must be one of"):
            method("fr")


def test_human_translation():
    dataset = XQuADR("de", "en")
    topics = dataset.get_topics().iloc[5:8]
    out = dataset.human_translation()(topics.assign(query_0="older", query_toks=[{"a": 1.0}] * 3, query_vec=0.5))
    assert out["qid"].tolist() == topics["qid"].tolist() and list(out.index) == [5, 6, 7]
    assert out["query"].tolist() == dataset.get_topics("en")["query"][5:8].tolist()
    assert out["query_0"].tolist() == topics["query"].tolist() and set(out["query_1"]) == {"older"}
    assert "query_toks" not in out and "query_vec" not in out
    pd.testing.assert_frame_equal(pt.model.pop_queries(out)[["qid", "query"]], topics, check_dtype=False)
    assert pt.inspect.transformer_inputs(dataset.human_translation()) == [["qid", "query"]]


@pytest.mark.parametrize("qid", ["1", "en-56beb4343aeaaa14008c925b", 7, None])
def test_human_translation_refuses_other_topics(qid):
    translation = XQuADR("de", "en").human_translation()
    with pytest.raises(ValueError, match=r"is not the qid of a topic of .*xquad-r/de-en'\) in 'en'"):
        translation(pd.DataFrame({"qid": [qid], "query": ["?"]}))


# ------------------------------------------------------------------------------------------------------------ STS17


@pytest.mark.parametrize("track", sts17.TRACKS)
def test_sts17(track):
    dataset = STS17(track)
    pairs = dataset.pairs()
    assert list(pairs.columns) == ["pair_id", "sentence1", "sentence2", "score"]
    assert pairs["pair_id"].tolist() == [f"{track}-{i:03d}" for i in range(250)]
    assert pairs["score"].dtype == "float64" and pairs["score"].between(0, 5).all()
    assert not pairs.isna().any(axis=None)
    topics, docs, qrels, results = dataset.get_topics(), corpus(dataset), dataset.get_qrels(), dataset.get_results()
    assert topics.columns.tolist() == ["qid", "query"] and topics["query"].tolist() == pairs["sentence1"].tolist()
    assert docs.columns.tolist() == ["docno", "text"] and docs["text"].tolist() == pairs["sentence2"].tolist()
    assert qrels.columns.tolist() == ["qid", "docno", "label"] and qrels["label"].tolist() == pairs["score"].tolist()
    assert results.columns.tolist() == ["qid", "query", "docno", "text", "score", "rank"]
    assert results["docno"].tolist() == docs["docno"].tolist()
    assert (results["score"] == 0.0).all() and (results["rank"] == 0).all()
    pd.testing.assert_frame_equal(
        dataset.text_loader()(results[["qid", "docno"]]), results[["qid", "docno", "text"]], check_dtype=False
    )


def test_sts17_rows():
    assert STS17("tr-en").pairs().iloc[1].tolist() == ["tr-en-001", "Kadın sarışın.", "The lady is blonde.", 4.0]
    assert STS17("ar-en").pairs().iloc[0].tolist() == ["ar-en-000", "رجلان يضحكان.", "two men are crying", 1.4]
    assert STS17("es-en").pairs()["sentence1"][1] == "Dos niños están bailando"
    assert STS17("es-en-wmt").pairs()["sentence1"][0].startswith("Los falsificadores de China")
    assert set(STS17("es-en-wmt").pairs()["score"]) == {2.0, 3.0, 4.0, 5.0}


# --------------------------------------------------------------------------------------------------------- provider

NAMES = list(MartDatasetProvider().list_dataset_names())


def test_names():
    assert len(NAMES) == len(set(NAMES)) == 2 * 11 * 11 + 7 + 15 * 13 + 4
    for name in NAMES:
        dataset = MartDatasetProvider().get_dataset(name)
        assert dataset.name == name and repr(dataset) == f"MartDataset('mart:{name}')"
        assert dataset.languages == (dataset.get_topics_lang(), dataset.get_corpus_lang())
        assert dataset.info_url().startswith("https://") and dataset.licence
        assert "@inproceedings{" in dataset.citation or "@article{" in dataset.citation


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("xquad-r/deu-eng", "xquad-r/de-en"),
        ("xquad-r/de-de", "xquad-r/de"),
        ("xquad-r/zho/paragraphs", "xquad-r/zh/paragraphs"),
        ("sts17/spa-eng", "sts17/es-en"),
        ("sts17/spa-eng-wmt", "sts17/es-en-wmt"),
    ],
)
def test_aliases(alias, name):
    dataset, same = MartDatasetProvider().get_dataset(alias), MartDatasetProvider().get_dataset(name)
    assert dataset.name == name
    assert dataset == same and hash(dataset) == hash(same)
    assert dataset != MartDatasetProvider().get_dataset("xquad-r/en") and dataset != name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("xquad-r/de-fr", r"language must be one of ar, .*, zh, not 'fr'\. Did you mean xquad-r/de"),
        ("xquad-r/de-en/paragraph", r"Did you mean xquad-r/de-en/paragraphs"),
        ("xquad/de-en", r"XQuAD-R datasets are called .*STS17 datasets are called .*Did you mean xquad-r/de-en"),
        ("sts17/de-en", r"track must be one of ar-ar, .*, not 'de-en'"),
        ("sts17", r"track must be one of ar-ar, .*, not 'sts17'"),
        ("xquad-r", r"XQuAD-R datasets are called"),
        ("", r"XQuAD-R datasets are called .*STS17 datasets are called .*CLEF datasets are called .*CIRAL"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(KeyError, match=message):
        MartDatasetProvider().get_dataset(name)


def test_get_dataset():
    dataset = pt.get_dataset("mart:xquad-r/de-en")
    assert dataset == XQuADR("de", "en") and len(dataset.get_topics("en")) == 1190
    # pt.get_dataset() puts a closure into the object.
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy == dataset and len(copy.get_topics()) == 1190
    with pytest.raises(KeyError, match="mart:xquad-r/de-xx"):
        pt.get_dataset("mart:xquad-r/de-xx")


def test_list_datasets():
    table = pt.datasets.list_datasets(en_only=False).set_index("dataset")
    ours = table[table.index.str.startswith("mart:")]
    assert ours.index.tolist() == [f"mart:{name}" for name in NAMES]
    row = ours.loc["mart:xquad-r/de-en"]
    assert row[["topics_lang", "corpus_lang"]].tolist() == ["de", "en"]
    assert row["topics"] == list(xquad_r.LANGUAGES) and row["qrels"] is True and row["corpus"] is True
    assert ours.loc["mart:sts17/tr-en", "topics"] is True
    assert ours["index"].isna().all() and ours["info_url"].notna().all()
    english = pt.datasets.find_datasets("mart:")["dataset"].tolist()
    assert english == ["mart:xquad-r/en", "mart:xquad-r/en/paragraphs", "mart:sts17/en-en", "mart:clef/en"]


def test_get_text():
    dataset = pt.get_dataset("mart:xquad-r/de-en")
    rows = pd.DataFrame({"qid": ["1", "1"], "docno": ["en-000-01", "en-000-00"], "text": ["old", "old"]}, index=[4, 4])
    out = pt.text.get_text(dataset, ["text", "title"])(rows)
    assert out.columns.tolist() == ["qid", "docno", "text", "title"] and list(out.index) == [4, 4]
    assert out["text"].str[:8].tolist() == ["Pro Bowl", "The Pant"]
    assert pt.text.get_text(dataset)(rows).columns.tolist() == ["qid", "docno", "text", "title", "context"]
    assert pt.text.get_text(dataset, "title")(rows)["text"].tolist() == ["old", "old"]


@pytest.mark.parametrize("docno", ["de-000-00", "en-000", "en-000-99", 5, None, float("nan")])
def test_text_loader_refuses_unknown_documents(docno):
    with pytest.raises(ValueError, match=r"mart:xquad-r/de-en'\) has no document"):
        XQuADR("de", "en").text_loader()(pd.DataFrame({"docno": ["en-000-00", docno]}))


@pytest.mark.parametrize("fields", ["body", ["text", "body"], "context"])
def test_text_loader_refuses_unknown_fields(fields):
    with pytest.raises(ValueError, match="fields must be "):
        XQuADR("de", "en", paragraphs=True).text_loader(fields)


def test_data_comes_with_its_licence():
    data = resources.files("pyterrier_mart.datasets") / "data"
    text = (data / "LICENSE-DATA.md").read_text(encoding="utf-8")
    for needed in ("CC BY-SA 4.0", "lareqa", "9bc8c7fb6dd8d01d72a05a93c2cb96882b0d299c", "Artetxe", "S17-2001"):
        assert needed in text
    assert "ShareAlike 4.0" in (data / "sts17/LICENSE.txt").read_text(encoding="utf-8")
