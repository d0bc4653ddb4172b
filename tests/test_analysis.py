"""The translation gap, against what it says by hand."""

import sys

import models
import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer, BertModel

from pyterrier_mart import TranslationTable
from pyterrier_mart.mart import analysis
from pyterrier_mart.mart.analysis import TranslationGap, gap_plot, translation_gap

TABLE = TranslationTable.from_dict(
    {
        "katze": {"cat": 0.75, "kitten": 0.25}, "hund": {"dog": 1.0}, "liegt": {"lies": 0.5, "rests": 0.5},
        "wochenende": {"weekend": 1.0},
    },
    "de", "en",
)  # fmt: skip
ROWS = pd.DataFrame(
    [
        ["Katze liegt Donnerstag", "The kitten, the cat, a cat: it lies somewhere far away"],
        ["Hund", "A dog barks"],
        ["Hund", "nothing like it here"],
        ["Wochenende, Hund und Katze", "cat " + "far away green " * 20 + " dog weekend unbelievably"],
    ],
    columns=["query", "text"],
)
#: Best links: word of the query and which word of the text, for the rows that have any.
LINKED = {0: [("Katze", "cat", 0), ("liegt", "lies", 0)], 1: [("Hund", "dog", 0)],
          3: [("Wochenende", "weekend", 0), ("Hund", "dog", 0), ("Katze", "cat", 0)]}  # fmt: skip


@pytest.fixture(scope="module")
def tiny():
    """The directory of a tiny random encoder with a real tokenizer."""
    return models.bert(0.3)


def reranker(tiny, table=TABLE, **options):
    return models.reranker(tiny, table, **options)


def by_hand(tiny, query, text, pairs):
    """Similarities of pairs of words in the plain encoder, with transformers' own call; (layers, pairs)."""
    tokenizer, model = AutoTokenizer.from_pretrained(tiny), BertModel.from_pretrained(tiny).eval()
    encoded = tokenizer(query, text, return_tensors="pt", return_offsets_mapping=True)
    offsets, sides = encoded.pop("offset_mapping")[0].tolist(), encoded.sequence_ids(0)
    with torch.no_grad():
        states = model(**encoded, output_hidden_states=True).hidden_states

    def vector(state, side, word, which):
        string = (query, text)[side]
        start = -1
        for _ in range(which + 1):
            start = string.index(word, start + 1)
        tokens = [
            i for i, (a, b) in enumerate(offsets) if sides[i] == side and start <= a < b <= start + len(word)
        ]  # fmt: skip
        return state[0, tokens].mean(0)

    return np.array(
        [
            [
                torch.cosine_similarity(vector(state, 0, q, 0), vector(state, 1, d, which), dim=0).item()
                for q, d, which in pairs
            ]
            for state in states
        ]
    )


def test_translations_are_as_by_hand(tiny):
    gap = translation_gap(reranker(tiny, mat_layers=()), ROWS)
    rows = [by_hand(tiny, *ROWS.iloc[i], pairs).mean(1) for i, pairs in LINKED.items()]
    np.testing.assert_allclose(gap.translated, np.mean(rows, axis=0), atol=1e-5)
    assert (gap.rows, gap.n_translated, len(gap.translated)) == (3, 6, 5)
    assert min(np.abs(np.diff(gap.translated))) > 1e-3  # layers differ, so that a shift would show


def test_all_links_are_as_by_hand(tiny):
    gap = translation_gap(reranker(tiny, mat_layers=()), ROWS[:2], links="all")
    words = [("Katze", "kitten", 0), ("Katze", "cat", 0), ("Katze", "cat", 1), ("liegt", "lies", 0)]
    rows = [by_hand(tiny, *ROWS.iloc[0], words).mean(1), by_hand(tiny, *ROWS.iloc[1], [("Hund", "dog", 0)])[:, 0]]
    np.testing.assert_allclose(gap.translated, np.mean(rows, axis=0), atol=1e-5)
    assert gap.n_translated == 5 and gap.random == translation_gap(reranker(tiny, mat_layers=()), ROWS[:2]).random
    with pytest.raises(ValueError, match="links must be one of best, all, not 'some'"):
        translation_gap(reranker(tiny), ROWS, links="some")


def test_random_pairs_are_as_by_hand(tiny):
    """With more pairs asked for than there are, they are all that are not linked."""
    rows = ROWS[:2]
    gap = translation_gap(reranker(tiny, mat_layers=()), rows, pairs=1000)
    words = [("kitten", 0), ("cat", 0), ("cat", 1), ("lies", 0), ("somewhere", 0), ("far", 0), ("away", 0)]
    linked = [("Katze", "kitten"), ("Katze", "cat"), ("liegt", "lies")]
    first = [(q, d, i) for q in ("Katze", "liegt", "Donnerstag") for d, i in words if (q, d) not in linked]
    expected = [by_hand(tiny, *rows.iloc[0], first).mean(1), by_hand(tiny, *rows.iloc[1], [("Hund", "barks", 0)])[:, 0]]
    np.testing.assert_allclose(gap.random, np.mean(expected, axis=0), atol=1e-5)
    assert gap.n_random == len(first) + 1 == 18


def test_the_models_own_translations_change_hidden_states_from_the_mat_layers_on(tiny):
    gaps = {
        "plain": translation_gap(reranker(tiny, None, mat_layers=()), ROWS, table=TABLE),
        "placebo": translation_gap(reranker(tiny, None, placebo=True), ROWS, table=TABLE),
        "own": translation_gap(reranker(tiny), ROWS),
        "zero": translation_gap(reranker(tiny, translation_init="zero"), ROWS),
        "other": translation_gap(reranker(tiny), ROWS, table=TABLE),
    }
    plain, placebo, own, zero, other = (np.array(gap.gap) for gap in gaps.values())
    assert len({(gap.n_translated, gap.n_random, gap.rows) for gap in gaps.values()}) == 1
    np.testing.assert_allclose(own[:2], plain[:2], atol=1e-5)  # MAT layers are 1 and 2: states 2, 3, 4 differ
    np.testing.assert_allclose(zero, plain, atol=1e-5)
    np.testing.assert_array_equal(own, other)
    assert (np.abs(placebo - plain)[2:] > 1e-3).all() and (own - placebo)[2:].min() > 0.01


def test_a_model_computes_with_its_own_table_whatever_the_pairs(tiny):
    others = [TranslationTable.from_dict({word: {"cat": 1.0}}, "de", "en") for word in ("hund", "esel")]
    own, first, second = (
        translation_gap(reranker(tiny, table), ROWS[1:2], table=TABLE).translated for table in (TABLE, *others)
    )
    assert first == second and own[:2] == first[:2]  # neither sees that Hund is dog
    assert min(np.subtract(own, first)[2:]) > 1e-3


def test_passages(tiny):
    """Words are compared within a passage, each of which holds the query."""
    rows = ROWS[3:]
    gap = translation_gap(reranker(tiny, mat_layers=(), max_length=50), rows)
    query, text = rows.iloc[0]
    short = AutoTokenizer.from_pretrained(tiny)
    offsets = short(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    passages = -(-len(offsets) // (50 - 3 - len(short(query, add_special_tokens=False)["input_ids"])))
    assert passages == 2
    middle = offsets[len(offsets) // 2][0]
    expected = np.concatenate(
        [
            by_hand(tiny, query, text[:middle], [("Katze", "cat", 0)]),
            by_hand(tiny, query, text[middle:], [("Wochenende", "weekend", 0), ("Hund", "dog", 0)]),
        ],
        axis=1,
    ).mean(1)
    np.testing.assert_allclose(gap.translated, expected, atol=1e-5)


def test_random_pairs_depend_on_the_seed_only(tiny):
    rank = reranker(tiny)
    first = translation_gap(rank, ROWS, pairs=3, seed=1)
    assert translation_gap(rank, ROWS, pairs=3, seed=1) == first
    small = translation_gap(reranker(tiny, batch_tokens=1), ROWS, pairs=3, seed=1)
    np.testing.assert_allclose(small.random, first.random, atol=1e-5)
    other = translation_gap(rank, ROWS, pairs=3, seed=2)
    assert np.abs(np.subtract(other.random, first.random)).max() > 1e-3
    np.testing.assert_array_equal(other.translated, first.translated)
    assert first.n_random == 3 + 1 + 3


def test_rows_are_streamed(tiny, monkeypatch):
    whole = translation_gap(reranker(tiny), ROWS)
    monkeypatch.setattr(analysis, "_ROWS", 2)
    parts = translation_gap(reranker(tiny), ROWS, verbose=True)
    np.testing.assert_allclose(parts.gap, whole.gap, atol=1e-6)
    assert (parts.n_random, parts.n_translated, parts.rows) == (whole.n_random, whole.n_translated, whole.rows)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS[["query"]], {}, "rows: missing column text; found query"),
        (ROWS[2:3], {}, r"none of 1 rows has a pair of words that the de-en table links"),
        (ROWS, {"pairs": 0}, "pairs must be a whole number >= 1, not 0"),
    ],
)
def test_refused(tiny, rows, options, message):
    with pytest.raises(ValueError, match=message):
        translation_gap(reranker(tiny), rows, **options)


def test_a_table_is_needed(tiny):
    with pytest.raises(ValueError, match="table is missing"):
        translation_gap(reranker(tiny, None, placebo=True), ROWS)
    with pytest.raises(FileNotFoundError):
        translation_gap(reranker(tiny, None, placebo=True), ROWS, table="no-such-table")


# ------------------------------------------------------------------------------------------------------------- plots

GAP = TranslationGap((0.5, 0.75), (0.25, 0.125), 7, 9, 3)


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    figure = GAP.plot(tmp_path / "a.png", title="A $ and a $")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.5, 0.75], [0.25, 0.125]]
    figure = gap_plot({"MART": GAP, "plain": GAP}, tmp_path / "b.svg")
    assert [list(line.get_ydata()) for line in figure.axes[0].lines] == [[0.25, 0.625]] * 2
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["MART", "plain"]
    assert (tmp_path / "b.svg").exists()


def test_plots_refuse(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"a.txt': expected a name that ends in .png, .svg, .pdf"):
        GAP.plot(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="at least one system"):
        gap_plot({})
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'pyterrier-mart\[plot\]'"):
        GAP.plot(tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
