"""Tables learned from sentence pairs. eflomal differs from run to run: only what is obvious is asserted of it."""

import os
import platform
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyterrier_mart import Analyzer, TranslationTable
from pyterrier_mart.translation.builder import TableFormatError

NUMBERS = ["eins", "zwei", "drei", "vier", "funf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwolf"]
LEXICON = dict(
    zip(
        NUMBERS,
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
        strict=True,
    )
)


def pairs(n=300, lexicon=LEXICON, seed=7, reordered=False):
    """Sentences of two to six words, in the same order on either side: eflomal may lose a word of a reordered toy."""
    rng = random.Random(seed)
    for _ in range(n):
        words = rng.sample(sorted(lexicon), rng.randint(2, 6))
        others = [lexicon[word] for word in words]
        if reordered:
            rng.shuffle(others)
        yield " ".join(words).capitalize() + ".", " ".join(others).capitalize() + "!"


def rows(table):
    return list(table.entries())


# Where the extra "align" installs it, not finding it is an error.
needs_fast_align = pytest.mark.skipif(
    sys.version_info >= (3, 12) or (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="systran-align has wheels for Linux on x86-64 and Python up to 3.11 only",
)


@pytest.fixture(params=["eflomal", pytest.param("fast_align", marks=needs_fast_align)])
def aligner(request):
    return request.param


def test_an_obvious_lexicon_is_learned_in_both_directions(aligner):
    forward, backward = TranslationTable.train_both(pairs(), "de", "en", aligner=aligner)
    assert forward.languages == ("de", "en") and backward.languages == ("en", "de")
    for word, other in LEXICON.items():
        for table, source, target in ((forward, word, other), (backward, other, word)):
            assert next(iter(table.translations(source))) == target
            assert table.prob(target, source) > 0.7
            assert sum(table.translations(source).values()) == pytest.approx(1)
    # Both come from the same links.
    assert len(forward) == len(backward)
    assert {(s, t) for s, t, _ in forward.entries()} == {(s, t) for t, s, _ in backward.entries()}


def test_what_was_done_is_recorded(aligner):
    tables = TranslationTable.train_both(
        pairs(), "de", "en", aligner=aligner, prefixes=(None, 4), min_count=2,
        meta={"source": "toy", "licence": "CC0"},
    )  # fmt: skip
    for table in tables:
        assert table.meta["aligner"] == aligner and table.meta["prefixes"] == [None, 4]
        assert table.meta["sentence_pairs"] == 300 and table.meta["min_count"] == 2
        assert table.meta["source"] == "toy" and table.meta["licence"] == "CC0"


def test_rare_links_can_be_left_out(aligner):
    once = [*pairs(), ("Eins Unikum", "one hapax")]
    everything, _ = TranslationTable.train_both(once, "de", "en", aligner=aligner)
    assert "unikum" in everything
    often, _ = TranslationTable.train_both(once, "de", "en", aligner=aligner, min_count=3)
    assert "unikum" not in often and often.prob("one", "eins") > 0.7
    assert len(TranslationTable.train_both(once, "de", "en", aligner=aligner, min_count=10_000)[0]) == 0


def test_top_k_prunes_after_the_probabilities_are_known(aligner):
    ambiguous = [("bank", "bank"), ("bank", "bench"), ("bank", "bench"), ("haus", "house")] * 20
    table, _ = TranslationTable.train_both(ambiguous, "de", "en", aligner=aligner)
    assert table.translations("bank") == pytest.approx({"bench": 2 / 3, "bank": 1 / 3}, abs=0.1)
    for one in TranslationTable.train_both(ambiguous, "de", "en", aligner=aligner, top_k=1):
        assert max(len(one.translations(word)) for word in one.source_words) == 1
    one, _ = TranslationTable.train_both(ambiguous, "de", "en", aligner=aligner, top_k=1)
    assert one.prob("bench", "bank") == pytest.approx(2 / 3, abs=0.1)


def test_prefixes_pool_inflected_forms():
    # Each form of the verb is seen once beside a word that is seen once too: only the stem tells which is which.
    # fast_align would go by the order of the words.
    forms = [f"kaufen{ending}" for ending in ("", "d", "der", "des", "dem", "den", "de", "s")]
    rare = [(f"{form} neu{'abcdefgh'[i] * 3}", f"new{'abcdefgh'[i] * 3} buy") for i, form in enumerate(forms)]
    sentences = [*pairs(100, reordered=True), *rare]
    table, _ = TranslationTable.train_both(sentences, "de", "en", prefixes=(6,))
    assert sum(table.prob("buy", form) > 0.5 for form in forms) >= 7
    assert set(table.source_words) <= set(LEXICON) | set(forms) | {word for s, _ in rare for word in s.split()}
    averaged, _ = TranslationTable.train_both([*pairs(), *rare], "de", "en", prefixes=(None, 6))
    assert averaged.prob("two", "zwei") > 0.7 and averaged.meta["prefixes"] == [None, 6]


@pytest.mark.parametrize(
    "wrong", ["ab", ("one",), ("one", "two", "three"), ("one", None), (1, 2), None, 5, {"a": "b"}, ()]
)
def test_what_is_no_pair_is_named(wrong):
    with pytest.raises(TableFormatError, match="pair 3: expected two sentences"):
        TranslationTable.train_both([("eins", "one"), ["zwei", "two"], wrong], "de", "en")


def test_words_are_those_of_the_analyzers(aligner):
    sentences = [(f"Die\u00a0{s}\n", f"The\t{t}") for s, t in LEXICON.items()] * 5
    separators = [("eins | ||| 3-4", "one ||| 3-4")] * 3
    table, _ = TranslationTable.train_both(
        [*pairs(), *sentences, *separators], Analyzer("de", stop=True), "en", aligner=aligner
    )
    # Stop words are learned whatever the analyzer does with them; separators of the aligners' files are none.
    assert table.prob("the", "die") > 0.7
    assert set(table.source_words) <= {"die", "3", "4", *LEXICON}
    assert table.source.spec == Analyzer("de").spec


@pytest.mark.parametrize(
    ("fault", "message"),
    [("os.kill(os.getpid(), 9)", "status -9"), ("raise MemoryError('no more')", r"status 1 \(MemoryError: no more\)")],
)
def test_an_aligner_that_fails_is_one_sentence(monkeypatch, tmp_path, fault, message):
    code = f"import os\nclass Aligner:\n    def align(self, *args, **kwargs):\n        {fault}\n"
    (tmp_path / "eflomal.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "eflomal", raising=False)
    with pytest.raises(OSError, match=f"eflomal ended with {message}; is there room in .* and enough memory"):
        TranslationTable.train_both(pairs(3), "de", "en")


def processes(word):
    """The processes in whose arguments there is a word."""
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if word.encode() in readable(path)]


def readable(path):
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


TRAIN = """
import sys
from pyterrier_mart import TranslationTable
from pyterrier_mart.translation.pairs import read_pairs
TranslationTable.train(read_pairs("pairs.tsv"), "de", "en", aligner=sys.argv[1], verbose=True).save("out")
"""
# What a shell starts in the background ignores SIGINT, and so would the command.
COMMAND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from pyterrier_mart.cli import main; main()"
)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("aligner", "number", "status"),
    [
        *(("eflomal", *end) for end in [(signal.SIGINT, 130), (signal.SIGKILL, -9)]),
        *(
            pytest.param("fast_align", *end, marks=needs_fast_align)
            for end in [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
        ),
    ],
)
def test_a_signal_ends_the_aligner(aligner, number, status, tmp_path):
    rng = random.Random(1)
    words = [f"wort{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}" for i in range(5000)]
    sentences = (" ".join(rng.sample(words, 20)) for _ in range(15_000))
    (tmp_path / "pairs.tsv").write_text("".join(f"{sentence}\t{sentence}\n" for sentence in sentences))
    (tmp_path / "tmp").mkdir()
    command = ["table", "train", "pairs.tsv", "-s", "de", "-t", "en", "-o", "out", "--aligner", aligner]
    run = ["-c", COMMAND, *command] if status > 0 else ["-c", TRAIN, aligner]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, *run], cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as process:
        while not processes(f"{tmp_path}/tmp/pyterrier-mart-"):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        time.sleep(1)  # it is in the middle of its work, in which it hears nothing
        process.send_signal(number)
        _, messages = process.communicate(timeout=30)
    assert process.returncode == status and not (tmp_path / "out").exists()
    assert (
        status < 0 or (messages.endswith(b"stopped\n") or number == signal.SIGTERM) and not os.listdir(tmp_path / "tmp")
    )
    end = time.monotonic() + 20
    while processes(f"{tmp_path}/tmp/"):  # none is left, also when nobody could end it
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(("aligner", "module"), [("eflomal", "eflomal"), ("fast_align", "systran_align")])
def test_a_missing_aligner_names_the_extra(monkeypatch, aligner, module):
    monkeypatch.setitem(sys.modules, module, None)

    def unread():
        raise AssertionError("the pairs were read first")
        yield

    with pytest.raises(ImportError, match=r"pip install 'pyterrier-mart\[align\]'"):
        TranslationTable.train_both(unread(), "de", "en", aligner=aligner)
