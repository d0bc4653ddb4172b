"""Tables of what systems reach over several pairs of languages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.paper import Values
from pyterrier_mart.evaluation import METRICS, CrossValidation

__all__ = ["Outcome", "seconds"]

_MEASURES = tuple(map(str, METRICS))
_MARKS = (("▲", "▼"), ("△", "▽"))
_LEVEL = 0.05


class Outcome:
    """What was measured, by pair.

    Args:
        results: By pair.
        baselines: The systems that the others are compared with, at most two; those that were not run are left out.
        values: Values of the paper to print beside those measured.
    """

    def __init__(
        self, results: Mapping[str, CrossValidation], baselines: Sequence[str] = (), values: Values | None = None
    ):
        self.results = dict(results)
        self.systems = next(iter(results.values())).systems
        self.values = values or {}
        self.tables: dict[str, dict[str | None, pd.DataFrame]] = {}
        self.baselines = [name for name in baselines if name in self.systems][: len(_MARKS)]
        chosen: list[str | None] = [*self.baselines] or [None]
        for pair, result in results.items():
            tables = {name: result.experiment(baseline=name) for name in chosen}
            self.tables[pair] = {name: table.set_index("name") for name, table in tables.items()}

    def value(self, pair: str, system: str, measure: str) -> float:
        """Returns a mean over topics."""
        return float(next(iter(self.tables[pair].values())).loc[system, measure])

    def markdown(self) -> str:
        """Returns a table with a row for each system, columns for each pair and measure, and what its marks mean."""
        columns = [(pair, measure) for pair in self.results for measure in _MEASURES]
        printed = [column for column in columns if any((column[0], s, column[1]) in self.values for s in self.systems)]
        header, lines = ["System"], [[_escaped(system)] for system in self.systems]
        for pair, measure in columns:
            header.append(f"{pair} {measure}")
            best = max(f"{self.value(pair, system, measure):.3f}" for system in self.systems)
            for line, system in zip(lines, self.systems, strict=True):
                text = f"{self.value(pair, system, measure):.3f}"
                line.append((f"**{text}**" if text == best else text) + self._marks(pair, system, measure))
            if (pair, measure) in printed:
                header.append("paper")
                for line, system in zip(lines, self.systems, strict=True):
                    value = self.values.get((pair, system, measure))
                    line.append("" if value is None else f"{value:.3f}")
        rows = [header, ["---", *["---:"] * (len(header) - 1)], *lines]
        return "".join("| " + " | ".join(row) + " |\n" for row in rows) + self._legend()

    def _marks(self, pair: str, system: str, measure: str) -> str:
        found = ""
        for baseline, (up, down) in zip(self.baselines, _MARKS, strict=False):
            p = self.tables[pair][baseline].loc[system, f"{measure} p-value"]
            if system != baseline and p < _LEVEL:
                better = self.value(pair, system, measure) > self.value(pair, baseline, measure)
                found += up if better else down
        return f" {found}" if found else ""

    def _legend(self) -> str:
        if not self.baselines:
            return ""
        signs = [f"{up} {down} than {_escaped(name)}" for name, (up, down) in zip(self.baselines, _MARKS, strict=False)]
        test = f"two-tailed paired t-test, p < {_LEVEL:g}".replace("<", "&lt;")
        return f"\nSignificantly better or worse ({test}): {', '.join(signs)}.\n"

    def unused(self) -> list[str]:
        """Returns the values of the paper that have no place in the table."""
        return [
            f"{measure} of {system} for {pair}"
            for pair, system, measure in self.values
            if pair not in self.results or system not in self.systems or measure not in _MEASURES
        ]

    def data(self) -> dict[str, Any]:
        """Returns the tables as JSON values: by pair and baseline, with differences and p-values."""
        return {
            pair: {
                # What is no number becomes null.
                baseline or "means": json.loads(table.reset_index().to_json(orient="records", double_precision=15))
                for baseline, table in tables.items()
            }
            for pair, tables in self.tables.items()
        }

    def per_query(self) -> pd.DataFrame:
        """Returns the value of each topic, with a column for each system."""
        parts = []
        for pair, result in self.results.items():
            each = result.per_query().pivot(index=["measure", "qid"], columns="name", values="value").reset_index()
            parts.append(each.assign(pair=pair))
        return pd.concat(parts, ignore_index=True)[["pair", "measure", "qid", *self.systems]]


def seconds(path: Path | None, results: Mapping[str, CrossValidation]) -> dict[str, Any]:
    """Returns how long training and testing took, as far as it was kept under a path."""
    found = {}
    for pair, result in results.items() if path is not None else ():
        for file in sorted((path / pair).glob("*/fold-*.json")):  # type: ignore[operator]
            kept = json.loads(file.read_text(encoding="utf-8"))
            if kept["system"] in result.systems and kept["fold"] in {fold.index for fold in result.folds}:
                found[f"{pair}/{file.parent.name}/{file.stem}"] = kept["seconds"]
    return found


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
