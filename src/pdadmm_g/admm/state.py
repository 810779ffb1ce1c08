"""What is known of a layer and of a boundary between two layers, and how a forward pass fills it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .activations import Activation
from .levels import Levels
from .rows import Rows


@dataclass
class Weights:
    """The parameters of one layer and what its weight decay pulls them toward."""

    #: (out, in).
    W: Tensor
    #: (out,).
    b: Tensor
    #: Anchor of the weight decay, as W: zero for the first and last layer, the identity for those in between.
    W0: Tensor

    @staticmethod
    def of(W: Tensor, b: Tensor, index: int, depth: int) -> Weights:
        """Those of one of so many layers, with their anchor."""
        return Weights(W, b, torch.eye(len(W)).to(W) if 0 < index < depth - 1 else torch.zeros_like(W))


@dataclass
class Layer(Weights):
    """State of layer l besides the boundaries it touches."""

    #: The auxiliary variable of the linear map, (nodes, out).
    z: Tensor
    #: The residual p W^T + b - z, kept up to date by every step.
    r: Tensor
    #: What the exact solver of a large layer inverted in an earlier epoch, for its p-step and for its W-step.
    p_inverse: Tensor | None = None
    W_inverse: Tensor | None = None


@dataclass
class Boundary:
    """What stands between layer l and layer l+1.

    Layer l (left) updates q, layer l+1 (right) updates p, and u follows from both.
    """

    #: Input of layer l+1.
    p: Tensor
    #: Output of layer l.
    q: Tensor
    #: Dual variable of p = q; None where it is not kept but follows from q and z (``u_implied``).
    u: Tensor | None
    #: Delta for p, None when p is not quantized.
    p_levels: Levels | None = None
    #: Delta for q, None when q is not quantized.
    q_levels: Levels | None = None


@dataclass(frozen=True)
class Quantization:
    """Which variables are quantized, and on what levels."""

    p: bool = False
    q: bool = False
    #: Levels are calibrated to 2**bits values, unless given here.
    bits: int = 8
    levels: tuple[float, ...] | None = None

    def boundary(self, activations: Tensor, *, keep_u: bool = True, rows: Rows | None = None) -> Boundary:
        """A boundary at rest: p = q = the activations (projected where quantized), u = 0.

        A quantized q keeps u in any case, for it does not follow from q and z then.
        """
        levels: Levels | None = None
        if self.p and self.levels is None:
            levels = Levels.calibrated(activations, self.bits, rows)
        elif self.p:
            levels = Levels(activations.new_tensor(self.levels))
        q_levels = levels if self.q else None
        return Boundary(
            p=activations.clone() if levels is None else levels.project(activations),
            q=activations.clone() if q_levels is None else q_levels.project(activations),
            u=activations.new_zeros(activations.shape) if keep_u or q_levels is not None else None,
            p_levels=levels,
            q_levels=q_levels,
        )


#: Up to so many activations a layer on a GPU is small, and its memory does not count.
SMALL = 1 << 20


def keeps_u(like: Tensor) -> bool:
    """Is u kept between two layers of one worker? For tensors ``like`` those of the boundary."""
    return not like.is_cuda or like.numel() <= SMALL


def forward_state(
    weights: list[Weights],
    p: Tensor,
    activation: Activation,
    quantization: Quantization,
    *,
    last: bool = True,
    keep_u: bool | None = None,
    rows: Rows | None = None,
) -> tuple[list[Layer], list[Boundary]]:
    """The state that a forward pass leaves: r = 0, q = f(z), p = q, u = 0, on levels where quantized.

    No two variables share memory, with each other or with ``weights``: the steps write into them.

    ``p`` is what the first of these layers reads. Returns the layers and the boundary to the right of each, except for
    the ``last`` layer of the network, which has none. Where the next layer is among these too, u need not be kept: by
    default it is on a CPU, where the bits must not depend on who owns which layer, and not for large layers on a GPU.
    """
    layers: list[Layer] = []
    boundaries: list[Boundary] = []
    for index, w in enumerate(weights):
        z = torch.addmm(w.b, p, w.W.T)
        layers.append(Layer(w.W.clone(), w.b.clone(), w.W0, z=z, r=torch.zeros_like(z)))
        ends = index == len(weights) - 1
        if not (ends and last):
            keeps = ends or (keeps_u(z) if keep_u is None else keep_u)
            boundaries.append(quantization.boundary(activation(z), keep_u=keeps, rows=rows))
            p = boundaries[-1].p
    return layers, boundaries
