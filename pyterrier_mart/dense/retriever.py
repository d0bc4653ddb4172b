"""DenseRetriever: a multilingual sentence encoder as a PyTerrier transformer."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_mart import encoders
from pyterrier_mart.checks import check_whole
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.encoder import (
    DenseEncoder,
    Side,
    TextEncoder,
    Vectors,
    load_sentence_transformer,
    model_fingerprint,
)
from pyterrier_mart.dense.index import CHUNK, Chunk, DenseIndex, Provenance, language_codes
from pyterrier_mart.devices import resolve_device
from pyterrier_mart.frames import Transformer, texts_of, warn
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.query_terms import queries_of
from pyterrier_mart.retrieval.documents import checked, documents_of
from pyterrier_mart.text import language_of
from pyterrier_mart.vectors import dot_products, unit

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer  # takes seconds to import
    from typing_extensions import Self

__all__ = ["DEFAULT_MODEL", "DenseRetriever"]

DEFAULT_MODEL = "sentence-transformers/paraphrase-multilingual-mpnet-base-v2"
# What decides scores besides the encoder.
_SETTINGS = (
    "dense_index", "post", "query_lang", "doc_lang", "num_results", "doc_langs", "max_length", "text_field",
)  # fmt: skip


class DenseRetriever(Transformer):
    """Ranks documents in several languages by the vectors of a multilingual sentence encoder.

    Queries and documents are encoded apart (a bi-encoder) and compared by cosine. What it does depends on the
    columns of its input:

    - ``qid``, ``query``, ``docno`` and ``text``: it re-ranks, encoding the texts;
    - ``qid``, ``query`` and ``docno`` with an index: it re-ranks by the vectors in the index;
    - ``qid`` and ``query`` with an index: it retrieves. Output rows have ``doc_lang`` where the index knows it.

    The languages of queries and documents are in the columns ``query_lang`` and ``doc_lang``, or the arguments of these
    names; only :class:`LanguageCentering` needs them. Columns ``query_vec`` and ``doc_vec`` are kept and not used.

    Args:
        model: The encoder: a hub id, a directory, a name of :mod:`pyterrier_mart.encoders` such as ``"e5-small"``,
            or a ``SentenceTransformer``.
        dense_index: An index that :meth:`index` made, or its directory.
        post: A :class:`LanguageCentering` for the vectors.
        query_lang: Language of queries whose row does not say it.
        doc_lang: Language of documents whose row does not say it.
        num_results: Maximum number of documents for each query, in retrieval.
        doc_langs: Retrieve only documents in these languages; ``None`` for all.
        batch_size: Maximum number of texts that are encoded at a time. Scores do not depend on it.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``; ``None`` or ``"auto"`` for the first GPU, or the CPU
            without one.
        max_length: Wordpieces of a query and of a document that are read.
        text_field: The column with the documents' text.
        verbose: Whether to show progress bars.

    Attributes:
        weights: A fingerprint of the encoder, once it is not what its name stands for.

    Raises:
        ValueError: If an argument is out of range; the message names it.
        EmptyLanguageError: If the index has no documents in one of ``doc_langs``.
    """

    schematic = {"label": "Dense", "help_url": HELP_URL}

    def __init__(
        self,
        model: str | os.PathLike[str] | SentenceTransformer = DEFAULT_MODEL,
        dense_index: DenseIndex | str | os.PathLike[str] | None = None,
        *,
        post: LanguageCentering | None = None,
        query_lang: str | None = None,
        doc_lang: str | None = None,
        num_results: int = 1000,
        doc_langs: Sequence[str] | None = None,
        batch_size: int = 64,
        device: str | None = None,
        max_length: tuple[int, int] = (96, 256),
        text_field: str = "text",
        verbose: bool = False,
    ):
        check_whole("num_results", num_results)
        check_whole("batch_size", batch_size)
        self.model = encoders.anchored(model)
        self.dense_index = DenseIndex(dense_index) if isinstance(dense_index, (str, os.PathLike)) else dense_index
        self.post, self.num_results, self.batch_size, self.device = post, num_results, batch_size, device
        self.query_lang = None if query_lang is None else language_codes("query_lang", [query_lang])[0]
        self.doc_lang = None if doc_lang is None else language_codes("doc_lang", [doc_lang])[0]
        self.doc_langs = None if doc_langs is None else language_codes("doc_langs", doc_langs)
        self.max_length, self.text_field, self.verbose = max_length, text_field, verbose
        self.weights: str | None = None
        self._net: SentenceTransformer | None = None
        self._net_of: object = None  # the model that _net was loaded for
        if self.dense_index is not None and self.doc_langs is not None:
            self.dense_index.mask(self.doc_langs)

    # --- ranking --------------------------------------------------------------------------------------------------

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Re-ranks rows with documents, and retrieves documents for rows without."""
        with pt.validate.any(inp, context=self) as v:
            v.result_frame(extra_columns=["query", self.text_field], mode="texts")
            if self.dense_index is not None:
                v.result_frame(extra_columns=["query"], mode="vectors")
                v.query_frame(extra_columns=["query"], mode="retrieve")
        index: Any = self.dense_index
        if v.mode != "texts" and len(inp):
            index.check(self.provenance)
        queries = self.encode_rows(inp, "query")
        if v.mode == "retrieve":
            vectors, places = queries
            return index.rows(inp, index.search(vectors[places], self.num_results, self.doc_langs, self.device))
        out = inp.drop(columns=["score", "rank"], errors="ignore")
        if v.mode == "texts":
            documents = self.encode_rows(inp, "document")
        else:
            documents = index.vectors, index.docids(inp["docno"].tolist())
        return pt.model.add_ranks(out.assign(score=dot_products(*queries, *documents)))

    # --- vectors --------------------------------------------------------------------------------------------------

    def query_encoder(self) -> DenseEncoder:
        """Returns a transformer that adds ``query_vec`` to rows with ``query``, centred if there is a centring."""
        return DenseEncoder(self, "query")

    def doc_encoder(self) -> DenseEncoder:
        """Returns a transformer that adds ``doc_vec`` to rows with text, centred if there is a centring."""
        return DenseEncoder(self, "document")

    def encode(
        self,
        texts: Iterable[str],
        side: Side,
        languages: Iterable[object] | None = None,
        *,
        post: bool = True,
        progress: Callable[[int], object] | None = None,
    ) -> Vectors:
        """Returns the vectors of texts, which have length 1.

        Args:
            texts: The texts.
            side: Whether they are queries or documents (``"query"``, ``"document"``).
            languages: The language of each, for the centring; by default the argument ``query_lang`` or ``doc_lang``.
            post: Whether to centre them, if there is a centring.
            progress: Called with how many distinct texts were encoded since the last call.

        Returns:
            Of shape (texts, dimension).

        Raises:
            ValueError: If the centring is one of another encoder, or the encoder is damaged.
        """
        texts = list(texts)
        vectors = unit(self.load_model().encode(texts, side, batch_size=self.batch_size, progress=progress))
        if not np.isfinite(vectors).all():
            raise ValueError(f"the vector of a {side} is not finite: the weights of {self.model_name} are damaged")
        if self.post is None or not post:
            return vectors
        default = self.query_lang if side == "query" else self.doc_lang
        langs = [None] * len(texts) if languages is None else map(language_of, languages)
        return self.checked_post().apply(vectors, [lang or default for lang in langs], side)

    def encode_rows(self, rows: pd.DataFrame, side: Side) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """Returns the vectors of different texts in different languages, and the place of each row's among them."""
        if rows.empty:  # for which no model is loaded
            return np.empty((0, 0), dtype=np.float32), np.empty(0, dtype=np.int64)
        column, lang = ("query", "query_lang") if side == "query" else (self.text_field, "doc_lang")
        texts = queries_of(rows) if side == "query" else texts_of(rows, column)
        pairs = list(zip(texts, rows[lang] if lang in rows else itertools.repeat(None), strict=False))
        place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        with pt.tqdm(total=len(set(texts)), desc=type(self).__name__, unit="text", disable=not self.verbose) as bar:
            texts, langs = [text for text, _ in place], [lang for _, lang in place]
            vectors = self.encode(texts, side, langs, progress=bar.update)
        return vectors, np.array([place[pair] for pair in pairs])

    def checked_post(self) -> LanguageCentering:
        """Returns the centring.

        Raises:
            ValueError: If it was fitted on the vectors of another encoder.
        """
        assert self.post is not None
        if self.post.encoder not in (None, self.fingerprint):
            raise ValueError(
                f"post must be fitted on the vectors of {self.model_name} with the fingerprint {self.fingerprint[:8]}, "
                f"not on those of {self.post.encoder[:8]}; see LanguageCentering.fit_corpus()"
            )
        return self.post

    # --- the encoder ----------------------------------------------------------------------------------------------

    def load_model(self) -> TextEncoder:
        """Loads the encoder now, so that the time of the first query does not contain it, and returns it.

        Raises:
            OSError: If there is no such encoder.
        """
        if self._net is None or self._net_of is not self.model:
            self._net, self._net_of, self.weights = self.new_model(), self.model, None
        if self.device is not None or not isinstance(self.model, torch.nn.Module):
            self._net.to(resolve_device(self.device))
        return TextEncoder(self._net, self.max_length)

    def new_model(self) -> SentenceTransformer:
        """Returns the encoder as it was before any training; a given one is not copied."""
        if isinstance(self.model, torch.nn.Module):
            return self.model.eval()
        return load_sentence_transformer(self.model, device=self.device)

    def set_model(self, net: SentenceTransformer, fingerprint: str | None = None) -> None:
        """Encodes with other weights from now on than those that ``model`` stands for."""
        self._net, self._net_of, self.weights = net.eval(), self.model, fingerprint or model_fingerprint(net)

    @property
    def encoder(self) -> TextEncoder:
        """What encodes texts, before centring; it is loaded if need be."""
        return self.load_model()

    @property
    def fingerprint(self) -> str:
        """What the encoder's vectors depend on: weights, prompts and lengths. The encoder is loaded if need be."""
        return self.load_model().fingerprint

    @property
    def model_name(self) -> str:
        """The name of the encoder."""
        return type(self.model).__name__ if isinstance(self.model, torch.nn.Module) else os.fspath(self.model)

    @property
    def provenance(self) -> Provenance:
        """What an index keeps of this, to be searched with nothing else."""
        post = () if self.post is None else (repr(self.post), self.post.fingerprint)
        return Provenance(self.model_name, self.fingerprint, *post)

    # --- indexes --------------------------------------------------------------------------------------------------

    def index(self, path: str | os.PathLike[str], documents: Any, *, overwrite: bool = False) -> DenseIndex:
        """Encodes documents into an index on disk. It appears when it is complete, or not at all.

        Documents are read once, a few thousand at a time. To compare a centring with none, encode once: of an index
        that the same encoder made without centring, vectors and languages are used again, and only centred::

            >>> raw = dense.index("raw", corpus)
            >>> centred = MetaSBERTRetriever("e5-small", post=LanguageCentering.fit_corpus(dense, corpus))
            >>> index = centred.index("centred", raw)

        Args:
            path: The directory of the index.
            documents: A :class:`MultilingualCorpus`, a PyTerrier dataset or its name, a file as :func:`bm25_index`
                reads it, an iterable of dicts or a frame with ``docno``, the text, and perhaps ``doc_lang``; or a
                :class:`DenseIndex`. A docno is text of printable ASCII characters without white space, as
                pyterrier_dr stores no other.
            overwrite: Whether to replace an existing index.

        Returns:
            The index, for :meth:`retriever`.

        Raises:
            ValueError: If there are no documents, or one lacks a field or has a docno that is wrong or occurs twice, or
                if ``documents`` is an index that another encoder made, or that is centred already.
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
        """
        post = None if self.post is None else self.checked_post()
        missing = 0

        def encoded() -> Iterator[Chunk]:
            nonlocal missing
            rows, lang = documents_of(documents)
            default = self.doc_lang or language_of(lang)
            rows = checked(rows, [self.text_field], docno="[!-~]+", rule="of printable ASCII without white space")
            found = iter(pt.tqdm(rows, desc=f"{type(self).__name__} index", unit="d", disable=not self.verbose))
            while part := list(itertools.islice(found, CHUNK)):
                texts = [doc[self.text_field] for doc in part]
                missing += sum(not isinstance(text, str) for text in texts)
                vectors = self.encode((text if isinstance(text, str) else "" for text in texts), "document", post=False)
                langs = [language_of(doc.get("doc_lang")) or default for doc in part]
                yield [doc["docno"] for doc in part], langs, vectors

        def centred(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
            for docnos, langs, vectors in chunks:
                langs = [lang or self.doc_lang for lang in langs]
                yield docnos, langs, post.apply(vectors, langs, "document", warn=False) if post else vectors

        if isinstance(documents, DenseIndex):
            documents.check(Provenance(self.model_name, self.fingerprint))
        chunks = documents.chunks() if isinstance(documents, DenseIndex) else encoded()
        made = DenseIndex.write(path, centred(chunks), self.provenance, overwrite=overwrite)
        if missing:
            warn(f"{missing} of {len(made)} documents have no text in {self.text_field!r} and count as empty")
        if post and (message := post.unknown_message(made.doc_langs(), "document")):
            warn(message)
        return made

    def retriever(
        self,
        index: DenseIndex | str | os.PathLike[str],
        *,
        num_results: int | None = None,
        doc_langs: Sequence[str] | None = None,
    ) -> Self:
        """Returns a copy that retrieves from an index.

        Args:
            index: The index, or its directory.
            num_results: Maximum number of documents for each query; by default that of this retriever.
            doc_langs: Only documents in these languages; ``None`` for all.

        Raises:
            EmptyLanguageError: If the index has no documents in one of the languages.
        """
        most = self.num_results if num_results is None else num_results
        return self.apply_attributes(dense_index=index, num_results=most, doc_langs=doc_langs)

    def languages(self, *languages: str) -> Self:
        """Returns a copy that retrieves only documents in some languages; without any, in all.

        Raises:
            EmptyLanguageError: If the index has no documents in one of them.
        """
        return self.apply_attributes(doc_langs=languages or None)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """Retrieves fewer documents (PyTerrier's optimiser asks). The cutoff stays, for rows that are re-ranked."""
        if self.dense_index is None or k >= self.num_results:
            return None
        return self.apply_attributes(num_results=k) >> pt.RankCutoff(k)

    # --- identity -------------------------------------------------------------------------------------------------

    def apply_attributes(self, **attributes: Any) -> Self:
        """Returns a copy with other arguments (PyTerrier's inspection asks), with the same weights if it may."""
        arguments = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        made = type(self)(**{**arguments, **attributes})
        if "model" not in attributes:
            made._net, made._net_of, made.weights = self._net, self._net_of, self.weights
            if made.device != self.device:  # each stays where it computes
                made._net = copy.deepcopy(self._net)
        return made

    def settings(self) -> dict[str, Any]:
        """The arguments besides the encoder that decide what comes out."""
        return {name: getattr(self, name) for name in _SETTINGS}

    def __getstate__(self) -> dict[str, Any]:
        # Weights that the encoder's name stands for are loaded again.
        return {**self.__dict__, "_net": None if self.weights is None else self._net}

    def __repr__(self) -> str:
        given = isinstance(self.model, torch.nn.Module)
        shown = f"<SentenceTransformer {self.fingerprint[:8]}>" if given else repr(self.model_name)
        parameters = inspect.signature(type(self)).parameters
        changed = [f"{k}={v!r}" for k, v in self.settings().items() if k in parameters and v != parameters[k].default]
        weights = [] if self.weights is None else [f"weights {self.weights[:8]}"]
        return f"{type(self).__name__}({', '.join([shown, *changed, *weights])})"
