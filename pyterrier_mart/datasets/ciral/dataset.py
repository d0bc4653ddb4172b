"""CIRAL as a PyTerrier dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from pyterrier_mart.datasets.base import MartDataset, choose_language
from pyterrier_mart.datasets.ciral.passages import FIELDS, open_store
from pyterrier_mart.datasets.ciral.published import JUDGMENTS, LANGUAGES, SPLITS, TESTS, judgments, queries
from pyterrier_mart.datasets.translations import HumanTranslation
from pyterrier_mart.store import DocumentStore
from pyterrier_mart.text import language_of

__all__ = ["CIRAL"]

_NATIVE = "native"


class CIRAL(MartDataset):
    """CIRAL v1.0: English questions, passages of news in Hausa, Somali, Swahili or Yoruba.

    Topics and judgments come with the package. The passages do not: name the folder with their files in ``CIRAL_HOME``
    or with ``pyterrier-mart ciral setup DIR``. Everything but the passages works without them.

    The sets of topics are ``test-a`` (the default), ``test-b`` and ``dev``. Those of the tests exist in the passages'
    language too, which is what :meth:`human_translation` asks; those of ``dev`` are published in that alone.

    Example::

        data = pt.get_dataset('mart:ciral/so')
        data.get_topics('test-b')                            # English
        data.get_topics('test-b/native')                     # the same qids, asked in Somali
        data.get_qrels('test-a-pools')                       # test-a, judged more deeply

    .. cite:: ciral
        :citation: Adeyemi et al. CIRAL: A Test Collection for CLIR Evaluations in African Languages. SIGIR 2024.
        :link: https://doi.org/10.1145/3626772.3657884
    """

    licence = "Apache-2.0 (topics and judgments)"
    citation = """\
@inproceedings{adeyemi-etal-2024-ciral,
  title     = {{CIRAL}: A Test Collection for {CLIR} Evaluations in {African} Languages},
  author    = {Adeyemi, Mofetoluwa and Oladipo, Akintunde and Zhang, Xinyu and Alfonso-Hermelo, David and
               Rezagholizadeh, Mehdi and Chen, Boxing and Omotayo, Abdul-Hakeem and Abdulmumin, Idris and others},
  booktitle = {Proceedings of the 47th International ACM SIGIR Conference on Research and Development in Information
               Retrieval},
  pages     = {293--302},
  year      = {2024},
  doi       = {10.1145/3626772.3657884},
}
"""
    naming = f"CIRAL datasets are called ciral/{{language}}, with a language out of {', '.join(LANGUAGES)}."
    _url = "https://github.com/ciralproject/ciral"

    def __init__(self, language: str):
        """Creates the dataset.

        Args:
            language: Code of the passages' language, one of ``ha``, ``so``, ``sw`` and ``yo``.

        Raises:
            ValueError: If CIRAL does not have the language.
        """
        code = choose_language(language, list(LANGUAGES))
        super().__init__(f"ciral/{code}", ("en", code), FIELDS)
        self._store: DocumentStore | None = None

    @classmethod
    def from_name(cls, name: str) -> CIRAL:
        """Returns the dataset that a name stands for.

        Raises:
            ValueError: If there is no such dataset.
        """
        if name.count("/") != 1:
            raise ValueError(cls.naming)
        return cls(name.partition("/")[2])

    @staticmethod
    def list_names() -> Iterator[str]:
        """Gives the names of all datasets."""
        return (f"ciral/{code}" for code in LANGUAGES)

    def documents(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the fields of every passage by docno, in the order of the files.

        The first call builds a store of the passages, which takes some minutes.

        Raises:
            FileNotFoundError: If the folder of the passages is not known, or holds none in the language.
        """
        if self._store is None:
            self._store = open_store(self.languages[1], verbose=True)
        return self._store

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns topics, as ``qid`` and ``query``.

        Args:
            variant: ``test-a`` (the default), ``test-b`` or ``dev``, in English, or with ``/native`` after it in the
                language of the passages (``dev`` is published in that alone). ``native``: those of both tests in the
                language of the passages. The code of a language: ``test-a`` in it.

        Raises:
            ValueError: If there is no such variant.
        """
        split, native = self._variant(variant)
        splits = TESTS if split is None else (split.removesuffix("-pools"),)
        rows = [item for name in splits for item in queries(self.languages[1], name, native=native).items()]
        return pd.DataFrame(rows, columns=["qid", "query"])

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the judgments, as ``qid``, ``docno`` and ``label``.

        Args:
            variant: ``test-a`` (the default; the passages that the track's systems ranked first), ``test-a-pools``
                (deeper pools of the same topics), ``test-b`` or ``dev``. Variants of the topics stand for their
                judgments; ``native`` for those of both tests.

        Raises:
            ValueError: If there is no such variant.
        """
        split, _ = self._variant(variant)
        names = TESTS if split is None else (split,)
        return pd.concat([judgments(self.languages[1], name) for name in names], ignore_index=True)

    def human_translation(self) -> HumanTranslation:
        """Returns a transformer that asks each topic as a speaker of the passages' language wrote it."""
        return HumanTranslation(self, _NATIVE)

    def _variant(self, variant: str | None) -> tuple[str | None, bool]:
        """Returns the set (None: both tests) and whether the queries are native ones."""
        if variant is None:
            return SPLITS[0], False
        if variant == _NATIVE:
            return None, True
        split, _, native = variant.partition("/")
        if split in JUDGMENTS and native in ("", _NATIVE):
            return split, bool(native)
        if (language := language_of(variant)) in self.languages:
            return SPLITS[0], language == self.languages[1]
        raise ValueError(
            f"{self!r} has no variant {variant!r}; there are {', '.join(JUDGMENTS)}, each also with /{_NATIVE} after "
            f"it, {_NATIVE}, {' and '.join(self.languages)}."
        )

    def _describe_component(self, component: str) -> bool | list[str] | None:
        if component == "topics":
            return ["test-a", "test-b", *(f"{split}/{_NATIVE}" for split in SPLITS)]
        return list(JUDGMENTS) if component == "qrels" else super()._describe_component(component)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_store": None}
