"""A graph is a sequence of parts, each of consecutive nodes; in memory it is one part."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.team import Line


class Part(NamedTuple):
    """The nodes whose features and edges this process has; the processes of the ``line`` have all others."""

    first: int
    count: int
    line: Line


class Neighbours(NamedTuple):
    """Who is joined with whom, as compressed rows of the nodes of a part; no node with itself.

    The neighbours of its i-th node, in order, are ``columns[starts[i]:starts[i + 1]]``.
    """

    starts: NDArray[Any]
    columns: NDArray[Any]
    #: What the edges to each neighbour weigh together, and those from it; 0 where there is none that way. None where
    #: edges have neither weights nor directions.
    out: NDArray[np.float64] | None = None
    into: NDArray[np.float64] | None = None
