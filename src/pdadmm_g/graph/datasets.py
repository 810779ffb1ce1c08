"""The nine benchmarks of the paper, the embedded digits, and whatever else has a name or a path."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import sys
import urllib.request
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..config import GRAPH_FILES, NODE_TABLES, TargetKind
from ..errors import InputError
from ..utils import find_graph, write_atomically
from .checks import check_graph
from .graph import MASKS, Graph, as_mask, first_line, reading
from .parts import distinct
from .readers import as_graph, load_file
from .shards import is_sharded
from .tables import Columns


def load_dataset(
    name: str | Path,
    root: str | Path | None = None,
    cache: str | Path | None = None,
    *,
    edges: str | Path | None = None,
    target: TargetKind = "auto",
    labels: str | Sequence[str] | None = None,
    columns: Columns = None,
    id_column: str | None = None,
    source_column: str | None = None,
    target_column: str | None = None,
    skip_unknown: bool = False,
) -> Graph:
    """Load a graph with features, labels and train/validation/test masks, as far as it has them.

    Its ``x``, ``edge_index``, ``y``, ``train_mask`` and so on are tensors; ``to_pyg()`` makes a ``torch_geometric``
    ``Data`` of it.

    Args:
        name: A benchmark of :data:`BENCHMARKS`, ``digits``, or the path of an ``.npz``, ``.pt`` or ``.graphml`` file or
            of a table of nodes (``.csv``, ``.tsv``, ``.parquet``, see :mod:`.tables`).
        root: A folder with raw benchmark files, only read. Default: the environment variable ``PDADMM_G_DATA``.
            A file that is not in the working folder is looked for there too.
        cache: A folder for what is processed and downloaded. Default: ``PDADMM_G_CACHE``, else the user's cache.
        edges: The table of edges that goes with a table of nodes.
        target: What is learned, see :func:`~pdadmm_g.graph.readers.as_graph`.
        labels: The column of a table of nodes, or several, learned instead of ``label``; where it has none of them,
            nothing is known of what is learned.
        columns: The roles of columns of a table of nodes; this and what follows as for
            :func:`~pdadmm_g.graph.readers.as_graph`.
        id_column: The column of ids.
        source_column: Where edges begin.
        target_column: Where edges end.
        skip_unknown: Leave out edges of unknown nodes.
    """
    text = str(name)
    if edges is not None and not text.endswith(NODE_TABLES):
        raise InputError(f"{text}: has its edges with it: leave {edges} out, or name a table of nodes")
    if is_sharded(text):
        raise InputError(f"{text}: is a folder of shards, for 'pdadmm-g train', 'predict' and 'evaluate' alone")
    check_name(text)
    root = root or os.environ.get("PDADMM_G_DATA")
    if text == "digits":
        data = digits()
    elif text in BENCHMARKS:
        data = _load_benchmark(BENCHMARKS[text], Path(root) if root else None, cache_folder(cache))
    else:
        data = load_file(
            find_graph(Path(text), root), find_graph(Path(edges), root) if edges else None, target, columns=columns,
            labels=(labels,) if isinstance(labels, str) else tuple(labels or ()), id_column=id_column,
            ends=(source_column, target_column), skip_unknown=skip_unknown,
        )  # fmt: skip
    return check_graph(as_graph(data, target=target), culprit=text)


def require_edge_table(data: Graph, name: str, remedy: str = "") -> None:
    """Raise, in words of the command line, if a data set that needs edges has none."""
    if data.edge_index is None:
        missing = "name their table with --edges" if name.endswith(NODE_TABLES) else "'edge_index' is missing"
        raise InputError(f"{name}: there are no edges: {missing}{remedy}")


def digest(data: Graph) -> str:
    """Equal for equal features, edges and their weights, labels, masks, and names of all of these."""
    sha = hashlib.sha256()
    for name in ("ids", "feature_names", "label_names"):
        if data.get(name) is not None:
            sha.update(json.dumps([name, *map(str, data[name])]).encode())
    for name in ("x", "edge_index", "edge_weight", "y", *MASKS):
        value = data.get(name)
        if value is None:
            continue
        if value.layout != torch.strided:
            value = value.to_sparse_coo().coalesce()
        for part in (value,) if value.layout == torch.strided else (value.indices(), value.values()):
            sha.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
            sha.update(part.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return sha.hexdigest()


def check_name(name: str) -> None:
    """Raise :class:`InputError` unless ``name`` can be the name of a data set."""
    if name != "digits" and name not in BENCHMARKS and not name.endswith(GRAPH_FILES):
        known = ", ".join(["digits", *BENCHMARKS])
        raise InputError(f"unknown data set '{name}'; known: {known}, or the path of a file ({', '.join(GRAPH_FILES)})")


# ------------------------------------------------------------------------------------------------------------ digits


def digits() -> Graph:
    """Handwritten digits of scikit-learn with a symmetric 10-nearest-neighbour graph.

    1797 images of 8 x 8 pixels, 10 classes; 5 training nodes per class, 500 validation nodes, the rest test.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    # Pixels are small whole numbers and distances exact. Of equally distant images the first is taken: 62 images have
    # such a tie for their tenth neighbour, and a library may break it differently with another number of threads.
    lengths = np.square(images).sum(1)
    squared = (lengths[:, None] + lengths - 2 * images @ images.T).astype(np.int16)
    np.fill_diagonal(squared, np.iinfo(np.int16).max)
    nearest = squared.argsort(axis=1, kind="stable")[:, :10]
    pairs = np.stack([np.repeat(np.arange(len(images)), 10), nearest.ravel()])
    data = Graph(
        x=torch.from_numpy(images).float(),
        edge_index=torch.from_numpy(np.unique(np.hstack([pairs, pairs[::-1]]), axis=1)),
        y=torch.from_numpy(labels).long(),
    )
    return _random_split(data, per_class=5, val=500, test=None)


def _random_split(data: Graph, *, per_class: int, val: int, test: int | None, seed: int = 100) -> Graph:
    """``per_class`` training nodes of each class, then ``test`` and ``val`` nodes of the shuffled remainder.

    The paper's protocol: the generator is seeded anew for each class and once for the remainder, which is in the order
    of the nodes. With ``test`` None all that validation leaves over is test.
    """

    def shuffle(index: Tensor) -> Tensor:
        return index[torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))]

    members = [(data.y == label).nonzero().view(-1) for label in data.y.unique()]
    training = as_mask(torch.cat([shuffle(nodes)[:per_class] for nodes in members]), data.num_nodes, "train_mask")
    rest = shuffle((~training).nonzero().view(-1))
    test = len(rest) - val if test is None else test
    return _with_masks(data, training, rest[test : test + val], rest[:test])


# -------------------------------------------------------------------------------------------------------- benchmarks

#: Where a raw file is, by its path below the folder of its benchmark.
Raw = Callable[[str], Path]


@dataclass(frozen=True)
class Benchmark:
    """How one benchmark is loaded: its ``folder`` below the root, and the addresses of the raw files in it."""

    folder: str
    #: By the path below the folder; those of a .zip are in a folder of its name.
    raw_files: dict[str, str]
    load: Callable[[Raw], Graph]
    nodes: int
    features: int
    classes: int


def _planetoid(name: str, nodes: int, features: int, classes: int) -> Benchmark:
    prefix = f"ind.{name.lower()}"
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = {f"raw/{prefix}.{part}": f"{PLANETOID}/{prefix}.{part}" for part in parts}

    def load(raw: Raw) -> Graph:
        _, tx, allx, y, ty, ally, graph = (_arrays(raw(f"raw/{prefix}.{part}")) for part in parts[:-1])
        test = np.loadtxt(raw(f"raw/{prefix}.test.index"), dtype=np.int64)
        ordered = np.sort(test)
        # Citeseer has nodes without features and label among its test nodes, which the files leave out.
        number = ordered[-1] + 1
        x, labels = np.zeros((number, allx.shape[1]), np.float32), np.zeros((number, ally.shape[1]), np.float32)
        for whole, known, tested in ((x, allx, tx), (labels, ally, ty)):
            whole[: len(known)], whole[test] = known, tested
        row = np.repeat(list(graph), [len(each) for each in graph.values()])
        col = np.concatenate([*graph.values()])
        data = Graph(
            x=torch.from_numpy(x),
            edge_index=distinct(torch.from_numpy(np.stack([col, row])), int(number)).flip(0),
            y=torch.from_numpy(labels.argmax(1)),
        )
        return _with_masks(data, range(len(y)), range(len(y), len(y) + 500), test)

    return Benchmark(f"planetoid/{name}", files, load, nodes, features, classes)


class _Unpickler(pickle.Unpickler):
    """Reads the pickles of Planetoid: arrays, lists and dicts; whatever else is named is refused."""

    known: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("scipy.sparse.csr", "csr_matrix"):
            import scipy.sparse

            return scipy.sparse.csr_matrix
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return self.known[module, name]


def _arrays(path: Path) -> Any:
    with path.open("rb") as file:
        found = _Unpickler(file, encoding="latin1").load()
    return found.toarray().astype(np.float32, copy=False) if hasattr(found, "toarray") else found


def _csr(parts: Mapping[str, Any], prefix: str = "") -> Any:
    import scipy.sparse

    arrays = tuple(parts[f"{prefix}{name}"] for name in ("data", "indices", "indptr"))
    return scipy.sparse.csr_array(arrays, shape=tuple(parts[f"{prefix}shape"]))


def _edges(matrix: Any) -> Tensor:
    coo = matrix.tocoo()
    return torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))


def _twenty_per_class(owner: str, name: str, file: str, nodes: int, features: int, classes: int) -> Benchmark:
    def load(raw: Raw) -> Graph:
        with np.load(raw(f"raw/{file}"), allow_pickle=False) as parts:
            x = _csr(parts, "attr_").toarray().astype(np.float32)
            edges, y = _edges(_csr(parts, "adj_")), parts["labels"]
        x[x > 0] = 1
        edges = distinct(torch.cat([edges, edges.flip(0)], 1), len(x))
        data = Graph(x=torch.from_numpy(x), edge_index=edges, y=torch.from_numpy(y).long())
        return _random_split(data, per_class=20, val=1000, test=1000)

    files = {f"raw/{file}": f"https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{file}"}
    return Benchmark(f"{owner}/{name}", files, load, nodes, features, classes)


def _load_flickr(raw: Raw) -> Graph:
    with np.load(raw("raw/adj_full.npz"), allow_pickle=False) as parts:
        edges = _edges(_csr(parts))
    x = torch.from_numpy(np.load(raw("raw/feats.npy"), allow_pickle=False)).float()
    labels = json.loads(raw("raw/class_map.json").read_text())
    role = json.loads(raw("raw/role.json").read_text())
    y = torch.full((len(x),), -1)
    y[torch.tensor([int(node) for node in labels])] = torch.tensor([*labels.values()])
    return _with_masks(Graph(x=x, edge_index=edges, y=y), role["tr"], role["va"], role["te"])


def _load_arxiv(raw: Raw) -> Graph:
    import pandas as pd

    def table(name: str) -> Tensor:
        return torch.from_numpy(pd.read_csv(raw(f"{name}.csv.gz"), header=None).to_numpy(copy=True))

    data = Graph(x=table("raw/node-feat").float(), edge_index=table("raw/edge").T, y=table("raw/node-label").view(-1))
    return _with_masks(data, *(table(f"split/time/{part}").view(-1) for part in ("train", "valid", "test")))


def _with_masks(data: Graph, *parts: Any) -> Graph:
    for mask, nodes in zip(MASKS, parts, strict=True):
        data[mask] = as_mask(nodes, data.num_nodes, mask)
    return data


PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
FLICKR = "https://drive.usercontent.google.com/download?confirm=t&id="
ARXIV = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"

#: The benchmarks by name; a new one is named in cli/completion.py too, which must not load torch.
BENCHMARKS: dict[str, Benchmark] = {
    "cora": _planetoid("Cora", 2708, 1433, 7),
    "pubmed": _planetoid("PubMed", 19717, 500, 3),
    "citeseer": _planetoid("CiteSeer", 3327, 3703, 6),
    "amazon-computers": _twenty_per_class(
        "amazon", "Computers", "amazon_electronics_computers.npz", 13752, 767, 10
    ),
    "amazon-photo": _twenty_per_class("amazon", "Photo", "amazon_electronics_photo.npz", 7650, 745, 8),
    "coauthor-cs": _twenty_per_class("coauthor", "CS", "ms_academic_cs.npz", 18333, 6805, 15),
    "coauthor-physics": _twenty_per_class("coauthor", "Physics", "ms_academic_phy.npz", 34493, 8415, 5),
    "flickr": Benchmark(
        "flickr",
        {
            "raw/adj_full.npz": FLICKR + "1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
            "raw/feats.npy": FLICKR + "1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
            "raw/class_map.json": FLICKR + "1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
            "raw/role.json": FLICKR + "1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7",
        },
        _load_flickr, 89250, 500, 7,
    ),
    "ogbn-arxiv": Benchmark(
        "ogbn_arxiv",
        dict.fromkeys(
            ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz",
             *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test"))), ARXIV,
        ),
        _load_arxiv, 169343, 128, 40,
    ),
}  # fmt: skip


def missing_raw_files(benchmark: Benchmark, root: str | Path | None = None) -> list[str]:
    """The raw files of the benchmark that are not under the data root, by their path below it."""
    root = root or os.environ.get("PDADMM_G_DATA")
    files = [f"{benchmark.folder}/{file}" for file in benchmark.raw_files]
    return [file for file in files if root is None or not (Path(root) / file).is_file()]


def cache_folder(cache: str | Path | None = None) -> Path:
    """Where processed and made files go: ``cache``, else ``PDADMM_G_CACHE``, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pdadmm-g"
    return Path(cache or os.environ.get("PDADMM_G_CACHE") or default)


def _load_benchmark(benchmark: Benchmark, root: Path | None, cache: Path) -> Graph:
    """Read the raw files under ``root``; those that are not there are downloaded into the ``cache``, once."""
    if root is not None and not root.is_dir():
        raise InputError(f"{root}: no such folder of raw data")

    def raw(file: str) -> Path:
        own, downloaded = (base / benchmark.folder / file for base in (root or Path("DATA_ROOT"), cache / "downloaded"))
        if own.is_file():
            return own
        try:
            if not downloaded.is_file():
                _download(benchmark, file, cache / "downloaded")
        except Exception as error:  # network, archive and disk have errors of many kinds
            raise InputError(
                f"{own} is missing and could not be downloaded ({first_line(error)}); "
                f"put it there and name the data root with --data-root or $PDADMM_G_DATA"
            ) from error
        return downloaded

    with reading((root or cache / "downloaded") / benchmark.folder, "raw files"):  # damage is found out in many ways
        return benchmark.load(raw)


def _download(benchmark: Benchmark, file: str, folder: Path) -> None:
    address = benchmark.raw_files[file]
    print(f"downloading {address}", file=sys.stderr)
    with urllib.request.urlopen(address, timeout=60) as response:
        content = {file: response.read()}
    if address.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content[file])) as archive:
            content = {each: archive.read(f"{Path(address).stem}/{each}") for each in benchmark.raw_files}
    for name, part in content.items():
        path = folder / benchmark.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, part)
