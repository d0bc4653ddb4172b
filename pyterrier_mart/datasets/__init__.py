"""Test collections as the ``mart:`` dataset provider of PyTerrier.

``pt.get_dataset('mart:xquad-r/de-en')`` and ``pt.get_dataset('mart:sts17/tr-en')`` work offline; their data and
licences are described in ``data/LICENSE-DATA.md``. Of ``mart:ciral/so``, topics and judgments come with the package and
passages from a folder of the user's; ``mart:clef/de-en`` reads everything from such a folder.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import pyterrier as pt

from pyterrier_mart.datasets.base import MartDataset
from pyterrier_mart.datasets.ciral import CIRAL
from pyterrier_mart.datasets.clef import CLEF
from pyterrier_mart.datasets.sts17 import STS17
from pyterrier_mart.datasets.xquad_r import XQuADR

__all__ = ["CIRAL", "CLEF", "STS17", "MartDataset", "MartDatasetProvider", "XQuADR"]

_COLLECTIONS: dict[str, type[XQuADR] | type[STS17] | type[CLEF] | type[CIRAL]] = {
    "xquad-r": XQuADR,
    "sts17": STS17,
    "clef": CLEF,
    "ciral": CIRAL,
}


class MartDatasetProvider(pt.datasets.DatasetProvider):
    """Gives the datasets whose names begin with ``mart:``."""

    def get_dataset(self, name: str) -> MartDataset:
        """Returns a dataset.

        Args:
            name: Name without the ``mart:`` prefix. Languages may be given as ISO 639-1 or ISO 639-3 codes.

        Raises:
            KeyError: If there is no such dataset.
        """
        collection = _COLLECTIONS.get(name.partition("/")[0])
        try:
            if collection is None:
                raise ValueError(" ".join(known.naming for known in _COLLECTIONS.values()))
            return collection.from_name(name)
        except ValueError as error:
            close = difflib.get_close_matches(name, self.list_dataset_names())
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            raise KeyError(f"There is no dataset {name!r}: {str(error).rstrip('.')}.{hint}") from None

    def list_dataset_names(self) -> Iterable[str]:
        """Returns the names of all datasets, without the ``mart:`` prefix."""
        return [name for collection in _COLLECTIONS.values() for name in collection.list_names()]
