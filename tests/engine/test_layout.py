from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from pdadmm_g.engine.layout import Plan, deal, describe, layer_costs


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(1, 11))
def test_deal_minimises_the_slowest_worker(costs: list[int], workers: int) -> None:
    plan = deal(costs, workers)
    assert len(plan.counts) == workers
    assert plan.depth == len(costs)
    slowest = max(sum(costs[layer] for layer in plan.layers(rank)) for rank in range(workers))
    used = min(workers, len(costs))
    best = min(
        max(sum(costs[a:b]) for a, b in zip((0, *cuts), (*cuts, len(costs)), strict=True))
        for cuts in combinations(range(1, len(costs)), used - 1)
    )
    assert slowest == best
    assert all(count > 0 for count in plan.counts[:used])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(1, 11), st.sampled_from([2.0**-70, 2.0**70]))
def test_the_unit_of_costs_does_not_matter(costs: list[int], workers: int, unit: float) -> None:
    assert deal([unit * cost for cost in costs], workers) == deal(costs, workers)


def test_plan_lookup() -> None:
    plan = Plan((2, 3, 1, 0))
    assert [list(plan.layers(rank)) for rank in range(4)] == [[0, 1], [2, 3, 4], [5], []]
    assert [plan.owner(layer) for layer in range(6)] == [0, 0, 1, 1, 1, 2]
    assert plan.last == 2
    assert str(plan) == "worker 0: layers 1-2, worker 1: layers 3-5, worker 2: layer 6"
    assert describe(plan.layers(3)) == "no layers"


def test_wide_first_layer_is_left_alone() -> None:
    costs = layer_costs(140, [5732, *[100] * 9, 7], "linearized")
    assert deal(costs, 3).counts[0] == 1


def test_ties_go_to_the_left() -> None:
    assert deal([1.0] * 5, 2).counts == (2, 3)
    assert deal([4.0, 1.0, 1.0], 2).counts == (1, 2)
    assert [describe(range(*ends)) for ends in ((0, 1), (4, 5), (1, 5))] == ["layer 1", "layer 5", "layers 2-5"]
