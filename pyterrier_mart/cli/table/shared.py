"""What the commands share: their arguments, tables by name, and outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyterrier as pt
import typer

from pyterrier_mart import TranslationTable
from pyterrier_mart.archives import files
from pyterrier_mart.artifact import META
from pyterrier_mart.cli.console import say, speaks_unicode
from pyterrier_mart.cli.inputs import read_topics
from pyterrier_mart.datasets.clef.catalogue import look_at
from pyterrier_mart.files import atomic_file, check_free
from pyterrier_mart.frames import warn
from pyterrier_mart.lines import open_binary, raw_lines
from pyterrier_mart.problems import Problems
from pyterrier_mart.text import language_code
from pyterrier_mart.translation.formats.common import Package
from pyterrier_mart.translation.storage import FILES

__all__ = [
    "Overwrite", "SkipMalformed", "TableName", "TableNames", "Topics", "Variant", "check_output", "load",
    "named_tables", "numbers", "print_json", "read_queries", "say_written", "write_json",
]  # fmt: skip

_WHOLE = re.compile(r"\s*[0-9]{1,9}\s*")

TableName = Annotated[str, typer.Argument(help="A table directory, or a bundled one such as de-en.", metavar="TABLE")]
TableNames = Annotated[
    list[str], typer.Argument(help="Tables of one direction: directories, or bundled ones.", metavar="TABLE...")
]
SkipMalformed = Annotated[
    bool, typer.Option("--skip-malformed", help="Skip and count malformed lines instead of stopping at the first.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing tables.")]
Topics = Annotated[
    str | None,
    typer.Option(
        help="Queries: a dataset such as mart:xquad-r/de-en, a file of lines qid<TAB>query, or topics of CLEF as their "
        "files are."
    ),
]
Variant = Annotated[str | None, typer.Option(help="Which topics of the dataset, such as title.")]


def load(name: str, source: str | None = None, target: str | None = None) -> TranslationTable:
    """Loads a table and checks its direction, where one is given.

    Raises:
        FileNotFoundError: If there is no such table.
        ValueError: If it has another direction.
    """
    table = TranslationTable.load(name)
    for option, code, known in zip(("--source", "--target"), (source, target), table.languages, strict=True):
        if code and language_code(code) != known:
            raise ValueError(f"{option} must be {known}, which the table {name} is for, not {code}")
    return table


def named_tables(names: Sequence[str]) -> dict[str, TranslationTable]:
    """Loads tables of one direction; returns them by their names, of which those that are alike are numbered.

    Raises:
        FileNotFoundError: If there is no such table.
        ValueError: If the directions differ.
    """
    tables = [load(name) for name in names]
    for name, table in zip(names, tables, strict=True):
        if table.languages != tables[0].languages:
            raise ValueError(
                f"{name} translates {'-'.join(table.languages)}, and {names[0]} {'-'.join(tables[0].languages)}; "
                "expected tables of one direction"
            )
    numbered = [f"{name} ({i})" if names.count(name) > 1 else name for i, name in enumerate(names, 1)]
    return dict(zip(numbered, tables, strict=True))


def read_queries(topics: str | None, variant: str | None, lang: str) -> list[str] | None:
    """Returns the queries of a dataset or file; ``None`` if there is neither.

    Args:
        topics: A dataset, or a file.
        variant: Which topics of the dataset.
        lang: The language that they must be in, as far as a dataset says which they are in.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If there is no such dataset, it has no queries or those of another language, or the file is
            malformed.
    """
    if topics is None:
        return None
    if Path(topics).exists():
        if variant is not None:
            raise ValueError(f"--variant is for datasets, and --topics {topics} is a file")
        return queries_in(Path(topics), lang)
    try:
        dataset = pt.get_dataset(topics)
    except (KeyError, ValueError) as err:
        raise ValueError(f"--topics {topics}: there is no such file or dataset") from err
    languages = getattr(dataset, "languages", None)
    if languages and languages[0] != lang:
        raise ValueError(f"--topics {topics} has queries in {languages[0]}, and the table translates from {lang}")
    frame = dataset.get_topics(variant) if variant is not None else dataset.get_topics()
    if "query" not in frame:
        raise ValueError(f"--topics {topics} has no query; it has {', '.join(frame)}: name one of them with --variant")
    return [query for query in frame["query"] if isinstance(query, str)]


def queries_in(path: Path, lang: str) -> list[str]:
    """Returns the queries of a file of two columns, or the titles of the topics that ``clef setup`` finds in a file.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If it is malformed, or holds no topics in the language.
    """
    if Package(path).names is None:
        with open_binary(path) as stream:
            _, first = next(raw_lines(stream, str(path)), (0, b""))
        if first.count(b"\t") == 1:
            return list(read_topics(str(path)).values())
    found, problems = [], Problems()
    for file in files(path.absolute()):
        finding = look_at(file.parent, file.name, [], lambda _: None)
        found += [(code, title) for _, _, code, title, *_ in finding.topics]
        problems.update(Problems(**finding.problems))
    for line in problems.summary():
        warn(line)
    if not (titles := [title for code, title in found if code == lang]):
        others = ", ".join(sorted({code for code, _ in found}))
        raise ValueError(
            f"--topics {path} has {f'topics in {others}' if others else 'no topics'}, and the table translates from "
            f"{lang}; expected topics of CLEF in that language, or lines qid<TAB>query"
        )
    return titles


def check_output(path: Path | None, overwrite: bool = True, *, is_table: bool = False) -> None:
    """Checks that a path, if there is one, may be written to: before the work and not after it.

    Raises:
        OSError: If there is something that is not to be replaced, in the words of the command line, or a parent is a
            file.
    """
    if path is None:
        return
    if is_table:
        check_free(path, True, META, FILES)
    elif path.is_dir() and overwrite:
        raise IsADirectoryError(f"cannot write the file {path}: it is a directory")
    if not overwrite and (any(path.iterdir()) if path.is_dir() and is_table else path.exists()):
        raise FileExistsError(f"{path} exists; name another path or pass --overwrite")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {parent} is not a directory")


def say_written(path: Path, table: TranslationTable) -> None:
    """Says which table was written where."""
    say(f"wrote {path} ({'-'.join(table.languages)}, {len(table):,} entries)")


def print_json(value: Any) -> None:
    """Prints a value as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not speaks_unicode()))


def write_json(path: Path | None, value: Any) -> None:
    """Writes a value as JSON, if there is a path."""
    if path is not None:
        with atomic_file(path) as tmp:
            text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
            tmp.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files need not be UTF-8


def numbers(option: str, text: str, *, least: int, n: int | None = None) -> list[int]:
    """Returns the whole numbers of an option.

    Raises:
        ValueError: If they are no whole numbers, too small, or not ``n``.
    """
    parts = text.split(",")
    if not all(_WHOLE.fullmatch(part) and int(part) >= least for part in parts) or len(parts) != (n or len(parts)):
        raise ValueError(
            f"{option} {text!r}: expected {f'{n} ' if n else ''}whole numbers from {least}, with commas between"
        )
    return [int(part) for part in parts]
