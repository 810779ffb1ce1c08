"""Processes: joining a team, and starting one on this machine. What becomes of a lost worker is in ``watchdog``."""

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
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from ..errors import InputError
from .folder_store import Board, FolderStore
from .team import Stop
from .watchdog import JOIN_SECONDS, Beats, Heart, WatchedTeam, WorkerLostError, raise_if_lost

#: Names the folder in which the workers of one process meet.
TEAM = "PDADMM_G_TEAM"
#: Gets the rank of a worker and what it says; True asks all of them to finish early.
OnNote = Callable[[int, dict[str, Any]], object]
#: What workers have said and nobody has heard yet, the first one first.
Notes = deque[tuple[int, dict[str, Any]]]


def join(device: str, timeout: float, *, watch: bool, shards: int = 1) -> WatchedTeam:
    """Become a member of the team that the environment describes.

    RANK and WORLD_SIZE are in it, and where the team meets: a folder of :func:`run_workers`, or MASTER_ADDR and
    MASTER_PORT of torchrun.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store, board, board_of_heart = _in_folder(size) if TEAM in os.environ else _by_address(rank)
    heart = Heart(board_of_heart, rank, size, timeout, watch=watch)
    # The watchdog notices what hangs, long before these timeouts; they only bound what it cannot see.
    patience = timedelta(seconds=max(1800, 10 * timeout))
    backend = _backend(device, store, rank, size)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(backend, store=PrefixStore("group", store), rank=rank, world_size=size, timeout=patience)
    team = WatchedTeam(board, heart, shards)
    # Connections form at first use: form them all now, while everyone is here.
    team.barrier()
    return team


def _in_folder(size: int) -> tuple[Store, Board, Board]:
    """Where the groups of a team on this machine meet, and its board, in a folder that nobody else can open.

    Groups need a store of torch's, whose file one that is stopped may have locked: what is watched is not there.
    """
    folder = Path(os.environ[TEAM])
    board = FolderStore(folder)
    return FileStore(str(folder / "groups"), size), board, board


def _by_address(rank: int) -> tuple[Store, Board, Board]:
    """The same by the network: a store, and a connection of its own for the heart, since each serves one thread."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def connect(*, host: bool) -> Store:
        patience = timedelta(seconds=JOIN_SECONDS + 60)
        try:
            store = TCPStore(address, port, is_master=host, wait_for_workers=False, timeout=patience)
        except dist.DistError:
            remedy = "start the process that listens there, or unset TORCHELASTIC_RUN_ID to do without torchrun"
            raise InputError(f"nobody answers at {address}, port {port}: {remedy}") from None
        return PrefixStore(f"pdadmm-g/{attempt}", store)

    store = connect(host=rank == 0 and not served)
    return store, store, connect(host=False)


@dataclass(frozen=True)
class Site:
    """Where workers run: on the loopback, unless their network is made for them."""

    #: The device by which they talk to each other.
    interface: str | None = None
    #: What starts inside it is in the place of that worker.
    inside: Callable[[int], AbstractContextManager[Any]] = nullcontext


LOOPBACK = Site()


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
    site: Site = LOOPBACK,
) -> None:
    """Run ``command`` once per worker and watch until all have ended well; else end all and raise.

    Each worker prints notes, one JSON object a line. An interrupt asks the workers to finish early, as True from
    ``on_note`` does; a second one ends them. No process outlives this call.
    """
    with tempfile.TemporaryDirectory(prefix="team-", dir=folder) as team:  # which only its owner can open
        crew = _Crew(folder)
        try:
            crew.start(command, workers, _environment(team, workers, threads, site), site)
            crew.watch(FolderStore(Path(team)), timeout, on_note)
        finally:
            crew.end()


class _Crew:
    """The worker processes of one call, and what they have said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.readers: list[threading.Thread] = []
        self.notes: Notes = deque()

    def start(self, command: list[str], workers: int, environment: dict[str, str], site: Site) -> None:
        """Start them all, each with a thread that reads its notes."""
        for rank in range(workers):
            with (self.folder / f"stderr-{rank}").open("w") as errors, site.inside(rank):
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
            self.processes.append(process)
            self.readers.append(threading.Thread(target=_read_notes, args=(rank, process, self.notes), daemon=True))
            self.readers[-1].start()

    def watch(self, board: Board, timeout: float, on_note: OnNote) -> None:
        """Pass their notes on until all have ended well; the first interrupt asks them to finish early."""
        beats = Beats(board, len(self.processes))
        interrupted = False

        def heed(rank: int, note: dict[str, Any]) -> None:
            if on_note(rank, note) is True and not interrupted:
                board.set("stop", str(int(Stop.CALLBACK)))

        while True:
            try:
                ended = all(process.poll() is not None for process in self.processes)
                if _pass_on(self.notes, heed) and not ended:
                    continue
                try:
                    raise_if_lost(self.processes, beats, self.folder, timeout)
                except WorkerLostError:
                    time.sleep(0.2)
                    _pass_on(self.notes, heed)  # one that refused its input has said so
                    raise
                if ended:
                    break
                time.sleep(0.01)
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                board.set("stop", str(int(Stop.INTERRUPT)))
        for reader in self.readers:
            reader.join(timeout=5.0)  # all have ended: what they said last is on its way
        _pass_on(self.notes, on_note)

    def end(self) -> None:
        """Kill those that still run, and close what connects us to them."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        for process, reader in zip(self.processes, self.readers, strict=False):
            reader.join(timeout=5.0)
            if process.stdout is not None and not reader.is_alive():
                process.stdout.close()


def _environment(team: str, workers: int, threads: int, site: Site) -> dict[str, str]:
    """That of every worker, as :func:`join` and torch read it."""
    environment = os.environ | {
        TEAM: team,
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "OMP_NUM_THREADS": str(threads),
    }
    environment["GLOO_SOCKET_IFNAME"] = site.interface or environment.get("GLOO_SOCKET_IFNAME", "lo")
    return environment


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
    any_note = False
    while notes:
        on_note(*notes[0])
        notes.popleft()
        any_note = True
    return any_note
