"""Scoring rows with a MART model: streaming, in batches of so many tokens, in the precision that suits the device."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from pyterrier_mart.mart.encoding import Pair, PairEncoder
from pyterrier_mart.mart.modeling import MartForRanking

__all__ = ["Scorer"]

_ROWS = 4096  # encoded and sorted by length at a time: what is in memory does not grow with the rows
_TOKENS = {"cpu": 1024}  # of a batch: more do not fit into the caches
_TOKENS_ELSEWHERE = 65536


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
            pairs = self.encoder.pairs(queries[rows], documents[rows])
            # The longest first: what does not fit on the device shows at once.
            order = np.argsort([-pair.longest for pair in pairs], kind="stable")
            at = 0
            while at < len(order):
                chosen = order[at : at + self.fitting(pairs, order[at:])]
                out = self._batch([pairs[i] for i in chosen])
                if out is None:
                    continue  # with smaller batches
                scores[start + chosen] = out
                at += len(chosen)
                if done is not None:
                    done(len(chosen))
        if not np.isfinite(scores).all():
            raise ValueError(
                f"{(~np.isfinite(scores)).sum()} of {len(scores)} scores are not finite: the model's weights are "
                f"damaged or training diverged{'' if self.dtype is not torch.float16 else ', or float16 overflows'}"
            )
        return scores

    def fitting(self, pairs: Sequence[Pair], order: npt.NDArray[np.int64]) -> int:
        """Returns how many of the next rows make a batch, at least one."""
        width = pairs[order[0]].longest + self.encoder.template.length
        most, passages = max(1, self.batch_tokens // width), 0
        for n, i in enumerate(order):
            passages += pairs[i].passages
            if passages > most:
                return max(n, 1)
        return len(order)

    def _batch(self, pairs: list[Pair]) -> npt.NDArray[np.float64] | None:
        """Scores a batch; None if it did not fit on the device, after which batches are smaller."""
        try:
            with torch.inference_mode():
                batch = self.encoder.batch(pairs).to(self.device)
                return self.model(**batch.inputs()).scores.double().cpu().numpy()
        except torch.OutOfMemoryError:
            if len(pairs) == 1:
                raise
        # Outside the handler: the error holds on to the tensors.
        self.batch_tokens = max(1, self.batch_tokens // 2)
        warnings.warn(
            f"out of memory on {self.device}: going on with batches of {self.batch_tokens} tokens; pass "
            f"batch_tokens={self.batch_tokens} to start with that",
            stacklevel=2,
        )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None
