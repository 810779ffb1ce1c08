"""The processes that train together, and the little they tell each other besides p and q.

Every process runs the same program. Processes stand in a mesh: along the chain they have different layers, along the
rows the same layers and different rows. :class:`Line` is a line of one process, in which all of these are trivial;
:class:`ProcessLine` does them over ``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh


class Line:
    """A line of one: this process."""

    #: The place of this process, and the number of processes.
    rank = 0
    size = 1

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
        #: The line of this process's neighbours with other layers.
        self.chain: Line = Line()
        #: The line of those with the same layers and other rows.
        self.rows: Line = Line()

    def barrier(self) -> None:
        """Wait until everyone is here."""

    def progress(self, *, epoch: int, layers: range) -> None:
        """Note where this process is, for whoever watches it."""

    def stop_requested(self) -> bool:
        """Has somebody asked this process to finish early?"""
        return False


class PeerLostError(RuntimeError):
    """Another worker died or stopped answering."""

    def __init__(self, peer: int) -> None:
        super().__init__(f"lost the connection to worker {peer}")
        self.peer = peer


class ProcessLine(Line):
    """Processes of ``torch.distributed``: all of them, or those of a ``group``.

    Small tensors travel on the CPU (gloo); what is on a GPU goes by that device's backend (NCCL).
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def global_rank(self, place: int) -> int:
        return place if self.group is None else dist.get_global_rank(self.group, place)

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        _guard(lambda: dist.all_gather(parts, padded, group=self.group))
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

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
        part = part.contiguous()
        _guard(lambda: dist.all_reduce(part, group=self.group))
        return part

    def largest(self, part: Tensor) -> Tensor:
        part = part.contiguous()
        _guard(lambda: dist.all_reduce(part, dist.ReduceOp.MAX, group=self.group))
        return part

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        _guard(lambda: dist.broadcast(x, self.global_rank(source), group=self.group))
        return x

    def send(self, x: Tensor, to: int) -> None:
        to = self.global_rank(to)
        _guard(lambda: dist.send(x.contiguous(), to), to)

    def receive(self, like: Tensor, source: int) -> Tensor:
        source = self.global_rank(source)
        _guard(lambda: dist.recv(like, source), source)
        return like


class DistributedTeam(ProcessLine, Team):
    """All processes of ``torch.distributed``: a chain, or several that have a part of the rows each.

    Process r is at place r // shards of the chain and has the rows of shard r % shards.
    """

    def __init__(self, shards: int = 1) -> None:
        Team.__init__(self)
        ProcessLine.__init__(self)
        assert self.size % shards == 0
        self.chain = ProcessLine()
        if shards > 1:
            mesh = init_device_mesh("cpu", (self.size // shards, shards), mesh_dim_names=("chain", "rows"))
            self.chain, self.rows = ProcessLine(mesh.get_group("chain")), ProcessLine(mesh.get_group("rows"))

    def barrier(self) -> None:
        _guard(lambda: dist.all_reduce(torch.zeros(1)))


def _guard(operation: Callable[[], object], peer: int = -1) -> None:
    """What fails has lost a process: ``peer``, if that is known."""
    try:
        operation()
    except RuntimeError as error:
        raise PeerLostError(peer) from error
