from __future__ import annotations

from pathlib import Path

import pytest

from experiments import ablation, cells
from pdadmm_g.training import rounds

#: Nothing is left to the data but whether nodes without labels teach.
SETTINGS = {
    "layers": 2, "hidden": 8, "rounds": 2, "epochs": 5, "augment": "average", "hops": 2, "teleport": 0.2,
    "normalize": "unit", "weight_decay": 0.1, "sharpness": 3.0,
}  # fmt: skip


@pytest.mark.parametrize(("variant", "rows"), [("copies, no targets", 2 * 6), ("targets, no copies", 20)])
def test_variants_are_what_they_are_called(
    graph_file: Path, monkeypatch: pytest.MonkeyPatch, variant: str, rows: int
) -> None:
    """Also after another variant. Of 20 nodes 6 have labels: two copies of these, or one copy of all."""
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
    assert row["unlabelled"] == 2000
    assert set(taught) == {rows}
