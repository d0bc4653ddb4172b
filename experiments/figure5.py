"""The MART paper's Figure 5, which layers have a translation head: ``python -m experiments.figure5 --data clef``.

The paper's layers 9, 10, 11, 10 and 11, and 9 to 11 of 12 are counted from the end here, so that they suit encoders of
any depth: -4, -3, -2, -3 and -2, -4 to -2. ``--layers="0;0,1;-3,-2"`` names others.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments import paper, study
from experiments.outcome import Outcome
from experiments.ranking import Setting, System
from pyterrier_mart import charts

_PAPER = ["-4", "-3", "-2", "-3,-2", "-4,-3,-2"]
_USUAL = "MART in -3 -2"
_MEASURE = "AP@100"


def _layers(text: str) -> list[str]:
    choices = [choice.strip() for choice in text.split(";")]
    for choice in choices:
        try:
            list(map(int, choice.split(",")))
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected layers such as -3,-2;-4, found {text!r}") from None
    return choices


def options(parser: argparse.ArgumentParser) -> None:
    """Adds which layers."""
    parser.add_argument("--layers", type=_layers, default=_PAPER, metavar="LAYERS;LAYERS;...")


def systems(setting: Setting) -> dict[str, System]:
    """Returns MART with heads in each of the choices of layers."""
    made = {"SMT": setting.first()}
    for choice in setting.args.layers:
        layers = tuple(map(int, choice.split(",")))
        label = f"MART in {' '.join(map(str, layers))}"
        # Trained as the MART of Table 2: with the same --path it is trained once.
        made[label] = setting.mart("MART" if list(layers) == setting.args.mat_layers else label, mat_layers=layers)
    return made


def baselines(names: Sequence[str]) -> tuple[str, str]:
    """Returns SMT and the paper's choice, or the last one if that was not run."""
    return "SMT", _USUAL if _USUAL in names else names[-1]


def draw(outcome: Outcome, path: Path, title: str) -> None:
    """Draws AP@100 by choice of layers, with a line for each pair."""
    figure = charts.figure(width=7, height=4)
    axes = figure.add_subplot()
    names = [name for name in outcome.systems if name != "SMT"]
    for i, pair in enumerate(outcome.results):
        values = [outcome.value(pair, name, _MEASURE) for name in names]
        axes.plot(range(len(names)), values, label=charts.plain(pair), marker="osD^vP"[i % 6])
    axes.set_xticks(
        range(len(names)), [charts.plain(name.removeprefix("MART in ").replace(" ", ", ")) for name in names]
    )
    axes.set_xlabel("layers with a translation head, from the end")
    axes.set_ylabel(_MEASURE)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title(charts.plain(title))
    charts.save(figure, path)


STUDY = study.Study(
    "figure5", "Layers with a translation head", __doc__, paper.pairs("forward"), systems, baselines=baselines,
    options=options, draw=draw,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    study.main(STUDY, argv)


if __name__ == "__main__":
    main()
