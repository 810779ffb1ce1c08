"""How many workers and shards there are where that was left open."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pdadmm_g.config import ModelConfig
from pdadmm_g.errors import InputError
from pdadmm_g.training import choose
from pdadmm_g.training.choose import choose_mesh


def chosen(rows: int, processes: int | None = None, **settings) -> tuple[int, int]:
    config = ModelConfig(**{"workers": "auto", "layers": 6, "hidden": 1000, "unlabelled": 0, **settings}).resolved()
    team = None if processes is None else SimpleNamespace(size=processes)
    result, (sentence,) = choose_mesh(config, (rows, 500), 10, team)
    assert (sentence == "one process: more should take no less time") is (result.workers * result.shards == 1)
    assert choose_mesh(result, (rows, 500), 10, team) == (result, ())
    return result.workers, result.shards


@pytest.mark.parametrize(
    ("cores", "rows", "settings", "mesh"),
    [
        (4, 5000, {}, (4, 1)),
        (16, 5000, {}, (6, 1)),  # no more than layers
        (4, 5000, {"threads": 2}, (2, 1)),
        (4, 5000, {"shards": 2}, (2, 2)),
        (2, 5000, {"shards": 5}, (1, 5)),
        (4, 100, {"hidden": 10}, (1, 1)),  # done before processes have started
        (1, 5000, {}, (1, 1)),
    ],
)
def test_on_one_machine_a_chain_takes_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, rows: int, settings: dict, mesh: tuple[int, int]
) -> None:
    monkeypatch.setattr(choose, "usable_cores", lambda: cores)
    assert chosen(rows, **settings) == mesh


@pytest.mark.parametrize(
    ("processes", "rows", "settings", "mesh"),
    [
        (6, 5000, {}, (6, 1)),
        (8, 5000, {}, (4, 2)),
        (7, 5000, {}, (1, 7)),
        (8, 5000, {"shards": 4}, (2, 4)),
        (1, 5000, {}, (1, 1)),
    ],
)
def test_a_team_uses_all_of_its_processes(processes: int, rows: int, settings: dict, mesh: tuple[int, int]) -> None:
    assert chosen(rows, processes, **settings) == mesh


@pytest.mark.parametrize(("processes", "settings"), [(34, {}), (8, {"shards": 3})])
def test_processes_that_make_no_mesh_are_refused(processes: int, settings: dict) -> None:
    with pytest.raises(InputError, match=f"{processes} processes"):
        chosen(1, processes, **settings)


@pytest.mark.parametrize(
    ("settings", "mesh"),
    [
        ({}, (1, 1)),
        ({"workers": 3}, (3, 1)),
        ({"workers": 3, "shards": 2}, (3, 2)),
        ({"shards": 2}, ("auto", 2)),
        ({"workers": "auto"}, ("auto", None)),
        ({"workers": "auto", "shards": 4}, ("auto", 4)),
        ({"plan": (4, 6), "shards": 2}, (2, 2)),
    ],
)
def test_what_is_left_open(settings: dict, mesh: tuple) -> None:
    config = ModelConfig(**settings).resolved()
    assert (config.workers, config.shards) == mesh
