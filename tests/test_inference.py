"""Scoring: the same whatever the batches, in bounded memory, and on devices that are too small."""

import gc
import math
import warnings

import models
import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from transformers import AutoTokenizer

from pyterrier_mart import MARTReRanker, TranslationTable, devices
from pyterrier_mart.devices import resolve_device
from pyterrier_mart.mart import inference
from pyterrier_mart.mart.attention import WordLinker
from pyterrier_mart.mart.encoding import PairEncoder
from pyterrier_mart.mart.inference import Scorer
from pyterrier_mart.mart.modeling import MartForRanking

CPU = torch.device("cpu")
WORDS = ["cat", "dog", "house", "river", "mountain", "1517", "paper", "unbelievable", "of", "Zugspitze"]
TABLE = TranslationTable.from_dict({"katze": {"cat": 0.75, "dog": 0.25}, "haus": {"house": 1.0}}, "de", "en")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def rows():
    """Queries and documents from none to several passages of words."""
    random = np.random.default_rng(3)
    lengths = [0, 1, 700, 3, 40, 90, 1200, 7, 150, 20, 2, 300]
    queries = ["Katze Haus", "Wo ist das Haus?", "", "Zugspitze 1517"]
    return [queries[i % 4] for i in range(12)], [" ".join(random.choice(WORDS, n)) for n in lengths]


def make(path, **options):
    net = MartForRanking.from_encoder(path)
    encoder = PairEncoder(AutoTokenizer.from_pretrained(path), WordLinker(TABLE), max_length=128, document_tokens=800)
    return Scorer(net, encoder, CPU, options.pop("dtype", torch.float32), **options)


@pytest.fixture
def scorer():
    return make(models.bert())


def close(one, other):
    np.testing.assert_allclose(one, other, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def expected(rows):
    """Each row on its own."""
    scorer = make(models.bert())
    scores = np.array([scorer.score([q], [d])[0] for q, d in zip(*rows, strict=True)])
    assert np.ptp(scores) > 0.01  # or nothing could differ
    return scores


@pytest.mark.parametrize("tokens", [1, 130, 1000, 100_000])
def test_scores_do_not_depend_on_the_batches(rows, expected, tokens):
    scorer = make(models.bert(), batch_tokens=tokens)
    close(scorer.score(*rows), expected)
    order = np.random.default_rng(tokens).permutation(12)
    close(scorer.score(*([texts[i] for i in order] for texts in rows)), expected[order])


def test_a_long_document_is_several_passages(rows, scorer):
    pairs = scorer.encoder.pairs(*rows)
    assert [pair.passages for pair in pairs][:3] == [1, 1, 7] and pairs[6].passages == 7  # of 800 tokens at most
    scorer.batch_tokens = 2000
    long = [pairs[2], pairs[6]]
    assert [len(rows) for rows in scorer.batches(long)] == [2]
    scorer.batch_tokens = 1000  # 7 passages of 128 tokens
    assert [len(rows) for rows in scorer.batches(long)] == [1, 1] and not list(scorer.batches([]))


def test_no_batch_has_more_tokens_than_asked_for(rows, monkeypatch):
    scorer = make(models.bert(), batch_tokens=1000)
    sizes, forward = [], scorer.model.forward

    def watched(input_ids, **inputs):
        sizes.append((input_ids.numel(), inputs["documents"].max().item() + 1))
        return forward(input_ids=input_ids, **inputs)

    monkeypatch.setattr(scorer.model, "forward", watched)
    scorer.score(*rows)
    assert all(size <= 1000 or documents == 1 for size, documents in sizes)
    assert max(documents for _, documents in sizes) > 1


def test_memory_does_not_grow_with_the_rows(rows, expected, scorer, monkeypatch):
    monkeypatch.setattr(inference, "_ROWS", 4)
    encoded, live, done = [], [], []
    pairs = scorer.encoder.pairs
    monkeypatch.setattr(scorer.encoder, "pairs", lambda q, d: encoded.append(len(q)) or pairs(q, d))

    def count(n):
        done.append(n)
        if sum(done) % 12 == 0:
            live.append(sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()))

    scores = scorer.score(rows[0] * 6, rows[1] * 6, count)
    close(scores, np.tile(expected, 6))
    assert encoded == [4] * 18 and sum(done) == 72
    assert len(live) == 6 and max(live) - min(live) <= 5


# ------------------------------------------------------------------------------------------------------ out of memory


def small_device(scorer, tokens):
    """Lets the device be too small for more than a number of tokens."""
    forward, sizes = scorer.model.forward, []

    def limited(input_ids, **inputs):
        sizes.append(input_ids.numel())
        if input_ids.numel() > tokens:
            raise torch.OutOfMemoryError("there is no more")
        return forward(input_ids=input_ids, **inputs)

    scorer.model.forward = limited
    return sizes


def test_out_of_memory_halves_the_batches(rows, expected):
    scorer = make(models.bert(), batch_tokens=8192)
    sizes = small_device(scorer, 1024)
    with pytest.warns(UserWarning, match="out of memory on cpu") as caught:
        close(scorer.score(*rows), expected)
    # 4096 and 2048 tokens would still not do.
    assert [f"batches of {n} tokens; pass batch_tokens={n} " in str(w.message) for w, n in zip(
        caught, (4096, 2048, 1024), strict=True)] == [True] * 3  # fmt: skip
    assert sum(size > 1024 for size in sizes) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(scorer.score(*rows), expected)  # it is remembered


def test_a_row_that_does_not_fit_raises(rows):
    scorer = make(models.bert(), batch_tokens=300)
    small_device(scorer, 100)
    with warnings.catch_warnings(), pytest.raises(torch.OutOfMemoryError):
        warnings.simplefilter("ignore")
        scorer.score(*rows)


# ----------------------------------------------------------------------------------------------- not finite, precision


def test_scores_that_are_not_finite_raise(rows, scorer):
    with torch.no_grad():
        scorer.model.score.bias.fill_(math.nan)
    with pytest.raises(ValueError, match="12 of 12 scores are not finite: the model's weights are damaged"):
        scorer.score(*rows)


@pytest.mark.parametrize(("dtype", "error"), [(torch.bfloat16, 0.1), (torch.float16, 0.01)])
def test_half_precision_is_close(rows, dtype, error):
    net = MartForRanking.from_encoder(models.bert())
    encoder = PairEncoder(AutoTokenizer.from_pretrained(models.bert()), WordLinker(TABLE), max_length=128)
    full, half = (Scorer(net, encoder, CPU, kind).score(*rows) for kind in (torch.float32, dtype))
    assert all(parameter.dtype == torch.float32 for parameter in net.parameters()), "the model was changed"
    assert 0 < np.abs(half - full).max() < error * full.std()
    assert kendalltau(half, full).statistic > 0.9


@pytest.mark.parametrize("native", [True, False])
def test_only_auto_depends_on_the_processor(monkeypatch, native):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: native, raising=False)
    assert devices.computes_in_bfloat16(CPU) is native
    monkeypatch.setattr(devices, "computes_in_bfloat16", lambda device: native)
    for name in ("float32", "bfloat16", "float16"):
        assert devices.resolve_dtype(name, CPU) is getattr(torch, name)
    assert models.reranker(models.bert(), TABLE).scorer().dtype is torch.float32
    auto = MARTReRanker(models.bert(), TABLE, dtype="auto", device="cpu")
    assert auto.scorer().dtype is (torch.bfloat16 if native else torch.float32)


def test_devices(monkeypatch):
    assert resolve_device("cpu") == CPU and resolve_device(CPU) == CPU
    with pytest.raises(ValueError, match="device must be auto, cpu, cuda, cuda:1, mps, ..., not 'gpu'"):
        resolve_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert resolve_device(None) == resolve_device("auto") == CPU
    for missing in ("cuda", "mps"):
        with pytest.raises(ValueError, match=rf"a GPU that is here \(0 found\), not '{missing}'"):
            resolve_device(missing)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device(None) == torch.device("cuda") and resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ValueError, match=r"a GPU that is here \(2 found\), not 'cuda:2'"):
        resolve_device("cuda:2")
