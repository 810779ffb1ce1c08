"""A check of this installation: versions, devices, folders, and a small training on two workers.

Nothing is imported before its check, so that a broken installation ends in a line and not in a traceback.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from ..utils import usable_cores
from .common import EXIT_FAILURE, Output, error, output_options


@dataclass(frozen=True)
class Check:
    """One line of the report: ``ok``, ``missing``, which can be done without, or ``FAILED``."""

    name: str
    state: str
    detail: str
    remedy: str = ""


#: What is trained on one worker and on two, by settings.
SELF_TESTS: dict[str, dict[str, Any]] = {"self-test": {}, "self-test, 8 bits": {"quantize": "pq"}}
REPORT = "please report this with the whole output of 'pdadmm-g doctor --json'"


def diagnose() -> Iterator[Check]:
    """All checks, each as soon as it is known."""
    for check in (_versions, _devices, _folders, _self_test):
        try:
            yield from check()
        except Exception as error:  # whatever is broken is what the user came to learn
            reason = (str(error).splitlines() or [""])[0]
            remedy = "pip install --force-reinstall pdadmm-g" if isinstance(error, (ImportError, OSError)) else REPORT
            name = check.__name__.strip("_").replace("_", "-")
            yield Check(name, "FAILED", f"{type(error).__name__}: {reason}", remedy)


def _versions() -> Iterator[Check]:
    """Of Python, of the package, of what it says that it needs, and of what its extras bring."""
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    seen = set()
    for requirement in ["pdadmm-g", *(importlib.metadata.requires("pdadmm-g") or ())]:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"]([\w-]+)", requirement)
        if name in seen or (extra and extra[1] == "dev"):
            continue
        seen.add(name)
        try:
            yield Check(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            state, detail = ("missing", f"optional ({extra[1]})") if extra else ("FAILED", "not installed")
            yield Check(name, state, detail, f"pip install '{requirement.partition(';')[0].strip()}'")


def _devices() -> Iterator[Check]:
    import torch
    import torch.distributed as dist

    yield Check("cpu", "ok", f"{usable_cores()} cores usable, torch computes with {torch.get_num_threads()} threads")
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        device = torch.cuda.get_device_properties(index)
        yield Check(f"cuda:{index}", "ok", f"{device.name}, {device.total_memory / 2**30:.0f} GiB")
    if not torch.cuda.is_available():
        why = "this torch is built for the CPU only" if torch.version.cuda is None else "torch finds no GPU"
        yield Check("gpu", "missing", why, "none needed; for --device cuda install a CUDA build of torch")
    if dist.is_available() and dist.is_gloo_available():
        yield Check("gloo", "ok", "workers on CPUs")
    else:
        why = "torch has no gloo: --workers cannot work"
        yield Check("gloo", "FAILED", why, "install a standard build of torch")
    if dist.is_available() and dist.is_nccl_available():
        yield Check("nccl", "ok", "workers on GPUs")
    else:
        yield Check("nccl", "missing", "workers on several GPUs", "none needed on CPUs")


def _folders() -> Iterator[Check]:
    from ..graph.datasets import BENCHMARKS, cache_folder, missing_raw_files

    root = os.environ.get("PDADMM_G_DATA")
    if root and Path(root).is_dir():
        found = [name for name, benchmark in BENCHMARKS.items() if not missing_raw_files(benchmark, root)]
        yield Check("data root", "ok", f"{root}: {', '.join(found) or 'no benchmark'}")
    else:
        remedy = "set $PDADMM_G_DATA to a folder of raw files, else they are downloaded"
        yield Check("data root", "missing", f"{root}: no such folder" if root else "$PDADMM_G_DATA is not set", remedy)
    folder = cache_folder().absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK):
        yield Check("cache", "ok", f"{folder}: writable")
    else:
        remedy = "set $PDADMM_G_CACHE to a folder that you may write to"
        yield Check("cache", "FAILED", f"{folder}: not writable", remedy)


def _self_test() -> Iterator[Check]:
    """Two workers must give the weights of one, bit for bit, and the weights must have learned something."""
    import torch

    from ..estimator import GAMLPClassifier
    from ..graph.datasets import load_dataset
    from ..status import Status

    data = load_dataset("digits")
    for name, own in SELF_TESTS.items():
        one, two = (
            GAMLPClassifier(
                layers=4, hidden=32, stages=(4,), epochs=10, augment="average", hops=2, normalize="unit",
                weight_decay=0.1, unlabelled=0, random_state=0, workers=workers, **own,
            ).fit(data)
            for workers in (1, 2)
        )  # fmt: skip
        if Status.INTERRUPTED in (one.status_, two.status_):
            raise KeyboardInterrupt  # fit keeps what it has, which says nothing
        pairs = zip(one.model_.parameters(), two.model_.parameters(), strict=True)
        accuracy = one.score(data, data.train_mask)
        if not all(torch.equal(*pair) for pair in pairs):
            yield Check(name, "FAILED", "two workers give other weights than one", REPORT)
        elif accuracy < 0.9:
            yield Check(name, "FAILED", f"accuracy {accuracy:.2f} on labels that are easy to learn", REPORT)
        else:
            yield Check(name, "ok", "two workers give the weights of one, bit for bit")


@click.command(short_help="Check this installation.")
@output_options
def doctor(output: Output) -> int:
    """Show versions, devices, backends and folders, then train on two workers for a few seconds.

    Each line says ok, missing (it can be done without) or FAILED, and what to do about it. Exit code 0, or 3 if
    something failed.

    \b
    pdadmm-g doctor
    pdadmm-g doctor --json | jq '.checks[] | select(.state == "FAILED")'
    """
    checks = []
    for check in diagnose():
        checks.append(check)
        remedy = f"; remedy: {check.remedy}" if check.remedy else ""
        output.say(f"{check.state:<9}{check.name:<18}{check.detail}{remedy}")
    failed = [check.name for check in checks if check.state == "FAILED"]
    output.result({"healthy": not failed, "checks": [asdict(check) for check in checks]})
    if failed:
        error(f"failed: {', '.join(failed)}")
    return EXIT_FAILURE if failed else 0
