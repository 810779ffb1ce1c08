from __future__ import annotations

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
