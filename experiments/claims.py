"""One process at a time trains in a fold: two would write the same checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["claimed"]


@contextmanager
def claimed(path: Path | None, folds: Iterable[int]) -> Iterator[None]:
    """Keeps other processes out of folds. Where the file system has no locks, nobody is kept out.

    Args:
        path: Where the folds of a pair are kept; ``None`` where no other process gets to.
        folds: Positions of the folds.

    Raises:
        SystemExit: With one sentence, if another process works on one.
    """
    with ExitStack() as stack:
        for fold in sorted(set(folds)) if path is not None and fcntl is not None else ():
            lock = path / "locks" / f"fold-{fold}"
            lock.parent.mkdir(parents=True, exist_ok=True)
            try:  # the lock ends with the process, however that ends
                fcntl.flock(stack.enter_context(open(lock, "ab")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SystemExit(
                    f"error: another process works on fold {fold} in {path}: wait for it, or name other --folds or "
                    "another --path"
                ) from None
            except OSError:
                break
        yield
