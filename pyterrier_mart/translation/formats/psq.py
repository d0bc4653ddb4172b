"""PSQ tables: JSON objects of the form ``{source: {target: probability}}``, as Patapsco and its kin use them."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from pyterrier_mart.translation.builder import EntryBuilder, TableFormatError
from pyterrier_mart.translation.entries import Weights
from pyterrier_mart.translation.formats.common import open_binary, text_writer
from pyterrier_mart.translation.matrix import WordMatrix

__all__ = ["read_psq", "write_psq"]


def read_psq(path: Path, builder: EntryBuilder, *, verbose: bool) -> Weights:
    """Reads an object of objects of probabilities. The file is held in memory.

    A key that is listed twice is malformed: JSON libraries silently keep the last one.

    Args:
        path: The file, plain or compressed.
        builder: Takes the entries.
        verbose: Whether to show a progress bar.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If the file is not such an object.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                builder.bad(f"the key {key!r} is listed twice in one object")
            else:
                found[key] = value
        return found

    with open_binary(path, verbose) as stream:
        text = stream.read()
    try:
        found = json.loads(text, object_pairs_hook=unique, parse_int=float) if text.strip() else {}
    except TableFormatError:
        raise
    except (ValueError, RecursionError) as err:
        raise TableFormatError(f"{path}: not JSON in UTF-8: {err}") from err
    if not isinstance(found, dict):
        raise TableFormatError(f"{path}: expected an object {{source: {{target: probability}}}}, found {found!r:.80}")
    for source, translations in found.items():
        if isinstance(translations, dict):
            builder.add_values((source, target, prob) for target, prob in translations.items())
        else:
            builder.bad(f"expected an object at {source!r}, found {translations!r:.80}")
    return "probability"


def write_psq(table: WordMatrix, path: Path) -> None:
    """Writes a JSON object with one line a source word."""
    with text_writer(path) as out:
        out.write("{")
        before = "\n"
        for source, entries in groupby(table.entries(), key=lambda entry: entry[0]):
            row = ", ".join(f"{dumped(target)}: {prob:.9g}" for _, target, prob in entries)
            out.write(f"{before}{dumped(source)}: {{{row}}}")
            before = ",\n"
        out.write("\n}\n")


def dumped(word: str) -> str:
    """Returns a word as JSON."""
    return json.dumps(word, ensure_ascii=False)
