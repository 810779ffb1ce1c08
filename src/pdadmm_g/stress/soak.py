"""Soak: random runs, killed and resumed at random, must end with the weights of the undisturbed run.

Every run is drawn from its own seed. Its processes carry a mark in their environment, by which they are found again
whoever their parent is now: nothing may be left of them once a run has ended, however it ended.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from ..estimator import GAMLPClassifier
from ..runs.folder import RunFolder
from ..status import Status
from ..training import checkpoint

Settings = dict[str, Any]

#: What is done to a run, and the exit code that it must end with.
DISTURBANCES = {
    "kill worker": 4,
    "stop worker": 4,
    "kill parent": -signal.SIGKILL,
    "terminate parent": 130,
    "interrupt parent": 130,
}
#: Limits that tell a hang from a slow machine: for a whole attempt, and for all processes to be gone after a blow.
ATTEMPT_SECONDS, GONE_SECONDS = 300.0, 45.0
#: The --timeout of an attempt in which a worker is stopped.
STOP_TIMEOUT = 3
#: Name of the environment variable that marks the processes of a run.
MARK = "PDADMM_G_SOAK"


class Fault(Exception):
    """What went wrong in a run, in one line."""


@dataclass(frozen=True)
class Blow:
    """One disturbance: when ``share`` of the epochs are done, or ``delay`` seconds after the start if that is given."""

    kind: str
    workers: int
    victim: int
    share: float
    delay: float | None = None


@dataclass(frozen=True)
class Case:
    """One run of the soak: the settings of the model, what happens to it, and the workers that finish it."""

    seed: int
    settings: Settings
    blows: tuple[Blow, ...]
    workers: int


@dataclass
class Outcome:
    """How one run of the soak went; ``failure`` is None if all was well."""

    case: Case
    failure: str | None = None
    #: For each blow that was dealt: its kind and whether it came in the middle of training.
    dealt: list[tuple[str, bool]] = field(default_factory=list)
    attempts: int = 0


# ------------------------------------------------------------------------------------------------------------- drawing


def draw(seed: int) -> Case:
    """The run of this seed."""
    rng = random.Random(seed)
    layers = rng.randint(2, 8)
    most = min(layers, 5)
    stages = sorted({*rng.sample(range(2, layers + 1), rng.randint(0, min(2, layers - 1))), layers})
    eval_every = rng.choice((1, 1, 2, 3))
    settings: Settings = {
        "dataset": rng.choice(("digits", "graph.npz")),
        "seed": rng.randrange(1000),
        "layers": layers,
        "stages": ",".join(map(str, stages)),
        "hidden": rng.randint(8, 32),
        "augment": rng.choice(("none", "hops", "average")),
        "hops": rng.randint(1, 4),
        "normalize": rng.choice(("unit", "centered")),
        "activation": rng.choice(("relu", "leaky-relu", "tanh", "sigmoid")),
        "risk": rng.choice(("cross-entropy", "squared-error")),
        "solver": rng.choice(("exact", "linearized")),
        "weight-decay": rng.choice((0, 0.01, 0.1)),
        "penalty": rng.choice(("constant", "stall", "balance")),
        "quantize": rng.choice(("none", "p", "pq")),
        "wire": rng.choice(("float32", "bf16", "fp16")),
        "epochs": rng.randint(50, 120) // len(stages),
        "patience": rng.choice(("none", 15)),
        "tolerance": 0,
        "eval-every": eval_every,
        "checkpoint-every": eval_every * rng.randint(1, 3),
    }
    if settings["quantize"] != "none":
        settings["bits"] = rng.randint(2, 8)
    blows = tuple(_draw_blow(rng, most) for _ in range(rng.randint(1, 3)))
    return Case(seed, settings, blows, rng.randint(1, most))


def _draw_blow(rng: random.Random, most: int) -> Blow:
    workers = rng.randint(1, most)
    # A run on one worker has no processes but the parent.
    kinds = [kind for kind in DISTURBANCES if workers > 1 or "parent" in kind]
    kind = rng.choices(kinds, [1 if kind == "interrupt parent" else 3 for kind in kinds])[0]
    victim, share, delay = rng.randrange(workers), rng.uniform(0, 0.9), rng.uniform(0, 8)
    # An interrupt before the first epoch has no result to keep; a worker that hangs there has two minutes to start.
    early = kind not in ("interrupt parent", "stop worker") and rng.random() < 0.15
    return Blow(kind, workers, victim, share, delay if early else None)


def write_graph(path: Path) -> None:
    """A made graph of 120 nodes in 4 classes, with an edge between two nodes of a class twice as likely."""
    rng = np.random.default_rng(0)
    nodes, classes = 120, 4
    y = np.arange(nodes) % classes
    x = rng.normal(size=(nodes, 20)) + rng.normal(size=(classes, 20))[y]
    linked = rng.random((nodes, nodes)) < np.where(y[:, None] == y, 0.08, 0.04)
    part = np.arange(nodes) // classes % 3
    np.savez(
        path, x=x.astype(np.float32), edge_index=np.stack(np.nonzero(linked)), y=y,
        train_mask=part == 0, val_mask=part == 1, test_mask=part == 2,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- processes


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
            _signal(pid, signal.SIGKILL)
        time.sleep(0.02)


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------------- one run


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
        write_graph(self.folder / "graph.npz")
        try:
            self._carry_out()
        except Fault as fault:
            self.outcome.failure = str(fault)
        finally:
            kill_marked(self.mark)
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.outcome

    def _carry_out(self) -> None:
        reference = self.folder / "reference"
        code = self._attempt(reference, 1, None)
        _require(code in (0, 3), f"the undisturbed run ended with exit code {code}: {self._last_words()}")
        self.epochs = len(_metrics(reference))
        for blow in self.case.blows:
            code = self._attempt(self.run.path, blow.workers, blow)
            if code in (0, 3):
                break
            self._check_remains(blow, code)
        else:
            code = self._attempt(self.run.path, self.case.workers, None)
        expected, found = RunFolder(reference).status, self.run.status
        _require(self.run.finished, f"the run ended with exit code {code}: {self._last_words()}")
        _require(found == expected, f"the run ended as {found}, undisturbed as {expected}")
        _require(_metrics(self.run.path) == _metrics(reference), "metrics.jsonl differs from the undisturbed run's")
        models = [(path / "model.safetensors").read_bytes() for path in (self.run.path, reference)]
        _require(models[0] == models[1], "the weights differ from the undisturbed run's")
        _require(not self.run.checkpoints.exists(), "checkpoints were left behind")

    def _attempt(self, out: Path, workers: int, blow: Blow | None) -> int:
        """Start or resume the run, deal the blow, wait for every process to end; the exit code."""
        stopping = blow is not None and blow.kind == "stop worker"
        settings = self.case.settings | {
            "out": str(out),
            "workers": workers,
            "timeout": STOP_TIMEOUT if stopping else 60,
        }
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
        checkpoint_before = None
        if blow is not None:
            checkpoint_before = self._strike(process, blow)
        elapsed = time.monotonic() - started
        limit = ATTEMPT_SECONDS - elapsed if blow is None else GONE_SECONDS + STOP_TIMEOUT
        self._wait(lambda: process.poll() is not None, limit, "the command did not end")
        self._wait(lambda: not any(marked_processes(self.mark)), GONE_SECONDS, "processes were left behind")
        if checkpoint_before is not None:
            self._check_checkpoint(checkpoint_before)
        return process.returncode

    def _strike(self, process: subprocess.Popen[bytes], blow: Blow) -> int | None:
        """Deal the blow when its moment has come; the epoch of the checkpoint that was there, if one was."""
        started, wall = time.monotonic(), time.time()
        metrics = self.run.path / "metrics.jsonl"
        done = _newest_checkpoint(self.run.checkpoints) or 0
        moment = done + blow.share * (self.epochs - done)
        target: list[int] = []

        def progress() -> int:
            # Until the first epoch of a resumed run has ended, the metrics are those of the attempt before.
            return _count_lines(metrics, since=wall)

        def due() -> bool:
            if process.poll() is not None:
                return True
            if progress() <= moment if blow.delay is None else time.monotonic() - started < blow.delay:
                return False
            if "parent" not in blow.kind:
                target[:] = self._worker(blow.victim)
            elif blow.kind == "kill parent" or _listens(process.pid, SIGNALS[blow.kind]):
                target[:] = [process.pid]
            return bool(target)

        self._wait(due, ATTEMPT_SECONDS, "the run made no progress")
        before = _newest_checkpoint(self.run.checkpoints)
        epochs = progress()
        if target and process.poll() is None and _signal(target[0], SIGNALS[blow.kind]):
            self.outcome.dealt.append((blow.kind, 0 < epochs < self.epochs))
        return before

    def _worker(self, rank: int) -> list[int]:
        return [pid for pid, environment in marked_processes(self.mark) if environment.get("RANK") == str(rank)]

    def _check_remains(self, blow: Blow, code: int) -> None:
        """The exit code says what happened, and an interrupted run has a model."""
        expected = DISTURBANCES[blow.kind]
        _require(code == expected, f"exit code {code} after {blow.kind}, expected {expected}: {self._last_words()}")
        if expected == 130 and self.run.finished:
            _require(self.run.status == Status.INTERRUPTED.name, f"interrupted run ended as {self.run.status}")
            GAMLPClassifier.load(self.run.path / "model.safetensors")

    def _check_checkpoint(self, before: int) -> None:
        """The checkpoint of epoch ``before``, or a newer one, is there and whole; unless the run is over."""
        if self.run.status not in (None, Status.PEER_LOST.name, Status.INTERRUPTED.name):
            return
        try:
            saved = checkpoint.latest(self.run.checkpoints)
            found = saved.meta.total_epochs if saved else None
            _require(found is not None and found >= before, f"the checkpoint of epoch {before} was lost, found {found}")
            assert saved is not None
            for index in range(saved.meta.depth):
                saved.layer(index, torch.empty(0))
        except InputError as error:
            raise Fault(str(error)) from None

    def _wait(self, condition: Callable[[], bool], seconds: float, message: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.stop.is_set():
                raise Fault("the soak was interrupted")
            _require(time.monotonic() < deadline, f"{message} within {seconds:.0f} s: {self._last_words()}")
            time.sleep(0.002)

    def _last_words(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


SIGNALS = {
    "kill worker": signal.SIGKILL,
    "stop worker": signal.SIGSTOP,
    "kill parent": signal.SIGKILL,
    "terminate parent": signal.SIGTERM,
    "interrupt parent": signal.SIGINT,
}


def _listens(pid: int, number: signal.Signals) -> bool:
    """Has the process a handler for the signal? Until Python has started, the system ends it as it likes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (number - 1) & 1)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Fault(message)


def _count_lines(path: Path, since: float) -> int:
    """Lines of a file that was last written to after ``since``, else 0."""
    try:
        return path.read_bytes().count(b"\n") if path.stat().st_mtime >= since else 0
    except OSError:
        return 0


def _newest_checkpoint(folder: Path) -> int | None:
    """The epoch of the newest checkpoint that counts, while others may be written and removed."""
    return max((int(path.parent.name[6:]) for path in folder.glob("epoch-*/meta.json")), default=None)


def _metrics(folder: Path) -> list[tuple[int, float | None, float | None]]:
    """What metrics.jsonl says of each epoch that must not depend on who computed it."""
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(record["epoch"], record["objective"], record["val_accuracy"]) for record in records]


# ------------------------------------------------------------------------------------------------------------ the soak


def soak(runs: int, seed: int, jobs: int, on_run: Callable[[Outcome], None] | None = None) -> list[Outcome]:
    """Carry out the runs of the seeds from ``seed`` on, ``jobs`` at a time. No process and no file outlives this."""
    if not Path("/proc/self/environ").exists():
        raise InputError("soak finds its processes under /proc, which this system does not have: run it on Linux")
    stop = threading.Event()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="pdadmm-g-soak-") as name, ThreadPoolExecutor(jobs) as pool:
        trials = [Trial(draw(number), Path(name, str(number)), stop) for number in range(seed, seed + runs)]
        futures = [pool.submit(trial.carry_out) for trial in trials]
        try:
            for future in as_completed(futures):
                outcomes.append(future.result())
                if on_run is not None:
                    on_run(outcomes[-1])
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    return sorted(outcomes, key=lambda outcome: outcome.case.seed)


def summarize(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts by kind of disturbance, number of workers and quantization, and every failure with its seed."""
    dealt = [blow for outcome in outcomes for blow in outcome.dealt]
    cases = [outcome.case for outcome in outcomes]
    workers = Counter(count for case in cases for count in (*(blow.workers for blow in case.blows), case.workers))
    quantized = Counter(
        f"{case.settings['quantize']} {case.settings['bits']} bits" if "bits" in case.settings else "none"
        for case in cases
    )
    return {
        "runs": len(outcomes),
        "failures": [
            {"seed": outcome.case.seed, "message": outcome.failure} for outcome in outcomes if outcome.failure
        ],
        "attempts": sum(outcome.attempts for outcome in outcomes),
        "disturbances": len(dealt),
        "share_in_mid_training": round(sum(middle for _, middle in dealt) / max(len(dealt), 1), 3),
        "by_disturbance": {
            kind: {
                "dealt": sum(name == kind for name, _ in dealt),
                "in_mid_training": sum(middle for name, middle in dealt if name == kind),
            }
            for kind in DISTURBANCES
        },
        "by_workers": dict(sorted(workers.items())),
        "by_quantization": dict(sorted(quantized.items())),
    }
