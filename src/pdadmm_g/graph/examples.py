"""The rows that train or validate: which nodes they are, where that is not said, and what is known of them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..admm.risks import Targets
from ..config import ModelConfig, label_name
from ..errors import InputError
from .graph import MASKS, Graph, node_keys
from .targets import class_name, hard_labels, has_columns, labelled, strata, target_of


class Split(NamedTuple):
    """Which nodes trained and which validated, as sorted keys, see :func:`~pdadmm_g.graph.graph.node_keys`."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]

    @classmethod
    def of(cls, data: Graph) -> Split:
        """Those of the masks of a graph."""
        keys, none = node_keys(data), torch.zeros(data.num_nodes, dtype=torch.bool)
        return cls(*(np.sort(keys[data.get(mask, none).numpy()]) for mask in MASKS[:2]))

    def masks(self, data: Graph) -> tuple[Tensor, Tensor]:
        """Where they are in a graph."""
        keys = node_keys(data)
        trained, validated = (torch.from_numpy(np.isin(keys, own)) for own in self)
        return trained, validated


class Examples(NamedTuple):
    """Rows with what they should become."""

    #: Augmented features (rows, features).
    X: Tensor
    #: Class indices (rows,), or probabilities (rows, classes); those of rows that validate are indices.
    y: Tensor
    #: (rows,), all positive; None if each row weighs one.
    weights: Tensor | None = None

    @property
    def targets(self) -> Targets:
        """What the rows should become, for the algorithm."""
        return Targets(self.y, self.weights)

    def to(self, device: str) -> Examples:
        """The same on another device."""
        return Examples(*(None if rows is None else rows.to(device) for rows in self))  # type: ignore[arg-type]


def aligned(examples: Examples | None) -> Examples | None:
    """The same with features that start on a cache line, where a product gives the same bits in every process."""
    if examples is None or examples.X.data_ptr() % 64 == 0:
        return examples
    return examples._replace(X=examples.X.clone())


def simplified(examples: Examples | None) -> Examples | None:
    """The same with one type for all numbers, and without weights if each is one: they change and cost nothing then."""
    if examples is None:
        return None
    X, y, weights = examples
    if weights is not None:
        weights = None if bool((weights == 1).all()) else weights.to(X.dtype)
    return Examples(X, y.to(X.dtype if y.is_floating_point() else torch.int64), weights)


def at_most(number: int, rows: Tensor) -> Tensor:
    """So many of the rows at the most, evenly spaced."""
    return rows[:: -(-len(rows) // number)]


def shares(number: int, parts: int) -> list[range]:
    """The rows of each of so many parts, all of nearly the same size."""
    return [range(number * place // parts, number * (place + 1) // parts) for place in range(parts)]


# --------------------------------------------------------------------------------------------------------- splits

#: So large a share of the nodes is set aside to validate, and so many at the most: more tell hardly more.
SHARE, MOST = 0.2, 2000
#: Of so many labelled nodes none is set aside unless that is asked for: each of so many parts validates in turn.
CROSSED, PARTS = range(10, 5001), 5
WITHOUT = (
    "there are no validation nodes: nothing is chosen by the data, and the last epoch is kept; this costs accuracy"
)


def with_masks(
    data: Graph, config: ModelConfig, *, seed: int, known: Split | None = None, crosses: bool = False
) -> tuple[Graph, tuple[str, ...]]:
    """The graph with the nodes that train and validate under these settings, and a sentence on each decision.

    Without ``train_mask`` all labelled nodes outside the other masks train. Without ``val_mask`` some of the training
    nodes that count are set aside, the same for a ``seed``, unless all epochs are trained anyway (no patience). Nodes
    of a class that weighs nothing do not count. Where it is ``known`` who trained and validated before, these do so
    again, and some of the other nodes are set aside. Whoever ``crosses`` asks all of few nodes out of fold, and needs
    none set aside.
    """
    data, reasons = one_split(data, config.split)
    if data.y is None:
        return data, reasons
    labels = strata(data) if has_columns(data) else hard_labels(data)
    if "train_mask" not in data:
        data.train_mask = labels >= 0
        for mask in MASKS[1:]:
            if mask in data:
                data.train_mask = data.train_mask & ~data[mask]
        reasons += (f"there is no train_mask: all {int(data.train_mask.sum())} nodes with a label are for training",)
    if "val_mask" in data or config.patience is None or config.validation == 0:
        if config.patience is not None and not ("val_mask" in data and bool(data.val_mask.any())):
            reasons += (WITHOUT,)
        return data, reasons
    nodes = data.train_mask & (labels >= 0) & ~torch.isin(labels, weightless(data, config))
    counts = data.get("sample_weight")
    nodes = (nodes if counts is None else nodes & (counts > 0)).nonzero().view(-1)
    number, again = len(nodes), nodes[:0]
    if crosses and is_crossed(config, number, known):
        what = f"there is no val_mask: all {number} nodes with a label train, and decide out of fold in {PARTS} parts"
        return data, (*reasons, what)
    if known is not None:
        trained, validated = known.masks(data)
        again, nodes = nodes[validated[nodes]], nodes[~(trained | validated)[nodes]]
    aside = torch.cat([again, _set_aside(nodes, labels[nodes], config.validation or SHARE, seed)])
    if not len(aside):
        why = "there are too few labels to set some aside" if known is None else "all nodes with a label trained before"
        few = f"{WITHOUT}; {why}"
        warnings.warn(few, stacklevel=2)
        return data, (*reasons, few)
    data.val_mask = torch.zeros_like(data.train_mask)
    data.val_mask[aside] = True
    data.train_mask = data.train_mask & ~data.val_mask
    each = "" if target_of(data) == "regression" else f", some of each {'label' if has_columns(data) else 'class'},"
    what = f"{len(aside)} of the {number} nodes with a label for training{each} validate instead"
    remedy = "" if config.refit else "; refit trains on them too in the end"
    return data, (*reasons, f"there is no val_mask: {what}{remedy}")


def is_crossed(config: ModelConfig, number: int, known: Split | None) -> bool:
    """Do so many labelled nodes decide out of fold, where none is there to validate?"""
    asked = config.patience is None or config.validation is not None or (known is not None and len(known.val))
    return not asked and number in CROSSED


def with_parts(data: Graph, config: ModelConfig, known: Split | None) -> Graph:
    """The graph with one split, in which those trained and validated of whom it is ``known``.

    Where it has a mask of its own, that counts; but nothing validates that trained. Where it has none, but some of
    these nodes by their ids, labels of other nodes came later, and are to test on.
    """
    data, _ = one_split(data, config.split)
    if known is None or data.y is None:
        return data
    grows = data.get("ids") is not None and not any(mask in data for mask in MASKS)
    trained, validated = (mask & labelled(data) for mask in known.masks(data))
    given = data.get("val_mask")
    data.val_mask = validated if given is None else given & ~trained
    data.train_mask = data.get("train_mask", trained) & ~data.val_mask | (trained if given is None else given & trained)
    later = labelled(data) & ~data.train_mask & ~data.val_mask
    if not has_columns(data):
        later &= ~torch.isin(hard_labels(data), weightless(data, config))
    if grows and bool(later.any()) and bool(data.train_mask.any()):
        data.test_mask = later
    return data


def weightless(data: Graph, config: ModelConfig) -> Tensor:
    """The labels of classes that weigh nothing in training."""
    weights = config.class_weight if isinstance(config.class_weight, Mapping) else {}
    none = {name for name, weight in weights.items() if weight == 0}
    labels = [label for label in hard_labels(data).unique().tolist() if label >= 0] if none else []
    return torch.tensor([label for label in labels if label_name(class_name(data, label)) in none], dtype=torch.int64)


def unseen_nodes(data: Graph, *, labels_given: bool) -> Tensor:
    """The nodes to score a model on, a mask: test nodes, or else labelled ones outside training and validation.

    Where labels were given to score by, only nodes that have one; and all of these, where nothing says who trains.
    """
    known = labelled(data)
    if "test_mask" in data:
        return data.test_mask & known if labels_given else data.test_mask
    unseen = known if labels_given else torch.zeros_like(known)
    if "train_mask" in data:
        unseen = known & ~data.train_mask
        unseen = unseen & ~data.val_mask if "val_mask" in data else unseen
    if not bool(unseen.any()):
        remedy = "score(data, mask), or give labels: score(nodes, y, edge_index=edges)"
        raise InputError(f"data: 'test_mask' is missing (in a table: 'split'); name the nodes to score, {remedy}")
    return unseen


def one_split(data: Graph, split: int | None) -> tuple[Graph, tuple[str, ...]]:
    """The same graph with one column of each mask, where these have several; its entry ``split`` says which."""
    data = copy.copy(data)
    counts = {mask: data[mask].shape[1] for mask in MASKS if mask in data and data[mask].ndim == 2}
    if not counts:
        if split is not None and data.get("split") != split:
            raise InputError(f"split = {split}, but the masks are of one split: leave it out")
        return data, ()
    count = min(counts.values())
    if count < max(counts.values()):
        said = ", ".join(f"{mask} {columns}" for mask, columns in counts.items())
        raise InputError(f"the masks are of different numbers of splits: {said}; give all of them the same columns")
    if split is not None and split >= count:
        raise InputError(f"split = {split}, but the masks are of {count} splits: 0 to {count - 1}")
    for mask in counts:
        data[mask] = data[mask][:, split or 0]
    data.split = split or 0
    return data, (f"the masks are of {count} splits: the first is taken, split names another",) if split is None else ()


def folds_of(labels: Tensor, seed: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Places of those that train and of those that validate, each of which does so once; some of each class in each."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[labels[order].argsort(stable=True)]
    part = torch.empty_like(order)
    part[order] = torch.arange(len(order)) % PARTS
    return tuple(((part != own).nonzero().view(-1), (part == own).nonzero().view(-1)) for own in range(PARTS))


def _set_aside(nodes: Tensor, labels: Tensor, share: float, seed: int) -> Tensor:
    """So large a share of the nodes of each class, at least one, at the most all but one, and not too many in all."""
    share = min(share, MOST / max(1, len(nodes)))
    generator = torch.Generator().manual_seed(seed)
    chosen = [nodes[:0]]
    for label in labels.unique():
        own = nodes[labels == label]
        number = min(max(1, round(share * len(own))), len(own) - 1)
        chosen.append(own[torch.randperm(len(own), generator=generator)[:number]])
    return torch.cat(chosen).sort().values
