"""The command line: ``pyterrier-mart quickstart`` and ``pyterrier-mart table ...``."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Annotated, NoReturn

import typer

from pyterrier_mart import __version__
from pyterrier_mart.cli import table
from pyterrier_mart.cli.console import errors
from pyterrier_mart.cli.quickstart import quickstart

__all__ = ["app", "main"]

app = typer.Typer(
    help="Cross-lingual information retrieval in PyTerrier.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(quickstart)
app.add_typer(table.app, name="table")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"pyterrier-mart {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Cross-lingual information retrieval in PyTerrier."""


def main() -> NoReturn:
    """Runs the command line; what a user can put right is one sentence, without a traceback."""
    warnings.showwarning = lambda message, *_, **__: errors.print(f"warning: {message}", style="yellow", markup=False)
    try:
        app()
    except KeyboardInterrupt:
        errors.print("stopped", style="red")
        sys.exit(130)
    except (OSError, ValueError, KeyError, ImportError) as err:
        message = err.args[0] if isinstance(err, KeyError) and err.args else err
        errors.print(f"error: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
        if os.environ.get("PYTERRIER_MART_DEBUG"):
            traceback.print_exc()
        sys.exit(1)
    sys.exit(0)
