"""Opening a big translation table, next to parsing it from text: ``python -m benchmarks.table_open``.

The table is synthetic and the same every time: 5 million entries, 250,000 source words with 20 translations each out
of 250,000 target words. It is saved as a directory and as a TSV file in a temporary folder, which is deleted. Each
way to get at it then runs in its own process: the time until it is ready, the time of the first look-up, and by how
much the memory that the process occupies (resident, the pages of mapped files included) has grown since before.
Files are read once before, so that all of them come from the page cache.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from pyterrier_mart import Analyzer, TranslationTable
from pyterrier_mart.translation.entries import Entries

ENTRIES, PER_WORD = 5_000_000, 20


def word(prefix: str, i: int) -> str:
    """Returns a word of letters for a number."""
    letters = ""
    for _ in range(4):
        i, rest = divmod(i, 26)
        letters = chr(97 + rest) + letters
    return prefix + letters


def make(directory: Path, entries: int) -> None:
    """Writes the table to ``table/`` and ``table.tsv``."""
    n_words = entries // PER_WORD
    rng = np.random.default_rng(7)
    s = np.arange(n_words).repeat(PER_WORD)
    t = (s + rng.integers(1, n_words // PER_WORD, entries).reshape(n_words, PER_WORD).cumsum(axis=1).ravel()) % n_words
    weights = rng.exponential(size=entries)
    table = TranslationTable.from_entries(Entries(
        Analyzer("de"), Analyzer("en"), [word("wort", i) for i in range(n_words)],
        [word("word", i) for i in range(n_words)], s, t, weights, "count", {"source": "synthetic"},
    ))  # fmt: skip
    assert len(table) == entries
    table.save(directory / "table")
    with open(directory / "table.tsv", "w", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\t{prob:.6g}\n" for source, target, prob in table.entries())


def open_directory(directory: Path) -> Callable[[str], dict[str, float]]:
    """Opens the saved table, which maps it."""
    return TranslationTable(directory / "table").translations


def loop_over_tsv(directory: Path) -> Callable[[str], dict[str, float]]:
    """Parses the file into a dict of dicts: the plain loop that a script would have."""
    table: dict[str, dict[str, float]] = {}
    with open(directory / "table.tsv", encoding="utf-8") as file:
        for line in file:
            source, target, prob = line.rstrip("\n").split("\t")
            table.setdefault(source, {})[target] = float(prob)
    return table.__getitem__


def read_tsv(directory: Path) -> Callable[[str], dict[str, float]]:
    """Reads the file with all checks of :meth:`TranslationTable.read`."""
    return TranslationTable.read(directory / "table.tsv", "de", "en", format="tsv", header=False).translations


WAYS = {
    "TranslationTable(dir)": open_directory,
    "TSV, loop into dict": loop_over_tsv,
    "TranslationTable.read(tsv)": read_tsv,
}


def resident() -> int:
    """Returns the bytes of memory that this process occupies now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> int:
    """Returns the most bytes of memory that this process has occupied (not those of its parent, as getrusage does)."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def measure(way: str, directory: Path, query: str) -> dict[str, float]:
    """Measures one way in this process."""
    before = resident()
    start = time.perf_counter()
    look_up = WAYS[way](directory)
    ready = time.perf_counter()
    found = look_up(query)
    looked_up = time.perf_counter()
    assert len(found) == PER_WORD, found
    return {"open": ready - start, "first": looked_up - ready, "memory": resident() - before, "peak": peak() - before}


def main() -> None:
    """Makes the table, measures each way in a process of its own, and prints."""
    parser = argparse.ArgumentParser(description="Opening a table, next to parsing it from text")
    parser.add_argument("--entries", type=int, default=ENTRIES, help=f"default: {ENTRIES:,}")
    parser.add_argument("--repeat", type=int, default=3, help="processes for each way; the best counts (default: 3)")
    parser.add_argument("--measure", nargs=3, metavar=("WAY", "DIRECTORY", "WORD"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        way, folder, query = args.measure
        print(json.dumps(measure(way, Path(folder), query)))
        return

    print(
        f"pyterrier-mart {version('pyterrier-mart')}, NumPy {np.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}; {args.entries:,} entries, files in the page cache, best of {args.repeat}"
    )
    with tempfile.TemporaryDirectory(prefix="table_open-") as folder:
        make(Path(folder), args.entries)
        files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        sizes = {path: len(path.read_bytes()) for path in files}
        text = sum(size for path, size in sizes.items() if path.suffix == ".tsv")
        print(f"directory {(sum(sizes.values()) - text) / 1e6:.0f} MB, TSV {text / 1e6:.0f} MB\n")
        query = word("wort", args.entries // PER_WORD // 2)
        print(f"{'':<28}{'ready after':>13}{'first look-up':>15}{'memory':>11}{'peak':>11}{'time, ratio':>13}")
        fastest = None
        for way in WAYS:
            runs = []
            for _ in range(args.repeat):
                command = [sys.executable, "-m", "benchmarks.table_open", "--measure", way, folder, query]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                runs.append(json.loads(done.stdout.splitlines()[-1]))
            best = {key: min(run[key] for run in runs) for key in runs[0]}
            total = best["open"] + best["first"]
            fastest = fastest or total
            print(
                f"{way:<28}{best['open'] * 1e3:>10,.1f} ms{best['first'] * 1e3:>12,.3f} ms"
                f"{best['memory'] / 1e6:>8,.1f} MB{best['peak'] / 1e6:>8,.1f} MB{total / fastest:>12,.0f}x"
            )


if __name__ == "__main__":
    main()
