"""How meta-learning is done: one object for tasks, inner loop, outer loop, distillation."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyterrier_mart.checks import check_choice, check_flag, check_number, check_whole
from pyterrier_mart.files import read_json
from pyterrier_mart.meta.tasks import transfer_paths

__all__ = ["ALGORITHMS", "BACKENDS", "KD", "LOSSES", "NEGATIVES", "QUERY_SAMPLING", "MetaConfig"]

ALGORITHMS = ("maml-align", "maml", "fine-tune", "zero-shot")
BACKENDS = ("inplace", "functional", "learn2learn")
KD = ("kl-logits", "loss", "loss-sum", "margin-mse", "mse-embedding", "none")
LOSSES = ("mnrl", "triplet", "triplet-dot", "cosine-similarity", "cosent")
NEGATIVES = ("random", "hard", "semi-hard", "easy")
QUERY_SAMPLING = ("random", "similar", "translation")
_CHOICES = {
    "order": ("first", "second"), "backend": BACKENDS, "kd": KD, "kd_at": ("pre", "post"),
    "share": ("tied", "separate"), "negatives": NEGATIVES, "negative_lang": ("doc", "query", "any"),
    "query_sampling": QUERY_SAMPLING,
}  # fmt: skip
_WHOLE = {
    "k_shot": 1, "q_query": 1, "n_neg": 1, "inner_steps": 0, "student_steps": 0, "meta_batch_size": 1, "eval_steps": 1,
    "seed": 0, "top_k": 1, "warmup_steps": 0,
}  # fmt: skip
_POSITIVE = ("inner_lr", "outer_lr", "kd_temperature", "loss_scale", "max_grad_norm")
_NOT_NEGATIVE = ("weight_decay", "kd_lambda", "triplet_margin")
_FLAGS = ("kd_detach_teacher", "update_on_valid", "train_mode")


@dataclass(frozen=True)
class MetaConfig:
    """Settings of meta-learning; the defaults are the recommended ones, :meth:`paper` and :meth:`code` the published.

    Better still, where encoding all training texts beforehand is affordable, are ``negatives="hard"`` and ``n_neg=2``.

    The paper is M'hamdi et al., arXiv 2309.08185; numbers are from its Appendix C.3.

    Attributes:
        transfer: The transfer mode, one of :data:`~pyterrier_mart.meta.tasks.TRANSFER_MODES`, or arrangements
            such as ``"el_el-el_ar|hi_hi-hi_de"``.
        k_shot: Queries of a support set.
        q_query: Queries of a query set.
        n_neg: Negatives of each row.
        query_sampling: How queries of the query set are chosen: ``"random"``, the support queries' nearest
            neighbours (``"similar"``), or the same queries in the query set's language (``"translation"``).
        top_k: Neighbours to choose from in ``"similar"``.
        negatives: Which documents are negatives, by their distance to the query under the encoder as it was before
            training: ``"random"``, ``"hard"`` (nearer than the positive), ``"semi-hard"`` (farther, but by less than
            the margin) or ``"easy"`` (farther by more).
        negative_lang: Languages to draw negatives from: the positive's (``"doc"``), the query's, whether or not the
            set has documents in it (``"query"``), or all of the set's documents (``"any"``).
        loss: ``"mnrl"`` (multiple negatives ranking), ``"triplet"`` (of Euclidean distances, as in the authors' code),
            ``"triplet-dot"`` (of dot products, as in the paper's Appendix B, which calls them distances: with the sign
            that a similarity needs, so that positives are drawn near), ``"cosine-similarity"`` or ``"cosent"`` (for
            graded pairs), or the name of a loss of sentence-transformers that works from embeddings, such as
            ``"MarginMSELoss"``.
        loss_scale: Factor of the similarities in ``"mnrl"``.
        triplet_margin: Margin of ``"triplet"`` and ``"triplet-dot"``, and of semi-hard and easy negatives. With other
            losses, distances are 1 - cosine, of which 0.1 to 0.3 is a margin.
        inner_lr: Learning rate α of the inner loop's SGD.
        inner_steps: Steps n of MAML, and of the teacher of MAML-Align.
        student_steps: Steps n' of the student of MAML-Align.
        order: ``"first"`` takes the outer gradient at the adapted weights, ``"second"`` through the inner loop.
        backend: What holds adapted weights: ``"inplace"``, ``"functional"`` (needed for second order) or
            ``"learn2learn"`` (for comparison).
        adapt: The weights that the inner loop changes: ``"no-embeddings"``, ``"all"``, ``"last:N"`` layers (ANIL), or
            a regular expression of parameter names.
        freeze: The weights that training leaves alone: ``None``, ``"embeddings"``, ``"first:N"`` layers and the
            embeddings, or a regular expression.
        meta_batch_size: Tasks of a meta-step.
        outer_lr: Learning rate β of the outer loop's AdamW.
        weight_decay: Of AdamW.
        warmup_steps: Meta-steps in which the outer learning rate rises.
        max_grad_norm: Outer gradients are scaled down to this norm; ``None`` for never.
        kd: How MAML-Align distils: ``"kl-logits"``, the divergence of the student's ranking of the shared set from the
            teacher's; ``"loss"``, the squared difference of the mean losses; ``"loss-sum"``, of the summed losses with
            a gradient into both (the authors' code); ``"margin-mse"``; ``"mse-embedding"``; ``"none"``.
        kd_lambda: Weight λ of the distillation.
        kd_temperature: Temperature τ of ``"kl-logits"``.
        kd_detach_teacher: Whether the teacher is not changed by the distillation.
        kd_at: Whether the student is compared before (``"pre"``) or after (``"post"``) its own inner loop.
        share: Whether teacher and student start from the same weights (``"tied"``) or learn apart (``"separate"``; the
            student is kept).
        n_tasks: Tasks of an epoch in training, validation and testing.
        max_steps: Maximum number of meta-steps; ``None`` for 20 epochs.
        eval_steps: Meta-steps between two evaluations on the development set.
        patience: Number of meta-steps without a better development score after which training stops; ``None``: never.
        valid_questions: Maximum number of queries of each language, chosen by the seed, in an evaluation; ``None`` for
            all. They are ranked against all documents of the development set.
        update_on_valid: Whether each epoch ends with tasks of the development set, which are trained on too, as in the
            paper. The development set still chooses the best step then, as there, but of data that was trained on.
        train_mode: Whether dropout is on.
        max_length: Wordpieces of a query and of a document that are read.
        seed: Of tasks, their order and dropout.
    """

    transfer: str = "mono-bi-multi"
    k_shot: int = 8
    q_query: int = 4
    n_neg: int = 1
    query_sampling: str = "random"
    top_k: int = 5
    negatives: str = "random"
    negative_lang: str = "any"
    loss: str = "mnrl"
    loss_scale: float = 20.0
    triplet_margin: float = 1.0
    inner_lr: float = 1e-3
    inner_steps: int = 5
    student_steps: int = 1
    order: str = "first"
    backend: str = "inplace"
    adapt: str = "no-embeddings"
    freeze: str | None = "embeddings"
    meta_batch_size: int = 4
    outer_lr: float = 3e-5
    weight_decay: float = 0.0
    warmup_steps: int = 8
    max_grad_norm: float | None = None
    kd: str = "kl-logits"
    kd_lambda: float = 0.5
    kd_temperature: float = 0.05
    kd_detach_teacher: bool = True
    kd_at: str = "pre"
    share: str = "tied"
    n_tasks: tuple[int, int, int] = (7000, 2000, 1000)
    max_steps: int | None = None
    eval_steps: int = 10
    patience: int | None = 50
    valid_questions: int | None = None
    update_on_valid: bool = False
    train_mode: bool = False
    max_length: tuple[int, int] = (96, 256)
    seed: int = 42

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: If one is out of range; the message names it.
        """
        for name, count in (("n_tasks", 3), ("max_length", 2)):
            values = getattr(self, name)
            values = tuple(values) if isinstance(values, (list, tuple)) else ()
            if len(values) != count or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in values):
                raise ValueError(f"{name} must be {count} whole numbers >= 1, not {getattr(self, name)!r}")
            object.__setattr__(self, name, values)
        for name, least in _WHOLE.items():
            check_whole(name, getattr(self, name), least)
        check_whole("max_steps", self.max_steps, 0, optional=True)
        for name in ("valid_questions", "patience"):
            check_whole(name, getattr(self, name), optional=True)
        for name in (*_POSITIVE, *_NOT_NEGATIVE):
            value = getattr(self, name)
            check_number(name, value, positive=name in _POSITIVE, optional=name == "max_grad_norm")
        for name in _FLAGS:
            check_flag(name, getattr(self, name))
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        if self.order == "second" and self.backend == "inplace":
            raise ValueError("order='second' needs backend='functional' (or 'learn2learn'), not 'inplace'")
        transfer_paths(self.transfer)

    @classmethod
    def paper(cls, algorithm: str = "maml-align", **changes: Any) -> MetaConfig:
        """Returns the settings that the paper states for an algorithm.

        MAML transfers in the mode ``"trans"``. Fine-tuning has a learning rate of its own, 5e-5, and batches of 8: a
        task of 4 and 4 queries. Training ends after 20 epochs, or 50 meta-steps without a better score on the
        development set, whose tasks are trained on too.

        Where the paper says nothing, or what cannot work, these are choices, with the others at hand:

        - ``order="first"``, as in the authors' code; its Algorithm 1 has no order.
        - ``share="tied"``, as in the code. The student of Algorithm 3 has weights of its own, which are never updated;
          ``"separate"`` updates them.
        - ``kd="loss"`` with ``kd_detach_teacher=True``: the paper's divergence of two numbers is always 0, the code
          has their squared difference, with a gradient into both (``kd="loss-sum"``).
        - ``loss="triplet"``, of distances, as in the code. ``"triplet-dot"`` is Appendix B's, of dot products.
        - 3 negatives of each query are 3 triplets; ``inner_lr`` is plain SGD's; dropout is off.

        Args:
            algorithm: One of :data:`ALGORITHMS`.
            changes: Other values.
        """
        check_choice("algorithm", algorithm, ALGORITHMS)
        stated: dict[str, Any] = {
            "n_neg": 3, "loss": "triplet", "triplet_margin": 1.0, "inner_lr": 1e-3, "inner_steps": 5,
            "student_steps": 1, "adapt": "all", "freeze": None, "outer_lr": 1e-5, "warmup_steps": 0,
            "kd": "loss", "kd_lambda": 0.5, "update_on_valid": True,
        }  # fmt: skip
        own: dict[str, dict[str, Any]] = {
            "maml": {"transfer": "trans"},
            "fine-tune": {
                "transfer": "mono-bi", "outer_lr": 5e-5, "meta_batch_size": 1, "k_shot": 4, "q_query": 4,
            },
        }  # fmt: skip
        return cls(**{**stated, **own.get(algorithm, {}), **changes})

    @classmethod
    def code(cls, algorithm: str = "maml-align", **changes: Any) -> MetaConfig:
        """Returns what the authors' published code does where it departs from the paper, if there is a setting.

        Its MAML trains on all transfer paths where it says ``trans``, and nothing stops it early.

        Args:
            algorithm: One of :data:`ALGORITHMS`.
            changes: Other values.
        """
        check_choice("algorithm", algorithm, ALGORITHMS)
        done: dict[str, Any] = {
            "n_neg": 1, "k_shot": 3, "loss": "triplet", "triplet_margin": 1.0, "inner_lr": 1e-3, "inner_steps": 5,
            "student_steps": 0, "adapt": "all", "freeze": None, "outer_lr": 5e-5, "warmup_steps": 0,
            "kd": "loss-sum", "kd_lambda": 0.5, "kd_detach_teacher": False, "update_on_valid": True,
            "query_sampling": "similar", "patience": None,
        }  # fmt: skip
        own = {"maml": {"transfer": "mixt"}, "fine-tune": {"transfer": "mono-bi"}}
        return cls(**{**done, **own.get(algorithm, {}), **changes})

    def replace(self, **changes: Any) -> MetaConfig:
        """Returns a copy with other values."""
        return dataclasses.replace(self, **changes)

    def short(self) -> str:
        """Returns the values that are not the default, as a call."""
        changed = (
            f"{f.name}={getattr(self, f.name)!r}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        )
        return f"MetaConfig({', '.join(changed)})"

    def as_json(self) -> dict[str, Any]:
        """Returns the values as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> MetaConfig:
        """Reads :meth:`as_json` or its text; what is not given keeps its default.

        Raises:
            ValueError: If it is not a JSON object, or a setting is unknown or out of range; the message names it.
        """
        values = json.loads(text) if isinstance(text, str) else text
        if not isinstance(values, Mapping):
            raise ValueError(f"the settings must be a JSON object, not {type(values).__name__}")
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"unknown setting {', '.join(unknown)}; expected some of {', '.join(sorted(known))}")
        return cls(**values)

    @classmethod
    def read(cls, path: Path) -> MetaConfig:
        """Reads a file of :meth:`as_json`; what is not given keeps its default.

        Raises:
            OSError: If the file cannot be read.
            ValueError: As :meth:`from_json`; the message names the file too.
        """
        values = read_json(path)
        try:
            return cls.from_json(values)
        except ValueError as err:
            raise ValueError(f"{path}: {err}") from err
