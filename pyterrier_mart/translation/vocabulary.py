"""A sorted list of words in two arrays, so that it can be mapped from a file and searched without being read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
import numpy.typing as npt

__all__ = ["Vocabulary"]


class Vocabulary(Sequence[str]):
    """Distinct words in the order of their UTF-8 bytes (which is the order of their code points).

    Args:
        text: uint8, the words' UTF-8 bytes one after the other.
        offsets: int64 of length n + 1; word ``i`` is ``text[offsets[i]:offsets[i + 1]]``.
        where: What messages call the table that the words belong to.
    """

    def __init__(self, text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], where: str = "in memory"):
        self.text, self.offsets, self.where = text, offsets, where
        self._bytes = text.data

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Vocabulary:
        """Builds a vocabulary from words that are sorted and distinct.

        Raises:
            ValueError: If they are not.
        """
        encoded = [word.encode("utf-8") for word in words]
        if any(a >= b for a, b in zip(encoded, encoded[1:], strict=False)):
            raise ValueError("words must be sorted and distinct")
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(word) for word in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def encoded(self, i: int) -> bytes:
        """Returns the UTF-8 bytes of word ``i``."""
        return self._bytes[self.offsets[i] : self.offsets[i + 1]].tobytes()

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            text, offsets = self.text.tobytes(), self.offsets.tolist()
            try:
                words = [text[start:end].decode("utf-8") for start, end in pairwise(offsets)]
            except UnicodeDecodeError:  # the words one by one tell which
                words = [self[j] for j in range(len(self))]
            return words[i]
        if not -len(self) <= i < len(self):
            raise IndexError(f"word {i} of a vocabulary of {len(self)}")
        try:
            return self.encoded(i % len(self)).decode("utf-8")
        except UnicodeDecodeError as err:
            raise ValueError(f"damaged translation table {self.where}: its word {i:,} is not UTF-8 ({err})") from err

    def find(self, word: str) -> int:
        """Returns the number of a word, or -1 if it is not here (a binary search: log2(n) comparisons)."""
        try:
            key = word.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate is in no vocabulary
            return -1
        i = bisect_left(range(len(self)), key, key=self.encoded)
        return i if i < len(self) and self.encoded(i) == key else -1

    def with_prefix(self, prefix: str) -> range:
        """Returns the numbers of the words that begin with ``prefix``."""
        key = prefix.encode("utf-8")
        start = bisect_left(range(len(self)), key, key=self.encoded)
        # No UTF-8 byte is 0xFF: this comes after every word with the prefix.
        return range(start, bisect_left(range(len(self)), key + b"\xff", lo=start, key=self.encoded))

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.find(word) >= 0
