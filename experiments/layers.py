"""The MART paper's Figure 5, which layers have a translation head: ``python -m experiments.layers``.

The paper's layers 9, 10, 11, 10 and 11, and 9 to 11 of 12 are counted from the end here, so that they suit encoders of
any depth: -4, -3, -2, -3 and -2, -4 to -2. ``--layers="0;0,1;-3,-2"`` names others.
"""

from __future__ import annotations

from contextlib import ExitStack

from experiments.ranking import Setting, arguments, write

_PAPER = ["-4", "-3", "-2", "-3,-2", "-4,-3,-2"]


def main() -> None:
    """Runs the experiment."""
    parser = arguments(__doc__)
    parser.add_argument("--layers", type=lambda text: text.split(";"), default=_PAPER, metavar="LAYERS;LAYERS;...")
    args = parser.parse_args()
    with ExitStack() as stack:
        setting = Setting(args, stack)
        systems = {"SMT": setting.first}
        for layers in args.layers:
            chosen = tuple(map(int, layers.split(",")))
            label = f"MART in {layers.replace(',', ' ')}"
            systems[label] = setting.mart(label, mat_layers=chosen)
        results = setting.run(systems)
        title = f"Which layers have a translation head: XQuAD-R {args.pair} sentences, encoder {args.encoder}"
        write(args.name or f"layers-{args.pair}-{args.encoder}", title, setting, results, baseline=list(systems)[-1])


if __name__ == "__main__":
    main()
