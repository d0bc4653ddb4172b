"""How fast text becomes words, next to NLTK: ``python -m benchmarks.analyzer``.

The text is the paragraphs of XQuAD-R, which come with the package. NLTK's ``word_tokenize`` is measured with
``preserve_line=True``: that is its tokeniser alone, which needs no downloaded data, and not the sentence splitter that
runs before it otherwise. It only splits, while an analyzer also folds case, compatibility forms and diacritics; the
second NLTK column lower-cases its tokens, the least that a retrieval system adds.

Needs ``pip install nltk``.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from importlib.metadata import version

from pyterrier_mart import Analyzer
from pyterrier_mart.datasets import xquad_r

_NLTK_NAMES = {"de": "german", "en": "english", "es": "spanish", "ru": "russian", "tr": "turkish"}


def paragraphs(lang: str) -> list[str]:
    """Returns the paragraphs of XQuAD-R in a language."""
    return [paragraph.context for article in xquad_r.load(lang).articles for paragraph in article.paragraphs]


def best_of(n: int, functions: list[Callable[[str], object]], texts: list[str]) -> list[float]:
    """Returns the best time in seconds that each function takes for all texts; the functions take turns."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(n):
        for function, own in zip(functions, times, strict=True):
            start = time.perf_counter()
            for text in texts:
                function(text)
            own.append(time.perf_counter() - start)
    return [min(own) for own in times]


def main() -> None:
    """Measures and prints."""
    from nltk.tokenize import word_tokenize

    parser = argparse.ArgumentParser(description="Speed of Analyzer next to NLTK's word_tokenize")
    parser.add_argument("--repeat", type=int, default=15, help="take the best of so many (default: 15)")
    parser.add_argument("languages", nargs="*", default=["en", "de"], help="default: en de")
    args = parser.parse_args()

    print(
        f"pyterrier-mart {version('pyterrier-mart')}, nltk {version('nltk')}, Python {platform.python_version()}, "
        f"{platform.machine()}, one core, best of {args.repeat}; MB of UTF-8 per second"
    )
    print(f"{'text':<22}{'tokens()':>10}{'spans()':>10}{'NLTK':>10}{'NLTK.lower':>12}{'tokens()/NLTK':>15}")
    for lang in args.languages:
        texts, analyzer = paragraphs(lang), Analyzer(lang)
        name = _NLTK_NAMES.get(lang, "english")

        def nltk(text: str, name: str = name) -> list[str]:
            return list(word_tokenize(text, language=name, preserve_line=True))

        def nltk_lower(text: str, name: str = name) -> list[str]:
            return [token.lower() for token in word_tokenize(text, language=name, preserve_line=True)]

        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        times = best_of(args.repeat, [analyzer.tokens, analyzer.spans, nltk, nltk_lower], texts)
        tokens, spans, peer, peer_lower = (megabytes / seconds for seconds in times)
        print(
            f"{f'XQuAD-R {lang}, {megabytes:.2f} MB':<22}{tokens:>10.2f}{spans:>10.2f}{peer:>10.2f}{peer_lower:>12.2f}"
            f"{tokens / peer:>14.1f}x"
        )


if __name__ == "__main__":
    main()
