"""A run folder: config.yaml, metrics.jsonl, summary.json and model.safetensors."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import msgspec

from ..config import RunConfig
from ..errors import InputError
from ..estimator import Estimator, GAMLPClassifier, GAMLPRegressor, load_estimator
from ..metrics import Estimate
from ..status import Status
from ..training import checkpoint
from ..training.checkpoint import CHOSEN
from ..training.records import Record, WorkerFigures, Written, as_line, is_task_line
from ..utils import Event, decoded, locked, read_lines, read_record, reading, write_atomically, writing

if TYPE_CHECKING:
    import pandas as pd

#: The summary of a run, and that of one whose model is there and has not been scored yet.
SUMMARY, UNSCORED = "summary.json", "unscored.json"
#: Where a summary says which data were trained on.
DIGEST = "data_digest"
MODEL, METRICS, CONFIG = "model.safetensors", "metrics.jsonl", "config.yaml"
#: There while a command writes to the folder.
LOCK = ".lock"
#: Where a report of the run goes unless another place is asked for, and what its columns are worth, once asked.
REPORT, IMPORTANCE = "report.html", "importance.json"
#: All that may be in it; the metrics come last, which tell a run that is half removed from files of somebody else.
FILES = (MODEL, CONFIG, UNSCORED, REPORT, IMPORTANCE, SUMMARY, METRICS)
#: How a run may have ended to go on from its checkpoint; None if it was killed. With more epochs than it had, also one
#: that used them all.
RESUMABLE = (None, Status.INTERRUPTED.name, Status.STOPPED.name, Status.PEER_LOST.name)


class State(Enum):
    """What a folder holds; the value is what is said where nothing may be written over it."""

    FREE = ""
    FOREIGN = "holds files that are not of a run; "
    UNFINISHED = "holds a run that did not finish; go on with --resume, or "
    UNSCORED = "holds a model that was not scored yet; finish with --resume, or "
    FINISHED = "already holds a finished run; "


class Importance(dict[str, Any]):
    """What columns are worth to a model, see :meth:`~pdadmm_g.estimator.Estimator.importance`."""

    @classmethod
    def of(cls, table: pd.DataFrame) -> Importance:
        """Those of the table; NaN is nothing."""
        return cls(table.attrs, rows=json.loads(table.to_json(orient="records", double_precision=6)))

    def save(self, folder: Path) -> None:
        """Write it into a run folder."""
        write_atomically(folder / IMPORTANCE, msgspec.json.encode(dict(self)))


class Worker(WorkerFigures, frozen=True):
    """What a worker did, in an epoch or in all, and how many layers it has."""

    layers: int


#: What is computed with of a summary that is read again; all else in it is passed on.
Summary = msgspec.defstruct(
    "Summary",
    [
        ("status", str), ("workers", list[Worker], []), ("choices", list[str], []), ("versions", dict[str, str], {}),
        ("target", Literal["classification", "multilabel", "regression"] | None, None),
        ("estimate", Estimate | None, None), ("metrics", dict[str, dict[str, float | None]], {}),
        ("times", dict[str, float], {}),
        *((name, str, "") for name in ("advice", "message")),
        *((name, int, 0) for name in ("layers", "parameters", "epochs", "bytes_sent", "bytes_unquantized")),
        *((name, float, 0.0) for name in ("seconds", "work_seconds")),
        *(
            (name, float | None, None)
            for name in ("train_accuracy", "val_accuracy", "test_accuracy", "val_score_before_refit", "weight_decay")
        ),
    ],
)  # fmt: skip


class RunFolder:
    """A folder that is written to when the first epoch ends and is finished once ``summary.json`` says how it went.

    So a run that fails on its input leaves nothing behind, and an old one is replaced only by one that trains. Until
    that one has a model, the old one is in ``previous``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.previous = self.path / "previous"
        #: The file of the trained model.
        self.model = self.path / MODEL
        self._epochs = 0
        self._metrics: IO[str] | None = None
        self._notes: list[Event] = []
        self._asked: RunConfig
        self._before: Sequence[Record] = ()

    # ------------------------------------------------------------------------------------------- what the folder holds

    @property
    def unscored(self) -> bool:
        """Does it hold a model that was trained and not scored: killed, interrupted or out of memory on the way?"""
        return not (self.path / SUMMARY).exists() and (self.path / UNSCORED).exists()

    def summary(self) -> dict[str, Any]:
        """All that its summary says; nothing if there is none."""
        path = self.path / (UNSCORED if self.unscored else SUMMARY)
        if not path.exists():
            return {}
        found = read_record(dict[str, Any], path, "the summary")
        with reading(path, "the summary"):
            decoded(Summary, found)
            if found["status"] not in Status.__members__:
                raise ValueError(f"status {found['status']!r} is not how a run ends")
        return found

    @property
    def status(self) -> str | None:
        """How the run ended, as its summary says: the name of a :class:`Status`, None if there is no summary."""
        try:
            return self.summary().get("status")
        except InputError:
            return "unreadable"

    @property
    def finished(self) -> bool:
        """Does it hold a run with a result? One that lost a worker has none."""
        return self.status not in (None, Status.PEER_LOST.name)

    @property
    def state(self) -> State:
        """What it holds. A run that can go on from a checkpoint has not finished, whatever else is there."""
        if checkpoint.valid(self.checkpoints) and self.status in RESUMABLE:
            return State.UNFINISHED
        if not (self.path / METRICS).exists():
            return State.FOREIGN if any((self.path / name).exists() for name in FILES) else State.FREE
        if self.unscored:
            return State.UNSCORED
        return State.FINISHED if self.finished else State.FREE

    def check_free(self, config: RunConfig, *, overwrite: bool, resume: bool = False) -> None:
        """Raise unless this run can and may be written here: not over a finished one, nor over what is not a run's.

        A checkpoint is there to be resumed from: nothing is lost for want of an option. A run that writes checkpoints
        and was interrupted before the first one may start over.
        """
        if overwrite or (state := self.state) is State.FREE or (resume and state is State.UNFINISHED):
            return
        if resume and state is not State.FOREIGN:
            starts_over = config.checkpoint_every is not None and self.status == Status.INTERRUPTED.name
            if starts_over or self.settled(config):
                return
            if self.status == Status.MAX_EPOCHS.name and checkpoint.valid(self.checkpoints):
                return
            why = f"{self.path}: already holds a finished run, without a checkpoint to go on from"
            remedy = f"--config {self.path / CONFIG} --init {self.path} --out ANOTHER"
            raise InputError(f"{why}; train on from its model with {remedy}")
        raise InputError(f"{self.path}: {state.value}choose another --out or add --overwrite")

    def check_replaceable(self) -> None:
        """Raise unless what is here may be replaced unasked: nothing, or a run that does not go on."""
        if checkpoint.valid(self.checkpoints):
            raise InputError(f"{self.path}: holds a run with a checkpoint to go on from; choose another folder")
        if self.state is State.FOREIGN:
            raise InputError(f"{self.path}: {State.FOREIGN.value}choose another folder")

    def settled(self, config: RunConfig) -> bool:
        """Has all been trained that going on with this configuration asks for? It may still have to be scored."""
        if self.status in RESUMABLE:
            return self.unscored and not checkpoint.valid(self.checkpoints)
        before = self.config()
        if config.epochs > before.epochs:
            return False
        if self.unscored:  # its data are known by their digest
            before = dataclasses.replace(before, dataset=config.dataset, edges=config.edges)
        checkpoint.check_same_run(self.path, before, config)
        return True

    def check_data(self, config: RunConfig, summary: dict[str, Any], digest: str) -> None:
        """Raise unless what is to be scored with are the data that were trained on, perhaps by another name by now."""
        before = self.config()
        if (before.dataset, before.edges) == (config.dataset, config.edges):
            return
        if summary.get(DIGEST) != digest:
            raise InputError(f"{config.dataset}: is not what {self.path} was trained on; name those data")
        text = (self.path / CONFIG).read_text(encoding="utf-8")
        chosen = [line for line in text.splitlines(keepends=True) if line.startswith("#")]
        write_atomically(self.path / CONFIG, config.to_yaml() + "".join(chosen))

    def config(self) -> RunConfig:
        """The configuration that the run was made with."""
        return RunConfig.load(self.path / CONFIG)

    def known(self) -> RunConfig:
        """The settings of a run that names its data set."""
        config = self.config()
        if not config.dataset:
            raise InputError(f"{self.path}: was saved in Python, which does not tell the data set; give --dataset")
        return config

    def run_to_resume(self) -> RunConfig | None:
        """The configuration of the run that is here, finished or not, if there is one.

        A checkpoint has it too: whoever writes the folder may have been killed before.
        """
        saved = checkpoint.latest(self.checkpoints)
        if saved is not None:
            return saved.given
        return self.config() if (self.path / CONFIG).exists() else None

    def history(self) -> list[Record]:
        """The records of its epochs; none where they were not kept."""
        path = self.path / METRICS
        if not path.exists():
            return []
        with reading(path, "the metrics"):
            lines = read_lines(path, "the metrics")
            records = [decoded(Record, line) for line in lines if not is_task_line(line)]
            for number, record in enumerate(records, start=1):
                if decoded(Written, record).epoch != number:
                    raise ValueError(f"it has no record of epoch {number}")
        return records

    def classifier(self) -> GAMLPClassifier | GAMLPRegressor:
        """The trained estimator."""
        if not self.path.is_dir():
            raise InputError(f"{self.path}: no such run folder")
        if (self.previous / MODEL).exists() and not self.model.exists():
            why = f"{self.path}: has no model yet"
            raise InputError(f"{why}; that of the run which it replaces is in {self.previous} until then")
        return load_estimator(self.model)

    # ---------------------------------------------------------------------------------------------------- writing a run

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder, and keep other commands from writing to it; where nothing is written, nothing is left."""
        made = [place for place in (self.path, *self.path.parents) if not place.exists()]
        try:
            with self._making():
                self.path.mkdir(parents=True, exist_ok=True)
            with locked(self.path / LOCK) as ours:
                if not ours:
                    why = f"{self.path}: another command writes to it"
                    raise InputError(f"{why}; wait for its end or choose another --out")
                yield
        finally:
            for place in made:
                with suppress(OSError):
                    place.rmdir()

    @contextmanager
    def _making(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.path}: cannot write the run folder: {error.strerror}") from None

    def begin(self, config: RunConfig, history: Sequence[Record] = ()) -> None:
        """Take in what a run is of, and the history so far; they are written with the first epoch, or the model."""
        self._asked, self._before = config, history

    def _start(self) -> None:
        """Put an earlier run aside, and write the configuration and the history so far."""
        with self._making():
            self.path.mkdir(parents=True, exist_ok=True)
            self._put_aside()
            # The metrics come first: they tell a run that was killed here from files that are somebody's own.
            metrics = (self.path / METRICS).open("w", encoding="utf-8")
            write_atomically(self.path / CONFIG, self._asked.to_yaml())
        self._metrics, self._epochs = metrics, 0  # not before: an interrupt on the way makes us start over
        for event in self._notes:
            self.note(event)
        for record in self._before:
            self.append(record)

    def _put_aside(self) -> None:
        """Move a run that has a model to ``previous``, remove what is left of others.

        One that was interrupted does not take the place of the whole one that it was to replace.
        """
        whole = self.model.exists() and self.status != Status.INTERRUPTED.name
        if whole or (self.model.exists() and not (self.previous / MODEL).exists()):
            self._drop_previous()
            self.previous.mkdir(exist_ok=True)
            for name in FILES:
                with suppress(FileNotFoundError):
                    (self.path / name).replace(self.previous / name)
        _remove(self.path)

    def _drop_previous(self) -> None:
        _remove(self.previous)
        with suppress(OSError):
            self.previous.rmdir()  # unless somebody else has put something there

    def note(self, event: Event) -> None:
        """A line on a task; those before the first epoch are written with it."""
        if self._metrics is None:
            self._notes.append(event)
        elif not self._metrics.closed:
            self._write(json.dumps(dataclasses.asdict(event)) + "\n")

    def append(self, record: Record) -> None:
        """Write one line of metrics."""
        if self._metrics is None:
            self._start()
        self._write(as_line(record))
        self._epochs += 1

    def _write(self, line: str) -> None:
        """Readable by others at once."""
        assert self._metrics is not None
        with writing(self.path / METRICS):
            self._metrics.write(line)
            self._metrics.flush()

    def keep(self, estimator: Estimator, summary: dict[str, Any]) -> None:
        """Write the model and what is known of it before it is scored: from here on no training can be lost.

        An interrupt is heard when all is written.
        """
        try:
            self._keep(estimator, summary)
        except KeyboardInterrupt:
            self._keep(estimator, summary)
            raise

    def _keep(self, estimator: Estimator, summary: dict[str, Any]) -> None:
        if self._metrics is None:  # interrupted in the very first epoch, or resumed at the very end
            self._start()
        if self._epochs < len(estimator.history_):  # an interrupt kept records from being written, or counted
            assert self._metrics is not None
            self._metrics.flush()
            for record in estimator.history_[len(self.history()) :]:
                self.append(record)
        estimator.save(self.model)
        chosen = [f"{name}: {getattr(estimator.config_, name)}" for name in CHOSEN]
        lines = ["chosen by the data, where it was left to them:", *chosen, *estimator.choices_]
        text = self._asked.to_yaml() + "".join(f"# {line}\n" for line in lines)
        write_atomically(self.path / CONFIG, text)
        _write_summary(self.path / UNSCORED, summary)

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary that marks the run as finished, or as one that lost a worker."""
        if self._metrics is not None:
            self._metrics.close()
        _write_summary(self.path / SUMMARY, summary)
        (self.path / UNSCORED).unlink(missing_ok=True)
        status = Status[summary["status"]]
        if self.model.exists() and status is not Status.INTERRUPTED:
            self._drop_previous()
        # Last: a run that is not finished needs its checkpoint whole; one that was stopped, or used all of its epochs,
        # can go on from it.
        if not status.was_stopped and status not in (Status.MAX_EPOCHS, Status.PEER_LOST):
            shutil.rmtree(self.checkpoints, ignore_errors=True)

    def lose(self, error: Exception) -> None:
        """A worker was lost: say so, unless nothing was written, or the model, which may still be scored."""
        written = (self.path / "metrics.jsonl").exists() and self.status in (None, Status.PEER_LOST.name)
        if written and not self.unscored:
            lost = Status.PEER_LOST
            self.finish({"status": lost.name, "advice": lost.advice, "message": str(error)})


def _remove(folder: Path) -> None:
    """What a run has written there."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def _write_summary(path: Path, summary: dict[str, Any]) -> None:
    # Rows of numbers on one line each. Text in JSON has no line breaks, so nothing else can match.
    text = re.sub(r"\[\n[-\d.,\s]*\]", lambda row: " ".join(row[0].split()), json.dumps(summary, indent=2))
    write_atomically(path, text + "\n")
