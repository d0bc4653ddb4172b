"""Which open source helps Somali and Swahili query translation: ``python -m experiments.low_resource --data DATA``.

Tables are learned by the recipe of the bundled ones (:mod:`experiments.tables`) from each source alone, from all of
them, and from all but one. They translate the queries of CIRAL's test sets, which exist in English and in the language
of the passages; each is measured on the words of its human translation:

- recall@k: share of the words of the human translation that are among the k best translations of the query's words,
  each distinct word once;
- cosine: of the weighted translation that BM25 would get (10 translations of a word) and the words of the human
  translation, both weighted by idf over the human translations of all queries, stop words kept;
- coverage: share of the query's words that the table has.

Words that a table lacks are translated as :class:`~pyterrier_mart.SMTQueryTranslator` does: by their other forms, else
kept as they are. All values are means over queries. Learned tables are kept in ``--tables`` and used again.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from experiments import report, tables
from experiments.corpora import CORPORA, Corpus
from pyterrier_mart import Analyzer, SMTQueryTranslator, TranslationTable
from pyterrier_mart.datasets.ciral import published
from pyterrier_mart.evaluation import paired_test
from pyterrier_mart.stopwords import long_list
from pyterrier_mart.translation import storage
from pyterrier_mart.translation.builder import EntryBuilder

ALL = "all sources"
AGAIN = "all sources, learned again"
NONE = "no table"
_RESAMPLES = 10_000
_FREEDICT = {"sw": "swh", "so": "som", "ha": "hau", "yo": "yor"}

Values = npt.NDArray[np.float64]
Tables = tuple[TranslationTable, TranslationTable]


class Source(NamedTuple):
    """What is added or left out as one."""

    name: str
    corpora: tuple[Corpus, ...]

    def pairs(self, root: Path, lang: str) -> int:
        """Returns how many sentence pairs or entries there are."""
        return sum(1 for corpus in self.corpora for _ in corpus.read(root, lang))


def sources(root: Path, lang: str) -> list[tuple[Source, int]]:
    """Returns the sources that have the language, the larger ones first, with their pairs."""
    grouped: dict[str, list[Corpus]] = {}
    for corpus in CORPORA:
        grouped.setdefault(re.sub(r" dev(test)?$", "", corpus.name), []).append(corpus)
    known = (Source(name, tuple(corpora)) for name, corpora in grouped.items())
    counted = [(source, source.pairs(root, lang)) for source in known]
    return sorted(((source, n) for source, n in counted if n), key=lambda item: -item[1])


def alone(root: Path, lang: str, source: Source) -> Tables:
    """Learns both tables from one source."""
    if source.corpora[0].kind == "sentences":
        return tables.learn(root, lang, [corpus for corpus in CORPORA if corpus not in source.corpora])
    made = []
    for one, other in ((lang, "en"), ("en", lang)):
        builder = EntryBuilder(one, other, phrases="split")
        for corpus in source.corpora:
            for foreign, english in dict.fromkeys(corpus.read(root, lang)):
                builder.add(*((foreign, english) if one == lang else (english, foreign)))
        made.append(TranslationTable.from_entries(builder.entries("uniform")).prune(top_k=tables.TOP_K))
    return made[0], made[1]


def freedict(folder: Path, lang: str) -> Tables | None:
    """Reads the FreeDict dictionaries of a language from a folder, if both directions are there."""
    code = _FREEDICT[lang]
    paths = [folder / f"freedict-{name}.index" for name in (f"{code}-eng", f"eng-{code}")]
    if not all(path.exists() for path in paths):
        return None
    forward, backward = (
        TranslationTable.read(path, *pair, phrases="split")
        for path, pair in zip(paths, ((lang, "en"), ("en", lang)), strict=True)
    )
    return forward, backward


def kept(folder: Path, lang: str, name: str, learn: Callable[[], Tables]) -> Tables:
    """Returns the tables of a variant: those that an earlier run left, else learned now."""
    folder = folder / lang / re.sub(r"\W+", "-", name)
    names = (f"{lang}-en", f"en-{lang}")
    if not all((folder / (name + storage.BUNDLED_SUFFIX)).exists() for name in names):
        start = time.perf_counter()
        for table in learn():
            tables.save(table, folder)
        print(f"{lang}: {name}: {time.perf_counter() - start:.0f} s", flush=True)
    forward, backward = (tables.load(folder, name) for name in names)
    return forward, backward


def variants(root: Path, lang: str, folder: Path, dictionaries: Path | None) -> Iterator[tuple[str, int, Tables]]:
    """Gives the tables that are compared, with the number of pairs that they are learned from."""
    found = sources(root, lang)
    total = sum(n for _, n in found)
    everything = kept(folder, lang, ALL, lambda: tables.learn(root, lang))
    yield ALL, total, everything
    yield AGAIN, total, kept(folder, lang, AGAIN, lambda: tables.learn(root, lang))
    for source, n in found:
        without = kept(
            folder, lang, f"without {source.name}", lambda source=source: tables.learn(root, lang, source.corpora)
        )
        yield f"without {source.name}", total - n, without
    for source, n in found:
        made = kept(folder, lang, f"{source.name} alone", lambda source=source: alone(root, lang, source))
        yield f"{source.name} alone", n, made
    if dictionaries and (dictionary := freedict(dictionaries, lang)):
        size = len(dictionary[0])
        yield "FreeDict alone", size, dictionary
        yield (
            "all sources + FreeDict",
            total + size,
            (
                everything[0].backfill(dictionary[0]),
                everything[1].backfill(dictionary[1]),
            ),
        )


class Questions:
    """Queries in one language and their human translations in another."""

    def __init__(self, source: str, target: str, pairs: list[tuple[str, str]]):
        self.source, self.target = source, target
        self.asked = [a for a, _ in pairs]
        self._references = {stop: self._words([b for _, b in pairs], stop) for stop in (False, True)}
        seen = Counter(word for words in self._references[False] for word in words)
        self._seen, self._count = seen, len(pairs)

    def _words(self, texts: list[str], stop: bool) -> list[dict[str, int]]:
        return list(map(Analyzer(self.target, stop=_stop_words(self.target, stop)).counts, texts))

    def _idf(self, word: str) -> float:
        df = self._seen[word]
        return math.log(1 + (self._count - df + 0.5) / (df + 0.5))

    def measure(self, table: TranslationTable | None) -> dict[str, Values]:
        """Returns each measure's values, one a query; NaN where a query has no words of the kind.

        Args:
            table: The table to translate with; ``None`` leaves the words as they are.
        """
        values = {
            "recall@1": self._recall(table, 1, stop=True),
            "recall@10": self._recall(table, 10, stop=True),
            "recall@1, stop words too": self._recall(table, 1, stop=False),
            "recall@10, stop words too": self._recall(table, 10, stop=False),
            "cosine": self._cosine(table),
            "coverage": self._coverage(table),
        }
        return {name: np.array(column) for name, column in values.items()}

    def _translated(self, table: TranslationTable | None, top_k: int, stop: bool) -> list[Mapping[str, float]]:
        if table is None:
            words = Analyzer(self.source, stop=_stop_words(self.source, stop))
            return [dict(bag) for bag in map(words.counts, self.asked)]
        translator = SMTQueryTranslator(table, top_k=top_k, stop=_stop_words(self.source, stop))
        return list(map(translator.bag, self.asked))

    def _recall(self, table: TranslationTable | None, top_k: int, *, stop: bool) -> list[float]:
        bags = self._translated(table, top_k, stop)
        return [
            len(wanted.keys() & bag.keys()) / len(wanted) if wanted else math.nan
            for bag, wanted in zip(bags, self._references[stop], strict=True)
        ]

    def _cosine(self, table: TranslationTable | None) -> list[float]:
        return [
            _cosine(self._weighted(bag), self._weighted(wanted))
            for bag, wanted in zip(self._translated(table, 10, False), self._references[False], strict=True)
        ]

    def _weighted(self, bag: Mapping[str, float]) -> dict[str, float]:
        return {word: weight * self._idf(word) for word, weight in bag.items()}

    def _coverage(self, table: TranslationTable | None) -> list[float]:
        analyzer = Analyzer(self.source, stop=_stop_words(self.source, True))
        words = map(analyzer.tokens, self.asked)
        return [(table.coverage(query) if table is not None else 0.0) if query else math.nan for query in words]


def _stop_words(lang: str, stop: bool) -> bool | frozenset[str]:
    """Returns what is no content word: the long list of a language."""
    return long_list(lang) if stop else False


def _cosine(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    dot = sum(weight * b.get(word, 0.0) for word, weight in a.items())
    norms = math.sqrt(sum(w * w for w in a.values()) * sum(w * w for w in b.values()))
    return dot / norms if norms else 0.0


def difference(values: Values, against: Values) -> dict[str, float]:
    """Returns the mean difference, its 95% interval by a bootstrap over queries, and p of a paired t-test."""
    delta = (values - against)[~np.isnan(values - against)]
    draws = np.random.default_rng(0).integers(0, len(delta), size=(_RESAMPLES, len(delta)))
    low, high = np.percentile(delta[draws].mean(axis=1), (2.5, 97.5))
    p = paired_test()(values, against)[1]
    return {"difference": float(delta.mean()), "low": float(low), "high": float(high), "p": p}


def compare(questions: Questions, made: Mapping[str, tuple[int, TranslationTable | None]]) -> list[dict[str, Any]]:
    """Measures variants, the first of which the others are compared with."""
    rows: list[dict[str, Any]] = []
    reference: dict[str, Values] | None = None
    for name, (pairs, table) in made.items():
        values = questions.measure(table)
        row: dict[str, Any] = {"name": name, "pairs": pairs, "entries": len(table) if table is not None else 0}
        row |= {measure: float(np.nanmean(column)) for measure, column in values.items()}
        if reference is None:
            reference = values
        else:
            row["against"] = {m: difference(values[m], reference[m]) for m in ("recall@10", "cosine")}
        rows.append(row)
    return rows


_SHOWN = ("coverage", "recall@1", "recall@10", "recall@1, stop words too", "recall@10, stop words too", "cosine")


def shown(rows: list[dict[str, Any]]) -> str:
    """Returns the rows as a Markdown table."""
    lines = []
    for row in rows:
        change = []
        for measure in ("recall@10", "cosine"):
            if found := row.get("against", {}).get(measure):
                mark = "" if found["p"] >= 0.05 else "*"
                change.append(f"{found['difference']:+.3f}{mark} [{found['low']:+.3f}, {found['high']:+.3f}]")
            else:
                change.append("")
        lines.append([row["name"], row["pairs"], *(row[measure] for measure in _SHOWN), *change])
    return report.markdown(["learned from", "pairs", *_SHOWN, "Δ recall@10", "Δ cosine"], lines)


def conclusion(rows: list[dict[str, Any]], measure: str = "recall@10") -> str:
    """Returns in a sentence which source is best alone and which is missed most."""
    best = max((row for row in rows if row["name"].endswith(" alone")), key=lambda row: row[measure])
    without = [row for row in rows if row["name"].startswith("without ")]
    missed = min(without, key=lambda row: row["against"][measure]["difference"])
    drop = missed["against"][measure]
    found = "a significant drop" if drop["p"] < 0.05 and drop["difference"] < 0 else "no significant change"
    again = next(row for row in rows if row["name"] == AGAIN)["against"]
    noise = " and ".join(f"{name} by {change['difference']:+.3f}" for name, change in again.items())
    return (
        f"By {measure}, the best source alone is {best['name'].removesuffix(' alone')} ({best[measure]:.3f}; all "
        f"sources {rows[0][measure]:.3f}). The one that is missed most is {missed['name'].removeprefix('without ')} "
        f"({drop['difference']:+.3f}, {found}). Learning the same table again changes {noise}: differences of "
        "that size say nothing about a source, even if they are significant over queries.\n"
    )


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpora (see experiments/corpora.py)")
    parser.add_argument("--languages", nargs="+", choices=list(published.LANGUAGES), default=["so", "sw"])
    parser.add_argument("--tables", type=Path, default=Path("low-resource.training"), help="where tables are kept")
    parser.add_argument(
        "--freedict",
        type=Path,
        metavar="DIR",
        help="folder with freedict-swh-eng.index, ... (Debian: dict-freedict-swh-eng, dict-freedict-eng-swh)",
    )
    arguments = parser.parse_args()
    sections = []
    results: dict[str, Any] = {}
    for lang in arguments.languages:
        pairs = list(published.query_pairs(lang).values())
        made = list(variants(arguments.data, lang, arguments.tables, arguments.freedict))
        bundled = TranslationTable.bundled()
        for side, (source, target) in enumerate(((lang, "en"), ("en", lang))):
            name = f"{source}-{target}"
            compared: dict[str, tuple[int, TranslationTable | None]] = {n: (k, t[side]) for n, k, t in made}
            if name in bundled:
                compared["the bundled table"] = (made[0][1], TranslationTable.load(name))
            compared[NONE] = (0, None)
            asked = [(native, english) if source == lang else (english, native) for english, native in pairs]
            rows = compare(Questions(source, target, asked), compared)
            text = f"{len(pairs)} queries. {conclusion(rows)}\n{shown(rows)}"
            sections.append((f"{name}: {published.LANGUAGES[lang].capitalize()}", text))
            results[name] = rows
    intro = (
        "Recall@k: share of the content words of a query's human translation that are among the k best translations "
        "of the query's words. Cosine: of the weighted translation (10 a word) and the human translation, with idf "
        "over the human translations. Coverage: share of the query's content words that the table has. Means over "
        "queries; words that a table lacks are translated by their other forms or kept, which is why names give `no "
        "table` a recall. Δ: difference from all sources, 95% interval by a bootstrap over queries (10,000 samples); "
        "* p < 0.05 in a two-tailed paired t-test, without correction for the number of rows.\n\n"
        "FLORES and NTREX are general text (Wikipedia, news), TICO-19 is about COVID-19, Global Voices and HornMT are "
        "news; CIRAL's queries are short questions that African news answers. FreeDict is GPL and therefore not part "
        "of the bundled tables. No table has seen CIRAL.\n"
    )
    settings = {
        "recipe": "experiments/tables.py", "prefixes": tables.PREFIXES, "min_count": tables.MIN_COUNT,
        "aligner": "eflomal (it has no seed: a new run differs a little)",
        "queries": "CIRAL v1.0 test-a and test-b, those with both an English and a native query",
    }  # fmt: skip
    report.write("low-resource", "What each open source is worth for Somali and Swahili",
                 [("", intro), *sections], settings, results)  # fmt: skip
    print((report.RESULTS / "low-resource.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
