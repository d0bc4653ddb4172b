"""The MART paper's Figure 4, the translation gap by layer: ``python -m experiments.figure4 --data clef``.

How alike a model sees words that are translations of each other, compared with random pairs of words, in topics and
documents that are relevant to them. The encoder, MART-PLB and MART are trained as in :mod:`experiments.table2` on the
first of ``--folds`` (0), and measured on its test topics; with the ``--path`` of that experiment, its models are used.
All are measured on word pairs of one table.

``--untrained`` measures the models before training instead: what the translation heads do to the hidden states on
their own, which says nothing about ranking. ``--model DIR DIR`` adds models saved by ``MARTReRanker.save``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd

from experiments import paper, report, study
from experiments.claims import claimed
from experiments.options import at_least
from experiments.ranking import DATA, Setting, System, encoder_of
from pyterrier_mart import MARTReRanker
from pyterrier_mart.evaluation import Fold
from pyterrier_mart.mart.analysis import TranslationGap, gap_plot, translation_gap

_TRAINED: dict[str, dict[str, Any]] = {"encoder": {"mat_layers": ()}, "MART-PLB": {"placebo": True}, "MART": {}}


def options(parser: argparse.ArgumentParser) -> None:
    """Adds what to measure."""
    parser.add_argument("--untrained", action="store_true", help="measure models before training")
    parser.add_argument("--model", type=Path, nargs="+", default=[], help="directories of saved models")
    parser.add_argument("--rows", type=at_least(1), default=200, help="topics, each with a relevant document (200)")
    parser.add_argument(
        "--links",
        choices=["best", "all"],
        default="best",
        help="translations that are compared: the most probable one of each word of a topic, or all (best)",
    )
    parser.add_argument("--word-pairs", type=at_least(1), default=10, help="random pairs of words for each row (10)")


def systems(setting: Setting) -> dict[str, System]:
    """Returns the systems that are trained."""
    return {name: setting.mart(name, **own) for name, own in _TRAINED.items()}


STUDY = study.Study("figure4", "Translation gap by layer", __doc__, paper.pairs("forward"), systems, options=options)


def rankers(setting: Setting, fold: Fold) -> Iterator[tuple[str, MARTReRanker]]:
    """Makes the re-rankers one after the other, each with its name, and trains them."""
    args = setting.args
    for name, own in _TRAINED.items():
        rank = setting.ranker(name, fold, **own)
        if args.untrained:
            yield name if name == "encoder" else f"{name}, untrained", rank
            continue
        setting.pipeline(rank, fold).fit(*_parts(setting, fold.train), *_parts(setting, fold.valid))
        yield name, rank
    names = [path.resolve().name for path in args.model]
    for i, path in enumerate(args.model):
        name = names[i] if names.count(names[i]) == 1 else f"{names[i]} ({i + 1})"
        yield name, MARTReRanker.load(path, device=args.device)


def _parts(setting: Setting, qids: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns topics and judgments in the order of cross-validation, whose trainings are known by their rows."""
    topics, qrels = (frame[frame["qid"].isin(qids)] for frame in (setting.topics, setting.qrels))
    return (
        topics.sort_values("qid", ignore_index=True),
        qrels.sort_values(["qid", "docno"], kind="stable", ignore_index=True),
    )


def sample(setting: Setting, qids: Sequence[str] | None, rows: int) -> pd.DataFrame:
    """Returns topics, each with a relevant document: qid, query, docno, text.

    Args:
        setting: The pair.
        qids: The topics to choose from; ``None`` for all.
        rows: Maximum number of topics.
    """
    seed = setting.args.seed
    relevant = setting.qrels[setting.qrels["label"] > 0]
    if qids is not None:
        relevant = relevant[relevant["qid"].isin(qids)]
    relevant = relevant.sort_values(["qid", "docno"]).sample(frac=1, random_state=seed).drop_duplicates("qid")
    found = setting.topics.merge(relevant, on="qid")
    return setting.data.text_loader("text")(found.sample(n=min(rows, len(found)), random_state=seed))


def measure(setting: Setting) -> dict[str, TranslationGap]:
    """Measures all models on a pair."""
    args = setting.args
    fold = setting.run({"SMT": setting.first()}).folds[0]
    rows = sample(setting, None if args.untrained else fold.test, args.rows)
    gaps = {}
    for name, rank in rankers(setting, fold):
        if args.no_report:
            continue
        gaps[name] = translation_gap(
            rank, rows, table=setting.table, pairs=args.word_pairs, links=args.links, seed=args.seed, verbose=True
        )
        print(f"{name}\n{gaps[name].to_frame().to_string(index=False, float_format='{:.3f}'.format)}\n")
    return gaps


def sections(gaps: Mapping[str, TranslationGap], figure: str, pair: str) -> list[tuple[str, str]]:
    """Returns the figure and the tables of a pair."""
    out = [(pair, f"![Gap by layer, {pair}]({figure})\n")]
    for heading, what in (("gap", "gap"), ("translations", "translated"), ("random pairs", "random")):
        columns = [getattr(gap, what) for gap in gaps.values()]
        # A saved model may have another number of layers.
        lines = [
            [str(layer), *(column[layer] if layer < len(column) else "" for column in columns)]
            for layer in range(max(map(len, columns)))
        ]
        out.append((f"{pair}: {heading}", report.markdown(["layer", *gaps], lines)))
    counts = [[name, gap.rows, gap.n_translated, gap.n_random] for name, gap in gaps.items()]
    out.append((f"{pair}: pairs of words", report.markdown(["system", "rows", "translations", "random pairs"], counts)))
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    args, given = study.parse(STUDY, argv)
    args.folds = (args.folds or [0])[:1]
    with ExitStack() as stack:
        settings = study.prepare(args, stack)
        study.run_jobs(STUDY, args, given)
        gaps = {}
        for pair, setting in settings.items():
            with claimed(setting.path, args.folds):
                gaps[pair] = measure(setting)
        if args.no_report:
            return
        encoder = Path(encoder_of(args)).name
        title = f"{STUDY.title}: {DATA[args.data]}, encoder {encoder}"
        name = args.name or f"{STUDY.key}-{args.data}-{encoder}"
        how = "before training" if args.untrained else f"trained and measured on fold {args.folds[0]} of {study.FOLDS}"
        note = (
            "Mean cosine similarity of the words' hidden states; the gap is that of translations minus that of random "
            f"pairs. Layer 0 is the embeddings. Models: {how}.\n"
        )
        parts = [("", note)]
        for pair, found in gaps.items():
            figure = f"{name}.png" if len(gaps) == 1 else f"{name}-{pair}.png"
            gap_plot(found, report.RESULTS / figure, f"{title}, {pair}")
            parts += sections(found, figure, pair)
        parts.append(("Collections", study.collections(args.data, settings, None)))
        notes = study.kept(args, settings) | {"models": ", ".join(path.resolve().name for path in args.model) or "none"}
        data = {
            pair: {system: gap.to_frame().to_dict("list") | {"rows": gap.rows} for system, gap in found.items()}
            for pair, found in gaps.items()
        }
        report.write(name, title, parts, notes, data)


if __name__ == "__main__":
    main()
