"""A trained network on the nodes of shards, a block at a time; what is known of all are sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.graph import MASKS
from ..data.sharded_augmentation import ShardedAugment
from ..engine.team import Line
from ..model import GAMLP, decisions, finite, outputs

#: Rows that go through the network at a time.
ROWS = 1 << 16
#: A confusion matrix of more classes than this would outgrow the rest of a summary.
MAX_CONFUSION = 200


class Scores(NamedTuple):
    """How a network does on all nodes with labels, of all processes."""

    #: ``train_accuracy`` and so on, None where there is no such node.
    accuracies: dict[str, float | None]
    #: On all nodes that have a label, whatever mask they are in; None unless no mask has any.
    everywhere: float | None
    #: As in a summary, see :func:`~pdadmm_g.runs.scoring.confusion`.
    confusion: dict[str, Any] | None
    #: Labels that some node has and the network does not know.
    unseen: list[int]


class Predictions(NamedTuple):
    """What the network says of a block of nodes."""

    #: Their places among those of the part.
    nodes: NDArray[Any]
    #: The most probable class of each, as its place among the classes, and its probability.
    best: NDArray[Any]
    probability: NDArray[Any]


@torch.no_grad()
def predictions(model: GAMLP, sharded: ShardedAugment, nodes: NDArray[Any] | None = None) -> Iterator[Predictions]:
    """Of all nodes of a part, or of some, in order."""
    nodes = np.arange(sharded.part.count) if nodes is None else nodes
    for start in range(0, len(nodes), ROWS):
        own = nodes[start : start + ROWS]
        logits = finite(model(sharded.rows(own)), torch.from_numpy(own + sharded.part.first))
        best = decisions(logits, "classification")
        yield Predictions(own, best.numpy(), outputs(logits, "classification").amax(1).numpy())


def score(
    model: GAMLP,
    sharded: ShardedAugment,
    hard: NDArray[Any],
    masks: dict[str, NDArray[Any]],
    classes: NDArray[Any],
    line: Line,
) -> Scores:
    """Accuracies on the masks, and the confusion of the test nodes, or else of those that validate."""
    numbers = line.sum(torch.tensor([float(masks[name].sum()) if name in masks else 0.0 for name in MASKS])).tolist()
    some = any(numbers)
    asked = np.logical_or.reduce(list(masks.values())) if some else np.ones(len(hard), dtype=bool)
    nodes = np.flatnonzero(asked & (hard >= 0))
    size = 1 + int(line.largest(torch.tensor([max(int(hard.max(initial=-1)), int(classes.max()))])))
    hits = torch.zeros(len(MASKS) + 1, dtype=torch.float64)
    counted = next((name for name, number in zip(MASKS[:0:-1], numbers[:0:-1], strict=True) if number), None)
    counts = torch.zeros(size, size, dtype=torch.int64) if size <= MAX_CONFUSION else None
    for block in predictions(model, sharded, nodes):
        true, said = hard[block.nodes], classes[block.best]
        right = true == said
        for place, name in enumerate(MASKS):
            if name in masks:
                hits[place] += float((right & masks[name][block.nodes]).sum())
        hits[-1] += float(right.sum())
        if counts is not None and counted is not None:
            where = masks[counted][block.nodes]
            pairs = torch.from_numpy(true[where].astype(np.int64) * size + said[where])
            counts += torch.bincount(pairs, minlength=size * size).view(size, size)
    *found, everywhere = line.sum(hits).tolist()
    labelled = float(line.sum(torch.tensor(float((hard >= 0).sum()))))
    known = line.sum(torch.bincount(torch.from_numpy(hard[hard >= 0].astype(np.int64)), minlength=size))
    names = np.union1d(classes, known.nonzero().view(-1).numpy()).astype(np.int64)
    return Scores(
        {
            name.replace("_mask", "_accuracy"): hit / number if number else None
            for name, hit, number in zip(MASKS, found, numbers, strict=True)
        },
        None if some or not labelled else everywhere / labelled,
        _confusion(None if counts is None else line.sum(counts), counted, names),
        sorted(set(known.nonzero().view(-1).tolist()) - set(classes.tolist())),
    )


def _confusion(counts: torch.Tensor | None, counted: str | None, names: NDArray[Any]) -> dict[str, Any] | None:
    if counts is None or counted is None or len(names) > MAX_CONFUSION:
        return None
    own = counts.numpy()[np.ix_(names, names)]
    return {"nodes": counted.removesuffix("_mask"), "classes": names.tolist(), "counts": own.tolist()}
