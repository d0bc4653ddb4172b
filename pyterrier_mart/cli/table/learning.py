"""``pyterrier-mart table train`` and ``vectors``."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import typer

from pyterrier_mart import TranslationTable
from pyterrier_mart.cli.console import errors
from pyterrier_mart.cli.table.shared import Overwrite, SkipMalformed, check_output, numbers, say_written
from pyterrier_mart.text import language_code
from pyterrier_mart.translation.pairs import read_pairs

__all__ = ["train", "vectors"]

_COLUMNS = "1,2"


class AlignerName(str, Enum):
    """The choices of ``--aligner``."""

    eflomal = "eflomal"
    fast_align = "fast_align"


def train(
    pairs: Annotated[
        list[Path],
        typer.Argument(
            help="Tab-separated sentence pairs; two line-parallel files (source, then target), or one of them; an "
            "archive or folder with two such files, such as Europarl and OPUS publish; a TMX file.",
            metavar="PAIRS [TARGET]",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write the table to.")],
    source: Annotated[str, typer.Option("--source", "-s", help="Source language.")],
    target: Annotated[str, typer.Option("--target", "-t", help="Target language.")],
    reverse: Annotated[
        Path | None, typer.Option(help="Directory for P(source | target) from the same alignment.")
    ] = None,
    aligner: Annotated[AlignerName, typer.Option(help="Word aligner.")] = AlignerName.eflomal,
    columns: Annotated[str, typer.Option(help="Columns of source and target, from 1.", metavar="S,T")] = _COLUMNS,
    prefixes: Annotated[
        str, typer.Option(help="Align by first letters, one alignment for each length; 0: by whole words.")
    ] = "0",
    top_k: Annotated[int, typer.Option(help="Keep at most so many translations of a word.", min=1)] = 10,
    min_count: Annotated[float, typer.Option(help="Keep entries linked at least so often.", min=0)] = 1.0,
    licence: Annotated[str | None, typer.Option(help="Licence of the sentence pairs, kept with the table.")] = None,
    skip_malformed: SkipMalformed = False,
    overwrite: Overwrite = False,
) -> None:
    """Learn a table from sentence pairs (needs the extra: pip install 'pyterrier-mart[align]').

    Examples: train pairs.tsv, train europarl-v7.de-en, train de-en.tgz, train de-en.txt.zip.
    """
    if len(pairs) > 2:
        raise ValueError(f"expected one file of pairs or two parallel files, found {len(pairs)} files")
    if len(pairs) == 2 and columns != _COLUMNS:
        raise ValueError("--columns is for one file of pairs; two parallel files have no columns")
    if not math.isfinite(min_count):
        raise ValueError(f"--min-count {min_count}: expected a finite number")
    both = [output] if reverse is None else [output, reverse]
    if reverse is not None:
        _check_apart(output, reverse)
    for directory in both:  # known before the work, not after it
        check_output(directory, overwrite, is_table=True)
    s_column, t_column = numbers("--columns", columns, least=1, n=2)
    languages = language_code(source), language_code(target)
    on_error: Literal["raise", "skip"] = "skip" if skip_malformed else "raise"
    sentences = read_pairs(*pairs, columns=(s_column, t_column), languages=languages, on_error=on_error)
    lengths = [n or None for n in numbers("--prefixes", prefixes, least=0)]
    forward, backward = TranslationTable.train_both(
        sentences, source, target, aligner=aligner.value, prefixes=lengths, top_k=top_k, min_count=min_count,
        verbose=True,
    )  # fmt: skip
    if not len(forward):
        raise ValueError(f"no table is written: no two words were linked at least --min-count {min_count:g} times")
    if sentences.without_text:
        errors.print(f"left out {sentences.without_text:,} pairs of which a side is empty or nothing but a tag")
    meta = sentences.provenance | ({"licence": licence} if licence else {})
    for table, path in ((forward, output), (backward, reverse)):
        if path is not None:
            say_written(path, table.with_meta(**meta).save(path, overwrite=overwrite))


def _check_apart(output: Path, reverse: Path) -> None:
    """Refuses two outputs of which one would be written into, or in place of, the other."""
    one, other = output.resolve(), reverse.resolve()
    if one == other:
        raise ValueError(f"--output and --reverse are both {output}: name two directories")
    if one in other.parents or other in one.parents:
        raise ValueError(f"--output {output} and --reverse {reverse}: expected directories apart, not one in the other")


def vectors(
    source_vectors: Annotated[Path, typer.Argument(metavar="SOURCE", help="Vectors of the source language.")],
    target_vectors: Annotated[Path, typer.Argument(metavar="TARGET", help="Vectors of the target language.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write the table to.")],
    source: Annotated[str, typer.Option("--source", "-s", help="Source language.")],
    target: Annotated[str, typer.Option("--target", "-t", help="Target language.")],
    k: Annotated[int, typer.Option("--k", help="How many nearest words are translations.", min=1)] = 5,
    csls: Annotated[bool, typer.Option("--csls", help="Pass over words that are near to everything.")] = False,
    max_words: Annotated[int, typer.Option(help="Read so many words of each file, the first ones.", min=1)] = 200_000,
    min_cosine: Annotated[float, typer.Option(help="Only words of a cosine above this.", min=0, max=1)] = 0.0,
    licence: Annotated[str | None, typer.Option(help="Licence of the vectors, kept with the table.")] = None,
    skip_malformed: SkipMalformed = False,
    overwrite: Overwrite = False,
) -> None:
    """Make a table of two files of word vectors in one space, as MUSE publishes them.

    Example: vectors wiki.multi.de.vec wiki.multi.en.vec -s de -t en -o muse.table
    """
    check_output(output, overwrite, is_table=True)
    table = TranslationTable.read_vectors(
        source_vectors, target_vectors, source, target, k=k, csls=csls, max_words=max_words, min_cosine=min_cosine,
        on_error="skip" if skip_malformed else "raise", meta={"licence": licence} if licence else None,
        verbose=errors.is_terminal,
    )  # fmt: skip
    say_written(output, table.save(output, overwrite=overwrite))
