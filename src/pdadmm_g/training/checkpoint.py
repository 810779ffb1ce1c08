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
from .records import Record, as_line

#: Of the files; those of another version of the package, 0.2.0 among them, are refused.
FORMAT = 3
META, HISTORY, PSEUDO_LABELS = "meta.json", "history.jsonl", "pseudo-labels.safetensors"
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

    format: int
    total_epochs: Count
    history_bytes: Count
    #: Those of the run, as far as it has a configuration.
    settings: dict[str, Any]
    #: Digest of the data.
    data: str
    #: What was chosen by the data and why, a sentence each.
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A valid checkpoint: its folder, its description and the records of the epochs before it."""

    folder: Path
    meta: Description
    history: list[Record]
    #: The settings of the run, as they were given, and with what was chosen.
    given: RunConfig
    chosen: RunConfig

    def pseudo_labels(self, like: Tensor) -> dict[str, Tensor]:
        """The tensors of the round that it was written in, on the device of ``like``."""
        path = self.folder / PSEUDO_LABELS
        with _reading(path):
            return {name: tensor.clone() for name, tensor in load_file(str(path), device=str(like.device)).items()}

    def layer(self, index: int, like: Tensor, rows: range) -> dict[str, Tensor]:
        """The tensors of a layer, counted from 0, on the device of ``like``; these ``rows`` of those that have rows."""
        parts: dict[str, list[Tensor]] = {}
        first = 0
        for shard in range(self.meta.shards):
            path, number = self.folder / _layer_file(index, shard, self.meta.shards), 0
            with _reading(path), safe_open(str(path), "pt", device=str(like.device)) as file:
                for name in file.keys():  # noqa: SIM118  (it is not a dict)
                    part = file.get_slice(name)
                    if name not in ROW_BY_ROW:
                        parts[name] = [part[:]]
                        continue
                    number = part.get_shape()[0]
                    own = range(number)[max(rows.start - first, 0) : max(rows.stop - first, 0)]
                    parts.setdefault(name, []).append(part[own.start : own.stop])
            first += number
        # Copies start on a cache line, as fresh tensors do; products of others may differ in their last bits.
        return {name: torch.cat(found) for name, found in parts.items()}


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


def latest(folder: Path) -> Checkpoint | None:
    """The newest valid checkpoint, if there is one."""
    found = valid(folder)
    if not found:
        return None
    path = found[0] / META
    if read_record(dict[str, Any], path, "the checkpoint", f"; {REMEDY}").get("format") != FORMAT:
        raise InputError(f"{path}: was written by another version of pdadmm-g: {REMEDY}, or finish it with that one")
    meta = read_record(Description, path, "the checkpoint", f"; {REMEDY}")
    with _reading(path):
        given, chosen = (RunConfig(**settings) for settings in (meta.settings, meta.settings | meta.chosen))
    path = folder / HISTORY
    with _reading(path):
        # Behind the records that belong to the checkpoint there may be those of a later attempt.
        with path.open("rb") as file:
            history = [msgspec.json.decode(line) for line in file.read(meta.history_bytes).splitlines()]
        if len(history) != meta.total_epochs:
            raise ValueError(f"it holds the history of {len(history)} epochs, not of {meta.total_epochs}")
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
    def joined(cls, folder: str | Path, *, resume: bool, **fields: Any) -> Checkpointing:
        """That of another process of the run, which has to find the checkpoint to go on from itself."""
        saved = latest(Path(folder)) if resume else None
        if resume and saved is None:
            raise InputError(f"{folder}: no checkpoint here: the run folder must be one that all machines share")
        return cls(Path(folder), resume=saved, **fields)

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

    def due(self, epoch: int) -> bool:
        """Is a checkpoint to be written after this epoch of the run, the next in which all workers meet?"""
        return self.every is not None and epoch // self.every > self._epochs // self.every

    def write(
        self,
        team: Team,
        layers: Iterable[tuple[int, dict[str, Tensor]]],
        state: dict[str, Any],
        history: Sequence[Record],
        pseudo_labels: dict[str, Tensor] | None = None,
    ) -> None:
        """Write the checkpoint after the last epoch of ``history``. Every worker brings its ``layers``.

        The first one also brings the ``pseudo_labels`` of a round. What the ``state`` does not say of a
        :class:`Description` is added, settings and history with it: whoever writes those to the run folder may have
        been killed.
        """
        path, shard = self.folder / f"epoch-{len(history):08d}", team.rows.rank
        for index, tensors in layers:
            own = {name: tensor for name, tensor in tensors.items() if not shard or name in ROW_BY_ROW}
            write_safely(path / _layer_file(index, shard, state["shards"]), own)
        if pseudo_labels is not None:
            write_safely(path / PSEUDO_LABELS, pseudo_labels)
        team.barrier()
        if team.rank == 0:
            for index, shard in itertools.product(range(state["depth"]), range(state["shards"])):
                name = _layer_file(index, shard, state["shards"])
                if not (path / name).is_file():
                    raise InputError(f"{path}: has no {name}: --out must be a folder that all machines share")
            with writing(path, STILL_THERE):
                self._commit(path, state, history)
            for other in self.folder.glob("epoch-*"):
                if other != path:
                    shutil.rmtree(other, ignore_errors=True)
        self._epochs = len(history)
        team.barrier()

    def _commit(self, path: Path, state: dict[str, Any], history: Sequence[Record]) -> None:
        """Append what is new to the history, then make the checkpoint valid."""
        lines = "".join(as_line(record) for record in history[self._epochs :]).encode()
        with (self.folder / HISTORY).open("r+b" if self._bytes else "wb") as file:
            file.truncate(self._bytes)  # an attempt may have left something that was killed before it could commit
            file.seek(self._bytes)
            file.write(lines)
        _fsync(self.folder / HISTORY)
        self._bytes += len(lines)
        meta = Description(
            **state, format=FORMAT, total_epochs=len(history), history_bytes=self._bytes,
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


def write_safely(path: Path, tensors: dict[str, Tensor]) -> None:
    """On disk when this returns."""
    with writing(path, STILL_THERE):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, STILL_THERE)
        _fsync(path)


def _layer_file(index: int, shard: int, shards: int) -> str:
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
    for index in mine:
        own = tensors[index]
        W0 = anchor(own["W"], index, depth)
        kept = {name: own.get(name) for name in INVERSES}
        layers.append(Layer(own["W"], own["b"], W0, z=own["z"], r=own["r"], **kept))
        best.append(Weights(own["best_W"], own["best_b"], W0))
    boundaries: list[Boundary | None] = []
    for place in range(mine.start, mine.stop + 1):
        if not 0 < place < depth:
            boundaries.append(None)
            continue
        left = tensors[place - 1]
        levels = Levels(left["levels"]) if quantization.p else None
        q_levels = levels if quantization.q else None
        keeps = place in (mine.start, mine.stop) or q_levels is not None or keeps_u(left["q"])
        u = left["u"] if keeps else None
        boundaries.append(Boundary(tensors[place]["p"], left["q"], u, p_levels=levels, q_levels=q_levels))
    return layers, boundaries, best
