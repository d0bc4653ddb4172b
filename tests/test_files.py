"""Files and directories that appear whole or not at all."""

import errno
import os
import stat
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pyterrier_mart import encoders
from pyterrier_mart.datasets.paths import stores
from pyterrier_mart.files import atomic_directory, atomic_file
from pyterrier_mart.store import build_store


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


def fill(directory, text):
    (directory / "a.txt").write_text(text)
    (directory / "b.txt").write_text(text)


# ------------------------------------------------------------------------------------------------------------ both


def test_appears_at_the_end(tmp_path):
    path = tmp_path / "new" / "deep" / "out.tar.gz"
    with atomic_file(path) as tmp:
        assert tmp.parent == path.parent and tmp.name.endswith(".tar.gz")
        tmp.write_text("text")
        assert not path.exists()
    assert path.read_text() == "text" and names(path.parent) == ["out.tar.gz"]
    (tmp_path / "empty").mkdir()
    for directory in (tmp_path / "new" / "out", tmp_path / "empty"):
        with atomic_directory(directory) as tmp:
            fill(tmp, "text")
            assert not directory.exists() or names(directory) == []
        assert names(directory) == ["a.txt", "b.txt"]
    assert names(tmp_path) == ["empty", "new"] and names(tmp_path / "new") == ["deep", "out"]


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_stays_as_it_was_after_an_error(tmp_path, error):
    (tmp_path / "out.txt").write_text("old")
    (tmp_path / "out").mkdir()
    fill(tmp_path / "out", "old")
    with pytest.raises(type(error)) as caught, atomic_file(tmp_path / "out.txt") as tmp:
        tmp.write_text("half")
        raise error
    assert not isinstance(error, OSError) or str(caught.value) == f"cannot write {tmp_path / 'out.txt'}: full"
    with pytest.raises(type(error)), atomic_directory(tmp_path / "out", overwrite=True) as tmp:
        (tmp / "a.txt").write_text("half")
        raise error
    assert (tmp_path / "out.txt").read_text() == (tmp_path / "out" / "b.txt").read_text() == "old"
    assert names(tmp_path) == ["out", "out.txt"]


def test_libraries_that_do_not_say_where_a_disk_is_full(tmp_path):
    with (
        pytest.raises(OSError, match="cannot write .*out.safetensors: No space left on device") as caught,
        atomic_file(tmp_path / "out.safetensors"),
    ):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert caught.value.errno == errno.ENOSPC and names(tmp_path) == []
    with pytest.raises(SafetensorError, match="invalid"), atomic_file(tmp_path / "out.safetensors"):
        raise SafetensorError("invalid dtype")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_what_libraries_write_has_the_permissions_of_the_umask(tmp_path, umask, mode):
    """They rename a temporary file that only its owner may read."""
    old = os.umask(umask)
    try:
        with atomic_file(tmp_path / "one.safetensors") as tmp:
            save_file({"a": np.ones(1)}, tmp)
            tmp.chmod(0o600)
        with atomic_directory(tmp_path / "out") as tmp:
            (tmp / "deep").mkdir()
            save_file({"a": np.ones(1)}, tmp / "deep" / "two.safetensors")
            (tmp / "deep" / "two.safetensors").chmod(0o600)
    finally:
        os.umask(old)
    for name in ("one.safetensors", "out/deep/two.safetensors"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_permissions_are_those_of_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "out") as tmp:
            tmp.write_text("text")
        with atomic_directory(tmp_path / "dir") as tmp:
            fill(tmp, "text")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "dir").stat().st_mode) == 0o750


def test_links_stay_links(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to file").symlink_to("file")
    (tmp_path / "to folder").symlink_to("folder")
    with atomic_file(tmp_path / "to file") as tmp:
        tmp.write_text("new")
    with atomic_directory(tmp_path / "to folder", overwrite=True) as tmp:
        fill(tmp, "new")
    assert (tmp_path / "to file").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "to folder").is_symlink() and (tmp_path / "folder" / "a.txt").read_text() == "new"
    assert names(tmp_path) == ["file", "folder", "to file", "to folder"]


KILLED = """
    import os, signal, sys
    from pyterrier_mart.files import atomic_directory, atomic_file

    with atomic_directory(sys.argv[1] + "/out") as tmp, atomic_file(sys.argv[1] + "/run.res.gz") as file:
        (tmp / "part").write_text("half")
        file.write_text("half")
        os.utime(file, (0, 0))
        print("written", flush=True)
        sys.stdin.read()
"""


def test_left_overs_of_killed_writers_are_removed_by_the_next(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout.readline() == b"written\n"
    (tmp_path / ".out.0123abcd.tmp.mine").touch()

    def write():
        with atomic_directory(tmp_path / "out", overwrite=True) as tmp, atomic_file(tmp_path / "run.res.gz") as file:
            fill(tmp, "whole")
            file.write_text("whole")

    write()
    assert len(names(tmp_path)) == 5  # what it is writing stays
    running.kill()
    running.wait(60)
    write()
    assert names(tmp_path) == [".out.0123abcd.tmp.mine", "out", "run.res.gz"]


@pytest.mark.parametrize(
    ("writer", "name", "error", "message"),
    [
        (atomic_file, "folder", IsADirectoryError, "folder: it is a directory"),
        (atomic_file, "file/out", NotADirectoryError, "file is not a directory"),
        (atomic_file, "file/deep/out", OSError, "file"),
        (atomic_directory, "file", FileExistsError, "cannot write the directory .*file: it is a file"),
        (atomic_directory, "file/out", NotADirectoryError, "file is not a directory"),
        (atomic_directory, "file/deep/out", OSError, "file"),
        (atomic_directory, "folder", FileExistsError, "folder exists; name another path or pass overwrite=True"),
        (lambda path: atomic_directory(path, overwrite=True, marker="x"), "folder", FileExistsError, "it holds no x;"),
        (
            lambda path: atomic_directory(path, overwrite=True, files={"b"}), "folder", FileExistsError,
            "folder exists and is not replaced, since it also holds a, c, d and more; name another path",
        ),
    ],
)  # fmt: skip
def test_nothing_is_written_where_something_else_is(tmp_path, writer, name, error, message):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    for other in "abcde":
        (tmp_path / "folder" / other).mkdir()
    with pytest.raises(error, match=message), writer(tmp_path / name):
        pytest.fail("the block must not run")
    assert names(tmp_path) == ["file", "folder"] and names(tmp_path / "folder") == ["a", "b", "c", "d", "e"]


# ------------------------------------------------------------------------------------------------------ directories


def test_directory_is_replaced_whole(tmp_path):
    path, known = tmp_path / "out", {"a.txt", "b.txt"}
    for text in ("old", "new"):
        with atomic_directory(path, overwrite=text == "new", marker="a.txt", files=known) as tmp:
            fill(tmp, text)
            assert not path.exists() or (path / "a.txt").read_text() == "old"
    assert names(path) == ["a.txt", "b.txt"] and (path / "b.txt").read_text() == "new" and names(tmp_path) == ["out"]


def test_directory_keeps_what_came_meanwhile(tmp_path):
    with atomic_directory(tmp_path / "out", files={"a.txt", "b.txt"}) as tmp:
        fill(tmp, "old")
    with pytest.raises(FileExistsError, match="also holds precious;"):
        with atomic_directory(tmp_path / "out", overwrite=True, files={"a.txt", "b.txt"}) as tmp:
            fill(tmp, "new")
            (tmp_path / "out" / "precious").touch()
    assert names(tmp_path / "out") == ["a.txt", "b.txt", "precious"] and names(tmp_path) == ["out"]


def test_directory_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    fill(tmp_path / "out", "old")
    replace, calls = os.replace, []

    def fail_to_move_in(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise PermissionError("cannot move in")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_to_move_in)
    with pytest.raises(PermissionError, match="move in"), atomic_directory(tmp_path / "out", overwrite=True) as tmp:
        fill(tmp, "new")
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a.txt").read_text() == "old"


def test_directory_that_appears_meanwhile(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(FileExistsError, match="overwrite=True"), atomic_directory(path) as tmp:
        fill(tmp, "slow")
        with atomic_directory(path) as other:
            fill(other, "fast")
    assert names(tmp_path) == ["out"] and (path / "a.txt").read_text() == "fast"
    with atomic_directory(path, overwrite=True) as tmp:
        fill(tmp, "slow")
        with atomic_directory(path, overwrite=True) as other:
            fill(other, "fast")
    assert names(tmp_path) == ["out"] and (path / "a.txt").read_text() == "slow"


def test_many_writers_to_one_directory(tmp_path):
    path, errors = tmp_path / "out", []

    def write(name):
        try:
            for _ in range(25):
                with atomic_directory(path, overwrite=True) as tmp:
                    fill(tmp, name)
        except Exception as err:
            errors.append(err)

    threads = [threading.Thread(target=write, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and names(tmp_path) == ["out"]
    assert (path / "a.txt").read_text() == (path / "b.txt").read_text()


def test_directory_is_not_lost_with_its_parent(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_directory(tmp_path / "gone" / "out") as tmp:
        tmp.rmdir()
        tmp.parent.rmdir()


# ------------------------------------------------------------------------------------------------------------ cache


@pytest.mark.parametrize("cache", ["file", "file/below", "/dev/null/x", "/proc/none"])
@pytest.mark.parametrize("use", ["store", "encoder"])
def test_errors_of_the_cache_say_how_to_move_it(tmp_path, monkeypatch, cache, use):
    (tmp_path / "file").write_text("text")
    monkeypatch.setenv("PYTERRIER_MART_CACHE", str(tmp_path / cache))
    with pytest.raises(OSError, match=r"(file|null|none).*; set PYTERRIER_MART_CACHE to a folder that can be written"):
        if use == "encoder":
            encoders.resolve("minilm-l6-en")
        else:
            build_store(stores("clef") / "a.store", [tmp_path / "file"], lambda *_: [], fields=["text"])


def test_errors_of_sources_do_not_blame_the_cache(tmp_path, monkeypatch):
    def read(source, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(source))

    monkeypatch.setenv("PYTERRIER_MART_CACHE", str(tmp_path / "cache"))
    (tmp_path / "source").write_text("text")
    with pytest.raises(PermissionError) as caught:
        build_store(stores("clef") / "a.store", [tmp_path / "source"], read, fields=["text"])
    assert "PYTERRIER_MART_CACHE" not in str(caught.value)
