"""How often the 90% interval of what is expected holds the truth, and how good probabilities are: a Markdown table.

Each draw knows the labels of so many nodes, which train and decide out of fold; all other labels tell the truth.

PDADMM_G_DATA=raw python -m benchmarks.estimates digits users twitch-de-few --labels 200 --draws 30
"""

from __future__ import annotations

import argparse
import copy

import numpy as np
import torch

from pdadmm_g import GAMLPClassifier, Graph, load_dataset
from pdadmm_g.graph.graph import MASKS
from pdadmm_g.graph.targets import hard_labels
from pdadmm_g.metrics import metrics

from .compare_varied import load

FIGURES = ("accuracy", "roc_auc_ovr")


def drawn(data: Graph, labels: int, seed: int) -> tuple[Graph, np.ndarray, np.ndarray]:
    """The graph with so many labels and no masks, the other labelled nodes, and their true labels."""
    y = hard_labels(data)
    order = np.random.default_rng(seed).permutation((y >= 0).nonzero().view(-1).numpy())
    data = copy.copy(data)
    data.y = y.clone()
    for mask in MASKS:
        data[mask] = None
    data.y[torch.from_numpy(order[labels:])] = -1
    return data, order[labels:], y[order[labels:]].numpy()


def measured(name: str, labels: int, seed: int) -> dict[str, float]:
    """Of one draw: true figures, whether their intervals hold them, and the calibration of the probabilities."""
    graph = load_dataset(name) if name == "digits" else load(name, 0)
    assert graph is not None
    data, others, y = drawn(graph, labels, seed)
    clf = GAMLPClassifier(random_state=seed).fit(data)
    assert clf.estimate_ is not None
    found = metrics(y, clf.predict_proba(data, others))
    row = {name: float(found[name] or 0.0) for name in (*FIGURES, "log_loss", "calibration_error")}
    for figure in FIGURES:
        value, low, high = clf.estimate_.figures[figure]
        row |= {f"{figure} held": low <= row[figure] <= high, f"{figure} expected": value}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", default=["digits"])
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--draws", type=int, default=30)
    given = parser.parse_args()
    print("| graph | accuracy | expected | interval held it | AUROC | expected | interval held it | log loss | ECE |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.graphs:
        rows = [measured(name, given.labels, seed) for seed in range(given.draws)]
        cells = [name]
        for figure in FIGURES:
            cells += [f"{np.mean([row[each] for row in rows]):.3f}" for each in (figure, f"{figure} expected")]
            cells.append(f"{sum(row[f'{figure} held'] for row in rows)} of {len(rows)}")
        cells += [f"{np.mean([row[each] for row in rows]):.3f}" for each in ("log_loss", "calibration_error")]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
