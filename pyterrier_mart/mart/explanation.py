"""What a score is made of: the words that attend to each other as translations, and the scores of the passages."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from pyterrier_mart.mart.analysis import words_of_batch
from pyterrier_mart.mart.encoding import Batch, Pair, PairEncoder, without_surrogates
from pyterrier_mart.mart.reranker import MARTReRanker

__all__ = ["ExplainedLink", "ExplainedPassage", "ExplainedWord", "Explanation", "explain"]

_RIGHT_TO_LEFT = frozenset({"ar", "he", "fa", "ur"})
_SHOWN_UNREAD = 300  # characters of what is not read
_SHOWN_LINKS = 5  # in the short form
_SHOWN_TEXT = 40  # characters, in the short form
_STRIPES = 3  # colours of one word at most
# Neither light nor dark, so that the text stays readable on them in both themes.
_COLOURS = ("76,120,168", "245,133,24", "84,162,75", "228,87,86", "178,121,162", "30,150,150", "157,117,93",
            "200,160,20", "214,39,140", "110,110,220")  # fmt: skip


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
            f"{_count(len(self.passages), 'passage')}, {_count(len(self.links), 'link')}{shown and f' ({shown})'}",
            *self.notes,
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _Html(self).page()


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


# ------------------------------------------------------------------------------------------------------------ as text


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 3] + "..."


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _direction(text: str, language: str | None) -> str:
    if language in _RIGHT_TO_LEFT:
        return "rtl"
    for char in text:
        kind = unicodedata.bidirectional(char)
        if kind in ("L", "R", "AL"):
            return "ltr" if kind == "L" else "rtl"
    return "ltr"


# ------------------------------------------------------------------------------------------------------------ as HTML


class _Mark(NamedTuple):
    start: int
    end: int
    style: str
    title: str


class _Html:
    """Makes HTML of an explanation. Only style attributes: they survive where style sheets and scripts do not."""

    def __init__(self, explanation: Explanation):
        self.explained = explanation
        self.of_query: dict[int, list[ExplainedLink]] = {}
        self.of_document: dict[int, list[ExplainedLink]] = {}
        for link in sorted(explanation.links, key=lambda link: -link.probability):
            self.of_query.setdefault(link.query, []).append(link)
            self.of_document.setdefault(link.document, []).append(link)
        # The same word twice in the query has one colour.
        names: dict[str, int] = {}
        self.colours = {
            i: _COLOURS[names.setdefault(word.text.casefold(), len(names)) % len(_COLOURS)]
            for i, word in enumerate(explanation.query_words)
            if i in self.of_query
        }

    def page(self) -> str:
        e = self.explained
        source, target = e.languages or (None, None)
        parts = [_element("div", f"score <b>{e.score:.4f}</b>", "margin-bottom:4px")]
        parts += [_element("div", _escape(note), "font-style:italic;opacity:.75") for note in e.notes]
        query = _marked(e.query, 0, len(e.query), self._query_marks())
        parts.append(_block("query", "", query, _direction(e.query, source)))
        marks = self._document_marks()
        direction = _direction(e.text, target)
        for number, passage in enumerate(e.passages, 1):
            body = _marked(e.text, passage.start, passage.end, marks)
            parts.append(_block(f"passage {number}", _bar(passage.score), body, direction))
        rest = e.text[e.passages[-1].end :]
        if rest.strip():
            shown = _escape(rest[:_SHOWN_UNREAD]) + "…" * (len(rest) > _SHOWN_UNREAD)
            block = _block("not read", _escape(_count(len(rest), "character")), shown, direction)
            parts.append(_element("div", block, "opacity:.45"))
        if e.query_words:
            legend = "same colour: translations, the stronger the more probable; dashed: no translation in the text"
            parts.append(_element("div", legend, "margin-top:6px;font-size:85%;opacity:.7"))
        # $ would begin a formula in notebooks.
        style = "line-height:1.7;max-width:60em;overflow-wrap:anywhere"
        return f'<div class="tex2jax_ignore mathjax_ignore" style="{style}">{"".join(parts)}</div>'

    def _query_marks(self) -> list[_Mark]:
        marks = []
        for i, word in enumerate(self.explained.query_words):
            links = self.of_query.get(i)
            if links:
                pairs = dict.fromkeys((self._document_word(link), link.probability) for link in links)
                title = "; ".join(f"{word.text} → {text}: {p:.3g}" for text, p in pairs)
                marks.append(_Mark(word.start, word.end, _shade([(self.colours[i], links[0].probability)]), title))
            else:
                title = "no translation in the text" if word.passages else "cut off, not read"
                marks.append(_Mark(word.start, word.end, "border-bottom:1px dashed currentColor;opacity:.65", title))
        return marks

    def _document_marks(self) -> list[_Mark]:
        marks = []
        for i, links in sorted(self.of_document.items()):
            word = self.explained.document_words[i]
            names = dict.fromkeys((self.explained.query_words[link.query].text, link.probability) for link in links)
            title = "; ".join(f"{text} → {word.text}: {p:.3g}" for text, p in names)
            colours: dict[str, float] = {}
            for link in links:
                colours.setdefault(self.colours[link.query], link.probability)
            marks.append(_Mark(word.start, word.end, _shade(list(colours.items())[:_STRIPES]), title))
        return marks

    def _document_word(self, link: ExplainedLink) -> str:
        return self.explained.document_words[link.document].text


def _escape(text: str) -> str:
    return html.escape(without_surrogates(text))


def _element(name: str, content: str, style: str, title: str = "", direction: str = "") -> str:
    more = f' title="{_escape(title)}"' if title else ""
    more += f' dir="{direction}"' if direction else ""
    return f'<{name} style="{style}"{more}>{content}</{name}>'


def _block(label: str, more: str, body: str, direction: str) -> str:
    head = _element("div", f"{label} {more}", "font-size:85%;opacity:.75")
    text = _element("div", body, "white-space:pre-wrap", direction=direction)
    return _element("div", head + text, "margin:6px 0;padding-left:8px;border-left:3px solid rgba(128,128,128,.4)")


def _bar(score: float) -> str:
    """The logistic function of a score as the length of a bar."""
    width = 100 / (1 + math.exp(-max(-700.0, min(700.0, score))))
    inner = _element("span", "", f"display:block;height:100%;width:{width:.1f}%;background-color:rgb(76,120,168)")
    outer = "display:inline-block;vertical-align:middle;width:80px;height:8px;background-color:rgba(128,128,128,.3)"
    return f"{score:.4f} " + _element("span", inner, outer, title="logistic function of the score, from 0 to 1")


def _shade(colours: Sequence[tuple[str, float]]) -> str:
    """The background of a word, in stripes if it has several colours."""
    shades = [f"rgba({colour},{0.12 + 0.48 * probability:.2f})" for colour, probability in colours]
    style = "border-radius:3px;padding:0 2px;"
    if len(shades) == 1:
        return f"{style}background-color:{shades[0]}"
    edges = [100 * i / len(shades) for i in range(len(shades) + 1)]
    stops = ",".join(f"{shade} {a:.0f}% {b:.0f}%" for shade, a, b in zip(shades, edges, edges[1:], strict=False))
    return f"{style}background-image:linear-gradient(to right,{stops})"


def _marked(text: str, start: int, end: int, marks: Iterable[_Mark]) -> str:
    """Returns a part of a text with marks, escaped."""
    out, at = [], start
    for mark in marks:
        first, last = max(mark.start, at), min(mark.end, end)
        if first < last:
            out += [_escape(text[at:first]), _element("span", _escape(text[first:last]), mark.style, mark.title)]
            at = last
    out.append(_escape(text[at:end]))
    return "".join(out)
