"""What the quickstart measures: first stages, dense retrieval and re-ranking on XQuAD-R sentences."""

from __future__ import annotations

import platform
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP, P, R

from pyterrier_mart import BM25Retriever, SMTQueryTranslator, TranslationTable, __version__, bm25_index, psq_index
from pyterrier_mart.datasets import xquad_r
from pyterrier_mart.evaluation import paired_test, split

__all__ = ["MEASURES", "Outcome", "measure", "measure_reranking"]

MEASURES = ("AP@100", "P@10", "R@100")
_SEED = 42
_CENTRING = 200  # texts of each side whose mean is taken


class Outcome(NamedTuple):
    """The table of :func:`measure` and what it was made with."""

    table: pd.DataFrame
    settings: dict[str, Any]

    def row(self, name: str) -> pd.Series:
        """Returns the values of a system."""
        return self.table.set_index("name").loc[name]


def measure(
    question_language: str,
    document_language: str,
    table: TranslationTable,
    *,
    encoder: str | None = None,
    engine: str = "auto",
    stop: bool = False,
    progress: bool = False,
) -> Outcome:
    """Compares first stages on XQuAD-R sentences.

    They are BM25 without translation, with query translation and with human translation, PSQ-HMM, dense retrieval with
    an encoder as it is and with its vectors centred by language, and PSQ-HMM and dense retrieval together.

    Args:
        question_language: Language of the 1190 questions.
        document_language: Language of the sentences.
        table: A table in that direction.
        encoder: For dense retrieval, what :func:`pyterrier_mart.encoders.resolve` takes; ``None`` leaves it out.
        engine: ``"auto"``, ``"pisa"`` or ``"terrier"``.
        stop: Whether stop words are left out of queries and index.
        progress: Whether to show progress bars.

    Returns:
        A :func:`pt.Experiment` table with AP@100, P@10 and R@100, the first row being the baseline of the differences
        and of the paired t-tests.
    """
    data = xquad_r.XQuADR(question_language, document_language)
    with tempfile.TemporaryDirectory(prefix="pyterrier-mart-") as tmp:
        index = bm25_index(data, Path(tmp) / "index", stop=stop, engine=engine, progress=progress)
        bm25 = index.bm25(num_results=100)
        psq = psq_index(data, Path(tmp) / "psq", table, stop=stop, engine=engine, progress=progress).retriever()
        systems = {
            "no translation": bm25, "SMT (table)": SMTQueryTranslator(table, stop=stop) >> bm25,
            "PSQ-HMM (table)": psq % 100,
        }  # fmt: skip
        if encoder is not None:
            systems |= dense_systems(data, encoder, psq, Path(tmp), progress)
        systems["human translation"] = data.human_translation() >> bm25
        settings = {} if encoder is None else {"encoder": encoder}
        return compare(systems, data, data.get_topics(), bm25, table, settings, verbose=progress)


def dense_systems(
    data: xquad_r.XQuADR, encoder: str, words: pt.Transformer, folder: Path, progress: bool
) -> dict[str, pt.Transformer]:
    """Returns dense retrieval without training, as the encoder is and centred by language, and together with words."""
    from pyterrier_mart import Hybrid, LanguageCentering, MetaSBERTRetriever, MultilingualCorpus

    source, target = data.languages
    languages: dict[str, Any] = {"query_lang": source, "doc_lang": target}
    dense = MetaSBERTRetriever(encoder, **languages, verbose=progress)
    index = dense.index(folder / "dense", data)
    corpus = MultilingualCorpus.from_dataset(data)
    dense.verbose = False
    # There is one language on each side: without its mean as a whole, nothing would be left to subtract.
    centring = LanguageCentering.fit_corpus(dense, corpus, sample=_CENTRING, keep_global=False)
    centred = MetaSBERTRetriever(encoder, **languages, post=centring)
    centred_index = centred.index(folder / "centred", index)
    return {
        "dense, zero-shot": dense.retriever(index, num_results=100),
        "dense, centred": centred.retriever(centred_index, num_results=100),
        "hybrid": Hybrid(words, dense.retriever(index), num_results=100),
    }


def measure_reranking(
    question_language: str,
    document_language: str,
    table: TranslationTable,
    *,
    encoder: str = "e5-small",
    questions: int | None = None,
    epochs: int = 2,
    depth: int = 10,
    freeze_layers: int = 6,
    test_questions: int | None = None,
    engine: str = "auto",
    stop: bool = False,
    progress: bool = False,
) -> Outcome:
    """Trains MART on some questions and re-ranks the first stage's best documents for others.

    Questions are split by article (:func:`pyterrier_mart.evaluation.split`, first fold): what is tested is about other
    articles than what is trained on.

    Args:
        question_language: Language of the questions.
        document_language: Language of the sentences.
        table: A table in that direction.
        encoder: What :func:`pyterrier_mart.encoders.resolve` takes.
        questions: Maximum number of questions to train on; ``None`` for all of the fold, about 720.
        epochs: How often each of them is trained on.
        depth: Documents to re-rank for each question; the rest follow in the first stage's order.
        freeze_layers: Number of the encoder's layers that are not trained, nor its embeddings, which saves time.
        test_questions: Maximum number of questions to test on; ``None`` for all of the fold.
        engine: ``"auto"``, ``"pisa"`` or ``"terrier"``.
        stop: Whether stop words are left out of queries and index.
        progress: Whether to show progress bars.

    Returns:
        A :func:`pt.Experiment` table as of :func:`measure`; the baseline is query translation.
    """
    from pyterrier_mart import MARTReRanker, TrainingOptions

    data = xquad_r.XQuADR(question_language, document_language)
    topics, qrels = data.get_topics(), data.get_qrels()
    fold = split(topics, seed=_SEED, groups=data.articles())[0]
    by_qid = topics.set_index("qid", drop=False)
    chosen = np.random.default_rng(_SEED).permutation(fold.train)[:questions]
    options = TrainingOptions(
        epochs=epochs, learning_rate=1e-4, new_learning_rate=1e-3, accumulation=4, seed=_SEED,
        freeze_layers=freeze_layers, trainer={"lr_scheduler_type": "linear"},
    )  # fmt: skip
    rank = MARTReRanker(encoder, table, training=options, positives_text=data, verbose=progress)
    with tempfile.TemporaryDirectory(prefix="pyterrier-mart-") as tmp:
        index = bm25_index(data, Path(tmp) / "index", stop=stop, engine=engine, progress=False)
        bm25 = index.bm25(num_results=100)
        smt = SMTQueryTranslator(table, stop=stop) >> bm25
        pipeline: Any = smt % depth >> data.text_loader() >> rank
        pipeline.fit(by_qid.loc[chosen].reset_index(drop=True), qrels)
        systems = {
            "SMT (table)": smt,
            "MART": pipeline ^ smt,
            "human translation": data.human_translation() >> bm25,
        }
        tested = by_qid.loc[list(fold.test)[:test_questions]].reset_index(drop=True)
        settings = {
            "encoder": encoder, "training_questions": len(chosen), "depth": depth, "training": options.as_json(),
            "loss": [round(entry["loss"], 4) for entry in rank.history or [] if "loss" in entry],
        }  # fmt: skip
        return compare(systems, data, tested, bm25, table, settings)


def compare(
    systems: dict[str, Any],
    data: xquad_r.XQuADR,
    topics: pd.DataFrame,
    bm25: BM25Retriever,
    table: TranslationTable,
    settings: dict[str, Any],
    *,
    verbose: bool = False,
) -> Outcome:
    """Compares systems with the first of them; the settings are those of them that are not of all."""
    qrels = data.get_qrels()
    qrels = qrels[qrels["qid"].isin(topics["qid"])]
    with warnings.catch_warnings():  # that systems share components
        warnings.filterwarnings("ignore", message="There are shared pipeline components")
        frame = pt.Experiment(
            list(systems.values()), topics, qrels, [AP @ 100, P @ 10, R @ 100], names=list(systems), baseline=0,
            verbose=verbose, test=paired_test(),
        )  # fmt: skip
    index = bm25.index
    packages = ["python-terrier", "pyterrier", "numpy", "pandas", "torch", "transformers"]
    packages += ["pyterrier-pisa"] if index.engine == "pisa" else []
    return Outcome(frame, {
        "dataset": f"mart:{data.name}", "topics": len(topics), "documents": len(index),
        "engine": index.engine, "k1": bm25.k1, "b": bm25.b, "stop": index.analyzer.stop, "top_k": 10,
        "table": {"direction": "-".join(table.languages), "entries": len(table), "fingerprint": table.fingerprint},
        "versions": {
            "pyterrier-mart": __version__, "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        **settings,
    })  # fmt: skip
