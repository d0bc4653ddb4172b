"""Tables and charts of what :func:`pyterrier.Experiment` returns."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pyterrier_mart import charts
from pyterrier_mart.checks import check_choice
from pyterrier_mart.frames import warn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bar_plot", "to_latex", "to_markdown"]

_UP, _DOWN = "▲", "▼"
#: What comes with a baseline, beside the measure itself.
_OF_BASELINE = re.compile(r" (\+|-|reject|p-value|p-value corrected)$")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def to_markdown(table: pd.DataFrame, *, baseline: str | int | None = None, alpha: float = 0.05, digits: int = 3) -> str:
    """Returns a table of :func:`pyterrier.Experiment` in Markdown, with one column for each measure.

    The best value is bold (the least one of ``mrt``, a time). ▲ and ▼ mark values that differ significantly from the
    baseline's, by the corrected p-value if there is one. A legend says so if the table has p-values.

    Example::

        print(to_markdown(results.experiment(baseline='BM25', correction='holm')))

    Args:
        table: With a column ``name``, a column for each measure, and perhaps those that come with a baseline.
        baseline: Name or position of the system that the others were compared with. It is found in the table if it is
            as :func:`pyterrier.Experiment` made it.
        alpha: The level of significance.
        digits: How many digits to show after the point.

    Raises:
        ValueError: If the baseline is not what the p-values are for, or if it must be named.
    """
    view = View(table, baseline, alpha, digits)
    rows = [["System", *view.measures], ["---", *["---:"] * len(view.measures)]]
    rows = [[markdown(cell) if i == 0 else cell for cell in row] for i, row in enumerate(rows)]
    rows += view.rows(markdown, "**{}**".format, {1: f" {_UP}", -1: f" {_DOWN}"})
    text = "".join("| " + " | ".join(row) + " |\n" for row in rows)
    return text + (f"\n{_UP} {_DOWN} {markdown(view.legend)}\n" if view.legend else "")


def to_latex(table: pd.DataFrame, *, baseline: str | int | None = None, alpha: float = 0.05, digits: int = 3) -> str:
    r"""Returns a table of :func:`pyterrier.Experiment` in LaTeX, for the packages booktabs and amssymb.

    As :func:`to_markdown`, with ``$^\blacktriangle$`` and ``$^\blacktriangledown$`` as marks; the legend is a comment.

    Example::

        Path('table.tex').write_text(to_latex(results.experiment(baseline='BM25')))

    Args:
        table: As in :func:`to_markdown`.
        baseline: As in :func:`to_markdown`.
        alpha: The level of significance.
        digits: How many digits to show after the point.

    Raises:
        ValueError: As in :func:`to_markdown`.
    """
    view = View(table, baseline, alpha, digits)
    marks = {1: r"$^\blacktriangle$", -1: r"$^\blacktriangledown$"}
    lines = [r"% \usepackage{booktabs,amssymb}"]
    if view.legend:
        lines.append(rf"% {marks[1]} {marks[-1]} {one_line(view.legend)}")
    lines += [rf"\begin{{tabular}}{{l{'r' * len(view.measures)}}}", r"\toprule"]
    lines += [" & ".join(["System", *map(latex, view.measures)]) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in view.rows(latex, r"\textbf{{{}}}".format, marks)]
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def bar_plot(
    table: pd.DataFrame,
    measure: str,
    *,
    baseline: str | int | None = None,
    alpha: float = 0.05,
    path: str | Path | None = None,
    title: str | None = None,
) -> Figure:
    """Draws one measure of a table of :func:`pyterrier.Experiment` as bars, with the marks of :func:`to_markdown`.

    The figure needs no display and no pyplot. Notebooks show it.

    Example::

        bar_plot(results.experiment(baseline='BM25'), 'AP@100', path='map.svg')

    Args:
        table: As in :func:`to_markdown`.
        measure: Name of the column to draw.
        baseline: As in :func:`to_markdown`.
        alpha: The level of significance.
        path: A file to write: PNG, SVG or PDF, by its ending.
        title: What to write above.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there is no such measure, if the ending of the path is another one, or as in
            :func:`to_markdown`.
    """
    view = View(table, baseline, alpha, digits=3)
    check_choice("measure", str(measure), view.measures)
    charts.check_suffix(path)
    figure = charts.figure(width=7, height=1.2 + 0.4 * len(view.names))
    axes = figure.add_subplot()
    values = view.table[str(measure)].tolist()
    bars = axes.barh(range(len(values)), values, color="#4c72b0")
    signs = {1: f" {_UP}", -1: f" {_DOWN}", 0: ""}
    labels = [view.text(value) + signs[view.sign(i, str(measure))] for i, value in enumerate(values)]
    axes.bar_label(bars, labels, padding=3)
    axes.set_yticks(range(len(values)), [charts.plain(name) for name in view.names])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(charts.plain(str(measure)))
    axes.spines[["top", "right"]].set_visible(False)
    if title is not None:
        axes.set_title(charts.plain(title))
    if any(label.endswith((_UP, _DOWN)) for label in labels):
        figure.supxlabel(charts.plain(f"{_UP} {_DOWN} {view.legend}"), fontsize="small")
    charts.save(figure, path)
    return figure


class View:
    """What a table says: its measures, which values are best and which differ from the baseline."""

    def __init__(self, table: pd.DataFrame, baseline: str | int | None, alpha: float, digits: int):
        self.table, self.alpha, self.digits = table.reset_index(drop=True), alpha, digits
        self.names = [str(name) for name in table["name"]]
        self.measures = [name for name in map(str, table.columns) if name != "name" and not _OF_BASELINE.search(name)]
        kinds = ("p-value", "p-value corrected")  # the corrected one is taken where there is one
        columns = {f"{measure} {kind}": measure for kind in kinds for measure in self.measures}
        self.p_values = {measure: column for column, measure in columns.items() if column in table.columns}
        self.baseline = None
        if self.p_values:
            # The baseline is the only row without p-values or counts of better queries.
            counts = [f"{measure} +" for measure in self.p_values if f"{measure} +" in table.columns]
            empty = self.table[counts or list(self.p_values.values())].isna().all(axis=1)
            found = [i for i, value in enumerate(empty) if value] or list(range(len(self.names)))
            wanted = [i for i in found if baseline in (None, i, self.names[i])]
            if len(wanted) != 1:
                names = ", ".join(repr(self.names[i]) for i in found)
                raise ValueError(f"baseline must be what the p-values are for, one of {names}, not {baseline!r}")
            self.baseline = wanted[0]
            self.warn_of_missing_p_values()

    def warn_of_missing_p_values(self) -> None:
        """Warns of corrected p-values that PyTerrier computed with a missing one, which spoils the others."""
        tested = self.table.drop(index=self.baseline)
        spoilt = [m for m, column in self.p_values.items() if column.endswith("corrected") and f"{m} p-value" in tested]
        if names := [m for m in spoilt if tested[f"{m} p-value"].isna().any()]:
            warn(
                f"the corrected p-values of {', '.join(names)} are wrong, as one of the p-values is missing (a system "
                "equals the baseline): make the table with pt.Experiment(..., test=paired_test())"
            )

    @property
    def legend(self) -> str:
        """What the marks mean; nothing without p-values."""
        if self.baseline is None:
            return ""
        corrected = any(column.endswith("corrected") for column in self.p_values.values())
        how = f"{'corrected ' * corrected}p < {self.alpha:g}"
        return f"significantly better or worse than {self.names[self.baseline]} ({how})"

    def text(self, value: float) -> str:
        """Returns a value as the table shows it."""
        return "–" if pd.isna(value) else f"{value:.{self.digits}f}"

    def sign(self, row: int, measure: str) -> int:
        """Returns 1 or -1 if a value is significantly above or below the baseline's, else 0."""
        column = self.p_values.get(measure)
        if self.baseline is None or column is None or not self.table.loc[row, column] < self.alpha:  # or it is missing
            return 0
        value, other = self.table.loc[[row, self.baseline], measure].tolist()
        return (value > other) - (value < other)

    def rows(self, escape: Callable[[str], str], bold: Callable[[str], str], marks: dict[int, str]) -> list[list[str]]:
        """Returns the rows as text. Values that read the same as the best are bold too."""
        columns: list[list[str]] = [[escape(name) for name in self.names]]
        for measure in self.measures:
            values = self.table[measure]
            best = (
                self.text(values.min() if measure == "mrt" else values.max())
                if values.count() and len(values) > 1
                else ""
            )
            texts = [self.text(value) for value in values]
            cells = [bold(text) if text == best else text for text in texts]
            columns.append([cell + marks.get(self.sign(i, measure), "") for i, cell in enumerate(cells)])
        return [list(row) for row in zip(*columns, strict=True)]


def one_line(text: str) -> str:
    """Returns a text without line ends."""
    return " ".join(text.split())


def markdown(text: str) -> str:
    """Returns a text as Markdown shows it."""
    return re.sub(r"([\\|*_`\[\]])", r"\\\1", one_line(text)).replace("<", "&lt;")


def latex(text: str) -> str:
    """Returns a text as LaTeX shows it."""
    return "".join(_LATEX.get(sign, sign) for sign in one_line(text))
