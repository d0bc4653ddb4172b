"""Translations that are kept on disk: what was translated once is not translated again."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from pyterrier_mart.translation.neural.model import Hypothesis

__all__ = ["TranslationCache"]


class TranslationCache:
    """An SQLite file of sentences' translations, as JSON, so that reading it runs nothing.

    Each translation is found by its sentence and everything that it depends on, so that one file serves many models.
    What is damaged counts as missing. Several processes can share a file.

    Args:
        path: The file. It is made when it is first needed.
        settings: Everything but the sentence that a translation depends on.
    """

    def __init__(self, path: str | os.PathLike[str], settings: str):
        self.path, self.settings = os.fspath(path), settings.encode()

    def find(self, sentences: Iterable[str]) -> dict[str, list[Hypothesis]]:
        """Returns the translations of those sentences that are there."""
        found = {}
        with self.opened() as db:
            for sentence in sentences:
                key = self.key(sentence)
                row = db.execute("SELECT value, digest FROM translations WHERE key = ?", [key]).fetchone()
                if row is not None and row[1] == digest(key, row[0]):
                    found[sentence] = [Hypothesis(text, weight) for text, weight in json.loads(row[0])]
        return found

    def add(self, translations: Mapping[str, Sequence[Hypothesis]]) -> None:
        """Keeps translations; they are safe on disk when this returns."""
        rows = []
        for sentence, hypotheses in translations.items():
            key, value = self.key(sentence), json.dumps(hypotheses, ensure_ascii=False)
            rows.append((key, value, digest(key, value)))
        with self.opened() as db:
            db.executemany("INSERT OR REPLACE INTO translations VALUES (?, ?, ?)", rows)

    def key(self, sentence: str) -> bytes:
        """Returns what a sentence is found by."""
        return hashlib.blake2b(sentence.encode(), key=hashlib.sha256(self.settings).digest(), digest_size=16).digest()

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Opens the file for one transaction.

        Raises:
            FileNotFoundError: If its folder does not exist.
            ValueError: If it is something else, or damaged.
        """
        if not os.path.isdir(os.path.dirname(self.path)):
            raise FileNotFoundError(f"the folder of the cache {self.path} does not exist")
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as db, db:
                db.execute("CREATE TABLE IF NOT EXISTS translations (key BLOB PRIMARY KEY, value TEXT, digest BLOB)")
                yield db
        except sqlite3.Error as err:
            raise ValueError(
                f"cannot use {self.path} as a cache of translations ({err}); if it is damaged, delete it"
            ) from err


def digest(key: bytes, value: object) -> bytes:
    """Returns what shows whether a row is as it was written."""
    return hashlib.blake2b(key + str(value).encode(errors="replace"), digest_size=8).digest()
