"""MART as a model: against the formulas, the plain encoders, and what transformers promises of a model."""

import shutil
import warnings
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    GPT2Config,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from pyterrier_mart.mart.attention import QueryLinks, attention, link
from pyterrier_mart.mart.modeling import MartConfig, MartForRanking, MartModel, TranslationHead

KINDS = {
    "bert": (BertConfig, BertModel), "roberta": (RobertaConfig, RobertaModel),
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaModel),
}  # fmt: skip
SIZES = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 66, "initializer_range": 0.3,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def encoder_path(tmp_path_factory):
    """Makes the directory of a tiny random encoder of a kind."""

    @cache
    def path(kind):
        config, model = KINDS[kind]
        torch.manual_seed(3)
        encoder = model(config(**SIZES))
        for name, parameter in encoder.named_parameters():  # biases and layer norms too
            if parameter.dim() == 1:
                nn.init.normal_(parameter, mean=float("LayerNorm.weight" in name), std=0.1)
        directory = tmp_path_factory.mktemp(kind)
        encoder.save_pretrained(directory)
        return directory

    return path


@pytest.fixture(params=list(KINDS))
def kind(request):
    return request.param


@pytest.fixture
def path(kind, encoder_path):
    return encoder_path(kind)


def disturbed(model):
    """Gives the new parameters random values, so that none of them is 0 or 1."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for head in [*model.mart.translation_heads(), model.score]:
            for parameter in head.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


WORDS = np.array([[-1, 0, 0, 1, -1, 2, 2, 3, 3, -1, -1], [-1, 0, 1, -1, 2, 2, 2, -1, -1, -1, -1]], np.int32)
LENGTHS = [10, 8]


def inputs(kind, words=WORDS, lengths=LENGTHS):
    """A batch of two passages of one document each, the second with padding, and M^tr of it."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 100, words.shape, generator=generator)
    mask = (torch.arange(words.shape[1]) < torch.tensor(lengths)[:, None]).long()
    ids = torch.where(mask == 1, ids, 0 if kind == "bert" else 1)
    types = (torch.arange(words.shape[1]) > 4).long().expand(len(words), -1) * mask if kind == "bert" else None
    keys = np.arange(5, dtype=np.uint64)
    queries = [
        QueryLinks(np.array([0, 1, 1]), keys[[0, 0, 1]], np.array([0.5, 0.25, 1.0], np.float32)),
        QueryLinks(np.array([0]), keys[[0]], np.array([0.75], np.float32)),
    ]
    translation = attention(words, [2, 2], link(queries, [keys[:2], keys[:1]]))
    return {
        "input_ids": ids, "attention_mask": mask, "token_type_ids": types, "documents": torch.tensor([0, 1]),
        "translation": translation,
    }  # fmt: skip


def dense_translation():
    """M^tr of the batch above by hand."""
    probabilities = [{(0, 2): 0.5, (1, 2): 0.25, (1, 3): 1.0}, {(0, 2): 0.75}]
    out = torch.eye(WORDS.shape[1], dtype=torch.float64).repeat(2, 1, 1)
    for matrix, words, known in zip(out, WORDS, probabilities, strict=True):
        for i, one in enumerate(words):
            for j, other in enumerate(words):
                if i != j and one >= 0 and other >= 0:
                    matrix[i, j] = 1.0 if one == other else known.get((min(one, other), max(one, other)), 0.0)
    return out / out.sum(2, keepdim=True)


# -------------------------------------------------------------------------------------------------- plain encoders


def plain(kind, path, batch, model, pooler=False):
    """Scores of the plain encoder of transformers with the model's linear layer."""
    encoder = KINDS[kind][1].from_pretrained(path).eval()
    out = encoder(batch["input_ids"], batch["attention_mask"], token_type_ids=batch["token_type_ids"])
    first = out.pooler_output if pooler else out.last_hidden_state[:, 0]
    means = torch.stack([first[batch["documents"] == i].mean(0) for i in batch["documents"].unique()])
    return (means @ model.score.weight.T + model.score.bias).squeeze(1)


@pytest.mark.parametrize("pooling", ["cls", "pooler"])
@pytest.mark.parametrize("documents", [[0, 1], [0, 0], [1, 0]])
@torch.no_grad()
def test_without_mat_layers_it_is_the_plain_encoder(kind, path, pooling, documents):
    model = disturbed(MartForRanking.from_encoder(path, (), pooling=pooling))
    batch = {**inputs(kind), "documents": torch.tensor(documents)}
    expected = plain(kind, path, batch, model, pooling == "pooler")
    torch.testing.assert_close(model(**batch).scores, expected, rtol=0, atol=1e-6)
    assert model.mart.translation_heads() == [] and len(expected) == len(set(documents))


@torch.no_grad()
def test_translation_heads_of_zeros_change_nothing(kind, path):
    model = MartForRanking.from_encoder(path, (0, 1, 2, 3), translation_init="zero")
    batch = inputs(kind)
    torch.testing.assert_close(model(**batch).scores, plain(kind, path, batch, model), rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------------------------------- MAT layers


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def layer_by_hand(layer, h, mask, matrix, heads=4):
    """A MAT layer, formula by formula."""

    def norm(x, module):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.pow(2).mean(-1, keepdim=True) + module.eps).sqrt() * module.weight + module.bias

    def split(x):
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    def linear(x, module):
        return x @ module.weight.T + module.bias

    own = layer.attention.self
    q, k, v = (split(linear(h, part)) for part in (own.query, own.key, own.value))
    logits = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    weights = logits.masked_fill(mask[:, None, None, :] == 0, -torch.inf).softmax(-1)
    mh = linear((weights @ v).transpose(1, 2).reshape(h.shape), layer.attention.output.dense)
    h_mh = norm(h + mh, layer.attention.output.LayerNorm)
    th = linear(matrix @ linear(h, layer.translation.value), layer.translation.output)
    h_th = norm(h + th, layer.translation.LayerNorm)
    mixed = h_mh + h_th
    inner = linear(mixed, layer.intermediate.dense)
    inner = inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
    return norm(mixed + linear(inner, layer.output.dense), layer.output.LayerNorm)


@torch.no_grad()
def test_a_mat_layer_is_what_the_formulas_say(kind, path):
    model = disturbed(MartForRanking.from_encoder(path, (1, 2))).double()
    batch = inputs(kind)
    states = model(**batch, output_hidden_states=True).hidden_states
    assert len(states) == 5 and all(state.shape == (2, 11, 32) for state in states)
    for i in (1, 2):
        layer = model.mart.encoder.encoder.layer[i]
        expected = layer_by_hand(layer, states[i], batch["attention_mask"], dense_translation())
        real = batch["attention_mask"].bool()
        torch.testing.assert_close(states[i + 1][real], expected[real], rtol=0, atol=1e-6)
        without = layer_by_hand(layer, states[i], batch["attention_mask"], torch.eye(11, dtype=torch.float64))
        assert (without - expected)[real].abs().max() > 0.01


def test_initial_translation_heads(path):
    for how, of_norm in (("identity", 1), ("zero", 0)):
        for head in MartForRanking.from_encoder(path, translation_init=how).mart.translation_heads():
            for linear in (head.value, head.output):
                assert torch.equal(linear.weight, torch.eye(32)) and not linear.bias.any()
            assert (head.LayerNorm.weight == of_norm).all() and not head.LayerNorm.bias.any()
    heads = MartForRanking.from_encoder(path, translation_init="random").mart.translation_heads()
    weights = [linear.weight for head in heads for linear in (head.value, head.output)]
    for weight in weights:
        assert abs(weight.std() / 0.3 - 1) < 0.1  # the encoder's initializer_range
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("layers", "expected"), [((-1, 0), [0, 3]), ([2], [2]), ((-4,), [0]), ((), []), ((3, 1), [1, 3])]
)
def test_mat_layers_may_be_any(encoder_path, layers, expected):
    model = MartForRanking.from_encoder(encoder_path("bert"), layers)
    assert model.config.mat_layers == expected and MartConfig(BertConfig(num_hidden_layers=24)).mat_layers == [21, 22]
    found = [i for i, layer in enumerate(model.mart.encoder.encoder.layer) if hasattr(layer, "translation")]
    assert found == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"mat_layers": layers}, "mat_layers must be different layers, numbered 0 to 3 or, from the end, -4 to -1")
          for layers in ((4,), (-5,), (1, 1), (3, -1))),
        ({"pooling": "mean"}, "pooling must be one of cls, pooler, not 'mean'"),
        ({"translation_init": "ones"}, "translation_init must be one of identity, random, zero, not 'ones'"),
    ],
)  # fmt: skip
def test_settings_that_do_not_exist(encoder_path, options, message):
    with pytest.raises(ValueError, match=message):
        MartForRanking.from_encoder(encoder_path("bert"), **options)


@pytest.mark.parametrize("config", [DistilBertConfig(dim=32, n_layers=4, n_heads=4), GPT2Config(n_embd=32, n_head=4)])
def test_other_kinds_of_encoders_are_rejected_before_weights_are_read(tmp_path, config):
    config.save_pretrained(tmp_path)  # and no weights
    with pytest.raises(ValueError, match=f"must be one of bert, roberta, xlm-roberta, not '{config.model_type}'"):
        MartForRanking.from_encoder(tmp_path)


def test_weights_that_a_checkpoint_lacks_are_an_error(encoder_path, tmp_path):
    shutil.copytree(encoder_path("bert"), tmp_path / "damaged")
    weights = load_file(tmp_path / "damaged" / "model.safetensors")
    del weights["encoder.layer.2.output.dense.weight"]
    save_file(weights, tmp_path / "damaged" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights .* encoder\.layer\.2\.output\.dense\.weight"):
        MartForRanking.from_encoder(tmp_path / "damaged")


def test_what_is_random_depends_on_the_seed_only(tmp_path):
    RobertaForMaskedLM(RobertaConfig(**SIZES)).save_pretrained(tmp_path)
    states = []
    for seed in (1, 1, 2):
        torch.rand(1)
        model = MartForRanking.from_encoder(tmp_path, pooling="pooler", translation_init="random", seed=seed)
        pooler, (head, _) = model.mart.encoder.pooler.dense.weight, model.mart.translation_heads()
        states.append((pooler, head.value.weight, head.output.weight))
    for first, again, other in zip(*states, strict=True):
        assert torch.equal(first, again) and not torch.equal(first, other)


# --------------------------------------------------------------------------------------------------- scores


@torch.no_grad()
def test_padding_does_not_change_scores(kind, path):
    model = disturbed(MartForRanking.from_encoder(path))
    batch = inputs(kind)
    together = model(**batch).scores
    for i, n in enumerate(LENGTHS):
        words = WORDS[i : i + 1, :n]
        keys = np.arange(5, dtype=np.uint64)
        links = [
            QueryLinks(np.array([0, 1, 1]), keys[[0, 0, 1]], np.array([0.5, 0.25, 1.0], np.float32)),
            QueryLinks(np.array([0]), keys[[0]], np.array([0.75], np.float32)),
        ][i]
        alone = model(
            batch["input_ids"][i : i + 1, :n], torch.tensor([0]),
            token_type_ids=None if kind != "bert" else batch["token_type_ids"][i : i + 1, :n],
            translation=attention(words, [2], link([links], [keys[: 2 - i]])),
        )  # fmt: skip
        torch.testing.assert_close(alone.scores, together[i : i + 1], rtol=0, atol=1e-6)


@torch.no_grad()
def test_a_documents_score_is_that_of_the_mean_of_its_passages(path):
    model = disturbed(MartForRanking.from_encoder(path))
    ids = torch.randint(5, 100, (6, 9), generator=torch.Generator().manual_seed(0))
    out = model(ids, torch.tensor([0, 0, 0, 1, 2, 2]))
    assert out.scores.shape == (3,) and out.passages.shape == (6,)
    expected = torch.stack([out.passages[:3].mean(), out.passages[3], out.passages[4:].mean()])  # linear in the mean
    torch.testing.assert_close(out.scores, expected, rtol=0, atol=1e-6)
    single = model(ids, torch.arange(6))
    torch.testing.assert_close(single.scores, out.passages, rtol=0, atol=1e-6)


@torch.no_grad()
def test_attention_implementations_agree(kind, path):
    batch = inputs(kind)
    scores = []
    for implementation in ("eager", "sdpa"):
        model = disturbed(MartForRanking.from_encoder(path, attn_implementation=implementation))
        configs = {module.config._attn_implementation for module in model.modules() if hasattr(module, "config")}
        assert configs == {implementation}
        scores.append(model(**batch).scores)
    torch.testing.assert_close(*scores, rtol=0, atol=1e-5)


def gradients(model, batch):
    model.zero_grad()
    scores = model(**batch).scores
    (scores[0] - scores[1] + scores.square().sum()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_all_parameters_are_trained(kind, path):
    model = disturbed(MartForRanking.from_encoder(path))
    found = gradients(model, inputs(kind))
    assert set(found) == {name for name, _ in model.named_parameters()}
    for name, gradient in found.items():
        # A bias of the keys shifts all logits of a row alike.
        assert gradient.isfinite().all() and (gradient.abs().max() > 1e-9 or "key.bias" in name), name


def test_gradient_checkpointing_gives_the_same_gradients(kind, path, monkeypatch):
    model = disturbed(MartForRanking.from_encoder(path)).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    calls = []
    forward = TranslationHead.forward
    monkeypatch.setattr(TranslationHead, "forward", lambda *args: calls.append(1) or forward(*args))
    batch = inputs(kind)
    expected = gradients(model, batch)
    assert len(calls) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # newer versions of transformers call it otherwise
        model.gradient_checkpointing_enable()
    found = gradients(model, batch)
    assert len(calls) == 6  # computed again for the backward pass
    assert set(found) == set(expected)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-6)


@torch.no_grad()
def test_bfloat16_body_with_the_linear_layer_in_float32(kind, path):
    model = disturbed(MartForRanking.from_encoder(path))
    batch = inputs(kind)
    expected = model(**batch).scores
    model.mart.to(torch.bfloat16)
    out = model(**batch)
    assert model.score.weight.dtype is torch.float32 and out.scores.dtype is torch.float32
    assert out.scores.isfinite().all() and out.passages.dtype is torch.float32
    torch.testing.assert_close(out.scores, expected, rtol=0.05, atol=0.05)
    assert not torch.equal(out.scores, out.scores.bfloat16().float())
    with torch.autocast("cpu", torch.bfloat16):
        scores = MartForRanking.from_encoder(path)(**batch).scores
        assert scores.dtype is torch.float32


# ---------------------------------------------------------------------------------------------- loading and saving


@pytest.mark.parametrize("pooling", ["cls", "pooler"])
@torch.no_grad()
def test_a_saved_model_is_the_same_bit_by_bit(kind, path, tmp_path, pooling):
    model = disturbed(MartForRanking.from_encoder(path, (0, 2), pooling=pooling, translation_init="random"))
    model.save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    again, report = MartForRanking.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert again.config.mat_layers == [0, 2] and again.config.pooling == pooling and not again.training
    for (name, one), (other_name, other) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
        assert name == other_name and torch.equal(one, other)
    batch = inputs(kind)
    # Not always to the last bit: the loaded weights are mapped from the file, at other alignments.
    torch.testing.assert_close(again(**batch).scores, model(**batch).scores, rtol=0, atol=1e-6)
    assert torch.equal(model.mart.encoder.embeddings.position_ids, again.mart.encoder.embeddings.position_ids)


@torch.no_grad()
def test_the_auto_classes_know_it(kind, path, tmp_path):
    model = disturbed(MartForRanking.from_encoder(path))
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, MartConfig) and isinstance(config.encoder_config, KINDS[kind][0])
    assert config.hidden_size == 32 and config.num_hidden_layers == 4
    body = AutoModel.from_pretrained(tmp_path)
    assert isinstance(body, MartModel)
    batch = inputs(kind)
    del batch["documents"]
    expected = model.mart(**batch)
    assert expected.pooler_output is None and expected.hidden_states is None
    torch.testing.assert_close(body(**batch).last_hidden_state, expected.last_hidden_state, rtol=0, atol=1e-5)
    assert isinstance(AutoModel.from_config(config), MartModel)


def test_the_linear_layer_depends_on_the_seed_only(path):
    def weight(seed, layers=(-3, -2), **options):
        model = MartForRanking.from_encoder(path, layers, seed=seed, **options)
        assert not model.score.bias.any() and not model.training
        return model.score.weight

    first = weight(7)
    for options in ({}, {"layers": ()}, {"layers": (0, 1, 2, 3)}, {"translation_init": "random"}):
        torch.rand(3)
        assert torch.equal(weight(7, **options), first)
    assert not torch.equal(weight(8), first) and 0.01 < first.std() < 0.03


def test_the_state_of_random_generators_is_not_changed(path, monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    torch.rand(3)
    before = torch.get_rng_state()
    MartForRanking.from_encoder(path, pooling="pooler", translation_init="random")
    assert torch.equal(torch.get_rng_state(), before) and not seeded
