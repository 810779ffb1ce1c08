from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pdadmm_g.admm.state import Quantization
from pdadmm_g.cli import main
from pdadmm_g.engine.precision import mm_bf16, tensor_cores
from pdadmm_g.experiments.bench import METHODS, Size, bench, chain

TINY = Size(nodes=30, features=12, hidden=8, layers=4, classes=3, threads=1)


def test_every_method_is_measured_against_the_floor() -> None:
    rows = list(bench(TINY, seconds=0.0))
    assert [row["method"] for row in rows] == list(METHODS)
    assert rows[0]["x_floor"] == 1
    for row in rows:
        assert row["x_floor"] == pytest.approx(row["ms"] / rows[0]["ms"])
        assert row["repeats"] >= 3
        assert row["fastest_ms"] <= row["ms"] <= row["slowest_ms"]
        assert row["peak_gib"] > 0


def test_the_chain_is_set_up_as_training_does() -> None:
    """More features than nodes are reduced to as many as nodes."""
    wide = chain(Size(nodes=10, features=50, hidden=8, layers=3, classes=3), "linearized", Quantization())
    assert wide.layers[0].W.shape == (8, 10)


def test_the_command_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--nodes", "20", "--features", "5", "--hidden", "4", "--layers", "2", "--threads", "1", "--seconds", "0"]
    with pytest.raises(SystemExit) as done:
        main(["bench", *size, "--methods", "floor,exact", "--out", str(tmp_path / "bench.json")])
    assert done.value.code == 0
    result = json.loads((tmp_path / "bench.json").read_text())
    assert [row["method"] for row in result["rows"]] == ["floor", "exact"]
    assert {"command", "date", "hardware", "versions"} <= set(result)
    assert "exact" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--compile"], ["--no-compile"]])
def test_the_recorded_command_measures_the_same_again(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = []
    monkeypatch.setattr("pdadmm_g.experiments.bench.bench", lambda *order: iter(orders.append(order) or ()))

    def recorded(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            main([*arguments, "--json"])
        return json.loads(capsys.readouterr().out)["command"]

    command = recorded("bench", "--hidden", "4", "--methods", "floor,exact", "--seconds", "0.5", *flags)
    assert command == " ".join(["pdadmm-g bench --hidden 4", *flags, "--methods floor,exact --seconds 0.5"])
    assert recorded(*command.split()[1:]) == command
    assert orders[0] == orders[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "fast"], "--methods must be among"),
        (["--layers", "1"], "--layers must be at least 2"),
        (["--nodes", "0"], "--nodes must be between 1 and 1000000000, got 0"),
        (["--hidden", "99999999999999999999"], "--hidden must be between 1 and 1000000000"),
        (["--device", "nowhere"], "device 'nowhere' is not available"),
    ],
)
def test_mistakes_are_named(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["bench", *options])
    assert done.value.code == 2
    assert message in capsys.readouterr().err


def test_bfloat16_products_round_the_factors_and_not_the_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(20, 3000, generator=generator), torch.randn(3000, 10, generator=generator)
    exact = a.bfloat16().double() @ b.bfloat16().double()
    product = mm_bf16(a, b)
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.double(), exact, rtol=1e-5, atol=1e-4)
    assert float((product.double() - a.double() @ b.double()).abs().max()) > 1e-3


def test_tensor_cores_are_not_for_single_precision_and_only_inside() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    for precision in ("tf32", "fp32", "bf16"):
        with tensor_cores(precision):
            assert torch.backends.cuda.matmul.allow_tf32 == (precision != "fp32")
    assert torch.backends.cuda.matmul.allow_tf32 == before
