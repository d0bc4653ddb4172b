"""What tests with search engines share: which engines can run here, and a table to translate queries with."""

import os
import shutil
from collections import Counter
from functools import cache

import pyterrier as pt
import pytest

from pyterrier_mart import Analyzer, TranslationTable
from pyterrier_mart.datasets import xquad_r

# The jars that are tested. Without a pin PyTerrier would ask Maven Central for the newest ones.
os.environ.setdefault("TERRIER_VERSION", "5.11")
os.environ.setdefault("TERRIER_HELPER_VERSION", "0.0.8")

# Where everything is tested a missing JVM must be an error.
_no_java = not (shutil.which("java") or os.environ.get("JAVA_HOME") or os.environ.get("CI"))
needs_java = pytest.mark.skipif(_no_java, reason="Terrier needs Java 11 or newer, which is not installed")

ENGINES = ["pisa", pytest.param("terrier", marks=needs_java)]


def start_java():
    """Starts the JVM, which may fetch Terrier's jars the first time."""
    if not pt.java.started():
        pt.java.init()


@cache
def question_table(source: str, target: str) -> TranslationTable:
    """A table of the words that stand together in parallel questions of XQuAD-R, by their Dice coefficients.

    It is good enough to find things and has many weights of all sizes; nothing else is claimed.
    """
    sides = [
        [set(Analyzer(lang).tokens(question.text)) for question in xquad_r.load(lang).questions]
        for lang in (source, target)
    ]
    alone = [Counter(word for words in side for word in words) for side in sides]
    together = Counter((s, t) for ss, ts in zip(*sides, strict=True) for s in ss for t in ts)
    entries: dict[str, dict[str, float]] = {}
    for (s, t), n in together.items():
        entries.setdefault(s, {})[t] = (2 * n / (alone[0][s] + alone[1][t])) ** 2
    return TranslationTable.from_dict(entries, source, target, weights="count").prune(top_k=8)
