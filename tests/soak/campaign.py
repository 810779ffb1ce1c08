"""Many runs of the soak, some at a time, and what came of them."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from pdadmm_g.errors import InputError
from pdadmm_g.utils import decoded, read_text, reading

from .cases import FAULTS, draw
from .trial import Outcome, Trial


def soak(seeds: Sequence[int], jobs: int, on_run: Callable[[Outcome], None]) -> None:
    """Carry out the runs of these seeds, ``jobs`` at a time. No process and no file outlives this."""
    if not Path("/proc/self/environ").exists():
        raise InputError("soak finds its processes under /proc, which this system does not have: run it on Linux")
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="pdadmm-g-soak-") as name, ThreadPoolExecutor(jobs) as pool:
        trials = [Trial(draw(number), Path(name, str(number)), stop) for number in seeds]
        futures = [pool.submit(trial.carry_out) for trial in trials]
        try:
            for future in as_completed(futures):
                on_run(future.result())
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def read_outcomes(path: Path) -> list[Outcome]:
    """The runs that an earlier call wrote there: it may have been cut short. None where there is no such file."""
    if not path.exists():
        return []
    with reading(path, "the soak", "; choose another --out"):
        found = decoded(Any, read_text(path, "the soak"))
        try:
            return [
                Outcome(
                    draw(one["seed"]),
                    one["failure"],
                    [(kind, middle) for kind, middle in one["caused"]],
                    one["attempts"],
                )
                for one in found["outcomes"]
            ]
        except (KeyError, TypeError):
            raise ValueError("it is not one that can go on") from None


def summarize(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts by kind of fault, workers, shards, data and quantization, and every failure with its seed."""
    outcomes = sorted(outcomes, key=lambda outcome: outcome.case.seed)
    caused = [fault for outcome in outcomes for fault in outcome.caused]
    cases = [outcome.case for outcome in outcomes]
    workers = Counter(count for case in cases for count in (*(fault.workers for fault in case.faults), case.workers))
    shards = Counter(count for case in cases for count in (*(fault.shards for fault in case.faults), case.shards))
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
        "faults": len(caused),
        "share_in_mid_training": round(sum(middle for _, middle in caused) / max(len(caused), 1), 3),
        "by_fault": {
            kind: {
                "caused": sum(name == kind for name, _ in caused),
                "in_mid_training": sum(middle for name, middle in caused if name == kind),
            }
            for kind in FAULTS
        },
        "by_workers": dict(sorted(workers.items())),
        "by_shards": dict(sorted(shards.items())),
        "shards_changed": sum(not case.exact for case in cases),
        "by_dataset": dict(sorted(Counter(case.settings["dataset"] for case in cases).items())),
        "with_unlabelled": sum(case.settings.get("unlabelled", 0) > 0 for case in cases),
        "with_class_weights": sum("class-weight" in case.settings for case in cases),
        "by_quantization": dict(sorted(quantized.items())),
        "outcomes": [
            {"seed": one.case.seed, "failure": one.failure, "caused": one.caused, "attempts": one.attempts}
            for one in outcomes
        ],
    }
