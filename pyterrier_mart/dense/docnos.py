"""Docnos as pyterrier_dr keeps them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

__all__ = ["write_docnos"]


def write_docnos(path: Path, docnos: list[str]) -> None:
    """Writes docnos as pyterrier_dr keeps them.

    npids fails, or reads others than were written, with some sequences of docnos (long numbers, a single one, ...).
    Often another way of writing them works: as one block, or without its look-up by docno, which is not used here.

    Raises:
        ValueError: If none does.
    """
    from npids import Lookup

    reason: object = "others are read than were written"
    for look_up, block in itertools.product((True, False), (None, len(docnos) + 1)):
        path.unlink(missing_ok=True)
        try:
            Lookup.build(docnos, path, build_inv=look_up, min_block=block, return_self=False)
            if Lookup(path).fwd[np.arange(len(docnos))].astype(str).tolist() == docnos:
                return
        except OSError:
            raise
        except Exception as err:  # of many kinds
            reason = f"{type(err).__name__}: {err}"
    raise ValueError(
        f"pyterrier_dr cannot store the docnos of these {len(docnos)} documents, {docnos[0]!r} to {docnos[-1]!r} "
        f"({reason}); an index needs two documents at least, and other docnos may do"
    )
