"""The comparison methods: full-batch gradient training of the same network, and simpler ones that users know."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..admm.risks import RISKS, Targets
from ..config import METHODS, ModelConfig
from ..data.examples import Examples
from ..engine.layout import Plan
from ..model import GAMLP
from ..status import Status
from .growth import widths
from .records import OnEpoch, Record, gradient_record, judged
from .stage import accuracy, validation_score
from .train import TrainingResult


def stages_of(config: ModelConfig) -> tuple[int, ...]:
    """The depths through which the network of a resolved ``config`` grows."""
    assert config.stages is not None
    depth = METHODS[config.method].depth
    return config.stages if depth is None else (depth,)


def train_by_gradient(
    training: Examples,
    validation: Examples | None,
    num_classes: int,
    config: ModelConfig,
    *,
    seed: int,
    on_epoch: OnEpoch | None = None,
    start: GAMLP | None = None,
) -> TrainingResult:
    """Train with backpropagation, all nodes in every step, by the optimizer that ``config.method`` names.

    The network is the one that pdADMM-G would train, and it grows in the same stages: from PyTorch's random
    initialisation (or from ``start``, then in one stage), deepened by identity layers, the head kept. "sgc" is a linear
    model (Wu et al., 2019), "s2gc" too (Zhu & Koniusz, 2021), "sign" a network of two layers with dropout (Frasca et
    al., 2020), all with Adam. The loss is the mean over the nodes, plus half the weight decay, also per node, times the
    squared weights.
    """
    config = config.resolved("classification")
    stages = stages_of(config) if start is None else stages_of(config)[-1:]
    torch.manual_seed(seed)
    shape = widths(training.X.shape[1], config.hidden, num_classes, stages[0])
    # A copy: a module that moves to another device does so for everybody who has it.
    model = (GAMLP(shape, config.activation) if start is None else copy.deepcopy(start)).to(training.X)
    history: list[Record] = []
    status = Status.MAX_EPOCHS
    for stage, depth in enumerate(stages, start=1):
        model = _grown(model, depth)
        learner = Learner(model, METHODS[config.method].dropout)
        status = run_stage(learner, stage, training, validation, config, history, on_epoch)
        if status.is_failure or status.was_stopped:
            break
    return _result(model, history, status)


def train_at_once(
    learner: Learner,
    training: Examples,
    validation: Examples | None,
    config: ModelConfig,
    on_epoch: OnEpoch | None,
) -> TrainingResult:
    """Train the network of a learner in place, in one stage."""
    history: list[Record] = []
    status = run_stage(learner, 1, training, validation, config, history, on_epoch)
    return _result(learner.model, history, status)


def _result(model: GAMLP, history: list[Record], status: Status) -> TrainingResult:
    message = f"epoch {len(history)}, the loss" if status.is_failure else ""
    return TrainingResult(model, history, status, Plan((len(model.linears),)), message)


class Learner:
    """A network in training that is told its rows one by one; others override how they are told theirs."""

    def __init__(self, model: GAMLP, dropout: float) -> None:
        self.model = model
        self.dropout = dropout

    def loss(self, training: Examples, risk: str) -> Tensor:
        """What a step lowers, beside the weight decay."""
        return mean_risk(risk, self.model(training.X, dropout=self.dropout), training.targets)

    def predictor(self) -> Callable[[Tensor], Tensor]:
        """What gives the logits of rows, without dropout."""
        return self.model

    def decayed(self) -> list[nn.Parameter]:
        """The parameters that weight decay is for."""
        return list(self.model.parameters())

    def optimizer(self, config: ModelConfig, rows: float) -> torch.optim.Optimizer:
        """The optimizer of the method, with the weight decay spread over so many rows."""
        name = METHODS[config.method].optimizer
        assert name is not None
        assert config.weight_decay is not None
        decayed = self.decayed()
        others = [parameter for parameter in self.model.parameters() if parameter not in set(decayed)]
        groups = [{"params": decayed, "weight_decay": config.weight_decay / rows}, {"params": others}]
        optimizer: torch.optim.Optimizer = getattr(torch.optim, name)(groups, lr=config.learning_rate)
        return optimizer


def _grown(model: GAMLP, depth: int) -> GAMLP:
    """The same function with identity layers before the last one."""
    values = [parameter.detach().clone() for parameter in model.parameters()]
    pairs = list(zip(values[::2], values[1::2], strict=True))
    head = pairs[-1][0]
    width = head.shape[1]
    for _ in range(depth - len(pairs)):
        pairs.insert(-1, (torch.eye(width).to(head), head.new_zeros(width)))
    return GAMLP.from_parameters(pairs, model.activation)


def run_stage(
    learner: Learner,
    stage: int,
    training: Examples,
    validation: Examples | None,
    config: ModelConfig,
    history: list[Record],
    on_epoch: OnEpoch | None,
) -> Status:
    """Train the network in place; with validation and patience it ends with its best weights on validation.

    Otherwise it ends with the last ones, or after a failure with the last from which the loss was finite.
    """
    model = learner.model
    optimizer = learner.optimizer(config, training.targets.rows().number)
    assert config.patience != "auto"
    selects = config.patience is not None and validation is not None
    best, best_epoch, kept = (-math.inf, -math.inf), 0, _copy(model)
    status = Status.MAX_EPOCHS
    try:
        for epoch in range(1, config.epochs + 1):
            before = None if selects else _copy(model)
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss = learner.loss(training, config.risk)
            loss.backward()
            optimizer.step()
            if training.X.is_cuda:
                torch.cuda.synchronize(training.X.device)
            record = {"stage": stage, "stage_epoch": epoch, "epoch": len(history) + 1}
            record |= gradient_record(float(loss.detach()), time.perf_counter() - begin)
            if epoch % config.eval_every == 0 or epoch == config.epochs:
                record |= _evaluate(learner, training, validation, config)
            history.append(record)
            asked = on_epoch is not None and on_epoch(record) is True
            if before is not None and math.isfinite(record["objective"]):
                kept = before
            if not _is_sound(record):
                status = Status.NON_FINITE
                break
            if config.patience is not None and (own := judged(record)) is not None:
                if own > best:
                    best, best_epoch, kept = own, epoch, _copy(model)
                elif epoch - best_epoch >= config.patience:
                    status = Status.EARLY_STOPPED
            if asked:
                status = Status.STOPPED
            if status is not Status.MAX_EPOCHS:
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    if selects or status is Status.NON_FINITE:
        model.load_state_dict(kept)
    return status


def _is_sound(record: Record) -> bool:
    """Is the loss finite, before the step of the epoch and, where it was measured, after it?"""
    return all(math.isfinite(record[name]) for name in ("objective", "train_loss") if record[name] is not None)


def mean_risk(name: str, logits: Tensor, y: Targets) -> Tensor:
    """A risk of :mod:`pdadmm_g.admm.risks`, averaged over the rows as is usual with learning rates."""
    if y.weights is None and name == "cross-entropy":
        return nn.functional.cross_entropy(logits, y.t)
    if y.weights is None and name == "squared-error":
        return (logits - y.distribution(logits)).square().sum(1).mean() / 2
    return RISKS[name](logits, y) / y.rows().number


def _copy(model: GAMLP) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@torch.no_grad()
def _evaluate(learner: Learner, training: Examples, validation: Examples | None, config: ModelConfig) -> Record:
    result: Record = {}
    predict = learner.predictor()
    for name, examples in (("train", training), ("val", validation)):
        if examples is not None:
            logits, y = predict(examples.X), examples.targets
            result[f"{name}_loss"] = float(mean_risk(config.risk, logits, y))
            result[f"{name}_accuracy"] = accuracy(logits, y, config.target)
            if name == "val" and config.scoring != "accuracy":
                result["val_score"] = validation_score(logits, y.t, config)
    return result
