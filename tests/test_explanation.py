"""Explanations: what they say is what the model computes, and what they show is safe."""

import re
import warnings
from html.parser import HTMLParser

import models
import pandas as pd
import pytest
import torch

from pyterrier_mart import MARTReRanker, TranslationTable
from pyterrier_mart.mart.explanation import ExplainedLink

TABLE = TranslationTable.from_dict(
    {"katze": {"cat": 0.75, "kitten": 0.25}, "sofa": {"sofa": 0.5, "couch": 0.5}, "liegt": {"lies": 1.0}}, "de", "en"
)
QUERY, TEXT = "Wo liegt die Katze, Donnerstag?", "The kitten and the Cat: a cat lies on it."
NOT_TRAINED = "the model has not been trained: its scores mean nothing yet"


@pytest.fixture(scope="module")
def tiny():
    """The directory of a tiny random encoder with a real tokenizer."""
    return models.bert(0.3)


@pytest.fixture(scope="module")
def rank(tiny):
    return reranker(tiny)


def reranker(tiny, table=TABLE, **options):
    return models.reranker(tiny, table, **options)


def words(explained):
    """The links, as words."""
    return [
        (explained.query_words[q].text, explained.document_words[d].text, p) for q, d, p in explained.links
    ]  # fmt: skip


def transform(rank, query, text):
    return float(rank(pd.DataFrame([{"qid": "1", "query": query, "docno": "d", "text": text}]))["score"].iloc[0])


class Page(HTMLParser):
    """What a browser would make of it: marked words, and the text and direction of blocks."""

    def __init__(self, page):
        super().__init__()
        self.open, self.marks, self.blocks, self.tags = [], [], [], set()
        self.feed(page)
        self.close()
        assert not self.open, "elements are not closed"

    def handle_starttag(self, tag, attrs):
        self.open.append([tag, dict(attrs), ""])
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)

    def handle_data(self, data):
        for element in self.open:
            element[2] += data

    def handle_endtag(self, tag):
        found, attributes, text = self.open.pop()
        assert found == tag
        if "title" in attributes and text:
            self.marks.append((text, attributes["title"], attributes["style"]))
        if "dir" in attributes:
            self.blocks.append((attributes["dir"], text))

    def colours(self, word):
        return [re.findall(r"rgba\((\d+,\d+,\d+),([\d.]+)\)", style) for text, _, style in self.marks if text == word]


# ------------------------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize("options", [{}, {"mat_layers": (), "table": None}, {"pooling": "pooler"}])
@pytest.mark.parametrize("text", [TEXT, "", " ".join(["A cat, or words about nothing."] * 20)])
def test_the_score_is_that_of_transform(tiny, options, text):
    rank = reranker(tiny, **{"max_length": 60, **options})
    explained = rank.explain(QUERY, text)
    assert explained.score == transform(rank, QUERY, text)
    mean = sum(passage.score for passage in explained.passages) / len(explained.passages)
    assert explained.score == pytest.approx(mean, abs=1e-5)
    assert len(explained.passages) == (1 if len(text) < 100 else 4)
    assert NOT_TRAINED in explained.notes and "not been trained" in explained._repr_html_()


def test_passages_alone_have_their_scores(tiny):
    rank = reranker(tiny, max_length=60)
    text = "  " + " ".join(["A cat, or words about nothing."] * 20)
    passages = rank.explain(QUERY, text).passages
    assert [text[a:b] for a, b, _ in passages][0].startswith("A cat") and passages[-1].end == len(text)
    assert all(a.end <= b.start for a, b in zip(passages, passages[1:], strict=False))
    assert "".join(text[a:b] for a, b, _ in passages).replace(" ", "") == text.replace(" ", "")
    for start, end, score in passages:
        assert transform(rank, QUERY, text[start:end]) == pytest.approx(score, abs=1e-5)


def test_links_are_those_of_the_table(rank):
    explained = rank.explain(QUERY, TEXT)
    assert words(explained) == [
        ("liegt", "lies", 1.0), ("Katze", "kitten", 0.25), ("Katze", "Cat", 0.75), ("Katze", "cat", 0.75),
    ]  # fmt: skip
    assert [word.text for word in explained.query_words] == ["liegt", "Katze", "Donnerstag"]
    assert all(QUERY[w.start : w.end] == w.text and w.passages == (0,) for w in explained.query_words)
    assert all(TEXT[w.start : w.end] == w.text and w.passages == (0,) for w in explained.document_words)
    assert not {"and", "the", "The", "on"} & {word.text for word in explained.document_words}
    assert explained.languages == ("de", "en") and explained.notes == (NOT_TRAINED,)


def test_frame(rank):
    frame = rank.explain(QUERY, TEXT).to_frame()
    assert list(frame.columns) == [
        "query_word", "document_word", "probability", "passage", "query_start", "query_end", "document_start",
        "document_end",
    ]  # fmt: skip
    assert frame["document_word"].tolist() == ["lies", "kitten", "Cat", "cat"]
    for row in frame.itertuples():
        assert QUERY[row.query_start : row.query_end] == row.query_word
        assert TEXT[row.document_start : row.document_end] == row.document_word
    empty = rank.explain("Katze", "a dog").to_frame()
    assert len(empty) == 0 and (empty.dtypes == frame.dtypes).all()


def test_links_of_several_passages(tiny):
    text = " ".join(["A cat, or words about nothing."] * 20)
    explained = reranker(tiny, max_length=60).explain("Katze", text)
    starts = [match.start() for match in re.finditer("cat", text)]
    frame = explained.to_frame()
    assert frame["document_start"].tolist() == starts
    for row in frame.itertuples():
        passage = explained.passages[row.passage]
        assert passage.start <= row.document_start < row.document_end <= passage.end
    assert frame["passage"].max() == len(explained.passages) - 1 > 0
    marked = Page(explained._repr_html_()).marks
    assert [text for text, _, _ in marked if text == "cat"] == ["cat"] * 20


def test_cut_documents(tiny):
    text = "A cat. " + "Words about nothing. " * 10 + "Another cat."
    explained = reranker(tiny, document_tokens=20).explain("Katze", text)
    assert words(explained) == [("Katze", "cat", 0.75)] and explained.links[0].document == 0
    read = explained.passages[-1].end
    assert f"only the first {read} of {len(text)} characters of the text are read (20 tokens)" in explained.notes
    assert all(word.end <= read for word in explained.document_words)
    page = Page(explained._repr_html_())
    assert [mark[0] for mark in page.marks] == ["Katze", "cat"] and page.blocks[-1] == ("auto", text[read:])
    assert not any("of the text" in note for note in reranker(tiny).explain("Katze", text).notes)
    long = reranker(tiny, document_tokens=20).explain("Katze", text * 100)
    assert len(long._repr_html_()) < 6000 and "…" in long._repr_html_()


def test_cut_queries(tiny):
    rank = reranker(tiny, max_length=60)
    query = "Katze " + "nichts " * 30 + "liegt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explained = rank.explain(query, "A cat lies.")
    assert words(explained) == [("Katze", "cat", 0.75)]
    assert explained.query_words[-1].text == "liegt" and explained.query_words[-1].passages == ()
    assert any("of the query are read" in note for note in explained.notes)
    assert ("liegt", "cut off, not read") in [mark[:2] for mark in Page(explained._repr_html_()).marks]


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"placebo": True}, "placebo"), ({"mat_layers": ()}, "no MAT layers"), ({"placebo": True, "table": None}, "pl")],
)
def test_models_without_translations_say_so(tiny, options, reason):
    explained = reranker(tiny, **options).explain(QUERY, TEXT)
    assert explained.links == explained.query_words == explained.document_words == ()
    assert any("sees no translations (" + reason in note for note in explained.notes)
    assert len(explained.to_frame()) == 0 and not Page(explained._repr_html_()).marks
    assert "0 links" in repr(explained)


def test_trained_models_and_saved_ones(tiny, tmp_path):
    rank = reranker(tiny)
    rank.save(tmp_path / "untrained")
    assert NOT_TRAINED in MARTReRanker.load(tmp_path / "untrained").explain(QUERY, TEXT).notes
    rank._trained(rank.loaded())
    rank.history = [{"epoch": 1}]
    rank.save(tmp_path / "trained")
    for each in (rank, MARTReRanker.load(tmp_path / "trained", device="cpu")):
        assert each.explain(QUERY, TEXT).notes == ()
        assert words(each.explain(QUERY, TEXT)) == words(reranker(tiny).explain(QUERY, TEXT))


def test_short_form(rank):
    explained = rank.explain(QUERY, TEXT * 10)
    first = repr(explained).splitlines()[0]
    assert f"score {explained.score:.4f}, 1 passage, 40 links (liegt → lies 1.00, Katze → Cat 0.75" in first
    assert len(first) < 250 and repr(explained).endswith(NOT_TRAINED)


def test_refused(rank):
    with pytest.raises(ValueError, match="query must be text, not None"):
        rank.explain(None, "a")
    with pytest.raises(ValueError, match="text must be text, not 3"):
        rank.explain("a", 3)


def test_damaged_weights(tiny):
    rank = MARTReRanker(tiny, TABLE, device="cpu")
    with torch.no_grad():
        rank.load_model().score.bias.fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        rank.explain(QUERY, TEXT)


# ----------------------------------------------------------------------------------------------------- what is shown


def test_linked_words_have_the_same_colour_and_others_are_marked(rank):
    page = Page(rank.explain(QUERY, TEXT)._repr_html_())
    ((katze,),) = page.colours("Katze")
    ((cat,),) = page.colours("cat")
    ((kitten,),) = page.colours("kitten")
    ((lies,),) = page.colours("lies")
    assert katze == cat and kitten[0] == cat[0] != lies[0]
    assert float(kitten[1]) < float(cat[1]) < float(lies[1])
    titles = {text: title for text, title, _ in page.marks}
    assert titles["Katze"] == "Katze → Cat: 0.75; Katze → cat: 0.75; Katze → kitten: 0.25"
    assert titles["kitten"] == "Katze → kitten: 0.25" and titles["lies"] == "liegt → lies: 1"
    assert titles["Donnerstag"] == "no translation in the text"
    assert "dashed" in {text: style for text, _, style in page.marks}["Donnerstag"]
    assert page.blocks == [("auto", QUERY), ("auto", TEXT)]


def test_words_with_several_links_have_several_colours(tiny):
    table = TranslationTable.from_dict({"katze": {"cat": 0.5}, "kater": {"cat": 0.75}}, "de", "en")
    explained = reranker(tiny, table).explain("Katze Kater katze", "cat")
    page = Page(explained._repr_html_())
    ((first, second),) = {tuple(colours) for colours in page.colours("cat")}
    assert page.colours("Kater") == [[first]] and page.colours("Katze") == page.colours("katze") == [[second]]
    assert explained.links[0] == ExplainedLink(0, 0, 0.5)


def test_markup_is_escaped(rank):
    evil = """<script>alert("1")</script> Katze & 'x' $a$ <img src=x onerror=alert(1)>"""
    page = rank.explain(evil, evil + " \ud800 cat")._repr_html_()
    page.encode("utf-8")
    parsed = Page(page)
    assert parsed.tags == {"div", "span", "b"}
    assert [text for _, text in parsed.blocks] == [evil, evil + " \ufffd cat"]
    assert "mathjax_ignore" in page and "script>" not in page


def test_empty_texts(rank):
    explained = rank.explain("", "")
    assert explained.links == () and explained.passages[0][:2] == (0, 0)
    Page(explained._repr_html_())
