"""New translation tables of old ones, as operations on their entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyterrier_mart.checks import check_number, check_whole
from pyterrier_mart.translation.entries import Entries

__all__ = ["compose", "composed", "described", "invert", "mix", "prune"]

#: A weight, as a share of the largest one, that is still something when a small probability is multiplied by it.
_LEAST_SHARE = 1e-200


def prune(
    entries: Entries,
    top_k: int | None = None,
    threshold: float = 0.0,
    cumulative: float | None = None,
    renormalize: bool = False,
) -> Entries:
    """Keeps the surest translations of a table: see :meth:`pyterrier_mart.TranslationTable.prune`.

    Args:
        entries: The entries of a table: the best translation of each source word first.
        top_k: Maximum number of translations of a word.
        threshold: Least probability.
        cumulative: Share of the row's sum that the kept ones must reach.
        renormalize: Whether the kept probabilities of each word sum to 1.

    Raises:
        ValueError: If ``top_k`` or ``cumulative`` is out of range.
    """
    check_whole("top_k", top_k, optional=True)
    check_number("cumulative", cumulative, 0.0, 1.0, positive=True, optional=True)
    s, w = entries.s, entries.w
    counts = np.bincount(s, minlength=len(entries.source_words))
    starts = (np.cumsum(counts) - counts)[s]
    nth = np.arange(len(s)) - starts
    keep = w >= np.float32(threshold)
    if top_k is not None:
        keep &= nth < top_k
    if cumulative is not None:
        before = np.cumsum(w) - w  # sum of all entries before this one
        total = np.bincount(s, weights=w, minlength=len(counts))[s]
        keep &= (nth == 0) | (before - before[starts] < cumulative * total - 1e-9)
    note = {"top_k": top_k, "threshold": float(threshold) or None, "cumulative": cumulative}
    pruned = {key: value for key, value in note.items() if value is not None}
    meta = {**entries.meta, "pruned": [*entries.meta.get("pruned", []), pruned]}
    weights = "count" if renormalize else "probability"
    return replace(entries, s=s[keep], t=entries.t[keep], w=w[keep], weights=weights, meta=meta)  # type: ignore[arg-type]


def invert(entries: Entries, prior: Mapping[str, float] | None = None) -> Entries:
    """Turns P(target | source) into P(source | target) by Bayes' rule.

    Args:
        entries: The entries of a table.
        prior: P(source word) or counts; words that it lacks are left out. ``None``: all source words alike.

    Raises:
        ValueError: If the prior of a word is not a finite number >= 0.
    """
    w = entries.w
    if prior is not None:
        priors = {word: float(prior.get(word, 0.0)) for word in entries.source_words}
        for word, value in priors.items():
            check_number(f"the prior of {word!r}", value)
        w = w * np.array(list(priors.values()))[entries.s]
    return Entries(
        entries.target, entries.source, entries.target_words, entries.source_words, entries.t, entries.s, w, "count",
        entries.meta,
    )  # fmt: skip


def compose(first: Entries, second: Entries) -> Entries:
    """Multiplies P(pivot | source) and P(target | pivot), summed over the words of the language between.

    Args:
        first: The entries of a table into the language between; what is on words that ``second`` lacks is lost.
        second: Those of a table from there.
    """
    from scipy.sparse import csr_array

    number = {word: i for i, word in enumerate(second.source_words)}
    pivot = np.array([number.get(word, -1) for word in first.target_words], dtype=np.int64)[first.t]
    known = pivot >= 0
    sizes = len(first.source_words), len(number), len(second.target_words)
    into = csr_array((first.w[known], (first.s[known], pivot[known])), shape=sizes[:2])
    product = (into @ csr_array((second.w, (second.s, second.t)), shape=sizes[1:])).tocoo()
    s, t = (side.astype(np.int64) for side in (product.row, product.col))
    return Entries(first.source, second.target, first.source_words, second.target_words, s, t, product.data)


def mix(parts: Sequence[Entries], weights: Sequence[float], *, first_only: bool = False) -> Entries:
    """Returns the weighted mean of tables; each source word is averaged over those that have it.

    Args:
        parts: The entries of each table.
        weights: A positive weight for each.
        first_only: Whether each source word is that of the first table that has it.
    """
    largest = max(weights)  # sums of weights as they are may be infinite
    shares = [max(weight / largest, _LEAST_SHARE) for weight in weights]
    s_words = sorted({word for part in parts for word in part.source_words})
    t_words = sorted({word for part in parts for word in part.target_words})
    s_number = {word: i for i, word in enumerate(s_words)}
    t_number = {word: i for i, word in enumerate(t_words)}
    known = np.zeros(len(s_words))
    columns: list[tuple[Any, Any, Any]] = []
    for part, share in zip(parts, shares, strict=True):
        s_ids = np.array([s_number[word] for word in part.source_words], dtype=np.int64)
        t_ids = np.array([t_number[word] for word in part.target_words], dtype=np.int64)
        share_of = np.where((known[s_ids] > 0) & first_only, 0.0, share)
        known[s_ids] += share_of
        columns.append((s_ids[part.s], t_ids[part.t], share_of[part.s] * part.w))
    s, t, w = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Entries(parts[0].source, parts[0].target, s_words, t_words, s, t, w / known[s])


def described(metas: Iterable[Mapping[str, Any]], shares: Sequence[float]) -> list[dict[str, Any]]:
    """Returns what the metadata of a mixture say of the tables in it."""
    return [
        {"weight": share, "fingerprint": meta["fingerprint"], "source": meta.get("source")}
        for meta, share in zip(metas, shares, strict=True)
    ]


def composed(*metas: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the provenance of a table that :func:`compose` made."""
    kept = ("direction", "fingerprint", "source", "corpora")
    parts = [{key: meta[key] for key in kept if key in meta} for meta in metas]
    licences = dict.fromkeys(str(meta["licence"]) for meta in metas if "licence" in meta)
    return {"composed": parts, **({"licence": "; ".join(licences)} if licences else {})}
