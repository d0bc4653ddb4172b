"""Tiny translation models of each family: real tokenizers, random weights; and one that learned a few words."""

import json
from functools import cache
from pathlib import Path

import models
import sentencepiece
import torch
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    NllbTokenizer,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)
from transformers.models.m2m_100.modeling_m2m_100 import shift_tokens_right

from pyterrier_mart.datasets import XQuADR
from pyterrier_mart.devices import quiet

_SIZES = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "dropout": 0.0, "attention_dropout": 0.0, "init_std": 1.0,
}  # fmt: skip


@cache
def pieces(symbols: str = "") -> tuple[Path, list[tuple[str, float]]]:
    """A SentencePiece model of German and English questions, and its pieces with their scores."""
    texts = [query for lang in ("de", "en") for query in XQuADR(lang, lang).get_topics()["query"]]
    prefix = models.folder() / f"pieces{len(symbols)}"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(prefix), vocab_size=800, minloglevel=2,
        user_defined_symbols=symbols.split(), num_threads=1,
    )  # fmt: skip
    made = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    return Path(f"{prefix}.model"), [(made.id_to_piece(i), made.get_score(i)) for i in range(len(made))]


def vocabulary(*first: str, last: tuple[str, ...] = ()) -> Path:
    names = [*first, *(name for name, _ in pieces()[1] if name not in first), *last]
    path = models.folder() / f"vocabulary-{len(names)}.json"
    path.write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
    return path


def save(name: str, tokenizer, make) -> Path:
    path = models.folder() / name
    tokenizer.save_pretrained(path)
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(3)
        make().save_pretrained(path)
    return path


@cache
def marian(*codes: str, pair: str = "de-en") -> Path:
    """A Marian model, of several target languages if there are codes. Half of the translations end early."""
    spm = str(pieces()[0])
    source, target = pair.split("-")
    vocab = vocabulary("</s>", "<unk>", last=(*(f">>{code}<<" for code in codes), "<pad>"))
    tokenizer = MarianTokenizer(spm, spm, str(vocab), source_lang=source, target_lang=target)
    pad = tokenizer.pad_token_id

    def make():
        config = MarianConfig(
            vocab_size=len(tokenizer), pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0,
            forced_eos_token_id=0, max_position_embeddings=64, bad_words_ids=[[pad]], **_SIZES,
        )  # fmt: skip
        model = MarianMTModel(config)
        model.final_logits_bias[0, 0] = 12.0
        return model

    return save(f"marian-{pair}-{'-'.join(codes)}", tokenizer, make)


def m2m_config(size: int) -> M2M100Config:
    return M2M100Config(
        vocab_size=size, bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
        max_position_embeddings=64, encoder_layerdrop=0.0, decoder_layerdrop=0.0, **_SIZES,
    )  # fmt: skip


@cache
def m2m100() -> Path:
    """An M2M100 model."""
    vocab = vocabulary("<s>", "<pad>", "</s>", "<unk>")
    tokenizer = M2M100Tokenizer(str(vocab), str(pieces()[0]))
    size = tokenizer.encoder_size + len(tokenizer.lang_token_to_id) + 8
    return save("m2m100", tokenizer, lambda: M2M100ForConditionalGeneration(m2m_config(size)))


@cache
def nllb() -> Path:
    """An NLLB model. Its words are letters."""
    letters = ["▁", *map(chr, range(33, 127))]
    vocab = {name: i for i, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters])}
    tokenizer = NllbTokenizer(vocab=vocab, merges=[])
    return save("nllb", tokenizer, lambda: M2M100ForConditionalGeneration(m2m_config(len(tokenizer))))


@cache
def madlad() -> Path:
    """A MADLAD model: T5, with tokens such as <2en>."""
    first = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    known = pieces("<2en> <2de> <2zh> <2zh_Latn>")[1]
    vocab = first + [piece for piece in known if piece[0] not in ("<s>", "</s>", "<unk>")]
    tokenizer = T5Tokenizer(vocab=vocab, extra_ids=0, additional_special_tokens=[])

    def make():
        config = T5Config(
            vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_decoder_layers=1, num_heads=2,
            dropout_rate=0.0, decoder_start_token_id=0, initializer_factor=3.0, tie_word_embeddings=False,
            feed_forward_proj="gated-gelu",
        )  # fmt: skip
        return T5ForConditionalGeneration(config)

    return save("madlad", tokenizer, make)


#: What :func:`learned` knows: German, English and French.
WORDS = (
    ("Katze", "cat", "chat"), ("Haus", "house", "maison"), ("Wasser", "water", "eau"), ("Stadt", "city", "ville"),
    ("Krieg", "war", "guerre"), ("Welt", "world", "monde"),
)  # fmt: skip


@cache
def learned() -> Path:
    """An M2M100 model that learned to translate :data:`WORDS` into English and French."""
    tokenizer = M2M100Tokenizer.from_pretrained(m2m100(), src_lang="de")
    config = m2m_config(tokenizer.encoder_size + len(tokenizer.lang_token_to_id) + 8)
    config.init_std, config.d_model = 0.05, 32

    def make():
        model = M2M100ForConditionalGeneration(config)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        pairs = [
            (german + mark, words[i], lang)
            for german, *words in WORDS for i, lang in enumerate(("en", "fr")) for mark in ("", "!", "?")
        ]  # fmt: skip
        inputs = tokenizer([german for german, _, _ in pairs], padding=True, return_tensors="pt")
        labels = []
        for _, word, lang in pairs:
            tokenizer.tgt_lang = lang
            labels.append(tokenizer(text_target=word)["input_ids"])
        labels = tokenizer.pad({"input_ids": labels}, return_tensors="pt")["input_ids"]
        before = shift_tokens_right(labels, 1, 2)
        labels[labels == tokenizer.pad_token_id] = -100
        labels[:, 0] = -100  # the language, which is asked for
        for _ in range(80):
            model(**inputs, decoder_input_ids=before, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return model

    return save("learned", tokenizer, make)
