r"""The MART paper's Table 2, other languages to English documents: ``python -m experiments.table2 --data clef``.

The pairs are from French, Italian, German, Spanish, Somali and Swahili (the last two are no part of CLEF: put them into
its folder as ``topics.so.tsv`` and ``topics.sw.tsv``). ``--pairs`` names others: forward, backward and low-resource are
groups of the paper's.

Systems: SMT (the query translated with the table, BM25), the plain encoder fine-tuned as a cross-encoder (m²BERT in the
paper: ``--encoder amberoad/bert-multilingual-passage-reranking-msmarco --pooling pooler``), MART-PLB (the same layers
without translations), MART, and BM25 with human translations as the upper bound. All re-rankers are trained alike, in
five folds: each topic is ranked by a model that has not seen it (XQuAD-R: nor its article).

With ``--path DIR`` an interrupted run resumes, and with ``--devices cuda:0 cuda:1`` a process on each
device works through pairs and folds::

    python -m experiments.table2 --data clef --home CLEF --path runs --devices cuda:0 cuda:1 --bf16
    python -m experiments.table2 --data xquad-r --pairs de-en --folds 0 --epochs 2 --depth 10

The defaults are ours. ``--preset paper`` has the paper's setting: no translations of other forms, stop words of topics
dropped, all words linked to themselves, no clipping of gradients, translation heads that start at random, PanLex
without its qualities (Table 4), the gap over all links (Figure 4). An option that is given counts in any case::

    python -m experiments.table2 --data xquad-r --pairs de-en --folds 0 --preset paper --epochs 1 --train-size 40 \
        --depth 5 --negative-depth 20 --validation-queries 0
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from experiments import paper, study
from experiments.ranking import Setting, System

SYSTEMS = ("SMT", "encoder", "MART-PLB", "MART", "human translation")


def systems(setting: Setting) -> dict[str, System]:
    """Returns the systems of a pair, in the order of the table."""
    made = {
        "SMT": setting.first(),
        "encoder": setting.mart("encoder", mat_layers=()),
        "MART-PLB": setting.mart("MART-PLB", placebo=True),
        "MART": setting.mart("MART"),
        "human translation": setting.human(),
    }
    return {name: made[name] for name in setting.args.systems}


def options(parser: argparse.ArgumentParser) -> None:
    """Adds which systems to run."""
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="some of the rows")


STUDY = study.Study(
    "table2", "Other languages to English", __doc__, paper.pairs("forward", "low-resource"), systems, options=options
)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    study.main(STUDY, argv)


if __name__ == "__main__":
    main()
