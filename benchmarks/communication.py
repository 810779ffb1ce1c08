"""Bytes between workers and test accuracy for several quantizations: 10 layers of 1000 neurons, one worker a layer.

python benchmarks/communication.py --data-root path/to/raw --out results/communication.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import warnings
from datetime import date
from pathlib import Path

import torch

from pdadmm_g.config import ModelConfig
from pdadmm_g.datasets import MASKS, load_dataset
from pdadmm_g.graph import GraphAugment
from pdadmm_g.parallel import train_in_workers
from pdadmm_g.stage import Examples

CASES = {
    "none": {},
    "p 16": {"quantize": "p", "bits": 16},
    "p 8": {"quantize": "p", "bits": 8},
    "p,q 16": {"quantize": "pq", "bits": 16},
    "p,q 8": {"quantize": "pq", "bits": 8},
    "p,q 4": {"quantize": "pq", "bits": 4},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root")
    parser.add_argument("--datasets", nargs="+", default=["citeseer", "pubmed", "coauthor-cs"])
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=40, help="of each of the stages 2, 5, 10")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = []
    for name in args.datasets:
        data = load_dataset(name, args.data_root)
        parts = [data[mask].nonzero().view(-1) for mask in MASKS]
        X = GraphAugment("average", 16).features(data, torch.cat(parts)).split([len(part) for part in parts])
        training, validation, test = (Examples(x, data.y[part]) for x, part in zip(X, parts, strict=True))
        unquantized = None
        for case, settings in CASES.items():
            start, accuracies = time.perf_counter(), []
            for seed in args.seeds:
                # No early stopping: every case makes the same number of epochs, so that bytes compare.
                config = ModelConfig(
                    hidden=1000, epochs=args.epochs, patience=args.epochs, eval_every=5, tolerance=0,
                    solver="linearized", workers=args.workers, **settings,
                ).resolved()  # fmt: skip
                result = train_in_workers(training, validation, int(data.y.max()) + 1, config, seed=seed)
                with torch.no_grad():
                    accuracies.append(float((result.model(test.X).argmax(1) == test.y).double().mean()))
                per_epoch = result.history[-1]["bytes_sent"]
            unquantized = unquantized or per_epoch
            row = {
                "dataset": name,
                "quantized": case,
                "bytes_per_epoch": per_epoch,
                "saved": 1 - per_epoch / unquantized,
                "test_accuracy": statistics.mean(accuracies),
                "spread": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
                "seeds": args.seeds,
            }
            rows.append(row)
            print(
                f"{name:<14}{case:<8}{per_epoch:>12,} bytes an epoch  {row['saved']:6.1%} saved  "
                f"test {row['test_accuracy']:.3f}  ({time.perf_counter() - start:.0f} s)",
                flush=True,
            )
            if args.out:
                args.out.parent.mkdir(parents=True, exist_ok=True)
                hardware = {"cores": os.cpu_count(), "machine": platform.machine(), "torch": torch.__version__}
                args.out.write_text(
                    json.dumps({"date": str(date.today()), "hardware": hardware, "rows": rows}, indent=1)
                )


if __name__ == "__main__":
    main()
