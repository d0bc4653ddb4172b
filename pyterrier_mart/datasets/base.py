"""What the test collections share: reading bundled files, and documents that are looked up by docno."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, ClassVar

import pandas as pd
import pyterrier as pt

from pyterrier_mart.archives import naming
from pyterrier_mart.checks import check_choice
from pyterrier_mart.frames import Transformer
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.store import DocumentStore
from pyterrier_mart.text import language_of

#: How many documents of a store are looked up at a time.
_BATCH = 1000


def read_data(path: str) -> str:
    """Returns the text of a gzipped file that is bundled with the package.

    Args:
        path: Path below the ``data`` folder, with forward slashes.

    Raises:
        ArchiveError: If it is damaged.
    """
    file = resources.files(__package__) / "data" / path
    with naming(str(file)):
        text = gzip.decompress(file.read_bytes()).decode("utf-8")
        if not text:  # gzip takes nothing for the packed form of nothing
            raise EOFError
    return text


def choose_language(code: str, languages: Sequence[str]) -> str:
    """Returns the ISO 639-1 code of one of ``languages``.

    Args:
        code: ISO 639-1 code, or an alias of it such as the ISO 639-3 code.
        languages: The ISO 639-1 codes to choose from.

    Raises:
        ValueError: If ``code`` is none of them.
    """
    language = language_of(code) or ""
    check_choice("language", language, languages)
    return language


class MartDataset(pt.datasets.Dataset):
    """A test collection of the ``mart:`` provider.

    Its data comes with the package, or lies in a folder of the user's. Objects are cheap: files are read when a corpus,
    topics or judgments are first asked for. Two objects with the same name are equal.

    Attributes:
        name: Name of the dataset within the ``mart:`` provider.
        languages: ISO 639-1 codes of the topics and of the documents.
        document_fields: What is known of each document besides its docno.
        corpus_name: What the documents are called, whichever language the topics are in: one index serves all of them.
        licence: Licence of the data.
        citation: BibTeX of the papers to cite.
    """

    licence: ClassVar[str]
    citation: ClassVar[str]
    _url: ClassVar[str]

    def __init__(self, name: str, languages: tuple[str, str], document_fields: tuple[str, ...], corpus_name: str = ""):
        self.name = name
        self.corpus_name = corpus_name or f"mart:{name}"
        self.languages = languages
        self.document_fields = document_fields

    def documents(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the fields of every document by docno, in corpus order."""
        raise NotImplementedError

    def get_corpus_iter(self, *, verbose: bool = True) -> pt.utils.GeneratorLen:
        """Returns the documents as dicts with ``docno`` and :attr:`document_fields`.

        Args:
            verbose: Whether to show a progress bar.
        """
        documents = self.documents()

        def rows() -> Iterator[dict[str, str]]:
            desc = f"{self.name} documents"
            for docno, fields in pt.tqdm(documents.items(), desc=desc, unit="d", disable=not verbose):
                yield {"docno": docno, **fields}

        return pt.utils.GeneratorLen(rows(), len(documents))

    def groups(self) -> pd.Series | None:
        """Returns what must stay together when topics are split into folds, by qid; None if topics are independent."""
        return None

    def get_topics_lang(self) -> str:
        """Returns the ISO 639-1 code of the topics."""
        return self.languages[0]

    def get_corpus_lang(self) -> str:
        """Returns the ISO 639-1 code of the documents."""
        return self.languages[1]

    def info_url(self) -> str:
        """Returns where the data is described."""
        return self._url

    def text_loader(self, fields: Sequence[str] | str = "*", *, verbose: bool = False) -> TextLoader:
        """Returns a transformer that adds the documents' fields to rows with a ``docno``.

        ``pt.text.get_text(dataset)`` calls this method.

        Args:
            fields: Names of the fields, one name, or ``'*'`` for all of them.
            verbose: Whether to show a progress bar.
        """
        return TextLoader(self, fields, verbose=verbose)

    def _describe_component(self, component: str) -> bool | list[str] | None:
        return True if component in ("topics", "qrels", "corpus") else None

    def __getstate__(self) -> dict[str, Any]:
        # pt.get_dataset() puts a wrapper around get_topics into the object, which cannot be pickled.
        return {key: value for key, value in self.__dict__.items() if key != "get_topics"}

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, MartDataset) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"MartDataset('mart:{self.name}')"


class TextLoader(Transformer):
    """Adds fields of the documents of a ``mart:`` dataset, found by ``docno``.

    Columns that already have the name of a loaded field are replaced. A docno that is not in the dataset is an error,
    because a re-ranker would otherwise score an empty text.

    Example::

        data = pt.get_dataset('mart:xquad-r/de-en')
        pipeline = bm25 % 100 >> data.text_loader('text') >> reranker
    """

    schematic = {"label": "Text Loader", "help_url": HELP_URL}

    def __init__(self, dataset: MartDataset, fields: Sequence[str] | str = "*", *, verbose: bool = False):
        """Creates the loader.

        Args:
            dataset: Where the documents come from.
            fields: Names of the fields, one name, or ``'*'`` for all of them.
            verbose: Whether to show a progress bar.

        Raises:
            ValueError: If the dataset has no such field.
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
            ValueError: If a docno is not in the dataset.
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
