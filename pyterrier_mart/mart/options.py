"""How MART is trained."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyterrier_mart.checks import check_choice, check_number, check_whole

__all__ = ["LOSSES", "TrainingOptions"]

LOSSES = ("pairwise-cross-entropy", "pairwise-softmax")


@dataclass(frozen=True, repr=False)
class TrainingOptions:
    """How :meth:`MARTReRanker.fit` trains.

    The defaults are those of the MART paper, but for ``max_grad_norm``: the paper does not clip (``None``). Its batches
    of 2 are read as 2 pairs, of two documents each, and its 16 as pairs between changes of the weights.

    Attributes:
        epochs: Maximum number of epochs; an epoch is every relevant document of every query once.
        patience: Number of epochs without a better AP@100 of the re-ranked validation queries after which training
            stops. The best epoch's weights are kept.
        learning_rate: Of the pretrained parameters.
        new_learning_rate: Of the translation heads and the linear layer; ``None`` for the same.
        batch_size: Pairs of a relevant and another document, a step and device.
        accumulation: Steps whose gradients are added up before the weights change.
        warmup: Share of all steps in which the learning rate rises from 0; after that it stays (Adam without decay).
        negatives: Pairs for each relevant document and epoch, with other documents that are not relevant.
        negative_depth: Number of first documents of the first stage that negatives are drawn from.
        validation_depth: Number of first documents that are re-ranked in validation.
        validation_queries: Number of validation queries that are used, chosen by the seed; ``None`` for all, 0 for
            none: all epochs are run and the last weights are kept. Where computing is slow, validation may take longer
            than training; few queries choose a poor epoch.
        loss: ``"pairwise-cross-entropy"``, -log p of the relevant document where p is the softmax over the two scores,
            or ``"pairwise-softmax"``, 1 - p.
        freeze_layers: Number of first layers that keep their weights, as the embeddings then do (0: only the
            embeddings, ``None``: nothing is frozen).
        max_grad_norm: Gradients are scaled down to this norm; ``None`` for never.
        seed: Seed of the order, the negatives and dropout.
        output_dir: Where checkpoints are kept. Training that was interrupted resumes from there. ``None`` for a
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
    max_grad_norm: float | None = 1.0
    seed: int = 42
    output_dir: str | os.PathLike[str] | None = None
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: If one is out of range; the message names it.
        """
        for name in ("epochs", "patience", "batch_size", "accumulation", "negatives", "negative_depth",
                     "validation_depth"):  # fmt: skip
            check_whole(name, getattr(self, name))
        for name in ("validation_queries", "freeze_layers"):
            check_whole(name, getattr(self, name), 0, optional=True)
        for name in ("learning_rate", "new_learning_rate", "max_grad_norm"):
            check_number(name, getattr(self, name), positive=True, optional=name != "learning_rate")
        if not 0 <= self.warmup < 1:  # transformers reads 1 as one step
            raise ValueError(f"warmup must be in [0, 1), not {self.warmup!r}")
        check_choice("loss", self.loss, LOSSES)
        if self.output_dir == "":  # it would be the current directory
            raise ValueError("output_dir must be None or the path of a directory, not ''")

    def __repr__(self) -> str:
        """Returns the values that are not the default, as a call."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        changed = {name: value for name, value in values.items() if value != getattr(_DEFAULT, name)}
        return f"TrainingOptions({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def as_json(self) -> dict[str, Any]:
        """Returns what changes the result, as JSON values."""
        values = dataclasses.asdict(self)
        values.pop("output_dir")
        return {**values, "trainer": {name: repr(value) for name, value in sorted(self.trainer.items())}}


_DEFAULT = TrainingOptions()
