"""Training a model into a run folder."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..config import TARGETS, RunConfig, settings_where
from ..errors import InputError
from ..status import Status
from ..utils import Tasks
from . import torchrun
from .exit_codes import EXIT_FAILURE, EXIT_INPUT, EXIT_INTERRUPTED, EXIT_PEER_LOST
from .options import SettingsCommand, settings_options
from .output import Output, output_options
from .text import NO_TEST, PARTS, percent

if TYPE_CHECKING:
    from ..engine.watchdog import WatchedTeam


@click.command(cls=SettingsCommand)
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings; options on the command line win")
@click.option(
    "--overwrite", is_flag=True, help="replace a finished run in the run folder, which is in OUT/previous until then"
)
@click.option(
    "--resume",
    is_flag=True,
    help="go on from the run folder's last checkpoint, with its settings; --epochs may be more; or score its model",
)
@settings_options
@output_options
def train(config_file: str | None, overwrite: bool, resume: bool, output: Output, **options: Any) -> int:
    """Train a model and write a run folder.

    The folder holds config.yaml, metrics.jsonl (one line per epoch), summary.json and model.safetensors.

    Exit codes: 0 trained, 2 wrong input, 3 numerical failure (the line says in which epoch, layer and variable), 4 a
    worker was lost, 130 interrupted (Ctrl-C or SIGTERM). After 3 and 130 the folder holds the best model so far; after
    4 and 130 the run goes on with --resume if it wrote checkpoints.

    \b
    pdadmm-g train                                              the embedded digits
    pdadmm-g train --dataset cora --data-root raw --layers 2
    pdadmm-g train --dataset mygraph.npz --quantize pq --bits 4
    pdadmm-g train --config run.yaml --seed 1 --out runs/second
    pdadmm-g train --quiet --json > summary.json                for scripts: the summary and nothing else
    pdadmm-g train --dataset cora --workers 4 --checkpoint-every 10
    pdadmm-g train --resume --out runs/cora-0                   the folder knows the settings
    pdadmm-g train --resume --out runs/cora-0 --epochs 500      after all epochs were used: some more
    pdadmm-g train --dataset grown.npz --init runs/old          from the network of another run
    torchrun --nnodes 2 --nproc-per-node 4 -m pdadmm_g train --dataset cora
    """
    overrides = {name: value for name, value in options.items() if value is not None}
    # After a restart by torchrun, going on is what is wanted.
    goes_on = resume or _restarted()
    if goes_on:
        output.progress("starting")  # to read the folder takes torch, which takes seconds to load
    config = _settings(config_file, overrides, resume=resume)
    if not goes_on:
        output.progress("starting")
    with Tasks() as tasks:
        return _in_tasks(config, tasks, output, overwrite=overwrite, resume=goes_on)


def _in_tasks(config: RunConfig, tasks: Tasks, output: Output, *, overwrite: bool, resume: bool) -> int:
    """What the command does, to the last line. The exit code."""
    with tasks.doing("starting"):
        import scipy.sparse  # noqa: F401 (graphs are such matrices, and later its seconds would be of no task)

        from ..engine.launch import join
        from ..engine.team import PeerLostError
        from ..engine.watchdog import WorkerLostError
        from ..runs.run import started  # takes seconds, and once the team is joined the others watch
        from ..utils import checked_device

    if config.device == "auto":
        config = dataclasses.replace(config, device=str(checked_device("auto")))
    if config.init is not None:
        config, _ = started(config)
    team = join(config.device, config.timeout, watch=True, shards=config.shards or 1) if torchrun.is_member() else None
    try:
        summary = _train(config, team, tasks, output, overwrite=overwrite, resume=resume)
    except InputError as error:
        if team is None:
            raise
        click.echo(f"error: {error}", err=True)
        team.give_up()
        torchrun.end(EXIT_INPUT)
    except KeyboardInterrupt:
        if team is not None or any("training" in name for name in tasks.seconds):
            raise
        why = "interrupted before the first epoch: nothing was saved"
        click.echo(f"{why}; start again with the same command", err=True)
        return EXIT_INTERRUPTED
    except (WorkerLostError, PeerLostError) as error:
        message = team.peer_lost(error) if team is not None and isinstance(error, PeerLostError) else str(error)
        click.echo(f"error: {Status.PEER_LOST.name}: {message}. {Status.PEER_LOST.advice}", err=True)
        return EXIT_PEER_LOST if team is None else torchrun.end(EXIT_PEER_LOST)
    code = 0
    if summary is not None:
        _print_summary(summary, config.out, output)
        status = Status[summary["status"]]
        code = EXIT_INTERRUPTED if status is Status.INTERRUPTED else EXIT_FAILURE if status.is_failure else 0
    return code if team is None else torchrun.end(code)


def _restarted() -> bool:
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def _settings(config_file: str | None, overrides: dict[str, Any], *, resume: bool) -> RunConfig:
    """Those of the file or of the run to go on with, what was given on the command line in their place."""
    processes = torchrun.processes()
    given = None
    if (resume or _restarted()) and config_file is None:
        free = {"epochs", *settings_where(RunConfig, decides="nothing")}
        given = _resumed(overrides, processes, must=resume and overrides.keys() <= free)
    given = given or RunConfig.load(config_file, overrides)
    if processes is not None:
        given = dataclasses.replace(given, **_mesh_of(processes, given))
    return given.resolved()


def _resumed(overrides: dict[str, Any], processes: int | None, *, must: bool) -> RunConfig | None:
    """The settings of the run to go on with; without one None, or an error if there ``must`` be one.

    Who computes is decided anew where other ``processes`` were started by torchrun than the run had.
    """
    from ..runs.folder import RunFolder

    where = {name: value for name, value in overrides.items() if name in ("out", "dataset", "data_root", "seed")}
    out = RunConfig(**where).resolved().out
    assert out is not None
    before = RunFolder(out).run_to_resume()
    if before is None:
        if must:
            remedy = "or, if it was interrupted before its first epoch, start it again without --resume"
            raise InputError(f"{out}: holds no run to resume; name its folder with --out, {remedy}")
        return None
    known = dict(vars(before))
    if processes is not None and (before.workers == "auto" or before.processes != processes):
        known |= dict.fromkeys(("workers", "shards", "plan"))
    elif overrides.keys() & {"workers", "plan"}:
        known |= dict.fromkeys(("workers", "plan"))  # which must fit each other
    return RunConfig(**known | overrides | {"out": out})


def _mesh_of(processes: int, given: RunConfig) -> dict[str, Any]:
    """The settings of workers and shards where so many processes were started."""
    workers, shards = given.workers, given.shards
    if workers is None and shards is None and given.plan is None:
        workers = "auto"
    if workers == "auto":
        return {"workers": workers}
    workers = workers or (len(given.plan) if given.plan else None)
    count, name = (workers, "workers") if shards is None else (shards, "shards")
    assert count is not None
    if processes % count:
        raise InputError(f"{processes} processes cannot be dealt to {count} {name}: start a multiple of {count}")
    if workers and shards and workers * shards != processes:
        needed = f"{workers} workers x {shards} shards are {workers * shards} processes"
        raise InputError(f"{needed}, but {processes} were started: start as many, or leave one of the two out")
    return {"workers": workers or processes // count, "shards": shards or processes // count}


def _train(
    config: RunConfig, team: WatchedTeam | None, tasks: Tasks, output: Output, *, overwrite: bool, resume: bool
) -> dict[str, Any] | None:
    """The summary of the run; None on a member of a team that is not the first."""
    from ..data.shards import is_sharded
    from ..runs.run import join_run, train_run
    from ..training.progress import Progress

    summary = None
    if is_sharded(config.dataset):
        from ..runs.sharded import train_sharded_run

        with Progress(config, console=output.console()) as progress:
            tasks.listeners.append(progress.task)
            summary = train_sharded_run(
                config, overwrite=overwrite, resume=resume, on_epoch=progress.update, say=output.progress, team=team
            )
    elif team is not None and team.rank > 0:
        if not join_run(config, team):
            team.give_up()
            time.sleep(1.0)  # the first worker says what is wrong before the agent ends everyone
            torchrun.end(EXIT_INPUT)
    else:
        with Progress(config, console=output.console()) as progress:
            tasks.listeners.append(progress.task)
            summary = train_run(
                config, overwrite=overwrite, resume=resume, on_epoch=progress.update, say=output.progress, team=team
            )
    if team is not None:
        team.leave()
    return summary


def _print_summary(summary: dict[str, Any], out: str | None, output: Output) -> None:
    output.result(summary | {"out": out})
    message = f"{summary['message']}. " if summary["message"] else ""
    ending = f"{summary['status']}: {message}{summary['advice']}"
    if Status[summary["status"]].is_failure:
        output.error(ending)
    else:
        output.say(ending)
    for choice in summary["choices"]:
        output.say(choice)
    figure = TARGETS[summary.get("target") or "classification"].figure
    values = {part: summary.get(f"{part}_accuracy") for part in PARTS}
    if figure != "accuracy":
        values = {part: (summary.get("metrics") or {}).get(part, {}).get(figure) for part in PARTS}
    each = ", ".join(f"{PARTS[part]} {percent(value)}" for part, value in values.items())
    output.say(f"{figure.replace('_', ' ')}: {each}")
    if values["test"] is None:
        output.say(NO_TEST)
    output.say(f"{summary['layers']} layers, {summary['parameters']:,} parameters, {summary['epochs']} epochs")
    for line in _about_workers(summary):
        output.say(line)
    times = summary["times"]
    longest = ", ".join(f"{name} {times[name]:.1f}" for name in times if times[name] >= 0.05)
    output.say(f"{sum(times.values()):.1f} s ({longest}); written to {out}")


def _about_workers(summary: dict[str, Any]) -> Iterator[str]:
    """What several workers sent, what of it quantization saved, and whether one would have been faster."""
    workers = len(summary["workers"])
    if workers < 2:
        return
    layers = "+".join(str(worker["layers"]) for worker in summary["workers"])
    sent, plain = summary["bytes_sent"], summary["bytes_unquantized"]
    saved = f", {1 - sent / plain:.0%} less than without quantization" if sent < plain else ""
    yield f"{workers} workers with {layers} layers sent {sent:,} bytes{saved}"
    if summary["work_seconds"] < summary["seconds"]:
        yield (
            f"{workers} workers were slower than one: together they computed {summary['work_seconds']:.1f} s, "
            f"and the epochs took {summary['seconds']:.1f} s"
        )
