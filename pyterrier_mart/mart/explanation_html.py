"""An explanation as HTML for notebooks."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyterrier_mart.mart.encoding import without_surrogates
from pyterrier_mart.mart.explanation import ExplainedLink, Explanation, count

__all__ = ["as_html"]

_RIGHT_TO_LEFT = frozenset({"ar", "he", "fa", "ur"})
_SHOWN_UNREAD = 300  # characters of what is not read
_STRIPES = 3  # colours of one word at most
# Neither light nor dark, so that the text stays readable on them in both themes.
_COLOURS = ("76,120,168", "245,133,24", "84,162,75", "228,87,86", "178,121,162", "30,150,150", "157,117,93",
            "200,160,20", "214,39,140", "110,110,220")  # fmt: skip


def as_html(explanation: Explanation) -> str:
    """Returns an explanation as a piece of HTML that needs no style sheet and no script."""
    return _Html(explanation).page()


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
            block = _block("not read", _escape(count(len(rest), "character")), shown, direction)
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


def _direction(text: str, language: str | None) -> str:
    if language in _RIGHT_TO_LEFT:
        return "rtl"
    for char in text:
        kind = unicodedata.bidirectional(char)
        if kind in ("L", "R", "AL"):
            return "ltr" if kind == "L" else "rtl"
    return "ltr"
