"""Tables from resources as they are published, mixed, measured and compared, on the command line."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_command
from packing import tarred, zipped

from pyterrier_mart import TranslationTable
from pyterrier_mart.cli.console import errors, out

DATA = Path(__file__).parents[2] / "shared" / "data"
NUMBERS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "funf": "five", "sechs": "six"}
WORDS = sorted(NUMBERS)
SENTENCES = [(WORDS[i % 6], WORDS[(i * i + 1) % 6], WORDS[(i // 6) % 6]) for i in range(120)]
GERMAN = "<CHAPTER ID=1>\n" + "".join(" ".join(words) + "\n" for words in SENTENCES)
ENGLISH = "<CHAPTER ID=1>\n" + "".join(" ".join(NUMBERS[w] for w in reversed(words)) + "\n" for words in SENTENCES)
OPUS = {"README": "", "Europarl.de-en.de": GERMAN, "Europarl.de-en.en": ENGLISH, "Europarl.de-en.ids": ""}


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "_width", 120)
    monkeypatch.setattr(errors, "_width", 120)


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs ``table ...`` in this process; returns what it printed, after checking that it ended well."""

    def run(*args):
        code, text, messages = run_command(monkeypatch, capfd, "table", *args)
        assert code == 0, messages
        return " ".join(text.split())

    return run


@pytest.fixture
def fails(monkeypatch, capfd, tmp_path):
    """Runs a command that fails; returns its one sentence, after checking that it wrote nothing."""

    def fails(*args):
        before = sorted(tmp_path.rglob("*"))
        code, _, messages = run_command(monkeypatch, capfd, "table", *args)
        assert code == 1 and sorted(tmp_path.rglob("*")) == before
        return messages.splitlines()[-1]

    return fails


@pytest.fixture
def tables(tmp_path):
    """Tables in the directories a.table, b.table and c.table."""
    entries = {
        "a": {"haus": {"house": 0.75, "home": 0.25}, "maus": {"mouse": 1.0}, "berlin": {"berlin": 1.0}},
        "b": {"haus": {"home": 0.75, "house": 0.25}, "maus": {"mouse": 0.75, "mice": 0.25}, "hund": {"dog": 1.0}},
        "c": {"hund": {"hound": 1.0}, "igel": {"hedgehog": 1.0}},
    }
    licences = {"a": "CC0", "b": "CC BY", "c": "CC0"}
    for name, rows in entries.items():
        made = TranslationTable.from_dict(rows, "de", "en", meta={"licence": licences[name]})
        made.save(tmp_path / f"{name}.table")


def test_verify(run, fails, tables, tmp_path):
    text = run("verify", "a.table", "b.table", "de-en")
    assert text.count("undamaged") == 3 and f"fingerprint {TranslationTable('a.table').fingerprint}" in text
    data = (tmp_path / "b.table" / "probs.npy").read_bytes()
    (tmp_path / "b.table" / "probs.npy").write_bytes(data[:-1] + b"!")
    assert fails("verify", "a.table", "b.table").endswith("b.table: probs.npy is missing, or not as it was saved")


# ------------------------------------------------------------------------------------------------------------- train


@pytest.mark.parametrize(("name", "pack"), [("de-en.txt.zip", zipped), ("de-en.tgz", tarred)])
def test_train_from_an_archive(run, tmp_path, name, pack):
    pack(tmp_path / name, OPUS)
    run("train", name, "-s", "de", "-t", "en", "-o", "out", "--licence", "CC0")
    table = TranslationTable.load("out")
    assert all(next(iter(table.translations(word))) == other for word, other in NUMBERS.items())
    assert "chapter" not in table and table.meta["sentence_pairs"] == 120
    assert table.meta["source"] == name and table.meta["members"] == ["Europarl.de-en.de", "Europarl.de-en.en"]
    assert table.meta["pairs_without_text"] == 1 and table.meta["licence"] == "CC0"


@pytest.mark.parametrize("pack", [lambda name, text: Path(name).write_text(text[name]), zipped])
def test_train_from_columns(run, fails, tmp_path, pack):
    lines = (f"{' '.join(NUMBERS[w] for w in words)}\t{' '.join(words)}\tCC-BY\n" for words in SENTENCES)
    pack(tmp_path / "deu.txt" if pack is zipped else "deu.txt", {"deu.txt": "".join(lines)})
    run("train", "deu.txt", "-s", "de", "-t", "en", "-o", "out", "--columns", "2,1")
    table = TranslationTable.load("out")
    assert all(next(iter(table.translations(word))) == other for word, other in NUMBERS.items())
    for wrong in ("²,1", "٢,1", "0,1", "1"):
        message = f"--columns {wrong!r}: expected 2 whole numbers from 1, with commas between"
        assert message in fails("train", "deu.txt", "-s", "de", "-t", "en", "-o", "other", "--columns", wrong)
    args = ["deu.txt", "deu.txt", "-s", "de", "-t", "en", "-o", "other", "--columns", "1,2"]
    assert "--columns is for one file of pairs" in fails("train", *args)


@pytest.mark.parametrize(
    ("output", "reverse"), [("p/sub", "p"), ("p", "p/sub"), ("p/sub", "x/../p"), ("link/sub", "p")]
)
@pytest.mark.parametrize("exists", [False, True])
def test_train_refuses_outputs_inside_one_another(fails, tmp_path, output, reverse, exists):
    (tmp_path / "link").symlink_to("p")
    if exists:
        TranslationTable.from_dict({"eins": {"one": 1.0}}, "de", "en").save("p")
    (tmp_path / "pairs.tsv").write_text("eins\tone\n")
    args = ["pairs.tsv", "-s", "de", "-t", "en", "-o", output, "--reverse", reverse, "--overwrite"]
    message = f"--output {output} and --reverse {reverse} must be two directories, not one in the other"
    assert message in fails("train", *args)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_of_files_that_are_not_utf8(run, tmp_path):
    pairs = Path(os.fsdecode(b"caf\xe9.tsv"))
    pairs.write_text("".join(f"{' '.join(words)}\t{' '.join(NUMBERS[w] for w in words)}\n" for words in SENTENCES))
    run("train", pairs, "-s", "de", "-t", "en", "-o", "out", "--licence", os.fsdecode(b"\xa9 me"))
    table = TranslationTable.load("out")
    assert table.meta["source"] == r"caf\xe9.tsv" and table.meta["licence"] == r"\xa9 me"
    table.save(os.fsdecode(b"\xe9"))
    run("diff", "out", os.fsdecode(b"\xe9"), "--json", "diff.json")
    assert os.fsencode(json.loads((tmp_path / "diff.json").read_text())["b"]) == b"\xe9"


# ----------------------------------------------------------------------------------------------------------- vectors


def test_vectors(run, fails, tmp_path):
    (tmp_path / "wiki.multi.de.vec").write_text("3 2\nhaus 1 0\nheim 0.9 0.1\nhund 0 1\n")
    (tmp_path / "wiki.multi.en.vec.gz").write_bytes(gzip.compress(b"3 2\nhouse 1 0\nhome 0.8 0.2\ndog 0 1\n"))
    args = ["wiki.multi.de.vec", "wiki.multi.en.vec.gz", "-s", "de", "-t", "en"]
    assert "wrote out (de-en, 7 entries)" in run("vectors", *args, "-o", "out", "--licence", "CC BY-NC")
    table = TranslationTable.load("out")
    assert next(iter(table.translations("haus"))) == "house" and table.meta["licence"] == "CC BY-NC"
    run("vectors", *args, "-o", "out", "--overwrite", "--k", "1", "--csls", "--max-words", "2")
    assert set(TranslationTable.load("out").source_words) == {"haus", "heim"} and table.meta["k"] == 5
    swapped = [args[1], args[0], *args[2:]]
    assert "wiki.multi.en.vec.gz is named for en, but vectors of de were asked for" in fails(
        "vectors", *swapped, "-o", "new"
    )
    assert "out exists; name another path or pass --overwrite" in fails("vectors", *args, "-o", "out")


# --------------------------------------------------------------------------------------------------------------- mix


def test_mix_by_weights(run, tables):
    run("mix", "a.table", "b.table", "c.table", "--weights", "0.5,0.3,0.2", "-o", "out")
    table = TranslationTable.load("out")
    assert table.translations("haus") == pytest.approx({"house": 0.5625, "home": 0.4375})  # c does not know it
    assert table.translations("hund") == pytest.approx({"dog": 0.6, "hound": 0.4})
    assert table.meta["licence"] == "CC0; CC BY" and len(table.meta["interpolated"]) == 3
    run("mix", "a.table", "b.table", "-o", "out", "--overwrite", "--top-k", "1")
    assert TranslationTable.load("out").translations("haus") == pytest.approx({"home": 0.5})


def test_mix_by_filling(run, tables):
    run("mix", "a.table", "b.table", "c.table", "--backfill", "-o", "out")
    table = TranslationTable.load("out")
    assert table.translations("haus") == {"house": 0.75, "home": 0.25}
    assert table.translations("hund") == {"dog": 1.0} and table.translations("igel") == {"hedgehog": 1.0}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a.table"], "expected two tables or more, found only a.table"),
        (["a.table", "nowhere"], "no translation table at 'nowhere'"),
        (["a.table", "b.table", "--weights", "1"], "weights must be 2 positive numbers, one for each table, not [1.0]"),
        (["a.table", "b.table", "--weights", "1,0"], "weights must be 2 positive numbers"),
        (["a.table", "b.table", "--weights", "1;2"], "--weights '1;2': expected numbers, with commas between"),
        (["a.table", "b.table", "--backfill", "--weights", "1,1"], "leave out --weights"),
        (["a.table", "b.table", "-o", "a.table"], "a.table exists; name another path or pass --overwrite"),
    ],
)
def test_mix_errors(fails, tables, args, message):
    assert message in fails("mix", "-o", "out", *args)


# ----------------------------------------------------------------------------------------------------------- compose


def test_compose(run, fails, monkeypatch, capfd):
    assert "wrote out (de-fr, " in run("compose", "de-en", "en-fr", "-o", "out", "--top-k", "2")
    made = TranslationTable("out")
    assert "chien" in made.translations("Hund", top_k=1) and made.meta["licence"] == "CC BY-SA 4.0"
    assert "chien" in run("lookup", "out", "Hund") and "de-en" in run("info", "out")
    assert "cannot compose TranslationTable(de-en, " in fails("compose", "de-en", "de-en", "-o", "other")
    code, text, messages = run_command(monkeypatch, capfd, "table", "lookup", "tr-es", "köpek")
    assert code == 0 and "perro" in text and "tr-es is composed of tr-en and en-es" in messages


# ------------------------------------------------------------------------------------------------------------ report


def test_report(run, tables, tmp_path):
    (tmp_path / "topics.tsv").write_text("qid\tquery\n1\tDas Haus in Berlin\n2\tHund, Haus und Igel\n")
    (tmp_path / "de-en.0-5000.txt").write_text("haus house\nhund dog\n")
    args = ["--topics", "topics.tsv", "--gold", "de-en.0-5000.txt", "--json", "deep/report.json", "--missing", "2"]
    text = run("report", "a.table", "b.table", *args)
    assert "German → English" in text and "a.table" in text and "b.table" in text
    assert "│ source words │ 3 │ 3 │" in text
    # das haus in berlin hund haus und igel: a knows haus (twice) and berlin, b haus and hund
    assert "│ coverage of tokens │ 37.5% │ 37.5% │" in text and "│ coverage of types │ 28.6% │ 28.6% │" in text
    assert "│ P@1 │ 0.500 │ 0.500 │" in text and "│ P@5 │ 0.500 │ 1.000 │" in text
    assert "a.table lacks 5 terms, of which 0 have other forms in it; the most frequent: das (1), hund (1)" in text
    assert "topics.tsv: 8 tokens of 7 types" in text and "de-en.0-5000.txt: 2 source words" in text
    found = json.loads((tmp_path / "deep" / "report.json").read_text(encoding="utf-8"))
    assert list(found["tables"]) == ["a.table", "b.table"] and found["gold"] == "de-en.0-5000.txt"
    assert found["tables"]["b.table"]["coverage"]["missing"] == {"berlin": 1, "das": 1, "igel": 1, "in": 1, "und": 1}
    assert found["tables"]["a.table"]["accuracy"]["p_at_1"] == 0.5
    assert found["tables"]["a.table"]["fingerprint"] == TranslationTable.load("a.table").fingerprint


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a.table", "en-de"], "en-de translates en-de, and a.table de-en; expected tables of one direction"),
        (["a.table", "--topics", "nowhere"], "--topics nowhere: there is no such file or dataset"),
        (["a.table", "--topics", "mart:xquad-r/en-de"], "has queries in en, and the table translates from de"),
        (["a.table", "--topics", "bad.tsv"], "bad.tsv has no topics, and the table translates from de"),
        (["a.table", "--topics", "topics.fr.tsv"], "topics.fr.tsv has topics in fr, and the table translates from de"),
        (["a.table", "--topics", "bad.tsv", "--variant", "title"], "--variant is for datasets"),
        (["a.table", "--gold", "en-de.txt"], "en-de.txt holds en-de, but de-en was asked for"),
        (["a.table", "--json", "a.table"], "cannot write the file a.table: it is a directory"),
        (["a.table", "--json", "bad.tsv/x.json"], "bad.tsv is not a directory"),
    ],
)
def test_report_errors(fails, tables, tmp_path, args, message):
    (tmp_path / "bad.tsv").write_text("a\tb\tc\n")
    (tmp_path / "en-de.txt").write_text("house haus\n")
    (tmp_path / "topics.fr.tsv").write_text("C041\tmaison\tUne maison.\n")
    assert message in fails("report", *args)


TOPICS = "<top lang='{0}'><num>C04{1}</num><{0}-title>{2}</{0}-title><{0}-desc>Text.</{0}-desc></top>\n"
GERMAN_TOPICS = TOPICS.format("de", 1, "Haus in Berlin") + TOPICS.format("de", 2, "Hund &amp; Igel")
FRENCH_TOPICS = TOPICS.format("fr", 1, "Maison")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text(GERMAN_TOPICS),
        lambda path: path.write_bytes(gzip.compress(GERMAN_TOPICS.encode("utf-16"))),
        lambda path: zipped(path, {"topics.fr.xml": FRENCH_TOPICS, "topics.de.xml": GERMAN_TOPICS}),
        lambda path: (path / "x").mkdir(parents=True) or (path / "x" / "de.xml").write_text(GERMAN_TOPICS),
        lambda path: zipped(path, {"topics.de.tsv": "id\ttitle\tdesc\n41\tHaus in Berlin\t\n42\tHund & Igel\tText\n"}),
        lambda path: path.write_bytes(b"41\tHaus in Berlin\r42\tHund Igel\r"),
    ],
)
def test_report_of_topics_as_clef_publishes_them(run, tables, tmp_path, make):
    make(tmp_path / "topics")
    text = run("report", "a.table", "--topics", "topics", "--missing", "3")
    assert "topics: 5 tokens of 5 types" in text and "the most frequent: hund (1), igel (1), in (1)" in text


# -------------------------------------------------------------------------------------------------------------- diff


def test_diff(run, tables, tmp_path):
    text = run("diff", "a.table", "b.table", "--json", "diff.json")
    assert "A: a.table (3 source words, 4 entries); B: b.table (3 source words, 5 entries)" in text
    assert "Source words: 2 in both, 1 only in A, 1 only in B. Of those in both, 2 have other probabilities" in text
    assert "and 1 another best translation; mean distance 0.375." in text
    assert "Only in A: berlin" in text and "Only in B: hund" in text
    assert "Another best translation" in text and "│ haus │ house 0.750 │ home 0.750 │ 0.500 │" in text
    assert "The same best translation" in text and "│ maus │ mouse 1.000 │ mouse 0.750 │ 0.250 │" in text
    found = json.loads((tmp_path / "diff.json").read_text(encoding="utf-8"))
    assert [change["word"] for change in found["largest_changes"]] == ["haus", "maus"]
    assert found["words_only_in_b"] == ["hund"] and (found["a"], found["b"]) == ("a.table", "b.table")


def test_diff_of_the_terms_of_topics(run, tables, tmp_path):
    (tmp_path / "topics.tsv").write_text("1\tHund Haus Hund\n2\tBerlin Katze\n")
    text = run("diff", "a.table", "b.table", "--topics", "topics.tsv", "--top", "1")
    assert "Source words of the 4 terms of topics.tsv: 1 in both, 1 only in A, 1 only in B" in text
    assert "Only in B: hund (2)" in text and "maus" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_nothing_is_cut_off_in_a_narrow_terminal(run, monkeypatch, capfd, tables, width):
    monkeypatch.setattr(out, "_width", width)
    for args in (["report", "a.table", "b.table", "c.table"], ["diff", "a.table", "b.table"]):
        code, text, _ = run_command(monkeypatch, capfd, "table", *args)
        assert code == 0 and "…" not in text and max(map(len, text.splitlines())) <= width


@pytest.mark.skipif(os.name != "posix", reason="bytes of arguments")
@pytest.mark.parametrize(
    ("word", "status", "expected"),
    [("Straße", 0, "strasse (de → en)"), (b"Stra\xdfe", 1, r"error: expected words in UTF-8, found b'Stra\xdfe'")],
)
def test_lookup_where_the_locale_is_ascii_only(word, status, expected):
    code = "import sys; from pyterrier_mart.cli import main; sys.argv[0] = 'pyterrier-mart'; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "table", "lookup", "de-en", word], capture_output=True, encoding="utf-8",
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, check=False,
    )  # fmt: skip
    assert done.returncode == status and expected in done.stdout + done.stderr, done.stdout + done.stderr
