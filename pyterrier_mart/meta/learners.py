"""Meta-learners: MAML, MAML-Align, and fine-tuning on the same tasks."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.fast_weights import FastWeights, InPlaceFastWeights, fast_weights
from pyterrier_mart.meta.inner_loop import InnerStats, PreparedSet, inner_loop
from pyterrier_mart.meta.learner import MetaLearner, StepLog, gain, mean
from pyterrier_mart.meta.losses import Vectors, distillation_loss
from pyterrier_mart.meta.tasks import MetaTask, transfer_paths

__all__ = ["LEARNERS", "MAML", "JointFineTune", "MAMLAlign"]


class MAML(MetaLearner):
    """Model-agnostic meta-learning (Algorithm 1 of the paper; Finn et al. 2017).

    The query sets' mean loss after ``inner_steps`` steps on the support set is minimised. In transfer paths of three
    sets, both query sets count alike. With ``adapt="last:N"`` this is ANIL (Raghu et al. 2020).
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        self._fast: FastWeights = fast_weights(encoder, config)

    def outer_gradient(self, tasks: Sequence[MetaTask]) -> StepLog:
        """Adapts to each task's support set and adds the gradient of its query sets."""
        config = self.config
        losses, stats = [], []
        with self._fast as fast:
            for task in self.seeded(tasks):
                fast.reset()
                support = PreparedSet(self.encoder, task.support_set)
                stats.append(inner_loop(fast, support, self.loss, config.inner_steps, config.inner_lr))
                found = []
                for i, of in enumerate(task.query_sets, start=1):
                    loss = PreparedSet(self.encoder, of).loss(fast, self.loss)
                    found.append(loss.item())
                    count = len(task.query_sets)
                    fast.backward(loss, 1 / (count * len(tasks)), retain_graph=i < count)
                losses.append(mean(found))
        return StepLog(mean(losses), **gain(stats))


class JointFineTune(MetaLearner):
    """Fine-tuning on the rows of the same tasks, without an inner loop: the baseline that meta-learning has to beat.

    A step minimises the mean loss over all rows of all sets of its tasks.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        self._fast = InPlaceFastWeights(encoder, config.replace(order="first", backend="inplace"))

    def outer_gradient(self, tasks: Sequence[MetaTask]) -> StepLog:
        """Adds the gradient of all rows."""
        rows = sum(len(of) for task in tasks for of in task.sets)
        total = []
        with self._fast as fast:
            for task in self.seeded(tasks):
                for of in task.sets:
                    loss = PreparedSet(self.encoder, of).loss(fast, self.loss)
                    total.append(loss.item() * len(of) / rows)
                    fast.backward(loss, len(of) / rows)
        return StepLog(math.fsum(total))


class _Found(NamedTuple):
    """Of one task: losses of the teacher on Y, the student on Z and on Y (where compared), distillation, inner loop."""

    teacher: float
    student: float
    shared: float
    kd: float
    stats: InnerStats


class MAMLAlign(MetaLearner):
    """MAML-Align (Algorithm 3 of the paper).

    A task has sets X (support), Y (query) and Z (second query). The teacher adapts to X with ``inner_steps`` steps
    and is measured on Y; the student adapts to Y with ``student_steps`` steps and is measured on Z. Minimised is the
    mean over tasks of (L_Y + L_Z) / 2 + λ L_kd, where L_kd is how far the student's view of Y, before its own steps
    (``kd_at="pre"``) or after them, is from the teacher's.

    With ``kd="loss"`` it is the squared difference of the mean losses on Y over the step's tasks, with ``"loss-sum"``
    of their sums, and then always with a gradient into both.

    With ``share="separate"`` the teacher has weights of its own, which start as the model's: they minimise L_Y, and the
    model, which is the student, L_Z / 2 + λ L_kd, which never changes the teacher.

    That gradients are of first order, that teacher and student share their weights, and that the distillation does not
    change the teacher, are choices of ours where the paper is open: see :meth:`MetaConfig.paper`.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        if any(len(path) < 3 for path in transfer_paths(config.transfer)):
            raise ValueError(
                "transfer must have a second query set for maml-align, such as 'mono-bi-multi', not "
                f"{config.transfer!r}"
            )
        self._student = self._teacher = fast_weights(encoder, config)
        self._apart = config.share == "separate"
        if self._apart:
            # what is frozen is the same for both, and the largest part
            shared = {id(w): w for name, w in encoder.model.named_parameters() if name not in self.trained}
            model = copy.deepcopy(encoder.model, memo=dict(shared))
            own = dict(model.named_parameters())
            self.models.append(model)
            self.trained.update({f"teacher.{name}": own[name] for name in self.selection.trained})
            self._teacher = fast_weights(TextEncoder(model, encoder.max_length), config)
            self.optimizer = self.new_optimizer()
        self._distils = config.kd != "none" and config.kd_lambda > 0
        self._of_losses = self._distils and config.kd in ("loss", "loss-sum")
        self._of_vectors = self._distils and not self._of_losses
        # a gradient of the distillation into the teacher
        self._both = not self._apart and (config.kd == "loss-sum" or not config.kd_detach_teacher)

    def outer_gradient(self, tasks: Sequence[MetaTask]) -> StepLog:
        """Adds the gradient of the teacher's and the student's losses, and of the distillation."""
        config = self.config
        found = []
        slope: dict[str, Tensor] = {}  # gradient of mean L_T - mean L_S, whose square is known only after all tasks
        with ExitStack() as stack:
            student = stack.enter_context(self._student)
            teacher = stack.enter_context(self._teacher) if self._apart else student
            for task in self.seeded(tasks):
                found.append(self._task(task, teacher, student, 1 / len(tasks), slope))
        teacher_loss, student_loss = mean(f.teacher for f in found), mean(f.student for f in found)
        kd = 0.0
        if self._of_losses:
            factor = len(tasks) ** 2 if config.kd == "loss-sum" else 1
            difference = teacher_loss - mean(f.shared for f in found)
            kd = factor * difference**2
            for name, gradient in slope.items():
                weight = self.trained[name]
                change = gradient * (config.kd_lambda * factor * 2 * difference)
                weight.grad = change if weight.grad is None else weight.grad.add_(change)
        elif self._of_vectors:
            kd = mean(f.kd for f in found)
        return StepLog(
            (teacher_loss + student_loss) / 2 + config.kd_lambda * kd,
            teacher_loss,
            student_loss,
            kd,
            **gain([f.stats for f in found]),
        )

    def _task(
        self, task: MetaTask, teacher: FastWeights, student: FastWeights, scale: float, slope: dict[str, Tensor]
    ) -> _Found:
        config = self.config
        x, y, z = (PreparedSet(self.encoder, of) for of in task.sets)
        # Weights are in one place: what the teacher is compared with is computed before it, and once more after it.
        compared = self._preview(student, y) if self._both and self._of_vectors else None

        teacher.reset()
        stats = inner_loop(teacher, x, self.loss, config.inner_steps, config.inner_lr)
        vectors = y.vectors(teacher)
        teacher_loss = self.loss(*vectors, y.of)
        outer = teacher_loss if self._apart else teacher_loss / 2
        if compared is not None:
            outer = outer + config.kd_lambda * self._distillation(vectors, compared, y)
        if self._of_losses and self._both:
            _add(slope, teacher.gradient(teacher_loss, retain_graph=True), scale)
        teacher.backward(outer, scale)
        target = vectors.detach()
        del vectors, outer

        student.reset()
        kd, shared = self._student_steps(student, y, target, scale, slope)
        student_loss = z.loss(student, self.loss)
        student.backward(student_loss, scale / 2)
        return _Found(teacher_loss.item(), student_loss.item(), shared, kd, stats)

    def _student_steps(
        self, student: FastWeights, y: PreparedSet, target: Vectors, scale: float, slope: dict[str, Tensor]
    ) -> tuple[float, float]:
        """Adapts the student to Y and adds the gradient of the distillation.

        Before its steps it is compared in the forward pass that the first step needs anyway.

        Returns:
            The distillation and the loss on Y where it was compared.
        """
        config = self.config
        kd = shared = 0.0
        for i in range(config.student_steps + 1):
            last = i == config.student_steps
            compare = self._distils and (i == 0 if config.kd_at == "pre" else last)
            if last and not compare:
                break
            vectors = y.vectors(student)
            loss = self.loss(*vectors, y.of)
            # the graph of the steps before is needed for Z after Y
            retain = not last or config.order == "second"
            if compare and self._of_vectors:
                found = self._distillation(target, vectors, y)
                student.backward(found, config.kd_lambda * scale, retain_graph=retain)
                kd = found.item()
            elif compare:
                _add(slope, student.gradient(loss, retain_graph=retain), -scale)
                shared = loss.item()
            if not last:
                student.step(loss, config.inner_lr)
        return kd, shared

    def _preview(self, student: FastWeights, y: PreparedSet) -> Vectors:
        """Returns the student's vectors of Y where it is compared, without a graph."""
        student.reset()
        if self.config.kd_at == "post":
            for _ in range(self.config.student_steps):
                student.step(y.loss(student, self.loss), self.config.inner_lr)
        with torch.no_grad():
            return y.vectors(student)

    def _distillation(self, teacher: Vectors, student: Vectors, y: PreparedSet) -> Tensor:
        return distillation_loss(teacher, student, y.of, self.config.kd, self.config.kd_temperature)


def _add(slope: dict[str, Tensor], gradient: dict[str, Tensor], scale: float) -> None:
    for name, value in gradient.items():
        value = value.detach() * scale
        slope[name] = slope[name] + value if name in slope else value


#: The classes of the algorithms; nothing is learned in ``"zero-shot"``.
LEARNERS: Mapping[str, type[MetaLearner]] = {"maml-align": MAMLAlign, "maml": MAML, "fine-tune": JointFineTune}
