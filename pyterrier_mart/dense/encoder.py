"""Texts to vectors: a sentence-transformers model with prompts and lengths for queries and documents."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_mart import encoders
from pyterrier_mart.artifact import weights_digest
from pyterrier_mart.characters import without_surrogates
from pyterrier_mart.devices import resolve_device
from pyterrier_mart.encoders.loading import check_modules, reading
from pyterrier_mart.frames import Transformer
from pyterrier_mart.links import HELP_URL

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer  # takes seconds to import

__all__ = [
    "PREFIXES",
    "DenseEncoder",
    "Encodes",
    "Features",
    "Side",
    "TextEncoder",
    "Vectors",
    "load_sentence_transformer",
    "model_fingerprint",
]

Side: TypeAlias = Literal["query", "document"]
Vectors: TypeAlias = npt.NDArray[np.float32]
#: How the columns of each side begin.
PREFIXES: dict[Side, str] = {"query": "query", "document": "doc"}
#: What a sentence-transformers model takes: token ids, attention mask and the like.
Features: TypeAlias = "dict[str, Any]"

_TOKENS_ON_CPU = 1024  # of a batch, with padding; more is not faster there

#: Fingerprints of models, each with the state of the weights that it is of.
_FINGERPRINTS: WeakKeyDictionary[torch.nn.Module, tuple[object, str]] = WeakKeyDictionary()


def load_sentence_transformer(
    name: str | os.PathLike[str], *, device: str | None = None, attention: str | None = None
) -> SentenceTransformer:
    """Loads a model by a hub id, a directory, or a name of :mod:`pyterrier_mart.encoders`.

    The model is in evaluation mode, without dropout, and in float32. Code that comes with a model is not run.

    Args:
        name: The model.
        device: Where to put it; ``None`` for the first GPU, or the CPU without one.
        attention: ``attn_implementation`` of transformers, such as ``"eager"``.

    Raises:
        ImportError: If the package of a packaged encoder is not installed.
        OSError: If there is no such model.
        ValueError: If a file of it is damaged, or weights are in a pickle, or it needs code that comes with it.
    """
    from sentence_transformers import SentenceTransformer

    options = {"attn_implementation": attention} if attention is not None else {}
    source, where = encoders.find(name, "sentence-transformers"), str(resolve_device(device))
    if source.local:
        check_modules(Path(source.path))
    with reading(source.path, "the sentence encoder"):
        model = SentenceTransformer(
            source.path, device=where, model_kwargs={"use_safetensors": True, **options}, **source.options
        )
    return model.eval()


class TextEncoder:
    """Encodes queries and documents with one model, each side with its prompt and length.

    Args:
        model: The model. It is used as it is: training it changes what is encoded.
        max_length: Wordpieces of a query and of a document that are read, special tokens included.
    """

    def __init__(self, model: SentenceTransformer, max_length: tuple[int, int] = (96, 256)):
        self.model = model
        self.max_length = max_length

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        size = self.model.get_embedding_dimension()
        assert size is not None
        return size

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def fingerprint(self) -> str:
        """What the vectors depend on: weights, prompts and lengths. Weights are read again if they have changed."""
        state = self.model.truncate_dim, [(value.data_ptr(), value._version) for value in self.model.parameters()]
        if _FINGERPRINTS.get(self.model, (None, ""))[0] != state:
            _FINGERPRINTS[self.model] = state, model_fingerprint(self.model)
        described = repr((_FINGERPRINTS[self.model][1], self.max_length))
        return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()

    def features(self, texts: Sequence[str], side: Side) -> Features:
        """Tokenises texts: the side's prompt before each, cut to the side's length, padded to the longest.

        Returns:
            What :meth:`embed` takes, on the model's device.
        """
        limit = self.model.max_seq_length
        length = self.max_length[0 if side == "query" else 1]
        self.model.max_seq_length = min(length, limit) if limit else length
        try:
            texts = list(map(without_surrogates, texts))
            features = self.model.preprocess(texts, prompt=self.model.prompts.get(side) or None)
        finally:
            self.model.max_seq_length = limit
        device = self.device
        return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in features.items()}

    def embed(self, features: Features) -> torch.Tensor:
        """Returns vectors of shape (texts, dimension), through which gradients flow."""
        return self.embedding(self.model(dict(features)))  # the model adds to its input

    def embedding(self, outputs: Features) -> torch.Tensor:
        """Returns the vectors among a model's outputs, of as many dimensions as its ``truncate_dim`` says."""
        vectors: torch.Tensor = outputs["sentence_embedding"][:, : self.model.truncate_dim]
        return vectors

    def encode(
        self,
        texts: Iterable[str],
        side: Side,
        *,
        batch_size: int = 64,
        progress: Callable[[int], object] | None = None,
    ) -> Vectors:
        """Returns the vectors of texts, without gradients.

        Texts that are there several times are encoded once; batches are of texts of like length.

        Args:
            texts: The texts.
            side: Whether they are queries or documents.
            batch_size: Maximum number of texts in a batch.
            progress: Called with how many distinct texts were encoded since the last call.

        Returns:
            Of shape (texts, dimension).
        """
        batches, places = self.batches(list(texts), side, batch_size)
        vectors = [np.empty((0, self.dimension), dtype=np.float32)]
        with torch.inference_mode():
            for batch in batches:
                vectors.append(self.embed(self.features(batch, side)).float().cpu().numpy())
                if progress is not None:
                    progress(len(batch))
        return np.concatenate(vectors)[places]

    def batches(
        self, texts: Sequence[str], side: Side, batch_size: int | None = None
    ) -> tuple[list[list[str]], list[int]]:
        """Returns the distinct texts in batches of like length, and the place of each text among them.

        On a CPU batches are small: more tokens at a time are not faster there.
        """
        distinct = sorted(set(texts), key=lambda text: (-len(text), text))
        longest = self.max_length[0 if side == "query" else 1]
        batches, start = [], 0
        while start < len(distinct):
            size = batch_size or len(distinct)
            if self.device.type == "cpu":
                tokens = min(longest, max(8, len(distinct[start]) // 3))  # roughly
                size = max(1, min(size, _TOKENS_ON_CPU // tokens))
            batches.append(distinct[start : start + size])
            start += size
        place = {text: i for i, text in enumerate(distinct)}
        return batches, [place[text] for text in texts]


class Encodes(Protocol):
    """What encodes rows, such as a :class:`~pyterrier_mart.dense.retriever.DenseRetriever`."""

    text_field: str
    verbose: bool

    @property
    def encoder(self) -> TextEncoder:
        """What encodes texts, before centring."""

    def encode_rows(self, rows: pd.DataFrame, side: Side) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """Returns the vectors of different texts, and the place of each row's among them."""


class DenseEncoder(Transformer):
    """Adds the vectors of queries or documents; made by the ``query_encoder()`` and ``doc_encoder()`` of a retriever.

    Vectors of a column that is there already are replaced.

    Args:
        dense: What encodes.
        side: Whether to encode ``query`` to ``query_vec`` (``"query"``) or text to ``doc_vec`` (``"document"``).
    """

    def __init__(self, dense: Encodes, side: Side = "query"):
        self.dense, self.side = dense, side
        self.schematic = {"label": "Query Vectors" if side == "query" else "Doc Vectors", "help_url": HELP_URL}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds a column of float32 arrays of length 1."""
        columns = ["qid", "query"] if self.side == "query" else ["docno", self.dense.text_field]
        pt.validate.columns(inp, includes=columns, context=self)
        vectors, rows = self.dense.encode_rows(inp, self.side)
        added = pd.Series(list(vectors[rows]), index=inp.index, dtype=object)
        return inp.assign(**{f"{PREFIXES[self.side]}_vec": added})

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Cuts a ranking before, rather than after, texts are encoded (PyTerrier's optimiser asks)."""
        return pt.RankCutoff(k) >> self

    def __repr__(self) -> str:
        return f"{self.dense!r}.{PREFIXES[self.side]}_encoder()"


def model_fingerprint(model: torch.nn.Module) -> str:
    """Returns what vectors depend on besides lengths: weights, pooling and other modules, prompts, truncation."""
    modules = [
        [type(module).__name__, getattr(module, "get_config_dict", lambda: None)()] for module in model.children()
    ]
    tokenizer, prompts = getattr(model, "tokenizer", ()), getattr(model, "prompts", {})
    parts = [modules, len(tokenizer), dict(prompts)]
    if (dimensions := getattr(model, "truncate_dim", None)) is not None:
        parts.append(dimensions)
    described = json.dumps(parts, sort_keys=True, default=repr)
    return weights_digest(model, described)
