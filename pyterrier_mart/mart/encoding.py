"""From (query, document) rows to what the model reads: passages, padded batches and their translation attention.

Training and inference both use :class:`PairEncoder`, so that a model is trained on what it will see.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pyterrier_mart.characters import without_surrogates
from pyterrier_mart.frames import warn
from pyterrier_mart.mart.attention import QueryLinks, TranslationAttention, WordLinker, Words, attention, link

__all__ = ["Batch", "BatchWords", "EncodedText", "Pair", "PairEncoder"]

_LEAST_DOCUMENT = 32  # tokens of the document in a passage, whatever the length of the query
_LONGEST_TOKEN = 16  # characters that a token takes at most on average, usually; where not, more is read
_CUT_WORD = 100  # tokens that the end of a text may have only because it was cut there; WordPiece's longest word
_LONGEST_WORD = 64  # characters of a word that are looked at after its last token that is read
_REMEMBERED = 1 << 25  # bytes of queries, and of documents, that are kept for the next rows
_OBJECT = 120  # bytes that an array or a tuple takes besides what is in it

Ints = npt.NDArray[np.int32]

_NO_WORDS = Words(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint64), np.empty(0, bool))
_NO_LINKS = QueryLinks(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.float32))


class EncodedText(NamedTuple):
    """The beginning of a query or document in tokens.

    Attributes:
        ids: int32 of shape (tokens,).
        starts: int32 of shape (tokens,): where each token begins in the text.
        ends: int32 of shape (tokens,): where each token ends.
        words: int32 of shape (tokens,): the word that each is a piece of, -1 for none, from -2 down for stop words.
        spans: The words without stop words; none without a table. Those of a query may have been cut off.
        links: What the words of a query translate to.
    """

    ids: Ints
    starts: Ints
    ends: Ints
    words: Ints
    spans: Words
    links: QueryLinks


class Pair(NamedTuple):
    """A row to score, and how its document is cut: passage ``i`` is ``cuts[i]:cuts[i + 1]``."""

    query: EncodedText
    document: EncodedText
    cuts: tuple[int, ...]

    @property
    def passages(self) -> int:
        """Number of passages."""
        return len(self.cuts) - 1

    @property
    def longest(self) -> int:
        """Tokens of the longest passage with its query, without special tokens."""
        return len(self.query.ids) + max(b - a for a, b in zip(self.cuts, self.cuts[1:], strict=False))


class BatchWords(NamedTuple):
    """Which token of a batch is part of which word.

    Words have the numbers that they have in :class:`~pyterrier_mart.mart.attention.TranslationAttention`.

    Attributes:
        tokens: int64 of shape (passages, n): the word of each token.
        passages: int64 of shape (words,): the passage of each word.
        sides: int64 of shape (words,): 0 in a query, 1 in a document, -1 for tokens that are part of no word.
        places: int64 of shape (words,): its number in the query or document.
        links: int64 of shape (links, 2): a word of a query and a word of a document.
        probabilities: float32 of shape (links,).
    """

    tokens: npt.NDArray[np.int64]
    passages: npt.NDArray[np.int64]
    sides: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    links: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float32]


@dataclass
class Batch:
    """What :class:`MartForRanking` takes.

    Attributes:
        input_ids: int64 of shape (passages, n).
        attention_mask: int64 of shape (passages, n).
        token_type_ids: int64 of shape (passages, n), or None if the tokenizer makes none.
        documents: int64 of shape (passages,), the row of each passage.
        translation: M^tr, or None for the identity.
        words: Which token is part of which word, if there is an M^tr; the model does not take it.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor | None
    documents: torch.Tensor
    translation: TranslationAttention | None
    words: BatchWords | None = None

    def inputs(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Returns the arguments of the model's ``forward``, on a device."""
        parts = {name: part for name, part in vars(self).items() if name != "words"}
        return {name: part if part is None else part.to(device) for name, part in parts.items()}


class Template(NamedTuple):
    """Where a tokenizer puts special tokens around two texts, and the types of all tokens."""

    before: list[int]
    between: list[int]
    after: list[int]
    types: tuple[int, int, int, int, int]  # of before, query, between, document, after

    @classmethod
    def of(cls, tokenizer: Any) -> Template:
        """Returns the template of a tokenizer."""
        encoding = backend(tokenizer).encode("a", "a")
        sides, ids, types = encoding.sequence_ids, encoding.ids, encoding.type_ids
        first, second = ([i for i, side in enumerate(sides) if side == which] for which in (0, 1))
        a, b, c, d = first[0], first[-1] + 1, second[0], second[-1] + 1
        kinds = (types[0], types[a], types[b] if c > b else types[a], types[c], types[-1])
        return cls(ids[:a], ids[b:c], ids[d:], kinds)

    @property
    def length(self) -> int:
        """Number of special tokens."""
        return len(self.before) + len(self.between) + len(self.after)


def backend(tokenizer: Any) -> Any:
    """Returns what tokenises, without settings that the tokenizer's file or another call left behind."""
    found = tokenizer.backend_tokenizer
    found.no_truncation()
    found.no_padding()
    return found


class PairEncoder:
    """Tokenises queries and documents and makes batches of them.

    A document is cut to its first ``document_tokens`` tokens and split evenly into as few passages as fit beside the
    query, as in the MART paper. The query is cut only if it would leave no room for 32 tokens of the document, with
    a warning.

    Args:
        tokenizer: A fast tokenizer of transformers.
        linker: Finds words and translations; None for the identity as translation attention.
        max_length: Tokens of a passage with its query and special tokens.
        document_tokens: Tokens of a document that are read.

    Raises:
        ValueError: If the tokenizer is not a fast one, or ``max_length`` is too small.
    """

    def __init__(self, tokenizer: Any, linker: WordLinker | None, max_length: int = 512, document_tokens: int = 800):
        if not getattr(tokenizer, "is_fast", False):  # which does not tell where in the text a token comes from
            raise ValueError(
                f"the encoder's tokenizer must be a fast one (with a tokenizer.json), not {type(tokenizer).__name__}"
            )
        self.tokenizer, self.linker = tokenizer, linker
        self.max_length, self.document_tokens = max_length, document_tokens
        self.template = Template.of(tokenizer)
        self.query_tokens = max_length - self.template.length - _LEAST_DOCUMENT  # that are read
        if self.query_tokens < 1:
            raise ValueError(
                f"max_length must be at least {max_length - self.query_tokens + 1} (special tokens, {_LEAST_DOCUMENT} "
                f"tokens of the document, 1 of the query), not {max_length}"
            )
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self.has_types = "token_type_ids" in tokenizer.model_input_names
        self.queries, self.documents = Memory(self._encode_queries), Memory(self._encode_documents)

    # --- texts to tokens --------------------------------------------------------------------------------------

    def pairs(self, queries: Sequence[str], documents: Sequence[str]) -> list[Pair]:
        """Encodes rows. Each distinct query and document is tokenised once."""
        out = []
        for query, document in zip(self.queries.encoded(queries), self.documents.encoded(documents), strict=True):
            room, length = self.max_length - self.template.length - len(query.ids), len(document.ids)
            passages = max(1, -(-length // room))
            out.append(Pair(query, document, tuple(length * i // passages for i in range(passages + 1))))
        return out

    def _encode_queries(self, texts: list[str]) -> Iterator[EncodedText]:
        most = self.query_tokens
        for text, (ids, starts, ends) in zip(texts, self.tokens(texts, most + 1), strict=True):
            if len(ids) > most:
                warn(f"a query of more than {most} tokens is cut, to leave room for the document: {text[:60]!r}...")
            ids, starts, ends = ids[:most], starts[:most], ends[:most]
            words, links = self.linker.query(text) if self.linker is not None else (_NO_WORDS, _NO_LINKS)
            yield EncodedText(ids, starts, ends, *numbered(starts, ends, words), links)

    def _encode_documents(self, texts: list[str]) -> Iterator[EncodedText]:
        for text, (ids, starts, ends) in zip(texts, self.tokens(texts, self.document_tokens), strict=True):
            end = int(ends.max(initial=0)) + _LONGEST_WORD
            words = self.linker.document(text[:end]) if self.linker is not None else _NO_WORDS
            numbers, spans = numbered(starts, ends, words)
            read = int(numbers.max(initial=-1)) + 1
            yield EncodedText(ids, starts, ends, numbers, spans.only(slice(read)), _NO_LINKS)

    def tokens(self, texts: list[str], most: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yields each text's first ``most`` tokens and the characters that they come from, half-open."""
        # Text that will not be read is not tokenised, be it a million characters.
        limit = _LONGEST_TOKEN * (most + 1)
        encodings = self._encode([text[:limit] for text in texts])
        for text, encoding in zip(texts, encodings, strict=True):
            read = limit
            while len(encoding.ids) <= most + _CUT_WORD and read < len(text):  # very long tokens
                read *= 4
                encoding = self._encode([text[:read]])[0]
            offsets = np.array(encoding.offsets[:most], np.int32).reshape(-1, 2)
            yield np.array(encoding.ids[:most], np.int32), offsets[:, 0], offsets[:, 1]

    def _encode(self, texts: list[str]) -> list[Any]:
        return backend(self.tokenizer).encode_batch(list(map(without_surrogates, texts)), add_special_tokens=False)

    # --- tokens to batches ------------------------------------------------------------------------------------

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """Makes a batch of rows, on the CPU."""
        before, between, after, types = self.template
        passages = [
            (row, pair.query, pair.document, start, end)
            for row, pair in enumerate(pairs)
            for start, end in zip(pair.cuts, pair.cuts[1:], strict=False)
        ]
        shape = len(passages), max(pair.longest for pair in pairs) + self.template.length
        ids, mask, kinds = np.full(shape, self.pad, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        words = np.full(shape, -1, np.int32)
        keys, firsts = [], []  # of the words of each passage of a document
        for line, (_, query, document, start, end) in enumerate(passages):
            parts = (before, query.ids, between, document.ids[start:end], after)
            sizes = [len(part) for part in parts]
            a, b, c, d, e = np.cumsum(sizes).tolist()
            ids[line, :e], mask[line, :e], kinds[line, :e] = np.concatenate(parts), 1, np.repeat(types, sizes)
            numbers = document.words[start:end]
            real = numbers[numbers >= 0]
            first, last = (int(real[0]), int(real[-1]) + 1) if len(real) else (0, 0)
            words[line, a:b] = query.words
            words[line, c:d] = np.where(numbers >= 0, numbers - first + len(query.spans.keys), numbers)
            keys.append(document.spans.keys[first:last])
            firsts.append(first)
        rows = torch.tensor([row for row, *_ in passages])
        types_of = torch.from_numpy(kinds) if self.has_types else None
        made = Batch(torch.from_numpy(ids), torch.from_numpy(mask), types_of, rows, None)
        if self.linker is not None:
            counts = [len(query.spans.keys) for _, query, *_ in passages]
            made.translation = attention(words, counts, link([query.links for _, query, *_ in passages], keys))
            made.words = batch_words(words, np.array(counts), np.array(firsts), made.translation)
        return made


def word_of_each(starts: Ints, ends: Ints, words: Words) -> Ints:
    """Finds the word of each token: the first one that it shares a character with; -1 for none.

    Words begin and end in order, and so do tokens, so that the numbers never fall.
    """
    at = np.searchsorted(words.ends, starts, side="right")
    shares = at < len(words.ends)
    shares[shares] = words.starts[at[shares]] < ends[shares]
    return np.where(shares, at, -1).astype(np.int32)


def numbered(starts: Ints, ends: Ints, words: Words) -> tuple[Ints, Words]:
    """Returns the word of each token, as :class:`EncodedText` has it, and the words that are no stop words."""
    numbers = np.where(words.stop, -2 - np.arange(len(words.stop)), np.cumsum(~words.stop) - 1)
    found = np.append(numbers, -1)[word_of_each(starts, ends, words)]  # the last one is for tokens of no word
    return found.astype(np.int32), words.only(~words.stop)


def batch_words(words: Ints, counts: Any, firsts: Any, translation: TranslationAttention) -> BatchWords:
    """Tells which token of a batch is part of which word.

    Args:
        words: int32 of shape (passages, n): as :func:`attention` takes it.
        counts: The number of words of each passage's query.
        firsts: The number, in its document, of each passage's first word.
        translation: What was made of them.
    """
    numbers = translation.words.numpy()
    first_tokens = np.flatnonzero(np.diff(numbers, prepend=-1))  # numbers rise through the batch
    passages, local = first_tokens // words.shape[1], words.ravel()[first_tokens].astype(np.int64)
    sides = np.where(local < 0, -1, local >= counts[passages])
    places = np.where(sides == 1, local + (firsts - counts)[passages], local)
    links = torch.stack([translation.rows, translation.columns], dim=1).numpy()
    forth = slice(len(links) // 2)
    return BatchWords(
        numbers.reshape(words.shape), passages, sides, places, links[forth], translation.weights.numpy()[forth]
    )


def size_of(encoded: EncodedText) -> int:
    """Returns the bytes that an encoded text takes."""
    arrays = (*encoded[:4], *encoded.spans, *encoded.links)
    return sum(array.nbytes for array in arrays) + _OBJECT * (len(arrays) + 3)


class Memory:
    """The texts encoded last, up to a number of bytes.

    Args:
        encode: Encodes texts.
    """

    def __init__(self, encode: Callable[[list[str]], Iterator[EncodedText]]):
        self.encode, self.size = encode, 0
        self.kept: dict[str, EncodedText] = {}

    def encoded(self, texts: Sequence[str]) -> list[EncodedText]:
        """Returns the encoded texts."""
        new = list(dict.fromkeys(text for text in texts if text not in self.kept))
        for text, encoded in zip(new, self.encode(new), strict=True):
            self.kept[text] = encoded
            self.size += sys.getsizeof(text) + size_of(encoded)
        out = [self.kept[text] for text in texts]
        if self.size > _REMEMBERED:
            self.kept, self.size = {}, 0
        return out
