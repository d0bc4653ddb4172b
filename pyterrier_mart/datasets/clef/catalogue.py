"""What a folder with CLEF data holds: which files have documents, topics and judgments, whatever they are called.

CLEF reached people in many packages: ELRA's discs, downloads of single newspapers, exports of DIRECT. So every file in
the folder is opened, archives too, and its content says what it is. That takes as long as reading the folder once; what
was found in each file is kept, so that later only files that changed are read.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyterrier as pt

from pyterrier_mart.archives import ArchiveError, files, members
from pyterrier_mart.datasets.clef.collections import of_docno
from pyterrier_mart.datasets.clef.qrels import Judgment, Judgments, is_judgment, read_qrels
from pyterrier_mart.datasets.clef.topics import Topic, is_topic, read_topics
from pyterrier_mart.datasets.clef.utf16 import AsUtf8, utf_16_of
from pyterrier_mart.datasets.paths import stores
from pyterrier_mart.files import atomic_file
from pyterrier_mart.problems import Problems

__all__ = ["Catalogue", "below", "scan"]

#: Another number makes older caches void.
_VERSION = 2
_HEAD = 1 << 16
_LONGEST_HEAD = 8 << 20  # of a file that begins with comments, or with a document type
_FIRST_LINES = 5  # judgments may have a header, or comments, before them
_NAMES_KEPT = 20
_CHUNK = 1 << 20
_OVERLAP = 512  # more than a tag and a number take
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
        topics: By language and number.
        judged: By collection, topic and label, the documents, with a space between them.
        stamps: Size and time of each file when it was looked at.
        files: How many files were looked at, those inside archives too.
        ignored: How many of them are neither documents nor topics nor judgments.
        ignored_names: What the first of these are called.
        repeated: How many judgments were there twice, with the same label.
        problems: What was wrong in the files.
    """

    home: Path
    documents: Mapping[str, Mapping[str, Mapping[str, int]]]
    topics: Mapping[str, Mapping[str, Topic]]
    judged: Mapping[str, Mapping[str, Mapping[str, str]]]
    stamps: Mapping[str, Sequence[int]]
    files: int = 0
    ignored: int = 0
    ignored_names: Sequence[str] = ()
    repeated: int = 0
    problems: Problems = field(default_factory=Problems)
    _labels: dict[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict, repr=False, compare=False)

    def labels(self, collection: str) -> Mapping[str, Mapping[str, int]]:
        """Returns the judgments of a collection's documents, by topic."""
        if collection not in self._labels:
            self._labels[collection] = {
                number: {docno: int(label) for label, docnos in by_label.items() for docno in docnos.split(" ")}
                for number, by_label in self.judged.get(collection, {}).items()
            }
        return self._labels[collection]

    def count(self, collection: str) -> int:
        """Returns how many documents of a collection the files hold; one that is there twice counts twice."""
        return sum(sum(inside.values()) for inside in self.documents.get(collection, {}).values())

    def check_unchanged(self, file: str) -> None:
        """Raises if a file is not the one that was looked at: what is in it is not known any more.

        Args:
            file: Its path below ``home``.

        Raises:
            FileNotFoundError: If it is gone.
            ValueError: If its size or time is another one.
        """
        remedy = "make the dataset anew, or run the command again, to look through it anew"
        try:
            stamp = _stamp(self.home / file)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.home} changed since it was looked through: {file} is not there any more; {remedy}"
            ) from None
        if tuple(self.stamps[file]) != stamp:
            raise ValueError(f"{self.home} changed since it was looked through: {file} is another file now; {remedy}")

    def store(self, collection: str) -> Path:
        """Returns where the store of a collection is, or will be."""
        return self.cache / f"{collection}.store"

    @property
    def cache(self) -> Path:
        """The folder of the stores, and of what was found."""
        return stores("clef", self.home)


def scan(folder: str | os.PathLike[str], *, verbose: bool = False) -> Catalogue:
    """Looks at all files in a folder.

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
    tree = _tree(home)
    merged = stores("clef", home) / "catalogue.json.gz"
    digest = hashlib.sha256(json.dumps([_VERSION, list(tree.items())]).encode()).hexdigest()
    kept = _load(merged)
    if kept.get("tree") == digest:
        return _restored(home, kept)
    catalogue = _merged(home, _look_at_all(home, tree, verbose))
    if not (any(catalogue.documents) or catalogue.topics or catalogue.judged):
        raise ValueError(_nothing(home, tree))
    _save(merged, {"tree": digest, **_plain(catalogue)})
    return catalogue


def below(home: Path, name: str) -> str:
    """Returns the name of a member without the folder that it begins with, with ``/`` between parts."""
    return name[len(str(home)) + 1 :].replace(os.sep, "/")


def _nothing(home: Path, tree: Mapping[str, Any]) -> str:
    names = ", ".join(list(tree)[:5]) + ", ..." * (len(tree) > 5)
    found = f"{len(tree)} files were looked at ({names})" if tree else "it has no files"
    return (
        f"{home} holds no CLEF data: {found}. A CLEF folder has documents (<DOC> elements with numbers such as "
        "LA010194-0001), topics (<top> or <topic> elements) or judgments (lines such as '41-AH 0 LA010194-0001 1'), "
        "packed or unpacked"
    )


class _Stamp(NamedTuple):
    size: int
    mtime_ns: int


def _tree(home: Path) -> dict[str, _Stamp]:
    """The files of a folder by their path below it. Hidden files and our own stores are passed over."""
    own = stores("clef").resolve()
    found = {}
    for path in files(home):
        if not path.is_relative_to(own):
            found[path.relative_to(home).as_posix()] = _stamp(path)
    return found


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return _Stamp(stat.st_size, stat.st_mtime_ns)


# ---------------------------------------------------------------------------------------------------- a file's content


@dataclass
class _Finding:
    """What a file on disk holds, as JSON values."""

    stamp: list[int]
    documents: dict[str, dict[str, int]] = field(default_factory=dict)
    topics: list[list[str]] = field(default_factory=list)
    judgments: dict[str, list[str]] = field(default_factory=dict)
    files: int = 0
    ignored: int = 0
    ignored_names: list[str] = field(default_factory=list)
    problems: dict[str, Any] = field(default_factory=dict)


def _look_at_all(home: Path, tree: Mapping[str, _Stamp], verbose: bool) -> dict[str, _Finding]:
    path = stores("clef", home) / "findings.json.gz"
    kept = _load(path)
    known = kept.get("files", {}) if kept.get("version") == _VERSION else {}
    findings = {}
    looked = 0
    total = sum(stamp.size for stamp in tree.values())
    try:
        with pt.tqdm(total=total, unit="B", unit_scale=True, desc="CLEF files", disable=not verbose) as bar:
            for name, stamp in tree.items():
                before = known.get(name)
                if before is not None and tuple(before["stamp"]) == stamp:
                    findings[name] = _Finding(**before)
                    bar.update(stamp.size)
                else:
                    findings[name] = _look_at(home, name, stamp, bar.update)
                    looked += 1
    finally:
        if looked or len(findings) != len(known):
            rest = {name: _Finding(**value) for name, value in known.items() if name in tree}
            files = {name: asdict(finding) for name, finding in {**rest, **findings}.items()}
            _save(path, {"version": _VERSION, "files": files})
    return findings


def _look_at(home: Path, name: str, stamp: _Stamp, progress: Callable[[int], object]) -> _Finding:
    finding = _Finding(list(stamp))
    problems = Problems()

    def damaged(err: ArchiveError) -> None:
        what = str(err).replace(f"{home}{os.sep}", "").removeprefix(f"{name}: ")
        problems.add(name, "", what, kind="damaged archives")

    try:
        for member in members(home / name, progress=progress, damaged=damaged):
            finding.files += 1
            try:
                _look_into(member.stream, below(home, member.name), finding, problems)
            except ArchiveError as err:
                damaged(err)
    except OSError as err:
        problems.add(name, "", err.strerror or str(err), kind="files that cannot be read")
    finding.problems = problems.to_json()
    return finding


def _look_into(stream: Any, name: str, finding: _Finding, problems: Problems) -> None:
    head = _head(stream)
    whole: io.RawIOBase = _Rewound(head, stream)
    if codec := utf_16_of(head):
        whole = AsUtf8(whole, codec)
        head = head.decode(codec, "replace").encode("utf-8", "replace")
    lines = _first_lines(head)
    with io.BufferedReader(whole, _CHUNK) as text:
        if _holds_documents(head):
            _count(text, finding.documents.setdefault(name, {}))
        elif any(map(is_judgment, lines)):
            judgments = finding.judgments.setdefault(name, [])  # those before a damage too
            judgments.extend(" ".join(map(str, found)) for found in read_qrels(text, name, problems))
        elif _TOPIC.search(head) or any(map(is_topic, lines[:1])):
            try:
                finding.topics += [[*topic, name] for topic in read_topics(text, name, problems)]
            except ArchiveError:
                raise
            except ValueError as err:
                problems.add(name, "", str(err).removeprefix(f"{name}: "), kind="files of topics that are not used")
        else:
            finding.ignored += 1
            if len(finding.ignored_names) < _NAMES_KEPT:
                finding.ignored_names.append(name)


def _holds_documents(head: bytes) -> bool:
    return bool(_DOCUMENT.search(head) and (_DOCNO.search(head) or _DOCID.search(head)))


def _head(stream: Any) -> bytes:
    """Reads the beginning of a file; of a damaged one, what there is. ``read()`` would lose what is before damage."""
    head = b""
    size = _HEAD
    try:
        while len(head) < size and (part := stream.read1(size - len(head))):
            head += part
            if len(head) == _HEAD and _PROLOG.match(head) and not _holds_documents(head):
                size = _LONGEST_HEAD
    except ArchiveError:
        if not head:
            raise
    return head


class _Rewound(io.RawIOBase):
    """A stream whose first part was read already."""

    def __init__(self, head: bytes, rest: Any):
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: bytes = self._head[: len(buffer)] or self._rest.read1(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def _first_lines(head: bytes) -> list[str]:
    lines = head[:_HEAD].removeprefix(b"\xef\xbb\xbf").lstrip().splitlines()
    return [line[:4096].decode("utf-8", "replace") for line in lines if line.strip()][:_FIRST_LINES]


def _count(stream: Any, counts: dict[str, int]) -> None:
    """Counts the documents of a file by collection, reading a part at a time; those before a damage too."""
    for docno in _numbers(stream, _DOCNO, _DOCID):
        key = of_docno(docno.decode("utf-8", "replace")) or ""
        counts[key] = counts.get(key, 0) + 1


def _numbers(stream: Any, first: re.Pattern[bytes], second: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yields the numbers in the tags of the first pattern; if the first part of the file has none, of the second."""
    rest = b""
    pattern = None
    while chunk := stream.read1(_CHUNK):
        text = rest + chunk
        pattern = pattern or (first if first.search(text) else second)
        end = max(0, len(text) - _OVERLAP)
        for match in pattern.finditer(text):
            yield match[1]
            end = max(end, match.end() - 1)  # the < may begin the next tag
        rest = text[end:]


# ------------------------------------------------------------------------------------------------- all files as one


def _merged(home: Path, findings: Mapping[str, _Finding]) -> Catalogue:
    problems = Problems()
    documents: dict[str, dict[str, dict[str, int]]] = {}
    topics: dict[str, dict[str, Topic]] = {}
    origins: dict[tuple[str, str], str] = {}
    judgments = Judgments(problems)
    for file, finding in findings.items():
        problems.update(Problems.from_json(finding.problems))
        for name, counts in finding.documents.items():
            for key, count in counts.items():
                documents.setdefault(key, {}).setdefault(file, {})[name] = count
        for *cells, name in finding.topics:
            _take(Topic(*cells), name, topics, origins, problems)
        for name, lines in finding.judgments.items():
            for line in lines:
                number, docno, label = line.split(" ")
                judgments.add(Judgment(number, docno, int(label)), name)
    return Catalogue(
        home,
        documents,
        {language: dict(sorted(known.items(), key=_by_number)) for language, known in sorted(topics.items())},
        _by_collection(judgments),
        {file: finding.stamp for file, finding in findings.items()},
        files=sum(finding.files for finding in findings.values()),
        ignored=sum(finding.ignored for finding in findings.values()),
        ignored_names=[name for finding in findings.values() for name in finding.ignored_names][:_NAMES_KEPT],
        repeated=judgments.repeated,
        problems=problems,
    )


def _by_number(item: tuple[str, Any]) -> int:
    return int(item[0])


def _take(
    topic: Topic,
    name: str,
    topics: dict[str, dict[str, Topic]],
    origins: dict[tuple[str, str], str],
    problems: Problems,
) -> None:
    """Keeps of two topics with the same number and language the one with more fields."""
    known = topics.setdefault(topic.language, {})
    before = known.get(topic.number)
    key = topic.language, topic.number
    if before is None or _filled(topic) > _filled(before):
        known[topic.number], origins[key] = topic, name
    if before is not None and topic.title != before.title:
        kept = origins[key]
        problems.add(
            name,
            f"topic {topic.number}",
            f"the {topic.language} title {topic.title[:60]!r} is another one than before ({before.title[:60]!r}): "
            f"that of {kept} counts",
            kind="topics that differ",
        )


def _filled(topic: Topic) -> int:
    return sum(bool(text) for text in topic)


def _by_collection(judgments: Judgments) -> dict[str, dict[str, dict[str, str]]]:
    grouped: dict[str, dict[str, dict[str, list[str]]]] = {}
    for number, docno, label in judgments:
        by_label = grouped.setdefault(of_docno(docno) or "", {}).setdefault(number, {})
        by_label.setdefault(str(label), []).append(docno)
    return {
        key: {
            number: {label: " ".join(docnos) for label, docnos in by_label.items()}
            for number, by_label in sorted(by_topic.items(), key=_by_number)
        }
        for key, by_topic in grouped.items()
    }


# -------------------------------------------------------------------------------------------------------------- cache


def _plain(catalogue: Catalogue) -> dict[str, Any]:
    return {
        "documents": catalogue.documents,
        "topics": [topic for known in catalogue.topics.values() for topic in known.values()],
        "judged": catalogue.judged,
        "stamps": catalogue.stamps,
        "files": catalogue.files,
        "ignored": catalogue.ignored,
        "ignored_names": catalogue.ignored_names,
        "repeated": catalogue.repeated,
        "problems": catalogue.problems.to_json(),
    }


def _restored(home: Path, kept: Mapping[str, Any]) -> Catalogue:
    topics: dict[str, dict[str, Topic]] = {}
    for cells in kept["topics"]:
        topic = Topic(*cells)
        topics.setdefault(topic.language, {})[topic.number] = topic
    return Catalogue(
        home,
        kept["documents"],
        topics,
        kept["judged"],
        kept["stamps"],
        files=kept["files"],
        ignored=kept["ignored"],
        ignored_names=kept["ignored_names"],
        repeated=kept["repeated"],
        problems=Problems.from_json(kept["problems"]),
    )


def _load(path: Path) -> dict[str, Any]:
    """Returns what was kept; a damaged file counts as none, since all of it can be found again."""
    try:
        kept = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError, zlib.error):
        return {}
    return kept if isinstance(kept, dict) else {}


def _save(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_file(path) as tmp:
        tmp.write_bytes(gzip.compress(json.dumps(content).encode(), compresslevel=4))
