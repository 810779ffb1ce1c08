"""Features of graphs that have none: what the edges alone say of a node."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

#: Columns for the degree, one a power of two, and of random numbers.
DEGREES, RANDOM = 16, 64


def structural_features(edge_index: Tensor, num_nodes: int) -> Tensor:
    r"""Of each node its degree and 64 random numbers.

    The degree :math:`d` is a one in one of 16 columns, :math:`\lfloor \log_2 (d+1) \rfloor`. The random numbers R tell
    nothing by themselves, but augmentation makes random projections :math:`\tilde A^k R` of them, which tell who is
    near whom. They go by the number of a node: in another graph, nodes that are to be told apart as before keep their
    numbers, and new ones come behind them.
    """
    neighbours = torch.bincount(edge_index.cpu().flatten(), minlength=num_nodes)
    column = torch.log2(neighbours + 1.0).floor().long().clamp(max=DEGREES - 1)
    degrees = torch.nn.functional.one_hot(column, DEGREES).float()
    # From numpy, row by row: the first rows are the same however many there are.
    noise = np.random.default_rng(0).standard_normal((num_nodes, RANDOM), dtype=np.float32) / RANDOM**0.5
    return torch.cat([degrees, torch.from_numpy(noise)], dim=1)
