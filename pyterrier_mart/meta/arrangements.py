"""Which languages support and query sets are in: the transfer modes of the MAML-Align paper (Table 4)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

__all__ = ["SPLITS", "TRANSFER_MODES", "Arrangement", "TransferPath", "parse_arrangements", "transfer_paths"]

SPLITS = ("train", "valid", "test")


class Arrangement(NamedTuple):
    """The languages of one set of a meta-task.

    Attributes:
        question_lang: Language of the questions.
        doc_langs: Languages of the candidates. Each question has one row for each of them.
    """

    question_lang: str
    doc_langs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.question_lang}_{','.join(self.doc_langs)}"


#: The arrangements of the support set, the query set, and perhaps the second query set of a meta-task.
TransferPath: TypeAlias = tuple[Arrangement, ...]


def parse_arrangements(spec: str) -> tuple[TransferPath, ...]:
    """Reads transfer paths such as ``"el_el-el_ar|hi_hi-hi_de"``.

    Paths are separated by ``|`` and their sets by ``-``; a set is the language of the questions, ``_``, and the
    languages of the candidates, separated by commas.

    Raises:
        ValueError: If it cannot be read; the message names the part.
    """
    return tuple(_path(part, spec) for part in spec.split("|"))


def _path(text: str, spec: str) -> TransferPath:
    sets = tuple(_arrangement(part.strip(), spec) for part in text.split("-"))
    if len(sets) not in (2, 3):
        raise ValueError(
            f"arrangements {spec!r}: expected a support set and one or two query sets (el_el-el_ar), found {text!r}"
        )
    return sets


def _arrangement(text: str, spec: str) -> Arrangement:
    question, _, documents = text.partition("_")
    languages = tuple(documents.split(","))
    if not question.isalpha() or not all(language.isalpha() for language in languages):
        raise ValueError(
            f"arrangements {spec!r}: expected a set such as el_el or el_ar,el (question language, _, candidate "
            f"languages), found {text!r}"
        )
    if len(set(languages)) < len(languages):
        raise ValueError(f"arrangements {spec!r}: a candidate language is named twice in {text!r}")
    return Arrangement(question, languages)


_MONO_MONO = "el_el-ar_ar|hi_hi-de_de"
_MONO_BI = "el_el-el_ar|hi_hi-hi_de"
_MONO_MULTI = "el_el-el_ar,el|hi_hi-hi_de,hi"
_BI_MULTI = "el_ar-el_ar,el|hi_de-hi_de,hi"
_MIXT = "|".join((_MONO_MONO, _MONO_BI, _MONO_MULTI, _BI_MULTI))
_MONO_BI_MULTI = "el_el-el_ar-el_ar,el,hi|hi_hi-hi_de-hi_ar,de,hi"

#: The modes by name: arrangements in training, validation and testing. ``trans`` transfers in another way in each.
TRANSFER_MODES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        **{
            name: MappingProxyType(dict.fromkeys(SPLITS, spec))
            for name, spec in (
                ("mono-mono", _MONO_MONO),
                ("mono-bi", _MONO_BI),
                ("mono-multi", _MONO_MULTI),
                ("bi-multi", _BI_MULTI),
                ("mixt", _MIXT),
                ("mono-bi-multi", _MONO_BI_MULTI),
            )
        },
        "trans": MappingProxyType({"train": _MONO_BI, "valid": _BI_MULTI, "test": _MONO_MULTI}),
    }
)


def transfer_paths(transfer: str, split: str = "train") -> tuple[TransferPath, ...]:
    """Returns the transfer paths of a mode in a split, or those of a user's own arrangements.

    Args:
        transfer: One of :data:`TRANSFER_MODES`, or what :func:`parse_arrangements` reads.
        split: One of :data:`SPLITS`.

    Raises:
        ValueError: If it is neither.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
    if transfer in TRANSFER_MODES:
        return parse_arrangements(TRANSFER_MODES[transfer][split])
    if "_" not in transfer:
        raise ValueError(
            f"transfer must be one of {', '.join(TRANSFER_MODES)}, or arrangements such as 'el_el-el_ar', not "
            f"{transfer!r}"
        )
    return parse_arrangements(transfer)
