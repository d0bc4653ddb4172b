"""Nearest neighbours of word vectors, next to a loop over words: ``python -m benchmarks.muse_neighbours``.

The vectors are synthetic and the same every time: 20,000 source and 20,000 target words of 300 dimensions, half of the
target vectors near a source vector as translations are, written as two text files to a temporary folder, which is
deleted. Each way runs in a process of its own, on one core. ``read_vectors`` is measured as a whole, and the search for
neighbours in it. The loop is what a script would have: for each word the cosines with all target vectors, sorted. It
runs over a sample of the words, and its time is extrapolated to all. Both must find the same neighbours. Memory is by
how much the most that the process occupied was above what it had before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt

from benchmarks.table_open import peak, resident, word
from pyterrier_mart import TranslationTable
from pyterrier_mart.translation.formats import vectors

WORDS, DIMENSIONS, K = 20_000, 300, 5


def make(directory: Path, words: int) -> None:
    """Writes ``source.vec`` and ``target.vec``."""
    rng = np.random.default_rng(7)
    source, target = rng.standard_normal((2, words, DIMENSIONS), dtype=np.float32)
    near = rng.permutation(words)[: words // 2]
    target[near] += 2 * source[near]
    for name, matrix in (("source", source), ("target", target)):
        with open(directory / f"{name}.vec", "w", encoding="utf-8") as file:
            file.write(f"{words} {DIMENSIONS}\n")
            for i, vector in enumerate(matrix):
                file.write(f"{word(name, i)} {' '.join(f'{x:.5f}' for x in vector.tolist())}\n")


def load(path: Path) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Reads a file the plain way, into vectors of length 1."""
    words, rows = [], []
    with open(path, encoding="utf-8") as file:
        next(file)
        for line in file:
            name, *numbers = line.rstrip().split(" ")
            words.append(name)
            rows.append(np.array(numbers, dtype=np.float32))
    matrix = np.stack(rows)
    return words, matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def measure(way: str, directory: Path, sample: int) -> dict[str, object]:
    """Measures one way in this process."""
    paths = directory / "source.vec", directory / "target.vec"
    before, start = resident(), time.perf_counter()
    if way == "package":
        inside = 0.0
        nearest = vectors.nearest

        def timed(*args: object) -> object:
            nonlocal inside
            begin = time.perf_counter()
            found = nearest(*args)  # type: ignore[arg-type]
            inside += time.perf_counter() - begin
            return found

        with mock.patch.object(vectors, "nearest", timed):
            table = TranslationTable.read_vectors(*paths, "de", "en", k=K)
        seconds = {"all": time.perf_counter() - start, "search": inside}
        names = list(table.source_words)[:: len(table.source_words) // sample]
        neighbours = {name: sorted(table.translations(name)) for name in names}
    else:
        (s_words, s), (t_words, t) = map(load, paths)
        loaded = time.perf_counter()
        neighbours = {}
        for i in range(0, len(s), len(s) // sample):
            cosines = t @ s[i]
            neighbours[s_words[i]] = sorted(t_words[j] for j in np.argsort(-cosines)[:K])
        search = (time.perf_counter() - loaded) * len(s) / len(neighbours)
        seconds = {"all": loaded - start + search, "search": search}
    return {**seconds, "memory": peak() - before, "neighbours": neighbours}


def main() -> None:
    """Makes the vectors, measures each way in a process of its own, and prints."""
    parser = argparse.ArgumentParser(description="read_vectors next to a loop over words")
    parser.add_argument("--words", type=int, default=WORDS, help=f"of each language (default: {WORDS})")
    parser.add_argument("--sample", type=int, default=500, help="words that the loop looks up (default: 500)")
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "DIRECTORY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        way, folder = args.measure
        print(json.dumps(measure(way, Path(folder), args.sample)))
        return

    with tempfile.TemporaryDirectory(prefix="muse_neighbours-") as folder:
        make(Path(folder), args.words)
        command = [sys.executable, "-m", "benchmarks.muse_neighbours", "--sample", str(args.sample), "--measure"]
        one_core = {**os.environ, **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")}
        results = {
            way: json.loads(subprocess.check_output([*command, way, folder], env=one_core))
            for way in ("package", "loop")
        }
    ours, loop = results["package"], results["loop"]
    same = np.mean([ours["neighbours"][name] == found for name, found in loop["neighbours"].items()])
    print(
        f"pyterrier-mart {version('pyterrier-mart')}, NumPy {np.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}, one core, one run;\n"
        f"{args.words:,} x {args.words:,} words of {DIMENSIONS} dimensions, {K} nearest; "
        f"the search of the loop is extrapolated from {len(loop['neighbours'])} words;\n"
        f"the same neighbours for {same:.1%} of them"
    )
    print(f"{'':<16}{'reading, s':>12}{'search, s':>11}{'words/s':>9}{'peak memory, MB':>17}")
    for name, way in (("read_vectors()", ours), ("loop over words", loop)):
        print(
            f"{name:<16}{way['all'] - way['search']:>12.1f}{way['search']:>11.2f}{args.words / way['search']:>9,.0f}"
            f"{way['memory'] / 1e6:>17.0f}"
        )
    print(f"ratio of the search: {loop['search'] / ours['search']:.1f}x, of all: {loop['all'] / ours['all']:.1f}x")
    assert same > 0.99, "the neighbours differ"


if __name__ == "__main__":
    main()
