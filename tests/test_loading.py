"""Loading what was downloaded: none of its code is run, nobody is asked, errors name the file, no hub is waited for."""

import http.server
import io
import json
import shutil
import socket
import sys
import threading

import models
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from pyterrier_mart import (
    BM25Index,
    DenseIndex,
    DenseRetriever,
    MARTReRanker,
    MetaSBERTRetriever,
    TranslationTable,
    encoders,
)
from pyterrier_mart.cli.quickstart import check_encoder
from pyterrier_mart.dense.encoder import load_sentence_transformer
from pyterrier_mart.encoders import loading

TABLE = TranslationTable.from_dict({"katze": {"cat": 1.0}}, "de", "en")

#: What starts from an encoder.
STARTERS = {
    "MARTReRanker": lambda path: MARTReRanker(path, TABLE, device="cpu").load_model(),
    "DenseRetriever": lambda path: DenseRetriever(path, device="cpu").load_model(),
    "MetaSBERTRetriever": lambda path: MetaSBERTRetriever(path, device="cpu").load_model(),
}
#: What loads a trained model.
LOADERS = {
    "MARTReRanker.load": lambda path: MARTReRanker.load(path, device="cpu").load_model(),
    "MetaSBERTRetriever.load": lambda path: MetaSBERTRetriever.load(path, device="cpu").load_model(),
}
EVERY = {**STARTERS, **LOADERS}
EVIL = """
Path(__file__).with_name("ran").touch()
class Evil:
    load = from_pretrained = classmethod(lambda cls, *args, **kwargs: cls())
"""

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What each loader reads."""
    folder = tmp_path_factory.mktemp("saved")
    MARTReRanker(models.bert(), TABLE, device="cpu").save(folder / "mart")
    MetaSBERTRetriever(models.bert(), device="cpu").save(folder / "meta")
    shutil.copytree(folder / "meta", folder / "encoder")  # with modules.json
    (folder / "encoder" / "pt_meta.json").unlink()
    paths = {**dict.fromkeys(STARTERS, folder / "encoder"), "MARTReRanker.load": folder / "mart"}
    return {**paths, "MetaSBERTRetriever.load": folder / "meta"}


@pytest.fixture
def copy(saved, tmp_path, monkeypatch):
    """Copies what a loader reads; it may not ask anybody, nor run what is there."""

    class Terminal(io.StringIO):
        def readline(self, *args):
            raise AssertionError("standard input was read")

    monkeypatch.setattr(sys, "stdin", Terminal())

    def copy(name, **changes):
        path = shutil.copytree(saved[name], tmp_path / "copy")
        for file, change in changes.items():
            change_json(path / f"{file}.json", change)
        (path / "evil.py").write_text(EVIL)
        return path

    yield copy
    assert not list(tmp_path.rglob("ran")), "code that came with a model was run"


def change_json(path, change):
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(change(content) if callable(change) else {**content, **change}))


def unsigned(meta):
    """Metadata without checksums: an attacker writes those that fit."""
    return {**meta, "files": {}}


CODE = {
    "tokenizer": {"tokenizer_config": {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]},
                                       "tokenizer_class": "Evil"},
                  "config": {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}},
    "model": {"config": {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}},
    "module": {"modules": lambda modules: [{**each, "type": "evil.Evil"} for each in modules or [{}]]},
}  # fmt: skip


@pytest.mark.parametrize("kind", CODE)
@pytest.mark.parametrize("name", EVERY)
def test_code_of_a_model_is_not_run(copy, name, kind):
    path = copy(name, **CODE[kind], **({"pt_meta": unsigned} if name in LOADERS else {}))
    if (name, kind) in (("MARTReRanker", "module"), ("MARTReRanker.load", "module"), ("MARTReRanker.load", "model")):
        EVERY[name](path)  # does not read what was changed
    else:
        with pytest.raises(ValueError, match="with code that comes with it|cannot read") as caught:
            EVERY[name](path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", EVERY)
def test_code_that_is_not_needed_is_not_run_either(copy, name):
    auto = {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    changes = {"config": {"auto_map": auto}, "tokenizer_config": {"auto_map": auto}}
    if name == "MARTReRanker.load":
        changes["config"] = lambda config: {**config, "encoder_config": {**config["encoder_config"], "auto_map": auto}}
    EVERY[name](copy(name, **changes, **({"pt_meta": unsigned} if name in LOADERS else {})))


@pytest.mark.parametrize("name", EVERY)
def test_weights_in_a_pickle_are_not_read(copy, name):
    path = copy(name, **({"pt_meta": unsigned} if name in LOADERS else {}))
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    torch.save({"never": "read"}, path / "training_args.bin")
    EVERY[name](path)  # the safetensors are there
    (path / "model.safetensors").unlink()
    with pytest.raises((OSError, ValueError), match="model.safetensors") as caught:
        EVERY[name](path)
    assert str(path) in str(caught.value)


def test_modules_with_weights_in_a_pickle(copy):
    path = copy("DenseRetriever")
    (path / "2_Dense").mkdir()
    torch.save({}, path / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"the weights .*2_Dense.pytorch_model.bin are a pickle, which is not read"):
        load_sentence_transformer(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("name", EVERY)
def test_a_damaged_file_is_named(copy, name, file, content):
    path = copy(name)
    (path / file).write_bytes(content)
    with pytest.raises(ValueError, match=file.replace(".", r"\.")) as caught:
        EVERY[name](path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("change", [{"hidden_size": "many"}, {"model_type": 3}, {"num_hidden_layers": "few"}])
@pytest.mark.parametrize("name", STARTERS)
def test_values_that_make_no_sense(copy, name, change):
    path = copy(name, config=change)
    with pytest.raises(ValueError) as caught:
        STARTERS[name](path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("length", [0, 1000])
@pytest.mark.parametrize("name", EVERY)
def test_weights_that_are_cut_off(copy, name, length):
    path = copy(name)
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ValueError, match="weights|model.safetensors|the sentence encoder") as caught:
        EVERY[name](path)
    assert str(path) in str(caught.value)


# -------------------------------------------------------------------------------------------- something else is there


def test_an_artifact_is_read_by_what_wrote_it(saved, tmp_path):
    TABLE.save(tmp_path / "table")
    mart = saved["MARTReRanker.load"]
    for load in (*STARTERS.values(), encoders.resolve, DenseIndex, BM25Index, TranslationTable.load):
        with pytest.raises(ValueError, match=r"MARTReRanker\.load\('.*mart'\) reads"):
            load(str(mart))
    for load in (*STARTERS.values(), MARTReRanker.load, MetaSBERTRetriever.load):
        with pytest.raises(ValueError, match=r"TranslationTable\.load\('.*table'\) reads"):
            load(str(tmp_path / "table"))
    with pytest.raises(ValueError, match=r"MetaSBERTRetriever\.load\('.*meta'\) reads it"):
        MARTReRanker.load(saved["MetaSBERTRetriever.load"])
    with pytest.raises(ValueError, match="it has no pt_meta.json; it is an encoder to start from"):
        MARTReRanker.load(models.bert())
    assert MARTReRanker(saved["MetaSBERTRetriever.load"], TABLE).load_model()  # what it saves is an encoder, too


# ------------------------------------------------------------------------------------------------------------- names


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that says no to everything; returns what it was asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):  # noqa: N802
            asked.append(self.path)
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if "/known/" in self.path else "RepoNotFound")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    point_to(monkeypatch, tmp_path, server.server_port)
    yield asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """A hub that cannot be reached, which nobody waits for."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        point_to(monkeypatch, tmp_path, free.getsockname()[1])

    def sleep(seconds):
        raise AssertionError("waited for the hub")

    monkeypatch.setattr("time.sleep", sleep)


def point_to(monkeypatch, tmp_path, port):
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        f"http://127.0.0.1:{port}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.chdir(tmp_path)


# fmt: off
NAMES = [("e5-smal", "e5-small"), ("E5-Small", "e5-small"), ("bert-base-multilingual-uncasd", "bert-base-multi"),
         ("intfloat/multilingual-e5-smal", "intfloat/multilingual-e5-small or "), ("mart-de-em", "mart-de-en")]
# fmt: on


@pytest.mark.parametrize(("name", "meant"), NAMES)
@pytest.mark.parametrize("load", [*STARTERS.values(), load_sentence_transformer], ids=[*STARTERS, "function"])
def test_a_mistyped_name_is_known_at_once(no_hub, tmp_path, load, name, meant):
    (tmp_path / "mart-de-en").mkdir()
    with pytest.raises(OSError, match=rf"no model '{name}' here \(did you mean {meant}.*cannot be reached"):
        load(name)


def test_the_command_line_says_the_same(no_hub):
    with pytest.raises(ValueError, match=r"--encoder must be .*did you mean minilm-l6-en\?\)"):
        check_encoder("minilm-l6")
    with pytest.raises(FileNotFoundError, match=r"no directory with a config.json \(did you mean e5-small\?\)"):
        encoders.resolve("./e5-smal")


def test_the_hub_is_asked_once(hub):
    with pytest.raises(FileNotFoundError, match=r"neither here nor at http://127.*\(did you mean e5-small\?\)"):
        encoders.find("e5-smal")
    assert len(hub) == 1
    with pytest.raises(FileNotFoundError):
        encoders.find("e5-smal", "sentence-transformers")
    assert [path.split("/resolve")[0] for path in hub[1:]] == ["/e5-smal", "/sentence-transformers/e5-smal"]
    assert encoders.find("known/model") == ("known/model", False)


def test_what_was_downloaded_is_used_without_the_hub(no_hub, tmp_path):
    folder = tmp_path / "cache" / "models--some--model"
    shutil.copytree(models.bert(), folder / "snapshots" / ("0" * 40))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)
    assert encoders.find("some/model") == ("some/model", True)
    for load in STARTERS.values():
        load("some/model")


def test_suggestions():
    assert loading.nearest("e5-smal", ["e5-small"]) == " (did you mean e5-small?)"
    assert loading.nearest("zzz", ["e5-small"]) == ""
