"""``pyterrier-mart meta`` with a small random model, on a few articles of XQuAD-R."""

import json
from functools import cache

import models
import pyterrier as pt
import pytest
from commands import run_command

from pyterrier_mart.cli import meta as commands
from pyterrier_mart.cli.meta import read_fold
from pyterrier_mart.evaluation.folds import Fold
from pyterrier_mart.evaluation.lareqa import lareqa_evaluate, summarise
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.learners import MAML
from pyterrier_mart.meta.retriever import MetaSBERTRetriever

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:the inner loop")]

QUICK = [
    "--set", "k_shot=2", "--set", "q_query=2", "--set", "inner_steps=1", "--set", "meta_batch_size=1",
    "--set", "max_length=16,16", "--set", "eval_steps=2",
]  # fmt: skip
PATHS = "el_el-el_ar-el_ar,el"


@cache
def small():
    """Some articles of each split, in two languages."""
    fold = read_fold("xquad-r", "el,ar", 0)
    return Fold(0, *(split.subset(split.groups[:2]) for split in (fold.train, fold.valid, fold.test)), 0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty directory to be in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands.out, "_width", 120)
    return tmp_path


@pytest.fixture
def meta(folder, monkeypatch, capfd):
    def meta(*args):
        return run_command(monkeypatch, capfd, "meta", *args)

    return meta


@pytest.fixture
def learn(meta, monkeypatch):
    monkeypatch.setattr(commands, "read_fold", lambda *_: small())

    def learn(*args, algorithm="maml", steps=2):
        given = ("--encoder", models.bert(), "--algorithm", algorithm, "--transfer", PATHS, "--steps", steps)
        return meta("train", *given, "--device", "cpu", *QUICK, *args)

    return learn


def test_train_and_evaluate(learn, meta, folder):
    code, text, messages = learn("--out", "m", algorithm="maml-align")
    assert code == 0, messages
    assert "kept meta-step " in text and "multi AP@20 x100 " in text and text.endswith("wrote m\n")
    assert "maml-align on " in messages and "log.csv are in m.checkpoints" in messages
    assert sorted(path.name for path in folder.iterdir()) == ["m"]
    saved = MetaSBERTRetriever.load("m", device="cpu")
    assert saved.algorithm == "maml-align" and saved.config.transfer == PATHS and saved.config.max_steps == 2
    code, _, messages = learn("--out", "m", steps=0)
    assert code == 1 and "error: m exists; name another path or pass --overwrite" in messages

    code, text, messages = meta("evaluate", "m", "--device", "cpu", "--json", "m.json", "--run", "m.res")
    assert code == 0, messages
    found = json.loads((folder / "m.json").read_text())
    expected = summarise(lareqa_evaluate(saved, small().test))
    assert found["mean"] == pytest.approx(expected) and not found["centred"]
    assert f"{expected['multi']:.1f}" in text and "AP@20 x100: <MultilingualCorpus" in messages
    assert list(found["languages"]) == ["ar", "el"]
    assert set(found["languages"]["el"]) == {"mono", "bi", "multi", "bias_share", "bias_pool_share"}
    run = pt.io.read_results("m.res")
    assert (run.groupby("qid")["rank"].max() == 19).all() and set(run["qid"]) == set(small().test.queries)

    code, _, messages = meta("evaluate", "m", "--json", "m/model.safetensors/x")
    assert code == 1 and "error: cannot write m/model.safetensors/x: m/model.safetensors is not a dir" in messages
    code, text, messages = meta("evaluate", "m", "--device", "cpu", "--centre")
    assert code == 0, messages
    assert "mean" in text and "AP@20 x100, centred: " in messages


def test_interrupted_training_resumes(learn, folder, monkeypatch):
    assert learn("--out", "whole", steps=3)[0] == 0
    meta_step = MAML.meta_step

    def interrupt(self, tasks):
        if self.steps == 2:
            raise KeyboardInterrupt
        return meta_step(self, tasks)

    with monkeypatch.context() as patched:
        patched.setattr(MAML, "meta_step", interrupt)
        code, text, _ = learn("--out", "m", steps=3)
    assert code == 130 and text == "" and not (folder / "m").exists()
    code, _, messages = learn("--out", "m", "--set", "inner_lr=0.5", steps=3)
    assert code == 1 and "another training (other inner_lr)" in messages
    assert learn("--out", "m", steps=3)[0] == 0
    ours, theirs = (MetaSBERTRetriever.load(name, device="cpu") for name in ("m", "whole"))
    assert ours.fingerprint == theirs.fingerprint and not (folder / "m.checkpoints").exists()


def test_files_of_the_users_own(meta, folder):
    (folder / "data").mkdir()
    corpus = small().test
    for name in ("topics", "docs", "qrels"):
        getattr(corpus, name).to_csv(folder / "data" / f"{name}.tsv", sep="\t", index=False, quoting=3)
    whole = commands.read_fold("data", None, None)
    assert whole.train.fingerprint == corpus.fingerprint == whole.test.fingerprint and whole.valid is None
    assert commands.read_fold("data", "el", None).test.query_langs == ("el",)
    code, text, messages = meta(
        "train", "--encoder", models.bert(), "--data", "data", "--out", "m", "--algorithm", "maml",
        "--transfer", PATHS, "--steps", 1, "--device", "cpu", *QUICK,
    )  # fmt: skip
    assert code == 0 and text == "kept meta-step 1\nwrote m\n", messages
    dataset = commands.read_fold("mart:xquad-r/de-en", None, 1)
    assert len(dataset.test.topics) == 262 and dataset.test.doc_langs == ("en",)


def test_folds_of_the_paper():
    fold = commands.read_fold("xquad-r", None, None)
    assert [split.topics["qgroup"].nunique() for split in (fold.train, fold.valid, fold.test)] == [696, 220, 274]


def test_settings(folder):
    (folder / "c.json").write_text('{"inner_lr": 0.5, "max_length": [8, 9]}')
    read = commands.read_config
    assert read("recommended", None, None) == MetaConfig()
    assert read("paper", None, None) == MetaConfig.paper() and read("code", None, None) == MetaConfig.code()
    assert read("paper", None, None, "fine-tune") == MetaConfig.paper("fine-tune")
    given = ["freeze=none", "n_tasks=1,2,3", "train_mode=True", "adapt=last:2", "max_grad_norm=1", "kd=none"]
    assert read("recommended", None, [*given, "max_length=[5, 6]"]) == MetaConfig(
        freeze=None, n_tasks=(1, 2, 3), train_mode=True, adapt="last:2", max_grad_norm=1, kd="none", max_length=(5, 6)
    )
    found = read("recommended", folder / "c.json", ["inner_lr=0.1"], transfer="mono-bi", max_steps=None)
    assert found == MetaConfig(inner_lr=0.1, max_length=(8, 9), transfer="mono-bi")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--set", "inner_lr"), "--set must be NAME=VALUE, such as inner_lr=1e-2, not 'inner_lr'"),
        (("--set", "rate=1"), "unknown setting rate; expected some of adapt, backend, "),
        (("--set", "inner_lr=0"), "inner_lr must be a positive number, not 0"),
        (("--set", "n_tasks=1,2"), "n_tasks must be 3 whole numbers >= 1, not "),
        (("--transfer", "bi-mono"), "transfer must be one of mono-mono, "),
        (("--preset", "other"), "preset must be one of recommended, paper, code, not 'other'"),
        (("--algorithm", "reptile"), "algorithm must be one of maml-align, maml, fine-tune"),
        (("--langs", "de, en"), "topics_or_res_tr has no queries in el, no queries in hi, no documents in ar, no"),
        (("--data", "mart:xquad-r/de-en", "--langs", "de"), "xquad-r/de-en has no documents in de; it has"),
        (("--out", "mine", "--overwrite"), "mine exists and is not replaced, since it holds no pt_meta.json"),
    ],
)
def test_what_is_wrong_with_training(args, message, meta, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.tex").touch()
    code, text, messages = meta("train", "--encoder", models.bert(), "--out", "m", "--device", "cpu", *args)
    assert (code, text) == (1, "") and not (folder / "m").exists()
    assert messages.splitlines()[-1].startswith(f"error: {message}")


def test_tasks(meta):
    code, text, messages = meta("tasks", "--transfer", PATHS, "--n", 2, "--langs", "ar,el", *QUICK)
    assert (code, messages) == (0, "")
    lines = [line for line in text.splitlines() if line]
    assert lines[0].startswith("task 0: el_el") and lines[1] == "support set el_el"
    assert "second query set el_ar,el" in lines and any(line.startswith("task 1: ") for line in lines)
    assert sum(line.startswith("  + ") for line in lines) == sum(line.startswith("  - ") for line in lines) == 16
    args = ("--set", "negatives=hard", "--encoder", models.bert())
    code, text, messages = meta("tasks", "--transfer", PATHS, "--n", 1, "--langs", "ar,el", *args, *QUICK)
    assert code == 0 and text.count("  - ") == 8
