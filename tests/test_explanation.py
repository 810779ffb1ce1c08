"""What columns, neighbours and the graph are worth, where it is known who decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.communities import communities
from helpers.estimators import classifier
from pdadmm_g import GAMLPClassifier, GAMLPRegressor, InputError, explanation
from pdadmm_g.explanation import Asked
from pdadmm_g.graph.checks import check_graph

NODES = 500
APART = {
    "layers": 2, "hidden": 100, "augment": "apart", "hops": 2, "normalize": "none", "unlabelled": 0, "epochs": 60,
    "directed": "symmetric", "label_hops": 0, "weight_decay": 3.0, "scoring": "accuracy",
}  # fmt: skip


def tables(decides: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes whose label is that of a column of theirs, or of the mean of a column over their neighbours."""
    random = np.random.default_rng(0)
    nodes = pd.DataFrame(random.standard_normal((NODES, 3)), columns=["mine", "theirs", "noise"])
    nodes["kind"] = random.choice(["a", "b", "c"], NODES)
    source, target = random.integers(NODES, size=(2, 3 * NODES))
    A = np.zeros((NODES, NODES))
    A[source, target] = A[target, source] = 1
    np.fill_diagonal(A, 0)
    around = A @ nodes["theirs"] / A.sum(1).clip(1)
    by = {"mine": nodes["mine"], "theirs": 3 * around, "kind": (nodes["kind"] == "a") - 0.5}[decides]
    nodes["label"] = np.where(by > 0, "yes", "no")
    nodes["split"] = np.where(np.arange(NODES) % 2, "train", np.where(np.arange(NODES) % 4, "test", "val"))
    nodes.insert(0, "id", [f"n{node}" for node in range(NODES)])
    return nodes, pd.DataFrame({"source": nodes["id"][source].array, "target": nodes["id"][target].array})


@pytest.mark.parametrize("decides", ["mine", "theirs", "kind"])
def test_the_column_that_decides_is_found_and_noise_is_worth_nothing(decides: str) -> None:
    nodes, edges = tables(decides)
    clf = GAMLPClassifier(**APART, random_state=0).fit(nodes, edges)
    table = clf.importance(nodes, edges)
    whose = "neighbours" if decides == "theirs" else "own"
    lost = table.set_index(["column", "whose"])["lost"].sort_index()
    columns = ["mine", "theirs", "noise", "kind", "number of neighbours"]
    assert {*lost.index} == {("the graph", "trained without")} | {
        (name, each) for name in ("all columns", *columns) for each in ("own", "neighbours")
    }
    assert lost[decides, whose] > 0.25
    assert lost["all columns", whose] == pytest.approx(lost[decides, whose], abs=0.1)
    assert lost.drop([(decides, whose), ("all columns", whose)]).drop("the graph").abs().max() < 0.04
    assert (lost["the graph", "trained without"] > 0.25) == (decides == "theirs")
    shuffled = clf.importance(nodes.sample(frac=1, random_state=1), edges[::-1])
    pd.testing.assert_frame_equal(shuffled, table, rtol=0.01)
    assert table.attrs["score"] == pytest.approx(clf.score(nodes, edge_index=edges))
    assert (table.attrs["on"], table.attrs["nodes"]) == ("test", NODES // 4)

    of_one = clf.explain(nodes, "n7", edges)
    first = of_one.iloc[0]
    assert of_one.attrs["label"] == clf.predict(nodes, [7], edge_index=edges)[0]
    assert of_one.attrs["said"] == pytest.approx(clf.predict_proba(nodes, [7], edge_index=edges).max(), abs=1e-5)
    if decides == "theirs":
        assert {"neighbour", "neighbours"} & {*of_one["kind"][:2]}
    else:
        assert (first["name"], first["kind"], first["value"]) == (decides, "own", nodes[decides][7])
        odds = [probability / (1 - probability) for probability in (first["without"], of_one.attrs["said"])]
        assert odds[0] < odds[1] / 3


@pytest.mark.parametrize(
    "settings",
    [
        {"augment": "hops", "hops": 3},
        {"augment": "average", "hops": 4, "components": 5, "normalize": "centered"},
        {"augment": "apart", "directed": "both", "normalize": "standard", "row_normalize": False},
        {"augment": "power", "directed": "in", "hops": 2},
        {"augment": "none"},
        {"augment": "hops", "hops": 2, "label_hops": 2},
    ],
)
@pytest.mark.parametrize("weighed", [False, True])
def test_changed_columns_and_edges_are_what_the_model_says_of_a_changed_graph(settings: dict, weighed: bool) -> None:
    data = communities(90)
    data.edge_weight = torch.rand(data.edge_index.shape[1]) if weighed else None
    data.ids = np.arange(90)
    clf = classifier(hidden=100, hops=None).set_params(**settings)
    data = check_graph(clf.fit(data) and data)
    if settings["augment"] == "none":
        data.edge_index = data.edge_weight = None

    def close(found: torch.Tensor, changed) -> None:
        torch.testing.assert_close(found, clf._logits(changed, asked), rtol=1e-4, atol=1e-5)

    asked = torch.tensor([5])
    rows = Asked(clf, data, asked)
    columns, values = [2, 7], torch.tensor([0.5, -1.0])
    own, others = data.clone(), data.clone()
    own.x[5, columns] = values
    others.x[:5, columns] = others.x[6:, columns] = values
    others.x[6:, columns] = values
    close(rows.logits(), data)
    for found, changed in zip(rows.exchanged(columns, values).values(), (own, others), strict=rows.joined):
        close(found, changed)
    if rows.joined:
        near = int(data.edge_index[1][data.edge_index[0] == 5][0])
        less, there = data.clone(), (data.edge_index != torch.tensor([[5], [near]])).any(0)
        less.edge_index = data.edge_index[:, there]
        less.edge_weight = data.edge_weight[there] if weighed else None
        found = clf.explain(data, 5, most=999).set_index("name").loc[str(near), "without"]
        assert found == pytest.approx(clf.predict_proba(less, [5])[0, rows.logits().argmax()], abs=1e-5)


@pytest.fixture(scope="module")
def out_of_fold() -> tuple[GAMLPClassifier, pd.DataFrame, pd.DataFrame]:
    """A model of nodes that all train, and whose neighbours decide."""
    nodes, edges = tables("theirs")
    nodes = nodes.drop(columns="split")
    nodes.loc[nodes.index % 3 > 0, "label"] = None
    return GAMLPClassifier(layers=2, unlabelled=0, epochs=30, random_state=3).fit(nodes, edges), nodes, edges


def test_of_nodes_that_train_the_graph_is_judged_out_of_fold(out_of_fold, tmp_path: Path) -> None:
    clf, nodes, edges = out_of_fold
    table = clf.importance(nodes, edges, repeats=1)
    assert (table.attrs["on"], table.attrs["nodes"]) == ("training", 167)
    first = table.iloc[0]
    assert (first["column"], table.attrs["out_of_fold"]) == ("the graph", clf.estimate_.figures["roc_auc_ovr"][0])
    assert first["lost"] > 0.15
    assert table.attrs["out_of_fold"] - first["lost"] < 0.7  # nothing else tells; on training nodes it is 1
    clf.save(tmp_path / "run")
    loaded = GAMLPClassifier.load(tmp_path / "run").importance(nodes, edges, repeats=1)
    pd.testing.assert_frame_equal(loaded, table)
    clf.save(tmp_path / "model.safetensors")  # which does not know what was said out of fold
    alone = GAMLPClassifier.load(tmp_path / "model.safetensors").importance(nodes, edges, repeats=1)
    assert "the graph" not in [*alone["column"]]
    with pytest.raises(InputError, match="nodes: none of them has a label"):
        clf.importance(nodes, edges, nodes=nodes["label"].isna().to_numpy())


@pytest.mark.filterwarnings("error")
def test_a_node_is_told_of_in_the_values_of_its_table(out_of_fold) -> None:
    clf, nodes, edges = out_of_fold
    table = clf.explain(nodes, "n7", edges, most=100)
    own = table[table["kind"] == "own"].set_index("name")["value"]
    others = {*edges["source"][edges["target"] == "n7"], *edges["target"][edges["source"] == "n7"]} - {"n7"}
    assert own["number of neighbours"] == len(others)
    assert own["mine"] == nodes["mine"][7]


def test_numbers_many_columns_and_graphs_without(monkeypatch: pytest.MonkeyPatch) -> None:
    data = communities(90, labels=15)
    monkeypatch.setattr(explanation, "MOST_GROUPS", 4)
    clf = classifier(hidden=100)
    table = clf.fit(data).importance(data, repeats=1)
    assert table["column"].nunique() == 6  # four of 20, all, and the graph
    assert len(clf.explain(data, 3, most=5)) == 5
    data.x = torch.randn(90, 20, generator=torch.Generator().manual_seed(0))
    data.y = data.x[:, :2] @ torch.tensor([[1.0], [0.2]])
    data.target_kind = "regression"
    reg = GAMLPRegressor(layers=2, augment="none", normalize="standard", row_normalize=False, weight_decay=0.01)
    worth = reg.set_params(random_state=0).fit(data).importance(data).set_index("column")["lost"]
    assert worth.drop("all columns").idxmax() == "column 0"
    assert reg.explain(data, 3).attrs["said"] == pytest.approx(reg.predict(data, [3])[0], rel=1e-4)
    data.y = (data.x[:, :2] > 0).float()
    data.target_kind = "multilabel"
    several = clf.fit(data).importance(data, repeats=1)
    assert several.attrs["figure"] == "f1_micro"
    assert clf.explain(data, 3).attrs["said"] == pytest.approx(clf.predict_proba(data, [3]).max(), abs=1e-5)
    del data.x, data.y
    data.y = torch.arange(90) % 3
    del data.target_kind
    bare = clf.fit(data).importance(data)
    assert {*bare["column"]} == {"all columns"}
    with pytest.raises(InputError, match="no node 'n7'; nodes are called 0, 1, 2"):
        clf.explain(data, "n7")
    del data.y
    with pytest.raises(InputError, match="no labels"):
        clf.importance(data)
