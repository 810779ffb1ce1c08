"""Processes: joining a team, and starting one on this machine. What becomes of a lost worker is in ``watchdog``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
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
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from .team import Stop
from .watchdog import Beats, WatchedTeam, WorkerLostError, raise_if_lost

#: Gets the rank of a worker and what it says; True asks all of them to finish early.
OnNote = Callable[[int, dict[str, Any]], object]
#: What workers have said and nobody has heard yet, the first one first.
Notes = deque[tuple[int, dict[str, Any]]]


def join(device: str, timeout: float, *, watch: bool, shards: int | None = 1) -> WatchedTeam:
    """Become a member of the team that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

    Where the number of shards is still to be chosen, the team measures what it can do and is one chain at first.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def connect(*, host: bool) -> Store:
        store = TCPStore(address, port, is_master=host, wait_for_workers=False, timeout=timedelta(minutes=5))
        return PrefixStore(f"pdadmm-g/{attempt}", store)

    store = connect(host=rank == 0 and not served)
    # The watchdog notices what hangs, long before these timeouts; they only bound what it cannot see.
    patience = timedelta(seconds=max(1800, 10 * timeout))
    backend = _backend(device, store, rank, size)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(backend, store=PrefixStore("group", store), rank=rank, world_size=size, timeout=patience)
    # A store's connection serves one thread at a time: the beating thread gets its own.
    team = WatchedTeam(store, connect(host=False), timeout, watch=watch, shards=shards or 1)
    # Connections form at first use: form them all now, while everyone is here.
    team.barrier()
    if shards is None:
        team.measure()
    return team


@dataclass(frozen=True)
class Site:
    """Where workers run: on the loopback, unless their network is made for them."""

    #: Where all of them find the store, and the device by which they talk to each other.
    address: str = "127.0.0.1"
    interface: str | None = None
    #: What starts inside it is in the place of that worker; None for that of the store.
    inside: Callable[[int | None], AbstractContextManager[Any]] = nullcontext


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
    with site.inside(None):
        store = _local_store(site.address)
    watched = PrefixStore("pdadmm-g/0", store)
    crew = _Crew(folder)
    try:
        crew.start(command, workers, _environment(store.port, workers, threads, site), site)
        crew.watch(watched, timeout, on_note)
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
                    start_new_session=True,  # Ctrl-C is for this process, which tells them what it means
                )
            self.processes.append(process)
            self.readers.append(threading.Thread(target=_read_notes, args=(rank, process, self.notes), daemon=True))
            self.readers[-1].start()

    def watch(self, store: Store, timeout: float, on_note: OnNote) -> None:
        """Pass their notes on until all have ended well; the first interrupt asks them to finish early."""
        beats = Beats(store, len(self.processes))
        interrupted = False

        def heed(rank: int, note: dict[str, Any]) -> None:
            if on_note(rank, note) is True and not interrupted:
                store.set("stop", str(int(Stop.CALLBACK)))

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
                store.set("stop", str(int(Stop.INTERRUPT)))
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


def _environment(port: int, workers: int, threads: int, site: Site) -> dict[str, str]:
    """That of every worker, as :func:`join` and torch read it."""
    environment = os.environ | {
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": site.address,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",  # not that of a torchrun which we may be run by
    }
    environment["GLOO_SOCKET_IFNAME"] = site.interface or environment.get("GLOO_SOCKET_IFNAME", "lo")
    return environment


def _local_store(address: str) -> TCPStore:
    """A store that this machine alone can reach; left to itself, one listens to every network."""
    with socket.create_server((address, 0), backlog=512) as server:
        port = server.getsockname()[1]
        return TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=os.dup(server.fileno()))


def _read_notes(rank: int, process: subprocess.Popen[str], notes: Notes) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            notes.append((rank, json.loads(line)))


def _pass_on(notes: Notes, on_note: OnNote) -> bool:
    """Handle what has arrived; True if there was anything. What an interrupt cuts off stays, and is told again."""
    any_note = False
    while notes:
        on_note(*notes[0])
        notes.popleft()
        any_note = True
    return any_note
