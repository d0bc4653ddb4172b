"""PanLex: the CSV dump of the database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from pyterrier_mart.text import language_of
from pyterrier_mart.translation.builder import EntryBuilder, TableFormatError
from pyterrier_mart.translation.entries import Weights
from pyterrier_mart.translation.formats.common import Package, listing, rows

__all__ = ["read_panlex_dump"]

_CHUNK = 1 << 16  # rows


def read_panlex_dump(
    path: Path,
    builder: EntryBuilder,
    *,
    verbose: bool,
    source_variety: int | None = None,
    target_variety: int | None = None,
) -> Weights:
    """Reads the database dump: two expressions that share a meaning are translations of each other.

    The weight of a pair is the sum of the quality of the sources that attest it. Sources of one group (``grp``) are not
    independent of each other, so each group counts once, with its best source. Files needed, with columns in any order:
    ``langvar.csv`` (id, lang_code, var_code), ``expr.csv`` (id, langvar, txt), and either ``denotationx.csv``
    (meaning, source, grp, quality, expr) or ``denotation.csv`` (meaning, expr), ``meaning.csv`` (id, source) and
    ``source.csv`` (id, grp, quality). A source without ``grp`` is its own group.

    The files are streamed; memory holds the expressions of the two languages and their denotations.

    Args:
        path: The directory or zip file.
        builder: Takes the entries.
        verbose: Whether to show a progress bar for each file.
        source_variety: ``var_code`` of the source language's variety; ``None``: all varieties.
        target_variety: ``var_code`` of the target language's variety; ``None``: all varieties.

    Returns:
        What the weights mean.

    Raises:
        TableFormatError: If a file or column is missing, or a line is malformed.
        ValueError: If the dump lacks a language.
    """
    dump = Dump(path, builder, verbose)
    known = dump.read("langvar", ("id", "var_code"), ("lang_code",))
    languages = known["lang_code"].map(language_of)
    sides = []
    for lang, variety in ((builder.source.lang, source_variety), (builder.target.lang, target_variety)):
        of_language = known[languages == lang]
        chosen = of_language if variety is None else of_language[of_language["var_code"] == variety]
        if not len(chosen):
            found = f"; found {sorted(of_language['var_code'])}" if len(of_language) else ""
            which = "" if variety is None else f"variety {variety} of "
            raise ValueError(f"{path}: no {which}language {lang!r}{found}")
        sides.append(chosen["id"])
    parts = [expr[expr["langvar"].isin(pd.concat(sides))] for expr in dump.chunks("expr", ("id", "langvar"), ("txt",))]
    expressions = pd.concat(parts)
    texts = [expressions[expressions["langvar"].isin(side)].set_index("id")["txt"].to_dict() for side in sides]

    extended = dump.has("denotationx")
    chunks = (
        dump.chunks("denotationx", ("meaning", "expr", "source", "quality"), ("grp",))
        if extended
        else dump.chunks("denotation", ("meaning", "expr"))
    )
    denotations = pd.concat(part[part["expr"].isin(expressions["id"])] for part in chunks)
    if extended:
        evidence = denotations[["meaning", "source", "grp", "quality"]].drop_duplicates("meaning")
    else:
        chunks = dump.chunks("meaning", ("id", "source"))
        meanings = pd.concat(part[part["id"].isin(denotations["meaning"])] for part in chunks)
        sources = dump.read("source", ("id", "quality"), ("grp",)).rename(columns={"id": "source"})
        evidence = meanings.rename(columns={"id": "meaning"}).merge(sources, on="source")
    group = pd.to_numeric(evidence["grp"], errors="coerce").fillna(evidence["source"])
    s, t = (denotations.loc[denotations["expr"].isin(side), ["meaning", "expr"]] for side in texts)
    pairs = s.merge(t, on="meaning")
    for meaning in sorted(set(pairs["meaning"]) - set(evidence["meaning"])):
        builder.bad(f"the source of the meaning {meaning}, or its quality, is missing")
    pairs = pairs.merge(evidence.assign(grp=group), on="meaning")
    pairs["quality"] = np.ldexp(pairs["quality"], -len(pairs).bit_length())  # so that no sum overflows
    best = pairs.groupby(["expr_x", "expr_y", "grp"])["quality"].max()  # of each group's sources
    for (one, other), quality in best.groupby(level=[0, 1]).sum().items():
        builder.add(texts[0][one], texts[1][other], float(quality))
    return "count"


class Dump:
    """The CSV files of a dump, in a folder or zip file or in a dated folder within."""

    def __init__(self, path: Path, builder: EntryBuilder, verbose: bool):
        self.package, self.builder, self.verbose = Package(path), builder, verbose
        self.names = {name.rsplit("/", 1)[-1]: name for name in sorted(self.package.names or [])}

    def has(self, name: str) -> bool:
        """Returns whether there is such a file."""
        return f"{name}.csv" in self.names

    def read(self, name: str, numbers: tuple[str, ...], texts: tuple[str, ...] = ()) -> pd.DataFrame:
        """Returns some columns of a file."""
        return pd.concat(self.chunks(name, numbers, texts))

    def chunks(self, name: str, numbers: tuple[str, ...], texts: tuple[str, ...] = ()) -> Iterator[pd.DataFrame]:
        """Yields some columns of a file, many rows at a time.

        Args:
            name: The file, without ``.csv``.
            numbers: Columns that hold numbers. Rows in which one does not are reported.
            texts: Columns that hold text; ``grp`` may be missing and is then empty.
        """
        if not self.has(name):
            raise TableFormatError(f"{self.package.path}: missing {name}.csv; found {listing(sorted(self.names))}")
        member = self.names[f"{name}.csv"]
        where = self.package.where(member)
        with self.package.open(member, self.verbose) as stream:
            found = rows(stream, self.builder, ",", where)
            _, header = next(found, (1, []))
            if missing := {*numbers, *texts} - {"grp", *header}:
                raise TableFormatError(f"{where}: missing column {', '.join(sorted(missing))}")
            part = None
            while part is None or len(part) == _CHUNK:
                part = list(islice(found, _CHUNK))
                chunk = pd.DataFrame([row for _, row in part], [n for n, _ in part], header, dtype=str)
                values = pd.DataFrame({name: pd.to_numeric(chunk[name], errors="coerce") for name in numbers})
                bad = ~np.isfinite(values.astype(float)).all(axis=1)
                for n in chunk.index[bad]:
                    self.builder.bad(f"expected numbers in {', '.join(numbers)}", n, where)
                yield chunk.reindex(columns=[*numbers, *texts], fill_value="").assign(**values)[~bad]
