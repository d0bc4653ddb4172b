"""The command line: quickstart, index, translate, search, rerank, meta, table, clef and ciral."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from typing import Annotated, Any, NoReturn

import typer

from pyterrier_mart import __version__
from pyterrier_mart.cli import table
from pyterrier_mart.cli.collections import ciral_app, clef_app
from pyterrier_mart.cli.console import errors, say
from pyterrier_mart.cli.meta import app as meta_app
from pyterrier_mart.cli.quickstart import quickstart
from pyterrier_mart.cli.rerank import rerank
from pyterrier_mart.cli.search import index, search, translate

__all__ = ["app", "main"]

_INTERRUPTED = 128 + signal.SIGINT

app = typer.Typer(
    help="Cross-lingual information retrieval in PyTerrier.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(quickstart)
app.command()(index)
app.command()(translate)
app.command()(search)
app.command()(rerank)
app.add_typer(meta_app, name="meta")
app.add_typer(table.app, name="table")
app.add_typer(clef_app, name="clef")
app.add_typer(ciral_app, name="ciral")


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


def in_utf8() -> None:
    """Starts the process again in Python's UTF-8 mode if the locale knows ASCII only.

    Python does so by itself, unless it was told not to: words of arguments, names of files and output would then be
    taken apart at each letter that is not ASCII.
    """
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})


def main() -> NoReturn:
    """Runs the command line; what a user can put right is one sentence, without a traceback."""
    in_utf8()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal lacks must not end the command
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is signal.SIG_DFL:  # not with nohup
            # Ends the process as the signal would, but not before temporary files are deleted.
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}", errors, style="yellow")
        sys.exit(run())


def run() -> int:
    """Runs the command and returns its exit status."""
    code: Any = 0
    try:
        app()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as err:  # every command ends with one
        code = err.code
    except (OSError, ValueError, KeyError, ImportError) as err:
        say(f"error: {sentence(err)}", errors, style="red")
        if os.environ.get("PYTERRIER_MART_DEBUG"):
            traceback.print_exc()
        return 1
    if code == _INTERRUPTED:
        say("stopped", errors, style="red")
    return code if isinstance(code, int) else 0


def sentence(err: Exception) -> str:
    """Returns what an error says, in the words of the command line."""
    if isinstance(err, OSError) and err.strerror:
        if err.filename is not None:
            return f"{err.filename}: {err.strerror}"
        if err.errno == errno.ENOSPC:  # only files of the package's own name themselves
            return f"{err.strerror} for the output, or for temporary files in {tempfile.gettempdir()}"
        return err.strerror
    text = str(err.args[0] if isinstance(err, KeyError) and err.args else err) or type(err).__name__
    # What is an argument in Python is an option here.
    return re.sub(r"\b([a-z_]+)=True\b", lambda found: f"--{found[1].replace('_', '-')}", text)
