"""A process of a run to which something happens at a chosen moment, once; then it is an ordinary one.

FAULT = "rank:kind:moment:epoch". The kinds: kill, stop, hang (the interpreter stands still), interrupt (of whoever
started it), disk (no file may grow any more), machine (all processes of the run are killed), memory (one bit of W
flips). The moments: start, choosing, epoch, evaluation, writing (a file of a checkpoint is half written), sending.
With the name of a command it is that command, else a process of a job.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pdadmm_g import cli
from pdadmm_g.engine import launch, watchdog
from pdadmm_g.engine.link import Link
from pdadmm_g.engine.watchdog import WatchedTeam
from pdadmm_g.engine.worker import Worker
from pdadmm_g.runs import run
from pdadmm_g.training import checkpoint, fit, prepare

rank, kind, moment, epoch = os.environ["FAULT"].split(":")
struck, seen = Path(os.environ["FAULT_ONCE"]), 0


def strike() -> None:
    try:
        struck.touch(exist_ok=False)
    except FileExistsError:
        return
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
    if kind in signals:
        os.kill(os.getpid(), signals[kind])
    elif kind == "hang":
        ctypes.PyDLL(None).sleep(600)
    elif kind == "machine":
        for pid in [*os.environ["FAULT_PIDS"].split(), str(os.getppid()), str(os.getpid())]:
            os.kill(int(pid), signal.SIGKILL)
    elif kind == "interrupt":
        os.kill(os.getppid() if "RANK" in os.environ else os.getpid(), signal.SIGINT)
        for _ in range(20):
            time.sleep(0.1)
    elif kind == "disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


def before(owner: Any, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
    usual = getattr(owner, name)

    def struck(*arguments: Any, **options: Any) -> Any:
        if when(*arguments):
            strike()
        return usual(*arguments, **options)

    setattr(owner, name, struck)


def is_epoch(worker: Worker) -> bool:
    global seen
    seen += 1
    if kind == "memory" and seen == int(epoch):
        # Not the lowest bit, which the next step may round away.
        worker.layers[-1].W.view(-1).view(torch.int32)[3] ^= 1 << 20
    return moment == "epoch" and seen == int(epoch)


def halfway(path: Path, tensors: Any) -> None:
    write(path, tensors)
    if moment == "writing" and int(path.parent.name.removeprefix("epoch-")) >= int(epoch) and not struck.exists():
        path.write_bytes(path.read_bytes()[:100])
        strike()
        write(path, tensors)


write = checkpoint.write_safely
if moment == "choosing":
    before(prepare, "choose")
    before(fit, "called")
    before(run, "assist")
elif moment == "evaluation":
    before(run, "_scores")
    before(WatchedTeam, "leave")
before(Worker, "epoch", is_epoch)
before(Link, "send", lambda *_: moment == "sending" and seen == int(epoch))
checkpoint.write_safely = halfway

is_command = sys.argv[1] == "train"
is_rank = os.environ.get("RANK", "0" if "--alone" in sys.argv else "") == rank
launch.WORKER = [sys.executable, __file__]
watchdog.START_SECONDS = watchdog.JOIN_SECONDS = 40.0  # on a busy machine
if is_rank and moment == "start":
    strike()
if not is_rank:
    strike = lambda: None  # noqa: E731
    kind = ""
if is_command:
    cli.main([argument for argument in sys.argv[1:] if argument != "--alone"])
else:
    launch.main(Path(sys.argv[1]))
    os._exit(0)  # as a process of a job ends
