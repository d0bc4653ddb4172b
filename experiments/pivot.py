"""Tables through English against tables of their own: ``python -m experiments.pivot --data DATA``.

XQuAD-R: questions in one language, candidate sentences in another, neither of them English. Direct tables are learned
from the sentences that both languages have in the corpora of English: NTREX-128, FLORES-200 dev, TICO-19 and UD PUD,
joined on the English side, aligned as the bundled tables are. The bound is what the second half gives if humans
translate the question into English.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyterrier as pt
from ir_measures import AP, R

from experiments import report
from experiments.corpora import CORPORA
from experiments.tables import MIN_COUNT, PREFIXES
from pyterrier_mart import SMTQueryTranslator, TranslationTable, bm25_index
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.evaluation import paired_test

_PAIRS = ("de-es", "es-de", "tr-ar", "ar-tr", "zh-ru", "ru-zh")
_PARALLEL = ("NTREX-128", "FLORES-200 dev", "TICO-19", "UD PUD")
_HEADER = ["pair", "no translation", "through English", "before the product 0.97", "rows sum to 1", "direct", "both",
           "direct pairs", "English by humans", "human translation", "R@100 through English", "p (direct)"]  # fmt: skip


def joined(root: Path, source: str, target: str) -> list[tuple[str, str]]:
    """Returns the sentences of two languages that translate one English sentence."""
    pairs = []
    for corpus in (corpus for corpus in CORPORA if corpus.name in _PARALLEL):
        there = {english: text for text, english in corpus.read(root, source)}
        pairs += [(there[english], text) for text, english in corpus.read(root, target) if english in there]
    return pairs


def measure(root: Path, pair: str) -> list[Any]:
    """Measures one pair: a row of the table."""
    source, target = pair.split("-")
    one, other = TranslationTable.load(f"{source}-en"), TranslationTable.load(f"en-{target}")
    pairs = joined(root, source, target)
    direct = TranslationTable.train(pairs, source, target, prefixes=PREFIXES, min_count=MIN_COUNT, top_k=10)
    through = one.compose(other)
    tables = {
        "pivot": through,
        "cut": one.prune(cumulative=0.97).compose(other.prune(cumulative=0.97)),
        "sum": through.normalize(),
        "direct": direct,
        "both": direct.interpolate(through),
    }
    data, asked = xquad_r.XQuADR(source, target), xquad_r.XQuADR("en", target)
    with tempfile.TemporaryDirectory() as tmp:
        bm25 = bm25_index(data, Path(tmp) / "index", progress=False).bm25(num_results=100)
        systems = {"pivot": SMTQueryTranslator(through) >> bm25, "none": bm25}
        systems |= {name: SMTQueryTranslator(table) >> bm25 for name, table in tables.items() if name != "pivot"}
        systems["human"] = data.human_translation() >> bm25
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There are shared pipeline components")
            found = pt.Experiment(
                list(systems.values()), data.get_topics(), data.get_qrels(), [AP @ 100, R @ 100], names=list(systems),
                baseline=0, test=paired_test(),
            ).set_index("name")  # fmt: skip
            bound = pt.Experiment(
                [SMTQueryTranslator(other) >> bm25], asked.get_topics(), asked.get_qrels(), [AP @ 100]
            )
    ap = found["AP@100"]
    return [pair, ap["none"], *(ap[name] for name in tables), len(pairs), bound["AP@100"][0], ap["human"],
            found["R@100"]["pivot"], f"{found['AP@100 p-value']['direct']:.1g}"]  # fmt: skip


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpora (see experiments/corpora.py)")
    parser.add_argument("--pairs", nargs="+", default=_PAIRS, help="directions, neither side English")
    arguments = parser.parse_args()
    rows = []
    for pair in arguments.pairs:
        rows.append(measure(arguments.data, pair))
        print(rows[-1], flush=True)
    text = (
        '"before the product 0.97": both halves cut to 97 % of each row\'s mass; "both": mean of through English and '
        "direct. p: direct against through English, two-tailed paired t-test, no correction.\n\n"
    )
    settings = {"BM25": "k1=0.9, b=0.4", "topics": 1190, "compose": "top_k=10, threshold=0.001"}
    sections = [("XQuAD-R sentences, with stop words: AP@100", text + report.markdown(_HEADER, rows))]
    report.write("pivot", "Tables through English", sections, settings, rows)


if __name__ == "__main__":
    main()
