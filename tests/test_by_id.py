"""Answers go by the ids of nodes and the names of columns, never by where rows stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pdadmm_g import GAMLPClassifier, GAMLPRegressor, InputError, as_graph
from pdadmm_g.graph.checks import check_graph

SETTINGS: dict[str, Any] = {"layers": 2, "hidden": 8, "epochs": 10, "random_state": 0, "threads": 1}
FIXED = SETTINGS | {
    "augment": "hops", "hops": 2, "normalize": "standard", "directed": "symmetric", "label_hops": 0,
    "weight_decay": 0.1, "unlabelled": 0,
}  # fmt: skip


def tables(ids: str = "text", number: int = 120) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three communities, 60 of whose nodes have a label; names that sort otherwise than rows and columns stand."""
    draw = np.random.default_rng(0)
    y = np.arange(number) % 3
    near = draw.random((number, number)) < np.where(y[:, None] == y, 0.08, 0.01)
    ends = np.stack(np.triu(near, 1).nonzero())
    names = draw.permutation(number) if ids == "numbers" else np.array([f"n{7 * k % number}" for k in range(number)])
    x = draw.normal(size=(3, 5))[y] + draw.normal(size=(number, 5))
    nodes = pd.DataFrame(x, columns=[*"dbeac"]).assign(id=names)
    nodes["label"] = np.where(np.arange(number) < 60, np.array(["red", "green", "blue"])[y], None)
    ways = np.where(np.arange(ends.shape[1]) % 3 > 0, ends, ends[::-1])
    edges = pd.DataFrame({"source": names[ways[0]], "target": names[ways[1]], "weight": draw.random(ends.shape[1])})
    return nodes, edges


def by_id(clf: Any, *data: Any) -> pd.DataFrame:
    """The predictions in the order of the ids."""
    return pd.DataFrame(clf.predictions(*data, probabilities=True)).set_index("node").sort_index()


@pytest.mark.parametrize(
    ("ids", "settings"),
    [
        ("text", {}), ("numbers", {"unlabelled": 0, "components": 3}),
        ("numbers", {"augment": "average", "hops": 2, "teleport": 0.05, "normalize": "unit"}),
    ],
)  # fmt: skip
def test_any_order_of_rows_and_columns_gives_the_same(ids: str, settings: dict[str, Any]) -> None:
    nodes, edges = tables(ids)
    rows = nodes.sample(frac=1, random_state=1)[["c", "label", "b", "id", "e", "a", "d"]]
    weights = pd.Series(np.arange(len(nodes)) % 3 + 1.0, index=nodes.index)
    clf = GAMLPClassifier(**SETTINGS | settings)
    expected = by_id(clf.fit(nodes, edges, sample_weight=weights), nodes, edges)
    chosen = clf.choices_
    mixed = edges.sample(frac=1, random_state=2)
    found = by_id(clf.fit(rows, mixed, sample_weight=weights[rows.index].to_numpy()), rows, mixed)
    # The first names the columns as they stand.
    assert (clf.choices_[1:], clf.feature_names_in_.tolist()) == (chosen[1:], [*"cbead", "number of neighbours"])
    pd.testing.assert_frame_equal(found, expected, atol=1e-5)
    some = clf.predict_proba(rows, [5, 3], edge_index=mixed)
    np.testing.assert_allclose(some, clf.predict_proba(rows, edge_index=mixed)[[5, 3]], atol=1e-6)
    bare = [check_graph(as_graph(each[["id"]], edges)).x for each in (nodes, rows)]
    order = [nodes["id"].tolist().index(name) for name in rows["id"]]
    assert torch.equal(bare[0][order], bare[1])


def test_labels_of_pandas_go_by_their_index() -> None:
    nodes, edges = tables()
    given = nodes.set_index("id")["label"]
    expected = as_graph(nodes, edges)
    features = nodes.drop(columns="label")
    columns = pd.DataFrame({"p": (given == "red") * 1, "q": (given == "blue") * 1})
    for y in (given.sample(frac=1, random_state=1), given.dropna(), nodes["label"].sample(frac=1, random_state=2)):
        found = as_graph(features, y, edges)
        assert torch.equal(found.y, expected.y)
    indicators = as_graph(features, columns.sample(frac=1, random_state=1), edges, target="multilabel")
    np.testing.assert_array_equal(indicators.y.numpy(), columns.to_numpy())
    assert torch.equal(as_graph(features.set_index("id"), given.reset_index(drop=True), edges).y, expected.y)
    with pytest.raises(InputError, match="y: its index names node 'stranger', which no node is called"):
        as_graph(features, given.rename({"n0": "stranger"}), edges)
    numbers, edges = tables("numbers")
    with pytest.raises(InputError, match="its index may be of ids or of rows"):
        as_graph(numbers.drop(columns="label"), numbers["label"].sample(frac=1, random_state=1), edges)


def guessed() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same tables, whose ids and ends of edges have to be guessed."""
    nodes, edges = tables()
    return nodes.rename(columns={"id": "user_id"}), edges.rename(columns={"source": "from", "target": "to"})


def test_labels_and_weights_beside_tables_with_other_names() -> None:
    nodes, edges = guessed()
    expected, features = as_graph(nodes, edges), nodes.drop(columns="label")
    labels = nodes.set_index("user_id")["label"]
    for y in (nodes["label"].to_numpy(), labels.dropna(), labels.sample(frac=1, random_state=1)):
        found = as_graph(features, y, edges)
        assert torch.equal(found.y, expected.y)
        assert torch.equal(found.edge_index, expected.edge_index)
    weights = np.arange(120) % 3 + 1.0
    clf = GAMLPClassifier(**FIXED).fit(features, nodes["label"].to_numpy(), edges, sample_weight=weights)
    by_name = pd.Series(weights, nodes["user_id"]).sample(frac=1, random_state=1)
    again = GAMLPClassifier(**FIXED).fit(nodes, edges, sample_weight=by_name)
    np.testing.assert_array_equal(again.predict(nodes, edges), clf.predict(features, edge_index=edges))
    assert clf.score(features, nodes["label"].to_numpy(), edge_index=edges) > 0.5


def test_ids_that_cannot_be_are_blamed_on_the_ids() -> None:
    nodes, edges = guessed()
    twice = pd.concat([nodes, nodes.head(2)])
    rule = r"nodes: column 'user_id' names node 'n0' twice, in rows 0 and 120 "
    for given in (twice, twice.reset_index(drop=True)):
        with pytest.raises(InputError, match=rule) as caught:
            as_graph(given, edges)
        assert "unknown nodes" not in str(caught.value)
    with pytest.raises(InputError, match=r"'user_id' has none in row 7 "):
        as_graph(nodes.assign(user_id=nodes["user_id"].where(nodes.index != 7)), edges)
    with pytest.raises(InputError, match=r"nodes: column 'user_id' names node 'n0' twice"):
        as_graph(twice, edges, id_column="user_id")
    with pytest.raises(InputError, match=r"nodes: the index names node 0 twice, in rows 0 and 120 "):
        as_graph(twice.drop(columns="user_id"), edges.assign(**{"from": 0, "to": 1}))
    # Row numbers are no ids of another column, and a part of a table is the same nodes.
    rows = edges.assign(**{"from": 0, "to": 1})
    assert as_graph(nodes.assign(user_id=nodes.index % 7), rows).get("ids") is None
    part = as_graph(nodes[nodes.index % 2 == 0], edges, skip_unknown=True)
    assert part.ids.tolist() == nodes["user_id"][::2].tolist()


@pytest.mark.parametrize("start", [0, 1, 100])
def test_ids_in_a_column_of_any_name_are_found_by_the_edges(start: int) -> None:
    draw = np.random.default_rng(0)
    nodes, edges = tables()
    ids = start + draw.permutation(len(nodes))
    number = {name: ids[row] for row, name in enumerate(nodes["id"])}
    own = edges.assign(source=edges["source"].map(number), target=edges["target"].map(number))
    named = nodes.drop(columns="id").assign(kunden_nr=ids)
    if start == 0:  # or are they rows?
        with pytest.raises(InputError, match="'kunden_nr' or by the numbers of the rows.*--id-column kunden_nr"):
            as_graph(named, own)
        found = as_graph(named, own, id_column="kunden_nr")
    else:
        found = as_graph(named, own)
        assert "column 'kunden_nr' has the ids of the nodes: id_column names another" in found.notes
    assert torch.equal(found.edge_index, as_graph(nodes, edges).edge_index)
    text = nodes.rename(columns={"id": "Flat"})
    assert as_graph(text, edges).ids.tolist() == nodes["id"].tolist()
    with pytest.raises(InputError, match="may go by columns 'Flat', 'House'"):
        as_graph(text.assign(House=text["Flat"]), edges)
    with pytest.raises(InputError, match="--id-column"):  # not skip_unknown
        as_graph(text.assign(id=np.arange(len(text))), edges)


def test_features_are_no_ids() -> None:
    """Fractions, whole numbers that fit the edges worse than the rows, and the numbers of the rows themselves."""
    nodes, edges = tables("numbers")
    place = np.arange(len(nodes))
    given = nodes.drop(columns="id").assign(half=place / 2, rank=1 + place[::-1], number=place)
    found = as_graph(given, edges)
    assert found.get("ids") is None
    assert torch.equal(found.edge_index, torch.from_numpy(edges[["source", "target"]].to_numpy().T.copy()))


def test_predictions_for_tables_with_edges_of_other_nodes_say_so() -> None:
    nodes, edges = guessed()
    clf = GAMLPClassifier(**FIXED).fit(nodes, edges)
    strangers = edges.assign(**{"from": "s1", "to": "s2"})
    for given, remedy in ((edges, r"skip_unknown=True\)"), (strangers, r"id_column=NAME\)")):
        with pytest.raises(InputError, match=rf"edges name unknown nodes.*{remedy}"):
            clf.predict(nodes.head(10), edge_index=given)
    assert len(clf.predict(as_graph(nodes.head(10), edges, skip_unknown=True))) == 10
    assert len(clf.predict(nodes.head(10), edge_index=edges.head(0))) == 10
    named = nodes.rename(columns={"user_id": "Flat"})
    clf = GAMLPClassifier(**FIXED).fit(named, edges)
    assert clf.predictions(named.head(10), edges.head(0))["node"].tolist() == nodes["user_id"].head(10).tolist()
    by_row = nodes.drop(columns="user_id"), edges.assign(**{"from": np.arange(len(edges)) % 120, "to": 0})
    with pytest.raises(InputError, match="features 'name' are unknown to the model"):
        GAMLPClassifier(**FIXED).fit(*by_row).predict(by_row[0].assign(name=nodes["user_id"]), by_row[1])


def test_ids_that_pandas_made_fractions_of_are_whole() -> None:
    nodes = pd.DataFrame({"id": [1.0, 2.0, 3.0], "a": [0.5, 1, 2]})
    for source in ([1, 2], ["1", "2"], [1.0, 2.0]):
        assert as_graph(nodes, pd.DataFrame({"source": source, "target": [2, 3]})).edge_index.tolist() == [
            [0, 1],
            [1, 2],
        ]
    with pytest.raises(InputError, match=r"row 1 .* has no source"):
        as_graph(nodes, pd.DataFrame({"source": [1.0, np.nan], "target": [2, 3]}))
    with pytest.raises(InputError, match=r"names node 1\.5, which no node is called"):
        as_graph(nodes, pd.DataFrame({"source": [1.0, 1.5], "target": [2, 3]}))


def test_learned_columns_do_not_overwrite_ids_or_probabilities() -> None:
    nodes, edges = tables()
    learned = pd.DataFrame(np.eye(3)[np.arange(120) % 3], columns=["red", "probability_red", "node"]).astype(int)
    nodes = nodes.drop(columns="label")
    clf = GAMLPClassifier(**FIXED, risk="logistic").fit(nodes, learned, edges)
    found = clf.predictions(nodes, edges, probabilities=True)
    assert [*found][:4] == ["node", "red", "predicted_probability_red", "predicted_node"]
    assert found["node"].tolist() == nodes["id"].tolist()
    np.testing.assert_array_equal(found["probability_red"], clf.predict_proba(nodes, edge_index=edges)[:, 0])
    numbers = pd.DataFrame({"node": np.arange(120.0)})
    clf = GAMLPRegressor(**FIXED).fit(nodes, numbers, edges)
    assert [*clf.predictions(nodes, edges)] == ["node", "predicted_node"]


def test_who_validated_is_part_of_the_model(tmp_path: Path) -> None:
    nodes, edges = tables()
    clf = GAMLPClassifier(**FIXED, validation=0.2).fit(nodes, edges)
    assert clf.nodes_ is not None
    clf.save(tmp_path / "run", nodes, edges)
    expected = json.loads((tmp_path / "run/summary.json").read_text())["metrics"]
    grown = nodes.sample(frac=1, random_state=3)
    grown.loc[np.arange(60, 80), "label"] = "red"
    again = GAMLPClassifier.load(tmp_path / "run")
    again.save(tmp_path / "again", grown, edges)
    found = json.loads((tmp_path / "again/summary.json").read_text())["metrics"]
    assert (expected.keys(), found.keys()) == ({"train", "val"}, {"train", "val", "test"})
    for part in expected:
        assert found[part] == pytest.approx(expected[part], abs=1e-5)
    assert again.score(grown, edges) == found["test"]["accuracy"]
    with pytest.raises(InputError, match="'test_mask' is missing"):
        again.score(nodes, edges)
    warm = GAMLPClassifier(**FIXED | {"random_state": 1}).fit(grown, edges, init=tmp_path / "run")
    before, after = clf.nodes_, warm.nodes_
    assert after is not None
    assert {*before.train} < {*after.train}
    assert {*before.val} < {*after.val}
    assert len(after.train) + len(after.val) == 80
