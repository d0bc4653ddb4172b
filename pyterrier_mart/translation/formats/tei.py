"""Dictionaries in TEI XML, which FreeDict's other formats are made from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO
from xml.etree.ElementTree import Element

from pyterrier_mart.translation.builder import TableBuilder
from pyterrier_mart.translation.formats.markup import records
from pyterrier_mart.translation.formats.terms import terms

__all__ = ["read_tei"]

#: An entry, and a related entry within one, which stands for itself.
_ENTRIES = frozenset({"entry", "re"})
_HEADWORDS = ("form", "orth")
_TRANSLATIONS = ("trans", "translation")
#: What is about the translations: examples and their translations, notes, definitions, references, grammar.
_ASIDES = frozenset({"note", "def", "xr", "gramGrp", "usg", "etym", "eg"})
_DEFINITION = "def"


def read_tei(stream: IO[bytes], builder: TableBuilder) -> None:
    """Adds the headwords and translations of a dictionary, with equal weights.

    Headwords are the ``orth`` in each ``form`` of an ``entry``, spelling variants and inflected forms included;
    translations are the ``quote`` in each ``cit`` of type ``trans``, outside examples (in older files, the ``tr`` in
    each ``trans``). Entries without any, as in the Swahili dictionary, have translations in ``def``.

    Args:
        stream: The file.
        builder: Takes the entries and what is malformed.

    Raises:
        TableFormatError: If the XML is not well-formed or hostile (unless skipped where possible).
    """
    for line, entry in records(stream, builder, builder.where, _ENTRIES):
        sources = [source for orth in _headwords(entry) for source in terms(orth)]
        quotes = list(_translations(entry, False)) or [_text(found) for found in entry.iter(_DEFINITION)]
        targets = {target for quote in quotes for target in terms(quote)}
        for source in dict.fromkeys(sources):
            for target in sorted(targets):
                builder.add(source, target, 1.0, line)


def _headwords(entry: Element) -> Iterator[str]:
    for form in entry.iter(_HEADWORDS[0]):
        for orth in form.findall(_HEADWORDS[1]):
            yield _text(orth)


def _translations(element: Element, translated: bool) -> Iterator[str]:
    for inner in element:
        kind = inner.get("type", "")
        if inner.tag in _ASIDES or inner.tag == "form" or (inner.tag == "cit" and kind.startswith("example")):
            continue
        if translated and inner.tag in ("quote", "tr"):
            yield _text(inner)
        else:
            here = inner.tag == "trans" or (inner.tag == "cit" and kind in _TRANSLATIONS)
            yield from _translations(inner, translated or here)


def _text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())
