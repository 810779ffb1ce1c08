"""The machine that computes: its threads and devices, and what is recorded of it beside a figure."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import torch

from . import __version__
from .errors import InputError


@contextmanager
def compute_threads(threads: int) -> Iterator[None]:
    """Compute with so many threads, then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def boot_id() -> str | None:
    """Another one whenever the machine has started anew; None where it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked_device(name: str) -> torch.device:
    """The torch device of that name, "auto" for a GPU where there is one; an error if this machine does not have it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"device '{name}' is not available here; use 'cpu'") from None
    return device


def provenance(command: str) -> dict[str, Any]:
    """Where a result comes from."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "command": command,
        "date": str(date.today()),
        "hardware": {
            "cpu": names[0] if names else platform.processor(),
            "cores": os.cpu_count(),
            **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        },
        "versions": {"pdadmm_g": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
