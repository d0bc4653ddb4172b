"""What a score is made of: the words that attend to each other as translations, and the scores of the passages."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch

from pyterrier_mart.characters import without_surrogates
from pyterrier_mart.mart.attention import Words
from pyterrier_mart.mart.encoding import BatchWords
from pyterrier_mart.mart.inference import Scorer

__all__ = ["ExplainedLink", "ExplainedPassage", "ExplainedWord", "Explanation", "explain"]

_SHOWN_LINKS = 5  # in the short form
_SHOWN_TEXT = 40  # characters, in the short form
_SHOWN_UNREAD = 300  # characters of what is not read
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
            (q.text, d.text, probability, d.passages[0], q.start, q.end, d.start, d.end)
            for q, d, probability in self.linked()
        ]
        types = {"query_word": "str", "document_word": "str", "probability": "float64", "passage": "int64"}
        offsets = ("query_start", "query_end", "document_start", "document_end")
        frame = pd.DataFrame(rows, columns=[*types, *offsets])
        return frame.astype({**types, **dict.fromkeys(offsets, "int64")})

    def linked(self) -> list[tuple[ExplainedWord, ExplainedWord, float]]:
        """Returns the links as a word of the query, a word of the document, and a probability."""
        return [(self.query_words[link.query], self.document_words[link.document], link.probability)
                for link in self.links]  # fmt: skip

    def __repr__(self) -> str:
        best = sorted(self.linked(), key=lambda link: -link[2])
        pairs = list(dict.fromkeys(f"{q.text} → {d.text} {probability:.2f}" for q, d, probability in best))
        shown = ", ".join(pairs[:_SHOWN_LINKS]) + ", ..." * (len(pairs) > _SHOWN_LINKS)
        query, text = (
            repr(text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 3] + "...")
            for text in (self.query, self.text)
        )
        first = (
            f"Explanation of {query} and {text}: score {self.score:.4f}, {count(len(self.passages), 'passage')}, "
            f"{count(len(self.links), 'link')}{shown and f' ({shown})'}"
        )
        return "\n".join([first, *self.notes])

    def _repr_html_(self) -> str:
        return page(self)


def count(n: int, what: str) -> str:
    """Returns a number of something in words."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def explain(
    scorer: Scorer, query: str, text: str, languages: tuple[str, str] | None = None, notes: Sequence[str] = ()
) -> Explanation:
    """Shows what the score of a query and a text is made of.

    Args:
        scorer: What scores.
        query: A query in the source language.
        text: The text of a document in the target language.
        languages: The languages of query and text.
        notes: What to know about the model.

    Raises:
        ValueError: If one is not text, or the score is not finite (the model's weights are damaged).
    """
    for name, value in (("query", query), ("text", text)):
        if not isinstance(value, str):
            raise ValueError(f"{name} must be text, not {value!r}")
    encoder = scorer.encoder
    (pair,) = encoder.pairs([query], [text])
    batch = encoder.batch([pair])
    with torch.inference_mode():
        out = scorer.model(**batch.inputs(scorer.device))
        score, scores = float(out.scores.double().cpu()[0]), out.passages.double().cpu().tolist()
    if not math.isfinite(score):
        raise ValueError("the score is not finite: the model's weights are damaged")

    passages = []
    for first, last, value in zip(pair.cuts, pair.cuts[1:], scores, strict=False):
        starts, ends = pair.document.starts[first:last], pair.document.ends[first:last]
        start, end = (int(starts[0]), int(ends.max())) if last > first else (0, 0)
        start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokens begin with the space before them
        passages.append(ExplainedPassage(start, end, value))
    notes = list(notes)
    read = int(pair.query.ends.max(initial=0))
    if len(pair.query.ids) == encoder.query_tokens and query[read:].strip():
        notes.append(f"only the first {read} characters of the query are read")
    read = passages[-1].end
    if len(pair.document.ids) == encoder.document_tokens and text[read:].strip():
        notes.append(
            f"only the first {read} of {len(text)} characters of the text are read ({encoder.document_tokens} tokens)"
        )
    links: dict[tuple[int, int], float] = {}  # a word in two passages is linked in both
    if (found := batch.words) is not None:
        keys = map(tuple, found.places[found.links].tolist())
        links = dict(zip(keys, found.probabilities.tolist(), strict=True))
    explained = tuple(ExplainedLink(*key, probability) for key, probability in sorted(links.items()))
    query_words = explained_words(query, pair.query.spans, found, 0)
    words = explained_words(text, pair.document.spans, found, 1)
    return Explanation(query, text, score, tuple(passages), query_words, words, explained, tuple(notes), languages)


def explained_words(text: str, spans: Words, found: BatchWords | None, side: int) -> tuple[ExplainedWord, ...]:
    """Returns the words of a query (side 0) or document (side 1) and the passages that they are in."""
    if found is None:
        return ()
    places = [np.flatnonzero((found.sides == side) & (found.places == i)) for i in range(len(spans.keys))]
    return tuple(
        ExplainedWord(text[start:end], start, end, tuple(found.passages[here].tolist()))
        for start, end, here in zip(spans.starts.tolist(), spans.ends.tolist(), places, strict=True)
    )


# --- HTML for notebooks: only style attributes, which survive where style sheets and scripts do not -------------------


# A part of a text with a style of its own: start, end, style, and what is shown when the mouse points at it.
Mark: TypeAlias = "tuple[int, int, str, str]"


def page(explained: Explanation) -> str:
    """Returns an explanation as a piece of HTML that needs no style sheet and no script."""
    query_marks, document_marks = marks(explained)
    parts = [element("div", f"score <b>{explained.score:.4f}</b>", "margin-bottom:4px")]
    parts += [element("div", escape(note), "font-style:italic;opacity:.75") for note in explained.notes]
    parts.append(block("query", marked(explained.query, 0, len(explained.query), query_marks)))
    for number, (start, end, score) in enumerate(explained.passages, 1):
        # The logistic function of the score as the length of a bar.
        width = 100 / (1 + math.exp(-max(-700.0, min(700.0, score))))
        inner = element("span", "", f"display:block;height:100%;width:{width:.1f}%;background-color:rgb(76,120,168)")
        outer = "display:inline-block;vertical-align:middle;width:80px;height:8px;background-color:rgba(128,128,128,.3)"
        bar = element("span", inner, outer, title="logistic function of the score, from 0 to 1")
        parts.append(block(f"passage {number} {score:.4f} {bar}", marked(explained.text, start, end, document_marks)))
    rest = explained.text[explained.passages[-1].end :]
    if rest.strip():
        shown = escape(rest[:_SHOWN_UNREAD]) + "…" * (len(rest) > _SHOWN_UNREAD)
        parts.append(element("div", block(f"not read {count(len(rest), 'character')}", shown), "opacity:.45"))
    if explained.query_words:
        legend = "same colour: translations, the stronger the more probable; dashed: no translation in the text"
        parts.append(element("div", legend, "margin-top:6px;font-size:85%;opacity:.7"))
    # $ would begin a formula in notebooks.
    style = "line-height:1.7;max-width:60em;overflow-wrap:anywhere"
    return f'<div class="tex2jax_ignore mathjax_ignore" style="{style}">{"".join(parts)}</div>'


def marks(explained: Explanation) -> tuple[list[Mark], list[Mark]]:
    """Returns the marks of the query and of the text: linked words have the same colour."""
    of_query: dict[int, list[ExplainedLink]] = {}
    of_document: dict[int, list[ExplainedLink]] = {}
    for link in sorted(explained.links, key=lambda link: -link.probability):
        of_query.setdefault(link.query, []).append(link)
        of_document.setdefault(link.document, []).append(link)
    names: dict[str, int] = {}  # the same word twice in the query has one colour
    colours: dict[int, str] = {}
    query_marks, document_marks = [], []
    for i, word in enumerate(explained.query_words):
        if links := of_query.get(i):
            colours[i] = _COLOURS[names.setdefault(word.text.casefold(), len(names)) % len(_COLOURS)]
            pairs = dict.fromkeys((explained.document_words[link.document].text, link.probability) for link in links)
            title = "; ".join(f"{word.text} → {text}: {probability:.3g}" for text, probability in pairs)
            style = shade({colours[i]: links[0].probability})
        else:
            title = "no translation in the text" if word.passages else "cut off, not read"
            style = "border-bottom:1px dashed currentColor;opacity:.65"
        query_marks.append((word.start, word.end, style, title))
    for i, links in sorted(of_document.items()):
        word = explained.document_words[i]
        pairs = dict.fromkeys((explained.query_words[link.query].text, link.probability) for link in links)
        title = "; ".join(f"{text} → {word.text}: {probability:.3g}" for text, probability in pairs)
        shades = {colours[link.query]: link.probability for link in reversed(links)}
        document_marks.append((word.start, word.end, shade(shades), title))
    return query_marks, document_marks


def shade(colours: dict[str, float]) -> str:
    """Returns the background of a word, in stripes if it has several colours, the most probable first."""
    best = sorted(colours.items(), key=lambda item: -item[1])[:_STRIPES]
    shades = [f"rgba({colour},{0.12 + 0.48 * probability:.2f})" for colour, probability in best]
    edges = [100 * i / len(shades) for i in range(len(shades) + 1)]
    stops = ",".join(f"{shade} {a:.0f}% {b:.0f}%" for shade, a, b in zip(shades, edges, edges[1:], strict=False))
    return f"border-radius:3px;padding:0 2px;background-image:linear-gradient(to right,{stops})"


def marked(text: str, start: int, end: int, marks: Iterable[Mark]) -> str:
    """Returns a part of a text with marks, escaped."""
    out, at = [], start
    for first, last, style, title in marks:
        first, last = max(first, at), min(last, end)
        if first < last:
            out += [escape(text[at:first]), element("span", escape(text[first:last]), style, title)]
            at = last
    out.append(escape(text[at:end]))
    return "".join(out)


def escape(text: str) -> str:
    """Returns text that stands for itself in HTML."""
    return html.escape(without_surrogates(text))


def element(name: str, content: str, style: str, title: str = "") -> str:
    """Returns an element around HTML."""
    more = f' title="{escape(title)}"' if title else ""
    return f'<{name} style="{style}"{more}>{content}</{name}>'


def block(head: str, body: str) -> str:
    """Returns a text, whose direction follows from its first letter, below a headline."""
    text = f'<div dir="auto" style="white-space:pre-wrap">{body}</div>'
    style = "margin:6px 0;padding-left:8px;border-left:3px solid rgba(128,128,128,.4)"
    return element("div", element("div", head, "font-size:85%;opacity:.75") + text, style)
