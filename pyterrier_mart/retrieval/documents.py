"""Documents on their way into an index, of words or of vectors."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pyterrier_mart.artifact import sampled
from pyterrier_mart.retrieval.document_files import DocumentFile, dataset_or_file
from pyterrier_mart.text import Analyzer, language_code

__all__ = [
    "DOCNO", "DOCNO_RULE", "analyzer_for", "checked", "counts_of", "dataset_name", "docno_line", "documents_of",
    "source_of",
]  # fmt: skip

#: What a docno may be. Terrier would lose control characters and byte order marks at its ends; PISA ends lines there.
DOCNO = r"[^\s\0-\x1f\x7f-\x9f\ud800-\udfff\ufeff\ufffe]+"
DOCNO_RULE = "without white space, control characters, byte order marks and lone surrogates"


def source_of(documents: Any) -> Any:
    """Returns what a name or path stands for, a dataset or a :class:`.DocumentFile`; anything else as it is.

    Raises:
        FileNotFoundError: If a name is neither that of a dataset nor of a file.
    """
    source = dataset_or_file(documents) if isinstance(documents, str) else documents
    return DocumentFile(source) if isinstance(source, os.PathLike) else source


def documents_of(documents: Any) -> tuple[Iterable[dict[str, Any]], str | None]:
    """Returns documents as dicts, and the language that their dataset says they are in.

    Args:
        documents: A dataset or its name, a file, something with a frame ``docs``, a frame, or an iterable of dicts.
    """
    source: Any = source_of(documents)
    if isinstance(getattr(source, "docs", None), pd.DataFrame):
        source = source.docs
    if isinstance(source, pd.DataFrame):
        columns = list(source.columns)
        return (dict(zip(columns, row, strict=True)) for row in source.itertuples(index=False, name=None)), None
    if hasattr(source, "get_corpus_iter"):
        lang = source.get_corpus_lang() if hasattr(source, "get_corpus_lang") else None
        return source.get_corpus_iter(verbose=False), lang
    return source, None


def checked(
    documents: Iterable[Any], fields: Sequence[str], *, docno: str = DOCNO, rule: str = DOCNO_RULE
) -> Iterator[dict[str, Any]]:
    """Yields documents that an index can take.

    Args:
        documents: Dicts with ``docno`` and the fields.
        fields: What each must have, beside a docno that no other has.
        docno: What docnos must match as a whole, a regular expression.
        rule: The same in words, for the message.

    Raises:
        ValueError: If a document is otherwise, which the message names by its position or line, or if there are none.
    """
    seen: set[int] = set()  # of hashes, to stay small for large collections
    for position, document in enumerate(documents, 1):
        problem = None
        if not isinstance(document, dict):
            problem = f"it must be a dict with docno and {', '.join(fields)}, not {document!r:.80}"
        elif not isinstance(name := document.get("docno"), str) or not re.fullmatch(docno, name):
            problem = f"its docno must be {rule}, not {name!r}"
        elif missing := [field for field in fields if field not in document]:
            problem = f"{name!r} has no field {missing[0]!r}; found {sorted(document)}"
        elif hash(name) in seen:
            problem = f"the docno {name!r} occurs twice"
        if problem is not None:
            where = documents.where if isinstance(documents, DocumentFile) else f"document {position}"
            raise ValueError(f"{where}: {problem}")
        seen.add(hash(name))
        yield document
    if not seen:
        place = f" in {documents}" if isinstance(documents, DocumentFile) else ""
        raise ValueError(f"there are no documents to index{place}")


def analyzer_for(dataset: Any, lang: str | Analyzer | None, stop: bool | Collection[str]) -> Analyzer:
    """Returns the analyzer of documents, whose language the user or the dataset names.

    Raises:
        ValueError: If nobody does, or if they name different ones.
    """
    said = dataset.get_corpus_lang() if hasattr(dataset, "get_corpus_lang") else None
    try:
        known = None if said is None else language_code(said)
    except ValueError:  # mMARCO's Dutch is "dt"
        known = None
    if lang is None and known is None:
        found = "not known" if said is None else f"given as {said!r}"
        raise ValueError(f"the language of the documents is {found}: pass lang=, such as 'en'")
    analyzer = lang if isinstance(lang, Analyzer) else Analyzer(lang or known or "", stop=stop)
    if known is not None and analyzer.lang != known:
        raise ValueError(f"lang={lang!r}, but the documents of {dataset!r} are in {known!r}")
    return analyzer


def dataset_name(dataset: Any) -> str | None:
    """Returns the name of a dataset's documents, the same for all its sets of topics; ``None`` for other documents.

    The name of a file says what is in it, by a fingerprint, and not where it is.
    """
    if isinstance(dataset, DocumentFile) and os.path.isfile(dataset.path):
        return f"file {sampled(Path(dataset.path))[:16]}"
    if not hasattr(dataset, "get_corpus_iter"):
        return None
    own = getattr(dataset, "corpus_name", None)
    if own is None and (irds_id := getattr(dataset, "_irds_id", None)) is not None:
        import ir_datasets

        own = f"irds:{ir_datasets.docs_parent_id(irds_id)}"
    return own or repr(dataset)


def docno_line(docno: object) -> bytes:
    """Returns a docno as digests of documents take it."""
    return f"{docno}\n".encode("utf-8", errors="surrogatepass")


def counts_of(documents: Any) -> dict[str, Any]:
    """Returns what can be told of documents without reading a stream: how many they are, and their docnos' digest."""
    if callable(getattr(documents, "documents", None)):
        return {"documents": len(documents.documents())}
    if isinstance(documents, pd.DataFrame):
        docnos: Iterable[object] = documents["docno"]
    elif isinstance(documents, (list, tuple)):
        docnos = (document["docno"] for document in documents)
    else:
        return {}
    return {"docnos": hashlib.sha256(b"".join(map(docno_line, docnos))).hexdigest()}
