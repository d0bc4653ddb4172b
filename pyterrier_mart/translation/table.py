"""TranslationTable: P(target word | source word), sparse, immutable, mapped from disk."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt

from pyterrier_mart.artifact import META
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.text import Analyzer, language_code
from pyterrier_mart.translation import storage
from pyterrier_mart.translation.builder import TableBuilder, Weights
from pyterrier_mart.translation.vocabulary import Vocabulary

__all__ = ["TranslationTable"]

#: The part of the metadata that the table itself determines.
_OWN_META = frozenset({
    "type", "format", "package_hint", "format_version", "languages", "direction", "meaning", "analyzers", "entries",
    "source_words", "target_words", "fingerprint",
})  # fmt: skip
#: Ending of the bundled tables, in the form of :func:`storage.pack`.
BUNDLED_SUFFIX = ".table.xz"
#: How Python stands for the bytes of file names and arguments that are not UTF-8.
_UNDECODED = re.compile("[\udc80-\udcff]")
#: A weight, as a share of the largest one, that is still something when a small probability is multiplied by it.
_LEAST_SHARE = 1e-200


class TranslationTable(pt.Artifact):
    """Word translation probabilities P(target | source), one row of translations a source word.

    Words are in the normal form of the table's analyzers. The rows are sorted by falling probability, so the best
    ``k`` translations are the first ``k`` of a row. Tables never change: every operation returns a new one. Two
    tables are equal if their languages, analyzers, words and probabilities are.

    On disk a table is a directory of plain arrays and ``pt_meta.json``; opening it maps the arrays into memory
    without reading them. As a PyTerrier artifact it can be shared: ``to_hf``, ``from_hf``, ``from_url``.

    Arrays (public, read-only): ``rows`` int64 (n_source + 1), ``columns`` int32 (n_entries) numbers of target words,
    ``probs`` float32 (n_entries); row ``i`` is ``rows[i]:rows[i + 1]``. ``source_words`` and ``target_words`` are
    sorted :class:`~pyterrier_mart.translation.vocabulary.Vocabulary` objects.

    .. cite.dblp:: conf/cikm/HuangBSRA21

    Example::

        >>> table = TranslationTable.load("de-en")
        >>> table.translations("Katze", top_k=1)
        {'cat': 0.9...}

    Args:
        path: A directory that :meth:`save` has written.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is not a translation table, is damaged, or was made under other word rules.
    """

    ARTIFACT_TYPE = "translation_table"
    ARTIFACT_FORMAT = "mart"
    ARTIFACT_PACKAGE_HINT = "pyterrier-mart"

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int32]
    probs: npt.NDArray[np.float32]
    source_words: Vocabulary
    target_words: Vocabulary
    source: Analyzer
    target: Analyzer

    def __init__(self, path: str | os.PathLike[str]):
        directory = Path(path)
        super().__init__(directory)
        arrays, meta = storage.open_directory(directory)
        self._set(arrays, meta, where=str(directory))

    # --- construction -----------------------------------------------------------------------------------------

    def _set(self, arrays: Mapping[str, npt.NDArray[Any]], meta: dict[str, Any], where: str) -> None:
        storage.check(arrays, meta, where)
        try:
            self.source, self.target = (Analyzer.from_spec(meta["analyzers"][side]) for side in ("source", "target"))
        except ValueError as err:
            raise ValueError(f"cannot use the translation table {where}: {err}") from err
        except (AttributeError, KeyError, TypeError) as err:
            raise ValueError(f"damaged translation table {where}: its analyzers are {meta['analyzers']!r}") from err
        self.source_words = Vocabulary(arrays["source_text"], arrays["source_offsets"])
        self.target_words = Vocabulary(arrays["target_text"], arrays["target_offsets"])
        self.rows, self.columns, self.probs = arrays["rows"], arrays["columns"], arrays["probs"]
        for array in arrays.values():
            array.flags.writeable = False
        self._meta = meta

    @classmethod
    def _in_memory(cls, arrays: Mapping[str, npt.NDArray[Any]], meta: dict[str, Any], where: str) -> TranslationTable:
        table = cls.__new__(cls)
        pt.Artifact.__init__(table, pt.Artifact.NO_PATH)
        table._set(arrays, meta, where)
        return table

    @classmethod
    def _from_entries(
        cls,
        source_words: Sequence[str],
        target_words: Sequence[str],
        s: npt.NDArray[np.int64],
        t: npt.NDArray[np.int64],
        w: npt.NDArray[np.float64],
        *,
        weights: Weights,
        source: Analyzer,
        target: Analyzer,
        meta: Mapping[str, Any],
    ) -> TranslationTable:
        """Makes a table of entries over sorted vocabularies; equal pairs are summed (``uniform``: counted once).

        Words without an entry are left out.
        """
        keys = s * max(len(target_words), 1) + t
        keys, position = np.unique(keys, return_inverse=True)
        w = np.bincount(position, weights=w, minlength=len(keys)).astype(np.float64)
        s, t = np.divmod(keys, max(len(target_words), 1))
        keep = w > 0
        s, t, w = s[keep], t[keep], w[keep]
        if weights == "uniform":
            w = np.ones(len(w))
        if weights != "probability":
            w = w / np.bincount(s, weights=w, minlength=1)[s]
        probs = np.minimum(w, 1.0).astype(np.float32)
        keep = probs > 0  # a weight may be too small for float32
        s, t, probs = s[keep], t[keep], probs[keep]

        used_s, s = np.unique(s, return_inverse=True)
        used_t, t = np.unique(t, return_inverse=True)
        order = np.lexsort((t, -probs, s))
        rows = np.zeros(len(used_s) + 1, dtype=np.int64)
        np.cumsum(np.bincount(s, minlength=len(used_s)), out=rows[1:])
        sources = Vocabulary.from_words(source_words[i] for i in used_s)
        targets = Vocabulary.from_words(target_words[i] for i in used_t)
        arrays: dict[str, npt.NDArray[Any]] = {
            "source_text": sources.text, "source_offsets": sources.offsets, "target_text": targets.text,
            "target_offsets": targets.offsets, "rows": rows, "columns": t[order].astype(np.int32),
            "probs": probs[order],
        }  # fmt: skip
        full = {
            "type": cls.ARTIFACT_TYPE, "format": cls.ARTIFACT_FORMAT, "package_hint": cls.ARTIFACT_PACKAGE_HINT,
            "format_version": storage.FORMAT_VERSION, "languages": [source.lang, target.lang],
            "direction": f"{source.lang}-{target.lang}", "meaning": "P(target | source)",
            "analyzers": {"source": source.spec, "target": target.spec},
            "entries": len(probs), "source_words": len(sources), "target_words": len(targets),
        }  # fmt: skip
        full.update(_provenance(meta))
        full["fingerprint"] = storage.fingerprint(arrays, full)
        return cls._in_memory(arrays, full, "in memory")

    @classmethod
    def load(cls, path: str | os.PathLike[str], **kwargs: Any) -> TranslationTable:  # noqa: D417
        """Opens a table directory, or one of the bundled tables by the name of its direction.

        Args:
            path: A directory, or a direction such as ``"de-en"`` (see :meth:`bundled`). A directory of that name in
                the working directory comes first.

        Raises:
            FileNotFoundError: If there is neither such a directory nor such a bundled table.
            ValueError: If the directory is not a translation table or is damaged.
        """
        if kwargs:
            raise TypeError(f"TranslationTable.load() takes no argument {next(iter(kwargs))!r}")
        if os.fspath(path) and Path(path).exists():  # Path("") is the working directory
            return cls(path)
        name = _direction(os.fspath(path))
        if name in cls.bundled():
            return _load_bundled(name)
        raise FileNotFoundError(
            f"no translation table at {os.fspath(path)!r}; expected a directory written by TranslationTable.save, or "
            f"a bundled direction: {', '.join(cls.bundled())}"
        )

    @classmethod
    def bundled(cls) -> list[str]:
        """Returns the directions of the tables that come with the package."""
        data = resources.files(__package__).joinpath("data")
        names = [entry.name for entry in data.iterdir()] if data.is_dir() else []
        return sorted(name.removesuffix(BUNDLED_SUFFIX) for name in names if name.endswith(BUNDLED_SUFFIX))

    @classmethod
    def from_dict(
        cls,
        entries: Mapping[str, Mapping[str, float]],
        source: Analyzer | str,
        target: Analyzer | str,
        *,
        weights: Weights = "probability",
        phrases: str = "drop",
        meta: Mapping[str, Any] | None = None,
    ) -> TranslationTable:
        """Makes a table of ``{source: {target: weight}}``.

        Args:
            entries: The translations; words are put into normal form.
            source: Source language code or analyzer.
            target: Target language code or analyzer.
            weights: ``"probability"``, ``"count"`` (divided by their sum over the source word) or ``"uniform"``.
            phrases: ``"drop"`` or ``"split"`` targets of several words.
            meta: Provenance, such as ``source`` and ``licence``.

        Raises:
            TableFormatError: If a weight is not a finite number >= 0, or probabilities are not in [0, 1] or sum to
                more than 1.
        """
        builder = TableBuilder(source, target, where="dict", phrases=phrases)  # type: ignore[arg-type]
        for word, translations in entries.items():
            for translation, weight in translations.items():
                if not isinstance(word, str) or not isinstance(translation, str):
                    builder.bad(f"expected two words, found {word!r} and {translation!r}")
                elif isinstance(weight, bool) or not isinstance(weight, Real):
                    builder.bad(f"expected a number as the weight of {word!r} -> {translation!r}, found {weight!r}")
                else:
                    builder.add(word, translation, float(weight))
        return builder.table(weights, meta)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        source: Analyzer | str,
        target: Analyzer | str,
        *,
        columns: tuple[str, str, str | None] = ("source", "target", "prob"),
        weights: Weights = "probability",
        phrases: str = "drop",
        on_error: str = "raise",
        where: str = "frame",
        meta: Mapping[str, Any] | None = None,
    ) -> TranslationTable:
        """Makes a table of a frame with a column each for source word, target word and weight.

        Args:
            frame: The entries.
            source: Source language code or analyzer.
            target: Target language code or analyzer.
            columns: Names of the three columns; ``None`` for the last one means uniform weights.
            weights: What the last column means, see :meth:`from_dict`.
            phrases: ``"drop"`` or ``"split"`` targets of several words.
            on_error: ``"raise"`` or ``"skip"`` malformed rows.
            where: What messages call the frame.
            meta: Provenance.

        Raises:
            TableFormatError: If a column is missing, a cell is not a word or number, or probabilities are impossible.
        """
        builder = TableBuilder(source, target, where=where, phrases=phrases, on_error=on_error)  # type: ignore[arg-type]
        builder.add_frame(frame, columns)
        return builder.table(weights if columns[2] else "uniform", meta)

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], source: Analyzer | str, target: Analyzer | str, **options: Any
    ) -> TranslationTable:
        """Reads a table from a file of another program: see :func:`pyterrier_mart.translation.formats.read`."""
        from pyterrier_mart.translation import formats

        return formats.read(path, source, target, **options)

    def write(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Writes the table as a file for another program: see :func:`pyterrier_mart.translation.formats.write`."""
        from pyterrier_mart.translation import formats

        formats.write(self, path, **options)

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, str]], source: Analyzer | str, target: Analyzer | str, **options: Any
    ) -> TranslationTable:
        """Learns P(target | source) from sentence pairs: see :func:`pyterrier_mart.translation.align.train`."""
        from pyterrier_mart.translation import align

        return align.train(pairs, source, target, **options)[0]

    @classmethod
    def train_both(
        cls, pairs: Iterable[tuple[str, str]], source: Analyzer | str, target: Analyzer | str, **options: Any
    ) -> tuple[TranslationTable, TranslationTable]:
        """Learns P(target | source) and P(source | target) from one alignment: see :meth:`train`."""
        from pyterrier_mart.translation import align

        return align.train(pairs, source, target, **options)

    # --- what it is -------------------------------------------------------------------------------------------

    @property
    def meta(self) -> Mapping[str, Any]:
        """What ``pt_meta.json`` says: languages, analyzers, provenance, licence, fingerprint."""
        return MappingProxyType(self._meta)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source.lang, self.target.lang

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the languages, analyzers, words and probabilities (not of the provenance)."""
        return str(self._meta["fingerprint"])

    def verify(self) -> None:
        """Reads the whole table and compares it with its fingerprint.

        Raises:
            ValueError: If they differ: the files were damaged or changed.
        """
        found = storage.fingerprint(self._arrays(), self._meta)
        if found != self.fingerprint:
            raise ValueError(f"damaged {self!r}: its content has the fingerprint {found}, expected {self.fingerprint}")

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.probs)

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, TranslationTable) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        where = f", {str(self.path)!r}" if isinstance(self.path, Path) else ""
        return f"TranslationTable({'-'.join(self.languages)}, {len(self):,} entries{where})"

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.path, Path):
            return TranslationTable, (str(self.path.absolute()),)
        arrays = {name: np.array(array) for name, array in self._arrays().items()}
        return TranslationTable._in_memory, (arrays, self._meta, "pickled")

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "source_text": self.source_words.text, "source_offsets": self.source_words.offsets,
            "target_text": self.target_words.text, "target_offsets": self.target_words.offsets,
            "rows": self.rows, "columns": self.columns, "probs": self.probs,
        }  # fmt: skip

    # --- looking up -------------------------------------------------------------------------------------------

    def source_id(self, word: str) -> int:
        """Returns the number of a source word, or -1. A word that is not in normal form is analysed first."""
        return _find(self.source_words, self.source, word)

    def target_id(self, word: str) -> int:
        """Returns the number of a target word, or -1. A word that is not in normal form is analysed first."""
        return _find(self.target_words, self.target, word)

    def translations(self, word: str, top_k: int | None = None, threshold: float = 0.0) -> dict[str, float]:
        """Returns the translations of a word and their probabilities, the best first; none for an unknown word.

        Args:
            word: A source word.
            top_k: At most so many; ``None`` for all.
            threshold: Only those of at least this probability.
        """
        i = self.source_id(word)
        if i < 0:
            return {}
        start, end = int(self.rows[i]), int(self.rows[i + 1])
        if top_k is not None:
            end = min(end, start + _natural("top_k", top_k))
        probs = self.probs[start:end]
        end = start + int(np.count_nonzero(probs >= np.float32(threshold)))  # the first ones, as rows are sorted
        found = zip(self.columns[start:end].tolist(), self.probs[start:end].tolist(), strict=True)
        return {self.target_words[column]: prob for column, prob in found}

    def prob(self, target: str, source: str) -> float:
        """Returns P(target | source), 0 where the table has no entry."""
        i, j = self.source_id(source), self.target_id(target)
        if i < 0 or j < 0:
            return 0.0
        at = np.flatnonzero(self.columns[self.rows[i] : self.rows[i + 1]] == j)
        return float(self.probs[self.rows[i] + at[0]]) if len(at) else 0.0

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.source_id(word) >= 0

    def coverage(self, words: Iterable[str]) -> float:
        """Returns the share of the given source words that the table knows (repeated words count repeatedly).

        No words at all are covered fully.
        """
        counts = Counter(words)
        known = sum(n for word, n in counts.items() if word in self)
        return known / counts.total() if counts else 1.0

    def to_frame(self) -> pd.DataFrame:
        """Returns the entries as a frame: ``source``, ``target``, ``prob``."""
        s_words, t_words = np.array(self.source_words[:], dtype=object), np.array(self.target_words[:], dtype=object)
        return pd.DataFrame(
            {"source": s_words[self._row_numbers()], "target": t_words[self.columns], "prob": np.array(self.probs)}
        )

    def entries(self) -> Iterator[tuple[str, str, float]]:
        """Yields (source, target, probability) in order, without building a frame of them."""
        targets = self.target_words[:]
        for i, word in enumerate(self.source_words):
            row = slice(self.rows[i], self.rows[i + 1])
            for j, prob in zip(self.columns[row].tolist(), self.probs[row].tolist(), strict=True):
                yield word, targets[j], prob

    def _row_numbers(self) -> npt.NDArray[np.int64]:
        return np.repeat(np.arange(len(self.source_words)), np.diff(self.rows))

    # --- new tables of old ones -------------------------------------------------------------------------------

    def prune(
        self,
        *,
        top_k: int | None = None,
        threshold: float = 0.0,
        cumulative: float | None = None,
        renormalize: bool = False,
    ) -> TranslationTable:
        """Returns a table of the surest translations.

        Args:
            top_k: Keep at most so many translations of a word.
            threshold: Keep those of at least this probability.
            cumulative: Keep the best ones up to and including the one with which their sum reaches this share
                of the row's sum (as probabilistic structured queries do).
            renormalize: Make the kept probabilities of each word sum to 1.
        """
        nth = np.arange(len(self)) - self.rows[:-1].repeat(np.diff(self.rows))
        threshold = float(threshold)
        keep = np.asarray(self.probs >= np.float32(threshold))
        if top_k is not None:
            top_k = _natural("top_k", top_k)
            keep &= nth < top_k
        if cumulative is not None:
            if not 0 < cumulative <= 1:
                raise ValueError(f"cumulative must be in (0, 1], not {cumulative!r}")
            cumulative = float(cumulative)
            total = np.cumsum(self.probs, dtype=np.float64)
            before = total - self.probs  # sum of all entries before this one
            start = before[self.rows[:-1]].repeat(np.diff(self.rows))
            keep &= (nth == 0) | (before - start < cumulative * self._row_sums()[self._row_numbers()] - 1e-9)
        note = {"top_k": top_k, "threshold": threshold or None, "cumulative": cumulative}
        pruned = {key: value for key, value in note.items() if value is not None}
        return self._derive(
            self._row_numbers()[keep],
            self.columns[keep].astype(np.int64),
            self.probs[keep].astype(np.float64),
            weights="count" if renormalize else "probability",
            pruned=[*self._meta.get("pruned", []), pruned],
        )

    def normalize(self) -> TranslationTable:
        """Returns a table in which the probabilities of each source word sum to 1."""
        return self.prune(renormalize=True)

    def invert(self, prior: Mapping[str, float] | None = None) -> TranslationTable:
        """Returns P(source | target) by Bayes' rule.

        Args:
            prior: P(source word) or counts; words that it lacks are left out. ``None``: all source words alike. Where
                you have the sentence pairs, :meth:`train_both` gives both directions as they were observed.

        Raises:
            ValueError: If the prior of a word is not a finite number >= 0.
        """
        s = self._row_numbers()
        w = np.asarray(self.probs, dtype=np.float64)
        if prior is not None:
            priors = np.array([float(prior.get(word, 0.0)) for word in self.source_words])
            if len(wrong := np.flatnonzero(~((priors >= 0) & (priors < float("inf"))))):
                raise ValueError(
                    f"the prior of {self.source_words[wrong[0]]!r} is {priors[wrong[0]]}, expected a finite number >= 0"
                )
            w = w * priors[s]
        return self._derive(
            self.columns.astype(np.int64), s, w, weights="count", swap=True, inverted_from=self.fingerprint
        )

    def interpolate(self, *others: TranslationTable, weights: Sequence[float] | None = None) -> TranslationTable:
        """Returns the weighted mean of this table and others of the same languages and analyzers.

        A source word that some tables lack is averaged over those that have it, so a small, good table is not
        drowned by silence elsewhere.

        Args:
            others: The other tables.
            weights: A positive weight for each table, this one first; ``None``: all alike.

        Raises:
            ValueError: If languages or analyzers differ, or the weights do not fit.
        """
        shares = [1.0] * (1 + len(others)) if weights is None else [float(weight) for weight in weights]
        if len(shares) != 1 + len(others) or not all(0 < share < float("inf") for share in shares):
            raise ValueError(f"weights must be {1 + len(others)} positive numbers, one for each table, not {weights!r}")
        self._check_same_words(*others)
        return _mix([self, *others], shares)

    def backfill(self, other: TranslationTable) -> TranslationTable:
        """Returns this table with the rows of another for the source words that this one lacks.

        For a dictionary beside a table learned from text: the text knows how often a word is translated how, the
        dictionary knows words that did not occur.

        Raises:
            ValueError: If languages or analyzers differ.
        """
        self._check_same_words(other)
        return _mix([self, other], [1.0, 1.0], first_only=True)

    def _check_same_words(self, *others: TranslationTable) -> None:
        for other in others:
            if (other.source.spec, other.target.spec) != (self.source.spec, self.target.spec):
                raise ValueError(
                    f"cannot combine {self!r} with {other!r}: the analyzers differ "
                    f"({self.source.spec}, {self.target.spec} and {other.source.spec}, {other.target.spec})"
                )

    def with_meta(self, **meta: Any) -> TranslationTable:
        """Returns the same table with more provenance, such as ``source=`` and ``licence=`` (JSON values).

        Raises:
            ValueError: If a name belongs to the table itself, such as ``languages`` or ``fingerprint``.
        """
        return TranslationTable._in_memory(self._arrays(), {**self._meta, **_provenance(meta)}, "in memory")

    def _derive(
        self,
        s: npt.NDArray[np.int64],
        t: npt.NDArray[np.int64],
        w: npt.NDArray[np.float64],
        *,
        weights: Weights,
        swap: bool = False,
        **meta: Any,
    ) -> TranslationTable:
        """A table of entries over this table's vocabularies, with its provenance and what was done to it."""
        sides = [(self.source_words[:], self.source), (self.target_words[:], self.target)]
        (s_words, source), (t_words, target) = reversed(sides) if swap else sides
        kept = {key: value for key, value in self._meta.items() if key not in _OWN_META}
        return TranslationTable._from_entries(
            s_words, t_words, s, t, w, weights=weights, source=source, target=target, meta={**kept, **meta}
        )

    def _row_sums(self) -> npt.NDArray[np.float64]:
        sums = np.bincount(self._row_numbers(), weights=self.probs, minlength=len(self.source_words))
        return sums.astype(np.float64)

    # --- files ------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> TranslationTable:
        """Writes the table as a directory and returns the table opened from there.

        The directory appears only when it is complete.

        Raises:
            FileExistsError: If the path exists and ``overwrite`` is false, or if it holds something else than a
                table.
            OSError: If it cannot be written.
        """
        with atomic_directory(path, overwrite=overwrite, marker=META, files=storage.FILES) as tmp:
            storage.write(self._arrays(), self._meta, tmp)
        return TranslationTable(path)

    def build_package(self, package_path: str | None = None, **options: Any) -> str:  # noqa: D417
        """Packs the table as one file for sharing; :meth:`to_hf` and its like call this.

        Args:
            package_path: The file to write. ``None``: that of the table with the ending ``.tar.lz4``.

        Raises:
            ValueError: If the table is in memory and no path is given.
        """
        if isinstance(self.path, Path):
            return str(super().build_package(package_path, **options))
        if package_path is None:
            raise ValueError(f"{self!r} is in memory: name a package_path, or save() it before")
        with tempfile.TemporaryDirectory() as directory:  # PyTerrier packs directories only
            return self.save(Path(directory) / "table").build_package(package_path, **options)


def _mix(tables: list[TranslationTable], shares: list[float], first_only: bool = False) -> TranslationTable:
    """The weighted mean of tables; each source word is averaged over the tables (or the first) that have it."""
    s_words = sorted({word for table in tables for word in table.source_words})
    t_words = sorted({word for table in tables for word in table.target_words})
    s_number = {word: i for i, word in enumerate(s_words)}
    t_number = {word: i for i, word in enumerate(t_words)}
    known = np.zeros(len(s_words))
    largest = max(shares)  # sums of weights as they are may be infinite
    parts = []
    for table, share in zip(tables, shares, strict=True):
        s_ids = np.array([s_number[word] for word in table.source_words], dtype=np.int64)
        t_ids = np.array([t_number[word] for word in table.target_words], dtype=np.int64)
        share_of = np.where((known[s_ids] > 0) & first_only, 0.0, max(share / largest, _LEAST_SHARE))
        known[s_ids] += share_of
        rows = table._row_numbers()
        parts.append((s_ids[rows], t_ids[table.columns], share_of[rows] * table.probs.astype(np.float64)))
    s, t, w = (np.concatenate(column) for column in zip(*parts, strict=True))
    mixed = [
        {"weight": share, "fingerprint": table.fingerprint, "source": table.meta.get("source")}
        for table, share in zip(tables, shares, strict=True)
    ]
    return TranslationTable._from_entries(
        s_words, t_words, s, t, w / known[s],
        weights="probability", source=tables[0].source, target=tables[0].target,
        meta={"backfilled" if first_only else "interpolated": mixed},
    )  # fmt: skip


def _load_bundled(name: str) -> TranslationTable:
    packed = resources.files(__package__).joinpath("data").joinpath(name + BUNDLED_SUFFIX).read_bytes()
    return TranslationTable._in_memory(*storage.unpack(packed), f"bundled {name}")


def _provenance(meta: Mapping[str, Any]) -> dict[str, Any]:
    r"""Checks metadata that a caller adds, and returns them as they will be read from the file.

    Bytes that are not UTF-8, as in names of files, become escapes such as ``\xe9``.
    """
    if clash := sorted(meta.keys() & _OWN_META):
        raise ValueError(f"{', '.join(clash)} cannot be set: the table itself determines it")
    try:
        text = json.dumps(dict(meta), ensure_ascii=False, allow_nan=False)
        text = _UNDECODED.sub(lambda found: f"\\\\x{ord(found[0]) & 0xFF:02x}", text)
        text.encode("utf-8")
        return dict(json.loads(text))
    except (TypeError, ValueError) as err:
        raise ValueError(f"metadata must be JSON values, not {dict(meta)!r} ({err})") from err


def _direction(name: str) -> str:
    """Brings ``deu-eng`` into the form ``de-en``; leaves what is not a pair of languages as it is."""
    try:
        return "-".join(map(language_code, name.split("-")))
    except ValueError:
        return name


def _find(words: Vocabulary, analyzer: Analyzer, word: str) -> int:
    i = words.find(word)
    if i < 0:
        analysed = analyzer.tokens(word)
        if len(analysed) == 1 and analysed[0] != word:
            i = words.find(analysed[0])
    return i


def _natural(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")
    return int(value)
