"""What tests of MART share: tiny encoders with real tokenizers, and a task that only a translation table solves."""

import atexit
import os
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyterrier as pt
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

from pyterrier_mart import MARTReRanker, TranslationTable, encoders
from pyterrier_mart.devices import quiet

_SIZES = {
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip


def packaged(name: str) -> str:
    """The directory of an encoder that a package carries. Where everything is tested it must be installed."""
    try:
        return encoders.resolve(name)
    except ImportError as err:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(err), allow_module_level=True)


@cache
def folder() -> Path:
    """A directory for models that live as long as the tests run."""
    temporary = tempfile.TemporaryDirectory(prefix="test-models-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)


def _save(name: str, tokenizer, model) -> Path:
    path = folder() / name
    tokenizer.save_pretrained(path)
    with quiet():
        model.save_pretrained(path)
    return path


@cache
def bert(spread: float = 0.1) -> Path:
    """A BERT of four layers with random weights, and a WordPiece tokenizer of English."""
    tokenizer = AutoTokenizer.from_pretrained(packaged("minilm-l6-en"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = BertModel(BertConfig(vocab_size=len(tokenizer), initializer_range=spread, **_SIZES))
    return _save(f"bert-{spread}", tokenizer, model)


_BUILT: dict[tuple[object, ...], object] = {}


def reranker(path: Path, table: TranslationTable | None, **options) -> MARTReRanker:
    """A re-ranker that was not trained, on the CPU; loading takes longer than what is tested, and is done once."""
    made = MARTReRanker(path, table, device="cpu", **options)
    key = made._architecture()
    if key not in _BUILT:
        _BUILT[key] = made.loaded()
    made._loaded = _BUILT[key]
    return made


@cache
def xlm_roberta() -> Path:
    """An XLM-RoBERTa of four layers with random weights, and its SentencePiece tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(packaged("e5-small"))
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=514, type_vocab_size=1, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, initializer_range=0.1, **_SIZES,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = XLMRobertaModel(config)
    return _save("xlm-roberta", tokenizer, model)


class Task(NamedTuple):
    """A task of ranking: results of a first stage with texts, judgments, and the table that solves it.

    Attributes:
        results: qid, query, docno, text, score, rank.
        qrels: qid, docno, label.
        table: From the queries' words to the documents'.
        texts: The text of each document, also of those that the first stage missed.
    """

    results: pd.DataFrame
    qrels: pd.DataFrame
    table: TranslationTable
    texts: dict[str, str]

    def of(self, first: int, last: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The results and judgments of some of the queries."""
        qids = [f"q{i}" for i in range(first, last)]
        results, qrels = self.results, self.qrels
        return results[results["qid"].isin(qids)].copy(), qrels[qrels["qid"].isin(qids)].copy()


@cache
def words(seed: int = 0) -> tuple[str, ...]:
    """Whole words of the tokenizer in an order that means nothing."""
    vocabulary = AutoTokenizer.from_pretrained(bert()).get_vocab()
    known = sorted(word for word in vocabulary if word.isascii() and word.isalpha() and 4 <= len(word) <= 8)
    random.Random(seed).shuffle(known)
    return tuple(known)


@cache
def task(queries: int = 12, documents: int = 4, length: int = 5) -> Task:
    """Makes a task in which one document of each query has the translation of the query's only word.

    No word occurs in two queries or documents, so that nothing about a query can be known from others.
    """
    free = iter(words())
    rows, judged, entries, texts = [], [], {}, {}
    chance = random.Random(1)
    for i in range(queries):
        query = next(free)
        relevant = chance.randrange(documents)
        for n in range(documents):
            document = [next(free) for _ in range(length)]
            docno = f"d{i}-{n}"
            if n == relevant:
                entries[query] = {chance.choice(document): 1.0}
                judged.append({"qid": f"q{i}", "docno": docno, "label": 1})
            texts[docno] = " ".join(document)
            rows.append({"qid": f"q{i}", "query": query, "docno": docno, "text": texts[docno], "score": float(-n)})
    table = TranslationTable.from_dict(entries, "de", "en")
    return Task(pt.model.add_ranks(pd.DataFrame(rows)), pd.DataFrame(judged), table, texts)
