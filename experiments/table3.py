"""The MART paper's Table 3, English topics, documents in other languages: ``python -m experiments.table3 --data clef``.

The systems and options are those of :mod:`experiments.table2`, for the other direction: English topics and documents in
French, Italian, German and Spanish.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments import paper, study, table2

STUDY = study.Study(
    "table3", "English to other languages", __doc__, paper.pairs("backward"), table2.systems,
    options=table2.options,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the experiment."""
    study.main(STUDY, argv)


if __name__ == "__main__":
    main()
