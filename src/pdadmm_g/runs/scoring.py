"""What a trained model is worth: its figures on the nodes with labels, and the summary of a run."""

from __future__ import annotations

import math
import platform
import warnings
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from .. import __version__
from ..config import RunConfig
from ..errors import NotFiniteError
from ..estimator import Estimator
from ..graph.examples import at_most
from ..graph.facts import graph_facts
from ..graph.graph import MASKS, Graph, node_keys
from ..graph.readers import ids_of, labels_of
from ..graph.targets import class_places, has_columns, labelled
from ..metrics import OUT_OF_FOLD, by_output, metrics, reliability
from ..model import outputs
from ..status import UNVALIDATED, Status
from ..training.finish import best_epoch
from ..training.records import WORKER_FIGURES

#: So many nodes of a kind are worth a look, of so many without a label at the most.
MOST_LOOKS, MOST_ASKED = 10, 10_000
#: What is told of them.
LOOK = ("node", "label", "predicted", "probability")
#: A confusion matrix, or a table, of more classes than this would outgrow the rest of the summary.
MAX_CONFUSION = 200


class Judgement(NamedTuple):
    """What a model says of the labelled nodes in the masks of a graph, and how good that is."""

    #: ``train_accuracy`` and so on, None where there is no such node.
    accuracies: dict[str, float | None]
    #: All figures of :func:`~pdadmm_g.metrics.metrics` for each mask that has nodes: train, val, test.
    metrics: dict[str, dict[str, float | None]]
    #: Of the test nodes, or those that validate, or all that train as they were asked out of fold:
    #: :func:`confusion` and :func:`~pdadmm_g.metrics.reliability`.
    confusion: dict[str, Any] | None = None
    reliability: dict[str, Any] | None = None
    #: The figures of each of several labels or numbers, see :func:`~pdadmm_g.metrics.by_output`.
    outputs: dict[str, Any] | None = None
    #: Which of them are worth a look.
    looks: dict[str, Any] | None = None


#: That of a model that there is nothing to judge by.
UNKNOWN = Judgement({mask.replace("_mask", "_accuracy"): None for mask in MASKS}, {})


def judge(estimator: Estimator, data: Graph) -> Judgement:
    """The model on the masks of a graph; nodes without labels are not asked."""
    known = labelled(data) if data.y is not None else torch.zeros(data.num_nodes, dtype=torch.bool)
    masks = {mask.removesuffix("_mask"): data[mask] & known for mask in MASKS if mask in data}
    masks = {name: mask for name, mask in masks.items() if bool(mask.any())}
    if not masks:
        return UNKNOWN
    nodes = torch.stack(list(masks.values())).any(0).nonzero().view(-1)
    target, columns, names = estimator.config_.target, has_columns(data), estimator.outputs_
    P = outputs(estimator._logits(data, nodes).double(), target).numpy()
    labels = data.y[nodes].numpy() if columns else labels_of(data)[nodes.numpy()]
    true = labels if columns else class_places(labels, names)
    parts = {name: mask[nodes].numpy() for name, mask in masks.items()}
    figures = {name: metrics(true[part], P[part], target) for name, part in parts.items()}
    accuracies = {f"{name}_accuracy": figures.get(name, {}).get("accuracy") for name in ("train", "val", "test")}
    judged: str | None = next((name for name in ("test", "val") if name in parts), None)
    if columns:
        if judged is None or len(names) > MAX_CONFUSION:
            return Judgement(accuracies, figures)
        each = by_output(true[parts[judged]], P[parts[judged]], target)
        return Judgement(accuracies, figures, outputs={"nodes": judged, "names": names.tolist(), "figures": each})
    if judged is not None:
        own, P = nodes.numpy()[parts[judged]], P[parts[judged]]
    else:
        judged, (own, P) = OUT_OF_FOLD, asked_out_of_fold(estimator, data, known)
    labels = labels_of(data)[own]
    seen = (ids_of(data)[own], labels, P, names)
    found: dict[str, Any] = {
        "among": judged,
        "uncertain": look(*seen),
        "nodes": judged,
        "contradicted": look(*seen, contradicted=True),
    }
    unlabelled = (~known).nonzero().view(-1)
    if len(unlabelled):
        unlabelled = at_most(MOST_ASKED, unlabelled)
        with suppress(NotFiniteError):
            unseen = outputs(estimator._logits(data, unlabelled).double(), target).numpy()
            rows = look(ids_of(data)[unlabelled.numpy()], np.full(len(unlabelled), None), unseen, names)
            found |= {"among": "unlabelled", "uncertain": rows}
    if not len(own):
        return Judgement(accuracies, figures, looks=found if found["uncertain"] else None)
    table = confusion(labels, names[P.argmax(1)], names)
    return Judgement(
        accuracies, figures, None if table is None else {"nodes": judged, **table},
        {"nodes": judged, "bins": reliability(class_places(labels, names), P)}, looks=found,
    )  # fmt: skip


def asked_out_of_fold(estimator: Estimator, data: Graph, known: torch.Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """The nodes of a graph that were asked out of fold, and their probabilities; none where that is not known."""
    if estimator._out_of_fold is None:
        return np.empty(0, dtype=np.int64), np.empty((0, len(estimator.outputs_)))
    keys, P = estimator._out_of_fold
    _, nodes, rows = np.intersect1d(node_keys(data), keys, return_indices=True)
    there = known.numpy()[nodes]
    return nodes[there], P[rows[there]]


def look(
    ids: NDArray[Any], true: NDArray[Any], P: NDArray[Any], classes: NDArray[Any], *, contradicted: bool = False
) -> list[dict[str, Any]]:
    """The nodes of which the model is least certain, or those where it is surest that their label is another."""
    sure, best = P.max(1), classes[P.argmax(1)]
    rows = sure.argsort(kind="stable")
    if contradicted:
        rows = rows[(best != true)[rows]][::-1]
    columns = (part[rows[:MOST_LOOKS]].tolist() for part in (ids, true, best, sure))
    return [dict(zip(LOOK, each, strict=True)) for each in zip(*columns, strict=True)]


def confusion(true: NDArray[Any], predicted: NDArray[Any], classes: NDArray[Any]) -> dict[str, Any] | None:
    """How often each class (rows) was taken for each class (columns); None with too many classes to read."""
    from sklearn.metrics import confusion_matrix

    names = np.union1d(classes, true)
    if len(names) > MAX_CONFUSION:
        return None
    counts = confusion_matrix(true, predicted, labels=names)
    return {"classes": names.tolist(), "counts": counts.tolist()}


def figures(estimator: Estimator, data: Graph) -> dict[str, Any]:
    """What scoring adds to the summary of a run: accuracies and the rest of its judgement, and facts on the data."""
    try:
        found = judge(estimator, data)
    except NotFiniteError as error:
        # What was trained is kept all the same.
        warnings.warn(str(error), stacklevel=2)
        found = UNKNOWN
    rest = found._asdict()
    return rest.pop("accuracies") | rest | {"data": graph_facts(data)}


def score_before_refit(estimator: Estimator) -> float | None:
    """The validation score of the network that was kept, where those that validated have trained since."""
    nodes, config = estimator.nodes_, estimator.config_
    if not config.refit or nodes is None or len(nodes.val):
        return None
    best = best_epoch(estimator.history_, config, len(estimator.model_.linears))
    return None if best is None or not math.isfinite(best[0]) else best[0]


def advice(estimator: Estimator) -> str:
    """What people read of how training ended."""
    validated = best_epoch(estimator.history_, estimator.config_, len(estimator.model_.linears)) is not None
    return UNVALIDATED if estimator.status_ is Status.MAX_EPOCHS and not validated else estimator.status_.advice


def summarize(estimator: Estimator, config: RunConfig) -> dict[str, Any]:
    """The content of summary.json as far as it is known before the model is scored."""
    history, settings = estimator.history_, estimator.config_
    # What all processes computed together, waiting and packing not counted: about what one would have taken.
    computed = sum(worker["compute_seconds"] for record in history for worker in record["workers"])
    return {
        "status": estimator.status_.name,
        "advice": advice(estimator),
        "message": estimator.message_,
        **UNKNOWN.accuracies,
        "val_score_before_refit": score_before_refit(estimator),
        "dataset": config.dataset,
        "seed": config.seed,
        "target": settings.target,
        **{name: getattr(settings, name) for name in ("augment", "hops", "weight_decay", "unlabelled")},
        "choices": list(estimator.choices_),
        "estimate": msgspec.to_builtins(estimator.estimate_),
        "layers": len(estimator.model_.linears),
        "parameters": sum(parameter.numel() for parameter in estimator.model_.parameters()),
        "epochs": len(history),
        "seconds": estimator.seconds_,
        "times": estimator.times_,
        "work_seconds": float(computed * (settings.shards or 1)),
        "bytes_sent": sum(record["bytes_sent"] for record in history),
        # What would have been sent with p and q in single precision.
        "bytes_unquantized": sum(
            record["bytes_sent"]
            + sum(4 * worker["values_sent"] - worker["bytes_p"] - worker["bytes_q"] for worker in record["workers"])
            for record in history
        ),
        "workers": worker_totals(estimator),
        "versions": {"pdadmm_g": __version__, "python": platform.python_version(), "torch": torch.__version__},
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def worker_totals(estimator: Estimator) -> list[dict[str, Any]]:
    """For each worker its layers in the last stage, and what it did in all epochs that it took part in.

    A resumed run may have had another number of workers before.
    """
    records = [record["workers"] for record in estimator.history_]
    return [
        {"layers": layers, **{name: sum(workers[rank][name] for workers in own) for name in WORKER_FIGURES}}
        for rank, layers in enumerate(estimator.plan_)
        if (own := [workers for workers in records if rank < len(workers)])
    ]
