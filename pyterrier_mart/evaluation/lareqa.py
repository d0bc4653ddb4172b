"""Measures of multilingual retrieval: LAReQA's mono, bi and multi AP@20, language bias, and STS correlations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

if TYPE_CHECKING:
    from pyterrier_mart.datasets.corpus import MultilingualCorpus, PairCorpus
    from pyterrier_mart.dense.encoder import Side
from pyterrier_mart.vectors import unit

__all__ = [
    "ALL_LANGUAGES",
    "MODES",
    "Encoder",
    "Post",
    "Vectors",
    "by_language",
    "language_bias",
    "lareqa_evaluate",
    "lareqa_from_run",
    "lareqa_run",
    "paired_tests",
    "sts_evaluate",
    "summarise",
]

#: ``mono``: candidates in the question's language; ``bi``: in one other language, for each ordered pair; ``multi``: in
#: all languages.
MODES = ("mono", "bi", "multi")
#: ``doc_lang`` of the values in the mode ``multi``.
ALL_LANGUAGES = "all"
#: Vectors of texts that need not be encoded again, by side and text; for one model as it is, before centring.
Vectors: TypeAlias = "MutableMapping[tuple[Side, str], npt.NDArray[np.float32]]"

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


class _Ranked(NamedTuple):
    """The best documents of questions in pools of documents."""

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
    """Measures AP@k of every question in the pools of documents of each mode (Section 4.1 of the paper).

    Each text is encoded once, whatever the modes. Documents are ranked by cosine similarity, those with the same by
    docno. With at most k relevant documents AP@k divides by their number, as trec_eval's ``map_cut_k`` always does: one
    in ``mono`` and ``bi``, one for each language in ``multi``.

    Example::

        frame = lareqa_evaluate(TextEncoder(model), fold.test)
        summarise(frame)            # {'mono': 81.3, 'bi': 72.6, 'multi': 38.4}

    Args:
        system: The encoder, or a retriever that has one as ``encoder`` (its ``post`` is used if none is given).
        corpus: Questions, documents and judgments, usually those of a fold's test articles.
        modes: Some of :data:`MODES`.
        k: Documents of a ranking.
        post: What changes the vectors before they are compared.
        vectors: Vectors of texts, by side and text. Those that lack are encoded and added.

    Returns:
        A row for each mode, question and pool: ``mode``, ``query_lang``, ``doc_lang`` (:data:`ALL_LANGUAGES` in
        ``multi``), ``qid``, ``value`` in [0, 1]. Questions without a relevant document in a pool have none there.

    Raises:
        ValueError: If a mode is unknown.
    """
    modes = _checked(modes)
    return _measure(_Pools(system, corpus, post, vectors).ranked(modes, k), corpus, k)


def lareqa_run(
    system: Encoder,
    corpus: MultilingualCorpus,
    k: int = 20,
    *,
    post: Post | None = None,
    vectors: Vectors | None = None,
) -> pd.DataFrame:
    """Returns the k best documents of all languages for each question: the run that the mode ``multi`` measures.

    Args:
        system: As in :func:`lareqa_evaluate`.
        corpus: As there.
        k: Documents of a ranking.
        post: As there.
        vectors: As there.

    Returns:
        ``qid``, ``query``, ``query_lang``, ``docno``, ``doc_lang``, ``score``, ``rank``.
    """
    found = _Pools(system, corpus, post, vectors).ranked(("multi",), k)
    run = pd.concat([ranked.rows for ranked in found], ignore_index=True)
    run = run.merge(corpus.topics[["qid", "query", "query_lang"]], on="qid")
    run = run.merge(corpus.docs[["docno", "doc_lang"]], on="docno")
    run = run[["qid", "query", "query_lang", "docno", "doc_lang", "score", "rank"]]
    return run.sort_values(["qid", "rank"], ignore_index=True)


def lareqa_from_run(
    run: pd.DataFrame, corpus: MultilingualCorpus, modes: Sequence[str] = MODES, k: int = 20
) -> pd.DataFrame:
    """Measures what a pipeline found, by the languages of the documents in its run over all languages.

    For ``mono`` and ``bi`` the run is cut down to the documents of one language, so it should be deep enough to have k
    of each: what a pipeline did not return counts as not found.

    Args:
        run: ``qid``, ``docno`` and ``score``, ranked by score and then docno.
        corpus: As in :func:`lareqa_evaluate`.
        modes: As there.
        k: As there.

    Returns:
        As :func:`lareqa_evaluate`. Questions that the run lacks have the value 0.

    Raises:
        ValueError: If a mode is unknown, a column lacks, or a qid or docno is not in the corpus.
    """
    modes = _checked(modes)
    lacking = [column for column in ("qid", "docno", "score") if column not in run.columns]
    if lacking:
        raise ValueError(f"run: expected the columns 'qid', 'docno' and 'score', found no {', '.join(lacking)}")
    for column, known in (("qid", corpus.queries), ("docno", corpus.documents)):
        foreign = [value for value in run[column].unique() if value not in known]
        if foreign:
            raise ValueError(f"run: the {column} {foreign[0]!r} is not in {corpus!r}")
    found = run[["qid", "docno", "score"]].drop_duplicates(["qid", "docno"])
    found = found.merge(corpus.topics[["qid", "query_lang"]], on="qid").merge(
        corpus.docs[["docno", "doc_lang"]], on="docno"
    )
    found = found.sort_values(["qid", "score", "docno"], ascending=[True, False, True], ignore_index=True)
    ranked = []
    for mode, query_lang, doc_lang in _pools(corpus, modes):
        rows = found[found["query_lang"] == query_lang]
        if mode != "multi":
            rows = rows[rows["doc_lang"] == doc_lang]
        rows = rows.assign(rank=rows.groupby("qid").cumcount())
        ranked.append(
            _Ranked(mode, query_lang, doc_lang, rows.loc[rows["rank"] < k, ["qid", "docno", "score", "rank"]])
        )
    return _measure(ranked, corpus, k)


def summarise(frame: pd.DataFrame) -> dict[str, float]:
    """Averages over questions, then over pairs of languages: what Table 1 of the paper reports, times 100.

    Args:
        frame: What :func:`lareqa_evaluate` returns.

    Returns:
        A number for each mode: ``mono`` and ``multi`` are means over the languages of the questions, ``bi`` over
        ordered pairs of two languages.
    """
    pairs = frame.groupby(["mode", "query_lang", "doc_lang"], sort=False)["value"].mean()
    means = pairs.groupby("mode", sort=False).mean() * 100
    return {str(mode): float(value) for mode, value in means.items()}


def by_language(frame: pd.DataFrame) -> pd.DataFrame:
    """Averages by the language of the questions, times 100 (Table 7 of the paper).

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
    """Measures how much of the top k over all languages is in the language of the question.

    A retriever without bias towards the question's language would have about ``pool_share``; the share of relevant
    documents in it is one by the number of languages.

    Args:
        system: As in :func:`lareqa_evaluate`, or a run with ``qid``, ``docno`` and ``score``.
        corpus: As there.
        k: Documents of a ranking.
        post: As there.
        vectors: As there.

    Returns:
        ``query_lang``, ``share`` (of the top k in the same language, mean over questions) and ``pool_share`` (of all
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


def sts_evaluate(
    system: Encoder,
    pairs: PairCorpus,
    *,
    post: Post | None = None,
    vectors: Vectors | None = None,
) -> pd.DataFrame:
    """Correlates the cosine of sentence pairs with the gold similarity, track by track.

    Both sentences are encoded as questions are: the task is symmetric.

    Args:
        system: As in :func:`lareqa_evaluate`.
        pairs: The pairs.
        post: As there.
        vectors: As there.

    Returns:
        ``track``, ``pairs`` (their number), ``pearson`` and ``spearman``, both times 100; NaN for fewer than two pairs
        or where all scores are the same.
    """
    from scipy import stats

    encoder, post = _parts(system, post)
    frame = pairs.pairs
    first, second = (
        _encoded(encoder, frame[text].tolist(), "query", frame[lang].tolist(), post, vectors)
        for text, lang in (("sentence1", "lang1"), ("sentence2", "lang2"))
    )
    # Rounded, so that pairs of the same sentence twice are tied.
    cosine = np.einsum("ij,ij->i", first, second, dtype=np.float64).round(6)
    rows = []
    for track, index in frame.reset_index(drop=True).groupby("track", sort=False).groups.items():
        found, gold = cosine[index], frame["score"].to_numpy(dtype=np.float64)[index]
        constant = len(index) < 2 or np.ptp(found) == 0 or np.ptp(gold) == 0
        rows.append(
            {
                "track": track,
                "pairs": len(index),
                "pearson": np.nan if constant else 100 * float(stats.pearsonr(found, gold).statistic),
                "spearman": np.nan if constant else 100 * float(stats.spearmanr(found, gold).statistic),
            }
        )
    return pd.DataFrame(rows, columns=["track", "pairs", "pearson", "spearman"])


def paired_tests(
    frames: Mapping[str, pd.DataFrame],
    baseline: str,
    *,
    groups: Mapping[str, str] | None = None,
    correction: str | None = "holm",
) -> pd.DataFrame:
    """Compares systems with a baseline, question by question: a two-tailed paired t-test for each mode.

    The functions are those of :func:`pyterrier.Experiment`: ``scipy.stats.ttest_rel``, and ``multipletests`` of
    statsmodels over the systems of a mode. A question counts once: its values in several pools (``bi``) are averaged.

    Args:
        frames: By name of the system, what :func:`lareqa_evaluate` returns for the same corpus.
        baseline: Name of the system to compare the others with.
        groups: By qid, the name of what counts once in its place. Translations of one question are not independent:
            ``dict(zip(topics.qid, topics.qgroup))`` averages over them first.
        correction: How p-values are corrected for multiple testing, or ``None``.

    Returns:
        ``mode``, ``name``, ``n`` (of what was compared), ``difference`` (from the baseline, times 100), ``p-value`` and
        ``p-value corrected``.

    Raises:
        ValueError: If there is no such baseline, or a system was not measured on the same questions.
    """
    from scipy import stats
    from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

    if baseline not in frames:
        raise ValueError(f"baseline must be one of {', '.join(frames)}, not {baseline!r}")
    values = {name: _per_question(frame, groups) for name, frame in frames.items()}
    rows = []
    measured = values[baseline].index.get_level_values("mode").unique()
    for mode in (mode for mode in MODES if mode in measured):
        base = values[baseline].xs(mode, level="mode")
        tests: list[tuple[str, float, float]] = []
        for name in (name for name in frames if name != baseline):
            if mode not in values[name].index.get_level_values("mode"):
                raise ValueError(f"{name!r} has no values of the mode {mode!r}, which {baseline!r} has")
            other = values[name].xs(mode, level="mode")
            if not other.index.equals(base.index):
                raise ValueError(
                    f"{name!r} was measured on {len(other)} questions in the mode {mode!r}, and {baseline!r} on "
                    f"{len(base)}, not on the same"
                )
            # Without any difference the statistic is not defined, and nothing speaks against the null hypothesis.
            p = 1.0 if other.equals(base) else float(stats.ttest_rel(other, base).pvalue)
            tests.append((name, 100 * float((other - base).mean()), p))
        corrected = [p for _, _, p in tests]
        known = [i for i, p in enumerate(corrected) if not np.isnan(p)]  # of one question there is none
        if known and correction is not None:
            for i, p in zip(known, multipletests([corrected[i] for i in known], method=correction)[1], strict=True):
                corrected[i] = float(p)
        rows += [[mode, name, len(base), gain, p, fair] for (name, gain, p), fair in zip(tests, corrected, strict=True)]
    return pd.DataFrame(rows, columns=["mode", "name", "n", "difference", "p-value", "p-value corrected"])


def _per_question(frame: pd.DataFrame, groups: Mapping[str, str] | None) -> pd.Series:
    unit = frame["qid"] if groups is None else frame["qid"].map(groups)
    if unit.isna().any():
        raise ValueError(f"groups: there is none for the qid {frame.loc[unit.isna(), 'qid'].iloc[0]!r}")
    each = frame.groupby(["mode", unit, frame["qid"]])["value"].mean()
    return each.groupby(level=[0, 1]).mean().sort_index().rename_axis(index=["mode", "unit"])


# --------------------------------------------------------------------------------------------------------- ranking


def _checked(modes: Sequence[str]) -> tuple[str, ...]:
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or isinstance(modes, str) or not modes:
        raise ValueError(f"modes must be some of {', '.join(MODES)}, not {modes!r}")
    return tuple(mode for mode in MODES if mode in modes)


def _pools(corpus: MultilingualCorpus, modes: Sequence[str]) -> list[tuple[str, str, str]]:
    """Returns mode, language of the questions and language of the documents of every ranking."""
    pools = []
    for mode in modes:
        for query_lang in corpus.query_langs:
            for doc_lang in (ALL_LANGUAGES,) if mode == "multi" else corpus.doc_langs:
                if mode == "multi" or (mode == "mono") == (query_lang == doc_lang):
                    pools.append((mode, query_lang, doc_lang))
    return pools


class _Pools:
    """Questions and documents as vectors; ranks documents of some languages."""

    def __init__(self, system: Encoder, corpus: MultilingualCorpus, post: Post | None, vectors: Vectors | None):
        encoder, post = _parts(system, post)
        # In order of docno, so that of documents with the same score the first column is the first.
        docs = corpus.docs.sort_values("docno", ignore_index=True)
        topics = corpus.topics
        self.corpus = corpus
        self.docnos = docs["docno"].to_numpy(dtype=object)
        self.doc_lang = docs["doc_lang"].to_numpy(dtype=object)
        self.qids = topics["qid"].to_numpy(dtype=object)
        self.query_lang = topics["query_lang"].to_numpy(dtype=object)
        langs = (topics["query_lang"].tolist(), docs["doc_lang"].tolist())
        self.queries = _encoded(encoder, topics["query"].tolist(), "query", langs[0], post, vectors)
        self.documents = _encoded(encoder, docs["text"].tolist(), "document", langs[1], post, vectors)

    def ranked(self, modes: Sequence[str], k: int) -> list[_Ranked]:
        """Returns the rankings of all pools."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be a whole number >= 1, not {k!r}")
        found = []
        block, of = np.empty((0, 0), np.float32), None
        for mode, query_lang, doc_lang in sorted(_pools(self.corpus, modes), key=lambda pool: pool[1]):
            rows = self.query_lang == query_lang
            if of != query_lang:  # one product for all pools of a language
                block, of = self.queries[rows] @ self.documents.T, query_lang
            columns = np.arange(len(self.docnos)) if mode == "multi" else np.flatnonzero(self.doc_lang == doc_lang)
            qids, docnos = self.qids[rows], self.docnos[columns]
            at, best, scores, ranks = _top(block[:, columns], k)
            frame = pd.DataFrame({"qid": qids[at], "docno": docnos[best], "score": scores, "rank": ranks})
            found.append(_Ranked(mode, query_lang, doc_lang, frame))
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


def _measure(ranked: Sequence[_Ranked], corpus: MultilingualCorpus, k: int) -> pd.DataFrame:
    """Measures all rankings at once: a question in a pool is a query of its own."""
    import ir_measures

    judged = corpus.qrels[["qid", "docno"]].merge(corpus.docs[["docno", "doc_lang"]], on="docno")
    judged = judged.merge(corpus.topics[["qid", "query_lang"]], on="qid")
    if not ranked:
        return pd.DataFrame(columns=_VALUES).astype({"value": "float64"})
    asked, found = [], []
    for i, pool in enumerate(ranked):
        relevant = judged[judged["query_lang"] == pool.query_lang]
        if pool.mode != "multi":
            relevant = relevant[relevant["doc_lang"] == pool.doc_lang]
        asked.append(relevant[["qid", "docno"]].assign(pool=i))
        found.append(pool.rows.assign(pool=i))
    qrels, run = pd.concat(asked, ignore_index=True), pd.concat(found, ignore_index=True)
    keys = qrels[["pool", "qid"]].drop_duplicates(ignore_index=True)
    number = {key: str(i) for i, key in enumerate(zip(keys["pool"], keys["qid"], strict=True))}

    def renamed(frame: pd.DataFrame, **columns: Any) -> pd.DataFrame:
        ids = [number.get(key) for key in zip(frame["pool"], frame["qid"], strict=True)]
        return pd.DataFrame({"query_id": ids, "doc_id": frame["docno"], **columns}).dropna(subset=["query_id"])

    # Ranks in the place of scores: trec_eval orders documents of equal scores by docno, and reads 32 bits of a score.
    values = dict.fromkeys(range(len(keys)), 0.0)
    for metric in ir_measures.iter_calc(
        [ir_measures.AP @ k], renamed(qrels, relevance=1), renamed(run, score=-run["rank"].astype(float))
    ):
        values[int(metric.query_id)] = float(metric.value)
    labels = pd.DataFrame([pool[:3] for pool in ranked], columns=["mode", "query_lang", "doc_lang"])
    frame = labels.iloc[keys["pool"]].reset_index(drop=True)
    return frame.assign(qid=keys["qid"], value=[values[i] for i in range(len(keys))])[_VALUES]


# --------------------------------------------------------------------------------------------------------- vectors


def _parts(system: Any, post: Post | None) -> tuple[Encoder, Post | None]:
    encoder = getattr(system, "encoder", system)
    return encoder, getattr(system, "post", None) if post is None else post


def _encoded(
    encoder: Encoder,
    texts: list[str],
    side: Side,
    langs: list[str],
    post: Post | None,
    vectors: Vectors | None,
) -> _FLOAT:
    """Returns vectors of length 1, encoded only if that was not done before."""
    found: Vectors = {} if vectors is None else vectors
    lacking = [text for text in dict.fromkeys(texts) if (side, text) not in found]
    if lacking:
        for text, vector in zip(lacking, encoder.encode(lacking, side), strict=True):
            found[side, text] = vector
    if not texts:
        raise ValueError(f"there are no texts of the side {side!r} to encode")
    stacked = unit(np.stack([found[side, text] for text in texts]).astype(np.float32, copy=False))
    return stacked if post is None else unit(post.apply(stacked, langs, side))
