"""The contract suite itself: a transformer that keeps every promise passes, one that breaks a promise is found out."""

import math
import socket
import sys

import pandas as pd
import pyterrier as pt
import pytest
from contract import CHECKS, Case, Trial, run

ROWS = pd.DataFrame(
    {
        "qid": ["q1", "q1", "q2", "q2"],
        "query": ["red fox", "red fox", "lazy dog", "lazy dog"],
        "docno": ["d1", "d2", "d3", "d4"],
        "text": ["a red fox", "nothing", "dog days", "a lazy dog"],
    }
)


class Ranker(pt.Transformer):
    """Scores by the number of shared words, and keeps every promise."""

    schematic = {"label": "Overlap", "help_url": "https://example.org"}

    def __init__(self, bonus: float = 0.0, *, verbose: bool = False):
        self.bonus, self.verbose, self._net = bonus, verbose, None

    def transform(self, inp):
        pt.validate.result_frame(inp, ["query", "text"], context=self)
        out = inp.drop(columns=["score", "rank"], errors="ignore")
        pairs = list(zip(self.texts(out["query"]), self.texts(out["text"]), strict=True))
        if pairs:
            self._net = self.score
        if self.verbose and pairs:
            pairs = pt.tqdm(pairs)
        out = out.assign(score=pd.Series([self._net(*pair) for pair in pairs], index=out.index, dtype="float64"))
        return pt.model.add_ranks(out)

    def texts(self, column):
        return [x if isinstance(x, str) else "" for x in column]

    def score(self, query, text):
        return self.bonus + len(set(query.split()) & set(text.split()))

    def __eq__(self, other):
        return self.bonus == other.bonus if isinstance(other, Ranker) else NotImplemented

    def __hash__(self):
        return hash(self.bonus)

    def __repr__(self):
        return f"{type(self).__name__}({self.bonus})"


class ChangesInput(Ranker):
    def transform(self, inp):
        if len(inp):
            inp["text"] = ""
        return super().transform(inp)


class ValidatesNothing(Ranker):
    transform_inputs = ["qid", "query", "docno", "text"]

    def transform(self, inp):
        return pt.model.add_ranks(inp.assign(score=0.0))


class LoadsAlways(Ranker):
    def transform(self, inp):
        self._net = self.score
        return super().transform(inp)


class ForgetsColumnsWhenEmpty(Ranker):
    def transform(self, inp):
        out = super().transform(inp)
        return out if len(out) else out.drop(columns="rank")


class ResetsIndex(Ranker):
    def transform(self, inp):
        return super().transform(inp).reset_index(drop=True)


class DropsColumns(Ranker):
    def transform(self, inp):
        return super().transform(inp)[["qid", "query", "docno", "text", "score", "rank"]]


class LooksAtOtherRows(Ranker):
    def transform(self, inp):
        out = super().transform(inp)
        return out.assign(score=out["score"] + len(out))


class FailsOnMissing(Ranker):
    def texts(self, column):
        return [x.lower() for x in column]


class GivesNaN(Ranker):
    def transform(self, inp):
        return super().transform(inp).assign(score=math.nan)


class Chatty(Ranker):
    def transform(self, inp):
        print("working", file=sys.stderr)
        return super().transform(inp)


class ManyPositionals(Ranker):
    def __init__(self, bonus=0.0, a=1, b=2, *, verbose=False):
        super().__init__(bonus, verbose=verbose)
        self.a, self.b = a, b


class HidesSetting(Ranker):
    def __init__(self, bonus=0.0, *, depth=3, verbose=False):
        super().__init__(bonus, verbose=verbose)


class LongLabel(Ranker):
    schematic = {"label": "A label of more than twenty characters", "help_url": "https://example.org"}


class ComparesByIdentity(Ranker):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class EqualToAll(Ranker):
    def __eq__(self, other):
        return isinstance(other, Ranker)

    __hash__ = Ranker.__hash__


class ShowsAddress(Ranker):
    __repr__ = object.__repr__


class DoesNotPickle(Ranker):
    def __reduce__(self):
        raise TypeError("no")


class UsesNetwork(Ranker):
    def transform(self, inp):
        socket.create_connection(("127.0.0.1", 9), timeout=1)
        return super().transform(inp)


BROKEN = {
    ChangesInput: "input_is_unchanged",
    ValidatesNothing: "missing_columns_are_refused",
    LoadsAlways: "empty_frame_loads_nothing",
    ForgetsColumnsWhenEmpty: "empty_frame_gives_the_usual_columns",
    ResetsIndex: "rows_keep_their_place",
    DropsColumns: "other_columns_are_kept",
    LooksAtOtherRows: "rows_are_independent",
    FailsOnMissing: "missing_text_is_empty_text",
    GivesNaN: "scores_make_a_ranking",
    Chatty: "nothing_is_printed_unasked",
    ManyPositionals: "signature_is_plain",
    HidesSetting: "inspection_clones",
    LongLabel: "schematic_is_drawn",
    ComparesByIdentity: "equality_is_by_value",
    EqualToAll: "equality_is_by_value",
    ShowsAddress: "repr_is_stable",
    DoesNotPickle: "pickle_gives_the_same",
    UsesNetwork: "list_gives_list",
}


def failed(cls):
    case = Case(
        cls.__name__,
        cls,
        ROWS,
        texts=("query", "text"),
        others=(lambda: cls(1.0),),
        loaded=lambda ranker: ranker._net is not None,
    )
    return failures(case)


def failures(case):
    names = set()
    for check, applies in CHECKS:
        if applies(case):
            try:
                run(check, case)
            except (Exception, pytest.fail.Exception):
                names.add(check.__name__)
    return names


def test_a_good_transformer_passes():
    assert failed(Ranker) == set()


class Retriever(pt.Transformer):
    """Finds the texts that share a word with the query."""

    schematic = {"label": "Retriever", "help_url": "https://example.org"}

    def __init__(self, num_results: int = 10):
        self.num_results = num_results

    def transform(self, inp):
        pt.validate.query_frame(inp, ["query"], context=self)
        docs = ROWS[["docno", "text"]].drop_duplicates()
        found = Ranker()(inp[["qid", "query"]].merge(docs, how="cross"))
        return found[(found["score"] > 0) & (found["rank"] < self.num_results)].drop(columns="text")

    def __eq__(self, other):
        return self.num_results == other.num_results if isinstance(other, Retriever) else NotImplemented

    def __hash__(self):
        return hash(self.num_results)

    def __repr__(self):
        return f"Retriever({self.num_results})"


def test_a_good_retriever_passes():
    topics = ROWS[["qid", "query"]].drop_duplicates().reset_index(drop=True)
    trial = Trial(
        systems=lambda retriever: [retriever, retriever % 1],
        topics=topics,
        qrels=pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d1", "d4"], "label": 1}),
    )
    others = (lambda: Retriever(1),)
    case = Case("retriever", Retriever, topics, texts=("query",), others=others, row_wise=False, trial=trial)
    assert failures(case) == set()


@pytest.mark.parametrize("cls", BROKEN, ids=lambda cls: cls.__name__)
def test_a_broken_promise_is_found(cls):
    assert BROKEN[cls] in failed(cls)
