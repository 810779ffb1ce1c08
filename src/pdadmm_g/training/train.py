"""Training: greedy growth from stage to stage, on one worker or on many.

Every worker runs this same program; the first one brings the data and gets the result.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import torch
from torch import Tensor

from ..admm.activations import ACTIVATIONS
from ..admm.diagnostics import rho_bound
from ..admm.state import Weights
from ..config import ModelConfig
from ..engine.layout import Plan, deal, layer_costs
from ..engine.precision import tensor_cores
from ..engine.team import Line, Team
from ..graph.augmentation import Copies
from ..graph.examples import Examples, aligned, simplified
from ..model import GAMLP
from ..status import Status
from .checkpoint import Checkpointing, clear
from .member import Member, dealt
from .records import OnEpoch, Record
from .rounds import RoundRows, Step, is_over, margin, schedule
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
    on_epoch: OnEpoch | None = None,
    team: Team | None = None,
    checkpointing: Checkpointing | None = None,
    copies: Copies | None = None,
    start: GAMLP | None = None,
) -> TrainingResult | None:
    """Train a GA-MLP with pdADMM-G, or with pdADMM-G-Q when ``config`` quantizes.

    Each stage starts from the weights of the one before, deepened by identity layers, with all other variables from a
    forward pass. With a validation set and patience, the best weights of a stage are the ones that go on. When
    learning from unlabelled nodes, a stage has rounds, see :mod:`.rounds`.

    On a team of several workers all call this. The first one brings the data, or the first worker of every chain brings
    those of its part; these get the result, the others None. The first stage starts from the network ``start`` that the
    first worker has, deepened if need be, or else from random weights.
    """
    config = config.resolved("classification") if training is not None else config.resolved()
    team = team or Team()
    bound = rho_bound(config.nu, ACTIVATIONS[config.activation].lipschitz)
    if team.rank == 0 and config.rho <= bound:
        text = f"rho = {config.rho:g} is not above {bound:g}, where theory guarantees that the objective never rises"
        warnings.warn(text, stacklevel=2)
    # The others do not see what the first one chose by the data.
    settings = {name: value for name, value in vars(config).items() if not callable(value) and name != "device"}
    if (first := team.told(settings)) != msgspec.json.decode(msgspec.json.encode(settings)) and team.rank > 0:
        config = dataclasses.replace(config, **first)
    team.arrange(config.shards or 1)
    training, validation, basis = simplified(aligned(training)), simplified(aligned(validation)), None
    training, validation = (dealt(team, examples, config.device) for examples in (training, validation))
    starts = team.told(0 if start is None else len(start.linears))
    # A network that is there may have a part outside of the row space, which validation sees.
    if not config.unlabelled and not starts:
        training, validation, basis = in_row_space(training, validation, team.rows)
    member = Member(team, config, training, validation, num_classes, checkpointing)
    rows = RoundRows(copies, seed) if config.unlabelled else None
    history = checkpointing.history if checkpointing else []
    with team.in_epochs():
        weights, plan, status, message = _grow(member, rows, seed, basis, history, on_epoch, start, starts)
        alone = _alone(plan.depth, team)
        weights = redeal(team.chain, weights, plan, alone, member.widths(plan.depth), like=member.like)
    if team.chain.rank != 0:
        return None
    if config.growth == "gain" and config.activation in ("relu", "identity"):
        # Depths that gained nothing leave no layers behind, where an identity layer changes nothing.
        weights = [w for w in weights if not (w.W0.any() and torch.equal(w.W, w.W0)) or w.b.any()]
    parameters = [(w.W, w.b) for w in weights]
    if basis is not None:
        parameters[0] = (weights[0].W @ basis.T, weights[0].b)
    return TrainingResult(GAMLP.from_parameters(parameters, config.activation), history, status, plan, message)


def _alone(depth: int, team: Team) -> Plan:
    """All layers on the first worker of a chain."""
    return Plan((depth, *[0] * (team.chain.size - 1)))


def _grow(
    member: Member,
    rows: RoundRows | None,
    seed: int,
    basis: Tensor | None,
    history: list[Record],
    on_epoch: OnEpoch | None,
    start: GAMLP | None,
    depth: int,
) -> tuple[list[Weights], Plan, Status, str]:
    """Go through the stages and their rounds, from the first one or from that of the checkpoint.

    The network to ``start`` from has so many layers, none if there is none.
    Gives the worker's layers after the last stage, and how that one ended.
    """
    config, like, team, chain = member.config, member.like, member.team, member.team.chain
    steps = schedule(config)
    saved = member.checkpointing.resume if member.checkpointing else None
    if member.checkpointing and saved is None and team.rank == 0:
        clear(member.checkpointing.folder)
    status, message = Status.MAX_EPOCHS, ""
    plan: Plan | None = None
    weights: list[Weights] = []
    if depth and saved is None:
        plan = _alone(depth, team)
        for index in plan.layers(chain.rank):
            shape = member.widths(depth)[index : index + 2]
            W, b = like.new_empty(shape[1], shape[0]), like.new_empty(shape[1])
            if start is not None:
                W.copy_(start.linears[index].get_parameter("weight").detach())
                b.copy_(start.linears[index].get_parameter("bias").detach())
            W, b = team.rows.broadcast(W, 0), team.rows.broadcast(b, 0)
            weights.append(Weights.of(W, b, index, depth))
    for step in steps[steps.index(Step(saved.meta.stage, saved.meta.depth, saved.meta.round)) if saved else 0 :]:
        if plan is not None and is_over(step, history, config):
            continue
        shape = member.widths(step.depth)
        before, new = plan, deal_layers(member.all_nodes, shape, config, chain.size)
        try:
            if before is not None:
                # Together: an interrupt finds weights and the plan that they are dealt by.
                weights, plan = redeal(chain, weights, before, new, shape, like=like), new
            elif saved is None:
                mine = new.layers(chain.rank)
                weights = [initial_layer(i, shape, step.depth, seed=seed, like=like, basis=basis) for i in mine]
            plan = new
            with tensor_cores(config.precision):
                resumed = saved if before is None else None
                own = member if rows is None else rows.member(member, step, new, weights, resumed)
                gain = 0.0 if resumed else margin(step.stage, history, config)
                stage = Stage(own, step.stage, new, weights, resumed, margin=gain)
                status = stage.run(history, on_epoch)
                stage.close()
                message = stage.message
            weights = stage.best.weights
        except KeyboardInterrupt:
            if plan is None or not weights:
                raise
            status = Status.INTERRUPTED  # between two stages: the one before has the best model so far
        if status.is_failure or status.was_stopped:
            break
    assert plan is not None
    return weights, plan, status, message


def in_row_space(
    training: Examples | None, validation: Examples | None, line: Line
) -> tuple[Examples | None, Examples | None, Tensor | None]:
    """Features as coordinates in an orthonormal basis of all training rows, where that is shorter; and the basis.

    With fewer nodes than features, W_1 enters training through its part in the row space of X only. Training in these
    coordinates takes the same steps at the cost of as many features as nodes; what W_1 has outside stays zero.
    """
    if training is None:
        return training, validation, None
    counts = line.counts(len(training.X))
    if sum(counts) >= training.X.shape[1]:
        return training, validation, None
    basis, R = (line.broadcast(each, 0) for each in torch.linalg.qr(line.concat(training.X, counts).T))
    if validation is not None:
        validation = validation._replace(X=validation.X @ basis)
    return training._replace(X=R.T.contiguous().split(counts)[line.rank]), validation, basis


def deal_layers(nodes: int, shape: list[int], config: ModelConfig, workers: int) -> Plan:
    """The user's plan in the last stage if there is one, else the best by the cost model."""
    depth = len(shape) - 1
    if config.plan is not None and depth == config.layers:
        return Plan(config.plan)
    return deal(layer_costs(nodes, shape, config.solver), workers)


# The weights that a stage starts from: random at first, deepened by identity layers, dealt to the workers


def initial_layer(
    index: int, shape: Sequence[int], depth: int, *, seed: int, like: Tensor, basis: Tensor | None = None
) -> Weights:
    """He-scaled random weights for the first and last layer, the identity for those between.

    Each layer has a random stream of its own, so that a worker need not draw the weights of others. Where the features
    are coordinates in a ``basis`` (its columns), the weights of the first layer are drawn for the features themselves.
    """
    out, into = shape[index + 1], shape[index]
    if index == 0 and basis is not None:
        into = len(basis)
    if 0 < index < depth - 1:
        W = torch.eye(out).to(like)
    else:
        generator = torch.Generator().manual_seed(2 * seed + (index > 0))
        W = (torch.randn(out, into, generator=generator, dtype=torch.float64) * math.sqrt(2 / into)).to(like)
        if index == 0 and basis is not None:
            W = W @ basis
    return Weights.of(W, W.new_zeros(out), index, depth)


def redeal(
    chain: Line, weights: list[Weights], old: Plan, new: Plan, shape: Sequence[int], *, like: Tensor
) -> list[Weights]:
    """This worker's layers under the plan ``new``, which may be deeper than ``old``.

    The first layers and the last one keep their weights and move to their new owners; the layers inserted before the
    last one start as the identity. After ReLU that changes nothing: the deeper network starts as the same function.
    """
    mine = dict(zip(old.layers(chain.rank), weights, strict=True))
    result = []
    for index in range(new.depth):
        source, taker = min(index, old.depth - 1), new.owner(index)
        if old.depth - 1 <= index < new.depth - 1:
            if chain.rank == taker:
                result.append(initial_layer(index, shape, new.depth, seed=0, like=like))
        elif source in mine and chain.rank == taker:
            result.append(mine[source])
        elif source in mine:
            chain.send(mine[source].W, taker)
            chain.send(mine[source].b, taker)
        elif chain.rank == taker:
            W = chain.receive(like.new_empty(shape[index + 1], shape[index]), old.owner(source))
            b = chain.receive(W.new_empty(len(W)), old.owner(source))
            result.append(Weights.of(W, b, index, new.depth))
    return result
