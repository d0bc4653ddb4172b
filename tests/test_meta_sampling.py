"""Meta-tasks: alignment, chance, negatives by distance, questions of query sets, graded pairs, messages."""

import hashlib
import inspect
import pickle
import subprocess
import sys
from functools import cache

import models
import numpy as np
import pandas as pd
import pytest

from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.datasets.corpus import MultilingualCorpus, PairCorpus, normalised
from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
from pyterrier_mart.meta.arrangements import TRANSFER_MODES, parse_arrangements
from pyterrier_mart.meta.config import NEGATIVES, MetaConfig
from pyterrier_mart.meta.errors import AlignmentError, EmptyLanguageError
from pyterrier_mart.meta.negatives import CorpusVectors, NegativeMiner
from pyterrier_mart.meta.sampling import PAIR_TRANSFER_MODES, PairTaskSampler, TripletTaskSampler

SMALL = {"k_shot": 3, "q_query": 2, "n_tasks": (40, 20, 10)}


@cache
def xquad(*langs):
    """A third of the articles, for speed."""
    corpus = MultilingualCorpus.xquad_r(langs or ("ar", "de", "el", "hi"))
    return corpus.subset(corpus.groups[::3])


@cache
def vectors(corpus, size=8):
    chance = np.random.default_rng(5)
    return tuple(chance.normal(size=(len(f), size)).astype(np.float32) for f in (corpus.topics, corpus.docs))


@cache
def encoder():
    return TextEncoder(load_sentence_transformer(models.bert(), device="cpu"), (16, 16))


def sets(task):
    return [s for s in (task.support, task.query, task.query2) if s is not None]


def rows(episode):
    for anchor, positive, negatives in zip(episode.anchors, episode.positives, episode.negatives, strict=True):
        yield episode.qids[anchor], episode.docnos[positive], [episode.docnos[i] for i in negatives]


def same(a, b):
    return pickle.dumps(a) == pickle.dumps(b)


def digest(tasks):
    text = repr([[(list(rows(s)), s.queries, s.documents) for s in sets(task)] for task in tasks])
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def answers(lang):
    """The answering sentence of each question, from the data and not from the corpus."""
    data = xquad_r.load(lang)
    return {q.id: (q.text, data.paragraphs[q.paragraph].sentences[q.sentence], q.answer) for q in data.questions}


def check_aligned(episode, arrangement, questions):
    """Each question has one row per candidate language, with the sentence that holds its answer in that language."""
    assert len(episode) == questions * len(arrangement.doc_langs)
    expected = [(q, lang) for q in dict.fromkeys(q for q, _, _ in rows(episode)) for lang in arrangement.doc_langs]
    for (qid, positive, _), (expected_qid, lang), anchor, place in zip(
        rows(episode), expected, episode.anchors, episode.positives, strict=True
    ):
        assert qid == expected_qid
        assert positive.split("-")[0] == lang
        own = qid.partition("-")[2]
        assert qid.startswith(arrangement.question_lang + "-")
        assert episode.queries[anchor] == answers(arrangement.question_lang)[own][0]
        assert episode.documents[place] == answers(lang)[own][1]


# All but one of the modes are the same in all splits.
@pytest.mark.parametrize(
    ("mode", "split"), [*((mode, "train") for mode in TRANSFER_MODES), ("trans", "valid"), ("trans", "test")]
)
def test_positives_belong_to_their_anchors(mode, split):
    config = MetaConfig(transfer=mode, n_tasks=(16, 16, 16), n_neg=2)
    sampler = TripletTaskSampler(xquad(), config, split)
    paths = parse_arrangements(TRANSFER_MODES[mode][split])
    assert sampler.paths == paths
    seen = set()
    for i, task in enumerate(sampler):
        path = paths[i % len(paths)]
        assert task.index == i and len(sets(task)) == len(path)
        for n, (episode, arrangement) in enumerate(zip(sets(task), path, strict=True)):
            check_aligned(episode, arrangement, 4 if n else 8)
            assert {docno.split("-")[0] for docno in episode.docnos} <= set(arrangement.doc_langs)
            seen.add(len(arrangement.doc_langs))
    assert seen == {len(a.doc_langs) for path in paths for a in path}


@pytest.mark.parametrize("target", ["el_el", "el_ar,el", "el_ar,el,hi"])
def test_the_check_of_alignment_sees_what_is_misaligned(target):
    episode = TripletTaskSampler(xquad(), MetaConfig(transfer=f"el_el-{target}"))[0].query
    ((_, arrangement),) = parse_arrangements(f"el_el-{target}")
    check_aligned(episode, arrangement, 4)
    for moved in (np.roll(episode.positives, 1), episode.positives[::-1]):
        with pytest.raises(AssertionError):
            check_aligned(type(episode)(**{**vars(episode), "positives": moved}), arrangement, 4)
    if len(arrangement.doc_langs) > 1:  # rows of all questions in a language, then in the next
        width = len(arrangement.doc_langs)
        moved = episode.positives.reshape(-1, width).T.reshape(-1)
        with pytest.raises(AssertionError):
            check_aligned(type(episode)(**{**vars(episode), "positives": moved}), arrangement, 4)


def check_separate(task):
    corpus = xquad()
    group = dict(zip(corpus.docs["docno"], corpus.docs["dgroup"], strict=True))
    questions = [{qid.partition("-")[2] for qid in s.qids} for s in sets(task)]
    found = [{group[positive] for _, positive, _ in rows(s)} for s in sets(task)]
    texts = [{normalised(s.documents[i]) for i in s.positives} for s in sets(task)]
    for parts in (questions, found, texts):
        assert sum(map(len, parts)) == len(set().union(*parts))


@pytest.mark.parametrize("sampling", ["random", "similar"])
def test_sets_share_no_question_and_no_answer(sampling):
    # In this mode all sets have questions in the same language, so that none is a translation.
    config = MetaConfig(query_sampling=sampling, k_shot=32, q_query=16, n_tasks=(12, 1, 1))
    for task in TripletTaskSampler(xquad(), config, vectors=vectors(xquad())):
        check_separate(task)
        assert [len(s.qids) for s in sets(task)] == [32, 16, 16]


@pytest.mark.parametrize("lang", ["any", "doc", "query"])
@pytest.mark.parametrize("kind", NEGATIVES)
def test_negatives_answer_nothing_in_any_language(kind, lang):
    corpus = xquad()
    config = MetaConfig(negatives=kind, negative_lang=lang, n_neg=5, n_tasks=(3, 1, 1))
    for task in TripletTaskSampler(corpus, config, vectors=vectors(corpus)):
        for episode in sets(task):
            for qid, positive, negatives in rows(episode):
                assert len(set(negatives)) == 5
                answer = qid.partition("-")[2]
                for other in ("ar", "de", "el", "hi"):
                    assert corpus.relevant[f"{other}-{answer}"].isdisjoint(negatives)
                    assert normalised(answers(other)[answer][1]) not in {
                        normalised(corpus.documents[docno]) for docno in negatives
                    }
                langs = {docno.split("-")[0] for docno in negatives}
                if lang != "any":
                    assert langs == {(qid if lang == "query" else positive).split("-")[0]}


def toy(questions=6, langs=("de", "en"), others=3):
    topics = [(f"{lang}{i}", f"question {lang} {i}", lang, f"q{i}") for i in range(questions) for lang in langs]
    docs = [(f"{lang}-d{i}", f"answer {lang} {i}", lang, f"d{i}") for i in range(questions) for lang in langs]
    docs += [(f"{lang}-n{i}", f"other {lang} {i}", lang, f"{lang}-n{i}") for i in range(others) for lang in langs]
    qrels = [(f"{a}{i}", f"{b}-d{i}", 1) for i in range(questions) for a in langs for b in langs]
    return (
        pd.DataFrame(topics, columns=["qid", "query", "query_lang", "qgroup"]),
        pd.DataFrame(docs, columns=["docno", "text", "doc_lang", "dgroup"]),
        pd.DataFrame(qrels, columns=["qid", "docno", "label"]),
    )


def corpus_of(*frames):
    return MultilingualCorpus.from_frames(*frames, name="toy")


def drawn(miner, qid, positive, langs=("de", "en"), n=1, times=400, **options):
    rng = np.random.default_rng(0)
    return {docno for _ in range(times) for docno in miner.sample(qid, positive, langs, n, rng, **options)}


def test_what_may_answer_is_no_negative():
    topics, docs, qrels = toy(4, others=2)
    # Judged in its own language only: the same question in the other language, the answer's translation and what has
    # its text answer it too, and so does the translation of that.
    qrels = qrels[[q[:2] == d[:2] for q, d in zip(qrels["qid"], qrels["docno"], strict=True)]]
    docs.loc[docs["docno"].isin(["de-d0", "en-d0"]), "dgroup"] = ["x", "y"]
    docs.loc[docs["docno"] == "en-n0", "dgroup"] = "x"
    docs.loc[docs["docno"] == "de-n1", "text"] = "ANSWER  de 0"
    docs.loc[docs["docno"].isin(["de-n1", "en-n1"]), "dgroup"] = "z"
    corpus = corpus_of(topics, docs, qrels)
    assert corpus.relevant["de0"] == {"de-d0"}
    expected = {"de-d0", "en-d0", "en-n0", "de-n1", "en-n1"}
    for kind in NEGATIVES:
        miner = NegativeMiner(corpus, MetaConfig(negatives=kind), vectors=vectors(corpus))
        assert miner.answers("de0") == miner.answers("en0") == expected
        assert drawn(miner, "de0", "de-d0", n=7, times=1) == set(docs["docno"]) - expected
        with pytest.raises(ValueError, match="expected 8 negatives for the question de0, found 7 in de, en"):
            drawn(miner, "de0", "de-d0", n=8, times=1)
        with pytest.raises(ValueError, match="expected 7 negatives for the question de0, found 6 in de, en"):
            drawn(miner, "de0", "de-d0", n=7, times=1, exclude=["de-d1"])
    # What may answer a question is not punished as a candidate of another question of the set either.
    task = TripletTaskSampler(corpus, MetaConfig(transfer="de_de-en_en", k_shot=2, q_query=2))[0]
    for i, qid in enumerate(task.support.qids):
        assert {d for d, r in zip(task.support.docnos, task.support.relevant[i], strict=True) if r} == {
            d for d in task.support.docnos if d in miner.answers(qid)
        }


def test_random_negatives_are_of_each_language_equally_often():
    topics, docs, qrels = toy(3, others=30)
    docs = docs[~(docs["docno"].str.startswith("en-n") & (docs["docno"] > "en-n1"))]
    miner = NegativeMiner(corpus_of(topics, docs, qrels), MetaConfig())
    rng = np.random.default_rng(0)
    found = [miner.sample("de0", "de-d0", ("de", "en"), 1, rng)[0] for _ in range(2000)]
    assert sum(docno.startswith("en") for docno in found) == pytest.approx(1000, abs=100)
    assert len(set(found)) == len(docs) - 2


# Candidates on a line, the question at 0 and the positive at 2.
LINE = {
    "de-d0": 2.0, "en-d0": 0.5, "de-d1": 1.0, "en-d1": -1.5, "de-d2": 2.5, "en-d2": -2.9, "de-n0": 3.0, "en-n0": 3.1,
    "de-n1": -9.0, "en-n1": 2.0,
}  # fmt: skip


def on_a_line(kind, places=LINE, margin=1.0):
    corpus = corpus_of(*toy(3, others=2))
    config = MetaConfig(negatives=kind, loss="triplet", triplet_margin=margin)
    source = ({qid: [0.0, 0.0] for qid in corpus.queries}, {docno: [x, 0.0] for docno, x in places.items()})
    return NegativeMiner(corpus, config, vectors=source)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("hard", {"de-d1", "en-d1"}),
        ("semi-hard", {"de-d2", "en-d2"}),
        ("easy", {"en-n0", "de-n1"}),
    ],
)
def test_hard_semi_hard_and_easy(kind, expected):
    miner = on_a_line(kind)
    assert [miner.distance("de0", d) for d in ("de-d0", "en-d1", "de-n1")] == [2.0, 1.5, 9.0]
    assert drawn(miner, "de0", "de-d0") == expected  # at the bounds, 2 and 3, none is either
    assert drawn(miner, "de0", "de-d0", ("en",)) == {d for d in expected if d.startswith("en")}
    assert drawn(miner, "de0", "de-d0", n=2, times=5) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("hard", ("de-d1", "en-d1", "en-n1")),  # the nearest that is left
        ("semi-hard", ("de-d2", "en-d2", "de-n0")),  # the first at a bound
        ("easy", ("de-n1", "en-n0", "de-n0")),  # the farthest
    ],
)
def test_others_stand_in_where_too_few_are_such(kind, expected):
    assert set(on_a_line(kind).sample("de0", "de-d0", ("de", "en"), 3, np.random.default_rng(0))) == set(expected)


def test_stand_ins_where_none_is_such():
    far = dict.fromkeys(LINE, 7.0) | {"de-d0": 2.0, "en-d2": 6.0}
    assert drawn(on_a_line("hard", far), "de0", "de-d0") == {"en-d2"}
    assert drawn(on_a_line("semi-hard", far), "de0", "de-d0") == {"en-d2"}
    near = dict.fromkeys(LINE, 0.1) | {"de-d0": 2.0, "en-d2": 1.9}
    assert drawn(on_a_line("semi-hard", near), "de0", "de-d0") == {"en-d2"}
    assert drawn(on_a_line("easy", near), "de0", "de-d0") == {"en-d2"}


def test_distance_of_other_losses_is_that_of_directions():
    corpus = corpus_of(*toy(2, others=1))
    source = (np.array([[2.0, 0.0]] * 4), np.array([[5, 0], [0, 3], [-1, 0], [3, 4], [0, 0], [1, 1]], dtype=float))
    miner = NegativeMiner(corpus, MetaConfig(negatives="hard"), vectors=source)
    found = [miner.distance("de0", docno) for docno in corpus.documents]
    assert found == pytest.approx([0, 1, 2, 0.4, 1, 1 - 0.5**0.5], abs=1e-6)


def test_distances_are_those_of_the_encoder(one_thread):
    corpus = corpus_of(*toy())
    queries, documents = (
        encoder().encode(texts, side)
        for texts, side in ((corpus.topics["query"], "query"), (corpus.docs["text"], "document"))
    )
    for loss in ("triplet", "mnrl"):
        miner = NegativeMiner(corpus, MetaConfig(negatives="hard", loss=loss), encoder())
        for q, d in ((0, 0), (3, 10), (11, 17)):
            a, b = queries[q].astype(float), documents[d].astype(float)
            expected = np.linalg.norm(a - b) if loss == "triplet" else 1 - a @ b / np.sqrt((a @ a) * (b @ b))
            found = miner.distance(corpus.topics["qid"][q], corpus.docs["docno"][d])
            assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [("random", "random"), ("hard", "similar"), ("semi-hard", "translation"), ("easy", "random")],
)
def test_a_task_is_a_function_of_seed_split_and_index(kind, sampling):
    corpus = xquad()
    config = MetaConfig(negatives=kind, query_sampling=sampling, transfer="mixt", **SMALL)
    first, second = (TripletTaskSampler(corpus, config, vectors=vectors(corpus)) for _ in range(2))
    tasks = list(first)
    assert len(tasks) == len(first) == 40
    for i in (39, 0, 7, 0, 21):
        assert same(second[i], tasks[i])
    assert len({pickle.dumps(task.support) for task in tasks}) == 40
    other = TripletTaskSampler(corpus, config.replace(seed=43), vectors=vectors(corpus))
    assert not any(same(other[i], tasks[i]) for i in range(8))
    valid = TripletTaskSampler(corpus, config, "valid", vectors=vectors(corpus))
    assert len(valid) == 20 and not any(same(valid[i], tasks[i]) for i in range(8))


_OTHER_PROCESS = """
import hashlib
import numpy as np
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.meta.sampling import TripletTaskSampler
{functions}
corpus = MultilingualCorpus.xquad_r(("ar", "de", "el", "hi"))
corpus = corpus.subset(corpus.groups[::3])
config = MetaConfig(negatives="semi-hard", query_sampling="similar", **{small})
sampler = TripletTaskSampler(corpus, config, vectors=vectors(corpus))
print(digest([sampler[12], sampler[3]]), sampler.fingerprint)
"""


def test_another_process_makes_the_same_tasks():
    corpus = xquad()
    config = MetaConfig(negatives="semi-hard", query_sampling="similar", **SMALL)
    sampler = TripletTaskSampler(corpus, config, vectors=vectors(corpus))
    functions = "\n".join(map(inspect.getsource, (vectors.__wrapped__, sets, rows, digest))).replace("@cache\n", "")
    code = _OTHER_PROCESS.format(functions=functions, small=SMALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [digest([sampler[12], sampler[3]]), sampler.fingerprint]


def test_batches():
    sampler = TripletTaskSampler(xquad(), MetaConfig(**SMALL))
    batches = list(sampler.batches(6, 0))
    assert [len(batch) for batch in batches] == [6] * 6 + [4]
    order = [task.index for batch in batches for task in batch]
    assert sorted(order) == list(range(40)) and order != sorted(order)
    assert same(batches[3][2], sampler[order[20]])
    assert order == [task.index for batch in sampler.batches(6, 0) for task in batch]
    assert order != [task.index for batch in sampler.batches(6, 1) for task in batch]
    with pytest.raises(ValueError, match="size must be at least 1, not 0"):
        next(sampler.batches(0, 0))
    for index in (-1, 40):
        with pytest.raises(IndexError, match=f"there are tasks 0 to 39 of the split train, not {index}"):
            sampler[index]


def test_paths_have_equally_many_tasks():
    sampler = TripletTaskSampler(xquad(), MetaConfig(transfer="mixt", **SMALL))
    firsts = [task.support.qids[0][:2] + task.query.qids[0][:2] for task in sampler]
    assert {pair: firsts.count(pair) for pair in firsts} == {"elar": 5, "elel": 15, "hihi": 15, "hide": 5}


def test_fingerprint():
    corpus = xquad()

    def of(corpus=corpus, split="train", **changes):
        return TripletTaskSampler(
            corpus, MetaConfig(**{**SMALL, **changes}), split, vectors=vectors(corpus)
        ).fingerprint

    assert of() == of() == of(inner_lr=1.0, triplet_margin=0.5, loss="triplet")  # no task changes
    changed = [
        {"split": "valid"}, {"seed": 1}, {"k_shot": 4}, {"q_query": 1}, {"n_neg": 2}, {"n_tasks": (41, 20, 10)},
        {"transfer": "mono-bi"}, {"query_sampling": "similar"}, {"query_sampling": "similar", "top_k": 9},
        {"query_sampling": "translation"}, {"negative_lang": "doc"}, {"negatives": "easy"},
        {"negatives": "easy", "triplet_margin": 0.1}, {"negatives": "easy", "loss": "triplet"},
        {"corpus": corpus.subset(corpus.groups[1:])},
    ]  # fmt: skip
    assert len({of(), *(of(**change) for change in changed)}) == 1 + len(changed)


def test_vectors_are_of_the_encoder_as_it_was(one_thread):
    import torch

    corpus = corpus_of(*toy(12))
    config = MetaConfig(transfer="de_de-en_en", negatives="hard", query_sampling="similar", **SMALL)
    model = load_sentence_transformer(models.bert(), device="cpu")
    of_encoder = TextEncoder(model, (16, 16))
    sampler = TripletTaskSampler(corpus, config, encoder=of_encoder)
    given = tuple(
        dict(zip(frame[id], of_encoder.encode(frame[text], side), strict=True))
        for frame, id, text, side in (
            (corpus.topics, "qid", "query", "query"),
            (corpus.docs, "docno", "text", "document"),
        )
    )
    assert digest(sampler) == digest(TripletTaskSampler(corpus, config, vectors=given))
    expected, key = digest(sampler), sampler.fingerprint
    assert TripletTaskSampler(corpus, config, encoder=encoder()).fingerprint == key
    with torch.no_grad():
        for weights in model.parameters():
            weights += torch.randn(weights.shape, generator=torch.Generator().manual_seed(0))
    assert (digest(sampler), sampler.fingerprint) == (expected, key)
    assert TripletTaskSampler(corpus, config, encoder=of_encoder).fingerprint != key


def test_translation_asks_the_same_questions():
    config = MetaConfig(transfer="el_el-ar_ar-hi_de,hi", query_sampling="translation", n_tasks=(20, 1, 1))
    for task in TripletTaskSampler(xquad(), config):
        asked = [{qid.partition("-")[2] for qid in s.qids} for s in sets(task)]
        assert asked[2] == asked[1] < asked[0]
        assert [{qid[:2] for qid in s.qids} for s in sets(task)] == [{"el"}, {"ar"}, {"hi"}]
    with pytest.raises(ValueError, match="q_query=4 must not be more than k_shot=3"):
        TripletTaskSampler(xquad(), config.replace(k_shot=3))


def test_translation_leaves_out_questions_without_one():
    topics, docs, qrels = toy(6)
    topics = topics[~topics["qid"].isin(["en0", "en1", "en2"])]
    corpus = corpus_of(topics, docs, qrels[qrels["qid"].isin(topics["qid"])])
    config = MetaConfig(transfer="de_de-en_en", query_sampling="translation", **SMALL)
    for task in TripletTaskSampler(corpus, config):
        assert sorted(task.support.qids) == ["de3", "de4", "de5"]
    with pytest.raises(ValueError, match=r"k_shot=4: .* toy has only 3 questions in de .* in each of de that are also"):
        TripletTaskSampler(corpus, config.replace(k_shot=4))


@pytest.mark.parametrize("transfer", ["el_el-el_ar", "el_el-ar_ar"])
def test_similar_questions(transfer):
    corpus = xquad()
    sampler = TripletTaskSampler(
        corpus, MetaConfig(transfer=transfer, query_sampling="similar", top_k=2, **SMALL), vectors=vectors(corpus)
    )
    place = {qid: i for i, qid in enumerate(corpus.topics["qid"])}
    group = dict(zip(corpus.docs["docno"], corpus.docs["dgroup"], strict=True))
    lang = transfer[6:8]
    directions = vectors(corpus)[0] / np.linalg.norm(vectors(corpus)[0], axis=1, keepdims=True)
    there = [qid for qid in corpus.queries if qid.startswith(lang)]
    answered = {qid: {group[d] for d in corpus.relevant[qid]} for qid in corpus.queries}
    seen = set()
    for task in sampler:
        support = task.support.qids
        taken = set().union(*(answered[qid] for qid in support))
        allowed = [qid for qid in there if not answered[qid] & taken]
        near = {}
        for qid in support:
            order = sorted(allowed, key=lambda other, i=place[qid]: -float(directions[i] @ directions[place[other]]))
            near |= dict.fromkeys(order[:2], "neighbour")
            if lang != "el":
                near[f"{lang}-{qid.partition('-')[2]}"] = "translation"
        assert set(task.query.qids) <= set(near)
        seen |= {near[qid] for qid in task.query.qids}
    assert seen == ({"neighbour"} if lang == "el" else {"neighbour", "translation"})


def test_a_similar_question_is_not_translated_back():
    corpus = corpus_of(*toy(12))
    config = MetaConfig(transfer="de_de-en_en-de_de", query_sampling="similar", **SMALL)
    for task in TripletTaskSampler(corpus, config, vectors=vectors(corpus)):
        assert not set(task.support.qids) & set(task.query2.qids)


def test_similar_questions_are_made_up_for():
    corpus = corpus_of(*toy(8))
    config = MetaConfig(
        transfer="de_de-de_en", query_sampling="similar", top_k=1, k_shot=2, q_query=6, n_tasks=(9, 1, 1)
    )
    for task in TripletTaskSampler(corpus, config, vectors=vectors(corpus)):
        assert len(set(task.query.qids) | set(task.support.qids)) == 8


def test_one_of_several_positives_is_drawn():
    topics, docs, qrels = toy(4, others=4)
    more = pd.DataFrame({"qid": ["de0", "de0"], "docno": ["de-n0", "en-n1"], "label": 1})
    sampler = TripletTaskSampler(
        corpus_of(topics, docs, pd.concat([qrels, more])),
        MetaConfig(transfer="de_de,en-de_de", k_shot=3, q_query=1, n_tasks=(60, 1, 1)),
    )
    found = {positive for task in sampler for qid, positive, _ in rows(task.support) if qid == "de0"}
    assert found == {"de-d0", "de-n0", "en-d0", "en-n1"}


def test_all_of_xquad_r():
    corpus = MultilingualCorpus.xquad_r()
    spec = "|".join(TRANSFER_MODES[mode]["train"] for mode in ("mixt", "mono-bi-multi"))
    for task in TripletTaskSampler(corpus, MetaConfig(transfer=spec, n_neg=3, n_tasks=(20, 1, 1))):
        for episode in sets(task):
            for qid, positive, negatives in rows(episode):
                assert len(corpus.relevant[qid]) == 7 and positive in corpus.relevant[qid]
                assert len(corpus.relevant[qid].union(negatives)) == 10


def test_what_is_lacking_is_named():
    corpus = xquad("de", "en")
    with pytest.raises(EmptyLanguageError, match="el"):
        TripletTaskSampler(corpus, MetaConfig())
    small = corpus_of(*toy(6))
    with pytest.raises(ValueError, match=r"k_shot=8: the corpus toy has only 6 questions in de .* each of de, en"):
        TripletTaskSampler(small, MetaConfig(transfer="de_de,en-en_en"))
    with pytest.raises(ValueError, match="task 0: the set en_en needs 4 questions .* the corpus toy has 3 left of 6"):
        TripletTaskSampler(small, MetaConfig(transfer="de_de-en_en", k_shot=3))
    with pytest.raises(ValueError, match="expected 99 negatives for the question de., found 16 in de, en"):
        TripletTaskSampler(small, MetaConfig(transfer="de_de,en-en_en", k_shot=3, q_query=1, n_neg=99))
    for changes, named in (
        ({"negatives": "hard"}, "negatives='hard' needs an encoder"),
        ({"query_sampling": "similar"}, "query_sampling='similar' needs an encoder"),
    ):
        with pytest.raises(ValueError, match=named):
            TripletTaskSampler(small, MetaConfig(transfer="de_de-en_en", **SMALL, **changes))
    with pytest.raises(ValueError, match="split must be one of train, valid, test, not 'dev'"):
        TripletTaskSampler(small, MetaConfig(transfer="de_de-en_en"), "dev")
    only_english = small.restrict(doc_langs=["en"])
    with pytest.raises(EmptyLanguageError, match=r"question de.: .* no candidates in de \(negative_lang='query'\)"):
        TripletTaskSampler(only_english, MetaConfig(transfer="de_en-en_en", negative_lang="query", **SMALL))
    with pytest.raises(AlignmentError):  # the set itself checks its rows
        other = TripletTaskSampler(small, MetaConfig(transfer="de_de-en_en", **SMALL))
        other._positives[:] = other._positives[1:] + other._positives[:1]
        [task for task in other]


def test_vectors_that_do_not_fit():
    corpus = corpus_of(*toy(2, others=0))
    queries, documents = np.ones((4, 2)), np.ones((4, 2))
    for source, named in (
        ((queries[:3], documents), r"vectors of qid: expected a row for each of 4, found .* \(3, 2\)"),
        ((queries, documents[0]), r"vectors of docno: expected a row for each of 4, found .* \(2,\)"),
    ):
        with pytest.raises(ValueError, match=named):
            CorpusVectors(corpus, vectors=source)
    with pytest.raises(ValueError, match="there is none for the qid en0"):
        CorpusVectors(corpus, vectors=({"de0": [0.0]}, documents)).of("query", "en")
    with pytest.raises(ValueError, match="that of the docno de-d1 is not finite"):
        CorpusVectors(corpus, vectors=(queries, np.array([[1.0], [1.0], [np.nan], [1.0]]))).of("document", "de")
    with pytest.raises(ValueError, match="an encoder, or vectors .* not both"):
        CorpusVectors(corpus)


# Graded pairs


@pytest.mark.parametrize("mode", PAIR_TRANSFER_MODES)
def test_pairs_of_sts17(mode):
    pairs = PairCorpus.sts17()
    sampler = PairTaskSampler(pairs, MetaConfig(transfer=mode, n_tasks=(54, 1, 1)))
    known = pairs.pairs.set_index("pair_id")
    transfers = set()
    for task in sampler:
        assert [len(s) for s in sets(task)] == [8, 4, 4][: len(sets(task))]
        rows_of, tracks = [], []
        for episode in sets(task):
            expected = known.loc[list(episode.ids)]
            assert list(episode.first) == expected["sentence1"].tolist()
            assert list(episode.second) == expected["sentence2"].tolist()
            assert episode.scores == pytest.approx(expected["score"].to_numpy() / 5)
            assert episode.scores.dtype == np.float32
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


def test_pair_tasks_are_functions_too():
    config = MetaConfig(transfer="en_en-en_en", n_tasks=(30, 30, 30))
    first, second = (PairTaskSampler(PairCorpus.sts17(), config) for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert same(second[17], list(first)[17])
    valid = PairTaskSampler(PairCorpus.sts17(), config, "valid")
    assert valid.fingerprint != first.fingerprint and not same(valid[17], first[17])
    subset = PairTaskSampler(PairCorpus.sts17().subset(range(150)), config)
    assert subset.fingerprint != first.fingerprint
    assert all(int(name[-3:]) <= 150 for task in subset for s in sets(task) for name in s.ids)


def test_pairs_share_no_sentence_between_sets():
    names = [f"p{i}" for i in range(6)]
    frame = pd.DataFrame(
        {
            "pair_id": names,
            "sentence1": ["a", "A ", "b", "c", "d", "e"],
            "sentence2": ["s", "t", "u", "v", "U", "w"],
            "score": [0, 1, 2, 3, 4, 5],
            "lang1": "en",
            "lang2": "en",
        }
    )
    config = MetaConfig(transfer="en_en-en_en", k_shot=2, q_query=1, n_tasks=(60, 1, 1))
    for task in PairTaskSampler(PairCorpus.from_frame(frame), config):
        for one, other in (("p0", "p1"), ("p2", "p4")):
            assert not {one, other} & set(task.support.ids) or not {one, other} & set(task.query.ids)
    with pytest.raises(ValueError, match="task 0: the set en_en needs 5 pairs .* pairs has [0-4] left of 6"):
        PairTaskSampler(PairCorpus.from_frame(frame), config.replace(q_query=5))


def test_what_pairs_lack_is_named():
    with pytest.raises(EmptyLanguageError, match="the set en_ar,es needs pairs in en and es; .* has ar-en, en-en"):
        PairTaskSampler(PairCorpus.sts17(["en-en", "ar-en"]), MetaConfig(transfer="en_en-en_ar,es"))
    with pytest.raises(ValueError, match="transfer must be one of mono-mono, mono-bi, mono-bi-multi for graded pairs"):
        PairTaskSampler(PairCorpus.sts17(), MetaConfig(transfer="trans"))
    with pytest.raises(ValueError, match="split must be one of"):
        PairTaskSampler(PairCorpus.sts17(), MetaConfig(transfer="mono-bi"), "dev")
