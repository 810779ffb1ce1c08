from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from pdadmm_g import GAMLPClassifier
from pdadmm_g.cli.doctor import Check, diagnose

doctor = sys.modules["pdadmm_g.cli.doctor"]  # the name is the command's


@pytest.fixture
def no_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_self_test", lambda: iter(()))


def states(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


@pytest.mark.timeout(120)
def test_all_is_well_here(run, monkeypatch: pytest.MonkeyPatch) -> None:
    # One of the two is enough to know that the line tells the truth.
    monkeypatch.setattr(doctor, "SELF_TESTS", {"self-test, 8 bits": {"quantize": "pq"}})
    code, out, err = run("doctor", "--json")
    report = json.loads(out)
    checks = {check["name"]: check for check in report["checks"]}
    assert {name: check for name, check in checks.items() if check["state"] == "FAILED"} == {}
    assert (code, report["healthy"], err) == (0, True, "")
    assert checks["torch"]["detail"] == torch.__version__
    assert {"python", "numpy", "scikit-learn", "cpu", "gloo", "cache", "self-test, 8 bits"} <= set(checks)
    assert all(check["remedy"] for check in checks.values() if check["state"] == "missing")


def test_other_weights_on_two_workers_are_a_failure(run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = GAMLPClassifier.fit

    def fit(self: GAMLPClassifier, data: object) -> GAMLPClassifier:
        one = GAMLPClassifier(**self.get_params() | {"workers": 1})
        real(one, data)
        if self.workers == 2:
            with torch.no_grad():
                one.model_.linears[2].weight[0, 0] += 1e-7
        return one

    monkeypatch.setattr(GAMLPClassifier, "fit", fit)
    code, out, err = run("doctor")
    assert code == 3
    assert "FAILED   self-test         two workers give other weights than one; remedy: please report" in out
    assert err == "error: failed: self-test, self-test, 8 bits\n"


def test_a_broken_torch_ends_in_lines_and_not_in_a_traceback(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run("doctor")
    assert code == 3
    assert "FAILED   self-test" in out
    assert "remedy: pip install --force-reinstall pdadmm-g" in out
    assert "Traceback" not in out + err


@pytest.mark.usefixtures("no_self_test")
def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PDADMM_G_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("PDADMM_G_DATA", str(tmp_path / "nowhere"))
    found = {check.name: check for check in diagnose()}
    assert found["cache"].state == "FAILED"
    assert "PDADMM_G_CACHE" in found["cache"].remedy
    assert found["data root"].state == "missing"
    monkeypatch.setenv("PDADMM_G_CACHE", str(tmp_path / "new" / "cache"))
    monkeypatch.setenv("PDADMM_G_DATA", str(tmp_path))
    assert {"cache": "ok", "data root": "ok"}.items() <= states(list(diagnose())).items()
    assert not (tmp_path / "new").exists()  # looking changes nothing


@pytest.mark.usefixtures("no_self_test")
def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = ["click>=8.1", "no-such-package>=1", 'nor-this-one>=2; extra == "extra-name"', 'ruff; extra == "dev"']
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: requires)
    found = {check.name: check for check in diagnose()}
    assert found["click"].state == "ok"
    assert found["no-such-package"].state == "FAILED"
    assert found["nor-this-one"].state == "missing"
    assert found["no-such-package"].remedy == "pip install 'no-such-package>=1'"
    assert found["nor-this-one"].remedy == "pip install 'nor-this-one>=2'"
    assert "ruff" not in found
