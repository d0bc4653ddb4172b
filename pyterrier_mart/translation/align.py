"""Translations learned from sentence pairs by a statistical word aligner."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyterrier as pt

from pyterrier_mart.checks import check_choice, check_whole
from pyterrier_mart.files import naming
from pyterrier_mart.problems import TableFormatError
from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation import aligner_process
from pyterrier_mart.translation.entries import Entries, table_analyzer

__all__ = ["Aligner", "Side", "places", "train"]

#: ``"eflomal"`` (Östling & Tiedemann 2016: Gibbs sampling, the better alignments) or ``"fast_align"`` (Dyer et al.
#: 2013: a reparameterised IBM model 2, faster and deterministic).
Aligner = Literal["eflomal", "fast_align"]

_MODULES = {"eflomal": "eflomal", "fast_align": "systran_align"}

_Ids = npt.NDArray[np.int64]


def train(
    pairs: Iterable[tuple[str, str]],
    source: Analyzer | str,
    target: Analyzer | str,
    *,
    aligner: Aligner = "eflomal",
    prefixes: Sequence[int | None] = (None,),
    min_count: float = 1.0,
    meta: Mapping[str, Any] | None = None,
    verbose: bool = False,
) -> tuple[Entries, Entries]:
    """Learns P(target | source) and P(source | target) from sentence pairs, with one alignment for both.

    The aligner links words of each pair in both directions. A link found in both directions counts twice as much as
    one found in one of them, and the tables are the relative frequencies of the links: the lexical translation
    probabilities of Koehn, Och & Marcu (2003, equation 4), over the union of the two alignments. Neither aligner takes
    a seed: fast_align always gives the same result, eflomal never quite the same.

    Args:
        pairs: Sentences (source, target), as plain text. Pairs of which a side has no word are left out. They are
            read once and analysed on the way; what stays in memory is a number for each word.
        source: Source language code or analyzer.
        target: Target language code or analyzer.
        aligner: ``"eflomal"`` or ``"fast_align"``; both need the extra ``align``.
        prefixes: One alignment is made for each length, in which words that agree in that many first letters are one
            word (``None``: in all), and their links are averaged. Short prefixes pool the inflected forms of a word,
            which helps where pairs are few: the bundled tables, of 9,000 to 140,000 pairs, are learned with
            ``(4, 6)`` and ``min_count=0.5``.
        min_count: Least number of links of an entry (a link in one direction is half a time).
        meta: Provenance to keep with both tables, such as ``source`` and ``licence``.
        verbose: Whether to show progress.

    Returns:
        The entries of P(target | source) and P(source | target).

    Raises:
        ImportError: If the aligner is not installed.
        OSError: If the aligner fails, for want of memory or of room for its temporary files.
        ValueError: If there is no sentence pair, or an item is not a pair of strings.
    """
    check_choice("aligner", aligner, _MODULES)
    for prefix in prefixes:
        check_whole("prefixes", prefix, optional=True)
    try:  # before the pairs are read
        importlib.import_module(_MODULES[aligner])
    except ImportError as err:
        hint = " (systran-align: Linux on x86-64, Python up to 3.11)" if aligner == "fast_align" else ""
        raise ImportError(
            f"learning a table with {aligner}{hint} needs the extra: pip install 'pyterrier-mart[align]' ({err})"
        ) from err
    s_side, t_side = Side(source), Side(target)
    for i, pair in enumerate(pt.tqdm(pairs, desc="analyse pairs", unit="pair", disable=not verbose), start=1):
        if not isinstance(pair, (tuple, list)) or [isinstance(side, str) for side in pair] != [True, True]:
            raise TableFormatError(f"pair {i}: expected two sentences (source, target), found {pair!r}")
        s_tokens, t_tokens = s_side.analyzer.tokens(pair[0]), t_side.analyzer.tokens(pair[1])
        if s_tokens and t_tokens:
            s_side.add(s_tokens)
            t_side.add(t_tokens)
    n_pairs = len(s_side.starts) - 1
    if not n_pairs:
        raise ValueError("no sentence pair with words on both sides to learn from")
    found: list[tuple[_Ids, _Ids]] = []
    for prefix in prefixes:
        if verbose:
            unit = "words" if prefix is None else f"prefixes of {prefix} letters"
            pt.tqdm.write(f"{aligner} aligns {n_pairs:,} pairs by {unit} ...", file=sys.stderr)
        found += align(aligner, s_side, t_side, prefix)
    (s_words, s_ids), (t_words, t_ids) = s_side.sorted_words(), t_side.sorted_words()
    s, t = (np.concatenate(places) for places in zip(*found, strict=True))
    keys, linked = np.unique(s_ids[s] * len(t_words) + t_ids[t], return_counts=True)
    count = linked / len(found)
    keys, count = keys[count >= min_count], count[count >= min_count]
    s, t = np.divmod(keys, len(t_words))
    noted = {**(meta or {}), "aligner": aligner, "prefixes": list(prefixes), "sentence_pairs": n_pairs,
             "min_count": min_count}  # fmt: skip
    one, other = s_side.analyzer, t_side.analyzer
    return (
        Entries(one, other, s_words, t_words, s, t, count, "count", noted),
        Entries(other, one, t_words, s_words, t, s, count, "count", noted),
    )


class Side:
    """One language of the sentence pairs: the words' numbers in one array, sentence after sentence.

    Attributes:
        analyzer: What splits its sentences. Stop words are aligned like others: left out, their partners would be
            linked to what is left.
        words: The numbers of the words.
        starts: Where in ``words`` each sentence begins, and where the last one ends.
    """

    def __init__(self, analyzer: Analyzer | str):
        self.analyzer = table_analyzer(analyzer)
        self.numbers: dict[str, int] = {}
        self.words = array("i")
        self.starts = array("q", [0])

    def add(self, tokens: Iterable[str]) -> None:
        """Adds the words of a sentence."""
        numbers = self.numbers
        self.words.extend(numbers.setdefault(token, len(numbers)) for token in tokens)
        self.starts.append(len(self.words))

    def sentences(self, prefix: int | None) -> Iterator[str]:
        """Yields the sentences as aligners read them: words (or their first letters) with spaces between."""
        spelled = [word[:prefix] for word in self.numbers]
        ends = zip(self.starts, self.starts[1:], strict=False)
        return (" ".join(map(spelled.__getitem__, self.words[a:b])) for a, b in ends)

    def sorted_words(self) -> tuple[list[str], _Ids]:
        """Returns the distinct words, sorted, and for each of ``words`` its position among them."""
        ordered = sorted(self.numbers)
        rank = np.empty(len(ordered), dtype=np.int64)
        rank[[self.numbers[word] for word in ordered]] = np.arange(len(ordered))
        return ordered, rank[np.frombuffer(self.words, dtype=np.int32)]


def places(lines: Sequence[str], s_side: Side, t_side: Side) -> tuple[_Ids, _Ids]:
    """Turns lines such as ``0-0 1-2``, one a sentence pair, into places in the words of the two sides."""
    flat = np.array(" ".join(lines).replace("-", " ").split(), dtype=np.int64)
    sentence = np.repeat(np.arange(len(lines)), [line.count("-") for line in lines])
    return np.array(s_side.starts)[sentence] + flat[0::2], np.array(t_side.starts)[sentence] + flat[1::2]


def align(aligner: str, s_side: Side, t_side: Side, prefix: int | None) -> list[tuple[_Ids, _Ids]]:
    """Links the words of all sentence pairs, in a process that ends when this one is interrupted.

    Returns:
        Per alignment (eflomal makes one for each direction), for each link the places in the words of the two sides.

    Raises:
        OSError: If the aligner fails.
    """
    with tempfile.TemporaryDirectory(prefix="pyterrier-mart-") as directory:
        tmp = Path(directory)
        for name, side in (("source", s_side), ("target", t_side)):
            with naming(tmp / name, tmp), open(tmp / name, "w", encoding="utf-8", newline="\n") as out:
                out.writelines(f"{sentence}\n" for sentence in side.sentences(prefix))
        program = [sys.executable, "-I", aligner_process.__file__, aligner, directory, *map(str, sys.path)]
        with open(tmp / "messages", "wb") as messages:
            process = subprocess.Popen(
                program, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages, start_new_session=True
            )
        try:
            status = process.wait()
        except BaseException:  # Ctrl-C, and what the command line makes of SIGTERM
            if hasattr(os, "killpg"):  # with the program that it may have started
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
            raise
        if status:
            said = (tmp / "messages").read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
            where = f"is there room in {tempfile.gettempdir()} and enough memory?"
            raise OSError(f"{aligner} ended with status {status}{said and f' ({said})'}; {where}")
        links = [path.read_text(encoding="ascii").splitlines() for path in sorted(tmp.glob("links*"))]
    return [places(lines, s_side, t_side) for lines in links]
