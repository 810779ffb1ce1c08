from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import BashComplete

from pdadmm_g.cli import cli
from pdadmm_g.cli.completion import DATASETS
from pdadmm_g.cli.export import FORMATS
from pdadmm_g.data.datasets import BENCHMARKS


def complete(*words: str) -> list[str]:
    """What a shell would be offered after these words, the last one incomplete."""
    *before, incomplete = words
    shell = BashComplete(cli, {}, "pdadmm-g", "_PDADMM_G_COMPLETE")
    return [f"{item.type},{item.value}" for item in shell.get_completions(before, incomplete)]


def test_completion_of_commands_choices_and_data_sets() -> None:
    assert complete("do") == ["plain,doctor"]
    assert complete("train", "--activation", "s") == ["plain,sigmoid"]
    assert complete("train", "--levels", "p") == ["plain,paper"]
    assert complete("train", "--out", "ru") == ["dir,ru"]
    assert complete("evaluate", "ru") == ["dir,ru"]
    assert complete("export", "run", "--format", "") == [f"plain,{name}" for name in FORMATS]


def test_bash_asks_and_is_answered_without_loading_torch() -> None:
    words = {"COMP_WORDS": "pdadmm-g train --dataset amazon", "COMP_CWORD": "3"}
    script = "import sys; sys.modules['torch'] = None; from pdadmm_g.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | words | {"_PDADMM_G_COMPLETE": "bash_complete"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.stdout.splitlines() == ["plain,amazon-computers", "plain,amazon-photo", "file,amazon"]
    assert result.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run, shell: str) -> None:
    code, out, _ = run("completion", shell)
    assert code == 0
    assert f"_PDADMM_G_COMPLETE={shell}_complete" in out


def test_names_kept_for_completion_are_those_of_the_library() -> None:
    from pdadmm_g.runs import export

    assert list(DATASETS) == ["digits", *BENCHMARKS]
    assert list(FORMATS) == list(export.FORMATS)
