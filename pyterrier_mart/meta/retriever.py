"""MetaSBERTRetriever: a dense retriever that learns to rank across languages."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyterrier as pt
import torch

from pyterrier_mart.checks import check_choice, check_number, check_whole
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.encoder import TextEncoder, load_sentence_transformer, model_fingerprint
from pyterrier_mart.dense.index import DenseIndex
from pyterrier_mart.dense.retriever import DEFAULT_MODEL, DenseRetriever
from pyterrier_mart.devices import resolve_device
from pyterrier_mart.evaluation.lareqa import lareqa_evaluate, summarise
from pyterrier_mart.frames import warn
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.meta import artifact
from pyterrier_mart.meta.config import ALGORITHMS, MetaConfig
from pyterrier_mart.meta.inner_loop import adapt_copy
from pyterrier_mart.meta.learners import LEARNERS
from pyterrier_mart.meta.sampling import TripletTaskSampler
from pyterrier_mart.meta.training import TrainingLog, train
from pyterrier_mart.meta.training_data import corpus_of, few_queries, support_sets

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer  # takes seconds to import

__all__ = ["MetaSBERTModel", "MetaSBERTRetriever"]

#: What is saved of the arguments besides weights, configuration and centring.
_SETTINGS = ("algorithm", "query_lang", "doc_lang", "num_results", "doc_langs", "text_field")


class MetaSBERTRetriever(DenseRetriever, pt.Estimator):
    """A :class:`~pyterrier_mart.dense.retriever.DenseRetriever` that can be meta-learned.

    It re-ranks rows with ``text``, re-ranks rows with ``docno`` by an index, and retrieves from an index for rows with
    a query alone; ``query_encoder()`` and ``doc_encoder()`` add vectors. :class:`LanguageCentering` reads languages in
    the columns ``query_lang`` and ``doc_lang``, or the arguments of these names.

    Without :meth:`fit` it is the encoder as it is (zero-shot). :meth:`fit` meta-learns as MAML-Align does, from
    queries that are answered in several languages, so that ranking in one language transfers to ranking in many.
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
        config: The settings of :meth:`fit`. Its ``max_length`` is what is read of queries and documents, also
            without training.
        corpus: Documents for :meth:`fit`: a :class:`MultilingualCorpus`, or a PyTerrier dataset or its name.
        valid_corpus: Documents that validation queries are ranked against; by default ``corpus``.
        post: A :class:`LanguageCentering` for the vectors.
        query_lang: Language of queries whose row does not say it.
        doc_lang: Language of documents whose row does not say it.
        num_results: Maximum number of documents for each query, in retrieval.
        doc_langs: Retrieve only documents in these languages; ``None`` for all.
        batch_size: Maximum number of texts that are encoded at a time. Scores do not depend on it.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``; ``None`` or ``"auto"`` for the first GPU, or the CPU
            without one.
        text_field: The column with the documents' text.
        output_dir: Where :meth:`fit` leaves checkpoints and its log, from which it resumes when interrupted.
        verbose: Whether to show progress bars.

    Attributes:
        history: The log of training, if there was one.

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
        check_choice("algorithm", algorithm, ALGORITHMS)
        super().__init__(
            model, dense_index, post=post, query_lang=query_lang, doc_lang=doc_lang, num_results=num_results,
            doc_langs=doc_langs, batch_size=batch_size, device=device, text_field=text_field, verbose=verbose,
        )  # fmt: skip
        self.algorithm, self.config, self.output_dir = algorithm, config, output_dir
        self.corpus, self.valid_corpus = corpus, valid_corpus
        self.history: TrainingLog | None = None

    @property
    def config(self) -> MetaConfig:
        """The settings of :meth:`fit`."""
        return self._config

    @config.setter
    def config(self, config: MetaConfig | None) -> None:
        self._config = config or MetaConfig()
        self.max_length = self._config.max_length

    # --- learning -------------------------------------------------------------------------------------------------

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> MetaSBERTRetriever:
        """Learns from queries and judgments, by ``algorithm``; a pipeline's ``fit`` calls this.

        Documents are those of ``corpus``, or else those of the rows that a pipeline's first stage found. Fitting again
        starts from the encoder's weights again. An index that was made before is then one of another encoder, and has
        to be rebuilt; a centring is fitted again on the queries and documents of training. With the algorithm
        ``"zero-shot"`` nothing is done.

        Args:
            topics_or_res_tr: Queries: ``qid``, ``query``, and ``query_lang`` unless it is an argument; ``qgroup`` if
                the same query is there in several languages. Without ``corpus`` also ``docno``, the text, and
                ``doc_lang`` unless it is an argument.
            qrels_tr: Judgments: ``qid``, ``docno``, ``label``. Labels above 0 are relevant. Those of other queries
                are left out, as are those of documents that are not there, with a warning that counts these.
            topics_or_res_va: Queries that choose the best meta-step, by their mean AP@20 over the validation
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
        config = self.config
        corpus = self._training_data(topics_or_res_tr, qrels_tr, self.corpus, "_tr")
        valid = None
        if topics_or_res_va is not None and not topics_or_res_va.empty:
            if qrels_va is None:
                raise ValueError("qrels_va is missing: validation queries need judgments")
            source = self.corpus if self.valid_corpus is None else self.valid_corpus
            valid = self._training_data(topics_or_res_va, qrels_va, source, "_va")
        elif topics_or_res_va is not None:
            warn("there are no validation queries: the weights of the last step are kept")
        net = self.new_model()  # what was trained before stays until this training is finished
        if isinstance(self.model, torch.nn.Module):
            net = copy.deepcopy(net)
        encoder = TextEncoder(net.to(resolve_device(self.device)), config.max_length)
        sampler = TripletTaskSampler(corpus, config, "train", encoder)
        tasks = TripletTaskSampler(valid, config, "valid", encoder) if valid and config.update_on_valid else None
        few = None if valid is None else few_queries(valid, config.valid_questions, config.seed)
        evaluate = None if few is None else lambda: summarise(lareqa_evaluate(encoder, few))
        learner = LEARNERS[self.algorithm](encoder, config)
        self.history = train(
            learner, sampler, evaluate=evaluate, output_dir=self.output_dir, verbose=self.verbose, valid_tasks=tasks
        )
        self.set_model(net)
        if self.post is not None:
            self.post = LanguageCentering.fit_corpus(self, corpus, **self.post.settings)
        return self

    def adapt(
        self, support_topics: pd.DataFrame, qrels: pd.DataFrame, *, steps: int | None = None, lr: float | None = None
    ) -> MetaSBERTRetriever:
        """Returns a copy that is adapted to a few queries and judgments, as in the inner loop of meta-learning.

        This one stays as it is. A step is taken on each ``config.k_shot`` queries in turn, so that the order of
        queries matters where there are more. The copy keeps the centring as it is; an index that was made before is
        one of another encoder.

        Args:
            support_topics: As in :meth:`fit`.
            qrels: As in :meth:`fit`.
            steps: Steps on each support set; by default ``config.inner_steps``.
            lr: The learning rate; by default ``config.inner_lr``.

        Raises:
            ValueError: If there is nothing to learn from, or columns or languages are missing.
        """
        check_whole("steps", steps, 0, optional=True)
        check_number("lr", lr, optional=True)
        corpus = self._training_data(support_topics, qrels, self.corpus)
        encoder = self.load_model()
        adapted = adapt_copy(encoder, support_sets(corpus, self.config, encoder), self.config, steps=steps, lr=lr)
        made = self.apply_attributes()
        made.set_model(adapted.model)
        if made.post is not None and made.post.encoder is not None:
            made.post = made.post.apply_attributes()
            made.post.encoder = made.fingerprint
        return made

    def _training_data(
        self, frame: pd.DataFrame, qrels: pd.DataFrame, source: Any, suffix: str = ""
    ) -> MultilingualCorpus:
        return corpus_of(frame, qrels, source, self.query_lang, self.doc_lang, self.text_field, suffix)

    # --- on disk --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> MetaSBERTModel:
        """Saves encoder, settings and centring to a directory that ``SentenceTransformer`` loads too.

        Args:
            path: The directory.
            overwrite: Whether to replace what was saved there before.

        Raises:
            FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
        """
        model = self.encoder.model
        described = {
            "encoder": None if isinstance(self.model, torch.nn.Module) else self.model_name,
            "settings": {name: getattr(self, name) for name in _SETTINGS},
            "weights": self.weights or model_fingerprint(model),
        }
        post = None if self.post is None else self.checked_post()
        artifact.write(path, model, self.config, post, self.history, described, overwrite=overwrite)
        return MetaSBERTModel(path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        dense_index: DenseIndex | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> MetaSBERTRetriever:
        """Loads what :meth:`save` saved. It scores as before.

        Args:
            path: The directory.
            dense_index: As for the class.
            options: ``device``, ``batch_size``, ``verbose`` and other arguments of the class in the place of those that
                were saved.

        Raises:
            FileNotFoundError: If there is no such directory.
            ValueError: If it holds something else or is damaged; the message names it.
        """
        return MetaSBERTModel(path).retriever(dense_index, **options)

    # --- identity -------------------------------------------------------------------------------------------------

    def apply_attributes(self, **attributes: Any) -> MetaSBERTRetriever:
        """Returns a copy with other arguments, with the same weights if it may."""
        made = super().apply_attributes(**attributes)
        made.history = None if "model" in attributes else self.history
        return made

    def settings(self) -> dict[str, Any]:
        """The arguments besides the encoder and the configuration that decide what comes out, or what is learned."""
        return {"algorithm": self.algorithm, **super().settings()}

    def __repr__(self) -> str:
        shown = super().__repr__()
        return shown if self.config == MetaConfig() else f"{shown[:-1]}, {self.config.short()})"


class MetaSBERTModel(pt.Artifact):
    """A saved :class:`MetaSBERTRetriever`, as ``pt.Artifact.load(path)`` returns it.

    The directory is also what ``SentenceTransformer(path)`` loads.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is something else, or damaged.
    """

    ARTIFACT_TYPE = artifact.KIND["type"]
    ARTIFACT_FORMAT = artifact.KIND["format"]
    ARTIFACT_PACKAGE_HINT = "pyterrier-mart"

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path).absolute()  # wherever the process goes
        super().__init__(self.path)
        self.meta = artifact.read_metadata(self.path)

    def retriever(
        self,
        dense_index: DenseIndex | str | os.PathLike[str] | None = None,
        *,
        device: str | None = None,
        **options: Any,
    ) -> MetaSBERTRetriever:
        """Loads the retriever that was saved.

        Args:
            dense_index: As for :class:`MetaSBERTRetriever`.
            device: As for :class:`MetaSBERTRetriever`.
            options: Other arguments of :class:`MetaSBERTRetriever` in the place of those that were saved, such as
                ``num_results`` or ``doc_langs``.

        Raises:
            ValueError: If a file is missing, or is not as it was saved; the message names it.
        """
        config, post, history = artifact.read(self.path)
        arguments = {**self.meta["settings"], "config": config, "post": post, **options}
        made = MetaSBERTRetriever(self.meta["encoder"] or self.path, dense_index, device=device, **arguments)
        made.set_model(load_sentence_transformer(self.path, device=device), self.meta["weights"])
        made.history = history
        return made

    def __repr__(self) -> str:
        encoder, algorithm = self.meta["encoder"] or "?", self.meta["settings"]["algorithm"]
        return f"MetaSBERTModel({str(self.path)!r}, {encoder}, {algorithm})"
