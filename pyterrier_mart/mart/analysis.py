"""The translation gap: how alike a model sees words that are translations, by layer (MART paper, Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_mart import charts
from pyterrier_mart.frames import texts_of
from pyterrier_mart.mart.attention import WordLinker
from pyterrier_mart.mart.encoding import Batch, Pair, PairEncoder
from pyterrier_mart.mart.reranker import MARTReRanker
from pyterrier_mart.translation import TranslationTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BatchWords", "TranslationGap", "gap_plot", "translation_gap", "words_of_batch"]

_ROWS = 4096  # encoded and sorted by length at a time


@dataclass(frozen=True)
class TranslationGap:
    """Mean cosine similarities of word pairs in the hidden states of a model, layer by layer.

    Layer 0 is the embeddings, layer ``i`` what the ``i``-th of the encoder's layers returns.

    Attributes:
        translated: For each layer, the similarity of pairs of words that are translations of each other.
        random: For each layer, the similarity of random pairs of words that are not.
        n_translated: Number of pairs of the first kind.
        n_random: Number of pairs of the second kind.
        rows: Number of rows that have pairs of both kinds; the others do not count.
    """

    translated: tuple[float, ...]
    random: tuple[float, ...]
    n_translated: int
    n_random: int
    rows: int

    @property
    def gap(self) -> tuple[float, ...]:
        """For each layer, how much more alike translations are than random pairs."""
        return tuple(a - b for a, b in zip(self.translated, self.random, strict=True))

    def to_frame(self) -> pd.DataFrame:
        """Returns one row for each layer: layer, translated, random, gap, n_translated, n_random."""
        return pd.DataFrame(
            {
                "layer": range(len(self.translated)),
                "translated": self.translated,
                "random": self.random,
                "gap": self.gap,
                "n_translated": self.n_translated,
                "n_random": self.n_random,
            }
        )

    def plot(self, path: str | Path | None = None, title: str | None = None) -> Figure:
        """Draws both similarities by layer. The figure needs no display and no pyplot. Notebooks show it.

        Args:
            path: A file to write: PNG, SVG or PDF, by its ending.
            title: What to write above.

        Raises:
            ImportError: If matplotlib is not installed.
            ValueError: If the ending of the path is another one.
        """
        lines = {"translations": self.translated, "random pairs": self.random}
        return _plot(lines, "mean cosine similarity", path, title)


def gap_plot(
    gaps: Mapping[str, TranslationGap], path: str | Path | None = None, title: str | None = None
) -> Figure:  # fmt: skip
    """Draws the gaps of several systems by layer, as in Figure 4 of the MART paper.

    Example::

        gap_plot({"MART": translation_gap(mart, rows), "mBERT": translation_gap(plain, rows, table=table)}, "gap.png")

    Args:
        gaps: By name.
        path: A file to write: PNG, SVG or PDF, by its ending.
        title: What to write above.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are none, or the ending of the path is another one.
    """
    if not gaps:
        raise ValueError("gaps: expected at least one system")
    lines = {name: gap.gap for name, gap in gaps.items()}
    return _plot(lines, "translation gap (difference of cosine similarities)", path, title)


def _plot(lines: Mapping[str, Sequence[float]], what: str, path: str | Path | None, title: str | None) -> Figure:
    charts.check_suffix(path)
    figure = charts.figure(width=7, height=4.5)
    axes = figure.add_subplot()
    for i, (name, values) in enumerate(lines.items()):
        # Different signs and dashes: lines of systems often lie on each other up to the first MAT layer.
        axes.plot(
            range(len(values)), values, label=charts.plain(name), marker="osD^vP"[i % 6],
            linestyle=("-", "--", ":", "-.")[i % 4], markersize=5,
        )  # fmt: skip
    axes.set_xticks(range(0, max(map(len, lines.values())), 1 + max(map(len, lines.values())) // 20))
    axes.set_xlabel("layer (0: embeddings)")
    axes.set_ylabel(what)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    if title is not None:
        axes.set_title(charts.plain(title))
    charts.save(figure, path)
    return figure


def translation_gap(
    reranker: MARTReRanker,
    rows: pd.DataFrame,
    *,
    table: TranslationTable | str | None = None,
    pairs: int = 10,
    seed: int = 42,
    verbose: bool = False,
) -> TranslationGap:
    """Measures how alike a model sees words that are translations of each other, layer by layer.

    A word's vector is the mean of the hidden states of its pieces, in a passage that holds query and document. Two
    kinds of pairs of a query word and a document word are compared by cosine similarity:

    - translations: for each query word, its best link of M^tr in the row, that is, the word of the document that is
      its translation with the highest probability (the first of equals). Weaker links are left out, since a table that
      was learnt from text has a long tail of them;
    - random pairs: drawn from all pairs of the row that are not linked at all.

    Both are averaged over each row, then over rows. Rows without a pair of either kind do not count. Words are those
    of M^tr: no stop words, and identical words that the table lacks (names, numbers) are translations of each other,
    as the re-ranker's settings say.

    Which pairs are compared depends on the table, the tokenizer, these settings and the seed, not on the weights, so
    that systems with one encoder are compared on the same pairs if they are given the same table.

    Example::

        gap = translation_gap(rank, rows)
        gap.plot("gap.png")
        translation_gap(MARTReRanker("e5-small", mat_layers=()), rows, table=table).to_frame()

    Args:
        reranker: The model; it need not have been trained.
        rows: With the columns ``query`` and the re-ranker's ``text_field``.
        table: Says which words are translations; the re-ranker's own by default. The model computes with its own table
            or without one, whatever this is.
        pairs: At most so many random pairs for each row.
        seed: Of the random pairs.
        verbose: Whether to show a progress bar.

    Raises:
        ValueError: If there is no table, a column is missing, ``pairs`` is less than 1, or no row has translations.
    """
    if missing := [column for column in ("query", reranker.text_field) if column not in rows]:
        raise ValueError(f"rows lacks the column {', '.join(map(repr, missing))}, it has {list(rows)}")
    if isinstance(pairs, bool) or not isinstance(pairs, int) or pairs < 1:
        raise ValueError(f"pairs must be a whole number >= 1, not {pairs!r}")
    if isinstance(table, str):
        table = TranslationTable.load(table)
    table = reranker.table if table is None else table
    if table is None:
        raise ValueError("table is missing: the re-ranker has none that would say which words are translations")
    queries, documents = texts_of(rows, "query"), texts_of(rows, reranker.text_field)
    scorer = reranker.scorer()
    own = scorer.encoder
    linker = WordLinker(
        table, threshold=reranker.threshold, top_k=reranker.top_k, identity=reranker.identity_matches,
        relate=reranker.relate, stop=reranker.stop,
    )  # fmt: skip
    # The same tokens and passages, but the words of the table.
    linked = PairEncoder(own.tokenizer, linker, own.max_length, own.document_tokens)
    sums = _Sums(scorer.model.config.num_hidden_layers + 1)
    with pt.tqdm(total=len(rows), desc="translation gap", unit="row", disable=not verbose) as bar:
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            seen, compared = own.pairs(queries[part], documents[part]), linked.pairs(queries[part], documents[part])
            order = np.argsort([-pair.longest for pair in seen], kind="stable")
            at = 0
            while at < len(order):
                chosen = order[at : at + scorer.fitting(seen, order[at:])]
                at += len(chosen)
                here = [compared[i] for i in chosen]
                words = words_of_batch(linked, here, linked.batch(here))
                drawn = _draw(words, here, [np.random.default_rng([seed, start + int(i)]) for i in chosen], pairs)
                if len(drawn.rows):
                    batch = own.batch([seen[i] for i in chosen]).to(scorer.device)
                    with torch.inference_mode():
                        states = scorer.model(**batch.inputs(), output_hidden_states=True).hidden_states
                        sums.add(drawn, _similarities(states, words, drawn))
                    del states
                bar.update(len(chosen))
    return sums.result(len(rows), table)


class BatchWords(NamedTuple):
    """The words of a batch and the links between them, read from the translation attention that a model is given.

    Words have their numbers in :class:`~pyterrier_mart.mart.attention.TranslationAttention`.

    Attributes:
        tokens: int64 of shape (passages, n): the word of each token.
        passages: int64 of shape (words,): the passage of each word; -1 for tokens that are part of no word.
        sides: int64 of shape (words,): 0 in a query, 1 in a document.
        places: int64 of shape (words,): its number in the query or document.
        links: int64 of shape (links, 2): a word of a query and a word of a document.
        probabilities: float32 of shape (links,).
    """

    tokens: npt.NDArray[np.int64]
    passages: npt.NDArray[np.int64]
    sides: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    links: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float32]


def words_of_batch(encoder: PairEncoder, pairs: Sequence[Pair], batch: Batch) -> BatchWords:
    """Finds the words of a batch again.

    Args:
        encoder: What made the batch; it must have a linker.
        pairs: The rows that it is made of.
        batch: The batch.
    """
    translation = batch.translation
    if translation is None:
        raise ValueError("the batch has no translation attention")
    tokens = translation.words.cpu().numpy().reshape(batch.input_ids.shape)
    passages, sides, places = (np.full(len(translation.scale), -1, np.int64) for _ in range(3))
    line = 0
    for query, document, cuts in pairs:
        first = len(encoder.template.before)
        second = first + len(query.ids) + len(encoder.template.between)
        for start, end in zip(cuts, cuts[1:], strict=False):
            for side, at, words in ((0, first, query.words), (1, second, document.words[start:end])):
                real = words >= 0
                found = tokens[line, at : at + len(words)][real]
                passages[found], sides[found], places[found] = line, side, words[real]
            line += 1
    links = np.stack([translation.rows.cpu().numpy(), translation.columns.cpu().numpy()], axis=1)
    forth = sides[links[:, 0]] == 0  # every link is there in both directions
    return BatchWords(tokens, passages, sides, places, links[forth], translation.weights.cpu().numpy()[forth])


class _Drawn(NamedTuple):
    """Pairs of words to compare: the row of each in the batch, its words, and whether they are translations."""

    rows: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]  # (pairs, 2)
    translated: npt.NDArray[np.bool_]


def _draw(words: BatchWords, pairs: Sequence[Pair], generators: Sequence[np.random.Generator], most: int) -> _Drawn:
    rows: list[int] = []
    chosen: list[npt.NDArray[np.int64]] = []
    translated: list[int] = []
    line = 0
    of_link = words.passages[words.links[:, 0]] if len(words.links) else np.empty(0, np.int64)
    for row, (pair, generator) in enumerate(zip(pairs, generators, strict=True)):
        lines = range(line, line + pair.passages)
        line += pair.passages
        here = np.flatnonzero((of_link >= lines.start) & (of_link < lines.stop))
        if not len(here):
            continue
        links = words.links[here]
        # By query word, the most probable first, then the first in the document; the first of each query word.
        order = np.lexsort((links[:, 1], -words.probabilities[here], words.places[links[:, 0]]))
        _, firsts = np.unique(words.places[links[order, 0]], return_index=True)
        best = links[order[firsts]]
        free = _not_linked(words, lines, links)
        if not len(free):
            continue
        others = free[generator.choice(len(free), min(most, len(free)), replace=False)]
        rows += [row] * (len(best) + len(others))
        chosen += [best, others]
        translated += [True] * len(best) + [False] * len(others)
    return _Drawn(
        np.array(rows, np.int64), np.concatenate(chosen or [np.empty((0, 2), np.int64)]), np.array(translated, bool)
    )  # fmt: skip


def _not_linked(words: BatchWords, lines: range, links: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the pairs of a query word and a document word of a row's passages that are not linked."""
    out = []
    for line in lines:
        first, last = words.tokens[line, 0], words.tokens[line, -1] + 1  # numbers rise through the batch
        query, document = (first + np.flatnonzero(words.sides[first:last] == side) for side in (0, 1))
        free = np.ones((len(query), len(document)), bool)
        own = links[words.passages[links[:, 0]] == line]
        free[np.searchsorted(query, own[:, 0]), np.searchsorted(document, own[:, 1])] = False
        a, b = np.nonzero(free)
        out.append(np.stack([query[a], document[b]], axis=1))
    return np.concatenate(out)


def _similarities(states: Sequence[torch.Tensor], words: BatchWords, drawn: _Drawn) -> npt.NDArray[np.float64]:
    """Returns the cosine similarity of each pair in each layer, (layers, pairs)."""
    device = states[0].device
    numbers = torch.from_numpy(words.tokens.ravel()).to(device)
    left, right = (torch.from_numpy(drawn.words[:, side].copy()).to(device) for side in (0, 1))
    out = []
    for state in states:
        # The sum of a word's pieces has the direction of their mean.
        flat = state.reshape(-1, state.shape[-1]).float()
        vectors = flat.new_zeros(len(words.passages), flat.shape[1]).index_add(0, numbers, flat)
        out.append(torch.nn.functional.cosine_similarity(vectors[left], vectors[right]).double().cpu().numpy())
    return np.stack(out)


class _Sums:
    """Sums over rows of their mean similarities."""

    def __init__(self, layers: int):
        self.sums = np.zeros((2, layers))  # random pairs, translations
        self.counts = [0, 0]
        self.rows = 0

    def add(self, drawn: _Drawn, similarities: npt.NDArray[np.float64]) -> None:
        self.rows += len(np.unique(drawn.rows))
        for kind in (0, 1):
            of_kind = drawn.translated == bool(kind)
            self.counts[kind] += int(of_kind.sum())
            shares = 1 / np.bincount(drawn.rows[of_kind])[drawn.rows[of_kind]]
            self.sums[kind] += similarities[:, of_kind] @ shares

    def result(self, rows: int, table: TranslationTable) -> TranslationGap:
        if not self.rows:
            raise ValueError(
                f"none of {rows} rows has a pair of words that the {'-'.join(table.languages)} table links and one "
                "that it does not: are query and text in these languages?"
            )
        random, translated = (tuple(map(float, means)) for means in self.sums / self.rows)
        return TranslationGap(translated, random, self.counts[1], self.counts[0], self.rows)
