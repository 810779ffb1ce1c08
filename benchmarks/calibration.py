"""What a temperature fitted on the validation nodes does to the probabilities of the test nodes: a Markdown table.

PDADMM_G_DATA=raw python -m benchmarks.calibration digits cora
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from pdadmm_g import GAMLPClassifier, load_dataset
from pdadmm_g.metrics import metrics
from pdadmm_g.training.finish import inverse_temperature

SEEDS = 3
FIGURES = ("accuracy", "log_loss", "calibration_error")


def figures(name: str, seed: int, **settings: object) -> list[list[float]]:
    """Of the test nodes, without and with the temperature that ``calibrate=True`` would find."""
    data = load_dataset(name)
    clf = GAMLPClassifier(random_state=seed, **settings).fit(data)
    validation, test = (clf._logits(data, mask).double() for mask in (data.val_mask, data.test_mask))
    s = inverse_temperature(validation, data.y[data.val_mask])
    found = [metrics(data.y[data.test_mask], torch.softmax(scale * test, dim=1)) for scale in (1.0, s)]
    return [[float(each[figure] or 0.0) for figure in FIGURES] for each in found]


def main(names: list[str]) -> None:
    print("| graph | nodes without labels | accuracy | log loss | calibrated | calibration error | calibrated |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        for words, settings in (("teach", {}), ("do not", {"unlabelled": 0})):
            mean = np.mean([figures(name, seed, **settings) for seed in range(SEEDS)], axis=0)
            (accuracy, *before), (_, *after) = mean.tolist()
            cells = [f"{value:.3f}" for pair in zip(before, after, strict=True) for value in pair]
            print(f"| {name} | {words} | {accuracy:.3f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["digits", "cora"])
