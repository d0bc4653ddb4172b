"""Translation tables in the files of other programs.

:func:`read` and :func:`write` find the format by the file's name or take it by its name in :data:`FORMATS`;
:func:`read_vectors` makes a table of two files of aligned word vectors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation.builder import EntryBuilder, Phrases, TableFormatError
from pyterrier_mart.translation.entries import Entries, Weights
from pyterrier_mart.translation.formats import columns, freedict, lists, panlex, psq
from pyterrier_mart.translation.formats.vectors import read_vectors
from pyterrier_mart.translation.matrix import WordMatrix

__all__ = ["FORMATS", "Format", "guess", "read", "read_vectors", "write"]


class Format(NamedTuple):
    """A file format.

    Attributes:
        description: What it is, in a line.
        pattern: Regular expression for the names of its files (without ``.gz``, in lower case); ``None`` if no name
            tells it.
        reader: Adds the entries of a file to a builder and returns what their weights mean; its keyword-only
            arguments are the format's options.
        writer: Writes a table; ``None`` if the format is only read.
    """

    description: str
    pattern: str | None
    reader: Callable[..., Weights]
    writer: Callable[..., None] | None


#: The formats by name.
FORMATS: dict[str, Format] = {
    "moses-target-source": Format(
        "Moses lexical file (lex.f2e, lex.e2f): target source P(target | source)",
        r"\.(e2f|f2e)$",
        partial(columns.read_lexical, target_first=True),
        partial(columns.write_lexical, target_first=True),
    ),
    "source-target": Format(
        "GIZA++ table (*.actual.ti.final): source target P(target | source)",
        r"\.actual\.ti\.final$",
        partial(columns.read_lexical, target_first=False),
        partial(columns.write_lexical, target_first=False),
    ),
    "tsv": Format(
        "tab-separated columns",
        r"\.tsv$",
        partial(columns.read_delimited, delimiter="\t"),
        partial(columns.write_delimited, delimiter="\t"),
    ),
    "csv": Format(
        "comma-separated columns",
        r"\.csv$",
        partial(columns.read_delimited, delimiter=","),
        partial(columns.write_delimited, delimiter=","),
    ),
    "parquet": Format("Parquet columns (needs pyarrow)", r"\.parquet$", columns.read_parquet, columns.write_parquet),
    "psq": Format(
        "JSON {source: {target: probability}} (*.json, *.table.dict.gz)",
        r"\.(json|table\.dict)$",
        psq.read_psq,
        psq.write_psq,
    ),
    "panlex": Format("PanLex export: source, target, quality", None, columns.read_panlex, None),
    "panlex-dump": Format("PanLex CSV dump, a directory or zip file", r"\.zip$", panlex.read_panlex_dump, None),
    "freedict": Format(
        "FreeDict dictionary (package, NAME.index and NAME.dict.dz, or TEI), without probabilities",
        r"^(dict-)?freedict-|\.(index|dict|dict\.dz|tei|tei\.bz2|tei\.xz)$",
        freedict.read_freedict,
        freedict.write_freedict,
    ),
    "muse": Format(
        "MUSE dictionary: source target, without probabilities",
        r"^[a-z]{2,3}-[a-z]{2,3}(\.\d+-\d+)?\.txt$",
        lists.read_muse,
        lists.write_muse,
    ),
    "lexicon": Format(
        "word list with English: ..., english, target (CLDR, TICO-19 terms); Panlexia's files, one a language",
        None,
        lists.read_lexicon,
        None,
    ),
}


def read(
    path: str | os.PathLike[str],
    source: Analyzer | str,
    target: Analyzer | str,
    *,
    format: str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    phrases: Phrases = "drop",
    weights: Weights | None = None,
    meta: Mapping[str, Any] | None = None,
    verbose: bool = False,
    **format_options: Any,
) -> Entries:
    """Reads P(target | source) from a file of another program: :meth:`pyterrier_mart.TranslationTable.read` of it.

    Args:
        path: The file, plain or compressed; a folder or archive where the format comes as one (PanLex, FreeDict).
        source: Source language code or analyzer.
        target: Target language code or analyzer.
        format: One of :data:`FORMATS`; ``None``: what the name of the file tells, or what is in the folder.
        on_error: ``"raise"`` on a malformed line, or ``"skip"`` it, warn, and note the number in the metadata.
        phrases: What to do with a target of several words: ``"drop"`` it, or ``"split"`` its weight over them.
        weights: What the numbers mean: ``"probability"``, ``"count"`` or ``"uniform"``; ``None``: what they mean in
            this format.
        meta: Provenance, such as ``licence``. File name and format are noted as ``source`` and ``source_format``.
        verbose: Whether to show a progress bar.
        format_options: Options of the format, such as ``columns=`` of ``"tsv"``: the keyword-only arguments of its
            reader.

    Returns:
        The entries of the table.

    Raises:
        OSError: If the file cannot be read.
        TableFormatError: If the file is damaged, a line is malformed, or there is no entry in it.
        ArchiveError: If an archive is damaged.
        TypeError: If the format does not have such an option.
        ValueError: If the format is unknown or cannot be told, an option does not fit, or the file says that it is
            for other languages.
    """
    path = Path(path)
    name, reader = choose(path, format, writing=False)
    builder = EntryBuilder(source, target, where=str(path), phrases=phrases, on_error=on_error)
    meant = reader(path, builder, verbose=verbose, **format_options)
    if not len(builder):
        malformed = f" ({builder.malformed} malformed)" if builder.malformed else ""
        raise TableFormatError(f"{path}: no entries{malformed}")
    entries = builder.entries(weights or meant, {"source": path.name, "source_format": name, **(meta or {})})
    if not entries.w.any():
        raise TableFormatError(f"{path}: none of its {len(builder)} entries is a translation of a single word above 0")
    return entries


def write(table: WordMatrix, path: str | os.PathLike[str], *, format: str | None = None, **format_options: Any) -> None:
    """Writes a table as a file for another program. The file appears only when it is complete.

    Args:
        table: The table.
        path: The file; gzipped if its name ends in ``.gz``.
        format: One of :data:`FORMATS`; ``None``: what the name of the file tells.
        format_options: Options of the format: the keyword-only arguments of its writer.

    Raises:
        OSError: If the file cannot be written.
        TypeError: If the format does not have such an option.
        ValueError: If the format is unknown, cannot be told or cannot be written, or an option does not fit.
    """
    path = Path(path)
    _, writer = choose(path, format, writing=True)
    writer(table, path, **format_options)


def guess(path: str | os.PathLike[str]) -> str | None:
    """Returns the format that the name of a file tells, or what is in a folder; ``None`` if it does not."""
    path = Path(path)
    plain = path.name.lower().removesuffix(".gz")
    for name, known in FORMATS.items():
        if known.pattern and re.search(known.pattern, plain):
            return name
    if path.is_dir():
        for name, files in (("panlex-dump", "langvar.csv"), ("freedict", "*.index"), ("freedict", "*.tei")):
            if next(path.glob(files), None) or next(path.glob(f"*/{files}"), None):
                return name
    return None


def choose(path: Path, name: str | None, *, writing: bool) -> tuple[str, Callable[..., Any]]:
    """Returns a format and what reads or writes it.

    Raises:
        ValueError: If the format is unknown or cannot be written, or the path does not tell it.
    """
    known = {name: format.writer if writing else format.reader for name, format in FORMATS.items()}
    usable = ", ".join(name for name, function in known.items() if function)
    found = name or guess(path)
    if found is None:
        raise ValueError(f"cannot tell the format of {str(path)!r} by its name; say which it is, one of: {usable}")
    function = known.get(found)
    if function is None:
        reason = f"the format {found!r} can only be read" if found in known else f"unknown format {found!r}"
        raise ValueError(f"{reason}; expected one of: {usable}")
    return found, function
