"""Runs of a cross-validation: made of results, and read from disk."""

from __future__ import annotations

import csv
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_mart.archives import ArchiveError, members
from pyterrier_mart.evaluation.folds import Fold

__all__ = ["as_run", "read_run"]

_NAMES = ["qid", "iter", "docno", "rank", "score", "tag"]
_COLUMNS = ["qid", "docno", "score", "rank"]


def as_run(results: pd.DataFrame, fold: Fold, name: str) -> pd.DataFrame:
    """Returns what a pipeline found as a run, with scores as they are after writing and reading.

    Raises:
        ValueError: If it is none.
    """
    if "rank" not in results.columns:
        results = pt.model.add_ranks(results)
    run = results[_COLUMNS]
    wrong = {
        "a value in every cell": run.isna().any(axis=1),
        "the qids of the test topics": ~run["qid"].astype(str).isin(fold.test),
        "a docno once for each qid": run.duplicated(["qid", "docno"]),
    }
    for what, rows in wrong.items():
        if rows.any():
            found = run[rows].iloc[0].to_dict()
            raise ValueError(f"make_pipeline: {name!r} must give {what}, not such as {found} in fold {fold.index}")
    run = run.astype({"qid": str, "docno": str, "score": "float64", "rank": "int64"})
    return run.sort_values(["qid", "rank"], kind="stable", ignore_index=True)


def read_run(path: str | Path) -> pd.DataFrame:
    """Reads a run of :func:`cross_validate`, with scores to the last bit.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is damaged; the message names it.
    """
    # pt.io.read_results takes a docno such as "NA" for none, and rounds scores with older versions of pandas.
    kinds = {"qid": "str", "docno": "str", "rank": "int64"}
    options: Any = {"dtype": kinds, "converters": {"score": float}, "keep_default_na": False, "quoting": csv.QUOTE_NONE}
    path = Path(path)
    if not path.stat().st_size:  # a run that found nothing is gzipped too
        raise ValueError(f"{path} is no run, or damaged: it is empty")
    with closing(members(path)) as opened:
        for _, stream in opened:
            try:
                run = pd.read_csv(stream, sep=" ", names=_NAMES, index_col=False, **options)
                run = run[_COLUMNS].astype({"score": "float64", "rank": "int64"})  # also of a run that found nothing
                if run.isna().any(axis=None):
                    raise ValueError("a cell is missing, or no number")
            except ArchiveError:
                raise
            except (ValueError, OverflowError) as err:
                raise ValueError(f"{path} is no run, or damaged: {err}") from err
            return run
    raise ValueError(f"{path} is an archive without a file; expected a run")
