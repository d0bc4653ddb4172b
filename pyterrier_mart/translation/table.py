"""TranslationTable: P(target word | source word), sparse, immutable, mapped from disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyterrier as pt

from pyterrier_mart.artifact import META
from pyterrier_mart.files import atomic_directory
from pyterrier_mart.frames import warn
from pyterrier_mart.text import Analyzer
from pyterrier_mart.translation import align, formats, operations, storage
from pyterrier_mart.translation.builder import EntryBuilder, Phrases
from pyterrier_mart.translation.entries import Entries, Weights
from pyterrier_mart.translation.matrix import WordMatrix, check_same_words
from pyterrier_mart.translation.vocabulary import Vocabulary

__all__ = ["TranslationTable"]


class TranslationTable(WordMatrix, pt.Artifact):
    """Word translation probabilities P(target | source), one row of translations a source word.

    Words are in the normal form of the table's analyzers. Tables never change: every operation returns a new one.
    Two tables are equal if their languages, analyzers, words and probabilities are.

    On disk a table is a directory of plain arrays and ``pt_meta.json``. Opening it maps the arrays into memory and
    compares samples with checksums; :meth:`verify` reads all. It is shared by ``to_hf``, ``from_hf``, ``from_url``.

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

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(Path(path).absolute())  # wherever the process goes
        self._set(*storage.open_directory(Path(path)), where=str(path))

    # --- construction -----------------------------------------------------------------------------------------

    def _set(self, arrays: Mapping[str, npt.NDArray[Any]], meta: dict[str, Any], where: str) -> None:
        storage.check(arrays, meta, where)
        try:
            self.source, self.target = (Analyzer.from_spec(meta["analyzers"][side]) for side in ("source", "target"))
        except (AttributeError, KeyError, TypeError, ValueError) as err:
            raise ValueError(
                f"cannot use the translation table {where}: its analyzers are {meta['analyzers']!r} ({err})"
            ) from err
        self.source_words = Vocabulary(arrays["source_text"], arrays["source_offsets"], where)
        self.target_words = Vocabulary(arrays["target_text"], arrays["target_offsets"], where)
        self.rows, self.columns, self.probs = arrays["rows"], arrays["columns"], arrays["probs"]
        for array in arrays.values():
            array.flags.writeable = False
        self._meta = meta

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, npt.NDArray[Any]], meta: dict[str, Any], where: str = "in memory"
    ) -> TranslationTable:
        """Makes a table of what :func:`pyterrier_mart.translation.storage.unpack` returns, without copying it."""
        table = cls.__new__(cls)
        pt.Artifact.__init__(table, pt.Artifact.NO_PATH)
        table._set(arrays, meta, where)
        return table

    @classmethod
    def from_entries(cls, entries: Entries) -> TranslationTable:
        """Makes a table of entries; equal pairs are summed, and words without an entry are left out."""
        return cls.from_arrays(*storage.from_entries(entries))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TranslationTable:  # type: ignore[override]
        """Opens a table directory, or one of the bundled tables by the name of its direction.

        Args:
            path: A directory, or a direction such as ``"de-en"`` (see :meth:`bundled`). A directory of that name in
                the working directory comes first. A direction such as ``"de-fr"``, of which only the halves to and
                from English are bundled, is composed of them (:meth:`compose`), with a warning.

        Raises:
            FileNotFoundError: If there is neither such a directory nor such a bundled table, nor its halves.
            ValueError: If the directory is not a translation table or is damaged.
        """
        if os.fspath(path) and Path(path).exists():  # Path("") is the working directory
            return cls(path)
        parts = storage.bundled_parts(os.fspath(path))
        if not parts:
            raise FileNotFoundError(
                f"no translation table at {os.fspath(path)!r}; expected a directory written by TranslationTable.save, "
                f"two languages with tables to and from English, or a bundled direction: {', '.join(cls.bundled())}"
            )
        if len(parts) > 1:
            warn(f"{os.fspath(path)} is composed of {' and '.join(parts)}: less precise than a table of its own")
        return reduce(cls.compose, (cls.from_arrays(*storage.read_bundled(p), f"bundled {p}") for p in parts))

    @classmethod
    def bundled(cls) -> list[str]:
        """Returns the directions of the tables that come with the package."""
        return storage.bundled()

    @classmethod
    def from_dict(
        cls, entries: Mapping[str, Mapping[str, float]], source: Analyzer | str, target: Analyzer | str, *,
        weights: Weights = "probability", phrases: Phrases = "drop", meta: Mapping[str, Any] | None = None,
    ) -> TranslationTable:  # fmt: skip
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
        builder = EntryBuilder(source, target, where="dict", phrases=phrases)
        builder.add_values((word, other, weight) for word, row in entries.items() for other, weight in row.items())
        return cls.from_entries(builder.entries(weights, meta))

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, source: Analyzer | str, target: Analyzer | str, *,
        columns: tuple[str, str, str | None] = ("source", "target", "prob"), weights: Weights = "probability",
        phrases: Phrases = "drop", on_error: Literal["raise", "skip"] = "raise", where: str = "frame",
        meta: Mapping[str, Any] | None = None,
    ) -> TranslationTable:  # fmt: skip
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
        builder = EntryBuilder(source, target, where=where, phrases=phrases, on_error=on_error)
        builder.add_frame(frame, columns)
        return cls.from_entries(builder.entries(weights if columns[2] else "uniform", meta))

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], source: Analyzer | str, target: Analyzer | str, **options: Any
    ) -> TranslationTable:
        """Reads a table from a file of another program: see :func:`pyterrier_mart.translation.formats.read`."""
        return cls.from_entries(formats.read(path, source, target, **options))

    @classmethod
    def read_vectors(
        cls, source_vec: str | os.PathLike[str], target_vec: str | os.PathLike[str], source: Analyzer | str,
        target: Analyzer | str, **options: Any,
    ) -> TranslationTable:  # fmt: skip
        """Makes a table of aligned word vectors: see :func:`pyterrier_mart.translation.formats.read_vectors`."""
        return cls.from_entries(formats.read_vectors(source_vec, target_vec, source, target, **options))

    def write(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Writes the table as a file for another program: see :func:`pyterrier_mart.translation.formats.write`."""
        formats.write(self, path, **options)

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, str]], source: Analyzer | str, target: Analyzer | str, **options: Any
    ) -> TranslationTable:
        """Learns P(target | source) from sentence pairs: see :func:`pyterrier_mart.translation.align.train`."""
        return cls.train_both(pairs, source, target, **options)[0]

    @classmethod
    def train_both(
        cls,
        pairs: Iterable[tuple[str, str]],
        source: Analyzer | str,
        target: Analyzer | str,
        *,
        top_k: int | None = None,
        **options: Any,
    ) -> tuple[TranslationTable, TranslationTable]:
        """Learns P(target | source) and P(source | target) from one alignment.

        Args:
            pairs: Sentences (source, target).
            source: Source language code or analyzer.
            target: Target language code or analyzer.
            top_k: Maximum number of translations of a word; they sum to 1 before the others are cut, not after.
            options: Those of :func:`pyterrier_mart.translation.align.train`, which says what it raises.
        """
        forward, backward = map(cls.from_entries, align.train(pairs, source, target, **options))
        return (forward, backward) if top_k is None else (forward.prune(top_k=top_k), backward.prune(top_k=top_k))

    # --- what it is -------------------------------------------------------------------------------------------

    @property
    def meta(self) -> Mapping[str, Any]:
        """What ``pt_meta.json`` says: languages, analyzers, provenance, licence, fingerprint."""
        return MappingProxyType(self._meta)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the languages, analyzers, words and probabilities (not of the provenance)."""
        return str(self._meta["fingerprint"])

    def verify(self) -> None:
        """Reads the whole table and compares it with its fingerprint.

        Raises:
            ValueError: If they differ: the files were damaged or changed.
        """
        found = storage.fingerprint(self.arrays, self._meta)
        if found != self.fingerprint:
            raise ValueError(f"damaged {self!r}: its content has the fingerprint {found}, expected {self.fingerprint}")

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
        arrays = {name: np.array(array) for name, array in self.arrays.items()}
        return TranslationTable.from_arrays, (arrays, self._meta, "pickled")

    def as_entries(self) -> Entries:
        """Returns the entries as arrays, which :meth:`from_entries` makes the same table of."""
        return Entries(
            self.source, self.target, self.source_words[:], self.target_words[:], self.row_numbers,
            self.columns.astype(np.int64), self.probs.astype(np.float64),
            meta={key: value for key, value in self._meta.items() if key not in storage.OWN_META},
        )  # fmt: skip

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
            top_k: Maximum number of translations of a word.
            threshold: Keep those of at least this probability.
            cumulative: Keep the best ones up to and including the one with which their sum reaches this share
                of the row's sum (as probabilistic structured queries do).
            renormalize: Make the kept probabilities of each word sum to 1.
        """
        kept = operations.prune(self.as_entries(), top_k, threshold, cumulative, renormalize)
        return TranslationTable.from_entries(kept)

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
        inverted = TranslationTable.from_entries(operations.invert(self.as_entries(), prior))
        return inverted.with_meta(inverted_from=self.fingerprint)

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
        tables = (self, *others)
        shares = [1.0] * len(tables) if weights is None else [float(weight) for weight in weights]
        if len(shares) != len(tables) or not all(0 < share < float("inf") for share in shares):
            raise ValueError(f"weights must be {len(tables)} positive numbers, one for each table, not {weights!r}")
        check_same_words(self, *others)
        mixed = TranslationTable.from_entries(operations.mix([table.as_entries() for table in tables], shares))
        return mixed.with_meta(interpolated=operations.described([table.meta for table in tables], shares))

    def backfill(self, other: TranslationTable) -> TranslationTable:
        """Returns this table with the rows of another for the source words that this one lacks.

        For a dictionary beside a table learned from text: the text knows how often a word is translated how, the
        dictionary knows words that did not occur.

        Raises:
            ValueError: If languages or analyzers differ.
        """
        check_same_words(self, other)
        shares = (1.0, 1.0)
        filled = operations.mix([self.as_entries(), other.as_entries()], shares, first_only=True)
        made = TranslationTable.from_entries(filled)
        return made.with_meta(backfilled=operations.described((self.meta, other.meta), shares))

    def compose(self, other: TranslationTable, *, top_k: int | None = 10, threshold: float = 0.001) -> TranslationTable:
        """Returns P(target | source) through the words of a language between: de-en and en-fr make de-fr.

        This is the product of both tables (triangulation of Wu and Wang 2007, of words). What this one gives to words
        that the other one lacks is lost, so that rows may sum to less than 1.

        Args:
            other: A table from this one's target language, with the same rules for words.
            top_k: Maximum number of translations of a word; ``None`` for all.
            threshold: Keep those of at least this probability.

        Raises:
            ValueError: If the words between are not spelled alike, or ``top_k`` is out of range.
        """
        if (found := self.target.spec) != (expected := other.source.spec):
            raise ValueError(f"cannot compose {self!r} with {other!r}: one is into {found}, the other from {expected}")
        product = TranslationTable.from_entries(operations.compose(self.as_entries(), other.as_entries()))
        return product.prune(top_k=top_k, threshold=threshold).with_meta(**operations.composed(self.meta, other.meta))

    def with_meta(self, **meta: Any) -> TranslationTable:
        """Returns the same table with more provenance, such as ``source=`` and ``licence=`` (JSON values).

        Raises:
            ValueError: If a name belongs to the table itself, such as ``languages`` or ``fingerprint``.
        """
        return TranslationTable.from_arrays(self.arrays, {**self._meta, **storage.provenance(meta)})

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
            storage.write(self.arrays, self._meta, tmp)
        return TranslationTable(path)

    def build_package(self, package_path: str | None = None, **options: Any) -> str:  # noqa: D417
        """Packs the table as one file for sharing; :meth:`to_hf` and its like call this.

        Args:
            package_path: The file to write. ``None``: that of the table with the ending ``.tar.lz4``, or, for a table
                in memory, the direction with that ending.
        """
        if isinstance(self.path, Path):
            return str(super().build_package(package_path, **options))
        with tempfile.TemporaryDirectory() as directory:  # PyTerrier packs directories only
            saved = self.save(Path(directory) / "table")
            return saved.build_package(package_path or f"{self._meta['direction']}.tar.lz4", **options)
