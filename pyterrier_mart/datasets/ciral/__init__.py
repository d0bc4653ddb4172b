"""CIRAL: questions in English, passages of news in four African languages."""

from pyterrier_mart.datasets.ciral.dataset import CIRAL
from pyterrier_mart.datasets.ciral.passages import Scan, open_store, scan
from pyterrier_mart.datasets.ciral.published import LANGUAGES, query_pairs
from pyterrier_mart.datasets.ciral.summary import check

__all__ = ["CIRAL", "LANGUAGES", "Scan", "check", "open_store", "query_pairs", "scan"]
