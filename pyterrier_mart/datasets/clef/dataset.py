"""The CLEF ad-hoc test collections of 2000 to 2009, from a folder of the user's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pyterrier_mart.checks import check_choice
from pyterrier_mart.datasets.base import MartDataset, choose_language
from pyterrier_mart.datasets.clef import settings
from pyterrier_mart.datasets.clef.campaigns import listed
from pyterrier_mart.datasets.clef.catalogue import Catalogue, scan
from pyterrier_mart.datasets.clef.collections import COLLECTIONS
from pyterrier_mart.datasets.clef.stores import FIELDS, build, differences, unplaced
from pyterrier_mart.datasets.clef.topics import Topic
from pyterrier_mart.datasets.paths import home as home_of
from pyterrier_mart.datasets.translations import HumanTranslation
from pyterrier_mart.store import DocumentStore
from pyterrier_mart.text import LANGUAGES, language_code

__all__ = ["CLEF", "HOME_VARIABLE"]

#: Environment variable with the folder of the collection.
HOME_VARIABLE = "CLEF_HOME"
_TOPIC_FIELDS = ("title", "description", "narrative")
_ALL = "all"
_FILES_SHOWN = 3


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
        f"it for other collections than the usual ones; documents are in {', '.join(settings.DOCUMENT_LANGUAGES)}."
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
        document = choose_language(document, settings.DOCUMENT_LANGUAGES)
        usual = settings.collections_of(document)
        known = [key for key, collection in COLLECTIONS.items() if collection.language == document]
        chosen = usual if collections is None else (collections,) if isinstance(collections, str) else collections
        if not chosen or not set(chosen) <= set(known):
            what = f"some of {', '.join(known)} ({LANGUAGES[document]})"
            raise ValueError(f"collections must be {what}, not {', '.join(chosen)}")
        self.collections = tuple(key for key in known if key in chosen)
        self.topic_fields = (topic_fields,) if isinstance(topic_fields, str) else tuple(topic_fields)
        for field in self.topic_fields:
            check_choice("topic_fields", field, _TOPIC_FIELDS)
        self._home = Path(home).expanduser().absolute() if home is not None else None
        self._catalogue: Catalogue | None = None
        self._documents: DocumentStore | None = None
        suffix = f"/{'+'.join(self.collections)}" * (self.collections != usual)
        name = f"clef/{query}" + f"-{document}" * (document != query) + suffix
        super().__init__(name, (query, document), FIELDS, corpus_name=f"mart:clef/{document}{suffix}")

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
        for query in settings.QUERY_LANGUAGES:
            for document in settings.DOCUMENT_LANGUAGES:
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
            FileNotFoundError: If the folder, topics in a language, or judgments of these topics are not there.
            ValueError: If the variant is not one of those.
        """
        language, fields, everything = self._variant(variant)
        known = self._topics_in(language)
        topics = [known[qid] for qid in self._qids(everything) if qid in known]
        queries = [" ".join(text for field in fields if (text := getattr(topic, field))) for topic in topics]
        if queries and not any(queries):
            where = f"{LANGUAGES.get(language, language)} in {self.catalogue().home}"
            raise ValueError(f"the topics in {where} have no {' and no '.join(fields)}")
        return pd.DataFrame({"qid": [topic.qid for topic in topics], "query": queries}, dtype="str")

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the judgments of the topics and collections, as ``qid``, ``docno`` and ``label``.

        Args:
            variant: As in :meth:`get_topics`; only ``all`` makes a difference.

        Raises:
            FileNotFoundError: If the folder, or judgments of the collections and topics, are not there.
            ValueError: If the variant is not one of those.
        """
        labels = self._some_judgments()
        rows = [
            (qid, docno, label)
            for qid in self._qids(self._variant(variant)[2])
            for docno, label in labels.get(qid, {}).items()
        ]
        frame = pd.DataFrame(rows, columns=["qid", "docno", "label"])
        return frame.astype({"qid": "str", "docno": "str", "label": "int64"})

    def topic_languages(self) -> tuple[str, ...]:
        """Returns the languages that a topic must exist in.

        Those of the topics and documents, and for the pairs that share their topics the languages of all of them, out
        of those that the folder has any topics in.
        """
        topics = self.catalogue().topics
        asked = settings.topic_languages(*self.languages)
        return tuple(code for code in asked if code in topics or code in self.languages)

    def human_translation(self) -> HumanTranslation:
        """Returns a transformer that asks each topic in the language of the documents."""
        return HumanTranslation(self, f"{_ALL}/{self.languages[1]}/{'+'.join(self.topic_fields)}")

    def judgments(self) -> Mapping[str, Mapping[str, int]]:
        """Returns the labels of the collections' documents by qid and docno, of all topics."""
        merged: dict[str, dict[str, int]] = {}
        for key in self.collections:
            for qid, labels in self.catalogue().labels(key).items():
                merged.setdefault(qid, {}).update(labels)
        return merged

    def _topics_in(self, language: str) -> Mapping[str, Topic]:
        topics = self.catalogue().topics
        if language not in topics:
            raise FileNotFoundError(
                f"there are no topics in {LANGUAGES.get(language, language)} in {self.catalogue().home}, but in "
                f"{', '.join(topics) or 'no language'}. Your own are a file topics.{language}.tsv: number, tab, title"
            )
        return topics[language]

    def _some_judgments(self) -> Mapping[str, Mapping[str, int]]:
        judgments = self.judgments()
        if not judgments:
            raise FileNotFoundError(
                f"there are no judgments of {names_of(self.collections)} in {self.catalogue().home}; CLEF's qrels "
                "files are part of the same packages, and can also be downloaded from DIRECT"
            )
        return judgments

    def _qids(self, everything: bool = False) -> list[str]:
        shared = set.intersection(*(set(self._topics_in(language)) for language in self.topic_languages()))
        if everything:
            return sorted(shared, key=int)
        judged = self._some_judgments()
        found = shared & {qid for qid, labels in judged.items() if max(labels.values()) > 0}
        if shared and not found:
            raise FileNotFoundError(
                f"no topic of mart:{self.name} has a relevant document: there are {listed(shared)} in "
                f"{self.catalogue().home}, but judgments of {listed(judged)}"
            )
        return sorted(found, key=int)

    def _variant(self, variant: str | None) -> tuple[str, tuple[str, ...], bool]:
        """Returns the language, the fields, and whether topics without a relevant document are wanted too."""
        language, fields, everything = self.languages[0], self.topic_fields, False
        for part in variant.split("/") if variant is not None else ():
            if part == _ALL:
                everything = True
            elif set(part.split("+")) <= set(_TOPIC_FIELDS):
                fields = tuple(part.split("+"))
            else:
                try:
                    language = language_code(part)
                except ValueError:
                    raise ValueError(
                        f"{self!r} has no variant {variant!r}: expected the code of a language, fields such as "
                        f"title+description ({', '.join(_TOPIC_FIELDS)}), {_ALL!r}, or several with a / between"
                    ) from None
        return language, fields, everything

    # ------------------------------------------------------------------------------------------------------ documents

    def documents(self) -> DocumentStore:
        """Returns the documents by docno. They are put into stores at the first call.

        Raises:
            FileNotFoundError: If a collection is not in the folder.
        """
        if self._documents is None:
            catalogue = self.catalogue()
            if missing := [key for key in self.collections if not catalogue.documents.get(key)]:
                known = COLLECTIONS[missing[0]]
                raise FileNotFoundError(
                    f"there are no documents of {names_of(missing)} in {catalogue.home}. These "
                    f"{LANGUAGES[self.languages[1]]} texts are licensed by {known.licensor}: {known.package}"
                )
            paths = [path for key in self.collections for path in build(catalogue, key, verbose=True).paths]
            self._documents = DocumentStore(*paths)
        return self._documents

    # ------------------------------------------------------------------------------------------- what is there of CLEF

    def check(self) -> list[str]:
        """Returns what differs from CLEF and the paper, one sentence each: documents, topics, languages, judgments."""
        catalogue, labels = self.catalogue(), self.judgments()
        found = [sentence for key in self.collections for sentence in differences(catalogue, key)]
        qids, stated = self.found_qids(), self._stated()
        if stated not in (None, len(qids)):
            found.append(f"{'-'.join(self.languages)} has {len(qids)} topics, but {stated} in the paper")
        for language in sorted(set(settings.topic_languages(*self.languages)) - set(catalogue.topics)):
            found.append(f"no topics in {LANGUAGES[language]}")
        known = catalogue.topics.get(self.languages[0], {})
        for field in self.topic_fields:
            if lacking := [qid for qid in qids if qid in known and not getattr(known[qid], field)]:
                found.append(f"{listed(lacking)} without a {field} in {self.languages[0]}")
        relevant = {qid for qid, judged in labels.items() if max(judged.values()) > 0}
        asked = [language for language in self.topic_languages() if language in catalogue.topics]
        for language in asked:
            if missing := relevant - set(catalogue.topics[language]):
                found.append(f"{listed(missing)} with relevant documents, not in {language}")
        shared = set.intersection(*(set(catalogue.topics[language]) for language in asked)) if asked else set()
        if labels and shared and not shared & set(labels):
            found.append(f"none of {listed(shared)} is judged in these collections, but {listed(labels)}")
        elif unjudged := shared - set(labels):
            found.append(f"{listed(unjudged)} without judgments in these collections")
        if without := (shared & set(labels)) - relevant:
            found.append(f"{listed(without)} judged, without a relevant document in these collections")
        for sentence, files in unplaced(catalogue).items():
            found.append(f"{sentence}: {'; '.join(files[:_FILES_SHOWN])}{'; ...' * (len(files) > _FILES_SHOWN)}")
        if problems := len(catalogue.problems):
            found.append(f"{problems:,} problems in the files, which 'pyterrier-mart clef info' lists")
        return found

    def found_qids(self) -> list[str]:
        """Returns the qids of the topics; none as long as topics in a language, or judgments, are missing."""
        try:
            return self._qids()
        except FileNotFoundError:
            return []

    def _stated(self) -> int | None:
        """The paper's number of topics, if the documents are those of the paper."""
        return settings.PAPER_TOPICS.get(self.languages) if self.corpus_name.count("/") == 1 else None

    def __getstate__(self) -> dict[str, Any]:
        # Another process finds what was read in the caches.
        return {**super().__getstate__(), "_catalogue": None, "_documents": None}


def names_of(collections: Iterable[str]) -> str:
    """Returns names and keys of collections, for messages."""
    return ", ".join(f"{COLLECTIONS[key].name} ({key})" for key in collections)
