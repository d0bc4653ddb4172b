"""CLEF ad hoc: the classic test collections of cross-lingual retrieval in European languages, 2000 to 2009."""

from pyterrier_mart.datasets.clef.catalogue import Catalogue, scan
from pyterrier_mart.datasets.clef.collections import COLLECTIONS
from pyterrier_mart.datasets.clef.dataset import CLEF
from pyterrier_mart.datasets.clef.topics import Topic

__all__ = ["CLEF", "COLLECTIONS", "Catalogue", "Topic", "scan"]
