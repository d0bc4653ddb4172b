"""An index of analysed documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_mart.artifact import META, meta_bytes, read_meta
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.retrieval import engines
from pyterrier_mart.retrieval.documents import DocumentStream, digest
from pyterrier_mart.retrieval.retriever import BM25Retriever
from pyterrier_mart.text import Analyzer, language_code

__all__ = ["BM25Index", "bm25_index"]

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
        stop: Whether stop words are left out of the index.
        text_field: The document field that is indexed, or several: ``("title", "text")``.
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
    fields = (text_field,) if isinstance(text_field, str) else tuple(text_field)
    if not fields or not all(isinstance(field, str) and field for field in fields):
        raise ValueError(f"text_field must name a field, or several, not {text_field!r}")
    dataset: Any = pt.get_dataset(documents) if isinstance(documents, str) else documents
    if isinstance(dataset, pd.DataFrame):
        dataset = dataset.to_dict("records")
    analyzer = _analyzer(dataset, lang, stop)
    name = _dataset_name(dataset)
    if path.exists() and (path / META).exists() and not overwrite:
        index = _opened(path, analyzer, engine)
        _check_same_documents(index, dataset, name, fields)
        return index
    chosen = engines.pick_engine(engine)
    rows = dataset.get_corpus_iter(verbose=False) if hasattr(dataset, "get_corpus_iter") else dataset
    with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
        (tmp / "index").mkdir()
        module = engines.engine(chosen)
        stream = DocumentStream(rows, analyzer, fields, module.LONGEST_DOCNO, progress)
        with stream.raising():
            module.build(stream, tmp / "index", threads, verbose)
        meta = {
            **_KIND, "package_hint": BM25Index.ARTIFACT_PACKAGE_HINT,
            "engine": chosen, "documents": stream.count, "dataset": name, "docnos": stream.docnos_digest,
            "text_field": _named(fields),
            "analyzer": _settings(analyzer),
        }  # fmt: skip
        (tmp / META).write_bytes(meta_bytes(meta))
    return BM25Index(path)


def _analyzer(dataset: Any, lang: str | Analyzer | None, stop: bool) -> Analyzer:
    said = dataset.get_corpus_lang() if hasattr(dataset, "get_corpus_lang") else None
    try:
        known = None if said is None else language_code(said)
    except ValueError:  # mMARCO's Dutch is "dt"
        known = None
    code = known if lang is None else lang
    if code is None:
        raise ValueError(
            f"the language of the documents is {'not known' if said is None else f'given as {said!r}'}: pass lang=, "
            "such as 'en'"
        )
    analyzer = code if isinstance(code, Analyzer) else Analyzer(code, stop=stop)
    if known is not None and analyzer.lang != known:
        raise ValueError(f"lang={lang!r}, but the documents of {dataset!r} are in {known!r}")
    return analyzer


def _dataset_name(dataset: Any) -> str | None:
    if not hasattr(dataset, "get_corpus_iter"):
        return None
    own = getattr(dataset, "corpus_name", None)
    if own is None and (irds_id := getattr(dataset, "_irds_id", None)) is not None:
        import ir_datasets

        own = f"irds:{ir_datasets.docs_parent_id(irds_id)}"  # subsets of a collection differ in their topics alone
    return own or repr(dataset)


def _named(fields: tuple[str, ...]) -> str | list[str]:
    return fields[0] if len(fields) == 1 else list(fields)


def _settings(analyzer: Analyzer) -> dict[str, Any]:
    stop = analyzer.stop if isinstance(analyzer.stop, bool) else sorted(analyzer.stop)
    return {**analyzer.spec, "stop": stop, "numbers": analyzer.numbers}


def _check_same_documents(index: BM25Index, documents: Any, name: str | None, fields: tuple[str, ...]) -> None:
    """Refuses an index of other documents, as far as that can be told without reading them all."""
    advice = "name another path or pass overwrite=True"
    if name is not None and index.meta["dataset"] is not None and name != index.meta["dataset"]:
        raise ValueError(f"the index at {index.path} is of {index.meta['dataset']}, expected {name}; {advice}")
    if _named(fields) != index.meta["text_field"]:
        raise ValueError(
            f"the index at {index.path} is of the field {index.meta['text_field']!r}, expected {_named(fields)!r}; "
            f"{advice}"
        )
    if callable(getattr(documents, "documents", None)) and len(documents.documents()) != len(index):
        raise ValueError(
            f"the index at {index.path} is of {len(index):,} documents, and {documents!r} has "
            f"{len(documents.documents()):,} now; {advice}"
        )
    if isinstance(documents, (list, tuple)):
        docnos = (document.get("docno") if isinstance(document, dict) else document for document in documents)
        if digest(docnos) != index.meta["docnos"]:
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
