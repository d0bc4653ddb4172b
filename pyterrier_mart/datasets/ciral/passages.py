"""CIRAL's passages, read from a folder of the user's into one store for each language."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from pyterrier_mart import archives
from pyterrier_mart.datasets import paths
from pyterrier_mart.datasets.ciral.published import LANGUAGES, sites
from pyterrier_mart.datasets.naming import contradiction, named_languages
from pyterrier_mart.problems import Problems
from pyterrier_mart.store import DocumentStore, build_store

__all__ = ["DOCNO", "FIELDS", "NAME", "VARIABLE", "Scan", "open_store", "read_passages", "scan", "store_path"]

NAME = "ciral"
#: Environment variable with the folder of the passages.
VARIABLE = "CIRAL_HOME"
FIELDS = ("text", "title", "url")
SOURCE = "https://huggingface.co/datasets/CIRAL/ciral-corpus"
#: Site, article and passage.
DOCNO = re.compile(r"[!-~]+#\d+#\d+", re.ASCII)

_LONGEST_LINE = 64 << 20
_SKIPPED = 8  # times the longest line: a line without an end is not read to its end
_SNIFFED_LINES, _SNIFFED_BYTES = 20, 1 << 20
_SHOWN = 3
_ENDINGS = (".jsonl", ".json", ".tsv")
_COLUMNS = {2: ("docid", "text"), 3: ("docid", "title", "text"), 4: ("docid", "title", "text", "url")}
_JSON_DOCID = re.compile(r'"docid"\s*:\s*"([^"\\]*)"')


class Scan(NamedTuple):
    """What a folder holds.

    Attributes:
        folder: The folder.
        files: The files with passages, by language.
        ignored: The other files, by their paths in the folder, and why they are not read.
    """

    folder: Path
    files: Mapping[str, tuple[Path, ...]]
    ignored: Mapping[str, str]

    def describe(self, *, reasons: bool = False) -> str:
        """Returns in a sentence what was found, and if asked why the first other files are not read."""
        parts = [f"{LANGUAGES[code]}: {len(files)} files" for code, files in self.files.items()]
        others = f"{len(self.ignored)} other files"
        if reasons and self.ignored:
            shown = [f"{name}: {why}" for name, why in list(self.ignored.items())[:_SHOWN]]
            others += f" ({'; '.join(shown)}{'; ...' * (len(self.ignored) > _SHOWN)})"
        return f"{self.folder} holds {', '.join([*parts, others])}"


def scan(folder: Path) -> Scan:
    """Finds the files with passages: JSON lines or tab-separated, whole or compressed.

    What a file holds is read from its first lines; its language from its name, or that of the nearest folder that
    tells one (``somali.jsonl.gz``, ``so/passages.tsv``). A file is not used if its first passages are in another
    language: from sites whose judged passages are, or by their words.

    Args:
        folder: The folder, which is searched with those inside it.

    Raises:
        NotADirectoryError: If it is not a folder.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    files: dict[str, list[Path]] = {}
    ignored: dict[str, str] = {}

    def unreadable(err: OSError) -> None:
        ignored[os.path.relpath(str(err.filename), folder)] = f"cannot be read ({err.strerror or err})"

    for path in archives.files(folder, unreadable=unreadable):
        inside = path.relative_to(folder)
        if not archives.plain_name(path.name).lower().endswith(_ENDINGS):
            ignored[str(inside)] = f"the name must end in {', '.join(_ENDINGS)}, compressed or not"
        elif (passages := first_passages(path, unreadable)) is None:
            reason = "the first lines are neither JSON objects with a docid nor tab-separated passages"
            ignored.setdefault(str(inside), reason)
        elif not (language := named_language(inside)):
            ignored[str(inside)] = "neither the file's name nor its folder's tells one language"
        elif other := other_language(passages, language):
            ignored[str(inside)] = f"its name tells {LANGUAGES[language]}, but its first passages are in {other}"
        else:
            files.setdefault(language, []).append(path)
    return Scan(folder, {code: tuple(files[code]) for code in LANGUAGES if code in files}, ignored)


def first_passages(path: Path, unreadable: Callable[[OSError], object]) -> dict[str, str] | None:
    """Returns the docids in the first lines of a file, and these lines; None if there are none."""
    found = {}
    try:
        for _, stream in archives.members(path):
            for line in (stream.readline(_SNIFFED_BYTES) for _ in range(_SNIFFED_LINES)):
                text = line.decode("utf-8-sig", errors="replace").strip()
                match = _JSON_DOCID.search(text) if text.startswith("{") else None
                if DOCNO.fullmatch(docno := match[1] if match else text.partition("\t")[0]):
                    found[docno] = text
            break
    except archives.ArchiveError:  # what is wrong with it will be said when it is read
        return found
    except OSError as err:
        unreadable(err)
    return found or None


def named_language(path: Path) -> str | None:
    """Returns the language that the name of a file or of its nearest folder tells, if it is one of CIRAL's."""
    told = next(filter(None, map(named_languages, reversed(path.parts))), set())
    return told.pop() if len(told) == 1 and told <= LANGUAGES.keys() else None


def other_language(passages: Mapping[str, str], language: str) -> str:
    """Returns the name of the language that passages are in, if it is another one of CIRAL's than they should be in."""
    known = [codes for docno in passages if (codes := sites().get(docno.partition("#")[0]))]
    if known:
        told = set.union(*known)
        return "" if language in told else " or ".join(sorted(LANGUAGES[code] for code in told))
    texts = []
    for line in passages.values():
        try:
            texts.append(parse_passage(line, _COLUMNS.get(line.count("\t") + 1, ()))[1]["text"])
        except (ValueError, RecursionError):
            continue
    looks = contradiction("\n".join(texts), language).lower()
    return looks if looks in LANGUAGES.values() else ""


def store_path(folder: Path, language: str) -> Path:
    """Returns where the store of a language is kept."""
    return paths.stores(NAME, folder) / f"{language}.store"


def open_store(language: str, found: Scan | None = None, *, verbose: bool = False) -> DocumentStore:
    """Returns the passages of a language. Their store is built if there is none, or the files have changed.

    Args:
        language: One of :data:`~pyterrier_mart.datasets.ciral.LANGUAGES`.
        found: What :func:`scan` found. ``None``: in the folder that ``CIRAL_HOME`` or ``pyterrier-mart ciral setup``
            says.
        verbose: Whether to show progress.

    Raises:
        FileNotFoundError: If the folder is not known, or holds no passages in the language.
    """
    found = found or scan(paths.home(NAME, VARIABLE))
    if language not in found.files:
        name = LANGUAGES[language]
        raise FileNotFoundError(
            f"there are no CIRAL passages in {name.capitalize()}: {found.describe(reasons=True)}; expected JSON lines "
            f"or tab-separated files that are named after the language, such as {name}.jsonl.gz from {SOURCE}"
        )
    path = store_path(found.folder, language)
    return build_store(path, found.files[language], read_passages, fields=FIELDS, verbose=verbose)


def read_passages(
    path: Path, progress: Callable[[int], object], problems: Problems
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the docid and the fields of each passage in a file.

    JSON lines have ``docid``, ``text`` and, if known, ``title`` and ``url``. Tab-separated lines have docid, title,
    text and url in this order (two columns: docid and text), or a first line that names them.

    Args:
        path: The file.
        progress: Called with the number of bytes read since the last call.
        problems: Collects the lines that are no passage.

    Raises:
        ArchiveError: If a compressed file is damaged, or a line has no end.
    """
    for name, stream in archives.members(path, progress=progress):
        columns: Sequence[str] = ()
        for i, line in enumerate(bounded_lines(stream, name), start=1):
            try:
                if len(line) > _LONGEST_LINE:
                    raise ValueError(f"the line is longer than {_LONGEST_LINE >> 20} MB")
                text = line.decode("utf-8-sig").rstrip("\r\n")
                cells = [cell.strip().lower() for cell in text.split("\t")] if i == 1 else []
                if "docid" in cells and "text" in cells:
                    columns = cells
                elif text.strip():
                    if "\0" in text:
                        raise ValueError("there is a NUL in the line, which no text in UTF-8 has")
                    columns = columns or _COLUMNS.get(len(text.split("\t")), ())  # all lines have those of the first
                    yield parse_passage(text, columns)
            except (ValueError, RecursionError) as err:
                problems.add(name, f"line {i}", str(err), kind="malformed lines")


def bounded_lines(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """Yields lines; of one that is too long, its beginning, which is longer than a line may be."""
    while line := stream.readline(_LONGEST_LINE + 1):
        yield line
        skipped = 0
        while len(line) > _LONGEST_LINE and not line.endswith(b"\n"):
            line = stream.readline(_LONGEST_LINE + 1)
            skipped += 1
            if skipped >= _SKIPPED:
                raise archives.ArchiveError(
                    f"{name}: a line has no end in {_SKIPPED * _LONGEST_LINE >> 20} MB; what is before it is kept"
                )


def parse_passage(line: str, columns: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Returns the docid and the fields of a passage.

    Args:
        line: A JSON object, or tab-separated cells.
        columns: What the cells are, if the first line says so.

    Raises:
        ValueError: If it is no passage.
    """
    row: dict[str, Any]
    if line.lstrip().startswith("{"):
        row = json.loads(line)
    else:
        cells = line.split("\t")
        if len(columns) != len(cells):
            raise ValueError(f"expected {len(columns) or '2 to 4'} tab-separated columns, found {len(cells)}")
        row = dict(zip(columns, cells, strict=True))
    docno, text = row.get("docid"), row.get("text")
    fields = {field: row.get(field) or "" for field in FIELDS}
    if not isinstance(docno, str) or not DOCNO.fullmatch(docno):
        raise ValueError(f"docid must be one such as RADIOMUQDISHO#20610#16, not {docno!r:.80}")
    if text is None or not all(isinstance(value, str) for value in fields.values()):
        raise ValueError(f"{docno}: {', '.join(FIELDS)} must be strings")
    return docno, fields
