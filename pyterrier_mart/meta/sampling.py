"""Meta-tasks on demand: each is a function of the seed, the split and its index, and none is kept."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pyterrier_mart.datasets.corpus import EmptyLanguageError, MultilingualCorpus, normalised
from pyterrier_mart.datasets.graded_pairs import PairCorpus
from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.negatives import NegativeMiner
from pyterrier_mart.meta.tasks import (
    PAIR_TRANSFER_MODES,
    SPLITS,
    Arrangement,
    MetaTask,
    PairSet,
    Row,
    TransferPath,
    TripletSet,
    transfer_paths,
)
from pyterrier_mart.vectors import unit

__all__ = ["PairTaskSampler", "TaskSampler", "TripletTaskSampler"]

_Rows: TypeAlias = npt.NDArray[np.int64]


class TaskSampler(ABC):
    """Tasks by index, equally many of each transfer path: what training draws from.

    Args:
        config: The settings.
        split: Which of ``config.n_tasks`` there are.
        paths: The transfer paths.
    """

    def __init__(self, config: MetaConfig, split: str, paths: Sequence[TransferPath]):
        self.config, self.split, self.paths = config, split, tuple(paths)

    def __len__(self) -> int:
        """Tasks of an epoch."""
        return self.config.n_tasks[SPLITS.index(self.split)]

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
        order = self._rng(1, epoch).permutation(len(self)).tolist()
        for start in range(0, len(order), size):
            yield [self[i] for i in order[start : start + size]]

    @property
    def fingerprint(self) -> str:
        """Digest of what decides the tasks: settings, data and, where distances count, the encoder."""
        c = self.config
        settings = [type(self).__name__, self.split, len(self), c.seed, c.k_shot, c.q_query]
        paths = [[str(arrangement) for arrangement in path] for path in self.paths]
        return hashlib.sha256(json.dumps([settings, paths, self._data()]).encode()).hexdigest()

    @abstractmethod
    def _task(self, index: int, path: TransferPath, rng: np.random.Generator) -> MetaTask: ...

    @abstractmethod
    def _data(self) -> Any: ...

    def _rng(self, purpose: int, number: int) -> np.random.Generator:
        key = (SPLITS.index(self.split), purpose, number)
        return np.random.default_rng(np.random.SeedSequence(self.config.seed, spawn_key=key))

    def _try_all_paths(self) -> None:
        """Makes a task of each path: what cannot work is said now and not in the midst of training."""
        for i in range(min(len(self.paths), len(self))):
            self[i]


class TripletTaskSampler(TaskSampler):
    """Meta-tasks for search (Section 4.2 of the paper).

    A support set has ``config.k_shot`` queries, a query set ``config.q_query``; each query has one row for each
    document language of its set, with a positive in that language. No two sets of a task share a query, in
    whatever language, nor what answers one, with an exception: ``query_sampling="translation"`` takes the query set's
    queries from those of the set before it, and ``"similar"`` may take one of these in another language.

    Args:
        corpus: Queries and documents of the split.
        config: The settings.
        split: Which ``n_tasks`` there are, and which arrangements of ``config.transfer``.
        encoder: The encoder before training, where ``negatives`` or ``query_sampling`` go by distance. Texts in the
            languages that are needed are encoded at once, so that later training of the encoder changes no task.

    Raises:
        EmptyLanguageError: If the corpus lacks a language of the arrangements.
        ValueError: If it has too few queries or documents, or an encoder is needed.
    """

    def __init__(
        self, corpus: MultilingualCorpus, config: MetaConfig, split: str = "train", encoder: TextEncoder | None = None
    ):
        super().__init__(config, split, transfer_paths(config.transfer, split))
        self.corpus = corpus
        arrangements = {arrangement for path in self.paths for arrangement in path}
        query_langs = {a.query_lang for a in arrangements}
        doc_langs = {lang for a in arrangements for lang in a.doc_langs}
        corpus.check_languages(sorted(query_langs), sorted(doc_langs))
        near, mined = config.query_sampling == "similar", config.negatives != "random"
        if near and encoder is None:
            raise ValueError("query_sampling='similar' needs an encoder")
        if config.query_sampling == "translation" and config.q_query > config.k_shot:
            raise ValueError(
                f"q_query must not be more than k_shot={config.k_shot} with query_sampling='translation', whose query "
                f"set has queries of the support set, not {config.q_query}"
            )
        used = encoder if near or mined else None
        if config.negative_lang == "query":
            doc_langs |= query_langs
        self.miner = NegativeMiner(corpus, config, used, query_langs, doc_langs)
        self._encoder_key = None if used is None else used.fingerprint

        topics = corpus.topics
        self._qids: list[str] = topics["qid"].tolist()
        self._lang: list[str] = topics["query_lang"].tolist()
        self._qgroup: list[str] = topics["qgroup"].tolist()
        lang_of = dict(zip(corpus.docs["docno"].tolist(), corpus.docs["doc_lang"].tolist(), strict=True))
        self._positives: list[dict[str, list[str]]] = []
        # Queries that must not be in two sets have a mark in common.
        self._marks: list[list[tuple[str, str]]] = []
        self._marked: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, (qid, group) in enumerate(zip(self._qids, self._qgroup, strict=True)):
            positives = defaultdict(list)
            for docno in sorted(corpus.relevant[qid]):
                positives[lang_of[docno]].append(docno)
            self._positives.append(dict(positives))
            self._marks.append([("query", group), *(("answer", of) for of in self.miner.answer_groups(qid))])
            for mark in self._marks[i]:
                self._marked[mark].append(i)

        self._pools: dict[Arrangement, _Rows] = {}
        self._translated: dict[Arrangement, dict[str, list[int]]] = {}
        for arrangement in arrangements:
            query_lang, langs = arrangement
            answered = (i for i, of_lang in enumerate(self._positives) if all(lang in of_lang for lang in langs))
            pool = [i for i in answered if self._lang[i] == query_lang]
            by_group = defaultdict(list)
            for i in pool:
                by_group[self._qgroup[i]].append(i)
            self._pools[arrangement] = np.array(pool, dtype=np.int64)
            self._translated[arrangement] = dict(by_group)
        self._try_all_paths()

    def _task(self, index: int, path: TransferPath, rng: np.random.Generator) -> MetaTask:
        support = self._pools[path[0]]
        if self.config.query_sampling == "translation":
            known = [i for i in support if all(self._qgroup[i] in self._translated[a] for a in path[1:])]
            support = np.array(known, dtype=np.int64)
        sets = [self._draw(support, self.config.k_shot, rng, index, path[0])]
        for arrangement in path[1:]:
            sets.append(self._query_set(arrangement, sets, rng, index))
        return MetaTask(index, *(self._triplets(chosen, a, rng) for chosen, a in zip(sets, path, strict=True)))

    def _draw(
        self, pool: _Rows, count: int, rng: np.random.Generator, index: int, arrangement: Arrangement
    ) -> list[int]:
        chosen: dict[str, int] = {}
        for i in rng.permutation(pool).tolist():
            if len(chosen) == count:
                break
            chosen.setdefault(self._qgroup[i], i)
        if len(chosen) < count:
            raise ValueError(
                f"task {index}: the set {arrangement} needs {count} queries that share no query and no answer with "
                f"other sets of the task; {self.corpus.name} has {len(chosen)} left of {len(self._pools[arrangement])}"
            )
        return list(chosen.values())

    def _query_set(
        self, arrangement: Arrangement, sets: Sequence[list[int]], rng: np.random.Generator, index: int
    ) -> list[int]:
        count, pool, before = self.config.q_query, self._pools[arrangement], sets[-1]
        if self.config.query_sampling == "translation":
            return [self._translation(before[i], arrangement) for i in rng.permutation(len(before))[:count]]
        taken = np.zeros(len(self._qids), dtype=bool)
        for i in {i for chosen in sets for i in chosen}:
            for mark in self._marks[i]:
                taken[self._marked[mark]] = True
        free = pool[~taken[pool]]
        if self.config.query_sampling == "similar":
            free = self._similar(arrangement, sets, free)
        return self._draw(free, count, rng, index, arrangement)

    def _translation(self, query: int, arrangement: Arrangement) -> int:
        same = self._translated[arrangement][self._qgroup[query]]
        return query if query in same else same[0]

    def _similar(self, arrangement: Arrangement, sets: Sequence[list[int]], free: _Rows) -> _Rows:
        """Returns the queries that the query set is drawn from."""
        before = sets[-1]
        chosen: dict[int, None] = {}
        for i in before:
            if self._lang[i] != arrangement.query_lang and self._qgroup[i] in self._translated[arrangement]:
                translation = self._translation(i, arrangement)
                if not any(translation in earlier for earlier in sets):
                    chosen[translation] = None
        if len(free):
            vectors = self.miner.query_vectors
            similarity = unit(vectors[before]) @ unit(vectors[free]).T
            nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : self.config.top_k]
            chosen.update(dict.fromkeys(free[nearest].ravel().tolist()))
            # Never too few where there are enough: neighbours that queries share are made up for.
            for i in free[np.argsort(-similarity.max(axis=0), kind="stable")].tolist():
                if len({self._qgroup[j] for j in chosen}) >= self.config.q_query:
                    break
                chosen[i] = None
        return np.array(list(chosen), dtype=np.int64)

    def _triplets(self, queries: Sequence[int], arrangement: Arrangement, rng: np.random.Generator) -> TripletSet:
        rows = []
        for i in queries:
            qid = self._qids[i]
            for lang in arrangement.doc_langs:
                positives = self._positives[i][lang]
                positive = positives[rng.integers(len(positives))] if len(positives) > 1 else positives[0]
                negatives = self.miner.sample(qid, positive, arrangement.doc_langs, self.config.n_neg, rng)
                rows.append(Row(qid, positive, negatives))
        relevant = {self._qids[i]: self.miner.answers(self._qids[i]) for i in queries}
        return TripletSet.build(rows, self.corpus.queries, self.corpus.documents, relevant)

    def _data(self) -> Any:
        c = self.config
        choice: list[Any] = [c.n_neg, c.negatives, c.negative_lang, c.query_sampling]
        if c.negatives != "random":
            choice += [c.loss == "triplet", c.triplet_margin, *(["dot"] if c.loss == "triplet-dot" else [])]
        if c.query_sampling == "similar":
            choice += [c.top_k]
        return [choice, self.corpus.fingerprint, self._encoder_key]


class PairTaskSampler(TaskSampler):
    """Meta-tasks of graded sentence pairs, such as STS17 (Section 4.1 of the paper).

    A support set has ``config.k_shot`` pairs, a query set ``config.q_query``. No two sets of a task share a row, of
    whatever track, or a sentence.

    Args:
        pairs: Pairs of the split.
        config: The settings. ``transfer`` is one of :data:`~pyterrier_mart.meta.tasks.PAIR_TRANSFER_MODES`, or
            arrangements in which the set ``ar_en`` has pairs of an Arabic and an English sentence and ``en_ar,en``
            those and English ones.
        split: Which ``n_tasks`` there are.

    Raises:
        EmptyLanguageError: If there are no pairs in the languages of an arrangement.
        ValueError: If there is no such transfer mode, or too few pairs.
    """

    def __init__(self, pairs: PairCorpus, config: MetaConfig, split: str = "train"):
        super().__init__(config, split, transfer_paths(config.transfer, split, PAIR_TRANSFER_MODES))
        self.pairs = pairs
        frame = pairs.pairs
        self._ids: list[str] = frame["pair_id"].tolist()
        self._first: list[str] = frame["sentence1"].tolist()
        self._second: list[str] = frame["sentence2"].tolist()
        self._scores = frame["score"].to_numpy(dtype=np.float32) / 5
        self._marks: list[set[Any]] = [
            {int(row), normalised(first), normalised(second)}
            for row, first, second in zip(frame["row"], self._first, self._second, strict=True)
        ]
        langs = [frozenset(two) for two in zip(frame["lang1"], frame["lang2"], strict=True)]
        self._pools: dict[Arrangement, _Rows] = {}
        for arrangement in {arrangement for path in self.paths for arrangement in path}:
            wanted = [frozenset((arrangement.query_lang, lang)) for lang in arrangement.doc_langs]
            if not set(wanted) <= set(langs):
                there = ", ".join(sorted(set(frame["lang1"] + "-" + frame["lang2"])))
                raise EmptyLanguageError(f"{pairs.name} has no pairs for the set {arrangement}; it has {there}")
            self._pools[arrangement] = np.array([i for i, two in enumerate(langs) if two in wanted], dtype=np.int64)
        self._try_all_paths()

    def _task(self, index: int, path: TransferPath, rng: np.random.Generator) -> MetaTask:
        used: set[Any] = set()
        sets = []
        for n, arrangement in enumerate(path):
            count, pool = self.config.q_query if n else self.config.k_shot, self._pools[arrangement]
            free = [i for i in rng.permutation(pool).tolist() if used.isdisjoint(self._marks[i])]
            chosen = free[:count]
            if len(chosen) < count:
                raise ValueError(
                    f"task {index}: the set {arrangement} needs {count} pairs that share no row and no sentence with "
                    f"other sets of the task; {self.pairs.name} has {len(chosen)} left of {len(pool)}"
                )
            used.update(*(self._marks[i] for i in chosen))
            ids, first, second = (tuple(values[i] for i in chosen) for values in (self._ids, self._first, self._second))
            sets.append(PairSet(ids, first, second, self._scores[chosen]))
        return MetaTask(index, *sets)

    def _data(self) -> Any:
        return self.pairs.fingerprint
