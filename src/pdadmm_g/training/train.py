"""Training: greedy growth from stage to stage, on one worker or on many.

Every worker runs this same program; the first one brings the data and gets the result.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..admm.activations import ACTIVATIONS
from ..admm.diagnostics import rho_bound
from ..admm.state import Weights
from ..config import ModelConfig
from ..data.examples import Examples, aligned, simplified
from ..engine.plan import Plan, deal, layer_costs
from ..engine.precision import tensor_cores
from ..engine.team import Team
from ..model import GAMLP
from ..status import Status
from .checkpoint import Checkpointing
from .growth import initial_layer, redeal, widths
from .member import Member, Sizes, share_outline
from .records import Record
from .stage import Stage


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
    assert team.rows.size == 1, "all rows are in one place"
    if team.rank == 0:
        _warn_condition(config)
    training, validation, basis = in_row_space(simplified(aligned(training)), simplified(aligned(validation)))
    outline = share_outline(team.chain, training, validation, num_classes, config.device)
    # The first worker may have chosen it by the data, which the others do not see.
    decay = team.broadcast(torch.tensor([config.weight_decay or 0.0], dtype=torch.float64), 0)
    config = dataclasses.replace(config, weight_decay=float(decay))
    member = Member(team, config, outline, training, validation, checkpointing)
    history = checkpointing.history if checkpointing else []
    grown = _grow(member, seed, basis, history, on_epoch)
    shape = widths(outline.sizes.features, config.hidden, outline.sizes.classes, grown.plan.depth)
    everything = Plan((grown.plan.depth, *[0] * (team.chain.size - 1)))
    weights = redeal(team.chain, grown.weights, grown.plan, everything, shape, like=outline.like)
    if team.rank != 0:
        return None
    parameters = [(w.W, w.b) for w in weights]
    if basis is not None:
        parameters[0] = (weights[0].W @ basis.T, weights[0].b)
    model = GAMLP.from_parameters(parameters, config.activation)
    return TrainingResult(model, history, grown.status, grown.plan, grown.message)


class _Grown(NamedTuple):
    """A worker's layers after the last stage, and how that one ended."""

    weights: list[Weights]
    plan: Plan
    status: Status
    message: str


def _grow(
    member: Member, seed: int, basis: Tensor | None, history: list[Record], on_epoch: Callable[[Record], None] | None
) -> _Grown:
    """Go through the stages, from the first one or from that of the checkpoint."""
    config, sizes, like, chain = member.config, member.outline.sizes, member.outline.like, member.team.chain
    assert config.stages is not None
    checkpointing = member.checkpointing
    saved = checkpointing.begin(config.stages, first=member.team.rank == 0) if checkpointing else None
    status, message = Status.MAX_EPOCHS, ""
    plan: Plan | None = None
    weights: list[Weights] = []
    for number, depth in list(enumerate(config.stages, start=1))[saved.meta.stage - 1 if saved else 0 :]:
        shape = widths(sizes.features, config.hidden, sizes.classes, depth)
        before, plan = plan, deal_layers(sizes, shape, config, chain.size)
        if before is not None:
            weights = redeal(chain, weights, before, plan, shape, like=like)
        elif saved is None:
            mine = plan.layers(chain.rank)
            weights = [initial_layer(i, shape, depth, seed=seed, like=like, basis=basis) for i in mine]
        try:
            with tensor_cores(config.precision):
                if before is None and saved is not None:
                    stage = Stage.resumed(member, number, plan, saved)
                else:
                    stage = Stage.fresh(member, number, plan, weights)
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
    assert plan is not None
    return _Grown(weights, plan, status, message)


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


def deal_layers(sizes: Sizes, shape: list[int], config: ModelConfig, workers: int) -> Plan:
    """The user's plan in the last stage if there is one, else the best by the cost model."""
    depth = len(shape) - 1
    if config.plan is not None and depth == config.layers:
        return Plan(config.plan)
    return deal(layer_costs(sizes.nodes, shape, config.solver), workers)


def _warn_condition(config: ModelConfig) -> None:
    bound = rho_bound(config.nu, ACTIVATIONS[config.activation].lipschitz)
    if config.rho <= bound:
        warnings.warn(
            f"rho = {config.rho:g} is not above {bound:g}, where theory guarantees that the objective never rises",
            stacklevel=3,
        )
