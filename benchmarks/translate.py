"""Queries translated per second, next to a loop over plain dicts: ``python -m benchmarks.translate``.

The queries are the German questions of XQuAD-R, which come with the package, over and over. The loop is what a script
would have: the same analyzer, the table as a dict of dicts that holds the ten best translations of each word already, a
``Counter``, and ``sorted``. It must give the same bags, so other forms of unknown words are off while the two are
compared; the translator with other forms, its default, is measured beside them. Every run of a translator starts with a
new one, which has not looked up any word yet.

The table is the bundled one, if there is one, else a synthetic one over the words of XQuAD-R (the same every time).
"""

from __future__ import annotations

import argparse
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version

import numpy as np
import pandas as pd

from pyterrier_mart import Analyzer, SMTQueryTranslator, TranslationTable
from pyterrier_mart.datasets import XQuADR, xquad_r
from pyterrier_mart.translation.entries import Entries

TOP_K = 10


def the_table() -> tuple[str, TranslationTable]:
    """Returns the table and what it is."""
    if "de-en" in TranslationTable.bundled():
        return "bundled de-en", TranslationTable.load("de-en")
    german, english = (
        sorted({
            word
            for text in [p.context for p in collection.paragraphs] + [q.text for q in collection.questions]
            for word in Analyzer(collection.language).tokens(text)
        })
        for collection in map(xquad_r.load, ("de", "en"))
    )  # fmt: skip
    rng = np.random.default_rng(7)
    known = rng.random(len(german)) < 0.9  # a table never knows every word
    counts = np.where(known, rng.geometric(1 / 15, len(german)), 0)
    s = np.arange(len(german)).repeat(counts)
    t = rng.integers(0, len(english), len(s))
    return "synthetic", TranslationTable.from_entries(Entries(
        Analyzer("de"), Analyzer("en"), german, english, s, t, rng.pareto(1.2, len(s)), "count",
        {"source": "synthetic"},
    ))  # fmt: skip


def plain_loop(table: Mapping[str, Mapping[str, float]], frame: pd.DataFrame) -> pd.DataFrame:
    """Translates with dicts; unknown words are kept in the normal form of the target language."""
    german, english = Analyzer("de"), Analyzer("en")
    bags = []
    for query in frame["query"]:
        bag: Counter[str] = Counter()
        for word in german.tokens(query):
            translations = table.get(word)
            if translations is None:
                for kept in english.tokens(word) or [word]:
                    bag[kept] += 1.0
            else:
                for target, prob in translations.items():
                    bag[target] += prob
        bags.append(dict(sorted(bag.items(), key=lambda item: (-item[1], item[0]))))
    return frame.assign(query_toks=bags)


def best_of(n: int, functions: list[Callable[[], object]]) -> list[float]:
    """Returns the best time in seconds of each function; the functions take turns."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(n):
        for function, own in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            own.append(time.perf_counter() - start)
    return [min(own) for own in times]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Speed of SMTQueryTranslator next to a loop over plain dicts")
    parser.add_argument("--queries", type=int, default=20_000, help="at least so many (default: 20000)")
    parser.add_argument("--repeat", type=int, default=7, help="take the best of so many (default: 7)")
    args = parser.parse_args()

    name, table = the_table()
    questions = XQuADR("de", "en").get_topics()
    frame = pd.concat([questions] * -(-args.queries // len(questions)), ignore_index=True)
    dicts = {word: table.translations(word, TOP_K) for word in table.source_words}

    def translator(relate: bool = True) -> SMTQueryTranslator:
        return SMTQueryTranslator(table, TOP_K, relate=relate)

    bags, expected = translator(relate=False)(questions)["query_toks"], plain_loop(dicts, questions)["query_toks"]
    assert [list(bag.items()) for bag in bags] == [list(bag.items()) for bag in expected]

    analyzer, empty = Analyzer("de"), TranslationTable.from_dict({}, "de", "en")
    times = best_of(
        args.repeat,
        [
            lambda: translator(relate=False)(frame),
            lambda: plain_loop(dicts, frame),
            lambda: translator()(frame),
            lambda: [analyzer.tokens(query) for query in frame["query"]],
            lambda: SMTQueryTranslator(empty, TOP_K)(frame),
        ],
    )
    print(
        f"pyterrier-mart {version('pyterrier-mart')}, pandas {pd.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}, one core, best of {args.repeat}; {len(frame):,} queries of "
        f"{np.mean([len(analyzer.tokens(query)) for query in questions['query']]):.1f} words and "
        f"{np.mean([len(bag) for bag in bags]):.0f} translations; {name} table of {len(table):,} entries"
    )
    names = [
        f"SMTQueryTranslator(top_k={TOP_K}, relate=False)", "loop over dicts, the same bags",
        f"SMTQueryTranslator(top_k={TOP_K})", "the analyzer alone", "an empty table: the words themselves",
    ]  # fmt: skip
    print(f"{'':<45}{'queries/s':>10}{'next to the loop':>18}")
    for what, seconds in zip(names, times, strict=True):
        print(f"{what:<45}{len(frame) / seconds:>10,.0f}{times[1] / seconds:>17.2f}x")


if __name__ == "__main__":
    main()
