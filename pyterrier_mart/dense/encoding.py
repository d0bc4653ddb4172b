"""The part of a MetaSBERTRetriever that turns texts into vectors: the encoder, and the centring after it."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.encoder import Side, TextEncoder, load_sentence_transformer, model_fingerprint
from pyterrier_mart.dense.index import Maker
from pyterrier_mart.dense.rows import Bar, Rows
from pyterrier_mart.devices import quiet, resolve_device
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.text import language_of
from pyterrier_mart.vectors import unit

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from pyterrier_mart.meta.training import TrainingLog

__all__ = ["Encoding", "is_model"]

Vectors = npt.NDArray[np.float32]


class Encoding:
    """Loads an encoder when it is needed, and encodes and centres texts; a base of :class:`MetaSBERTRetriever`.

    Attributes:
        history: The log of training, if there was one.
        weights: A fingerprint of the encoder, once it is not what its name stands for. The other attributes are
            arguments of :class:`MetaSBERTRetriever`.
    """

    model: str | os.PathLike[str] | SentenceTransformer
    config: MetaConfig | None
    post: LanguageCentering | None
    query_lang: str | None
    doc_lang: str | None
    batch_size: int
    device: str | None
    verbose: bool
    history: TrainingLog | None
    weights: str | None
    _net: SentenceTransformer | None
    _net_of: object  # what _net was loaded for
    _digest: tuple[object, str] | None  # what the fingerprint is of, and the fingerprint

    # --- vectors --------------------------------------------------------------------------------------------------

    def encode(
        self,
        texts: Iterable[str],
        side: Side,
        languages: Sequence[object] | None = None,
        *,
        post: bool = True,
        progress: Callable[[int], object] | None = None,
    ) -> Vectors:
        """Returns the vectors of texts, which have length 1.

        Args:
            texts: The texts.
            side: Whether they are questions or documents (``"query"``, ``"document"``).
            languages: The language of each, for the centring; by default the argument ``query_lang`` or ``doc_lang``.
            post: Whether to centre them, if there is a centring.
            progress: Called with how many distinct texts were encoded since the last call.

        Returns:
            Of shape (texts, dimension).
        """
        texts = list(texts)
        default = language_of(self.query_lang if side == "query" else self.doc_lang)
        langs = [default] * len(texts) if languages is None else [language_of(lang) or default for lang in languages]
        if len(langs) != len(texts):
            raise ValueError(f"expected a language for each of {len(texts)} texts, found {len(langs)}")
        rows = self._encoded(texts, side, langs, progress, post=post)
        return rows.distinct[rows.places]

    def _encoded(
        self,
        texts: list[str],
        side: Side,
        langs: list[str | None],
        progress: Callable[[int], object] | None = None,
        *,
        post: bool = True,
        warn: bool = True,
    ) -> Rows:
        """Encodes each distinct text once, and centres it once for each of its languages."""
        encoder = self.load_model()
        known = dict.fromkeys(texts)
        vectors = unit(encoder.encode(known, side, batch_size=self.batch_size, progress=progress))
        place = {text: i for i, text in enumerate(known)}
        if not post or self.post is None:
            return Rows(vectors.__getitem__, np.array([place[text] for text in texts], dtype=np.int64), vectors)
        centring = self._checked_post()
        if warn and (unknown := centring.unknown(langs, side)):
            warnings.warn(centring.unknown_message(unknown, side), stacklevel=4)
        pairs = dict.fromkeys(zip(texts, langs, strict=True))
        centred = centring.apply(
            vectors[[place[text] for text, _ in pairs]], [lang for _, lang in pairs], side, warn=False
        )
        of_pair = {pair: i for i, pair in enumerate(pairs)}
        places = np.array([of_pair[pair] for pair in zip(texts, langs, strict=True)], dtype=np.int64)
        return Rows(centred.__getitem__, places, centred)

    def _checked_post(self) -> LanguageCentering:
        assert self.post is not None
        if self.post.encoder is not None and self.post.encoder != self.fingerprint:
            raise ValueError(
                f"post was fitted on the vectors of an encoder with the fingerprint {self.post.encoder[:8]}, and this "
                f"is {self._name} with {self.fingerprint[:8]}; fit it again with LanguageCentering.fit_corpus()"
            )
        if self.post.dimension != self.encoder.dimension:
            raise ValueError(
                f"post was fitted on vectors of length {self.post.dimension}, and those of {self._name} have "
                f"{self.encoder.dimension}"
            )
        return self.post

    # --- rows -----------------------------------------------------------------------------------------------------

    def _langs(self, frame: pd.DataFrame, prefix: str) -> list[str | None]:
        """The language of each row: that of the column, or of the argument."""
        default = language_of(getattr(self, f"{prefix}_lang"))
        if f"{prefix}_lang" not in frame:
            return [default] * len(frame)
        values = frame[f"{prefix}_lang"].tolist()
        known = {value: language_of(value) or default for value in set(values) if isinstance(value, str)}
        return [known.get(value, default) if isinstance(value, str) else default for value in values]

    def _bar(self, total: int) -> Bar:
        return Bar(total if self.verbose else 0, "MetaSBERT")

    # --- the encoder ----------------------------------------------------------------------------------------------

    def load_model(self) -> TextEncoder:
        """Loads the encoder now, so that the time of the first query does not contain it, and returns it.

        Raises:
            OSError: If there is no such encoder.
        """
        source = os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else id(self.model)
        if self._net is None or (self.weights is None and self._net_of != source):
            self._net, self._net_of = self._new(), source
        net = self._net
        if self.device is not None or not is_model(self.model):
            device = resolve_device(self.device)
            if net.device != device:
                net.to(device)
        return TextEncoder(net, self._options.max_length)

    def _new(self) -> SentenceTransformer:
        """The encoder as it was before any training; a given one is not copied."""
        if is_model(self.model):
            model: Any = self.model
            return model.eval()
        with quiet():
            return load_sentence_transformer(self.model, device=str(resolve_device(self.device)))  # type: ignore[arg-type]

    @property
    def encoder(self) -> TextEncoder:
        """What encodes texts, before centring; it is loaded if need be."""
        return self.load_model()

    @property
    def fingerprint(self) -> str:
        """What the encoder's vectors depend on: weights, prompts and lengths. The encoder is loaded if need be."""
        encoder = self.load_model()
        state = _versions(encoder.model)
        if self._digest is None or self._digest[0] != state:
            self._digest = state, model_fingerprint(encoder.model)
        return hashlib.blake2b(repr((self._digest[1], encoder.max_length)).encode(), digest_size=16).hexdigest()

    @property
    def maker(self) -> Maker:
        """What an index keeps of this, to be searched with nothing else."""
        post = self.post
        if post is None:
            return Maker(self._name, self.fingerprint)
        return Maker(self._name, self.fingerprint, repr(post), self._checked_post().fingerprint)

    @property
    def _options(self) -> MetaConfig:
        return self.config or MetaConfig()

    @property
    def _name(self) -> str:
        return os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else type(self.model).__name__

    def _trained(self, net: SentenceTransformer, history: TrainingLog | None) -> None:
        net.eval()
        self._net, self._digest, self.history = net, None, history
        self.weights = model_fingerprint(net)
        self._digest = _versions(net), self.weights


def is_model(value: object) -> bool:
    """Returns whether it is a ``SentenceTransformer``."""
    return isinstance(value, torch.nn.Module) and hasattr(value, "encode") and hasattr(value, "prompts")


def _versions(model: torch.nn.Module) -> tuple[object, ...]:
    """Changes when weights do, without reading them."""
    return id(model), tuple((value.data_ptr(), value._version) for value in model.parameters())
