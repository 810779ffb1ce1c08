"""What a trained model is worth: accuracies, confusion and the summary of a run."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix
from torch_geometric.data import Data

from .. import __version__
from ..config import RunConfig
from ..data.adapters import labels_of
from ..data.checks import MASKS, hard_labels
from ..estimator import GAMLPClassifier
from ..training.records import WORKER_FIGURES

#: A confusion matrix of more classes than this would outgrow the rest of the summary.
MAX_CONFUSION = 200


def summarize(classifier: GAMLPClassifier, data: Data, config: RunConfig) -> dict[str, Any]:
    """The content of summary.json."""
    predicted = _predictions(classifier, data)
    return summary_of(classifier, config, _accuracies(data, predicted), confusion(data, predicted, classifier.classes_))


def summary_of(
    classifier: GAMLPClassifier,
    config: RunConfig,
    accuracies: dict[str, float | None],
    confusion: dict[str, Any] | None,
) -> dict[str, Any]:
    """The same from what is known of its accuracy."""
    return {
        "status": classifier.status_.name,
        "advice": classifier.status_.advice,
        "message": classifier.message_,
        **accuracies,
        "dataset": config.dataset,
        "seed": config.seed,
        "method": config.method,
        **{name: getattr(classifier.config_, name) for name in ("augment", "hops", "weight_decay", "unlabelled")},
        "choices": list(classifier.choices_),
        "layers": len(classifier.model_.linears),
        "parameters": sum(parameter.numel() for parameter in classifier.model_.parameters()),
        "epochs": len(classifier.history_),
        "seconds": classifier.seconds_,
        "bytes_sent": sum(record["bytes_sent"] for record in classifier.history_),
        "workers": worker_totals(classifier),
        "versions": {
            "pdadmm_g": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "confusion": confusion,
    }


def worker_totals(classifier: GAMLPClassifier) -> list[dict[str, Any]]:
    """For each worker its layers in the last stage, and what it did in all epochs that it took part in.

    Empty for methods without workers; and a resumed run may have had another number of them before.
    """
    records = [record["workers"] for record in classifier.history_]
    return [
        {"layers": layers, **{name: sum(workers[rank][name] for workers in own) for name in WORKER_FIGURES}}
        for rank, layers in enumerate(classifier.plan_)
        if (own := [workers for workers in records if rank < len(workers)])
    ]


def accuracies(classifier: GAMLPClassifier, data: Data) -> dict[str, float | None]:
    """Accuracy on each of the three masks, None where the data set has none."""
    return _accuracies(data, _predictions(classifier, data))


def _present(data: Data) -> list[str]:
    return [mask for mask in MASKS if mask in data and bool(data[mask].any())]


def _predictions(classifier: GAMLPClassifier, data: Data) -> NDArray[Any]:
    """The predicted label of every node that is in a mask; those of the others are not computed."""
    result = np.full(data.num_nodes, classifier.classes_[0], dtype=classifier.classes_.dtype)
    if masks := _present(data):
        nodes = torch.stack([data[mask] for mask in masks]).any(0).nonzero().view(-1)
        result[nodes.numpy()] = classifier.predict(data, nodes)
    return result


def _accuracies(data: Data, predicted: NDArray[Any]) -> dict[str, float | None]:
    result: dict[str, float | None] = {mask.replace("_mask", "_accuracy"): None for mask in MASKS}
    for mask in _present(data):
        nodes = data[mask].numpy()
        right = (predicted == labels_of(data)) & (hard_labels(data) >= 0).numpy()
        result[mask.replace("_mask", "_accuracy")] = float(right[nodes].mean())
    return result


def confusion(data: Data, predicted: NDArray[Any], classes: NDArray[Any]) -> dict[str, Any] | None:
    """How often each class (rows) was taken for each class (columns) on the test nodes, or else on validation.

    None without such nodes, or with so many classes that nobody could read it.
    """
    for mask in ("test_mask", "val_mask"):
        if mask in data and bool((nodes := data[mask] & (hard_labels(data) >= 0)).any()):
            true = labels_of(data)[nodes.numpy()]
            names = np.union1d(classes, true)
            if len(names) > MAX_CONFUSION:
                return None
            counts = confusion_matrix(true, predicted[nodes.numpy()], labels=names)
            return {"nodes": mask.removesuffix("_mask"), "classes": names.tolist(), "counts": counts.tolist()}
    return None
