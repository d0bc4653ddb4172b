"""What all meta-learners share: the optimiser, a meta-step over tasks, and a state from which training resumes."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.fast_weights import select
from pyterrier_mart.meta.inner_loop import InnerStats
from pyterrier_mart.meta.losses import TaskLoss
from pyterrier_mart.meta.tasks import MetaTask

__all__ = ["MetaLearner", "StepLog", "gain", "mean"]

_NOT_MEASURED = math.nan
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class StepLog(NamedTuple):
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


class MetaLearner(ABC):
    """Changes a model's weights with an outer gradient over tasks.

    Args:
        encoder: Encodes with the model, which is trained in place.
        config: How.

    Raises:
        ValueError: If the settings select no weights, or there is no such loss.
        BackendError: If the backend cannot work with the model or the settings.

    Attributes:
        models: The model, and others that are trained with it.
        trained: What is trained, by name.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        self.encoder, self.config = encoder, config
        self.selection = select(encoder.model, config)
        self.loss = TaskLoss(encoder.model, config)
        weights = dict(encoder.model.named_parameters())
        self.models: list[torch.nn.Module] = [encoder.model]
        self.trained: dict[str, torch.nn.Parameter] = {name: weights[name] for name in self.selection.trained}
        self.steps = 0
        self.optimizer = self.new_optimizer()

    def new_optimizer(self) -> torch.optim.AdamW:
        """Returns an optimiser of what is trained; biases and weights of norms do not decay."""
        decaying = [weight for weight in self.trained.values() if weight.ndim > 1]
        others = [weight for weight in self.trained.values() if weight.ndim <= 1]
        groups: list[dict[str, Any]] = [{"params": decaying}, {"params": others, "weight_decay": 0.0}]
        config = self.config
        filled = [group for group in groups if group["params"]]
        return torch.optim.AdamW(filled, lr=config.outer_lr, weight_decay=config.weight_decay)

    @abstractmethod
    def outer_gradient(self, tasks: Sequence[MetaTask]) -> StepLog:
        """Adds the gradient of the mean over tasks to ``grad`` of what is trained; the model is as before."""

    def meta_step(self, tasks: Sequence[MetaTask]) -> StepLog:
        """Takes a step of the outer loop on the mean over tasks.

        If it fails, the weights are as before.

        Args:
            tasks: The tasks of the step; their order does not matter.

        Raises:
            ValueError: If the tasks do not suit the algorithm, or the loss or its gradient is not finite.
        """
        start = time.perf_counter()
        try:
            with self._modes(), torch.enable_grad():
                log = self.outer_gradient(tasks)
            largest = math.inf if self.config.max_grad_norm is None else self.config.max_grad_norm
            norm = float(torch.nn.utils.clip_grad_norm_(self.trained.values(), largest))
            if not (math.isfinite(norm) and math.isfinite(log.loss)):
                raise ValueError(
                    f"meta-step {self.steps + 1}, tasks {', '.join(str(task.index) for task in tasks)}: the loss is "
                    f"{log.loss}, its gradient's norm {norm}; try a lower inner_lr or outer_lr, or max_grad_norm"
                )
            for group in self.optimizer.param_groups:
                group["lr"] = self.config.outer_lr * min(1.0, (self.steps + 1) / max(1, self.config.warmup_steps))
            self.optimizer.step()
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return log._replace(grad_norm=norm, seconds=time.perf_counter() - start)

    def state(self, *, moments: bool = True) -> dict[str, Tensor]:
        """Returns copies of the trained weights, the step, and what AdamW remembers.

        A learner with the same model and settings that loads it continues bit for bit as this one would.

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
        """Goes back to a state of the same model and settings; without AdamW's part, AdamW starts again."""
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

    def seeded(self, tasks: Iterable[MetaTask]) -> Iterator[MetaTask]:
        """Yields tasks; where dropout is on, what each drops depends on seed, step and task alone."""
        for task in tasks:
            if self.config.train_mode:
                seed = np.random.SeedSequence([self.config.seed, self.steps, task.index]).generate_state(1)[0]
                torch.manual_seed(int(seed))
            yield task

    @contextmanager
    def _modes(self) -> Iterator[None]:
        """Dropout as the settings say, and the state of random numbers as before afterwards."""
        training = {module: module.training for model in self.models for module in model.modules()}
        for model in self.models:
            model.train(self.config.train_mode)
        device = self.encoder.device
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=self.config.train_mode):
                yield
        finally:
            for module, mode in training.items():
                module.training = mode


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
