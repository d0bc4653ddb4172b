"""A directory in which meta-training leaves what it needs to resume after an interruption, its result, and its log."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pyterrier_mart.files import atomic_file, read_json, sha256

__all__ = ["LOG", "RECORD", "Checkpoints"]

#: Name of the record: what the training is, how far it came, and which files belong to it.
RECORD = "meta-training.json"
#: Name of the log, as a table.
LOG = "log.csv"


class Checkpoints:
    """States of a learner by meta-step, and a record of what they belong to.

    A state is written before the record names it, and deleted after the record no longer does: the record and the
    files that it names fit together whenever the process ends.

    Args:
        directory: Where they are. Other files there are left alone.
        key: What decides the result of the training, by name, as JSON values.

    Attributes:
        progress: What :meth:`save` was given last: ``step``, ``best``, ``log`` and ``stopped``. ``None`` before.

    Raises:
        ValueError: If the directory holds those of another training, or a damaged record.
    """

    def __init__(self, directory: str | os.PathLike[str], key: Mapping[str, Any]):
        self.directory = Path(directory).expanduser().absolute()
        self.key = json.loads(json.dumps(key))
        self.progress: dict[str, Any] | None = None
        self._digests: dict[int, str] = {}
        record = self.directory / RECORD
        if record.exists():
            try:
                found = read_json(record)
                theirs, self.progress = dict(found["key"]), found["progress"]
                if self.progress is not None:
                    operator.itemgetter("step", "best", "log", "stopped")(self.progress)
                self._digests = {int(step): digest for step, digest in found["states"].items()}
            except (ValueError, KeyError, TypeError, AttributeError) as err:
                raise self._damaged(record, err) from err
            if other := [name for name, value in self.key.items() if theirs.get(name) != value]:
                raise ValueError(
                    f"output_dir {self.directory} holds the checkpoints of another training (other "
                    f"{', '.join(other)}); name another directory or delete it"
                )
        elif others := sorted(self.directory.glob("step-*.safetensors")):
            raise ValueError(f"output_dir {self.directory} holds {others[0].name} of another program; name another one")
        else:
            self._write()
        self._tidy()

    def _write(self) -> None:
        record = {"key": self.key, "progress": self.progress, "states": self._digests}
        with atomic_file(self.directory / RECORD) as tmp:
            tmp.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def _damaged(self, path: Path, why: object) -> ValueError:
        return ValueError(f"output_dir: {path} is damaged ({why}); delete {self.directory} or name another directory")

    def _tidy(self) -> None:
        """Deletes states that the record does not name, and what a killed process was writing."""
        for path in self.directory.glob("step-*.safetensors"):
            if path not in map(self.path, self._digests):
                path.unlink(missing_ok=True)
        for name in ("step-*", Path(RECORD).stem, Path(LOG).stem):
            for path in self.directory.glob(f".{name}.*.tmp.*"):
                path.unlink(missing_ok=True)

    def path(self, step: int) -> Path:
        """Returns where the state after a meta-step is."""
        return self.directory / f"step-{step:06d}.safetensors"

    def save(self, progress: Mapping[str, Any], state: Mapping[str, torch.Tensor], keep: set[int]) -> None:
        """Keeps a state and how far training came.

        Args:
            progress: ``step`` (the state's), ``best``, ``log`` (a list of rows) and ``stopped``, as JSON values.
            state: The learner's state.
            keep: Steps whose states are kept besides this one. The others are deleted.
        """
        step = progress["step"]
        if step not in self._digests:
            with atomic_file(self.path(step)) as tmp:
                save_file({name: value.detach().cpu().contiguous() for name, value in state.items()}, tmp)
                digest = sha256(tmp)
            self._digests[step] = digest
        self.keep(progress, {step, *keep})

    def keep(self, progress: Mapping[str, Any], steps: set[int]) -> None:
        """Records how far training came and keeps the states of some steps; the others are deleted."""
        self.progress = dict(progress)
        self._digests = {step: digest for step, digest in self._digests.items() if step in steps}
        self._write()
        self._tidy()
        with atomic_file(self.directory / LOG) as tmp:
            pd.DataFrame(progress["log"]).to_csv(tmp, index=False)

    def load(self, step: int) -> dict[str, torch.Tensor]:
        """Reads a state.

        Raises:
            ValueError: If its file is missing or damaged; the message names it.
        """
        path = self.path(step)
        try:
            if sha256(path) != self._digests.get(step):
                raise ValueError("not what was written")
            state: dict[str, torch.Tensor] = load_file(path)
        except (OSError, SafetensorError, ValueError) as err:
            raise self._damaged(path, err) from err
        return state
