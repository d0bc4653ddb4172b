"""MetaSBERTRetriever: a multilingual sentence encoder as a PyTerrier transformer, and what is saved of one."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt
import torch

from pyterrier_mart.artifact import META, meta_bytes, read_meta
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.mart.inference import resolve_device
from pyterrier_mart.mart.modeling import quiet
from pyterrier_mart.meta.centring import LanguageCentering, language_of, normalised
from pyterrier_mart.meta.config import ALGORITHMS, MetaConfig
from pyterrier_mart.meta.encoder import Side, TextEncoder, load_sentence_transformer
from pyterrier_mart.meta.episodes import Row, TripletEpisode
from pyterrier_mart.meta.index import DenseIndex, Maker, documents_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from pyterrier_mart.meta.corpus import MultilingualCorpus
    from pyterrier_mart.meta.training import TrainingLog

__all__ = ["DEFAULT_MODEL", "MetaSBERTEncoder", "MetaSBERTModel", "MetaSBERTRetriever"]

DEFAULT_MODEL = "sentence-transformers/paraphrase-multilingual-mpnet-base-v2"

_KIND = {"type": "text_encoder", "format": "mart_sbert", "format_version": 1}
_WHAT = "saved MetaSBERTRetriever"
_CONFIG, _POST, _LOG = "meta_config.json", "language_centring.safetensors", "train_log.json"
# What is saved of the arguments besides weights, configuration and centring.
_SETTINGS = ("algorithm", "query_lang", "doc_lang", "num_results", "doc_langs", "text_field")
_ROWS = 65536  # scored at a time

Vectors = npt.NDArray[np.float32]


class MetaSBERTRetriever(pt.Estimator):
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
        if not isinstance(model, (str, os.PathLike)) and not _is_model(model):
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
        self.history: TrainingLog | None = None
        self.weights: str | None = None  # a fingerprint, once they are not those that the encoder's name stands for
        self._net: SentenceTransformer | None = None
        self._net_of: object = None  # what _net was loaded for
        self._digest: tuple[object, str] | None = None
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
        queries, documents = self._texts(rows, "query"), self._texts(rows, self.text_field)
        with self._bar(len(set(queries)) + len(set(documents))) as progress:
            left = self._encoded(queries, "query", self._langs(rows, "query"), progress)
            right = self._encoded(documents, "document", self._langs(rows, "doc"), progress)
        return left.dot(right)

    def _score_vectors(self, rows: pd.DataFrame) -> npt.NDArray[np.float64]:
        index = self._checked_index()
        queries = self._texts(rows, "query")
        docids = index.docids(rows["docno"].tolist())
        with self._bar(len(set(queries))) as progress:
            left = self._encoded(queries, "query", self._langs(rows, "query"), progress)
        return left.dot(_Rows(index.vectors, docids))

    def _retrieve(self, inp: pd.DataFrame) -> pd.DataFrame:
        assert self.dense_index is not None
        if inp.empty:
            docids = row = rank = np.empty(0, dtype=np.int64)
            docnos, score, langs = list[str](), np.empty(0, dtype=np.float64), list["str | None"]()
            index = self.dense_index
        else:
            index = self._checked_index()
            queries = self._texts(inp, "query", 4)
            with self._bar(len(set(queries))) as progress:
                encoded = self._encoded(queries, "query", self._langs(inp, "query"), progress)
            if not np.isfinite(encoded.distinct).all():
                raise ValueError("the vector of a query is not finite: the encoder's weights are damaged")
            device = str(resolve_device(self.device))
            hits = index.search(encoded.distinct, self.num_results, _languages(self.doc_langs), device)
            row, at = _each(encoded.places, hits.query)
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

    def _texts(self, frame: pd.DataFrame, column: str, stacklevel: int = 5) -> list[str]:
        values = frame[column].tolist()
        if missing := sum(not isinstance(value, str) for value in values):
            warnings.warn(
                f"{missing} of {len(values)} values in the column {column!r} are not text and count as empty",
                stacklevel=stacklevel,
            )
            return [value if isinstance(value, str) else "" for value in values]
        return values

    def _langs(self, frame: pd.DataFrame, prefix: str) -> list[str | None]:
        """The language of each row: that of the column, or of the argument."""
        default = language_of(getattr(self, f"{prefix}_lang"))
        if f"{prefix}_lang" not in frame:
            return [default] * len(frame)
        values = frame[f"{prefix}_lang"].tolist()
        known = {value: language_of(value) or default for value in set(values) if isinstance(value, str)}
        return [known.get(value, default) if isinstance(value, str) else default for value in values]

    def _bar(self, total: int) -> _Bar:
        return _Bar(total if self.verbose else 0)

    # --- vectors --------------------------------------------------------------------------------------------------

    def encode(
        self,
        texts: Iterable[str],
        side: Side,
        languages: Sequence[object] | None = None,
        *,
        post: bool = True,
        progress: Callable[[int], object] | None = None,
    ) -> Vectors:
        """Returns the vectors of texts, which have length 1.

        Args:
            texts: The texts.
            side: Whether they are questions or documents (``"query"``, ``"document"``).
            languages: The language of each, for the centring; by default the argument ``query_lang`` or ``doc_lang``.
            post: Whether to centre them, if there is a centring.
            progress: Called with how many distinct texts were encoded since the last call.

        Returns:
            Of shape (texts, dimension).
        """
        texts = list(texts)
        default = language_of(self.query_lang if side == "query" else self.doc_lang)
        langs = [default] * len(texts) if languages is None else [language_of(lang) or default for lang in languages]
        if len(langs) != len(texts):
            raise ValueError(f"expected a language for each of {len(texts)} texts, found {len(langs)}")
        rows = self._encoded(texts, side, langs, progress, post=post)
        return rows.distinct[rows.places]

    def _encoded(
        self,
        texts: list[str],
        side: Side,
        langs: list[str | None],
        progress: Callable[[int], object] | None = None,
        *,
        post: bool = True,
        warn: bool = True,
    ) -> _Rows:
        """Encodes each distinct text once, and centres it once for each of its languages."""
        encoder = self.load_model()
        known = dict.fromkeys(texts)
        vectors = normalised(encoder.encode(known, side, batch_size=self.batch_size, progress=progress))
        place = {text: i for i, text in enumerate(known)}
        if not post or self.post is None:
            return _Rows(vectors.__getitem__, np.array([place[text] for text in texts], dtype=np.int64), vectors)
        centring = self._checked_post()
        if warn and (unknown := centring.unknown(langs, side)):
            warnings.warn(centring.unknown_message(unknown, side), stacklevel=4)
        pairs = dict.fromkeys(zip(texts, langs, strict=True))
        centred = centring.apply(
            vectors[[place[text] for text, _ in pairs]], [lang for _, lang in pairs], side, warn=False
        )
        of_pair = {pair: i for i, pair in enumerate(pairs)}
        places = np.array([of_pair[pair] for pair in zip(texts, langs, strict=True)], dtype=np.int64)
        return _Rows(centred.__getitem__, places, centred)

    def _checked_post(self) -> LanguageCentering:
        assert self.post is not None
        if self.post.encoder is not None and self.post.encoder != self.fingerprint:
            raise ValueError(
                f"post was fitted on the vectors of an encoder with the fingerprint {self.post.encoder[:8]}, and this "
                f"is {self._name} with {self.fingerprint[:8]}; fit it again with LanguageCentering.fit_corpus()"
            )
        if self.post.dimension != self.encoder.dimension:
            raise ValueError(
                f"post was fitted on vectors of length {self.post.dimension}, and those of {self._name} have "
                f"{self.encoder.dimension}"
            )
        return self.post

    def query_encoder(self) -> MetaSBERTEncoder:
        """Returns a transformer that adds ``query_vec`` to rows with ``query``, centred if there is a centring."""
        return MetaSBERTEncoder(self, "query")

    def doc_encoder(self) -> MetaSBERTEncoder:
        """Returns a transformer that adds ``doc_vec`` to rows with text, centred if there is a centring."""
        return MetaSBERTEncoder(self, "document")

    # --- the encoder ----------------------------------------------------------------------------------------------

    def load_model(self) -> TextEncoder:
        """Loads the encoder now, so that the time of the first query does not contain it, and returns it.

        Raises:
            OSError: If there is no such encoder.
        """
        source = os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else id(self.model)
        if self._net is None or (self.weights is None and self._net_of != source):
            self._net, self._net_of = self._new(), source
        net = self._net
        if self.device is not None or not _is_model(self.model):
            device = resolve_device(self.device)
            if net.device != device:
                net.to(device)
        return TextEncoder(net, self._options.max_length)

    def _new(self) -> SentenceTransformer:
        """The encoder as it was before any training; a given one is not copied."""
        if _is_model(self.model):
            model: Any = self.model
            return model.eval()
        with quiet():
            return load_sentence_transformer(self.model, device=str(resolve_device(self.device)))  # type: ignore[arg-type]

    @property
    def encoder(self) -> TextEncoder:
        """What encodes texts, before centring; it is loaded if need be."""
        return self.load_model()

    @property
    def fingerprint(self) -> str:
        """What the encoder's vectors depend on: weights, prompts and lengths. The encoder is loaded if need be."""
        encoder = self.load_model()
        state = _versions(encoder.model)
        if self._digest is None or self._digest[0] != state:
            self._digest = state, _fingerprint(encoder.model)
        return hashlib.blake2b(repr((self._digest[1], encoder.max_length)).encode(), digest_size=16).hexdigest()

    @property
    def maker(self) -> Maker:
        """What an index keeps of this, to be searched with nothing else."""
        post = self.post
        if post is None:
            return Maker(self._name, self.fingerprint)
        return Maker(self._name, self.fingerprint, repr(post), self._checked_post().fingerprint)

    @property
    def _options(self) -> MetaConfig:
        return self.config or MetaConfig()

    @property
    def _name(self) -> str:
        return os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else type(self.model).__name__

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
                documents in all languages. Without them, the last one is kept.
            qrels_va: Their judgments.

        Returns:
            Itself; ``history`` has the log.

        Raises:
            EmptyLanguageError: If there is nothing in a language of ``config.transfer``.
            ValueError: If there is nothing to learn from, columns or languages are missing, or training diverges.
        """
        if self.algorithm == "zero-shot":
            return self
        from pyterrier_mart.meta.evaluation import lareqa_evaluate, summarise
        from pyterrier_mart.meta.learners import learner_class
        from pyterrier_mart.meta.sampling import TripletTaskSampler
        from pyterrier_mart.meta.training import train

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
        if _is_model(self.model):
            net = copy.deepcopy(net)
        net.to(resolve_device(self.device))
        encoder = TextEncoder(net, config.max_length)
        sampler = TripletTaskSampler(corpus, config, "train", encoder)
        tasks = TripletTaskSampler(valid, config, "valid", encoder) if valid and config.update_on_valid else None
        evaluate = None if valid is None else lambda: summarise(lareqa_evaluate(encoder, valid))
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

        for name, value in (("steps", steps), ("lr", lr)):
            if value is not None and (isinstance(value, bool) or not 0 <= value < math.inf):
                raise ValueError(f"{name} must be None or a number >= 0, not {value!r}")
        corpus = self._material(support_topics, qrels, self.corpus, "")
        encoder = self.load_model()
        adapted = adapt_copy(encoder, _episodes(corpus, self._options, encoder), self._options, steps=steps, lr=lr)
        made = self.apply_attributes()
        made._trained(adapted.model, self.history)
        if made.post is not None and made.post.encoder is not None:
            made.post = made.post.for_encoder(made.fingerprint)
        return made

    def _material(self, frame: pd.DataFrame, qrels: pd.DataFrame, source: Any, suffix: str) -> MultilingualCorpus:
        """Makes a corpus of questions, judgments, and documents from where they are to be had."""
        from pyterrier_mart.meta.corpus import MultilingualCorpus

        name, judged = f"topics_or_res{suffix}" if suffix else "support_topics", f"qrels{suffix}"
        _check_columns(frame, name, ("qid", "query"))
        _check_columns(qrels, judged, ("qid", "docno", "label"))
        if frame.empty:
            raise ValueError(f"{name} is empty: there are no questions, or the first stage found nothing")
        source = pt.get_dataset(source) if isinstance(source, str) else source
        known = source.topics if isinstance(source, MultilingualCorpus) else None
        topics = frame.assign(qid=frame["qid"].astype(str)).drop_duplicates("qid")
        lang = self.query_lang or _said(source, "get_topics_lang")
        if known is not None:
            rows = known.set_index("qid").reindex(topics["qid"])
            for column in ("query_lang", "qgroup", "group"):
                if column not in topics and rows[column].notna().all():
                    topics[column] = rows[column].to_numpy()
        topics = _with_language(topics, "query_lang", lang, name)
        docs = self._candidates(frame, source, name)
        if source is None and "group" in topics:  # of documents nothing is known
            topics = topics.drop(columns="group")
        qrels = qrels.assign(qid=qrels["qid"].astype(str), docno=qrels["docno"].astype(str))
        own = qrels[qrels["qid"].isin(set(topics["qid"]))]
        there = own["docno"].isin(set(docs["docno"]))
        if lost := int((~there & (own["label"] > 0)).sum()):
            warnings.warn(
                f"{lost} of {int((own['label'] > 0).sum())} relevant documents in {judged} are not among the documents "
                "and are left out" + ("; corpus= can name all documents" if source is None else ""),
                stacklevel=3,
            )
        corpus = MultilingualCorpus.from_frames(topics, docs, own[there].drop_duplicates(["qid", "docno"]), name)
        if corpus.topics.empty:
            raise ValueError(f"no question of {name} has a relevant document (label > 0) in {judged}")
        return corpus

    def _candidates(self, frame: pd.DataFrame, source: Any, name: str) -> pd.DataFrame:
        from pyterrier_mart.meta.corpus import MultilingualCorpus

        if isinstance(source, MultilingualCorpus):
            return source.docs
        if source is not None:
            rows, _ = documents_of(source)
            docs = pd.DataFrame(list(rows))
            _check_columns(docs, "corpus", ("docno", self.text_field))
            name = "corpus"
        elif {"docno", self.text_field} <= set(frame.columns):
            docs = frame
        else:
            raise ValueError(
                f"there are no documents to learn from: {name} lacks docno and {self.text_field!r}, it has "
                f"{list(frame)}; pass corpus=, or load texts with dataset.text_loader() before this"
            )
        docs = docs.assign(docno=docs["docno"].astype(str), text=docs[self.text_field]).drop_duplicates("docno")
        docs = docs[["docno", "text", *(column for column in ("doc_lang", "dgroup") if column in docs)]]
        return _with_language(docs, "doc_lang", self.doc_lang or _said(source, "get_corpus_lang"), name)

    # --- indexes --------------------------------------------------------------------------------------------------

    def index(self, path: str | os.PathLike[str], documents: Any, *, overwrite: bool = False) -> DenseIndex:
        """Encodes documents into an index on disk. It appears when it is complete, or not at all.

        Documents are read once, a few thousand at a time.

        Args:
            path: The directory of the index.
            documents: A :class:`MultilingualCorpus`, a PyTerrier dataset or its name, or an iterable of dicts or a
                frame with ``docno``, the text, and perhaps ``doc_lang``.
            overwrite: Whether to replace an existing index.

        Returns:
            The index, for :meth:`retriever`.

        Raises:
            ValueError: If there are no documents, or one lacks a field or has a docno that is wrong or occurs twice;
                the message names it.
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
            ImportError: If pyterrier_dr is not installed.
        """
        rows, lang = documents_of(documents)
        unknown: dict[str, int] = {}
        if self.post is not None:
            self._checked_post()  # before hours of work

        def encode(texts: list[str], langs: list[str | None]) -> Vectors:
            if self.post is not None:
                for name, count in self.post.unknown(langs, "document").items():
                    unknown[name] = unknown.get(name, 0) + count
            encoded = self._encoded(texts, "document", langs, warn=False)
            return encoded.distinct[encoded.places]

        if self.verbose:
            rows = pt.tqdm(rows, desc="MetaSBERT index", unit="d", total=_length(rows))
        made = DenseIndex.build(
            path, rows, encode, self.maker, text_field=self.text_field,
            doc_lang=language_of(self.doc_lang) or language_of(lang), overwrite=overwrite,
        )  # fmt: skip
        if unknown and self.post is not None:
            from collections import Counter

            warnings.warn(self.post.unknown_message(Counter(unknown), "document"), stacklevel=2)
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
        if self.post is not None:
            self._checked_post()
        with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
            with quiet():
                encoder.model.save_pretrained(os.fspath(tmp), create_model_card=False, safe_serialization=True)
            (tmp / _CONFIG).write_text(self._options.to_json() + "\n", encoding="utf-8")
            if self.history is not None:
                (tmp / _LOG).write_text(_log_json(self.history), encoding="utf-8")
            if self.post is not None:
                self.post.save(tmp / _POST)
            meta = {
                **_KIND, "package_hint": "pyterrier-mart", "encoder": None if _is_model(self.model) else self._name,
                "settings": self._settings(), "trained": self.history is not None, "weights": self._digest[1],
                "fingerprint": fingerprint, "dimension": encoder.dimension, "files": _checksums(tmp),
            }  # fmt: skip
            (tmp / META).write_bytes(meta_bytes(meta))
        return MetaSBERTModel(path)

    def _settings(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in _SETTINGS}
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

    def _trained(self, net: SentenceTransformer, history: TrainingLog | None) -> None:
        net.eval()
        self._net, self._digest, self.history = net, None, history
        self.weights = _fingerprint(net)
        self._digest = _versions(net), self.weights

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
        model = self.fingerprint if _is_model(self.model) else self._name
        settings = tuple(_frozen(getattr(self, name)) for name in _SETTINGS if name != "algorithm")
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
        name = f"<SentenceTransformer {self.fingerprint[:8]}>" if _is_model(self.model) else repr(self._name)
        values = {name: getattr(self, name) for name in ("dense_index", "post", *_SETTINGS)}
        changed = "".join(f", {name}={value!r}" for name, value in values.items() if value != _DEFAULTS[name])
        config = f", {self.config.short()}" if self.config is not None else ""
        weights = f", weights {self.weights[:8]}" if self.weights is not None else ""
        return f"MetaSBERTRetriever({name}{changed}{config}{weights})"


class MetaSBERTEncoder(pt.Transformer):
    """Adds the vectors of queries or documents; see :meth:`MetaSBERTRetriever.query_encoder`.

    Vectors of a column that is there already are replaced.

    Args:
        dense: What encodes.
        side: Whether to encode ``query`` to ``query_vec`` (``"query"``) or text to ``doc_vec`` (``"document"``).
    """

    def __init__(self, dense: MetaSBERTRetriever, side: Side = "query"):
        if side not in ("query", "document"):
            raise ValueError(f"side must be 'query' or 'document', not {side!r}")
        self.dense, self.side = dense, side
        self.schematic = {"label": "Query Vectors" if side == "query" else "Doc Vectors", "help_url": HELP_URL}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds a column of float32 arrays of length 1."""
        dense, prefix = self.dense, "query" if self.side == "query" else "doc"
        column = "query" if self.side == "query" else dense.text_field
        pt.validate.columns(inp, includes=[column], context=self)
        vectors: list[Vectors] = []
        if len(inp):
            texts = dense._texts(inp, column, 4)
            with dense._bar(len(set(texts))) as progress:
                rows = dense._encoded(texts, self.side, dense._langs(inp, prefix), progress)
            vectors = list(rows.distinct[rows.places])
        return inp.assign(**{f"{prefix}_vec": pd.Series(vectors, index=inp.index, dtype=object)})

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Cuts a ranking before, rather than after, texts are encoded."""
        return pt.RankCutoff(k) >> self

    def subtransformers(self) -> dict[str, Any]:
        """There are none: it does not call ``dense`` as one."""
        return {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetaSBERTEncoder):
            return NotImplemented
        return (self.dense, self.side) == (other.dense, other.side)

    def __hash__(self) -> int:
        return hash((MetaSBERTEncoder, self.dense, self.side))

    def __repr__(self) -> str:
        return f"{self.dense!r}.{'query' if self.side == 'query' else 'doc'}_encoder()"


class MetaSBERTModel(pt.Artifact):
    """A saved :class:`MetaSBERTRetriever`, as ``pt.Artifact.load(path)`` returns it.

    The directory is also what ``SentenceTransformer(path)`` loads.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is something else, or damaged.
    """

    ARTIFACT_TYPE = "text_encoder"
    ARTIFACT_FORMAT = "mart_sbert"
    ARTIFACT_PACKAGE_HINT = "pyterrier-mart"

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path)
        super().__init__(self.path)
        self.meta = read_meta(self.path, _WHAT, _KIND, ("settings", "encoder", "weights", "fingerprint", "files"))
        settings, files = self.meta["settings"], self.meta["files"]
        if not isinstance(settings, dict) or set(settings) != set(_SETTINGS):
            raise ValueError(f"damaged {_WHAT} {self.path}: {META} has the settings {settings!r}")
        if not isinstance(files, dict) or _CONFIG not in files:
            raise ValueError(f"damaged {_WHAT} {self.path}: {META} has the files {files!r:.200}")

    def retriever(
        self,
        dense_index: DenseIndex | str | os.PathLike[str] | None = None,
        *,
        num_results: int | None = None,
        doc_langs: Sequence[str] | None = None,
        batch_size: int = 64,
        device: str | None = None,
        verbose: bool = False,
    ) -> MetaSBERTRetriever:
        """Loads the retriever that was saved.

        Args:
            dense_index: See :class:`MetaSBERTRetriever`.
            num_results: See there; by default what was saved.
            doc_langs: See there; by default what was saved.
            batch_size: See there.
            device: See there.
            verbose: See there.

        Raises:
            ValueError: If a file is missing, or is not as it was saved; the message names it.
        """
        self._check_files()
        settings = dict(self.meta["settings"])
        changes = {"num_results": num_results, "doc_langs": doc_langs}
        settings.update({name: value for name, value in changes.items() if value is not None})
        try:
            config = MetaConfig.from_json((self.path / _CONFIG).read_text(encoding="utf-8"))
            post = LanguageCentering.load(self.path / _POST) if _POST in self.meta["files"] else None
            history = self._history()
            with quiet():
                net = load_sentence_transformer(self.path, device=str(resolve_device(device)))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as err:
            raise ValueError(f"damaged {_WHAT} {self.path}: {err}") from err
        except Exception as err:  # of safetensors, whose type is its own
            if type(err).__name__ != "SafetensorError":
                raise
            raise ValueError(f"damaged {_WHAT} {self.path}: {err}") from err
        made = MetaSBERTRetriever(
            self.meta["encoder"] or self.path, dense_index, config=config, post=post, batch_size=batch_size,
            device=device, verbose=verbose, **settings,
        )  # fmt: skip
        made._trained(net, history)
        if (made.weights, made.fingerprint) != (self.meta["weights"], self.meta["fingerprint"]):
            raise ValueError(f"damaged {_WHAT} {self.path}: its weights are not those that were saved")
        return made

    def _check_files(self) -> None:
        for name, digest in self.meta["files"].items():
            try:
                found = _checksum(self.path / name)
            except OSError as err:
                raise ValueError(f"damaged {_WHAT} {self.path}: cannot read {name} ({err})") from err
            if found != digest:
                raise ValueError(f"damaged {_WHAT} {self.path}: {name} is not as it was saved")

    def _history(self) -> TrainingLog | None:
        if _LOG not in self.meta["files"]:
            return None
        from pyterrier_mart.meta.training import TrainingLog

        return TrainingLog(**json.loads((self.path / _LOG).read_text(encoding="utf-8")))

    def __repr__(self) -> str:
        return (
            f"MetaSBERTModel({str(self.path)!r}, {self.meta['encoder'] or '?'}, {self.meta['settings']['algorithm']})"
        )


class _Rows:
    """Vectors of rows, of which many are the same.

    Attributes:
        get: Returns vectors by their places.
        places: The place of each row.
        distinct: All vectors, where they are in memory.
    """

    def __init__(
        self,
        get: Callable[[Any], Vectors],
        places: npt.NDArray[np.int64],
        distinct: Vectors | None = None,
    ):
        self._get, self.places = get, places
        self._distinct = distinct

    @property
    def distinct(self) -> Vectors:
        assert self._distinct is not None
        return self._distinct

    def dot(self, other: _Rows) -> npt.NDArray[np.float64]:
        """Returns the dot product of each row with that of the other, a part at a time."""
        scores = np.empty(len(self.places), dtype=np.float64)
        for start in range(0, len(scores), _ROWS):
            part = slice(start, start + _ROWS)
            left, right = self._get(self.places[part]), other._get(other.places[part])
            scores[part] = np.einsum("ij,ij->i", left, right)
        return scores


class _Bar:
    """A progress bar, or none if there is nothing to do; gives what moves it on."""

    def __init__(self, total: int):
        self._total, self._bar = total, None

    def __enter__(self) -> Callable[[int], object] | None:
        if not self._total:
            return None
        self._bar = pt.tqdm(total=self._total, desc="MetaSBERT", unit="text")
        return self._bar.update  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _each(
    places: npt.NDArray[np.int64], queries: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Gives each row the hits of its query.

    Args:
        places: The query of each row.
        queries: The query of each hit, sorted.

    Returns:
        The row, and the position of the hit, of each pair of the two.
    """
    starts, ends = (np.searchsorted(queries, places, side=side) for side in ("left", "right"))
    counts = ends - starts
    rows = np.repeat(np.arange(len(places)), counts)
    return rows, np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - starts, counts)


def _episodes(corpus: MultilingualCorpus, config: MetaConfig, encoder: TextEncoder) -> list[TripletEpisode]:
    """Returns support sets of all questions: a row for each relevant document, ``config.k_shot`` questions a set."""
    from pyterrier_mart.meta.negatives import NegativeMiner

    miner = NegativeMiner(corpus, config, encoder if config.negatives != "random" else None)
    rng = np.random.default_rng(config.seed)
    qids = list(corpus.queries)
    episodes = []
    for start in range(0, len(qids), config.k_shot):
        part = qids[start : start + config.k_shot]
        rows = [
            Row(qid, docno, miner.sample(qid, docno, corpus.doc_langs, config.n_neg, rng))
            for qid in part
            for docno in sorted(corpus.relevant[qid])
        ]
        relevant = {qid: miner.answers(qid) for qid in part}
        episodes.append(TripletEpisode.build(rows, corpus.queries, corpus.documents, relevant))
    return episodes


def _check_columns(frame: object, name: str, columns: tuple[str, ...]) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"{name} must be a data frame, not {frame!r:.80}")
    if missing := [column for column in columns if column not in frame]:
        raise ValueError(f"{name} lacks the column {', '.join(map(repr, missing))}, it has {list(frame)}")


def _said(dataset: Any, method: str) -> str | None:
    """The language that a dataset says its topics or documents are in."""
    return language_of(getattr(dataset, method, lambda: None)())


def _with_language(frame: pd.DataFrame, column: str, default: str | None, name: str) -> pd.DataFrame:
    values = frame[column].tolist() if column in frame else [None] * len(frame)
    langs = [language_of(value) or language_of(default) for value in values]
    if None in langs:
        raise ValueError(
            f"{name}: the language of {langs.count(None)} of {len(langs)} rows is not known; add the column {column}, "
            f"or pass {column}="
        )
    return frame.assign(**{column: langs})


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


def _is_model(value: object) -> bool:
    return isinstance(value, torch.nn.Module) and hasattr(value, "encode") and hasattr(value, "prompts")


def _versions(model: torch.nn.Module) -> tuple[object, ...]:
    """Changes when weights do, without reading them."""
    return id(model), tuple((value.data_ptr(), value._version) for value in model.parameters())


def _fingerprint(model: SentenceTransformer) -> str:
    """Returns what vectors depend on besides lengths: weights, pooling and other modules, prompts."""
    modules = [
        [type(module).__name__, getattr(module, "get_config_dict", lambda: None)()] for module in model.children()
    ]
    tokenizer: Any = model.tokenizer
    described = json.dumps([modules, len(tokenizer), dict(model.prompts)], sort_keys=True, default=repr)
    digest = hashlib.blake2b(described.encode(), digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _log_json(log: TrainingLog) -> str:
    """The log as JSON, which has no numbers that are not finite: ``null`` in their place."""
    values = dataclasses.asdict(log)
    values["steps"] = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in values["steps"]
    ]
    return json.dumps(values, indent=1, allow_nan=False) + "\n"


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _checksums(directory: Path) -> dict[str, str]:
    """Checksums of all files but the weights, which have a fingerprint."""
    return {
        path.relative_to(directory).as_posix(): _checksum(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith("model")
    }


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(MetaSBERTRetriever.__init__).parameters.items()
    if name != "self"
}
