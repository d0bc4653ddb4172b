"""Losses of a support or query set from vectors, and distillation of a teacher's view of a set into a student."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pyterrier_mart.meta.config import KD, LOSSES, MetaConfig
from pyterrier_mart.meta.episodes import Episode, PairEpisode, TripletEpisode

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["TaskLoss", "Vectors", "distillation_loss", "episode_logits", "ranking_loss"]

# What losses of sentence-transformers compare: a question with its positive and negatives, or two texts with a label.
_TUPLES = ("DistillKLDivLoss", "MarginMSELoss", "MultipleNegativesRankingLoss", "TripletLoss")
_PAIRS = ("AnglELoss", "CoSENTLoss", "ContrastiveLoss", "CosineSimilarityLoss", "OnlineContrastiveLoss")
_NAMES = {"triplet": "TripletLoss", "cosine-similarity": "CosineSimilarityLoss", "cosent": "CoSENTLoss"}


class Vectors(NamedTuple):
    """Vectors of a set.

    Attributes:
        first: Of the distinct questions or the first sentences, of shape (n, dimension).
        second: Of the distinct candidates or the second sentences, of shape (m, dimension).
    """

    first: Tensor
    second: Tensor

    def detach(self) -> Vectors:
        """Returns them without their graph."""
        return Vectors(self.first.detach(), self.second.detach())


class TaskLoss:
    """The loss ``config.loss`` of a set.

    Triplets can be given to a loss of graded pairs: a question and its positive have the label 1, and 0 with a
    negative. Losses that compare scores with labels take the same labels.

    Args:
        model: The model, which losses of sentence-transformers ask for.
        config: Names the loss and its scale or margin.

    Raises:
        ValueError: If there is no such loss, or it does not work from vectors alone.
    """

    def __init__(self, model: SentenceTransformer, config: MetaConfig):
        self.config = config
        self._loss: Any = None
        self._name = _NAMES.get(config.loss, config.loss)
        if config.loss != "mnrl":
            self._loss = _sentence_transformers_loss(model, config)

    def __call__(self, first: Tensor, second: Tensor, episode: Episode) -> Tensor:
        """Returns the mean loss over rows.

        Args:
            first: Vectors of the set's questions or first sentences, of shape (n, dimension).
            second: Vectors of its candidates or second sentences, of shape (m, dimension).
            episode: The set.

        Raises:
            ValueError: If the loss needs triplets and the set has pairs, or rows without negatives.
        """
        if isinstance(episode, PairEpisode):
            if self._name not in _PAIRS:
                raise ValueError(
                    f"loss={self.config.loss!r} needs questions with positives and negatives, not graded pairs; "
                    "expected 'cosine-similarity' or 'cosent'"
                )
            loss: Tensor = self._loss.compute_loss_from_embeddings(
                [first, second], torch.as_tensor(episode.scores, device=first.device).to(first.dtype)
            )
            return loss
        if self._loss is None:
            return ranking_loss(first, second, episode, self.config.loss_scale)
        return self._of_triplets(first, second, episode)

    def _of_triplets(self, first: Tensor, second: Tensor, episode: TripletEpisode) -> Tensor:
        rows, count = episode.negatives.shape
        if count == 0:
            raise ValueError(f"loss={self.config.loss!r} needs negatives, but the set has none")
        device = first.device
        anchor = first[torch.as_tensor(episode.anchors, device=device)]
        positive = second[torch.as_tensor(episode.positives, device=device)]
        negative = second[torch.as_tensor(episode.negatives, device=device)]  # (rows, negatives, dimension)
        if self._name in _PAIRS:
            compared = [anchor.repeat(1 + count, 1), torch.cat([positive, *negative.unbind(1)])]
            labels = first.new_zeros((1 + count) * rows)
            labels[:rows] = 1
        elif self._name == "TripletLoss":  # one triplet for each negative
            compared = [anchor.repeat(count, 1), positive.repeat(count, 1), torch.cat(negative.unbind(1))]
            labels = first.new_ones(count * rows)
        else:
            compared = [anchor, positive, *negative.unbind(1)]
            labels = first.new_zeros(rows, 1 + count)
            labels[:, 0] = 1
        loss: Tensor = self._loss.compute_loss_from_embeddings(compared, labels)
        return loss


def ranking_loss(first: Tensor, second: Tensor, episode: TripletEpisode, scale: float = 20.0) -> Tensor:
    """Returns the multiple negatives ranking loss over all candidates of a set.

    Candidates that are relevant to a row's question besides its positive, such as translations of it, are no
    negatives of the row, nor are those with the text of a relevant one. Where there are none, and no candidate is of
    two rows, this is ``MultipleNegativesRankingLoss`` of sentence-transformers.

    Args:
        first: Vectors of the questions, of shape (questions, dimension).
        second: Vectors of the candidates, of shape (candidates, dimension).
        episode: The set.
        scale: Factor of cosine similarities.
    """
    place: dict[str, int] = {}
    texts = np.array([place.setdefault(text, len(place)) for text in episode.documents])
    relevant = np.zeros((len(episode.qids), len(place)), dtype=bool)
    for j, text in enumerate(texts):
        relevant[:, text] |= episode.relevant[:, j]
    masked = relevant[:, texts][episode.anchors]
    masked[np.arange(len(masked)), episode.positives] = False
    device = first.device
    logits = episode_logits(first, second, 1 / scale)[torch.as_tensor(episode.anchors, device=device)]
    logits = logits.masked_fill(torch.as_tensor(masked, device=device), -torch.inf)
    return functional.cross_entropy(logits, torch.as_tensor(episode.positives, device=device))


def episode_logits(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Returns cosine similarities divided by the temperature, of shape (first, second)."""
    return functional.normalize(first, dim=-1) @ functional.normalize(second, dim=-1).T / temperature


def distillation_loss(
    teacher: Vectors, student: Vectors, episode: Episode, kind: str = "kl-logits", temperature: float = 0.05
) -> Tensor:
    """Returns how far a student's view of a set is from a teacher's.

    Args:
        teacher: The teacher's vectors of the set.
        student: The student's.
        episode: The set.
        kind: ``"kl-logits"``: the mean divergence of the student's distribution over candidates from the
            teacher's, which is 0 only if they are equal; ``"margin-mse"``: the mean squared difference of their
            margins between positive and negative (of pairs: of their similarities); ``"mse-embedding"``: of their
            vectors.
        temperature: τ of ``"kl-logits"``. There is no factor τ²: the ranking loss has its scale within the
            logits too, so that with τ = 1 / scale both have gradients of the same size.

    Raises:
        ValueError: If it is another kind.
    """
    if kind == "kl-logits":
        expected = functional.log_softmax(episode_logits(*teacher, temperature), dim=-1)
        found = functional.log_softmax(episode_logits(*student, temperature), dim=-1)
        return functional.kl_div(found, expected, reduction="batchmean", log_target=True)
    if kind == "margin-mse":
        return functional.mse_loss(_margins(student, episode), _margins(teacher, episode))
    if kind == "mse-embedding":
        return functional.mse_loss(torch.cat(student), torch.cat(teacher))
    raise ValueError(f"kind must be kl-logits, margin-mse or mse-embedding (of {', '.join(KD)}), not {kind!r}")


def _margins(vectors: Vectors, episode: Episode) -> Tensor:
    scores = episode_logits(*vectors, 1.0)
    if isinstance(episode, PairEpisode):
        return scores.diagonal()
    device = scores.device
    rows = scores[torch.as_tensor(episode.anchors, device=device)]
    positive = rows.gather(1, torch.as_tensor(episode.positives, device=device)[:, None])
    return positive - rows.gather(1, torch.as_tensor(episode.negatives, device=device))


def _sentence_transformers_loss(model: SentenceTransformer, config: MetaConfig) -> Any:
    from sentence_transformers.sentence_transformer import losses

    if config.loss == "triplet":
        return losses.TripletLoss(model, losses.TripletDistanceMetric.EUCLIDEAN, config.triplet_margin)
    name = _NAMES.get(config.loss, config.loss)
    if name not in (*_TUPLES, *_PAIRS):
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)}, or a loss of sentence-transformers that needs only vectors "
            f"({', '.join(sorted((*_TUPLES, *_PAIRS)))}), not {config.loss!r}"
        )
    return getattr(losses, name)(model)
