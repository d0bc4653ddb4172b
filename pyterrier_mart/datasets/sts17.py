"""STS17: the evaluation sets of SemEval-2017 Task 1, sentence pairs with graded similarity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from pyterrier_mart.checks import check_choice
from pyterrier_mart.datasets.base import MartDataset, read_data
from pyterrier_mart.text import language_of


class Track(NamedTuple):
    """A track of the benchmark.

    Attributes:
        file: What its file is called.
        languages: The languages of the sentences of a pair.
        swapped: Whether the file has the second language first, as most published files with English do.
    """

    file: str
    languages: tuple[str, str]
    swapped: bool = False


TRACKS: Mapping[str, Track] = {
    "ar-ar": Track("track1.ar-ar", ("ar", "ar")),
    "ar-en": Track("track2.ar-en", ("ar", "en"), swapped=True),
    "es-es": Track("track3.es-es", ("es", "es")),
    "es-en": Track("track4a.es-en", ("es", "en")),
    "en-en": Track("track5.en-en", ("en", "en")),
    "tr-en": Track("track6.tr-en", ("tr", "en"), swapped=True),
    "es-en-wmt": Track("track4b.es-en", ("es", "en"), swapped=True),
}


class STS17(MartDataset):
    """Sentence pairs of one track of STS17, with gold similarity from 0 (unrelated) to 5 (equivalent).

    :meth:`pairs` is the benchmark as published; systems are compared by Pearson's correlation with the gold scores. The
    other methods show it as a re-ranking collection: the first sentence of a pair is a topic, the second one its only
    document, and both carry the pair's id. Labels are the gold scores, not binary judgments.

    ``es-en`` is track 4a. ``es-en-wmt`` is track 4b, machine translations with gold scores from 2 to 5, which is
    reported by itself.

    Example::

        data = pt.get_dataset('mart:sts17/tr-en')
        scores = scorer(data.get_results()).merge(data.get_qrels(), on=['qid', 'docno'])
        scores['score'].corr(scores['label'])

    .. cite:: sts17
        :citation: Cer et al. SemEval-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual Focused
            Evaluation. SemEval 2017.
        :link: https://aclanthology.org/S17-2001/
    """

    licence = "CC BY-SA 4.0"
    citation = """\
@inproceedings{cer-etal-2017-semeval,
  title     = {{SemEval}-2017 Task 1: Semantic Textual Similarity Multilingual and Crosslingual Focused Evaluation},
  author    = {Cer, Daniel and Diab, Mona and Agirre, Eneko and Lopez-Gazpio, I{\\~n}igo and Specia, Lucia},
  booktitle = {Proceedings of the 11th International Workshop on Semantic Evaluation (SemEval-2017)},
  pages     = {1--14},
  year      = {2017},
  doi       = {10.18653/v1/S17-2001},
}
"""
    naming = f"STS17 datasets are called sts17/{{pair}}, with a pair out of {', '.join(TRACKS)}."
    _url = "https://aclanthology.org/S17-2001/"

    def __init__(self, track: str):
        """Creates the dataset.

        Args:
            track: Language pair, one of :data:`TRACKS`; other codes of the same languages are understood.

        Raises:
            ValueError: If there is no such track.
        """
        canonical = "-".join(filter(None, map(language_of, track.split("-"))))
        check_choice("track", canonical, TRACKS)
        super().__init__(f"sts17/{canonical}", TRACKS[canonical].languages, ("text",))
        self.track = canonical

    @classmethod
    def from_name(cls, name: str) -> STS17:
        """Returns the dataset that a name stands for.

        Raises:
            ValueError: If there is no such dataset.
        """
        return cls(name.removeprefix("sts17/"))

    @staticmethod
    def list_names() -> Iterator[str]:
        """Gives the names of all datasets."""
        return (f"sts17/{track}" for track in TRACKS)

    def pairs(self) -> pd.DataFrame:
        """Returns the pairs, as ``pair_id``, ``sentence1``, ``sentence2`` and ``score``.

        ``sentence1`` is in the first of :attr:`languages`, whatever the order of the published file.
        """
        file, _, swapped = TRACKS[self.track]
        rows = [line.split("\t") for line in read_data(f"sts17/{file}.tsv.gz").rstrip("\n").split("\n")]
        columns = ["sentence2", "sentence1", "score"] if swapped else ["sentence1", "sentence2", "score"]
        pairs = pd.DataFrame(rows, columns=columns).astype({"score": "float64"})
        return pairs.assign(pair_id=[f"{self.track}-{i:03d}" for i in range(len(pairs))])[
            ["pair_id", "sentence1", "sentence2", "score"]
        ]

    def documents(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the second sentence of every pair by docno."""
        pairs = self.pairs()
        return {docno: {"text": text} for docno, text in zip(pairs["pair_id"], pairs["sentence2"], strict=True)}

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the first sentences, as ``qid`` and ``query``."""
        return self.get_results(variant)[["qid", "query"]]

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the gold scores, as ``qid``, ``docno`` and ``label``, a float."""
        return self.get_results(variant)[["qid", "docno"]].assign(label=self.pairs()["score"])

    def get_results(self, variant: str | None = None) -> pd.DataFrame:
        """Returns the pairs as candidates for a re-ranker: ``qid, query, docno, text, score, rank``, not scored yet."""
        if variant is not None:
            raise ValueError(f"{self!r} has no variants, but {variant!r} was asked for.")
        pairs = self.pairs().rename(columns={"pair_id": "qid", "sentence1": "query", "sentence2": "text"})
        pairs = pairs.assign(docno=pairs["qid"], score=0.0, rank=0)
        return pairs[["qid", "query", "docno", "text", "score", "rank"]]

    def _describe_component(self, component: str) -> bool | list[str] | None:
        return True if component == "results" else super()._describe_component(component)
