"""The outer loop: meta-steps, evaluation on the development set, early stopping, checkpoints, progress."""

from __future__ import annotations

import itertools
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyterrier as pt
import torch

from pyterrier_mart.dense.encoder import model_fingerprint
from pyterrier_mart.meta.checkpoints import Checkpoints
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.episodes import MetaTask

if TYPE_CHECKING:
    from pyterrier_mart.meta.learners import MetaLearner
    from pyterrier_mart.meta.sampling import TaskSampler

__all__ = ["EPOCHS", "TrainingLog", "train"]

#: How often all tasks are gone through if ``max_steps`` is ``None`` (the paper's Appendix C.3).
EPOCHS = 20

_SAVE_SECONDS = 120.0  # a checkpoint is written at least so often, however long it is to the next evaluation
_FIRST = 5  # meta-steps over which the gain of the inner loop is looked at
_LEAST_GAIN = 0.05


@dataclass
class TrainingLog:
    """What happened in training.

    Attributes:
        steps: A row for each meta-step: ``step``, ``epoch``, what the learner logs (``loss``, ``kd``, ``inner_gain``,
            ``grad_norm``, ``seconds``, ...) and, where the development set was evaluated, its scores as ``dev_...``.
            With evaluation the first row is of step 0, before training.
        best_step: The meta-step whose weights were kept: the one with the best development score, or the last one.
        stopped: Why training ended: ``"max_steps"``, ``"epochs"`` or ``"patience"``.
    """

    steps: list[dict[str, Any]] = field(default_factory=list)
    best_step: int = 0
    stopped: str = ""

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The rows with development scores."""
        return [row for row in self.steps if any(name.startswith("dev_") for name in row)]


def train(
    learner: MetaLearner,
    tasks: TaskSampler,
    *,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    metric: str = "multi",
    output_dir: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    valid_tasks: TaskSampler | None = None,
) -> TrainingLog:
    """Trains a learner's model in place.

    The settings are ``learner.config``: ``max_steps``, ``eval_steps``, ``patience``, ``meta_batch_size`` and
    ``update_on_valid``, besides those that the learner and the tasks use. At the end the model has the weights with
    the best development score; without ``evaluate``, or when it is trained with the tasks of the development set
    (``update_on_valid``, as in the paper), the last ones.

    Args:
        learner: What is trained, and how a meta-step is made.
        tasks: What it is trained on.
        evaluate: Gives the development scores of the model as it is. It is called before training, every
            ``eval_steps`` meta-steps and at the end.
        metric: Which of its scores chooses the weights; more is better.
        output_dir: Where to leave checkpoints and ``log.csv``. The same call goes on from there, to the same weights
            bit for bit, and returns at once if it was finished.
        verbose: Whether to show progress.
        valid_tasks: Tasks of the development set, which each epoch ends with if ``update_on_valid`` is set. Without
            them that has no effect.

    Returns:
        The log.

    Raises:
        ValueError: If there are no tasks, ``output_dir`` holds another training or a damaged file, ``evaluate`` does
            not give ``metric`` as a finite number, or a loss is not finite (the message names the meta-step).
    """
    return _Run(learner, tasks, evaluate, metric, output_dir, verbose, valid_tasks).run()


class _Run:
    """One training."""

    def __init__(
        self,
        learner: MetaLearner,
        tasks: TaskSampler,
        evaluate: Callable[[], Mapping[str, float]] | None,
        metric: str,
        output_dir: str | os.PathLike[str] | None,
        verbose: bool,
        valid_tasks: TaskSampler | None,
    ):
        self.learner, self.evaluate, self.metric = learner, evaluate, metric
        self.config: MetaConfig = learner.config
        update = self.config.update_on_valid and valid_tasks is not None
        self.samplers = [tasks, *([valid_tasks] if update and valid_tasks is not None else [])]
        self.select = evaluate is not None and not update
        self.log = TrainingLog()
        self.step = self.best = 0
        self.best_state: dict[str, torch.Tensor] | None = None  # without a directory
        self.checkpoints: Checkpoints | None = None
        if output_dir is not None:
            self.checkpoints = Checkpoints(output_dir, self._key())
        self.saved = time.monotonic()
        self.bar = _Progress(type(learner).__name__, self._total(), verbose)

    def _key(self) -> dict[str, Any]:
        """What decides the result."""
        return {
            "algorithm": type(self.learner).__name__,
            "model": model_fingerprint(self.learner.encoder.model),
            "tasks": [sampler.fingerprint for sampler in self.samplers],
            "metric": self.metric if self.evaluate is not None else None,
            "config": self.config.as_json(),
        }

    def _total(self) -> int:
        if self.config.max_steps is not None:
            return self.config.max_steps
        size = self.config.meta_batch_size
        return EPOCHS * sum(math.ceil(len(sampler) / size) for sampler in self.samplers)

    def run(self) -> TrainingLog:
        if not self._resume():
            with self.bar:
                self.bar.start(self.step, self.log.steps)
                self._loop()
        return self.log

    # --------------------------------------------------------------------------------------------------------- the loop

    def _loop(self) -> None:
        if self.evaluate is not None and not self.log.steps:
            self.log.steps.append({"step": 0, "epoch": 0})
            self._validate()
            self._save()
        while not self._impatient():
            batch = next(self._batches, None)
            if batch is None:
                self.log.stopped = "epochs" if self.config.max_steps is None else "max_steps"
                break
            epoch, made = batch
            logged = self.learner.meta_step(made).as_dict()
            self.step += 1
            measured = {name: value for name, value in logged.items() if not math.isnan(value)}
            self.log.steps.append({"step": self.step, "epoch": epoch, **measured})
            self._check_gain()
            self.bar.advance(self.log.steps[-1])
            if self.step % self.config.eval_steps == 0:
                self._validate()
                self._save()
            elif time.monotonic() - self.saved > _SAVE_SECONDS:
                self._save()
        else:
            self.log.stopped = "patience"
        self._validate()
        self._finish()

    def _all_batches(self) -> Iterator[tuple[int, list[MetaTask]]]:
        epochs = range(EPOCHS) if self.config.max_steps is None else itertools.count()
        size = self.config.meta_batch_size
        for epoch in epochs:
            empty = True
            for batch in itertools.chain.from_iterable(sampler.batches(size, epoch) for sampler in self.samplers):
                empty = False
                yield epoch, batch
            if empty:
                raise ValueError("there are no tasks to train on")

    def _check_gain(self) -> None:
        if self.step != _FIRST or self.config.inner_steps == 0:
            return
        gains = [row["inner_gain"] for row in self.log.steps if "inner_gain" in row]  # none without an inner loop
        if not gains or (mean := sum(gains) / len(gains)) >= _LEAST_GAIN:
            return
        rate, steps = f"inner_lr ({self.config.inner_lr:g})", f"inner_steps ({self.config.inner_steps})"
        if mean < 0:
            what, help = "does harm: it raises", f"lower {rate}"
        else:
            what, help = "does almost nothing: it lowers", f"raise {rate} or {steps}"
        warnings.warn(
            f"the inner loop {what} the support loss by {100 * abs(mean):.1f} % on average in the first {_FIRST} "
            f"meta-steps; {help}",
            stacklevel=5,
        )

    # ------------------------------------------------------------------------------------------------- development set

    def _validate(self) -> None:
        """Evaluates, once for each meta-step."""
        if self.evaluate is None or f"dev_{self.metric}" in self.log.steps[-1]:
            return
        with self.bar.doing("evaluating"):
            scores = {name: float(value) for name, value in self.evaluate().items()}
        if self.metric not in scores:
            raise ValueError(f"evaluate gave {', '.join(scores) or 'nothing'}, not the metric {self.metric!r}")
        if not math.isfinite(scores[self.metric]):
            raise ValueError(f"evaluate gave {scores[self.metric]} as {self.metric!r} at meta-step {self.step}")
        self.log.steps[-1].update({f"dev_{name}": value for name, value in scores.items()})
        self.bar.show(self.log.steps[-1])
        if self.select and scores[self.metric] > self._best_score():
            self.best = self.step
            if self.checkpoints is None:
                self.best_state = self.learner.state(moments=False)

    def _best_score(self) -> float:
        """Returns the score of the best step before the last row."""
        scores = [row[f"dev_{self.metric}"] for row in self.log.steps[:-1] if f"dev_{self.metric}" in row]
        return max(scores, default=-math.inf)

    def _impatient(self) -> bool:
        return (
            self.select and f"dev_{self.metric}" in self.log.steps[-1] and self.step - self.best >= self.config.patience
        )

    # ----------------------------------------------------------------------------------------------------- checkpoints

    def _progress(self) -> dict[str, Any]:
        return {"step": self.step, "best": self.best, "log": self.log.steps, "stopped": self.log.stopped}

    def _save(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.save(self._progress(), self.learner.state(), [self.best] if self.select else [])
            self.saved = time.monotonic()

    def _resume(self) -> bool:
        """Goes to where an interrupted training was; returns whether it was finished."""
        progress = self.checkpoints.progress if self.checkpoints is not None else None
        if self.checkpoints is not None and progress is not None:
            self.step, self.best = progress["step"], progress["best"]
            self.log = TrainingLog(progress["log"], self.best, progress["stopped"])
            self.learner.load_state(self.checkpoints.load(self.best if self.log.stopped else self.step))
        self._batches = itertools.islice(self._all_batches(), self.step, self.config.max_steps)
        return bool(self.log.stopped)

    def _finish(self) -> None:
        if not self.select:
            self.best = self.step
        self.log.best_step = self.best
        if self.checkpoints is not None:
            if self.best == self.step:
                self._save()
            self.checkpoints.finish(self._progress(), self.best)
        if self.best != self.step:
            state = self.checkpoints.load(self.best) if self.checkpoints is not None else self.best_state
            assert state is not None
            self.learner.load_state(state)


class _Progress(AbstractContextManager["_Progress"]):
    """A progress bar with the loss and the development scores, in notebooks too; or nothing."""

    def __init__(self, name: str, total: int, verbose: bool):
        self.name, self.total, self.verbose = name, total, verbose
        self.shown: dict[str, str] = {}
        self.bar: Any = None

    def start(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Shows the bar, from where training goes on."""
        if self.verbose:
            self.bar = pt.tqdm(total=self.total, initial=step, desc=f"{self.name}: training", unit="step")
            for row in rows:
                self._note(row)

    def advance(self, row: Mapping[str, Any]) -> None:
        """Shows that a meta-step was made."""
        if self.bar is not None:
            self.show(row)
            self.bar.update()

    def show(self, row: Mapping[str, Any]) -> None:
        """Shows what a row says."""
        if self.bar is not None:
            self._note(row)
            self.bar.set_postfix(self.shown)

    def _note(self, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            if name in ("loss", "inner_gain") or name.startswith("dev_"):
                self.shown[name.replace("dev_", "dev ")] = f"{value:.3f}"

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Names what is done inside the block."""
        if self.bar is not None:
            self.bar.set_description(f"{self.name}: {what}")
        yield
        if self.bar is not None:
            self.bar.set_description(f"{self.name}: training")

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
