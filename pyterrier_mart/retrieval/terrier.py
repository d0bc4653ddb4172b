"""BM25 and sums of impacts with Terrier, wherever there is Java 11 or newer; PyTerrier fetches Terrier itself."""

from __future__ import annotations

import base64
import errno
import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.retrieval.types import Document, Hits, Postings, Scoring

NAME = "terrier"
RESOLUTION = 1e-12  # of the decimals that are written for Terrier, below
LONGEST_DOCNO: int | None = 100  # UTF-16 units; the index reserves three bytes of each for each document

_LONGEST_TERM = 60  # bytes of UTF-8 that the lexicon reserves; a longer term would damage it


def build(
    documents: Iterable[Document | Postings], path: Path, threads: int, verbose: bool, impacts: bool = False
) -> None:
    """Writes a Terrier index of the documents' ``toks`` into the empty directory ``path``.

    Raises:
        OSError: If the index is not whole, which Terrier would only log.
    """
    start_java()
    # Terrier would apply its own stemmer and stop words to documents and queries.
    options: dict[str, Any] = {"stemmer": None, "stopwords": None, "meta": {"docno": 101}}
    indexer = pt.IterDictIndexer(str(path), pretokenised=True, verbose=False, threads=threads, **options)
    errors: list[Exception] = []
    sizes: list[float] = [0, 0, 0]

    def spelled() -> Iterator[Document]:
        # Terrier reads in a thread of its own, and would make an index of the documents before an error.
        try:
            ones = (item.documents() if isinstance(item, Postings) else [item] for item in documents)
            for document in chain.from_iterable(ones):
                toks = shortened(document["toks"])
                sizes[:] = sizes[0] + 1, sizes[1] + sum(toks.values()), sizes[2] + len(toks)
                yield {**document, "toks": toks}
        except Exception as err:
            errors.append(err)

    found: object
    try:
        indexer.index(spelled())
        found = None if errors else sizes_of(path)
    except Exception as err:  # the bridge to Java raises no narrower class
        found = err
    if errors:
        raise errors[0]
    if found != sizes:
        what = f"Terrier's index is not whole ({found} documents, words and postings of {sizes}), as on a full disk"
        raise OSError(errno.EIO, what, os.fspath(path))


def sizes_of(path: Path) -> list[int] | None:
    """Returns how many documents, words and postings an index says it has; ``None`` if it lacks a part."""
    index = pt.terrier.IndexFactory.of(str(path))
    said = index.getCollectionStatistics()
    whole = all(map(index.hasIndexStructure, ("inverted", "lexicon", "meta", "document")))
    sizes = [said.getNumberOfDocuments(), said.getNumberOfTokens(), said.getNumberOfPointers()]
    index.close()
    return sizes if whole else None


def start_java() -> None:
    """Starts the JVM, which may fetch Terrier's jars.

    Raises:
        ImportError: If there is no Java.
        OSError: If the jars cannot be fetched.
    """
    if pt.java.started():
        return
    try:
        pt.java.init()
    except Exception as err:  # the bridge to Java raises no narrower class
        if isinstance(err, OSError):  # of the download: it says what is wrong
            raise
        raise ImportError(
            f"engine='terrier' needs Java 11 or newer, which could not be started ({err}); install it, or set "
            "JAVA_HOME if it is installed"
        ) from err


def shortened(toks: dict[str, float]) -> dict[str, float]:
    """Returns terms as the index spells them: of one that is too long, the beginning and a digest."""
    if all(len(term) <= _LONGEST_TERM // 4 for term in toks):  # a character has at most four bytes
        return toks
    out = {}
    for term, weight in toks.items():
        encoded = term.encode("utf-8")
        if len(encoded) > _LONGEST_TERM:
            digest = hashlib.sha256(encoded).hexdigest()[:20]
            term = encoded[: _LONGEST_TERM - len(digest)].decode("utf-8", errors="ignore") + digest
        out[term] = weight
    return out


class TerrierSearcher:
    """A Terrier index opened for retrieval."""

    def __init__(self, path: Path, scoring: Scoring, num_results: int, threads: int, verbose: bool):
        start_java()
        # Of Terrier's BM25, a term that is in more than half of the documents has a negative weight: it ranks them
        # lower, and finds nothing alone. Its TF_IDF has BM25's term frequencies and a positive weight of the term,
        # which is replaced here by the one that PISA gives, so that both engines find and rank alike.
        self._k1 = None if scoring is None else max(scoring[0], 1e-9)  # TF_IDF multiplies by it
        controls = {} if scoring is None else {"tf_idf.k_1": str(self._k1), "tf_idf.b": str(scoring[1])}
        index = pt.terrier.IndexFactory.of(str(path))
        self._retriever = pt.terrier.Retriever(
            index, wmodel="Tf" if scoring is None else "TF_IDF", controls=controls, num_results=num_results,
            threads=threads, verbose=verbose,
        )  # fmt: skip
        self._lexicon = index.getLexicon()
        self._documents = index.getCollectionStatistics().getNumberOfDocuments()
        self._factor = lru_cache(1 << 16)(self._new_factor)  # calls of Java are slow

    def search(self, queries: list[dict[str, float]]) -> Hits:
        """Finds the best documents."""
        bags = [
            {term: weight * factor for term, weight in shortened(query).items() if (factor := self._factor(term))}
            for query in queries
        ]
        # Not as query_toks, of which PyTerrier would keep six decimals.
        texts = [" ".join(f"#combine:0={bag[term]:.30f}({encoded(term)})" for term in bag) for bag in bags]
        frame = pd.DataFrame({"qid": np.arange(len(bags)).astype(str), "query": texts})
        hits = Hits.of(self._retriever(frame[frame["query"] != ""]))
        largest = np.array([max(bag.values(), default=0.0) for bag in bags])  # Terrier divides by it
        return hits._replace(score=hits.score * largest[hits.query])

    def _new_factor(self, term: str) -> float:
        """Returns what makes Terrier's score of a term that of BM25, or its impact; 0 if the index lacks the term."""
        entry = self._lexicon.getLexiconEntry(term)
        if entry is None or self._k1 is None:
            return float(entry is not None)
        n, df = self._documents, entry.getDocumentFrequency()
        idf = max(math.log((n - df + 0.5) / (df + 0.5)), 1e-6)
        return idf * (self._k1 + 1) / (self._k1 * math.log2(n / df + 1))


def encoded(term: str) -> str:
    """Returns a term as Terrier's query language takes any."""
    return term if term.isascii() and term.isalnum() else f"#base64({base64.b64encode(term.encode()).decode()})"


searcher = TerrierSearcher
