"""Splits, cross-validation on disk, and tables of results."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, P
from scipy import stats
from statsmodels.stats.multitest import multipletests

from pyterrier_mart.datasets.xquad_r import XQuADR, load
from pyterrier_mart.evaluation import bar_plot, cross_validate, paired_test, split, to_latex, to_markdown

DATA = XQuADR("de", "en", paragraphs=True)
TOPICS = DATA.get_topics().iloc[::20].reset_index(drop=True)
QRELS = DATA.get_qrels()
RELEVANT = dict(zip(QRELS["qid"], QRELS["docno"], strict=True))
ARTICLES = {f"de-{question.id}": question.article for question in load("de").questions}


def number(*values):
    """A number from 0 to 1 that looks random."""
    return int(hashlib.sha256(repr(values).encode()).hexdigest()[:13], 16) / 16**13


@cache
def candidates(qid):
    others = [f"en-{int(number(qid, i) * 240):03d}" for i in range(9)]
    return [(docno, number(qid, docno)) for docno in sorted({RELEVANT[qid], *others})]


class FirstStage(pt.Transformer):
    """Finds the relevant paragraph and nine others, in a poor order; nothing for the queries it leaves out."""

    def __init__(self, leave_out=()):
        self.leave_out = leave_out

    def transform(self, inp):
        rows = []
        for row in inp.drop(columns=["docno", "score", "rank"], errors="ignore").to_dict("records"):
            found = candidates(row["qid"]) if row["qid"] not in self.leave_out else ()
            rows += [{**row, "docno": docno, "score": score} for docno, score in found]
        columns = [*inp.columns, "docno", "score"]
        return pt.model.add_ranks(pd.DataFrame(rows, columns=None if rows else columns))


class Toy(pt.Estimator):
    """Learns how much to trust a hint at the relevant paragraph, and remembers what it has seen."""

    fits = []

    def __init__(self, seed=0):
        self.seed = seed
        self.weight = None

    def fit(self, topics, qrels, valid_topics=None, valid_qrels=None):
        Toy.fits.append(self)
        self.seen = {
            "train": tuple(dict.fromkeys(topics["qid"])),
            "train_qrels": tuple(dict.fromkeys(qrels["qid"])),
            "valid": tuple(dict.fromkeys(valid_topics["qid"])),
            "valid_qrels": tuple(dict.fromkeys(valid_qrels["qid"])),
        }
        self.weight = float(number(self.seed, self.seen))
        return self

    def transform(self, inp):
        assert self.weight is not None, "not trained"
        self.tested = tuple(dict.fromkeys(inp["qid"]))
        hint = inp["docno"] == inp["qid"].map(RELEVANT)
        return pt.model.add_ranks(inp.assign(score=(inp["score"] + self.weight * hint).astype("float32")))


@pytest.fixture(autouse=True)
def no_fits():
    Toy.fits = []


def ranker(fold):
    return FirstStage() >> Toy(fold.seed)


@pytest.fixture(scope="module")
def both():
    """Results of an untrained system and a trained one."""
    return cross_validate({"First": FirstStage(), "Toy": ranker}, TOPICS, QRELS)


@pytest.fixture(scope="module")
def original(both, tmp_path_factory):
    path = tmp_path_factory.mktemp("finished")
    cross_validate(ranker, TOPICS, QRELS, path=path)
    return path


@pytest.fixture
def finished(original, tmp_path):
    """A directory with all folds of the trained system, to do harm to."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    Toy.fits = []
    return tmp_path


def mapping(fold):
    return {"train": fold.train, "valid": fold.valid, "test": fold.test}


# ---------------------------------------------------------------------------------------------------------- splits


def test_split_is_60_20_20():
    folds = split(DATA.get_topics())
    assert [len(f.train) for f in folds] == [714] * 5 and [len(f.valid) for f in folds] == [238] * 5
    assert [f.index for f in folds] == [0, 1, 2, 3, 4] and [f.seed for f in folds] == [42, 43, 44, 45, 46]
    everything = sorted(DATA.get_topics()["qid"])
    assert sorted(qid for f in folds for qid in f.test) == everything
    for i, fold in enumerate(folds):
        assert sorted(fold.train + fold.valid + fold.test) == everything
        assert fold.valid == folds[(i + 1) % 5].test


def test_split_depends_on_seed_and_not_on_order():
    folds = split(TOPICS)
    assert split(TOPICS.sample(frac=1, random_state=3)) == folds
    assert split(TOPICS[["query", "qid"]].set_index("query", drop=False)) == folds
    assert {f.test for f in split(TOPICS, seed=1)}.isdisjoint({f.test for f in folds})
    # the same split on every machine and in every version
    digest = hashlib.sha256(json.dumps([mapping(f) for f in folds]).encode()).hexdigest()
    assert digest[:16] == "95ee20e275ac687d"


@pytest.mark.parametrize("folds", [3, 4, 7])
def test_split_into_other_numbers(folds):
    sizes = [len(f.test) for f in split(TOPICS, folds)]
    assert len(sizes) == folds and sum(sizes) == len(TOPICS) and max(sizes) - min(sizes) <= 1
    assert len(split(TOPICS.head(3), 3)[0].train) == 1


def test_split_keeps_groups_together():
    topics = DATA.get_topics()
    topics["article"] = topics["qid"].map(ARTICLES)
    folds = split(topics, groups="article")
    where = [{ARTICLES[qid] for qid in f.test} for f in folds]
    assert sum(map(len, where)) == len(set(ARTICLES.values())) == len(set().union(*where))
    sizes = [len(f.test) for f in folds]
    assert sum(sizes) == 1190 and max(sizes) - min(sizes) <= 24  # an article has about 25 questions
    series = pd.Series(ARTICLES).sample(frac=1, random_state=1)
    assert split(topics.sample(frac=1, random_state=2), groups=series) == folds
    assert split(topics) != folds


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 2}, "folds"),
        ({"folds": 61}, "no more folds than queries"),
        ({"groups": "article"}, "groups.*'article'|article"),
        ({"groups": pd.Series({"de-x": 1})}, "group for every qid"),
        ({"topics": pd.concat([TOPICS, TOPICS[5:6]])}, TOPICS["qid"][5]),
    ],
)
def test_split_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        split(**{"topics": TOPICS, **change})


# ------------------------------------------------------------------------------------------------------ validation


def test_every_fold_sees_its_own_queries():
    cross_validate(ranker, TOPICS, QRELS)
    assert len(Toy.fits) == 5
    for fold, toy in zip(split(TOPICS), Toy.fits, strict=True):
        assert toy.seed == fold.seed and toy.tested == fold.test
        assert toy.seen["train"] == toy.seen["train_qrels"] == fold.train
        assert toy.seen["valid"] == toy.seen["valid_qrels"] == fold.valid
        assert not set(toy.tested) & {*fold.train, *fold.valid}


def test_bare_estimators_and_plain_transformers():
    results = cross_validate({"A": FirstStage(), "B": lambda fold: FirstStage()}, TOPICS, QRELS)
    assert not Toy.fits and results.runs["A"].equals(results.runs["B"])

    class Alone(Toy):
        def transform(self, inp):
            return super().transform(FirstStage()(inp))

    trained = Toy()
    trained.weight = 1.0
    cross_validate(pt.apply.generic((FirstStage() >> trained).transform), TOPICS, QRELS)
    assert not Toy.fits
    cross_validate(lambda fold: Alone(), TOPICS, QRELS, only=[0])
    cross_validate(lambda fold: FirstStage() >> Toy() >> pt.apply.generic(lambda x: x) % 5, TOPICS, QRELS, only=[0])
    assert len(Toy.fits) == 2


def test_results_do_not_depend_on_the_order_of_rows(both, finished):
    shuffled = TOPICS.sample(frac=1, random_state=1), QRELS.sample(frac=1, random_state=1)[["label", "docno", "qid"]]
    again = cross_validate(ranker, *shuffled)
    assert len(Toy.fits) == 5 and again.runs["pipeline"].equals(both.runs["Toy"])
    cross_validate(ranker, *shuffled, path=finished)  # nor are the topics taken for other ones
    assert len(Toy.fits) == 5


def test_what_comes_back(both):
    results = both
    assert results.systems == ("First", "Toy") and results.folds == tuple(split(TOPICS))
    assert list(results.topics["qid"]) == sorted(TOPICS["qid"]) and set(results.qrels["qid"]) == set(TOPICS["qid"])
    for run in results.runs.values():
        assert list(run.columns) == ["qid", "docno", "score", "rank", "query"]
        assert dict(zip(run["qid"], run["query"], strict=True)) == dict(TOPICS.to_numpy())
        assert run["score"].dtype == "float64"


def test_metrics_are_those_of_experiment(both):
    """The union of the folds is measured as if one system had answered all topics, from memory."""
    results = both
    tested = []
    for fold in split(TOPICS):
        toy = Toy(fold.seed)
        frames = [frame[frame["qid"].isin(qids)] for qids in (fold.train, fold.valid) for frame in (TOPICS, QRELS)]
        toy.fit(*(frame.sort_values("qid") for frame in frames))
        tested.append(toy(FirstStage()(TOPICS[TOPICS["qid"].isin(fold.test)])))
    expected = pt.Experiment(
        [FirstStage(), pd.concat(tested)], TOPICS, QRELS, [AP @ 100, P @ 10], names=["First", "Toy"], baseline=0
    )
    expected.loc[1, "P@10 p-value"] = 1.0  # equal values, for which PyTerrier has none
    found = results.experiment(baseline="First")
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12, check_like=True)
    corrected = results.experiment(["AP@100", "P_10"], baseline=0, correction="holm")
    pd.testing.assert_frame_equal(corrected[list(found)], found)
    assert "AP@100 p-value corrected" in corrected
    assert 0 < found["AP@100"][0] < 1 and found["AP@100"][0] != found["AP@100"][1]
    values = results.per_query("AP@100")
    assert list(values.columns) == ["name", "qid", "measure", "value"] and len(values) == 2 * len(TOPICS)
    assert values.groupby("name")["value"].mean().to_dict() == pytest.approx(
        dict(zip(expected["name"], expected["AP@100"], strict=True))
    )


def test_unknown_baseline_or_measure(both):
    with pytest.raises(ValueError, match="baseline must be one of First, Toy, not 'Other'"):
        both.experiment(baseline="Other")
    with pytest.raises(ValueError, match="APP@100"):
        both.experiment(["APP@100"])


def test_topics_without_results_or_judgments(tmp_path):
    folds = split(TOPICS)
    silent = {*folds[0].test, folds[1].test[0]}
    results = cross_validate(FirstStage(silent), TOPICS, QRELS, path=tmp_path)
    run = results.runs["pipeline"]
    assert run.equals(cross_validate(FirstStage(silent), TOPICS, QRELS, path=tmp_path).runs["pipeline"])
    assert set(run["qid"]) == set(TOPICS["qid"]) - silent
    values = results.per_query("AP@100").set_index("qid")["value"]
    assert len(values) == len(TOPICS) and set(values[list(silent)]) == {0.0}
    assert results.experiment("AP@100")["AP@100"][0] == pytest.approx(values.mean())
    judged = QRELS[~QRELS["qid"].isin(folds[2].test)]
    results = cross_validate(FirstStage(), TOPICS, judged)
    assert len(results.per_query("AP@100")) == len(TOPICS) - len(folds[2].test)


# ----------------------------------------------------------------------------------------------- sizes of training


def test_smaller_training_sets_are_nested():
    seen = {}
    for size in (5, 10, 25, None):
        cross_validate(ranker, TOPICS, QRELS, train_size=size, only=[1])
        seen[size] = set(Toy.fits[-1].seen["train"])
        assert Toy.fits[-1].seen["train_qrels"] == Toy.fits[-1].seen["train"]
    assert [len(seen[size]) for size in (5, 10, 25)] == [5, 10, 25]
    assert seen[5] < seen[10] < seen[25] < seen[None]
    assert len({toy.seen["valid"] for toy in Toy.fits}) == len({toy.tested for toy in Toy.fits}) == 1


def test_training_queries_have_relevant_documents():
    fold = split(TOPICS)[0]
    judged = set(fold.train[::3])
    labels = QRELS.assign(label=[1 if qid in judged or qid not in fold.train else 0 for qid in QRELS["qid"]])
    cross_validate(ranker, TOPICS, labels, train_size=10, only=[0])
    assert set(Toy.fits[0].seen["train"]) <= judged


def test_some_folds_only(tmp_path):
    folds = split(TOPICS)
    results = cross_validate(ranker, TOPICS, QRELS, only=[2, 0], path=tmp_path)
    tested = {*folds[0].test, *folds[2].test}
    assert results.folds == (folds[0], folds[2]) and len(Toy.fits) == 2
    assert set(results.runs["pipeline"]["qid"]) == set(results.topics["qid"]) == set(results.qrels["qid"]) == tested
    assert len(results.per_query("AP@100")) == len(tested)
    everything = cross_validate(ranker, TOPICS, QRELS, path=tmp_path)
    assert len(Toy.fits) == 5 and len(everything.topics) == len(TOPICS)


# --------------------------------------------------------------------------------------------------------- on disk


def test_files(tmp_path):
    results = cross_validate(
        {"My System (1)": ranker, "First": FirstStage()},
        TOPICS,
        QRELS,
        path=tmp_path,
        settings={"My System (1)": {"epochs": 3}},
    )
    names = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file())
    ends = [f"fold-{i}{end}" for i in range(5) for end in (".json", ".res.gz")]
    assert names == sorted([f"{slug}/{end}" for slug in ("my-system-1", "first") for end in ends] + ["folds.json"])
    fold = split(TOPICS)[3]
    content = json.loads((tmp_path / "my-system-1" / "fold-3.json").read_text())
    assert content["system"] == "My System (1)" and content["fold"] == 3 and content["seed"] == 45
    assert content["queries"] == {key: list(qids) for key, qids in mapping(fold).items()}
    assert content["settings"] == {"epochs": 3} and content["trained"]
    assert content["seconds"]["train"] > 0 and content["seconds"]["test"] > 0
    assert {"python", "pyterrier_mart", "pyterrier"} <= set(content["versions"])
    only = results.per_query().query("name == 'My System (1)'")
    means = only[only["qid"].isin(fold.test)].groupby("measure")["value"].mean().to_dict()
    assert content["metrics"] == pytest.approx(means)
    assert not json.loads((tmp_path / "first" / "fold-3.json").read_text())["trained"]
    assert json.loads((tmp_path / "folds.json").read_text())["split"][3]["test"] == list(fold.test)


def test_runs_are_trec_runs_in_full_precision(tmp_path):
    ugly = ["NA", 'quo"te', "näh", "1"]
    scores = [0.1 + 0.2, 1 / 3, -1e-17 / 3, np.nextafter(5.0, 6.0)]

    def rows(inp):
        parts = [inp[["qid"]].assign(docno=d, score=s + number(d)) for d, s in zip(ugly, scores, strict=True)]
        return pt.model.add_ranks(pd.concat(parts))

    results = cross_validate(pt.apply.generic(rows), TOPICS, QRELS, path=tmp_path)
    expected = rows(TOPICS).sort_values(["qid", "rank"], ignore_index=True)
    found = results.runs["pipeline"].sort_values(["qid", "rank"], ignore_index=True)
    assert found["score"].tolist() == expected["score"].tolist() and list(found["docno"]) == list(expected["docno"])
    file = tmp_path / "pipeline" / "fold-0.res.gz"
    line = gzip.decompress(file.read_bytes()).decode().split("\n")[0].split(" ")
    assert line[0] == split(TOPICS)[0].test[0] and line[1] == "Q0" and line[3] == "0" and line[5] == "pipeline"
    assert repr(float(line[4])) == line[4]
    again = pt.io.read_results(str(file))
    mine = found[found["qid"].isin(split(TOPICS)[0].test)]
    assert again["score"].tolist() == mine["score"].tolist() and again["qid"].tolist() == mine["qid"].tolist()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_resumes_where_it_stopped(tmp_path, both, error):
    def stops(fold):
        if fold.index == 3:
            raise error
        return ranker(fold)

    with pytest.raises(error):
        cross_validate(stops, TOPICS, QRELS, path=tmp_path)
    assert len(Toy.fits) == 3
    assert sorted(f.name for f in (tmp_path / "pipeline").glob("*.json")) == [f"fold-{i}.json" for i in range(3)]
    (tmp_path / "pipeline" / "fold-1.json").unlink()  # which is written last
    results = cross_validate(ranker, TOPICS, QRELS, path=tmp_path)
    assert [toy.seed for toy in Toy.fits[3:]] == [43, 45, 46]
    assert results.runs["pipeline"].equals(both.runs["Toy"])


def test_a_system_is_added(finished, both):
    results = cross_validate({"pipeline": ranker, "First": FirstStage()}, TOPICS, QRELS, path=finished)
    assert not Toy.fits and results.runs["First"].equals(both.runs["First"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "another seed, split;"),
        ({"folds": 4}, "another folds, split;"),
        ({"train_size": 9}, "another train_size, split;"),
        ({"groups": pd.Series(ARTICLES)}, "another split;"),
        ({"topics": TOPICS[1:]}, "another topics, qrels, split;"),
        ({"qrels": QRELS.assign(label=2)}, "another qrels;"),
        ({"settings": {"S": {"epochs": 2}}}, r"another settings \(\{'epochs': 1\}, now \{'epochs': 2\}\)"),
        ({"make_pipeline": {"s": ranker}, "settings": {"s": {"epochs": 1}}}, r"another system \('S', now 's'\)"),
    ],
)
def test_other_results_are_refused(tmp_path, change, message):
    given = {"make_pipeline": {"S": ranker}, "topics": TOPICS, "qrels": QRELS, "settings": {"S": {"epochs": 1}}}
    cross_validate(**given, path=tmp_path, only=[0])
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(ValueError, match="path: .*" + message):
        cross_validate(**{**given, **change}, path=tmp_path)
    assert len(Toy.fits) == 1 and files == {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}


def test_folds_say_themselves_what_they_are_of(finished):
    (finished / "folds.json").unlink()
    with pytest.raises(ValueError, match="fold-0.json was made with another plan"):
        cross_validate(ranker, TOPICS, QRELS, path=finished, seed=1)


# ---------------------------------------------------------------------------------------------------------- errors


def failing(**columns):
    """A system whose results have other columns than they should."""
    return pt.apply.generic(lambda inp: FirstStage()(inp).assign(**columns))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"make_pipeline": {}}, "make_pipeline must name systems"),
        ({"make_pipeline": {"A b": ranker, "a-B": ranker}}, "letters and digits that differ, not .'A b', 'a-B'"),
        ({"make_pipeline": {"+": ranker}}, "make_pipeline must name systems"),
        (
            {"make_pipeline": FirstStage() >> Toy()},
            "must be a function that makes a new .* of 'pipeline' for each fold",
        ),
        ({"make_pipeline": lambda fold: FirstStage() + ranker(fold)}, "must have .* as a step"),
        ({"make_pipeline": lambda fold: FirstStage() >> (Toy() + Toy()) >> Toy()}, "must have .* as a step"),
        ({"make_pipeline": failing(score=float("nan"))}, "'pipeline' must give a value in every cell.* in fold 0"),
        ({"make_pipeline": failing(docno="a")}, "must give a docno once for each qid"),
        ({"make_pipeline": failing(qid="other")}, "must give the qids of the test topics, not such as .*'other'"),
        ({"qrels": QRELS.assign(qid="x")}, "qrels must be of the topics .*, not of x"),
        ({"qrels": QRELS.rename(columns={"label": "relevance"})}, "qrels: missing column label"),
        ({"only": [5]}, r"only must be positions of folds from 0 to 4, not \[5\]"),
        ({"only": []}, "only must be"),
        ({"train_size": 0}, "train_size must be None or a whole number >= 1"),
        ({"train_size": 37}, "train_size must be at most 36, the training queries of fold 0"),
        ({"settings": {"other": 1}}, "settings must be one of pipeline, not 'other'"),
    ],
)
def test_refused(change, message):
    with pytest.raises(ValueError, match=message):
        cross_validate(**{"make_pipeline": ranker, "topics": TOPICS, "qrels": QRELS, **change})
    assert not Toy.fits


def test_one_model_is_not_trained_in_two_folds():
    toy = Toy()
    with pytest.raises(ValueError, match="already trained in another fold or system"):
        cross_validate(lambda fold: FirstStage() >> toy, TOPICS, QRELS)
    assert len(Toy.fits) == 1


# ---------------------------------------------------------------------------------------------------------- tables


NAN = float("nan")
TABLE = pd.DataFrame(
    {
        "name": ["BM25", "A|B_1", "50% worse"],
        "AP@100": [0.25, 0.375, 0.125],
        "P@10": [0.5, 0.5, NAN],
        "AP@100 +": [NAN, 30.0, 2.0],
        "AP@100 -": [NAN, 3.0, 29.0],
        "AP@100 p-value": [NAN, 0.001, 0.04],
        "P@10 +": [NAN, 0.0, 1.0],
        "P@10 -": [NAN, 0.0, 1.0],
        "P@10 p-value": [NAN, NAN, 0.2],
    }
)
CORRECTED = TABLE.assign(**{"AP@100 reject": [False, True, False], "AP@100 p-value corrected": [NAN, 0.002, 0.06]})


def test_markdown():
    assert to_markdown(TABLE) == (
        "| System | AP@100 | P@10 |\n"
        "| --- | ---: | ---: |\n"
        "| BM25 | 0.250 | **0.500** |\n"
        "| A\\|B\\_1 | **0.375** ▲ | **0.500** |\n"
        "| 50% worse | 0.125 ▼ | – |\n"
        "\n"
        "▲ ▼ significantly better or worse than BM25 (p &lt; 0.05)\n"
    )
    assert "0.13 |" not in to_markdown(TABLE) and "| 0.12 ▼ |" in to_markdown(TABLE, digits=2)
    assert to_markdown(TABLE, alpha=0.01).count("▼") == 1 and "(p &lt; 0.01)" in to_markdown(TABLE, alpha=0.01)


def test_markdown_with_corrected_p_values():
    text = to_markdown(CORRECTED, baseline="BM25")
    assert "| **0.375** ▲ |" in text and "| 50% worse | 0.125 | – |" in text
    assert text.endswith("than BM25 (corrected p &lt; 0.05)\n") and "reject" not in text


def test_latex():
    assert to_latex(TABLE) == (
        "% \\usepackage{booktabs,amssymb}\n"
        "% $^\\blacktriangle$ $^\\blacktriangledown$ significantly better or worse than BM25 (p < 0.05)\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "System & AP@100 & P@10 \\\\\n"
        "\\midrule\n"
        "BM25 & 0.250 & \\textbf{0.500} \\\\\n"
        "A\\textbar{}B\\_1 & \\textbf{0.375}$^\\blacktriangle$ & \\textbf{0.500} \\\\\n"
        "50\\% worse & 0.125$^\\blacktriangledown$ & – \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )
    assert "\\& \\$ \\# \\{\\} \\textasciitilde{}\\textasciicircum{}\\textbackslash{}" in to_latex(
        TABLE[["name", "P@10"]].assign(name="& $ # {} ~^\\")
    )


def test_tables_without_baseline():
    plain = TABLE[["name", "AP@100"]].assign(mrt=[3.0, 1.5, 2.0])
    assert to_markdown(plain, digits=1) == (
        "| System | AP@100 | mrt |\n"
        "| --- | ---: | ---: |\n"
        "| BM25 | 0.2 | 3.0 |\n"
        "| A\\|B\\_1 | **0.4** | **1.5** |\n"
        "| 50% worse | 0.1 | 2.0 |\n"
    )
    assert to_markdown(plain[:1]) == "| System | AP@100 | mrt |\n| --- | ---: | ---: |\n| BM25 | 0.250 | 3.000 |\n"


def test_tables_of_experiments():
    names = {
        "First": FirstStage(),
        "Toy": ranker,
        "Bad": failing(score=lambda x: -1.0 * (x["docno"] == x["qid"].map(RELEVANT))),
    }
    results = cross_validate({**names, "Same": FirstStage()}, TOPICS, QRELS)
    table = results.experiment(baseline="First")
    assert list(table.columns[:3]) == ["name", "AP@100", "P@10"]
    assert [line.split(" | ")[1][-1] for line in to_markdown(table).split("\n")[2:6]] == list("2▲▼2")
    assert table["AP@100 p-value"][3] == 1  # no difference at all, and yet not the baseline


@pytest.mark.parametrize("correction", ["holm", "bonferroni", "hs", "fdr_bh", "fdr_by"])
@pytest.mark.parametrize("test", ["t", "wilcoxon", stats.ttest_rel])
def test_a_system_that_equals_the_baseline_is_not_better(correction, test):
    systems = {"First": FirstStage(), "Toy": ranker, "Same": FirstStage()}
    results = cross_validate(systems, TOPICS, QRELS)
    options = {"metrics": "AP@100", "baseline": "First", "test": test}
    with np.errstate(divide="raise"):
        table = results.experiment(**options, correction=correction)
        alone = results.experiment(**options)["AP@100 p-value"]
    assert table["AP@100 p-value"].tolist()[1:] == alone.tolist()[1:] and 0 < alone[1] < alone[2] == 1
    with np.errstate(divide="ignore"):
        expected = multipletests(alone[1:], method=correction)[1]
    assert table["AP@100 p-value corrected"].tolist()[1:] == pytest.approx(expected)  # of two systems
    assert table["AP@100 reject"].tolist() == [False, True, False]


def test_tables_whose_correction_is_spoilt_are_told():
    spoilt = CORRECTED.assign(**{"AP@100 p-value": [NAN, NAN, 0.04]})
    with pytest.warns(UserWarning, match=r"of AP@100 are wrong, .*test=paired_test\(\)"):
        to_markdown(spoilt, baseline="BM25")


def test_paired_tests_have_a_p_value():
    one, two = np.array([0.5, 0.25, NAN]), np.array([0.25, 0.25, 1.0])
    assert paired_test()(one, one) == paired_test()(one[:1], two[:1]) == (None, 1.0)
    assert paired_test()(one, two)[1] == stats.ttest_rel(one[:2], two[:2]).pvalue
    assert paired_test(lambda a, b: (0, NAN))(one, two)[1] == 1
    with pytest.raises(ValueError, match="test must be one of t, wilcoxon"):
        paired_test("u")


@pytest.mark.parametrize(
    ("table", "baseline", "message"),
    [
        (TABLE, "BM26", "one of 'BM25', not 'BM26'"),
        (TABLE, 3, "one of 'BM25', not 3"),
        (TABLE, "A|B_1", "what the p-values are for, one of 'BM25', not 'A|B_1'"),
        (TABLE[["name", "P@10", "P@10 p-value"]], None, "one of 'BM25', 'A|B_1', not None"),
    ],
)
@pytest.mark.parametrize("render", [to_markdown, lambda *a, **k: bar_plot(*a, "AP@100", **k)])
def test_tables_refused(render, table, baseline, message):
    with pytest.raises(ValueError, match="baseline must be .*" + message.replace("|", r"\|")):
        render(table, baseline=baseline)


# ---------------------------------------------------------------------------------------------------------- charts


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("new/a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
def test_bar_plot_is_written(tmp_path, name, start):
    pytest.importorskip("matplotlib")
    figure = bar_plot(TABLE, "AP@100", path=tmp_path / name, title="A $ and a $")
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [file.name for file in (tmp_path / name).parent.iterdir() if file.is_file()] == [os.path.basename(name)]
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [0.25, 0.375, 0.125]
    assert [text.get_text() for text in axes.texts] == ["0.250", "0.375 ▲", "0.125 ▼"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["BM25", "A|B_1", "50% worse"]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_imports_are_light_and_charts_need_no_pyplot():
    pytest.importorskip("matplotlib")
    code = (
        "import sys, pandas as pd; from pyterrier_mart.evaluation import bar_plot\n"
        "print([module for module in ('torch', 'matplotlib') if module in sys.modules])\n"
        "bar_plot(pd.DataFrame({'name': ['a'], 'AP': [0.5]}), 'AP')._repr_png_()\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    environment = {key: value for key, value in os.environ.items() if key != "DISPLAY"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\nFalse\n", done.stderr


def test_bar_plot_refuses(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="measure must be one of AP@100, P@10, not 'MAP'"):
        bar_plot(TABLE, "MAP")
    with pytest.raises(ValueError, match=r"a.txt': expected a name that ends in .png, .svg, .pdf"):
        bar_plot(TABLE, "P@10", path=tmp_path / "a.txt")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'pyterrier-mart\[plot\]'"):
        bar_plot(TABLE, "P@10", path=tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
