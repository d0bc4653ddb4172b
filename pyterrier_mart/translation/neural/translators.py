"""NeuralQueryTranslator and NeuralDocumentTranslator: what a translation model makes of queries and documents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_mart import encoders
from pyterrier_mart.characters import without_surrogates
from pyterrier_mart.checks import check_choice, check_flag, check_whole
from pyterrier_mart.devices import DTYPES
from pyterrier_mart.frames import Pipeline, Transformer, texts_of, transformed, warn
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.query_terms import QueryTerms, queries_of
from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation.foreign import check_following
from pyterrier_mart.translation.neural.cache import TranslationCache
from pyterrier_mart.translation.neural.languages import iso_code
from pyterrier_mart.translation.neural.model import Hypothesis, TranslationModel
from pyterrier_mart.translation.neural.sentences import parts, sentences

__all__ = ["NeuralDocumentTranslator", "NeuralQueryTranslator"]

_DOCUMENTS = 256  # of a stream that are translated at a time


class NeuralTranslator(Transformer):
    """What both translators are: a model, and what translations depend on."""

    def prepare(
        self, model: str | os.PathLike[str], source: str, target: str, beams: int, max_length: int,
        batch_tokens: int | None, cache: str | os.PathLike[str] | None, dtype: str, device: str | None, verbose: bool,
    ) -> None:  # fmt: skip
        """Checks and keeps the settings."""
        self.model, self.source, self.target = encoders.anchored(model), source, target
        self.beams, self.max_length, self.batch_tokens = beams, max_length, batch_tokens
        self.cache = None if cache is None else os.path.abspath(cache)
        self.dtype, self.device, self.verbose = dtype, device, verbose
        check_whole("beams", beams)
        check_whole("max_length", max_length, 8)
        check_whole("batch_tokens", batch_tokens, optional=True)
        check_choice("dtype", dtype, DTYPES)
        self._loaded: tuple[object, TranslationModel] | None = None

    def loaded(self) -> TranslationModel:
        """Returns the model, of which the weights may not be loaded yet."""
        options = {name: getattr(self, name) for name in ("beams", "max_length", "batch_tokens", "dtype", "device")}
        key = (os.fspath(self.model), self.source, self.target, *options.values())
        if self._loaded is None or self._loaded[0] != key:  # searches for the best parameters set attributes
            self._loaded = key, TranslationModel(self.model, self.source, self.target, **options)
        return self._loaded[1]

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Returns the best translations of texts, sentence by sentence; the white space between sentences stays."""
        return ["".join(best[0].text + space for best, space in pieces) for pieces in self.hypotheses(texts)]

    def hypotheses(self, texts: Sequence[str], n_best: int = 1) -> list[list[tuple[list[Hypothesis], str]]]:
        """Returns, for each sentence of each text, its ``n_best`` translations and the white space that follows.

        A warning counts sentences that are translated in parts for their length, and translations that are cut off.
        """
        texts = list(map(without_surrogates, texts))
        split = {
            text: [(self.pieces(sentence), space) for sentence, space in sentences(text)]
            for text in dict.fromkeys(texts)
        }
        counts = [len(pieces) for each in split.values() for pieces, _ in each]
        if long := sum(count > 1 for count in counts):
            warn(
                f"{long} of {len(counts)} sentences are longer than max_length={self.max_length} tokens, and "
                "translated in parts"
            )
        wanted = list(dict.fromkeys(piece for each in split.values() for pieces, _ in each for piece in pieces))
        found: dict[str, list[Hypothesis]] = {}
        cache = None if self.cache is None else TranslationCache(self.cache, self.cache_key(n_best))
        if cache is not None and wanted:
            found = cache.find(wanted)
        if missing := [piece for piece in wanted if piece not in found]:
            model = self.loaded()
            model.cut = 0
            bar = pt.tqdm(total=len(missing), desc=f"translate {self.source}-{self.target}", disable=not self.verbose)
            with bar:
                for batch in model.translate(missing, n_best):
                    if cache is not None:
                        cache.add(batch)
                    found.update(batch)
                    bar.update(len(batch))
            if model.cut:
                warn(
                    f"{model.cut} of {len(missing) * n_best} translations did not end within {model.longest_output} "
                    "tokens and are cut off there"
                )
        return [
            [
                (found[piece], " " if part < len(pieces) else space)
                for pieces, space in split[text]
                for part, piece in enumerate(pieces, start=1)
            ]
            for text in texts
        ]

    def pieces(self, sentence: str) -> list[str]:
        """Returns a sentence, in parts if it is too long; the model is asked for tokens only if it may be."""
        # There are not more tokens than bytes, and the few that name languages.
        short = len(sentence.encode()) + 4 <= self.max_length
        return [sentence] if short else parts(sentence, self.loaded().fits)

    def cache_key(self, n_best: int) -> str:
        """Returns everything but the sentence that a translation depends on; the files of a directory by size and time.

        The weights of a model on a hub are taken to be what they were.
        """
        files = Path(self.model).glob("*") if os.path.isdir(self.model) else ()
        states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files)]
        settings = self.source, self.target, self.beams, self.max_length, self.dtype, n_best
        return json.dumps([os.fspath(self.model), states, *settings])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def described(self, **options: Any) -> str:
        """Returns the call that makes this translator; ``options`` are settings with their usual values."""
        usual = {**options, "beams": 4, "max_length": 256, "cache": None, "dtype": "float32"}
        changed = {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        shown = {"source": self.source, "target": self.target, **changed}
        listed = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({os.fspath(self.model)!r}, {listed})"


class NeuralQueryTranslator(NeuralTranslator):
    """Translates queries with a neural translation model, for BM25 in the language of the documents.

    Like :class:`~pyterrier_mart.SMTQueryTranslator`, it adds ``query_toks`` and leaves ``query`` in its language, which
    is what re-rankers read. With ``n_best`` translations, terms that they agree on weigh more: a term's weight is
    its expected frequency, the sum over translations of how often it is there times the translation's probability
    among them (the softmax of the scores of beam search, which are log probabilities by length).

    With ``push=True`` the transformer rewrites ``query`` instead, into the best translation, for engines and readers
    that need text; the original is kept in ``query_0``.

    Models are those of transformers' Marian, NLLB, M2M100 and MADLAD; of the first and third, tokenizers need the
    extra ``nmt``. No code that comes with a model is run, and weights are read from safetensors only. Nothing is
    drawn by chance, and the translation of a query does not depend on others.

    Example::

        >>> nmt = NeuralQueryTranslator("Helsinki-NLP/opus-mt-de-en", source="de", target="en", n_best=5)
        >>> (nmt >> bm25).search("Wo wurde Luther geboren?")
        >>> NeuralQueryTranslator("facebook/nllb-200-distilled-600M", source="en", target="yo", push=True)
        >>> NeuralQueryTranslator("google/madlad400-3b-mt", source="en", target="zh", cache="translations.sqlite")

    Args:
        model: A hub id, or a directory that transformers saved.
        source: The queries' language: an ISO code, or what the model calls it (``"zho_Hant"``).
        target: The documents' language, likewise. Of several scripts an ISO code means the first by name, as in
            ``zho_Hans``.
        n_best: Translations of a query whose terms are in ``query_toks``; at most ``beams``.
        push: Whether ``query`` is rewritten instead of adding ``query_toks``.
        beams: Hypotheses that are pursued in beam search.
        max_length: Tokens of a sentence. Longer ones are translated in parts, which a warning counts. Translations
            have twice as many tokens at most; those that would have more are cut off, which a warning counts.
        batch_tokens: Tokens of a batch, padding included; ``None`` for a number that suits the device.
        analyzer: What spells the terms; ``None`` for ``Analyzer(target)``, as of an index of :func:`bm25_index`.
        cache: A file that translations are kept in and looked for, batch by batch, so that an interrupted run goes on
            where it was. It serves many models and settings, and is an SQLite file of JSON, from which nothing is run.
        dtype: What to compute in: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``, bfloat16 where the
            device computes in it. In half precision, translations depend a little on the batch.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``; ``None`` for the first GPU, or the CPU without one.
        verbose: Whether to show a progress bar.

    Raises:
        ValueError: If an argument is out of range, or there is no analyzer for the target language. Once the model is
            loaded, if it does not have one of the languages.
    """

    schematic = {"label": "Translate", "help_url": HELP_URL}

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        source: str,
        target: str,
        n_best: int = 1,
        push: bool = False,
        beams: int = 4,
        max_length: int = 256,
        batch_tokens: int | None = None,
        analyzer: Analyzer | None = None,
        cache: str | os.PathLike[str] | None = None,
        dtype: str = "float32",
        device: str | None = None,
        verbose: bool = False,
    ):
        self.prepare(model, source, target, beams, max_length, batch_tokens, cache, dtype, device, verbose)
        self.n_best, self.push, self.analyzer = n_best, push, analyzer
        check_whole("n_best", n_best)
        check_flag("push", push)
        if n_best > (1 if push else beams):
            raise ValueError(f"n_best must be at most {'1 with push=True' if push else f'beams={beams}'}, not {n_best}")
        if not push:
            self.speller()

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds ``query_toks``, or rewrites ``query`` where ``push`` is set."""
        pt.validate.columns(inp, includes=["qid", "query"], context=self)
        queries = queries_of(inp)
        if not self.push:
            return inp.assign(query_toks=pd.Series(self.bags(queries), index=inp.index, dtype=object))
        out = pt.model.push_queries(inp.drop(columns="query_toks", errors="ignore"), keep_original=False)
        made = pd.Series(self.translate(queries), index=out.index, dtype="str")
        return out.assign(query=made, **({"query_lang": iso_code(self.target)} if "query_lang" in out else {}))

    def bags(self, queries: Sequence[str]) -> list[QueryTerms]:
        """Returns the weighted terms of queries' translations, the heaviest first."""
        analyzer = self.speller()
        out = []
        for query, pieces in zip(queries, self.hypotheses(queries, self.n_best), strict=True):
            bag: dict[str, float] = {}
            for text, weight in (hypothesis for hypotheses, _ in pieces for hypothesis in hypotheses):
                for term, count in analyzer.counts(text).items():
                    bag[term] = bag.get(term, 0.0) + weight * count
            terms = QueryTerms(sorted(bag.items(), key=lambda item: (-item[1], item[0])))
            terms.spec, terms.query = analyzer.spec, query
            out.append(terms)
        return out

    def speller(self) -> Analyzer:
        """Returns what spells the terms."""
        return self.analyzer or Analyzer(iso_code(self.target))

    def __rshift__(self, right: pt.Transformer) -> Pipeline:
        """Makes a pipeline, with a warning if the index that is searched next has other words than the translations."""
        if not self.push:
            check_following(right, self.speller())
        return super().__rshift__(right)

    def __repr__(self) -> str:
        return self.described(n_best=1, push=False, analyzer=None)


class NeuralDocumentTranslator(NeuralTranslator):
    """Translates documents with a neural translation model, so that queries can stay in their language.

    The text is replaced by its translation, sentence by sentence, and kept in ``text_0``. Nothing is left out: what is
    too long is translated in parts, which a warning counts. Lists and other iterables of documents are
    translated as they come, so that memory does not grow with them.

    Models, languages and everything else are as with :class:`NeuralQueryTranslator`.

    Example::

        >>> mt = NeuralDocumentTranslator("Helsinki-NLP/opus-mt-de-en", source="de", target="en", cache="mt.sqlite")
        >>> index = bm25_index(mt(data.get_corpus_iter()), "translated.index", "en")
        >>> (mt >> pt.IterDictIndexer("folder")).index(data.get_corpus_iter())

    Args:
        model: A hub id, or a directory that transformers saved.
        source: The documents' language: an ISO code, or what the model calls it.
        target: The language to translate into, likewise.
        text_field: The column to translate. The original is kept in this name and ``_0``.
        beams: Hypotheses that are pursued in beam search.
        max_length: Tokens of a sentence; translations have twice as many at most.
        batch_tokens: Tokens of a batch, padding included; ``None`` for a number that suits the device.
        cache: A file that translations are kept in and looked for; the same text is not translated again.
        dtype: What to compute in.
        device: Where to compute.
        verbose: Whether to show a progress bar.

    Raises:
        ValueError: If an argument is out of range. Once the model is loaded, if it does not have one of the languages.
    """

    schematic = {"label": "Translate", "help_url": HELP_URL}

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        source: str,
        target: str,
        text_field: str = "text",
        beams: int = 4,
        max_length: int = 256,
        batch_tokens: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        dtype: str = "float32",
        device: str | None = None,
        verbose: bool = False,
    ):
        self.prepare(model, source, target, beams, max_length, batch_tokens, cache, dtype, device, verbose)
        self.text_field = text_field

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Replaces the text, which is kept beside it."""
        pt.validate.columns(inp, includes=[self.text_field], context=self)
        made = pd.Series(self.translate(texts_of(inp, self.text_field)), index=inp.index, dtype="str")
        added = {f"{self.text_field}_0": inp[self.text_field], self.text_field: made}
        return inp.assign(**added, **({"doc_lang": iso_code(self.target)} if "doc_lang" in inp else {}))

    def transform_iter(self, inp: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        """Translates documents as they come."""
        rows = iter(inp)
        while documents := list(islice(rows, _DOCUMENTS)):
            yield from transformed(self, documents)

    def __repr__(self) -> str:
        return self.described(text_field="text")
