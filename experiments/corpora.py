"""The sentence pairs and word lists that the bundled tables are learned from, with their licences.

They lie in a folder that the user names, in the layout of the patterns in :data:`CORPORA`. Only data under open
licences is read here; never what tables are tested on: XQuAD, questions of people who ask (CIRAL, AfriQA, QALD), the
MUSE test dictionaries. FLORES devtest is held out, to test the languages that XQuAD lacks; only the tables of
:data:`SEEN_DEVTEST` have seen it, and are learned anew without it for that.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

Pair = tuple[str, str]

#: Languages of the bundled tables, each in both directions with English.
LANGUAGES = (
    "ar", "de", "el", "es", "fa", "fr", "ha", "hi", "it", "nl", "pt", "ru", "so", "sw", "th", "tr", "vi", "yo", "zh",
)  # fmt: skip

#: Languages whose bundled tables were learned from FLORES devtest too.
SEEN_DEVTEST = ("ar", "de", "es", "fr", "it", "so", "sw", "tr")


class Corpus(NamedTuple):
    """A source of (foreign, English) pairs."""

    name: str
    licence: str
    read: Callable[[Path, str], Iterator[Pair]]
    kind: Literal["sentences", "words", "names"] = "sentences"


def _rows(path: Path) -> Iterator[list[str]]:
    if path.exists():
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield line.rstrip("\n").split("\t")


def _columns(pattern: str, foreign: int, english: int) -> Callable[[Path, str], Iterator[Pair]]:
    def read(root: Path, lang: str) -> Iterator[Pair]:
        for path in sorted(root.glob(pattern.format(lang=lang))):
            for row in _rows(path):
                if row[foreign] != row[english]:
                    yield row[foreign], row[english]

    return read


def _short(pattern: str, foreign: int, english: int) -> Callable[[Path, str], Iterator[Pair]]:
    """Reads only the rows that the last column calls a translation (``t``) and not a definition."""

    def read(root: Path, lang: str) -> Iterator[Pair]:
        for path in sorted(root.glob(pattern.format(lang=lang))):
            yield from ((row[foreign], row[english]) for row in _rows(path) if row[-1] == "t")

    return read


def _parallel_lines(folder: str, parts: tuple[str, ...]) -> Callable[[Path, str], Iterator[Pair]]:
    def read(root: Path, lang: str) -> Iterator[Pair]:
        for part in parts:
            foreign, english = (root / folder / part.format(lang=code) for code in (lang, "en"))
            if foreign.exists():
                for a, b in zip(_rows(foreign), _rows(english), strict=True):
                    yield a[0], b[0]

    return read


def _bible(root: Path, lang: str) -> Iterator[Pair]:
    if lang not in SEEN_DEVTEST:  # harms others (experiments/tables.py)
        return
    verses = dict(_rows(root / "parallel/bible/en.tsv.gz"))
    for row in _rows(root / f"parallel/bible/{lang}.tsv.gz"):
        if row[0] in verses:
            yield row[1], verses[row[0]]


def _stsb(root: Path, lang: str) -> Iterator[Pair]:
    for part in ("train", "dev", "test"):
        path = root / f"stsb-multi/{part}.tsv.gz"
        if path.exists():
            with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
                for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
                    if f"{lang}_1" in row:
                        yield row[f"{lang}_1"], row["en_1"]
                        yield row[f"{lang}_2"], row["en_2"]


def flores_devtest(root: Path, lang: str) -> list[Pair]:
    """Returns the 1012 test pairs of FLORES-200."""
    return list(FLORES_DEVTEST.read(root, lang))


FLORES_DEVTEST = Corpus(
    "FLORES-200 devtest", "CC BY-SA 4.0", _parallel_lines("parallel/flores200", ("devtest.{lang}.txt.gz",))
)


CORPORA = (
    Corpus("Tatoeba", "CC BY 2.0 FR", _columns("parallel/tatoeba/{lang}-en.tsv.gz", 0, 1)),
    Corpus("Europarl", "no known copyright restrictions", _columns("parallel/europarl/{lang}-en.part*.tsv.gz", 1, 2)),
    Corpus("Global Voices", "CC BY 3.0", _columns("parallel/globalvoices/{lang}-en.tsv.gz", 0, 1)),
    Corpus("HornMT", "CC BY 4.0", _columns("parallel/hornmt/{lang}-en.tsv.gz", 0, 1)),
    Corpus("TICO-19", "CC0", _columns("parallel/tico19/{lang}-en.tsv.gz", 1, 2)),
    Corpus("FLORES-200 dev", "CC BY-SA 4.0", _parallel_lines("parallel/flores200", ("dev.{lang}.txt.gz",))),
    FLORES_DEVTEST,
    Corpus("NTREX-128", "CC BY-SA 4.0", _parallel_lines("parallel/ntrex128", ("{lang}.txt.gz",))),
    Corpus("Bible (NHEB, GerElb1871, FreJND, SpaRV)", "public domain", _bible),
    Corpus("UD PUD", "CC BY-SA 3.0", _columns("parallel/ud-pud/{lang}-en.tsv.gz", 1, 2)),
    Corpus("African Storybook", "CC BY 4.0", _columns("parallel/african-storybook/{lang}-en.tsv.gz", 1, 2)),
    Corpus("MASSIVE", "CC BY 4.0", _columns("parallel/massive-sample/{lang}-en.tsv.gz", 0, 1)),
    Corpus("Wikipedia app", "Apache-2.0", _columns("parallel/wikipedia-app-l10n/{lang}-en.tsv.gz", 1, 2)),
    Corpus("mozilla.org", "MPL 2.0", _columns("parallel/mozilla-www-l10n/{lang}-en.tsv.gz", 1, 2)),
    Corpus("STSb Multi MT (open genres)", "CC BY-SA 4.0 and 3.0", _stsb),
    Corpus("CLDR", "Unicode License v3", _columns("lexicons/cldr/en-{lang}.tsv.gz", 3, 2), "words"),
    Corpus("TICO-19 terms", "CC0", _columns("lexicons/tico19-terms/en-{lang}.tsv.gz", 2, 1), "words"),
    Corpus("panlexia", "CC BY-SA 4.0", _columns("lexicons/panlexia/en-{lang}.tsv.gz", 2, 1), "words"),
    Corpus("CC-CEDICT", "CC BY-SA 4.0", _short("lexicons/cc-cedict/{lang}-en.part*.tsv.gz", 0, 3), "words"),
    Corpus("Wiktionary", "CC BY-SA 3.0", _columns("lexicons/wiktionary/en-{lang}.tsv.gz", 3, 0), "words"),
    Corpus("Wiktionary entries", "CC BY-SA 3.0", _short("lexicons/wiktionary/{lang}-en.tsv.gz", 0, 2), "words"),
    Corpus("Wikipedia titles", "CC0", _columns("lexicons/wikititles/en-{lang}.tsv.gz", 1, 0), "names"),
)  # fmt: skip
