"""Runs, and how they are written and read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pyterrier as pt

from pyterrier_mart.evaluation.folds import Fold, some
from pyterrier_mart.files import atomic_file

__all__ = ["as_run", "read_run", "write_run"]

_COLUMNS = ["qid", "docno", "score", "rank"]


def as_run(results: pd.DataFrame, fold: Fold, name: str) -> pd.DataFrame:
    """Returns what a pipeline found as a run: sorted, and with scores as they are after writing and reading."""
    if "rank" not in results.columns and {"qid", "docno", "score"} <= set(results.columns):
        results = pt.model.add_ranks(results)
    lacking = [column for column in _COLUMNS if column not in results.columns]
    if lacking:
        raise ValueError(f"make_pipeline: expected {_COLUMNS} of {name!r}, found no {', '.join(lacking)}.")
    where = f"in fold {fold.index} of {name!r}"
    for column in _COLUMNS:
        if results[column].isna().any():
            raise ValueError(
                f"make_pipeline: expected a {column} in every row, {results[column].isna().sum()} have none {where}."
            )
    run = results[_COLUMNS].astype({"qid": str, "docno": str, "score": "float64", "rank": "int64"})
    foreign = sorted(set(run["qid"]) - set(fold.test))
    if foreign:
        raise ValueError(f"make_pipeline: expected the qids of the test topics, found {some(foreign)} {where}.")
    twice = run.loc[run.duplicated(["qid", "docno"]), "docno"]
    if len(twice):
        raise ValueError(f"make_pipeline: expected a docno once for each qid, found {some(twice)} twice {where}.")
    for column in ("qid", "docno"):
        unfit = [value for value in run[column].unique() if value.split() != [value]]
        if unfit:
            raise ValueError(f"make_pipeline: a TREC run has no room for the {column} {some(unfit)} {where}.")
    return run.sort_values(["qid", "rank"], kind="stable", ignore_index=True)


def write_run(run: pd.DataFrame, path: Path, tag: str) -> None:
    """Writes a run as TREC has it, with scores that read back as the same numbers."""
    # Not pt.io.write_results: it puts quotes around some docnos, and read_results takes the docno "NA" for none.
    lines = (
        f"{qid} Q0 {docno} {rank} {score!r} {tag}\n"
        for qid, docno, score, rank in zip(*(run[column].tolist() for column in _COLUMNS), strict=True)
    )
    with atomic_file(path) as tmp:
        tmp.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def read_run(path: Path) -> pd.DataFrame:
    """Reads a run.

    Raises:
        ValueError: If it is not one, or, as gzip raises them, OSError, EOFError and zlib.error.
    """
    rows = [line.split(" ") for line in gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]]
    if any(len(row) != 6 for row in rows):
        raise ValueError(f"{path} is not a TREC run")
    return pd.DataFrame(
        {
            "qid": pd.Series([row[0] for row in rows], dtype="str"),
            "docno": pd.Series([row[2] for row in rows], dtype="str"),
            "score": pd.Series([float(row[4]) for row in rows], dtype="float64"),
            "rank": pd.Series([int(row[3]) for row in rows], dtype="int64"),
        }
    )
