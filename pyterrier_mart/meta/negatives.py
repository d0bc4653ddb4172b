"""Negatives of a question: candidates that do not answer it in any language, drawn by chance or by distance."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from pyterrier_mart.datasets.corpus import MultilingualCorpus, normalised
from pyterrier_mart.dense.encoder import Side, TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.errors import EmptyLanguageError
from pyterrier_mart.vectors import unit

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CorpusVectors", "NegativeMiner", "VectorSource"]

_Floats: TypeAlias = npt.NDArray[np.float32]

_TRIES = 8  # to hit a candidate that may be drawn, before all that may be are listed

#: Vectors by id, or of shape (texts, dimension) in the order of the corpus.
VectorSource: TypeAlias = "Mapping[str, Sequence[float] | npt.NDArray[np.floating]] | npt.NDArray[np.floating]"


class CorpusVectors:
    """Vectors of the questions and candidates of a corpus, language by language, computed when needed and kept.

    Args:
        corpus: The corpus.
        encoder: Computes the vectors. It must not be trained before they are computed.
        vectors: Vectors of questions and of candidates that are there already, instead of ``encoder``: for each side
            a mapping from qid or docno, which may hold more than the corpus has, or an array with a row for each row
            of ``corpus.topics`` or ``corpus.docs``.

    Raises:
        ValueError: If both or neither are given, or an array has another number of rows.
    """

    def __init__(
        self,
        corpus: MultilingualCorpus,
        encoder: TextEncoder | None = None,
        vectors: tuple[VectorSource, VectorSource] | None = None,
    ):
        if (encoder is None) == (vectors is None):
            raise ValueError("distances need an encoder, or vectors of questions and candidates, and not both")
        self._encoder = encoder
        self._frames: dict[Side, tuple[pd.DataFrame, str, str, str]] = {
            "query": (corpus.topics, "qid", "query", "query_lang"),
            "document": (corpus.docs, "docno", "text", "doc_lang"),
        }
        self._sources: dict[Side, VectorSource] = {}
        if vectors is not None:
            self._sources = {"query": vectors[0], "document": vectors[1]}
            for side, source in self._sources.items():
                frame, id, _, _ = self._frames[side]
                if not isinstance(source, Mapping) and (source.ndim != 2 or len(source) != len(frame)):
                    raise ValueError(
                        f"vectors of {id}: expected a row for each of {len(frame)}, found an array of shape "
                        f"{source.shape}"
                    )
        self._kept: dict[tuple[Side, str], _Floats] = {}

    def of(self, side: Side, lang: str) -> _Floats:
        """Returns the vectors of a language's questions or candidates, of shape (texts, dimension), in their order.

        Raises:
            ValueError: If there is none for an id, or it is not finite.
        """
        key = (side, lang)
        if key not in self._kept:
            self._kept[key] = self._compute(side, lang)
        return self._kept[key]

    def _compute(self, side: Side, lang: str) -> _Floats:
        frame, id, text, language = self._frames[side]
        here = (frame[language] == lang).to_numpy()
        rows = frame[here]
        if self._encoder is not None:
            vectors = self._encoder.encode(rows[text], side)
        else:
            source = self._sources[side]
            if isinstance(source, Mapping):
                if (missing := next((name for name in rows[id] if name not in source), None)) is not None:
                    raise ValueError(f"vectors: there is none for the {id} {missing}")
                vectors = np.array([source[name] for name in rows[id]], dtype=np.float32)
            else:
                vectors = np.asarray(source[here], dtype=np.float32)
        if not (finite := np.isfinite(vectors).all(axis=1)).all():
            raise ValueError(f"vectors: that of the {id} {rows[id].iloc[int(np.argmin(finite))]} is not finite")
        return vectors

    def key(self) -> str:
        """Returns what the vectors follow from: a digest of the encoder's weights, or of the given vectors in use."""
        digest = hashlib.sha256()
        if self._encoder is not None:
            digest.update(repr(self._encoder.max_length).encode())
            for name, weights in sorted(self._encoder.model.state_dict().items()):
                digest.update(name.encode())
                digest.update(weights.detach().float().cpu().contiguous().numpy().data)
        else:
            for (side, lang), vectors in sorted(self._kept.items()):
                digest.update(f"{side} {lang}".encode())
                digest.update(np.ascontiguousarray(vectors).data)
        return digest.hexdigest()


class NegativeMiner:
    """Draws negatives for questions of a corpus (Section 4.2 of the paper).

    Never drawn is what may answer the question: its relevant candidates, those of the same question in other
    languages, their translations (``dgroup``), and what has the same text as one of these.

    ``config.negatives`` says which are drawn, by their distance d_n to the question and that of the positive, d_p:
    ``"hard"`` ones have d_n < d_p, ``"semi-hard"`` ones d_p < d_n < d_p + margin, and ``"easy"`` ones
    d_n > d_p + margin. The distance is that of the loss, Euclidean for ``"triplet"`` and 1 - cosine for others. Where
    too few are such, the ones that come nearest to it are taken too: the nearest to the question if none is hard, the
    farthest if none is easy.

    Args:
        corpus: The corpus; all of its candidates in the languages of a set can be negatives.
        config: ``negatives``, ``negative_lang``, ``loss`` and ``triplet_margin`` are used.
        encoder: The encoder before training, unless negatives are random or there are ``vectors``.
        vectors: See :class:`CorpusVectors`.

    Raises:
        ValueError: If there is no encoder where one is needed, or both an encoder and vectors.
    """

    def __init__(
        self,
        corpus: MultilingualCorpus,
        config: MetaConfig,
        encoder: TextEncoder | None = None,
        *,
        vectors: tuple[VectorSource, VectorSource] | None = None,
    ):
        self.corpus, self.config = corpus, config
        self.vectors: CorpusVectors | None = None
        if encoder is not None or vectors is not None:
            self.vectors = CorpusVectors(corpus, encoder, vectors)
        elif config.negatives != "random":
            raise ValueError(f"negatives={config.negatives!r} needs an encoder, or vectors")

        # Candidates of a language stand next to each other, so that its vectors are one block of memory.
        docs = corpus.docs.sort_values("doc_lang", kind="stable")
        self._docnos: list[str] = docs["docno"].tolist()
        self._position = {docno: i for i, docno in enumerate(self._docnos)}
        self._spans = _spans(docs["doc_lang"].tolist())
        self._lang_of: dict[str, str] = dict(zip(self._docnos, docs["doc_lang"].tolist(), strict=True))
        self._group: list[str] = docs["dgroup"].tolist()
        self._text = [normalised(text) for text in docs["text"].tolist()]
        self._of_group, self._of_text = _positions(self._group), _positions(self._text)

        topics = corpus.topics
        qids: list[str] = topics["qid"].tolist()
        self._query_lang: dict[str, str] = dict(zip(qids, topics["query_lang"].tolist(), strict=True))
        rows = defaultdict(list)
        for qid, lang in self._query_lang.items():
            rows[lang].append(qid)
        self._query_row = {qid: i for of_lang in rows.values() for i, qid in enumerate(of_lang)}
        self._qgroup: dict[str, str] = dict(zip(qids, topics["qgroup"].tolist(), strict=True))
        self._same_question = defaultdict(list)
        for qid, qgroup in self._qgroup.items():
            self._same_question[qgroup].append(qid)
        self._answers: dict[str, tuple[tuple[int, ...], frozenset[str]]] = {}
        self._blocks: dict[str, _Block] = {}

    def answers(self, qid: str) -> frozenset[str]:
        """Returns the docnos of all that may answer a question, in any language: what is never a negative of it."""
        return self._of_question(qid)[1]

    def answer_groups(self, qid: str) -> frozenset[str]:
        """Returns the ``dgroup`` of each of :meth:`answers`."""
        return frozenset(self._group[i] for i in self._of_question(qid)[0])

    def _of_question(self, qid: str) -> tuple[tuple[int, ...], frozenset[str]]:
        qgroup = self._qgroup[qid]
        if qgroup not in self._answers:
            relevant = {
                self._position[docno]
                for same in self._same_question[qgroup]
                for docno in self.corpus.relevant.get(same, ())
            }
            translations = _members(relevant, self._group, self._of_group)
            twins = _members(translations, self._text, self._of_text)
            found = sorted(_members(twins, self._group, self._of_group))
            self._answers[qgroup] = tuple(found), frozenset(self._docnos[i] for i in found)
        return self._answers[qgroup]

    def languages(self, qid: str, positive: str, doc_langs: Sequence[str]) -> tuple[str, ...]:
        """Returns the languages that negatives of a row are drawn from: ``config.negative_lang``.

        Raises:
            EmptyLanguageError: If the corpus has no candidates in one.
        """
        match self.config.negative_lang:
            case "doc":
                chosen: tuple[str, ...] = (self._lang_of[positive],)
            case "query":
                chosen = (self._query_lang[qid],)
            case _:
                chosen = tuple(doc_langs)
        for lang in chosen:
            if lang not in self._spans:
                raise EmptyLanguageError(
                    f"negatives of the question {qid}: the corpus has no candidates in {lang} "
                    f"(negative_lang={self.config.negative_lang!r}); it has some in {', '.join(self._spans)}"
                )
        return chosen

    def sample(
        self,
        qid: str,
        positive: str,
        doc_langs: Sequence[str],
        n: int,
        rng: np.random.Generator,
        exclude: Collection[str] = (),
    ) -> tuple[str, ...]:
        """Draws negatives.

        Random ones are of each language with the same chance, whatever it has; others are drawn from all that are
        hard, semi-hard or easy.

        Args:
            qid: The question.
            positive: ``docno`` of the positive, from which distances are measured.
            doc_langs: Languages of the set's candidates.
            n: How many to draw.
            rng: Source of chance.
            exclude: Docnos that must not be drawn.

        Returns:
            The ``docno`` of ``n`` different negatives.

        Raises:
            EmptyLanguageError: If the corpus has no candidates in a language.
            ValueError: If there are fewer than ``n``.
        """
        langs = self.languages(qid, positive, doc_langs)
        barred = {*self._of_question(qid)[0], *(self._position[docno] for docno in exclude)}
        if self.config.negatives == "random":
            chosen = self._random(barred, langs, n, rng)
        else:
            chosen = self._mined(qid, positive, barred, langs, n, rng)
        if len(chosen) < n:
            raise ValueError(
                f"expected {n} negatives for the question {qid}, found {len(chosen)} in {', '.join(langs)} that do "
                "not answer it"
            )
        return tuple(self._docnos[i] for i in chosen)

    def _random(self, barred: set[int], langs: Iterable[str], n: int, rng: np.random.Generator) -> Sequence[int]:
        spans = [self._spans[lang] for lang in langs]
        chosen: list[int] = []
        while spans and len(chosen) < n:
            which = int(rng.integers(len(spans)))
            span = spans[which]
            for _ in range(_TRIES):
                if (pick := int(rng.integers(span.start, span.stop))) not in barred:
                    break
            else:
                left = [i for i in range(span.start, span.stop) if i not in barred]
                if not left:
                    del spans[which]
                    continue
                pick = left[rng.integers(len(left))]
            barred.add(pick)
            chosen.append(pick)
        return chosen

    def _mined(
        self,
        qid: str,
        positive: str,
        barred: Collection[int],
        langs: Iterable[str],
        n: int,
        rng: np.random.Generator,
    ) -> Sequence[int]:
        vector = self._question_vector(qid)
        positive_lang = self._lang_of[positive]
        row = self._position[positive] - self._spans[positive_lang].start
        to_positive = float(self._block(positive_lang).distances(vector, row)[0])
        free = np.ones(len(self._docnos), dtype=bool)
        free[list(barred)] = False
        places, distances = [], []
        for lang in langs:
            span = self._spans[lang]
            left = np.flatnonzero(free[span])
            places.append(left + span.start)
            distances.append(self._block(lang).distances(vector)[left])
        place = np.concatenate(places)
        lacking = self._lacking(np.concatenate(distances), to_positive)
        found = np.flatnonzero(lacking < 0)
        if len(found) >= n:
            return place[rng.choice(found, n, replace=False)].tolist()
        return place[np.argsort(lacking, kind="stable")[:n]].tolist()

    def _lacking(self, distances: npt.NDArray[np.float64], positive: float) -> npt.NDArray[np.float64]:
        # How far each is from being hard, semi-hard or easy; negative if it is.
        margin = self.config.triplet_margin
        match self.config.negatives:
            case "hard":
                return distances - positive
            case "semi-hard":
                return np.maximum(positive - distances, distances - (positive + margin))
            case _:
                return (positive + margin) - distances

    def distance(self, qid: str, docno: str) -> float:
        """Returns the distance of a question and a candidate under the encoder, in the metric of the loss."""
        lang = self._lang_of[docno]
        row = self._position[docno] - self._spans[lang].start
        return float(self._block(lang).distances(self._question_vector(qid), row)[0])

    def prepare(self, query_langs: Iterable[str], doc_langs: Iterable[str]) -> None:
        """Computes the vectors of languages now, before training changes the encoder."""
        assert self.vectors is not None
        for lang in query_langs:
            self.vectors.of("query", lang)
        for lang in doc_langs:
            self.vectors.of("document", lang)

    def _question_vector(self, qid: str) -> _Floats:
        assert self.vectors is not None
        return self.vectors.of("query", self._query_lang[qid])[self._query_row[qid]]

    def _block(self, lang: str) -> _Block:
        if lang not in self._blocks:
            assert self.vectors is not None
            self._blocks[lang] = _Block(self.vectors.of("document", lang), euclidean=self.config.loss == "triplet")
        return self._blocks[lang]


class _Block:
    """Distances of a question to the candidates of a language."""

    def __init__(self, vectors: _Floats, *, euclidean: bool):
        self._euclidean = euclidean
        self._vectors = vectors if euclidean else unit(vectors)
        self._squares = (vectors.astype(np.float64) ** 2).sum(axis=1)

    def distances(self, question: _Floats, row: int | None = None) -> npt.NDArray[np.float64]:
        here = slice(None) if row is None else slice(row, row + 1)
        vector = question if self._euclidean else unit(question[None])[0]
        products = (self._vectors[here] @ vector).astype(np.float64)
        if not self._euclidean:
            return 1 - products
        square = float((question.astype(np.float64) ** 2).sum())
        # Not the norm of the differences, which would copy all vectors for each question.
        return np.sqrt(np.maximum(self._squares[here] + square - 2 * products, 0))


def _positions(values: Sequence[str]) -> dict[str, list[int]]:
    places = defaultdict(list)
    for i, value in enumerate(values):
        places[value].append(i)
    return dict(places)


def _members(places: Iterable[int], values: Sequence[str], of_value: Mapping[str, list[int]]) -> set[int]:
    return {i for value in {values[place] for place in places} for i in of_value[value]}


def _spans(langs: Sequence[str]) -> dict[str, slice]:
    return {lang: slice(places[0], places[-1] + 1) for lang, places in _positions(langs).items()}
