"""From (query, document) rows to what the model reads: passages, padded batches and their translation attention.

Training and inference both use :class:`PairEncoder`, so that a model is trained on what it will see.
"""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from pyterrier_mart.mart.attention import QueryLinks, TranslationAttention, WordLinker, Words, attention, link

__all__ = ["Batch", "EncodedDocument", "EncodedQuery", "Pair", "PairEncoder", "check_tokenizer", "without_surrogates"]

_LEAST_DOCUMENT = 32  # tokens of the document in a passage, whatever the length of the query
_LONGEST_TOKEN = 16  # characters that a token takes at most on average, usually; where not, more is read
_CUT_WORD = 100  # tokens that the end of a text may have only because it was cut there; WordPiece's longest word
_LONGEST_WORD = 64  # characters of a word that are looked at after its last token that is read
_REMEMBERED = 4_000_000  # tokens of texts kept for the next rows

Ints = npt.NDArray[np.int32]


class EncodedQuery(NamedTuple):
    """A query in tokens.

    Attributes:
        ids: int32 of shape (tokens,).
        words: int32 of shape (tokens,): the word that each is a piece of, -1 for none.
        count: Number of words.
        links: What the words translate to, if there is a table.
    """

    ids: Ints
    words: Ints
    count: int  # type: ignore[assignment]  # tuples have a method of that name
    links: QueryLinks | None


class EncodedDocument(NamedTuple):
    """The beginning of a document in tokens.

    Attributes:
        ids: int32 of shape (tokens,).
        words: int32 of shape (tokens,): the word that each is a piece of, -1 for none.
        keys: uint64 of shape (words,), if there is a table.
    """

    ids: Ints
    words: Ints
    keys: npt.NDArray[np.uint64] | None


class Pair(NamedTuple):
    """A row to score, and how its document is cut: passage ``i`` is ``cuts[i]:cuts[i + 1]``."""

    query: EncodedQuery
    document: EncodedDocument
    cuts: tuple[int, ...]

    @property
    def passages(self) -> int:
        """Number of passages."""
        return len(self.cuts) - 1

    @property
    def longest(self) -> int:
        """Tokens of the longest passage with its query, without special tokens."""
        return len(self.query.ids) + max(b - a for a, b in zip(self.cuts, self.cuts[1:], strict=False))


@dataclass
class Batch:
    """What :class:`MartForRanking` takes.

    Attributes:
        input_ids: int64 of shape (passages, n).
        attention_mask: int64 of shape (passages, n).
        token_type_ids: int64 of shape (passages, n), or None if the tokenizer makes none.
        documents: int64 of shape (passages,), the row of each passage.
        translation: M^tr, or None for the identity.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor | None
    documents: torch.Tensor
    translation: TranslationAttention | None

    def to(self, device: torch.device | str) -> Batch:
        """Returns the same batch on a device."""
        moved: dict[str, Any] = {name: part if part is None else part.to(device) for name, part in vars(self).items()}
        return Batch(**moved)

    def inputs(self) -> dict[str, Any]:
        """Returns the arguments of the model's ``forward``."""
        return dict(vars(self))


class _Template(NamedTuple):
    """Where a tokenizer puts special tokens around two texts, and the types of all tokens."""

    before: list[int]
    between: list[int]
    after: list[int]
    types: tuple[int, int, int, int, int]  # of before, query, between, document, after

    @property
    def length(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


def check_tokenizer(tokenizer: Any) -> None:
    """Raises a ValueError if a tokenizer does not tell where in the text its tokens come from."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"the encoder's tokenizer {type(tokenizer).__name__} is not a fast one, and does not tell which characters "
            "a token comes from; use an encoder that has a tokenizer.json"
        )


def _backend(tokenizer: Any) -> Any:
    # Settings of the tokenizer's file, or left behind by another call; each call of transformers' own sets them.
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def _template(tokenizer: Any) -> _Template:
    encoding = _backend(tokenizer).encode("a", "a")
    sides, ids, types = encoding.sequence_ids, encoding.ids, encoding.type_ids
    first, second = (
        [i for i, side in enumerate(sides) if side == which] for which in (0, 1)
    )  # fmt: skip
    a, b, c, d = first[0], first[-1] + 1, second[0], second[-1] + 1
    kind = (types[0], types[a], types[b] if c > b else types[a], types[c], types[-1])
    return _Template(ids[:a], ids[b:c], ids[d:], kind)


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
        ValueError: If the tokenizer is not a fast one, or a length is too small.
    """

    def __init__(self, tokenizer: Any, linker: WordLinker | None, max_length: int = 512, document_tokens: int = 800):
        check_tokenizer(tokenizer)
        self.tokenizer, self.linker = tokenizer, linker
        self.max_length, self.document_tokens = max_length, document_tokens
        self.template = _template(tokenizer)
        if max_length < self.template.length + _LEAST_DOCUMENT + 1:
            raise ValueError(
                f"max_length must be at least {self.template.length + _LEAST_DOCUMENT + 1} (special tokens, "
                f"{_LEAST_DOCUMENT} tokens of the document, 1 of the query), not {max_length}"
            )
        if document_tokens < 1:
            raise ValueError(f"document_tokens must be at least 1, not {document_tokens}")
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self.has_types = "token_type_ids" in tokenizer.model_input_names
        self._queries: _Remembered[EncodedQuery] = _Remembered(_REMEMBERED)
        self._documents: _Remembered[EncodedDocument] = _Remembered(_REMEMBERED)

    # --- texts to tokens --------------------------------------------------------------------------------------

    def pairs(self, queries: Sequence[str], documents: Sequence[str]) -> list[Pair]:
        """Encodes rows. Each distinct query and document is tokenised once."""
        encoded_queries = self._queries.get(queries, self._encode_queries)
        encoded_documents = self._documents.get(documents, self._encode_documents)
        return [
            Pair(q, d, self._cuts(len(q.ids), len(d.ids)))
            for q, d in zip(encoded_queries, encoded_documents, strict=True)
        ]

    def _cuts(self, query: int, document: int) -> tuple[int, ...]:
        room = self.max_length - self.template.length - query
        passages = max(1, -(-document // room))
        return tuple(document * i // passages for i in range(passages + 1))

    def _encode_queries(self, texts: list[str]) -> list[EncodedQuery]:
        most = self.max_length - self.template.length - _LEAST_DOCUMENT
        out = []
        for text, (ids, starts, ends) in zip(texts, self.tokens(texts, self.max_length), strict=True):
            if len(ids) > most:
                warnings.warn(
                    f"a query of more than {most} tokens is cut, to leave room for the document: {text[:60]!r}...",
                    stacklevel=2,
                )
            ids, starts, ends = ids[:most], starts[:most], ends[:most]
            if self.linker is None:
                out.append(EncodedQuery(ids, np.full(len(ids), -1, np.int32), 0, None))
            else:
                words, links = self.linker.query(text)
                out.append(EncodedQuery(ids, _word_of_each(starts, ends, words), len(words.keys), links))
        return out

    def _encode_documents(self, texts: list[str]) -> list[EncodedDocument]:
        out = []
        for text, (ids, starts, ends) in zip(texts, self.tokens(texts, self.document_tokens), strict=True):
            if self.linker is None:
                out.append(EncodedDocument(ids, np.full(len(ids), -1, np.int32), None))
            else:
                words = self.words_until(text, int(ends.max(initial=0)))
                numbers = _word_of_each(starts, ends, words)
                out.append(EncodedDocument(ids, numbers, words.keys[: int(numbers.max(initial=-1)) + 1]))
        return out

    def words_until(self, text: str, end: int) -> Words:
        """Returns the words of a document of which so many characters are read."""
        assert self.linker is not None
        return self.linker.document(text[: end + _LONGEST_WORD])

    def tokens(self, texts: list[str], most: int) -> Iterator[tuple[Ints, npt.NDArray[Any], npt.NDArray[Any]]]:
        """Yields each text's first ``most`` tokens and the characters that they come from, half-open."""
        # Text that will not be read is not tokenised, be it a million characters.
        limit = _LONGEST_TOKEN * (most + 1)
        encodings = self._encode([text[:limit] for text in texts])
        for text, encoding in zip(texts, encodings, strict=True):
            read = limit
            while len(encoding.ids) <= most + _CUT_WORD and read < len(text):  # very long tokens
                read *= 4
                encoding = self._encode([text[:read]])[0]
            offsets = np.array(encoding.offsets[:most], np.int64).reshape(-1, 2)
            yield np.array(encoding.ids[:most], np.int32), offsets[:, 0], offsets[:, 1]

    def _encode(self, texts: list[str]) -> list[Any]:
        return _backend(self.tokenizer).encode_batch(
            [without_surrogates(text) for text in texts], add_special_tokens=False
        )

    # --- tokens to batches ------------------------------------------------------------------------------------

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """Makes a batch of rows, on the CPU."""
        before, between, after, types = self.template
        n = max(pair.longest for pair in pairs) + self.template.length
        passages = [(row, pair, i) for row, pair in enumerate(pairs) for i in range(pair.passages)]
        ids = np.full((len(passages), n), self.pad, np.int64)
        mask = np.zeros((len(passages), n), np.int64)
        kinds = np.zeros((len(passages), n), np.int64)
        words = np.full((len(passages), n), -1, np.int32)
        keys: list[Any] = []
        counts: list[int] = []
        for line, (_, (query, document, cuts), i) in enumerate(passages):
            start, end = cuts[i], cuts[i + 1]
            a = len(before)
            b = a + len(query.ids)
            c = b + len(between)
            d = c + end - start
            e = d + len(after)
            ids[line, :a], ids[line, a:b], ids[line, b:c] = before, query.ids, between
            ids[line, c:d], ids[line, d:e] = document.ids[start:end], after
            mask[line, :e] = 1
            if self.has_types:
                for kind, (left, right) in zip(types, ((0, a), (a, b), (b, c), (c, d), (d, e)), strict=True):
                    kinds[line, left:right] = kind
            if self.linker is not None:
                numbers = document.words[start:end]
                real = numbers[numbers >= 0]
                first, last = (int(real[0]), int(real[-1]) + 1) if len(real) else (0, 0)
                words[line, a:b] = query.words
                words[line, c:d] = np.where(numbers >= 0, numbers - first + query.count, -1)
                assert document.keys is not None
                keys.append(document.keys[first:last])
                counts.append(query.count)
        translation = None
        if self.linker is not None:
            queries = [pair.query.links for _, pair, _ in passages if pair.query.links is not None]
            links = link(queries, keys)
            translation = attention(words, counts, links)
        return Batch(
            torch.from_numpy(ids),
            torch.from_numpy(mask),
            torch.from_numpy(kinds) if self.has_types else None,
            torch.tensor([row for row, _, _ in passages]),
            translation,
        )


def _word_of_each(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], words: Words) -> Ints:
    """Finds the word of each token: the first one that it shares a character with; -1 for none.

    Words begin and end in order, and so do tokens, so that the numbers never fall.
    """
    at = np.searchsorted(words.ends, starts, side="right")
    shares = at < len(words.ends)
    shares[shares] = words.starts[at[shares]] < ends[shares]
    return np.where(shares, at, -1).astype(np.int32)


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which no tokenizer takes, one for one."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text


_SURROGATES = re.compile("[\ud800-\udfff]")

_E = TypeVar("_E", EncodedQuery, EncodedDocument)


class _Remembered(Generic[_E]):
    """The texts encoded last, up to a number of tokens."""

    def __init__(self, most: int):
        self._most, self._size = most, 0
        self._kept: OrderedDict[str, _E] = OrderedDict()

    def get(self, texts: Iterable[str], encode: Callable[[list[str]], list[_E]]) -> list[_E]:
        texts = list(texts)
        new = list(dict.fromkeys(text for text in texts if text not in self._kept))
        here = dict(zip(new, encode(new), strict=True)) if new else {}
        out = [here[text] if text in here else self._kept[text] for text in texts]
        for text, encoded in here.items():
            self._kept[text] = encoded
            self._size += len(encoded.ids) + len(text) // 4 + 16
        while self._size > self._most and self._kept:
            text, encoded = self._kept.popitem(last=False)
            self._size -= len(encoded.ids) + len(text) // 4 + 16
        return out
