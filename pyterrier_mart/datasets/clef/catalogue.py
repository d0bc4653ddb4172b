"""What a folder with CLEF data holds: which files have documents, topics and judgments, whatever they are called.

CLEF reached people in many packages: ELRA's discs, downloads of single newspapers, exports of DIRECT. So every file in
the folder is opened, archives too, and its content says what it is. That takes as long as reading the folder once; what
was found in each file is kept, so that later only files that changed are read.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyterrier as pt

from pyterrier_mart.archives import ArchiveError, files, members
from pyterrier_mart.datasets.clef.campaigns import listed, misfit, others
from pyterrier_mart.datasets.clef.collections import of_docno, shape_of
from pyterrier_mart.datasets.clef.encodings import ascii_parts, read_head, utf_16_of
from pyterrier_mart.datasets.clef.qrels import are_judgments, names_documents, read_qrels
from pyterrier_mart.datasets.clef.topics import Topic, is_topic, read_topics
from pyterrier_mart.datasets.paths import stores
from pyterrier_mart.files import atomic_file, in_cache
from pyterrier_mart.problems import Problems

__all__ = ["Catalogue", "below", "scan", "stamp_of"]

#: Another number makes older caches void.
_VERSION = 4
_HEAD = 1 << 16
_LONGEST_HEAD = 8 << 20  # of a file that begins with comments, or with a document type
_FIRST_LINES = 5  # judgments may have a header, or comments, before them
_NAMES_KEPT = 20
_SHAPES_KEPT = 100  # of a file; others, say of hashes, count as one
_MANY = 4  # topics that may differ, since somebody corrected them
_OVERLAP = 512  # more than a tag and a docno take
_DOCNO, _DOCID = (
    re.compile(
        rb"<%s(?:\s[^<>]{0,200})?>\s{0,20}(?:<[^<>/]{1,40}>\s{0,20}){0,2}([^<>\s]{1,100})\s{0,20}<" % tag, re.IGNORECASE
    )
    for tag in (b"DOCNO", b"DOCID")
)
_DOCUMENT = re.compile(rb"<DOC(?:\s[^<>]{0,200})?>", re.IGNORECASE)
_PROLOG = re.compile(rb"(?:\xef\xbb\xbf)?\s*<[!?]")
_TOPIC = re.compile(rb"<top(?:ic)?(?:\s[^<>]{0,200})?>", re.IGNORECASE)


@dataclass(frozen=True)
class Catalogue:
    """What is in a folder.

    Attributes:
        home: The folder.
        documents: By collection and file, the members that hold documents, and how many each holds. Files have their
            path below ``home``, members the name that :func:`~pyterrier_mart.archives.members` gives them, below
            ``home`` too. Documents of no known collection are under ``""``.
        topics: By language and qid.
        judged: By collection, qid and docno, the labels. Those of no known collection are under ``""``.
        stamps: By file, its size and time when it was looked at.
        files: How many files were looked at, those inside archives too.
        ignored: How many of them are neither documents nor topics nor judgments.
        ignored_names: What the first of these are called.
        repeated: How many judgments were there twice, with the same label.
        unplaced: The documents and judgments of no known collection: by what they are ("documents", "judgments"), file
            and shape of docno, how many there are and the first of them.
        problems: What was wrong in the files.
    """

    home: Path
    documents: Mapping[str, Mapping[str, Mapping[str, int]]]
    topics: Mapping[str, Mapping[str, Topic]]
    judged: Mapping[str, Mapping[str, Mapping[str, int]]]
    stamps: Mapping[str, list[int]]
    files: int
    ignored: int
    ignored_names: Sequence[str]
    repeated: int
    unplaced: Mapping[str, Mapping[str, Mapping[str, tuple[int, str]]]]
    problems: Problems

    def labels(self, collection: str) -> Mapping[str, Mapping[str, int]]:
        """Returns the judgments of a collection's documents, by qid and docno."""
        return self.judged.get(collection, {})

    def count(self, collection: str) -> int:
        """Returns how many documents of a collection the files hold; one that is there twice counts twice."""
        return sum(sum(inside.values()) for inside in self.documents.get(collection, {}).values())

    def store(self, collection: str) -> Path:
        """Returns where the store of a collection is, or will be."""
        return self.cache / f"{collection}.store"

    @property
    def cache(self) -> Path:
        """The folder of the stores, and of what was found."""
        return stores("clef", self.home)


@dataclass
class Finding:
    """What a file on disk holds, as JSON values."""

    stamp: list[int]
    documents: dict[str, dict[str, int]] = field(default_factory=dict)
    topics: list[list[str]] = field(default_factory=list)
    judgments: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    files: int = 0
    ignored: int = 0
    ignored_names: list[str] = field(default_factory=list)
    unplaced: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)
    problems: dict[str, Any] = field(default_factory=dict)


def scan(folder: str | os.PathLike[str], *, verbose: bool = False) -> Catalogue:
    """Looks at all files in a folder, but for hidden ones and the package's own stores.

    What was found is kept in :func:`~pyterrier_mart.datasets.paths.stores`, also if the scan is interrupted: the next
    one looks only at files that are new or changed (their size or time is another one).

    Args:
        folder: The folder.
        verbose: Whether to show a progress bar.

    Raises:
        NotADirectoryError: If it is not a folder.
        ValueError: If nothing in it belongs to CLEF.
    """
    home = Path(folder).expanduser().resolve()
    if not home.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    own = stores("clef").resolve()
    unreadable: list[OSError] = []
    tree = {
        path.relative_to(home).as_posix(): stamp_of(path)
        for path in files(home, unreadable=unreadable.append)
        if not path.is_relative_to(own)
    }
    cache = stores("clef", home) / "findings.json.gz"
    known = {name: finding for name, finding in load_findings(cache).items() if tree.get(name) == finding.stamp}
    found = dict(known)
    total = sum(size for size, _ in tree.values())
    try:
        with pt.tqdm(total=total, unit="B", unit_scale=True, desc="CLEF files", disable=not verbose) as bar:
            for name, stamp in tree.items():
                if name in known:
                    bar.update(stamp[0])
                else:
                    found[name] = look_at(home, name, stamp, bar.update)
    finally:
        if len(found) > len(known):
            content = {"version": _VERSION, "files": {name: asdict(finding) for name, finding in found.items()}}
            with in_cache(cache), atomic_file(cache) as tmp:
                tmp.write_bytes(gzip.compress(json.dumps(content).encode(), compresslevel=4))
    catalogue = merged(home, {name: found[name] for name in tree})
    for err in unreadable:
        folder = os.path.relpath(str(err.filename), home)
        catalogue.problems.add(folder, "", err.strerror or str(err), kind="folders that cannot be read")
    if not (any(catalogue.documents) or catalogue.topics or catalogue.judged):
        names = ", ".join(list(tree)[:5]) + ", ..." * (len(tree) > 5)
        raise ValueError(
            f"{home} holds no CLEF data: {len(tree)} files were looked at ({names}). A CLEF folder has documents "
            "(<DOC>), topics (<top>, <topic>, TSV) or judgments (lines such as '41-AH 0 LA010194-0001 1')"
            + "".join(f"; {message}" for message in catalogue.problems.messages[:_MANY])
        )
    return catalogue


def below(home: Path, name: str) -> str:
    """Returns the name of a member without the folder that it begins with, with ``/`` between parts."""
    return name[len(str(home)) + 1 :].replace(os.sep, "/")


def stamp_of(path: Path) -> list[int]:
    """Returns size and time of a file."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def load_findings(path: Path) -> dict[str, Finding]:
    """Returns what was kept; a damaged file counts as none, since all of it can be found again."""
    try:
        kept = json.loads(gzip.decompress(path.read_bytes()))
        known = kept["files"] if kept["version"] == _VERSION else {}
        return {name: Finding(**values) for name, values in known.items()}
    except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error):
        return {}


# ---------------------------------------------------------------------------------------------------- a file's content


def look_at(home: Path, name: str, stamp: list[int], progress: Callable[[int], object]) -> Finding:
    """Looks at a file, and at those inside it if it is an archive."""
    finding = Finding(stamp)
    problems = Problems()

    def damaged(err: ArchiveError) -> None:
        where, _, what = str(err).replace(f"{home}{os.sep}", "").partition(": ")
        problems.add(where, "", what, kind="damaged archives")

    try:
        for member in members(home / name, progress=progress, damaged=damaged):
            finding.files += 1
            try:
                look_into(member.stream, below(home, member.name), finding, problems)
            except ArchiveError as err:
                damaged(err)
    except OSError as err:
        problems.add(name, "", err.strerror or str(err), kind="files that cannot be read")
    finding.problems = asdict(problems)
    return finding


def look_into(stream: Any, name: str, finding: Finding, problems: Problems) -> None:
    """Adds what a file holds that is none of an archive."""
    head = read_head(stream, _HEAD)
    if len(head) == _HEAD and _PROLOG.match(head) and not holds_documents(head):
        head = read_head(stream, _LONGEST_HEAD, head)
    parts = ascii_parts(stream, head)
    if codec := utf_16_of(head):
        head = head.decode(codec, "replace").encode("utf-8", "replace")
    lines = head[:_HEAD].removeprefix(b"\xef\xbb\xbf").splitlines()
    first = [line[:4096].decode("utf-8", "replace") for line in lines if line.strip()][:_FIRST_LINES]
    if holds_documents(head):
        counts = finding.documents.setdefault(name, {})
        for found in docnos(parts):
            docno = found.decode("utf-8", "replace")
            key = of_docno(docno) or ""
            counts[key] = counts.get(key, 0) + 1
            if not key:
                count_shape(finding.unplaced.setdefault(name, {}), docno)
    elif are_judgments(first):
        judgments = finding.judgments.setdefault(name, [])  # those before a damage too
        judgments.extend(read_qrels(parts, name, problems))
    elif any(map(names_documents, first)):
        finding.ignored += 1
        line = next(filter(names_documents, first)).strip()
        what = f"expected 'topic 0 docno label' on each line, found {line[:60]!r}"
        problems.add(name, "", what, kind="files of judgments that are not used")
    elif _TOPIC.search(head) or any(map(is_topic, first[:1])):
        try:
            topics = list(read_topics(parts, name, problems))
            numbers = [int(topic.qid) for topic in topics]
            if what := misfit(numbers):
                raise ValueError(what)
            if unknown := others(numbers):
                problems.add(name, "", listed(map(str, unknown)), kind="files of topics of no CLEF ad-hoc campaign")
            finding.topics += [[name, *topic] for topic in topics]
        except ArchiveError:
            raise
        except ValueError as err:
            problems.add(name, "", str(err).removeprefix(f"{name}: "), kind="files of topics that are not used")
    else:
        finding.ignored += 1
        finding.ignored_names += [name] * (len(finding.ignored_names) < _NAMES_KEPT)


def holds_documents(head: bytes) -> bool:
    """Returns whether a file that begins so has documents with docnos."""
    return bool(_DOCUMENT.search(head) and (_DOCNO.search(head) or _DOCID.search(head)))


def docnos(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the docnos in the tags of a file; docids if its first part has no docno."""
    rest = b""
    pattern = None
    for part in parts:
        text = rest + part
        pattern = pattern or (_DOCNO if _DOCNO.search(text) else _DOCID)
        end = max(0, len(text) - _OVERLAP)
        for match in pattern.finditer(text):
            yield match[1]
            end = max(end, match.end() - 1)  # the < may begin the next tag
        rest = text[end:]


def count_shape(shapes: dict[str, tuple[int, str]], docno: str) -> None:
    """Counts a docno that fits no collection, by its shape."""
    shape = shape_of(docno)
    if shape not in shapes and len(shapes) >= _SHAPES_KEPT:
        shape = "other shapes"
    count, example = shapes.get(shape, (0, docno))
    shapes[shape] = count + 1, example


# ------------------------------------------------------------------------------------------------- all files as one


def merged(home: Path, findings: Mapping[str, Finding]) -> Catalogue:
    """Puts together what was found in all files.

    Of two judgments of a document the higher one counts, of two texts of a topic the one with more fields.
    """
    problems = Problems()
    documents: dict[str, dict[str, dict[str, int]]] = {}
    topics: dict[str, dict[str, tuple[Topic, str]]] = {}  # with the file that each is from, as judgments
    judged: dict[str, dict[str, dict[str, tuple[int, str]]]] = {}
    unplaced: dict[str, dict[str, dict[str, tuple[int, str]]]] = {"documents": {}, "judgments": {}}
    shared: Counter[tuple[str, str, str]] = Counter()  # topics that two files have in a language
    differing: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    repeated = 0
    for file, finding in findings.items():
        problems.update(Problems(**finding.problems))
        for member, counts in finding.documents.items():
            for key, count in counts.items():
                documents.setdefault(key, {}).setdefault(file, {})[member] = count
        for name, shapes in finding.unplaced.items():
            unplaced["documents"][name] = {shape: (count, first) for shape, (count, first) in shapes.items()}
        for name, *cells in finding.topics:
            topic = Topic(*cells)
            of_language = topics.setdefault(topic.language, {})
            before, origin = of_language.get(topic.qid, (topic, name))
            both = name, origin, topic.language
            shared[both] += 1
            if len(list(filter(None, topic))) > len(list(filter(None, before))) or topic.qid not in of_language:
                of_language[topic.qid] = topic, name
                origin = name
            if topic.title != before.title:
                what = f"the {topic.language} title {topic.title[:60]!r} is not {before.title[:60]!r} as before: "
                differing.setdefault(both, []).append((topic.qid, f"{what}that of {origin} counts"))
        for name, judgments in finding.judgments.items():
            origins: dict[int, tuple[int, str]] = {}  # shared, for there are many judgments
            for qid, docno, label in judgments:
                key = of_docno(docno) or ""
                if not key:
                    count_shape(unplaced["judgments"].setdefault(name, {}), docno)
                labels = judged.setdefault(key, {}).setdefault(qid, {})
                earlier = labels.get(docno)
                if earlier and earlier[0] == label:
                    repeated += 1
                    continue
                if earlier:
                    what = f"{docno} has label {label}, but {earlier[0]} in {earlier[1]}: the higher one counts"
                    problems.add(name, f"topic {qid}", what, kind="judgments that differ")
                if not earlier or label > earlier[0]:
                    labels[docno] = origins.setdefault(label, (label, name))

    for (name, origin, language), found in differing.items():
        if _MANY < len(found) > shared[name, origin, language] / 2:
            of_both = f"{len(found)} of {shared[name, origin, language]} {language} titles"
            what = f"{of_both} are others than in {origin}: one file is not CLEF's; of each topic, the one with more "
            what += "fields counts, or else the first"
            problems.add(name, "", what, kind="files of topics that differ")
            continue
        for qid, what in found:
            problems.add(name, f"topic {qid}", what, kind="topics that differ")

    return Catalogue(
        home,
        documents,
        {code: {qid: known[qid][0] for qid in sorted(known, key=int)} for code, known in sorted(topics.items())},
        {
            key: {qid: {docno: label for docno, (label, _) in known[qid].items()} for qid in sorted(known, key=int)}
            for key, known in judged.items()
        },
        stamps={file: finding.stamp for file, finding in findings.items()},
        files=sum(finding.files for finding in findings.values()),
        ignored=sum(finding.ignored for finding in findings.values()),
        ignored_names=[name for finding in findings.values() for name in finding.ignored_names][:_NAMES_KEPT],
        repeated=repeated,
        unplaced=unplaced,
        problems=problems,
    )
