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
from pyterrier_mart.text import language_of
from pyterrier_mart.text_loader import TextLoader


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
