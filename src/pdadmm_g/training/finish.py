r"""After training: which network was kept, training again on all labels, calibrated probabilities, the model file.

Calibration is one temperature for all logits, fitted on the validation rows (Guo et al., 2017),

.. math:: \min_{s > 0} \frac1n \sum_i \Bigl( \log \sum_c e^{s z_{ic}} - s z_{i y_i} \Bigr), \quad T = 1/s,

which is convex in s; a little of each row's weight is that of the other classes, so that few rows without a mistake do
not ask for certainty. The last layer is divided by T, so that whoever uses the network, wherever, has the
probabilities; the order of the classes stays. Of two classes, the logit of the second is shifted too (Platt, 1999).
"""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from ..config import FromZero, ModelConfig, Share, settings_where, still_there
from ..engine.team import Team
from ..errors import InputError
from ..graph.augmentation import GraphAugment
from ..graph.candidates import augmentation
from ..graph.columns import Column, feature_names
from ..graph.examples import Split, weightless, with_masks
from ..graph.graph import Graph, are_names
from ..graph.propagation import Directed, Mode, Normalization
from ..graph.targets import hard_labels, has_columns, labelled
from ..metrics import OUT_OF_FOLD, score, shown
from ..model import GAMLP
from ..status import Status
from ..utils import Count, decoded, read_record, write_atomically, writing
from .checkpoint import write_tensors
from .choose import LUCK, Evidence, Ready
from .fit import fit
from .prepare import Problem, prepare_graph
from .records import Record, judged
from .train import TrainingResult


def kept(result: TrainingResult, config: ModelConfig) -> str:
    """Which network was kept, a sentence: that of the best epoch on validation up to its depth, or the last one."""
    depth = len(result.model.linears)
    layers = f"kept: {depth} layer{'s' if depth > 1 else ''}"
    best = best_epoch(result.history, config, depth)
    if config.patience is None or best is None:
        return f"{layers}, the last epoch"
    return f"{layers}, epoch {best[1]} of {len(result.history)} (validation {shown(best[0])})"


def best_epoch(history: list[Record], config: ModelConfig, depth: int) -> tuple[float, int] | None:
    """The best validation score up to this depth, and its epoch; None where nothing validated."""
    assert config.stages is not None
    scored = [
        (score, -record["epoch"])
        for record in history
        if (score := judged(record)) and config.stages[record["stage"] - 1] <= depth
    ]
    if not scored:
        return None
    (best, _), epoch = max(scored)
    return best, -epoch


def delivered(
    problem: Problem, result: TrainingResult, reasons: tuple[str, ...]
) -> tuple[Problem, TrainingResult, tuple[str, ...]]:
    """The best model of all that there is, its problem, and the ``reasons`` as they are true of it."""
    ready, config = problem.ready, problem.config
    if ready is None:
        return problem, result, (*reasons, kept(result, config))
    best, layers = best_epoch(result.history, config, len(result.model.linears)), len(ready.model.linears)
    what = "a linear model" if layers == 1 else f"{layers} layers of a short run"
    what = what if ready.members == 1 else f"the mean of {ready.members} models"
    if config.patience is not None and best is not None and best[0] >= ready.bar:
        beaten = f"; {what} had {shown(ready.score)}, {LUCK}" if best[0] < ready.score else ""
        return problem, result, (*reasons, kept(result, config) + beaten)
    if ready.members > 1 and problem.validation is None:
        why = "each trained on all labels"
    elif ready.members > 1:
        why = "which no network is ahead of by more than a standard error"
    else:
        why = "which no network reached" if best is None else f"which training did not reach ({shown(best[0])})"
    reasons = (
        *(reason for reason in reasons if reason not in problem.evidence.about),
        *ready.evidence.about,
        f"kept: {what}, {why}",
    )
    if config.refit and problem.validation is not None:
        reasons += ("refit is left out: it trains what training gave",)
    problem = dataclasses.replace(
        problem, config=ready.config, augmentation=ready.augmentation, evidence=ready.evidence, validation=None,
        copies=None,
    )  # fmt: skip
    return problem, dataclasses.replace(result, model=ready.model), reasons


#: What was found while choosing, beside the checkpoints of a run: the model, tensors, and the rest.
FOUND, ASKED, ABOUT = "found.safetensors", "asked.safetensors", "chosen.json"


class Chosen(msgspec.Struct, frozen=True):
    """Sentences on the settings that were chosen, and on the best of what was tried; how optimistic figures are."""

    about: tuple[str, ...]
    optimism: dict[str, float]
    of_ready: tuple[str, ...] = ()
    ready_optimism: dict[str, float] = {}
    members: int = 1


def remember(folder: Path, problem: Problem, features: int) -> None:
    """Write what was found while choosing, for whoever goes on."""
    ready, own = problem.ready, problem.evidence
    chosen, tensors = Chosen(own.about, dict(own.optimism)), dict[str, Tensor]()
    if own.asked is not None:
        tensors["outputs"], tensors["targets"] = own.asked
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if ready is not None:
        found = ready.evidence
        chosen = Chosen(own.about, dict(own.optimism), found.about, dict(found.optimism), ready.members)
        assert found.asked is not None
        tensors["found"], tensors["known"] = found.asked
        tensors["score"] = torch.tensor([ready.score, ready.bar], dtype=torch.float64)
        trained = TrainedModel(ready.model, ready.config, ready.augmentation, problem.classes, features, None)
        save_model(folder / FOUND, trained)
    write_tensors(folder / ASKED, tensors)
    with writing(folder / ABOUT):
        write_atomically(folder / ABOUT, msgspec.json.encode(chosen))


def recalled(folder: Path, problem: Problem) -> Problem:
    """The problem with what was found while choosing, by whoever began."""
    if not (folder / ASKED).is_file():
        return problem
    chosen = read_record(Chosen, folder / ABOUT, "what was chosen")
    tensors, ready = load_file(str(folder / ASKED)), None
    if "found" in tensors:
        found = load_model(folder / FOUND)
        assert found.augmentation is not None
        config = dataclasses.replace(found.config, scoring=problem.config.scoring)
        own = Evidence(chosen.of_ready, (tensors["found"], tensors["known"]), chosen.ready_optimism)
        score, bar = tensors["score"].tolist()
        ready = Ready(config, found.augmentation, found.model, score, bar, chosen.members, own)
    asked = (tensors["outputs"], tensors["targets"]) if "outputs" in tensors else None
    return dataclasses.replace(problem, evidence=Evidence(chosen.about, asked, chosen.optimism), ready=ready)


@torch.no_grad()
def take_columns(model: GAMLP, augment: GraphAugment, places: list[int]) -> None:
    """Let a network and its augmentation, in place, take features of which these were the places in training."""
    W, first, taken = model.linears[0].get_parameter("weight"), 0, []
    for part in augment.parts:
        width = part.own_width(len(places))
        own = torch.arange(width)
        if part.basis is not None:
            part.basis = part.basis[places]
        else:
            own = (torch.arange(part.blocks)[:, None] * len(places) + torch.tensor(places)).view(-1)
            own = torch.cat([own, torch.arange(len(own), width)])
            if part.mean is not None and part.scale is not None:
                part.mean, part.scale = part.mean[own], part.scale[own]
        taken.append(first + own)
        first += width
    W.copy_(W[:, torch.cat(taken)])


# Training again on all labels


def refit(
    data: Graph, problem: Problem, result: TrainingResult, given: ModelConfig, *, seed: int, team: Team | None = None
) -> tuple[Problem, TrainingResult, str]:
    """The problem with its validation nodes among the training nodes, what comes of it, and a sentence on it.

    The settings are those that were chosen, where ``given`` left that open. The epochs are as many as led to the
    weights that were kept, dealt evenly to the stages up to their depth. The history stays that by which they were
    chosen.
    """
    before, _ = with_masks(data, given.but(validation=0.0), seed=seed)
    assert problem.nodes is not None
    data = copy.copy(before)
    data.train_mask = counted = (before.train_mask | problem.nodes.masks(data)[1]) & labelled(data)
    data.val_mask = torch.zeros_like(data.train_mask)
    if not has_columns(data):
        counted = counted & ~torch.isin(hard_labels(data), weightless(data, given))
    rows = int(counted.sum())
    config = _settings(problem.config, result)
    if given.weight_decay is None and config.weight_decay is not None:
        # The risk is a sum over rows: with more of them the same pull needs a larger weight.
        config = config.but(weight_decay=config.weight_decay * rows / sum(problem.line.counts(len(problem.training.y))))
    problem_of_all = prepare_graph(data, config, seed=seed, team=team)
    again = fit(problem_of_all, seed=seed, team=team).uninterrupted()
    if again.status.is_failure:
        why = f"training again on all labels failed ({again.status.name}): the model is the one before"
        return problem, result, why
    number = f"{config.rounds} rounds" if config.unlabelled else f"{config.epochs} epochs a stage"
    earlier = "those that validated are among them, and the validation score is the one from before"
    why = f"trained again on all {rows} labels, {number}: {earlier}"
    again.history, again.seconds = result.history, result.seconds + again.seconds
    shown_as = dataclasses.replace(problem.config, weight_decay=config.weight_decay)
    return dataclasses.replace(problem_of_all, config=shown_as), again, why


def _settings(config: ModelConfig, result: TrainingResult) -> ModelConfig:
    """What was chosen, for training to a fixed end."""
    depth = len(result.model.linears)
    assert config.stages is not None
    stages = (*(before for before in config.stages if before < depth), depth)
    fixed: dict[str, Any] = {
        "patience": None, "validation": 0.0, "refit": False, "split": None, "layers": depth,
        "stages": (depth,) if config.unlabelled else stages, "plan": config.plan if depth == config.layers else None,
    }  # fmt: skip
    # What was tried at depths that gained nothing did not lead there.
    numbers = sorted({record["stage"] for record in result.history if record["stage"] <= len(stages)})
    kept = [_best([record for record in result.history if record["stage"] == number]) for number in numbers]
    if config.unlabelled:
        fixed["rounds"] = max(1, *(record["round"] for record, _ in kept))
    else:
        fixed["epochs"] = math.ceil(sum(epochs for _, epochs in kept) / len(kept))
    return config.but(**fixed)


def _best(records: list[Record]) -> tuple[Record, int]:
    """The epoch of a stage with the best validation, as it was kept, and how many epochs there were up to it."""
    scored = [(own, -place) for place, record in enumerate(records, start=1) if (own := judged(record)) is not None]
    place = -max(scored)[1] if scored else len(records)
    return records[place - 1], place


# Calibration

#: T is between the inverse and this; without a bound, rows that are all right would ask for certainty.
LARGEST_TEMPERATURE = 20.0
#: Scores for which another threshold than one half may be best, and so many that are tried.
THRESHOLDED, THRESHOLDS = ("balanced_accuracy", "f1_macro"), 200


class Calibration(NamedTuple):
    """What the logits of a network are multiplied by, and what is added to the second one of two classes."""

    scale: float = 1.0
    shift: float = 0.0

    def of(self, logits: Tensor) -> Tensor:
        """The calibrated logits."""
        shifts = torch.zeros_like(logits[:1])
        shifts[:, -1] = self.shift
        return self.scale * logits + shifts

    def outputs(self, probabilities: Tensor) -> Tensor:
        """The calibrated probabilities."""
        return torch.softmax(self.of(probabilities.clamp(1e-12).log()), dim=1)

    @torch.no_grad()
    def apply(self, model: GAMLP) -> None:
        """Calibrate the logits of a network, which changes in place."""
        W, b = model.linears[-1].parameters()
        W.mul_(self.scale)
        b.copy_(self.of(b[None].double())[0])


@torch.no_grad()
def calibration(model: GAMLP, problem: Problem) -> tuple[Calibration, str]:
    """The best one for a network, by nodes that it did not train on; and a sentence."""
    if problem.evidence.asked is not None:
        P, y = problem.evidence.asked
        logits = P.double().clamp(1e-12).log()
    else:
        logits, y = problem.logits(model)
        logits = logits.double()
    crossed, two = problem.nodes is not None and not len(problem.nodes.val), logits.shape[1] == 2
    where = OUT_OF_FOLD if crossed else "of the validation nodes"
    found = platt(logits, y) if two else Calibration(inverse_temperature(logits, y))
    before, after = (float(torch.nn.functional.cross_entropy(own, y)) for own in (logits, found.of(logits)))
    name = problem.classes[-1]
    shift = f" and {found.shift:+.2f} for {name!s}" if two else ""
    why = f"probabilities: temperature {1 / found.scale:.3g}{shift}, log loss {where} {after:.3f}, {before:.3f} without"
    scoring = problem.config.scoring
    if two and scoring in THRESHOLDED:
        assert isinstance(scoring, str)
        threshold = best_threshold(torch.softmax(found.of(logits), 1)[:, 1], y, scoring)
        found = found._replace(shift=found.shift - math.log(threshold / (1 - threshold)))
        why += f"; one half stands for {threshold:.3g}, where {scoring} is best"
    return found, why


def platt(logits: Tensor, y: Tensor) -> Calibration:
    """Temperature and shift of two classes with the smallest log loss; a small penalty on the shift of few rows."""
    from scipy.optimize import minimize

    gap, doubt = (logits[:, 1] - logits[:, 0]).cpu(), 1 / (len(y) + 2)
    t = (1 - doubt) * y.cpu().double() + doubt / 2

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale, shift = parameters.tolist()
        z = scale * gap + shift
        wrong = torch.sigmoid(z) - t
        value = float((torch.nn.functional.softplus(z) - t * z).mean()) + shift**2 / (2 * len(y))
        return value, np.array([float((wrong * gap).mean()), float(wrong.mean()) + shift / len(y)])

    bounds = [(1 / LARGEST_TEMPERATURE, LARGEST_TEMPERATURE), (None, None)]
    start = np.array([inverse_temperature(logits, y), 0.0])
    scale, shift = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x.tolist()
    return Calibration(scale, shift)


def best_threshold(p: Tensor, y: Tensor, scoring: str) -> float:
    """The probability of the second class from which on it is best to name it; of equal ones that in the middle."""
    p, y = p.cpu(), y.cpu()
    some = torch.quantile(p, torch.linspace(0, 1, THRESHOLDS + 1, dtype=p.dtype)).unique()
    between = ((some[1:] + some[:-1]) / 2).clamp(1e-3, 1 - 1e-3).tolist() or [0.5]
    scores = [score(scoring, y.numpy(), np.eye(2)[(p > each).long().numpy()]) or 0.0 for each in between]
    best = [each for each, own in zip(between, scores, strict=True) if own == max(scores)]
    return float(best[len(best) // 2])


def inverse_temperature(logits: Tensor, y: Tensor) -> float:
    """The s at which the derivative of the objective is zero, found by halving: it rises with s."""
    doubt = 1 / (len(y) + 2)  # after Platt (1999)
    own = ((1 - doubt) * logits.gather(1, y[:, None])[:, 0] + doubt * logits.mean(1)).mean()
    low, high = 1 / LARGEST_TEMPERATURE, LARGEST_TEMPERATURE
    for _ in range(60):
        s = (low + high) / 2
        rises = bool((torch.softmax(s * logits, dim=1) * logits).sum(1).mean() > own)
        low, high = (low, s) if rises else (s, high)
    return (low + high) / 2


# The model file


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an augmentation."""

    mode: Mode
    hops: Count
    teleport: Share
    row_normalize: bool
    normalize: Normalization
    components: Count | None
    directed: Directed
    label_hops: FromZero

    @classmethod
    def of(cls, augment: GraphAugment) -> Features:
        """Those of an augmentation, but for its others."""
        return cls(**{name: getattr(augment, name) for name in cls.__struct_fields__})


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a model file says beside the network."""

    settings: dict[str, Any]
    graph: bool
    n_features_in: Count
    feature_names: list[str] | None = None
    classes: list[Any]
    status: str
    #: The keys of the nodes that trained and validated; without them nobody knows.
    nodes: tuple[list[int], list[int]] | None = None
    columns: list[Column] | None = None
    #: Of a mean of models, the settings of the features of all but the first.
    others: list[Features] = []


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
    status: Status = Status.MAX_EPOCHS
    #: Which nodes trained and validated; None for a matrix.
    nodes: Split | None = None
    #: What was learned of the columns of a table.
    columns: tuple[Column, ...] | None = None


#: The header of a model file has no place for the keys of more nodes.
MOST_NODES = 2_000_000


def save_model(path: str | Path, trained: TrainedModel) -> None:
    """Write the file. The same weights give the same file, byte for byte: who computed it and where is not in it."""
    config, augment, names = trained.config, trained.augmentation, trained.feature_names
    nodes = None if trained.nodes is None or sum(map(len, trained.nodes)) > MOST_NODES else trained.nodes
    settings = {name: getattr(config, name) for name in settings_where(config, decides="model")}
    if callable(config.scoring):
        del settings["scoring"]  # a function has no place in a file, and has done its work
    if config.columns is None:
        del settings["columns"]
    about = {
        "settings": settings, "graph": augment is not None, "n_features_in": trained.features,
        "feature_names": None if names is None else names.tolist(), "classes": trained.classes.tolist(),
        "status": trained.status.name, "nodes": None if nodes is None else (nodes.train.tolist(), nodes.val.tolist()),
    }  # fmt: skip
    learned = {} if trained.columns is None else {"columns": msgspec.to_builtins(trained.columns)}
    if augment is not None and augment.others:
        learned["others"] = msgspec.to_builtins([Features.of(other) for other in augment.others])
    trained.model.save(path, about | learned, augment.learned() if augment else None)


def load_model(path: str | Path) -> TrainedModel:
    """Read the file, which somebody else may have written: its parts must fit each other."""
    model, extra, tensors = GAMLP.load(path)
    try:
        about = decoded(About, extra)
        width, names, classes = about.n_features_in, about.feature_names, np.asarray(about.classes)
        config = ModelConfig(**still_there(about.settings))
        config = config.resolved(config.target, classes=len(classes))
        if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
            raise ValueError("its weights are not in single precision")
        if classes.ndim != 1 or len(set(about.classes)) != len(classes):
            raise ValueError("its classes are not a list of different labels")
        if "auto" in (config.augment, config.normalize, config.target):
            raise ValueError("it does not say which augmentation it was trained with")
        if names is not None and not are_names(names, width):
            raise ValueError("its feature_names are not a list of different names, one a column")
        if about.columns and list(feature_names(about.columns)) != (names or []):
            raise ValueError("its columns are not those of its feature_names")
        augment = augmentation(config.resolved()) if about.graph else None
        if augment is not None:
            augment.others = tuple(GraphAugment(**msgspec.structs.asdict(other)) for other in about.others)
            augment.restore(tensors, width)
            width = augment.width(width)
        if model.activation != config.activation:
            raise ValueError("its activation is not that of its settings")
        if model.widths[0] != width or model.widths[-1] != len(classes):
            raise ValueError("its layers do not fit its description")
        known = None if names is None else np.array(names, dtype=object)
        status = Status[about.status]
        nodes = None if about.nodes is None else Split(*(np.array(own, dtype=np.int64) for own in about.nodes))
    except KeyError as error:
        raise InputError(f"{path}: not a pdadmm-g model file: {error} is missing or unknown") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: not a pdadmm-g model file: {error}") from None
    columns = None if about.columns is None else tuple(about.columns)
    about_rows = (about.n_features_in, known, status, nodes, columns)
    return TrainedModel(model.eval(), config, augment, classes, *about_rows)
