"""What happens when a worker dies, hangs or goes wrong: it is noticed, named, and the others end too.

Every worker has a heartbeat: it writes where it is to a key-value store, twice a second and whenever an epoch begins.
Whoever watches the heartbeats notices a worker that hangs; one that dies is noticed by its exit code or by its
neighbours' broken connections. Under torchrun anybody who reaches the store can write to it: what stands there is never
taken for more than a text. Processes along the rows have the same W and b, bit for bit, since each decides by its own:
before a checkpoint they compare them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from ..admm.state import Weights
from ..utils import decoded
from .layout import Plan, describe
from .team import DistributedTeam, Line, PeerLostError, Stop, Team

#: How long a process may take to start: importing torch on a busy machine is slow.
START_SECONDS = 120.0
#: How long after others, where they may be on other machines.
JOIN_SECONDS = 300.0
#: Exit code of a worker that lost another one.
EXIT_PEER_LOST = 4
#: Exit code of a worker that was told to end, as shells have it.
EXIT_TERMINATED = 128 + signal.SIGTERM
#: In the store if a worker ends for a reason that has been told.
GIVEN_UP = "given-up"


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
#: Anybody may have written it; what is larger is nothing that a range could be made of.
Size = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class Place(msgspec.Struct, frozen=True):
    """Where a worker is, the content of a heartbeat."""

    epoch: Size
    #: Its first layer, and the one after its last.
    layers: tuple[Size, Size]
    #: Its place along the chain and along the rows, each with the number of places.
    chain: tuple[Size, Size]
    shard: tuple[Size, Size]


class Heartbeats:
    """The heartbeats of all workers, as they are seen in the store."""

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
        try:
            place = decoded(Place, self._last.get(rank, (b"", 0.0))[0])
        except ValueError:  # nothing yet, not all of it yet, or nothing that a worker wrote
            return f"worker {rank}, not yet in an epoch,"
        (shard, shards), (at, places) = place.shard, place.chain
        part = f", place {at + 1} of {places} in the chain, shard {shard + 1} of {shards}" if shards > 1 else ""
        return f"worker {rank} ({describe(range(*place.layers))}{part}), last seen in epoch {place.epoch},"


class Heartbeat:
    """A thread that writes where this worker is, from its start until it leaves.

    Where nobody else does (``watch``) it looks at the others' as well. The group forms meanwhile, so that of those who
    wait for one that does not come only that one is silent.
    """

    def __init__(self, store: KeyValueStore, rank: int, size: int, timeout: float, *, watch: bool) -> None:
        self.store = store
        self.rank = rank
        self._timeout = timeout
        self._interval = min(0.5, timeout / 10)
        self._others = Heartbeats(store, size, JOIN_SECONDS) if watch else None
        #: SIGTERM is how torchrun ends the others of one that died: they have something to say first.
        self._terminations = Terminations() if watch else None
        self._place: dict[str, Any] = {}
        self._done = False
        self._moved = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def move(self, **place: Any) -> None:
        """Tell of a new place, given as in :class:`Place`."""
        self._place = self._place | place
        self._moved.set()

    def stop(self) -> None:
        """End the thread."""
        self._done = True
        self._moved.set()
        # A thread that is inside the store when the interpreter ends takes the whole process down with SIGABRT.
        self._thread.join(self._timeout)
        if self._terminations is not None:
            self._terminations.close()

    def find_lost(self) -> int:
        """The worker that is silent while the others look for it here; -1 if there is none, or nobody looks."""
        if self._others is None:
            return -1
        time.sleep(3 * self._interval)
        return self._others.longest_silent(2 * self._interval)

    def _run(self) -> None:
        count, told_to_end = 0, float("inf")
        while not self._done:
            count += 1
            try:
                self.store.set(f"beat/{self.rank}", json.dumps(self._place | {"count": count}))
                if self._others is not None:
                    self._others.look()
                    for complaint in self._others.silent(self._timeout).values():
                        _die(complaint)
            except (OSError, RuntimeError):
                if not self._done:  # the store is gone, and with it whoever started us
                    os._exit(EXIT_PEER_LOST)
            if self._terminations is not None and self._terminations.heard():
                told_to_end = time.monotonic()
            if self._others is not None and time.monotonic() - told_to_end > 3 * self._interval:
                lost = self._others.longest_silent(2 * self._interval)
                if lost >= 0 and not self.store.check([GIVEN_UP]):
                    _die(f"{self._others.describe(lost)} was lost")
                os._exit(EXIT_TERMINATED)
            time.sleep(min(self._interval, 0.02))  # writing is cheap, but not for an epoch of a millisecond
            self._moved.wait(self._interval)
            self._moved.clear()


class Terminations:
    """SIGTERM, heard by any thread, also while the main one waits for another process and hears nothing."""

    def __init__(self) -> None:
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._handler = signal.signal(signal.SIGTERM, lambda *_: None)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)

    def heard(self) -> bool:
        """Has it come since this was last asked?"""
        try:
            return signal.SIGTERM in os.read(self._pipe[0], 1 << 16)
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Let others hear it again."""
        signal.set_wakeup_fd(self._wakeup)
        signal.signal(signal.SIGTERM, self._handler)
        for end in self._pipe:
            os.close(end)


class WatchedTeam(DistributedTeam):
    """A distributed team whose members have heartbeats, and can be asked to stop."""

    def __init__(self, store: KeyValueStore, heartbeat: Heartbeat, shards: int = 1) -> None:
        self._store = store
        self._heartbeat = heartbeat
        super().__init__(shards)

    def arrange(self, shards: int) -> None:
        super().arrange(shards)
        self._heartbeat.move(chain=[self.chain.rank, self.chain.size], shard=[self.rows.rank, self.rows.size])

    def progress(self, *, epoch: int, layers: range) -> None:
        self._heartbeat.move(epoch=epoch, layers=[layers.start, layers.stop])

    def stop_requested(self) -> Stop:
        if self.rank > 0 or not self._store.check(["stop"]):
            return Stop.NOBODY
        try:
            return Stop(int(self._store.get("stop")))
        except ValueError:  # nothing that we wrote, or only half of it yet
            return Stop.NOBODY

    def give_up(self) -> None:
        """End soon, for a reason that has been told: the others, when they are told to end, have nothing to add."""
        self._store.set(GIVEN_UP, "1")

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


def _die(message: str) -> NoReturn:
    print(f"error: PEER_LOST: {message}", file=sys.stderr, flush=True)
    os._exit(EXIT_PEER_LOST)


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


# ------------------------------------------------------------------------------------------------------------ replicas

#: Words of a tensor that are summed at a time, which bounds the memory that a fingerprint takes.
BLOCK = 1 << 20


class ReplicasDifferError(WorkerLostError):
    """Processes with the same layers have different weights; the message says which, where and since when."""


def fingerprint(layer: Weights) -> Tensor:
    r"""One number of the bits of W and b, :math:`\sum_i i x_i \bmod 2^{64}` over their words of 32 bits.

    One word that differs always changes it. Whole numbers, so that the order of the sum does not matter.
    """
    total = torch.zeros((), dtype=torch.int64, device=layer.W.device)
    first = 1
    for tensor in (layer.W, layer.b):
        for words in tensor.contiguous().view(-1).view(torch.int32).split(BLOCK):
            total += (words * torch.arange(first, first + len(words), device=words.device)).sum()
            first += len(words)
    return total.cpu()


def check_replicas(team: Team, plan: Plan, layers: Sequence[Weights], epoch: int) -> None:
    """Raise unless processes with the same layers, along the rows, have the same bits of W and b.

    All of the team call it together. All learn the same and so end together: nobody goes on to write a checkpoint, or
    waits for one who does not.
    """
    shards = team.rows.size
    if shards == 1:
        return
    own = torch.zeros(1, max(plan.counts), dtype=torch.int64)
    for place, layer in enumerate(layers):
        own[0, place] = fingerprint(layer)
    by_layer = team.rows.concat(own, [1] * shards).T[: len(layers)].contiguous()
    prints = team.chain.concat(by_layer, plan.counts).tolist()
    differing = [layer for layer, of_shards in enumerate(prints) if len(set(of_shards)) > 1]
    if differing:
        numbers = ", ".join(str(layer + 1) for layer in differing)
        # Shards with the same fingerprint together, the fewest first: 2 against 1, 3.
        one = prints[differing[0]]
        alike = [[str(shard) for shard, own in enumerate(one, 1) if own == each] for each in dict.fromkeys(one)]
        against = " against ".join(", ".join(shards) for shards in sorted(alike, key=len))
        raise ReplicasDifferError(
            f"epoch {epoch}, W or b of layer {numbers} differ: shard {against}; memory is faulty or this is a bug: "
            "report it if it comes again"
        )
