"""MARTReRanker as a transformer: its settings, what it keeps, and what it refuses."""

import hashlib
import json
import pickle
import shutil
import warnings

import models
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from safetensors.torch import load_file, save_file

from pyterrier_mart import MARTReRanker, SMTQueryTranslator, TrainingOptions, TranslationTable, bm25_index
from pyterrier_mart.artifact import weights_digest
from pyterrier_mart.mart import reranker, training

TABLE = TranslationTable.from_dict(
    {"katze": {"cat": 0.75, "kitten": 0.25}, "haus": {"house": 0.5, "home": 0.5}}, "de", "en"
)  # fmt: skip
OTHER = TranslationTable.from_dict({"katze": {"cat": 1.0}}, "de", "en")
FRENCH = TranslationTable.from_dict({"katze": {"chat": 1.0}}, "de", "fr")
ROWS = pd.DataFrame(
    {
        "qid": ["1", "1", "1", "2", "2"],
        "query": ["die Katze im Haus"] * 3 + ["Haus"] * 2,
        "docno": ["a", "b", "c", "a", "d"],
        "text": ["the cat is at home", "a kitten in the house", "of rivers", "the cat is at home", "my house " * 200],
    }
)
QRELS = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "d"], "label": [1, 1]})
QUICK = TrainingOptions(epochs=1, learning_rate=0.01, freeze_layers=0, accumulation=1)


pytestmark = pytest.mark.usefixtures("one_thread")


def mart(table=TABLE, **options):
    return MARTReRanker(models.bert(), table, device="cpu", **options)


@pytest.fixture(scope="module")
def trained():
    """A trained re-ranker; tests do not change it."""
    return mart(training=QUICK, max_length=200, threshold=0.3, document_tokens=300).fit(ROWS, QRELS)


@pytest.fixture(scope="module")
def saved(trained, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "mart"
    trained.save(path)
    return path


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of the saved re-ranker, to damage."""
    return shutil.copytree(saved, tmp_path / "copy")


def scores(rank, rows=ROWS):
    return rank(rows)["score"].to_numpy()


def same(one, other):
    # Not bit for bit: where weights lie in memory decides how they are added up.
    return np.allclose(scores(one), scores(other), atol=1e-6)


# ------------------------------------------------------------------------------------------------------------ scoring


def test_an_empty_frame_needs_no_model(tmp_path):
    rank = MARTReRanker(tmp_path / "nothing", TABLE, verbose=True)
    assert list(rank(ROWS.iloc[:0])) == [*ROWS, "score", "rank"]
    with pytest.raises(FileNotFoundError, match="there is no model at .*nothing"):
        rank.load_model()


def test_without_training_a_warning_is_given_once(trained, saved, tmp_path):
    def told(rank):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rank(ROWS), rank(ROWS)
        return [w.filename for w in caught if "has not been trained: its scores mean nothing" in str(w.message)]

    assert told(mart()) == [__file__] and not told(trained) and not told(MARTReRanker.load(saved, device="cpu"))
    mart().save(tmp_path / "untrained")
    assert told(MARTReRanker.load(tmp_path / "untrained", device="cpu")) == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        mart(training=QUICK).fit(ROWS, QRELS, ROWS, QRELS)


def test_the_batch_size_and_the_precision_are_settings():
    assert same(mart(batch_tokens=1), mart())
    half = scores(mart(dtype="bfloat16"))
    assert not np.array_equal(half, scores(mart())) and np.allclose(half, scores(mart()), atol=0.1)


def test_the_table_changes_scores_and_placebo_does_not_read_it():
    assert not same(mart(), mart(OTHER))
    assert same(mart(placebo=True), mart(None, placebo=True)) and not same(mart(), mart(placebo=True))
    assert same(mart(mat_layers=()), mart(None, mat_layers=())) and not same(mart(), mart(mat_layers=()))


def test_bars_are_shown_when_asked_for(capsys):
    mart(verbose=True)(ROWS)
    assert "MART" in capsys.readouterr().err
    mart(verbose=True, training=QUICK).fit(ROWS, QRELS, ROWS, QRELS)
    assert "training" in capsys.readouterr().err
    mart(training=QUICK).fit(ROWS, QRELS, ROWS, QRELS)
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": None}, "table is missing: name one, such as 'de-en'"),
        ({"placebo": "no"}, "placebo must be True or False, not 'no'"),
        ({"stop": "die"}, "stop must be True, False or a collection of words, not 'die'"),
        ({"stop": [1]}, r"stop must be True, False or a collection of words, not \[1\]"),
        ({"identity": True}, "identity must be one of unknown, always, never, not True"),
        ({"threshold": 1.5}, r"threshold must be in \[0, 1\], not 1.5"),
        ({"top_k": 0}, "top_k must be None or a whole number >= 1, not 0"),
        ({"batch_tokens": True}, "batch_tokens must be None or a whole number >= 1, not True"),
        ({"document_tokens": 0.5}, "document_tokens must be a whole number >= 1, not 0.5"),
        ({"dtype": "int4"}, "dtype must be one of auto, float32, bfloat16, float16, not 'int4'"),
        ({"table": "xx-yy"}, "xx-yy"),
    ],
)
def test_wrong_settings_are_refused_at_once(options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        mart(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mat_layers": (4,)}, "mat_layers must be different layers, numbered 0 to 3"),
        ({"max_length": 20}, "max_length must be at least 36"),
        ({"device": "gpu"}, "device must be auto, cpu"),
    ],
)
def test_settings_that_do_not_fit_the_encoder_or_the_machine(options, message):
    with pytest.raises(ValueError, match=message):
        MARTReRanker(models.bert(), TABLE, **options)(ROWS)


def test_no_more_is_read_than_the_encoder_can_take():
    rank = mart(max_length=10_000)
    assert rank.scorer().encoder.max_length == 512
    config = rank.load_model().config.encoder_config
    config.model_type, config.pad_token_id = "xlm-roberta", 1
    assert rank.loaded().longest == 510  # RoBERTa's positions begin after the padding token's number


def test_attributes_may_be_set():
    rank = mart()
    before = scores(rank)
    for name, value in (("threshold", 0.6), ("top_k", 1), ("table", OTHER), ("mat_layers", [0]), ("placebo", True),
                        ("document_tokens", 50), ("pooling", "pooler"), ("batch_tokens", 1)):  # fmt: skip
        rank = mart()
        rank(ROWS)
        setattr(rank, name, value)
        assert same(rank, mart(**{name: value})), f"{name} is not used when set later"
        assert name == "batch_tokens" or not np.array_equal(scores(rank), before), f"{name} changes nothing"
        assert name == "batch_tokens" or rank != mart()


# -------------------------------------------------------------------------------------- queries translated elsewhere


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    """Documents, and BM25 of them."""
    pytest.importorskip("pyterrier_pisa")
    texts = dict(zip(ROWS["docno"], ROWS["text"], strict=True))
    documents = [{"docno": docno, "text": text} for docno, text in texts.items()]
    path = tmp_path_factory.mktemp("index") / "index"
    loader = pt.apply.text(lambda row: texts[row["docno"]])
    return bm25_index(documents, path, "en", engine="pisa", progress=False).bm25() % 10 >> loader


def test_a_table_of_another_target_language_is_refused(english):
    topics = pd.DataFrame({"qid": ["1"], "query": ["Katze"]})
    first_stage = SMTQueryTranslator(TABLE) >> english
    assert len((first_stage >> mart())(topics)) == 2
    message = "translated to 'en' .* the re-ranker's table is for documents in 'fr'"
    with pytest.raises(ValueError, match=message):
        (first_stage >> mart(FRENCH))(topics)
    with pytest.raises(ValueError, match=f"the queries of topics_or_res_tr were {message}"):
        (first_stage >> mart(FRENCH)).fit(topics, QRELS)
    (first_stage >> mart(FRENCH, placebo=True))(topics)  # does not read it
    (SMTQueryTranslator(TABLE, stemmer=str) >> pt.apply.docno(lambda row: "a") >> pt.apply.text(lambda row: "x")
     >> mart(FRENCH))(topics)  # fmt: skip  # nobody knows what a stemmer makes


# ----------------------------------------------------------------------------------------------------------- training


def test_fit_returns_the_ranker_and_changes_it(trained):
    untrained = mart(training=QUICK, max_length=200, threshold=0.3, document_tokens=300)
    assert not same(untrained, trained) and repr(untrained) != repr(trained)
    before = repr(untrained)
    assert untrained.fit(ROWS, QRELS) is untrained
    assert same(untrained, trained)
    assert repr(untrained) == repr(trained) != before and "weights" in repr(trained)
    assert [entry["epoch"] for entry in trained.history if "loss" in entry] == [1.0]
    assert repr(untrained.fit(ROWS, QRELS.iloc[:1])) != repr(trained)
    assert repr(untrained.fit(ROWS, QRELS)) == repr(trained)  # from the start


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_training_that_fails_leaves_what_was_there(trained, monkeypatch, error):
    """And not weights that are half trained."""

    def fail(self, model, *args, **kwargs):
        with torch.no_grad():
            model.score.weight.fill_(7.0)
        raise error

    monkeypatch.setattr(training.MartTrainer, "compute_loss", fail)
    rank, untrained = pickle.loads(pickle.dumps(trained)), mart(training=QUICK)
    before = scores(untrained)
    for estimator in (rank, untrained):
        with pytest.raises(error):
            estimator.fit(ROWS, QRELS)
        with pytest.raises(ValueError, match="qrels_va is missing"):
            estimator.fit(ROWS, QRELS, ROWS)
    assert repr(rank) == repr(trained) and same(rank, trained)
    assert repr(untrained) == repr(mart(training=QUICK)) and np.array_equal(scores(untrained), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ROWS.drop(columns="text"), QRELS), "topics_or_res_tr: missing column text; .*text_loader"),
        ((ROWS[["qid", "query"]], QRELS), "topics_or_res_tr: missing column docno, text"),
        ((ROWS.iloc[:0], QRELS), "topics_or_res_tr is empty"),
        ((ROWS, QRELS.drop(columns="label")), "qrels_tr: missing column label"),
        ((ROWS, QRELS, ROWS, None), "qrels_va is missing"),
        ((ROWS, QRELS, ROWS.drop(columns="text"), QRELS), "topics_or_res_va: missing column text"),
        ((ROWS, QRELS, ROWS, QRELS.assign(label=0)), "no validation query has a relevant document"),
    ],
)
def test_nothing_to_learn_from(arguments, message):
    with pytest.raises(ValueError, match=message):
        mart(training=QUICK).fit(*arguments)


def test_a_validation_text_that_is_missing_is_told_to_the_caller():
    rows = ROWS.assign(text=pd.Series([None, *ROWS["text"][1:]], dtype=object))
    with pytest.warns(UserWarning, match="1 of 5 values in the column 'text'") as caught:
        mart(training=QUICK).fit(ROWS, QRELS, rows, QRELS)
    assert {w.filename for w in caught if "values" in str(w.message)} == {__file__}


# ------------------------------------------------------------------------------------------------------------ identity


def test_weights_that_can_be_loaded_are_not_pickled(trained):
    untrained = mart()
    untrained(ROWS)
    assert len(pickle.dumps(untrained)) < 20_000 < len(pickle.dumps(trained))
    assert pickle.loads(pickle.dumps(trained)).history == trained.history


def test_a_copy_with_other_settings_keeps_the_weights(trained):
    copy = pt.inspect.transformer_apply_attributes(trained, batch_tokens=1)
    assert repr(copy) == repr(trained) and same(copy, trained)
    assert copy.batch_tokens == 1 and trained.batch_tokens is None
    assert repr(pt.inspect.transformer_apply_attributes(trained, threshold=0.0)) != repr(trained)
    elsewhere = pt.inspect.transformer_apply_attributes(trained, device="meta")  # which takes no weights along
    assert elsewhere.scorer().device.type == "meta" and same(copy, trained) and repr(elsewhere) == repr(trained)
    assert pt.inspect.transformer_apply_attributes(trained, mat_layers=(0,)).weights is None
    with pytest.raises(TypeError, match="no_such"):
        pt.inspect.transformer_apply_attributes(trained, no_such=1)


def test_repr_tells_what_is_not_the_default(trained):
    rank = MARTReRanker("e5-small", None, mat_layers=())
    assert repr(rank) == "MARTReRanker('e5-small', None, mat_layers=())"
    assert repr(mart(top_k=3, text_field="body", training=TrainingOptions(epochs=2))) == (
        f"MARTReRanker({str(models.bert())!r}, {TABLE!r}, top_k=3, text_field='body', "
        "training=TrainingOptions(epochs=2))"
    )
    assert f"weights {trained.weights[:8]}" in repr(trained)


# ------------------------------------------------------------------------------------------------------------- on disk


def test_what_was_saved_scores_as_before(trained, saved):
    loaded = MARTReRanker.load(saved, device="cpu", batch_tokens=300, verbose=False)
    assert same(loaded, trained)
    for name in (*reranker._SETTINGS, "table", "mat_layers", "pooling", "translation_init", "history"):
        mine, theirs = getattr(loaded, name), getattr(trained, name)
        assert mine == theirs or (list(mine) == [layer % 4 for layer in theirs]), name
    assert loaded.batch_tokens == 300 and loaded.weights == trained.weights


def test_every_setting_is_saved(tmp_path):
    rank = mart(
        OTHER, mat_layers=(0, 2), placebo=True, pooling="pooler", translation_init="zero", max_length=100,
        document_tokens=90, threshold=0.25, top_k=2, identity="always", relate=False, stop=["im", "in"],
        text_field="body",
    )  # fmt: skip
    rank.save(tmp_path / "one")
    loaded = MARTReRanker.load(tmp_path / "one", device="cpu")
    for name in (*reranker._SETTINGS, "table", "mat_layers", "pooling", "translation_init"):
        assert getattr(loaded, name) == getattr(rank, name), name
    rows = ROWS.rename(columns={"text": "body"})
    assert np.allclose(scores(loaded, rows), scores(rank, rows), atol=1e-6)


def test_a_model_of_0_1_links_words_as_it_did(trained, saved, tmp_path):
    def load(**settings):
        path = tmp_path / f"old-{settings['identity_matches']}"
        shutil.copytree(saved, path)
        meta = json.loads((path / "pt_meta.json").read_text())
        old = {name: value for name, value in meta["settings"].items() if name not in ("identity", "linking")}
        (path / "pt_meta.json").write_text(json.dumps({**meta, "settings": {**old, **settings}}))
        loaded = MARTReRanker.load(path, device="cpu")
        loaded.save(tmp_path / "again", overwrite=True)
        assert same(MARTReRanker.load(tmp_path / "again", device="cpu"), loaded)
        return loaded

    for matches, identity in ((True, "unknown"), (False, "never")):
        loaded = load(identity_matches=matches)
        assert loaded.identity == identity and loaded.linking == 1 and loaded.stop is True
    assert not same(loaded, trained)  # "die" and "im" are stop words of several pieces


def test_nothing_saved_is_a_pickle(saved):
    names = sorted(path.relative_to(saved).as_posix() for path in saved.rglob("*") if path.is_file())
    assert {"pt_meta.json", "model.safetensors", "config.json", "tokenizer.json", "table/pt_meta.json"} <= set(names)
    for name in names:
        content = (saved / name).read_bytes()
        assert name.endswith((".json", ".safetensors", ".txt", ".npy", ".bin", ".jinja")) and content[:2] != b"PK", name
        with pytest.raises(Exception):  # noqa: B017
            pickle.loads(content)


def test_what_was_loaded_can_be_saved_and_trained(trained, saved, tmp_path):
    loaded = MARTReRanker.load(saved, device="cpu")
    loaded.save(tmp_path / "again")
    one, two = (json.loads((path / "pt_meta.json").read_text()) for path in (saved, tmp_path / "again"))
    assert one["encoder"] == two["encoder"] == str(models.bert())
    assert same(MARTReRanker.load(tmp_path / "again", device="cpu"), trained)
    loaded.training = QUICK
    loaded.mat_layers = (-3, -2)
    assert loaded.fit(ROWS, QRELS).weights == trained.weights, "training did not start from the encoder"


def test_baselines_without_a_table_are_saved(tmp_path):
    for name, options in (("plain", {"mat_layers": ()}), ("placebo", {"placebo": True})):
        rank = mart(None, **options)
        rank.save(tmp_path / name)
        loaded = MARTReRanker.load(tmp_path / name, device="cpu")
        assert loaded.table is None and same(loaded, rank)
        with pytest.raises(ValueError, match="another translation table"):
            MARTReRanker.load(tmp_path / name, TABLE)


def test_another_table_must_be_accepted(saved, tmp_path):
    with pytest.raises(ValueError, match=f"{TABLE.fingerprint}.*de-en.*{OTHER.fingerprint}.*accept_table=True"):
        MARTReRanker.load(saved, OTHER)
    OTHER.save(tmp_path / "table")
    loaded = MARTReRanker.load(saved, str(tmp_path / "table"), accept_table=True, device="cpu")
    assert loaded.table == OTHER and np.isfinite(scores(loaded)).all()
    assert MARTReRanker.load(saved, TABLE).table == TABLE


def test_nothing_is_overwritten_unasked(saved, trained, tmp_path):
    with pytest.raises(FileExistsError, match="overwrite=True"):
        trained.save(saved)
    rank = mart(None, placebo=True)
    rank.save(tmp_path / "one")
    trained.save(tmp_path / "one", overwrite=True)
    assert same(MARTReRanker.load(tmp_path / "one", device="cpu"), trained)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(FileExistsError, match="pt_meta.json"):
        trained.save(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "x"


def test_something_else_is_not_loaded(tmp_path):
    with pytest.raises(FileNotFoundError, match="no saved MARTReRanker at .*nothing"):
        MARTReRanker.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is no saved MARTReRanker: it has no pt_meta.json"):
        MARTReRanker.load(models.bert())
    TABLE.save(tmp_path / "table")
    with pytest.raises(ValueError, match="is no saved MARTReRanker: pt_meta.json says"):
        MARTReRanker.load(tmp_path / "table")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: meta.pop("settings"), "lacks settings"),
        (lambda meta: meta["settings"].pop("threshold"), "damaged saved MARTReRanker"),
        (lambda meta: meta.update(format_version=2), "its format_version is 2"),
        (lambda meta: meta["settings"].update(table="0123"), "was trained with another translation table"),
    ],
)
def test_damaged_metadata(copied, change, message):
    meta = json.loads((copied / "pt_meta.json").read_text())
    change(meta)
    (copied / "pt_meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=message):
        MARTReRanker.load(copied)


def test_damaged_weights(copied):
    weights = load_file(copied / "model.safetensors")
    lost = {name: value for name, value in weights.items() if name != "score.weight"}
    save_file(lost, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="its weights are not those that were saved"):
        MARTReRanker.load(copied)
    save_file({**weights, "score.bias": weights["score.bias"] + 1}, copied / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip
    with pytest.raises(ValueError, match="its weights are not those that were saved"):
        MARTReRanker.load(copied)


def test_the_fingerprint_of_weights_is_that_of_models_saved_before():
    net = torch.nn.Linear(2, 1)
    values = (("bias", net.bias), ("weight", net.weight))
    content = b"".join(name.encode() + value.detach().numpy().tobytes() for name, value in values)
    assert weights_digest(net) == hashlib.blake2b(content, digest_size=16).hexdigest()
