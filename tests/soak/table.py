"""Every fault, at every moment, to the first and the last rank of every mesh: a row each, all by one command.

A run must end as it is documented (exit code, one line that names who was lost) and in time, leave no process, and go
on by --resume to the weights of the undisturbed run, bit for bit.

    python -m tests.soak.table
    python -m tests.soak.table --only "stop 3x1"
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .trial import MARK, kill_marked, marked_processes

FAULTY = Path(__file__).parents[1] / "helpers" / "faulty_worker.py"
#: Nothing is left to the data, so that all of the time is training: 24 epochs, a checkpoint after every fifth.
SETTINGS = {
    "augment": "average", "hops": 2, "teleport": 0.05, "normalize": "centered", "weight_decay": 0.1, "rho": 5.0,
    "layers": 6, "stages": "3,6", "hidden": 10, "epochs": 12, "quantize": "pq", "checkpoint_every": 5, "unlabelled": 0,
    "label_hops": 0,
}  # fmt: skip
KINDS = ("kill", "stop", "hang", "interrupt", "disk", "machine")
#: Epoch 17 is in the second stage, after the checkpoint of epoch 15; that of epoch 20 is the one that is half written.
MOMENTS = {"start": 0, "choosing": 0, "epoch": 17, "writing": 17, "evaluation": 0}
#: Workers and shards; under torchrun three workers, on two machines two.
MESHES = {"1x1": (1, 1), "3x1": (3, 1), "2x2": (2, 2), "torchrun": (3, 1), "machines": (2, 1)}
#: The --timeout of a run, and the seconds in which all must be over after a fault, however busy the machine is.
TIMEOUT, GONE_SECONDS = 3, 100.0
LOST = r"error: PEER_LOST: worker {}(,| \().*{}"


class Row(NamedTuple):
    """One fault."""

    kind: str
    mesh: str
    rank: int
    moment: str

    def __str__(self) -> str:
        return f"{self.kind} {self.mesh} rank {self.rank} {self.moment}"


def rows() -> Iterator[Row]:
    """All of the table."""
    for mesh, (workers, shards) in MESHES.items():
        for kind in KINDS:
            # Nobody watches a process alone; an interrupt is for the one that started them all, told by the first.
            if (mesh == "1x1" and kind in ("stop", "hang")) or (mesh == "machines") != (kind == "machine"):
                continue
            for rank in sorted({0, workers * shards - 1} if kind != "interrupt" else {0}):
                yield from (Row(kind, mesh, rank, moment) for moment in MOMENTS)


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(row: Row | None, out: Path, *more: str) -> list[list[str]]:
    """What is started: an agent for each machine, else one command."""
    workers, shards = MESHES[row.mesh] if row else (1, 1)
    train = ["train", "--out", str(out), "--timeout", str(TIMEOUT), "--workers", str(workers), "--shards", str(shards)]
    for name, value in SETTINGS.items():
        train += [f"--{name.replace('_', '-')}", str(value)]
    train += more
    if row is None:
        return [[sys.executable, "-m", "pdadmm_g", *train]]
    train = [str(FAULTY), *train]
    agent = [sys.executable, "-m", "torch.distributed.run"]
    if row.mesh == "torchrun":
        return [[*agent, "--standalone", "--nproc-per-node", str(workers), *train]]
    if row.mesh == "machines":
        where = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port"]
        where.append(str(free_port()))
        return [[*agent, *where, "--node-rank", str(number), *train] for number in range(2)]
    return [[sys.executable, *train, *(["--alone"] if row.mesh == "1x1" else [])]]


def carry_out(row: Row, folder: Path) -> str:
    """Cause the fault, check what comes of it, go on; what was wrong, nothing if all was as documented."""
    out, mark = folder / "run", f"{os.getpid()}-{folder.name}-{row}".replace(" ", "-")
    environment = os.environ | {
        MARK: mark, "TMPDIR": str(folder), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "FAULT_PIDS": "",
        "FAULT": f"{row.rank}:{row.kind}:{row.moment}:{MOMENTS[row.moment]}", "FAULT_ONCE": str(folder / "struck"),
    }  # fmt: skip
    logs = []
    try:
        processes = []
        for number, each in enumerate(command(row, out)):
            logs.append(folder / f"log-{number}")
            with logs[-1].open("w") as log:
                processes.append(
                    subprocess.Popen(each, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    cwd=folder, start_new_session=True)
                )  # fmt: skip
        deadline = time.monotonic() + 2 * GONE_SECONDS
        while any(process.poll() is None for process in processes):
            if time.monotonic() > deadline:
                return "it did not end"
            time.sleep(0.05)
            if (folder / "struck").exists():
                deadline = min(deadline, time.monotonic() + GONE_SECONDS)
        while left := [pid for pid, _ in marked_processes(mark)]:
            if time.monotonic() > deadline:
                return f"processes were left behind: {left}"
            time.sleep(0.05)
        said = "".join(log.read_text(errors="replace") for log in logs)
        wrong = judge(row, [process.returncode for process in processes], said)
        return wrong or goes_on(row, out, environment)
    finally:
        kill_marked(mark)


def judge(row: Row, codes: list[int], said: str) -> str:
    """What of the ending is not as documented."""
    under_agent, alone = row.mesh in ("torchrun", "machines"), row.mesh == "1x1"
    code, line = {
        "kill": (-9 if alone else 4, "" if alone else LOST.format(row.rank, "was (killed by SIGKILL|lost)")),
        "stop": (4, LOST.format(row.rank, "(has not answered for|was lost)")),
        "hang": (4, LOST.format(row.rank, "(has not answered for|was lost)")),
        "interrupt": (130, "" if under_agent else "interrupted|INTERRUPTED|--resume scores it"),
        "disk": (2, "error: .*cannot write"),
        "machine": (1, LOST.format(row.rank, "")),
    }[row.kind]  # fmt: skip
    if row.kind == "disk" and codes == [0]:
        return ""  # it had nothing more to write
    expected = [code]
    if under_agent:
        expected = [1]
        if row.kind == "machine":
            expected = [-signal.SIGKILL if number == row.rank else 1 for number in range(2)]
    wrong = f"exit code {codes}, expected {expected}" if codes != expected else ""
    if not wrong and not re.search(line, said):
        wrong = f"nothing says {line!r}"
    if not wrong and row.kind != "interrupt" and (times := len(re.findall(r"^error: ", said, re.MULTILINE))) > 1:
        wrong = f"it is said {times} times what was wrong"
    last = [text for text in said.splitlines() if text.startswith("error")] or said.splitlines()[-1:]
    return f"{wrong}: {last}" if wrong else ""


def goes_on(row: Row, out: Path, environment: dict[str, str]) -> str:
    """What is wrong with the model of the run that goes on, alone, where the mesh has no shards."""
    shards = MESHES[row.mesh][1]
    expected = undisturbed(shards)
    again = subprocess.run(
        [*command(None, out, "--resume")[0], "--shards", str(shards), "--workers", "1"], env=environment,
        capture_output=True, text=True, check=False, cwd=out.parent, timeout=120,
    )  # fmt: skip
    if again.returncode != 0:
        return f"it does not go on: exit code {again.returncode}, {again.stderr.splitlines()[-1:]}"
    return "" if (out / "model.safetensors").read_bytes() == expected else "the weights differ"


_models: dict[int, bytes] = {}


def undisturbed(shards: int) -> bytes:
    """The model of the run on so many shards that nothing happens to."""
    if shards not in _models:
        with tempfile.TemporaryDirectory(prefix="pdadmm-g-soak-") as folder:
            whole = [*command(None, Path(folder, "run"))[0], "--shards", str(shards)]
            subprocess.run(whole, capture_output=True, check=True, cwd=folder, timeout=120)
            _models[shards] = Path(folder, "run", "model.safetensors").read_bytes()
    return _models[shards]


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.soak.table", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="words that a row has: kinds, meshes, ranks, moments")
    wanted, failures, count = parser.parse_args().only.split(), 0, 0
    for row in (row for row in rows() if {*wanted} <= {*str(row).split()}):
        with tempfile.TemporaryDirectory(prefix="pdadmm-g-soak-") as folder:
            start = time.monotonic()
            wrong = carry_out(row, Path(folder))
        count, failures = count + 1, failures + bool(wrong)
        print(f"{row}: {wrong or 'as documented'} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{count} rows, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
