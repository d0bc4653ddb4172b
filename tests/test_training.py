"""Training: what is learned from, the losses, and that an interrupted training ends as one that was not."""

import errno
import json
import math
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import models
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from safetensors import SafetensorError

from pyterrier_mart import MARTReRanker, SMTQueryTranslator, TrainingOptions, TranslationTable, bm25_index
from pyterrier_mart.mart import checkpoints, training
from pyterrier_mart.mart import examples as example_module
from pyterrier_mart.mart.examples import Example, average_precision, examples, text_source, validation_set
from pyterrier_mart.mart.modeling import MartForRanking

# Two steps of two batches of two pairs in each epoch.
QUICK = {"epochs": 3, "learning_rate": 0.003, "batch_size": 2, "accumulation": 2, "freeze_layers": 0}


pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def data():
    task = models.task()
    return (*task.of(0, 8), *task.of(8, 12))


def mart(options=QUICK, **more):
    given = {"relate": False, "stop": False, "device": "cpu", **more}
    return MARTReRanker(models.bert(), models.task().table, training=TrainingOptions(**options), **given)


def fitted(valid=True, **options):
    return mart({**QUICK, **options}).fit(*data()[: 4 if valid else 2])


@cache
def expected():
    """The fingerprint of the weights after training that nothing interrupted."""
    return fitted(valid=False).weights


def losses(rank):
    return [entry["loss"] for entry in rank.history if "loss" in entry]


def measured(rank):
    return [entry["eval_AP@100"] for entry in rank.history if "eval_AP@100" in entry]


@pytest.fixture
def script(monkeypatch):
    """Lets validation give the values of a list, and returns it; a value that is an error is raised."""
    values = []

    def next_value(frame, qrels):
        value = values.pop(0)
        if isinstance(value, BaseException):
            raise value
        return value

    monkeypatch.setattr(example_module, "average_precision", next_value)
    return values


# ----------------------------------------------------------------------------------------------------------- examples

RESULTS = pd.DataFrame(
    {
        "qid": ["1", "1", "1", "1", "2", "2"],
        "query": ["eins"] * 4 + ["zwei"] * 2,
        "docno": ["c", "a", "b", "d", "a", "e"],
        "text": ["C", "A", "B", "D", "A", "E"],
        "rank": [2, 0, 1, 3, 0, 1],
    }
)
QRELS = pd.DataFrame(
    {"qid": ["1", "1", "1", "2", "9"], "docno": ["b", "d", "c", "e", "a"], "label": [1, 2, 0, 1, 1]}
)  # fmt: skip
MISSED = pd.DataFrame({"qid": ["2"], "docno": ["x"], "label": [1]})


def test_what_is_not_judged_is_not_relevant():
    assert examples(RESULTS, QRELS, "text", 500) == [
        Example("eins", "B", ("A", "C")), Example("eins", "D", ("A", "C")), Example("zwei", "E", ("A",)),
    ]  # fmt: skip


def test_negatives_come_from_the_first_documents():
    assert [e.negatives for e in examples(RESULTS, QRELS, "text", 2)] == [("A",), ("A",), ("A",)]
    scored = RESULTS.drop(columns="rank").assign(score=[1.0, 0.0, 3.0, 2.0, 1.0, 0.0])  # the order: b d c a
    assert examples(scored, QRELS, "text", 3)[0].negatives == ("C",)
    with pytest.raises(ValueError, match="one that is not relevant"):
        examples(scored, QRELS[QRELS["qid"] == "1"], "text", 2)


class _Dataset:
    def text_loader(self):
        return pt.apply.generic(lambda rows: rows.assign(text=[f"text of {docno}" for docno in rows["docno"]]))


@pytest.mark.parametrize(
    "source",
    [_Dataset(), _Dataset().text_loader(), lambda docnos: (f"text of {docno}" for docno in docnos)],
    ids=["dataset", "transformer", "function"],
)
def test_relevant_documents_that_were_missed_are_loaded(source):
    loader = text_source(source, "text")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        made = examples(RESULTS, pd.concat([QRELS, MISSED]), "text", 500, loader)
    assert made[-1] == Example("zwei", "text of x", ("A",)) and len(made) == 4


def test_queries_with_nothing_but_relevant_documents_are_counted():
    relevant = pd.DataFrame({"qid": ["1", "2", "2"], "docno": ["b", "a", "e"], "label": 1})
    with pytest.warns(UserWarning, match="1 of 2 queries are not trained on, since all their first 500 candidates"):
        made = examples(RESULTS, relevant, "text", 500)
    assert [example.query for example in made] == ["eins"]


def test_missing_texts_are_empty_and_duplicates_count_once():
    results = pd.concat([RESULTS, RESULTS]).assign(text=pd.Series([None, *RESULTS["text"][1:]] * 2).to_numpy())
    assert examples(results, pd.concat([QRELS, QRELS]), "text", 500)[0] == Example("eins", "B", ("A", ""))


@pytest.mark.parametrize("qrels", [QRELS.assign(label=0), QRELS.assign(qid="q" + QRELS["qid"]), QRELS.iloc[:0]])
def test_no_relevant_documents(qrels):
    with pytest.raises(ValueError, match="none of the 2 queries .* are the query identifiers the same?"):
        examples(RESULTS, qrels, "text", 500)


def test_validation_queries():
    results = pd.concat([RESULTS.assign(qid=str(i)) for i in range(20)])
    qrels = pd.DataFrame({"qid": [str(i) for i in range(20)], "docno": "b", "label": 1})

    def chosen(**options):
        found, judged = validation_set(results, qrels, "text", None, TrainingOptions(**options))
        assert set(found["qid"]) == set(judged["qid"])
        return set(found["qid"]), found.groupby("qid")["docno"].agg(list).iloc[0]

    assert chosen() == (set(qrels["qid"]), ["a", "a", "b", "e", "c", "d"])
    five, documents = chosen(validation_queries=5, validation_depth=3)
    assert len(five) == 5 and documents == ["a", "a", "b"]
    assert chosen(validation_queries=5)[0] == five != chosen(validation_queries=5, seed=1)[0]
    assert len(chosen(validation_queries=50)[0]) == 20


# ------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number >= 1, not 0"),
        ({"batch_size": 2.0}, "batch_size must be a whole number >= 1, not 2.0"),
        ({"validation_queries": -1}, "validation_queries must be"),
        ({"learning_rate": 0}, "learning_rate must be a positive number, not 0"),
        ({"new_learning_rate": math.inf}, "new_learning_rate must be None or a positive number, not inf"),
        ({"warmup": 1.0}, r"warmup must be in \[0, 1\), not 1.0"),
        ({"loss": "triplet"}, "loss must be one of pairwise-cross-entropy, pairwise-softmax, not 'triplet'"),
        ({"freeze_layers": -1}, "freeze_layers must be None or a whole number >= 0, not -1"),
        ({"output_dir": ""}, "output_dir must be None or the path of a directory, not ''"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TrainingOptions(**options)


def test_options_in_short_and_as_json():
    options = TrainingOptions(epochs=3, output_dir=Path("x"), trainer={"bf16": True})
    assert repr(TrainingOptions()) == "TrainingOptions()"
    assert repr(options) == f"TrainingOptions(epochs=3, output_dir={Path('x')!r}, trainer={{'bf16': True}})"
    assert json.loads(json.dumps(options.as_json())) == options.as_json()
    assert "output_dir" not in options.as_json() and options.as_json()["trainer"] == {"bf16": "True"}


# --------------------------------------------------------------------------------------------- losses, rates, freezing


@pytest.mark.parametrize("loss", ["pairwise-cross-entropy", "pairwise-softmax"])
def test_losses(loss):
    scores = [2.0, -1.0, 0.5, 0.5, 3.0, 0.0]  # three relevant documents, then three others
    trainer = SimpleNamespace(options=TrainingOptions(loss=loss))
    found = training.MartTrainer.compute_loss(trainer, lambda scores: SimpleNamespace(scores=scores),
                                               {"scores": torch.tensor(scores)})  # fmt: skip
    probabilities = [math.exp(r) / (math.exp(r) + math.exp(o)) for r, o in zip(scores[:3], scores[3:], strict=True)]
    by_hand = [-math.log(p) if loss == "pairwise-cross-entropy" else 1 - p for p in probabilities]
    assert found.item() == pytest.approx(sum(by_hand) / 3, rel=1e-6)


def test_new_parameters_have_a_learning_rate_of_their_own():
    net = MartForRanking.from_encoder(models.bert(), (1, 2))
    training.freeze(net, 1)
    options = TrainingOptions(learning_rate=1e-5, new_learning_rate=1e-3)
    optimizer = training.MartTrainer.create_optimizer(SimpleNamespace(optimizer=None, options=options, model=net))
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    rates = [(names[id(p)], group["lr"]) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(name for name, _ in rates) == sorted(n for n, p in net.named_parameters() if p.requires_grad)
    new = {name for name, rate in rates if rate == 1e-3}
    assert {name for name in names.values() if "translation" in name or name.startswith("score")} == new
    assert len(new) == 2 * 6 + 2 and {rate for _, rate in rates} == {1e-5, 1e-3}
    assert type(optimizer) is torch.optim.Adam and all(group["weight_decay"] == 0 for group in optimizer.param_groups)
    one = training.MartTrainer.create_optimizer(SimpleNamespace(optimizer=None, options=TrainingOptions(), model=net))
    assert {group["lr"] for group in one.param_groups} == {2e-5}


@pytest.mark.parametrize("layers", [None, 0, 2, 4])
def test_frozen_layers(layers):
    net = MartForRanking.from_encoder(models.bert(), (0, 2))
    training.freeze(net, 4)  # what was frozen before does not matter
    training.freeze(net, layers)
    frozen = {name for name, parameter in net.named_parameters() if not parameter.requires_grad}
    starts = () if layers is None else ("embeddings.", *(f"encoder.layer.{i}." for i in range(layers)))
    assert frozen == {
        name for name, _ in net.named_parameters()
        if name.startswith(tuple(f"mart.encoder.{start}" for start in starts)) and ".translation." not in name
    }  # fmt: skip
    with pytest.raises(ValueError, match="freeze_layers must be at most 4, the encoder's, not 5"):
        training.freeze(net, 5)


# ----------------------------------------------------------------------------------------------------------- negatives


def test_negatives_are_a_function_of_seed_epoch_and_place():
    made = [Example(f"q{i}", f"p{i}", tuple(f"n{i}-{n}" for n in range(10))) for i in range(20)]

    def drawn(seed=1, epoch=0, negatives=1):
        pairs = training.Pairs(made, negatives, seed)
        pairs.set_epoch(epoch)
        return [pairs[i] for i in range(len(pairs))]

    assert drawn() == drawn() != drawn(epoch=1) and drawn() != drawn(seed=2)
    assert [pair[:2] for pair in drawn()] == [(f"q{i}", f"p{i}") for i in range(20)]
    three = drawn(negatives=3)
    assert len(three) == 60 and all(len({three[3 * i + n][2] for n in range(3)}) == 3 for i in range(20))
    twelve = drawn(negatives=12)  # more than there are: all of them, and two again
    assert all(len({pair[2] for pair in twelve[12 * i : 12 * i + 12]}) == 10 for i in range(20))
    assert len({pair[2] for epoch in range(60) for pair in drawn(epoch=epoch) if pair[0] == "q0"}) == 10


def test_each_epoch_draws_others(monkeypatch):
    seen = []
    draw = training.Pairs.__getitem__
    monkeypatch.setattr(training.Pairs, "__getitem__", lambda self, i: seen.append((self.epoch, i)) or draw(self, i))
    fitted(valid=False)
    assert sorted(seen) == [(epoch, i) for epoch in range(3) for i in range(8)]
    orders = [[i for e, i in seen if e == epoch] for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2]


def test_each_epoch_draws_others_in_processes_that_stay():
    pairs = training.Pairs([Example("q", "p", tuple(f"n{n}" for n in range(1000)))], 4, 1)
    theirs = pickle.loads(ForkingPickler.dumps(pairs))  # as a data loader gives it to a process
    for epoch in range(3):
        pairs.set_epoch(epoch)
        assert theirs.epoch == epoch and theirs[0] == pairs[0]


# ------------------------------------------------------------------------------------------------------ the same again


def test_the_global_generators_are_left_alone():
    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    assert fitted().weights != "" and states() == before


def test_the_seed_decides():
    assert fitted(valid=False).weights == expected() != fitted(valid=False, seed=7).weights


KILL = """
    import os, signal, sys
    sys.path.insert(0, {tests!r})
    import torch, transformers.trainer
    torch.set_num_threads(1)
    import pyterrier_mart
    from pyterrier_mart import MARTReRanker, TrainingOptions, TranslationTable
    from pyterrier_mart.mart import training
    import pandas as pd
    steps, compute_loss = [], training.MartTrainer.compute_loss

    def compute(*args, **kwargs):
        steps.append(1)
        if len(steps) == 7:  # in the second step of the second epoch
            os.kill(os.getpid(), signal.SIGKILL)
        return compute_loss(*args, **kwargs)

    training.MartTrainer.compute_loss = compute
    results, qrels = (pd.read_pickle(name) for name in {frames!r})
    options = TrainingOptions(output_dir={output!r}, **{options!r})
    MARTReRanker({model!r}, TranslationTable.load({table!r}), relate=False, stop=False, device="cpu",
                 training=options).fit(results, qrels)
"""


def test_a_killed_training_resumes(tmp_path):
    frames = [os.fspath(tmp_path / name) for name in ("results", "qrels")]
    for frame, name in zip(data(), frames, strict=False):
        frame.to_pickle(name)
    models.task().table.save(tmp_path / "table")
    code = textwrap.dedent(KILL).format(
        tests=os.path.dirname(__file__), frames=frames, output=os.fspath(tmp_path / "out"), options=QUICK,
        model=os.fspath(models.bert()), table=os.fspath(tmp_path / "table"),
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [path.name for path in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-2"]
    rank = mart({**QUICK, "output_dir": tmp_path / "out"}).fit(*data()[:2])
    assert rank.weights == expected() and len(losses(rank)) == 3


TWO = """
    import os, sys
    import torch
    torch.set_num_threads(1)
    import pandas as pd
    from pyterrier_mart import MARTReRanker, TrainingOptions, TranslationTable
    from pyterrier_mart.mart import examples
    rank = int(os.environ["RANK"])
    frames = [pd.read_pickle(name) for name in {frames!r}]
    for number, output in enumerate((None, {output!r})):
        values = iter([0.5, 0.6, 0.4, 0.3] if rank == 0 else [0.1, 0.2, 0.3, 0.4])  # the second epoch is the best
        examples.average_precision = lambda frame, qrels: next(values)
        options = TrainingOptions(output_dir=output, **{options!r})
        mart = MARTReRanker({model!r}, TranslationTable.load({table!r}), device="cpu", training=options).fit(*frames)
        mart.save(f"{saved}{{number}}")
        with open(f"{saved}{{number}}.rank{{rank}}", "w") as file:
            file.write(mart.weights)
"""


def test_two_processes_train_one_model(tmp_path):
    frames = [os.fspath(tmp_path / name) for name in ("results", "qrels", "valid", "valid_qrels")]
    for frame, name in zip(data(), frames, strict=True):
        frame.to_pickle(name)
    models.task().table.save(tmp_path / "table")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TWO).format(
        frames=frames, output=os.fspath(tmp_path / "out"), options={**QUICK, "epochs": 9, "patience": 2},
        model=os.fspath(models.bert()), table=os.fspath(tmp_path / "table"), saved=os.fspath(tmp_path / "saved"),
    ))  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run([*command, os.fspath(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    digests = set()
    for number in range(2):
        digests |= {(tmp_path / f"saved{number}.rank{rank}").read_text() for rank in range(2)}
        digests.add(MARTReRanker.load(tmp_path / f"saved{number}", device="cpu").weights)
    assert len(digests) == 1


class Interrupt(BaseException):
    pass


def interrupt(monkeypatch, owner, name, call):
    """Lets a function raise at a call, before it does anything."""
    calls, function = [], getattr(owner, name)

    def counted(*args, **kwargs):
        calls.append(1)
        if len(calls) == call:
            raise Interrupt
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)


@pytest.mark.parametrize(
    ("owner", "name", "call", "left"),
    [
        (training.MartTrainer, "compute_loss", 2, []),
        (training.MartTrainer, "_save_optimizer_and_scheduler", 1, ["checkpoint-2"]),  # not complete
        (training.MartTrainer, "_save_rng_state", 2, ["checkpoint-2", "checkpoint-4"]),  # the last is not complete
        (checkpoints, "save_file", 1, ["checkpoint-4", "checkpoint-6"]),  # trained, but not saved
    ],
    ids=["first epoch", "first checkpoint", "second checkpoint", "end"],
)
def test_an_interrupted_training_resumes(monkeypatch, tmp_path, owner, name, call, left):
    rank = mart({**QUICK, "output_dir": tmp_path})
    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        interrupt(patch, owner, name, call)
        rank.fit(*data()[:2])
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == left
    rank.fit(*data()[:2])
    assert rank.weights == expected() and len(losses(rank)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["final.safetensors", "fit.json"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), SafetensorError("full"), RuntimeError("write failed")]
)
def test_a_full_disk_costs_no_checkpoint(monkeypatch, tmp_path, error):
    rank, save = mart({**QUICK, "output_dir": tmp_path}), training.MartTrainer._save_optimizer_and_scheduler

    def full(self, output_dir):
        if self.state.global_step == 4:
            raise error
        save(self, output_dir)

    with monkeypatch.context() as patch:
        patch.setattr(training.MartTrainer, "_save_optimizer_and_scheduler", full)
        with pytest.raises(OSError, match="cannot write the checkpoint .*checkpoint-4 .*make room there"):
            rank.fit(*data()[:2])
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    assert rank.fit(*data()[:2]).weights == expected()


def test_a_full_disk_at_the_end(monkeypatch, tmp_path):
    rank = mart({**QUICK, "output_dir": tmp_path})
    with monkeypatch.context() as patch:
        full = SafetensorError(f"Error while serializing: I/O error: {os.strerror(errno.ENOSPC)} (os error 28)")
        patch.setattr(checkpoints, "save_file", lambda *args: (_ for _ in ()).throw(full))
        with pytest.raises(OSError, match=r"cannot write .*final.safetensors: No space left on device"):
            rank.fit(*data()[:2])
    assert rank.fit(*data()[:2]).weights == expected()


@pytest.mark.parametrize("content", ["", "[]", "null", "{}", '{"options": []}', "[" * 100_000])
def test_a_damaged_record(tmp_path, content):
    (tmp_path / "fit.json").write_text(content)
    with pytest.raises(ValueError, match=r"output_dir: .*fit.json is damaged .*; delete "):
        checkpoints.Checkpoints(tmp_path, {"fingerprint": "", "options": {}})


# ------------------------------------------------------------------------------------------------------ early stopping


def test_the_best_epoch_is_kept(script):
    script += [0.3, 0.5]
    two = fitted(epochs=2)
    script += [0.3, 0.5, 0.5, 0.4, 0.9]
    rank = fitted(epochs=9, patience=2)
    assert script == [0.9] and measured(rank) == [0.3, 0.5, 0.5, 0.4]
    assert rank.weights == two.weights
    script += [0.3, 0.2, 0.1]
    script.pop(0)
    assert measured(fitted(patience=2)) == [0.3, 0.2, 0.1] and not script


def test_patience_counts_on_after_an_interruption(script, tmp_path):
    script += [0.5]
    best = fitted(epochs=1).weights
    rank = mart({**QUICK, "epochs": 9, "patience": 2, "output_dir": tmp_path / "here"})
    script += [0.5, 0.4, Interrupt()]
    with pytest.raises(Interrupt):
        rank.fit(*data())
    shutil.move(tmp_path / "here", tmp_path / "there")  # the best checkpoint is found there too
    script += [0.3, 0.9]
    rank = mart({**QUICK, "epochs": 9, "patience": 2, "output_dir": tmp_path / "there"}).fit(*data())
    assert script == [0.9] and measured(rank) == [0.5, 0.4, 0.3] and rank.weights == best


def test_training_that_had_stopped_does_not_resume(script, tmp_path, monkeypatch):
    rank = mart({**QUICK, "epochs": 9, "patience": 1, "output_dir": tmp_path})
    script += [0.5, 0.4, 0.9]
    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        interrupt(patch, checkpoints, "save_file", 1)
        rank.fit(*data())
    rank.fit(*data())
    assert script == [0.9] and measured(rank) == [0.5, 0.4]
    script[:] = [0.5]
    assert rank.weights == fitted(epochs=1).weights


def test_validation_ranks_the_validation_queries(monkeypatch):
    seen, measure = [], average_precision
    monkeypatch.setattr(example_module, "average_precision", lambda *frames: seen.append(measure(*frames)) or seen[-1])
    rank = fitted(epochs=2)
    assert measured(rank) == seen and len(seen) == 2
    best = average_precision(rank(data()[2]), data()[3])
    assert best == pytest.approx(max(seen[:2]))


# ------------------------------------------------------------------------------------------------------- output_dir


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished")
    return path, mart({**QUICK, "epochs": 1, "output_dir": path}).fit(*data()[:2])


def test_a_finished_training_is_used(finished, monkeypatch):
    path, first = finished
    monkeypatch.setattr(training.MartTrainer, "train", None)
    again = mart({**QUICK, "epochs": 1, "output_dir": str(path)}).fit(*data()[:2])
    assert again.weights == first.weights and again.history == first.history


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"learning_rate": 0.1, "seed": 3}, r"other learning_rate, seed"),
        ({"trainer": {"bf16": True}}, "other trainer"),
        ({"threshold": 0.5}, "other model, table, settings or data"),
        ({"table": TranslationTable.from_dict({"a": {"b": 1.0}}, "de", "en")}, "other model, table"),
        ({"mat_layers": (0,)}, "other model"),
        ({"data": "fewer"}, "settings or data"),
        ({"data": "texts"}, "settings or data"),
        ({"data": "loaded"}, "settings or data"),
        ({"data": "validation"}, "settings or data"),
    ],
)
def test_the_output_of_another_training_is_refused(finished, change, differs):
    path = finished[0]
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    options, given, frames = {**QUICK, "epochs": 1, "output_dir": path}, {}, [frame.copy() for frame in data()[:2]]
    for name, value in change.items():
        if name in TrainingOptions.__dataclass_fields__:
            options[name] = value
        elif name != "data":
            given[name] = value
        elif value == "fewer":
            frames[0] = frames[0].iloc[1:]
        elif value == "texts":
            frames[0]["text"] = frames[0]["text"].str.upper()
        elif value == "loaded":
            frames[1] = pd.concat([frames[1], MISSED.assign(qid="q0")])
            given["positives_text"] = lambda docnos: [f"text of {docno}" for docno in docnos]
        else:
            frames += data()[2:]
    with pytest.raises(ValueError, match=f"holds the checkpoints of another training .*{differs}"):
        rank = mart(options, **{k: v for k, v in given.items() if k != "table"})
        rank.table = given.get("table", rank.table)
        rank.fit(*frames)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_texts_and_weights_behind_the_same_names_are_told_apart(tmp_path):
    model = shutil.copytree(models.bert(), tmp_path / "model")
    frames = [data()[0], pd.concat([data()[1], MISSED.assign(qid="q0")])]

    def fit(text):
        options = TrainingOptions(**{**QUICK, "epochs": 1, "output_dir": tmp_path / "out"})
        rank = MARTReRanker(model, models.task().table, training=options, device="cpu")
        rank.positives_text = lambda docnos: [text] * len(docnos)
        rank.fit(*frames)

    fit("one")
    with pytest.raises(ValueError, match="another training"):
        fit("two")
    net = MartForRanking.from_encoder(model, ()).mart.encoder
    with torch.no_grad():
        net.embeddings.LayerNorm.bias.add_(0.1)
    net.save_pretrained(model)
    with pytest.raises(ValueError, match="another training"):
        fit("one")


# ------------------------------------------------------------------------------------------------------ what is learned


def test_the_table_is_what_makes_the_difference():
    """Queries and documents share no word with those of training: only the table says which belong together."""
    task = models.task(140)
    found = {}
    for placebo in (False, True):
        options = TrainingOptions(epochs=12, learning_rate=0.003, batch_size=16, accumulation=1, freeze_layers=0)
        rank = MARTReRanker(
            models.bert(), task.table, placebo=placebo, relate=False, stop=False, training=options, device="cpu"
        ).fit(*task.of(0, 100))
        held_out, judged = task.of(100, 140)
        found[placebo] = average_precision(rank(held_out), judged)
    assert found[False] > 0.9 and found[True] < 0.75  # of four documents in any order: 0.52


def test_gradients_add_up(monkeypatch):
    """Batches of 4, and 4 batches of 1, with a last step that has fewer."""
    monkeypatch.setattr(torch.optim, "Adam", lambda groups: torch.optim.SGD(groups))
    weights = []
    for sizes in ({"batch_size": 4, "accumulation": 1}, {"batch_size": 1, "accumulation": 4}):
        built = mart().loaded()
        for module in built.net.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        results, qrels = models.task().of(0, 7)
        options = TrainingOptions(**{**QUICK, "epochs": 2, "learning_rate": 0.1, **sizes})
        made = examples(results, qrels, "text", 500)
        training.train(built.net, mart().scorer().encoder, made, options, validate=None, fingerprint="",
                       device=torch.device("cpu"))  # fmt: skip
        weights.append(torch.cat([p.detach().flatten() for p in built.net.parameters() if p.requires_grad]))
    start = mart().loaded().net.named_parameters()
    moved = weights[0] - torch.cat([p.detach().flatten() for name, p in start if "embeddings" not in name])
    assert (weights[0] - weights[1]).abs().max() < 0.001 * moved.abs().max()


@pytest.mark.parametrize("valid", [False, True])
def test_training_that_diverges_raises(valid):
    with pytest.raises(ValueError, match="training diverged in epoch 1: .* is no longer finite; try a lower learning_"):
        fitted(valid=valid, learning_rate=1e30)


def test_arguments_reach_the_trainer(monkeypatch):
    given = []
    train = training.MartTrainer.train
    monkeypatch.setattr(training.MartTrainer, "train", lambda self, **k: given.append(self.args) or train(self, **k))
    rank = fitted(valid=False, warmup=0.5, trainer={"gradient_checkpointing": True, "report_to": []})
    assert given[0].gradient_checkpointing and given[0].report_to == [] and given[0].get_warmup_steps(6) == 3
    assert rank._loaded.net.is_gradient_checkpointing and np.isfinite(losses(rank)).all()
    rates = [entry["learning_rate"] for entry in rank.history if "learning_rate" in entry]
    assert rates[0] < rates[1] == rates[2] == 0.003
    assert fitted(valid=False, trainer={"gradient_checkpointing": True}).weights == expected()


def test_gradients_are_clipped_or_not():
    """1e30 is above every gradient's norm, so that it must do what no clipping does."""
    weights = {norm: fitted(valid=False, max_grad_norm=norm).weights for norm in (None, 1e30, 1e-3)}
    assert weights[None] == weights[1e30] != weights[1e-3]


def test_a_pipeline_is_fitted(tmp_path):
    pytest.importorskip("pyterrier_pisa")
    task = models.task()
    entries = {source: {target: p} for source, target, p in task.table.entries()}
    table = TranslationTable.from_dict({**entries, "alle": {"common": 1.0}}, "de", "en")
    texts = {docno: f"{text} common" for docno, text in task.texts.items()}
    documents = [{"docno": docno, "text": text} for docno, text in texts.items()]
    bm25 = bm25_index(documents, tmp_path / "index", "en", engine="pisa", progress=False).bm25()
    rank = MARTReRanker(models.bert(), table, training=TrainingOptions(**QUICK), device="cpu", stop=False)
    pipe = SMTQueryTranslator(table) >> bm25 % 20 >> pt.apply.text(lambda row: texts[row["docno"]]) >> rank
    topics = task.results[["qid", "query"]].drop_duplicates("qid").reset_index(drop=True)
    topics["query"] += " alle"
    untrained = pipe(topics)
    pipe.fit(topics.iloc[:8], task.qrels, topics.iloc[8:], task.qrels)
    assert len(measured(rank)) == 3 and len(losses(rank)) == 3
    out = pipe(topics)
    assert len(out) == len(untrained) > 12 and not np.allclose(out["score"], untrained["score"])
    pipe.fit(topics.iloc[:8], task.qrels)
    assert not measured(rank) and len(losses(rank)) == 3


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("given", [["x", "y"], "x", 3])
def test_texts_that_are_not_one_for_each_docno(given):
    with pytest.raises(ValueError, match="positives_text must give 1 texts, one for each docno"):
        examples(RESULTS, pd.concat([QRELS, MISSED]), "text", 500, lambda rows: given)


@pytest.mark.parametrize("given", [None, " "])
def test_relevant_documents_without_a_text_are_counted(given):
    with pytest.warns(UserWarning, match="1 of 4 relevant documents .* have no text from positives_text"):
        made = examples(RESULTS, pd.concat([QRELS, MISSED]), "text", 500, lambda rows: [given])
    assert made == examples(RESULTS, QRELS, "text", 500)
    with pytest.warns(UserWarning, match="1 of 4 relevant documents are not among .* pass positives_text"):
        assert examples(RESULTS, pd.concat([QRELS, MISSED]), "text", 500) == made


@pytest.mark.parametrize("label", ["one", None, 0.5, math.inf])
def test_labels_that_are_no_numbers(label):
    results, qrels, valid, valid_qrels = data()
    wrong = qrels.assign(label=[label, *qrels["label"].astype(object)[1:]])
    with pytest.raises(ValueError, match="qrels_tr: a label must be a whole number, not"):
        mart().fit(results, wrong)
    with pytest.raises(ValueError, match="qrels_va: a label must be"):
        mart().fit(results, qrels, valid, valid_qrels.assign(label=label))


def test_another_programs_checkpoints_are_left_alone(tmp_path):
    kept = tmp_path / "out" / "checkpoint-7" / "pytorch_model.bin"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"weights")
    with pytest.raises(ValueError, match="output_dir .*out must not hold another program's checkpoint-7"):
        fitted(output_dir=tmp_path / "out")
    assert kept.read_bytes() == b"weights" and [path.name for path in kept.parents[1].iterdir()] == ["checkpoint-7"]


def test_damaged_weights_of_a_finished_training(tmp_path):
    fitted(valid=False, epochs=1, output_dir=tmp_path)
    (tmp_path / "final.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match="output_dir: .*final.safetensors is damaged"):
        fitted(valid=False, epochs=1, output_dir=tmp_path)


def test_validation_results_that_are_none_are_told():
    results, qrels, valid, valid_qrels = data()
    with pytest.warns(UserWarning, match="no results for validation queries: training runs for all 1 epochs"):
        rank = mart({**QUICK, "epochs": 1}).fit(results, qrels, valid.iloc[:0], valid_qrels)
    assert not measured(rank)
