"""Checkpoints: ``checkpoints/epoch-00000120/layer-001.safetensors ... meta.json``, a file per layer, and a description.

Each worker writes its own layers, so on several machines the folder must be shared. Whatever is killed whenever: a
folder without ``meta.json``, which is written last, does not count, and the checkpoint before it is removed only once
the new one is whole.
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
from typing import Any, Literal

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
from ..utils import Count, Positive, Size, read_record, write_atomically, writing
from .records import Record

META, PSEUDO_LABELS = "meta.json", "pseudo-labels.safetensors"
#: Tensors of a layer that have one row for each training row.
ROW_BY_ROW = ("z", "r", "p", "q", "u")
#: Settings that may be left to the data.
CHOSEN = settings_where(ModelConfig, by_data=True)
REMEDY = "start over with --overwrite"
STILL_THERE = "; the checkpoint before this one, if any, is whole: make room and go on with --resume"


class Description(Struct, kw_only=True):
    """The content of meta.json: the run, and where a stage of it is, which is what its rules go by."""

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

    #: Those of the run, as far as it has a configuration.
    settings: dict[str, Any]
    #: Digest of the data.
    data: str
    #: What was chosen by the data and why, a sentence each.
    reasons: tuple[str, ...]
    #: The records of all epochs.
    history: list[Record]
    #: That of other versions of the package is refused.
    format: Literal[4] = 4


@dataclass(frozen=True)
class Checkpoint:
    """A valid checkpoint: its folder and its description."""

    folder: Path
    meta: Description

    @property
    def given(self) -> RunConfig:
        """The settings of the run, as they were given."""
        return RunConfig(**self.meta.settings)

    @property
    def history(self) -> list[Record]:
        """The records of the epochs before it."""
        return self.meta.history

    def pseudo_labels(self, like: Tensor) -> dict[str, Tensor]:
        """The tensors of the round that it was written in, on the device of ``like``."""
        path = self.folder / PSEUDO_LABELS
        with _reading(path):
            return {name: tensor.clone() for name, tensor in load_file(str(path), device=str(like.device)).items()}

    def layer(self, index: int, like: Tensor, rows: range) -> dict[str, Tensor]:
        """The tensors of a layer, counted from 0, on the device of ``like``; these ``rows`` of those that have rows."""
        parts: dict[str, list[Tensor]] = {}
        first = 0
        for path in _layer_files(self.folder, index, self.meta.shards):
            with _reading(path), safe_open(str(path), "pt", device=str(like.device)) as file:
                number = file.get_slice("z").get_shape()[0]
                own = range(number)[max(rows.start - first, 0) : max(rows.stop - first, 0)]
                for name in file.keys():  # noqa: SIM118  (it is not a dict)
                    part = file.get_slice(name)
                    part = part[own.start : own.stop] if name in ROW_BY_ROW else part[:]
                    parts.setdefault(name, []).append(part)
                first += number
        # Copies start on a cache line, as fresh tensors do; products of others may differ in their last bits.
        return {name: torch.cat(found) for name, found in parts.items()}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever cannot be read in a file of a checkpoint is an error of one line that names it."""
    try:
        yield
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{path}: cannot read the checkpoint: {error}; {REMEDY}") from None


def valid(folder: Path) -> list[Path]:
    """The folders of all checkpoints, as far as can be told without reading them, the newest first."""
    return sorted((path for path in folder.glob("epoch-*") if (path / META).is_file()), reverse=True)


def latest(folder: Path) -> Checkpoint | None:
    """The newest valid checkpoint, if there is one."""
    for path in valid(folder):
        remedy = f" (of another version of pdadmm-g?); {REMEDY}"
        return Checkpoint(path, read_record(Description, path / META, "the checkpoint", remedy))
    return None


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
        if old != new and name not in free and not (name == "epochs" and new > old):
            remedy = "leave it out, or give more" if name == "epochs" else "leave it out"
            raise InputError(f"{run}: cannot resume with {name} = {new}, the run has {old}; {remedy}")


def clear(folder: Path) -> None:
    """Remove the checkpoints of an earlier run: one that starts anew must not be resumed from them."""
    for path in valid(folder):
        (path / META).unlink()  # first, so that none is valid and half removed
    for path in folder.glob("epoch-*"):
        shutil.rmtree(path, ignore_errors=True)


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
        #: Epochs up to the last checkpoint.
        self._epochs = len(self.history)

    @classmethod
    def joined(cls, folder: str | Path, *, resume: bool, **fields: Any) -> Checkpointing:
        """That of another process of the run, which has to find the checkpoint to go on from itself."""
        saved = latest(Path(folder)) if resume else None
        if resume and saved is None:
            raise InputError(f"{folder}: no checkpoint here: the run folder must be one that all machines share")
        return cls(Path(folder), resume=saved, **fields)

    def for_others(self) -> dict[str, Any]:
        """The arguments of :meth:`joined` by which another process on this machine gets the same."""
        return {
            "folder": str(self.folder.resolve()), "settings": self.settings, "every": self.every,
            "resume": self.resume is not None, "data": self.data, "reasons": self.reasons,
        }  # fmt: skip

    def decided(self, config: ModelConfig) -> ModelConfig:
        """``config`` with what the data have chosen for the run that goes on."""
        return config if self.resume is None else dataclasses.replace(config, **self.resume.meta.chosen).resolved()

    def explained(self, reasons: Sequence[str]) -> tuple[str, ...]:
        """Why the run is as it is: what its checkpoint says, then those ``reasons`` that are new. Kept for the next."""
        self.reasons = tuple(dict.fromkeys([*(self.resume.meta.reasons if self.resume else ()), *reasons]))
        return self.reasons

    @property
    def history(self) -> list[Record]:
        """The records of the epochs up to the checkpoint to go on from."""
        return list(self.resume.history) if self.resume else []

    def due(self, epoch: int) -> bool:
        """Is a checkpoint to be written after this epoch of the run, the next in which all workers meet?"""
        return self.every is not None and epoch // self.every > self._epochs // self.every

    def write(
        self,
        team: Team,
        layers: Iterable[tuple[int, dict[str, Tensor]]],
        state: dict[str, Any],
        history: list[Record],
        pseudo_labels: dict[str, Tensor] | None = None,
    ) -> None:
        """Write the checkpoint after the last epoch of ``history``. Every worker brings its ``layers``.

        The first one also brings the ``pseudo_labels`` of a round. What the ``state`` does not say of a
        :class:`Description` is added, settings and history with it: whoever writes those to the run folder may have
        been killed.
        """
        path, shard, shards = self.folder / f"epoch-{len(history):08d}", team.rows.rank, team.rows.size
        for index, tensors in layers:
            own = {name: tensor for name, tensor in tensors.items() if not shard or name in ROW_BY_ROW}
            write_safely(_layer_files(path, index, shards)[shard], own)
        if pseudo_labels is not None:
            write_safely(path / PSEUDO_LABELS, pseudo_labels)
        team.barrier()
        if team.rank == 0:
            for file in itertools.chain(*(_layer_files(path, index, shards) for index in range(state["depth"]))):
                if not file.is_file():
                    raise InputError(f"{path}: has no {file.name}: --out must be a folder that all machines share")
            meta = Description(
                **state, shards=shards, settings=self.settings, data=self.data, reasons=self.reasons, history=history
            )
            write_atomically(path / META, msgspec.json.encode(meta))
            with writing(path, STILL_THERE):
                _fsync(path)
                _fsync(self.folder)
            for other in self.folder.glob("epoch-*"):
                if other != path:
                    shutil.rmtree(other, ignore_errors=True)
        self._epochs = len(history)
        team.barrier()


def write_tensors(path: Path, tensors: dict[str, Tensor], remedy: str = "") -> None:
    """Write a safetensors file, or raise as :func:`~pdadmm_g.utils.writing` does and leave none."""
    with writing(path, remedy):
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path))
        except SafetensorError as error:
            path.unlink(missing_ok=True)
            raise OSError(str(error)) from None


def write_safely(path: Path, tensors: dict[str, Tensor]) -> None:
    """On disk when this returns."""
    with writing(path, STILL_THERE):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, STILL_THERE)
        _fsync(path)


def _layer_files(folder: Path, index: int, shards: int) -> list[Path]:
    """The files of a layer, one for each part of the rows."""
    parts = [""] if shards == 1 else [f"-{shard}-of-{shards}" for shard in range(1, shards + 1)]
    return [folder / f"layer-{index + 1:03d}{part}.safetensors" for part in parts]


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
    tensors |= {name: inverse for name in INVERSES if (inverse := getattr(layer, name)) is not None}
    if before is not None:
        tensors["p"] = before.p
    if after is not None:
        tensors |= {"q": after.q, "u": worker.u(place)}
        if after.p_levels is not None:
            tensors["levels"] = after.p_levels.values
    return tensors | {"best_W": best.W, "best_b": best.b}


def restore(
    saved: Checkpoint, mine: range, rows: range, quantization: Quantization, like: Tensor
) -> tuple[list[Layer], list[Boundary | None], list[Weights]]:
    """The layers of ``mine``, the boundaries beside them and the best weights so far, whoever wrote them.

    ``rows`` are the numbers of the training rows that are wanted; tensors go to the device of ``like``.
    """
    if not mine:
        return [], [None], []
    depth = saved.meta.depth
    around = range(max(mine.start - 1, 0), min(mine.stop + 1, depth))
    tensors = {index: saved.layer(index, like, rows) for index in around}
    layers, best = [], []
    boundaries: list[Boundary | None] = []
    for index in mine:
        own = tensors[index]
        best.append(Weights.of(own["best_W"], own["best_b"], index, depth))
        W0 = best[-1].W0
        layers.append(Layer(own["W"], own["b"], W0, own["z"], own["r"], *(own.get(name) for name in INVERSES)))
    for place in range(mine.start, mine.stop + 1):
        if not 0 < place < depth:
            boundaries.append(None)
            continue
        left, p = tensors[place - 1], tensors[place]["p"]
        levels = Levels(left["levels"]) if quantization.p else None
        keeps = place in (mine.start, mine.stop) or quantization.q or keeps_u(p)
        u = left["u"] if keeps else None
        boundaries.append(Boundary(p, left["q"], u, p_levels=levels, q_levels=levels if quantization.q else None))
    return layers, boundaries, best
