"""Several workers give the same numbers as one, bit for bit, and send exactly what the formula says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file

from pdadmm_g import GAMLPClassifier, load_dataset
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples
from pdadmm_g.engine.launch import run_workers
from pdadmm_g.training.checkpoint import Checkpointing
from pdadmm_g.training.train import train

NODES, HIDDEN = 40, 12
QUANTIZED = {
    "none": ({}, 32, 32),
    "p8": ({"quantize": "p", "bits": 8}, 8, 32),
    "pq8": ({"quantize": "pq", "bits": 8}, 8, 8),
    "pq4": ({"quantize": "pq", "bits": 4}, 4, 4),
    "pq5": ({"quantize": "pq", "bits": 5}, 5, 5),
    "paper": ({"quantize": "p", "levels": "paper"}, 5, 32),
    "bf16 products": ({"precision": "bf16"}, 32, 32),
    "weighted": ({}, 32, 32),
}
CASES = {
    f"{solver}-{name}": settings
    | {"solver": solver, "layers": 10, "stages": [5, 10], "hidden": HIDDEN, "epochs": 4, "eval_every": 2}
    for solver in ("linearized", "exact")
    for name, (settings, _, _) in QUANTIZED.items()
    if solver == "linearized" or name not in ("pq5", "bf16 products")
}
WORKERS = (2, 3, 4, 10)


def examples(nodes: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 4
    # Activations of several units, so that the paper's integer levels have something to hold on to.
    return Examples(4 * torch.eye(4, 30)[y] + torch.randn(nodes, 30, generator=generator), y)


TRAINING, VALIDATION = examples(NODES, 0), examples(60, 1)
#: The same rows with weights, and with probabilities instead of labels.
WEIGHTED = Examples(
    TRAINING.X, (torch.eye(4)[TRAINING.y] + 0.1) / 1.4, torch.linspace(0.2, 3, NODES)
)  # fmt: skip


@pytest.fixture(scope="module")
def parallel_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, int], list[dict]]]:
    """All cases for all numbers of workers, in one group of ten processes: checkpoints and histories.

    Both processes of the suite may have tests of this module; one does the work and the other waits for it.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "identity"
    with FileLock(f"{folder}.lock"):
        if not (folder / "histories.json").exists():
            _run_in_parallel(folder)
    histories = json.loads((folder / "histories.json").read_text())
    return folder, {(case, active): history for case, active, history in histories}


def _run_in_parallel(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    save_file(
        {
            "X_train": TRAINING.X,
            "y_train": TRAINING.y,
            "X_val": VALIDATION.X,
            "y_val": VALIDATION.y,
            "t_train": WEIGHTED.y,
            "w_train": WEIGHTED.weights,
        },
        str(folder / "data.safetensors"),
    )
    (folder / "cases.json").write_text(json.dumps(CASES))
    histories = []

    def on_note(_: int, event: dict) -> None:
        histories.append((event["case"], event["active"], event["history"]))

    command = [sys.executable, str(Path(__file__).with_name("identity_job.py")), str(folder)]
    run_workers(command, 10, threads=1, timeout=60, folder=folder, on_note=on_note)
    (folder / "histories.json").write_text(json.dumps(histories))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_every_variable_is_the_same_bit_for_bit(parallel_runs, tmp_path: Path, case: str) -> None:
    config = ModelConfig(**CASES[case])
    rows = WEIGHTED if case.endswith("-weighted") else TRAINING
    serial = train(rows, VALIDATION, 4, config, seed=0, checkpointing=Checkpointing(tmp_path, {}, every=8))
    folder, histories = parallel_runs
    reference = [load_file(str(path)) for path in sorted(tmp_path.glob("epoch-00000008/layer-*"))]
    assert len(reference) == 10
    for workers in WORKERS:
        files = sorted((folder / case / str(workers)).glob("epoch-00000008/layer-*"))
        assert len(files) == 10
        for layer, (path, expected) in enumerate(zip(files, reference, strict=True), start=1):
            actual = load_file(str(path))
            assert actual.keys() == expected.keys()
            for symbol, tensor in expected.items():
                assert torch.equal(actual[symbol], tensor), f"{symbol}_{layer} with {workers} workers"
        for ours, theirs in zip(serial.history, histories[case, workers], strict=True):
            for key in ("objective", "risk", "primal_residual", "c_k", "rho", "val_loss", "train_accuracy"):
                assert ours[key] == theirs[key], f"{key} with {workers} workers"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_bytes_on_the_wire_follow_the_formula(parallel_runs, case: str) -> None:
    """nodes x width x bits / 8, rounded up, per boundary, variable and epoch; no header.

    Of quantized variables that is the first message of a stage, behind eight bytes with its size; no other is longer.
    """
    _, p_bits, q_bits = QUANTIZED[case.split("-")[1]]
    _, histories = parallel_runs
    for workers in WORKERS:
        for record in histories[case, workers]:
            used = min(workers, 5 if record["stage"] == 1 else 10)
            senders = {"bytes_p": range(1, used), "bytes_q": range(used - 1)}
            for (name, who), bits in zip(senders.items(), (p_bits, q_bits), strict=True):
                sent = [worker[name] for worker in record["workers"]]
                whole = -(-NODES * HIDDEN * bits // 8) + 8 * (bits < 16)
                assert [rank for rank, size in enumerate(sent) if size] == list(who)
                assert max(sent, default=0) <= whole
                if bits >= 16 or record["epoch"] in (1, 5):
                    assert {sent[rank] for rank in who} <= {whole}
            assert record["bytes_sent"] == sum(w["bytes_p"] + w["bytes_q"] for w in record["workers"])
            values = [
                NODES * HIDDEN * ((rank in senders["bytes_p"]) + (rank in senders["bytes_q"])) for rank in range(10)
            ]
            assert [worker["values_sent"] for worker in record["workers"]] == values


def test_growth_deals_the_layers_anew(parallel_runs) -> None:
    _, histories = parallel_runs
    history = histories["linearized-none", 4]
    assert sum(worker["layers"] for worker in history[0]["workers"]) == 5
    assert sum(worker["layers"] for worker in history[-1]["workers"]) == 10


@pytest.mark.timeout(120)
def test_estimator_with_workers_and_a_plan() -> None:
    data = load_dataset("digits")
    settings = {"layers": 4, "hidden": 20, "epochs": 5, "random_state": 0, "quantize": "pq", "weight_decay": 0.1}
    settings["unlabelled"] = 0
    one = GAMLPClassifier(**settings).fit(data)
    two = GAMLPClassifier(**settings, workers=2, plan=(3, 1)).fit(data)
    assert two.plan_ == (3, 1)
    for a, b in zip(one.model_.parameters(), two.model_.parameters(), strict=True):
        assert torch.equal(a, b)
    assert two.history_[0]["bytes_sent"] == 2 * (8 + 50 * 20)
    assert max(record["bytes_sent"] for record in two.history_) == two.history_[0]["bytes_sent"]
