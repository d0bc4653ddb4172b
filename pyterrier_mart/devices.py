"""Where models compute, in which numbers, and how quietly they load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["DTYPES", "computes_in_bfloat16", "quiet", "resolve_device", "resolve_dtype"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(device: str | torch.device | None) -> torch.device:
    """Returns a device: ``None`` and ``"auto"`` are the first GPU if there is one, else the CPU.

    Raises:
        ValueError: If there is no such device here.
    """
    if device is None or device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError as err:
        raise ValueError(f"device must be auto, cpu, cuda, cuda:1, mps, ..., not {device!r}") from err
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!r}: there is no CUDA GPU here, or torch was built without CUDA")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {device!r}: there are {torch.cuda.device_count()} CUDA GPUs here, numbered from 0")
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device {device!r}: there is no such GPU here, or torch was built without it")
    return found


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Returns a type of floating-point number: ``"auto"`` is bfloat16 where the device computes in it, else float32.

    Raises:
        ValueError: If there is no such type.
    """
    if dtype == "auto":
        return torch.bfloat16 if computes_in_bfloat16(device) else torch.float32
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be auto, {', '.join(DTYPES)}, not {dtype!r}")
    return DTYPES[dtype]


def computes_in_bfloat16(device: torch.device) -> bool:
    """Returns whether a device computes in bfloat16, faster than in float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Elsewhere on CPUs torch emulates it, slower than float32.
    capable = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in capable)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers from reporting on loading, which is reported here as errors where it matters."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
