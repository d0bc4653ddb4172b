"""Reading and writing translation tables as files of other programs."""

import gzip
import json
import re
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing import zipped

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.translation import formats
from pyterrier_mart.translation.builder import TableFormatError
from pyterrier_mart.translation.table import TranslationTable

HAUS = {"haus": {"house": 0.75, "home": 0.25}, "katze": {"cat": 1.0}}
TABLE = TranslationTable.from_dict(HAUS, "de", "en")
UNIFORM = TranslationTable.from_dict(HAUS, "de", "en", weights="uniform")

MOSES = "house Haus 0.75\nhome Haus 0.25\ncat Katze 1\nNULL Katze 0.1\nthe NULL 0.4\n"
GIZA = "Haus house 0.75\nHaus\thome  0.25\n\nKatze cat 1.0\nNULL the 0.4\n"
TSV = "source\ttarget\tprob\nHaus\thouse\t0.75\nHaus\thome\t0.25\nKatze\tcat\t1"
CSV = 'prob,target,note,source\n0.75,house,"a ""big"",\nthing",Haus\n0.25,home,,Haus\n1,cat,,Katze\n'
PSQ = '{"Haus": {"house": 0.75,\n "home": 2.5e-1},\n"Katze": {"cat": 1}}'
MUSE = "Haus house\nHaus\thome\nKatze  cat\n"

PROBABLE = {  # format -> name of the file, text
    "moses-target-source": ("lex.e2f", MOSES),
    "source-target": ("de-en.actual.ti.final", GIZA),
    "tsv": ("t.tsv", TSV),
    "csv": ("t.csv", CSV),
    "psq": ("t.json", PSQ),
    "panlex": ("p.tsv", TSV.replace("prob", "quality").replace("0.75", "6").replace("0.25", "2")),
}


def put(tmp_path, name, content):
    data = content.encode("utf-8") if isinstance(content, str) else content
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith((".gz", ".dz")) else data)
    return path


def read(path, **options):
    return TranslationTable.read(path, "de", "en", **options)


# --- every format from literal examples ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBABLE)
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("change", [lambda t: t, lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n")])
def test_example(tmp_path, name, ending, change):
    file, text = PROBABLE[name]
    path = put(tmp_path, file + ending, change(text))
    table = read(path, format=name)
    assert table == TABLE
    assert table.meta["source"] == path.name
    assert table.meta["source_format"] == name
    if name != "panlex":  # whose files look like any TSV
        assert read(path, meta={"licence": "CC0"}).meta["licence"] == "CC0"


def test_swapped_columns_are_noticed(tmp_path):
    path = put(tmp_path, "lex", "a x 0.9\nb x 0.9\n")
    assert len(read(path, format="source-target")) == 2
    with pytest.raises(TableFormatError, match="'x' sum to 1.8, .*right order"):
        read(path, format="moses-target-source")


@pytest.mark.parametrize(
    "text, options",
    [
        ("Haus\thouse\t0.75\nHaus\thome\t0.25\nKatze\tcat\t1\n", {"header": False}),
        ("1\tHaus\t0.75\thouse\n2\tHaus\t0.25\thome\n3\tKatze\t1\tcat\n", {"header": False, "columns": (1, -1, 2)}),
        ("S\tT\tP\nHaus\thouse\t0.75\nHaus\thome\t0.25\nKatze\tcat\t1\n", {"columns": ("S", "T", "P")}),
        ("source;target;prob\nHaus;house;0.75\nHaus;home;0.25\nKatze;cat;1\n", {"delimiter": ";"}),
        ("0.75 Haus house\n0.25 Haus home\n1 Katze cat\n", {"delimiter": " ", "columns": (1, 2, 0), "header": False}),
    ],
)
def test_tsv_options(tmp_path, text, options):
    assert read(put(tmp_path, "t.tsv", text), **options) == TABLE


def test_weights_and_phrases(tmp_path):
    path = put(tmp_path, "t.tsv", "source\ttarget\tprob\nHaus\thouse\t3\nHaus\tbig home\t1\n")
    assert read(path, weights="count", phrases="split").translations("haus") == {
        "house": 0.75, "big": 0.125, "home": 0.125,
    }  # fmt: skip
    assert read(path, weights="uniform").translations("haus") == {"house": 1.0}
    # Between tabs, a quotation mark is a character like any other.
    unquoted = read(put(tmp_path, "t.tsv", 'source\ttarget\tprob\n"Haus\thouse"\t1\n'))
    assert unquoted.prob("house", "haus") == 1.0


# --- malformed files -------------------------------------------------------------------------------------------------

BAD_LINES = [
    ("lex.f2e", "house Haus 0.5\nhome Haus\ncat Katze 1\n", 2, "two words and a probability, found 'home Haus'"),
    ("lex.f2e", "house Haus 0.5\nhome Haus x\ncat Katze 1\n", 2, "expected a number, found 'x'"),
    ("lex.f2e", "house Haus 0.5\nhome Haus nan\ncat Katze 1\n", 2, "nan is not a finite number"),
    ("lex.f2e", "house Haus 0.5\nhome Haus 1.5\ncat Katze 1\n", 2, "the probability 1.5 is above 1"),
    ("lex.f2e", b"house Haus 0.5\nhom\xff Haus 0.2\ncat Katze 1", 2, "byte 4 of the line (0xff) is not UTF-8"),
    ("t.tsv", "source\ttarget\tprob\nHaus\thouse\t0.5\nHaus\thome\nKatze\tcat\t1", 3, "expected 3 columns, found 2"),
    ("t.csv", 'source,target,prob\n"Haus\n",house,0.5\n"Haus"x,home,1\nKatze,cat,1', 4, "not CSV: ',' expected after"),
    ("t.csv", 'source,target,prob\nHaus,house,0.5\nKatze,cat,1\n"Katze,tom,1\nx', 4, "not CSV: unexpected end of data"),
    ("t.json", '{"Haus": {"house": 0.5, "home": "x"}, "Katze": {"cat": 1}}', 0, "'Haus' -> 'home', found 'x'"),
    ("t.json", '{"Haus": {"house": 0.5, "house": 0.2}, "Katze": {"cat": 1}}', 0, "the key 'house' is listed twice"),
    ("t.json", '{"Haus": {"house": 0.5}, "Haus": {"home": 1}, "Katze": {"cat": 1}}', 0, "key 'Haus' is listed twice"),
    *(
        (name, text.replace("NUMBER", number), line, f"found '{number}'")
        for number in ("0_0.5", "٠.٥", "1e-400")
        for name, text, line in (
            ("lex.f2e", "house Haus 0.5\nhome Haus NUMBER\ncat Katze 1\n", 2),
            ("t.csv", "source,target,prob\nHaus,house,0.5\nHaus,home,NUMBER\nKatze,cat,1\n", 3),
        )
    ),
    ("t.json", '{"Haus": {"house": 0.5, "home": 1e-400}, "Katze": {"cat": 1}}', 0, "'Haus' -> 'home', found '1e-400'"),
    *(("lex.f2e", f"house Haus 0.5\nhome Haus {n}\ncat Katze 1\n", 2, "inf is not a finite") for n in ("inf", "1e999")),
    ("t.json", '{"Haus": {"house": 0.5}, "Maus": 3, "Katze": {"cat": 1}}', 0, "an object at 'Maus', found 3.0"),
    ("de-en.txt", "Haus house\nHaus\nKatze cat\n", 2, "expected 'source target', found 'Haus'"),
]  # fmt: skip


@pytest.mark.parametrize("name, content, line, reason", BAD_LINES)
def test_malformed_line(tmp_path, name, content, line, reason):
    path = put(tmp_path, name, content)
    with pytest.raises(
        TableFormatError, match=re.escape(f"{path}, line {line}: " if line else f"{path}: ") + ".*" + re.escape(reason)
    ):
        read(path)
    with pytest.warns(UserWarning, match=re.escape(f"{path}: skipped 1 malformed entry, the first: {path}")):
        table = read(path, on_error="skip")
    assert set(table.source_words) == {"haus", "katze"}
    assert table.meta["malformed_entries_skipped"] == 1


BAD_FILES = [
    ("t.tsv", "a\tb\tc\nHaus\thouse\t1\n", {}, "line 1: missing column 'source'; found 'a', 'b', 'c'"),
    ("t.tsv", "source\ttarget\tp\nHaus\thouse\t1\n", {}, "missing column 'prob'; found 'source', 'target', 'p'"),
    ("t.tsv", "Haus\n", {"header": False}, "line 1: missing column 1"),
    ("t.tsv", "Haus\thouse\n", {"header": False, "columns": (0, 2)}, "line 1: missing column 2"),
    ("t.tsv", "", {}, "no entries"),
    ("t.tsv", "source\tprob\ttarget\tprob\nHaus\t1\thouse\t1\n", {}, "more than one column 'prob'"),
    ("t.tsv", "source\ttarget\nein Haus\thouse\n", {}, "none of its 1 entries is a translation of a single word"),
    ("t.tsv", "source\ttarget\tprob\nHaus\thouse\t0\n", {}, "none of its 1 entries is .* above 0"),
    ("lex.f2e", "nonsense\n", {"on_error": "skip"}, "no entries (1 malformed)"),
    ("t.json", "", {}, "no entries"),
    ("t.json", "[1]", {}, "expected an object {source: {target: probability}}, found [1.0]"),
    ("t.json", '{"a": {"b": 1},\n}', {}, "line 2: not JSON in UTF-8: expected a name in double quotes"),
    ("t.json", '{"a": {"b": 1}\n"c": {}}', {}, "line 2: not JSON in UTF-8: expected ',' or '}'"),
    ("t.json", '{"a" {"b": 1}}', {}, "line 1: not JSON in UTF-8: expected ':'"),
    ("t.json", '{"a": {"b": 1}}\n{"a": {"b": 1}}', {}, "line 2: not JSON in UTF-8: more after the end"),
    ("t.json", '{"a": {"b": 1},\n"c": {"d"', {}, "line 2: not JSON in UTF-8: Expecting ':'"),
    ("t.json", '{"a": {"b": 1}', {}, "line 1: not JSON in UTF-8: expected ',' or '}'"),
    ("t.json", '{"a":' + "[" * 100_000, {}, "not JSON in UTF-8"),
    ("t.json", b'{"a":\n{"\xff": 1}}', {}, "not JSON in UTF-8"),
    ("t.parquet", "no parquet", {}, "not a Parquet file"),
    ("t.zip", "no zip", {}, "not a zip file"),
]  # fmt: skip


@pytest.mark.parametrize("name, content, options, reason", BAD_FILES)
def test_malformed_file(tmp_path, name, content, options, reason):
    path = put(tmp_path, name, content)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + re.escape(reason).replace(r"\.\*", ".*")):
        read(path, **options)


def test_damaged_gzip(tmp_path):
    whole = gzip.compress((MOSES * 50).encode("utf-8"))
    path = tmp_path / "lex.f2e.gz"
    for damaged in (whole[:-10], whole[:-8] + b"12345678", whole[:30] + b"\xff" * 20 + whole[50:]):
        path.write_bytes(damaged)
        with pytest.raises(ArchiveError, match=re.escape(str(path)) + ".*damaged or truncated"):
            read(path, on_error="skip")
    path.write_text(MOSES)
    with pytest.raises(ArchiveError, match="not a gz file, although its name ends in .gz"):
        read(path)


def test_files_that_are_not_there(tmp_path):
    for name in ("t.tsv", "t.json", "lex.f2e", "t.parquet", "x.zip", "x.index", "de-en.txt"):
        with pytest.raises(FileNotFoundError, match=re.escape(name)):
            read(tmp_path / name)
        with pytest.raises(OSError, match=re.escape(str(tmp_path))):
            read(tmp_path, format={"t.tsv": "tsv", "t.json": "psq", "t.parquet": "parquet"}.get(name, "muse"))


# --- choosing a format -----------------------------------------------------------------------------------------------


def test_unknown_formats(tmp_path):
    path = put(tmp_path, "lex.de-en", MOSES)
    with pytest.raises(
        ValueError, match="cannot tell the format of .*lex.de-en.*one of: moses-target-source, .*lexicon"
    ):
        read(path)
    with pytest.raises(ValueError, match="unknown format 'giza'; expected one of: moses"):
        read(path, format="giza")
    with pytest.raises(ValueError, match="'lexicon' can only be read; expected one of: .*muse$"):
        formats.write(TABLE, path, format="lexicon")
    with pytest.raises(ValueError, match="cannot tell the format.*muse$"):
        formats.write(TABLE, path)
    assert TranslationTable.read(path, "de", "en", format="moses-target-source") == TABLE


def test_unknown_options(tmp_path):
    path = put(tmp_path, "t.tsv", TSV)
    with pytest.raises(TypeError, match="unexpected keyword argument 'indent'"):
        read(path, indent=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'indent'"):
        formats.write(TABLE, tmp_path / "t.json", indent=2)
    for options, reason in [
        ({"columns": ("source",)}, "columns must be those of source, target"),
        ({"columns": "source"}, "columns must be those of source, target"),
        ({"columns": ("a", "b"), "header": False}, "missing column 'a'"),
        ({"on_error": "ignore"}, "on_error must be"),
    ]:
        with pytest.raises(ValueError, match=reason):
            read(path, **options)
    for columns in (("s", "t"), "abc?", ("s", "s", "p")):
        with pytest.raises(ValueError, match="columns must be three different names"):
            formats.write(TABLE, tmp_path / "out.tsv", columns=columns)


# --- writing and reading back ----------------------------------------------------------------------------------------

WORDS = {
    "de": st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=6),
    "ar": st.text("ابتثجحخدذرزسشصضطظعغفقكلمنهوي", min_size=1, max_size=6),
    "hi": st.text("कखगघचछजझटठडढतथदधन", min_size=1, max_size=4),
}


@st.composite
def tables(draw):
    source, target = draw(st.sampled_from(sorted(WORDS))), draw(st.sampled_from(sorted(WORDS)))
    counts = st.dictionaries(WORDS[target], st.floats(1e-30, 1e30), min_size=1, max_size=5)
    entries = draw(st.dictionaries(WORDS[source], counts, min_size=1, max_size=5))
    return TranslationTable.from_dict(entries, source, target, weights="count")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), ending=st.sampled_from(["", ".gz"]))
def test_round_trip(tmp_path, table, ending):
    uniform = TranslationTable.from_frame(table.to_frame(), *table.languages, columns=("source", "target", None))
    for name, known in formats.FORMATS.items():
        if known.writer is None or (name == "parquet" and ending):
            continue
        path = tmp_path / (name + ending)
        formats.write(table, path, format=name)
        again = TranslationTable.read(path, *table.languages, format=name)
        assert again == (uniform if name in ("muse", "freedict") else table), name
    assert not list(tmp_path.glob(".*"))


def test_names_of_written_files(tmp_path):
    for name in ("t.tsv", "t.csv.gz", "t.json.gz", "lex.f2e", "t.parquet", "x.actual.ti.final"):
        TABLE.write(tmp_path / name)
        assert read(tmp_path / name) == TABLE
        assert (tmp_path / name).read_bytes()[:2] == b"\x1f\x8b" or not name.endswith(".gz")
    for name in ("de-en.txt", "freedict-deu-eng", "x.dict", "y.index", "z.dict.dz"):
        TABLE.write(tmp_path / name)
        assert read(tmp_path / name) == UNIFORM
    assert {path.name for path in tmp_path.iterdir()} > {"freedict-deu-eng.index", "freedict-deu-eng.dict.dz", "x.dict"}
    first = (tmp_path / "t.csv.gz").read_bytes()
    TABLE.write(tmp_path / "t.csv.gz")
    assert (tmp_path / "t.csv.gz").read_bytes() == first


def test_written_text(tmp_path):
    TABLE.write(tmp_path / "t.tsv", header=False)
    assert (tmp_path / "t.tsv").read_text() == "haus\thouse\t0.75\nhaus\thome\t0.25\nkatze\tcat\t1\n"
    TABLE.write(tmp_path / "t.csv", columns=("s", "t", "p"), delimiter=";")
    assert (tmp_path / "t.csv").read_text() == "s;t;p\nhaus;house;0.75\nhaus;home;0.25\nkatze;cat;1\n"
    TABLE.write(tmp_path / "lex.f2e")
    assert (tmp_path / "lex.f2e").read_text() == "house haus 0.75\nhome haus 0.25\ncat katze 1\n"
    TABLE.write(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == HAUS


@pytest.mark.parametrize("name", [name for name, known in formats.FORMATS.items() if known.writer])
def test_a_failed_write_changes_nothing(tmp_path, name, monkeypatch):
    path = tmp_path / "table"
    TABLE.write(path, format=name)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    class Broken(TranslationTable):
        def entries(self):
            yield "haus", "house", 0.5
            raise RuntimeError("power cut")

        def to_frame(self):
            raise RuntimeError("power cut")

    broken = Broken.from_arrays(TABLE.arrays, dict(TABLE.meta))
    with pytest.raises(RuntimeError, match="power cut"):
        formats.write(broken, path, format=name)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


# --- Parquet ---------------------------------------------------------------------------------------------------------


def test_parquet_checks(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    TABLE.write(path)
    with pytest.raises(ValueError, match="holds de-en, but en-de was asked for"):
        TranslationTable.read(path, "en", "de")
    pq.write_table(pa.table({"source": ["Haus", None, "Katze"], "target": ["house", "home", "cat"]}), path)
    with pytest.raises(TableFormatError, match=re.escape(f"{path}, line 2: expected two words, found ")):
        read(path)
    with pytest.warns(UserWarning, match="skipped 1"):
        assert len(read(path, on_error="skip")) == 2
    pq.write_table(pa.table({"s": ["Haus"], "t": ["house"], "p": [None], "q": ["x"]}), path)
    for columns, reason in [
        (("s", "t", "q"), "line 1: expected a number as the weight of 'Haus' -> 'house', found 'x'"),
        (("s", "t", "p"), "line 1"),
        (None, "missing column 'source'"),
    ]:
        with pytest.raises(TableFormatError, match=reason):
            read(path, columns=columns)
    pq.write_table(pa.table({"s": ["Haus", "Katze"], "t": ["house", "cat"], "p": pa.array([1, 1], pa.int8())}), path)
    assert len(read(path, columns=("s", "t", "p"))) == 2
    TABLE.write(path)
    whole = path.read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in range(0, len(whole), 5)]
    for content in (whole[:-30], *damaged):
        path.write_bytes(content)
        try:
            read(path)
        except ValueError as error:
            assert str(path) in str(error)


# --- word lists and exports ------------------------------------------------------------------------------------------


def test_panlex_export(tmp_path):
    text = 'Haus,"house",6\nHaus,home,2\n"Katze",cat,3\n'
    path = put(tmp_path, "export.csv", "from,to,trans_quality\n" + text)
    assert read(path, format="panlex", columns=("from", "to", "trans_quality")) == TABLE
    assert read(path, format="panlex", columns=("from", "to")) == UNIFORM
    with pytest.raises(TableFormatError, match="line 1: missing column 'source'"):
        read(path, format="panlex")


@pytest.mark.parametrize(
    "text",
    [
        "house\tHaus\nhome\tHaus\ncat\tKatze\n",
        "google\thouse\tHaus\nfacebook\thome\tHaus\nfacebook\tcat\tKatze\n",
        "symbol\tU+1F3E0\thouse\tHaus\nsymbol\tU+1\thome\tHaus\nlanguage\tyy\tBerlin\tBerlin\nsymbol\tU+2\tcat\tKatze\n",
    ],
)
def test_lexicon(tmp_path, text):
    path = put(tmp_path, "en-de.tsv.gz", text)
    assert read(path, format="lexicon") == UNIFORM
    other = TranslationTable.read(path, "en", "de", format="lexicon")
    assert dict(other.translations("home")) == {"haus": 1.0} and "berlin" not in other
    bad = put(tmp_path, "words.tsv", text.replace("house\t", ""))
    with pytest.raises(TableFormatError, match=r"words.tsv, line [12]: expected (2 to 4 columns, found 1|\d columns)"):
        read(bad, format="lexicon")
    with pytest.raises(ValueError, match="from or to English, not de-fr"):
        TranslationTable.read(path, "de", "fr", format="lexicon")
    with pytest.raises(ValueError, match="holds en-de, but en-so was asked for"):
        TranslationTable.read(path, "en", "so", format="lexicon")


@pytest.mark.parametrize(
    ("name", "start", "reason", "megabytes"),
    [
        ("bomb.tsv.gz", b"source\ttarget\tprob\n", "line 2: longer than 1,048,576 bytes", 16),
        ("bomb.tsv.gz", b"source\ttarget\tprob\rHaus\thouse\t1\r", "line 3: longer than 1,048,576 bytes", 16),
        ("bomb.json.gz", b'{"a": {"b": 1},\n', "line 2: not JSON in UTF-8: expected a name in double quotes", 16),
        ("bomb.json.gz", b'{"a": {"b": 1},\n"', "line 2: not JSON in UTF-8: Invalid control character", 120),
    ],
)
def test_a_line_without_an_end_is_not_read_to_its_end(tmp_path, name, start, reason, megabytes):
    path = tmp_path / name
    path.write_bytes(gzip.compress(start + bytes(200 << 20), 1))
    tracemalloc.start()
    with pytest.raises(TableFormatError, match=re.escape(f"{path}, ") + reason):
        TranslationTable.read(path, "de", "en", on_error="skip")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < megabytes << 20


def test_json_is_read_a_word_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("pyterrier_mart.translation.formats.psq._PART", 97)
    rows = {f"{n}x{n % 7}": {f"{n}y" * (n % 40 + 1): 0.5, "é": 1 / 3} for n in range(300)}
    path = put(tmp_path, "de-en.table.dict.gz", json.dumps(rows, ensure_ascii=False))  # as HLTCOE names its tables
    table = read(path)
    assert table == TranslationTable.from_dict(rows, "de", "en") and table.meta["source_format"] == "psq"
    table.write(tmp_path / "again.table.dict.gz")
    assert read(tmp_path / "again.table.dict.gz") == table
    for encoding in ("utf-16", "utf-8-sig"):
        assert read(put(tmp_path, "t.json", PSQ.encode(encoding))) == TABLE


PANLEXIA = {
    "deu.tsv": "id\tstyle\tword\tnote\n1\t\tHaus\t\n2\tpoetic\tKatze\t\n3\t\tallein\t\n",
    "eng.tsv": "ID\tSTYLE\tWORD\n1\t\thouse\n1\tinformal\thome\n2\t\tcat\n4\t\talone\n",
    "fra.tsv": "id\tstyle\tword\n1\t\tmaison\n",
    "README.md": "Panlexia",
}


def test_panlexia(tmp_path):
    folder = tmp_path / "panlexia"
    folder.mkdir()
    for name, text in PANLEXIA.items():
        put(folder, name, text)
    archive = zipped(tmp_path / "panlexia.zip", {f"main/dict/{name}": text for name, text in PANLEXIA.items()})
    for path in (folder, archive, folder / "deu.tsv", folder / "eng.tsv"):
        assert read(path, format="lexicon") == UNIFORM
    assert TranslationTable.read(folder, "de", "fr", format="lexicon").translations("haus") == {"maison": 1.0}
    with pytest.raises(TableFormatError, match=r"panlexia must hold one file of words in so, .* not README"):
        TranslationTable.read(folder / "eng.tsv", "so", "en", format="lexicon")
    put(folder, "deu.tsv", "id\tword\n1\n")
    with pytest.raises(TableFormatError, match=r"deu\.tsv, line 2: expected at least 2 columns, found 1"):
        read(folder, format="lexicon")
    put(folder, "deu.tsv", "concept\tword\n1\tHaus\n")
    with pytest.raises(TableFormatError, match=r"deu\.tsv, line 1: missing column id; found concept, word"):
        read(folder, format="lexicon")


@pytest.mark.parametrize("name", PROBABLE)
def test_carriage_returns(tmp_path, name):
    file, text = PROBABLE[name]
    if name != "csv":  # one of whose fields has an end of a line in it
        assert read(put(tmp_path, file, text.replace("\n", "\r")), format=name) == TABLE


def test_counts_may_be_huge(tmp_path):
    rows = "Haus,house,1e308\nHaus,HOUSE,1e308\nHaus,home,1e308\nKatze,cat,3\nKatze,tom,1\n"
    table = read(put(tmp_path, "p.csv", "source,target,quality\n" + rows), format="panlex")
    assert table.translations("haus") == pytest.approx({"house": 2 / 3, "home": 1 / 3})
    assert table.translations("katze") == {"cat": 0.75, "tom": 0.25}
