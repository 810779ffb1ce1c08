"""The processes that train together, and the little they tell each other besides p and q.

Every process runs the same program. Processes stand in lines: along the chain they have different layers, along the
rows the same layers and different rows (today there is one along the rows). :class:`Line` is a line of one process, in
which all of these are trivial; :class:`ProcessLine` does them over ``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Line:
    """A line of one: this process."""

    #: The place of this process, and the number of processes.
    rank = 0
    size = 1

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all processes, ``counts[rank]`` from each, stacked in order of rank, on every process."""
        assert list(counts) == [len(rows)]
        return rows

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
    """The default process group of ``torch.distributed``.

    Small tensors travel on the CPU (gloo); what is on a GPU goes by that device's backend (NCCL).
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        _guard(lambda: dist.all_gather(parts, padded))
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        _guard(lambda: dist.broadcast(x, source))
        return x

    def send(self, x: Tensor, to: int) -> None:
        _guard(lambda: dist.send(x.contiguous(), to), to)

    def receive(self, like: Tensor, source: int) -> Tensor:
        _guard(lambda: dist.recv(like, source), source)
        return like


class DistributedTeam(ProcessLine, Team):
    """All processes of ``torch.distributed``, in one chain."""

    def __init__(self) -> None:
        Team.__init__(self)
        ProcessLine.__init__(self)
        self.chain = ProcessLine()

    def barrier(self) -> None:
        _guard(lambda: dist.all_reduce(torch.zeros(1)))


def _guard(operation: Callable[[], object], peer: int = -1) -> None:
    """What fails has lost a process: ``peer``, if that is known."""
    try:
        operation()
    except RuntimeError as error:
        raise PeerLostError(peer) from error
