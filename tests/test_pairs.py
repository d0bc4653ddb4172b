"""Sentence pairs from files: columns, parallel files, archives, and lines that are not what they should be."""

import bz2
import gzip
import lzma
import re
from pathlib import Path

import pytest
from packing import tarred, zipped

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.translation.builder import TableFormatError
from pyterrier_mart.translation.pairs import read_pairs


def write(path, content):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(*paths, **options):
    return list(read_pairs(*paths, **options))


def test_tab_separated(tmp_path):
    path = write(tmp_path / "pairs.tsv", "\ufeffEin Haus.\tA house.\tignored\r\n\"Zwei\"\t'Two'\n\t\nletzte\tlast")
    assert read(path) == read(str(path)) == [("Ein Haus.", "A house."), ('"Zwei"', "'Two'"), ("letzte", "last")]
    for columns, expected in (((1, 3), ("a", "c")), ((3, 2), ("c", "b")), ((2, 2), ("b", "b"))):
        assert read(write(tmp_path / "abc.tsv", "a\tb\tc\n"), columns=columns) == [expected]


def test_parallel(tmp_path):
    source, target = write(tmp_path / "s", "a\tx\n\nc"), write(tmp_path / "t", "b\n\nd\n")
    assert read(source, target) == [("a\tx", "b"), ("c", "d")]


@pytest.mark.parametrize("make", [write, lambda path, text: zipped(path, {"deu.txt": text, "_about.txt": "Tatoeba"})])
def test_columns_mean_one_file_of_pairs(tmp_path, make):
    path = make(tmp_path / "deu.txt", "Hi.\tHallo!\tCC-BY\nRun!\tLauf!\tCC-BY\n")
    options = {"languages": ("de", "en"), "columns": (2, 1)}
    assert read(path, **options) == [("Hallo!", "Hi."), ("Lauf!", "Run!")]
    assert read(tmp_path / "deu.txt" / "deu.txt" if make is not write else path, **options)
    with pytest.raises((FileNotFoundError, ValueError), match="or the columns of one|must hold two files"):
        read(path, languages=("de", "en"))
    for wrong in (folder(tmp_path / "f", {"a.txt": "a\tb", "b.txt": "a\tb"}), write(tmp_path / "t.tmx", TMX)):
        with pytest.raises(ValueError, match=r"must hold one file, .*not a\.txt, b\.txt|t\.tmx has none"):
            read(wrong, **options)
    with pytest.raises(ValueError, match="two parallel files have none"):
        read(path, path, **options)


def test_pairs_of_fast_align(tmp_path):
    path = write(tmp_path / "text.de-en.gz", "\nein Haus ||| a house\ndas | Tier ||| the\tanimal\n||| x\n")
    with pytest.warns(UserWarning, match="skipped 1 malformed"):  # the empty line
        pairs = read_pairs(path, languages=("de", "en"), on_error="skip")
        assert [(one.strip(), other.strip()) for one, other in pairs] == [
            ("ein Haus", "a house"), ("das | Tier", "the\tanimal"),
        ]  # fmt: skip
    assert pairs.without_text == 1
    assert read(write(tmp_path / "tabs", "a ||| b\tc\n")) == [("a ||| b", "c")]


def test_carriage_returns(tmp_path):
    sentences = [(f"Satz {n}", f"sentence {n}") for n in range(300)]
    for first, last in (("", ""), ("", "\r"), ("\ufeff", "\r")):
        path = write(tmp_path / "pairs.tsv", first + "\r".join(map("\t".join, sentences)) + last)
        assert read(path) == sentences
    sides = [write(tmp_path / str(i), "\r".join(pair[i] for pair in sentences)) for i in (0, 1)]
    assert read(*sides) == sentences
    write(sides[1], "\n".join(pair[1] for pair in sentences))
    assert read(*sides) == sentences
    assert read(write(tmp_path / "stray.tsv", "a\rb\tc\nd\te\n")) == [("a\rb", "c"), ("d", "e")]


def test_a_line_without_an_end(tmp_path):
    for paths in ([write(tmp_path / "one.gz", "a" * (2 << 20))], [write(tmp_path / "s.gz", "a" * (2 << 20)), "t"]):
        (tmp_path / "t").write_text("b")
        with pytest.raises(TableFormatError, match=r"(one|s)\.gz, line 1: longer than 1,048,576 bytes"):
            read(*(tmp_path / path for path in paths))


def test_a_line_lacks_a_column(tmp_path):
    path = write(tmp_path / "pairs.tsv", "a\tb\tc\nd\te\n")
    with pytest.raises(
        TableFormatError, match=r"pairs\.tsv, line 2: expected at least 3 tab-separated columns, found 2"
    ):
        read(path, columns=(1, 3))
    with pytest.warns(UserWarning, match=r"pairs\.tsv: skipped 1 malformed entry, the first: .*line 2: expected at"):
        assert read(path, columns=(1, 3), on_error="skip") == [("a", "c")]


@pytest.mark.parametrize("bad_sources", [(), (1,), (2, 3), (5,), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("bad_targets", [(), (1,), (3, 4), (5,)])
def test_skipped_lines_keep_the_sides_parallel(tmp_path, bad_sources, bad_targets):
    bad = set(bad_sources) | set(bad_targets)
    for name, wrong in (("s", bad_sources), ("t", bad_targets)):
        write(
            tmp_path / name, b"".join(b"\xff\n" if n in wrong else b"%s%d\n" % (name.encode(), n) for n in range(1, 6))
        )
    paths = tmp_path / "s", tmp_path / "t"
    expected = [(f"s{n}", f"t{n}") for n in range(1, 6) if n not in bad]
    if not bad:
        assert read(*paths) == expected
        return
    with pytest.warns(UserWarning, match=f"skipped {len(bad_sources) + len(bad_targets)} malformed"):
        assert read(*paths, on_error="skip") == expected
    first = "s" if bad_sources and (not bad_targets or bad_sources[0] <= bad_targets[0]) else "t"
    with pytest.raises(TableFormatError, match=rf"{first}, line {min(bad)}: byte 1"):
        read(*paths)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_parallel_files_of_different_length(tmp_path, on_error):
    short, long = write(tmp_path / "short", "a\n"), write(tmp_path / "long", "b\nc\nd\n")
    for paths in ((short, long), (long, short)):
        message = r"long, line 2: .*short has only 1 lines, expected as many"
        if on_error == "raise":
            with pytest.raises(TableFormatError, match=message):
                read(*paths)
        else:
            with pytest.warns(UserWarning, match=message):
                assert len(read(*paths, on_error="skip")) == 1


# --- what corpora are published as ------------------------------------------------------------------------------------

DATA = Path(__file__).parents[2] / "shared" / "data"
GERMAN = "Das Haus.\n<CHAPTER ID=1>\nDie Katze schläft.\n\nEin < zwei.\n"
ENGLISH = "The house.\n<CHAPTER ID=1>\nThe cat is asleep.\n(applause)\nOne < two.\n"
PAIRS = [("Das Haus.", "The house."), ("Die Katze schläft.", "The cat is asleep."), ("Ein < zwei.", "One < two.")]
OPUS = {
    "README": "Corpus: a test", "LICENSE": "CC0", "Europarl.de-en.de": GERMAN, "Europarl.de-en.en": ENGLISH,
    "Europarl.de-en.ids": "a\tb\n" * 5,
}  # fmt: skip
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="de-DE"><seg>Das <bpt i="1">&lt;b&gt;</bpt>Haus<ept i="1">&lt;/b&gt;</ept>.</seg></tuv>
  <tuv xml:lang="EN"><seg>The house.</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>Nur hier.</seg></tuv></tu>
<tu><tuv lang="en"><seg>The cat is asleep.</seg></tuv><tuv lang="de"><seg>Die Katze schl&#xE4;ft.</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>Ein &lt; zwei.</seg></tuv><tuv xml:lang="en"><seg>One &lt; two.</seg></tuv></tu>
</body></tmx>
"""


def folder(path, files):
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        write(path / name, text)
    return path


@pytest.mark.parametrize(
    ("paths", "options", "error", "message"),
    [
        (["nowhere"], {}, FileNotFoundError, "nowhere"),
        (["some", "nowhere"], {}, FileNotFoundError, "nowhere"),
        (["nowhere"], {"languages": ("de", "en")}, FileNotFoundError, "nowhere"),
        (["folder"], {}, ValueError, "folder holds x; pass languages="),
        (["fake.gz"], {}, ArchiveError, r"fake\.gz: not a gz file"),
        (["half.gz"], {"on_error": "skip"}, ArchiveError, r"half\.gz"),
        (["some"], {"on_error": "ignore"}, ValueError, "on_error must be"),
        (["some"], {"columns": (0, 1)}, ValueError, "columns must be two numbers from 1"),
        (["de-en.zip"], {"languages": ("de", "fr")}, ValueError, r"end in \.de and \.fr, .* not README, LICENSE, Euro"),
        (["de-en.zip"], {}, ValueError, "pass languages="),
        (["empty.zip"], {"languages": ("de", "en")}, ValueError, "not nothing"),
        (["two.zip"], {"languages": ("de", "en")}, ValueError, r"or one \.tmx or \.tsv file, not a\.tmx, b\.tmx"),
        (["x.de"], {"languages": ("de", "en")}, FileNotFoundError, r"expected x\.de and x\.en in .*, found x\.de"),
        (["y.en", "x.de"], {"languages": ("de", "en")}, ValueError, "is named for en, expected de-en; name the source"),
        (["t.tsv", "t.tsv"], {}, TableFormatError, r"t\.tsv and .*t\.tsv have tabs in their first lines"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, paths, options, error, message):
    folder(tmp_path, {"some": "a\n", "folder/x": "", "x.de": GERMAN, "y.en": ENGLISH, "t.tsv": "la casa\tthe house\n"})
    (tmp_path / "fake.gz").write_text("a\tb\n")
    (tmp_path / "half.gz").write_bytes(gzip.compress(bytes(range(256)) * 50)[:100])
    for name, files in {"de-en": OPUS, "empty": {}, "two": {"a.tmx": TMX, "b.tmx": TMX}}.items():
        zipped(tmp_path / f"{name}.zip", files)
    with pytest.raises(error, match=message):
        read(*(tmp_path / path for path in paths), **options)
    assert read(tmp_path / "x.de", tmp_path / "y.en", languages=("de", "en")) == PAIRS


@pytest.mark.parametrize(
    "make",
    [
        lambda tmp: zipped(tmp / "de-en.txt.zip", OPUS),
        lambda tmp: zipped(tmp / "download", OPUS),
        lambda tmp: tarred(tmp / "de-en.tgz", {f"./de-en/{name}": text for name, text in OPUS.items()}),
        lambda tmp: tarred(tmp / "de-en.tar.xz", dict(reversed(OPUS.items())), "w:xz"),
        lambda tmp: tarred(tmp / "t.tar", {"deep/x.tgz": tarred(tmp / "x.tgz", OPUS).read_bytes()}, "w"),
        lambda tmp: tarred(tmp / "t.tar", {name + ".gz": gzip.compress(OPUS[name].encode()) for name in OPUS}, "w"),
        lambda tmp: folder(tmp / "folder", OPUS),
        lambda tmp: folder(tmp / "folder", {"de.txt": GERMAN, "en.txt": ENGLISH, "fr.txt": "", "notes": ""}),
    ],
)
def test_archives_and_folders(tmp_path, make):
    path = make(tmp_path)
    pairs = read_pairs(path, languages=("de", "eng"))
    assert list(pairs) == PAIRS and pairs.without_text == 2
    assert pairs.source == path.name and [name[-6:-4] or name for name in pairs.members]
    assert {"de", "en"} <= set(re.findall("[a-z]+", " ".join(pairs.members)))
    assert pairs.provenance == {"source": path.name, "members": list(pairs.members), "pairs_without_text": 2}
    assert read(path, languages=("en", "de")) == [pair[::-1] for pair in PAIRS]


@pytest.mark.parametrize("given", ["v7.de-en", "v7.de-en.de", "v7.de-en.en", "."])
@pytest.mark.parametrize(
    "pack, ending", [(str.encode, ""), (None, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")]
)
def test_one_of_two_files_or_what_their_names_share(tmp_path, monkeypatch, given, pack, ending):
    monkeypatch.chdir(tmp_path)
    for lang, text in (("de", GERMAN), ("en", ENGLISH), ("fr", "Non.\n")):
        data = text.encode() if ending in ("", ".gz") else pack(text.encode())
        write(tmp_path / f"v7.de-en.{lang}{ending}", data)
    path = given + ending if given.endswith((".de", ".en")) else given
    pairs = read_pairs(path, languages=("de", "en"))
    assert list(pairs) == PAIRS
    assert set(pairs.members) <= {"v7.de-en.de", "v7.de-en.en"}
    assert given == "." or pairs.source == f"v7.de-en.de{ending}, v7.de-en.en{ending}"


def test_one_pair_of_several(tmp_path):
    files = {f"{part}/news.{lang}": f"{part} {lang}\n" for part in ("dev", "test") for lang in ("de", "en")}
    path = tarred(tmp_path / "sets.tgz", files)
    with pytest.raises(ValueError, match=r"must hold two files .* not several: dev/news, test/news; say which"):
        read(path, languages=("de", "en"))
    for part in ("test", "test/news", "test/news.en"):
        assert read(path / part, languages=("de", "en")) == [("test de", "test en")]
    with pytest.raises(
        ValueError, match=r"sets\.tgz/train must hold two files whose names end in .*, not dev/news\.de"
    ):
        read(path / "train", languages=("de", "en"))


def test_lines_in_archives_are_named(tmp_path):
    broken = {"a.de": b"eins\n\xff\n", "a.en": "one\ntwo\n"}
    for path in (zipped(tmp_path / "a.zip", broken), tarred(tmp_path / "a.tgz", broken)):
        with pytest.raises(TableFormatError, match=rf"{path.name}/a\.de, line 2: byte 1"):
            read(path, languages=("de", "en"))
        with pytest.warns(UserWarning, match="skipped 1"):
            assert read(path, languages=("de", "en"), on_error="skip") == [("eins", "one")]
    short = zipped(tmp_path / "b.zip", {"b.de": "a\nb\n", "b.en": "a\n"})
    with pytest.raises(TableFormatError, match=r"b\.zip/b\.de, line 2: .*b\.zip/b\.en has only 1 lines"):
        read(short, languages=("de", "en"))
    noise = zipped(tmp_path / "c.zip", {"c.de": "<P>\n\n", "c.en": "<P>\nx\n"})
    with pytest.raises(TableFormatError, match=r"c\.zip: no sentence pairs, all of its 2 are empty"):
        read(noise, languages=("de", "en"))


@pytest.mark.parametrize("packed", ["t.tmx", "t.tmx.gz", "t.zip"])
def test_tmx(tmp_path, packed):
    path = tmp_path / packed
    (zipped(path, {"README": "", "deep/t.tmx": TMX}) if packed == "t.zip" else write(path, TMX))
    assert read(path, languages=("de", "en")) == PAIRS
    with pytest.raises(TableFormatError, match=r"t\.tmx(\.gz)?: no unit in de and fr; found de-DE, EN, de, en"):
        read(path, languages=("de", "fr"))
    if packed == "t.tmx":
        with pytest.raises(ValueError, match="holds a TMX file; pass languages="):
            read(path)
        write(path, TMX[:-40])
        with pytest.raises(TableFormatError, match=r"t\.tmx, line \d+: not well-formed XML"):
            read(path, languages=("de", "en"))
        with pytest.warns(UserWarning, match="not well-formed XML"):
            assert read(path, languages=("de", "en"), on_error="skip")[:2] == PAIRS[:2]
