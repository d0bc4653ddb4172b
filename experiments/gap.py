"""The MART paper's Figure 4 on XQuAD-R sentences: ``python -m experiments.gap --pair de-en --encoder e5-small``.

How alike a model sees words that are translations of each other, compared with random pairs of words, layer by layer,
in questions and the sentences that answer them. Systems: the encoder as it is, MART-PLB and MART before training, and
models saved by ``MARTReRanker.save`` (``--model DIR DIR ...``). Before training, this shows what the translation heads
do to the hidden states on their own, and nothing about ranking. All systems are measured on word pairs of one table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments import report
from pyterrier_mart import MARTReRanker, TranslationTable
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.mart.analysis import TranslationGap, gap_plot, translation_gap


def sample(pair: str, rows: int, seed: int) -> pd.DataFrame:
    """Returns questions, each with its relevant sentence: qid, query, docno, text."""
    data = xquad_r.XQuADR(*pair.split("-"))
    documents = data.documents()
    found = data.get_topics().merge(data.get_qrels(), on="qid")
    found = found.sample(n=min(rows, len(found)), random_state=seed)
    return found.assign(text=[documents[docno]["text"] for docno in found["docno"]])


def systems(args: argparse.Namespace, table: TranslationTable) -> Iterator[tuple[str, MARTReRanker]]:
    """Makes the re-rankers one after the other, each with its name."""
    common: dict[str, Any] = {"dtype": "float32", "device": args.device}
    untrained = {"mat_layers": tuple(args.mat_layers), "translation_init": args.init, **common}
    yield "encoder", MARTReRanker(args.encoder, mat_layers=(), **common)
    yield "MART-PLB, untrained", MARTReRanker(args.encoder, placebo=True, **untrained)
    yield "MART, untrained", MARTReRanker(args.encoder, table, **untrained)
    names = [path.resolve().name for path in args.model]
    for i, path in enumerate(args.model):
        name = names[i] if names.count(names[i]) == 1 else f"{names[i]} ({i + 1})"
        yield name, MARTReRanker.load(path, **common)


def sections(gaps: dict[str, TranslationGap], figure: str) -> list[tuple[str, str]]:
    """Returns the tables and the figure."""
    out = []
    for heading, what in (("Gap", "gap"), ("Translations", "translated"), ("Random pairs", "random")):
        columns = [getattr(gap, what) for gap in gaps.values()]
        # A saved model may have another number of layers.
        lines = [
            [str(layer), *(column[layer] if layer < len(column) else "" for column in columns)]
            for layer in range(max(map(len, columns)))
        ]
        out.append((heading, report.markdown(["layer", *gaps], lines)))
    counts = [[name, gap.rows, gap.n_translated, gap.n_random] for name, gap in gaps.items()]
    out.append(("Pairs", report.markdown(["system", "rows", "translations", "random pairs"], counts)))
    note = "Mean cosine similarity of the words' hidden states; the gap is that of translations minus that of random"
    return [("", f"{note} pairs. Layer 0 is the embeddings.\n\n![Gap by layer]({figure})\n"), *out]


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default="de-en", help="languages of the questions and of the sentences")
    parser.add_argument("--encoder", default="e5-small")
    parser.add_argument("--table", help="a translation table instead of the bundled one")
    parser.add_argument("--model", type=Path, nargs="*", default=[], help="directories of saved models")
    parser.add_argument("--rows", type=int, default=200, help="questions (200)")
    parser.add_argument("--pairs", type=int, default=10, help="random pairs of words for each question (10)")
    parser.add_argument("--mat-layers", type=int, nargs="+", default=[-3, -2])
    parser.add_argument("--init", default="identity", choices=["identity", "random", "zero"])
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--device")
    parser.add_argument("--name", help="write results/NAME.md, .json and .png")
    args = parser.parse_args()
    table = TranslationTable.load(args.table or args.pair)
    rows = sample(args.pair, args.rows, args.seed)
    gaps: dict[str, TranslationGap] = {}
    for name, reranker in systems(args, table):
        gaps[name] = translation_gap(reranker, rows, table=table, pairs=args.pairs, seed=args.seed, verbose=True)
        print(f"{name}\n{gaps[name].to_frame().to_string(index=False, float_format='{:.3f}'.format)}\n")
    title = f"Translation gap by layer, XQuAD-R {args.pair}, encoder {args.encoder}"
    name = args.name or f"gap-{args.pair}-{Path(args.encoder).name}"
    gap_plot(gaps, report.RESULTS / f"{name}.png", title)
    elsewhere = ("name", "model", "table")
    settings = {key: value for key, value in vars(args).items() if key not in elsewhere}
    settings |= {"table": repr(table), "models": ", ".join(path.resolve().name for path in args.model) or "none"}
    data = {system: gap.to_frame().to_dict("list") | {"rows": gap.rows} for system, gap in gaps.items()}
    report.write(name, title, sections(gaps, f"{name}.png"), settings, data)


if __name__ == "__main__":
    main()
