"""``pyterrier-mart index``, ``translate`` and ``search`` on files as users have them."""

import gzip
import json
import os
import subprocess
import sys

import ir_measures
import pyterrier as pt
import pytest
import translation_models
from commands import run_command
from ir_measures import AP

from pyterrier_mart import BM25Index, NeuralQueryTranslator, PSQIndex, SMTQueryTranslator, bm25_index
from pyterrier_mart.cli.console import errors, out

DATA_NAME = "mart:xquad-r/de-en"
DATA = pt.get_dataset(DATA_NAME)
QUERIES = 450  # several chunks
module = sys.modules["pyterrier_mart.cli.search"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The German questions and English sentences of XQuAD-R in files, and an index."""
    folder = tmp_path_factory.mktemp("files")
    documents = DATA.documents().items()
    lines = (json.dumps({"_id": docno, "text": document["text"]}) + "\n" for docno, document in documents)
    with gzip.open(folder / "docs.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(lines)
    topics = DATA.get_topics().head(QUERIES)
    rows = "".join(f"{qid}\t{query}\n" for qid, query in zip(topics["qid"], topics["query"], strict=True))
    (folder / "topics.tsv").write_text("\ufeff" + rows.replace("\n", "\r\n"), encoding="utf-8")
    bm25_index(folder / "docs.jsonl.gz", folder / "en.index", "en", store_text=True, progress=False)
    return folder


@pytest.fixture
def command(prepared, tmp_path, monkeypatch, capfd):
    """Runs a command where links to the files are; returns its status, output and messages."""
    monkeypatch.chdir(tmp_path)
    for path in prepared.iterdir():
        (tmp_path / path.name).symlink_to(path)
    for console in (out, errors):
        monkeypatch.setattr(console, "_width", 120)
    return lambda *args: run_command(monkeypatch, capfd, *args)


def test_from_files_to_a_measured_run(prepared, tmp_path):
    for name in ("docs.jsonl.gz", "topics.tsv"):
        (tmp_path / name).symlink_to(prepared / name)
    for line in (
        "index docs.jsonl.gz my.index --lang en --store-text",
        "translate topics.tsv topics.en.jsonl.gz --table de-en",
        "search my.index topics.en.jsonl.gz first.res.gz",
        "search my.index topics.tsv second.res --table de-en --tag bm25",
    ):
        start = [sys.executable, "-c", "from pyterrier_mart.cli import main; main()", *line.split()]
        ended = subprocess.run(start, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ))
        assert ended.returncode == 0 and ended.stdout.startswith("wrote ") and not ended.stderr, ended.stderr
    assert gzip.open(tmp_path / "first.res.gz").read() == (tmp_path / "second.res").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "docs.jsonl.gz", "first.res.gz", "my.index", "second.res", "topics.en.jsonl.gz", "topics.tsv",
    ]  # fmt: skip
    index = BM25Index(tmp_path / "my.index")
    run = pt.io.read_results(str(tmp_path / "first.res.gz"))
    expected = (SMTQueryTranslator("de-en") >> index.bm25()).transform(DATA.get_topics().head(QUERIES))
    assert run["docno"].tolist() == expected["docno"].tolist()
    assert run["score"].tolist() == pytest.approx(expected["score"].tolist(), abs=1e-6)
    qrels = DATA.get_qrels().rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    qrels = qrels[qrels["query_id"].isin(run["qid"])]
    found = ir_measures.calc_aggregate([AP @ 100], qrels, ir_measures.read_trec_run(str(tmp_path / "second.res")))
    assert 0.6 < found[AP @ 100] < 0.7
    texts = index.text_loader()(run.head(50))["text"].tolist()
    assert texts == DATA.text_loader("text")(run.head(50))["text"].tolist()


def test_options_reach_what_they_are_for(command, tmp_path):
    command("search", "en.index", "topics.tsv", "a.res", "--table", "de-en", "--num-results", 3, "--k1", 2, "--b", 0.9,
            "--top-k", 2, "--no-relate", "--stop", "--tag", "mine")  # fmt: skip
    smt = SMTQueryTranslator("de-en", 2, relate=False, stop=True)
    bm25 = BM25Index(tmp_path / "en.index").bm25(k1=2, b=0.9, num_results=3)
    expected = (smt >> bm25).transform(DATA.get_topics().head(QUERIES))
    run = pt.io.read_results("a.res")
    assert run[["qid", "docno"]].values.tolist() == expected[["qid", "docno"]].values.tolist()
    assert set(run["name"]) == {"mine"}
    assert command("index", "docs.jsonl.gz", "s.index", "--lang", "en", "--stop")[1].startswith("wrote s.index (1,180 ")
    assert BM25Index("s.index").analyzer.stop


def test_translations_as_text(command):
    code, text, _ = command("translate", "topics.tsv", "topics.en.tsv.gz", "--table", "de-en")
    assert code == 0 and text == f"wrote topics.en.tsv.gz ({QUERIES} queries)\n"
    topics = DATA.get_topics().head(QUERIES)
    expected = SMTQueryTranslator("de-en", push=True)(topics)[["qid", "query"]].values.tolist()
    assert [line.rstrip("\n").split("\t") for line in gzip.open("topics.en.tsv.gz", "rt")] == expected


def test_documents_as_words_of_queries(command, tmp_path):
    code, text, _ = command("index", "docs.jsonl.gz", "de.index", "--psq", "de-en", "--store-text")
    assert (code, text) == (0, "wrote de.index (1,180 documents, words in de, pisa)\n")
    assert command("search", "de.index", "topics.tsv", "psq.res")[0] == 0
    expected = PSQIndex("de.index").retriever()(DATA.get_topics().head(QUERIES))
    run = pt.io.read_results("psq.res")
    assert run[["qid", "docno"]].values.tolist() == expected[["qid", "docno"]].values.tolist()
    assert set(run["name"]) == {"psq"}
    assert list(PSQIndex("de.index").documents()) == list(DATA.documents())
    assert "no --table, --k1 or --b" in command("search", "de.index", "topics.tsv", "x.res", "--table", "de-en")[2]

    rows = [{"docno": "1", "text": "the cat", "doc_lang": "en"}, {"docno": "2", "text": "Katze", "doc_lang": "de"}]
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert command("index", "two.jsonl", "two.index", "--psq", "de-en", "--psq", "de")[0] == 0
    assert set(PSQIndex("two.index").retriever().search("Katze")["docno"]) == {"1", "2"}
    assert "two tables for documents in en" in command("index", "two.jsonl", "x", "--psq", "de-en", "--psq", "es-en")[2]
    assert "tables name the languages" in command("index", "two.jsonl", "x", "--psq", "de-en", "--lang", "en")[2]


def test_translations_of_a_model(command, tmp_path):
    (tmp_path / "few.tsv").write_text("1\tKatze und Haus\n")
    model = "--model", translation_models.madlad(), "--source", "de", "--target", "en"
    assert command("translate", "few.tsv", "few.en.jsonl", *model, "--n-best", 2)[0] == 0
    row = json.loads((tmp_path / "few.en.jsonl").read_text())
    nmt = NeuralQueryTranslator(str(model[1]), source="de", target="en", n_best=2)
    expected = nmt.search("Katze und Haus")["query_toks"].iloc[0]
    assert row["query"] == "Katze und Haus" and row["query_toks"] == pytest.approx(dict(expected))
    for options, message in (
        (model[:2], "--model needs --source and --target"),
        ((), "pass either --table or --model"),
        ((*model, "--table", "de-en"), "pass either --table or --model"),
    ):
        assert message in command("translate", "few.tsv", "x.jsonl", *options)[2]


def test_standard_output(command):
    code, text, messages = command("search", "en.index", DATA_NAME, "-", "--table", "de-en", "--num-results", 1)
    assert code == 0 and len(text.splitlines()) == 1190 and messages.startswith("wrote - (1,190 documents")


def test_an_index_is_kept_if_it_is_of_the_same_documents(command):
    arguments = "index", "docs.jsonl.gz", "en.index", "--lang", "en"
    assert command(*arguments)[1] == "kept en.index (1,180 documents, words in en, pisa)\n"
    assert "name another path or pass --overwrite" in command(*arguments, "--stop")[2]
    assert "name another path or pass --overwrite" in command("index", DATA_NAME, "en.index")[2]


def test_untranslated_queries_are_told(command):
    code, _, messages = command("search", "en.index", DATA_NAME, "raw.res")
    assert (
        code == 0 and "queries in de are searched as if they were in en; translate them with --table de-en" in messages
    )
    assert "165 of 1,190 queries found nothing" in messages


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("index docs.jsonl.gz new.index", "the language of docs.jsonl.gz is not known: pass --lang, one of ar, bg"),
        ("index docs.jsonl.gz new.index --lang xx", "xx"),
        ("index nothing.jsonl new.index --lang en", "there is neither a file nothing.jsonl nor a dataset of this name"),
        ("index . new.index --lang en", ".: Is a directory"),
        ("index docs.jsonl.gz topics.tsv --lang en", "topics.tsv: it is a file"),
        ("index docs.jsonl.gz full --lang en --overwrite", "full exists and is not replaced"),
        ("index docs.jsonl.gz new.index --lang en --text-field body", "docs.jsonl.gz, line 1: 'en-000-00' has no"),
        ("index mart:xquad-r/de-en new.index --lang de", "lang='de', but the documents of"),
        ("translate topics.tsv out.txt --table de-en", "OUT must end in .jsonl or .tsv, and perhaps .gz"),
        ("translate topics.tsv topics.tsv --table de-en", "topics.tsv exists; name another path or pass --overwrite"),
        ("translate mart:xquad-r/es-en out.tsv --table de-en", "has queries in es, and the table de-en trans"),
        ("translate toks.jsonl out.jsonl --table de-en", "toks.jsonl has translated queries (query_toks) already"),
        ("translate twice.tsv out.jsonl --table de-en", "twice.tsv, line 2: the qid '1' is there twice"),
        ("translate empty.tsv out.jsonl --table de-en", "empty.tsv: there are no queries"),
        ("search en.index topics.tsv out.res --table en-de", "the table en-de translates into {'lang': 'de'"),
        ("search en.index toks.jsonl out.res", "the words in query_toks were made by the analyzer {'lang': 'fr'"),
        ("search en.index bad.jsonl out.res", "bad.jsonl, line 1: the weights in query_toks must be numbers"),
        ("search en.index some.jsonl out.res", "some.jsonl: some queries have query_toks, and others do not"),
        ("search en.index blank.tsv out.res", "blank.tsv: the qid 'a b' has white space"),
        ("search nowhere topics.tsv out.res", "no index of pyterrier_mart at "),
        ("search full topics.tsv out.res", "is no index of pyterrier_mart: it has no pt_meta.json"),
        ("search en.index topics.tsv full", "full: it is a directory"),
        ("search en.index topics.tsv topics.tsv", "topics.tsv exists; name another path or pass --overwrite"),
        ("search en.index docs.jsonl.gz out.res --tag", "requires an argument"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line_and_nothing_is_written(command, tmp_path, line, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    terms = {"query": "x", "query_toks": {"chat": 1.0}, "analyzer": {"lang": "fr", "fold": True, "version": 1}}
    contents = {
        "twice.tsv": "1\tx\n1\ty\n", "empty.tsv": "\n", "blank.tsv": "a b\tx\n",
        "toks.jsonl": json.dumps({"qid": "1", **terms}) + "\n",
        "bad.jsonl": json.dumps({"qid": "1", "query": "x", "query_toks": {"cat": "1"}}) + "\n",
        "some.jsonl": json.dumps({"qid": "1", **terms}) + '\n{"qid": "2", "query": "y"}\n',
    }  # fmt: skip
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    before = sorted(path.name for path in tmp_path.iterdir())
    code, _, messages = command(*line.split())
    assert code and message in messages and (code == 2 or messages.count("\n") == 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_an_interrupted_search_leaves_nothing(command, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 1)
    (tmp_path / "topics.jsonl").write_text('{"qid": "1", "query": "cat"}\n{"qid": "2", "query": "dog"}\n')
    found = []

    def once(self, frame):
        found.append(frame)
        if len(found) > 1:
            raise KeyboardInterrupt
        return frame.assign(docno="d", score=1.0, rank=0)

    monkeypatch.setattr("pyterrier_mart.BM25Retriever.transform", once)
    assert command("search", "en.index", "topics.jsonl", "out.res")[0] == 130
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]
