"""What all meta-learners share: the optimiser, a meta-step over tasks, and a state that training goes on from."""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.episodes import Episode, MetaTask
from pyterrier_mart.meta.inner_loop import InnerStats, PreparedSet
from pyterrier_mart.meta.losses import TaskLoss
from pyterrier_mart.meta.selection import select

__all__ = ["MetaLearner", "StepLog"]

_NOT_MEASURED = math.nan
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True)
class StepLog:
    """What a meta-step did, as means over its tasks; NaN where an algorithm has no such thing.

    Attributes:
        loss: What the outer loop minimises.
        teacher_loss: Loss of the teacher's query set, in MAML-Align.
        student_loss: Loss of the student's query set, in MAML-Align.
        kd: The distillation, before it is weighted.
        support_before: Loss of the support sets before the inner loop.
        support_after: Loss of the support sets after it.
        inner_gain: How much of ``support_before`` is gone; the inner loop does little below 5 %.
        grad_norm: Norm of the outer gradient before it is cut.
        seconds: How long it took.
    """

    loss: float
    teacher_loss: float = _NOT_MEASURED
    student_loss: float = _NOT_MEASURED
    kd: float = _NOT_MEASURED
    support_before: float = _NOT_MEASURED
    support_after: float = _NOT_MEASURED
    inner_gain: float = _NOT_MEASURED
    grad_norm: float = _NOT_MEASURED
    seconds: float = _NOT_MEASURED

    def as_dict(self) -> dict[str, float]:
        """Returns the values by name."""
        return dataclasses.asdict(self)


class MetaLearner(ABC):
    """Changes a model's weights with an outer gradient over tasks.

    Args:
        encoder: Encodes with the model, which is trained in place.
        config: How.

    Raises:
        ValueError: If the settings select no weights, or there is no such loss.
        BackendError: If the backend cannot work with the model or the settings.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        self.encoder, self.config = encoder, config
        self.selection = select(encoder.model, config)
        self.loss = TaskLoss(encoder.model, config)
        weights = dict(encoder.model.named_parameters())
        #: What is trained, by name.
        self.trained: dict[str, torch.nn.Parameter] = {name: weights[name] for name in self.selection.trained}
        self._models: list[torch.nn.Module] = [encoder.model]
        self.steps = 0
        self.optimizer = torch.optim.AdamW(self._groups(), lr=config.outer_lr, weight_decay=config.weight_decay)

    @abstractmethod
    def _outer_gradient(self, tasks: Sequence[MetaTask]) -> StepLog:
        """Adds the gradient of the mean over tasks to ``grad`` of what is trained."""

    def meta_step(self, tasks: Sequence[MetaTask]) -> StepLog:
        """Takes a step of the outer loop on the mean over tasks.

        If it fails, the weights are as before.

        Args:
            tasks: The tasks of the step; their order does not matter.

        Raises:
            ValueError: If there are no tasks, they do not suit the algorithm, or the loss or its gradient is not
                finite.
        """
        if not tasks:
            raise ValueError("a meta-step needs at least one task")
        start = time.perf_counter()
        try:
            with self._modes(), torch.enable_grad():
                log = self._outer_gradient(tasks)
            norm = self._clip(log.loss, tasks)
            for group in self.optimizer.param_groups:
                group["lr"] = group["base_lr"] * min(1.0, (self.steps + 1) / max(1, self.config.warmup_steps))
            self.optimizer.step()
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return dataclasses.replace(log, grad_norm=norm, seconds=time.perf_counter() - start)

    def state(self, *, moments: bool = True) -> dict[str, Tensor]:
        """Returns copies of the trained weights, the step, and what AdamW remembers.

        A learner with the same model and settings that loads it goes on bit for bit as this one would.

        Args:
            moments: Whether what AdamW remembers is in it.

        Returns:
            Tensors on the CPU: ``weights.NAME``, ``adamw.NAME.exp_avg`` and the like, and ``step``.
        """
        kept: dict[str, Tensor] = {f"weights.{name}": weight for name, weight in self.trained.items()}
        if moments:
            for name, weight in self.trained.items():
                for moment in _MOMENTS:
                    if weight in self.optimizer.state:  # not if it never had a gradient
                        kept[f"adamw.{name}.{moment}"] = self.optimizer.state[weight][moment]
        kept["step"] = torch.tensor(self.steps)
        return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in kept.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes back to a state; without AdamW's part, AdamW starts anew.

        Raises:
            ValueError: If it is of another model or other settings; the message names a weight. Nothing is changed.
        """
        known: dict[str, Tensor] = {f"weights.{name}": weight for name, weight in self.trained.items()}
        moments = {
            f"adamw.{name}.{moment}": weight.new_zeros(()) if moment == "step" else weight
            for name, weight in self.trained.items()
            for moment in _MOMENTS
        }
        known["step"] = torch.tensor(0)
        for name in known.keys() - state.keys():
            raise ValueError(f"the state has no {name}, which this model and these settings train")
        for name, tensor in state.items():
            place = known.get(name, moments.get(name))
            if place is None:
                raise ValueError(f"the state has {name}, which this model and these settings do not train")
            if place.shape != tensor.shape:
                raise ValueError(f"{name} has the shape {tuple(tensor.shape)} in the state, not {tuple(place.shape)}")
        self.optimizer.state.clear()
        with torch.no_grad():
            for name, weight in self.trained.items():
                weight.copy_(state[f"weights.{name}"])
                if f"adamw.{name}.step" in state:
                    self.optimizer.state[weight] = {
                        "step": state[f"adamw.{name}.step"].cpu().clone(),
                        "exp_avg": state[f"adamw.{name}.exp_avg"].to(weight, copy=True),
                        "exp_avg_sq": state[f"adamw.{name}.exp_avg_sq"].to(weight, copy=True),
                    }
        self.steps = int(state["step"])

    def _prepare(self, episode: Episode) -> PreparedSet:
        return PreparedSet(self.encoder, episode)

    def _seeded(self, tasks: Iterable[MetaTask]) -> Iterator[MetaTask]:
        """Yields tasks; where dropout is on, what each drops depends on seed, step and task alone."""
        for task in tasks:
            if self.config.train_mode:
                seed = np.random.SeedSequence([self.config.seed, self.steps, task.index]).generate_state(1)[0]
                torch.manual_seed(int(seed))
            yield task

    @contextmanager
    def _modes(self) -> Iterator[None]:
        """Dropout as the settings say, and the state of random numbers as before afterwards."""
        training = {module: module.training for model in self._models for module in model.modules()}
        for model in self._models:
            model.train(self.config.train_mode)
        device = self.encoder.device
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=self.config.train_mode):
                yield
        finally:
            for module, mode in training.items():
                module.training = mode

    def _groups(self) -> list[dict[str, object]]:
        """Groups of AdamW: biases and weights of norms do not decay."""
        decaying = [weight for weight in self.trained.values() if weight.ndim > 1]
        others = [weight for weight in self.trained.values() if weight.ndim <= 1]
        groups: list[dict[str, object]] = []
        if decaying:
            groups.append({"params": decaying, "base_lr": self.config.outer_lr})
        if others:
            groups.append({"params": others, "base_lr": self.config.outer_lr, "weight_decay": 0.0})
        return groups

    def _clip(self, loss: float, tasks: Sequence[MetaTask]) -> float:
        largest = math.inf if self.config.max_grad_norm is None else self.config.max_grad_norm
        norm = float(torch.nn.utils.clip_grad_norm_(self.trained.values(), largest))
        if not (math.isfinite(norm) and math.isfinite(loss)):
            raise ValueError(
                f"meta-step {self.steps + 1}, tasks {', '.join(str(task.index) for task in tasks)}: the loss is {loss} "
                f"and the norm of its gradient {norm}, not finite; try a lower inner_lr ({self.config.inner_lr:g}) or "
                f"outer_lr ({self.config.outer_lr:g}), or max_grad_norm=1.0"
            )
        return norm


def mean(values: Iterable[float]) -> float:
    """Returns the mean, whatever the order of the values."""
    values = list(values)
    return math.fsum(values) / len(values)


def gain(stats: Sequence[InnerStats]) -> dict[str, float]:
    """Returns what :class:`StepLog` says about inner loops."""
    before, after = mean(s.before for s in stats), mean(s.after for s in stats)
    return {
        "support_before": before,
        "support_after": after,
        "inner_gain": (before - after) / before if before > 0 else 0.0,
    }
