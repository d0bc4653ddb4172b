"""Translation tables learned from sentence pairs by a statistical word aligner."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyterrier as pt

from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation.builder import TableFormatError
from pyterrier_mart.translation.table import TranslationTable

__all__ = ["Aligner", "train"]

#: ``"eflomal"`` (Östling & Tiedemann 2016: Gibbs sampling, the better alignments) or ``"fast_align"`` (Dyer et al.
#: 2013: a reparameterised IBM model 2, faster and deterministic).
Aligner = Literal["eflomal", "fast_align"]

_Ids = npt.NDArray[np.int64]


def train(
    pairs: Iterable[tuple[str, str]],
    source: Analyzer | str,
    target: Analyzer | str,
    *,
    aligner: Aligner = "eflomal",
    prefixes: Sequence[int | None] = (None,),
    top_k: int | None = None,
    min_count: float = 1.0,
    seed: int | None = None,
    meta: dict[str, Any] | None = None,
    verbose: bool = False,
) -> tuple[TranslationTable, TranslationTable]:
    """Learns P(target | source) and P(source | target) from sentence pairs, with one alignment for both.

    The aligner links words of each pair in both directions. A link found in both directions counts twice as much as
    one found in one of them, and the tables are the relative frequencies of the links: the lexical translation
    probabilities of Koehn, Och & Marcu (2003, equation 4), over the union of the two alignments.

    Args:
        pairs: Sentences (source, target), as plain text. Pairs of which a side has no word are left out. They are
            read once and analysed on the way; what stays in memory is a number for each word.
        source: Source language code or analyzer.
        target: Target language code or analyzer.
        aligner: ``"eflomal"`` or ``"fast_align"``; both need the extra ``align``.
        prefixes: One alignment is made for each, in which words that agree in so many first letters are one word
            (``None``: in all), and their links are averaged. Short prefixes pool the inflected forms of a word, which
            helps where pairs are few: the bundled tables, of 9,000 to 140,000 pairs, are learned with ``(4, 6)`` and
            ``min_count=0.5``.
        top_k: Keep at most so many translations of a word; they sum to 1 before the others are cut, not after.
        min_count: Keep entries that were linked at least so often (a link in one direction is half a time).
        seed: Only for aligners that can be seeded, which neither of the present ones can: fast_align always gives the
            same result, eflomal never quite the same.
        meta: Provenance to keep with both tables, such as ``source`` and ``licence``.
        verbose: Whether to show progress.

    Returns:
        The tables P(target | source) and P(source | target).

    Raises:
        ImportError: If the aligner is not installed.
        OSError: If the aligner fails, for want of memory or of room for its temporary files.
        ValueError: If there is no sentence pair, an item is not a pair of strings, or a seed is given.
    """
    if aligner not in ("eflomal", "fast_align"):
        raise ValueError(f"aligner must be 'eflomal' or 'fast_align', not {aligner!r}")
    if not prefixes or not all(n is None or (isinstance(n, int) and n >= 1) for n in prefixes):
        raise ValueError(f"prefixes must be lengths >= 1 or None, at least one of them, not {prefixes!r}")
    if seed is not None:
        why = "takes no seed and differs from run to run" if aligner == "eflomal" else "takes no seed and needs none"
        raise ValueError(f"seed={seed!r} has no effect: {aligner} {why}; leave it out")
    run = _import_eflomal() if aligner == "eflomal" else _import_fast_align()
    s_side, t_side, n_pairs = _read(pairs, source, target, verbose)
    found: list[_Links] = []
    for prefix in prefixes:
        if verbose:
            unit = "words" if prefix is None else f"prefixes of {prefix} letters"
            pt.tqdm.write(f"{aligner} aligns {n_pairs:,} pairs by {unit} ...", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="pyterrier-mart-") as tmp:
            found.extend(run(s_side, t_side, prefix, Path(tmp)))
    s = np.concatenate([s_side.words[links.s] for links in found])
    t = np.concatenate([t_side.words[links.t] for links in found])
    keys, linked = np.unique(s * len(t_side.vocabulary) + t, return_counts=True)
    count = linked / len(found)
    keys, count = keys[count >= min_count], count[count >= min_count]
    s, t = np.divmod(keys, len(t_side.vocabulary))
    provenance = {**(meta or {}), "aligner": aligner, "prefixes": list(prefixes),
                  "sentence_pairs": n_pairs, "min_count": min_count}  # fmt: skip

    def table(one: _Side, other: _Side, a: _Ids, b: _Ids) -> TranslationTable:
        one_words, one_rank = one.sorted_vocabulary()
        other_words, other_rank = other.sorted_vocabulary()
        learned = TranslationTable._from_entries(
            one_words, other_words, one_rank[a], other_rank[b], count,
            weights="count", source=one.analyzer, target=other.analyzer, meta=provenance,
        )  # fmt: skip
        return learned if top_k is None else learned.prune(top_k=top_k)

    return table(s_side, t_side, s, t), table(t_side, s_side, t, s)


class _Side:
    """One language of the sentence pairs: the words' numbers in one array, sentence after sentence."""

    def __init__(self, analyzer: Analyzer | str):
        # Stop words are aligned like others: left out, their partners would be linked to what is left.
        self.analyzer = Analyzer(analyzer) if isinstance(analyzer, str) else Analyzer.from_spec(analyzer.spec)
        self._numbers: dict[str, int] = {}
        self._words: list[npt.NDArray[np.int32]] = []
        self._ends = [0]

    def add(self, tokens: list[str]) -> None:
        numbers = self._numbers
        self._words.append(np.array([numbers.setdefault(token, len(numbers)) for token in tokens], dtype=np.int32))
        self._ends.append(self._ends[-1] + len(tokens))

    def close(self) -> None:
        self.words = np.concatenate(self._words).astype(np.int64)
        self.starts = np.array(self._ends[:-1], dtype=np.int64)
        self.vocabulary = list(self._numbers)
        self._words = []

    def sentences(self, prefix: int | None) -> list[str]:
        """The sentences as the aligners read them: words (or their first letters) with spaces between."""
        spelled = [word[:prefix] for word in self.vocabulary]
        words, ends = self.words.tolist(), self._ends
        return [" ".join(map(spelled.__getitem__, words[a:b])) for a, b in zip(ends, ends[1:], strict=False)]

    def sorted_vocabulary(self) -> tuple[list[str], _Ids]:
        order = sorted(range(len(self.vocabulary)), key=self.vocabulary.__getitem__)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return [self.vocabulary[i] for i in order], rank


class _Links(NamedTuple):
    """Linked words as their places in the ``words`` of the two sides."""

    s: _Ids
    t: _Ids


def _read(
    pairs: Iterable[tuple[str, str]], source: Analyzer | str, target: Analyzer | str, verbose: bool
) -> tuple[_Side, _Side, int]:
    s_side, t_side = _Side(source), _Side(target)
    n_pairs = 0
    items = pt.tqdm(pairs, desc="analyse pairs", unit="pair") if verbose else pairs
    for i, pair in enumerate(items, start=1):
        if not isinstance(pair, (tuple, list)) or [isinstance(side, str) for side in pair] != [True, True]:
            raise TableFormatError(f"pair {i}: expected two sentences (source, target), found {pair!r}")
        s_tokens, t_tokens = s_side.analyzer.tokens(pair[0]), t_side.analyzer.tokens(pair[1])
        if s_tokens and t_tokens:
            s_side.add(s_tokens)
            t_side.add(t_tokens)
            n_pairs += 1
    if not n_pairs:
        raise ValueError("no sentence pair with words on both sides to learn from")
    s_side.close()
    t_side.close()
    return s_side, t_side, n_pairs


def _places(lines: list[str], s_side: _Side, t_side: _Side) -> _Links:
    """Turns lines such as ``0-0 1-2``, one a sentence pair, into places."""
    flat = np.array(" ".join(lines).replace("-", " ").split(), dtype=np.int64)
    sentence = np.repeat(np.arange(len(lines)), [line.count("-") for line in lines])
    return _Links(s_side.starts[sentence] + flat[0::2], t_side.starts[sentence] + flat[1::2])


def _missing(package: str, err: ImportError) -> ImportError:
    return ImportError(f"learning a table with {package} needs the extra: pip install 'pyterrier-mart[align]' ({err})")


def _import_eflomal() -> Any:
    try:
        import eflomal
    except ImportError as err:
        raise _missing("eflomal", err) from err

    def run(s_side: _Side, t_side: _Side, prefix: int | None, tmp: Path) -> tuple[_Links, _Links]:
        files = [os.fspath(tmp / name) for name in ("forward", "backward")]
        sentences = s_side.sentences(prefix), t_side.sentences(prefix)
        try:
            eflomal.Aligner().align(*sentences, links_filename_fwd=files[0], links_filename_rev=files[1])
        except subprocess.CalledProcessError as err:  # it runs a program
            where = f"is there room in {tempfile.gettempdir()} and enough memory?"
            raise OSError(f"eflomal ended with status {err.returncode}; {where}") from err
        forward, backward = (
            _places(Path(file).read_text(encoding="ascii").splitlines(), s_side, t_side) for file in files
        )
        return forward, backward

    return run


def _import_fast_align() -> Any:
    try:
        import systran_align
    except ImportError as err:
        raise _missing("fast_align (systran-align: Linux on x86-64, Python up to 3.11)", err) from err

    def run(s_side: _Side, t_side: _Side, prefix: int | None, tmp: Path) -> tuple[_Links, _Links]:
        sentences = s_side.sentences(prefix), t_side.sentences(prefix)
        text = tmp / "pairs"
        text.write_text("".join(f"{s} ||| {t}\n" for s, t in zip(*sentences, strict=True)), encoding="utf-8")
        models = os.fspath(tmp / "forward"), os.fspath(tmp / "backward")
        # The options that its authors recommend (-d -o -v).
        systran_align.generate_alignment_probabilities(
            os.fspath(text), *models, favor_diagonal=True, optimize_tension=True, variational_bayes=True
        )
        found = systran_align.Aligner(*models).align_batch(*([line.split() for line in side] for side in sentences))
        lines = [" ".join(f"{i}-{j}" for i, j in pair["alignments"]) for pair in found]
        symmetric = _places(lines, s_side, t_side)  # it symmetrises both directions itself (grow-diag-final-and)
        return symmetric, symmetric

    return run
