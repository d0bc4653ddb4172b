r"""The MAML-Align paper's Tables 1, 6, 7, 8 and Figures 4, 5, 6: ``python -m experiments.meta --table 1 --folds 0``.

The task is LAReQA: questions of XQuAD-R in seven languages, candidate sentences in the question's language (mono), in
another one (bi) or in all of them (multi). Folds are the paper's, by article. Systems of Table 1:

- ``zero-shot``: the encoder as it is; ``centring``: with the mean of each language taken away, learned from training
  texts without labels;
- ``fine-tune``: on the meta-tasks' rows with the paper's triplet loss, as many steps as the meta-learners;
- ``joint``: on MAML-Align's tasks with its loss and number of steps, without inner loops and distillation;
- ``few-shot``: on rows in one and two languages with the multiple negatives ranking loss, small batches and more steps;
- ``maml``, ``maml-align``: meta-learning with the recommended settings;
- ``t-train-fine-tune``, ``t-train-maml``, with ``--translated DIR``: on training data that was translated, within each
  of its languages (:mod:`experiments.translated` says which files it has).

Each may be followed by ``+centring``. What was measured of a model in a fold stays under ``--path`` and is used
again: several processes may work on one path, each with its own ``--systems`` and ``--folds``, and a last call makes
the table. An interrupted training resumes. Settings are changed with ``--set``, for all models or one::

    python -m experiments.meta --table 1 --encoder e5-small --folds 0 --steps 15 --dev 2 --path DIR \
        --set inner_steps=1 --set few-shot.max_steps=60

Figures show MAML and fine-tuning by transfer mode (4), and MAML and MAML-Align by how query sets are sampled (5) and by
negatives (6). The transfer mode ``trans`` trains on development articles too, in another mode; epochs are as short as
``--steps`` then, so that it gets to them.

``--preset paper`` has the paper's settings (``MetaConfig.paper``), encoder, lengths and paragraphs, MAML in the mode
``trans``, and trains until the development set stops it; ``--preset code`` those of the authors' code. An option that
is given counts in any case. All at once in minutes on a CPU, where nothing is learned (``results/meta.md`` has more)::

    python -m experiments.meta --preset paper --systems zero-shot maml fine-tune --encoder minilm-l6-en --folds 0 \
        --steps 4 --dev 1 --dev-languages de el --doc-text sentence --languages ar de el hi --max-length 8 12 \
        --sts off --set inner_steps=1 --set maml.k_shot=2 --set maml.q_query=2
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from experiments import report
from experiments.meta_systems import CENTRED, PLAIN, Bench, Recipe, changed, recipes
from experiments.meta_tables import Measured, bars
from experiments.options import at_least, device, parse
from pyterrier_mart.datasets.corpus import XQUAD_R_LANGS
from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
from pyterrier_mart.files import atomic_file
from pyterrier_mart.meta.config import ALGORITHMS, NEGATIVES, QUERY_SAMPLING
from pyterrier_mart.meta.learners import LEARNERS
from pyterrier_mart.meta.sampling import TripletTaskSampler
from pyterrier_mart.meta.tasks import PAIR_TRANSFER_MODES, TRANSFER_MODES

_MODELS = ("zero-shot", "fine-tune", "few-shot", "joint", "maml", "maml-align")
_T_TRAIN = ("t-train-fine-tune", "t-train-maml")
_SYSTEMS = tuple(system for model in (*_MODELS, *_T_TRAIN) for system in (model, f"{model}+centring"))
_DEFAULT = (
    "zero-shot", "zero-shot+centring", "fine-tune", "few-shot", "few-shot+centring", "joint", "joint+centring", "maml",
    "maml-align", "maml-align+centring",
)  # fmt: skip
#: What is published of options besides ``MetaConfig.paper``.
_PUBLISHED: dict[str, Any] = {
    "encoder": "sentence-transformers/paraphrase-multilingual-mpnet-base-v2", "doc_text": "sentence+context",
    "max_length": [96, 256], "steps": None,
}  # fmt: skip
#: By name, options that are not those of the parser.
PRESETS: dict[str, dict[str, Any]] = {"recommended": {}, "paper": _PUBLISHED, "code": _PUBLISHED}
_STEPS = 15
_LABELS = {"maml": "MAML", "maml-align": "MAML-Align", "fine-tune": "Fine-tune"}


class System(NamedTuple):
    """A model, and what is done to its vectors."""

    recipe: Recipe
    vectors: str = PLAIN


def table_systems(args: argparse.Namespace) -> dict[str, System]:
    """Returns the systems of Tables 1, 7 and 8."""
    made = recipes(args)
    found = {}
    for name in args.systems or (*_DEFAULT, *(_T_TRAIN if args.translated is not None else ())):
        model, _, centred = name.partition("+")
        found[name.replace("+", " + ")] = System(made[model], CENTRED if centred else PLAIN)
    return found


def sts_systems(args: argparse.Namespace) -> dict[str, System]:
    """Returns the systems that are trained with pairs of STS17, for ``--sts train``.

    All have the loss of graded pairs. MAML-Align has the one path of the paper's three that needs no machine
    translation.
    """
    found = {}
    asked = {system.partition("+")[0] for system in args.systems or (*_DEFAULT, *_T_TRAIN)}
    for name, recipe in recipes(args).items():
        if name not in asked:
            continue
        if name in ("few-shot", "joint"):  # differ from fine-tune in the loss, which is the same here
            continue
        config = recipe.config
        if recipe.algorithm != "zero-shot":
            own = {"loss": "cosine-similarity", "kd": "margin-mse"}
            if config.transfer in TRANSFER_MODES and config.transfer not in PAIR_TRANSFER_MODES:
                own["transfer"] = "mono-bi"  # as the paper's MAML does here
            config = changed({**config.as_json(), **own}, name, args.set)
        found[name] = System(Recipe(name, recipe.algorithm, config, pairs=True, translated=recipe.translated))
    return found


def figure_systems(args: argparse.Namespace) -> dict[str, System]:
    """Returns the systems of a figure: zero-shot, and models with one setting changed."""
    made = recipes(args)
    found = {"zero-shot": System(made["zero-shot"])}
    variants: list[tuple[str, str, dict[str, Any]]] = []
    if args.figure == 4:
        for mode in TRANSFER_MODES:
            # Only the tasks of the development set make trans another mode than mono-bi.
            changes = {"transfer": mode, **({"update_on_valid": True} if mode == "trans" else {})}
            of_mode = ("maml-align",) if mode == "mono-bi-multi" else ("fine-tune", "maml")
            variants += [(algorithm, mode, changes) for algorithm in of_mode]
    else:
        for algorithm in ("maml", "maml-align"):
            # With the triplet loss's margin of 1 no document would be easy: cosines of e5-small are from 0.7 to 1.
            margin = {} if made[algorithm].config.loss.startswith("triplet") else {"triplet_margin": 0.05}
            if args.figure == 5:
                variants += [(algorithm, way, {"query_sampling": way}) for way in QUERY_SAMPLING]
            else:
                variants += [(algorithm, kind, {"negatives": kind, **margin}) for kind in NEGATIVES]
    for algorithm, label, changes in variants:
        if args.systems and label not in args.systems:
            continue
        config = changed({**made[algorithm].config.as_json(), **changes}, algorithm, args.set)
        found[f"{_LABELS[algorithm]} {label}"] = System(Recipe(f"{algorithm} {label}", algorithm, config))
    return found


def measure(bench: Bench, systems: Mapping[str, System]) -> Measured:
    """Trains and measures what is not under the path, and returns all."""
    made = {system.recipe.slug: system.recipe for system in systems.values()}
    results = bench.results(made.values())
    values: dict[str, list[pd.DataFrame]] = {}
    sts: dict[str, list[pd.DataFrame]] = {}
    info: dict[str, list[Mapping[str, Any]]] = {}
    bias: dict[str, list[pd.DataFrame]] = {}
    for name, system in systems.items():
        folds = [results[system.recipe.slug, index] for index in bench.folds()]
        plain = system.vectors == PLAIN
        values[name] = [fold.values[system.vectors] for fold in folds if fold.values]
        # Centring with texts of XQuAD-R is not defined for the languages of STS17.
        sts[name] = [fold.sts for fold in folds if plain and len(fold.sts)]
        info[name] = [fold.info if plain else {} for fold in folds]
        bias[name] = [pd.DataFrame(fold.info["bias"][system.vectors]) for fold in folds if fold.values]
    topics = bench.corpus.topics
    qgroups = dict(zip(topics["qid"], topics["qgroup"], strict=True))
    baseline = "zero-shot" if "zero-shot" in systems else None
    return Measured(values, sts, info, bias, qgroups, baseline)


def run_time(args: argparse.Namespace, bench: Bench) -> tuple[str, dict[str, Any]]:
    """Times meta-steps of every algorithm on the same model, data and number of rows."""
    fold = bench.fold(min(args.folds))
    made = recipes(args)
    times: dict[str, list[float]] = {}
    transfer = {}
    for algorithm in ("fine-tune", *(name for name in ALGORITHMS if name not in ("fine-tune", "zero-shot"))):
        config = made["maml-align" if algorithm == "maml-align" else "maml"].config
        encoder = TextEncoder(load_sentence_transformer(args.encoder, device=args.device), config.max_length)
        learner = LEARNERS[algorithm](encoder, config)
        batches = TripletTaskSampler(fold.train, config, "train", encoder).batches(config.meta_batch_size, 0)
        seconds = []
        for _ in range((args.steps or _STEPS) + 1):
            seconds.append(learner.meta_step(next(batches)).seconds)
            print(f"{algorithm}: {seconds[-1]:.1f} s", flush=True)
        times[algorithm], transfer[algorithm] = seconds, config.transfer
    medians = {algorithm: statistics.median(seconds[1:]) for algorithm, seconds in times.items()}
    rows = [[name, transfer[name], f"{s:.1f}", f"{s / medians['fine-tune']:.1f}"] for name, s in medians.items()]
    note = "Median of the meta-steps after the first one, one process.\n\n"
    return note + report.markdown(["algorithm", "transfer", "s per meta-step", "times fine-tune"], rows), times


def settings(args: argparse.Namespace, systems: Mapping[str, System]) -> dict[str, Any]:
    """Returns the options and, for each model, what is not the default of MetaConfig."""
    elsewhere = ("path", "name", "save_models", "systems", "table", "figure", "encoder")  # some are paths
    kept = {name: value for name, value in vars(args).items() if name not in elsewhere}
    if args.translated is not None:
        kept["translated"] = args.translated.name
    trained = {s.recipe.slug: s.recipe for s in systems.values() if s.recipe.algorithm != "zero-shot"}
    models = {slug: f"{recipe.algorithm}, {recipe.config.short()}" for slug, recipe in trained.items()}
    return {"encoder": Path(args.encoder).name, **kept, **models}


def arguments() -> argparse.ArgumentParser:
    """Returns the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--table", type=int, choices=[1, 6, 7, 8], default=1)
    what.add_argument("--figure", type=int, choices=[4, 5, 6])
    parser.add_argument("--encoder", default="e5-small")
    parser.add_argument("--languages", nargs="+", default=list(XQUAD_R_LANGS))
    parser.add_argument("--doc-text", choices=["sentence", "sentence+context"], default="sentence")
    parser.add_argument("--max-length", type=int, nargs=2, default=[64, 96], metavar=("QUESTION", "DOCUMENT"))
    parser.add_argument("--folds", type=int, nargs="+", choices=range(5), default=[0, 1, 2, 3, 4])
    parser.add_argument("--valid", choices=["last", "rotating"], default="last", help="development sets")
    parser.add_argument("--systems", nargs="+", help=f"some of {', '.join(_SYSTEMS)}; in figures, some of the settings")
    parser.add_argument("--set", action="append", default=[], metavar="[MODEL.]NAME=VALUE", help="a MetaConfig value")
    parser.add_argument(
        "--steps", type=at_least(1), default=_STEPS, help=f"meta-steps at most ({_STEPS}; published: 20 epochs)"
    )
    parser.add_argument(
        "--dev",
        type=at_least(0),
        metavar="N",
        help="number of development articles to choose the step on (all; 0: keep the last step)",
    )
    parser.add_argument("--dev-languages", nargs="+", help="languages of queries and documents to choose it on (all)")
    parser.add_argument("--metric", choices=["multi", "bi", "mono", "mean"], default="multi", help="to choose it by")
    parser.add_argument("--centring-texts", type=at_least(1), default=200, help="of each language and side (200)")
    parser.add_argument(
        "--sts",
        choices=["off", "evaluate", "train"],
        default="evaluate",
        help="measure the models on STS17 too, or train and measure on it alone",
    )
    parser.add_argument("--translated", type=Path, metavar="DIR", help="training data that was translated")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--device", type=device)
    parser.add_argument("--path", type=Path, help="keep what is measured here, and go on from there")
    parser.add_argument("--save-models", type=Path, metavar="DIR", help="save trained models here")
    parser.add_argument("--name", help="write results/NAME.md and .json")
    return parser  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    parser = arguments()
    given = list(sys.argv[1:] if argv is None else argv)
    args = parse(parser, given, PRESETS)
    if args.translated is None and any(name.startswith("t-train") for name in args.systems or ()):
        parser.error("--systems: t-train needs --translated DIR")
    known = {None: _SYSTEMS, 4: tuple(TRANSFER_MODES), 5: QUERY_SAMPLING, 6: NEGATIVES}[args.figure]
    unknown = [name for name in args.systems or () if name not in known]
    if unknown:
        parser.error(f"--systems: expected some of {', '.join(known)}, found {unknown[0]!r}")
    bench = Bench(args)
    kind = f"figure-{args.figure}" if args.figure else f"table-{args.table}"
    encoder = Path(args.encoder).name
    name = args.name or f"meta-{kind}-{encoder}"
    if args.table == 6 and not args.figure:
        text, data = run_time(args, bench)
        report.write(name, f"Run time of a meta-step, encoder {encoder}", [("", text)], settings(args, {}), data)
        print(text)
        return

    if args.figure:
        systems = figure_systems(args)
    else:
        systems = sts_systems(args) if args.sts == "train" else table_systems(args)
    measured = measure(bench, systems)
    folds = list(bench.folds())
    several = "means over folds and standard deviations (ddof 1)" if len(folds) > 1 else "one fold"
    note = f"AP@20 and correlations x100, folds {', '.join(map(str, folds))} of 5 ({several})."
    sections = [("", f"{note} Candidates are those of a fold's test articles.\n")]
    main_table = ("", measured.modes())
    if args.figure:
        subject = {4: "transfer mode", 5: "query sampling", 6: "negatives"}[args.figure]
        title = f"Meta-learning by {subject}, encoder {encoder}"
        bars(measured, "multi", report.RESULTS / f"{name}.png", title)
        sections += [("", f"![multi mAP@20]({name}.png)\n"), main_table, ("Tests", measured.comparisons())]
    elif args.table == 7:
        title = f"LAReQA by language, encoder {encoder}"
        sections += measured.languages()
    elif args.table == 8:
        title = f"STS17 by track, encoder {encoder}"
        sections += measured.tracks()
    else:
        title = f"Meta-learning for multilingual search, encoder {encoder}"
        sections += [main_table, ("Tests", measured.comparisons())]
        if measured.ranked:
            sections.append(("Language bias", measured.shares()))
    sections.append(("Training", measured.training()))
    sections = [(heading, text) for heading, text in sections if text]
    report.write(name, title, sections, settings(args, systems), measured.data())
    if measured.ranked:
        with atomic_file(report.RESULTS / f"{name}.queries.tsv") as tmp:
            measured.questions().to_csv(tmp, sep="\t", float_format="%.4g")
    print((report.RESULTS / f"{name}.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
