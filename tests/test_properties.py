"""Whatever is put in: a sound result or an InputError of one line."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch_geometric.data import Data

from pdadmm_g import InputError
from pdadmm_g.config import RunConfig
from pdadmm_g.data.checks import as_mask, check_graph

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3)
)
ARRAYS = arrays.arrays(
    st.one_of(
        arrays.boolean_dtypes(), arrays.integer_dtypes(), arrays.unsigned_integer_dtypes(), arrays.floating_dtypes(),
        arrays.complex_number_dtypes(), arrays.unicode_string_dtypes(max_len=3), arrays.datetime64_dtypes(),
    ),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
)  # fmt: skip
#: Numbers that the settings' rules do not tie to other settings.
FREE = {
    "rho": st.floats(1e-300, 1e15),
    "nu": st.floats(1e-300, 1e15),
    "tolerance": st.floats(0, 1e15),
    "teleport": st.floats(0, 1, exclude_max=True),
    "weight_decay": st.none() | st.floats(0, 1e15),
    "epochs": st.integers(1, 10**6),
    "seed": st.integers(0, 2**62 - 1),
    "activation": st.sampled_from(typing.get_args(typing.get_type_hints(RunConfig)["activation"])),
    "row_normalize": st.booleans(),
    "patience": st.none() | st.integers(1, 10**6),
    "dataset": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
}


def refused(error: InputError) -> None:
    """It says something, in one short line."""
    assert 0 < len(str(error)) <= 520
    assert str(error).isprintable()


@settings(max_examples=50)
@given(st.fixed_dictionaries({}, optional=FREE))
def test_settings_survive_yaml(tmp_path_factory, values: dict) -> None:
    path: Path = tmp_path_factory.mktemp("settings") / "run.yaml"
    config = RunConfig(**values)
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert RunConfig.load(path) == config


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from([item.name for item in dataclasses.fields(RunConfig)]), VALUES, max_size=3))
def test_any_settings(values: dict) -> None:
    try:
        config = RunConfig.from_settings(values)
    except InputError as error:
        return refused(error)
    assert RunConfig.from_settings(dataclasses.asdict(config)) == config
    return None


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["x", "edge_index", "y", "train_mask", "val_mask"]), ARRAYS | VALUES))
def test_any_graph(values: dict) -> None:
    data = Data()
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError):
            value = torch.as_tensor(value) if isinstance(value, np.ndarray) else value
        data[name] = value
    try:
        checked = check_graph(data)
    except InputError as error:
        return refused(error)
    nodes = len(checked.x)
    assert checked.x.ndim == 2
    assert bool(torch.isfinite(checked.x).all())
    assert checked.y is None or (checked.y.shape == (nodes,) and int(checked.y.min()) >= -1)
    return None


@settings(max_examples=100)
@given(ARRAYS | VALUES | st.lists(st.integers(0, 5)) | st.lists(st.booleans(), min_size=6, max_size=6))
def test_any_mask(values: object) -> None:
    try:
        mask = as_mask(values, 6, "mask")
    except InputError as error:
        return refused(error)
    assert mask.dtype == torch.bool
    assert mask.shape == (6,)
    if isinstance(values, list) and values and not isinstance(values[0], bool) and len(set(values)) == len(values):
        assert mask.nonzero().view(-1).tolist() == sorted(values)
    return None
