"""Runs the folds of an experiment on several devices, a process for each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

__all__ = ["Failure", "Job", "check", "run"]

_ROOT = Path(__file__).parents[1]
_POLL = 0.2  # seconds between two looks at the processes
_PATIENCE = 10.0  # seconds that a process has to end
_TAIL = 4096  # bytes of a log that are looked at


class Job(NamedTuple):
    """A fold of a pair of languages."""

    pair: str
    fold: int

    def __str__(self) -> str:
        return f"{self.pair} fold {self.fold}"


class Failure(NamedTuple):
    """A job that failed.

    Attributes:
        job: The job.
        reason: How its process ended.
        log: What it printed.
    """

    job: Job
    reason: str
    log: Path


def check(devices: Sequence[str]) -> None:
    """Checks devices against those that this process may see.

    Raises:
        ValueError: If one is not among them.
    """
    for device in devices:
        _visible(device, os.environ)


def run(
    module: str,
    arguments: Sequence[str],
    jobs: Sequence[Job],
    devices: Sequence[str],
    logs: Path,
    *,
    every: float = 60.0,
) -> list[Failure]:
    """Runs ``python -m module`` for each job, one at a time on each device.

    The arguments are followed by ``--pairs``, ``--folds`` and ``--device`` of the job. A job that fails does not stop
    the others; if this process is interrupted, all are ended.

    Args:
        module: The module.
        arguments: Its arguments.
        jobs: What to run, in this order.
        devices: Such as ``cuda:0``; one that is named twice runs two processes.
        logs: A folder for what the processes print.
        every: Seconds after which a line says what each is doing.

    Returns:
        The jobs that failed.

    Raises:
        ValueError: If there is no such device.
    """
    check(devices)
    logs.mkdir(parents=True, exist_ok=True)
    waiting, failures = deque(jobs), list[Failure]()
    running: dict[int, _Process] = {}
    try:
        with _ended_as_interrupted():
            while waiting or running:
                for slot, device in enumerate(devices):
                    if slot not in running and waiting:
                        running[slot] = _Process(module, arguments, waiting.popleft(), devices, device, logs)
                        running[slot].say(f"started, {len(waiting)} waiting")
                for slot, process in list(running.items()):
                    code = process.poll(every)
                    if code is None:
                        continue
                    del running[slot]
                    if code:
                        failures.append(Failure(process.job, _reason(code), process.log))
                time.sleep(_POLL)
    finally:
        _end(list(running.values()))
    return failures


class _Process:
    """A process that runs a job."""

    def __init__(
        self, module: str, arguments: Sequence[str], job: Job, devices: Sequence[str], device: str, logs: Path
    ):
        self.job, self.device = job, device
        self.log = logs / f"{job.pair}-fold-{job.fold}.log"
        visible, name = _visible(device, os.environ)
        command = [sys.executable, "-m", module, *arguments]
        command += ["--pairs", job.pair, "--folds", str(job.fold), "--device", name]
        own = {"PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"}
        with open(self.log, "wb") as stream:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **_threads(devices), **visible, **own},
            )  # fmt: skip
        self._start = self._said = time.monotonic()

    def say(self, what: str) -> None:
        """Prints a line of progress."""
        print(f"{time.strftime('%H:%M:%S')} {self.device} {self.job}: {what}", flush=True)
        self._said = time.monotonic()

    def poll(self, every: float) -> int | None:
        """Returns the exit status, or None while it runs, and says so."""
        code = self._process.poll()
        if code is not None:
            minutes = (time.monotonic() - self._start) / 60
            how = "done" if code == 0 else f"FAILED, {_reason(code)}, see {self.log}: {_last_line(self.log)}"
            self.say(f"{how} ({minutes:.1f} min)")
        elif time.monotonic() - self._said > every:
            self.say(_last_line(self.log) or "starting")
        return code

    def signal(self, number: int) -> None:
        """Sends a signal to the process and those it started."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def wait(self, seconds: float) -> bool:
        """Returns whether it ends in time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _end(processes: Sequence[_Process]) -> None:
    for process in processes:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    for process in processes:
        if not process.wait(max(0.0, deadline - time.monotonic())):
            process.signal(signal.SIGKILL)
            process.wait(_PATIENCE)


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """Lets a request to end, as a cluster sends it, end the processes too."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before: Any = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _visible(device: str, environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Returns the environment in which a process sees one GPU only, and the device's name there.

    transformers would train on the first one that it sees, whichever is named.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number:
        return {}, device
    known = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if known and int(number) >= len(known):
        raise ValueError(f"--devices: there is no {device}; CUDA_VISIBLE_DEVICES={','.join(known)} names {len(known)}")
    return {"CUDA_VISIBLE_DEVICES": known[int(number)] if known else number}, "cuda"


def _threads(devices: Sequence[str]) -> dict[str, str]:
    """Returns how many threads each process has: they share the cores, and more threads than cores are much slower."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, cores // len(devices)))}


def _python_path() -> str:
    """The experiments are not installed: processes find them where they are, whatever the working directory."""
    return os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))


def _reason(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    hint = " (out of memory?)" if code == -9 else ""
    return f"killed by signal {-code}{hint}"


def _last_line(log: Path) -> str:
    """Returns what was printed last; progress bars end their states with a carriage return."""
    with open(log, "rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - _TAIL))
        lines = [line.strip() for line in stream.read().decode("utf-8", "replace").replace("\r", "\n").split("\n")]
    return next((line for line in reversed(lines) if line), "")[:160]
