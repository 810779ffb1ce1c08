"""Checkpoints: one safetensors file per layer, the history so far, and a description that makes them valid.

``checkpoints/history.jsonl`` and ``checkpoints/epoch-00000120/layer-001.safetensors ... meta.json``. Each worker writes
its own layers, so on several machines the folder must be shared. Whatever is killed whenever: a folder without
``meta.json``, which is written last, does not count, and the checkpoint before it is removed only once the new one is
whole. The history only grows; a description says how much of it is its own. The tensors of a layer are those of
:mod:`.layer_tensors`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..config import ModelConfig, RunConfig, settings_where
from ..engine.team import Team
from ..errors import InputError
from ..utils import Count, Positive, Size, decoded, read_text, reading, writing
from .records import Record, as_line, is_record

if TYPE_CHECKING:
    from ..data.graph import Graph

#: Of tensors, by name.
Shapes = dict[str, tuple[int, ...]]
META, HISTORY, LESSON = "meta.json", "history.jsonl", "lesson.safetensors"
#: Tensors of a layer that have one row for each training row.
ROW_BY_ROW = ("z", "r", "p", "q", "u")
#: Settings that may be left to the data.
CHOSEN = settings_where(ModelConfig, by_data=True)
REMEDY = "start over with --overwrite"
STILL_THERE = "; the checkpoint before this one, if any, is whole: make room and go on with --resume"


class StageState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stage is after an epoch: what its rules go by, beside the layers of the workers."""

    stage: Count
    epoch: Count
    depth: Count
    #: Of nodes without labels that teach; 0 before the first one and where none do.
    round: Size
    #: Training nodes, validation nodes, features and classes.
    sizes: tuple[Size, Size, Size, Size]
    #: What was left to the data and chosen once stays chosen.
    chosen: dict[str, Any]
    worker_epochs: Size
    best_score: tuple[float, float]
    best_epoch: Size
    scale: Positive
    rate: float
    #: Into how many files, with a part of the rows each, every layer is written.
    shards: Count


class Description(StageState, frozen=True, kw_only=True):
    """The content of meta.json: the state of a stage, and the run that it belongs to."""

    total_epochs: Count
    history_bytes: Count
    #: Those of the run, as far as it has a configuration.
    settings: dict[str, Any]
    #: Digest of the data.
    data: str
    #: What was chosen by the data and why, a sentence each.
    reasons: list[str]

    def write(self, folder: Path) -> None:
        """Make the checkpoint in ``folder`` a valid one."""
        temporary = folder / (META + ".tmp")
        temporary.write_text(json.dumps(msgspec.structs.asdict(self)), encoding="utf-8")
        _fsync(temporary)
        temporary.replace(folder / META)
        _fsync(folder)

    @classmethod
    def read(cls, folder: Path) -> Description:
        """That of a checkpoint, or an :class:`InputError`."""
        with reading(folder / META, "the checkpoint", f"; {REMEDY}"):
            return decoded(cls, _as_written_now(json.loads(read_text(folder / META, "the checkpoint"))))


def _as_written_now(value: Any) -> Any:
    """What was written before nodes without labels could teach, with what it would say of them: they do not."""
    if not isinstance(value, dict):
        return value
    value = {"shards": 1, "reasons": []} | value
    chosen, settings = value.get("chosen"), value.get("settings")
    if isinstance(chosen, dict):
        chosen = value["chosen"] = {"directed": "symmetric", "target": "classification"} | chosen
    if "round" in value:
        return value
    if not isinstance(chosen, dict) or not isinstance(settings, dict) or "unlabelled" in chosen:
        return value
    since: dict[str, Any] = dict.fromkeys(("components", "drop_entries", "sharpness"))
    since |= {"teleport": settings.get("teleport"), "unlabelled": 0}
    return value | {"round": 0, "chosen": since | chosen}


@dataclass(frozen=True)
class Checkpoint:
    """A valid checkpoint: its folder, its description and the records of the epochs before it."""

    folder: Path
    meta: Description
    history: list[Record]

    def check_settings(self, config: RunConfig) -> None:
        """Raise unless a run with this configuration may go on from here. The data are known by their digest."""
        before = _run_of(self.folder, self.meta)
        before = dataclasses.replace(before, dataset=config.dataset, edges=config.edges)
        check_same_run(self.folder.parents[1], before, config)

    def place_in(self, steps: Sequence[Any]) -> int:
        """Which part of a schedule it is of."""
        for place, (stage, _, round) in enumerate(steps):
            if (stage, round) == (self.meta.stage, self.meta.round):
                return place
        raise InputError(
            f"{self.folder}: is of stage {self.meta.stage}, round {self.meta.round}, which the run has not"
        )

    def check_sizes(self, sizes: Sequence[int], depth: int) -> None:
        """Raise unless it is of a network of that depth, and of data of these sizes."""
        if self.meta.sizes != tuple(sizes) or self.meta.depth != depth:
            names = "nodes, validation nodes, features and classes"
            raise InputError(
                f"{self.folder}: was written for {list(self.meta.sizes)} {names}, the data have {list(sizes)}; {REMEDY}"
            )

    def lesson(self, like: Tensor) -> dict[str, Tensor]:
        """What the nodes without labels should become in the round that it is of, on the device of ``like``."""
        path = self.folder / LESSON
        try:
            return {name: tensor.clone() for name, tensor in load_file(str(path), device=str(like.device)).items()}
        except (SafetensorError, OSError, RuntimeError) as error:
            raise InputError(f"{path}: cannot read the checkpoint: {error}; {REMEDY}") from None

    def layer(
        self,
        index: int,
        like: Tensor,
        shapes: Shapes | None = None,
        rows: range | None = None,
        may_have: Shapes | None = None,
    ) -> dict[str, Tensor]:
        """The tensors of a layer, counted from 0: those of ``shapes`` if given, and ``levels`` where there are any.

        Those that it ``may_have`` need not be there.

        Of those with one row a training row, these ``rows``, or all. Their type must be that of ``like``, to whose
        device they go.
        """
        path = self.folder / _layer_file(index, 0, self.meta.shards)
        parts: dict[str, list[Tensor]] = {}
        first = 0
        for shard in range(self.meta.shards):
            path = self.folder / _layer_file(index, shard, self.meta.shards)
            try:
                if path.exists() and not path.is_file():
                    raise InputError(f"{path}: cannot read the checkpoint: not a regular file")
                with safe_open(str(path), "pt", device=str(like.device)) as file:
                    first = _read_part(file, first, rows, parts)
            except (SafetensorError, OSError, RuntimeError) as error:
                raise InputError(f"{path}: cannot read the checkpoint: {error}; {REMEDY}") from None
        # Copies start on a cache line, as fresh tensors do; products of others may differ in their last bits.
        tensors = {name: torch.cat(found) for name, found in parts.items()}
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name != "levels"}
        besides = {name: shape for name, shape in (may_have or {}).items() if name in found}
        shapes = found if shapes is None else shapes | besides
        for name in sorted(shapes.keys() | found.keys()):
            if found.get(name) != shapes.get(name):
                wanted = f"{found.get(name, 'nothing')} for {name}, this run needs {shapes.get(name, 'nothing')}"
                raise InputError(f"{path}: has {wanted}: of another version or of other data; {REMEDY}")
        for name, tensor in tensors.items():
            if tensor.dtype != like.dtype or not bool(tensor.isfinite().all()):
                kind = str(like.dtype).removeprefix("torch.")
                raise InputError(f"{path}: {name} holds something else than finite {kind} numbers; {REMEDY}")
        return tensors


def check_same_run(run: Path, before: RunConfig, config: RunConfig) -> None:
    """Raise if ``config`` is for another run than ``before`` in that folder; more epochs may be asked for."""
    free = (*settings_where(config, decides="nothing"), "shards")  # these change the last bits, as said
    for name, new in vars(config).items():
        old = getattr(before, name)
        more = name == "epochs" and new > old
        if old != new and name not in free and not more:
            remedy = "leave it out" if name != "epochs" else "leave it out, or give more"
            raise InputError(f"{run}: cannot resume with {name} = {new}, the run has {old}; {remedy}")


def _run_of(folder: Path, meta: Description) -> RunConfig:
    """The configuration of the run that a checkpoint is of."""
    try:
        return RunConfig(**meta.settings)
    except (InputError, KeyError, TypeError) as error:
        raise InputError(f"{folder}: its settings are of another version: {error}") from None


def run_of_latest(folder: Path) -> RunConfig | None:
    """The configuration of the run that the newest checkpoint is of, if there is one."""
    found = valid(folder)
    return _run_of(found[0], Description.read(found[0])) if found else None


def valid(folder: Path) -> list[Path]:
    """The folders of all checkpoints, as far as can be told without reading them, the newest first."""
    return sorted((path for path in folder.glob("epoch-*") if (path / META).is_file()), reverse=True)


def latest(folder: Path) -> Checkpoint | None:
    """The newest valid checkpoint, if there is one."""
    found = valid(folder)
    if not found:
        return None
    meta = Description.read(found[0])
    with reading(folder / HISTORY, "the checkpoint", f"; {REMEDY}"):
        return Checkpoint(found[0], meta, _read_history(folder / HISTORY, meta))


def _read_history(path: Path, meta: Description) -> list[Record]:
    """The records that belong to the checkpoint with this description; behind them may be those of a later attempt."""
    if path.exists() and not path.is_file():
        raise ValueError("not a regular file")
    try:
        with path.open("rb") as file:
            lines = file.read(meta.history_bytes).splitlines()
    except OSError as error:
        raise ValueError(error.strerror) from None
    history = [json.loads(line) for line in lines]
    if len(history) != meta.total_epochs:
        raise ValueError(f"it holds the history of {len(history)} epochs, not of {meta.total_epochs}")
    for number, record in enumerate(history, start=1):
        if not is_record(record, number) or record["stage"] > meta.stage:
            raise ValueError(f"it has no record of epoch {number}")
    return history


def resumable(folder: Path, config: RunConfig) -> Checkpoint | None:
    """The checkpoint from which a run with this configuration goes on, if there is one."""
    saved = latest(folder)
    if saved is None:
        text = f"{folder.parent}: holds no checkpoint to resume from; starting from the beginning"
        warnings.warn(text, stacklevel=3)
    else:
        saved.check_settings(config)
    return saved


def to_go_on_from(folder: Path) -> Checkpoint:
    """The newest checkpoint, which another process has found already."""
    saved = latest(folder)
    if saved is None:
        raise InputError(f"{folder}: no checkpoint here: the run folder must be one that all machines share")
    return saved


def clear(folder: Path) -> None:
    """Remove the checkpoints of an earlier run: one that starts anew must not be resumed from them."""
    for path in valid(folder):
        (path / META).unlink()  # first, so that none is valid and half removed
    for path in folder.glob("epoch-*"):
        shutil.rmtree(path, ignore_errors=True)
    if (folder / HISTORY).is_file():
        (folder / HISTORY).unlink()


def write_tensors(path: Path, tensors: dict[str, Tensor], remedy: str = "") -> None:
    """Write a safetensors file, or raise as :func:`~pdadmm_g.utils.writing` does and leave none."""
    with writing(path, remedy):
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path))
        except SafetensorError as error:
            path.unlink(missing_ok=True)
            raise OSError(str(error)) from None


def write_layer(
    folder: Path, epoch: int, index: int, tensors: dict[str, Tensor], *, shard: int = 0, shards: int = 1
) -> None:
    """Write one layer of the checkpoint of ``epoch``, or a part of its rows, safely on disk when this returns."""
    if shard:
        tensors = {name: tensor for name, tensor in tensors.items() if name in ROW_BY_ROW}
    _write_safely(_epoch_folder(folder, epoch) / _layer_file(index, shard, shards), tensors)


def _read_part(file: Any, first: int, rows: range | None, parts: dict[str, list[Tensor]]) -> int:
    """Add what a file has of the ``rows`` to the ``parts``; its own begin at number ``first``. Where the next begin."""
    number = 0
    for name in file.keys():  # noqa: SIM118  (it is not a dict)
        part = file.get_slice(name)
        if name in ROW_BY_ROW:
            number = part.get_shape()[0]
            start, stop = (0, number) if rows is None else (rows.start - first, rows.stop - first)
            start = min(max(start, 0), number)
            parts.setdefault(name, []).append(part[start : max(min(stop, number), start)])
        else:
            parts.setdefault(name, []).append(part[:])
    return first + number


def _write_safely(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a file of a checkpoint, safely on disk when this returns."""
    with writing(path, STILL_THERE):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, STILL_THERE)
        _fsync(path)


@dataclass
class Checkpointing:
    """Where and how often checkpoints are written, and the one to go on from."""

    folder: Path
    #: Those of the run, to be put in.
    settings: dict[str, Any]
    every: int | None = None
    resume: Checkpoint | None = None
    #: Digest of the data, to be put in.
    data: str = ""
    #: What was chosen by the data and why, to be put in: who goes on does not choose again.
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        #: Epochs up to the last checkpoint, and the bytes of their history.
        self._epochs = len(self.history)
        self._bytes: int = self.resume.meta.history_bytes if self.resume else 0

    @classmethod
    def of_run(cls, folder: Path, config: RunConfig, saved: Checkpoint | None, data: Graph) -> Checkpointing:
        """That of a run on ``data``; raises if the checkpoint to go on from is of others."""
        from ..data.datasets import digest  # not for workers, which start faster without graphs

        needed = saved is not None or config.checkpoint_every is not None
        return cls.of_digest(folder, config, saved, digest(data) if needed else "")

    @classmethod
    def of_digest(cls, folder: Path, config: RunConfig, saved: Checkpoint | None, mark: str) -> Checkpointing:
        """The same, of data with this digest."""
        every = config.checkpoint_every
        if saved is not None and saved.meta.data != mark:
            raise InputError(f"{saved.folder}: was written for other data than {config.dataset} has; {REMEDY}")
        return cls(folder, dataclasses.asdict(config), every, saved, mark)

    @classmethod
    def joined(
        cls,
        folder: str | Path,
        settings: dict[str, Any],
        every: int | None,
        *,
        resume: bool,
        data: str = "",
        reasons: Sequence[str] = (),
    ) -> Checkpointing:
        """That of another process of the run, which has to find the checkpoint to go on from itself."""
        saved = to_go_on_from(Path(folder)) if resume else None
        return cls(Path(folder), settings, every, saved, data, tuple(reasons))

    def for_others(self) -> dict[str, Any]:
        """The arguments of :meth:`joined` by which another process on this machine gets the same."""
        return {
            "folder": str(self.folder.resolve()),
            "settings": self.settings,
            "every": self.every,
            "resume": self.resume is not None,
            "data": self.data,
            "reasons": self.reasons,
        }

    def decided(self, config: ModelConfig) -> ModelConfig:
        """``config`` with what the data have chosen for the run that goes on."""
        if self.resume is None:
            return config
        return ModelConfig(**dataclasses.asdict(config) | self.resume.meta.chosen).resolved()

    def explained(self, reasons: Sequence[str]) -> tuple[str, ...]:
        """Why the run is as it is: what its checkpoint says, then those ``reasons`` that are new. Kept for the next."""
        before = tuple(map(str, self.resume.meta.reasons)) if self.resume else ()
        self.reasons = (*before, *(reason for reason in reasons if reason not in before))
        return self.reasons

    @property
    def history(self) -> list[Record]:
        """The records of the epochs up to the checkpoint to go on from."""
        return list(self.resume.history) if self.resume else []

    def begin(self, *, first: bool) -> Checkpoint | None:
        """The checkpoint to go on from; where there is none, the ``first`` worker removes those of an earlier run."""
        if self.resume is None and first:
            clear(self.folder)
        return self.resume

    def due(self, epoch: int) -> bool:
        """Is a checkpoint to be written after this epoch of the run, the next in which all workers meet?"""
        return self.every is not None and epoch // self.every > self._epochs // self.every

    def write(
        self,
        team: Team,
        layers: Iterable[tuple[int, dict[str, Tensor]]],
        state: StageState,
        history: Sequence[Record],
        lesson: dict[str, Tensor] | None = None,
    ) -> None:
        """Write the checkpoint after the last epoch of ``history``. Every worker brings its ``layers``.

        Of a round, the first one brings the ``lesson``. Settings and history are saved too: whoever writes those to the
        run folder may have been killed.
        """
        for index, tensors in layers:
            write_layer(self.folder, len(history), index, tensors, shard=team.rows.rank, shards=team.rows.size)
        if lesson is not None:
            _write_safely(_epoch_folder(self.folder, len(history)) / LESSON, lesson)
        team.barrier()
        if team.rank == 0:
            self._commit(state, history)
        self._epochs = len(history)
        team.barrier()

    def _commit(self, state: StageState, history: Sequence[Record]) -> None:
        """Make the checkpoint valid, all layers of which have been written, then remove all others."""
        path = _epoch_folder(self.folder, len(history))
        for index, shard in itertools.product(range(state.depth), range(state.shards)):
            name = _layer_file(index, shard, state.shards)
            if not (path / name).is_file():
                raise InputError(f"{path}: has no {name}: --out must be a folder that all machines share")
        with writing(path, STILL_THERE):
            self._save_history(history)
            Description(
                **msgspec.structs.asdict(state), total_epochs=len(history), history_bytes=self._bytes,
                settings=self.settings, data=self.data, reasons=list(self.reasons),
            ).write(path)  # fmt: skip
            _fsync(self.folder)
        for other in self.folder.glob("epoch-*"):
            if other != path:
                shutil.rmtree(other, ignore_errors=True)

    def _save_history(self, history: Sequence[Record]) -> None:
        """Append what is new, in place of what an attempt may have left that was killed before it could commit."""
        lines = "".join(as_line(record) for record in history[self._epochs :]).encode()
        with (self.folder / HISTORY).open("r+b" if self._bytes else "wb") as file:
            file.truncate(self._bytes)
            file.seek(self._bytes)
            file.write(lines)
        _fsync(self.folder / HISTORY)
        self._bytes += len(lines)


def _epoch_folder(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch:08d}"


def _layer_file(index: int, shard: int = 0, shards: int = 1) -> str:
    part = "" if shards == 1 else f"-{shard + 1}-of-{shards}"
    return f"layer-{index + 1:03d}{part}.safetensors"


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
