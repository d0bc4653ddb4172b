"""Learns the bundled translation tables and measures them: ``python -m experiments.tables --data DATA``.

Recipe: eflomal aligns all open sentence pairs twice, by the first 4 and the first 6 letters of the words, which pools
inflected forms; the links of both alignments in both directions are averaged. The word lists are aligned along unless
there are three times as many of them as sentences (Arabic has five times as many, which drown the text), and in any
case give the translations of words that the sentences lack. Titles of Wikipedia give those that are still lacking:
names. The 10 best translations of at least 0.001 are kept.

What this is worth on XQuAD-R (AP@100, with stop words): hi-en of text alone 0.593, with word lists for missing words
0.610, aligned along 0.619, titles too 0.622; ru-en 0.548, with lists 0.585, titles too 0.596. The Bible, of which only
de, es and fr were learned, takes ru-en to 0.594, en-ru from 0.408 to 0.388, vi-en from 0.492 to 0.432. fast_align has
0.600 for hi-en, where eflomal has 0.612 (lists not aligned along).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from experiments import report
from experiments.corpora import CORPORA, FLORES_DEVTEST, LANGUAGES, SEEN_DEVTEST, Corpus, Pair
from pyterrier_mart import TranslationTable
from pyterrier_mart.files import atomic_file
from pyterrier_mart.translation import quality, storage
from pyterrier_mart.translation.builder import EntryBuilder

PREFIXES = (4, 6)
MIN_COUNT = 0.5
TOP_K = 10
THRESHOLD = 0.001
_MOST_WORDS = 3  # a sentence: with more, word lists drown the text
_DECIMALS = 4  # what an estimate from so few pairs is worth, and a third of the size


def learn(root: Path, lang: str, held_out: Collection[Corpus] = ()) -> tuple[TranslationTable, TranslationTable]:
    """Learns the tables lang -> en and en -> lang."""
    found: dict[str, list[Pair]] = {"sentences": [], "words": [], "names": []}
    sources = []
    for corpus in [corpus for corpus in CORPORA if corpus not in held_out]:
        pairs = list(corpus.read(root, lang))
        found[corpus.kind].extend(pairs)
        if pairs:
            sources.append({"name": corpus.name, "licence": corpus.licence, "pairs": len(pairs)})
    sentences, words, names = found.values()
    aligned = sentences + words if len(words) < _MOST_WORDS * len(sentences) else sentences
    learned = TranslationTable.train_both(aligned, lang, "en", prefixes=PREFIXES, min_count=MIN_COUNT)
    provenance = {
        "source": "experiments/tables.py", "corpora": sources, "licence": "CC BY-SA 4.0",
        "licence_note": "share-alike follows from FLORES-200, NTREX-128, STSb and panlexia; corpora names each source",
        "aligner": "eflomal", "prefixes": list(PREFIXES), "sentence_pairs": len(sentences),
        "word_pairs": len(words) + len(names),
    }  # fmt: skip
    listed = (words, names), ([(b, a) for a, b in words], [(b, a) for a, b in names])
    forward, backward = (_finished(*side).with_meta(**provenance) for side in zip(learned, listed, strict=True))
    return forward, backward


def _finished(table: TranslationTable, lists: Iterable[list[Pair]]) -> TranslationTable:
    for pairs in filter(None, lists):
        builder = EntryBuilder(table.source, table.target, phrases="split")
        for a, b in dict.fromkeys(pairs):
            builder.add(a, b)
        table = table.backfill(TranslationTable.from_entries(builder.entries("uniform")))
    frame = table.prune(top_k=TOP_K, threshold=THRESHOLD).to_frame()
    frame["prob"] = frame["prob"].astype(np.float64).round(_DECIMALS)
    return TranslationTable.from_frame(frame, table.source, table.target)


def against_muse(table: TranslationTable, root: Path) -> dict[str, float] | None:
    """Measures a table on the 1500 test words of the MUSE dictionary of its direction, if there is one."""
    path = root / f"lexicons/muse-noncommercial/{'-'.join(table.languages)}.5000-6500.tsv.gz"
    if not path.exists():
        return None
    found = quality.accuracy(table, path)
    return {"words": found.words, "coverage": found.coverage, "P@1": found.p_at_1, "P@5": found.p_at_5,
            "P@1 if known": found.p_at_1_if_known}  # fmt: skip


def load(folder: Path, name: str) -> TranslationTable:
    """Loads a table that :func:`save` wrote."""
    path = folder / (name + storage.BUNDLED_SUFFIX)
    return TranslationTable.from_arrays(*storage.unpack(path.read_bytes()), str(path))


def save(table: TranslationTable, folder: Path) -> None:
    """Writes a table in the form of the bundled ones."""
    with atomic_file(folder / ("-".join(table.languages) + storage.BUNDLED_SUFFIX)) as tmp:
        tmp.write_bytes(storage.pack(table.arrays, table.meta))


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the corpora (see experiments/corpora.py)")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=LANGUAGES)
    parser.add_argument(
        "--held-out",
        type=Path,
        metavar="DIR",
        help="learn without FLORES devtest, write to DIR and measure nothing (for experiments.smt)",
    )
    parser.add_argument("--measure-only", action="store_true", help="measure the bundled tables, learn nothing")
    arguments = parser.parse_args()
    folder = Path(str(resources.files("pyterrier_mart.translation").joinpath("data")))
    for lang in () if arguments.measure_only else arguments.languages:
        start = time.perf_counter()
        held_out = arguments.held_out or lang not in SEEN_DEVTEST
        for table in learn(arguments.data, lang, [FLORES_DEVTEST] if held_out else []):
            save(table, arguments.held_out or folder)
        print(f"{lang}: {time.perf_counter() - start:.0f} s", flush=True)
    if arguments.held_out:
        return

    rows: list[list[Any]] = []
    results = {}
    muse_rows = []
    for name in TranslationTable.bundled():
        table = TranslationTable.load(name)
        size = (folder / (name + storage.BUNDLED_SUFFIX)).stat().st_size
        pairs = (table.meta["sentence_pairs"], table.meta["word_pairs"])
        rows.append([name, *pairs, len(table.source_words), len(table), f"{size / 1e3:,.0f}"])
        muse = against_muse(table, arguments.data)
        results[name] = {"entries": len(table), "bytes": size, "fingerprint": table.fingerprint, "muse": muse}
        if muse:
            muse_rows.append([name, *muse.values()])
    total = sum(result["bytes"] for result in results.values()) / 1e6  # type: ignore[misc]
    report.write(
        "tables",
        "The bundled translation tables",
        [
            ("", report.markdown(["table", "sentence pairs", "word pairs", "source words", "entries", "kB"], rows)
             + f"\n{total:.1f} MB in all.\n"),
            ("Against the MUSE test dictionaries",
             "Source words of the dictionaries, 1500 before normalisation. Coverage: share in the table. P@1, P@5: "
             "share with a listed translation at rank 1, in the first 5; a word not in the table counts as wrong.\n\n"
             + report.markdown(["table", "words", "coverage", "P@1", "P@5", "P@1 if known"], muse_rows)),
        ],
        {"learned by": "`python -m experiments.tables --data DIR`, any languages",
         "aligner": "eflomal (it has no seed: a new run differs a little)", "prefixes": PREFIXES,
         "min_count": MIN_COUNT, "top_k": TOP_K, "threshold": THRESHOLD},
        results,
    )  # fmt: skip
    print((report.RESULTS / "tables.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
