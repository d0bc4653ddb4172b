"""CLEF from a folder: what is in it, and the datasets that it makes."""

import gzip
import io
import json
import os
import pickle
import random
import shutil
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from clef_collection import NO_RELEVANT, NOT_ITALIAN, ONLY_HERALD, write
from packing import make_zip, refused

from pyterrier_mart.datasets import CLEF, MartDatasetProvider, paths
from pyterrier_mart.datasets.clef import COLLECTIONS, catalogue, encodings, scan
from pyterrier_mart.datasets.clef import stores as clef_stores
from pyterrier_mart.datasets.clef.settings import PAPER_PAIRS, collections_of

DATA = Path(__file__).parents[2] / "shared/data"
published = pytest.mark.skipif(not DATA.exists(), reason="needs the shared data")
LANGUAGES = ("de", "en", "es", "fr", "it")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Keeps stores and what is remembered out of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("PYTERRIER_HOME", str(folder / "pyterrier"))
        patch.setenv("PYTERRIER_MART_CACHE", str(folder / "cache"))
        patch.delenv("CLEF_HOME", raising=False)
        yield folder / "cache"


@pytest.fixture(scope="module")
def clef(tmp_path_factory, cache):
    return write(tmp_path_factory.mktemp("clef"), languages=LANGUAGES)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory, cache):
    return write(tmp_path_factory.mktemp("damaged"), hostile=True)


def dataset(written, query, document=None, **options):
    return CLEF(query, document, home=written.root, **options)


def words(text):
    return " ".join(text.split())


# --------------------------------------------------------------------------------------------------------------- homes


def test_a_home_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path / "pyterrier"))
    with pytest.raises(FileNotFoundError, match="the folder of the CLEF collection is not known: run 'pyterrier-mart"):
        paths.home("clef", "CLEF_HOME")
    name = "über clef" if os.name == "nt" else os.fsdecode(b"cl\xe9f")
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert paths.remember("clef", name) == tmp_path / name
    assert paths.remember("ciral", tmp_path) == tmp_path
    assert paths.home("clef", "CLEF_HOME") == tmp_path / name and paths.home("ciral", "CIRAL_HOME") == tmp_path
    shutil.rmtree(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="folder of the CLEF collection is .*, where there is no folder: run"):
        paths.home("clef", "CLEF_HOME")
    with pytest.raises(NotADirectoryError, match="missing is not a folder"):
        paths.remember("clef", tmp_path / "missing")


def test_the_variable_counts_more(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path / "pyterrier"))
    paths.remember("clef", tmp_path)
    other = tmp_path / "other"
    monkeypatch.setenv("CLEF_HOME", str(other))
    with pytest.raises(FileNotFoundError, match="CLEF_HOME is .*other, where there is no folder"):
        paths.home("clef", "CLEF_HOME")
    other.mkdir()
    assert paths.home("clef", "CLEF_HOME") == other
    monkeypatch.setenv("CLEF_HOME", " ")
    assert paths.home("clef", "CLEF_HOME") == tmp_path


@pytest.mark.parametrize("content", ["", "[]", '{"clef": 1}'])
def test_a_damaged_file_of_homes(tmp_path, monkeypatch, content):
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path))
    (tmp_path / "pyterrier_mart").mkdir()
    (tmp_path / "pyterrier_mart/homes.json").write_text(content)
    with pytest.raises(ValueError, match=r"homes\.json is damaged"):
        paths.home("clef", "CLEF_HOME")


# ----------------------------------------------------------------------------------------------------------- catalogue


def test_files_are_known_by_their_content(clef):
    found = scan(clef.root)
    assert {key: found.count(key) for key in COLLECTIONS if found.count(key)} == {
        key: len(documents) for key, documents in clef.documents.items()
    }
    assert set(found.topics) == set(clef.topics)
    for language, topics in clef.topics.items():
        for number, (title, description, narrative) in topics.items():
            topic = found.topics[language][number]
            expected = words(narrative) if language not in ("so", "sw") else ""
            assert topic == (number, language, words(title), words(description), expected)
    for language, judgments in clef.qrels.items():
        of_language = [key for key in COLLECTIONS if COLLECTIONS[key].language == language]
        labels = Counter(
            (number, docno, label)
            for key in of_language
            for number, judged in found.labels(key).items()
            for docno, label in judged.items()
        )
        assert labels == Counter(judgments)
    assert not found.problems and found.ignored == 0 and found.count("") == 0


def test_names_do_not_matter(clef, tmp_path):
    """The same files without any folders and endings, and all of that in a zip file, make the same datasets."""
    flat = tmp_path / "flat"
    flat.mkdir()
    for i, path in enumerate(sorted(path for path in clef.root.rglob("*") if path.is_file())):
        ending = path.suffix if "topics." in path.name else ""  # only these say their language by their names
        shutil.copy(path, flat / (path.name if ending else f"{i:08}"))
    shutil.make_archive(str(tmp_path / "packed/clef"), "zip", flat)
    expected = dataset(clef, "de", "en")
    for home in (flat, tmp_path / "packed"):
        data = CLEF("de", "en", home=home)
        pd.testing.assert_frame_equal(data.get_topics(), expected.get_topics())
        assert set(map(tuple, data.get_qrels().values)) == set(map(tuple, expected.get_qrels().values))
        assert dict(data.documents().items()) == dict(expected.documents().items())


def test_a_scan_is_kept_also_if_it_is_interrupted(clef, tmp_path, monkeypatch):
    root = shutil.copytree(clef.root, tmp_path / "clef")
    looked = []
    look = catalogue.look_at

    def interrupted(home, name, *rest):
        if len(looked) == 5:
            raise KeyboardInterrupt
        looked.append(name)
        return look(home, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "look_at", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scan(root)
    again = []
    monkeypatch.setattr(catalogue, "look_at", lambda home, name, *rest: again.append(name) or look(home, name, *rest))
    first = scan(root)
    assert not set(looked) & set(again) and len(looked) == 5
    assert {key: first.count(key) for key in clef.documents} == {key: len(x) for key, x in clef.documents.items()}
    again.clear()
    assert scan(root) == first and again == []
    (root / "queries/topics.so.tsv").write_text("41\tcunto carruur\n")
    changed = scan(root)
    assert again == ["queries/topics.so.tsv"]
    assert list(changed.topics["so"]) == ["41"] and changed.topics["de"] == first.topics["de"]
    (root / "queries/topics.so.tsv").unlink()
    again.clear()
    assert "so" not in scan(root).topics and again == []
    for damage in (b"damaged", gzip.compress(json.dumps(["something else"]).encode())):
        again.clear()
        for path in paths.stores("clef").rglob("*.json.gz"):
            path.write_bytes(damage)
        assert scan(root).topics["de"] == first.topics["de"] and len(again) > 10


def test_damage_is_reported_and_the_rest_is_read(damaged):
    found = scan(damaged.root)
    messages = found.problems.messages
    assert any(message.startswith("RelAssess/damaged.txt, line 2: expected") for message in messages)
    assert any(message.startswith("Topics/damaged.txt, line 5: a topic without a number") for message in messages)
    assert any(message.startswith("Topics/nameless.xml: the language of the topics is unknown") for message in messages)
    assert any(message.startswith("DocumentData/truncated.gz: ") and "truncated" in message for message in messages)
    assert not any(str(damaged.root) in message for message in messages)
    assert found.ignored == 3 and found.repeated == 1
    said = f"{len(found.problems)} problems in the files, which 'pyterrier-mart clef info' lists"
    assert len(found.problems) > 5 and said in dataset(damaged, "en").check()
    data = dataset(damaged, "de", "en")
    assert data.get_topics()["qid"].tolist() == list(damaged.numbers)
    documents = data.documents()
    for docno, (title, text) in damaged.documents["lat94"].items():
        assert words(documents[docno]["text"]) == words(f"{title} {text}")
    assert any("LA010194-0000" in message for message in documents.problems.messages)
    assert any("broken.sgml" in message for message in documents.problems.messages)


def test_what_is_before_damage_is_read(tmp_path):
    document = "<DOC>\n<DOCNO> LA010194-{:04d} </DOCNO>\n<TEXT>\n{}\n</TEXT>\n</DOC>\n"
    texts = [random.Random(i).randbytes(500).hex() for i in range(3000)]
    content = gzip.compress("".join(document.format(i, text) for i, text in enumerate(texts)).encode(), 1)
    (tmp_path / "la.gz").write_bytes(content[: len(content) * 2 // 3])
    lines = gzip.compress("".join(f"41 0 LA010194-{i:04d} 1\n" for i in range(5000)).encode())
    (tmp_path / "qrels.gz").write_bytes(lines[:-100])
    (tmp_path / "topics.en.tsv").write_text("41\ttitle\n")
    found = scan(tmp_path)
    assert found.problems.counts == {"damaged archives": 2}
    assert 1900 < found.count("lat94") < 2001 and 3000 < len(found.labels("lat94")["41"]) < 5000
    documents = CLEF("en", home=tmp_path).documents()
    assert abs(len(documents) - found.count("lat94")) <= 1
    assert all(documents[f"LA010194-{i:04d}"]["text"].strip() == texts[i] for i in range(1900))


def article(docno, text="text"):
    return f"<DOC>\n<DOCNO> {docno} </DOCNO>\n<TEXT>\n{text}\n</TEXT>\n</DOC>\n"


def test_members_of_any_spelling_are_read(tmp_path):
    names = ("/1.sgml", "//x//2.sgml", "./3.sgml", "in.zip")
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("/q.sgml.gz", gzip.compress(article("LA010494-0001").encode()))
    contents = [article(f"LA010{i}94-0001").encode() for i in (1, 2, 3)] + [inner.getvalue()]
    with zipfile.ZipFile(tmp_path / "la.zip", "w") as archive:
        for name, content in zip(names, contents, strict=True):
            archive.writestr(name, content)
    assert sorted(CLEF("en", home=tmp_path).documents()) == [f"LA010{i}94-0001" for i in (1, 2, 3, 4)]
    assert scan(tmp_path).count("lat94") == 4


def test_a_file_that_changes_or_goes(tmp_path):
    path = tmp_path / "la.zip"
    for members in ((1,), (1, 2), (3,)):
        with zipfile.ZipFile(path, "w") as archive:
            for i in members:
                archive.writestr(f"{i}.sgml", article(f"LA010{i}94-0001"))
        assert list(CLEF("en", home=tmp_path).documents()) == [f"LA010{i}94-0001" for i in members]
    data = CLEF("en", home=tmp_path)
    data.catalogue()
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"la\.zip has changed since the folder was looked through; make"):
        data.documents()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"la\.zip"):
        data.documents()


def test_a_store_of_other_members_is_rebuilt(tmp_path, monkeypatch):
    """As when a newer version finds more in the same files."""
    with zipfile.ZipFile(tmp_path / "la.zip", "w") as archive:
        for i in (1, 2):
            archive.writestr(f"{i}.sgml", article(f"LA010{i}94-0001"))
    found = scan(tmp_path)
    less = replace(found, documents={"lat94": {"la.zip": {"la.zip/1.sgml": 1}}})
    assert len(clef_stores.build(less, "lat94")) == 1 and len(clef_stores.build(found, "lat94")) == 2


def test_files_of_unusual_form_are_known(tmp_path):
    topic = "<top><num>C041</num><{0}-title>Pesticidas {1}</{0}-title></top>\n"
    contents = {
        "a.sgml": article("LA010194-0001", "é").encode("utf-16"),
        "b.xml": ('<?xml version="1.0" encoding="UTF-16"?>\n<C>' + article("LA010294-0001", "é")).encode("utf-16-be"),
        "c.sgml": b"<!-- " + b"long " * 20_000 + b"-->\n" + article("LA010394-0001", "é").encode(),
        "d.sgml": article("<P>LA010494-0001</P>", "é").encode(),
        "topics_en": topic.format("EN", "é").encode("utf-16"),
        "topics.es.tsv": "41\tniños\n".encode("utf-16"),
        "q1": "41 0 LA010194-0001 1\n".encode("utf-16"),
        "q2": b"# by NIST\n\n41 0 LA010294-0001 1\n",
        "q3": b"topic iter docno rel\n41 0 LA010394-0001 1.0\n",
        "q4": b"41 0 LA010494-0001 0\r42 0 LA010494-0001 1\r",
        "note.txt": b"This is no part of it.\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = scan(tmp_path)
    assert not found.problems and list(found.ignored_names) == ["note.txt"]
    assert scan(tmp_path) == found
    assert {code: topics["41"].title for code, topics in found.topics.items()} == {
        "en": "Pesticidas é", "es": "niños"
    }  # fmt: skip
    labels = {"LA010194-0001": 1, "LA010294-0001": 1, "LA010394-0001": 1, "LA010494-0001": 0}
    assert found.labels("lat94") == {"41": labels, "42": {"LA010494-0001": 1}}
    documents = CLEF("en", home=tmp_path).documents()
    assert {docno: fields["text"].strip() for docno, fields in documents.items()} == dict.fromkeys(labels, "é")
    assert not documents.problems


def test_docnos_at_the_edge_of_a_part(tmp_path, monkeypatch):
    monkeypatch.setattr(encodings, "_CHUNK", 600)
    monkeypatch.setattr(catalogue, "_HEAD", 600)
    content = "".join(
        f"<DOC>\n<docno id='1'>\n LA0101{94 if i % 2 else 93}-{i:04d} </docno><TEXT>{'x' * (i % 97)}</TEXT></DOC>\n"
        for i in range(500)
    )
    (tmp_path / "a").write_text(content)
    (tmp_path / "b").write_text(content.replace("docno", "DOCID"))
    found = scan(tmp_path)
    assert found.count("lat94") == 500 and found.count("") == 500
    assert found.documents["lat94"] == {"a": {"a": 250}, "b": {"b": 250}}


def test_what_cannot_be_read_is_said(tmp_path, monkeypatch):
    for name in ("a/topics.en.tsv", "b/topics.de.tsv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("41\ttitle\n")
    with refused(monkeypatch, tmp_path / "b"):
        found = scan(tmp_path)
        assert list(found.topics) == ["en"] and found.problems.messages == ["b: Permission denied"]
    assert list(scan(tmp_path).topics) == ["de", "en"] and not scan(tmp_path).problems
    with (
        refused(monkeypatch, tmp_path),
        pytest.raises(ValueError, match=r"holds no CLEF data.*; \.: Permission denied"),
    ):
        scan(tmp_path)


def test_judgments_without_ends_of_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("pyterrier_mart.datasets.clef.qrels._ENDLESS", 1 << 20)
    (tmp_path / "qrels.gz").write_bytes(gzip.compress(b"41 0 LA010194-0001 1\n42 0 " + bytes(5 << 20)))
    found = scan(tmp_path)
    assert list(found.labels("lat94")) == ["41"]
    assert found.problems.messages == ["qrels.gz: a line has no end in 1 MB; what is before it is kept"]


def test_encrypted_and_unknown_members(tmp_path):
    content = bytearray(make_zip({"secret.sgml": article("LA010194-0001"), "open.sgml": article("LA010194-0002")}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "la.zip").write_bytes(content)
    (tmp_path / "old.7z").write_bytes(b"7z\xbc\xaf'\x1c\0\4")
    found = scan(tmp_path)
    assert found.count("lat94") == 1 and found.problems.messages == [
        "la.zip/secret.sgml: encrypted; unpack it with its password first",
        "old.7z: made by 7-Zip, which Python cannot read; unpack it first",
    ]


def test_a_folder_of_something_else(tmp_path):
    with pytest.raises(ValueError, match=r"holds no CLEF data: 0 files .*A CLEF folder has documents"):
        scan(tmp_path)
    for i in range(7):
        (tmp_path / f"holiday{i}.txt").write_text("The sea was <b>blue</b>.\n")
    with pytest.raises(ValueError, match=r"7 files were looked at \(holiday0\.txt, .*holiday4\.txt, \.\.\.\)"):
        scan(tmp_path)
    with pytest.raises(NotADirectoryError, match="holiday0.txt is not a folder"):
        scan(tmp_path / "holiday0.txt")
    with pytest.raises(ValueError, match="holds no CLEF data"):
        CLEF("de", "en", home=tmp_path).get_topics()


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_two_topics_the_one_with_more_fields_is_kept(tmp_path, order):
    short, long = order
    (tmp_path / f"{short}.de.tsv").write_text("41-AH\tBabykost\n42\tHaiti\n")
    (tmp_path / f"{long}.de.txt").write_text(
        "<top><num>C041</num><DE-title>Babynahrung</DE-title><DE-desc>Gift</DE-desc></top>\n"
        "<top><num>C042</num><DE-title>Haiti</DE-title><DE-desc>Invasion</DE-desc></top>"
    )
    found = scan(tmp_path)
    assert [topic[2:4] for topic in found.topics["de"].values()] == [("Babynahrung", "Gift"), ("Haiti", "Invasion")]
    assert len(found.problems) == 1 and f"that of {long}.de.txt counts" in found.problems.messages[0]


def test_the_higher_of_two_labels_counts(tmp_path):
    docnos = {"A": "LA010194-0001", "B": "LA010194-0002"}
    for file, lines in (("a", "41 A 1,41 B 0"), ("b", "41 A 1,41 B 1"), ("c", "41 A 0,42 A 0")):
        rows = (line.split() for line in lines.split(","))
        (tmp_path / file).write_text("".join(f"{qid} 0 {docnos[name]} {label}\n" for qid, name, label in rows))
    found = scan(tmp_path)
    assert found.labels("lat94") == {"41": {docnos["A"]: 1, docnos["B"]: 1}, "42": {docnos["A"]: 0}}
    assert found.repeated == 1 and found.problems.messages == [
        "b, topic 41: LA010194-0002 has label 1, but 0 in a: the higher one counts",
        "c, topic 41: LA010194-0001 has label 0, but 1 in a: the higher one counts",
    ]


# ------------------------------------------------------------------------------------------------------------- dataset


@pytest.mark.parametrize("pair", PAPER_PAIRS, ids="-".join)
def test_pairs_of_the_paper(clef, pair):
    data = dataset(clef, *pair)
    query, document = pair
    topics, qrels = data.get_topics(), data.get_qrels()
    assert topics.columns.tolist() == ["qid", "query"] and topics["qid"].tolist() == list(clef.numbers)
    expected = [words(f"{title} {description}") for title, description, _ in map(clef.topics[query].get, clef.numbers)]
    assert topics["query"].tolist() == expected
    assert qrels.columns.tolist() == ["qid", "docno", "label"] and qrels["label"].dtype == "int64"
    assert Counter(map(tuple, qrels.values)) == Counter(
        judgment for judgment in clef.qrels[document] if judgment[0] in clef.numbers
    )
    assert list(data.human_translation()(topics)["query"]) == list(data.get_topics(document)["query"])
    assert data.languages == pair and data.groups() is None
    assert data.name == f"clef/{query}-{document}" and data.corpus_name == f"mart:clef/{document}"


def test_topics_that_pairs_do_not_have(clef):
    everything = dataset(clef, "de", "en").get_topics("all")["qid"].tolist()
    assert everything == [*clef.numbers, NO_RELEVANT, ONLY_HERALD]
    qrels = dataset(clef, "de", "en").get_qrels("all")
    assert {NO_RELEVANT} == set(qrels["qid"]) - set(clef.numbers)
    herald = dataset(clef, "de", "en", collections=["gh95"])
    assert herald.get_topics()["qid"].tolist() == [ONLY_HERALD]
    assert herald.get_qrels().values.tolist() == [[ONLY_HERALD, "GH950102-000000", 1]]
    # Only the pairs that share their topics need them in Italian.
    assert dataset(clef, "en").get_topics()["qid"].tolist() == [*clef.numbers, NOT_ITALIAN]


def test_variants_of_topics(clef):
    data = dataset(clef, "de", "en")
    title, description, narrative = map(words, clef.topics["de"]["41"])
    english = words(clef.topics["en"]["41"][0])

    def first(variant):
        return data.get_topics(variant)["query"][0]

    assert first(None) == f"{title} {description}" and first("title") == title and first("narrative") == narrative
    assert first("title+description+narrative") == f"{title} {description} {narrative}"
    assert first("narrative+title") == f"{narrative} {title}"
    assert first("en/title") == first("title/eng") == english and first("all/en/title") == english
    assert dataset(clef, "de", "en", topic_fields=["title"]).get_topics("en")["query"][0] == english
    assert len(data.get_topics("so")) == len(clef.numbers)
    topics, qrels = data.get_topicsqrels("en/title")
    assert set(topics["qid"]) == set(qrels["qid"])
    for wrong in ("", "body", "title+", "en/body", "xx"):
        with pytest.raises(ValueError, match="has no variant .*expected the code of a language, fields such as"):
            data.get_topics(wrong)
        with pytest.raises(ValueError, match="has no variant"):
            data.get_qrels(wrong)
    with pytest.raises(FileNotFoundError, match=r"no topics in Russian in .*but in de, en.*topics\.ru\.tsv"):
        data.get_topics("ru")


def test_human_translation(clef):
    data = dataset(clef, "de", "en", topic_fields=["title"])
    topics = data.get_topics("all")
    assert data.human_translation()(topics)["query"].tolist() == data.get_topics("all/en")["query"].tolist()
    assert repr(data.human_translation()) != repr(dataset(clef, "de", "en").human_translation())
    with pytest.raises(ValueError, match=r"'C041' is not the qid of a topic of .*clef/de-en'\) in 'all/en/title'"):
        data.human_translation()(pd.DataFrame({"qid": ["C041"], "query": ["?"]}))


@pytest.mark.parametrize("language", LANGUAGES)
def test_documents(clef, language):
    data = dataset(clef, "en", language)
    documents = data.documents()
    expected = {docno: pair for key in collections_of(language) for docno, pair in clef.documents[key].items()}
    assert list(documents) == list(expected) and len(documents) == len(expected) == 40
    for docno, fields in documents.items():
        title, text = expected[docno]
        assert words(fields["text"]) == words(f"{title} {text}") and words(fields["title"]) == words(title)
    rows = list(data.get_corpus_iter(verbose=False))
    assert [row["docno"] for row in rows] == list(expected) and set(rows[0]) == {"docno", "text", "title"}
    assert data.document_fields == documents.fields == ("text", "title") and not documents.problems


def test_texts_are_loaded_in_batches(clef, monkeypatch, capsys):
    data = dataset(clef, "de", "en")
    batches = []
    look_up = type(data.documents()).get_many
    monkeypatch.setattr(
        type(data.documents()), "get_many", lambda self, docnos: batches.append(list(docnos)) or look_up(self, docnos)
    )
    monkeypatch.setattr("pyterrier_mart.text_loader._BATCH", 2)
    docnos = ["LA010194-0003", "LA010194-0001", "LA010194-0003", "LA010194-0002"]
    rows = pd.DataFrame({"qid": ["1"] * 4, "docno": docnos, "text": "old"}, index=[7, 7, 8, 9])
    out = data.text_loader("text", verbose=True)(rows)
    texts = [" ".join(clef.documents["lat94"][docno]) for docno in docnos]
    assert out["text"].map(words).tolist() == list(map(words, texts))
    assert batches == [docnos[:2], docnos[3:]] and list(out.index) == [7, 7, 8, 9]
    assert "Text Loader" in capsys.readouterr().err
    for docno in ("GH950102-000000", "", None, 5):
        with pytest.raises(ValueError, match="has no document"):
            data.text_loader()(rows.assign(docno=["LA010194-0003", docno, docno, docno]))


def test_two_folders_do_not_share_a_store(clef, tmp_path):
    shutil.copytree(clef.root, tmp_path / "clef")
    data = CLEF("de", "en", home=tmp_path / "clef")
    assert data.documents().paths == CLEF("so", "en", home=tmp_path / "clef").documents().paths
    assert dataset(clef, "de", "en").documents().paths != data.documents().paths
    copy = pickle.loads(pickle.dumps(data))
    assert copy == data and len(copy.documents()) == 40 and len(copy.get_topics()) == len(clef.numbers)


def test_a_file_with_several_collections(tmp_path):
    numbers = ["SDA.940106.0001", "SDA.950106.0001", "UNKNOWN-1", "SDA.940106.0002"]
    documents = (f"<DOC><DOCNO>{number}</DOCNO><TEXT>{number} text</TEXT></DOC>\n" for number in numbers)
    (tmp_path / "agency").write_text("".join(documents))
    data = CLEF("de", home=tmp_path, collections=["sda94", "sda95"])
    assert list(data.documents()) == [numbers[0], numbers[3], numbers[1]]
    assert data.catalogue().count("") == 1 and scan(tmp_path).count("sda94") == 2


def test_stores_in_the_folder_itself(clef, tmp_path, monkeypatch):
    root = shutil.copytree(clef.root, tmp_path / "clef")
    monkeypatch.setenv("PYTERRIER_MART_CACHE", str(root / "cache"))
    files = scan(root).files
    assert len(CLEF("de", "en", home=root).documents()) == 40 and scan(root).files == files
    (root / "queries/topics.so.tsv").unlink()
    assert scan(root).files == files - 1


def test_documents_that_are_missing(clef, tmp_path):
    shutil.copytree(clef.root / "Topics", tmp_path / "Topics")
    shutil.copytree(clef.root / "RelAssess", tmp_path / "RelAssess")
    data = CLEF("en", "de", home=tmp_path)
    assert len(data.get_topics()) == len(clef.numbers) and len(data.get_qrels()) > len(clef.numbers)
    with pytest.raises(FileNotFoundError, match=r"of Frankfurter.*\(fr94\), .*German texts are licensed by ELRA"):
        data.documents()
    assert "no documents of Der Spiegel 94/95 (spiegel); CLEF has 13,979" in data.check()
    shutil.rmtree(tmp_path / "RelAssess")
    with pytest.raises(FileNotFoundError, match="there are no judgments of Frankfurter"):
        CLEF("en", "de", home=tmp_path).get_topics()
    assert len(CLEF("en", "de", home=tmp_path).get_topics("all")) == len(clef.topics["de"])


def test_check(clef):
    data = dataset(clef, "de", "en")
    data.documents()
    assert data.check() == [
        "40 documents of Los Angeles Times 94 (lat94), 112,965 fewer than CLEF has",
        "de-en has 12 topics, but 246 in the paper",
        "1 topic (200) with relevant documents, not in it",
        "1 topic (199) without judgments in these collections",
        "1 topic (198) judged, without a relevant document in these collections",
    ]


def test_judged_documents_that_the_files_lack(clef, tmp_path):
    root = shutil.copytree(clef.root, tmp_path / "clef")
    (root / "more.qrels").write_text("41 0 LA010194-7777 1\n41 0 UNKNOWN-1 1\n")
    data = CLEF("de", "en", home=root)
    data.documents()
    assert "1 judged documents of Los Angeles Times 94 (lat94) are not in the files: LA010194-7777" in data.check()
    assert "UNKNOWN-1" not in set(data.get_qrels()["docno"])


def test_what_fits_no_collection_is_counted_by_shape_and_file(tmp_path):
    (tmp_path / "documents").write_text(article("LA010194-0001") + "".join(article(f"X-{n}-{n}") for n in range(8, 12)))
    (tmp_path / "qrels.a").write_text("41 0 LA010194-0001 1\n41 0 X-1-2 1\n41 0 Y3 1\n42 0 Y12 0\n43 0 Y13 0\n")
    (tmp_path / "qrels.b").write_text(
        "41 0 LA010194-0001 1\n" + "".join(f"44 0 {c * 9} 0\n" for c in "abcdefghij" * 20)
    )
    (tmp_path / "topics.en.tsv").write_text("41\ttitle\tdescription\n")
    for _ in range(2):  # the second time from what was kept
        assert {
            "4 documents of no known collection: documents: 4 X-9-9 (such as X-8-8)",
            "204 judgments of documents of no known collection: qrels.a: 3 Y9 (such as Y3), 1 X-9-9 (such as X-1-2); "
            "qrels.b: 20 aaaaaaaaa (such as aaaaaaaaa), 20 bbbbbbbbb (such as bbbbbbbbb), 20 ccccccccc (such as "
            "ccccccccc), ...",
        } <= set(CLEF("en", home=tmp_path).check())
    many = {}
    for n in range(5000):
        catalogue.count_shape(many, "x" * n)
    assert len(many) == 101 and many["other shapes"] == (4900, "x" * 100)


def test_bulgarian_and_persian(tmp_path):
    """The newspapers of the later campaigns, with the docnos that their judgments have."""
    (tmp_path / "bg.txt").write_text(
        "401 0 NST2002-01-04-052 1\n402 0 NOVINAR20020102-006 1\n403 0 SEGA2002-01-03-080 1\n"
    )
    (tmp_path / "fa.txt").write_text("551-AH 0 HAM2-750402-001 1\n")
    (tmp_path / "topics.bg.tsv").write_text("401\tедно\n402\tдве\n403\tтри\n")
    (tmp_path / "topics.fa.tsv").write_text("551\tتنیس\n")
    assert CLEF("bg", home=tmp_path).get_topics()["qid"].tolist() == ["401", "402", "403"]
    persian = MartDatasetProvider().get_dataset("clef/fa")
    assert persian.collections == ("hamshahri",)
    assert CLEF("fa", home=tmp_path).get_qrels().values.tolist() == [["551", "HAM2-750402-001", 1]]
    assert not any("no known collection" in sentence for sentence in CLEF("fa", home=tmp_path).check())
    with pytest.raises(FileNotFoundError, match="Persian texts are licensed by the University of Tehran: Hamshahri"):
        CLEF("fa", home=tmp_path).documents()


def test_judgments_of_three_columns_and_of_none(tmp_path):
    (tmp_path / "qrels.en.tsv").write_text("41\tLA010194-0001\t1\n42\tLA010194-0001\t0\n")
    (tmp_path / "list.en.tsv").write_text("41\tLA010194-0001\n42\tLA010194-0002\n")
    (tmp_path / "qrels.csv").write_text("topic,iter,docno,rel\n41,0,LA010194-0001,1\n")
    (tmp_path / "run.txt").write_text("41 Q0 LA010194-0001 1 0.5 run\n")
    (tmp_path / "topics.en.tsv").write_text("41\tPesticides\n42\tHaiti\n")
    found = scan(tmp_path)
    assert found.labels("lat94") == {"41": {"LA010194-0001": 1}, "42": {"LA010194-0001": 0}}
    assert [topic.title for topic in found.topics["en"].values()] == ["Pesticides", "Haiti"]
    assert found.ignored == 3 and found.problems.messages == [
        "list.en.tsv: expected 'topic 0 docno label' on each line, found '41\\tLA010194-0001'",
        "qrels.csv: expected 'topic 0 docno label' on each line, found '41,0,LA010194-0001,1'",
    ]


def test_topics_of_another_campaign(tmp_path):
    def write(name, numbers, title):
        (tmp_path / name).write_text("".join(f"{n}\t{title} {n}\n" for n in numbers))

    (tmp_path / "qrels").write_text("41 0 LA010194-0001 1\n176 0 LA010194-0001 1\n")
    write("clef.en.tsv", range(141, 201), "CLEF")
    write("fire.en.tsv", range(176, 226), "FIRE")
    write("own.en.tsv", range(851, 861), "own")
    write("trec.en.tsv", range(145, 155), "TREC")
    found = scan(tmp_path)
    assert {topic.title.split()[0] for topic in found.topics["en"].values()} == {"CLEF", "own"}
    messages = dict(message.split(": ", 1) for message in found.problems.messages)
    assert list(messages) == ["fire.en.tsv", "own.en.tsv", "trec.en.tsv"] and len(found.problems) == 3
    assert messages["fire.en.tsv"].startswith(
        "topics 176 to 225 begin within those of CLEF 2003 and end within those of"
    )
    assert messages["own.en.tsv"] == "10 topics (851-860)"
    assert messages["trec.en.tsv"].startswith("10 of 10 en titles are others than in clef.en.tsv")


def test_judgments_of_another_year(tmp_path):
    (tmp_path / "topics.en.tsv").write_text("".join(f"{n}\ttitle\tdescription\n" for n in range(41, 91)))
    (tmp_path / "qrels").write_text("".join(f"{n} 0 LA010194-0001 1\n" for n in range(141, 201)))
    data = CLEF("en", home=tmp_path)
    for get in (data.get_topics, data.get_qrels):
        with pytest.raises(FileNotFoundError, match=r"no topic of mart:clef/en has a relevant document: there are 50 "
                           r"topics \(41-90\) in .*, but judgments of 60 topics \(141-200\)"):  # fmt: skip
            get()
    assert len(data.get_topics("all")) == 50
    assert "none of 50 topics (41-90) is judged in these collections, but 60 topics (141-200)" in data.check()


def test_a_pair_without_a_language_of_the_others(clef, tmp_path):
    root = shutil.copytree(clef.root, tmp_path / "clef")
    (root / "Topics/direct/topics.it.xml").unlink()
    data = CLEF("de", "en", home=root)
    assert data.get_topics()["qid"].tolist() == [*clef.numbers, NOT_ITALIAN]
    assert "no topics in Italian" in data.check()


@published
def test_published_topics_and_judgments():
    data = CLEF("en", "fr", home=DATA / "clef06fr")
    topics, qrels = data.get_topics("all"), data.get_qrels("all")
    assert len(topics) == 49 and len(qrels) == 17882 and qrels["label"].sum() == 2148
    assert topics.iloc[0].tolist() == ["301", "Nestlé Brands"]
    judged = data.get_qrels()
    assert len(data.get_topics()) == judged.query("label > 0")["qid"].nunique()
    french = CLEF("fr", home=DATA / "clef06fr").get_topics("all")
    assert data.human_translation()(topics)["query"].tolist() == french["query"].tolist()
    assert set(data.catalogue().judged) == {"lemonde94", "lemonde95", "atsfr94", "atsfr95"}
    with pytest.raises(FileNotFoundError, match=r"Le Monde 94 \(lemonde94\).*licensed by ELRA"):
        data.documents()


# ------------------------------------------------------------------------------------------------------- names, options


@pytest.mark.parametrize(
    ("name", "canonical", "collections"),
    [
        ("clef/de-en", "clef/de-en", ("lat94",)),
        ("clef/deu-eng/lat94", "clef/de-en", ("lat94",)),
        ("clef/de-en/gh95+lat94", "clef/de-en/lat94+gh95", ("lat94", "gh95")),
        ("clef/fi-fi", "clef/fi", ("aamu",)),
        ("clef/sw-fr", "clef/sw-fr", ("lemonde94", "lemonde95", "atsfr94", "atsfr95")),
    ],
)
def test_names(name, canonical, collections):
    data = MartDatasetProvider().get_dataset(name)
    assert data.name == canonical and data.collections == collections
    assert data == CLEF.from_name(canonical) and "elra" in data.info_url() and "@article" in data.citation


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("clef/de-xx", "unknown language code 'xx'"),
        ("clef/de-tr", r"language must be one of bg, de.*, not 'tr'. Did you mean clef/de-"),
        ("clef/de-en/fr94", r"collections must be some of lat94, gh95 \(English\), not fr94"),
        ("clef", "CLEF datasets are called"),
    ],
)
def test_names_of_nothing(name, message):
    with pytest.raises(KeyError, match=message):
        MartDatasetProvider().get_dataset(name)


def test_options():
    with pytest.raises(ValueError, match="topic_fields must be one of title, description, narrative"):
        CLEF("de", "en", topic_fields=["body"])
    with pytest.raises(ValueError, match="collections must be some of lat94, gh95"):
        CLEF("de", "en", collections=[])
    assert CLEF("de", "en", topic_fields="title").topic_fields == ("title",)
    assert CLEF("en", collections="lat94").collections == ("lat94",)


def test_fields_that_topics_lack(tmp_path):
    (tmp_path / "topics.en.tsv").write_text("41\tOnly a title\n")
    (tmp_path / "qrels.txt").write_text("41 0 LA010194-0001 1\n")
    data = CLEF("en", home=tmp_path)
    assert data.get_topics()["query"].tolist() == ["Only a title"]
    assert "1 topic (41) without a description in en" in data.check()
    for variant, named in (("description", "description"), ("description+narrative", "description and no narrative")):
        with pytest.raises(ValueError, match=f"the topics in English in .* have no {named}"):
            data.get_topics(variant)
