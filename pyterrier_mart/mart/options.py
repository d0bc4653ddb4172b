"""How MART is trained."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LOSSES", "TrainingOptions"]

LOSSES = ("pairwise-cross-entropy", "pairwise-softmax")


@dataclass(frozen=True)
class TrainingOptions:
    """How :meth:`MARTReRanker.fit` trains. The defaults are those of the MART paper.

    Attributes:
        epochs: At most so many; an epoch is every relevant document of every query once.
        patience: Stop after so many epochs without a better AP@100 of the re-ranked validation queries. The best
            epoch's weights are kept.
        learning_rate: Of the pretrained parameters.
        new_learning_rate: Of the translation heads and the linear layer; ``None`` for the same.
        batch_size: Pairs a step and device.
        accumulation: Steps whose gradients are added up before the weights change.
        warmup: Share of all steps in which the learning rate rises from 0; after that it stays (Adam without decay).
        negatives: Pairs for each relevant document and epoch, with other documents that are not relevant.
        negative_depth: Negatives are drawn from so many first documents of the first stage.
        validation_depth: So many first documents are re-ranked in validation.
        validation_queries: So many of the validation queries are used, chosen by the seed; ``None`` for all, 0 for
            none: all epochs are run and the last weights are kept. Where computing is slow, validation may take longer
            than training; few queries choose a poor epoch.
        loss: ``"pairwise-cross-entropy"``, -log p of the relevant document where p is the softmax over the two scores,
            or ``"pairwise-softmax"``, 1 - p.
        freeze_layers: The embeddings and so many first layers keep their weights (0: only the embeddings, ``None``:
            nothing is frozen).
        max_grad_norm: Gradients are scaled down to this norm.
        seed: Of the order, the negatives and dropout.
        output_dir: Where checkpoints are kept. Training that was interrupted goes on from there. ``None`` for a
            temporary directory.
        trainer: More arguments of ``transformers.TrainingArguments``, such as ``{"bf16": True}``, ``{"report_to":
            ["wandb"]}`` or ``{"gradient_checkpointing": True}``.
    """

    epochs: int = 100
    patience: int = 20
    learning_rate: float = 2e-5
    new_learning_rate: float | None = None
    batch_size: int = 2
    accumulation: int = 8
    warmup: float = 0.0
    negatives: int = 1
    negative_depth: int = 500
    validation_depth: int = 100
    validation_queries: int | None = None
    loss: str = "pairwise-cross-entropy"
    freeze_layers: int | None = None
    max_grad_norm: float = 1.0
    seed: int = 42
    output_dir: str | os.PathLike[str] | None = None
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: If one is out of range; the message names it.
        """
        for name in ("epochs", "patience", "batch_size", "accumulation", "negatives", "negative_depth",
                     "validation_depth", "validation_queries"):  # fmt: skip
            value = getattr(self, name)
            if value in (None, 0) and value is not False and name == "validation_queries":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")
        if self.output_dir is not None and not (
            isinstance(self.output_dir, (str, os.PathLike)) and os.fspath(self.output_dir)
        ):
            raise ValueError(f"output_dir must be None or the path of a directory, not {self.output_dir!r}")
        for name in ("learning_rate", "new_learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            if not (value is None and name == "new_learning_rate") and not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number, not {value!r}")
        if not 0 <= self.warmup < 1:  # transformers reads 1 as one step
            raise ValueError(f"warmup must be in [0, 1), not {self.warmup!r}")
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, not {self.loss!r}")
        if self.freeze_layers is not None and (isinstance(self.freeze_layers, bool) or self.freeze_layers < 0):
            raise ValueError(f"freeze_layers must be None or a whole number >= 0, not {self.freeze_layers!r}")

    def short(self) -> str:
        """Returns the values that are not the default, as a call."""
        changed = (
            f"{f.name}={getattr(self, f.name)!r}"
            for f in dataclasses.fields(self)
            if f.name != "trainer" and getattr(self, f.name) != f.default
        )
        return f"TrainingOptions({', '.join(changed)})"

    def as_json(self) -> dict[str, Any]:
        """Returns what changes the result, as JSON values."""
        values = dataclasses.asdict(self)
        values.pop("output_dir")
        return {**values, "trainer": {name: repr(value) for name, value in sorted(self.trainer.items())}}
