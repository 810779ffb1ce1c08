"""``python -m tests.fuzz``: all doors, or one of them."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, run the cases, write what was seen."""
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=50_000, help="in all, dealt to the doors")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of results and name of the row")
    parser.add_argument("--door", choices=DOORS, help="only this one")
    options = parser.parse_args(arguments)
    names = [options.door] if options.door else [*DOORS]
    share = options.cases / sum(SHARES.get(name, 1) for name in names)
    targets: dict[str, dict[str, int]] = {}
    for name in names:
        settings = hypothesis.settings(LARGE, max_examples=max(1, round(share * SHARES.get(name, 1))))
        try:
            endings: dict[str, int] = run_door(DOORS[name], settings, options.seed)
        except Exception:
            traceback.print_exc()
            endings = {"violation": 1}
        targets[name] = {"cases": sum(endings.values()), **dict.fromkeys(ENDINGS, 0), **endings}
        print(f"{name}: {targets[name]}", flush=True)
    totals: dict[str, Any] = {key: sum(each[key] for each in targets.values()) for key in ("cases", *ENDINGS)}
    if options.out is not None:
        write(options.out, {"hypothesis": hypothesis.__version__, **totals, "targets": targets})
    sys.exit(totals["violation"] > 0)


if __name__ == "__main__":
    main()
