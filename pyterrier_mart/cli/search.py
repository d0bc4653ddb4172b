"""``pyterrier-mart index``, ``translate`` and ``search``: a first stage, from files or datasets to a TREC run."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import pandas as pd
import pyterrier as pt
import typer

from pyterrier_mart import BM25Index, SMTQueryTranslator, TranslationTable, bm25_index
from pyterrier_mart.artifact import META
from pyterrier_mart.cli.console import errors, out, say
from pyterrier_mart.cli.inputs import topics_frame
from pyterrier_mart.cli.table.shared import check_output
from pyterrier_mart.frames import warn
from pyterrier_mart.retrieval.documents import source_of
from pyterrier_mart.text import LANGUAGES
from pyterrier_mart.translation.formats.common import text_writer

__all__ = ["index", "search", "translate"]

_CHUNK = 200  # queries that are answered and written at a time

Topics = Annotated[
    str,
    typer.Argument(
        help="Queries: JSON lines or tab-separated qid and query, what `translate` wrote, or a dataset such as "
        "mart:xquad-r/de-en.",
        metavar="TOPICS",
    ),
]
TopK = Annotated[int, typer.Option(help="Translations of each word.", min=1)]
Relate = Annotated[
    bool, typer.Option("--relate/--no-relate", help="Translate other forms and parts of words that the table lacks.")
]
StopTopics = Annotated[bool, typer.Option("--stop", help="Leave function words of the queries out.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")]


def index(
    documents: Annotated[
        str,
        typer.Argument(
            help="Documents: JSON lines or tab-separated docno and text (may be packed; - for a pipe), or a dataset.",
            metavar="DOCS",
        ),
    ],
    path: Annotated[Path, typer.Argument(help="Directory of the index.", metavar="PATH")],
    lang: Annotated[str | None, typer.Option(help="Language of the documents; a dataset may say it.")] = None,
    text_field: Annotated[
        list[str] | None, typer.Option(help="Field to index, may be given several times. [default: text]")
    ] = None,
    store_text: Annotated[
        bool, typer.Option("--store-text", help="Keep these fields in the index, for re-rankers.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Leave function words out.")] = False,
    engine: Annotated[
        Literal["auto", "pisa", "terrier"], typer.Option(help="Search engine; auto is PISA where it is installed.")
    ] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
) -> None:
    """Build an index of documents for BM25.

    An index that is there already is kept if it was made of the same documents in the same way. In files, docno may
    also be called doc_id, docid, _id, id or pid, and text contents, body, passage or segment.
    """
    source = source_of(documents)
    if lang is None and not hasattr(source, "get_corpus_lang"):
        raise ValueError(f"the language of {documents} is not known: pass --lang, one of {', '.join(LANGUAGES)}")
    there = (path / META).exists() and not overwrite
    made = bm25_index(
        source, path, lang, stop=stop, text_field=tuple(text_field or ["text"]), engine=engine,
        store_text=store_text, overwrite=overwrite, progress=errors.is_terminal,
    )  # fmt: skip
    say(f"{'kept' if there else 'wrote'} {path} ({len(made):,} documents in {made.analyzer.lang}, {made.engine})")


def translate(
    topics: Topics,
    output: Annotated[
        str,
        typer.Argument(
            help="File to write: .jsonl has weighted words, which `search` reads, .tsv the best translation of each "
            "word as text; .gz after it for gzipped; - for JSON lines to a pipe.",
            metavar="OUT",
        ),
    ],
    table: Annotated[str, typer.Option(help="Translation table: a directory, or a bundled one such as de-en.")],
    top_k: TopK = 10,
    relate: Relate = True,
    stop: StopTopics = False,
    overwrite: Overwrite = False,
) -> None:
    """Translate queries word by word with a translation table."""
    plain = output.lower().removesuffix(".gz")
    as_text = plain.endswith(".tsv")
    if output != "-" and not as_text and not plain.endswith((".jsonl", ".json", ".ndjson")):
        raise ValueError(f"OUT must end in .jsonl or .tsv, and perhaps .gz, not be called {output}")
    check(output, overwrite)
    frame, translator = translation(topics, table, top_k, relate=relate, stop=stop, push=as_text)
    made = translator(frame)
    with writer(output) as file:
        for row in made.to_dict("records"):
            if as_text:
                file.write(f"{row['qid']}\t{row['query']}\n")
                continue
            line = {**{name: row[name] for name in ("qid", "query", "query_toks")}, "analyzer": row["query_toks"].spec}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    known = translator.table.languages
    say(f"wrote {output} ({len(made):,} queries, {'-'.join(known)})", errors if output == "-" else out)


def search(
    index: Annotated[Path, typer.Argument(help="Directory of an index.", metavar="INDEX")],
    topics: Topics,
    run: Annotated[str, typer.Argument(help="TREC run to write, .gz for gzipped; - for a pipe.", metavar="RUN")],
    table: Annotated[
        str | None, typer.Option(help="Translation table for the queries: a directory, or a bundled one such as de-en.")
    ] = None,
    num_results: Annotated[int, typer.Option(help="Documents of each query.", min=1)] = 1000,
    k1: Annotated[float, typer.Option(help="BM25's saturation of term frequency.", min=0)] = 0.9,
    b: Annotated[float, typer.Option(help="BM25's length normalisation.", min=0, max=1)] = 0.4,
    top_k: TopK = 10,
    relate: Relate = True,
    stop: StopTopics = False,
    tag: Annotated[str, typer.Option(help="Name of the run.")] = "bm25",
    overwrite: Overwrite = False,
) -> None:
    """Search an index with queries, translated with a table if there is one, and write a TREC run for `rerank`."""
    check(run, overwrite)
    if tag.split() != [tag]:
        raise ValueError(f"--tag must be a word without white space, not {tag!r}")
    opened = BM25Index(index)
    lang = opened.analyzer.lang
    pipeline: Any = opened.bm25(k1=k1, b=b, num_results=num_results)
    if table is None:
        frame = topics_frame(topics)
        said = frame.attrs.get("lang")
        if "query_toks" not in frame and said not in (None, lang):
            warn(
                f"queries in {said} search documents in {lang} untranslated; --table {said}-{lang} would translate them"
            )
    else:
        frame, translator = translation(topics, table, top_k, relate=relate, stop=stop)
        if translator.table.target.spec != opened.analyzer.spec:
            raise ValueError(
                f"the table {table} translates into {translator.table.target.spec}, and the index {index} has words of "
                f"{opened.analyzer.spec}"
            )
        pipeline = translator >> pipeline
    if wrong := [qid for qid in frame["qid"] if qid.split() != [qid]]:
        raise ValueError(f"{topics}: the qid {wrong[0]!r} has white space, which a TREC run cannot hold")
    found, rows = 0, 0
    starts = range(0, len(frame), _CHUNK)
    with writer(run) as file:
        for start in pt.tqdm(starts, desc="search", unit_scale=_CHUNK, unit="query", disable=not errors.is_terminal):
            results = pipeline(frame.iloc[start : start + _CHUNK])
            results = results.assign(q0="Q0", tag=tag)[["qid", "q0", "docno", "rank", "score", "tag"]]
            results.to_csv(file, sep=" ", header=False, index=False, lineterminator="\n")
            found, rows = found + results["qid"].nunique(), rows + len(results)
    if found < len(frame):
        warn(f"{len(frame) - found:,} of {len(frame):,} queries found nothing")
    say(f"wrote {run} ({rows:,} documents of {found:,} queries)", errors if run == "-" else out)


def translation(
    topics: str, table: str, top_k: int, *, relate: bool, stop: bool, push: bool = False
) -> tuple[pd.DataFrame, SMTQueryTranslator]:
    """Returns the queries and what translates them.

    Raises:
        ValueError: If they are translated already, or a dataset says that they are in another language.
    """
    frame, known = topics_frame(topics), TranslationTable.load(table)
    if "query_toks" in frame:
        raise ValueError(f"{topics} has translated queries (query_toks) already")
    said = frame.attrs.get("lang")
    if said not in (None, known.source.lang):
        raise ValueError(f"{topics} has queries in {said}, and the table {table} translates from {known.source.lang}")
    return frame, SMTQueryTranslator(known, top_k, relate=relate, stop=stop, push=push)


def check(output: str, overwrite: bool) -> None:
    """Checks that an output may be written, before the work."""
    path = Path(output)
    if output != "-" and (path.is_file() or path.is_dir() or not path.exists()):  # no pipe or device
        check_output(path, overwrite or path.is_dir())


def writer(output: str) -> AbstractContextManager[TextIO]:
    """Opens a file that appears when the block ends without an error, gzipped by its name; or standard output."""
    return nullcontext(sys.stdout) if output == "-" else text_writer(Path(output))
