from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from pdadmm_g.engine.watchdog import WorkerLostError


def test_interrupt_outside_training_is_one_line(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["pdadmm_g.cli.demo"], "run_demo", interrupted)
    code, _, err = run("demo")
    assert code == 130
    assert err.split() == ["interrupted"]


def test_help_does_not_import_torch() -> None:
    script = "import sys; sys.argv = ['pdadmm-g', 'train', '--help']\ntry:\n    from pdadmm_g.cli import main; main()\n"
    script += "except SystemExit as end:\n    assert not end.code\nassert 'torch' not in sys.modules\n"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    for name in ("--dataset", "--stages", "--weight-decay", "--quantize", "--levels", "--row-normalize"):
        assert name in result.stdout


def test_help_names_exit_codes_and_examples(run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    text = " ".join(out.split())
    for part in ("0 success", "2 wrong input", "3 numerical failure", "4 a worker was lost", "130 interrupted"):
        assert part in text
    for name in ("train", "evaluate", "predict", "export", "doctor"):
        assert f"pdadmm-g {name} " in run(name, "--help")[1].split("Options")[0].split("\n\n", 1)[1]


def test_a_lost_worker_is_one_line_whatever_the_command(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise WorkerLostError("worker 1, not yet in an epoch, was killed by SIGKILL")

    monkeypatch.setattr(sys.modules["pdadmm_g.cli.demo"], "run_demo", lost)
    code, _, err = run("demo")
    assert code == 4
    assert err == (
        "error: PEER_LOST: worker 1, not yet in an epoch, was killed by SIGKILL; start again with the same command\n"
    )


@pytest.mark.parametrize(
    ("command", "place", "remedy"),
    [
        ("train", "pdadmm_g.runs.run:train_run", ": lower --hidden or --hops or --layers"),
        ("demo", "pdadmm_g.cli.demo:run_demo", ""),
    ],
)
def test_where_memory_is_short_only_options_that_there_are_help(
    run, monkeypatch: pytest.MonkeyPatch, command: str, place: str, remedy: str
) -> None:
    def short(*_: object, **__: object) -> None:
        raise MemoryError

    module, _, function = place.partition(":")
    monkeypatch.setattr(importlib.import_module(module), function, short)
    code, _, err = run(command)
    assert (code, err.splitlines()[-1]) == (2, f"error: not enough memory{remedy}")
