"""Meta-steps next to learn2learn's, and retrieval next to a loop: ``python -m benchmarks.meta``.

- A meta-step of MAML with one task (8 support questions, 4 query questions, one negative each, mono to bi) on a real
  encoder, with 1 and 5 inner steps: weights in place, by functional calls, and in clones of learn2learn's ``MAML``,
  first order, on the same task with the same threads, in turns; the gradients are compared first. learn2learn is
  installed with ``benchmarks/learn2learn.sh``. Memory is the most that a process of its own occupied above what it had
  before its first step. Second order needs eager attention, so that first order has it too where they are compared.
- Retrieval of 100 documents for each of 64 queries from 100,000 random vectors on disk, through
  ``MetaSBERTRetriever``'s index (pyterrier_dr), next to a loop in Python over queries and documents.
"""

from __future__ import annotations

import argparse
import heapq
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks.table_open import peak, resident
from pyterrier_mart.dense.index import Provenance
from pyterrier_mart.meta import (
    DenseIndex,
    MetaConfig,
    MultilingualCorpus,
    TextEncoder,
    TripletTaskSampler,
    kfold_by_group,
    load_sentence_transformer,
)
from pyterrier_mart.meta.learners import MAML
from pyterrier_mart.meta.tasks import MetaTask

LENGTHS = (32, 64)
WAYS = {
    "in place": {"backend": "inplace"},
    "functional": {"backend": "functional"},
    "learn2learn": {"backend": "learn2learn"},
    "second order": {"backend": "functional", "order": "second"},
}
QUERIES, DEPTH, DIMENSION = 64, 100, 384


def config(way: str, steps: int) -> MetaConfig:
    """Returns the settings of a way."""
    return MetaConfig(
        transfer="el_el-el_ar", k_shot=8, q_query=4, n_neg=1, inner_steps=steps, meta_batch_size=1,
        max_length=LENGTHS, **WAYS[way],
    )  # fmt: skip


def learner(encoder: TextEncoder, way: str, steps: int) -> MAML:
    """Returns what takes meta-steps. learn2learn adapts all that is trained: here too, all but the embeddings."""
    return MAML(encoder, config(way, steps))


def task() -> MetaTask:
    """Returns the task, which is always the same."""
    fold = next(iter(kfold_by_group(MultilingualCorpus.xquad_r(("ar", "el")))))
    return TripletTaskSampler(fold.train, config("in place", 1))[0]


def gradients(encoder: TextEncoder, way: str, steps: int, of: MetaTask) -> dict[str, torch.Tensor]:
    """Returns the outer gradients of a meta-step."""
    made = learner(encoder, way, steps)
    made.outer_gradient([of])
    found = {name: weight.grad.clone() for name, weight in made.trained.items() if weight.grad is not None}
    made.optimizer.zero_grad(set_to_none=True)
    return found


def compare_steps(encoder_name: str, attention: str | None, ways: Sequence[str], numbers: Sequence[int], repeat: int,
                  threads: int) -> None:  # fmt: skip
    """Prints time, memory and gradients of meta-steps."""
    encoder = TextEncoder(load_sentence_transformer(encoder_name, device="cpu", attention=attention), LENGTHS)
    of = task()
    for steps in numbers:
        title = f"n={steps}" + (f", {attention} attention" if attention else "")
        print(f"{title:<24}{'s a meta-step':>15}{'ratio':>8}{'peak memory, MB':>18}{'gradients':>12}")
        expected = gradients(encoder, ways[0], steps, of)
        found = {way: gradients(encoder, way, steps, of) for way in ways[1:]}
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(repeat):
            for way in ways:
                made = learner(encoder, way, steps)
                start = time.perf_counter()
                made.meta_step([of])
                times[way].append(time.perf_counter() - start)
        slowest = statistics.median(times[ways[-1]])
        for way in ways:
            seconds = statistics.median(times[way])
            memory = in_process(["--memory-of-step", way, str(steps), "--encoder", encoder_name], attention, threads)
            difference = "" if way == ways[0] else f"{apart(expected, found[way]):.0e}"
            print(f"{way:<24}{seconds:>15.2f}{slowest / seconds:>7.2f}x{memory / 1e6:>18.0f}{difference:>12}")
        print()


def apart(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> float:
    """Returns the largest difference between gradients, relative to the largest of them."""
    largest = max(float(g.abs().max()) for g in expected.values())
    return max(float((g - found[name]).abs().max()) for name, g in expected.items()) / largest


def in_process(arguments: list[str], attention: str | None, threads: int) -> float:
    """Returns what a process of its own prints."""
    command = [sys.executable, "-m", "benchmarks.meta", *arguments, "--threads", str(threads)]
    command += ["--attention", attention] if attention else []
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def memory_of_step(encoder_name: str, attention: str | None, way: str, steps: int) -> float:
    """Returns the memory of two meta-steps in this process."""
    encoder = TextEncoder(load_sentence_transformer(encoder_name, device="cpu", attention=attention), LENGTHS)
    made, of = learner(encoder, way, steps), task()
    before = resident()
    for _ in range(2):
        made.meta_step([of])
    return float(peak() - before)


def compare_retrieval(documents: int, repeat: int) -> None:
    """Prints the time of retrieval."""
    rng = np.random.default_rng(3)

    def vectors(count: int) -> np.ndarray:
        drawn = rng.standard_normal((count, DIMENSION), dtype=np.float32)
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    queries = vectors(QUERIES)
    with tempfile.TemporaryDirectory() as folder:
        chunk = [f"d{i}" for i in range(documents)], [None] * documents, vectors(documents)
        index = DenseIndex.write(Path(folder) / "index", [chunk], Provenance("random vectors", "0"))
        topics = pd.DataFrame({"qid": range(QUERIES), "query_vec": list(queries)})
        search = index.retriever(num_results=DEPTH)
        search(topics)
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            found = search(topics)
            times.append(time.perf_counter() - start)
        seconds = statistics.median(times) / QUERIES
        matrix = [np.array(row) for row in index.vectors]
        start = time.perf_counter()
        best = heapq.nlargest(DEPTH, ((float(queries[0] @ row), i) for i, row in enumerate(matrix)))
        looped = time.perf_counter() - start
    assert set(found[found["qid"] == 0]["docno"]) == {f"d{i}" for _, i in best}
    print(f"{f'{documents:,} vectors':<24}{'ms a query':>15}{'ratio':>8}")
    print(f"{'index (pyterrier_dr)':<24}{seconds * 1e3:>15.2f}{looped / seconds:>7.0f}x")
    print(f"{'loop over documents':<24}{looped * 1e3:>15.2f}{1:>7}x")


def main() -> None:
    """Runs the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="e5-small")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--inner-steps", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--second-order-steps", type=int, nargs="*", default=[1])
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--memory-of-step", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--attention", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory_of_step:
        way, steps = args.memory_of_step
        print(json.dumps(memory_of_step(args.encoder, args.attention, way, int(steps))))
        return
    names = ("pyterrier-mart", "sentence-transformers", "learn2learn", "pyterrier-dr", "torch")
    print(", ".join(f"{name} {version(name)}" for name in names), end=", ")
    print(f"Python {platform.python_version()}, {platform.machine()}, {args.threads} threads")
    print(f"{args.encoder}, one task, {LENGTHS[0]} and {LENGTHS[1]} wordpieces, median of {args.repeat} rounds\n")
    compare_steps(args.encoder, None, ("in place", "functional", "learn2learn"), args.inner_steps, args.repeat,
                  args.threads)  # fmt: skip
    compare_steps(args.encoder, "eager", ("in place", "second order"), args.second_order_steps, args.repeat,
                  args.threads)  # fmt: skip
    compare_retrieval(args.documents, args.repeat)


if __name__ == "__main__":
    main()
