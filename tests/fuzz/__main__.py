"""``python -m tests.fuzz``: a campaign over all targets, or the cases of one of them in this process."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from . import __doc__ as description
from .campaign import SHARES, campaign, reader_versions


def main() -> None:
    """Read the command line, run the cases, write what was seen."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", type=int, default=100_000, help="in all, dealt to the targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("--out", default="results/fuzz.json")
    parser.add_argument("--target", choices=SHARES, help="only this one, in this process")
    parser.add_argument("--guided", action="store_true", help="with atheris")
    arguments = parser.parse_args()
    out = Path(arguments.out).resolve()
    # Imported here: nothing that reads may be there before atheris watches.
    if arguments.target and arguments.guided:
        from .guided import run_guided

        run_guided(arguments.target, arguments.cases, arguments.seed, out)
    elif arguments.target:
        from .cases import run_target

        run_target(arguments.target, arguments.cases, arguments.seed, out)
    else:
        from experiments.record import provenance
        from pdadmm_g.utils import write_atomically

        result = provenance(" ".join(["python -m tests.fuzz", *sys.argv[1:]]))
        result["versions"] |= reader_versions()
        result |= campaign(arguments.cases, arguments.seed, arguments.jobs)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, json.dumps(result, indent=1) + "\n")
        print(f"{result['cases']} cases, {result['violations']} violations; written to {out}")


if __name__ == "__main__":
    main()
