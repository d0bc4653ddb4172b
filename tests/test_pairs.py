"""Sentence pairs from files: columns, parallel files, and lines that are not what they should be."""

import gzip

import pytest

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
    assert read(path) == [("Ein Haus.", "A house."), ('"Zwei"', "'Two'"), ("", ""), ("letzte", "last")]
    assert read(str(path)) == read(path)


@pytest.mark.parametrize(("columns", "expected"), [((1, 3), ("a", "c")), ((3, 2), ("c", "b")), ((2, 2), ("b", "b"))])
def test_columns(tmp_path, columns, expected):
    assert read(write(tmp_path / "pairs.tsv", "a\tb\tc\n"), columns=columns) == [expected]


@pytest.mark.parametrize("columns", [(0, 1), (1, -1), (1,), (1, 2, 3), "12", (1.0, 2)])
def test_impossible_columns(tmp_path, columns):
    with pytest.raises(ValueError, match="columns must be two numbers from 1"):
        read(write(tmp_path / "pairs.tsv", "a\tb\n"), columns=columns)


def test_gzipped_whatever_the_name(tmp_path):
    expected = [("a", "b"), ("c", "d")]
    packed = write(tmp_path / "pairs.tsv.gz", "a\tb\nc\td\n")
    assert read(packed) == expected
    renamed = tmp_path / "pairs.tsv"
    renamed.write_bytes(packed.read_bytes())
    assert read(renamed) == expected
    assert read(write(tmp_path / "s.gz", "a\nc\n"), write(tmp_path / "t.txt", "b\nd\n")) == expected


def test_parallel(tmp_path):
    source, target = write(tmp_path / "s", "a\tx\n\nc"), write(tmp_path / "t", "b\n\nd\n")
    assert read(source, target) == [("a\tx", "b"), ("", ""), ("c", "d")]


def test_pairs_are_streamed(tmp_path):
    path = write(tmp_path / "pairs.tsv", "a\tb\nmalformed\n")
    pairs = read_pairs(path)
    assert next(pairs) == ("a", "b")
    with pytest.raises(TableFormatError, match="line 2"):
        next(pairs)


def test_a_line_lacks_a_column(tmp_path):
    path = write(tmp_path / "pairs.tsv", "a\tb\tc\nd\te\n")
    with pytest.raises(
        TableFormatError, match=r"pairs\.tsv, line 2: expected at least 3 tab-separated columns, found 2"
    ):
        read(path, columns=(1, 3))
    with pytest.warns(UserWarning, match=r"pairs\.tsv: skipped 1 malformed entry, the first: .*line 2: expected at"):
        assert read(path, columns=(1, 3), on_error="skip") == [("a", "c")]


def test_a_line_is_not_utf8(tmp_path):
    path = write(tmp_path / "pairs.tsv", b"a\tb\nc\xff\td\ne\tf\n")
    with pytest.raises(TableFormatError, match=r"pairs\.tsv, line 2: byte 2 of the line \(0xff\) is not UTF-8"):
        read(path)
    with pytest.warns(UserWarning, match="skipped 1 .* is not UTF-8"):
        assert read(path, on_error="skip") == [("a", "b"), ("e", "f")]


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


def test_nothing_in_the_file(tmp_path):
    empty = write(tmp_path / "empty", "")
    for paths in ((empty,), (empty, empty)):
        with pytest.raises(TableFormatError, match="empty: no sentence pairs"):
            read(*paths)


def test_files_that_cannot_be_read(tmp_path):
    some = write(tmp_path / "some", "a\tb\n")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read(some, tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        read(tmp_path)
    fake = tmp_path / "fake.gz"
    fake.write_text("a\tb\n")
    with pytest.raises(TableFormatError, match=r"fake\.gz: not a gzip file"):
        read(fake)
    packed = tmp_path / "half.gz"
    packed.write_bytes(gzip.compress(bytes(range(256)) * 50)[:100])
    with pytest.raises(TableFormatError, match=r"half\.gz"):
        read(packed, on_error="skip")
    with pytest.raises(ValueError, match="on_error must be"):
        read(some, on_error="ignore")
