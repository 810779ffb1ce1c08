from __future__ import annotations

import pytest

from experiments import mesh
from experiments.speedup import ADAM, BARE, GPIPE, processes


def test_all_meshes_are_measured_beside_the_products_of_the_same_work() -> None:
    cases = mesh.cases([8], [5000, 50_000], 16)
    assert all(processes(case) in (1, 8) for case in cases)
    for rows, shapes in ((5000, ((8, 1), (4, 2), (2, 4), (1, 8))), (50_000, ((8, 1), (4, 2)))):
        own = [case for case in cases if case["rows"] == rows and processes(case) == 8]
        assert [(case["workers"], case["shards"], case["method"]) for case in own] == [
            *((*shape, method) for shape in shapes for method in (BARE, *mesh.ADMM)), (1, 8, ADAM), (8, 1, GPIPE)
        ]  # fmt: skip
    assert [case["rows"] for case in cases if processes(case) == 1] == [5000] * 3


def test_a_chain_is_no_longer_than_the_network() -> None:
    assert {case["workers"] for case in mesh.cases([8], [100], 4) if case["method"] == BARE} == {1, 2, 4}


def test_speedups_are_compared_with_those_of_bare_products_of_the_same_repeat() -> None:
    def row(method: str, chain: int, shards: int, rows: int, repeat: int, seconds: float) -> dict:
        return {"method": method, "depth": 16, "workers": chain, "shards": shards, "rows": rows, "repeat": repeat,
                "seconds": seconds}  # fmt: skip

    times = {(BARE, 1, 1): 6.0, ("pdADMM-G", 1, 1): 8.0, (BARE, 4, 2): 1.0, ("pdADMM-G", 4, 2): 2.0}
    rows = [row(*case, 5000, 0, seconds) for case, seconds in times.items()]
    rows += [row(*case, 5000, 1, seconds / (case[0] == BARE or 2)) for case, seconds in times.items()]
    table = mesh.render([*rows, row("pdADMM-G", 4, 2, 50_000, 0, 20.0), {"method": GPIPE, "error": "lost"}])
    assert "| 1 | 5000 | 1 x 1 | bare products | 2 | 6 (6 to 6) | - | - |" in table
    assert "| 8 | 5000 | 4 x 2 | bare products | 2 | 1 (1 to 1) | 6.00 x (6.00 to 6.00) | - |" in table
    assert "| 8 | 5000 | 4 x 2 | pdADMM-G | 2 | 1.5 (1 to 2) | 4.00 x (4.00 to 4.00) | 0.67 (0.67 to 0.67) |" in table
    # One process with ten times as many rows takes ten times as long.
    assert "| 8 | 50000 | 4 x 2 | pdADMM-G | 1 | 20 | 4.00 x | - |" in table
    assert table.endswith("\n\nAdam, GPipe: lost\n")


@pytest.mark.timeout(240)
def test_every_mesh_runs(reproduce) -> None:
    code, out, _ = reproduce("speedup-mesh", "--quick", "--workers", "2")
    assert code == 0
    assert "| 2 | 100 | 1 x 2 | pdADMM-G | 1 | " in out
    assert "Error" not in out
    assert reproduce("speedup-mesh", "--quick", "--workers", "2")[1] == out
