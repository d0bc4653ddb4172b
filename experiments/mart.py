"""The MART paper's Table 2 on XQuAD-R sentences: ``python -m experiments.mart --pair de-en --encoder e5-small``.

Systems: SMT (the query translated with the table, BM25), the plain encoder fine-tuned as a cross-encoder (m²BERT in the
paper), MART-PLB (the same layers without translations), MART, and BM25 with human translations as the upper bound. All
re-rankers are trained alike. Folds are split by article; each question is ranked by the model that has not seen its
article. Paired t-tests compare each system with MART.
"""

from __future__ import annotations

from contextlib import ExitStack

from experiments.ranking import Setting, arguments, write

_SYSTEMS = ("SMT", "encoder", "MART-PLB", "MART", "human translation")


def main() -> None:
    """Runs the experiment."""
    parser = arguments(__doc__)
    parser.add_argument("--systems", nargs="+", choices=_SYSTEMS, default=list(_SYSTEMS))
    args = parser.parse_args()
    with ExitStack() as stack:
        setting = Setting(args, stack)
        systems = {
            "SMT": setting.first,
            "encoder": setting.mart("encoder", mat_layers=()),
            "MART-PLB": setting.mart("MART-PLB", placebo=True),
            "MART": setting.mart("MART"),
            "human translation": setting.human(),
        }
        results = setting.run({name: systems[name] for name in args.systems})
        title = f"MART on XQuAD-R {args.pair} sentences, encoder {args.encoder}"
        name = args.name or f"mart-{args.pair}-{args.encoder}"
        write(name, title, setting, results, baseline="MART" if "MART" in args.systems else args.systems[0])


if __name__ == "__main__":
    main()
