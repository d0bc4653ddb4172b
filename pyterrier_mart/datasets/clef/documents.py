"""Reads the documents of CLEF's newspapers: SGML or XML, one document at a time, whatever the size of the file.

The files hold markup of many kinds, of which a part is broken, so that no parser of SGML or XML reads all of them. This
reader looks for the ends of documents in the bytes, and decodes and takes apart each document by itself: damage stays
where it is.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.datasets.clef.collections import COLLECTIONS, of_docno
from pyterrier_mart.datasets.clef.encodings import (
    ascii_parts,
    declared_encoding,
    decode_mixed,
    eight_bit,
    read_head,
    utf_16_of,
)
from pyterrier_mart.problems import Problems

__all__ = ["Document", "read_documents"]

_HEAD = 1024  # what a file says of its encoding is here
#: Longer documents are not news but damage. Newspapers' have some kilobytes, and pages of tables a megabyte.
_LARGEST = 64 << 20
_LONGEST_TAG = 1024
_BOUNDARY = re.compile(rb"<(/?)DOC(?:\s[^<>]*)?>", re.IGNORECASE)
_DOCNO_TAG = re.compile(rb"<DOCNO(?:\s[^<>]*)?>", re.IGNORECASE)
_CUT_DOCNO = re.compile(r"<DOC(?:NO|ID)(?:\s[^<>]*)?>[^<>]*\Z", re.IGNORECASE)
#: As much of a text outside documents is looked at.
_GLIMPSE = 16 << 10
_OUTSIDE = re.compile(rb"<!--.*?-->|<[!?/]?[A-Za-z][^<>]*>|[\s\0\x1a]+", re.DOTALL)

_TAG = re.compile(r"<(?:(/?)([A-Za-z][A-Za-z0-9_.:-]*)(?:[\s/][^<>]*)?|[?!][^<>]*)>")
_CLOSING = re.compile(r"</([A-Za-z][A-Za-z0-9_.:-]*)(?:\s[^<>]*)?>")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
#: Entities of newspapers that HTML does not have.
_ENTITIES = {"&hyph;": "-", "&blank;": " "}
_NO_CONTROLS = bytes(byte if byte > 31 and byte != 127 or byte in b"\t\n\r\x1b" else 32 for byte in range(256))

_TITLE, _TEXT, _DOCNO, _DOCID, _LEFT_OUT = "title", "text", "docno", "docid", ""
_TITLES = "TITLE HEADLINE HEAD HEADING HL TI TITRE TITOLO KOP"
_TEXTS = "TEXT BODY TX LD LE LEAD TE OT ST SUBTITLE CAPTION GRAPHIC CORRECTION"
# What says something about a document and is not part of the article. The index terms among it (KW, SUBJECT, CATEGORY)
# were assigned by people, and CLEF's rules do not allow them in the ad-hoc task.
_METADATA = """
    DATE DATELINE PUBDATE TIME DAY MONTH YEAR DT
    KW KEYWORD KEYWORDS SUBJECT SUBJECTS CATEGORY CATEGORIES DESCRIPTOR DESCRIPTORS TOPIC TOPICS GEOGRAPHY COUNTRY
    INDEX TYPE GENRE CLASS PRIORITY
    BYLINE AUTHOR AUTHORS AU SOURCE SO AGENCY COPYRIGHT
    SECTION EDITION ED PAGE PAGES PG VOLUME ISSUE LENGTH WORDS NO NUMBER RECNO RECORDNO ID FLAG SLUG DESK CODE
    PUBLICATION NEWSPAPER LANGUAGE LANG
    SCATE FICHEROS DESTINO CLAVE NUM PRIORIDAD FECHA
    NUMDOC NREC EDITORE TESTATA PAGINA CLASSIFICA
    CORRECTION-DATE
"""
#: Metadata of an article, but parts of a text.
_STRUCTURE = frozenset({"SECTION", "PAGE"})
#: What becomes of the text of an element. Any other element is text, or belongs to what it stands in, such as <P>:
#: of a newspaper whose fields differ from those known, a surplus word costs less than a lost article.
_ROLES = {
    **dict.fromkeys(_TITLES.split(), _TITLE),
    **dict.fromkeys(_TEXTS.split(), _TEXT),
    **dict.fromkeys(_METADATA.split(), _LEFT_OUT),
    "DOCNO": _DOCNO,
    "DOCID": _DOCID,
}


class Document(NamedTuple):
    """An article.

    Attributes:
        docno: Its docno.
        title: Its headline, which may be empty.
        text: The article without the headline, on one line, which may be empty.
    """

    docno: str
    title: str
    text: str


def read_documents(stream: IO[bytes], name: str, problems: Problems) -> Iterator[Document]:
    """Yields the documents of a file, in their order.

    ``<DOC>`` elements are documents, in any case and with or without a root element. A document's docno is its
    ``DOCNO``, or if there is none its ``DOCID``. Keywords, dates, authors and the like are left out.

    The encoding is what the file says (byte order mark, XML declaration); without that, a document is in UTF-8 if it
    can be, and otherwise in Windows-1252 (Cyrillic and Hungarian newspapers: 1251, 1250).

    Damage is reported, and what can be read is read: a document that does not end, or does not begin; one without a
    docno, which is left out; text outside documents; NUL bytes; documents of more than 64 MB, which are left out; a
    file that ends in a document; an archive that is damaged from some place on.

    Args:
        stream: The content of the file, decompressed.
        name: Its name, for messages.
        problems: Where damage is reported. Places are offsets in the decompressed file.
    """
    reader = _Reader(name, problems)
    for piece in cut(reader.parts(stream)):
        if (document := reader.document(piece)) is not None:
            yield document
    reader.close()


class Piece(NamedTuple):
    """What may be a document.

    Attributes:
        offset: Where its content begins in the file.
        content: What is between the tags; None if it is too long.
        begun: Whether there is a <DOC> before it.
        ended: Whether there is a </DOC> behind it.
        last: Whether the file ends with it.
    """

    offset: int
    content: bytes | None
    begun: bool
    ended: bool
    last: bool = False


def cut(parts: Iterable[bytes]) -> Iterator[Piece]:
    """Cuts a file at its <DOC> and </DOC> tags."""
    buffer = bytearray()
    offset = dropped = 0  # where the piece begins in the file, and how much of it is too long to be kept
    searched = 0
    begun = False
    for part in parts:
        buffer += part
        at = 0
        for tag in _BOUNDARY.finditer(buffer, searched):
            content = None if dropped else bytes(buffer[at : tag.start()])
            yield from split(Piece(offset, content, begun, bool(tag[1])))
            offset += dropped + tag.end() - at
            at, dropped, begun = tag.end(), 0, not tag[1]
        del buffer[:at]
        if len(buffer) > _LARGEST:
            dropped += len(buffer) - _LONGEST_TAG
            del buffer[:-_LONGEST_TAG]
        searched = max(0, len(buffer) - _LONGEST_TAG)  # a tag may go on in the next part
    yield from split(Piece(offset, None if dropped else bytes(buffer), begun, False, last=True))


def split(piece: Piece) -> Iterator[Piece]:
    """Parts documents that have no tags between them, by their docnos."""
    content = piece.content
    if content is None:
        yield piece
        return
    begin = 0
    for i, tag in enumerate(_DOCNO_TAG.finditer(content)):
        if i:
            yield Piece(piece.offset + begin, content[begin : tag.start()], piece.begun and i == 1, False)
            begin = tag.start()
    yield Piece(piece.offset + begin, content[begin:], piece.begun and not begin, piece.ended, piece.last)


class _Reader:
    """Makes documents of pieces, and reports what is wrong with them.

    Attributes:
        encoding: What the file says that it is in; empty if it does not say.
    """

    def __init__(self, name: str, problems: Problems):
        self.encoding = ""
        self._name, self._problems = name, problems
        self._found = 0
        self._guessed: set[str] = set()  # encodings

    def parts(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Yields the parts of a file to its end, or to where it is damaged."""
        try:
            head = read_head(stream, _HEAD)
            try:
                self.encoding = "utf-8" if utf_16_of(head) else declared_encoding(head)
            except LookupError as err:
                self.report(0, str(err), "wrong encodings")
            yield from ascii_parts(stream, head)
        except ArchiveError:
            what = "the archive is damaged or truncated; what is before is kept"
            self._problems.add(self._name, "", what, kind="files that break off")

    def document(self, piece: Piece) -> Document | None:
        """Returns the document in a piece, if there is one."""
        content = piece.content
        if content is None:
            self.report(piece.offset, "no end of a document in 64 MB", "documents of more than 64 MB")
            return None
        if not (piece.begun or _DOCNO_TAG.search(content)):
            self.report_outside(piece.offset, content)
            return None
        self._found += 1
        if b"\0" in content:
            self.report(piece.offset, f"{content.count(0):,} NUL bytes in a document", "documents with NUL bytes")
        text = self.decoded(content.translate(_NO_CONTROLS), piece.offset)
        if piece.last and not piece.ended:
            text = without_cut(text)
        fields = take_apart(text)
        docno = fields[_DOCNO] or fields[_DOCID]
        if not docno:
            what = f"a document without DOCNO and DOCID: {beginning(content)}"
            self.report(piece.offset, what, "documents without a docno")
            return None
        if not piece.begun:
            self.report(piece.offset, f"document {docno} has no <DOC> before it", "documents without a beginning")
        elif not piece.ended:
            where = "the file ends" if piece.last else "the next one begins"
            self.report(piece.offset, f"document {docno} does not end before {where}", "documents without an end")
        return Document(docno, fields[_TITLE], fields[_TEXT])

    def close(self) -> None:
        """Reports what is wrong with the file as a whole."""
        if not self._found:
            self.report(0, "no <DOC> element in the file", "files without documents")

    def report_outside(self, offset: int, content: bytes) -> None:
        """Reports text between documents, unless it is markup."""
        if offset == 0:  # a document type may have declarations inside
            content = content.removeprefix(codecs.BOM_UTF8)
            if content.lstrip()[:2] in (b"<?", b"<!"):
                return
        if rest := _OUTSIDE.sub(b"", content[:_GLIMPSE]):
            what = f"{len(content):,} bytes outside documents: {beginning(rest)}"
            self.report(offset, what, "texts outside documents")

    def decoded(self, content: bytes, offset: int) -> str:
        """Returns the text of a document, in whatever it is."""
        if content.isascii() and self.encoding in ("", "utf-8", "cp1252"):
            return content.decode("ascii")
        try:  # what is said to be in ISO-8859-1 and can be in UTF-8, is
            return content.decode(self.encoding.replace("cp1252", "") or "utf-8")
        except UnicodeError:
            if self.encoding not in ("", "cp1252"):
                what = f"a document is not in {self.encoding}, as the file says that it is"
                self.report(offset, what, "documents in other encodings")
        tag = _DOCNO_TAG.search(content)
        docno = content[tag.end() : tag.end() + 80].partition(b"<")[0].strip() if tag else b""
        key = of_docno(docno.decode("ascii", "replace"))
        codec = eight_bit(content, COLLECTIONS[key].language if key else "")
        if codec != "cp1252" and codec not in self._guessed:
            self._guessed.add(codec)
            said = "which the file says" if self.encoding else "and the file says no other encoding"
            what = f"a document is not in {self.encoding or 'utf-8'}, {said}: such are read as {codec}"
            self.report(offset, what, "files in encodings that they do not say")
        if codec == self.encoding:
            try:
                return content.decode(codec)
            except UnicodeError:  # five bytes stand for nothing
                return content.decode("latin-1")
        return decode_mixed(content, codec)

    def report(self, offset: int, what: str, kind: str) -> None:
        """Adds a problem."""
        self._problems.add(self._name, f"byte {offset}", what, kind=kind)


def beginning(content: bytes) -> str:
    """Returns how a piece begins, for messages."""
    return repr(content[:60].decode("utf-8", "replace").strip()[:40])


def without_cut(text: str) -> str:
    """Removes the tag, or the docno, that a file breaks off in."""
    at = text.rfind("<")
    if at > text.rfind(">"):
        text = text[:at]
    return _CUT_DOCNO.sub("", text)


def take_apart(text: str) -> dict[str, str]:
    """Takes a document apart.

    Returns:
        ``docno``, ``docid``, ``title`` and ``text``, without markup.
    """
    if "<!" in text:
        text = without_sections(text)
    closed = {tag[1].upper() for tag in _CLOSING.finditer(text)}
    found: dict[str, list[str]] = {_TITLE: [], _TEXT: [], _DOCNO: [], _DOCID: [], _LEFT_OUT: []}
    around: list[tuple[str, str]] = []  # name and role of the fields around what comes next
    role = _TEXT
    at = 0
    for tag in _TAG.finditer(text):
        if tag.start() > at and (part := text[at : tag.start()].strip()):
            found[role].append(part)
        at = tag.end()
        if tag[2] is None:
            continue
        name = tag[2].upper()
        if name in _ROLES:
            if any(name == outer for outer, _ in around):  # of an element in itself, the outer one was not closed
                while around.pop()[0] != name:
                    pass
            if not tag[1] and not text.startswith("/>", at - 2):
                role = role_of(name, around, bool(found[_TEXT]))
                if name not in closed:  # ends where the next element begins or ends
                    continue
                around.append((name, role))
        role = around[-1][1] if around else _TEXT
    found[role].append(text[at:])
    return {
        _DOCNO: first_docno(found[_DOCNO]),
        _DOCID: first_docno(found[_DOCID]),
        _TITLE: plain_text(found[_TITLE]),
        _TEXT: plain_text(found[_TEXT]),
    }


def role_of(name: str, around: list[tuple[str, str]], any_text: bool) -> str:
    """Returns what becomes of the text of an element, by the fields around it."""
    if around and around[-1][1] == _TEXT:
        if name in _STRUCTURE or (any_text and _ROLES[name] == _TITLE):  # a heading between paragraphs
            return _TEXT
    return _ROLES[name]


def without_sections(text: str) -> str:
    """Removes comments, and makes plain text of CDATA sections; those without an end stay."""
    out = []
    at = 0
    ends = {"<!--": "-->", "<![CDATA[": "]]>"}
    start = text.find("<!")
    while start >= 0 and ends:
        opening = next((opening for opening in ends if text.startswith(opening, start)), None)
        end = text.find(ends[opening], start + len(opening)) if opening else -1
        if opening and end >= 0:
            out.append(text[at:start])
            inside = text[start + len(opening) : end]
            out.append(html.escape(inside, quote=False) if opening == "<![CDATA[" else " ")
            at = end + 3
            start = text.find("<!", at)
        else:
            if opening:
                del ends[opening]  # looks for an end once, so that time stays linear
            start = text.find("<!", start + 2)
    return "".join(out) + text[at:]


def first_docno(parts: list[str]) -> str:
    """Returns the first docno, for there may be several."""
    for part in parts:
        if docno := "".join(plain_text([part]).split()):
            return docno
    return ""


def plain_text(parts: list[str]) -> str:
    """Decodes entities and puts the text on one line; where there was a tag, a word ends."""
    text = " ".join(parts)
    if "&" in text:
        text = _ENTITY.sub(lambda match: _ENTITIES.get(match[0]) or html.unescape(match[0]), text)
    return " ".join(text.split())
