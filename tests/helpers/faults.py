"""A small run, ways to end it, and what is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pdadmm_g.config import RunConfig
from pdadmm_g.runs.run import train_run
from soak.table import FAULTY as FAULTY
from soak.table import SETTINGS
from soak.table import free_port as free_port

#: What torchrun tells the first of four processes.
MEMBER = {
    "TORCHELASTIC_RUN_ID": "some", "WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}  # fmt: skip


def config(out: Path, **changes: object) -> RunConfig:
    return RunConfig(**SETTINGS | {"stages": (3, 6), "out": str(out), "timeout": 20.0} | changes)


def descendants(tmp_path: Path) -> list[int]:
    """Worker processes of this test that are still alive: those whose errors go to a folder of its jobs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            errors = str((process / "fd/2").readlink())
        except OSError:  # it has ended
            continue
        if errors.startswith(f"{tmp_path}/pdadmm-g-"):
            found.append(int(process.name))
    return found


def wait_for(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)


def interrupted_run(out: Path, epoch: int = 7, *, overwrite: bool = False, **changes: object) -> None:
    """A run that ended without a word while it noted this epoch."""

    def interrupt(record) -> None:
        if record["epoch"] == epoch:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        train_run(config(out, **changes), on_epoch=interrupt, overwrite=overwrite)


def torchrun(*arguments: str, **options) -> subprocess.Popen[str]:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"} | options.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options,
    )  # fmt: skip
