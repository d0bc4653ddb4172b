"""Corpora in several languages, graded pairs, folds without leaks, transfer modes, settings."""

import json
import pickle

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.datasets.corpus import XQUAD_R_LANGS, EmptyLanguageError, MultilingualCorpus, normalised
from pyterrier_mart.datasets.graded_pairs import STS_TRACKS, PairCorpus
from pyterrier_mart.evaluation.folds import LeakageError, check_leakage, kfold_by_group, kfold_pairs
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.tasks import TRANSFER_MODES, Arrangement, parse_arrangements, transfer_paths

# Of each fold: queries of training, validation and test set, and test documents of each language.
FOLDS = [
    ((696, 220, 274), (184, 208, 192, 184, 183, 146, 187)),  # the paper's Table 2
    ((708, 220, 262), (281, 314, 291, 286, 299, 197, 267)),
    ((720, 220, 250), (278, 294, 291, 317, 281, 203, 263)),
    ((786, 199, 205), (254, 230, 235, 231, 219, 142, 230)),
    ((786, 205, 199), (225, 230, 225, 226, 237, 164, 220)),
]


@pytest.fixture(scope="module")
def xquad():
    return MultilingualCorpus.xquad_r()


@pytest.fixture(scope="module")
def folds(xquad):
    return list(kfold_by_group(xquad))


@pytest.fixture(scope="module")
def sts():
    return PairCorpus.sts17()


def frames(groups=6):
    """Two languages; each group has two queries, an answer to both, and another document."""
    topics, docs, qrels = [], [], []
    for g in range(groups):
        for lang in ("de", "en"):
            docs += [(f"{lang}{g}{c}", f"{lang} text {c} of article {g}", lang, f"{g}{c}", f"g{g}") for c in "ab"]
            for i in range(2):
                qid = f"{lang}-q{g}{i}"
                topics.append((qid, f"{lang} question {i} on {g}", lang, f"q{g}{i}", f"g{g}"))
                qrels += [(qid, f"{to}{g}a", 1) for to in ("de", "en")]
    return (
        pd.DataFrame(topics, columns=["qid", "query", "query_lang", "qgroup", "group"]),
        pd.DataFrame(docs, columns=["docno", "text", "doc_lang", "dgroup", "group"]),
        pd.DataFrame(qrels, columns=["qid", "docno", "label"]),
    )


def changed(frame, row, **values):
    frame = frame.copy()
    for column, value in values.items():
        frame[column] = frame[column].astype(object)
        frame.loc[row, column] = value
    return frame


def toy(groups=6, **changes):
    topics, docs, qrels = frames(groups)
    return MultilingualCorpus.from_frames(**{"topics": topics, "docs": docs, "qrels": qrels, "name": "toy", **changes})


def pair_frame(rows=6):
    return pd.DataFrame(
        {
            "pair_id": [f"p{i}" for i in range(rows)],
            "sentence1": [f"first {i}" for i in range(rows)],
            "sentence2": [f"second {i}" for i in range(rows)],
            "score": [i % 6 for i in range(rows)],
            "lang1": "de",
            "lang2": "en",
        }
    )


# --------------------------------------------------------------------------------------------------------- XQuAD-R


def test_xquad_r(xquad):
    assert xquad.query_langs == xquad.doc_langs == XQUAD_R_LANGS
    assert len(xquad.topics) == 7 * 1190 and len(xquad.docs) == 8214 and len(xquad.qrels) == 49 * 1190
    assert xquad.topics["qgroup"].nunique() == 1190 and len(xquad.groups) == 48
    assert (xquad.topics["qid"] == xquad.topics["query_lang"] + "-" + xquad.topics["qgroup"]).all()
    assert "xquad-r" in repr(xquad) and "1190 queries" in repr(xquad) and "8214 documents" in repr(xquad)


def test_every_query_is_relevant_to_its_answer_in_every_language(xquad):
    for lang in ("el", "th"):
        of_lang = pt.get_dataset(f"mart:xquad-r/{lang}").get_qrels()
        answer = dict(zip(of_lang["qid"].str[3:], of_lang["docno"], strict=True))
        assert all(answer[qid[3:]] in docnos for qid, docnos in xquad.relevant.items())
    assert {len(docnos) for docnos in xquad.relevant.values()} == {7}
    assert all({docno[:2] for docno in docnos} == set(XQUAD_R_LANGS) for docnos in xquad.relevant.values())


def test_texts_are_those_of_the_dataset(xquad):
    for lang in ("ar", "tr"):
        dataset = pt.get_dataset(f"mart:xquad-r/{lang}")
        assert {d: t for d, t in xquad.documents.items() if d[:2] == lang} == {
            docno: fields["text"] for docno, fields in dataset.documents().items()
        }
        topics = dataset.get_topics()
        assert topics["query"].tolist() == [xquad.queries[qid] for qid in topics["qid"]]
    corpus = MultilingualCorpus.xquad_r(["de", "en"], doc_text="sentence+context")
    dataset = pt.get_dataset("mart:xquad-r/de").documents()
    for docno in ("de-000-00", "de-239-01"):
        assert corpus.documents[docno] == dataset[docno]["text"] + " " + dataset[docno]["context"]


def test_translations_of_an_answer_have_one_dgroup(xquad):
    dgroup = dict(zip(xquad.docs["docno"], xquad.docs["dgroup"], strict=True))
    of_query = {}
    for qid, docnos in xquad.relevant.items():
        (shared,) = {dgroup[docno] for docno in docnos}
        assert of_query.setdefault(qid[3:], shared) == shared
    answering = xquad.docs["docno"].isin(xquad.qrels["docno"])
    # No more than that: sentences are joined only if there is a query for both, directly or by way of others.
    assert set(xquad.docs["dgroup"][answering]) == set(of_query.values())
    assert (xquad.docs["dgroup"] == xquad.docs["docno"])[~answering].all()
    assert xquad.docs["dgroup"][answering].nunique() == 494  # linked by all seven languages
    assert MultilingualCorpus.xquad_r(["de"]).docs["dgroup"].is_unique
    assert xquad.docs.groupby("dgroup")["group"].nunique().eq(1).all()


def test_xquad_r_of_other_languages():
    corpus = MultilingualCorpus.xquad_r(["zho", "en"])
    assert corpus.doc_langs == ("en", "zh") and corpus.topics["query_lang"].unique().tolist() == ["zh", "en"]
    for langs, message in ((["de", "fr"], "language must be one of"), (["de", "deu"], "langs: de is named twice")):
        with pytest.raises(ValueError, match=message):
            MultilingualCorpus.xquad_r(langs)


# ----------------------------------------------------------------------------------------------------- from datasets


def test_from_bundled_dataset(xquad):
    corpus = MultilingualCorpus.from_dataset(pt.get_dataset("mart:xquad-r/de-el"))
    same = xquad.restrict(["de"], ["el"])
    assert corpus.documents == same.documents and corpus.relevant == same.relevant
    pd.testing.assert_frame_equal(corpus.topics, same.topics)
    pd.testing.assert_series_equal(corpus.docs["group"], same.docs["group"])
    counts = [[len(split.topics) for split in (f.train, f.valid, f.test)] for f in kfold_by_group(corpus)]
    assert counts == [list(queries) for queries, _ in FOLDS]
    paragraphs = MultilingualCorpus.from_dataset(
        pt.get_dataset("mart:xquad-r/de-el/paragraphs"), fields=["title", "text"]
    )
    assert len(paragraphs.docs) == 240 and paragraphs.documents["el-000"].startswith("Super_Bowl_50 Η άμυνα ")


class Dataset(pt.datasets.Dataset):
    def get_topics(self, variant=None):
        return pd.DataFrame({"qid": [1, 2, 3], "query": ["eins", "zwei", "drei"]})

    def get_corpus_iter(self, verbose=True):
        return iter([{"docno": f"d{i}", "title": f"title {i}", "text": f"text {i}"} for i in range(4)])

    def get_qrels(self, variant=None):
        return pd.DataFrame({"qid": ["1", "2", "2", "3"], "docno": ["d0", "d1", "d2", "d3"], "label": [2, 0, 1, -1]})


def test_from_any_dataset():
    corpus = MultilingualCorpus.from_dataset(Dataset(), "de", "en", fields=["title", "text"])
    assert corpus.queries == {"1": "eins", "2": "zwei"}  # nothing is relevant to query 3
    assert corpus.documents["d3"] == "title 3 text 3" and corpus.relevant == {"1": {"d0"}, "2": {"d2"}}
    assert (corpus.query_langs, corpus.doc_langs) == (("de",), ("en",))
    for given, lacking in (("query_lang", "doc_lang"), ("doc_lang", "query_lang")):
        with pytest.raises(ValueError, match=f"{lacking}: .* does not say its language"):
            MultilingualCorpus.from_dataset(Dataset(), **{given: "de"})
    with pytest.raises(ValueError, match="not graded pairs as .*; use PairCorpus.sts17"):
        MultilingualCorpus.from_dataset(pt.get_dataset("mart:sts17/tr-en"))


# ------------------------------------------------------------------------------------------------------- from frames


def test_from_frames():
    topics, docs, qrels = frames()
    before = [frame.copy() for frame in (topics, docs, qrels)]
    corpus = toy(topics=topics.assign(other=1), qrels=pd.concat([qrels, qrels.head(1).assign(docno="en5b", label=0)]))
    assert list(corpus.topics) == ["qid", "query", "query_lang", "qgroup", "group"] and len(corpus.qrels) == len(qrels)
    assert corpus.relevant["de-q00"] == {"de0a", "en0a"} and corpus.groups == ("g0", "g1", "g2", "g3", "g4", "g5")
    for frame, old in zip((topics, docs, qrels), before, strict=True):
        pd.testing.assert_frame_equal(frame, old)
        frame.index = [7] * len(frame)
    other = toy(topics=topics, docs=docs, qrels=qrels)
    assert other.fingerprint == corpus.fingerprint
    assert all(frame.index.is_unique for frame in (other.topics, other.docs, other.qrels))
    assert pickle.loads(pickle.dumps(toy())).fingerprint == corpus.fingerprint
    without = toy(topics=topics[:0], qrels=qrels[:0])
    assert without.queries == {} and len(without.documents) == 24 and without.query_langs == ()


def test_groups_default_to_what_judgments_link():
    topics, docs, qrels = frames()
    plain = toy(
        topics=topics.drop(columns=["qgroup", "group"]),
        docs=docs.drop(columns=["dgroup", "group"]),
        qrels=qrels[~((qrels["qid"] == "en-q00") & (qrels["docno"] == "de0a"))],
    )
    assert (plain.topics["qgroup"] == plain.topics["qid"]).all() and (plain.docs["dgroup"] == plain.docs["docno"]).all()
    group = dict(
        zip([*plain.topics["qid"], *plain.docs["docno"]], [*plain.topics["group"], *plain.docs["group"]], strict=True)
    )
    assert {group[i] for i in ("de-q00", "de-q01", "en-q00", "de0a", "en0a")} == {"de-q00"}
    assert group["de0b"] == "de0b" and group["de1a"] == "de-q10"
    # A shared dgroup links what no judgment does.
    linked = toy(topics=topics.drop(columns="group"), docs=docs.drop(columns="group"))
    assert linked.docs.set_index("docno")["group"][["de0b", "en0b"]].tolist() == ["de0b", "de0b"]
    assert linked.topics["group"].nunique() == 6


def test_groups_are_carried_over():
    topics, docs, qrels = frames()
    assert toy(topics=topics.drop(columns="group")).topics["group"].tolist() == topics["group"].tolist()
    corpus = toy(docs=docs.drop(columns="group"))
    answering = docs["docno"].str.endswith("a")
    assert (corpus.docs["group"] == docs["group"].where(answering, docs["docno"])).all()
    mixed = changed(qrels, 0, docno="de1a")
    with pytest.raises(ValueError, match=r"group: qid de-q00 is judged with a docno of several groups \(g1, g0\)"):
        toy(topics=topics.drop(columns="group"), qrels=mixed)


@pytest.mark.parametrize(
    ("argument", "change", "message"),
    [
        ("topics", lambda f: f.drop(columns="query_lang"), "topics: missing column query_lang; found qid, query"),
        ("qrels", lambda f: f.drop(columns="label"), "qrels: missing column label"),
        ("docs", lambda f: pd.concat([f, f]), "docs: more than one row with docno de0a, .* and 19 more"),
        ("qrels", lambda f: pd.concat([f, f.tail(1)]), "qrels: judged twice: qid and docno en-q51 en5a"),
        ("qrels", lambda f: changed(f, 3, docno="nowhere"), "qrels: not in docs: docno nowhere"),
        ("qrels", lambda f: changed(f, 3, qid="nobody"), "qrels: not in topics: qid nobody"),
        ("qrels", lambda f: changed(f, 3, label="yes"), "qrels: label must be a number; it is not for qid de-q01"),
        ("topics", lambda f: changed(f, 1, query=None), "topics: a value is missing in 1 rows.*de-q01"),
        ("docs", lambda f: changed(f, 1, text=5), "docs: text must be a string; it is not for docno de0b"),
        ("docs", lambda f: changed(f, 1, doc_lang="zh-tw"), "docs: doc_lang must be a code.* for docno de0b"),
        ("docs", lambda f: f[:0], "qrels: not in docs: docno de0a"),
    ],
)
def test_bad_frames(argument, change, message):
    given = dict(zip(("topics", "docs", "qrels"), frames(), strict=True))
    with pytest.raises(ValueError, match=message):
        toy(**{argument: change(given[argument])})


# ---------------------------------------------------------------------------------------------------- parts of them


def test_restrict(xquad):
    corpus = xquad.restrict(query_langs=["th"], doc_langs=["de", "ar"])
    assert (corpus.query_langs, corpus.doc_langs) == (("th",), ("ar", "de"))
    assert len(corpus.topics) == 1190 and len(corpus.qrels) == 2 * 1190 and len(corpus.docs) == 1222 + 1276
    topics, docs, qrels = frames()
    monolingual = toy(qrels=qrels[qrels["qid"].str[:2] == qrels["docno"].str[:2]])
    assert monolingual.restrict(doc_langs=["en"]).query_langs == ("en",)  # no German query has an answer left
    with pytest.raises(EmptyLanguageError, match="has no documents in fr, no documents in zh; it has queries in ar"):
        xquad.restrict(doc_langs=["fr", "zh", "de"])
    with pytest.raises(EmptyLanguageError, match="has no queries in fr"):
        xquad.restrict(query_langs=["fr"])


def test_subset(xquad):
    part = xquad.subset(["Warsaw", "Super_Bowl_50"], "two")
    assert part.name == "two" and part.groups == ("Super_Bowl_50", "Warsaw")
    assert set(part.topics["group"]) == set(part.docs["group"]) == {"Super_Bowl_50", "Warsaw"}
    assert part.relevant == {qid: xquad.relevant[qid] for qid in part.queries}
    with pytest.raises(ValueError, match="groups: .* no Atlantis; it has Super_Bowl_50"):
        xquad.subset(["Warsaw", "Atlantis"])


def test_fingerprint_is_of_the_content():
    topics, docs, qrels = frames()
    one = toy().fingerprint
    assert toy(name="other").fingerprint == one == toy(qrels=qrels.assign(label=1.0)).fingerprint
    # The same in every process and version.
    assert one == "ac5c55b2839366f77adc457d78dc8dc3962eaab4ec50f7d52120defcd6b8b59e"
    others = {
        toy(docs=changed(docs, 1, text="another")).fingerprint,
        toy(topics=topics[::-1]).fingerprint,
        toy(qrels=qrels.assign(label=2)).fingerprint,
        toy(qrels=qrels[1:]).fingerprint,
    }
    assert len(others) == 4 and one not in others


# ------------------------------------------------------------------------------------------------------------- folds


@pytest.mark.parametrize("index", range(5))
def test_xquad_r_folds(folds, index):
    fold, (queries, documents) = folds[index], FOLDS[index]
    splits = (fold.train, fold.valid, fold.test)
    assert fold.index == index and fold.test.name.endswith(f"fold {index} test")
    assert tuple(split.topics["qgroup"].nunique() for split in splits) == queries
    assert tuple(len(split.topics) for split in splits) == tuple(7 * n for n in queries)
    assert tuple(fold.test.docs.groupby("doc_lang").size()[list(XQUAD_R_LANGS)]) == documents
    assert [len(split.groups) for split in splits] == ([28, 10, 10] if index < 3 else [30, 9, 9])
    assert all(len(split.relevant[qid]) == 7 for split in splits for qid in split.queries)


def test_folds_are_a_partition(xquad, folds):
    assert [group for fold in folds for group in fold.test.groups] == list(xquad.groups)
    for fold in folds:
        together = [*fold.train.docs["docno"], *fold.valid.docs["docno"], *fold.test.docs["docno"]]
        assert sorted(together) == sorted(xquad.docs["docno"])
    assert [fold.valid.groups == folds[0].valid.groups for fold in folds] == [True, True, True, False, False]
    assert folds[0].valid.groups == xquad.groups[38:] and folds[4].valid.groups == xquad.groups[30:39]


def test_rotating_and_shuffled_folds():
    corpus = MultilingualCorpus.xquad_r(xquad_r.LANGUAGES).restrict(["tr"])  # with all the duplicates there are
    rotating = list(kfold_by_group(corpus, valid="rotating"))
    assert [fold.valid.groups for fold in rotating] == [rotating[(i + 1) % 5].test.groups for i in range(5)]
    small = corpus.restrict(["tr"], ["tr"])
    by_seed = {}
    for seed in (1, 1, 2):
        tests = [fold.test.groups for fold in kfold_by_group(small, seed=seed)]
        assert sorted(group for test in tests for group in test) == sorted(corpus.groups)
        assert by_seed.setdefault(seed, tests) == tests
    assert by_seed[1] != by_seed[2] and by_seed[1][0] != corpus.groups[:10]


def test_groups_of_documents_only_are_divided_too():
    topics, docs, qrels = frames()
    docs.loc[docs["docno"].str.endswith("b"), "group"] = "other" + docs["docno"]
    folds = list(kfold_by_group(toy(docs=docs), 3))
    assert [len(fold.test.topics) for fold in folds] == [8, 8, 8] == [len(fold.test.docs) for fold in folds]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_splits": 2}, "n_splits must be a whole number >= 3, not 2"),
        ({"n_splits": 7}, "n_splits 7 is too much for 6 groups or rows of "),
        ({"valid": "first"}, "valid must be one of last, rotating, not 'first'"),
    ],
)
def test_bad_folds(arguments, message):
    for make, corpus in ((kfold_by_group, toy()), (kfold_pairs, PairCorpus.from_frame(pair_frame()))):
        with pytest.raises(ValueError, match=message):  # at once, not when the first fold is asked for
            make(corpus, **{"n_splits": 3, **arguments})


def test_too_few_groups_for_the_last_ones():
    with pytest.raises(ValueError, match="n_splits 3 is too much for 4 groups"):
        kfold_by_group(toy(4), 3)
    assert len(list(kfold_by_group(toy(4), 3, valid="rotating"))) == 3 == len(list(kfold_by_group(toy(3), 3)))


# ----------------------------------------------------------------------------------------------------------- leakage


def planted(**change):
    """Six groups, with something of group 0 in group 5 as well."""
    topics, docs, qrels = frames()
    for column, value in change.items():
        if column in topics:
            topics = changed(topics, len(topics) - 1, **{column: value})
        else:
            docs = changed(docs, len(docs) - 1, **{column: value})  # no answer
    return toy(topics=topics, docs=docs, qrels=qrels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qgroup": "q00"}, r"valid and test share a qgroup: 'q00' \(en-q51 and de-q00\)"),
        ({"dgroup": "0b"}, r"valid and test share a dgroup: '0b' \(en5b and de0b\)"),
        ({"query": "DE  Ｑuestion 0 on 0"}, r"share a query text: 'de question 0 on 0' \(en-q51 and de-q00\)"),
        ({"text": " De\ttext a of ARTICLE 0\n"}, r"share a document text: 'de text a of article 0' \(en5b and de0a\)"),
    ],
)
def test_leaks_are_named(change, message):
    with pytest.raises(LeakageError, match=message):
        next(kfold_by_group(planted(**change), 6))


def test_articles_in_two_splits(xquad, folds):
    with pytest.raises(LeakageError, match=r"train and test share a group: 'Warsaw' \(.*\)"):
        check_leakage(xquad.subset(["Warsaw", "Normans"]), None, xquad.subset(["Warsaw"]))
    # Also when the languages have nothing in common.
    with pytest.raises(LeakageError, match="'Warsaw'"):
        check_leakage(xquad.restrict(["de"], ["de"]), test=xquad.restrict(["ar"], ["ar"]).subset(["Warsaw"]))
    check_leakage(folds[0].train)
    with pytest.raises(LeakageError, match="toy: .*: de-q00 and de1a"):
        kfold_by_group(toy(qrels=changed(frames()[2], 0, docno="de1a")), 3)


def test_sentences_that_are_no_answers_may_repeat():
    assert len(list(kfold_by_group(planted(text="de text b of article 0"), 6))) == 6
    topics, docs, qrels = frames()
    fragment = docs["docno"].isin(["en0a", "en5b"])
    assert len(list(kfold_by_group(toy(docs=docs.assign(text=docs["text"].mask(fragment, "I."))), 6))) == 6
    with pytest.raises(LeakageError, match=r"'i\. j\. k\.' \(en5b and en0a\)"):
        next(kfold_by_group(toy(docs=docs.assign(text=docs["text"].mask(fragment, "I. J. K."))), 6))


def test_what_repeats_in_xquad_r():
    """The exceptions of check_leakage are there for these, and only these."""
    corpus = MultilingualCorpus.xquad_r(xquad_r.LANGUAGES)
    docs = corpus.docs.assign(key=corpus.docs["text"].map(normalised))
    repeated = docs[docs.groupby("key")["group"].transform("nunique") > 1]
    assert repeated.groupby("doc_lang")["key"].unique().map(list).to_dict() == {
        "ar": ["[بحاجة لمصدر]"], "hi": ["citation needed]"], "tr": ["i."], "zh": ["需要引证]"],
    }  # fmt: skip
    assert set(repeated["docno"]) & set(corpus.qrels["docno"]) == {"tr-209-00"}


def test_normal_form():
    assert normalised(" Ａ\u00a0STRASSE\n") == "a strasse" == normalised("a Straße")
    assert normalised("É") == normalised("E\u0301")


# ------------------------------------------------------------------------------------------------------------- pairs


def test_sts17(sts):
    assert sts.tracks == STS_TRACKS == ("ar-ar", "ar-en", "es-es", "es-en", "en-en", "tr-en")
    assert sts.pairs.groupby("track").size().eq(250).all() and sts.rows == tuple(range(250))
    turkish = sts.restrict(["tr-en"]).pairs
    published = pt.get_dataset("mart:sts17/tr-en").pairs()
    pd.testing.assert_frame_equal(turkish[list(published)], published)
    assert set(turkish["lang1"]) == {"tr"} and set(turkish["lang2"]) == {"en"}
    assert "1500 pairs (ar-ar," in repr(sts)


def test_sts17_folds(sts):
    folds = list(kfold_pairs(sts))
    for index, fold in enumerate(folds):
        splits = (fold.train, fold.valid, fold.test)
        for split, size in zip(splits, (150, 50, 50), strict=True):
            assert split.pairs.groupby("track").size().to_dict() == dict.fromkeys(STS_TRACKS, size)
        assert fold.test.rows == tuple(range(50 * index, 50 * index + 50))
        assert sorted(row for split in splits for row in split.rows) == list(range(250))
    assert folds[0].valid.rows == tuple(range(200, 250)) and folds[4].valid.rows == tuple(range(150, 200))


def test_pairs_leak(sts):
    with pytest.raises(LeakageError, match=r"share a sentence: .*es-en-wmt-\d+ and es-en-wmt-\d+"):
        list(kfold_pairs(PairCorpus.sts17(["es-en-wmt"])))  # machine translations
    with pytest.raises(LeakageError, match=r"train and valid share a row: 3 \(ar-ar-003 and es-es-003\)"):
        check_leakage(sts.restrict(["ar-ar"]).subset([3, 4]), sts.restrict(["es-es"]).subset([3]))


def test_pairs_from_a_frame():
    pairs = pd.concat([pair_frame(3), pair_frame(2).assign(lang1="tr", pair_id=[7, 8])])
    corpus = PairCorpus.from_frame(pairs, "mine")
    assert corpus.tracks == ("de-en", "tr-en") and corpus.pairs["row"].tolist() == [0, 1, 2, 0, 1]
    assert corpus.pairs["pair_id"].tolist() == ["p0", "p1", "p2", "7", "8"] and corpus.name == "mine"
    assert corpus.subset([1]).pairs["pair_id"].tolist() == ["p1", "8"]
    assert PairCorpus.from_frame(pairs, "other").fingerprint == corpus.fingerprint
    assert PairCorpus.from_frame(pairs.assign(score=1)).fingerprint != corpus.fingerprint


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: PairCorpus.from_frame(f.drop(columns="score")), "pairs: missing column score"),
        (lambda f: PairCorpus.from_frame(f.assign(score=5.1)), "score must be a number from 0 to 5; it is not for p0"),
        (lambda f: PairCorpus.from_frame(f.assign(pair_id="p")), "pairs: more than one row with pair_id p$"),
        (lambda f: PairCorpus.from_frame(f.assign(lang2="e_n")), "pairs: lang2 must be a code"),
        (lambda f: PairCorpus.sts17(["de-en"]), "track must be one of ar-ar"),
        (lambda f: PairCorpus.sts17(["ar-en", "ara-eng"]), "tracks: ar-en is named twice"),
        (lambda f: PairCorpus.sts17().restrict(["de-en"]), "tracks: .* has no de-en; it has ar-ar"),
        (lambda f: PairCorpus.sts17().subset([0, 250]), "rows: .* has no 250"),
    ],
)
def test_bad_pairs(make, message):
    with pytest.raises(ValueError, match=message):
        make(pair_frame())


# ------------------------------------------------------------------------------------------------------ transfer modes


def test_arrangements():
    assert parse_arrangements("el_el-el_ar-el_ar,el,hi|hi_hi-hi_de") == (
        (Arrangement("el", ("el",)), Arrangement("el", ("ar",)), Arrangement("el", ("ar", "el", "hi"))),
        (Arrangement("hi", ("hi",)), Arrangement("hi", ("de",))),
    )
    assert str(Arrangement("el", ("ar", "el"))) == "el_ar,el"


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("el_el", "el_el"),
        ("el_el-el_ar-el_de-el_hi", "el_el-el_ar-el_de-el_hi"),
        ("hi_hi-hi_de|el_el-elar", "el_el-elar"),
        ("el_el-el_ar,,de", "el_el-el_ar,,de"),
        ("el_el-el_ar,ar", "el_el-el_ar,ar"),
        ("el_el-el_ar|", ""),
    ],
)
def test_bad_arrangements(spec, named):
    with pytest.raises(ValueError, match=f"transfer must be paths of .* not '{named}' in "):
        parse_arrangements(spec)


def test_transfer_modes():
    """Table 4 of the paper."""

    def shown(mode, split="train"):
        return [" ".join(map(str, path)) for path in transfer_paths(mode, split)]

    assert shown("mono-mono") == ["el_el ar_ar", "hi_hi de_de"]
    assert shown("mono-bi") == ["el_el el_ar", "hi_hi hi_de"]
    assert shown("mono-multi") == ["el_el el_ar,el", "hi_hi hi_de,hi"]
    assert shown("bi-multi") == ["el_ar el_ar,el", "hi_de hi_de,hi"]
    assert shown("mixt") == [*shown("mono-mono"), *shown("mono-bi"), *shown("mono-multi"), *shown("bi-multi")]
    assert [shown("trans", split) for split in ("train", "valid", "test")] == [
        shown("mono-bi"), shown("bi-multi"), shown("mono-multi"),
    ]  # fmt: skip
    assert shown("mono-bi-multi") == ["el_el el_ar el_ar,el,hi", "hi_hi hi_de hi_ar,de,hi"]
    assert shown("tr_tr-tr_ru") == ["tr_tr tr_ru"] and len(TRANSFER_MODES) == 7
    with pytest.raises(ValueError, match="transfer must be one of mono-mono, .*'multi-mono'"):
        transfer_paths("multi-mono")
    with pytest.raises(ValueError, match="split must be one of train, valid, test, not 'dev'"):
        transfer_paths("mixt", "dev")


# ---------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "config",
    [MetaConfig(), MetaConfig.paper(), MetaConfig.code(max_steps=3), MetaConfig(n_tasks=(1, 2, 3), freeze=None)],
)
def test_settings_as_json(config):
    assert MetaConfig.from_json(json.dumps(config.as_json())) == config == MetaConfig.from_json(config.as_json())
    assert eval(config.short(), {"MetaConfig": MetaConfig}) == config
    assert MetaConfig.from_json('{"k_shot": 3}') == MetaConfig().replace(k_shot=3) != MetaConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must be a JSON object, not list"),
        ('{"kshot": 3}', "unknown setting kshot; expected some of .*k_shot"),
        ('{"k_shot": true}', "k_shot must be a whole number >= 1, not True"),
        ('{"inner_lr": 0}', "inner_lr must be a positive number, not 0"),
        ('{"kd": "mse"}', "kd must be one of kl-logits"),
        ('{"n_tasks": [1, 2]}', "n_tasks must be 3 whole numbers"),
        ('{"transfer": "el_el"}', "transfer must be paths"),
        ('{"order": "second"}', "needs backend='functional'"),
        ('{"train_mode": 1}', "train_mode must be True or False"),
        ('{"max_steps": -1}', "max_steps must be None or"),
    ],
)
def test_bad_settings(text, message):
    with pytest.raises(ValueError, match=message):
        MetaConfig.from_json(text)
