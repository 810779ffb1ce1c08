"""What a run is doing: a task at a time, how far it is, and the seconds that each took.

Work names its task where it happens, ``with task("choosing features", 12) as step``, and calls ``step()`` for each
piece that is done. Whoever started the work listens, ``with Tasks(listener) as tasks``; where nobody does, nothing
happens. A task within another stops the clock of the outer one, so that seconds add up to the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

#: Seconds of a run that belong to no task.
OTHER = "other"


@dataclass(frozen=True)
class Event:
    """A task that begins (nothing done yet), goes on, or ended after so many seconds in all."""

    task: str
    done: int
    total: int | None
    #: None until it ended.
    seconds: float | None = None

    def record(self) -> dict[str, Any]:
        """As a line of ``metrics.jsonl``."""
        return {"task": self.task, "done": self.done, "total": self.total, "seconds": self.seconds}


class Tasks:
    """The tasks of one run. Use as a context manager around the work."""

    def __init__(self, *listeners: Callable[[Event], None]) -> None:
        self.listeners = list(listeners)
        #: By task, in the order in which they began.
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._start = self._since = time.perf_counter()

    def __enter__(self) -> Tasks:
        self._token: Token[Tasks | None] = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    @property
    def total(self) -> float:
        """Seconds since the start, whatever was done."""
        return time.perf_counter() - self._start

    def times(self) -> dict[str, float]:
        """Seconds by task so far, which add up to the total."""
        self._settle()
        return self.seconds | {OTHER: max(0.0, self.total - sum(self.seconds.values()))}

    @contextmanager
    def doing(self, name: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        """Within it, time counts for this task; call what it gives for each of ``total`` pieces that is done."""
        self._settle()
        self._open.append(name)
        before, done = self.seconds.setdefault(name, 0.0), 0
        self._tell(Event(name, 0, total))

        def step() -> None:
            nonlocal done
            done += 1
            self._tell(Event(name, done, total))

        try:
            yield step
        finally:
            self._settle()
            self._open.pop()
            self._tell(Event(name, done, total, self.seconds[name] - before))

    def _settle(self) -> None:
        """The time since the last change belongs to the innermost task."""
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def _tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


_current: ContextVar[Tasks | None] = ContextVar("tasks", default=None)


@contextmanager
def run_tasks() -> Iterator[Tasks]:
    """The tasks of the run that this is part of, or those of a new one."""
    tasks = _current.get()
    if tasks is not None:
        yield tasks
        return
    with Tasks() as tasks:
        yield tasks


@contextmanager
def task(name: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A task of the run that this is part of, see :meth:`Tasks.doing`; nothing where there is none."""
    tasks = _current.get()
    if tasks is None:
        yield lambda: None
        return
    with tasks.doing(name, total) as step:
        yield step
