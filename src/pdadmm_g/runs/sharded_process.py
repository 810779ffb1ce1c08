"""The program of one process of a task on shards, which ``sharded_run`` starts with the folder of a job."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..engine.launch import join
from ..engine.team import PeerLostError, Team
from ..engine.watchdog import EXIT_PEER_LOST
from ..errors import InputError
from ..training.checkpoint import Checkpointing
from ..training.sharded import ShardedResult, fit_sharded
from ..training.worker_process import end, end_with_parent, tell
from .sharded_predictions import predict_task, score_task
from .sharded_run import JOB, MODEL, RESULT, classifier_of, model_config, plain


def main(folder: Path) -> None:
    """Join the team and do the task; the first process leaves the result in the folder."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the process that started us decides what an interrupt means
    warnings.showwarning = lambda message, *_, **__: tell({"warning": str(message)})
    job = json.loads((folder / JOB).read_text())
    config = RunConfig(**job["config"])
    team = join(config.device, config.timeout, watch=False, shards=config.shards or 1)
    try:
        task = TASKS[job["task"]]
        result = task(folder, job, team)
        if team.rank == 0:
            (folder / RESULT).write_text(json.dumps(result))
        team.leave()
    except InputError as error:
        tell({"error": str(error)})  # all know the same one
        end(f"error: {error}", 1)
    except KeyboardInterrupt:
        if team.rank == 0:
            tell({"interrupted": True})
        end("interrupted", 1)
    except PeerLostError as error:
        end(f"error: {team.peer_lost(error)}", EXIT_PEER_LOST)
    except Exception:
        end(traceback.format_exc(), 1)


def _train(folder: Path, job: dict[str, Any], team: Team) -> dict[str, Any] | None:
    config = RunConfig(**job["config"])

    def on_trained(found: ShardedResult) -> None:
        classifier_of(found, config).save(folder / MODEL)
        (folder / RESULT).write_text(json.dumps(plain(found)))
        tell({"trained": True})

    found = fit_sharded(
        config.dataset,
        model_config(config),
        seed=config.seed,
        team=team,
        on_epoch=lambda record: tell({"epoch": record}),
        checkpointing=Checkpointing.joined(**job["checkpointing"]),
        say=lambda line: tell({"progress": line}),
        on_trained=on_trained,
    )
    return None if found is None else plain(found)


TASKS: dict[str, Callable[[Path, dict[str, Any], Team], dict[str, Any] | None]] = {
    "train": _train,
    "predict": predict_task,
    "evaluate": score_task,
}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # not through exit handlers, in which threads of groups that are gone may abort the process
