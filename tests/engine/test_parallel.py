"""Several workers give the same numbers as one, bit for bit, and send exactly what the formula says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from helpers.blobs import weighted, wide, write_job
from pdadmm_g.config import ModelConfig
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
    if solver == "linearized" or name not in ("p8", "pq5", "paper", "bf16 products")
}
WORKERS = (2, 3, 10)


TRAINING, VALIDATION = wide(NODES, 0, torch.float32), wide(60, 1, torch.float32)


def run_in_parallel(folder: Path) -> dict[tuple[str, int], list[dict]]:
    """The histories of all cases for all numbers of workers, in one group of ten processes that writes checkpoints."""
    write_job(folder, CASES, TRAINING, VALIDATION)
    histories = {}

    def on_note(_: int, event: dict) -> None:
        histories[event["case"], event["active"]] = event["history"]

    command = [sys.executable, str(Path(__file__).with_name("identity_job.py")), str(folder)]
    run_workers(command, 10, threads=1, timeout=60, folder=folder, on_note=on_note)
    return histories


@pytest.mark.timeout(300)
def test_any_number_of_workers_computes_the_same_and_sends_what_the_formula_says(tmp_path: Path) -> None:
    histories = run_in_parallel(tmp_path)
    for case in CASES:
        check_bits(case, tmp_path, histories)
        for workers in WORKERS:
            check_bytes(case, workers, histories[case, workers])


def check_bits(case: str, folder: Path, histories: dict[tuple[str, int], list[dict]]) -> None:
    """Every variable, and all that is measured, is what one worker computes, bit for bit."""
    rows = weighted(TRAINING) if case.endswith("-weighted") else TRAINING
    checkpoints = Checkpointing(folder / case / "serial", {}, every=8)
    serial = train(rows, VALIDATION, 4, ModelConfig(**CASES[case]), seed=0, checkpointing=checkpoints)

    def layers(name: str) -> list[dict[str, torch.Tensor]]:
        return [load_file(path) for path in sorted((folder / case / name).glob("epoch-00000008/layer-*"))]

    reference = layers("serial")
    assert len(reference) == 10
    for workers in WORKERS:
        for layer, (actual, expected) in enumerate(zip(layers(str(workers)), reference, strict=True), start=1):
            assert actual.keys() == expected.keys()
            for symbol, tensor in expected.items():
                assert torch.equal(actual[symbol], tensor), f"{case}: {symbol}_{layer} with {workers} workers"
        for ours, theirs in zip(serial.history, histories[case, workers], strict=True):
            for key in ("objective", "risk", "primal_residual", "c_k", "rho", "val_loss", "train_accuracy"):
                assert ours[key] == theirs[key], f"{case}: {key} with {workers} workers"


def check_bytes(case: str, workers: int, history: list[dict]) -> None:
    """nodes x width x bits / 8, rounded up, per boundary, variable and epoch; no header.

    Of quantized variables that is the first message of a stage, behind eight bytes with its size; no other is longer.
    """
    _, p_bits, q_bits = QUANTIZED[case.split("-")[1]]
    for record in history:
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
        values = [NODES * HIDDEN * sum(rank in who for who in senders.values()) for rank in range(10)]
        assert [worker["values_sent"] for worker in record["workers"]] == values
    for seconds in ("wait_seconds", "pack_seconds"):
        assert all(sum(record["workers"][rank][seconds] for record in history) > 0 for rank in range(min(workers, 5)))
