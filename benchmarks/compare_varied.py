"""``compare`` over the development graphs in ``$PDADMM_G_DATA/varied`` and a table of our making, split by split.

The area under the ROC curve of tables of two classes (twitch with its split columns, and with a tenth of the nodes
labelled; users, of whom a tenth are labelled too), accuracy of everything else. What is in the file already is not
measured again, so that it may be made in pieces.

PDADMM_G_DATA=raw python -m benchmarks.compare_varied --out results/performance/compare-varied
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

from experiments.results import plain, read, write
from pdadmm_g import GAMLPClassifier, Graph, as_graph, compare
from pdadmm_g.comparison import FIGURES, METHODS

GRAPHS = (
    "users", "twitch-de-few", "twitch-de-many", "twitch-es-few", "twitch-es-many",
    "cornell", "texas", "wisconsin", "polblogs-few", "lastfm-few", "lastfm-many", "uai-few", "uai-many",
    "flickr7575-few", "flickr7575-many",
)  # fmt: skip
#: Tables of two classes, and the part of the labels that is known where few are.
TABLES, SHARE = ("users", "twitch"), 0.1


def load(name: str, split: int) -> Graph | None:
    """The graph with the masks of one split, where there are so many."""
    root = Path(os.environ["PDADMM_G_DATA"], "varied")
    if name.startswith(TABLES):
        if split > 2:
            return None
        return users(split) if name == "users" else twitch(root / name[:9], split, few=name.endswith("few"))
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
    parts = drawn(nodes, split) if few else nodes[f"split_{split}"]
    nodes = nodes[["id", "label", "days", "views", "partner"]].assign(split=parts)
    nodes["label"], nodes["partner"] = nodes["label"].astype(str), nodes["partner"].astype(int)
    return as_graph(nodes, pd.read_csv(folder / "edges.csv"))


def users(seed: int, number: int = 10_000) -> Graph:
    """A table as people have them: incomes from 0 to ten million, dates, gaps, categories, notes; friends are alike.

    Who leaves depends on income, on the day of joining, on the city and on whether friends leave.
    """
    draw = np.random.default_rng(seed)
    group = draw.integers(2, size=number)
    places = np.array(["Berlin", "Hamburg", "Munich", "Paris", "Lyon", "Rome", "Milan", "Oslo", "Turku", "Vaasa"])
    likely = np.stack([np.linspace(2, 1, len(places)), np.linspace(1, 2, len(places))])
    likely /= likely.sum(1, keepdims=True)
    words = np.array(["late", "parcel", "refund", "happy", "thanks", "delivery", "price", "good", "call", "again"])
    mood = np.stack([np.linspace(1, 3, len(words)), np.linspace(3, 1, len(words))])
    mood /= mood.sum(1, keepdims=True)
    joined = pd.Timestamp("2019-01-01") + pd.to_timedelta(draw.integers(0, 1500, number) + 150 * group, unit="D")
    nodes = pd.DataFrame({
        "id": [f"u{each:05d}" for each in range(number)],
        "income": np.where(draw.random(number) < 0.08, np.nan, np.exp(draw.normal(9 + 0.7 * group, 2)).clip(0, 1e7)),
        "age": np.where(draw.random(number) < 0.2, np.nan, draw.integers(18, 90, number)),
        "city": [draw.choice(places, p=likely[each]) for each in group],
        "premium": np.where(draw.random(number) < 0.4 + 0.1 * group, "yes", "no"),
        "joined": joined.strftime("%Y-%m-%d"),
        "note": [" ".join(draw.choice(words, size=6, p=mood[each])) for each in group],
        "split": "test",
        "label": np.array(["stays", "leaves"])[np.where(draw.random(number) < 0.1, 1 - group, group)],
    })  # fmt: skip
    nodes["split"] = drawn(nodes, seed)
    members = [np.flatnonzero(group == each) for each in (0, 1)]
    source = draw.integers(number, size=4 * number)
    own = draw.random(len(source)) < 0.65
    target = np.where(own, -1, draw.integers(number, size=len(source)))
    for each in (0, 1):
        alike = own & (group[source] == each)
        target[alike] = draw.choice(members[each], alike.sum())
    return as_graph(nodes, pd.DataFrame({"source": nodes["id"][source].array, "target": nodes["id"][target].array}))


def drawn(nodes: pd.DataFrame, seed: int) -> pd.Series:
    """A tenth of each class to train, and the rest to test."""
    training = nodes.groupby("label").sample(frac=SHARE, random_state=seed).index
    return pd.Series("test", nodes.index).where(~nodes.index.isin(training), "train")


def main() -> None:
    every = [*METHODS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--splits", type=int, default=10, help="so many of each graph at the most")
    parser.add_argument("--methods", nargs="+", choices=every, default=every)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of ours")
    parser.add_argument("--budget", type=float, help="seconds a split, see pdadmm-g compare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    settings = {name: yaml.safe_load(value) for name, _, value in (each.partition("=") for each in given.set)}
    warnings.simplefilter("ignore")
    rows = read(given.out).get("measured", [])
    for name in given.graphs:
        for split in range(given.splits):
            known = {row["method"] for row in rows if (row["graph"], row["split"]) == (name, split)}
            methods = [method for method in given.methods if method not in known]
            if not methods or (data := load(name, split)) is None:
                continue
            table = compare(
                data, estimator=GAMLPClassifier(**settings), methods=methods, budget=given.budget,
                random_state=given.seed, say=lambda line: print(line, file=sys.stderr),
            )  # fmt: skip
            own = table[[*FIGURES, "seconds", "note"]].astype(object).where(table.notna(), None)
            found = own.reset_index().to_dict("records")
            rows += plain([{"graph": name, "split": split} | row for row in found])
            write(given.out, {"measured": rows})
            figure = "roc_auc_ovr" if name.startswith(TABLES) else "accuracy"
            print(f"{name} {split}:", table[figure].round(4).to_dict(), flush=True)


if __name__ == "__main__":
    main()
