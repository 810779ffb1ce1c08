"""Training: stages of growth, epochs, evaluation, penalty schedules, stopping, history and status."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .admm.activations import ACTIVATIONS
from .admm.diagnostics import Moves, rate_term, rho_bound
from .admm.levels import PAPER_LEVELS
from .admm.risks import RISKS
from .admm.state import Boundary, Quantization, Weights, forward_state
from .config import ModelConfig
from .engine.worker import Algorithm, Worker
from .model import GAMLP
from .status import Status

#: One dict per epoch, with the keys of metrics.jsonl.
Record = dict[str, Any]


class Examples(NamedTuple):
    """Augmented features (nodes, features) and integer labels (nodes,)."""

    X: Tensor
    y: Tensor


@dataclass
class TrainingResult:
    """What :func:`train` returns: the model, how training went and how it ended."""

    model: GAMLP
    history: list[Record]
    status: Status
    #: Seconds spent in epochs, evaluation not counted.
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = sum(record["seconds"] for record in self.history)


def train(
    training: Examples,
    validation: Examples | None,
    num_classes: int,
    config: ModelConfig,
    *,
    seed: int,
    on_epoch: Callable[[Record], None] | None = None,
) -> TrainingResult:
    """Train a GA-MLP with pdADMM-G, or with pdADMM-G-Q when ``config`` quantizes.

    Each stage starts from the weights of the one before, deepened by identity layers, with all other variables from a
    forward pass. With a validation set and patience, the best weights of a stage are the ones that go on.
    """
    config = config.resolved()
    assert config.stages is not None
    _warn_condition(config)
    generator = torch.Generator().manual_seed(seed)
    weights = initial_weights(training.X.shape[1], config.hidden, num_classes, like=training.X, generator=generator)
    history: list[Record] = []
    status = Status.MAX_EPOCHS
    for number, depth in enumerate(config.stages, start=1):
        weights = grow(weights, depth)
        stage = Stage(number, weights, training, validation, config)
        status = stage.run(history, on_epoch)
        weights = stage.best_weights()
        if status.is_failure or status is Status.INTERRUPTED:
            break
    model = GAMLP.from_parameters([(w.W, w.b) for w in weights], config.activation)
    return TrainingResult(model, history, status)


# ---------------------------------------------------------------------------------------------------------- growth


def initial_weights(
    features: int, hidden: int, classes: int, *, like: Tensor, generator: torch.Generator
) -> list[Weights]:
    """Two layers of He-scaled random weights, decaying toward zero, in the dtype and on the device of ``like``."""

    def layer(out: int, into: int) -> Weights:
        W = torch.randn(out, into, generator=generator, dtype=torch.float64) * math.sqrt(2 / into)
        W = W.to(like)
        return Weights(W, W.new_zeros(out), torch.zeros_like(W))

    return [layer(hidden, features), layer(classes, hidden)]


def grow(weights: list[Weights], depth: int) -> list[Weights]:
    """Insert identity layers before the last one, anchored at the identity, until there are ``depth`` layers.

    After ReLU the identity changes nothing: the deeper network starts as the same function.
    """
    *body, head = weights
    width = head.W.shape[1]
    inserted = []
    for _ in range(depth - len(weights)):
        identity = torch.eye(width).to(head.W)
        inserted.append(Weights(identity, head.b.new_zeros(width), identity.clone()))
    return [*body, *inserted, head]


# ----------------------------------------------------------------------------------------------------------- stage


class Stage:
    """One depth of greedy growth: a worker, its data and the rules that end it."""

    def __init__(
        self,
        number: int,
        weights: list[Weights],
        training: Examples,
        validation: Examples | None,
        config: ModelConfig,
    ) -> None:
        self.number = number
        self.training = training
        self.validation = validation
        self.config = config
        self.algorithm = Algorithm(
            activation=ACTIVATIONS[config.activation],
            risk=RISKS[config.risk],
            solver=config.solver,
            nu=config.nu,
            mu=config.weight_decay,
        )
        layers, boundaries = forward_state(weights, training.X, self.algorithm.activation, quantization(config))
        _warn_coarse_levels(boundaries)
        self.worker = Worker.whole_chain(layers, boundaries, self.algorithm, rho=config.rho, X=training.X, y=training.y)
        self.schedule = PENALTY_SCHEDULES[config.penalty]()
        self._start_weights = weights
        self._selects = validation is not None and config.patience is not None
        self._best: tuple[tuple[float, float], int, list[Weights]] | None = None
        self._rate = math.inf
        # The risk of knowing nothing, log(classes) a node: the scale on which an objective is large.
        classes = weights[-1].W.shape[0]
        self._scale = max(abs(self._objective()), len(training.y) * math.log(max(classes, 2)))

    def run(self, history: list[Record], on_epoch: Callable[[Record], None] | None) -> Status:
        """Train until a rule ends the stage. Appends one record per epoch to ``history``."""
        try:
            # The grown network starts as the network of the stage before: it is the first to beat.
            self._select(0, self._evaluate())
            for epoch in range(1, self.config.epochs + 1):
                record = {"stage": self.number, "epoch": len(history) + 1, **self._epoch(epoch)}
                history.append(record)
                status = self._judge(epoch, record)
                if on_epoch is not None:
                    on_epoch(record)
                if status is not None:
                    return status
                self.worker.rho = self.schedule(self.worker.rho, record)
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        return Status.MAX_EPOCHS

    def best_weights(self) -> list[Weights]:
        """Those of the best validation epoch; without a validation set the last ones, if they are finite."""
        if self._best is not None:
            return self._best[2]
        weights = self.worker.weights()
        finite = all(bool(torch.isfinite(w.W).all() and torch.isfinite(w.b).all()) for w in weights)
        return weights if finite else self._start_weights

    def _epoch(self, epoch: int) -> Record:
        """One epoch and its measurements."""
        start = time.perf_counter()
        moves = self.worker.epoch()
        _synchronize(self.training.X)
        seconds = time.perf_counter() - start
        record = self._diagnose(moves)
        if epoch % self.config.eval_every == 0 or epoch == self.config.epochs:
            record |= self._evaluate()
        else:
            record |= dict.fromkeys(("train_loss", "train_accuracy", "val_loss", "val_accuracy"))
        return record | {"seconds": seconds}

    def _diagnose(self, moves: list[Moves]) -> Record:
        """Objective, residuals and rate of the epoch that made these moves."""
        nu, rho = self.algorithm.nu, self.worker.rho
        moved = [Moves(*row) for row in _to_floats(moves)]
        shares = _to_floats(self.worker.shares())
        risk = float(self.worker.risk())
        primal = math.sqrt(sum(gap for _, gap, _ in shares))
        dual = rho * math.sqrt(sum(float(move.q) for move in moved))
        rate = rate_term(moved, nu=nu, rho=rho, lipschitz=self.algorithm.activation.lipschitz)
        self._rate = min(self._rate, rate)
        return {
            "objective": risk + sum(objective for objective, _, _ in shares),
            "risk": risk,
            "primal_residual": primal,
            "dual_residual": dual,
            "output_norm": math.sqrt(sum(output for _, _, output in shares)),
            "descent": sum(float(move.p + move.W) + nu / 2 * float(move.b + move.z) for move in moved),
            "c_k": self._rate,
            "rho": rho,
        }

    def _evaluate(self) -> Record:
        """Loss and accuracy of the network, as it would predict, on the training and validation nodes."""
        result: Record = {}
        for name, examples in (("train", self.training), ("val", self.validation)):
            loss = accuracy = None
            if examples is not None:
                logits = self.worker.forward(examples.X)
                loss = float(self.algorithm.risk(logits, examples.y)) / len(examples.y)
                accuracy = float((logits.argmax(1) == examples.y).double().mean())
            result |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        return result

    def _judge(self, epoch: int, record: Record) -> Status | None:
        """The status that ends the stage now, or None. Finiteness comes before everything else."""
        if not math.isfinite(record["objective"]) or not math.isfinite(record["descent"]):
            return Status.NON_FINITE
        if abs(record["objective"]) > 1e3 * self._scale:
            return Status.DIVERGED
        self._select(epoch, record)
        if self._converged(record):
            return Status.CONVERGED
        patience = self.config.patience
        if self._best is not None and patience is not None and epoch - self._best[1] >= patience:
            return Status.EARLY_STOPPED
        return None

    def _select(self, epoch: int, record: Record) -> None:
        """Keep the weights if they are the best on validation so far: higher accuracy, then lower loss."""
        if self._selects and record["val_accuracy"] is not None:
            score = (record["val_accuracy"], -record["val_loss"])
            if self._best is None or score > self._best[0]:
                self._best = (score, epoch, self.worker.weights())

    def _converged(self, record: Record) -> bool:
        """Residuals small against the outputs q, and the descent of the epoch small against the objective.

        The last condition is there because p and q may stand still while the rest still moves: on coarse levels, and
        in the first epochs of a stage, before the change of z_L has travelled down the chain.
        """
        tolerance = self.config.tolerance
        return (
            record["primal_residual"] <= tolerance * record["output_norm"]
            and record["dual_residual"] <= tolerance * record["rho"] * record["output_norm"]
            and record["descent"] <= tolerance * abs(record["objective"])
        )

    def _objective(self) -> float:
        return float(self.worker.risk()) + sum(objective for objective, _, _ in _to_floats(self.worker.shares()))


def quantization(config: ModelConfig) -> Quantization:
    """What ``config`` says about quantization."""
    levels = PAPER_LEVELS if config.levels == "paper" else config.levels
    return Quantization(p=config.quantize != "none", q=config.quantize == "pq", bits=config.bits or 8, levels=levels)


# -------------------------------------------------------------------------------------------------------- penalties


class ConstantPenalty:
    """rho stays what it is."""

    def __call__(self, rho: float, record: Record) -> float:
        """The rho of the next epoch."""
        return rho


class StallPenalty(ConstantPenalty):
    """Doubles rho when the primal residual has not fallen by a tenth for ten epochs."""

    window, needed, factor = 10, 0.9, 2.0

    def __init__(self) -> None:
        self.best = math.inf
        self.waited = 0

    def __call__(self, rho: float, record: Record) -> float:
        if record["primal_residual"] < self.needed * self.best:
            self.best, self.waited = record["primal_residual"], 0
            return rho
        self.waited += 1
        if self.waited < self.window:
            return rho
        self.waited = 0
        return rho * self.factor


class BalancePenalty(ConstantPenalty):
    """Keeps the two residuals within a factor of ten: doubles rho when the primal leads, halves it when the dual does.

    Looks every ten epochs, and stays within a factor of a thousand of where it started.
    """

    window, ratio, factor, reach = 10, 10.0, 2.0, 1e3

    def __init__(self) -> None:
        self.epochs = 0
        self.start: float | None = None

    def __call__(self, rho: float, record: Record) -> float:
        self.start = self.start or rho
        self.epochs += 1
        if self.epochs % self.window:
            return rho
        primal, dual = record["primal_residual"], record["dual_residual"]
        if primal > self.ratio * dual:
            return min(rho * self.factor, self.start * self.reach)
        if dual > self.ratio * primal:
            return max(rho / self.factor, self.start / self.reach)
        return rho


PENALTY_SCHEDULES: dict[str, type[ConstantPenalty]] = {
    "constant": ConstantPenalty,
    "stall": StallPenalty,
    "balance": BalancePenalty,
}


# ---------------------------------------------------------------------------------------------------------- helpers


def _to_floats(rows: list[Any]) -> list[list[float]]:
    """Rows of 0-d tensors as numbers, in one transfer from the device."""
    flat = torch.stack([torch.stack(tuple(row)) for row in rows])
    return flat.double().tolist()


def _synchronize(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _warn_condition(config: ModelConfig) -> None:
    bound = rho_bound(config.nu, ACTIVATIONS[config.activation].lipschitz)
    if config.rho <= bound:
        warnings.warn(
            f"rho = {config.rho:g} is not above {bound:g}, where theory guarantees that the objective never rises",
            stacklevel=3,
        )


def _warn_coarse_levels(boundaries: list[Boundary]) -> None:
    """The paper's integers cannot represent activations well below 1: all of them round to zero."""
    for index, boundary in enumerate(boundaries, start=1):
        if boundary.p_levels is not None and boundary.q_levels is None:
            lost = float(torch.linalg.vector_norm(boundary.p - boundary.q))
            if lost > 0.5 * float(torch.linalg.vector_norm(boundary.q)):
                warnings.warn(
                    f"the levels lose more than half of the output of layer {index}: use calibrated ones (bits)",
                    stacklevel=4,
                )
                return
