"""Meta-learners: MAML, Reptile, Meta-SGD, and fine-tuning on the same tasks; MAML-Align is a module of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.meta.config import ALGORITHMS, MetaConfig
from pyterrier_mart.meta.episodes import MetaTask
from pyterrier_mart.meta.fast_weights import FastWeights, InPlaceFastWeights, fast_weights
from pyterrier_mart.meta.inner_loop import InnerStats, adapt_copy, inner_loop
from pyterrier_mart.meta.learner import MetaLearner, StepLog, gain, mean
from pyterrier_mart.meta.maml_align import MAMLAlign
from pyterrier_mart.meta.selection import layer_group

__all__ = [
    "MAML",
    "JointFineTune",
    "MAMLAlign",
    "MetaLearner",
    "MetaSGD",
    "Reptile",
    "StepLog",
    "adapt_copy",
    "learner_class",
]


class MAML(MetaLearner):
    """Model-agnostic meta-learning (Algorithm 1 of the paper; Finn et al. 2017).

    The query sets' mean loss after ``inner_steps`` steps on the support set is minimised. In transfer paths of three
    sets, both query sets count alike. With ``adapt="last:N"`` this is ANIL (Raghu et al. 2020).
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        self._fast: FastWeights = fast_weights(encoder, config, self.selection)

    def _outer_gradient(self, tasks: Sequence[MetaTask]) -> StepLog:
        config = self.config
        losses, stats = [], []
        with self._fast as fast:
            for task in self._seeded(tasks):
                fast.reset()
                support = self._prepare(task.support)
                stats.append(inner_loop(fast, support, self.loss, config.inner_steps, config.inner_lr))
                queries = [episode for episode in (task.query, task.query2) if episode is not None]
                found = []
                for i, episode in enumerate(queries):
                    loss = self._prepare(episode).loss(fast, self.loss)
                    found.append(loss.item())
                    fast.backward(loss, 1 / (len(queries) * len(tasks)), retain_graph=i + 1 < len(queries))
                losses.append(mean(found))
        return StepLog(mean(losses), **gain(stats))


class MetaSGD(MAML):
    """MAML with learned inner learning rates, one for each layer (Li et al. 2017; Antoniou et al. 2019).

    Rates start at ``inner_lr`` and stay positive: their logarithms are what AdamW changes, with a learning rate of
    0.01, under which a rate changes by 1 % in a step.
    """

    _RATES_LR = 0.01

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        start = next(iter(self.trained.values())).new_tensor(math.log(config.inner_lr))
        logs = {
            group: torch.nn.Parameter(start.clone())
            for group in dict.fromkeys(map(layer_group, self.selection.adapted))
        }
        self._log_rates = {name: logs[layer_group(name)] for name in self.selection.adapted}
        self.trained.update({f"log_rate.{group}": rate for group, rate in logs.items()})
        self.optimizer.add_param_group(
            {"params": list(logs.values()), "lr": self._RATES_LR, "base_lr": self._RATES_LR, "weight_decay": 0.0}
        )
        self._fast = fast_weights(encoder, config, self.selection, self._log_rates)

    @property
    def rates(self) -> Mapping[str, float]:
        """The inner learning rate of each adapted weight, by its name."""
        return {name: math.exp(rate.item()) for name, rate in self._log_rates.items()}


class Reptile(MetaLearner):
    """Reptile (Nichol et al. 2018): the weights move towards those that plain gradient descent on a task ends at.

    The inner loop takes the task's sets in turn. What the outer loop's AdamW sees as a gradient is the mean gradient
    of the steps, (θ - φ) / (α n). Weights that the inner loop does not adapt stay as they are.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        self._fast = InPlaceFastWeights(encoder, config.replace(order="first", backend="inplace"), self.selection)

    def _outer_gradient(self, tasks: Sequence[MetaTask]) -> StepLog:
        config = self.config
        losses, stats = [], []
        start = {name: self.trained[name].detach().clone() for name in self.selection.adapted}
        moved = {name: torch.zeros_like(weight) for name, weight in start.items()}
        with self._fast as fast:
            for task in self._seeded(tasks):
                fast.reset()
                sets = [self._prepare(e) for e in (task.support, task.query, task.query2) if e is not None]
                if config.inner_steps < len(sets):
                    raise ValueError(
                        f"inner_steps={config.inner_steps} is too few for reptile: task {task.index} has {len(sets)} "
                        "sets, and each needs a step"
                    )
                found = []
                for i in range(config.inner_steps):
                    loss = sets[i % len(sets)].loss(fast, self.loss)
                    found.append(loss.item())
                    fast.step(loss, config.inner_lr)
                with torch.no_grad():
                    stats.append(InnerStats(found[0], sets[0].loss(fast, self.loss).item()))
                    for name, weight in fast.params.items():
                        moved[name] += start[name] - weight
                losses.append(mean(found))
        for name, distance in moved.items():
            self.trained[name].grad = distance / (config.inner_lr * config.inner_steps * len(tasks))
        return StepLog(mean(losses), **gain(stats))


class JointFineTune(MetaLearner):
    """Fine-tuning on the rows of the same tasks, without an inner loop: the baseline that meta-learning has to beat.

    A step minimises the mean loss over all rows of all sets of its tasks.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        self._fast = InPlaceFastWeights(encoder, config.replace(order="first", backend="inplace"), self.selection)

    def _outer_gradient(self, tasks: Sequence[MetaTask]) -> StepLog:
        rows = sum(len(e) for t in tasks for e in (t.support, t.query, t.query2) if e is not None)
        total = []
        with self._fast as fast:
            for task in self._seeded(tasks):
                for episode in (task.support, task.query, task.query2):
                    if episode is not None:
                        loss = self._prepare(episode).loss(fast, self.loss)
                        total.append(loss.item() * len(episode) / rows)
                        fast.backward(loss, len(episode) / rows)
        return StepLog(math.fsum(total))


_LEARNERS: Mapping[str, type[MetaLearner]] = {
    "maml-align": MAMLAlign,
    "maml": MAML,
    "reptile": Reptile,
    "meta-sgd": MetaSGD,
    "fine-tune": JointFineTune,
}


def learner_class(algorithm: str) -> type[MetaLearner]:
    """Returns the class of an algorithm.

    Raises:
        ValueError: If there is none; nothing is learned in ``"zero-shot"``.
    """
    if algorithm not in _LEARNERS:
        known = ", ".join(name for name in ALGORITHMS if name in _LEARNERS)
        raise ValueError(f"algorithm must be one of {known}, which learn, not {algorithm!r}")
    return _LEARNERS[algorithm]
