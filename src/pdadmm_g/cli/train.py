"""Training a model into a run folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from ..config import TARGETS, RunConfig, settings_where
from ..errors import InputError
from ..status import Status
from ..utils import Tasks
from .common import (
    BEFORE_REFIT,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_PEER_LOST,
    NO_TEST,
    PARTS,
    Output,
    SettingsCommand,
    end,
    error,
    expected,
    figure,
    output_options,
    settings_options,
    torchrun_processes,
)

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
    given = {name: value for name, value in options.items() if value is not None}
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"  # by torchrun: going on is what is wanted
    processes = torchrun_processes()
    config = None if resume or restarted else RunConfig.load(config_file, given)
    output.progress("starting")  # what follows loads torch, which takes seconds
    if config is None and config_file is None:
        free = {"epochs", *settings_where(RunConfig, decides="nothing")}
        config = _of_run(given, processes, must=resume and given.keys() <= free)
    config = config or RunConfig.load(config_file, given)
    if processes is not None:
        config = _dealt(config, processes)
    with Tasks() as tasks:
        return _train(config.resolved(), tasks, output, overwrite=overwrite, resume=resume or restarted)


def _of_run(given: dict[str, Any], processes: int | None, *, must: bool) -> RunConfig | None:
    """The settings of the run to go on with, those ``given`` in their place; without one None, or an error."""
    from ..runs.folder import RunFolder

    where = {name: value for name, value in given.items() if name in ("out", "dataset", "data_root", "seed")}
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
        known |= dict.fromkeys(("workers", "shards", "plan"))  # who computes is decided anew
    elif given.keys() & {"workers", "plan"}:
        known |= dict.fromkeys(("workers", "plan"))  # which must fit each other
    return RunConfig(**known | given | {"out": out})


def _dealt(config: RunConfig, processes: int) -> RunConfig:
    """The settings with workers and shards for the processes that torchrun has started."""
    workers, shards = config.workers, config.shards
    if workers == "auto" or (workers is None and shards is None and config.plan is None):
        return config.but(workers="auto")
    workers = workers or (len(config.plan) if config.plan else None)
    count, name = (workers, "workers") if shards is None else (shards, "shards")
    assert count is not None
    if processes % count:
        raise InputError(f"{processes} processes cannot be dealt to {count} {name}: start a multiple of {count}")
    if workers and shards and workers * shards != processes:
        needed = f"{workers} workers x {shards} shards are {workers * shards} processes"
        raise InputError(f"{needed}, but {processes} were started: start as many, or leave one of the two out")
    return config.but(workers=workers or processes // count, shards=shards or processes // count)


def _train(config: RunConfig, tasks: Tasks, output: Output, *, overwrite: bool, resume: bool) -> int:
    """Train and print what came of it. The exit code."""
    with tasks.doing("starting"):
        import scipy.sparse  # noqa: F401 (graphs are such matrices, and later its seconds would be of no task)

        from ..engine.launch import member
        from ..engine.watchdog import WorkerLostError
        from ..runs.run import started, train_run  # takes seconds, and once the team is joined the others watch
        from ..training.progress import Progress
        from ..utils import checked_device

    if config.device == "auto":
        config = config.but(device=str(checked_device("auto")))
    if config.init is not None:
        config, _ = started(config)
    is_member, remedy = torchrun_processes() is not None, f". {Status.PEER_LOST.advice}"
    joined: AbstractContextManager[WatchedTeam | None] = nullcontext()
    if is_member:
        joined = member(config.device, config.timeout, config.shards or 1, watch=True, remedy=remedy)
    try:
        with joined as team, Progress(config, console=output.console()) as progress:
            if team is None or team.rank == 0:
                tasks.listeners.append(progress.task)
            options: dict[str, Any] = {"on_epoch": progress.update, "say": output.progress, "team": team}
            summary = train_run(config, overwrite=overwrite, resume=resume, **options)
    except KeyboardInterrupt:
        if any("training" in name for name in tasks.seconds):
            raise
        click.echo("interrupted before the first epoch: nothing was saved; start again with the same command", err=True)
        return EXIT_INTERRUPTED
    except WorkerLostError as reason:
        error(f"{Status.PEER_LOST.name}: {reason}{remedy}")
        return EXIT_PEER_LOST
    code = 0
    if summary:
        status = Status[summary["status"]]
        code = EXIT_INTERRUPTED if status is Status.INTERRUPTED else EXIT_FAILURE if status.is_failure else 0
        _show(summary, config.out, output)
    return end(code) if is_member else code


def _show(summary: dict[str, Any], out: str | None, output: Output) -> None:
    output.result(summary | {"out": out})
    message = f"{summary['message']}. " if summary["message"] else ""
    ending = f"{summary['status']}: {message}{summary['advice']}"
    (error if Status[summary["status"]].is_failure else output.say)(ending)
    for choice in summary["choices"]:
        output.say(choice)
    name = TARGETS[summary.get("target") or "classification"].figure
    metrics = summary.get("metrics") or {}
    values = {part: metrics.get(part, {}).get(name, summary.get(f"{part}_accuracy")) for part in PARTS}
    each = ", ".join(f"{PARTS[part]} {figure(name, value)}" for part, value in values.items())
    output.say(f"{name.replace('_', ' ')}: {each}")
    for line in expected(summary):
        output.say(line)
    if (earlier := summary.get("val_score_before_refit")) is not None:
        output.say(BEFORE_REFIT.format(earlier))
    if values["test"] is None:
        output.say(NO_TEST)
    layers = "1 layer" if summary["layers"] == 1 else f"{summary['layers']} layers"
    output.say(f"{layers}, {summary['parameters']:,} parameters, {summary['epochs']} epochs")
    for line in _about_workers(summary):
        output.say(line)
    times = summary["times"]
    longest = ", ".join(f"{task} {seconds:.1f}" for task, seconds in times.items() if seconds >= 0.05)
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
