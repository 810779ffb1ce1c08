"""The processes that train together, and the little they tell each other besides p and q.

Every process runs the same program. :class:`Team` is a team of one, in which all of these are trivial;
:class:`DistributedTeam` does them over ``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Team:
    """A team of one: this process."""

    rank = 0
    size = 1

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all workers, ``counts[rank]`` from each, stacked in order of rank, on every worker."""
        assert list(counts) == [len(rows)]
        return rows

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        """The tensor of the worker ``source``, on every worker."""
        assert source == 0
        return x

    def send(self, x: Tensor, to: int) -> None:
        """Send a tensor whose shape the receiver knows."""
        raise AssertionError("a team of one has nobody to send to")

    def receive(self, like: Tensor, source: int) -> Tensor:
        """Receive a tensor of the shape, type and device of ``like``, overwriting it."""
        raise AssertionError("a team of one has nobody to receive from")

    def barrier(self) -> None:
        """Wait until everyone is here."""

    def progress(self, *, epoch: int, layers: range) -> None:
        """Note where this worker is, for whoever watches it."""

    def stop_requested(self) -> bool:
        """Has somebody asked this worker to finish early?"""
        return False


class PeerLostError(RuntimeError):
    """Another worker died or stopped answering."""

    def __init__(self, peer: int) -> None:
        super().__init__(f"lost the connection to worker {peer}")
        self.peer = peer


class DistributedTeam(Team):
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
        self._guard(lambda: dist.all_gather(parts, padded))
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        self._guard(lambda: dist.broadcast(x, source))
        return x

    def send(self, x: Tensor, to: int) -> None:
        self._guard(lambda: dist.send(x.contiguous(), to), to)

    def receive(self, like: Tensor, source: int) -> Tensor:
        self._guard(lambda: dist.recv(like, source), source)
        return like

    def barrier(self) -> None:
        self._guard(lambda: dist.all_reduce(torch.zeros(1)))

    def _guard(self, operation, peer: int = -1) -> None:  # type: ignore[no-untyped-def]
        try:
            operation()
        except RuntimeError as error:
            raise PeerLostError(peer) from error
