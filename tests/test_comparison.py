"""The comparison with other methods: who is compared, on which nodes, with which intervals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import pdadmm_g
from helpers.commands import SMALL
from helpers.communities import communities
from helpers.estimators import classifier
from pdadmm_g import GAMLPRegressor, InputError, comparison
from pdadmm_g.cli import main
from pdadmm_g.comparison import METHODS, PAIRED, Columns, compare, differences, splits_of
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.metrics import contributions, metrics, score

FAST = classifier(hidden=100)
FEW = ["largest", "lr-graph", "ours"]


def test_every_method_is_judged_on_the_test_nodes(tmp_path: Path) -> None:
    table = compare(communities(labels=20), estimator=FAST)
    comparison.draw(table, tmp_path / "figure.png")
    assert [*table.index] == [*METHODS]
    assert not table["note"].any()
    assert table["accuracy"].drop("largest").min() > 0.5
    assert (table.loc["lr-graph", "accuracy"] - table.loc["ours", "accuracy"]) == pytest.approx(
        table.loc["lr-graph", "accuracy_difference"]
    )
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert pdadmm_g.compare is compare


def test_folds_score_every_labelled_node_once_and_hide_its_label() -> None:
    data = communities()
    for mask in ("train_mask", "val_mask", "test_mask"):
        del data[mask]
    data.y[::5] = -1
    splits, _ = splits_of(check_graph(data), None, 4, 0)
    assert sorted(np.concatenate([split.scored for split in splits])) == (data.y >= 0).nonzero().view(-1).tolist()
    for split in splits:
        assert (split.data.y[split.scored] == -1).all()
        assert not np.isin(split.training, split.scored).any()
    assert compare(data, estimator=FAST, methods=FEW, folds=4)["accuracy"]["lr-graph"] > 0.8


def test_known_labels_arrive_but_not_ones_own() -> None:
    """A path 0 - 1 - 2 - 3 without columns: what is known of a node reaches others."""
    data = check_graph(pdadmm_g.Graph(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), y=torch.tensor([0, -1, 1, 1])))
    data.train_mask, data.test_mask = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1]]).bool()
    (split,), _ = splits_of(data, None, 3, 0)
    split = split._replace(training=np.array([0, 2]), scored=np.array([1, 3]))
    split = split._replace(training=np.repeat(split.training, 3))  # five parts need as many rows
    shares = Columns(data).rows(split, True, False)[-2:, 1:3]
    assert shares.tolist() == [[0.5, 0.5], [0, 1]]
    assert compare(data, estimator=FAST, methods=["lr"])["note"]["lr"] == "failed: the graph has no columns"


@pytest.mark.parametrize("classes", [2, 4])
def test_shares_add_up_to_the_figures_and_intervals_hold(classes: int) -> None:
    random = np.random.default_rng(0)
    y = random.integers(classes, size=400)
    P = (
        random.dirichlet(np.ones(classes), size=400).round(2)
        + 0.01
        + 0.3 * (random.random((400, 1)) < 0.5) * np.eye(classes)[y]
    )
    P, Q = P / P.sum(1, keepdims=True), np.full_like(P, 1 / classes)
    for figure in (*PAIRED, "balanced_accuracy"):
        assert contributions(figure, y, P).mean() == pytest.approx(metrics(y, P)[figure])
    found = differences(y, {"ours": P, "none": Q}, 0).loc["none"]
    drawn = [score("roc_auc_ovr", y[rows], P[rows]) for rows in random.integers(400, size=(300, 400))]
    low, high = 0.5 - np.quantile(drawn, [0.95, 0.05])
    assert (found["roc_auc_ovr_low"], found["roc_auc_ovr_high"]) == pytest.approx((low, high), abs=0.012)


def test_no_failure_stops_others_and_no_method_begins_after_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no luck")

    monkeypatch.setitem(comparison.METHODS, "lr-graph", ("broken", broken))
    lines: list[str] = []
    table = compare(communities(), estimator=FAST, methods=FEW, say=lines.append)
    assert table["note"].to_dict() == {"largest": "", "lr-graph": "failed: no luck", "ours": ""}
    assert "broken: failed: no luck" in lines
    table = compare(communities(), estimator=FAST, methods=FEW, budget=0)
    assert table["note"].str.startswith("skipped").to_dict() == {"largest": True, "lr-graph": True, "ours": False}
    with pytest.raises(InputError, match="nonsense"):
        compare(communities(), methods=["nonsense"])


def test_it_is_for_classes() -> None:
    data = communities()
    with pytest.raises(InputError, match="compare is for classes"):
        compare(data, estimator=GAMLPRegressor())  # type: ignore[arg-type]
    data.y, data.target_kind = torch.randn(150, 1), "regression"
    with pytest.raises(InputError, match="compare is for classes"):
        compare(data)


def test_the_command_prints_writes_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", *SMALL, "--unlabelled=0", "--methods=largest,lr,ours", "--out", str(tmp_path / "table.csv")]
    for extra in ([], ["--json"]):
        with pytest.raises(SystemExit, match="0"):
            main([*command, *extra])
        printed = capsys.readouterr()
        assert "logistic regression: accuracy" in printed.err
        if not extra:
            assert "difference" in printed.out
    result = json.loads(printed.out)
    assert [row["method"] for row in result["methods"]] == ["largest", "lr", "ours"]
    assert pd.read_csv(tmp_path / "table.csv")["accuracy"].to_list() == pytest.approx(
        [row["accuracy"] for row in result["methods"]]
    )
