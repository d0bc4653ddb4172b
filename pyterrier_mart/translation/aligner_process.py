"""The process in which a word aligner runs: ``python -I aligner_process.py ALIGNER DIRECTORY SYS_PATH...``.

A program of its own, since fast_align hears no signal until it is done. It imports nothing of the package, whose
imports take longer than a small alignment. It reads the sentences in ``source`` and ``target``, one a line, and writes
their links to ``links0`` (and ``links1``), lines such as ``0-0 1-2``.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__: list[str] = []

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def run_eflomal(directory: Path, sides: tuple[list[str], list[str]]) -> None:
    """Links words in each direction."""
    import eflomal

    files = [os.fspath(directory / name) for name in ("links0", "links1")]
    eflomal.Aligner().align(*sides, links_filename_fwd=files[0], links_filename_rev=files[1])


def run_fast_align(directory: Path, sides: tuple[list[str], list[str]]) -> None:
    """Links words in both directions at once, which it symmetrises itself (grow-diag-final-and)."""
    import systran_align

    text = directory / "pairs"
    with open(text, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(f"{s} ||| {t}\n" for s, t in zip(*sides, strict=True))
    models = os.fspath(directory / "forward"), os.fspath(directory / "backward")
    # The options that its authors recommend (-d -o -v).
    systran_align.generate_alignment_probabilities(
        os.fspath(text), *models, favor_diagonal=True, optimize_tension=True, variational_bayes=True
    )
    found = systran_align.Aligner(*models).align_batch(*([line.split() for line in side] for side in sides))
    with open(directory / "links0", "w", encoding="ascii") as out:
        out.writelines(" ".join(f"{i}-{j}" for i, j in pair["alignments"]) + "\n" for pair in found)


def end_with_parent(aligner: str) -> None:
    """Ends this process, and what it has started, when its parent is killed and cannot see to that."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if aligner == "eflomal":  # runs a program, while this process hears signals
        signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))


def main(aligner: str, directory: Path) -> None:
    """Links the words of the sentences in a directory."""
    end_with_parent(aligner)
    tempfile.tempdir = os.fspath(directory)  # goes when the parent is done with it
    source, target = ((directory / name).read_text(encoding="utf-8").splitlines() for name in ("source", "target"))
    runs: dict[str, Callable[[Path, tuple[list[str], list[str]]], None]] = {
        "eflomal": run_eflomal, "fast_align": run_fast_align,
    }  # fmt: skip
    runs[aligner](directory, (source, target))


if __name__ == "__main__":
    sys.path[:] = sys.argv[3:]
    main(sys.argv[1], Path(sys.argv[2]))
