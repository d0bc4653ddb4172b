"""What the MART paper states about its settings, and its values, which come from a file.

Huang et al. Mixed Attention Transformer for Leveraging Word-Level Knowledge to Neural Cross-Lingual Information
Retrieval. CIKM 2021, https://doi.org/10.1145/3459637.3482452.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pyterrier_mart.datasets.clef.settings import PAPER_TOPICS
from pyterrier_mart.lines import lines
from pyterrier_mart.problems import Faults

__all__ = ["FORMAT", "GROUPS", "PRESET", "Stated", "Values", "pairs", "read_values", "stated"]

#: The paper's pairs by name and collection: topics in a language of Europe and English documents, the other direction,
#: and topics in languages with few resources.
GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "forward": {
        "clef": ("fr-en", "it-en", "de-en", "es-en"),
        "xquad-r": ("de-en", "es-en", "ar-en", "tr-en"),  # XQuAD-R has no French and Italian
    },
    "backward": {"clef": ("en-fr", "en-it", "en-de", "en-es"), "xquad-r": ("en-de", "en-es", "en-ar", "en-tr")},
    "low-resource": {"clef": ("so-en", "sw-en"), "xquad-r": ()},  # XQuAD-R has neither Somali nor Swahili
}

#: The paper's values of options, and where it says nothing, those of its authors' code (initialisation, words that link
#: to themselves). For want of a source, BM25's parameters and the threshold are as always.
PRESET: Mapping[str, Any] = {
    "relate": False, "smt_stop": True, "k1": 0.9, "b": 0.4, "stop": True, "identity": "always", "threshold": 0.0,
    "uniform": True, "links": "all", "mat_layers": [-3, -2], "pooling": "cls", "init": "random", "depth": 100,
    "negative_depth": 500, "epochs": 100, "patience": 20, "learning_rate": 2e-5, "new_learning_rate": None,
    "batch_size": 2, "accumulation": 8, "schedule": "constant_with_warmup", "freeze_layers": None,
    "loss": "pairwise-cross-entropy", "max_grad_norm": None, "validation_depth": 100, "validation_queries": None,
}  # fmt: skip

#: How a file with values is written.
FORMAT = """\
--paper FILE prints values of the paper beside those measured. None are bundled: copy them from the paper into a file
of tab-separated columns, the first line naming them. Systems have the names of the rows that are printed:

    table   pair   system      measure  value
    table2  xx-yy  SYSTEM ONE  AP@100   0.123
    table2  xx-yy  SYSTEM ONE  P@10     0.123
"""

_COLUMNS = ["table", "pair", "system", "measure", "value"]
#: By pair, system and measure.
Values = Mapping[tuple[str, str, str], float]


_ENGLISH_DOCUMENTS = 113_000  # "113k"


class Stated(NamedTuple):
    """What the paper's text states about a pair.

    Attributes:
        topics: How many topics it is measured on.
        documents: How many documents there are, in round numbers.
    """

    topics: int
    documents: int


def pairs(*groups: str) -> dict[str, tuple[str, ...]]:
    """Returns the pairs of some groups by collection."""
    return {data: tuple(pair for group in groups for pair in GROUPS[group][data]) for data in GROUPS["forward"]}


def stated(data: str, pair: str) -> Stated | None:
    """Returns what the paper states about a pair, if it does: of those with English documents."""
    source, _, target = pair.partition("-")
    topics = PAPER_TOPICS.get((source, target)) if data == "clef" else None
    return Stated(topics, _ENGLISH_DOCUMENTS) if topics is not None else None


def read_values(path: Path, table: str) -> Values:
    """Reads the values of one of the paper's tables.

    Args:
        path: A file in the format of :data:`FORMAT`.
        table: Such as ``"table2"``.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file is empty, a line is malformed or a value is there twice; the message names file and
            line.
    """
    values: dict[tuple[str, str, str], float] = {}
    n = 0
    with open(path, "rb") as stream:
        for n, line in lines(stream, Faults(str(path))):
            cells = [cell.strip() for cell in line.split("\t")]
            if n == 1 and cells != _COLUMNS:
                raise ValueError(f"{path}, line 1: expected the columns {_COLUMNS}, found {reprlib.repr(cells)}")
            if n == 1 or not any(cells):
                continue
            if len(cells) != len(_COLUMNS):
                raise ValueError(f"{path}, line {n}: expected {len(_COLUMNS)} columns, found {len(cells)}")
            name, *key, text = cells
            value = _number(text)
            if value is None:
                raise ValueError(f"{path}, line {n}: expected a value from 0 to 1, found {reprlib.repr(text)}")
            if name != table:
                continue
            pair, system, measure = key
            if (pair, system, measure) in values:
                raise ValueError(f"{path}, line {n}: {measure} of {system!r} for {pair} is there twice")
            values[pair, system, measure] = value
    if n == 0:
        raise ValueError(f"{path}: expected the columns {_COLUMNS} in the first line, found an empty file")
    return values


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
