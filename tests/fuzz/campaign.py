"""A campaign: the cases dealt to the targets, each target in its own process, and what came of them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import tempfile
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from .tally import ENDINGS

#: Targets and their share of the cases; those first that take longest, so that they do not end alone.
SHARES = {
    "checkpoint": 0.015, "model": 0.1, "settings": 0.2, "yaml": 0.1, "fit": 0.002, "npz": 0.12, "run": 0.01,
    "shards": 0.05, "graphml": 0.05, "tables": 0.07, "objects": 0.08, "graph": 0.08, "pt": 0.05, "cli": 0.02,
    "weights": 0.05,
}  # fmt: skip
#: Targets that atheris goes over as well, and the share of each.
GUIDED, GUIDED_SHARE = ("npz", "model", "yaml", "checkpoint"), 0.03
#: Packages that read what is fuzzed, or that fuzz.
PACKAGES = (
    "atheris", "click", "hypothesis", "networkx", "numpy", "pandas", "pyarrow", "PyYAML", "safetensors", "scipy",
    "torch", "torch_geometric",
)  # fmt: skip


def campaign(cases: int, seed: int, jobs: int) -> dict[str, Any]:
    """Run about so many cases of the seeds from ``seed`` on, ``jobs`` targets at a time; tell of each as it ends."""
    wanted = [(name, share, False) for name, share in SHARES.items()]
    if importlib.util.find_spec("atheris"):
        wanted += [(name, GUIDED_SHARE, True) for name in GUIDED]

    def work(one: tuple[str, float, bool]) -> tuple[str, dict[str, Any]]:
        name, share, guided = one
        return f"{name} (atheris)" if guided else name, in_a_process(name, round(share * cases), seed, guided=guided)

    targets: dict[str, dict[str, Any]] = {}
    with ThreadPool(jobs) as pool:
        for label, target in pool.imap_unordered(work, wanted):
            targets[label] = target
            print(f"{label:<22}" + "  ".join(f"{key} {target[key]}" for key in ("cases", *ENDINGS)), flush=True)
            for what, where in target["found"].items():
                print(f"    {what} (seed {where.get('seed')}, {where['times']} times)", flush=True)
    return {
        "cases": sum(target["cases"] for target in targets.values()),
        "violations": sum(target["violation"] for target in targets.values()),
        "targets": targets,
    }


def in_a_process(name: str, cases: int, seed: int, *, guided: bool) -> dict[str, Any]:
    """One target in its own process; a crash of the interpreter is a finding too, and the rest goes on."""
    total: dict[str, Any] = {"cases": 0, **dict.fromkeys(ENDINGS, 0), "found": {}}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        report = Path(temporary) / "report.json"
        while total["cases"] < cases:
            report.unlink(missing_ok=True)
            left, start = str(cases - total["cases"]), str(seed + total["cases"])
            command = [sys.executable, "-m", "tests.fuzz", "--target", name, "--cases", left]
            command += ["--seed", start, "--out", str(report), *(["--guided"] if guided else [])]
            process = subprocess.run(command, capture_output=True, text=True)
            part = json.loads(report.read_text()) if report.exists() else {"cases": 0, "found": {}}
            for key in ("cases", *ENDINGS):
                total[key] += part.get(key, 0)
            total["found"] |= part["found"]
            if process.returncode:
                at = report.with_suffix(".at").read_text() if report.with_suffix(".at").exists() else "?"
                last = (process.stderr.strip().splitlines() or [""])[-1]
                total["found"][f"the process ended with {process.returncode}: {last[:150]}"] = {"seed": at, "times": 1}
                total["violation"] += 1
                total["cases"] = max(total["cases"] + 1, int(at) + 1 - seed if at != "?" else cases)
    return total


def reader_versions() -> dict[str, str]:
    """The versions of those packages that are installed."""
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
