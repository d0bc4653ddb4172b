"""BM25 over an index of analysed documents: made, opened and searched."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyterrier_mart.checks import check_number
from pyterrier_mart.retrieval.documents import analyzer_for, source_of
from pyterrier_mart.retrieval.index import Text, WordIndex, build_index, settings_of
from pyterrier_mart.retrieval.retriever import WordRetriever
from pyterrier_mart.retrieval.types import Document, Scoring
from pyterrier_mart.text import Analyzer

__all__ = ["BM25Index", "BM25Retriever", "bm25_index"]


class BM25Index(WordIndex):
    """An index of documents that an :class:`~pyterrier_mart.Analyzer` split into words; made by :func:`bm25_index`.

    The directory holds ``pt_meta.json`` (engine, analyzer, number of documents) and the engine's own index in
    ``index/``, which can also be opened with the engine directly.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not such an index, is damaged, or was made under other word rules.
    """

    ARTIFACT_FORMAT = "mart"

    def bm25(
        self, *, k1: float = 0.9, b: float = 0.4, num_results: int = 1000, threads: int = 1, verbose: bool = False
    ) -> BM25Retriever:
        """Returns a retriever over this index.

        Args:
            k1: BM25's saturation of term frequency. 0.9 is PISA's and Anserini's default, 1.2 Terrier's.
            b: BM25's length normalisation, from 0 to 1. 0.4 is PISA's and Anserini's default, 0.75 Terrier's.
            num_results: Maximum number of documents for each query.
            threads: How many queries are answered at once.
            verbose: Whether to show progress and the engine's log.
        """
        return BM25Retriever(self, k1=k1, b=b, num_results=num_results, threads=threads, verbose=verbose)


def bm25_index(
    documents: Any,
    path: str | os.PathLike[str],
    lang: str | Analyzer | None = None,
    *,
    engine: str = "auto",
    stop: bool | Collection[str] = False,
    text_field: str | Sequence[str] = "text",
    store_text: bool = False,
    overwrite: bool = False,
    threads: int = 1,
    progress: bool = True,
    verbose: bool = False,
) -> BM25Index:
    """Builds an index of the documents' words, or opens the one at ``path``.

    Documents are streamed; the index appears when it is complete. An index that is there already is opened if it was
    made of the same dataset, file or list of docnos by the same analyzer and engine, and refused otherwise.

    Example::

        >>> data = pt.get_dataset("mart:xquad-r/de-en")
        >>> bm25 = bm25_index(data, "xquad-r-en.index").bm25()
        >>> bm25.search("Where was Luther born?")

    Args:
        documents: A PyTerrier dataset or its name; a file of documents (a path, or text that names no dataset): JSON
            lines or tab-separated columns, plain or packed, with fields as :class:`~.DocumentFile` has them; an
            iterable of dicts with ``docno`` and ``text_field``, or a frame of them. A generator is not read where the
            index is there already.
        path: The directory of the index.
        lang: Language of the documents, or the :class:`~pyterrier_mart.Analyzer` to use; by default what the dataset
            says.
        engine: ``"pisa"``, ``"terrier"``, or ``"auto"``: PISA where it is installed, else Terrier; an index that is
            there already keeps its engine.
        stop: Whether function words are left out of the index, or the words to leave out.
        text_field: The document field that is indexed, or several: ``("title", "text")``.
        store_text: Whether the indexed fields are stored beside the index, for :meth:`BM25Index.text_loader`; an index
            that is there without them is refused.
        overwrite: Whether to build the index again and replace an existing one.
        threads: Threads of the engine while indexing.
        progress: Whether to show a progress bar.
        verbose: Whether to show the engine's log too.

    Raises:
        ValueError: If there are no documents, none has a word, one lacks a field or repeats a docno, the language is
            not known, or the index at ``path`` was made of other documents, by another analyzer or another engine.
        FileExistsError: If ``path`` is something else than such an index.
        FileNotFoundError: If ``documents`` names neither a dataset nor a file.
        ImportError: If the engine is not installed.
    """
    dataset = source_of(documents)
    analyzer = analyzer_for(dataset, lang, stop)

    def split(texts: Iterator[Text], directory: Path) -> Iterator[Document]:
        return ({"docno": document["docno"], "toks": analyzer.counts(text)} for document, text in texts)

    return build_index(
        BM25Index, dataset, path, {"analyzer": settings_of(analyzer)}, split, of=analyzer.lang, by=repr(analyzer),
        text_field=text_field, engine=engine, store_text=store_text, overwrite=overwrite, threads=threads,
        progress=progress, verbose=verbose,
    )  # fmt: skip


class BM25Retriever(WordRetriever):
    """BM25 over a :class:`BM25Index`.

    Takes weighted terms from ``query_toks`` where a query has that column (as
    :class:`~pyterrier_mart.SMTQueryTranslator` adds it); else the index's analyzer splits ``query`` into words. A
    term's score is proportional to its weight, and to its inverse document frequency, where n of N documents have it:
    ``max(ln((N - n + 0.5) / (n + 0.5)), 1e-6)``. So a term of half of the documents or more finds them, below all
    others. Queries without a term, and terms whose weight is below the engine's resolution (1e-4 of the query's
    largest weight in PISA, 1e-12 in Terrier), find nothing. Terms that no analyzer of this package spelled are brought
    into the index's normal form: ``{"CAT": 1.0}`` finds *cat*.

    What Terrier's query expansion writes into ``query`` (``pt.rewrite.RM3`` and the like, over the directory ``index/``
    of an index of the engine Terrier) is read as weighted terms. Where there are ``query_toks`` too, as in
    ``smt >> bm25 >> RM3 >> bm25``, either have half of the weight, since Terrier expands what was not translated. If
    ``query`` was rewritten in another way after ``query_toks`` were made, these are searched, with a warning.

    .. cite.dblp:: journals/ftir/RobertsonZ09

    Args:
        index: The index.
        k1: BM25's saturation of term frequency.
        b: BM25's length normalisation.
        num_results: Maximum number of documents for each query.
        threads: How many queries are answered at once.
        verbose: Whether to show progress and the engine's log.

    Raises:
        ValueError: If a parameter is out of range.
    """

    schematic = {**WordRetriever.schematic, "label": "BM25"}

    def __init__(
        self,
        index: BM25Index,
        *,
        k1: float = 0.9,
        b: float = 0.4,
        num_results: int = 1000,
        threads: int = 1,
        verbose: bool = False,
    ):
        check_number("k1", k1)
        check_number("b", b, 0, 1)
        super().__init__(index, num_results, threads, verbose)
        self.k1, self.b = k1, b

    @property
    def scoring(self) -> Scoring:
        """BM25's parameters."""
        return self.k1, self.b

    def __repr__(self) -> str:
        return f"BM25Retriever({self.index!r}, k1={self.k1}, b={self.b}, num_results={self.num_results})"
