"""Loading what is pretrained: no code that comes with a model is run, no hub is waited for, errors name the file."""

from __future__ import annotations

import difflib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

__all__ = ["Source", "check_modules", "is_local", "load_config", "load_tokenizer", "nearest", "reading"]

_SECONDS = 5  # that the hub may take to answer
#: Models on the hub that users mean when they mistype a name.
_ON_THE_HUB = (
    "bert-base-multilingual-cased", "bert-base-multilingual-uncased", "facebook/m2m100_418M",
    "facebook/nllb-200-distilled-600M", "google/madlad400-3b-mt", "intfloat/multilingual-e5-base",
    "intfloat/multilingual-e5-small", "sentence-transformers/LaBSE",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    "sentence-transformers/paraphrase-multilingual-mpnet-base-v2", "xlm-roberta-base", "xlm-roberta-large",
)  # fmt: skip


class Source(NamedTuple):
    """Where a model is, and how it is loaded from there.

    Attributes:
        path: What ``from_pretrained`` of transformers and ``SentenceTransformer`` take.
        local: Whether the hub is not asked: ``path`` is a directory, or the hub cannot be reached.
    """

    path: str
    local: bool

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of everything that loads a configuration, tokenizer or model."""
        # Not None, for which transformers asks at the terminal whether to run a model's code.
        return {"trust_remote_code": False, "local_files_only": self.local}

    @property
    def weights(self) -> dict[str, Any]:
        """Arguments of what loads weights; files that are not safetensors are pickles."""
        return {**self.options, "use_safetensors": True}


def is_local(name: str, names: Iterable[str], organisation: str | None = None) -> bool:
    """Asks the hub once whether there is a model.

    transformers asks a hub that cannot be reached again and again, for most of a minute.

    Args:
        name: A model on the hub.
        names: Other names that the user may have meant.
        organisation: Where names without one are looked for, too.

    Returns:
        Whether the hub cannot be reached and the model is to be loaded from the files that were downloaded earlier.

    Raises:
        FileNotFoundError: If there is no such model.
        ConnectionError: If the hub cannot be reached, and the model was not downloaded earlier.
    """
    wanted = [name] if organisation is None or "/" in name else [name, f"{organisation}/{name}"]
    meant = nearest(name, names)
    for each in wanted:
        try:
            get_hf_file_metadata(hf_hub_url(each, "config.json"), timeout=_SECONDS)
        except (EntryNotFoundError, GatedRepoError):
            pass
        except RepositoryNotFoundError:
            continue
        except Exception as err:  # of a library that huggingface_hub chooses
            if any(map(was_downloaded, wanted)):
                return True
            raise ConnectionError(
                f"there is no model {name!r} here{meant}: it is no directory and was not downloaded earlier, and "
                f"{constants.ENDPOINT} cannot be reached ({err})"
            ) from err
        return False
    raise FileNotFoundError(f"there is no model {name!r}, neither here nor at {constants.ENDPOINT}{meant}")


def was_downloaded(name: str) -> bool:
    """Returns whether files of a model on the hub are here."""
    caches = (None, os.environ.get("SENTENCE_TRANSFORMERS_HOME"))
    wanted = itertools.product(("config.json", "modules.json"), caches)
    return any(isinstance(try_to_load_from_cache(name, file, cache), str) for file, cache in wanted)


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns the question whether names like a mistyped one were meant, for the end of a sentence."""
    known = {each.casefold(): each for each in (*names, *_ON_THE_HUB)}
    found = difflib.get_close_matches(name.casefold(), known, cutoff=0.7)
    return f" (did you mean {' or '.join(known[each] for each in found)}?)" if found else ""


@contextmanager
def reading(path: str, files: str) -> Iterator[None]:
    """Makes errors of reading a model name it, what was read, and the file that is damaged; nothing else is reported.

    Args:
        path: The model.
        files: What is read of it.

    Raises:
        OSError: If a file is missing.
        ValueError: If one is damaged, or the model cannot be loaded without code that comes with it.
    """
    import torch

    from pyterrier_mart.devices import quiet

    try:
        with quiet():
            yield
    except (ImportError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as err:  # tokenizers raises nothing narrower
        if isinstance(err, OSError) and err.filename is not None:
            raise
        if "trust_remote_code" in str(err):
            raise ValueError(
                f"{path} can only be loaded with code that comes with it (auto_map, or modules.json names a class), "
                "which is not run; use a model that transformers itself knows"
            ) from err
        damage = damaged_json(Path(path))
        why = damage or (str(err).strip() or type(err).__name__).splitlines()[0]
        kind = OSError if isinstance(err, OSError) and damage is None else ValueError
        raise kind(f"cannot read {files} of {path}: {why}") from err


def damaged_json(directory: Path) -> str | None:
    """Says which of a directory's files is no JSON; None if all are, or there is no such directory."""
    for path in sorted(directory.rglob("*.json")):
        kind = list if path.name == "modules.json" else dict
        try:
            if not isinstance(json.loads(path.read_bytes()), kind):
                return f"{path.relative_to(directory)} is no JSON {'array' if kind is list else 'object'}"
        except (OSError, ValueError, RecursionError) as err:
            return f"{path.relative_to(directory)} is not JSON ({err})"
    return None


def check_modules(directory: Path) -> None:
    """Refuses a directory of sentence-transformers some of whose modules have their weights in a pickle only."""
    for path in directory.rglob("pytorch_model.bin"):
        if not any(path.parent.glob("model*.safetensors")):
            raise ValueError(
                f"the weights {path} are a pickle, which is not read; save the model again, as model.safetensors"
            )


def load_config(source: Source, **kwargs: Any) -> Any:
    """Returns the configuration of a model."""
    from transformers import AutoConfig

    with reading(source.path, "config.json"):
        return AutoConfig.from_pretrained(source.path, **{**kwargs, **source.options})


def load_tokenizer(source: Source) -> Any:
    """Returns the tokenizer of a model."""
    from transformers import AutoTokenizer

    with reading(source.path, "the tokenizer"):
        return AutoTokenizer.from_pretrained(source.path, **source.options)
