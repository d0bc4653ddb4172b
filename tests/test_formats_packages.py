"""Resources as they are published: FreeDict packages, their TEI sources, and a dump of PanLex."""

import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyterrier_mart.translation import formats
from pyterrier_mart.translation.builder import TableBuilder, TableFormatError
from pyterrier_mart.translation.formats.markup import records

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
    return formats.read(path, source, target, **options)


def tarred(path, files, mode):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            data = data.encode() if isinstance(data, str) else data
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def ar(path, files):
    """A Debian package: an ar archive."""
    data = b"!<arch>\n"
    for name, content in files.items():
        data += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        data += b"\n" * (len(content) % 2)
    path.write_bytes(data)
    return path


def dictd(folder="deu-eng/", name="deu-eng"):
    return {
        f"{folder}{name}.index": INDEX,
        f"{folder}COPYING": "GPL",
        f"{folder}{name}.dict.dz": gzip.compress(DICT.encode()),
    }


def deb(tmp_path, name="dict-freedict-deu-eng_2022.04.21-1_all.deb"):
    files = dictd("./usr/share/dictd/", "freedict-deu-eng")
    data = tarred(tmp_path / "data.tar.xz", files, "w:xz").read_bytes()
    return ar(tmp_path / name, {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": data})


# --- FreeDict --------------------------------------------------------------------------------------------------------


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


def test_malformed_lines_in_a_package_are_named(tmp_path):
    files = {"a.index": INDEX + "x\tA\n", "a.dict": DICT}
    path = tarred(tmp_path / "freedict.tgz", files, "w:gz")
    with pytest.raises(TableFormatError, match=r"freedict\.tgz/a\.index, line 4: expected headword, offset and length"):
        read(path, format="freedict")
    with pytest.warns(UserWarning, match="skipped 1"):
        assert translations(read(path, format="freedict", on_error="skip")) == FROM_DICT


# --- hostile XML -----------------------------------------------------------------------------------------------------


def entry(word="Haus", translation="house"):
    return f"<entry><form><orth>{word}</orth></form><cit type='trans'><quote>{translation}</quote></cit></entry>"


LAUGHS = (
    '<!DOCTYPE T [<!ENTITY a "haha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;">]>'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{LAUGHS}<T>{entry('&c;')}</T>", "line 1: declares the entity 'a'"),
        (f'<!DOCTYPE T [<!ENTITY x SYSTEM "secret.txt">]>\n<T>{entry("&x;")}</T>', "line 1: declares the entity 'x'"),
        (f'<!DOCTYPE T [<!ENTITY % x SYSTEM "http://example.org/x"> %x;]><T>{entry()}</T>', "declares the entity 'x'"),
        (f"<T>{entry()}", "line 1: not well-formed XML: no element found"),
        (f"<T>{entry()}\n<entry></T>", "line 2: not well-formed XML: mismatched tag"),
        (f"<T>{entry('&nope;')}</T>", "line 1: not well-formed XML: undefined entity"),
        ("<a>" * 300, "line 1: tags nested more than 100 deep"),
        (f"<T>{entry()}<!--" + "x" * (5 << 20) + "--></T>", "a tag or comment longer than 4,194,304 bytes"),
        (f"<T>\n{entry('x' * (1 << 21))}{entry()}</T>", "line 2: longer than 1,048,576 characters"),
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


@pytest.mark.filterwarnings("default")
def test_what_can_be_skipped_is(tmp_path):
    path = tmp_path / "deu-eng.tei"
    path.write_text(f"<T>\n{entry('x' * (1 << 21))}{entry('Katze', 'cat')}<entry></T>")
    with pytest.warns(UserWarning, match="skipped 2 malformed entries, the first: .*line 2: longer"):
        assert translations(read(path, on_error="skip")) == {"katze": {"cat"}}


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1", "windows-1252"])
def test_declared_encodings(tmp_path, encoding):
    path = tmp_path / "deu-eng.tei"
    path.write_bytes(f"<?xml version='1.0' encoding='{encoding}'?><T>{entry('Tür', 'door')}</T>".encode(encoding))
    assert translations(read(path)) == {"tur": {"door"}}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=40), at=st.integers(0, len(TEI)), cut=st.integers(0, 30))
def test_any_bytes_are_read_or_refused(junk, at, cut):
    data = TEI.encode()
    stream = io.BytesIO(data[:at] + junk + data[at + cut :])
    builder = TableBuilder("de", "en", on_error="skip")
    try:
        assert all(element.tag == "entry" for _, element in records(stream, builder, "x", frozenset({"entry"})))
    except TableFormatError as err:
        assert str(err).startswith("x, line ")


def test_memory_does_not_grow_with_the_file():
    class Long:
        left = 2_000

        def read(self, size):
            self.left -= 1
            return b"<T>" if self.left == 1_999 else entry().encode() * 30 if self.left else b""

    stream = Long()
    tracemalloc.start()
    n = sum(1 for _ in records(stream, TableBuilder("de", "en", on_error="skip"), "x", frozenset({"entry"})))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == 1_998 * 30 and peak < 2_000_000


# --- PanLex ----------------------------------------------------------------------------------------------------------

LANGVAR = (
    "id,lang_code,var_code,mutable,name_expr,script_expr,meaning,region_expr,uid_expr,grp\n"
    "157,deu,0,t,2,1,3,4,5,157\n187,eng,0,t,2,1,3,4,5,187\n8000,zzz,0,t,2,1,3,4,5,8000\n"
)
EXPR = (
    'id,langvar,txt,txt_degr\n1,157,Haus,haus\n2,187,house,house\n3,187,"home, ""sweet""",home\n4,157,Katze,katze\n'
    "5,187,cat,cat\n6,8000,mik,mik\n"
)
SOURCE = (
    "id,label,reg_date,url,isbn,author,title,publisher,year,quality,grp,note\n"
    '10,deu-eng:A,2010-01-01,http://x,,"A, B",Dictionary,P,2001,7,10,"two\nlines, quoted"\n'
    "11,mul:B,2010-01-01,,,,,,,2,10,\n12,mul:C,2010-01-01,,,,,,,3,,\n"
)
MEANING = "id,source\n100,10\n101,11\n102,12\n103,12\n"
DENOTATION = "id,meaning,expr\n1,100,1\n2,100,2\n3,101,1\n4,101,2\n5,102,1\n6,102,3\n7,103,4\n8,103,5\n9,103,6\n"
DENOTATIONX = (
    "id,meaning,source,grp,quality,expr,langvar\n1,100,10,10,7,1,157\n2,100,10,10,7,2,187\n3,101,11,10,2,1,157\n"
    "4,101,11,10,2,2,187\n5,102,12,12,3,1,157\n6,102,12,12,3,3,187\n7,103,12,12,3,4,157\n8,103,12,12,3,5,187\n"
    "9,103,12,12,3,6,8000\n"
)
SCHEMAS = {
    "plain": {"denotation": DENOTATION, "meaning": MEANING, "source": SOURCE},
    "extended": {"denotationx": DENOTATIONX, "source": SOURCE},
}


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("packed", ["zip", "unpacked", "folder"])
def test_panlex_dump(tmp_path, schema, packed, capsys):
    dated = "panlex-20240101-csv"
    files = {"langvar": LANGVAR, "expr": EXPR, "wcex": "expr,langvar\n", **SCHEMAS[schema]}
    path = tmp_path / (f"{dated}.zip" if packed == "zip" else "dump")
    if packed == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{dated}/", "")
            for name, text in files.items():
                archive.writestr(f"{dated}/{name}.csv", text)
    else:
        folder = path / dated if packed == "unpacked" else path
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / f"{name}.csv").write_text(text)
    assert formats.guess(path) == "panlex-dump"
    table = read(path, phrases="split", verbose=True)
    # house: the better of two sources of one group, 7; "home, sweet": 3, over two words
    assert table.translations("Haus") == pytest.approx({"house": 0.7, "home": 0.15, "sweet": 0.15})
    assert translations(read(path, "en", "de"))["cat"] == {"katze"}
    assert "expr.csv" in capsys.readouterr().err


def test_other_zip_files(tmp_path):
    path = tmp_path / "de-en.txt.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("Europarl.de-en.de", "x")
    with pytest.raises(TableFormatError, match=r"missing langvar\.csv; found Europarl\.de-en\.de"):
        read(path)
    assert formats.guess(tmp_path) is None
    with pytest.raises(TableFormatError, match=r"missing langvar\.csv; found de-en\.txt\.zip"):
        read(tmp_path)
