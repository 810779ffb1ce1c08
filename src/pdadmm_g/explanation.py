r"""Why a model says what it says: what columns are worth to it, a node's own and those of its neighbours.

Before they are normalised, the features of node i are sums over nodes,

.. math:: x_i^{(k)} = \sum_j R_{ij}^{(k)} h_j

in each block k, with the columns :math:`h_j` of node j. So what comes from the node itself, :math:`R_{ii}^{(k)} h_i`,
is told from what comes from others exactly, also where those that are asked about are neighbours of each other.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import clone
from torch import Tensor

from .config import Settings
from .errors import InputError
from .estimator import Estimator, parameters
from .graph.augmentation import GraphAugment, feature_rows
from .graph.columns import feature_names
from .graph.examples import with_parts
from .graph.graph import Graph, as_mask, id_order, reordered
from .graph.readers import ids_of, labels_of
from .graph.tables import DEGREE
from .graph.targets import class_places, has_columns, labelled
from .metrics import OUT_OF_FOLD, score, scoring_name
from .model import outputs
from .utils import compute_threads

#: Most columns, or groups of them, that are looked at one by one, most nodes that are scored, and most neighbours of a
#: node whose edges are taken away one at a time.
MOST_GROUPS, MOST_NODES, MOST_NEIGHBOURS = 30, 500, 50
#: Most numbers in the matrices R.
MOST_SHARES = 10**8
ALL, LABELS = "all columns", "known labels"
#: The masks by whose nodes importance is measured, the first that has some, and what these are called.
PARTS = {"test": "test", "val": "validation", "train": "training"}


class Part:
    """The rows of some nodes under one augmentation, and what these would be if columns or edges were others."""

    def __init__(self, augment: GraphAugment, asked: Asked) -> None:
        self.augment, self.asked = augment, asked
        self.H = self._columns(asked.x)
        self.R = self._shares(asked.edges, asked.weights)
        self.X = self.R @ self.H
        #: What is known of the labels of neighbours, where that is part of the features.
        self.labels = self._labels(asked.data, asked.data.edge_index, asked.own)

    def _columns(self, x: Tensor) -> Tensor:
        """The columns h of such rows of features."""
        H = feature_rows(x, self.augment.dtype, row_normalize=self.augment.row_normalize, sparse=True)
        return (H if self.augment.basis is None else H @ self.augment.basis).to_dense()

    def _shares(self, edges: Tensor, weights: Tensor | None) -> Tensor:
        """R (blocks, nodes, all within reach): unit vectors of the nodes, taken along the edges backwards."""
        nodes = self.asked.nodes
        units = torch.zeros(len(self.asked.near), len(nodes))
        units[nodes, torch.arange(len(nodes))] = 1
        A = self.augment.adjacency(Graph(x=units, edge_index=edges.flip(0), edge_weight=weights))
        return torch.stack([*self.augment.operator(A, units)]).mT

    def _labels(self, data: Graph, edges: Tensor, nodes: Tensor) -> Tensor:
        """The features of ``nodes`` by the labels that are known among such edges."""
        if self.augment.known is None:
            return torch.zeros(len(nodes), 0)
        data = copy.copy(data)
        data.edge_index = edges
        return self.augment.known.rows(data, nodes, self.augment.label_hops)

    def features(self, X: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """The rows of such columns (blocks, nodes, columns) and known labels, its own by default."""
        X = self.X if X is None else X
        rows = torch.cat([*X, self.labels if labels is None else labels], dim=1)
        return self.augment._normalized(rows)  # a copy, which is overwritten

    def heard(self, each: Tensor) -> Tensor:
        """What is made of each feature before augmentation, by what is made of each column of the rows."""
        own = each[: len(each) - self.labels.shape[1]].view(len(self.X), -1).sum(0)
        return own if self.augment.basis is None else self.augment.basis.abs() @ own

    def exchanged(self, columns: list[int], values: Tensor) -> dict[str, Tensor]:
        """The rows as if the nodes themselves, and as if all others, had these values in some columns."""
        x, nodes = self.asked.x, self.asked.nodes

        def change(rows: Any) -> Tensor:
            other = x[rows].clone()
            other[:, columns] = values[rows]
            return self._columns(other) - self.H[rows]

        own = self.R[:, torch.arange(len(nodes)), nodes].unsqueeze(2) * change(nodes)
        found = {"own": self.features(self.X + own)}
        if self.asked.joined:
            rows = (x[:, columns] != values).any(1).nonzero().view(-1)
            few = 2 * len(rows) < len(x)
            changed = change(rows if few else slice(None))
            moved, X = changed.any(0), self.X - own
            X[..., moved] += (self.R[:, :, rows] if few else self.R) @ changed[:, moved]
            found["neighbours"] = self.features(X)
        return found

    def without(self, kept: Tensor, there: Tensor) -> Tensor:
        """The rows where only these of the edges within reach, and these of all, are there."""
        asked, labels = self.asked, None
        weights = None if asked.weights is None else asked.weights[kept]
        if self.augment.known is not None:
            data = copy.copy(asked.data)
            data.edge_weight = None if data.get("edge_weight") is None else data.edge_weight[there]
            labels = self._labels(data, data.edge_index[:, there], asked.own)
        return self.features(self._shares(asked.edges[:, kept], weights) @ self.H, labels)


class Asked:
    """Some nodes, and what the model says of them as if columns or edges were others."""

    def __init__(self, estimator: Estimator, data: Graph, nodes: Tensor) -> None:
        self.estimator = estimator
        augment = estimator.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
        #: Do neighbours have a say?
        self.joined = augment.asks_neighbours
        edges = data.edge_index if self.joined else torch.zeros(2, 0, dtype=torch.int64)
        weights = data.get("edge_weight") if self.joined else None
        #: All nodes within reach, and those that these are joined with; all, where weights count by their mean.
        self.near = torch.arange(data.num_nodes)
        if weights is None:
            near = as_mask(nodes, data.num_nodes, "nodes")
            for _ in range(max(part.operator.reach for part in augment.parts) + 1):
                before = near.clone()
                near[edges[1][before[edges[0]]]] = True
                near[edges[0][before[edges[1]]]] = True
            self.near = near.nonzero().view(-1)
            edges = edges[:, near[edges].all(0)]
        self.edges, self.weights = torch.searchsorted(self.near, edges.contiguous()), weights
        self.nodes = torch.searchsorted(self.near, nodes)
        self.x = data.x.index_select(0, self.near).to_dense()
        self.data, self.own = data, nodes
        self.parts = [Part(own, self) for own in augment.parts]

    @torch.no_grad()
    def logits(self, *features: Tensor) -> Tensor:
        """What the network says of such rows, a part an augmentation; of its own by default."""
        rows = features or [part.features() for part in self.parts]
        return self.estimator._outputs(torch.cat([*rows], dim=1))

    def attention(self) -> Tensor:
        """How much the network makes of each feature of these nodes, about: gradient times value."""
        parts = [part.features() for part in self.parts]
        rows = torch.cat(parts, dim=1).requires_grad_()
        (gradient,) = torch.autograd.grad(self.estimator._outputs(rows).abs().sum(), rows)
        each = (gradient * rows.detach()).abs().mean(0).split([own.shape[1] for own in parts])
        return torch.stack([part.heard(own) for part, own in zip(self.parts, each, strict=True)]).sum(0)

    def exchanged(self, columns: list[int], values: Tensor) -> dict[str, Tensor]:
        """The logits as if the nodes themselves, and as if all others, had these values in some columns."""
        found = [part.exchanged(columns, values.expand(len(self.x), -1)) for part in self.parts]
        return {whose: self.logits(*(each[whose] for each in found)) for whose in found[0]}

    @property
    def knows_labels(self) -> bool:
        """Are known labels of neighbours features?"""
        return any(part.labels.shape[1] for part in self.parts)

    def without_labels(self, order: Tensor | None = None) -> Tensor:
        """The logits as if known labels were those of the nodes in another order, or not known."""
        return self.logits(*(
            part.features(labels=torch.zeros_like(part.labels) if order is None else part.labels[order])
            for part in self.parts
        ))  # fmt: skip

    def without(self, other: int) -> Tensor:
        """The logits without the edges between the one node that is asked about and another one within reach."""
        pair = torch.tensor([[int(self.nodes[0])], [other]])
        kept = (self.edges != pair).any(0) & (self.edges != pair.flip(0)).any(0)
        pair = torch.tensor([[int(self.own[0])], [int(self.near[other])]])
        edges = self.data.edge_index
        there = (edges != pair).any(0) & (edges != pair.flip(0)).any(0)
        return self.logits(*(part.without(kept, there) for part in self.parts))


def importance(
    estimator: Estimator, data: Graph, nodes: ArrayLike | Tensor | None = None, repeats: int = 5, random_state: int = 0
) -> pd.DataFrame:
    """See :meth:`~pdadmm_g.estimator.Estimator.importance`."""
    config, random = estimator.config_, np.random.default_rng(random_state)
    data = with_parts(estimator._checked(data), config, estimator.nodes_)
    if data.y is None:
        raise InputError("data has no labels to measure importance by: explain asks about one node without")
    if nodes is not None:
        data.asked_mask = as_mask(nodes, data.num_nodes, "nodes")
    parts = PARTS if nodes is None else {"asked": "given"}
    masks = [(on, data[f"{name}_mask"] & labelled(data)) for name, on in parts.items() if f"{name}_mask" in data]
    masks.append(("labelled", labelled(data)))
    on, mask = next((part for part in masks if bool(part[1].any())), masks[-1])
    if nodes is not None and on != "given":
        raise InputError("nodes: none of them has a label to measure importance by")
    # By id, so that the order of rows does not matter.
    order = id_order(data)
    data, mask = reordered(data, order), mask if order is None else mask[order]
    chosen = mask.nonzero().view(-1)
    if not len(chosen):
        raise InputError("data: no node has a label to measure importance by")
    blocks = 1 if estimator.augmentation_ is None else sum(part.blocks for part in estimator.augmentation_.parts)
    most = min(MOST_NODES, max(20, MOST_SHARES // (blocks * data.num_nodes)))
    if len(chosen) > most:
        chosen = chosen[torch.from_numpy(random.choice(len(chosen), most, replace=False)).sort().values]
    true = data.y[chosen].numpy() if has_columns(data) else labels_of(data)[chosen.numpy()]

    def figure(logits: Tensor, judge: Estimator = estimator) -> float:
        y = true if has_columns(data) else class_places(true, judge.outputs_)
        found = score(config.scoring, y, outputs(logits.double(), config.target).numpy(), config.target)
        return math.nan if found is None else found

    lost: dict[tuple[str, str], list[float]] = defaultdict(list)
    with compute_threads(config.threads):
        rows = Asked(estimator, data, chosen)
        base, x = figure(rows.logits()), data.x.to_dense()
        others = [torch.from_numpy(random.permutation(data.num_nodes))[rows.near] for _ in range(repeats)]
        for name, columns in ({ALL: [*range(x.shape[1])]} | groups_of(estimator, data, rows)).items():
            for other in others:
                for whose, logits in rows.exchanged(columns, x[:, columns][other]).items():
                    lost[name, whose].append(base - figure(logits))
        for _ in range(repeats if rows.knows_labels else 0):
            order = torch.from_numpy(random.permutation(len(chosen)))
            lost[LABELS, "neighbours"].append(base - figure(rows.without_labels(order)))
    found = [(*key, float(np.mean(each)), float(np.std(each))) for key, each in lost.items()]
    found.sort(key=lambda row: (row[0] != ALL, -row[2]))
    about: dict[str, Any] = {"figure": scoring_name(config.scoring), "score": base, "on": on, "nodes": len(chosen)}
    # Of nodes that trained, a model knows the labels: there, what was said out of fold is compared.
    trained = bool(data.train_mask[chosen].any())
    own = expected(estimator, about["figure"]) if trained else base
    if own is not None and rows.joined and not data.get("structural"):
        alone = without_graph(estimator, data, random_state)
        worth = None
        if alone is not None:
            worth = expected(alone, about["figure"]) if trained else figure(alone._logits(data, chosen), alone)
        if worth is not None:
            about |= {"out_of_fold": own} if trained else {}
            found.insert(0, ("the graph", "trained without", own - worth, math.nan))
    table = pd.DataFrame(found, columns=["column", "whose", "lost", "spread"])
    table.attrs = about | {"repeats": repeats}
    return table


def expected(estimator: Estimator, figure: str) -> float | None:
    """A figure of what the model said of all nodes out of fold, where that is known."""
    found = estimator.estimate_
    return found.figures[figure][0] if found and found.on == OUT_OF_FOLD and figure in found.figures else None


def groups_of(estimator: Estimator, data: Graph, rows: Asked) -> dict[str, list[int]]:
    """The features by the columns that they were made of; of very many those alone on which the network looks most."""
    names = data.get("feature_names") or [f"column {place}" for place in range(data.x.shape[1])]
    own = iter(feature_names(estimator.columns_ or ()))
    owner = {next(own): column.name for column in estimator.columns_ or () for _ in feature_names([column])}
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault(owner.get(name, name), []).append(place)
    if len(groups) <= 1 or data.get("structural"):
        return {}
    heard = rows.attention()
    most = sorted(groups, key=lambda name: -float(heard[groups[name]].sum()))[:MOST_GROUPS]
    return {name: groups[name] for name in groups if name in {*most}}


def without_graph(estimator: Estimator, data: Graph, random_state: int) -> Estimator | None:
    """One that is trained on the same nodes by their own columns alone; None where these are not all there.

    It goes by the settings that a model file has: a fitted model and the same one loaded have the same answer.
    """
    if estimator.nodes_ is None or not bool(data.train_mask.any()):
        return None
    data = copy.copy(data)
    if not bool(data.val_mask.any()):
        del data.val_mask
    data.edge_index = data.edge_weight = data.split = None
    settings = parameters(estimator.config_)
    settings |= {item.name: item.default for item in fields(Settings) if item.metadata["by_data"]}
    settings |= dict.fromkeys(("columns", "split", "workers", "shards", "plan"))  # one process is enough
    settings |= {"augment": "none", "unlabelled": 0, "verbose": False, "random_state": random_state}
    if estimator.estimate_ is not None and estimator.estimate_.on == OUT_OF_FOLD:
        settings["patience"] = "auto"  # those that were chosen out of fold have none
    return clone(estimator).set_params(**settings).fit(data)


def explain(estimator: Estimator, data: Graph, node: Any, most: int = 12) -> pd.DataFrame:
    """See :meth:`~pdadmm_g.estimator.Estimator.explain`."""
    data, target = estimator._checked(data), estimator.config_.target
    ids = ids_of(data)
    places = np.flatnonzero(ids.astype(str) == str(node))
    if not len(places):
        raise InputError(f"data has no node {str(node)!r:.60}; nodes are called {', '.join(map(str, ids[:3]))}, ...")
    place = int(places[0])
    rows = Asked(estimator, data, torch.tensor([place]))
    logits = rows.logits()
    best = 0 if target == "regression" else int(logits.argmax())

    def said(logits: Tensor) -> float:
        """The log-odds of the label, or the number."""
        if target == "classification":
            return float(logits[0, best] - torch.cat([logits[0, :best], logits[0, best + 1 :]]).logsumexp(0))
        return float(logits[0, best])

    base, mean, table = said(logits), data.x.to_dense().mean(0), data.get("table")
    found: list[tuple[str, str, Any, float]] = []
    for name, columns in (groups_of(estimator, data, rows) or {ALL: [*range(len(mean))]}).items():
        value: Any = None
        if table is not None and name in table:
            value = table[name].iloc[place]
        elif not estimator.columns_ and len(columns) == 1:
            value = float(rows.x[rows.nodes[0], columns[0]])
        elif name == DEGREE:
            ends = data.edge_index[:, (data.edge_index == place).any(0)].unique()
            value = int((ends != place).sum())
        for whose, logits in rows.exchanged(columns, mean[columns]).items():
            found.append((name, whose, value if whose == "own" else None, said(logits)))
    if rows.knows_labels:
        found.append((LABELS, "neighbours", None, said(rows.without_labels())))
    ends = rows.edges[:, (rows.edges == rows.nodes[0]).any(0)].unique()
    ends = ends[ends != rows.nodes[0]]
    classes = data.y is not None and not has_columns(data)
    for end in ends[:: -(-len(ends) // MOST_NEIGHBOURS) or 1].tolist():
        number = int(rows.near[end])
        label = labels_of(data)[number] if classes and labelled(data)[number] else None
        found.append((str(ids[number]), "neighbour", label, said(rows.without(end))))
    changes = pd.DataFrame(found, columns=["name", "kind", "value", "without"])
    changes["moved"] = base - changes["without"]
    changes = changes.sort_values("moved", key=abs, ascending=False, kind="stable", ignore_index=True).head(most)
    if target != "regression":
        changes["without"], base = expit(changes["without"]), float(expit(base))
    changes.attrs = {
        "node": str(ids[place]), "target": target, "label": estimator.outputs_.tolist()[best], "said": base,
        "neighbours": len(ends),
    }  # fmt: skip
    return changes
