"""Training that starts from a network that is there already: what is taken over with it, and whether it fits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..config import Config, ModelConfig, TargetKind
from ..errors import InputError
from ..model import GAMLP
from .checkpoint import CHOSEN
from .prepare import Problem

if TYPE_CHECKING:
    from ..data.augmentation import GraphAugment

#: Settings that make the features, which must stay what the network was trained on.
FEATURES = ("augment", "hops", "teleport", "row_normalize", "normalize", "components", "directed")


@dataclass(frozen=True)
class WarmStart:
    """A network to start from, and what is known of how it was trained; nothing of a network alone."""

    model: GAMLP
    config: ModelConfig | None = None
    augmentation: GraphAugment | None = None
    classes: NDArray[Any] | None = None
    #: Columns before augmentation.
    features: int | None = None
    #: Their names, where they have any.
    feature_names: NDArray[Any] | None = None

    @property
    def depth(self) -> int:
        """The number of its layers."""
        return len(self.model.linears)

    def staged(self, config: Config) -> Config:
        """The resolved ``config`` with the stages that are left: growth goes on from the depth of the network."""
        depths = config.stages
        assert depths is not None
        if not min(2, depths[-1]) <= self.depth <= depths[-1]:
            raise InputError(f"init has {self.depth} layers, the network is to have {depths[-1]}: set layers to more")
        return dataclasses.replace(config, stages=tuple(depth for depth in depths if depth >= self.depth))

    def decided(self, config: ModelConfig) -> ModelConfig:
        """The resolved ``config`` with what it leaves open as it was when the network was trained."""
        config = self.staged(config)
        if self.config is None:
            return config
        if config.asked_target != "auto":
            self.check_target(config.asked_target)
        # With learning from unlabelled nodes, edges count both ways alike whether anybody said so or not.
        way = self.config.directed if self.augmentation is None else self.augmentation.directed
        before = dataclasses.replace(self.config, directed=way)
        open_to_init = [name for name in CHOSEN if name != "target" and getattr(config, name) in (None, "auto")]
        taken = {name: getattr(before, name) for name in open_to_init}
        config = dataclasses.replace(config, **taken)
        for name in FEATURES if self.augmentation is not None else ():
            given, known = getattr(config, name), getattr(before, name)
            if given != known:
                raise InputError(f"init was trained with {name} = {known}, not {given}: leave it out, or set it so")
        return config

    def check_target(self, target: TargetKind) -> None:
        """Raise if the network learned another kind of target."""
        if self.config is not None and self.config.target != target:
            raise InputError(f"init was trained for {self.config.target}, the data are for {target}")

    def fitted_to(self, features: int) -> GraphAugment | None:
        """The augmentation of the network, if one is known, for a graph with so many features."""
        if self.augmentation is not None and features != self.features:
            raise InputError(f"data has {features} features, init was trained with {self.features}")
        return self.augmentation

    def check(self, problem: Problem) -> None:
        """Raise unless the network fits the problem."""
        config, widths = problem.config, self.model.widths
        self.check_target(config.target)
        if self.config is not None and (self.augmentation is None) != (problem.augmentation is None):
            kinds = ("a matrix", "a graph") if self.augmentation is None else ("a graph", "a matrix")
            raise InputError(f"init was fitted on {kinds[0]}, this is {kinds[1]}")
        hidden = {*widths[1:-1]} - {config.hidden}
        if hidden:
            raise InputError(f"init has {min(hidden)} neurons per hidden layer: set hidden so, not to {config.hidden}")
        for name, has, needed in (
            ("features", widths[0], problem.training.X.shape[1]),
            ("classes", widths[-1], len(problem.classes)),
        ):
            if has != needed:
                raise InputError(f"init has {has} {name}, the data have {needed}")
        if self.classes is not None and not np.array_equal(self.classes, problem.classes):
            known, given = (classes[:5].tolist() for classes in (self.classes, problem.classes))
            raise InputError(f"init knows the classes {known}, the data have {given}: the labels must be the same ones")
        if self.model.activation != config.activation:
            raise InputError(f"init has activation {self.model.activation}: set it so, not {config.activation}")
