"""Vectors of documents on disk, with their languages and what made them."""

from __future__ import annotations

import hashlib
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt

from pyterrier_mart.artifact import META, meta_bytes, read_meta
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.meta.errors import EmptyLanguageError
from pyterrier_mart.text import language_of

if TYPE_CHECKING:
    from pyterrier_dr import FlexIndex

__all__ = ["DenseIndex", "Hits", "Maker", "documents_of"]

_FLEX = {"type": "dense_index", "format": "flex", "format_version": None}
_VERSION = 1
_REQUIRED = ("doc_count", "vec_size", "languages", "encoder", "encoder_fingerprint", "post", "post_fingerprint")
_LANGUAGES = "doc_langs.npy"
_UNKNOWN = 255  # the number of no language
_CHUNK = 4096  # documents that are encoded at a time: what is in memory does not grow with the collection
_SCORES = 2**26  # in memory at a time

Vectors = npt.NDArray[np.float32]
Encode = Callable[["list[str]", "list[str | None]"], Vectors]
Change = Callable[[Vectors, "list[str | None]"], Vectors]


class Maker(NamedTuple):
    """What made vectors.

    Attributes:
        encoder: Name of the encoder.
        encoder_fingerprint: What its vectors depend on: weights, prompts, lengths.
        post: What was done to its vectors, in words, if anything.
        post_fingerprint: What that depends on.
    """

    encoder: str
    encoder_fingerprint: str
    post: str | None = None
    post_fingerprint: str | None = None

    def __str__(self) -> str:
        return f"{self.encoder} (weights {self.encoder_fingerprint[:8]}) with {self.post or 'no post-processing'}"


class Hits(NamedTuple):
    """Documents that were found, query by query, best first; arrays of one length.

    Attributes:
        query: Position of the query.
        docid: Number of the document in the index.
        score: Its score.
        rank: Its rank, from 0.
    """

    query: npt.NDArray[np.int64]
    docid: npt.NDArray[np.int64]
    score: npt.NDArray[np.float64]
    rank: npt.NDArray[np.int64]


class DenseIndex(pt.Artifact):
    """An index of documents' vectors; made by :meth:`MetaSBERTRetriever.index`.

    The directory is a ``FlexIndex`` of pyterrier_dr, and can be opened as such (:attr:`flex`), together with the
    language of each document and the fingerprints of the encoder and the post-processing that made the vectors.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not such an index, or is damaged.
        ImportError: If pyterrier_dr is not installed, when vectors are first read.
    """

    ARTIFACT_TYPE = "dense_index"
    ARTIFACT_FORMAT = "flex"
    ARTIFACT_PACKAGE_HINT = "pyterrier-dr"

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path)
        super().__init__(self.path)
        what = "index of vectors"
        self.meta = read_meta(self.path, what, _FLEX, ("doc_count", "vec_size"))
        version = self.meta.get("mart_version")
        if version is None:
            raise ValueError(
                f"{self.path} is a FlexIndex that MetaSBERTRetriever.index() did not make: which encoder made it is "
                "not known; use pyterrier_dr to search it"
            )
        if version != _VERSION:
            raise ValueError(
                f"cannot read the {what} {self.path}: its mart_version is {version!r}, this version of pyterrier_mart "
                f"reads {_VERSION}"
            )
        if missing := [key for key in _REQUIRED if key not in self.meta]:
            raise ValueError(f"damaged {what} {self.path}: {META} lacks {', '.join(missing)}")
        expected = {"vecs.f4": 4 * self.meta["doc_count"] * self.meta["vec_size"], "docnos.npids": None}
        for name, size in expected.items():
            file = self.path / name
            found = file.stat().st_size if file.is_file() else None
            if found is None or (size is not None and found != size):
                raise ValueError(f"damaged {what} {self.path}: {name} has {found} bytes, expected {size or 'a file'}")
        try:
            codes = np.load(self.path / _LANGUAGES, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as err:
            raise ValueError(f"damaged {what} {self.path}: cannot read {_LANGUAGES} ({err})") from err
        if codes.dtype != np.uint8 or codes.shape != (len(self),):
            raise ValueError(
                f"damaged {what} {self.path}: {_LANGUAGES} holds {codes.dtype} of shape {codes.shape}, expected uint8 "
                f"of shape ({len(self)},)"
            )
        self._codes: npt.NDArray[np.uint8] = codes
        self._flex: Any = None
        self._docids: dict[str, int] | None = None
        self._masks: dict[tuple[str, ...], npt.NDArray[np.bool_]] = {}

    # --- what it holds --------------------------------------------------------------------------------------------

    @property
    def flex(self) -> FlexIndex:
        """The same directory as an index of pyterrier_dr: ``dense.query_encoder() >> index.flex.torch_retriever()``."""
        if self._flex is None:
            self._flex = _flex_class()(os.fspath(self.path), verbose=False)
        return self._flex

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the documents, sorted; those of unknown language are in none."""
        return tuple(sorted(self.meta["languages"]))

    @property
    def maker(self) -> Maker:
        """What made the vectors."""
        return Maker(*(self.meta[field] for field in Maker._fields))

    def __len__(self) -> int:
        """The number of documents."""
        return int(self.meta["doc_count"])

    def doc_langs(self, docids: npt.NDArray[np.int64]) -> list[str | None]:
        """Returns the languages of documents by their numbers; ``None`` for unknown."""
        names: list[str | None] = [*self.meta["languages"], *[None] * (_UNKNOWN + 1 - len(self.meta["languages"]))]
        return [names[code] for code in self._codes[docids]]

    def docids(self, docnos: Sequence[object]) -> npt.NDArray[np.int64]:
        """Returns the numbers of documents by their docnos.

        Raises:
            ValueError: If a docno is not in the index; the message names the first.
        """
        # Not by the index's own look-up: that of numbers with leading zeros is wrong in npids 0.1.3.
        if self._docids is None:
            names = self.docnos(np.arange(len(self)))
            self._docids = {docno: i for i, docno in enumerate(names)}
        found = np.array([self._docids.get(docno, -1) for docno in docnos], dtype=np.int64)  # type: ignore[call-overload]
        if (lost := np.flatnonzero(found < 0)).size:
            raise ValueError(
                f"{len(lost)} of {len(found)} rows have a docno that is not in the index {self.path}, such as "
                f"{docnos[int(lost[0])]!r}"
            )
        return found

    def vectors(self, docids: npt.NDArray[np.int64]) -> Vectors:
        """Returns vectors of documents by their numbers, of shape (documents, dimension)."""
        vectors, _ = self.flex.payload(return_docnos=False)
        return np.asarray(vectors[docids])

    def check_languages(self, languages: Iterable[str]) -> None:
        """Checks that there are documents in each of some languages.

        Raises:
            EmptyLanguageError: If there are none in one of them.
        """
        if missing := [language for language in languages if language not in self.meta["languages"]]:
            raise EmptyLanguageError(
                f"the index {self.path} has no documents in {', '.join(missing)}; it has "
                f"{', '.join(self.languages) or 'only documents of unknown language'}"
            )

    def mask(self, languages: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Returns which documents are in one of some languages.

        Raises:
            EmptyLanguageError: If there are none in one of them.
        """
        key = tuple(sorted(set(languages)))
        self.check_languages(key)
        if key not in self._masks:
            self._masks[key] = np.isin(self._codes, [self.meta["languages"].index(language) for language in key])
        return self._masks[key]

    # --- searching ------------------------------------------------------------------------------------------------

    def check_maker(self, maker: Maker) -> None:
        """Checks that queries are made by what made the documents' vectors.

        Raises:
            ValueError: If they are not; the message names both.
        """
        own = self.maker
        if (own.encoder_fingerprint, own.post_fingerprint) == (maker.encoder_fingerprint, maker.post_fingerprint):
            return
        raise ValueError(
            f"the index {self.path} was made by {own}, and the retriever is {maker}: their vectors cannot be compared; "
            "index the documents again, with index(), or search with the retriever that made the index"
        )

    def search(
        self,
        vectors: Vectors,
        num_results: int,
        languages: tuple[str, ...] | None = None,
        device: str | None = None,
    ) -> Hits:
        """Returns the documents with the largest dot products, by comparing with all of them.

        Args:
            vectors: Of queries, of shape (queries, dimension).
            num_results: Documents of each query at most.
            languages: Only documents in these.
            device: Where to compute. The index is held in the memory of a GPU.

        Raises:
            EmptyLanguageError: If there are no documents in one of the languages.
        """
        mask = None if languages is None else self.mask(languages)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not writable")  # nothing writes to the vectors on disk
            retriever = self.flex.torch_retriever(
                num_results=num_results, device=device, qbatch=max(1, min(64, _SCORES // len(self))), mask=mask,
                drop_query_vec=True,
            )  # fmt: skip
        found = retriever.transform(pd.DataFrame({"qid": np.arange(len(vectors)), "query_vec": list(vectors)}))
        query, docid, rank = (_flat(found[name]).astype(np.int64) for name in ("qid", "docid", "rank"))
        return Hits(query, docid, _flat(found["score"]).astype(np.float64), rank)

    def docnos(self, docids: npt.NDArray[np.int64]) -> list[str]:
        """Returns docnos by the numbers of documents."""
        return [] if not len(docids) else self.flex.docnos().fwd[docids].astype(str).tolist()

    # --- making ---------------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        path: str | os.PathLike[str],
        documents: Iterable[dict[str, Any]],
        encode: Encode,
        maker: Maker,
        *,
        text_field: str = "text",
        doc_lang: str | None = None,
        overwrite: bool = False,
    ) -> DenseIndex:
        """Encodes documents and writes their vectors; :meth:`MetaSBERTRetriever.index` calls it.

        Documents are read once, a few thousand at a time. The index appears when it is complete.

        Args:
            path: The directory.
            documents: Dicts with ``docno`` and ``text_field``, and perhaps ``doc_lang``. A docno is text of printable
                ASCII characters without white space, as pyterrier_dr stores no other.
            encode: Makes vectors of texts and their languages.
            maker: What ``encode`` is.
            text_field: The field that is encoded. What is not text counts as empty, with a warning that counts it.
            doc_lang: Language of documents that do not say theirs.
            overwrite: Whether to replace an existing index.

        Raises:
            ValueError: If there are no documents, or one lacks a field or has a docno that is wrong or occurs twice;
                the message names it.
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
            ImportError: If pyterrier_dr is not installed.
        """
        _flex_class()  # before hours of work
        stream = _Documents(documents, encode, text_field, doc_lang)
        made = cls._written(path, stream, stream.chunks(), maker, text_field, overwrite)
        if stream.empty_texts:
            warnings.warn(
                f"{stream.empty_texts} of {stream.count} documents have no text in {text_field!r} and count as empty",
                stacklevel=3,
            )
        return made

    def derive(
        self,
        path: str | os.PathLike[str],
        change: Change,
        maker: Maker,
        *,
        doc_lang: str | None = None,
        overwrite: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> DenseIndex:
        """Writes an index of the same documents with vectors made of these; :meth:`MetaSBERTRetriever.index` calls it.

        Vectors are read a few thousand at a time. The index appears when it is complete.

        Args:
            path: The directory.
            change: Makes vectors of vectors and their languages.
            maker: What encoder and ``change`` are together.
            doc_lang: Language of documents that have none here.
            overwrite: Whether to replace an existing index.
            progress: Called with how many documents were written since the last call.

        Raises:
            ValueError: If the vectors here are another encoder's, or were post-processed; the message names what made
                them.
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
            ImportError: If pyterrier_dr is not installed.
        """
        own = self.maker
        if own.encoder_fingerprint != maker.encoder_fingerprint:
            raise ValueError(
                f"the index {self.path} was made by {own}, and the retriever is {maker}: its vectors cannot be used; "
                "pass the documents, to encode them again"
            )
        if own.post_fingerprint is not None:
            raise ValueError(
                f"the index {self.path} was made by {own}: its vectors are centred already; pass the index without "
                "post-processing that they were made of, or the documents"
            )
        stream = _Stream(doc_lang)
        chunks = self._changed(stream, change, progress)
        return self._written(path, stream, chunks, maker, self.meta.get("text_field"), overwrite)

    def _changed(self, stream: _Stream, change: Change, progress: Callable[[int], object] | None) -> Iterator[Vectors]:
        for start in range(0, len(self), _CHUNK):
            docids = np.arange(start, min(start + _CHUNK, len(self)))
            docnos = self.docnos(docids)
            langs = [stream.add(docno, lang) for docno, lang in zip(docnos, self.doc_langs(docids), strict=True)]
            yield stream.checked(docnos, langs, change(self.vectors(docids), langs))
            if progress is not None:
                progress(len(docids))

    @classmethod
    def _written(
        cls,
        path: str | os.PathLike[str],
        stream: _Stream,
        chunks: Iterator[Vectors],
        maker: Maker,
        text_field: str | None,
        overwrite: bool,
    ) -> DenseIndex:
        """Writes vectors chunk by chunk, and then what the stream gathered of their documents."""
        with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
            with open(tmp / "vecs.f4", "wb") as file:
                for vectors in chunks:
                    file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
            _write_docnos(tmp / "docnos.npids", list(stream.docnos))
            np.save(tmp / _LANGUAGES, np.frombuffer(bytes(stream.codes), dtype=np.uint8))
            meta = {
                **{key: value for key, value in _FLEX.items() if value is not None},
                "package_hint": cls.ARTIFACT_PACKAGE_HINT, "vec_size": stream.size, "doc_count": stream.count,
                "mart_version": _VERSION, "languages": list(stream.languages), "text_field": text_field,
                **maker._asdict(), "content": stream.digest.hexdigest(),
            }  # fmt: skip
            (tmp / META).write_bytes(meta_bytes(meta))
        return cls(path)

    # --- identity -------------------------------------------------------------------------------------------------

    def _key(self) -> tuple[object, ...]:
        return self.path.resolve(), self.meta.get("content")

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, DenseIndex) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return DenseIndex, (self.path,)

    def __repr__(self) -> str:
        return f"DenseIndex({str(self.path)!r}, {len(self):,} documents in {', '.join(self.languages) or '?'})"


def _flex_class() -> Any:
    try:
        from pyterrier_dr import FlexIndex
    except ImportError as err:
        raise ImportError("an index of vectors needs pyterrier_dr: pip install pyterrier-dr") from err
    return FlexIndex


def _write_docnos(path: Path, docnos: list[str]) -> None:
    """Writes docnos as pyterrier_dr keeps them.

    npids fails, or reads others than were written, with some sequences of docnos (long numbers, a single one, ...).
    Often another way of writing them works: as one block, or without its look-up by docno, which is not used here.

    Raises:
        ValueError: If none does.
    """
    from npids import Lookup

    reason: object = "others are read than were written"
    for look_up, block in itertools.product((True, False), (None, len(docnos) + 1)):
        path.unlink(missing_ok=True)
        try:
            Lookup.build(docnos, path, build_inv=look_up, min_block=block, return_self=False)
            stored = Lookup(path)
            parts = (range(i, min(i + _CHUNK, len(docnos))) for i in range(0, len(docnos), _CHUNK))
            if all(stored.fwd[np.array(part)].astype(str).tolist() == docnos[part.start : part.stop] for part in parts):
                return
        except OSError:
            raise
        except Exception as err:  # of many kinds
            reason = f"{type(err).__name__}: {err}"
    raise ValueError(
        f"pyterrier_dr cannot store the docnos of these {len(docnos)} documents, {docnos[0]!r} to {docnos[-1]!r} "
        f"({reason}); an index needs two documents at least, and other docnos may do"
    )


def _flat(column: pd.Series) -> npt.NDArray[Any]:
    """Returns values one by one: where each query has one result, the builder of its frame leaves arrays in cells."""
    values = column.to_numpy()
    return np.concatenate([np.atleast_1d(value) for value in values]) if values.dtype == object else values


def documents_of(documents: Any) -> tuple[Iterable[dict[str, Any]], str | None]:
    """Returns documents as dicts, and the language that their dataset says they are in."""
    source: Any = pt.get_dataset(documents) if isinstance(documents, str) else documents
    if isinstance(getattr(source, "docs", None), pd.DataFrame):
        source = source.docs
    if isinstance(source, pd.DataFrame):
        columns = list(source.columns)
        return (dict(zip(columns, row, strict=True)) for row in source.itertuples(index=False, name=None)), None
    if hasattr(source, "get_corpus_iter"):
        lang = source.get_corpus_lang() if hasattr(source, "get_corpus_lang") else None
        return source.get_corpus_iter(verbose=False), lang
    return source, None


class _Stream:
    """Documents on their way into an index: checked and counted.

    Attributes:
        docnos: Their docnos, in order.
        codes: The number of each one's language.
        languages: The numbers of the languages.
        size: Length of the vectors.
        count: Documents so far.
        digest: Of docnos, languages and vectors.
    """

    def __init__(self, doc_lang: str | None):
        self.docnos: dict[str, None] = {}
        self.codes, self.languages, self.size, self.count = bytearray(), dict[str, int](), 0, 0
        self.digest = hashlib.blake2b(digest_size=16)
        self._doc_lang = doc_lang

    def add(self, docno: str, lang: str | None) -> str | None:
        """Notes a document and returns its language.

        Raises:
            ValueError: If there was such a docno before, or there are too many languages.
        """
        self.count += 1
        if docno in self.docnos:
            self.fail(f"the docno {docno!r} occurs twice")
        self.docnos[docno] = None
        lang = lang or self._doc_lang
        if lang is not None and lang not in self.languages:
            if len(self.languages) == _UNKNOWN:
                self.fail(f"the language {lang!r} is one too many: an index holds {_UNKNOWN} languages")
            self.languages[lang] = len(self.languages)
        self.codes.append(_UNKNOWN if lang is None else self.languages[lang])
        return lang

    def checked(self, docnos: Sequence[str], langs: Sequence[str | None], vectors: Vectors) -> Vectors:
        """Notes vectors of documents and returns them.

        Raises:
            ValueError: If one is not finite; the message names the document.
        """
        if not (finite := np.isfinite(vectors).all(axis=1)).all():
            raise ValueError(f"the vector of the document {docnos[int(np.argmin(finite))]!r} is not finite")
        self.size = vectors.shape[1]
        self.digest.update(repr(list(zip(docnos, langs, strict=True))).encode())
        self.digest.update(np.ascontiguousarray(vectors).tobytes())
        return vectors

    def fail(self, message: str) -> NoReturn:
        """Raises a ``ValueError`` that says which document it is."""
        raise ValueError(f"document {self.count}: {message}")


class _Documents(_Stream):
    """Documents with texts, which are encoded chunk by chunk."""

    def __init__(self, documents: Iterable[dict[str, Any]], encode: Encode, text_field: str, doc_lang: str | None):
        super().__init__(doc_lang)
        self.empty_texts = 0
        self._documents, self._encode, self._text_field = documents, encode, text_field

    def chunks(self) -> Iterator[Vectors]:
        """Yields the vectors of some documents at a time.

        Raises:
            ValueError: If there are no documents, or one is wrong.
        """
        chunk: list[tuple[str, str, str | None]] = []
        for document in self._documents:
            chunk.append(self._read(document))
            if len(chunk) == _CHUNK:
                yield self._encoded(chunk)
                chunk = []
        if chunk:
            yield self._encoded(chunk)
        if not self.count:
            raise ValueError("there are no documents to index")

    def _encoded(self, chunk: list[tuple[str, str, str | None]]) -> Vectors:
        docnos, langs = [docno for docno, _, _ in chunk], [lang for _, _, lang in chunk]
        return self.checked(docnos, langs, self._encode([text for _, text, _ in chunk], langs))

    def _read(self, document: dict[str, Any]) -> tuple[str, str, str | None]:
        problem = None
        if not isinstance(document, dict):
            problem = f"expected a dict with docno and {self._text_field}, found {document!r:.80}"
        elif not _is_docno(docno := document.get("docno")):
            problem = f"expected a docno of printable ASCII characters without white space, found {docno!r}"
        elif self._text_field not in document:
            problem = f"{docno!r} has no field {self._text_field!r}; found {sorted(document)}"
        if problem is not None:
            self.count += 1
            self.fail(problem)
        docno, text = document["docno"], document[self._text_field]
        if not isinstance(text, str):
            self.empty_texts, text = self.empty_texts + 1, ""
        return docno, text, self.add(docno, language_of(document.get("doc_lang")))


def _is_docno(value: object) -> bool:
    return isinstance(value, str) and value.split() == [value] and value.isascii() and value.isprintable()
