"""BM25 indexes: built, opened and refused; and the scores of both engines."""

import itertools
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import warnings

import pandas as pd
import pyterrier as pt
import pyterrier_pisa
import pytest
from engines import ENGINES, needs_java, start_java

from pyterrier_mart import (
    Analyzer,
    BM25Index,
    BM25Retriever,
    NeuralQueryTranslator,
    SMTQueryTranslator,
    TranslationTable,
    bm25_index,
)
from pyterrier_mart.artifact import META
from pyterrier_mart.datasets import STS17, XQuADR
from pyterrier_mart.query_terms import expanded_terms
from pyterrier_mart.retrieval import engines as engines_module
from pyterrier_mart.retrieval.documents import checked, dataset_name
from pyterrier_mart.retrieval.engines import engine_of
from pyterrier_mart.stopwords import long_list

DOCS = [
    {"docno": "d1", "text": "Fox fox dog bird"},
    {"docno": "d2", "text": "dog tree tree"},
    {"docno": "d3", "text": "tree house bird bird fish cow"},
    {"docno": "d4", "text": ""},
    {"docno": "d5", "text": "zebra lion"},
]


def build(path, documents=DOCS, lang="en", **options):
    return bm25_index(documents, path, lang, **{"progress": False, "engine": "pisa", **options})


def bags(*query_toks):
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(query_toks))], "query_toks": list(query_toks)})


def scores(results):
    return dict(zip(results["docno"], results["score"], strict=True))


def content(directory):
    return {path.relative_to(directory): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """An index of DOCS for each engine, made when first asked for."""
    made = {}

    def get(engine):
        if engine not in made:
            made[engine] = build(tmp_path_factory.mktemp(engine) / "index", engine=engine)
        return made[engine]

    return get


# ----------------------------------------------------------------------------------------------------------- scores


def formula(bag, k1, b, documents=DOCS):
    """BM25 as Robertson and Zaragoza give it, with natural logarithms and no term below zero."""
    docs = {doc["docno"]: doc["text"].lower().split() for doc in documents}
    average = sum(map(len, docs.values())) / len(docs)
    out = {}
    for docno, words in docs.items():
        for term, weight in bag.items():
            if tf := words.count(term):
                n = sum(term in other for other in docs.values())
                idf = max(math.log((len(docs) - n + 0.5) / (n + 0.5)), 1e-6)
                norm = k1 * (1 - b + b * len(words) / average)
                out[docno] = out.get(docno, 0.0) + weight * idf * (k1 + 1) * tf / (tf + norm)
    return out


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (2.0, 0.0), (0.5, 1.0), (0.0, 0.4)])
def test_scores_are_those_of_the_formula(engine, indexes, k1, b):
    bm25 = indexes(engine).bm25(k1=k1, b=b)
    for bag in ({"fox": 1.0}, {"fox": 1.0, "bird": 0.5}, {"house": 0.25, "dog": 2.0}, {"tree": 3, "bird": 7, "cow": 1}):
        assert scores(bm25(bags(bag))) == pytest.approx(formula(bag, k1, b), rel=2e-4), bag


def test_the_size_of_weights_changes_scores_and_nothing_else(engine, indexes):
    bm25 = indexes(engine).bm25()
    bag = {"fox": 1.0, "bird": 0.5, "tree": 0.25}
    usual = bm25(bags(bag))
    for factor in (1e-300, 1e-9, 1e-4, 1e4, 1e30, 1e300):
        out = bm25(bags({term: weight * factor for term, weight in bag.items()}))
        assert out["docno"].tolist() == usual["docno"].tolist(), factor
        assert (out["score"] / factor).tolist() == pytest.approx(usual["score"].tolist(), rel=1e-5), factor
    out = bm25(bags({"fox": 5e-324, "bird": 0.0}))
    assert out["docno"].tolist() == ["d1"] and math.isfinite(out["score"][0])


def test_terms_without_weight_find_nothing(engine, indexes):
    bm25 = indexes(engine).bm25()
    assert bm25(bags({"fox": 0.0})).empty
    assert bm25(bags({"fox": 0.0, "zebra": 1.0}))["docno"].tolist() == ["d5"]
    with pytest.warns(UserWarning, match="2 of 4 values in the column 'query_toks' are missing"):
        assert bm25(bags({}, {"unknown": 1.0}, None, math.nan)).empty


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_impossible_weights_are_refused(engine, indexes, weight):
    with pytest.raises(ValueError, match="finite and not negative"):
        indexes(engine).bm25()(bags({"fox": 1.0}, {"fox": 1.0, "dog": weight}))


def test_weights_below_the_resolution_are_announced(engine, indexes):
    bm25 = indexes(engine).bm25()
    resolution = engine_of(engine).RESOLUTION
    with pytest.warns(UserWarning, match=f"1 query terms weigh less than .*{engine} cannot represent"):
        assert bm25(bags({"fox": 1.0, "zebra": resolution / 2}))["docno"].tolist() == ["d1"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = scores(bm25(bags({"fox": 1.0, "zebra": resolution * 2})))
    assert found["d5"] == pytest.approx(2 * resolution * formula({"zebra": 1.0}, 0.9, 0.4)["d5"], rel=0.01)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("bag", [{"the": 1.0}, {"the": 4.0, "rare": 1.0, "w1": 0.5}, {"the": 1, "half": 2}])
def test_terms_of_most_documents_find_them_below_all_others(engine, tmp_path, n, bag):
    docs = [{"docno": f"d{i}", "text": f"the w{i}" + " rare" * (i == 2) + " half the" * (i < 2)} for i in range(n)]
    found = scores(build(tmp_path / "index", docs, engine=engine).bm25(num_results=10)(bags(bag)))
    assert found == pytest.approx(formula(bag, 0.9, 0.4, docs), rel=1e-3) and len(found) == n


@pytest.mark.parametrize("term", ["ZEBRA", "Zebra", "zébra", "z\u0301ebra"])
def test_given_terms_are_brought_into_the_spelling_of_the_index(engine, indexes, term):
    bm25 = indexes(engine).bm25()
    usual = bm25(bags({"zebra": 1.5}))
    assert usual["docno"].tolist() == ["d5"]
    assert bm25(bags({term: 1.0, "zebra": 0.5})).drop(columns="query_toks").equals(usual.drop(columns="query_toks"))


@pytest.mark.parametrize(
    "term", ["", " ", "zebra lion", "\ud800", "zebra\0", "zebra\0x", "#1(zebra)", "zebra^2", "x" * 99]
)
def test_given_terms_that_are_no_words_find_nothing(engine, indexes, term):
    bm25 = indexes(engine).bm25()
    assert bm25(bags({term: 1.0})).empty
    assert bm25(bags({term: 1.0, "zebra": 0.5}))["docno"].tolist() == ["d5"]


def test_query_terms_win_over_the_text_of_the_query(engine, indexes):
    bm25 = indexes(engine).bm25()
    frame = pd.DataFrame({"qid": ["1"], "query": ["Zebra!"]})
    assert bm25(frame)["docno"].tolist() == ["d5"]
    assert bm25(frame.assign(query_toks=[{"fox": 1.0}]))["docno"].tolist() == ["d1"]
    assert bm25.search("ZEBRA zebra")["score"][0] == pytest.approx(2 * bm25.search("zebra")["score"][0])
    assert bm25(pd.DataFrame({"qid": ["1", "2"], "query": [None, math.nan]})).empty


@needs_java
def test_expanded_queries_are_searched(indexes):
    """By both engines, with the index of one of them, beside what was translated."""
    smt = SMTQueryTranslator(TranslationTable.from_dict({"fuchs": {"fox": 1.0}}, "de", "en"))
    topics = pd.DataFrame({"qid": ["q"], "query": ["Fuchs bird"]})
    first, index = indexes("terrier").bm25(), str(indexes("terrier").path / "index")
    for rewrite in (pt.rewrite.RM3, pt.rewrite.Bo1QueryExpansion, pt.rewrite.KLQueryExpansion):
        rewritten = (smt >> first >> rewrite(index))(topics)
        expansion = expanded_terms(rewritten["query"][0])
        assert "bird" in expansion and expansion.keys() <= {"bird", "fuchs"}
        both = {term: 0.5 * weight / sum(expansion.values()) for term, weight in expansion.items()}
        both |= {"fox": 0.25, "bird": both["bird"] + 0.25}
        for engine in ("pisa", "terrier"):
            bm25 = indexes(engine).bm25()
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                found = bm25(rewritten)
                alone = bm25(rewritten.drop(columns="query_toks"))
            assert scores(found) == pytest.approx(scores(bm25(bags(both))), rel=1e-3, abs=1e-4)
            assert scores(alone) == pytest.approx(scores(bm25(bags(dict(expansion)))), rel=1e-3, abs=1e-4)


def test_other_rewritten_queries_are_told(engine, indexes):
    smt = SMTQueryTranslator(TranslationTable.from_dict({"fuchs": {"fox": 1.0}}, "de", "en"))
    topics, bm25 = pd.DataFrame({"qid": ["q"], "query": ["Fuchs"]}), indexes(engine).bm25()
    usual = (smt >> bm25)(topics)
    rewrite = pt.apply.query(lambda row: "dog")
    with pytest.warns(UserWarning, match="1 of 1 queries were rewritten after .* pt.apply.query_toks"):
        found = (smt >> rewrite >> bm25)(topics)
    assert scores(found) == scores(usual)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        new = (smt >> rewrite >> pt.apply.query_toks(drop=True) >> bm25)(topics)
        assert scores(new) == scores(bm25.search("dog")) != scores(usual)
        assert scores((smt >> rewrite >> pt.rewrite.reset() >> bm25)(topics)) == scores(usual)
        stashed = smt >> bm25 >> pt.rewrite.stash_results() >> bm25
        assert scores(stashed(topics)) == scores(usual)
        assert scores((rewrite >> smt >> bm25)(topics)) == scores(bm25.search("dog"))
    for query in ("#combine:0=0.1(#uw8(dog fox))", "(dog)^0.75 (fox)^0.25"):
        with pytest.warns(UserWarning, match="1 of 1 values in the column 'query' are in Terrier's query language"):
            bm25.search(query)


def test_queries_are_expanded_before_they_are_translated(indexes):
    smt = SMTQueryTranslator(TranslationTable.from_dict({"fuchs": {"fox": 0.5}, "hund": {"dog": 1.0}}, "de", "en"))
    query = "applypipeline:off Füchs^0.5 fuchs^0.250000000 hund^2"
    assert dict(smt.bag(query)) == {"dog": 2.0, "fox": 0.375}
    found = (smt >> indexes("pisa").bm25())(pd.DataFrame({"qid": ["q"], "query": [query]}))
    assert scores(found) == scores(indexes("pisa").bm25()(bags({"dog": 2.0, "fox": 0.375})))


FRENCH = [{"docno": "e", "text": "L'école d'été"}, {"docno": "g", "text": "un garçon"}, {"docno": "n", "text": "non"}]


@needs_java
def test_indexes_of_other_words_are_told(tmp_path):
    start_java()
    table = TranslationTable.from_dict({"school": {"école": 1.0}, "boy": {"garçon": 1.0}}, "en", "fr")
    smt, number = SMTQueryTranslator(table), itertools.count()

    def terrier(analyse=None, **options):
        indexer = pt.IterDictIndexer(str(tmp_path / str(next(number))), **options)
        return pt.terrier.Retriever((analyse >> indexer if analyse else indexer).index(iter(FRENCH)), wmodel="BM25")

    pisa = pyterrier_pisa.PisaIndex(str(tmp_path / "pisa"))
    pisa.index(FRENCH)
    for others, message in (
        (terrier(), "Terrier's own words, and Stopwords,PorterStemmer after"),
        (terrier(stemmer=None, stopwords=None, tokeniser="UTFTokeniser"), "words such as 'garçon'"),
        (pisa.bm25(), "PISA's own words, and the stemmer porter2"),
    ):
        for translator in (smt, NeuralQueryTranslator("some/model", source="en", target="fr")):
            with pytest.warns(UserWarning, match=message):
                translator >> others % 10
    own = build(tmp_path / "own", FRENCH, "fr", engine="terrier")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        SMTQueryTranslator(TranslationTable.from_dict({"x": {"y": 1.0}}, "de", "en")) >> terrier()
        for alike in (
            own.bm25(),
            pt.terrier.Retriever(str(own.path / "index"), wmodel="BM25"),
            terrier(Analyzer("fr"), pretokenised=True, stemmer=None, stopwords=None),
        ):
            assert (smt >> alike).search("school")["docno"].tolist() == ["e"]


@pytest.mark.parametrize("cell", ["fox", 3, [1, 2], {"fox": "1"}])
def test_what_are_no_terms_is_refused(indexes, cell):
    with pytest.raises(ValueError, match="query_toks must"):
        indexes("pisa").bm25()(bags({"fox": 1.0}, cell))


def test_a_cut_off_asks_for_fewer_documents(engine, indexes):
    bm25 = indexes(engine).bm25(k1=1.1, b=0.3)
    fused = (bm25 % 1).compile()
    assert repr(fused) == repr(indexes(engine).bm25(k1=1.1, b=0.3, num_results=1)) and isinstance(fused, BM25Retriever)
    everything = bm25.search("bird tree")
    assert len(everything) == 3
    assert fused.search("bird tree").equals(everything.head(1))
    assert bm25.fuse_rank_cutoff(1000) is bm25 and bm25.fuse_rank_cutoff(5000) is bm25


def test_changed_settings_take_effect(engine, indexes):
    bm25 = indexes(engine).bm25()
    bm25.search("bird")
    for name, value in (("k1", 2.0), ("b", 0.9), ("num_results", 1)):
        bm25.set_parameter(name, value)
        new = indexes(engine).bm25(k1=bm25.k1, b=bm25.b, num_results=bm25.num_results)
        assert bm25.search("bird").equals(new.search("bird")), name


@pytest.mark.parametrize("options", [{"k1": -1}, {"k1": math.inf}, {"b": 1.1}, {"num_results": 0}])
def test_impossible_parameters_are_refused(indexes, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        indexes("pisa").bm25(**options)


def test_several_threads_find_the_same(engine, tmp_path):
    data = XQuADR("en", paragraphs=True)
    index = bm25_index(data, tmp_path / "index", engine=engine, threads=2, progress=False)
    topics = data.get_topics().head(40)
    one, two = (index.bm25(num_results=10, threads=n)(topics) for n in (1, 2))
    pd.testing.assert_frame_equal(one, two)


# ---------------------------------------------------------------------------------------------------------- indexes


def test_long_words_are_found(engine, tmp_path):
    words = ["bundesverfassungsgerichtsprasidentin", "x" * 70, "x" * 70 + "y", "अंतर्राष्ट्रीयकरणसम्बन्धीत", "z" * 200]
    docs = [{"docno": f"d{i}", "text": word} for i, word in enumerate(words)]
    bm25 = build(tmp_path / "index", [*docs, {"docno": "short", "text": "zz"}], "de", engine=engine).bm25()
    for i, word in enumerate(words):
        assert bm25.search(word)["docno"].tolist() == [f"d{i}"]
    assert bm25.search("zz")["docno"].tolist() == ["short"]


def test_a_dataset_a_name_a_list_and_a_generator_give_the_same(tmp_path):
    data = XQuADR("de", "en", paragraphs=True)
    given = {
        "dataset": (data, None),
        "name": ("mart:xquad-r/de-en/paragraphs", None),
        "list": (list(data.get_corpus_iter(verbose=False)), "en"),
        "generator": ((doc for doc in data.get_corpus_iter(verbose=False)), "eng"),
        "iterator": (iter(list(data.get_corpus_iter(verbose=False))), Analyzer("en")),
    }
    for name, (documents, lang) in given.items():
        index = build(tmp_path / name, documents, lang)
        assert len(index) == 240 and index.engine == "pisa" and repr(index.analyzer) == repr(Analyzer("en"))
        assert index.meta["dataset"] == ("mart:xquad-r/en/paragraphs" if name in ("dataset", "name") else None)
        assert content(index.path / "index") == content(tmp_path / "dataset" / "index")


def test_several_text_fields_are_one_text(engine, tmp_path):
    docs = [
        {"docno": "d1", "title": "cat", "text": "sofa"}, {"docno": "d2", "title": None, "text": "dog"},
        {"docno": "d3", "title": "bird", "text": "tree"},
    ]  # fmt: skip
    index = build(tmp_path / "index", docs, engine=engine, text_field=["title", "text"])
    found = [index.bm25().search(word)["docno"].tolist() for word in ("cat", "sofa", "dog")]
    assert found == [["d1"], ["d1"], ["d2"]]
    assert build(tmp_path / "index", docs, engine=engine, text_field=("title", "text")) == index
    with pytest.raises(ValueError, match="text_field must name a field, or several"):
        build(tmp_path / "other", docs, engine=engine, text_field=())


def test_subsets_of_a_collection_have_one_index():
    names = [dataset_name(pt.get_dataset(f"irds:neuclir/1/zh/{subset}")) for subset in ("trec-2022", "trec-2023")]
    assert names == ["irds:neuclir/1/zh", "irds:neuclir/1/zh"]


def test_stop_words_and_numbers_are_the_analyzers_business(engine, tmp_path):
    docs = [{"docno": "d1", "text": "the house of 1517"}, {"docno": "d2", "text": "a"}, {"docno": "d3", "text": "x"}]
    index = build(tmp_path / "stop", docs, engine=engine, stop=True)
    assert repr(index.analyzer) == repr(Analyzer("en", stop=True)) == repr(BM25Index(index.path).analyzer)
    assert index.bm25().search("the of").empty and len(index.bm25().search("1517")) == 1
    meta = json.loads((index.path / "pt_meta.json").read_text())  # as of when there were long lists only
    (index.path / "pt_meta.json").write_text(json.dumps({**meta, "analyzer": {**meta["analyzer"], "stop": True}}))
    assert BM25Index(index.path).analyzer.stop == long_list("en")
    with pytest.raises(ValueError, match="name another path"):
        build(index.path, docs, engine=engine, stop=True)
    analyzer = Analyzer("en", stop=["house"], numbers=False)
    index = build(tmp_path / "own", docs, analyzer, engine=engine)
    assert repr(BM25Index(index.path).analyzer) == repr(analyzer)
    assert index.bm25().search("house 1517").empty and len(index.bm25().search("the")) == 1


def test_an_index_is_opened_and_not_built_again(engine, tmp_path):
    index = build(tmp_path / "index", engine=engine)
    before = content(index.path)

    def unread():
        raise AssertionError("read although the index exists")
        yield

    assert build(tmp_path / "index", unread(), engine=engine) == index
    assert build(tmp_path / "index", unread(), engine="auto").engine == engine  # it keeps its engine
    assert content(index.path) == before


def test_an_index_serves_every_language_of_queries(tmp_path):
    index = build(tmp_path / "index", XQuADR("de", "en", paragraphs=True), None)
    assert build(tmp_path / "index", XQuADR("ru", "en", paragraphs=True), None) == index
    assert build(tmp_path / "index", "mart:xquad-r/en/paragraphs", None) == index
    for other in (XQuADR("de", "en"), STS17("es-en")):
        with pytest.raises(ValueError, match="with dataset mart:xquad-r/en/paragraphs, not .*mart:.*overwrite"):
            build(tmp_path / "index", other, None)


def test_an_index_that_was_made_otherwise_is_refused(tmp_path):
    index = build(tmp_path / "index")
    for same in (DOCS, tuple(DOCS), pd.DataFrame(DOCS), iter([])):  # a generator is not read
        assert build(tmp_path / "index", same) == index
    for options, what in (
        ({"lang": "de"}, "analyzer .*, not {"),
        ({"stop": True}, "analyzer .*, not {"),
        ({"lang": Analyzer("en", fold=False)}, "analyzer .*, not {"),
        ({"engine": "terrier"}, "engine pisa, not terrier"),
        ({"text_field": ["text", "title"]}, r"text_field text, not \['text', 'title'\]"),
        ({"documents": DOCS[:1]}, "docnos .*, not "),
        ({"documents": DOCS[::-1]}, "docnos .*, not "),
    ):
        with pytest.raises(ValueError, match=f"made with {what}.*; name another path or pass overwrite=True"):
            build(tmp_path / "index", **options)
    with pytest.raises(ValueError, match="engine must be"):
        build(tmp_path / "other", engine="lucene")


def test_overwrite_replaces_an_index(engine, tmp_path):
    build(tmp_path / "index", engine=engine)
    index = build(tmp_path / "index", [{"docno": "n", "text": "neu"}, *DOCS[1:]], "de", engine=engine, overwrite=True)
    assert index.analyzer.lang == "de" and index.bm25().search("neu")["docno"].tolist() == ["n"]
    assert os.listdir(tmp_path) == ["index"]


def test_what_is_no_index_is_never_touched(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError):
            build(tmp_path, overwrite=overwrite)
    assert content(tmp_path) == {(tmp_path / "thesis.txt").relative_to(tmp_path): b"years of work"}


@pytest.mark.parametrize("texts", [["", "!! ..."], [None], ["the of", "and"]])
def test_documents_without_a_word_are_refused(engine, tmp_path, texts):
    docs = [{"docno": f"d{i}", "text": text} for i, text in enumerate(texts)]
    with pytest.raises(ValueError, match=f"none of the {len(docs)} documents has a word to index in text, by Analyzer"):
        build(tmp_path / "index", docs, engine=engine, stop=True)
    assert os.listdir(tmp_path) == []


def test_an_index_is_complete_when_it_is_built(engine, tmp_path):
    index = build(tmp_path / "index", engine=engine)
    before = content(index.path)
    for options in ({}, {"k1": 1.2}, {"b": 0.0}, {"k1": 0.0, "b": 1.0}, {"threads": 2}):
        index.bm25(**options).search("fox dog zebra")
    assert content(index.path) == before and {META, *index.meta["checksums"]} == set(map(str, before))


SEARCH = """
    import sys
    from pyterrier_mart import BM25Index

    print(*(len(BM25Index(sys.argv[1]).bm25(k1=k1).search("fox dog tree")) for k1 in (0.9, 1.2, 0.9)))
"""


def test_many_processes_search_a_new_index(tmp_path):
    build(tmp_path / "index")
    command = [sys.executable, "-c", textwrap.dedent(SEARCH), str(tmp_path / "index")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [(process.communicate(timeout=100)[0], process.returncode) for process in running] == [("3 3 3\n", 0)] * 4


DAMAGE = """
    import pathlib, sys
    from pyterrier_mart import BM25Index

    path = pathlib.Path(sys.argv[1])
    for file in sorted((path / "index").iterdir()):
        whole, retriever = file.read_bytes(), BM25Index(path).bm25()
        flipped = bytes([*whole[:-1], whole[-1] ^ 64])
        for damaged in (whole[: len(whole) // 2], flipped, b"", None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            for use in (lambda: BM25Index(path), lambda: retriever.search("fox")):
                try:
                    use()
                except ValueError as err:
                    assert str(err) == f"damaged index {path}: index/{file.name} is missing, or not as it was saved"
                else:
                    raise AssertionError(f"{file.name} may be {damaged!r}")
        file.write_bytes(whole)
        assert list(retriever.search("fox")["docno"]) == ["d1"]
    print("done")
"""


def test_damaged_files_are_errors(engine, indexes, tmp_path):
    shutil.copytree(indexes(engine).path, tmp_path / "index")
    command = [sys.executable, "-c", textwrap.dedent(DAMAGE), str(tmp_path / "index")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def old_index(path):
    """An index as earlier versions left it: with halves of what a killed search was making, and no checksums."""
    index = build(path)
    for file in (path / "index").glob("bm25.*"):
        file.write_bytes(file.read_bytes()[:100])
    for meta in (path / META, path / "index" / META):
        content = json.loads(meta.read_text())
        meta.write_text(json.dumps({key: content[key] for key in content if key not in ("checksums", "prepared")}))
    return index


def test_an_index_of_an_earlier_version(indexes, tmp_path):
    old_index(tmp_path / "index")
    before = content(tmp_path)
    for k1 in (0.9, 1.2):
        with pytest.warns(UserWarning, match="index of an earlier version"):
            found = BM25Index(tmp_path / "index").bm25(k1=k1).search("fox tree bird")
        assert found.equals(indexes("pisa").bm25(k1=k1).search("fox tree bird"))
    assert content(tmp_path) == before
    for name in ("inv.docs", "inv.freqs", "inv.sizes", "fwd.terms"):
        whole = (tmp_path / "index" / "index" / name).read_bytes()
        (tmp_path / "index" / "index" / name).write_bytes(b"" if name == "fwd.terms" else whole[:-4])
        with pytest.raises(ValueError, match="damaged index .*sizes of its files do not fit together"):
            BM25Index(tmp_path / "index").bm25().search("fox")
        (tmp_path / "index" / "index" / name).write_bytes(whole)


def test_a_relative_path_is_that_of_the_moment(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    index = build("index", engine=engine)
    bm25, again = index.bm25(), BM25Index("index")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert index == again and bm25.search("fox")["docno"].tolist() == ["d1"]
    assert pickle.loads(pickle.dumps(again.bm25())).search("fox")["docno"].tolist() == ["d1"]


SETTINGS = {"lang": "en", "fold": True, "version": 1, "stop": False, "numbers": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "lacks the directory index"),
        ({"type": "translation_table"}, "is no index"),
        ({"format_version": 99}, "format_version is 99"),
        ({"analyzer": {**SETTINGS, "version": 0}}, "cannot use the index .*rebuild"),
        ({"analyzer": {**SETTINGS, "lang": "xx"}}, "unknown language"),
        ({"analyzer": {"lang": "en"}}, "cannot use the index .* with the analyzer"),
        ({"analyzer": "en"}, "damaged index .*: pt_meta.json has analyzer 'en'"),
    ],
)
def test_damaged_metadata_are_refused(indexes, tmp_path, change, message):
    if change:
        (tmp_path / "index").mkdir()
    (tmp_path / "pt_meta.json").write_text(json.dumps({**indexes("pisa").meta, **change}))
    with pytest.raises(ValueError, match=message):
        BM25Index(tmp_path)
    with pytest.raises(ValueError, match=message):
        build(tmp_path)
    with pytest.raises(FileNotFoundError, match="no index .*at"):
        BM25Index(tmp_path / "nothing")


# ----------------------------------------------------------------------------------------------------- wrong input


def failing():
    yield from DOCS
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "there are no documents"),
        ([{"docno": "d", "title": "x"}], r"document 1: 'd' has no field 'text'; found \['docno', 'title'\]"),
        ([*DOCS, DOCS[1]], "document 6: the docno 'd2' occurs twice"),
        ([{"docno": "a b", "text": ""}], "document 1: .*without white space.*, not 'a b'"),
        ([{"docno": "a\n", "text": ""}], "document 1: .*white space"),
        ([{"docno": "\ufeffa", "text": ""}], r"document 1: .*byte order marks.*not '\\ufeffa'"),
        ([{"docno": "\ufffea", "text": ""}], "document 1: .*byte order marks"),
        ([{"docno": "a\0", "text": ""}], "document 1: .*control characters"),
        ([{"docno": "a\x7fb", "text": ""}], "document 1: .*control characters"),
        ([{"docno": "a\ud800", "text": ""}], "document 1: .*lone surrogates"),
        ([{"docno": "", "text": ""}], "document 1"),
        ([DOCS[0], {"docno": 7, "text": ""}], "document 2: .*not 7"),
        ([{"text": ""}], "document 1: .*not None"),
        (["some text"], "document 1: it must be a dict"),
    ],
)
def test_documents_that_an_index_cannot_take(documents, message):
    with pytest.raises(ValueError, match=message):
        list(checked(documents, ("text",)))


@pytest.mark.parametrize(
    ("documents", "error", "message"),
    [
        (list, ValueError, "there are no documents"),
        (lambda: [*DOCS, {"docno": "d"}], ValueError, "document 6: 'd' has no field"),
        (failing, OSError, "the disk is gone"),
    ],
)
def test_what_is_wrong_with_documents_is_said_and_nothing_is_left(
    engine, indexes, tmp_path, documents, error, message, capfd
):
    indexes(engine)  # the JVM's own first words
    capfd.readouterr()
    with pytest.raises(error, match=message):
        build(tmp_path / "index", documents(), engine=engine)
    assert os.listdir(tmp_path) == []
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_failure_leaves_the_old_index(engine, tmp_path):
    index = build(tmp_path / "index", engine=engine)
    index.bm25().search("fox")
    before = content(tmp_path)
    with pytest.raises(OSError, match="the disk is gone"):
        build(tmp_path / "index", failing(), engine=engine, overwrite=True)
    assert content(tmp_path) == before
    assert index.bm25().search("fox")["docno"].tolist() == ["d1"]


@needs_java
def test_terrier_says_how_long_a_docno_may_be(tmp_path):
    docs = [{"docno": "ü" * 100, "text": "fox"}, {"docno": "v", "text": "dog"}, {"docno": "w", "text": "tree"}]
    bm25 = build(tmp_path / "index", docs, engine="terrier").bm25()
    assert bm25.search("fox")["docno"].tolist() == ["ü" * 100]
    with pytest.raises(ValueError, match="document 4: its docno must be of at most 100 characters"):
        build(tmp_path / "other", [*docs, {"docno": "x" * 101, "text": ""}], engine="terrier")


def test_the_language_must_be_known(tmp_path):
    with pytest.raises(ValueError, match="pass lang="):
        build(tmp_path / "index", lang=None)
    with pytest.raises(ValueError, match="unknown language"):
        build(tmp_path / "index", lang="xx")
    with pytest.raises(ValueError, match="the documents of .* are in 'en'"):
        build(tmp_path / "index", XQuADR("de", "en"), "de")
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------------------------------------------------- engines


def test_without_pisa_terrier_is_the_engine(monkeypatch, tmp_path):
    monkeypatch.setattr(engines_module, "find_spec", lambda name: None)
    assert engine_of("auto").NAME == engine_of("terrier").NAME == "terrier"
    with pytest.raises(ImportError, match="pyterrier-pisa.*engine='terrier'"):
        build(tmp_path / "index", engine="pisa")
    monkeypatch.undo()
    assert engine_of("auto").NAME == "pisa"


QUIET = """
    import sys
    from pyterrier_mart import bm25_index
    from pyterrier_mart.datasets import XQuADR

    data = XQuADR("de", "en", paragraphs=True)
    index = bm25_index(data, sys.argv[1], engine="pisa", progress=sys.argv[2] == "bar")
    for k1 in (0.9, 1.2):
        assert len(index.bm25(k1=k1)(data.get_topics("en").head(3)))
    assert "pyterrier.java" not in sys.modules or not __import__("pyterrier").java.started()
"""


@pytest.mark.parametrize("progress", ["bar", "none"])
def test_pisa_is_quiet(tmp_path, progress):
    command = [sys.executable, "-c", textwrap.dedent(QUIET), str(tmp_path / "index"), progress]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.replace("\r", "\n").split("\n") if line.strip()]
    assert all(line.startswith("index en:") for line in lines), done.stderr
    assert bool(lines) == (progress == "bar")


def test_errors_are_seen_after_pisa_was_quiet(tmp_path, capfd):
    build(tmp_path / "index").bm25().search("fox")
    with pytest.raises(OSError, match="the disk is gone"):
        build(tmp_path / "other", failing())
    os.write(1, b"out")
    os.write(2, b"err")
    print("!", file=sys.stderr)
    captured = capfd.readouterr()
    assert captured.out == "out" and captured.err == "err!\n"
    BM25Index(tmp_path / "index").bm25(verbose=True).search("fox")
    assert "".join(capfd.readouterr())


def test_words_of_another_language_or_spelling_are_refused(tmp_path):
    index = bm25_index([{"docno": "d", "text": "the cat"}], tmp_path / "i", "en", progress=False)
    right = SMTQueryTranslator(TranslationTable.from_dict({"katze": {"cat": 1.0}}, "de", "en"))
    assert (right >> index.bm25()).search("Katze")["docno"].tolist() == ["d"]
    french = SMTQueryTranslator(TranslationTable.from_dict({"katze": {"chat": 1.0}}, "de", "fr"))
    with pytest.raises(ValueError, match=r"query_toks were made by the analyzer .*'fr'.* but BM25Index.*'en'"):
        (french >> index.bm25()).search("Katze")
    unfolded = TranslationTable.from_dict({"katze": {"cat": 1.0}}, "de", Analyzer("en", fold=False))
    with pytest.raises(ValueError, match="'fold': False"):
        (SMTQueryTranslator(unfolded) >> index.bm25()).search("Katze")
    stemmed = SMTQueryTranslator(unfolded, stemmer=lambda word: word)  # words of a foreign index: not ours to judge
    assert (stemmed >> index.bm25()).search("Katze")["docno"].tolist() == ["d"]


def test_which_analyzer_spelled_terms_is_not_lost_on_the_way(tmp_path):
    bm25 = bm25_index([{"docno": "d", "text": "the cat"}], tmp_path / "i", "en", progress=False).bm25()
    french = SMTQueryTranslator(TranslationTable.from_dict({"katze": {"chat": 1.0}}, "de", "fr"))
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["Katze", "Hund"]})
    translated = french(topics)
    mine = pd.DataFrame({"qid": ["3"], "query": ["cat"], "query_toks": [{"cat": 1.0}]})
    for frame in (
        translated.merge(topics[["qid"]].assign(part=1), on="qid"),
        pd.concat([translated, mine], ignore_index=True),
        pickle.loads(pickle.dumps(translated)),
        translated.sample(1, random_state=0),
    ):
        with pytest.raises(ValueError, match="made by the analyzer .*'fr'"):
            bm25(frame)
    assert bm25(mine)["docno"].tolist() == ["d"]


def test_terrier_without_java_says_so(tmp_path, monkeypatch):
    def init():
        raise Exception("Unable to find javac")  # what pyjnius raises

    monkeypatch.setattr(pt.java, "started", lambda: False)
    monkeypatch.setattr(pt.java, "init", init)
    with pytest.raises(ImportError, match=r"engine='terrier' needs Java 11 or newer.*Unable to find javac.*JAVA_HOME"):
        bm25_index([{"docno": "d", "text": "the cat"}], tmp_path / "i", "en", engine="terrier", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_pisa_is_not_started_on_a_full_disk(tmp_path, monkeypatch):
    documents = [{"docno": "d", "text": "the cat"}]
    index = bm25_index(documents, tmp_path / "old", "en", engine="pisa", progress=False)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 4096}))
    with pytest.raises(OSError, match=r"only 4 KiB are free in .*, PISA needs at least 8,192 KiB"):
        bm25_index(documents, tmp_path / "new", "en", engine="pisa", progress=False)
    assert os.listdir(tmp_path) == ["old"]
    with pytest.raises(OSError, match="only 4 KiB are free"):  # it makes something for these parameters
        index.bm25(k1=1.2).search("cat")
    assert index.bm25().search("cat")["docno"].tolist() == ["d"]


FULL = """
    import resource, sys
    from pyterrier_mart import bm25_index
    from pyterrier_mart.retrieval.terrier import start_java

    start_java()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))  # what fails as a full disk does
    documents = [{"docno": f"d{i}", "text": f"w{i} x{i % 7}"} for i in range(1000)]
    try:
        bm25_index(documents, sys.argv[1], "en", engine="terrier", progress=False)
    except OSError as err:
        print(err)
"""


@needs_java
def test_terrier_on_a_full_disk_says_where(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path / "index")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=100)
    assert f"cannot write {tmp_path / 'index'}: Terrier's index is not whole" in done.stdout
    assert done.returncode == 0 and os.listdir(tmp_path) == []


@pytest.mark.parametrize(("said", "lang"), [("nld", None), ("dt", "nl"), ("nl", "nld")])
def test_a_dataset_may_name_its_language_otherwise(said, lang, tmp_path):
    class Dutch:
        def get_corpus_lang(self):
            return said

        def get_corpus_iter(self, verbose=True):
            return iter([{"docno": "d1", "text": "de kat"}])

    assert build(tmp_path / "index", Dutch(), lang).analyzer.lang == "nl"
    if said == "dt":
        with pytest.raises(ValueError, match="the language of the documents is given as 'dt': pass lang="):
            build(tmp_path / "other", Dutch(), None)


def test_a_dataset_that_has_more_documents_now(tmp_path, monkeypatch):
    data = XQuADR("de", "en", paragraphs=True)
    build(tmp_path / "index", data, None)
    grown = {**data.documents(), "en-999": {"text": "new", "title": "new"}}
    monkeypatch.setattr(data, "documents", lambda: grown)
    with pytest.raises(ValueError, match="made with documents 240, not 241; name another path"):
        build(tmp_path / "index", data, None)
