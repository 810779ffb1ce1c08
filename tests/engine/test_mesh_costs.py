"""The model that chooses workers and shards: its formula by hand, and what it must prefer."""

from __future__ import annotations

import dataclasses

import pytest

from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.mesh import ALIKE, ARRAYS, CALLS, START, SUMS, WORK, Job, Machine, choose, expected
from pdadmm_g.engine.plan import ELEMENTWISE, layer_costs
from pdadmm_g.errors import InputError
from pdadmm_g.training.mesh_choice import choose_mesh

DEEP = Job(5000, [1000] * 16 + [10], "linearized", 32, 200)
#: Sixteen cores in one machine.
CORES = Machine(2.5e10, bandwidth=1e9, latency=2e-4, processes=16)


def test_costs_of_one_process_are_its_products() -> None:
    mesh = expected(DEEP, CORES, 1, 1)
    assert mesh.seconds == pytest.approx(sum(layer_costs(5000, DEEP.widths, "linearized")) / 2.5e10 + 16 * CALLS)
    assert (mesh.sent, mesh.total) == (0, 200 * mesh.seconds)


def test_a_mesh_computes_sums_and_sends_its_share() -> None:
    rows, h = 1250, 1000
    mesh = expected(DEEP, CORES, 8, 4)
    compute = 2 * (4 * rows * h * h + 2 * ELEMENTWISE * rows * h) / 2.5e10
    assert mesh.seconds == pytest.approx(compute + 2 * CALLS + 2 * SUMS * 2e-4)
    # p to the left and q to the right, and the products of two layers around a ring of four
    assert mesh.sent == pytest.approx(2 * rows * h * 4 + 2 * 3 / 4 * 2 * h * h * 4)
    assert mesh.total == START + 200 * mesh.seconds


def test_an_uneven_chain_by_hand() -> None:
    """One layer each, on two shards: what the worst of them computes, sends and holds."""
    job, machine = Job(11, [3, 7, 5, 2], "exact", 16, 4), Machine(1e3, bandwidth=1e9, latency=0.5)
    mesh = expected(job, machine, 3, 2)
    costs = layer_costs(6, job.widths, "exact")
    assert mesh.seconds == pytest.approx(max(costs) / 1e3 + CALLS + SUMS * 0.5)
    of_sums = [3 * 7 + 3 * 3, 7 * 5 + 7 * 7, 5 * 2 + 5 * 5]
    to_others = [6 * 7 * 2, 6 * (7 + 5) * 2, 6 * 5 * 2]
    assert mesh.sent == max(two + 2 * (2 - 1) / 2 * 4 * one for one, two in zip(of_sums, to_others, strict=True))
    assert mesh.memory == 4 * 6 * ARRAYS * 7 + 4 * 6 * WORK * 7
    assert (mesh.processes, mesh.total) == (6, START + 4 * mesh.seconds)
    alone = expected(job, machine, 1, 1)
    assert alone.memory == 4 * 11 * ARRAYS * (7 + 5 + 2) + 4 * 11 * WORK * 7
    assert expected(dataclasses.replace(job, solver="linearized"), machine, 1, 2).sent == 4 * (3 * 7 + 7 * 5 + 5 * 2)


def test_one_that_is_alike_has_fewer_processes() -> None:
    """As good up to the factor, by the seconds from the start; and only what the cores and the rows allow."""
    job, machine = dataclasses.replace(DEEP, widths=[1000] * 3), dataclasses.replace(CORES, processes=2)
    one, two = (expected(job, machine, workers, 1).seconds for workers in (1, 2))
    even = ALIKE * START / (one - ALIKE * two)  # epochs up to which one process is as good
    for epochs, workers in ((int(even), 1), (int(even) + 1, 2)):
        assert choose(dataclasses.replace(job, epochs=epochs), machine, shards=1).workers == workers
    few = choose(dataclasses.replace(DEEP, rows=2, epochs=10**9), dataclasses.replace(CORES, latency=0.0))
    assert few.shards <= 2
    assert choose(DEEP, dataclasses.replace(CORES, processes=3)).processes <= 3
    assert choose(DEEP, dataclasses.replace(CORES, processes=1), shards=5).workers == 1


def test_a_slow_network_takes_as_long_as_its_bytes() -> None:
    slow = dataclasses.replace(CORES, bandwidth=1e6)
    mesh = expected(DEEP, slow, 8, 1)
    assert mesh.seconds == pytest.approx(mesh.sent / 1e6)
    four_bits = expected(dataclasses.replace(DEEP, bits=4), slow, 8, 1)
    assert four_bits.sent == mesh.sent / 8


def test_many_rows_are_spread_and_few_are_not() -> None:
    assert choose(dataclasses.replace(DEEP, rows=10**6), CORES).shards > 1
    few = choose(dataclasses.replace(DEEP, rows=100, widths=[50] * 8), CORES)
    assert (few.workers, few.shards) == (1, 1)


def test_few_bytes_are_worth_more_on_a_slow_network() -> None:
    slow = dataclasses.replace(CORES, bandwidth=1.25e7, processes=8)
    chain = choose(dataclasses.replace(DEEP, bits=4), slow, processes=8)
    assert (chain.workers, chain.shards) == (8, 1), "sums are as long as W, whatever the bits"


def test_what_is_given_is_kept() -> None:
    assert choose(DEEP, CORES, processes=6).processes == 6
    assert choose(DEEP, CORES, shards=3).shards == 3
    with pytest.raises(InputError, match="34 processes cannot be dealt to 1 layers and 3 rows"):
        choose(Job(3, [5, 2], "linearized", 32, 1), CORES, processes=34)


def test_memory_that_is_short_makes_it_use_less_of_it() -> None:
    machine = dataclasses.replace(CORES, processes=1, bandwidth=1e12)
    needed = expected(DEEP, machine, 1, 1).memory
    tight = choose(DEEP, dataclasses.replace(machine, memory=0.3 * needed), processes=4)
    assert tight.memory < 0.3 * needed


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
    config = ModelConfig.from_settings(settings).resolved()
    assert (config.workers, config.shards) == mesh


def test_the_choice_says_what_it_expects() -> None:
    config = dataclasses.replace(ModelConfig(workers="auto", layers=2, hidden=8, epochs=5, unlabelled=0).resolved())
    chosen, (sentence,) = choose_mesh(config, (20, 5), 3)
    assert (chosen.workers, chosen.shards) == (1, 1)
    assert sentence.startswith("one process, in which an epoch should take")
    assert choose_mesh(chosen, (20, 5), 3) == (chosen, ())
