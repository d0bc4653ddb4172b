"""Probabilistic structured queries, document side: an index of documents in the language of the queries."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from pyterrier_mart.checks import check_choice, check_number, check_stop, check_whole
from pyterrier_mart.retrieval import expectation
from pyterrier_mart.retrieval.documents import analyzer_for, source_of
from pyterrier_mart.retrieval.index import Text, WordIndex, build_index, settings_of
from pyterrier_mart.retrieval.retriever import WordRetriever
from pyterrier_mart.retrieval.types import Postings
from pyterrier_mart.text import Analyzer, language_code, language_of
from pyterrier_mart.translation.backoff import other_forms
from pyterrier_mart.translation.table import TranslationTable
from pyterrier_mart.translation.vocabulary import Vocabulary

__all__ = ["PSQIndex", "PSQRetriever", "psq_index"]

_WORDS = "words.txt"  # the query words that the tables know, one a line
_MOST_REMEMBERED = 1 << 16  # distinct query words

#: What a user may give as tables.
Tables = TranslationTable | str | Mapping[str, TranslationTable | str | None]


class PSQIndex(WordIndex):
    """An index of documents as terms of the queries' language; made by :func:`psq_index`.

    The directory holds ``pt_meta.json`` (tables, weighting, engine, analyzer of queries), the query words that the
    tables know in ``words.txt``, and the engine's own index in ``index/``, whose frequencies are hundredths of what a
    term adds to a document's score.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not such an index, is damaged, or was made under other word rules.
    """

    ARTIFACT_FORMAT = "mart_psq"
    REQUIRED = {"tables": dict, "weighting": dict, "pruning": dict}

    def retriever(
        self, num_results: int = 1000, *, relate: bool = True, threads: int = 1, verbose: bool = False
    ) -> PSQRetriever:
        """Returns a retriever over this index, which takes queries in their own language.

        Args:
            num_results: Maximum number of documents for each query.
            relate: Whether query words that the tables lack also find what their other forms and parts find.
            threads: How many queries are answered at once.
            verbose: Whether to show progress and the engine's log.
        """
        return PSQRetriever(self, num_results, relate=relate, threads=threads, verbose=verbose)

    def words(self) -> Vocabulary:
        """Reads the query words that the tables know."""
        return Vocabulary.from_words((self.path / _WORDS).read_text(encoding="utf-8").splitlines())


def psq_index(
    documents: Any,
    path: str | os.PathLike[str],
    tables: Tables,
    *,
    weighting: str = "hmm",
    alpha: float = 0.5,
    k1: float = 0.9,
    b: float = 0.4,
    cumulative: float | None = 0.97,
    top_k: int | None = None,
    threshold: float = 0.0,
    engine: str = "auto",
    stop: bool | Collection[str] = False,
    text_field: str | Sequence[str] = "text",
    store_text: bool = False,
    overwrite: bool = False,
    threads: int = 1,
    progress: bool = True,
    verbose: bool = False,
) -> PSQIndex:
    """Builds an index of documents in the language of the queries, or opens the one at ``path``.

    These are probabilistic structured queries: a query term occurs in a document as often as is expected of the
    document's words, the sum of P(document word | query term) over them. It is computed ahead of time, so that a query
    is one of plain words. A document word whose spelling no query word of the table has is the same word in queries:
    names and numbers. Function words of the documents translate none but function words of the queries: what else a
    table says of them is noise of its alignment.

    Documents in several languages, each with its table, are comparable, since all become terms of one language; their
    lengths are compared with the mean of their language.

    Documents are read once; the index appears when it is complete, and is opened if it is there already and was made of
    the same documents, tables and settings, by the same engine.

    .. cite.dblp:: conf/sigir/DarwishO03
    .. cite.dblp:: conf/sigir/XuW00

    Example::

        >>> data = pt.get_dataset("mart:xquad-r/de-en")
        >>> psq = psq_index(data, "xquad-r-en.psq", "de-en").retriever()
        >>> psq.search("Wo wurde Luther geboren?")
        >>> many = psq_index(documents, "news.psq", {"en": "de-en", "fr": "de-fr", "de": None})   # with doc_lang

    Args:
        documents: As :func:`bm25_index` takes them. With several tables each has ``doc_lang``.
        path: The directory of the index.
        tables: The table from the language of the queries to that of the documents, which
            :class:`~pyterrier_mart.SMTQueryTranslator` takes too, or its name; or a table for each language of
            documents, ``None`` for the language of the queries.
        weighting: ``"hmm"``: documents rank by how probably they generate the query; or ``"bm25"``.
        alpha: Of the HMM, the weight of the collection, above 0 and below 1.
        k1: BM25's saturation of term frequency.
        b: BM25's length normalisation.
        cumulative: Of a query word the best translations with this share of its probability count; ``None``: all.
        top_k: Maximum number of translations of a query word.
        threshold: Only translations of at least this probability.
        engine: ``"pisa"``, ``"terrier"``, or ``"auto"``: PISA where it is installed, else Terrier.
        stop: Whether function words of the queries' language are left out of queries and index, or the words to leave
            out. fast_psq leaves out those of both languages; on XQuAD-R it is no gain here.
        text_field: The document field that is indexed, or several.
        store_text: Whether the indexed fields are stored beside the index, for :meth:`PSQIndex.text_loader`.
        overwrite: Whether to build the index again and replace an existing one.
        threads: Threads of the engine while indexing.
        progress: Whether to show progress bars.
        verbose: Whether to show the engine's log too.

    Raises:
        ValueError: If an argument is out of range, tables do not fit each other or the documents, or as
            :func:`bm25_index`.
        FileNotFoundError: If a table is named that does not exist, or documents that are no dataset and no file.
        FileExistsError: If ``path`` is something else than such an index.
        ImportError: If the engine is not installed.
    """
    check_choice("weighting", weighting, ("hmm", "bm25"))
    check_number("alpha", alpha, 0, 1 - 1e-6, positive=True)
    check_number("k1", k1)
    check_number("b", b, 0, 1)
    check_number("threshold", threshold, 0, 1)
    check_number("cumulative", cumulative, 0, 1, positive=True, optional=True)
    check_whole("top_k", top_k, optional=True)
    check_stop(stop)
    dataset = source_of(documents)
    chosen, query = opened_tables(tables, stop)
    analyzers = [query if table is None else table.target for table in chosen.values()]
    if len(chosen) == 1:
        analyzer_for(dataset, analyzers[0], False)
    options = {"alpha": alpha} if weighting == "hmm" else {"k1": k1, "b": b}
    pruning = {"cumulative": cumulative, "top_k": top_k, "threshold": float(threshold)}
    weigh = expectation.hmm(alpha) if weighting == "hmm" else expectation.bm25(k1, b)

    def split(texts: Iterator[Text], directory: Path) -> Iterator[Postings]:
        words = sorted({word for table in chosen.values() if table is not None for word in table.source_words[:]})
        (directory / _WORDS).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        with tempfile.TemporaryDirectory(dir=directory) as scratch, open(f"{scratch}/docnos", "w+") as docnos:
            collection = expectation.Collection(chosen, query, pruning, Path(scratch))
            for document, text in texts:
                collection.add(language_in(chosen, document), text)
                docnos.write(f"{document['docno']}\n")
            docnos.seek(0)
            yield from collection.postings((line[:-1] for line in docnos), weigh)

    return build_index(
        PSQIndex, dataset, path,
        {
            "analyzer": settings_of(query), "weighting": {"name": weighting, **options}, "pruning": pruning,
            "tables": {lang: table and table.fingerprint for lang, table in chosen.items()},
        },
        split, of=", ".join(chosen), by=" and ".join(map(repr, analyzers)), text_field=text_field, engine=engine,
        store_text=store_text, overwrite=overwrite, threads=threads, progress=progress, verbose=verbose, impacts=True,
    )  # fmt: skip


def opened_tables(tables: Tables, stop: bool | Collection[str]) -> tuple[dict[str, TranslationTable | None], Analyzer]:
    """Returns the table for each language of documents, and the analyzer of queries.

    Raises:
        ValueError: If a table is for other documents or other queries.
    """
    chosen: dict[str, TranslationTable | None] = {}
    named: Mapping[Any, Any] = tables if isinstance(tables, Mapping) else {None: tables}
    for lang, given in named.items():
        table = given if given is None or isinstance(given, TranslationTable) else TranslationTable.load(given)
        if table is None and lang is None:
            raise ValueError("tables must be a translation table, its name, or a table for each language of documents")
        code = language_code(lang) if lang is not None else str(table and table.target.lang)
        if table is not None and table.target.lang != code:
            raise ValueError(f"tables: the table of documents in {code!r} translates to them, which {table!r} does not")
        chosen[code] = table
    if not chosen:
        raise ValueError("tables must name a language of documents, with its table")
    query = next((table.source for table in chosen.values() if table is not None), None) or Analyzer(next(iter(chosen)))
    for lang, table in chosen.items():
        if table is None and lang != query.lang:
            raise ValueError(f"tables: documents in {lang!r} need a table, since queries are in {query.lang!r}")
        if table is not None and table.source.spec != query.spec:
            raise ValueError(
                f"tables: queries are of the analyzer {query.spec}, but those of {table!r} of {table.source.spec}"
            )
    return chosen, query.without(stop)


def language_in(tables: Mapping[str, object], document: Mapping[str, Any]) -> str:
    """Returns the language of a document.

    Raises:
        ValueError: If it is not one of the tables'.
    """
    lang = language_of(document.get("doc_lang"))
    if lang is None and len(tables) == 1:
        return next(iter(tables))
    if lang is None or lang not in tables:
        what = f"its doc_lang must be one of {', '.join(tables)}, not {document.get('doc_lang')!r}"
        raise ValueError(f"the document {document['docno']!r}: {what}")
    return lang


class PSQRetriever(WordRetriever):
    """Retrieval from a :class:`PSQIndex`: plain queries, whose terms the documents were translated into.

    The analyzer of the tables' source language splits ``query`` into words. A word that the tables lack is searched as
    it stands, and with it its known other forms and the parts of compounds. Weighted terms in ``query_toks`` are
    searched instead where a query has that column, as by :class:`~pyterrier_mart.BM25Retriever`; they are of the
    queries' language. Scores are the sum of what each term adds, to one hundredth.

    Args:
        index: The index.
        num_results: Maximum number of documents for each query.
        relate: Whether query words that the tables lack also find what their other forms and parts find.
        threads: How many queries are answered at once.
        verbose: Whether to show progress and the engine's log.

    Raises:
        ValueError: If a parameter is out of range.
    """

    schematic = {**WordRetriever.schematic, "label": "PSQ"}

    def __init__(
        self,
        index: PSQIndex,
        num_results: int = 1000,
        *,
        relate: bool = True,
        threads: int = 1,
        verbose: bool = False,
    ):
        super().__init__(index, num_results, threads, verbose)
        self.index: PSQIndex
        self.relate = relate
        self._forms: Callable[[str], list[tuple[str, float]]] | None = None
        self._forms_of: PSQIndex | None = None

    @property
    def scoring(self) -> None:
        """Impacts are added up."""
        return None

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the best documents of each query, with ``docno``, ``score`` and ``rank``."""
        out = super().transform(inp)
        return out.assign(score=out["score"] / expectation.SCALE)

    def bags(self, rows: pd.DataFrame) -> list[dict[str, float]]:
        """Returns the weighted terms of each query, other forms of unknown ones among them."""
        bags = super().bags(rows)
        return [self._related(bag) for bag in bags] if self.relate else bags

    def _related(self, bag: dict[str, float]) -> dict[str, float]:
        if self._forms is None or self._forms_of != self.index:
            words, lang = self.index.words(), self.index.analyzer.lang
            self._forms, self._forms_of = lru_cache(_MOST_REMEMBERED)(lambda word: forms(word, words, lang)), self.index
        out = dict(bag)
        for word, weight in bag.items():
            for form, share in self._forms(word):
                out[form] = out.get(form, 0.0) + weight * share
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_forms": None}

    def __repr__(self) -> str:
        relate = "" if self.relate else ", relate=False"
        return f"PSQRetriever({self.index!r}, num_results={self.num_results}{relate})"


def forms(word: str, words: Vocabulary, lang: str) -> list[tuple[str, float]]:
    """Returns the known words that an unknown word is related to, and their weights; none for a known word."""
    return [] if word in words else [(words[i], share) for i, share in other_forms(word, words, lang)]
