"""A directory in which meta-training leaves what it needs to go on after an interruption, its result, and its log."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pyterrier_mart.files import atomic_file

__all__ = ["LOG", "RECORD", "Checkpoints", "write_csv"]

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
        key: What decides the result of the training, as JSON values; ``config`` among them is an object.

    Attributes:
        progress: What :meth:`save` was given last: ``step``, ``best``, ``log`` and ``stopped``. ``None`` before.

    Raises:
        ValueError: If the directory holds those of another training, or a damaged record.
    """

    def __init__(self, directory: str | os.PathLike[str], key: Mapping[str, Any]):
        self.directory, self.key = Path(directory).expanduser().absolute(), dict(key)
        self._record = self.directory / RECORD
        self._digests: dict[int, str] = {}
        self.progress: dict[str, Any] | None = None
        if self._record.exists():
            self._read()
        elif others := sorted(self.directory.glob("step-*.safetensors")):
            raise ValueError(
                f"output_dir {self.directory} holds {others[0].name} of another program (there is no {RECORD}); name "
                "another directory"
            )
        else:
            self._write()
        self._tidy()

    def _read(self) -> None:
        try:
            found = json.loads(self._record.read_text(encoding="utf-8"))
            theirs, progress = found["key"], found["progress"]
            digests = {int(step): str(digest) for step, digest in found["states"].items()}
            if progress is not None and not {"step", "best", "log", "stopped"} <= set(progress):
                raise ValueError("not all of step, best, log and stopped are there")
            if not isinstance(theirs, dict) or not isinstance(theirs.get("config", {}), dict):
                raise ValueError("the key is not an object")
        except (ValueError, KeyError, TypeError, AttributeError) as err:
            raise ValueError(self._damaged(self._record, err)) from err
        if theirs != json.loads(json.dumps(self.key)):
            raise ValueError(
                f"output_dir {self.directory} holds the checkpoints of another training (other "
                f"{', '.join(self._other(theirs)) or 'settings'}); name another directory or delete it"
            )
        self.progress, self._digests = progress, digests

    def _other(self, theirs: Mapping[str, Any]) -> list[str]:
        """Returns the names of what differs from another training's key."""
        ours = json.loads(json.dumps(self.key))
        names = [name for name in ours if name != "config" and theirs.get(name) != ours[name]]
        config = theirs.get("config", {})
        return names + [name for name, value in ours.get("config", {}).items() if config.get(name) != value]

    def _write(self) -> None:
        record = {"key": self.key, "progress": self.progress, "states": self._digests}
        with atomic_file(self._record) as tmp:
            tmp.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def _damaged(self, path: Path, why: object) -> str:
        return f"output_dir: {path} is damaged ({why}); delete {self.directory} or name another directory"

    def _tidy(self) -> None:
        """Deletes states that the record does not name, and what a killed process was writing."""
        for path in self.directory.glob("step-*.safetensors"):
            if path.name not in {self.path(step).name for step in self._digests}:
                path.unlink(missing_ok=True)
        for name in ("step-*", Path(RECORD).stem, Path(LOG).stem):
            for path in self.directory.glob(f".{name}.*.tmp.*"):
                path.unlink(missing_ok=True)

    def path(self, step: int) -> Path:
        """Returns where the state after a meta-step is."""
        return self.directory / f"step-{step:06d}.safetensors"

    def save(self, progress: Mapping[str, Any], state: Mapping[str, torch.Tensor], keep: Iterable[int]) -> None:
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
                digest = _digest(tmp)
            self._digests[step] = digest
        self._keep(progress, {step, *keep})

    def finish(self, progress: Mapping[str, Any], keep: int) -> None:
        """Records that training ended, and which state is its result; the others are deleted."""
        self._keep(progress, {keep})

    def _keep(self, progress: Mapping[str, Any], steps: set[int]) -> None:
        self.progress = dict(progress)
        self._digests = {step: digest for step, digest in self._digests.items() if step in steps}
        self._write()
        self._tidy()
        write_csv(progress["log"], self.directory / LOG)

    def load(self, step: int) -> dict[str, torch.Tensor]:
        """Reads a state.

        Raises:
            ValueError: If its file is missing or damaged; the message names it.
        """
        path = self.path(step)
        if not path.exists():
            raise ValueError(self._damaged(path, "it is missing"))
        if _digest(path) != self._digests.get(step):
            raise ValueError(self._damaged(path, "not what was written"))
        try:
            state: dict[str, torch.Tensor] = load_file(path)
        except SafetensorError as err:
            raise ValueError(self._damaged(path, err)) from err
        return state


def write_csv(rows: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Writes rows as a table with all columns that any of them has; what a row lacks is empty."""
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with atomic_file(path) as tmp, open(tmp, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
