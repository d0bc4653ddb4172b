"""Reading a CLEF collection, next to the reader of ir_datasets: ``python -m benchmarks.clef``.

The collection is synthetic, in the markup and of the size of Los Angeles Times 94: 113,005 articles of XQuAD's English
paragraphs, gzipped by day in a temporary folder, which is deleted. Both readers get the same files, ir_datasets as it
reads other TREC newspapers (BeautifulSoup), each in a process of its own. Then the whole collection goes into a
document store, and a fifth of it, to show that memory does not grow.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from benchmarks.table_open import peak, resident
from pyterrier_mart.archives import members
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.datasets.clef.documents import read_documents
from pyterrier_mart.problems import Problems
from pyterrier_mart.store import build_store

DOCUMENTS = 113_005
_PER_DAY = 310
_PARAGRAPHS = 5  # an article of the Los Angeles Times has about 3.6 kB


def make(folder: Path, documents: int) -> None:
    """Writes the collection, a file a day."""
    paragraphs = [paragraph.context for paragraph in xquad_r.load("en").paragraphs]
    chance = random.Random(3)
    for day, start in enumerate(range(0, documents, _PER_DAY)):
        month, date = divmod(day, 31)
        stamp = f"{month % 12 + 1:02d}{date + 1:02d}94"
        with gzip.open(folder / f"la{month:02d}{date:02d}.gz", "wb", compresslevel=1) as file:
            for i in range(start, min(start + _PER_DAY, documents)):
                text = "".join(f"<P>\n{chance.choice(paragraphs)}\n</P>\n" for _ in range(_PARAGRAPHS))
                article = (
                    f"<DOC>\n<DOCNO>LA{stamp}-{i:06d}</DOCNO>\n<DOCID>{i}</DOCID>\n<DATE>\n<P>\nJanuary 1, 1994\n</P>\n"
                    f"</DATE>\n<HEADLINE>\n<P>\nARTICLE {i} &amp; MORE\n</P>\n</HEADLINE>\n"
                    f"<TEXT>\n{text}</TEXT>\n</DOC>\n"
                )
                file.write(article.encode())


def ours(folder: Path) -> Iterator[str]:
    """Yields the texts that the package reads."""
    problems = Problems()
    for name, stream in members(folder):
        for document in read_documents(stream, name, problems):
            yield document.text
    assert not problems.counts, problems.summary()


def ir_datasets(folder: Path) -> Iterator[str]:
    """Yields the texts that ir_datasets reads."""
    from ir_datasets.formats import TrecDocs

    reader = TrecDocs(None, encoding="utf-8")
    for path in sorted(folder.iterdir()):
        yield from (document.text for document in reader._docs_iter(path))


def store(folder: Path) -> Iterator[str]:
    """Builds a store of what the package reads, and yields the texts from there."""

    def read(path: Path, progress: Callable[[int], object], problems: Problems) -> Iterator[tuple[str, dict[str, str]]]:
        for name, stream in members(path, progress=progress):
            for document in read_documents(stream, name, problems):
                yield document.docno, {"title": document.title, "text": document.text}

    with tempfile.TemporaryDirectory(prefix="clef-store-") as target:
        built = build_store(Path(target) / "lat94.store", sorted(folder.iterdir()), read, fields=("title", "text"))
        yield from (fields["text"] for _, fields in built.items())


WAYS = {way.__name__: way for way in (ours, ir_datasets, store)}


def measure(way: str, folder: Path) -> dict[str, float]:
    """Measures one way in this process."""
    before, start = resident(), time.perf_counter()
    documents = characters = 0
    for text in WAYS[way](folder):
        documents += 1
        characters += len(text)
    seconds = time.perf_counter() - start
    return {"documents": documents, "characters": characters, "seconds": seconds, "memory": peak() - before}


def main() -> None:
    """Makes the collections, measures each way in a process of its own, and prints."""
    parser = argparse.ArgumentParser(description="Reading a CLEF collection, next to ir_datasets")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help=f"default: {DOCUMENTS:,}")
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        way, folder = args.measure
        print(json.dumps(measure(way, Path(folder))))
        return
    with tempfile.TemporaryDirectory(prefix="clef-") as tmp:
        small, whole = Path(tmp) / "fifth", Path(tmp) / "whole"
        for folder, documents in ((small, args.documents // 5), (whole, args.documents)):
            folder.mkdir()
            make(folder, documents)
        size = sum(path.stat().st_size for path in whole.iterdir()) / 1e6
        print(
            f"pyterrier-mart {version('pyterrier-mart')}, ir_datasets {version('ir-datasets')}, "
            f"Python {platform.python_version()}, {platform.machine()}, one core, one run;\n"
            f"articles of {_PARAGRAPHS} paragraphs, {size:.0f} MB gzipped in all"
        )
        print(f"{'':<34}{'documents':>10}{'seconds':>9}{'documents/s':>13}{'ratio':>7}{'peak memory':>13}")
        peer = None
        for name, way, folder in (
            ("ir_datasets, TrecDocs", "ir_datasets", small), ("read_documents", "ours", small),
            ("read, into a store and out again", "store", small), ("read, into a store and out again", "store", whole),
        ):  # fmt: skip
            command = [sys.executable, "-m", "benchmarks.clef", "--measure", way, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            rate = found["documents"] / found["seconds"]
            peer = peer or rate
            print(
                f"{name:<34}{found['documents']:>10,.0f}{found['seconds']:>9,.1f}{rate:>13,.0f}{rate / peer:>6,.1f}x"
                f"{found['memory'] / 1e6:>10,.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
