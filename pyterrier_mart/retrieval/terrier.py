"""BM25 with Terrier, wherever there is Java 11 or newer; PyTerrier fetches Terrier itself."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.retrieval.engines import Document, Hits

RESOLUTION = 1e-6  # Terrier's query language keeps six decimals of a weight

_DOCNO_SIZE = 100  # characters; the index reserves so many for each document, then compresses them
LONGEST_DOCNO: int | None = _DOCNO_SIZE
_LONGEST_TERM = 60  # bytes of UTF-8 that the lexicon reserves; a longer term would damage it


def build(documents: Iterable[Document], path: Path, threads: int, verbose: bool) -> None:
    """Writes a Terrier index of the documents' ``toks`` into the empty directory ``path``."""
    _start_java()
    # Terrier would apply its own stemmer and stop words to documents and queries.
    indexer = pt.IterDictIndexer(
        str(path.absolute()), pretokenised=True, stemmer=None, stopwords=None, meta={"docno": _DOCNO_SIZE},
        threads=threads, verbose=False,
    )  # fmt: skip
    indexer.index({**document, "toks": _spelled(document["toks"])} for document in documents)


def _start_java() -> None:
    """Starts the JVM, which may fetch Terrier's jars.

    Raises:
        ImportError: If there is no Java.
        OSError: If the jars cannot be fetched.
    """
    if pt.java.started():
        return
    try:
        pt.java.init()
    except OSError:  # of the download: it says what is wrong
        raise
    except Exception as err:  # the bridge to Java raises no narrower class
        raise ImportError(
            f"engine='terrier' needs Java 11 or newer, which could not be started ({err}); install it, or set "
            "JAVA_HOME if it is installed"
        ) from err


def _spelled(toks: dict[str, float]) -> dict[str, float]:
    """The terms as the index spells them: of one that is too long, the beginning and a digest."""
    if all(len(term) <= _LONGEST_TERM // 4 for term in toks):  # a character has at most four bytes
        return toks
    return {_shortened(term): weight for term, weight in toks.items()}


def _shortened(term: str) -> str:
    encoded = term.encode("utf-8")
    if len(encoded) <= _LONGEST_TERM:
        return term
    digest = hashlib.sha256(encoded).hexdigest()[:20]
    return encoded[: _LONGEST_TERM - len(digest)].decode("utf-8", errors="ignore") + digest


class _Searcher:
    def __init__(self, path: Path, k1: float, b: float, num_results: int, threads: int, verbose: bool):
        # With a large k_3 a term counts in proportion to its weight; Terrier's default of 8 saturates it.
        _start_java()
        controls = {"bm25.k_1": str(k1), "bm25.b": str(b), "bm25.k_3": "1e6"}
        index = pt.terrier.IndexFactory.of(str(path.absolute()))
        self._retriever = pt.terrier.Retriever(
            index, wmodel="BM25", controls=controls, num_results=num_results, threads=threads, verbose=verbose
        )
        self._lexicon = index.getLexicon()
        self._half = index.getCollectionStatistics().getNumberOfDocuments() / 2
        self._says_nothing: dict[str, bool] = {}

    def search(self, queries: list[dict[str, float]]) -> Hits:
        bags = [self._telling(_spelled(query)) for query in queries]
        frame = pd.DataFrame({"qid": np.arange(len(queries)).astype(str), "query_toks": bags})
        found: pd.DataFrame = self._retriever(frame)
        number = found["qid"].to_numpy(dtype=np.int64)
        order = np.lexsort((found["rank"].to_numpy(), number))
        # Terrier's logarithm has base 2; natural ones make scores comparable with other engines. It also divides a
        # query's weights by the largest, which is not 1 any more where the heaviest term says nothing.
        largest = np.array([max(bag.values()) for bag in bags])
        score = found["score"].to_numpy(dtype=np.float64) * math.log(2) * largest[number]
        return Hits(number[order], found["docno"].to_numpy(dtype=object)[order], score[order])

    def _telling(self, query: dict[str, float]) -> dict[str, float]:
        """Leaves out terms that more than half of the documents contain.

        Their inverse document frequency is negative, and Terrier would rank documents lower for containing a term of
        the query. Other engines score them as nothing.
        """
        kept = {term: weight for term, weight in query.items() if not self._is_everywhere(term)}
        return kept or query

    def _is_everywhere(self, term: str) -> bool:
        known = self._says_nothing.get(term)
        if known is None:
            entry = self._lexicon.getLexiconEntry(term)
            known = self._says_nothing[term] = entry is not None and entry.getDocumentFrequency() > self._half
        return known


def searcher(path: Path, k1: float, b: float, num_results: int, threads: int, verbose: bool) -> _Searcher:
    """Opens the index for retrieval."""
    return _Searcher(path, k1, b, num_results, threads, verbose)
