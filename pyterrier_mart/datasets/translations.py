"""Topics as humans translated them, the upper bound that query translation is compared with."""

from __future__ import annotations

import pandas as pd
import pyterrier as pt

from pyterrier_mart.datasets.base import MartDataset
from pyterrier_mart.frames import Transformer
from pyterrier_mart.links import HELP_URL

__all__ = ["HumanTranslation"]


class HumanTranslation(Transformer):
    """Replaces queries by the same topics in another language, as humans translated them.

    Topics are found by ``qid``; what was asked before moves to ``query_0``. What other transformers made from the old
    query (``query_toks``, ``query_vec``) is dropped, since retrievers would prefer it to the new one.

    Example::

        data = pt.get_dataset('mart:xquad-r/de-en')
        pipeline = data.human_translation() >> bm25
    """

    schematic = {"label": "Human Translation", "help_url": HELP_URL}

    def __init__(self, dataset: MartDataset, variant: str):
        """Creates the transformer.

        Args:
            dataset: Where the topics come from.
            variant: The variant of its topics to ask in place of the queries, with the same qids.
        """
        self.dataset = dataset
        self.variant = variant

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Replaces the queries.

        Args:
            inp: Rows with ``qid`` and ``query``.

        Returns:
            A new frame with the same rows, and the earlier queries in ``query_0``.

        Raises:
            ValueError: If a ``qid`` is not the one of a topic.
        """
        pt.validate.query_frame(inp, ["query"], context=self)
        topics = self.dataset.get_topics(self.variant) if len(inp) else pd.DataFrame({"qid": [], "query": []})
        known = dict(zip(topics["qid"], topics["query"], strict=True))
        if unknown := [qid for qid in inp["qid"] if qid not in known]:
            raise ValueError(f"{unknown[0]!r} is not the qid of a topic of {self.dataset!r} in {self.variant!r}.")
        out = pt.model.push_queries(inp.drop(columns=["query_toks", "query_vec"], errors="ignore"))
        return out.assign(query=pd.Series([known[qid] for qid in inp["qid"]], index=out.index, dtype="str"))

    def __repr__(self) -> str:
        return f"HumanTranslation({self.dataset!r}, {self.variant!r})"
