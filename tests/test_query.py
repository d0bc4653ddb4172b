"""SMTQueryTranslator: exact bags of small tables, and what engines make of them."""

import math
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from engines import ENGINES, needs_java, question_table
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_mart import Analyzer, SMTQueryTranslator, TranslationTable, bm25_index
from pyterrier_mart.datasets import XQuADR

TABLE = TranslationTable.from_dict(
    {
        "wo": {"where": 0.75, "at": 0.25},
        "das": {"the": 0.5, "that": 0.5},
        "ist": {"is": 1.0},
        "haus": {"house": 0.5, "home": 0.25, "building": 0.125, "the": 0.125},
        "häuser": {"houses": 0.75, "homes": 0.25},
        "bank": {"bank": 0.5, "bench": 0.5},
    },
    "de",
    "en",
)


def bag(query, table=TABLE, **options):
    return list(SMTQueryTranslator(table, **options).bag(query).items())


def topics(*queries):
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(queries))], "query": list(queries)})


# ------------------------------------------------------------------------------------------------------------- bags


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 5), min_size=1),
        min_size=1,
    ),
    st.lists(st.sampled_from("abcdefghij"), max_size=12),
    st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_a_bag_is_what_a_plain_loop_makes(entries, words, top_k):
    table = TranslationTable.from_dict(entries, "de", "en", weights="count")
    expected = {}
    for word in words:
        for target, weight in (table.translations(word, top_k) or {word: 1.0}).items():
            expected[target] = expected.get(target, 0.0) + weight
    found = bag(" ".join(words), table, top_k=top_k, relate=False)
    assert found == sorted(expected.items(), key=lambda item: (-item[1], item[0]))


BANKHAUS = [
    ("bankhaus", 1.0), ("bank", 0.5), ("bench", 0.5), ("house", 0.5), ("home", 0.25), ("building", 0.125),
    ("the", 0.125),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "options", "expected"),
    [
        ("Haus", {"top_k": 2}, [("house", 0.5), ("home", 0.25)]),
        ("Haus", {"threshold": 0.25}, [("house", 0.5), ("home", 0.25)]),
        ("Haus", {"threshold": 0.3}, [("house", 0.5)]),
        ("Haus", {"threshold": 0.9}, []),  # a known word has the table's translations, even if it is none
        # unknown words, with and without their other forms
        ("Wo 1517 Luther", {"relate": False}, [("1517", 1.0), ("luther", 1.0), ("where", 0.75), ("at", 0.25)]),
        ("Bankhaus", {}, BANKHAUS),
        ("Bankhaus", {"top_k": 2}, [("bankhaus", 1.0), ("bank", 0.5), ("bench", 0.5)]),
        ("Bankhaus", {"relate": False}, [("bankhaus", 1.0)]),
        ("Häusern", {}, [("hausern", 1.0), ("houses", 0.75), ("homes", 0.25)]),
        # stop words are kept unless asked, and in a query of nothing else
        ("Wo ist das Haus", {"top_k": 1}, [("is", 1.0), ("where", 0.75), ("house", 0.5), ("that", 0.5)]),
        ("Wo ist das Haus", {"top_k": 1, "stop": True}, [("house", 0.5)]),
        ("Wo ist das Haus", {"top_k": 1, "stop": ["Wo", "ist"]}, [("house", 0.5), ("that", 0.5)]),
        ("Wo ist das?", {"top_k": 1, "stop": True}, [("is", 1.0), ("where", 0.75), ("that", 0.5)]),
        ("", {"stop": True}, []),
        # stems that become equal are summed
        ("Häuser Haus", {"top_k": 2, "stemmer": lambda word: word.rstrip("es")}, [("hou", 1.25), ("hom", 0.5)]),
    ],
)
def test_bags(query, options, expected):
    assert bag(query, **options) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("top_k", k) for k in (0, -1, 1.5, True, None, "3")), *(("threshold", p) for p in (-0.1, 1.1, math.nan))],
)
def test_settings_out_of_range(name, value):
    with pytest.raises(ValueError, match=name):
        SMTQueryTranslator(TABLE, **{name: value})


def test_unknown_words_are_kept_in_the_normal_form_of_the_target_language():
    # Vietnamese keeps its diacritics, German does not.
    vietnamese = TranslationTable.from_dict({"đường": {"road": 1.0}}, "vi", "en")
    assert bag("đường Hà Nội", vietnamese) == [("ha", 1.0), ("noi", 1.0), ("road", 1.0)]
    turkish = TranslationTable.from_dict({"ev": {"house": 1.0}}, "tr", "en")
    assert bag("Işık", turkish) == [("isik", 1.0)]  # the dotless i is a letter in Turkish only
    unfolded = TranslationTable.from_dict({"haus": {"house": 1.0}}, Analyzer("de", fold=False), "en")
    assert bag("Café Haus", unfolded) == [("cafe", 1.0), ("house", 1.0)]


# ------------------------------------------------------------------------------------------------------- transformer


def test_the_query_stays_and_stale_terms_are_overwritten():
    frame = topics("Wo", "Haus").assign(query_toks=[{"stale": 1.0}, {"older": 2.0}], extra=[1, 2])
    out = SMTQueryTranslator(TABLE, 1)(frame)
    assert out["query_toks"].tolist() == [{"where": 0.75}, {"house": 0.5}]
    assert out.drop(columns="query_toks").equals(frame.drop(columns="query_toks"))
    assert frame["query_toks"].tolist() == [{"stale": 1.0}, {"older": 2.0}]


def test_push_rewrites_the_query():
    frame = topics("Wo ist 1517 das Haus?", "").assign(query_toks=[{"stale": 1.0}] * 2, extra=[1, 2])
    out = SMTQueryTranslator(TABLE, push=True)(frame)
    assert out["query"].tolist() == ["where is 1517 that house", ""]
    assert out["query_0"].tolist() == frame["query"].tolist()
    assert "query_toks" not in out and out["extra"].tolist() == [1, 2] and out["qid"].tolist() == ["q0", "q1"]
    again = SMTQueryTranslator(TABLE, push=True)(out)
    assert again["query_1"].tolist() == frame["query"].tolist() and again["query_0"].tolist() == out["query"].tolist()


def test_changed_settings_take_effect():
    smt, options = SMTQueryTranslator(TABLE), {}
    smt.bag("Wo ist das Haus")
    for name, value in (("top_k", 1), ("threshold", 0.6), ("stop", True), ("relate", False), ("stemmer", str.upper)):
        options[name] = value
        smt.set_parameter(name, value)
        assert list(smt.bag("Wo ist das Bankhaus, Haus").items()) == bag("Wo ist das Bankhaus, Haus", **options), name


def test_a_table_can_be_named_by_its_directory(tmp_path):
    TABLE.save(tmp_path / "table")
    named = SMTQueryTranslator(str(tmp_path / "table"))
    assert named.table == TABLE and bag("Haus") == list(named.bag("Haus").items())


def test_a_cut_off_moves_before_the_translation():
    frame = pt.model.add_ranks(topics(*["Haus"] * 3).assign(qid="q", docno=list("abc"), score=[3.0, 1.0, 2.0]))
    smt = SMTQueryTranslator(TABLE, 1)
    assert smt.fuse_rank_cutoff(2)(frame)["docno"].tolist() == ["a", "c"]


# ---------------------------------------------------------------------------------------------------------- engines

# A word, its two translations (the first one is surer), in scripts that reach engines as they are.
LANGUAGES = {
    "vi": ("đường", "phố"),
    "hi": ("सड़क", "मार्ग"),
    "ar": ("شارع", "طريق"),
    "ru": ("улица", "дорога"),
    "en": ("1517", "90"),  # digits
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_weights_decide_the_ranking(engine, lang, tmp_path):
    first, second = LANGUAGES[lang]
    docs = [{"docno": "one", "text": f"{first} aa bb"}, {"docno": "two", "text": f"cc {second} dd"}]
    docs += [{"docno": f"other{i}", "text": f"ee{i} ff gg"} for i in range(4)]
    bm25 = bm25_index(docs, tmp_path / "index", lang, engine=engine, progress=False).bm25()
    scores = {}
    for surer, weights in (("one", (0.7, 0.3)), ("two", (0.3, 0.7))):
        table = TranslationTable.from_dict({"strasse": dict(zip((first, second), weights, strict=True))}, "de", lang)
        out = (SMTQueryTranslator(table) >> bm25).search("Straße")
        assert out["docno"].tolist() == [surer, "two" if surer == "one" else "one"]
        scores[surer] = dict(zip(out["docno"], out["score"], strict=True))
    # The documents are alike but for the words, so that scores are proportional to the weights.
    assert scores["one"]["one"] / scores["one"]["two"] == pytest.approx(7 / 3, rel=1e-3)
    assert scores["one"]["one"] == pytest.approx(scores["two"]["two"], rel=1e-3)


@needs_java
@pytest.mark.parametrize("lang", ["en", "hi"])
def test_the_engines_agree(lang, tmp_path):
    """With linear weights PISA and Terrier rank alike.

    Measured with k1 = 0.9 and b = 0.4: the worst query's Spearman correlation over the documents that both find was
    0.9996 (en) and 0.9999 (hi), and AP@100 was equal in all digits. What is left is PISA's
    rounding of weights to 1e-4 of a query's largest.
    """
    data = XQuADR("de", lang)
    queries = data.get_topics().iloc[::8]
    smt = SMTQueryTranslator(question_table("de", lang))
    runs = {}
    for engine in ("pisa", "terrier"):
        index = bm25_index(data, tmp_path / engine, engine=engine, progress=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*query terms weigh less")
            runs[engine] = (smt >> index.bm25(num_results=100))(queries)
    both = runs["pisa"].merge(runs["terrier"], on=["qid", "docno"], suffixes=("", "_terrier"))
    assert len(both) >= 0.99 * len(runs["pisa"]) and both["qid"].nunique() == len(queries)
    np.testing.assert_allclose(both["score"], both["score_terrier"], rtol=2e-3, atol=2e-3)
    worst = min(group["score"].rank().corr(group["score_terrier"].rank()) for _, group in both.groupby("qid"))
    qrels = data.get_qrels().merge(queries[["qid"]])
    means = [pt.Evaluate(run, qrels, [pt.measures.AP @ 100])["AP@100"] for run in runs.values()]
    assert worst >= 0.999
    assert means[0] == pytest.approx(means[1], abs=1e-3) and means[0] > 0.1


def test_an_index_that_pisa_made_the_usual_way(tmp_path):
    pisa = pytest.importorskip("pyterrier_pisa", reason="PISA has wheels for Linux on x86-64 only")
    texts = [
        "The elected officials were running houses for the poor.", "A cat sleeps in the garden of my neighbour.",
        "Cities of the north trade in fishes.", "Nothing to see.",
    ]  # fmt: skip
    table = TranslationTable.from_dict(  # whose targets have other endings than the documents' words
        {
            "katze": {"cats": 0.75, "the": 0.25}, "haus": {"housing": 1.0}, "fisch": {"fishing": 0.5, "fish": 0.5},
            "stadt": {"city": 1.0},
        },
        "de",
        "en",
    )  # fmt: skip
    index = pisa.PisaIndex(str(tmp_path / "index"), stemmer="porter2", text_field="text")
    index.index([{"docno": f"d{i}", "text": text} for i, text in enumerate(texts, start=1)])
    # What the tokeniser gives for a word that is not ASCII, or for nothing: no stem.
    assert index.tokenize("") == index.tokenize("नमस्ते") == []
    smt = SMTQueryTranslator(table, stemmer=lambda word: "".join(index.tokenize(word)))
    assert smt.bag("Fisch") == {"fish": 1.0} and smt.bag("नमस्ते") == {"नमस्ते": 1.0}
    bm25 = index.bm25(query_weighted=True, toks_scale=10_000.0)
    for query, docno in {"Katze": "d2", "Haus": "d1", "Fisch": "d3", "Stadt": "d3"}.items():
        assert (smt >> bm25).search(query)["docno"].tolist()[0] == docno, query
    assert (smt >> bm25).search("नमस्ते").empty
