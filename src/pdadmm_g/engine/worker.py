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
from ..admm.diagnostics import Moves, Shares
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
    p_pull,
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
        self.layers, self.boundaries, self.algorithm, self.ends = layers, boundaries, algorithm, ends
        self.rows, self.left, self.right = ends.rows, left, right
        self.f, self.nu, self.rho, self.mu = algorithm.activation, algorithm.nu, algorithm.rho, algorithm.mu
        self.exact = algorithm.solver == "exact"
        #: Epochs since the state was made, which tells when r is due for a refresh.
        self.epochs = 0
        like = layers[0].W if layers else torch.empty(0)
        self._run = backend_for(like.device)
        # On a CPU a sum over blocks of rows would be another than that over all of them.
        self._summed: Callable[..., Any] = self._run if like.is_cuda else at_once
        self._work = Workspace(algorithm.precision, exact=self.exact, like=like)
        #: What every phase of a boundary is given, and what every p- and W-step is.
        self._given: dict[str, Any] = {"f": self.f, "nu": self.nu, "rho": self.rho}
        self._for_p: dict[str, Any] = {"nu": self.nu, "rho": self.rho, "rows": self.rows, "mm": self._work.mm}
        self._for_W: dict[str, Any] = {"nu": self.nu, "mu": self.mu, "rows": self.rows}
        if algorithm.precision == "bf16" and not self.exact:
            # All that the linearized steps read of r are products that round it so. z + r is then off by a rounding
            # error of r, not of z, and the objective still falls (benchmarks/precision.py). Of z, whose moves may be
            # smaller than such an error, it would cost a tenth of the descent.
            for layer in layers:
                layer.r = layer.r.bfloat16()
        self._groups = grouped(layers, boundaries, self.f, stack=self.rows.whole)
        #: By group, between large layers on a GPU: what the boundary before it adds to the gradient of p. The pass that
        #: has p, q and u at hand writes it, so that the product r W is added to it and nothing is read again.
        self._pulls: dict[int, Tensor] = {}
        for group in self._groups[1:]:
            if algorithm.precision == "bf16" and group.before is not None and not keeps_u(group.before.p):
                p, q, u, z = group.read_by_p()
                u = phases.dual_of(u, q, z, f=self.f, nu=self.nu)
                self._pulls[group.start] = p_pull(p, q, u, rho=self.rho).bfloat16()
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
        inverts = self.exact and self.inverts
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
            sent = self._update_p(self._groups[0])
            self.left.send(self.input(0))
            self.left.expect()
            if len(self._groups) > 1:
                sent = (*sent[:2], None, None)  # the next group writes over the copies
        #: By group: what the p- and W-steps descend and b moves by, of W and b, and the fields of StepSums.
        found: list[list[Tensor]] = []
        for group in reversed(self._groups):
            layer = group.layer
            # Line 3: p.
            ready = sent if group is self._groups[0] else None
            descent, sums, p_copy, r_copy = ready or self._update_p(group)
            # Line 4: W.
            step = self._W_step(group, sums, p_copy, r_copy)
            left: WeightSums = self._run(phases.move_weights, layer.W, step.direction, layer.W0, length=step.length)
            # Line 5: b.
            assert step.left is not None
            decrement = b_decrement(step.left, self.rows)
            layer.b -= decrement
            # Lines 6 to 9: z, q, p - q, u.
            measured = self._update_z_q_u(group, step, decrement)
            parameters = layer.b.sum((-2, -1)) + left.W
            found.insert(0, [descent, step.descent, squared_norm(decrement), left.decay, parameters, *measured])
        if not found:
            return Moves(*[torch.empty(0)] * 5), Shares(*[torch.empty(0)] * 3)
        p, W, b, decay, parameters, *parts = map(torch.cat, zip(*found, strict=True))
        total = StepSums(*self.rows.totals(*parts))
        objective = self.nu / 2 * total.r + self.mu / 2 * decay + total.share
        # r is kept, not recomputed, and so hides a NaN in W or b; zero times their sum does not.
        shares = Shares(objective + 0 * parameters, total.gap, total.output)
        return Moves(p, W, b, total.z_move, total.q_move), shares

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

    def _update_p(self, group: Group) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """The p-step: its descent, the column sums of r here, and p and r as the W-step wants them, if it left such."""
        layer, before, place, weights, work = group.layer, group.before, group.start, self.rows.weights, self._work
        if before is None:
            return layer.W.new_zeros(len(layer.W)), column_sums(layer.r, weights), None, None
        W, p, r, g = layer.W, before.p, work.rounded("r", layer.r), self._pulls.get(place)
        if g is not None:
            add_product(g, r, W, alpha=self.nu)
            gg = squared_norm(g, weights)
        else:
            g = work.mm(r, W, out=work.write("wide", p.shape))
            if place == 0:
                self.settle()
            gg = self._run(phases.gradient, g, *group.read_by_p(), weights, **self._given)
        out = work.write("product", layer.r.shape)
        if group.p_levels is not None:
            # A move by 255 steps at most is off by less than half a step, and p is projected again.
            short = isinstance(group.p_levels, Levels) and group.p_levels.bits <= 8
            step = p_quantized(
                p, W, g, group.p_levels, out=out, gg=gg, tries=TRIES if self.records else None,
                d=torch.empty_like(g if short else p), summed=self._run, **self._for_p,
            )  # fmt: skip
        elif self.exact and not self.is_large(W):
            step = p_exact(W, g, out=out, **self._for_p)
        else:
            invert = partial(p_inverse, W, nu=self.nu, rho=self.rho)
            inverse = self._inverse(group, "p_inverse", invert) if self.exact else None
            step = p_linearized(W, g, inverse, out=out, gg=gg, **self._for_p)
        p_copy = work.copy_of("p", p)
        self._run(phases.move, p, step.direction, p_copy, length=step.length, levels=group.p_levels)
        r_copy = work.copy_of("r", layer.r)
        sums = self._run(phases.move_and_sum, layer.r, step.product, r_copy, weights, length=step.length)
        return step.descent, sums, p_copy, r_copy

    def _W_step(self, group: Group, found: Tensor, p_copy: Tensor | None, r_copy: Tensor | None) -> Step:
        """The W-step. ``found`` are the column sums of r, over the rows that are here."""
        layer, work, is_first = group.layer, self._work, group.before is None
        W, W0, r, mm, gram_mm = layer.W, layer.W0, layer.r, work.mm, work.gram_mm
        p = self.input(0)[None] if group.before is None else group.before.p
        out, inverse = work.write("product", r.shape), None
        if self.exact:
            columns = p if p_copy is None else p_copy  # in whichever order of memory suits sums over rows
            if not is_first and self.is_large(W) and not is_kernel_smaller(p, self.rows):
                inverse = self._inverse(group, "W_inverse", partial(W_inverse, columns, mm=gram_mm, **self._for_W))
        else:
            columns = p = work.rounded("p", p) if p_copy is None else p_copy
            r = work.rounded("r", r) if r_copy is None else r_copy
        if inverse is not None or not self.exact:
            G = self.rows.product(r, columns, mm)
            GG = self._run(phases.weight_gradient, G, W, W0, nu=self.nu, mu=self.mu)
            return W_linearized(
                p, G, inverse, out=out, GG=GG, found=found, summed=self._summed, mm=mm, gram_mm=gram_mm, **self._for_W
            )
        factor = self._first_gram if is_first else None
        factor = factor or gram(columns, mm=gram_mm, **self._for_W)
        if is_first:
            self._first_gram = factor  # p_1 = X never changes, so neither does this
        return W_exact(W, W0, p, r, factor=factor, columns=columns, out=out, found=found, mm=mm, **self._for_W)

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

    def _update_z_q_u(self, group: Group, step: Step, decrement: Tensor) -> StepSums:
        """The z-step; and, except after the last layer, the q- and u-steps in the same pass over memory."""
        layer, after, weights = group.layer, group.after, self.rows.weights
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
        measured: StepSums = self._run(
            phases.z_q_u, layer.z, layer.r, step.product, after.q, after.u, after.p, pull, weights, length=step.length,
            decrement=decrement, levels=group.q_levels, **self._given,
        )  # fmt: skip
        if link is not None:
            link.send(after.q[-1])
        return measured
