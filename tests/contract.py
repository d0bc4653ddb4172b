"""What every transformer of the package promises, as checks that run over any of them.

A transformer is described by a :class:`Case`; ``test_contract.py`` lists the cases and runs every check that applies to
them. To hold a new transformer to the contract, add a case there::

    Case('smt', lambda: SMTQueryTranslator(table), topics, texts=('query',))

Each check gets the case and fails with a sentence that says which promise was broken.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import os
import pickle
import unittest
import unittest.mock
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_mart.query_terms import QueryTerms

Make = Callable[[], pt.Transformer]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """An experiment that a transformer takes part in.

    Attributes:
        systems: Makes the systems to compare, at least two different ones that give scores, out of the transformer.
        topics: Topics for which each system finds something.
        qrels: Judgments.
    """

    systems: Callable[[pt.Transformer], Sequence[pt.Transformer]]
    topics: pd.DataFrame
    qrels: pd.DataFrame


@dataclass(frozen=True)
class Case:
    """A transformer and what is true of it.

    Attributes:
        name: Name in the test report.
        make: Makes the transformer.
        rows: Valid input: several rows that differ from one another, all required columns, a fresh
            index, no duplicates. Scores and ranks, if any, form a ranking.
        texts: Columns of free text, in which a value that is not a string counts as an empty string.
        others: Make transformers that have other settings, which their reprs show.
        row_wise: Whether there is one row of output for each row of input, in its place. False for retrievers.
        loaded: Tells whether the heavy part is loaded, if there is one.
        warns: Whether missing texts are announced by one warning with the number of rows.
        java: Whether it may start a JVM.
        trial: An experiment to run it in.
    """

    name: str
    make: Make
    rows: pd.DataFrame
    texts: tuple[str, ...] = ()
    others: tuple[Make, ...] = ()
    row_wise: bool = True
    loaded: Callable[[pt.Transformer], bool] | None = None
    warns: bool = False
    java: bool = False
    trial: Trial | None = None

    def __str__(self) -> str:
        return self.name


Check = Callable[[Case], None]
#: Checks by the cases they apply to.
CHECKS: list[tuple[Check, Callable[[Case], bool]]] = []


def check(when: Callable[[Case], bool] = lambda case: True) -> Callable[[Check], Check]:
    """Registers a check for the cases it applies to."""
    return lambda function: CHECKS.append((function, when)) or function


def run(function: Check, case: Case) -> None:
    """Runs a check without network, and without a JVM unless the case may start one."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"{case.name} tried to use the network: {args[1:]}")

    java_before = pt.java.started()
    with unittest.mock.patch("socket.socket.connect", refuse), unittest.mock.patch("socket.getaddrinfo", refuse):
        # A check gets rows of its own, so that a transformer which writes into them fails in one place only. Unlike
        # DataFrame.copy(), pickle also copies dicts in cells.
        function(replace(case, rows=pickle.loads(pickle.dumps(case.rows))))
    assert case.java or pt.java.started() == java_before, f"{case.name} started a JVM"


# ---------------------------------------------------------------------------------------------------------- helpers


def assert_same(left: pd.DataFrame, right: pd.DataFrame, promise: str, **kwargs: Any) -> None:
    """Fails with the broken promise, then with the difference, unless two frames are equal."""
    try:
        pd.testing.assert_frame_equal(left, right, **kwargs)
    except AssertionError as difference:
        raise AssertionError(f"{promise}\n{difference}") from None


def assert_same_results(left: pd.DataFrame, right: pd.DataFrame, promise: str) -> None:
    """Like :func:`assert_same` within the accuracy of scores; ranks, which depend on other rows, are left out."""
    left, right = (frame.drop(columns="rank", errors="ignore") for frame in (left, right))
    assert_same(left, right, promise, rtol=1e-5, atol=1e-5, check_dtype=False)


def by_document(results: pd.DataFrame) -> pd.DataFrame:
    """Puts the output of a retriever into an order that does not depend on how it came about."""
    keys = [key for key in ("qid", "docno") if key in results]
    return results.sort_values(keys, kind="stable").reset_index(drop=True) if keys else results


def settings(transformer: pt.Transformer) -> list[inspect.Parameter]:
    return list(inspect.signature(type(transformer).__init__).parameters.values())[1:]


def retyped(rows: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    """Returns the rows with another value, of any type, in the first row of a column."""
    return rows.assign(**{column: pd.Series([value, *rows[column].tolist()[1:]], index=rows.index, dtype=object)})


# ------------------------------------------------------------------------------------------------- input and output


@check()
def missing_columns_are_refused(case: Case) -> None:
    transformer = case.make()
    modes = pt.inspect.transformer_inputs(transformer)
    assert all(modes), f"some input without columns is accepted: {modes}"
    for column in next(mode for mode in modes if set(mode) <= set(case.rows.columns)):
        rows = case.rows.drop(columns=column)
        if any(set(mode) <= set(rows.columns) for mode in modes):
            continue
        for frame in (rows, rows.iloc[:0]):
            with pytest.raises(pt.validate.InputValidationError, match=column):
                transformer(frame)


@check()
def empty_frame_gives_the_usual_columns(case: Case) -> None:
    usual = case.make()(case.rows)
    transformer = case.make()
    empty = transformer(case.rows.iloc[:0])
    assert len(empty) == 0, f"an empty frame gave {len(empty)} rows"
    assert list(empty.columns) == list(usual.columns), "an empty frame gives other columns"
    assert empty.dtypes.to_dict() == usual.dtypes.to_dict(), "an empty frame gives other column types"
    untyped = transformer(pd.DataFrame(columns=case.rows.columns))
    assert list(untyped.columns) == list(usual.columns), "an empty frame without types gives other columns"


@check(when=lambda case: case.loaded is not None)
def empty_frame_loads_nothing(case: Case) -> None:
    transformer = case.make()
    transformer(case.rows.iloc[:0])
    assert not case.loaded(transformer), "an empty frame loads the model"
    transformer(case.rows)
    assert case.loaded(transformer), "the case cannot tell that the model is loaded"


@check()
def no_rows_give_no_rows(case: Case) -> None:
    transformer = case.make()
    assert list(transformer.transform_iter(iter([]))) == [] == transformer([]), "a list of no rows is refused"
    assert (transformer >> pt.RankCutoff(1) >> pt.text.mean_passage())([]) == [], "a pipeline of no rows is refused"
    usual = transformer(case.rows)
    rows = pd.DataFrame(transformer(case.rows.to_dict(orient="records")), index=usual.index)
    assert_same_results(rows, usual, "a list of rows gives other output")


@check()
def aggregations_of_passages_take_the_output(case: Case) -> None:
    if "query" not in case.rows:
        return
    terms = [QueryTerms({"a": 1.0, "b": 0.5}) for _ in range(len(case.rows))]
    rows = case.rows if not case.row_wise or "query_toks" in case.rows else case.rows.assign(query_toks=terms)
    out = case.make()(rows)
    if not {"qid", "query"} <= set(out) or "query_vec" in out:  # no array can be looked for
        return
    if "docno" not in out:
        out = out.assign(docno="d")
    psgs = pd.concat([out.assign(docno=out["docno"] + f"%p{i}", score=float(i)) for i in range(2)])
    ways = pt.text.mean_passage(), pt.text.kmaxavg_passage(2), pt.text.max_passage(), pt.text.first_passage()
    for aggregate in ways:
        found = aggregate(psgs.reset_index(drop=True))
        assert len(found) == len(out), f"{aggregate!r} gives other rows"


@check(when=lambda case: bool(case.texts))
def lone_surrogates_are_replaced(case: Case) -> None:
    transformer = case.make()
    for column in case.texts:
        rows = [retyped(case.rows, column, f"{case.rows[column].iloc[0]} {half} x") for half in ("\ufffd", "\ud800")]
        expected, found = (
            transformer(row).drop(columns=[column, f"{column}_0", "query_toks"], errors="ignore") for row in rows
        )
        assert_same_results(found, expected, f"half of a surrogate pair in {column} is not replaced")


@check(when=lambda case: "query_toks" in case.rows and not case.row_wise)
def terms_come_back_from_parquet(case: Case) -> None:
    transformer = case.make()
    usual = transformer(case.rows)
    file = io.BytesIO()
    case.rows.to_parquet(file)
    rows = pd.read_parquet(file)
    assert None in rows["query_toks"].iloc[0].values(), "the rows of the case have the same terms"
    pairs = rows.assign(query_toks=[list(terms.items()) for terms in rows["query_toks"]])
    for given in (rows, pairs):
        assert_same_results(transformer(given), usual, "rows read from Parquet give other output")


@check()
def input_is_unchanged(case: Case) -> None:
    before = pickle.loads(pickle.dumps(case.rows))
    case.make()(case.rows)
    assert_same(case.rows, before, "the input was changed")


@check(when=lambda case: case.row_wise)
def rows_keep_their_place(case: Case) -> None:
    transformer, n = case.make(), len(case.rows)
    usual = transformer(case.rows)
    indexes = {
        "gapped": range(3, 3 + 2 * n, 2),
        "repeated": [7] * n,
        "strings": [f"row {i}" for i in reversed(range(n))],
    }
    for name, index in indexes.items():
        out = transformer(case.rows.set_axis(pd.Index(index), axis=0))
        assert list(out.index) == list(index), f"the index changed ({name})"
        assert_same(out.reset_index(drop=True), usual.reset_index(drop=True), f"an index ({name}) changes the output")


@check(when=lambda case: case.row_wise)
def other_columns_are_kept(case: Case) -> None:
    transformer = case.make()
    extra = [{"row": i} for i in range(len(case.rows))]
    out = transformer(case.rows.assign(extra=extra))
    assert "extra" in out and out["extra"].tolist() == extra, "a column that means nothing to it was lost or reordered"
    assert_same(out.drop(columns="extra"), transformer(case.rows), "another column changes the output")


@check(when=lambda case: case.row_wise)
def rows_are_independent(case: Case) -> None:
    transformer = case.make()
    usual = transformer(case.rows)
    reverse = transformer(case.rows.iloc[::-1])
    assert_same_results(reverse.iloc[::-1], usual, "the order of rows changes the output")
    one_by_one = [transformer(case.rows.iloc[[i]]) for i in range(len(case.rows))]
    assert_same_results(pd.concat(one_by_one), usual, "a row's output depends on other rows")
    many = transformer(pd.concat([case.rows] * 20))
    assert_same_results(many, pd.concat([usual] * 20), "duplicate rows are not treated alike")


@check(when=lambda case: not case.row_wise)
def queries_are_independent(case: Case) -> None:
    transformer = case.make()
    usual = by_document(transformer(case.rows))
    reverse = by_document(transformer(case.rows.iloc[::-1]))
    assert_same_results(reverse, usual, "the order of queries changes the output")
    one_by_one = by_document(pd.concat([transformer(case.rows.iloc[[i]]) for i in range(len(case.rows))]))
    assert_same_results(one_by_one, usual, "a query's output depends on other queries")


@check(when=lambda case: bool(case.texts))
def missing_text_is_empty_text(case: Case) -> None:
    transformer = case.make()
    for column in case.texts:

        def blank(frame: pd.DataFrame, column: str = column) -> pd.DataFrame:
            # The value may be handed on, in its column or as an earlier query. What is made of it may not differ.
            names = [name for name in (column, f"{column}_0") if name in frame]
            return frame.assign(**{name: [x if isinstance(x, str) else "" for x in frame[name]] for name in names})

        expected = blank(transformer(retyped(case.rows, column, "")))
        for value in (None, math.nan, 3.5):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                out = transformer(retyped(case.rows, column, value))
            assert_same_results(blank(out), expected, f"{value!r} as {column} is not read as an empty string")
            if "score" in out:
                assert out["score"].map(math.isfinite).all(), f"{value!r} as {column} gives a score that is not finite"
            if case.warns:
                messages = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
                assert len(messages) == 1 and "1" in messages[0], f"no single warning with the number 1: {messages}"


@check()
def scores_make_a_ranking(case: Case) -> None:
    out = case.make()(case.rows)
    if "score" in out:
        assert out["score"].map(math.isfinite).all(), "a score is not finite"
    if "rank" in out:
        for qid, group in out.sort_values("rank").groupby("qid"):
            assert group["rank"].tolist() == list(range(len(group))), f"ranks of {qid} are not 0, 1, 2, ..."
            assert group["score"].is_monotonic_decreasing, f"ranks of {qid} do not follow its scores"


@check()
def nothing_is_printed_unasked(case: Case) -> None:
    transformer = case.make()
    verbose = any(parameter.name == "verbose" for parameter in settings(transformer))
    if verbose:
        assert not transformer.verbose, "verbose is not off by default"

    def printed(transformer: pt.Transformer, rows: pd.DataFrame) -> tuple[str, pd.DataFrame]:
        with contextlib.redirect_stderr(io.StringIO()) as printed, contextlib.redirect_stdout(printed):
            out = transformer(rows)
        return printed.getvalue(), out

    text, usual = printed(transformer, case.rows)
    assert text == "", f"without verbose=True it prints {text!r}"
    if verbose:
        loud = pt.inspect.transformer_apply_attributes(transformer, verbose=True)
        assert printed(loud, case.rows.iloc[:0])[0] == "", "an empty frame shows a progress bar"
        text, out = printed(loud, case.rows)
        assert text != "", "verbose=True shows nothing"
        assert_same_results(out, usual, "verbose=True changes the output")


# ------------------------------------------------------------------------------------------------------- inspection


@check()
def inspection_matches_reality(case: Case) -> None:
    transformer = case.make()
    columns = list(case.rows.columns)
    assert pt.inspect.transformer_outputs(transformer, columns) == list(transformer(case.rows).columns)
    modes = [mode for mode in pt.inspect.transformer_inputs(transformer) if set(mode) <= set(columns)]
    assert modes, f"no inspected input fits the rows of the case, which have {columns}"
    for mode in modes:
        out = transformer(case.rows[mode])
        assert pt.inspect.transformer_outputs(transformer, mode) == list(out.columns), f"outputs differ for {mode}"


@check()
def inspection_clones(case: Case) -> None:
    transformer = case.make()
    attributes = {attribute.name: attribute.value for attribute in pt.inspect.transformer_attributes(transformer)}
    assert list(attributes) == [parameter.name for parameter in settings(transformer)]
    for name, value in attributes.items():
        assert getattr(transformer, name, None) is value, f"{name} is not stored under its own name"
    clone = pt.inspect.transformer_apply_attributes(transformer)
    assert clone is not transformer and type(clone) is type(transformer)
    assert repr(clone) == repr(transformer), "the clone has other settings"
    assert_same_results(clone(case.rows), transformer(case.rows), "the clone gives other output")


@check()
def signature_is_plain(case: Case) -> None:
    parameters = settings(case.make())
    kinds = {parameter.kind for parameter in parameters}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}, "*args or **kwargs"
    positional = [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert len(positional) <= 2, f"only the first two may be positional, not {positional}"


@check()
def schematic_is_drawn(case: Case) -> None:
    transformer = case.make()
    schematic = pt.schematic.transformer_schematic(transformer)
    if schematic.get("type") != "pipeline":
        assert len(schematic["label"]) <= 20, f"the label {schematic['label']!r} has more than 20 characters"
        assert str(schematic["help_url"]).startswith("https://"), "there is no help_url"
    assert "<" in pt.schematic.draw(transformer)
    with unittest.mock.patch("pyterrier.documentation.url_for_class", lambda *args: None):  # which asks the network
        for system in [transformer, *(case.trial.systems(transformer) if case.trial else [])]:
            assert not refused(pt.schematic.transformer_schematic(system)), f"{system!r} is drawn in red"


def refused(part: Any) -> bool:
    """Tells whether there is a step in a schematic whose input lacks columns."""
    if isinstance(part, dict):
        return bool(part.get("input_validation_error")) or any(map(refused, part.values()))
    return isinstance(part, list) and any(map(refused, part))


@check()
def pyterriers_own_tests_pass(case: Case) -> None:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(pt.testing.transformer_test_class(case.make))
    result = unittest.TestResult()
    with unittest.mock.patch.dict(os.environ, PT_TEST_TRANSFORMER_REPORTS="0"):
        suite.run(result)
    assert result.testsRun and result.wasSuccessful(), "\n".join(text for _, text in result.failures + result.errors)


# --------------------------------------------------------------------------------------------------------- identity


RUN = pt.Transformer.from_df(pd.DataFrame({"qid": ["1"], "docno": ["d"], "score": [1.0], "rank": [0]}))
TOPIC, QREL = pd.DataFrame({"qid": ["1"], "query": [""]}), pd.DataFrame({"qid": ["1"], "docno": ["d"], "label": [1]})


@check()
def searches_for_parameters_keep_two_of_a_kind(case: Case) -> None:
    one, two = case.make(), case.make()
    assert one is not two, "the case does not make new transformers"
    changed = [
        (setting.name, [getattr(one, setting.name), getattr(other, setting.name)])
        for other in (make() for make in case.others)
        for setting in settings(one)
        if repr(getattr(one, setting.name)) != repr(getattr(other, setting.name))
    ]
    name, values = (changed or [(settings(one)[0].name, [getattr(one, settings(one)[0].name)] * 2)])[0]
    hashes = hash(one), hash(two)
    found = pt.GridScan(RUN, {one: {name: values}, two: {name: values}}, TOPIC, QREL, ["map"])
    shown = [column for column in found if str(column).endswith(f"_{name}")]
    assert len(found) == 4 and len(shown) == 2, f"a search over two of a kind gives {found}"
    combined = [[values.index(row[column]) for column in shown] for row in found.to_dict("records")]
    assert values[0] is values[1] or combined == [[0, 0], [0, 1], [1, 0], [1, 1]], f"it tries {combined} only"
    assert (hash(one), hash(two)) == hashes, "the hash follows the settings"


@check()
def other_settings_are_shown(case: Case) -> None:
    for make in case.others:
        assert repr(case.make()) != repr(make()), f"other settings have the same repr {make()!r}"


@check()
def repr_is_stable(case: Case) -> None:
    text = repr(case.make())
    assert " at 0x" not in text, f"the repr shows an address: {text}"
    assert text == repr(case.make()), "equal transformers have different reprs"
    assert len(text) < 500 and "\n" not in text, f"the repr is long: {text}"


@check()
def pickle_gives_the_same(case: Case) -> None:
    transformer = case.make()
    usual = transformer(case.rows)
    for original in (case.make(), transformer):  # before and after it was used
        copy = pickle.loads(pickle.dumps(original))
        assert repr(copy) == repr(original), "the unpickled copy has other settings"
        assert_same_results(copy(case.rows), usual, "the unpickled copy gives other output")


# ------------------------------------------------------------------------------------------------------- experiment


@check(when=lambda case: case.trial is not None)
def experiments_agree(case: Case) -> None:
    systems = list(case.trial.systems(case.make()))
    names = [f"system{i}" for i in range(len(systems))]

    def experiment(**kwargs: Any) -> pd.DataFrame:
        table = pt.Experiment(systems, case.trial.topics, case.trial.qrels, ["map", "P_10"], names=names, **kwargs)
        return table[["name", "map", "P_10"]]

    linear = experiment(plan="linear")
    for name, options in {"plan='tree'": {"plan": "tree"}, "batch_size=1": {"batch_size": 1}}.items():
        assert_same(experiment(**options), linear, f"an experiment with {name} gives other numbers")
