"""Meta-tasks: alignment, chance, negatives by distance, queries of query sets, graded pairs, messages."""

import hashlib
import inspect
import pickle
import subprocess
import sys
import zlib
from functools import cache

import models
import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.datasets.corpus import EmptyLanguageError, MultilingualCorpus, normalised
from pyterrier_mart.datasets.graded_pairs import PairCorpus
from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
from pyterrier_mart.meta.config import NEGATIVES, MetaConfig
from pyterrier_mart.meta.negatives import NegativeMiner
from pyterrier_mart.meta.sampling import PairTaskSampler, TripletTaskSampler
from pyterrier_mart.meta.tasks import (
    PAIR_TRANSFER_MODES,
    TRANSFER_MODES,
    AlignmentError,
    Row,
    TripletSet,
    parse_arrangements,
)

SMALL = {"k_shot": 3, "q_query": 2, "n_tasks": (40, 20, 10)}


@cache
def xquad(*langs):
    """A third of the articles, for speed."""
    corpus = MultilingualCorpus.xquad_r(langs or ("ar", "de", "el", "hi"))
    return corpus.subset(corpus.groups[::3])


class Chance:
    """An encoder with a random vector for each text."""

    fingerprint = "chance"

    def encode(self, texts, side):
        found = [np.random.default_rng(zlib.crc32(f"{side} {text}".encode())).normal(size=8) for text in texts]
        return np.array(found, dtype=np.float32)


class Known(Chance):
    """An encoder that knows the vectors of texts."""

    def __init__(self, vectors):
        self.vectors = vectors

    def encode(self, texts, side):
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)


@cache
def encoder():
    return TextEncoder(load_sentence_transformer(models.bert(), device="cpu"), (16, 16))


def rows(of):
    for anchor, positive, negatives in zip(of.anchors, of.positives, of.negatives, strict=True):
        yield of.qids[anchor], of.docnos[positive], [of.docnos[i] for i in negatives]


def same(a, b):
    return pickle.dumps(a) == pickle.dumps(b)


def digest(tasks):
    text = repr([[(list(rows(s)), s.queries, s.documents) for s in task.sets] for task in tasks])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def answers(lang):
    """The answering sentence of each question, from the data and not from the corpus."""
    data = xquad_r.load(lang)
    return {q.id: (q.text, data.paragraphs[q.paragraph].sentences[q.sentence]) for q in data.questions}


def check_aligned(of, arrangement, queries):
    """Each query has one row per document language, with the sentence that holds its answer in that language."""
    assert len(of) == queries * len(arrangement.doc_langs)
    expected = [(q, lang) for q in dict.fromkeys(q for q, _, _ in rows(of)) for lang in arrangement.doc_langs]
    for (qid, positive, _), (expected_qid, lang), anchor, place in zip(
        rows(of), expected, of.anchors, of.positives, strict=True
    ):
        assert qid == expected_qid and positive.split("-")[0] == lang
        own = qid.partition("-")[2]
        assert qid.startswith(arrangement.query_lang + "-")
        assert of.queries[anchor] == answers(arrangement.query_lang)[own][0]
        assert of.documents[place] == answers(lang)[own][1]


# All but one of the modes are the same in all splits.
@pytest.mark.parametrize(
    ("mode", "split"), [*((mode, "train") for mode in TRANSFER_MODES), ("trans", "valid"), ("trans", "test")]
)
def test_positives_belong_to_their_anchors(mode, split):
    config = MetaConfig(transfer=mode, n_tasks=(16, 16, 16), n_neg=2)
    sampler = TripletTaskSampler(xquad(), config, split)
    assert sampler.paths == parse_arrangements(TRANSFER_MODES[mode][split])
    for i, task in enumerate(sampler):
        path = sampler.paths[i % len(sampler.paths)]
        assert task.index == i and len(task.sets) == len(path)
        for n, (of, arrangement) in enumerate(zip(task.sets, path, strict=True)):
            check_aligned(of, arrangement, 4 if n else 8)
            assert {docno.split("-")[0] for docno in of.docnos} <= set(arrangement.doc_langs)


def test_sets_are_of_relevant_positives_and_other_negatives():
    for relevant in ({"b"}, {"a", "b"}, set()):
        with pytest.raises(AlignmentError, match="the positive must be relevant to the query, and no negative"):
            TripletSet.build([Row("q", "a", ("b",))], {"q": "?"}, {"a": ".", "b": "."}, {"q": relevant})


@pytest.mark.parametrize("sampling", ["random", "similar"])
def test_sets_share_no_query_and_no_answer(sampling):
    corpus = xquad()
    group = dict(zip(corpus.docs["docno"], corpus.docs["dgroup"], strict=True))
    # In this mode all sets have queries in the same language, so that none is a translation.
    config = MetaConfig(query_sampling=sampling, k_shot=32, q_query=16, n_tasks=(12, 1, 1))
    for task in TripletTaskSampler(corpus, config, encoder=Chance()):
        asked = [{qid.partition("-")[2] for qid in s.qids} for s in task.sets]
        found = [{group[positive] for _, positive, _ in rows(s)} for s in task.sets]
        texts = [{normalised(s.documents[i]) for i in s.positives} for s in task.sets]
        for parts in (asked, found, texts):
            assert sum(map(len, parts)) == len(set().union(*parts))
        assert [len(s.qids) for s in task.sets] == [32, 16, 16]


@pytest.mark.parametrize("lang", ["any", "doc", "query"])
@pytest.mark.parametrize("kind", NEGATIVES)
def test_negatives_answer_nothing_in_any_language(kind, lang):
    corpus = xquad()
    config = MetaConfig(negatives=kind, negative_lang=lang, n_neg=5, n_tasks=(3, 1, 1))
    for task in TripletTaskSampler(corpus, config, encoder=Chance()):
        for of in task.sets:
            for qid, positive, negatives in rows(of):
                assert len(set(negatives)) == 5
                answer = qid.partition("-")[2]
                for other in ("ar", "de", "el", "hi"):
                    assert corpus.relevant[f"{other}-{answer}"].isdisjoint(negatives)
                    texts = {normalised(corpus.documents[docno]) for docno in negatives}
                    assert normalised(answers(other)[answer][1]) not in texts
                if lang != "any":
                    langs = {docno.split("-")[0] for docno in negatives}
                    assert langs == {(qid if lang == "query" else positive).split("-")[0]}


def toy(queries=6, langs=("de", "en"), others=3):
    topics = [(f"{lang}{i}", f"question {lang} {i}", lang, f"q{i}") for i in range(queries) for lang in langs]
    docs = [(f"{lang}-d{i}", f"answer {lang} {i}", lang, f"d{i}") for i in range(queries) for lang in langs]
    docs += [(f"{lang}-n{i}", f"other {lang} {i}", lang, f"{lang}-n{i}") for i in range(others) for lang in langs]
    qrels = [(f"{a}{i}", f"{b}-d{i}", 1) for i in range(queries) for a in langs for b in langs]
    return (
        pd.DataFrame(topics, columns=["qid", "query", "query_lang", "qgroup"]),
        pd.DataFrame(docs, columns=["docno", "text", "doc_lang", "dgroup"]),
        pd.DataFrame(qrels, columns=["qid", "docno", "label"]),
    )


def corpus_of(*frames):
    return MultilingualCorpus.from_frames(*frames, name="toy")


def drawn(miner, qid, positive, langs=("de", "en"), n=1, times=400):
    rng = np.random.default_rng(0)
    return {docno for _ in range(times) for docno in miner.sample(qid, positive, langs, n, rng)}


def test_what_may_answer_is_no_negative():
    topics, docs, qrels = toy(4, others=2)
    # Judged in its own language only: the same query in the other language, the answer's translation and what has
    # its text answer it too, and so does the translation of that.
    qrels = qrels[[q[:2] == d[:2] for q, d in zip(qrels["qid"], qrels["docno"], strict=True)]]
    docs.loc[docs["docno"].isin(["de-d0", "en-d0"]), "dgroup"] = ["x", "y"]
    docs.loc[docs["docno"] == "en-n0", "dgroup"] = "x"
    docs.loc[docs["docno"] == "de-n1", "text"] = "ANSWER  de 0"
    docs.loc[docs["docno"].isin(["de-n1", "en-n1"]), "dgroup"] = "z"
    corpus = corpus_of(topics, docs, qrels)
    expected = {"de-d0", "en-d0", "en-n0", "de-n1", "en-n1"}
    for kind in NEGATIVES:
        miner = NegativeMiner(corpus, MetaConfig(negatives=kind), Chance())
        assert miner.answers("de0") == miner.answers("en0") == expected
        assert drawn(miner, "de0", "de-d0", n=7, times=1) == set(docs["docno"]) - expected
        with pytest.raises(ValueError, match="expected 8 negatives for the query de0, found 7 in de, en"):
            drawn(miner, "de0", "de-d0", n=8, times=1)
    # What may answer a query is not punished as a document of another query of the set either.
    task = TripletTaskSampler(corpus, MetaConfig(transfer="de_de-en_en", k_shot=2, q_query=2))[0]
    for i, qid in enumerate(task.support_set.qids):
        assert {d for d, r in zip(task.support_set.docnos, task.support_set.relevant[i], strict=True) if r} == {
            d for d in task.support_set.docnos if d in miner.answers(qid)
        }


def test_random_negatives_are_of_each_language_equally_often():
    topics, docs, qrels = toy(3, others=30)
    docs = docs[~(docs["docno"].str.startswith("en-n") & (docs["docno"] > "en-n1"))]
    miner = NegativeMiner(corpus_of(topics, docs, qrels), MetaConfig())
    rng = np.random.default_rng(0)
    found = [miner.sample("de0", "de-d0", ("de", "en"), 1, rng)[0] for _ in range(2000)]
    assert sum(docno.startswith("en") for docno in found) == pytest.approx(1000, abs=100)
    assert len(set(found)) == len(docs) - 2


# Documents on a line, the query at 0 and the positive at 2.
LINE = {
    "de-d0": 2.0, "en-d0": 0.5, "de-d1": 1.0, "en-d1": -1.5, "de-d2": 2.5, "en-d2": -2.9, "de-n0": 3.0, "en-n0": 3.1,
    "de-n1": -9.0, "en-n1": 2.0,
}  # fmt: skip


def on_a_line(kind, places=LINE):
    corpus = corpus_of(*toy(3, others=2))
    vectors = dict.fromkeys(corpus.queries.values(), [0.0, 0.0])
    vectors |= {corpus.documents[docno]: [x, 0.0] for docno, x in places.items()}
    return NegativeMiner(corpus, MetaConfig(negatives=kind, loss="triplet", triplet_margin=1.0), Known(vectors))


@pytest.mark.parametrize(
    ("kind", "expected", "next_best"),
    [
        ("hard", {"de-d1", "en-d1"}, "en-n1"),  # the nearest that is left
        ("semi-hard", {"de-d2", "en-d2"}, "de-n0"),  # the first at a bound
        ("easy", {"en-n0", "de-n1"}, "de-n0"),  # the farthest
    ],
)
def test_hard_semi_hard_and_easy(kind, expected, next_best):
    miner = on_a_line(kind)
    assert [miner.distance("de0", d) for d in ("de-d0", "en-d1", "de-n1")] == [2.0, 1.5, 9.0]
    assert drawn(miner, "de0", "de-d0") == expected  # at the bounds, 2 and 3, none is either
    assert drawn(miner, "de0", "de-d0", ("en",)) == {d for d in expected if d.startswith("en")}
    assert drawn(miner, "de0", "de-d0", n=3, times=5) == {*expected, next_best}


def test_stand_ins_where_none_is_such():
    far = dict.fromkeys(LINE, 7.0) | {"de-d0": 2.0, "en-d2": 6.0}
    near = dict.fromkeys(LINE, 0.1) | {"de-d0": 2.0, "en-d2": 1.9}
    for kind, places in (("hard", far), ("semi-hard", far), ("semi-hard", near), ("easy", near)):
        assert drawn(on_a_line(kind, places), "de0", "de-d0") == {"en-d2"}


def test_distances_are_those_of_the_encoder(one_thread):
    corpus = corpus_of(*toy())
    queries, documents = (
        encoder().encode(texts, side)
        for texts, side in ((corpus.topics["query"], "query"), (corpus.docs["text"], "document"))
    )
    for loss in ("triplet", "triplet-dot", "mnrl"):
        miner = NegativeMiner(corpus, MetaConfig(negatives="hard", loss=loss), encoder())
        for q, d in ((0, 0), (3, 10), (11, 17)):
            a, b = queries[q].astype(float), documents[d].astype(float)
            cosine = a @ b / np.sqrt((a @ a) * (b @ b))
            expected = {"triplet": np.linalg.norm(a - b), "triplet-dot": -a @ b, "mnrl": 1 - cosine}[loss]
            found = miner.distance(corpus.topics["qid"][q], corpus.docs["docno"][d])
            assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [("random", "random"), ("hard", "similar"), ("semi-hard", "translation"), ("easy", "random")],
)
def test_a_task_is_a_function_of_seed_split_and_index(kind, sampling):
    corpus = xquad()
    config = MetaConfig(negatives=kind, query_sampling=sampling, transfer="mixt", **SMALL)
    first, second = (TripletTaskSampler(corpus, config, encoder=Chance()) for _ in range(2))
    tasks = list(first)
    assert len(tasks) == len(first) == 40 == len({pickle.dumps(task.support_set) for task in tasks})
    for i in (39, 0, 7, 0, 21):
        assert same(second[i], tasks[i])
    other = TripletTaskSampler(corpus, config.replace(seed=43), encoder=Chance())
    valid = TripletTaskSampler(corpus, config, "valid", encoder=Chance())
    assert len(valid) == 20 and not any(same(of[i], tasks[i]) for of in (other, valid) for i in range(8))


_OTHER_PROCESS = """
import hashlib, zlib
import numpy as np
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.meta.sampling import TripletTaskSampler
{functions}
corpus = MultilingualCorpus.xquad_r(("ar", "de", "el", "hi"))
corpus = corpus.subset(corpus.groups[::3])
config = MetaConfig(negatives="semi-hard", query_sampling="similar", **{small})
sampler = TripletTaskSampler(corpus, config, encoder=Chance())
print(digest([sampler[12], sampler[3]]), sampler.fingerprint)
"""


def test_another_process_makes_the_same_tasks():
    config = MetaConfig(negatives="semi-hard", query_sampling="similar", **SMALL)
    sampler = TripletTaskSampler(xquad(), config, encoder=Chance())
    functions = "\n".join(map(inspect.getsource, (Chance, rows, digest)))
    code = _OTHER_PROCESS.format(functions=functions, small=SMALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [digest([sampler[12], sampler[3]]), sampler.fingerprint]


def test_batches():
    sampler = TripletTaskSampler(xquad(), MetaConfig(transfer="mixt", **SMALL))
    batches = list(sampler.batches(6, 0))
    assert [len(batch) for batch in batches] == [6] * 6 + [4]
    order = [task.index for batch in batches for task in batch]
    assert sorted(order) == list(range(40)) and order != sorted(order)
    assert same(batches[3][2], sampler[order[20]])
    assert order == [task.index for batch in sampler.batches(6, 0) for task in batch]
    assert order != [task.index for batch in sampler.batches(6, 1) for task in batch]
    with pytest.raises(IndexError, match="there are tasks 0 to 39 of the split train, not 40"):
        sampler[40]
    firsts = [task.support_set.qids[0][:2] + task.query_set.qids[0][:2] for task in sampler]
    assert {pair: firsts.count(pair) for pair in firsts} == {"elar": 5, "elel": 15, "hihi": 15, "hide": 5}


def test_fingerprint():
    corpus = xquad()

    def of(corpus=corpus, split="train", **changes):
        return TripletTaskSampler(corpus, MetaConfig(**{**SMALL, **changes}), split, Chance()).fingerprint

    assert of() == of() == of(inner_lr=1.0, triplet_margin=0.5, loss="triplet")  # no task changes
    changed = [
        {"split": "valid"}, {"seed": 1}, {"k_shot": 4}, {"n_neg": 2}, {"n_tasks": (41, 20, 10)},
        {"transfer": "mono-bi"}, {"query_sampling": "similar"}, {"query_sampling": "similar", "top_k": 9},
        {"negative_lang": "doc"}, {"negatives": "easy"}, {"negatives": "easy", "triplet_margin": 0.1},
        {"negatives": "easy", "loss": "triplet"}, {"negatives": "easy", "loss": "triplet-dot"},
        {"corpus": corpus.subset(corpus.groups[1:])},
    ]  # fmt: skip
    assert len({of(), *(of(**change) for change in changed)}) == 1 + len(changed)


def test_tasks_are_of_the_encoder_as_it_was(one_thread):
    corpus = corpus_of(*toy(12))
    config = MetaConfig(transfer="de_de-en_en", negatives="hard", query_sampling="similar", **SMALL)
    model = load_sentence_transformer(models.bert(), device="cpu")
    of_encoder = TextEncoder(model, (16, 16))
    sampler = TripletTaskSampler(corpus, config, encoder=of_encoder)
    expected, key = digest(sampler), sampler.fingerprint
    assert TripletTaskSampler(corpus, config, encoder=encoder()).fingerprint == key
    with torch.no_grad():
        for weights in model.parameters():
            weights += torch.randn(weights.shape, generator=torch.Generator().manual_seed(0))
    assert (digest(sampler), sampler.fingerprint) == (expected, key)
    assert TripletTaskSampler(corpus, config, encoder=of_encoder).fingerprint != key


def test_translation_asks_the_same_queries():
    config = MetaConfig(transfer="el_el-ar_ar-hi_de,hi", query_sampling="translation", n_tasks=(20, 1, 1))
    for task in TripletTaskSampler(xquad(), config):
        asked = [{qid.partition("-")[2] for qid in s.qids} for s in task.sets]
        assert asked[2] == asked[1] < asked[0]
        assert [{qid[:2] for qid in s.qids} for s in task.sets] == [{"el"}, {"ar"}, {"hi"}]
    with pytest.raises(ValueError, match="q_query must not be more than k_shot=3 .* not 4"):
        TripletTaskSampler(xquad(), config.replace(k_shot=3))
    topics, docs, qrels = toy(6)
    topics = topics[~topics["qid"].isin(["en0", "en1", "en2"])]
    corpus = corpus_of(topics, docs, qrels[qrels["qid"].isin(topics["qid"])])
    config = MetaConfig(transfer="de_de-en_en", query_sampling="translation", **SMALL)
    for task in TripletTaskSampler(corpus, config):  # queries without a translation are left out
        assert sorted(task.support_set.qids) == ["de3", "de4", "de5"]


@pytest.mark.parametrize("transfer", ["el_el-el_ar", "el_el-ar_ar"])
def test_similar_queries(transfer):
    corpus = xquad()
    config = MetaConfig(transfer=transfer, query_sampling="similar", top_k=2, **SMALL)
    place = {qid: i for i, qid in enumerate(corpus.topics["qid"])}
    group = dict(zip(corpus.docs["docno"], corpus.docs["dgroup"], strict=True))
    lang = transfer[6:8]
    vectors = Chance().encode(corpus.topics["query"], "query")
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    there = [qid for qid in corpus.queries if qid.startswith(lang)]
    answered = {qid: {group[d] for d in corpus.relevant[qid]} for qid in corpus.queries}
    seen = set()
    for task in TripletTaskSampler(corpus, config, encoder=Chance()):
        taken = set().union(*(answered[qid] for qid in task.support_set.qids))
        allowed = [qid for qid in there if not answered[qid] & taken]
        near = {}
        for qid in task.support_set.qids:
            order = sorted(allowed, key=lambda other, i=place[qid]: -float(directions[i] @ directions[place[other]]))
            near |= dict.fromkeys(order[:2], "neighbour")
            if lang != "el":
                near[f"{lang}-{qid.partition('-')[2]}"] = "translation"
        assert set(task.query_set.qids) <= set(near)
        seen |= {near[qid] for qid in task.query_set.qids}
    assert seen == ({"neighbour"} if lang == "el" else {"neighbour", "translation"})


def test_similar_queries_are_made_up_for_and_not_translated_back():
    config = MetaConfig(transfer="de_de-en_en-de_de", query_sampling="similar", **SMALL)
    for task in TripletTaskSampler(corpus_of(*toy(12)), config, encoder=Chance()):
        assert not set(task.support_set.qids) & set(task.query_set2.qids)
    config = config.replace(transfer="de_de-de_en", top_k=1, k_shot=2, q_query=6, n_tasks=(9, 1, 1))
    for task in TripletTaskSampler(corpus_of(*toy(8)), config, encoder=Chance()):
        assert len(set(task.query_set.qids) | set(task.support_set.qids)) == 8


def test_one_of_several_positives_is_drawn():
    topics, docs, qrels = toy(4, others=4)
    more = pd.DataFrame({"qid": ["de0", "de0"], "docno": ["de-n0", "en-n1"], "label": 1})
    config = MetaConfig(transfer="de_de,en-de_de", k_shot=3, q_query=1, n_tasks=(60, 1, 1))
    sampler = TripletTaskSampler(corpus_of(topics, docs, pd.concat([qrels, more])), config)
    found = {positive for task in sampler for qid, positive, _ in rows(task.support_set) if qid == "de0"}
    assert found == {"de-d0", "de-n0", "en-d0", "en-n1"}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"transfer": "mono-bi"}, EmptyLanguageError, "toy has no queries in el, no queries in hi, no documents in ar"),
        ({"k_shot": 3, "q_query": 4}, ValueError, "task 0: the set en_en needs 4 queries .*; toy has 3 left of 6"),
        ({"k_shot": 8}, ValueError, "task 0: the set de_de,en needs 8 queries .*; toy has 6 left of 6"),
        ({"n_neg": 99}, ValueError, "expected 99 negatives for the query de., found 16 in de, en"),
        ({"negatives": "hard"}, ValueError, "negatives='hard' needs an encoder"),
        ({"query_sampling": "similar"}, ValueError, "query_sampling='similar' needs an encoder"),
    ],
)
def test_what_is_lacking_is_named(changes, error, message):
    config = MetaConfig(**{"transfer": "de_de,en-en_en", "k_shot": 3, "q_query": 1, **changes})
    with pytest.raises(error, match=message):
        TripletTaskSampler(corpus_of(*toy(6)), config)


def test_negatives_in_a_language_that_lacks():
    config = MetaConfig(transfer="de_en-en_en", negative_lang="query", **SMALL)
    with pytest.raises(EmptyLanguageError, match=r"query de.: .* no documents in de \(negative_lang='query'\)"):
        TripletTaskSampler(corpus_of(*toy(6)).restrict(doc_langs=["en"]), config)


# --------------------------------------------------------------------------------------------------------- graded pairs


@pytest.mark.parametrize("mode", PAIR_TRANSFER_MODES)
def test_pairs_of_sts17(mode):
    pairs = PairCorpus.sts17()
    known = pairs.pairs.set_index("pair_id")
    transfers = set()
    for task in PairTaskSampler(pairs, MetaConfig(transfer=mode, n_tasks=(54, 1, 1))):
        assert [len(s) for s in task.sets] == [8, 4, 4][: len(task.sets)]
        rows_of, tracks = [], []
        for of in task.sets:
            expected = known.loc[list(of.ids)]
            assert list(of.first) == expected["sentence1"].tolist()
            assert list(of.second) == expected["sentence2"].tolist()
            assert of.scores == pytest.approx(expected["score"].to_numpy() / 5) and of.scores.dtype == np.float32
            rows_of += [set(expected["row"])]
            tracks += ["+".join(sorted(set(expected["track"])))]
        assert sum(map(len, rows_of)) == len(set().union(*rows_of))
        transfers.add(tuple(tracks))
    mono, bi = {"ar-ar", "en-en", "es-es"}, {"ar-en", "es-en", "tr-en"}
    if mode == "mono-mono":
        assert transfers == {(a, b) for a in mono for b in mono if a != b}
    elif mode == "mono-bi":
        assert transfers == {(a, b) for a in mono for b in bi}
    else:
        assert {t[:2] for t in transfers} == {("en-en", "ar-en")}
        assert {track for t in transfers for track in t[2].split("+")} == {"en-en", "ar-en", "es-en"}


def test_pairs_share_no_sentence_between_sets():
    frame = pd.DataFrame(
        {
            "pair_id": [f"p{i}" for i in range(6)],
            "sentence1": ["a", "A ", "b", "c", "d", "e"],
            "sentence2": ["s", "t", "u", "v", "U", "w"],
            "score": range(6),
            "lang1": "en",
            "lang2": "en",
        }
    )
    config = MetaConfig(transfer="en_en-en_en", k_shot=2, q_query=1, n_tasks=(60, 1, 1))
    for task in PairTaskSampler(PairCorpus.from_frame(frame), config):
        for one, other in (("p0", "p1"), ("p2", "p4")):
            assert not {one, other} & set(task.support_set.ids) or not {one, other} & set(task.query_set.ids)
    with pytest.raises(ValueError, match="task 0: the set en_en needs 5 pairs .* pairs has [0-4] left of 6"):
        PairTaskSampler(PairCorpus.from_frame(frame), config.replace(q_query=5))


def test_what_pairs_lack_is_named():
    with pytest.raises(EmptyLanguageError, match="no pairs for the set en_ar,es; it has ar-en, en-en"):
        PairTaskSampler(PairCorpus.sts17(["en-en", "ar-en"]), MetaConfig(transfer="en_en-en_ar,es"))
    with pytest.raises(ValueError, match="transfer must be one of mono-mono, mono-bi, mono-bi-multi, or"):
        PairTaskSampler(PairCorpus.sts17(), MetaConfig(transfer="trans"))
