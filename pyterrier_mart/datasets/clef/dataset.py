"""The CLEF ad-hoc test collections of 2000 to 2009, from a folder of the user's."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pyterrier_mart.archives import members, plain_name
from pyterrier_mart.datasets.base import MartDataset, choose_language
from pyterrier_mart.datasets.clef import summary
from pyterrier_mart.datasets.clef.catalogue import Catalogue, below, scan
from pyterrier_mart.datasets.clef.collections import COLLECTIONS, of_docno
from pyterrier_mart.datasets.clef.documents import read_documents
from pyterrier_mart.datasets.clef.settings import (
    DOCUMENT_LANGUAGES,
    QUERY_LANGUAGES,
    collections_of,
    topic_languages,
)  # fmt: skip
from pyterrier_mart.datasets.clef.topics import Topic
from pyterrier_mart.datasets.paths import home as home_of
from pyterrier_mart.datasets.store import DocumentStore, StoreUnion, build_store
from pyterrier_mart.datasets.translations import HumanTranslation
from pyterrier_mart.problems import Problems
from pyterrier_mart.text import LANGUAGES, language_code

__all__ = ["CLEF", "HOME_VARIABLE", "build"]

#: Environment variable with the folder of the collection.
HOME_VARIABLE = "CLEF_HOME"
_FIELDS = ("title", "description", "narrative")
_ALL = "all"


class CLEF(MartDataset):
    """CLEF ad hoc: topics in one language, newspaper articles in another, judgments of the articles.

    The documents are licensed, so no package may hold them. They, the topics and the judgments are read from a folder:
    ``pyterrier-mart clef setup DIR`` looks through it and remembers it, or the environment variable ``CLEF_HOME`` names
    it. How its files are called and packed does not matter. Topics in further languages, such as the Somali and Swahili
    translations, are files ``topics.so.tsv`` in the same folder, with a number and a title on each line.

    The settings are those of the MART paper. English documents are those of the Los Angeles Times; the pairs from
    French, Italian, German and Spanish to English share the topics that exist in all five languages. A topic of any
    pair has a relevant document in its collections.

    Example::

        data = pt.get_dataset('mart:clef/de-en')              # German topics, Los Angeles Times 1994
        data = pt.get_dataset('mart:clef/de-en/lat94+gh95')   # and Glasgow Herald 1995
        data.get_topics()                                     # title and description in German
        data.get_topics('en')                                 # the same topics in English
        data.get_topics('title')                              # titles only; also 'en/title+description+narrative'
        data.check()                                          # what differs from CLEF's and the paper's numbers

    .. cite:: clef
        :citation: Braschler and Peters. Cross-Language Evaluation Forum: Objectives, Results, Achievements. Information
            Retrieval 7, 2004.
        :link: https://doi.org/10.1023/B:INRT.0000009438.69013.fa
    """

    licence = (
        "Documents: by agreement with ELRA (evaluation packages of the CLEF Initiative). "
        "Topics and judgments: free for research."
    )
    citation = """\
@article{braschler-peters-2004-clef,
  title   = {Cross-Language Evaluation Forum: Objectives, Results, Achievements},
  author  = {Braschler, Martin and Peters, Carol},
  journal = {Information Retrieval},
  volume  = {7},
  pages   = {7--31},
  year    = {2004},
  doi     = {10.1023/B:INRT.0000009438.69013.fa},
}
"""
    naming = (
        "CLEF datasets are called clef/{queries}-{documents} or clef/{language}, with /{collection}+{collection} after "
        f"it for other collections than the usual ones; documents are in {', '.join(DOCUMENT_LANGUAGES)}."
    )
    _url = "https://catalogue.elra.info/"

    def __init__(
        self,
        query_language: str,
        document_language: str | None = None,
        *,
        collections: Sequence[str] | None = None,
        topic_fields: Sequence[str] = ("title", "description"),
        home: str | os.PathLike[str] | None = None,
    ):
        """Creates the dataset. The folder is not looked at before something is asked for.

        Args:
            query_language: Code of the topics' language.
            document_language: Code of the documents' language, or None for that of the topics.
            collections: Key or keys of the documents' collections, out of ``clef.COLLECTIONS``. By default those that
                the paper uses, or in another language all of it.
            topic_fields: What queries are made of, out of title, description and narrative.
            home: The folder, in place of the one that was set up.

        Raises:
            ValueError: If a language, collection or field is not one of those.
        """
        query = language_code(query_language)
        document = query if document_language is None else language_code(document_language)
        document = choose_language(document, DOCUMENT_LANGUAGES)
        usual = collections_of(document)
        self.collections = usual if collections is None else _checked(collections, document)
        self.topic_fields = _checked_fields(topic_fields)
        self._home = Path(home).expanduser() if home is not None else None
        self._catalogue: Catalogue | None = None
        self._documents: StoreUnion | None = None
        name = f"clef/{query}" + f"-{document}" * (document != query)
        name += f"/{'+'.join(self.collections)}" * (self.collections != usual)
        super().__init__(name, (query, document), ("text", "title"))

    @property
    def corpus_name(self) -> str:
        """What the documents are called, whichever language the topics are in: one index serves all of them."""
        usual = self.collections == collections_of(self.languages[1])
        return f"mart:clef/{self.languages[1]}" + f"/{'+'.join(self.collections)}" * (not usual)

    @classmethod
    def from_name(cls, name: str) -> CLEF:
        """Returns the dataset that a name stands for.

        Raises:
            ValueError: If there is no such dataset.
        """
        match = re.fullmatch(r"clef/([A-Za-z]+)(?:-([A-Za-z]+))?(?:/([\w+]+))?", name)
        if match is None:
            raise ValueError(cls.naming)
        return cls(match[1], match[2], collections=match[3].split("+") if match[3] else None)

    @classmethod
    def of(cls, catalogue: Catalogue, query_language: str, document_language: str) -> CLEF:
        """Returns the dataset of a folder that was looked through already.

        Args:
            catalogue: What the folder holds.
            query_language: Code of the topics' language.
            document_language: Code of the documents' language.
        """
        dataset = cls(query_language, document_language, home=catalogue.home)
        dataset._catalogue = catalogue
        return dataset

    @staticmethod
    def list_names() -> Iterator[str]:
        """Gives the names of the datasets with the usual collections."""
        for query in QUERY_LANGUAGES:
            for document in DOCUMENT_LANGUAGES:
                yield f"clef/{query}-{document}" if document != query else f"clef/{query}"

    def catalogue(self) -> Catalogue:
        """Returns what the folder holds. It is looked through at the first call, and later only if it changed.

        Raises:
            FileNotFoundError: If the folder is not known or not there.
            ValueError: If nothing in it belongs to CLEF.
        """
        if self._catalogue is None:
            self._catalogue = scan(self._home or home_of("clef", HOME_VARIABLE), verbose=True)
        return self._catalogue

    # ----------------------------------------------------------------------------------------- topics and judgments

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the topics, as ``qid`` and ``query``.

        Args:
            variant: The code of a language to ask the same topics in, as humans translated them; those that do not
                exist in it are left out. Or fields to make queries of, joined by ``+``. ``all``: topics without a
                relevant document too. Several of these with a ``/`` between: ``en/title``.

        Raises:
            FileNotFoundError: If the folder, or topics in a language, are not there.
            ValueError: If the variant is not one of those.
        """
        wanted = self._variant(variant)
        known = self._topics_in(wanted.language)
        kept = {number: known[number] for number in self._numbers(everything=wanted.everything) if number in known}
        if kept and not any(_query(topic, wanted.fields) for topic in kept.values()):
            raise ValueError(
                f"the topics in {LANGUAGES.get(wanted.language, wanted.language)} in {self.catalogue().home} have no "
                f"{' and no '.join(wanted.fields)}"
            )
        return pd.DataFrame(
            {
                "qid": pd.Series(list(kept), dtype="str"),
                "query": pd.Series([_query(topic, wanted.fields) for topic in kept.values()], dtype="str"),
            }
        )

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the judgments of the topics and collections, as ``qid``, ``docno`` and ``label``.

        Args:
            variant: As in :meth:`get_topics`; only ``all`` makes a difference.

        Raises:
            FileNotFoundError: If the folder, or judgments of the collections, are not there.
            ValueError: If the variant is not one of those.
        """
        labels = self._some_judgments()
        rows = [
            (number, docno, label)
            for number in self._numbers(everything=self._variant(variant).everything)
            for docno, label in labels.get(number, {}).items()
        ]
        frame = pd.DataFrame(rows, columns=["qid", "docno", "label"])
        return frame.astype({"qid": "str", "docno": "str", "label": "int64"})

    def topic_languages(self) -> tuple[str, ...]:
        """Returns the languages that a topic must exist in.

        Those of the topics and documents, and for the pairs that share their topics the languages of all of them, out
        of those that the folder has any topics in.
        """
        topics = self.catalogue().topics
        asked = topic_languages(*self.languages)
        return tuple(code for code in asked if code in topics or code in self.languages)

    def human_translation(self) -> HumanTranslation:
        """Returns a transformer that asks each topic in the language of the documents."""
        language = self.languages[1]
        variant = f"{_ALL}/{language}/{'+'.join(self.topic_fields)}"
        return HumanTranslation(self, variant, topic=f"a topic of {self!r} that exists in {LANGUAGES[language]}")

    def _topics_in(self, language: str) -> Mapping[str, Topic]:
        topics = self.catalogue().topics
        if language not in topics:
            raise FileNotFoundError(
                f"there are no topics in {LANGUAGES.get(language, language)} in {self.catalogue().home}; "
                f"there are topics in {', '.join(topics) or 'no language'}. "
                f"Topics of your own are a file topics.{language}.tsv with a number, a tab and a title on each line"
            )
        return topics[language]

    def judgments(self) -> Mapping[str, Mapping[str, int]]:
        """Returns the labels of the collections' documents by topic, of all topics."""
        merged: dict[str, dict[str, int]] = {}
        for key in self.collections:
            for number, labels in self.catalogue().labels(key).items():
                merged.setdefault(number, {}).update(labels)
        return merged

    def _some_judgments(self) -> Mapping[str, Mapping[str, int]]:
        judgments = self.judgments()
        if not judgments:
            raise FileNotFoundError(
                f"there are no judgments of {_listed(self.collections)} in {self.catalogue().home}; CLEF's qrels files "
                "are part of the same packages, and can also be downloaded from DIRECT"
            )
        return judgments

    def _numbers(self, *, everything: bool) -> list[str]:
        """The numbers of the topics, in order."""
        shared = set.intersection(*(set(self._topics_in(language)) for language in self.topic_languages()))
        if not everything:
            shared &= {number for number, labels in self._some_judgments().items() if max(labels.values()) > 0}
        return sorted(shared, key=int)

    def _variant(self, variant: str | None) -> _Variant:
        language, fields, everything = self.languages[0], self.topic_fields, False
        if not isinstance(variant, str | None):
            raise ValueError(f"variant={variant!r}: expected a string or None")
        for part in variant.split("/") if variant is not None else ():
            if part == _ALL:
                everything = True
            elif set(part.split("+")) <= set(_FIELDS):
                fields = tuple(part.split("+"))
            else:
                try:
                    language = language_code(part)
                except ValueError:
                    raise ValueError(
                        f"{self!r} has no variant {variant!r}: expected the code of a language, fields such as "
                        f"title+description ({', '.join(_FIELDS)}), {_ALL!r}, or several of these with a / between"
                    ) from None
        return _Variant(language, fields, everything)

    # ------------------------------------------------------------------------------------------------------ documents

    def documents(self) -> StoreUnion:
        """Returns the documents by number. They are put into stores at the first call, which can be interrupted.

        Raises:
            FileNotFoundError: If a collection is not in the folder.
        """
        if self._documents is None:
            catalogue = self.catalogue()
            missing = [key for key in self.collections if not catalogue.documents.get(key)]
            if missing:
                raise FileNotFoundError(_missing(missing, catalogue.home))
            self._documents = StoreUnion([build(catalogue, key, verbose=True) for key in self.collections])
        return self._documents

    # ------------------------------------------------------------------------------------------------------- numbers

    def counts(self) -> pd.DataFrame:
        """Returns what was found beside what CLEF and the paper state: ``what``, ``name``, ``found``, ``expected``."""
        return summary.counts(self)

    def check(self) -> list[str]:
        """Returns what differs from CLEF and the paper, one sentence each: documents, topics, languages, judgments."""
        return summary.check(self)

    def __getstate__(self) -> dict[str, Any]:
        # Another process finds what was read in the caches.
        return {**super().__getstate__(), "_catalogue": None, "_documents": None}


class _Variant(NamedTuple):
    language: str
    fields: tuple[str, ...]
    everything: bool


def build(
    catalogue: Catalogue, collection: str, *, verbose: bool = False, problems: Problems | None = None
) -> DocumentStore:
    """Returns the store of a collection. It is built if there is none, or if the files that it is of have changed.

    Args:
        catalogue: What the folder holds.
        collection: Key of the collection.
        verbose: Whether to show a progress bar.
        problems: Where damage is reported.

    Raises:
        FileNotFoundError: If a file is gone since the folder was looked through.
        ValueError: If a file has changed since then.
    """
    inside = catalogue.documents[collection]
    for file in inside:
        catalogue.check_unchanged(file)
    problems = problems if problems is not None else Problems()
    members = hashlib.sha256(json.dumps(inside).encode()).hexdigest()  # what a scan finds may change, of the same files
    return build_store(
        catalogue.store(collection),
        [catalogue.home / file for file in inside],
        partial(_read, catalogue, collection, problems),
        fields=("text", "title"),
        meta={"collection": collection, "language": COLLECTIONS[collection].language, "members": members},
        problems=problems,
        verbose=verbose,
    )


def _read(
    catalogue: Catalogue, collection: str, problems: Problems, path: Path, progress: Callable[[int], None]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields the documents of a collection that a file holds."""
    home = catalogue.home
    file = path.relative_to(home).as_posix()
    names = catalogue.documents[collection][file]
    # Archives on the way to a document have to be opened, and are asked for without their endings (.gz).
    opened = set()
    for name in names:
        outer = str(path)
        for part in ("", *name.split("/")[len(path.relative_to(home).parts) :]):
            outer = f"{outer}/{part}" if part else outer
            opened |= {outer, plain_name(outer)}
    # Damage was reported when the folder was looked through.
    for member in members(path, wanted=opened.__contains__, progress=progress, damaged=lambda _: None):
        name = below(home, member.name)
        if name in names:
            for docno, title, text in read_documents(member.stream, name, problems):
                if of_docno(docno) == collection:
                    yield docno, {"text": f"{title}\n{text}" if title else text, "title": title}
    catalogue.check_unchanged(file)  # else the store would count as complete


def _query(topic: Topic, fields: Sequence[str]) -> str:
    return " ".join(text for field in fields if (text := getattr(topic, field)))


def _checked(collections: Sequence[str], language: str) -> tuple[str, ...]:
    chosen = [collections] if isinstance(collections, str) else list(collections)
    of_language = [key for key, known in COLLECTIONS.items() if known.language == language]
    unknown = [str(key) for key in chosen if key not in of_language]
    if unknown or not chosen:
        raise ValueError(
            f"There is no collection {', '.join(unknown) or 'without a name'} in {LANGUAGES[language]}; "
            f"there are {', '.join(of_language)}."
        )
    return tuple(key for key in of_language if key in chosen)


def _checked_fields(fields: Sequence[str]) -> tuple[str, ...]:
    chosen = (fields,) if isinstance(fields, str) else tuple(fields)
    if not chosen or not set(chosen) <= set(_FIELDS):
        raise ValueError(f"topic_fields={chosen!r}: expected some of {', '.join(_FIELDS)}")
    return chosen


def _listed(collections: Sequence[str]) -> str:
    return ", ".join(f"{COLLECTIONS[key].name} ({key})" for key in collections)


def _missing(collections: Sequence[str], home: Path) -> str:
    languages = sorted({LANGUAGES.get(code, code) for code in (COLLECTIONS[key].language for key in collections)})
    packages = dict.fromkeys(COLLECTIONS[key].package for key in collections)
    return (
        f"there are no documents of {_listed(collections)} in {home}. These {' and '.join(languages)} texts are "
        f"licensed by ELRA (https://catalogue.elra.info): {'; '.join(packages)}. Put the files into this folder as "
        "they come; topics and judgments can be used without them"
    )
