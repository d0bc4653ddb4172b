"""``pyterrier-mart meta``: train bi-encoders that align languages, measure them, and see what they learn from."""

from __future__ import annotations

import typer

from pyterrier_mart.cli.meta.evaluation import evaluate
from pyterrier_mart.cli.meta.sampling import tasks
from pyterrier_mart.cli.meta.training import train

__all__ = ["app"]

app = typer.Typer(
    help="Bi-encoders that learn to align languages from few examples, as MAML-Align does.", no_args_is_help=True
)
app.command()(train)
app.command()(evaluate)
app.command()(tasks)
