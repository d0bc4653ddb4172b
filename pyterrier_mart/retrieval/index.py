"""What indexes of words share: how they are made, opened, compared and checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyterrier as pt

from pyterrier_mart.artifact import META, check_files, checksums, meta_bytes, read_meta
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.retrieval.documents import (
    DOCNO,
    DOCNO_RULE,
    checked,
    counts_of,
    dataset_name,
    docno_line,
    documents_of,
)
from pyterrier_mart.retrieval.engines import engine_of
from pyterrier_mart.retrieval.types import Document, Postings
from pyterrier_mart.stopwords import long_list
from pyterrier_mart.store import DocumentStore, new_store
from pyterrier_mart.text import Analyzer
from pyterrier_mart.text_loader import TextLoader

__all__ = ["Text", "WordIndex", "build_index", "settings_of"]

_TEXTS = "texts.store"
_FUNCTION_WORDS = "function words"  # what metadata say of stop=True

Index = TypeVar("Index", bound="WordIndex")


class WordIndex(pt.Artifact):
    """An index of documents that were split into words.

    The directory holds ``pt_meta.json`` (engine, analyzer, number of documents) and the engine's own index in
    ``index/``, which can also be opened with the engine directly; where texts are stored, ``texts.store`` has them.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not such an index, is damaged, or was made under other word rules.
    """

    ARTIFACT_TYPE = "sparse_index"
    ARTIFACT_FORMAT: str
    ARTIFACT_PACKAGE_HINT = "pyterrier-mart"

    #: What metadata must have beside what all indexes have, and of which type.
    REQUIRED: ClassVar[dict[str, Any]] = {}

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path).absolute()  # wherever the process goes
        super().__init__(self.path)
        required = {
            "engine": str, "documents": int, "dataset": str | None, "docnos": str, "text_field": str | list,
            "analyzer": dict, **self.REQUIRED,
        }  # fmt: skip
        self.meta = read_meta(self.path, "index of pyterrier_mart", self.kind(), required)
        self.engine: str = self.meta["engine"]
        settings = self.meta["analyzer"]
        try:
            spec = {key: settings[key] for key in ("lang", "fold", "version")}
            stop = settings["stop"]
            if isinstance(stop, bool):  # before there were function words, True meant the long list
                stop = long_list(settings["lang"]) if stop else False
            stop = True if stop == _FUNCTION_WORDS else stop
            #: What spells the index's terms.
            self.analyzer = Analyzer.from_spec(spec, stop=stop, numbers=settings["numbers"])
        except (KeyError, TypeError, ValueError) as err:
            raise ValueError(f"cannot use the index {self.path} with the analyzer {settings!r}: {err}") from err
        if not (self.path / "index").is_dir():
            raise ValueError(f"damaged index {self.path}: it lacks the directory index")
        self.check()

    @classmethod
    def kind(cls) -> dict[str, Any]:
        """Returns what metadata say of such an index."""
        return {"type": cls.ARTIFACT_TYPE, "format": cls.ARTIFACT_FORMAT, "format_version": 1}

    def check(self) -> None:
        """Compares the index with the checksums of its files (those of large ones are of samples).

        It is done whenever an index is opened, since engines end the process over damaged files.

        Raises:
            ValueError: If a file is missing or damaged; the message names it.
        """
        check_files(self.path, "index", self.meta.get("checksums", {}))  # earlier versions wrote none

    def text_loader(self, fields: Sequence[str] | str = "*", *, verbose: bool = False) -> TextLoader:
        """Returns a transformer that adds the documents' texts to rows with a ``docno``, for re-rankers.

        ``pt.text.get_text(index)`` calls this method.

        Args:
            fields: Names of the fields, one name, or ``'*'`` for all that were indexed.
            verbose: Whether to show a progress bar.

        Raises:
            ValueError: If the index was made without ``store_text=True``, or has no such field.
        """
        return TextLoader(self, fields, verbose=verbose)

    @property
    def document_fields(self) -> tuple[str, ...]:
        """Names of the fields that are stored."""
        return self.documents().fields

    def documents(self) -> DocumentStore:
        """Returns the documents by docno, without reading them.

        Raises:
            ValueError: If the index was made without ``store_text=True``.
        """
        if not (self.path / _TEXTS).exists():
            raise ValueError(f"{self!r} has no texts: make it with store_text=True, or ask the dataset for texts")
        return DocumentStore(self.path / _TEXTS)

    def __len__(self) -> int:
        """The number of documents."""
        return int(self.meta["documents"])

    def __eq__(self, other: object) -> bool:
        return self.path.resolve() == other.path.resolve() if isinstance(other, WordIndex) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.path.resolve())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {len(self):,} documents, {self.engine})"


#: A document and its text.
Text = tuple[dict[str, Any], str]


def build_index(
    kind: type[Index],
    dataset: Any,
    path: str | os.PathLike[str],
    meta: dict[str, Any],
    split: Callable[[Iterator[Text], Path], Iterator[Document] | Iterator[Postings]],
    *,
    of: str,
    by: str,
    text_field: str | Sequence[str],
    engine: str,
    store_text: bool,
    overwrite: bool,
    threads: int,
    progress: bool,
    verbose: bool,
    impacts: bool = False,
) -> Index:
    """Builds an index, or opens the one at ``path``; what :func:`~pyterrier_mart.bm25_index` and its like do.

    Args:
        kind: The class of the index.
        dataset: The documents.
        path: The directory.
        meta: What the index is to be made by: it must be the same in an index that is there already.
        split: Makes of all documents and their texts what the engine takes; it may write into the directory.
        of: What the progress bar calls the documents.
        by: What messages say splits them.
        text_field: As :func:`~pyterrier_mart.bm25_index` takes it, and so the others, which also says what is raised.
        engine: The same.
        store_text: The same.
        overwrite: The same.
        threads: The same.
        progress: The same.
        verbose: The same.
        impacts: Whether the frequencies that ``split`` gives are impacts.
    """
    path = Path(path).absolute()
    fields = (text_field,) if isinstance(text_field, str) else tuple(text_field)
    if not fields:
        raise ValueError(f"text_field must name a field, or several, not {text_field!r}")
    meta = {
        **meta, "dataset": dataset_name(dataset), "text_field": fields[0] if len(fields) == 1 else list(fields),
    }  # fmt: skip
    if (path / META).exists() and not overwrite:
        index = kind(path)
        if engine != "auto":
            meta["engine"] = engine
        check_same(index, {**meta, **counts_of(dataset)})
        if store_text:
            index.documents()  # which says that there are none
        return index
    chosen = engine_of(engine)
    docno, rule = DOCNO, DOCNO_RULE
    if (most := chosen.LONGEST_DOCNO) is not None:
        docno = rf"(?=.{{1,{most // 2}}}\Z|[\0-\uffff]{{1,{most}}}\Z){docno}"
        rule = f"of at most {most} characters ({most // 2} with characters beyond U+FFFF), {rule}"
    digest = hashlib.sha256()
    count = 0
    keep: Callable[[dict[str, Any]], object]

    def texts() -> Iterator[Text]:
        nonlocal count
        rows = checked(documents_of(dataset)[0], fields, docno=docno, rule=rule)
        # The bar is made here because the engine may have replaced sys.stderr by now.
        for document in pt.tqdm(rows, desc=f"index {of}", unit="doc", disable=not progress, leave=False):
            count += 1
            digest.update(docno_line(document["docno"]))
            keep(document)
            yield document, "\n".join(document[field] for field in fields if isinstance(document[field], str))

    def with_words(directory: Path) -> Iterator[Document | Postings]:
        found = False
        for document in split(texts(), directory):
            found = found or bool(len(document.terms) if isinstance(document, Postings) else document["toks"])
            yield document
        if not found:
            raise ValueError(f"none of the {count} documents has a word to index in {' or '.join(fields)}, by {by}")

    with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
        (tmp / "index").mkdir()
        with new_store(tmp / _TEXTS, fields) if store_text else nullcontext(lambda document: None) as keep:
            chosen.build(with_words(tmp), tmp / "index", threads, verbose, impacts)
        meta |= {"engine": chosen.NAME, "documents": count, "docnos": digest.hexdigest()}
        written = [str(file.relative_to(tmp)) for file in sorted(tmp.rglob("*")) if file.is_file()]
        meta |= {"package_hint": kind.ARTIFACT_PACKAGE_HINT, "checksums": checksums(tmp, written)}
        (tmp / META).write_bytes(meta_bytes({**kind.kind(), **meta}))
    return kind(path)


def settings_of(analyzer: Analyzer) -> dict[str, Any]:
    """Returns what metadata say of the analyzer that spells an index's terms."""
    usual = _FUNCTION_WORDS if analyzer.stop else False
    stop = usual if isinstance(analyzer.stop, bool) else sorted(analyzer.stop)
    return {**analyzer.spec, "stop": stop, "numbers": analyzer.numbers}


def check_same(index: WordIndex, wanted: dict[str, Any]) -> None:
    """Refuses an index that was made otherwise, as far as that is known of both."""
    for key, value in wanted.items():
        found = index.meta[key]
        if None not in (value, found) and value != found:
            raise ValueError(
                f"the index at {index.path} was made with {key} {found}, not {value}; name another path or pass "
                "overwrite=True"
            )
