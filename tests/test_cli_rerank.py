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
from filelock import FileLock
from ir_datasets.formats import GenericDoc

from pyterrier_mart import MARTReRanker, TranslationTable, bm25_index
from pyterrier_mart.cli.console import errors, out
from pyterrier_mart.mart.inference import Scorer

DATA = "mart:xquad-r/de-en"
QUERIES, DEPTH = 12, 10
module = sys.modules["pyterrier_mart.cli.rerank"]  # the package's attribute is the command

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The directory of a saved re-ranker."""
    saved = tmp_path_factory.mktemp("saved") / "mart"
    rank = MARTReRanker(models.bert(0.3), "de-en")
    rank.history = []  # as if it had been trained
    rank.save(saved)
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
    columns = ["text", "x", "docno", "qid", "query"]  # any order, and one more
    write(folder / "rows.tsv", "\t".join(columns) + "\n", rows.assign(x="-")[columns].values)
    write(folder / "topics.tsv", "", rows[["qid", "query"]].drop_duplicates().values)
    documents = rows[["docno", "text"]].drop_duplicates()[::-1]
    write(folder / "docs.tsv.gz", "docno\ttext\n", [*documents.values, ["another", "text"]])
    with open(folder / "docs.jsonl", "w", encoding="utf-8") as file:
        for docno, text in documents.values:
            file.write(json.dumps({"title": "x", "docno": docno, "text": text}) + "\n")
    bm25_index(folder / "docs.jsonl", folder / "texts.index", "en", store_text=True, progress=False)
    return folder


@pytest.fixture
def files(tmp_path, monkeypatch, prepared):
    """Copies the files and goes there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "_width", 120)
    monkeypatch.setattr(errors, "_width", 120)
    monkeypatch.setattr(module, "_CHUNK", 3 * DEPTH - 5)  # several chunks
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
    return functools.cache(MARTReRanker.load)


@pytest.fixture
def rerank(model, load, monkeypatch, capfd):
    """Runs the command in this process; returns its exit status, output and messages."""
    monkeypatch.setattr(MARTReRanker, "load", load)

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
        (("--run", "first.res", "--topics", "topics.tsv", "--documents", "texts.index"), "out.res"),
        (("--rows", "rows.tsv"), "out.res"),
    ],
)
def test_same_as_the_transformer(rerank, files, expected, args, name):
    code, text, messages = rerank(*args, "-o", name)
    assert (code, messages) == (0, "")
    assert text.startswith(f"wrote {name} ({QUERIES * DEPTH} pairs; ") and text.endswith(" pairs/s)\n")
    check(name, expected)
    assert [p.name for p in files.rglob("*") if "partial" in p.name or "tmp" in p.name] == []


def test_a_model_that_was_not_trained(rerank, files):
    MARTReRanker(models.bert(0.3), "de-en").save("untrained")
    code, _, messages = rerank("--rows", "rows.tsv", "-o", "out.res", "--model", "untrained")
    assert code == 0 and "warning: this MARTReRanker has not been trained" in messages


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


def test_through_pipes(rerank, files, expected):
    code, text, messages = rerank("--rows", "-", "-o", "-", given=(files / "rows.tsv").read_bytes())
    assert code == 0 and f"scored {QUERIES * DEPTH} pairs" in messages
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


# ------------------------------------------------------------------------------------------------------------ resuming


def read(name):
    data = open(name, "rb").read()
    return gzip.decompress(data) if name.endswith(".gz") else data


def whole(rerank, name, args=RUN):
    assert rerank(*args, "-o", f"whole-{name}")[0] == 0
    return read(f"whole-{name}")


@pytest.fixture
def interrupted(rerank, files, monkeypatch):
    """Runs a command that is stopped in the third chunk; 60 rows are scored by then."""

    def interrupted(name, *args):
        calls, score = [], Scorer.score

        def once(self, *rows):
            calls.append(rows)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return score(self, *rows)

        with monkeypatch.context() as patch:
            patch.setattr(Scorer, "score", once)
            result = rerank(*args, "-o", name)
        assert not (files / name).exists()
        return result

    return interrupted


@pytest.mark.parametrize("left", [b"", b"half a li", b"\0" * 99])
@pytest.mark.parametrize("name", ["out.res", "out.res.gz"])
@pytest.mark.parametrize("args", [RUN, ("--rows", "rows.tsv")])
def test_resumes_after_an_interruption(rerank, files, interrupted, name, args, left):
    expected = whole(rerank, name, args)
    code, _, messages = interrupted(name, *args)
    assert code == 130 and f"results so far are in {name}.partial; the same command resumes" in messages
    with open(f"{name}.partial", "ab") as file:
        file.write(left)
    code, text, _ = rerank(*args, "-o", name)
    assert code == 0 and f"{QUERIES * DEPTH} pairs, {6 * DEPTH} of them earlier; " in text
    assert read(name) == expected and not list(files.glob("*partial*"))


def test_resumes_from_every_byte(rerank, files, interrupted):
    """A kill cuts the file anywhere, in its first line too."""
    expected = whole(rerank, "out.res")
    interrupted("out.res", *RUN)
    left = (files / "out.res.partial").read_bytes()
    head = left.index(b"\n") + 1
    for length in [0, 1, head - 1, head, head + 1, *range(head + 7, len(left), 997), len(left) - 1]:
        (files / "out.res.partial").write_bytes(left[:length])
        assert rerank(*RUN, "-o", "out.res", "--overwrite")[0] == 0
        assert read("out.res") == expected


@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that uses threads")
def test_resumes_after_being_killed(rerank, files, monkeypatch):
    args = (*RUN, "--device", "cpu")  # which a forked process can use
    expected = whole(rerank, "out.res.gz", args)
    score, calls = Scorer.score, []

    def killed(self, *rows):
        calls.append(rows)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return score(self, *rows)

    with monkeypatch.context() as patch:
        patch.setattr(Scorer, "score", killed)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=rerank, args=(*args, "-o", "out.res.gz"), daemon=True)
        process.start()
        process.join(100)
    assert process.exitcode == -signal.SIGKILL
    code, text, _ = rerank(*args, "-o", "out.res.gz")
    assert code == 0 and "60 of them earlier" in text and read("out.res.gz") == expected


def test_resumes_only_the_same(rerank, fails, files, interrupted):
    expected = whole(rerank, "out.res")
    interrupted("out.res", *RUN)
    args = (*RUN, "-o", "out.res")
    (files / "docs.jsonl").rename("same.jsonl")
    args = (*args, "--documents", "same.jsonl")
    for other in (
        ["--depth", "50"], ["--missing", "empty"], ["--table", "en-de", "--accept-table"],
        ["--dtype", "bfloat16"], ["--run", "first.res.gz"], ["--documents", "docs.tsv.gz"],
    ):  # fmt: skip
        message = fails(*args, *other)
        assert "out.res.partial was begun with something else" in message and "--restart to discard it" in message
    code, text, _ = rerank(*args, "--device", "cpu")
    assert code == 0 and "60 of them earlier" in text and read("out.res") == expected


@pytest.mark.parametrize("left", [b"precious\n", b"{}\n"])
def test_restart(rerank, fails, files, left):
    expected = whole(rerank, "out.res")
    (files / "out.res.partial").write_bytes(left)
    assert "was begun with something else" in fails(*RUN, "-o", "out.res")
    code, text, _ = rerank(*RUN, "-o", "out.res", "--restart")
    assert code == 0 and "earlier" not in text and read("out.res") == expected
    assert not list(files.glob("*partial*"))


def test_nothing_is_resumed_from_a_pipe(rerank, fails, files):
    """The next one may hold other texts of the same documents."""
    given = (files / "rows.tsv").read_bytes()
    half = given[: given.index(b"\n", len(given) * 3 // 4)] + b"\tx\n"  # a column too many
    assert "expected 5 tab-separated columns" in rerank("--rows", "-", "-o", "out.res", given=half)[2]
    assert not list(files.glob("*partial*"))
    (files / "out.res.partial").write_bytes(b"{}\n")  # of a command that was killed
    assert "was begun with something else" in fails("--rows", "-", "-o", "out.res", given=given)
    os.mkfifo("pipe")
    assert "--run must be a file, since it is read twice, not the pipe pipe" in fails(*RUN, "--run", "pipe", "-o", "x")


def test_two_commands_at_once(rerank, files):
    with FileLock("out.res.partial.lock"):
        code, _, messages = rerank(*RUN, "-o", "out.res")
    assert code == 1 and "The file lock 'out.res.partial.lock' could not be acquired" in messages


# ----------------------------------------------------------------------------------------------------- what is refused


def test_output_is_replaced_only_when_asked(rerank, fails, files):
    (files / "out.res").write_text("precious\n")
    assert "out.res exists; name another path or pass --overwrite" in fails(*RUN, "-o", "out.res")
    assert rerank(*RUN, "-o", "out.res", "--overwrite")[0] == 0
    assert (files / "out.res").read_text().count("\n") == QUERIES * DEPTH
    (files / "folder").mkdir()
    assert "folder: Is a directory" in fails(*RUN, "-o", "folder", "--overwrite")
    assert "docs.jsonl/x: Not a directory" in fails(*RUN, "-o", "docs.jsonl/x/out.res")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_disk_is_full(fails, files):
    assert "No space left on device" in fails(*RUN, "-o", "/dev/full")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--run", "first.res"], "pass --run, --topics and --documents, or only --rows"),
        ([], "pass --run, --topics and --documents, or only --rows"),
        (["--rows", "rows.tsv", "--run", "first.res"], "pass --run, --topics and --documents, or only --rows"),
        (["--rows", "nowhere.tsv"], "nowhere.tsv: No such file or directory"),
        (["--rows", "."], "Is a directory"),
        ([*RUN, "--run", "nowhere.res"], "nowhere.res: No such file or directory"),
        ([*RUN, "--topics", "mart:nothing"], "neither a file mart:nothing nor a dataset"),
        ([*RUN, "--documents", "mart:xquad-r/de-xx"], "neither a file mart:xquad-r/de-xx nor a dataset"),
        ([*RUN, "--documents", "first.res"], "first.res, line 1: expected 2 tab-separated columns, docno, text"),
        ([*RUN, "--device", "abacus"], "device must be auto, cpu, cuda"),
        ([*RUN, "--model", "."], "is no saved MARTReRanker: it has no pt_meta.json"),
        ([*RUN, "--model", "nowhere"], "no saved MARTReRanker at "),
        ([*RUN, "--table", "xx-yy"], "xx-yy"),
    ],
)
def test_wrong_arguments(fails, args, message):
    assert message in fails("-o", "out.res", *args)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("first.res", "", "first.res: there is nothing to re-rank"),
        (
            "first.res",
            "\n1 Q0 d 0\n",
            "first.res, line 2: expected qid Q0 docno rank score tag, the qid one of --topics, found '1 Q0 d 0'",
        ),
        ("first.res", "1 Q0 d x 1 t\n", "first.res, line 1: invalid literal for int() with base 10: 'x'"),
        ("first.res", "1 Q0 d 0 1 t\n1 Q0 d 1 1 t\n", "line 2: its document 'd' was there before"),
        (
            "first.res",
            "1 Q0 d 0 1 t\n2 Q0 d 0 1 t\n1 Q0 e 1 1 t\n",
            "first.res, line 3: the query '1' was there before; expected rows grouped by qid",
        ),
        (
            "first.res",
            "1 Q0 d 0 1 t\n3 Q0 d 0 1 t\n",
            "line 2: expected qid Q0 docno rank score tag, the qid one of --topics, found '3 Q0",
        ),
        (
            "rows.tsv",
            "qid\tquery\tdocno\ttext\n1\tWo?\td\t\n1\tWer?\te\t\n",
            "rows.tsv, line 3: the query '1' was there before with another text; expected rows grouped by qid",
        ),
        ("first.res", b"1 Q0 \xff 0 1 t\n", "first.res, line 1: byte 6 of the line (0xff) is not UTF-8"),
        ("topics.tsv", "", "topics.tsv: there are no queries"),
        ("topics.tsv", "1\tx\n2\n", "topics.tsv, line 2: expected 2 tab-separated columns, qid, query, found 1"),
        ("topics.tsv", "1\tx\n1\ty\n", "topics.tsv, line 2: the qid '1' is there twice"),
        ("docs.jsonl", "{}\n", "docs.jsonl, line 1: expected docno or doc_id or docid or _id or id or pid, found none"),
        ("docs.jsonl", '{"docno": "d", "text": "x"}\n{"docno": 1,\n', "docs.jsonl, line 2: expected a JSON object"),
        ("docs.jsonl", "[1]\n", "docs.jsonl, line 1: expected a JSON object, found '[1]'"),
        ("docs.jsonl", '{"id": 1.5, "text": ""}\n', "docs.jsonl, line 1: expected docno and text, found {'id': 1.5"),
        ("docs.jsonl", '{"docno": 1, "text": null}\n', "docs.jsonl, line 1: expected docno and text, found {'docno"),
        ("docs.jsonl", '{"docno": "\\ud800", "text": ""}\n', "docs.jsonl has no text of 2 of the documents"),
        ("rows.tsv", "", "rows.tsv: there is nothing to re-rank"),
        ("rows.tsv", "qid\tquery\tdocno\ttext\n", "rows.tsv: there is nothing to re-rank"),
        ("rows.tsv", "qid\tdocno\n", "rows.tsv, line 1: expected a header with qid, query, docno, text, each"),
        ("rows.tsv", "qid\tquery\tdocno\ttext\n1\tx\td\n", "rows.tsv, line 2: expected 4 tab-separated columns"),
        (
            "rows.tsv",
            "qid\tquery\tdocno\ttext\n1\tx\td d\t\n",
            "line 2: expected qid and docno without white space, found '1', 'd d'",
        ),
        ("rows.tsv", gzip.compress(b"qid\tquery\n" * 99, mtime=0)[:25], "rows.tsv"),
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
