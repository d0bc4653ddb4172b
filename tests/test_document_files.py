"""Documents and queries in files, as collections come in them."""

import gzip
import json

import pyterrier as pt
import pytest

from pyterrier_mart import bm25_index
from pyterrier_mart.cli.inputs import read_topics
from pyterrier_mart.retrieval.document_files import DocumentFile, dataset_or_file

DATA = pt.get_dataset("mart:xquad-r/de-en")


def lines(*objects):
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("beir.jsonl", lines({"_id": "7", "title": "Katze", "text": "Straße", "metadata": {}})),
        ("anserini.json", lines({"id": "7", "contents": "Straße"})),
        ("miracl.jsonl", lines({"docid": "7", "title": "", "text": "Straße"})),
        ("msmarco-v2", lines({"pid": 7, "passage": "Straße", "spans": "(0,1)"})),
        ("irds.ndjson", lines({"doc_id": "7", "body": "Straße"})),
        ("both.jsonl", lines({"id": 1, "docno": "7", "body": "x", "text": "Straße"})),
        ("plain.tsv", "7\tStraße\n"),
        ("header.tsv", "docno\ttext\n7\tStraße\n"),
        ("colbert.tsv", "pid\ttext\ttitle\n7\tStraße\tx\n"),
        ("windows.tsv", "\ufeffid\ttext\r\n\r\n7\tStraße\r\n"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_names_of_fields(name, text, packed, tmp_path):
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert [(found["docno"], found["text"]) for found in DocumentFile(path)] == [("7", "Straße")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a", "text": "x"}\n{"id": "b", "text"\n', 'line 2: expected a JSON object, found \'{"id"'),
        ('{"id": "a", "text": "x"}\n\n{"id": "a", "text": "y"}\n', "line 3: the docno 'a' occurs twice"),
        ('{"id": "a", "text": "x"}\n{"id": "b", "title": "y"}\n', "line 2: 'b' has no field 'text'; found"),
        (
            '{"key": "a", "text": "x"}\n',
            "line 1: expected docno or doc_id or docid or _id or id or pid, found key, text",
        ),
        ('{"id": "a b", "text": "x"}\n', "line 1: its docno must be without white space"),
        ("a\tx\nb\n", "line 2: expected 2 tab-separated columns, docno, text, found 1"),
        ("a\tx\ty\n", "line 1: expected 2 tab-separated columns, docno, text, found 3"),
        ("id\ttitle\na\tx\n", "line 2: 'a' has no field 'text'; found ['docno', 'id', 'title']"),
        ("id\tid\ttext\na\tb\tx\n", "line 1: expected a header, each name once"),
        ("a\tx\nb\t\0\n", "line 2: byte 3 of the line is NUL"),
        ("docno\ttext\n", "there are no documents to index in "),
        ("", "there are no documents to index in "),
    ],
)
def test_malformed_documents(text, message, tmp_path):
    path = tmp_path / "docs"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        bm25_index(path, tmp_path / "index", "en", progress=False)
    assert message in str(caught.value) and str(path) in str(caught.value)
    assert not (tmp_path / "index").exists()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The English sentences of XQuAD-R as files of several kinds, and their German questions."""
    folder = tmp_path_factory.mktemp("files")
    documents = [(docno, document["text"]) for docno, document in DATA.documents().items()]
    (folder / "docs.jsonl").write_text(lines(*({"id": d, "contents": t} for d, t in documents)), encoding="utf-8")
    with gzip.open(folder / "docs.tsv.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{docno}\t{' '.join(text.split())}\n" for docno, text in documents)
    return folder


def test_index_of_a_file_is_that_of_the_dataset(files, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    expected = bm25_index(DATA, tmp_path / "dataset", progress=False)
    queries = DATA.get_topics("en").head(20)
    for name in ("docs.jsonl", files / "docs.tsv.gz"):
        index = bm25_index(name, tmp_path / "file", "en", overwrite=True, progress=False)
        assert index.meta["docnos"] == expected.meta["docnos"]
        assert index.bm25().transform(queries).equals(expected.bm25().transform(queries))
    moved = tmp_path / "elsewhere.gz"
    moved.write_bytes((files / "docs.tsv.gz").read_bytes())
    assert bm25_index(str(moved), tmp_path / "file", "en") == index  # the same documents, under another name
    with pytest.raises(ValueError, match=r"was made with dataset file \w+, not file \w+; name another path"):
        bm25_index("docs.jsonl", tmp_path / "file", "en")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topics.tsv", "1\tWo?\n2\tWer?\n"),
        ("topics.tsv", "qid\tquery_lang\tquery\n1\tde\tWo?\n2\tde\tWer?\n"),
        ("queries.jsonl", lines({"_id": 1, "text": "Wo?"}, {"_id": "2", "text": "Wer?"})),
        ("queries", lines({"query_id": "1", "query": "Wo?"}, {"query_id": "2", "query": "Wer?", "text": "x"})),
    ],
)
def test_topics(name, text, tmp_path):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_topics(str(tmp_path / name)) == {"1": "Wo?", "2": "Wer?"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing.jsonl", "neither a file nothing.jsonl nor a dataset of this name"),
        ("mart:xquad-r/de-xx", "nor a dataset of this name: There is no dataset 'xquad-r/de-xx'"),
        ("irds:nothing", "nor a dataset of this name: Dataset 'irds:nothing' not found"),
    ],
)
def test_names_of_nothing(name, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=reason):
        bm25_index(name, "index", "en")


def test_a_name_of_a_dataset_is_one_although_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vaswani").touch()
    assert dataset_or_file("vaswani") is pt.get_dataset("vaswani")
