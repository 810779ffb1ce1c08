"""What TF32 and bfloat16 products cost in accuracy: the objective of a large chain, test accuracy on real data.

    python -m benchmarks.precision --device cuda --data-root raw --out results/performance/precision-h200

TF32 exists on a GPU only.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import warnings
from pathlib import Path

from benchmarks.bench import Size, chain
from experiments.cells import run_once
from experiments.convergence import rises
from experiments.results import write
from pdadmm_g.admm.state import Quantization
from pdadmm_g.engine.precision import tensor_cores

DATASETS = ("cora", "pubmed", "amazon-photo")


def objectives(size: Size, epochs: int) -> list[float]:
    """The Lagrangian at the end of every epoch."""
    with tensor_cores(size.precision):
        worker = chain(size, "linearized", Quantization())
        values = []
        for _ in range(epochs):
            worker.epoch()
            values.append(float(worker.risk()) + float(worker.measured.objective.double().sum()))
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", help="folder of raw benchmark files; without it only the objective is compared")
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--hidden", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", default="0,100,200")
    parser.add_argument("--precisions", default="fp32,tf32,bf16", help="TF32 is fp32 on a CPU")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "rho = ")
    size = Size(nodes=args.nodes, features=args.hidden, hidden=args.hidden, device=args.device)
    rows = []
    for precision in args.precisions.split(","):
        values = objectives(dataclasses.replace(size, precision=precision), args.epochs)
        count, largest = rises(values)
        row = {"precision": precision, "objective": values[-1], "rises": count, "largest_rise": largest}
        for dataset in DATASETS if args.data_root else ():
            settings = {"precision": precision, "weight_decay": 0.3, "augment": "average", "hops": 8,
                        "normalize": "centered", "eval_every": 5}  # fmt: skip
            seeds = [int(seed) for seed in args.seeds.split(",")]
            runs = [run_once(dataset, settings, seed, args.data_root, args.device) for seed in seeds]
            row[dataset] = [run["test_accuracy"] for run in runs]
        print(json.dumps(row), flush=True)
        rows.append(row)
    write(args.out, {"nodes": args.nodes, "hidden": args.hidden, "epochs": args.epochs, "measured": rows})


if __name__ == "__main__":
    main()
