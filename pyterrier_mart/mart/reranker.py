"""MARTReRanker: the PyTerrier transformer."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyterrier as pt

from pyterrier_mart import encoders
from pyterrier_mart.artifact import META, meta_bytes, read_meta, weights_digest
from pyterrier_mart.devices import DTYPES, quiet, resolve_device, resolve_dtype
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.frames import texts_of
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.mart import examples as _examples
from pyterrier_mart.mart.attention import WordLinker
from pyterrier_mart.mart.encoding import PairEncoder, check_tokenizer
from pyterrier_mart.mart.inference import Scorer
from pyterrier_mart.mart.modeling import MartForRanking
from pyterrier_mart.mart.options import TrainingOptions
from pyterrier_mart.mart.training import train
from pyterrier_mart.text import specs_of
from pyterrier_mart.translation import TranslationTable

if TYPE_CHECKING:
    from pyterrier_mart.mart.explanation import Explanation

__all__ = ["DEFAULT_ENCODER", "MARTReRanker"]

DEFAULT_ENCODER = "bert-base-multilingual-uncased"
_KIND = {"type": "reranker", "format": "mart", "format_version": 1}
# What decides scores besides the weights; saved with them.
_SETTINGS = ("placebo", "max_length", "document_tokens", "threshold", "top_k", "identity_matches", "relate", "stop")


class MARTReRanker(pt.Estimator):
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
        translation_init: See :class:`~pyterrier_mart.mart.modeling.MartConfig`.
        max_length: Tokens of a passage with its query and special tokens; what the encoder can take at most.
        document_tokens: Tokens of a document that are read.
        threshold: Only translations of at least this probability.
        top_k: At most so many translations of a word; ``None`` for all.
        identity_matches: Whether a query word that the table lacks is its own translation (names, numbers).
        relate: Whether a query word that the table lacks gets the translations of its other forms and parts.
        stop: Whether stop words take no part in the translation attention.
        training: How :meth:`fit` trains.
        positives_text: Where :meth:`fit` finds the text of relevant documents that the first stage missed: a dataset
            with a ``text_loader``, a transformer that adds text to documents, or a function from a list of docnos to
            their texts. ``None``: they are left out, with a warning that counts them.
        dtype: What to compute scores in: ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"``, bfloat16 where
            the device computes in it and float32 elsewhere. In bfloat16, a processor with AVX-512 bf16 is about 3
            times as fast; scores then depend on the other rows of a batch, by about 1e-3, and on the machine.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``; ``None`` or ``"auto"`` for the first GPU, or
            the CPU without one.
        batch_tokens: Tokens of a batch, padding included. Scores do not depend on it.
        text_field: The column with the documents' text.
        verbose: Whether to show progress bars.

    Raises:
        ValueError: If an argument is out of range or a table is missing; the message names the argument. For what
            depends on the encoder (``mat_layers``, ``max_length``, a tokenizer that is not fast), when it is loaded.
        FileNotFoundError: If a table is named that does not exist.
    """

    schematic = {"label": "MART", "help_url": HELP_URL}

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
        identity_matches: bool = True,
        relate: bool = True,
        stop: bool = True,
        training: TrainingOptions | None = None,
        positives_text: Any = None,
        dtype: str = "float32",
        device: str | None = None,
        batch_tokens: int | None = None,
        text_field: str = "text",
        verbose: bool = False,
    ):
        if isinstance(table, str):
            table = TranslationTable.load(table)
        if not isinstance(model, (str, os.PathLike)):
            raise ValueError(f"model must be the name of an encoder or a directory, not {model!r}")
        if not isinstance(mat_layers, Sequence) or isinstance(mat_layers, (str, bytes)):
            raise ValueError(f"mat_layers must be a sequence of layer numbers, not {mat_layers!r}")
        if table is None and mat_layers and not placebo:
            raise ValueError(
                "table is missing: name one, such as 'de-en', or ask for a baseline without translations "
                "(mat_layers=() or placebo=True)"
            )
        if table is not None and not isinstance(table, TranslationTable):
            raise ValueError(f"table must be a TranslationTable or the name of one, not {table!r}")
        switches = {"placebo": placebo, "identity_matches": identity_matches, "relate": relate, "stop": stop}
        for name, switch in switches.items():
            if not isinstance(switch, bool):
                raise ValueError(f"{name} must be True or False, not {switch!r}")
        if not isinstance(text_field, str) or not text_field:
            raise ValueError(f"text_field must be the name of a column, not {text_field!r}")
        if dtype != "auto" and dtype not in DTYPES:
            raise ValueError(f"dtype must be auto, {', '.join(DTYPES)}, not {dtype!r}")
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be in [0, 1], not {threshold!r}")
        for name, value in (("top_k", top_k), ("batch_tokens", batch_tokens)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be None or a whole number >= 1, not {value!r}")
        for name, value in (("max_length", max_length), ("document_tokens", document_tokens)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")
        if training is not None and not isinstance(training, TrainingOptions):
            raise ValueError(f"training must be TrainingOptions, not {training!r}")
        self.model, self.table = model, table
        self.mat_layers = tuple(mat_layers)
        self.placebo, self.pooling, self.translation_init = placebo, pooling, translation_init
        self.max_length, self.document_tokens = max_length, document_tokens
        self.threshold, self.top_k, self.identity_matches = threshold, top_k, identity_matches
        self.relate, self.stop = relate, stop
        self.training, self.positives_text = training, positives_text
        self.dtype, self.device, self.batch_tokens = dtype, device, batch_tokens
        self.text_field, self.verbose = text_field, verbose
        self.history: list[dict[str, Any]] | None = None
        self.weights: str | None = None  # a fingerprint, once they are not those that the encoder's name stands for
        self._built: _Built | None = None
        self._ready: tuple[object, Scorer] | None = None

    # --- scoring ----------------------------------------------------------------------------------------------

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Scores rows and ranks the documents of each query by score."""
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field], context=self)
        out = inp.drop(columns=["score", "rank"], errors="ignore")
        if out.empty:
            return pt.model.add_ranks(out.assign(score=pd.Series(dtype="float64", index=out.index)))
        self._check_language(inp, "the frame")
        scores = self._score(texts_of(out, "query"), texts_of(out, self.text_field))
        return pt.model.add_ranks(out.assign(score=scores))

    def _check_language(self, frame: pd.DataFrame, name: str) -> None:
        """Refuses documents found with words of another language than the table's: nothing would be linked."""
        if self.table is None or not self._links or "query_toks" not in frame:
            return
        for spec in specs_of(frame["query_toks"]):
            if spec["lang"] != self.table.languages[1]:
                raise ValueError(
                    f"the queries of {name} were translated to {spec['lang']!r} (query_toks), but the re-ranker's "
                    f"{'-'.join(self.table.languages)} table is for documents in {self.table.languages[1]!r}; use "
                    "tables with the same target language"
                )

    def _score(self, queries: list[str], documents: list[str]) -> Any:
        scorer = self.scorer()
        if not self.verbose:
            return scorer.score(queries, documents)
        with pt.tqdm(total=len(queries), desc="MART", unit="d") as bar:
            return scorer.score(queries, documents, bar.update)

    def load_model(self) -> MartForRanking:
        """Loads the model now, so that the time of the first query does not contain it, and returns it.

        Raises:
            ValueError: If the encoder does not fit the settings.
            OSError: If there is no such encoder.
        """
        return self._build().net

    def scorer(self) -> Scorer:
        """Returns what scores, with the model on its device; the model is loaded if need be."""
        # Searches for the best parameters set attributes.
        key = (*self._key(), self.dtype, self.device, self.batch_tokens)
        if self._ready is None or self._ready[0] != key:
            built = self._build()
            device = resolve_device(self.device)
            encoder, dtype = self._pair_encoder(built), resolve_dtype(self.dtype, device)
            self._ready = key, Scorer(built.net, encoder, device, dtype, self.batch_tokens)
        return self._ready[1]

    def _architecture(self) -> tuple[object, ...]:
        return os.fspath(self.model), tuple(self.mat_layers), self.pooling, self.translation_init, self._seed

    @property
    def _seed(self) -> int:
        return (self.training or TrainingOptions()).seed

    def _build(self) -> _Built:
        """Returns the model: the trained one, or one with the encoder's weights for the present settings."""
        if self._built is None or (self.weights is None and self._built.architecture != self._architecture()):
            self._built = self._new()
        return self._built

    def _new(self) -> _Built:
        from transformers import AutoTokenizer

        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(encoders.resolve(self.model))
        check_tokenizer(tokenizer)
        net = MartForRanking.from_encoder(
            self.model, self.mat_layers, pooling=self.pooling, translation_init=self.translation_init, seed=self._seed
        )
        return _Built(self._architecture(), net, tokenizer)

    def _pair_encoder(self, built: _Built) -> PairEncoder:
        config = built.net.config.encoder_config
        # RoBERTa's positions begin after the padding token's number.
        lost = (config.pad_token_id or 0) + 1 if config.model_type != "bert" else 0
        longest = min(self.max_length, config.max_position_embeddings - lost, built.tokenizer.model_max_length)
        return PairEncoder(built.tokenizer, self._linker(), longest, self.document_tokens)

    @property
    def _links(self) -> bool:
        """Whether the model sees translations."""
        return self.table is not None and not self.placebo and len(tuple(self.mat_layers)) > 0

    def _linker(self) -> WordLinker | None:
        if self.table is None or not self._links:
            return None
        return WordLinker(
            self.table, threshold=self.threshold, top_k=self.top_k, identity=self.identity_matches,
            relate=self.relate, stop=self.stop,
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
        options = self.training or TrainingOptions()
        results = self._results(topics_or_res_tr, "topics_or_res_tr")
        judged = _qrels(qrels_tr, "qrels_tr")
        made = _examples.examples(results, judged, self.text_field, options.negative_depth, self._loader())
        built = self._new()  # what was trained before stays until this training is finished
        validate, frames = None, list[pd.DataFrame]()
        if topics_or_res_va is not None and topics_or_res_va.empty:
            warnings.warn(
                f"there are no results for validation queries: training runs for all {options.epochs} epochs",
                stacklevel=2,
            )
        elif topics_or_res_va is not None and options.validation_queries != 0:
            if qrels_va is None:
                raise ValueError("qrels_va is missing: validation results need judgments")
            valid = self._results(topics_or_res_va, "topics_or_res_va")
            judged_va = _qrels(qrels_va, "qrels_va")
            valid, judged_va = _examples.validation_set(valid, judged_va, options)
            if not (judged_va["label"] > 0).any():
                raise ValueError("no validation query has a relevant document (label > 0) in qrels_va")
            validate = self._validation(built, valid, judged_va)
            frames = [valid.rename(columns={self.text_field: "text"}), judged_va]
        settings = self._architecture(), self.settings()
        key = repr((*settings, weights_digest(built.net), _examples.fingerprint(made, *frames)))
        self.history = train(
            built.net, self._pair_encoder(built), made, options, validate=validate,
            fingerprint=hashlib.sha256(key.encode()).hexdigest()[:16], device=resolve_device(self.device),
            verbose=self.verbose,
        )  # fmt: skip
        self._trained(built)
        return self

    def _trained(self, built: _Built) -> None:
        built.net.eval().requires_grad_(False)
        self._built, self._ready, self.weights = built, None, weights_digest(built.net)

    def _validation(self, built: _Built, frame: pd.DataFrame, qrels: pd.DataFrame) -> Callable[[MartForRanking], float]:
        queries, documents = (texts_of(frame, column, 5) for column in ("query", self.text_field))
        device = resolve_device(self.device)
        dtype, encoder = resolve_dtype(self.dtype, device), self._pair_encoder(built)

        def validate(net: MartForRanking) -> float:
            scorer = Scorer(net, encoder, device, dtype, self.batch_tokens)
            return _examples.average_precision(frame.assign(score=scorer.score(queries, documents)), qrels)

        return validate

    def _results(self, frame: pd.DataFrame, name: str) -> pd.DataFrame:
        _check_frame(frame, name)
        if missing := [column for column in ("qid", "query", "docno", self.text_field) if column not in frame]:
            hint = "; load it with dataset.text_loader() before this" if missing == [self.text_field] else ""
            raise ValueError(f"{name} lacks the column {', '.join(map(repr, missing))}, it has {list(frame)}{hint}")
        if frame.empty:
            raise ValueError(f"{name} is empty: the first stage found nothing, or there are no topics")
        self._check_language(frame, name)
        return _with_text_identifiers(frame)

    def _loader(self) -> Callable[[pd.DataFrame], Any] | None:
        source = self.positives_text
        if source is None:
            return None
        if hasattr(source, "text_loader"):
            source = source.text_loader()
        if isinstance(source, pt.Transformer):
            loader: Any = source
            return lambda rows: loader(rows)[self.text_field].tolist()
        if callable(source):
            function: Any = source

            def load(rows: pd.DataFrame) -> Any:
                texts = function(rows["docno"].tolist())
                return list(texts) if isinstance(texts, Iterator) else texts

            return load
        raise ValueError(
            f"positives_text must be a dataset, a transformer or a function from docnos to texts, not {source!r}"
        )

    # --- on disk ----------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Returns what decides scores besides the weights, as JSON values; the table by its fingerprint."""
        return {
            **{name: getattr(self, name) for name in _SETTINGS},
            "text_field": self.text_field,
            "table": self.table.fingerprint if self.table is not None else None,
        }

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Saves weights, tokenizer, table and settings to a directory.

        Raises:
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
        """
        built = self._build()
        with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
            with quiet():
                built.net.save_pretrained(tmp)
            built.tokenizer.save_pretrained(tmp)
            if self.table is not None:
                self.table.save(tmp / "table")
            meta: dict[str, Any] = {
                **_KIND,
                "package_hint": "pyterrier-mart",
                "encoder": os.fspath(self.model),
                "languages": list(self.table.languages) if self.table is not None else None,
                "settings": self.settings(),
                "training": (self.training or TrainingOptions()).as_json(),
                "trained": self.weights is not None,
                "weights": weights_digest(built.net),
                "history": self.history,
            }
            (tmp / META).write_bytes(meta_bytes(meta))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        table: TranslationTable | str | None = None,
        *,
        accept_table: bool = False,
        dtype: str = "float32",
        device: str | None = None,
        batch_tokens: int | None = None,
        verbose: bool = False,
    ) -> MARTReRanker:
        """Loads what :meth:`save` saved. It scores as before.

        Args:
            path: The directory.
            table: A table to use instead of the saved one.
            accept_table: Whether it may be another one than the model was trained with.
            dtype: See the class.
            device: See the class.
            batch_tokens: See the class.
            verbose: See the class.

        Raises:
            FileNotFoundError: If there is no such directory.
            ValueError: If it holds something else or is damaged, or the table is another one.
        """
        path = Path(path)
        meta = read_meta(path, "saved MARTReRanker", _KIND, ("settings", "encoder", "weights"))
        settings = meta["settings"]
        if not isinstance(settings, dict) or set(settings) != {*_SETTINGS, "text_field", "table"}:
            raise ValueError(f"damaged saved MARTReRanker {path}: {META} has the settings {settings!r}")
        settings = dict(settings)
        trained_with = settings.pop("table")
        if table is None:
            table = TranslationTable.load(path / "table") if trained_with is not None else None
        elif isinstance(table, str):
            table = TranslationTable.load(table)
        if table is not None and table.fingerprint != trained_with and not accept_table:
            raise ValueError(
                f"{path} was trained with another translation table (fingerprint {trained_with}) than the given "
                f"{'-'.join(table.languages)} ({table.fingerprint}); pass accept_table=True to use it nevertheless"
            )
        from transformers import AutoTokenizer

        with quiet():
            net, tokenizer = MartForRanking.from_pretrained(path), AutoTokenizer.from_pretrained(path)
        config = net.config
        made = cls(
            meta["encoder"], table, mat_layers=config.mat_layers, pooling=config.pooling,
            translation_init=config.translation_init, dtype=dtype, device=device, batch_tokens=batch_tokens,
            verbose=verbose, **settings,
        )  # fmt: skip
        made._trained(_Built(made._architecture(), net, tokenizer))
        if made.weights != meta["weights"]:
            raise ValueError(f"damaged saved MARTReRanker {path}: its weights are not those that were saved")
        made.history = meta.get("history")
        return made

    # --- looking inside ---------------------------------------------------------------------------------------

    def explain(self, query: str, text: str) -> Explanation:
        """Shows what a score is made of: linked words, and the score of each passage. See :class:`Explanation`."""
        from pyterrier_mart.mart.explanation import explain

        return explain(self, query, text)

    # --- identity ---------------------------------------------------------------------------------------------

    def subtransformers(self) -> dict[str, Any]:
        """There are none (PyTerrier's inspection asks)."""
        return {}

    def apply_attributes(self, **attributes: Any) -> MARTReRanker:
        """Returns a copy with other arguments (PyTerrier's inspection asks), trained if the arguments allow it."""
        made = type(self)(**{**{name: getattr(self, name) for name in _DEFAULTS}, **attributes})
        if self.weights is not None and not set(attributes) & {"model", "mat_layers", "pooling", "translation_init"}:
            made._built, made.weights, made.history = self._built, self.weights, self.history
        return made

    def _key(self) -> tuple[object, ...]:
        settings = tuple(getattr(self, name) for name in _SETTINGS)
        return *self._architecture(), self.table, self.text_field, settings, self.weights

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MARTReRanker):
            return NotImplemented
        return self._key() == other._key() and self.training == other.training

    def __hash__(self) -> int:
        return hash(self._key())

    def __getstate__(self) -> dict[str, Any]:
        # Weights that the encoder's name stands for are loaded again.
        return {**self.__dict__, "_ready": None, "_built": self._built if self.weights is not None else None}

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in ("mat_layers", "pooling", "translation_init", *_SETTINGS)}
        changed = "".join(
            f", {name}={value!r}" for name, value in values.items() if value != _DEFAULTS[name]
        )  # fmt: skip
        weights = f", weights {self.weights[:8]}" if self.weights is not None else ""
        training = f", {self.training.short()}" if self.training is not None else ""
        text = "" if self.text_field == "text" else f", text_field={self.text_field!r}"
        return f"MARTReRanker({os.fspath(self.model)!r}, {self.table!r}{changed}{text}{training}{weights})"


@dataclasses.dataclass(frozen=True)
class _Built:
    """A model, its tokenizer, and what it was built for."""

    architecture: tuple[object, ...]
    net: MartForRanking
    tokenizer: Any


def _defaults() -> dict[str, Any]:
    import inspect

    parameters = inspect.signature(MARTReRanker.__init__).parameters
    return {name: parameter.default for name, parameter in parameters.items() if name != "self"}


_DEFAULTS = _defaults()


def _check_frame(frame: object, name: str) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"{name} must be a data frame, not {frame!r:.80}")


def _with_text_identifiers(frame: pd.DataFrame) -> pd.DataFrame:
    """Makes identifiers text, as they are compared and as measures want them."""
    return frame.assign(**{name: frame[name].astype(str) for name in ("qid", "docno")})


def _qrels(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    _check_frame(frame, name)
    if missing := [column for column in ("qid", "docno", "label") if column not in frame]:
        raise ValueError(f"{name} lacks the column {', '.join(map(repr, missing))}, it has {list(frame)}")
    labels = pd.to_numeric(frame["label"], errors="coerce").astype("float64")
    wrong = ~(labels - labels.round() == 0)  # infinity and what is not a number, too
    if wrong.any():
        raise ValueError(
            f"{name}: a label must be a whole number, not {frame['label'][wrong].iloc[0]!r} ({wrong.sum()} such labels)"
        )
    return _with_text_identifiers(frame).assign(label=labels.astype("int64"))
