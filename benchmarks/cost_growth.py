"""How the time of an epoch grows with nodes, width and depth: fitted exponents, which should be 1, 2 and 1.

    python -m benchmarks.cost_growth --device cuda --out results/performance/cost-growth-h200

The exponents are fitted to the larger half of each series, where the fixed cost of launching work no longer counts.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from benchmarks.bench import Size, bench
from experiments.results import write

SERIES = {
    "cpu": {
        "nodes": (Size(features=100, hidden=100), (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)),
        "hidden": (Size(features=100, nodes=1000), (125, 250, 500, 1000, 2000)),
        "layers": (Size(features=250, hidden=250, nodes=2000), (4, 8, 16, 32, 64)),
    },
    "cuda": {
        "nodes": (Size(features=500, hidden=500), (1_000, 10_000, 31_000, 100_000, 310_000, 1_000_000)),
        "hidden": (Size(features=500, nodes=16_384), (500, 1000, 2000, 4000, 8000, 16000)),
        "layers": (Size(features=1000, hidden=1000, nodes=50_000), (4, 8, 16, 32, 64)),
    },
}


def exponent(values: list[int], times: list[float]) -> float:
    """Least-squares slope of log time against log value over the larger half."""
    points = [(math.log(value), math.log(time)) for value, time in zip(values, times, strict=True)][-3:]
    x, y = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(SERIES), default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--series", default="nodes,hidden,layers", help="only these")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    series = {}
    for name in args.series.split(","):
        size, values = SERIES[args.device][name]
        rows = []
        for value in values:
            at = Size(**{**vars(size), name: value, "device": args.device, "precision": args.precision})
            rows.extend(bench(at, ("linearized",), args.seconds))
            print(f"{name} {value}: {rows[-1]['ms']:.2f} ms", flush=True)
        slope = exponent(list(values), [row["ms"] for row in rows])
        print(f"epoch time ~ {name}^{slope:.2f}", flush=True)
        series[name] = {"exponent": slope, "rows": rows}
    write(args.out, {"series": series})


if __name__ == "__main__":
    main()
