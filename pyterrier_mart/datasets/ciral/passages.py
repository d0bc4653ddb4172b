"""CIRAL's passages, read from a folder of the user's into one store for each language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from pyterrier_mart import archives
from pyterrier_mart.datasets import paths
from pyterrier_mart.datasets.ciral.published import LANGUAGES

if TYPE_CHECKING:
    from pyterrier_mart.datasets.store import DocumentStore
    from pyterrier_mart.problems import Problems

__all__ = ["FIELDS", "NAME", "VARIABLE", "Scan", "open_store", "read_passages", "scan", "store_path"]

NAME = "ciral"
#: Environment variable with the folder of the passages.
VARIABLE = "CIRAL_HOME"
FIELDS = ("text", "title", "url")
SOURCE = "https://huggingface.co/datasets/CIRAL/ciral-corpus"

_DOCNO = re.compile(r"[!-~]+#\d+#\d+", re.ASCII)  # site, article, passage
_LONGEST_LINE = 64 << 20
_SNIFFED_LINES, _SNIFFED_BYTES = 20, 1 << 20
_ENDINGS = (".jsonl", ".json", ".tsv")


class Scan(NamedTuple):
    """What a folder holds.

    Attributes:
        folder: The folder.
        files: The files with passages, by language.
        unplaced: Files with passages in a language that neither their names nor their folders tell.
        ignored: The other files, and why they are none.
    """

    folder: Path
    files: Mapping[str, tuple[Path, ...]]
    unplaced: tuple[Path, ...]
    ignored: Mapping[Path, str]

    def describe(self) -> str:
        """Returns in a sentence what was found."""
        parts = [f"{LANGUAGES[code]}: {len(files)} files" for code, files in self.files.items()]
        if self.unplaced:
            parts.append(f"{len(self.unplaced)} files of passages in no known language ({self.unplaced[0].name}, ...)")
        return f"{self.folder} holds {', '.join([*parts, f'{len(self.ignored)} other files'])}"

    def passed_over(self) -> Iterator[str]:
        """Gives for each file that is not read its path in the folder, and why."""
        for path in self.unplaced:
            yield f"{path.relative_to(self.folder)}: neither the file's name nor its folder's tells one language"
        for path, why in self.ignored.items():
            yield f"{path.relative_to(self.folder)}: {why}"


def scan(folder: Path) -> Scan:
    """Finds the files with passages: JSON lines or tab-separated, whole or compressed.

    What a file holds is read from its first lines; its language from its name, or that of the nearest folder that
    tells one (``somali.jsonl.gz``, ``so/passages.tsv``).

    Args:
        folder: The folder, which is searched with those inside it.

    Raises:
        NotADirectoryError: If it is not a folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    files: dict[str, list[Path]] = {}
    unplaced: list[Path] = []
    ignored: dict[Path, str] = {}
    for path in archives.files(folder):
        inside = path.relative_to(folder)
        if not _may_hold_passages(path):
            ignored[path] = f"the name does not end in {', '.join(_ENDINGS)}, or these and that of a compressed file"
        elif not _holds_passages(path):
            ignored[path] = "the first lines are neither JSON objects with a docid nor tab-separated passages"
        elif language := _language(inside):
            files.setdefault(language, []).append(path)
        else:
            unplaced.append(path)
    return Scan(folder, {code: tuple(files[code]) for code in LANGUAGES if code in files}, tuple(unplaced), ignored)


def _may_hold_passages(path: Path) -> bool:
    return archives.plain_name(path.name).lower().endswith(_ENDINGS)


def _holds_passages(path: Path) -> bool:
    try:
        for _, stream in archives.members(path):
            lines = (stream.readline(_SNIFFED_BYTES) for _ in range(_SNIFFED_LINES))
            return any(_DOCNO.fullmatch(_docno_of(line)) for line in lines)
    except archives.ArchiveError:  # what is wrong with it will be said when it is read
        return True
    return False


def _docno_of(line: bytes) -> str:
    text = line.decode("utf-8-sig", errors="replace").strip()
    if not text.startswith("{"):
        return text.partition("\t")[0]
    match = re.search(r'"docid"\s*:\s*"([^"\\]*)"', text)
    return match[1] if match else ""


def _language(path: Path) -> str | None:
    """Returns the language that the name of a file or of its nearest folder tells."""
    for part in reversed(path.parts):
        words = re.split(r"[\W_]+", part.lower())
        told = {code for code, name in LANGUAGES.items() if code in words or name in words}
        if told:
            return told.pop() if len(told) == 1 else None
    return None


def store_path(folder: Path, language: str) -> Path:
    """Returns where the store of a language is kept."""
    return paths.stores(NAME, folder) / f"{language}.store"


def open_store(
    language: str, folder: Path | Scan | None = None, *, problems: Problems | None = None, verbose: bool = False
) -> DocumentStore:
    """Returns the passages of a language. Their store is built if there is none, or the files have changed.

    An interrupted build goes on where it was.

    Args:
        language: One of :data:`~pyterrier_mart.datasets.ciral.LANGUAGES`.
        folder: Where the passages are, or what :func:`scan` found there. ``None``: what ``CIRAL_HOME`` or
            ``pyterrier-mart ciral setup`` says.
        problems: Collects malformed lines, and passages that differ under one docid.
        verbose: Whether to show progress.

    Raises:
        FileNotFoundError: If the folder is not known, or holds no passages in the language.
    """
    from pyterrier_mart.datasets.store import build_store
    from pyterrier_mart.problems import Problems

    if folder is None:
        folder = paths.home(NAME, VARIABLE)
    found = folder if isinstance(folder, Scan) else scan(folder)
    files = found.files.get(language)
    if not files:
        name = LANGUAGES[language]
        raise FileNotFoundError(
            f"there are no CIRAL passages in {name.capitalize()}: {found.describe()}; expected JSON lines or "
            f"tab-separated files that are named after the language, such as {name}.jsonl.gz from {SOURCE}"
        )
    problems = problems if problems is not None else Problems()
    return build_store(
        store_path(found.folder, language),
        files,
        partial(read_passages, problems=problems),
        fields=FIELDS,
        meta={"collection": NAME, "language": language},
        problems=problems,
        verbose=verbose,
    )


def read_passages(
    path: Path, progress: Callable[[int], object] | None = None, *, problems: Problems | None = None
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields the docid and the fields of each passage in a file.

    JSON lines have ``docid``, ``text`` and, if known, ``title`` and ``url``. Tab-separated lines have docid, title,
    text and url in this order (two columns: docid and text), or a first line that names them.

    Args:
        path: The file.
        progress: Called with the number of bytes read since the last call.
        problems: Collects the lines that are no passage. ``None``: the first one is an error.

    Raises:
        ArchiveError: If a compressed file is damaged.
        ValueError: If a line is no passage and there is nothing to collect it in.
    """
    for name, stream in archives.members(path, progress=progress):
        columns = _Columns()
        for number, line in enumerate(_lines(stream), start=1):
            try:
                text = _decoded(line)
                if not text.strip():
                    continue
                if number == 1 and columns.read_header(text):
                    continue
                docno, fields = _parse_json(text) if text.lstrip().startswith("{") else columns(text)
            except _MalformedError as err:
                if problems is None:
                    raise ValueError(f"{name}, line {number}: {err}") from None
                problems.add(name, f"line {number}", str(err), kind="malformed lines")
                continue
            yield docno, fields


class _MalformedError(ValueError):
    """A line is no passage."""


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yields lines; of one that is too long, its beginning, which is longer than a line may be."""
    while line := stream.readline(_LONGEST_LINE + 1):
        yield line
        while len(line) > _LONGEST_LINE and not line.endswith(b"\n"):
            line = stream.readline(_LONGEST_LINE + 1)


def _decoded(line: bytes) -> str:
    if len(line) > _LONGEST_LINE:
        raise _MalformedError(f"the line is longer than {_LONGEST_LINE >> 20} MB")
    try:
        return line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as err:
        raise _MalformedError(f"byte {err.start + 1} of the line is not UTF-8") from None


def _parse_json(line: str) -> tuple[str, dict[str, str]]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise _MalformedError(f"not a JSON object ({err})") from None
    if not isinstance(entry, dict):
        raise _MalformedError(f"expected a JSON object, found {type(entry).__name__}")
    docno = _checked(entry.get("docid"))
    fields = {}
    for field in FIELDS:
        value = entry.get(field, None if field == "text" else "")
        if value is None and field != "text":
            value = ""
        if not isinstance(value, str):
            raise _MalformedError(f"{docno}: expected a string in {field!r}, found {value!r:.80}")
        fields[field] = value
    return docno, fields


class _Columns:
    """Reads tab-separated lines."""

    _BY_NUMBER = {2: ("docid", "text"), 3: ("docid", "title", "text"), 4: ("docid", "title", "text", "url")}

    def __init__(self) -> None:
        self._names: tuple[str, ...] | None = None

    def read_header(self, line: str) -> bool:
        """Takes the columns' names from a first line, if it has them."""
        names = tuple(name.strip().lower() for name in line.split("\t"))
        if "docid" in names and "text" in names:
            self._names = names
        return self._names is not None

    def __call__(self, line: str) -> tuple[str, dict[str, str]]:
        cells = line.split("\t")
        names = self._names or self._BY_NUMBER.get(len(cells))
        if names is None or len(names) != len(cells):
            expected = len(names) if names else "2 to 4"
            raise _MalformedError(f"expected {expected} tab-separated columns, found {len(cells)}")
        row = dict(zip(names, cells, strict=True))
        return _checked(row["docid"]), {field: row.get(field, "") for field in FIELDS}


def _checked(docno: object) -> str:
    if not isinstance(docno, str) or not _DOCNO.fullmatch(docno):
        raise _MalformedError(f"expected a docid such as RADIOMUQDISHO#20610#16, found {docno!r:.80}")
    return docno
