"""Rows that are spread over processes, brought together in each: through memory that they share, or by messages."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from .team import Line


class Gatherer:
    """Brings together ``counts[rank]`` rows of each process, float32, with so many columns at the most.

    Through memory of the machine that all of them run on, if they do and it is not unwanted: nothing is copied then but
    the own rows. Else by messages: everyone sends its rows to everyone, each straight to its place.
    """

    def __init__(self, line: Line, counts: Sequence[int], columns: int, *, shared: bool = True) -> None:
        self._line, self._counts = line, list(counts)
        size = sum(counts) * columns
        memory = _shared_memory(line, 2 * 4 * size) if shared and line.size > 1 else None
        #: Two in shared memory, which take turns: who writes into one has been through a barrier since it was read.
        self._buffers: list[Tensor] = []
        if memory is not None:
            self._buffers = list(torch.frombuffer(memory, dtype=torch.float32)[: 2 * size].split(size))
        elif line.size > 1:
            self._buffers = [torch.empty(size)]

    @property
    def in_memory(self) -> bool:
        """Do the processes share memory?"""
        return len(self._buffers) == 2

    def __call__(self, own: Tensor) -> Tensor:
        """The rows of all processes, in order, from those of this one; valid until the next call."""
        if self._line.size == 1:
            return own
        self._buffers.reverse()
        whole = self._buffers[0][: sum(self._counts) * own.shape[1]].view(-1, own.shape[1])
        whole.split(self._counts)[self._line.rank].copy_(own)
        if self.in_memory:
            self._line.sum(torch.zeros(1))  # a barrier
        else:
            self._line.fill(whole, self._counts)
        return whole


def _shared_memory(line: Line, size: int) -> mmap.mmap | None:
    """Memory that all processes of a line share, gone with the last of them; None where they cannot.

    It has no name that could outlive them: the first process keeps it open, and the others find it there. That they
    found the same, and not that of a process on another machine, is seen by a number that is in it.
    """
    able, descriptor, token = True, -1, os.urandom(7)
    if line.rank == 0 and hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # the others do not find it then
            descriptor = os.memfd_create("pdadmm-g")
            os.ftruncate(descriptor, max(size, 64))
            os.pwrite(descriptor, token, 0)
    found = line.broadcast(torch.tensor([os.getpid(), descriptor, int.from_bytes(token, "little")]), 0).tolist()
    if line.rank > 0:
        try:
            descriptor = os.open(f"/proc/{found[0]}/fd/{found[1]}", os.O_RDWR)
            able = os.fstat(descriptor).st_size == max(size, 64)
            able = able and os.pread(descriptor, 7, 0) == found[2].to_bytes(7, "little")
        except OSError:
            able = False
    # Everyone has it open, or has failed to, before anyone goes on.
    everyone = int(line.largest(torch.tensor([0 if able else 1]))) == 0
    try:
        return mmap.mmap(descriptor, max(size, 64)) if everyone else None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
