"""The program of one worker process on this machine, which :mod:`.fit` starts with the folder of a job."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ..config import ModelConfig
from ..engine.launch import join
from ..engine.team import PeerLostError, Team
from ..engine.watchdog import EXIT_PEER_LOST, WorkerLostError
from ..errors import InputError
from ..model import GAMLP
from .checkpoint import Checkpointing
from .fit import RESULT, ROWS, START, Job, fit, take_part


def main(folder: Path) -> None:
    """Join the team, train, and, on the first worker, write the result."""
    depend_on_parent()
    job = Job.read(folder)
    with member(job.config) as team:
        checkpointing = Checkpointing.joined(**job.checkpointing) if job.checkpointing else None
        if team.rank == 0:
            _lead(folder, job, team, checkpointing)
        else:
            take_part(job.config, seed=job.seed, team=team, checkpointing=checkpointing)


def depend_on_parent() -> None:
    """The process that started us hears our warnings, decides what an interrupt means, and takes us with it."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    warnings.showwarning = lambda message, *_, **__: tell({"warning": str(message)})


@contextmanager
def member(config: ModelConfig) -> Iterator[Team]:
    """Join the team, and leave it; what goes wrong meanwhile is told, and ends this process."""
    team = join(config.device, config.timeout, watch=False, shards=config.shards or 1)
    try:
        yield team
        team.leave()
    except InputError as error:
        tell({"error": str(error)})
        end(f"error: {error}", 1)
    except KeyboardInterrupt:
        if team.rank == 0:
            tell({"interrupted": True})
        end("interrupted", 1)
    except WorkerLostError as error:
        tell({"lost": str(error)})
        end(f"error: {error}", EXIT_PEER_LOST)
    except PeerLostError as error:
        end(f"error: {team.peer_lost(error)}", EXIT_PEER_LOST)
    except Exception:
        end(traceback.format_exc(), 1)


def _lead(folder: Path, job: Job, team: Team, checkpointing: Checkpointing | None) -> None:
    """Bring the data, tell of every epoch, and leave the result in the folder of the job."""
    problem = job.problem(folder)
    (folder / ROWS).unlink()  # nobody else reads the data, and they would stay if the one that wrote them were killed
    result = fit(
        problem,
        seed=job.seed,
        on_epoch=lambda record: tell({"epoch": record}),
        checkpointing=checkpointing,
        team=team,
        start=GAMLP.load(folder / START)[0] if (folder / START).exists() else None,
    )
    extra = {"status": result.status.name, "plan": result.plan.counts, "message": result.message}
    result.model.cpu().save(folder / RESULT, extra)


def end_with_parent() -> None:
    """The process that started us holds the other end of our input: it ends when that process does, however it does."""
    while os.read(0, 1):
        pass
    os._exit(EXIT_PEER_LOST)


def end(message: str, code: int) -> NoReturn:
    """Not through exit handlers: with a broken team they would wait, or abort and hide the cause."""
    print(message, file=sys.stderr, flush=True)
    os._exit(code)


def tell(note: dict[str, Any]) -> None:
    """Tell the process that started us."""
    print(json.dumps(note), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # not through exit handlers, in which threads of groups that are gone may abort the process
