"""Meta-tasks on demand: each is a function of the seed, the split and its index, and none is kept."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pyterrier_mart.datasets.corpus import MultilingualCorpus, PairCorpus, normalised
from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.meta.arrangements import SPLITS, Arrangement, TransferPath, parse_arrangements
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.episodes import MetaTask, PairEpisode, Row, TripletEpisode
from pyterrier_mart.meta.errors import EmptyLanguageError
from pyterrier_mart.meta.negatives import NegativeMiner, VectorSource
from pyterrier_mart.vectors import unit

__all__ = ["PAIR_TRANSFER_MODES", "PairTaskSampler", "TaskSampler", "TripletTaskSampler"]

_Positions: TypeAlias = npt.NDArray[np.int64]

_MONO = ("en_en", "ar_ar", "es_es")
_BI = ("ar_en", "es_en", "tr_en")

#: Transfer modes of graded pairs; ``ar_en`` are pairs of an Arabic and an English sentence, in either order. The third
#: has, of the paper's three paths, the one that needs no machine translation.
PAIR_TRANSFER_MODES: Mapping[str, str] = MappingProxyType(
    {
        "mono-mono": "|".join(f"{a}-{b}" for a in _MONO for b in _MONO if a != b),
        "mono-bi": "|".join(f"{a}-{b}" for a in _MONO for b in _BI),
        "mono-bi-multi": "en_en-ar_en-en_ar,en,es",
    }
)


class TaskSampler(Protocol):
    """What training draws meta-tasks from."""

    @property
    def fingerprint(self) -> str:
        """Digest of what decides the tasks."""

    def __len__(self) -> int:
        """Tasks of an epoch."""

    def __getitem__(self, index: int) -> MetaTask:
        """The task of an index, always the same."""

    def batches(self, size: int, epoch: int) -> Iterator[list[MetaTask]]:
        """All tasks in an order of the epoch, so many at a time."""


class _Sampler(ABC):
    """Tasks by index, equally many of each transfer path."""

    def __init__(self, config: MetaConfig, split: str, paths: Sequence[TransferPath]):
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
        self.config, self.split, self.paths = config, split, tuple(paths)
        self._split = SPLITS.index(split)

    def __len__(self) -> int:
        return self.config.n_tasks[self._split]

    def __getitem__(self, index: int) -> MetaTask:
        """Returns a task: a function of ``config.seed``, the split and ``index``.

        Raises:
            IndexError: If ``index`` is not one of ``range(len(self))``.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"there are tasks 0 to {len(self) - 1} of the split {self.split}, not {index}")
        return self._task(int(index), self.paths[index % len(self.paths)], self._rng(0, int(index)))

    def __iter__(self) -> Iterator[MetaTask]:
        return (self[i] for i in range(len(self)))

    def batches(self, size: int, epoch: int) -> Iterator[list[MetaTask]]:
        """Yields every task once, in an order that is a function of ``config.seed``, the split and the epoch.

        Args:
            size: Tasks of a batch; the last one may have fewer.
            epoch: Number of the epoch, from 0.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        order = self._rng(1, epoch).permutation(len(self)).tolist()
        for start in range(0, len(order), size):
            yield [self[i] for i in order[start : start + size]]

    @property
    def fingerprint(self) -> str:
        """Digest of what decides the tasks: settings, data and, where distances count, the encoder or vectors."""
        c = self.config
        settings = [type(self).__name__, self.split, len(self), c.seed, c.k_shot, c.q_query]
        paths = [[str(arrangement) for arrangement in path] for path in self.paths]
        return hashlib.sha256(json.dumps([settings, paths, self._data()]).encode()).hexdigest()

    @abstractmethod
    def _task(self, index: int, path: TransferPath, rng: np.random.Generator) -> MetaTask: ...

    @abstractmethod
    def _data(self) -> Any: ...

    def _rng(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.config.seed, spawn_key=(self._split, purpose, number)))


class TripletTaskSampler(_Sampler):
    """Meta-tasks for search (Section 4.2 of the paper).

    A support set has ``config.k_shot`` questions, a query set ``config.q_query``; each question has one row for each
    candidate language of its set, with a positive in that language. No two sets of a task share a question, in
    whatever language, nor what answers one, with an exception: ``query_sampling="translation"`` takes the query set's
    questions from those of the set before it, and ``"similar"`` may take one of these in another language.

    Args:
        corpus: Questions and candidates of the split.
        config: The settings.
        split: Which ``n_tasks`` there are, and which arrangements of ``config.transfer``.
        encoder: The encoder before training, where ``negatives`` or ``query_sampling`` go by distance. Vectors of the
            languages that are needed are computed at once, so that later training of the encoder changes no task.
        vectors: Vectors of questions and of candidates instead; see
            :class:`~pyterrier_mart.meta.negatives.CorpusVectors`.

    Raises:
        EmptyLanguageError: If the corpus lacks a language of the arrangements.
        ValueError: If it has too few questions or candidates, or an encoder is needed.
    """

    def __init__(
        self,
        corpus: MultilingualCorpus,
        config: MetaConfig,
        split: str = "train",
        encoder: TextEncoder | None = None,
        *,
        vectors: tuple[VectorSource, VectorSource] | None = None,
    ):
        super().__init__(config, split, corpus.paths(config.transfer, split))
        self.corpus = corpus
        near, mined = config.query_sampling == "similar", config.negatives != "random"
        if not near and not mined:
            encoder = vectors = None
        if near and encoder is None and vectors is None:
            raise ValueError("query_sampling='similar' needs an encoder, or vectors")
        if vectors is not None:
            encoder = None  # what is there need not be computed
        if config.query_sampling == "translation" and config.q_query > config.k_shot:
            raise ValueError(
                f"q_query={config.q_query} must not be more than k_shot={config.k_shot} with "
                "query_sampling='translation': the query set has the questions of the support set"
            )
        self.miner = NegativeMiner(corpus, config, encoder, vectors=vectors)

        topics = corpus.topics
        self._qids: list[str] = topics["qid"].tolist()
        self._lang: list[str] = topics["query_lang"].tolist()
        self._qgroup: list[str] = topics["qgroup"].tolist()
        self._row = _rows_within(self._lang)
        doc_lang = dict(zip(corpus.docs["docno"].tolist(), corpus.docs["doc_lang"].tolist(), strict=True))
        self._positives: list[dict[str, list[str]]] = []
        for qid in self._qids:
            by_lang = defaultdict(list)
            for docno in sorted(corpus.relevant.get(qid, ())):
                by_lang[doc_lang[docno]].append(docno)
            self._positives.append(dict(by_lang))
        # Questions that must not be in two sets have a mark in common.
        of_group = {
            group: frozenset((("question", group), *(("answer", g) for g in self.miner.answer_groups(qid))))
            for group, qid in dict(zip(self._qgroup, self._qids, strict=True)).items()
        }
        self._marks = [of_group[group] for group in self._qgroup]
        self._marked: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, marks in enumerate(self._marks):
            for mark in marks:
                self._marked[mark].append(i)

        self._pools = {a: self._pool(a) for path in self.paths for a in path}
        self._translated: dict[Arrangement, dict[str, list[int]]] = {}
        for arrangement, pool in self._pools.items():
            by_group = defaultdict(list)
            for i in pool.tolist():
                by_group[self._qgroup[i]].append(i)
            self._translated[arrangement] = dict(by_group)
        self._support = [self._support_pool(path) for path in self.paths]
        self._check_pools()
        if near or mined:
            langs = {a.question_lang for a in self._pools}
            docs = {lang for a in self._pools for lang in a.doc_langs} if mined else set()
            if mined and config.negative_lang == "query":
                docs |= langs & set(corpus.doc_langs)
            self.miner.prepare(sorted(langs), sorted(docs))
        self._vectors_key = self.miner.vectors.key() if self.miner.vectors is not None else None
        for i in range(min(len(self.paths), len(self))):
            self[i]  # what cannot work is said now and not in the midst of training

    def _pool(self, arrangement: Arrangement) -> _Positions:
        lang, docs = arrangement
        return np.array(
            [
                i
                for i, has in enumerate(self._positives)
                if self._lang[i] == lang and all(doc_lang in has for doc_lang in docs)
            ],
            dtype=np.int64,
        )

    def _support_pool(self, path: TransferPath) -> _Positions:
        pool = self._pools[path[0]]
        if self.config.query_sampling != "translation":
            return pool
        return np.array(
            [i for i in pool.tolist() if all(self._qgroup[i] in self._translated[a] for a in path[1:])],
            dtype=np.int64,
        )

    def _check_pools(self) -> None:
        for path, support in zip(self.paths, self._support, strict=True):
            for n, arrangement in enumerate(path):
                setting = "q_query" if n else "k_shot"
                pool = self._pools[arrangement] if n else support
                found = len({self._qgroup[i] for i in pool.tolist()})
                if found < getattr(self.config, setting):
                    raise ValueError(
                        f"{setting}={getattr(self.config, setting)}: the corpus {self.corpus.name} has only {found} "
                        f"questions in {arrangement.question_lang} with relevant candidates in each of "
                        f"{', '.join(arrangement.doc_langs)}"
                        + (" that are also there for all other sets" if pool is not self._pools[arrangement] else "")
                    )

    def _task(self, index: int, path: TransferPath, rng: np.random.Generator) -> MetaTask:
        support = self._support[index % len(self.paths)]
        sets = [self._draw(support, self.config.k_shot, rng, index, path[0])]
        for arrangement in path[1:]:
            sets.append(self._query_set(arrangement, sets, rng, index))
        episodes = [self._episode(chosen, a, rng) for chosen, a in zip(sets, path, strict=True)]
        return MetaTask(index, *episodes)

    def _draw(
        self, pool: _Positions, count: int, rng: np.random.Generator, index: int, arrangement: Arrangement
    ) -> list[int]:
        chosen: dict[str, int] = {}
        for i in rng.permutation(pool).tolist():
            if len(chosen) == count:
                break
            chosen.setdefault(self._qgroup[i], i)
        if len(chosen) < count:
            raise ValueError(
                f"task {index}: the set {arrangement} needs {count} questions that share no question and no answer "
                f"with other sets of the task; the corpus {self.corpus.name} has {len(chosen)} left of "
                f"{len(self._pools[arrangement])}"
            )
        return list(chosen.values())

    def _query_set(
        self, arrangement: Arrangement, sets: Sequence[list[int]], rng: np.random.Generator, index: int
    ) -> list[int]:
        count, pool, before = self.config.q_query, self._pools[arrangement], sets[-1]
        if self.config.query_sampling == "translation":
            some = [before[i] for i in rng.permutation(len(before))[:count]]
            return [self._translation(i, arrangement) for i in some]
        taken = np.zeros(len(self._qids), dtype=bool)
        for i in {i for chosen in sets for i in chosen}:
            for mark in self._marks[i]:
                taken[self._marked[mark]] = True
        free = pool[~taken[pool]]
        if self.config.query_sampling == "similar":
            free = self._similar(arrangement, sets, free)
        return self._draw(free, count, rng, index, arrangement)

    def _translation(self, question: int, arrangement: Arrangement) -> int:
        same = self._translated[arrangement][self._qgroup[question]]
        return question if question in same else same[0]

    def _similar(self, arrangement: Arrangement, sets: Sequence[list[int]], free: _Positions) -> _Positions:
        """Returns the questions that the query set is drawn from."""
        vectors, before = self.miner.vectors, sets[-1]
        assert vectors is not None
        chosen: dict[int, None] = {}
        for i in before:
            if self._lang[i] != arrangement.question_lang and self._qgroup[i] in self._translated[arrangement]:
                translation = self._translation(i, arrangement)
                if not any(translation in earlier for earlier in sets):
                    chosen[translation] = None
        if len(free):
            lang = self._lang[before[0]]
            questions = unit(vectors.of("query", lang)[self._row[list(before)]])
            others = unit(vectors.of("query", arrangement.question_lang)[self._row[free]])
            similarity = questions @ others.T
            nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : self.config.top_k]
            chosen.update(dict.fromkeys(free[nearest].ravel().tolist()))
            # Never too few where there are enough: neighbours that questions share are made up for.
            for i in free[np.argsort(-similarity.max(axis=0), kind="stable")].tolist():
                if len({self._qgroup[j] for j in chosen}) >= self.config.q_query:
                    break
                chosen[i] = None
        return np.array(list(chosen), dtype=np.int64)

    def _episode(self, questions: Sequence[int], arrangement: Arrangement, rng: np.random.Generator) -> TripletEpisode:
        rows = []
        for i in questions:
            qid = self._qids[i]
            for lang in arrangement.doc_langs:
                positives = self._positives[i][lang]
                positive = positives[rng.integers(len(positives))] if len(positives) > 1 else positives[0]
                negatives = self.miner.sample(qid, positive, arrangement.doc_langs, self.config.n_neg, rng)
                rows.append(Row(qid, positive, negatives))
        relevant = {self._qids[i]: self.miner.answers(self._qids[i]) for i in questions}
        return TripletEpisode.build(rows, self.corpus.queries, self.corpus.documents, relevant)

    def _data(self) -> Any:
        c = self.config
        choice: list[Any] = [c.n_neg, c.negatives, c.negative_lang, c.query_sampling]
        if c.negatives != "random":
            choice += [c.loss == "triplet", c.triplet_margin]
        if c.query_sampling == "similar":
            choice += [c.top_k]
        return [choice, self.corpus.fingerprint, self._vectors_key]


class PairTaskSampler(_Sampler):
    """Meta-tasks of graded sentence pairs, such as STS17 (Section 4.1 of the paper).

    A support set has ``config.k_shot`` pairs, a query set ``config.q_query``. No two sets of a task share a row, of
    whatever track, or a sentence.

    Args:
        pairs: Pairs of the split.
        config: The settings. ``transfer`` is one of :data:`PAIR_TRANSFER_MODES`, or arrangements in which the set
            ``ar_en`` has pairs of an Arabic and an English sentence and ``en_ar,en`` those and English ones.
        split: Which ``n_tasks`` there are.

    Raises:
        EmptyLanguageError: If there are no pairs in the languages of an arrangement.
        ValueError: If there is no such transfer mode, or too few pairs.
    """

    def __init__(self, pairs: PairCorpus, config: MetaConfig, split: str = "train"):
        super().__init__(config, split, _pair_paths(config.transfer))
        self.pairs = pairs
        frame = pairs.pairs
        self._ids: list[str] = frame["pair_id"].tolist()
        self._first: list[str] = frame["sentence1"].tolist()
        self._second: list[str] = frame["sentence2"].tolist()
        self._scores = frame["score"].to_numpy(dtype=np.float32) / 5
        self._langs = [frozenset(langs) for langs in zip(frame["lang1"], frame["lang2"], strict=True)]
        self._marks: list[frozenset[Any]] = [
            frozenset((int(row), normalised(first), normalised(second)))
            for row, first, second in zip(frame["row"], self._first, self._second, strict=True)
        ]
        self._pools = {a: self._pool(a) for path in self.paths for a in path}
        for i in range(min(len(self.paths), len(self))):
            self[i]  # what cannot work is said now and not in the midst of training

    def _pool(self, arrangement: Arrangement) -> _Positions:
        wanted = {frozenset((arrangement.question_lang, lang)): lang for lang in arrangement.doc_langs}
        for langs, lang in wanted.items():
            if langs not in self._langs:
                frame = self.pairs.pairs
                there = sorted(set(frame["lang1"] + "-" + frame["lang2"]))
                raise EmptyLanguageError(
                    f"the set {arrangement} needs pairs in {arrangement.question_lang} and {lang}; "
                    f"{self.pairs.name} has {', '.join(there)}"
                )
        return np.array([i for i, langs in enumerate(self._langs) if langs in wanted], dtype=np.int64)

    def _task(self, index: int, path: TransferPath, rng: np.random.Generator) -> MetaTask:
        used: set[Any] = set()
        episodes = []
        for n, arrangement in enumerate(path):
            count = self.config.q_query if n else self.config.k_shot
            chosen: list[int] = []
            for i in rng.permutation(self._pools[arrangement]).tolist():
                if len(chosen) == count:
                    break
                if used.isdisjoint(self._marks[i]):
                    chosen.append(i)
            if len(chosen) < count:
                raise ValueError(
                    f"task {index}: the set {arrangement} needs {count} pairs that share no row and no sentence with "
                    f"other sets of the task; {self.pairs.name} has {len(chosen)} left of "
                    f"{len(self._pools[arrangement])}"
                )
            for i in chosen:
                used |= self._marks[i]
            episodes.append(
                PairEpisode(
                    tuple(self._ids[i] for i in chosen),
                    tuple(self._first[i] for i in chosen),
                    tuple(self._second[i] for i in chosen),
                    self._scores[chosen],
                )
            )
        return MetaTask(index, *episodes)

    def _data(self) -> Any:
        return self.pairs.fingerprint


def _pair_paths(transfer: str) -> tuple[TransferPath, ...]:
    if transfer in PAIR_TRANSFER_MODES:
        return parse_arrangements(PAIR_TRANSFER_MODES[transfer])
    if "_" not in transfer:
        raise ValueError(
            f"transfer must be one of {', '.join(PAIR_TRANSFER_MODES)} for graded pairs, or arrangements such as "
            f"'en_en-ar_en', not {transfer!r}"
        )
    return parse_arrangements(transfer)


def _rows_within(langs: Sequence[str]) -> _Positions:
    """Returns the position of each among those of its language."""
    seen: dict[str, int] = defaultdict(int)
    rows = np.empty(len(langs), dtype=np.int64)
    for i, lang in enumerate(langs):
        rows[i] = seen[lang]
        seen[lang] += 1
    return rows
