"""Which language the topics of a dataset are in, and which its documents: from names and metadata, never a download."""

from __future__ import annotations

import difflib
import re
from typing import Any, NamedTuple

import pyterrier as pt

from pyterrier_mart.text import LANGUAGES, language_of

__all__ = ["Languages", "languages_of"]


class Languages(NamedTuple):
    """The languages of a dataset, as ISO 639-1 codes.

    Attributes:
        query: Language of the topics.
        document: Language of the documents.
    """

    query: str
    document: str


#: Collections whose topics are English, of which ir_datasets says nothing because it holds translations beside them;
#: and those of which a set of documents by itself has no topics, but is meant for English ones.
_ENGLISH_TOPICS = frozenset({"csl", "hc4", "neuclir", "neumarco", "wikiclir"})
#: Collections whose topics are in the language of the documents, likewise.
_SAME_TOPICS = frozenset({"miracl", "mmarco", "mr-tydi"})
#: Codes of ir_datasets that are not ISO 639-1: mMARCO's Dutch and Wikipedia in simple English.
_OTHER_CODES = {"dt": "nl", "simple": "en"}

_CLIRMATRIX = re.compile(r"clirmatrix/(\w+)(?:/(?:multi8|bi139-base|bi139-full)/(\w+)/\w+)?")
_TRANSLATED_FIELD = re.compile(r"(?:([a-z]{2})_)?[hm]t_")
_FIELD_ENDING = re.compile(r"_([a-z]{2})\d?$")


def languages_of(dataset: Any, topics: str | None = None) -> Languages:
    """Returns the languages of a dataset's topics and documents.

    Works offline for ``mart:`` datasets and for everything that ir_datasets lists. In its multilingual collections,
    fields such as ``ht_title`` (translated by humans) and ``mt_title`` (by machine) are in the language of the
    documents, ``title`` and ``description`` are English.

    Example::

        >>> languages_of("irds:neuclir/1/zh/trec-2022")
        Languages(query='en', document='zh')
        >>> languages_of("irds:neuclir/1/zh/trec-2022", "ht_title")
        Languages(query='zh', document='zh')
        >>> languages_of("mart:xquad-r/de-en")
        Languages(query='de', document='en')

    Args:
        dataset: A PyTerrier dataset or its name, or a dataset of ir_datasets or its id.
        topics: The topics that are used, as given to ``get_topics``: a field, or a variant of a ``mart:`` dataset.
            ``None``: the default ones.

    Raises:
        ValueError: If there is no such dataset, or one of the languages is not known.
    """
    name, found = resolve(dataset)
    if found is None:
        query, document = irds_languages(name, topics)
        name = f"irds:{name}"
    else:
        query, document = found.get_topics_lang(), found.get_corpus_lang()
        if name.startswith("mart:"):
            for part in (topics or "").split("/"):
                query = document if part == "native" else part if language_of(part) in LANGUAGES else query
    codes = {"topics": language_of(query), "documents": language_of(document)}
    if missing := " and ".join(side for side, code in codes.items() if code is None):
        known = "".join(f"; its {side} are in {code!r}" for side, code in codes.items() if code)
        raise ValueError(f"the language of the {missing} of {name} is not known (none, or several){known}")
    return Languages(*(_OTHER_CODES.get(code, code) for code in codes.values() if code))


def resolve(dataset: Any) -> tuple[str, Any]:
    """Returns a dataset's name and, unless ir_datasets has it under this name, the dataset."""
    if not isinstance(dataset, str):
        if hasattr(dataset, "_irds_id"):
            return dataset._irds_id, None
        if hasattr(dataset, "dataset_id"):
            return dataset.dataset_id(), None
        return f"mart:{dataset.name}" if hasattr(dataset, "languages") else repr(dataset), dataset
    if dataset.startswith("irds:"):
        return dataset.removeprefix("irds:"), None
    if ":" not in dataset and is_irds(dataset):
        return dataset, None
    from pyterrier_mart.datasets import MartDatasetProvider

    try:
        if dataset.startswith("mart:"):  # says more about what is wrong with a name than PyTerrier does
            return dataset, MartDatasetProvider().get_dataset(dataset.removeprefix("mart:"))
        return dataset, pt.get_dataset(dataset)
    except (KeyError, ValueError) as err:
        raise ValueError(f"cannot tell languages: {err.args[0] if err.args else err}") from err


def is_irds(irds_id: str) -> bool:
    """Returns whether ir_datasets has a dataset, without loading it: some names alone make it download an index."""
    import ir_datasets

    return irds_id in set(ir_datasets.registry) or _CLIRMATRIX.fullmatch(irds_id) is not None


def irds_languages(irds_id: str, topics: str | None) -> tuple[str | None, str | None]:
    """Returns the languages of topics and documents that ir_datasets tells, as its codes."""
    import ir_datasets

    if match := _CLIRMATRIX.fullmatch(irds_id):
        return match[2], match[1]
    if not is_irds(irds_id):
        close = difflib.get_close_matches(irds_id, list(ir_datasets.registry))
        raise ValueError(f"ir_datasets has no {irds_id!r}" + (f"; did you mean {' or '.join(close)}?" if close else ""))
    dataset = ir_datasets.load(irds_id)
    document = dataset.docs_lang() if dataset.has_docs() else None
    query = dataset.queries_lang() if dataset.has_queries() else None
    fields = dataset.queries_cls()._fields[1:] if dataset.has_queries() else ()
    collection = irds_id.partition("/")[0]
    if query is None:
        query = "en" if collection in _ENGLISH_TOPICS else document if collection in _SAME_TOPICS else None
    if topics is not None:
        if topics not in fields:
            raise ValueError(f"irds:{irds_id} has no topics {topics!r}; there are {', '.join(fields) or 'none'}")
        query = field_language(topics, document) or query
    elif query is None and (written := [field for field in fields if field_language(field, document)]):
        raise ValueError(f"irds:{irds_id} has topics in several languages: say which, as topics={written[0]!r}")
    return query, document


def field_language(field: str, document: str | None) -> str | None:
    """Returns the language that the name of a topic field tells, as in ``ht_title`` or ``title_zh``."""
    if match := _TRANSLATED_FIELD.match(field):
        return match[1] or document
    match = _FIELD_ENDING.search(field)
    return match[1] if match and match[1] in LANGUAGES else None
