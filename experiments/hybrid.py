"""Words and vectors together on XQuAD-R sentences: ``python -m experiments.hybrid``.

For every bundled pair of languages that XQuAD-R has: query translation (SMT), PSQ-HMM, dense retrieval, both together
(:class:`pyterrier_mart.Hybrid`, with its default weight), reciprocal rank fusion of PSQ-HMM and dense in its place, and
the human translation, alone and together with dense.

Nothing is trained. ``--weights`` measures, instead, the hybrids with other weights, on half of the articles and on the
other half.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP, P

from experiments import report
from pyterrier_mart import (
    DenseIndex,
    DenseRetriever,
    Hybrid,
    SMTQueryTranslator,
    TranslationTable,
    bm25_index,
    psq_index,
)
from pyterrier_mart.datasets import XQuADR, xquad_r
from pyterrier_mart.dense.encoder import Side, Vectors
from pyterrier_mart.evaluation import paired_test

SYSTEMS = ("SMT", "PSQ-HMM", "dense", "RRF of PSQ-HMM and dense", "SMT + dense", "PSQ-HMM + dense", "human translation",
           "human translation + dense")  # fmt: skip
WEIGHTS = (0.2, 0.3, 0.4, 0.5, 0.6)


class Remembering(DenseRetriever):
    """Encodes the same texts once in a process, whatever the system."""

    _known: dict[tuple[Any, ...], Vectors] = {}

    def encode(self, texts: Iterable[str], side: Side, languages: Any = None, **options: Any) -> Vectors:
        """Returns the vectors of texts."""
        texts, languages = list(texts), None if languages is None else list(languages)
        key = (self.model_name, repr(self.post), side, self.query_lang, *texts, *(languages or ()))
        if key not in self._known:
            self._known[key] = super().encode(texts, side, languages, **options)
        return self._known[key]


def dense_index(dense: DenseRetriever, lang: str, folder: Path) -> DenseIndex:
    """Returns the index of a language's sentences, which is made once."""
    if (folder / lang).exists():
        return DenseIndex(folder / lang)
    return dense.index(folder / lang, XQuADR("de" if lang == "en" else "en", lang))


def rrf(runs: Iterable[pd.DataFrame], k: int = 60) -> pd.DataFrame:
    """Returns the reciprocal rank fusion of runs (Cormack, Clarke and Buettcher, SIGIR 2009)."""
    each = pd.concat([run[["qid", "docno"]].assign(score=1 / (k + run["rank"] + 1)) for run in runs])
    return pt.model.add_ranks(each.groupby(["qid", "docno"], as_index=False)["score"].sum())


def runs_of(
    pair: str, dense: DenseRetriever, keep: Path, engine: str, *, measured: bool = True
) -> tuple[XQuADR, dict[str, pd.DataFrame], dict[str, Hybrid]]:
    """Returns a pair's data, what each system finds (with ``measured``), and the hybrids."""
    source, target = pair.split("-")
    data, table, options = XQuADR(source, target), TranslationTable.load(pair), {"engine": engine, "progress": False}
    topics = data.get_topics()
    with tempfile.TemporaryDirectory() as tmp:
        bm25 = bm25_index(data, Path(tmp) / "bm25", **options).bm25()
        vectors = dense.retriever(dense_index(dense, target, keep))
        words = {
            "SMT": SMTQueryTranslator(table) >> bm25,
            "PSQ-HMM": psq_index(data, Path(tmp) / "psq", table, **options).retriever(),
            "human translation": data.human_translation() >> bm25,
        }
        # The human translation is the query of the words only.
        runs = {name: system(topics)[["qid", "docno", "score", "rank"]] for name, system in words.items()}
    found = {name: pt.Transformer.from_df(run) for name, run in runs.items()}
    hybrids = {f"{name} + dense": Hybrid(found[name], vectors, num_results=100) for name in words}
    if measured:
        runs["dense"] = vectors(topics)
        runs["RRF of PSQ-HMM and dense"] = rrf([runs["PSQ-HMM"], runs["dense"]])
        runs |= {name: hybrid(topics) for name, hybrid in hybrids.items()}
    return data, {name: run[run["rank"] < 100].reset_index(drop=True) for name, run in runs.items()}, hybrids


def by_weight(pairs: list[str], dense: DenseRetriever, keep: Path, engine: str) -> tuple[str, list[list[Any]]]:
    """Measures weights: their means over pairs as a table, and for each pair those of both halves."""
    found: list[list[Any]] = []
    for pair in pairs:
        data, _, hybrids = runs_of(pair, dense, keep, engine, measured=False)
        articles = data.articles()
        names = sorted(set(articles))
        chosen = np.random.default_rng(1).permutation(names)[: len(names) // 2]
        half = articles.isin(chosen)
        for name in ("SMT + dense", "PSQ-HMM + dense"):
            runs = {
                str(w): pt.inspect.transformer_apply_attributes(hybrids[name], weight=w)(data.get_topics())
                for w in WEIGHTS
            }
            each: Any = pt.Experiment(runs, data.get_topics(), data.get_qrels(), [AP @ 100], perquery=True)
            each = each.pivot(index="qid", columns="name", values="value")[list(runs)]
            own = half.loc[each.index].to_numpy()
            found.append([pair, name, *each[own].mean(), *each[~own].mean()])
            print(found[-1], flush=True)
    rows = []
    for name, values in pd.DataFrame(found).drop(columns=0).groupby(1, sort=False).mean().iterrows():
        for i, part in enumerate(("one half", "the other half")):
            rows.append([f"{name}, {part}", *values.iloc[i * len(WEIGHTS) : (i + 1) * len(WEIGHTS)].tolist()])
    text = "Means of AP@100 over the pairs, on questions about half of the articles and about the other half.\n\n"
    return text + report.markdown(["weight", *map(str, WEIGHTS)], rows), found


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", metavar="Q-D", help="pairs of languages (all that are bundled)")
    parser.add_argument("--encoder", default="e5-small")
    parser.add_argument("--engine", default="auto", choices=["auto", "pisa", "terrier"])
    parser.add_argument("--weights", action="store_true", help="measure weights, and nothing else")
    parser.add_argument("--keep", type=Path, help="folder where the sentences' vectors are kept")
    args = parser.parse_args()
    usable = [name for name in TranslationTable.bundled() if set(name.split("-")) <= set(xquad_r.LANGUAGES)]
    pairs = args.pairs or usable
    settings = {"encoder": Path(args.encoder).name, "engine": args.engine, "BM25": "k1=0.9, b=0.4",
                "retrieved": "1000 by words and by vectors, 100 measured", "RRF": "k=60", "topics": 1190,
                "test": "two-tailed paired t-test, no correction"}  # fmt: skip
    title = "Words and vectors together: XQuAD-R sentences"
    name = "hybrid" if pairs == usable else f"hybrid-{'-'.join(pairs)}"
    dense = Remembering(args.encoder)
    with tempfile.TemporaryDirectory() as tmp:
        keep = args.keep or Path(tmp)
        if args.weights:
            text, found = by_weight(pairs, dense, keep, args.engine)
            report.write(f"{name}-weights", f"{title}, by weight", [("", text)], settings, found)
            print(text)
            return
        tables: dict[str, list[list[Any]]] = {"AP@100": [], "P@10": []}
        tests, results = [], {}
        for pair in pairs:
            data, runs, _ = runs_of(pair, dense, keep, args.engine)
            measured = {
                baseline: pt.Experiment(
                    {system: runs[system] for system in SYSTEMS}, data.get_topics(), data.get_qrels(),
                    [AP @ 100, P @ 10], baseline=SYSTEMS.index(baseline), test=paired_test(),
                ).set_index("name")
                for baseline in ("dense", "SMT")
            }  # fmt: skip
            for measure, rows in tables.items():
                rows.append([pair, *(float(measured["dense"].loc[system, measure]) for system in SYSTEMS)])
            compared = [(f"{words} + dense", baseline) for words in ("SMT", "PSQ-HMM") for baseline in measured]
            compared.append(("PSQ-HMM", "SMT"))
            tests.append([pair, *(f"{measured[b].loc[a, 'AP@100 p-value']:.1g}" for a, b in compared)])
            results[pair] = {a: frame.reset_index().to_dict(orient="records") for a, frame in measured.items()}
            print(tables["AP@100"][-1], flush=True)
    for rows in tables.values():
        rows.append(["mean", *np.mean([row[1:] for row in rows], axis=0).tolist()])
    sections = [(measure, report.markdown(["pair", *SYSTEMS], rows)) for measure, rows in tables.items()]
    header = ["pair", *(f"{system} against {baseline}" for system, baseline in compared)]
    sections.append(("p of AP@100", report.markdown(header, tests)))
    report.write(name, title, sections, settings, results)
    print((report.RESULTS / f"{name}.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
