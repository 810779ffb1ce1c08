"""Processes that run one program: start them on this machine and listen to them, or be one of them.

:func:`run_workers` starts a command once per rank, hears what ranks tell and ends all with the first that is lost. A
process of :func:`run_processes` runs :func:`main`, one of torchrun its command; both are in a :func:`member`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from ..errors import InputError, is_lack_of_memory
from .team import PeerLostError, Stop
from .watchdog import (
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_PEER_LOST,
    JOIN_SECONDS,
    FolderStore,
    Heartbeat,
    Heartbeats,
    WatchedTeam,
    WorkerLostError,
)

#: The command that becomes a process of :func:`run_processes`, to which the folder of the job is added.
WORKER = [sys.executable, "-m", "pdadmm_g.engine.launch"]
#: Names the folder in which the processes of one group meet.
TEAM = "PDADMM_G_TEAM"
#: What the processes of a job are to do, in its folder.
JOB = "job.json"
#: Gets the rank of a worker and what it says; True asks all of them to finish early.
OnNote = Callable[[int, dict[str, Any]], object]
#: What workers have said and nobody has heard yet, the first one first.
Notes = deque[tuple[int, dict[str, Any]]]


# ------------------------------------------------------------------------------------------------- being one of them


def main(folder: Path) -> None:
    """One process of :func:`run_processes`, which hears its warnings and decides what an interrupt means."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    warnings.showwarning = lambda message, category, *_, **__: (
        tell({"warning": str(message)}) if issubclass(category, UserWarning) else None
    )
    job = json.loads((folder / JOB).read_text())
    with member(*job["team"], watch=False) as team:
        getattr(importlib.import_module(job["module"]), job["name"])(team, folder, **job["arguments"])


@contextmanager
def member(device: str, timeout: float, shards: int, *, watch: bool, remedy: str = "") -> Iterator[WatchedTeam]:
    """Join the team, and leave it. Whatever goes wrong meanwhile ends this process, and all with the same one line.

    Members ``watch`` each other where nobody else does; what they say of one that is lost ends with the ``remedy``.
    """
    team = join(device, timeout, watch=watch, shards=shards, remedy=remedy)
    try:
        yield team
        team.leave()
    except KeyboardInterrupt:
        _end(team, EXIT_INTERRUPTED, "interrupted")
    except PeerLostError as error:
        team.end(EXIT_PEER_LOST, team.peer_lost(error))
    except WorkerLostError as error:
        _end(team, EXIT_PEER_LOST, str(error))
    except InputError as error:
        _end(team, EXIT_INPUT, str(error))
    except Exception as error:
        if is_lack_of_memory(error):
            _end(team, EXIT_INPUT, "not enough memory: lower hidden, hops or layers")
        if isinstance(error, OSError):
            _end(team, EXIT_INPUT, f"{error.filename}: {error.strerror}" if error.filename else str(error))
        team.end(1, traceback.format_exc())


def _end(team: WatchedTeam, code: int, line: str) -> None:
    if TEAM in os.environ:
        tell({{EXIT_INPUT: "error", EXIT_INTERRUPTED: "interrupted", EXIT_PEER_LOST: "lost"}[code]: line})
    team.end(code, line)


def _end_with_parent() -> None:
    """The process that started us holds the other end of our input: it ends when that process does, however it does."""
    while os.read(0, 1):
        pass
    os._exit(EXIT_PEER_LOST)


def tell(note: dict[str, Any]) -> None:
    """Tell the process that started us."""
    print(json.dumps(note), flush=True)


def join(device: str, timeout: float, *, watch: bool, shards: int = 1, remedy: str = "") -> WatchedTeam:
    """Join the process group that the environment describes.

    RANK and WORLD_SIZE are in it, and where the processes meet: a folder of :func:`run_workers`, or MASTER_ADDR and
    MASTER_PORT of torchrun.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if TEAM in os.environ:
        # Groups need a store of torch's, whose file one that is stopped may have locked: heartbeats are not there.
        folder = Path(os.environ[TEAM])
        store: Store = FileStore(str(folder / "groups"), size)
        heard: Store | FolderStore = FolderStore(folder)
    else:
        store = _connect(host=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True")
        heard = _connect(host=False)  # a connection serves one thread
    heartbeat = Heartbeat(heard, rank, size, timeout, watch=watch, remedy=remedy)
    # The watchdog notices what hangs, long before these timeouts; they only bound what it cannot see.
    patience = timedelta(seconds=max(1800, 10 * timeout))
    backend = _backend(device, store, rank, size)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(backend, store=PrefixStore("group", store), rank=rank, world_size=size, timeout=patience)
    team = WatchedTeam(heard if TEAM in os.environ else store, heartbeat, shards)
    # Connections form at first use: form them all now, while everyone is here.
    team.barrier()
    heartbeat.interruptible = True
    return team


def _connect(*, host: bool) -> Store:
    """The store at the address that torchrun has given, or that a user has."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    patience = timedelta(seconds=JOIN_SECONDS + 60)
    try:
        store = TCPStore(address, port, is_master=host, wait_for_workers=False, timeout=patience)
    except dist.DistError:
        remedy = "start the process that listens there, or unset TORCHELASTIC_RUN_ID to do without torchrun"
        raise InputError(f"nobody answers at {address}, port {port}: {remedy}") from None
    return PrefixStore(f"pdadmm-g/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _backend(device: str, store: Store, rank: int, size: int) -> str:
    """Gloo, and NCCL for what is on GPUs, unless several processes anywhere share one: that NCCL refuses.

    All processes must have the same, and each sees its own machine only: they tell each other.
    """
    if not device.startswith("cuda"):
        return "gloo"
    gpus = torch.cuda.device_count() if device == "cuda" else 1  # cuda:1 is the same one for all of a machine
    shared = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > gpus or not dist.is_nccl_available()
    store.set(f"shares-gpu/{rank}", str(int(shared)))
    anywhere = any(store.get(f"shares-gpu/{other}") == b"1" for other in range(size))
    return "gloo" if anywhere else "cpu:gloo,cuda:nccl"


# ----------------------------------------------------------------------------------------------------- starting them


def run_processes(
    work: Callable[..., None],
    folder: Path,
    processes: int,
    *,
    device: str,
    timeout: float,
    shards: int,
    on_note: OnNote,
    threads: int | None = None,
    **arguments: Any,
) -> None:
    """Call ``work(team, folder, **arguments)`` in so many processes, which find its name and arguments in the folder.

    They are started afresh (not forked), so that this works in a notebook and needs no guard in scripts.
    """
    job = {
        "module": work.__module__, "name": work.__name__, "team": [device, timeout, shards], "arguments": arguments,
    }  # fmt: skip
    (folder / JOB).write_text(json.dumps(job))
    command = [*WORKER, str(folder)]
    run_workers(command, processes, threads=threads, timeout=timeout, folder=folder, on_note=on_note)


def run_workers(
    command: list[str],
    workers: int,
    *,
    threads: int | None,
    timeout: float,
    folder: Path,
    on_note: OnNote,
    interface: str | None = None,
    inside: Callable[[int], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Run ``command`` once per worker and watch until all have ended well; else end all and raise.

    Each worker prints notes, one JSON object a line. An interrupt asks the workers to finish early, as True from
    ``on_note`` does; a second one ends them. No process outlives this call. They talk over the network ``interface``,
    the loopback if none is given, and worker ``rank`` is started ``inside(rank)``.
    """
    processes: list[subprocess.Popen[str]] = []
    readers: list[threading.Thread] = []
    notes: Notes = deque()
    with tempfile.TemporaryDirectory(prefix="team-", dir=folder) as meeting:  # which only its owner can open
        environment = os.environ | {
            TEAM: meeting,
            "WORLD_SIZE": str(workers),
            "LOCAL_WORLD_SIZE": str(workers),
            "GLOO_SOCKET_IFNAME": interface or os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        }
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        try:
            for rank in range(workers):
                with (folder / f"stderr-{rank}").open("w") as errors, inside(rank):
                    process = subprocess.Popen(
                        command,
                        env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                        stdin=subprocess.PIPE,  # nothing is written to it: it ends when this process does
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        text=True,
                        errors="replace",
                        start_new_session=True,  # Ctrl-C is for this process, which tells them what it means
                    )
                processes.append(process)
                readers.append(threading.Thread(target=_read_notes, args=(rank, process, notes), daemon=True))
                readers[-1].start()
            _watch(processes, notes, FolderStore(Path(meeting)), folder, timeout, on_note)
            for reader in readers:
                reader.join(timeout=5.0)  # all have ended: what they said last is on its way
            _pass_on(notes, on_note)
        finally:
            for process in processes:
                process.kill()
            for process, reader in zip(processes, readers, strict=False):
                process.wait()
                reader.join(timeout=5.0)
                assert process.stdin is not None
                process.stdin.close()


def _watch(
    processes: list[subprocess.Popen[str]],
    notes: Notes,
    store: FolderStore,
    folder: Path,
    timeout: float,
    on_note: OnNote,
) -> None:
    """Pass the notes on until all have ended well; the first interrupt asks them to finish early."""
    heartbeats = Heartbeats(store, len(processes))
    interrupted = False

    def heed(rank: int, note: dict[str, Any]) -> None:
        if on_note(rank, note) is True and not interrupted:
            store.set("stop", str(int(Stop.CALLBACK)))

    while True:
        try:
            ended = all(process.poll() is not None for process in processes)
            if _pass_on(notes, heed) and not ended:
                continue
            try:
                raise_if_lost(processes, heartbeats, folder, timeout)
            except WorkerLostError:
                time.sleep(0.2)
                _pass_on(notes, heed)  # one that refused its input has said so
                raise
            if ended:
                return
            time.sleep(0.01)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            store.set("stop", str(int(Stop.INTERRUPT)))


def _read_notes(rank: int, process: subprocess.Popen[str], notes: Notes) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            try:
                note = json.loads(line)
            except ValueError:
                continue  # a library has printed something
            if isinstance(note, dict):
                notes.append((rank, note))


def _pass_on(notes: Notes, on_note: OnNote) -> bool:
    """Handle what has arrived; True if there was anything. What an interrupt cuts off stays, and is told again."""
    any_note = bool(notes)
    while notes:
        on_note(*notes[0])
        notes.popleft()
    return any_note


def raise_if_lost(processes: list[subprocess.Popen[str]], heartbeats: Heartbeats, folder: Path, timeout: float) -> None:
    """Raise if one of the workers has ended badly, or does not answer; ``folder`` has what each said last."""
    codes = [process.poll() for process in processes]
    if any(codes):
        time.sleep(0.3)  # the neighbours of a dead worker fail too: let the one that caused it be among the ended
        codes = [process.poll() for process in processes]
        heartbeats.look()
        failed = [rank for rank, code in enumerate(codes) if code]
        cause = next((rank for rank in failed if codes[rank] != EXIT_PEER_LOST), failed[0])
        code = codes[cause] or 0
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            lines = (folder / f"stderr-{cause}").read_text(errors="replace").strip().splitlines()
            how = f"failed: {lines[-1] if lines else f'exit code {code}'}"
        raise WorkerLostError(f"{heartbeats.describe(cause)} {how}")
    heartbeats.look()
    for rank, complaint in heartbeats.silent(timeout).items():
        if codes[rank] is None:  # one that has ended well is silent too
            raise WorkerLostError(complaint)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # not through exit handlers, in which threads of groups that are gone may abort the process
