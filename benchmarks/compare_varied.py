"""``compare`` over the development graphs in ``$PDADMM_G_DATA/varied``: a table by graph and method, means of splits.

Accuracy of the graphs, the area under the ROC curve of the twitch tables (with their split columns, and with a tenth of
the nodes labelled); figures of every split go to a CSV file.

PDADMM_G_DATA=raw python -m benchmarks.compare_varied
PDADMM_G_DATA=raw python -m benchmarks.compare_varied --graphs texas twitch-de-few --splits 3 --methods lr-graph ours
PDADMM_G_DATA=raw python -m benchmarks.compare_varied --methods ours --set row_normalize=false --set layers=2
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
import yaml

from pdadmm_g import GAMLPClassifier, Graph, as_graph, compare
from pdadmm_g.comparison import METHODS

GRAPHS = (
    "cornell", "texas", "wisconsin", "polblogs-few", "lastfm-few", "lastfm-many", "uai-few", "uai-many",
    "flickr7575-few", "flickr7575-many", "twitch-de-few", "twitch-de-many", "twitch-es-few", "twitch-es-many",
)  # fmt: skip
#: The part of the twitch tables that is labelled where few labels are.
SHARE = 0.1


def load(name: str, split: int) -> Graph | None:
    """The graph with the masks of one split, where there are so many."""
    root = Path(os.environ["PDADMM_G_DATA"], "varied")
    if name.startswith("twitch"):
        return None if split > 2 else twitch(root / name.rpartition("-")[0], split, few=name.endswith("few"))
    with np.load(root / f"{name}.npz") as arrays:
        if split >= len(arrays["train_mask"]):
            return None
        x = None
        if "x_data" in arrays:
            parts = (arrays[f"x_{part}"] for part in ("data", "indices", "indptr"))
            x = sp.csr_array(tuple(parts), shape=tuple(arrays["x_shape"]))
        data = as_graph(x, arrays["y"], arrays["edge_index"])
        data.num_nodes = len(arrays["y"]) if x is None else None
        for mask in ("train_mask", "val_mask", "test_mask"):
            data[mask] = torch.from_numpy(arrays[mask][split])
    return data


def twitch(folder: Path, split: int, *, few: bool) -> Graph:
    """A table with the split of that column, or with a tenth of each class to train and the rest to test."""
    nodes = pd.read_csv(folder / "nodes.csv").rename(columns={"user": "id", "mature": "label"})
    parts = nodes[f"split_{split}"]
    if few:
        drawn = nodes.groupby("label").sample(frac=SHARE, random_state=split).index
        parts = pd.Series("test", nodes.index).where(~nodes.index.isin(drawn), "train")
    nodes = nodes[["id", "label", "days", "views", "partner"]].assign(split=parts)
    nodes["label"], nodes["partner"] = nodes["label"].astype(str), nodes["partner"].astype(int)
    return as_graph(nodes, pd.read_csv(folder / "edges.csv"))


def main() -> None:
    every = [*METHODS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--splits", type=int, default=10, help="so many of each graph at the most")
    parser.add_argument("--methods", nargs="+", choices=every, default=every)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of ours")
    parser.add_argument("--budget", type=float, help="seconds a split, see pdadmm-g compare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="compare_varied.csv", help="figures of every split")
    given = parser.parse_args()
    settings = {name: yaml.safe_load(value) for name, _, value in (each.partition("=") for each in given.set)}
    warnings.simplefilter("ignore")
    rows, columns = [], {}
    for name in given.graphs:
        for split in range(given.splits):
            if (data := load(name, split)) is None:
                break
            table = compare(
                data, estimator=GAMLPClassifier(**settings), methods=given.methods, budget=given.budget,
                random_state=given.seed, say=lambda line: print(line, file=sys.stderr),
            )  # fmt: skip
            figure = "roc_auc_ovr" if name.startswith("twitch") else "accuracy"
            rows.append(table.reset_index().assign(graph=name, split=split, figure=figure))
            pd.concat(rows).to_csv(given.out, index=False)
            print(f"{name} {split}:", table[figure].round(4).to_dict(), file=sys.stderr, flush=True)
        own = pd.concat([row for row in rows if row["graph"].iloc[0] == name]).groupby("method", sort=False)
        columns[name] = own[figure].mean().round(4)
        columns[name]["best - ours"] = columns[name].drop("ours", errors="ignore").max() - columns[name].get(
            "ours", np.nan
        )
        columns[name]["seconds, ours"] = own["seconds"].mean().round(1).get("ours", np.nan)
    print(pd.DataFrame(columns).T.to_string(float_format=lambda value: f"{value:.3f}"))


if __name__ == "__main__":
    main()
