"""Files in folders and archives, sound and damaged ones."""

import bz2
import gzip
import io
import lzma
import os
import random
import re
import tarfile
import tracemalloc

import pytest
from packing import make_deb, make_tar, make_zip, refused

from pyterrier_mart.archives import ArchiveError, files, members

FILES = {"a.txt": b"first", "folder/b.sgml": b"second\n" * 1000, "empty": b""}


def read(path, **options):
    return {name[len(str(path)) + 1 :]: stream.read() for name, stream in members(path, **options)}


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return write


# ------------------------------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.zip", make_zip(FILES)),
        ("x.tar", make_tar(FILES)),
        ("old.tar", make_tar(FILES, format=tarfile.USTAR_FORMAT)),
        ("x.tar.gz", make_tar(FILES, "w:gz")),
        ("x.tgz", make_tar(FILES, "w:gz")),
        ("x.tar.bz2", make_tar(FILES, "w:bz2")),
        ("x.tar.xz", make_tar(FILES, "w:xz")),
        ("dots.tar", make_tar({f"./{name}": content for name, content in FILES.items()})),
    ],
)
def test_archives(put, name, content):
    assert read(put(name, content)) == FILES
    assert read(put("a name that says nothing", content)) == FILES


def test_a_debian_package(put):
    found = read(put("dict.deb", make_deb(FILES)))
    assert found == {f"data.tar.xz/{name}": content for name, content in FILES.items()}


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_compressed_files(put, ending, compress):
    path = put(f"news.sgml.{ending}", compress(b"text" * 100_000))
    ((name, content),) = ((member.name, member.stream.read()) for member in members(path))
    assert (name, content) == (str(path), b"text" * 100_000)
    path = put(f"two.{ending}", compress(b"one ") + compress(b"two"))
    assert [member.stream.read() for member in members(path)] == [b"one two"]


def test_archives_in_archives(put):
    inner = make_tar({"c.gz": gzip.compress(b"deep"), "d": b"plain"})
    path = put("outer.zip", make_zip({"in/inner.tar.gz": gzip.compress(inner), "z.zip": make_zip({"e": b"zip"})}))
    assert read(path) == {"in/inner.tar.gz/c.gz": b"deep", "in/inner.tar.gz/d": b"plain", "z.zip/e": b"zip"}
    path = put("outer.tar", make_tar({"z.zip": make_zip({"e": b"zip in a stream"})}))
    assert read(path) == {"z.zip/e": b"zip in a stream"}


def test_a_folder_is_sorted_and_hidden_files_are_skipped(put, tmp_path):
    put("home/b.gz", gzip.compress(b"b"))
    put("home/a/z", b"z")
    put("home/a.zip", make_zip({"inside": b"i"}))
    put("home/.hidden", b"no")
    put("home/.folder/x", b"no")
    (tmp_path / "home" / "a" / "up").symlink_to(tmp_path / "home")
    (tmp_path / "home" / "dangling").symlink_to(tmp_path / "nowhere")
    found = read(tmp_path / "home")
    assert found == {"a.zip/inside": b"i", "b.gz": b"b", "a/z": b"z"} and list(found) == ["a.zip/inside", "b.gz", "a/z"]


def test_links_in_a_tar_are_skipped(put):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    assert read(put("x.tar", out.getvalue())) == {}


# ---------------------------------------------------------------------------------------------- arguments of members


def test_only_wanted_members_are_opened(put):
    asked = []

    def wanted(name):
        asked.append(name)
        return name.endswith(".sgml")

    path = put(
        "x.zip", make_zip({"a.sgml.gz": gzip.compress(b"a"), "b.txt": b"b", "in.tar": make_tar({"c.sgml": b"c"})})
    )
    assert read(path, wanted=wanted) == {"a.sgml.gz": b"a", "in.tar/c.sgml": b"c"}
    assert f"{path}/a.sgml" in asked and f"{path}/b.txt" in asked and not any(name.endswith(".gz") for name in asked)


def test_progress_is_the_size_of_the_files(put, tmp_path):
    put("home/a.gz", gzip.compress(os.urandom(3_000_000)))
    put("home/b.tar.xz", make_tar(FILES, "w:xz"))
    put("home/c", b"x" * 1000)
    seen = []
    read(tmp_path / "home", progress=seen.append)
    assert sum(seen) == sum(file.stat().st_size for file in (tmp_path / "home").iterdir()) and len(seen) > 4


def test_memory_is_flat(put):
    path = put("zeros.gz", gzip.compress(bytes(100_000_000)))
    tracemalloc.start()
    try:
        for _, stream in members(path):
            size = 0
            while block := stream.read(1 << 16):
                size += len(block)
            assert size == 100_000_000
        assert tracemalloc.get_traced_memory()[1] < 6_000_000
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------------ damage


NOISE = random.Random(1).randbytes(300_000)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.gz", gzip.compress(NOISE)),
        ("x.bz2", bz2.compress(NOISE)),
        ("x.xz", lzma.compress(NOISE)),
        ("x.tar", make_tar({"a": NOISE})),
        ("x.tar.gz", make_tar({"a": NOISE}, "w:gz")),
        ("x.zip", make_zip({"a": NOISE})),
        ("x.deb", make_deb({"a": NOISE})),
    ],
)
def test_a_truncated_archive_is_named(put, name, content):
    path = put(name, content[: len(content) // 2])
    with pytest.raises(ArchiveError, match=rf"{name}.*: the archive is damaged or truncated"):
        read(path)


@pytest.mark.parametrize(
    ("name", "compress"), [("x.gz", gzip.compress), ("x.tar.gz", lambda data: gzip.compress(make_tar({"a": data})))]
)
def test_what_comes_before_damage_can_be_read(put, name, compress):
    path = put(name, compress(NOISE)[: len(NOISE) // 2])
    found = bytearray()
    with pytest.raises(ArchiveError):
        for _, stream in members(path):
            while block := stream.read1(1 << 20):
                found += block
    assert NOISE.startswith(bytes(found)) and len(found) > len(NOISE) // 2 - 40_000


@pytest.mark.parametrize("ending", ["gz", "tgz", "bz2", "xz", "zip"])
def test_a_name_that_promises_what_the_content_is_not(put, ending):
    with pytest.raises(ArchiveError, match=rf"x\.{ending}: not a {ending} file, although"):
        read(put(f"x.{ending}", b"<DOC>"))
    assert read(put(f"empty.{ending}", b"")) == {"": b""}


def test_kinds_that_are_refused(put):
    for name, content, program in (
        ("x.Z", b"\x1f\x9d\x90abc", "compress"), ("x.7z", b"7z\xbc\xaf'\x1c\0\4", "7-Zip"),
        ("x.rar", b"Rar!\x1a\x07\x01\0", "RAR"), ("x", b"(\xb5/\xfd\x04\0", "Zstandard"),
    ):  # fmt: skip
        with pytest.raises(ArchiveError, match=rf"{name}: made by {program}.*, which Python cannot read; unpack it"):
            read(put(name, content))
    content = b"end"
    for _ in range(6):
        content = gzip.compress(content)
    with pytest.raises(ArchiveError, match="more than 4 deep"):
        read(put("x.gz", content))
    encrypted = bytearray(make_zip({"secret": b"x"}))
    encrypted[6] |= 1
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(ArchiveError, match=r"x\.zip/secret: encrypted"):
        read(put("x.zip", bytes(encrypted)))


def test_a_member_packed_by_another_method(put):
    content = bytearray(make_zip({"a/doc.sgml": b"x", "b": b"y"}))
    for start in (b"PK\x03\x04", b"PK\x01\x02"):
        at = content.index(start) + (8 if start[2] == 3 else 10)
        content[at : at + 2] = (9).to_bytes(2, "little")  # Deflate64
    path = put("x.zip", bytes(content))
    found = []
    assert read(path, damaged=found.append) == {"b": b"y"}
    assert re.fullmatch(
        rf"{path}/a/doc\.sgml: packed in a way that Python cannot read \(.*\); unpack it first", str(*found)
    )


def test_lzma_without_a_container(put):
    for name in ("a.txt.lzma", "a"):
        assert read(put(name, lzma.compress(b"text" * 99, lzma.FORMAT_ALONE))) == {"": b"text" * 99}


def test_folders_that_cannot_be_read(put, tmp_path, monkeypatch):
    for name in ("home/a/1", "home/b/2", "home/c/3"):
        put(name, b"x")
    found = []
    with refused(monkeypatch, tmp_path / "home/b"):
        assert [file.name for file in files(tmp_path / "home", unreadable=found.append)] == ["1", "3"]
        assert [err.filename for err in found] == [str(tmp_path / "home/b")]
        with pytest.raises(PermissionError, match="home/b"):
            read(tmp_path / "home")


def test_damage_can_be_skipped(put, tmp_path):
    truncated = gzip.compress(NOISE)[:1000]
    put("home/a.gz", b"not gzip")
    put("home/b.zip", make_zip({"1.gz": b"not gzip", "2": b"two", "3.gz": truncated[:15], "4": b"four"}))
    put("home/c.tar", make_tar({"1.gz": b"not gzip", "2": b"two"}))
    put("home/d.zip", make_zip({"x": b"x"})[:30])
    put("home/e", b"e")
    found = []
    read_home = read(tmp_path / "home", damaged=lambda err: found.append(str(err)))
    assert read_home == {"b.zip/2": b"two", "b.zip/4": b"four", "c.tar/2": b"two", "e": b"e"}
    assert [message.split(": ")[0][len(str(tmp_path)) + 6 :] for message in found] == [
        "a.gz", "b.zip/1.gz", "b.zip/3.gz", "c.tar/1.gz", "d.zip",
    ]  # fmt: skip
    with pytest.raises(ArchiveError):
        read(tmp_path / "home")


def test_a_stream_that_fails_does_not_cost_the_next_member(put):
    path = put("x.zip", make_zip({"1.gz": gzip.compress(NOISE)[:-9000], "2": b"two"}))
    contents, found = [], []
    for _, stream in members(path, damaged=found.append):
        try:
            contents.append(stream.read())
        except ArchiveError as err:
            found.append(err)
    assert contents == [b"two"] and len(found) == 1


def test_changed_bytes_are_errors_of_archives_or_nothing(put):
    """Whatever the bytes: an archive is read, or an ArchiveError names it."""
    rng = random.Random(7)
    files = {"a.txt": b"some text " * 50, "b.gz": gzip.compress(b"more text" * 50), "c.zip": make_zip({"d": b"e" * 99})}
    kinds = {
        "x.zip": make_zip(files), "x.tar": make_tar(files), "x.tgz": make_tar(files, "w:gz"), "x.deb": make_deb(files),
        "x.xz": lzma.compress(b"text" * 500), "x.bz2": bz2.compress(b"text" * 500),
    }  # fmt: skip
    outcomes = {"read": 0, "damaged": 0}
    for name, content in kinds.items():
        for _ in range(150):
            changed = bytearray(content)
            for _ in range(rng.choice([1, 1, 3, 20])):
                end = len(changed) if rng.random() < 0.5 else min(600, len(changed))
                changed[rng.randrange(end)] = rng.randrange(256)
            path = put(name, bytes(changed))
            try:
                read(path)
                outcomes["read"] += 1
            except ArchiveError as err:
                assert str(path) in str(err)
                outcomes["damaged"] += 1
    assert min(outcomes.values()) > 100


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_names_are_canonical(put, make):
    inner = gzip.compress(b"nested")
    content = make({"/a.txt": b"1", "//b//c.txt": b"2", "./d/./e.txt": b"3", "in.zip": make_zip({"/q.sgml.gz": inner})})
    path = put("packed", content)
    expected = {"a.txt": b"1", "b/c.txt": b"2", "d/e.txt": b"3", "in.zip/q.sgml.gz": b"nested"}
    name = "packed.tar" if make is make_tar else "packed.zip"
    assert read(path.rename(path.with_name(name))) == expected


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_huge_header_of_a_tar_is_refused(put, format):
    fine = make_tar({"x/" * 5000 + "y": b"1"}, format=format)
    assert list(read(put("fine.tar", fine)).values()) == [b"1"]
    path = put("huge.tgz", gzip.compress(make_tar({"x/" * (8 << 20) + "y": b"1"}, format=format)))
    tracemalloc.start()
    with pytest.raises(ArchiveError, match=r"huge\.tgz: .*a header of 16,777,.* bytes, expected at most 1,048,576"):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
