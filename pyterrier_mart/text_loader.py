"""What adds the documents' texts to rows, for re-rankers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pandas as pd
import pyterrier as pt

from pyterrier_mart.checks import check_choice
from pyterrier_mart.frames import Transformer
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.store import DocumentStore

__all__ = ["TextLoader"]

#: How many documents of a store are looked up at a time.
_BATCH = 1000


class Documents(Protocol):
    """What has documents to look up."""

    @property
    def document_fields(self) -> Sequence[str]:
        """Names of the fields."""

    def documents(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the documents by docno."""


class TextLoader(Transformer):
    """Adds fields of the documents of a ``mart:`` dataset or an index, found by ``docno``.

    Columns that already have the name of a loaded field are replaced. A docno that is not there is an error,
    because a re-ranker would otherwise score an empty text.

    Example::

        data = pt.get_dataset('mart:xquad-r/de-en')
        pipeline = bm25 % 100 >> data.text_loader('text') >> reranker
    """

    schematic = {"label": "Text Loader", "help_url": HELP_URL}

    def __init__(self, dataset: Documents, fields: Sequence[str] | str = "*", *, verbose: bool = False):
        """Creates the loader.

        Args:
            dataset: Where the documents come from: a dataset or index.
            fields: Names of the fields, one name, or ``'*'`` for all of them.
            verbose: Whether to show a progress bar.

        Raises:
            ValueError: If the documents have no such field.
        """
        if isinstance(fields, str):
            fields = dataset.document_fields if fields == "*" else [fields]
        for field in fields:
            check_choice("fields", field, dataset.document_fields)
        self.dataset = dataset
        self.fields = tuple(dict.fromkeys(fields))
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds the fields to each row.

        Args:
            inp: Rows with ``docno``.

        Returns:
            A new frame with the same rows and the fields as last columns.

        Raises:
            ValueError: If there is no document with a docno.
        """
        with pt.validate.any(inp, context=self) as v:
            v.result_frame(extra_columns=["query"])  # which is what inspection shows first
            v.columns(includes=["docno"])
        docnos = inp["docno"].tolist()
        documents = self.look_up(docnos) if docnos else {}
        for docno in docnos:
            if docno not in documents:
                raise ValueError(f"{self.dataset!r} has no document {docno!r}.")
        # An explicit dtype gives an empty frame the same columns as any other.
        columns = {
            field: pd.Series([documents[docno][field] for docno in docnos], index=inp.index, dtype="str")
            for field in self.fields
        }
        return inp.drop(columns=list(self.fields), errors="ignore").assign(**columns)

    def look_up(self, docnos: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Returns those of the documents that exist."""
        documents = self.dataset.documents()
        found: dict[str, Mapping[str, str]] = {}
        distinct = list(dict.fromkeys(docnos))
        batches = range(0, len(distinct), _BATCH)
        for start in pt.tqdm(batches, desc="Text Loader", unit_scale=_BATCH, disable=not self.verbose):
            batch = distinct[start : start + _BATCH]
            if isinstance(documents, DocumentStore):
                found |= documents.get_many(batch)
            else:
                found |= {docno: documents[docno] for docno in batch if docno in documents}
        return found

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Cuts the ranking before, rather than after, texts are loaded."""
        return pt.RankCutoff(k) >> self

    def __repr__(self) -> str:
        return f"TextLoader({self.dataset!r}, {list(self.fields)!r})"
