"""The processes that train together, and the little they tell each other besides p and q.

Every process runs the same program. Processes stand in a mesh: along the chain they have different layers, along the
rows the same layers and different rows. :class:`Line` is a line of one process, in which all of these are trivial;
:class:`ProcessLine` does them over ``torch.distributed``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from ..errors import InputError

A = TypeVar("A")


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


class Counted:
    """A connection that counts its traffic: all messages of a link, and the sums over rows of a line in epochs."""

    def __init__(self) -> None:
        self.traffic = Traffic()

    def take_traffic(self) -> Traffic:
        """The traffic since the last call."""
        traffic, self.traffic = self.traffic, Traffic()
        return traffic


class Line(Counted):
    """A line of one: this process."""

    #: The place of this process, and the number of processes.
    rank = 0
    size = 1

    def global_rank(self, place: int) -> int:
        """The number that the process at this place has in the whole team."""
        return place

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all processes, ``counts[rank]`` from each, stacked in order of rank, on every process."""
        return rows

    def counts(self, number: int) -> list[int]:
        """How many each process has, on all of them."""
        return self.concat(torch.tensor([number]), [1] * self.size).tolist()

    def told(self, known: Any) -> Any:
        """What the first process knows, plain values as JSON has them, on every process."""
        if self.size == 1:
            return known
        own = msgspec.json.encode(known)
        length = int(self.broadcast(torch.tensor([len(own)]), 0))
        text = list(own) if self.rank == 0 else [0] * length
        return msgspec.json.decode(bytes(self.broadcast(torch.tensor(text, dtype=torch.uint8), 0).tolist()))

    def fill(self, whole: Tensor, counts: Sequence[int]) -> None:
        """Put the rows of all processes into ``whole``, in order of rank, where each has its own in their place."""

    def sum(self, part: Tensor) -> Tensor:
        """The sum of the parts of all processes, the same bits on each. May overwrite ``part``."""
        return part

    def largest(self, part: Tensor) -> Tensor:
        """The largest of the parts of all processes, number by number. May overwrite ``part``."""
        return part

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        """The tensor of the process ``source``, on every process."""
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

    def heads(self) -> Team:
        """The first workers of all chains, of which this one is, as a team of their own."""
        return self

    def arrange(self, shards: int) -> None:
        """Form chains, one for each part of the rows."""

    def barrier(self) -> None:
        """Wait until everyone is here."""

    def progress(self, *, epoch: int, layers: range) -> None:
        """Note where this process is, for whoever watches it."""

    def stop_requested(self) -> Stop:
        """Has somebody asked this process to finish early?"""
        return Stop.NOBODY

    def in_epochs(self) -> AbstractContextManager[None]:
        """Within it, whoever asks to finish early is answered at the end of an epoch."""
        return nullcontext()


class PeerLostError(RuntimeError):
    """Another worker died or stopped answering."""

    def __init__(self, peer: int) -> None:
        super().__init__(f"lost the connection to worker {peer}")
        self.peer = peer


@contextmanager
def talking_to(peer: int) -> Iterator[None]:
    """What fails within has lost a process: ``peer``, or -1 if that is not known."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLostError(peer) from error


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
        return torch.cat([part[:count] for part, count in zip(self.gather(padded), counts, strict=True)])

    def fill(self, whole: Tensor, counts: Sequence[int]) -> None:
        # Straight to where they belong: a collective would take memory for all of it a second time.
        parts, others = whole.split(list(counts)), [(self.rank + step) % self.size for step in range(1, self.size)]
        with talking_to(-1):
            works = [dist.irecv(parts[place], self.global_rank(place)) for place in reversed(others)]
            works += [dist.isend(parts[self.rank], self.global_rank(place)) for place in others]
            for work in works:
                assert work is not None
                work.wait()

    def sum(self, part: Tensor) -> Tensor:
        return self._reduced(part, dist.ReduceOp.SUM)

    def largest(self, part: Tensor) -> Tensor:
        return self._reduced(part, dist.ReduceOp.MAX)

    def _reduced(self, part: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        message = to_travel(part.contiguous())
        with talking_to(self._other):
            dist.all_reduce(message, operation, group=self.group)
        return message.to(part.device)

    def gather(self, part: Tensor) -> Tensor:
        """The parts of all processes, of one shape, stacked in order of rank."""
        message = to_travel(part.contiguous())
        parts = message.new_empty(self.size, *message.shape)
        with talking_to(self._other):
            dist.all_gather(list(parts), message, group=self.group)
        return parts.to(part.device)

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        message = to_travel(x.contiguous())
        with talking_to(self._other):
            dist.broadcast(message, self.global_rank(source), group=self.group)
        return x.copy_(message)

    def send(self, x: Tensor, to: int) -> None:
        to = self.global_rank(to)
        with talking_to(to):
            dist.send(to_travel(x.contiguous()), to)

    def receive(self, like: Tensor, source: int) -> Tensor:
        source = self.global_rank(source)
        message = to_travel(like)
        with talking_to(source):
            dist.recv(message, source)
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

    def heads(self) -> Team:
        return Heads(self) if isinstance(self.rows, ProcessLine) else Team()

    def barrier(self) -> None:
        self.sum(torch.zeros(1))


class Heads(ProcessLine, Team):
    """The first workers of all chains of a team, each a chain of its own."""

    def __init__(self, team: DistributedTeam) -> None:
        assert isinstance(team.rows, ProcessLine)
        super().__init__(team.rows.group)
        self.rows, self._team = team.rows, team

    def stop_requested(self) -> Stop:
        return self._team.stop_requested()


def by_way_of_the_host(x: Tensor) -> bool:
    """Has the team no way to send the tensor from where it is? Gloo alone cannot send from a GPU, nor receive there."""
    return x.is_cuda and "nccl" not in dist.get_backend_config()


def to_travel(x: Tensor) -> Tensor:
    """The tensor itself, or a copy on the host where it has to go from there."""
    return x.to("cpu", copy=True) if by_way_of_the_host(x) else x


# ------------------------------------------------------------------------------------------------------ errors of all

#: Bytes of a message: four for each of its characters at the most, and one line is not longer.
LENGTH = 2048


def agreed(line: Line, action: Callable[[], A]) -> A:
    """Collective error handling: what ``action`` returns, if it succeeds on every process of the line.

    Where it raises an :class:`InputError` on some, all raise that of the first of these.
    """
    text, result = b"", None
    try:
        result = action()
    except InputError as error:
        text = str(error).encode()[:LENGTH]
    message = torch.zeros(1, LENGTH, dtype=torch.uint8)
    message[0, : len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    for own in line.concat(message, [1] * line.size):
        if bool(own.any()):
            raise InputError(bytes(own.tolist()).rstrip(b"\0").decode(errors="ignore"))
    return result  # type: ignore[return-value]


def same(line: Line, digest: str, path: str) -> None:
    """Raise on every process unless all have the same ``digest`` (hexadecimal) of ``path``."""
    own = torch.tensor(list(bytes.fromhex(digest)), dtype=torch.uint8)
    first = line.broadcast(own.clone(), 0)

    def check() -> None:
        if not torch.equal(own, first):
            raise InputError(f"{path}: process {line.rank} sees another file than process 0: give all the same folder")

    agreed(line, check)


# ------------------------------------------------------------------------------------------ sums over rows in an epoch

#: Up to so many values are gathered and added in the order of the processes. How a long sum is added up depends on the
#: place of a value in it, and a worker with more layers has more numbers to sum.
SHORT = 1 << 14


class RowSums:
    """Sums over the rows of all processes of a line, for the steps of an epoch."""

    def __init__(self, line: ProcessLine) -> None:
        self._line = line

    def sum(self, part: Tensor) -> Tensor:
        """The sum of the parts of all processes, the same bits on each. May overwrite ``part``."""
        line, others, start = self._line, self._line.size - 1, time.perf_counter()
        short = part.numel() <= SHORT
        total = line.gather(part).sum(0) if short else line.sum(part)
        line.traffic.bytes_sent += part.nbytes * others if short else 2 * part.nbytes * others // line.size
        line.traffic.wait_seconds += time.perf_counter() - start
        return total

    def largest(self, part: Tensor) -> Tensor:
        """The largest of the parts of all processes, number by number."""
        return self._line.largest(part)
