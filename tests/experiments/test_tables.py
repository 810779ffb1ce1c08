from __future__ import annotations

from experiments.tables import SEEDS, best_of_paper, render_paper_table


def test_tables_show_spread_failures_and_the_paper() -> None:
    runs = [{"status": "MAX_EPOCHS"}, {"status": "NON_FINITE"}]
    table = render_paper_table(100, [{"method": "GD", "dataset": "cora", "mean": 0.5, "std": 0.01, "runs": runs}])
    assert "| GD | 0.500 ± 0.010 (1 failed) [0.730] |" in table
    assert best_of_paper("cora") == 0.788
    assert SEEDS == (0, 100, 200, 300, 400)
