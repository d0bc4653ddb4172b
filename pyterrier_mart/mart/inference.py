"""Loaded models, and scoring rows with them: streaming, in batches of a number of tokens."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pyterrier_mart import encoders
from pyterrier_mart.encoders.loading import load_tokenizer
from pyterrier_mart.frames import warn
from pyterrier_mart.mart.encoding import Pair, PairEncoder
from pyterrier_mart.mart.modeling import MartForRanking

__all__ = ["LoadedModel", "Scorer"]

_ROWS = 4096  # encoded and sorted by length at a time: what is in memory does not grow with the rows
_TOKENS = {"cpu": 1024}  # of a batch: more do not fit into the caches
_TOKENS_ELSEWHERE = 65536


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer, and the architecture that it was loaded for."""

    architecture: tuple[object, ...]
    net: MartForRanking
    tokenizer: Any

    @classmethod
    def new(
        cls, model: str | os.PathLike[str], mat_layers: tuple[int, ...], pooling: str, translation_init: str, seed: int
    ) -> LoadedModel:
        """Builds on a pretrained encoder, see :meth:`MartForRanking.from_encoder`.

        Raises:
            ValueError: If the encoder is of another kind.
            OSError: If there is no such encoder.
        """
        tokenizer = load_tokenizer(encoders.find(model))
        net = MartForRanking.from_encoder(
            model, mat_layers, pooling=pooling, translation_init=translation_init, seed=seed
        )
        return cls((os.fspath(model), mat_layers, pooling, translation_init, seed), net, tokenizer)

    @property
    def longest(self) -> int:
        """Maximum number of tokens that the encoder takes."""
        config = self.net.config.encoder_config
        # RoBERTa's positions begin after the padding token's number.
        lost = (config.pad_token_id or 0) + 1 if config.model_type != "bert" else 0
        return int(min(config.max_position_embeddings - lost, self.tokenizer.model_max_length))


class Scorer:
    """A model ready to score on a device.

    Args:
        model: The model; it is not changed.
        encoder: Makes its batches.
        device: Where to compute.
        dtype: What to compute in. The scores are float32 whatever it is.
        batch_tokens: Tokens of a batch, padding included; ``None`` for a number that suits the device.
    """

    def __init__(
        self,
        model: MartForRanking,
        encoder: PairEncoder,
        device: torch.device,
        dtype: torch.dtype,
        batch_tokens: int | None = None,
    ):
        self.encoder, self.device, self.dtype = encoder, device, dtype
        self.batch_tokens = batch_tokens or _TOKENS.get(device.type, _TOKENS_ELSEWHERE)
        if dtype is not torch.float32:
            model = copy.deepcopy(model)
            model.mart.to(dtype=dtype)  # type: ignore[call-arg]  # the linear layer that scores stays as it is
        self.model = model.to(device=device).eval()  # type: ignore[call-arg]

    def score(
        self, queries: Sequence[str], documents: Sequence[str], done: Callable[[int], object] | None = None
    ) -> npt.NDArray[np.float64]:
        """Scores rows.

        Args:
            queries: The query of each row.
            documents: The text of each row.
            done: Called with numbers of rows that were scored since.

        Raises:
            ValueError: If a score is not finite: the model's weights are damaged.
            torch.OutOfMemoryError: If a single row does not fit on the device.
        """
        scores = np.empty(len(queries))
        for start in range(0, len(queries), _ROWS):
            rows = slice(start, start + _ROWS)
            scores[rows] = self._score(self.encoder.pairs(queries[rows], documents[rows]), done)
        if not np.isfinite(scores).all():
            raise ValueError(
                f"{(~np.isfinite(scores)).sum()} of {len(scores)} scores are not finite: the model's weights are "
                f"damaged or training diverged{'' if self.dtype is not torch.float16 else ', or float16 overflows'}"
            )
        return scores

    def batches(self, pairs: Sequence[Pair]) -> Iterator[npt.NDArray[np.int64]]:
        """Yields the rows of one batch after the other, the longest first: what does not fit shows soon."""
        order = np.argsort([-pair.longest for pair in pairs], kind="stable")
        at = 0
        while at < len(order):
            width = pairs[order[at]].longest + self.encoder.template.length
            room = self.batch_tokens // width - pairs[order[at]].passages
            n = 1
            while at + n < len(order) and (room := room - pairs[order[at + n]].passages) >= 0:
                n += 1
            yield order[at : at + n]
            at += n

    def _score(self, pairs: Sequence[Pair], done: Callable[[int], object] | None) -> npt.NDArray[np.float64]:
        scores = np.empty(len(pairs))
        for chosen in self.batches(pairs):
            rows = [pairs[i] for i in chosen]
            try:
                with torch.inference_mode():
                    out = self.model(**self.encoder.batch(rows).inputs(self.device))
                    scores[chosen] = out.scores.double().cpu().numpy()
                if done is not None:
                    done(len(rows))
                continue
            except torch.OutOfMemoryError:
                if len(rows) == 1:
                    raise
            # Outside the handler: the error holds on to the tensors.
            self.batch_tokens = max(1, self.batch_tokens // 2)
            warn(
                f"out of memory on {self.device}: continuing with batches of {self.batch_tokens} tokens; pass "
                f"batch_tokens={self.batch_tokens} to start with that"
            )
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            scores[chosen] = self._score(rows, done)
        return scores
