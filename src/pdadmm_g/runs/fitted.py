"""An estimator that was fitted in Python as a run folder, and back."""

from __future__ import annotations

import warnings
from pathlib import Path

from ..config import RunConfig
from ..data.graph import MASKS, Graph
from ..data.readers import graph_alone
from ..data.splits import one_split, with_masks
from ..estimator import AnyEstimator, Estimator
from .folder import RunFolder
from .scoring import figures, summarize


def save_run(classifier: Estimator, path: str | Path, data: Graph | None = None) -> None:
    """Write what ``pdadmm-g train`` would have written, with the accuracies on ``data`` where they are given.

    It replaces a finished run, as a file of that name would be replaced.
    """
    folder = RunFolder(path)
    graph = None if data is None else _split(classifier, graph_alone(data, "data", classifier.config_.target))
    with folder.held():
        folder.check_replaceable()
        settings = dict(vars(classifier.config_))
        if callable(settings["scoring"]):
            settings["scoring"] = "auto"  # as in a model file, which has no place for a function
        # Python does not know where its data come from.
        config = RunConfig(**settings, dataset="", seed=classifier.seed_ or 0, out=str(path))
        summary = summarize(classifier, config)
        if graph is not None:
            summary |= figures(classifier, graph)
        folder.start(config, classifier.history_)
        folder.keep(classifier, summary)
        folder.finish(summary)


def _split(classifier: Estimator, data: Graph) -> Graph:
    """The checked graph with the nodes that trained and validated, where it is the one of which these were drawn.

    That it is one can tell by the sentences on it: they have the numbers of its labels.
    """
    data, config = classifier._checked(data), classifier.config_
    drawn, reasons = with_masks(data, config, seed=classifier.seed_ or 0)
    if {*reasons} <= {*classifier.choices_}:
        return drawn
    data, _ = one_split(data, config.split)
    if data.y is not None and not any(mask in data for mask in MASKS):
        what = "nothing says which nodes train, validate or test, and its labels are not those of training"
        warnings.warn(f"data: {what}: there are no accuracies; give it masks (in a table: 'split')", stacklevel=4)
    return data


def load_run(kind: type[AnyEstimator], path: str | Path) -> AnyEstimator:
    """The estimator of a run folder, with the history of its training."""
    folder = RunFolder(path)
    classifier = kind.load(folder.model)
    classifier.history_ = folder.history()
    classifier.n_iter_ = len(classifier.history_)
    classifier.seconds_ = float(sum(record["seconds"] for record in classifier.history_))
    if (folder.path / "config.yaml").exists():
        classifier.seed_ = classifier.random_state = folder.config().seed
    if classifier.history_ and classifier.history_[-1]["workers"]:
        classifier.plan_ = tuple(worker["layers"] for worker in classifier.history_[-1]["workers"])
    summary = folder.summary()
    classifier.message_ = str(summary.get("message", ""))
    times = summary.get("times", {})
    classifier.times_ = times if isinstance(times, dict) else {}
    classifier.choices_ = tuple(map(str, summary.get("choices", ())))
    return classifier
