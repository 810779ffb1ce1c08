"""An estimator that was fitted in Python as a run folder, and back."""

from __future__ import annotations

from pathlib import Path

from ..config import RunConfig
from ..data.adapters import graph_alone
from ..data.checks import check_graph
from ..data.graph import Graph
from ..estimator import AnyEstimator, Estimator
from .folder import RunFolder
from .scoring import figures, summarize


def save_run(classifier: Estimator, path: str | Path, data: Graph | None = None) -> None:
    """Write what ``pdadmm-g train`` would have written, with the accuracies on ``data`` where they are given.

    It replaces a finished run, as a file of that name would be replaced.
    """
    folder = RunFolder(path)
    graph = None if data is None else check_graph(graph_alone(data, "data", classifier.config_.target))
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
