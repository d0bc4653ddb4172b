"""Conversion of packaged encoders, once, into a cache: what is the same for all of them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from filelock import FileLock
from safetensors.numpy import save_file

from pyterrier_mart.artifact import meta_bytes
from pyterrier_mart.files import CACHE_VARIABLE, atomic_directory, in_cache, read_json, sha256

__all__ = [
    "Float", "PackagedEncoder", "bert_config", "cache_dir", "converted", "tokenizer_config", "write_json",
    "write_safetensors", "write_sentence_transformers",
]  # fmt: skip

#: The metadata of a converted encoder. A README.md would be taken for a model card.
_META = "encoder.json"
#: Part of the name of a converted encoder: to be raised when the conversion changes.
_FORMAT_VERSION = 1
#: Larger files are not read whole each time a converted encoder is used.
_LARGE = 1 << 25

Float: TypeAlias = npt.NDArray[np.float32]


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
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "pyterrier_mart"


def converted(encoder: PackagedEncoder) -> Path:
    """Returns the directory of a converted encoder, which is made if need be."""
    try:
        distribution = importlib.metadata.distribution(encoder.package)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(
            f"the encoder \"{encoder.name}\" needs the package {encoder.package}: pip install 'pyterrier-mart[offline]'"
        ) from None
    paths = {name: Path(str(distribution.locate_file(name))) for name in encoder.sha256}
    known = distribution.version == encoder.version
    digests = dict(encoder.sha256) if known else {name: sha256(path) for name, path in paths.items()}
    key = hashlib.sha256(json.dumps([_FORMAT_VERSION, digests], sort_keys=True).encode()).hexdigest()
    directory = cache_dir() / "encoders" / f"{encoder.name}-{key[:16]}"
    if intact(directory):
        return directory
    with in_cache(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{directory}.lock"):
            if not intact(directory):  # another process may have converted it
                source = {"package": encoder.package, "version": distribution.version, "known": known}
                _convert(encoder, paths, {**source, "sha256": digests}, directory)
    return directory


def _convert(encoder: PackagedEncoder, paths: Mapping[str, Path], source: dict[str, Any], directory: Path) -> None:
    contents = {name: path.read_bytes() for name, path in paths.items()}
    for name, content in contents.items():
        if (found := hashlib.sha256(content).hexdigest()) != source["sha256"][name]:
            raise ValueError(
                f"damaged file {paths[name]}: its SHA-256 is {found}, expected {source['sha256'][name]}; install "
                f"{encoder.package} again"
            )
    with atomic_directory(directory, overwrite=True) as tmp:
        try:
            encoder.write(encoder, contents, tmp)
        except (ValueError, KeyError, struct.error) as err:
            where = ", ".join(map(str, paths.values()))
            raise ValueError(f"cannot read the encoder {encoder.name} from {where}: {err}") from err
        files = sorted(path for path in tmp.rglob("*") if path.is_file())
        meta = {
            "type": "encoder",
            "format_version": _FORMAT_VERSION,
            "name": encoder.name,
            "model": encoder.model,
            "licence": encoder.licence,
            "source": source,
            "query_prefix": encoder.query_prefix,
            "document_prefix": encoder.document_prefix,
            "notes": list(encoder.notes),
            "files": {
                path.relative_to(tmp).as_posix(): {"bytes": path.stat().st_size, "sample": sample(path)}
                for path in files
            },
        }
        (tmp / _META).write_bytes(meta_bytes(meta))


def sample(path: Path) -> str:
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


def intact(directory: Path) -> bool:
    """Returns whether a converted encoder is complete and not damaged, as far as samples of its files tell."""
    try:
        files = read_json(directory / _META)["files"]
        return bool(files) and all(sample(directory / name) == file["sample"] for name, file in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def write_json(path: Path, value: Any) -> None:
    """Writes JSON, in a new directory if need be."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def write_safetensors(path: Path, weights: dict[str, Float]) -> None:
    """Writes weights by their names.

    Raises:
        ValueError: If one is not finite.
    """
    for name, values in weights.items():
        if not np.isfinite(values).all():
            raise ValueError(f"the weights {name} are not finite")
    save_file(weights, path, {"format": "pt"})


def write_sentence_transformers(encoder: PackagedEncoder, directory: Path, hidden: int, max_length: int) -> None:
    """Writes what makes sentence-transformers take the mean of the last layer and norm it to length 1."""
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for idx, (path, kind) in enumerate(kinds)
    ]
    write_json(directory / "modules.json", modules)
    write_json(directory / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    pooling = {"word_embedding_dimension": hidden, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    write_json(directory / "1_Pooling" / "config.json", pooling)
    write_json(directory / "2_Normalize" / "config.json", {})
    prompts = {"query": encoder.query_prefix, "document": encoder.document_prefix}
    write_json(
        directory / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )


def bert_config(**config: Any) -> dict[str, Any]:
    """Returns the content of a BERT model's ``config.json``."""
    return {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        **config,
    }


def tokenizer_config(max_length: int, inputs: Sequence[str], **tokens: str) -> dict[str, Any]:
    """Returns the content of ``tokenizer_config.json``."""
    # The general class: those of BERT and XLM-R may build the tokenizer by their own rules instead of reading it.
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": list(inputs),
        "clean_up_tokenization_spaces": False,
        **tokens,
    }
