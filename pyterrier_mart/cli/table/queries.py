"""The queries that a table is measured with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyterrier as pt
import typer

from pyterrier_mart.cli.rerank import read_topics

__all__ = ["Topics", "Variant", "read_queries"]

Topics = Annotated[
    str | None,
    typer.Option(help="Queries: a dataset such as mart:xquad-r/de-en, or a file of lines qid<TAB>query."),
]
Variant = Annotated[str | None, typer.Option(help="Which topics of the dataset, such as title.")]


def read_queries(topics: str, variant: str | None, lang: str) -> list[str]:
    """Returns the queries of a dataset or file.

    Args:
        topics: A dataset, or a file.
        variant: Which topics of the dataset.
        lang: The language that they must be in, as far as a dataset says which they are in.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If there is no such dataset, it has no queries or those of another language, or the file is
            malformed.
    """
    if Path(topics).exists():
        if variant is not None:
            raise ValueError(f"--variant is for datasets, and --topics {topics} is a file")
        return list(read_topics(topics).values())
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
