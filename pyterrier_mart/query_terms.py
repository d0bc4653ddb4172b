"""The terms of queries: what the cells of ``query_toks`` hold, and what Terrier's query expansion writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from pyterrier_mart.frames import texts_of, warn
from pyterrier_mart.text import Analyzer

__all__ = ["QueryTerms", "expanded_terms", "index_terms", "queries_of", "specs_of", "terms_of"]

#: How a query begins that ``pt.rewrite.RM3``, ``Bo1QueryExpansion`` and their like wrote.
_EXPANDED = "applypipeline:off"
_OPERATORS = re.compile(r"#(combine|base64|band|syn|uw\d+|\d+)[:(]|\)\^\d")
_WEIGHTED = re.compile(r"(.+)\^(\d*\.?\d+)")


class QueryTerms(dict[str, float]):
    """A query's terms and their weights (a cell of ``query_toks``), which analyzer spelled them, and of which text.

    This travels in the cells, since pandas loses a frame's ``attrs`` when frames are merged. Unlike other dictionaries
    they are hashable, as PyTerrier's aggregations of passages look for queries that are there twice.

    Attributes:
        spec: The :attr:`Analyzer.spec` of the terms; ``None`` where it is not known or they were stemmed.
        query: The text that they were made of; ``None`` where it is not known.
    """

    spec: dict[str, Any] | None = None
    query: str | None = None

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))


def specs_of(cells: Iterable[object]) -> list[dict[str, Any]]:
    """Returns the different specifications of analyzers that spelled the terms in cells of ``query_toks``."""
    found: list[dict[str, Any]] = []
    for cell in cells:
        spec = getattr(cell, "spec", None)
        if spec is not None and spec not in found:
            found.append(spec)
    return found


def terms_of(cells: Iterable[object]) -> list[QueryTerms]:
    """Returns the terms in cells of ``query_toks``: dictionaries, or the pairs that Parquet makes of them.

    Weights of ``None`` are left out: Parquet gives them to each row for the terms of the others. Missing cells have no
    terms, with a warning that counts them.

    Raises:
        ValueError: If a cell holds something else, or a weight is not a finite number of at least 0.
    """
    out, missing = [], 0
    for cell in cells:
        if isinstance(cell, QueryTerms):
            terms = cell
        elif cell is None or cell != cell:
            terms = QueryTerms()
            missing += 1
        else:
            try:
                pairs = cell.items() if isinstance(cell, Mapping) else [(term, weight) for term, weight in cell]  # type: ignore[attr-defined]
                terms = QueryTerms((term, weight) for term, weight in pairs if weight is not None)
            except (TypeError, ValueError):
                raise ValueError(f"query_toks must hold dictionaries from term to weight, not {cell!r}") from None
        try:
            right = all(0 <= weight < float("inf") for weight in terms.values())
        except TypeError:
            right = False
        if not right:
            raise ValueError(f"the weights in query_toks must be numbers, finite and not negative, not {dict(terms)!r}")
        out.append(terms)
    if missing:
        warn(f"{missing} of {len(out)} values in the column 'query_toks' are missing; their queries have no terms")
    return out


def queries_of(rows: pd.DataFrame, *, expanded: bool = False) -> list[str]:
    """Returns the column ``query``, with a warning that counts what is in Terrier's query language and no text.

    Args:
        rows: With ``query``.
        expanded: Whether the caller can read what :func:`expanded_terms` reads.
    """
    queries = texts_of(rows, "query")
    if found := sum(
        bool(_OPERATORS.search(query)) or (query.startswith(_EXPANDED) and not expanded) for query in queries
    ):
        warn(
            f"{found} of {len(queries)} values in the column 'query' are in Terrier's query language and read as text; "
            "pt.rewrite.reset() gives back what was asked"
        )
    return queries


def expanded_terms(query: object) -> QueryTerms | None:
    """Returns the weighted terms that Terrier's query expansion wrote into a query; ``None`` for any other query."""
    if not isinstance(query, str) or not query.startswith(_EXPANDED):
        return None
    terms = QueryTerms()
    for token in query.split()[1:]:
        found = _WEIGHTED.fullmatch(token)
        term, weight = found.groups() if found else (token, "1")
        terms[term] = terms.get(term, 0.0) + float(weight)
    return terms


def index_terms(rows: pd.DataFrame, analyzer: Analyzer, index: str) -> list[dict[str, float]]:
    """Returns the weighted terms of each query as an index spells them.

    Args:
        rows: With ``query``, or ``query_toks`` as :func:`terms_of` returns them, or both.
        analyzer: The analyzer that made the index.
        index: What the index is called, for the message.

    Raises:
        ValueError: If ``query_toks`` were made by another analyzer.
    """
    if "query_toks" not in rows.columns:
        given = ((query, expanded_terms(query)) for query in queries_of(rows, expanded=True))
        return [
            dict[str, float](analyzer.counts(query)) if terms is None else spelled(terms, analyzer)
            for query, terms in given
        ]
    cells = rows["query_toks"].tolist()
    others = [spec for spec in specs_of(cells) if spec != analyzer.spec]
    if others:  # such words would silently find nothing
        raise ValueError(
            f"the words in query_toks were made by the analyzer {others[0]}, but {index} by {analyzer.spec}; use a "
            "table whose target language and analyzer are those of the index"
        )
    if "query" in rows.columns:
        cells = up_to_date(cells, rows["query"])
    return [spelled(terms, analyzer) for terms in cells]


def spelled(terms: QueryTerms, analyzer: Analyzer) -> QueryTerms:
    """Returns terms in an analyzer's spelling, of which engines would know some others, each its own."""
    if terms.spec is not None:
        return terms
    out = QueryTerms()
    for term, weight in terms.items():
        term = analyzer.normalize(term)
        out[term] = out.get(term, 0.0) + weight
    return out


def up_to_date(cells: Iterable[QueryTerms], queries: Iterable[object]) -> list[QueryTerms]:
    """Returns the terms of queries, some of which were rewritten after cells of ``query_toks`` were made.

    If Terrier's query expansion did it, which does not read ``query_toks``, these and what it wrote have half of the
    weight each. After any other rewriting the cells stay, with a warning that counts them.
    """
    out, rewritten = [], 0
    for terms, query in zip(cells, queries, strict=True):
        if isinstance(query, str) and terms.query != query:
            if (expansion := expanded_terms(query)) is not None:
                terms = mixed(terms, expansion) if expansion else terms
            elif terms.query is not None:
                rewritten += 1
        out.append(terms)
    if rewritten:
        warn(
            f"{rewritten} of {len(out)} queries were rewritten after their query_toks were made; query_toks are "
            "searched, unless pt.apply.query_toks(drop=True) comes before"
        )
    return out


def mixed(one: QueryTerms, other: QueryTerms) -> QueryTerms:
    """Returns the terms of two queries, each of which has half of the weight."""
    out = QueryTerms()
    for terms in (one, other):
        total = 2 * sum(terms.values())
        for term, weight in terms.items():
            if weight:
                out[term] = out.get(term, 0.0) + weight / total
    return out
