"""A worker: a contiguous run of layers, and the one epoch function of the package.

A worker with the whole chain and no links is serial training. Otherwise the boundaries at the worker's two ends are
shared with its neighbours, each of whom keeps a copy: the left worker updates q and sends it, the right one updates p
and sends it, and both update u from the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..admm.activations import Activation
from ..admm.diagnostics import Moves, Shares, layer_terms
from ..admm.levels import Levels
from ..admm.risks import Risk
from ..admm.rows import Rows
from ..admm.state import Boundary, Layer, Weights, keeps_u
from ..admm.sums import column_sums, squared_norm, sum_up
from ..admm.targets import Targets
from ..admm.updates import (
    Gram,
    Step,
    W_exact,
    W_inverse,
    W_linearized,
    W_preconditioned,
    at_once,
    b_decrement,
    gram,
    is_kernel_smaller,
    p_exact,
    p_inverse,
    p_linearized,
    p_preconditioned,
    p_quantized,
    u_implied,
)
from . import phases
from .backends import backend_for
from .cuda_graph import RecordedEpoch
from .culprit import Culprit, Lookout, tainted
from .link import Link
from .phases import BoundarySums, StepSums, WeightSums
from .precision import Precision, add_product
from .row_sums import one_after_the_other, taking_turns
from .stacking import Group, grouped, layer_by_layer
from .workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """The hyperparameters that every layer shares and that stay the same while it trains, and how to compute."""

    activation: Activation
    risk: Risk
    solver: Literal["linearized", "exact"]
    #: Weight of the relaxed constraints z = p W^T + b and q = f(z).
    nu: float
    #: Weight of the constraint p = q.
    rho: float
    #: Weight decay toward the anchors.
    mu: float
    #: Of the products of an epoch's large matrices.
    precision: Precision = "fp32"

    @property
    def keeps_r_short(self) -> bool:
        """Is r kept in bfloat16? All that the linearized steps read of it are products that round it so.

        z + r is then off by a rounding error of r, not of z, and the objective still falls (benchmarks/precision.py).
        Of z, whose moves may be smaller than such an error, it would cost a tenth of the descent.
        """
        return self.precision == "bf16" and self.solver == "linearized"


class Ends(NamedTuple):
    """What a worker has of the data: all of them the rows, and those at the ends of the chain what enters there."""

    #: The training rows, of which every worker knows the number and the weights.
    rows: Rows
    #: Their features (rows, features), with the first layer.
    X: Tensor | None = None
    #: What they should become, with the last layer.
    targets: Targets | None = None


class _PStep(NamedTuple):
    """What a p-step leaves for the steps after it."""

    descent: Tensor
    #: The column sums of r over the rows that are here.
    sums: Tensor


class _Rest(NamedTuple):
    """What the steps after a group's p-step measured."""

    #: The squared movement of b, and the descent of the W-step.
    b: Tensor
    W: Tensor
    weights: WeightSums
    #: Over the rows that are here.
    step: StepSums


class Worker:
    """Layers of the chain, the boundaries between and beside them, and the data that enter at the chain's ends.

    ``boundaries[i]`` is to the left of ``layers[i]`` and ``boundaries[i + 1]`` to its right; None stands at the two
    ends of the chain. A worker may have no layers. Layers and boundaries are changed in place.
    """

    #: Recompute r from scratch every so many epochs; what it drifts by in between is rounding (see the tests). Once
    #: it is taken out, the objective may be seen to rise by it (docs/algorithm.md).
    refresh_every = 100
    #: For layers of so many weights and more the exact solver inverts matrices only every so many epochs; in between
    #: it takes the best step in the direction that the old inverse gives. For smaller ones it solves in every epoch.
    large, invert_every = 64 * 64, 10

    def __init__(
        self,
        layers: list[Layer],
        boundaries: list[Boundary | None],
        algorithm: Algorithm,
        ends: Ends,
        *,
        left: Link | None = None,
        right: Link | None = None,
    ) -> None:
        assert len(boundaries) == len(layers) + 1
        assert (left is None) or (boundaries[0] is not None)
        assert (right is None) or (boundaries[-1] is not None)
        self.layers = layers
        self.boundaries = boundaries
        self.algorithm = algorithm
        self.ends = ends
        self.rows = ends.rows
        self.left = left
        self.right = right
        #: Epochs since the state was made, which tells when r is due for a refresh.
        self.epochs = 0
        #: The diagnostics at the end of the last epoch, layer by layer; empty before the first.
        self.measured: list[Shares] = []
        like = layers[0].W if layers else None
        self._on_gpu = like is not None and like.is_cuda
        self._run = backend_for(torch.device("cpu") if like is None else like.device)
        # On a CPU a sum over blocks of rows would be another than that over all of them.
        self._summed: Callable[..., Any] = self._run if self._on_gpu else at_once
        if algorithm.keeps_r_short:
            for layer in layers:
                layer.r = layer.r.bfloat16()
        self._groups = grouped(layers, boundaries, algorithm.activation, stack=self.rows.whole)
        # Where others have rows too, the p-step of a group runs while another waits for them: each has its memory.
        works = [Workspace(algorithm.precision, algorithm.solver, like) for _ in range(1 if self.rows.whole else 2)]
        self._works = {group.start: works[place % len(works)] for place, group in enumerate(self._groups)}
        #: By group, between large layers on a GPU: what the boundary before it adds to the gradient of p. The pass that
        #: has p, q and u at hand writes it, so that the product r W is added to it and nothing is read again.
        self._pulls = {
            group.start: self._pull(group, group.before)
            for group in self._groups[1:]
            if algorithm.precision == "bf16" and group.before is not None and not keeps_u(group.before.p)
        }
        self._both = one_after_the_other if self.rows.whole else taking_turns
        self._lookout = Lookout()
        self._first_gram: Gram | None = None
        self._recorded = RecordedEpoch() if RecordedEpoch.suits(self) else None

    @classmethod
    def whole_chain(
        cls,
        layers: list[Layer],
        inner: list[Boundary],
        algorithm: Algorithm,
        *,
        X: Tensor,
        targets: Targets,
    ) -> Worker:
        """The worker that owns every layer."""
        return cls(layers, [None, *inner, None], algorithm, Ends(targets.rows(), X, targets))

    def epoch(self) -> list[Moves]:
        """One epoch of Algorithm 1 on this worker's layers. Returns what moved, layer by layer.

        With a link to the left, the q of this epoch is still on its way when the epoch ends; the next p-phase, or
        :meth:`settle`, takes it in.
        """
        with torch.cuda.device(self.layers[0].W.device) if self._on_gpu else nullcontext():
            moves, self.measured = self.run_epoch() if self._recorded is None else self._recorded(self)
            self.epochs += 1
            if self.epochs % self.refresh_every == 0:
                self.refresh()
            return moves

    def run_epoch(self) -> tuple[list[Moves], list[Shares]]:
        """The steps of :meth:`epoch`, one after the other; the lines are those of :mod:`pdadmm_g.admm.algorithm1`.

        A layer's p, W, b and z depend on nothing that the other layers change before their q-steps, and q_l on nothing
        of layer l + 1 but its p. So groups go from the last to the first, each with its q and u at once. The neighbour
        to the left waits for the p of the first layer, which therefore comes before everything else. Where other
        processes have rows too, the p-step of a group is made while the group before it waits for their sums.
        """
        if self.right is not None:
            self.right.expect()
        early = None
        if self.left is not None:
            early = self._update_p(self._groups[0])  # line 3
            assert self.boundaries[0] is not None
            self.left.send(self.boundaries[0].p)
            self.left.expect()
        order = self._groups[::-1]
        p_steps, rests = self._p_steps(order[:1], early), []  # line 3: p
        for place, group in enumerate(order, start=1):
            rest, following = self._both(
                partial(self._update_rest, group, p_steps[-1]),  # lines 4 to 9: W, b, z, q, p - q, u
                partial(self._p_steps, order[place : place + 1], early),
            )
            rests.append(rest)
            p_steps += following
        return self._measured(p_steps[::-1], rests[::-1])

    def settle(self) -> None:
        """Take in the q that is on its way, so that this worker's copy of its left boundary is complete."""
        if self.left is not None and self.left.expecting:
            boundary = self.boundaries[0]
            assert boundary is not None
            boundary.q.copy_(self.left.receive())
            self._run(phases.dual, boundary.u, boundary.p, boundary.q, rho=self.algorithm.rho)

    def refresh(self) -> None:
        """Recompute every residual, r = p W^T + b - z."""
        for index, layer in enumerate(self.layers):
            out = layer.r if layer.r.dtype is layer.z.dtype else None
            torch.sub(torch.addmm(layer.b, self.input(index), layer.W.T, out=out), layer.z, out=layer.r)

    def input(self, place: int) -> Tensor:
        """p of a layer, which is X for the first layer of the chain."""
        return self._p(self.boundaries[place])

    def u(self, place: int) -> Tensor:
        """The dual variable of the boundary to the right of a layer, whether it is kept or not."""
        boundary = self.boundaries[place + 1]
        assert boundary is not None
        if boundary.u is not None:
            return boundary.u
        return u_implied(boundary.q, self.algorithm.activation(self.layers[place].z), nu=self.algorithm.nu)

    def shares(self) -> list[Shares]:
        """The diagnostics of the state as it is, layer by layer."""
        settings = {"f": self.algorithm.activation, "nu": self.algorithm.nu, "rho": self.algorithm.rho}
        result = []
        for group in self._groups:
            layer, after = group.layer, group.after
            rr, decay = self.rows.squared_norm(layer.r), squared_norm(layer.W - layer.W0)
            between = BoundarySums(*[rr.new_zeros(len(rr))] * 3)
            if after is not None:
                tensors = (after.p, after.q, after.u, layer.z, self.rows.weights)
                between = BoundarySums(*self.rows.totals(*self._run(phases.measure_boundary, *tensors, **settings)))
            result.append(self._shares(layer, rr, WeightSums(decay, sum_up(layer.W)), between))
        return layer_by_layer(Shares, result)

    def culprit(self, moves: Sequence[Moves]) -> Culprit | None:
        """Where the NaN or infinity came from that an epoch with these ``moves`` measured; None if not from here."""
        return self._lookout.culprit(self, moves)

    def risk(self) -> Tensor:
        """R(z_L; y), on the worker that owns the last layer."""
        assert self.ends.targets is not None
        return self.rows.total(self.algorithm.risk(self.layers[-1].z, self.ends.targets))

    def forward(self, x: Tensor) -> Tensor:
        """Pass activations through this worker's layers, as the trained network does."""
        for layer, after in zip(self.layers, self.boundaries[1:], strict=True):
            x = torch.addmm(layer.b, x, layer.W.T)
            if after is not None:
                x = self.algorithm.activation(x)
        return x

    def weights(self) -> list[Weights]:
        """A copy of the parameters as they are now, which nothing that happens to them later can spoil."""
        return [Weights(layer.W.clone(), layer.b.clone(), layer.W0) for layer in self.layers]

    def _p(self, before: Boundary | None) -> Tensor:
        if before is not None:
            return before.p
        assert self.ends.X is not None
        return self.ends.X

    def _p_steps(self, groups: list[Group], early: _PStep | None) -> list[_PStep]:
        """The p-step of each group, unless that of the first one was made ``early``."""
        return [early if early is not None and group.start == 0 else self._update_p(group) for group in groups]

    def _update_p(self, group: Group) -> _PStep:
        layer, before, place = group.layer, group.before, group.start
        if before is None:
            return _PStep(layer.W.new_zeros(len(layer.W)), column_sums(layer.r, self.rows.weights))
        run, work, rows = self._run, self._works[place], self.rows
        g, gg = self._p_gradient(group, before)
        inputs = {"p": before.p, "W": layer.W, "q": before.q, "u": before.u}
        self._lookout.look(gg, place, inputs, of_layer_before="qu")
        step = self._p_step(group, before.p, g, gg, out=work.write("gWt", place, layer.r.shape))
        work.check("g", place)
        run(phases.move, before.p, step.direction, work.copy_of("p", place, before.p),
            length=step.length, levels=group.p_levels)  # fmt: skip
        work.check("gWt", place)
        copy = work.copy_of("r", place, layer.r)
        sums = run(phases.move_and_sum, layer.r, step.product, copy, rows.weights, length=step.length)
        return _PStep(step.descent, sums)

    def _p_gradient(self, group: Group, before: Boundary) -> tuple[Tensor, Tensor]:
        """The gradient of p and its squared norm, over the rows that are here."""
        layer, work, place, nu = group.layer, self._works[group.start], group.start, self.algorithm.nu
        r, pull = work.rounded("r", layer.r), self._pulls.get(place)
        if pull is not None:
            add_product(pull, r, layer.W, alpha=nu)
            return work.adopt("g", place, pull), squared_norm(pull, self.rows.weights)
        g = work.mm(r, layer.W, out=work.write("g", place, before.p.shape))
        if place == 0:
            self.settle()
        state = (before.p, before.q, before.u, group.z_before, self.rows.weights)
        return g, self._run(phases.gradient, g, *state, f=self.algorithm.activation, nu=nu, rho=self.algorithm.rho)

    def _pull(self, group: Group, before: Boundary) -> Tensor:
        f, nu, rho = self.algorithm.activation, self.algorithm.nu, self.algorithm.rho
        return phases.pull(before.p, before.q, before.u, group.z_before, f=f, nu=nu, rho=rho).bfloat16()

    def _p_step(self, group: Group, p: Tensor, g: Tensor, gg: Tensor, *, out: Tensor) -> Step:
        nu, rho, rows, W, mm = (
            self.algorithm.nu,
            self.algorithm.rho,
            self.rows,
            group.layer.W,
            self._works[group.start].mm,
        )
        if group.p_levels is not None:
            tries = None if self._recorded is None else RecordedEpoch.tries
            # A move by 255 steps at most is off by less than half a step, and p is projected again.
            short = isinstance(group.p_levels, Levels) and group.p_levels.bits <= 8
            d = torch.empty_like(g if short else p)
            return p_quantized(
                p, W, g, group.p_levels, nu=nu, rho=rho, rows=rows, out=out, gg=gg, tries=tries, d=d, summed=self._run,
                mm=mm,
            )  # fmt: skip
        if self.algorithm.solver == "exact":
            if not self.is_large(W):
                return p_exact(W, g, nu=nu, rho=rho, rows=rows, out=out, mm=mm)
            inverse = self._inverse(group, "p_inverse", partial(p_inverse, W, nu=nu, rho=rho))
            return p_preconditioned(W, g, inverse, nu=nu, rho=rho, rows=rows, out=out, mm=mm)
        return p_linearized(W, g, nu=nu, rho=rho, rows=rows, out=out, gg=gg, mm=mm)

    def _update_rest(self, group: Group, p_step: _PStep) -> _Rest:
        """All steps of a group after its p-step."""
        step, weights = self._update_W(group, p_step.sums)  # line 4: W
        decrement = self._update_b(group, step)  # line 5: b
        measured = self._update_z_q_u(group, step, decrement)  # lines 6 to 9: z, q, p - q, u
        self._works[group.start].done(group.start)
        return _Rest(squared_norm(decrement), step.descent, weights, measured)

    def _update_W(self, group: Group, found: Tensor) -> tuple[Step, WeightSums]:
        """The W-step, and what is measured of W. ``found`` are the column sums of r, over the rows that are here."""
        nu, mu, rows, run, work = self.algorithm.nu, self.algorithm.mu, self.rows, self._run, self._works[group.start]
        layer, place = group.layer, group.start
        p = self._p(group.before).view(*layer.r.shape[:2], -1)  # X has no leading dimension
        W, W0 = layer.W, layer.W0
        if self.algorithm.solver == "exact":
            columns = work.kept_copy("p", place, p)
            out = work.write("pGt", place, layer.r.shape)
            if group.before is not None and self.is_large(W) and not is_kernel_smaller(p, rows):
                step = self._W_preconditioned(group, p, p if columns is None else columns, found, out)
                return step, run(phases.move_weights, W, step.direction, W0, length=step.length)
            factor = self._gram(group, p if columns is None else columns)
            step = W_exact(
                W, W0, p, layer.r, nu=nu, mu=mu, rows=rows, factor=factor, columns=columns, out=out, found=found,
                mm=work.mm,
            )  # fmt: skip
        else:
            p, r = work.factor("p", place, p), work.factor("r", place, layer.r)
            G = rows.product(r, p, work.mm)
            GG = run(phases.weight_gradient, G, W, W0, nu=nu, mu=mu)
            out = work.write("pGt", place, layer.r.shape)
            step = W_linearized(
                p, G, nu=nu, mu=mu, rows=rows, out=out, GG=GG, found=found, summed=self._summed, mm=work.mm
            )
        return step, run(phases.move_weights, W, step.direction, W0, length=step.length)

    def is_large(self, W: Tensor) -> bool:
        """Does the exact solver keep inverses for layers of this shape?"""
        return W.shape[-2] * W.shape[-1] >= self.large

    @property
    def inverts(self) -> bool:
        """Are the inverses that the exact solver keeps made anew in the epoch that comes next?"""
        return self.epochs % self.invert_every == 0

    def _W_preconditioned(self, group: Group, p: Tensor, columns: Tensor, found: Tensor, out: Tensor) -> Step:
        """The exact W-step of a large layer; ``columns`` is p in whichever order of memory suits sums over rows."""
        nu, mu, rows, work = self.algorithm.nu, self.algorithm.mu, self.rows, self._works[group.start]
        layer = group.layer
        invert = partial(W_inverse, columns, nu=nu, mu=mu, rows=rows, mm=work.gram_mm)
        inverse = self._inverse(group, "W_inverse", invert)
        G = rows.product(layer.r, columns, work.mm)
        self._run(phases.weight_gradient, G, layer.W, layer.W0, nu=nu, mu=mu)
        return W_preconditioned(
            G, p, inverse, nu=nu, mu=mu, rows=rows, out=out, found=found, summed=self._summed, mm=work.mm,
            gram_mm=work.gram_mm,
        )  # fmt: skip

    def _inverse(self, group: Group, name: str, invert: Callable[[], Tensor]) -> Tensor:
        """The inverse that the group has, made anew where it is due; in the same place, for recorded epochs."""
        kept: Tensor | None = getattr(group.layer, name)
        if kept is None:
            kept = invert()
            setattr(group.layer, name, kept)
            for layer, inverse in zip(self.layers[group.start :], kept, strict=False):
                setattr(layer, name, inverse)
        elif self.inverts:
            kept.copy_(invert())
        return kept

    def _gram(self, group: Group, p: Tensor) -> Gram:
        """What the exact W-step inverts. p_1 = X never changes, so neither does its factor."""
        if group.before is None and self._first_gram is not None:
            return self._first_gram
        mm = self._works[group.start].gram_mm
        factor = gram(p, nu=self.algorithm.nu, mu=self.algorithm.mu, rows=self.rows, mm=mm)
        self._first_gram = factor if group.before is None else self._first_gram
        return factor

    def _update_b(self, group: Group, step: Step) -> Tensor:
        """The b-step: what b has lost."""
        assert step.left is not None
        decrement = b_decrement(step.left, self.rows)
        group.layer.b -= decrement
        return decrement

    def _update_z_q_u(self, group: Group, step: Step, decrement: Tensor) -> StepSums:
        """The z-step; and, except after the last layer, the q- and u-steps in the same pass over memory."""
        layer, after, rows = group.layer, group.after, self.rows
        self._works[group.start].check("pGt", group.start)
        if after is None:
            return self._update_last_z(layer, step, decrement)
        link = self.right if group is self._groups[-1] else None
        if link is not None:
            after.p[-1].copy_(link.receive())
        pull = self._pulls.get(group.start + len(layer.W))
        state = (layer.z, layer.r, step.product, after.q, after.u, after.p, pull)
        measured = self._run(
            phases.z_q_u, *state, rows.weights, length=step.length, decrement=decrement, f=self.algorithm.activation,
            nu=self.algorithm.nu, rho=self.algorithm.rho, levels=group.q_levels,
        )  # fmt: skip
        if link is not None:
            link.send(after.q[-1])
        self._lookout.look(measured.q_old, group.start, {"q": measured.q_old})
        return measured

    def _update_last_z(self, layer: Layer, step: Step, decrement: Tensor) -> StepSums:
        """z_L, after which there is neither q nor u."""
        assert self.ends.targets is not None
        m = phases.pre_activation(layer.z, layer.r, step.product, length=step.length, decrement=decrement)
        z_new = self.algorithm.risk.argmin_z(m[0], self.ends.targets, self.algorithm.nu, layer.z[0])[None]
        z_move = squared_norm(z_new - layer.z, self.rows.weights)
        layer.z.copy_(z_new)
        torch.sub(m, layer.z, out=layer.r)
        rr = squared_norm(layer.r, self.rows.weights)
        return StepSums(z_move, rr, *[torch.zeros_like(rr)] * 5)

    def _measured(self, p_steps: list[_PStep], rests: list[_Rest]) -> tuple[list[Moves], list[Shares]]:
        """What the steps of the groups measured, over all rows and layer by layer."""
        totals = iter(self.rows.totals(*(part for rest in rests for part in rest.step)))
        moves, shares = [], []
        for group, p_step, rest in zip(self._groups, p_steps, rests, strict=True):
            step = StepSums(*islice(totals, len(rest.step)))
            moves.append(Moves(p_step.descent, rest.W, rest.b, step.z_move, step.q_move))
            shares.append(self._shares(group.layer, step.r, rest.weights, step.boundary))
        return layer_by_layer(Moves, moves), layer_by_layer(Shares, shares)

    def _shares(self, layer: Layer, rr: Tensor, weights: WeightSums, between: BoundarySums) -> Shares:
        own = layer_terms(rr, weights.decay, nu=self.algorithm.nu, mu=self.algorithm.mu)
        objective = tainted(own + between.share, weights.W, layer.b.sum((-2, -1)))
        return Shares(objective, between.gap, between.output)
