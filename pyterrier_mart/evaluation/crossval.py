"""Cross-validation of trainable pipelines, fold by fold and on disk."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import ir_measures
import pandas as pd
import pyterrier as pt
from ir_measures import AP, P

from pyterrier_mart.evaluation.folds import Fold, qids_of, shuffled, some, split
from pyterrier_mart.evaluation.pipelines import estimators, fitted_by
from pyterrier_mart.evaluation.runs import as_run, read_run, write_run
from pyterrier_mart.files import atomic_file

__all__ = ["METRICS", "CrossValidation", "cross_validate"]

#: What is measured when nothing else is asked for.
METRICS = (AP @ 100, P @ 10)

_PACKAGES = {
    "pyterrier_mart": "pyterrier-mart",
    "pyterrier": "pyterrier",
    "torch": "torch",
    "transformers": "transformers",
}


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

        With a baseline, the p-values are those of a two-tailed paired t-test over the tested topics.

        Example::

            results.experiment(baseline='BM25', correction='holm')
            results.experiment(['nDCG@10', 'R@100'], round=3)

        Args:
            metrics: Measures, or their names as ir_measures has them (``'AP@100'``) or trec_eval (``'map'``).
            baseline: Name or position of the system to compare the others with.
            correction: How p-values are corrected for multiple testing, e.g. ``'holm'``; needs the package statsmodels.
            **kwargs: More arguments of :func:`pyterrier.Experiment`.

        Raises:
            ValueError: If there is no such baseline or no such metric.
        """
        measures = _measures(metrics)
        table = pt.Experiment(
            dict(self.runs),
            self.topics,
            self.qrels,
            measures,
            baseline=None if baseline is None else _position(baseline, self.systems),
            correction=correction,
            **kwargs,
        )
        return _in_order(table, [str(measure) for measure in measures])

    def per_query(self, metrics: Iterable[Any] | str = METRICS) -> pd.DataFrame:
        """Returns ``name``, ``qid``, ``measure`` and ``value`` for each system, judged topic and measure.

        Args:
            metrics: As in :meth:`experiment`.

        Raises:
            ValueError: If there is no such metric.
        """
        table = self.experiment(metrics, perquery=True, filter_by_qrels=True)
        return table.sort_values(["name", "qid", "measure"], ignore_index=True)


def cross_validate(
    make_pipeline: pt.Transformer
    | Callable[[Fold], pt.Transformer]
    | Mapping[str, pt.Transformer | Callable[[Fold], pt.Transformer]],
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

    What is finished stays under the path, and a later call goes on from there: ``folds.json`` holds the split,
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
        path: A directory to keep results in and to go on from. Without one, results stay in memory.
        only: Positions of the folds to run. The results then cover only the test queries of these.
        train_size: How many training queries to use, of those with a relevant document. What is used with a smaller
            number is among what is used with a larger one.
        settings: By name of the system, what to write beside its results, as JSON. Results on disk that were made
            with other settings are refused.
        verbose: Whether to show progress.

    Raises:
        TypeError: If a function does not return a transformer.
        ValueError: If an argument is not as described; if the path holds results of another split, of other topics,
            judgments or settings; if names of systems differ too little to name directories; if an estimator is in a
            pipeline that is the same in every fold, was already trained in another fold, or is where no ``fit`` gets
            to; or if a pipeline returns no scores, or rows that do not belong into a run.
    """
    single = isinstance(make_pipeline, pt.Transformer) or not isinstance(make_pipeline, Mapping)
    systems: dict[str, Any] = {"pipeline": make_pipeline} if single else dict(make_pipeline)  # type: ignore[arg-type]
    slugs = _slugs(systems)
    notes = _notes(systems, settings)
    for name, system in systems.items():
        _check_system(name, system)

    topics = topics.assign(qid=qids_of(topics)).sort_values("qid", ignore_index=True)
    qrels = _judgments(qrels, set(topics["qid"]))
    planned = [_shortened(fold, qrels, train_size, seed) for fold in split(topics, folds, seed=seed, groups=groups)]
    chosen = [planned[i] for i in _chosen(only, folds)]
    plan = {
        "folds": folds,
        "seed": seed,
        "train_size": train_size,
        "topics": _fingerprint(topics),
        "qrels": _fingerprint(qrels),
        "split": [{"index": f.index, "seed": f.seed, **_queries(f)} for f in planned],
    }

    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch if path is None else path)
        _check_plan(root, plan)
        work = _Work(root, topics, qrels, _digest(plan))
        done = {}  # all of it is looked at before the first model is trained
        for name in systems:
            for fold in chosen:
                run = work.finished(name, slugs[name], fold, notes.get(name))
                if run is not None:
                    done[name, fold.index] = run
        missing = [(name, fold) for name in systems for fold in chosen if (name, fold.index) not in done]
        for name, fold in pt.tqdm(missing, desc="cross-validation", unit="fold", disable=not verbose):
            done[name, fold.index] = work.run(name, slugs[name], systems[name], fold, notes.get(name))

    tested = {qid for fold in chosen for qid in fold.test}
    topics, qrels = _of(topics, tested), _of(qrels, tested)
    runs = {}
    for name in systems:
        run = pd.concat([done[name, fold.index] for fold in chosen], ignore_index=True)
        runs[name] = run.merge(topics[["qid", "query"]], on="qid", how="left") if "query" in topics.columns else run
    return CrossValidation(runs, topics, qrels, tuple(chosen))


class _Work:
    """Runs folds and writes down what came out."""

    def __init__(self, root: Path, topics: pd.DataFrame, qrels: pd.DataFrame, plan: str):
        self.root = root
        self.topics = topics
        self.qrels = qrels
        self.plan = plan
        self.trained: list[weakref.ref[pt.Transformer]] = []

    def finished(self, name: str, slug: str, fold: Fold, settings: Any) -> pd.DataFrame | None:
        """Returns the run of a fold if it is on disk, complete and what is asked for; None if it is to be done.

        Raises:
            ValueError: If it is on disk, but of another system, split or settings.
        """
        path = self.root / slug / f"fold-{fold.index}.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        if not isinstance(found, dict):
            return None
        for key, expected in (("system", name), ("plan", self.plan), ("settings", settings)):
            if found.get(key) != expected:
                what = "split, topics or qrels" if key == "plan" else f"{key} ({found.get(key)!r}, now {expected!r})"
                raise ValueError(f"path: {path} was made with another {what}; expected the same, or name another path.")
        try:
            run = read_run(path.with_suffix(".res.gz"))
        except (OSError, EOFError, ValueError, zlib.error):
            return None
        return run if len(run) == found.get("rows") else None

    def run(self, name: str, slug: str, system: Any, fold: Fold, settings: Any) -> pd.DataFrame:
        """Trains and tests a system on a fold, writes the run and then, as a sign that it is complete, the rest."""
        pipeline, trainable = system, []
        if not isinstance(system, pt.Transformer):
            pipeline = system(fold)
            if not isinstance(pipeline, pt.Transformer):
                raise TypeError(f"make_pipeline: expected a transformer of {name!r}, found {type(pipeline).__name__}.")
            trainable = fitted_by(pipeline, name)
        start = perf_counter()
        if trainable:
            self._remember(trainable, name)
            train, valid = set(fold.train), set(fold.valid)
            pipeline.fit(
                _of(self.topics, train), _of(self.qrels, train), _of(self.topics, valid), _of(self.qrels, valid)
            )
        middle = perf_counter()
        topics = _of(self.topics, set(fold.test))
        run = as_run(pipeline.transform(topics.copy()), fold, name)
        end = perf_counter()

        file = self.root / slug / f"fold-{fold.index}.res.gz"
        write_run(run, file, slug)
        qrels = _of(self.qrels, set(fold.test))
        content = {
            "system": name,
            "fold": fold.index,
            "seed": fold.seed,
            "trained": bool(trainable),
            "seconds": {"train": middle - start if trainable else 0.0, "test": end - middle},
            "rows": len(run),
            "metrics": _averages(qrels, run),
            "settings": settings,
            "versions": _versions(),
            "plan": self.plan,
            "queries": _queries(fold),
        }
        _write_json(content, file.with_suffix("").with_suffix(".json"))
        return read_run(file)

    def _remember(self, trainable: list[pt.Transformer], name: str) -> None:
        for estimator in trainable:
            if any(trained() is estimator for trained in self.trained):
                raise ValueError(
                    f"make_pipeline: {estimator!r} of {name!r} was already trained in another fold or system and has "
                    "seen queries that it is tested on; expected a function that makes a new estimator at each call."
                )
            self.trained.append(weakref.ref(estimator))


# ------------------------------------------------------------------------------------------------------- arguments


def _slugs(names: Iterable[Any]) -> dict[str, str]:
    """Returns a directory name for each system."""
    slugs: dict[str, str] = {}
    for name in names:
        slug = re.sub(r"\W+", "-", name.lower()).strip("-") if isinstance(name, str) else ""
        if not slug:
            raise ValueError(f"make_pipeline: expected names of systems with letters or digits, found {name!r}.")
        for other, taken in slugs.items():
            if taken == slug:
                raise ValueError(f"make_pipeline: the systems {other!r} and {name!r} would both be kept in {slug!r}.")
        slugs[name] = slug
    if not slugs:
        raise ValueError("make_pipeline: expected at least one system, found none.")
    return slugs


def _notes(systems: Mapping[str, Any], settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns settings as they are after writing and reading."""
    unknown = [name for name in settings or () if name not in systems]
    if unknown:
        raise ValueError(f"settings: expected names among {list(systems)}, found {some(map(str, unknown))}.")
    try:
        return json.loads(json.dumps(dict(settings or {})))
    except (TypeError, ValueError) as err:
        raise ValueError(f"settings: expected what JSON can hold: {err}.") from err


def _check_system(name: str, system: Any) -> None:
    if not isinstance(system, pt.Transformer):
        if not callable(system):
            raise ValueError(
                f"make_pipeline: expected a function or transformer for {name!r}, found {type(system).__name__}."
            )
        return
    for estimator in estimators(system):
        raise ValueError(
            f"make_pipeline: {name!r} is the same in every fold, but has the estimator {estimator!r} in it. Expected a "
            "function that makes a new one for each fold, such as lambda fold: bm25 >> Ranker(). What is to be used as "
            "it was trained before goes in as pt.apply.generic(pipeline.transform)."
        )


def _judgments(qrels: pd.DataFrame, qids: set[str]) -> pd.DataFrame:
    """Returns the judgments of the topics, in an order that does not depend on the order of the rows."""
    if not {"qid", "docno", "label"} <= set(qrels.columns):
        raise ValueError(f"qrels: expected the columns 'qid', 'docno' and 'label', found {list(qrels.columns)}.")
    judged = qrels.assign(qid=qrels["qid"].astype(str), docno=qrels["docno"].astype(str))
    found = _of(judged, qids).sort_values(["qid", "docno"], kind="stable", ignore_index=True)
    if not len(found):
        raise ValueError(
            f"qrels: expected judgments of the topics ({some(sorted(qids))}), found none; they are of "
            f"{some(sorted(set(judged['qid']))) or 'no topic'}."
        )
    return found


def _chosen(only: Sequence[int] | None, folds: int) -> list[int]:
    if only is None:
        return list(range(folds))
    chosen = [only] if isinstance(only, (int, str)) else list(only)
    if not chosen or any(isinstance(i, bool) or i not in range(folds) for i in chosen):
        raise ValueError(f"only={only!r}: expected positions of folds from 0 to {folds - 1}.")
    return sorted({int(i) for i in chosen})


def _shortened(fold: Fold, qrels: pd.DataFrame, train_size: int | None, seed: int) -> Fold:
    """Returns a fold with so many training queries: the first ones in an order that all sizes have in common."""
    if train_size is None:
        return fold
    relevant = set(qrels.loc[qrels["label"] > 0, "qid"])
    usable = [qid for qid in fold.train if qid in relevant]
    if isinstance(train_size, bool) or not isinstance(train_size, int) or not 1 <= train_size <= len(usable):
        raise ValueError(
            f"train_size={train_size!r}: expected a whole number from 1 to {len(usable)}, the training queries of fold "
            f"{fold.index} that have a relevant document."
        )
    return replace(fold, train=tuple(sorted(shuffled(usable, seed, "train")[:train_size])))


def _of(frame: pd.DataFrame, qids: set[str]) -> pd.DataFrame:
    return frame[frame["qid"].isin(qids)].reset_index(drop=True)


# --------------------------------------------------------------------------------------------------------- writing


def _check_plan(root: Path, plan: dict[str, Any]) -> None:
    """Writes ``folds.json``, or compares with what is there.

    Raises:
        ValueError: If it is of something else.
    """
    path = root / "folds.json"
    if not path.exists():
        _write_json(plan, path)
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise ValueError(f"path: {path} cannot be read ({err}); expected the split, or name another path.") from err
    found = found if isinstance(found, dict) else {}
    differing = [
        f"{key} ({found.get(key)!r}, now {value!r})" if key in ("folds", "seed", "train_size") else key
        for key, value in plan.items()
        if found.get(key) != value
    ]
    if differing:
        raise ValueError(
            f"path: {root} holds a cross-validation with another {', '.join(differing)}; expected the same, or name "
            "another path."
        )


def _queries(fold: Fold) -> dict[str, list[str]]:
    return {"train": list(fold.train), "valid": list(fold.valid), "test": list(fold.test)}


def _fingerprint(frame: pd.DataFrame) -> str:
    """Returns a digest of the rows, whatever the order of the columns."""
    columns = sorted(map(str, frame.columns))
    cells = frame.rename(columns=str)[columns].itertuples(index=False)
    return _digest([columns, sorted([_text(cell) for cell in row] for row in cells)])


def _text(cell: Any) -> str:
    return str(cell.tolist() if hasattr(cell, "tolist") else cell)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _write_json(content: Any, path: Path) -> None:
    with atomic_file(path) as tmp:
        tmp.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _averages(qrels: pd.DataFrame, run: pd.DataFrame) -> dict[str, float]:
    """Returns the metrics of a fold; none if it has no judged topic."""
    if not len(qrels):
        return {}
    to_ir_measures = pt.model.to_ir_measures
    found = ir_measures.calc_aggregate(list(METRICS), to_ir_measures(qrels), to_ir_measures(run))
    return {str(measure): float(value) for measure, value in found.items() if not math.isnan(value)}


@cache
def _versions() -> dict[str, str]:
    """Returns the versions of Python and of what is installed of what results depend on."""
    found = {"python": platform.python_version()}
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found


# ------------------------------------------------------------------------------------------------------ experiment


def _measures(metrics: Iterable[Any] | str) -> list[Any]:
    if isinstance(metrics, (str, ir_measures.Measure)):
        metrics = [metrics]
    return [measure for metric in metrics for measure in _measure(metric)]


def _measure(metric: Any) -> list[Any]:
    if not isinstance(metric, str):
        return [metric]
    try:
        return [ir_measures.parse_measure(metric)]
    except (NameError, ValueError, SyntaxError):
        pass
    try:
        return list(ir_measures.parse_trec_measure(metric))
    except ValueError:
        raise ValueError(f"metrics: expected measures such as 'AP@100' or AP @ 100, found {metric!r}.") from None


def _in_order(table: Any, measures: Sequence[str]) -> Any:
    """Returns a table with the columns in the order of the measures, which ir_measures does not keep."""
    if not isinstance(table, pd.DataFrame) or not set(measures) <= set(table.columns):
        return table
    details = [column for measure in measures for column in table.columns if column.startswith(f"{measure} ")]
    return table[list(dict.fromkeys(["name", *measures, *details, *table.columns]))]


def _position(baseline: str | int, systems: Sequence[str]) -> int:
    if isinstance(baseline, str) and baseline in systems:
        return systems.index(baseline)
    if isinstance(baseline, int) and not isinstance(baseline, bool) and baseline in range(len(systems)):
        return baseline
    raise ValueError(
        f"baseline={baseline!r}: expected one of {list(systems)} or a position from 0 to {len(systems) - 1}."
    )
