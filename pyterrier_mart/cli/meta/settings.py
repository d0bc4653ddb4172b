"""The settings of meta-learning as options: ``--preset``, ``--config``, ``--set``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from pyterrier_mart.meta.arrangements import TRANSFER_MODES
from pyterrier_mart.meta.config import MetaConfig

__all__ = ["ConfigFile", "Preset", "PresetName", "Settings", "Transfer", "read_settings"]


class Preset(str, Enum):
    """The choices of ``--preset``."""

    recommended = "recommended"
    paper = "paper"
    code = "code"


PresetName = Annotated[
    Preset, typer.Option("--preset", help="Settings to start from: ours, the paper's, or the authors' code's.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings as a JSON object, instead of --preset.", metavar="FILE")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Another setting of MetaConfig, such as inner_lr=1e-2 or freeze=first:6; may be repeated.",
        metavar="NAME=VALUE",
    ),
]
Transfer = Annotated[
    str | None,
    typer.Option(
        "--transfer",
        help=f"Languages of support and query sets: {', '.join(TRANSFER_MODES)}, or arrangements such as "
        "'el_el-el_ar|hi_hi-hi_de'. [default: mono-bi-multi]",
        metavar="MODE",
        show_default=False,
    ),
]
_WORDS = {"none": None, "null": None, "true": True, "false": False}


def read_settings(
    preset: Preset, config: Path | None, settings: Sequence[str] | None, options: Mapping[str, tuple[str, Any]]
) -> MetaConfig:
    """Returns the settings.

    Args:
        preset: ``--preset``.
        config: ``--config``.
        settings: The values of ``--set``.
        options: For options that are settings themselves, by the name of the setting: the option, and its value or
            ``None``.

    Raises:
        ValueError: If a setting is unknown, given twice or out of range; the message names the option.
    """
    start = _start(preset, config)
    changes: dict[str, Any] = {}
    origins: dict[str, str] = {}
    given = [(name, value, f"{option} {value}") for name, (option, value) in options.items() if value is not None]
    for name, value, origin in [*map(_setting, settings or ()), *given]:
        if name in changes:
            raise ValueError(f"{origin}: {name} is given by {origins[name]} already")
        changes[name], origins[name] = value, origin
    try:
        return start.replace(**changes)
    except ValueError as err:
        named = [origin for name, origin in origins.items() if str(err).split("=")[0].split()[0] == name]
        raise ValueError(f"{(named or ['--set'])[0]}: {err}") from err


def _start(preset: Preset, config: Path | None) -> MetaConfig:
    if config is None:
        if preset is Preset.recommended:
            return MetaConfig()
        return MetaConfig.paper() if preset is Preset.paper else MetaConfig.code()
    if preset is not Preset.recommended:
        raise ValueError(f"--preset {preset.value}: --config has all settings already; leave one of them out")
    try:
        return MetaConfig.from_json(config.read_text(encoding="utf-8"))
    except (ValueError, TypeError) as err:
        raise ValueError(f"--config {config}: {err}") from err


def _setting(text: str) -> tuple[str, Any, str]:
    name, equals, value = text.partition("=")
    name, origin = name.strip(), f"--set {text}"
    if not equals:
        raise ValueError(f"{origin}: expected NAME=VALUE, such as inner_lr=1e-2")
    known = {field.name: field for field in dataclasses.fields(MetaConfig)}
    if name not in known:
        raise ValueError(f"{origin}: unknown setting {name}; expected one of {', '.join(sorted(known))}")
    return name, _value(value.strip(), isinstance(known[name].default, tuple)), origin


def _value(text: str, several: bool) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if several:
        return [_value(part.strip(), False) for part in text.strip("[]()").split(",")]
    try:
        return json.loads(text)
    except ValueError:
        return text
