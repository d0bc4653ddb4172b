"""What is saved of a MetaSBERTRetriever: a directory with the encoder, settings and checksums."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier as pt

from pyterrier_mart.artifact import META, meta_bytes, read_meta
from pyterrier_mart.dense.centring import LanguageCentering
from pyterrier_mart.dense.encoder import load_sentence_transformer
from pyterrier_mart.devices import quiet, resolve_device
from pyterrier_mart.files import atomic_directory, sha256
from pyterrier_mart.meta.config import MetaConfig

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from pyterrier_mart.dense.index import DenseIndex
    from pyterrier_mart.meta.retriever import MetaSBERTRetriever
    from pyterrier_mart.meta.training import TrainingLog

__all__ = ["SETTINGS", "MetaSBERTModel", "write"]

#: What is saved of the arguments besides weights, configuration and centring.
SETTINGS = ("algorithm", "query_lang", "doc_lang", "num_results", "doc_langs", "text_field")

_KIND = {"type": "text_encoder", "format": "mart_sbert", "format_version": 1}
_WHAT = "saved MetaSBERTRetriever"
_CONFIG, _POST, _LOG = "meta_config.json", "language_centring.safetensors", "train_log.json"


class MetaSBERTModel(pt.Artifact):
    """A saved :class:`MetaSBERTRetriever`, as ``pt.Artifact.load(path)`` returns it.

    The directory is also what ``SentenceTransformer(path)`` loads.

    Args:
        path: The directory.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If it is something else, or damaged.
    """

    ARTIFACT_TYPE = "text_encoder"
    ARTIFACT_FORMAT = "mart_sbert"
    ARTIFACT_PACKAGE_HINT = "pyterrier-mart"

    def __init__(self, path: str | os.PathLike[str]):
        self.path: Path = Path(path)
        super().__init__(self.path)
        self.meta = read_meta(self.path, _WHAT, _KIND, ("settings", "encoder", "weights", "fingerprint", "files"))
        settings, files = self.meta["settings"], self.meta["files"]
        if not isinstance(settings, dict) or set(settings) != set(SETTINGS):
            raise ValueError(f"damaged {_WHAT} {self.path}: {META} has the settings {settings!r}")
        if not isinstance(files, dict) or _CONFIG not in files:
            raise ValueError(f"damaged {_WHAT} {self.path}: {META} has the files {files!r:.200}")

    def retriever(
        self,
        dense_index: DenseIndex | str | os.PathLike[str] | None = None,
        *,
        num_results: int | None = None,
        doc_langs: Sequence[str] | None = None,
        batch_size: int = 64,
        device: str | None = None,
        verbose: bool = False,
    ) -> MetaSBERTRetriever:
        """Loads the retriever that was saved.

        Args:
            dense_index: See :class:`MetaSBERTRetriever`.
            num_results: See there; by default what was saved.
            doc_langs: See there; by default what was saved.
            batch_size: See there.
            device: See there.
            verbose: See there.

        Raises:
            ValueError: If a file is missing, or is not as it was saved; the message names it.
        """
        self._check_files()
        settings = dict(self.meta["settings"])
        changes = {"num_results": num_results, "doc_langs": doc_langs}
        settings.update({name: value for name, value in changes.items() if value is not None})
        try:
            config = MetaConfig.from_json((self.path / _CONFIG).read_text(encoding="utf-8"))
            post = LanguageCentering.load(self.path / _POST) if _POST in self.meta["files"] else None
            history = self._history()
            with quiet():
                net = load_sentence_transformer(self.path, device=str(resolve_device(device)))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as err:
            raise ValueError(f"damaged {_WHAT} {self.path}: {err}") from err
        except Exception as err:  # of safetensors, whose type is its own
            if type(err).__name__ != "SafetensorError":
                raise
            raise ValueError(f"damaged {_WHAT} {self.path}: {err}") from err
        from pyterrier_mart.meta.retriever import MetaSBERTRetriever  # which imports this

        made = MetaSBERTRetriever(
            self.meta["encoder"] or self.path, dense_index, config=config, post=post, batch_size=batch_size,
            device=device, verbose=verbose, **settings,
        )  # fmt: skip
        made._trained(net, history)
        if (made.weights, made.fingerprint) != (self.meta["weights"], self.meta["fingerprint"]):
            raise ValueError(f"damaged {_WHAT} {self.path}: its weights are not those that were saved")
        return made

    def _check_files(self) -> None:
        for name, digest in self.meta["files"].items():
            try:
                found = sha256(self.path / name)
            except OSError as err:
                raise ValueError(f"damaged {_WHAT} {self.path}: cannot read {name} ({err})") from err
            if found != digest:
                raise ValueError(f"damaged {_WHAT} {self.path}: {name} is not as it was saved")

    def _history(self) -> TrainingLog | None:
        if _LOG not in self.meta["files"]:
            return None
        from pyterrier_mart.meta.training import TrainingLog

        return TrainingLog(**json.loads((self.path / _LOG).read_text(encoding="utf-8")))

    def __repr__(self) -> str:
        return (
            f"MetaSBERTModel({str(self.path)!r}, {self.meta['encoder'] or '?'}, {self.meta['settings']['algorithm']})"
        )


def write(
    path: str | os.PathLike[str],
    model: SentenceTransformer,
    config: MetaConfig,
    post: LanguageCentering | None,
    history: TrainingLog | None,
    described: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> MetaSBERTModel:
    """Writes the directory; :meth:`MetaSBERTRetriever.save` calls it.

    Args:
        path: The directory.
        model: The encoder.
        config: The settings of training.
        post: The centring, if there is one.
        history: The log of training, if there was one.
        described: What else is in the metadata: ``encoder``, ``settings``, ``weights``, ``fingerprint``, ...
        overwrite: Whether to replace what was saved there before.

    Raises:
        FileExistsError: If the directory exists and ``overwrite`` is false, or is something else.
    """
    with atomic_directory(path, overwrite=overwrite, marker=META) as tmp:
        with quiet():
            model.save_pretrained(os.fspath(tmp), create_model_card=False, safe_serialization=True)
        (tmp / _CONFIG).write_text(config.to_json() + "\n", encoding="utf-8")
        if history is not None:
            (tmp / _LOG).write_text(_log_json(history), encoding="utf-8")
        if post is not None:
            post.save(tmp / _POST)
        meta = {
            **_KIND, "package_hint": "pyterrier-mart", **described, "trained": history is not None,
            "files": _checksums(tmp),
        }  # fmt: skip
        (tmp / META).write_bytes(meta_bytes(meta))
    return MetaSBERTModel(path)


def _log_json(log: TrainingLog) -> str:
    """The log as JSON, which has no numbers that are not finite: ``null`` in their place."""
    values = dataclasses.asdict(log)
    values["steps"] = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in values["steps"]
    ]
    return json.dumps(values, indent=1, allow_nan=False) + "\n"


def _checksums(directory: Path) -> dict[str, str]:
    """Checksums of all files but the weights, which have a fingerprint."""
    return {
        path.relative_to(directory).as_posix(): sha256(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith("model")
    }
