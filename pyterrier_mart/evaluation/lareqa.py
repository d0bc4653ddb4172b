"""Measures of multilingual retrieval: LAReQA's mono, bi and multi AP@20, and language bias."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from pyterrier_mart.checks import check_choice, check_whole
from pyterrier_mart.datasets.columns import refuse
from pyterrier_mart.datasets.corpus import MultilingualCorpus
from pyterrier_mart.vectors import unit

__all__ = [
    "ALL_LANGUAGES",
    "MODES",
    "Encoder",
    "Post",
    "Vectors",
    "by_language",
    "encoded",
    "language_bias",
    "lareqa_evaluate",
    "lareqa_run",
    "paired_tests",
    "summarise",
]

#: ``mono``: documents in the query's language; ``bi``: in one other language, for each ordered pair; ``multi``: in all
#: languages.
MODES = ("mono", "bi", "multi")
#: ``doc_lang`` of the values in the mode ``multi``.
ALL_LANGUAGES = "all"
Side: TypeAlias = Literal["query", "document"]
#: Vectors of texts that need not be encoded again, by side and text; for one model as it is, before centring.
Vectors: TypeAlias = MutableMapping[tuple[Side, str], npt.NDArray[np.float32]]

_VALUES = ["mode", "query_lang", "doc_lang", "qid", "value"]
_FLOAT = npt.NDArray[np.float32]


class Encoder(Protocol):
    """What encodes texts, such as :class:`~pyterrier_mart.dense.encoder.TextEncoder`."""

    def encode(self, texts: Iterable[str], side: Side) -> _FLOAT:
        """Returns vectors of shape (texts, dimension)."""


class Post(Protocol):
    """What changes vectors by their language, such as :class:`~pyterrier_mart.dense.centring.LanguageCentering`."""

    def apply(self, vectors: _FLOAT, languages: Sequence[str], side: Side, /) -> _FLOAT:
        """Returns new vectors for some of length 1."""


class Ranked(NamedTuple):
    """The best documents of queries in a pool of documents."""

    mode: str
    query_lang: str
    doc_lang: str
    rows: pd.DataFrame  # qid, docno, score, rank


def lareqa_evaluate(
    system: Encoder,
    corpus: MultilingualCorpus,
    modes: Sequence[str] = MODES,
    k: int = 20,
    *,
    post: Post | None = None,
    vectors: Vectors | None = None,
) -> pd.DataFrame:
    """Measures AP@k of every query in the pools of documents of each mode (Section 4.1 of the paper).

    Each text is encoded once, whatever the modes. Documents are ranked by cosine similarity, those with the same by
    docno. With at most k relevant documents AP@k divides by their number, as trec_eval's ``map_cut_k`` always does: one
    in ``mono`` and ``bi``, one for each language in ``multi``.

    Example::

        frame = lareqa_evaluate(TextEncoder(model), fold.test)
        summarise(frame)            # {'mono': 81.3, 'bi': 72.6, 'multi': 38.4}

    Args:
        system: The encoder, or a retriever that has one as ``encoder`` (its ``post`` is used if none is given).
        corpus: Queries, documents and judgments, usually those of a fold's test articles.
        modes: Some of :data:`MODES`.
        k: Documents of a ranking.
        post: What changes the vectors before they are compared.
        vectors: Vectors of texts, by side and text. Those that lack are encoded and added.

    Returns:
        A row for each mode, query and pool: ``mode``, ``query_lang``, ``doc_lang`` (:data:`ALL_LANGUAGES` in
        ``multi``), ``qid``, ``value`` in [0, 1]. Queries without a relevant document in a pool have none there.

    Raises:
        ValueError: If a mode is unknown.
    """
    return _measure(_rankings(system, corpus, modes, k, post, vectors), corpus, k)


def lareqa_run(
    system: Encoder,
    corpus: MultilingualCorpus,
    k: int = 20,
    *,
    post: Post | None = None,
    vectors: Vectors | None = None,
) -> pd.DataFrame:
    """Returns the k best documents of all languages for each query: the run that the mode ``multi`` measures.

    Args:
        system: The encoder, or a retriever, as in :func:`lareqa_evaluate`.
        corpus: Queries, documents and judgments.
        k: Documents of a ranking.
        post: What changes the vectors before they are compared.
        vectors: Vectors of texts, by side and text.

    Returns:
        ``qid``, ``query``, ``query_lang``, ``docno``, ``doc_lang``, ``score``, ``rank``.
    """
    found = _rankings(system, corpus, ("multi",), k, post, vectors)
    run = pd.concat([ranked.rows for ranked in found], ignore_index=True)
    run = run.merge(corpus.topics[["qid", "query", "query_lang"]], on="qid")
    run = run.merge(corpus.docs[["docno", "doc_lang"]], on="docno")
    run = run[["qid", "query", "query_lang", "docno", "doc_lang", "score", "rank"]]
    return run.sort_values(["qid", "rank"], ignore_index=True)


def summarise(frame: pd.DataFrame) -> dict[str, float]:
    """Averages over queries, then over pairs of languages: what Table 1 of the paper reports, times 100.

    Args:
        frame: What :func:`lareqa_evaluate` returns.

    Returns:
        A number for each mode: ``mono`` and ``multi`` are means over the languages of the queries, ``bi`` over
        ordered pairs of two languages.
    """
    pairs = frame.groupby(["mode", "query_lang", "doc_lang"], sort=False)["value"].mean()
    means = pairs.groupby("mode", sort=False).mean() * 100
    return {str(mode): float(value) for mode, value in means.items()}


def by_language(frame: pd.DataFrame) -> pd.DataFrame:
    """Averages by the language of the queries, times 100 (Table 7 of the paper).

    Args:
        frame: What :func:`lareqa_evaluate` returns.

    Returns:
        ``query_lang`` as index and a column for each mode; in ``bi`` the mean over the other languages.
    """
    pairs = frame.groupby(["mode", "query_lang", "doc_lang"])["value"].mean()
    table = pairs.groupby(["query_lang", "mode"]).mean().unstack("mode") * 100
    return table[[mode for mode in MODES if mode in table.columns]].rename_axis(columns=None)


def language_bias(
    system: pd.DataFrame | Encoder,
    corpus: MultilingualCorpus,
    k: int = 20,
    *,
    post: Post | None = None,
    vectors: Vectors | None = None,
) -> pd.DataFrame:
    """Measures how much of the top k over all languages is in the language of the query.

    A retriever without bias towards the query's language would have about ``pool_share``; the share of relevant
    documents in it is one by the number of languages.

    Args:
        system: The encoder, or a retriever, or a run with ``qid``, ``docno`` and ``score``.
        corpus: Queries, documents and judgments.
        k: Documents of a ranking.
        post: What changes the vectors before they are compared.
        vectors: Vectors of texts, by side and text.

    Returns:
        ``query_lang``, ``share`` (of the top k in the same language, mean over queries) and ``pool_share`` (of all
        documents), both in [0, 1].
    """
    run = system if isinstance(system, pd.DataFrame) else lareqa_run(system, corpus, k, post=post, vectors=vectors)
    run = run.sort_values(["qid", "score", "docno"], ascending=[True, False, True])
    top = run.loc[run.groupby("qid").cumcount() < k, ["qid", "docno"]]
    top = top.merge(corpus.topics[["qid", "query_lang"]], on="qid").merge(
        corpus.docs[["docno", "doc_lang"]], on="docno"
    )
    same = (top["query_lang"] == top["doc_lang"]).groupby([top["query_lang"], top["qid"]]).mean()
    shares = same.groupby("query_lang").mean()
    pool = corpus.docs["doc_lang"].value_counts(normalize=True)
    return pd.DataFrame(
        {
            "query_lang": shares.index,
            "share": shares.to_numpy(),
            "pool_share": [float(pool.get(lang, 0.0)) for lang in shares.index],
        }
    )


def paired_tests(
    frames: Mapping[str, pd.DataFrame],
    baseline: str,
    *,
    groups: Mapping[str, str] | None = None,
    correction: str | None = "holm",
) -> pd.DataFrame:
    """Compares systems with a baseline, query by query: a two-tailed paired t-test for each mode.

    The functions are those of :func:`pyterrier.Experiment`: ``scipy.stats.ttest_rel``, and ``multipletests`` of
    statsmodels over the systems of a mode. A query counts once: its values in several pools (``bi``) are averaged.

    Args:
        frames: By name of the system, what :func:`lareqa_evaluate` returns for the same corpus.
        baseline: Name of the system to compare the others with.
        groups: By qid, the name of what counts once in its place. Translations of one query are not independent:
            ``dict(zip(topics.qid, topics.qgroup))`` averages over them first.
        correction: How p-values are corrected for multiple testing, or ``None``.

    Returns:
        ``mode``, ``name``, ``n`` (of what was compared), ``difference`` (from the baseline, times 100), ``p-value`` and
        ``p-value corrected``.

    Raises:
        ValueError: If there is no such baseline, or a system was not measured on the same queries.
    """
    from scipy import stats
    from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

    check_choice("baseline", baseline, list(frames))
    values = {name: _per_query(frame, groups) for name, frame in frames.items()}
    measured = values[baseline].index.get_level_values("mode").unique()
    rows = []
    for mode in (mode for mode in MODES if mode in measured):
        base = values[baseline].xs(mode, level="mode")
        tests: list[tuple[str, float, float]] = []
        for name in (name for name in frames if name != baseline):
            other = values[name][values[name].index.get_level_values("mode") == mode].droplevel("mode")
            if not other.index.equals(base.index):
                raise ValueError(
                    f"{name!r} was measured on {len(other)} queries in the mode {mode!r}, and {baseline!r} on "
                    f"{len(base)}, not on the same"
                )
            # Without any difference the statistic is not defined, and nothing speaks against the null hypothesis.
            p = 1.0 if other.equals(base) else float(stats.ttest_rel(other, base).pvalue)
            tests.append((name, 100 * float((other - base).mean()), p))
        corrected = [p for _, _, p in tests]
        known = [i for i, p in enumerate(corrected) if not np.isnan(p)]  # there is none for a single query
        if known and correction is not None:
            for i, p in zip(known, multipletests([corrected[i] for i in known], method=correction)[1], strict=True):
                corrected[i] = float(p)
        rows += [[mode, name, len(base), gain, p, fair] for (name, gain, p), fair in zip(tests, corrected, strict=True)]
    return pd.DataFrame(rows, columns=["mode", "name", "n", "difference", "p-value", "p-value corrected"])


def _per_query(frame: pd.DataFrame, groups: Mapping[str, str] | None) -> pd.Series:
    unit_of = frame["qid"] if groups is None else frame["qid"].map(groups)
    refuse(frame.loc[unit_of.isna(), "qid"].drop_duplicates(), "groups must have every qid, not all but")
    each = frame.groupby(["mode", unit_of, frame["qid"]])["value"].mean()
    return each.groupby(level=[0, 1]).mean().sort_index().rename_axis(index=["mode", "unit"])


# --------------------------------------------------------------------------------------------------------- ranking


def _rankings(
    system: Encoder,
    corpus: MultilingualCorpus,
    modes: Sequence[str],
    k: int,
    post: Post | None,
    vectors: Vectors | None,
) -> list[Ranked]:
    """Returns the k best documents of every query in the pools of some modes."""
    check_whole("k", k)
    for mode in modes:
        check_choice("modes", mode, MODES)
    # In order of docno, so that of documents with the same score the first column is the first.
    topics, docs = corpus.topics, corpus.docs.sort_values("docno", ignore_index=True)
    query_langs, doc_langs = topics["query_lang"].tolist(), docs["doc_lang"].tolist()
    queries = encoded(system, topics["query"].tolist(), "query", query_langs, post, vectors)
    documents = encoded(system, docs["text"].tolist(), "document", doc_langs, post, vectors)
    qids, docnos = topics["qid"].to_numpy(dtype=object), docs["docno"].to_numpy(dtype=object)
    places = {lang: np.flatnonzero(np.array(doc_langs) == lang) for lang in corpus.doc_langs}
    found = []
    for query_lang in corpus.query_langs:
        rows = np.array(query_langs) == query_lang
        block = queries[rows] @ documents.T  # one product for all pools of a language
        pools = [("mono" if doc_lang == query_lang else "bi", doc_lang, at) for doc_lang, at in places.items()]
        for mode, doc_lang, columns in [*pools, ("multi", ALL_LANGUAGES, np.arange(len(docs)))]:
            if mode in modes:
                at, best, scores, ranks = _top(block[:, columns], k)
                frame = {"qid": qids[rows][at], "docno": docnos[columns][best], "score": scores, "rank": ranks}
                found.append(Ranked(mode, query_lang, doc_lang, pd.DataFrame(frame)))
    return sorted(found, key=lambda ranked: MODES.index(ranked.mode))


def _top(scores: _FLOAT, k: int) -> tuple[npt.NDArray[Any], ...]:
    """Returns rows, columns, scores and ranks of the k greatest of each row; of equal ones the first."""
    k = min(k, scores.shape[1])
    if not k:
        empty = np.empty(0, np.int64)
        return empty, empty, empty.astype(np.float32), empty
    least = np.partition(scores, -k, axis=1)[:, -k]
    rows, columns = np.nonzero(scores >= least[:, None])  # k of each row, and more if several are like the k-th
    values = scores[rows, columns]
    order = np.lexsort((columns, -values, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    ranks = np.arange(len(rows)) - np.searchsorted(rows, np.arange(len(scores)))[rows]
    kept = ranks < k
    return rows[kept], columns[kept], values[kept], ranks[kept]


def _measure(ranked: Sequence[Ranked], corpus: MultilingualCorpus, k: int) -> pd.DataFrame:
    """Measures all rankings at once: each query of each pool is one of its own."""
    import ir_measures

    judged = corpus.qrels[["qid", "docno"]].merge(corpus.docs[["docno", "doc_lang"]], on="docno")
    judged = judged.merge(corpus.topics[["qid", "query_lang"]], on="qid")
    if not ranked:  # of one language in the mode bi
        return pd.DataFrame(columns=_VALUES).astype({"value": "float64"})
    asked, found = [], []
    for i, pool in enumerate(ranked):
        relevant = judged[judged["query_lang"] == pool.query_lang]
        if pool.mode != "multi":
            relevant = relevant[relevant["doc_lang"] == pool.doc_lang]
        labels = {"mode": pool.mode, "query_lang": pool.query_lang, "doc_lang": pool.doc_lang}
        asked.append(relevant.assign(query_id=f"{i} " + relevant["qid"], **labels))
        found.append(pool.rows.assign(query_id=f"{i} " + pool.rows["qid"]))
    qrels, run = pd.concat(asked).assign(relevance=1), pd.concat(found)
    # Ranks in the place of scores: trec_eval orders documents of equal scores by docno, and reads 32 bits of a score.
    run["score"] = -run["rank"].astype(float)
    frames = (frame.rename(columns={"docno": "doc_id"}).drop(columns="qid") for frame in (qrels, run))
    values = {metric.query_id: metric.value for metric in ir_measures.iter_calc([ir_measures.AP @ k], *frames)}
    frame = qrels.drop_duplicates("query_id", ignore_index=True)
    return frame.assign(value=frame["query_id"].map(values).fillna(0.0))[_VALUES]


# --------------------------------------------------------------------------------------------------------- vectors


def encoded(
    system: Any, texts: list[str], side: Side, langs: list[str], post: Post | None, vectors: Vectors | None
) -> _FLOAT:
    """Returns vectors of length 1, encoded only if that was not done before.

    Args:
        system: The encoder, or a retriever that has one as ``encoder``, and perhaps ``post``.
        texts: The texts.
        side: Whether they are queries or documents.
        langs: Language of each.
        post: What changes the vectors; by default what the retriever has.
        vectors: Vectors of texts, by side and text. Those that lack are encoded and added.
    """
    encoder, post = getattr(system, "encoder", system), getattr(system, "post", None) if post is None else post
    found: Vectors = {} if vectors is None else vectors
    lacking = [text for text in dict.fromkeys(texts) if (side, text) not in found]
    if lacking:
        for text, vector in zip(lacking, encoder.encode(lacking, side), strict=True):
            found[side, text] = vector
    stacked = unit(np.stack([found[side, text] for text in texts]).astype(np.float32, copy=False))
    return stacked if post is None else unit(post.apply(stacked, langs, side))
