"""Training data that a user had translated, for the MAML-Align paper's T-Train rows: ``--translated DIR``.

For search, the directory has ``topics.tsv`` (qid, query, query_lang, group), ``docs.tsv`` (docno, text, doc_lang,
group) and ``qrels.tsv`` (qid, docno, label), whose first lines name the columns; a group is the title of an article.
For STS, it has ``pairs.tsv`` (pair_id, sentence1, sentence2, score, lang1, lang2). What a fold measures on is left out:
the authors' code trains on translations of the test questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from pyterrier_mart.cli.meta import read_frame
from pyterrier_mart.datasets.corpus import MultilingualCorpus, normalised
from pyterrier_mart.datasets.graded_pairs import PairCorpus

__all__ = ["corpus", "languages", "pairs", "without_groups", "without_sentences"]

_SENTENCES = ["sentence1", "sentence2"]


def corpus(folder: Path) -> MultilingualCorpus:
    """Reads translated queries and documents.

    Raises:
        SystemExit: With one sentence, if a file or a column is missing or a value is not as expected.
    """
    topics, docs = _read(folder / "topics.tsv", "group"), _read(folder / "docs.tsv", "group")
    try:
        return MultilingualCorpus.from_frames(topics, docs, _read(folder / "qrels.tsv"), folder.name)
    except ValueError as err:
        raise SystemExit(f"--translated: {folder}: {err}") from err


def pairs(folder: Path) -> PairCorpus:
    """Reads translated sentence pairs.

    Raises:
        SystemExit: With one sentence, if the file or a column is missing or a value is not as expected.
    """
    try:
        return PairCorpus.from_frame(_read(folder / "pairs.tsv"), folder.name)
    except ValueError as err:
        raise SystemExit(f"--translated: {folder / 'pairs.tsv'}: {err}") from err


def _read(path: Path, column: str | None = None) -> pd.DataFrame:
    try:
        found = read_frame(path)
    except (OSError, ValueError) as err:
        raise SystemExit(f"--translated: {path}: {err}") from err
    if column is not None and column not in found:
        raise SystemExit(f"--translated: {path}: expected the column {column}, found {', '.join(found.columns)}")
    return found


def languages(of: MultilingualCorpus | PairCorpus) -> str:
    """Returns transfer paths within each language, as the paper trains on translations."""
    found = of.query_langs if isinstance(of, MultilingualCorpus) else sorted({*of.pairs["lang1"]})
    return "|".join(f"{lang}_{lang}-{lang}_{lang}" for lang in found)


def without_groups(of: MultilingualCorpus, held: Iterable[MultilingualCorpus]) -> MultilingualCorpus:
    """Returns the articles that are not in some corpora, and prints how many are not.

    Raises:
        SystemExit: If there are none.
    """
    taken = {group for other in held for group in other.groups}
    left = [group for group in of.groups if group not in taken]
    print(f"  translations: {len(of.groups) - len(left)} of {len(of.groups)} articles are held out", flush=True)
    if not left:
        raise SystemExit("--translated: all articles are those of development and test sets")
    return of.subset(left)


def without_sentences(of: PairCorpus, held: Iterable[PairCorpus]) -> PairCorpus:
    """Returns the pairs that share no sentence with some others, and prints how many do.

    Raises:
        SystemExit: If there are none.
    """
    taken = {normalised(text) for other in held for name in _SENTENCES for text in other.pairs[name]}
    shared = of.pairs[_SENTENCES].map(normalised).isin(taken).any(axis=1)
    print(f"  translations: {shared.sum()} of {len(of)} pairs are held out", flush=True)
    if shared.all():
        raise SystemExit("--translated: all pairs have a sentence of development and test sets")
    return PairCorpus(of.pairs[~shared].reset_index(drop=True), of.name)
