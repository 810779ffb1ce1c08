"""Kill and resume random runs at random; each must end with the weights of the undisturbed run, bit for bit.

Checks also that no run hangs, no process is left and no checkpoint is lost. Exit code 1 if anything failed; a failed
run is repeated with --runs 1 and its seed. Where --out has runs already, only those that are missing or failed are
carried out: a soak that was cut short goes on.

    python -m tests.soak --runs 20
    python -m tests.soak --runs 200 --jobs 8 --out results/soak/soak
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from experiments.results import read, write

from .cases import FAULTS, draw
from .trial import Outcome, Trial


def soak(seeds: Sequence[int], jobs: int, on_run: Callable[[Outcome], None]) -> None:
    """Carry out the runs of these seeds, ``jobs`` at a time. No process and no file outlives this."""
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


def summarize(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts by kind of fault, workers, shards, data and quantization, and every failure with its seed."""
    outcomes = sorted(outcomes, key=lambda outcome: outcome.case.seed)
    cases = [outcome.case for outcome in outcomes]
    caused = [fault for outcome in outcomes for fault in outcome.caused]
    attempts = [each for case in cases for each in (*case.faults, case)]

    def counts(values: Any) -> dict[Any, int]:
        return dict(sorted(Counter(values).items()))

    return {
        "runs": len(outcomes),
        "failures": [{"seed": each.case.seed, "message": each.failure} for each in outcomes if each.failure],
        "attempts": sum(outcome.attempts for outcome in outcomes),
        "faults": len(caused),
        "by_fault": {
            kind: {"caused": sum(name == kind for name, _ in caused), "in_mid_training": caused.count((kind, True))}
            for kind in FAULTS
        },
        "by_workers": counts(attempt.workers for attempt in attempts),
        "by_shards": counts(attempt.shards for attempt in attempts),
        "shards_changed": sum(not case.exact for case in cases),
        "by_dataset": counts(case.settings["dataset"] for case in cases),
        "with_unlabelled": sum(case.settings.get("unlabelled", 0) > 0 for case in cases),
        "with_class_weights": sum(case.settings.get("class-weight") == "balanced" for case in cases),
        "by_quantization": counts(
            f"{case.settings['quantize']} {case.settings['bits']} bits" if "bits" in case.settings else "none"
            for case in cases
        ),
        "outcomes": [
            {"seed": each.case.seed, "failure": each.failure, "caused": each.caused, "attempts": each.attempts}
            for each in outcomes
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the next has the next")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, help="folder of results and name of the row, written after every run")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.runs)
    outcomes = [
        Outcome(draw(one["seed"]), None, [(kind, middle) for kind, middle in one["caused"]], one["attempts"])
        for one in read(options.out).get("outcomes", [])
        if one["seed"] in seeds and not one["failure"]
    ]

    def show(outcome: Outcome) -> None:
        outcomes.append(outcome)
        write(options.out, summarize(outcomes))
        faults = ", ".join(f"{kind}{'' if middle else ' early'}" for kind, middle in outcome.caused)
        print(f"seed {outcome.case.seed}: {outcome.failure or 'same weights'} ({faults or 'undisturbed'})", flush=True)

    done = {one.case.seed for one in outcomes}
    soak([number for number in seeds if number not in done], options.jobs, show)
    result = summarize(outcomes)
    print(f"{options.runs} runs, {result['faults']} faults; {len(result['failures'])} runs failed")
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
