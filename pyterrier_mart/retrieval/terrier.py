"""BM25 with Terrier, wherever there is Java 11 or newer; PyTerrier fetches Terrier itself."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.retrieval.types import Document, Hits

NAME = "terrier"
RESOLUTION = 1e-6  # Terrier's query language keeps six decimals of a weight
LONGEST_DOCNO: int | None = 100  # characters; the index reserves them for each document, then compresses

_LONGEST_TERM = 60  # bytes of UTF-8 that the lexicon reserves; a longer term would damage it


def build(documents: Iterable[Document], path: Path, threads: int, verbose: bool) -> None:
    """Writes a Terrier index of the documents' ``toks`` into the empty directory ``path``."""
    start_java()
    # Terrier would apply its own stemmer and stop words to documents and queries.
    options: dict[str, Any] = {"stemmer": None, "stopwords": None, "meta": {"docno": LONGEST_DOCNO}, "threads": threads}
    indexer = pt.IterDictIndexer(str(path.absolute()), pretokenised=True, verbose=False, **options)
    errors: list[Exception] = []

    def spelled() -> Iterator[Document]:
        # Terrier reads in a thread of its own, and would make an index of the documents before an error.
        try:
            for document in documents:
                yield {**document, "toks": shortened(document["toks"])}
        except Exception as err:
            errors.append(err)

    try:
        indexer.index(spelled())
    except Exception:
        if not errors:
            raise
    if errors:
        raise errors[0]


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

    def __init__(self, path: Path, k1: float, b: float, num_results: int, threads: int, verbose: bool):
        start_java()
        # With a large k_3 a term counts in proportion to its weight; Terrier's default of 8 saturates it.
        controls = {"bm25.k_1": str(k1), "bm25.b": str(b), "bm25.k_3": "1e6"}
        index = pt.terrier.IndexFactory.of(str(path.absolute()))
        self._retriever = pt.terrier.Retriever(
            index, wmodel="BM25", controls=controls, num_results=num_results, threads=threads, verbose=verbose
        )
        self._lexicon = index.getLexicon()
        self._half = index.getCollectionStatistics().getNumberOfDocuments() / 2

    def search(self, queries: list[dict[str, float]]) -> Hits:
        """Finds the best documents."""
        # Terrier would rank documents lower for containing a term that is in more than half of them, whose inverse
        # document frequency is negative; other engines score it as nothing.
        queries = [shortened(query) for query in queries]
        bags = [{term: weight for term, weight in query.items() if self._tells(term)} or query for query in queries]
        frame = pd.DataFrame({"qid": np.arange(len(queries)).astype(str), "query_toks": bags})
        hits = Hits.of(self._retriever(frame))
        # Terrier's logarithm has base 2; natural ones make scores comparable with other engines. It also divides a
        # query's weights by the largest, which is not 1 any more where the heaviest term says nothing.
        largest = np.array([max(bag.values()) for bag in bags])
        return hits._replace(score=hits.score * math.log(2) * largest[hits.query])

    def _tells(self, term: str) -> bool:
        entry = self._lexicon.getLexiconEntry(term)
        return entry is None or entry.getDocumentFrequency() <= self._half


searcher = TerrierSearcher
