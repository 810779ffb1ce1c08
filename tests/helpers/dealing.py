"""Layers for some of the workers of a process group that is larger, so that one group serves many tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pdadmm_g.engine.layout import Plan, deal, layer_costs


def dealing_to(active: Callable[[], int]) -> Callable[..., Plan]:
    """In place of ``deal_layers``: to the first ``active()`` workers as usual, to the others none."""

    def deal_to_active(nodes: int, shape: list[int], config: Any, workers: int) -> Plan:
        counts = deal(layer_costs(nodes, shape, config.solver), active()).counts
        return Plan((*counts, *[0] * (workers - active())))

    return deal_to_active
