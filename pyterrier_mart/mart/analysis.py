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
from pyterrier_mart.checks import check_choice, check_columns, check_whole
from pyterrier_mart.frames import texts_of
from pyterrier_mart.mart.encoding import BatchWords, Pair, PairEncoder
from pyterrier_mart.mart.reranker import MARTReRanker
from pyterrier_mart.translation import TranslationTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TranslationGap", "gap_plot", "translation_gap"]

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
        frame = pd.DataFrame({"translated": self.translated, "random": self.random, "gap": self.gap})
        frame.insert(0, "layer", range(len(frame)))
        return frame.assign(n_translated=self.n_translated, n_random=self.n_random)

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
        return plot_lines(lines, "mean cosine similarity", path, title)


def gap_plot(gaps: Mapping[str, TranslationGap], path: str | Path | None = None, title: str | None = None) -> Figure:
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
        raise ValueError("gaps must hold at least one system")
    lines = {name: gap.gap for name, gap in gaps.items()}
    return plot_lines(lines, "translation gap (difference of cosine similarities)", path, title)


def plot_lines(lines: Mapping[str, Sequence[float]], what: str, path: str | Path | None, title: str | None) -> Figure:
    """Draws a line for each system by layer."""
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
    links: str = "best",
    seed: int = 42,
    verbose: bool = False,
) -> TranslationGap:
    """Measures how alike a model sees words that are translations of each other, layer by layer.

    A word's vector is the mean of the hidden states of its pieces, in a passage that holds query and document. Two
    kinds of pairs of a query word and a document word are compared by cosine similarity:

    - translations: for each query word, its best link of M^tr in the row, that is, the word of the document that is
      its translation with the highest probability (the first of equals). Weaker links are left out, since a table that
      was learnt from text has a long tail of them; ``links="all"`` takes all that M^tr has in the row;
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
        pairs: Maximum number of random pairs for each row.
        links: Which translations are compared: each query word's ``"best"`` link, or ``"all"`` links.
        seed: Of the random pairs.
        verbose: Whether to show a progress bar.

    Raises:
        ValueError: If there is no table, a column is missing, ``pairs`` is less than 1, there are no such
            ``links``, or no row has translations.
    """
    check_columns("rows", rows, ("query", reranker.text_field))
    check_whole("pairs", pairs)
    check_choice("links", links, ("best", "all"))
    if isinstance(table, str):
        table = TranslationTable.load(table)
    table = reranker.table if table is None else table
    if table is None:
        raise ValueError("table is missing: the re-ranker has none that would say which words are translations")
    queries, documents = texts_of(rows, "query"), texts_of(rows, reranker.text_field)
    scorer = reranker.scorer()
    own = scorer.encoder
    # The same tokens and passages, but the words of the table.
    linked = PairEncoder(own.tokenizer, reranker.linker(table), own.max_length, own.document_tokens)
    sums = np.zeros((2, scorer.model.config.num_hidden_layers + 1))  # over rows, of random pairs and translations
    numbers, counted = [0, 0], 0
    with pt.tqdm(total=len(rows), desc="translation gap", unit="row", disable=not verbose) as bar:
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            seen, compared = own.pairs(queries[part], documents[part]), linked.pairs(queries[part], documents[part])
            for chosen in scorer.batches(seen):
                here = [compared[i] for i in chosen]
                words = linked.batch(here).words
                assert words is not None
                generators = [np.random.default_rng([seed, start + int(i)]) for i in chosen]
                drawn = draw(words, here, generators, pairs, links)
                if len(drawn.rows):
                    with torch.inference_mode():
                        inputs = own.batch([seen[i] for i in chosen]).inputs(scorer.device)
                        states = scorer.model(**inputs, output_hidden_states=True).hidden_states
                        found = similarities(states, words, drawn)
                    counted += len(np.unique(drawn.rows))
                    for kind in (0, 1):
                        of_kind = drawn.translated == bool(kind)
                        numbers[kind] += int(of_kind.sum())
                        rows_of = drawn.rows[of_kind]
                        sums[kind] += found[:, of_kind] @ (1 / np.bincount(rows_of)[rows_of])
                    del states
                bar.update(len(chosen))
    if not counted:
        raise ValueError(
            f"none of {len(rows)} rows has a pair of words that the {'-'.join(table.languages)} table links and one "
            "that it does not: are query and text in these languages?"
        )
    random, translated = (tuple(map(float, means)) for means in sums / counted)
    return TranslationGap(translated, random, numbers[1], numbers[0], counted)


class Drawn(NamedTuple):
    """Pairs of words to compare: the row of each in the batch, its words, and whether they are translations."""

    rows: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]  # (pairs, 2)
    translated: npt.NDArray[np.bool_]


def draw(
    words: BatchWords, pairs: Sequence[Pair], generators: Sequence[np.random.Generator], most: int, which: str
) -> Drawn:
    """Draws the pairs of words to compare from the rows of a batch, with a generator for each."""
    rows: list[int] = []
    chosen: list[npt.NDArray[np.int64]] = [np.empty((0, 2), np.int64)]
    translated: list[bool] = []
    line = 0
    of_link = words.passages[words.links[:, 0]]
    for row, (pair, generator) in enumerate(zip(pairs, generators, strict=True)):
        lines = range(line, line + pair.passages)
        line += pair.passages
        here = np.flatnonzero((of_link >= lines.start) & (of_link < lines.stop))
        links = words.links[here]
        compared, free = links, not_linked(words, lines, links)
        if which == "best":
            # By query word, the most probable first, then the first in the document; the first of each query word.
            order = np.lexsort((links[:, 1], -words.probabilities[here], words.places[links[:, 0]]))
            _, firsts = np.unique(words.places[links[order, 0]], return_index=True)
            compared = links[order[firsts]]
        if len(compared) and len(free):
            others = free[generator.choice(len(free), min(most, len(free)), replace=False)]
            rows += [row] * (len(compared) + len(others))
            chosen += [compared, others]
            translated += [True] * len(compared) + [False] * len(others)
    return Drawn(np.array(rows, np.int64), np.concatenate(chosen), np.array(translated, bool))


def not_linked(words: BatchWords, lines: range, links: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
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


def similarities(states: Sequence[torch.Tensor], words: BatchWords, drawn: Drawn) -> npt.NDArray[np.float64]:
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
