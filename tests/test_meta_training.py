"""Meta-training: what is kept, when it stops, and that an interrupted training ends as one that was not."""

import copy
import csv
import itertools
import json
import math
import os
import random
import resource
import signal
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import models
import pandas as pd
import pytest
import torch

from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
from pyterrier_mart.meta import checkpoints, training
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.learner import StepLog
from pyterrier_mart.meta.learners import LEARNERS
from pyterrier_mart.meta.sampling import TripletTaskSampler
from pyterrier_mart.meta.training import train

pytestmark = pytest.mark.usefixtures("one_thread")


class Tasks:
    """Numbers in the place of tasks: the outer loop does not look at them."""

    def __init__(self, count=10, name="tasks"):
        self.count, self.fingerprint = count, name

    def __len__(self):
        return self.count

    def batches(self, size, epoch):
        order = random.Random(epoch).sample(range(self.count), self.count)
        for at in range(0, self.count, size):
            yield [(self.fingerprint, epoch, i) for i in order[at : at + size]]


class Learner:
    """A learner of two layers, with dropout and AdamW, that learns from numbers."""

    def __init__(self, gain=0.5, init=0, **config):
        self.config = MetaConfig(**{"meta_batch_size": 3, "max_steps": 8, "eval_steps": 2, "outer_lr": 5e-5, **config})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(init)
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))
        self.encoder = SimpleNamespace(model=model, device=torch.device("cpu"))
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=self.config.outer_lr)
        self.gain, self.seen, self.before = gain, [], 0

    def meta_step(self, tasks):
        torch.manual_seed(self.config.seed + len(self.seen) + self.before)
        self.seen.append(tasks)
        given = torch.tensor([[float(i), epoch, 1.0, -i] for _, epoch, i in tasks])
        loss = ((self.encoder.model(given) - given[:, :1]) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return StepLog(loss.item(), inner_gain=self.gain, grad_norm=1.0, seconds=0.1)

    def state(self, moments=True):
        state = {f"model.{name}": value.clone() for name, value in self.encoder.model.state_dict().items()}
        for i, of in self.optimizer.state_dict()["state"].items() if moments else ():
            state |= {f"optimizer.{i}.{name}": value.clone() for name, value in of.items()}
        return {**state, "step": torch.tensor(self.before + len(self.seen))}

    def load_state(self, state):
        self.before = int(state["step"]) - len(self.seen)
        self.encoder.model.load_state_dict({k[6:]: v for k, v in state.items() if k.startswith("model.")})
        of = {}
        for name, value in state.items():
            if name.startswith("optimizer."):
                _, i, key = name.split(".")
                of.setdefault(int(i), {})[key] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": of})

    @property
    def weights(self):
        return [value.detach().clone() for value in self.encoder.model.state_dict().values()]


class Scores:
    """Scores that are given, one after the other; the last one stays."""

    def __init__(self, *values):
        self.values, self.calls = values, 0

    def __call__(self):
        self.calls += 1
        return {"mono": 0.5, "bi": math.nan, "multi": self.values[min(self.calls, len(self.values)) - 1]}


def of_weights(learner):
    """Scores that only the weights decide, up and down."""
    return lambda: {"multi": math.sin(1e6 * sum(float(value.sum()) for value in learner.weights))}


def equal(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


# ------------------------------------------------------------------------------------------------------------ the loop


def test_epochs_after_one_another():
    learner = Learner()
    log = train(learner, Tasks())
    assert [len(batch) for batch in learner.seen] == [3, 3, 3, 1, 3, 3, 3, 1]
    assert [{epoch for _, epoch, _ in batch} for batch in learner.seen] == [{0}] * 4 + [{1}] * 4
    assert sorted(i for batch in learner.seen[:4] for _, _, i in batch) == list(range(10))
    assert [row["step"] for row in log.steps] == list(range(1, 9)) and [row["epoch"] for row in log.steps][3:5] == [
        0,
        1,
    ]
    assert {"loss", "inner_gain", "grad_norm", "seconds"} <= set(log.steps[0])
    assert (log.stopped, log.best_step, log.evaluations) == ("max_steps", 8, [])


def test_tasks_of_the_development_set():
    learner, valid = Learner(update_on_valid=True, max_steps=10, patience=None), Tasks(3, "valid")
    log = train(learner, Tasks(), valid_tasks=valid, evaluate=Scores(5, 4, 6, 3))
    assert [batch[0][0] for batch in learner.seen] == [*["tasks"] * 4, "valid"] * 2
    # The development set chooses the step and stops training, as it does in the paper, though it is trained on.
    assert (log.stopped, log.best_step) == ("max_steps", 4) and len(log.evaluations) == 6
    stopped = Learner(update_on_valid=True, max_steps=10, patience=4)
    log = train(stopped, Tasks(), valid_tasks=valid, evaluate=Scores(5, 6, 4))
    assert (log.stopped, log.best_step, len(stopped.seen)) == ("patience", 2, 6)
    without = Learner(max_steps=5)
    train(without, Tasks(), valid_tasks=valid)
    assert {batch[0][0] for batch in without.seen} == {"tasks"}


def test_no_steps():
    learner = Learner(max_steps=0)
    before = learner.weights
    log = train(learner, Tasks(), evaluate=Scores(1))
    assert equal(learner.weights, before) and [row["step"] for row in log.steps] == [0] and log.best_step == 0
    assert train(Learner(max_steps=0), Tasks()).steps == []


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        (MetaConfig.paper(), {"transfer": "mono-bi-multi", "outer_lr": 1e-5, "meta_batch_size": 4}),
        (MetaConfig.paper("maml"), {"transfer": "trans", "outer_lr": 1e-5, "meta_batch_size": 4}),
        (MetaConfig.paper("fine-tune"), {"transfer": "mono-bi", "outer_lr": 5e-5, "meta_batch_size": 1}),
    ],
)
def test_the_papers_settings(made, changes):
    common = {
        "n_neg": 3, "loss": "triplet", "triplet_margin": 1.0, "inner_lr": 1e-3, "inner_steps": 5, "student_steps": 1,
        "kd_lambda": 0.5, "n_tasks": (7000, 2000, 1000), "max_length": (96, 256), "max_steps": None, "patience": 50,
        "update_on_valid": True, "weight_decay": 0.0,
    }  # fmt: skip
    assert {name: getattr(made, name) for name in (*common, *changes)} == {**common, **changes}
    assert (made.k_shot + made.q_query) * made.meta_batch_size == (8 if made.meta_batch_size == 1 else 48)


def test_settings_of_an_algorithm_that_there_is_not():
    for preset in (MetaConfig.paper, MetaConfig.code):
        with pytest.raises(ValueError, match="algorithm must be one of .*, not 'reptile'"):
            preset("reptile")
    assert MetaConfig.paper("fine-tune", outer_lr=1e-3).outer_lr == 1e-3 and MetaConfig.code("maml").transfer == "mixt"


# ----------------------------------------------------------------------------------------------------- development set


@pytest.mark.parametrize("keep", [False, True])
def test_the_best_weights_are_kept(keep, tmp_path):
    learner, best = Learner(), Learner(max_steps=4)
    train(best, Tasks())
    log = train(learner, Tasks(), evaluate=Scores(1, 2, 3, 2, 3), output_dir=tmp_path if keep else None)
    assert [row["step"] for row in log.evaluations] == [0, 2, 4, 6, 8]
    assert [row["dev_multi"] for row in log.evaluations] == [1, 2, 3, 2, 3]  # of equals, the first
    assert (log.best_step, log.stopped) == (4, "max_steps") and equal(learner.weights, best.weights)


def test_untrained_weights_may_be_the_best():
    learner = Learner()
    before = learner.weights
    assert train(learner, Tasks(), evaluate=Scores(2, 1)).best_step == 0
    assert equal(learner.weights, before)


def test_patience():
    learner = Learner(patience=4, max_steps=None)
    log = train(learner, Tasks(), evaluate=Scores(1, 2, 3, 2, 3, 4))
    assert (log.stopped, log.best_step, len(learner.seen)) == ("patience", 4, 8)


def test_without_patience_nothing_stops_early():
    assert train(Learner(patience=None), Tasks(), evaluate=Scores(2, 1)).stopped == "max_steps"


def test_evaluated_at_the_end():
    scores = Scores(1, 2, 3)
    log = train(Learner(max_steps=3), Tasks(), evaluate=scores)
    assert [row["step"] for row in log.evaluations] == [0, 2, 3] and log.best_step == 3 and scores.calls == 3


def test_scores_that_choose_nothing():
    with pytest.raises(ValueError, match="evaluate must give 'bi' as a finite number, not .*dev_mono"):
        train(Learner(), Tasks(), evaluate=Scores(1), metric="bi")
    with pytest.raises(ValueError, match="evaluate must give 'multi' as a finite number, not .*nan"):
        train(Learner(), Tasks(), evaluate=Scores(1, math.nan))


# -------------------------------------------------------------------------------------------------------- what is wrong


def test_an_inner_loop_that_does_nothing():
    with pytest.warns(UserWarning, match=r"lowers the support loss by 1.0 % on average in the first 5.*raise inner_lr"):
        train(Learner(gain=0.01), Tasks())
    with pytest.warns(UserWarning, match=r"raises the support loss by 20.0 % .*; lower inner_lr \(0.001\)"):
        train(Learner(gain=-0.2), Tasks())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (Learner(gain=0.06), Learner(gain=math.nan), Learner(gain=0, inner_steps=0)):
            train(quiet, Tasks())


def test_a_transfer_mode_whose_other_tasks_are_not_trained_on():
    valid = Tasks(3, "valid")
    for config, given, why in (
        ({}, valid, "there are none without update_on_valid=True and a development set"),
        ({"update_on_valid": True}, None, "there are none without update_on_valid=True and a development set"),
        ({"update_on_valid": True, "max_steps": 4}, valid, r"they begin after meta-step 4 .*, but max_steps is 4"),
    ):
        with pytest.warns(UserWarning, match=f"transfer='trans' is 'mono-bi' here: .*, and {why}"):
            train(Learner(transfer="trans", **config), Tasks(), valid_tasks=given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(Learner(transfer="trans", update_on_valid=True, max_steps=5), Tasks(), valid_tasks=valid)
        train(Learner(transfer="trans", update_on_valid=True, max_steps=None), Tasks(3), valid_tasks=valid)


# --------------------------------------------------------------------------------------------------------- checkpoints


def test_a_finished_training_is_found_again(tmp_path):
    first, again = Learner(), Learner()
    log = train(first, Tasks(), evaluate=Scores(1, 2, 3, 2), output_dir=tmp_path)
    assert names(tmp_path) == [checkpoints.LOG, checkpoints.RECORD, "step-000004.safetensors"]
    scores = Scores(0)
    assert train(again, Tasks(), evaluate=scores, output_dir=tmp_path) == log
    assert equal(again.weights, first.weights) and again.seen == [] and scores.calls == 0


def test_the_log_is_a_table(tmp_path):
    log = train(Learner(), Tasks(), evaluate=Scores(1, 2), output_dir=tmp_path)
    with open(tmp_path / checkpoints.LOG, newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == list(range(9))
    assert [row["dev_multi"] for row in rows] == ["1.0", "", "2.0", "", "2.0", "", "2.0", "", "2.0"]
    assert [float(row["loss"]) for row in rows[1:]] == [row["loss"] for row in log.steps[1:]]
    assert set(log.evaluations[0]) == {"step", "epoch", "dev_mono", "dev_multi"}  # what is not finite is no JSON


@pytest.mark.parametrize("every", [0.0, 1000.0])
def test_an_interrupted_training_resumes(every, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_SAVE_SECONDS", every)
    whole = Learner(max_steps=11)
    expected = train(whole, Tasks(), evaluate=of_weights(whole))
    assert expected.best_step not in (0, 11)
    done = 0
    for steps in (3, 0, 2, 1, 20):  # made before it is interrupted
        learner = Learner(max_steps=11)
        monkeypatch.setattr(learner, "meta_step", interrupted(learner.meta_step, steps))
        try:
            log = train(learner, Tasks(), evaluate=of_weights(learner), output_dir=tmp_path)
        except KeyboardInterrupt:
            done = json.loads((tmp_path / checkpoints.RECORD).read_text())["progress"]["step"]
            assert done == (3, 3, 5, 6)[(3, 0, 2, 1).index(steps)] if every == 0 else done % 2 == 0
    assert equal(learner.weights, whole.weights) and len(learner.seen) == 11 - done
    assert [numbers(row) for row in log.steps] == [numbers(row) for row in expected.steps]
    assert (log.best_step, log.stopped) == (expected.best_step, expected.stopped)


def test_a_full_disk_loses_no_checkpoint(tmp_path, monkeypatch):
    whole, first, again = Learner(), Learner(), Learner()
    train(whole, Tasks(), evaluate=of_weights(whole))
    monkeypatch.setattr(first, "meta_step", interrupted(first.meta_step, 4))
    with pytest.raises(KeyboardInterrupt):
        train(first, Tasks(), evaluate=of_weights(first), output_dir=tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
        with pytest.raises(OSError, match=f"cannot write {tmp_path}/step-000006.safetensors: File too large"):
            train(Learner(), Tasks(), evaluate=of_weights(again), output_dir=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    train(again, Tasks(), evaluate=of_weights(again), output_dir=tmp_path)
    assert equal(again.weights, whole.weights) and len(again.seen) == 4


def interrupted(meta_step, steps):
    def wrapped(tasks):
        nonlocal steps
        steps -= 1
        if steps < 0:
            raise KeyboardInterrupt
        return meta_step(tasks)

    return wrapped


def numbers(row):
    return {name: value for name, value in row.items() if name != "seconds"}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_training_resumes(tmp_path, monkeypatch):
    """Killed before the n-th file is put in its place, for each n; and then again at the first."""
    monkeypatch.setattr(training, "_SAVE_SECONDS", 0.0)

    def fit(path):
        learner = Learner(max_steps=5)
        return train(learner, Tasks(), evaluate=of_weights(learner), output_dir=path), learner.weights

    expected, weights = fit(tmp_path / "whole")
    for moment in itertools.count():
        path = tmp_path / f"{moment}"
        end = killed(lambda path=path: fit(path), moment)
        killed(lambda path=path: fit(path), 1)
        log, found = fit(path)
        assert equal(found, weights) and log.best_step == expected.best_step
        assert names(path) == names(tmp_path / "whole")
        if end == 0:
            break
        assert end == -signal.SIGKILL
    assert moment > 15


def killed(run, moment):
    """Runs something in another process, which is killed before it renames its n-th file; returns its end."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        replace, left = os.replace, itertools.count(moment, -1)
        os.replace = lambda *paths: replace(*paths) if next(left) else os.kill(os.getpid(), signal.SIGKILL)
        run()
        os._exit(0)
    finally:
        os._exit(1)


# ------------------------------------------------------------------------------------- directories that cannot be used


@pytest.mark.parametrize(
    ("config", "tasks", "evaluate", "differ"),
    [
        ({"outer_lr": 0.1, "max_steps": 9}, Tasks(), Scores(1), "outer_lr, max_steps"),
        ({}, Tasks(name="others"), Scores(1), "tasks"),
        ({"init": 1, "seed": 1}, Tasks(), Scores(1), "model, seed"),
        ({}, Tasks(), None, "metric"),
    ],
)
def test_of_another_training(config, tasks, evaluate, differ, tmp_path):
    train(Learner(), Tasks(), evaluate=Scores(1), output_dir=tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"holds the checkpoints of another training \(other {differ}\); name"):
        train(Learner(**config), tasks, evaluate=evaluate, output_dir=tmp_path)
    assert contents(tmp_path) == before


def test_other_files_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    train(Learner(), Tasks(), output_dir=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "step-1.safetensors").write_bytes(b"theirs")
    with pytest.raises(ValueError, match="holds step-1.safetensors of another program"):
        train(Learner(), Tasks(), output_dir=tmp_path / "other")


@pytest.mark.parametrize("damage", ["record", "not a record", "cut", "changed", "missing"])
def test_damaged(damage, tmp_path):
    train(Learner(), Tasks(), output_dir=tmp_path)
    record, state = tmp_path / checkpoints.RECORD, tmp_path / "step-000008.safetensors"
    if damage == "record":
        record.write_text(record.read_text()[:-9])
    elif damage == "not a record":
        record.write_text('{"key": 3}')
    elif damage == "missing":
        state.unlink()
    else:
        data = bytearray(state.read_bytes())
        data[-1] ^= 1
        state.write_bytes(data[: -8 if damage == "cut" else None])
    named = record if "record" in damage else state
    with pytest.raises(ValueError, match=rf"output_dir: {named} is damaged \(.*\); delete {tmp_path} or name another"):
        train(Learner(), Tasks(), output_dir=tmp_path)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.iterdir())}


# ------------------------------------------------------------------------------------------------------------ progress


def test_progress(monkeypatch, tmp_path):
    shown = []

    class Bar:
        def __init__(self, total, initial, desc, unit, disable):
            shown.append((total, initial, desc, disable))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            shown.append("closed")

        def update(self):
            shown.append("step")

        def set_postfix(self, values):
            shown.append(dict(values))

    monkeypatch.setattr(training.pt, "tqdm", Bar)
    log = train(Learner(max_steps=3), Tasks(), evaluate=Scores(1, 2), verbose=True, output_dir=tmp_path)
    assert shown[0] == (3, 0, "Learner: training", False) and shown.count("step") == 3 and shown[-1] == "closed"
    assert shown[-3] == {
        "dev mono": "0.500", "dev multi": "2.000", "loss": f"{log.steps[-1]['loss']:.3f}", "inner_gain": "0.500"
    }  # fmt: skip
    log = train(Learner(max_steps=None), Tasks(4))
    assert (len(log.steps), log.steps[-1]["epoch"], log.stopped) == (40, 19, "epochs")
    assert (40, 0, "Learner: training", True) in shown


# --------------------------------------------------------------------------------------------------- with real learners


SMALL = {
    "transfer": "el_el-el_ar-el_ar,el", "k_shot": 2, "q_query": 2, "inner_steps": 2, "meta_batch_size": 2,
    "inner_lr": 1e-2, "outer_lr": 1e-3, "n_tasks": (6, 2, 2), "max_steps": 5, "eval_steps": 2, "max_length": (8, 8),
    "train_mode": True, "warmup_steps": 3,
}  # fmt: skip


@cache
def corpus():
    """Queries of a word, and answers of two, in two languages that have no word in common."""
    free = iter(models.words())
    numbers = range(16)
    topics = pd.DataFrame({"qid": [f"q{i}" for i in numbers], "query": [next(free) for _ in numbers]})
    docs = pd.DataFrame(
        [(f"{lang}{i}", f"{next(free)} {next(free)}", lang, f"{i}") for i in numbers for lang in ("el", "ar")],
        columns=["docno", "text", "doc_lang", "dgroup"],
    )
    qrels = pd.DataFrame([(f"q{i}", f"{lang}{i}", 1) for i in numbers for lang in ("el", "ar")])
    return MultilingualCorpus.from_frames(
        topics.assign(query_lang="el"), docs, qrels.set_axis(["qid", "docno", "label"], axis=1)
    )


@cache
def bert():
    return load_sentence_transformer(models.bert(), device="cpu")


def real(algorithm="maml-align", **config):
    config = MetaConfig(**{**SMALL, **config})
    encoder = TextEncoder(copy.deepcopy(bert()), config.max_length)
    return LEARNERS[algorithm](encoder, config), TripletTaskSampler(corpus(), config)


def test_the_log_of_a_real_learner(tmp_path):
    learner, tasks = real(max_steps=3)
    log = train(learner, tasks, output_dir=tmp_path)
    row = log.steps[-1]
    assert {"loss", "teacher_loss", "student_loss", "kd", "inner_gain", "grad_norm", "seconds"} <= set(row)
    assert row["loss"] == pytest.approx((row["teacher_loss"] + row["student_loss"]) / 2 + 0.5 * row["kd"])
    learner, tasks = real("fine-tune", max_steps=1)
    assert "inner_gain" not in train(learner, tasks).steps[0]  # it has none


def test_diverged(tmp_path):
    learner, tasks = real(outer_lr=1e30, warmup_steps=0)
    with pytest.raises(ValueError, match=r"meta-step 2, tasks .*: the loss is nan"):
        train(learner, tasks, output_dir=tmp_path)
    assert json.loads((tmp_path / checkpoints.RECORD).read_text())["progress"] is None  # nothing that has failed
