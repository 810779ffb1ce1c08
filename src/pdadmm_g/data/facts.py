"""What there is to know of a graph before anything is trained on it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import MASKS, hard_labels, labelled
from .graph import Graph
from .targets import has_columns

#: Which degrees are told: least, quartiles, most.
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def graph_facts(data: Graph) -> dict[str, Any]:
    """Sizes, homophily and degrees of a graph that went through :func:`~pdadmm_g.data.checks.check_graph`.

    Homophily is that of classes; where nodes have several labels or numbers, ``outputs`` is how many. Edges are pairs
    of different nodes that are joined, each counted once, as training sees them.
    """
    known = labelled(data).nonzero().view(-1) if data.y is not None else torch.empty(0, dtype=torch.int64)
    facts: dict[str, Any] = {
        "nodes": data.num_nodes,
        "features": data.x.shape[1],
        **_outputs(data, known),
        "labelled": len(known),
        **{mask.removesuffix("_mask"): int(data[mask].sum()) if mask in data else 0 for mask in MASKS},
    }
    if data.edge_index is None:
        return facts | {"edges": 0}
    first, second = _pairs(data)
    degrees = torch.bincount(torch.cat([first, second]), minlength=data.num_nodes)
    found = homophily(data, known) if not has_columns(data) else Homophily(0, 0.0, 0.0)
    return facts | {
        "edges": len(first),
        "degrees": [int(each) for each in degrees.sort().values[[round(q * (len(degrees) - 1)) for q in QUANTILES]]],
        "mean_degree": float(degrees.double().mean()),
        "isolated": int((degrees == 0).sum()),
        "homophily": found.share if found.edges else None,
        "homophily_beyond_chance": found.beyond_chance if found.edges else None,
    }


def _outputs(data: Graph, known: Tensor) -> dict[str, int]:
    """How many classes the known nodes have, or how many labels or numbers each of them."""
    if has_columns(data):
        return {"outputs": data.y.shape[1]}
    return {"classes": len(hard_labels(data)[known].unique()) if len(known) else 0}


def _pairs(data: Graph) -> tuple[Tensor, Tensor]:
    """The two ends of each pair of different nodes that are joined."""
    low, high = data.edge_index.cpu().sort(0).values
    codes = (low * data.num_nodes + high)[low != high].unique()
    return codes // data.num_nodes, codes % data.num_nodes


class Homophily(NamedTuple):
    """How much nodes of one class keep to themselves."""

    #: Edges between nodes whose class is known, and the share of them within a class.
    edges: int
    share: float
    #: How much more often than by chance these are within a class, 1 at the most.
    beyond_chance: float


def homophily(data: Graph, known: Tensor) -> Homophily:
    """That of the edges between ``known`` nodes, each in the directions in which it is listed."""
    labels = torch.full((data.num_nodes,), -1)
    labels[known] = hard_labels(data)[known]
    ends = labels[data.edge_index.cpu()]
    ends = ends[:, (ends >= 0).all(0) & (data.edge_index[0] != data.edge_index[1]).cpu()]
    number = ends.shape[1]
    if not number:
        return Homophily(0, 0.0, 0.0)
    shares = torch.bincount(ends.flatten()) / (2 * number)
    chance = float(shares.square().sum())
    same = float((ends[0] == ends[1]).double().mean())
    return Homophily(number, same, (same - chance) / max(1 - chance, 1e-9))
