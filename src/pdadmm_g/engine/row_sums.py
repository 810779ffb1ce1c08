"""Sums over rows that are spread over processes, and what is computed while they travel.

A group of layers needs a sum soon after it has computed its part of it. So two groups take turns: each is a thread of
control of its own (a greenlet, which changes nothing else for what runs in it), and where one starts a sum, the other
goes on. Who goes on when follows from the steps alone, so that all processes start the same sums in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from .team import Line

A = TypeVar("A")
B = TypeVar("B")

#: Up to so many values are gathered and added in the order of the processes. How a long sum is added up depends on the
#: place of a value in it, and a worker with more layers has more numbers to sum.
SHORT = 1 << 14


class RowSums:
    """Sums over the rows of all processes of a line. While one is on its way, whoever takes turns goes on."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def sum(self, part: Tensor) -> Tensor:
        """The sum of the parts of all processes, the same bits on each. May overwrite ``part``."""
        line, size = self._line, self._line.size
        short = part.numel() <= SHORT
        arrived = line.start_gather(part) if short else line.start_sum(part)
        line.traffic.bytes_sent += part.nbytes * (size - 1) if short else 2 * part.nbytes * (size - 1) // size
        _let_other_go_on()
        start = time.perf_counter()
        parts = arrived()
        line.traffic.wait_seconds += time.perf_counter() - start
        return parts.sum(0) if short else parts

    def largest(self, part: Tensor) -> Tensor:
        """Likewise the largest, number by number."""
        return self._line.largest(part)


def one_after_the_other(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Where no sum is waited for."""
    return first(), second()


def taking_turns(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Both, in turns: where one waits for a sum over rows, the other goes on. The first begins."""
    from greenlet import greenlet

    results: list[object] = [None, None]
    running = {0: greenlet(first), 1: greenlet(second)}
    while running:
        for place, one in list(running.items()):
            results[place] = one.switch()
            if one.dead:
                del running[place]
    return results[0], results[1]  # type: ignore[return-value]


def _let_other_go_on() -> None:
    from greenlet import getcurrent

    other = getcurrent().parent
    if other is not None:
        other.switch()
