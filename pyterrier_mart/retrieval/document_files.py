"""Documents in files, and what a name stands for: a dataset of PyTerrier, or a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyterrier as pt

from pyterrier_mart.lines import first_of, read_lines, record_parser

__all__ = ["DOCNOS", "TEXTS", "DocumentFile", "dataset_or_file"]

#: What files call a docno: PyTerrier, ir_datasets, MIRACL and CIRAL, BEIR, Anserini and HC4, ColBERT.
DOCNOS = ("docno", "doc_id", "docid", "_id", "id", "pid")
#: What files call a text: PyTerrier, BEIR and most others, Anserini, documents and passages of MS MARCO.
TEXTS = ("text", "contents", "body", "passage", "segment")


class DocumentFile:
    """The documents of a file of UTF-8 text, plain or packed (.gz, .bz2, .xz, ...), one a line.

    Either JSON objects, or tab-separated columns without quoting: docno and text, or those that a header names. The
    docno is the first of :data:`DOCNOS` that there is, and the text the first of :data:`TEXTS`; they become the fields
    ``docno`` and ``text``, and the others stay beside them.

    Args:
        path: The file; ``-`` for standard input.
        verbose: Whether to show a progress bar.

    Attributes:
        line: The number of the line that was read last.
    """

    def __init__(self, path: str | os.PathLike[str], *, verbose: bool = False):
        self.path, self.verbose, self.line = os.fspath(path), verbose, 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the documents.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If a line is malformed; the message names file and line.
        """
        record = record_parser(self.path, ["docno", "text"], DOCNOS)

        def parse(line: str) -> dict[str, Any] | None:
            found = record(line)
            if found is not None:
                found["docno"] = first_of(found, DOCNOS)
                if text := next((name for name in TEXTS if name in found), None):
                    found["text"] = found[text]
            return found

        for line, document in read_lines(self.path, parse, verbose=self.verbose):
            self.line = line
            yield document

    @property
    def where(self) -> str:
        """Where the document is that was read last."""
        return f"{self.path}, line {self.line}"

    def __repr__(self) -> str:
        return self.path


def dataset_or_file(name: str) -> Any:
    """Returns the dataset that PyTerrier knows by a name, or the path of a file.

    Raises:
        FileNotFoundError: If it is neither.
    """
    try:
        return pt.get_dataset(name)
    except KeyError as err:
        if name == "-" or Path(name).exists():
            return Path(name)
        said = err.__cause__ if name.startswith("mart:") else err if ":" in name else None
        reason = f": {said.args[0]}" if said is not None else ""
        raise FileNotFoundError(f"there is neither a file {name} nor a dataset of this name{reason}") from err
