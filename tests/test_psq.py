"""Probabilistic structured queries: expected frequencies, their weights, and indexes of them."""

import json
import math
import os
import pickle
import shutil
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from engines import ENGINES, needs_java, question_table
from ir_measures import AP

from pyterrier_mart import (
    Analyzer,
    BM25Index,
    MultilingualCorpus,
    PSQIndex,
    PSQRetriever,
    SMTQueryTranslator,
    TranslationTable,
    bm25_index,
    psq_index,
)
from pyterrier_mart.datasets import XQuADR
from pyterrier_mart.retrieval import expectation

TABLE = TranslationTable.from_dict(
    {"haus": {"house": 0.7, "home": 0.3}, "heim": {"home": 0.9, "house": 0.1}, "katze": {"cat": 1}, "rom": {"rome": 1}},
    "de", "en",
)  # fmt: skip
FRENCH = TranslationTable.from_dict({"haus": {"maison": 0.8, "domicile": 0.2}, "katze": {"chat": 1.0}}, "de", "fr")
DOCS = [
    {"docno": "d1", "text": "the house, the home"},
    {"docno": "d2", "text": "Cat cat house"},
    {"docno": "d3", "text": "Luther in Rome"},
    {"docno": "d4", "text": ""},
    {"docno": "d5", "text": "Rom"},  # the table has this word among the queries', with other translations
]
MIXED = [
    {"docno": "e", "text": "the house and the cat", "doc_lang": "en"},
    {"docno": "f", "text": "maison", "doc_lang": "fr"},
    {"docno": "g", "text": "Ein Haus, Luther", "doc_lang": "deu"},
]


def build(path, documents=DOCS, tables=TABLE, **options):
    return psq_index(documents, path, tables, **{"progress": False, "engine": "pisa", **options})


def found(index, query, **options):
    out = index.retriever(**options).search(query)
    return dict(zip(out["docno"], out["score"], strict=True))


def content(directory):
    return {path.relative_to(directory): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


# -------------------------------------------------------------------------------------------------------- arithmetic


def expected(documents, tables, term):
    """The frequency of a term that each document has by its table, summed word by word, and how long it is."""
    tf, lengths = {}, {}
    for doc in documents:
        lang = Analyzer(doc.get("doc_lang", "en")).lang
        words = Analyzer(lang).tokens(doc["text"])
        table = tables[lang]
        own = [word for word in words if table is None or word not in table.source_words]
        tf[doc["docno"]] = own.count(term) + (0 if table is None else sum(table.prob(word, term) for word in words))
        lengths[doc["docno"]] = len(words)
    return tf, lengths


def hmm(documents, tables, term, alpha=0.5):
    tf, lengths = expected(documents, tables, term)
    collection = sum(tf.values()) / sum(lengths.values())
    return {d: math.log(1 + (1 - alpha) / alpha * tf[d] / lengths[d] / collection) for d in tf if tf[d]}


def bm25(documents, tables, term, k1=0.9, b=0.4):
    tf, lengths = expected(documents, tables, term)
    of = {doc["docno"]: Analyzer(doc.get("doc_lang", "en")).lang for doc in documents}
    mean = {lang: np.mean([lengths[d] for d in of if of[d] == lang]) for lang in set(of.values())}
    df = 0.0
    for doc in documents:
        once = {**doc, "text": " ".join(set(Analyzer(of[doc["docno"]]).tokens(doc["text"])))}
        df += expected([once], tables, term)[0][doc["docno"]]
    n = len(documents)
    idf = math.log(1 + (n - min(df, n) + 0.5) / (min(df, n) + 0.5))
    norm = {d: k1 * (1 - b + b * lengths[d] / mean[of[d]]) for d in tf}
    return {d: idf * tf[d] * (k1 + 1) / (tf[d] + norm[d]) for d in tf if tf[d]}


@pytest.mark.parametrize(
    ("documents", "tables"), [(DOCS, {"en": TABLE}), (MIXED, {"en": TABLE, "fr": FRENCH, "de": None})]
)
@pytest.mark.parametrize("weighting", ["hmm", "bm25"])
def test_scores_are_those_of_the_formulas(engine, tmp_path, documents, tables, weighting):
    index = build(tmp_path / "index", documents, tables, weighting=weighting, cumulative=None, engine=engine)
    formula = {"hmm": hmm, "bm25": bm25}[weighting]
    for term in ("haus", "heim", "katze", "rom", "rome", "luther", "the", "in"):
        assert found(index, term) == pytest.approx(formula(documents, tables, term), abs=0.0051), term
    both = {d: formula(documents, tables, "haus").get(d, 0) + 2 * formula(documents, tables, "katze").get(d, 0) for d in
            (doc["docno"] for doc in documents)}  # fmt: skip
    assert found(index, "Katze? Haus Katze!") == pytest.approx({d: x for d, x in both.items() if x}, abs=0.02)
    weighted = pd.DataFrame({"qid": ["1"], "query_toks": [{"haus": 0.5, "katze": 1.25}]})
    out = index.retriever()(weighted)
    for docno, score in zip(out["docno"], out["score"], strict=True):
        parts = [x * formula(documents, tables, term).get(docno, 0) for term, x in (("haus", 0.5), ("katze", 1.25))]
        assert score == pytest.approx(sum(parts), abs=0.02)


def test_what_decides_the_weights(tmp_path):
    index = build(tmp_path / "0", cumulative=None, alpha=0.6)
    assert found(index, "haus") == pytest.approx(hmm(DOCS, {"en": TABLE}, "haus", 0.6), abs=0.0051)
    index = build(tmp_path / "1", cumulative=None, weighting="bm25", k1=2.0, b=1.0)
    assert found(index, "haus") == pytest.approx(bm25(DOCS, {"en": TABLE}, "haus", 2.0, 1.0), abs=0.0051)
    usual = build(tmp_path / "2")
    for number, options in enumerate(({"top_k": 1}, {"threshold": 0.5}, {"cumulative": 0.6})):
        pruned = TABLE.prune(**options)
        index = build(tmp_path / f"pruned {number}", **{"cumulative": None, **options})
        assert found(index, "heim") == pytest.approx(hmm(DOCS, {"en": pruned}, "heim"), abs=0.0051)
        assert found(index, "heim") != found(usual, "heim")


def test_the_size_of_blocks_changes_nothing(tmp_path, monkeypatch):
    data, table = XQuADR("de", "en", paragraphs=True), question_table("de", "en")
    usual = build(tmp_path / "usual", data, table)
    for block in (1, 1000, 50_000):
        monkeypatch.setattr(expectation, "BLOCK", block)
        assert content(build(tmp_path / str(block), data, table).path / "index") == content(usual.path / "index")


# ---------------------------------------------------------------------------------------------------------- retrieval


@needs_java
def test_engines_agree(tmp_path):
    data, table = XQuADR("de", "en", paragraphs=True), question_table("de", "en")
    topics = data.get_topics().head(60)
    one, other = (
        build(tmp_path / name, data, table, engine=name).retriever(num_results=2000)(topics)
        for name in ("pisa", "terrier")
    )
    both = one.merge(other, on=["qid", "docno"], how="outer")
    assert len(both) == len(one) == len(other) > 1000
    assert both["score_x"].to_numpy() == pytest.approx(both["score_y"].to_numpy(), rel=1e-4)


def test_it_is_better_than_translated_queries(tmp_path):
    """On real questions with a bundled table; the same model without translation is better than both."""
    data = XQuADR("de", "en")
    topics = data.get_topics().iloc[::4]
    qrels = data.get_qrels().merge(topics[["qid"]])
    words = bm25_index(data, tmp_path / "bm25", progress=False).bm25(num_results=100)
    human = build(tmp_path / "human", data, {"en": None}).retriever(100)
    systems = [
        SMTQueryTranslator("de-en") >> words, build(tmp_path / "psq", data, "de-en").retriever(100),
        data.human_translation() >> human,
    ]  # fmt: skip
    smt, psq, best = pt.Experiment(systems, topics, qrels, [AP @ 100])["AP@100"]
    assert smt + 0.02 < psq < best


def test_unknown_words_find_what_their_other_forms_find(tmp_path):
    index = build(tmp_path / "index")
    house = found(index, "haus")
    assert found(index, "Hauses") == found(index, "hausen") == house
    assert found(index, "Hauses", relate=False) == {}
    assert found(index, "Katzenhaus") == pytest.approx(
        {d: house.get(d, 0) + found(index, "katze").get(d, 0) for d in ("d1", "d2")}, abs=0.02
    )
    retriever = index.retriever()
    retriever.search("Hauses")
    copy = pickle.loads(pickle.dumps(retriever))
    assert copy.search("Hauses").equals(retriever.search("Hauses"))
    retriever.relate = False
    assert retriever.search("Hauses").empty


def test_function_words_translate_function_words_only(tmp_path):
    table = TranslationTable.from_dict({"haus": {"house": 0.8, "the": 0.2}, "der": {"the": 1.0}}, "de", "en")
    index = build(tmp_path / "index", [{"docno": "a", "text": "the cat"}, {"docno": "b", "text": "a house"}], table)
    assert found(index, "haus").keys() == {"b"} and found(index, "der").keys() == {"a"}


def test_stop_words_are_no_terms(engine, tmp_path):
    docs = [{"docno": "a", "text": "der house"}, {"docno": "b", "text": "cat"}]
    index = build(tmp_path / "index", docs, engine=engine, stop=True)
    assert found(index, "der") == {} and repr(index.analyzer) == repr(Analyzer("de", stop=True))
    assert found(build(tmp_path / "all", docs, engine=engine), "der").keys() == {"a"}
    assert found(build(tmp_path / "own", docs, engine=engine, stop=["Haus"]), "haus katze").keys() == {"b"}


def test_words_of_other_languages_are_refused(tmp_path):
    smt = SMTQueryTranslator(TABLE)
    with pytest.raises(ValueError, match=r"made by the analyzer .*'en'.*but PSQIndex.*'de'"):
        (smt >> build(tmp_path / "index").retriever()).search("Haus")


def test_a_cut_off_asks_for_fewer_documents(tmp_path):
    retriever = build(tmp_path / "index").retriever(relate=False)
    fused = (retriever % 1).compile()
    assert isinstance(fused, PSQRetriever) and (fused.num_results, fused.relate) == (1, False)
    assert fused.search("Haus").equals(retriever.search("Haus").head(1))


# ----------------------------------------------------------------------------------------------- several languages


def test_documents_in_many_languages(tmp_path):
    corpus = MultilingualCorpus.xquad_r(["de", "en", "ar"])
    tables = {"de": "en-de", "ar": "en-ar", "en": None}
    index = build(tmp_path / "index", corpus, tables)
    assert build(tmp_path / "index", corpus, tables) == index and len(index) == len(corpus.docs)
    out = index.retriever(20)(corpus.topics[corpus.topics["query_lang"] == "en"].head(200))
    shares = out["docno"].str[:2].value_counts(normalize=True)
    assert set(shares.index) == {"de", "en", "ar"} and shares.min() > 0.15


@pytest.mark.parametrize(
    ("documents", "tables", "message"),
    [
        ([{"docno": "x", "text": "a", "doc_lang": "it"}], {"en": TABLE, "fr": FRENCH},
         "the document 'x': its doc_lang must be one of en, fr, not 'it'"),
        ([{"docno": "x", "text": "a"}], {"en": TABLE, "fr": FRENCH}, "doc_lang must be one of en, fr, not None"),
        ([{"docno": "x", "text": "a", "doc_lang": "fr"}], TABLE, "doc_lang must be one of en, not 'fr'"),
        (DOCS, {"fr": TABLE}, "tables: the table of documents in 'fr' translates to them, which Translation.*de-en"),
        (DOCS, {"en": TABLE, "fr": TranslationTable.from_dict({"house": {"maison": 1.0}}, "en", "fr")},
         "tables: queries are of the analyzer .*'de'.*, but those of .*en-fr.* of .*'en'"),
        (DOCS, {"en": TABLE, "fr": None}, "tables: documents in 'fr' need a table, since queries are in 'de'"),
        (DOCS, {}, "tables must name a language"),
        (DOCS, None, "tables must be a translation table"),
        (XQuADR("en", "de"), TABLE, "but the documents of .* are in 'de'"),
    ],
)  # fmt: skip
def test_tables_that_do_not_fit(tmp_path, documents, tables, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "index", documents, tables)
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------------------------------------------------------ indexes


def test_an_index_is_opened_refused_and_replaced(engine, tmp_path):
    path = tmp_path / "index"
    index = build(path, engine=engine)
    before = content(path)
    assert build(path, iter([]), engine=engine) == build(path, DOCS, {"en": TABLE}, engine="auto") == index
    assert pt.Artifact.load(str(path)) == PSQIndex(path) == index and repr(index.analyzer) == repr(Analyzer("de"))
    for options, what in (
        ({"tables": TABLE.prune(top_k=1)}, "tables"),
        ({"tables": FRENCH}, "tables"),
        ({"weighting": "bm25"}, "weighting"),
        ({"alpha": 0.3}, "weighting"),
        ({"cumulative": None}, "pruning"),
        ({"stop": True}, "analyzer"),
        ({"documents": DOCS[:2]}, "docnos"),
        ({"engine": "terrier" if engine == "pisa" else "pisa"}, "engine"),
    ):
        with pytest.raises(ValueError, match=f"made with {what} .*; name another path or pass overwrite=True"):
            build(path, **{"engine": engine, **options})
    assert content(path) == before
    index.retriever().search("Haus Hauses")
    assert content(path) == before and {"pt_meta.json", *index.meta["checksums"]} == set(map(str, before))
    assert found(build(path, DOCS[:2], FRENCH, overwrite=True, engine=engine), "the").keys() == {"d1"}
    with pytest.raises(ValueError, match="is no index .*PSQIndex.* reads it"):
        BM25Index(path)
    with pytest.raises(ValueError, match="is no index .*BM25Index.* reads it"):
        PSQIndex(bm25_index(DOCS, tmp_path / "bm25", "en", engine="pisa", progress=False).path)


def test_texts_stand_beside_the_index(tmp_path):
    index = build(tmp_path / "index", store_text=True)
    out = (index.retriever() >> index.text_loader()).search("Katze")
    assert out["text"].tolist() == ["Cat cat house"]


def test_damaged_files_are_errors(tmp_path):
    good = build(tmp_path / "good")
    for name in good.meta["checksums"]:
        retriever = PSQIndex(shutil.copytree(good.path, tmp_path / "bad")).retriever()
        file = tmp_path / "bad" / name
        whole = file.read_bytes()
        for damaged in (whole[:-1], bytes([*whole[:-1], whole[-1] ^ 64]), None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            for use in (lambda: PSQIndex(tmp_path / "bad"), lambda opened=retriever: opened.search("haus")):
                with pytest.raises(ValueError, match=f"damaged index .*: {name} is missing, or not as it was saved"):
                    use()
        shutil.rmtree(tmp_path / "bad")
    for change in ({"weighting": 3}, {"tables": None}, {"pruning": []}):
        meta = json.loads((good.path / "pt_meta.json").read_text())
        shutil.copytree(good.path, tmp_path / "bad")
        (tmp_path / "bad" / "pt_meta.json").write_text(json.dumps({**meta, **change}))
        with pytest.raises(ValueError, match="damaged index .*: pt_meta.json has"):
            PSQIndex(tmp_path / "bad")
        shutil.rmtree(tmp_path / "bad")


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "there are no documents"),
        ([{"docno": "d", "text": "!"}], r"none of the 1 documents has a word to index in text, by Analyzer\('en'\)"),
        ([*DOCS, DOCS[0]], "document 6: the docno 'd1' occurs twice"),
        ([{"docno": "d", "title": "x"}], "document 1: 'd' has no field 'text'"),
    ],
)
def test_documents_that_an_index_cannot_take(engine, tmp_path, documents, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "index", documents, engine=engine)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "options",
    [
        {"weighting": "tfidf"}, {"alpha": 0}, {"alpha": 1}, {"k1": -1}, {"b": 2}, {"cumulative": 0}, {"top_k": 0},
        {"threshold": 1.5}, {"stop": "der"}, {"engine": "lucene"},
    ],
)  # fmt: skip
def test_impossible_arguments_are_refused(tmp_path, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
        build(tmp_path / "index", **options)
    assert os.listdir(tmp_path) == []


def test_queries_without_a_known_word(engine, tmp_path):
    retriever = build(tmp_path / "index", engine=engine).retriever()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert retriever(pd.DataFrame({"qid": ["1", "2"], "query": ["xyzzy", "!"]})).empty
