"""The settings of a run: what each is called, may be and does, what follows from others, and their YAML.

Imports nothing heavy, so that ``pdadmm-g --help`` is instant and every other module may read it.
"""

from __future__ import annotations

import array
import contextlib
import copy
import dataclasses
import difflib
import math
import numbers
import os
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import yaml
from msgspec import Meta

from .errors import InputError
from .utils import find_graph, read_text

Config = TypeVar("Config", bound="ModelConfig")

#: Endings of the files that a graph may be in, and of those that hold its nodes alone.
NODE_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
GRAPH_FILES = (".npz", ".pt", ".graphml", *NODE_TABLES)
#: Neurons per hidden layer, where nothing says otherwise.
HIDDEN = 100
#: Depths at which greedy growth pauses to train, unless stages are given.
GROWTH_DEPTHS = (2, 5, 10, 20, 50, 100, 200, 500, 1000)


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
#: What a column of a table may be, see :mod:`pdadmm_g.graph.columns`.
Role = Literal["number", "count", "boolean", "category", "date", "text", "ignore"]
ROLES = typing.get_args(Role)
Count = Annotated[int, Meta(ge=1, le=10**6)]
FromZero = Annotated[int, Meta(ge=0, le=10**6)]
Positive = Annotated[float, Meta(gt=0, le=1e15)]
NotNegative = Annotated[float, Meta(ge=0, le=1e15)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Seed = Annotated[int, Meta(ge=0, lt=2**62, description="a whole number, at least 0 and below 2^62")]
Text = Annotated[str, Meta(pattern=r"\A[^\0]*\Z", description="text without a null byte")]

#: The groups in which settings are shown, in that order.
RUN, GRAPH, NETWORK = "Data and run folder", "What the graph adds to the features", "Network"
UNLABELLED = "Learning from unlabelled nodes"
TRAINING, QUANTIZATION, MACHINE = "Training", "Quantization (pdADMM-G-Q)", "Workers and devices"
GROUPS = (RUN, GRAPH, NETWORK, TRAINING, UNLABELLED, QUANTIZATION, MACHINE)


#: Settings of version 0.2 that are gone, with the value of each that is how it is now.
GONE = {
    "method": "pdadmm-g", "learning_rate": None, "penalty": "constant", "wire": "float32", "verify": False,
    "compile": None, "tensorboard": False,
}  # fmt: skip


def still_there(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file without those that are gone; an error if one of these was another than how it is now."""
    for name in settings.keys() & GONE.keys():
        require(settings[name] == GONE[name], name, "is no longer a setting: leave it out", settings[name])
    return {name: value for name, value in settings.items() if name not in GONE}


def option(
    default: Any,
    help: str,
    group: str = "",
    *,
    decides: Literal["model", "bits", "nothing"] = "model",
    by_data: bool = False,
) -> Any:
    """A field with all that there is to know of a setting; its bounds are part of its type.

    Args:
        default: The value where none is given.
        help: Its line of documentation.
        group: Where it is shown, one of :data:`GROUPS`; empty for other places.
        decides: What another value may change: the trained model, the last bits of its weights, or nothing of it. A
            model file has the settings of the first kind, and a resumed run may have others of the last.
        by_data: May it be left to the data? What was chosen once stays chosen.
    """
    return field(default=default, metadata={"help": help, "group": group, "decides": decides, "by_data": by_data})


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


# fmt: off
@dataclass(kw_only=True, eq=False, repr=False)
class Settings:
    """What shapes the trained model. The parameters of the estimators, as given, and of :class:`ModelConfig`."""

    augment: Literal["auto", "none", "hops", "apart", "average", "power"] = option(
        "auto", "what the graph adds to the features: hop blocks I..A^(K-1) side by side, the same without self-loops "
        "(apart), their average, the power A^K alone, nothing, or whichever suits a linear model best on the "
        "validation nodes", GRAPH, by_data=True,
    )
    hops: Count | None = option(
        None, "number K of operators [default: 4 for hops, 3 for apart, 16 for average, 2 for power]",
        GRAPH, by_data=True,
    )
    teleport: Share | None = option(
        None, "share of the node's own features in the averaged operator [default: 0.05; what "
        "suits best where unlabelled nodes are learned from]", GRAPH, by_data=True,
    )
    row_normalize: bool | None = option(
        None, "divide each node's features by their absolute sum before augmenting [default: yes, or whichever suits "
        "best where augment is auto]", GRAPH, by_data=True,
    )
    normalize: Literal["auto", "none", "unit", "centered", "standard"] = option(
        "auto", "augmented features: as they are, each block scaled to unit length, also centred over the nodes, or "
        "each column standardized; auto takes whichever of the last three suits best", GRAPH, by_data=True,
    )
    components: Count | None = option(
        None, "principal directions of the features that are augmented "
        "[default: all features, or 256 directions where unlabelled nodes are learned from; where augment is auto also "
        "64, 256, or as many as there is time for]", GRAPH, by_data=True,
    )
    directed: Literal["auto", "symmetric", "out", "in", "both"] = option(
        "auto", "which way features go along edges: both ways alike (symmetric), to a node from those that it points "
        "to (out), the other way (in), or each way in blocks of its own (both); auto takes symmetric where edges have "
        "no direction, else that or both, whichever suits a linear model best on the validation nodes", GRAPH,
        by_data=True,
    )
    label_hops: FromZero | None = option(
        None, "known labels of nodes one, two, ... hops away are features too, up to so many hops; 0 for none "
        "[default: 4 where they help, 0 where unlabelled nodes are learned from]", GRAPH, by_data=True,
    )
    columns: Mapping[str, Role] | None = option(
        None, "what columns of a table of nodes are: number, count, boolean, category, date, text or ignore, e.g. "
        "zip=category,note=ignore, in Python and YAML a mapping [default: what their values look like]", GRAPH,
    )
    layers: Annotated[int, Meta(ge=2, le=10**4)] = option(
        10, "maximum depth, at least 2; growth stops early if a deeper network does not improve validation", NETWORK,
    )
    hidden: Count | None = option(
        None, "neurons per hidden layer [default: 100, on a graph 400 where that suits better]", NETWORK, by_data=True,
    )
    stages: tuple[int, ...] | None = option(
        None, "depths of greedy growth, increasing, the last one equal to layers [default: 2,5,10,20,... up to layers]",
        NETWORK,
    )
    growth: Literal["gain", "all"] | None = option(
        None, "go on to a deeper stage only where the one before gained half a point on validation, or through all "
        "[default: all where stages are given or patience is none, else gain]", NETWORK,
    )
    activation: Literal["relu", "leaky-relu", "tanh", "sigmoid", "identity"] = option("relu", "activation f", NETWORK)
    risk: Literal["auto", "cross-entropy", "logistic", "squared-error"] = option(
        "auto", "risk R of the last layer [default: cross-entropy for classes, logistic for several labels a node, "
        "squared-error for numbers]", NETWORK,
    )
    solver: Literal["linearized", "exact"] = option(
        "exact", "p- and W-steps: the paper's linearized ones, or exact minimisation", TRAINING,
    )
    rho: Positive = option(5.0, "penalty on p = q; above 4.1 nu the objective provably never rises", TRAINING)
    nu: Positive = option(1.0, "penalty on z = pW+b and q = f(z)", TRAINING)
    weight_decay: NotNegative | None = option(
        None, "pull of the weights toward their anchors; 0 is the paper's algorithm "
        "[default: what suits the first stage best on the validation nodes]",
        TRAINING, by_data=True,
    )
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = option(
        None, "what the rows of each class weigh: balanced, so that all classes count alike, or in Python and YAML a "
        "mapping from class to weight, 1 for those not named [default: 1 for all]", TRAINING,
    )
    quantize: Literal["none", "p", "pq"] = option(
        "none", "variables quantized to levels (pdADMM-G-Q): none, p, p and q", QUANTIZATION,
    )
    bits: Annotated[int, Meta(ge=1, le=16)] | None = option(
        None, "calibrate 2^bits levels to the activations of each boundary [default: 8]", QUANTIZATION,
    )
    levels: tuple[Annotated[float, Meta(ge=-1e15, le=1e15)], ...] | Literal["paper"] | None = option(
        None, "explicit levels instead of bits: increasing numbers, or 'paper' for -1,0,1,...,20", QUANTIZATION,
    )
    epochs: Count = option(300, "most epochs of each stage", TRAINING)
    patience: Count | Literal["auto"] | None = option(
        "auto", "end a stage after so many epochs without a better validation score and restore the best weights; "
        "'none' trains all epochs and keeps the last weights [default: 50]", TRAINING,
    )
    scoring: Scoring = option(
        "auto", "what the validation nodes choose by, the epoch that is kept and all that is left to the data; in "
        "Python also a scorer(estimator, X, y) as scikit-learn has them [default: accuracy for classes, roc_auc_ovr "
        "for two of them, f1_micro for several labels a node, r2 for numbers]", TRAINING,
    )
    calibrate: bool | None = option(
        None, "divide the logits by the temperature that makes the log loss of the validation nodes, or out of fold, "
        "smallest, and of two classes shift them: better probabilities, and of more than two classes the same "
        "predictions; also for what refit trains [default: of classes, where nodes validate or decide out of fold]",
        TRAINING,
    )
    validation: Share | None = option(
        None, "share of the labelled nodes of each class, at least one node and 2000 at the most in all, that is set "
        "aside to validate where the graph does not say which do; 0 for none, and no choice by the data [default: none "
        "of up to 5000 labelled nodes, which all train and decide out of fold; a fifth of more]", TRAINING,
    )
    refit: bool = option(
        False, "train again in the end, on the validation nodes too, with what was chosen and for as many epochs",
        TRAINING,
    )
    split: FromZero | None = option(
        None, "which of several splits to take, where masks have a column for each [default: the first, 0]", TRAINING,
    )
    tolerance: NotNegative = option(
        1e-6, "converged when both residuals are this small relative to q; 0 never stops", TRAINING,
    )
    eval_every: Count = option(1, "measure training and validation accuracy every so many epochs", TRAINING)
    unlabelled: FromZero | None = option(
        None, "most unlabelled nodes to learn from in a round; 0 for none "
        "[default: 1000 where they help on the validation nodes; 0 on a sharded folder]", UNLABELLED,
        by_data=True,
    )
    rounds: Count = option(12, "renewals of the targets of unlabelled nodes", UNLABELLED)
    copies: Count = option(2, "random copies of the features in a round", UNLABELLED)
    drop: Share = option(
        0.5, "probability with which a copy leaves out the features of a node", UNLABELLED,
    )
    drop_entries: Share | None = option(
        None, "probability with which it leaves out each single feature of a node, where nearly all features are zero "
        "[default: what suits best]", UNLABELLED, by_data=True,
    )
    sharpness: Positive | None = option(
        None, "exponent that makes the mean prediction of the copies a target [default: what suits best]", UNLABELLED,
        by_data=True,
    )
    trust: NotNegative = option(
        10.0, "weight of all unlabelled nodes together, the labelled ones being one", UNLABELLED,
    )
    workers: Count | Literal["auto"] | None = option(
        None, "processes that share the layers, any number to the same weights; 'auto' for what should end first here, "
        "of these and of shards [default: 1, or auto where shards are given]", MACHINE,
        decides="nothing",
    )
    shards: Count | None = option(
        None, "parts of the training rows, each with workers of its own; the trained weights differ by rounding "
        "[default: 1, or what suits best with --workers auto]", MACHINE, decides="bits",
    )
    threads: Count = option(
        1, "compute threads of each worker; another number may change the last bits of the weights", MACHINE,
        decides="bits",
    )
    plan: tuple[int, ...] | None = option(
        None, "layers of each worker at full depth, e.g. 3,3,4 [default: dealt to balance the work]", MACHINE,
        decides="nothing",
    )
    timeout: Positive = option(
        60.0, "seconds after which a worker that does not answer counts as lost", MACHINE, decides="nothing",
    )
    device: str = option(
        "cpu", "torch device: cpu, cuda, cuda:1, ..., or auto for a GPU where there is one", MACHINE, decides="bits",
    )
    precision: Literal["fp32", "tf32", "bf16"] = option(
        "fp32", "factors of the large products in an epoch: as they are, or rounded to TF32 (on a GPU) or bfloat16; "
        "sums and the state stay in single precision, all but the residual r with bf16 and the linearized solver",
        MACHINE,
    )
# fmt: on


@dataclass(kw_only=True)
class ModelConfig(Settings):
    """The settings of a training, converted to their types and checked. Not to be changed: ``dataclasses.replace``."""

    target: TargetKind = option(
        "auto",
        "what is learned: one class a node, several labels a node (0/1 in a column each), or numbers; auto takes "
        "several labels where there are several columns of 0 and 1, else classes",
        TRAINING,
        by_data=True,
    )

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            setattr(self, name, convert(name, value, KINDS[name]))
        if self.stages is not None:
            rises = self.stages != () and self.stages[0] >= 2 and _rises(self.stages) and self.stages[-1] == self.layers
            require(rises, "stages", f"must be increasing from at least 2 to layers = {self.layers}", self.stages)
        if self.plan is not None:
            workers = self.workers or len(self.plan)
            fits = len(self.plan) == workers and sum(self.plan) == self.layers and min(self.plan) >= 1
            rule = f"must give each of {workers} workers at least one of {self.layers} layers"
            require(fits, "plan", rule, self.plan)
        require(self.bits is None or self.levels is None, "levels", "excludes bits: give one of the two", self.levels)
        if isinstance(self.levels, tuple):
            rises = len(self.levels) > 1 and _rises(array.array("f", self.levels))
            require(rises, "levels", "must be two or more, sorted and distinct in single precision", self.levels)
        alone = {self.workers, self.shards} <= {None, 1} and len(self.plan or (0,)) == 1
        rule = "must be a name, not a function, where several processes train"
        require(alone or not callable(self.scoring), "scoring", rule, self.scoring)
        if self.target != "auto":
            self._check_target()
        rule = "must be 0 where unlabelled nodes are learned from"
        require(not (self.label_hops and self.unlabelled), "label_hops", rule, self.label_hops)
        for name in ("bits", "levels"):
            useless = self.quantize == "none" and getattr(self, name) is not None
            require(not useless, name, "has no effect without quantize p or pq", getattr(self, name))

    def _check_target(self) -> None:
        """Raise unless the settings go with the kind of target."""
        known = TARGETS[self.target]
        for name, given, allowed in (("risk", self.risk, known.risks), ("scoring", self.scoring, known.scorings)):
            # What nobody knows here is somebody's own, see docs/guides/extending.md.
            foreign = given not in allowed and any(given in getattr(other, f"{name}s") for other in TARGETS.values())
            require(not foreign, name, f"must be one of {', '.join(allowed)} with {self.target}", given)
        if self.target != "classification":
            remedy = "is for classes: weigh rows with sample_weight instead"
            require(self.class_weight is None, "class_weight", remedy, self.class_weight)
            require(not self.calibrate, "calibrate", "is for classes: leave it out", self.calibrate)
            require(not self.unlabelled, "unlabelled", "must be 0: pseudo-labels are of classes", self.unlabelled)

    @property
    def asked_target(self) -> TargetKind:
        """The kind of target that was asked for, by its name or by a risk that no other has; else auto."""
        return "multilabel" if self.target == "auto" and self.risk == "logistic" else self.target

    @property
    def width(self) -> int:
        """Neurons per hidden layer."""
        return self.hidden or HIDDEN

    @property
    def processes(self) -> int:
        """How many processes train, where their numbers are chosen."""
        assert self.workers != "auto"
        return (self.workers or 1) * (self.shards or 1)

    def but(self: Config, **changes: Any) -> Config:
        """The same with other values, which are known to be sound and are not checked again."""
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    def resolved(self: Config, target: TargetKind = "auto", classes: int = 0) -> Config:
        """The same with every default that follows from other settings filled in; what the data decides stays open.

        Args:
            target: The kind of target, once it is known, where the settings leave it open.
            classes: The number of classes, once it is known.
        """
        target = target if self.target == "auto" else self.target
        growth = (*(depth for depth in GROWTH_DEPTHS if depth < self.layers), self.layers)
        bits = self.bits if self.levels is not None or self.quantize == "none" else self.bits or 8
        hops = {"auto": None, "none": 1, "hops": 4, "apart": 3, "average": 16, "power": 2}
        settings: dict[str, Any] = {
            "stages": self.stages or growth,
            "growth": self.growth or ("all" if self.stages or self.patience is None else "gain"),
            "patience": 50 if self.patience == "auto" else self.patience,
            "bits": bits,
            "hops": self.hops or hops[self.augment],
            "target": target,
        }
        if target != "auto":
            known = TARGETS[target]
            settings["risk"] = known.risks[0] if self.risk == "auto" else self.risk
            if self.scoring == "auto" and (target != "classification" or classes):
                two = target == "classification" and classes == 2
                settings["scoring"] = "roc_auc_ovr" if two else known.scorings[0]
        if target not in ("auto", "classification") and self.unlabelled is None:
            settings["unlabelled"] = 0
        planned = len(self.plan) if self.plan else 1
        settings["workers"] = self.workers or ("auto" if self.shards and not self.plan else planned)
        settings["shards"] = self.shards if self.shards or self.workers == "auto" else 1
        found = self.but(**settings)
        if target != self.target:
            found._check_target()
        return found


@dataclass(kw_only=True)
class RunConfig(ModelConfig):
    """A whole run: the model's configuration, its data and where the results go."""

    # fmt: off
    dataset: Text = option(
        "digits", "name of a benchmark (see 'pdadmm-g datasets'), an .npz, .pt or .graphml file, a table of nodes "
        "(.csv, .tsv, .parquet), or a folder of shards", RUN,
    )
    edges: Text | None = option(None, "table of edges (.csv, .tsv, .parquet) that goes with a table of nodes", RUN)
    labels: tuple[str, ...] | None = option(
        None, "columns of a table of nodes that are learned, e.g. price or topic_a,topic_b [default: label]", RUN,
    )
    id_column: Text | None = option(
        None, "column of a table of nodes with their ids [default: id, or what looks so]", RUN,
    )
    source_column: Text | None = option(
        None, "column of a table of edges where they begin [default: source, from, src, ...]", RUN,
    )
    target_column: Text | None = option(None, "column where they end [default: target, to, dst, ...]", RUN)
    skip_unknown: bool = option(False, "leave out edges of nodes that the table of nodes does not have", RUN)
    data_root: Text | None = option(
        None, "folder of raw benchmark files [default: $PDADMM_G_DATA]", RUN, decides="nothing",
    )
    seed: Seed = option(0, "seed of the initial weights", RUN)
    init: Text | None = option(
        None, "run folder or model file whose network training starts from, with its features and what else is left to "
        "the data [default: random weights]", RUN,
    )
    out: Text | None = option(None, "run folder [default: runs/DATASET-SEED]", RUN, decides="nothing")
    checkpoint_every: Count | None = option(
        None, "write a checkpoint every so many epochs, from which --resume goes on", RUN, decides="nothing",
    )
    # fmt: on

    def __post_init__(self) -> None:
        super().__post_init__()
        tables = self.dataset.endswith(NODE_TABLES)
        if self.edges is not None and not tables:
            kinds = f"a file that ends in {', '.join(NODE_TABLES)}"
            raise InputError(f"edges goes with a table of nodes (--nodes), {kinds}: save {_shown(self.dataset)} as one")
        for name, value in self.naming().items():
            require(not value or tables, name, "is about a table of nodes (--nodes)", value)
        require(self.labels is None or all(self.labels), "labels", "must be names of columns", self.labels)
        require(not _repeated(self.labels or ()), "labels", "names a column twice", self.labels)
        rule = f"must be a multiple of eval_every = {self.eval_every}"
        require((self.checkpoint_every or 0) % self.eval_every == 0, "checkpoint_every", rule, self.checkpoint_every)

    def resolved(self, target: TargetKind = "auto", classes: int = 0) -> RunConfig:
        path = Path(self.dataset)
        out = self.out or str(Path("runs") / f"{path.stem}-{self.seed}")
        # A run must find its files again from wherever it is evaluated. (Path.is_file raises where a name is too long.)
        is_file = path.name.endswith(GRAPH_FILES) or os.path.isfile(path / "description.json")  # noqa: PTH113
        dataset, edges = (
            str(find_graph(Path(name), self.data_root).resolve()) if name and is_file else name
            for name in (self.dataset, self.edges)
        )
        root, init = (path and str(Path(path).resolve()) for path in (self.data_root, self.init))
        paths: dict[str, Any] = {"dataset": dataset, "edges": edges, "data_root": root, "init": init, "out": out}
        return super().resolved(target, classes).but(**paths)

    def naming(self) -> dict[str, Any]:
        """What the columns of tables are called, as keyword arguments of ``load_dataset``."""
        names = ("labels", "id_column", "source_column", "target_column", "skip_unknown")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def load(cls, path: str | Path | None, overrides: dict[str, Any] | None = None) -> RunConfig:
        """Read a YAML file of settings (none if ``path`` is None), then apply ``overrides`` on top."""
        settings = {} if path is None else still_there(read_yaml(Path(path)))
        for name in settings:
            if name not in KINDS:
                close = difflib.get_close_matches(name, KINDS, n=1)
                hint = f"; did you mean '{close[0]}'?" if close else ""
                raise InputError(f"{path}: unknown setting '{name}'{hint}")
        return cls(**settings | (overrides or {}))

    def to_yaml(self) -> str:
        """Every setting, in the order of definition."""
        fields = sorted(dataclasses.fields(self), key=lambda item: item.name in ModelConfig.__dataclass_fields__)
        settings = {item.name: getattr(self, item.name) for item in fields}
        return yaml.safe_dump(msgspec.to_builtins(settings), sort_keys=False)


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings of a file as they stand there, names with underscores."""
    try:
        settings = yaml.load(read_text(path, "the configuration"), _Plain) or {}
    except InputError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(settings, dict):
        raise InputError(f"{path}: expected 'setting: value' lines")
    names = [str(name).replace("-", "_") for name in settings]
    if twice := _repeated(names):
        raise InputError(f"{path}: setting '{twice[0]}' is there twice")
    return dict(zip(names, settings.values(), strict=True))


class _Plain(yaml.SafeLoader):
    """Without aliases, by which a file of some hundred bytes has billions of values, and no key twice."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            problem = f"'*{self.peek_event().anchor}' stands for another value: write it out"
            raise yaml.MarkedYAMLError(problem=problem)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if twice := _repeated([key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]):
            raise yaml.MarkedYAMLError(problem=f"'{twice[0]}' is there twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


def _repeated(names: typing.Sequence[str]) -> list[str]:
    """Those that are there before."""
    return [name for place, name in enumerate(names) if name in names[:place]]


#: The type of every setting, bounds included.
KINDS = typing.get_type_hints(RunConfig, include_extras=True)


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of which a value may have one."""
    union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    return typing.get_args(kind) if union else (kind,)


def convert(name: str, value: Any, kind: Any) -> Any:
    """A value as people write it, in YAML, on the command line or in Python, as one of the type ``kind``."""
    written = alternatives(kind)
    origins = [typing.get_origin(option) for option in written]
    if name == "class_weight" and isinstance(value, Mapping):
        return _class_weights(name, value)
    if Callable in origins and callable(value):
        return value
    if hasattr(value, "tolist"):  # of NumPy or torch
        value = value.tolist()
    forms = [value]
    if isinstance(value, str):
        if type(None) in written and value.lower() == "none":
            return None
        forms.append(parts := value.split(","))
        if Mapping in origins and all("=" in part for part in parts):
            forms.append(dict(part.rsplit("=", 1) for part in parts))
    elif isinstance(value, Mapping):
        forms = [{str(key): role for key, role in value.items()}]
    elif isinstance(value, list):
        forms.append([str(item) for item in value])
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):  # thousands of digits
            forms.append(str(value))
    foreign = (Mapping[Any, float], Callable[..., float])
    plain: Any = [option for option in written if option not in foreign]
    for form in forms:
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(form, typing.Union[tuple(plain)], strict=False)  # noqa: UP007
    raise InputError(f"{name} must be {words(kind)}, got {_shown(value)}")


def words(kind: Any) -> str:
    """What a value of this type is."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        meta = arguments[1]
        signs = {"at least": meta.ge, "above": meta.gt, "at most": meta.le, "below": meta.lt}
        bounds = " and ".join(f"{sign} {bound:.7g}" for sign, bound in signs.items() if bound is not None)
        return meta.description or f"{words(arguments[0])}, {bounds}"
    if origin is Literal:
        return f"one of {', '.join(arguments)}" if len(arguments) > 1 else f"'{arguments[0]}'"
    if origin is tuple:
        return f"a comma-separated list, each {words(arguments[0])}"
    if origin is Mapping and arguments[0] is str:
        return f"NAME=ROLE,..., each role {words(arguments[1])}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(map(words, arguments))
    return _WORDS[origin or kind]


_WORDS = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "'none'",
    Mapping: "a mapping from class to weight", Callable: "a function",
}  # fmt: skip


def label_name(label: Any) -> str:
    """A label as text, by which settings name it, as JSON and YAML keep that. Equal labels have one name: 1 and 1.0."""
    label = label.item() if hasattr(label, "item") else label
    number = float(label) if isinstance(label, numbers.Real) else math.nan
    return str(int(label)) if number.is_integer() else str(label)


def _class_weights(name: str, value: Mapping[Any, Any]) -> dict[str, float]:
    """Weights by the names of the labels, in the order of these."""
    result: dict[str, float] = {}
    for label, weight in value.items():
        try:
            key = label_name(label)
        except (RuntimeError, TypeError, ValueError, OverflowError):  # tensors; numbers of thousands of digits
            raise InputError(f"{name} must map labels to weights, got the label {_shown(label)}") from None
        require(key not in result, name, f"names class {key} twice", value)
        result[key] = convert(f"{name} of class {key}", weight, NotNegative)
    return dict(sorted(result.items()))


def _rises(values: typing.Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _shown(value: Any) -> str:
    """A short text of a value that may be long, deep or without end."""
    try:
        return value[:60] if isinstance(value, str) else reprlib.repr(value)
    except ValueError:  # Python refuses to write out numbers of thousands of digits
        return "a number of thousands of digits"


def require(holds: bool, name: str, rule: str, value: Any) -> None:
    """Raise an :class:`InputError` that names the setting, the rule and the value, unless the rule holds."""
    if not holds:
        raise InputError(f"{name} {rule}, got {_shown(value)}")
