"""Stores of documents: written whole or not at all, read from several places at a time."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from dataclasses import asdict

import pytest

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.problems import Problems
from pyterrier_mart.store import DocumentStore, build_store

FIELDS = ("text", "title")


def write_sources(folder, *contents):
    """Files with lines of a docno, a title and a text."""
    paths = []
    for i, lines in enumerate(contents):
        path = folder / f"source{i}.txt"
        path.write_text("".join("|".join(line) + "\n" for line in lines), encoding="utf-8")
        paths.append(path)
    return paths


def read(path, progress, problems):
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            docno, title, text = line.rstrip("\n").split("|")
            progress(len(line.encode()))
            yield docno, {"title": title, "text": text}


def articles(first, last):
    return [(f"D{i}", f"title {i}", f"text {i} é") for i in range(first, last)]


@pytest.fixture
def sources(tmp_path):
    return write_sources(tmp_path, articles(700, 2000), [], articles(0, 700))


@pytest.fixture
def store(tmp_path, sources):
    return build_store(tmp_path / "news.store", sources, read, fields=FIELDS, meta={"language": "en"})


EXPECTED = [*articles(700, 2000), *articles(0, 700)]


def test_it_is_a_mapping_in_corpus_order(store, tmp_path):
    assert len(store) == 2000 and store.fields == FIELDS and not store.problems
    assert list(store) == list(store.keys()) == [docno for docno, _, _ in EXPECTED]
    as_written = [(docno, {"text": text, "title": title}) for docno, title, text in EXPECTED]
    assert list(store.items()) == as_written and len(store.items()) == 2000
    assert list(store["D5"].items()) == [("text", "text 5 é"), ("title", "title 5")]
    assert "D1999" in store and "D2000" not in store and store.get("D2000") is None
    with pytest.raises(KeyError, match="D2000"):
        store["D2000"]
    asked = [f"D{i}" for i in range(1999, -1, -1)]
    found = store.get_many([*asked, "D7", "missing", 5, None])
    assert found.keys() == set(asked) and found["D7"] == store["D7"] and store.get_many([]) == {}
    assert sorted(os.listdir(tmp_path))[:3] == ["news.store", "news.store.lock", "source0.txt"]


def test_several_files_as_one(tmp_path):
    first, second = write_sources(tmp_path, articles(0, 1000), articles(1000, 1100))
    stores = [build_store(tmp_path / f"{path.stem}.store", [path], read, fields=FIELDS) for path in (first, second)]
    union = DocumentStore(*(store.paths[0] for store in stores))
    assert len(union) == 1100 and list(union.items()) == [*stores[0].items(), *stores[1].items()]
    assert union["D1099"]["title"] == "title 1099" and "D0" in union and "D1100" not in union
    assert union.get_many(["D1050", "D1", "D1100"]).keys() == {"D1050", "D1"}


def test_threads_and_copies(store):
    """Terrier's indexer iterates in a thread of its own, while others look up; other processes get copies."""
    results = []

    def work(k):
        seen = []
        for docno, fields in store.items():
            assert store.get("D1")["title"] == "title 1"
            seen.append((docno, fields["title"], fields["text"]))
            if len(seen) > 950:
                break
        results.append(seen == EXPECTED[: len(seen)])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 3
    assert list(pickle.loads(pickle.dumps(store))) == list(store)


def test_any_text(tmp_path, sources):
    def strange(path, progress, problems):
        yield "a\0b", {"text": "\0x\n", "title": "\U0001f600"}
        yield "half\ud800", {"text": "\udfff of a pair", "title": ""}

    store = build_store(tmp_path / "s", sources[:1], strange, fields=FIELDS)
    assert dict(store.items()) == {
        "a\0b": {"text": "\0x\n", "title": "\U0001f600"}, "half\ufffd": {"text": "\ufffd of a pair", "title": ""}
    }  # fmt: skip


@pytest.mark.parametrize("content", [None, b"", b"no database", b"SQLite format 3\0" + bytes(200), "cut", "header"])
def test_what_is_no_store_is_named_and_rebuilt(store, sources, content):
    (path,) = store.paths
    if content is None:
        path.unlink()
    elif content == "cut":
        os.truncate(path, path.stat().st_size // 2)
    else:
        path.write_bytes(path.read_bytes().replace(b'"fields"', b'"felder"') if content == "header" else content)
    path.with_name("news.store.partial").write_bytes(b"of a process that was killed")
    if content != "header":
        with pytest.raises(ValueError, match=r"news\.store is not a document store, or damaged .*delete it"):
            list(DocumentStore(path))
    again = build_store(path, sources, read, fields=FIELDS, meta={"language": "en"})
    assert list(again) == [docno for docno, _, _ in EXPECTED] and not path.with_name("news.store.partial").exists()


# ---------------------------------------------------------------------------------------------------------- building


def test_a_complete_store_is_opened_and_not_built_again(store, sources, tmp_path):
    def never(path, progress, problems):
        pytest.fail("read again")
        yield

    moved = tmp_path / "elsewhere"
    moved.mkdir()
    sources = [source.rename(moved / source.name) for source in sources]
    again = build_store(store.paths[0], sources, never, fields=FIELDS, meta={"language": "en"})
    assert again.paths == store.paths


@pytest.mark.parametrize("change", ["content", "time", "list", "order", "fields", "meta"])
def test_what_has_changed_is_rebuilt(store, sources, change):
    fields, meta, expected = FIELDS, {"language": "en"}, 2000
    if change == "content":
        sources[1].write_text("new|title|text\n")
        expected = 2001
    elif change == "time":
        os.utime(sources[0], ns=(0, 0))
    elif change == "list":
        sources, expected = sources[:1], 1300
    elif change == "order":
        sources = sources[::-1]
    elif change == "fields":
        fields = ("text",)
    else:
        meta = {"language": "de"}
    reads = []

    def counting(path, *rest):
        reads.append(path)
        return read(path, *rest)

    built = build_store(store.paths[0], sources, counting, fields=fields, meta=meta)
    assert reads == sources and len(built) == len(list(built)) == expected and built.fields == fields


def test_a_build_that_fails_leaves_the_store_before_it(store, sources):
    def interrupted(path, *rest):
        yield from read(path, *rest)
        raise KeyboardInterrupt

    (path,) = store.paths
    with pytest.raises(KeyboardInterrupt):
        build_store(path, sources, interrupted, fields=FIELDS)
    assert len(store["D1"]) == 2 and not path.with_name("news.store.partial").exists()
    with pytest.raises(FileNotFoundError, match="missing"):
        build_store(path, [path.with_name("missing")], read, fields=FIELDS)
    path.with_name("directory.store").mkdir()
    with pytest.raises(OSError, match=r"directory\.store"):
        build_store(path.with_name("directory.store"), sources, read, fields=FIELDS)


CODE = """
import os, sys, time
from pathlib import Path
from pyterrier_mart.store import build_store

folder = Path(sys.argv[1])

def read(path, progress, problems):
    with open(folder / "reads", "a") as log:
        log.write(f"{os.getpid()}\\n")
    for i in range(20000):
        yield f"{i}", {"text": "x" * 500}
    print("now", flush=True)
    time.sleep(float(sys.argv[2]))

build_store(folder / "s", [folder / "a"], read, fields=["text"])
"""


def test_a_killed_build_and_several_at_a_time(tmp_path):
    (tmp_path / "a").write_text("x")
    process = subprocess.Popen([sys.executable, "-c", CODE, str(tmp_path), "60"], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"now\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "s").exists()
    command = [sys.executable, "-c", CODE, str(tmp_path), "0.5"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert sorted(outputs) == [b"", b"", b"now\n"] and [process.returncode for process in processes] == [0] * 3
    assert len((tmp_path / "reads").read_text().split()) == 2 and len(DocumentStore(tmp_path / "s")) == 20000
    assert sorted(os.listdir(tmp_path)) == ["a", "reads", "s", "s.lock"]


def test_documents_that_are_there_twice(tmp_path):
    sources = write_sources(
        tmp_path,
        [("A", "t", "first"), ("B", "t", "b"), ("A", "t", "first"), ("A", "t", "second")],
        [("B", "t", "b"), ("C", "t", "c"), ("A", "t", "third")],
    )
    store = build_store(tmp_path / "s", sources, read, fields=FIELDS)
    assert {docno: fields["text"] for docno, fields in store.items()} == {"A": "first", "B": "b", "C": "c"}
    assert store.problems.counts["documents that are there twice, with the same text"] == 2
    assert store.problems.messages == [
        "source0.txt, document A: another text than in source0.txt, which is kept",
        "source1.txt, document A: another text than in source0.txt, which is kept",
    ]
    assert DocumentStore(tmp_path / "s").problems == store.problems


@pytest.mark.parametrize("cut", [("A title", ""), ("A ti", ""), ("A title", "The te")])
@pytest.mark.parametrize("cut_first", [True, False])
@pytest.mark.parametrize("files", [1, 2])
def test_the_whole_document_counts_and_not_a_part(tmp_path, cut, cut_first, files):
    lines = [("D1", *cut), ("D1", "A title", "The text")]
    if not cut_first:
        lines.reverse()
    lines = [("D0", "x", "y"), lines[0]], [lines[1], ("D2", "x", "y")]
    sources = write_sources(tmp_path, *(lines if files == 2 else [[*lines[0], *lines[1]]]))
    store = build_store(tmp_path / "news.store", sources, read, fields=FIELDS)
    assert list(store) == ["D0", "D1", "D2"]
    assert store["D1"] == {"title": "A title", "text": "The text"}
    assert store.problems.counts == {"documents that are there twice, once cut off: the whole one is kept": 1}


def test_a_damaged_archive_gives_what_can_be_read(tmp_path):
    sources = write_sources(tmp_path, articles(0, 3), articles(5, 8))

    def damaged(path, progress, problems):
        problems.add(path.name, "line 1", "odd")
        yield from read(path, progress, problems)
        if path == sources[0]:
            raise ArchiveError(f"{path}: truncated")

    store = build_store(tmp_path / "s", sources, damaged, fields=FIELDS)
    assert list(store) == ["D0", "D1", "D2", "D5", "D6", "D7"]
    assert store.problems.counts == {"damage": 2, "damaged archives": 1} and "truncated" in store.problems.messages[2]


# ---------------------------------------------------------------------------------------------------------- problems


def test_problems_are_counted_and_the_first_are_kept():
    problems = Problems(keep=2)
    assert not problems and problems.summary() == []
    for i in range(1500):
        problems.add("a.gz", f"byte {i}", "no docno", kind="documents without a docno")
    problems.add("b.gz", "", "truncated")
    problems.note("documents twice")
    assert len(problems) == 1502 and problems.counts["damage"] == 1
    assert problems.summary() == [
        "1,500 documents without a docno:",
        "  a.gz, byte 0: no docno",
        "  a.gz, byte 1: no docno",
        "  and 1,498 more",
        "1 damage:",
        "  b.gz: truncated",
        "1 documents twice",
    ]
    assert problems.messages == ["a.gz, byte 0: no docno", "a.gz, byte 1: no docno", "b.gz: truncated"]
    assert Problems(**asdict(problems)) == problems
    problems.update(Problems(**asdict(problems)))
    assert problems.counts == {"documents without a docno": 3000, "damage": 2, "documents twice": 2}
    assert problems.messages == ["a.gz, byte 0: no docno", "a.gz, byte 1: no docno", *["b.gz: truncated"] * 2]
