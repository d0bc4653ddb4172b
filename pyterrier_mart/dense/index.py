"""Vectors of documents on disk, with their languages and what made them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt

from pyterrier_mart.artifact import META, check_files, checksums, meta_bytes, read_meta
from pyterrier_mart.checks import check_whole
from pyterrier_mart.datasets.corpus import EmptyLanguageError
from pyterrier_mart.dense.docnos import write_docnos
from pyterrier_mart.dense.encoder import Vectors
from pyterrier_mart.devices import resolve_device
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.frames import Transformer
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.text import language_of

if TYPE_CHECKING:
    from pyterrier_dr import FlexIndex  # takes seconds to import

__all__ = ["CHUNK", "Chunk", "DenseIndex", "Provenance", "VectorRetriever", "language_codes"]

#: Documents that are encoded at a time: what is in memory does not grow with the collection.
CHUNK = 4096
#: Docnos, languages and vectors of some documents.
Chunk = tuple[list[str], list["str | None"], Vectors]

_KIND = {"type": "dense_index", "format": "mart", "format_version": 1}
_LANGUAGES = "doc_langs.npy"
#: What checksums are kept of.
_FILES = (_LANGUAGES, "flex/vecs.f4", "flex/docnos.npids", f"flex/{META}")
_SCORES = 2**26  # in memory at a time
_SAMPLE, _ENOUGH = 2048, 20  # documents that the spread is measured on, and of a language to be measured


class Provenance(NamedTuple):
    """What made vectors.

    Attributes:
        encoder: Name of the encoder.
        encoder_fingerprint: What its vectors depend on: weights, prompts, lengths.
        post: The centring of its vectors, in words, if there is one.
        post_fingerprint: What that depends on.
    """

    encoder: str
    encoder_fingerprint: str
    post: str | None = None
    post_fingerprint: str | None = None

    def __str__(self) -> str:
        return f"{self.encoder} (weights {self.encoder_fingerprint[:8]}) with {self.post or 'no centring'}"


class DenseIndex(pt.Artifact):
    """An index of documents' vectors; made by :meth:`DenseRetriever.index`, loaded by ``pt.Artifact.load(path)``.

    The directory holds an index of pyterrier_dr in ``flex/`` (:attr:`flex`), the language of each document, and in
    ``pt_meta.json`` the fingerprints of the encoder and the centring that made the vectors.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not such an index, or is damaged.
    """

    ARTIFACT_TYPE = "dense_index"
    ARTIFACT_FORMAT = "mart"
    ARTIFACT_PACKAGE_HINT = "pyterrier-mart"

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path).absolute()  # wherever the process goes
        super().__init__(self.path)
        what = "index of vectors"
        fields = {field: str | None for field in Provenance._fields}
        self.meta = read_meta(self.path, what, _KIND, {"doc_count": int, "vec_size": int, "languages": list, **fields})
        try:
            self._codes: npt.NDArray[np.int16] = np.load(self.path / _LANGUAGES, mmap_mode="r", allow_pickle=False)
            found = len(self._codes), (self.path / "flex" / "vecs.f4").stat().st_size
        except (OSError, ValueError, EOFError) as err:
            raise ValueError(f"damaged {what} {self.path}: {err}") from err
        sizes = {"doc_count": int, "vec_size": int}
        of_flex = read_meta(self.path / "flex", what, {"type": "dense_index", "format": "flex"}, sizes)
        if any(of_flex[key] != self.meta[key] for key in sizes):
            raise ValueError(f"damaged {what} {self.path}: flex/{META} is of another index")
        if found != (len(self), 4 * len(self) * self.meta["vec_size"]):
            raise ValueError(f"damaged {what} {self.path}: vecs.f4 or {_LANGUAGES} lacks some of {len(self)} documents")
        check_files(self.path, what, self.meta.pop("checksums", {}))  # indexes of earlier versions have none
        if self._codes.max(initial=-1) >= len(self.meta["languages"]):
            raise ValueError(f"damaged {what} {self.path}: {_LANGUAGES} has more languages than {META}")

    # --- what it holds --------------------------------------------------------------------------------------------

    @cached_property
    def flex(self) -> FlexIndex:
        """The vectors as an index of pyterrier_dr: ``dense.query_encoder() >> index.flex.torch_retriever()``."""
        from pyterrier_dr import FlexIndex

        return FlexIndex(os.fspath(self.path / "flex"), verbose=False)

    @property
    def vectors(self) -> Vectors:
        """The vectors on disk, by docid: of shape (documents, dimension)."""
        vectors: Vectors = self.flex.payload(return_docnos=False)[0]
        return vectors

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the documents, sorted; those of unknown language are in none."""
        return tuple(sorted(self.meta["languages"]))

    @property
    def provenance(self) -> Provenance:
        """What made the vectors."""
        return Provenance(*(self.meta[field] for field in Provenance._fields))

    def __len__(self) -> int:
        """The number of documents."""
        return int(self.meta["doc_count"])

    def doc_langs(self, docids: npt.NDArray[np.int64] | slice = slice(None)) -> list[str | None]:
        """Returns the languages of documents by their docids; ``None`` for unknown."""
        names = [*self.meta["languages"], None]  # unknown is -1
        return [names[code] for code in self._codes[docids]]

    def docnos(self, docids: npt.NDArray[np.int64]) -> list[str]:
        """Returns docnos by docids.

        Raises:
            ValueError: If they are damaged.
        """
        try:
            return self.flex.docnos().fwd[docids].astype(str).tolist() if len(docids) else []
        except Exception as err:  # npids raises what it meets
            raise ValueError(f"damaged index of vectors {self.path}: cannot read docnos.npids ({err})") from err

    def docids(self, docnos: Sequence[object]) -> npt.NDArray[np.int64]:
        """Returns docids by docnos.

        Raises:
            ValueError: If a docno is not in the index; the message names the first.
        """
        found = np.array([self._docids.get(docno, -1) for docno in docnos], dtype=np.int64)
        if (lost := np.flatnonzero(found < 0)).size:
            raise ValueError(
                f"{len(lost)} of {len(found)} rows have a docno that is not in the index {self.path}, such as "
                f"{docnos[int(lost[0])]!r}"
            )
        return found

    @cached_property
    def _docids(self) -> dict[object, int]:
        # Not by the index's own look-up: that of numbers with leading zeros is wrong in npids 0.1.3.
        return {docno: i for i, docno in enumerate(self.docnos(np.arange(len(self))))}

    def mask(self, languages: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Returns which documents are in one of some languages.

        Raises:
            EmptyLanguageError: If there are none in one of them.
        """
        languages, known = list(languages), self.meta["languages"]
        if missing := [language for language in languages if language not in known]:
            raise EmptyLanguageError(
                f"the index {self.path} has no documents in {', '.join(missing)}; it has "
                f"{', '.join(self.languages) or 'only documents of unknown language'}"
            )
        return np.isin(self._codes, [known.index(language) for language in languages])

    def check(self, provenance: Provenance) -> None:
        """Checks that the documents' vectors were made by something.

        Raises:
            ValueError: If they were not; the message names both.
        """
        if self.provenance[1::2] != provenance[1::2]:
            raise ValueError(
                f"the index {self.path} was made by {self.provenance}, and the retriever is {provenance}: their "
                "vectors cannot be compared; index the documents again, or use the retriever that made the index"
            )

    # --- searching ------------------------------------------------------------------------------------------------

    def retriever(
        self, *, num_results: int = 1000, doc_langs: Sequence[str] | None = None, device: str | None = None
    ) -> VectorRetriever:
        """Returns a transformer from rows with ``query_vec`` to the best documents of each.

        Args:
            num_results: Maximum number of documents for each query.
            doc_langs: Retrieve only documents in these languages; ``None`` for all.
            device: Where to compute; ``None`` for the first GPU, or the CPU without one.
        """
        return VectorRetriever(self, num_results=num_results, doc_langs=doc_langs, device=device)

    def search(
        self, vectors: Vectors, num_results: int, languages: Sequence[str] | None = None, device: str | None = None
    ) -> pd.DataFrame:
        """Returns the documents with the largest dot products with each vector, by comparing with all of them.

        Args:
            vectors: Of shape (queries, dimension).
            num_results: Maximum number of documents for each query.
            languages: Only documents in these languages.
            device: Where to compute. The index is held in the memory of a GPU.

        Returns:
            Columns ``qid`` (the place of the vector), ``docid``, ``score`` and ``rank``.

        Raises:
            EmptyLanguageError: If there are no documents in one of the languages.
        """
        if not len(vectors):
            found = pd.DataFrame({"qid": [], "docid": [], "score": [], "rank": []})
        else:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*not writable")  # nothing writes to the vectors on disk
                search = self.flex.torch_retriever(
                    num_results=num_results,
                    device=str(resolve_device(device)),
                    qbatch=max(1, min(64, _SCORES // len(self))),
                    mask=None if languages is None else self.mask(languages),
                    drop_query_vec=True,
                )
            found = search.transform(pd.DataFrame({"qid": np.arange(len(vectors)), "query_vec": list(vectors)}))
            if found["docid"].dtype == object:  # where each query has one document, cells are arrays
                found = found.explode(["docid", "score", "rank"])
        return found.astype({"qid": "int64", "docid": "int64", "score": "float64", "rank": "int64"})

    def rows(self, topics: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
        """Returns rows of queries with what :meth:`search` found: ``docno``, ``doc_lang``, ``score`` and ``rank``.

        There is no ``doc_lang`` where the index knows no languages.
        """
        docids = found["docid"].to_numpy()
        columns = {"docno": pd.Series(self.docnos(docids), dtype="str")}
        if self.languages:
            columns["doc_lang"] = pd.Series(self.doc_langs(docids), dtype="str")
        ranks = {name: found[name].to_numpy() for name in ("score", "rank")}
        return topics.iloc[found["qid"].to_numpy()].reset_index(drop=True).assign(**columns, **ranks)

    @cached_property
    def spread(self) -> float:
        """The standard deviation of the dot product of two documents in one language, over a fixed sample of them.

        It says how much a difference between scores means, which encoders disagree about. Where no language has
        enough documents to tell, it is that of random directions: 1 / sqrt(dimension).
        """
        sample = np.sort(np.random.default_rng(0).permutation(len(self))[:_SAMPLE])
        products = []
        for code in np.unique(self._codes[sample]):
            own = self.vectors[sample[self._codes[sample] == code]]
            if len(own) >= _ENOUGH:
                pairs = (own @ own.T)[np.triu_indices(len(own), 1)]
                products.append(pairs - pairs.mean())
        found = float(np.concatenate(products).std()) if products else 0.0
        return found or float(self.meta["vec_size"] ** -0.5)

    # --- making ---------------------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        """Yields what :meth:`write` takes."""
        for start in range(0, len(self), CHUNK):
            docids = np.arange(start, min(start + CHUNK, len(self)))
            yield self.docnos(docids), self.doc_langs(docids), self.vectors[docids]

    @classmethod
    def write(
        cls, path: str | os.PathLike[str], chunks: Iterable[Chunk], provenance: Provenance, *, overwrite: bool = False
    ) -> DenseIndex:
        """Writes an index. It appears when it is complete, or not at all.

        Args:
            path: The directory.
            chunks: Some documents at a time: docnos, all different, of printable ASCII characters; languages or
                ``None``; vectors.
            provenance: What made the vectors.
            overwrite: Whether to replace an existing index.

        Raises:
            ValueError: If the docnos cannot be stored.
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
        """
        docnos: list[str] = []
        languages: dict[str | None, int] = {None: -1}
        codes: list[int] = []
        with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
            (tmp / "flex").mkdir()
            with open(tmp / "flex" / "vecs.f4", "wb") as file:
                for names, langs, vectors in chunks:
                    file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
                    docnos += names
                    codes += [languages.setdefault(lang, len(languages) - 1) for lang in langs]
            write_docnos(tmp / "flex" / "docnos.npids", docnos)
            size = {"vec_size": vectors.shape[1], "doc_count": len(docnos)}
            (tmp / "flex" / META).write_bytes(meta_bytes({"type": "dense_index", "format": "flex", **size}))
            np.save(tmp / _LANGUAGES, np.array(codes, dtype=np.int16))
            known = {"languages": list(languages)[1:], **provenance._asdict(), "checksums": checksums(tmp, _FILES)}
            (tmp / META).write_bytes(meta_bytes({**_KIND, "package_hint": cls.ARTIFACT_PACKAGE_HINT, **size, **known}))
        return cls(path)

    # --- identity -------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DenseIndex):
            return NotImplemented
        return (self.path.resolve(), self.meta) == (other.path.resolve(), other.meta)

    def __hash__(self) -> int:
        return hash(self.path.resolve())

    def __reduce__(self) -> tuple[Any, ...]:
        return DenseIndex, (self.path,)

    def __repr__(self) -> str:
        return f"DenseIndex({str(self.path)!r}, {len(self):,} documents in {', '.join(self.languages) or '?'})"


class VectorRetriever(Transformer):
    """Retrieves documents by the ``query_vec`` of queries; made by :meth:`DenseIndex.retriever`.

    The vectors must be made by the encoder and the centring that made the index, which cannot be checked here.

    Args:
        index: The index.
        num_results: Maximum number of documents for each query.
        doc_langs: Retrieve only documents in these languages; ``None`` for all.
        device: Where to compute.
    """

    schematic = {"label": "Vectors", "help_url": HELP_URL}

    def __init__(
        self,
        index: DenseIndex,
        *,
        num_results: int = 1000,
        doc_langs: Sequence[str] | None = None,
        device: str | None = None,
    ):
        check_whole("num_results", num_results)
        self.index, self.num_results, self.device = index, num_results, device
        self.doc_langs = None if doc_langs is None else language_codes("doc_langs", doc_langs)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the rows of each query's documents, with ``docno``, ``doc_lang``, ``score`` and ``rank``."""
        pt.validate.query_frame(inp, extra_columns=["query_vec"], context=self)
        vectors = np.stack(inp["query_vec"].tolist()) if len(inp) else np.empty((0, 0), dtype=np.float32)
        return self.index.rows(inp, self.index.search(vectors, self.num_results, self.doc_langs, self.device))

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """Retrieves fewer documents (PyTerrier's optimiser asks)."""
        return pt.inspect.transformer_apply_attributes(self, num_results=k) if k < self.num_results else None

    def __repr__(self) -> str:
        return f"{self.index!r}.retriever(num_results={self.num_results}, doc_langs={self.doc_langs})"


def language_codes(name: str, languages: Sequence[str]) -> tuple[str, ...]:
    """Returns an argument's languages by their codes.

    Raises:
        ValueError: If there are none, or one is not text.
    """
    codes = dict.fromkeys(language_of(language) for language in languages)
    if isinstance(languages, str) or not codes or None in codes:
        raise ValueError(f"{name} must be None or languages (such as 'de'), not {languages!r}")
    return tuple(code for code in codes if code is not None)
