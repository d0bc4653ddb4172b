"""What the experiments with the re-ranker have in common: data, first stage, systems, options."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from experiments import report
from pyterrier_mart import MARTReRanker, SMTQueryTranslator, TrainingOptions, TranslationTable, bm25_index
from pyterrier_mart.datasets import XQuADR
from pyterrier_mart.evaluation import CrossValidation, Fold, cross_validate, to_markdown
from pyterrier_mart.files import atomic_file

__all__ = ["Setting", "arguments", "write"]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options that all have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["xquad-r"], default="xquad-r")
    parser.add_argument("--pair", default="de-en", help="languages of the questions and of the sentences")
    parser.add_argument("--encoder", default="e5-small")
    parser.add_argument("--table", help="a translation table instead of the bundled one")
    parser.add_argument("--folds", type=int, nargs="*", help="the folds to run, of 5 (all)")
    parser.add_argument("--train-size", type=int, help="use so many training questions (all)")
    parser.add_argument("--depth", type=int, default=100, help="documents to re-rank (100)")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--patience", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--new-learning-rate", type=float, help="of the translation heads and the linear layer")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--accumulation", type=int, default=8)
    parser.add_argument("--validation-depth", type=int, default=100)
    parser.add_argument("--validation-queries", type=int, help="validate on so many questions (all; 0: keep the last)")
    parser.add_argument("--schedule", default="constant_with_warmup", help="of the learning rate, or linear")
    parser.add_argument("--freeze-layers", type=int, help="0: the embeddings keep their weights, n: and n layers")
    parser.add_argument("--mat-layers", type=int, nargs="+", default=[-3, -2])
    parser.add_argument("--pooling", default="cls", choices=["cls", "pooler"])
    parser.add_argument("--init", default="identity", choices=["identity", "random", "zero"])
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--device")
    parser.add_argument("--path", type=Path, help="keep runs here, and go on from there")
    parser.add_argument("--name", help="write results/NAME.md and .json")
    return parser


class Setting:
    """Data and first stage of an experiment; makes systems."""

    def __init__(self, args: argparse.Namespace, stack: ExitStack):
        self.args = args
        source, target = args.pair.split("-")
        self.data = XQuADR(source, target)
        self.topics, self.qrels = self.data.get_topics(), self.data.get_qrels()
        self.articles = self.data.articles()
        self.table = TranslationTable.load(args.table or args.pair)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.bm25 = bm25_index(self.data, Path(folder) / "index", progress=False).bm25(num_results=100)
        self.first = SMTQueryTranslator(self.table) >> self.bm25

    def options(self, label: str, fold: Fold) -> TrainingOptions:
        """Returns how to train."""
        a = self.args
        place = a.path / "training" / f"{label}-{fold.index}".replace(" ", "-") if a.path is not None else None
        return TrainingOptions(
            epochs=a.epochs, patience=a.patience, learning_rate=a.learning_rate,
            new_learning_rate=a.new_learning_rate, batch_size=a.batch_size, accumulation=a.accumulation,
            validation_depth=a.validation_depth, validation_queries=a.validation_queries,
            freeze_layers=a.freeze_layers,
            seed=a.seed + fold.index, trainer={"lr_scheduler_type": a.schedule},
            output_dir=place,
        )  # fmt: skip

    def mart(self, label: str, **options: Any) -> Callable[[Fold], pt.Transformer]:
        """Returns what makes the pipeline with a re-ranker for a fold; it goes on where it was interrupted."""

        def make(fold: Fold) -> pt.Transformer:
            defaults: dict[str, Any] = {
                "table": self.table, "mat_layers": tuple(self.args.mat_layers), "translation_init": self.args.init,
                "pooling": self.args.pooling,
                "training": self.options(label, fold), "positives_text": self.data, "device": self.args.device,
                "verbose": True,
            }  # fmt: skip
            rank = MARTReRanker(options.get("model", self.args.encoder), **{**defaults, **options})
            texts = self.data.text_loader()
            return self.first % self.args.depth >> texts >> rank >> RestOf(self.first)

        return make

    def human(self) -> pt.Transformer:
        """Returns the upper bound: human translations of the questions."""
        return self.data.human_translation() >> self.bm25

    def run(self, systems: Mapping[str, Any]) -> CrossValidation:
        """Trains and tests systems."""
        a = self.args
        settings = {name: self.settings() for name in systems}
        return cross_validate(
            systems, self.topics, self.qrels, groups=self.articles, path=a.path, only=a.folds or None,
            train_size=a.train_size, seed=a.seed, settings=settings, verbose=True,
        )  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """Returns the options, as JSON values."""
        elsewhere = ("path", "name", "folds", "systems", "knowledge", "vectors")  # some are paths
        kept = {name: value for name, value in vars(self.args).items() if name not in elsewhere}
        return {**kept, "table": repr(self.table)}


class RestOf(pt.Transformer):
    """Adds the documents of a first stage that were not re-ranked below those that were.

    AP@100 of a re-ranked top 20 would otherwise lose what the first stage found below it.
    """

    def __init__(self, first: pt.Transformer):
        self.first = first

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds them."""
        columns = [name for name in ("qid", "docno", "score", "rank") if name in inp]
        if inp.empty:
            return inp[columns]
        topics = inp[["qid", "query"]].drop_duplicates("qid")
        return (pt.Transformer.from_df(inp[columns]) ^ self.first)(topics)[columns]


def write(
    name: str,
    title: str,
    setting: Setting,
    results: CrossValidation,
    baseline: str,
    notes: Sequence[tuple[str, str]] = (),
) -> None:
    """Prints the table of an experiment, and writes it with its settings to the results."""
    table = results.experiment(baseline=baseline)
    text = to_markdown(table, baseline=baseline)
    tested = f"{len(results.topics)} test questions, folds {', '.join(str(fold.index) for fold in results.folds)} of 5"
    print(f"{title}; {tested}\n\n{text}")
    times = {}
    if setting.args.path is not None:
        for slug in sorted(setting.args.path.glob("*/fold-*.json")):
            times[f"{slug.parent.name}/{slug.stem}"] = pd.read_json(slug, typ="series").get("seconds")
    rows = json.loads(table.to_json(orient="records", double_precision=15))  # what is no number becomes null
    each = results.per_query().pivot(index=["measure", "qid"], columns="name", values="value")
    with atomic_file(report.RESULTS / f"{name}.queries.tsv") as tmp:
        each[list(results.systems)].to_csv(tmp, sep="\t", float_format="%.6g")
    data = {"table": rows, "seconds": times}
    report.write(name, title, [("", f"{tested}, split by article.\n\n{text}"), *notes], setting.settings(), data)
