"""What is to be trained."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..config import ModelConfig
from ..data.examples import Examples
from ..engine.team import Team
from ..utils import compute_threads
from .choose import choose_weight_decay
from .mesh_choice import choose_mesh
from .standardization import Units

if TYPE_CHECKING:  # a worker process starts faster without graphs
    from ..data.augmentation import GraphAugment, NodeCopies


@dataclass(frozen=True)
class Problem:
    """What is to be trained: rows with labels, on the device of the configuration that goes with them.

    Where these are numbers, they are standardized.
    """

    training: Examples
    validation: Examples | None
    #: The labels, in the order of the network's outputs; or what the columns of the targets are called.
    classes: NDArray[Any]
    config: ModelConfig
    #: The fitted augmentation of a graph; None for rows of a matrix.
    augmentation: GraphAugment | None = None
    #: Rows to score the network on, where they were asked for.
    test: Examples | None = None
    #: Where random copies come from, where nodes without labels teach.
    copies: NodeCopies | None = None
    #: What was chosen by the data, a sentence each.
    reasons: tuple[str, ...] = ()
    #: Those of numbers that are learned; None for classes and labels.
    units: Units | None = None

    def decided(self, seed: int, team: Team | None = None) -> Problem:
        """The same with the weight decay, and workers and shards for the ``team``, chosen where they were left open."""
        with compute_threads(self.config.threads):
            rows = (self.training, self.validation, len(self.classes))
            config, decay = choose_weight_decay(*rows, self.config, seed=seed)
            config, mesh = choose_mesh(config, tuple(self.training.X.shape), len(self.classes), team)
        return dataclasses.replace(self, config=config, reasons=self.reasons + decay + mesh)
