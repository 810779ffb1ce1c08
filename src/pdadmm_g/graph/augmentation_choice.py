"""Which augmentation, where that is left to the data: what suits a linear model best on the validation nodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..config import ModelConfig
from ..metrics import Scorer, score, shown
from ..utils import task
from .augmentation import GraphAugment, Source, candidate_features
from .examples import at_most
from .facts import are_directed, join_unlike
from .graph import Graph
from .propagation import Directed, Mode, Normalization
from .targets import hard_labels, has_columns, target_of

#: Taken where there is no validation node.
DEFAULT_HOPS = 8
DEFAULT_TELEPORT = 0.05
#: Averages over so many powers of the graph are tried, and hop blocks, and the features alone.
HOPS = (2, 4, 8, 16)
NORMALIZATIONS: tuple[Normalization, ...] = ("unit", "centered")
OF_COLUMNS: tuple[Normalization, ...] = (*NORMALIZATIONS, "standard")
#: More nodes of a kind than this are not looked at.
MOST_NODES = 1000
#: Of features with more entries than this so many principal directions are taken, where the augmentation is left to
#: the data: all of them would take long, and are hardly better.
MOST_ENTRIES, COMPONENTS = 20_000_000, 256


class Choice(NamedTuple):
    """What was decided and why; what is propagated, and its principal directions, where they are known."""

    config: ModelConfig
    source: Source | None = None
    basis: Tensor | None = None
    reasons: tuple[str, ...] = ()


def augmentation(config: ModelConfig, basis: Tensor | None = None) -> GraphAugment:
    """The augmentation that ``config`` describes, once it is chosen, perhaps with principal directions learned."""
    assert config.augment != "auto"
    assert config.normalize != "auto"
    assert config.hops is not None
    augment = GraphAugment(
        config.augment,
        config.hops,
        teleport=DEFAULT_TELEPORT if config.teleport is None else config.teleport,
        row_normalize=config.row_normalize,
        normalize=config.normalize,
        components=config.components,
        directed="symmetric" if config.directed == "auto" else config.directed,
    )
    augment.basis = basis
    return augment


def choose_augmentation(
    data: Graph, training: Tensor, validation: Tensor | None, config: ModelConfig, weights: Tensor | None = None
) -> Choice:
    """``config`` with augment, hops, normalize and directed filled in: the best by score of logistic regression.

    Of equally good ones, the one with the lower log loss is taken. ``weights`` are of the training nodes;
    nodes with probabilities count as of their most probable class. Where the augmentation is left to the data and
    there are many features, their principal directions are taken.
    """
    if config.teleport is None:
        config = dataclasses.replace(config, teleport=DEFAULT_TELEPORT)
    if config.augment == "auto" and (data.edge_index is None or data.edge_index.numel() == 0):
        config = dataclasses.replace(config, augment="none", hops=1)
    further: list[Directed] = []
    if config.directed == "auto":
        config = dataclasses.replace(config, directed="symmetric")
        further = ["both"] if not config.unlabelled and config.augment != "none" and are_directed(data) else []
    if "auto" not in (config.augment, config.normalize) and not further:
        return Choice(config)
    labels, target = data.y if has_columns(data) else hard_labels(data), target_of(data)
    scoring = config.resolved(target).scoring
    if validation is None or len(labels[training].unique()) == 1:
        augment = "average" if config.augment == "auto" else config.augment
        normalize = "centered" if config.normalize == "auto" else config.normalize
        config = dataclasses.replace(config, augment=augment, hops=config.hops or DEFAULT_HOPS, normalize=normalize)
        return Choice(config, reasons=(f"features: {described(config)}, the default without validation nodes",))
    if config.augment == "auto" and config.components is None and data.x.numel() > MOST_ENTRIES:
        config = dataclasses.replace(config, components=COMPONENTS)
    assert config.teleport is not None
    like = augmentation(dataclasses.replace(config, augment="hops", hops=1, normalize="none"))
    parts = [at_most(MOST_NODES, training), at_most(MOST_NODES, validation)]
    weights = None if weights is None else at_most(MOST_NODES, weights)
    # Rows of a bag of words have a length; of columns of a table each counts by itself.
    usual = NORMALIZATIONS if data.get("columns") is None else OF_COLUMNS
    nodes, kinds = torch.cat(parts), usual if config.normalize == "auto" else (config.normalize,)
    candidates = _candidates(data, nodes, config, further)
    found: list[tuple[tuple[float, float], ModelConfig]] = []
    with task("choosing features", len(candidates) * len(kinds)) as step:
        source = like.source(data) if config.components is not None else None
        for candidate, rows in zip(candidates, _rows(data, nodes, candidates, like, source), strict=True):
            for normalize in kinds:
                candidate = dataclasses.replace(candidate, normalize=normalize)
                X = augmentation(candidate, like.basis).fit_rows(rows)
                own = linear_score(X, [labels[part] for part in parts], weights, scoring, target)
                found.append((own, candidate))
                step()
    (best, _), choice = max(found, key=lambda entry: entry[0])
    others = [each[0] for each, candidate in found if candidate is not choice]
    next_best = f", next best {shown(max(others))}" if others else ""
    reason = f"features: {described(choice)} (validation {shown(best)} of a linear model{next_best})"
    # What is propagated goes with the adjacency of one direction and mode.
    same = choice.directed == config.directed and choice.augment != "apart"
    return Choice(choice, source if same else None, like.basis, (reason,))


def described(config: ModelConfig) -> str:
    """The features that these settings make, in words."""
    normalized = {"none": "as they are", "unit": "unit length", "centered": "centred", "standard": "standardized"}[
        config.normalize
    ]
    if config.augment == "none":
        return f"own features, {normalized}"
    kind = {
        "hops": f"{config.hops} hop blocks",
        "apart": f"own features and {config.hops} hops without them",
        "power": f"power {config.hops} of the graph",
        "average": f"average of {config.hops} hops, own share {config.teleport or 0:g}",
    }[config.augment]
    ways = {"out": ", along edges", "in": ", against edges", "both": ", each way by itself"}.get(config.directed, "")
    return f"{kind}{ways}, {normalized}"


def _candidates(data: Graph, nodes: Tensor, config: ModelConfig, further: Sequence[Directed]) -> list[ModelConfig]:
    """The augmentations to choose from, before they are normalised.

    Those that :func:`candidate_features` makes of one matrix come first. ``further`` directions are tried beside that
    of ``config``.
    """
    directions: list[Directed] = [config.directed if config.directed != "auto" else "symmetric", *further]
    if config.augment != "auto":
        return [dataclasses.replace(config, directed=way) for way in directions]
    averages: list[tuple[Mode, int]] = [("average", k) for k in ((config.hops,) if config.hops else HOPS)]
    tried: list[tuple[Mode, int, Directed]] = []
    if directions[0] != "both":
        tried = [(mode, hops, directions[0]) for mode, hops in [("none", 1), *averages, ("hops", 4)]]
    if "both" in directions:
        tried += [(mode, hops, "both") for mode, hops in [("hops", config.hops or 4), *averages]]
    if join_unlike(data, nodes) is not None:
        tried += [("apart", config.hops or 3, way) for way in directions]
    return [dataclasses.replace(config, augment=mode, hops=hops, directed=way) for mode, hops, way in tried]


def _rows(
    data: Graph, nodes: Tensor, candidates: Sequence[ModelConfig], like: GraphAugment, source: Source | None
) -> Iterator[Tensor]:
    """The rows of ``nodes`` under each candidate, before they are normalised."""
    shared = 0
    if candidates[0].augment == "none" and len(candidates) > 1:
        averages = [each.hops or 1 for each in candidates if each.augment == "average" and each.directed != "both"]
        for _, _, rows in candidate_features(data, nodes, averages, like, source):
            shared += 1
            yield rows
    for candidate in candidates[shared:]:
        yield augmentation(dataclasses.replace(candidate, normalize="none"), like.basis).propagated(data, nodes)


# -------------------------------------------------------------------------------------------------------- linear models


#: Weight decays, per training node.
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)


class Model(NamedTuple):
    """A generalized linear model."""

    #: Outputs by logits, and the logits of mean targets.
    outputs: Callable[[Tensor], Tensor]
    logits: Callable[[Tensor], Tensor]
    #: The least bound of the second derivative of a row's risk.
    curvature: float
    #: Newton steps; one is exact for squares.
    steps: int
    #: The risk of logits, with the targets of the validation rows.
    risk: Callable[[Tensor, Tensor], Tensor]


MODELS = {
    "classification": Model(lambda z: torch.softmax(z, -1), torch.log, 0.5, 50, F.cross_entropy),
    "multilabel": Model(
        torch.sigmoid, lambda p: p.clamp(1e-3, 1 - 1e-3).logit(), 0.25, 50, F.binary_cross_entropy_with_logits
    ),
    "regression": Model(lambda z: z, torch.zeros_like, 1.0, 1, F.mse_loss),
}


def linear_score(
    X: Tensor,
    targets: list[Tensor],
    weights: Tensor | None = None,
    scoring: str | Scorer = "accuracy",
    target: str = "classification",
) -> tuple[float, float]:
    r"""Validation score and minus the mean risk of the best of a few linear models, ``X`` being all rows.

    .. math:: \min_{B, b} \sum_i w_i \, R(x_i B + b; t_i) + \tfrac{\lambda}{2} \sum_i w_i \|B\|^2

    by Newton steps with the one Hessian that bounds all others, :math:`c X^T \mathrm{diag}(w) X + \lambda I` (Böhning
    1992): it is factored once, and no step goes up. ``targets`` are those of the training and of the validation rows.
    """
    model = MODELS[target]
    training, validation = X.cpu().double().split([len(part) for part in targets])
    t, t_validation = targets
    w = torch.ones(len(t), 1, dtype=torch.float64) if weights is None else weights.cpu().double()[:, None]
    if target == "classification":
        classes, y = t.unique(return_inverse=True)
        known = t_validation[:, None] == classes
        t = torch.eye(len(classes), dtype=torch.float64)[y]
        t_validation = torch.where(known.any(1), known.int().argmax(1), -1)
        met = t_validation >= 0
    else:
        if target == "regression":  # mean 0 and deviation 1 over the training rows, so that all columns count alike
            mean = (w * t).sum(0) / w.sum()
            deviation = ((w * (t - mean).square()).sum(0) / w.sum()).sqrt()
            t, t_validation = ((each - mean) / deviation.where(deviation > 0, 1.0) for each in targets)
        met = torch.ones(len(t_validation), dtype=torch.bool)
    mean = (w * training).sum(0) / w.sum()
    training, validation = training - mean, validation - mean
    # B lies in the span of the training rows: an orthogonal basis of it makes the problem small, exactly.
    if len(training) < training.shape[1]:
        basis, coordinates = torch.linalg.qr(training.T)
        training, validation = coordinates.T.contiguous(), validation @ basis
    gram = model.curvature * (training.T @ (w * training) / w.sum())
    # All ridges at once: a block of columns of B each.
    ridges = torch.tensor(RIDGES, dtype=torch.float64)
    inverses = torch.cholesky_inverse(
        torch.linalg.cholesky(gram + ridges[:, None, None] * torch.eye(len(gram), dtype=torch.float64))
    )
    number, shape = len(gram), (-1, len(RIDGES), t.shape[1])
    B, b = training.new_zeros(number, len(RIDGES) * t.shape[1]), model.logits((w * t).sum(0) / w.sum())
    share = (w / w.sum())[:, None]
    for _ in range(model.steps):
        gap = share * (t[:, None] - model.outputs((training @ B).view(shape) + b))
        gradient = (training.T @ gap.flatten(1)).view(shape) - ridges[:, None] * B.view(shape)
        B = B + (inverses @ gradient.transpose(0, 1)).transpose(0, 1).reshape(number, -1)
        b = b + gap.sum(0) / model.curvature
    best = (-math.inf, -math.inf)
    for logits in ((validation @ B).view(shape) + b).unbind(1):
        found = score(scoring, t_validation.numpy(), model.outputs(logits).numpy(), target)
        risk = float(model.risk(logits[met], t_validation[met])) if bool(met.any()) else math.inf
        best = max(best, (-math.inf if found is None else found, -risk))
    return best
