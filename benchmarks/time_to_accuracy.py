"""How long it takes from a graph in memory to a trained model, and how accurate that is, beside what else people use.

    python -m benchmarks.time_to_accuracy --data-root raw --out results/performance/time-to-accuracy

Each measurement is a process of its own: seconds of training alone, all choices included (the graph is loaded,
everything is imported), seconds of all its threads together, which other work on the machine hardly changes, accuracy
on the validation and the test nodes, and the largest memory of the process less that before, as a multiple of the
features. Splits are those of ``pdadmm-g reproduce random-splits``. Methods take turns. Each peer trains with one usual
setting until its early stop on the validation nodes, on all cores. What is in the file already is not measured again,
so that it may be made in pieces. Beside the benchmark graphs there is ``communities``, of 20,000 nodes, 3600 of which
train.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from experiments.results import read, write
from experiments.splits import random_split
from pdadmm_g import GAMLPClassifier, Graph, load_dataset
from pdadmm_g.baselines import Baseline
from pdadmm_g.graph.graph import MASKS, as_mask

DATASETS = (
    "cora", "citeseer", "pubmed", "amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics",
)  # fmt: skip
#: A graph of our making.
COMMUNITIES = "communities"
Predict = Callable[[Any], Any]


def communities(seed: int, nodes: int = 20_000, classes: int = 10, features: int = 300, degree: int = 10) -> Graph:
    """A stochastic block model: noisy features around a centre a class, and three of four edges within a class."""
    draw = np.random.default_rng(seed)
    y = draw.integers(classes, size=nodes)
    X = draw.normal(size=(classes, features))[y] + 6 * draw.normal(size=(nodes, features))
    members = [np.flatnonzero(y == each) for each in range(classes)]
    source = draw.integers(nodes, size=nodes * degree // 2)
    target = draw.integers(nodes, size=len(source))
    within = draw.random(len(source)) < 0.75
    target[within] = [draw.choice(members[each]) for each in y[source[within]]]
    parts = np.split(draw.permutation(nodes), [3600, 4600])
    masks = zip(MASKS, parts, strict=True)
    return Graph(
        x=torch.from_numpy(X).float(),
        edge_index=torch.from_numpy(np.stack([source, target])),
        y=torch.from_numpy(y),
        **{name: as_mask(torch.from_numpy(part), nodes, name) for name, part in masks},
    )


def estimator(model: Any) -> Callable[[Any, int], Predict]:
    """A method of this library."""

    def fit(data: Any, seed: int) -> Predict:
        return clone(model).set_params(random_state=seed).fit(data).predict

    return fit


def perceptron(data: Any, seed: int) -> Predict:
    """scikit-learn's network on the features of the training nodes, each row divided by its sum; no graph."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import normalize

    X = normalize(data.x.to_dense().numpy(), norm="l1")
    model = MLPClassifier(max_iter=500, random_state=seed).fit(X[data.train_mask], data.y[data.train_mask])
    return lambda _: model.predict(X)


def sage(data: Any, seed: int, hidden: int = 64, patience: int = 100) -> Predict:
    """GraphSAGE of torch_geometric, two layers with dropout, by Adam; the best epoch on validation."""
    from torch_geometric.nn.models import GraphSAGE

    torch.manual_seed(seed)
    x, edges = torch.nn.functional.normalize(data.x.to_dense(), p=1, dim=1), data.edge_index
    model = GraphSAGE(x.shape[1], hidden, 2, int(data.y.max()) + 1, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best, since, kept = -1.0, 0, model.state_dict()
    for _ in range(600):
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, edges)[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(x, edges).argmax(1) == data.y
        accuracy = float(right[data.val_mask].double().mean())
        since += 1
        if accuracy > best:
            best, since, kept = accuracy, 0, copy.deepcopy(model.state_dict())
        elif since >= patience:
            break
    model.load_state_dict(kept)

    def predict(_: Any) -> Any:
        with torch.no_grad():
            return model(x, edges).argmax(1).numpy()

    return predict


METHODS: dict[str, Callable[[Any, int], Predict]] = {
    "GAMLPClassifier()": estimator(GAMLPClassifier()),
    "GAMLPClassifier(unlabelled=0)": estimator(GAMLPClassifier(unlabelled=0)),
    "SGC": estimator(
        Baseline("sgc", normalize="unit", learning_rate=0.1, weight_decay=0.01, threads=torch.get_num_threads())
    ),
    "SIGN": estimator(
        Baseline("sign", augment="hops", normalize="unit", weight_decay=0.1, threads=torch.get_num_threads())
    ),
    "GCN": estimator(Baseline("gcn", hidden=64, epochs=600, threads=torch.get_num_threads())),
    "SAGE": sage,
    "scikit-learn MLP": perceptron,
}


def measure(method: str, dataset: str, data_root: str, split: int) -> dict[str, Any]:
    """One training."""
    data = communities(split) if dataset == COMMUNITIES else random_split(load_dataset(dataset, data_root), split)
    before, start, worked = _memory(), time.perf_counter(), time.process_time()
    predict = METHODS[method](data, split)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    memory = (_memory() - before) / (4 * data.x.numel())
    right = torch.as_tensor(predict(data)) == data.y
    return {
        "dataset": dataset,
        "split": split,
        "method": method,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(worked, 2),
        "validation": round(float(right[data.val_mask].double().mean()), 4),
        "accuracy": round(float(right[data.test_mask].double().mean()), 4),
        "memory_over_features": round(memory, 2),
    }


def _memory() -> int:
    """The most bytes that the process has had so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True, help="folder of raw benchmark files")
    parser.add_argument("--datasets", default=",".join((*DATASETS, COMMUNITIES)))
    parser.add_argument("--methods", default="", help="only those whose name has one of these words")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    methods = [name for name in METHODS if any(word in name for word in args.methods.split(","))]
    rows = read(args.out).get("measured", [])
    known = {tuple(row[name] for name in ("method", "dataset", "split")) for row in rows}
    for split in range(args.splits):
        for dataset in args.datasets.split(","):
            for method in methods:
                if (method, dataset, split) in known:
                    continue
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    rows.append(pool.apply(measure, (method, dataset, args.data_root, split)))
                print(json.dumps(rows[-1]), flush=True)
                write(args.out, {"measured": rows})


if __name__ == "__main__":
    main()
