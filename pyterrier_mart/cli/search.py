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

from pyterrier_mart import BM25Index, PSQIndex, SMTQueryTranslator, TranslationTable, bm25_index, psq_index
from pyterrier_mart.artifact import META
from pyterrier_mart.cli.console import errors, out, say
from pyterrier_mart.cli.inputs import open_index, topics_frame
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
TableName = Annotated[
    str | None, typer.Option(help="Translation table for the queries: a directory, or a bundled one such as de-en.")
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
    psq: Annotated[
        list[str] | None,
        typer.Option(
            help="Translation table from the queries' language to the documents', such as de-en: documents become "
            "words of queries (PSQ). Several, for documents with doc_lang; de among them for documents in the queries' "
            "own language.",
            metavar="TABLE",
        ),
    ] = None,
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
    """Build an index of documents, for BM25 or with translation tables for PSQ.

    An index that is there already is kept if it was made of the same documents in the same way. In files, docno may
    also be called doc_id, docid, _id, id or pid, and text contents, body, passage or segment.
    """
    source = source_of(documents)
    there = (path / META).exists() and not overwrite
    options: Any = {
        "text_field": tuple(text_field or ["text"]), "engine": engine, "stop": stop, "store_text": store_text,
        "overwrite": overwrite, "progress": errors.is_terminal,
    }  # fmt: skip
    made: BM25Index | PSQIndex
    if psq:
        if lang is not None:
            raise ValueError("--lang is for BM25: with --psq, tables name the languages")
        made = psq_index(source, path, psq[0] if len(psq) == 1 else tables_of(psq), **options)
    elif lang is None and not hasattr(source, "get_corpus_lang"):
        raise ValueError(f"the language of {documents} is not known: pass --lang, one of {', '.join(LANGUAGES)}")
    else:
        made = bm25_index(source, path, lang, **options)
    say(
        f"{'kept' if there else 'wrote'} {path} ({len(made):,} documents, words in {made.analyzer.lang}, {made.engine})"
    )


def tables_of(names: list[str]) -> dict[str, TranslationTable | None]:
    """Returns tables by the languages of documents; none for a language that is given in the place of a table."""
    tables: dict[str, TranslationTable | None] = {}
    for name in names:
        table = None if name in LANGUAGES and not Path(name).exists() else TranslationTable.load(name)
        lang = name if table is None else table.target.lang
        if lang in tables:
            raise ValueError(f"--psq {name}: there are two tables for documents in {lang}")
        tables[lang] = table
    return tables


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
    table: TableName = None,
    top_k: TopK = 10,
    relate: Relate = True,
    stop: StopTopics = False,
    model: Annotated[
        str | None, typer.Option(help="Instead of a table: a translation model, a hub id or directory.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="With --model: language of the queries.")] = None,
    target: Annotated[str | None, typer.Option(help="With --model: language of the documents.")] = None,
    n_best: Annotated[int, typer.Option(help="With --model: translations of a query that are weighted.", min=1)] = 1,
    cache: Annotated[
        Path | None, typer.Option(help="With --model: file that keeps translations.", metavar="FILE")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Translate queries, word by word with a translation table or with a neural model."""
    plain = output.lower().removesuffix(".gz")
    as_text = plain.endswith(".tsv")
    if output != "-" and not as_text and not plain.endswith((".jsonl", ".json", ".ndjson")):
        raise ValueError(f"OUT must end in .jsonl or .tsv, and perhaps .gz, not be called {output}")
    check(output, overwrite)
    if (table is None) == (model is None):
        raise ValueError("pass either --table or --model")
    if table is not None:
        smt = SMTQueryTranslator(table, top_k, relate=relate, stop=stop, push=as_text)
        made = smt.transform(queries_in(topics, smt.table.source.lang, f"the table {table}"))
    else:
        from pyterrier_mart import NeuralQueryTranslator
        from pyterrier_mart.translation.neural.languages import iso_code

        if source is None or target is None:
            raise ValueError("--model needs --source and --target, the languages of queries and documents")
        nmt = NeuralQueryTranslator(
            str(model), source=source, target=target, n_best=n_best, push=as_text, cache=cache,
            verbose=errors.is_terminal,
        )  # fmt: skip
        made = nmt.transform(queries_in(topics, iso_code(source), f"--source {source}"))
    with writer(output) as file:
        for row in made.to_dict("records"):
            if as_text:
                file.write(f"{row['qid']}\t{row['query']}\n")
                continue
            line = {**{name: row[name] for name in ("qid", "query", "query_toks")}, "analyzer": row["query_toks"].spec}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    say(f"wrote {output} ({len(made):,} queries)", errors if output == "-" else out)


def search(
    index: Annotated[Path, typer.Argument(help="Directory of an index.", metavar="INDEX")],
    topics: Topics,
    run: Annotated[str, typer.Argument(help="TREC run to write, .gz for gzipped; - for a pipe.", metavar="RUN")],
    table: TableName = None,
    num_results: Annotated[int, typer.Option(help="Documents of each query.", min=1)] = 1000,
    k1: Annotated[float | None, typer.Option(help="BM25's saturation of term frequency. [default: 0.9]", min=0)] = None,
    b: Annotated[float | None, typer.Option(help="BM25's length normalisation. [default: 0.4]", min=0, max=1)] = None,
    top_k: TopK = 10,
    relate: Relate = True,
    stop: StopTopics = False,
    tag: Annotated[str | None, typer.Option(help="Name of the run. [default: bm25 or psq]")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Search an index, with queries that a table translates if there is one, and write a TREC run for `rerank`.

    The words that an index of PSQ has are in the language of the queries, which need no table.
    """
    check(run, overwrite)
    opened = open_index(index)
    lang = opened.analyzer.lang
    tag = ("bm25" if isinstance(opened, BM25Index) else "psq") if tag is None else tag
    if tag.split() != [tag]:
        raise ValueError(f"--tag must be a word without white space, not {tag!r}")
    pipeline: pt.Transformer
    if isinstance(opened, BM25Index):
        pipeline = opened.bm25(k1=0.9 if k1 is None else k1, b=0.4 if b is None else b, num_results=num_results)
    elif table is None and k1 is None and b is None:
        pipeline = opened.retriever(num_results, relate=relate)
    else:
        raise ValueError(f"{index} is a PSQ index, which has its own table and weighting: no --table, --k1 or --b")
    if table is None:
        frame = topics_frame(topics)
        said = frame.attrs.get("lang")
        if "query_toks" not in frame and said not in (None, lang):
            warn(f"queries in {said} are searched as if they were in {lang}; translate them with --table {said}-{lang}")
    else:
        smt = SMTQueryTranslator(table, top_k, relate=relate, stop=stop)
        if smt.table.target.spec != opened.analyzer.spec:
            raise ValueError(
                f"the table {table} translates into {smt.table.target.spec}, and the index {index} has words of "
                f"{opened.analyzer.spec}"
            )
        frame = queries_in(topics, smt.table.source.lang, f"the table {table}")
        pipeline = smt >> pipeline
    if wrong := [qid for qid in frame["qid"] if qid.split() != [qid]]:
        raise ValueError(f"{topics}: the qid {wrong[0]!r} has white space, which a TREC run cannot hold")
    found, rows = 0, 0
    starts = range(0, len(frame), _CHUNK)
    with writer(run) as file:
        for start in pt.tqdm(starts, desc="search", unit_scale=_CHUNK, unit="query", disable=not errors.is_terminal):
            results = pipeline.transform(frame.iloc[start : start + _CHUNK])
            results = results.assign(q0="Q0", tag=tag)[["qid", "q0", "docno", "rank", "score", "tag"]]
            results.to_csv(file, sep=" ", header=False, index=False, lineterminator="\n")
            found, rows = found + results["qid"].nunique(), rows + len(results)
    if found < len(frame):
        warn(f"{len(frame) - found:,} of {len(frame):,} queries found nothing")
    say(f"wrote {run} ({rows:,} documents of {found:,} queries)", errors if run == "-" else out)


def queries_in(topics: str, lang: str, of: str) -> pd.DataFrame:
    """Returns queries that are to be translated.

    Raises:
        ValueError: If they are translated already, or a dataset says that they are in another language.
    """
    frame = topics_frame(topics)
    if "query_toks" in frame:
        raise ValueError(f"{topics} has translated queries (query_toks) already")
    if (said := frame.attrs.get("lang")) not in (None, lang):
        raise ValueError(f"{topics} has queries in {said}, and {of} translates from {lang}")
    return frame


def check(output: str, overwrite: bool) -> None:
    """Checks that an output may be written, before the work."""
    path = Path(output)
    if output != "-" and (path.is_file() or path.is_dir() or not path.exists()):  # no pipe or device
        check_output(path, overwrite or path.is_dir())


def writer(output: str) -> AbstractContextManager[TextIO]:
    """Opens a file that appears when the block ends without an error, gzipped by its name; or standard output."""
    return nullcontext(sys.stdout) if output == "-" else text_writer(Path(output))
