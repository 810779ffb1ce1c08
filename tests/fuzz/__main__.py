"""``python -m tests.fuzz``: all doors, each in a process of its own, or one of them in this process."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from experiments.results import write

from . import __doc__ as description
from .doors import DOORS
from .limits import ending, inside, limits
from .strategies import Draw

#: Cases of a door for one of another: those that train take long.
SHARES = {"fit": 0.02, "run": 0.2, "cli": 0.2}
ENDINGS = ("accepted", "refused", "violation")
#: As in the suite, but always other cases.
LARGE = hypothesis.settings(deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
#: What a door that only reads must not leave behind when it refuses.
LEFT = (".tmp", "again.yaml", "predictions.csv")


def run_door(
    door: Callable[[Draw, Path], None], settings: hypothesis.settings, seed: int | None = None
) -> Counter[str]:
    """How the cases of a door ended; raises the first violation, shrunk."""
    endings: Counter[str] = Counter()

    def case(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name, inside(Path(name)):
            end = ending(lambda: door(data.draw, Path(name)))
            left = [str(path) for path in Path(name).rglob("*") if path.name.endswith(LEFT)]
        assert end == "accepted" or not left, f"refused, but left {left}"
        endings[end] += 1

    test = settings(given(st.data())(case))
    with limits():
        (test if seed is None else hypothesis.seed(seed)(test))()
    return endings


def in_a_process(name: str, cases: int, seed: int) -> dict[str, Any]:
    """One door in its own process; a crash of the interpreter is a violation too."""
    line = [sys.executable, "-m", "tests.fuzz", "--door", name, "--cases", str(cases), "--seed", str(seed)]
    process = subprocess.run(line, capture_output=True, text=True)
    endings = {"violation": 1} if process.returncode else json.loads(process.stdout)
    print(f"{name}: {endings}\n{process.stderr if process.returncode else ''}", end="", flush=True)
    return {"cases": sum(endings.values()), **dict.fromkeys(ENDINGS, 0), **endings}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, run the cases, write what was seen."""
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=50_000, help="in all, dealt to the doors")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="doors at a time")
    parser.add_argument("--out", type=Path, help="folder of results and name of the row")
    parser.add_argument("--door", choices=DOORS, help="only this one, in this process")
    options = parser.parse_args(arguments)
    if options.door:
        settings = hypothesis.settings(LARGE, max_examples=options.cases)
        print(json.dumps(run_door(DOORS[options.door], settings, options.seed)))
        return
    share = options.cases / sum(SHARES.get(name, 1) for name in DOORS)
    wanted = {name: max(1, round(share * SHARES.get(name, 1))) for name in DOORS}
    with ThreadPool(options.jobs) as pool:
        found = pool.map(lambda name: in_a_process(name, wanted[name], options.seed), wanted, chunksize=1)
    totals: dict[str, Any] = {key: sum(each[key] for each in found) for key in ("cases", *ENDINGS)}
    totals["targets"] = dict(zip(wanted, found, strict=True))
    write(options.out, {"hypothesis": hypothesis.__version__, **totals})
    print(f"{totals['cases']} cases, {totals['violation']} violations")
    sys.exit(totals["violation"] > 0)


if __name__ == "__main__":
    main()
