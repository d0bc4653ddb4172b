"""Dense retrieval and re-ranking on XQuAD-R sentences: ``python -m experiments.dense --pair de-en --encoder e5-small``.

Systems in one table: SMT (the query translated with the table, BM25), a multilingual sentence encoder that retrieves,
and that re-ranks what SMT found, each with and without the mean vector of each language taken away (centring), and BM25
with human translations. With ``--model DIR``, a model that was meta-trained and saved does the same
(``experiments.meta --save-models``); with ``--mart-epochs N``, MART is trained on the fold's training questions, with
the settings that README.md recommends for a CPU, and re-ranks.

Centring learns from texts without labels: from the training articles with ``--fold``, otherwise from those of the
collection itself. What is trained is tested on articles that it has not seen: ``--fold`` is the fold of
``experiments.meta`` that ``--model`` was trained in.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pyterrier as pt

from experiments import report
from experiments.options import at_least, device
from experiments.ranking import RestOf
from pyterrier_mart import MARTReRanker, SMTQueryTranslator, TrainingOptions, TranslationTable, bm25_index
from pyterrier_mart.datasets import XQuADR
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.evaluation import METRICS, paired_test, to_markdown
from pyterrier_mart.evaluation.folds import kfold_by_group
from pyterrier_mart.files import atomic_file
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.retriever import MetaSBERTRetriever


def dense_systems(
    label: str,
    model: MetaSBERTRetriever,
    first: pt.Transformer,
    data: XQuADR,
    unlabelled: MultilingualCorpus,
    folder: Path,
    depth: int,
) -> dict[str, pt.Transformer]:
    """Returns retrieval and re-ranking with an encoder, as it is and centred."""
    found: dict[str, pt.Transformer] = {}
    centring = LanguageCentering.fit_corpus(model, unlabelled, sample=200)
    for name, dense in ((label, model), (f"{label}, centred", model.apply_attributes(post=centring))):
        index = dense.index(folder / name.replace(" ", "-"), data)
        found[name] = dense.retriever(index, num_results=100)
        found[f"SMT >> {name}"] = first % depth >> data.text_loader() >> dense >> RestOf(first)
    return found


def _training(args: argparse.Namespace) -> TrainingOptions:
    return TrainingOptions(
        epochs=args.mart_epochs, learning_rate=1e-4, new_learning_rate=1e-3, accumulation=4, freeze_layers=6,
        validation_queries=0, trainer={"lr_scheduler_type": "linear"},
    )  # fmt: skip


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default="de-en", help="languages of the questions and of the sentences")
    parser.add_argument("--encoder", default="e5-small")
    parser.add_argument("--table", help="a translation table instead of the bundled one")
    parser.add_argument("--model", type=Path, help="a saved MetaSBERTRetriever")
    parser.add_argument("--mart-epochs", type=at_least(0), default=0, help="epochs to train MART for (0: leave it out)")
    parser.add_argument("--mart-depth", type=at_least(1), default=10, help="documents that MART re-ranks (10)")
    parser.add_argument("--fold", type=int, choices=range(5), help="test on this fold of experiments.meta (all)")
    parser.add_argument("--max-length", type=int, nargs=2, default=[64, 96], metavar=("QUESTION", "DOCUMENT"))
    parser.add_argument("--depth", type=at_least(1), default=100, help="documents to re-rank (100)")
    parser.add_argument("--device", type=device)
    parser.add_argument("--name", help="write results/NAME.md and .json")
    args = parser.parse_args()
    if args.fold is None and (args.model is not None or args.mart_epochs):
        parser.error("--model and --mart-epochs need --fold: what is trained must be tested on other questions")

    source, target = args.pair.split("-")
    data = XQuADR(source, target)
    topics, qrels = data.get_topics(), data.get_qrels()
    corpus = unlabelled = MultilingualCorpus.from_dataset(data)
    known = topics.iloc[:0]
    if args.fold is not None:
        part = next(fold for fold in kfold_by_group(corpus) if fold.index == args.fold)
        unlabelled = part.train
        known = topics[topics["qid"].isin(part.train.topics["qid"])].reset_index(drop=True)
        topics = topics[topics["qid"].isin(part.test.topics["qid"])].reset_index(drop=True)

    table = TranslationTable.load(args.table or args.pair)
    languages: dict[str, Any] = {"query_lang": source, "doc_lang": target}
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        bm25 = bm25_index(data, folder / "bm25", progress=False).bm25(num_results=100)
        first = SMTQueryTranslator(table) >> bm25
        config = MetaConfig(max_length=tuple(args.max_length))
        plain = MetaSBERTRetriever(args.encoder, config=config, device=args.device, **languages)
        systems = {"SMT": first, **dense_systems("dense", plain, first, data, unlabelled, folder, args.depth)}
        if args.model is not None:
            trained = MetaSBERTRetriever.load(args.model, device=args.device).apply_attributes(**languages)
            systems |= dense_systems("meta-trained", trained, first, data, unlabelled, folder, args.depth)
        if args.mart_epochs:
            mart = MARTReRanker(args.encoder, table, training=_training(args), positives_text=data, verbose=True)
            pipeline: Any = first % args.mart_depth >> data.text_loader() >> mart
            pipeline.fit(known, qrels)
            systems["SMT >> MART"] = pipeline >> RestOf(first)
        systems["human translation"] = data.human_translation() >> bm25
        runs, seconds = {}, {}
        for name, system in systems.items():
            start = time.perf_counter()
            runs[name] = system(topics)
            seconds[name] = round(time.perf_counter() - start, 1)
            print(f"{name}: {seconds[name]} s", flush=True)
    qrels = qrels[qrels["qid"].isin(topics["qid"])].reset_index(drop=True)
    options: dict[str, Any] = {"baseline": 0, "correction": "holm", "test": paired_test()}
    frame: Any = pt.Experiment(dict(runs), topics, qrels, list(METRICS), **options)
    # ir_measures does not keep the order of the measures.
    details = {str(metric): [name for name in frame if name.startswith(str(metric))] for metric in METRICS}
    frame = frame[["name", *(name for names in details.values() for name in names)]]
    each: Any = pt.Experiment(dict(runs), topics, qrels, list(METRICS), perquery=True)

    name = args.name or f"dense-{args.pair}-{Path(args.encoder).name}"
    title = f"Dense retrieval and re-ranking: XQuAD-R {args.pair} sentences, encoder {Path(args.encoder).name}"
    means = "the training articles" if args.fold is not None else "the collection itself, without labels"
    text = (
        f"{len(topics)} questions, {len(data.documents())} sentences. Means of languages are from {means}.\n\n"
        f"{to_markdown(frame, baseline='SMT')}"
    )
    columns = each.pivot(index=["measure", "qid"], columns="name", values="value")[list(systems)]
    with atomic_file(report.RESULTS / f"{name}.queries.tsv") as path:
        columns.to_csv(path, sep="\t", float_format="%.6g")
    elsewhere = ("name", "model", "table", "encoder")  # some are paths
    settings = {key: value for key, value in vars(args).items() if key not in elsewhere}
    settings |= {"encoder": Path(args.encoder).name, "table": repr(table), "BM25": "k1=0.9, b=0.4",
                 "test": "two-tailed paired t-test against SMT, Holm-corrected"}  # fmt: skip
    rows = json.loads(frame.to_json(orient="records", double_precision=15))  # what is no number becomes null
    report.write(name, title, [("", text)], settings, {"table": rows, "seconds": seconds})
    print(f"{title}\n\n{text}")


if __name__ == "__main__":
    main()
