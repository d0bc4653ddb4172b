"""What is saved of a MetaSBERTRetriever: a directory with the encoder, settings and checksums."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_mart.artifact import META, check_files, digests_of, meta_bytes, read_meta
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.devices import quiet
from pyterrier_mart.files import atomic_directory, read_json, sha256
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.training import TrainingLog

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer  # takes seconds to import

__all__ = ["KIND", "WHAT", "read", "read_metadata", "write"]

KIND = {"type": "text_encoder", "format": "mart_sbert", "format_version": 1}
WHAT = "saved MetaSBERTRetriever"

_CONFIG, _POST, _LOG = "meta_config.json", "language_centring.safetensors", "train_log.json"


def write(
    path: str | os.PathLike[str],
    model: SentenceTransformer,
    config: MetaConfig,
    post: LanguageCentering | None,
    history: TrainingLog | None,
    described: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Writes the directory, which ``SentenceTransformer(path)`` loads too.

    Args:
        path: The directory.
        model: The encoder.
        config: The settings of training.
        post: The centring, if there is one.
        history: The log of training, if there was one.
        described: What else is in the metadata: ``encoder``, ``settings``, ``weights``.
        overwrite: Whether to replace what was saved there before.

    Raises:
        FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
    """
    with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
        with quiet():
            model.save_pretrained(os.fspath(tmp), create_model_card=False, safe_serialization=True)
        (tmp / _CONFIG).write_text(json.dumps(config.as_json(), indent=2) + "\n", encoding="utf-8")
        if history is not None:
            log = json.dumps(dataclasses.asdict(history), indent=1)
            (tmp / _LOG).write_text(log + "\n", encoding="utf-8")
        if post is not None:
            post.save(tmp / _POST)
        meta = {**KIND, "package_hint": "pyterrier-mart", **described, "files": digests_of(tmp)}
        (tmp / META).write_bytes(meta_bytes(meta))


def read_metadata(path: Path) -> dict[str, Any]:
    """Reads what :func:`write` was told.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is something else, or damaged.
    """
    required = {"settings": dict, "encoder": str | None, "weights": str, "files": dict}
    return read_meta(path, WHAT, KIND, required)


def read(path: Path) -> tuple[MetaConfig, LanguageCentering | None, TrainingLog | None]:
    """Reads what goes with the encoder (configuration, centring, log), once all files are as they were saved.

    Raises:
        ValueError: If a file is missing or changed; the message names it.
    """
    check_files(path, WHAT, read_metadata(path)["files"], sha256)
    config = MetaConfig.read(path / _CONFIG)
    post = LanguageCentering.load(path / _POST) if (path / _POST).exists() else None
    log = read_json(path / _LOG) if (path / _LOG).exists() else None
    return config, post, None if log is None else TrainingLog(**log)
