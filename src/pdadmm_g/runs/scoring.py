"""What a trained model is worth: accuracies, confusion and the summary of a run."""

from __future__ import annotations

import platform
import warnings
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import __version__
from ..config import RunConfig
from ..data.facts import graph_facts
from ..data.graph import MASKS, Graph
from ..data.readers import labels_of
from ..data.targets import class_places, hard_labels, has_columns, labelled
from ..errors import NotFiniteError
from ..estimator import Estimator
from ..metrics import by_output, metrics, reliability
from ..model import outputs
from ..training.records import WORKER_FIGURES

#: A confusion matrix, or a table, of more classes than this would outgrow the rest of the summary.
MAX_CONFUSION = 200


class Judgement(NamedTuple):
    """What a model says of the labelled nodes in the masks of a graph, and how good that is."""

    #: ``train_accuracy`` and so on, None where there is no such node.
    accuracies: dict[str, float | None]
    #: All figures of :func:`~pdadmm_g.metrics.metrics` for each mask that has nodes: train, val, test.
    metrics: dict[str, dict[str, float | None]]
    #: Of the test nodes, or else of those that validate: :func:`confusion` and :func:`~pdadmm_g.metrics.reliability`.
    confusion: dict[str, Any] | None
    reliability: dict[str, Any] | None
    #: Likewise the figures of each of several labels or numbers, see :func:`~pdadmm_g.metrics.by_output`.
    outputs: dict[str, Any] | None = None


#: That of a model that there is nothing to judge by.
UNKNOWN = Judgement({mask.replace("_mask", "_accuracy"): None for mask in MASKS}, {}, None, None)


def figures(classifier: Estimator, data: Graph) -> dict[str, Any]:
    """What scoring adds to the summary of a run: accuracies and the rest of its judgement, and facts on the data."""
    try:
        accuracies, *others = judge(classifier, data)
    except NotFiniteError as error:
        # What was trained is kept all the same.
        warnings.warn(str(error), stacklevel=2)
        accuracies, *others = UNKNOWN
    return accuracies | dict(zip(Judgement._fields[1:], others, strict=True)) | {"data": graph_facts(data)}


def summarize(classifier: Estimator, config: RunConfig) -> dict[str, Any]:
    """The content of summary.json as far as it is known before the model is scored."""
    return {
        "status": classifier.status_.name,
        "advice": classifier.status_.advice,
        "message": classifier.message_,
        **dict.fromkeys(mask.replace("_mask", "_accuracy") for mask in MASKS),
        "dataset": config.dataset,
        "seed": config.seed,
        "method": config.method,
        "target": classifier.config_.target,
        **{name: getattr(classifier.config_, name) for name in ("augment", "hops", "weight_decay", "unlabelled")},
        "choices": list(classifier.choices_),
        "layers": len(classifier.model_.linears),
        "parameters": sum(parameter.numel() for parameter in classifier.model_.parameters()),
        "epochs": len(classifier.history_),
        "seconds": classifier.seconds_,
        "times": classifier.times_,
        "work_seconds": work_seconds(classifier),
        "bytes_sent": sum(record["bytes_sent"] for record in classifier.history_),
        "bytes_unquantized": unquantized_bytes(classifier),
        "workers": worker_totals(classifier),
        "versions": {
            "pdadmm_g": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def work_seconds(classifier: Estimator) -> float:
    """What all processes computed together, waiting and packing not counted: about what one would have taken."""
    together = sum(worker["compute_seconds"] for record in classifier.history_ for worker in record["workers"])
    return float(together * (classifier.config_.shards or 1))


def unquantized_bytes(classifier: Estimator) -> int:
    """What would have been sent with p and q in single precision."""
    sent = sum(record["bytes_sent"] for record in classifier.history_)
    for worker in (worker for record in classifier.history_ for worker in record["workers"]):
        quantized = worker["bytes_p"] + worker["bytes_q"]
        # Epochs of a run that an earlier version began do not say how many values they sent.
        sent += 4 * worker["values_sent"] - quantized if "values_sent" in worker else 0
    return sent


def worker_totals(classifier: Estimator) -> list[dict[str, Any]]:
    """For each worker its layers in the last stage, and what it did in all epochs that it took part in.

    Empty for methods without workers; and a resumed run may have had another number of them before.
    """
    records = [record["workers"] for record in classifier.history_]
    return [
        {"layers": layers, **{name: sum(workers[rank][name] for workers in own) for name in WORKER_FIGURES}}
        for rank, layers in enumerate(classifier.plan_)
        if (own := [workers for workers in records if rank < len(workers)])
    ]


def judge(classifier: Estimator, data: Graph) -> Judgement:
    """The model on the masks of a graph; nodes without labels are not asked."""
    known = labelled(data) if data.y is not None else torch.zeros(data.num_nodes, dtype=torch.bool)
    parts = {mask: data[mask] & known for mask in MASKS if mask in data}
    parts = {mask.removesuffix("_mask"): part for mask, part in parts.items() if bool(part.any())}
    names = [mask.removesuffix("_mask") for mask in MASKS]
    if not parts:
        return UNKNOWN
    nodes = torch.stack(list(parts.values())).any(0).nonzero().view(-1)
    target = classifier.config_.target
    P = outputs(classifier._logits(data, nodes).double(), target).numpy()
    columns = has_columns(data)
    true = data.y[nodes].numpy() if columns else class_places(labels_of(data)[nodes.numpy()], classifier.outputs_)
    own = {name: part[nodes].numpy() for name, part in parts.items()}
    figures = {name: metrics(true[part], P[part], target) for name, part in own.items()}
    accuracies = {f"{name}_accuracy": figures[name].get("accuracy") if name in figures else None for name in names}
    judged = next((name for name in ("test", "val") if name in own), None)
    if columns:
        each = None if judged is None else _each_output(judged, classifier, true[own[judged]], P[own[judged]])
        return Judgement(accuracies, figures, None, None, each)
    bins = None
    if judged is not None:
        bins = {"nodes": judged, "bins": reliability(true[own[judged]], P[own[judged]])}
    predicted = np.full(data.num_nodes, classifier.outputs_[0], dtype=classifier.outputs_.dtype)
    predicted[nodes.numpy()] = classifier.outputs_[P.argmax(1)]
    return Judgement(accuracies, figures, confusion(data, predicted, classifier.outputs_), bins)


def _each_output(nodes: str, classifier: Estimator, true: NDArray[Any], P: NDArray[Any]) -> dict[str, Any] | None:
    names = classifier.outputs_.tolist()
    if len(names) > MAX_CONFUSION:
        return None
    return {"nodes": nodes, "names": names, "figures": by_output(true, P, classifier.config_.target)}


def confusion(data: Graph, predicted: NDArray[Any], classes: NDArray[Any]) -> dict[str, Any] | None:
    """How often each class (rows) was taken for each class (columns) on the test nodes, or else on validation.

    None without such nodes, or with so many classes that nobody could read it.
    """
    for mask in ("test_mask", "val_mask"):
        if mask in data and bool((nodes := data[mask] & (hard_labels(data) >= 0)).any()):
            true = labels_of(data)[nodes.numpy()]
            names = np.union1d(classes, true)
            if len(names) > MAX_CONFUSION:
                return None
            counts = np.zeros((len(names), len(names)), dtype=int)
            np.add.at(counts, (np.searchsorted(names, true), np.searchsorted(names, predicted[nodes.numpy()])), 1)
            return {"nodes": mask.removesuffix("_mask"), "classes": names.tolist(), "counts": counts.tolist()}
    return None
