"""Tables and charts of what :mod:`experiments.meta_systems` measured: means over folds, tests, values by language."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments import report
from pyterrier_mart import charts
from pyterrier_mart.evaluation.lareqa import MODES, by_language, paired_tests, summarise

__all__ = ["Measured", "bars", "mean_std"]

_LEVEL = 0.05


def mean_std(values: Sequence[float], digits: int = 1) -> str:
    """Returns a mean, with the standard deviation of a sample (ddof 1) if there are several values."""
    if not values:
        return "–"
    mean = statistics.fmean(values)
    return f"{mean:.{digits}f}" + (f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else "")


class Measured:
    """What was measured of some systems, by fold.

    Args:
        values: By system, AP@20 of the questions of each fold.
        sts: By system, correlations by track of each fold.
        info: By system, what else is known of each fold.
        bias: By system, the language bias of each fold.
        qgroups: By qid, the name of the question in all languages.
        baseline: The system that the others are compared with, or ``None``.
    """

    def __init__(
        self,
        values: Mapping[str, Sequence[pd.DataFrame]],
        sts: Mapping[str, Sequence[pd.DataFrame]],
        info: Mapping[str, Sequence[Mapping[str, Any]]],
        bias: Mapping[str, Sequence[pd.DataFrame]],
        qgroups: Mapping[str, str],
        baseline: str | None,
    ):
        self.values, self.sts, self.info, self.bias = values, sts, info, bias
        self.qgroups, self.baseline = qgroups, baseline
        self.tests = self._tests()

    @property
    def ranked(self) -> list[str]:
        """The systems with values of questions."""
        return [name for name, frames in self.values.items() if frames]

    def _tests(self) -> pd.DataFrame:
        if self.baseline not in self.ranked or len(self.ranked) < 2:
            return pd.DataFrame()
        frames = {name: pd.concat(self.values[name], ignore_index=True) for name in self.ranked}
        assert self.baseline is not None
        return paired_tests(frames, self.baseline, groups=self.qgroups)

    def means(self, name: str) -> dict[str, list[float]]:
        """Returns the mean of each mode in each fold."""
        folds = [summarise(frame) for frame in self.values[name]]
        return {mode: [fold[mode] for fold in folds] for mode in MODES}

    # --- sections -------------------------------------------------------------------------------------------------

    def modes(self) -> str:
        """The main table: AP@20 in each mode, and correlations over monolingual and bilingual tracks."""
        correlated = any(frames for frames in self.sts.values())
        modes = tuple(reversed(MODES)) if self.ranked else ()
        header = ["system", *(f"{mode} mAP@20" for mode in modes)]
        header += ["STS mono r", "STS bi r"] * correlated
        rows = []
        for name in self.values:
            found = self.means(name)
            row = [name, *(mean_std(found[mode]) + self._mark(mode, name) for mode in modes)]
            if correlated:
                row += [mean_std(values) for values in self._kinds(name).values()]
            rows.append(row)
        text = report.markdown(header, rows)
        if len(self.tests):
            text += (
                f"\n▲ ▼ significantly better or worse than {self.baseline}: p < {_LEVEL:g}, two-tailed paired t-test "
                f"over {self.tests['n'].iloc[0]} questions (each the mean over its languages), Holm-corrected over "
                "the systems of a mode.\n"
            )
        return text

    def _mark(self, mode: str, name: str) -> str:
        if not len(self.tests):
            return ""
        row = self.tests[(self.tests["mode"] == mode) & (self.tests["name"] == name)]
        if not len(row) or not row["p-value corrected"].iloc[0] < _LEVEL:
            return ""
        return " ▲" if row["difference"].iloc[0] > 0 else " ▼"

    def _kinds(self, name: str) -> dict[str, list[float]]:
        kinds: dict[str, list[float]] = {"mono": [], "bi": []}
        for frame in self.sts[name]:
            same = frame["track"].map(lambda track: len(set(track.split("-"))) == 1)
            for kind, rows in (("mono", frame[same]), ("bi", frame[~same])):
                kinds[kind].append(float(rows["pearson"].mean()))
        return kinds

    def comparisons(self) -> str:
        """The tests in numbers."""
        if not len(self.tests):
            return ""
        rows = [
            [row["name"], row["mode"], f"{row['difference']:+.1f}", _p(row["p-value"]), _p(row["p-value corrected"])]
            for row in self.tests.to_dict("records")
        ]
        return report.markdown(["system", "mode", f"difference from {self.baseline}", "p", "p, Holm"], rows)

    def languages(self) -> list[tuple[str, str]]:
        """Tables by language of the questions, one for each mode."""
        sections = []
        for mode in reversed(MODES):
            tables = {name: [by_language(frame)[mode] for frame in self.values[name]] for name in self.ranked}
            langs = sorted({lang for folds in tables.values() for fold in folds for lang in fold.index})
            rows = []
            for name, folds in tables.items():
                cells = [mean_std([float(fold[lang]) for fold in folds]) for lang in langs]
                rows.append([name, *cells, mean_std(self.means(name)[mode])])
            text = report.markdown(["system", *langs, "mean"], rows)
            sections.append((f"{mode} mAP@20 by language of the questions", text))
        return sections

    def tracks(self) -> list[tuple[str, str]]:
        """Tables by track of STS17."""
        sections = []
        for measure in ("pearson", "spearman"):
            frames = {name: folds for name, folds in self.sts.items() if folds}
            names = list(dict.fromkeys(track for folds in frames.values() for fold in folds for track in fold["track"]))
            rows = []
            for name, folds in frames.items():
                series = [fold.set_index("track")[measure] for fold in folds]
                cells = [mean_std([float(fold[track]) for fold in series]) for track in names]
                rows.append([name, *cells, mean_std([float(fold.mean()) for fold in series])])
            heading = f"{measure.capitalize()}'s correlation x100 by track, 50 test pairs of each in a fold"
            sections.append((heading, report.markdown(["system", *(track.upper() for track in names), "mean"], rows)))
        return sections

    def shares(self) -> str:
        """Language bias of each system."""
        rows = []
        for name in self.ranked:
            folds = self.bias[name]
            rows.append([name, mean_std([100 * float(fold["share"].mean()) for fold in folds])])
        pool = 100 * float(pd.concat(self.bias[self.ranked[0]])["pool_share"].mean())
        return (
            "Share of the 20 first candidates over all languages that are in the language of the question, in percent. "
            f"Of all candidates it is {pool:.1f}.\n\n{report.markdown(['system', 'same language'], rows)}"
        )

    def training(self) -> str:
        """How models were trained, and how long it took."""
        rows = []
        for name, folds in self.info.items():
            logs = [fold.get("log") or [] for fold in folds]
            if not any(logs):
                continue
            steps = [log[-1]["step"] for log in logs if log]
            kept = [fold["best_step"] for fold in folds if "best_step" in fold]
            times = [[row["seconds"] for row in log if "seconds" in row] for log in logs]
            gains = [100 * row["inner_gain"] for log in logs for row in log if "inner_gain" in row]
            rows.append([
                name, ", ".join(map(str, steps)), ", ".join(map(str, kept)),
                mean_std([statistics.median(seconds) for seconds in times if seconds]),
                mean_std([fold["seconds"]["train"] / 60 for fold in folds]),
                f"{statistics.fmean(gains):.0f} %" if gains else "–",
            ])  # fmt: skip
        header = ["system", "meta-steps", "kept", "s per meta-step", "min of training", "inner loop lowers the loss by"]
        note = "Kept: the step that was chosen, in each fold. Minutes are with the development set.\n\n"
        return note + report.markdown(header, rows) if rows else ""

    def data(self) -> dict[str, Any]:
        """Everything as JSON values."""
        found: dict[str, Any] = {}
        for name in self.values:
            means = self.means(name) if name in self.ranked else {}
            langs = [by_language(frame).round(4).to_dict() for frame in self.values[name]]
            found[name] = {
                "folds": {mode: [round(value, 4) for value in values] for mode, values in means.items()},
                "languages": langs,
                "sts": [frame.round(4).to_dict("records") for frame in self.sts[name]],
                "seconds": [fold.get("seconds") for fold in self.info[name]],
                "best_step": [fold.get("best_step") for fold in self.info[name]],
            }
        rows = self.tests.to_dict("records") if len(self.tests) else []
        return {"systems": found, "tests": rows}

    def questions(self) -> pd.DataFrame:
        """AP@20 of each question in each mode, the mean over its languages, with a column for each system."""
        columns = {}
        for name in self.ranked:
            frame = pd.concat(self.values[name], ignore_index=True)
            each = frame.groupby(["mode", frame["qid"].map(self.qgroups).rename("question"), "qid"])["value"].mean()
            columns[name] = each.groupby(["mode", "question"]).mean()
        return pd.DataFrame(columns)


def bars(measured: Measured, mode: str, path: Path, title: str) -> None:
    """Draws the mean of a mode over folds, with the standard deviation if there are several."""
    chart = charts.figure(width=7, height=1.2 + 0.4 * len(measured.ranked))
    axes = chart.add_subplot()
    folds = [measured.means(name)[mode] for name in measured.ranked]
    means = [statistics.fmean(values) for values in folds]
    spread = [statistics.stdev(values) for values in folds] if len(folds[0]) > 1 else None
    drawn = axes.barh(range(len(means)), means, xerr=spread, color="#4c72b0", ecolor="#555555")
    axes.bar_label(drawn, [mean_std(values) for values in folds], padding=3)
    if measured.baseline in measured.ranked:
        axes.axvline(means[measured.ranked.index(measured.baseline)], color="#888888", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(means)), [charts.plain(name) for name in measured.ranked])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(charts.plain(f"{mode} mAP@20"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(charts.plain(title))
    charts.save(chart, path)


def _p(value: float) -> str:
    return "–" if value != value else f"{value:.2g}"
