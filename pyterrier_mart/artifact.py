"""``pt_meta.json``: how the package's artifacts say on disk what they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["META", "meta_bytes", "read_meta", "weights_digest"]

META = "pt_meta.json"


def meta_bytes(meta: Mapping[str, Any]) -> bytes:
    """Returns metadata as the content of ``pt_meta.json``."""
    return (json.dumps(dict(meta), ensure_ascii=False, indent=2) + "\n").encode("utf-8")


def read_meta(directory: Path, what: str, expected: Mapping[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    """Reads the metadata of an artifact and checks that it is of the expected kind.

    Args:
        directory: The artifact.
        what: What messages call it, such as ``"translation table"``.
        expected: The values that tell its kind (``type``, ``format``) and version (``format_version``).
        required: Keys that must be there.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is something else, of another version, or damaged; the message names the directory.
    """
    if not directory.exists():
        raise FileNotFoundError(f"no {what} at {directory}")
    try:
        meta = json.loads((directory / META).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{directory} is no {what}: it has no {META}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as err:
        raise ValueError(f"damaged {what} {directory}: {META} is not JSON ({err})") from err
    kind = {key: value for key, value in expected.items() if key != "format_version"}
    found = {key: meta.get(key) for key in kind} if isinstance(meta, dict) else {}
    if found != kind:
        raise ValueError(f"{directory} is no {what}: {META} says {found}, expected {kind}")
    if meta.get("format_version") != expected["format_version"]:
        raise ValueError(
            f"cannot read the {what} {directory}: its format_version is {meta.get('format_version')!r}, this version "
            f"of pyterrier_mart reads {expected['format_version']}"
        )
    if missing := [key for key in required if key not in meta]:
        raise ValueError(f"damaged {what} {directory}: {META} lacks {', '.join(missing)}")
    return dict(meta)


def weights_digest(model: torch.nn.Module, described: str | None = None) -> str:
    """Returns a fingerprint of a model's weights, in 32 hexadecimal digits.

    Args:
        model: The model.
        described: What else the fingerprint depends on, such as settings. ``None``: the fingerprint is that of the
            names and values alone, which saved re-rankers hold.
    """
    import torch

    digest = hashlib.blake2b((described or "").encode(), digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update((name if described is None else f"{name} {value.dtype} {tuple(value.shape)}").encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
