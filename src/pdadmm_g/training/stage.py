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
from ..admm.diagnostics import Moves, rate_term
from ..admm.levels import PAPER_LEVELS
from ..admm.risks import RISKS
from ..admm.state import Boundary, Layer, Quantization, Weights, forward_state
from ..config import ModelConfig
from ..engine.layout import Plan
from ..engine.link import Codec, Link
from ..engine.team import Stop, Traffic
from ..engine.watchdog import check_replicas
from ..engine.worker import Algorithm, Ends, Worker
from ..metrics import score
from ..model import outputs
from ..status import Status
from .checkpoint import CHOSEN, Checkpoint, layer_tensors, restore
from .member import Member
from .records import SCORES, OnEpoch, Record, converged, failure, judged

#: What of a worker's figures counts messages: bytes to the left, to the right and in sums over rows, of all shards
#: together, and entries of p and q.
SENT = ("bytes_p", "bytes_q", "bytes_sums", "values_sent")


class Best(NamedTuple):
    """The best weights of a stage so far; ``score`` orders them."""

    score: tuple[float, float]
    epoch: int
    weights: list[Weights]


class Stage:
    """One depth of greedy growth: this worker's part of it, and the rules that end it.

    It starts from these ``weights`` of the worker's layers, and others count as better from a validation score that is
    higher by the ``margin``; or it goes on exactly where a checkpoint was written, whatever the number of workers was.
    """

    def __init__(
        self,
        member: Member,
        number: int,
        plan: Plan,
        weights: list[Weights],
        saved: Checkpoint | None = None,
        *,
        margin: float = 0.0,
    ) -> None:
        self.member, self.number, self.plan = member, number, plan
        self.team, self.chain, self.like = member.team, member.team.chain, member.like
        self.config = config = member.config
        self.layers = plan.layers(self.chain.rank)
        self.is_last = self.chain.rank == plan.last
        self.algorithm = Algorithm(
            activation=ACTIVATIONS[config.activation], risk=RISKS[config.risk], solver=config.solver, nu=config.nu,
            rho=config.rho, mu=config.weight_decay or 0.0, precision=config.precision,
        )  # fmt: skip
        self._selects = member.validates and config.patience is not None
        self._first_epoch = 1
        #: What went wrong, when and where; empty unless the stage failed.
        self.message = ""
        self._scale, self._rate = 0.0, math.inf
        if saved is not None:
            meta = saved.meta
            layers, boundaries, best = restore(saved, self.layers, member.nodes, quantization(config), self.like)
            self.worker = self._worker(layers, boundaries)
            self.worker.epochs, self._first_epoch = meta.worker_epochs, meta.epoch + 1
            highest, loss = (-math.inf if value is None else value for value in meta.best_score)
            self.best = Best((highest, loss), meta.best_epoch, best)
            self._scale, self._rate = meta.scale, math.inf if meta.rate is None else meta.rate
            return
        self.worker = self._fresh_worker(weights)
        #: At the best validation epoch so far; without validation or patience, the last sound one.
        self.best = Best((-math.inf, -math.inf), 0, self.worker.weights())
        # The grown network starts as the network of the stage before: it is the first to beat.
        self._select(0, self._evaluated())
        highest, loss = self.best.score
        self.best = self.best._replace(score=(highest + margin, loss))

    def run(self, history: list[Record], on_epoch: OnEpoch | None) -> Status:
        """Train until a rule ends the stage. Appends one record per epoch to ``history``."""
        pending: list[Tensor] = []
        try:
            for epoch in range(self._first_epoch, self.config.epochs + 1):
                self.team.progress(epoch=len(history) + len(pending) + 1, layers=self.layers)
                pending.append(self._epoch(epoch))
                if epoch % self.config.eval_every and epoch != self.config.epochs:
                    continue
                records = self._synchronized(pending)
                pending = []
                records[-1] |= self._evaluated()
                status = self._conclude(epoch, records, history, on_epoch)
                if status is not None:
                    return status
                self._write_checkpoint(epoch, history)
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        return Status.MAX_EPOCHS

    def close(self) -> None:
        """Take in and get out what is still on its way: the transport must not outlive its buffers."""
        self.worker.settle()
        for link in (self.worker.left, self.worker.right):
            if link is not None:
                link.finish()

    # Setting up

    def _fresh_worker(self, weights: list[Weights]) -> Worker:
        """The worker at rest: its state from a forward pass that travels down the chain once."""
        member, f, quantized = self.member, self.algorithm.activation, quantization(self.config)
        if not self.layers:
            return self._worker([], [None])
        before = None
        p = None if member.training is None else member.training.X
        if self.layers[0] > 0:
            # u is kept: z is elsewhere
            before = quantized.boundary(self._receive_activations(len(member.nodes)), rows=member.rows)
            p = before.p
        assert p is not None
        layers, after = forward_state(weights, p, f, quantized, last=self.is_last, rows=member.rows)
        if not self.is_last:
            self.chain.send(f(layers[-1].z), self.chain.rank + 1)
        for number, (layer, boundary) in enumerate(zip(layers, after, strict=False), start=self.layers[0] + 1):
            # The paper's integers round all activations well below 1 to zero.
            if self.number > 1 or boundary.p_levels is None:
                break
            output = f(layer.z)
            lost, whole = (float(member.rows.squared_norm(x)) for x in (boundary.p - output, output))
            if lost > 0.25 * whole:
                if self.team.rows.rank == 0:
                    text = f"the levels lose more than half of the output of layer {number}: use calibrated ones"
                    warnings.warn(f"{text}, or more bits", stacklevel=5)
                break
        return self._worker(layers, [before, *after, None] if self.is_last else [before, *after])

    def _worker(self, layers: list[Layer], boundaries: list[Boundary | None]) -> Worker:
        """Connect the layers to the neighbours."""
        chain, member, leftward = self.chain, self.member, self.team.leftward
        before, after = boundaries[0], boundaries[-1]
        left = right = None
        if before is not None:
            p, q = Codec(before.p, before.p_levels), Codec(before.q, before.q_levels)
            left = Link(chain.global_rank(chain.rank - 1), p, q, (leftward, None))
        if after is not None:
            p, q = Codec(after.p, after.p_levels), Codec(after.q, after.q_levels)
            right = Link(chain.global_rank(chain.rank + 1), q, p, (None, leftward))
        X = None if member.training is None else member.training.X
        ends = Ends(member.rows, X, member.targets if self.is_last else None)
        return Worker(layers, boundaries, self.algorithm, ends, left=left, right=right)

    def _receive_activations(self, rows: int) -> Tensor:
        return self.chain.receive(self.like.new_empty(rows, self.config.width), self.chain.rank - 1)

    # What is measured

    def _epoch(self, number: int) -> Tensor:
        """One epoch. A row of numbers for the worker, then one for each of its layers, all of the same width."""
        start = time.perf_counter()
        moves = self.worker.epoch()
        if self.like.is_cuda:
            torch.cuda.synchronize(self.like.device)
        seconds, worker, line = time.perf_counter() - start, self.worker, self.team.rows
        traffic = [Traffic() if link is None else link.take_traffic() for link in (worker.left, worker.right, line)]
        waited, packed = (sum(getattr(part, f"{kind}_seconds") for part in traffic) for kind in ("wait", "pack"))
        risk = float(worker.risk()) if self.is_last else 0.0
        sent = torch.tensor([part.bytes_sent for part in traffic] + [sum(part.values_sent for part in traffic)])
        rows = [torch.tensor([[seconds, waited, packed, risk, *line.sum(sent).tolist()]], dtype=torch.float64)]
        if self.layers:
            assert worker.measured is not None
            rows.append(torch.stack([*moves, *worker.measured], dim=1).double().cpu())
        return torch.cat(rows)

    def _synchronized(self, measured: list[Tensor]) -> list[Record]:
        """Put the measurements of all workers together: one record per epoch, the same on every worker."""
        counts, nu, rho = [1 + count for count in self.plan.counts], self.algorithm.nu, self.algorithm.rho
        everything = self.chain.concat(torch.stack(measured, dim=1), counts)
        records = []
        for epoch in range(len(measured)):
            parts = everything[:, epoch].split(counts)
            layers = torch.cat([part[1:] for part in parts]).T
            moves, lipschitz = Moves(*layers[: len(Moves._fields)]), self.algorithm.activation.lipschitz
            self._rate = min(self._rate, rate_term(moves, nu=nu, rho=rho, lipschitz=lipschitz))
            p, W, b, z, q, own, gaps, outputs = layers.tolist()
            descents = (p + W + nu / 2 * (b + z) for p, W, b, z in zip(p, W, b, z, strict=True))
            seconds, risk, workers = 0.0, 0.0, []
            for count, part in zip(self.plan.counts, parts, strict=True):
                took, waited, packed, own_risk, *sent = part[0].tolist()
                seconds, risk = max(seconds, took), risk + own_risk
                times = {"compute_seconds": took - waited - packed, "wait_seconds": waited, "pack_seconds": packed}
                workers.append({"layers": count, **times, **dict(zip(SENT, map(int, sent), strict=True))})
            records.append(
                {
                    "objective": risk + sum(own),
                    "risk": risk,
                    "primal_residual": math.sqrt(sum(gaps)),
                    "dual_residual": rho * math.sqrt(sum(q)),
                    "output_norm": math.sqrt(sum(outputs)),
                    "descent": sum(descents),
                    "c_k": self._rate,
                    "rho": rho,
                    **dict.fromkeys(SCORES),
                    "seconds": seconds,
                    "bytes_sent": sum(worker[name] for worker in workers for name in SENT[:3]),
                    "workers": workers,
                    "of_layers": layers.tolist(),
                }
            )
        return records

    def _evaluated(self) -> Record:
        """Loss and accuracy of the network, as it would predict, on the training and validation nodes.

        Activations pass down the chain; the last worker tells everyone the result.
        """
        member, config, logits = self.member, self.config, None
        self.worker.settle()  # they go the way of q, of which only the size is waited for
        sums = torch.zeros(2, 3, dtype=torch.float64)  # loss, hits and rows, of training and validation
        parts = ((member.scored, member.scored_targets), (member.validation, member.validation_targets))
        for place, (rows, y) in enumerate(parts):
            if y is None or not self.layers:
                continue
            logits = self.worker.forward(self._receive_activations(len(y.t)) if rows is None else rows.X)
            if not self.is_last:
                self.chain.send(logits, self.chain.rank + 1)
                continue
            share = {"classification": y.accuracy, "multilabel": y.subset_accuracy}.get(config.target)
            number = y.rows().number
            hits = math.nan if share is None else share(logits) * number  # numbers are not right or wrong
            sums[place] = sums.new_tensor([float(self.algorithm.risk(logits, y)), hits, number])
        sums = self.team.rows.sum(self.chain.broadcast(sums, self.plan.last))
        means = (sums[:, :2] / sums[:, 2:]).flatten().tolist()
        record: Record = {name: None if math.isnan(mean) else mean for name, mean in zip(SCORES, means, strict=True)}
        if config.scoring != "accuracy" and member.validates:
            record["val_score"] = self._score(logits)
        return record

    def _score(self, logits: Tensor | None) -> float | None:
        """What ``scoring`` makes of the logits of all validation rows, which the last workers have; None if nothing."""
        found = torch.full((1,), math.nan, dtype=torch.float64)
        if self.is_last:
            line, y, target = self.team.rows, self.member.validation_targets, self.config.target
            assert logits is not None
            assert y is not None
            counts = line.counts(len(y.t))
            # Numbers are in standard deviations of the training rows, so that all columns count alike.
            predicted = outputs(line.concat(logits, counts).double(), target).cpu()
            value = score(self.config.scoring, line.concat(y.t, counts).cpu(), predicted, target)
            found[0] = math.nan if value is None else value
            found = line.broadcast(found, 0)
        value = float(self.chain.broadcast(found, self.plan.last))
        return None if math.isnan(value) else value

    # Rules

    def _conclude(
        self, epoch: int, records: list[Record], history: list[Record], on_epoch: OnEpoch | None
    ) -> Status | None:
        """Take the records of the epochs up to ``epoch`` into the history: up to one that failed, or else judge them.

        Weights and scores are those after the last epoch, and so are all rules but failures.
        """
        member, patience, status, asked = self.member, self.config.patience, None, Stop.NOBODY
        round = member.round
        assert patience != "auto"
        for number, record in enumerate(records, start=epoch - len(records) + 1):
            of_layers = record.pop("of_layers")
            history.append({"stage": self.number, "stage_epoch": number, "epoch": len(history) + 1, **record})
            if round is not None:
                history[-1] |= {"round": round.number, "agreement": round.agreement, "changed": round.changed}
            if not self._scale:
                # The risk of knowing nothing, log(classes) a row, is the scale on which an objective is large.
                self._scale = max(abs(record["objective"]), member.rows.number * math.log(max(member.classes, 2)))
            status = failure(record, self._scale)
            if status is not None:
                self.message = f"epoch {len(history)}, {_blame(status, of_layers)}"
            elif number == epoch:
                self._select(epoch, record)
                if converged(record, self.config.tolerance):
                    status = Status.CONVERGED
                elif patience is not None and member.validates and epoch - self.best.epoch >= patience:
                    status = Status.EARLY_STOPPED
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

    def _select(self, epoch: int, record: Record) -> None:
        """Keep the weights if they are the best on validation so far: higher score, then lower loss.

        Without validation, or without patience, the newest are the best.
        """
        if not self._selects:
            self.best = Best((0.0, 0.0), epoch, self.worker.weights())
        elif (own := judged(record)) is not None and own > self.best.score:
            self.best = Best(own, epoch, self.worker.weights())

    def _write_checkpoint(self, epoch: int, history: list[Record]) -> None:
        """Write a checkpoint if one is due. ``epoch`` counts within the stage."""
        checkpointing, round = self.member.checkpointing, self.member.round
        if checkpointing is None or not checkpointing.due(len(history)):
            return
        check_replicas(self.team, self.plan, self.worker.layers, len(history))
        self.worker.settle()
        # One at a time: where u is not kept, the tensors of a layer hold a new one.
        layers = (
            (index, layer_tensors(self.worker, place, best))
            for place, (index, best) in enumerate(zip(self.layers, self.best.weights, strict=True))
        )
        state = {
            "stage": self.number, "epoch": epoch, "depth": self.plan.depth,
            "round": 0 if round is None else round.number,
            "chosen": {name: getattr(self.config, name) for name in CHOSEN}, "worker_epochs": self.worker.epochs,
            "best_score": self.best.score, "best_epoch": self.best.epoch, "scale": self._scale, "rate": self._rate,
        }  # fmt: skip
        checkpointing.write(self.team, layers, state, history, None if round is None else round.tensors)


def quantization(config: ModelConfig) -> Quantization:
    """What ``config`` says about quantization."""
    levels = PAPER_LEVELS if config.levels == "paper" else config.levels
    return Quantization(config.quantize != "none", config.quantize == "pq", config.bits or 8, levels)


#: The variable that each column of what is measured of layers is of: fields of Moves, then of Shares.
VARIABLES = ("p", "W", "b", "z", "q", "u", "u", "q")


def _blame(status: Status, of_layers: list[list[float]]) -> str:
    """The layer with the largest share of an objective that exploded; the first variable that is not finite."""
    if status is Status.DIVERGED:
        shares = of_layers[len(Moves._fields)]
        largest = max(range(len(shares)), key=lambda layer: abs(shares[layer]))
        return f"layer {largest + 1} has the largest share of the objective, {shares[largest]:.3g}"
    for variable, values in zip(VARIABLES, of_layers, strict=True):
        for layer, value in enumerate(values, start=1):
            if not math.isfinite(value):
                return f"layer {layer}, variable {variable}"
    return "in the risk"
