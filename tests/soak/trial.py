"""One run of the soak: undisturbed, then disturbed, and compared. Its processes are known by a mark in their
environment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file

from pdadmm_g.errors import InputError
from pdadmm_g.estimator import load_estimator
from pdadmm_g.runs.folder import RunFolder
from pdadmm_g.status import Status
from pdadmm_g.training import checkpoint

from .cases import FAULTS, GRAPH, SHARDED, WEIGHTED, Case, Fault, write_data

#: Name of the environment variable that marks the processes of a run.
MARK = "PDADMM_G_SOAK"
#: Limits that tell a hang from a slow machine: for a whole attempt, and for all processes to be gone after a fault.
ATTEMPT_SECONDS, GONE_SECONDS = 300.0, 45.0
#: Where the number of shards has changed on the way, the weights may differ by so many times what two undisturbed runs
#: on two of these numbers do, or at least by this. How far rounding carries, up to 1e-3, is a matter of the settings.
MANY, LEAST = 10, 1e-6
#: The --timeout of an attempt in which a worker is stopped.
STOP_TIMEOUT = 3
MODEL = "model.safetensors"


class Failure(Exception):
    """What went wrong in a run, in one line."""


@dataclass
class Outcome:
    """How one run of the soak went; ``failure`` is None if all was well."""

    case: Case
    failure: str | None = None
    #: For each fault that was caused: its kind and whether it came in the middle of training.
    caused: list[tuple[str, bool]] = field(default_factory=list)
    attempts: int = 0


def marked_processes(mark: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Id and environment of every living process with this mark."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "environ").read_bytes().decode(errors="replace")
            if f"{MARK}={mark}\0" in text and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                yield int(entry.name), dict(item.split("=", 1) for item in text.split("\0") if "=" in item)
        except OSError:
            continue  # ended meanwhile, or not ours


def kill_marked(mark: str) -> None:
    """Kill every process with this mark, and those that they start meanwhile."""
    while found := list(marked_processes(mark)):
        for pid, _ in found:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)


def send(pid: int, number: signal.Signals) -> bool:
    """Send the signal; False if there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def listens(pid: int, number: signal.Signals) -> bool:
    """Has the process a handler for the signal? Until Python has started, the system ends it as it likes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (number - 1) & 1)


class Trial:
    """One run of the soak in a folder of its own."""

    def __init__(self, case: Case, folder: Path, stop: threading.Event) -> None:
        self.case = case
        self.folder = folder
        self.stop = stop
        self.mark = f"{os.getpid()}-{folder.name}"
        self.run = RunFolder(folder / "run")
        self.outcome = Outcome(case)

    def carry_out(self) -> Outcome:
        """The undisturbed run, then the disturbed one, and what became of it."""
        self.folder.mkdir()
        (self.folder / "tmp").mkdir()
        if (name := self.case.settings["dataset"]) in (GRAPH, WEIGHTED, SHARDED):
            write_data(name, self.folder)
        try:
            self._carry_out()
        except Failure as failure:
            self.outcome.failure = str(failure)
        finally:
            kill_marked(self.mark)
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.outcome

    def _carry_out(self) -> None:
        reference = self._undisturbed(self.case.shards)
        self.epochs = len(_metrics(reference))
        for fault in self.case.faults:
            code = self._attempt(self.run.path, fault.workers, fault.shards, fault)
            if code in (0, 3):
                break
            self._check_remains(fault, code)
        else:
            code = self._attempt(self.run.path, self.case.workers, self.case.shards, None)
        expected, found = RunFolder(reference).status, self.run.status
        _require(self.run.finished, f"the run ended with exit code {code}: {self._last_words()}")
        _require(found == expected, f"the run ended as {found}, undisturbed as {expected}")
        if self.case.exact:
            _require(_metrics(self.run.path) == _metrics(reference), "metrics.jsonl differs from the undisturbed run's")
            models = [(path / MODEL).read_bytes() for path in (self.run.path, reference)]
            _require(models[0] == models[1], "the weights differ from the undisturbed run's")
        else:
            _require(len(_metrics(self.run.path)) == self.epochs, "it took another number of epochs")
            others = next(fault.shards for fault in self.case.faults if fault.shards != self.case.shards)
            usual = max(LEAST, _distance(self._undisturbed(others), reference))
            distance = _distance(self.run.path, reference)
            _require(distance < MANY * usual, f"the weights differ by {distance:.1e}, undisturbed by {usual:.1e}")
        kept = found == Status.MAX_EPOCHS.name  # it may go on with more epochs
        _require(
            self.run.checkpoints.exists() == kept, f"as {found}, it should {'' if kept else 'not '}keep a checkpoint"
        )

    def _undisturbed(self, shards: int) -> Path:
        """The folder of the run on one worker and so many shards that nothing happens to."""
        out = self.folder / f"undisturbed-{shards}"
        code = self._attempt(out, 1, shards, None)
        _require(code in (0, 3), f"the undisturbed run ended with exit code {code}: {self._last_words()}")
        return out

    def _attempt(self, out: Path, workers: int, shards: int, fault: Fault | None) -> int:
        """Start or resume the run, cause the fault, wait for every process to end; the exit code."""
        timeout = STOP_TIMEOUT if fault is not None and fault.kind == "stop worker" else 60
        settings = self.case.settings | {"out": str(out), "workers": workers, "shards": shards, "timeout": timeout}
        if out != self.run.path:
            del settings["checkpoint-every"]
        command = [sys.executable, "-m", "pdadmm_g", "train", "--resume"]
        for name, value in settings.items():
            command += [f"--{name}", str(value)]
        self.outcome.attempts += 1
        environment = os.environ | {MARK: self.mark, "TMPDIR": str(self.folder / "tmp")}
        with (self.folder / "log").open("w") as log:
            # In a session of its own, where an interrupt at the terminal does not reach it.
            process = subprocess.Popen(
                command, cwd=self.folder, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        started = time.monotonic()
        checkpoint_before = None if fault is None else self._cause(process, fault)
        elapsed = time.monotonic() - started
        limit = ATTEMPT_SECONDS - elapsed if fault is None else GONE_SECONDS + STOP_TIMEOUT
        self._wait(lambda: process.poll() is not None, limit, "the command did not end")
        self._wait(lambda: not any(marked_processes(self.mark)), GONE_SECONDS, "processes were left behind")
        if checkpoint_before is not None:
            self._check_checkpoint(checkpoint_before)
        return process.returncode

    def _cause(self, process: subprocess.Popen[bytes], fault: Fault) -> int | None:
        """Cause the fault when its moment has come; the epoch of the checkpoint that was there, if one was."""
        started, wall = time.monotonic(), time.time()
        metrics = self.run.path / "metrics.jsonl"
        done = _newest_checkpoint(self.run.checkpoints) or 0
        moment = done + fault.share * (self.epochs - done)
        target: list[int] = []

        def progress() -> int:
            # Until the first epoch of a resumed run has ended, the metrics are those of the attempt before.
            return _count_epochs(metrics, since=wall)

        def due() -> bool:
            if process.poll() is not None:
                return True
            if progress() <= moment if fault.delay is None else time.monotonic() - started < fault.delay:
                return False
            if "parent" not in fault.kind:
                ranks = {environment.get("RANK"): pid for pid, environment in marked_processes(self.mark)}
                target[:] = [ranks[str(fault.victim)]] if str(fault.victim) in ranks else []
            elif fault.kind == "kill parent" or listens(process.pid, FAULTS[fault.kind][0]):
                target[:] = [process.pid]
            return bool(target)

        self._wait(due, ATTEMPT_SECONDS, "the run made no progress")
        before = _newest_checkpoint(self.run.checkpoints)
        epochs = progress()
        if target and process.poll() is None and send(target[0], FAULTS[fault.kind][0]):
            self.outcome.caused.append((fault.kind, 0 < epochs < self.epochs))
        return before

    def _check_remains(self, fault: Fault, code: int) -> None:
        """The exit code says what happened, and an interrupted run has a model."""
        expected = FAULTS[fault.kind][1]
        _require(code == expected, f"exit code {code} after {fault.kind}, expected {expected}: {self._last_words()}")
        if expected == 130 and self.run.finished:
            fitting = self.run.status == Status.INTERRUPTED.name or self.run.unscored  # interrupted while it is scored
            _require(fitting, f"interrupted run ended as {self.run.status}")
            load_estimator(self.run.path / MODEL)

    def _check_checkpoint(self, before: int) -> None:
        """The checkpoint of epoch ``before``, or a newer one, is there and whole; unless the run is over."""
        if self.run.status not in (None, Status.PEER_LOST.name, Status.INTERRUPTED.name):
            return
        try:
            saved = checkpoint.latest(self.run.checkpoints)
            found = len(saved.history) if saved else None
            _require(found is not None and found >= before, f"the checkpoint of epoch {before} was lost, found {found}")
            assert saved is not None
            for index in range(saved.meta.depth):
                saved.layer(index, torch.empty(0), range(1 << 40))
        except InputError as error:
            raise Failure(str(error)) from None

    def _wait(self, condition: Callable[[], bool], seconds: float, message: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.stop.is_set():
                raise Failure("the soak was interrupted")
            _require(time.monotonic() < deadline, f"{message} within {seconds:.0f} s: {self._last_words()}")
            time.sleep(0.002)

    def _last_words(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _distance(folder: Path, other: Path) -> float:
    """Between the weights of two models, relative to those of the other one."""
    weights = [
        torch.cat([tensor.double().flatten() for _, tensor in sorted(load_file(str(path / MODEL)).items())])
        for path in (folder, other)
    ]
    return float((weights[0] - weights[1]).norm() / weights[1].norm())


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Failure(message)


def _count_epochs(path: Path, since: float) -> int:
    """Epochs in metrics that were last written to after ``since``, else 0."""
    try:
        return path.read_bytes().count(b'"stage_epoch"') if path.stat().st_mtime >= since else 0
    except OSError:
        return 0


def _newest_checkpoint(folder: Path) -> int | None:
    """The epoch of the newest checkpoint that counts, while others may be written and removed."""
    return max((int(path.parent.name[6:]) for path in folder.glob("epoch-*/meta.json")), default=None)


def _metrics(folder: Path) -> list[tuple[int, float | None, float | None]]:
    """What metrics.jsonl says of each epoch that must not depend on who computed it."""
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [
        (record["epoch"], record["objective"], record["val_accuracy"]) for record in records if "task" not in record
    ]
