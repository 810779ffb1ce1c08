"""Training: greedy growth from stage to stage, on one worker or on many.

Every worker runs this same program; the first one brings the data and gets the result.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..admm.activations import ACTIVATIONS
from ..admm.diagnostics import rho_bound
from ..admm.state import Weights
from ..config import ModelConfig
from ..data.examples import Examples
from ..engine import plan
from ..engine.plan import Plan
from ..engine.precision import tensor_cores
from ..engine.team import Team
from ..errors import InputError
from ..model import GAMLP
from ..status import Status
from . import checkpoint
from .checkpoint import Checkpointing
from .growth import initial_layer, redeal, widths
from .records import Record
from .stage import Sizes, Stage


@dataclass
class TrainingResult:
    """What :func:`train` returns: the model, how training went and how it ended."""

    model: GAMLP
    history: list[Record]
    status: Status
    #: The layers of each worker in the last stage.
    plan: Plan
    #: What went wrong, when and where; empty unless the status is a failure.
    message: str = ""
    #: Seconds spent in epochs, evaluation not counted.
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = sum(record["seconds"] for record in self.history)

    def uninterrupted(self) -> TrainingResult:
        """This result, or the interrupt that cut it off: what stopped early on request must not pass for a figure."""
        if self.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return self


def train(
    training: Examples | None,
    validation: Examples | None,
    num_classes: int,
    config: ModelConfig,
    *,
    seed: int,
    on_epoch: Callable[[Record], None] | None = None,
    team: Team | None = None,
    checkpointing: Checkpointing | None = None,
) -> TrainingResult | None:
    """Train a GA-MLP with pdADMM-G, or with pdADMM-G-Q when ``config`` quantizes.

    Each stage starts from the weights of the one before, deepened by identity layers, with all other variables from a
    forward pass. With a validation set and patience, the best weights of a stage are the ones that go on.

    On a team of several workers all call this; the first one brings the data and gets the result, the others pass
    None and get None.
    """
    config = config.resolved()
    team = team or Team()
    if team.rank == 0:
        _warn_condition(config)
    training, validation, basis = in_row_space(_aligned(training), _aligned(validation))
    sizes, like = _share_sizes(team, training, validation, num_classes, config.device)
    # The first worker may have chosen it by the data, which the others do not see.
    decay = team.broadcast(torch.tensor([config.weight_decay or 0.0], dtype=torch.float64), 0)
    config = dataclasses.replace(config, weight_decay=float(decay))
    assert config.stages is not None
    resume = checkpointing.resume if checkpointing else None
    history = checkpointing.history if checkpointing else []
    if checkpointing is not None and resume is None and team.rank == 0:
        checkpoint.clear(checkpointing.folder)
    if resume is not None and resume.meta["stage"] > len(config.stages):
        raise InputError(f"{resume.folder}: is of stage {resume.meta['stage']}, the run has {len(config.stages)}")
    status, message = Status.MAX_EPOCHS, ""
    dealt: Plan | None = None
    weights: list[Weights] = []
    for number, depth in enumerate(config.stages, start=1):
        if resume is not None and number < resume.meta["stage"]:
            continue
        shape = widths(sizes.features, config.hidden, sizes.classes, depth)
        new = deal_layers(sizes, shape, config, team.size)
        if resume is not None and dealt is None:
            weights = []  # the stage restores them
        elif dealt is None:
            weights = [initial_layer(i, shape, depth, seed=seed, like=like, basis=basis) for i in new.layers(team.rank)]
        else:
            weights = redeal(team, weights, dealt, new, shape, like=like)
        saved, dealt = (resume if dealt is None else None), new
        try:
            with tensor_cores(config.precision):
                stage = Stage(
                    number, new, team, weights, sizes, training, validation, config, like, checkpointing, resume=saved
                )
                status = stage.run(history, on_epoch)
                stage.close()
                message = stage.message
            weights = stage.best_weights()
        except KeyboardInterrupt:
            if not weights:
                raise
            status = Status.INTERRUPTED  # between two stages: the one before has the best model so far
        if status.is_failure or status is Status.INTERRUPTED:
            break
    assert dealt is not None
    shape = widths(sizes.features, config.hidden, sizes.classes, dealt.depth)
    everything = Plan((dealt.depth, *[0] * (team.size - 1)))
    weights = redeal(team, weights, dealt, everything, shape, like=like)
    if team.rank != 0:
        return None
    parameters = [(w.W, w.b) for w in weights]
    if basis is not None:
        parameters[0] = (weights[0].W @ basis.T, weights[0].b)
    model = GAMLP.from_parameters(parameters, config.activation)
    return TrainingResult(model, history, status, dealt, message)


def in_row_space(
    training: Examples | None, validation: Examples | None
) -> tuple[Examples | None, Examples | None, Tensor | None]:
    """Features as coordinates in an orthonormal basis of the training rows, where that is shorter; and the basis.

    With fewer nodes than features, W_1 enters training through its part in the row space of X only. Training in these
    coordinates takes the same steps at the cost of as many features as nodes; what W_1 has outside stays zero.
    """
    if training is None or len(training.X) >= training.X.shape[1]:
        return training, validation, None
    basis, R = torch.linalg.qr(training.X.T)
    if validation is not None:
        validation = validation._replace(X=validation.X @ basis)
    return training._replace(X=R.T.contiguous()), validation, basis


def _aligned(examples: Examples | None) -> Examples | None:
    """The same with features that start on a cache line, where a product gives the same bits in every process."""
    if examples is None or examples.X.data_ptr() % 64 == 0:
        return examples
    return examples._replace(X=examples.X.clone())


def deal_layers(sizes: Sizes, shape: list[int], config: ModelConfig, workers: int) -> Plan:
    """The user's plan in the last stage if there is one, else the best by the cost model."""
    depth = len(shape) - 1
    if config.plan is not None and depth == config.layers:
        return Plan(config.plan)
    return plan.deal(plan.layer_costs(sizes.nodes, shape, config.solver), workers)


def _share_sizes(
    team: Team, training: Examples | None, validation: Examples | None, num_classes: int, device: str
) -> tuple[Sizes, Tensor]:
    """The sizes, and an empty tensor of the type and on the device that everything is computed with."""
    numbers = torch.zeros(5, dtype=torch.int64)
    if training is not None:
        nodes, features = training.X.shape
        double = training.X.dtype == torch.float64
        numbers = torch.tensor([nodes, len(validation.y) if validation else 0, features, num_classes, double])
    *sizes, double = team.broadcast(numbers, 0).tolist()
    like = torch.empty(0, dtype=torch.float64 if double else torch.float32, device=torch.device(device))
    return Sizes(*sizes), like if training is None else training.X.new_empty(0)


def _warn_condition(config: ModelConfig) -> None:
    bound = rho_bound(config.nu, ACTIVATIONS[config.activation].lipschitz)
    if config.rho <= bound:
        warnings.warn(
            f"rho = {config.rho:g} is not above {bound:g}, where theory guarantees that the objective never rises",
            stacklevel=3,
        )
