"""Inverts documents into PISA's uncompressed index files, in memory that does not grow with their number.

It is here until pyterrier_pisa is right beyond 100,000 documents: its own inversion keeps that many in memory at a
time, and merges what it wrote of them so that terms first met in a later part get postings of other terms (version
0.4.9).
"""

from __future__ import annotations

import errno
import os
import tempfile
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyterrier_mart.retrieval.types import Document, Postings

__all__ = ["invert"]

#: Postings that are sorted in memory at a time, some 200 MB.
_RUN = 1 << 23

_Ints = npt.NDArray[np.int64]


def invert(documents: Iterable[Document | Postings], path: Path, *, run: int = _RUN) -> None:
    """Writes ``inv.docs``, ``inv.freqs``, ``inv.sizes``, ``fwd.documents`` and ``fwd.terms``.

    The formats are those of PISA's documentation: lists of a length and as many 32-bit numbers, a list of postings for
    each term, terms in order of their UTF-8 bytes. Without documents nothing is written but the list of their names.

    Args:
        documents: With ``docno``, and ``toks``, whose values are whole numbers above 0.
        path: The directory.
        run: Postings that are sorted in memory at a time.

    Raises:
        OSError: If a file cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=path) as scratch:
        numbers = _Numbers()
        lengths = array("I")
        runs: list[_Run] = []
        terms, docs, freqs = array("i"), array("I"), array("I")
        known = np.zeros(0, dtype=np.int32)  # the numbers of the words of postings that come as arrays

        def sort() -> None:
            runs.append(_Run.write(Path(scratch) / str(len(runs)), terms, docs, freqs, len(numbers)))
            del terms[:], docs[:], freqs[:]

        with open(path / "fwd.documents", "w", encoding="utf-8", newline="\n") as names:
            for document in documents:
                number = len(lengths)
                if isinstance(document, Postings):
                    if not len(known):
                        known = np.array([numbers[word] for word in document.words.tolist()], dtype=np.int32)
                    names.writelines(f"{docno}\n" for docno in document.docnos)
                    sizes, before = np.diff(document.bounds), np.concatenate([[0], np.cumsum(document.freqs)])
                    terms.frombytes(known[document.terms].tobytes())
                    freqs.frombytes(document.freqs.astype(np.uint32).tobytes())
                    docs.frombytes(np.repeat(number + np.arange(len(sizes), dtype=np.uint32), sizes).tobytes())
                    lengths.frombytes(np.diff(before[document.bounds]).astype(np.uint32).tobytes())
                else:
                    names.write(f"{document['docno']}\n")
                    toks = document["toks"]
                    terms.extend(map(numbers.__getitem__, toks))
                    freqs.extend(toks.values())
                    docs.extend([number] * len(toks))
                    lengths.append(sum(toks.values()))
                if len(terms) >= run:
                    sort()
        sort()
        if not lengths:
            return
        totals = np.zeros(len(numbers), dtype=np.int64)
        for part in runs:
            totals[: len(part.counts)] += part.counts
        ordered = sorted(term for term, number in numbers.items() if totals[number])
        _merge(runs, totals, np.array([numbers[term] for term in ordered], dtype=np.int64), len(lengths), path)
    with open(path / "fwd.terms", "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{term}\n" for term in ordered)
    np.array([len(lengths), *lengths], dtype=np.uint32).tofile(path / "inv.sizes")


class _Numbers(dict[str, int]):
    """Numbers terms as they come."""

    def __missing__(self, term: str) -> int:
        self[term] = number = len(self)
        return number


class _Run(NamedTuple):
    """Postings on disk, by the number of their term and then of their document."""

    docs: Path
    freqs: Path
    counts: _Ints
    """How many there are of each term."""

    @classmethod
    def write(cls, path: Path, terms: array[int], docs: array[int], freqs: array[int], n_terms: int) -> _Run:
        """Sorts postings, which come in the order of their documents, and writes them."""
        from scipy.sparse import coo_array

        columns = [np.frombuffer(column, dtype=np.int32) for column in (terms, docs, freqs)]
        by_doc = coo_array((columns[2], (columns[1], columns[0])), shape=(docs[-1] + 1 if docs else 1, n_terms))
        by_term = by_doc.tocsc()  # counts and does not compare, unlike a sort
        run = cls(path.with_suffix(".docs"), path.with_suffix(".freqs"), np.diff(by_term.indptr).astype(np.int64))
        by_term.indices.astype(np.uint32, copy=False).tofile(run.docs)
        by_term.data.tofile(run.freqs)
        return run


def _merge(runs: list[_Run], totals: _Ints, order: _Ints, n_documents: int, path: Path) -> None:
    """Writes the postings of all runs, the lists in a given order of their terms."""
    starts = np.zeros(len(totals), dtype=np.int64)  # places of the lengths of the lists, by number of the term
    starts[order] = np.cumsum(totals[order] + 1) - totals[order] - 1
    for name, header in (("docs", [1, n_documents]), ("freqs", [])):
        size = len(header) + int(totals.sum()) + len(order)
        with open(path / f"inv.{name}", "w+b") as file:
            if not size:  # no document has a word; there is no mapping of nothing
                continue
            _reserve(file.fileno(), 4 * size)
            out = np.memmap(file, dtype=np.uint32, mode="r+", shape=(size,))
            out[: len(header)] = header
            lists = out[len(header) :]
            lists[starts[order]] = totals[order]
            at = starts + 1
            for run in runs:
                counts = run.counts
                postings = np.fromfile(getattr(run, name), dtype=np.uint32)
                before = np.cumsum(counts) - counts
                lists[np.repeat(at[: len(counts)] - before, counts) + np.arange(len(postings))] = postings
                at[: len(counts)] += counts
            out.flush()
            del out, lists


def _reserve(descriptor: int, size: int) -> None:
    """Takes room for a file before it is mapped: a disk that is full is an error here, and ends the process later."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except (AttributeError, OSError) as err:
        if isinstance(err, OSError) and err.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
        os.ftruncate(descriptor, size)  # some systems cannot reserve room
