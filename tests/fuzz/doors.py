"""The doors. Each draws an input in an empty folder, which is also the current one, and goes through: an assertion
that fails, and any exception but InputError, is a violation."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas  # type: ignore[import-untyped]
import scipy.sparse
import torch
import yaml
from hypothesis import strategies as st
from torch_geometric.data import Data

from pdadmm_g import GAMLPClassifier, load_dataset
from pdadmm_g.config import RunConfig
from pdadmm_g.engine.team import Line
from pdadmm_g.errors import NotFiniteError
from pdadmm_g.graph.checks import check_graph, check_training
from pdadmm_g.graph.examples import one_split
from pdadmm_g.graph.readers import as_graph
from pdadmm_g.graph.shards import ShardFolder
from pdadmm_g.graph.targets import hard_labels, has_columns
from pdadmm_g.runs.run import train_run

from . import valid
from .limits import command
from .strategies import ARRAYS, FLOATS, NPY, TEXTS, VALUES, WORDS, Draw, alter_file, altered, altered_arrays

from .strategies import altered_safetensors, chance, damaged, write  # isort: skip

SETTINGS = [item.name for item in dataclasses.fields(RunConfig)]
#: Settings, and values that may suit them.
CHOSEN = st.dictionaries(
    st.sampled_from(SETTINGS), st.sampled_from((0, 1, 2, 0.5, True, "auto", "0.1")) | VALUES, min_size=1, max_size=3
)
#: What is made of others ten times over, and so on, in XML and in YAML; and what parsers of YAML choke on.
LAUGHS = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
YAML_LAUGHS = ", ".join(f"&{b} [{', '.join(['*' + a] * 9)}]" for a, b in itertools.pairwise("abcdefghijklmn"))
MERGES = "".join(f"x{b}: &{b} {{<<: [{', '.join(['*' + a] * 9)}]}}\n" for a, b in itertools.pairwise("abcdefghij"))
BOMBS = [f"labels: [&a [x, x], {YAML_LAUGHS}]\n", "xa: &a {layers: 3}\n" + MERGES, "hops: 3\nhops: 4\n",
         "layers: &a\n  - *a\n", "<<: {layers: 3}\n<<: 4\n",
         *(part * 2000 for part in ("[", "{", "- ", "? ", "!!python/object/apply:os.system "))]  # fmt: skip
YAML = st.sampled_from(BOMBS) | CHOSEN.map(yaml.safe_dump)


def settings(draw: Draw, folder: Path) -> None:
    """As values, and as a file: what was accepted comes back from its own YAML."""
    if draw(st.booleans()):
        config = RunConfig(**draw(CHOSEN))
    else:
        write(draw, folder / "run.yaml", draw(YAML).encode(errors="replace"))
        config = RunConfig.load(folder / "run.yaml")
    (folder / "again.yaml").write_text(config.to_yaml(), encoding="utf-8")
    assert RunConfig.load(folder / "again.yaml") == config
    (folder / "again.yaml").unlink()
    config.resolved()


def npz(draw: Draw, folder: Path) -> None:
    """Arrays, archives whose members lie about what they hold, and a name twice."""
    target = io.BytesIO()
    np.savez_compressed(target, **draw(altered_arrays(valid.arrays())))
    if draw(st.booleans()):
        with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the name that comes twice, of which readers take the last
            name = draw(st.sampled_from(archive.namelist()))
            member = archive.read(name)
            zeros = member[:64] + bytes(2**25)  # no room at all in an archive
            archive.writestr(name, draw(NPY | damaged(member) | st.sampled_from((zeros, member))))
    write(draw, folder / "graph.npz", target.getvalue())
    check_data(load_dataset(folder / "graph.npz"))


def pt(draw: Draw, folder: Path) -> None:
    target = io.BytesIO()
    torch.save(draw(st.sampled_from((valid.graph(), {"x": torch.zeros(3, 3)})) | VALUES | odd_data()), target)
    write(draw, folder / "graph.pt", draw(st.just(target.getvalue()) | damaged(target.getvalue())))
    check_data(load_dataset(folder / "graph.pt"))


@st.composite
def frame(draw: Draw, columns: valid.Columns) -> pandas.DataFrame:
    """A table of other values, names, lengths and columns."""
    for _ in range(draw(st.integers(0, 2))):
        columns = draw(altered(columns, deep=False))
    rows = {name: values if isinstance(values, list) else [values] for name, values in columns.items()}
    return pandas.DataFrame({name: pandas.Series(values, dtype=object) for name, values in rows.items()})


def tables(draw: Draw, folder: Path) -> None:
    """A table of nodes, and mostly one of edges."""
    ending = draw(st.sampled_from((".csv", ".tsv", ".parquet")))
    paths = [folder / f"nodes{ending}", folder / f"edges{ending}"]
    for path, columns in zip(paths, valid.columns(), strict=True):
        table = draw(frame(columns))
        if ending == ".parquet":
            try:
                content = table.infer_objects().to_parquet()
            except Exception:  # columns of several types, numbers that no type of Arrow can hold
                content = table.map(lambda value: str(value).encode(errors="replace").decode()).to_parquet()
        else:
            text = table.to_csv(sep="\t" if ending == ".tsv" else ",", index=False)
            if chance(draw, 8):
                end = draw(st.sampled_from((",", "\t1", '"', ",1,2,3")))
                text = text.replace("\n", f"{end}\n", draw(st.integers(1, 9)))
            content = text.encode(draw(st.sampled_from(("utf-8", "utf-8-sig", "utf-16"))), "replace")
        write(draw, path, content)
    check_data(load_dataset(paths[0], edges=None if chance(draw, 10) else paths[1]))


def graphml(draw: Draw, folder: Path) -> None:
    text = "<?xml version='1.0' encoding='utf-8'?>\n" + "\n".join(networkx.generate_graphml(valid.network()))
    old = st.sampled_from(("double", "string", "node", "edge", "key", "attr.name", "d0", "d1", "n1", "train", "red"))
    new = st.sampled_from((*WORDS[:24], "int", "boolean", "long", "yfiles", "graph", "n2", "&e9;", "1e999"))
    for _ in range(draw(st.integers(0, 2))):
        text = text.replace(draw(old), draw(new), draw(st.sampled_from((1, -1))))
    if chance(draw, 8):
        text = text.replace("?>", f'?><!DOCTYPE graphml [<!ENTITY e0 "ha">{LAUGHS}]>', 1)
    write(draw, folder / "graph.graphml", text.encode(errors="replace"))
    check_data(load_dataset(folder / "graph.graphml"))


def objects(draw: Draw, _: Path) -> None:
    """What people have a graph in, in memory; labels may be probabilities, masks of several splits."""
    made = draw(st.sampled_from((of_networkx, of_scipy, of_arrays, of_pandas, odd_data)))
    data = check_graph(as_graph(*made(draw)) if made is not odd_data else draw(odd_data()))
    check_data(data)
    check_training(one_split(data, None)[0])


def of_networkx(draw: Draw) -> tuple[Any, ...]:
    graph = draw(st.sampled_from((networkx.Graph, networkx.DiGraph, networkx.MultiGraph)))(valid.network())
    for node in graph.nodes.values():
        node["x"] = [node.pop(f"x{i}") for i in range(3)]
    for name in draw(st.lists(st.sampled_from(("n0", "n7")), max_size=2)):
        key = draw(st.sampled_from(("x", "label", "split", "train_mask", "y", "extra")))
        value = draw(VALUES)
        for each in draw(st.sampled_from(([name], list(graph.nodes)))):
            graph.nodes[each][key] = value
    if chance(draw, 3):
        graph.add_edge("n0", draw(st.sampled_from(("n3", *WORDS, *FLOATS, (1, 2), True))), weight=draw(VALUES))
    return (graph,)


def of_scipy(draw: Draw) -> tuple[Any, ...]:
    """Features and an adjacency, sparse in any of its forms."""
    dense = np.zeros(draw(st.sampled_from(((12, 12), (12, 13), (11, 11)))), draw(st.sampled_from("fl?F")))
    edges = valid.arrays()["edge_index"]
    dense[tuple(edges[:, (edges < 11).all(0)])] = 1
    with contextlib.suppress(OverflowError, ValueError, TypeError):
        dense[0, 1] = draw(st.sampled_from((1, *FLOATS)))
    kind = draw(st.sampled_from((scipy.sparse.csr_matrix, scipy.sparse.csr_array)))
    adjacency = kind(dense).asformat(draw(st.sampled_from(("csr", "csc", "coo", "lil", "dok", "dia", "bsr"))))
    x = draw(st.sampled_from((valid.arrays()["x"], scipy.sparse.csr_matrix(valid.arrays()["x"]))) | ARRAYS)
    return x, draw(LABELS), adjacency


def of_pandas(draw: Draw) -> tuple[Any, ...]:
    nodes, edges = (draw(frame(columns)).infer_objects() for columns in valid.columns())
    if draw(st.booleans()) and len(nodes.columns):
        nodes = nodes.set_index(nodes.columns[0])
    return nodes, draw(st.none() | LABELS), draw(st.sampled_from((edges, edges, None)))


def of_arrays(draw: Draw) -> tuple[Any, ...]:
    arrays = draw(altered_arrays({name: valid.arrays()[name] for name in ("x", "edge_index")}))
    return arrays.get("x"), draw(LABELS), arrays.get("edge_index")


Y = valid.arrays()["y"]
SOFT = np.where(np.eye(2, dtype=bool)[Y], 0.75, 0.25)
LABELS = st.one_of(
    st.sampled_from((Y, torch.from_numpy(Y), SOFT)), altered_arrays({"y": SOFT}).map(lambda arrays: arrays.get("y")),
    ARRAYS, st.lists(VALUES | st.sampled_from(("red", None, "", -1)), min_size=12, max_size=12),
)  # fmt: skip


@st.composite
def odd_data(draw: Draw) -> Data:
    """A Data one of whose attributes may be of any type."""
    arrays = draw(altered_arrays(valid.arrays()))
    values: dict[str, Any] = {}
    for name, array in arrays.items():
        values[name] = array
        with contextlib.suppress(TypeError, ValueError):
            values[name] = torch.as_tensor(array)
    if odd := draw(st.sampled_from([None, *arrays])):
        made = [arrays[odd].tolist()]
        with contextlib.suppress(AttributeError, RuntimeError):
            made += [values[odd].float().requires_grad_(), values[odd].to_sparse()]
        values[odd] = draw(st.sampled_from(made) | VALUES)
    result = Data()
    for name, value in values.items():
        with contextlib.suppress(Exception):  # torch_geometric refuses some itself
            result[name] = value
    return result


def check_data(data: Any) -> None:
    """What every loaded graph promises."""
    nodes = data.num_nodes
    assert nodes > 0
    if data.x is not None:
        assert data.x.shape == (nodes, data.x.shape[1])
        assert torch.isfinite(data.x.to_dense()).all()
    if data.edge_index is not None and data.edge_index.numel():
        assert 0 <= int(data.edge_index.min()) <= int(data.edge_index.max()) < nodes
    if has_columns(data):
        assert (data.y.is_floating_point(), len(data.y)) == (True, nodes)
    elif data.y is not None:
        known = hard_labels(data)
        assert (known.dtype, known.shape) == (torch.int64, (nodes,))
        assert int(known.min()) >= -1
        if data.y.is_floating_point():
            total = data.y[known >= 0].sum(1)
            assert torch.allclose(total, torch.ones_like(total))
            assert not (data.y < 0).any()
    for mask in ("train_mask", "val_mask", "test_mask"):
        if mask in data:  # with a column for each of several splits, of which training takes one
            assert (data[mask].dtype, len(data[mask])) == (torch.bool, nodes)
            assert data[mask].ndim <= 2


def fit(draw: Draw, _: Path) -> None:
    """Whole fits of tiny networks on odd graphs."""
    drawn: dict[str, tuple[Any, ...]] = {
        "layers": (2, 3), "hidden": (1, 4), "augment": ("auto", "none", "hops", "average", "power"),
        "solver": ("exact", "linearized"), "rho": (5.0, 1e-15, 1e15), "nu": (1.0, 1e-15, 1e15),
        "quantize": ("none", "p", "pq"), "weight_decay": (0.0, 0.1, 1e15), "activation": ("relu", "tanh", "identity"),
        "unlabelled": (None, 0, 3, 100), "rounds": (1, 3), "copies": (1, 2), "drop": (0.0, 0.5, 0.99),
        "drop_entries": (None, 0.0, 0.99), "sharpness": (None, 1e-15, 2.0, 1e15), "trust": (0.0, 10.0, 1e15),
        "components": (None, 1, 2, 99),
    }  # fmt: skip
    chosen = {name: draw(st.sampled_from(values)) for name, values in drawn.items()}
    data = draw(odd_data())
    clf = GAMLPClassifier(epochs=3, random_state=0, **chosen).fit(data)
    assert all(bool(parameter.isfinite().all()) for parameter in clf.model_.parameters())
    if clf.status_.is_failure:
        assert clf.message_.startswith("epoch ")
        return
    try:
        clf.predict_proba(data)
    except NotFiniteError as error:
        raise AssertionError(f"not finite, though {clf.status_.name}") from error


def shards(draw: Draw, folder: Path) -> None:
    """Folders of shards, of which one or two files are damaged."""
    valid.unpack(folder, valid.shards())
    for name in draw(st.sets(st.sampled_from(sorted(valid.shards())), max_size=2)):
        alter_file(draw, folder / name)
    data = ShardFolder(folder / "sharded").graph(Line())
    assert data.x.shape[0] == data.num_nodes == len(data.neighbours.starts) - 1
    assert int(data.neighbours.columns.max()) < data.num_nodes


def model(draw: Draw, folder: Path) -> None:
    """If a model file loads, it predicts; one that is well, on other graphs than that of the training."""
    content = valid.run(finished=True)["run/model.safetensors"]
    broken = draw(st.booleans())
    write(draw, folder / "model.safetensors", draw(altered_safetensors(content)) if broken else content)
    clf, data = GAMLPClassifier.load(folder / "model.safetensors"), valid.graph() if broken else draw(odd_data())
    probabilities = clf.predict_proba(data)
    assert probabilities.shape == (check_graph(data).num_nodes, len(clf.classes_))
    assert np.isfinite(probabilities).all()


def run(draw: Draw, folder: Path) -> None:
    """Run folders with one broken file, checkpoints apart: resumed, evaluated and predicted with."""
    resumed = draw(st.booleans())
    valid.unpack(folder, valid.run(finished=not resumed))
    config = RunConfig.load(folder / "run/config.yaml", {"out": str(folder / "run")})
    names = sorted(str(path.relative_to(folder)) for path in (folder / "run").glob("*") if path.is_file())
    path = folder / draw(st.sampled_from(names))
    if path.suffix == ".yaml" and draw(st.booleans()):
        path.write_text(draw(YAML), encoding="utf-8", errors="replace")
    else:
        alter_file(draw, path)
    if resumed:
        summary = train_run(config, resume=True)
        assert summary["epochs"] == 4 or summary["status"] in ("NON_FINITE", "DIVERGED", "CONVERGED")
    else:
        command(draw(st.sampled_from((["evaluate", "run"], ["predict", "run", "--out", "predictions.csv"]))))


def cli(draw: Draw, folder: Path) -> None:
    """Command lines. Those that would train do so on a tiny graph for a few epochs, or on nothing."""
    torch.save(valid.graph(), folder / "graph.pt")
    names = ("train", "train", "train", "evaluate", "predict", "datasets", "report", "export", "x")
    arguments = [draw(st.sampled_from(names))]
    # May be valid, and too much for a case.
    large = ("workers", "device", "epochs", "layers", "hidden", "hops", "threads", "precision")
    options = [name for name in SETTINGS if name not in large] + ["config", "resume", "overwrite", "help", "nonsense"]
    for option in draw(st.lists(st.sampled_from(options), max_size=4)):
        arguments += ["--" + option.replace("_", "-"), *draw(st.just([]) | (VALUES | TEXTS).map(lambda v: [str(v)]))]
    if arguments[0] == "train":
        arguments += ["--layers", "2", "--hidden", "2", "--epochs", "2", "--augment", "none", "--weight-decay", "0.1"]
        arguments += ["--dataset", draw(st.sampled_from(("graph.pt", "nothing.npz", ".", "cora.npz", "\x00.npz")))]
    if chance(draw, 4):
        arguments = draw(st.permutations(arguments))
    if command(arguments) == 2:
        assert [path.name for path in folder.iterdir()] == ["graph.pt"]


DOORS: dict[str, Callable[[Draw, Path], None]] = {
    door.__name__: door for door in (cli, fit, graphml, model, npz, objects, pt, run, settings, shards, tables)
}
