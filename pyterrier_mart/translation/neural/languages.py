"""How translation models call languages: tokens in their vocabularies, which differ from family to family."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pyterrier_mart.text import LANGUAGES, language_of

__all__ = ["FAMILIES", "Direction", "direction", "iso_code"]

#: What the tokens of languages look like, by the ``model_type`` of a model's configuration.
FAMILIES: dict[str, tuple[re.Pattern[str], ...]] = {
    "marian": (re.compile(r">>([a-z]{2,3}(?:_[A-Z][a-z]{3})?)<<"),),
    "m2m_100": (re.compile(r"__([a-z]{2,3})__"), re.compile(r"([a-z]{3}_[A-Z][a-z]{3})")),  # M2M100's, NLLB's
    "t5": (re.compile(r"<2([a-z]{2,3}(?:_[A-Z][a-z]{3})?)>"),),  # MADLAD's
}


class Direction(NamedTuple):
    """How a model is told what to translate into what.

    Attributes:
        prefix: What stands before each sentence.
        source: What the tokenizer's ``src_lang`` is set to; ``None`` where it has none.
        forced: The token that each translation begins with; ``None`` for none.
    """

    prefix: str = ""
    source: str | None = None
    forced: str | None = None


def iso_code(language: str) -> str:
    """Returns the ISO 639-1 code of a language that a model may call otherwise, such as ``"zho_Hant"``."""
    return language_of(language.partition("_")[0]) or language


def direction(model: str, family: str, tokenizer: Any, source: str, target: str) -> Direction:
    """Returns how a model is told to translate from one language to another.

    A language is named by its ISO code (``"de"``, ``"deu"``) or as the model calls it. Where a model has a language in
    several scripts, the ISO code means the one without a name of a script, else the first by name: ``"zh"`` is
    NLLB's ``zho_Hans``, not ``zho_Hant``.

    Args:
        model: What the model is called in messages.
        family: One of :data:`FAMILIES`.
        tokenizer: The model's tokenizer.
        source: Language of what is translated.
        target: Language of the translations.

    Raises:
        ValueError: If the model does not have one of the languages.
    """
    tokens = language_tokens(family, tokenizer)
    if family == "marian":
        check_declared(model, "from", getattr(tokenizer, "source_lang", None), source)
        if not tokens or (own_code(target, tokens) is None and is_language(tokenizer.target_lang, target)):
            check_declared(model, "to", getattr(tokenizer, "target_lang", None), target)
            return Direction()
    elif not tokens:
        raise ValueError(
            f"the vocabulary of {model} has no languages, such as <2en>, __en__ or eng_Latn; what translates is "
            "Marian, NLLB, M2M100, or MADLAD"
        )
    to = tokens[found(model, target, tokens)]
    if family == "m2m_100":
        code = found(model, source, tokens)
        return Direction(source=code, forced=to)
    return Direction(prefix=f"{to} ")


def language_tokens(family: str, tokenizer: Any) -> dict[str, str]:
    """Returns the tokens of languages in a vocabulary, by what the model calls the language."""
    # M2M100's are not in its vocabulary.
    known = {*tokenizer.get_vocab(), *getattr(tokenizer, "lang_token_to_id", ())}
    for pattern in FAMILIES[family]:
        if tokens := {match[1]: token for token in known if (match := pattern.fullmatch(token))}:
            return tokens
    return {}


def own_code(language: str, codes: dict[str, str]) -> str | None:
    """Returns what a model calls a language; ``None`` if it does not have it."""
    if language in codes:
        return language
    wanted = iso_code(language)
    return min((code for code in codes if iso_code(code) == wanted), key=lambda code: ("_" in code, code), default=None)


def found(model: str, language: str, codes: dict[str, str]) -> str:
    """Returns what a model calls a language that it must have."""
    if (code := own_code(language, codes)) is None:
        raise ValueError(f"{model} does not have the language {language!r}; it has {', '.join(sorted(codes))}")
    return code


def is_language(declared: object, language: str) -> bool:
    """Returns whether a tokenizer's ``source_lang`` or ``target_lang`` is a language."""
    return isinstance(declared, str) and iso_code(declared) == iso_code(language)


def check_declared(model: str, side: str, declared: object, language: str) -> None:
    """Checks a language with what a tokenizer says, which may be a group of languages or nothing."""
    if isinstance(declared, str) and iso_code(declared) in LANGUAGES and not is_language(declared, language):
        raise ValueError(f"{model} translates {side} {declared}, not {side} {language}")
