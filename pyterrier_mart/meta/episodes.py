"""The sets of a meta-task: triplets of texts, or graded pairs, with what is relevant to what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pyterrier_mart.meta.errors import AlignmentError

__all__ = ["Episode", "MetaTask", "PairEpisode", "Row", "TripletEpisode"]


class Row(NamedTuple):
    """A question, a candidate that answers it, and candidates that do not.

    Attributes:
        qid: The question.
        positive: ``docno`` of the positive.
        negatives: ``docno`` of each negative.
    """

    qid: str
    positive: str
    negatives: tuple[str, ...]


@dataclass(frozen=True)
class TripletEpisode:
    """A support or query set for search: rows over distinct questions and distinct candidates.

    Texts that several rows share are there once, so that they are encoded once.

    Attributes:
        qids: The distinct questions.
        docnos: The distinct candidates: positives and negatives of all rows.
        queries: Texts of ``qids``.
        documents: Texts of ``docnos``.
        anchors: Position of each row's question in ``qids``, of shape (rows,).
        positives: Position of each row's positive in ``docnos``, of shape (rows,).
        negatives: Positions of each row's negatives, of shape (rows, negatives).
        relevant: Whether a candidate is relevant to a question, of shape (questions, candidates).
    """

    qids: tuple[str, ...]
    docnos: tuple[str, ...]
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    anchors: npt.NDArray[np.int64]
    positives: npt.NDArray[np.int64]
    negatives: npt.NDArray[np.int64]
    relevant: npt.NDArray[np.bool_]

    @classmethod
    def build(
        cls,
        rows: Sequence[Row],
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        relevant: Mapping[str, Collection[str]],
    ) -> TripletEpisode:
        """Returns the set of some rows.

        Args:
            rows: The rows.
            queries: Texts by qid.
            documents: Texts by docno.
            relevant: For each qid, the docnos that are relevant to it, in any language.

        Raises:
            AlignmentError: If the positive of a row is not relevant to its question, or a negative is.
            ValueError: If there are no rows, or not equally many negatives in all.
        """
        if not rows or len({len(row.negatives) for row in rows}) != 1:
            raise ValueError("a set needs rows, all with equally many negatives")
        for i, row in enumerate(rows):
            if row.positive not in relevant[row.qid]:
                raise AlignmentError(f"row {i}: the positive {row.positive} is not relevant to the question {row.qid}")
            for negative in row.negatives:
                if negative in relevant[row.qid]:
                    raise AlignmentError(f"row {i}: the negative {negative} is relevant to the question {row.qid}")
        qids = list(dict.fromkeys(row.qid for row in rows))
        docnos = list(dict.fromkeys(docno for row in rows for docno in (row.positive, *row.negatives)))
        of_qid = {qid: i for i, qid in enumerate(qids)}
        of_docno = {docno: i for i, docno in enumerate(docnos)}
        return cls(
            qids=tuple(qids),
            docnos=tuple(docnos),
            queries=tuple(queries[qid] for qid in qids),
            documents=tuple(documents[docno] for docno in docnos),
            anchors=np.array([of_qid[row.qid] for row in rows], dtype=np.int64),
            positives=np.array([of_docno[row.positive] for row in rows], dtype=np.int64),
            negatives=np.array([[of_docno[docno] for docno in row.negatives] for row in rows], dtype=np.int64).reshape(
                len(rows), len(rows[0].negatives)
            ),
            relevant=np.array([[docno in relevant[qid] for docno in docnos] for qid in qids], dtype=bool),
        )

    def __len__(self) -> int:
        return len(self.anchors)


@dataclass(frozen=True)
class PairEpisode:
    """A support or query set of sentence pairs with graded similarity.

    Attributes:
        ids: Names of the pairs.
        first: The first sentences.
        second: The second sentences.
        scores: Gold similarity in [0, 1], of shape (pairs,).
    """

    ids: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...]
    scores: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)


Episode: TypeAlias = TripletEpisode | PairEpisode


@dataclass(frozen=True)
class MetaTask:
    """A meta-task.

    Attributes:
        index: Position in its sampler, which together with the seed decides what it holds.
        support: The support set.
        query: The query set; for MAML-Align also what the student adapts to (the set Y that both share).
        query2: The student's query set (Z), in transfer paths of three sets.
    """

    index: int
    support: Episode
    query: Episode
    query2: Episode | None = None
