"""What charts of the package have in common: figures without pyplot, labels, files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_mart.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_suffix", "figure", "plain", "save"]

_SUFFIXES = (".png", ".svg", ".pdf")


def figure(width: float, height: float) -> Figure:
    """Returns a figure that does not need pyplot: that would choose a window system and keep every figure in memory."""
    try:
        from matplotlib.figure import Figure
    except ImportError as err:
        raise ImportError("charts need matplotlib: pip install 'pyterrier-mart[plot]'") from err

    class Chart(Figure):
        def _repr_png_(self) -> bytes:  # notebooks look for it; matplotlib lets pyplot tell them about figures
            buffer = io.BytesIO()
            self.savefig(buffer, format="png")
            return buffer.getvalue()

    return Chart(figsize=(width, height), layout="constrained")


def plain(text: Any) -> str:
    """Returns a label in which a dollar sign begins no formula."""
    return str(text).replace("$", r"\$")


def check_suffix(path: str | Path | None) -> None:
    """Raises a ValueError if a chart cannot be written to a file with this ending."""
    if path is not None and Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"path={str(path)!r}: expected a name that ends in {', '.join(_SUFFIXES)}.")


def save(chart: Figure, path: str | Path | None) -> None:
    """Writes a chart to a file, if there is one: PNG, SVG or PDF, by its ending."""
    if path is not None:
        with atomic_file(path) as tmp:
            chart.savefig(tmp, format=Path(path).suffix.lower()[1:])
