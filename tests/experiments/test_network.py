from __future__ import annotations

from pathlib import Path

import pytest

from experiments import learning, network
from experiments.learning import CLUSTERS
from experiments.network import RANDOM
from experiments.paced import SENDS
from experiments.results import Results
from experiments.speedup import ADAM, GPIPE
from pdadmm_g.errors import InputError

QUANTIZED = "pdADMM-G-Q, 4 bits"


def row(method: str, chain: int, repeat: int, **figures: object) -> dict:
    return {"dataset": RANDOM, "method": method, "depth": 16, "workers": chain, "shards": 8 // chain,
            "link": "100 Mbit/s", "repeat": repeat, **figures}  # fmt: skip


def curve(method: str, repeat: int, *values: float) -> dict:
    return {"dataset": CLUSTERS, "method": method, "depth": 16, "repeat": repeat, "curve": list(values)}


def times() -> list[dict]:
    rows = [row(ADAM, 1, repeat, seconds=8.0 + repeat, megabytes=100) for repeat in range(3)]
    rows += [row(QUANTIZED, 8, 0, seconds=1.5, megabytes=35) | {"link": link} for link in ("1 Gbit/s", "100 Mbit/s")]
    return [*rows, row(SENDS, 8, 0, mbit_per_second=95.6), row(GPIPE, 8, 0, error="lost")]


def test_what_is_not_reached_has_no_time() -> None:
    curves = [curve(ADAM, 0, 0.5, 0.795, 0.8), curve(ADAM, 1, 0.6, 0.6, 0.7)]
    reached = [curve(QUANTIZED, 0, 0.8, 0.7, 0.7), curve(QUANTIZED, 1, 0.1, 0.1, 0.8)]
    assert learning.epochs_to(curves + reached, ADAM, ADAM) == [2, 3]
    table = network.render([*times(), *curves, *reached])
    assert f"| {QUANTIZED} | 0.800 (0.800 to 0.800) | 2 (1 to 3) | " in table
    assert f"| {ADAM} | 1 x 8 | 2 | 22.5 | - |" in table
    assert f"| {QUANTIZED} | 8 x 1 | 2 | 3 | 3 |" in table
    table = network.render([*times(), *curves, reached[0], curve(QUANTIZED, 1, 0.1, 0.1, 0.2)])
    assert f"| {QUANTIZED} | 8 x 1 | not reached | - | - |" in table


@pytest.mark.timeout(300)
def test_network(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyroute2")
    try:
        network.Network(2).close()
    except InputError as error:
        pytest.skip(str(error))
    cases = network.cases
    some = ("pdADMM-G", QUANTIZED)
    monkeypatch.setattr(network, "cases", lambda *size: [case for case in cases(*size) if case["method"] in some])
    code, out, _ = reproduce("network", "--quick")
    assert code == 0
    folder = Path("results/network-quick")
    assert (folder / "figure.png").exists()
    assert out.startswith("| seconds per epoch | chain x shards | MB per epoch | 100 Mbit/s |")
    assert "Error" not in out
    # Two messages of 200 x 50 values, and headers; quantized, what has changed of them, packed.
    rows = Results(folder, "test").rows()
    chain = {row["method"]: row["megabytes"] for row in rows if row.get("workers") == 2 and "megabytes" in row}
    assert chain["pdADMM-G"] >= 0.08
    assert 0 < chain[QUANTIZED] < 0.3 * chain["pdADMM-G"]
    # What is there is not measured again.
    monkeypatch.setattr(network, "Network", None)
    monkeypatch.setattr(network, "measure", None)
    assert reproduce("network", "--quick")[1] == out
