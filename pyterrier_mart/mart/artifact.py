"""Saved re-rankers: weights, tokenizer, table and settings in a directory."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pyterrier_mart.artifact import META, check_files, digests_of, meta_bytes, read_meta, weights_digest
from pyterrier_mart.devices import is_first_process, quiet
from pyterrier_mart.encoders.loading import Source, load_tokenizer, reading
from pyterrier_mart.files import atomic_directory, sha256
from pyterrier_mart.mart.modeling import MartForRanking
from pyterrier_mart.translation import TranslationTable

__all__ = ["read", "save"]

_KIND = {"type": "reranker", "format": "mart", "format_version": 1}
_WHAT = "saved MARTReRanker"


def save(
    path: str | os.PathLike[str],
    net: MartForRanking,
    tokenizer: Any,
    table: TranslationTable | None,
    meta: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Saves a re-ranker, if this is the first of the processes that train it together.

    Args:
        path: The directory.
        net: The model.
        tokenizer: Its tokenizer.
        table: The translation table.
        meta: More metadata.
        overwrite: Whether another saved re-ranker there is replaced.

    Raises:
        FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
    """
    if not is_first_process():
        return
    with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
        with quiet():
            net.save_pretrained(tmp)
        tokenizer.save_pretrained(tmp)
        if table is not None:
            table.save(tmp / "table")
        languages = list(table.languages) if table is not None else None
        # Table and weights have fingerprints of their own.
        files = digests_of(tmp, skip=("table", "model.safetensors"))
        kind = {**_KIND, "package_hint": "pyterrier-mart", "languages": languages, "files": files}
        (tmp / META).write_bytes(meta_bytes({**kind, **meta, "weights": weights_digest(net)}))


def read(
    path: Path, settings: Collection[str], table: TranslationTable | str | None = None, accept_table: bool = False
) -> tuple[dict[str, Any], MartForRanking, Any, TranslationTable | None]:
    """Returns the metadata of a saved re-ranker, the model, its tokenizer, and its table or the one to use instead.

    Args:
        path: The directory.
        settings: The names of the settings that it must have.
        table: A table to use instead of the saved one.
        accept_table: Whether it may be another one than the model was trained with.

    Raises:
        FileNotFoundError: If there is no such directory.
        ValueError: If it holds something else or is damaged, or the table is another one.
    """
    meta = read_meta(path, _WHAT, _KIND, {"settings": dict, "encoder": str, "weights": str})
    found = meta["settings"]
    if "identity_matches" in found:  # 0.1: such a model links words as it did then
        found["identity"] = "unknown" if found.pop("identity_matches") else "never"
        found["linking"] = 1
    if set(found) != {*settings, "table"}:
        raise ValueError(f"damaged {_WHAT} {path}: {META} has the settings {found!r}")
    fingerprint = found.pop("table")
    if table is None:
        table = TranslationTable.load(path / "table") if fingerprint is not None else None
    elif isinstance(table, str):
        table = TranslationTable.load(table)
    if table is not None and table.fingerprint != fingerprint and not accept_table:
        raise ValueError(
            f"{path} was trained with another translation table (fingerprint {fingerprint}) than the given "
            f"{'-'.join(table.languages)} ({table.fingerprint}); pass accept_table=True to use it nevertheless"
        )
    check_files(path, _WHAT, meta.get("files", {}), sha256)  # version 0.1.0 wrote none
    source = Source(os.fspath(path), local=True)
    tokenizer = load_tokenizer(source)
    with reading(source.path, "config.json and model.safetensors"):
        net = MartForRanking.from_pretrained(source.path, **source.weights)
    if weights_digest(net) != meta["weights"]:
        raise ValueError(f"damaged {_WHAT} {path}: its weights are not those that were saved")
    return meta, net, tokenizer, table
