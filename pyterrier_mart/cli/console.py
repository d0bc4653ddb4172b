"""Where the commands write: results to standard output, everything else to standard error."""

from rich.console import Console

__all__ = ["errors", "out"]

out = Console(highlight=False)
errors = Console(stderr=True, highlight=False)
