"""Where models compute, in which numbers, and how quietly they load."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = [
    "DTYPES",
    "computes_in_bfloat16",
    "is_first_process",
    "keeping_random_state",
    "quiet",
    "resolve_device",
    "resolve_dtype",
]

#: The choices of a ``dtype``.
DTYPES = ("auto", "float32", "bfloat16", "float16")


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
    here = {"cuda": torch.cuda.is_available() and torch.cuda.device_count(), "mps": torch.backends.mps.is_available()}
    if found.type in here and (found.index or 0) >= here[found.type]:
        raise ValueError(f"device must be auto, cpu or a GPU that is here ({here[found.type]:d} found), not {device!r}")
    return found


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Returns one of :data:`DTYPES`: ``"auto"`` is bfloat16 where the device computes in it, else float32."""
    if dtype == "auto":
        return torch.bfloat16 if computes_in_bfloat16(device) else torch.float32
    found: torch.dtype = getattr(torch, dtype)
    return found


def computes_in_bfloat16(device: torch.device) -> bool:
    """Returns whether a device computes in bfloat16, faster than in float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Elsewhere on CPUs torch emulates it, slower than float32.
    capable = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in capable)


def is_first_process() -> bool:
    """Returns whether this is the first of the processes that train together, or the only one."""
    return not (
        torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_rank()
    )


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


@contextmanager
def keeping_random_state(device: torch.device) -> Iterator[None]:
    """Gives the global generators of Python, NumPy and torch back as they were, whoever seeds or uses them inside."""
    python, arrays = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count()) if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
