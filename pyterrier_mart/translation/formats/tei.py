"""Dictionaries in TEI XML, which FreeDict's other formats are made from, and the words that a line of one lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO
from xml.etree.ElementTree import Element

from pyterrier_mart.translation.builder import EntryBuilder
from pyterrier_mart.translation.formats.common import records

__all__ = ["clean", "read_tei", "terms"]

#: An entry, and a related entry within one, which stands for itself.
_ENTRIES = frozenset({"entry", "re"})
_TRANSLATIONS = ("trans", "translation")
#: What is about the translations: examples and their translations, notes, definitions, references, grammar.
_ASIDES = frozenset({"form", "note", "def", "xr", "gramGrp", "usg", "etym", "eg"})

# What is no part of a word: the grammar in <..> and what is glued to it (an abbreviation, a symbol), pronunciation
# /../, field [..], remark or optional part (..), reference {..}, and placeholders of objects ("etw. aufheben" is the
# entry of "aufheben").
_MARKUP = re.compile(
    r"<[^>]*>[^\s,;]*|(?<!\S)/[^/]*/(?!\S)|\[[^]]*\]|\([^)]*\)|\{[^}]*\}|(?<!\w)(?i:jd[nms]?|etw|sb|sth)\.(?:'s)?"
)
_SEPARATOR = re.compile("[,;]")
_ELLIPSIS = ("-", "…", "...")


def read_tei(stream: IO[bytes], builder: EntryBuilder) -> None:
    """Adds the headwords and translations of a dictionary, with equal weights.

    Headwords are the ``orth`` in each ``form`` of an ``entry``, spelling variants and inflected forms included;
    translations are the ``quote`` in each ``cit`` of type ``trans``, outside examples (in older files, the ``tr`` in
    each ``trans``). Entries without any, as in the Swahili dictionary, have translations in ``def``.

    Args:
        stream: The file.
        builder: Takes the entries and what is malformed.

    Raises:
        TableFormatError: If the XML is not well-formed (unless skipped).
    """
    for entry in records(stream, builder, builder.where, _ENTRIES):
        headwords = [orth for form in entry.iter("form") for orth in form.findall("orth")]
        quotes = list(translations_in(entry, False)) or list(entry.iter("def"))
        targets = {target for quote in quotes for target in terms(text_of(quote))}
        for source in dict.fromkeys(source for orth in headwords for source in terms(text_of(orth))):
            for target in sorted(targets):
                builder.add(source, target)


def translations_in(element: Element, translated: bool) -> Iterator[Element]:
    """Yields the translations in an element; ``translated``: whether it is one that holds translations."""
    for inner in element:
        kind = inner.get("type", "")
        if inner.tag in _ASIDES or (inner.tag == "cit" and kind.startswith("example")):
            continue
        if translated and inner.tag in ("quote", "tr"):
            yield inner
        else:
            here = inner.tag == "trans" or (inner.tag == "cit" and kind in _TRANSLATIONS)
            yield from translations_in(inner, translated or here)


def text_of(element: Element) -> str:
    """Returns the text of an element, with single blanks."""
    return " ".join("".join(element.itertext()).split())


def clean(text: str) -> str:
    """Returns a line without grammar, pronunciation, fields, remarks and references."""
    return _MARKUP.sub(" ", text)


def terms(text: str) -> set[str]:
    """Returns what a line lists, separated by commas and semicolons."""
    parts = map(str.strip, _SEPARATOR.split(clean(text)))
    # "Haus…" and "-förmig" are parts of compounds, not words.
    return {part for part in parts if part and not part.startswith(_ELLIPSIS) and not part.endswith(_ELLIPSIS)}
