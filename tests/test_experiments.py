"""The drivers of the MART paper's tables and figures, on a small CLEF and a tiny encoder."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import clef_collection
import models
import pandas as pd
import pyterrier as pt
import pytest

from experiments import figure4, figure5, paper, parallel, ranking, report, study, table2, table3, table4
from experiments.claims import claimed
from experiments.outcome import Outcome
from experiments.ranking import Deeper, RestOf, languages
from pyterrier_mart import MARTReRanker, TrainingOptions, TranslationTable
from pyterrier_mart.datasets import XQuADR
from pyterrier_mart.datasets.clef import CLEF
from pyterrier_mart.evaluation import CrossValidation, Fold
from pyterrier_mart.evaluation.runs import read_run

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a small CLEF; stores that are built of it lie beside it."""
    root = tmp_path_factory.mktemp("clef")
    clef_collection.write(root / "home", languages=("de", "en"), topics=12, documents=30)
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTERRIER_MART_CACHE", str(root / "cache"))
    yield root / "home"
    patch.undo()


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Where reports are written."""
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def options(home, *more):
    fast = "--epochs 1 --train-size 2 --batch-size 2 --accumulation 1 --depth 4 --negative-depth 8"
    fast += " --validation-queries 0 --learning-rate 1e-3"
    return ["--data", "clef", "--home", home, "--encoder", models.bert(), *fast.split(), "--device", "cpu", *more]


def run(module, *arguments):
    module.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def done(home, tmp_path_factory):
    """A run of Table 2 over two folds: its path, report, numbers and values by topic."""
    root = tmp_path_factory.mktemp("table2")
    patch = pytest.MonkeyPatch()
    patch.setattr(report, "RESULTS", root)
    arguments = options(home, "--pairs", "de-en", "--folds", "0", "1")
    run(table2, *arguments, "--path", root / "runs", "--name", "one")
    patch.undo()
    return root / "runs", arguments, (root / "one.md").read_text(), json.loads((root / "one.json").read_text()), \
        pd.read_csv(root / "one.queries.tsv", sep="\t", dtype={"qid": str})  # fmt: skip


def table(text):
    """The rows of the first table of a report: cells by system."""
    lines = [line for line in text.split("\n") if line.startswith("| ")]
    header = [cell.strip() for cell in lines[0].strip("|").split("|")]
    rows = {}
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != len(header) or cells[0] in rows:
            break
        rows[cells[0]] = cells[1:]
    return header, rows


def trained(path, name):
    """When a model of the first fold was trained."""
    return (path / "de-en" / "training" / f"{name}-0" / "final.safetensors").stat().st_mtime_ns


SOME = ["--systems", "SMT", "MART"]


def means(path):
    """The table of a report of some systems, with all digits."""
    rows = json.loads(path.read_text())["results"]["tables"]["de-en"]["SMT"]
    return {row["name"]: (row["AP@100"], row["P@10"]) for row in rows}


def some_means(data):
    rows = data["results"]["tables"]["de-en"]["SMT"]
    return {row["name"]: (row["AP@100"], row["P@10"]) for row in rows if row["name"] in SOME}


# ---------------------------------------------------------------------------------------------------------- the tables


def test_table2_measures_all_systems(done):
    path, _, text, data, each = done
    header, rows = table(text)
    assert header == ["System", "de-en AP@100", "de-en P@10"] and tuple(rows) == table2.SYSTEMS
    values = {row["name"]: row["AP@100"] for row in data["results"]["tables"]["de-en"]["SMT"]}
    assert values["human translation"] > 0.8 and values["SMT"] > 0.8  # a question's words are in its paragraph
    runs = {name: read_run(path / "de-en" / name / "fold-0.res.gz") for name in ("encoder", "mart-plb", "mart")}
    assert len({tuple(found["score"]) for found in runs.values()}) == 3
    means = each[each["measure"] == "AP@100"].drop(columns=["pair", "measure", "qid"]).mean()
    for system, cells in rows.items():
        assert cells[0].strip("*▲▼△▽ ") == f"{means[system]:.3f}" and means[system] == pytest.approx(
            values[system], abs=1e-5
        )
    tested = each["qid"].nunique()
    assert 4 <= tested < 12 and f"| de-en | 12 | {tested} | 246 | 30 | about 113,000 |" in text
    assert "- de-en: de-en has 12 topics, but 246 in the paper\n" in text
    assert "MART" in data["results"]["tables"]["de-en"] and set(each["pair"]) == {"de-en"}
    assert data["settings"]["encoder"] == models.bert().name and str(models.bert()) not in text


def test_what_is_done_is_not_done_again(done, results, monkeypatch):
    path, arguments, text, _, _ = done
    monkeypatch.setattr(MARTReRanker, "fit", None)
    run(table2, *arguments, "--path", path, "--name", "one")
    assert table((results / "one.md").read_text()) == table(text)


def test_an_interrupted_run_resumes(done, results, tmp_path, monkeypatch):
    _, arguments, _, data, _ = done
    fit, fitted = MARTReRanker.fit, []

    def interrupted(self, *frames):
        if len(fitted) == 1:
            raise KeyboardInterrupt
        fitted.append(self)
        return fit(self, *frames)

    monkeypatch.setattr(MARTReRanker, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(table2, *arguments, *SOME, "--path", tmp_path / "runs", "--name", "two")
    assert not results.exists()
    monkeypatch.setattr(MARTReRanker, "fit", lambda *args: fitted.append(args[0]) or fit(*args))
    run(table2, *arguments, *SOME, "--path", tmp_path / "runs", "--name", "two")
    assert len(fitted) == 2  # in two folds, in none twice
    assert means(results / "two.json") == some_means(data)


def test_several_devices_give_the_same_table(done, results, tmp_path, capsys):
    _, arguments, _, data, _ = done
    runs = tmp_path / "runs"
    run(table2, *arguments, *SOME, "--path", runs, "--devices", "cpu", "cpu", "--name", "three")
    out = capsys.readouterr().out
    assert out.count("cpu de-en fold 0: started") == 1 and out.count(": done (") == 2
    assert means(results / "three.json") == some_means(data)
    assert {file.name for file in (runs / "logs").iterdir()} == {"de-en-fold-0.log", "de-en-fold-1.log"}


def test_other_settings_are_refused(done, results):
    path, arguments, _, _, _ = done
    with pytest.raises(ValueError, match="was made with another settings"):
        run(table2, *arguments, "--path", path, "--epochs", "2")


def test_table3_has_the_other_pairs(home, results):
    run(table3, *options(home, "--folds", "0", "--pairs", "en-de", "so-en", "--systems", "SMT", "human translation",
                         "--name", "out"))  # fmt: skip
    header, rows = table((results / "out.md").read_text())
    assert header == ["System", "en-de AP@100", "en-de P@10", "so-en AP@100", "so-en P@10"]
    assert tuple(rows) == ("SMT", "human translation")
    text = (results / "out.md").read_text()
    assert "| so-en | 12 |" in text and "| 151 |" in text and "| – |" in text


def test_table4_compares_sources_of_knowledge(done, results, tmp_path):
    path, arguments, _, _, _ = done
    (tmp_path / "en-de.tsv").write_text("house\tHaus\ncat\tKatze\n", encoding="utf-8")
    run(table4, *arguments, "--path", path, "--folds", "0", "--name", "out",
        "--knowledge", f"list=lexicon:{tmp_path}/{{target}}-{{source}}.tsv", "--mixture", "2", "1")  # fmt: skip
    text = (results / "out.md").read_text()
    assert list(table(text)[1]) == [
        "SMT",
        "MART-PLB",
        "MART, parallel text",
        "MART, list",
        "MART, mixture",
    ]
    assert "| de-en | list | en-de.tsv | 2 | 2 |" in text
    assert "△ ▽ than MART, parallel text" in text


def test_knowledge_from_saved_tables_and_vectors(home, tmp_path):
    own = TranslationTable.from_dict({"wo": {"where": 1.0}}, "de", "en")
    own.save(tmp_path / "de-en.table")
    (tmp_path / "de.vec").write_text("2 2\nhaus 1 0\nkatze 0 1\n", encoding="utf-8")
    (tmp_path / "en.vec").write_text("2 2\nhouse 1 0.1\ncat 0.1 1\n", encoding="utf-8")
    args, _ = study.parse(table4.STUDY, [
        *map(str, options(home, "--pairs", "de-en")), "--knowledge", f"own={tmp_path}/{{pair}}.table",
        "--vectors", f"vectors={tmp_path}/{{source}}.vec,{tmp_path}/{{target}}.vec",
    ])  # fmt: skip
    with ExitStack() as stack:
        tables = table4.knowledge(study.prepare(args, stack)["de-en"])
    assert list(tables) == ["parallel text", "own", "vectors"] and tables["own"].fingerprint == own.fingerprint
    assert next(iter(tables["vectors"].translations("haus"))) == "house"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--knowledge", "list"], "--knowledge: expected NAME=FILE, found 'list'"),
        (["--knowledge", "mixture=x.tsv"], "the name 'mixture' is taken"),
        (["--knowledge", "a=none.tsv"], "none.tsv"),
        (["--knowledge", "a=en-de"], "expected a table for de-en, found en-de"),
        (["--vectors", "a=one.vec"], "--vectors: expected NAME=SOURCE,TARGET"),
        (["--mixture"], "--mixture: expected a table to mix with"),
    ],
)
def test_knowledge_that_cannot_be_used(home, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TranslationTable.from_dict({"where": {"wo": 1.0}}, "en", "de").save("en-de")
    with pytest.raises(SystemExit, match=message.replace("(", r"\(")):
        run(table4, *options(home, "--pairs", "de-en"), *arguments)


def test_figure5_draws_choices_of_layers(done, results):
    path, arguments, _, _, _ = done
    before = trained(path, "MART")
    run(figure5, *arguments, "--path", path, "--folds", "0", "--layers", "0;-3,-2", "--name", "out")
    text = (results / "out.md").read_text()
    assert list(table(text)[1]) == ["SMT", "MART in 0", "MART in -3 -2"] and "△ ▽ than MART in -3 -2" in text
    assert (results / "out.png").read_bytes().startswith(b"\x89PNG") and "](out.png)" in text
    assert trained(path, "MART") == before  # the usual layers are those of Table 2


def test_figure5_wants_layers(capsys):
    with pytest.raises(SystemExit):
        run(figure5, "--layers", "last")
    assert "expected layers such as -3,-2;-4, found 'last'" in capsys.readouterr().err


def test_figure4_measures_the_models_of_table2(done, results, monkeypatch):
    path, arguments, _, _, _ = done
    before = [trained(path, name) for name in ("encoder", "MART-PLB", "MART")]
    run(figure4, *arguments, "--path", path, "--rows", "4", "--name", "out")
    assert [trained(path, name) for name in ("encoder", "MART-PLB", "MART")] == before
    data = json.loads((results / "out.json").read_text())["results"]["de-en"]
    assert list(data) == ["encoder", "MART-PLB", "MART"] and len(data["MART"]["layer"]) == 5
    assert data["MART"]["gap"] != data["MART-PLB"]["gap"]
    assert (results / "out.png").exists()
    text = (results / "out.md").read_text()
    assert "trained and measured on fold 0 of 5" in text and "| de-en | 12 | 246 | 30 | about 113,000 |" in text


def test_figure4_without_training(done, home, results, tmp_path, monkeypatch):
    monkeypatch.setattr(MARTReRanker, "fit", None)
    models.reranker(models.bert(), TranslationTable.load("de-en")).save(tmp_path / "saved")
    run(figure4, *options(home, "--pairs", "de-en", "--untrained", "--rows", "4", "--name", "out"),
        "--model", tmp_path / "saved")  # fmt: skip
    data = json.loads((results / "out.json").read_text())["results"]["de-en"]
    assert list(data) == ["encoder", "MART-PLB, untrained", "MART, untrained", "saved"]
    assert data["saved"]["gap"] == data["MART, untrained"]["gap"]
    run(figure4, *options(home, "--pairs", "de-en", "--untrained", "--rows", "4", "--name", "all"), "--links", "all")
    every = json.loads((results / "all.json").read_text())["results"]["de-en"]
    assert every["encoder"]["n_translated"][0] > data["encoder"]["n_translated"][0]
    assert every["encoder"]["n_random"] == data["encoder"]["n_random"]


# ------------------------------------------------------------------------------------------------------ wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pairs", "german"], "--pairs: expected two languages such as de-en, found 'german'"),
        (["--table", "en-de"], "expected a table for de-en, found one for en-de"),
        (["--table", "de-en=missing.table"], "no translation table at 'missing.table'"),
        (["--data", "clef", "--home", "nowhere"], "nowhere"),
        (["--paper", "missing.tsv"], "missing.tsv"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_done(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message):
        run(table2, "--pairs", "de-en", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "cpu"], "--devices needs --path"),
        (["--no-report"], "--no-report needs --path"),
        (["--folds", "0", "5"], "--folds: expected numbers from 0 to 4, found 5"),
        (
            ["--devices", "cpu", "cuda:-1", "--path", "p"],
            "expected cpu, mps, cuda or cuda:N such as cuda:0, found 'cud",
        ),
        (["--devices", "cuda:1", "--path", "p"], "there is no cuda:1; CUDA_VISIBLE_DEVICES=0 names 1"),
        (["--device", "cuda:x"], "argument --device: expected cpu, mps, cuda or cuda:N such as cuda:0, found 'cuda:x'"),
        (["--depth", "0"], "argument --depth: expected a whole number >= 1, found '0'"),
        (["--epochs", "1.5"], "argument --epochs: expected a whole number >= 1, found '1.5'"),
        (["--validation-queries", "-1"], "argument --validation-queries: expected a whole number >= 0"),
    ],
)
def test_options_that_do_not_fit(arguments, message, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(SystemExit):
        run(table2, *arguments)
    assert message in capsys.readouterr().err


def test_a_device_that_is_not_there(tmp_path):
    with pytest.raises(SystemExit, match="error: device must be .* not 'cuda:99'"):
        run(table2, "--device", "cuda:99", "--path", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_no_locks_on_a_file_system(tmp_path, monkeypatch):
    def without_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    with claimed(tmp_path, [0]):
        monkeypatch.setattr("fcntl.flock", without_locks)
        with claimed(tmp_path, [0, 1]):
            pass


def test_fewer_topics_than_folds(home, monkeypatch):
    topics, groups = CLEF.get_topics, XQuADR.groups
    monkeypatch.setattr(CLEF, "get_topics", lambda self: topics(self).head(4))
    with pytest.raises(SystemExit, match="error: de-en: expected at least 5 topics, one for each fold, found 4"):
        run(table2, *options(home, "--pairs", "de-en"))
    monkeypatch.setattr(XQuADR, "groups", lambda self: groups(self) % 3)
    with pytest.raises(SystemExit, match="error: de-en: expected at least 5 groups of topics, .* found 3"):
        run(table2, "--pairs", "de-en")


def test_one_process_at_a_time_works_on_a_fold(done, results):
    path, arguments, _, _, _ = done
    with claimed(path / "de-en", [0]):
        with claimed(path / "de-en", [1]), claimed(path / "en-de", [0]), claimed(None, [0]):
            pass
        for module in (table2, figure4):
            with pytest.raises(SystemExit, match="error: another process works on fold 0 in .*de-en: wait for it, or"):
                run(module, *arguments, "--path", path)
    assert not results.exists()
    run(table2, *arguments, "--path", path, "--name", "out")
    assert (results / "out.md").exists()


def test_usual_pairs_and_the_tables_named_for_them():
    args, _ = study.parse(table2.STUDY, ["--data", "clef"])
    assert args.pairs == ["fr-en", "it-en", "de-en", "es-en", "so-en", "sw-en"]
    args, _ = study.parse(table3.STUDY, ["--data", "clef"])
    assert args.pairs == ["en-fr", "en-it", "en-de", "en-es"]
    for study_of_europe in (table4.STUDY, figure4.STUDY, figure5.STUDY):
        assert study.parse(study_of_europe, ["--data", "clef"])[0].pairs == ["fr-en", "it-en", "de-en", "es-en"]
    args, _ = study.parse(table2.STUDY, ["--data", "clef", "--pairs", "low-resource", "backward", "en-fr", "de-es"])
    assert args.pairs == ["so-en", "sw-en", "en-fr", "en-it", "en-de", "en-es", "de-es"]
    assert study.parse(table2.STUDY, ["--pair", "de-en"])[0].pairs == ["de-en"]
    for pairs in paper.pairs(*paper.GROUPS).values():
        assert {"-".join(languages(pair)) for pair in pairs} <= set(TranslationTable.bundled())


# ------------------------------------------------------------------------------------------------ the paper's settings


FOLD = Fold(0, ("1",), ("2",), ("3",), 42)


def prepared(home, *more, of=table2):
    """The setting of a pair with some options."""
    args, _ = study.parse(of.STUDY, [*map(str, options(home, "--pairs", "de-en")), *map(str, more)])
    with ExitStack() as stack:
        return study.prepare(args, stack)["de-en"]


def test_the_papers_setting_reaches_what_is_run(home):
    setting = prepared(home, "--preset", "paper", "--k1", "1.2")
    smt, rank = setting.translator, setting.ranker("MART", FOLD)
    assert (smt.relate, smt.stop) == (False, True) and (setting.bm25.k1, setting.bm25.b) == (1.2, 0.4)
    assert (rank.relate, rank.threshold, rank.translation_init, rank.identity) == (False, 0.0, "random", "always")
    assert rank.training.max_grad_norm is None and rank.training.loss == "pairwise-cross-entropy"
    assert rank.training.learning_rate == 1e-3  # named, so that it counts
    deep = setting.pipeline(rank, FOLD)[0]
    assert deep.deep[1].k1 == 1.2 and deep.deep[0] is smt


def test_all_options_reach_what_is_run(home, tmp_path):
    (tmp_path / "stop.txt").write_text("the\nder\n", encoding="utf-8")
    setting = prepared(home, "--no-relate", "--smt-stop", "--b", "0.7", "--threshold", "0.2", "--stop",
                       tmp_path / "stop.txt", "--identity", "never", "--loss", "pairwise-softmax",
                       "--max-grad-norm", "2")  # fmt: skip
    rank = setting.ranker("MART", FOLD)
    assert (rank.relate, rank.threshold, rank.stop, rank.identity) == (False, 0.2, ("der", "the"), "never")
    assert (rank.training.loss, rank.training.max_grad_norm, setting.bm25.b) == ("pairwise-softmax", 2.0, 0.7)
    changed = {"relate": False, "smt_stop": True, "b": 0.7}
    assert setting.first().settings == {"table": setting.table.fingerprint, **changed}
    assert setting.human().settings == {"b": 0.7}
    more = {"threshold": 0.2, "stop": ["der", "the"], "identity": "never"}
    more |= {"loss": "pairwise-softmax", "max_grad_norm": 2.0}
    usual, made = prepared(home).mart("MART").settings, setting.mart("MART").settings
    assert {name: value for name, value in made.items() if name not in usual} == {**changed, **more}


def test_without_options_all_is_as_the_package_does_it(home):
    """What a re-ranker does by default is what is measured by default."""
    rank, own, usual = prepared(home).ranker("MART", FOLD), MARTReRanker(models.bert(), "de-en"), TrainingOptions()
    for name in ("mat_layers", "pooling", "translation_init", "relate", "stop", "identity", "threshold"):
        assert getattr(rank, name) == getattr(own, name)
    for name in ("loss", "max_grad_norm", "batch_size", "accumulation", "learning_rate", "epochs", "patience"):
        assert getattr(study.parse(table2.STUDY, [])[0], name) == getattr(usual, name)


def test_the_papers_setting_is_complete():
    """Whatever decides what is learned, so that a change of our defaults does not change the paper's."""
    assert {*ranking._LEARNING, *ranking._LATER} - {"train_size", "bf16", "seed"} <= set(paper.PRESET)
    assert study.parse(table4.STUDY, ["--preset", "paper"])[0].uniform
    assert study.parse(table4.STUDY, ["--preset", "paper", "--no-uniform"])[0].uniform is False
    assert study.parse(figure4.STUDY, ["--preset", "paper"])[0].links == "all"


def test_panlex_without_its_qualities(home, tmp_path):
    (tmp_path / "panlex.tsv").write_text("source\ttarget\tquality\nhaus\thouse\t9\nhaus\thome\t1\n", encoding="utf-8")
    (tmp_path / "own.tsv").write_text("source\ttarget\tprob\nhaus\thouse\t0.9\nhaus\thome\t0.1\n", encoding="utf-8")
    given = ["--knowledge", f"panlex=panlex:{tmp_path}/panlex.tsv", f"own={tmp_path}/own.tsv"]
    for more, first in (([], 0.9), (["--uniform"], 0.5)):
        tables = table4.knowledge(prepared(home, *given, *more, of=table4))
        assert tables["panlex"].prob("house", "haus") == pytest.approx(first)
        assert tables["own"].prob("house", "haus") == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--b", "1.5"], "argument --b: expected a number from 0 to 1, found '1.5'"),
        (["--k1", "nan"], "argument --k1: expected a number >= 0, found 'nan'"),
        (["--max-grad-norm", "0"], "argument --max-grad-norm: expected a number >= "),
        (["--stop", "nltk.txt"], "expected usual, none, or a file with a word a line: nltk.txt: "),
        (["--data", "xquad-r", "--pairs", "low-resource"], "--pairs: XQuAD-R sentences has no pair of these"),
        (["--preset", "best"], "argument --preset: invalid choice: 'best'"),
    ],
)
def test_settings_that_do_not_fit(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        run(table2, *arguments)
    assert message in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------- values of the paper


def values(tmp_path, text):
    (tmp_path / "paper.tsv").write_text(text, encoding="utf-8")
    return paper.read_values(tmp_path / "paper.tsv", "table2")


HEAD = "table\tpair\tsystem\tmeasure\tvalue\n"


def test_values_of_the_paper_stand_beside_ours(done, results, tmp_path):
    path, arguments, text, _, _ = done
    rows = "table2\tde-en\tMART\tAP@100\t0.9\ntable3\tde-en\tMART\tAP@100\t0.8\ntable2\tde-en\tMART-X\tAP@100\t0.7\n"
    (tmp_path / "paper.tsv").write_text(HEAD + rows, encoding="utf-8")
    run(table2, *arguments, "--path", path, "--paper", tmp_path / "paper.tsv", "--name", "out")
    text = (results / "out.md").read_text()
    header, cells = table(text)
    assert header == ["System", "de-en AP@100", "paper", "de-en P@10"]
    assert cells["MART"][1] == "0.900" and cells["SMT"][1] == "" and "- AP@100 of MART-X for de-en" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ".*expected the columns .*, found"),
        ("table\tpair\n", "line 1: expected the columns"),
        (HEAD + "table2\tde-en\tMART\tAP@100\n", "line 2: expected 5 columns, found 4"),
        (HEAD + "table2\tde-en\tMART\tAP@100\t43.1\n", "line 2: expected a value from 0 to 1, found '43.1'"),
        (HEAD + 2 * "table2\tde-en\tMART\tAP@100\t0.4\n", "line 3: AP@100 of 'MART' for de-en is there twice"),
    ],
)
def test_malformed_values(tmp_path, text, message):
    with pytest.raises(ValueError, match="paper.tsv.*" + message):
        values(tmp_path, text)


def test_values_of_other_systems_of_writing_lines(tmp_path):
    text = "\ufeff" + HEAD + "\ntable2\tde-en\tMART\tAP@100\t0.5\n"
    assert values(tmp_path, text.replace("\n", "\r\n")) == {("de-en", "MART", "AP@100"): 0.5}


def test_what_the_paper_states():
    assert paper.stated("clef", "de-en") == (246, 113_000) and paper.stated("clef", "sw-en") == (151, 113_000)
    assert paper.stated("clef", "en-de") is None and paper.stated("xquad-r", "de-en") is None


# ------------------------------------------------------------------------------------------------------ several devices

JOB = """
import argparse, pathlib, sys, time
parser = argparse.ArgumentParser()
for name in ("--pairs", "--device", "--out", "--wait"):
    parser.add_argument(name)
parser.add_argument("--folds", type=int)
args = parser.parse_args()
out = pathlib.Path(args.out)
(out / f"{args.pairs}-{args.folds}.started").write_text(args.device)
print("epoch 1\\repoch 2", end="")
time.sleep(float(args.wait))
if args.folds == 1:
    sys.exit("no memory left")
(out / f"{args.pairs}-{args.folds}.done").touch()
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    (tmp_path / "a_job.py").write_text(JOB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_jobs_share_devices_and_a_failed_one_loses_no_other(job, tmp_path, capsys):
    jobs = [parallel.Job(pair, fold) for pair in ("de-en", "en-de") for fold in (0, 1)]
    failures = parallel.run("a_job", ["--out", str(job), "--wait", "0.5"], jobs, ["cpu", "cuda:3"], tmp_path, every=0.2)
    assert {str(failure.job) for failure in failures} == {"de-en fold 1", "en-de fold 1"}
    assert failures[0].reason == "exit status 1" and "no memory left" in failures[0].log.read_text()
    assert {file.name for file in job.glob("*.done")} == {"de-en-0.done", "en-de-0.done"}
    assert {file.read_text() for file in job.glob("*.started")} == {"cpu", "cuda"}
    out = capsys.readouterr().out
    assert "cpu de-en fold 0: started, 3 waiting" in out and ": epoch 2\n" in out
    assert "FAILED, exit status 1, see " in out and "no memory left" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_all_processes(job, tmp_path, number):
    code = (
        "import pathlib; from experiments import parallel; "
        f"parallel.run('a_job', ['--out', {str(job)!r}, '--wait', '60'], [parallel.Job('de-en', i) for i in range(3)], "
        f"['cpu', 'cpu'], pathlib.Path({str(tmp_path)!r}))"
    )
    with open(tmp_path / "parent.log", "wb") as log:
        parent = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
            # A shell lets jobs in the background ignore SIGINT, which processes inherit.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
    deadline = time.monotonic() + 30
    while len(list(job.glob("*.started"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(list(job.glob("*.started"))) == 2
    os.kill(parent.pid, number)
    assert parent.wait(20) != 0
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(job) not in left


def test_failures_are_listed_and_no_report_is_written(home, results, tmp_path, monkeypatch):
    failure = parallel.Failure(parallel.Job("de-en", 0), "killed by signal 9 (out of memory?)", tmp_path / "log")
    monkeypatch.setattr(parallel, "run", lambda *args: [failure])
    with pytest.raises(SystemExit, match=r"1 of 5 jobs failed.*\n  de-en fold 0: killed by signal 9"):
        run(table2, *options(home, "--pairs", "de-en", "--path", tmp_path / "runs", "--devices", "cpu"))
    assert not results.exists()


def test_a_process_sees_only_its_gpu():
    assert parallel._visible("cuda:1", {}) == ({"CUDA_VISIBLE_DEVICES": "1"}, "cuda")
    assert parallel._visible("cuda:1", {"CUDA_VISIBLE_DEVICES": "4,6"}) == ({"CUDA_VISIBLE_DEVICES": "6"}, "cuda")
    assert parallel._visible("cpu", {"CUDA_VISIBLE_DEVICES": "4"}) == ({}, "cpu")
    with pytest.raises(ValueError, match="there is no cuda:2; CUDA_VISIBLE_DEVICES=4,6 names 2"):
        parallel._visible("cuda:2", {"CUDA_VISIBLE_DEVICES": "4,6"})


# ---------------------------------------------------------------------------------------------------------- small parts


def found(qids, number):
    rows = [{"qid": qid, "query": "q", "docno": f"d{i}", "score": float(-i)} for qid in qids for i in range(number)]
    return pt.model.add_ranks(pd.DataFrame(rows))


def test_negatives_come_from_deeper_than_what_is_reranked():
    first, deep = (pt.apply.generic(lambda inp, n=n: found(inp["qid"], n)) for n in (2, 5))
    topics = pd.DataFrame({"qid": ["a", "b", "c"], "query": "q"})
    counts = Deeper(first, deep, ["b"])(topics).groupby("qid").size().to_dict()
    assert counts == {"a": 2, "b": 5, "c": 2}
    assert len(Deeper(first, deep, ["a", "b", "c"])(topics)) == 15 and len(Deeper(first, deep, [])(topics)) == 6


def test_what_was_not_reranked_follows_below():
    rest = RestOf(pt.apply.generic(lambda inp: found(inp["qid"], 3)))
    ranked = found(["a"], 2).assign(score=[1.0, 9.0])
    out = rest(pt.model.add_ranks(ranked.drop(columns="rank"))).sort_values("rank")
    assert out["docno"].tolist() == ["d1", "d0", "d2"] and out["score"].is_monotonic_decreasing
    assert len(rest(found(["a"], 2).iloc[:0])) == 0


def test_marks_show_what_differs_significantly():
    qids = [str(i) for i in range(20)]
    topics = pd.DataFrame({"qid": qids, "query": "q"})
    qrels = pd.DataFrame({"qid": qids, "docno": "d0", "label": 1})

    def run_of(ranks):
        rows = [{"qid": qid, "docno": f"d{(i + rank) % 12}", "score": float(-i), "rank": i}
                for qid, rank in zip(qids, ranks, strict=True) for i in range(12)]  # fmt: skip
        return pd.DataFrame(rows)

    runs = {"SMT": run_of([6] * 18 + [5, 7]), "MART": run_of([0] * 20), "other": run_of([10, 1] * 10)}
    outcome = Outcome({"de-en": CrossValidation(runs, topics, qrels, ())}, ("SMT", "MART", "none"))
    _, rows = table(outcome.markdown())
    assert rows["MART"][0] == "**1.000** ▲" and rows["SMT"][0].endswith(" ▽") and rows["other"][0].endswith("▽")
    assert "▲ ▼ than SMT, △ ▽ than MART." in outcome.markdown()
    assert "Significantly" not in Outcome({"de-en": outcome.results["de-en"]}).markdown()
