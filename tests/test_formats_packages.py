"""Resources as they are published: FreeDict packages, their TEI sources, and a dump of PanLex."""

import gzip
import io
import lzma
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing import make_deb, tarred, zipped

from pyterrier_mart import TranslationTable
from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.translation.builder import EntryBuilder, TableFormatError
from pyterrier_mart.translation.formats.common import records

DICT = "Haus <n>\nhouse, home\nKatze /k/\n1. cat (animal)\n"
INDEX = "00databaseshort\tA\tA\nhaus\tA\tV\nkatze\tV\ta\n"
TEI = """<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/css" href="freedict-dictionary.css"?>
<!DOCTYPE TEI SYSTEM "freedict-P5.dtd">
<TEI xmlns="http://www.tei-c.org/ns/1.0" version="5.0">
<teiHeader><fileDesc><titleStmt><title>German-English &eacute;</title></titleStmt></fileDesc></teiHeader>
<text><body xml:lang="de">
<entry xml:id="haus.1"><form><orth>Haus</orth><pron>haʊs</pron></form>
  <form type="infl"><orth>Häuser</orth></form>
  <gramGrp><pos>n</pos><gen>neut</gen></gramGrp>
  <sense n="1"><usg type="dom">arch.</usg>
    <cit type="trans" xml:lang="en"><quote>house</quote><gramGrp><pos>n</pos></gramGrp></cit>
    <cit type="trans" xml:lang="en"><quote>home (of sb.)</quote></cit>
    <cit type="example" xml:lang="de"><quote>zu Hause</quote>
      <cit type="trans" xml:lang="en"><quote>inside</quote></cit></cit>
    <note>nothing</note><def>building</def>
    <xr type="syn"><ref target="#bau">Bau</ref></xr>
  </sense>
  <re><form><orth>Hausboot</orth></form><sense><cit type="trans"><quote>houseboat</quote></cit></sense></re>
</entry>
<entry><form><orth>Katze</orth></form><trans><tr>cat, caf&eacute;</tr></trans></entry>
<superEntry><entry><form><orth>Caf&#233;</orth></form>
  <sense><sense><cit type="translation"><quote>caf&eacute;</quote></cit></sense></sense></entry></superEntry>
</body></text></TEI>
"""
FROM_DICT = {"haus": {"house", "home"}, "katze": {"cat"}}
FROM_TEI = {
    "haus": {"house", "home"}, "hauser": {"house", "home"}, "hausboot": {"houseboat"}, "katze": {"cat", "cafe"},
    "cafe": {"cafe"},
}  # fmt: skip


def translations(table):
    return {word: set(table.translations(word)) for word in table.source_words}


def read(path, source="de", target="en", **options):
    return TranslationTable.read(path, source, target, **options)


def dictd(folder="deu-eng/", name="deu-eng"):
    return {
        f"{folder}{name}.index": INDEX,
        f"{folder}COPYING": "GPL",
        f"{folder}{name}.dict.dz": gzip.compress(DICT.encode()),
    }


def deb(tmp_path):
    path = tmp_path / "dict-freedict-deu-eng_2022.04.21-1_all.deb"
    path.write_bytes(make_deb(dictd("./usr/share/dictd/", "freedict-deu-eng")))
    return path


# --- FreeDict --------------------------------------------------------------------------------------------------------


DICTD = """Haus /hˈaʊs/ <neut, n, sg>
 [arch.] house <n>, home <n>chm. (of sb.), big house <n>
         Note: a thing, another thing
      "zu Hause"  - at home
   Synonyms: {Bau}, {Gebäude}

 see: {Häuser}
|Haus… /hˈaʊs/
domestic
|etw. aufheben /ˈaʊf/
1. lift
2.
keep
; save
|Sehen
see <v>
|Stickstoff /x/ (N)
nitrogen
|Häuser <n>

 Plural of {Haus}: houses
|"""
HEADWORDS = [["haus"], ["haus"], ["etw aufheben"], ["sehen"], ["n", "stickstoff"], ["häuser"]]
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def digits(n):
    return (digits(n // 64) if n >= 64 else "") + DIGITS[n % 64]


def freedict(tmp_path, lines=None, name="freedict-deu-eng", packed=True):
    index, body = ["00databaseshort\tA\t5"], b""
    for words, entry in zip(HEADWORDS, DICTD.split("|"), strict=False):
        data = entry.encode("utf-8")
        index += [f"{word}\t{digits(len(body))}\t{digits(len(data))}" for word in words]
        body += data
    (tmp_path / f"{name}.index").write_text("\n".join(index if lines is None else lines) + "\n")
    (tmp_path / f"{name}.dict{'.dz' if packed else ''}").write_bytes(gzip.compress(body) if packed else body)
    return tmp_path / name


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("ending", ["", ".index", ".dict"])
def test_freedict(tmp_path, packed, ending):
    prefix = freedict(tmp_path, packed=packed)
    path = prefix.with_name(prefix.name + ending + (".dz" if packed and ending == ".dict" else ""))
    table = read(path)
    found = {word: set(table.translations(word)) for word in table.source_words}
    assert found == {
        "haus": {"house", "home"}, "aufheben": {"lift", "keep", "save"}, "sehen": {"see"}, "n": {"nitrogen"},
        "stickstoff": {"nitrogen"}, "hauser": {"houses"},
    }  # fmt: skip
    assert table.prob("house", "haus") == 0.5
    assert table.meta["source_format"] == "freedict"
    with pytest.raises(ValueError, match="holds de-en, but de-fr was asked for"):
        read(path, "de", "fr")


@pytest.mark.parametrize(
    "line, reason",
    [
        ("haus\tA", r"expected headword, offset and length \(base-64 digits\), found 'haus"),
        ("haus\tA\t?", "expected headword, offset and length"),
        ("haus\tA\t", "expected headword, offset and length"),
        ("haus\tA\t////", r"offset 0 \+ length 16,777,215 is beyond the end of .*freedict-deu-eng.dict.dz"),
        ("haus\t////\tB", r"offset 16,777,215 \+ length 1 is beyond the end"),
        ("haus\tA\tI", "the entry at offset 0 of .*freedict-deu-eng.dict.dz is not UTF-8"),  # cuts a letter
    ],
)
def test_malformed_freedict_index(tmp_path, line, reason):
    path = freedict(tmp_path, ["00databaseshort\tA\tF", "haus\tA\tBA", line])
    with pytest.raises(TableFormatError, match=r"freedict-deu-eng\.index, line 3: " + reason):
        read(path)
    with pytest.warns(UserWarning, match="skipped 1"):
        assert "haus" in read(path, on_error="skip")


@pytest.mark.parametrize(
    "make",
    [
        lambda tmp: tarred(tmp / "freedict-deu-eng-1.9-fd1.dictd.tar.xz", dictd(), "w:xz"),
        lambda tmp: tarred(tmp / "freedict-deu-eng-0.3.tar.bz2", dict(reversed(dictd().items())), "w:bz2"),
        deb,
    ],
)
def test_dictd_packages(tmp_path, make):
    path = make(tmp_path)
    table = read(path)
    assert translations(table) == FROM_DICT
    assert table.meta["source"] == path.name and table.meta["source_format"] == "freedict"
    with pytest.raises(ValueError, match=r"freedict-deu-eng.* holds de-en, but en-de was asked for"):
        read(path, "en", "de")


@pytest.mark.parametrize("name", ["deu-eng.tei", "deu-eng.tei.gz", "deu-eng.tei.xz", "freedict-deu-eng-1.9.src.tar.xz"])
def test_tei(tmp_path, name):
    path = tmp_path / name
    if name.endswith(".tar.xz"):
        tarred(path, {"deu-eng/Makefile": "all:", "deu-eng/deu-eng.tei": TEI, "deu-eng/x.css": ""}, "w:xz")
    else:
        path.write_bytes({"tei": bytes, "gz": gzip.compress, "xz": lzma.compress}[name[-3:].strip(".")](TEI.encode()))
    table = read(path)
    assert translations(table) == FROM_TEI
    assert table.prob("house", "haus") == 0.5
    with pytest.raises(ValueError, match="holds de-en, but fr-en was asked for"):
        read(path, "fr", "en")


def test_unpacked_packages(tmp_path):
    for name, data in {**dictd("deu-eng/"), **dictd("fra-eng/", "fra-eng")}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
    assert translations(read(tmp_path / "deu-eng")) == FROM_DICT
    assert translations(read(tmp_path)) == FROM_DICT  # of two, the one of these languages
    with pytest.raises(TableFormatError, match=r"holds several dictionaries; expected .*, found deu-eng/COPYING"):
        read(tmp_path, "es", "en")


def test_packages_that_are_renamed_or_hold_nothing(tmp_path):
    path = tarred(tmp_path / "download", dictd(), "w:gz")
    assert translations(read(path, format="freedict")) == FROM_DICT
    with pytest.raises(ValueError, match=r"download/deu-eng/deu-eng\.index holds de-en, but de-fr was asked for"):
        read(path, "de", "fr", format="freedict")
    path = tarred(tmp_path / "freedict-deu-eng-1.9.stardict.tar.xz", {"a.ifo": "", "a.dict": ""}, "w:xz")
    with pytest.raises(TableFormatError, match=r"stardict\.tar\.xz holds no FreeDict dictionary; .*found a\.ifo, a"):
        read(path)
    data = deb(tmp_path).read_bytes()
    for size in (len(data) // 2, 100):
        (tmp_path / "dict-freedict-deu-eng.deb").write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"freedict-deu-eng\.deb"):
            read(tmp_path / "dict-freedict-deu-eng.deb")


# --- hostile XML -----------------------------------------------------------------------------------------------------


def entry(word="Haus", translation="house"):
    return f"<entry><form><orth>{word}</orth></form><cit type='trans'><quote>{translation}</quote></cit></entry>"


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 20}">' for i in range(1, 9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'<!DOCTYPE T [<!ENTITY l0 "haha">{LAUGHS}]><T>{entry("&l8;")}</T>', "not well-formed XML"),
        (f'<!DOCTYPE T [<!ENTITY x SYSTEM "secret.txt">]>\n<T>{entry("&x;")}</T>', "undefined entity"),
        (f"<T>{entry()}\n<entry></T>", "line 2: not well-formed XML: mismatched tag"),
        (f"<T>{entry('&nope;')}</T>", "line 1: not well-formed XML: undefined entity"),
        ("<a>" * 300, "tags nested more than 100 deep"),
        ("\x00\x01 no XML", "line 1: not well-formed XML"),
        ("", "line 1: not well-formed XML: no element found"),
        ("<T/>", "no entries"),
    ],
)
def test_hostile_tei(tmp_path, text, message):
    (tmp_path / "secret.txt").write_text("secret")
    path = tmp_path / "deu-eng.tei"
    path.write_text(text)
    with pytest.raises(TableFormatError, match=rf"deu-eng\.tei.*{message}"):
        read(path)


def test_what_comes_before_damage_can_be_read(tmp_path):
    path = tmp_path / "deu-eng.tei"
    path.write_text(f"<T>\n{entry('Katze', 'cat')}<entry></T>")
    with pytest.warns(UserWarning, match="skipped 1 malformed entry, the first: .*line 2: not well-formed"):
        assert translations(read(path, on_error="skip")) == {"katze": {"cat"}}


@pytest.mark.parametrize("encoding", ["U-TF-8", "base64", "utf-7", "idna"])
def test_encodings_that_cannot_be_read(encoding):
    stream = io.BytesIO(f'<?xml version="1.0" encoding="{encoding}"?><T></T>'.encode())
    with pytest.raises(TableFormatError, match="x, line 1: not readable as XML"):
        list(records(stream, EntryBuilder("de", "en"), "x", frozenset({"entry"})))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=40), at=st.integers(0, len(TEI)), cut=st.integers(0, 30))
def test_any_bytes_are_read_or_refused(junk, at, cut):
    data = TEI.encode()
    stream = io.BytesIO(data[:at] + junk + data[at + cut :])
    builder = EntryBuilder("de", "en", on_error="skip")
    try:
        assert all(element.tag == "entry" for element in records(stream, builder, "x", frozenset({"entry"})))
    except TableFormatError as err:
        assert str(err).startswith("x")


def test_memory_does_not_grow_with_the_file():
    class Long:
        left = 300

        def read(self, size):
            self.left -= 1
            return b"<T>" if self.left == 299 else entry().encode() * 30 if self.left else b""

    stream = Long()
    tracemalloc.start()
    n = sum(1 for _ in records(stream, EntryBuilder("de", "en", on_error="skip"), "x", frozenset({"entry"})))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == 298 * 30 and peak < 2_000_000


def test_no_more_is_read_than_an_entry_can_have(tmp_path):
    (tmp_path / "freedict-deu-eng.index").write_text("haus\tA\tL\n")
    bomb = b"haus\nhouse\n" + bytes(100 << 20)
    (tmp_path / "freedict-deu-eng.dict.dz").write_bytes(gzip.compress(bomb, 1))
    (tmp_path / "bomb.tei.gz").write_bytes(gzip.compress(b"<TEI><entry><orth>" + b"x" * (100 << 20), 1))
    tracemalloc.start()
    assert read(tmp_path / "freedict-deu-eng.index").translations("haus") == {"house": 1.0}
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    with pytest.raises(TableFormatError, match=r"bomb\.tei\.gz: an element of more than 67,108,864 bytes"):
        read(tmp_path / "bomb.tei.gz")


# --- PanLex ----------------------------------------------------------------------------------------------------------

DUMP = {
    "langvar": "id,lang_code,var_code,mutable\n1,deu,0,f\n2,eng,0,f\n3,xxx,0,f\n4,eng,1,f\n",
    "expr": 'id,langvar,txt,txt_degr\n10,1,Haus,haus\n11,1,Katze,katze\n20,2,house,house\n21,2,"home, sweet",x\n'
    "22,2,cat,cat\n23,4,moggy,moggy\n24,2,home,home\n30,3,zzz,zzz\n",
    # meaning 1 and 2: two sources of one group; 3: another group; 5: only English
    "denotation": "id,meaning,expr\n1,1,10\n2,1,20\n3,2,10\n4,2,20\n5,3,10\n6,3,20\n7,3,24\n8,4,11\n9,4,22\n10,4,23\n"
    "11,5,22\n12,4,30\n",
    "meaning": "id,source\n1,100\n2,101\n3,102\n4,102\n5,999\n",
    "source": "id,grp,quality\n100,7,3\n101,7,5\n102,102,4\n",
}
EXTENDED = (
    "denotation,meaning,source,grp,quality,expr,langvar\n1,1,100,7,3,10,1\n2,1,100,7,3,20,2\n3,2,101,7,5,10,1\n"
    "4,2,101,7,5,20,2\n5,3,102,,4,10,1\n6,3,102,,4,20,2\n7,3,102,,4,24,2\n8,4,102,,4,11,1\n9,4,102,,4,22,2\n"
    "10,4,102,,4,23,4\n11,5,102,,4,22,2\n"
)


def dump(directory, **changes):
    directory.mkdir(exist_ok=True)
    for name, text in {**DUMP, **changes}.items():
        if text is not None:
            (directory / f"{name}.csv").write_text(text)
    return directory


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("as_zip", [False, True])
def test_panlex_dump(tmp_path, extended, as_zip):
    changes = {"denotation": None, "meaning": None, "source": None, "denotationx": EXTENDED} if extended else {}
    path = dump(tmp_path / "panlex-20240101-csv", **changes)
    if as_zip:
        path = zipped(tmp_path / "x.zip", {f"{path.name}/{file.name}": file.read_bytes() for file in path.iterdir()})
    table = read(path)
    # house: max(3, 5) of group 7 + 4; home: 4
    assert table.translations("Haus") == pytest.approx({"house": 9 / 13, "home": 4 / 13})
    assert table.translations("Katze") == {"cat": 0.5, "moggy": 0.5}
    assert read(path, target_variety=0).translations("Katze") == {"cat": 1.0}
    assert read(path, "en", "de").translations("cat") == {"katze": 1.0}
    with pytest.raises(ValueError, match=r"no variety 7 of language 'en'; found \[0, 1\]"):
        read(path, target_variety=7)
    with pytest.raises(ValueError, match="no language 'so'"):
        read(path, "de", "so")


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"expr": None}, r"d: missing expr\.csv; found"),
        ({"expr": "id,langvar\n"}, r"expr\.csv: missing column txt"),
        ({"expr": ""}, r"expr\.csv: missing column id, langvar, txt"),
        ({"expr": DUMP["expr"] + "x,1,Maus,maus\n"}, r"expr\.csv, line 10: expected numbers in id, langvar"),
        ({"expr": DUMP["expr"] + "31,1,Maus"}, r"expr\.csv, line 10: expected 4 columns, found 3"),
        ({"expr": DUMP["expr"].replace("house,house", "a,b,house")}, r"expr\.csv, line 4: expected 4 columns, found 5"),
        ({"source": "id,grp,quality\n100,7,3\n101,7,5\n"}, "the source of the meaning 3, or its quality, is missing"),
        ({"denotation": "id,meaning,expr\n"}, "no entries"),
        *(
            ({"source": DUMP["source"] + f"103,,{number}\n"}, r"source\.csv, line 5: expected numbers in id, quality")
            for number in ("1e400", "inf", "nan", "0_5", "٥")
        ),
    ],
)
def test_malformed_panlex_dump(tmp_path, changes, reason):
    with pytest.raises(TableFormatError, match=reason):
        read(dump(tmp_path / "d", **changes))


def test_huge_qualities(tmp_path):
    path = dump(tmp_path / "d", source="id,grp,quality\n100,7,1e308\n101,7,1e308\n102,102,1e308\n")
    assert read(path).translations("haus") == pytest.approx({"house": 2 / 3, "home": 1 / 3})


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (8, b"\x01\x00", "encrypted; unpack it with its password first"),
        (10, b"\x63\x00", "packed in a way that Python cannot read"),
    ],
)
def test_zips_that_cannot_be_unpacked_name_the_file(tmp_path, offset, value, reason):
    path = zipped(tmp_path / "panlex-csv.zip", {f"{name}.csv": text for name, text in DUMP.items()})
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    while at >= 0:  # every entry of the table of contents
        data[at + offset : at + offset + 2] = value
        at = data.find(b"PK\x01\x02", at + 4)
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=rf"panlex-csv\.zip/langvar\.csv: {reason}"):
        read(path)
