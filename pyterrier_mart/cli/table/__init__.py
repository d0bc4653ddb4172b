"""``pyterrier-mart table``: look at, learn, convert, combine, measure and compare translation tables."""

from __future__ import annotations

import typer

from pyterrier_mart.cli.table.looking import diff, info, lookup, report, verify
from pyterrier_mart.cli.table.making import compose, convert, mix, train, vectors

__all__ = ["app"]

app = typer.Typer(
    help="Look at, learn, convert, combine, measure and compare translation tables.", no_args_is_help=True
)
for command in (info, verify, lookup, train, vectors, convert, mix, compose, report, diff):
    app.command()(command)
