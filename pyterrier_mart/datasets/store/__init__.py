"""Documents in a file: looked up by number, read in corpus order, never all in memory."""

from pyterrier_mart.datasets.store.building import build_store
from pyterrier_mart.datasets.store.reading import DocumentStore, StoreUnion

__all__ = ["DocumentStore", "StoreUnion", "build_store"]
