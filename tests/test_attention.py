"""M^tr: the sparse matrix against Algorithm 1 written out in nested loops over tokens."""

import os
import random
import warnings
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from pyterrier_mart import Analyzer, TranslationTable, encoders
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.mart.attention import WordLinker
from pyterrier_mart.mart.encoding import PairEncoder
from pyterrier_mart.stopwords import function_words, long_list
from pyterrier_mart.translation.backoff import other_forms

TABLE = TranslationTable.from_dict(
    {
        "katze": {"cat": 0.75, "kitten": 0.25},
        "hund": {"dog": 0.5, "hound": 0.375, "cat": 0.125},
        "haus": {"house": 0.5, "home": 0.5},
        "die": {"the": 1.0},
        "rot": {"the": 0.5, "red": 0.5},
        "tür": {"door": 1.0},
    },
    "de",
    "en",
)


@cache
def tokenizer(name):
    if name == "letters":
        return letters()
    try:
        path = encoders.resolve(name)
    except ImportError as err:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(err))
    return AutoTokenizer.from_pretrained(path)


def letters():
    """A WordPiece tokenizer whose pieces are single letters."""
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *".,;!?'-", *alphabet, *("##" + a for a in alphabet)]
    backend = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


# ------------------------------------------------------------------------------------------------ the definition


def translations(table, word, threshold=0.0, top_k=None, identity="unknown", relate=True):
    """The translations of a query word in normal form and their probabilities."""

    def of_the_table(known):
        best = sorted(table.translations(known).items(), key=lambda item: -item[1])
        return {target: p for target, p in best[:top_k] if p >= np.float32(threshold)}

    found = of_the_table(word)
    if relate and word not in table:
        for i, share in other_forms(word, table.source_words, table.source.lang):
            for target, p in of_the_table(table.source_words[i]).items():
                found[target] = found.get(target, 0.0) + share * p
        found = dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))[:top_k])
    if identity == "always" or (identity == "unknown" and word not in table):
        for same in Analyzer(table.target.lang, fold=table.target.fold).tokens(word) or [word]:
            found[same] = 1.0
    return {target: min(p, 1.0) for target, p in found.items()}


def words_of_tokens(tok, text, analyzer, stop, most):
    """For each token of a text the word that it is a piece of, as (number, normal form or None if it has no links)."""
    words = list(enumerate(analyzer.spans(text)))
    readable = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    tokens = tok(readable, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    out = []
    for start, end in tokens[:most]:
        shared = [
            (i, None if word.text in stop else word.text)
            for i, word in words
            if max(start, word.start) < min(end, word.end)
        ]
        out.append(shared[0] if shared else None)
    return out


def stop_words_of(analyzer, stop):
    """The stop words of a language in normal form."""
    words = function_words(analyzer.lang) if stop is True else stop or ()
    return {parts[0] for parts in map(analyzer.tokens, words) if len(parts) == 1}


def reference(encoder, table, query, document, stop=True, **options):
    """M^tr of each passage of a pair, as Algorithm 1 defines it."""
    tok = encoder.tokenizer
    sides = []
    for text, side, most in ((query, table.source, 10**9), (document, table.target, encoder.document_tokens)):
        analyzer = Analyzer(side.lang, fold=side.fold)
        sides.append(words_of_tokens(tok, text, analyzer, stop_words_of(analyzer, stop), most))
    q, d = sides
    special = [side is None for side in tok("a", "a").encodings[0].sequence_ids]
    before, between = special.index(False), special[special.index(False) + 1 :].index(False)
    after = len(special) - before - between - 2
    q = q[: encoder.max_length - len(special) + 2 - 32]
    room = encoder.max_length - (len(special) - 2) - len(q)
    passages = max(1, (len(d) + room - 1) // room)
    cuts = [len(d) * i // passages for i in range(passages + 1)]
    known = {word: translations(table, word, **options) for _, word in filter(None, q) if word is not None}
    matrices = []
    for start, end in zip(cuts, cuts[1:], strict=False):
        tokens = [None] * before
        tokens += [word and ("query", *word) for word in q]
        tokens += [None] * between
        tokens += [word and ("document", *word) for word in d[start:end]]
        tokens += [None] * after
        matrix = np.zeros((len(tokens), len(tokens)))
        for i, one in enumerate(tokens):
            for j, other in enumerate(tokens):
                matrix[i, j] = weight(known, one, other) if i != j else 1.0
        matrices.append(matrix / matrix.sum(axis=1, keepdims=True))
    return matrices


def weight(known, one, other):
    if one is None or other is None:
        return 0.0
    if one[0] == other[0]:
        return 1.0 if one[1] == other[1] else 0.0
    source, target = (one, other) if one[0] == "query" else (other, one)
    return 0.0 if None in (source[2], target[2]) else known[source[2]].get(target[2], 0.0)


def dense(batch):
    passages, n = batch.input_ids.shape
    return batch.translation.apply(torch.eye(n, dtype=torch.float64).repeat(passages, 1, 1)).numpy()


def check(tok, table, queries, documents, max_length=512, document_tokens=800, **options):
    """Compares the matrices of a batch with the definition; returns them without padding, passage by passage."""
    encoder = PairEncoder(tok, WordLinker(table, **options), max_length, document_tokens)
    pairs = encoder.pairs(queries, documents)
    batch = encoder.batch(pairs)
    found = dense(batch)
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=1e-6)
    expected = [m for q, d in zip(queries, documents, strict=True) for m in reference(encoder, table, q, d, **options)]
    assert len(found) == len(expected) == sum(pair.passages for pair in pairs)
    out = []
    for one, matrix, mask in zip(found, expected, batch.attention_mask.numpy(), strict=True):
        n = len(matrix)
        assert mask.sum() == n
        padded = np.eye(len(one))
        padded[:n, :n] = matrix
        np.testing.assert_allclose(one, padded, atol=1e-6)
        out.append(one[:n, :n])
    return out


def matrix(query, document, table=TABLE, tok=None, **options):
    """The matrix of a pair whose document is a single passage."""
    (one,) = check(tok or tokenizer("letters"), table, [query], [document], **options)
    return one


def attends(matrix, i, start, end):
    """Whether a token attends to all the tokens of a stretch; not to some."""
    to = matrix[i, start:end] > 0
    assert to.all() == to.any()
    return bool(to.all())


def is_identity(matrix):
    return np.array_equal(matrix, np.eye(len(matrix)))


# ------------------------------------------------------------------------------------------- against the definition


@cache
def bundled(direction):
    return TranslationTable.load(direction)


@pytest.mark.parametrize("name", ["e5-small", "minilm-l6-en"])
@pytest.mark.parametrize("language", ["de", "ar", "tr"])
def test_real_pairs(name, language):
    questions, english = xquad_r.load(language).questions, xquad_r.load("en").paragraphs
    rng = random.Random(language)
    chosen = rng.sample(questions, 10)
    # Half with the answer's sentence, half with any.
    documents = [english[q.paragraph].sentences[q.sentence] for q in chosen[:5]]
    documents += [rng.choice(english).sentences[0] for _ in chosen[5:]]
    found = check(tokenizer(name), bundled(f"{language}-en"), [q.text for q in chosen], documents)
    assert sum(not is_identity(one) for one in found[:5]) == 5
    links = sum(((one > 0) & (one < one.max(axis=1, keepdims=True) - 1e-9)).sum() for one in found)
    assert links > 20  # not only pieces of one word


@pytest.mark.parametrize("name", ["e5-small", "minilm-l6-en"])
def test_real_documents_of_several_passages(name):
    questions, english = xquad_r.load("de").questions[:4], xquad_r.load("en").paragraphs
    documents = [english[q.paragraph].context for q in questions]
    documents[1] = documents[1][:60]
    found = check(
        tokenizer(name), bundled("de-en"), [q.text for q in questions], documents, max_length=80, document_tokens=150
    )
    assert len(found) > 7


WORDS = st.text("abcde", min_size=1, max_size=4) | st.sampled_from(["aeiou" * 5, "bcdbcdbcd", "2024", "the", "und"])
TEXTS = st.lists(WORDS | st.sampled_from([".", "?!", "-", "a'b", "\u200b", "É"]), max_size=14).map(" ".join)


@given(
    st.dictionaries(WORDS, st.dictionaries(WORDS, st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=8),
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    st.integers(36, 60),
    st.integers(1, 90),
    st.fixed_dictionaries(
        {
            "threshold": st.sampled_from([0.0, 0.3]), "top_k": st.sampled_from([None, 1, 2]),
            "identity": st.sampled_from(["unknown", "always", "never"]), "relate": st.booleans(),
            "stop": st.sampled_from([True, False, ["cab", "the"]]),
        }
    ),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_random_texts_and_tables(entries, rows, max_length, document_tokens, options):
    table = TranslationTable.from_dict(entries, "de", "en", weights="count")
    queries, documents = zip(*rows, strict=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a query of more than")
        check(tokenizer("letters"), table, queries, documents, max_length, document_tokens, **options)


# ---------------------------------------------------------------------------------------------------- case by case


def test_a_pair_by_hand():
    tok = tokenizer("letters")
    assert tok.tokenize("Rot?") == ["r", "##o", "##t", "?"]
    table = TranslationTable.from_dict({"rot": {"zq": 0.75, "ru": 0.25}}, "de", "en")
    #  [CLS] r ##o ##t ? [SEP] z ##q , x [SEP]
    found = matrix("Rot?", "zq, x", table)
    word = [0, 1, 1, 1, 0, 0, 0.75, 0.75, 0, 0, 0]
    target = [0, 0.75, 0.75, 0.75, 0, 0, 1, 1, 0, 0, 0]
    expected = np.eye(11)
    expected[1:4] = np.array(word) / 4.5
    expected[6:8] = np.array(target) / 4.25
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_word_cut_by_a_passage_border_is_a_word_on_both_sides():
    table = TranslationTable.from_dict({"xy": {"z" * 40: 1.0}}, "de", "en")
    # 37 tokens fit beside the query: 40 pieces make two passages of 20.
    first, second = check(tokenizer("letters"), table, ["xy"], ["z" * 40], max_length=42)
    for found in (first, second):
        np.testing.assert_allclose(found[1, [1, 2, *range(4, 24)]], 1 / 22, atol=1e-6)
        np.testing.assert_allclose(found[4, [1, 2, *range(4, 24)]], 1 / 22, atol=1e-6)


def test_a_query_longer_than_the_passage_leaves_room_for_the_document():
    with pytest.warns(UserWarning, match="a query of more than 29 tokens is cut"):
        found = check(tokenizer("letters"), TABLE, ["Hund " * 10 + "Katze"], ["dog cat " * 10], max_length=64)
    assert [len(one) for one in found] == [3 + 29 + 30, 3 + 29 + 30]  # 60 tokens in passages of at most 32
    assert not is_identity(found[0])


def test_both_sides_from_right_to_left():
    table = TranslationTable.from_dict({"كتاب": {"کتابی": 0.5}}, "ar", "fa")
    assert not is_identity(matrix("هذا كِتَاب", "این کتابی", table, tokenizer("e5-small")))


def test_stop_words_of_either_language_have_no_links():
    found = matrix("rot", "the the red")
    assert not attends(found, 1, 5, 11) and attends(found, 1, 11, 14)
    # Their pieces are pieces of a word: each attends to those of its own word.
    np.testing.assert_allclose(found[5:11, 5:11], np.kron(np.eye(2), np.full((3, 3), 1 / 3)), atol=1e-7)
    table = TranslationTable.from_dict({"haus": {"house": 1.0}, "und": {"band": 1.0}}, "de", "en")
    for stop, linked in ((True, False), (False, True), (["Band"], False), (["die"], True)):
        assert bool(matrix("und", "band", table, stop=stop)[1:4, 5:].max() > 0) is linked, stop


def test_models_of_0_1_keep_how_they_linked():
    encoder = PairEncoder(tokenizer("letters"), WordLinker(TABLE, linking=1))
    found = dense(encoder.batch(encoder.pairs(["Haus"], ["the home"])))[0][6:, 6:]
    assert "home" in long_list("en") and is_identity(found)  # without links, and the pieces apart
    assert matrix("Haus", "the home")[9, 1] > 0


@pytest.mark.parametrize(
    ("query", "document", "options", "linked"),
    [
        ("Katze", "kitten", {"threshold": 0.25}, True),
        ("Katze", "kitten", {"threshold": 0.26}, False),
        ("Hund", "cat", {"top_k": 3}, True),
        ("Hund", "cat", {"top_k": 2}, False),
        ("1517", "1517", {}, True),
        ("1517", "1517", {"identity": "never"}, False),
        ("Hund", "hund", {}, False),  # the table knows it,
        ("Hund", "hund", {"threshold": 0.9}, False),  # if only with improbable translations
        ("Hund", "hund", {"identity": "always"}, True),
        ("Hund", "dog", {"identity": "always"}, True),
        ("und", "und", {"identity": "always"}, False),
        ("Katzenhaus", "house", {}, True),
        ("Katzenhaus", "house", {"relate": False}, False),
        ("und", "und", {}, False),
        ("und", "und", {"stop": False}, True),
        ("x y", "z w", {}, False),
    ],
)
def test_settings(query, document, options, linked):
    found, n = matrix(query, document, **options), len(query.replace(" ", ""))
    assert bool(found[1 : n + 1, n + 2 : -1].max() > 0) is linked


def test_identity_is_in_the_normal_form_of_the_documents():
    table = TranslationTable.from_dict({"ev": {"house": 1.0}}, "tr", "en")
    assert matrix("IŞIK", "isik", table)[1, 6] > 0
    vietnamese = TranslationTable.from_dict({"nhà": {"house": 1.0}}, "vi", "en")
    assert matrix("Huế", "hue", vietnamese)[1, 5] > 0


def test_weights_of_other_forms_are_at_most_one():
    table = TranslationTable.from_dict({"bahn": {"rail": 1.0}, "strasse": {"rail": 1.0}}, "de", "en")
    found = matrix("Bahnstrasse", "rail", table)
    np.testing.assert_allclose(found[1, 1], found[1, 13], atol=1e-7)


def test_without_a_linker_there_is_no_matrix():
    encoder = PairEncoder(tokenizer("letters"), None)
    pairs = encoder.pairs(["Katze", ""], ["cat", "dog"])
    assert encoder.batch(pairs).translation is None
    assert (pairs[0].query.words == -1).all() and (pairs[0].document.words == -1).all()


@pytest.mark.parametrize("name", ["letters", "e5-small"])
@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("", ""), ("Katze", ""), ("", "cat"), (" ", "\n\t"), ("?!", "... - ,"), ("Katze", "?"), ("die und", "the of"),
        ("\ud83d Katze\udc00", "\udfff cat \ud800"), ("😀 Katze 👩\u200d👩\u200d👧", "cat😀cat"),
        ("Kat\u200bze Ka\u00adtze", "\u200b\u200b cat\ufeff c\u200dat"), ("\u0301\u0301", "e\u0301\u0301\u0301"),
        ("½ ﬁn ﷺ", "1⁄2 ﬁn"), ("Katze" * 50, "cat" * 200), ("\x00Katze\x00", "\x00cat\x07"), ("Käfig K\u0308atze", "ǆ"),
    ],
)  # fmt: skip
def test_odd_texts(name, query, document):
    # Twice: beside each other, and each with a common text, so that there is padding and something to leak.
    check(tokenizer(name), TABLE, [query], [document])
    check(tokenizer(name), TABLE, [query, "Katze Hund", query], ["dog cat", document, document], max_length=200)


def test_pairs_do_not_leak_links_into_each_other():
    # Each word has its translation in the document of the other pair only, at the same place.
    found = check(tokenizer("letters"), TABLE, ["Katze", "Haus", "Katze"], ["house", "cat", "cat"])
    assert found[0][1:6, 7:].max() == 0 and found[1][1:5, 6:].max() == 0
    assert found[2][1, 7] > 0


def test_apply_and_its_gradient_are_those_of_a_dense_product():
    encoder = PairEncoder(tokenizer("letters"), WordLinker(TABLE))
    batch = encoder.batch(encoder.pairs(["Katze Hund", "Katze"], ["cat dog cat", "hund"]))
    passages, n = batch.input_ids.shape
    values = torch.randn(passages, n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    other = values.clone()
    full = torch.from_numpy(dense(batch))
    upstream = torch.randn(values.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for inputs, product in ((values, batch.translation.apply), (other, full.__matmul__)):
        inputs.requires_grad_()
        (product(inputs) * upstream).sum().backward()
    torch.testing.assert_close(batch.translation.apply(values), full @ other, rtol=0, atol=1e-12)
    torch.testing.assert_close(values.grad, other.grad, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(batch.translation.apply, (values[:, :, :2].detach().requires_grad_(),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_apply_keeps_the_type_and_does_not_change_its_input(dtype):
    encoder = PairEncoder(tokenizer("letters"), WordLinker(TABLE))
    batch = encoder.batch(encoder.pairs(["Katze"], ["cat"]))
    values = torch.randn(1, batch.input_ids.shape[1], 4).to(dtype)
    before = values.clone()
    out = batch.translation.to("cpu").apply(values)
    assert out.dtype is dtype and out.shape == values.shape and torch.equal(values, before)
    expected = torch.from_numpy(dense(batch)) @ before.double()
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=0.03 if dtype is not torch.float32 else 1e-6)


def test_memory_is_linear():
    encoder = PairEncoder(tokenizer("letters"), WordLinker(TABLE), max_length=100_000, document_tokens=90_000)
    batch = encoder.batch(encoder.pairs(["Katze"], ["cat x y z w v. " * 8000]))
    assert sum(part.nbytes for part in batch.translation) < 60 * batch.input_ids.numel()
    assert batch.translation.apply(torch.ones(1, batch.input_ids.shape[1], 1)).allclose(torch.ones(1))
