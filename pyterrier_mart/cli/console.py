"""Where the commands write: results to standard output, everything else to standard error."""

from __future__ import annotations

from rich.console import Console

__all__ = ["arrow", "errors", "out", "say", "speaks_unicode"]

out = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def speaks_unicode() -> bool:
    """Returns whether standard output can show any character."""
    return out.encoding.startswith("utf")


def arrow() -> str:
    """Returns an arrow that standard output can show."""
    return "→" if speaks_unicode() else "->"


def say(text: str, console: Console = out, *, style: str | None = None) -> None:
    """Prints a line as it is, whatever characters are in it, and leaves breaking it to the terminal."""
    console.print(text, style=style, markup=False, emoji=False, soft_wrap=True)
