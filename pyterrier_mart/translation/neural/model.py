"""Translation models of transformers: how they are loaded, and how sentences are translated in batches of tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch

from pyterrier_mart import encoders
from pyterrier_mart.devices import quiet, resolve_device, resolve_dtype
from pyterrier_mart.encoders.loading import load_config, load_tokenizer, reading
from pyterrier_mart.translation.neural.languages import FAMILIES, direction

__all__ = ["Hypothesis", "TranslationModel"]

_TOKENS = {"cpu": 1024}  # of a batch, padding included: more are not faster there
_TOKENS_ELSEWHERE = 8192


class Hypothesis(NamedTuple):
    """A translation of a sentence, and its share of the probability of all that were asked for."""

    text: str
    weight: float


class TranslationModel:
    """A model that translates from one language to another. Its weights are loaded when they are first needed.

    Args:
        model: A hub id or a directory.
        source: Language of the sentences, see :func:`~pyterrier_mart.translation.neural.languages.direction`.
        target: Language of the translations.
        beams: Hypotheses that are pursued for each sentence.
        max_length: Tokens of a sentence. Translations have twice as many at most.
        batch_tokens: Tokens of a batch, padding included; ``None`` for a number that suits the device.
        dtype: What to compute in.
        device: Where to compute.

    Raises:
        OSError: If there is no such model.
        ImportError: If its tokenizer needs a package that is not installed.
        ValueError: If it does not have the languages, a file is damaged, or ``max_length`` is too large for it.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        source: str,
        target: str,
        *,
        beams: int,
        max_length: int,
        batch_tokens: int | None,
        dtype: str,
        device: str | None,
    ):
        self.where, self.name = encoders.find(model), os.fspath(model)
        config = load_config(self.where)
        if (family := config.model_type) not in FAMILIES:
            raise ValueError(
                f"{self.name} is of the type {family!r}, and what translates is of {', '.join(FAMILIES)} (Marian; NLLB "
                "and M2M100; MADLAD)"
            )
        try:
            self.tokenizer = load_tokenizer(self.where)
        except ImportError as err:
            raise ImportError(f"the tokenizer of {self.name} needs pip install 'pyterrier-mart[nmt]' ({err})") from err
        self.direction = direction(self.name, family, self.tokenizer, source, target)
        if self.direction.source is not None:
            self.tokenizer.src_lang = self.direction.source
        # T5's positions are relative: it has no such number.
        longest = getattr(config, "max_position_embeddings", None) or 2 * max_length
        if max_length > longest:
            raise ValueError(f"max_length must be at most {longest} for {self.name}, not {max_length}")
        self.max_length, self.longest_output = max_length, min(2 * max_length, longest) - 1
        self.beams, self.dtype = beams, dtype
        self.device = resolve_device(device)
        self.batch_tokens = batch_tokens or _TOKENS.get(self.device.type, _TOKENS_ELSEWHERE)
        self.cut = 0  # translations that did not end

    @cached_property
    def net(self) -> Any:
        """The model on its device."""
        from transformers import AutoModelForSeq2SeqLM

        dtype = resolve_dtype(self.dtype, self.device)
        try:
            with reading(self.where.path, "the weights"):
                net = AutoModelForSeq2SeqLM.from_pretrained(self.where.path, dtype=dtype, **self.where.weights)
        except OSError as err:
            if "safetensors" not in str(err):
                raise
            raise OSError(
                f"{self.name} has no weights as model.safetensors, and others are pickles, which are not read; where "
                "you trust them, write them anew once, with transformers: AutoModelForSeq2SeqLM.from_pretrained("
                f"{self.name!r}).save_pretrained('DIR'), AutoTokenizer likewise, and name DIR here"
            ) from err
        forced = self.direction.forced
        net.generation_config.update(
            num_beams=self.beams, do_sample=False, max_length=None, max_new_tokens=self.longest_output,
            forced_bos_token_id=forced and self.tokenizer.convert_tokens_to_ids(forced),
            forced_eos_token_id=None,  # would hide what does not end
            return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        return net.to(self.device).eval()

    def fits(self, sentence: str) -> bool:
        """Returns whether a sentence has at most ``max_length`` tokens."""
        return len(self.encode([sentence])[0]) <= self.max_length

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of sentences, with those that name languages."""
        texts = [self.direction.prefix + sentence for sentence in sentences]
        with quiet():  # what is longer than the model takes is split
            ids: list[list[int]] = self.tokenizer(texts)["input_ids"]
        return ids

    def translate(self, sentences: Sequence[str], n_best: int = 1) -> Iterator[dict[str, list[Hypothesis]]]:
        """Yields the translations of sentences, batch by batch, the longest first: what does not fit shows soon.

        Args:
            sentences: Different sentences.
            n_best: Hypotheses of each; at most ``beams``.
        """
        tokens = self.encode(sentences)
        order = sorted(range(len(sentences)), key=lambda i: (-len(tokens[i]), sentences[i]))
        while order:
            size = max(1, self.batch_tokens // len(tokens[order[0]]))
            batch, order = order[:size], order[size:]
            found = self.generate([tokens[i] for i in batch], n_best)
            yield {sentences[i]: hypotheses for i, hypotheses in zip(batch, found, strict=True)}

    def generate(self, batch: Sequence[list[int]], n_best: int) -> list[list[Hypothesis]]:
        """Returns the hypotheses for each of a batch's sentences, the best first."""
        inputs = self.tokenizer.pad({"input_ids": batch}, return_tensors="pt").to(self.device)
        with torch.inference_mode(), quiet():
            out = self.net.generate(**inputs, num_return_sequences=n_best)
        sequences = out.sequences[:, 2 if self.direction.forced else 1 :].cpu()
        self.cut += int((sequences != self.tokenizer.eos_token_id).all(1).sum())
        texts = iter(map(str.strip, self.tokenizer.batch_decode(sequences, skip_special_tokens=True)))
        scores = torch.zeros(len(batch)) if self.beams == 1 else out.sequences_scores.double().cpu()
        weights = scores.view(len(batch), n_best).softmax(1).tolist()
        return [[Hypothesis(next(texts), weight) for weight in row] for row in weights]
