"""What happens when a worker dies, hangs or goes wrong: it is noticed, named, and the others end too.

Every worker has a heartbeat: it writes where it is to a key-value store, twice a second and whenever an epoch begins.
Whoever watches the heartbeats notices a worker that hangs; one that dies is noticed by its exit code or by its
neighbours' broken connections. Under torchrun anybody who reaches the store can write to it: what stands there is never
taken for more than a text. Processes along the rows have the same W and b, bit for bit, since each decides by its own:
before a checkpoint they compare them.
"""

from __future__ import annotations

import _thread
import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from ..admm.state import Weights
from .layout import Plan, describe
from .team import DistributedTeam, Line, PeerLostError, Stop, Team

#: How long a process may take to start: importing torch on a busy machine is slow.
START_SECONDS = 120.0
#: How long after others, where they may be on other machines.
JOIN_SECONDS = 300.0
#: Exit codes of a worker that was given wrong input, lost another one, or was interrupted.
EXIT_INPUT, EXIT_PEER_LOST, EXIT_INTERRUPTED = 2, 4, 130
#: Exit code of a worker that was told to end, as shells have it.
EXIT_TERMINATED = 128 + signal.SIGTERM
#: In the store if a worker has ended and said why: its exit code and its rank.
ENDED = "ended"


class WorkerLostError(RuntimeError):
    """A worker died, stopped answering or went wrong; the message names it, its layers and the epoch."""


class FolderStore:
    """A key-value store for the processes of one user: files in a folder that only its owner can open.

    Each value is the first line of a file. Files are overwritten in place, which needs no room on a full disk, and
    never locked: a process that is stopped while it writes holds up nobody.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, key: str, value: str, /) -> None:
        file = os.open(self._path(key), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{value}\n".encode())
        finally:
            os.close(file)

    def get(self, key: str, /) -> bytes:
        with self._path(key).open("rb") as file:
            return file.readline().rstrip(b"\n")

    def check(self, keys: list[str], /) -> bool:
        return all(self._path(key).exists() for key in keys)

    def _path(self, key: str) -> Path:
        return self.folder / key.replace("/", "-")


#: What processes tell each other by name.
KeyValueStore = Store | FolderStore
#: Anybody may have written what stands there; where a worker is takes fewer bytes.
MOST_BYTES = 200


class Heartbeats:
    """The heartbeats of all workers, as they are seen in the store: a count, and where the worker is."""

    def __init__(self, store: KeyValueStore, size: int, start: float | None = None) -> None:
        self.store = store
        self.size = size
        self.start = START_SECONDS if start is None else start
        #: The newest of each worker, and when it was first seen.
        self._last: dict[int, tuple[bytes, float]] = {}

    def look(self) -> None:
        """Read the newest heartbeat of every worker."""
        for rank in range(self.size):
            key = f"beat/{rank}"
            text = self.store.get(key) if self.store.check([key]) else b""
            if rank not in self._last or text != self._last[rank][0]:
                self._last[rank] = (text, time.monotonic())

    def silent(self, timeout: float) -> dict[int, str]:
        """A complaint for each that has been silent for ``timeout`` seconds, or said nothing since its start."""
        now, complaints = time.monotonic(), {}
        for rank, (text, seen) in self._last.items():
            limit = timeout if text else max(timeout, self.start)
            if now - seen > limit:
                complaints[rank] = f"{self.describe(rank)} has not answered for {limit:g} s"
        return complaints

    def longest_silent(self, least: float) -> int:
        """The worker whose last heartbeat is the oldest, if that was ``least`` seconds ago, else -1."""
        rank, (_, seen) = min(self._last.items(), key=lambda item: item[1][1], default=(-1, (b"", 0.0)))
        return rank if time.monotonic() - seen > least else -1

    def describe(self, rank: int) -> str:
        """``worker 2 (layers 5-7), last seen in epoch 13,``: the subject of a sentence.

        On a mesh ``worker 3 (layers 5-7, place 2 of 2 in the chain, shard 2 of 2)``.
        """
        _, _, place = self._last.get(rank, (b"", 0.0))[0].decode(errors="replace").partition(" ")
        if place and place.isprintable() and len(place) <= MOST_BYTES:
            return f"worker {rank} {place}"
        return f"worker {rank}, not yet in an epoch,"


class Heartbeat:
    """A thread that writes where this worker is, from its start until it leaves.

    Where nobody else does (``watch``) it looks at the others' as well. The group forms meanwhile, so that of those who
    wait for one that does not come only that one is silent.
    """

    def __init__(
        self, store: KeyValueStore, rank: int, size: int, timeout: float, *, watch: bool, remedy: str = ""
    ) -> None:
        self.store = store
        self.rank = rank
        #: May an interrupt of all be one here? Not before the group has formed, nor in epochs: it is heard at the end.
        self.interruptible = self.interrupted = False
        self._remedy = remedy
        self._timeout = timeout
        self._interval = min(0.5, timeout / 10)
        self._others = Heartbeats(store, size, JOIN_SECONDS) if watch else None
        self._place = ""
        self._done, self._told_to_end = False, float("inf")
        self._moved, self._ends = threading.Event(), threading.Lock()
        # SIGTERM is how torchrun ends the others of one that died: they have something to say first. The main thread
        # may wait for another process and hear nothing.
        self._signals = os.pipe()
        self._before: list[Any] = []
        if watch:
            for end in self._signals:
                os.set_blocking(end, False)
            self._before = [signal.signal(signal.SIGTERM, lambda *_: None)]
            self._before += [signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)]
        elif rank == 0 and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # whoever started us tells of interrupts
            signal.signal(signal.SIGINT, self._interrupt)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def move(self, place: str) -> None:
        """Tell of a new place: the layers, and the epoch."""
        self._place = place
        self._moved.set()

    def stop_requested(self) -> Stop:
        """Has the process that started this one asked it to finish early?"""
        if self.rank > 0 or self._others is not None or not self.store.check(["stop"]):
            return Stop.NOBODY
        try:
            return Stop(int(self.store.get("stop")))
        except ValueError:  # nothing that we wrote, or only half of it yet
            return Stop.NOBODY

    def stop(self) -> None:
        """End the thread."""
        self._done = True
        self._moved.set()
        # A thread that is inside the store when the interpreter ends takes the whole process down with SIGABRT.
        self._thread.join(self._timeout)
        if self._before:
            signal.set_wakeup_fd(self._before[1])
            signal.signal(signal.SIGTERM, self._before[0])
        for end in self._signals:
            os.close(end)

    def find_lost(self) -> int:
        """The worker that is silent while the others look for it here; -1 if there is none, or nobody looks."""
        if self._others is None:
            return -1
        time.sleep(3 * self._interval)
        return self._others.longest_silent(2 * self._interval)

    def end(self, code: int, line: str, store: KeyValueStore | None = None) -> NoReturn:
        """End this process. Of those that watch each other the first one says why, and all end as it does.

        Another thread than this one does so by a connection of its own to the ``store``.
        """
        self._ends.acquire()  # for good
        self._done = True
        sys.stdout.flush()
        if self._others is not None:
            own = f"{code} {self.rank}"
            with suppress(RuntimeError, ValueError):  # the store is gone, or somebody else has written to it
                said = (store or self.store).compare_set(ENDED, "", own).decode()  # type: ignore[union-attr]
                code, line = int(said.split()[0]), line if said == own else ""
        if line:
            kind = "PEER_LOST: " if code == EXIT_PEER_LOST else ""
            line = (
                f"error: {kind}{line}{self._remedy if kind else ''}" if code in (EXIT_INPUT, EXIT_PEER_LOST) else line
            )
            print(line, file=sys.stderr, flush=True)
            if self._others is not None:
                time.sleep(2 * self._interval)  # the store may be here: the others hear of it before it is gone
        os._exit(code)  # not through exit handlers: with a broken team they would wait, or abort and hide the cause

    def _run(self) -> None:
        count = 0
        while not self._done:
            count += 1
            try:
                self.store.set(f"beat/{self.rank}", f"{count} {self._place}")
                if self._others is not None:
                    self._watch(self._others)
                elif self.interruptible and not self.interrupted and self.stop_requested() is Stop.INTERRUPT:
                    _thread.interrupt_main()
            except (OSError, RuntimeError):
                if not self._done:  # the store is gone, and with it whoever started us
                    host = "" if self._others is None else f"{self._others.describe(0)} was lost"
                    self.end(EXIT_PEER_LOST, host)
            time.sleep(min(self._interval, 0.02))  # writing is cheap, but not for an epoch of a millisecond
            self._moved.wait(self._interval)
            self._moved.clear()

    def _watch(self, others: Heartbeats) -> None:
        """End if another process has ended and said why, does not answer, or if this one is told to end."""
        others.look()
        if self.store.check([ENDED]) and not self._done:
            self.end(EXIT_PEER_LOST, "")
        for complaint in others.silent(self._timeout).values():
            self.end(EXIT_PEER_LOST, complaint)
        with suppress(BlockingIOError):
            if signal.SIGTERM in os.read(self._signals[0], 1 << 16):
                self._told_to_end = time.monotonic()
        if time.monotonic() - self._told_to_end > 3 * self._interval:
            lost = others.longest_silent(2 * self._interval)
            if lost < 0:
                os._exit(EXIT_TERMINATED)
            self.end(EXIT_PEER_LOST, f"{others.describe(lost)} was lost")

    def _interrupt(self, *_: object) -> None:
        if self.interruptible and not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt


class WatchedTeam(DistributedTeam):
    """A distributed team whose members have heartbeats, and can be asked to stop."""

    def __init__(self, store: KeyValueStore, heartbeat: Heartbeat, shards: int = 1) -> None:
        self._store = store
        self._heartbeat = heartbeat
        super().__init__(shards)

    def end(self, code: int, line: str) -> NoReturn:
        """End this process, see :meth:`Heartbeat.end`."""
        self._heartbeat.end(code, line, self._store)

    def progress(self, *, epoch: int, layers: range) -> None:
        chain, rows, part = self.chain, self.rows, ""
        if rows.size > 1:
            where = f"place {chain.rank + 1} of {chain.size} in the chain"
            part = f", {where}, shard {rows.rank + 1} of {rows.size}"
        self._heartbeat.move(f"({describe(layers)}{part}), last seen in epoch {epoch},")

    def stop_requested(self) -> Stop:
        asked = self._heartbeat.stop_requested()
        self._heartbeat.interrupted |= asked is Stop.INTERRUPT
        return asked

    @contextmanager
    def in_epochs(self) -> Iterator[None]:
        self._heartbeat.interruptible = False
        try:
            yield
        finally:
            self._heartbeat.interruptible = True

    def leave(self) -> None:
        """End the heartbeat and take the connections down, after everyone is done."""
        self.barrier()
        self._heartbeat.stop()
        self.leftward = None
        self.chain = self.rows = Line()  # groups that are still held when the interpreter ends abort the process too
        dist.destroy_process_group()

    def peer_lost(self, error: PeerLostError) -> str:
        """Which worker it was, as far as heartbeats or the connection tell."""
        # One whose connection broke may have ended because it lost another itself: the first to fall silent is it.
        lost = self._heartbeat.find_lost()
        peer = lost if lost >= 0 else error.peer
        if peer < 0:
            return "a worker was lost"
        heartbeats = Heartbeats(self._store, self.size)
        heartbeats.look()
        return f"{heartbeats.describe(peer)} was lost"


# ------------------------------------------------------------------------------------------------------------ replicas


class ReplicasDifferError(WorkerLostError):
    """Processes with the same layers have different weights; the message says which, where and since when."""


def fingerprint(layer: Weights) -> int:
    """A number of 48 bits of the bits of W and b."""
    digest = hashlib.blake2b(digest_size=6)
    for tensor in (layer.W, layer.b):
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return int.from_bytes(digest.digest(), "little")


def check_replicas(team: Team, plan: Plan, layers: Sequence[Weights], epoch: int) -> None:
    """Raise unless processes with the same layers, along the rows, have the same bits of W and b.

    All of the team call it together. All learn the same and so end together: nobody goes on to write a checkpoint, or
    waits for one who does not.
    """
    shards = team.rows.size
    if shards == 1:
        return
    own = torch.zeros(max(plan.counts), dtype=torch.int64)
    own[: len(layers)] = torch.tensor([fingerprint(layer) for layer in layers], dtype=torch.int64)
    by_layer = team.rows.concat(own[None], [1] * shards).T[: len(layers)].contiguous()
    prints = team.chain.concat(by_layer, plan.counts)
    differing = ((prints != prints[:, :1]).any(1).nonzero().view(-1) + 1).tolist()
    if differing:
        first = prints[differing[0] - 1].tolist()
        camps = [[str(shard) for shard, own in enumerate(first, 1) if own == each] for each in dict.fromkeys(first)]
        raise ReplicasDifferError(
            f"epoch {epoch}, W or b of layer {', '.join(map(str, differing))} differ: shard "
            f"{' against '.join(map(', '.join, sorted(camps, key=len)))}; memory is faulty or this is a bug: report it "
            "if it comes again"
        )
