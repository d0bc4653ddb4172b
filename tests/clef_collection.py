"""Writes a small collection in the formats of the CLEF ad-hoc track, made of XQuAD-R paragraphs and questions."""

import gzip
import re
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from packing import make_tar, make_zip

from pyterrier_mart.datasets import xquad_r

QUERY_LANGUAGES = ("de", "en", "es", "fr", "it")
LOW_RESOURCE = ("so", "sw")
_FUNCTION_WORDS = {
    "en": "the of in what is was did how and to a who for which were are on by with that many when where from has had",
    "fr": "le la de des et dans pour que qui est une sur",
    "it": "il la di della e nel per che chi una sul",
    "so": "ka iyo oo ku waa in waxa ah ayaa ee",
    "sw": "ya wa na kwa ni za la katika hii kama",
}
NO_RELEVANT, ONLY_HERALD, NOT_ITALIAN = "198", "199", "200"
"""Topics that no pair of the paper's settings has, and why."""

# Collection: docno, markup, encoding, packing, name of the file.
_COLLECTIONS = {
    "lat94": ("LA0101{year}-{i:04d}", "lat", "iso-8859-1", "gz", "LATimes94/la9401{part:02d}"),
    "gh95": ("GH950102-{i:06d}", "herald", "iso-8859-1", "zip", "gh_english_95.zip"),
    "fr94": ("FR9401{day:02d}-{i:06d}", "title", "iso-8859-1", "tar.gz", "fr_rundschau_94.tar.gz"),
    "spiegel": ("SPIEGEL9495-{i:06d}", "title", "iso-8859-1", "", "der_spiegel/spiegel{part}.sgml"),
    "sda94": ("SDA.940106.{i:04d}", "agency", "utf-8", "gz", "sda/sda94-{part}.xml"),
    "sda95": ("SDA.950106.{i:04d}", "agency", "iso-8859-1", "zip", "sda95.zip"),
    "lemonde94": ("LEMONDE94-{i:06d}-19940901", "title", "iso-8859-1", "gz", "lemonde94-{part}.sgml"),
    "lemonde95": ("LEMONDE95-{i:06d}", "title", "utf-8", "", "lemonde95/{part}.xml"),
    "atsfr94": ("ATS.940106.{i:04d}", "agency", "iso-8859-1", "tar.gz", "ats94.tgz"),
    "atsfr95": ("ATS.950106.{i:04d}", "agency", "iso-8859-1", "", "ats95-{part}.sgml"),
    "lastampa94": ("LASTAMPA94-{i:06d}", "title", "iso-8859-1", "gz", "lastampa94-{part}.sgml"),
    "agz94": ("AGZ.940101.{i:04d}", "agency", "iso-8859-1", "zip", "agz94.zip"),
    "agz95": ("AGZ.950101.{i:04d}", "agency", "utf-8", "", "agz95-{part}.xml"),
    "efe94": ("EFE19940102-{i:05d}", "efe", "iso-8859-1", "gz", "efe/19940102-{part}.sgml"),
    "efe95": ("EFE19950102-{i:05d}", "efe", "iso-8859-1", "tar.gz", "efe95.tar.gz"),
}
_OF_LANGUAGE = {
    "en": ("lat94",),
    "de": ("fr94", "spiegel", "sda94", "sda95"),
    "fr": ("lemonde94", "lemonde95", "atsfr94", "atsfr95"),
    "it": ("lastampa94", "agz94", "agz95"),
    "es": ("efe94", "efe95"),
}


@dataclass
class Written:
    """What was written.

    Attributes:
        root: The folder, for ``CLEF_HOME``.
        numbers: The topics that every pair of the paper's settings has, if documents of its language were written.
        topics: By language and number: title, description, narrative.
        documents: By collection and document number: title and text.
        qrels: By document language: topic, document number, label, of all collections.
    """

    root: Path
    numbers: tuple[str, ...]
    topics: dict[str, dict[str, tuple[str, str, str]]] = field(default_factory=dict)
    documents: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    qrels: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)


def write(root, *, languages=("de", "en"), topics=12, documents=40, hostile=False):
    """Writes a collection with documents in the languages, and topics in all languages of the paper's settings.

    Languages that XQuAD-R lacks are English with their function words, and French and Italian with an accent.

    Args:
        root: The folder to make.
        languages: The languages of the documents, out of de, en, es, fr and it.
        topics: How many topics every pair has.
        documents: How many documents a language has in the collections of the paper's settings.
        hostile: Whether there are also damaged files, and files that are something else.

    Returns:
        What was written.
    """
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    half = topics // 2
    numbers = tuple(str(41 + i) for i in range(half)) + tuple(str(141 + i) for i in range(topics - half))
    written = Written(root, numbers)
    asked = _questions(topics, documents)
    for language in (*QUERY_LANGUAGES, *LOW_RESOURCE):
        written.topics[language] = _topics(language, numbers, asked)
    for language in languages:
        _write_documents(written, language, documents)
        _write_qrels(written, language, numbers, asked, documents)
    _write_topics(written)
    if hostile:
        _write_hostile(root)
    return written


def _questions(topics, documents):
    """The positions of the questions that the topics ask: paragraphs spread over the documents."""
    by_paragraph = {}
    for i, question in enumerate(xquad_r.load("en").questions):
        by_paragraph.setdefault(question.paragraph, []).append(i)
    rounds = -(-topics // documents)
    chosen = []
    for i in range(topics):
        nth, place = divmod(i, -(-topics // rounds))
        questions = by_paragraph[place * documents // -(-topics // rounds)]
        chosen.append((questions[nth % len(questions)], questions[(nth + 1) % len(questions)]))
    return chosen


def _texts(language):
    """XQuAD-R in a language, and what makes of it a text in the language."""
    if language in xquad_r.LANGUAGES:
        return xquad_r.load(language), lambda text: text
    mark = {"fr": "é", "it": "à"}.get(language, "e")
    if language not in _FUNCTION_WORDS:
        return xquad_r.load("en"), lambda text: text
    known = dict(zip(_FUNCTION_WORDS["en"].split(), _FUNCTION_WORDS[language].split() * 4, strict=False))

    def spell(text):
        return re.sub("[A-Za-z]+", lambda match: known.get(match[0].lower(), match[0]), text).replace("e", mark, 1)

    return xquad_r.load("en"), spell


def _topics(language, numbers, asked):
    collection, spell = _texts(language)
    out = {}
    for number, (first, second) in zip(numbers, asked, strict=True):
        title, description = (spell(collection.questions[i].text) for i in (first, second))
        out[number] = (title, description, f"Johnson & Johnson <{number}> {title}")
    if language not in LOW_RESOURCE:
        for number in (NO_RELEVANT, ONLY_HERALD, NOT_ITALIAN):
            if (language, number) != ("it", NOT_ITALIAN):
                out[number] = (spell(f"The topic {number}"), spell("None."), spell("None."))
    return out


# --------------------------------------------------------------------------------------------------------- documents


def _docno(key, i):
    return _COLLECTIONS[key][0].format(i=i, year=94, day=1 + i % 28)


def _place(language, i):
    """The collection of a document, and its number there."""
    keys = _OF_LANGUAGE[language]
    return keys[i % len(keys)], i // len(keys)


def _write_documents(written, language, documents):
    collection, spell = _texts(language)
    for i, paragraph in enumerate(collection.paragraphs[:documents]):
        key, n = _place(language, i)
        title = spell(paragraph.title.replace("_", " "))
        written.documents.setdefault(key, {})[_docno(key, n)] = (title, spell(paragraph.context))
    if language == "en":
        written.documents["gh95"] = {
            _docno("gh95", i): ("Herald", paragraph.context) for i, paragraph in enumerate(collection.paragraphs[-5:])
        }
    for key in (*_OF_LANGUAGE[language], *(["gh95"] if language == "en" else [])):
        _write_collection(written.root / "DocumentData" / language, key, written.documents.get(key, {}))


def _write_collection(folder, key, documents):
    """Writes a collection in two parts: two files, or two members of an archive."""
    _, markup, encoding, packing, name = _COLLECTIONS[key]
    items = list(documents.items())
    half = -(-len(items) // 2)
    parts = []
    for part in (items[:half], items[half:]):
        content = "\n".join(_MARKUP[markup](docno, title, text) for docno, (title, text) in part) + "\n"
        if encoding == "utf-8":
            content = f'<?xml version="1.0" encoding="UTF-8"?>\n<{key}>\n{content}</{key}>\n'
        parts.append(content.encode(encoding, "xmlcharrefreplace"))
    if packing in ("zip", "tar.gz"):
        members = {f"{key}/part{part}.sgml": content for part, content in enumerate(parts)}
        _put(folder / name, make_zip(members) if packing == "zip" else make_tar(members, "w:gz"))
        return
    for part, content in enumerate(parts):
        if packing == "gz":
            _put(folder / f"{name.format(part=part)}.gz", gzip.compress(content))
        else:
            _put(folder / name.format(part=part), content)


def _lat(docno, title, text):
    paragraphs = "\n".join(f"<P>\n{escape(part)}\n</P>" for part in _split(text))
    return (
        f"<DOC>\n<DOCNO> {docno} </DOCNO>\n<DOCID> {docno[-4:]} </DOCID>\n<DATE>\n<P>\nJanuary 1, 1994\n</P>\n</DATE>\n"
        f"<HEADLINE>\n<P>\n{escape(title)}\n</P>\n</HEADLINE>\n<TEXT>\n{paragraphs}\n</TEXT>\n"
        f"<TYPE>\n<P>\nColumn\n</P>\n</TYPE>\n</DOC>"
    )


def _herald(docno, title, text):
    return (
        f"<DOC>\n<DOCNO>{docno}</DOCNO>\n<DOCID>{docno}</DOCID>\n<DATE>950102</DATE>\n"
        f"<HEADLINE>{escape(title)}</HEADLINE>\n<EDITION>3</EDITION>\n<PAGE>1</PAGE>\n<TEXT>\n{escape(text)}\n</TEXT>\n</DOC>"
    )


def _title(docno, title, text):
    return (
        f"<DOC>\n<DOCNO>{docno}</DOCNO>\n<DOCID>{docno}</DOCID>\n<DATE>940116</DATE>\n"
        f"<TITLE>{escape(title)}</TITLE>\n<TEXT>\n{escape(text)}\n</TEXT>\n</DOC>"
    )


def _agency(docno, title, text):
    first, *rest = _split(text)
    return (
        f"<DOC>\n<DOCNO>{docno}</DOCNO>\n<DOCID>{docno}</DOCID>\n<KW>keyword that is not allowed</KW>\n"
        f"<TI>{escape(title)}</TI>\n<LD>{escape(first)}</LD>\n"
        + "".join(f"<TX>{escape(part)}</TX>\n" for part in rest)
        + "</DOC>"
    )


def _efe(docno, title, text):
    return (
        f"<DOC>\n<DOCNO>{docno}</DOCNO>\n<DOCID>{docno}</DOCID>\n<DATE>19940102</DATE>\n<CATEGORY>POL</CATEGORY>\n"
        f"<TITLE>{escape(title)}</TITLE>\n<TEXT>{escape(text)}</TEXT>\n</DOC>"
    )


_MARKUP = {"lat": _lat, "herald": _herald, "title": _title, "agency": _agency, "efe": _efe}


def _split(text):
    middle = text.find(". ", len(text) // 2)
    return [text] if middle < 0 else [text[: middle + 1], text[middle + 2 :]]


# ------------------------------------------------------------------------------------------------- topics and judgments


def _write_topics(written):
    for language in ("de", "en", "fr"):  # as CLEF 2001 to 2003 came: SGML without a root, ISO-8859-1
        for year, shape, chosen in (
            (2001, "<num> C{:03d} </num>", lambda number: int(number) < 100),
            (2003, "<num>C{:03d}</num>", lambda number: int(number) >= 100),
        ):
            tops = []
            for number, (title, description, narrative) in written.topics[language].items():
                if chosen(number):
                    code = language.upper()
                    tops.append(
                        f"<top>\n{shape.format(int(number))}\n<{code}-title> {title} </{code}-title>\n"
                        f"<{code}-desc> {_wrapped(description)}\n</{code}-desc>\n"
                        f"<{code}-narr> {_wrapped(narrative)} </{code}-narr>\n</top>\n"
                    )
            _put(
                written.root / "Topics" / str(year) / f"Top-{language}{year % 100:02d}.txt",
                "\n".join(tops).encode("iso-8859-1", "replace"),
            )
    for language, shape, attribute in (("it", "{}-AH", ""), ("es", "10.2452/{}-AH", ' lang="es"')):  # as DIRECT exports
        topics = "".join(
            f"<topic{attribute}>\n<identifier>{shape.format(number)}</identifier>\n<title>{escape(title)}</title>\n"
            f"<description>{escape(description)}</description>\n<narrative>{escape(narrative)}</narrative>\n</topic>\n"
            for number, (title, description, narrative) in written.topics[language].items()
        )
        _put(
            written.root / "Topics" / "direct" / f"topics.{language}.xml",
            f'<?xml version="1.0" encoding="UTF-8"?>\n<topics>\n{topics}</topics>\n'.encode(),
        )
    for language in LOW_RESOURCE:
        lines = (f"C{int(number):03d}\t{t}\t{d}\n" for number, (t, d, _) in written.topics[language].items())
        _put(written.root / "queries" / f"topics.{language}.tsv", "".join(lines).encode())
    for language in ("de", "en", "fr"):  # ISO-8859-1 lacks some characters: both sides have a question mark
        written.topics[language] = {
            number: tuple(text.encode("iso-8859-1", "replace").decode("iso-8859-1") for text in texts)
            for number, texts in written.topics[language].items()
        }


def _wrapped(text):
    words = text.split()
    return "\n".join(" ".join(words[i : i + 8]) for i in range(0, len(words), 8))


def _write_qrels(written, language, numbers, asked, documents):
    collection, _ = _texts(language)
    lines = []
    for number, (first, _) in zip(numbers, asked, strict=True):
        relevant = collection.questions[first].paragraph
        lines.append((number, _docno(*_place(language, relevant)), 1))
        for other in range(relevant + 1, relevant + 4):
            lines.append((number, _docno(*_place(language, other % documents)), 0))
    lines.append((NO_RELEVANT, _docno(*_place(language, 0)), 0))
    if language == "en":
        lines += [(ONLY_HERALD, _docno("gh95", 0), 1), (NOT_ITALIAN, _docno("lat94", 0), 1)]
        content = "".join(f"{number} 0 {docno} {label}\n" for number, docno, label in lines)
        _put(written.root / "RelAssess" / "2003" / "qrels_EN.gz", gzip.compress(content.encode()))
    else:
        content = "".join(f"{number}-AH\t0\t{docno}\t{label}\r\n" for number, docno, label in lines)
        _put(written.root / "RelAssess" / f"qrels.{language}.txt", content.encode())
    written.qrels[language] = lines


# ----------------------------------------------------------------------------------------------------- damaged files


def _write_hostile(root):
    """Files that must be passed over, and damage that must be reported, without loss to what is sound."""
    _put(root / "README.txt", b"This is no part of the collection.\n")
    _put(root / "ELRA licence.pdf", b"%PDF-1.4\n" + bytes(range(256)) * 20)
    _put(root / "empty.sgml", b"")
    _put(root / ".DS_Store", b"<DOC><DOCNO>LA010194-9999</DOCNO></DOC>")
    whole = gzip.compress(b"<DOC>\n<DOCNO> LA010294-0001 </DOCNO>\n<TEXT>whole</TEXT>\n</DOC>\n" + bytes(4000))
    _put(root / "DocumentData" / "truncated.gz", whole[: len(whole) // 2])
    _put(
        root / "DocumentData" / "zz" / "broken.sgml",  # read last
        b"<DOC>\n<DOCNO> LA010394-0001 </DOCNO>\n<TEXT>\nnever ends\n"
        b"<DOC>\n<TEXT>\nwithout a number\n</TEXT>\n</DOC>\n"
        b"<DOC>\n<DOCNO> LA010194-0000 </DOCNO>\n<TEXT>\nthe number of another document\n</TEXT>\n</DOC>\n"
        b"<DOC>\n<DOCNO> LA010394-0002 </DOCNO>\n<TEXT>\ntruncated",
    )
    _put(root / "RelAssess" / "damaged.txt", b"41 0 LA010194-0000 1\n41 0 LA010194-0001\n41 0 LA010194-0002 relevant\n")
    _put(
        root / "Topics" / "damaged.txt",
        b"<top>\n<num> one </num>\n<EN-title> no number </EN-title>\n</top>\n"
        b"<top>\n<EN-title> none </EN-title>\n</top>\n",
    )
    _put(
        root / "Topics" / "nameless.xml",
        b"<topics><topic><identifier>41-AH</identifier><title>x</title></topic></topics>",
    )


# ---------------------------------------------------------------------------------------------------------- archives


def _put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
