"""The newspapers and agencies of the CLEF ad-hoc track, 2000 to 2008, and how a document number tells them apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["COLLECTIONS", "Collection", "of_docno"]

_UNTIL_2003 = "The CLEF Test Suite for the CLEF 2000-2003 Campaigns - Evaluation Package"
_FROM_2004 = "CLEF AdHoc-News Test Suites (2004-2008) - Evaluation Package"


@dataclass(frozen=True)
class Collection:
    """The documents of a newspaper or agency.

    Attributes:
        key: What this package calls it.
        name: Its name, for people.
        language: ISO 639-1 code of the documents.
        documents: How many documents there are, as CLEF's overviews state it.
        docnos: What its document numbers look like.
        years: The years that the documents are from.
        package: The package of the ELRA catalogue with a licence for the documents.
    """

    key: str
    name: str
    language: str
    documents: int
    docnos: re.Pattern[str]
    years: tuple[int, ...]
    package: str = _UNTIL_2003

    @property
    def licence(self) -> str:
        """What a user needs for these documents, in one sentence."""
        return f"The documents of {self.name} are licensed by ELRA ({self.package})."


def _collections() -> Mapping[str, Collection]:
    """Numbers are matched by what tells collections apart, and otherwise widely: archives differ in how many digits."""
    found = {}
    for key, name, language, documents, docnos, years in (
        ("lat94", "Los Angeles Times 94", "en", 113_005, r"LA\d{4}94-\d+", (1994,)),
        ("gh95", "Glasgow Herald 95", "en", 56_472, r"GH95\d{4}-\d+", (1995,)),
        ("lemonde94", "Le Monde 94", "fr", 44_013, r"LEMONDE94-[\d-]+", (1994,)),
        ("lemonde95", "Le Monde 95", "fr", 47_646, r"LEMONDE95-[\d-]+", (1995,)),
        ("atsfr94", "French SDA 94", "fr", 43_178, r"ATS\.94\d{4}\.\d+", (1994,)),
        ("atsfr95", "French SDA 95", "fr", 42_615, r"ATS\.95\d{4}\.\d+", (1995,)),
        ("fr94", "Frankfurter Rundschau 94", "de", 139_715, r"FR94\d{4}-\d+", (1994,)),
        ("spiegel", "Der Spiegel 94/95", "de", 13_979, r"SPIEGEL9[45][\d-]+", (1994, 1995)),
        ("sda94", "German SDA 94", "de", 71_677, r"SDA\.94\d{4}\.\d+", (1994,)),
        ("sda95", "German SDA 95", "de", 69_438, r"SDA\.95\d{4}\.\d+", (1995,)),
        ("lastampa94", "La Stampa 94", "it", 58_051, r"LASTAMPA94-[\d-]+", (1994,)),
        ("agz94", "Italian SDA 94", "it", 50_527, r"AGZ\.94\d{4}\.\d+", (1994,)),
        ("agz95", "Italian SDA 95", "it", 48_980, r"AGZ\.95\d{4}\.\d+", (1995,)),
        ("efe94", "EFE 94", "es", 215_738, r"EFE1994\d{4}-\d+", (1994,)),
        ("efe95", "EFE 95", "es", 238_307, r"EFE1995\d{4}-\d+", (1995,)),
        ("ad", "Algemeen Dagblad 94/95", "nl", 106_483, r"AD199[45]\d{4}-[\d-]+", (1994, 1995)),
        ("nrc", "NRC Handelsblad 94/95", "nl", 84_121, r"NH199[45]\d{4}-[\d-]+", (1994, 1995)),
        ("publico94", "Público 94", "pt", 51_751, r"PUBLICO-1994\d{4}-\d+", (1994,)),
        ("publico95", "Público 95", "pt", 55_070, r"PUBLICO-1995\d{4}-\d+", (1995,)),
        ("folha94", "Folha de São Paulo 94", "pt", 51_875, r"FSP94\d{4}-\d+", (1994,)),
        ("folha95", "Folha de São Paulo 95", "pt", 52_038, r"FSP95\d{4}-\d+", (1995,)),
        ("aamu", "Aamulehti 94/95", "fi", 55_344, r"AAMU199[45]\d{4}-\d+", (1994, 1995)),
        ("tt", "Tidningarnas Telegrambyrå 94/95", "sv", 142_819, r"TT9495-[\d-]+", (1994, 1995)),
        ("izvestia95", "Izvestia 95", "ru", 16_761, r"IZV95\d{4}-\d+", (1995,)),
        # No open file shows the numbers of these three: whatever has the newspaper's name or initials and digits.
        ("magyar02", "Magyar Hírlap 2002", "hu", 49_530, r"(?:MH|MAGYAR|HIRLAP)[A-Z]*[\d._-]+", (2002,)),
        ("sega02", "Sega 2002", "bg", 33_356, r"SEGA[\d._-]+", (2002,)),
        ("standart02", "Standart 2002", "bg", 35_839, r"STANDART[\d._-]+", (2002,)),
    ):
        package = _FROM_2004 if language in ("pt", "hu", "bg") else _UNTIL_2003
        found[key] = Collection(key, name, language, documents, re.compile(docnos, re.ASCII), years, package)
    return MappingProxyType(found)


#: Every collection by its key, those of a language together.
COLLECTIONS: Mapping[str, Collection] = _collections()

_ANY = re.compile("|".join(f"(?P<{key}>{made.docnos.pattern})" for key, made in COLLECTIONS.items()), re.ASCII)


def of_docno(docno: str) -> str | None:
    """Returns the key of the collection that a document belongs to, or None if its number is of another shape.

    Args:
        docno: The document number, without white space around it.
    """
    match = _ANY.fullmatch(docno)
    return match.lastgroup if match else None
