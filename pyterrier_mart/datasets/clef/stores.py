"""The stores of CLEF's documents, one for each newspaper, and what they lack of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pyterrier_mart.archives import members, plain_name
from pyterrier_mart.datasets.clef.catalogue import Catalogue, below, stamp_of
from pyterrier_mart.datasets.clef.collections import COLLECTIONS, of_docno
from pyterrier_mart.datasets.clef.documents import read_documents
from pyterrier_mart.problems import Problems
from pyterrier_mart.store import DocumentStore, build_store

__all__ = ["FIELDS", "build", "built", "differences", "documents_found", "examples", "unknown_judged", "unplaced"]

FIELDS = ("text", "title")
_SHAPES_SHOWN = 3


def build(catalogue: Catalogue, collection: str, *, verbose: bool = False) -> DocumentStore:
    """Returns the store of a collection. It is built if there is none, or if the files that it is of have changed.

    Args:
        catalogue: What the folder holds.
        collection: Key of the collection.
        verbose: Whether to show a progress bar.

    Raises:
        FileNotFoundError: If a file is gone since the folder was looked through.
        ValueError: If a file has changed since then.
    """
    inside = catalogue.documents[collection]
    for file in inside:  # what is in another one is not known
        if stamp_of(catalogue.home / file) != catalogue.stamps[file]:
            raise ValueError(
                f"{catalogue.home / file} has changed since the folder was looked through; make the dataset again"
            )

    def read(
        path: Path, progress: Callable[[int], object], problems: Problems
    ) -> Iterator[tuple[str, Mapping[str, str]]]:
        file = path.relative_to(catalogue.home).as_posix()
        # Archives on the way to a document have to be opened, and are asked for without their endings (.gz).
        opened = {str(path), plain_name(str(path))}
        for name in inside[file]:
            outer = str(path)
            for part in name.split("/")[file.count("/") + 1 :]:
                outer = f"{outer}/{part}"
                opened |= {outer, plain_name(outer)}
        # Damage was reported when the folder was looked through.
        for member in members(path, wanted=opened.__contains__, progress=progress, damaged=lambda _: None):
            name = below(catalogue.home, member.name)
            if name in inside[file]:
                for docno, title, text in read_documents(member.stream, name, problems):
                    if of_docno(docno) == collection:
                        yield docno, {"text": f"{title}\n{text}" if title else text, "title": title}

    return build_store(
        catalogue.store(collection),
        [catalogue.home / file for file in inside],
        read,
        fields=FIELDS,
        meta=inside,  # what a scan finds may change, of the same files
        verbose=verbose,
    )


def built(catalogue: Catalogue, collection: str) -> DocumentStore | None:
    """Returns the store of a collection, or None if it has not been built."""
    try:
        return DocumentStore(catalogue.store(collection))
    except ValueError:  # a damaged store is rebuilt when documents are asked for
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
    known = store.get_many(judged)
    return [docno for docno in judged if docno not in known]


def differences(catalogue: Catalogue, collection: str) -> Iterable[str]:
    """Yields what differs from CLEF in the documents of a collection, a sentence each."""
    known = COLLECTIONS[collection]
    name = f"{known.name} ({collection})"
    n = documents_found(catalogue, collection)
    if n == 0:
        yield f"no documents of {name}; CLEF has {known.documents:,}"
        return
    if n != known.documents:
        how = "more" if n > known.documents else "fewer"
        yield f"{n:,} documents of {name}, {abs(n - known.documents):,} {how} than CLEF has"
    if unknown := unknown_judged(catalogue, collection):
        yield f"{len(unknown):,} judged documents of {name} are not in the files: {examples(unknown)}"
    if not catalogue.labels(collection):
        yield f"no document of {name} is judged"


def unplaced(catalogue: Catalogue) -> dict[str, list[str]]:
    """Returns what fits no collection: a sentence on documents and one on judgments, each with a line for each file."""
    found = {}
    for what, files in catalogue.unplaced.items():
        lines = []
        total = 0
        for file, shapes in files.items():
            ordered = sorted(shapes.items(), key=lambda item: -item[1][0])
            shown = [f"{count:,} {shape} (such as {example})" for shape, (count, example) in ordered[:_SHAPES_SHOWN]]
            total += sum(count for count, _ in shapes.values())
            lines.append(f"{file}: {', '.join(shown)}{', ...' * (len(ordered) > _SHAPES_SHOWN)}")
        if lines:
            of_documents = " of documents" * (what != "documents")
            found[f"{total:,} {what}{of_documents} of no known collection"] = lines
    return found


def examples(docnos: Sequence[str]) -> str:
    """Returns the first docnos as a text."""
    return ", ".join(dict.fromkeys(docnos[:3])) + ", ..." * (len(docnos) > 3)
