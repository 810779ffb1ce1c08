"""What a trained model is worth: its figures on the nodes with labels, and the summary of a run."""

from __future__ import annotations

import math
import platform
import warnings
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from .. import __version__
from ..config import RunConfig
from ..errors import NotFiniteError
from ..estimator import Estimator
from ..graph.examples import at_most
from ..graph.graph import MASKS, Graph, node_keys
from ..graph.parts import graph_facts
from ..graph.readers import ids_of, labels_of
from ..graph.targets import class_places, has_columns, labelled
from ..metrics import OUT_OF_FOLD, by_output, metrics, reliability
from ..model import outputs
from ..status import UNVALIDATED, Status
from ..training.finish import best_epoch
from ..training.records import WORKER_FIGURES

if TYPE_CHECKING:
    import pandas as pd

#: So many nodes of a kind are worth a look, of so many without a label at the most.
MOST_LOOKS, MOST_ASKED = 10, 10_000
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
    #: The nodes of which the model is least certain, and those whose label it contradicts most surely.
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
    target, names = estimator.config_.target, estimator.outputs_

    def predicted(nodes: torch.Tensor) -> NDArray[Any]:
        found: NDArray[Any] = outputs(estimator._logits(data, nodes).double(), target).numpy()
        return found

    asked = torch.stack(list(masks.values())).any(0).nonzero().view(-1)
    nodes, P = asked.numpy(), predicted(asked)
    true = data.y[asked].numpy() if has_columns(data) else class_places(labels_of(data)[nodes], names)
    parts = {name: mask[asked].numpy() for name, mask in masks.items()}
    figures = {name: metrics(true[part], P[part], target) for name, part in parts.items()}
    accuracies = {name: figures.get(name.removesuffix("_accuracy"), {}).get("accuracy") for name in UNKNOWN.accuracies}
    on = next((name for name in ("test", "val") if name in parts), OUT_OF_FOLD)
    if has_columns(data):
        if on == OUT_OF_FOLD or len(names) > MAX_CONFUSION:
            return Judgement(accuracies, figures)
        each = by_output(true[parts[on]], P[parts[on]], target)
        return Judgement(accuracies, figures, outputs={"nodes": on, "names": names.tolist(), "figures": each})
    nodes, P = asked_out_of_fold(estimator, data, known) if on == OUT_OF_FOLD else (nodes[parts[on]], P[parts[on]])
    labels, ids = labels_of(data)[nodes], ids_of(data)
    seen = looked_at(ids[nodes], labels, P, names)
    contradicted = seen[seen["predicted"] != seen["label"]][::-1]
    among, uncertain, looks = on, seen, None
    if not bool(known.all()):
        unlabelled = at_most(MOST_ASKED, (~known).nonzero().view(-1))
        with suppress(NotFiniteError):
            uncertain = looked_at(ids[unlabelled.numpy()], None, predicted(unlabelled), names)
            among = "unlabelled"
    if len(uncertain):
        first, second = (each[:MOST_LOOKS].to_dict("records") for each in (uncertain, contradicted))
        looks = {"among": among, "uncertain": first, "nodes": on, "contradicted": second}
    if not len(nodes):
        return Judgement(accuracies, figures, looks=looks)
    table = confusion(labels, names[P.argmax(1)], names)
    curve = {"nodes": on, "bins": reliability(class_places(labels, names), P)}
    return Judgement(accuracies, figures, table and {"nodes": on, **table}, curve, looks=looks)


def asked_out_of_fold(estimator: Estimator, data: Graph, known: torch.Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """The nodes of a graph that were asked out of fold, and their probabilities; none where that is not known."""
    if estimator._out_of_fold is None:
        return np.empty(0, dtype=np.int64), np.empty((0, len(estimator.outputs_)))
    keys, P = estimator._out_of_fold
    _, nodes, rows = np.intersect1d(node_keys(data), keys, return_indices=True)
    there = known.numpy()[nodes]
    return nodes[there], P[rows[there]]


def looked_at(ids: NDArray[Any], true: NDArray[Any] | None, P: NDArray[Any], classes: NDArray[Any]) -> pd.DataFrame:
    """What the model says of nodes, those first of which it is least certain."""
    import pandas as pd

    table = {"node": ids, "label": true, "predicted": classes[P.argmax(1)], "probability": P.max(1)}
    return pd.DataFrame(table).sort_values("probability", kind="stable")


def confusion(true: NDArray[Any], predicted: NDArray[Any], classes: NDArray[Any]) -> dict[str, Any] | None:
    """How often each class (rows) was taken for each class (columns); None with too many classes to read."""
    from sklearn.metrics import confusion_matrix

    names = np.union1d(classes, true)
    if len(names) > MAX_CONFUSION:
        return None
    return {"classes": names.tolist(), "counts": confusion_matrix(true, predicted, labels=names).tolist()}


def figures(estimator: Estimator, data: Graph) -> dict[str, Any]:
    """What scoring adds to the summary of a run: accuracies and the rest of its judgement, and facts on the data."""
    try:
        found = judge(estimator, data)
    except NotFiniteError as error:  # what was trained is kept all the same
        warnings.warn(str(error), stacklevel=2)
        found = UNKNOWN
    rest = found._asdict()
    return rest.pop("accuracies") | rest | {"data": graph_facts(data)}


def summarize(estimator: Estimator, config: RunConfig) -> dict[str, Any]:
    """The content of summary.json as far as it is known before the model is scored."""
    history, settings, status = estimator.history_, estimator.config_, estimator.status_
    workers = [worker for record in history for worker in record["workers"]]
    layers, sent = len(estimator.model_.linears), sum(record["bytes_sent"] for record in history)
    best = best_epoch(history, settings, layers)
    # The score of the network that was kept, where those that validated have trained since.
    refitted = settings.refit and estimator.nodes_ is not None and not len(estimator.nodes_.val)
    return {
        "status": status.name,
        "advice": UNVALIDATED if status is Status.MAX_EPOCHS and best is None else status.advice,
        "message": estimator.message_,
        **UNKNOWN.accuracies,
        "val_score_before_refit": best[0] if refitted and best is not None and math.isfinite(best[0]) else None,
        "dataset": config.dataset,
        "seed": config.seed,
        "target": settings.target,
        **{name: getattr(settings, name) for name in ("augment", "hops", "weight_decay", "unlabelled")},
        "choices": list(estimator.choices_),
        "estimate": msgspec.to_builtins(estimator.estimate_),
        "layers": layers,
        "parameters": sum(parameter.numel() for parameter in estimator.model_.parameters()),
        "epochs": len(history),
        "seconds": estimator.seconds_,
        "times": estimator.times_,
        # What all processes computed together, waiting and packing not counted: about what one would have taken.
        "work_seconds": float(sum(worker["compute_seconds"] for worker in workers) * (settings.shards or 1)),
        "bytes_sent": sent,
        # What would have been sent with p and q in single precision.
        "bytes_unquantized": sent
        + sum(4 * worker["values_sent"] - worker["bytes_p"] - worker["bytes_q"] for worker in workers),
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
