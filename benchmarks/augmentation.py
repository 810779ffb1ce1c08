"""Time and memory of feature augmentation: one product of A~ with the features, against scipy and plain torch.

    python -m benchmarks.augmentation --graph flickr --data-root raw

The graphs of Flickr and ogbn-arxiv with random features of their width (500 and 128), or a random graph. Peak memory
is what the process holds beyond the pages of files, against 1.3 times input and output: features, edges and result.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
import torch

from experiments.results import write
from pdadmm_g.graph.augmentation import GraphAugment
from pdadmm_g.graph.graph import Graph
from pdadmm_g.graph.propagation import adjacency


def edges_of(args: argparse.Namespace) -> tuple[torch.Tensor, int, int]:
    """Edges, nodes and features."""
    if args.graph == "flickr":
        with np.load(Path(args.data_root) / "flickr" / "raw" / "adj_full.npz") as file:
            adjacency = scipy.sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
        row, col = adjacency.nonzero()
        return torch.from_numpy(np.stack([row, col]).astype(np.int64)), adjacency.shape[0], 500
    if args.graph == "ogbn-arxiv":
        with gzip.open(Path(args.data_root) / "ogbn_arxiv" / "raw" / "edge.csv.gz", "rt") as file:
            return torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.int64).T.copy()), 169_343, 128
    generator = torch.Generator().manual_seed(0)
    return torch.randint(args.nodes, (2, args.edges), generator=generator), args.nodes, args.width


class PeakMemory(threading.Thread):
    """The most anonymous memory of this process, looked at every 50 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.done = threading.Event()

    def now(self) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    def run(self) -> None:
        while not self.done.wait(0.05):
            self.peak = max(self.peak, self.now())


def seconds(function: Callable[[], object], device: str, repeats: int = 3) -> float:
    """The fastest of a few calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", choices=["flickr", "ogbn-arxiv"])
    parser.add_argument("--data-root", default="raw")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    edges, nodes, width = edges_of(args)
    augment = GraphAugment("power", 1, row_normalize=False, normalize="none")
    watch = PeakMemory()
    before = watch.now()
    sizes = {"features": 4 * nodes * width, "edges": 16 * edges.shape[1], "output": 4 * nodes * width}
    data = Graph(x=torch.randn(nodes, width).to(args.device), edge_index=edges.to(args.device))
    watch.start()
    start = time.perf_counter()
    result = augment.features(data)
    if args.device != "cpu":
        torch.cuda.synchronize()
    total = time.perf_counter() - start
    watch.done.set()

    start = time.perf_counter()
    A = adjacency(data)
    build = time.perf_counter() - start
    nonzeros = A.values().numel()
    row = {
        "nodes": nodes, "nonzeros": nonzeros, "width": width, "device": args.device, "threads": args.threads,
        "seconds": total, "seconds_to_build_the_operator": build,
        "ns_per_nonzero_and_feature": 1e9 * (total - build) / nonzeros / width,
        "input_and_output_gib": sum(sizes.values()) / 2**30,
        # Before the product: what is there already, of which edges and features are input.
        "peak_anonymous_gib": (watch.peak - before + sizes["edges"]) / 2**30,
        "in_memory_input_and_output_gib": sum(sizes.values()) / 2**30,
        "maxrss_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip
    if args.device != "cpu":
        row["peak_device_gib"] = torch.cuda.max_memory_allocated() / 2**30
    row["torch_csr_ns"] = 1e9 * seconds(lambda: A @ data.x, args.device) / nonzeros / width
    if args.device == "cpu":
        S = scipy.sparse.csr_array((A.values(), A.col_indices(), A.crow_indices()), shape=(nodes, nodes))
        row["scipy_csr_ns"] = 1e9 * seconds(lambda: S @ data.x.numpy(), "cpu") / nonzeros / width
    assert bool(torch.isfinite(result[:1000]).all())
    print(json.dumps(row, indent=1))
    write(args.out, row)


if __name__ == "__main__":
    main()
