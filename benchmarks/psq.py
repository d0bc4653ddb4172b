"""Indexing with probabilistic structured queries, next to fast-psq: ``python -m benchmarks.psq --data DATA``.

Documents are five random sentences each of the English side of the parallel text in DATA (see experiments/corpora.py),
with the bundled table de-en. Both are given the same words and the same entries of the table, and run in a process of
their own with one thread; seconds are of processor time. fast-psq (0.1.0; ``pip install --no-deps fast-psq``) runs as
its command does with one worker, in chunks of 5,000 documents, but for its tokenizer. What it writes are matrices of
numbers, which its search multiplies as a whole; ours is an inverted index, compressed and with checksums. Then more
documents are indexed, to show that memory does not grow, and XQuAD-R's questions are asked, next to translated queries
over an index of the same documents' words.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table_open import peak, resident
from pyterrier_mart import SMTQueryTranslator, TranslationTable, bm25_index, psq_index
from pyterrier_mart.datasets import XQuADR
from pyterrier_mart.retrieval.expectation import without_noise
from pyterrier_mart.translation import operations

PAIR, CUMULATIVE, ALPHA, CHUNK, SENTENCES = "de-en", 0.97, 0.5, 5_000, 5


def documents(data: Path, n: int) -> Iterator[dict[str, str]]:
    """Yields documents, the same ones every time."""
    sentences = []
    for path in sorted(data.glob(f"parallel/*/{PAIR}.tsv.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            sentences += [line.rstrip("\n").split("\t")[1] for line in file]
    chance = random.Random(3)
    for i in range(n):
        yield {"docno": f"d{i}", "text": " ".join(chance.choices(sentences, k=SENTENCES))}


def ours(data: Path, n: int, folder: Path) -> dict[str, Any]:
    """Builds the index, and asks questions of it and of one of the words."""
    table = TranslationTable.load(PAIR)
    before, start = resident(), time.process_time()
    index = psq_index(documents(data, n), folder / "psq", table, cumulative=CUMULATIVE, alpha=ALPHA, progress=False)
    out = {"seconds": time.process_time() - start, "memory": peak() - before, "bytes": size(folder)}
    topics = XQuADR("de", "en").get_topics()
    words = bm25_index(documents(data, n), folder / "words", "en", progress=False)
    for name, system in (
        ("PSQ", index.retriever(100)), ("SMT >> BM25", SMTQueryTranslator(table) >> words.bm25(num_results=100)),
    ):  # fmt: skip
        system.transform(topics.head(1))
        start = time.process_time()
        system.transform(topics)
        out[name] = len(topics) / (time.process_time() - start)
    return out


def fast_psq(data: Path, n: int, folder: Path) -> dict[str, Any]:
    """Runs what fast_psq.index does with the same words and entries."""
    sys.modules["mosestokenizer"] = types.SimpleNamespace(MosesTokenizer=None, MosesPunctuationNormalizer=None)  # type: ignore[assignment]
    from fast_psq.utils import write_inverted_index  # type: ignore[import-not-found,unused-ignore]
    from fast_psq.vectorizer import PSQVectorizer  # type: ignore[import-not-found,unused-ignore]

    table = TranslationTable.load(PAIR)
    before, start = resident(), time.process_time()
    entries = without_noise(operations.prune(table.as_entries(), cumulative=CUMULATIVE))
    entry: dict[str, dict[str, float]] = {}
    for s, t, w in zip(entries.s.tolist(), entries.t.tolist(), entries.w.tolist(), strict=True):
        entry.setdefault(entries.target_words[t], {})[entries.source_words[s]] = w
    vectorizer = PSQVectorizer.from_dict(entry, source_tokenizer=table.target.tokens, alpha=ALPHA)
    vectorizer.qimp = np.full(len(vectorizer.target_vocab), 1e-4)  # it would be counted beforehand, in other text
    rows = documents(data, n)
    for number in itertools.count():
        chunk = list(itertools.islice(rows, CHUNK))
        if not chunk:
            break
        matrix = vectorizer.translate([document["text"] for document in chunk]).tocsc()
        matrix.data[matrix.data < 1e-9] = 0
        matrix.eliminate_zeros()
        docnos = np.array([document["docno"] for document in chunk])
        write_inverted_index(False, folder / f"{number}.pkl", docnos, matrix.astype(np.float32).tocsr())
    return {"seconds": time.process_time() - start, "memory": peak() - before, "bytes": size(folder)}


def size(folder: Path) -> int:
    """Returns the bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpora")
    parser.add_argument("--documents", type=int, default=100_000, help="for both (default: 100000)")
    parser.add_argument("--many", type=int, default=200_000, help="for ours (default: 200000)")
    parser.add_argument("--run", choices=["ours", "fast_psq"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(globals()[arguments.run](arguments.data, arguments.documents, Path(folder))))
        return
    print(
        f"pyterrier-mart {version('pyterrier-mart')}, fast-psq 0.1.0, Python {platform.python_version()}, "
        f"{platform.machine()}, one thread, one run; table {PAIR}, cumulative={CUMULATIVE}"
    )
    print(f"{'':<12}{'documents':>10}{'seconds':>9}{'documents/s':>13}{'peak memory':>13}{'index':>9}")
    for name, n in (("fast_psq", arguments.documents), ("ours", arguments.documents), ("ours", arguments.many)):
        command = [sys.executable, "-m", "benchmarks.psq", "--data", str(arguments.data), "--documents", str(n)]
        found = json.loads(subprocess.check_output([*command, "--run", name], text=True).splitlines()[-1])
        label = {"ours": "psq_index", "fast_psq": "fast-psq"}[name]
        seconds, memory = found["seconds"], f"{found['memory'] / 2**20:.0f} MB"
        print(
            f"{label:<12}{n:>10,}{seconds:>9.1f}{n / seconds:>13,.0f}{memory:>13}{found['bytes'] / 2**20:>6.0f} MB",
            *(f"   {system}: {found[system]:.0f} questions/s" for system in ("PSQ", "SMT >> BM25") if system in found),
        )


if __name__ == "__main__":
    main()
