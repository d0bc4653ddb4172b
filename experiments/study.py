"""How the drivers of tables and figures run: options, jobs on several devices, report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments import paper, parallel, report
from experiments.claims import claimed
from experiments.options import device
from experiments.options import parse as parse_options
from experiments.outcome import Outcome, seconds
from experiments.paper import GROUPS
from experiments.ranking import DATA, FOLDS, Setting, System, arguments, encoder_of
from pyterrier_mart.evaluation import CrossValidation
from pyterrier_mart.files import atomic_file

__all__ = ["FOLDS", "Study", "collections", "kept", "main", "parse", "prepare", "run_jobs"]


def _no_options(parser: argparse.ArgumentParser) -> None:
    """Adds nothing."""


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper.

    Attributes:
        key: Name of the module, such as ``"table2"``.
        title: What it shows.
        description: What ``--help`` says.
        pairs: By name of the collection, the pairs of languages.
        systems: Makes the systems of a pair.
        baselines: Names the systems that the others are compared with.
        options: Adds options of its own.
        notes: Gives more sections of the report: heading and text.
        draw: Draws a figure of the outcome to a file, and names it.
    """

    key: str
    title: str
    description: str | None
    pairs: Mapping[str, Sequence[str]]
    systems: Callable[[Setting], dict[str, System]]
    baselines: Callable[[Sequence[str]], Sequence[str]] = lambda systems: ("SMT", "MART")
    options: Callable[[argparse.ArgumentParser], None] = _no_options
    notes: Callable[[Mapping[str, Setting]], list[tuple[str, str]]] = field(default=lambda settings: [])
    draw: Callable[[Outcome, Path, str], None] | None = None


def parse(study: Study, argv: Sequence[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options, and the arguments they were read from."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = arguments(study.description, study.pairs)
    parser.epilog = paper.FORMAT
    study.options(parser)
    output = parser.add_argument_group("running and writing")
    output.add_argument(
        "--path",
        type=Path,
        help="keep indexes, trainings and runs here, and resume from them; one process at a time may work on a fold "
        "of a pair",
    )
    output.add_argument(
        "--devices",
        nargs="*",
        type=device,
        metavar="DEVICE",
        help="a process on each, such as cuda:0 cuda:1; needs --path",
    )
    output.add_argument("--no-report", action="store_true", help="only fill --path, as on one of several machines")
    output.add_argument("--paper", type=Path, metavar="FILE", help="values of the paper, see below")
    output.add_argument("--name", help="write results/NAME.md, .json and .queries.tsv")
    args = parse_options(parser, given, {"recommended": {}, "paper": paper.PRESET})
    named = [GROUPS[name][args.data] if name in GROUPS else [name] for name in args.pairs or study.pairs[args.data]]
    args.pairs = list(dict.fromkeys(pair for pairs in named for pair in pairs))
    if not args.pairs:
        parser.error(f"--pairs: {DATA[args.data]} has no pair of these")
    if (args.devices or args.no_report) and args.path is None:
        parser.error(f"{'--devices' if args.devices else '--no-report'} needs --path, where results are kept")
    if wrong := [fold for fold in args.folds or () if fold not in range(FOLDS)]:
        parser.error(f"--folds: expected numbers from 0 to {FOLDS - 1}, found {wrong[0]}")
    try:
        parallel.check(args.devices or ())
    except ValueError as err:
        parser.error(str(err))
    return args, given


def prepare(args: argparse.Namespace, stack: ExitStack) -> dict[str, Setting]:
    """Opens data, tables and indexes of all pairs, and builds what is missing, before anything is trained.

    Raises:
        SystemExit: With one sentence, if something is not there or not as expected.
    """
    try:
        if args.device is not None:
            from pyterrier_mart.devices import resolve_device  # torch: not before the options are checked

            resolve_device(args.device)
        return {pair: Setting(args, pair, stack) for pair in args.pairs}
    except (ValueError, OSError, ImportError) as err:
        raise SystemExit(f"error: {err}") from err


def run_jobs(study: Study, args: argparse.Namespace, given: Sequence[str]) -> None:
    """Runs every fold of every pair on the devices; without devices, nothing.

    Raises:
        SystemExit: If some failed. What the others did is kept.
    """
    if not args.devices:
        return
    folds = args.folds or range(FOLDS)
    jobs = [parallel.Job(pair, fold) for pair in args.pairs for fold in sorted(set(folds))]
    own = [*given, "--devices", "--no-report"]  # the last of several --devices counts, and it names none
    try:
        failures = parallel.run(f"experiments.{study.key}", own, jobs, args.devices, args.path / "logs")
    except ValueError as err:
        raise SystemExit(f"error: {err}") from err
    if failures:
        lines = "".join(f"\n  {failure.job}: {failure.reason}, see {failure.log}" for failure in failures)
        raise SystemExit(f"{len(failures)} of {len(jobs)} jobs failed; the same command does what is missing:{lines}")


def main(study: Study, argv: Sequence[str] | None = None) -> None:
    """Runs an experiment and writes its report.

    Args:
        study: The table or figure.
        argv: Arguments of the command line; ``None`` for those of the process.
    """
    args, given = parse(study, argv)
    values = _values(study, args)
    with ExitStack() as stack:
        settings = prepare(args, stack)
        systems = {pair: study.systems(setting) for pair, setting in settings.items()}
        run_jobs(study, args, given)
        results = {}
        for pair, setting in settings.items():
            with claimed(setting.path, args.folds or range(FOLDS)):
                results[pair] = setting.run(systems[pair])
        if args.no_report:
            return
        names = next(iter(results.values())).systems
        outcome = Outcome(results, study.baselines(names), values)
        _write(study, args, settings, outcome)


def _values(study: Study, args: argparse.Namespace) -> paper.Values:
    if args.paper is None:
        return {}
    try:
        return paper.read_values(args.paper, study.key)
    except (ValueError, OSError) as err:
        raise SystemExit(f"error: {err}") from err


def _write(study: Study, args: argparse.Namespace, settings: Mapping[str, Setting], outcome: Outcome) -> None:
    encoder = Path(encoder_of(args)).name
    title = f"{study.title}: {DATA[args.data]}, encoder {encoder}"
    name = args.name or f"{study.key}-{args.data}-{encoder}"
    folds = sorted({fold.index for result in outcome.results.values() for fold in result.folds})
    which = f"Fold{'s' * (len(folds) > 1)} {', '.join(map(str, folds))} of {FOLDS}"
    intro = f"{which}; each topic is ranked by a model that has not seen it.\n\n"
    sections = [("", intro + outcome.markdown())]
    if study.draw is not None:
        study.draw(outcome, report.RESULTS / f"{name}.png", title)
        sections.append(("", f"![{study.title}]({name}.png)\n"))
    sections.append(("Collections", collections(args.data, settings, outcome.results)))
    sections += study.notes(settings)
    if unused := outcome.unused():
        sections.append(("Values of the paper without a place in the table", "".join(f"- {v}\n" for v in unused)))
    each = outcome.per_query()
    with atomic_file(report.RESULTS / f"{name}.queries.tsv") as tmp:
        each.to_csv(tmp, sep="\t", index=False, float_format="%.6g")
    data = {"tables": outcome.data(), "seconds": seconds(args.path, outcome.results)}
    report.write(name, title, sections, kept(args, settings), data)
    print("\n".join([f"# {title}", *(f"\n## {heading}\n\n{text}" if heading else text for heading, text in sections)]))


def collections(data: str, settings: Mapping[str, Setting], results: Mapping[str, CrossValidation] | None) -> str:
    """Returns a table of what was measured on, beside what the paper states, and what the collection lacks.

    Args:
        data: Name of the collection.
        settings: By pair.
        results: By pair, to tell how many topics were tested.
    """
    rows = []
    for pair, setting in settings.items():
        stated = paper.stated(data, pair)
        tested = [len(results[pair].topics)] if results is not None else []
        rows.append(
            [
                pair, len(setting.topics), *tested, stated.topics if stated else "–",
                setting.documents, f"about {stated.documents:,}" if stated else "–",
            ]
        )  # fmt: skip
    header = ["pair", "topics", *(["tested here"] if results is not None else []), "topics in the paper"]
    found = report.markdown([*header, "documents", "documents in the paper"], rows)
    missing = [
        f"- {pair}: {sentence}\n"
        for pair, setting in settings.items()
        for sentence in (setting.data.check() if hasattr(setting.data, "check") else ())
    ]
    return found + ("\nWhat differs from the published collection:\n\n" + "".join(missing) if missing else "")


def kept(args: argparse.Namespace, settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Returns the options, as JSON values: without those that are paths or say how the command was run."""
    elsewhere = ("path", "name", "home", "paper", "devices", "no_report", "table", "systems", "knowledge", "vectors",
                 "model", "encoder")  # fmt: skip
    found = {name: value for name, value in vars(args).items() if name not in elsewhere}
    if not isinstance(args.stop, bool):
        found["stop"] = f"{len(args.stop)} words"
    tables = {f"table {pair}": f"{setting.table!r}, {setting.table.fingerprint}" for pair, setting in settings.items()}
    bm25 = next(iter(settings.values())).bm25
    return {"encoder": Path(encoder_of(args)).name, **found, **tables, "BM25": f"k1={bm25.k1}, b={bm25.b}"}
