"""The processes that train together, and the little they tell each other besides p and q.

Every process runs the same program. Processes stand in a mesh: along the chain they have different layers, along the
rows the same layers and different rows. :class:`Line` is a line of one process, in which all of these are trivial;
:class:`ProcessLine` does them over ``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

T = TypeVar("T")


class Stop(IntEnum):
    """Who, if anybody, has asked to finish early; of several the largest counts."""

    NOBODY = 0
    CALLBACK = 1
    INTERRUPT = 2


@dataclass
class Traffic:
    """What the talk with others has cost since this was last asked."""

    bytes_sent: int = 0
    #: Entries of p and q, however few bytes they took.
    values_sent: int = 0
    wait_seconds: float = 0.0
    pack_seconds: float = 0.0


class Line:
    """A line of one: this process."""

    #: The place of this process, and the number of processes.
    rank = 0
    size = 1

    def __init__(self) -> None:
        #: Of the sums over rows in epochs.
        self.traffic = Traffic()

    def take_traffic(self) -> Traffic:
        """The traffic since the last call."""
        traffic, self.traffic = self.traffic, Traffic()
        return traffic

    def global_rank(self, place: int) -> int:
        """The number that the process at this place has in the whole team."""
        return place

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all processes, ``counts[rank]`` from each, stacked in order of rank, on every process."""
        assert list(counts) == [len(rows)]
        return rows

    def fill(self, whole: Tensor, counts: Sequence[int]) -> None:
        """Put the rows of all processes into ``whole``, in order of rank, where each has its own in their place."""
        assert list(counts) == [len(whole)]

    def sum(self, part: Tensor) -> Tensor:
        """The sum of the parts of all processes, the same bits on each. May overwrite ``part``."""
        return part

    def start_sum(self, part: Tensor) -> Callable[[], Tensor]:
        """As :meth:`sum`, without waiting for it: what is returned does."""
        return lambda: part

    def start_gather(self, part: Tensor) -> Callable[[], Tensor]:
        """Likewise the parts of all processes, stacked in their order."""
        return lambda: part[None]

    def largest(self, part: Tensor) -> Tensor:
        """Likewise the largest, number by number."""
        return part

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        """The tensor of the process ``source``, on every process."""
        assert source == 0
        return x

    def send(self, x: Tensor, to: int) -> None:
        """Send a tensor whose shape the receiver knows."""
        raise AssertionError("a line of one has nobody to send to")

    def receive(self, like: Tensor, source: int) -> Tensor:
        """Receive a tensor of the shape, type and device of ``like``, overwriting it."""
        raise AssertionError("a line of one has nobody to receive from")


class Team(Line):
    """All processes of a run: a team of one."""

    def __init__(self) -> None:
        super().__init__()
        #: The line of this process's neighbours with other layers.
        self.chain: Line = Line()
        #: The line of those with the same layers and other rows.
        self.rows: Line = Line()

        #: By which p goes from neighbour to neighbour; q goes by that of all processes.
        self.leftward: dist.ProcessGroup | None = None

    def arrange(self, shards: int) -> None:
        """Form chains, one for each part of the rows."""
        assert shards == 1

    def barrier(self) -> None:
        """Wait until everyone is here."""

    def progress(self, *, epoch: int, layers: range) -> None:
        """Note where this process is, for whoever watches it."""

    def stop_requested(self) -> Stop:
        """Has somebody asked this process to finish early?"""
        return Stop.NOBODY


class PeerLostError(RuntimeError):
    """Another worker died or stopped answering."""

    def __init__(self, peer: int) -> None:
        super().__init__(f"lost the connection to worker {peer}")
        self.peer = peer


class ProcessLine(Line):
    """Processes of ``torch.distributed``: all of them, or those of a ``group``.

    Small tensors travel on the CPU (gloo); what is on a GPU goes by that device's backend (NCCL), or by way of the host
    where the team has none.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        #: Whom something that all take part in has lost if it fails: known where there is but one other.
        self._other = self.global_rank(1 - self.rank) if self.size == 2 else -1

    def global_rank(self, place: int) -> int:
        return place if self.group is None else dist.get_global_rank(self.group, place)

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        padded = to_travel(padded)
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        _guard(lambda: dist.all_gather(parts, padded, group=self.group), self._other)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)]).to(rows.device)

    def fill(self, whole: Tensor, counts: Sequence[int]) -> None:
        # Straight to where they belong: a collective would take memory for all of it a second time.
        parts, others = whole.split(list(counts)), [(self.rank + step) % self.size for step in range(1, self.size)]

        def exchange() -> None:
            works = [dist.irecv(parts[place], self.global_rank(place)) for place in reversed(others)]
            works += [dist.isend(parts[self.rank], self.global_rank(place)) for place in others]
            for work in works:
                assert work is not None
                work.wait()

        _guard(exchange)

    def sum(self, part: Tensor) -> Tensor:
        return self.start_sum(part)()

    def largest(self, part: Tensor) -> Tensor:
        return self._start_reducing(part, dist.ReduceOp.MAX)()

    def start_sum(self, part: Tensor) -> Callable[[], Tensor]:
        return self._start_reducing(part, dist.ReduceOp.SUM)

    def _start_reducing(self, part: Tensor, operation: dist.ReduceOp.RedOpType) -> Callable[[], Tensor]:
        message = to_travel(part.contiguous())
        arrived = self._start(lambda: dist.all_reduce(message, operation, group=self.group, async_op=True))
        return lambda: arrived(message).to(part.device)

    def start_gather(self, part: Tensor) -> Callable[[], Tensor]:
        message = to_travel(part.contiguous())
        parts = [torch.empty_like(message) for _ in range(self.size)]
        arrived = self._start(lambda: dist.all_gather(parts, message, group=self.group, async_op=True))
        return lambda: torch.stack(arrived(parts)).to(part.device)

    def _start(self, operation: Callable[[], dist.Work | None]) -> Callable[[T], T]:
        """Begin; what is returned waits for the end and gives what it is told that has arrived then."""
        started: list[dist.Work | None] = []
        _guard(lambda: started.append(operation()), self._other)

        def arrived(result: T) -> T:
            work = started[0]
            if work is not None:
                _guard(work.wait, self._other)
            return result

        return arrived

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        message = to_travel(x)
        _guard(lambda: dist.broadcast(message, self.global_rank(source), group=self.group), self._other)
        return x.copy_(message)

    def send(self, x: Tensor, to: int) -> None:
        to = self.global_rank(to)
        _guard(lambda: dist.send(to_travel(x.contiguous()), to), to)

    def receive(self, like: Tensor, source: int) -> Tensor:
        source = self.global_rank(source)
        message = to_travel(like)
        _guard(lambda: dist.recv(message, source), source)
        return like.copy_(message)


class DistributedTeam(ProcessLine, Team):
    """All processes of ``torch.distributed``: a chain, or several that have a part of the rows each.

    Process r is at place r // shards of the chain and has the rows of shard r % shards.
    """

    def __init__(self, shards: int = 1) -> None:
        super().__init__()
        self.leftward = dist.new_group()
        self.arrange(shards)

    def arrange(self, shards: int) -> None:
        assert self.size % shards == 0
        if shards == self.rows.size and self.chain.size * shards == self.size:
            return
        self.chain = ProcessLine()
        if shards > 1:
            mesh = init_device_mesh("cpu", (self.size // shards, shards), mesh_dim_names=("chain", "rows"))
            self.chain, self.rows = ProcessLine(mesh.get_group("chain")), ProcessLine(mesh.get_group("rows"))

    def barrier(self) -> None:
        _guard(lambda: dist.all_reduce(torch.zeros(1)), self._other)


def by_way_of_the_host(x: Tensor) -> bool:
    """Has the team no way to send the tensor from where it is? Gloo alone cannot send from a GPU, nor receive there."""
    return x.is_cuda and "nccl" not in dist.get_backend_config()


def to_travel(x: Tensor) -> Tensor:
    """The tensor itself, or a copy on the host where it has to go from there."""
    return x.to("cpu", copy=True) if by_way_of_the_host(x) else x


def _guard(operation: Callable[[], object], peer: int = -1) -> None:
    """What fails has lost a process: ``peer``, if that is known."""
    try:
        operation()
    except RuntimeError as error:
        raise PeerLostError(peer) from error
