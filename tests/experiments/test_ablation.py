from __future__ import annotations

from pathlib import Path

import pytest
from torch_geometric.data import Data

from experiments import ablation, cells

#: Nothing is left to the data but whether nodes without labels teach.
SETTINGS = {
    "layers": 2, "hidden": 8, "rounds": 2, "epochs": 5, "augment": "average", "hops": 2, "teleport": 0.2,
    "normalize": "unit", "weight_decay": 0.1, "sharpness": 3.0,
}  # fmt: skip


def measured(dataset, settings, seed, data_root, device, split):
    gain = 0.1 * bool(settings.get("unlabelled", 2000)) + 0.01 * (seed > 0)
    return {"seed": seed, "test_accuracy": 0.5 + gain * (1 + seed), "status": "DONE"}


def test_a_figure_of_what_is_there_so_far(tmp_path: Path) -> None:
    rows = [{"dataset": "cora", "method": "all", "runs": [measured("cora", {}, 0, None, "cpu", None)]}]
    ablation.figure(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


@pytest.mark.parametrize(
    ("variant", "unlabelled", "rows"), [("labelled nodes only", 0, None), ("copies, no targets", 2000, 2 * 6),
                                        ("targets, no copies", 2000, 20)],
)  # fmt: skip
def test_variants_are_what_they_are_called(
    graph_file: Path, tiny_graph: Data, monkeypatch: pytest.MonkeyPatch, variant: str, unlabelled: int, rows: int | None
) -> None:
    """Also after another variant. Of 20 nodes 6 have labels: two copies of these, or one copy of all."""
    from pdadmm_g.training import rounds

    taught = []
    examples = rounds.examples_of

    def watched(*arguments):
        result = examples(*arguments)
        taught.append(len(result.X))
        return result

    monkeypatch.setattr(rounds, "examples_of", watched)
    cells.run_once(str(graph_file), SETTINGS | ablation.VARIANTS[ablation.LABELLED], 0, None)
    assert taught == []
    row = cells.run_once(str(graph_file), SETTINGS | ablation.VARIANTS[variant], 0, None)
    assert row["unlabelled"] == unlabelled
    assert set(taught) == (set() if rows is None else {rows})
