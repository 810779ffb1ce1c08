"""The nine benchmarks of the paper, the embedded digits, and whatever else has a name or a path."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib.util
import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..config import GRAPH_FILES, NODE_TABLES, TargetKind
from ..errors import InputError
from ..files import find_graph
from .adapters import as_graph
from .checks import MASKS, as_mask, check_graph
from .graph import Graph, load_pyg
from .graph_files import first_line, load_file, only_graphs
from .shards import is_sharded


def load_dataset(
    name: str | Path,
    root: str | Path | None = None,
    cache: str | Path | None = None,
    *,
    edges: str | Path | None = None,
    target: TargetKind = "auto",
    labels: str | Sequence[str] | None = None,
    streamed: bool = False,
) -> Graph:
    """Load a graph with features, labels and train/validation/test masks, as far as it has them.

    Its ``x``, ``edge_index``, ``y``, ``train_mask`` and so on are tensors; ``to_pyg()`` makes a ``torch_geometric``
    ``Data`` of it.

    Args:
        name: A benchmark of :data:`BENCHMARKS`, ``digits``, or the path of an ``.npz``, ``.pt`` or ``.graphml`` file or
            of a table of nodes (``.csv``, ``.tsv``, ``.parquet``, see :mod:`.table_files`).
        root: A folder with raw benchmark files, only read. Default: the environment variable ``PDADMM_G_DATA``.
            A file that is not in the working folder is looked for there too.
        cache: A folder for what is processed and downloaded. Default: ``PDADMM_G_CACHE``, else the user's cache.
        edges: The table of edges that goes with a table of nodes.
        target: What is learned, see :func:`~pdadmm_g.data.adapters.as_graph`.
        labels: The column of a table of nodes, or several, learned instead of ``label``; where it has none of them,
            nothing is known of what is learned.
        streamed: Features of an ``.npz`` that take more than 1 GiB are not read into memory but into a temporary file
            (``TMPDIR``), from which predictions take a few columns at a time.
    """
    text = str(name)
    if edges is not None and Path(text).suffix not in NODE_TABLES:
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
        edges = find_graph(Path(edges), root) if edges else None
        labels = (labels,) if isinstance(labels, str) else labels or ()
        data = _load_path(find_graph(Path(text), root), edges, target, labels, streamed)
    return check_graph(as_graph(data, target=target), culprit=text)


def _load_path(path: Path, edges: Path | None, target: TargetKind, labels: Sequence[str], streamed: bool) -> Graph:
    if path.suffix in (".npz", ".pt"):
        return load_file(path, streamed=streamed)
    from .table_files import read_graphml, read_tables

    return read_graphml(path, target) if path.suffix == ".graphml" else read_tables(path, edges, target, labels)


def require_edge_table(data: Graph, name: str, remedy: str = "") -> None:
    """Raise, in words of the command line, if a data set that needs edges has none."""
    if data.edge_index is None:
        missing = "name their table with --edges" if Path(name).suffix in NODE_TABLES else "'edge_index' is missing"
        raise InputError(f"{name}: there are no edges: {missing}{remedy}")


def digest(data: Graph) -> str:
    """Equal for equal features, edges and their weights, labels and masks."""
    sha = hashlib.sha256()
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
    if name != "digits" and name not in BENCHMARKS and Path(name).suffix not in GRAPH_FILES:
        known = ", ".join(["digits", *BENCHMARKS])
        raise InputError(f"unknown data set '{name}'; known: {known}, or the path of a file ({', '.join(GRAPH_FILES)})")


# ------------------------------------------------------------------------------------------------------------ digits


def digits() -> Graph:
    """Handwritten digits of scikit-learn with a symmetric 10-nearest-neighbour graph.

    1797 images of 8 x 8 pixels, 10 classes; 5 training nodes per class, 500 validation nodes, the rest test.
    """
    # The file that its load_digits reads: to import scikit-learn would take longer than all else here.
    found = importlib.util.find_spec("sklearn")
    assert found is not None
    assert found.origin is not None
    with gzip.open(Path(found.origin).parent / "datasets/data/digits.csv.gz") as table:
        rows = np.loadtxt(table, delimiter=",")
    images, labels = rows[:, :-1], rows[:, -1]
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
    for mask, nodes in zip(MASKS, (training, rest[test : test + val], rest[:test]), strict=True):
        data[mask] = as_mask(nodes, data.num_nodes, mask)
    return data


# -------------------------------------------------------------------------------------------------------- benchmarks


@dataclass(frozen=True)
class Benchmark:
    """How one benchmark is loaded: ``folder`` below the root, raw files in it, and the library that owns it."""

    folder: str
    raw_files: tuple[str, ...]
    #: Reads the prepared folder.
    load: Callable[[Path], Graph]
    nodes: int
    features: int
    classes: int


def _planetoid(name: str, nodes: int, features: int, classes: int) -> Benchmark:
    def load(folder: Path) -> Graph:
        from torch_geometric.datasets import Planetoid

        return Planetoid(str(folder.parent), folder.name)[0]

    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"raw/ind.{name.lower()}.{part}" for part in parts)
    return Benchmark(f"planetoid/{name}", files, load, nodes, features, classes)


def _twenty_per_class(owner: str, name: str, file: str, nodes: int, features: int, classes: int) -> Benchmark:
    def load(folder: Path) -> Graph:
        import torch_geometric.datasets

        data = getattr(torch_geometric.datasets, owner)(str(folder.parent), folder.name)[0]
        return _random_split(data, per_class=20, val=1000, test=1000)

    return Benchmark(f"{owner.lower()}/{name}", (f"raw/{file}",), load, nodes, features, classes)


def _load_flickr(folder: Path) -> Graph:
    from torch_geometric.datasets import Flickr

    return Flickr(str(folder))[0]


def _load_arxiv(folder: Path) -> Graph:
    try:
        from ogb.nodeproppred import PygNodePropPredDataset
    except ImportError:
        raise InputError("ogbn-arxiv needs the 'ogb' package: pip install ogb") from None
    with only_graphs():  # ogb reads its processed file with torch.load's strict default
        dataset = PygNodePropPredDataset("ogbn-arxiv", root=str(folder.parent))
    data = dataset[0]
    split = dataset.get_idx_split()
    for mask, part in zip(MASKS, ("train", "valid", "test"), strict=True):
        data[mask] = as_mask(split[part], data.num_nodes, mask)
    return data


#: The benchmarks by name; a new one is named in cli/completion.py too, which must not load torch.
BENCHMARKS: dict[str, Benchmark] = {
    "cora": _planetoid("Cora", 2708, 1433, 7),
    "pubmed": _planetoid("PubMed", 19717, 500, 3),
    "citeseer": _planetoid("CiteSeer", 3327, 3703, 6),
    "amazon-computers": _twenty_per_class(
        "Amazon", "Computers", "amazon_electronics_computers.npz", 13752, 767, 10
    ),
    "amazon-photo": _twenty_per_class("Amazon", "Photo", "amazon_electronics_photo.npz", 7650, 745, 8),
    "coauthor-cs": _twenty_per_class("Coauthor", "CS", "ms_academic_cs.npz", 18333, 6805, 15),
    "coauthor-physics": _twenty_per_class("Coauthor", "Physics", "ms_academic_phy.npz", 34493, 8415, 5),
    "flickr": Benchmark(
        "flickr",
        ("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json"),
        _load_flickr, 89250, 500, 7,
    ),
    "ogbn-arxiv": Benchmark(
        "ogbn_arxiv",
        ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz", "split/time/train.csv.gz"),
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
    """Load through the owning library, in a cache folder that mirrors the raw files of ``root``.

    The libraries write next to the raw files, and ``root`` is read-only to us.
    """
    if root is not None and not root.is_dir():
        raise InputError(f"{root}: no such folder of raw data")
    source = root / benchmark.folder if root is not None else None
    if source is not None and source.is_dir():
        folder = cache / _fingerprint(source) / benchmark.folder
        _mirror(source, folder)
    else:
        folder = cache / "downloaded" / benchmark.folder
    try:
        # The libraries talk. What they say of a download is worth seeing, but not on our standard output.
        downloads = not all((folder / file).exists() for file in benchmark.raw_files)
        talk = sys.stderr if downloads else io.StringIO()
        with contextlib.redirect_stdout(talk), contextlib.redirect_stderr(talk):
            load_pyg()
            return benchmark.load(folder)
    except InputError:
        raise
    except Exception as error:  # network, parser and library errors of many kinds; all end in one line for the user
        missing = [file for file in benchmark.raw_files if not (folder / file).exists()]
        if not missing:
            raise InputError(f"{folder}: cannot read the raw files: {first_line(error)}") from error
        home = source or Path("DATA_ROOT") / benchmark.folder
        raise InputError(
            f"{home / missing[0]} is missing and could not be downloaded ({first_line(error)}); "
            f"put it there and name the data root with --data-root or $PDADMM_G_DATA"
        ) from error


def _fingerprint(folder: Path) -> str:
    """Changes when a raw file of ``folder`` does, so that nothing stale is read from the cache."""
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and "processed" not in path.relative_to(folder).parts
    )
    stats = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr((str(folder.resolve()), stats)).encode()).hexdigest()[:16]


def _mirror(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        twin = target / path.relative_to(source)
        if path.is_dir() or "processed" in path.relative_to(source).parts or twin.exists():
            continue
        twin.parent.mkdir(parents=True, exist_ok=True)
        twin.unlink(missing_ok=True)  # a link whose file is gone
        try:
            twin.symlink_to(path.resolve())
        except OSError:
            shutil.copyfile(path, twin)
