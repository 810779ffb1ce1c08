"""The cases of one target, one after the other, each from its own seed."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from .limits import inside, judge, limits
from .tally import Tally
from .targets import READERS, TARGETS
from .valid import trained


def run_target(name: str, cases: int, seed: int, report: Path) -> None:
    """Run the cases of the seeds from ``seed`` on; what was seen goes to ``report``, the current seed beside it."""
    tally = Tally(cases, report)
    trained()  # before the limits, and in nobody's time
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary, limits():
        folder = Path(temporary) / "case"
        folder.mkdir()
        for number in range(seed, seed + cases):
            report.with_suffix(".at").write_text(str(number))
            with inside(folder):
                ending, what = run_case(name, number, folder)
            tally.add(ending, what, seed=number)
            if any(folder.iterdir()):
                shutil.rmtree(folder)
                folder.mkdir()


def run_case(name: str, number: int, folder: Path) -> tuple[str, str]:
    """The case of this seed in an empty folder: how it ended, and what was found."""
    ending, what = judge(lambda: TARGETS[name](random.Random(f"{name} {number}"), folder))
    if ending == "refused" and name in READERS:
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        if left := [file for file in files if file.endswith((".tmp", "again.yaml", "predictions.csv"))]:
            return "violation", f"refused, but left {left}"
    return ending, what
