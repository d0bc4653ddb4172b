"""The commands that set up collections."""

import gzip
import json
import os
import re

import pytest
from clef_collection import write
from commands import run_command

from pyterrier_mart.datasets import CLEF, paths
from pyterrier_mart.datasets.clef import catalogue, stores


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path / "home"))
    for variable in ("PYTERRIER_MART_CACHE", "CLEF_HOME", "CIRAL_HOME"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def run(monkeypatch, capfd):
    return lambda *args: run_command(monkeypatch, capfd, *args)


def rows(text):
    """The cells of the tables' rows."""
    return [[cell.strip() for cell in re.split("[│|]", line)[1:-1]] for line in text.splitlines() if "│" in line]


# ---------------------------------------------------------------------------------------------------------------- CLEF


def test_setup_and_info(run, tmp_path):
    write(tmp_path / "clef", hostile=True)
    (tmp_path / "clef/more.qrels").write_text(
        "41 0 GH950102-777777 0\n" + "".join(f"{n} 0 XX-{n} 1\n" for n in range(41, 46))
    )
    code, text, messages = run("clef", "setup", tmp_path / "clef")
    assert code == 0, messages
    assert "building lat94.store" in messages
    table = rows(text)
    assert ["lat94", "Los Angeles Times 94", "43", "113,005", "40", "0"] in table
    assert ["spiegel", "Der Spiegel 94/95", "10", "13,979", "10", "0"] in table
    assert ["gh95", "Glasgow Herald 95", "5", "56,472", "2", "1"] in table
    assert ["German (de)", "15", "41-46, 141-146, 198-200"] in table
    assert ["Somali (so)", "12", "41-46, 141-146"] in table
    assert ["mart:clef/de-en", "12", "246", ""] in table and ["mart:clef/en-de", "12", "", ""] in table
    assert ["mart:clef/so-en", "12", "151", ""] in table
    assert ["mart:clef/en-es", "0", ""] in [row[:3] for row in table]
    assert "documents of efe94, efe95; judgments" in " ".join(row[-1] for row in table)
    assert "not there: lemonde94, lemonde95, atsfr94, atsfr95, lastampa94" in text
    assert "3 hold no documents, topics or judgments\n  ELRA licence.pdf\n  README.txt\n  empty.sgml\n" in text
    said = "5 judgments of documents of no known collection:\n  more.qrels: 5 XX-9 (such as XX-41)\n"
    assert said in text
    for found in ("RelAssess/damaged.txt, line 3", "broken.sgml, byte", "topics.so.tsv", "LA010194-0000: another text"):
        assert found in text
    again = run("clef", "info")
    assert again[:2] == (0, text) and "building" not in again[2]
    assert len(CLEF("de", "en").documents()) == 43 and len(CLEF("en", "de").get_topics()) == 12


def test_judgments_of_another_year(run, tmp_path):
    (tmp_path / "clef").mkdir()
    for code in ("de", "en", "es", "fr", "it"):
        (tmp_path / f"clef/topics.{code}.tsv").write_text("".join(f"{n}\ttitle\n" for n in range(41, 241, 2)))
    (tmp_path / "clef/documents").write_text("<DOC><DOCNO>LA010194-0001</DOCNO><TEXT>text</TEXT></DOC>")
    (tmp_path / "clef/qrels").write_text("".join(f"{n} 0 LA010194-0001 1\n" for n in range(300, 350)))
    code, text, messages = run("clef", "setup", tmp_path / "clef")
    assert code == 0, messages
    assert ["mart:clef/de-en", "0", "246", "judgments (there are of 300-349)"] in rows(text)
    assert ["German (de)", "100", "41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63, ..."] in rows(text)


def test_setup_in_another_folder(run, tmp_path, monkeypatch):
    write(tmp_path / "clef", documents=12, topics=3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEF_HOME", str(tmp_path / "other"))
    code, _, messages = run("clef", "setup", "clef", "--no-documents")
    assert code == 0 and f"CLEF_HOME is {tmp_path / 'other'}, which counts more" in messages
    assert run("clef", "info")[2].startswith(f"error: CLEF_HOME is {tmp_path / 'other'}, where there is no folder")
    monkeypatch.delenv("CLEF_HOME")
    assert run("clef", "info")[0] == 0


@pytest.mark.skipif(os.name == "nt", reason="names are always Unicode")
def test_setup_in_a_folder_whose_name_is_not_utf8(run, tmp_path):
    folder = tmp_path / os.fsdecode(b"cl\xe9f")
    folder.mkdir()
    (folder / os.fsdecode(b"\xe9.txt")).write_text("something else")
    (folder / os.fsdecode(b"\xe9.sgml")).write_text("<DOC><DOCNO>LA010194-0001</DOCNO><TEXT>text</TEXT></DOC>")
    code, text, messages = run("clef", "setup", folder)
    assert code == 0 and "CLEF in" in text and "cl?f" in text and "  ?.txt" in text, messages
    assert run("clef", "info")[0] == 0


def test_errors_are_sentences(run, tmp_path):
    code, text, messages = run("clef", "info")
    assert (code, text) == (1, "")
    assert messages.startswith(
        "error: the folder of the CLEF collection is not known: run 'pyterrier-mart clef setup DIR'"
    )
    assert run("clef", "setup", tmp_path / "missing")[2] == f"error: {tmp_path / 'missing'} is not a folder\n"
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/sea.jpg").write_bytes(b"\xff\xd8\xff")
    code, _, messages = run("clef", "setup", tmp_path / "photos")
    assert code == 1 and "photos holds no CLEF data: 1 files were looked at (sea.jpg)." in messages
    # What is no collection is not remembered.
    assert run("clef", "info")[2].startswith("error: the folder of the CLEF collection is not known")


def test_an_interrupted_setup_resumes(run, tmp_path, monkeypatch):
    write(tmp_path / "clef")
    built = []
    build = stores.build_store

    def interrupted(path, *args, **options):
        if len(built) == 2:
            raise KeyboardInterrupt
        built.append(path)
        return build(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(stores, "build_store", interrupted)
        code, text, messages = run("clef", "setup", tmp_path / "clef")
    assert code == 130 and messages.endswith("stopped\n") and text == ""
    times = [path.stat().st_mtime_ns for path in built]
    looked = []
    look = catalogue.look_at
    monkeypatch.setattr(catalogue, "look_at", lambda *args: looked.append(args) or look(*args))
    assert run("clef", "setup", tmp_path / "clef")[0] == 0
    assert [path.stat().st_mtime_ns for path in built] == times and looked == []
    assert len(list(paths.stores("clef").rglob("*.store"))) == 6


# --------------------------------------------------------------------------------------------------------------- CIRAL


def test_ciral(run, tmp_path):
    (tmp_path / "ciral").mkdir()
    (tmp_path / "ciral/README.md").write_text("x")
    passages = [{"docid": f"SITE#1#{i}", "title": "t", "text": f"warar {i}", "url": ""} for i in range(3)]
    lines = "".join(json.dumps(passage) + "\n" for passage in passages)
    (tmp_path / "ciral/somali.jsonl.gz").write_bytes(gzip.compress(lines.encode() + b"{damaged}\n"))
    code, text, messages = run("ciral", "setup", tmp_path / "ciral")
    assert code == 0, messages
    assert [row[:3] for row in rows(text) if row[0] == "so"] == [["so", "1", "3"]]
    assert "somali.jsonl" in text and "line 4" in text
    assert "1 files are not read:\n  README.md: the name must end in .jsonl, .json, .tsv" in text
    code, text, _ = run("ciral", "info")
    assert code == 0 and ["so", "test-a", "99", "99"] in [row[:4] for row in rows(text)]
    assert ["so", "1", "3"] in [row[:3] for row in rows(text)]


def test_ciral_without_passages(run, tmp_path):
    code, text, _ = run("ciral", "info")
    assert code == 0 and ["so", "test-a", "99", "99"] in [row[:4] for row in rows(text)]
    assert "No passages:" in text and "'pyterrier-mart ciral setup DIR', or set CIRAL_HOME to the folder" in text
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/topics.so.tsv").write_text("39\tWhat is the capital of Mudug?\n")
    code, _, messages = run("ciral", "setup", tmp_path / "wrong")
    reason = "(topics.so.tsv: the first lines are neither JSON objects with a docid nor tab-separated passages)"
    assert code == 1 and f"wrong holds 1 other files {reason}; expected" in " ".join(messages.split())
    code, _, messages = run("ciral", "setup", tmp_path / "empty")
    assert code == 1 and "empty holds 0 other files; expected CIRAL's passages" in messages


def test_a_folder_of_something_else_does_not_take_the_place_of_clef(run, tmp_path):
    write(tmp_path / "clef")
    assert run("clef", "setup", "--no-documents", tmp_path / "clef")[0] == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other/topics.en.tsv").write_text("41\tA topic of another collection\n")
    code, _, messages = run("clef", "setup", tmp_path / "other")
    assert code == 1 and "holds no documents and no judgments of CLEF's newspapers" in messages
    (tmp_path / "other/qrels").write_text("41 0 XX-1 1\n41 0 XX-2 1\n")
    code, _, messages = run("clef", "setup", tmp_path / "other")
    assert code == 1 and "qrels: 2 XX-9 (such as XX-1)" in " ".join(messages.split())
    assert paths.home("clef", "CLEF_HOME") == (tmp_path / "clef").resolve()
