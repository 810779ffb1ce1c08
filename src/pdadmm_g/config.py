"""A run as validated, frozen records <-> YAML.

Pure data: imports nothing heavy, so that ``pdadmm-g --help`` is instant and every
other module may read it. Each field carries its own line of help, which the command line shows.
"""

from __future__ import annotations

import dataclasses
import os
import struct
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from .errors import InputError
from .setting_values import (
    COUNT,
    COUNT_OR_AUTO,
    FROM_ZERO,
    NOT_NEGATIVE,
    PATH,
    POSITIVE,
    SHARE,
    Rule,
    coerce,
    read_yaml,
    require,
)
from .utils import find_graph

Config = TypeVar("Config", bound="ModelConfig")

#: Endings of the files that a graph may be in, and of those that hold its nodes alone.
NODE_TABLES = (".csv", ".tsv", ".parquet")
GRAPH_FILES = (".npz", ".pt", ".graphml", *NODE_TABLES)
#: Depths at which greedy growth pauses to train, unless stages are given.
GROWTH_DEPTHS = (2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, kw_only=True)
class Method:
    """What is fixed of a method, and what is usual for it where a setting is not given."""

    #: Name in ``torch.optim``; None for pdADMM-G, which has none.
    optimizer: str | None = "Adam"
    learning_rate: float | None = 0.001
    #: None where it is left to the data.
    weight_decay: float | None = 0.0
    #: Layers of the network, None for one that grows to ``layers``.
    depth: int | None = None
    #: Share of the inputs of each layer that a step of training leaves out.
    dropout: float = 0.0
    augment: str = "auto"
    #: Operators of that augmentation; None for as many as are usual for it.
    hops: int | None = None
    normalize: str = "auto"
    #: Random copies of the features that a step of training sees instead of them; 0 for none.
    copies: int = 0
    #: Epochs without better validation accuracy after which it ends.
    patience: int = 100
    #: Does the network itself look at the neighbours of a node, so that it takes the whole graph?
    needs_graph: bool = False


METHODS = {
    "pdadmm-g": Method(optimizer=None, learning_rate=None, weight_decay=None, patience=50),
    "gd": Method(optimizer="SGD", learning_rate=0.1),
    "adadelta": Method(optimizer="Adadelta"),
    "adagrad": Method(optimizer="Adagrad"),
    "adam": Method(),
    "sgc": Method(learning_rate=0.01, depth=1, augment="power"),
    "s2gc": Method(learning_rate=0.01, depth=1, augment="average"),
    "sign": Method(learning_rate=0.01, depth=2, dropout=0.5),
    # 0.0005 for each of the 140 training nodes of Cora, as published.
    "gcn": Method(
        learning_rate=0.01, weight_decay=0.07, depth=2, dropout=0.5, augment="none", normalize="none", needs_graph=True
    ),
    # The weight decay likewise. Rows of unit length are not of the published code, which takes them as they are.
    "grand": Method(
        learning_rate=0.01,
        weight_decay=0.07,
        depth=2,
        dropout=0.5,
        augment="average",
        hops=8,
        normalize="unit",
        copies=4,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is usual for a kind of target, and what goes with it; of several the first is the default."""

    #: What rows of this kind have, for messages.
    what: str
    risks: tuple[str, ...]
    #: The figure that people look at first, and those by which validation may choose.
    figure: str
    scorings: tuple[str, ...]


TARGETS = {
    "classification": Target(
        what="classes", risks=("cross-entropy", "squared-error"), figure="accuracy",
        scorings=(
            "accuracy", "balanced_accuracy", "f1_macro", "f1_micro", "roc_auc_ovr", "average_precision", "neg_log_loss",
        ),
    ),
    "multilabel": Target(
        what="several labels", risks=("logistic",), figure="f1_micro",
        scorings=("f1_micro", "f1_macro", "accuracy", "roc_auc_ovr", "average_precision", "neg_log_loss"),
    ),
    "regression": Target(
        what="numbers", risks=("squared-error",), figure="r2",
        scorings=("r2", "neg_mean_absolute_error", "neg_root_mean_squared_error"),
    ),
}  # fmt: skip


#: What validation may choose by: a figure of :mod:`pdadmm_g.metrics`, or a scorer as scikit-learn has them.
Scoring = (
    Literal[
        "auto", "accuracy", "balanced_accuracy", "f1_macro", "f1_micro", "roc_auc_ovr", "average_precision",
        "neg_log_loss", "r2", "neg_mean_absolute_error", "neg_root_mean_squared_error",
    ]
    | Callable[..., float]
)  # fmt: skip

TargetKind = Literal["auto", "classification", "multilabel", "regression"]

#: The groups in which settings are shown, in that order.
RUN, GRAPH, NETWORK = "Data and run folder", "What the graph adds to the features", "Network"
UNLABELLED = "Nodes without labels"
TRAINING, QUANTIZATION, MACHINE = "Training", "Quantization (pdADMM-G-Q)", "Workers and devices"
GROUPS = (RUN, GRAPH, NETWORK, TRAINING, UNLABELLED, QUANTIZATION, MACHINE)


def option(
    default: Any,
    help: str,
    group: str = "",
    *,
    rules: tuple[Rule, ...] = (),
    decides: Literal["model", "bits", "nothing"] = "model",
    by_data: bool = False,
    method: Literal["any", "pdadmm-g", "gradient"] = "any",
) -> Any:
    """A field with all that there is to know of a setting.

    Args:
        default: The value where none is given.
        help: Its line of documentation.
        group: Where it is shown, one of :data:`GROUPS`; empty for other places.
        rules: What every value but None must satisfy by itself.
        decides: What another value may change: the trained model, the last bits of its weights, or nothing of it. A
            model file has the settings of the first kind, and a resumed run may have others of the last.
        by_data: May it be left to the data? What was chosen once stays chosen.
        method: The methods that it has an effect with.
    """
    about = {"help": help, "group": group, "rules": rules, "decides": decides, "by_data": by_data, "method": method}
    return field(default=default, metadata=about)


def described(item: dataclasses.Field[Any]) -> str:
    """The help text of a setting, with its default."""
    text = str(item.metadata["help"])
    if item.default is None or "[default" in text:
        return text
    return f"{text} [default: {str(item.default).lower() if isinstance(item.default, bool) else item.default}]"


def settings_where(owner: Any, **known: Any) -> tuple[str, ...]:
    """The settings of a configuration of which :func:`option` says all of this, e.g. ``decides="nothing"``."""
    fields = dataclasses.fields(owner)
    return tuple(item.name for item in fields if all(item.metadata[key] == value for key, value in known.items()))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that shapes the trained model, whatever the data set."""

    method: Literal["pdadmm-g", "gd", "adadelta", "adagrad", "adam", "sgc", "s2gc", "sign", "gcn", "grand"] = option(
        "pdadmm-g", "pdadmm-g, or to compare: the same network by an optimizer (gd, adadelta, adagrad, adam), a "
        "linear model on the second power of the graph (sgc) or the average of 16 (s2gc), 2 layers with dropout "
        "(sign), 2 graph convolutions (gcn), 2 layers on random copies of the features that should agree "
        "(grand)", TRAINING,
    )  # fmt: skip
    target: TargetKind = option(  # noqa: RUF009 (a text does not change)
        "auto", "what is learned: one class a node, several labels a node (0/1 in a column each), or numbers; auto "
        "takes several labels where there are several columns of 0 and 1, else classes", TRAINING, by_data=True,
    )  # fmt: skip
    augment: Literal["auto", "none", "hops", "apart", "average", "power"] = option(
        "auto", "what the graph adds to the features: hop blocks I..A^(K-1) side by side, the same without self-loops "
        "(apart), their average, the power A^K alone, nothing, or whichever suits a linear model best on the "
        "validation nodes", GRAPH, by_data=True,
    )  # fmt: skip
    hops: int | None = option(
        None, "number K of operators [default: 4 for hops, 3 for apart, 16 for average, 2 for power; 8 for grand]",
        GRAPH, rules=COUNT, by_data=True,
    )  # fmt: skip
    teleport: float | None = option(
        None, "share of the node's own features in the averaged operator [default: 0.05; 1/(K+1) for grand; where "
        "nodes without labels teach, what suits best]", GRAPH, rules=SHARE, by_data=True,
    )  # fmt: skip
    row_normalize: bool = option(True, "divide each node's features by their absolute sum before augmenting", GRAPH)
    normalize: Literal["auto", "none", "unit", "centered"] = option(
        "auto", "augmented features: as they are, each block scaled to unit length, also centred over the nodes, or "
        "whichever of the last two suits a linear model best on the validation nodes", GRAPH, by_data=True,
    )  # fmt: skip
    components: int | None = option(
        None, "principal directions of the features that are augmented "
        "[default: all features; 256 directions where nodes without labels teach, or where augment is auto and the "
        "features have more than 20 million entries]", GRAPH, rules=COUNT, by_data=True,
    )  # fmt: skip
    directed: Literal["auto", "symmetric", "out", "in", "both"] = option(
        "auto", "which way features go along edges: both ways alike (symmetric), to a node from those that it points "
        "to (out), the other way (in), or each way in blocks of its own (both); auto takes symmetric where edges have "
        "no direction, else that or both, whichever suits a linear model best on the validation nodes", GRAPH,
        by_data=True,
    )  # fmt: skip
    layers: int = option(
        10, "most layers, at least 2; fewer where more gain nothing on validation", NETWORK,
        rules=(
            ("must be at least 2", lambda value: value >= 2), ("must be at most 10000", lambda value: value <= 10**4),
        ),
    )  # fmt: skip
    hidden: int = option(100, "neurons per hidden layer", NETWORK, rules=COUNT)
    stages: tuple[int, ...] | None = option(
        None, "depths of greedy growth, increasing, the last one equal to layers [default: 2,5,10,20,... up to layers]",
        NETWORK,
    )  # fmt: skip
    growth: Literal["gain", "all"] | None = option(
        None, "go on to a deeper stage only where the one before gained half a point on validation, or through all "
        "[default: all where stages are given or patience is none, else gain]", NETWORK,
    )  # fmt: skip
    activation: Literal["relu", "leaky-relu", "tanh", "sigmoid", "identity"] = option("relu", "activation f", NETWORK)
    risk: Literal["auto", "cross-entropy", "logistic", "squared-error"] = option(
        "auto", "risk R of the last layer [default: cross-entropy for classes, logistic for several labels a node, "
        "squared-error for numbers]", NETWORK,
    )  # fmt: skip
    solver: Literal["linearized", "exact"] = option(
        "exact", "p- and W-steps: the paper's linearized ones, or exact minimisation", TRAINING
    )
    rho: float = option(
        5.0, "penalty on p = q; above 4.1 nu the objective provably never rises", TRAINING, rules=POSITIVE
    )
    nu: float = option(1.0, "penalty on z = pW+b and q = f(z)", TRAINING, rules=POSITIVE)
    weight_decay: float | None = option(
        None, "pull of the weights toward their anchors; 0 is the paper's algorithm "
        "[default: what suits the first stage best on the validation nodes; 0.07 for gcn and grand, 0 for other "
        "methods]",
        TRAINING, rules=NOT_NEGATIVE, by_data=True,
    )  # fmt: skip
    class_weight: Mapping[str, float] | Literal["balanced"] | None = option(
        None, "what the rows of each class weigh: balanced, so that all classes count alike, or in Python and YAML a "
        "mapping from class to weight, 1 for those not named [default: 1 for all]", TRAINING,
    )  # fmt: skip
    learning_rate: float | None = option(
        None, "step of the other methods [default: 0.1 for gd, 0.001 for adadelta, adagrad, adam, 0.01 for the rest]",
        TRAINING, rules=POSITIVE, method="gradient",
    )  # fmt: skip
    quantize: Literal["none", "p", "pq"] = option(
        "none", "variables quantized to levels (pdADMM-G-Q): none, p, p and q", QUANTIZATION, method="pdadmm-g"
    )
    bits: int | None = option(
        None, "calibrate 2^bits levels to the activations of each boundary [default: 8]", QUANTIZATION,
        rules=(("must be between 1 and 16", lambda value: 1 <= value <= 16),),
    )  # fmt: skip
    levels: tuple[float, ...] | Literal["paper"] | None = option(
        None, "explicit levels instead of bits: increasing numbers, or 'paper' for -1,0,1,...,20", QUANTIZATION
    )
    epochs: int = option(300, "most epochs of each stage", TRAINING, rules=COUNT)
    patience: int | Literal["auto"] | None = option(
        "auto", "end a stage after so many epochs without a better validation score and restore the best weights; "
        "'none' trains all epochs and keeps the last weights [default: 50, 100 for other methods]", TRAINING,
        rules=COUNT_OR_AUTO,
    )  # fmt: skip
    scoring: Scoring = option(  # noqa: RUF009 (a function does not change)
        "auto", "what the validation nodes choose by, the epoch that is kept and all that is left to the data; in "
        "Python also a scorer(estimator, X, y) as scikit-learn has them [default: accuracy for classes, f1_micro for "
        "several labels a node, r2 for numbers]", TRAINING,
    )  # fmt: skip
    calibrate: bool = option(
        False, "divide the logits by the temperature that makes the log loss of the validation nodes smallest: the "
        "same classes, better probabilities", TRAINING,
    )  # fmt: skip
    validation: float = option(
        0.2, "share of the labelled nodes of each class, at least one node and 500 at the most in all, that is set "
        "aside to validate where the graph does not say which do; 0 for none, and no choice by the data", TRAINING,
        rules=SHARE,
    )  # fmt: skip
    refit: bool = option(
        False, "train again in the end, on the validation nodes too, with what was chosen and for as many epochs",
        TRAINING,
    )  # fmt: skip
    split: int | None = option(
        None, "which of several splits to take, where masks have a column for each [default: the first, 0]", TRAINING,
        rules=FROM_ZERO,
    )  # fmt: skip
    tolerance: float = option(
        1e-6, "converged when both residuals are this small relative to q; 0 never stops", TRAINING, rules=NOT_NEGATIVE
    )
    eval_every: int = option(1, "measure training and validation accuracy every so many epochs", TRAINING, rules=COUNT)
    unlabelled: int | None = option(
        None, "most nodes without labels that teach in a round; 0 for none "
        "[default: 1000 where they help on the validation nodes; 0 on a sharded folder]", UNLABELLED, rules=FROM_ZERO,
        by_data=True, method="pdadmm-g",
    )  # fmt: skip
    rounds: int = option(
        12, "renewals of what nodes without labels should become", UNLABELLED, rules=COUNT, method="pdadmm-g"
    )
    copies: int = option(2, "random copies of the features in a round", UNLABELLED, rules=COUNT, method="pdadmm-g")
    drop: float = option(
        0.5, "probability with which a copy leaves out the features of a node", UNLABELLED, rules=SHARE,
        method="pdadmm-g",
    )  # fmt: skip
    drop_entries: float | None = option(
        None, "probability with which it leaves out each single feature of a node, where nearly all features are zero "
        "[default: what suits best]", UNLABELLED, rules=SHARE, by_data=True, method="pdadmm-g",
    )  # fmt: skip
    sharpness: float | None = option(
        None, "exponent that makes the mean prediction of the copies a target [default: what suits best]", UNLABELLED,
        rules=POSITIVE, by_data=True, method="pdadmm-g",
    )  # fmt: skip
    trust: float = option(
        10.0, "weight of all nodes without labels together, those with labels being one", UNLABELLED,
        rules=NOT_NEGATIVE, method="pdadmm-g",
    )  # fmt: skip
    workers: int | Literal["auto"] | None = option(
        None, "processes that share the layers, any number to the same weights; 'auto' for what should end first here, "
        "of these and of shards [default: 1, or auto where shards are given]", MACHINE, rules=COUNT_OR_AUTO,
        decides="nothing", method="pdadmm-g",
    )  # fmt: skip
    shards: int | None = option(
        None, "parts of the training rows, each with workers of its own; the trained weights differ by rounding "
        "[default: 1, or what suits best with --workers auto]", MACHINE, rules=COUNT, decides="bits",
        method="pdadmm-g",
    )  # fmt: skip
    threads: int = option(
        1, "compute threads of each worker; another number may change the last bits of the weights", MACHINE,
        rules=COUNT, decides="bits",
    )  # fmt: skip
    plan: tuple[int, ...] | None = option(
        None, "layers of each worker at full depth, e.g. 3,3,4 [default: dealt to balance the work]", MACHINE,
        decides="nothing",
    )  # fmt: skip
    timeout: float = option(
        60.0, "seconds after which a worker that does not answer counts as lost", MACHINE, rules=POSITIVE,
        decides="nothing",
    )  # fmt: skip
    device: str = option(
        "cpu", "torch device: cpu, cuda, cuda:1, ..., or auto for a GPU where there is one", MACHINE, decides="bits"
    )
    precision: Literal["fp32", "tf32", "bf16"] = option(
        "fp32", "factors of the large products in an epoch: as they are, or rounded to TF32 (on a GPU) or bfloat16; "
        "sums and the state stay in single precision, all but the residual r with bf16 and the linearized solver",
        MACHINE, method="pdadmm-g",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            for rule, holds in item.metadata["rules"] if value is not None else ():
                require(holds(value), item.name, rule, value)
        if self.stages is not None:
            rising = all(a < b for a, b in pairwise(self.stages))
            require(bool(self.stages) and rising, "stages", "must be increasing", self.stages)
            require(self.stages[0] >= 2, "stages", "must start at 2 layers or more", self.stages)
            require(self.stages[-1] == self.layers, "stages", f"must end at layers = {self.layers}", self.stages)
        if self.plan is not None:
            workers = self.workers or len(self.plan)
            fits = len(self.plan) == workers and sum(self.plan) == self.layers and min(self.plan) >= 1
            rule = f"must give each of {workers} workers at least one of {self.layers} layers"
            require(fits, "plan", rule, self.plan)
        require(self.bits is None or self.levels is None, "levels", "excludes bits: give one of the two", self.levels)
        if isinstance(self.levels, tuple):
            require(len(self.levels) >= 2, "levels", "needs at least two values", self.levels)
            require(max(map(abs, self.levels)) <= 1e15, "levels", "must be at most 1e15", self.levels)
            single = [struct.unpack("f", struct.pack("f", level))[0] for level in self.levels]
            rising = all(a < b for a, b in pairwise(single))
            require(rising, "levels", "must be sorted and distinct in single precision", self.levels)
        alone = {self.workers, self.shards} <= {None, 1} and len(self.plan or (0,)) == 1
        rule = "must be a name, not a function, where several processes train"
        require(alone or not callable(self.scoring), "scoring", rule, self.scoring)
        others = "pdadmm-g" if self.by_gradient else "gradient"
        name = f"method {self.method}" if self.by_gradient else self.method
        for item in dataclasses.fields(self):
            useless = item.metadata["method"] == others and getattr(self, item.name) != item.default
            require(not useless, item.name, f"has no effect with {name}", getattr(self, item.name))
        if self.target != "auto":
            self._check_target()
        for name in ("bits", "levels"):
            useless = self.quantize == "none" and getattr(self, name) is not None
            require(not useless, name, "has no effect without quantize p or pq", getattr(self, name))

    def _check_target(self) -> None:
        """Raise unless the settings go with the kind of target."""
        known, others = TARGETS[self.target], [other for name, other in TARGETS.items() if name != self.target]
        for name, given, allowed, foreign in (
            ("risk", self.risk, known.risks, [risk for other in others for risk in other.risks]),
            ("scoring", self.scoring, known.scorings, [scoring for other in others for scoring in other.scorings]),
        ):
            # What nobody knows here is somebody's own, see docs/guides/extending.md.
            fits = given in allowed or given not in foreign
            require(fits, name, f"must be one of {', '.join(allowed)} with {self.target}", given)
        if self.target == "classification":
            return
        for name, usual, remedy in (
            ("class_weight", None, "is for classes: weigh rows with sample_weight instead"),
            ("calibrate", False, "is for classes: leave it out"),
        ):
            require(getattr(self, name) == usual, name, remedy, getattr(self, name))
        require(not self.unlabelled, "unlabelled", "must be 0: only nodes without a class can teach", self.unlabelled)
        require(not self.sees_copies, "method", "is for classes: take pdadmm-g, adam or sign", self.method)

    @property
    def asked_target(self) -> TargetKind:
        """The kind of target that was asked for, by its name or by a risk that no other has; else auto."""
        return "multilabel" if self.target == "auto" and self.risk == "logistic" else self.target

    @property
    def by_gradient(self) -> bool:
        """Is the method one of those to compare with, which use backpropagation?"""
        return METHODS[self.method].optimizer is not None

    @property
    def processes(self) -> int:
        """How many processes train, where their numbers are chosen."""
        assert self.workers != "auto"
        return (self.workers or 1) * (self.shards or 1)

    @property
    def needs_graph(self) -> bool:
        """Does its network take the whole graph, in training and to predict?"""
        return METHODS[self.method].needs_graph

    @property
    def sees_copies(self) -> bool:
        """Does a step of its training see random copies of the features instead of them?"""
        return METHODS[self.method].copies > 0

    @classmethod
    def from_settings(cls: type[Config], settings: dict[str, Any]) -> Config:
        """From values as they come out of YAML, JSON or the command line."""
        kinds = typing.get_type_hints(cls)
        return cls(**{name: coerce(name, value, kinds[name]) for name, value in settings.items()})

    def resolved(self: Config) -> Config:
        """The same with every default that depends on another field filled in; what depends on the data stays."""
        growth = (*(depth for depth in GROWTH_DEPTHS if depth < self.layers), self.layers)
        bits = self.bits if self.levels is not None or self.quantize == "none" else self.bits or 8
        usual = METHODS[self.method]
        augment = usual.augment if self.augment == "auto" else self.augment
        hops = self.hops or (usual.hops if self.augment == "auto" else None)
        hops = hops or {"auto": None, "none": 1, "hops": 4, "apart": 3, "average": 16, "power": 2}[augment]
        # Random propagation is over all powers from A^0 on alike: the input is one of K + 1.
        teleport = 1 / (hops + 1) if usual.copies and hops else None
        settings: dict[str, Any] = {
            "stages": self.stages or growth,
            "growth": self.growth or ("all" if self.stages or self.patience is None else "gain"),
            "patience": usual.patience if self.patience == "auto" else self.patience,
            "bits": bits,
            "augment": augment,
            "normalize": usual.normalize if self.normalize == "auto" else self.normalize,
            "hops": hops,
            "teleport": teleport if self.teleport is None else self.teleport,
            "weight_decay": usual.weight_decay if self.weight_decay is None else self.weight_decay,
            "learning_rate": self.learning_rate or usual.learning_rate,
        }
        if self.target != "auto":
            known = TARGETS[self.target]
            settings["risk"] = known.risks[0] if self.risk == "auto" else self.risk
            settings["scoring"] = known.scorings[0] if self.scoring == "auto" else self.scoring
        if not self.by_gradient:
            planned = len(self.plan) if self.plan else 1
            settings["workers"] = self.workers or ("auto" if self.shards and not self.plan else planned)
            settings["shards"] = self.shards if self.shards or self.workers == "auto" else 1
        return dataclasses.replace(self, **settings)

    def settled(self: Config, target: TargetKind | None = None) -> Config:
        """Resolved for targets of a kind that is known: the one named, or asked for, or else classes.

        Nodes without labels teach only where these are classes.
        """
        target = target or (self.target if self.target != "auto" else "classification")
        settings: dict[str, Any] = {"target": target}
        if target != "classification" and not self.by_gradient and self.unlabelled is None:
            settings["unlabelled"] = 0
        return dataclasses.replace(self, **settings).resolved()


@dataclass(frozen=True, kw_only=True)
class RunConfig(ModelConfig):
    """A whole run: the model's configuration, its data and where the results go."""

    dataset: str = option(
        "digits",
        "name of a benchmark (see 'pdadmm-g datasets'), an .npz, .pt or .graphml file, a table of nodes (.csv, .tsv, "
        ".parquet), or a folder of shards",
        RUN,
        rules=PATH,
    )
    edges: str | None = option(
        None, "table of edges (.csv, .tsv, .parquet) that goes with a table of nodes", RUN, rules=PATH
    )
    labels: tuple[str, ...] | None = option(
        None, "columns of a table of nodes that are learned, e.g. price or topic_a,topic_b [default: label]", RUN
    )
    data_root: str | None = option(
        None, "folder of raw benchmark files [default: $PDADMM_G_DATA]", RUN, rules=PATH, decides="nothing"
    )
    seed: int = option(
        0, "seed of the initial weights", RUN,
        rules=(("must be between 0 and 2^62", lambda value: 0 <= value < 2**62),),
    )  # fmt: skip
    init: str | None = option(
        None, "run folder or model file whose network training starts from, with its features and what else is left to "
        "the data [default: random weights]", RUN, rules=PATH,
    )  # fmt: skip
    out: str | None = option(None, "run folder [default: runs/DATASET-SEED]", RUN, rules=PATH, decides="nothing")
    checkpoint_every: int | None = option(
        None, "write a checkpoint every so many epochs, from which --resume goes on", RUN, decides="nothing",
        method="pdadmm-g",
    )  # fmt: skip
    tensorboard: bool = option(
        False, "also write every epoch's scalars for TensorBoard, to OUT/tensorboard", decides="nothing"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        tables = Path(self.dataset).suffix in NODE_TABLES
        require(self.edges is None or tables, "edges", "goes with a table of nodes (--nodes)", self.edges)
        require(self.labels is None or tables, "labels", "names columns of a table of nodes (--nodes)", self.labels)
        require(self.labels is None or all(self.labels), "labels", "must be names of columns", self.labels)
        once = self.labels is None or len({*self.labels}) == len(self.labels)
        require(once, "labels", "names a column twice", self.labels)
        every = self.checkpoint_every
        if every is not None:
            rule = f"must be a multiple of eval_every = {self.eval_every}"
            require(every >= 1 and every % self.eval_every == 0, "checkpoint_every", rule, every)

    def resolved(self) -> RunConfig:
        path = Path(self.dataset)
        out = self.out or str(Path("runs") / f"{path.stem}-{self.seed}")
        # A run must find its files again from wherever it is evaluated. (Path.is_file raises where a name is too long.)
        is_file = path.suffix in GRAPH_FILES or os.path.isfile(path / "description.json")  # noqa: PTH113
        dataset, edges = (
            str(find_graph(Path(name), self.data_root).resolve()) if name and is_file else name
            for name in (self.dataset, self.edges)
        )
        root, init = (path and str(Path(path).resolve()) for path in (self.data_root, self.init))
        return dataclasses.replace(
            super().resolved(), dataset=dataset or "", edges=edges, data_root=root, init=init, out=out
        )

    def model_settings(self) -> dict[str, Any]:
        """The fields of :class:`ModelConfig`, as keyword arguments."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(ModelConfig)}

    @classmethod
    def load(cls, path: str | Path | None, overrides: dict[str, Any] | None = None) -> RunConfig:
        """Read a YAML file of settings (none if ``path`` is None), then apply ``overrides`` on top."""
        settings = {} if path is None else read_yaml(Path(path))
        types_by_name = typing.get_type_hints(cls)
        for name in settings:
            if name not in types_by_name:
                raise InputError(f"{path}: unknown setting '{name}'{_suggestion(name, types_by_name)}")
        return cls.from_settings(settings | (overrides or {}))

    def to_yaml(self) -> str:
        """Every setting, in the order of definition."""
        settings = {
            item.name: list(value) if isinstance(value := getattr(self, item.name), tuple) else value
            for item in sorted(dataclasses.fields(self), key=lambda item: item.name in ModelConfig.__dataclass_fields__)
        }
        return yaml.safe_dump(settings, sort_keys=False)


def _suggestion(name: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
