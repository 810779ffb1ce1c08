"""Progress of a training run: a bar on a terminal, plain lines elsewhere; and the time left of longer work."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from ..config import ModelConfig
from ..utils import Event
from .rounds import epochs_of


class Progress:
    """Shows what a run is doing: its tasks, and in training its epochs as they end.

    Use as a context manager; pass :meth:`update` as ``on_epoch``, and :meth:`task` to :class:`~pdadmm_g.utils.Tasks`.
    """

    #: Plain lines per stage.
    lines = 4
    #: Seconds between two plain lines on one task.
    between = 5.0

    def __init__(self, config: ModelConfig, *, label: str = "", console: Console | None = None) -> None:
        self.config, self.label = config.resolved(), label
        self.console = console or Console(stderr=True)
        self._part: tuple[int, int | None] | None = None
        self._said = -math.inf
        figures, left = TextColumn("{task.fields[figures]}"), TimeRemainingColumn()
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=12), MofNCompleteColumn(), figures, left)
        hidden = not self.console.is_terminal
        self._bar = RichProgress(*columns, console=self.console, transient=True, disable=hidden)
        self._task = self._bar.add_task("", total=self.config.epochs, figures="")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _say(self, line: str) -> None:
        if self._bar.disable:
            self.console.print(line, highlight=False, soft_wrap=True)

    def task(self, event: Event) -> None:
        """Show that a task begins or goes on."""
        text, now = self.label + event.task, time.monotonic()
        if event.seconds is not None:
            return
        if not self._bar.disable:
            self._part = None
        self._bar.update(self._task, description=text, completed=event.done, total=event.total or None, figures="")
        if event.done == 0 or now - self._said >= self.between:
            self._said = now
            self._say(f"{text} {event.done}/{event.total}" if event.total else text)

    def update(self, record: dict[str, Any]) -> None:
        """Show the record of an epoch that just ended."""
        stages, round, epoch = self.config.stages, record.get("round"), record["stage_epoch"]
        assert stages is not None
        epochs = self.config.epochs if round is None else min(self.config.epochs, epochs_of(round))
        part = (record["stage"], round)
        starts = part != self._part
        if starts:
            # The time before says nothing of epochs: the data were read, or a checkpoint has the first of them.
            self._part, self._time_left = part, TimeLeft(epoch)
            self._bar.reset(self._task, completed=epoch, total=epochs)
        depth = stages[record["stage"] - 1]
        stage = f"{self.label}{depth} layer{'s' if depth > 1 else ''}"
        if round is not None:
            number = f"{round}/{self.config.rounds}" if round <= self.config.rounds else round
            stage += f", round {number}" if round else ", labelled nodes alone"
        score = record.get("val_score", record["val_accuracy"])
        times = [worker["compute_seconds"] for worker in record["workers"]]
        figures = f"objective {record['objective']:.4g}" + ("" if score is None else f", validation {score:.3f}")
        if len(times) > 1:
            figures += f", slowest worker {times.index(max(times))} {1e3 * max(times):.3g} ms"
        self._bar.update(self._task, description=stage, completed=epoch, figures=figures)
        if starts or (not round and epoch % max(1, epochs // self.lines) == 0):
            left = self._time_left.after(epoch, epochs, of="the stage")
            self._say(f"{stage} (stage {record['stage']}/{len(stages)}), epoch {epoch}/{epochs}: {figures}{left}")


def in_notebook() -> bool:
    """Is this a notebook, where people watch what a cell does?"""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


class TimeLeft:
    """About how long the rest of some pieces of work takes, by the time of those that are done."""

    #: Pieces that are done within so many seconds of the start were there already, and tell nothing.
    instant = 1.0

    def __init__(self, done: int = 0) -> None:
        self.known = done
        self.start = time.monotonic()

    def after(self, done: int, total: int, of: str = "") -> str:
        """What to add to a line of progress when so many are done, ``of`` something."""
        seconds = time.monotonic() - self.start
        if seconds < self.instant:
            self.known = done
        if done in (self.known, total):
            return ""
        left = duration(seconds / (done - self.known) * (total - done))
        return f"; about {left} left" + (f" of {of}" if of else "")


def duration(seconds: float) -> str:
    """Seconds as people say it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
