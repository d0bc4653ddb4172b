"""What a score is made of: the words that attend to each other as translations, and the scores of the passages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from pyterrier_mart.mart.analysis import words_of_batch
from pyterrier_mart.mart.encoding import Batch, Pair, PairEncoder
from pyterrier_mart.mart.reranker import MARTReRanker

__all__ = ["ExplainedLink", "ExplainedPassage", "ExplainedWord", "Explanation", "explain"]

_SHOWN_LINKS = 5  # in the short form
_SHOWN_TEXT = 40  # characters, in the short form


class ExplainedPassage(NamedTuple):
    """A passage of a document.

    Attributes:
        start: Where it begins in the text, in code points.
        end: Where it ends.
        score: The score that it would have on its own. The score of the document is the mean of its passages' (with
            ``pooling="pooler"`` too).
    """

    start: int
    end: int
    score: float


class ExplainedWord(NamedTuple):
    """A word that can be linked: not a stop word.

    Attributes:
        text: The word as it stands in the query or text.
        start: Where it begins, in code points.
        end: Where it ends.
        passages: Numbers of the passages that it is in, from 0. Words of the query are in all; words that were cut off
            are in none.
    """

    text: str
    start: int
    end: int
    passages: tuple[int, ...]


class ExplainedLink(NamedTuple):
    """A word of the query and a word of the document that attend to each other.

    Attributes:
        query: Position of the query's word in :attr:`Explanation.query_words`.
        document: Position of the document's word in :attr:`Explanation.document_words`.
        probability: The probability of the translation.
    """

    query: int
    document: int
    probability: float


@dataclass(frozen=True, repr=False)
class Explanation:
    """What the score of a query and a text is made of. Notebooks show it with linked words in the same colour.

    Links are read from the translation attention that the model is given, so that they are what it sees. Which of them
    matter for the score is the model's secret.

    Attributes:
        query: The query.
        text: The document's text.
        score: What the re-ranker's ``transform`` gives for them.
        passages: The passages that the text is read in.
        query_words: The words of the query that take part in the translation attention; none without such an
            attention.
        document_words: The words of the part of the text that is read.
        links: Which of them are translations of each other, by position in the query, then in the text.
        notes: What to know about the score and the links: that the model has not been trained, that it sees no
            translations, or that a text was cut.
        languages: The languages of query and text, or None without a table.
    """

    query: str
    text: str
    score: float
    passages: tuple[ExplainedPassage, ...]
    query_words: tuple[ExplainedWord, ...]
    document_words: tuple[ExplainedWord, ...]
    links: tuple[ExplainedLink, ...]
    notes: tuple[str, ...]
    languages: tuple[str, str] | None

    def to_frame(self) -> pd.DataFrame:
        """Returns one row for each link, by position in the query, then in the text.

        Columns: query_word, document_word, probability, passage (the first that the document's word is in, from 0),
        and the offsets query_start, query_end, document_start, document_end.
        """
        rows = [
            (q.text, d.text, link.probability, d.passages[0], q.start, q.end, d.start, d.end)
            for link, q, d in ((link, self.query_words[link.query], self.document_words[link.document])
                               for link in self.links)
        ]  # fmt: skip
        types = {"query_word": "str", "document_word": "str", "probability": "float64", "passage": "int64"}
        offsets = ("query_start", "query_end", "document_start", "document_end")
        frame = pd.DataFrame(rows, columns=[*types, *offsets])
        return frame.astype({**types, **dict.fromkeys(offsets, "int64")})

    def __repr__(self) -> str:
        best = sorted(self.links, key=lambda link: -link.probability)
        pairs = dict.fromkeys(
            f"{self.query_words[link.query].text} → {self.document_words[link.document].text} {link.probability:.2f}"
            for link in best
        )
        shown = ", ".join(list(pairs)[:_SHOWN_LINKS]) + ", ..." * (len(pairs) > _SHOWN_LINKS)
        lines = [
            f"Explanation of {_short(self.query)!r} and {_short(self.text)!r}: score {self.score:.4f}, "
            f"{count(len(self.passages), 'passage')}, {count(len(self.links), 'link')}{shown and f' ({shown})'}",
            *self.notes,
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from pyterrier_mart.mart.explanation_html import as_html

        return as_html(self)


def explain(reranker: MARTReRanker, query: str, text: str) -> Explanation:
    """Shows what the score of a query and a text is made of.

    Example::

        >>> explain(rank, "Wo liegt die Katze?", "The cat lies on the sofa.")
        Explanation of 'Wo liegt die Katze?' and 'The cat lies on the sofa.': score 0.6041, 1 passage, 2 links (...)

    Args:
        reranker: The re-ranker.
        query: A query in the source language.
        text: The text of a document in the target language.

    Raises:
        ValueError: If one is not text, or the score is not finite (the model's weights are damaged).
    """
    for name, value in (("query", query), ("text", text)):
        if not isinstance(value, str):
            raise ValueError(f"{name} must be text, not {value!r}")
    scorer = reranker.scorer()
    encoder = scorer.encoder
    (pair,) = encoder.pairs([query], [text])
    batch = encoder.batch([pair])
    with torch.inference_mode():
        out = scorer.model(**batch.to(scorer.device).inputs())
        score, scores = float(out.scores.double().cpu()[0]), out.passages.double().cpu().tolist()
    if not math.isfinite(score):
        raise ValueError("the score is not finite: the model's weights are damaged")

    ((_, starts, ends),) = encoder.tokens([text], encoder.document_tokens)
    passages = []
    for first, last, value in zip(pair.cuts, pair.cuts[1:], scores, strict=False):
        start, end = (int(starts[first]), int(ends[first:last].max())) if last > first else (0, 0)
        start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokens begin with the space before them
        passages.append(ExplainedPassage(start, end, value))
    query_words, document_words, links = _words(encoder, pair, batch, query, text, int(ends.max(initial=0)))

    notes = []
    # Saving and loading a model that was not trained gives it weights of its own, but no history.
    if reranker.weights is None or reranker.history is None:
        notes.append("the model has not been trained: its scores mean nothing yet")
    if encoder.linker is None:
        reason = "no MAT layers" if not len(tuple(reranker.mat_layers)) else "placebo"
        notes.append(f"the model sees no translations ({reason}), so there are no links")
    ((ids, _, until),) = encoder.tokens([query], encoder.max_length)
    if len(ids) > len(pair.query.ids):
        notes.append(f"only the first {int(until[: len(pair.query.ids)].max())} characters of the query are read")
    read = passages[-1].end
    if len(starts) == encoder.document_tokens and text[read:].strip():
        notes.append(
            f"only the first {read} of {len(text)} characters of the text are read ({encoder.document_tokens} tokens)"
        )
    languages = reranker.table.languages if reranker.table is not None else None
    return Explanation(
        query, text, score, tuple(passages), query_words, document_words, links, tuple(notes), languages
    )  # fmt: skip


def _words(
    encoder: PairEncoder, pair: Pair, batch: Batch, query: str, text: str, end: int
) -> tuple[tuple[ExplainedWord, ...], tuple[ExplainedWord, ...], tuple[ExplainedLink, ...]]:
    """Reads words and links from a batch."""
    if encoder.linker is None:
        return (), (), ()
    found = words_of_batch(encoder, [pair], batch)
    shown = []
    # The same calls as in the encoder, so that the words have the same numbers.
    for side, string, words in (
        (0, query, encoder.linker.query(query)[0]),
        (1, text, encoder.words_until(text, end)),
    ):
        passages: list[list[int]] = [[] for _ in words.starts]
        for number in np.flatnonzero(found.sides == side):
            passages[found.places[number]].append(int(found.passages[number]))
        spans = zip(words.starts.tolist(), words.ends.tolist(), passages, strict=True)
        shown.append([ExplainedWord(string[a:b], a, b, tuple(where)) for a, b, where in spans])
    if pair.document.keys is not None:
        del shown[1][len(pair.document.keys) :]  # not read
    # A word in two passages is linked in both.
    links = {
        (int(found.places[a]), int(found.places[b])): float(probability)
        for (a, b), probability in zip(found.links, found.probabilities, strict=True)
    }
    return tuple(shown[0]), tuple(shown[1]), tuple(ExplainedLink(*key, p) for key, p in sorted(links.items()))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 3] + "..."


def count(n: int, what: str) -> str:
    """Returns so many of something in words."""
    return f"{n} {what}{'' if n == 1 else 's'}"
