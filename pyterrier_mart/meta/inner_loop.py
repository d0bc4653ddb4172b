"""The inner loop: sets tokenised once, gradient descent on a support set, and few-shot adapted copies of a model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyterrier_mart.dense.encoder import Side, TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.fast_weights import FastWeights, InPlaceFastWeights
from pyterrier_mart.meta.losses import TaskLoss, Vectors
from pyterrier_mart.meta.tasks import PairSet, TaskSet

__all__ = ["InnerStats", "PreparedSet", "PreparedTexts", "adapt_copy", "inner_loop"]


class PreparedTexts:
    """Tokenised texts; each distinct text is there once, in batches of like length.

    Args:
        encoder: Tokenises.
        texts: The texts.
        side: Whether they are queries or documents.
    """

    def __init__(self, encoder: TextEncoder, texts: Sequence[str], side: Side):
        batches, places = encoder.batches(texts, side)
        self.batches = [encoder.features(batch, side) for batch in batches]
        self.order = torch.tensor(places, device=encoder.device)

    def embed(self, fast: FastWeights) -> Tensor:
        """Returns the vectors of all texts at the adapted weights."""
        vectors = [fast.embed(batch) for batch in self.batches]
        return (vectors[0] if len(vectors) == 1 else torch.cat(vectors))[self.order]


class PreparedSet:
    """A support or query set with its texts tokenised, for several forward passes.

    Sentences of graded pairs are encoded as queries, on both sides.

    Args:
        encoder: Tokenises.
        of: The set.
    """

    def __init__(self, encoder: TextEncoder, of: TaskSet):
        self.of = of
        if isinstance(of, PairSet):
            self.texts = [PreparedTexts(encoder, (*of.first, *of.second), "query")]
        else:
            sides: tuple[tuple[tuple[str, ...], Side], ...] = ((of.queries, "query"), (of.documents, "document"))
            self.texts = [PreparedTexts(encoder, texts, side) for texts, side in sides]

    def vectors(self, fast: FastWeights) -> Vectors:
        """Returns the set's vectors at the adapted weights."""
        found = [texts.embed(fast) for texts in self.texts]
        return Vectors(*(found[0].split(len(self.of)) if len(found) == 1 else found))

    def loss(self, fast: FastWeights, loss: TaskLoss) -> Tensor:
        """Returns the set's loss at the adapted weights."""
        return loss(*self.vectors(fast), self.of)


class InnerStats(NamedTuple):
    """What an inner loop did.

    Attributes:
        before: The support loss before the first step.
        after: The support loss after the last.
    """

    before: float
    after: float


def inner_loop(fast: FastWeights, support: PreparedSet, loss: TaskLoss, steps: int, lr: float) -> InnerStats:
    """Takes steps of gradient descent on a support set.

    Args:
        fast: The weights that are adapted.
        support: The set.
        loss: Its loss.
        steps: How many.
        lr: The inner learning rate α.

    Returns:
        The loss before and after; the latter from a forward pass of its own, without a graph.
    """
    losses = []
    for _ in range(steps):
        found = support.loss(fast, loss)
        losses.append(found.item())
        fast.step(found, lr)
    with torch.no_grad():
        losses.append(support.loss(fast, loss).item())
    return InnerStats(losses[0], losses[-1])


def adapt_copy(
    encoder: TextEncoder,
    support_sets: Sequence[TaskSet],
    config: MetaConfig,
    *,
    steps: int | None = None,
    lr: float | None = None,
) -> TextEncoder:
    """Adapts a copy of a model to a few examples, as the inner loop does; the model stays as it is.

    Args:
        encoder: Encodes with the model.
        support_sets: The examples. A step is taken on each of several sets in turn.
        config: How to adapt: loss, weights, steps and learning rate.
        steps: Steps on each set; by default ``config.inner_steps``.
        lr: The learning rate; by default ``config.inner_lr``.

    Returns:
        The adapted copy.
    """
    adapted = TextEncoder(copy.deepcopy(encoder.model), encoder.max_length)
    config = config.replace(order="first", backend="inplace")
    loss = TaskLoss(adapted.model, config)
    prepared = [PreparedSet(adapted, of) for of in support_sets]
    with torch.enable_grad(), InPlaceFastWeights(adapted, config) as fast:
        for _ in range(config.inner_steps if steps is None else steps):
            for of in prepared:
                fast.step(of.loss(fast, loss), config.inner_lr if lr is None else lr)
        fast.keep()
    return adapted
