"""What goes into the wheel and the source archive, and what a type checker sees of the installed package."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import pdadmm_g

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def test_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(f"pdadmm_g-{pdadmm_g.__version__}.dist-info/entry_points.txt").decode()
    package = ROOT / "src/pdadmm_g"
    expected = {
        f"pdadmm_g/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "pdadmm_g/py.typed" in expected
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert f"pdadmm_g-{pdadmm_g.__version__}.dist-info/licenses/LICENSE" in names
    assert "pdadmm-g = pdadmm_g.__main__:main" in entry_points


def test_source_archive_can_be_tested_and_documented(tmp_path: Path) -> None:
    path = next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with tarfile.open(path) as archive:
        sizes = {member.name.split("/", 1)[1]: member.size for member in archive.getmembers()}
    needed = {
        "Makefile",
        "constraints.txt",
        "docs/index.md",
        "mkdocs.yml",
        "results/depth/figure.png",
        "tests/conftest.py",
    }
    assert needed - set(sizes) == set()
    assert [name for name in sizes if name.startswith(("runs/", "site/", ".venv/"))] == []
    assert max(sizes.values()) <= 2**20


def test_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == pdadmm_g.__version__
    assert citation["license"] == "MIT"
    assert f"## {pdadmm_g.__version__}" in (ROOT / "CHANGELOG.md").read_text()


CONSUMER = """
from pdadmm_g import GAMLP, GAMLPClassifier, GraphAugment, InputError, Status, load_dataset

classifier = GAMLPClassifier(layers=3, activation="relu", stages=(2, 3)).fit(load_dataset("digits"))
model: GAMLP = classifier.model_
status: Status = classifier.status_
advice: str = status.advice
accuracy: float = classifier.score(load_dataset("digits"))
augment = GraphAugment("average", 8)
broken: type[ValueError] = InputError
wrong: int = advice
GAMLPClassifier(activation="swish")
"""


def test_a_type_checker_sees_the_public_names(wheel: Path, tmp_path: Path) -> None:
    """The last two lines are mistakes: a package without type information would let them pass."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "consumer.py").write_text(CONSUMER)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\nmypy_path = site\nfollow_imports = silent\n"
        "[mypy-torch.*,torch_geometric.*,sklearn.*,safetensors.*,numpy.*,scipy.*]\nfollow_imports = skip\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "consumer.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    mistakes = [line.split(":", 2)[1] for line in result.stdout.splitlines() if ": error: " in line]
    last = CONSUMER.count("\n")
    assert mistakes == [str(last - 1), str(last)], result.stdout + result.stderr
