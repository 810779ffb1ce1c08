"""Every experiment as a command, at its smallest, on the embedded digits."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest

from pdadmm_g.cli import main
from pdadmm_g.engine.plan import Plan
from pdadmm_g.engine.team import Team
from pdadmm_g.experiments import EXPERIMENTS, Request, cells, communication, depth, speedup, standins
from pdadmm_g.experiments import homophily as graphs
from pdadmm_g.experiments.convergence import rises
from pdadmm_g.experiments.results import Results
from pdadmm_g.experiments.tables import SEEDS, best_of_paper, render_paper_table
from pdadmm_g.model import GAMLP
from pdadmm_g.status import Status
from pdadmm_g.training import gradient as baselines
from pdadmm_g.training.stage import Stage
from pdadmm_g.training.train import TrainingResult


@pytest.fixture
def reproduce(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["reproduce", *arguments])
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return call


@pytest.mark.parametrize(
    ("experiment", "contents"),
    [
        ("convergence", ["figure.png", "results.jsonl", "table.md"]),
        ("depth", ["figure.png", "results.jsonl", "table.md"]),
        ("communication", ["results.jsonl", "table.md"]),
    ],
)
def test_experiments_leave_rows_a_table_and_figures(
    reproduce, monkeypatch: pytest.MonkeyPatch, experiment: str, contents: list[str]
) -> None:
    short = {method: settings | {"epochs": 3} for method, settings in depth.METHODS.items()}
    monkeypatch.setattr(depth, "METHODS", short)
    cases = {case: communication.CASES[case] for case in ("nothing", "p and q at 8 bits")}
    monkeypatch.setattr(communication, "CASES", cases)
    code, out, err = reproduce(experiment, "--quick", "--datasets", "digits")
    assert code == 0
    folder = Path("results") / f"{experiment}-quick"
    assert sorted(path.name for path in folder.glob("[!.]*")) == contents
    table = (folder / "table.md").read_text()
    assert table in out
    assert table.startswith("|")
    # One line of progress per row of the experiment, which counts to the end.
    lines = [line for line in err.splitlines() if "digits" in line]
    assert [line.split()[0] for line in lines] == [f"{done}/{len(lines)}" for done in range(1, len(lines) + 1)]
    before = (folder / "results.jsonl").read_bytes()
    assert before.count(b"\n") == len(lines)
    assert reproduce(experiment, "--quick", "--datasets", "digits")[1] == out
    assert before == (folder / "results.jsonl").read_bytes()


def test_speedup(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = reproduce("speedup-layers", "--quick", "--workers", "2")
    assert code == 0
    assert [line.split()[0] for line in err.splitlines()] == ["1/2", "2/2"]
    assert out.startswith("| seconds per epoch | layers | runs | 1 worker | 2 workers |")
    assert "| pdADMM-G | 8 | 1 | " in out
    results = Results(Path("results/speedup-layers-quick"), "test")
    assert [row["workers"] for row in results.rows()] == [1, 2]
    # What is there is not measured again; what failed is.
    monkeypatch.setattr(speedup, "run_workers", interrupt)
    assert reproduce("speedup-layers", "--quick", "--workers", "2")[1] == out
    results.put(results.rows()[1] | {"error": "lost"})
    assert reproduce("speedup-layers", "--quick", "--workers", "2")[0] == 130


def test_speedups_are_over_one_worker_of_the_same_run() -> None:
    def row(method: str, workers: int, repeat: int, seconds: float) -> dict:
        return {"method": method, "depth": 16, "workers": workers, "repeat": repeat, "seconds": seconds}

    rows = [row("pdADMM-G", 1, 0, 4.0), row("pdADMM-G", 2, 0, 2.0), row("pdADMM-G", 1, 1, 9.0),
            row("pdADMM-G", 2, 1, 3.0), row(speedup.ADAM, 1, 0, 6.0), row(speedup.GPIPE, 2, 0, 4.0)]  # fmt: skip
    table = speedup.render([*rows, row("pdADMM-G-Q", 2, 0, 1.0), {"method": "pdADMM-G-Q", "error": "lost"}])
    assert "| pdADMM-G | 16 | 2 | 6.5 | 2.5 (2.5 x, 2.0 to 3.0) |" in table
    # Nothing is pipelined on one worker: that is Adam. Of pdADMM-G-Q there is no such run.
    assert "| Adam, GPipe | 16 | 1 | - | 4 (1.5 x) |" in table
    assert "| pdADMM-G-Q | 16 | 1 | - | 1 |" in table
    assert table.endswith("\n\npdADMM-G-Q: lost\n")


def test_depth_runs_the_seeds_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def measured(dataset, method, layers, seed, data_root):
        made.append((method, seed))
        return {"seed": seed, "test_accuracy": 0.5}

    monkeypatch.setattr(depth, "_run", measured)

    def run(*seeds: int) -> list[dict]:
        made.clear()
        results = Results(tmp_path, f"{len(seeds)} seeds")
        return list(depth.run(results, datasets=("digits",), depths=(2,), seeds=seeds, data_root=None))

    run(0)
    rows = run(0, 1, 2)
    assert made == [(method, seed) for method in depth.METHODS for seed in (1, 2)]
    assert [run["seed"] for run in rows[0]["runs"]] == [0, 1, 2]
    assert {row["command"] for row in rows} == {"3 seeds"}
    assert run(1, 2) == rows
    assert made == []


def test_an_interrupt_leaves_the_seeds_of_a_depth_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(dataset, method, layers, seed, data_root):
        if seed == 1:
            raise KeyboardInterrupt
        return {"seed": seed, "test_accuracy": 0.5}

    monkeypatch.setattr(depth, "_run", measured)
    with pytest.raises(KeyboardInterrupt):
        list(depth.run(Results(tmp_path, "test"), datasets=("digits",), depths=(2,), seeds=(0, 1), data_root=None))
    (row,) = Results(tmp_path, "test").rows()
    assert [run["seed"] for run in row["runs"]] == [0]


def test_communication_is_measured_with_the_seeds_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def trained(*_: object, seed: int, **__: object) -> TrainingResult:
        made.append(seed)
        return TrainingResult(GAMLP([64, 8, 10]), [{"seconds": 1.0, "bytes_sent": 1}], Status.MAX_EPOCHS, Plan((2,)))

    monkeypatch.setattr(communication, "fit", trained)
    monkeypatch.setattr(communication, "CASES", {"nothing": {}})

    def run(*seeds: int) -> list[dict]:
        made.clear()
        results = Results(tmp_path, f"{len(seeds)} seeds")
        return list(communication.run(results, datasets=("digits",), seeds=seeds, data_root=None))

    run(0)
    rows = run(0, 1, 2)
    assert made == [0, 1, 2]
    assert [(row["seeds"], row["command"]) for row in rows] == [([0, 1, 2], "3 seeds")]
    assert Results(tmp_path, "test").rows() == rows
    assert run(1, 2) == rows
    assert made == []


def test_the_share_of_bytes_saved_is_that_of_each_data_set() -> None:
    def rows(dataset: str, plain: int, quantized: int) -> list[dict]:
        figures = {"dataset": dataset, "test_accuracy": 0.5, "spread": None}
        return [
            {"method": "nothing", "bytes_per_epoch": plain, **figures},
            {"method": "p at 8 bits", "bytes_per_epoch": quantized, **figures},
        ]

    same = communication.render([*rows("citeseer", 100, 75), *rows("pubmed", 200, 150)])
    assert "| p at 8 bits | 25.0% | 0.00 MB, 0.500 | 0.00 MB, 0.500 |" in same
    different = communication.render([*rows("citeseer", 100, 75), *rows("pubmed", 200, 100)])
    assert "| p at 8 bits | 25.0%, 50.0% | " in different


def test_the_recorded_command_asks_for_the_same_again(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def record(name: str, request: Request, on_row) -> str:
        requests.append(request)
        return ""

    monkeypatch.setattr("pdadmm_g.experiments.reproduce", record)
    options = ["--datasets", "my graph.npz,cora", "--seeds", "0,1", "--workers", "2", "--device", "cpu", "--quick"]
    assert reproduce("depth", *options, "--out", "here", "--data-root", "raw", "--quiet")[0] == 0
    command = requests[0].command
    assert command == (
        "pdadmm-g reproduce depth --datasets 'my graph.npz,cora' --seeds 0,1 --workers 2 --device cpu --quick"
    )
    # Where the files are is a matter of each machine.
    assert reproduce(*shlex.split(command)[2:], "--out", "here", "--data-root", "raw")[0] == 0
    assert requests[0] == requests[1]


def test_all_experiments_record_a_command_each(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []
    monkeypatch.setattr("pdadmm_g.experiments.reproduce", lambda _, request, __: str(commands.append(request.command)))
    assert reproduce("all", "--workers", "2")[0] == 0
    assert commands == [f"pdadmm-g reproduce {name} --workers 2" for name in EXPERIMENTS]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("experiment", ["table-100", "convergence", "depth"])
def test_an_interrupted_run_ends_the_command_and_is_no_result(
    reproduce, monkeypatch: pytest.MonkeyPatch, experiment: str
) -> None:
    monkeypatch.setattr(Stage, "_epoch", interrupt)
    code, out, err = reproduce(experiment, "--quick", "--datasets", "digits")
    assert (code, out, err.splitlines()[-1]) == (130, "", "interrupted")
    assert list(Path("results", f"{experiment}-quick").iterdir()) == []


def test_an_interrupted_gradient_method_is_no_result(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = {name: settings for name, settings in depth.METHODS.items() if "Adam" in name}
    monkeypatch.setattr(depth, "METHODS", methods)
    monkeypatch.setattr(baselines, "_evaluate", interrupt)
    assert reproduce("depth", "--quick", "--datasets", "digits")[0] == 130
    assert list(Path("results/depth-quick").iterdir()) == []


def test_an_interrupted_search_ends_the_command_and_writes_nothing(reproduce, monkeypatch) -> None:
    monkeypatch.setattr(Stage, "_epoch", interrupt)
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--dataset", "digits", "--budget", "2", "--layers", "2", "--weight-decay", "0.5"])
    assert caught.value.code == 130
    assert list(Path().iterdir()) == []


def test_an_interrupted_search_leaves_the_best_so_far(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    def second_trial(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pdadmm_g.experiments.tune._draw", second_trial)
    options = ["--layers", "2", "--weight-decay", "0.5", "--epochs", "2", "--augment", "none", "--hidden", "8"]
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--dataset", "digits", "--budget", "2", *options])
    assert caught.value.code == 130
    assert "hidden: 8\n" in Path("best.yaml").read_text()


def test_a_search_that_could_not_be_written_is_not_begun(reproduce, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--dataset", "digits", "--out", "no/such/best.yaml"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("error: no/such/best.yaml: cannot write: no/such is no folder")


def test_interrupted_workers_end_the_command_and_are_no_result(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> TrainingResult:
        return TrainingResult(GAMLP([64, 8, 10]), [{"seconds": 1.0, "bytes_sent": 1}], Status.INTERRUPTED, Plan((2,)))

    monkeypatch.setattr(communication, "fit", stopped)
    assert reproduce("communication", "--quick", "--datasets", "digits")[0] == 130
    assert list(Path("results/communication-quick").iterdir()) == []


def test_processes_of_cells_leave_the_interrupt_to_the_command(reproduce) -> None:
    """A terminal interrupts all of them, and one that raised would print where it was."""
    with cells.process_pool(1) as pool:
        assert pool.apply(signal.getsignal, (signal.SIGINT,)) == signal.SIG_IGN


class StoppedTeam(Team):
    def stop_requested(self) -> bool:
        return True


def test_an_interrupted_measurement_ends_the_command_and_is_no_result(
    reproduce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers measure with what was left undone; the first one says so and the command ends."""
    size = {"nodes": 20, "features": 5, "hidden": 4, "epochs": 1, "warm_up": 1}
    order = {"size": size, "cases": [(2, "pdADMM-G")]}

    def run_workers(*_: object, on_note, **__: object) -> None:
        for row in speedup.measured(StoppedTeam(), order):
            on_note(0, row)

    monkeypatch.setattr(speedup, "run_workers", run_workers)
    assert reproduce("speedup-layers", "--quick", "--workers", "2")[0] == 130
    assert list(Path("results/speedup-layers-quick").iterdir()) == []


def test_help_names_every_experiment(reproduce) -> None:
    text = re.sub(r"(?<=-)\n *", "", reproduce("--help")[1])  # lines break within a name, too
    listed = " ".join(text.split()).split("EXPERIMENT is one of ")[1].split(".")[0]
    assert listed.split(", ") == [*EXPERIMENTS, "all"]


def test_unknown_experiment(reproduce) -> None:
    code, _, err = reproduce("table-7")
    assert code == 2
    assert err.count("\n") == 1


def test_tables_show_spread_failures_and_the_paper() -> None:
    runs = [{"status": "MAX_EPOCHS"}, {"status": "NON_FINITE"}]
    table = render_paper_table(100, [{"method": "GD", "dataset": "cora", "mean": 0.5, "std": 0.01, "runs": runs}])
    assert "| GD | 0.500 ± 0.010 (1 failed) [0.730] |" in table
    assert best_of_paper("cora") == 0.788
    assert SEEDS == (0, 100, 200, 300, 400)


def test_rises() -> None:
    assert rises([4.0, 2.0, 2.5, 1.0]) == (1, 0.25)
    assert rises([3.0, 2.0]) == (0, 0.0)


def test_stand_ins_are_class_informative_and_leave_the_source_alone(tmp_path: Path, monkeypatch) -> None:
    raw = tmp_path / "data" / "flickr" / "raw"
    raw.mkdir(parents=True)
    labels = {str(node): node % 3 for node in range(90)}
    (raw / "class_map.json").write_text(json.dumps(labels))
    monkeypatch.setitem(standins.STANDINS, "flickr", ("flickr", 20, 8.0))
    root = standins.make("flickr", tmp_path / "data", tmp_path / "made")
    features = np.load(root / "flickr" / "raw" / "feats.npy")
    assert features.shape == (90, 20)
    centres = np.stack([features[label::3].mean(0) for label in range(3)])
    nearest = ((features[:, None] - centres) ** 2).sum(-1).argmin(1)
    assert (nearest == np.arange(90) % 3).mean() > 0.95
    assert sorted(path.name for path in raw.iterdir()) == ["class_map.json"]


@pytest.mark.parametrize("name", list(standins.STANDINS))
@pytest.mark.parametrize("raw_is_a_link", [False, True])
def test_stand_ins_never_touch_real_features(tmp_path: Path, name: str, raw_is_a_link: bool) -> None:
    folder = tmp_path / "data" / standins.STANDINS[name][0]
    raw = tmp_path / "elsewhere" if raw_is_a_link else folder / "raw"
    raw.mkdir(parents=True)
    if raw_is_a_link:
        folder.mkdir(parents=True)
        (folder / "raw").symlink_to("../../elsewhere")
    (raw / "class_map.json").write_text(json.dumps({str(node): node % 2 for node in range(6)}))
    (raw / "node-label.csv.gz").write_bytes(gzip.compress(b"0\n1\n" * 3))
    (raw / standins.FEATURES[name]).write_text("real features")
    before = {path.name: path.read_bytes() for path in raw.iterdir()}
    for _ in range(2):
        made = standins.make(name, tmp_path / "data", tmp_path / "made") / folder.name / "raw"
        assert {path.name: path.read_bytes() for path in raw.iterdir()} == before
    assert {path.name for path in made.iterdir()} == set(before)
    assert (made / standins.FEATURES[name]).read_bytes() != b"real features"


@pytest.mark.parametrize("homophily", [0.0, 0.4, 1.0])
def test_made_graphs_have_the_homophily_they_are_named_after(homophily: float) -> None:
    arrays = graphs.make(homophily)
    source, target = arrays["edge_index"]
    assert (arrays["y"][source] == arrays["y"][target]).mean() == pytest.approx(homophily, abs=0.02)
    assert (np.bincount(arrays["y"][arrays["train_mask"]]) == 20).all()
    nodes = np.concatenate([arrays[mask] for mask in ("train_mask", "val_mask", "test_mask")])
    assert len(np.unique(nodes)) == 100 + 500 + 1000


def test_tune_never_sees_the_test_nodes(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(
            ["tune", "--dataset", "digits", "--budget", "2", "--layers", "2", "--epochs", "5", "--weight-decay", "0.5"]
        )
    assert not caught.value.code
    out, err = capsys.readouterr()
    assert out == "best settings written to best.yaml; next: pdadmm-g train --config best.yaml\n"
    assert "trial 2/2: validation" in err
    assert "weight_decay" not in err
    from pdadmm_g.config import RunConfig

    config = RunConfig.load("best.yaml")
    assert (config.layers, config.weight_decay, config.dataset) == (2, 0.5, "digits")
