"""A directory in which training leaves what it needs to resume after an interruption, and its result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from pyterrier_mart.files import atomic_file, check_regular, read_json
from pyterrier_mart.mart.modeling import MartForRanking

__all__ = ["Checkpoints"]

_RECORD = "fit.json"
_WEIGHTS = "final.safetensors"


class Checkpoints:
    """The Trainer's checkpoints, a record of what they belong to, and the weights of a training that is finished.

    Args:
        directory: Where they are.
        key: What decides the result of the training, as JSON values: ``fingerprint`` and ``options``.

    Raises:
        ValueError: If the directory holds those of another training, or another program's, or a damaged record.
    """

    def __init__(self, directory: str | os.PathLike[str], key: Mapping[str, Any]):
        self.directory, self.key = Path(directory).expanduser().absolute(), dict(key)
        self.log: list[dict[str, Any]] | None = None  # of a training that is finished
        record = self.directory / _RECORD
        if not record.exists():
            if others := self.all():  # training would resume from them, or delete them
                raise ValueError(f"output_dir {self.directory} must not hold another program's {others[0].name}")
            self._write({})
            return
        try:
            found = read_json(record)
            theirs, self.log = found["options"], found.get("log")
            if not isinstance(theirs, dict) or not isinstance(self.log, list | None):
                raise TypeError("it holds other types")
        except (ValueError, KeyError, TypeError) as err:
            raise ValueError(f"output_dir: {record} is damaged ({err}); delete {self.directory}") from err
        if {name: found.get(name) for name in self.key} != self.key:
            differ = [name for name, value in self.key["options"].items() if theirs.get(name) != value]
            raise ValueError(
                f"output_dir {self.directory} holds the checkpoints of another training (other "
                f"{', '.join(differ) or 'model, table, settings or data'}); name another directory or delete it"
            )

    def _write(self, more: Mapping[str, Any]) -> None:
        with atomic_file(self.directory / _RECORD) as tmp:
            tmp.write_text(json.dumps({**self.key, **more}, indent=2) + "\n", encoding="utf-8")

    def all(self) -> list[Path]:
        """Returns the checkpoints, complete or not."""
        return sorted(self.directory.glob(f"{PREFIX_CHECKPOINT_DIR}-*"))

    def path(self, step: int) -> Path:
        """Returns where the checkpoint of a step is."""
        return self.directory / f"{PREFIX_CHECKPOINT_DIR}-{step}"

    def last(self) -> TrainerState | None:
        """Returns the state in the last checkpoint that is complete: the Trainer writes trainer_state.json last."""
        found = []
        for path in self.all():
            try:
                found.append(TrainerState.load_from_json(os.fspath(path / TRAINER_STATE_NAME)))
            except (OSError, ValueError, TypeError, RecursionError):  # not complete
                continue
        last = max(found, key=lambda state: state.global_step, default=None)
        if last is not None and last.best_global_step:
            # The Trainer would ignore a best checkpoint that is not where it was, after the directory was moved.
            last.best_model_checkpoint = os.fspath(self.path(last.best_global_step))
            with atomic_file(self.path(last.global_step) / TRAINER_STATE_NAME) as tmp:
                last.save_to_json(os.fspath(tmp))
        return last

    def finish(self, model: MartForRanking, log: list[dict[str, Any]]) -> None:
        """Keeps the weights and log of a training that is finished, in the place of its checkpoints."""
        weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
        with atomic_file(self.directory / _WEIGHTS) as tmp:
            save_file(weights, tmp)
        self._write({"log": log})
        for checkpoint in self.all():
            shutil.rmtree(checkpoint, ignore_errors=True)

    def finished(self, model: MartForRanking) -> bool:
        """Gives a model the weights of a training that is finished; returns whether it is.

        Raises:
            ValueError: If they are damaged.
        """
        path = self.directory / _WEIGHTS
        if self.log is None or not path.exists():
            return False
        try:
            check_regular(path)
            model.load_state_dict(load_file(path))
        except (OSError, SafetensorError, RuntimeError) as err:
            raise ValueError(f"output_dir: {path} is damaged ({err}); delete {self.directory}") from err
        return True
