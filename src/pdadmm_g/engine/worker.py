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
from ..admm.diagnostics import Moves, Shares
from ..admm.levels import Levels
from ..admm.risks import Risk, Targets
from ..admm.rows import Rows, column_sums, squared_norm, sum_up
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
from .cuda_graph import RecordedEpoch
from .link import Link
from .nonfinite import NonFinite, among_inputs, in_state, is_finite
from .phases import StepSums, WeightSums, backend_for
from .precision import Precision, Workspace, add_product
from .stacking import Group, grouped, layer_by_layer


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
        #: The diagnostics at the end of the last epoch, layer by layer; empty before the first.
        self.measured: list[Shares] = []
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
        #: The first variable that a step found not to be finite when it read it.
        self._nonfinite: NonFinite | None = None
        self._first_gram: Gram | None = None
        self._recorded = RecordedEpoch() if RecordedEpoch.suits(self) else None

    def epoch(self) -> list[Moves]:
        """One epoch of Algorithm 1 on this worker's layers. Returns what moved, layer by layer.

        With a link to the left, the q of this epoch is still on its way when the epoch ends; the next p-phase, or
        :meth:`settle`, takes it in.
        """
        on_gpu = bool(self.layers) and self.layers[0].W.is_cuda
        with torch.cuda.device(self.layers[0].W.device) if on_gpu else nullcontext():
            moves, self.measured = self.run_epoch() if self._recorded is None else self._recorded(self)
            self.epochs += 1
            if self.epochs % self.refresh_every == 0:
                self.refresh()
            return moves

    def run_epoch(self) -> tuple[list[Moves], list[Shares]]:
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
        found = []
        for group in reversed(self._groups):
            # Line 3, then lines 4 to 9: W, b, z, q, p - q, u.
            descent, sums = sent if sent is not None and group is self._groups[0] else self._update_p(group)
            found.append((group, descent, *self._update_rest(group, sums)))
        found.reverse()
        totals = iter(self.rows.totals(*(part for *_, measured in found for part in measured)))
        moves, shares = [], []
        for group, p, b, W, weights, _ in found:
            step = StepSums(*islice(totals, len(StepSums._fields)))
            moves.append(Moves(p, W, b, step.z_move, step.q_move))
            shares.append(self._shares(group.layer, step.r, weights, step.share, step.gap, step.output))
        return layer_by_layer(Moves, moves), layer_by_layer(Shares, shares)

    def settle(self) -> None:
        """Take in the q that is on its way, so that this worker's copy of its left boundary is complete."""
        if self.left is not None and self.left.expecting:
            boundary = self.boundaries[0]
            assert boundary is not None
            boundary.q.copy_(self.left.receive())
            self._run(phases.dual, boundary.u, boundary.p, boundary.q, rho=self.rho)

    def refresh(self) -> None:
        """Recompute every residual, r = p W^T + b - z."""
        for index, layer in enumerate(self.layers):
            out = layer.r if layer.r.dtype is layer.z.dtype else None
            torch.sub(torch.addmm(layer.b, self.input(index), layer.W.T, out=out), layer.z, out=layer.r)

    def input(self, place: int) -> Tensor:
        """p of a layer, which is X for the first layer of the chain."""
        return self._p(self.boundaries[place])

    def _p(self, before: Boundary | None) -> Tensor:
        if before is not None:
            return before.p
        assert self.ends.X is not None
        return self.ends.X

    def u(self, place: int) -> Tensor:
        """The dual variable of the boundary to the right of a layer, whether it is kept or not."""
        boundary = self.boundaries[place + 1]
        assert boundary is not None
        return u_implied(boundary.q, self.f(self.layers[place].z), nu=self.nu) if boundary.u is None else boundary.u

    def shares(self) -> list[Shares]:
        """The diagnostics of the state as it is, layer by layer."""
        result = []
        for group in self._groups:
            layer, after = group.layer, group.after
            rr, decay = self.rows.squared_norm(layer.r), squared_norm(layer.W - layer.W0)
            between: tuple[Tensor, ...] = (torch.zeros_like(rr),) * 3
            if after is not None:
                tensors = (after.p, after.q, after.u, layer.z, self.rows.weights)
                sums = self._run(phases.measure_boundary, *tensors, **self._given)
                between = self.rows.totals(*sums)
            result.append(self._shares(layer, rr, WeightSums(decay, sum_up(layer.W)), *between))
        return layer_by_layer(Shares, result)

    def nonfinite(self, moves: Sequence[Moves]) -> NonFinite | None:
        """Where the NaN or infinity came from that an epoch with these ``moves`` measured; None if not from here.

        On a CPU the p-step looks at what it reads if its result is not finite, and the z-step at q, which catches p, W,
        q and u before anything else is computed from them. A GPU is not waited for: there the search begins here.
        """
        return self._nonfinite or in_state(self, moves)

    def _look(self, result: Tensor, first: int, inputs: dict[str, Tensor | None], of_layer_before: str = "") -> None:
        """If the ``result`` of a step is not finite, which of its inputs is not?"""
        if self._nonfinite is None and not result.is_cuda and not is_finite(result):
            self._nonfinite = among_inputs(first, inputs, of_layer_before)

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
        self._look(gg, place, {"p": before.p, "W": layer.W, "q": before.q, "u": before.u}, "qu")
        step = self._p_step(group, before.p, g, gg, out=work.write("product", layer.r.shape))
        p_copy = work.copy_of("p", place, before.p)
        self._run(phases.move, before.p, step.direction, p_copy, length=step.length, levels=group.p_levels)
        r_copy = work.copy_of("r", place, layer.r)
        sums = self._run(phases.move_and_sum, layer.r, step.product, r_copy, weights, length=step.length)
        return step.descent, sums

    def _p_step(self, group: Group, p: Tensor, g: Tensor, gg: Tensor, *, out: Tensor) -> Step:
        W, mm, nu, rho, rows = group.layer.W, self._work.mm, self.nu, self.rho, self.rows
        if group.p_levels is not None:
            tries = None if self._recorded is None else RecordedEpoch.tries
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

    def _update_rest(self, group: Group, found: Tensor) -> tuple[Tensor, Tensor, WeightSums, StepSums]:
        """All steps of a group after its p-step, which ``found`` these column sums of r here."""
        layer = group.layer
        step = self._W_step(group, found)
        weights = self._run(phases.move_weights, layer.W, step.direction, layer.W0, length=step.length)
        assert step.left is not None
        decrement = b_decrement(step.left, self.rows)
        layer.b -= decrement
        measured = self._update_z_q_u(group, group.after, step, decrement)
        return squared_norm(decrement), step.descent, weights, measured

    def _W_step(self, group: Group, found: Tensor) -> Step:
        """The W-step. ``found`` are the column sums of r, over the rows that are here."""
        layer, place, rows, nu, mu = group.layer, group.start, self.rows, self.nu, self.mu
        work, W, W0, r = self._work, layer.W, layer.W0, layer.r
        mm, gram_mm, out = work.mm, work.gram_mm, work.write("product", r.shape)
        p = self._p(group.before).view(*r.shape[:2], -1)  # X has no leading dimension
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
            return StepSums(z_move, rr, *[torch.zeros_like(rr)] * 5)
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
        self._look(measured.q_old, group.start, {"q": measured.q_old})
        return measured

    def _shares(
        self, layer: Layer, rr: Tensor, weights: WeightSums, boundary: Tensor, gap: Tensor, output: Tensor
    ) -> Shares:
        objective = self.nu / 2 * rr + self.mu / 2 * weights.decay + boundary
        # r is kept, not recomputed, and so hides a NaN in W or b; zero times their sum does not.
        return Shares(objective + 0 * (layer.b.sum((-2, -1)) + weights.W), gap, output)
