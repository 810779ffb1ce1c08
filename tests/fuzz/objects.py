"""Targets: what people have a graph in, in memory, and what rows and classes weigh."""

from __future__ import annotations

import contextlib
import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pdadmm_g.config import ModelConfig
from pdadmm_g.data.checks import check_graph, check_training
from pdadmm_g.data.readers import as_graph
from pdadmm_g.data.targets import row_weights, weighed

from .graphs import check_data
from .limits import Violation
from .mutations import FLOATS, TEXTS, any_array, any_value, mutate_arrays
from .tables import mutate_columns, valid_columns
from .valid import valid_arrays


def objects(rng: random.Random, _: Path) -> None:
    """Graphs of networkx, scipy and pandas, and arrays with edges; labels may be probabilities."""
    kinds = [of_networkx, of_scipy, of_arrays]
    if importlib.util.find_spec("pandas"):
        kinds.append(of_pandas)
    make = rng.choice(kinds)
    data = check_graph(as_graph(*make(rng)))
    check_data(data)
    check_training(data)


def of_networkx(rng: random.Random) -> tuple[Any, ...]:
    """A graph whose nodes and edges have attributes of any kind."""
    import networkx

    nodes, edges = valid_columns()
    graph = rng.choice((networkx.Graph, networkx.DiGraph, networkx.MultiGraph, networkx.MultiDiGraph))()
    for i, name in enumerate(nodes["id"]):
        graph.add_node(name, x=[nodes[f"x{k}"][i] for k in range(3)], label=nodes["label"][i], split=nodes["split"][i])
    for source, target, weight in zip(*edges.values(), strict=True):
        graph.add_edge(source, target, weight=weight)
    for _ in range(rng.choice((0, 1, 1, 3))):
        name = rng.choice(list(graph.nodes))
        attribute = rng.choice(("x", "label", "split", "train_mask", "y", "extra"))
        match rng.randrange(5):
            case 0:
                graph.nodes[name][attribute] = any_value(rng)
            case 1:
                for each in graph.nodes:
                    graph.nodes[each][attribute] = any_value(rng)
            case 2:
                graph.add_node(rng.choice((*TEXTS, *FLOATS, (1, 2), True)))
            case 3:
                graph.add_edge(name, rng.choice(("n3", "n99", 7)), weight=any_value(rng))
            case 4:
                graph.nodes[name].pop(attribute, None)
    return (graph,)


def of_scipy(rng: random.Random) -> tuple[Any, ...]:
    """Features and an adjacency, sparse in any of its forms."""
    import scipy.sparse

    arrays = valid_arrays()
    size = rng.choice((12, 12, 12, 11, 13))
    dense = np.zeros((size, rng.choice((size, size, size + 1))), rng.choice((np.float32, np.int64, bool, complex)))
    ends = arrays["edge_index"][:, (arrays["edge_index"] < 11).all(0)]
    dense[tuple(ends)] = 1
    form = rng.choice(("csr", "csc", "coo", "lil", "dok", "dia", "bsr"))
    adjacency = rng.choice((scipy.sparse.csr_matrix, scipy.sparse.csr_array))(dense).asformat(form)
    if adjacency.nnz and form in ("csr", "coo") and rng.random() < 0.5:
        with contextlib.suppress(OverflowError, ValueError, TypeError):
            adjacency.data[rng.randrange(adjacency.nnz)] = rng.choice(FLOATS)
    x: Any = mutate_arrays(rng, {"x": arrays["x"]}).get("x", arrays["x"])
    with contextlib.suppress(ValueError, TypeError):
        x = scipy.sparse.csr_matrix(x) if rng.random() < 0.5 else x
    return x, any_labels(rng), adjacency


def of_pandas(rng: random.Random) -> tuple[Any, ...]:
    """Tables of nodes and edges."""
    import pandas  # type: ignore[import-untyped]

    frames = []
    for columns in valid_columns():
        frame = pandas.DataFrame(mutate_columns(rng, columns) if rng.random() < 0.6 else columns)
        if rng.random() < 0.3 and len(frame.columns):
            frame = frame.set_index(frame.columns[0])
        frames.append(frame)
    return frames[0], any_labels(rng) if rng.random() < 0.3 else None, frames[1] if rng.random() < 0.9 else None


def of_arrays(rng: random.Random) -> tuple[Any, ...]:
    """Features, labels and ends of edges."""
    arrays = mutate_arrays(rng, {name: valid_arrays()[name] for name in ("x", "edge_index")})
    return arrays.get("x"), any_labels(rng), arrays.get("edge_index")


def any_labels(rng: random.Random) -> Any:
    """Labels or probabilities, valid ones among them."""
    y = valid_arrays()["y"]
    soft = np.where(np.eye(2, dtype=bool)[y], 0.75, 0.25)
    match rng.randrange(8):
        case 0:
            return any_array(rng)
        case 1:
            return [any_value(rng) for _ in range(12)]
        case 2:
            return [("red", "blue", None, "", -1, float("nan"))[rng.randrange(6)] for _ in range(12)]
        case 3:
            soft[rng.randrange(12), rng.randrange(2)] = rng.choice(FLOATS)
            return soft
        case 4:
            return soft
        case 5:
            return mutate_arrays(rng, {"y": soft}).get("y")
        case 6:
            return torch.from_numpy(y)
    return y


def weights(rng: random.Random, _: Path) -> None:
    """Weights of rows and of classes, of labels and of probabilities."""
    y = torch.from_numpy(valid_arrays()["y"])
    soft = rng.random() < 0.4
    given: Any = None
    if rng.random() < 0.7:
        row = rng.choice((0.0, 1.0, 2.0, 1e-45, 1e15, 1e-300, 0.5))
        given = rng.choice((any_array(rng), any_value(rng), [any_value(rng) for _ in range(12)], [row] * 12))
        given = row_weights(given, torch.arange(12), 12)
    classes = rng.choice((np.array([0, 1]), np.array(["red", "blue"], dtype=object), np.array([0.0, 1.0])))
    names = ("0", "1", "red", "blue", 0, 1, 1.0, *TEXTS[:4])
    by_class = {
        rng.choice(names): rng.choice((1, 0, 2.5, 1e-300, 1e15, any_value(rng))) for _ in range(rng.randrange(3))
    }
    class_weight: Any = rng.choice((None, "balanced", by_class, any_value(rng)))
    config = ModelConfig(class_weight=class_weight)
    found = weighed(torch.eye(2).double()[y] * 0.5 + 0.25 if soft else y, classes, config.class_weight, given)
    known = torch.ones(1) if found.weights is None else found.weights
    if not bool(known.isfinite().all()) or not bool((known > 0).all()) or not len(found.y):
        raise Violation(f"accepted weights {known}")
