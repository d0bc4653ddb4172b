"""MetaSBERTRetriever: a multilingual sentence encoder as a PyTerrier transformer."""

from __future__ import annotations

import copy
import inspect
import math
import os
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt

from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.columns import MetaSBERTEncoder
from pyterrier_mart.dense.encoder import TextEncoder
from pyterrier_mart.dense.encoding import Encoding, is_model
from pyterrier_mart.dense.index import DenseIndex, documents_of
from pyterrier_mart.dense.rows import Rows, each
from pyterrier_mart.devices import resolve_device
from pyterrier_mart.frames import texts_of
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.meta.artifact import SETTINGS, MetaSBERTModel, write
from pyterrier_mart.meta.config import ALGORITHMS, MetaConfig
from pyterrier_mart.text import language_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from pyterrier_mart.datasets.corpus import MultilingualCorpus

__all__ = ["DEFAULT_MODEL", "MetaSBERTRetriever"]

DEFAULT_MODEL = "sentence-transformers/paraphrase-multilingual-mpnet-base-v2"

Vectors = npt.NDArray[np.float32]


class MetaSBERTRetriever(Encoding, pt.Estimator):
    """Ranks documents in several languages by the vectors of a multilingual sentence encoder, meta-learned or not.

    Questions and documents are encoded apart (a bi-encoder) and compared by cosine. What it does depends on the
    columns of its input:

    - ``qid``, ``query``, ``docno`` and ``text``: it re-ranks, encoding the texts;
    - ``qid``, ``query`` and ``docno`` with an index: it re-ranks by the vectors in the index;
    - ``qid`` and ``query`` with an index: it retrieves. Output rows have ``doc_lang`` where the index knows it.

    The languages of questions and documents are in the columns ``query_lang`` and ``doc_lang``, or the arguments of
    these names; only :class:`LanguageCentering` needs them. Columns ``query_vec`` and ``doc_vec`` are kept as they are
    and not used: they may be those of another encoder.

    Without :meth:`fit` it is the encoder as it is (zero-shot). :meth:`fit` meta-learns as MAML-Align does, from
    questions that are answered in several languages, so that ranking in one language transfers to ranking in many.
    Evaluation does not adapt: the meta-learned weights are used as they are, unless :meth:`adapt` is called.

    .. cite.dblp:: conf/sigir/MhamdiMFPBD24

    Example::

        >>> dense = MetaSBERTRetriever("e5-small")
        >>> pipe = smt >> bm25 % 100 >> data.text_loader() >> dense
        >>> index = dense.index("folder", corpus)
        >>> full = dense.retriever(index, num_results=100)
        >>> full.languages("de", "en").search("Wo wurde Luther geboren?")

    Args:
        model: The encoder: a hub id, a directory, a name of :mod:`pyterrier_mart.encoders` such as ``"e5-small"``,
            or a ``SentenceTransformer``.
        dense_index: An index that :meth:`index` made, or its directory.
        algorithm: How :meth:`fit` learns, one of :data:`~pyterrier_mart.meta.config.ALGORITHMS`.
        config: The settings of :meth:`fit`. Its ``max_length`` is what is read of questions and documents, also
            without training.
        corpus: Documents for :meth:`fit`: a :class:`MultilingualCorpus`, or a PyTerrier dataset or its name.
        valid_corpus: Documents that validation questions are ranked against; by default ``corpus``.
        post: A :class:`LanguageCentering` for the vectors.
        query_lang: Language of questions whose row does not say it.
        doc_lang: Language of documents whose row does not say it.
        num_results: Documents of each question at most, in retrieval.
        doc_langs: Retrieve only documents in these languages; ``None`` for all.
        batch_size: Texts that are encoded at a time at most. Scores do not depend on it.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``; ``None`` or ``"auto"`` for the first GPU, or the CPU
            without one.
        text_field: The column with the documents' text.
        output_dir: Where :meth:`fit` leaves checkpoints and its log, from which it goes on when interrupted.
        verbose: Whether to show progress bars.

    Raises:
        ValueError: If an argument is out of range; the message names it.
        EmptyLanguageError: If the index has no documents in one of ``doc_langs``.
    """

    schematic = {"label": "MetaSBERT", "help_url": HELP_URL}

    def __init__(
        self,
        model: str | os.PathLike[str] | SentenceTransformer = DEFAULT_MODEL,
        dense_index: DenseIndex | str | os.PathLike[str] | None = None,
        *,
        algorithm: str = "maml-align",
        config: MetaConfig | None = None,
        corpus: Any = None,
        valid_corpus: Any = None,
        post: LanguageCentering | None = None,
        query_lang: str | None = None,
        doc_lang: str | None = None,
        num_results: int = 1000,
        doc_langs: Sequence[str] | None = None,
        batch_size: int = 64,
        device: str | None = None,
        text_field: str = "text",
        output_dir: str | os.PathLike[str] | None = None,
        verbose: bool = False,
    ):
        if not isinstance(model, (str, os.PathLike)) and not is_model(model):
            raise ValueError(
                f"model must be the name of an encoder, a directory or a SentenceTransformer, not {model!r:.80}"
            )
        if isinstance(dense_index, (str, os.PathLike)):
            dense_index = DenseIndex(dense_index)
        if dense_index is not None and not isinstance(dense_index, DenseIndex):
            raise ValueError(f"dense_index must be a DenseIndex or its directory, not {dense_index!r:.80}")
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}")
        if config is not None and not isinstance(config, MetaConfig):
            raise ValueError(f"config must be a MetaConfig, not {config!r:.80}")
        if post is not None and not isinstance(post, LanguageCentering):
            raise ValueError(f"post must be a LanguageCentering, not {post!r:.80}")
        for name, value in (("num_results", num_results), ("batch_size", batch_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")
        for name, lang in (("query_lang", query_lang), ("doc_lang", doc_lang)):
            if lang is not None and language_of(lang) is None:
                raise ValueError(f"{name} must be None or a language such as 'de', not {lang!r}")
        if not isinstance(text_field, str) or not text_field:
            raise ValueError(f"text_field must be the name of a column, not {text_field!r}")
        self.model, self.dense_index = model, dense_index
        self.algorithm, self.config = algorithm, config
        self.corpus, self.valid_corpus = corpus, valid_corpus
        self.post = post
        self.query_lang, self.doc_lang = language_of(query_lang), language_of(doc_lang)
        self.num_results, self.doc_langs = num_results, _languages(doc_langs)
        self.batch_size, self.device = batch_size, device
        self.text_field, self.output_dir, self.verbose = text_field, output_dir, verbose
        self.history = self.weights = None
        self._net = self._net_of = self._digest = None
        if dense_index is not None and self.doc_langs is not None:
            dense_index.check_languages(self.doc_langs)

    # --- ranking --------------------------------------------------------------------------------------------------

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Re-ranks rows with documents, and retrieves documents for rows without."""
        mode = self._mode(inp)
        if mode == "retrieve":
            return self._retrieve(inp)
        out = inp.drop(columns=["score", "rank"], errors="ignore")
        if out.empty:
            return pt.model.add_ranks(out.assign(score=pd.Series(dtype="float64", index=out.index)))
        scores = self._score_vectors(out) if mode == "vectors" else self._score_texts(out)
        if not (finite := np.isfinite(scores)).all():
            raise ValueError(
                f"{(~finite).sum()} of {len(scores)} scores are not finite: the encoder's weights are damaged"
            )
        return pt.model.add_ranks(out.assign(score=scores))

    def _mode(self, inp: pd.DataFrame) -> str:
        try:
            with pt.validate.any(inp, context=self) as v:
                v.result_frame(extra_columns=["query", self.text_field], mode="texts")
                if self.dense_index is not None:
                    v.result_frame(extra_columns=["query"], mode="vectors")
                    v.query_frame(extra_columns=["query"], mode="retrieve")
        except pt.validate.InputValidationError as err:
            if self.dense_index is None and {"qid", "query"} <= set(inp.columns):
                wanted = "vectors of documents" if "docno" in inp.columns else "an index to retrieve from"
                message = (
                    f"{err.args[0]} It re-ranks rows with docno and {self.text_field!r}; without these it needs "
                    f"{wanted}: dense.retriever(index)"
                )
                raise pt.validate.InputValidationError(message, err.modes) from None
            raise
        assert v.mode is not None
        return v.mode

    def _score_texts(self, rows: pd.DataFrame) -> npt.NDArray[np.float64]:
        queries, documents = texts_of(rows, "query", 5), texts_of(rows, self.text_field, 5)
        with self._bar(len(set(queries)) + len(set(documents))) as progress:
            left = self._encoded(queries, "query", self._langs(rows, "query"), progress)
            right = self._encoded(documents, "document", self._langs(rows, "doc"), progress)
        return left.dot(right)

    def _score_vectors(self, rows: pd.DataFrame) -> npt.NDArray[np.float64]:
        index = self._checked_index()
        queries = texts_of(rows, "query", 5)
        docids = index.docids(rows["docno"].tolist())
        with self._bar(len(set(queries))) as progress:
            left = self._encoded(queries, "query", self._langs(rows, "query"), progress)
        return left.dot(Rows(index.vectors, docids))

    def _retrieve(self, inp: pd.DataFrame) -> pd.DataFrame:
        assert self.dense_index is not None
        if inp.empty:
            docids = row = rank = np.empty(0, dtype=np.int64)
            docnos, score, langs = list[str](), np.empty(0, dtype=np.float64), list["str | None"]()
            index = self.dense_index
        else:
            index = self._checked_index()
            queries = texts_of(inp, "query", 4)
            with self._bar(len(set(queries))) as progress:
                encoded = self._encoded(queries, "query", self._langs(inp, "query"), progress)
            if not np.isfinite(encoded.distinct).all():
                raise ValueError("the vector of a query is not finite: the encoder's weights are damaged")
            device = str(resolve_device(self.device))
            hits = index.search(encoded.distinct, self.num_results, _languages(self.doc_langs), device)
            row, at = each(encoded.places, hits.query)
            docids, score, rank = hits.docid[at], hits.score[at], hits.rank[at]
            docnos, langs = index.docnos(docids), index.doc_langs(docids)
        out = inp.iloc[row].reset_index(drop=True)
        columns: dict[str, Any] = {"docno": pd.Series(docnos, dtype="str")}
        if index.languages:
            columns["doc_lang"] = pd.Series(langs, dtype="str")
        return out.assign(**columns, score=score, rank=rank)

    def _checked_index(self) -> DenseIndex:
        assert self.dense_index is not None
        self.dense_index.check_maker(self.maker)
        return self.dense_index

    # --- vectors --------------------------------------------------------------------------------------------------

    def query_encoder(self) -> MetaSBERTEncoder:
        """Returns a transformer that adds ``query_vec`` to rows with ``query``, centred if there is a centring."""
        return MetaSBERTEncoder(self, "query")

    def doc_encoder(self) -> MetaSBERTEncoder:
        """Returns a transformer that adds ``doc_vec`` to rows with text, centred if there is a centring."""
        return MetaSBERTEncoder(self, "document")

    # --- learning -------------------------------------------------------------------------------------------------

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> MetaSBERTRetriever:
        """Learns from questions and judgments, by ``algorithm``; a pipeline's ``fit`` calls this.

        Documents are those of ``corpus``, or else those of the rows that a pipeline's first stage found. Fitting again
        starts from the encoder's weights again. An index that was made before is then one of another encoder, and has
        to be made again; a centring is fitted again on the questions and documents of training. With the algorithm
        ``"zero-shot"`` nothing is done.

        Args:
            topics_or_res_tr: Questions: ``qid``, ``query``, and ``query_lang`` unless it is an argument; ``qgroup`` if
                the same question is there in several languages. Without ``corpus`` also ``docno``, the text, and
                ``doc_lang`` unless it is an argument.
            qrels_tr: Judgments: ``qid``, ``docno``, ``label``. Labels above 0 are relevant. Those of other questions
                are left out, as are those of documents that are not there, with a warning that counts these.
            topics_or_res_va: Questions that choose the best meta-step, by their mean AP@20 over the validation
                documents in all languages; ``config.valid_questions`` of each language. Without them, the last one is
                kept.
            qrels_va: Their judgments.

        Returns:
            Itself; ``history`` has the log.

        Raises:
            EmptyLanguageError: If there is nothing in a language of ``config.transfer``.
            ValueError: If there is nothing to learn from, columns or languages are missing, or training diverges.
        """
        if self.algorithm == "zero-shot":
            return self
        from pyterrier_mart.evaluation.lareqa import lareqa_evaluate, summarise
        from pyterrier_mart.meta.learners import learner_class
        from pyterrier_mart.meta.sampling import TripletTaskSampler
        from pyterrier_mart.meta.training import train
        from pyterrier_mart.meta.training_data import few_questions

        config = self._options
        corpus = self._material(topics_or_res_tr, qrels_tr, self.corpus, "_tr")
        valid = None
        if topics_or_res_va is not None and not topics_or_res_va.empty:
            if qrels_va is None:
                raise ValueError("qrels_va is missing: validation questions need judgments")
            source = self.corpus if self.valid_corpus is None else self.valid_corpus
            valid = self._material(topics_or_res_va, qrels_va, source, "_va")
        elif topics_or_res_va is not None:
            warnings.warn("there are no validation questions: the weights of the last step are kept", stacklevel=2)
        net = self._new()  # what was trained before stays until this training is finished
        if is_model(self.model):
            net = copy.deepcopy(net)
        net.to(resolve_device(self.device))
        encoder = TextEncoder(net, config.max_length)
        sampler = TripletTaskSampler(corpus, config, "train", encoder)
        tasks = TripletTaskSampler(valid, config, "valid", encoder) if valid and config.update_on_valid else None
        asked = None if valid is None else few_questions(valid, config.valid_questions, config.seed)
        evaluate = None if asked is None else lambda: summarise(lareqa_evaluate(encoder, asked))
        learner = learner_class(self.algorithm)(encoder, config)
        history = train(
            learner, sampler, evaluate=evaluate, output_dir=self.output_dir, verbose=self.verbose, valid_tasks=tasks
        )
        self._trained(net, history)
        if self.post is not None:
            self.post = self.post.refitted(self, corpus)
        return self

    def adapt(
        self, support_topics: pd.DataFrame, qrels: pd.DataFrame, *, steps: int | None = None, lr: float | None = None
    ) -> MetaSBERTRetriever:
        """Returns a copy that is adapted to a few questions and judgments, as in the inner loop of meta-learning.

        This one stays as it is. A step is taken on each ``config.k_shot`` questions in turn, so that the order of
        questions matters where there are more. The copy keeps the centring as it is; an index that was made before is
        one of another encoder.

        Args:
            support_topics: As in :meth:`fit`.
            qrels: As in :meth:`fit`.
            steps: Steps on each set; by default ``config.inner_steps``.
            lr: The learning rate; by default ``config.inner_lr``.

        Raises:
            ValueError: If there is nothing to learn from, or columns or languages are missing.
        """
        from pyterrier_mart.meta.learners import adapt_copy
        from pyterrier_mart.meta.training_data import episodes

        for name, value in (("steps", steps), ("lr", lr)):
            if value is not None and (isinstance(value, bool) or not 0 <= value < math.inf):
                raise ValueError(f"{name} must be None or a number >= 0, not {value!r}")
        corpus = self._material(support_topics, qrels, self.corpus)
        encoder = self.load_model()
        adapted = adapt_copy(encoder, episodes(corpus, self._options, encoder), self._options, steps=steps, lr=lr)
        made = self.apply_attributes()
        made._trained(adapted.model, self.history)
        if made.post is not None and made.post.encoder is not None:
            made.post = made.post.for_encoder(made.fingerprint)
        return made

    def _material(self, frame: pd.DataFrame, qrels: pd.DataFrame, source: Any, suffix: str = "") -> MultilingualCorpus:
        from pyterrier_mart.meta.training_data import Languages, corpus_of

        return corpus_of(frame, qrels, source, Languages(self.query_lang, self.doc_lang), self.text_field, suffix)

    # --- indexes --------------------------------------------------------------------------------------------------

    def index(self, path: str | os.PathLike[str], documents: Any, *, overwrite: bool = False) -> DenseIndex:
        """Encodes documents into an index on disk. It appears when it is complete, or not at all.

        Documents are read once, a few thousand at a time. To compare a centring with none, encode once: of an index
        that the same encoder made without centring, vectors and languages are used again, and only centred::

            >>> raw = dense.index("raw", corpus)
            >>> centred = MetaSBERTRetriever("e5-small", post=LanguageCentering.fit_corpus(dense, corpus))
            >>> index = centred.index("centred", raw)

        Args:
            path: The directory of the index.
            documents: A :class:`MultilingualCorpus`, a PyTerrier dataset or its name, an iterable of dicts or a frame
                with ``docno``, the text, and perhaps ``doc_lang``; or a :class:`DenseIndex`.
            overwrite: Whether to replace an existing index.

        Returns:
            The index, for :meth:`retriever`.

        Raises:
            ValueError: If there are no documents, or one lacks a field or has a docno that is wrong or occurs twice;
                the message names it. If ``documents`` is an index that another encoder made, or that is centred
                already.
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
            ImportError: If pyterrier_dr is not installed.
        """
        if self.post is not None:
            self._checked_post()  # before hours of work
        unknown = Counter[str]()

        def counted(langs: list[str | None]) -> list[str | None]:
            if self.post is not None:
                unknown.update(self.post.unknown(langs, "document"))
            return langs

        def encode(texts: list[str], langs: list[str | None]) -> Vectors:
            encoded = self._encoded(texts, "document", counted(langs), warn=False)
            return encoded.distinct[encoded.places]

        def centre(vectors: Vectors, langs: list[str | None]) -> Vectors:
            counted(langs)
            return vectors if self.post is None else self.post.apply(vectors, langs, "document", warn=False)

        own = language_of(self.doc_lang)
        if isinstance(documents, DenseIndex):
            with self._bar(len(documents)) as progress:
                made = documents.derive(
                    path, centre, self.maker, doc_lang=own, overwrite=overwrite, progress=progress
                )  # fmt: skip
        else:
            rows, lang = documents_of(documents)
            if self.verbose:
                rows = pt.tqdm(rows, desc="MetaSBERT index", unit="d", total=_length(rows))
            made = DenseIndex.build(
                path, rows, encode, self.maker, text_field=self.text_field, doc_lang=own or language_of(lang),
                overwrite=overwrite,
            )  # fmt: skip
        if unknown and self.post is not None:
            warnings.warn(self.post.unknown_message(unknown, "document"), stacklevel=2)
        return made

    def retriever(
        self,
        index: DenseIndex | str | os.PathLike[str],
        *,
        num_results: int | None = None,
        doc_langs: Sequence[str] | None = None,
    ) -> MetaSBERTRetriever:
        """Returns a copy that retrieves from an index.

        Args:
            index: The index, or its directory.
            num_results: Documents of each question at most; by default as here.
            doc_langs: Only documents in these languages; ``None`` for all.

        Raises:
            EmptyLanguageError: If the index has no documents in one of the languages.
        """
        number = self.num_results if num_results is None else num_results
        return self.apply_attributes(dense_index=index, num_results=number, doc_langs=doc_langs)

    def languages(self, *languages: str) -> MetaSBERTRetriever:
        """Returns a copy that retrieves only documents in some languages; without any, in all.

        Raises:
            EmptyLanguageError: If the index has no documents in one of them.
        """
        return self.apply_attributes(doc_langs=languages or None)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """Retrieves fewer documents (PyTerrier's optimiser asks). The cutoff stays, for rows that are re-ranked."""
        if self.dense_index is None or k >= self.num_results:
            return None
        return self.apply_attributes(num_results=k) >> pt.RankCutoff(k)

    # --- on disk --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> MetaSBERTModel:
        """Saves encoder, settings and centring to a directory that ``SentenceTransformer`` loads too.

        Args:
            path: The directory.
            overwrite: Whether to replace what was saved there before.

        Raises:
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
        """
        encoder, fingerprint = self.load_model(), self.fingerprint
        assert self._digest is not None
        post = None if self.post is None else self._checked_post()
        described = {
            "encoder": None if is_model(self.model) else self._name, "settings": self._settings(),
            "weights": self._digest[1], "fingerprint": fingerprint, "dimension": encoder.dimension,
        }  # fmt: skip
        return write(path, encoder.model, self._options, post, self.history, described, overwrite=overwrite)

    def _settings(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in SETTINGS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        dense_index: DenseIndex | str | os.PathLike[str] | None = None,
        *,
        batch_size: int = 64,
        device: str | None = None,
        verbose: bool = False,
    ) -> MetaSBERTRetriever:
        """Loads what :meth:`save` saved. It scores as before.

        Args:
            path: The directory.
            dense_index: See the class.
            batch_size: See the class.
            device: See the class.
            verbose: See the class.

        Raises:
            FileNotFoundError: If there is no such directory.
            ValueError: If it holds something else or is damaged; the message names it.
        """
        return MetaSBERTModel(path).retriever(dense_index, batch_size=batch_size, device=device, verbose=verbose)

    # --- identity -------------------------------------------------------------------------------------------------

    def subtransformers(self) -> dict[str, Any]:
        """There are none (PyTerrier's inspection asks)."""
        return {}

    def apply_attributes(self, **attributes: Any) -> MetaSBERTRetriever:
        """Returns a copy with other arguments (PyTerrier's inspection asks), with the same weights if it may."""
        if unknown := sorted(set(attributes) - set(_DEFAULTS)):
            raise ValueError(f"unknown argument {', '.join(unknown)}; expected some of {', '.join(_DEFAULTS)}")
        made = type(self)(**{**{name: getattr(self, name) for name in _DEFAULTS}, **attributes})
        if "model" not in attributes:
            made.weights, made.history = self.weights, self.history
            if "device" not in attributes:
                made._net, made._net_of, made._digest = self._net, self._net_of, self._digest
            elif self.weights is not None:  # on the other device beside this one
                made._net, made._net_of = copy.deepcopy(self._net), self._net_of
        return made

    def _key(self) -> tuple[object, ...]:
        model = self.fingerprint if is_model(self.model) else self._name
        settings = tuple(_frozen(getattr(self, name)) for name in SETTINGS if name != "algorithm")
        return type(self), model, self.weights, self.dense_index, self.post, settings, self._options.max_length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetaSBERTRetriever):
            return NotImplemented
        return self._key() == other._key() and (self.algorithm, self._options) == (other.algorithm, other._options)

    def __hash__(self) -> int:
        return hash(self._key())

    def __getstate__(self) -> dict[str, Any]:
        # Weights that the encoder's name stands for are loaded again.
        kept = {"_net": self._net, "_net_of": self._net_of} if self.weights is not None else {}
        return {**self.__dict__, "_net": None, "_net_of": None, "_digest": None, **kept}

    def __repr__(self) -> str:
        name = f"<SentenceTransformer {self.fingerprint[:8]}>" if is_model(self.model) else repr(self._name)
        values = {name: getattr(self, name) for name in ("dense_index", "post", *SETTINGS)}
        changed = "".join(f", {name}={value!r}" for name, value in values.items() if value != _DEFAULTS[name])
        config = f", {self.config.short()}" if self.config is not None else ""
        weights = f", weights {self.weights[:8]}" if self.weights is not None else ""
        return f"MetaSBERTRetriever({name}{changed}{config}{weights})"


def _length(rows: object) -> int | None:
    return len(rows) if hasattr(rows, "__len__") else None


def _languages(languages: Sequence[str] | None) -> tuple[str, ...] | None:
    """Returns languages by their codes."""
    if languages is None:
        return None
    if isinstance(languages, str) or not isinstance(languages, Sequence) or not languages:
        raise ValueError(f"doc_langs must be None or languages such as ('de', 'en'), not {languages!r}")
    codes = [language_of(language) for language in languages]
    if None in codes:
        raise ValueError(f"doc_langs must be None or languages such as ('de', 'en'), not {languages!r}")
    return tuple(code for code in dict.fromkeys(codes) if code is not None)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(MetaSBERTRetriever.__init__).parameters.items()
    if name != "self"
}
