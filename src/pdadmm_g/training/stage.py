"""One stage of greedy growth, as one worker sees it: set-up, epochs, evaluation, rules that end it, checkpoints.

Every worker runs this same program. Each decision follows from numbers that all of them have, so nobody leads.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from ..admm.activations import ACTIVATIONS
from ..admm.diagnostics import Moves, Shares, rate_term
from ..admm.levels import PAPER_LEVELS
from ..admm.risks import RISKS
from ..admm.rows import Rows
from ..admm.state import Boundary, Layer, Quantization, Weights, forward_state
from ..config import ModelConfig
from ..engine.codec import codec_for
from ..engine.culprit import Culprit
from ..engine.link import Link
from ..engine.plan import Plan
from ..engine.replicas import check_replicas
from ..engine.team import Stop, Traffic
from ..engine.worker import Algorithm, Ends, Worker
from ..status import Status
from .callback import OnEpoch
from .checkpoint import CHOSEN, Checkpoint, StageState
from .growth import widths
from .judging import accuracy, needs_score, validation_score
from .layer_tensors import layer_tensors, restore
from .member import Member
from .records import COLUMNS, SCORES, Record, WorkerRow, admm_record, converged, failure, judged


class Best(NamedTuple):
    """The best weights of a stage so far; ``score`` orders them."""

    score: tuple[float, float]
    epoch: int
    weights: list[Weights]


class Stage:
    """One depth of greedy growth: this worker's part of it, and the rules that end it.

    Made by :meth:`fresh` or :meth:`resumed`.
    """

    worker: Worker
    #: That of an objective that has not exploded.
    _scale: float
    _best: Best

    def __init__(self, member: Member, number: int, plan: Plan) -> None:
        config = member.config
        assert config.patience != "auto"
        self.number = number
        self.plan = plan
        self.team = member.team
        self.chain = member.team.chain
        self.sizes = member.outline.sizes
        self.part = member.outline.part
        self.first_row = member.outline.first
        self.rows = member.outline.rows
        self.config = config
        self.like = member.outline.like
        self.checkpointing = member.checkpointing
        self.layers = plan.layers(self.chain.rank)
        self.is_last = self.chain.rank == plan.last
        self.training = member.training
        self.scored = member.scored or member.training
        self.scored_rows = self.part.nodes if member.outline.scored is None else member.outline.scored
        self.lesson = member.lesson
        self.validation = member.validation
        self.algorithm = Algorithm(
            activation=ACTIVATIONS[config.activation],
            risk=RISKS[config.risk],
            solver=config.solver,
            nu=config.nu,
            rho=config.rho,
            mu=config.weight_decay or 0.0,
            precision=config.precision,
        )
        self.targets, self.validation_targets = member.share_targets(plan)
        self.scored_targets = member.share_scored_targets(plan) or self.targets
        self._patience = config.patience
        self._selects = self.sizes.validation_nodes > 0 and config.patience is not None
        self._first_epoch = 1
        #: What went wrong, when and where; empty unless the stage failed.
        self.message = ""
        self._culprit: tuple[int, Culprit] | None = None
        self._rate = math.inf

    @classmethod
    def fresh(cls, member: Member, number: int, plan: Plan, weights: list[Weights], *, margin: float = 0.0) -> Stage:
        """A stage that starts from these weights of the worker's layers.

        Others count as better from a validation score that is higher by the ``margin``.
        """
        stage = cls(member, number, plan)
        stage.worker = stage._fresh_worker(weights)
        stage._best = Best((-math.inf, -math.inf), 0, stage.worker.weights())
        objective = stage._synchronize_epochs([stage._measure([])])[0]["objective"]
        stage._rate = math.inf  # nothing has moved yet, and that is not a term of the series
        # The risk of knowing nothing, log(classes) a row, is the scale on which an objective is large.
        stage._scale = max(abs(objective), stage.rows.number * math.log(max(stage.sizes.classes, 2)))
        # The grown network starts as the network of the stage before: it is the first to beat.
        stage._select(0, stage._evaluate())
        if margin:
            highest, loss = stage._best.score
            stage._best = stage._best._replace(score=(highest + margin, loss))
        return stage

    @classmethod
    def resumed(cls, member: Member, number: int, plan: Plan, saved: Checkpoint) -> Stage:
        """A stage that goes on exactly where the checkpoint was written, whatever the number of workers was."""
        stage = cls(member, number, plan)
        meta, (_, _, features, classes) = saved.meta, stage.sizes
        saved.check_sizes(stage.sizes, plan.depth)
        shape = widths(features, stage.config.hidden, classes, plan.depth)
        rows = range(stage.first_row, stage.first_row + stage.part.nodes)
        layers, boundaries, best = restore(saved, stage.layers, shape, rows, quantization(stage.config), stage.like)
        stage.worker = stage._worker(layers, boundaries)
        stage.worker.epochs = meta.worker_epochs
        stage._best = Best((meta.best_score[0], meta.best_score[1]), meta.best_epoch, best)
        stage._scale, stage._rate = meta.scale, meta.rate
        stage._first_epoch = meta.epoch + 1
        return stage

    # The life of a stage

    def run(self, history: list[Record], on_epoch: OnEpoch | None) -> Status:
        """Train until a rule ends the stage. Appends one record per epoch to ``history``."""
        pending: list[Tensor] = []
        try:
            for epoch in range(self._first_epoch, self.config.epochs + 1):
                self.team.progress(epoch=len(history) + len(pending) + 1, layers=self.layers)
                pending.append(self._epoch(epoch))
                if epoch % self.config.eval_every and epoch != self.config.epochs:
                    continue
                records = self._synchronize_epochs(pending)
                pending = []
                records[-1] |= self._evaluate()
                status = self._conclude(epoch, records, history, on_epoch)
                if status is not None:
                    return status
                self._maybe_checkpoint(epoch, history)
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        return Status.MAX_EPOCHS

    def close(self) -> None:
        """Take in and get out what is still on its way: the transport must not outlive its buffers."""
        self.worker.settle()
        for link in self._links().values():
            if link is not None:
                link.finish()

    def best_weights(self) -> list[Weights]:
        """This worker's layers at the best validation epoch; without validation or patience, after the last sound."""
        return self._best.weights

    def _conclude(
        self, epoch: int, records: list[Record], history: list[Record], on_epoch: OnEpoch | None
    ) -> Status | None:
        """Take the records of the epochs up to ``epoch`` into the history: up to one that failed, or else judge them.

        Weights and scores are those after the last epoch, and so are all rules but failures.
        """
        status, asked = None, Stop.NOBODY
        for number, record in enumerate(records, start=epoch - len(records) + 1):
            shares = record.pop("shares")
            history.append({"stage": self.number, "stage_epoch": number, "epoch": len(history) + 1, **record})
            if self.lesson is not None:
                round, agreement, changed, _ = self.lesson
                history[-1] |= {"round": round, "agreement": agreement, "changed": changed}
            status = failure(record, self._scale)
            if status is not None:
                self.message = f"epoch {len(history)}, {self._blame(status, shares)}"
            elif number == epoch:
                status = self._judge(epoch, record)
            if on_epoch is not None and on_epoch(history[-1]) is True:
                asked = Stop.CALLBACK
            if status is not None:
                break
        asked = max(asked, self.team.stop_requested())
        anywhere = self.team.rows.largest(self.chain.concat(torch.tensor([int(asked)]), [1] * self.chain.size))
        stop = Stop(int(anywhere.max()))
        if stop is Stop.NOBODY or (status is not None and status.is_failure):
            return status
        return Status.INTERRUPTED if stop is Stop.INTERRUPT else Status.STOPPED

    # Setting up

    def _fresh_worker(self, weights: list[Weights]) -> Worker:
        """The worker at rest: its state from a forward pass that travels down the chain once."""
        f, quantized = self.algorithm.activation, quantization(self.config)
        if not self.layers:
            return self._worker([], [None])
        before = None
        p = self.training.X if self.training is not None else None
        if self.layers[0] > 0:
            # u is kept: z is elsewhere
            before = quantized.boundary(self._receive_activations(self.part.nodes), rows=self.rows)
            p = before.p
        assert p is not None
        layers, after = forward_state(weights, p, f, quantized, last=self.is_last, rows=self.rows)
        if not self.is_last:
            self.chain.send(f(layers[-1].z), self.chain.rank + 1)
        if self.number == 1:
            outputs = [f(layer.z) for layer in layers]
            _warn_coarse_levels(
                outputs, after, self.rows, first_layer=self.layers[0] + 1, speaks=self.team.rows.rank == 0
            )
        return self._worker(layers, [before, *after, None] if self.is_last else [before, *after])

    def _worker(self, layers: list[Layer], boundaries: list[Boundary | None]) -> Worker:
        """Connect the layers to the neighbours."""
        first, last = boundaries[0], boundaries[-1]
        left = right = None
        if first is not None:
            q_codec = codec_for(first.q.shape, self.like, first.q_levels)
            left = Link(
                self.chain.global_rank(self.chain.rank - 1),
                codec_for(first.p.shape, self.like, first.p_levels),
                q_codec,
                (self.team.leftward, None),
            )
        if last is not None:
            q_codec = codec_for(last.q.shape, self.like, last.q_levels)
            right = Link(
                self.chain.global_rank(self.chain.rank + 1),
                q_codec,
                codec_for(last.p.shape, self.like, last.p_levels),
                (None, self.team.leftward),
            )
        X = self.training.X if self.training is not None else None
        ends = Ends(self.rows, X, self.targets)
        return Worker(layers, boundaries, self.algorithm, ends, left=left, right=right)

    def _receive_activations(self, rows: int) -> Tensor:
        return self.chain.receive(self.like.new_empty(rows, self.config.hidden), self.chain.rank - 1)

    # One epoch and its measurements

    def _epoch(self, number: int) -> Tensor:
        """One epoch, and what this worker measured of it."""
        start = time.perf_counter()
        moves = self.worker.epoch()
        if self.like.is_cuda:
            torch.cuda.synchronize(self.like.device)
        measured = self._measure(moves, time.perf_counter() - start)
        if self._culprit is None and not bool(measured.isfinite().all()):
            found = self.worker.culprit(moves)
            self._culprit = None if found is None else (number, found)
        return measured

    def _measure(self, moves: list[Moves], seconds: float = 0.0) -> Tensor:
        """One row of numbers for the worker, then one for each of its layers, all of the same width."""
        traffic = [link.take_traffic() if link else Traffic() for link in self._links().values()]
        traffic.append(self.team.rows.take_traffic())
        waited = sum(part.wait_seconds for part in traffic)
        packed = sum(part.pack_seconds for part in traffic)
        risk = float(self.worker.risk()) if self.is_last else 0.0
        # To the left, to the right, and for sums; and all values that went left or right.
        sent = torch.tensor([part.bytes_sent for part in traffic] + [sum(part.values_sent for part in traffic)])
        to_left, to_right, for_sums, values = self.team.rows.sum(sent).tolist()
        own = WorkerRow(seconds, waited, packed, to_left, to_right, for_sums, values, risk)
        rows = [torch.tensor([*own, *[0.0] * (COLUMNS - len(own))], dtype=torch.float64)]
        if self.layers:
            zeros = Moves(*[self.like.new_zeros(()) for _ in Moves._fields])
            shares = self.worker.measured or self.worker.shares()
            measured = [
                torch.stack([torch.as_tensor(value) for value in (*move, *share)])
                for move, share in zip(moves or [zeros] * len(shares), shares, strict=True)
            ]
            rows.extend(torch.stack(measured).double().cpu())
        return torch.stack(rows)

    def _links(self) -> dict[str, Link | None]:
        return {"left": self.worker.left, "right": self.worker.right}

    def _synchronize_epochs(self, measured: list[Tensor]) -> list[Record]:
        """Put the measurements of all workers together: one record per epoch, the same on every worker."""
        counts = [1 + count for count in self.plan.counts]
        everything = self.chain.concat(torch.stack(measured, dim=1), counts)
        records = []
        for epoch in range(len(measured)):
            parts = everything[:, epoch].split(counts)
            workers = [part[0].tolist() for part in parts]
            layers = torch.cat([part[1:] for part in parts]).tolist()
            records.append(self._record(workers, layers))
        return records

    def _record(self, workers: list[list[float]], layers: list[list[float]]) -> Record:
        nu, rho, lipschitz = self.algorithm.nu, self.algorithm.rho, self.algorithm.activation.lipschitz
        moves = [Moves(*row[: len(Moves._fields)]) for row in layers]
        shares = [Shares(*row[len(Moves._fields) :]) for row in layers]
        self._rate = min(self._rate, rate_term(moves, nu=nu, rho=rho, lipschitz=lipschitz))
        rows = [WorkerRow(*row[: len(WorkerRow._fields)]) for row in workers]
        record = admm_record(rows, self.plan.counts, moves, shares, nu=nu, rho=rho, c_k=self._rate)
        return record | {"shares": [float(share.objective) for share in shares]}

    def _evaluate(self) -> Record:
        """Loss and accuracy of the network, as it would predict, on the training and validation nodes.

        Activations pass down the chain; the last worker tells everyone the result.
        """
        self.worker.settle()  # they go the way of q, of which only the size is waited for
        sums = torch.zeros(2, 3, dtype=torch.float64)  # loss, hits and rows, of training and validation
        outputs = []
        if self.layers:
            if self.training is not None:
                parts = [examples.X for examples in (self.scored, self.validation) if examples is not None]
                outputs = [self.worker.forward(x) for x in parts]
            else:
                sizes = [self.scored_rows, *[self.part.validation_nodes] * (self.sizes.validation_nodes > 0)]
                outputs = [self.worker.forward(self._receive_activations(size)) for size in sizes]
            if self.is_last:
                targets = (self.scored_targets, self.validation_targets)
                for place, (logits, y) in enumerate(zip(outputs, targets, strict=False)):
                    assert y is not None
                    number = y.rows().number
                    loss = float(self.algorithm.risk(logits, y))
                    share = accuracy(logits, y, self.config.target)
                    sums[place] = sums.new_tensor([loss, math.nan if share is None else share * number, number])
            else:
                for x in outputs:
                    self.chain.send(x, self.chain.rank + 1)
        sums = self.team.rows.sum(self.chain.broadcast(sums, self.plan.last))
        numbers = (sums[:, :2] / sums[:, 2:]).flatten().tolist()
        known = len(SCORES) if self.sizes.validation_nodes else 2
        record: Record = {
            name: value if place < known and not self._is_undefined(name) else None
            for place, (name, value) in enumerate(zip(SCORES, numbers, strict=True))
        }
        if needs_score(self.config) and self.sizes.validation_nodes:
            record["val_score"] = self._score(outputs[1] if self.is_last else None)
        return record

    def _is_undefined(self, name: str) -> bool:
        """Numbers are not right or wrong."""
        return self.config.target == "regression" and name.endswith("_accuracy")

    def _score(self, logits: Tensor | None) -> float | None:
        """What ``scoring`` makes of the logits of all validation rows, which the last workers have; None if nothing."""
        found = torch.full((1,), math.nan, dtype=torch.float64)
        if logits is not None:
            assert self.validation_targets is not None
            line, y = self.team.rows, self.validation_targets.t
            counts = line.concat(torch.tensor([[len(y)]]), [1] * line.size).view(-1).tolist()
            logits, y = line.concat(logits, counts), line.concat(y, counts)
            value = validation_score(logits, y, self.config)
            found[0] = math.nan if value is None else value
            found = line.broadcast(found, 0)
        value = float(self.chain.broadcast(found, self.plan.last))
        return None if math.isnan(value) else value

    # Rules

    def _judge(self, epoch: int, record: Record) -> Status | None:
        """The status that ends the stage now, or None. ``record`` is of an epoch that did not fail."""
        self._select(epoch, record)
        if converged(record, self.config.tolerance):
            return Status.CONVERGED
        patience, evaluated = self._patience, record["val_loss"] is not None
        if self._selects and patience is not None and evaluated and epoch - self._best.epoch >= patience:
            return Status.EARLY_STOPPED
        return None

    def _blame(self, status: Status, shares: list[float]) -> str:
        """The layer with the largest share of an objective that exploded; the layer and variable that broke.

        Of what the workers found, the earliest counts, then what a step read before what was left after an epoch.
        """
        if status is Status.DIVERGED:
            largest = max(range(len(shares)), key=lambda layer: abs(shares[layer]))
            return f"layer {largest + 1} has the largest share of the objective, {shares[largest]:.3g}"
        row = [math.inf] * 4
        if self._culprit is not None:
            epoch, found = self._culprit
            row = [epoch, found.hindsight, found.place, found.layer + self.layers.start]
        rows = self.chain.concat(torch.tensor([row], dtype=torch.float64), [1] * self.chain.size)
        rows = self.team.rows.concat(rows, [len(rows)] * self.team.rows.size)
        epoch, *numbers = min(rows.tolist())
        if math.isinf(epoch):
            return "in the risk"
        found = Culprit(*map(int, numbers))
        return f"layer {found.layer + 1}, variable {found.variable}"

    def _select(self, epoch: int, record: Record) -> None:
        """Keep the weights if they are the best on validation so far: higher score, then lower loss.

        Without validation, or without patience, the newest are the best.
        """
        if not self._selects:
            self._best = Best((0.0, 0.0), epoch, self.worker.weights())
        elif (own := judged(record)) is not None and own > self._best.score:
            self._best = Best(own, epoch, self.worker.weights())

    # Checkpoints

    def _maybe_checkpoint(self, epoch: int, history: list[Record]) -> None:
        """Write a checkpoint if one is due. ``epoch`` counts within the stage."""
        if self.checkpointing is None or not self.checkpointing.due(len(history)):
            return
        check_replicas(self.team, self.plan, self.worker.layers, len(history))
        self.worker.settle()
        # One at a time: where u is not kept, the tensors of a layer hold a new one.
        layers = (
            (index, layer_tensors(self.worker, place, best))
            for place, (index, best) in enumerate(zip(self.layers, self._best.weights, strict=True))
        )
        state = StageState(
            stage=self.number,
            epoch=epoch,
            depth=self.plan.depth,
            round=0 if self.lesson is None else self.lesson.round,
            sizes=self.sizes,
            chosen={name: getattr(self.config, name) for name in CHOSEN},
            worker_epochs=self.worker.epochs,
            best_score=self._best.score,
            best_epoch=self._best.epoch,
            scale=self._scale,
            rate=self._rate,
            shards=self.team.rows.size,
        )
        lesson = None if self.lesson is None else self.lesson.tensors
        self.checkpointing.write(self.team, layers, state, history, lesson)


def quantization(config: ModelConfig) -> Quantization:
    """What ``config`` says about quantization."""
    levels = PAPER_LEVELS if config.levels == "paper" else config.levels
    p, q = config.quantize != "none", config.quantize == "pq"
    return Quantization(p=p, q=q, bits=config.bits or 8, levels=levels)


def _warn_coarse_levels(
    activations: list[Tensor], boundaries: list[Boundary], rows: Rows, *, first_layer: int, speaks: bool
) -> None:
    """Levels may be too coarse: the paper's integers round all activations well below 1 to zero."""
    for layer, (output, boundary) in enumerate(zip(activations, boundaries, strict=False), start=first_layer):
        if boundary.p_levels is None:
            continue
        lost, whole = (float(rows.squared_norm(x)) for x in (boundary.p - output, output))
        if lost > 0.25 * whole and speaks:
            warnings.warn(
                f"the levels lose more than half of the output of layer {layer}: use calibrated ones, or more bits",
                stacklevel=6,
            )
            return
