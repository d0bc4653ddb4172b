"""Weights that the inner loop changes for a task, and outer gradients at or through them.

Which weights are trained and adapted is chosen by name (:func:`select`). Three ways hold them, with the same gradients:
in place, by functional calls, and by learn2learn for comparison.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from pyterrier_mart.dense.encoder import Features, TextEncoder
from pyterrier_mart.meta.config import MetaConfig

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "BackendError",
    "FastWeights",
    "FunctionalFastWeights",
    "InPlaceFastWeights",
    "Learn2LearnFastWeights",
    "Selection",
    "fast_weights",
    "select",
]

# layer.3 of BERT, layers.3 of ModernBERT, block.3 of T5, h.3 of GPT-2
_LAYER = re.compile(r"(?:^|[._])(?:layers?|blocks?|h)\.(\d+)\.")


class BackendError(ValueError):
    """The fast weights that are asked for cannot work with this model or these settings."""


# ----------------------------------------------------------------------------------------------------------- selection


class Selection(NamedTuple):
    """Names of parameters, in the order of the model.

    Attributes:
        trained: What the outer loop changes.
        adapted: What the inner loop changes; all of it is trained too.
    """

    trained: tuple[str, ...]
    adapted: tuple[str, ...]


def select(model: torch.nn.Module, config: MetaConfig) -> Selection:
    """Returns the weights that ``config.freeze`` leaves to training, and of them those that ``config.adapt`` chooses.

    Weights that do not require a gradient, such as those below adapters, are frozen too. A weight that is frozen is
    not adapted either.

    Raises:
        ValueError: If a regular expression is not one or matches no name, there are fewer layers than asked for, or
            nothing is left to train or to adapt. The message names the setting.
    """
    named = dict(model.named_parameters())
    tables = {
        f"{owner}.{name}"
        for owner, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding)
        for name, _ in module.named_parameters()
    }
    embeddings = {name for name in named if name in tables or any(part.startswith("embed") for part in name.split("."))}
    frozen = _chosen("freeze", config.freeze, named, embeddings)
    trained = tuple(name for name, weight in named.items() if weight.requires_grad and not frozen(name))
    if not trained:
        raise ValueError(f"freeze must leave weights to train, not {config.freeze!r}")
    chosen = _chosen("adapt", config.adapt, named, embeddings)
    adapted = tuple(name for name in trained if chosen(name))
    if not adapted:
        raise ValueError(f"adapt must choose weights that are trained (freeze={config.freeze!r}), not {config.adapt!r}")
    return Selection(trained, adapted)


def _layer(name: str) -> int | None:
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def _chosen(
    setting: str, value: str | None, named: Collection[str], embeddings: Collection[str]
) -> Callable[[str], bool]:
    """Returns what a setting says of the name of a weight."""
    match value:
        case None:
            return lambda name: False
        case "all":
            return lambda name: True
        case "embeddings":
            return lambda name: name in embeddings
        case "no-embeddings":
            return lambda name: name not in embeddings
    kind, colon, number = value.partition(":")
    if colon and kind in ("first", "last"):
        count = 1 + max((layer for layer in map(_layer, named) if layer is not None), default=-1)
        if not number.isdecimal() or not 1 <= int(number) <= count:
            raise ValueError(f"{setting} must be {kind}:N with N from 1 to the model's {count} layers, not {value!r}")
        # What is in no layer and no embedding comes after the layers.
        level = {name: -1 if name in embeddings else count if (at := _layer(name)) is None else at for name in named}
        cut = int(number)
        return lambda name: level[name] < cut if kind == "first" else level[name] >= count - cut
    try:
        pattern = re.compile(value)
    except re.error as err:
        raise ValueError(f"{setting} must be a regular expression, not {value!r}: {err}") from err
    if not value or not any(map(pattern.search, named)):
        raise ValueError(f"{setting} must match a weight of the model, such as {next(iter(named))!r}, not {value!r}")
    return lambda name: pattern.search(name) is not None


# ------------------------------------------------------------------------------------------------------------ backends


class FastWeights(ABC):
    """A model's weights θ and what a task makes of them, φ.

    To be used as a context: inside, only trained weights require a gradient; at its end, also after an exception,
    the model has the bits of θ again, and requires gradients of what it did before.

    Args:
        encoder: Encodes with the model.
        config: How tasks are learned.

    Raises:
        BackendError: If the model or the settings cannot work.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        self.encoder, self.config = encoder, config
        self.selection = select(encoder.model, config)
        self.second_order = config.order == "second"
        self._weights: dict[str, torch.nn.Parameter] = dict(encoder.model.named_parameters())
        self._flags: dict[str, bool] = {}
        for module in encoder.model.modules() if self.second_order else ():
            attention = getattr(getattr(module, "config", None), "_attn_implementation", None)
            if attention not in (None, "eager"):
                raise BackendError(
                    f"order='second' needs attention='eager', not {attention!r}, which has no second derivative: load "
                    "the model with load_sentence_transformer(name, attention='eager')"
                )
        checkpointing = any(getattr(module, "gradient_checkpointing", False) for module in encoder.model.modules())
        if checkpointing and config.backend != "inplace":
            raise BackendError(
                f"backend={config.backend!r} gives wrong gradients with gradient checkpointing, which computes again "
                "with other weights: use backend='inplace' or turn checkpointing off"
            )

    @property
    @abstractmethod
    def params(self) -> dict[str, Tensor]:
        """The adapted weights φ as they are now, by name."""

    @abstractmethod
    def embed(self, features: Features) -> Tensor:
        """Returns vectors at φ of shape (texts, dimension)."""

    @abstractmethod
    def step(self, loss: Tensor, lr: float) -> None:
        """Takes a step of gradient descent on φ.

        The graph of the loss is gone afterwards in first order.

        Args:
            loss: A loss of vectors at φ.
            lr: The learning rate.
        """

    @abstractmethod
    def reset(self) -> None:
        """Makes φ equal θ again."""

    def backward(self, loss: Tensor, scale: float = 1.0, *, retain_graph: bool = False) -> None:
        """Adds the outer gradient to ``grad`` of the trained weights.

        Args:
            loss: A loss of vectors at φ.
            scale: Factor of the gradient.
            retain_graph: Whether the loss, or another of the same vectors or adapted weights, is needed once more.
        """
        trained = [self._weights[name] for name in self.selection.trained]
        torch.autograd.backward(loss * scale, inputs=trained, retain_graph=retain_graph)

    def gradient(self, loss: Tensor, *, retain_graph: bool = False) -> dict[str, Tensor]:
        """Returns the outer gradient by the name of the trained weight, without adding it anywhere."""
        trained = [self._weights[name] for name in self.selection.trained]
        found = torch.autograd.grad(loss, trained, retain_graph=retain_graph, allow_unused=True)
        return {name: g for name, g in zip(self.selection.trained, found, strict=True) if g is not None}

    def inner_gradient(self, loss: Tensor) -> Sequence[Tensor | None]:
        """Returns the gradient of each of the adapted weights."""
        return torch.autograd.grad(loss, list(self.params.values()), create_graph=self.second_order, allow_unused=True)

    def __enter__(self) -> Self:
        self._flags = {name: weight.requires_grad for name, weight in self._weights.items()}
        trained = set(self.selection.trained)
        for name, weight in self._weights.items():
            weight.requires_grad_(name in trained)
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()
        for name, required in self._flags.items():
            self._weights[name].requires_grad_(required)


class InPlaceFastWeights(FastWeights):
    """Changes the model's own weights and restores them; first order only, and a copy of the adapted weights at most.

    Losses must be differentiated before the next :meth:`step` or :meth:`reset`.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        self._saved: dict[str, Tensor] = {}

    @property
    def params(self) -> dict[str, Tensor]:
        """The adapted weights as they are now: the model's own."""
        return {name: self._weights[name] for name in self.selection.adapted}

    def embed(self, features: Features) -> Tensor:
        """Returns vectors of shape (texts, dimension)."""
        return self.encoder.embed(features)

    def step(self, loss: Tensor, lr: float) -> None:
        """Takes a step of gradient descent; θ is copied before the first."""
        gradients = self.inner_gradient(loss)
        with torch.no_grad():
            if not self._saved:
                self._saved = {name: weight.detach().clone() for name, weight in self.params.items()}
            for weight, gradient in zip(self.params.values(), gradients, strict=True):
                if gradient is not None:
                    weight.add_(gradient, alpha=-lr)

    def reset(self) -> None:
        """Makes φ equal θ again."""
        with torch.no_grad():
            for name, weight in self._saved.items():
                self._weights[name].copy_(weight)
        self._saved = {}

    def keep(self) -> None:
        """Makes θ equal φ: what was adapted stays."""
        self._saved = {}


class FunctionalFastWeights(FastWeights):
    """Calls the model with other weights than its own; first or second order."""

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        self._params: dict[str, Tensor] = {}
        self.reset()

    @property
    def params(self) -> dict[str, Tensor]:
        """The adapted weights as they are now; functions of the model's."""
        return self._params

    def embed(self, features: Features) -> Tensor:
        """Returns vectors of shape (texts, dimension)."""
        called = torch.func.functional_call(self.encoder.model, self._params, (dict(features),))
        return self.encoder.embedding(called)

    def step(self, loss: Tensor, lr: float) -> None:
        """Takes a step of gradient descent; φ stays a function of θ, and in second order its gradients too."""
        moved = zip(self._params.items(), self.inner_gradient(loss), strict=True)
        self._params = {n: w if g is None else torch.add(w, g, alpha=-lr) for (n, w), g in moved}

    def reset(self) -> None:
        """Makes φ equal θ again."""
        self._params = {name: self._weights[name] for name in self.selection.adapted}


class Learn2LearnFastWeights(FastWeights):
    """Clones the model with learn2learn's MAML, which adapts all that is trained; for comparison.

    Raises:
        ImportError: If learn2learn is not installed.
        BackendError: If not all that is trained is adapted.
    """

    def __init__(self, encoder: TextEncoder, config: MetaConfig):
        super().__init__(encoder, config)
        if self.selection.adapted != self.selection.trained:
            raise BackendError(
                f"backend='learn2learn' adapts all that is trained, and adapt={config.adapt!r} does not with "
                f"freeze={config.freeze!r}"
            )
        from learn2learn.algorithms import MAML  # type: ignore[import-untyped,import-not-found,unused-ignore]

        self._maml: Any = MAML(
            encoder.model, lr=0.0, first_order=not self.second_order, allow_unused=True, allow_nograd=True
        )
        self._clone: Any = None

    @property
    def params(self) -> dict[str, Tensor]:
        """The adapted weights as they are now; functions of the model's."""
        named = dict(self._clone.module.named_parameters())
        return {name: named[name] for name in self.selection.adapted}

    def embed(self, features: Features) -> Tensor:
        """Returns vectors of shape (texts, dimension)."""
        return self.encoder.embedding(self._clone.module(dict(features)))

    def step(self, loss: Tensor, lr: float) -> None:
        """Lets learn2learn adapt its clone."""
        self._clone.lr = lr
        self._clone.adapt(loss)

    def reset(self) -> None:
        """Clones the model again."""
        self._clone = self._maml.clone()


_BACKENDS: dict[str, type[FastWeights]] = {
    "inplace": InPlaceFastWeights,
    "functional": FunctionalFastWeights,
    "learn2learn": Learn2LearnFastWeights,
}


def fast_weights(encoder: TextEncoder, config: MetaConfig) -> FastWeights:
    """Returns the fast weights of ``config.backend``; see :class:`FastWeights`.

    Raises:
        BackendError: If they cannot work with the model or the settings.
        ImportError: If a package that the backend needs is not installed.
        ValueError: If the settings select no weights.
    """
    return _BACKENDS[config.backend](encoder, config)
