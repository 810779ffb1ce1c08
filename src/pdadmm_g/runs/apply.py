"""A trained model on data, by one process or by several that have a part of it each: figures and predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..config import NODE_TABLES, RunConfig
from ..engine.launch import run_processes, tell
from ..engine.team import Team, agreed
from ..errors import InputError
from ..estimator import Estimator
from ..graph.datasets import load_dataset, require_edge_table
from ..graph.examples import with_parts
from ..graph.graph import MASKS, Graph
from ..graph.parts import part_of
from ..graph.readers import labels_of
from ..graph.shards import is_sharded
from ..graph.targets import has_columns, labelled
from ..training.fit import heard
from ..training.records import Say
from ..utils import compute_threads, temporary_folder, write_atomically, writing
from .folder import RunFolder
from .run import opened
from .scoring import judge

#: What is done with a model and the part of a graph that a process has, by all of a team; the result on the first.
Work = Callable[..., dict[str, Any]]


def load(
    run: str, dataset: str | None = None, data_root: str | None = None, *, edges: str | None = None,
    team: Team | None = None, say: Say | None = None, **names: Any,
) -> tuple[Estimator, Graph]:  # fmt: skip
    """The estimator of a run folder and the data set to use it on, its own with the masks that it trained by.

    Of a folder of shards the part that this process has; all of the ``team`` call this. What was found in tables, such
    as edges that are left out, is said.
    """
    folder, team = RunFolder(run), team or Team()
    estimator = agreed(team, folder.classifier)
    config, is_table = RunConfig(), dataset is not None and dataset.endswith(NODE_TABLES)
    if dataset is None:
        config, edges = folder.known(), edges or folder.known().edges
    # A graph that is here needs nothing of the settings, but for the columns of a table.
    elif (is_table or not Path(dataset).exists()) and (folder.path / "config.yaml").exists():
        config = folder.config()
    name = dataset or config.dataset
    if is_sharded(name):
        team.arrange(team.size)
        data = opened(name, team)
        assert data is not None
    else:
        naming = config.naming() if dataset is None or is_table else {}
        data = load_dataset(
            name, data_root or config.data_root, edges=edges, target=estimator.config_.target,
            columns=estimator.columns_ or (), **naming | {name: own for name, own in names.items() if own},
        )  # fmt: skip
    if say is not None and team.rank == 0:
        for note in data.get("notes", ()):
            say(note)
    if dataset is None or data.get("ids") is not None:  # numbers of another graph are of other nodes
        data = with_parts(data, estimator.config_, estimator.nodes_)
    if dataset is not None and estimator.augmentation_ is not None and estimator.augmentation_.asks_neighbours:
        require_edge_table(data, dataset)
    return estimator, data


def apply(
    work: Work, run: str, dataset: str | None, shards: int, say: Say, team: Team | None = None, **arguments: Any
) -> dict[str, Any]:
    """What ``work`` makes of a run and of data, in so many processes on this machine or as one of a ``team``.

    Nothing on a member of a team that is not the first.
    """
    names = {name: arguments.pop(name) for name in [*arguments] if name not in ("out", "probabilities")}
    if shards > 1:
        name = dataset or RunFolder(run).known().dataset
        if not is_sharded(name):
            raise InputError(f"shards = {shards} needs a folder of shards, which 'pdadmm-g shard' makes")
    if team is not None or shards == 1:
        with compute_threads(1 if team is not None and team.size > 1 else RunConfig().threads):
            estimator, data = load(run, dataset, team=team, say=say, **names)
            return work(run, estimator, data, **arguments)
    results = list[dict[str, Any]]()

    def on_note(rank: int, note: dict[str, Any]) -> object:
        if "say" in note:
            say(note["say"])
        elif "result" in note:
            results.append(note["result"])
        return heard(rank, note, [], None)

    with temporary_folder() as folder:
        run_processes(
            apply_as_process, folder, shards, device="cpu", timeout=60.0, shards=shards, on_note=on_note, threads=1,
            task=work.__name__, run=str(Path(run).resolve()), dataset=dataset, arguments=arguments | names,
        )  # fmt: skip
    return results[0]


def apply_as_process(
    team: Team, _: Path, *, task: str, run: str, dataset: str | None, arguments: dict[str, Any]
) -> None:
    """One of the processes of :func:`apply`: the first tells the result."""
    found = apply(globals()[task], run, dataset, 1, lambda line: tell({"say": line}), team, **arguments)
    if team.rank == 0:
        tell({"result": found})


def evaluated(run: str, estimator: Estimator, data: Graph) -> dict[str, Any]:
    """How good the model is on the nodes with labels: ``accuracies``, ``metrics``, and what is to be said beside.

    Where no node is marked, the figures of all nodes with a label are those of test nodes, and ``unmarked`` is their
    number.
    """
    known = None if data.y is None else labelled(data)
    if known is None or not bool(known.any()):
        folder = RunFolder(run)
        learned = (folder.config().labels if (folder.path / "config.yaml").exists() else None) or ("label",)
        where = f"in a table {' and '.join(map(repr, learned))}"
        raise InputError(f"data: there are no labels ({where}) to evaluate against; use 'pdadmm-g predict'")
    unmarked = not any(mask in data and bool(data[mask].any()) for mask in MASKS)
    if unmarked:
        data.test_mask = known
    found = judge(estimator, data)
    unseen = set() if has_columns(data) else {*labels_of(data)[known.numpy()].tolist()} - {*estimator.outputs_.tolist()}
    return {
        "accuracies": found.accuracies, "metrics": found.metrics, "unmarked": int(known.sum()) if unmarked else 0,
        "unseen": sorted(unseen),
    }  # fmt: skip


def predicted(run: str, estimator: Estimator, data: Graph, *, out: str, probabilities: bool) -> dict[str, Any]:
    """Write a table with the predictions for every node, its rows by the processes that have them, one by one."""
    import pandas as pd

    part, file = part_of(data), Path(out)
    table = pd.DataFrame(estimator.predictions(data, probabilities=probabilities))
    text = table.to_csv(index=False, float_format="%.6f", lineterminator="\n", header=part.line.rank == 0)
    if part.line.size == 1:
        write_atomically(file, text)
        return {"predictions": len(table), "file": out}
    growing = file.with_name(f"{file.name}.tmp")

    def write() -> None:
        with writing(file), growing.open("a" if part.line.rank else "w", encoding="utf-8") as rows:
            rows.write(text)

    try:
        for place in range(part.line.size):
            agreed(part.line, lambda place=place: write() if place == part.line.rank else None)  # type: ignore[misc]
        if part.line.rank == 0:
            growing.replace(file)
    finally:
        if part.line.rank == 0:
            growing.unlink(missing_ok=True)
    return {"predictions": int(part.line.sum(torch.tensor(len(table)))), "file": out}
