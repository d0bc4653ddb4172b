"""CIRAL's topics and judgments, which come with the package; the passages do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

import pandas as pd

from pyterrier_mart.datasets.base import read_data

#: The languages of the passages: ISO 639-1 code and English name, by which published files are called.
LANGUAGES: Mapping[str, str] = MappingProxyType({"ha": "hausa", "so": "somali", "sw": "swahili", "yo": "yoruba"})
#: The sets of topics, the one that papers report on first.
SPLITS = ("test-a", "test-b", "dev")
#: The sets whose queries are published in both languages. A number belongs to one of them; ``dev`` has its own.
TESTS = ("test-a", "test-b")
#: The sets of judgments: ``test-a`` is the shallow pool of the track's runs, ``test-a-pools`` the deep one.
JUDGMENTS = ("test-a", "test-a-pools", "test-b", "dev")

#: Which of two queries that are published under one number is meant by another number.
_MISNUMBERED = {("sw", "test-b", True): {("237", 2): "238"}}


@cache
def queries(language: str, split: str, *, native: bool) -> Mapping[str, str]:
    """Returns the queries of a split by number, in the order of publication.

    Args:
        language: One of :data:`LANGUAGES`.
        split: One of :data:`SPLITS`.
        native: Whether to return the queries in the language of the passages, as its speakers wrote them, in place of
            the English ones.

    Raises:
        ValueError: If the English queries of ``dev`` are asked for, which were not published with the others.
    """
    if split == "dev" and not native:
        raise ValueError("the English queries of CIRAL's dev set are not published here; there are the native ones")
    name = f"topics.{split}{'-native' * native}.tsv.gz"
    found: dict[str, str] = {}
    times: dict[str, int] = {}
    for line in read_data(f"ciral/{language}.{name}").splitlines():
        number, text = line.split("\t")
        times[number] = times.get(number, 0) + 1
        number = _MISNUMBERED.get((language, split, native), {}).get((number, times[number]), number)
        found[number] = _unquoted(text)
    return MappingProxyType(found)


def _unquoted(text: str) -> str:
    """Some queries kept the quotation marks of a CSV file."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('""', '"')
    return text.strip()


def judgments(language: str, name: str) -> pd.DataFrame:
    """Returns a set of judgments as ``qid``, ``docno`` and ``label``, without topics that have no query.

    Args:
        language: One of :data:`LANGUAGES`.
        name: One of :data:`JUDGMENTS`.
    """
    known = queries(language, name.removesuffix("-pools"), native=True)  # in dev there are no others
    rows = [row for row in _judged(language, name) if row[0] in known]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


def _judged(language: str, name: str) -> Iterator[tuple[str, str, int]]:
    for line in read_data(f"ciral/{language}.qrels.{name}.txt.gz").splitlines():
        number, _, docno, label = line.split()
        yield number, docno, int(label)


def query_pairs(language: str) -> Mapping[str, tuple[str, str]]:
    """Returns the English and the native query of every topic that has both, by ``SPLIT/number``.

    Each is the translation of the other by a speaker of both languages, which makes them a test of query translation
    that needs no passages.

    Args:
        language: One of :data:`LANGUAGES`.
    """
    pairs = {}
    for split in TESTS:
        native = queries(language, split, native=True)
        for number, english in queries(language, split, native=False).items():
            if number in native:
                pairs[f"{split}/{number}"] = (english, native[number])
    return MappingProxyType(pairs)
