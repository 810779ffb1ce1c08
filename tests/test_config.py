from __future__ import annotations

import dataclasses
import inspect
import os
from pathlib import Path

import pytest

from pdadmm_g import GAMLPClassifier, GAMLPRegressor, InputError
from pdadmm_g.config import GONE, TARGETS, ModelConfig, RunConfig, still_there


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rho": 0}, "rho must be .* above 0 .*, got 0"),
        ({"rho": "nan"}, "rho must be"),
        ({"rho": "much"}, "rho must be a number.*, got much"),
        ({"layers": 1}, "layers must be .* at least 2 .*, got 1"),
        ({"layers": 2.5}, "layers must be a whole number"),
        ({"layers": "9" * 400}, "layers must be a whole number"),
        ({"hidden": 10**9}, "hidden must be .* at most 1000000"),
        ({"stages": "2,2,10"}, "stages must be increasing .*, got .*2, 2, 10"),
        ({"stages": "1,10"}, "stages must be increasing from at least 2"),
        ({"stages": "2,5"}, "stages must be increasing .* to layers = 10"),
        ({"levels": "1"}, "levels must be two or more"),
        ({"quantize": "p", "levels": "1,1.0000000001"}, "levels must be .* distinct in single precision"),
        ({"levels": "0,1", "bits": 4}, "levels excludes bits"),
        ({"bits": 4}, "bits has no effect without quantize"),
        ({"activation": "swish"}, "activation must be one of relu, leaky-relu, tanh, sigmoid, identity, got swish"),
        ({"teleport": 1}, "teleport must be .* below 1"),
        ({"row_normalize": "maybe"}, "row_normalize must be true or false"),
        ({"dataset": [1]}, "dataset must be text"),
        ({"seed": 2**64}, "seed must be"),
        ({"workers": 2, "plan": "9,2"}, "plan must give each of 2 workers at least one of 10 layers"),
        ({"class_weight": "heavy"}, "class_weight must be a mapping .* or 'balanced' .*, got heavy"),
        ({"class_weight": {"a": -1}}, "class_weight of class a must be .* at least 0 .*, got -1"),
        ({"checkpoint_every": 5, "eval_every": 2}, "checkpoint_every must be a multiple of eval_every = 2"),
    ],
)
def test_bad_values_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunConfig(**settings)


def test_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("rho: 1e-3\nnu: 1e-3\nlayers: 4\nstages: [2, 4]\nquantize: p\nlevels: paper\npatience: none\n")
    config = RunConfig.load(path, {"rho": "2", "stages": "3,4"})
    assert (config.rho, config.nu, config.layers, config.stages) == (2.0, 1e-3, 4, (3, 4))
    assert config.levels == "paper"
    assert config.patience is None


def test_default_stages() -> None:
    known = {2: (2,), 3: (2, 3), 10: (2, 5, 10), 50: (2, 5, 10, 20, 50), 11: (2, 5, 10, 11)}
    assert {layers: ModelConfig(layers=layers).resolved().stages for layers in known} == known


def test_settings_that_are_gone_are_read_where_they_say_how_things_are(tmp_path: Path) -> None:
    assert still_there(GONE | {"hidden": 7}) == {"hidden": 7}
    (tmp_path / "old.yaml").write_text("method: adam\n")
    with pytest.raises(InputError, match="method is no longer a setting: leave it out, got adam"):
        RunConfig.load(tmp_path / "old.yaml")


def test_resolved_fills_in_what_depends_on_other_settings() -> None:
    config = RunConfig(dataset="graphs/mine.npz", seed=3).resolved()
    assert (config.hops, config.bits, config.out) == (None, None, "runs/mine-3")
    assert Path(config.dataset).is_absolute()
    assert ModelConfig(augment="hops").resolved().hops == 4
    assert ModelConfig(augment="average").resolved().hops == 16
    assert ModelConfig(quantize="p").resolved().bits == 8
    assert ModelConfig(quantize="p", levels="paper").resolved().bits is None


def test_what_goes_with_each_kind_of_target() -> None:
    for target, known in TARGETS.items():
        config = ModelConfig(target=target).resolved(classes=3)
        assert (config.risk, config.scoring) == (known.risks[0], known.scorings[0])
    assert ModelConfig().resolved("classification", classes=2).scoring == "roc_auc_ovr"
    assert ModelConfig(scoring="accuracy").resolved("classification", classes=2).scoring == "accuracy"
    unknown = ModelConfig().resolved()
    assert (unknown.risk, unknown.scoring) == ("auto", "auto")
    assert unknown.resolved("classification").risk == "cross-entropy"
    numbers = unknown.resolved("regression")
    assert (numbers.risk, numbers.scoring, numbers.unlabelled) == ("squared-error", "r2", 0)
    assert ModelConfig(risk="logistic").asked_target == "multilabel"
    for wrong in ({"risk": "logistic"}, {"scoring": "accuracy"}, {"class_weight": "balanced"}, {"unlabelled": 5}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            ModelConfig(target="regression", **wrong)


def test_the_record_is_the_constructor_of_the_estimators() -> None:
    usual = {item.name: item.default for item in dataclasses.fields(ModelConfig) if item.name != "target"}
    for kind in (GAMLPClassifier, GAMLPRegressor):
        parameters = inspect.signature(kind).parameters
        assert {name: each.default for name, each in parameters.items()} == usual | {
            "verbose": None, "random_state": None,
        }  # fmt: skip
        assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weight-decai: 1\n", "run.yaml: unknown setting 'weight_decai'; did you mean 'weight_decay'"),
        ("a: [", "not valid YAML"),
        ("- 1\n- 2\n", "expected 'setting: value' lines"),
        ("!!python/object/apply:os.getcwd []", "not valid YAML"),
        ("layers: 3\nlayers: 4\n", "'layers' is there twice"),
        ("eval-every: 3\neval_every: 4\n", "'eval_every' is there twice"),
        ("layers: &a 3\nepochs: *a\n", r"'\*a' stands for another value: write it out"),
        ("layers: &a\n  - *a\n", r"'\*a' stands for another value"),
        ("[" * 5000, "not valid YAML"),
        ("out: " + "9" * 5000, "not valid YAML"),
        ("augment: " + "x" * 100_000, "augment must be one of"),
        ('dataset: "a\\0.npz"\n', "dataset must be text without a null byte"),
    ],
    ids=lambda text: text[:12],
)
def test_files_that_are_not_settings(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        RunConfig.load(tmp_path / "run.yaml")
    assert len(str(caught.value)) <= 520
    assert "\n" not in str(caught.value)


def test_files_without_end_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            RunConfig.load(path)


def test_a_scorer_is_for_one_process(tmp_path: Path) -> None:
    """A function cannot be told to others; names can, and are all that a file may have."""

    def scorer(estimator: object, X: object, y: object) -> float:
        return 0.0

    assert ModelConfig(**{"scoring": scorer, "workers": 1}).scoring is scorer
    for mesh in ({"workers": 2}, {"shards": 2}, {"workers": "auto"}, {"plan": (5, 5)}):
        with pytest.raises(InputError, match="scoring must be a name, not a function, where several processes train"):
            ModelConfig(**{"scoring": scorer, **mesh})
        assert ModelConfig(**{"scoring": "f1_macro", **mesh}).scoring == "f1_macro"
    with pytest.raises(InputError, match="scoring must be one of auto, accuracy, balanced_accuracy, .*, got f1"):
        ModelConfig(**{"scoring": "f1"})
