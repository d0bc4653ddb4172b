"""``pt_meta.json``: how the package's artifacts say on disk what they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["META", "check_files", "checksums", "meta_bytes", "read_meta", "weights_digest"]

META = "pt_meta.json"

_SAMPLE, _BLOCK = 32, 1 << 14  # blocks of a file, and their bytes: opening it must not take longer for its size


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


def checksums(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Returns a fingerprint of each of some files: of all that a small one holds, of samples and the size of others."""
    return {name: sampled(directory / name) for name in names}


def sampled(path: Path) -> str:
    """Returns a fingerprint of a file's size and of 32 blocks of it, evenly spaced: all of 512 KiB."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())  # of what is at hand the fastest
    with open(path, "rb", buffering=0) as stream:
        for i in range(_SAMPLE):
            stream.seek(max(size - _BLOCK, 0) * i // (_SAMPLE - 1) if size > _SAMPLE * _BLOCK else i * _BLOCK)
            digest.update(stream.read(_BLOCK))
    return digest.hexdigest()


def check_files(directory: Path, what: str, expected: Mapping[str, str]) -> None:
    """Checks that files are as :func:`checksums` found them.

    Raises:
        ValueError: If one is missing or differs; the message names it.
    """
    if not isinstance(expected, dict):
        raise ValueError(f"damaged {what} {directory}: {META} has the checksums {expected!r:.80}")
    for name, digest in expected.items():
        if not (directory / name).is_file() or sampled(directory / name) != digest:
            raise ValueError(f"damaged {what} {directory}: {name} is missing, or not as it was saved")


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
