"""The outer loop: meta-steps, evaluation on the development set, early stopping, checkpoints, progress."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyterrier as pt
import torch

from pyterrier_mart.dense.encoder import model_fingerprint
from pyterrier_mart.frames import warn
from pyterrier_mart.meta.checkpoints import Checkpoints
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.learner import MetaLearner
from pyterrier_mart.meta.sampling import TaskSampler
from pyterrier_mart.meta.tasks import MetaTask

__all__ = ["EPOCHS", "TrainingLog", "train"]

#: Number of epochs if ``max_steps`` is ``None`` (the paper's Appendix C.3).
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
    the best development score; without ``evaluate``, the last ones. With ``update_on_valid`` that score is of data that
    was trained on, as in the paper.

    Args:
        learner: What is trained, and how a meta-step is made.
        tasks: What it is trained on.
        evaluate: Gives the development scores of the model as it is. It is called before training, every
            ``eval_steps`` meta-steps and at the end.
        metric: Which of its scores chooses the weights; more is better.
        output_dir: Where to leave checkpoints and ``log.csv``. The same call resumes from there, with the same weights
            bit for bit, and returns at once if it was finished.
        verbose: Whether to show progress.
        valid_tasks: Tasks of the development set, which each epoch ends with if ``update_on_valid`` is set. Without
            them that has no effect, and a warning says so where the transfer mode needs them.

    Returns:
        The log.

    Raises:
        ValueError: If ``output_dir`` holds another training or a damaged file, ``evaluate`` does not give ``metric`` as
            a finite number, or a loss is not finite (the message names the meta-step).
    """
    config = learner.config
    samplers = [tasks, valid_tasks] if config.update_on_valid and valid_tasks is not None else [tasks]
    if fault := _fault_of_transfer(samplers, config):
        warn(fault)
    run = _Run(learner, samplers, evaluate, metric, output_dir)
    total = config.max_steps
    if total is None:
        total = EPOCHS * sum(math.ceil(len(sampler) / config.meta_batch_size) for sampler in samplers)
    name = f"{type(learner).__name__}: training"
    with pt.tqdm(total=total, initial=run.step, desc=name, unit="step", disable=not verbose) as bar:
        while run.advance():
            last = {**(run.log.evaluations or [{}])[-1], **run.log.steps[-1]}
            shown = {n: v for n, v in last.items() if n in ("loss", "inner_gain") or n.startswith("dev_")}
            bar.set_postfix({n.replace("dev_", "dev "): f"{v:.3f}" for n, v in shown.items()})
            bar.update()
            if run.step == _FIRST and (fault := _fault_of_inner_loop(run.log.steps, config)):
                warn(fault)
    return run.log


def _fault_of_transfer(samplers: Sequence[TaskSampler], config: MetaConfig) -> str | None:
    """Returns what to say of a mode that transfers in another way in validation, if it trains on none of its tasks."""
    if config.transfer != "trans":
        return None
    start = math.ceil(len(samplers[0]) / config.meta_batch_size)
    if len(samplers) == 1:
        why = "there are none without update_on_valid=True and a development set"
    elif config.max_steps is not None and config.max_steps <= start:
        why = f"they begin after meta-step {start} (n_tasks gives it), but max_steps is {config.max_steps}"
    else:
        return None
    return f"transfer='trans' is 'mono-bi' here: its other part are tasks of the development set, and {why}"


def _fault_of_inner_loop(steps: Sequence[Mapping[str, Any]], config: MetaConfig) -> str | None:
    """Returns what to say of an inner loop that does harm, or almost nothing, in the first meta-steps."""
    gains = [row["inner_gain"] for row in steps if "inner_gain" in row]  # none without an inner loop
    mean = sum(gains) / len(gains) if gains else math.inf
    if config.inner_steps == 0 or mean >= _LEAST_GAIN:
        return None
    rate, count = f"inner_lr ({config.inner_lr:g})", f"inner_steps ({config.inner_steps})"
    what, help = ("lowers", f"raise {rate} or {count}") if mean >= 0 else ("raises", f"lower {rate}")
    return (
        f"the inner loop {what} the support loss by {100 * abs(mean):.1f} % on average in the first {_FIRST} "
        f"meta-steps; {help}"
    )


class _Run:
    """One training, from the start or from what an interrupted one left."""

    def __init__(
        self,
        learner: MetaLearner,
        samplers: Sequence[TaskSampler],
        evaluate: Callable[[], Mapping[str, float]] | None,
        metric: str,
        output_dir: str | os.PathLike[str] | None,
    ):
        self.learner, self.samplers, self.evaluate, self.metric = learner, samplers, evaluate, metric
        self.config = learner.config
        self.select = evaluate is not None
        self.log = TrainingLog()
        self.step = self.best = 0
        self.best_state: dict[str, torch.Tensor] | None = None  # without a directory
        self.checkpoints: Checkpoints | None = None
        if output_dir is not None:
            key = {
                "algorithm": type(learner).__name__,
                "model": model_fingerprint(learner.encoder.model),
                "tasks": [sampler.fingerprint for sampler in samplers],
                "metric": metric if evaluate is not None else None,
                **self.config.as_json(),
            }
            self.checkpoints = Checkpoints(output_dir, key)
            if progress := self.checkpoints.progress:
                self.step, self.best = progress["step"], progress["best"]
                self.log = TrainingLog(progress["log"], self.best, progress["stopped"])
                learner.load_state(self.checkpoints.load(self.best if self.log.stopped else self.step))
        self.batches = itertools.islice(self._all_batches(), self.step, self.config.max_steps)
        self.saved = time.monotonic()

    def _all_batches(self) -> Iterator[tuple[int, list[MetaTask]]]:
        for epoch in range(EPOCHS) if self.config.max_steps is None else itertools.count():
            for sampler in self.samplers:
                for batch in sampler.batches(self.config.meta_batch_size, epoch):
                    yield epoch, batch

    def advance(self) -> bool:
        """Makes a meta-step; returns whether there was one to make."""
        if self.log.stopped:
            return False
        if self.evaluate is not None and not self.log.steps:
            self.log.steps.append({"step": 0, "epoch": 0})
            self._validate()
            self._save()
        evaluated = bool(self.log.steps) and f"dev_{self.metric}" in self.log.steps[-1]
        patience = self.config.patience
        if patience is not None and self.select and evaluated and self.step - self.best >= patience:
            return self._finish("patience")
        batch = next(self.batches, None)
        if batch is None:
            return self._finish("epochs" if self.config.max_steps is None else "max_steps")
        epoch, tasks = batch
        logged = self.learner.meta_step(tasks)._asdict()
        self.step += 1
        measured = {name: value for name, value in logged.items() if math.isfinite(value)}  # what JSON has
        self.log.steps.append({"step": self.step, "epoch": epoch, **measured})
        if due := self.step % self.config.eval_steps == 0:
            self._validate()
        if due or time.monotonic() - self.saved > _SAVE_SECONDS:
            self._save()
        return True

    def _validate(self) -> None:
        """Evaluates, once for each meta-step."""
        key = f"dev_{self.metric}"
        if self.evaluate is None or key in self.log.steps[-1]:
            return
        best = max((row[key] for row in self.log.evaluations), default=-math.inf)
        found = {f"dev_{name}": float(value) for name, value in self.evaluate().items()}
        scores = {name: value for name, value in found.items() if math.isfinite(value)}
        if key not in scores:
            raise ValueError(f"evaluate must give {self.metric!r} as a finite number, not {found}")
        self.log.steps[-1].update(scores)
        if self.select and scores[key] > best:
            self.best = self.step
            if self.checkpoints is None:
                self.best_state = self.learner.state(moments=False)

    def _progress(self) -> dict[str, Any]:
        return {"step": self.step, "best": self.best, "log": self.log.steps, "stopped": self.log.stopped}

    def _save(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.save(self._progress(), self.learner.state(), {self.best} if self.select else set())
            self.saved = time.monotonic()

    def _finish(self, why: str) -> bool:
        """Gives the model the weights that are kept."""
        self.log.stopped = why
        if self.log.steps:
            self._validate()
        if not self.select:
            self.best = self.step
        self.log.best_step = self.best
        if self.checkpoints is not None:
            if self.best == self.step:
                self._save()
            self.checkpoints.keep(self._progress(), {self.best})
        if self.best != self.step:
            state = self.best_state if self.checkpoints is None else self.checkpoints.load(self.best)
            assert state is not None
            self.learner.load_state(state)
        return False
