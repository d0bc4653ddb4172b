"""The engines that index and search: which one is used."""

from __future__ import annotations

from importlib.util import find_spec

from pyterrier_mart.checks import check_choice
from pyterrier_mart.retrieval.types import Engine

__all__ = ["engine_of"]


def engine_of(name: str) -> Engine:
    """Returns the module of an engine; this is where its package is imported.

    Args:
        name: ``"pisa"``, ``"terrier"``, or ``"auto"``: PISA where it is installed (it has wheels for Linux on x86-64
            only), else Terrier.

    Raises:
        ValueError: If there is no such engine.
        ImportError: If PISA is asked for and not installed.
    """
    check_choice("engine", name, ("auto", "pisa", "terrier"))
    has_pisa = find_spec("pyterrier_pisa") is not None
    if name == "pisa" and not has_pisa:
        raise ImportError(
            "engine='pisa' needs the package pyterrier-pisa, which exists for Linux on x86-64 only; use "
            "engine='terrier'"
        )
    if name == "terrier" or not has_pisa:
        from pyterrier_mart.retrieval import terrier

        return terrier
    from pyterrier_mart.retrieval import pisa

    return pisa
