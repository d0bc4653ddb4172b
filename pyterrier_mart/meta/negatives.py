"""Negatives of a query: documents that do not answer it in any language, drawn by chance or by distance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyterrier_mart.datasets.corpus import EmptyLanguageError, MultilingualCorpus, normalised
from pyterrier_mart.dense.encoder import Side, TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.vectors import unit

__all__ = ["NegativeMiner"]

_TRIES = 8  # to hit a document that may be drawn, before all that may be are listed


class NegativeMiner:
    """Draws negatives for queries of a corpus (Section 4.2 of the paper).

    Never drawn is what may answer the query: its relevant documents, those of the same query in other languages, their
    translations (``dgroup``), and what has the same text as one of these.

    ``config.negatives`` says which are drawn, by their distance d_n to the query and that of the positive, d_p:
    ``"hard"`` ones have d_n < d_p, ``"semi-hard"`` ones d_p < d_n < d_p + margin, and ``"easy"`` ones
    d_n > d_p + margin. The distance is that of the loss: Euclidean for ``"triplet"``, the negative dot product for
    ``"triplet-dot"``, and 1 - cosine for others. Where
    too few are such, the ones that come nearest to it are taken too: the nearest to the query if none is hard, the
    farthest if none is easy.

    Args:
        corpus: The corpus; all of its documents in the languages of a set can be negatives.
        config: ``negatives``, ``negative_lang``, ``loss`` and ``triplet_margin`` are used.
        encoder: The encoder before training, unless negatives are random. It encodes the texts at once, so that later
            training of it changes nothing.
        query_langs: Languages whose queries are encoded; ``None`` for all.
        doc_langs: Languages whose documents are encoded; ``None`` for all.

    Attributes:
        query_vectors: Vectors of the queries, of shape (queries, dimension); 0 in languages that were not encoded.

    Raises:
        ValueError: If there is no encoder where one is needed.
    """

    query_vectors: npt.NDArray[np.float32]

    def __init__(
        self,
        corpus: MultilingualCorpus,
        config: MetaConfig,
        encoder: TextEncoder | None = None,
        query_langs: Collection[str] | None = None,
        doc_langs: Collection[str] | None = None,
    ):
        self.corpus, self.config = corpus, config
        # Documents of a language stand next to each other, so that its vectors are one block of memory.
        docs = corpus.docs.sort_values("doc_lang", kind="stable", ignore_index=True)
        self._docnos: list[str] = docs["docno"].tolist()
        self._place = {docno: i for i, docno in enumerate(self._docnos)}
        self._lang: list[str] = docs["doc_lang"].tolist()
        self._spans = {lang: slice(at[0], at[-1] + 1) for lang, at in _places(self._lang).items()}
        self._group: list[str] = docs["dgroup"].tolist()
        self._text = [normalised(text) for text in docs["text"].tolist()]
        self._of_group, self._of_text = _places(self._group), _places(self._text)

        topics = corpus.topics
        self._row = {qid: i for i, qid in enumerate(topics["qid"].tolist())}
        self._query_lang: list[str] = topics["query_lang"].tolist()
        self._qgroup: list[str] = topics["qgroup"].tolist()
        self._same_query = _places(self._qgroup)
        self._answers: dict[str, frozenset[int]] = {}
        if encoder is not None:
            langs = query_langs or corpus.query_langs
            self.query_vectors = _encoded(encoder, "query", topics["query"], topics["query_lang"], langs)
            vectors = _encoded(encoder, "document", docs["text"], docs["doc_lang"], doc_langs or corpus.doc_langs)
            self._doc_vectors = vectors if config.loss in ("triplet", "triplet-dot") else unit(vectors)
            self._squares = (vectors.astype(np.float64) ** 2).sum(axis=1)
        elif config.negatives != "random":
            raise ValueError(f"negatives={config.negatives!r} needs an encoder")

    def answers(self, qid: str) -> frozenset[str]:
        """Returns the docnos of all that may answer a query, in any language: what is never a negative of it."""
        return frozenset(self._docnos[i] for i in self._places_of_answers(qid))

    def answer_groups(self, qid: str) -> frozenset[str]:
        """Returns the ``dgroup`` of each of :meth:`answers`."""
        return frozenset(self._group[i] for i in self._places_of_answers(qid))

    def _places_of_answers(self, qid: str) -> frozenset[int]:
        qgroup = self._qgroup[self._row[qid]]
        if qgroup not in self._answers:
            qids = [self.corpus.topics["qid"].iat[i] for i in self._same_query[qgroup]]
            relevant = {self._place[docno] for same in qids for docno in self.corpus.relevant[same]}
            translations = _alike(relevant, self._group, self._of_group)
            twins = _alike(translations, self._text, self._of_text)
            self._answers[qgroup] = _alike(twins, self._group, self._of_group)
        return self._answers[qgroup]

    def sample(
        self, qid: str, positive: str, doc_langs: Sequence[str], n: int, rng: np.random.Generator
    ) -> tuple[str, ...]:
        """Draws negatives.

        Random ones are of each language with the same chance, whatever it has; others are drawn from all that are
        hard, semi-hard or easy.

        Args:
            qid: The query.
            positive: ``docno`` of the positive, from which distances are measured.
            doc_langs: Languages of the set's documents.
            n: How many to draw.
            rng: Source of chance.

        Returns:
            The ``docno`` of ``n`` different negatives.

        Raises:
            EmptyLanguageError: If the corpus has no documents in a language of ``config.negative_lang``.
            ValueError: If there are fewer than ``n``.
        """
        langs = tuple(doc_langs)
        if self.config.negative_lang != "any":
            of_query = self.config.negative_lang == "query"
            langs = (self._query_lang[self._row[qid]] if of_query else self._lang[self._place[positive]],)
        if lacking := [lang for lang in langs if lang not in self._spans]:
            raise EmptyLanguageError(
                f"negatives of the query {qid}: the corpus has no documents in {', '.join(lacking)} "
                f"(negative_lang={self.config.negative_lang!r}); it has some in {', '.join(self._spans)}"
            )
        barred = set(self._places_of_answers(qid))
        if self.config.negatives == "random":
            chosen = self._random(barred, langs, n, rng)
        else:
            chosen = self._mined(qid, positive, barred, langs, n, rng)
        if len(chosen) < n:
            raise ValueError(
                f"expected {n} negatives for the query {qid}, found {len(chosen)} in {', '.join(langs)} that do not "
                "answer it"
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
        self, qid: str, positive: str, barred: set[int], langs: Iterable[str], n: int, rng: np.random.Generator
    ) -> Sequence[int]:
        places, distances = [], []
        for lang in langs:
            span = self._spans[lang]
            free = np.array([i not in barred for i in range(span.start, span.stop)])
            places.append(np.flatnonzero(free) + span.start)
            distances.append(self._distances(qid, span)[free])
        place, distance = np.concatenate(places), np.concatenate(distances)
        of_positive, margin = self.distance(qid, positive), self.config.triplet_margin
        # How far each is from being hard, semi-hard or easy; negative if it is.
        match self.config.negatives:
            case "hard":
                lacking = distance - of_positive
            case "semi-hard":
                lacking = np.maximum(of_positive - distance, distance - (of_positive + margin))
            case _:
                lacking = (of_positive + margin) - distance
        found = np.flatnonzero(lacking < 0)
        if len(found) >= n:
            return place[rng.choice(found, n, replace=False)].tolist()
        return place[np.argsort(lacking, kind="stable")[:n]].tolist()

    def distance(self, qid: str, docno: str) -> float:
        """Returns the distance of a query and a document under the encoder, in the metric of the loss."""
        place = self._place[docno]
        return float(self._distances(qid, slice(place, place + 1))[0])

    def _distances(self, qid: str, span: slice) -> npt.NDArray[np.float64]:
        query = self.query_vectors[self._row[qid]]
        if self.config.loss == "triplet-dot":
            return -(self._doc_vectors[span] @ query).astype(np.float64)
        if self.config.loss != "triplet":
            return 1 - (self._doc_vectors[span] @ unit(query[None])[0]).astype(np.float64)
        products = (self._doc_vectors[span] @ query).astype(np.float64)
        square = float((query.astype(np.float64) ** 2).sum())
        # Not the norm of the differences, which would copy all vectors for each query.
        return np.sqrt(np.maximum(self._squares[span] + square - 2 * products, 0))


def _encoded(
    encoder: TextEncoder, side: Side, texts: pd.Series, langs: pd.Series, wanted: Collection[str]
) -> npt.NDArray[np.float32]:
    here = langs.isin(list(wanted)).to_numpy()
    encoded = encoder.encode(texts[here], side)
    vectors = np.zeros((len(texts), encoded.shape[1]), dtype=np.float32)
    vectors[here] = encoded
    return vectors


def _places(values: Sequence[str]) -> dict[str, list[int]]:
    places = defaultdict(list)
    for i, value in enumerate(values):
        places[value].append(i)
    return dict(places)


def _alike(places: Iterable[int], values: Sequence[str], of_value: Mapping[str, list[int]]) -> frozenset[int]:
    """Returns the places of all that has a value in common with some places."""
    return frozenset(i for value in {values[place] for place in places} for i in of_value[value])
