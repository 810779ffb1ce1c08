"""The processes of a run, found by a mark in their environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

#: Name of the environment variable that marks the processes of a run.
MARK = "PDADMM_G_SOAK"


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
