"""Start the processes of a group on this machine, and join one. What becomes of a lost one is in ``watchdog``."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from ..errors import InputError
from .team import Stop
from .watchdog import JOIN_SECONDS, FolderStore, Heartbeat, Heartbeats, WatchedTeam, WorkerLostError, raise_if_lost

#: Names the folder in which the processes of one group meet.
TEAM = "PDADMM_G_TEAM"
#: Gets the rank of a worker and what it says; True asks all of them to finish early.
OnNote = Callable[[int, dict[str, Any]], object]
#: What workers have said and nobody has heard yet, the first one first.
Notes = deque[tuple[int, dict[str, Any]]]


def join(device: str, timeout: float, *, watch: bool, shards: int = 1) -> WatchedTeam:
    """Join the process group that the environment describes.

    RANK and WORLD_SIZE are in it, and where the processes meet: a folder of :func:`run_workers`, or MASTER_ADDR and
    MASTER_PORT of torchrun.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if TEAM in os.environ:
        # Groups need a store of torch's, whose file one that is stopped may have locked: heartbeats are not there.
        folder = Path(os.environ[TEAM])
        store: Store = FileStore(str(folder / "groups"), size)
        values: Store | FolderStore = FolderStore(folder)
        heard: Store | FolderStore = values
    else:
        store = values = _connect(host=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True")
        heard = _connect(host=False)  # a connection serves one thread
    heartbeat = Heartbeat(heard, rank, size, timeout, watch=watch)
    # The watchdog notices what hangs, long before these timeouts; they only bound what it cannot see.
    patience = timedelta(seconds=max(1800, 10 * timeout))
    backend = _backend(device, store, rank, size)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(backend, store=PrefixStore("group", store), rank=rank, world_size=size, timeout=patience)
    team = WatchedTeam(values, heartbeat, shards)
    # Connections form at first use: form them all now, while everyone is here.
    team.barrier()
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


def run_workers(
    command: list[str],
    workers: int,
    *,
    threads: int,
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
            "OMP_NUM_THREADS": str(threads),
            "GLOO_SOCKET_IFNAME": interface or os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        }
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
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None and not (pipe is process.stdout and reader.is_alive()):
                        pipe.close()


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
    for line in process.stdout:
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
