"""``pyterrier-mart rerank`` on real files, with a small random model."""

import functools
import gzip
import io
import json
import multiprocessing
import os
import shutil
import signal
import sys

import ir_datasets
import models
import pandas as pd
import pyterrier as pt
import pytest
from commands import run_command
from ir_datasets.formats import GenericDoc

from pyterrier_mart import MARTReRanker, TranslationTable
from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.cli.rerank import command
from pyterrier_mart.mart.inference import Scorer

DATA = "mart:xquad-r/de-en"
QUERIES, DEPTH = 12, 10


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The directory of a saved re-ranker."""
    saved = tmp_path_factory.mktemp("saved") / "mart"
    MARTReRanker(models.bert(0.3), "de-en").save(saved)
    return saved


@pytest.fixture(scope="module")
def rows():
    """A first stage's results, not in order of the qids, with texts."""
    data = pt.get_dataset(DATA)
    texts = {docno: document["text"] for docno, document in data.documents().items() if len(document["text"]) > 40}
    documents = sorted(texts, key=lambda docno: len(texts[docno]))  # short ones, which are scored fast
    topics = data.get_topics().head(QUERIES).iloc[::-1]
    frame = pd.DataFrame(
        [
            {"qid": qid, "query": query, "docno": documents[(37 * i + 11 * rank) % 200], "rank": rank,
             "score": 20.0 - rank}
            for i, (qid, query) in enumerate(zip(topics["qid"], topics["query"], strict=True))
            for rank in range(DEPTH)
        ]
    )  # fmt: skip
    frame = data.text_loader("text")(frame)
    return frame.assign(text=[" ".join(text.split()) for text in frame["text"]])  # some have line ends


@pytest.fixture(scope="module")
def expected(model, rows):
    return MARTReRanker.load(model)(rows)


@pytest.fixture(scope="module")
def prepared(rows, tmp_path_factory):
    """A directory with the results in files of every kind."""
    folder = tmp_path_factory.mktemp("prepared")
    pt.io.write_results(rows, str(folder / "first.res"))
    pt.io.write_results(rows, str(folder / "first.res.gz"))
    write(folder / "rows.tsv", "qid\tquery\tdocno\ttext\n", rows[["qid", "query", "docno", "text"]].values)
    write(folder / "topics.tsv", "", rows[["qid", "query"]].drop_duplicates().values)
    documents = rows[["docno", "text"]].drop_duplicates()[::-1]
    write(folder / "docs.tsv.gz", "docno\ttext\n", [*documents.values, ["another", "text"]])
    with open(folder / "docs.jsonl", "w", encoding="utf-8") as file:
        for docno, text in documents.values:
            file.write(json.dumps({"title": "x", "docno": docno, "text": text}) + "\n")
    return folder


@pytest.fixture
def files(tmp_path, monkeypatch, prepared):
    """Copies the files and goes there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "_width", 120)
    monkeypatch.setattr(errors, "_width", 120)
    monkeypatch.setattr(command, "_CHUNK", 3 * DEPTH - 5)  # several chunks
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return tmp_path


def write(name, header, values):
    text = header + "".join("\t".join(cells) + "\n" for cells in values)
    data = ("\ufeff" + text).encode()
    with open(name, "wb") as file:
        file.write(gzip.compress(data, mtime=0) if str(name).endswith(".gz") else data)


RUN = ("--run", "first.res", "--topics", "topics.tsv", "--documents", "docs.jsonl")


@pytest.fixture(scope="module")
def load():
    """Loads a model once, which takes longest."""
    return functools.cache(command._load)


@pytest.fixture
def rerank(model, load, monkeypatch, capfd):
    """Runs the command in this process; returns its exit status, output and messages."""
    monkeypatch.setattr(command, "_load", load)

    def rerank(*args, given=None):
        if given is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(given))))
        return run_command(monkeypatch, capfd, "rerank", "--model", model, "--batch-tokens", 2048, *args)

    return rerank


@pytest.fixture
def fails(rerank, files):
    """Runs a command that fails and changes no file; returns its last message."""

    def fails(*args, **kwargs):
        before = contents(files)
        code, text, messages = rerank(*args, **kwargs)
        assert (code, text) == (1, "") and contents(files) == before
        last = messages.splitlines()[-1]
        assert last.startswith("error: ")
        return last

    return fails


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def check(name, expected, depth=DEPTH):
    """Compares a run with what the transformer gives."""
    found = pt.io.read_results(name)
    assert found["qid"].drop_duplicates().tolist() == expected["qid"].drop_duplicates().tolist()
    assert (found.groupby("qid", sort=False)["rank"].apply(list).map(lambda ranks: ranks == list(range(depth)))).all()
    both = found.merge(expected, on=["qid", "docno"], suffixes=("", "_expected"), validate="1:1")
    assert len(both) == len(found) == len(expected)
    assert (both["score"] - both["score_expected"]).abs().max() < 1e-6
    assert (both["rank"] == both["rank_expected"]).all()


# ------------------------------------------------------------------------------------------------------ what it writes


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (RUN, "out.res"),
        (("--run", "first.res.gz", "--topics", DATA, "--documents", "docs.tsv.gz"), "new/folder/out.res.gz"),
        (("--run", "first.res", "--topics", "topics.tsv", "--documents", DATA), "out.res"),
        (("--rows", "rows.tsv"), "out.res"),
    ],
)
def test_same_as_the_transformer(rerank, files, expected, args, name):
    code, text, messages = rerank(*args, "-o", name)
    assert (code, messages) == (0, "")
    assert text.startswith(f"wrote {name} ({QUERIES} queries, {QUERIES * DEPTH} pairs; {QUERIES * DEPTH} pairs in ")
    assert text.endswith(" pairs/s)\n")
    check(name, expected)
    assert [p.name for p in files.rglob("*") if "partial" in p.name or "tmp" in p.name] == []


def test_written_as_pyterrier_writes(rerank, files, expected):
    rerank(*RUN, "-o", "out.res")
    ordered = expected.assign(number=expected.groupby("qid", sort=False).ngroup()).sort_values(["number", "rank"])
    pt.io.write_results(ordered, "expected.res", run_name="mart")
    ours, theirs = ((files / name).read_text().splitlines() for name in ("out.res", "expected.res"))
    assert len(ours) == len(theirs)
    for line, other in zip(ours, theirs, strict=True):
        fields, others = line.split(" "), other.split(" ")
        assert fields[:4] + fields[5:] == others[:4] + others[5:]
        assert float(fields[4]) == pytest.approx(float(others[4]), abs=1e-6) and len(fields[4]) > 9


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_through_pipes(rerank, files, expected, pack):
    code, text, messages = rerank("--rows", "-", "-o", "-", given=pack((files / "rows.tsv").read_bytes()))
    assert code == 0 and f"scored {QUERIES} queries, {QUERIES * DEPTH} pairs" in messages
    (files / "out.res").write_text(text)
    check("out.res", expected)
    assert rerank("--rows", "-", "-o", "file.res", given=(files / "rows.tsv").read_bytes())[0] == 0
    assert (files / "file.res").read_text() == text and not (files / "file.res.partial").exists()


@pytest.mark.parametrize("args", [RUN, ("--rows", "rows.tsv")])
def test_depth(rerank, files, expected, rows, args):
    lines = (files / "first.res").read_text().splitlines(keepends=True)
    if args is RUN:  # the rank counts, not the order of the lines
        (files / "first.res").write_text(
            "".join(line for at in range(0, len(lines), DEPTH) for line in lines[at : at + DEPTH][::-1])
        )
    assert rerank(*args, "-o", "out.res", "--depth", "4")[0] == 0
    kept = rows.loc[rows["rank"] < 4, ["qid", "docno"]]
    check("out.res", pt.model.add_ranks(expected.drop(columns="rank").merge(kept)), depth=4)


def test_without_depth_all_rows_are_ranked(rerank, files, rows):
    many = [["1", "Wo?", f"d{i}", f"text {i}"] for i in range(150)]
    write("many.tsv", "qid\tquery\tdocno\ttext\n", many)
    assert rerank("--rows", "many.tsv", "-o", "out.res")[0] == 0
    assert len(pt.io.read_results("out.res")) == 150


def test_columns_in_any_order(rerank, files, expected, rows):
    write(
        "rows.tsv.gz", "text\tx\tdocno\tqid\tquery\n", rows.assign(x="-")[["text", "x", "docno", "qid", "query"]].values
    )
    assert rerank("--rows", "rows.tsv.gz", "-o", "out.res")[0] == 0
    check("out.res", expected)


def test_documents_of_ir_datasets(rerank, files, expected, rows, monkeypatch):
    documents = {docno: GenericDoc(docno, text) for docno, text in rows[["docno", "text"]].values}

    class Store:
        def get_many_iter(self, docnos):
            yield from (documents[docno] for docno in sorted(docnos) if docno in documents)

    class Dataset:
        def docs_store(self):
            return Store()

        def __getattr__(self, name):
            return lambda *args: name == "has_docs"

    monkeypatch.setattr(ir_datasets, "load", lambda name: Dataset())
    code, _, messages = rerank(*RUN[:4], "--documents", "irds:something", "-o", "out.res")
    assert code == 0, messages
    check("out.res", expected)


def test_another_table(rerank, fails, files, model, rows):
    message = fails(*RUN, "-o", "out.res", "--table", "en-de")
    assert "was trained with another translation table" in message and "pass --accept-table to use it" in message
    table = TranslationTable.from_dict({"wer": {"who": 1.0}}, "de", "en").save(files / "own.table")
    assert rerank(*RUN, "-o", "out.res", "--table", "own.table", "--accept-table")[0] == 0
    check("out.res", MARTReRanker.load(model, table, accept_table=True)(rows))


def test_long_lines(rerank, files):
    (files / "docs.jsonl").write_text(json.dumps({"docno": "a", "text": "word" + " " * 1_500_000}) + "\n")
    (files / "first.res").write_text("1 Q0 a 0 1.5 x\n")
    (files / "topics.tsv").write_text("qid\tquery\n1\tWo?\n")
    assert rerank(*RUN, "-o", "out.res")[0] == 0


# ------------------------------------------------------------------------------------------------------------ resuming


def whole(rerank, files, name, args=RUN):
    assert rerank(*args, "-o", f"whole-{name}")[0] == 0
    return (files / f"whole-{name}").read_bytes()


@pytest.fixture
def interrupted(rerank, files, monkeypatch):
    """Runs a command that ends with an exception in the third chunk."""

    def interrupted(name, *args, error=KeyboardInterrupt):
        calls = []
        score = Scorer.score

        def once(self, *rows):
            calls.append(rows)
            if len(calls) == 3:
                raise error
            return score(self, *rows)

        with monkeypatch.context() as patch:
            patch.setattr(Scorer, "score", once)
            result = rerank(*(args or RUN), "-o", name)
        assert not (files / name).exists()
        return result

    return interrupted


@pytest.mark.parametrize("name", ["out.res", "out.res.gz"])
@pytest.mark.parametrize("args", [RUN, ("--rows", "rows.tsv")])
def test_goes_on_after_an_interruption(rerank, files, interrupted, name, args):
    expected = whole(rerank, files, name, args)
    code, _, messages = interrupted(name, *args)
    assert code == 130 and f"6 queries are in {name}.partial; the same command goes on" in messages
    with open(f"{name}.partial", "ab") as file:  # what a command that is killed leaves
        file.write(b"half a li")
    code, text, _ = rerank(*args, "-o", name)
    assert code == 0 and f"{QUERIES} queries, {QUERIES * DEPTH} pairs, {6 * DEPTH} of them earlier; 60 pairs in" in text
    assert (files / name).read_bytes() == expected
    assert not list(files.glob("*partial*"))


@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that uses threads")
def test_goes_on_after_being_killed(rerank, files, monkeypatch):
    args = (*RUN, "--device", "cpu")  # which a forked process can use
    expected = whole(rerank, files, "out.res.gz", args)
    write, calls = os.fsync, []

    def fsync(file):  # after the lines and before the record of them
        calls.append(write(file))
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=rerank, args=(*args, "-o", "out.res.gz"), daemon=True)
        process.start()
        process.join(100)
    assert process.exitcode == -signal.SIGKILL
    assert json.loads((files / "out.res.gz.partial.json").read_text())["queries"] == 6
    code, text, _ = rerank(*args, "-o", "out.res.gz")
    assert code == 0 and "60 of them earlier" in text
    assert (files / "out.res.gz").read_bytes() == expected


def test_other_inputs_are_refused(rerank, fails, files, interrupted):
    expected = whole(rerank, files, "out.res")
    interrupted("out.res")
    args = (*RUN, "-o", "out.res")
    message = fails(*args, "--depth", "50", "--missing", "empty")
    assert "--depth was 100, now it is 50; --missing was error, now it is empty" in message
    assert "out.res.partial was begun with something else" in message and "--restart to discard it" in message
    assert "--run changed" in fails("--run", "first.res.gz", *args[2:])
    assert "(--documents changed); pass" in fails(*args[:4], "--documents", "docs.tsv.gz", "-o", "out.res")
    assert "the settings of --model, or --table changed" in fails(*args, "--table", "en-de", "--accept-table")
    (files / "moved.tsv").write_bytes((files / "topics.tsv").read_bytes().replace(b"\n", b"\r\n"))
    assert "--dtype was float32, now it is bfloat16" in fails(*args, "--dtype", "bfloat16")
    code, text, _ = rerank(*args[:2], "--topics", "moved.tsv", *args[4:], "--device", "cpu")  # the same queries
    assert code == 0 and "60 of them earlier" in text and (files / "out.res").read_bytes() == expected


def test_restart(rerank, fails, files, interrupted):
    expected = whole(rerank, files, "out.res")
    interrupted("out.res", *RUN, "--depth", "5")
    code, text, _ = rerank(*RUN, "-o", "out.res", "--restart")
    assert code == 0 and "earlier" not in text and (files / "out.res").read_bytes() == expected
    assert not list(files.glob("*partial*"))


@pytest.mark.parametrize("record", [None, "{", "[]", '{"format": 1}', "{}"])
def test_partial_file_without_a_record(fails, rerank, files, record):
    (files / "out.res.partial").write_text("precious\n")
    if record is not None:
        (files / "out.res.partial.json").write_text(record)
    assert "out.res.partial.json does not tell what is in it; pass --restart" in fails(*RUN, "-o", "out.res")
    assert rerank(*RUN, "-o", "out.res", "--restart", "--depth", "1")[0] == 0 and not list(files.glob("*partial*"))


def test_pipes_are_not_resumed(rerank, fails, files):
    (files / "out.res.partial").write_text("precious\n")
    given = (files / "rows.tsv").read_bytes()
    assert "a pipe cannot be resumed; pass --restart" in fails("--rows", "-", "-o", "out.res", given=given)
    assert "line 2: expected 4" in rerank("--rows", "-", "-o", "new.res", given=given[:100] + b"\n")[2]
    assert not (files / "new.res.partial").exists()


@pytest.mark.skipif(os.name == "nt", reason="locks")
def test_two_commands_at_once(fails, files):
    import fcntl

    with open("out.res.partial", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another command is writing" in fails(*RUN, "-o", "out.res")


# ----------------------------------------------------------------------------------------------------- what is refused


def test_output_is_replaced_only_when_asked(rerank, fails, files):
    (files / "out.res").write_text("precious\n")
    assert "out.res exists; name another path or pass --overwrite" in fails(*RUN, "-o", "out.res")
    assert rerank(*RUN, "-o", "out.res", "--overwrite")[0] == 0
    assert (files / "out.res").read_text().count("\n") == QUERIES * DEPTH
    (files / "folder").mkdir()
    assert "cannot write the file folder: it is a directory" in fails(*RUN, "-o", "folder", "--overwrite")
    assert "docs.jsonl is not a directory" in fails(*RUN, "-o", "docs.jsonl/x/out.res")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_disk_is_full(rerank, fails, files, monkeypatch):
    assert "cannot write /dev/full: No space left on device" in fails(*RUN, "-o", "/dev/full")

    def no_room(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_room)
    assert "out.res.partial.json: No space left" in rerank(*RUN, "-o", "out.res")[2]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--run", "first.res"], "pass --run, --topics and --documents, or --rows; there is no --topics, --documents"),
        ([], "there is no --run, --topics, --documents"),
        (["--rows", "rows.tsv", "--run", "first.res"], "--rows holds queries and texts already: leave out --run"),
        (["--rows", "nowhere.tsv"], "nowhere.tsv: No such file or directory"),
        (["--rows", "."], ".: expected a file, it is a directory"),
        ([*RUN, "--run", "nowhere.res"], "nowhere.res: No such file or directory"),
        ([*RUN, "--topics", "mart:nothing"], "'mart:nothing' not found"),
        ([*RUN, "--documents", "mart:xquad-r/de-xx"], "'mart:xquad-r/de-xx' not found"),
        ([*RUN, "--documents", "first.res"], "--documents first.res: expected a file named .jsonl or .tsv"),
        ([*RUN, "--device", "abacus"], "device must be auto, cpu, cuda"),
        ([*RUN, "--model", "."], ". is no saved MARTReRanker: it has no pt_meta.json"),
        ([*RUN, "--model", "nowhere"], "no saved MARTReRanker at nowhere"),
        ([*RUN, "--table", "xx-yy"], "xx-yy"),
    ],
)
def test_wrong_arguments(fails, args, message):
    assert message in fails("-o", "out.res", *args)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("first.res", "", "first.res: there is nothing to re-rank"),
        ("first.res", "\n1 Q0 d 0\n", "first.res, line 2: expected 6 fields, qid Q0 docno rank score tag, found 4"),
        ("first.res", "1 Q0 d x 1 t\n", "first.res, line 1: expected a whole number as rank, found 'x'"),
        ("first.res", "1 Q0 d 0 nan t\n", "first.res, line 1: expected a number as score, found 'nan'"),
        ("first.res", "1 Q0 d 0 1 t\n1 Q0 d 1 1 t\n", "line 2: the document 'd' was there before for the query '1'"),
        (
            "first.res",
            "1 Q0 d 0 1 t\n2 Q0 d 0 1 t\n1 Q0 e 1 1 t\n",
            "first.res, line 3: the query '1' was there before: expected rows grouped by qid",
        ),
        ("first.res", "1 Q0 d 0 1 t\n3 Q0 d 0 1 t\n", "line 2: the query '3' is not in --topics topics.tsv"),
        ("first.res", b"1 Q0 \xff 0 1 t\n", "first.res, line 1: byte 6 of the line (0xff) is not UTF-8"),
        ("topics.tsv", "", "topics.tsv: no queries"),
        ("topics.tsv", "1\tx\n2\n", "topics.tsv, line 2: expected 2 tab-separated columns, qid and query, found 1"),
        ("topics.tsv", "1\tx\n1\ty\n", "topics.tsv, line 2: the qid '1' is there twice"),
        ("docs.jsonl", "{}\n", "docs.jsonl, line 1: expected docno and text, found nothing"),
        ("docs.jsonl", '{"docno": "d", "text": "x"}\n{"docno": 1,\n', "docs.jsonl, line 2: not JSON: "),
        ("docs.jsonl", "[1]\n", "docs.jsonl, line 1: expected an object with docno and text, found '[1]'"),
        ("docs.jsonl", '{"id": 1, "text": ""}\n', "line 1: expected docno and text, found 'id', 'text'"),
        ("docs.jsonl", '{"docno": 1, "text": null}\n', "docs.jsonl, line 1: expected text as text, found None"),
        ("docs.jsonl", '{"docno": "\\ud800", "text": ""}\n', "docs.jsonl has no text of 2 of the documents"),
        ("rows.tsv", "", "rows.tsv: there is nothing to re-rank"),
        ("rows.tsv", "qid\tquery\tdocno\ttext\n", "rows.tsv: there is nothing to re-rank"),
        ("rows.tsv", "qid\tdocno\n", "rows.tsv, line 1: expected a header with the columns qid, query, docno and te"),
        ("rows.tsv", "qid\tquery\tdocno\ttext\n1\tx\td\n", "rows.tsv, line 2: expected 4 tab-separated columns"),
        (
            "rows.tsv",
            "qid\tquery\tdocno\ttext\n1\tx\td d\t\n",
            "line 2: expected a docno without white space, found 'd",
        ),
        ("rows.tsv", "qid\tquery\tdocno\ttext\n1\tx\ta\t\n1\ty\tb\t\n", "line 3: the query '1' has two texts, 'x' and"),
        ("rows.tsv", gzip.compress(b"qid\tquery\n" * 99, mtime=0)[:25], "rows.tsv: the compressed file is damaged or"),
    ],
)
def test_malformed_input(fails, files, name, content, message):
    (files / "topics.tsv").write_text("1\tWo?\n2\tWer?\n")
    (files / "first.res").write_text("1 Q0 d 0 1 t\n2 Q0 e 0 1 t\n")
    (files / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in fails("-o", "out.res", *(["--rows", name] if "rows" in name else RUN))


@pytest.mark.parametrize("documents", ["docs.tsv", DATA])
@pytest.mark.filterwarnings("default")
def test_documents_without_text(rerank, fails, files, model, documents):
    (files / "docs.tsv").write_text("known\tThe cat lies on the sofa.\nempty\t\n")
    known = "known" if documents == "docs.tsv" else "xquad-r"
    known = known if documents == "docs.tsv" else next(iter(pt.get_dataset(DATA).documents()))
    docnos = ["b", known, "a", "c", "d"]
    (files / "topics.tsv").write_text("1\tWo liegt die Katze?\n2\tWer?\n")
    (files / "first.res").write_text("".join(f"{q} Q0 {d} {i} 1 t\n" for q in "12" for i, d in enumerate(docnos)))
    args = (*RUN[:4], "--documents", documents, "-o", "out.res")
    assert f"{documents} has no text of 4 of the documents to re-rank: 'b', 'a', 'c', ...; pass --missing" in fails(
        *args
    )
    code, _, messages = rerank(*args, "--missing", "empty")
    assert code == 0 and "'b', 'a', 'c', ...; they are scored as empty texts" in messages.replace("\n", " ")
    found = pt.io.read_results("out.res").set_index(["qid", "docno"])["score"]
    assert (
        len(found) == 10 and len({found["1", docno] for docno in "abcd"}) == 1 and found["1", known] != found["1", "a"]
    )
