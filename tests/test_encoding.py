"""From rows to passages and batches: against what transformers' own call makes, and at the limits."""

import gc
import os
import random
import tracemalloc
import warnings
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, CanineTokenizer, PreTrainedTokenizerFast

from pyterrier_mart import Analyzer, TranslationTable, encoders
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.mart import encoding
from pyterrier_mart.mart.attention import WordLinker
from pyterrier_mart.mart.encoding import PairEncoder

TABLE = TranslationTable.from_dict({"katze": {"cat": 0.75, "kitten": 0.25}}, "de", "en")


@cache
def tokenizer(name):
    if name == "roberta":
        return roberta()
    try:
        path = encoders.resolve({"bert": "minilm-l6-en", "xlm-roberta": "e5-small"}[name])
    except ImportError as err:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(err))
    return AutoTokenizer.from_pretrained(path)


def roberta():
    """A small tokenizer of RoBERTa's kind: bytes, and offsets that include the space before a word."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    backend.train_from_iterator([p.context for p in xquad_r.load("en").paragraphs[:40]], trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=["input_ids", "attention_mask"], **names
    )  # fmt: skip


def word_tokenizer():
    """One token a word, of BERT's kind; words are numbers."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, **{str(i): i + 4 for i in range(3000)}}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


WORD_TOKENIZER = word_tokenizer()


def numbers(n):
    return " ".join(map(str, range(n)))


def real_rows(n, language="de"):
    questions, english = xquad_r.load(language).questions[:n], xquad_r.load("en").paragraphs
    return [q.text for q in questions], [english[q.paragraph].sentences[0] for q in questions]


@pytest.fixture
def given_texts(monkeypatch):
    """The texts that were given to the tokenizer, in order."""
    texts = []
    encode = PairEncoder._encode

    def watched(self, given):
        texts.extend(given)
        return encode(self, given)

    monkeypatch.setattr(PairEncoder, "_encode", watched)
    return texts


KINDS = ["bert", "xlm-roberta", "roberta"]

# ---------------------------------------------------------------------------------------------------------- templates


@pytest.mark.parametrize(
    ("kind", "before", "between", "after", "types"),
    [
        ("bert", ["[CLS]"], ["[SEP]"], ["[SEP]"], (0, 0, 0, 1, 1)),
        ("xlm-roberta", ["<s>"], ["</s>", "</s>"], ["</s>"], (0, 0, 0, 0, 0)),
        ("roberta", ["<s>"], ["</s>", "</s>"], ["</s>"], (0, 0, 0, 0, 0)),
    ],
)
def test_the_template_of_a_tokenizer_is_found(kind, before, between, after, types):
    encoder = PairEncoder(tokenizer(kind), None)
    names = [encoder.tokenizer.convert_ids_to_tokens(part) for part in encoder.template[:3]]
    assert names == [before, between, after]
    assert encoder.template.types == types and encoder.template.length == len(before + between + after)
    assert encoder.has_types is (kind == "bert")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", ["de", "ar", "zh", "th"])
def test_short_pairs_are_what_the_tokenizer_itself_makes(kind, language):
    queries, documents = real_rows(12, language)
    queries, documents = [*queries, "", "x", ""], [*documents, "x", "", ""]
    encoder = PairEncoder(tokenizer(kind), WordLinker(TABLE))
    batch = encoder.batch(encoder.pairs(queries, documents))
    expected = tokenizer(kind)(queries, documents, padding=True, return_tensors="pt")
    assert torch.equal(batch.input_ids, expected["input_ids"])
    assert torch.equal(batch.attention_mask, expected["attention_mask"])
    if kind == "bert":
        assert torch.equal(batch.token_type_ids, expected["token_type_ids"])
    else:
        assert batch.token_type_ids is None and "token_type_ids" not in expected
    assert batch.documents.tolist() == list(range(len(queries)))
    assert all(part.dtype is torch.int64 for part in (batch.input_ids, batch.attention_mask, batch.documents))


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_what_another_call_or_the_file_sets_in_the_tokenizer_does_not_matter(kind):
    names = {"pad_token": tokenizer(kind).pad_token}
    own = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer(kind).backend_tokenizer.to_str()), **names
    )  # fmt: skip
    queries, documents = [numbers(20)], [numbers(300)]
    expected = PairEncoder(own, None).pairs(queries, documents)[0]
    backend = own.backend_tokenizer
    backend.enable_truncation(7)
    backend.enable_padding(length=2000)
    encoder = PairEncoder(own, None)
    assert encoder.template == PairEncoder(tokenizer(kind), None).template
    own([numbers(30)], truncation=True, max_length=6, padding="max_length")
    (pair,) = encoder.pairs(queries, documents)
    assert pair.query.ids.tolist() == expected.query.ids.tolist()
    assert pair.document.ids.tolist() == expected.document.ids.tolist() and len(pair.document.ids) > 299


def test_a_tokenizer_that_is_not_fast_is_rejected():
    with pytest.raises(ValueError, match=r"must be a fast one .*tokenizer\.json.*not CanineTokenizer"):
        PairEncoder(CanineTokenizer(), None)


@pytest.mark.parametrize(("kind", "least"), [("bert", 36), ("xlm-roberta", 37)])
def test_max_length_must_leave_room(kind, least):
    PairEncoder(tokenizer(kind), None, max_length=least)
    for length in (least - 1, 0, -5):
        with pytest.raises(ValueError, match=f"max_length must be at least {least} .*not {length}"):
            PairEncoder(tokenizer(kind), None, max_length=length)


# ----------------------------------------------------------------------------------------------------------- passages


def test_a_document_is_cut_to_its_first_800_tokens():
    (pair,) = PairEncoder(WORD_TOKENIZER, None).pairs(["7"], [numbers(3000)])
    assert pair.document.ids.tolist() == [i + 4 for i in range(800)] and pair.cuts == (0, 400, 800)


@given(st.integers(36, 600), st.integers(0, 700), st.integers(0, 1000), st.integers(1, 900))
@settings(max_examples=80, deadline=None)
def test_a_document_is_split_evenly_into_as_few_passages_as_fit(max_length, query, document, document_tokens):
    encoder = PairEncoder(WORD_TOKENIZER, None, max_length, document_tokens)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (pair,) = encoder.pairs([numbers(query)], [numbers(document)])
    # The query is cut only if fewer than 32 tokens of the document would fit beside it.
    longest = max_length - 3 - 32
    assert len(pair.query.ids) == min(query, longest) and len(caught) == (query > longest)
    read = min(document, document_tokens)
    sizes = [b - a for a, b in zip(pair.cuts, pair.cuts[1:], strict=False)]
    room = max_length - 3 - len(pair.query.ids)
    assert pair.cuts[0] == 0 and pair.cuts[-1] == sum(sizes) == read and len(pair.document.ids) == read
    assert max(sizes) - min(sizes) <= 1 and max(sizes) <= room
    assert pair.passages == len(sizes) == max(1, int(np.ceil(read / room)))
    assert pair.longest == len(pair.query.ids) + max(sizes)
    batch = encoder.batch([pair])
    assert batch.input_ids.shape == (len(sizes), pair.longest + 3) and pair.longest + 3 <= max_length
    # The passages in order are the document.
    again = [ids[2 + len(pair.query.ids) :][:size].tolist() for ids, size in zip(batch.input_ids, sizes, strict=True)]
    assert sum(again, []) == [i + 4 for i in range(read)]
    assert batch.attention_mask.sum(1).tolist() == [len(pair.query.ids) + 3 + size for size in sizes]


def test_a_batch_of_rows_with_different_numbers_of_passages():
    encoder = PairEncoder(word_tokenizer(), WordLinker(TABLE), max_length=40)
    pairs = encoder.pairs(["1 2", "3", "4 5 6"], [numbers(70), "", numbers(40)])
    assert [pair.passages for pair in pairs] == [2, 1, 2]
    batch = encoder.batch(pairs)
    assert batch.documents.tolist() == [0, 0, 1, 2, 2] and len(batch.input_ids) == 5
    assert ((batch.input_ids == 0) == (batch.attention_mask == 0)).all()
    assert set(batch.inputs("cpu")) == {"input_ids", "attention_mask", "token_type_ids", "documents", "translation"}


# ------------------------------------------------------------------------------------------------- very long documents


@pytest.mark.parametrize("kind", KINDS)
def test_a_million_characters_are_not_all_tokenised(kind, given_texts):
    text = (xquad_r.load("en").paragraphs[3].context + " ") * 6000
    assert len(text) > 1_000_000
    encoder = PairEncoder(tokenizer(kind), WordLinker(TABLE))
    (pair,) = encoder.pairs(["Katze"], [text])
    assert sum(map(len, given_texts)) < 60_000
    expected = tokenizer(kind)(text[:20_000], add_special_tokens=False, verbose=False)["input_ids"][:800]
    assert pair.document.ids.tolist() == expected


# Texts whose first tokens need many characters, or end where the text that is read first does.
LONG = [
    " " * 200_000 + "cats and dogs",
    "a " + " " * 60_000 + "b " + " " * 60_000 + "c " * 500,
    "x" * 30_000 + " dog " * 30_000,
    ("x" * 700 + " ") * 300,
    "a " * 790 + " " * (64 * 801 - 1580 - 10) + "internationalization" * 100 + " end",
    "🐈" * 4000,
]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_what_is_read_of_a_long_text_begins_as_the_whole_does(text):
    encoder = PairEncoder(tokenizer("bert"), WordLinker(TABLE))
    (pair,) = encoder.pairs(["Katze"], [text])
    assert pair.document.ids.tolist() == encoder.tokenizer.backend_tokenizer.encode(text).ids[1:-1][:800]


def test_long_texts_beside_each_other_are_read_as_far_as_alone():
    texts = [" " * 300_000 + "cat", " " * 120_000 + "dog", " " * 60_000 + "horse", "cow"]
    encoder = PairEncoder(tokenizer("bert"), None)
    for order in (texts, texts[::-1]):
        pairs = PairEncoder(encoder.tokenizer, None).pairs(["x"] * 4, order)
        ids = {text: pair.document.ids for text, pair in zip(order, pairs, strict=True)}
        assert [encoder.tokenizer.decode(ids[text]) for text in texts] == ["cat", "dog", "horse", "cow"]


# ---------------------------------------------------------------------------------------------------------- remembered


def test_each_distinct_text_is_tokenised_once(given_texts):
    encoder = PairEncoder(tokenizer("bert"), WordLinker(TABLE))
    first = encoder.pairs(["Katze", "Hund", "Katze", "cat"], ["cat", "cat", "dog", "cat"])
    assert sorted(given_texts) == ["Hund", "Katze", "cat", "cat", "dog"]  # once as a query, once as a document
    given_texts.clear()
    second = encoder.pairs(["Hund", "Katze"], ["dog", "bird"])
    assert given_texts == ["bird"]
    assert second[0].query is first[1].query and second[0].document is first[2].document


def test_rows_are_the_same_whatever_is_remembered(monkeypatch):
    queries, documents = real_rows(40)
    expected = PairEncoder(tokenizer("bert"), WordLinker(TABLE)).pairs(queries, documents)
    monkeypatch.setattr(encoding, "_REMEMBERED", 12_000)
    encoder = PairEncoder(tokenizer("bert"), WordLinker(TABLE))
    rng = random.Random(3)
    for _ in range(10):
        rows = rng.choices(range(40), k=15)
        pairs = encoder.pairs([queries[i] for i in rows], [documents[i] for i in rows])
        for i, pair in zip(rows, pairs, strict=True):
            assert pair.query.ids.tolist() == expected[i].query.ids.tolist()
            assert pair.document.ids.tolist() == expected[i].document.ids.tolist()
        for memory in (encoder.queries, encoder.documents):
            assert memory.size <= 12_000 and len(memory.kept) < 40


def test_what_is_remembered_counts_for_the_memory_that_it_takes():
    """Of short texts, most is not in the arrays."""
    queries, documents = [f"Katze {i} Haus" for i in range(2000)], [f"the cat number {i}" for i in range(2000)]
    encoder = PairEncoder(tokenizer("bert"), WordLinker(TABLE))
    encoder.pairs(queries[:10], documents[:10])
    tracemalloc.start()
    encoder.pairs(queries, documents)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(encoder.queries.kept) == len(encoder.documents.kept) == 2000
    assert 0.7 < (encoder.queries.size + encoder.documents.size) / used < 1.3


# ------------------------------------------------------------------------------------------------------ words of tokens


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", ["th", "zh", "ar", "de", "hi"])
def test_tokens_are_pieces_of_the_first_word_that_they_overlap(kind, language):
    table = TranslationTable.from_dict({"katze": {"x": 1.0}}, "de", language)
    encoder = PairEncoder(tokenizer(kind), WordLinker(table, stop=False))
    paragraphs = xquad_r.load(language).paragraphs[:25]
    for paragraph, pair in zip(paragraphs, encoder.pairs(["x"] * 25, [p.context for p in paragraphs]), strict=True):
        text, found = paragraph.context, pair.document.words
        words = Analyzer(language).spans(text)
        tokens = tokenizer(kind)(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        spans = tokens["offset_mapping"][:800]
        owners = []
        for start, end in spans:
            near = [i for i, word in enumerate(words) if max(start, word.start) < min(end, word.end)]
            owners.append(near[0] if near else -1)
        assert found.tolist() == owners
        # In order, and the pieces of a word without gap: M^tr is built on that.
        real = found[found >= 0]
        assert (np.diff(real) >= 0).all()
        at = np.flatnonzero(found >= 0)
        for word in np.unique(real):
            pieces = at[real == word]
            assert pieces[-1] - pieces[0] + 1 == len(pieces)
        # Each word that is read has a piece, or stands in a piece of the word before it.
        end_of_text = spans[-1][1]
        for i, word in enumerate(words):
            if word.end <= end_of_text and i not in owners:
                inside = [span for span in spans if max(span[0], word.start) < min(span[1], word.end)]
                assert inside and all(owners[spans.index(span)] < i for span in inside)
