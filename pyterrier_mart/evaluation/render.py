"""Tables and charts of what :func:`pyterrier.Experiment` returns."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pyterrier_mart import charts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bar_plot", "to_latex", "to_markdown"]

_UP, _DOWN = "▲", "▼"
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
        ValueError: If the table has no names or measures, if the baseline is not in it or is not the one that the
            p-values are for, or if it must be named.
    """
    view = _View(table, baseline, alpha, digits)
    rows = [["System", *view.measures], ["---", *["---:"] * len(view.measures)]]
    rows = [[_markdown(cell) if i == 0 else cell for cell in row] for i, row in enumerate(rows)]
    rows += view.rows(_markdown, "**{}**".format, {1: f" {_UP}", -1: f" {_DOWN}"})
    text = "".join("| " + " | ".join(row) + " |\n" for row in rows)
    return text + (f"\n{_UP} {_DOWN} {_markdown(view.legend)}\n" if view.legend else "")


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
    view = _View(table, baseline, alpha, digits)
    marks = {1: r"$^\blacktriangle$", -1: r"$^\blacktriangledown$"}
    lines = [r"% \usepackage{booktabs,amssymb}"]
    if view.legend:
        lines.append(rf"% {marks[1]} {marks[-1]} {_one_line(view.legend)}")
    lines += [rf"\begin{{tabular}}{{l{'r' * len(view.measures)}}}", r"\toprule"]
    lines += [" & ".join(["System", *map(_latex, view.measures)]) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in view.rows(_latex, r"\textbf{{{}}}".format, marks)]
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
    view = _View(table, baseline, alpha, digits=3)
    if str(measure) not in view.measures:
        raise ValueError(f"measure={str(measure)!r}: expected one of {view.measures}.")
    charts.check_suffix(path)
    figure = charts.figure(width=7, height=1.2 + 0.4 * len(view.names))
    axes = figure.add_subplot()
    values = view.values(str(measure))
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
    if any(labels[i].endswith((_UP, _DOWN)) for i in range(len(labels))):
        figure.supxlabel(charts.plain(f"{_UP} {_DOWN} {view.legend}"), fontsize="small")
    charts.save(figure, path)
    return figure


class _View:
    """What a table says: its measures, which values are best and which differ from the baseline."""

    def __init__(self, table: pd.DataFrame, baseline: str | int | None, alpha: float, digits: int):
        if not isinstance(table, pd.DataFrame) or "name" not in table.columns or not len(table):
            raise ValueError("table: expected rows of pt.Experiment with a column 'name'.")
        self.table = table.reset_index(drop=True)
        self.alpha = alpha
        self.digits = digits
        self.names = [str(name) for name in table["name"]]
        columns = list(map(str, table.columns))
        of_baseline = {
            f"{column} {kind}" for column in columns for kind in ("+", "-", "p-value", "reject", "p-value corrected")
        }
        self.measures = [column for column in columns if column != "name" and column not in of_baseline]
        odd = [column for column in self.measures if not pd.api.types.is_numeric_dtype(table[column])]
        if odd or not self.measures:
            raise ValueError(f"table: expected 'name' and columns with the means of measures, found {odd or columns}.")
        self.p_values = {
            measure: f"{measure} p-value corrected"
            if f"{measure} p-value corrected" in columns
            else f"{measure} p-value"
            for measure in self.measures
            if f"{measure} p-value" in columns or f"{measure} p-value corrected" in columns
        }
        self.baseline = self._baseline(baseline)

    def _baseline(self, baseline: str | int | None) -> int | None:
        """Returns the position of the baseline, which is the only row without p-values or counts of better queries."""
        asked = None if baseline is None else self._position(baseline)
        if not self.p_values:
            return asked
        known = [f"{measure} +" for measure in self.p_values if f"{measure} +" in self.table.columns]
        empty = self.table[known or list(self.p_values.values())].isna().all(axis=1)
        found = [i for i, value in enumerate(empty) if value]
        if asked is not None:
            if found and asked not in found:
                names = ", ".join(repr(self.names[i]) for i in found)
                raise ValueError(f"baseline={baseline!r}: expected {names}, which the p-values are for.")
            return asked
        if len(found) != 1:
            raise ValueError("baseline=None: expected a name or position, since the table does not show which it is.")
        return found[0]

    def _position(self, baseline: str | int) -> int:
        if isinstance(baseline, str) and self.names.count(baseline) == 1:
            return self.names.index(baseline)
        if isinstance(baseline, int) and not isinstance(baseline, bool) and baseline in range(len(self.names)):
            return baseline
        raise ValueError(
            f"baseline={baseline!r}: expected one of {self.names} or a position from 0 to {len(self.names) - 1}."
        )

    @property
    def legend(self) -> str:
        if not self.p_values or self.baseline is None:
            return ""
        corrected = any(column.endswith("corrected") for column in self.p_values.values())
        how = f"{'corrected ' * corrected}p < {self.alpha:g}"
        return f"significantly better or worse than {self.names[self.baseline]} ({how})"

    def values(self, measure: str) -> list[float]:
        return [float(value) for value in self.table[measure]]

    def text(self, value: float) -> str:
        return "–" if pd.isna(value) else f"{value:.{self.digits}f}"

    def sign(self, row: int, measure: str) -> int:
        """Returns 1 or -1 if a value is significantly above or below the baseline's, else 0."""
        if measure not in self.p_values or self.baseline is None or row == self.baseline:
            return 0
        p = self.table[self.p_values[measure]].iloc[row]
        if pd.isna(p) or not p < self.alpha:
            return 0
        values = self.values(measure)
        return (values[row] > values[self.baseline]) - (values[row] < values[self.baseline])

    def rows(self, escape: Callable[[str], str], bold: Callable[[str], str], marks: dict[int, str]) -> list[list[str]]:
        """Returns the rows as text. Values that read the same as the best are bold too."""
        columns: list[list[str]] = [[escape(name) for name in self.names]]
        for measure in self.measures:
            values = self.values(measure)
            present = [value for value in values if not pd.isna(value)]
            best = self.text((min if measure == "mrt" else max)(present)) if present and len(values) > 1 else ""
            texts = [self.text(value) for value in values]
            cells = [bold(text) if text == best else text for text in texts]
            columns.append([cell + marks.get(self.sign(i, measure), "") for i, cell in enumerate(cells)])
        return [list(row) for row in zip(*columns, strict=True)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`\[\]])", r"\\\1", _one_line(text)).replace("<", "&lt;")


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))
