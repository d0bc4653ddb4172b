"""MARTReRanker next to a cross-encoder and to dense attention matrices: ``python -m benchmarks.mart``.

The rows are German questions of XQuAD-R, each with 16 English sentences or paragraphs, from the paragraph with its
answer on; they come with the package. Everything runs on the same rows and with the same number of threads.

- Pairs per second next to ``sentence_transformers.CrossEncoder.predict`` as it is by default (batches of 32 rows,
  sorted by length), a ``BertForSequenceClassification`` with the weights of the same encoder and the same maximal
  length. Nothing is remembered from one round to the next. Both compute in float32; beside them is MARTReRanker with
  ``dtype="auto"``, and how far its ranking is from that of float32 (Kendall's tau).
- How much of that time goes into M^tr: finding words and their translations, the links of each batch and the sparse
  matrix, and, apart from that, multiplying with it.
- M^tr of passages with 512 tokens, built and multiplied with values: sparse, and dense from two nested loops in Python
  over the tokens, which get the links. Both must give the same.
- A training step (forward, backward, Adam) on two passages of 512 tokens with the sparse matrix, and with dense ones
  that are multiplied by ``torch.bmm``, built by the loops before the step or in it. Memory is the most that a process
  of its own occupied above what it had before its first step.
- The most memory that a process occupied while it scored rows, above what it had with the rows and the model: a small
  random model, and sentences put together in pairs so that most rows are different. Texts are remembered up to a
  limit, so that memory is flat from there on.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.table_open import peak, resident
from pyterrier_mart import MARTReRanker, TranslationTable, encoders
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.devices import quiet, resolve_device, resolve_dtype
from pyterrier_mart.mart import attention as sparse
from pyterrier_mart.mart import encoding
from pyterrier_mart.mart.encoding import Pair, PairEncoder

LENGTH = 512
DOCUMENTS = 16  # of each query
STEP_WAYS = ("sparse", "dense, built before", "dense, built in the step")
BUILDING = (
    (sparse.WordLinker, "query"), (sparse.WordLinker, "document"), (encoding, "word_of_each"), (encoding, "link"),
    (encoding, "attention"),
)  # fmt: skip
APPLYING = ((sparse.TranslationAttention, "apply"),)


# ---------------------------------------------------------------------------------------------------------------- rows


def rows(n: int, *, paragraphs: bool) -> pd.DataFrame:
    """Returns ``n`` rows: questions spread over the collection, each with sentences or paragraphs from its answer."""
    german, english = xquad_r.load("de"), xquad_r.load("en")
    found = []
    for i in np.linspace(0, len(german.questions) - 1, -(-n // DOCUMENTS)).astype(int):
        question = german.questions[i]
        near = (english.paragraphs[question.paragraph :] + english.paragraphs)[:DOCUMENTS]
        texts = [text for p in near for text in ([p.context] if paragraphs else p.sentences)][:DOCUMENTS]
        found += [{"qid": str(i), "query": question.text, "docno": str(d), "text": t} for d, t in enumerate(texts)]
    return pd.DataFrame(found[:n])


def many_rows(n: int) -> pd.DataFrame:
    """Returns ``n`` rows with two sentences each; almost all are different."""
    questions, english = xquad_r.load("de").questions, xquad_r.load("en").paragraphs
    sentences = [sentence for paragraph in english for sentence in paragraph.sentences]
    count = len(sentences)
    return pd.DataFrame(
        {
            "qid": [str(i // 100) for i in range(n)],
            "query": [questions[i // 100 % len(questions)].text for i in range(n)],
            "docno": [str(i) for i in range(n)],
            "text": [f"{sentences[i % count]} {sentences[(i // count + 7 * i) % count]}" for i in range(n)],
        }
    )


# --------------------------------------------------------------------------------------------------------------- speed


def in_turns(repeat: int, functions: Sequence[Callable[[], object]]) -> list[float]:
    """Returns the median time in seconds of each function; the functions take turns."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeat):
        for function, own in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]


def scoring(model: MARTReRanker, frame: pd.DataFrame) -> Callable[[], object]:
    """Returns a function that scores the rows, with nothing remembered."""

    def score() -> object:
        scorer = model.scorer()
        scorer.encoder = model.pair_encoder(model.loaded())
        return model(frame)

    score()  # the first time, memory is allocated
    return score


def cross_encoder(name: str, folder: Path, device: str) -> Any:
    """Returns the cross-encoder on the same encoder."""
    from sentence_transformers import CrossEncoder
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    path = encoders.resolve(name)
    with quiet():
        AutoModelForSequenceClassification.from_pretrained(path, num_labels=1, dtype=torch.float32).save_pretrained(
            folder
        )
        AutoTokenizer.from_pretrained(path).save_pretrained(folder)
        return CrossEncoder(str(folder), max_length=LENGTH, device=device)


class Stopwatch:
    """Measures what part of a function's time is spent in some functions, not counting calls within calls."""

    def __init__(self) -> None:
        self.seconds, self._inside = 0.0, False

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that is measured."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside, start = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start
                self._inside = False

        return timed


def shares(score: Callable[[], object]) -> tuple[float, float]:
    """Returns the shares of scoring that are spent on building M^tr, and on multiplying with it."""
    building, applying = Stopwatch(), Stopwatch()
    with ExitStack() as stack:
        for watch, places in ((building, BUILDING), (applying, APPLYING)):
            for place, name in places:
                stack.enter_context(mock.patch.object(place, name, watch.wrap(getattr(place, name))))
        start = time.perf_counter()
        score()
        seconds = time.perf_counter() - start
    return building.seconds / seconds, applying.seconds / seconds


def compare_speed(name: str, device: str, frames: dict[str, pd.DataFrame], repeat: int) -> None:
    """Prints pairs per second and the shares of M^tr."""
    from scipy.stats import kendalltau

    table = TranslationTable.load("de-en")
    settings: dict[str, Any] = {"max_length": LENGTH, "document_tokens": LENGTH, "device": device}
    dtype = str(resolve_dtype("auto", resolve_device(device))).removeprefix("torch.")
    ours = {
        "MARTReRanker, float32": MARTReRanker(name, table, **settings),
        "without M^tr, float32": MARTReRanker(name, mat_layers=(), **settings),
    }
    if dtype == "float32":
        print('dtype="auto" is float32 here: the device does not compute in bfloat16, nothing is faster than float32')
    else:
        ours[f"MARTReRanker, {dtype}"] = MARTReRanker(name, table, dtype="auto", **settings)
    with tempfile.TemporaryDirectory(prefix="mart-") as folder:
        peer = cross_encoder(name, Path(folder), device)
        print(f"{'':<26}" + "".join(f"{kind + ', pairs/s':>21}{'ratio':>8}" for kind in frames))
        lines: dict[str, str] = {}
        notes: list[str] = []
        for kind, frame in frames.items():
            pairs = list(zip(frame["query"], frame["text"], strict=True))
            peer.predict(pairs, show_progress_bar=False)

            def predict(pairs: Any = pairs) -> object:
                return peer.predict(pairs, show_progress_bar=False)

            functions = {"CrossEncoder.predict": predict, **{k: scoring(m, frame) for k, m in ours.items()}}
            times = in_turns(repeat, list(functions.values()))
            for line, seconds in zip(functions, times, strict=True):
                cells = f"{len(frame) / seconds:>21.1f}{times[0] / seconds:>7.2f}x"
                lines[line] = lines.get(line, "") + cells
            building, applying = shares(functions["MARTReRanker, float32"])
            notes.append(
                f"{kind}: {len(frame)} rows of {tokens(ours['MARTReRanker, float32'], frame):.0f} tokens; "
                f"M^tr is built in {building:.1%} and multiplied in {applying:.1%} of the time"
            )
            if dtype != "float32":
                scores = [m(frame)["score"] for k, m in ours.items() if k.startswith("MART")]
                notes.append(f"{kind}: Kendall's tau of {dtype} and float32 is {kendalltau(*scores).statistic:.4f}")
    for line, cells in lines.items():
        print(f"{line:<26}{cells}")
    print("\n".join(notes))


def tokens(model: MARTReRanker, frame: pd.DataFrame) -> float:
    """Returns the mean number of tokens of a row, without special tokens."""
    pairs = model.scorer().encoder.pairs(frame["query"].tolist(), frame["text"].tolist())
    return float(np.mean([len(pair.query.ids) + len(pair.document.ids) for pair in pairs]))


# -------------------------------------------------------------------------------------------------------- the matrices


class Passages(NamedTuple):
    """Passages of ``LENGTH`` tokens: the pairs, and what M^tr is made of."""

    pairs: list[Pair]
    words: np.ndarray  # of each token, numbered in the passage, the query's first; -1 for none
    counts: list[int]  # words of each query


def passages(encoder: PairEncoder, n: int) -> Passages:
    """Returns ``n`` passages: questions, and the paragraph with the answer and the next ones, cut off at the end."""
    german, english = xquad_r.load("de"), xquad_r.load("en")
    questions = [german.questions[i] for i in np.linspace(0, len(german.questions) - 1, n).astype(int)]
    texts = [
        " ".join(p.context for p in (english.paragraphs[q.paragraph :] + english.paragraphs)[:8]) for q in questions
    ]  # fmt: skip
    pairs = []
    words = np.full((n, LENGTH), -1, np.int32)
    for line, (query, document, _) in enumerate(encoder.pairs([q.text for q in questions], texts)):
        room = LENGTH - encoder.template.length - len(query.ids)
        assert len(document.ids) >= room
        pairs.append(Pair(query, document, (0, room)))
        at = len(encoder.template.before)
        words[line, at : at + len(query.ids)] = query.words
        at += len(query.ids) + len(encoder.template.between)
        numbers = document.words[:room]
        words[line, at : at + room] = np.where(numbers >= 0, numbers + len(query.spans.keys), -1)
    return Passages(pairs, words, [len(pair.query.spans.keys) for pair in pairs])


def build_sparse(given: Passages) -> sparse.TranslationAttention:
    """Builds M^tr as scoring does, from the translations of the queries' words and the documents' words."""
    queries, keys = [pair.query.links for pair in given.pairs], [pair.document.spans.keys for pair in given.pairs]
    return sparse.attention(given.words, given.counts, sparse.link(queries, keys))


class Dense(NamedTuple):
    """M^tr as a matrix for each passage."""

    matrices: torch.Tensor

    def apply(self, values: torch.Tensor) -> torch.Tensor:
        """Returns M^tr V."""
        return torch.bmm(self.matrices, values)


def links_of(given: Passages) -> list[dict[tuple[int, int], float]]:
    """Returns the probabilities of linked words in each passage, in both directions."""
    queries, keys = [pair.query.links for pair in given.pairs], [pair.document.spans.keys for pair in given.pairs]
    found: list[dict[tuple[int, int], float]] = [{} for _ in given.pairs]
    for line, q, d, weight in zip(*(part.tolist() for part in sparse.link(queries, keys)), strict=True):
        d += given.counts[line]
        found[line][q, d] = found[line][d, q] = weight
    return found


def build_dense(given: Passages, links: list[dict[tuple[int, int], float]]) -> Dense:
    """Builds M^tr with two nested loops over the tokens of each passage."""
    matrices = []
    for words, linked in zip(given.words.tolist(), links, strict=True):
        matrix = [[0.0] * LENGTH for _ in range(LENGTH)]
        for i, a in enumerate(words):
            row = matrix[i]
            for j, b in enumerate(words):
                if i == j or (a == b and a >= 0):
                    row[j] = 1.0
                elif a >= 0 and b >= 0 and (a, b) in linked:
                    row[j] = linked[a, b]
            total = sum(row)
            matrix[i] = [value / total for value in row]
        matrices.append(matrix)
    return Dense(torch.tensor(matrices))


def compare_matrices(name: str, repeat: int, n: int = 8) -> None:
    """Prints the time of building and multiplying."""
    model = MARTReRanker(name, "de-en", device="cpu")
    given = passages(model.scorer().encoder, n)
    links = links_of(given)
    values = torch.randn(n, LENGTH, model.load_model().config.hidden_size)
    assert torch.allclose(build_sparse(given).apply(values), build_dense(given, links).apply(values), atol=1e-5)
    for _ in range(10):
        build_sparse(given).apply(values)
    dense = in_turns(3, [lambda: build_dense(given, links), lambda: build_dense(given, links).apply(values)])
    fast = in_turns(10 * repeat, [lambda: build_sparse(given), lambda: build_sparse(given).apply(values)])
    print(f"{f'M^tr of {LENGTH} tokens, ms':<26}{'built':>10}{'and multiplied':>16}{'ratio':>9}")
    for what, (built, both) in (("nested loops, dense", dense), ("sparse", fast)):
        print(f"{what:<26}{built / n * 1e3:>10.3f}{both / n * 1e3:>16.3f}{dense[1] / both:>8.0f}x")
    per_passage = sum(map(len, links)) / n
    print(f"for each of {n} passages that are a batch; {per_passage:.0f} links a passage, {values.shape[2]} dimensions")


# ------------------------------------------------------------------------------------------------------------ training


def training_steps(name: str, ways: Sequence[str]) -> list[Callable[[], object]]:
    """Returns functions that each do a training step on the same model and passages."""
    model = MARTReRanker(name, "de-en", device="cpu")
    encoder, net = model.scorer().encoder, model.load_model().train()
    given = passages(encoder, 2)
    links = links_of(given)
    inputs = encoder.batch(given.pairs).inputs()
    before = build_dense(given, links) if "dense, built before" in ways else None
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-6)
    makers: dict[str, Callable[[], Any]] = {
        "sparse": lambda: build_sparse(given),
        "dense, built before": lambda: before,
        "dense, built in the step": lambda: build_dense(given, links),
    }

    def step(make: Callable[[], Any]) -> float:
        scores = net(**{**inputs, "translation": make()}).scores
        loss = nn.functional.cross_entropy(scores.unsqueeze(0), torch.zeros(1, dtype=torch.long))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return [lambda way=way: step(makers[way]) for way in ways]  # type: ignore[misc]


def memory_of_step(name: str, way: str) -> dict[str, float]:
    """Measures the memory of two steps in this process."""
    (step,) = training_steps(name, [way])
    gc.collect()
    before = resident()
    step()
    step()
    return {"memory": peak() - before}


def compare_training(name: str, repeat: int, threads: int) -> None:
    """Prints time and memory of a step."""
    steps = training_steps(name, STEP_WAYS)
    steps[0]()
    times = in_turns(repeat, steps)
    del steps
    gc.collect()
    print(f"{f'training, 2 x {LENGTH} tokens':<26}{'s a step':>10}{'ratio':>9}{'peak memory, MB':>18}")
    for way, seconds in zip(STEP_WAYS, times, strict=True):
        memory = in_process(["--memory-of-step", way, "--encoder", name], threads)["memory"]
        print(f"{way:<26}{seconds:>10.3f}{seconds / times[0]:>8.2f}x{memory / 1e6:>18.0f}")


# -------------------------------------------------------------------------------------------------------------- memory


def small_model(name: str, folder: Path) -> None:
    """Saves a small random encoder with the tokenizer."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(encoders.resolve(name))
        torch.manual_seed(7)
        config = BertConfig(
            vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16
        )
        BertModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def memory_of_rows(folder: str, n: int) -> dict[str, float]:
    """Measures the memory of scoring so many rows in this process."""
    model = MARTReRanker(Path(folder), "de-en", device="cpu")
    model(many_rows(100))
    frame = many_rows(n)
    gc.collect()
    before, start = resident(), time.perf_counter()
    model(frame)
    return {"memory": peak() - before, "seconds": time.perf_counter() - start}


def compare_memory(name: str, numbers: Sequence[int], threads: int) -> None:
    """Prints the memory of scoring numbers of rows."""
    with tempfile.TemporaryDirectory(prefix="mart-") as folder:
        small_model(name, Path(folder))
        print(f"{'rows, small model':<26}{'rows/s':>10}{'peak memory, MB':>18}")
        for n in numbers:
            found = in_process(["--memory-of-rows", folder, str(n)], threads)
            print(f"{n:<26,}{n / found['seconds']:>10,.0f}{found['memory'] / 1e6:>18.0f}")


def in_process(arguments: Sequence[str], threads: int) -> dict[str, float]:
    """Runs this module in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.mart", "--threads", str(threads), *arguments]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="MARTReRanker next to a cross-encoder and to dense matrices")
    parser.add_argument("--encoder", default="e5-small", help="default: e5-small")
    parser.add_argument("--pairs", type=int, default=128, help="rows with sentences; paragraphs: a quarter of them")
    parser.add_argument("--repeat", type=int, default=5, help="rounds, of which the median counts (default: 5)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 50_000, 100_000], help="to measure memory with")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: as torch chooses")
    parser.add_argument("--device", default="cpu", help="of the comparison with CrossEncoder (default: cpu)")
    parser.add_argument("--parts", nargs="+", choices=("speed", "matrices", "training", "memory"),
                        default=["speed", "matrices", "training", "memory"], help="default: all")  # fmt: skip
    parser.add_argument("--memory-of-step", metavar="WAY", help=argparse.SUPPRESS)
    parser.add_argument("--memory-of-rows", nargs=2, metavar=("FOLDER", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory_of_step:
        print(json.dumps(memory_of_step(args.encoder, args.memory_of_step)))
        return
    if args.memory_of_rows:
        print(json.dumps(memory_of_rows(args.memory_of_rows[0], int(args.memory_of_rows[1]))))
        return

    print(
        f"pyterrier-mart {version('pyterrier-mart')}, sentence-transformers {version('sentence-transformers')}, torch "
        f"{torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {args.device}, {args.threads} "
        f"thread{'s' if args.threads > 1 else ''};\n{args.encoder}, median of {args.repeat} rounds"
    )
    if "speed" in args.parts:
        frames = {
            "sentences": rows(args.pairs, paragraphs=False),
            "paragraphs": rows(max(1, args.pairs // 4), paragraphs=True),
        }
        compare_speed(args.encoder, args.device, frames, args.repeat)
    if "matrices" in args.parts:
        print()
        compare_matrices(args.encoder, args.repeat)
    if "training" in args.parts:
        print()
        compare_training(args.encoder, args.repeat, args.threads)
    if "memory" in args.parts:
        print()
        compare_memory(args.encoder, args.rows, args.threads)


if __name__ == "__main__":
    main()
