"""A model file: a trained network, the settings that shaped it, and what was learned of its features."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from ..config import ModelConfig, settings_where, still_there
from ..data.augmentation import GraphAugment
from ..data.augmentation_choice import augmentation
from ..data.graph import are_names
from ..errors import InputError
from ..model import GAMLP
from ..status import Status
from ..utils import Count, decoded


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a model file says beside the network."""

    settings: dict[str, Any]
    graph: bool
    n_features_in: Count
    feature_names: list[str] | None = None
    classes: list[Any]
    status: str


class TrainedModel(NamedTuple):
    """What a model file holds."""

    model: GAMLP
    config: ModelConfig
    #: Fitted; None for a network that takes a matrix as it is.
    augmentation: GraphAugment | None
    #: The labels, in the order of the network's outputs; or what the columns of the targets are called.
    classes: NDArray[Any]
    #: Columns before augmentation.
    features: int
    #: Their names, where they have any.
    feature_names: NDArray[Any] | None
    status: Status


def save_model(path: str | Path, trained: TrainedModel) -> None:
    """Write the file. The same weights give the same file, byte for byte: who computed it and where is not in it."""
    config, augment = trained.config, trained.augmentation
    settings = {name: getattr(config, name) for name in settings_where(config, decides="model")}
    if callable(config.scoring):
        del settings["scoring"]  # a function has no place in a file, and has done its work
    names = None if trained.feature_names is None else trained.feature_names.tolist()
    about = About(
        settings=settings, graph=augment is not None, n_features_in=trained.features, feature_names=names,
        classes=trained.classes.tolist(), status=trained.status.name,
    )  # fmt: skip
    trained.model.save(path, msgspec.structs.asdict(about), augment.learned() if augment else None)


def load_model(path: str | Path) -> TrainedModel:
    """Read the file, which somebody else may have written."""
    model, extra, tensors = GAMLP.load(path)
    try:
        return _checked(model, decoded(About, extra), tensors)
    except KeyError as error:
        raise InputError(f"{path}: not a pdadmm-g model file: {error} is missing or unknown") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: not a pdadmm-g model file: {error}") from None


def _checked(model: GAMLP, about: About, tensors: dict[str, torch.Tensor]) -> TrainedModel:
    """What is described, if its parts fit each other."""
    # Files from before edges had directions do not say that they had none, nor older ones that they are of classes.
    before: dict[str, Any] = {"directed": "symmetric", "target": "classification"}
    config = ModelConfig(**before | still_there(about.settings))
    if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
        raise ValueError("its weights are not in single precision")
    classes = np.asarray(about.classes)
    if classes.ndim != 1 or len(set(about.classes)) != len(classes):
        raise ValueError("its classes are not a list of different labels")
    resolved = config.resolved()
    if "auto" in (resolved.augment, resolved.normalize, resolved.target):
        raise ValueError("it does not say which augmentation it was trained with")
    names = about.feature_names
    if names is not None and not are_names(names, about.n_features_in):
        raise ValueError("its feature_names are not a list of different names, one a column")
    augment, width = augmentation(resolved) if about.graph else None, about.n_features_in
    if augment is not None:
        augment.restore(tensors, width)
        width = augment.width(width)
    if model.activation != resolved.activation:
        raise ValueError("its activation is not that of its settings")
    if model.widths[0] != width or model.widths[-1] != len(classes):
        raise ValueError("its layers do not fit its description")
    return TrainedModel(
        model.eval(), config, augment, classes, about.n_features_in,
        None if names is None else np.array(names, dtype=object), Status[about.status],
    )  # fmt: skip
