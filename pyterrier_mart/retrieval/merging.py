"""Documents in several languages in one ranking, of pipelines that each search one language."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pyterrier as pt

from pyterrier_mart.checks import check_choice, check_columns, check_whole
from pyterrier_mart.frames import Transformer, texts_of
from pyterrier_mart.links import HELP_URL
from pyterrier_mart.text import language_code

__all__ = ["LanguageMerger", "merge_languages"]

_RANK_CONSTANT = 60  # of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)


class LanguageMerger(Transformer):
    """Merges what pipelines find in one language each; made by :func:`merge_languages`."""

    schematic = {"label": "Merge Languages", "help_url": HELP_URL}

    def __init__(self, pipelines: Mapping[str, pt.Transformer], how: str = "rrf", *, num_results: int = 1000):
        check_choice("how", how, ("score", "rrf", "round-robin"))
        check_whole("num_results", num_results)
        if not pipelines:
            raise ValueError("pipelines must have a pipeline for each language, not none")
        self.pipelines, self.how, self.num_results = pipelines, how, num_results
        self._codes = [language_code(lang) for lang in pipelines]

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Returns the best documents of each query in all languages: ``docno``, ``doc_lang``, ``score``, ``rank``.

        Raises:
            ValueError: If a pipeline gives no ``docno`` or ``score``, or pipelines of two languages find one document.
        """
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        asked = inp.assign(query=pd.Series(texts_of(inp, "query"), index=inp.index, dtype=object))  # warns once
        runs: list[pd.DataFrame] = []
        for code, pipeline in zip(self._codes, self.pipelines.values(), strict=True):
            run = pipeline.transform(asked)
            check_columns(f"what the pipeline of {code} returns", run, ("qid", "docno", "score"))
            run = run[["qid", "docno", "score"]].assign(doc_lang=pd.Series(code, run.index, dtype="str"))
            place = run.groupby("qid")["score"].rank(method="first", ascending=False)
            runs.append(run.assign(place=place))
        found = pd.concat(runs, ignore_index=True).astype({"score": float})
        if (twice := found.duplicated(["qid", "docno"])).any():
            one = found[twice].iloc[0]
            raise ValueError(
                f"the document {one['docno']!r} was found in two languages, {one['doc_lang']} and another, for query "
                f"{one['qid']!r}; each language needs docnos of its own"
            )
        order, ascending = (["score"], [False]) if self.how == "score" else (["place", "score"], [True, False])
        found = found.sort_values(order, ascending=ascending, kind="stable")
        rank = found.groupby("qid").cumcount()
        if self.how == "rrf":  # a place of its own for each, as measures order ties in ways of their own
            turn = found.groupby(["qid", "place"]).cumcount() / len(runs)
            found["score"] = 1 / (_RANK_CONSTANT + found["place"] + turn)
        elif self.how == "round-robin":
            found["score"] = -rank.astype(float)
        found = found.assign(rank=rank)[rank < self.num_results].drop(columns="place")
        return inp.drop(columns="doc_lang", errors="ignore").merge(found, on="qid")

    def subtransformers(self) -> dict[str, pt.Transformer | list[pt.Transformer]]:
        """Returns the pipelines (PyTerrier's inspection asks)."""
        return dict(self.pipelines)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """Returns fewer documents (PyTerrier's optimiser asks)."""
        return pt.inspect.transformer_apply_attributes(self, num_results=k) if k < self.num_results else None

    def __repr__(self) -> str:
        return f"merge_languages({dict(self.pipelines)!r}, how={self.how!r}, num_results={self.num_results})"


def merge_languages(
    pipelines: Mapping[str, pt.Transformer], how: str = "rrf", *, num_results: int = 1000
) -> LanguageMerger:
    """Returns a transformer that merges pipelines, each of which searches documents in one language.

    Example::

        >>> german = SMTQueryTranslator("en-de") >> bm25_index(german_documents, "de.index", "de").bm25()
        >>> turkish = SMTQueryTranslator("en-tr") >> bm25_index(turkish_documents, "tr.index", "tr").bm25()
        >>> both = merge_languages({"de": german, "tr": turkish})

    Args:
        pipelines: By language of the documents, a pipeline from queries to documents. No document may be in two.
        how: ``"score"``: by the pipelines' scores as they are. ``"round-robin"``: the first of each language, then the
            second, and so on, each time by their scores. ``"rrf"``: reciprocal rank fusion, 1 / (60 + rank): since a
            document is in one language only, this is the same order with RRF's scores.
        num_results: Maximum number of documents for each query.

    Raises:
        ValueError: If there are no pipelines, or an argument is out of range.
    """
    return LanguageMerger(pipelines, how, num_results=num_results)
