"""What is there of CLEF and what is missing, beside the numbers that CLEF's overviews and the MART paper state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from pyterrier_mart.datasets.clef.catalogue import Catalogue
from pyterrier_mart.datasets.clef.collections import COLLECTIONS
from pyterrier_mart.datasets.clef.settings import PAPER_TOPICS, topic_languages
from pyterrier_mart.datasets.store import DocumentStore
from pyterrier_mart.text import LANGUAGES

if TYPE_CHECKING:
    from pyterrier_mart.datasets.clef.dataset import CLEF

__all__ = ["built", "check", "counts", "documents_found", "examples", "unknown_judged", "unplaced_judged"]

_SHOWN = 10
_BATCH = 5000


def built(catalogue: Catalogue, collection: str) -> DocumentStore | None:
    """Returns the store of a collection, or None if it has not been built."""
    try:
        return DocumentStore(catalogue.store(collection))
    except (FileNotFoundError, ValueError):  # a damaged store is built anew when documents are asked for
        return None


def documents_found(catalogue: Catalogue, collection: str) -> int:
    """Returns how many documents of a collection there are: in its store, or by the tags in the files without one."""
    store = built(catalogue, collection)
    return len(store) if store is not None else catalogue.count(collection)


def unknown_judged(catalogue: Catalogue, collection: str) -> list[str] | None:
    """Returns the judged documents that a collection does not have; None as long as it has no store."""
    store = built(catalogue, collection)
    if store is None:
        return None
    judged = list(dict.fromkeys(docno for labels in catalogue.labels(collection).values() for docno in labels))
    known: set[str] = set()
    for start in range(0, len(judged), _BATCH):
        known.update(store.get_many(judged[start : start + _BATCH]))
    return [docno for docno in judged if docno not in known]


def unplaced_judged(catalogue: Catalogue) -> list[str]:
    """Returns the judged documents whose numbers are of no known collection, once per judgment."""
    return [docno for labels in catalogue.labels("").values() for docno in labels]


def counts(dataset: CLEF) -> pd.DataFrame:
    """Returns the sizes of a dataset.

    Returns:
        Rows of ``what``, ``name``, ``found`` and ``expected``, the number that CLEF or the paper states, or NA.
    """
    catalogue, labels = dataset.catalogue(), dataset.judgments()
    rows: list[tuple[str, str, int, int | None]] = [
        ("documents", key, documents_found(catalogue, key), COLLECTIONS[key].documents) for key in dataset.collections
    ]
    for language in dataset.topic_languages():
        rows.append(("topics", language, len(catalogue.topics.get(language, {})), None))
    pair = "-".join(dataset.languages)
    rows.append(("topics", pair, len(_numbers(dataset)), _stated(dataset)))
    rows.append(("judgments", pair, sum(len(judged) for judged in labels.values()), None))
    relevant = sum(label > 0 for judged in labels.values() for label in judged.values())
    rows.append(("relevant", pair, relevant, None))
    frame = pd.DataFrame(rows, columns=["what", "name", "found", "expected"])
    return frame.astype({"expected": "Int64"})


def check(dataset: CLEF) -> list[str]:
    """Returns what differs from CLEF and from the paper, one sentence each; nothing if all is there."""
    catalogue, labels = dataset.catalogue(), dataset.judgments()
    found = [sentence for key in dataset.collections for sentence in _documents(catalogue, key)]
    numbers, stated = _numbers(dataset), _stated(dataset)
    if stated is not None and len(numbers) != stated:
        found.append(f"{'-'.join(dataset.languages)} has {len(numbers)} topics, but {stated} in the paper")
    for language in sorted(set(topic_languages(*dataset.languages)) - set(catalogue.topics)):
        found.append(f"no topics in {LANGUAGES[language]}")
    known = catalogue.topics.get(dataset.languages[0], {})
    for field in dataset.topic_fields:
        lacking = [number for number in numbers if number in known and not getattr(known[number], field)]
        if lacking:
            found.append(f"{_listed(lacking)} without a {field} in {dataset.languages[0]}")
    relevant = {number for number, judged in labels.items() if max(judged.values()) > 0}
    asked = [language for language in dataset.topic_languages() if language in catalogue.topics]
    for language in asked:
        missing = relevant - set(catalogue.topics[language])
        if missing:
            found.append(f"{_listed(missing)} with relevant documents, not in {language}")
    shared = set.intersection(*(set(catalogue.topics[language]) for language in asked)) if asked else set()
    if unjudged := shared - set(labels):
        found.append(f"{_listed(unjudged)} without judgments in these collections")
    if without := (shared & set(labels)) - relevant:
        found.append(f"{_listed(without)} judged, without a relevant document in these collections")
    problems = sum(catalogue.problems.counts.values())
    if problems:
        found.append(f"{problems:,} problems in the files, which 'pyterrier-mart clef info' lists")
    return found


def _documents(catalogue: Catalogue, key: str) -> Iterable[str]:
    known = COLLECTIONS[key]
    n = documents_found(catalogue, key)
    if n == 0:
        yield f"no documents of {known.name} ({key}); CLEF has {known.documents:,}"
        return
    if n != known.documents:
        difference = n - known.documents
        more = f"{difference:,} more" if difference > 0 else f"{-difference:,} fewer"
        yield f"{n:,} documents of {known.name} ({key}), {more} than CLEF has"
    unknown = unknown_judged(catalogue, key)
    if unknown:
        yield f"{len(unknown):,} judged documents of {known.name} ({key}) are not in the files: {examples(unknown)}"
    judged = len({docno for labels in catalogue.labels(key).values() for docno in labels})
    if not judged:
        yield f"no document of {known.name} ({key}) is judged"


def examples(docnos: Sequence[str]) -> str:
    """Returns the first numbers of documents as a text."""
    return ", ".join(dict.fromkeys(docnos[:3])) + ", ..." * (len(docnos) > 3)


def _numbers(dataset: CLEF) -> list[str]:
    try:
        return dataset.get_topics()["qid"].tolist()
    except FileNotFoundError:  # no topics in a language, or no judgments
        return []


def _stated(dataset: CLEF) -> int | None:
    """The paper's number of topics, if the documents are those of the paper."""
    return PAPER_TOPICS.get(dataset.languages) if dataset.corpus_name.count("/") == 1 else None


def _listed(numbers: Iterable[str]) -> str:
    ordered = sorted(numbers, key=int)
    what = "topic" if len(ordered) == 1 else "topics"
    return f"{len(ordered)} {what} ({', '.join(ordered[:_SHOWN])}{', ...' * (len(ordered) > _SHOWN)})"
