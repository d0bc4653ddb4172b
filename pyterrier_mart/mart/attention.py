"""The translation attention matrix M^tr of a (query, document) pair: Algorithm 1 of the MART paper, sparse.

Every token attends to itself and to the other pieces of its word with weight 1, and to the pieces of each word of the
other side that is a translation of its own with the probability of that translation; rows are normalised. All pieces
of a word therefore have the same row, which depends on words only. That is how the matrix is kept: the word of each
token, links between words, and a factor for each word. Multiplying it with the tokens' values is then a sum over each
word's pieces, a sum over links, and a copy to the pieces, in time and memory linear in tokens and links; no m × m
matrix is made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pyterrier_mart.stopwords import function_words, long_list
from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation import TranslationTable
from pyterrier_mart.translation.lookup import look_up

__all__ = ["LINKING", "Links", "QueryLinks", "TranslationAttention", "WordLinker", "Words", "attention", "link"]


#: How words are linked. Models that were trained otherwise keep it: under 1, stop words were those of the long lists,
#: and their pieces attended to themselves alone.
LINKING = 2


class TranslationAttention(NamedTuple):
    """M^tr of a batch of passages with ``n`` tokens each, in factors.

    Attributes:
        words: int64 of shape (batch * n,): the word of each token, numbered through the batch. A token that is part
            of no word (special tokens, punctuation, padding) is a word of its own.
        rows: int64 of shape (links,): a word ...
        columns: int64 of shape (links,): ... the word that it attends to ...
        weights: float32 of shape (links,): ... and the probability of the translation. The first half are links from
            words of queries to words of documents, the second half the same links back.
        scale: float32 of shape (words,): what makes the rows of each word's pieces sum to 1.
    """

    words: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    weights: torch.Tensor
    scale: torch.Tensor

    def to(self, device: torch.device | str) -> TranslationAttention:
        """Returns the same matrix on a device."""
        return TranslationAttention(*(part.to(device, non_blocking=True) for part in self))

    def apply(self, values: torch.Tensor) -> torch.Tensor:
        """Returns M^tr V for values of shape (batch, n, d), in the same shape and type."""
        batch, n, d = values.shape
        # Sums of a few summands: the type of the values is precise enough, and what the layers around use.
        pieces = values.new_zeros(len(self.scale), d).index_add(0, self.words, values.reshape(-1, d))
        linked = pieces.index_select(0, self.columns) * self.weights.to(values.dtype).unsqueeze(1)
        mixed = pieces.index_add(0, self.rows, linked) * self.scale.to(values.dtype).unsqueeze(1)
        return mixed.index_select(0, self.words).view(batch, n, d)


class Words(NamedTuple):
    """Words of a text.

    Attributes:
        starts: int32, where each begins in the text, in code points.
        ends: int32, where each ends.
        keys: uint64, equal for words with equal normal forms (a hash: another process gives other keys).
        stop: bool, whether each is a stop word, which has no links.
    """

    starts: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint64]
    stop: npt.NDArray[np.bool_]

    def only(self, which: Any) -> Words:
        """Returns those of an index, slice or mask."""
        return Words(self.starts[which], self.ends[which], self.keys[which], self.stop[which])


class QueryLinks(NamedTuple):
    """What the words of a query translate to.

    Attributes:
        words: int64, numbers of words in the query, without stop words.
        keys: uint64, the key of a translation of each.
        weights: float32, its probability.
    """

    words: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    weights: npt.NDArray[np.float32]


class Links(NamedTuple):
    """Words of queries and documents that are translations of each other.

    Attributes:
        pairs: int64, the (query, document) pair of each link.
        query_words: int64, number of the word in the query.
        document_words: int64, number of the word in the document.
        weights: float32, the probability of the translation.
    """

    pairs: npt.NDArray[np.int64]
    query_words: npt.NDArray[np.int64]
    document_words: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]


class WordLinker:
    """Finds the words of queries and documents, and the translations of the queries' words.

    Words are those of the table's analyzers, before any wordpieces. Stop words of either language have no links. A word
    that the table lacks is translated as :func:`~pyterrier_mart.translation.lookup.look_up` does, by itself and by the
    translations of its other forms, like the words of :class:`SMTQueryTranslator`.

    Args:
        table: The table, from the queries' to the documents' language.
        threshold: Least probability of a translation.
        top_k: Maximum number of translations of a word; ``None`` for all.
        identity: Which words are their own translations: ``"unknown"`` ones, ``"always"`` all, or ``"never"`` any.
        relate: Whether unknown words get the translations of their other forms.
        stop: Whether function words have no links (:mod:`pyterrier_mart.stopwords`), or the words that have none.
        linking: See :data:`LINKING`.
    """

    def __init__(
        self,
        table: TranslationTable,
        *,
        threshold: float = 0.0,
        top_k: int | None = None,
        identity: str = "unknown",
        relate: bool = True,
        stop: bool | Collection[str] = True,
        linking: int = LINKING,
    ):
        self.table, self.threshold, self.top_k = table, threshold, top_k
        self.identity, self.relate = identity, relate
        self.linking = linking
        self._stop_of_source, self._stop_of_target = (
            self._stop_words(analyzer, stop) for analyzer in (table.source, table.target)
        )
        self._known: dict[str, tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32]]] = {}

    def _stop_words(self, analyzer: Analyzer, stop: bool | Collection[str]) -> frozenset[str]:
        if isinstance(stop, bool):
            usual = long_list if self.linking < LINKING else function_words
            stop = usual(analyzer.lang) if stop else ()
        return analyzer.without(stop).stop_words

    def document(self, text: str) -> Words:
        """Returns the words of a document."""
        return self._words(self.table.target, self._stop_of_target, text)[1]

    def query(self, text: str) -> tuple[Words, QueryLinks]:
        """Returns the words of a query and what they translate to."""
        names, words = self._words(self.table.source, self._stop_of_source, text)
        found = [self._translations(name) for name, stop in zip(names, words.stop.tolist(), strict=True) if not stop]
        links = QueryLinks(
            np.repeat(np.arange(len(found)), [len(keys) for keys, _ in found]),
            np.concatenate([keys for keys, _ in found] or [np.empty(0, np.uint64)]),
            np.concatenate([weights for _, weights in found] or [np.empty(0, np.float32)]),
        )
        return words, links

    def _words(self, analyzer: Analyzer, stop: frozenset[str], text: str) -> tuple[Sequence[str], Words]:
        """Returns the normal forms of a text's words, and the words."""
        spans = analyzer.spans(text)
        if self.linking < LINKING:
            spans = [word for word in spans if word.text not in stop]
        names, starts, ends = zip(*spans, strict=True) if spans else ((), (), ())
        left_out = np.fromiter(map(stop.__contains__, names), bool, len(names))
        return names, Words(np.array(starts, np.int32), np.array(ends, np.int32), keys_of(names), left_out)

    def _translations(self, word: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32]]:
        if word not in self._known:
            if len(self._known) >= 1 << 18:
                self._known.clear()
            weights = look_up(self.table, word, self.top_k, self.threshold, relate=self.relate, identity=self.identity)
            probs = np.fromiter(weights.values(), np.float32, len(weights))
            self._known[word] = keys_of(list(weights)), np.minimum(probs, np.float32(1))
        return self._known[word]


def keys_of(words: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Returns a key for each word."""
    # Python's own hash has 64 bits and is kept with each string. Two different words of a pair share one with a
    # probability below 1e-14.
    return np.fromiter(map(hash, words), np.int64, len(words)).view(np.uint64)


def link(queries: Sequence[QueryLinks], documents: Sequence[npt.NDArray[np.uint64]]) -> Links:
    """Finds the words of each query and document that are translations of each other.

    One sort-merge join for the whole batch.

    Args:
        queries: What the words of each pair's query translate to.
        documents: The keys of the words of each pair's document.
    """

    def joined(parts: Sequence[npt.NDArray[np.uint64]]) -> tuple[npt.NDArray[Any], ...]:
        """Returns keys that differ from pair to pair, the pair of each, and its place there."""
        counts = np.array([len(keys) for keys in parts], np.int64)
        pairs = np.repeat(np.arange(len(parts)), counts)
        places = np.arange(len(pairs)) - np.repeat(np.cumsum(counts) - counts, counts)
        # Added modulo 2^64: an odd number far from small multiples of itself keeps hashes of two pairs apart.
        return np.concatenate(parts) + pairs.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), pairs, places

    keys, _, _ = joined([query.keys for query in queries])
    document_keys, pairs, places = joined(documents)
    order = np.argsort(keys, kind="stable")
    first, last = (np.searchsorted(keys[order], document_keys, side) for side in ("left", "right"))
    counts = last - first
    documents_at = np.repeat(np.arange(len(counts)), counts)
    # Positions first, first + 1, ... last - 1 for each word of the documents that is a translation.
    offsets = np.arange(len(documents_at)) - np.repeat(np.cumsum(counts) - counts, counts)
    queries_at = order[first[documents_at] + offsets]
    words, weights = (np.concatenate([getattr(query, name) for query in queries]) for name in ("words", "weights"))
    return Links(pairs[documents_at], words[queries_at], places[documents_at], weights[queries_at])


def attention(words: npt.NDArray[np.int32], documents_from: Sequence[int], links: Links) -> TranslationAttention:
    """Builds M^tr of a batch.

    Args:
        words: int32 of shape (batch, n): the word of each token, numbered from 0 in each pair with the query's words
            first; -1 for a token that is part of no word, less for the pieces of a stop word. The pieces of a word
            stand side by side.
        documents_from: The number of each pair's first document word.
        links: The links between words, from :func:`link`. Words without a token in ``words`` (cut off) are left out.

    Returns:
        The matrix, on the CPU.
    """
    batch, n = words.shape
    begins = np.ones((batch, n), bool)
    begins[:, 1:] = (words[:, 1:] == -1) | (words[:, 1:] != words[:, :-1])
    number = np.cumsum(begins.ravel()) - 1  # of the word of each token, through the batch
    sizes = np.bincount(number, minlength=1).astype(np.float32)
    most = int(words.max(initial=-1)) + 1
    number_of = np.full(batch * most + 1, -1, np.int64)  # the last place is for words that are not here
    here = words.ravel() >= 0
    number_of[(np.arange(batch)[:, None] * most + words).ravel()[here]] = number[here]

    shifted = links.document_words + np.asarray(documents_from, np.int64)[links.pairs]
    query_at, document_at = (
        number_of[np.where(word < most, links.pairs * most + word, batch * most)]
        for word in (links.query_words, shifted)
    )
    kept = (query_at >= 0) & (document_at >= 0)
    query_at, document_at, weights = query_at[kept], document_at[kept], np.tile(links.weights[kept], 2)
    rows, columns = np.concatenate([query_at, document_at]), np.concatenate([document_at, query_at])
    sums = sizes + np.bincount(rows, weights * sizes[columns], len(sizes))
    scale = (1 / sums).astype(np.float32)
    return TranslationAttention(*map(torch.from_numpy, (number, rows, columns, weights, scale)))
