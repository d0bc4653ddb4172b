"""What tests of dense retrieval share: a tiny corpus in three languages, and retrievers that share one tiny encoder."""

from functools import cache

import models
import numpy as np
import pandas as pd

from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.meta.config import MetaConfig
from pyterrier_mart.meta.retriever import MetaSBERTRetriever

LANGS = ("de", "el", "en")


@cache
def corpus():
    """Twelve queries with an answer in each of three languages, and as many documents that answer none."""
    words = iter(models.words())
    topics, docs, judged = [], [], []
    for i in range(12):
        for lang in LANGS:
            said = [next(words) for _ in range(3)]
            topics.append((f"{lang}-{i}", " ".join(said[:2]), lang, f"g{i}"))
            docs.append((f"{lang}-{i:02d}", " ".join(said[1:]), lang, f"a{i}"))
            docs.append((f"{lang}-n{i:02d}", " ".join(next(words) for _ in range(3)), lang, f"n{i}"))
            judged.extend((f"{lang}-{i}", f"{other}-{i:02d}", 1) for other in LANGS)
    return MultilingualCorpus.from_frames(
        pd.DataFrame(topics, columns=["qid", "query", "query_lang", "qgroup"]),
        pd.DataFrame(docs, columns=["docno", "text", "doc_lang", "dgroup"]),
        pd.DataFrame(judged, columns=["qid", "docno", "label"]),
    )


TOPICS = corpus().topics[["qid", "query", "query_lang"]].iloc[[0, 1, 5, 9]].reset_index(drop=True)
DOCS = corpus().docs[["docno", "text", "doc_lang"]]
ROWS = TOPICS.merge(DOCS.iloc[[0, 3, 8, 20]], how="cross")
QUICK = MetaConfig(
    transfer="en_en-en_de-en_de,el", k_shot=2, q_query=2, inner_steps=2, meta_batch_size=2, max_steps=3, eval_steps=1,
    outer_lr=1e-3, inner_lr=0.01, n_tasks=(8, 4, 4),
)  # fmt: skip


@cache
def base():
    """Its weights, which take long to load, are shared by all that are made of it."""
    made = MetaSBERTRetriever(models.bert(), device="cpu")
    made.load_model()
    return made


def dense(**options):
    return base().apply_attributes(**options)


@cache
def centring():
    return LanguageCentering.fit_corpus(base(), corpus())


@cache
def index():
    return dense().index(models.folder() / "plain", corpus())


@cache
def trained():
    """A retriever that was trained and has a centring; tests do not change it."""
    part = corpus()
    made = dense(config=QUICK, corpus=part, post=LanguageCentering(), query_lang="en", num_results=7)
    return made.fit(part.topics, part.qrels, part.topics.head(9), part.qrels)


def scores(system, rows=ROWS):
    return system(rows)["score"].to_numpy()


def same(one, other, rows=ROWS):
    return np.allclose(scores(one, rows), scores(other, rows), atol=1e-6)


def messages(caught):
    return [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
