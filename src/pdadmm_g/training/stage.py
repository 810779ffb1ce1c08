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
from ..engine.layout import Plan
from ..engine.link import Codec, Link
from ..engine.nonfinite import NonFinite
from ..engine.team import Stop, Traffic
from ..engine.watchdog import check_replicas
from ..engine.worker import Algorithm, Ends, Worker
from ..graph.parts import counts_of
from ..metrics import score
from ..model import outputs
from ..status import Status
from .checkpoint import CHOSEN, Checkpoint, layer_tensors, restore
from .member import Member
from .records import COLUMNS, SCORES, OnEpoch, Record, WorkerRow, converged, failure, judged


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
        self._nonfinite: tuple[int, NonFinite] | None = None
        self._rate = math.inf
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
        objective = self._synchronized([self._measured([])])[0]["objective"]
        self._rate = math.inf  # nothing has moved yet, and that is not a term of the series
        # The risk of knowing nothing, log(classes) a row, is the scale on which an objective is large.
        self._scale = max(abs(objective), member.rows.number * math.log(max(member.classes, 2)))
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
        if self.number == 1:
            outputs, first = [f(layer.z) for layer in layers], self.layers[0] + 1
            _warn_coarse_levels(outputs, after, member.rows, first_layer=first, speaks=self.team.rows.rank == 0)
        return self._worker(layers, [before, *after, None] if self.is_last else [before, *after])

    def _worker(self, layers: list[Layer], boundaries: list[Boundary | None]) -> Worker:
        """Connect the layers to the neighbours."""
        chain, member = self.chain, self.member
        links: list[Link | None] = []
        for boundary, step in ((boundaries[0], -1), (boundaries[-1], 1)):
            if boundary is None:
                links.append(None)
                continue
            p = Codec(boundary.p.shape, self.like, boundary.p_levels)
            q = Codec(boundary.q.shape, self.like, boundary.q_levels)
            out, into, groups = (p, q, (self.team.leftward, None)) if step < 0 else (q, p, (None, self.team.leftward))
            links.append(Link(chain.global_rank(chain.rank + step), out, into, groups))
        X = None if member.training is None else member.training.X
        ends = Ends(member.rows, X, member.targets if self.is_last else None)
        return Worker(layers, boundaries, self.algorithm, ends, left=links[0], right=links[1])

    def _receive_activations(self, rows: int) -> Tensor:
        return self.chain.receive(self.like.new_empty(rows, self.config.width), self.chain.rank - 1)

    # What is measured

    def _epoch(self, number: int) -> Tensor:
        """One epoch, and what this worker measured of it."""
        start = time.perf_counter()
        moves = self.worker.epoch()
        if self.like.is_cuda:
            torch.cuda.synchronize(self.like.device)
        measured = self._measured(moves, time.perf_counter() - start)
        if self._nonfinite is None and not bool(measured.isfinite().all()):
            found = self.worker.nonfinite(moves)
            self._nonfinite = None if found is None else (number, found)
        return measured

    def _measured(self, moves: list[Moves], seconds: float = 0.0) -> Tensor:
        """One row of numbers for the worker, then one for each of its layers, all of the same width."""
        links = (self.worker.left, self.worker.right, self.team.rows)
        traffic = [Traffic() if link is None else link.take_traffic() for link in links]
        waited, packed = (sum(getattr(part, f"{kind}_seconds") for part in traffic) for kind in ("wait", "pack"))
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

    def _synchronized(self, measured: list[Tensor]) -> list[Record]:
        """Put the measurements of all workers together: one record per epoch, the same on every worker."""
        counts, algorithm = [1 + count for count in self.plan.counts], self.algorithm
        everything = self.chain.concat(torch.stack(measured, dim=1), counts)
        records = []
        for epoch in range(len(measured)):
            parts = everything[:, epoch].split(counts)
            workers = [WorkerRow(*part[0, : len(WorkerRow._fields)].tolist()) for part in parts]
            layers = torch.cat([part[1:] for part in parts]).tolist()
            moves = [Moves(*row[: len(Moves._fields)]) for row in layers]
            shares = [Shares(*row[len(Moves._fields) :]) for row in layers]
            nu, rho = algorithm.nu, algorithm.rho
            self._rate = min(self._rate, rate_term(moves, nu=nu, rho=rho, lipschitz=algorithm.activation.lipschitz))
            risk = sum(worker.risk for worker in workers)
            own = [float(share.objective) for share in shares]
            records.append(
                {
                    "objective": risk + sum(own),
                    "risk": risk,
                    "primal_residual": math.sqrt(sum(float(share.gap) for share in shares)),
                    "dual_residual": rho * math.sqrt(sum(float(move.q) for move in moves)),
                    "output_norm": math.sqrt(sum(float(share.output) for share in shares)),
                    "descent": sum(float(move.p + move.W) + nu / 2 * float(move.b + move.z) for move in moves),
                    "c_k": self._rate,
                    "rho": rho,
                    **dict.fromkeys(SCORES),
                    "seconds": max(worker.seconds for worker in workers),
                    "bytes_sent": int(sum(worker.bytes_p + worker.bytes_q + worker.bytes_sums for worker in workers)),
                    "workers": [
                        {
                            "layers": count,
                            "compute_seconds": worker.seconds - worker.wait_seconds - worker.pack_seconds,
                            **{name: getattr(worker, name) for name in ("wait_seconds", "pack_seconds")},
                            **{
                                name: int(getattr(worker, name))
                                for name in ("bytes_p", "bytes_q", "bytes_sums", "values_sent")
                            },
                        }
                        for count, worker in zip(self.plan.counts, workers, strict=True)
                    ],
                    "shares": own,
                }
            )
        return records

    def _evaluated(self) -> Record:
        """Loss and accuracy of the network, as it would predict, on the training and validation nodes.

        Activations pass down the chain; the last worker tells everyone the result.
        """
        member, config, logits = self.member, self.config, []
        targets = [y for y in (member.scored_targets, member.validation_targets) if y is not None]
        self.worker.settle()  # they go the way of q, of which only the size is waited for
        sums = torch.zeros(2, 3, dtype=torch.float64)  # loss, hits and rows, of training and validation
        if self.layers:
            if member.scored is not None:
                parts = [rows.X for rows in (member.scored, member.validation) if rows is not None]
            else:
                parts = [self._receive_activations(len(y.t)) for y in targets]
            logits = [self.worker.forward(x) for x in parts]
            if not self.is_last:
                for x in logits:
                    self.chain.send(x, self.chain.rank + 1)
                logits = []
        for place, (own, y) in enumerate(zip(logits, targets, strict=False)):
            number = y.rows().number
            share = {"classification": y.accuracy, "multilabel": y.subset_accuracy}.get(config.target)
            hits = math.nan if share is None else share(own) * number  # numbers are not right or wrong
            sums[place] = sums.new_tensor([float(self.algorithm.risk(own, y)), hits, number])
        sums = self.team.rows.sum(self.chain.broadcast(sums, self.plan.last))
        record: Record = dict(zip(SCORES, (sums[:, :2] / sums[:, 2:]).flatten().tolist(), strict=True))
        if not member.validates:
            record |= dict.fromkeys(SCORES[2:])
        if config.target == "regression":
            record |= dict.fromkeys(SCORES[1::2])
        if config.scoring != "accuracy" and member.validates:
            record["val_score"] = self._score(logits[1] if logits else None)
        return record

    def _score(self, logits: Tensor | None) -> float | None:
        """What ``scoring`` makes of the logits of all validation rows, which the last workers have; None if nothing."""
        found = torch.full((1,), math.nan, dtype=torch.float64)
        if logits is not None:
            assert self.member.validation_targets is not None
            line, t, target = self.team.rows, self.member.validation_targets.t, self.config.target
            counts = counts_of(line, len(t))
            # Numbers are in standard deviations of the training rows, so that all columns count alike.
            predicted = outputs(line.concat(logits, counts).double(), target).cpu()
            value = score(self.config.scoring, line.concat(t, counts).cpu(), predicted, target)
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
            shares = record.pop("shares")
            history.append({"stage": self.number, "stage_epoch": number, "epoch": len(history) + 1, **record})
            if round is not None:
                history[-1] |= {"round": round.number, "agreement": round.agreement, "changed": round.changed}
            status = failure(record, self._scale)
            if status is not None:
                self.message = f"epoch {len(history)}, {self._blame(status, shares)}"
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

    def _blame(self, status: Status, shares: list[float]) -> str:
        """The layer with the largest share of an objective that exploded; the layer and variable that broke.

        Of what the workers found, the earliest counts, then what a step read before what was left after an epoch.
        """
        if status is Status.DIVERGED:
            largest = max(range(len(shares)), key=lambda layer: abs(shares[layer]))
            return f"layer {largest + 1} has the largest share of the objective, {shares[largest]:.3g}"
        row = [math.inf] * 4
        if self._nonfinite is not None:
            epoch, found = self._nonfinite
            row = [epoch, found.hindsight, found.place, found.layer + self.layers.start]
        rows = self.chain.concat(torch.tensor([row], dtype=torch.float64), [1] * self.chain.size)
        rows = self.team.rows.concat(rows, [len(rows)] * self.team.rows.size)
        epoch, *numbers = min(rows.tolist())
        if math.isinf(epoch):
            return "in the risk"
        found = NonFinite(*map(int, numbers))
        return f"layer {found.layer + 1}, variable {found.variable}"

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
            "stage": self.number, "epoch": epoch, "depth": self.plan.depth, "shards": self.team.rows.size,
            "round": 0 if round is None else round.number,
            "chosen": {name: getattr(self.config, name) for name in CHOSEN}, "worker_epochs": self.worker.epochs,
            "best_score": self.best.score, "best_epoch": self.best.epoch, "scale": self._scale, "rate": self._rate,
        }  # fmt: skip
        checkpointing.write(self.team, layers, state, history, None if round is None else round.tensors)


def quantization(config: ModelConfig) -> Quantization:
    """What ``config`` says about quantization."""
    levels = PAPER_LEVELS if config.levels == "paper" else config.levels
    return Quantization(config.quantize != "none", config.quantize == "pq", config.bits or 8, levels)


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
