"""Texts as sentences, which is what translation models are trained on, and long sentences in parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

__all__ = ["parts", "sentences"]

#: Where a sentence may end: at full stops after a word, year, bracket or quotation mark (not after initials, ordinals
#: and titles: one letter, one or two digits, Dr and Mr), at other marks before white space, at those of Chinese, and at
#: the end of a line. Thai has no marks: what is too long is split at spaces.
_END = re.compile(
    r"[。！？]+[」』”）]*\s*"
    r"|(?:[!?…؟۔।॥]+|(?:(?<=[^\W\d_A-Z][^\W\d_])|(?<=\d{3})|(?<=[%)\]»”\"]))\.+)[\"'»«”“’‘)\]]*\s+"
    r"|\s*\n\s*"
)
_SPACE = re.compile(r"\s+")


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yields the sentences of a text, each with the white space that follows it; nothing else is left out."""
    start = 0
    for match in _END.finditer(text):
        end = match.end()
        if "\n" not in match[0] and text[end : end + 1].islower():  # after an abbreviation
            continue
        if sentence := text[start:end].strip():
            yield sentence, match[0][len(match[0].rstrip()) :] or " "
        start = end
    if rest := text[start:].strip():
        yield rest, ""


def parts(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """Returns a sentence in parts that fit, split in halves between words where there are several."""
    if len(sentence) < 2 or fits(sentence):
        return [sentence]
    middle = len(sentence) // 2
    cut = min((match.start() for match in _SPACE.finditer(sentence)), key=lambda at: abs(at - middle), default=middle)
    return [*parts(sentence[:cut].rstrip(), fits), *parts(sentence[cut:].lstrip(), fits)]
