"""Weights that the inner loop changes for a task, and outer gradients at or through them.

Three ways hold them, with the same gradients: in place, by functional calls, and by learn2learn for comparison.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyterrier_mart.dense.encoder import Features, TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.errors import BackendError
from pyterrier_mart.meta.selection import Selection, select

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "FastWeights",
    "FunctionalFastWeights",
    "InPlaceFastWeights",
    "InnerRate",
    "Learn2LearnFastWeights",
    "fast_weights",
]

#: Learning rate of the inner loop: one, or one for each adapted weight by its name.
InnerRate = float | Mapping[str, float]


class FastWeights(ABC):
    """A model's weights θ and what a task makes of them, φ.

    To be used as a context: inside, only trained weights require a gradient; at its end, also after an exception,
    the model has the bits of θ again, and requires gradients of what it did before.

    Args:
        encoder: Encodes with the model.
        config: How tasks are learned.
        selection: The weights that are trained and adapted; by default what ``config`` selects.
        log_rates: Logarithm of a learned inner learning rate for each adapted weight, by its name. They get gradients
            as trained weights do.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        config: MetaConfig,
        selection: Selection | None = None,
        log_rates: Mapping[str, Tensor] | None = None,
    ):
        self.encoder, self.config = encoder, config
        self.selection = selection or select(encoder.model, config)
        self.log_rates = log_rates
        self.second_order = config.order == "second"
        self._weights: dict[str, torch.nn.Parameter] = dict(encoder.model.named_parameters())
        self._flags: dict[str, bool] = {}
        self._check()

    @property
    @abstractmethod
    def params(self) -> dict[str, Tensor]:
        """The adapted weights φ as they are now, by name."""

    @abstractmethod
    def embed(self, features: Features) -> Tensor:
        """Returns vectors at φ of shape (texts, dimension)."""

    @abstractmethod
    def step(self, loss: Tensor, lr: InnerRate) -> None:
        """Takes a step of gradient descent on φ.

        The graph of the loss is gone afterwards in first order.

        Args:
            loss: A loss of vectors at φ.
            lr: The learning rate; not used where rates are learned.
        """

    @abstractmethod
    def reset(self) -> None:
        """Makes φ equal θ again."""

    def backward(self, loss: Tensor, scale: float = 1.0, *, retain_graph: bool = False) -> None:
        """Adds the outer gradient to ``grad`` of the trained weights, and of learned rates.

        Args:
            loss: A loss of vectors at φ.
            scale: Factor of the gradient.
            retain_graph: Whether the loss, or another of the same vectors or adapted weights, is needed once more.
        """
        torch.autograd.backward(loss * scale, inputs=self._leaves(), retain_graph=retain_graph)

    def gradient(self, loss: Tensor, *, retain_graph: bool = False) -> dict[str, Tensor]:
        """Returns the outer gradient by the name of the trained weight, without adding it anywhere."""
        trained = [self._weights[name] for name in self.selection.trained]
        found = torch.autograd.grad(loss, trained, retain_graph=retain_graph, allow_unused=True)
        return {name: g for name, g in zip(self.selection.trained, found, strict=True) if g is not None}

    def __enter__(self) -> Self:
        self._flags = {name: weight.requires_grad for name, weight in self._weights.items()}
        trained = set(self.selection.trained)
        for name, weight in self._weights.items():
            weight.requires_grad_(name in trained)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reset()
        for name, required in self._flags.items():
            self._weights[name].requires_grad_(required)

    def _check(self) -> None:
        """Raises BackendError if the model or the settings cannot work."""
        if not self.second_order:
            return
        for module in self.encoder.model.modules():
            attention = getattr(getattr(module, "config", None), "_attn_implementation", None)
            if attention not in (None, "eager"):
                raise BackendError(
                    f"order='second' needs attention='eager', not {attention!r}, which has no second derivative: load "
                    "the model with load_sentence_transformer(name, attention='eager')"
                )

    def _refuse_checkpointing(self) -> None:
        if any(getattr(module, "gradient_checkpointing", False) for module in self.encoder.model.modules()):
            raise BackendError(
                f"backend={self.config.backend!r} gives wrong gradients with gradient checkpointing, which computes "
                "again with other weights: use backend='inplace' or turn checkpointing off"
            )

    def _leaves(self) -> list[Tensor]:
        leaves: list[Tensor] = [self._weights[name] for name in self.selection.trained]
        if self.log_rates is not None:
            leaves.extend({id(rate): rate for rate in self.log_rates.values()}.values())
        return leaves

    def _inner_gradient(self, loss: Tensor) -> Sequence[Tensor | None]:
        return torch.autograd.grad(loss, list(self.params.values()), create_graph=self.second_order, allow_unused=True)

    def _rate(self, name: str, lr: InnerRate) -> float:
        if self.log_rates is not None:
            return math.exp(self.log_rates[name].item())
        return lr[name] if isinstance(lr, Mapping) else lr


class InPlaceFastWeights(FastWeights):
    """Changes the model's own weights and restores them; first order only, and a copy of the adapted weights at most.

    Losses must be differentiated before the next :meth:`step` or :meth:`reset`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._saved: dict[str, Tensor] = {}

    @property
    def params(self) -> dict[str, Tensor]:
        """The adapted weights as they are now: the model's own."""
        return {name: self._weights[name] for name in self.selection.adapted}

    def embed(self, features: Features) -> Tensor:
        """Returns vectors of shape (texts, dimension)."""
        return self.encoder.embed(features)

    def step(self, loss: Tensor, lr: InnerRate) -> None:
        """Takes a step of gradient descent; θ is copied before the first."""
        gradients = self._inner_gradient(loss)
        with torch.no_grad():
            if not self._saved:
                self._saved = {name: weight.detach().clone() for name, weight in self.params.items()}
            for (name, weight), gradient in zip(self.params.items(), gradients, strict=True):
                if gradient is not None:
                    weight.add_(gradient, alpha=-self._rate(name, lr))

    def backward(self, loss: Tensor, scale: float = 1.0, *, retain_graph: bool = False) -> None:
        """Adds the gradient at φ; that of a learned rate's logarithm is its product with φ - θ."""
        if self.log_rates is None:
            super().backward(loss, scale, retain_graph=retain_graph)
            return
        for name, gradient in self.gradient(loss * scale, retain_graph=retain_graph).items():
            _accumulate(self._weights[name], gradient)
            if name in self._saved:
                moved = self._weights[name].detach() - self._saved[name]
                rate = self.log_rates[name]
                _accumulate(rate, (gradient * moved).sum().to(rate))

    def reset(self) -> None:
        """Makes φ equal θ again."""
        with torch.no_grad():
            for name, weight in self._saved.items():
                self._weights[name].copy_(weight)

    def keep(self) -> None:
        """Makes θ equal φ: what was adapted stays."""
        self._saved = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._saved = {}

    def _check(self) -> None:
        if self.second_order:
            raise BackendError("order='second' needs backend='functional' or 'learn2learn', not 'inplace'")


class FunctionalFastWeights(FastWeights):
    """Calls the model with other weights than its own; first or second order."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._params: dict[str, Tensor] = {}
        self.reset()

    @property
    def params(self) -> dict[str, Tensor]:
        """The adapted weights as they are now; functions of the model's."""
        return self._params

    def embed(self, features: Features) -> Tensor:
        """Returns vectors of shape (texts, dimension)."""
        called = torch.func.functional_call(self.encoder.model, self._params, (dict(features),))
        vectors: Tensor = called["sentence_embedding"]
        return vectors

    def step(self, loss: Tensor, lr: InnerRate) -> None:
        """Takes a step of gradient descent; φ stays a function of θ, and in second order its gradients too."""
        gradients = self._inner_gradient(loss)
        moved = {}
        for (name, weight), gradient in zip(self._params.items(), gradients, strict=True):
            if gradient is None:
                moved[name] = weight
            elif self.log_rates is not None:
                moved[name] = weight - self.log_rates[name].exp() * gradient
            else:
                moved[name] = torch.add(weight, gradient, alpha=-self._rate(name, lr))
        self._params = moved

    def reset(self) -> None:
        """Makes φ equal θ again."""
        self._params = {name: self._weights[name] for name in self.selection.adapted}

    def _check(self) -> None:
        super()._check()
        self._refuse_checkpointing()


class Learn2LearnFastWeights(FastWeights):
    """Clones the model with learn2learn's MAML, which adapts all that is trained; for comparison.

    Raises:
        ImportError: If learn2learn is not installed.
        BackendError: If not all that is trained is adapted, or rates differ between weights.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        try:
            from learn2learn.algorithms import MAML  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError as err:
            raise ImportError(
                f"backend='learn2learn' needs learn2learn (pip install learn2learn): {err}", name="learn2learn"
            ) from err
        self._maml: Any = MAML(
            self.encoder.model, lr=0.0, first_order=not self.second_order, allow_unused=True, allow_nograd=True
        )
        self._clone: Any = None

    @property
    def params(self) -> dict[str, Tensor]:
        """The adapted weights as they are now; functions of the model's."""
        named = dict((self._clone or self._maml).module.named_parameters())
        return {name: named[name] for name in self.selection.adapted}

    def embed(self, features: Features) -> Tensor:
        """Returns vectors of shape (texts, dimension)."""
        vectors: Tensor = self._clone.module(dict(features))["sentence_embedding"]
        return vectors

    def step(self, loss: Tensor, lr: InnerRate) -> None:
        """Lets learn2learn adapt its clone."""
        if isinstance(lr, Mapping):
            raise BackendError("backend='learn2learn' has one inner learning rate, not one for each weight")
        self._clone.lr = lr
        self._clone.adapt(loss)

    def reset(self) -> None:
        """Clones the model anew."""
        self._clone = self._maml.clone()

    def __enter__(self) -> Self:
        super().__enter__()
        self.reset()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._clone = None

    def _check(self) -> None:
        super()._check()
        self._refuse_checkpointing()
        if self.selection.adapted != self.selection.trained:
            raise BackendError(
                f"backend='learn2learn' adapts all that is trained, but adapt={self.config.adapt!r} and "
                f"freeze={self.config.freeze!r} leave {len(self.selection.trained) - len(self.selection.adapted)} "
                "weights trained and not adapted"
            )
        if self.log_rates is not None:
            raise BackendError("backend='learn2learn' has one inner learning rate, not learned ones")


_BACKENDS: dict[str, type[FastWeights]] = {
    "inplace": InPlaceFastWeights,
    "functional": FunctionalFastWeights,
    "learn2learn": Learn2LearnFastWeights,
}


def fast_weights(
    encoder: TextEncoder,
    config: MetaConfig,
    selection: Selection | None = None,
    log_rates: Mapping[str, Tensor] | None = None,
) -> FastWeights:
    """Returns the fast weights of ``config.backend``; see :class:`FastWeights`.

    Raises:
        BackendError: If they cannot work with the model or the settings.
        ImportError: If a package that the backend needs is not installed.
        ValueError: If the settings select no weights.
    """
    return _BACKENDS[config.backend](encoder, config, selection, log_rates)


def _accumulate(weight: Tensor, gradient: Tensor) -> None:
    weight.grad = gradient.clone() if weight.grad is None else weight.grad.add_(gradient)
