"""Reads the documents of CLEF's newspapers: SGML or XML, one document at a time, whatever the size of the file.

The files hold markup of many kinds, of which a part is broken, so that no parser of SGML or XML reads all of them. This
reader looks for the ends of documents in the bytes, and decodes and takes apart each document by itself: damage stays
where it is.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterator
from typing import IO, NamedTuple

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.datasets.clef.collections import COLLECTIONS, of_docno
from pyterrier_mart.datasets.clef.utf16 import utf_16_of
from pyterrier_mart.problems import Problems

__all__ = ["Document", "read_documents"]

_CHUNK = 1 << 20
_HEAD = 1024  # what a file says of its encoding is here
#: Longer documents are not news but damage. Newspapers' have some kilobytes, and pages of tables a megabyte.
_LARGEST = 64 << 20
_LONGEST_TAG = 1024
_BOUNDARY = re.compile(rb"<(/?)DOC(?:\s[^<>]*)?>", re.IGNORECASE)
_NUMBER_TAG = re.compile(rb"<DOCNO(?:\s[^<>]*)?>", re.IGNORECASE)
_CUT_NUMBER = re.compile(r"<DOC(?:NO|ID)(?:\s[^<>]*)?>[^<>]*\Z", re.IGNORECASE)
#: As much of a text outside documents is looked at.
_GLIMPSE = 16 << 10
_OUTSIDE = re.compile(rb"<!--.*?-->|<[!?/]?[A-Za-z][^<>]*>|[\s\0\x1a]+", re.DOTALL)

_DECLARED = re.compile(rb"""\s*<\?xml[^>]{1,200}?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
#: What a file is in that is not in UTF-8 and does not say so. Windows-1252 is ISO-8859-1 and more.
_EIGHT_BIT = {"bg": "cp1251", "ru": "cp1251", "hu": "cp1250"}
_STRAY = re.compile(rb"((?:[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})+)|[\x80-\xff]")

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
        docno: Its number.
        title: Its headline, which may be empty.
        text: The article without the headline, on one line, which may be empty.
    """

    docno: str
    title: str
    text: str


def read_documents(stream: IO[bytes], name: str, problems: Problems) -> Iterator[Document]:
    """Yields the documents of a file, in their order.

    ``<DOC>`` elements are documents, in any case and with or without a root element. A document's number is its
    ``DOCNO``, or if there is none its ``DOCID``. Keywords, dates, authors and the like are left out.

    The encoding is what the file says (byte order mark, XML declaration); without that, a document is in UTF-8 if it
    can be, and otherwise in Windows-1252 (Cyrillic and Hungarian newspapers: 1251, 1250).

    Damage is reported, and what can be read is read: a document that does not end, or does not begin; one without a
    number, which is left out; text outside documents; NUL bytes; documents of more than 64 MB, which are left out; a
    file that ends in a document; an archive that is damaged from some place on.

    Args:
        stream: The content of the file, decompressed.
        name: Its name, for messages.
        problems: Where damage is reported. Places are offsets in the decompressed file.
    """
    reader = _Reader(name, problems)
    for piece in _pieces(stream, reader):
        document = reader.document(piece)
        if document is not None:
            yield document
    reader.close()


class _Piece(NamedTuple):
    """What may be a document.

    Attributes:
        offset: Where its content begins in the file.
        content: What is between the tags; None if it is too long.
        size: How many bytes it has.
        begun: Whether there is a <DOC> before it.
        ended: Whether there is a </DOC> behind it.
        last: Whether the file ends with it.
    """

    offset: int
    content: bytes | None
    size: int
    begun: bool
    ended: bool
    last: bool = False


def _pieces(stream: IO[bytes], reader: _Reader) -> Iterator[_Piece]:
    """Cuts a file at its <DOC> and </DOC> tags."""
    parts: list[bytes] = []
    size = 0
    begun = False
    offset = begin = 0  # of the current chunk, and of the current piece
    held = b""
    for chunk in _chunks(stream, reader):
        data = held + chunk
        held = _unfinished_tag(data)
        end = len(data) - len(held)
        at = 0
        for match in _BOUNDARY.finditer(data, 0, end):
            parts.append(data[at : match.start()])
            size += match.start() - at
            yield from _split(_Piece(begin, _joined(parts, size), size, begun, bool(match[1])))
            parts, size = [], 0
            begun = not match[1]
            at = match.end()
            begin = offset + at
        size += end - at
        if size <= _LARGEST:
            parts.append(data[at:end])
        else:
            parts = []
        offset += end
    parts.append(held)
    size += len(held)
    yield from _split(_Piece(begin, _joined(parts, size), size, begun, False, last=True))


def _joined(parts: list[bytes], size: int) -> bytes | None:
    return b"".join(parts) if size <= _LARGEST else None


def _unfinished_tag(data: bytes) -> bytes:
    """Returns the end of a chunk if it may be the first part of a tag."""
    at = data.rfind(b"<", max(0, len(data) - _LONGEST_TAG))
    return data[at:] if at >= 0 and b">" not in data[at:] else b""


def _split(piece: _Piece) -> Iterator[_Piece]:
    """Parts documents that have no tags between them, by their numbers."""
    content = piece.content
    if content is None:
        yield piece
        return
    begin = 0
    for i, number in enumerate(_NUMBER_TAG.finditer(content)):
        if i:
            part = content[begin : number.start()]
            yield _Piece(piece.offset + begin, part, len(part), piece.begun and i == 1, False)
            begin = number.start()
    part = content[begin:]
    yield _Piece(piece.offset + begin, part, len(part), piece.begun and not begin, piece.ended, piece.last)


def _chunks(stream: IO[bytes], reader: _Reader) -> Iterator[bytes]:
    """Reads a file to its end, or to where it is damaged, as bytes in which ASCII stands for itself."""
    chunk = reader.read(stream)
    while len(chunk) < _HEAD and (more := reader.read(stream)):
        chunk += more
    if codec := utf_16_of(chunk):
        reader.encoding = "utf-8"
        decoder = codecs.getincrementaldecoder(codec)("replace")
        while chunk:
            yield decoder.decode(chunk).encode("utf-8", "replace")
            chunk = reader.read(stream)
        yield decoder.decode(b"", True).encode("utf-8", "replace")
        return
    reader.look_at_head(chunk)
    while chunk:
        yield chunk
        chunk = reader.read(stream)


class _Reader:
    """Makes documents of pieces, and reports what is wrong with them.

    Attributes:
        encoding: What the file says that it is in; empty if it does not say.
    """

    def __init__(self, name: str, problems: Problems):
        self.encoding = ""
        self._name, self._problems = name, problems
        self._found = 0
        self._utf8 = 0  # documents that are in UTF-8, and have characters that are not ASCII
        self._other = 0
        self._first_other = 0

    def read(self, stream: IO[bytes]) -> bytes:
        try:  # read() would lose what comes before damage
            return stream.read1(_CHUNK) if hasattr(stream, "read1") else stream.read(_CHUNK)
        except ArchiveError:
            what = "the archive is damaged or truncated; what is before is kept"
            self._problems.add(self._name, "", what, kind="files that break off")
            return b""

    def look_at_head(self, head: bytes) -> None:
        if head.startswith(codecs.BOM_UTF8):
            self.encoding = "utf-8"
        elif match := _DECLARED.match(head):
            declared = match[1].decode("ascii")
            try:
                if "escape" in declared or bytes(range(32, 127)).decode(declared) != "".join(map(chr, range(32, 127))):
                    raise LookupError
                self.encoding = codecs.lookup(declared).name
            except (LookupError, ValueError):
                self._add(0, f"the encoding {declared} is unknown, or not that of the file", "wrong encodings")
        if self.encoding in ("iso8859-1", "ascii"):  # which people write who mean Windows-1252
            self.encoding = "cp1252"

    def document(self, piece: _Piece) -> Document | None:
        content = piece.content
        if content is None:
            self._add(
                piece.offset, f"{piece.size:,} bytes without an end of a document", "documents of more than 64 MB"
            )
            return None
        if not (piece.begun or _NUMBER_TAG.search(content)):
            self._outside(piece.offset, content)
            return None
        self._found += 1
        if b"\0" in content:
            self._add(piece.offset, f"{content.count(0):,} NUL bytes in a document", "documents with NUL bytes")
        text = self._decoded(content.translate(_NO_CONTROLS), piece.offset)
        if piece.last and not piece.ended:
            text = _without_cut(text)
        fields = _fields(text)
        docno = fields.pop(_DOCNO) or fields.pop(_DOCID)
        if not docno:
            kind = "documents without a number"
            self._add(piece.offset, f"a document without DOCNO and DOCID: {_start(content)}", kind)
            return None
        if not piece.begun:
            self._add(piece.offset, f"document {docno} has no <DOC> before it", "documents without a beginning")
        elif not piece.ended:
            where = "the file ends" if piece.last else "the next one begins"
            self._add(piece.offset, f"document {docno} does not end before {where}", "documents without an end")
        return Document(docno, fields[_TITLE], fields[_TEXT])

    def close(self) -> None:
        if not self._found:
            self._add(0, "no <DOC> element in the file", "files without documents")
        if self._other and (self._utf8 or self.encoding):
            self._add(
                self._first_other,
                f"{self._other:,} documents are not in {self.encoding or 'UTF-8'} as the others are",
                "files with several encodings",
            )

    def _outside(self, offset: int, content: bytes) -> None:
        """Reports text between documents, unless it is markup."""
        if offset == 0:  # a document type may have declarations inside
            content = content.removeprefix(codecs.BOM_UTF8)
            if content.lstrip()[:2] in (b"<?", b"<!"):
                return
        rest = _OUTSIDE.sub(b"", content[:_GLIMPSE])
        if rest:
            self._add(offset, f"{len(content):,} bytes outside documents: {_start(rest)}", "texts outside documents")

    def _decoded(self, content: bytes, offset: int) -> str:
        if content.isascii() and self.encoding in ("", "utf-8", "cp1252"):
            return content.decode("ascii")
        try:
            text = content.decode(self.encoding or "utf-8")
            self._utf8 += 1
            return text
        except UnicodeError:
            pass
        if self.encoding == "cp1252":  # five bytes stand for nothing
            return content.decode("latin-1")
        if not self._other:
            self._first_other = offset
        self._other += 1
        return _eight_bit(content)

    def _add(self, offset: int, what: str, kind: str) -> None:
        self._problems.add(self._name, f"byte {offset}", what, kind=kind)


def _start(content: bytes) -> str:
    return repr(content[:60].decode("utf-8", "replace").strip()[:40])


def _eight_bit(content: bytes) -> str:
    """Decodes a document that is not in UTF-8, or not all of it: what can be UTF-8 is."""
    tag = _NUMBER_TAG.search(content)
    docno = content[tag.end() : tag.end() + 80].partition(b"<")[0].strip() if tag else b""
    key = of_docno(docno.decode("ascii", "replace"))
    codec = _EIGHT_BIT.get(COLLECTIONS[key].language if key else "", "cp1252")
    if content.decode("utf-8", "ignore").isascii():
        try:
            return content.decode(codec)
        except UnicodeDecodeError:
            return content.decode("latin-1" if codec == "cp1252" else codec, "replace")

    def decoded(match: re.Match[bytes]) -> bytes:
        return match[0] if match[1] else match[0].decode(codec, "replace").encode()

    return _STRAY.sub(decoded, content).decode("utf-8", "replace")


def _without_cut(text: str) -> str:
    """Removes the tag, or the number, that a file breaks off in."""
    at = text.rfind("<")
    if at > text.rfind(">"):
        text = text[:at]
    return _CUT_NUMBER.sub("", text)


def _fields(text: str) -> dict[str, str]:
    """Takes a document apart.

    Returns:
        ``docno``, ``docid``, ``title`` and ``text``, without markup.
    """
    if "<!" in text:
        text = _without_sections(text)
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
            if around and any(
                name == outer for outer, _ in around
            ):  # of an element in itself, the outer one was not closed
                while around.pop()[0] != name:
                    pass
            if not tag[1] and not text.startswith("/>", at - 2):
                role = _role(name, around, bool(found[_TEXT]))
                if name not in closed:  # ends where the next element begins or ends
                    continue
                around.append((name, role))
        role = around[-1][1] if around else _TEXT
    found[role].append(text[at:])
    return {
        _DOCNO: _number(found[_DOCNO]),
        _DOCID: _number(found[_DOCID]),
        _TITLE: _plain(found[_TITLE]),
        _TEXT: _plain(found[_TEXT]),
    }


def _role(name: str, around: list[tuple[str, str]], any_text: bool) -> str:
    if around and around[-1][1] == _TEXT:
        if name in _STRUCTURE or (any_text and _ROLES[name] == _TITLE):  # a heading between paragraphs
            return _TEXT
    return _ROLES[name]


def _without_sections(text: str) -> str:
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


def _number(parts: list[str]) -> str:
    """The first number, for there may be several."""
    for part in parts:
        if number := "".join(_plain([part]).split()):
            return number
    return ""


def _plain(parts: list[str]) -> str:
    """Decodes entities and puts the text on one line; where there was a tag, a word ends."""
    text = " ".join(parts)
    if "&" in text:
        text = _ENTITY.sub(lambda match: _ENTITIES.get(match[0]) or html.unescape(match[0]), text)
    return " ".join(text.split())
