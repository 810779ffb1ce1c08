"""What people have a graph in, as one kind of object: a :class:`~pdadmm_g.graph.graph.Graph`.

Matrices with edges or with a sparse adjacency, tables of nodes and edges, ``networkx`` graphs, DGL graphs, and
``torch_geometric``'s ``Data``, also with arrays inside; and the files in which these are kept. Three entries of the
result remember what the user calls things: ``ids`` of the nodes, where these are not 0, 1, 2, ...; ``label_names``,
where labels are not whole numbers, and ``y`` numbers these, or the columns of ``y`` have names; and ``feature_names``,
where the columns of ``x`` have names. Its ``notes`` are sentences on what was found in tables.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import TargetKind
from ..errors import InputError
from .graph import MASKS, Graph, as_tensor, check_file, object_array, pyg_records, reading
from .propagation import quiet
from .targets import asked, hard_labels, set_targets

if TYPE_CHECKING:
    from .tables import Columns

Array = NDArray[Any]
#: What is read of an .npz.
ARRAYS = ("x", "edge_index", "edge_weight", "y", *MASKS)


def as_graph(
    X: Any,
    y: Any = None,
    edge_index: Any = None,
    *,
    edge_weight: Any = None,
    target: TargetKind = "auto",
    columns: Columns = None,
    labels: str | Sequence[str] = (),
    id_column: str | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    skip_unknown: bool = False,
) -> Graph:
    """The graph in whatever people have it in, with the names that they gave to nodes and labels.

    Args:
        X: A graph (``torch_geometric``, ``networkx``, DGL), which has all of the rest; a feature matrix (array, tensor,
            scipy matrix); a pandas table of nodes with columns ``label`` and ``split`` if known, the rest features, and
            the ids of the nodes in a column ``id`` or the index; or None, for a graph without features, whose edges
            name nodes by their numbers.
        y: Labels of a matrix or table: whole numbers or text; -1, None, NaN or "" for a node without label. Or
            probabilities. Or a column for each of several labels or numbers, see :mod:`.targets`. What pandas has goes
            by its index where that names nodes of the table; nodes that it leaves out have no label.
        edge_index: Numbers of nodes (2, edges), a square scipy matrix, or a pandas table with columns ``source`` and
            ``target``, by the ids of nodes, and perhaps ``weight``. Such a table may stand in the place of ``y``.
        edge_weight: A positive number an edge, where ``edge_index`` has none.
        target: What the labels are: ``classification``, ``multilabel`` or ``regression``; ``auto`` for several labels
            where there are several columns of 0 and 1, else classes.
        columns: The role of each column of a table that is not what its values look like, e.g.
            ``{"zip": "category", "note": "ignore"}``, see :mod:`.columns`.
        labels: The column of a table of nodes, or several, that is learned, where it is not called ``label``.
        id_column: The column that has the ids of nodes, where it is not called ``id``.
        source_column: The column of a table of edges that says where they begin, where it is not called ``source``.
        target_column: The one that says where they end. (``target`` is the kind of what is learned.)
        skip_unknown: Leave out edges of nodes that are not in the table of nodes.
    """
    from .tables import aligned, graph_of_tables, named_edges, set_edges

    labels = (labels,) if isinstance(labels, str) else tuple(labels)
    ends = (source_column, target_column)
    y, edge_index = edges_apart(X, y, edge_index, ends)
    if is_graph(X):
        for name, given in (("y", y), ("edge_index", edge_index), ("edge_weight", edge_weight)):
            if given is not None:
                raise InputError(f"{name} is given beside a graph, which has its own: leave it out, or pass a matrix")
        return _of_library(X, target)
    data, culprit, joined = Graph(), "y", is_table(edge_index)
    if is_table(X):
        nodes = X if y is None else X.drop(columns="label", errors="ignore")
        data = graph_of_tables(
            nodes, edge_index if joined else None, target if y is None else "auto", columns,
            labels=labels, id_column=id_column, ends=ends, skip_unknown=skip_unknown,
        )  # fmt: skip
        culprit, y = "nodes: labels", aligned(data, X, y, "y")
        learned = [*y.columns] if is_table(y) else [getattr(y, "name", None)]
        both = {*learned} - {None} & {*data.get("table", ())}
        if both:
            raise InputError(f"column {both.pop()!r} is learned, and a feature as well: drop it from the nodes")
    elif X is not None:
        data.x = as_features(X, "X")
    if y is not None:
        keeps = isinstance(y, list | tuple | Tensor) or is_table(y) or is_sparse(y)
        set_targets(data, y if keeps else np.asarray(y), culprit, target)
    if joined and not is_table(X):
        edges, notes = named_edges(edge_index, ends)
        data.notes = (*data.get("notes", ()), *notes) or None
        set_edges(data, edges)
    elif not joined and (edge_index is not None or not is_table(X)):
        edge_weight = _set_edges(data, edge_index, edge_weight)
    if edge_weight is not None:
        if "edge_weight" in data:
            raise InputError("edge_weight is given beside a column 'weight' of the edges: leave one of them out")
        data.edge_weight = as_tensor(edge_weight, "edge_weight must be numbers")
    return asked(data, target)


def is_table(value: Any) -> bool:
    """Is it a table of pandas, or one that behaves so?"""
    return hasattr(value, "columns") and hasattr(value, "iloc")


def is_graph(X: Any) -> bool:
    """Is it a graph by itself, with its edges?"""
    return isinstance(X, Graph) or _is_pyg(X) or _is_networkx(X) or _is_dgl(X)


def edges_apart(X: Any, second: Any, edge_index: Any, ends: Sequence[str | None] = ()) -> tuple[Any, Any]:
    """What was given in second place, and the edges: a table of edges is meant as such in either place."""
    if isinstance(X, str | Path):
        edges = f", edges={str(second)!r}" if isinstance(second, str | Path) else ""
        raise InputError(f"{X}: is a name, not the data: give what load_dataset({str(X)!r}{edges}) reads")
    if edge_index is not None or not is_table(second):
        return second, edge_index
    from .tables import ends_of

    named = ends_of(second) is not None or bool({*ends} & {*second.columns})
    return (None, second) if named or (is_table(X) and len(X) != len(second)) else (second, None)


def graph_alone(data: Any, name: str, target: TargetKind = "auto") -> Graph:
    """The graph in the argument of that ``name``, which takes nothing beside it."""
    if not is_graph(data):
        remedy = "as_graph(nodes, edges) makes one of tables, as_graph(X, y, edge_index) one of arrays"
        raise InputError(f"{name} must be a graph, not a {type(data).__name__}: {remedy}")
    return as_graph(data, target=target)


def labels_of(data: Graph) -> Array:
    """The label of every node as the user calls it; of those without, whatever is first."""
    y = hard_labels(data).numpy()
    names = data.get("label_names")
    return y if names is None else names[y.clip(0)]


def ids_of(data: Graph) -> Array:
    """What the user calls the nodes."""
    ids = data.get("ids")
    return np.arange(data.num_nodes) if ids is None else ids


# ----------------------------------------------------------------------------------------------------------- matrices


def _set_edges(data: Graph, edge_index: Any, edge_weight: Any) -> Any:
    """Give the graph its edges: pairs of nodes, or an adjacency, whose entries are the weights; the weights."""
    if is_sparse(edge_index):
        if edge_index.shape[0] != edge_index.shape[1]:
            raise InputError(f"edge_index: an adjacency must be square, got {edge_index.shape}")
        if edge_weight is not None:
            raise InputError("edge_weight is given beside an adjacency, whose entries are the weights: leave it out")
        coo = edge_index.tocoo()
        kept = coo.data != 0  # setdiag(0), for one, leaves zeros that are no edges
        data.edge_index = torch.from_numpy(np.stack([coo.row[kept], coo.col[kept]]).astype(np.int64))
        if data.x is None:
            data["num_nodes"] = edge_index.shape[0]
        return None if coo.dtype == bool or bool((coo.data[kept] == 1).all()) else coo.data[kept]
    # A sparse tensor is refused where edges are checked.
    is_pairs = isinstance(edge_index, Tensor) and edge_index.layout != torch.strided
    pairs = edge_index if is_pairs else as_tensor(edge_index, "edge_index must be whole numbers")
    pairs = pairs if pairs.numel() else torch.empty((2, 0), dtype=torch.int64)
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        remedy = "; weights of rows are sample_weight=..." if pairs.ndim == 1 else ""
        raise InputError(f"edge_index must have shape (2, edges), got {tuple(pairs.shape)}{remedy}")
    data.edge_index = pairs
    return edge_weight


def is_sparse(X: Any) -> bool:
    """Is it a sparse matrix of scipy?"""
    import scipy.sparse

    return bool(scipy.sparse.issparse(X))


def as_features(X: Any, culprit: str) -> Tensor:
    """Features as a tensor, sparse if they are."""
    if isinstance(X, Tensor):
        return X
    if hasattr(X, "to_torch_sparse_csr_tensor"):  # torch_sparse's own kind
        return cast(Tensor, X.to_torch_sparse_csr_tensor())
    if is_sparse(X):
        coo = X.tocoo()
        place = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
        with quiet():
            return torch.sparse_coo_tensor(place, torch.from_numpy(coo.data.astype(np.float32)), coo.shape).coalesce()
    return as_tensor(as_matrix(X, culprit), f"{culprit} must be numbers")


def as_matrix(rows: Any, culprit: str) -> Array:
    """A matrix of numbers, or an :class:`InputError`."""
    try:
        matrix = np.asarray(rows)
        if matrix.dtype.kind not in "biufc":
            matrix = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{culprit} must be numbers, as many for each node") from None
    if matrix.ndim != 2:
        raise InputError(f"{culprit} must be a matrix with a row a node, got shape {matrix.shape}")
    return matrix


# -------------------------------------------------------------------------------------------- graphs of other libraries


def _is_pyg(X: Any) -> bool:
    # Whoever has such an object has loaded the library already.
    library = sys.modules.get("torch_geometric.data.data")
    return library is not None and isinstance(X, library.BaseData)


def _of_library(X: Any, target: TargetKind) -> Graph:
    """The graph in an object that is one by itself, with tensors, pairs of nodes and weights under their own names."""
    if _is_networkx(X):
        return from_networkx(X, target=target)
    if _is_pyg(X) and not isinstance(X, pyg_records()[0]):
        kind = f"a {type(X).__name__} has several kinds of nodes"
        raise InputError(f"data: {kind}: take one with data.to_homogeneous()")
    data = Graph(**X.to_dict()) if isinstance(X, Graph) or _is_pyg(X) else _from_dgl(X)
    if data.x is not None:
        data.x = as_features(data.x, "data: features 'x'")
    if data.edge_index is None and data.get("adj_t") is not None:
        adjacency = data.adj_t
        if isinstance(adjacency, Tensor):
            adjacency = adjacency.to_sparse_coo().coalesce()
            (targets, sources), weights = adjacency.indices(), adjacency.values()
        else:  # torch_sparse's own kind
            targets, sources, weights = adjacency.coo()
        data.edge_index = torch.stack([sources, targets])
        if weights is not None and bool((weights != 1).any()):
            data.edge_weight = weights
        del data["adj_t"]
    elif data.edge_index is not None and not isinstance(data.edge_index, Tensor):
        data.edge_index = as_tensor(data.edge_index, "data: edge_index must be whole numbers")
    if data.y is not None and data.get("label_names") is None and not isinstance(data.y, Tensor):
        set_targets(data, data.y, "data: labels 'y'", target)
    return asked(data, target)


def _is_networkx(X: Any) -> bool:
    return hasattr(X, "is_directed") and hasattr(X, "adjacency")


def from_networkx(graph: Any, culprit: str = "graph", target: TargetKind = "auto") -> Graph:
    """Node attributes ``label`` (or ``y``), ``split`` and ``x``, or each other number a feature; edge ``weight``."""
    import pandas as pd

    from .tables import KNOWN, graph_of_tables

    ids = list(graph.nodes)
    if not ids:
        raise InputError(f"{culprit}: there is no node")
    nodes = pd.DataFrame.from_records([own for _, own in graph.nodes(data=True)])
    if "label" not in nodes:
        nodes = nodes.rename(columns={"y": "label"})
    features = [name for name in nodes if name not in KNOWN and nodes[name].dtype.kind in "biuf"]
    features = ["x"] if "x" in nodes else features
    nodes = nodes[[name for name in nodes if name in (*KNOWN, *features)]]
    nodes = nodes.assign(id=pd.Series(object_array(ids)).infer_objects())
    lacking = nodes[features].isna()
    if lacking.to_numpy().any():
        row, column = np.argwhere(lacking.to_numpy())[0]
        what = f"node {ids[row]!r} has no {features[column]!r}, which is a feature of others"
        raise InputError(f"{culprit}: {what}")
    edges = pd.DataFrame(list(graph.edges(data="weight")), columns=["source", "target", "weight"])
    if edges["weight"].isna().all():
        edges = edges.drop(columns="weight")

    data = graph_of_tables(nodes, edges, target, (), culprits=(culprit, f"{culprit}: edges"))
    if not graph.is_directed():
        data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
        data.edge_weight = data.edge_weight.repeat(2) if "weight" in edges else None
    return data


def _is_dgl(X: Any) -> bool:
    return hasattr(X, "ndata") and hasattr(X, "edata") and hasattr(X, "num_nodes")


#: What the entries of a graph are called in DGL.
DGL = {"x": ("feat", "x"), "y": ("label", "y"), "edge_weight": ("weight", "w")} | {mask: (mask,) for mask in MASKS}


def _from_dgl(graph: Any) -> Graph:
    """``feat`` (or ``x``), ``label`` (or ``y``) and masks of ``ndata``, ``weight`` (or ``w``) of ``edata``."""
    own = {**graph.ndata, **graph.edata}
    entries = {name: own[given] for name, names in DGL.items() for given in reversed(names) if given in own}
    data = Graph(edge_index=torch.stack([torch.as_tensor(ends) for ends in graph.edges()]).long(), **entries)
    if data.x is None:
        data["num_nodes"] = int(graph.num_nodes())
    return data


# -------------------------------------------------------------------------------------------------------------- files


def load_file(path: Path, edges: Path | None = None, target: TargetKind = "auto", **about: Any) -> Graph:
    """A graph from an ``.npz`` (x, edge_index, edge_weight, y, masks), a saved ``Data``, GraphML or tables.

    Nothing in the file is executed: no pickled code is run. What more there is ``about`` tables is for
    :func:`~pdadmm_g.graph.tables.graph_of_tables`.
    """
    check_file(path)
    if path.suffix == ".graphml":
        import networkx

        with reading(path, "GraphML"):
            graph = networkx.read_graphml(path)
        return from_networkx(graph, str(path), target)
    if path.suffix not in (".npz", ".pt"):
        from .tables import graph_of_tables, read_table

        nodes, ends = read_table(path, about.get("labels", ())), None if edges is None else read_table(edges)
        return graph_of_tables(nodes, ends, target, **about, culprits=(str(path), str(edges)))
    data = _load_npz(path) if path.suffix == ".npz" else _load_pt(path)
    if data.x is None and data.edge_index is None and data.get("adj_t") is None:
        raise InputError(f"{path}: features 'x' are missing")
    return data


def _load_npz(path: Path) -> Graph:
    reason = "not such an archive, or a damaged one"
    with reading(path, ".npz arrays", reason), np.load(path, allow_pickle=False) as archive:
        names = archive.files
        unknown = sorted({*names} - {*ARRAYS})
        if unknown:  # a name with a slip of the pen must not pass for an array that is not there
            some = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
            warnings.warn(f"{path}: {some} is not used; the arrays of a graph are {', '.join(ARRAYS)}", stacklevel=2)
        return Graph(**{name: _member(archive, name, f"{path}: '{name}'") for name in ARRAYS if name in names})


def _member(archive: Any, name: str, culprit: str) -> Tensor:
    if archive.files.count(name) > 1:
        raise InputError(f"{culprit} is there twice")
    with reading(culprit, "an array of numbers", "damaged, or of another kind: Python objects are not read"):
        array = archive[name]
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        raise InputError(f"{culprit} must be an array of numbers, not text or records")
    return as_tensor(array, f"{culprit} must be an array of numbers")


def _load_pt(path: Path) -> Graph:
    with reading(path, "a saved torch_geometric Data", "damaged, too large for memory, or it holds more than tensors"):
        try:
            data = _loaded(path, {Graph})
        except Exception as error:
            if "torch_geometric" not in str(error):
                raise
            data = _loaded(path, {Graph, *pyg_records()})
        if not isinstance(data, Graph) and hasattr(data, "to_dict"):
            data = Graph(**data.to_dict())  # fails here, if ever, where the record is incomplete
    if not isinstance(data, Graph):
        raise InputError(f"{path}: holds a {type(data).__name__}, expected a torch_geometric Data")
    return data


def _loaded(path: Path, records: set[type]) -> Any:
    """What a file holds of tensors, plain values and these types, and nothing else."""
    # Only what is not allowed yet: on leaving, torch forbids again what is named here, torch_geometric's own included.
    with torch.serialization.safe_globals(list(records - set(torch.serialization.get_safe_globals()))):
        return torch.load(path, map_location="cpu", weights_only=True)
