"""The command line, on real files: what it prints, what it writes, and what it says when something is wrong."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import warnings

import models
import pytest
from commands import run_command

from pyterrier_mart import TranslationTable, __version__, cli
from pyterrier_mart.cli.console import errors, out

NUMBERS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "funf": "five", "sechs": "six"}
WORDS = sorted(NUMBERS)
SENTENCES = [(WORDS[i % 6], WORDS[(i * i + 1) % 6], WORDS[(i // 6) % 6]) for i in range(120)]


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Wide enough that no message breaks, whatever terminal the tests run in.
    monkeypatch.setattr(out, "_width", 120)
    monkeypatch.setattr(errors, "_width", 120)


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs a command in this process; returns its exit status, output and messages."""

    def run(*args):
        return run_command(monkeypatch, capfd, *args)

    return run


@pytest.fixture
def fails(run, tmp_path):
    """Runs a command that fails; returns its one sentence, after checking that it changed no file."""

    def fails(*args):
        before = contents(tmp_path)
        code, text, messages = run(*args)
        assert code == 1 and contents(tmp_path) == before
        last = messages.splitlines()[-1]
        assert last.startswith("error: ") and "wrote" not in text
        return last

    return fails


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def command(*args, **options):
    """Starts a command as a process of its own."""
    code = "from pyterrier_mart.cli import main; main()"
    pipe = subprocess.PIPE
    inherited = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a test run in the background ignores it
    try:
        return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], stdout=pipe, stderr=pipe, **options)
    finally:
        signal.signal(signal.SIGINT, inherited)


def german():
    return [" ".join(words) for words in SENTENCES]


def english():
    return [" ".join(NUMBERS[word] for word in reversed(words)) for words in SENTENCES]


@pytest.fixture
def pairs(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in zip(german(), english(), strict=True)))
    return "pairs.tsv"


@pytest.fixture
def small(tmp_path):
    """A table in the directory small.table."""
    entries = {"haus": {"house": 0.75, "home": 0.25}, "hauser": {"houses": 1.0}, "ende": {"end": 0.5, "finish": 0.25}}
    table = TranslationTable.from_dict(entries, "de", "en", meta={"licence": "[bold]CC0[/bold]"})
    return table.save(tmp_path / "small.table")


# -------------------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), ["quickstart", "rerank", "meta", "table"]),
        (("quickstart",), ["--pair", "--engine", "--table", "--stop", "--no-dense", "--no-rerank", "--encoder"]),
        (("table",), ["info", "lookup", "train", "vectors", "convert", "mix", "report", "diff"]),
        (("table", "info"), ["TABLE", "--json"]),
        (("table", "lookup"), ["TABLE", "WORD", "--top-k"]),
        (("table", "train"), ["PAIRS [TARGET]", "--output", "--reverse", "--columns", "--prefixes", "--overwrite"]),
        (("table", "convert"), ["INPUT", "OUTPUT", "--from", "--to", "moses-target-source", "lexicon"]),
    ],
)
def test_help(run, args, expected):
    code, text, _ = run(*args, "--help")
    assert code == 0 and all(word in text for word in expected)


def test_version(run):
    assert run("--version")[:2] == (0, f"pyterrier-mart {__version__}\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("tabel",), "No such command 'tabel'"),
        (("quickstart", "--engine", "lucene"), "'lucene' is not one of 'auto', 'pisa', 'terrier'"),
        (("table", "lookup", "de-en"), "Missing argument"),
        (("table", "lookup", "de-en", "Haus", "--top-k", "0"), "greater than or equal to 1"),
        (("table", "train", "pairs.tsv", "-s", "de", "-t", "en"), "Missing option '--output'"),
        (("table", "info", "de-en", "en-de"), "unexpected extra argument"),
    ],
)
def test_wrong_usage(run, args, message):
    code, text, messages = run(*args)
    assert code == 2 and text == "" and message in messages


# -------------------------------------------------------------------------------------------------------- quickstart


def test_quickstart(run, tmp_path):
    encoder = str(models.bert())
    code, text, messages = run("quickstart", "--no-rerank", "--encoder", encoder, "--json", "deep/numbers.json")
    assert code == 0 and "German questions, English sentences" in messages
    found = json.loads((tmp_path / "deep" / "numbers.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in found["results"]}
    assert list(rows) == [
        "no translation", "SMT (table)", "PSQ-HMM (table)", "dense, zero-shot", "dense, centred", "hybrid",
        "human translation",
    ]  # fmt: skip
    none, smt, psq, zero, centred, hybrid, human = (row["AP@100"] for row in rows.values())
    assert none == pytest.approx(0.297, abs=0.01) and human == pytest.approx(0.810, abs=0.01)
    assert smt >= 0.62 and psq > smt and 0 < zero != centred > 0
    assert zero < hybrid < psq, "the vectors of an encoder that knows nothing add noise to the words"
    for name in ("SMT (table)", "human translation"):
        row = rows[name]
        assert row["AP@100 p-value"] < 0.001 and {"P@10", "R@100", "AP@100 +", "AP@100 -"} <= row.keys()
        assert f"{row['AP@100']:.3f}" in text and f"{row['AP@100'] - none:+.3f}, p<.001" in text
    settings = found["settings"]
    assert settings["dataset"] == "mart:xquad-r/de-en" and settings["topics"] == 1190 and settings["documents"] == 1180
    assert (settings["k1"], settings["b"], settings["stop"], settings["top_k"]) == (0.9, 0.4, False, 10)
    assert settings["engine"] in ("pisa", "terrier") and settings["encoder"] == encoder
    assert settings["table"]["fingerprint"] == TranslationTable.load("de-en").fingerprint
    assert settings["versions"]["pyterrier-mart"] == __version__
    assert {"python", "python-terrier", "numpy", "pandas", "torch"} <= settings["versions"].keys()
    text = " ".join(text.split())
    assert "(a significant difference from no translation)" in text and "the mean of each language subtracted" in text


def test_quickstart_reranks(run, monkeypatch, tmp_path):
    quickstart = sys.modules["pyterrier_mart.cli.quickstart"]  # the package's attribute is the command
    measured = []

    def quick(*args, **options):
        measured.append(options)
        reduced = {"questions": 6, "epochs": 1, "depth": 2, "freeze_layers": 2, "test_questions": 8}
        reduced["encoder"] = str(models.bert())
        return quickstart_reranking(*args, **{**options, **reduced})

    quickstart_reranking = quickstart.measure_reranking
    monkeypatch.setattr(quickstart, "measure_reranking", quick)
    code, text, messages = run("quickstart", "--no-dense", "--json", "numbers.json")
    text = " ".join(text.split())
    assert code == 0 and "epoch 1 of 1" in messages
    assert measured[0]["encoder"] == "e5-small" and "German questions → English sentences, re-ranked" in text
    found = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))["reranking"]
    assert [row["name"] for row in found["results"]] == ["SMT (table)", "MART", "human translation"]
    smt, mart, _ = (row["AP@100"] for row in found["results"])
    assert f"re-ranking takes AP@100 from {smt:.3f} to {mart:.3f}" in text
    settings = found["settings"]
    assert (settings["topics"], settings["training_questions"], settings["depth"]) == (8, 6, 2)
    assert len(settings["loss"]) == 1 and {"torch", "transformers"} <= settings["versions"].keys()


def test_quickstart_keeps_its_table_whole_in_a_narrow_terminal(monkeypatch, capfd):
    row = {"name": "human translation", "AP@100": 0.5, "P@10": 0.25, "R@100": 0.75}
    import pandas as pd

    from pyterrier_mart.cli.quickstart import as_table

    ps = {f"{name} p-value": 0.0123 for name in ("AP@100", "P@10", "R@100")}
    frame = pd.DataFrame([{**row, **dict.fromkeys(ps, float("nan"))}, {**row, **ps}])
    for width in (60, 80):
        monkeypatch.setattr(out, "_width", width)
        out.print(as_table(frame, "German questions"))
        text = capfd.readouterr().out
        assert "…" not in text and text.count("human translation") == 2 and text.count("p=0.012") == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--pair", "de"], "--pair must be two languages of XQuAD-R (ar, "),
        (["--pair", "de-de"], "such as de-en, not 'de-de'; bundled tables: ar-en, de-en"),
        (["--pair", "en-so"], "--pair must be two languages of XQuAD-R"),
        (["--pair", ""], "unknown language code ''; expected one of ar,"),
        (["--pair", "de-[b]"], "unknown language code '[b]'; expected one of ar,"),
        (["--table", "en-de"], "the table en-de translates en-de, not de-en"),
        (["--table", ""], "no translation table at ''"),
        (["--table", "nowhere"], "no translation table at 'nowhere'"),
        (["--table", "file"], "file is no translation table: it has no pt_meta.json"),
        (["--json", "file/numbers.json"], "/file is not a directory"),
        (["--encoder", "./nowhere"], "there is no model at nowhere: no directory"),
        (["--encoder", "a b"], "an encoder must be one of e5-small"),
        (["--json", "folder"], "cannot write the file folder: it is a directory"),
    ],
)
def test_quickstart_errors(fails, tmp_path, args, message):
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    start = time.monotonic()
    assert message in fails("quickstart", *args)
    assert time.monotonic() - start < 2  # before the work, not after it


# -------------------------------------------------------------------------------------------------------- table info


def test_info_lists_the_bundled_tables(run):
    code, text, _ = run("table", "info")
    assert code == 0 and all(name in text for name in TranslationTable.bundled())
    assert "German → English" in text and f"{len(TranslationTable.load('de-en')):,}" in text
    listed = json.loads(run("table", "info", "--json")[1])
    assert list(listed) == TranslationTable.bundled() and listed["de-en"]["languages"] == ["de", "en"]


def test_info(run, small):
    code, text, _ = run("table", "info", "small.table")
    assert code == 0 and "small.table" in text and "German → English" in text
    assert "5 (1.7 a source word)" in text and "[bold]CC0[/bold]" in text and small.fingerprint in text
    assert json.loads(run("table", "info", "small.table", "--json")[1]) == dict(small.meta)
    assert "Tatoeba" in run("table", "info", "de-en")[1]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_nothing_is_cut_off_in_a_narrow_terminal(run, monkeypatch, width):
    monkeypatch.setattr(out, "_width", width)
    for args in (["info", "de-en"], ["info"], ["lookup", "de-en", "Haus", "Geschwindigkeitsbegrenzung"]):
        text = run("table", *args)[1]
        assert "…" not in text and max(map(len, text.splitlines())) <= width


# ------------------------------------------------------------------------------------------------------ table lookup


def test_lookup(run):
    code, text, _ = run("table", "lookup", "de-en", "Straße", "--top-k", "2")
    assert code == 0 and text.startswith("strasse (de → en)") and "█" in text
    found = TranslationTable.load("de-en").translations("strasse", 2)
    rows = [line.split("│")[1:3] for line in text.splitlines() if "│" in line]
    assert [[word.strip(), p.strip()] for word, p in rows] == [[word, f"{p:.4f}"] for word, p in found.items()]


def test_lookup_of_known_and_unknown_words(run, small):
    code, text, _ = run("table", "lookup", "small.table", "Haus Ende", "Hausen", "", "[bold]")
    assert code == 0 and "house" in text and "finish" in text
    assert "hausen: not in the table (de → en); related words that it knows: hauser" in text
    assert "'' has no word in it" in text and "bold: not in the table" in text


@pytest.mark.parametrize("words", [["xyzzy"], [""], ["...", "xyzzy"], ["x" * 5000], ["القطة"]])
def test_lookup_finds_nothing(run, small, words):
    code, text, messages = run("table", "lookup", "small.table", *words)
    assert code == 1 and messages == "" and ("not in the table" in text or "no word in it" in text)


def test_lookup_on_a_terminal_without_unicode(small):
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    process = command("table", "lookup", "small.table", "Haus", "قطة", env=env)
    text, messages = process.communicate(timeout=60)
    assert process.returncode == 0 and messages == b""
    assert b"haus (de -> en)" in text and b"0.7500" in text and b"###" in text and b"\\u0642" in text


# ------------------------------------------------------------------------------------------------------- table train


def check_learned(path, source, target):
    table = TranslationTable.load(path)
    assert table.languages == (source, target)
    for word, other in NUMBERS.items():
        a, b = (word, other) if source == "de" else (other, word)
        assert next(iter(table.translations(a))) == b
    return table


def test_train_with_both_directions(run, pairs):
    args = ["table", "train", pairs, "-s", "de", "-t", "en", "--aligner", "fast_align"]
    pytest.importorskip("systran_align", reason="systran-align has no wheel for this platform")
    code, text, messages = run(*args, "-o", "new/de-en", "--reverse", "new/en-de", "--licence", "CC0")
    assert code == 0 and "wrote new/de-en (de-en, " in text and "wrote new/en-de (en-de, " in text
    assert "fast_align aligns 120 pairs by words" in messages
    table = check_learned("new/de-en", "de", "en")
    check_learned("new/en-de", "en", "de")
    assert table.meta["source"] == pairs and table.meta["licence"] == "CC0"


@pytest.mark.filterwarnings("default")
def test_train_skips_malformed_lines_and_says_so(run, tmp_path):
    lines = [f"x\t{t}\t{s}" for s, t in zip(german(), english(), strict=True)]
    (tmp_path / "pairs.tsv").write_bytes("\n".join(lines).encode() + b"\nshort\n\xff\ta\tb\n")
    args = ["table", "train", "pairs.tsv", "-s", "de", "-t", "en", "-o", "out", "--columns", "3,2", "--skip-malformed"]
    code, _, messages = run(*args)
    assert code == 0
    warning = next(line for line in messages.splitlines() if "warning: " in line)
    assert "pairs.tsv: skipped 2 malformed entries, the first: pairs.tsv, line 121: expected at least 3" in warning
    check_learned("out", "de", "en")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["folder"], "folder must hold two files whose names end in .de and .en"),
        (["half.gz"], "half.gz: the archive is damaged or truncated"),
        (["pairs.tsv", "--columns", "0,1"], "--columns '0,1': expected 2 whole numbers from 1"),
        (["pairs.tsv", "pairs.tsv", "--columns", "1,3"], "two parallel files have no columns"),
        (["pairs.tsv", "pairs.tsv", "pairs.tsv"], "found 3 files"),
        (["pairs.tsv", "--prefixes", "-1"], "--prefixes '-1': expected whole numbers from 0"),
        (["pairs.tsv", "-o", "small.table"], "small.table exists; name another path or pass --overwrite"),
        (["pairs.tsv", "-o", "folder", "--overwrite"], "folder exists and is not replaced, since it holds no pt_meta"),
        (["pairs.tsv", "--reverse", "./out"], "--output out and --reverse out must be two directories"),
        (["pairs.tsv", "--reverse", "pairs.tsv/x/y"], "pairs.tsv is not a directory"),
        (["pairs.tsv", "--min-count", "1e9"], "no two words were linked at least --min-count 1e+09 times"),
    ],
)
def test_train_errors(fails, tmp_path, pairs, small, args, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("mine")
    (tmp_path / "half.gz").write_bytes(gzip.compress(b"a\tb\n" * 99)[:20])
    assert message in fails("table", "train", "-s", "de", "-t", "en", "-o", "out", *args)


# ----------------------------------------------------------------------------------------------------- table convert


@pytest.mark.parametrize("name", ["t.csv.gz", "t.parquet"])
def test_convert_to_a_file_and_back(run, small, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    code, text, messages = run("table", "convert", "small.table", name)
    assert (code, messages) == (0, "") and text == f"wrote {name} (de-en, 5 entries)\n"
    assert run("table", "convert", name, "back.table", "--source", "de", "--target", "en")[0] == 0
    assert TranslationTable.load("back.table") == small
    assert TranslationTable.load("back.table").meta["source"] == name


def test_convert_bundled_and_between_files(run, tmp_path):
    assert run("table", "convert", "de-en", "de-en.txt", "--to", "muse", "--top-k", "1", "-s", "deu")[0] == 0
    best = TranslationTable.load("de-en").prune(top_k=1)
    assert len((tmp_path / "de-en.txt").read_text(encoding="utf-8").splitlines()) == len(best)
    code, text, _ = run("table", "convert", "de-en.txt", "t.x", "--to", "tsv", "-s", "de", "-t", "en")
    assert code == 0 and "wrote t.x (de-en, " in text
    assert run("table", "convert", "t.x", "out", "--from", "tsv", "-s", "de", "-t", "en", "--to", "table")[0] == 0
    assert len(TranslationTable.load("out")) == len(best)
    assert run("table", "convert", "de-en", "out", "--overwrite")[0] == 0
    assert TranslationTable.load("out") == TranslationTable.load("de-en")


def test_convert_replaces_only_when_asked(run, fails, tmp_path, small):
    (tmp_path / "t.tsv").write_text("old")
    assert "t.tsv exists; name another path or pass --overwrite" in fails("table", "convert", "small.table", "t.tsv")
    assert run("table", "convert", "small.table", "t.tsv", "--overwrite")[0] == 0
    assert (tmp_path / "t.tsv").read_text().startswith("source\ttarget\tprob\n")
    assert run("table", "convert", "small.table", "small.table", "--overwrite", "--top-k", "1")[0] == 0
    assert len(TranslationTable.load("small.table")) == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere", "out"], "no translation table at 'nowhere'"),
        (["t.tsv", "out"], "t.tsv does not say which languages it is for: pass --source and --target"),
        (["de-en", "out", "--from", "tsv", "-s", "de", "-t", "en"], "de-en: No such file or directory"),
        (["de-en", "t.out"], "cannot tell the format of 't.out' by its name"),
        (["de-en", "t.out", "--to", "excel"], "--to must be one of table, moses"),
        (["de-en", "out", "-s", "en"], "--source must be de, which the table de-en is for, not en"),
        (["de-en", "file/out"], "file is not a directory"),
        (["de-en", "folder", "--overwrite", "--to", "tsv"], "cannot write the file folder: it is a directory"),
        (["de-en", "folder", "--overwrite"], "folder exists and is not replaced, since it holds no pt_meta.json"),
    ],
)
def test_convert_errors(fails, tmp_path, args, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("mine")
    (tmp_path / "file").write_text("text")
    (tmp_path / "t.tsv").write_text("house\thaus\t0.5\n")
    assert message in fails("table", "convert", *args)


# ------------------------------------------------------------------------------------------------ around the commands


def test_warnings_and_signals_are_restored(run, small):
    shown = warnings.showwarning
    run("table", "info", "small.table")
    assert warnings.showwarning is shown


def test_reasons_on_request(run, monkeypatch, capfd):
    monkeypatch.setenv("PYTERRIER_MART_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["pyterrier-mart", "table", "info", "nowhere"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(130)])
def test_stopped(run, monkeypatch, error):
    def stop(*args, **kwargs):
        raise error

    monkeypatch.setattr(TranslationTable, "load", stop)
    code, text, messages = run("table", "info", "de-en")
    assert (code, text) == (130, "") and messages.strip() == "stopped"


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_aligning(tmp_path, number):
    lines = [f"a{i} b{i % 50} c{i % 999}\td{i} e{i % 50} f{i % 99}\n" for i in range(60_000)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    process = command("table", "train", "pairs.tsv", "-s", "de", "-t", "en", "-o", "out", env=env)
    deadline = time.monotonic() + 30
    while not any((tmp_path / "tmp").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, messages = process.communicate(timeout=30)
    assert process.returncode == 128 + number and b"Traceback" not in messages
    assert list((tmp_path / "tmp").iterdir()) == [] and sorted(os.listdir()) == ["pairs.tsv", "tmp"]


@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_reader_goes_away(small):
    process = command("table", "lookup", "small.table", *["Haus"] * 3000)
    process.stdout.readline()
    process.stdout.close()
    messages = process.stderr.read()
    assert process.wait(timeout=60) in (0, 1) and messages == b""
