"""An index of analysed documents, and BM25 over it."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_mart.artifact import META, meta_bytes, read_meta
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.retrieval import engines
from pyterrier_mart.text import QUERY_TOKS_SPEC, Analyzer

__all__ = ["BM25Index", "BM25Retriever", "bm25_index"]

_KIND = {"type": "sparse_index", "format": "mart", "format_version": 1}


class BM25Index(pt.Artifact):
    """An index of documents that an :class:`~pyterrier_mart.Analyzer` split into words; made by :func:`bm25_index`.

    The directory holds ``pt_meta.json`` (engine, analyzer, number of documents) and the engine's own index in
    ``index/``, which can also be opened with the engine directly.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not such an index, or was made under other word rules.
    """

    ARTIFACT_TYPE = "sparse_index"
    ARTIFACT_FORMAT = "mart"
    ARTIFACT_PACKAGE_HINT = "pyterrier-mart"

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path)
        super().__init__(self.path)
        required = ("engine", "documents", "dataset", "docnos", "text_field", "analyzer")
        self.meta = read_meta(self.path, "index of pyterrier_mart", _KIND, required)
        self.engine: str = self.meta["engine"]
        settings = self.meta["analyzer"]
        try:
            Analyzer.from_spec({key: settings[key] for key in ("lang", "fold", "version")})
            options = {key: settings[key] for key in ("fold", "stop", "numbers")}
            self.analyzer = Analyzer(settings["lang"], **options)
        except ValueError as err:
            raise ValueError(f"cannot use the index {self.path}: {err}") from err
        except (KeyError, TypeError) as err:
            raise ValueError(f"damaged index {self.path}: its analyzer is {settings!r}") from err
        if not (self.path / "index").is_dir():
            raise ValueError(f"damaged index {self.path}: it lacks the directory index")

    def bm25(
        self, *, k1: float = 0.9, b: float = 0.4, num_results: int = 1000, threads: int = 1, verbose: bool = False
    ) -> BM25Retriever:
        """Returns a retriever over this index.

        Args:
            k1: BM25's saturation of term frequency. 0.9 is PISA's and Anserini's default, 1.2 Terrier's.
            b: BM25's length normalisation, from 0 to 1. 0.4 is PISA's and Anserini's default, 0.75 Terrier's.
            num_results: At most so many documents a query.
            threads: How many queries are answered at once.
            verbose: Whether to show progress and the engine's log.
        """
        return BM25Retriever(self, k1=k1, b=b, num_results=num_results, threads=threads, verbose=verbose)

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
    stop: bool = False,
    text_field: str = "text",
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
        stop: Whether stop words are left out of the index.
        text_field: The document field that is indexed.
        overwrite: Whether to build the index again and replace an existing one.
        threads: Threads of the engine while indexing.
        progress: Whether to show a progress bar.
        verbose: Whether to show the engine's log too.

    Raises:
        ValueError: If there are no documents, one lacks a field or repeats a docno, the language is not known, or the
            index at ``path`` was made of other documents, by another analyzer or another engine.
        FileExistsError: If ``path`` is something else than such an index.
        ImportError: If the engine is not installed.
    """
    path = Path(path)
    dataset: Any = pt.get_dataset(documents) if isinstance(documents, str) else documents
    if isinstance(dataset, pd.DataFrame):
        dataset = dataset.to_dict("records")
    analyzer = _analyzer(dataset, lang, stop)
    name = _dataset_name(dataset)
    if path.exists() and (path / META).exists() and not overwrite:
        index = _opened(path, analyzer, engine)
        _check_same_documents(index, dataset, name, text_field)
        return index
    chosen = engines.pick_engine(engine)
    rows = dataset.get_corpus_iter(verbose=False) if hasattr(dataset, "get_corpus_iter") else dataset
    with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
        (tmp / "index").mkdir()
        module = engines.engine(chosen)
        stream = _Stream(rows, analyzer, text_field, module.LONGEST_DOCNO, progress)
        with stream.raising():
            module.build(stream, tmp / "index", threads, verbose)
        meta = {
            **_KIND, "package_hint": BM25Index.ARTIFACT_PACKAGE_HINT,
            "engine": chosen, "documents": stream.count, "dataset": name, "docnos": stream.docnos.hexdigest(),
            "text_field": text_field,
            "analyzer": _settings(analyzer),
        }  # fmt: skip
        (tmp / META).write_bytes(meta_bytes(meta))
    return BM25Index(path)


class BM25Retriever(pt.Transformer):
    """BM25 over a :class:`BM25Index`.

    Takes weighted terms from ``query_toks`` where a query has that column (as
    :class:`~pyterrier_mart.SMTQueryTranslator` adds it); else the index's analyzer splits ``query`` into words. A
    term's score is proportional to its weight. Queries without a term, and terms whose weight is below the engine's
    resolution (1e-4 of the query's largest weight in PISA, 1e-6 in Terrier), find nothing.

    .. cite.dblp:: journals/ftir/RobertsonZ09

    Args:
        index: The index.
        k1: BM25's saturation of term frequency.
        b: BM25's length normalisation.
        num_results: At most so many documents a query.
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
        if not (0 <= k1 < math.inf):
            raise ValueError(f"k1 must be a number >= 0, not {k1!r}")
        if not (0 <= b <= 1):
            raise ValueError(f"b must be in [0, 1], not {b!r}")
        if num_results < 1:
            raise ValueError(f"num_results must be at least 1, not {num_results!r}")
        self.index, self.k1, self.b = index, k1, b
        self.num_results, self.threads, self.verbose = num_results, threads, verbose
        self._searcher: engines.Searcher | None = None
        self._opened_with: tuple[object, ...] = ()

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the best documents of each query, with ``docno``, ``score`` and ``rank``."""
        with pt.validate.any(inp, context=self) as v:
            v.query_frame(extra_columns=["query_toks"], mode="terms")
            v.query_frame(extra_columns=["query"], mode="text")
        if "query_toks" in inp.columns:
            self._check_spelling(inp.attrs.get(QUERY_TOKS_SPEC))
            bags = [toks if isinstance(toks, dict) else {} for toks in inp["query_toks"]]
        else:
            bags = [self.index.analyzer.counts(q) if isinstance(q, str) else {} for q in inp["query"]]
        queries, largest = self._scaled(bags)
        asked = [i for i, bag in enumerate(queries) if bag]
        if not asked:
            out = inp.iloc[:0].reset_index(drop=True)
            return out.assign(
                docno=pd.Series(dtype="str"), score=pd.Series(dtype="float64"), rank=pd.Series(dtype="int64")
            )
        hits = self._open().search([queries[i] for i in asked])
        row = np.array(asked)[hits.query]
        out = inp.iloc[row].reset_index(drop=True)
        score = hits.score * np.array(largest, dtype=np.float64)[row]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        rank = np.arange(len(row)) - np.repeat(starts, np.diff(np.append(starts, len(row))))
        return out.assign(docno=pd.Series(hits.docno, dtype="str"), score=score, rank=rank)

    def _check_spelling(self, spec: dict[str, Any] | None) -> None:
        """Refuses words that a translator spelled otherwise than this index: they would silently find nothing."""
        if spec is not None and spec != self.index.analyzer.spec:
            raise ValueError(
                f"the words in query_toks were made by the analyzer {spec}, but {self.index!r} by "
                f"{self.index.analyzer.spec}; use a table whose target language and analyzer are those of the index"
            )

    def _scaled(self, bags: list[dict[str, float]]) -> tuple[list[dict[str, float]], list[float]]:
        """Divides each query's weights by the largest, so that their size does not matter to the engine's precision."""
        resolution = engines.engine(self.index.engine).RESOLUTION if bags else 0.0
        queries, largest, lost = [], [], 0
        for bag in bags:
            if not all(math.isfinite(weight) and weight >= 0 for weight in bag.values()):
                raise ValueError(f"the weights in query_toks must be finite and not negative: {bag!r}")
            top = float(max(bag.values(), default=0.0)) or 1.0
            kept = {term: weight / top for term, weight in bag.items() if weight / top >= resolution}
            lost += sum(0 < weight / top < resolution for weight in bag.values())
            queries.append(kept)
            largest.append(top)
        if lost:
            warnings.warn(
                f"{lost} query terms weigh less than {resolution:g} of their query's heaviest term, which "
                f"{self.index.engine} cannot represent; they are left out",
                stacklevel=3,
            )
        return queries, largest

    def _open(self) -> engines.Searcher:
        options = self.k1, self.b, self.num_results, self.threads, self.verbose
        # Searches for the best parameters set attributes.
        if self._searcher is None or self._opened_with != (self.index, *options):
            self._searcher = engines.engine(self.index.engine).searcher(self.index.path / "index", *options)
            self._opened_with = (self.index, *options)
        return self._searcher

    def fuse_rank_cutoff(self, k: int) -> BM25Retriever:
        """Retrieves fewer documents instead of cutting them off afterwards (PyTerrier's optimiser asks)."""
        if k >= self.num_results:
            return self
        return self.index.bm25(k1=self.k1, b=self.b, num_results=k, threads=self.threads, verbose=self.verbose)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_searcher": None}

    def _key(self) -> tuple[object, ...]:
        return self.index, self.k1, self.b, self.num_results

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, BM25Retriever) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"BM25Retriever({self.index!r}, k1={self.k1}, b={self.b}, num_results={self.num_results})"


class _Stream:
    """The documents as engines take them, once: checked, analysed and counted, with a progress bar."""

    def __init__(
        self,
        rows: Iterable[dict[str, Any]],
        analyzer: Analyzer,
        text_field: str,
        longest_docno: int | None,
        progress: bool,
    ):
        self.count = 0
        self.docnos = hashlib.sha256()
        self._ended = False
        self._error: Exception | None = None
        self._rows, self._analyzer, self._text_field, self._progress = rows, analyzer, text_field, progress
        self._longest_docno = longest_docno

    def __iter__(self) -> Iterator[engines.Document]:
        try:
            yield from self._documents()
        except Exception as err:
            self._error = err
        self._ended = True

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Raises what is wrong with the documents once the engine is done.

        Not from the iterator: Terrier reads it in a thread of its own, and would make an index of the documents before
        the error. What engines raise for no documents at all says nothing.

        Raises:
            ValueError: If there are no documents.
        """
        try:
            yield
        except Exception:
            if not self._ended or (self.count and self._error is None):
                raise
        if self._error is not None:
            raise self._error
        if not self.count:
            raise ValueError("there are no documents to index")

    def _documents(self) -> Iterator[engines.Document]:
        seen: set[int] = set()  # of hashes, to stay small for large collections
        # The bar is made here because the engine may have replaced sys.stderr by now.
        for document in pt.tqdm(
            self._rows, desc=f"index {self._analyzer.lang}", unit="doc", disable=not self._progress, leave=False
        ):
            self.count += 1
            if not isinstance(document, dict):
                self._fail(f"expected a dict with docno and {self._text_field}, found {document!r}")
            docno = document.get("docno")
            if not isinstance(docno, str) or docno.split() != [docno]:
                self._fail(f"expected a docno without white space, found {docno!r}")
            if self._longest_docno is not None and len(docno) > self._longest_docno:
                self._fail(f"expected a docno of at most {self._longest_docno} characters, found {docno!r}")
            if self._text_field not in document:
                self._fail(f"{docno!r} has no field {self._text_field!r}; found {sorted(document)}")
            if hash(docno) in seen:
                self._fail(f"the docno {docno!r} occurs twice")
            seen.add(hash(docno))
            self.docnos.update(_line(docno))
            text = document[self._text_field]
            yield {"docno": docno, "toks": self._analyzer.counts(text) if isinstance(text, str) else {}}

    def _fail(self, message: str) -> NoReturn:
        raise ValueError(f"document {self.count}: {message}")


def _analyzer(dataset: Any, lang: str | Analyzer | None, stop: bool) -> Analyzer:
    known = dataset.get_corpus_lang() if hasattr(dataset, "get_corpus_lang") else None
    code = known if lang is None else lang
    if code is None:
        raise ValueError("the language of the documents is not known: pass lang=, such as 'en'")
    analyzer = code if isinstance(code, Analyzer) else Analyzer(code, stop=stop)
    if known is not None and analyzer.lang != known:
        raise ValueError(f"lang={lang!r}, but the documents of {dataset!r} are in {known!r}")
    return analyzer


def _dataset_name(dataset: Any) -> str | None:
    if not hasattr(dataset, "get_corpus_iter"):
        return None
    return getattr(dataset, "corpus_name", None) or repr(dataset)


def _settings(analyzer: Analyzer) -> dict[str, Any]:
    stop = analyzer.stop if isinstance(analyzer.stop, bool) else sorted(analyzer.stop)
    return {**analyzer.spec, "stop": stop, "numbers": analyzer.numbers}


def _line(docno: object) -> bytes:
    return f"{docno}\n".encode("utf-8", errors="surrogatepass")


def _check_same_documents(index: BM25Index, documents: Any, name: str | None, text_field: str) -> None:
    """Refuses an index of other documents, as far as that can be told without reading them all."""
    advice = "name another path or pass overwrite=True"
    if name is not None and index.meta["dataset"] is not None and name != index.meta["dataset"]:
        raise ValueError(f"the index at {index.path} is of {index.meta['dataset']}, expected {name}; {advice}")
    if text_field != index.meta["text_field"]:
        raise ValueError(
            f"the index at {index.path} is of the field {index.meta['text_field']!r}, expected {text_field!r}; {advice}"
        )
    if isinstance(documents, (list, tuple)):
        docnos = hashlib.sha256()
        for document in documents:
            docnos.update(_line(document.get("docno") if isinstance(document, dict) else document))
        if docnos.hexdigest() != index.meta["docnos"]:
            raise ValueError(
                f"the index at {index.path} is of {len(index):,} other documents than the {len(documents):,} given; "
                f"{advice}"
            )


def _opened(path: Path, analyzer: Analyzer, engine: str) -> BM25Index:
    """Opens an existing index if it is the one that would be built."""
    index = BM25Index(path)
    wanted, found = _settings(analyzer), _settings(index.analyzer)
    advice = "name another path or pass overwrite=True"
    if wanted != found:
        raise ValueError(f"the index at {path} was made by the analyzer {found}, expected {wanted}; {advice}")
    if engine != "auto" and engine != index.engine:
        raise ValueError(f"the index at {path} was made with {index.engine}, expected {engine}; {advice}")
    return index
