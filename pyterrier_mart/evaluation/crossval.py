"""Cross-validation of trainable pipelines, fold by fold and on disk."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP, P

from pyterrier_mart import __version__
from pyterrier_mart.checks import check_choice, check_whole
from pyterrier_mart.datasets.columns import listed, select_columns
from pyterrier_mart.evaluation.folds import Fold, qids_of, shuffled, split
from pyterrier_mart.evaluation.runs import as_run, read_run
from pyterrier_mart.evaluation.significance import paired_test
from pyterrier_mart.files import atomic_file, read_json

__all__ = ["METRICS", "CrossValidation", "cross_validate"]

#: What is measured when nothing else is asked for.
METRICS = (AP @ 100, P @ 10)

System = pt.Transformer | Callable[[Fold], pt.Transformer]


@dataclass(frozen=True)
class CrossValidation:
    """What :func:`cross_validate` measured.

    Attributes:
        runs: By name of the system, what it found for the tested topics, each of them ranked by a model that saw
            neither the topic nor its judgments: ``qid``, ``docno``, ``score``, ``rank``, and ``query`` if the topics
            have it.
        topics: The tested topics: all, or those of the folds that were asked for.
        qrels: The judgments of the tested topics.
        folds: The folds that were run.
    """

    runs: dict[str, pd.DataFrame]
    topics: pd.DataFrame
    qrels: pd.DataFrame
    folds: tuple[Fold, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        """The names of the systems."""
        return tuple(self.runs)

    def experiment(
        self,
        metrics: Iterable[Any] | str = METRICS,
        *,
        baseline: str | int | None = None,
        correction: str | None = None,
        **kwargs: Any,
    ) -> pd.DataFrame:
        """Returns the table that :func:`pyterrier.Experiment` makes of the runs.

        With a baseline, the p-values are of a two-tailed paired t-test over topics, 1 for a system that equals it.

        Example::

            results.experiment(baseline='BM25', correction='holm')

        Args:
            metrics: Measures, or their names as ir_measures has them (``'AP@100'``) or trec_eval (``'map'``).
            baseline: Name or position of the system to compare the others with.
            correction: How p-values are corrected for multiple testing, e.g. ``'holm'``; needs the package statsmodels.
            **kwargs: More arguments of :func:`pyterrier.Experiment`.

        Raises:
            ValueError: If there is no such baseline or metric.
        """
        if isinstance(baseline, str):
            check_choice("baseline", baseline, self.systems)
            baseline = self.systems.index(baseline)
        if isinstance(metrics, (str, ir_measures.Measure)):
            metrics = [metrics]
        measures = []
        for metric in metrics:
            try:
                measures.append(ir_measures.parse_measure(metric) if isinstance(metric, str) else metric)
            except (NameError, ValueError):
                measures += ir_measures.parse_trec_measure(metric)
        kwargs |= {"baseline": baseline, "correction": correction, "test": paired_test(kwargs.get("test", "t"))}
        with np.errstate(divide="ignore"):  # as Holm and Šidák's correction does for p = 1
            table = pt.Experiment(dict(self.runs), self.topics, self.qrels, measures, **kwargs)
        columns = ["name", *map(str, measures)]  # in this order, which ir_measures does not keep
        if not isinstance(table, pd.DataFrame) or not set(columns) <= set(table.columns):
            return table
        return table[[*columns, *table.columns.difference(columns, sort=False)]]

    def per_query(self, metrics: Iterable[Any] | str = METRICS) -> pd.DataFrame:
        """Returns ``name``, ``qid``, ``measure`` and ``value`` for each system, judged topic and measure.

        The measures are as in :meth:`experiment`.
        """
        table = self.experiment(metrics, perquery=True, filter_by_qrels=True)
        return table.sort_values(["name", "qid", "measure"], ignore_index=True)


def cross_validate(
    make_pipeline: System | Mapping[str, System],
    topics: pd.DataFrame,
    qrels: pd.DataFrame,
    *,
    folds: int = 5,
    seed: int = 42,
    groups: pd.Series | str | None = None,
    path: str | Path | None = None,
    only: Sequence[int] | None = None,
    train_size: int | None = None,
    settings: Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> CrossValidation:
    """Trains and tests systems fold by fold, so that every topic is ranked by a model that was not trained on it.

    For each fold of :func:`split` and each system, a new pipeline is made, fitted with ``fit(topics, qrels,
    valid_topics, valid_qrels)`` on the training and validation queries if an estimator is in it, and asked for the
    test queries. All frames come in order of the qid. The union of the test folds is one run for each system.

    Example::

        results = cross_validate(
            {
                'BM25': bm25,
                'Ranker': lambda fold: bm25 % 100 >> pt.text.get_text(data) >> Ranker(seed=fold.seed),
            },
            data.get_topics(), data.get_qrels(), path='runs/ranker', settings={'Ranker': {'epochs': 100}})
        results.experiment(baseline='BM25')

    What is finished stays under the path, and a later call resumes there: ``folds.json`` holds the split,
    ``SYSTEM/fold-0.res.gz`` a TREC run with scores in full precision, and ``SYSTEM/fold-0.json`` the times of training
    and testing in seconds, the queries, the seed, the metrics of the fold, the settings and the versions. Several
    processes may work on one path, each on its own folds or systems; a last call without ``only`` reads them all.

    The setup is that of Huang et al. Mixed Attention Transformer for Leveraging Word-Level Knowledge to Neural
    Cross-Lingual Information Retrieval. CIKM 2021, https://doi.org/10.1145/3459637.3482452: five folds by query, 60 %
    to train, 20 % to validate and 20 % to test, measured by MAP@100 and P@10, with a two-tailed paired t-test at
    p < 0.05.

    Args:
        make_pipeline: A function that makes the pipeline of a fold, each time with a new estimator, or names and
            such functions. A pipeline that is the same in every fold and not trained, such as BM25, may stand in the
            place of a function. A system without a name is called ``pipeline``.
        topics: What to split; ``qid`` and whatever the pipelines need.
        qrels: Judgments with ``qid``, ``docno`` and ``label``.
        folds: How many folds, at least three.
        seed: Of the split. The pipelines get ``fold.seed``.
        groups: As in :func:`split`: queries that must not be separated.
        path: A directory to keep results in and to resume from. Without one, results stay in memory.
        only: Positions of the folds to run. The results then cover only the test queries of these.
        train_size: How many training queries to use, of those with a relevant document. What is used with a smaller
            number is among what is used with a larger one.
        settings: By name of the system, what to write beside its results, as JSON. Results on disk that were made
            with other settings are refused.
        verbose: Whether to show progress.

    Raises:
        ValueError: If an argument is not as described; if the path holds results of another split, of other topics,
            judgments or settings; if names of systems differ too little to name directories; if an estimator is in a
            pipeline that is the same in every fold, was already trained in another fold, or is where no ``fit`` gets
            to; or if a pipeline returns rows that do not belong into a run.
    """
    systems: dict[str, Any] = dict(make_pipeline) if isinstance(make_pipeline, Mapping) else {"pipeline": make_pipeline}
    slugs = {name: re.sub(r"\W+", "-", name.lower()).strip("-") for name in systems}
    if not all(slugs.values()) or not len(systems) == len(set(slugs.values())) > 0:
        raise ValueError(f"make_pipeline must name systems by letters and digits that differ, not {list(systems)}")
    notes = json.loads(json.dumps(dict(settings or {})))  # as they are after writing and reading
    for name in notes:
        check_choice("settings", name, systems)
    for name, system in systems.items():
        if isinstance(system, pt.Transformer) and (found := estimators(system)):
            raise ValueError(
                f"make_pipeline must be a function that makes a new {found[0]!r} of {name!r} for each fold; one that "
                "is not to be trained again goes in as pt.apply.generic(pipeline.transform)"
            )

    topics = topics.assign(qid=qids_of(topics)).sort_values("qid", ignore_index=True)
    select_columns("qrels", qrels, ["qid", "docno", "label"])
    qrels = qrels.assign(qid=qrels["qid"].astype(str), docno=qrels["docno"].astype(str))
    judged = rows_of(qrels, topics["qid"]).sort_values(["qid", "docno"], kind="stable", ignore_index=True)
    if not len(judged):
        raise ValueError(
            f"qrels must be of the topics ({listed(topics['qid'])}), not of {listed(qrels['qid'].unique())}"
        )
    planned = [shortened(fold, judged, train_size, seed) for fold in split(topics, folds, seed=seed, groups=groups)]
    only = range(folds) if only is None else sorted(set(only))
    if not only or not set(only) <= set(range(folds)):
        raise ValueError(f"only must be positions of folds from 0 to {folds - 1}, not {list(only)}")
    chosen = [planned[i] for i in only]
    plan = {
        "folds": folds,
        "seed": seed,
        "train_size": train_size,
        "topics": fingerprint(topics),
        "qrels": fingerprint(judged),
        "split": [{"index": f.index, "seed": f.seed, **qids_by_part(f)} for f in planned],
    }

    with tempfile.TemporaryDirectory() as scratch:
        work = FoldRunner(Path(scratch if path is None else path), slugs, topics, judged, notes)
        work.check_plan(plan)
        parts = [(name, fold) for name in systems for fold in chosen]
        done = {part: work.finished(*part) for part in parts}  # all is looked at before the first model is trained
        missing = [part for part, run in done.items() if run is None]
        for name, fold in pt.tqdm(missing, desc="cross-validation", unit="fold", disable=not verbose):
            done[name, fold] = work.run(name, fold, systems[name])

    tested = [qid for fold in chosen for qid in fold.test]
    topics, judged = rows_of(topics, tested), rows_of(judged, tested)
    runs = {}
    for name in systems:
        run = pd.concat([done[name, fold] for fold in chosen], ignore_index=True)
        runs[name] = run.merge(topics[["qid", "query"]], on="qid", how="left") if "query" in topics.columns else run
    return CrossValidation(runs, topics, judged, tuple(chosen))


class FoldRunner:
    """Runs folds of systems, and keeps what came out under a path."""

    def __init__(
        self, root: Path, slugs: dict[str, str], topics: pd.DataFrame, qrels: pd.DataFrame, settings: dict[str, Any]
    ):
        self.root, self.slugs, self.topics, self.qrels, self.settings = root, slugs, topics, qrels, settings
        self.plan = ""
        self.trained: list[weakref.ref[pt.Transformer]] = []

    def check_plan(self, plan: dict[str, Any]) -> None:
        """Writes ``folds.json``, or compares with what is there.

        Raises:
            ValueError: If it is of something else.
        """
        path = self.root / "folds.json"
        self.plan = digest(plan)
        if not path.exists():
            write_json(plan, path)
        found = read_json(path)
        if differing := [key for key, value in plan.items() if found.get(key) != value]:
            raise ValueError(
                f"path: {self.root} holds a cross-validation with another {', '.join(differing)}; name another path"
            )

    def stem(self, name: str, fold: Fold) -> str:
        """Returns the path of a fold's files without their endings."""
        return str(self.root / self.slugs[name] / f"fold-{fold.index}")

    def finished(self, name: str, fold: Fold) -> pd.DataFrame | None:
        """Returns the run of a fold if it is on disk; ``None`` if it is to be done.

        Raises:
            ValueError: If it is on disk, but of another system, split or settings.
        """
        path = self.stem(name, fold)
        try:
            found = read_json(Path(f"{path}.json"))
        except FileNotFoundError:
            return None
        for key, value in (("system", name), ("plan", self.plan), ("settings", self.settings.get(name))):
            if found.get(key) != value:
                raise ValueError(
                    f"path: {path}.json was made with another {key} ({found.get(key)!r}, now {value!r}); name another "
                    "path"
                )
        return read_run(f"{path}.res.gz")

    def run(self, name: str, fold: Fold, system: Any) -> pd.DataFrame:
        """Trains and tests a system on a fold, writes the run and then, as a sign that it is complete, the rest."""
        pipeline, trainable = system, []
        if not isinstance(system, pt.Transformer):
            pipeline = system(fold)
            trainable = estimators(pipeline)
            self.check_trainable(name, pipeline, trainable)
        start = perf_counter()
        if trainable:
            parts = [rows_of(frame, qids) for qids in (fold.train, fold.valid) for frame in (self.topics, self.qrels)]
            pipeline.fit(*parts)
        middle = perf_counter()
        run = as_run(pipeline.transform(rows_of(self.topics, fold.test)), fold, name)
        end = perf_counter()
        path = self.stem(name, fold)
        with atomic_file(f"{path}.res.gz") as tmp:
            pt.io.write_results(run, str(tmp), run_name=self.slugs[name])
        content = {
            "system": name,
            "fold": fold.index,
            "seed": fold.seed,
            "trained": bool(trainable),
            "seconds": {"train": middle - start if trainable else 0.0, "test": end - middle},
            "rows": len(run),
            "metrics": averages(rows_of(self.qrels, fold.test), run),
            "settings": self.settings.get(name),
            "versions": {
                "python": platform.python_version(),
                "pyterrier_mart": __version__,
                **{package: version(package) for package in ("pyterrier", "torch", "transformers")},
            },
            "plan": self.plan,
            "queries": qids_by_part(fold),
        }
        write_json(content, Path(f"{path}.json"))
        return run

    def check_trainable(self, name: str, pipeline: pt.Transformer, trainable: list[pt.Transformer]) -> None:
        """Checks that ``fit`` trains all estimators of a pipeline, none of which has seen test queries before."""
        steps = inner(pipeline) if isinstance(pipeline, pt.Compose) else [pipeline] if hasattr(pipeline, "fit") else []
        for estimator in trainable:
            if not any(estimator is step for step in steps):
                raise ValueError(
                    f"make_pipeline must have {estimator!r} of {name!r} as a step, a >> estimator >> b, where fit gets "
                    "to; one that is not to be trained goes in as pt.apply.generic(pipeline.transform)"
                )
            if any(before() is estimator for before in self.trained):
                raise ValueError(
                    f"make_pipeline must make a new estimator at each call: {estimator!r} of {name!r} was already "
                    "trained in another fold or system, and has seen queries that it is tested on"
                )
            self.trained.append(weakref.ref(estimator))


def inner(pipeline: pt.Transformer) -> list[pt.Transformer]:
    """Returns the transformers that a transformer is made of."""
    try:
        found = pt.inspect.subtransformers(pipeline).values()
    except pt.inspect.InspectError:
        return []
    return [step for steps in found for step in (steps if isinstance(steps, (list, tuple)) else [steps])]


def estimators(pipeline: pt.Transformer) -> list[pt.Transformer]:
    """Returns the estimators in a pipeline, without looking into them."""
    if isinstance(pipeline, pt.Estimator):
        return [pipeline]
    return [estimator for step in inner(pipeline) for estimator in estimators(step)]


def shortened(fold: Fold, qrels: pd.DataFrame, train_size: int | None, seed: int) -> Fold:
    """Returns a fold with ``train_size`` training queries: the first in an order that all sizes have in common."""
    check_whole("train_size", train_size, optional=True)
    if train_size is None:
        return fold
    relevant = set(qrels.loc[qrels["label"] > 0, "qid"])
    usable = [qid for qid in fold.train if qid in relevant]
    if train_size > len(usable):
        raise ValueError(
            f"train_size must be at most {len(usable)}, the training queries of fold {fold.index} that have a relevant "
            f"document, not {train_size}"
        )
    return replace(fold, train=tuple(sorted(shuffled(usable, seed, "train")[:train_size])))


def rows_of(frame: pd.DataFrame, qids: Iterable[str]) -> pd.DataFrame:
    """Returns the rows of some queries."""
    return frame[frame["qid"].isin(set(qids))].reset_index(drop=True)


def qids_by_part(fold: Fold) -> dict[str, list[str]]:
    """Returns the qids of a fold as JSON values."""
    return {"train": list(fold.train), "valid": list(fold.valid), "test": list(fold.test)}


def fingerprint(frame: pd.DataFrame) -> str:
    """Returns a digest of the rows, whatever the order of the columns and rows."""
    columns = sorted(map(str, frame.columns))
    cells = frame.rename(columns=str)[columns].itertuples(index=False)
    texts = [[str(cell.tolist() if hasattr(cell, "tolist") else cell) for cell in row] for row in cells]
    return digest([columns, sorted(texts)])


def digest(value: Any) -> str:
    """Returns the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_json(content: Any, path: Path) -> None:
    """Writes a file of JSON for people to read."""
    with atomic_file(path) as tmp:
        tmp.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def averages(qrels: pd.DataFrame, run: pd.DataFrame) -> dict[str, float]:
    """Returns the metrics of a fold; none if it has no judged topic."""
    found = ir_measures.calc_aggregate(METRICS, *map(pt.model.to_ir_measures, (qrels, run))) if len(qrels) else {}
    return {str(measure): float(value) for measure, value in found.items() if not math.isnan(value)}
