"""Which weights of a model are trained, and which of them the inner loop adapts, chosen by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import torch

from pyterrier_mart.meta.config import MetaConfig

__all__ = ["Selection", "layer_group", "select"]

# layer.3 of BERT, layers.3 of ModernBERT, block.3 of T5, h.3 of GPT-2
_LAYER = re.compile(r"(?:^|[._])(?:layers?|blocks?|h)\.(\d+)\.")


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
    embeddings = _embeddings(model)
    frozen = _frozen(config.freeze, named, embeddings)
    trained = tuple(name for name, weight in named.items() if weight.requires_grad and not frozen(name))
    if not trained:
        raise ValueError(f"freeze={config.freeze!r} leaves no weight to train")
    chosen = _adapted(config.adapt, named, embeddings)
    adapted = tuple(name for name in trained if chosen(name))
    if not adapted:
        raise ValueError(
            f"adapt={config.adapt!r} chooses only weights that are frozen (freeze={config.freeze!r}); expected some "
            "that are trained"
        )
    return Selection(trained, adapted)


def layer_group(name: str) -> str:
    """Returns what shares a learned inner learning rate with a parameter: its layer, or ``"other"``."""
    layer = _layer(name)
    return "other" if layer is None else f"layer.{layer}"


def _layer(name: str) -> int | None:
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def _embeddings(model: torch.nn.Module) -> frozenset[str]:
    """Names of embedding tables and what else is in a module of embeddings."""
    tables = {
        f"{owner}.{name}"
        for owner, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding)
        for name, _ in module.named_parameters()
    }
    return frozenset(
        name
        for name, _ in model.named_parameters()
        if name in tables or any(part.startswith("embed") for part in name.split("."))
    )


def _frozen(
    freeze: str | None, named: dict[str, torch.nn.Parameter], embeddings: frozenset[str]
) -> Callable[[str], bool]:
    if freeze is None:
        return lambda name: False
    if freeze == "embeddings":
        return embeddings.__contains__
    if freeze.startswith("first:"):
        first, _ = _layers("freeze", freeze, named)

        def below(name: str) -> bool:
            layer = _layer(name)
            return name in embeddings or (layer is not None and layer < first)

        return below
    return _matches("freeze", freeze, named)


def _adapted(adapt: str, named: dict[str, torch.nn.Parameter], embeddings: frozenset[str]) -> Callable[[str], bool]:
    if adapt == "all":
        return lambda name: True
    if adapt == "no-embeddings":
        return lambda name: name not in embeddings
    if adapt.startswith("last:"):
        last, count = _layers("adapt", adapt, named)

        def above(name: str) -> bool:  # what is in no layer and no embedding comes after the layers
            layer = _layer(name)
            return name not in embeddings and (layer is None or layer >= count - last)

        return above
    return _matches("adapt", adapt, named)


def _layers(setting: str, value: str, named: dict[str, torch.nn.Parameter]) -> tuple[int, int]:
    count = 1 + max((layer for layer in map(_layer, named) if layer is not None), default=-1)
    number = value.partition(":")[2]
    if not number.isdecimal() or not 1 <= int(number) <= count:
        kind = value.partition(":")[0]
        raise ValueError(f"{setting} must be {kind}:N with N from 1 to the model's {count} layers, not {value!r}")
    return int(number), count


def _matches(setting: str, pattern: str, named: dict[str, torch.nn.Parameter]) -> Callable[[str], bool]:
    try:
        found = re.compile(pattern)
    except re.error as err:
        raise ValueError(f"{setting}={pattern!r} is not a regular expression: {err}") from err
    if not any(found.search(name) for name in named):
        raise ValueError(
            f"{setting}={pattern!r} matches no weight of the model; its names look like {next(iter(named))!r}"
        )
    return lambda name: found.search(name) is not None
