"""Sentence pairs with graded similarity, such as STS17."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from pyterrier_mart.datasets import sts17
from pyterrier_mart.datasets.columns import among, checked_columns, distinct, fingerprint_of, known, refuse

__all__ = ["STS_TRACKS", "PairCorpus"]

#: The tracks of STS17 without ``es-en-wmt``, which has most sentences several times.
STS_TRACKS = tuple(track for track in sts17.TRACKS if track != "es-en-wmt")

_PAIRS = ["pair_id", "sentence1", "sentence2", "score", "lang1", "lang2", "track", "row"]


@dataclass(frozen=True, eq=False)
class PairCorpus:
    """Sentence pairs with graded similarity.

    Make one with :meth:`sts17` or :meth:`from_frame`, which check what they are given. The frame must not be changed.

    Attributes:
        pairs: ``pair_id``, ``sentence1``, ``sentence2``, ``score`` (0 to 5), ``lang1``, ``lang2``, ``track`` (the
            list of pairs it is from), ``row`` (what must stay in one split: position in the track).
        name: What it is called in messages.
    """

    pairs: pd.DataFrame
    name: str = "pairs"

    @classmethod
    def sts17(cls, tracks: Sequence[str] = STS_TRACKS) -> PairCorpus:
        """Returns tracks of STS17: 250 pairs each.

        The same row of two tracks has different pairs: tracks were made from different sentences.

        Args:
            tracks: Names of :data:`pyterrier_mart.datasets.sts17.TRACKS`.

        Raises:
            ValueError: If there is no such track, or one is named twice.
        """
        datasets = [sts17.STS17(track) for track in tracks]
        names = distinct("tracks", [dataset.track for dataset in datasets])
        frames = []
        for dataset in datasets:
            pairs = dataset.pairs()
            lang1, lang2 = dataset.languages
            frames.append(pairs.assign(lang1=lang1, lang2=lang2, track=dataset.track, row=range(len(pairs))))
        return cls.from_frame(pd.concat(frames, ignore_index=True), f"sts17/{','.join(names)}")

    @classmethod
    def from_frame(cls, pairs: pd.DataFrame, name: str = "pairs") -> PairCorpus:
        """Returns pairs of the user's own. The frame is copied; columns that are not named here are left out.

        Args:
            pairs: ``pair_id``, ``sentence1``, ``sentence2``, ``score``, ``lang1``, ``lang2``; by default ``track`` is
                the languages joined by ``-``, and ``row`` the position in the track.
            name: What to call it in messages.

        Raises:
            ValueError: If a column or value is missing, a sentence is not a string, an id is there twice, a language
                is not a code of letters, or a score is not from 0 to 5. The message names the culprits.
        """
        pairs = checked_columns("pairs", pairs, _PAIRS[:6], _PAIRS[6:])
        scores = pd.to_numeric(pairs["score"], errors="coerce")
        refuse(pairs.loc[~scores.between(0, 5), "pair_id"], "pairs: score must be a number from 0 to 5; it is not for")
        pairs["score"] = scores.astype("float64")
        if "track" not in pairs:
            pairs["track"] = pairs["lang1"] + "-" + pairs["lang2"]
        if "row" not in pairs:
            pairs["row"] = pairs.groupby("track", sort=False).cumcount()
        return cls(pairs[_PAIRS].astype({"row": "int64"}), name)

    @cached_property
    def tracks(self) -> tuple[str, ...]:
        """The tracks, in order."""
        return tuple(self.pairs["track"].unique())

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The distinct rows, sorted."""
        return tuple(int(row) for row in sorted(self.pairs["row"].unique()))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all pairs in their order, in hexadecimal digits; the name does not count."""
        return fingerprint_of(self.pairs[_PAIRS])

    def restrict(self, tracks: Iterable[str]) -> PairCorpus:
        """Returns the pairs of some tracks, in the order they have here.

        Raises:
            ValueError: If there is no such track.
        """
        wanted = known("tracks", tracks, self.tracks, self.name)
        pairs = self.pairs[among(self.pairs["track"], wanted)].reset_index(drop=True)
        return type(self)(pairs, f"{self.name}, tracks {','.join(wanted)}")

    def subset(self, rows: Iterable[int], name: str | None = None) -> PairCorpus:
        """Returns the pairs at some rows of every track, in the order they have here.

        Args:
            rows: The rows.
            name: What to call it; by default as this corpus.

        Raises:
            ValueError: If there is no such row.
        """
        wanted = known("rows", rows, self.rows, self.name)
        pairs = self.pairs[among(self.pairs["row"], wanted)].reset_index(drop=True)
        return type(self)(pairs, self.name if name is None else name)

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self)} pairs ({','.join(self.tracks)})>"
