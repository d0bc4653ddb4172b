"""Translation tables of aligned word vectors."""

import gzip
import re

import numpy as np
import pytest

from pyterrier_mart import TranslationTable
from pyterrier_mart.translation.builder import TableFormatError

SOURCE = "3 2\nHaus 1 0 \nKatze 0 1\nhaus 0 1\n"
TARGET = "house 2 0\nhome 1 1\ncat 0 3\nnothing -1 -1\n"


def put(tmp_path, name, content):
    path = tmp_path / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def read(tmp_path, source=SOURCE, target=TARGET, **options):
    return TranslationTable.read_vectors(
        put(tmp_path, "de.vec", source), put(tmp_path, "en.vec.gz", target), "de", "en", **options
    )


def test_nearest_neighbours(tmp_path):
    table = read(tmp_path)
    half = np.sqrt(0.5)
    # the first, most frequent spelling of a word counts; cosines of 0 or less do not
    assert table.translations("Haus") == pytest.approx({"house": 1 / (1 + half), "home": half / (1 + half)})
    assert table.translations("Katze") == pytest.approx({"cat": 1 / (1 + half), "home": half / (1 + half)})
    assert table.meta["source"] == ["de.vec", "en.vec.gz"]
    assert read(tmp_path, k=1).translations("Haus") == {"house": 1.0}
    assert read(tmp_path, min_cosine=0.9).translations("Haus") == {"house": 1.0}
    assert read(tmp_path, max_words=1).translations("Haus") == {"house": 1.0}
    assert "katze" not in read(tmp_path, max_words=1)
    assert read(tmp_path, meta={"licence": "CC"}).meta["licence"] == "CC"


@pytest.mark.parametrize("csls", [False, True])
def test_against_plain_computation(tmp_path, csls):
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(57, 8)).round(3), rng.normal(size=(83, 8)).round(3)
    text = ["".join(f"{p}{i} {' '.join(map(str, row))}\n" for i, row in enumerate(m)) for p, m in (("a", a), ("b", b))]
    table = read(tmp_path, *text, k=4, block=10, csls=csls)
    unit = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (a, b)]
    cosine = unit[0] @ unit[1].T
    score = cosine
    if csls:
        r_source = np.sort(cosine, axis=1)[:, -10:].mean(axis=1, keepdims=True)
        r_target = np.sort(cosine, axis=0)[-10:].mean(axis=0)
        score = 2 * cosine - r_source - r_target
    for i in range(len(a)):
        best = [j for j in np.argsort(-score[i])[:4] if cosine[i, j] > 0]
        expected = {f"b{j}": cosine[i, j] / cosine[i, best].sum() for j in best}
        assert table.translations(f"a{i}") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "source, line, reason",
    [
        *(
            (
                f"3 2\nHaus 1 0\n{line}\nHund 1 1\n",
                3,
                f"expected a word and 2 finite numbers that are not all 0, found '{line}",
            )
            for line in (
                *("Katze 1", "Katze 1 x", "Katze 0 0", "Katze nan 1", "Katze 1e999 1"),
                *("Katze 1_0 1", "Katze 1 ٠.٥", "Kätzchen 1 ٥"),
            )
        ),
        (b"Haus 1 0\n\xff 1 1\nHund 1 1\n", 2, "byte 1 of the line (0xff) is not UTF-8"),
    ],
)
def test_malformed_line(tmp_path, source, line, reason):
    with pytest.raises(TableFormatError, match=re.escape(f"de.vec, line {line}: {reason}")):
        read(tmp_path, source)
    with pytest.warns(UserWarning, match="skipped 1 malformed"):
        table = read(tmp_path, source.replace(b"\n", b"\r\n") if isinstance(source, bytes) else source, on_error="skip")
    assert list(table.source_words) == ["haus", "hund"]


@pytest.mark.parametrize(
    "source, target, reason",
    [
        (SOURCE, "house 1 0 0\n", "de.vec holds vectors of 2 numbers and .*en.vec.gz of 3"),
        (SOURCE.replace("3 2", "4 2"), TARGET, "de.vec: expected 4 vectors as its first line says, found 3"),
        ("", TARGET, "de.vec: no vectors of single words"),
        ("1 2\n. 1 0\n", TARGET, "de.vec: no vectors of single words"),
        ("Haus 1 0\n", "house -1 0\n", "no two words have a cosine above 0"),
    ],
)
def test_malformed_files(tmp_path, source, target, reason):
    with pytest.raises(TableFormatError, match=reason):
        read(tmp_path, source, target)


@pytest.mark.parametrize("options", [{"k": 0}, {"max_words": 1.5}, {"block": True}, {"min_cosine": 2}])
def test_options(tmp_path, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        read(tmp_path, **options)
