"""Columns of tables as people have them become features, the same ones for new rows and loaded models."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

from helpers.commands import SMALL
from helpers.estimators import classifier
from pdadmm_g import GAMLPClassifier, GAMLPRegressor, Graph, InputError, as_graph, load_dataset
from pdadmm_g.cli import main
from pdadmm_g.graph.columns import Column, matrix_of, numbers_of, seconds_of, understood

ROWS = 60


def messy() -> tuple[pd.DataFrame, pd.DataFrame]:
    draw = np.random.default_rng(0)
    group = np.arange(ROWS) % 2
    nodes = pd.DataFrame({
        "id": [f"u{number}" for number in range(ROWS)],
        "income": np.exp(10 + 2 * group + draw.normal(0, 2, ROWS)),
        "age": np.where(np.arange(ROWS) % 7 == 0, np.nan, 30.0 + draw.integers(0, 40, ROWS)),
        "zip": np.array(["01234", "99999"])[draw.integers(0, 2, ROWS)],
        "city": [*["Rome", "Paris"] * (ROWS // 2 - 1), "Oslo", "Bonn"],
        "premium": np.array(["yes", "no"])[draw.integers(0, 2, ROWS)],
        "joined": [f"{1 + day % 28:02d}.{1 + day % 12:02d}.2020" for day in draw.integers(0, 300, ROWS)],
        "bio": [" ".join(draw.choice(["cats", "dogs", "tea", "opera"], 5)) + f" {number}" for number in range(ROWS)],
        "height": [*map(str, draw.integers(150, 200, ROWS - 1)), "unknown"],
        "price": [f"{number},5" for number in draw.integers(1, 9, ROWS)],
        "name": [f"Name{number}" for number in range(ROWS)],
        "same": 1,
        "number": np.arange(ROWS),
        "label": [["ant", "bee"][each] if number < 40 else None for number, each in enumerate(group)],
    })  # fmt: skip
    ends = draw.integers(0, ROWS // 2, (2, 200)) * 2 + draw.integers(0, 2, 200)
    return nodes, pd.DataFrame(nodes["id"].to_numpy()[ends.T], columns=["source", "target"])


def fitted(nodes: pd.DataFrame, edges: pd.DataFrame, **settings: object) -> GAMLPClassifier:
    return classifier(normalize="standard", **settings).fit(nodes, edges)


def test_columns_are_understood_and_said() -> None:
    clf = fitted(*messy(), columns={"zip": "category"})
    for part in (
        "5 numbers (income, age, height, price, number of neighbours)", "1 yes or no (premium)",
        "2 categories (zip, city)", "1 date (joined)", "1 text (bio)", "left out: name (",
    ):  # fmt: skip
        assert part in clf.choices_[0]
    assert not clf.config_.row_normalize
    names = [*clf.feature_names_in_]
    assert {"age missing", "zip=01234", "city=Rome", "city=other", "joined month sin"} <= {*names}
    assert any(name.startswith("bio word ") for name in names)
    x = as_graph(*messy()).x.numpy()
    income = x[:, names.index("income")]
    assert (income.argsort() == messy()[0]["income"].argsort()).all()
    assert np.abs(income).max() < 3
    assert set(x[::7, names.index("age")]) == {0.0}


def test_new_rows_have_the_features_of_training_in_python_files_and_loaded_models(tmp_path: Path) -> None:
    nodes, edges = messy()
    clf = fitted(nodes, edges)
    new = nodes.tail(1).assign(id="new", city="Lima", age=None, height="?", income=1e12).drop(columns=["label", "name"])
    grown = pd.concat([new, nodes.drop(columns="label")])[[*reversed(new.columns)]]
    clf.save(tmp_path / "model.safetensors")
    clf.save(tmp_path / "run")
    expected = clf.predict_proba(nodes, edges)
    for model in (clf, *map(GAMLPClassifier.load, (tmp_path / "model.safetensors", tmp_path / "run"))):
        assert model.columns_ == clf.columns_
        for graph in (as_graph(grown, edges), as_graph(grown, edges, columns={"zip": "ignore"})):
            np.testing.assert_allclose(model.predict_proba(graph)[1:], expected, atol=1e-6)
        assert len(model.predict(new, edges.head(0))) == 1
    grown.to_csv(tmp_path / "nodes.csv", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    np.testing.assert_allclose(
        clf.predict_proba(load_dataset(tmp_path / "nodes.csv", edges=tmp_path / "edges.csv"))[1:], expected, atol=1e-6
    )
    out = ["--nodes", str(tmp_path / "nodes.csv"), "--edges", str(tmp_path / "edges.csv"), "--out", "-"]
    with pytest.raises(SystemExit) as done:
        main(["predict", str(tmp_path / "run"), *out])
    assert not done.value.code
    grown["label"] = nodes["label"].reindex(grown.index)
    again = classifier(normalize="standard", epochs=2).fit(as_graph(grown, edges), init=clf)
    assert again.columns_ == clf.columns_
    with pytest.raises(InputError, match="fitted on a table"):
        clf.predict(as_graph(nodes, edges).x, edge_index=as_graph(nodes, edges).edge_index)
    grown = grown.drop(columns="label")
    for wrong, message in (
        (grown.drop(columns=["city", "zip"]), "features 'zip', 'city' are missing"),
        (grown.assign(more=1), "features 'more' are unknown to the model"),
    ):
        with pytest.raises(InputError, match=message):
            clf.predict(wrong, edges)


def test_names_are_guessed_or_given_and_dirt_is_told(tmp_path: Path) -> None:
    nodes, edges = messy()
    nodes = nodes.rename(columns={"id": "User_ID", "label": "Status"})
    nodes.loc[3, "Status"] = "unknown"
    edges = pd.concat([edges, edges.head(2), edges.head(1).assign(target=edges["source"][0])])
    edges = edges.rename(columns={"source": "From", "target": "to"})
    with pytest.raises(InputError, match="--labels Status"):
        fitted(nodes, edges)
    graph = as_graph(nodes, edges, labels="Status")
    named = as_graph(
        nodes.rename(columns={"User_ID": "a"}), edges.rename(columns={"From": "b", "to": "c"}).assign(weight=1.0),
        labels="Status", id_column="a", source_column="b", target_column="c",
    )  # fmt: skip
    assert np.array_equal(graph.edge_index, named.edge_index)
    for note, words in zip(graph.notes, ("'User_ID'", "'From'", "'unknown'", "repeat", "with itself"), strict=True):
        assert words in note
    assert f"{203 - len(edges.drop_duplicates())} repeat" in graph.notes[3]
    assert {*graph.notes} <= {*fitted(graph, None).choices_}
    strange = pd.concat([edges, pd.DataFrame({"From": ["z1", "z2"], "to": ["u1", "z3"]})])
    with pytest.raises(InputError, match=r"'split' must be .*; .* names node 'z1', .* 'u0', 'u1', .* 2 of 205 edges"):
        as_graph(nodes.assign(split="dev"), strange, labels="Status")
    skipped = as_graph(nodes, strange, labels="Status", skip_unknown=True)
    assert np.array_equal(skipped.edge_index, graph.edge_index)
    assert "2 of 205 edges name unknown nodes and are left out" in skipped.notes
    # The same in files of other separators, through the command.
    nodes.to_csv(tmp_path / "nodes.csv", index=False, sep=";")
    strange.to_csv(tmp_path / "edges.csv", index=False, sep="|")
    names = ["--labels", "Status", "--skip-unknown", "--columns", "zip=category,name=ignore"]
    tables = ["--nodes", str(tmp_path / "nodes.csv"), "--edges", str(tmp_path / "edges.csv")]
    short = [*SMALL, "--unlabelled", "0", "--out", str(tmp_path / "run")]
    for command in (["train", *tables, *names, *short], ["evaluate", str(tmp_path / "run")]):
        with pytest.raises(SystemExit) as done:
            main(command)
        assert not done.value.code
    loaded = GAMLPClassifier.load(tmp_path / "run")
    assert {column.name: column.role for column in loaded.columns_}["zip"] == "category"
    assert {*skipped.notes} <= {*loaded.choices_}


def test_words_for_nothing_are_missing_labels_and_numbers_are_asked_about(tmp_path: Path) -> None:
    labels = ["01", "1", "NA", "nan", "NULL", " "]
    path = tmp_path / "nodes.csv"
    pd.DataFrame({"ID": list("NAbcdef")[1:], "Label": labels, "a": range(6)}).to_csv(path, index=False)
    data = load_dataset(path)
    assert data.label_names.tolist() == ["01", "1"]
    assert data.y.tolist() == [0, 1, -1, -1, -1, -1]
    assert data.feature_names == ("a",)
    assert {*data.notes} == {f"column {name!r} of the nodes is taken for {name.lower()!r}" for name in ("ID", "Label")}
    path.write_text("label;a\n1,5;1\n2,5;2\n1,5;x\n")
    with pytest.raises(InputError, match="--target regression.*--target classification"):
        load_dataset(path)
    assert load_dataset(path, target="classification").label_names.tolist() == ["1.5", "2.5"]
    assert load_dataset(path, target="regression").y.tolist() == [[1.5], [2.5], [1.5]]


def test_a_bag_of_counts_stays_as_it_is() -> None:
    bag = pd.DataFrame(np.random.default_rng(0).poisson(0.2, (50, 30)))
    columns = understood(bag)
    assert {column.role for column in columns} == {"count"}
    assert np.array_equal(matrix_of(bag, columns)[0], bag.to_numpy())
    ends = pd.DataFrame({"source": range(49), "target": range(1, 50)})
    graph = as_graph(bag.assign(label=np.arange(50) % 2), ends)
    assert len(graph.feature_names) == 30
    assert classifier().fit(graph).augmentation_.row_normalize


def test_the_number_of_neighbours_is_a_column() -> None:
    """Of different nodes; unless they all have as many, or nobody wants to know."""
    nodes, edges = messy()
    more = pd.concat([edges, edges.set_axis(["target", "source"], axis=1), edges.assign(target=edges["source"])])
    near = pd.concat([edges, edges.set_axis(["target", "source"], axis=1)]).query("source != target")
    degrees = near.groupby("source")["target"].nunique().reindex(nodes["id"], fill_value=0).to_numpy()
    graph = as_graph(nodes, more)
    column = graph.x[:, graph.feature_names.index("number of neighbours")].numpy()
    assert np.array_equal(np.unique(degrees, return_inverse=True)[1], np.unique(column, return_inverse=True)[1])
    ring = pd.DataFrame({"source": nodes["id"], "target": np.roll(nodes["id"], 1)})
    ignored = {"number of neighbours": "ignore"}
    for given in (as_graph(nodes, ring), as_graph(nodes, more, columns=ignored)):
        assert "number of neighbours" not in given.feature_names


def test_roles_that_cannot_be(tiny_graph: Graph) -> None:
    nodes, edges = messy()
    for roles, message in (
        ({"absent": "text"}, "columns names 'absent', which is no feature"),
        ({"city": "number"}, "column 'city' is to be of the kind number, but row 0 .* has 'Rome'"),
        ({"city": "place"}, "columns must be .* role one of number, count, .*'place'"),
    ):
        with pytest.raises(InputError, match=message):
            fitted(nodes, edges, columns=roles)
    with pytest.raises(InputError, match="the features are no table"):
        GAMLPClassifier(columns={"a": "text"}).fit(tiny_graph)


def column(values: object) -> tuple[pd.DataFrame, Column]:
    table = pd.DataFrame({"x": values})
    return table, understood(table)[0]


@pytest.mark.parametrize(
    ("written", "new", "number"),
    [
        (lambda v: f"{v:,.2f}", "1,234", 1234),
        (lambda v: f"{v:,.2f}".translate(str.maketrans(",.", ".,")), "1.234", 1234),
        (lambda v: f"{v:,.0f}", "1,234", 1234),
        (lambda v: f"{v:.2f}".replace(".", ","), "1,234", 1.234),
        (lambda v: f"{v:.2f} €", "12,50", 12.5),
        (lambda v: f"-${v:,.2f}", "-$1,234", -1234),
        (lambda v: f"EUR {v:.2f}", "12", 12),
        (lambda v: f"{v:.1f}%", "12,5 %", 12.5),
    ],
)
def test_numbers_as_people_write_them(written: object, new: str, number: float, tmp_path: Path) -> None:
    values = np.exp(np.random.default_rng(0).normal(7, 3, 60)).round(2) + 1
    table, found = column([*map(written, values)])
    assert (found.role, found.why) == ("number", "")
    expected = -values if written(1.0).startswith("-") else values
    scores = found.features(table["x"])[0][1]
    np.testing.assert_allclose(numbers_of(table["x"], thousands=found.thousands), expected, atol=0.51)
    assert numbers_of(pd.Series([new]), thousands=found.thousands).tolist() == [number]
    table.assign(label="a").to_csv(tmp_path / "nodes.csv", index=False)
    np.testing.assert_allclose(load_dataset(tmp_path / "nodes.csv").x[:, 0], scores, rtol=1e-5)


def test_numbers_are_predicted_by_ranks_and_by_values(tmp_path: Path) -> None:
    nodes, edges = messy()
    nodes["label"] = np.where(np.arange(ROWS) < 40, nodes["age"].fillna(50) / 7, np.nan)
    settings = {"layers": 2, "hidden": 8, "epochs": 5, "normalize": "standard", "random_state": 0}
    model = GAMLPRegressor(**settings).fit(nodes, edges)
    names = [*model.feature_names_in_]
    assert {"income", "income value", "age value", "number of neighbours value"} <= {*names}
    assert not {"city value", "joined value", "premium value"} & {*names}
    found = next(column for column in model.columns_ if column.name == "age")
    age = nodes["age"].to_numpy()
    values = found.features(pd.Series([*age, 1e9], name="age"))[1][1]
    np.testing.assert_allclose(values[:-1], np.nan_to_num((age - np.nanmean(age)) / np.nanstd(age)))
    assert values[-1] == 4
    model.save(tmp_path / "model.pt")
    loaded = GAMLPRegressor.load(tmp_path / "model.pt")
    part = edges[edges["source"].isin(nodes["id"][:30]) & edges["target"].isin(nodes["id"][:30])]
    np.testing.assert_allclose(loaded.predict(nodes[:30], part), model.predict(nodes[:30], part))
    again = GAMLPRegressor(**settings).fit(as_graph(nodes, edges, columns={"age": "ignore"}, target="regression"))
    assert "income value" in again.feature_names_in_
    assert "age value" not in again.feature_names_in_


def test_dates_of_several_forms_in_one_column() -> None:
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.random.default_rng(0).integers(0, 999, 60), unit="D")
    forms = ["%Y-%m-%d", "%d.%m.%Y", "%b %d, %Y", "%d %B %Y", "%Y/%m/%d %H:%M"]
    for own in (forms, ["%b %d, %Y"], ["%Y-%m-%d", "%d.%m.%Y"]):
        table, found = column([day.strftime(own[row % len(own)]) for row, day in enumerate(days)])
        assert (found.role, found.day_first) == ("date", own != ["%b %d, %Y"])
        seconds = (days - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
        assert seconds_of(table["x"], found.day_first).tolist() == seconds.tolist()


def test_columns_left_out_name_the_cure_and_ja_is_yes() -> None:
    odd = [f"{row}.5" if row % 3 else f"about {row}" for row in range(60)]
    table, found = column(odd)
    assert found.why == "nearly another text in every row: columns={'x': 'number'} reads what is one"
    assert understood(table, {"x": "number"})[0].features(table["x"])[0][1][1] != 0
    days = [f"2020-01-{1 + row % 28} 10:{row}" if row % 3 else f"in {row}" for row in range(60)]
    assert column(days)[1].why.endswith("columns={'x': 'date'} reads what is one")
    assert column(["ja", "Nein", None] * 20)[1].role == "boolean"


def test_texts_have_columns_for_the_words_that_most_rows_have() -> None:
    """Not for the numbers of tickets, of which there may be more than words."""
    draw = np.random.default_rng(0)
    words = ["cats", "Dogs", "tea", "öl", "opera2"]
    table, found = column([f"{' '.join(draw.choice(words, 4))} {row // 2} T-{row}x only{row}" for row in range(600)])
    assert found.words == ["cats", "dogs", "opera2", "tea", "öl"]
    assert found.names()[0] == "x word cats"
    has = table["x"].str.contains("Dogs").to_numpy()
    np.testing.assert_array_equal(found.features(table["x"])[1][1] > 0, has)
    saved = msgspec.json.decode(msgspec.json.encode(found), type=Column)
    assert saved == found
    np.testing.assert_array_equal(matrix_of(table.head(3), [saved])[0], matrix_of(table, [found])[0][:3])
