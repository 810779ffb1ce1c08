"""How often, and by how much, the Lagrangian rises when q is quantized too (theory promises descent for p alone).

python -m benchmarks.quantized_descent
"""

from __future__ import annotations

import warnings
from itertools import pairwise

from pdadmm_g import GAMLPClassifier, load_dataset


def main() -> None:
    warnings.filterwarnings("ignore", "the levels lose")
    data = load_dataset("digits")
    print("digits, 10 layers of 100 neurons at once, 200 epochs, rho = 5 nu, float32")
    print(f"{'quantized':<12}{'bits':>5}{'epochs that rise':>18}{'largest rise':>14}{'final residual':>16}{'test':>7}")
    for quantize, bits in (("none", 32), ("p", 8), ("p", 4), ("pq", 16), ("pq", 8), ("pq", 4), ("pq", 2)):
        clf = GAMLPClassifier(
            quantize=quantize, bits=bits if quantize != "none" else None, stages=(10,), epochs=200, patience=None,
            solver="linearized", random_state=0, tolerance=0,
        ).fit(data)  # fmt: skip
        objective = [record["objective"] for record in clf.history_]
        # Rises within rounding of float32 do not count.
        rises = [b / a - 1 for a, b in pairwise(objective) if b > a * (1 + 1e-5)]
        last = clf.history_[-1]
        residual = last["primal_residual"] / last["output_norm"]
        print(
            f"{quantize:<12}{bits:>5}{len(rises):>18}{max(rises, default=0):>14.1%}{residual:>16.1e}"
            f"{clf.score(data):>7.3f}"
        )


if __name__ == "__main__":
    main()
