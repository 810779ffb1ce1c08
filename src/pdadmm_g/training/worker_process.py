"""The program of one worker process on this machine; ``parallel.py`` starts it with the folder of a job."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import load_file

from ..config import ModelConfig
from ..data.examples import Examples
from ..engine.launch import EXIT_PEER_LOST, join
from ..engine.team import PeerLostError
from ..errors import InputError
from . import checkpoint
from .checkpoint import Checkpointing
from .train import train


def main(folder: Path) -> None:
    """Join the team, train, and, on the first worker, write the result."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the process that started us decides what an interrupt means
    warnings.showwarning = lambda message, *_, **__: _tell({"warning": str(message)})
    job = json.loads((folder / "job.json").read_text())
    config = ModelConfig.from_settings(job["config"])
    torch.set_num_threads(config.threads)
    team = join(config.device, config.timeout, watch=False)
    training = validation = None
    if team.rank == 0:
        data = load_file(str(folder / "data.safetensors"), device=config.device)
        training = Examples(data["X_train"], data["y_train"])
        validation = Examples(data["X_val"], data["y_val"]) if "X_val" in data else None
    try:
        result = train(
            training, validation, job["classes"], config, seed=job["seed"], team=team,
            on_epoch=(lambda record: _tell({"epoch": record})) if team.rank == 0 else None,
            checkpointing=_checkpointing(job["checkpointing"]),
        )  # fmt: skip
        if result is not None:
            extra = {"status": result.status.name, "plan": result.plan.counts, "message": result.message}
            result.model.cpu().save(folder / "result.safetensors", extra)
        team.leave()
    except InputError as error:
        _tell({"error": str(error)})
        _end(f"error: {error}", 1)
    except PeerLostError as error:
        _end(f"error: {team.peer_lost(error)}", EXIT_PEER_LOST)
    except Exception:
        _end(traceback.format_exc(), 1)


def _checkpointing(job: dict[str, Any] | None) -> Checkpointing | None:
    if job is None:
        return None
    folder = Path(job["folder"])
    resume = checkpoint.to_go_on_from(folder) if job["resume"] else None
    return Checkpointing(folder, job["settings"], job["every"], resume, job["data"])


def _end_with_parent() -> None:
    """The process that started us holds the other end of our input: it ends when that process does, however it does."""
    while os.read(0, 1):
        pass
    os._exit(EXIT_PEER_LOST)


def _end(message: str, code: int) -> NoReturn:
    """Not through exit handlers: with a broken team they would wait, or abort and hide the cause."""
    print(message, file=sys.stderr, flush=True)
    os._exit(code)


def _tell(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
