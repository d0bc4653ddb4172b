"""What the commands share: their arguments, tables by name, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pyterrier_mart import TranslationTable
from pyterrier_mart.artifact import META
from pyterrier_mart.cli.console import out, speaks_unicode
from pyterrier_mart.files import atomic_file, check_free
from pyterrier_mart.text import language_code
from pyterrier_mart.translation.storage import FILES

__all__ = [
    "Overwrite", "SkipMalformed", "TableName", "check_json", "check_output", "load", "named_tables", "numbers",
    "print_json", "say_written", "write_json",
]  # fmt: skip

TableName = Annotated[str, typer.Argument(help="A table directory, or a bundled one such as de-en.", metavar="TABLE")]
SkipMalformed = Annotated[
    bool, typer.Option("--skip-malformed", help="Skip and count malformed lines instead of stopping at the first.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing tables.")]


def load(name: str, source: str | None = None, target: str | None = None) -> TranslationTable:
    """Loads a table and checks its direction, where one is given.

    Raises:
        FileNotFoundError: If there is no such table.
        ValueError: If it has another direction.
    """
    if not name or not (Path(name).exists() or name in TranslationTable.bundled()):
        raise FileNotFoundError(
            f"no file or table {name!r}; bundled tables are {', '.join(TranslationTable.bundled())}"
        )
    table = TranslationTable.load(name)
    wanted = tuple(known if given is None else language_code(given)
                   for given, known in zip((source, target), table.languages, strict=True))  # fmt: skip
    if wanted != table.languages:
        raise ValueError(
            f"the table {name} translates {'-'.join(table.languages)}, but --source and --target say {'-'.join(wanted)}"
        )
    return table


def named_tables(names: list[str]) -> tuple[list[str], list[TranslationTable]]:
    """Loads tables of one direction; returns their names, those that are alike numbered, and the tables.

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
    return [f"{name} ({i})" if names.count(name) > 1 else name for i, name in enumerate(names, 1)], tables


def check_output(path: Path, overwrite: bool, *, is_table: bool) -> None:
    """Checks that a path may be written to, before the work and not after it.

    Raises:
        FileExistsError: If there is something that is not to be replaced; in the words of the command line.
        NotADirectoryError: If a parent is a file.
    """
    if is_table:
        check_free(path, True, META, FILES)
    if not overwrite and (any(path.iterdir()) if path.is_dir() and is_table else path.exists()):
        raise FileExistsError(f"{path} exists; name another path or pass --overwrite")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {parent} is not a directory")


def say_written(path: Path, table: TranslationTable) -> None:
    """Says which table was written where."""
    size = f"{'-'.join(table.languages)}, {len(table):,} entries"
    out.print(f"wrote {path} ({size})", markup=False, emoji=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Prints a value as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not speaks_unicode()))


def check_json(path: Path | None) -> None:
    """Checks that a JSON file can be written, before the work and not after it.

    Raises:
        IsADirectoryError: If it is a directory.
        NotADirectoryError: If a parent is a file.
    """
    if path is not None:
        if path.is_dir():
            raise IsADirectoryError(f"cannot write the file {path}: it is a directory")
        check_output(path, True, is_table=False)


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
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or (n is not None and len(numbers) != n) or min(numbers) < least:
        wanted = f"{n} whole numbers" if n is not None else "whole numbers"
        raise ValueError(f"{option} {text!r}: expected {wanted} from {least} with commas between")
    return numbers
