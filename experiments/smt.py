"""What query translation with the bundled tables is worth: ``python -m experiments.smt --data DATA``.

Three parts:

1. XQuAD-R: questions in one language, candidate sentences in another, for every bundled pair that XQuAD-R has; with and
   without stop words. XQuAD-R comes with the package and no table has seen it.
2. FLORES devtest, for every bundled pair: a sentence is the query and its translation the one relevant document among
   1012. The bundled tables of eight languages have seen these sentences, so this part measures tables that were learned
   alike without them, where there are any: ``python -m experiments.tables --data DATA --held-out TABLES``, then
   ``--held-out TABLES`` here.
3. What changes the result on XQuAD-R de-en: number of translations, other forms of unknown words, weights.

``--psq`` measures instead probabilistic structured queries next to translated queries, for the same pairs.

``--links PAIR ...`` counts instead what the re-ranker's M^tr links in relevant pairs of XQuAD-R and in random ones:
with no, long and short lists of stop words, and with every word linked to itself.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP, P, R

from experiments import report
from experiments.corpora import SEEN_DEVTEST, flores_devtest
from experiments.tables import load
from pyterrier_mart import Analyzer, SMTQueryTranslator, TranslationTable, bm25_index, psq_index
from pyterrier_mart.cli.measuring import measure
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.evaluation import paired_test
from pyterrier_mart.mart.attention import WordLinker, link
from pyterrier_mart.translation.storage import BUNDLED_SUFFIX

_CONFIDENT = 0.1
_HEADER = ["pair", "no translation", "SMT as in the paper", "SMT", "human translation", "SMT / human", "R@100 of SMT",
           "P@10 of SMT", "p (SMT against none)"]  # fmt: skip
_PSQ_HEADER = ["pair", "SMT", "PSQ-BM25", "p", "PSQ-HMM", "p", "R@100 of SMT", "of PSQ-BM25", "of PSQ-HMM",
               "human translation, BM25", "human translation, HMM"]  # fmt: skip


def on_xquad(name: str, stop: bool, engine: str) -> dict[str, Any]:
    """Measures one pair on XQuAD-R sentences."""
    source, target = name.split("-")
    table = TranslationTable.load(name)
    full = measure(source, target, table, engine=engine, stop=stop).table
    data = xquad_r.XQuADR(source, target)
    with tempfile.TemporaryDirectory() as tmp:
        bm25 = bm25_index(data, Path(tmp) / "index", stop=stop, engine=engine, progress=False).bm25(num_results=100)
        paper = SMTQueryTranslator(table, relate=False, stop=stop) >> bm25
        plain = pt.Experiment([paper], data.get_topics(), data.get_qrels(), [AP @ 100])["AP@100"].iloc[0]
    raw, smt, *_, human = full["AP@100"]
    return {
        "pair": name, "none": raw, "paper": plain, "smt": smt, "human": human, "share": smt / human,
        "R@100": full["R@100"].iloc[1], "P@10": full["P@10"].iloc[1], "p": full["AP@100 p-value"].iloc[1],
    }  # fmt: skip


def psq_on_xquad(name: str, stop: bool, engine: str) -> dict[str, Any]:
    """Measures probabilistic structured queries on XQuAD-R sentences, next to the bag of translations."""
    source, target = name.split("-")
    data = xquad_r.XQuADR(source, target)
    options: dict[str, Any] = {"stop": stop, "engine": engine, "progress": False}
    with tempfile.TemporaryDirectory() as tmp:
        bm25 = bm25_index(data, Path(tmp) / "words", **options).bm25(num_results=100)
        hmm = psq_index(data, Path(tmp) / "hmm", name, **options).retriever(100)
        psq = psq_index(data, Path(tmp) / "psq", name, weighting="bm25", **options).retriever(100)
        same = psq_index(data, Path(tmp) / "same", {target: None}, **options).retriever(100)
        human = data.human_translation()
        systems = [SMTQueryTranslator(name, stop=stop) >> bm25, psq, hmm, human >> bm25, human >> same]
        frame = pt.Experiment(
            systems, data.get_topics(), data.get_qrels(), [AP @ 100, R @ 100], baseline=0, test=paired_test(),
            names=["SMT", "PSQ-BM25", "PSQ-HMM", "human BM25", "human HMM"],
        ).set_index("name")  # fmt: skip
    ap, p, recall = (frame[column] for column in ("AP@100", "AP@100 p-value", "R@100"))
    return {
        "pair": name, "SMT": ap["SMT"], "PSQ-BM25": ap["PSQ-BM25"], "p PSQ-BM25": p["PSQ-BM25"],
        "PSQ-HMM": ap["PSQ-HMM"], "p PSQ-HMM": p["PSQ-HMM"],
        **{f"R@100 {system}": recall[system] for system in ("SMT", "PSQ-BM25", "PSQ-HMM")},
        "human BM25": ap["human BM25"], "human HMM": ap["human HMM"],
    }  # fmt: skip


def unseen(tables: Path | None, name: str) -> TranslationTable | None:
    """Returns a table that FLORES devtest can be measured with: that of a folder, or the bundled one if it may."""
    if tables and (tables / (name + BUNDLED_SUFFIX)).exists():
        return load(tables, name)
    return None if set(name.split("-")) & {*SEEN_DEVTEST} else TranslationTable.load(name)


def on_flores(root: Path, table: TranslationTable, name: str, engine: str) -> dict[str, Any]:
    """Measures one pair on FLORES devtest: finding the translation of a sentence among 1012."""
    source, target = name.split("-")
    lang = source if target == "en" else target
    pairs = flores_devtest(root, lang)
    if target != "en":
        pairs = [(b, a) for a, b in pairs]
    numbers = [str(i) for i in range(len(pairs))]
    topics = pd.DataFrame({"qid": numbers, "query": [a for a, _ in pairs]})
    qrels = pd.DataFrame({"qid": numbers, "docno": numbers, "label": 1})
    with tempfile.TemporaryDirectory() as tmp:
        documents = [{"docno": number, "text": text} for number, (_, text) in zip(numbers, pairs, strict=True)]
        bm25 = bm25_index(documents, Path(tmp) / "index", target, engine=engine, progress=False).bm25(num_results=100)
        systems = [bm25, SMTQueryTranslator(table, relate=False) >> bm25, SMTQueryTranslator(table) >> bm25]
        frame = pt.Experiment(systems, topics, qrels, [AP @ 100, R @ 100], names=["none", "paper", "smt"])
    none, paper, smt = frame["AP@100"]
    analyzer = Analyzer(source)
    coverage = table.coverage(word for query in topics["query"] for word in analyzer.tokens(query))
    return {"pair": name, "coverage": coverage, "none": none, "paper": paper, "smt": smt, "R@100": frame["R@100"][2]}


def variants(name: str, engine: str) -> list[list[Any]]:
    """Measures what changes the result of one pair on XQuAD-R."""
    source, target = name.split("-")
    table = TranslationTable.load(name)
    reverse = TranslationTable.load(f"{target}-{source}").to_frame()
    reverse = reverse.rename(columns={"source": "target", "target": "source", "prob": "reverse"})
    both = table.to_frame().merge(reverse, on=["source", "target"], how="left").fillna({"reverse": 0.0})

    def reweighted(weight: Callable[[pd.DataFrame], pd.Series]) -> TranslationTable:
        return TranslationTable.from_frame(both.assign(prob=weight(both)), source, target, weights="count")

    tables = {
        "weights P(t|s) (default)": (table, {}),
        "top 1": (table, {"top_k": 1}),
        "top 3": (table, {"top_k": 3}),
        "top 5": (table, {"top_k": 5}),
        "no other forms of unknown words (the paper)": (table, {"relate": False}),
        "threshold 0.1": (table, {"threshold": 0.1}),
        "weights P(t|s)^0.7, normalised": (reweighted(lambda f: f["prob"] ** 0.7), {}),
        "weights P(t|s) P(s|t)^0.25, normalised": (reweighted(lambda f: f["prob"] * f["reverse"] ** 0.25), {}),
        "weights P(t|s) P(s|t), normalised": (reweighted(lambda f: f["prob"] * f["reverse"]), {}),
        "all translations alike": (reweighted(lambda f: f["prob"] * 0 + 1), {}),
    }
    data = xquad_r.XQuADR(source, target)
    with tempfile.TemporaryDirectory() as tmp:
        bm25 = bm25_index(data, Path(tmp) / "index", engine=engine, progress=False).bm25(num_results=100)
        systems = {
            label: SMTQueryTranslator(made, **options) >> bm25  # type: ignore[arg-type]
            for label, (made, options) in tables.items()
        }
        frame = pt.Experiment(
            list(systems.values()), data.get_topics(), data.get_qrels(), [AP @ 100, P @ 10, R @ 100],
            names=list(systems), baseline=0, test=paired_test(),
        )  # fmt: skip
    rows = frame[["name", "AP@100", "P@10", "R@100", "AP@100 p-value"]].values.tolist()
    return [[*row[:4], "" if math.isnan(row[4]) else f"{row[4]:.1g}"] for row in rows]


def linked(pair: str) -> list[list[Any]]:
    """Counts the links of M^tr, without training: a row for each way of linking."""
    table, data = TranslationTable.load(pair), xquad_r.XQuADR(*pair.split("-"))
    texts = {document["docno"]: document["text"] for document in data.get_corpus_iter()}
    asked = data.get_topics().set_index("qid")["query"].loc[data.get_qrels()["qid"]].tolist()
    relevant = [texts[docno] for docno in data.get_qrels()["docno"]]
    anything = np.random.default_rng(0).choice(list(texts.values()), len(asked)).tolist()
    ways: dict[str, dict[str, Any]] = {
        "no stop words": {"stop": False}, "long lists": {"linking": 1}, "function words": {},
        'function words, identity="always"': {"identity": "always"},
    }  # fmt: skip
    rows = []
    for name, options in ways.items():
        linker = WordLinker(table, **options)
        queries = [linker.query(text)[1] for text in asked]
        row: list[Any] = [pair, name]
        for documents in (relevant, anything):
            words = map(linker.document, documents)
            weights = link(queries, [found.keys[~found.stop] for found in words]).weights
            row += [len(weights), int((weights >= _CONFIDENT).sum())]
        rows.append(row)
    return rows


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the corpora, for FLORES (see experiments/corpora.py)")
    parser.add_argument("--held-out", type=Path, metavar="TABLES", help="tables learned without FLORES devtest")
    parser.add_argument("--engine", default="auto", choices=["auto", "pisa", "terrier"])
    parser.add_argument("--links", nargs="+", metavar="PAIR", help="count links of these pairs, and nothing else")
    parser.add_argument("--psq", action="store_true", help="measure translated documents, and nothing else")
    arguments = parser.parse_args()
    if arguments.links:
        links = [row for pair in arguments.links for row in linked(pair)]
        header = ["pair", "stop words", "links", "confident", "in random pairs", "confident"]
        text = f"1190 questions with the sentence that answers them, and with any. Confident: p >= {_CONFIDENT}.\n\n"
        sections = [("", text + report.markdown(header, links))]
        report.write("links", "What M^tr links, by stop words and identity", sections, {}, links)
        return
    names = TranslationTable.bundled()
    usable = [name for name in names if set(name.split("-")) <= set(xquad_r.LANGUAGES)]
    sections: list[tuple[str, str]] = []
    results: dict[str, Any] = {}
    if arguments.psq:
        for stop in (False, True):
            measured = []
            for name in usable:
                measured.append(psq_on_xquad(name, stop, arguments.engine))
                print("without" if stop else "with", "stop words", measured[-1], flush=True)
            cells = [[f"{x:.1g}" if key.startswith("p ") else x for key, x in row.items()] for row in measured]
            heading = f"XQuAD-R sentences, {'without' if stop else 'with'} stop words: AP@100"
            sections.append((heading, report.markdown(_PSQ_HEADER, cells)))
            results[f"xquad-r, stop={stop}"] = measured
        note = "p: against SMT. Human translation is searched with BM25, and with the HMM without a table.\n"
        settings = {"engine": arguments.engine, "BM25": "k1=0.9, b=0.4", "HMM": "alpha=0.5", "cumulative": 0.97,
                    "topics": 1190, "test": "two-tailed paired t-test, no correction"}  # fmt: skip
        report.write("psq", "Probabilistic structured queries", [("", note), *sections], settings, results)
        return
    for stop in (False, True):
        rows = []
        for name in usable:
            rows.append(on_xquad(name, stop, arguments.engine))
            print("without" if stop else "with", "stop words", rows[-1], flush=True)
        heading = f"XQuAD-R sentences, {'without' if stop else 'with'} stop words: AP@100"
        sections.append((heading, report.markdown(_HEADER, [_row(row) for row in rows])))
        results[f"xquad-r, stop={stop}"] = rows
    if arguments.data:
        tables = {name: table for name in names if (table := unseen(arguments.held_out, name))}
        flores = [on_flores(arguments.data, table, name, arguments.engine) for name, table in tables.items()]
        header = ["pair", "query terms in table", "no translation", "SMT as in the paper", "SMT", "R@100 of SMT"]
        text = (
            "A sentence is the query, its translation the one relevant of 1012 documents. Tables that have not seen "
            f"these sentences: of {', '.join(SEEN_DEVTEST)} others than the bundled ones, learned alike.\n\n"
        )
        sections.append(("FLORES devtest: AP@100", text + report.markdown(header, [list(r.values()) for r in flores])))
        results["flores devtest"] = flores
    changes = variants("de-en", arguments.engine)
    header = ["de-en, with stop words", "AP@100", "P@10", "R@100", "p (against the first row)"]
    sections.append(("What changes the result", report.markdown(header, changes)))
    settings = {"engine": arguments.engine, "BM25": "k1=0.9, b=0.4", "topics": "1190 (XQuAD-R), 1012 (FLORES)",
                "test": "two-tailed paired t-test, no correction"}  # fmt: skip
    note = (
        '"SMT as in the paper": the ten best translations of each term, unknown terms kept. "SMT" (the default) also '
        "adds the translations of other forms and compound parts of unknown terms.\n"
    )
    report.write("smt", "Query translation with the bundled tables", [("", note), *sections], settings, results)
    print((report.RESULTS / "smt.md").read_text(encoding="utf-8"))


def _row(row: dict[str, Any]) -> list[Any]:
    return [*list(row.values())[:5], f"{row['share']:.0%}", row["R@100"], row["P@10"], f"{row['p']:.1g}"]


if __name__ == "__main__":
    main()
