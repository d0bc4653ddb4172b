"""What there is of CIRAL: topics and judgments, and which of the judged passages a folder holds."""

from __future__ import annotations

import pandas as pd

from pyterrier_mart.datasets.ciral.passages import Scan, open_store, store_path
from pyterrier_mart.datasets.ciral.published import JUDGMENTS, LANGUAGES, judgments, queries, query_pairs
from pyterrier_mart.problems import Problems

__all__ = ["check", "judged", "topics"]


def topics() -> pd.DataFrame:
    """Returns the numbers of topics and judgments.

    Returns:
        A row per language and set of judgments with ``language``, ``set``, ``topics`` (in the language of the
        documents), ``in English too``, ``judgments`` and ``relevant``.
    """
    rows = []
    for code in LANGUAGES:
        pairs = query_pairs(code)
        for name in JUDGMENTS:
            split = name.removesuffix("-pools")  # deeper judgments of the same topics
            labels = judgments(code, name)["label"]
            both = sum(key.partition("/")[0] == split for key in pairs)
            native = len(queries(code, split, native=True))
            rows.append((code, name, native, both, len(labels), int((labels > 0).sum())))
    return pd.DataFrame(rows, columns=["language", "set", "topics", "in English too", "judgments", "relevant"])


def judged(language: str) -> list[str]:
    """Returns the passages of a language that any topic has a judgment of, each once.

    Args:
        language: One of :data:`~pyterrier_mart.datasets.ciral.LANGUAGES`.
    """
    frames = [judgments(language, name)["docno"] for name in JUDGMENTS]
    return list(dict.fromkeys(docno for frame in frames for docno in frame))


def check(found: Scan, problems: Problems, *, build: bool = True, verbose: bool = False) -> pd.DataFrame:
    """Returns what a folder holds of each language, and how many of the judged passages are missing there.

    Args:
        found: What :func:`~pyterrier_mart.datasets.ciral.scan` found in the folder.
        problems: Collects what is wrong in the files.
        build: Whether to build the stores of passages that have not been built.
        verbose: Whether to show progress.

    Returns:
        A row per language with ``language``, ``files``, ``passages``, ``judged`` and ``judged, missing``; NA where no
        store has been built.
    """
    rows = []
    for code in LANGUAGES:
        passages = missing = None
        wanted = judged(code)
        if code in found.files and (build or store_path(found.folder, code).exists()):
            store = open_store(code, found, verbose=verbose)
            passages, missing = len(store), len(wanted) - len(store.get_many(wanted))
            problems.update(store.problems)
        rows.append((code, len(found.files.get(code, ())), passages, len(wanted), missing))
    frame = pd.DataFrame(rows, columns=["language", "files", "passages", "judged", "judged, missing"])
    return frame.astype({"passages": "Int64", "judged, missing": "Int64"})
