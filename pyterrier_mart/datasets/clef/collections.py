"""The newspapers and agencies of the CLEF ad-hoc track, 2000 to 2009, and how a docno tells them apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["COLLECTIONS", "Collection", "of_docno", "shape_of"]


class Collection(NamedTuple):
    """The documents of a newspaper or agency.

    Attributes:
        key: What this package calls it.
        name: Its name, for people.
        language: ISO 639-1 code of the documents.
        documents: How many documents there are, as CLEF's overviews state it.
        docnos: What its docnos look like, a regular expression.
    """

    key: str
    name: str
    language: str
    documents: int
    docnos: str

    @property
    def licensor(self) -> str:
        """Who licenses the documents."""
        return "the University of Tehran" if self.language == "fa" else "ELRA"

    @property
    def package(self) -> str:
        """What a licence for the documents is called in the licensor's catalogue."""
        if self.language == "fa":
            return "Hamshahri collection"
        if self.language in ("pt", "hu", "bg"):
            return "CLEF AdHoc-News Test Suites (2004-2008) - Evaluation Package"
        return "The CLEF Test Suite for the CLEF 2000-2003 Campaigns - Evaluation Package"


#: Every collection by its key, those of a language together. Docnos are matched by what tells collections apart, and
#: otherwise widely: archives differ in how many digits.
COLLECTIONS: Mapping[str, Collection] = {
    row[0]: Collection(*row)
    for row in (
        ("lat94", "Los Angeles Times 94", "en", 113_005, r"LA\d{4}94-\d+"),
        ("gh95", "Glasgow Herald 95", "en", 56_472, r"GH95\d{4}-\d+"),
        ("lemonde94", "Le Monde 94", "fr", 44_013, r"LEMONDE94-[\d-]+"),
        ("lemonde95", "Le Monde 95", "fr", 47_646, r"LEMONDE95-[\d-]+"),
        ("atsfr94", "French SDA 94", "fr", 43_178, r"ATS\.94\d{4}\.\d+"),
        ("atsfr95", "French SDA 95", "fr", 42_615, r"ATS\.95\d{4}\.\d+"),
        ("fr94", "Frankfurter Rundschau 94", "de", 139_715, r"FR94\d{4}-\d+"),
        ("spiegel", "Der Spiegel 94/95", "de", 13_979, r"SPIEGEL9[45][\d-]+"),
        ("sda94", "German SDA 94", "de", 71_677, r"SDA\.94\d{4}\.\d+"),
        ("sda95", "German SDA 95", "de", 69_438, r"SDA\.95\d{4}\.\d+"),
        ("lastampa94", "La Stampa 94", "it", 58_051, r"LASTAMPA94-[\d-]+"),
        ("agz94", "Italian SDA 94", "it", 50_527, r"AGZ\.94\d{4}\.\d+"),
        ("agz95", "Italian SDA 95", "it", 48_980, r"AGZ\.95\d{4}\.\d+"),
        ("efe94", "EFE 94", "es", 215_738, r"EFE1994\d{4}-\d+"),
        ("efe95", "EFE 95", "es", 238_307, r"EFE1995\d{4}-\d+"),
        ("ad", "Algemeen Dagblad 94/95", "nl", 106_483, r"AD199[45]\d{4}-[\d-]+"),
        ("nrc", "NRC Handelsblad 94/95", "nl", 84_121, r"NH199[45]\d{4}-[\d-]+"),
        ("publico94", "Público 94", "pt", 51_751, r"PUBLICO-1994\d{4}-\d+"),
        ("publico95", "Público 95", "pt", 55_070, r"PUBLICO-1995\d{4}-\d+"),
        ("folha94", "Folha de São Paulo 94", "pt", 51_875, r"FSP94\d{4}-\d+"),
        ("folha95", "Folha de São Paulo 95", "pt", 52_038, r"FSP95\d{4}-\d+"),
        ("aamu", "Aamulehti 94/95", "fi", 55_344, r"AAMU199[4-6]\d{4}-\d+"),  # some of 1996
        ("tt", "Tidningarnas Telegrambyrå 94/95", "sv", 142_819, r"TT9495-[\d-]+"),
        ("izvestia95", "Izvestia 95", "ru", 16_761, r"IZV95\d{4}-\d+"),
        # Initials or the whole name, for packages differ: whatever has these and digits.
        ("magyar02", "Magyar Hírlap 2002", "hu", 49_530, r"(?:MH|MAGYAR|HIRLAP)[A-Z]*[\d._-]+"),
        ("sega02", "Sega 2002", "bg", 33_356, r"SEGA[\d._-]+"),
        ("standart02", "Standart 2002", "bg", 35_839, r"(?:NST|STANDART)[\d._-]+"),
        ("novinar02", "Novinar 2002", "bg", 18_086, r"NOVINAR[\d._-]+"),
        # No open file shows the docnos of this one: taken to begin as its name does.
        ("hamshahri", "Hamshahri 1996-2002", "fa", 166_774, r"HAM[A-Z\d]*[\d._-]+"),
    )
}

_DIGITS = re.compile(r"\d+")
_ANY = re.compile("|".join(f"(?P<{key}>{known.docnos})" for key, known in COLLECTIONS.items()), re.ASCII)


def of_docno(docno: str) -> str | None:
    """Returns the key of the collection that a document belongs to, or None if its docno is of another shape.

    Args:
        docno: The docno, without white space around it.
    """
    match = _ANY.fullmatch(docno)
    return match.lastgroup if match else None


def shape_of(docno: str) -> str:
    """Returns what docnos of a newspaper have in common: NST2002-01-04-052 is of the shape NST9-9-9-9."""
    return _DIGITS.sub("9", docno)
