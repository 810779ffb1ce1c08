"""Checkpoints: one safetensors file per layer, the history so far, and a description that makes them valid.

``checkpoints/history.jsonl`` and ``checkpoints/epoch-00000120/layer-001.safetensors ... meta.json``. Each worker writes
its own layers, so on several machines the folder must be shared. Whatever is killed whenever: a folder without
``meta.json``, which is written last, does not count, and the checkpoint before it is removed only once the new one is
whole. The history only grows; a description says how much of it is its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..admm.levels import Levels
from ..admm.state import Boundary, Layer, Quantization, Weights, keeps_u
from ..config import ModelConfig, RunConfig, settings_where
from ..engine.stacking import INVERSES
from ..engine.team import Team
from ..engine.worker import Worker
from ..errors import InputError
from ..utils import Count, Positive, Size, read_record, writing
from .growth import anchor
from .records import Record, as_line, is_record

#: Of the files; those of another version of the package, 0.2.0 among them, are refused.
FORMAT = 3
META, HISTORY, PSEUDO_LABELS = "meta.json", "history.jsonl", "pseudo-labels.safetensors"
#: Tensors of a layer that have one row for each training row.
ROW_BY_ROW = ("z", "r", "p", "q", "u")
#: Settings that may be left to the data.
CHOSEN = settings_where(ModelConfig, by_data=True)
REMEDY = "start over with --overwrite"
STILL_THERE = "; the checkpoint before this one, if any, is whole: make room and go on with --resume"


class StageState(Struct, kw_only=True):
    """Where a stage is after an epoch: what its rules go by, beside the layers of the workers."""

    stage: Count
    epoch: Count
    depth: Count
    #: Of learning from unlabelled nodes; 0 before the first one and where there are none.
    round: Size
    #: What was left to the data and chosen once stays chosen.
    chosen: dict[str, Any]
    worker_epochs: Size
    #: None stands for what is infinite, here and below.
    best_score: tuple[float | None, float | None]
    best_epoch: Size
    scale: Positive
    rate: float | None
    #: Into how many files, with a part of the rows each, every layer is written.
    shards: Count


class Description(StageState):
    """The content of meta.json: the state of a stage, and the run that it belongs to."""

    format: int
    total_epochs: Count
    history_bytes: Count
    #: Those of the run, as far as it has a configuration.
    settings: dict[str, Any]
    #: Digest of the data.
    data: str
    #: What was chosen by the data and why, a sentence each.
    reasons: tuple[str, ...]


class _AnyFormat(Struct):
    format: int = 2


@dataclass(frozen=True)
class Checkpoint:
    """A valid checkpoint: its folder, its description and the records of the epochs before it."""

    folder: Path
    meta: Description
    history: list[Record]
    #: The settings of the run, as they were given, and with what was chosen.
    given: RunConfig
    chosen: RunConfig

    def place_in(self, steps: Sequence[tuple[int, int, int]]) -> int:
        """The place of its (stage, depth, round) in a schedule."""
        own = (self.meta.stage, self.meta.depth, self.meta.round)
        if own not in steps:
            place = f"stage {own[0]}, round {own[2]}"
            raise InputError(f"{self.folder}: was written in {place}, which does not exist in this run; {REMEDY}")
        return steps.index(own)

    def pseudo_labels(self, like: Tensor) -> dict[str, Tensor]:
        """The tensors of the round that it was written in, on the device of ``like``."""
        path = self.folder / PSEUDO_LABELS
        with _reading(path):
            return {name: tensor.clone() for name, tensor in load_file(str(path), device=str(like.device)).items()}

    def layer(
        self, index: int, like: Tensor, shapes: dict[str, tuple[int, ...]] | None = None, rows: range | None = None
    ) -> dict[str, Tensor]:
        """The tensors of a layer, counted from 0: those of ``shapes`` if given, and ``levels`` where there are any.

        Of those with one row a training row, these ``rows``, or all. Their type must be that of ``like``, to whose
        device they go.
        """
        parts: dict[str, list[Tensor]] = {}
        first = 0
        for shard in range(self.meta.shards):
            path = self.folder / _layer_file(index, shard, self.meta.shards)
            with _reading(path), safe_open(str(path), "pt", device=str(like.device)) as file:
                first = _read_part(file, first, rows, parts)
        # Copies start on a cache line, as fresh tensors do; products of others may differ in their last bits.
        tensors = {name: torch.cat(found) for name, found in parts.items()}
        shapes = {name: tuple(x.shape) for name, x in tensors.items()} if shapes is None else shapes
        for name in sorted(tensors.keys() | shapes.keys() - {*INVERSES}):
            tensor, shape = tensors.get(name), shapes.get(name)
            fits = tensor is not None and (name == "levels" or tuple(tensor.shape) == shape)
            if tensor is None or not fits or tensor.dtype != like.dtype or not bool(tensor.isfinite().all()):
                kind = str(like.dtype).removeprefix("torch.")
                wanted = f"{name} must be finite {kind} numbers of shape {shape}" if shape else f"{name} is not known"
                raise InputError(f"{path}: {wanted}: of another version or of other data; {REMEDY}")
        return tensors


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


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever cannot be read in a file of a checkpoint is an error of one line that names it."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError("not a regular file")
        yield
    except InputError:
        raise
    except (SafetensorError, OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise InputError(f"{path}: cannot read the checkpoint: {error}; {REMEDY}") from None


def valid(folder: Path) -> list[Path]:
    """The folders of all checkpoints, as far as can be told without reading them, the newest first."""
    return sorted((path for path in folder.glob("epoch-*") if (path / META).is_file()), reverse=True)


def _described(folder: Path) -> tuple[Description, RunConfig, RunConfig]:
    path = folder / META
    if read_record(_AnyFormat, path, "the checkpoint", f"; {REMEDY}").format != FORMAT:
        raise InputError(f"{path}: was written by another version of pdadmm-g: {REMEDY}, or finish it with that one")
    meta = read_record(Description, path, "the checkpoint", f"; {REMEDY}")
    with _reading(path):
        given, chosen = (RunConfig(**settings) for settings in (meta.settings, meta.settings | meta.chosen))
    return meta, given, chosen


def run_of_latest(folder: Path) -> RunConfig | None:
    """The configuration of the run that the newest checkpoint is of, if there is one."""
    found = valid(folder)
    return _described(found[0])[1] if found else None


def latest(folder: Path) -> Checkpoint | None:
    """The newest valid checkpoint, if there is one."""
    found = valid(folder)
    if not found:
        return None
    meta, given, chosen = _described(found[0])
    path = folder / HISTORY
    with _reading(path):
        # Behind the records that belong to the checkpoint there may be those of a later attempt.
        with path.open("rb") as file:
            history = [msgspec.json.decode(line) for line in file.read(meta.history_bytes).splitlines()]
        if len(history) != meta.total_epochs:
            raise ValueError(f"it holds the history of {len(history)} epochs, not of {meta.total_epochs}")
        for number, record in enumerate(history, start=1):
            if not is_record(record, number) or record["stage"] > meta.stage:
                raise ValueError(f"it has no record of epoch {number}")
    return Checkpoint(found[0], meta, history, given, chosen)


def resumable(folder: Path, config: RunConfig) -> Checkpoint | None:
    """The checkpoint from which a run with this configuration goes on, if there is one."""
    saved = latest(folder)
    if saved is None:
        text = f"{folder.parent}: holds no checkpoint to resume from; starting from the beginning"
        warnings.warn(text, stacklevel=3)
    else:
        # The data are known by their digest, wherever they are now.
        before = dataclasses.replace(saved.given, dataset=config.dataset, edges=config.edges)
        check_same_run(folder.parent, before, config)
    return saved


def check_same_run(run: Path, before: RunConfig, config: RunConfig) -> None:
    """Raise if ``config`` is for another run than ``before`` in that folder; more epochs may be asked for."""
    free = (*settings_where(config, decides="nothing"), "shards")  # these change the last bits, as said
    for name, new in vars(config).items():
        old = getattr(before, name)
        more = name == "epochs" and new > old
        if old != new and name not in free and not more:
            remedy = "leave it out" if name != "epochs" else "leave it out, or give more"
            raise InputError(f"{run}: cannot resume with {name} = {new}, the run has {old}; {remedy}")


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
    def of_run(cls, folder: Path, config: RunConfig, saved: Checkpoint | None, digest: str) -> Checkpointing:
        """That of a run on data with this digest; raises if the checkpoint to go on from is of others."""
        if saved is not None and saved.meta.data != digest:
            raise InputError(f"{saved.folder}: was written for other data than {config.dataset} has; {REMEDY}")
        return cls(folder, dataclasses.asdict(config), config.checkpoint_every, saved, digest)

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
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return own | {"folder": str(self.folder.resolve()), "resume": self.resume is not None}

    def decided(self, config: ModelConfig) -> ModelConfig:
        """``config`` with what the data have chosen for the run that goes on."""
        if self.resume is None:
            return config
        return dataclasses.replace(config, **{name: getattr(self.resume.chosen, name) for name in CHOSEN}).resolved()

    def explained(self, reasons: Sequence[str]) -> tuple[str, ...]:
        """Why the run is as it is: what its checkpoint says, then those ``reasons`` that are new. Kept for the next."""
        before = self.resume.meta.reasons if self.resume else ()
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
        pseudo_labels: dict[str, Tensor] | None = None,
    ) -> None:
        """Write the checkpoint after the last epoch of ``history``. Every worker brings its ``layers``.

        The first one also brings the ``pseudo_labels`` of a round. Settings and history are saved too: whoever writes
        those to the run folder may have been killed.
        """
        for index, tensors in layers:
            write_layer(self.folder, len(history), index, tensors, shard=team.rows.rank, shards=team.rows.size)
        path = _epoch_folder(self.folder, len(history))
        if pseudo_labels is not None:
            _write_safely(path / PSEUDO_LABELS, pseudo_labels)
        team.barrier()
        if team.rank == 0:
            for index, shard in itertools.product(range(state.depth), range(state.shards)):
                name = _layer_file(index, shard, state.shards)
                if not (path / name).is_file():
                    raise InputError(f"{path}: has no {name}: --out must be a folder that all machines share")
            with writing(path, STILL_THERE):
                self._commit(path, state, history)
            for other in self.folder.glob("epoch-*"):
                if other != path:
                    shutil.rmtree(other, ignore_errors=True)
        self._epochs = len(history)
        team.barrier()

    def _commit(self, path: Path, state: StageState, history: Sequence[Record]) -> None:
        """Append what is new to the history, then make the checkpoint valid."""
        lines = "".join(as_line(record) for record in history[self._epochs :]).encode()
        with (self.folder / HISTORY).open("r+b" if self._bytes else "wb") as file:
            file.truncate(self._bytes)  # an attempt may have left something that was killed before it could commit
            file.seek(self._bytes)
            file.write(lines)
        _fsync(self.folder / HISTORY)
        self._bytes += len(lines)
        meta = Description(
            **msgspec.structs.asdict(state), format=FORMAT, total_epochs=len(history), history_bytes=self._bytes,
            settings=self.settings, data=self.data, reasons=self.reasons,
        )  # fmt: skip
        temporary = path / (META + ".tmp")
        temporary.write_bytes(msgspec.json.encode(meta))
        _fsync(temporary)
        temporary.replace(path / META)
        _fsync(path)
        _fsync(self.folder)


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


def _write_safely(path: Path, tensors: dict[str, Tensor]) -> None:
    with writing(path, STILL_THERE):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, STILL_THERE)
        _fsync(path)


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


# A layer as the tensors of a checkpoint, and back


def layer_tensors(worker: Worker, place: int, best: Weights) -> dict[str, Tensor]:
    """Everything that training needs to go on with this layer; the boundary to its right belongs to it."""
    layer, before, after = worker.layers[place], *worker.boundaries[place : place + 2]
    tensors = {"W": layer.W, "b": layer.b, "z": layer.z, "r": layer.r.to(layer.z.dtype)}
    if before is not None:
        tensors["p"] = before.p
    if after is not None:
        tensors |= {"q": after.q, "u": worker.u(place)}
        for levels in (after.p_levels, after.q_levels):
            if levels is not None:
                tensors["levels"] = levels.values
    tensors |= {name: inverse for name in INVERSES if (inverse := getattr(layer, name)) is not None}
    return tensors | {"best_W": best.W, "best_b": best.b}


def restore(
    saved: Checkpoint, mine: range, shape: Sequence[int], rows: range, quantization: Quantization, like: Tensor
) -> tuple[list[Layer], list[Boundary | None], list[Weights]]:
    """The layers of ``mine``, the boundaries beside them and the best weights so far, whoever wrote them.

    ``shape`` are the widths of the network (:func:`.growth.widths`), ``rows`` those of the training rows that are
    wanted; tensors are ``like`` this one.
    """
    if not mine:
        return [], [None], []
    depth = len(shape) - 1
    around = range(max(mine.start - 1, 0), min(mine.stop + 1, depth))
    tensors = {index: saved.layer(index, like, _layer_shapes(index, shape, len(rows)), rows) for index in around}
    layers, best = [], []
    for index in mine:
        own = tensors[index]
        W0 = anchor(own["W"], index, depth)
        kept = {name: own.get(name) for name in INVERSES}
        layers.append(Layer(own["W"], own["b"], W0, z=own["z"], r=own["r"], **kept))
        best.append(Weights(own["best_W"], own["best_b"], W0))
    boundaries = [
        _boundary(saved, tensors[place - 1], tensors[place], quantization) if 0 < place < depth else None
        for place in range(mine.start, mine.stop + 1)
    ]
    for boundary in boundaries[1:-1]:
        if boundary is not None and boundary.q_levels is None and not keeps_u(boundary.q):
            boundary.u = None
    return layers, boundaries, best


def _layer_shapes(index: int, shape: Sequence[int], nodes: int) -> dict[str, tuple[int, ...]]:
    into, out = shape[index], shape[index + 1]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("W", "best_W"), (out, into))
    shapes |= dict.fromkeys(("b", "best_b"), (out,)) | dict.fromkeys(("z", "r"), (nodes, out))
    if index:
        shapes |= {"p": (nodes, into)} | dict.fromkeys(INVERSES, (into, into))
    if index < len(shape) - 2:
        shapes |= dict.fromkeys(("q", "u"), (nodes, out))
    return shapes


def _boundary(
    saved: Checkpoint, left: dict[str, Tensor], right: dict[str, Tensor], quantization: Quantization
) -> Boundary:
    levels = None
    if quantization.p:
        try:
            levels = Levels(left["levels"])
        except (KeyError, ValueError):
            raise InputError(f"{saved.folder}: has no sound levels for a quantized boundary; {REMEDY}") from None
    return Boundary(right["p"], left["q"], left["u"], p_levels=levels, q_levels=levels if quantization.q else None)
