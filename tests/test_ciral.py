import gzip
import json
import pickle
import re
from importlib import resources
from pathlib import Path

import pandas as pd
import pyterrier as pt
import pytest
from packing import refused

from pyterrier_mart.archives import ArchiveError
from pyterrier_mart.datasets import MartDatasetProvider, ciral
from pyterrier_mart.datasets.ciral import CIRAL, passages, summary
from pyterrier_mart.problems import Problems

SHARED = Path(__file__).parents[2] / "shared/data/ciral"
# English and native queries, judgments: dev, test-a, test-a-pools, test-b.
COUNTS = {
    "ha": (10, 80, 312, 165, 1447, 7288, 5930),
    "so": (10, 99, 239, 187, 1798, 9094, 4324),
    "sw": (10, 85, 113, 196, 1656, 8079, 2174),  # without the judgments of topic 23, which has no query
    "yo": (10, 100, 554, 185, 1921, 8311, 10569),
}
languages = pytest.mark.parametrize("language", COUNTS)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTERRIER_MART_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CIRAL_HOME", str(tmp_path / "ciral"))
    (tmp_path / "ciral").mkdir()
    return tmp_path / "ciral"


def passage(docid, text="Waa maxay?", **more):
    return {"docid": docid, "title": "Warka", "text": text, "url": "https://example.org/1", **more}


def write(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(entry if isinstance(entry, str) else json.dumps(entry) + "\n" for entry in entries)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(path, problems=None):
    found = Problems() if problems is None else problems
    entries = list(passages.read_passages(path, lambda n: None, found))
    assert problems is not None or not found
    return entries


# ------------------------------------------------------------------------------------------- topics and judgments


@languages
def test_counts(language):
    data = CIRAL(language)
    dev, a, b, *judged = COUNTS[language]
    assert len(data.get_topics("dev/native")) == dev
    assert len(data.get_topics()) == len(data.get_topics("test-a/native")) == a
    assert len(data.get_topics("test-b")) == len(data.get_topics("test-b/native")) == b
    assert len(data.get_qrels("native")) == judged[1] + judged[3]
    for variant, n in zip(("dev", "test-a", "test-a-pools", "test-b"), judged, strict=True):
        qrels = data.get_qrels(variant)
        assert list(qrels.columns) == ["qid", "docno", "label"] and len(qrels) == n
        assert set(qrels["label"]) == {0, 1} and qrels["label"].dtype == "int64"
        assert not qrels.duplicated(["qid", "docno"]).any()
        assert qrels["docno"].map(passages.DOCNO.fullmatch).notna().all()
        native = data.get_topics(variant.removesuffix("-pools") + "/native")
        assert set(qrels["qid"]) == set(native["qid"])
    assert len(ciral.query_pairs(language)) == len(data.get_topics("native")) == a + b
    assert data.languages == ("en", language)


@languages
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
def test_bundled_files_are_the_published_ones(language):
    bundled = resources.files("pyterrier_mart.datasets") / "data/ciral"
    names = {entry.name for entry in bundled.iterdir() if entry.name.startswith(f"{language}.")}
    files = list((SHARED / language).iterdir())
    assert len(names) == len(files) == 9
    for file in files:
        content = file.read_bytes() if file.suffix == ".tsv" else gzip.decompress(file.read_bytes())
        name = f"{language}.{file.name}" + ".gz" * (file.suffix == ".tsv")
        assert gzip.decompress((bundled / name).read_bytes()) == content


def test_oddities():
    native = CIRAL("sw").get_topics("test-b/native").set_index("qid")["query"]
    assert native["237"].startswith("Ni virusi gani") and native["238"].startswith("Rais 44 wa America")
    english = CIRAL("sw").get_topics("test-b").set_index("qid")["query"]
    assert english["238"].startswith("What was the name of the 44th president") and english["238"].endswith("kenya?")
    assert "23" not in set(CIRAL("sw").get_qrels("test-b")["qid"])
    yoruba = CIRAL("yo").get_topics().set_index("qid")["query"]
    assert yoruba["511"] == 'What musician released the "Twice as Tall" album?'


def test_known_topic():
    data = pt.get_dataset("mart:ciral/so")
    topics = data.get_topics()
    assert topics.iloc[0].tolist() == ["39", "What is the capital of Mudug?"]
    assert data.get_topics("so").iloc[0].tolist() == ["39", "Caasimada gobolka Mudug maxaa waye"]
    assert data.get_topics("en").equals(topics) and data.get_topics("test-a-pools").equals(topics)
    assert data.get_qrels().iloc[0].tolist() == ["39", "RADIOMUQDISHO#20610#16", 1]
    translated = data.human_translation()(topics.iloc[[3, 0]])
    assert translated["query"].tolist()[1] == "Caasimada gobolka Mudug maxaa waye"
    assert translated["query_0"].tolist() == topics["query"].iloc[[3, 0]].tolist()
    assert len(data.human_translation()(data.get_topics("test-b"))) == 239
    frame, qrels = data.get_topicsqrels("test-b")
    assert len(frame) == 239 and len(qrels) == 4324


@pytest.mark.parametrize("variant", ["test-c", "test-a/english", "", "de", "test-a/native/x"])
def test_unknown_variants(variant):
    for method in (CIRAL("so").get_topics, CIRAL("so").get_qrels):
        with pytest.raises(ValueError, match=r"MartDataset\('mart:ciral/so'\) has no variant .*test-a-pools.*native"):
            method(variant)


def test_names():
    assert list(CIRAL.list_names()) == ["ciral/ha", "ciral/so", "ciral/sw", "ciral/yo"]
    assert CIRAL.from_name("ciral/som") == CIRAL("so") and CIRAL("so").corpus_name == "mart:ciral/so"
    assert CIRAL("so").citation.startswith("@inproceedings{") and CIRAL("so").info_url().startswith("https://")
    for name in ("ciral", "ciral/", "ciral/so/x", "ciral/so-en", "ciral/de"):
        with pytest.raises(KeyError, match="ciral/|not available"):
            MartDatasetProvider().get_dataset(name)
    assert {f"mart:{name}" for name in CIRAL.list_names()} <= set(pt.datasets.list_datasets(en_only=False)["dataset"])


# ------------------------------------------------------------------------------------------------------- passages


def test_json_lines(tmp_path):
    path = write(tmp_path / "x.jsonl.gz", [passage("A#1#0"), "\n", {"docid": "A#1#1", "text": "b", "title": None}])
    assert read(path) == [
        ("A#1#0", {"text": "Waa maxay?", "title": "Warka", "url": "https://example.org/1"}),
        ("A#1#1", {"text": "b", "title": "", "url": ""}),
    ]


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        (["A#1#0\ttext\n"], {"text": "text", "title": "", "url": ""}),
        (["A#1#0\ttitle\ttext\r\n"], {"text": "text", "title": "title", "url": ""}),
        (["A#1#0\ttitle\ttext\turl\n"], {"text": "text", "title": "title", "url": "url"}),
        (["url\tdocid\ttext\tdate\n", "u\tA#1#0\t“text”\t2023\n"], {"text": "“text”", "title": "", "url": "u"}),
        (["\ufeffA#1#0\ttext"], {"text": "text", "title": "", "url": ""}),
    ],
)
def test_tab_separated(tmp_path, lines, fields):
    assert read(write(tmp_path / "x.tsv", lines)) == [("A#1#0", fields)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"docid": "A#1#1", "text": "b"\n', "line 2: Expecting"),
        (b"[1]\n", "line 2: expected 2 to 4 tab-separated columns, found 1"),
        (b'{"docid": "A#1", "text": "b"}\n', "line 2: docid must be one such as RADIOMUQDISHO#20610#16, not 'A#1'"),
        (b'{"docid": 5, "text": "b"}\n', "line 2: docid must be one such as .*, not 5"),
        (b'{"docid": "A#1#1"}\n', "line 2: A#1#1: text, title, url must be strings"),
        (b'{"docid": "A#1#1", "text": "b", "title": [1]}\n', "line 2: A#1#1: text, title, url must be strings"),
        (b'{"docid": "A#1#1", "text": "\xff"}\n', "line 2: 'utf-8' codec can't decode byte 0xff in position 28"),
        (b"A#1#1\ta\tb\tc\td\n", "line 2: expected 2 to 4 tab-separated columns, found 5"),
        (b"[" * 100_000 + b"\n", "line 2: expected 2 to 4"),
        (b'{"a":' * 100_000 + b"\n", "line 2: "),
    ],
)
def test_malformed_lines_are_reported_and_the_others_read(tmp_path, line, message):
    path = tmp_path / "x.jsonl"
    path.write_bytes(json.dumps(passage("A#1#0")).encode() + b"\n" + line + json.dumps(passage("A#1#2")).encode())
    problems = Problems()
    assert [docno for docno, _ in read(path, problems)] == ["A#1#0", "A#1#2"]
    assert problems.counts == {"malformed lines": 1} and re.search(f"x.jsonl, {message}", problems.messages[0])


def test_long_lines_do_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(passages, "_LONGEST_LINE", 1000)
    path = write(tmp_path / "x.jsonl", [passage("A#1#0"), passage("A#1#1", "x" * 5000), passage("A#1#2")])
    problems = Problems()
    assert [docno for docno, _ in read(path, problems)] == ["A#1#0", "A#1#2"]
    assert "line 2: the line is longer than" in problems.messages[0]


def test_scan(home):
    for name in ("somali.jsonl", "passages/ciral-hausa.jsonl.gz", "sw/part1.jsonl", "sw/part2.tsv", "ciral_yo.json"):
        content = ["A#1#0\ttext\n"] if name.endswith(".tsv") else [passage("A#1#0")]
        write(home / name, content)
    write(home / "passages.jsonl", [passage("A#1#0")])
    write(home / "so-sw.jsonl", [passage("A#1#0")])
    write(home / "so/topics.ciral-v1.0-so-test-a.tsv", ["39\tWhat is the capital of Mudug?\n"])
    write(home / "so/qrels.tsv", ["39\tQ0\tA#1#0\t1\n"])
    write(home / "so/README.md", ["Somali\n"])
    write(home / "so/.hidden.jsonl", [passage("A#1#0")])
    write(home / ".cache/so.jsonl", [passage("A#1#0")])
    write(home / "so/other.jsonl", [{"_id": "1", "text": "x"}])
    found = ciral.scan(home)
    assert {code: [str(file.relative_to(home)) for file in files] for code, files in found.files.items()} == {
        "ha": ["passages/ciral-hausa.jsonl.gz"],
        "so": ["somali.jsonl"],
        "sw": ["sw/part1.jsonl", "sw/part2.tsv"],
        "yo": ["ciral_yo.json"],
    }
    unplaced = [name for name, why in found.ignored.items() if "tells one language" in why]
    assert unplaced == ["passages.jsonl", "so-sw.jsonl"] and len(found.ignored) == 6
    assert found.describe().endswith("swahili: 2 files, yoruba: 1 files, 6 other files")
    assert "(passages.jsonl: neither the file's name nor its folder's tells one" in found.describe(reasons=True)
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        ciral.scan(home / "somali.jsonl")


def native(language):
    return CIRAL(language).get_topics("test-a/native")["query"]


@pytest.mark.parametrize(("said", "told"), [("so", "yo"), ("ha", "yo"), ("yo", "so"), ("sw", "ha"), ("ha", "sw")])
@pytest.mark.parametrize("site", ["judged", "unknown"])
def test_passages_in_another_language_than_their_name_says(home, said, told, site):
    docnos = CIRAL(told).get_qrels()["docno"].drop_duplicates()
    if site == "judged":
        docnos = docnos[~docnos.str.match("VOA|DW|VON")]  # which are in several languages
    else:
        docnos = docnos.str.replace("^[^#]*", "X", regex=True)
    for code in (said, told):
        write(home / f"{code}.jsonl", [passage(*row) for row in zip(docnos, native(told), strict=False)])
    found = ciral.scan(home)
    assert list(found.files) == [told]
    names = passages.LANGUAGES
    assert found.ignored == {
        f"{said}.jsonl": f"its name tells {names[said]}, but its first passages are in {names[told]}"
    }
    with pytest.raises(FileNotFoundError, match=f"{said}.jsonl: its name tells {names[said]}, but"):
        CIRAL(said).documents()


def test_tab_separated_passages_in_another_language(home):
    write(home / "so.tsv", [f"X#1#{i}\t{text}\n" for i, text in enumerate(native("yo"))])
    assert "passages are in yoruba" in ciral.scan(home).ignored["so.tsv"]


@languages
def test_passages_in_the_language_that_their_name_says(home, language):
    docnos = CIRAL(language).get_qrels()["docno"].drop_duplicates()
    write(home / f"a.{language}.jsonl", [passage(*row) for row in zip(docnos, native(language), strict=False)])
    write(home / f"b.{language}.tsv", [f"X#1#{i}\t{text}\n" for i, text in enumerate(native(language))])
    found = ciral.scan(home)
    assert len(found.files[language]) == 2 and not found.ignored


def test_what_cannot_be_read_is_said(home, monkeypatch):
    write(home / "so.jsonl", [passage("A#1#0")])
    write(home / "no/so.jsonl", [passage("A#1#1")])
    with refused(monkeypatch, home / "no"):
        assert ciral.scan(home).ignored == {"no": "cannot be read (Permission denied)"}
    with refused(monkeypatch, home / "so.jsonl"):
        found = ciral.scan(home)
        assert found.ignored == {"so.jsonl": "cannot be read (Permission denied)"} and len(found.files["so"]) == 1


def test_a_line_without_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(passages, "_LONGEST_LINE", 1000)
    path = write(tmp_path / "x.jsonl.gz", [passage("A#1#0"), "x" * 9000, "\n", passage("A#1#2")])
    entries = []
    with pytest.raises(ArchiveError, match=r"x\.jsonl\.gz: a line has no end in"):
        entries.extend(passages.read_passages(path, lambda n: None, Problems()))
    read = []
    monkeypatch.setattr(passages, "_SKIPPED", 99)
    read.extend(docno for docno, _ in passages.read_passages(path, lambda n: None, Problems()))
    assert read == ["A#1#0", "A#1#2"]


def test_no_passages(home, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"passages in Somali: .* holds 0 other files; .*somali\.jsonl"):
        CIRAL("so").documents()
    monkeypatch.delenv("CIRAL_HOME")
    monkeypatch.setattr(pt.io, "pyterrier_home", lambda: str(home / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"CIRAL.*pyterrier-mart ciral setup DIR.*CIRAL_HOME"):
        CIRAL("so").documents()
    assert len(CIRAL("so").get_topics()) == 99


def corpus(home):
    """Relevant passages are the native queries; for each topic, one that is judged not relevant is there too."""
    data = CIRAL("so")
    text = data.get_topics("native").set_index("qid")["query"]
    qrels = pd.concat([data.get_qrels(), data.get_qrels("test-b")]).groupby(["qid", "label"]).first().reset_index()
    chosen = qrels.drop_duplicates("docno")
    entries = [
        passage(row.docno, text[row.qid] if row.label else "Wax kale ayaa dhacay.", title="")
        for row in chosen.itertuples()
    ]
    write(home / "somali.jsonl.gz", entries)
    return chosen


def test_documents(home):
    chosen = corpus(home)
    write(home / "t.so.tsv", [f"{chosen['docno'].iloc[0]}\tsomething else\n", "NEW#1#0\tcusub\n", "broken\n"])
    data = pt.get_dataset("mart:ciral/so")
    documents = data.documents()
    assert len(documents) == len(chosen) + 1
    assert documents["NEW#1#0"] == {"text": "cusub", "title": "", "url": ""}
    rows = list(data.get_corpus_iter(verbose=False))
    assert len(rows) == len(documents) and rows[0].keys() == {"docno", "text", "title", "url"}
    assert data.text_loader("text")(pd.DataFrame({"docno": ["NEW#1#0"]}))["text"].tolist() == ["cusub"]
    copy = pickle.loads(pickle.dumps(data))
    assert copy == data and copy.documents()["NEW#1#0"]["text"] == "cusub"


def test_check(home):
    chosen = corpus(home)
    write(home / "sw.jsonl", [passage("A#1#0"), "broken\n"])
    problems, found = Problems(), ciral.scan(home)
    before = summary.check(found, problems, build=False).set_index("language")
    assert before["passages"].isna().all() and before["files"].tolist() == [0, 1, 1, 0]
    frame = summary.check(found, problems).set_index("language")
    somali = frame.loc["so"]
    judged = summary.judged("so")
    assert somali.tolist() == [1, len(chosen), len(judged), len(judged) - len(chosen)]
    assert frame.loc["sw", "passages"] == 1 and frame.loc["sw", "judged, missing"] == frame.loc["sw", "judged"]
    assert pd.isna(frame.loc["ha", "passages"]) and problems.counts["malformed lines"] == 1
    assert summary.check(found, problems, build=False)["passages"].notna().sum() == 2


def test_topics_table():
    frame = summary.topics().set_index(["language", "set"])
    assert len(frame) == 16
    assert frame.loc[("so", "test-a")].tolist() == [99, 99, 1798, 534]
    assert frame.loc[("so", "test-a-pools")].tolist() == [99, 99, 9094, 1899]
    assert frame.loc[("sw", "dev")].tolist()[:3] == [10, 0, 196]
    assert frame.loc[("sw", "test-b")].tolist()[:3] == [113, 113, 2174]
    assert (frame["relevant"] < frame["judgments"]).all() and (frame["relevant"] > 0).all()
