"""``pyterrier-mart table train``, ``vectors``, ``convert``, ``mix`` and ``compose``."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Annotated

import typer

from pyterrier_mart import TranslationTable
from pyterrier_mart.artifact import META
from pyterrier_mart.checks import check_choice
from pyterrier_mart.cli.console import errors
from pyterrier_mart.cli.table import shared
from pyterrier_mart.cli.table.shared import Overwrite, SkipMalformed, TableName, TableNames
from pyterrier_mart.text import language_code
from pyterrier_mart.translation import formats
from pyterrier_mart.translation.align import Aligner
from pyterrier_mart.translation.pairs import read_pairs

__all__ = ["compose", "convert", "mix", "train", "vectors"]

Output = Annotated[Path, typer.Option("--output", "-o", help="Directory to write the table to.")]
Source = Annotated[str, typer.Option("--source", "-s", help="Source language.")]
Target = Annotated[str, typer.Option("--target", "-t", help="Target language.")]
TopK = Annotated[int | None, typer.Option(help="Maximum number of translations of a word.", min=1)]


def train(
    pairs: Annotated[
        list[Path],
        typer.Argument(
            help="Sentence pairs, separated by tabs or |||; two line-parallel files (source, then target), or one of "
            "them; an archive or folder with two such files, such as Europarl and OPUS publish; a TMX file.",
            metavar="PAIRS [TARGET]",
        ),
    ],
    output: Output,
    source: Source,
    target: Target,
    reverse: Annotated[
        Path | None, typer.Option(help="Directory for P(source | target) from the same alignment.")
    ] = None,
    aligner: Annotated[Aligner, typer.Option(help="Word aligner.")] = "eflomal",
    columns: Annotated[
        str | None,
        typer.Option(help="Columns of source and target, from 1, in one file of pairs, else 1,2.", metavar="S,T"),
    ] = None,
    prefixes: Annotated[
        str, typer.Option(help="Align by first letters, one alignment for each length; 0: by whole words.")
    ] = "0",
    top_k: TopK = 10,
    min_count: Annotated[float, typer.Option(help="Least number of links of an entry.", min=0)] = 1.0,
    licence: Annotated[str | None, typer.Option(help="Licence of the sentence pairs, kept with the table.")] = None,
    skip_malformed: SkipMalformed = False,
    overwrite: Overwrite = False,
) -> None:
    """Learn a table from sentence pairs (needs the extra: pip install 'pyterrier-mart[align]').

    Examples: train pairs.tsv, train europarl-v7.de-en, train de-en.tgz, train de-en.txt.zip.
    """
    if len(pairs) > 2:
        raise ValueError(f"expected one file of pairs or two parallel files, found {len(pairs)} files")
    if len(pairs) == 2 and columns is not None:
        raise ValueError("--columns is for one file of pairs; two parallel files have no columns")
    if reverse is not None:
        one, other = output.resolve(), reverse.resolve()
        if one == other or one in other.parents or other in one.parents:
            raise ValueError(f"--output {output} and --reverse {reverse} must be two directories, not one in the other")
        shared.check_output(reverse, overwrite, is_table=True)
    shared.check_output(output, overwrite, is_table=True)
    places = None if columns is None else shared.numbers("--columns", columns, least=1, n=2)
    sentences = read_pairs(
        *pairs, columns=None if places is None else (places[0], places[1]),
        languages=(language_code(source), language_code(target)),
        on_error="skip" if skip_malformed else "raise",
    )  # fmt: skip
    lengths = [n or None for n in shared.numbers("--prefixes", prefixes, least=0)]
    forward, backward = TranslationTable.train_both(
        sentences, source, target, aligner=aligner, prefixes=lengths, top_k=top_k, min_count=min_count,
        verbose=True,
    )  # fmt: skip
    if not len(forward):
        raise ValueError(f"no table is written: no two words were linked at least --min-count {min_count:g} times")
    if sentences.without_text:
        errors.print(f"left out {sentences.without_text:,} pairs of which a side is empty or nothing but a tag")
    meta = sentences.provenance | ({"licence": licence} if licence else {})
    for table, path in ((forward, output), (backward, reverse)):
        if path is not None:
            shared.say_written(path, table.with_meta(**meta).save(path, overwrite=overwrite))


def vectors(
    source_vectors: Annotated[Path, typer.Argument(metavar="SOURCE", help="Vectors of the source language.")],
    target_vectors: Annotated[Path, typer.Argument(metavar="TARGET", help="Vectors of the target language.")],
    output: Output,
    source: Source,
    target: Target,
    k: Annotated[int, typer.Option("--k", help="Number of nearest words that are translations.", min=1)] = 5,
    csls: Annotated[bool, typer.Option("--csls", help="Skip words that are near to everything.")] = False,
    max_words: Annotated[int, typer.Option(help="Number of words of each file to read.", min=1)] = 200_000,
    min_cosine: Annotated[float, typer.Option(help="Only words of a cosine above this.", min=0, max=1)] = 0.0,
    licence: Annotated[str | None, typer.Option(help="Licence of the vectors, kept with the table.")] = None,
    skip_malformed: SkipMalformed = False,
    overwrite: Overwrite = False,
) -> None:
    """Make a table of two files of word vectors in one space, as MUSE publishes them.

    Example: vectors wiki.multi.de.vec wiki.multi.en.vec -s de -t en -o muse.table
    """
    shared.check_output(output, overwrite, is_table=True)
    table = TranslationTable.read_vectors(
        source_vectors, target_vectors, source, target, k=k, csls=csls, max_words=max_words, min_cosine=min_cosine,
        on_error="skip" if skip_malformed else "raise", meta={"licence": licence} if licence else None,
        verbose=errors.is_terminal,
    )  # fmt: skip
    shared.say_written(output, table.save(output, overwrite=overwrite))


def convert(
    source_path: Annotated[str, typer.Argument(metavar="INPUT", help="A file, a table directory or a bundled table.")],
    target_path: Annotated[Path, typer.Argument(metavar="OUTPUT", help="A file, or a directory for a table.")],
    source: Annotated[str | None, typer.Option("--source", "-s", help="Source language (of a file).")] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Target language (of a file).")] = None,
    from_format: Annotated[str | None, typer.Option("--from", help="Format of INPUT, else by its name.")] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", help="Format of OUTPUT, else by its name; without ending or .table: table.")
    ] = None,
    top_k: TopK = None,
    skip_malformed: SkipMalformed = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")] = False,
) -> None:
    """Convert between tables and the files of other programs.

    Released packages are read as they are: panlex-20240101-csv.zip, freedict-deu-eng-1.9.dictd.tar.xz, de-en.txt.

    Formats: table (a directory of this package), moses-target-source, source-target, tsv, csv, parquet, psq, panlex,
    panlex-dump, freedict, muse, lexicon.
    """
    for option, value in (("--from", from_format), ("--to", to_format)):
        if value is not None:
            check_choice(option, value, ("table", *formats.FORMATS))
    to_table = to_format == "table" or (to_format is None and target_path.suffix in ("", ".table"))
    shared.check_output(target_path, overwrite, is_table=to_table)
    if from_format == "table" or (from_format is None and is_table(Path(source_path))):
        table = shared.load(source_path, source, target)
    elif source is None or target is None:
        raise ValueError(f"{source_path} does not say which languages it is for: pass --source and --target")
    else:
        on_error = "skip" if skip_malformed else "raise"
        table = TranslationTable.read(
            source_path, source, target, format=from_format, on_error=on_error, verbose=errors.is_terminal
        )
    if top_k is not None:
        table = table.prune(top_k=top_k)
    if to_table:
        table = table.save(target_path, overwrite=overwrite)
    else:
        table.write(target_path, format=to_format)
    shared.say_written(target_path, table)


def is_table(path: Path) -> bool:
    """Returns whether an input without ``--from`` is a table: a directory that no format knows, or a bundled name."""
    if path.is_dir():
        return (path / META).exists() or formats.guess(path) is None
    return not path.exists() and not path.with_name(path.name + ".index").exists()  # NAME of a dictionary


def mix(
    tables: TableNames,
    output: Output,
    weights: Annotated[
        str | None, typer.Option(help="A weight for each table; without it, all alike.", metavar="W,W,...")
    ] = None,
    backfill: Annotated[
        bool,
        typer.Option("--backfill", help="Each table only gives the words that those before it lack, unweighted."),
    ] = False,
    top_k: TopK = None,
    overwrite: Overwrite = False,
) -> None:
    """Mix tables: the weighted mean of their probabilities, or one and what others add to it.

    A source word that some of the tables lack is averaged over those that have it.
    """
    if len(tables) < 2:
        raise ValueError(f"expected two tables or more, found only {tables[0]}")
    if backfill and weights is not None:
        raise ValueError("--backfill takes words as they are; leave out --weights, or mix in two steps")
    try:
        shares = None if weights is None else [float(part) for part in weights.split(",")]
    except ValueError as err:
        raise ValueError(f"--weights {weights!r}: expected numbers, with commas between") from err
    shared.check_output(output, overwrite, is_table=True)
    first, *others = shared.named_tables(tables).values()
    mixed = reduce(TranslationTable.backfill, others, first) if backfill else first.interpolate(*others, weights=shares)
    if licences := dict.fromkeys(str(table.meta["licence"]) for table in (first, *others) if "licence" in table.meta):
        mixed = mixed.with_meta(licence="; ".join(licences))
    if top_k is not None:
        mixed = mixed.prune(top_k=top_k)
    shared.say_written(output, mixed.save(output, overwrite=overwrite))


def compose(
    first: TableName,
    second: Annotated[str, typer.Argument(help="A table from there to the target language.", metavar="TABLE")],
    output: Output,
    top_k: TopK = 10,
    threshold: Annotated[float, typer.Option(help="Least probability of a translation.", min=0, max=1)] = 0.001,
    overwrite: Overwrite = False,
) -> None:
    """Make a table of two that share a language: de-en and en-fr make de-fr."""
    shared.check_output(output, overwrite, is_table=True)
    made = shared.load(first).compose(shared.load(second), top_k=top_k, threshold=threshold)
    shared.say_written(output, made.save(output, overwrite=overwrite))
