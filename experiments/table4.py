r"""The MART paper's Table 4, where the knowledge comes from: ``python -m experiments.table4 --knowledge ...``.

The first stage is the same for all (the bundled table, or ``--table``); the re-rankers differ in the table that their
translation heads see: that one, learned from parallel text, those that are named, and with ``--mixture`` the weighted
mean of all. Tables are saved ones, or files of other programs, read by their endings or as the format before a colon;
``{pair}``, ``{source}`` and ``{target}`` stand for the languages. Word vectors become a table of the 5 nearest words,
which takes minutes for large ones: to run several folds at once, make a table of them first::

    python -m experiments.table4 --data clef --knowledge dictionary=freedict:dictionaries/freedict-{pair}.index \
        --vectors "embeddings=wiki.multi.{source}.vec,wiki.multi.{target}.vec" --mixture
    python -m experiments.table4 --pair de-en --knowledge dictionary=muse:de-en.txt wordnet=lexicon:en-de.tsv.gz
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from experiments import paper, report, study
from experiments.ranking import Setting, System
from pyterrier_mart import TranslationTable
from pyterrier_mart.translation.formats import FORMATS, guess

_FIRST = "parallel text"
_MIXTURE = "mixture"


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the tables."""
    parser.add_argument("--knowledge", nargs="+", default=[], metavar="NAME=[FORMAT:]FILE", help="more tables")
    parser.add_argument("--vectors", nargs="+", default=[], metavar="NAME=SOURCE,TARGET", help="word vectors")
    parser.add_argument(
        "--mixture", nargs="*", type=float, metavar="WEIGHT",
        help="also the mean of all tables, parallel text first; with these weights instead of equal ones",
    )  # fmt: skip
    parser.add_argument(
        "--uniform", action=argparse.BooleanOptionalAction, default=False,
        help="translations in PanLex weigh the same, whatever its qualities (no)",
    )  # fmt: skip


@cache  # files may be large
def knowledge(setting: Setting) -> dict[str, TranslationTable]:
    """Returns the tables of a pair by their names.

    Raises:
        SystemExit: With one sentence, if one cannot be read.
    """
    tables = {_FIRST: setting.table}
    try:
        for entry in setting.args.knowledge:
            name, path = _named(entry, setting, tables, "--knowledge")
            tables[name] = _read(path, setting)
        for entry in setting.args.vectors:
            name, paths = _named(entry, setting, tables, "--vectors")
            sides = paths.split(",")
            if len(sides) != 2:
                raise ValueError(f"--vectors: expected NAME=SOURCE,TARGET, found {entry!r}")
            tables[name] = TranslationTable.read_vectors(sides[0], sides[1], *setting.languages)
        if setting.args.mixture is not None:
            first, *others = tables.values()
            if not others:
                raise ValueError("--mixture: expected a table to mix with, named by --knowledge or --vectors")
            tables[_MIXTURE] = first.interpolate(*others, weights=setting.args.mixture or None)
    except (ValueError, OSError) as err:
        raise SystemExit(f"error: {err}") from err
    return tables


def _named(entry: str, setting: Setting, tables: Mapping[str, TranslationTable], option: str) -> tuple[str, str]:
    """Returns a name and what it stands for, for a pair."""
    name, _, value = entry.partition("=")
    if not name or not value:
        raise ValueError(f"{option}: expected NAME=FILE, found {entry!r}")
    if name in tables or name == _MIXTURE:
        raise ValueError(f"{option}: the name {name!r} is taken; use another one")
    source, target = setting.languages
    for sign, text in (("{pair}", setting.pair), ("{source}", source), ("{target}", target)):
        value = value.replace(sign, text)
    return name, value


def _read(path: str, setting: Setting) -> TranslationTable:
    format, found, rest = path.partition(":")
    if found and format in FORMATS:
        phrases = "split" if format == "lexicon" else "drop"  # most terms of word lists have several words
        weights = "uniform" if setting.args.uniform and format.startswith("panlex") else None
        return TranslationTable.read(rest, *setting.languages, format=format, phrases=phrases, weights=weights)
    if guess(path) == "panlex-dump":
        return _read(f"panlex-dump:{path}", setting)
    if Path(path).is_dir():
        table = TranslationTable.load(path)
        if table.languages != setting.languages:
            raise ValueError(f"{path}: expected a table for {setting.pair}, found {'-'.join(table.languages)}")
        return table
    return TranslationTable.read(path, *setting.languages)


def systems(setting: Setting) -> dict[str, System]:
    """Returns the systems of a pair: SMT, MART without knowledge, and MART with each table."""
    made = {"SMT": setting.first(), "MART-PLB": setting.mart("MART-PLB", placebo=True)}
    for name, table in knowledge(setting).items():
        # Trained as the MART of Table 2: with the same --path it is trained once.
        made[f"MART, {name}"] = setting.mart("MART" if name == _FIRST else name, table=table)
    return made


def notes(settings: Mapping[str, Setting]) -> list[tuple[str, str]]:
    """Returns how much each table knows."""
    rows = [
        [
            pair,
            name,
            Path(str(table.meta.get("source", ""))).name,
            len(table),
            len(table.source_words),
            f"{setting.known_words(table):.0%}",
        ]  # fmt: skip
        for pair, setting in settings.items()
        for name, table in knowledge(setting).items()
    ]
    header = ["pair", "table", "source", "entries", "source words", "of the topics' words known"]
    return [("Tables", report.markdown(header, rows))]


STUDY = study.Study(
    "table4", "Where the knowledge comes from", __doc__, paper.pairs("forward"), systems,
    baselines=lambda names: ("SMT", f"MART, {_FIRST}"), options=options, notes=notes,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    study.main(STUDY, argv)


if __name__ == "__main__":
    main()
