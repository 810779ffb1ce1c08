"""The nine benchmarks of the paper, the embedded digits, graphs from files, and the check that all of them pass."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import math
import os
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from .errors import InputError

MASKS = ("train_mask", "val_mask", "test_mask")


def load_dataset(name: str | Path, root: str | Path | None = None, cache: str | Path | None = None) -> Data:
    """Load a graph with features, labels and train/validation/test masks.

    Args:
        name: A benchmark of :data:`BENCHMARKS`, ``digits``, or the path of an ``.npz`` or ``.pt`` file.
        root: A folder with raw benchmark files, only read. Default: the environment variable ``PDADMM_G_DATA``.
            A file that is not in the working folder is looked for there too.
        cache: A folder for what is processed and downloaded. Default: ``PDADMM_G_CACHE``, else the user's cache.
    """
    text = str(name)
    check_name(text)
    root = root or os.environ.get("PDADMM_G_DATA")
    if text == "digits":
        data = digits()
    elif text in BENCHMARKS:
        data = _load_benchmark(BENCHMARKS[text], Path(root) if root else None, cache_folder(cache))
    else:
        under_root = Path(root or ".", text)
        data = load_file(under_root if not Path(text).exists() and under_root.exists() else Path(text))
    return check_graph(data, culprit=text)


def check_name(name: str) -> None:
    """Raise :class:`InputError` unless ``name`` can be the name of a data set."""
    if name != "digits" and name not in BENCHMARKS and Path(name).suffix not in (".npz", ".pt"):
        known = ", ".join(["digits", *BENCHMARKS])
        raise InputError(f"unknown data set '{name}'; known: {known}, or the path of an .npz or .pt file")


# ------------------------------------------------------------------------------------------------------------ checks


def check_graph(data: Data, *, culprit: str = "data") -> Data:
    """Raise :class:`InputError` unless ``data`` is a sound graph; return it with normalised labels and masks.

    Features must be finite, edges within range, labels integers, masks booleans or node indices of the right shape.
    Labels may be missing (-1) only outside the masks.
    """
    data = copy.copy(data)
    x = data.x
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise InputError(f"{culprit}: features 'x' must be a matrix with at least one row and one column")
    _check_finite(x, culprit)
    num_nodes = x.shape[0]
    if "num_nodes" in data:
        if not isinstance(data["num_nodes"], int) or data["num_nodes"] != num_nodes:
            raise InputError(f"{culprit}: 'num_nodes' contradicts the {num_nodes} rows of 'x'; leave it out")
        del data["num_nodes"]
    if data.edge_index is not None:
        data.edge_index = _check_edges(data.edge_index, num_nodes, culprit)
    data.x = x.detach()
    if data.y is not None:
        data.y = _check_labels(data.y, num_nodes, culprit)
    for mask in MASKS:
        if mask in data:
            data[mask] = as_mask(data[mask], num_nodes, f"{culprit}: {mask}")
    return data


def check_training(data: Data, *, culprit: str = "data") -> None:
    """Raise :class:`InputError` unless ``data``, already through :func:`check_graph`, can be trained on."""
    if data.y is None:
        raise InputError(f"{culprit}: labels 'y' are missing")
    if "train_mask" not in data:
        raise InputError(f"{culprit}: 'train_mask' is missing: mark the nodes to train on")
    if not bool(data.train_mask.any()):
        raise InputError(f"{culprit}: train_mask is empty: mark at least one node per class")
    used = torch.zeros_like(data.train_mask)
    for mask in MASKS:
        if mask in data:
            used |= data[mask]
            unlabelled = (data[mask] & (data.y < 0)).nonzero()
            if len(unlabelled):
                raise InputError(f"{culprit}: node {int(unlabelled[0])} of {mask} has no label (y = -1)")
    absent = set(data.y[used].unique().tolist()) - set(data.y[data.train_mask].unique().tolist())
    if absent:
        raise InputError(f"{culprit}: class {min(absent)} has no training node")
    _warn_overlap(data)


def as_mask(mask: Any, num_nodes: int, culprit: str) -> Tensor:
    """A boolean mask over nodes from a boolean mask or a list of node indices."""
    mask = _as_tensor(mask, f"{culprit} must be booleans or a list of node indices").cpu()
    if mask.dtype == torch.bool:
        if mask.shape != (num_nodes,):
            raise InputError(f"{culprit} has shape {tuple(mask.shape)}, expected ({num_nodes},)")
        return mask
    if mask.is_floating_point() or mask.is_complex() or mask.ndim != 1:
        raise InputError(f"{culprit} must be booleans or a list of node indices")
    index = mask.long()
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= num_nodes):
        raise InputError(f"{culprit} names a node outside 0..{num_nodes - 1}")
    if len(index.unique()) < len(index):
        # Not a list of nodes, then: zeros and ones for every node are a mask, anything else is a mistake.
        if len(index) == num_nodes and int(index.max()) == 1:
            return index.bool()
        raise InputError(f"{culprit} names a node twice: give booleans, or a list of different nodes")
    return torch.zeros(num_nodes, dtype=torch.bool).scatter_(0, index, True)


def _as_tensor(values: Any, rule: str) -> Tensor:
    """A dense tensor of whatever was given, or an :class:`InputError` with the rule that it breaks."""
    try:
        if isinstance(values, np.ndarray):
            values = _native(values)
        tensor = torch.as_tensor(values)
        return (tensor if tensor.layout == torch.strided else tensor.to_dense()).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        kind = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise InputError(f"{rule}, not {kind}") from None


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers in a type that torch computes with: native byte order, integers signed where they fit."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and int(array.max()) >= 2**63:
            raise OverflowError
        return array.astype(np.int64)
    return array


def _check_finite(x: Tensor, culprit: str) -> None:
    if x.is_complex():
        raise InputError(f"{culprit}: features 'x' must be real numbers")
    if not x.is_floating_point():
        return
    if x.layout == torch.strided:
        # The norm is one cheap pass that sees everything: no entry is larger, and NaN makes it NaN.
        # As a Python number, since in half precision the bound would itself round to infinity.
        if float(torch.linalg.vector_norm(x.detach(), ord=torch.inf)) <= LARGEST:
            return
        rows, values = torch.arange(len(x)), x.detach().abs().amax(1).cpu()
    else:
        coo = x.detach().to_sparse_coo().coalesce().cpu()
        rows, values = coo.indices()[0], coo.values().abs()
    bad = rows[~torch.isfinite(values)]
    if len(bad):
        raise InputError(f"{culprit}: features contain NaN or infinity, first in row {int(bad.min())}")
    large = rows[values > LARGEST]
    if len(large):
        raise InputError(f"{culprit}: features exceed {LARGEST:g}, first in row {int(large.min())}: rescale them")


#: Larger features would overflow in single precision.
LARGEST = 1e15


def _check_edges(edge_index: Any, num_nodes: int, culprit: str) -> Tensor:
    if not isinstance(edge_index, Tensor) or edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(f"{culprit}: edge_index must have shape (2, edges)")
    if edge_index.layout != torch.strided:
        raise InputError(f"{culprit}: edge_index must be dense, a list of pairs of nodes")
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise InputError(f"{culprit}: edge_index must hold integers, not {edge_index.dtype}")
    edge_index = edge_index.long()
    if edge_index.numel():
        for value in (int(edge_index.min()), int(edge_index.max())):
            if not 0 <= value < num_nodes:
                raise InputError(f"{culprit}: edge_index names node {value}, but nodes are 0..{num_nodes - 1}")
    return edge_index


def _check_labels(y: Any, num_nodes: int, culprit: str) -> Tensor:
    y = _as_tensor(y, f"{culprit}: labels 'y' must be integers").cpu()
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if y.shape != (num_nodes,):
        raise InputError(f"{culprit}: labels 'y' have shape {tuple(y.shape)}, expected ({num_nodes},)")
    if y.is_floating_point():
        fractional = (~torch.isfinite(y) | (y != y.round())).nonzero()
        if len(fractional):
            row = int(fractional[0])
            raise InputError(f"{culprit}: labels must be integers, but y[{row}] = {y[row].item()}")
    if y.is_complex() or y.dtype == torch.bool:
        raise InputError(f"{culprit}: labels must be integers, not {y.dtype}")
    y = y.long()
    if int(y.min()) < -1:
        raise InputError(f"{culprit}: labels must be 0 or more (-1 for unlabelled nodes), got {int(y.min())}")
    return y


def _warn_overlap(data: Data) -> None:
    present = [mask for mask in MASKS if mask in data]
    for index, first in enumerate(present):
        for second in present[index + 1 :]:
            shared = int((data[first] & data[second]).sum())
            if shared:
                warnings.warn(f"{first} and {second} share {shared} nodes", stacklevel=4)


# ------------------------------------------------------------------------------------------------------------- files


def load_file(path: Path) -> Data:
    """A graph from an ``.npz`` (x, edge_index, y, masks) or a saved ``torch_geometric`` ``Data``.

    Nothing in the file is executed: arrays only, no pickled code.
    """
    try:
        found = path.is_file()
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    if not found:
        raise InputError(f"{path}: no such file")
    data = _load_npz(path) if path.suffix == ".npz" else _load_pt(path)
    if data.x is None:
        raise InputError(f"{path}: features 'x' are missing")
    return data


def _load_npz(path: Path) -> Data:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            arrays = {}
            for name in ("x", "edge_index", "y", *MASKS):
                member = f"{name}.npy"
                if names.count(member) > 1:
                    raise InputError(f"{path}: holds '{name}' twice")
                if member in names:
                    arrays[name] = _read_member(archive, member, f"{path}: '{name}'")
            return Data(**arrays)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or 'damaged'}") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot read as .npz arrays: not such an archive, or a damaged one") from None


#: Deflate packs a byte into no less than 1/1032 of one.
DEFLATE_RATIO = 1032


def _read_member(archive: zipfile.ZipFile, member: str, culprit: str) -> Tensor:
    """One array of an ``.npz``. Its size is checked against the bytes that are there before memory is taken for it."""
    info = archive.getinfo(member)
    damaged = InputError(f"{culprit} cannot be read as an array: damaged, or of another kind")
    packed = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}.get(info.compress_type, 0)
    if info.file_size > packed * info.compress_size + DEFLATE_RATIO:
        raise InputError(f"{culprit} claims more bytes than the file can hold")
    try:
        with archive.open(info) as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, _, dtype = read(file)
            size = file.tell() + math.prod(shape) * dtype.itemsize
    except Exception:  # numpy's parser raises many kinds on a hostile header
        raise damaged from None
    if dtype.kind not in "biufc":
        kind = {"U": "text", "S": "text", "O": "Python objects"}.get(dtype.kind, str(dtype))
        raise InputError(f"{culprit} must be an array of numbers, not {kind}")
    if size != info.file_size or min(shape, default=0) < 0:
        raise InputError(f"{culprit} has a header of shape {shape}, which does not fit its {info.file_size} bytes")
    try:
        with archive.open(info) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except MemoryError:
        raise InputError(f"{culprit} does not fit in memory") from None
    except Exception:
        raise damaged from None
    return _as_tensor(array, f"{culprit} must be an array of numbers")


def _only_graphs() -> AbstractContextManager[None]:
    """While active, ``torch.load`` accepts the record types of a ``Data`` beside tensors, and nothing else."""
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    records = {Data, DataEdgeAttr, DataTensorAttr, GlobalStorage}
    # Only what is not allowed yet: on leaving, torch forbids again what is named here, torch_geometric's own included.
    return torch.serialization.safe_globals(list(records - set(torch.serialization.get_safe_globals())))


def _load_pt(path: Path) -> Data:
    try:
        with _only_graphs():
            data = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(data, Data):
            data = Data.from_dict(data.to_dict())  # fails here, if ever, where the record is incomplete
    except Exception as error:  # the unpickler raises many kinds on a hostile file, and none may get past here
        memory = isinstance(error, MemoryError) or "allocate" in str(error)
        reason = "it does not fit in memory" if memory else "damaged, or it holds more than tensors"
        raise InputError(f"{path}: cannot read as a saved torch_geometric Data: {reason}") from None
    if not isinstance(data, Data):
        raise InputError(f"{path}: holds a {type(data).__name__}, expected a torch_geometric Data")
    return data


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# ------------------------------------------------------------------------------------------------------------ digits


def digits() -> Data:
    """Handwritten digits of scikit-learn with a symmetric 10-nearest-neighbour graph.

    1797 images of 8 x 8 pixels, 10 classes; 5 training nodes per class, 500 validation nodes, the rest test.
    """
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

    images, labels = load_digits(return_X_y=True)
    neighbours = kneighbors_graph(images, n_neighbors=10)
    edges = (neighbours + neighbours.T).tocoo()
    data = Data(
        x=torch.from_numpy(images).float(),
        edge_index=torch.from_numpy(np.stack([edges.row, edges.col])).long(),
        y=torch.from_numpy(labels).long(),
    )
    return _random_split(data, per_class=5, val=500, test=None)


def _random_split(data: Data, *, per_class: int, val: int, test: int | None, seed: int = 100) -> Data:
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
    load: Callable[[Path], Data]
    nodes: int
    features: int
    classes: int


def _planetoid(name: str, nodes: int, features: int, classes: int) -> Benchmark:
    def load(folder: Path) -> Data:
        from torch_geometric.datasets import Planetoid

        return Planetoid(str(folder.parent), folder.name)[0]

    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"raw/ind.{name.lower()}.{part}" for part in parts)
    return Benchmark(f"planetoid/{name}", files, load, nodes, features, classes)


def _twenty_per_class(owner: str, name: str, file: str, nodes: int, features: int, classes: int) -> Benchmark:
    def load(folder: Path) -> Data:
        import torch_geometric.datasets

        data = getattr(torch_geometric.datasets, owner)(str(folder.parent), folder.name)[0]
        return _random_split(data, per_class=20, val=1000, test=1000)

    return Benchmark(f"{owner.lower()}/{name}", (f"raw/{file}",), load, nodes, features, classes)


def _load_flickr(folder: Path) -> Data:
    from torch_geometric.datasets import Flickr

    return Flickr(str(folder))[0]


def _load_arxiv(folder: Path) -> Data:
    try:
        from ogb.nodeproppred import PygNodePropPredDataset
    except ImportError:
        raise InputError("ogbn-arxiv needs the 'ogb' package: pip install 'pdadmm-g[ogb]'") from None
    with _only_graphs():  # ogb reads its processed file with torch.load's strict default
        dataset = PygNodePropPredDataset("ogbn-arxiv", root=str(folder.parent))
    data = dataset[0]
    split = dataset.get_idx_split()
    for mask, part in zip(MASKS, ("train", "valid", "test"), strict=True):
        data[mask] = as_mask(split[part], data.num_nodes, mask)
    return data


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


def _load_benchmark(benchmark: Benchmark, root: Path | None, cache: Path) -> Data:
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
            return benchmark.load(folder)
    except InputError:
        raise
    except Exception as error:  # network, parser and library errors of many kinds; all end in one line for the user
        missing = [file for file in benchmark.raw_files if not (folder / file).exists()]
        if not missing:
            raise InputError(f"{folder}: cannot read the raw files: {_first_line(error)}") from error
        home = source or Path("DATA_ROOT") / benchmark.folder
        raise InputError(
            f"{home / missing[0]} is missing and could not be downloaded ({_first_line(error)}); "
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
