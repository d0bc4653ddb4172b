"""SMTQueryTranslator: a query in one language becomes a weighted bag of words of another."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_mart.checks import check_number, check_stop, check_whole
from pyterrier_mart.frames import Pipeline, Transformer, texts_of
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.query_terms import QueryTerms, expanded_terms
from pyterrier_mart.translation.foreign import check_following
from pyterrier_mart.translation.lookup import heaviest_first, look_up
from pyterrier_mart.translation.table import TranslationTable

__all__ = ["SMTQueryTranslator"]

_MOST_REMEMBERED = 1 << 18  # distinct query words


class SMTQueryTranslator(Transformer):
    """Translates queries word by word with a translation table, for BM25 in the language of the documents.

    Adds ``query_toks``: each query term contributes its ``top_k`` most probable translations, weighted by
    P(target | source), and ``query`` stays in the source language, which is what re-rankers read. This is the first
    stage of the MART paper ("SMT"). Repeated terms count repeatedly.

    A term that the table lacks is kept with weight 1, in the normal form of the target language: names, numbers and
    loan words are often the same there. With ``relate`` (the default) the translations of its known other forms
    and of the parts of compounds are added to it (``relate=False`` is what the paper does).

    With ``push=True`` the transformer rewrites ``query`` instead, into the single most probable translation of each
    term, for engines and readers that need text; the original is kept in ``query_0``.

    .. cite.dblp:: conf/cikm/HuangBSRA21

    Example::

        >>> smt = SMTQueryTranslator(TranslationTable.load("de-en"))
        >>> (smt >> bm25).search("Wo wurde Luther geboren?")

    An English index that another program made with a stemmer: Terrier stems ``query_toks`` itself, so that
    ``smt >> pt.terrier.Retriever(index, wmodel="BM25", controls={"bm25.k_3": "1e6"})`` needs nothing more. PISA does
    not: pass ``stemmer=lambda word: "".join(index.tokenize(word))``, and search with
    ``index.bm25(query_weighted=True, toks_scale=10_000.0)``, which would ignore the weights otherwise.

    In other languages Terrier's and PISA's own words have accents, or break at them, where a table's have none. Let the
    analyzer split the documents::

        >>> indexer = pt.IterDictIndexer("folder", pretokenised=True, stemmer=None, stopwords=None)
        >>> index = (Analyzer("fr") >> indexer).index(documents)

    Args:
        table: The table, or what :meth:`TranslationTable.load` takes, such as ``"de-en"``. Its source language is the
            queries' language.
        top_k: Maximum number of translations of a term.
        threshold: Only translations of at least this probability.
        relate: Whether unknown terms get the translations of their other forms.
        stop: Whether function words of the source language are left out (unless nothing else is left), or the words
            to leave out.
        push: Whether ``query`` is rewritten instead of adding ``query_toks``.
        stemmer: What an index does to its terms: a function from word to stem. Weights of equal stems are summed; a
            word whose stem is empty stays as it is.
        verbose: Whether to show a progress bar.

    Raises:
        ValueError: If ``top_k`` or ``threshold`` is out of range.
        FileNotFoundError: If a table is named that does not exist.
    """

    schematic = {"label": "Translate", "help_url": HELP_URL}

    def __init__(
        self,
        table: TranslationTable | str,
        top_k: int = 10,
        *,
        threshold: float = 0.0,
        relate: bool = True,
        stop: bool | Collection[str] = False,
        push: bool = False,
        stemmer: Callable[[str], str] | None = None,
        verbose: bool = False,
    ):
        check_whole("top_k", top_k)
        check_number("threshold", threshold, 0.0, 1.0)
        check_stop(stop)
        self.table = table if isinstance(table, TranslationTable) else TranslationTable.load(table)
        self.top_k, self.threshold, self.relate = top_k, threshold, relate
        self.stop = stop if isinstance(stop, bool) else frozenset(stop)
        self.push, self.stemmer, self.verbose = push, stemmer, verbose
        self._prepare()

    def _prepare(self) -> None:
        self._prepared = self._key()
        self._words = self.table.source.without(self.stop)
        self._known: dict[str, tuple[tuple[str, float], ...]] = {}
        self._spec = None if self.stemmer else self.table.target.spec

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Adds ``query_toks``, or rewrites ``query`` where ``push`` is set."""
        pt.validate.columns(inp, includes=["qid", "query"], context=self)
        rows = texts_of(inp, "query")
        if self.verbose and rows:
            rows = pt.tqdm(rows, desc=f"translate {'-'.join(self.table.languages)}", unit="q")
        translate = self.push_text if self.push else self.bag
        made = [translate(query) for query in rows]
        if not self.push:
            return inp.assign(query_toks=pd.Series(made, index=inp.index, dtype=object))
        out = pt.model.push_queries(inp.drop(columns="query_toks", errors="ignore"), keep_original=False)
        return out.assign(query=pd.Series(made, index=out.index, dtype="str"))

    def bag(self, query: str) -> QueryTerms:
        """Returns the weighted target-language terms of a query, the heaviest first."""
        bag: dict[str, float] = {}
        get = bag.get
        for word, count in self._terms(query):
            for target, weight in self._translate(word):
                bag[target] = get(target, 0.0) + count * weight
        # Faster than a sort with a key function, which would be called for each of the many terms.
        ordered = sorted([(-weight, target) for target, weight in bag.items()])
        terms = QueryTerms({target: -weight for weight, target in ordered})
        terms.spec, terms.query = self._spec, query
        return terms

    def push_text(self, query: str) -> str:
        """Returns the query as text: the most probable translation of each term, in the order of the query."""
        found = [self._translate(word) for word, _ in self._terms(query)]
        return " ".join(translations[0][0] for translations in found if translations)

    def _terms(self, query: str) -> list[tuple[str, float]]:
        if self._prepared != self._key():  # searches for the best parameters set attributes
            self._prepare()
        if (expanded := expanded_terms(query)) is not None:
            return [(word, weight) for term, weight in expanded.items() for word in self._words.tokens(term)]
        words = self._words.tokens(query)
        # A query of stop words only ("Wer ist das?") is better asked than dropped.
        return [(word, 1.0) for word in (words if words or not self.stop else self._words.all_words(query))]

    def _translate(self, word: str) -> tuple[tuple[str, float], ...]:
        """The translations of a term and their weights, remembered: queries repeat words."""
        found = self._known.get(word)
        if found is None:
            weights = look_up(self.table, word, self.top_k, self.threshold, relate=self.relate)
            if self.stemmer is not None:
                unstemmed, weights = weights, {}
                for target, weight in unstemmed.items():
                    stem = self.stemmer(target) or target
                    weights[stem] = weights.get(stem, 0.0) + weight
                weights = dict(sorted(weights.items(), key=heaviest_first))
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            found = self._known[word] = tuple(weights.items())
        return found

    def __rshift__(self, right: pt.Transformer) -> Pipeline:
        """Makes a pipeline, with a warning if the index that is searched next has other words than the table."""
        check_following(right, self.table.target)
        return super().__rshift__(right)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Lets a cut-off move before this transformer (PyTerrier's optimiser asks)."""
        return pt.RankCutoff(k) >> self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}

    def _key(self) -> tuple[object, ...]:
        return self.table, self.top_k, self.threshold, self.relate, self.stop, self.push, self.stemmer

    def __repr__(self) -> str:
        usual = {"threshold": 0.0, "relate": True, "stop": False, "push": False, "stemmer": None}
        options = {"top_k": self.top_k} | {
            name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value
        }
        shown = [f"{name}={getattr(value, '__qualname__', repr(value))}" for name, value in options.items()]
        return f"SMTQueryTranslator({', '.join([repr(self.table), *shown])})"
