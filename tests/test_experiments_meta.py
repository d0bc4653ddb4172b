"""The driver of the MAML-Align paper's tables and figures, on XQuAD-R and STS17 with a tiny encoder."""

import json

import models
import pandas as pd
import pytest

from experiments import meta, meta_systems, report, translated
from experiments.options import parse
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.datasets.graded_pairs import PairCorpus
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.tasks import TRANSFER_MODES

pytestmark = pytest.mark.usefixtures("one_thread")

FAST = ["--folds", "0", "--dev", "0", "--sts", "off", "--device", "cpu", "--max-length", "8", "8", "--languages", "ar",
        "de", "el", "hi", "--set", "inner_steps=1", "--set", "k_shot=2", "--set", "q_query=2"]  # fmt: skip


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Where reports are written."""
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def options(*given):
    return parse(meta.arguments(), [*map(str, given)], meta.PRESETS)


def run(*given):
    meta.main(["--encoder", str(models.bert()), "--name", "out", *FAST, *map(str, given)])


def values(results):
    return json.loads((results / "out.json").read_text())["results"]["systems"]


# ------------------------------------------------------------------------------------------------------------- recipes


def test_the_papers_settings_are_those_of_its_preset():
    args = options("--preset", "paper")
    assert (args.encoder, args.doc_text) == ("sentence-transformers/paraphrase-multilingual-mpnet-base-v2",
                                             "sentence+context")  # fmt: skip
    made = meta_systems.recipes(args)
    assert made["maml"].config == MetaConfig.paper("maml") and made["maml-align"].config == MetaConfig.paper()
    assert made["fine-tune"].config == MetaConfig.paper("fine-tune")
    assert options("--preset", "paper", "--encoder", "e5-small").encoder == "e5-small"


def test_ours_are_as_they_were():
    made = meta_systems.recipes(options())
    ours = MetaConfig(max_length=(64, 96), max_steps=15)
    assert made["maml"].config == ours.replace(transfer="mono-bi") and made["maml-align"].config == ours
    assert made["fine-tune"].config == ours.replace(transfer="mono-bi", loss="triplet")
    assert made["few-shot"].config == ours.replace(transfer="mono-bi", meta_batch_size=1, max_steps=60)


def test_few_steps_reach_the_tasks_of_the_development_set():
    config = meta_systems.recipes(options("--preset", "paper", "--steps", 9))["maml"].config
    assert config.n_tasks == (28, 8, 1000) and config.max_steps == 9  # 7 and 2 meta-steps of 4 tasks
    named = options("--preset", "paper", "--steps", 9, "--set", "n_tasks=[9, 9, 9]")
    assert meta_systems.recipes(named)["maml"].config.n_tasks == (9, 9, 9)


def test_figure_4_has_fine_tuning_and_a_mode_of_its_own_for_trans():
    found = meta.figure_systems(options("--figure", 4))
    modes = [mode for mode in TRANSFER_MODES if mode != "mono-bi-multi"]
    assert set(found) == {"zero-shot", "MAML-Align mono-bi-multi", *(f"{of} {mode}" for of in ("MAML", "Fine-tune")
                                                                     for mode in modes)}  # fmt: skip
    trans = found["MAML trans"].recipe.config
    assert trans.update_on_valid and trans.n_tasks == (48, 12, 1000) and trans.max_steps == 15
    assert not found["MAML mixt"].recipe.config.update_on_valid
    assert found["Fine-tune mixt"].recipe.config.loss == "triplet" and found["MAML mixt"].recipe.config.loss == "mnrl"


@pytest.mark.parametrize(("figure", "name", "count"), [(5, "query_sampling", 3), (6, "negatives", 4)])
def test_figures_5_and_6_have_maml_align(figure, name, count):
    found = meta.figure_systems(options("--figure", figure))
    by_model = {model: [getattr(system.recipe.config, name) for label, system in found.items() if label.startswith(
        f"{model} ")] for model in ("MAML", "MAML-Align")}  # fmt: skip
    assert by_model["MAML"] == by_model["MAML-Align"] and len(set(by_model["MAML"])) == count
    margins = {system.recipe.config.triplet_margin for label, system in found.items() if label != "zero-shot"}
    assert margins == ({0.05} if figure == 6 else {1.0})
    paper = meta.figure_systems(options("--figure", figure, "--preset", "paper"))
    assert {system.recipe.config.triplet_margin for system in paper.values()} == {1.0}  # it is the loss's


def test_modes_that_graded_pairs_do_not_have():
    args = options("--preset", "paper", "--sts", "train")
    assert {
        name: system.recipe.config.transfer for name, system in meta.sts_systems(args).items() if name != "zero-shot"
    } == {"fine-tune": "mono-bi", "maml": "mono-bi", "maml-align": "mono-bi-multi"}


# ---------------------------------------------------------------------------------------------------------------- runs


def test_trans_is_another_model_than_mono_bi(results):
    run("--figure", 4, "--systems", "mono-bi", "trans", "--steps", 3)
    found = {name: system["folds"]["multi"] for name, system in values(results).items()}
    assert len(found) == 5 and found["MAML trans"] != found["MAML mono-bi"]
    assert found["Fine-tune trans"] != found["Fine-tune mono-bi"] != found["MAML mono-bi"]
    assert (results / "out.png").exists()


# ------------------------------------------------------------------------------------------------------------- T-Train


def write(path, frame):
    lines = [frame.columns, *frame.itertuples(index=False)]
    text = "".join("\t".join(" ".join(str(value).split()) for value in line) + "\n" for line in lines)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_corpus(folder, corpus):
    for name, frame in (("topics", corpus.topics), ("docs", corpus.docs), ("qrels", corpus.qrels)):
        write(folder / f"{name}.tsv", frame)
    return folder


def test_training_on_translations(results, tmp_path):
    corpus = MultilingualCorpus.xquad_r(["de", "tr"])
    folder = write_corpus(tmp_path / "translations", corpus)
    args = options("--translated", folder)
    config = meta_systems.recipes(args)["t-train-maml"].config
    assert config.transfer == "de_de-de_de|tr_tr-tr_tr"
    bench = meta_systems.Bench(args)
    left = translated.without_groups(translated.corpus(folder), (bench.fold(0).valid, bench.fold(0).test))
    assert len(left.groups) == 28 and set(left.groups) == set(bench.fold(0).train.groups)
    run("--systems", "zero-shot", "t-train-maml", "t-train-fine-tune", "--translated", folder, "--steps", 2)
    found = {name: system["folds"]["multi"] for name, system in values(results).items()}
    assert len({tuple(folds) for folds in found.values()}) == 3
    assert str(tmp_path) not in (results / "out.json").read_text()


def test_training_on_translated_pairs(tmp_path):
    pairs = PairCorpus.sts17(["en-en"]).pairs
    folder = tmp_path / "translations"
    write(folder / "pairs.tsv", pairs.drop(columns=["track", "row"]))
    args = options("--translated", folder, "--sts", "train", "--systems", "t-train-maml")
    (system,) = meta.sts_systems(args).values()
    assert system.recipe.translated and system.recipe.pairs and system.recipe.config.transfer == "en_en-en_en"
    fold = meta_systems.Bench(args).pair_fold(0)
    left = translated.without_sentences(translated.pairs(folder), (fold.valid, fold.test))
    assert len(left) == 150


def test_translations_that_cannot_be_used(tmp_path, capsys):
    corpus = MultilingualCorpus.xquad_r(["de"])
    folder = write_corpus(tmp_path / "one", corpus)
    with pytest.raises(SystemExit, match="--translated: all articles are those of development and test sets"):
        translated.without_groups(corpus, [corpus])
    with pytest.raises(SystemExit, match="--translated: all pairs have a sentence of development and test sets"):
        translated.without_sentences(PairCorpus.sts17(["en-en"]), [PairCorpus.sts17(["en-en"])])
    write(folder / "docs.tsv", corpus.docs.drop(columns="group"))
    with pytest.raises(SystemExit, match=r"--translated: .*docs.tsv: expected the column group, found docno, text"):
        translated.corpus(folder)
    write(folder / "docs.tsv", corpus.docs.assign(docno="a"))
    with pytest.raises(SystemExit, match="--translated: .*docno"):
        translated.corpus(folder)
    write(folder / "pairs.tsv", pd.DataFrame({"pair_id": ["a"]}))
    for name, message in ((folder, "sentence1"), (tmp_path / "none", "pairs.tsv")):
        with pytest.raises(SystemExit, match=f"--translated: .*{message}"):
            translated.pairs(name)
    with pytest.raises(SystemExit):
        meta.main(["--systems", "t-train-maml"])
    assert "--systems: t-train needs --translated DIR" in capsys.readouterr().err
