"""The contract suite itself: a transformer that keeps every promise passes, one that breaks a promise is found out."""

import math
import socket
import sys

import pandas as pd
import pyterrier as pt
import pytest
from contract import CHECKS, Case, Trial, run

from pyterrier_mart.frames import Transformer

ROWS = pd.DataFrame(
    {
        "qid": ["q1", "q1", "q2", "q2"],
        "query": ["red fox", "red fox", "lazy dog", "lazy dog"],
        "docno": ["d1", "d2", "d3", "d4"],
        "text": ["a red fox", "nothing", "dog days", "a lazy dog"],
    }
)


class Ranker(Transformer):
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

    def __repr__(self):
        return f"{type(self).__name__}({self.bonus})"


def after(change):
    """A ``transform`` that does something to what the good one gives."""
    return lambda self, inp: change(Ranker.transform(self, inp))


def before(act):
    """A ``transform`` that first does something to the transformer or its input."""

    def transform(self, inp):
        act(self, inp)
        return Ranker.transform(self, inp)

    return transform


class HidesSetting(Ranker):
    def __init__(self, bonus=0.0, *, depth=3, verbose=False):
        super().__init__(bonus, verbose=verbose)


class ManyPositionals(Ranker):
    def __init__(self, bonus=0.0, a=1, b=2, *, verbose=False):
        super().__init__(bonus, verbose=verbose)
        self.a, self.b = a, b


def broken(check, **attributes):
    return pytest.param(check, type("Broken", (Ranker,), attributes), id=f"{check}-{'-'.join(attributes)}")


COLUMNS = ["qid", "query", "docno", "text", "score", "rank"]
BROKEN = [
    broken("input_is_unchanged", transform=before(lambda self, inp: inp.insert(0, "new", 1) if len(inp) else None)),
    broken(
        "missing_columns_are_refused",
        transform_inputs=COLUMNS[:4],
        transform=lambda self, inp: pt.model.add_ranks(inp.assign(score=0.0)),
    ),
    broken("empty_frame_loads_nothing", transform=before(lambda self, inp: setattr(self, "_net", self.score))),
    broken(
        "empty_frame_gives_the_usual_columns",
        transform=after(lambda out: out if len(out) else out.drop(columns="rank")),
    ),
    broken("rows_keep_their_place", transform=after(lambda out: out.reset_index(drop=True))),
    broken("other_columns_are_kept", transform=after(lambda out: out[COLUMNS])),
    broken("rows_are_independent", transform=after(lambda out: out.assign(score=out["score"] + len(out)))),
    broken("missing_text_is_empty_text", texts=lambda self, column: [x.lower() for x in column]),
    broken("scores_make_a_ranking", transform=after(lambda out: out.assign(score=math.nan))),
    broken("nothing_is_printed_unasked", transform=before(lambda self, inp: print("working", file=sys.stderr))),
    broken(
        "schematic_is_drawn", schematic={"label": "A label of more than twenty characters", "help_url": "https://x"}
    ),
    broken(
        "searches_for_parameters_keep_two_of_a_kind",
        __eq__=lambda self, other: self.bonus == other.bonus,
        __hash__=lambda self: hash(self.bonus),
    ),
    broken("searches_for_parameters_keep_two_of_a_kind", __hash__=lambda self: hash(repr(self))),
    broken("other_settings_are_shown", __repr__=lambda self: "Ranker()"),
    broken("no_rows_give_no_rows", transform_iter=pt.Transformer.transform_iter),
    broken("lone_surrogates_are_replaced", score=lambda self, query, text: len((query + text).encode())),
    broken(
        "aggregations_of_passages_take_the_output",
        transform=after(lambda out: out.assign(query_toks=[{"a": 1.0} for _ in range(len(out))])),
    ),
    broken("repr_is_stable", __repr__=object.__repr__),
    broken("pickle_gives_the_same", bonus_of=None),  # a class without a name cannot be pickled
    broken(
        "scores_make_a_ranking",
        transform=before(lambda self, inp: socket.create_connection(("127.0.0.1", 9), timeout=1)),
    ),
    pytest.param("signature_is_plain", ManyPositionals, id="signature_is_plain"),
    pytest.param("inspection_clones", HidesSetting, id="inspection_clones"),
]


def failures(case, only=None):
    """The names of the checks that fail, out of all or one."""
    names = set()
    for check, applies in CHECKS:
        if applies(case) and only in (None, check.__name__):
            try:
                run(check, case)
            except (Exception, pytest.fail.Exception):
                names.add(check.__name__)
    return names


def ranker_case(cls):
    others = (lambda: cls(1.0),)
    return Case("ranker", cls, ROWS, texts=("query", "text"), others=others, loaded=lambda rank: rank._net is not None)


def test_a_good_transformer_passes():
    assert failures(ranker_case(Ranker)) == set()


@pytest.mark.parametrize(("check", "cls"), BROKEN)
def test_a_broken_promise_is_found(check, cls):
    assert failures(ranker_case(cls), check) == {check}


class Retriever(Transformer):
    """Finds the texts that share a word with the query."""

    schematic = {"label": "Retriever", "help_url": "https://example.org"}

    def __init__(self, num_results: int = 10):
        self.num_results = num_results

    def transform(self, inp):
        pt.validate.query_frame(inp, ["query"], context=self)
        docs = ROWS[["docno", "text"]].drop_duplicates()
        found = Ranker()(inp[["qid", "query"]].merge(docs, how="cross"))
        return found[(found["score"] > 0) & (found["rank"] < self.num_results)].drop(columns="text")

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
