"""Kill and resume random runs at random; each must end with the weights of the undisturbed run, bit for bit.

Checks also that no run hangs, no process is left and no checkpoint is lost. Exit code 1 if anything failed; a failed
run is repeated with --runs 1 and its seed. Where --out has runs already, only those that are missing or failed are
carried out: a soak that was cut short goes on.

    python -m tests.soak --runs 20
    python -m tests.soak --runs 200 --jobs 8 --out results/soak.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.record import provenance
from pdadmm_g.utils import check_folder, write_atomically

from .campaign import read_outcomes, soak, summarize
from .trial import Outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the next has the next")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, help="JSON file, written after every run")
    options = parser.parse_args(arguments)
    out: Path | None = options.out
    if out is not None:
        check_folder(out)
    about = provenance(f"python -m tests.soak --runs {options.runs} --seed {options.seed} --jobs {options.jobs}")
    seeds = range(options.seed, options.seed + options.runs)
    outcomes = [one for one in read_outcomes(out) if one.case.seed in seeds and not one.failure] if out else []

    def show(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if out is not None:
            write_atomically(out, json.dumps(about | summarize(outcomes), indent=1) + "\n")
        faults = ", ".join(f"{kind}{'' if middle else ' early'}" for kind, middle in outcome.caused)
        print(
            f"seed {outcome.case.seed}: {outcome.failure or 'same weights'} ({faults or 'undisturbed'})",
            file=sys.stderr, flush=True,
        )  # fmt: skip

    done = {one.case.seed for one in outcomes}
    soak([number for number in seeds if number not in done], options.jobs, show)
    result = summarize(outcomes)
    print(
        f"{options.runs} runs, {result['faults']} faults, {result['share_in_mid_training']:.0%} of them in mid "
        f"training; {len(result['failures'])} runs failed"
    )
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
