"""The direction of dependence, as the contracts in pyproject.toml state it."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import lint_imports


def test_imports_go_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    pyproject = Path(__file__).parents[1] / "pyproject.toml"
    code = lint_imports(config_filename=str(pyproject), no_cache=True)
    assert code == 0, capsys.readouterr().out
