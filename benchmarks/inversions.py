"""Does it matter how often the exact solver inverts? The objective, with inversions every so many epochs.

    python -m benchmarks.inversions --data-root raw --out results/performance/inversions

10 layers of 100 neurons at once, labelled nodes alone, average of 8 hops, centred, weight decay 0.1: the objective
after so many epochs, and the best validation accuracy.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from experiments.results import write
from pdadmm_g import GAMLPClassifier, load_dataset
from pdadmm_g.engine.worker import Worker

EPOCHS = (10, 20, 50, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True, help="folder of raw benchmark files")
    parser.add_argument("--datasets", default="cora,citeseer,amazon-photo")
    parser.add_argument("--every", default="1,5,10,20")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for dataset in args.datasets.split(","):
        data = load_dataset(dataset, args.data_root)
        for every in map(int, args.every.split(",")):
            Worker.invert_every = every
            clf = GAMLPClassifier(
                layers=10, stages=(10,), hidden=100, epochs=max(EPOCHS), patience=None, unlabelled=0, weight_decay=0.1,
                augment="average", hops=8, normalize="centered", random_state=0,
            ).fit(data)  # fmt: skip
            row = {"dataset": dataset, "every": every}
            row |= {f"objective_{epoch}": round(clf.history_[epoch - 1]["objective"], 3) for epoch in EPOCHS}
            row["validation"] = max(record["val_accuracy"] or 0.0 for record in clf.history_)
            rows.append(row)
            print(json.dumps(row), flush=True)
    write(args.out, {"measured": rows})


if __name__ == "__main__":
    main()
