"""What evaluate and predict share: the options that name a finished run and a data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import NODE_TABLES
from ..status import Status
from . import torchrun
from .completion import DATASETS, words
from .exit_codes import EXIT_INPUT, EXIT_PEER_LOST

if TYPE_CHECKING:
    from ..engine.watchdog import WatchedTeam


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the commands that apply a finished run to a data set."""
    for decorate in (
        click.argument("run", shell_complete=words((), then="dir")),
        click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: the run's]"),
        click.option(
            "--edges",
            metavar="TEXT",
            help="table of edges that goes with a table of nodes",
            shell_complete=words((), then="file"),
        ),
        click.option(
            "--dataset",
            "--nodes",
            "dataset",
            metavar="TEXT",
            help="apply the model to this data set, by name, a file, a table of nodes, or a folder of shards "
            "[default: the run's]",
            shell_complete=words(DATASETS, then="file"),
        ),
        click.option(
            "--shards",
            type=click.IntRange(1, 10_000),
            default=1,
            metavar="N",
            help="processes that share the shards of a folder [default: 1, one shard after the other]",
        ),
    ):
        command = decorate(command)
    return command


def sharded_dataset(run: str, dataset: str | None, shards: int) -> str | None:
    """The data set to use a run on, if that is a folder of shards."""
    from ..data.shards import is_sharded
    from ..errors import InputError
    from ..runs.folder import RunFolder

    if dataset is None and (RunFolder(run).path / "config.yaml").exists():
        dataset = RunFolder(run).known().dataset
    if dataset is not None and is_sharded(dataset):
        return dataset
    if shards > 1:
        raise InputError(f"shards = {shards} needs a folder of shards, which 'pdadmm-g shard' makes")
    return None


def as_team(shards: int, work: Callable[[WatchedTeam | None, int], Any]) -> Any:
    """Do work on shards as one of the processes of torchrun, if it started us, else by ourselves."""
    size = torchrun.processes()
    if size is None:
        return work(None, shards)

    from ..engine.launch import join
    from ..engine.team import PeerLostError
    from ..errors import InputError

    team = join("cpu", 60.0, watch=True, shards=size)
    try:
        result = work(team, size)
        team.leave()
    except InputError as error:
        click.echo(f"error: {error}", err=True)
        team.give_up()
        torchrun.end(EXIT_INPUT)
    except PeerLostError as error:
        lost = f"{Status.PEER_LOST.name}: {team.peer_lost(error)}"
        click.echo(f"error: {lost}; start again with the same command", err=True)
        torchrun.end(EXIT_PEER_LOST)
    return result


def load_run(run: str, dataset: str | None, edges: str | None, data_root: str | None) -> tuple[Any, Any]:
    """The classifier of a run folder and the data set to use it on, its own with the masks that it trained by."""
    from ..data.datasets import load_dataset, require_edge_table
    from ..data.splits import with_masks
    from ..runs.folder import RunFolder

    folder = RunFolder(run)
    classifier = folder.classifier()
    target = classifier.config_.target
    if dataset is not None:
        labels, tables = None, Path(dataset).suffix in NODE_TABLES
        # A graph that is here needs nothing of the settings.
        if (tables or not Path(dataset).exists()) and (folder.path / "config.yaml").exists():
            config = folder.config()
            labels, data_root = config.labels if tables else None, data_root or config.data_root
        data = load_dataset(dataset, data_root, edges=edges, target=target, labels=labels)
        if classifier.augmentation_ is not None and classifier.augmentation_.mode != "none":
            require_edge_table(data, dataset)
        return classifier, data
    config = folder.known()
    data = load_dataset(
        config.dataset,
        data_root or config.data_root,
        edges=edges or config.edges,
        target=target,
        labels=config.labels,
    )
    return classifier, with_masks(data, config, seed=config.seed)[0]
