"""Stores of documents: built in several attempts, read from several places at a time."""

import multiprocessing
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.datasets.store import DocumentStore, StoreUnion, build_store, locking
from pyterrier_mart.problems import Problems

FIELDS = ("text", "title")


def write_sources(folder, *contents):
    """Files with lines of a number, a title and a text."""
    paths = []
    for i, lines in enumerate(contents):
        path = folder / f"source{i}.txt"
        path.write_text("".join("|".join(line) + "\n" for line in lines), encoding="utf-8")
        paths.append(path)
    return paths


def read(path, progress):
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            docno, title, text = line.rstrip("\n").split("|")
            progress(len(line.encode()))
            yield docno, {"title": title, "text": text}


def numbered(first, last):
    return [(f"D{i}", f"title {i}", f"text {i} é") for i in range(first, last)]


@pytest.fixture
def sources(tmp_path):
    return write_sources(tmp_path, numbered(700, 2000), [], numbered(0, 700))


@pytest.fixture
def store(tmp_path, sources):
    return build_store(tmp_path / "news.store", sources, read, fields=FIELDS, meta={"language": "en"})


EXPECTED = [*numbered(700, 2000), *numbered(0, 700)]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# ----------------------------------------------------------------------------------------------------------- reading


def test_it_is_a_mapping_in_corpus_order(store, tmp_path):
    assert len(store) == 2000 and store.fields == FIELDS and store.meta == {"language": "en"}
    assert list(store) == list(store.keys()) == [docno for docno, _, _ in EXPECTED]
    as_written = [(docno, {"text": text, "title": title}) for docno, title, text in EXPECTED]
    assert list(store.items()) == as_written and len(store.items()) == 2000
    assert list(store.values()) == [fields for _, fields in as_written]
    assert list(store["D5"]) == list(FIELDS) and store["D5"] == {"text": "text 5 é", "title": "title 5"}
    assert "D1999" in store and "D2000" not in store and 5 not in store and "\ud800" not in store
    assert store.get("D2000") is None and store.get_many(["\ud800", "D3"]) == {"D3": store["D3"]}
    with pytest.raises(KeyError, match="D2000"):
        store["D2000"]
    assert names(tmp_path) == ["news.store", "source0.txt", "source1.txt", "source2.txt"]


def test_a_scan_looks_nothing_up(store, monkeypatch):
    monkeypatch.setattr(DocumentStore, "_look_up", lambda self, docnos: pytest.fail("looked up"))
    for documents in (store, StoreUnion([store])):
        assert sum(1 for _ in documents.items()) == sum(1 for _ in documents.values()) == 2000


def test_many_documents_in_the_order_asked_for(store):
    asked = [f"D{i}" for i in range(1999, -1, -1)]
    found = store.get_many([*asked, "D7", "missing"])
    assert list(found) == asked and found["D7"] == store["D7"]
    assert store.get_many([]) == {} and store.get_many(docno for docno in ["D1"]) == {"D1": store["D1"]}


def test_pickled_and_compared(store, tmp_path):
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store and hash(copy) == hash(store) and list(copy.items()) == list(store.items())
    assert store != DocumentStore(build_store(tmp_path / "other", [], read, fields=FIELDS).path)
    assert repr(str(store.path)) in repr(store)


def test_several_threads_iterate_and_look_up(store):
    """Terrier's indexer iterates in a thread of its own, while others look up."""
    results = []

    def work(k):
        seen = []
        for docno, fields in store.items():
            assert store[f"D{k}"]["title"] == f"title {k}"
            seen.append((docno, fields["title"], fields["text"]))
        results.append(seen == EXPECTED)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    store.close()  # opened again by whoever needs it
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def processes():
    inherited = _FORKED[0]
    before = inherited._opened.process
    inherited["D1"]
    return before, inherited._opened.process == os.getpid()


_FORKED = []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_a_connection_of_its_own(store):
    iterator = iter(store.items())
    first = next(iterator)
    _FORKED[:] = [store]
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(store.get, ["D3", "D1500"]) == [store["D3"], store["D1500"]]
        assert pool.apply(processes) == (os.getpid(), True)
    assert [first, *iterator] == list(store.items())


def test_any_name_of_a_field_and_any_text(tmp_path):
    def strange(path, progress):
        yield "a\0b", {"select": "\0x\n", 'drop "table': "\U0001f600"}
        yield "half\ud800", {"select": "\udfff of a pair", 'drop "table': ""}

    store = build_store(tmp_path / "s", [Path(__file__)], strange, fields=["select", 'drop "table'])
    assert dict(store) == {
        "a\0b": {"select": "\0x\n", 'drop "table': "\U0001f600"},
        "half\ufffd": {"select": "\ufffd of a pair", 'drop "table': ""},
    }


@pytest.mark.parametrize("content", [b"", b"some text that is no database", b"SQLite format 3\0" + bytes(200)])
def test_a_file_that_is_something_else(tmp_path, content):
    path = tmp_path / "x.store"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.store is not a document store"):
        DocumentStore(path)
    with pytest.raises(FileNotFoundError, match=r"y\.store: there is no such"):
        DocumentStore(tmp_path / "y.store")


def test_a_database_that_is_something_else_or_of_another_version(tmp_path, store):
    other = sqlite3.connect(tmp_path / "other.db")
    other.executescript("CREATE TABLE documents (docno TEXT)")
    other.close()
    with pytest.raises(ValueError, match="not a document store .the file is something else"):
        DocumentStore(tmp_path / "other.db")
    newer = sqlite3.connect(store.path)
    newer.executescript("PRAGMA user_version = 9")
    newer.close()
    with pytest.raises(ValueError, match="version 9, expected 1"):
        DocumentStore(store.path)


@pytest.mark.parametrize(
    "change", ["DELETE FROM meta WHERE key = 'fields'", "UPDATE meta SET value = '3' WHERE key = 'meta'",
               "UPDATE meta SET value = x'ff' WHERE key = 'problems'", "DROP TABLE meta"]
)  # fmt: skip
def test_a_damaged_header_is_named_and_the_store_built_anew(store, sources, change):
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(ValueError, match=r"news\.store"):
        DocumentStore(store.path)
    again = build_store(store.path, sources, read, fields=FIELDS, meta={"language": "en"})
    assert list(again) == [docno for docno, _, _ in EXPECTED]


def test_a_truncated_store_is_built_anew(store, sources):
    os.truncate(store.path, store.path.stat().st_size // 2)
    again = build_store(store.path, sources, read, fields=FIELDS, meta={"language": "en"})
    assert list(again) == [docno for docno, _, _ in EXPECTED]


def test_a_store_that_is_deleted(store):
    opened = DocumentStore(store.path)
    store.path.unlink()
    for ask in (lambda: opened["D1"], lambda: list(opened), lambda: "D1" in opened):
        with pytest.raises(FileNotFoundError, match=r"news\.store: the document store is not there any more"):
            ask()


def test_a_damaged_store_is_named(store):
    content = bytearray(store.path.read_bytes())
    content[8192:-8192] = b"\xff" * (len(content) - 16384)
    store.path.write_bytes(content)
    damaged = DocumentStore(store.path)
    with pytest.raises(ValueError, match=r"news\.store: the document store is damaged .* delete it"):
        list(damaged.items())


# ----------------------------------------------------------------------------------------------------------- several


def test_stores_as_one(tmp_path):
    first, second = write_sources(tmp_path, numbered(0, 600), numbered(600, 900))
    stores = [
        build_store(tmp_path / f"{path.stem}.store", [path], read, fields=FIELDS, meta={"of": path.name})
        for path in (first, second)
    ]
    union = StoreUnion(stores)
    assert len(union) == 900 and union.fields == FIELDS and union.meta["source1.store"] == {"of": "source1.txt"}
    assert list(union) == [f"D{i}" for i in range(900)]
    assert list(union.items()) == [*stores[0].items(), *stores[1].items()] and len(list(union.values())) == 900
    assert union["D899"]["title"] == "title 899" and "D0" in union and "D900" not in union
    assert list(union.get_many(["D700", "D1", "D900"])) == ["D700", "D1"]
    with pytest.raises(KeyError):
        union["D900"]
    assert pickle.loads(pickle.dumps(union)) == union
    union.close()
    assert union.get("D1") == stores[0]["D1"]


def test_stores_that_do_not_go_together(tmp_path, store):
    with pytest.raises(ValueError, match="at least one"):
        StoreUnion([])
    other = build_store(tmp_path / "other", [], read, fields=["text"])
    with pytest.raises(ValueError, match=r"fields \('text',\), expected \('text', 'title'\)"):
        StoreUnion([store, other])


# ---------------------------------------------------------------------------------------------------------- building


def test_a_complete_store_is_opened_and_not_built_again(store, sources, tmp_path):
    def never(path, progress):
        pytest.fail("read again")
        yield

    again = build_store(store.path, sources, never, fields=FIELDS, meta={"language": "en"})
    assert again == store
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for source in sources:
        source.rename(moved / source.name)
    build_store(store.path, [moved / source.name for source in sources], never, fields=FIELDS, meta={"language": "en"})


@pytest.mark.parametrize("change", ["content", "time", "list", "order", "fields", "meta"])
def test_what_has_changed_is_built_anew(store, sources, change):
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

    def counting(path, progress):
        reads.append(path)
        return read(path, progress)

    built = build_store(store.path, sources, counting, fields=fields, meta=meta)
    assert reads == sources and len(built) == len(list(built)) == expected
    assert (built.fields, built.meta) == (fields, meta)


def test_an_interrupted_build_goes_on(tmp_path, sources, monkeypatch):
    monkeypatch.setattr("pyterrier_mart.datasets.store.building._SECONDS", 0)
    path = tmp_path / "news.store"
    reads = []

    def interrupted(source, progress):
        reads.append(source)
        for i, document in enumerate(read(source, progress)):
            if source == sources[2] and i == 650:
                raise KeyboardInterrupt
            yield document

    with pytest.raises(KeyboardInterrupt):
        build_store(path, sources, interrupted, fields=FIELDS)
    assert not path.exists() and (tmp_path / "news.store.partial").exists()
    with pytest.raises(ValueError, match="not written to its end"):
        DocumentStore(tmp_path / "news.store.partial")
    reads.clear()

    def resumed(source, progress):
        reads.append(source)
        return read(source, progress)

    store = build_store(path, sources, resumed, fields=FIELDS)
    assert reads == sources[2:]
    assert [(docno, fields["title"], fields["text"]) for docno, fields in store.items()] == EXPECTED
    assert [name for name in names(tmp_path) if "news" in name] == ["news.store"]


KILLED = """
import sys, time
from pathlib import Path
from pyterrier_mart.datasets.store import build_store, building

building._SECONDS = 0

def read(path, progress):
    for i in range(20000):
        yield f"{path.name}-{i}", {"text": "x" * 500}
        if path.name == "c" and i == 15000:
            print("now", flush=True)
            time.sleep(60)

folder = Path(sys.argv[1])
build_store(folder / "s", [folder / name for name in "abc"], read, fields=["text"])
"""


def test_a_killed_build_goes_on(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text("x")
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"now\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / "s.partial-journal").exists()  # rows of the third source were on the disk already
    reads = []

    def small(path, progress):
        reads.append(path.name)
        yield "c-1", {"text": "c"}

    store = build_store(tmp_path / "s", [tmp_path / name for name in "abc"], small, fields=["text"])
    assert reads == ["c"] and len(store) == len(list(store)) == 40001 and store["c-1"] == {"text": "c"}
    assert names(tmp_path) == ["a", "b", "c", "s"]


def test_a_build_that_was_stopped_before_its_file_got_its_name(tmp_path, store, sources):
    store.path.rename(f"{store.path}.partial")
    again = build_store(store.path, sources, None, fields=FIELDS, meta={"language": "en"})
    assert len(again) == 2000 and again["D5"]["title"] == "title 5"


@pytest.mark.parametrize("content", [b"", b"text", b"SQLite format 3\0" + bytes(5000)])
def test_what_is_left_of_something_else_is_no_obstacle(tmp_path, sources, content):
    for name in ("news.store.partial", "news.store.partial-journal", "news.store", "news.store.lock"):
        (tmp_path / name).write_bytes(content)
    assert len(build_store(tmp_path / "news.store", sources, read, fields=FIELDS)) == 2000


def test_a_reader_that_fails_leaves_nothing_of_its_source(tmp_path, sources):
    with pytest.raises(ValueError, match=r"source0\.txt: document 'D700' has no field 'url'"):
        build_store(tmp_path / "s", sources, read, fields=["text", "url"])
    with pytest.raises(ValueError, match="fields=.*at least one"):
        build_store(tmp_path / "s", sources, read, fields=[])
    with pytest.raises(FileNotFoundError, match="missing"):
        build_store(tmp_path / "s", [tmp_path / "missing"], read, fields=FIELDS)
    assert not (tmp_path / "s").exists() and not (tmp_path / "s.lock").exists()


def test_a_store_that_cannot_be_written(tmp_path, sources):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        build_store(tmp_path / "file" / "s", sources, read, fields=FIELDS)
    (tmp_path / "s.partial").mkdir()
    with pytest.raises(OSError, match=r"s\.partial|cannot write the document store"):
        build_store(tmp_path / "s", sources, read, fields=FIELDS)


def test_documents_that_are_there_twice(tmp_path):
    sources = write_sources(
        tmp_path,
        [("A", "t", "first"), ("B", "t", "b"), ("A", "t", "first"), ("A", "t", "second")],
        [("B", "t", "b"), ("C", "t", "c"), ("A", "t", "third")],
    )
    problems = Problems()
    store = build_store(tmp_path / "s", sources, read, fields=FIELDS, problems=problems)
    assert {docno: fields["text"] for docno, fields in store.items()} == {"A": "first", "B": "b", "C": "c"}
    assert problems.counts["documents that are there twice, with the same text"] == 2
    assert problems.messages == [
        "source0.txt, document A: another text than in source0.txt, which is kept",
        "source1.txt, document A: another text than in source0.txt, which is kept",
    ]
    later = Problems()
    build_store(tmp_path / "s", sources, read, fields=FIELDS, problems=later)
    assert later == problems == store.problems


def test_problems_of_an_earlier_attempt_are_known_to_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("pyterrier_mart.datasets.store.building._SECONDS", 0)
    sources = write_sources(tmp_path, [("A", "t", "a")], [("B", "t", "b")])

    def reader(problems, stop):
        def read_with_problems(path, progress):
            problems.add(path.name, "line 1", "odd")
            if stop and path == sources[1]:
                raise KeyboardInterrupt
            return read(path, progress)

        return read_with_problems

    first, second = Problems(), Problems()
    with pytest.raises(KeyboardInterrupt):
        build_store(tmp_path / "s", sources, reader(first, True), fields=FIELDS, problems=first)
    store = build_store(tmp_path / "s", sources, reader(second, False), fields=FIELDS, problems=second)
    assert second.messages == ["source0.txt, line 1: odd", "source1.txt, line 1: odd"]
    assert store.problems == second and StoreUnion([store]).problems == second


def test_a_damaged_archive_gives_what_can_be_read(tmp_path):
    sources = write_sources(tmp_path, numbered(0, 3), numbered(5, 8))

    def damaged(path, progress):
        yield from read(path, progress)
        if path == sources[0]:
            raise ArchiveError(f"{path}: truncated")

    with pytest.raises(ArchiveError):
        build_store(tmp_path / "s", sources, damaged, fields=FIELDS)
    problems = Problems()
    store = build_store(tmp_path / "s", sources, damaged, fields=FIELDS, problems=problems)
    assert list(store) == ["D0", "D1", "D2", "D5", "D6", "D7"]
    assert problems.counts == {"damaged archives": 1} and "truncated" in problems.messages[0]


def test_a_folder_is_a_source(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    write_sources(folder, numbered(0, 2), numbered(2, 5))
    reads = []

    def read_folder(path, progress):
        reads.append(path)
        for file in sorted(path.iterdir()):
            yield from read(file, progress)

    assert len(build_store(tmp_path / "s", [folder], read_folder, fields=FIELDS)) == 5
    build_store(tmp_path / "s", [folder], read_folder, fields=FIELDS)
    write_sources(folder, numbered(0, 1))
    assert len(build_store(tmp_path / "s", [folder], read_folder, fields=FIELDS)) == 4 and len(reads) == 2


# ------------------------------------------------------------------------------------------------- several processes


RACING = """
import os, sys, time
from pathlib import Path
from pyterrier_mart.datasets.store import build_store

folder = Path(sys.argv[1])

def read(path, progress):
    with open(folder / "reads", "a") as log:
        log.write(f"{os.getpid()}\\n")
    time.sleep(0.5)
    yield "A", {"text": "a"}

print(len(build_store(folder / "s", [folder / "a"], read, fields=["text"])))
"""


@pytest.mark.skipif(locking.fcntl is None, reason="no locks")
def test_one_process_builds_while_the_others_wait(tmp_path):
    (tmp_path / "a").write_text("x")
    command = [sys.executable, "-c", RACING, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == [b"1"] * 3
    assert len((tmp_path / "reads").read_text().split()) == 1
    assert names(tmp_path) == ["a", "reads", "s"]


def test_without_locks_a_second_builder_is_told(tmp_path, sources, monkeypatch):
    monkeypatch.setattr(locking, "fcntl", None)

    def reader(path, progress):
        with pytest.raises(BlockingIOError, match=r"seems to build .*news\.store: wait for it, or delete .*building"):
            build_store(tmp_path / "news.store", sources, read, fields=FIELDS)
        return read(path, progress)

    assert len(build_store(tmp_path / "news.store", sources, reader, fields=FIELDS)) == 2000
    assert not list(tmp_path.glob("*.building"))


def test_threads_build_one_after_the_other(tmp_path, sources):
    stores, reads = [], []

    def slow(path, progress):
        reads.append(path)
        time.sleep(0.05)
        return read(path, progress)

    def build():
        stores.append(build_store(tmp_path / "news.store", sources, slow, fields=FIELDS))

    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 3 and len(reads) == (3 if locking.fcntl else len(reads))


def test_progress_counts_bytes_also_of_what_was_done_before(tmp_path, sources, capsys, monkeypatch):
    monkeypatch.setattr("pyterrier_mart.datasets.store.building._SECONDS", 0)
    bars = []

    class Bar:
        def __init__(self, **options):
            self.total, self.n = options["total"], 0
            bars.append(self)

        def update(self, n):
            self.n += n

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    monkeypatch.setattr("pyterrier_mart.datasets.store.building.pt.tqdm", Bar)

    def stops_early(path, progress):
        for document in read(path, progress):
            if path == sources[2]:
                raise KeyboardInterrupt
            yield document
            return

    with pytest.raises(KeyboardInterrupt):
        build_store(tmp_path / "s", sources, stops_early, fields=FIELDS, verbose=True)
    build_store(tmp_path / "s", sources, read, fields=FIELDS, verbose=True)
    total = sum(source.stat().st_size for source in sources)
    assert [bar.total for bar in bars] == [total, total] and bars[1].n == total


# ---------------------------------------------------------------------------------------------------------- problems


def test_problems_are_counted_and_the_first_are_kept():
    problems = Problems(keep=2)
    assert not problems and problems.summary() == []
    for i in range(1500):
        problems.add("a.gz", f"byte {i}", "no number", kind="documents without a number")
    problems.add("b.gz", "", "truncated")
    problems.note("documents twice", 3)
    problems.note("never", 0)
    assert len(problems) == 1504 and problems.counts["damage"] == 1
    assert problems.summary() == [
        "1,500 documents without a number:",
        "  a.gz, byte 0: no number",
        "  a.gz, byte 1: no number",
        "  and 1,498 more",
        "1 damage:",
        "  b.gz: truncated",
        "3 documents twice",
    ]
    assert problems.messages == ["a.gz, byte 0: no number", "a.gz, byte 1: no number", "b.gz: truncated"]


def test_problems_as_json_and_since_a_copy():
    problems = Problems()
    problems.add("a", "line 1", "x", kind="k")
    before = problems.copy()
    problems.add("a", "line 2", "y", kind="k")
    problems.note("n", 4)
    new = problems.since(before)
    assert new.messages == ["a, line 2: y"] and new.counts == {"k": 1, "n": 4}
    assert len(before) == 1 and Problems.from_json(problems.to_json()) == problems
    before.update(new)
    assert before == problems
    with pytest.raises(ValueError, match="expected counts"):
        Problems.from_json({"counts": 3})


@pytest.mark.parametrize("cut", [("A title", ""), ("A ti", ""), ("A title", "The te")])
@pytest.mark.parametrize("cut_first", [True, False])
@pytest.mark.parametrize("files", [1, 2])
def test_the_whole_document_counts_and_not_a_part(tmp_path, cut, cut_first, files):
    lines = [("D1", *cut), ("D1", "A title", "The text")]
    if not cut_first:
        lines.reverse()
    lines = [("D0", "x", "y"), lines[0]], [lines[1], ("D2", "x", "y")]
    sources = write_sources(tmp_path, *(lines if files == 2 else [[*lines[0], *lines[1]]]))
    problems = Problems()
    store = build_store(tmp_path / "news.store", sources, read, fields=FIELDS, problems=problems)
    assert list(store) == ["D0", "D1", "D2"]
    assert store["D1"] == {"title": "A title", "text": "The text"}
    assert dict(problems.counts) == {"documents that are there twice, once cut off: the whole one is kept": 1}
