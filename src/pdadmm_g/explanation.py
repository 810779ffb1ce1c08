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
from collections.abc import Sequence
from dataclasses import dataclass, fields
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
PARTS = {"test_mask": "test", "val_mask": "validation", "train_mask": "training"}


@dataclass
class Part:
    """What the rows of some nodes are made of under one augmentation."""

    augment: GraphAugment
    #: The matrices R (blocks, nodes, all within reach), the columns h of all within reach, and the sums.
    R: Tensor
    H: Tensor
    X: Tensor
    #: What is known of the labels of neighbours, where that is part of the features.
    labels: Tensor


class Asked:
    """Some nodes, and what the model says of them as if columns, edges or known labels were others."""

    def __init__(self, estimator: Estimator, data: Graph, nodes: Tensor) -> None:
        self.estimator, self.data, self.asked = estimator, data, nodes
        self.augment = estimator.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
        #: Do neighbours have a say, and known labels of theirs?
        self.joined = self.augment.asks_neighbours
        self.knows_labels = self.augment.known is not None
        near = torch.ones(data.num_nodes).bool()
        if not self.joined or data.get("edge_weight") is None:  # else weights count by their mean over all edges
            near = as_mask(nodes, data.num_nodes, "nodes")
            for _ in range(max(part.operator.reach for part in self.augment.parts) + 1 if self.joined else 0):
                near[data.edge_index[:, near[data.edge_index].any(0)]] = True
        #: All nodes within reach, and among them those that are asked about.
        self.near = near.nonzero().view(-1)
        self.nodes = torch.searchsorted(self.near, nodes)
        self.x = data.x.index_select(0, self.near).to_dense()
        columns = [columns_of(part, self.x) for part in self.augment.parts]
        made = zip(self.augment.parts, self.shares(data), columns, self.labels(data), strict=True)
        self.parts = [Part(part, R, H, R @ H, labels) for part, R, H, labels in made]

    def shares(self, data: Graph) -> list[Tensor]:
        """The matrices R of each part: unit vectors of the nodes, taken backwards along the edges of this graph."""
        units = torch.zeros(len(self.near), len(self.asked))
        units[self.nodes, range(len(self.asked))] = 1
        backwards = Graph(x=units, edge_index=torch.zeros(2, 0, dtype=torch.int64))
        if self.joined:
            near, backwards.edge_weight = torch.full((data.num_nodes,), -1), data.get("edge_weight")
            near[self.near] = torch.arange(len(self.near))
            edges = near[data.edge_index.flip(0)]
            backwards.edge_index = edges[:, (edges >= 0).all(0)]
        parts = self.augment.parts
        return [torch.stack([*part.operator(part.adjacency(backwards), units)]).mT for part in parts]

    def labels(self, data: Graph) -> list[Tensor]:
        """What each part makes of known labels of neighbours in this graph."""
        return [
            torch.zeros(len(self.asked), 0)
            if part.known is None
            else part.known.rows(data, self.asked, part.label_hops)
            for part in self.augment.parts
        ]

    def features(self, X: Sequence[Tensor], labels: Sequence[Tensor]) -> list[Tensor]:
        """Rows of features, a matrix a part, of such sums and known labels; of their own where none are given."""
        return [
            part.augment._normalized(torch.cat([*sums, known], dim=1))
            for part, sums, known in zip(
                self.parts,
                X or [part.X for part in self.parts],
                labels or [part.labels for part in self.parts],
                strict=True,
            )
        ]

    @torch.no_grad()
    def logits(self, X: Sequence[Tensor] = (), labels: Sequence[Tensor] = ()) -> Tensor:
        """What the network says of such rows."""
        return self.estimator._outputs(torch.cat(self.features(X, labels), dim=1))

    def attention(self) -> Tensor:
        """How much the network makes of each column of these nodes, about: gradient times value."""
        rows = [own.requires_grad_() for own in self.features((), ())]
        gradients = torch.autograd.grad(self.estimator._outputs(torch.cat(rows, dim=1)).abs().sum(), rows)
        heard = torch.zeros(self.x.shape[1])
        for part, own, gradient in zip(self.parts, rows, gradients, strict=True):
            each = (gradient * own.detach()).abs().mean(0)
            each = each[: len(each) - part.labels.shape[1]].view(len(part.R), -1).sum(0)
            heard += each if part.augment.basis is None else part.augment.basis.abs() @ each
        return heard

    def exchanged(self, columns: list[int], values: Tensor) -> dict[str, Tensor]:
        """The logits as if the nodes themselves, and as if all others, had these values in some columns."""
        values = values.expand(len(self.x), -1)

        def change(part: Part, rows: Any) -> Tensor:
            x = self.x[rows].clone()
            x[:, columns] = values[rows]
            return columns_of(part.augment, x) - part.H[rows]

        few = (self.x[:, columns] != values).any(1).nonzero().view(-1)
        rows = few if 2 * len(few) < len(self.x) else slice(None)
        found: dict[str, list[Tensor]] = {"own": [], "neighbours": []}
        for part in self.parts:
            own = part.R[:, range(len(self.nodes)), self.nodes, None] * change(part, self.nodes)
            found["own"].append(part.X + own)
            if self.joined:
                changed, X = change(part, rows), part.X - own
                moved = changed.any(0)
                X[..., moved] += part.R[..., rows] @ changed[:, moved]
                found["neighbours"].append(X)
        return {whose: self.logits(X) for whose, X in found.items() if X}

    def without(self, end: int) -> Tensor:
        """The logits without the edges between the one node that is asked about and this one."""
        data, pair = copy.copy(self.data), torch.tensor([[int(self.asked[0])], [end]])
        there = (data.edge_index != pair).any(0) & (data.edge_index != pair.flip(0)).any(0)
        data.edge_index = data.edge_index[:, there]
        data.edge_weight = None if data.get("edge_weight") is None else data.edge_weight[there]
        sums = [R @ part.H for R, part in zip(self.shares(data), self.parts, strict=True)]
        return self.logits(sums, self.labels(data))


def columns_of(augment: GraphAugment, x: Tensor) -> Tensor:
    """The columns h of such rows of features."""
    H = feature_rows(x, augment.dtype, row_normalize=augment.row_normalize, sparse=True)
    return (H if augment.basis is None else H @ augment.basis).to_dense()


def importance(
    estimator: Estimator, data: Graph, nodes: ArrayLike | Tensor | None = None, repeats: int = 5, random_state: int = 0
) -> pd.DataFrame:
    """See :meth:`~pdadmm_g.estimator.Estimator.importance`."""
    config, random = estimator.config_, np.random.default_rng(random_state)
    data = with_parts(estimator._checked(data), config, estimator.nodes_)
    if data.y is None:
        raise InputError("data has no labels to measure importance by: explain asks about one node without")
    if nodes is not None:
        data.test_mask = as_mask(nodes, data.num_nodes, "nodes")
    data = reordered(data, id_order(data))  # the order of rows does not matter
    known, parts = labelled(data), PARTS if nodes is None else {"test_mask": "given"}
    masks = {on: data[mask] & known for mask, on in parts.items() if mask in data}
    masks |= {"labelled": known} if nodes is None else {}
    on = next((on for on, mask in masks.items() if bool(mask.any())), None)
    if on is None:
        raise InputError(f"{'data' if nodes is None else 'nodes'}: none of them has a label to measure importance by")
    chosen = masks[on].nonzero().view(-1)
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
            lost[LABELS, "neighbours"].append(
                base - figure(rows.logits(labels=[part.labels[order] for part in rows.parts]))
            )
    found = [(*key, float(np.mean(each)), float(np.std(each))) for key, each in lost.items()]
    found.sort(key=lambda row: (row[0] != ALL, -row[2]))
    about: dict[str, Any] = {"figure": scoring_name(config.scoring), "score": base, "on": on, "nodes": len(chosen)}
    # Of nodes that trained, a model knows the labels: there, what was said out of fold is compared.
    trained = bool(data.train_mask[chosen].any())
    own = expected(estimator, about["figure"]) if trained else base
    alone = None
    if own is not None and rows.joined and not data.get("structural"):
        alone = without_graph(estimator, data, random_state)
    if own is not None and alone is not None:
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

    edges = torch.zeros(2, 0, dtype=torch.int64) if data.edge_index is None else data.edge_index
    ends = edges[:, (edges == place).any(0)].unique()
    ends = ends[ends != place]
    base, mean, table = said(logits), data.x.to_dense().mean(0), data.get("table")
    found: list[tuple[str, str, Any, float]] = []
    for name, columns in (groups_of(estimator, data, rows) or {ALL: [*range(len(mean))]}).items():
        value: Any = None
        if table is not None and name in table:
            value = table[name].iloc[place]
        elif not estimator.columns_ and len(columns) == 1:
            value = float(rows.x[rows.nodes[0], columns[0]])
        elif name == DEGREE:
            value = len(ends)
        for whose, other in rows.exchanged(columns, mean[columns]).items():
            found.append((name, whose, value if whose == "own" else None, said(other)))
    if rows.knows_labels:
        without = rows.logits(labels=[torch.zeros_like(part.labels) for part in rows.parts])
        found.append((LABELS, "neighbours", None, said(without)))
    classes, ends = data.y is not None and not has_columns(data), ends if rows.joined else ends[:0]
    for end in ends[:: -(-len(ends) // MOST_NEIGHBOURS) or 1].tolist():
        label = labels_of(data)[end] if classes and labelled(data)[end] else None
        found.append((str(ids[end]), "neighbour", label, said(rows.without(end))))
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
