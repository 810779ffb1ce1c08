r"""Numbers to learn in units in which one network can learn them all: each column with mean 0 and deviation 1.

.. math:: t_c = (y_c - \mu_c) / \sigma_c

The mean and deviation are those of the training rows, by weight. In the end the last layer takes them in,
:math:`W \leftarrow \mathrm{diag}(\sigma) W`, :math:`b \leftarrow \sigma b + \mu`, so that whoever uses the
network, wherever, has numbers in the units of the data.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..model import GAMLP

#: Less than this share of its mean cannot be told from rounding in single precision.
LEAST_DEVIATION = 1e-5


class Units(NamedTuple):
    """What the columns of targets are measured in, in double precision."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, y: Tensor, weights: Tensor | None = None) -> Units:
        """Those of the training rows."""
        w = torch.ones(len(y), 1, dtype=torch.float64) if weights is None else weights.double()[:, None]
        mean = (w * y).sum(0) / w.sum()
        deviation = ((w * (y - mean).square()).sum(0) / w.sum()).sqrt()
        small = (deviation > 0) & (deviation < LEAST_DEVIATION * mean.abs())
        for column in small.nonzero().view(-1).tolist()[:1]:
            how = f"differ by {deviation[column]:.2g} around {mean[column]:.6g}, too little for single precision"
            raise InputError(f"the numbers of column {column} {how}: subtract {mean[column]:.6g} from them")
        return cls(mean, deviation.where(deviation > 0, 1.0))

    def standardized(self, y: Tensor) -> Tensor:
        """Numbers in these units."""
        return (y - self.mean) / self.deviation

    def taken_in(self, model: GAMLP) -> GAMLP:
        """A network whose outputs are numbers in these units, as one with outputs in those of the data."""
        return _rescaled(model, self.deviation, self.mean)

    def taken_out(self, model: GAMLP) -> GAMLP:
        """The other way round."""
        return _rescaled(model, 1 / self.deviation, -self.mean / self.deviation)


@torch.no_grad()
def _rescaled(model: GAMLP, scale: Tensor, shift: Tensor) -> GAMLP:
    """The network with ``scale * outputs + shift`` for outputs; a copy."""
    model = copy.deepcopy(model)
    last = model.linears[-1]
    W, b = last.get_parameter("weight"), last.get_parameter("bias")
    scale, shift = scale.to(W.device), shift.to(W.device)
    W.copy_(scale[:, None] * W.double())
    b.copy_(scale * b.double() + shift)
    return model
