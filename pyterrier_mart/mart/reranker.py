"""MARTReRanker: the PyTerrier transformer."""

from __future__ import annotations

import copy
import hashlib
import inspect
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_mart import encoders
from pyterrier_mart.artifact import weights_digest
from pyterrier_mart.checks import check_choice, check_flag, check_number, check_stop, check_whole
from pyterrier_mart.devices import DTYPES, resolve_device, resolve_dtype
from pyterrier_mart.frames import Transformer, texts_of, warn
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.mart import artifact
from pyterrier_mart.mart import examples as data
from pyterrier_mart.mart.attention import LINKING, WordLinker
from pyterrier_mart.mart.encoding import PairEncoder
from pyterrier_mart.mart.explanation import Explanation, explain
from pyterrier_mart.mart.inference import LoadedModel, Scorer
from pyterrier_mart.mart.modeling import MartForRanking
from pyterrier_mart.mart.options import TrainingOptions
from pyterrier_mart.mart.training import train
from pyterrier_mart.query_terms import queries_of
from pyterrier_mart.translation import TranslationTable
from pyterrier_mart.translation.lookup import IDENTITIES

__all__ = ["DEFAULT_ENCODER", "MARTReRanker"]

DEFAULT_ENCODER = "bert-base-multilingual-uncased"
# What decides scores besides weights and table; saved with them.
_SETTINGS = (
    "placebo", "max_length", "document_tokens", "threshold", "top_k", "identity", "relate", "stop", "text_field",
)  # fmt: skip


class MARTReRanker(Transformer, pt.Estimator):
    """Re-ranks documents in one language for queries in another with the Mixed Attention Transformer (MART).

    A pretrained multilingual encoder reads query and document together (a cross-encoder); in some of its layers, a
    translation head stands beside the pretrained attention and lets words attend to their translations in the other
    text, weighted by the probabilities of a translation table. Input is ``qid``, ``query`` (source language),
    ``docno`` and ``text`` (target language); the output has ``score`` and ``rank``.

    The linear layer that scores and the translation heads are new, so that a model needs :meth:`fit` before its scores
    mean something.

    A document is read up to its first 800 tokens, in evenly split passages whose representations are averaged. The
    query is never cut, unless it leaves no room for the document.

    Baselines of the paper: ``mat_layers=()`` is the plain cross-encoder (for m²BERT with
    ``"amberoad/bert-multilingual-passage-reranking-msmarco"`` and ``pooling="pooler"``), ``placebo=True`` is MART-PLB,
    the same layers without translations.

    .. cite.dblp:: conf/cikm/HuangBSRA21

    Example::

        >>> data = pt.get_dataset("mart:xquad-r/de-en")
        >>> table = TranslationTable.load("de-en")
        >>> rank = MARTReRanker("bert-base-multilingual-uncased", table, training=TrainingOptions(epochs=5))
        >>> pipe = SMTQueryTranslator(table) >> bm25 % 100 >> data.text_loader() >> rank
        >>> pipe.fit(train_topics, qrels, valid_topics, qrels)
        >>> rank.save("mart-de-en")
        >>> MARTReRanker.load("mart-de-en").explain("Wo liegt die Katze?", "The cat lies on the sofa.")

    Args:
        model: The encoder to start from (a hub id, a directory, or a name of :mod:`pyterrier_mart.encoders` such as
            ``"e5-small"``).
        table: The translation table, or what :meth:`TranslationTable.load` takes, such as ``"de-en"``. It may be left
            out for the baselines.
        mat_layers: The layers with a translation head, numbered from 0 or, with negative numbers, from the end.
        placebo: Whether the translation attention is the identity, whatever the table says (MART-PLB).
        pooling: What represents a passage: ``"cls"``, the last hidden state of its first token, or ``"pooler"``.
        translation_init: How translation heads start: ``"identity"``, ``"random"`` or ``"zero"``, see
            :class:`~pyterrier_mart.mart.modeling.MartConfig`.
        max_length: Tokens of a passage with its query and special tokens; what the encoder can take at most.
        document_tokens: Tokens of a document that are read.
        threshold: Least probability of a translation.
        top_k: Maximum number of translations of a word; ``None`` for all.
        identity: Which query words are their own translations: ``"unknown"`` to the table (names, numbers),
            ``"always"`` (so that every word is linked to itself in the document) or ``"never"``.
        relate: Whether a query word that the table lacks gets the translations of its other forms and parts.
        stop: Whether function words have no links in the translation attention (:mod:`pyterrier_mart.stopwords`),
            or the words of both languages that have none.
        training: How :meth:`fit` trains.
        positives_text: Where :meth:`fit` finds the text of relevant documents that the first stage missed: a dataset
            with a ``text_loader``, a transformer that adds text to documents, or a function from a list of docnos to
            their texts. ``None``: they are left out, with a warning that counts them.
        dtype: What to compute scores in: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``, bfloat16 where
            the device computes in it and float32 elsewhere. In bfloat16, a processor with AVX-512 bf16 is about 3
            times as fast; scores then depend on a batch's other rows (by 2e-3; 21 of 250 ranks) and on the machine.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``; ``None`` or ``"auto"`` for the first GPU, or
            the CPU without one.
        batch_tokens: Tokens of a batch, padding included. Only in half precision, scores depend on it (see ``dtype``).
        text_field: The column with the documents' text.
        verbose: Whether to show progress bars.

    Raises:
        ValueError: If an argument is out of range or a table is missing; the message names the argument. For what
            depends on the encoder (``mat_layers``, ``max_length``, a tokenizer that is not fast), when it is loaded.
        FileNotFoundError: If a table is named that does not exist.
    """

    schematic = {"label": "MART", "help_url": HELP_URL}
    identity: str  # type: ignore[assignment]  # PyTerrier's of this name is asked of the class only

    def __init__(
        self,
        model: str | os.PathLike[str] = DEFAULT_ENCODER,
        table: TranslationTable | str | None = None,
        *,
        mat_layers: Sequence[int] = (-3, -2),
        placebo: bool = False,
        pooling: str = "cls",
        translation_init: str = "identity",
        max_length: int = 512,
        document_tokens: int = 800,
        threshold: float = 0.0,
        top_k: int | None = None,
        identity: str = "unknown",
        relate: bool = True,
        stop: bool | Collection[str] = True,
        training: TrainingOptions | None = None,
        positives_text: Any = None,
        dtype: str = "float32",
        device: str | None = None,
        batch_tokens: int | None = None,
        text_field: str = "text",
        verbose: bool = False,
    ):
        if table is None and mat_layers and not placebo:
            raise ValueError(
                "table is missing: name one, such as 'de-en', or ask for a baseline without translations "
                "(mat_layers=() or placebo=True)"
            )
        self.model = encoders.anchored(model)
        self.table = table if table is None or isinstance(table, TranslationTable) else TranslationTable.load(table)
        self.mat_layers = tuple(mat_layers)
        self.placebo, self.pooling, self.translation_init = placebo, pooling, translation_init
        self.max_length, self.document_tokens = max_length, document_tokens
        self.threshold, self.top_k, self.identity = threshold, top_k, identity
        check_stop(stop)
        self.relate, self.linking, self.stop = relate, LINKING, stop if isinstance(stop, bool) else tuple(sorted(stop))
        self.training, self.positives_text = training, positives_text
        self.dtype, self.device, self.batch_tokens = dtype, device, batch_tokens
        self.text_field, self.verbose = text_field, verbose
        for name in ("placebo", "relate"):
            check_flag(name, getattr(self, name))
        for name in ("max_length", "document_tokens", "top_k", "batch_tokens"):
            check_whole(name, getattr(self, name), optional=name in ("top_k", "batch_tokens"))
        check_number("threshold", threshold, 0, 1)
        check_choice("dtype", dtype, DTYPES)
        check_choice("identity", identity, IDENTITIES)
        self.history: list[dict[str, Any]] | None = None
        self.weights: str | None = None  # a fingerprint, once they are not those that the encoder's name stands for
        self._loaded: LoadedModel | None = None
        self._ready: tuple[object, Scorer] | None = None
        self._warned = False

    # --- scoring ----------------------------------------------------------------------------------------------

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Scores rows and ranks the documents of each query by score."""
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field], context=self)
        out = inp.drop(columns=["score", "rank"], errors="ignore")
        if out.empty:
            return pt.model.add_ranks(out.assign(score=pd.Series(dtype="float64", index=out.index)))
        data.check_language(inp, "the frame", self._target)
        self.warn_untrained()
        queries, documents = queries_of(out), texts_of(out, self.text_field)
        with pt.tqdm(total=len(out), desc="MART", unit="d", disable=not self.verbose) as bar:
            scores = self.scorer().score(queries, documents, bar.update)
        return pt.model.add_ranks(out.assign(score=scores))

    def warn_untrained(self) -> None:
        """Warns, once, that scores mean nothing without training."""
        if not self.trained and not self._warned:
            self._warned = True
            warn("this MARTReRanker has not been trained: its scores mean nothing until fit() or load()")

    @property
    def trained(self) -> bool:
        """Whether weights are those of a training (saving and loading gives one without weights, but no history)."""
        return self.weights is not None and self.history is not None

    def load_model(self) -> MartForRanking:
        """Loads the model now, so that the time of the first query does not contain it, and returns it.

        Raises:
            ValueError: If the encoder does not fit the settings.
            OSError: If there is no such encoder.
        """
        return self.loaded().net

    def scorer(self) -> Scorer:
        """Returns what scores, with the model on its device; the model is loaded if need be."""
        key = (*self._key(), self.dtype, self.device, self.batch_tokens)  # searches for the best set attributes
        if self._ready is None or self._ready[0] != key:
            loaded = self.loaded()
            self._ready = key, self._scorer(loaded.net, self.pair_encoder(loaded))
        return self._ready[1]

    def loaded(self) -> LoadedModel:
        """Returns the model: the trained one, or one with the encoder's weights for the present settings."""
        if self._loaded is None or (self.weights is None and self._loaded.architecture != self._architecture()):
            self._loaded = LoadedModel.new(self.model, *self._architecture()[1:])
        return self._loaded

    def _architecture(self) -> tuple[Any, ...]:
        return os.fspath(self.model), tuple(self.mat_layers), self.pooling, self.translation_init, self._options.seed

    @property
    def _options(self) -> TrainingOptions:
        return self.training or TrainingOptions()

    def pair_encoder(self, loaded: LoadedModel) -> PairEncoder:
        """Returns what makes batches for a model, as the settings say, with nothing remembered."""
        linker = self.linker(self.table) if self.table is not None and self._target is not None else None
        return PairEncoder(loaded.tokenizer, linker, min(self.max_length, loaded.longest), self.document_tokens)

    def _scorer(self, net: MartForRanking, encoder: PairEncoder) -> Scorer:
        device = resolve_device(self.device)
        return Scorer(net, encoder, device, resolve_dtype(self.dtype, device), self.batch_tokens)

    @property
    def _target(self) -> str | None:
        """The language of documents that the table links to; None if the model sees no translations."""
        return self.table.languages[1] if self.table is not None and not self.placebo and len(self.mat_layers) else None

    def linker(self, table: TranslationTable) -> WordLinker:
        """Returns what finds words and their translations in a table, as the settings say."""
        return WordLinker(
            table, threshold=self.threshold, top_k=self.top_k, identity=self.identity, relate=self.relate,
            stop=self.stop, linking=self.linking,
        )  # fmt: skip

    # --- learning ---------------------------------------------------------------------------------------------

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> MARTReRanker:
        """Trains on the results of a first stage and judgments; a pipeline's ``fit`` calls this.

        Fitting again starts from the encoder's weights again.

        Args:
            topics_or_res_tr: The first stage's results for the training queries: qid, query, docno and the text,
                with rank or score.
            qrels_tr: Judgments: qid, docno, label. Labels above 0 are relevant.
            topics_or_res_va: Results for the validation queries. Without them, training runs for all epochs.
            qrels_va: Their judgments.

        Raises:
            ValueError: If there is nothing to learn from, columns are missing, or weights are no longer finite.
        """
        options = self._options
        results = data.results_with_texts(topics_or_res_tr, "topics_or_res_tr", self.text_field, self._target)
        qrels, loader = data.judgments(qrels_tr, "qrels_tr"), data.text_source(self.positives_text, self.text_field)
        examples = data.examples(results, qrels, self.text_field, options.negative_depth, loader)
        valid = data.validation_set(topics_or_res_va, qrels_va, self.text_field, self._target, options)
        loaded = LoadedModel.new(self.model, *self._architecture()[1:])  # an older one stays until this is trained
        encoder = self.pair_encoder(loaded)
        validate, frames = data.validator(valid, self.text_field, lambda net: self._scorer(net, encoder).score)
        content = weights_digest(loaded.net), data.fingerprint(examples, *frames)
        key = repr((self._architecture(), self.settings(), *content))
        self.history = train(
            loaded.net, encoder, examples, options, validate=validate,
            fingerprint=hashlib.sha256(key.encode()).hexdigest()[:16], device=resolve_device(self.device),
            verbose=self.verbose,
        )  # fmt: skip
        self._trained(loaded)
        return self

    def _trained(self, loaded: LoadedModel) -> None:
        loaded.net.eval().requires_grad_(False)
        self._loaded, self._ready, self.weights = loaded, None, weights_digest(loaded.net)

    # --- on disk ----------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Returns what decides scores besides the weights, as JSON values; the table by its fingerprint."""
        table = self.table.fingerprint if self.table is not None else None
        return {**{name: getattr(self, name) for name in _SETTINGS}, "linking": self.linking, "table": table}

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Saves weights, tokenizer, table and settings to a directory.

        Of several processes that train together (``torchrun``), the first one saves; the others return at once.

        Raises:
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
        """
        loaded = self.loaded()
        meta: dict[str, Any] = {"encoder": os.fspath(self.model), "settings": self.settings(), "history": self.history}
        meta["training"] = self._options.as_json()
        artifact.save(path, loaded.net, loaded.tokenizer, self.table, meta, overwrite=overwrite)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        table: TranslationTable | str | None = None,
        *,
        accept_table: bool = False,
        **options: Any,
    ) -> MARTReRanker:
        """Loads what :meth:`save` saved. It scores as before.

        Args:
            path: The directory.
            table: A table to use instead of the saved one.
            accept_table: Whether it may be another one than the model was trained with.
            options: Arguments of the class that are not saved, such as ``dtype``, or in the place of those that were.

        Raises:
            FileNotFoundError: If there is no such directory.
            ValueError: If it holds something else or is damaged, or the table is another one.
        """
        meta, net, tokenizer, table = artifact.read(Path(path).absolute(), (*_SETTINGS, "linking"), table, accept_table)
        settings = dict(meta["settings"])
        linking = settings.pop("linking")
        made = cls(
            meta["encoder"], table, mat_layers=net.config.mat_layers, pooling=net.config.pooling,
            translation_init=net.config.translation_init, **{**settings, **options},
        )  # fmt: skip
        made.linking = linking
        made._trained(LoadedModel(made._architecture(), net, tokenizer))
        made.history = meta.get("history")
        return made

    # --- looking inside ---------------------------------------------------------------------------------------

    def explain(self, query: str, text: str) -> Explanation:
        """Shows what a score is made of: linked words, and the score of each passage.

        Args:
            query: A query in the source language.
            text: The text of a document in the target language.

        Raises:
            ValueError: If one is not text, or the score is not finite (the model's weights are damaged).
        """
        notes = [] if self.trained else ["the model has not been trained: its scores mean nothing yet"]
        if self._target is None:
            reason = "placebo" if len(self.mat_layers) else "no MAT layers"
            notes.append(f"the model sees no translations ({reason}), so there are no links")
        return explain(self.scorer(), query, text, self.table.languages if self.table is not None else None, notes)

    # --- identity ---------------------------------------------------------------------------------------------

    def subtransformers(self) -> dict[str, Any]:
        """There are none (PyTerrier's inspection asks)."""
        return {}

    def apply_attributes(self, **attributes: Any) -> MARTReRanker:
        """Returns a copy with other arguments (PyTerrier's inspection asks), trained if the arguments allow it."""
        made = type(self)(**{**{name: getattr(self, name) for name in _DEFAULTS}, **attributes})
        if self.weights is not None and not set(attributes) & {"model", "mat_layers", "pooling", "translation_init"}:
            made._loaded, made.weights, made.history = self._loaded, self.weights, self.history
            made.linking = self.linking
            if made.device != self.device:  # each stays where it computes
                made._loaded = copy.deepcopy(self._loaded)
        return made

    def _key(self) -> tuple[object, ...]:
        settings = tuple(getattr(self, name) for name in _SETTINGS)
        return *self._architecture(), self.table, settings, self.linking, self.weights

    def __getstate__(self) -> dict[str, Any]:
        # Weights that the encoder's name stands for are loaded again.
        return {**self.__dict__, "_ready": None, "_loaded": self._loaded if self.weights is not None else None}

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in ("mat_layers", "pooling", "translation_init", *_SETTINGS)}
        changed = "".join(f", {name}={value!r}" for name, value in values.items() if value != _DEFAULTS[name])
        training = f", training={self.training!r}" if self.training is not None else ""
        weights = f", weights {self.weights[:8]}" if self.weights is not None else ""
        return f"MARTReRanker({os.fspath(self.model)!r}, {self.table!r}{changed}{training}{weights})"


_DEFAULTS = {name: given.default for name, given in inspect.signature(MARTReRanker).parameters.items()}
