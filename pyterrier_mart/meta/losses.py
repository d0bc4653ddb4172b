"""Losses of a support or query set from vectors, and distillation of a teacher's view of a set into a student."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pyterrier_mart.meta.config import KD, LOSSES, MetaConfig
from pyterrier_mart.meta.tasks import PairSet, TaskSet, TripletSet

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["TaskLoss", "Vectors", "cosines", "distillation_loss", "ranking_loss"]

# What losses of sentence-transformers compare: a query with its positive and negatives, or two texts with a label.
_TUPLES = ("DistillKLDivLoss", "MarginMSELoss", "MultipleNegativesRankingLoss", "TripletLoss")
_PAIRS = ("AnglELoss", "CoSENTLoss", "ContrastiveLoss", "CosineSimilarityLoss", "OnlineContrastiveLoss")
_NAMES = {"triplet": "TripletLoss", "cosine-similarity": "CosineSimilarityLoss", "cosent": "CoSENTLoss"}


class Vectors(NamedTuple):
    """Vectors of a set.

    Attributes:
        first: Of the distinct queries or the first sentences, of shape (n, dimension).
        second: Of the distinct documents or the second sentences, of shape (m, dimension).
    """

    first: Tensor
    second: Tensor

    def detach(self) -> Vectors:
        """Returns them without their graph."""
        return Vectors(self.first.detach(), self.second.detach())


class TaskLoss:
    """The loss ``config.loss`` of a set.

    Triplets can be given to a loss of graded pairs: a query and its positive have the label 1, and 0 with a
    negative. Losses that compare scores with labels take the same labels.

    Args:
        model: The model, which losses of sentence-transformers ask for.
        config: Names the loss and its scale or margin.

    Raises:
        ValueError: If there is no such loss, or it does not work from vectors alone.
    """

    def __init__(self, model: SentenceTransformer, config: MetaConfig):
        self.config = config
        self._name = _NAMES.get(config.loss, config.loss)
        self._loss: Any = None
        if config.loss in ("mnrl", "triplet-dot"):
            return
        if self._name not in (*_TUPLES, *_PAIRS):
            raise ValueError(
                f"loss must be one of {', '.join(LOSSES)}, or a loss of sentence-transformers that needs only vectors "
                f"({', '.join(sorted((*_TUPLES, *_PAIRS)))}), not {config.loss!r}"
            )
        from sentence_transformers.sentence_transformer import losses

        if config.loss == "triplet":
            self._loss = losses.TripletLoss(model, losses.TripletDistanceMetric.EUCLIDEAN, config.triplet_margin)
        else:
            self._loss = getattr(losses, self._name)(model)

    def __call__(self, first: Tensor, second: Tensor, of: TaskSet) -> Tensor:
        """Returns the mean loss over rows.

        Args:
            first: Vectors of the set's queries or first sentences, of shape (n, dimension).
            second: Vectors of its documents or second sentences, of shape (m, dimension).
            of: The set.

        Raises:
            ValueError: If the loss needs triplets and the set has pairs.
        """
        if isinstance(of, PairSet):
            if self._name not in _PAIRS:
                raise ValueError(f"loss must be 'cosine-similarity' or 'cosent' for pairs, not {self.config.loss!r}")
            labels = torch.as_tensor(of.scores, device=first.device).to(first.dtype)
            return self._compared([first, second], labels)
        if self.config.loss == "mnrl":
            return ranking_loss(first, second, of, self.config.loss_scale)
        if self.config.loss == "triplet-dot":
            return functional.relu(self.config.triplet_margin - _margins(first @ second.T, of)).mean()
        rows, count = of.negatives.shape
        anchors, positives, negatives = _positions(of, first.device)
        anchor, positive, negative = first[anchors], second[positives], second[negatives].unbind(1)
        if self._name in _PAIRS:
            labels = first.new_zeros((1 + count) * rows)
            labels[:rows] = 1
            return self._compared([anchor.repeat(1 + count, 1), torch.cat([positive, *negative])], labels)
        if self._name == "TripletLoss":  # one triplet for each negative
            compared = [anchor.repeat(count, 1), positive.repeat(count, 1), torch.cat(negative)]
            return self._compared(compared, first.new_ones(count * rows))
        labels = first.new_zeros(rows, 1 + count)
        labels[:, 0] = 1
        return self._compared([anchor, positive, *negative], labels)

    def _compared(self, vectors: list[Tensor], labels: Tensor) -> Tensor:
        loss: Tensor = self._loss.compute_loss_from_embeddings(vectors, labels)
        return loss


def ranking_loss(first: Tensor, second: Tensor, of: TripletSet, scale: float = 20.0) -> Tensor:
    """Returns the multiple negatives ranking loss over all documents of a set.

    Documents that are relevant to a row's query besides its positive, such as translations of it, are no
    negatives of the row, nor are those with the text of a relevant one. Where there are none, and no document is of
    two rows, this is ``MultipleNegativesRankingLoss`` of sentence-transformers.

    Args:
        first: Vectors of the queries, of shape (queries, dimension).
        second: Vectors of the documents, of shape (documents, dimension).
        of: The set.
        scale: Factor of cosine similarities.
    """
    place: dict[str, int] = {}
    texts = np.array([place.setdefault(text, len(place)) for text in of.documents])
    relevant = np.zeros((len(of.qids), len(place)), dtype=bool)
    for j, text in enumerate(texts):
        relevant[:, text] |= of.relevant[:, j]
    masked = relevant[:, texts][of.anchors]
    masked[np.arange(len(masked)), of.positives] = False
    anchors, positives, _ = _positions(of, first.device)
    logits = cosines(first, second, 1 / scale)[anchors]
    logits = logits.masked_fill(torch.as_tensor(masked, device=first.device), -torch.inf)
    return functional.cross_entropy(logits, positives)


def cosines(first: Tensor, second: Tensor, temperature: float = 1.0) -> Tensor:
    """Returns cosine similarities divided by the temperature, of shape (first, second)."""
    return functional.normalize(first, dim=-1) @ functional.normalize(second, dim=-1).T / temperature


def distillation_loss(
    teacher: Vectors, student: Vectors, of: TaskSet, kind: str = "kl-logits", temperature: float = 0.05
) -> Tensor:
    """Returns how far a student's view of a set is from a teacher's.

    Args:
        teacher: The teacher's vectors of the set.
        student: The student's.
        of: The set.
        kind: ``"kl-logits"``: the mean divergence of the student's distribution over documents from the
            teacher's, which is 0 only if they are equal; ``"margin-mse"``: the mean squared difference of their
            margins between positive and negative (of pairs: of their similarities); ``"mse-embedding"``: of their
            vectors.
        temperature: τ of ``"kl-logits"``. There is no factor τ²: the ranking loss has its scale within the
            logits too, so that with τ = 1 / scale both have gradients of the same size.

    Raises:
        ValueError: If it is another kind.
    """
    if kind == "kl-logits":
        expected = functional.log_softmax(cosines(*teacher, temperature), dim=-1)
        found = functional.log_softmax(cosines(*student, temperature), dim=-1)
        return functional.kl_div(found, expected, reduction="batchmean", log_target=True)
    if kind == "margin-mse":
        return functional.mse_loss(_compared(student, of), _compared(teacher, of))
    if kind == "mse-embedding":
        return functional.mse_loss(torch.cat(student), torch.cat(teacher))
    raise ValueError(f"kind must be kl-logits, margin-mse or mse-embedding (of {', '.join(KD)}), not {kind!r}")


def _compared(vectors: Vectors, of: TaskSet) -> Tensor:
    scores = cosines(*vectors)
    return scores.diagonal() if isinstance(of, PairSet) else _margins(scores, of)


def _margins(scores: Tensor, of: TripletSet) -> Tensor:
    """Returns how much higher each row's positive scores than each of its negatives, of shape (rows, negatives)."""
    anchors, positives, negatives = _positions(of, scores.device)
    return scores[anchors].gather(1, positives[:, None]) - scores[anchors].gather(1, negatives)


def _positions(of: TripletSet, device: torch.device) -> list[Tensor]:
    return [torch.as_tensor(places, device=device) for places in (of.anchors, of.positives, of.negatives)]
