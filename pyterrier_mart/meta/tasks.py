"""Meta-tasks: a support set and one or two query sets, and the languages that each of these is in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pyterrier_mart.checks import check_choice

__all__ = [
    "PAIR_TRANSFER_MODES", "SPLITS", "TRANSFER_MODES", "AlignmentError", "Arrangement", "MetaTask", "PairSet", "Row",
    "TaskSet", "TransferPath", "TripletSet", "parse_arrangements", "transfer_paths",
]  # fmt: skip

SPLITS = ("train", "valid", "test")

_SET = re.compile(r"([^\W\d_]+)_([^\W\d_]+(?:,[^\W\d_]+)*)")


class AlignmentError(ValueError):
    """The positive of a row is not relevant to its query, or a negative is."""


# ----------------------------------------------------------------------------------------------------------- languages


class Arrangement(NamedTuple):
    """The languages of one set of a meta-task.

    Attributes:
        query_lang: Language of the queries.
        doc_langs: Languages of the documents. Each query has one row for each of them.
    """

    query_lang: str
    doc_langs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.query_lang}_{','.join(self.doc_langs)}"


#: The languages of the support set, the query set, and perhaps the second query set of a meta-task.
TransferPath: TypeAlias = tuple[Arrangement, ...]


def parse_arrangements(spec: str) -> tuple[TransferPath, ...]:
    """Reads transfer paths such as ``"el_el-el_ar|hi_hi-hi_de"``.

    Paths are separated by ``|`` and their sets by ``-``; a set is the language of the queries, ``_``, and the
    languages of the documents, separated by commas.

    Raises:
        ValueError: If it cannot be read; the message names the part.
    """
    paths = []
    for text in spec.split("|"):
        found = [_SET.fullmatch(part.strip()) for part in text.split("-")]
        path = tuple(Arrangement(one[1], tuple(one[2].split(","))) for one in found if one is not None)
        twice = any(len(set(one.doc_langs)) < len(one.doc_langs) for one in path)
        if twice or len(path) < len(found) or len(path) not in (2, 3):
            raise ValueError(
                "transfer must be paths of a support set and one or two query sets, such as 'el_el-el_ar|hi_hi-hi_de', "
                f"each with different document languages, not {text!r} in {spec!r}"
            )
        paths.append(path)
    return tuple(paths)


_MONO_MONO = "el_el-ar_ar|hi_hi-de_de"
_MONO_BI = "el_el-el_ar|hi_hi-hi_de"
_MONO_MULTI = "el_el-el_ar,el|hi_hi-hi_de,hi"
_BI_MULTI = "el_ar-el_ar,el|hi_de-hi_de,hi"
_MODES = {
    "mono-mono": _MONO_MONO,
    "mono-bi": _MONO_BI,
    "mono-multi": _MONO_MULTI,
    "bi-multi": _BI_MULTI,
    "mixt": "|".join((_MONO_MONO, _MONO_BI, _MONO_MULTI, _BI_MULTI)),
    "mono-bi-multi": "el_el-el_ar-el_ar,el,hi|hi_hi-hi_de-hi_ar,de,hi",
}
#: The transfer modes of the MAML-Align paper (Table 4) in training, validation and testing. ``trans`` transfers in
#: another way in each.
TRANSFER_MODES: Mapping[str, Mapping[str, str]] = {
    **{name: dict.fromkeys(SPLITS, spec) for name, spec in _MODES.items()},
    "trans": {"train": _MONO_BI, "valid": _BI_MULTI, "test": _MONO_MULTI},
}
_PAIRS_MONO, _PAIRS_BI = ("en_en", "ar_ar", "es_es"), ("ar_en", "es_en", "tr_en")
_PAIR_MODES = {
    "mono-mono": "|".join(f"{a}-{b}" for a in _PAIRS_MONO for b in _PAIRS_MONO if a != b),
    "mono-bi": "|".join(f"{a}-{b}" for a in _PAIRS_MONO for b in _PAIRS_BI),
    "mono-bi-multi": "en_en-ar_en-en_ar,en,es",
}
#: Transfer modes of graded pairs; ``ar_en`` are pairs of an Arabic and an English sentence, in either order. The third
#: has, of the paper's three paths, the one that needs no machine translation.
PAIR_TRANSFER_MODES: Mapping[str, Mapping[str, str]] = {
    name: dict.fromkeys(SPLITS, spec) for name, spec in _PAIR_MODES.items()
}


def transfer_paths(
    transfer: str, split: str = "train", modes: Mapping[str, Mapping[str, str]] = TRANSFER_MODES
) -> tuple[TransferPath, ...]:
    """Returns the transfer paths of a mode in a split, or those of a user's own arrangements.

    Args:
        transfer: One of the modes, or what :func:`parse_arrangements` reads.
        split: One of :data:`SPLITS`.
        modes: The modes: :data:`TRANSFER_MODES` or :data:`PAIR_TRANSFER_MODES`.

    Raises:
        ValueError: If it is neither.
    """
    check_choice("split", split, SPLITS)
    if transfer not in modes and "_" not in transfer:
        raise ValueError(
            f"transfer must be one of {', '.join(modes)}, or arrangements such as 'el_el-el_ar', not {transfer!r}"
        )
    return parse_arrangements(modes[transfer][split] if transfer in modes else transfer)


# ---------------------------------------------------------------------------------------------------------------- sets


class Row(NamedTuple):
    """A query, a document that answers it, and documents that do not.

    Attributes:
        qid: The query.
        positive: ``docno`` of the positive.
        negatives: ``docno`` of each negative.
    """

    qid: str
    positive: str
    negatives: tuple[str, ...]


@dataclass(frozen=True)
class TripletSet:
    """A support or query set for search: rows over distinct queries and distinct documents.

    Texts that several rows share are there once, so that they are encoded once.

    Attributes:
        qids: The distinct queries.
        docnos: The distinct documents: positives and negatives of all rows.
        queries: Texts of ``qids``.
        documents: Texts of ``docnos``.
        anchors: Position of each row's query in ``qids``, of shape (rows,).
        positives: Position of each row's positive in ``docnos``, of shape (rows,).
        negatives: Positions of each row's negatives, of shape (rows, negatives).
        relevant: Whether a document is relevant to a query, of shape (queries, documents).
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
    ) -> TripletSet:
        """Returns the set of some rows.

        Args:
            rows: The rows, all with equally many negatives.
            queries: Texts by qid.
            documents: Texts by docno.
            relevant: For each qid, the docnos that are relevant to it, in any language.

        Raises:
            AlignmentError: If the positive of a row is not relevant to its query, or a negative is.
        """
        for row in rows:
            answers = relevant[row.qid]
            if row.positive not in answers or any(negative in answers for negative in row.negatives):
                raise AlignmentError(f"{row}: the positive must be relevant to the query, and no negative")
        qids = list(dict.fromkeys(row.qid for row in rows))
        docnos = list(dict.fromkeys(docno for row in rows for docno in (row.positive, *row.negatives)))
        query_at = {qid: i for i, qid in enumerate(qids)}
        doc_at = {docno: i for i, docno in enumerate(docnos)}
        negatives = [[doc_at[docno] for docno in row.negatives] for row in rows]
        return cls(
            qids=tuple(qids),
            docnos=tuple(docnos),
            queries=tuple(queries[qid] for qid in qids),
            documents=tuple(documents[docno] for docno in docnos),
            anchors=np.array([query_at[row.qid] for row in rows], dtype=np.int64),
            positives=np.array([doc_at[row.positive] for row in rows], dtype=np.int64),
            negatives=np.array(negatives, dtype=np.int64),
            relevant=np.array([[docno in relevant[qid] for docno in docnos] for qid in qids], dtype=bool),
        )

    def __len__(self) -> int:
        return len(self.anchors)


@dataclass(frozen=True)
class PairSet:
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


TaskSet: TypeAlias = TripletSet | PairSet


@dataclass(frozen=True)
class MetaTask:
    """A meta-task.

    Attributes:
        index: Position in its sampler, which together with the seed decides what it holds.
        support_set: The support set.
        query_set: The query set; for MAML-Align also what the student adapts to (the set Y that both share).
        query_set2: The student's query set (Z), in transfer paths of three sets.
    """

    index: int
    support_set: TaskSet
    query_set: TaskSet
    query_set2: TaskSet | None = None

    @property
    def query_sets(self) -> list[TaskSet]:
        """The one or two query sets."""
        return [self.query_set] if self.query_set2 is None else [self.query_set, self.query_set2]

    @property
    def sets(self) -> list[TaskSet]:
        """All sets."""
        return [self.support_set, *self.query_sets]
