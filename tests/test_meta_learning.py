"""Fast weights, losses and meta-learners on a tiny model; gradients in double precision against independent ones."""

import copy
import math
import os

import numpy as np
import pytest
import torch
from models import bert, words
from safetensors.torch import load, save
from sentence_transformers.sentence_transformer import losses as st_losses
from torch.nn import functional

from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.fast_weights import BackendError, InPlaceFastWeights, fast_weights, select
from pyterrier_mart.meta.inner_loop import PreparedSet, adapt_copy, inner_loop
from pyterrier_mart.meta.learners import LEARNERS, MAML, JointFineTune, MAMLAlign
from pyterrier_mart.meta.losses import TaskLoss, Vectors, cosines, distillation_loss, ranking_loss
from pyterrier_mart.meta.tasks import MetaTask, PairSet, Row, TripletSet

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = ("kl-logits", "loss", "loss-sum", "margin-mse", "mse-embedding")


@pytest.fixture(scope="module")
def original():
    model = load_sentence_transformer(bert(), device="cpu", attention="eager")
    model[0].auto_model.encoder.layer = model[0].auto_model.encoder.layer[:2]
    return model


def copied(model):
    """A copy of a model with the same tokenizer, which takes long to copy."""
    tokenizer = model.tokenizer
    return copy.deepcopy(model, {id(tokenizer): tokenizer})


@pytest.fixture
def encoder(original):
    """In single precision."""
    return TextEncoder(copied(original))


@pytest.fixture
def double(original):
    """In double precision."""
    return TextEncoder(copied(original).double())


def triplets(start, count=2, negatives=1):
    """Queries of a word; their positive has the word and another, negatives have others."""
    w = words()
    queries = {f"q{i}": w[start + i] for i in range(count)}
    documents = {f"p{i}": f"{w[start + i]} {w[start + 500 + i]}" for i in range(count)}
    documents |= {f"n{i}-{j}": w[start + 900 + 7 * i + j] for i in range(count) for j in range(negatives)}
    rows = [Row(f"q{i}", f"p{i}", tuple(f"n{i}-{j}" for j in range(negatives))) for i in range(count)]
    return TripletSet.build(rows, queries, documents, {f"q{i}": {f"p{i}"} for i in range(count)})


def pairs(start, count=4):
    w = words()
    return PairSet(
        tuple(map(str, range(count))),
        tuple(w[start + i] for i in range(count)),
        tuple(f"{w[start + i]} {w[start + 600]}" if i % 2 else w[start + 700 + i] for i in range(count)),
        np.array([1.0 if i % 2 else 0.2 * (i % 3) for i in range(count)], dtype=np.float32),
    )


def a_task(index, sets=3, **options):
    made = [triplets(40 * index + 10 * i, **options) for i in range(sets)]
    return MetaTask(index, *made)


TASKS = [a_task(0), a_task(1)]


def settings(**changes):
    return MetaConfig(**{"inner_lr": 0.02, "inner_steps": 2, "outer_lr": 1e-3, "loss_scale": 5.0, **changes})


def outer(learner, tasks=TASKS):
    """What a meta-step does before AdamW: the log, and the gradient by name."""
    for weight in learner.trained.values():
        weight.grad = None
    log = learner.outer_gradient(tasks)
    return log, {name: w.grad.clone() for name, w in learner.trained.items() if w.grad is not None}


def same(found, expected, tolerance=1e-10):
    assert found.keys() == expected.keys()
    largest = max(value.abs().max().item() for value in expected.values())
    assert largest > 1e-6
    for name in expected:
        torch.testing.assert_close(
            found[name], expected[name], rtol=0, atol=tolerance * largest, msg=lambda m, n=name: f"{n}: {m}"
        )


def weights(encoder):
    return {name: weight.detach().clone() for name, weight in encoder.model.named_parameters()}


def unchanged(encoder, before):
    return all(torch.equal(weight, before[name]) for name, weight in encoder.model.named_parameters())


# ----------------------------------------------------------------------------------------- an implementation to compare


class Plain:
    """MAML-Align's gradient from copies of the model and ``backward``, task by task, as in the paper."""

    def __init__(self, encoder, config):
        self.encoder, self.config = encoder, config

    def copy(self):
        return TextEncoder(copied(self.encoder.model))

    def vectors(self, encoder, of):
        return Vectors(
            torch.cat([encoder.embed(encoder.features([text], "query")) for text in of.queries]),
            torch.cat([encoder.embed(encoder.features([text], "document")) for text in of.documents]),
        )

    def loss(self, encoder, of):
        first, second = self.vectors(encoder, of)
        scores = torch.cosine_similarity(first[:, None], second[None], dim=-1) * self.config.loss_scale
        return -torch.log_softmax(scores, -1)[range(len(of)), list(of.positives)].mean()

    def adapted(self, of, steps):
        encoder = self.copy()
        chosen = [w for n, w in encoder.model.named_parameters() if "embed" not in n]
        for _ in range(steps):
            encoder.model.zero_grad()
            self.loss(encoder, of).backward()
            with torch.no_grad():
                for weight in chosen:
                    if weight.grad is not None:
                        weight -= self.config.inner_lr * weight.grad
        encoder.model.zero_grad()
        return encoder

    @staticmethod
    def gradient(encoder):
        return {n: w.grad for n, w in encoder.model.named_parameters() if w.grad is not None and "embed" not in n}

    def maml(self, tasks):
        total = {}
        for task in tasks:
            phi = self.adapted(task.support_set, self.config.inner_steps)
            ((self.loss(phi, task.query_set) + self.loss(phi, task.query_set2)) / 2 / len(tasks)).backward()
            for name, gradient in self.gradient(phi).items():
                total[name] = total.get(name, 0) + gradient
        return total

    def align(self, tasks):
        config, total, runs = self.config, {}, []
        for task in tasks:
            teacher = self.adapted(task.support_set, config.inner_steps)
            student = self.adapted(task.query_set, config.student_steps)
            at = student if config.kd_at == "post" else self.copy()
            runs.append((task, teacher, student, at))
        # at = the student where it is compared; all tasks at once, with all graphs alive
        losses_t = [self.loss(t, task.query_set) for task, t, _, _ in runs]
        losses_y = [self.loss(at, task.query_set) for task, _, _, at in runs]
        whole = sum(
            (lt + self.loss(s, task.query_set2)) / 2 for lt, (task, _, s, _) in zip(losses_t, runs, strict=True)
        ) / len(tasks)
        both = config.kd == "loss-sum" or not config.kd_detach_teacher
        if config.kd in ("loss", "loss-sum"):
            left = sum(losses_t) if both else sum(losses_t).detach()
            kd = (left - sum(losses_y)) ** 2
            kd = kd / len(tasks) ** 2 if config.kd == "loss" else kd
        else:
            kd = sum(self.distillation(task.query_set, t, at, both) for task, t, _, at in runs) / len(tasks)
        (whole + config.kd_lambda * kd).backward()
        for _, teacher, student, at in runs:
            for encoder in {id(e): e for e in (teacher, student, at)}.values():
                for name, gradient in self.gradient(encoder).items():
                    total[name] = total.get(name, 0) + gradient
        return total

    def distillation(self, of, teacher, student, both):
        t, s = self.vectors(teacher, of), self.vectors(student, of)
        t = t if both else t.detach()
        if self.config.kd == "mse-embedding":
            return ((torch.cat(t) - torch.cat(s)) ** 2).mean()
        a, b = (torch.cosine_similarity(v.first[:, None], v.second[None], dim=-1) for v in (t, s))
        if self.config.kd == "kl-logits":
            tau = self.config.kd_temperature
            p, q = torch.softmax(a / tau, -1), torch.softmax(b / tau, -1)
            return (p * (p / q).log()).sum(-1).mean()
        a, b = (
            torch.stack(
                [x[i, p] - x[i, n] for i, (p, n) in enumerate(zip(of.positives, of.negatives[:, 0], strict=True))]
            )
            for x in (a, b)
        )
        return ((a - b) ** 2).mean()


# ------------------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("backend", ["inplace", "functional"])
def test_maml_has_the_gradient_of_copies_of_the_model(double, backend):
    config = settings(backend=backend)
    before = weights(double)
    _, found = outer(MAML(double, config))
    same(found, Plain(double, config).maml(TASKS))
    assert unchanged(double, before)


@pytest.mark.parametrize(
    ("kind", "at", "detach"),
    [
        *((kind, "pre", True) for kind in KINDS),
        ("kl-logits", "post", False),
        ("loss", "post", False),
        ("margin-mse", "pre", False),
    ],
)
def test_maml_align_has_the_gradient_of_copies_of_the_model(double, kind, at, detach):
    config = settings(kd=kind, kd_at=at, kd_detach_teacher=detach, kd_lambda=0.7, kd_temperature=0.3, inner_steps=1)
    before = weights(double)
    expected = Plain(double, config).align(TASKS)
    for backend in ("inplace", "functional"):
        _, found = outer(MAMLAlign(double, config.replace(backend=backend)))
        same(found, expected, 1e-8)
        assert unchanged(double, before)


@pytest.mark.parametrize("order", ["first", "second"])
@pytest.mark.parametrize("learner", [MAML, MAMLAlign])
def test_learn2learn_agrees(double, learner, order):
    if os.environ.get("CI"):
        import learn2learn  # noqa: F401
    else:
        pytest.importorskip("learn2learn")
    expected_log, expected = outer(learner(double, settings(backend="functional", order=order)))
    before = weights(double)
    log, found = outer(learner(double, settings(backend="learn2learn", order=order)))
    same(found, expected, 1e-6)
    assert log.loss == pytest.approx(expected_log.loss, abs=1e-9)
    assert unchanged(double, before)


def slope(learner, step=1e-5):
    """The derivative of the outer loss in a random direction: by differences, and from the gradient."""
    _, gradient = outer(learner)
    chance = torch.Generator().manual_seed(3)
    direction = {n: torch.randn(g.shape, generator=chance, dtype=g.dtype) for n, g in gradient.items()}
    values = []
    for sign in (1, -2):
        with torch.no_grad():
            for name, towards in direction.items():
                learner.trained[name] += sign * step * towards
        values.append(outer(learner)[0].loss)
    return (values[0] - values[1]) / (2 * step), sum((gradient[n] * d).sum().item() for n, d in direction.items())


@pytest.mark.parametrize(
    ("learner", "changes"),
    [
        (MAML, {"adapt": "last:1"}),
        (MAML, {"loss": "triplet"}),
        *((MAMLAlign, {"kd": kind, "kd_temperature": 0.3}) for kind in KINDS),
        *((MAMLAlign, {"kd": kind, "kd_temperature": 0.3, "kd_at": "post"}) for kind in ("kl-logits", "loss")),
    ],
)
def test_second_order_is_the_derivative_of_the_outer_loss(double, learner, changes):
    config = settings(
        **{
            "backend": "functional",
            "order": "second",
            "kd_detach_teacher": False,
            "inner_lr": 0.1,
            "inner_steps": 1,
            **changes,
        }
    )
    differences, found = slope(learner(double, config))
    assert found == pytest.approx(differences, rel=1e-5)


def test_tasks_one_by_one_are_tasks_together_in_any_order(double):
    learner = MAMLAlign(double, settings())
    _, both = outer(learner)
    _, reverse = outer(learner, TASKS[::-1])
    same(reverse, both, 1e-12)
    alone = [outer(learner, [task])[1] for task in TASKS]
    same({name: (alone[0][name] + alone[1][name]) / 2 for name in both}, both, 1e-12)


def test_maml_align_is_maml_where_all_sets_are_one_and_nothing_is_distilled(double):
    of = triplets(0)
    config = settings(student_steps=2, kd_lambda=0.0)
    log, found = outer(MAMLAlign(double, config), [MetaTask(0, of, of, of)])
    plain, expected = outer(MAML(double, config), [MetaTask(0, of, of)])
    same(found, expected, 1e-12)
    assert log.loss == pytest.approx(plain.loss)


def test_a_student_that_learns_apart(double):
    config = settings(share="separate", kd="kl-logits")
    learner = MAMLAlign(double, config)
    _, found = outer(learner)
    student = {n: g for n, g in found.items() if not n.startswith("teacher.")}
    teacher = {n.removeprefix("teacher."): g for n, g in found.items() if n.startswith("teacher.")}
    # the teacher: MAML from X to Y; the student: what tied training gives it without the teacher's half
    same(teacher, outer(MAML(double, config), [MetaTask(t.index, t.support_set, t.query_set) for t in TASKS])[1])
    _, tied = outer(MAMLAlign(double, config.replace(share="tied")))
    same(student, {name: tied[name] - teacher[name] / 2 for name in tied}, 1e-9)
    own = dict(learner.models[1].named_parameters())
    for name, weight in double.model.named_parameters():
        assert (own[name] is weight) == (name not in learner.selection.trained), name  # frozen weights are there once
    learner.meta_step(TASKS)
    assert not torch.equal(
        own["0.model.encoder.layer.0.output.dense.weight"],
        double.model.get_parameter("0.model.encoder.layer.0.output.dense.weight"),
    )


# ------------------------------------------------------------------------------------------------------------- backends


@pytest.mark.parametrize("backend", ["inplace", "functional"])
def test_weights_are_restored_after_an_exception(encoder, backend):
    before, flags = weights(encoder), {n: p.requires_grad for n, p in encoder.model.named_parameters()}
    config = settings(backend=backend)
    with pytest.raises(KeyError, match="stop"), fast_weights(encoder, config) as fast:
        assert {n for n, p in encoder.model.named_parameters() if p.requires_grad} == set(fast.selection.trained)
        inner_loop(fast, PreparedSet(encoder, triplets(0)), TaskLoss(encoder.model, config), 2, 0.1)
        assert not torch.equal(
            fast.params["0.model.encoder.layer.0.output.dense.weight"],
            before["0.model.encoder.layer.0.output.dense.weight"],
        )
        raise KeyError("stop")
    assert unchanged(encoder, before)
    assert {n: p.requires_grad for n, p in encoder.model.named_parameters()} == flags


def test_a_step_that_fails_changes_nothing(encoder):
    before = weights(encoder)
    with pytest.raises(ValueError, match="tasks 0, 1: the loss is nan.*lower inner_lr"):
        MAML(encoder, settings(inner_lr=1e30)).meta_step(TASKS)
    with pytest.raises(ValueError, match="transfer must have a second query set for maml-align.*not 'mono-bi'"):
        MAMLAlign(encoder, settings(transfer="mono-bi"))
    assert unchanged(encoder, before)
    assert all(weight.grad is None for weight in encoder.model.parameters())


def test_frozen_embeddings_are_neither_copied_nor_given_a_gradient(encoder):
    table = encoder.model.get_parameter("0.model.embeddings.word_embeddings.weight")
    learner = MAML(encoder, settings())
    _, found = outer(learner)
    assert table.grad is None
    assert not any("embeddings" in name for name in (*found, *learner.state()))
    with InPlaceFastWeights(encoder, settings()) as fast:
        assert not fast._saved  # nothing is copied before the first step
        inner_loop(fast, PreparedSet(encoder, triplets(0)), learner.loss, 1, 0.1)
        assert set(fast._saved) == set(learner.selection.adapted)


def test_second_order_needs_eager_attention_and_no_checkpointing():
    model = load_sentence_transformer(bert(), device="cpu")
    second = settings(backend="functional", order="second")
    with pytest.raises(BackendError, match=r"order='second' needs attention='eager', not 'sdpa'"):
        fast_weights(TextEncoder(model), second)
    fast_weights(TextEncoder(model), second.replace(order="first"))
    model[0].auto_model.gradient_checkpointing_enable()
    for config in (settings(backend="functional"), settings(backend="functional", order="first")):
        with pytest.raises(
            BackendError, match="backend='functional' gives wrong gradients with gradient checkpointing"
        ):
            fast_weights(TextEncoder(model), config)
    fast_weights(TextEncoder(model), settings())


def test_checkpointing_in_place_has_the_same_gradient(double):
    for module in double.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    _, expected = outer(MAML(double, settings()))
    double.model[0].auto_model.gradient_checkpointing_enable()
    double.model.train()
    _, found = outer(MAML(double, settings()))
    same(found, expected)


def test_texts_are_encoded_once_in_a_pass_and_tokenised_once_in_all(encoder, monkeypatch):
    w = words()
    queries = {"a": w[0], "b": w[0], "c": w[1]}  # two queries with the same text
    documents = {"x": w[2], "y": w[2], "z": w[3]}
    of = TripletSet.build(
        [Row("a", "x", ("z",)), Row("b", "y", ("z",)), Row("c", "z", ("x",))],
        queries, documents, {"a": {"x"}, "b": {"y"}, "c": {"z"}},
    )  # fmt: skip
    tokenised, encoded = [], []
    features, embed = encoder.features, encoder.embed
    monkeypatch.setattr(encoder, "features", lambda texts, side: tokenised.extend(texts) or features(texts, side))
    monkeypatch.setattr(encoder, "embed", lambda f: encoded.append(len(f["input_ids"])) or embed(f))
    with InPlaceFastWeights(encoder, settings()) as fast:
        prepared = PreparedSet(encoder, of)
        first, second = prepared.vectors(fast)
        inner_loop(fast, prepared, TaskLoss(encoder.model, settings()), 3, 0.01)
    assert sorted(tokenised) == sorted([w[0], w[1], w[2], w[3]])
    assert encoded == [2, 2] * 5  # the vectors, three steps, and a look at what they did
    assert torch.equal(first[0], first[1]) and torch.equal(second[0], second[2])  # x, z, y
    np.testing.assert_allclose(first.detach().numpy(), encoder.encode(of.queries, "query"), atol=1e-6)
    np.testing.assert_allclose(second.detach().numpy(), encoder.encode(of.documents, "document"), atol=1e-6)


def test_long_sets_are_encoded_in_batches(double):
    w = words()
    texts = [" ".join(w[i : i + 1 + i % 90]) for i in range(40)]
    of = PairSet(tuple(map(str, range(40))), tuple(texts), tuple(reversed(texts)), np.zeros(40, np.float32))
    prepared = PreparedSet(double, of)
    assert len(prepared.texts[0].batches) > 1
    with torch.no_grad(), InPlaceFastWeights(double, settings(loss="cosent")) as fast:
        first, second = prepared.vectors(fast)
        for i in (0, 7, 39):
            alone = double.embed(double.features([texts[i]], "query"))[0]
            torch.testing.assert_close(first[i], alone)
            torch.testing.assert_close(second[39 - i], alone)


# ------------------------------------------------------------------------------------------------------------ selection


def test_what_is_trained_and_adapted(encoder):
    names = [name for name, _ in encoder.model.named_parameters()]
    layers = [name for name in names if "layer.1." in name]

    def selected(**changes):
        return select(encoder.model, MetaConfig(**changes))

    default = selected()
    assert default.trained == default.adapted == tuple(name for name in names if ".embeddings." not in name)
    assert selected(freeze=None, adapt="all") == (tuple(names), tuple(names))
    assert selected(freeze=None).adapted == default.adapted
    assert selected(freeze=None).trained == tuple(names)
    assert selected(adapt="all") == default  # what is frozen is not adapted
    last = selected(adapt="last:1")
    assert last.trained == default.trained
    assert [name for name in last.adapted if "pooler" not in name] == layers
    upper = selected(freeze="first:1")
    assert [name for name in upper.trained if "pooler" not in name] == layers
    assert selected(adapt=r"attention.*query").adapted == tuple(name for name in names if ".query." in name)
    assert not set(selected(freeze="bias$").trained) & {name for name in names if name.endswith("bias")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adapt": "no_such"}, r"adapt must match a weight of the model, such as '0\.model\.embeddings.*not 'no_such'"),
        ({"adapt": "("}, r"adapt must be a regular expression, not '\('"),
        ({"adapt": ""}, "adapt must match a weight of the model, .*not ''"),
        ({"adapt": "last:9"}, "adapt must be last:N with N from 1 to the model's 2 layers, not 'last:9'"),
        ({"freeze": "first:x"}, "freeze must be first:N with N from 1 to the model's 2 layers, not 'first:x'"),
        ({"freeze": "."}, "freeze must leave weights to train, not '.'"),
        ({"adapt": "embeddings"}, "adapt must choose weights that are trained .*not 'embeddings'"),
    ],
)
def test_what_selects_no_weights(encoder, changes, message):
    with pytest.raises(ValueError, match=message):
        MAML(encoder, MetaConfig(**changes))


# --------------------------------------------------------------------------------------------------------------- losses


def random_vectors(of, seed=0):
    chance = torch.Generator().manual_seed(seed)
    return Vectors(
        torch.randn(len(of.queries), 8, generator=chance, dtype=torch.float64),
        torch.randn(len(of.documents), 8, generator=chance, dtype=torch.float64),
    )


def test_mnrl_is_that_of_sentence_transformers(encoder):
    of = triplets(0, 5, 2)
    first, second = random_vectors(of)
    compared = [first, second[of.positives], second[of.negatives[:, 0]], second[of.negatives[:, 1]]]
    expected = st_losses.MultipleNegativesRankingLoss(encoder.model).compute_loss_from_embeddings(compared, None)
    torch.testing.assert_close(TaskLoss(encoder.model, MetaConfig())(first, second, of), expected)
    by_name = TaskLoss(encoder.model, MetaConfig(loss="MultipleNegativesRankingLoss"))
    torch.testing.assert_close(by_name(first, second, of), expected)


def test_mnrl_leaves_translations_and_copies_of_the_positive_out():
    texts = {"de": "vier", "el": "tessera", "copy": "vier", "other": "acht", "q2": "neun"}
    of = TripletSet.build(
        [Row("q", "de", ("other",)), Row("q", "el", ("copy",)), Row("r", "q2", ("other",))],
        {"q": "2 + 2", "r": "3 * 3"}, texts, {"q": {"de", "el"}, "r": {"q2"}},
    )  # fmt: skip
    first, second = random_vectors(of)
    scores = 20 * functional.cosine_similarity(first[:, None], second[None], dim=-1)
    at = {docno: scores[0, i] for i, docno in enumerate(of.docnos)}
    others = [at["other"], at["q2"]]
    rows = [
        torch.logsumexp(torch.stack([at["de"], *others]), 0) - at["de"],
        torch.logsumexp(torch.stack([at["el"], *others]), 0) - at["el"],
        torch.logsumexp(scores[1], 0) - scores[1, of.docnos.index("q2")],
    ]
    torch.testing.assert_close(ranking_loss(first, second, of), torch.stack(rows).mean())


def test_triplet_is_that_of_sentence_transformers(encoder):
    of = triplets(0, 3, 2)
    first, second = random_vectors(of)
    theirs = st_losses.TripletLoss(encoder.model, st_losses.TripletDistanceMetric.EUCLIDEAN, 0.7)
    expected = [
        theirs.compute_loss_from_embeddings([first, second[of.positives], second[of.negatives[:, j]]], None)
        for j in range(2)
    ]
    found = TaskLoss(encoder.model, MetaConfig(loss="triplet", triplet_margin=0.7))(first, second, of)
    torch.testing.assert_close(found, sum(expected) / 2)


def test_triplets_of_dot_products(encoder):
    of = triplets(0, 3, 2)
    first, second = random_vectors(of)
    rows = [
        (0.7 - first[a] @ second[p] + first[a] @ second[n]).clamp(min=0)
        for a, p, negatives in zip(of.anchors, of.positives, of.negatives, strict=True) for n in negatives
    ]  # fmt: skip
    assert 0 < sum(row > 0 for row in rows) < len(rows)
    loss = TaskLoss(encoder.model, MetaConfig(loss="triplet-dot", triplet_margin=0.7))
    torch.testing.assert_close(loss(first, second, of), sum(rows) / len(rows))
    nearer = second.clone()
    nearer[of.positives] += 0.1 * first[of.anchors]
    assert loss(first, nearer, of) < loss(first, second, of)


@pytest.mark.parametrize(
    "name",
    [
        "MarginMSELoss",
        "ContrastiveLoss",
        "AnglELoss",
        "DistillKLDivLoss",
        "cosent",
    ],
)
def test_losses_of_sentence_transformers_lower_on_triplets(encoder, name):
    learner = MAML(encoder, settings(loss=name, inner_lr=1e-3))
    log = learner.meta_step([a_task(0, sets=2, negatives=2)])
    assert math.isfinite(log.loss) and log.inner_gain > 0


@pytest.mark.parametrize("name", ["NoSuchLoss", "CachedMultipleNegativesRankingLoss", "EmbedDistillLoss"])
def test_losses_that_do_not_work_from_vectors(encoder, name):
    with pytest.raises(ValueError, match=f"loss must be one of mnrl, triplet.*MarginMSELoss.*not '{name}'"):
        MAML(encoder, settings(loss=name))


def test_losses_of_triplets_do_not_take_pairs(encoder):
    for name in ("mnrl", "triplet", "triplet-dot", "MarginMSELoss"):
        with pytest.raises(ValueError, match=f"loss must be 'cosine-similarity' or 'cosent' for pairs, not '{name}'"):
            MAML(encoder, settings(loss=name)).meta_step([MetaTask(0, pairs(0), pairs(9))])


@pytest.mark.parametrize("name", ["cosine-similarity", "cosent"])
@pytest.mark.parametrize("learner", [MAML, MAMLAlign, JointFineTune])
def test_graded_pairs(encoder, name, learner):
    config = settings(loss=name, inner_lr=1e-3, inner_steps=3)
    tasks = [MetaTask(i, pairs(20 * i), pairs(20 * i + 5), pairs(20 * i + 10)) for i in range(2)]
    logs = [learner(encoder, config).meta_step(tasks) for _ in range(4)]
    assert logs[-1].loss < logs[0].loss
    theirs = getattr(st_losses, {"cosent": "CoSENTLoss"}.get(name, "CosineSimilarityLoss"))(encoder.model)
    first, second = (
        torch.tensor(encoder.encode(side, "query")) for side in (tasks[0].query_set.first, tasks[0].query_set.second)
    )
    expected = theirs.compute_loss_from_embeddings([first, second], torch.tensor(tasks[0].query_set.scores))
    torch.testing.assert_close(TaskLoss(encoder.model, config)(first, second, tasks[0].query_set), expected)


def test_divergence_is_zero_only_for_the_same_ranking():
    of = triplets(0, 4, 2)
    for seed in range(20):
        teacher, student = random_vectors(of, seed), random_vectors(of, seed + 100)
        assert distillation_loss(teacher, student, of) > 0
        for kind in ("kl-logits", "margin-mse", "mse-embedding"):
            assert distillation_loss(teacher, teacher, of, kind) == 0
            assert distillation_loss(teacher, student, of, kind) > 0
    longer = Vectors(2 * teacher.first, 3 * teacher.second)  # the same cosines
    assert distillation_loss(teacher, longer, of).item() == pytest.approx(0, abs=1e-12)
    near = cosines(*teacher, 0.5)
    assert near.shape == (4, 12) and near.abs().max() <= 2
    with pytest.raises(ValueError, match="kind must be kl-logits, margin-mse or mse-embedding.*not 'loss'"):
        distillation_loss(teacher, student, of, "loss")


# ------------------------------------------------------------------------------------------------------------- learners


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("maml-align", {}),
        ("maml-align", {"kd": "loss"}),
        ("maml-align", {"share": "separate"}),
        ("maml-align", {"student_steps": 0, "kd": "loss-sum", "kd_lambda": 0.01}),
        ("maml", {"adapt": "last:1"}),
        ("fine-tune", {}),
    ],
)
def test_meta_steps_learn(encoder, algorithm, changes):
    look = MAML(
        encoder, settings(max_grad_norm=1.0, outer_lr=2e-3, **{k: v for k, v in changes.items() if k == "adapt"})
    )
    before = outer(look)[0].loss
    learner = LEARNERS[algorithm](encoder, settings(outer_lr=2e-3, **changes))
    logs = [learner.meta_step(TASKS) for _ in range(5)]
    assert outer(look)[0].loss < 0.9 * before  # the query loss after adaptation
    for log in logs:
        assert log.grad_norm > 0 and log.seconds > 0
        assert (log.kd >= 0 and log.teacher_loss > 0) if algorithm == "maml-align" else math.isnan(log.kd)
        if algorithm == "fine-tune":
            assert math.isnan(log.inner_gain)
        else:
            assert log.inner_gain == pytest.approx(1 - log.support_after / log.support_before)
            assert log.inner_gain > 0
    assert learner.steps == 5


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("maml", {}),
        ("maml-align", {"share": "separate", "train_mode": True}),
        ("fine-tune", {"warmup_steps": 5, "weight_decay": 0.1}),
    ],
)
def test_a_state_resumes_bit_for_bit(encoder, algorithm, changes):
    config = settings(**changes)
    learner = LEARNERS[algorithm](encoder, config)
    fresh = TextEncoder(copied(encoder.model))
    for _ in range(2):
        learner.meta_step(TASKS)
    state = load(save(learner.state()))
    for _ in range(2):
        learner.meta_step(TASKS)
    other = LEARNERS[algorithm](fresh, config)
    other.load_state(state)
    assert other.steps == 2
    torch.randn(3)  # dropout does not depend on what else is random
    for _ in range(2):
        other.meta_step(TASKS)
    expected, found = learner.state(), other.state()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_state_without_moments(encoder):
    learner = MAML(encoder, settings())
    learner.meta_step(TASKS)
    lean = learner.state(moments=False)
    assert set(lean) == {n for n in learner.state() if not n.startswith("adamw.")}
    learner.load_state(lean)
    assert not learner.optimizer.state


def test_fine_tuning_takes_the_mean_over_rows(double):
    tasks = [MetaTask(0, triplets(0, 3), triplets(20, 1), triplets(40, 2))]
    config = settings()
    log, found = outer(JointFineTune(double, config), tasks)
    plain = Plain(double, config)
    losses = [
        3 * plain.loss(double, tasks[0].support_set),
        plain.loss(double, tasks[0].query_set),
        2 * plain.loss(double, tasks[0].query_set2),
    ]
    double.model.zero_grad()
    (sum(losses) / 6).backward()
    same(found, plain.gradient(double))
    assert log.loss == pytest.approx(sum(losses).item() / 6)


def test_clipping_warm_up_and_decay(encoder):
    learner = MAML(encoder, settings(max_grad_norm=0.5, warmup_steps=4, weight_decay=0.1))
    assert [group["weight_decay"] for group in learner.optimizer.param_groups] == [0.1, 0.0]
    assert all(w.ndim == 1 for w in learner.optimizer.param_groups[1]["params"])
    norms = []
    learner.optimizer.step = lambda: norms.append(
        torch.stack([w.grad.norm() for w in learner.trained.values() if w.grad is not None]).norm().item()
    )
    rates = []
    for _ in range(5):
        log = learner.meta_step(TASKS)
        rates.append(learner.optimizer.param_groups[0]["lr"])
    assert log.grad_norm > 0.5
    assert norms == pytest.approx([0.5] * 5, rel=1e-4)
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3])


def test_dropout_is_on_only_if_asked_for(encoder):
    encoder.model.train()
    config = settings()
    assert outer_loss(encoder, config) == outer_loss(encoder, config)
    noisy = config.replace(train_mode=True)
    assert outer_loss(encoder, noisy) != outer_loss(encoder, config)
    assert outer_loss(encoder, noisy) == outer_loss(encoder, noisy)
    assert outer_loss(encoder, noisy.replace(seed=1)) != outer_loss(encoder, noisy)
    assert encoder.model.training


def outer_loss(encoder, config):
    """Of a meta-step of a copy."""
    return MAML(TextEncoder(copied(encoder.model)), config).meta_step(TASKS).loss


def test_adapting_a_copy(encoder):
    before = weights(encoder)
    of = triplets(0, 4)
    config = settings(inner_lr=0.05, backend="functional", order="second")
    adapted = adapt_copy(encoder, [of], config, steps=5)
    assert unchanged(encoder, before)
    assert not unchanged(adapted, before)
    assert torch.equal(
        adapted.model.get_parameter("0.model.embeddings.word_embeddings.weight"),
        before["0.model.embeddings.word_embeddings.weight"],
    )

    def loss(encoder):
        vectors = (torch.tensor(encoder.encode(*e)) for e in ((of.queries, "query"), (of.documents, "document")))
        return TaskLoss(encoder.model, config)(*vectors, of).item()

    assert loss(adapted) < loss(encoder)
    one_by_one = adapt_copy(encoder, [of, of], config, steps=2)
    four = weights(adapt_copy(encoder, [of], config, steps=4))
    assert unchanged(one_by_one, four)
    assert unchanged(adapt_copy(encoder, [of], config, steps=0), before)
