"""The direction of dependence, as the contracts in pyproject.toml state it; what folders say is in them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]


def test_imports_go_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_folders_say_what_is_in_them() -> None:
    """The docstring of a folder with a list of its modules names all of them, and no other."""
    for folder in ("admm", "engine", "graph", "runs", "training"):
        path = ROOT / "src" / "pdadmm_g" / folder
        docstring = ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or ""
        named = {line.split("``")[1] for line in docstring.splitlines() if line.startswith("``")}
        modules = {item.stem for item in path.iterdir() if item.suffix == ".py" or (item / "__init__.py").is_file()}
        assert named == modules - {"__init__"}, folder
