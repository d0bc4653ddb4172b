"""BM25 over an index of analysed documents: made, opened and searched."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.artifact import META, check_files, checksums, meta_bytes, read_meta
from pyterrier_mart.checks import check_choice, check_number, check_whole
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.frames import Transformer, warn
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.query_terms import index_terms, terms_of
from pyterrier_mart.retrieval.documents import (
    DOCNO,
    DOCNO_RULE,
    analyzer_for,
    checked,
    counts_of,
    dataset_name,
    docno_line,
    documents_of,
)
from pyterrier_mart.retrieval.types import Document, Engine, Searcher
from pyterrier_mart.stopwords import long_list
from pyterrier_mart.text import Analyzer

__all__ = ["BM25Index", "BM25Retriever", "bm25_index", "engine_of"]

_KIND = {"type": "sparse_index", "format": "mart", "format_version": 1}
_FUNCTION_WORDS = "function words"  # what metadata say of stop=True


def engine_of(name: str) -> Engine:
    """Returns the module of an engine; this is where its package is imported.

    Args:
        name: ``"pisa"``, ``"terrier"``, or ``"auto"``: PISA where it is installed (it has wheels for Linux on x86-64
            only), else Terrier.

    Raises:
        ValueError: If there is no such engine.
        ImportError: If PISA is asked for and not installed.
    """
    check_choice("engine", name, ("auto", "pisa", "terrier"))
    has_pisa = find_spec("pyterrier_pisa") is not None
    if name == "pisa" and not has_pisa:
        raise ImportError(
            "engine='pisa' needs the package pyterrier-pisa, which exists for Linux on x86-64 only; use "
            "engine='terrier'"
        )
    if name == "terrier" or not has_pisa:
        from pyterrier_mart.retrieval import terrier

        return terrier
    from pyterrier_mart.retrieval import pisa

    return pisa


class BM25Index(pt.Artifact):
    """An index of documents that an :class:`~pyterrier_mart.Analyzer` split into words; made by :func:`bm25_index`.

    The directory holds ``pt_meta.json`` (engine, analyzer, number of documents) and the engine's own index in
    ``index/``, which can also be opened with the engine directly.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not such an index, is damaged, or was made under other word rules.
    """

    ARTIFACT_TYPE = "sparse_index"
    ARTIFACT_FORMAT = "mart"
    ARTIFACT_PACKAGE_HINT = "pyterrier-mart"

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path).absolute()  # wherever the process goes
        super().__init__(self.path)
        required = {
            "engine": str, "documents": int, "dataset": str | None, "docnos": str, "text_field": str | list,
            "analyzer": dict,
        }  # fmt: skip
        self.meta = read_meta(self.path, "index of pyterrier_mart", _KIND, required)
        self.engine: str = self.meta["engine"]
        settings = self.meta["analyzer"]
        try:
            spec = {key: settings[key] for key in ("lang", "fold", "version")}
            stop = settings["stop"]
            if isinstance(stop, bool):  # before there were function words, True meant the long list
                stop = long_list(settings["lang"]) if stop else False
            stop = True if stop == _FUNCTION_WORDS else stop
            self.analyzer = Analyzer.from_spec(spec, stop=stop, numbers=settings["numbers"])
        except (KeyError, TypeError, ValueError) as err:
            raise ValueError(f"cannot use the index {self.path} with the analyzer {settings!r}: {err}") from err
        if not (self.path / "index").is_dir():
            raise ValueError(f"damaged index {self.path}: it lacks the directory index")
        self.check()

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

    def check(self) -> None:
        """Compares the index with the checksums of its files (those of large ones are of samples).

        It is done whenever an index is opened, since engines end the process over damaged files.

        Raises:
            ValueError: If a file is missing or damaged; the message names it.
        """
        check_files(self.path, "index", self.meta.get("checksums", {}))  # earlier versions wrote none

    def __len__(self) -> int:
        """The number of documents."""
        return int(self.meta["documents"])

    def __eq__(self, other: object) -> bool:
        return self.path.resolve() == other.path.resolve() if isinstance(other, BM25Index) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.path.resolve())

    def __repr__(self) -> str:
        return f"BM25Index({str(self.path)!r}, {len(self):,} documents, {self.engine})"


def bm25_index(
    documents: Any,
    path: str | os.PathLike[str],
    lang: str | Analyzer | None = None,
    *,
    engine: str = "auto",
    stop: bool | Collection[str] = False,
    text_field: str | Sequence[str] = "text",
    overwrite: bool = False,
    threads: int = 1,
    progress: bool = True,
    verbose: bool = False,
) -> BM25Index:
    """Builds an index of the documents' words, or opens the one at ``path``.

    Documents are streamed; the index appears when it is complete. An index that is there already is opened if it was
    made of the same dataset or list of docnos by the same analyzer and engine, and refused otherwise.

    Example::

        >>> data = pt.get_dataset("mart:xquad-r/de-en")
        >>> bm25 = bm25_index(data, "xquad-r-en.index").bm25()
        >>> bm25.search("Where was Luther born?")

    Args:
        documents: A PyTerrier dataset (or its name), or an iterable of dicts with ``docno`` and ``text_field``, or
            a frame of them. A generator is not read where the index is there already.
        path: The directory of the index.
        lang: Language of the documents, or the :class:`~pyterrier_mart.Analyzer` to use; by default what the dataset
            says.
        engine: ``"pisa"``, ``"terrier"``, or ``"auto"``: PISA where it is installed, else Terrier; an index that is
            there already keeps its engine.
        stop: Whether function words are left out of the index, or the words to leave out.
        text_field: The document field that is indexed, or several: ``("title", "text")``.
        overwrite: Whether to build the index again and replace an existing one.
        threads: Threads of the engine while indexing.
        progress: Whether to show a progress bar.
        verbose: Whether to show the engine's log too.

    Raises:
        ValueError: If there are no documents, none has a word, one lacks a field or repeats a docno, the language is
            not known, or the index at ``path`` was made of other documents, by another analyzer or another engine.
        FileExistsError: If ``path`` is something else than such an index.
        ImportError: If the engine is not installed.
    """
    path = Path(path).absolute()
    fields = (text_field,) if isinstance(text_field, str) else tuple(text_field)
    if not fields:
        raise ValueError(f"text_field must name a field, or several, not {text_field!r}")
    dataset: Any = pt.get_dataset(documents) if isinstance(documents, str) else documents
    analyzer = analyzer_for(dataset, lang, stop)
    meta: dict[str, Any] = {
        "analyzer": _settings(analyzer),
        "dataset": dataset_name(dataset),
        "text_field": fields[0] if len(fields) == 1 else list(fields),
    }
    if (path / META).exists() and not overwrite:
        index = BM25Index(path)
        if engine != "auto":
            meta["engine"] = engine
        _check_same(index, {**meta, **counts_of(dataset)})
        return index
    chosen = engine_of(engine)
    docno, rule = DOCNO, DOCNO_RULE
    if (most := chosen.LONGEST_DOCNO) is not None:
        docno = rf"(?=.{{1,{most // 2}}}\Z|[\0-\uffff]{{1,{most}}}\Z){docno}"
        rule = f"of at most {most} characters ({most // 2} with characters beyond U+FFFF), {rule}"
    digest = hashlib.sha256()
    count, lost = 0, 0

    def analysed() -> Iterator[Document]:
        nonlocal count, lost
        rows = checked(documents_of(dataset)[0], fields, docno=docno, rule=rule)
        # The bar is made here because the engine may have replaced sys.stderr by now.
        bar = pt.tqdm(rows, desc=f"index {analyzer.lang}", unit="doc", disable=not progress, leave=False)
        for document in bar:
            count += 1
            digest.update(docno_line(document["docno"]))
            text = "\n".join(document[field] for field in fields if isinstance(document[field], str))
            toks = analyzer.counts(text)
            lost += not toks
            yield {"docno": document["docno"], "toks": toks}
        if lost == count:
            raise ValueError(
                f"none of the {count} documents has a word to index in {' or '.join(fields)}, by {analyzer!r}"
            )

    with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
        (tmp / "index").mkdir()
        chosen.build(analysed(), tmp / "index", threads, verbose)
        meta |= {"engine": chosen.NAME, "documents": count, "docnos": digest.hexdigest()}
        written = [str(file.relative_to(tmp)) for file in sorted((tmp / "index").rglob("*")) if file.is_file()]
        meta |= {"package_hint": BM25Index.ARTIFACT_PACKAGE_HINT, "checksums": checksums(tmp, written)}
        (tmp / META).write_bytes(meta_bytes({**_KIND, **meta}))
    return BM25Index(path)


def _settings(analyzer: Analyzer) -> dict[str, Any]:
    usual = _FUNCTION_WORDS if analyzer.stop else False
    stop = usual if isinstance(analyzer.stop, bool) else sorted(analyzer.stop)
    return {**analyzer.spec, "stop": stop, "numbers": analyzer.numbers}


def _check_same(index: BM25Index, wanted: dict[str, Any]) -> None:
    """Refuses an index that was made otherwise, as far as that is known of both."""
    for key, value in wanted.items():
        found = index.meta[key]
        if None not in (value, found) and value != found:
            raise ValueError(
                f"the index at {index.path} was made with {key} {found}, not {value}; name another path or pass "
                "overwrite=True"
            )


class BM25Retriever(Transformer):
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

    schematic = {"label": "BM25", "help_url": HELP_URL}

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
        check_whole("num_results", num_results)
        self.index, self.k1, self.b = index, k1, b
        self.num_results, self.threads, self.verbose = num_results, threads, verbose
        self._searcher: Searcher | None = None
        self._opened_with: tuple[object, ...] = ()

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the best documents of each query, with ``docno``, ``score`` and ``rank``."""
        with pt.validate.any(inp, context=self) as v:
            v.query_frame(extra_columns=["query_toks"], mode="terms")
            v.query_frame(extra_columns=["query"], mode="text")
        if "query_toks" in inp.columns:  # the output has them too, and must have what can be hashed
            inp = inp.assign(query_toks=pd.Series(terms_of(inp["query_toks"]), index=inp.index, dtype=object))
        bags = index_terms(inp, self.index.analyzer, repr(self.index))
        asked = np.array([i for i, bag in enumerate(bags) if any(bag.values())], dtype=np.int64)
        if not len(asked):
            empty = {name: pd.Series(dtype=kind) for name, kind in (("docno", "str"), ("score", float), ("rank", int))}
            return inp.iloc[:0].reset_index(drop=True).assign(**empty)
        largest = np.array([max(bags[i].values()) for i in asked], dtype=np.float64)
        hits = self._open().search(self._scaled([bags[i] for i in asked], largest))
        out = inp.iloc[asked[hits.query]].reset_index(drop=True)
        rank = pd.Series(hits.query).groupby(hits.query).cumcount()
        return out.assign(docno=pd.Series(hits.docno, dtype="str"), score=hits.score * largest[hits.query], rank=rank)

    def _scaled(self, bags: list[dict[str, float]], largest: Any) -> list[dict[str, float]]:
        """Divides each query's weights by the largest, so that their size does not matter to the engine's precision."""
        resolution = engine_of(self.index.engine).RESOLUTION
        queries, lost = [], 0
        for bag, top in zip(bags, largest.tolist(), strict=True):
            queries.append({term: weight / top for term, weight in bag.items() if weight / top >= resolution})
            lost += sum(0 < weight / top < resolution for weight in bag.values())
        if lost:
            warn(
                f"{lost} query terms weigh less than {resolution:g} of their query's heaviest term, which "
                f"{self.index.engine} cannot represent; they are left out"
            )
        return queries

    def _open(self) -> Searcher:
        options = self.k1, self.b, self.num_results, self.threads, self.verbose
        # Searches for the best parameters set attributes.
        if self._searcher is None or self._opened_with != (self.index, *options):
            self.index.check()
            self._searcher = engine_of(self.index.engine).searcher(self.index.path / "index", *options)
            self._opened_with = (self.index, *options)
        return self._searcher

    def fuse_rank_cutoff(self, k: int) -> BM25Retriever:
        """Retrieves fewer documents instead of cutting them off afterwards (PyTerrier's optimiser asks)."""
        if k >= self.num_results:
            return self
        return self.index.bm25(k1=self.k1, b=self.b, num_results=k, threads=self.threads, verbose=self.verbose)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_searcher": None}

    def __repr__(self) -> str:
        return f"BM25Retriever({self.index!r}, k1={self.k1}, b={self.b}, num_results={self.num_results})"
