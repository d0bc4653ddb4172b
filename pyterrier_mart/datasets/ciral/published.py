"""CIRAL's topics and judgments, which come with the package; the passages do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import pandas as pd

from pyterrier_mart.datasets.base import read_data

#: The languages of the passages: ISO 639-1 code and English name, by which published files are called.
LANGUAGES: Mapping[str, str] = {"ha": "hausa", "so": "somali", "sw": "swahili", "yo": "yoruba"}
#: The sets of topics, the one that papers report on first.
SPLITS = ("test-a", "test-b", "dev")
#: The sets whose queries are published in both languages. A qid belongs to one of them; ``dev`` has its own.
TESTS = ("test-a", "test-b")
#: The sets of judgments: ``test-a`` is the shallow pool of the track's runs, ``test-a-pools`` the deep one.
JUDGMENTS = ("test-a", "test-a-pools", "test-b", "dev")

#: The qid that is meant by one that is published for a second time.
_MEANT = {("sw", "test-b", True, "237"): "238"}


@cache
def queries(language: str, split: str, *, native: bool) -> Mapping[str, str]:
    """Returns the queries of a split by qid, in the order of publication.

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
    for line in read_data(f"ciral/{language}.{name}").splitlines():
        qid, text = line.split("\t")
        if qid in found:
            qid = _MEANT.get((language, split, native, qid), qid)
        if len(text) > 1 and text[0] == text[-1] == '"':  # some queries kept the quotation marks of a CSV file
            text = text[1:-1].replace('""', '"')
        found[qid] = text.strip()
    return found


def judgments(language: str, name: str) -> pd.DataFrame:
    """Returns a set of judgments as ``qid``, ``docno`` and ``label``, without topics that have no query.

    Args:
        language: One of :data:`LANGUAGES`.
        name: One of :data:`JUDGMENTS`.
    """
    known = queries(language, name.removesuffix("-pools"), native=True)  # in dev there are no others
    lines = map(str.split, read_data(f"ciral/{language}.qrels.{name}.txt.gz").splitlines())
    rows = [(qid, docno, int(label)) for qid, _, docno, label in lines if qid in known]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


@cache
def sites() -> Mapping[str, set[str]]:
    """Returns the languages that the judged passages of each site are in."""
    found: dict[str, set[str]] = {}
    for code in LANGUAGES:
        for name in JUDGMENTS:
            for site in set(re.findall(r"\s([^\s#]+)#", read_data(f"ciral/{code}.qrels.{name}.txt.gz"))):
                found.setdefault(site, set()).add(code)
    return found


def query_pairs(language: str) -> Mapping[str, tuple[str, str]]:
    """Returns the English and the native query of every topic that has both, by ``SPLIT/qid``.

    Each is the translation of the other by a speaker of both languages, which makes them a test of query translation
    that needs no passages.

    Args:
        language: One of :data:`LANGUAGES`.
    """
    pairs = {}
    for split in TESTS:
        native = queries(language, split, native=True)
        for qid, english in queries(language, split, native=False).items():
            if qid in native:
                pairs[f"{split}/{qid}"] = (english, native[qid])
    return pairs
