"""A worker: a contiguous run of layers, and the one epoch function of the package.

A worker with the whole chain and no links is serial training. Otherwise the boundaries at the worker's two ends are
shared with its neighbours, each of whom keeps a copy: the left worker updates q and sends it, the right one updates p
and sends it, and both update u from the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..admm.activations import Activation, Smooth
from ..admm.diagnostics import Moves, Shares, boundary_shares
from ..admm.levels import Levels
from ..admm.risks import Risk, Targets
from ..admm.rows import Rows, column_sums, squared_norm
from ..admm.state import Boundary, Layer, Weights, keeps_u
from ..admm.updates import (
    Gram,
    Step,
    W_exact,
    W_inverse,
    W_linearized,
    at_once,
    b_decrement,
    gram,
    is_kernel_smaller,
    p_exact,
    p_inverse,
    p_linearized,
    p_quantized,
    u_implied,
)
from . import phases
from .link import Link
from .phases import StepSums, WeightSums, backend_for
from .precision import Precision, Workspace, add_product
from .stacking import Group, grouped

#: On a GPU an epoch of layers with up to so many activations is recorded as a CUDA graph, after so many plain ones, in
#: which libraries set themselves up: launching hundreds of kernels takes longer than running them.
RECORDED, PLAIN = 1 << 24, 3
#: Lengths that a quantized p-step of a recorded epoch tries: it cannot look whether the first will do. More are hardly
#: ever needed.
TRIES = 3
#: The order in which an epoch passes NaN on within a layer. u comes before q: a broken u breaks q in the same epoch,
#: while a broken q does not outlive it.
ORDER = ("p", "W", "b", "z", "u", "q")


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


class Ends(NamedTuple):
    """What a worker has of the data: all of them the rows, and those at the ends of the chain what enters there."""

    #: The training rows, of which every worker knows the number and the weights.
    rows: Rows
    #: Their features (rows, features), with the first layer.
    X: Tensor | None = None
    #: What they should become, with the last layer.
    targets: Targets | None = None


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
        self.layers = layers
        self.boundaries = boundaries
        self.algorithm = algorithm
        self.ends = ends
        self.rows = ends.rows
        self.left = left
        self.right = right
        self.f, self.nu, self.rho, self.mu = algorithm.activation, algorithm.nu, algorithm.rho, algorithm.mu
        #: What every phase of a boundary is given.
        self._given: dict[str, Any] = {"f": self.f, "nu": self.nu, "rho": self.rho}
        #: Epochs since the state was made, which tells when r is due for a refresh.
        self.epochs = 0
        like = layers[0].W if layers else torch.empty(0)
        self._run = backend_for(like.device)
        # On a CPU a sum over blocks of rows would be another than that over all of them.
        self._summed: Callable[..., Any] = self._run if like.is_cuda else at_once
        if algorithm.precision == "bf16" and algorithm.solver == "linearized":
            # All that the linearized steps read of r are products that round it so. z + r is then off by a rounding
            # error of r, not of z, and the objective still falls (benchmarks/precision.py). Of z, whose moves may be
            # smaller than such an error, it would cost a tenth of the descent.
            for layer in layers:
                layer.r = layer.r.bfloat16()
        self._groups = grouped(layers, boundaries, self.f, stack=self.rows.whole)
        self._work = Workspace(algorithm.precision, algorithm.solver, like)
        #: By group, between large layers on a GPU: what the boundary before it adds to the gradient of p. The pass that
        #: has p, q and u at hand writes it, so that the product r W is added to it and nothing is read again.
        self._pulls = {
            group.start: phases.pull(*group.read_by_p(), **self._given).bfloat16()
            for group in self._groups[1:]
            if algorithm.precision == "bf16" and group.before is not None and not keeps_u(group.before.p)
        }
        self._first_gram: Gram | None = None
        #: Whether epochs are recorded: those of the whole chain and all rows on a GPU, without a step that looks at a
        #: value, as the smooth activations do, and without sums that other processes take part in.
        self.records = (
            like.is_cuda and self.rows.whole and left is None and right is None and not isinstance(self.f, Smooth)
            and all(layer.z.numel() <= RECORDED for layer in layers)
        )  # fmt: skip
        #: Of each plain epoch, and of each recording: does it invert what the exact solver keeps?
        self._plain: list[bool] = []
        self._recordings: dict[bool, tuple[torch.cuda.CUDAGraph, tuple[Moves, Shares]]] = {}
        #: The diagnostics at the end of the last epoch.
        self.measured: Shares | None = None

    def epoch(self) -> Moves:
        """One epoch of Algorithm 1 on this worker's layers. Returns what moved, one number a layer.

        With a link to the left, the q of this epoch is still on its way when the epoch ends; the next p-phase, or
        :meth:`settle`, takes it in.
        """
        on_gpu = bool(self.layers) and self.layers[0].W.is_cuda
        with torch.cuda.device(self.layers[0].W.device) if on_gpu else nullcontext():
            moves, self.measured = self._recorded_epoch() if self.records else self.run_epoch()
            self.epochs += 1
            if self.epochs % self.refresh_every == 0:
                self.refresh()
            return moves

    def _recorded_epoch(self) -> tuple[Moves, Shares]:
        """The epoch from its recording, which needs every tensor in the same place in every epoch."""
        inverts = self.algorithm.solver == "exact" and self.inverts
        if len(self._plain) < PLAIN or inverts not in self._plain:
            self._plain.append(inverts)
            return self.run_epoch()
        if inverts not in self._recordings:
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):  # which changes nothing yet
                self._recordings[inverts] = graph, self.run_epoch()
        graph, result = self._recordings[inverts]
        graph.replay()
        return result

    def run_epoch(self) -> tuple[Moves, Shares]:
        """The steps of :meth:`epoch`, one after the other; the lines are those of :mod:`pdadmm_g.admm.algorithm1`.

        A layer's p, W, b and z depend on nothing that the other layers change before their q-steps, and q_l on nothing
        of layer l + 1 but its p. So groups go from the last to the first, each with its q and u at once. The neighbour
        to the left waits for the p of the first layer, which therefore comes before everything else.
        """
        if self.right is not None:
            self.right.expect()
        sent = None
        if self.left is not None:
            sent = self._update_p(self._groups[0])  # line 3: p
            self.left.send(self.input(0))
            self.left.expect()
        # What a step moves p and W by, and what is measured of b, W and the rest; by group.
        found: list[list[Tensor]] = []
        for group in reversed(self._groups):
            # Line 3, then lines 4 to 9: W, b, z, q, p - q, u.
            descent, sums = sent if sent is not None and group is self._groups[0] else self._update_p(group)
            found.insert(0, [descent, *self._update_rest(group, sums)])
        if not found:
            return Moves(*[torch.empty(0)] * 5), Shares(*[torch.empty(0)] * 3)
        p, W, b, decay, parameters, *parts = map(torch.cat, zip(*found, strict=True))
        step = StepSums(*self.rows.totals(*parts))
        objective = self.nu / 2 * step.r + self.mu / 2 * decay + step.share
        # r is kept, not recomputed, and so hides a NaN in W or b; zero times their sum does not.
        shares = Shares(objective + 0 * parameters, step.gap, step.output)
        return Moves(p, W, b, step.z_move, step.q_move), shares

    def settle(self) -> None:
        """Take in the q that is on its way, so that this worker's copy of its left boundary is complete."""
        boundary = self.boundaries[0]
        if self.left is not None and self.left.expecting and boundary is not None:
            boundary.q.copy_(self.left.receive())
            self._run(phases.dual, boundary.u, boundary.p, boundary.q, rho=self.rho)

    def refresh(self) -> None:
        """Recompute every residual, r = p W^T + b - z."""
        for place, layer in enumerate(self.layers):
            out = layer.r if layer.r.dtype is layer.z.dtype else None
            torch.sub(torch.addmm(layer.b, self.input(place), layer.W.T, out=out), layer.z, out=layer.r)

    def input(self, place: int) -> Tensor:
        """p of a layer, which is X for the first layer of the chain."""
        before = self.boundaries[place]
        p = self.ends.X if before is None else before.p
        assert p is not None
        return p

    def u(self, place: int) -> Tensor:
        """The dual variable of the boundary to the right of a layer, whether it is kept or not."""
        boundary = self.boundaries[place + 1]
        assert boundary is not None
        return u_implied(boundary.q, self.f(self.layers[place].z), nu=self.nu) if boundary.u is None else boundary.u

    def shares(self) -> Shares:
        """The diagnostics of the state as it is."""
        found, weights = [], self.rows.weights
        for place, (layer, after) in enumerate(zip(self.layers, self.boundaries[1:], strict=True)):
            rr = squared_norm(layer.r, weights)
            between = [torch.zeros_like(rr)] * 3
            if after is not None:
                tensors = (after.p - after.q, after.q, self.u(place), self.f(layer.z), weights)
                between = list(boundary_shares(*tensors, nu=self.nu, rho=self.rho))
            rr, share, gap, output = self.rows.totals(rr, *between)
            objective = self.nu / 2 * rr + self.mu / 2 * squared_norm(layer.W - layer.W0) + share
            found.append(torch.stack([objective, gap, output]))
        return Shares(*torch.stack(found, dim=1))

    def nonfinite(self, moves: Moves) -> tuple[int, int] | None:
        """Which variable is not finite after an epoch with these ``moves``: its place in ``ORDER``, and the layer.

        The first in that order, of the first such layer; None if none is. A q whose move or norm overflows is none.
        """
        assert self.measured is not None
        found = []
        for index, layer in enumerate(self.layers):
            after = self.boundaries[index + 1]
            outputs = () if after is None else (self.u(index), after.q)
            state = (self.input(index), layer.W, layer.b, layer.z, *outputs)
            found += [(place, index) for place, x in enumerate(state) if not bool(x.isfinite().all())]
            if not bool((moves.q[index] + self.measured.output[index]).isfinite()):
                found.append((ORDER.index("q"), index))
        return min(found, default=None)

    def risk(self) -> Tensor:
        """R(z_L; y), on the worker that owns the last layer."""
        assert self.ends.targets is not None
        return self.rows.total(self.algorithm.risk(self.layers[-1].z, self.ends.targets))

    def forward(self, x: Tensor) -> Tensor:
        """Pass activations through this worker's layers, as the trained network does."""
        for layer, after in zip(self.layers, self.boundaries[1:], strict=True):
            x = torch.addmm(layer.b, x, layer.W.T)
            if after is not None:
                x = self.f(x)
        return x

    def weights(self) -> list[Weights]:
        """A copy of the parameters as they are now, which nothing that happens to them later can spoil."""
        return [Weights(layer.W.clone(), layer.b.clone(), layer.W0) for layer in self.layers]

    def _update_p(self, group: Group) -> tuple[Tensor, Tensor]:
        layer, before, place, weights = group.layer, group.before, group.start, self.rows.weights
        if before is None:
            return layer.W.new_zeros(len(layer.W)), column_sums(layer.r, weights)
        work = self._work
        r, g = work.rounded("r", layer.r), self._pulls.get(place)
        if g is not None:
            add_product(g, r, layer.W, alpha=self.nu)
            gg = squared_norm(g, weights)
        else:
            g = work.mm(r, layer.W, out=work.write("wide", before.p.shape))
            if place == 0:
                self.settle()
            gg = self._run(phases.gradient, g, *group.read_by_p(), weights, **self._given)
        step = self._p_step(group, before.p, g, gg, out=work.write("product", layer.r.shape))
        p_copy = work.copy_of("p", place, before.p)
        self._run(phases.move, before.p, step.direction, p_copy, length=step.length, levels=group.p_levels)
        r_copy = work.copy_of("r", place, layer.r)
        sums = self._run(phases.move_and_sum, layer.r, step.product, r_copy, weights, length=step.length)
        return step.descent, sums

    def _p_step(self, group: Group, p: Tensor, g: Tensor, gg: Tensor, *, out: Tensor) -> Step:
        W, mm, nu, rho, rows = group.layer.W, self._work.mm, self.nu, self.rho, self.rows
        if group.p_levels is not None:
            tries = TRIES if self.records else None
            # A move by 255 steps at most is off by less than half a step, and p is projected again.
            short = isinstance(group.p_levels, Levels) and group.p_levels.bits <= 8
            d = torch.empty_like(g if short else p)
            return p_quantized(
                p, W, g, group.p_levels, nu=nu, rho=rho, rows=rows, out=out, gg=gg, tries=tries, d=d, summed=self._run,
                mm=mm,
            )  # fmt: skip
        inverse = None
        if self.algorithm.solver == "exact":
            if not self.is_large(W):
                return p_exact(W, g, nu=nu, rho=rho, rows=rows, out=out, mm=mm)
            inverse = self._inverse(group, "p_inverse", partial(p_inverse, W, nu=nu, rho=rho))
        return p_linearized(W, g, inverse, nu=nu, rho=rho, rows=rows, out=out, gg=gg, mm=mm)

    def _update_rest(self, group: Group, found: Tensor) -> list[Tensor]:
        """All steps of a group after its p-step, which found these column sums of r here, over the rows that are here.

        Returns the descent of W, the move of b, |W - W0|^2, the sum of W and b, and the fields of :class:`StepSums`.
        """
        layer = group.layer
        step = self._W_step(group, found)
        weights: WeightSums = self._run(phases.move_weights, layer.W, step.direction, layer.W0, length=step.length)
        assert step.left is not None
        decrement = b_decrement(step.left, self.rows)
        layer.b -= decrement
        measured = self._update_z_q_u(group, group.after, step, decrement)
        parameters = layer.b.sum((-2, -1)) + weights.W
        return [step.descent, squared_norm(decrement), weights.decay, parameters, *measured]

    def _W_step(self, group: Group, found: Tensor) -> Step:
        """The W-step. ``found`` are the column sums of r, over the rows that are here."""
        layer, place, rows, nu, mu = group.layer, group.start, self.rows, self.nu, self.mu
        work, W, W0, r = self._work, layer.W, layer.W0, layer.r
        mm, gram_mm, out = work.mm, work.gram_mm, work.write("product", r.shape)
        p = self.input(place)[None] if group.before is None else group.before.p
        inverse, linearized = None, self.algorithm.solver == "linearized"
        if linearized:
            p, r = work.factor("p", place, p), work.factor("r", place, r)
        copy = None if linearized else work.kept_copy("p", place)
        columns = p if copy is None else copy  # p in whichever order of memory suits sums over rows
        if not linearized and group.before is not None and self.is_large(W) and not is_kernel_smaller(p, rows):
            invert = partial(W_inverse, columns, nu=nu, mu=mu, rows=rows, mm=gram_mm)
            inverse = self._inverse(group, "W_inverse", invert)
        if linearized or inverse is not None:
            G = rows.product(r, columns, mm)
            GG = self._run(phases.weight_gradient, G, W, W0, nu=nu, mu=mu)
            return W_linearized(
                p, G, inverse, nu=nu, mu=mu, rows=rows, out=out, GG=GG, found=found, summed=self._summed, mm=mm,
                gram_mm=gram_mm,
            )  # fmt: skip
        factor = self._first_gram if group.before is None else None
        if factor is None:
            factor = gram(columns, nu=nu, mu=mu, rows=rows, mm=gram_mm)
        if group.before is None:
            self._first_gram = factor  # p_1 = X never changes, so neither does this
        return W_exact(
            W, W0, p, r, nu=nu, mu=mu, rows=rows, factor=factor, columns=columns, out=out, found=found, mm=mm
        )

    def is_large(self, W: Tensor) -> bool:
        """Does the exact solver keep inverses for layers of this shape?"""
        return W.shape[-2] * W.shape[-1] >= self.large

    @property
    def inverts(self) -> bool:
        """Are the inverses that the exact solver keeps made anew in the epoch that comes next?"""
        return self.epochs % self.invert_every == 0

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

    def _update_z_q_u(self, group: Group, after: Boundary | None, step: Step, decrement: Tensor) -> StepSums:
        """The z-step; and, except after the last layer, the q- and u-steps in the same pass over memory."""
        layer, weights = group.layer, self.rows.weights
        if after is None:
            assert self.ends.targets is not None
            m = phases.pre_activation(layer.z, layer.r, step.product, length=step.length, decrement=decrement)
            z_new = self.algorithm.risk.argmin_z(m[0], self.ends.targets, self.nu, layer.z[0])[None]
            z_move = squared_norm(z_new - layer.z, weights)
            layer.z.copy_(z_new)
            torch.sub(m, layer.z, out=layer.r)
            rr = squared_norm(layer.r, weights)
            return StepSums(z_move, rr, *[torch.zeros_like(rr)] * 4)
        link = self.right if group is self._groups[-1] else None
        if link is not None:
            after.p[-1].copy_(link.receive())
        pull = self._pulls.get(group.start + len(layer.W))
        measured = self._run(
            phases.z_q_u, layer.z, layer.r, step.product, after.q, after.u, after.p, pull, weights, length=step.length,
            decrement=decrement, levels=group.q_levels, **self._given,
        )  # fmt: skip
        if link is not None:
            link.send(after.q[-1])
        return measured
