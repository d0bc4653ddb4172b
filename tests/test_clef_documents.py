"""The documents of CLEF's newspapers: their markup, their encodings, and what is wrong in them."""

import gzip
import io
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_mart.archives import members
from pyterrier_mart.datasets.clef import documents as reader
from pyterrier_mart.datasets.clef import encodings
from pyterrier_mart.datasets.clef.collections import COLLECTIONS, of_docno
from pyterrier_mart.datasets.clef.documents import Document, read_documents
from pyterrier_mart.problems import Problems

DATA = Path(__file__).parents[2] / "shared" / "data"


def parse(content, problems=None):
    found = Problems() if problems is None else problems
    content = content.encode() if isinstance(content, str) else content
    documents = list(read_documents(io.BytesIO(content), "file.sgml", found))
    if problems is None:
        assert not found, found.summary()
    return documents


def one(body, number="<DOCNO> X-1 </DOCNO>"):
    (document,) = parse(f"<DOC>\n{number}\n{body}\n</DOC>\n")
    return document


# ------------------------------------------------------------------------------------------------------- collections


def test_collections_are_those_of_clef():
    assert len(COLLECTIONS) == 29 and all(key == collection.key for key, collection in COLLECTIONS.items())
    by_language = {}
    for collection in COLLECTIONS.values():
        by_language[collection.language] = by_language.get(collection.language, 0) + collection.documents
    assert by_language == {
        "en": 169_477, "fr": 177_452, "de": 294_809, "it": 157_558, "es": 454_045, "nl": 190_604, "pt": 210_734,
        "fi": 55_344, "sv": 142_819, "ru": 16_761, "hu": 49_530, "bg": 87_281, "fa": 166_774,
    }  # fmt: skip
    assert "2000-2003" in COLLECTIONS["lat94"].package and "2004-2008" in COLLECTIONS["sega02"].package
    assert COLLECTIONS["lat94"].licensor == "ELRA" and "Tehran" in COLLECTIONS["hamshahri"].licensor


@pytest.mark.parametrize(
    ("docno", "key"),
    [
        ("LA010194-0001", "lat94"),
        ("LA010195-0001", None),
        ("GH950102-000000", "gh95"),
        ("LEMONDE94-000043-19940901", "lemonde94"),
        ("ATS.940106.0082", "atsfr94"),
        ("SDA.940106.0101", "sda94"),
        ("AGZ.950101.0035", "agz95"),
        ("SPIEGEL9495-000878", "spiegel"),
        ("EFE19940102-00240", "efe94"),
        ("AD19940103-0040", "ad"),
        ("FSP940101-076", "folha94"),
        ("PUBLICO-19940101-101", "publico94"),
        ("IZV950106-00025", "izvestia95"),
        ("AAMU19940101-000359", "aamu"),
        ("AAMU19960102-000073", "aamu"),
        ("AAMU19970102-000073", None),
        ("NST2002-01-04-052", "standart02"),
        ("STANDART2002-01-04-052", "standart02"),
        ("NOVINAR20020102-006", "novinar02"),
        ("SEGA2002-01-03-080", "sega02"),
        ("HAM2-750402-001", "hamshahri"),
        ("HAMSHAHRI-750402-001", "hamshahri"),
        ("HAM", None),
        ("", None),
        ("LA010194-0001 ", None),
        ("XLA010194-0001", None),
        ("LA٠١٠١94-0001", None),
    ],
)
def test_a_docno_tells_the_collection(docno, key):
    assert of_docno(docno) == key


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data is not here")
def test_all_judged_documents_belong_to_a_collection():
    with gzip.open(DATA / "clef06fr" / "qrels.fr.txt.gz", "rt") as stream:
        keys = [of_docno(line.split()[2]) for line in stream]
    assert len(keys) == 17882
    assert {key: keys.count(key) for key in set(keys)} == {
        "lemonde94": 5162, "lemonde95": 5072, "atsfr94": 3868, "atsfr95": 3780,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ markup

LAT = """<DOC>
<DOCNO> LA010194-0001 </DOCNO>
<DOCID> 000001 </DOCID>
<DATE>
<P>
January 1, 1994, Saturday
</P>
</DATE>
<SECTION><P>Part A; Page 1; Metro Desk</P></SECTION>
<LENGTH><P>12 words</P></LENGTH>
<HEADLINE>
<P>
Smith &amp; Sons
</P>
<P>close</P>
</HEADLINE>
<BYLINE><P>By A. WRITER</P></BYLINE>
<TEXT>
<P>
One paragraph
over two lines.
</P>
<P>Another.</P>
</TEXT>
<GRAPHIC><P>Photo, A shop</P></GRAPHIC>
<TYPE><P>Column</P></TYPE>
<SUBJECT><P>SHOPS</P></SUBJECT>
</DOC>
"""


def test_los_angeles_times():
    assert parse(LAT * 2) == 2 * [
        Document("LA010194-0001", "Smith & Sons close", "One paragraph over two lines. Another. Photo, A shop")
    ]


@pytest.mark.parametrize(
    ("body", "title", "text"),
    [
        # The agencies, with index terms that are not allowed.
        (
            "<KW>Politik</KW><NO>12</NO><TI>Titel</TI><LD>Bern, 6. Jan. (sda)</LD><TX>Text.</TX><TX>Mehr.</TX>",
            "Titel",
            "Bern, 6. Jan. (sda) Text. Mehr.",
        ),
        ("<DATE>19940102</DATE><CATEGORY>POL</CATEGORY><TITLE>T</TITLE><TEXT>x\ny</TEXT>", "T", "x y"),
        # NRC Handelsblad: fields within a body.
        ("<BODY><AU>iemand</AU><TI>Kop</TI><LE>Begin.</LE><TE>Vervolg.</TE><OT>Bij de foto.</OT></BODY>", "Kop",
         "Begin. Vervolg. Bij de foto."),
        # As in TREC's topics, without ends.
        ("<DATE> 940102\n<TI> A title\n<LD> A lead\n<KW> a, b\n<TX> A text\n<P> and more", "A title",
         "A lead A text and more"),
        # Fields that are not known are text; an unknown element within a known one belongs to it.
        ("<TITLE>T</TITLE><STORY><PARA>one</PARA><PARA>two</PARA></STORY>bare", "T", "one two bare"),
        ("<DATE><DAY>3</DAY><X>4</X></DATE><TITLE><LINE>a</LINE><LINE>b</LINE></TITLE>", "a b", ""),
        # A heading between paragraphs stays there, and a section of a text is not that of a newspaper.
        ("<TITLE>T</TITLE><TEXT>one<HEAD>two</HEAD>three<SECTION>four</SECTION></TEXT>", "T", "one two three four"),
        ("<TEXT>one</TEXT><TITLE>T</TITLE>", "T", "one"),
        # Any case, attributes, an empty element, tags that do not match.
        ('<title lang="de" type=x>T</Title ><text><p id="1">one<br/>two<BR>3</p></text></em><date/><P>four</P>', "T",
         "one two 3 four"),
        ("<KW>a<KW>b</KW><P>kept</P>", "", "kept"),
        ("<TITLE>a<TEXT>b</TITLE>c</TEXT>d", "a", "b c d"),
        # Word boundaries, and signs that are no tags.
        ("<TEXT>H<SUB>2</SUB>O x<3 a < b > c 1<>2 <é></TEXT>", "", "H 2 O x<3 a < b > c 1<>2 <é>"),
        # Entities.
        ("<TEXT>&lt;b&gt; R&D AT&T; &eacute;&Ouml;&#233;&#xE9;&#146; &copyright &unknown; &amp;amp;</TEXT>",
         "", "<b> R&D AT&T; éÖéé’ &copyright &unknown; &amp;"),
        ("<TEXT>a&hyph;b&blank;c &#55296;</TEXT>", "", "a-b c \ufffd"),
        (f"<TEXT>&#{'9' * 5000}; &#1114112;</TEXT>", "", f"&#{'9' * 5000}; \ufffd"),
        # CDATA, comments and processing instructions.
        ("<TITLE><![CDATA[a < b & c <i>d</i> &amp;]]></TITLE><TEXT>x<!-- <P>not</P> -->y<?pi z?></TEXT>",
         "a < b & c <i>d</i> &amp;", "x y"),
        ("<TEXT>a <!-- no end</TEXT>", "", "a <!-- no end"),
        ("<TEXT>a <![CDATA[ no end, <!-- but this --> b</TEXT>", "", "a <![CDATA[ no end, b"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_fields(body, title, text):
    assert one(body) == Document("X-1", title, text)


@pytest.mark.parametrize(
    ("number", "docno"),
    [
        ("<DOCNO>\n A-1\t</DOCNO>", "A-1"),
        ("<DOCID>A-2</DOCID>", "A-2"),
        ("<DOCID>A-2</DOCID><DOCNO>A-1</DOCNO>", "A-1"),
        ("<DOCNO> </DOCNO><DOCID>A-2</DOCID>", "A-2"),
        ("<docno><![CDATA[A&1]]></docno>", "A&1"),
        ("<DOCNO type='x'><B>A-1</B></DOCNO>", "A-1"),
        ("<DOCNO>A-1\n<TITLE>t</TITLE>", "A-1"),
        ("<DOCNO>A- 1</DOCNO>", "A-1"),
        ("<DOCNO>&#65;-1</DOCNO>", "A-1"),
    ],
)
def test_docnos(number, docno):
    assert one("<TEXT>x</TEXT>", number).docno == docno


def test_xml_with_a_root():
    xml = """<?xml version="1.0" encoding="UTF-8"?>
    <!DOCTYPE docs [ <!ENTITY x "y"> ]>
    <!-- a comment -->
    <docs date="1994">
      <doc id="1"><docno>A-1</docno><title>Zürich</title><text><p>a</p></text></doc>
      <!-- another -->
      <doc><docno>A-2</docno><doctype>b</doctype></doc>
    </docs>
    """
    assert parse(xml) == [Document("A-1", "Zürich", "a"), Document("A-2", "", "b")]


# --------------------------------------------------------------------------------------------------------- encodings


def article(docno, text):
    return f"<DOC>\n<DOCNO>{docno}</DOCNO>\n<TEXT>{text}</TEXT>\n</DOC>\n"


UMLAUTS = "Größe façade Ølgod"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings_that_are_not_declared(encoding):
    content = (article("1", UMLAUTS) + article("2", "ASCII")).encode(encoding)
    assert [document.text for document in parse(content)] == [UMLAUTS, "ASCII"]


@pytest.mark.parametrize("encoding", ["utf-8", "ISO-8859-1", "windows-1252", "cp1252", "iso-8859-15", "utf-16"])
def test_encodings_that_are_declared(encoding):
    content = f'<?xml version="1.0" encoding="{encoding}"?>\n<docs>{article("1", UMLAUTS)}</docs>'
    assert parse(content.encode(encoding))[0].text == UMLAUTS


@pytest.mark.parametrize(
    ("docno", "text", "encoding", "guess"),
    [
        ("LA010194-0001", "“quotes” – €", "cp1252", ""),
        ("LA010194-0001", "é\x81", "latin-1", ""),
        ("IZV950106-00025", "Известия", "cp1251", "cp1251"),
        ("IZV950106-00025", "Пётр и её ёлка – РЁВ", "cp1251", "cp1251"),  # with pairs of bytes that look like UTF-8
        ("IZV950106-00025", "Пётр и её ёлка", "koi8-r", "koi8-u"),
        ("IZV950106-00025", "В МОСКВЕ ПРОШЛИ ВЫБОРЫ", "koi8-r", "koi8-u"),
        ("SEGA20020101-001", "Сега", "cp1251", "cp1251"),
        ("NST2002-01-04-052", "Промишленост на България", "iso8859-5", "iso8859-5"),
        ("NST2002-01-04-052", "Промишленост на България", "cp866", "cp866"),
        ("MH20020101-001", "Magyar Hírlap: őű", "cp1250", "cp1250"),
        ("HAM2-750402-001", "همشهری".replace("ی", "ي"), "cp1256", "cp1256"),
    ],
)
@pytest.mark.parametrize("declared", ["", "ISO-8859-1"])
def test_eight_bits_without_a_true_declaration(docno, text, encoding, guess, declared):
    problems = Problems()
    start = f'<?xml version="1.0" encoding="{declared}"?>\n' * bool(declared)
    content = (start + article(docno, text) + article(docno, text)).encode(encoding)
    assert parse(content, problems) == [Document(docno, "", text)] * 2
    assert parse((start + article(docno, text)).encode()) == [Document(docno, "", text)]
    assert len(problems) == bool(guess) and (not guess or f"such are read as {guess}" in problems.messages[0])


def test_several_encodings_in_a_file():
    problems = Problems()
    content = (
        article("1", UMLAUTS).encode()
        + article("2", UMLAUTS).encode("latin-1")
        + article("3", "ASCII").encode()
        + article("4", UMLAUTS).encode().replace(b"fa\xc3\xa7ade", b"fa\xe7ade")
    )  # fmt: skip
    assert [document.text for document in parse(content, problems)] == [UMLAUTS, UMLAUTS, "ASCII", UMLAUTS]
    assert not problems


@pytest.mark.parametrize("encoding", ["utf-9", "utf-16", "zlib", "rot13", "unicode_escape", "punycode", "utf-7"])
def test_wrong_declarations(encoding):
    problems = Problems()
    content = f'<?xml version="1.0" encoding="{encoding}"?>{article("1", UMLAUTS)}'.encode("latin-1")
    assert parse(content, problems) == [Document("1", "", UMLAUTS)]
    assert f"file.sgml, byte 0: the encoding {encoding} is unknown, or not that of the file" in problems.messages
    problems = Problems()
    content = f'<?xml version="1.0" encoding="UTF-8"?>{article("1", UMLAUTS)}'.encode("latin-1")
    assert parse(content, problems) == [Document("1", "", UMLAUTS)]
    assert problems.messages[0].endswith(": a document is not in utf-8, as the file says that it is")


# ------------------------------------------------------------------------------------------------------------ damage


def check(content, documents, *messages, kind=None):
    problems = Problems()
    assert [tuple(document) for document in parse(content, problems)] == documents
    assert problems.messages == [f"file.sgml, {message}" for message in messages]
    if kind:
        assert list(problems.counts) == [kind]


@pytest.mark.parametrize(
    ("content", "documents", "message", "kind"),
    [
        (
            "<DOC><DOCNO>1</DOCNO>a<DOC><DOCNO>2</DOCNO>b</DOC>", [("1", "", "a"), ("2", "", "b")],
            "byte 5: document 1 does not end before the next one begins", "documents without an end",
        ),
        (
            "<DOC><DOCNO>1</DOCNO>a</DOC>\n<DOCNO>2</DOCNO>b</DOC><DOC><DOCNO>3</DOCNO>c</DOC>",
            [("1", "", "a"), ("2", "", "b"), ("3", "", "c")],
            "byte 28: document 2 has no <DOC> before it", "documents without a beginning",
        ),
        *(
            (
                f"<DOC>{number}<P>lost</P></DOC><DOC><DOCNO>2</DOCNO>b</DOC>", [("2", "", "b")],
                f"byte 5: a document without DOCNO and DOCID: {(number + '<P>lost</P>')[:40]!r}",
                "documents without a docno",
            )
            for number in ("", "<DOCNO></DOCNO>", "<DOCNO>\n</DOCNO><DOCID> </DOCID>")
        ),
        (
            "<DOC><DOCNO>1</DOCNO>a</DOC>\n<P>\n some junk </DOC>\n\x1a<DOC><DOCNO>2</DOCNO>b</DOC>\0\n\x1a",
            [("1", "", "a"), ("2", "", "b")],
            "byte 28: 16 bytes outside documents: 'somejunk'", "texts outside documents",
        ),
        (
            "<DOC><DOCNO>1\0</DOCNO>a\0\0b\x07c</DOC>", [("1", "", "a b c")],
            "byte 5: 3 NUL bytes in a document", "documents with NUL bytes",
        ),
    ],
)  # fmt: skip
def test_damage(content, documents, message, kind):
    check(content, documents, message, kind=kind)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("", ""),
        ("<TEXT>some te", "some te"),
        ("<TEXT>some</TE", "some"),
        ("<TEXT>some</TEXT>\n</DOC", "some"),
        ("<TEXT>some<", "some"),
    ],
)
def test_a_file_that_breaks_off(end, text):
    check(
        f"<DOC><DOCNO>1</DOCNO>{end}",
        [("1", "", text)],
        "byte 5: document 1 does not end before the file ends",
        kind="documents without an end",
    )


def test_a_document_that_is_too_long(monkeypatch):
    monkeypatch.setattr(reader, "_LARGEST", 5000)
    monkeypatch.setattr(encodings, "_CHUNK", 100)
    check(
        f"<DOC><DOCNO>1</DOCNO>{'x' * 6000}</DOC><DOC><DOCNO>2</DOCNO>{'y' * 4900}</DOC>",
        [("2", "", "y" * 4900)],
        "byte 5: no end of a document in 64 MB",
        kind="documents of more than 64 MB",
    )


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\0" * 100, b"%PDF-1.4\n\xff\xfe", b"\xff\xfe", b"</DOC>", b"<", b"<!"]
)
def test_a_file_of_something_else(content):
    problems = Problems()
    assert parse(content, problems) == []
    assert problems.counts["files without documents"] == 1


def test_a_truncated_archive_gives_what_comes_before(tmp_path):
    whole = gzip.compress("".join(article(str(i), os.urandom(300).hex()) for i in range(5000)).encode())
    path = tmp_path / "news.gz"
    path.write_bytes(whole[: len(whole) // 2])
    problems = Problems()
    found = [d.docno for member in members(path) for d in read_documents(member.stream, "news.gz", problems)]
    assert found == [str(i) for i in range(len(found))] and 2300 < len(found) < 2600
    assert problems.counts == {"files that break off": 1, "documents without an end": 1}


# --------------------------------------------------------------------------------------------------- chunks and memory

EVERYTHING = (
    LAT
    + "<DOC id='x'>"
    + article("2", UMLAUTS)
    + "junk<DOC><P>no number</P></DOC><DOCNO>3</DOCNO>c<DOCNO>4</DOCNO><![CDATA[d]]></DOC><doc\n>"
    + "<DOCNO>5</DOCNO>e<TEX"
).encode()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 64, 1000])
def test_the_size_of_chunks_makes_no_difference(size, monkeypatch):
    whole, parts = Problems(), Problems()
    expected = parse(EVERYTHING, whole)
    assert [document.docno for document in expected] == ["LA010194-0001", "2", "3", "4", "5"]
    monkeypatch.setattr(encodings, "_CHUNK", size)
    monkeypatch.setattr(reader, "_HEAD", 1)
    assert parse(EVERYTHING, parts) == expected and parts == whole


class Endless:
    """So many copies of some bytes."""

    def __init__(self, content, copies):
        self._content, self._left = content, copies

    def read1(self, size=-1):
        self._left -= 1
        return self._content if self._left >= 0 else b""


def peak(content, copies):
    tracemalloc.start()
    try:
        problems = Problems()
        n = sum(1 for _ in read_documents(Endless(content, copies), "x", problems))
        return n, tracemalloc.get_traced_memory()[1], problems
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content", [b"x" * 10000, b"<DOC>" + b"y" * 9995, b"<DOCNO>" * 1000, b"<!--" * 2500, b"\xff\xfe" + b"<" * 9998]
)
def test_memory_is_bounded_whatever_the_bytes(content, monkeypatch):
    monkeypatch.setattr(reader, "_LARGEST", 200_000)
    _, used, problems = peak(content, 200)
    assert used < 3_000_000 and problems


@pytest.mark.parametrize(
    "inside", ["<!--", "<![CDATA[", "<a", "<a ", "<DATE>", "</TEXT", "&#9", "<TEXT>", "<![CDATA[<!--", "<KW><TI>", "< "]
)
def test_time_is_linear_in_the_document(inside):
    text = inside * (1_000_000 // len(inside))
    (document,) = parse(f"<DOC><DOCNO>1</DOCNO>{text}</DOC>", Problems())
    assert document.docno == "1"


# -------------------------------------------------------------------------------------------------------------- fuzz

PIECES = st.sampled_from(
    b"<DOC> </DOC> <DOCNO> </DOCNO> A-1 <DOCID> <TEXT> </TEXT> <KW> <!-- --> <![CDATA[ ]]> < > /> &amp; &# word".split()
    + [b"\0", b"\xff", b"\xc3", b"\xc3\xa9", b"\xff\xfe", b"\xef\xbb\xbf", b" ", b"\n", b"<?xml encoding='utf-8'?>"]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=40).map(b"".join)), st.integers(1, 50))
def test_any_bytes_are_read_without_an_error(content, size):
    problems = Problems()
    documents = parse(content, problems)
    assert all(document.docno and document.docno == "".join(document.docno.split()) for document in documents)
    assert documents or problems
    whole, parts = Problems(), Problems()
    documents = parse(b"<DOC>" + content, whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encodings, "_CHUNK", size)
        patch.setattr(reader, "_HEAD", 1)
        assert parse(b"<DOC>" + content, parts) == documents and parts == whole
