"""Files and directories that appear whole or not at all."""

import errno
import os
import stat
import threading

import pytest

from pyterrier_mart.files import atomic_directory, atomic_file


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


def fill(directory, text):
    (directory / "a.txt").write_text(text)
    (directory / "b.txt").write_text(text)


# ------------------------------------------------------------------------------------------------------------ files


def test_file_appears_at_the_end(tmp_path):
    path = tmp_path / "new" / "deep" / "out.tar.gz"
    with atomic_file(path) as tmp:
        assert tmp.parent == path.parent and tmp.name.endswith(".tar.gz") and not path.exists()
        tmp.write_text("text")
        assert not path.exists()
    assert path.read_text() == "text" and names(path.parent) == ["out.tar.gz"]


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_file_stays_as_it_was_after_an_error(tmp_path, error):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(type(error)), atomic_file(path) as tmp:
        tmp.write_text("half")
        raise error
    assert path.read_text() == "old" and names(tmp_path) == ["out.txt"]


def test_file_has_the_permissions_of_the_umask(tmp_path):
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


def test_file_where_there_is_a_directory(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(IsADirectoryError, match="out: it is a directory"), atomic_file(tmp_path / "out"):
        pytest.fail("the block must not run")
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("writer", [atomic_file, atomic_directory])
def test_parent_is_a_file(tmp_path, writer):
    (tmp_path / "file").write_text("text")
    with pytest.raises(NotADirectoryError, match="file"), writer(tmp_path / "file" / "out"):
        pytest.fail("the block must not run")
    with pytest.raises(OSError, match="file"), writer(tmp_path / "file" / "deep" / "out"):
        pytest.fail("the block must not run")
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("writer", [atomic_file, atomic_directory])
def test_no_permission(tmp_path, writer, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(PermissionError, match="no permission to write in"), writer(tmp_path / "out"):
        pytest.fail("the block must not run")
    assert names(tmp_path) == []


def test_file_behind_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with atomic_file(tmp_path / "link") as tmp:
        tmp.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


# ------------------------------------------------------------------------------------------------------ directories


def test_directory_appears_at_the_end(tmp_path):
    path = tmp_path / "new" / "out"
    with atomic_directory(path) as tmp:
        fill(tmp, "text")
        assert not path.exists()
    assert names(path) == ["a.txt", "b.txt"] and names(path.parent) == ["out"]


def test_empty_directory_is_filled(tmp_path):
    (tmp_path / "out").mkdir()
    with atomic_directory(tmp_path / "out") as tmp:
        fill(tmp, "text")
    assert names(tmp_path / "out") == ["a.txt", "b.txt"] and names(tmp_path) == ["out"]


def test_directory_is_not_overwritten_unasked(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("old")
    with pytest.raises(FileExistsError, match="overwrite=True"), atomic_directory(tmp_path / "out"):
        pytest.fail("the block must not run")
    assert names(tmp_path / "out") == ["precious"]


def test_directory_is_overwritten_whole(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("old")
    with atomic_directory(tmp_path / "out", overwrite=True) as tmp:
        fill(tmp, "new")
        assert names(tmp_path / "out") == ["precious"]
    assert names(tmp_path / "out") == ["a.txt", "b.txt"] and names(tmp_path) == ["out"]


def test_directory_with_other_files_is_not_replaced(tmp_path):
    path, known = tmp_path / "out", {"a.txt", "b.txt"}
    for overwrite in (False, True):  # new, then replaced
        with atomic_directory(path, overwrite=overwrite, marker="a.txt", files=known) as tmp:
            fill(tmp, "new")
    for name in ("c", "d", "e", "f"):
        (path / name).mkdir()
    with pytest.raises(FileExistsError, match="out exists and is not replaced, since it also holds c, d, e and 1 more"):
        with atomic_directory(path, overwrite=True, marker="a.txt", files=known):
            pytest.fail("the block must not run")
    assert names(path) == ["a.txt", "b.txt", "c", "d", "e", "f"] and names(tmp_path) == ["out"]


def test_directory_keeps_what_came_meanwhile(tmp_path):
    with atomic_directory(tmp_path / "out", files={"a.txt", "b.txt"}) as tmp:
        fill(tmp, "old")
    with pytest.raises(FileExistsError, match="also holds precious;"):
        with atomic_directory(tmp_path / "out", overwrite=True, files={"a.txt", "b.txt"}) as tmp:
            fill(tmp, "new")
            (tmp_path / "out" / "precious").touch()
    assert names(tmp_path / "out") == ["a.txt", "b.txt", "precious"] and names(tmp_path) == ["out"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_directory_where_there_is_a_file(tmp_path, overwrite):
    (tmp_path / "out").write_text("old")
    with pytest.raises(FileExistsError, match="it is a file"):
        with atomic_directory(tmp_path / "out", overwrite=overwrite):
            pytest.fail("the block must not run")
    assert (tmp_path / "out").read_text() == "old"


def test_directory_stays_as_it_was_after_an_error(tmp_path):
    (tmp_path / "out").mkdir()
    fill(tmp_path / "out", "old")
    with pytest.raises(OSError, match="full"), atomic_directory(tmp_path / "out", overwrite=True) as tmp:
        (tmp / "a.txt").write_text("half")
        raise OSError(errno.ENOSPC, "full")
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "b.txt").read_text() == "old"


def test_directory_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    fill(tmp_path / "out", "old")
    replace = os.replace

    def fail_to_move_in(source, target):
        if str(source).endswith(".new.tmp"):
            raise PermissionError("cannot move in")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_to_move_in)
    ids = iter(["new", "old"])
    monkeypatch.setattr("uuid.uuid4", lambda: type("Id", (), {"hex": next(ids)}))
    with pytest.raises(PermissionError, match="move in"), atomic_directory(tmp_path / "out", overwrite=True) as tmp:
        fill(tmp, "new")
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a.txt").read_text() == "old"


def test_directory_behind_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    fill(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    with atomic_directory(tmp_path / "link", overwrite=True) as tmp:
        fill(tmp, "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "a.txt").read_text() == "new"
    assert names(tmp_path) == ["link", "real"]


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
