"""What happens when a worker dies or hangs: it is noticed, named, and the others end too.

Every worker beats: it writes where it is to a store, twice a second and whenever an epoch begins. Whoever watches the
beats notices a worker that hangs; one that dies is noticed by its exit code or by its neighbours' broken connections.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from .plan import describe
from .team import DistributedTeam, Line, PeerLostError, Stop

#: How long a process may take to start: importing torch on a busy machine is slow.
START_SECONDS = 120.0
#: Exit code of a worker that lost another one.
EXIT_PEER_LOST = 4


class WorkerLostError(RuntimeError):
    """A worker died, stopped answering or went wrong; the message names it, its layers and the epoch."""


class Beats:
    """The beats of a team, seen through a store."""

    def __init__(self, store: Store, size: int) -> None:
        self.store = store
        self.size = size
        self._last: dict[int, tuple[str, float]] = {}

    def look(self) -> None:
        """Read the newest beat of every worker."""
        for rank in range(self.size):
            key = f"beat/{rank}"
            text = self.store.get(key).decode() if self.store.check([key]) else ""
            if text != self._last.get(rank, ("", 0.0))[0] or rank not in self._last:
                self._last[rank] = (text, time.monotonic())

    def silent(self, timeout: float) -> list[int]:
        """Workers that have not beaten for ``timeout`` seconds; before the first beat they may take START_SECONDS."""
        now = time.monotonic()
        return [
            rank
            for rank, (text, seen) in self._last.items()
            if now - seen > (timeout if text else max(timeout, START_SECONDS))
        ]

    def longest_silent(self, least: float) -> int:
        """The worker whose last beat is the oldest, if that was ``least`` seconds ago, else -1."""
        rank, (_, seen) = min(self._last.items(), key=lambda item: item[1][1], default=(-1, ("", 0.0)))
        return rank if time.monotonic() - seen > least else -1

    def describe(self, rank: int) -> str:
        """``worker 2 (layers 5-7), last seen in epoch 13,``: the subject of a sentence.

        On a mesh ``worker 3 (layers 5-7, place 2 of 2 in the chain, shard 2 of 2)``.
        """
        text = self._last.get(rank, ("", 0.0))[0]
        if not text:
            return f"worker {rank}, not yet in an epoch,"
        beat = json.loads(text)
        (shard, shards), (place, places) = beat["shard"], beat["chain"]
        part = f", place {place + 1} of {places} in the chain, shard {shard + 1} of {shards}" if shards > 1 else ""
        return f"worker {rank} ({describe(range(*beat['layers']))}{part}), last seen in epoch {beat['epoch']},"


class WatchedTeam(DistributedTeam):
    """A distributed team whose members beat, and can be asked to stop."""

    def __init__(self, store: Store, beat_store: Store, timeout: float, *, watch: bool, shards: int = 1) -> None:
        self._place: dict[str, Any] = {"epoch": 0, "layers": [0, 0]}
        super().__init__(shards)
        self.store = store
        self._beat_store = beat_store
        self._timeout = timeout
        self._interval = min(0.5, timeout / 10)
        self._beats = Beats(beat_store, self.size) if watch else None
        self._done = False
        self._moved = threading.Event()
        self._heart = threading.Thread(target=self._live, daemon=True)
        self._heart.start()

    def arrange(self, shards: int) -> None:
        super().arrange(shards)
        lines = {name: [line.rank, line.size] for name, line in (("chain", self.chain), ("shard", self.rows))}
        self._place = self._place | lines

    def progress(self, *, epoch: int, layers: range) -> None:
        self._place = self._place | {"epoch": epoch, "layers": [layers.start, layers.stop]}
        self._moved.set()

    def stop_requested(self) -> Stop:
        asked = self.rank == 0 and self.store.check(["stop"])
        return Stop(int(self.store.get("stop"))) if asked else Stop.NOBODY

    def leave(self) -> None:
        """Stop beating and take the connections down, after everyone is done."""
        self.barrier()
        self._done = True
        self._moved.set()
        # A thread that is inside the store when the interpreter ends takes the whole process down with SIGABRT.
        self._heart.join(self._timeout)
        self.leftward = None
        self.chain = self.rows = Line()  # groups that are still held when the interpreter ends do the same
        dist.destroy_process_group()

    def peer_lost(self, error: PeerLostError) -> str:
        """Which worker it was, as far as the connection or its beats tell."""
        peer = error.peer
        if peer < 0 and self._beats is not None:
            # The lost one beats no more, the others do for as long as they look for it here.
            time.sleep(3 * self._interval)
            peer = self._beats.longest_silent(2 * self._interval)
        if peer < 0:
            return "a worker was lost"
        beats = Beats(self.store, self.size)
        beats.look()
        return f"{beats.describe(peer)} was lost"

    def _live(self) -> None:
        """Beat, and look at the others' beats where nobody else does."""
        count = 0
        while not self._done:
            count += 1
            try:
                self._beat_store.set(f"beat/{self.rank}", json.dumps(self._place | {"count": count}))
                if self._beats is not None:
                    self._beats.look()
                    for rank in self._beats.silent(self._timeout):
                        self._die(f"{self._beats.describe(rank)} has not answered for {self._timeout:g} s")
            except RuntimeError:
                if not self._done:  # the store is gone, and with it whoever started us
                    os._exit(EXIT_PEER_LOST)
            time.sleep(min(self._interval, 0.02))  # a beat is cheap, but not for an epoch of a millisecond
            self._moved.wait(self._interval)
            self._moved.clear()

    def _die(self, message: str) -> NoReturn:
        print(f"error: PEER_LOST: {message}", file=sys.stderr, flush=True)
        os._exit(EXIT_PEER_LOST)


def raise_if_lost(processes: list[subprocess.Popen[str]], beats: Beats, folder: Path, timeout: float) -> None:
    """Raise if one of the workers has ended badly, or does not answer; ``folder`` has what each said last."""
    codes = [process.poll() for process in processes]
    if any(code not in (None, 0) for code in codes):
        time.sleep(0.3)  # the neighbours of a dead worker fail too: let the one that caused it be among the ended
        codes = [process.poll() for process in processes]
        beats.look()
        cause = next((r for r, code in enumerate(codes) if code not in (None, 0, EXIT_PEER_LOST)), None)
        if cause is None:
            cause = next(rank for rank, code in enumerate(codes) if code not in (None, 0))
        raise WorkerLostError(f"{beats.describe(cause)} {_how(codes[cause] or 0, folder / f'stderr-{cause}')}")
    beats.look()
    for rank in beats.silent(timeout):
        if codes[rank] is None:  # one that has ended well is silent too
            raise WorkerLostError(f"{beats.describe(rank)} has not answered for {timeout:g} s")


def _how(code: int, errors: Path) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    lines = errors.read_text(errors="replace").strip().splitlines()
    return f"failed: {lines[-1] if lines else f'exit code {code}'}"
