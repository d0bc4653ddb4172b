"""Documents on their way into an index."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import pyterrier as pt

from pyterrier_mart.retrieval.engines import Document
from pyterrier_mart.text import Analyzer

__all__ = ["DocumentStream", "digest"]


def digest(docnos: Iterable[object]) -> str:
    """Returns the SHA-256 of docnos in their order, by which an index knows its documents again."""
    whole = hashlib.sha256()
    for docno in docnos:
        whole.update(_line(docno))
    return whole.hexdigest()


def _line(docno: object) -> bytes:
    return f"{docno}\n".encode("utf-8", errors="surrogatepass")


class DocumentStream:
    """The documents as engines take them, once: checked, analysed and counted, with a progress bar."""

    def __init__(
        self,
        rows: Iterable[dict[str, Any]],
        analyzer: Analyzer,
        text_fields: tuple[str, ...],
        longest_docno: int | None,
        progress: bool,
    ):
        self.count = 0
        self._docnos = hashlib.sha256()
        self._ended = False
        self._error: Exception | None = None
        self._rows, self._analyzer, self._text_fields, self._progress = rows, analyzer, text_fields, progress
        self._longest_docno = longest_docno

    def __iter__(self) -> Iterator[Document]:
        try:
            yield from self._documents()
        except Exception as err:
            self._error = err
        self._ended = True

    @property
    def docnos_digest(self) -> str:
        """The :func:`digest` of the docnos that were read."""
        return self._docnos.hexdigest()

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

    def _documents(self) -> Iterator[Document]:
        seen: set[int] = set()  # of hashes, to stay small for large collections
        # The bar is made here because the engine may have replaced sys.stderr by now.
        for document in pt.tqdm(
            self._rows, desc=f"index {self._analyzer.lang}", unit="doc", disable=not self._progress, leave=False
        ):
            self.count += 1
            if not isinstance(document, dict):
                self._fail(f"expected a dict with docno and {', '.join(self._text_fields)}, found {document!r}")
            docno = document.get("docno")
            if not isinstance(docno, str) or docno.split() != [docno]:
                self._fail(f"expected a docno without white space, found {docno!r}")
            if self._longest_docno is not None and len(docno) > self._longest_docno:
                self._fail(f"expected a docno of at most {self._longest_docno} characters, found {docno!r}")
            for field in self._text_fields:
                if field not in document:
                    self._fail(f"{docno!r} has no field {field!r}; found {sorted(document)}")
            if hash(docno) in seen:
                self._fail(f"the docno {docno!r} occurs twice")
            seen.add(hash(docno))
            self._docnos.update(_line(docno))
            texts = [document[field] for field in self._text_fields]
            text = "\n".join(text for text in texts if isinstance(text, str))
            yield {"docno": docno, "toks": self._analyzer.counts(text)}

    def _fail(self, message: str) -> NoReturn:
        raise ValueError(f"document {self.count}: {message}")
