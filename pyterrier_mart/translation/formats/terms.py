"""The words that a line of a printed dictionary lists."""

from __future__ import annotations

import re

__all__ = ["clean", "terms"]

# What is no part of a word: the grammar in <..> and what is glued to it (an abbreviation, a symbol), pronunciation
# /../, field [..], remark or optional part (..), reference {..}, and placeholders of objects ("etw. aufheben" is the
# entry of "aufheben").
_MARKUP = re.compile(
    r"<[^>]*>[^\s,;]*|(?<!\S)/[^/]*/(?!\S)|\[[^]]*\]|\([^)]*\)|\{[^}]*\}|(?<!\w)(?i:jd[nms]?|etw|sb|sth)\.(?:'s)?"
)
_SEPARATOR = re.compile("[,;]")
_ELLIPSIS = ("-", "…", "...")


def clean(text: str) -> str:
    """Returns a line without grammar, pronunciation, fields, remarks and references."""
    return _MARKUP.sub(" ", text)


def terms(text: str) -> set[str]:
    """Returns what a line lists, separated by commas and semicolons."""
    parts = map(str.strip, _SEPARATOR.split(clean(text)))
    # "Haus…" and "-förmig" are parts of compounds, not words.
    return {part for part in parts if part and not part.startswith(_ELLIPSIS) and not part.endswith(_ELLIPSIS)}
