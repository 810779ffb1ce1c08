from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.__main__ import main


@pytest.fixture
def reproduce(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Run an experiment in an empty folder; gives (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code: object = 0
        try:
            main(arguments)
        except SystemExit as caught:
            code = caught.code or 0
        return int(str(code)), *capsys.readouterr()

    return call
