"""What documents are expected to say in the language of the queries: probabilistic structured queries."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyterrier_mart.retrieval.types import Postings
from pyterrier_mart.stopwords import function_words
from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation import operations
from pyterrier_mart.translation.entries import Entries
from pyterrier_mart.translation.table import TranslationTable

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["SCALE", "Collection", "Weighting", "bm25", "hmm"]

#: Impacts are stored as whole numbers of this part.
SCALE = 100

#: Postings that are in memory at a time, before and after translation.
BLOCK = 1 << 20

_Floats = npt.NDArray[np.float64]


class Expected(NamedTuple):
    """Expected frequencies of query terms in documents, with the statistics of the collection.

    Attributes:
        tf: float64 (n), the frequency of a term in a document.
        row: int64 (n), which document.
        column: int32 (n), which term.
        words: float64, for each document the number of its words, at least 1.
        length: float64, for each document the same as a share of the mean of its language.
        cf: float64, for each term its share of the words of the collection.
        df: float64, for each term the number of documents with it.
    """

    tf: _Floats
    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int32]
    words: _Floats
    length: _Floats
    cf: _Floats
    df: _Floats


#: From expected frequencies to what each adds to the score of a query that has the term.
Weighting = Callable[[Expected], _Floats]


def hmm(alpha: float) -> Weighting:
    """PSQ-HMM: log(1 + (1 - alpha) / alpha * P(term | document) / P(term | collection)).

    Documents that generate the query from a mixture of their own words and the collection's (Xu and Weischedel 2000)
    rank in the order of this sum, since what the collection alone gives to a term is the same for all documents.
    """
    return lambda seen: np.log1p(seen.tf * ((1 - alpha) / alpha / seen.words)[seen.row] / seen.cf[seen.column])


def bm25(k1: float, b: float) -> Weighting:
    """BM25 of expected frequencies, of terms in documents and of documents (Darwish and Oard 2003)."""

    def weigh(seen: Expected) -> _Floats:
        idf = np.log1p((len(seen.words) - seen.df + 0.5) / (seen.df + 0.5)) * (k1 + 1)
        return idf[seen.column] * seen.tf / (seen.tf + (k1 * (1 - b + b * seen.length))[seen.row])

    return weigh


class Collection:
    """The words of a collection in several languages, on disk; then its documents in terms of the queries.

    Args:
        tables: For each language of documents its table, P(document word | query word); ``None`` for the language of
            the queries.
        query: Analyzer of the queries. Its stop words are no terms.
        pruning: Which translations count, as :meth:`TranslationTable.prune` takes it.
        scratch: A directory for what does not stay in memory.
    """

    def __init__(
        self,
        tables: Mapping[str, TranslationTable | None],
        query: Analyzer,
        pruning: Mapping[str, Any],
        scratch: Path,
    ):
        self.tables, self.query, self.pruning, self.scratch = tables, query, pruning, scratch
        counter = itertools.count()
        self.numbers = {lang: _Numbers(counter) for lang in tables}
        self.languages = {lang: i for i, lang in enumerate(tables)}
        everything = query.without(False)  # the lengths of documents are those of texts
        self.analyzers = {lang: everything if table is None else table.target for lang, table in tables.items()}
        self.runs = 0
        self._terms, self._freqs = array("I"), array("I")
        self._sizes, self._lengths, self._langs = array("I"), array("I"), array("B")
        self._cf = self._df = np.zeros(0)

    def add(self, lang: str, text: str) -> None:
        """Adds the next document."""
        toks = self.analyzers[lang].counts(text)
        self._terms.extend(map(self.numbers[lang].__getitem__, toks))
        self._freqs.extend(toks.values())
        self._sizes.append(len(toks))
        self._lengths.append(sum(toks.values()))
        self._langs.append(self.languages[lang])
        if len(self._terms) >= BLOCK:
            self.flush()

    def flush(self) -> None:
        """Writes what is in memory to disk."""
        terms, freqs = (np.frombuffer(column, dtype=np.uint32) for column in (self._terms, self._freqs))
        size = sum(map(len, self.numbers.values()))
        self._df = _grown(self._df, size) + np.bincount(terms, minlength=size)
        self._cf = _grown(self._cf, size) + np.bincount(terms, weights=freqs, minlength=size)
        np.save(self.scratch / f"{self.runs}.npy", np.stack([terms, freqs]))
        self.runs += 1
        self._terms, self._freqs = array("I"), array("I")

    def postings(self, docnos: Iterator[str], weighting: Weighting) -> Iterator[Postings]:
        """Yields the documents with impacts of query terms as frequencies, whole numbers in parts of 1 / SCALE."""
        self.flush()
        words, matrix = self._translation()
        lengths = np.frombuffer(self._lengths, dtype=np.uint32).astype(np.float64)
        langs = np.frombuffer(self._langs, dtype=np.uint8)
        total = np.bincount(langs, weights=lengths, minlength=len(self.tables))
        means = np.maximum(total, 1) / np.maximum(np.bincount(langs, minlength=len(self.tables)), 1)
        # Expectations are linear in counts, so that those of the collection are known before its documents'.
        cf = (self._cf @ matrix) / max(lengths.sum(), 1.0)
        df = np.minimum(self._df @ matrix, len(lengths))
        shares, lengths = lengths / means[langs], np.maximum(lengths, 1)
        start = 0
        for counts in self._blocks(matrix):
            expected = counts @ matrix
            column = expected.indices
            row = np.repeat(np.arange(start, start + expected.shape[0]), np.diff(expected.indptr))
            start += expected.shape[0]
            seen = Expected(expected.data, row, column, lengths, shares, cf, df)
            impacts = np.rint(weighting(seen) * SCALE).astype(np.int64)
            kept = impacts > 0
            bounds = np.concatenate([[0], np.cumsum(kept)])[expected.indptr]
            yield Postings(list(itertools.islice(docnos, len(bounds) - 1)), bounds, column[kept], impacts[kept], words)

    def _blocks(self, matrix: csr_matrix) -> Iterator[csr_matrix]:
        """Yields the counts of consecutive documents, of which few are together, before and after translation."""
        from scipy.sparse import csr_matrix

        sizes = np.frombuffer(self._sizes, dtype=np.uint32).astype(np.int64)
        fertility = np.diff(matrix.indptr)
        first = 0
        for run in range(self.runs):
            terms, freqs = np.load(self.scratch / f"{run}.npy")
            ends = np.cumsum(sizes[first:])
            last = first + int(np.searchsorted(ends, len(terms), side="right")) if run + 1 < self.runs else len(sizes)
            bounds = np.concatenate([[0], np.cumsum(sizes[first:last])])
            made = np.concatenate([[0], np.cumsum(fertility[terms])])[bounds]
            cuts = [0, *np.flatnonzero(np.diff(made // BLOCK)).tolist(), last - first]
            for i, j in itertools.pairwise(sorted(set(cuts))):
                part = slice(bounds[i], bounds[j])
                yield csr_matrix(
                    (freqs[part].astype(np.float64), terms[part], bounds[i : j + 1] - bounds[i]),
                    shape=(j - i, matrix.shape[0]),
                )
            first = last

    def _translation(self) -> tuple[npt.NDArray[np.object_], csr_matrix]:
        """Returns the query terms, and for each document word P(document word | query term)."""
        from scipy.sparse import csr_matrix

        columns = _Numbers(itertools.count())
        stop = self.query.stop_words if self.query.stop else frozenset()
        parts: list[tuple[Any, Any, Any]] = []
        for lang, table in self.tables.items():
            numbers = self.numbers[lang]
            known: frozenset[str] = frozenset()
            if table is not None:
                entries = without_noise(operations.prune(table.as_entries(), **self.pruning))
                known = frozenset(entries.source_words)
                rows = np.array([numbers.get(word, -1) for word in entries.target_words], dtype=np.int64)[entries.t]
                ours = np.array(
                    [-1 if word in stop else columns[word] for word in entries.source_words], dtype=np.int64
                )
                cols = ours[entries.s]
                kept = (rows >= 0) & (cols >= 0)
                parts.append((rows[kept], cols[kept], entries.w[kept]))
            # What the table lacks is its own translation: names, numbers and loan words are often the same.
            own = [
                (number, columns[term])
                for word, number in numbers.items()
                for term in ([word] if table is None else self.query.tokens(word))
                if term not in known and term not in stop
            ]
            rows, cols = np.array(own, dtype=np.int64).reshape(-1, 2).T
            parts.append((rows, cols, np.ones(len(rows))))
        rows, cols, probs = map(np.concatenate, zip(*parts, strict=True))
        shape = (sum(map(len, self.numbers.values())), len(columns))
        return np.array(list(columns), dtype=object), csr_matrix((probs, (rows, cols)), shape=shape)


def without_noise(entries: Entries) -> Entries:
    """Leaves out function words of the documents as translations of other words.

    Aligners pair what has no counterpart with them. They are in every document, and so would those words be: of the
    postings that the bundled tables give to sentences, two to nine of ten.
    """
    function = [
        np.array([word in known for word in words])
        for words, known in (
            (entries.source_words, function_words_of(entries.source)),
            (entries.target_words, function_words_of(entries.target)),
        )
    ]
    kept = function[0][entries.s] | ~function[1][entries.t]
    return replace(entries, s=entries.s[kept], t=entries.t[kept], w=entries.w[kept])


def function_words_of(analyzer: Analyzer) -> frozenset[str]:
    """Returns the function words of a language; none where only long lists of stop words are known."""
    return analyzer.without(True).stop_words if function_words(analyzer.lang) else frozenset()


class _Numbers(dict[str, int]):
    """Numbers words as they come; several share a counter."""

    def __init__(self, counter: Iterator[int]):
        self.counter = counter

    def __missing__(self, word: str) -> int:
        self[word] = number = next(self.counter)
        return number


def _grown(values: _Floats, size: int) -> _Floats:
    return np.concatenate([values, np.zeros(size - len(values))])
