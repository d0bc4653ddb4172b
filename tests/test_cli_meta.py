"""``pyterrier-mart meta`` with a small random model, on a few articles of XQuAD-R."""

import json
from functools import cache

import models
import pyterrier as pt
import pytest
from commands import run_command

from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.cli.meta import settings
from pyterrier_mart.cli.meta.data import DocText, xquad_r_fold
from pyterrier_mart.evaluation.lareqa import lareqa_evaluate, summarise
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.folds import Fold
from pyterrier_mart.meta.learners import MAML
from pyterrier_mart.meta.retriever import MetaSBERTRetriever

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:the inner loop")]

QUICK = [
    "--set", "k_shot=2", "--set", "q_query=2", "--set", "inner_steps=1", "--set", "meta_batch_size=1",
    "--set", "max_length=16,16", "--set", "eval_steps=2",
]  # fmt: skip
PATHS = "el_el-el_ar-el_ar,el"


@cache
def small(index=0, langs=None, doc_text=DocText.sentence):
    """Some articles of each split, in two languages."""
    fold = xquad_r_fold(index, "el,ar", doc_text)
    return Fold(index, *(split.subset(split.groups[:2]) for split in (fold.train, fold.valid, fold.test)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty directory to be in, and little data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "_width", 120)
    monkeypatch.setattr(errors, "_width", 120)
    for module in ("training", "evaluation", "sampling"):
        monkeypatch.setattr(f"pyterrier_mart.cli.meta.{module}.xquad_r_fold", small)
    return tmp_path


@pytest.fixture
def meta(folder, monkeypatch, capfd):
    def meta(*args):
        return run_command(monkeypatch, capfd, "meta", *args)

    return meta


@pytest.fixture
def learn(meta):
    def learn(*args, algorithm="maml", steps=2):
        given = ("--encoder", models.bert(), "--algorithm", algorithm, "--transfer", PATHS, "--steps", steps)
        return meta("train", *given, "--device", "cpu", *QUICK, *args)

    return learn


@pytest.fixture
def fails(meta, folder):
    """Runs a command that fails and writes nothing; returns its last message."""

    def fails(*args):
        before = sorted(folder.rglob("*"))
        code, text, messages = meta(*args)
        assert (code, text) == (1, "") and sorted(folder.rglob("*")) == before
        last = messages.splitlines()[-1]
        assert last.startswith("error: ")
        return last.removeprefix("error: ")

    return fails


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The directory of a saved model that was not trained."""
    saved = tmp_path_factory.mktemp("saved") / "model"
    MetaSBERTRetriever(models.bert(), config=MetaConfig(max_length=(16, 16)), device="cpu").save(saved)
    return saved


# --------------------------------------------------------------------------------------------------------------- train


def test_train_and_evaluate(learn, meta, folder):
    code, text, messages = learn("--out", "m", algorithm="maml-align")
    assert code == 0, messages
    assert "stopped after meta-step 2, and kept that of meta-step " in text and "multi " in text and "wrote m\n" in text
    assert "questions in 2 languages to learn from" in messages and "log.csv are in m.checkpoints" in messages
    assert sorted(path.name for path in folder.iterdir()) == ["m"]
    saved = MetaSBERTRetriever.load("m", device="cpu")
    assert saved.algorithm == "maml-align" and saved.config.transfer == PATHS and saved.config.max_steps == 2
    assert [row["step"] for row in saved.history.steps] == [0, 1, 2]

    code, text, messages = meta("evaluate", "m", "--device", "cpu", "--json", "m.json", "--run", "m.res")
    assert code == 0, messages
    found = json.loads((folder / "m.json").read_text())
    expected = summarise(lareqa_evaluate(saved, small().test))
    assert found["mean"] == pytest.approx(expected)
    assert f"{expected['multi']:.1f}" in text and "own language" in text and "test articles of fold 0" in text
    assert list(found["languages"]) == ["ar", "el"]
    assert set(found["languages"]["el"]) == {"mono", "bi", "multi", "bias_share", "bias_pool_share"}
    run = pt.io.read_results("m.res")
    assert (run.groupby("qid")["rank"].max() == 19).all() and set(run["qid"]) == set(small().test.queries)


def test_interrupted_training_goes_on(learn, folder, monkeypatch):
    assert learn("--out", "whole", steps=3)[0] == 0
    meta_step = MAML.meta_step

    def interrupt(self, tasks):
        if self.steps == 2:
            raise KeyboardInterrupt
        return meta_step(self, tasks)

    with monkeypatch.context() as patched:
        patched.setattr(MAML, "meta_step", interrupt)
        code, text, messages = learn("--out", "m", steps=3)
    assert code == 130 and text == "" and not (folder / "m").exists()
    assert "the same command goes on after meta-step 2 (checkpoints in m.checkpoints)" in messages
    code, _, messages = learn("--out", "m", "--set", "inner_lr=0.5", steps=3)
    assert code == 1 and "another training (other inner_lr)" in messages
    assert "error: --checkpoints " in messages and messages.endswith("--restart deletes it\n")
    assert learn("--out", "m", steps=3)[0] == 0
    ours, theirs = (MetaSBERTRetriever.load(name, device="cpu") for name in ("m", "whole"))
    assert ours.fingerprint == theirs.fingerprint and not (folder / "m.checkpoints").exists()


def test_interrupted_at_once(learn, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(MetaSBERTRetriever, "fit", interrupt)
    code, _, messages = learn("--out", "m")
    assert code == 130 and "interrupted before the first checkpoint: the same command starts again" in messages


def test_restart_overwrite_and_own_checkpoints(learn, folder):
    assert learn("--out", "m", "--checkpoints", "kept", steps=0)[0] == 0
    assert (folder / "kept" / "log.csv").exists()
    code, _, messages = learn("--out", "m", steps=0)
    assert code == 1 and "error: m exists; name another path or pass --overwrite" in messages
    (folder / "kept" / "notes").write_text("x")
    code, _, messages = learn(
        "--out", "m", "--overwrite", "--checkpoints", "kept", "--restart", "--set", "seed=1", steps=0
    )
    assert code == 0, messages
    assert MetaSBERTRetriever.load("m", device="cpu").config.seed == 1


def test_settings(folder):
    def read(*given, preset="recommended", config=None, **options):
        options = {name: (f"--{name}", value) for name, value in options.items()}
        return settings.read_settings(settings.Preset(preset), config, given, options)

    (folder / "c.json").write_text('{"inner_lr": 0.5, "max_length": [8, 9]}')
    assert read() == MetaConfig()
    assert read(preset="paper") == MetaConfig.paper() and read(preset="code") == MetaConfig.code()
    assert read("freeze=none", "n_tasks=1,2,3", "train_mode=True", "adapt=last:2", "max_grad_norm=1") == MetaConfig(
        freeze=None, n_tasks=(1, 2, 3), train_mode=True, adapt="last:2", max_grad_norm=1
    )
    assert read("order=second", "backend=functional") == MetaConfig(order="second", backend="functional")
    found = read("inner_lr=0.1", config=folder / "c.json", transfer="mono-bi")
    assert found == MetaConfig(inner_lr=0.1, max_length=(8, 9), transfer="mono-bi")


TRAIN = ("train", "--encoder", "e5-small", "--out", "m")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--set", "inner_lr"), "--set inner_lr: expected NAME=VALUE, such as inner_lr=1e-2"),
        (("--set", "rate=1"), "--set rate=1: unknown setting rate; expected one of adapt, backend, "),
        (("--set", "inner_lr=0"), "--set inner_lr=0: inner_lr must be greater than 0"),
        (("--set", "n_tasks=1,2"), "--set n_tasks=1,2: n_tasks must be 3 whole numbers >= 1, not "),
        (("--set", "order=second"), "--set order=second: order='second' needs backend='functional'"),
        (("--set", "seed=1", "--set", "seed=2"), "--set seed=2: seed is given by --set seed=1 already"),
        (("--steps", "3", "--set", "max_steps=2"), "--steps 3: max_steps is given by --set max_steps=2 already"),
        (("--transfer", "bi-mono"), "--transfer bi-mono: transfer must be one of mono-mono, "),
        (("--transfer", "mono-bi"), "--transfer mono-bi: maml-align needs a support set and two query sets, such as"),
        (("--config", "bad.json"), "--config bad.json: unknown setting rate; "),
        (("--config", "none.json"), "none.json: No such file or directory"),
        (("--config", "bad.json", "--preset", "paper"), "--preset paper: --config has all settings already"),
        (("--device", "gpu"), "--device gpu: device must be auto, cpu, "),
        (("--out", "file"), "cannot write the directory file: it is a file"),
        (("--encoder", "no/such/encoder"), "--encoder no/such/encoder: there is no such encoder here"),
    ],
)
def test_what_is_wrong_with_training(args, message, fails, folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (folder / "bad.json").write_text('{"rate": 1}')
    (folder / "file").write_text("mine")
    assert fails(*TRAIN, *args).startswith(message)


def test_languages_that_lack(fails):
    message = fails("train", "--encoder", models.bert(), "--out", "m", "--device", "cpu")  # there is no hi here
    assert message.startswith("--transfer mono-bi-multi: ")
    with pytest.raises(ValueError, match="--langs el,xx: "):
        xquad_r_fold(0, "el,xx", DocText.sentence)


# ------------------------------------------------------------------------------------------------------------ evaluate


def test_centred_encoder_as_it_is(meta, folder, model):
    code, text, messages = meta("evaluate", models.bert(), "--device", "cpu", "--centre", "--k", 5, "--split", "valid",
                                "--json", "m.json")  # fmt: skip
    assert code == 0, messages
    assert "AP@5 x100 for " in text and "valid articles of fold 0, centred" in text
    found = json.loads((folder / "m.json").read_text())
    assert found["centred"] and found["questions"] == len(small().valid.topics) and found["k"] == 5
    assert "training texts of each language" in messages


def test_sts17(meta, folder, model, monkeypatch):
    code, text, messages = meta(
        "evaluate", model, "--data", "sts17", "--fold", 1, "--device", "cpu", "--json", "s.json"
    )
    assert code == 0, messages
    found = json.loads((folder / "s.json").read_text())
    assert {row["pairs"] for row in found["tracks"].values()} == {50} and len(found["tracks"]) == 6
    mono = [found["tracks"][track]["pearson"] for track in ("ar-ar", "es-es", "en-en")]
    assert found["mean"]["mono"]["pearson"] == pytest.approx(sum(mono) / 3)
    assert "mean bi" in text and "Pearson" in text


@pytest.mark.parametrize("option", [("--centre",), ("--run", "x.res"), ("--langs", "el")])
def test_what_is_for_rankings(option, fails):
    assert fails("evaluate", "m", "--data", "sts17", *option) == f"{option[0]} is for --data xquad-r, not sts17"


def test_what_is_wrong_with_evaluation(fails, folder, model, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fails("evaluate", "no/such/model").startswith("MODEL no/such/model: there is no such encoder here")
    (folder / "new").mkdir()
    assert fails("evaluate", model, "--json", "new") == "cannot write the file new: it is a directory"


# --------------------------------------------------------------------------------------------------------------- tasks


def test_tasks(meta):
    code, text, messages = meta("tasks", "--transfer", PATHS, "--n", 2, *QUICK, "--full")
    assert (code, messages) == (0, "")
    lines = [line for line in text.splitlines() if line]
    assert "task 0: el_el" in lines[0] and "support set el_el: 2 questions, 2 rows" in text
    assert "second query set el_ar,el: 2 questions, 4 rows" in text and "task 1: " in text
    corpus = small().train
    squeezed = "".join(text.split())
    shown = [qid for qid, query in corpus.queries.items() if "".join(query.split()) in squeezed]
    assert len(shown) >= 8  # six of each task, of which some may be in both
    assert sum(line.startswith("+") for line in lines) == sum(line.startswith("-") for line in lines) == 16


def test_mined_negatives(meta):
    code, text, messages = meta("tasks", "--transfer", PATHS, "--n", 1, "--negatives", "hard", "--encoder",
                                models.bert(), "--device", "cpu", *QUICK)  # fmt: skip
    assert code == 0 and "encoding the texts of " in messages
    distances = {
        sign: [float(line.split()[-1]) for line in text.splitlines() if line.startswith(sign)] for sign in "+-"
    }
    assert len(distances["+"]) == len(distances["-"]) == 8
    assert all(0 <= value <= 2 for values in distances.values() for value in values)


def test_what_is_wrong_with_tasks(fails):
    message = fails("tasks", "--transfer", PATHS, "--n", 9, "--set", "n_tasks=3,3,3", *QUICK)
    assert message == "--n 9: an epoch has 3 tasks (--set n_tasks=[3, 3, 3])"
    message = fails("tasks", "--negatives", "hard", "--set", "negatives=easy")
    assert message == "--negatives hard: negatives is given by --set negatives=easy already"
    assert fails("tasks", "--transfer", "mono-bi").startswith("--transfer mono-bi: ")


def test_fold_of_the_paper():
    fold = xquad_r_fold(0, None, DocText.sentence)
    assert [split.topics["qgroup"].nunique() for split in (fold.train, fold.valid, fold.test)] == [696, 220, 274]
    assert fold.index == 0
