from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import pdadmm_g.report.page
from pdadmm_g.cli import main
from pdadmm_g.config import RunConfig
from pdadmm_g.errors import InputError
from pdadmm_g.report.collect import MAX_BARS, MAX_POINTS, is_number, names_of, read_run, read_runs, thin
from pdadmm_g.report.page import SCRIPT, embedded, joined_script, render
from pdadmm_g.report.png import draw_figures
from pdadmm_g.runs.scoring import confusion, worker_totals
from pdadmm_g.runs.train_run import train_run

EVIL = "</script><img src=x onerror=document.title='owned'>&<!--"
SUMMARY = {
    "status": "EARLY_STOPPED", "advice": "Fine.", "test_accuracy": 0.75, "val_accuracy": 0.7, "train_accuracy": 1.0,
    "dataset": "digits", "seed": 0, "method": "pdadmm-g", "layers": 5, "parameters": 1234, "epochs": 40, "seconds": 0.4,
    "bytes_sent": 4000, "versions": {"torch": "2"},
    "confusion": {"nodes": "test", "classes": ["cat", EVIL], "counts": [[3, 1], [0, 0]]},
}  # fmt: skip


def record(epoch: int, stage: int, workers: int, **changes: Any) -> dict[str, Any]:
    evaluated = epoch % 2 == 0
    layers = [1] * workers if stage == 1 else [*[2] * (workers - 1), 5 - 2 * (workers - 1)]
    return {
        "stage": stage, "epoch": epoch, "objective": 100 / epoch, "risk": 50 / epoch,
        "primal_residual": 1 / epoch, "dual_residual": 2 / epoch, "rho": 5.0,
        "train_loss": 1 / epoch if evaluated else None, "train_accuracy": 1 - 0.5 / epoch if evaluated else None,
        "val_loss": 1 / epoch if evaluated else None, "val_accuracy": 0.8 - 0.5 / epoch if evaluated else None,
        "seconds": 0.01, "bytes_sent": 100,
        "workers": [
            {"layers": count, "compute_seconds": 0.006, "wait_seconds": 0.003, "pack_seconds": 0.001,
             "bytes_p": 50 * (rank > 0), "bytes_q": 50 * (rank + 1 < workers)}
            for rank, count in enumerate(layers)
        ],
    } | changes  # fmt: skip


def write_run(
    path: Path, *, epochs: int = 40, workers: int = 2, summary: dict[str, Any] | None = SUMMARY, tail: str = "",
    config: str = "method: pdadmm-g\ndataset: digits\nlayers: 5\nstages: [2, 5]\nrho: 5.0\n",
) -> Path:  # fmt: skip
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(config)
    records = [record(epoch, 1 if epoch <= epochs // 2 else 2, workers) for epoch in range(1, epochs + 1)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in records) + tail)
    if summary is not None:
        (path / "summary.json").write_text(json.dumps(summary))
    return path


def report(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["report", *map(str, arguments)])
    return int(caught.value.code or 0)


# --------------------------------------------------------------------------------------------------- reading runs


def test_thinning_keeps_ends_and_extremes() -> None:
    values = [float(i % 7) for i in range(10_000)]
    values[4321], values[8765] = 99.0, -99.0
    epochs, kept = thin(range(1, 10_001), values)
    assert len(kept) <= MAX_POINTS
    assert (epochs[0], epochs[-1]) == (1, 10_000)
    assert epochs == sorted(set(epochs))
    assert all(values[epoch - 1] == value for epoch, value in zip(epochs, kept, strict=True))
    assert {99.0, -99.0} <= set(kept)
    assert thin([1, 2], [3.0, 4.0]) == ([1, 2], [3.0, 4.0])


def test_a_run_as_record(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"), "run")
    assert run["stages"] == [
        {"epoch": 1, "depth": 2, "workers": [1, 1]},
        {"epoch": 21, "depth": 5, "workers": [2, 3]},
    ]
    assert run["series"]["val_accuracy"]["epoch"] == list(range(2, 41, 2))
    assert run["series"]["objective"]["value"][:2] == [100.0, 50.0]
    assert run["clock"]["seconds"][-1] == pytest.approx(0.4)
    assert run["timeline"]["workers"][1]["bytes_p"] == [50.0] * 40
    assert run["changed"] == ["layers", "stages"]
    assert (run["status"], run["failed"]) == ("EARLY_STOPPED", False)


def test_timeline_averages_per_epoch_over_stretches(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", epochs=1)
    lines = [json.dumps(record(epoch, 1, 1 if epoch <= 100 else 3)) for epoch in range(1, 201)]
    (path / "metrics.jsonl").write_text("\n".join(lines))
    timeline = read_run(path, "run")["timeline"]
    assert len(timeline["edges"]) == MAX_BARS + 1
    assert (timeline["edges"][0], timeline["edges"][-1]) == (0, 200)
    first, _, third = timeline["workers"]
    assert first["compute_seconds"] == [0.006] * MAX_BARS
    assert (third["compute_seconds"][0], third["compute_seconds"][-1]) == (0.0, 0.006)


def test_unfinished_broken_and_lost_runs(tmp_path: Path) -> None:
    going = read_run(write_run(tmp_path / "going", summary=None, tail='{"stage": 2, "ep'), "going")
    assert (going["status"], going["facts"]["epochs"], going["facts"]["bytes_sent"]) == ("UNFINISHED", 40, 4000)
    lost = {"status": "PEER_LOST", "advice": "Go on.", "message": "worker 1 is gone"}
    run = read_run(write_run(tmp_path / "lost", summary=lost), "lost")
    assert (run["failed"], run["advice"], run["confusion"]) == (True, "worker 1 is gone. Go on.", None)
    path = write_run(tmp_path / "nan", summary={"status": "NON_FINITE", "test_accuracy": float("nan")})
    with (path / "metrics.jsonl").open("a") as file:
        print(json.dumps(record(41, 2, 2, objective=None, dual_residual=None)), file=file)
    run = read_run(path, "nan")
    assert (run["failed"], run["facts"]["test_accuracy"]) == (True, None)
    assert run["series"]["objective"]["epoch"][-1] == 40
    assert run["series"]["rho"]["epoch"][-1] == 41
    nothing = read_run(write_run(tmp_path / "nothing", epochs=0, summary={"status": "INTERRUPTED"}), "nothing")
    assert (nothing["stages"], nothing["timeline"], nothing["series"]["objective"]) == ([], None, None)
    assert "INTERRUPTED" in render([going, run, nothing])


def test_methods_without_workers(tmp_path: Path) -> None:
    for method, depth in (("adam", 5), ("sgc", 1), ("sign", 2)):
        path = write_run(tmp_path / method, config=f"method: {method}\nlayers: 5\nstages: [5]\n")
        (path / "metrics.jsonl").write_text(json.dumps(record(1, 1, 0, rho=None)))
        run = read_run(path, method)
        assert run["stages"] == [{"epoch": 1, "depth": depth, "workers": []}]
        assert (run["timeline"], run["series"]["rho"]) == (None, None)


def test_names_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    assert names_of([tmp_path / "a/run", tmp_path / "b/run", tmp_path / "c"]) == ["a/run", "b/run", "c"]


# ---------------------------------------------------------------------------------------------------- the command


def test_command_writes_page_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("one $x"), epochs=4)
    write_run(Path("two"), epochs=4, summary=None)
    assert report("one $x", "two") == 0
    assert capsys.readouterr().out == "report of 2 runs written to report.html\n"
    assert Path("report.html").read_text().startswith("<!doctype html>")
    assert report("one $x", "--png", "figures") == 0
    expected = "report of 1 run written to one $x/report.html\n9 figures written to figures\n"
    assert capsys.readouterr().out == expected
    assert sorted(path.stem for path in Path("figures").iterdir()) == sorted(ALL_FIGURES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in Path("figures").iterdir())


def test_figures_of_several_runs(tmp_path: Path) -> None:
    figures = draw_figures(read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b $", summary=None)]))
    assert set(figures) == {
        "accuracy", "loss", "objective", "residuals", "rho", "classes",
        "workers-1-a", "plan-1-a", "confusion-1-a", "workers-2-b-", "plan-2-b-",
    }  # fmt: skip
    (axis,) = figures["objective"].axes
    assert [line.get_label() for line in axis.lines[:4]] == [
        "a, objective", "a, risk", r"b \$, objective", r"b \$, risk",
    ]  # fmt: skip
    assert axis.get_yscale() == "log"


def test_wrong_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_run(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    bad = write_run(tmp_path / "bad", epochs=3)
    lines = (bad / "metrics.jsonl").read_text().splitlines()
    (bad / "metrics.jsonl").write_text("\n".join([lines[0], "[]", lines[2]]))
    for path, message in (
        (tmp_path / "missing", "no such run folder"),
        (tmp_path / "empty", "not a run folder: it has no config.yaml"),
        (bad, "metrics.jsonl: line 2 is not a record of an epoch"),
    ):
        assert report(good, path, "--out", tmp_path / "page.html") == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert message in error
        assert error.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


HUGE = "9" * 400
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metrics.jsonl", json.dumps(record(1, 1, 1)).replace("0.01", HUGE), "line 1 is not a record of an epoch"),
        ("metrics.jsonl", f'{{"stage": 1, "epoch": {HUGE}}}', "line 1 is not a record of an epoch"),
        ("metrics.jsonl", f'{{"stage": 1, "epoch": 1, "workers": {DEEP}}}', "line 1 is not a record of an epoch"),
        ("metrics.jsonl", json.dumps(record(1, -5, 1)), "line 1 is not a record of an epoch"),
        ("metrics.jsonl", json.dumps(record(-1, 1, 1)), "line 1 is not a record of an epoch"),
        ("summary.json", json.dumps(SUMMARY).replace("0.75", HUGE), "cannot read the summary: a number of 400 digits"),
        ("summary.json", f'{{"status": {DEEP}}}', "cannot read the summary: nested too deeply"),
        ("config.yaml", "stages: &a [*a]", "setting 'stages' must be a value or a list of numbers"),
        ("config.yaml", "stages: [{}]", "setting 'stages' must be a value or a list of numbers"),
        ("config.yaml", "layers: 2026-01-01", "setting 'layers' must be a value or a list of numbers"),
        ("config.yaml", f"seed: 0x{'f' * 5000}", "setting 'seed' must be a value or a list of numbers"),
    ],
    ids=[
        "large seconds", "large epoch", "deep metrics", "stage below 1", "epoch below 1", "large accuracy",
        "deep summary", "list in itself", "mapping in a list", "date", "large seed",
    ],
)  # fmt: skip
def test_hostile_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, message: str) -> None:
    path = write_run(tmp_path / "run", epochs=2)
    (path / file).write_text(text + "\n")
    assert report(path) == 2
    error = capsys.readouterr().err
    assert f"{file}: {message}" in error
    assert error.count("\n") == 1


def test_a_summary_that_never_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(tmp_path / "run", summary=None)
    os.mkfifo(path / "summary.json")
    assert report(path) == 2
    assert "summary.json: cannot read the summary: not a regular file" in capsys.readouterr().err


def test_numbers_at_the_edge_and_odd_values_are_drawn(tmp_path: Path) -> None:
    """Nothing that a number or another value may be breaks the page or the figures: what is not sound is left out."""
    odd: list[Any] = [1e308, -1e308, 10**299, 2**53, 0, -1, True, float("nan"), float("inf"), "\ud800", None, [], {}]
    path = write_run(tmp_path / "run", config="layers: true\nstages: [.inf, -3]\nmethod: .nan\nhops: ~\n")
    names = [name for name in record(1, 1, 2) if name not in ("stage", "epoch", "workers")]
    lines = []
    for epoch, value in enumerate([odd[0], odd[0], *odd], start=1):
        entry = record(epoch, epoch, 2) | dict.fromkeys(names, value)
        entry["workers"] = [value, dict.fromkeys(entry["workers"][0], value), {"layers": value}]
        lines.append(json.dumps(entry))
    (path / "metrics.jsonl").write_text("\n".join(lines))
    for value in odd:
        summary = dict.fromkeys(SUMMARY, value) | {"versions": {"torch": value}}
        summary["confusion"] = {"nodes": value, "classes": [value, "b"], "counts": [[value, 1], [value, value]]}
        (path / "summary.json").write_text(json.dumps(summary))
        assert "NaN" not in render([read_run(path, "run")])
    summary["confusion"] = {"nodes": "\ud800", "classes": odd, "counts": [[2**53] * len(odd)] * len(odd)}
    (path / "summary.json").write_text(json.dumps(summary))
    figures = draw_figures([read_run(path, "run")])
    assert sorted(figures) == sorted(ALL_FIGURES)
    for canvas in figures.values():
        canvas.savefig(os.devnull, format="png", dpi=30)


@pytest.mark.parametrize("value", [0, -3, 0.5, 1e308, 10**308])
def test_numbers(value: float) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, None, "1", [1], float("nan"), float("inf"), 1.1e308, 10**309, -(10**400)])
def test_no_numbers(value: Any) -> None:
    assert not is_number(value)


def test_figures_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert report(write_run(tmp_path / "run"), "--png", tmp_path / "figures") == 2
    assert "pip install 'pdadmm-g[figures]'" in capsys.readouterr().err
    assert not (tmp_path / "run/report.html").exists()


def test_long_runs_of_many_workers_stay_small(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", epochs=1)
    lines = [json.dumps(record(epoch, 1, 12)) for epoch in range(1, 2001)]
    (path / "metrics.jsonl").write_text("\n".join(lines))
    assert len(render([read_run(path, "run")])) < 1_000_000


def test_data_cannot_leave_its_element(tmp_path: Path) -> None:
    text = embedded({"name": EVIL, "lines": "\u2028"})
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == {"name": EVIL, "lines": "\u2028"}
    run = read_run(write_run(tmp_path / "run"), EVIL)
    assert "<img" not in render([run])
    assert not re.search(r"https?://(?!www\.w3\.org/)", render([run]))


def test_every_piece_of_the_script_is_joined_and_no_name_given_twice() -> None:
    """A second function of the same name would silently take the place of the first."""
    folder = Path(pdadmm_g.report.page.__file__).with_name("assets")
    assert sorted(SCRIPT) == sorted(path.stem for path in folder.glob("*.js"))
    names = re.findall(r"^(?:const|let|(?:async )?function) (\w+)", joined_script(), re.MULTILINE)
    assert len(names) > 50
    assert {name for name in names if names.count(name) > 1} == set()


def test_figures_of_runs_without_anything_to_draw(tmp_path: Path) -> None:
    assert draw_figures(read_runs([write_run(tmp_path / "run", epochs=0, summary=None)])) == {}


# -------------------------------------------------------------------------------------- what training writes for it


SMALL: dict[str, Any] = {"layers": 3, "hidden": 8, "epochs": 4, "augment": "average", "weight_decay": 0.1}


@pytest.fixture
def graph_file(tmp_path: Path, tiny_graph: Data) -> Path:
    path = tmp_path / "graph.npz"
    np.savez(path, **{name: value.numpy() for name, value in tiny_graph.to_dict().items()})
    return path


def test_confusion_of_test_nodes_else_of_validation_nodes(tiny_graph: Data) -> None:
    predicted = torch.zeros(20, dtype=torch.int64)
    classes = np.array([0, 1])
    assert confusion(tiny_graph, predicted, classes) == {
        "nodes": "test", "classes": [0, 1], "counts": [[4, 0], [4, 0]],
    }  # fmt: skip
    tiny_graph.y[19] = 5  # a class that training never saw
    seen = confusion(tiny_graph, predicted, classes)
    assert seen is not None
    assert (seen["classes"], seen["counts"]) == ([0, 1, 5], [[4, 0, 0], [3, 0, 0], [1, 0, 0]])
    del tiny_graph.test_mask
    assert confusion(tiny_graph, predicted, classes) == {
        "nodes": "val", "classes": [0, 1], "counts": [[3, 0], [3, 0]],
    }  # fmt: skip
    del tiny_graph.val_mask
    assert confusion(tiny_graph, predicted, classes) is None


def test_every_method_finishes_its_run(tmp_path: Path, graph_file: Path) -> None:
    for method in ("pdadmm-g", "adam"):
        out = tmp_path / method
        config = RunConfig(dataset=str(graph_file), out=str(out), method=method, **SMALL)
        summary = train_run(config)
        assert json.loads((out / "summary.json").read_text()) == summary
        assert [worker["layers"] for worker in summary["workers"]] == ([3] if method == "pdadmm-g" else [])
        counts = np.array(summary["confusion"]["counts"])
        assert counts.sum() == 8
        assert np.trace(counts) == pytest.approx(8 * summary["test_accuracy"])
        assert '"classes": [ 0, 1 ]' in (out / "summary.json").read_text()
        assert read_run(out, method)["confusion"]["classes"] == ["0", "1"]


def test_totals_of_a_run_resumed_with_more_workers() -> None:
    class Resumed:
        history_ = [record(1, 2, 1), record(2, 2, 2)]  # noqa: RUF012
        plan_ = (2, 3)

    totals = worker_totals(Resumed())  # type: ignore[arg-type]
    assert [worker["bytes_p"] for worker in totals] == [0, 50]
    assert [round(worker["compute_seconds"], 9) for worker in totals] == [0.012, 0.006]


def test_tensorboard(tmp_path: Path, graph_file: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    base = RunConfig(dataset=str(graph_file), out=str(tmp_path / "plain"), checkpoint_every=1, **SMALL)
    train_run(base)

    def break_off(record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise RuntimeError

    out = {"out": str(tmp_path / "logged")}
    with pytest.raises(RuntimeError):
        train_run(RunConfig.from_settings(vars(base) | out), on_epoch=break_off)
    train_run(RunConfig.from_settings(vars(base) | out | {"tensorboard": True}), resume=True)
    plain, logged = (tmp_path / name / "model.safetensors" for name in ("plain", "logged"))
    assert plain.read_bytes() == logged.read_bytes()
    assert not (tmp_path / "plain/tensorboard").exists()
    events = EventAccumulator(str(tmp_path / "logged/tensorboard")).Reload()
    metrics = [json.loads(line) for line in (tmp_path / "logged/metrics.jsonl").read_text().splitlines()]
    scalars = events.Scalars("admm/objective")
    assert (
        [event.step for event in scalars] == [entry["epoch"] for entry in metrics] == list(range(1, len(metrics) + 1))
    )
    assert [event.value for event in scalars] == pytest.approx([entry["objective"] for entry in metrics], rel=1e-6)
    assert {"accuracy/validation", "worker 0/wait seconds"} <= set(events.Tags()["scalars"])


def test_tensorboard_missing(tmp_path: Path, graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    config = RunConfig(dataset=str(graph_file), out=str(tmp_path / "run"), tensorboard=True, **SMALL)
    with pytest.raises(InputError, match=r"pip install 'pdadmm-g\[tensorboard\]'"):
        train_run(config)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One headless Chromium for all tests of the page."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium with chromedriver is installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "no-first-run",
        "disable-background-networking", "disable-component-update", "disable-sync",
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Opens the report of runs; the browser's console must still be empty when the test ends."""

    def open_page(*paths: Path, width: int = 1200, scheme: str = "light", names: list[str] | None = None) -> Any:
        runs = [read_run(path, name) for path, name in zip(paths, names or names_of(paths), strict=True)]
        (tmp_path / "page.html").write_text(render(runs), encoding="utf-8")
        feature = {"name": "prefers-color-scheme", "value": scheme}
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 700}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get((tmp_path / "page.html").as_uri())
        return browser

    yield open_page
    assert browser.get_log("browser") == []


def find(chrome: Any, selector: str) -> Any:
    return chrome.find_element("css selector", selector)


def count(chrome: Any, selector: str) -> int:
    return len(chrome.find_elements("css selector", selector))


def figure_ids(chrome: Any) -> list[str]:
    return [figure.get_attribute("id") for figure in chrome.find_elements("css selector", "figure")]


ALL_FIGURES = ["accuracy", "loss", "objective", "residuals", "rho", "workers", "plan", "classes", "confusion"]


def test_page_of_one_run(page: Any, tmp_path: Path) -> None:
    chrome = page(write_run(tmp_path / "run"))
    assert figure_ids(chrome) == ALL_FIGURES
    assert all(count(chrome, f"#{name} svg text") >= 2 for name in ALL_FIGURES)
    overview = find(chrome, "#overview").text
    for text in ("pdadmm-g on digits", "EARLY_STOPPED", "0.750\ntest accuracy", "1,234\nparameters", "4 kB\nsent"):
        assert text in overview
    assert count(chrome, "#accuracy .stage") == 1
    assert "worker 1: layers 3\u20135" in find(chrome, "#plan").text
    assert count(chrome, "#confusion svg rect") == 4
    assert "cat (4)" in find(chrome, "#classes").text
    settings = find(chrome, "#configuration")
    assert "stages 2, 5" in settings.text
    assert "rho" not in settings.text
    find(chrome, "#configuration button").click()
    assert "rho 5.0" in settings.text


def test_page_of_several_runs(page: Any, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "first"), write_run(tmp_path / "second", workers=3, summary=None)]
    chrome = page(*runs)
    assert figure_ids(chrome) == ALL_FIGURES
    assert "UNFINISHED" in find(chrome, "#overview").text
    assert count(chrome, "#objective .curve[data-run=second]") == 2
    find(chrome, "#legend button[data-run=second]").click()
    assert count(chrome, ".curve[data-run=second]") == 0
    assert count(chrome, "#objective .curve[data-run=first]") == 2
    assert find(chrome, "#legend button[data-run=second]").get_attribute("aria-pressed") == "false"
    find(chrome, "#legend button[data-run=first]").click()
    assert "hidden" in find(chrome, "#objective svg").text
    find(chrome, "#legend button[data-run=second]").click()
    assert count(chrome, "#objective .curve[data-run=second]") == 2

    assert count(chrome, "#workers .lane") == 2
    find(chrome, "#workers option:nth-child(2)").click()
    assert count(chrome, "#workers .lane") == 3
    find(chrome, "#workers button[value=bytes]").click()
    assert find(chrome, "#workers .note").text == "Per epoch; a full lane is 100 B."


def test_log_switch_axis_and_read_out(page: Any, tmp_path: Path) -> None:
    from selenium.webdriver import Keys

    chrome = page(write_run(tmp_path / "run"))
    path = find(chrome, "#objective .curve").get_attribute("d")
    find(chrome, "#objective button[value=linear]").click()
    linear = find(chrome, "#objective .curve").get_attribute("d")
    assert linear != path
    find(chrome, "#objective button[value=log]").click()
    assert find(chrome, "#objective .curve").get_attribute("d") == path
    find(chrome, "#controls button[value=seconds]").click()
    assert "seconds of training" in find(chrome, "#objective svg").text

    find(chrome, "#controls button[value=epoch]").click()
    find(chrome, "#rho svg").send_keys(*[Keys.ARROW_RIGHT] * 3)
    tip = find(chrome, "#rho .tip")
    assert re.fullmatch(r"epoch \d+\nrun\n5", tip.text)
    find(chrome, "#rho svg").send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()

    from selenium.webdriver import ActionChains

    chrome.execute_script("document.getElementById('confusion').scrollIntoView({block: 'center'})")
    ActionChains(chrome).move_to_element(find(chrome, "#confusion svg rect")).perform()
    assert find(chrome, "#confusion .tip").text == "cat taken for cat\nof 4 test nodes of cat\n3 (75.0 %)"


def test_zeros_are_gaps_on_a_log_scale(page: Any, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    lines = [json.dumps(record(epoch, 1, 1, primal_residual=abs(epoch - 5))) for epoch in range(1, 11)]
    (path / "metrics.jsonl").write_text("\n".join(lines))
    chrome = page(path)
    curve = find(chrome, "#residuals .curve:not(.second)")
    assert (curve.get_attribute("d").count("M"), curve.get_attribute("d").count("L")) == (2, 7)
    assert "Gaps: zero or less" in find(chrome, "#residuals .note").text
    find(chrome, "#residuals button[value=linear]").click()
    assert find(chrome, "#residuals .curve:not(.second)").get_attribute("d").count("L") == 9
    assert "Gaps" not in find(chrome, "#residuals .note").text


def test_themes(page: Any, tmp_path: Path) -> None:
    def background() -> str:
        return str(chrome.execute_script("return getComputedStyle(document.body).backgroundColor"))

    run = write_run(tmp_path / "run")
    chrome = page(run)
    light = background()
    find(chrome, "#theme").click()
    dark = background()
    assert dark != light
    page(run, scheme="dark")
    assert background() == dark
    find(chrome, "#theme").click()
    assert background() == light


def test_png_buttons(page: Any, tmp_path: Path) -> None:
    chrome = page(write_run(tmp_path / "run"), write_run(tmp_path / "other"))
    folder = tmp_path / "downloads"
    folder.mkdir()
    chrome.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    width = chrome.execute_script("return document.querySelector('#accuracy svg').viewBox.baseVal.width")
    for button in chrome.find_elements("css selector", "figure .png"):
        chrome.execute_script("arguments[0].click()", button)
    deadline = time.monotonic() + 20
    while len(list(folder.glob("*.png"))) < len(ALL_FIGURES) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(path.stem for path in folder.iterdir()) == sorted(ALL_FIGURES)
    for path in folder.iterdir():
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", (folder / "accuracy.png").read_bytes()[16:20]) == (2 * (width + 24),)


def test_phone(page: Any, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"a-run-with-a-rather-long-name-{i}", workers=2 + i % 2) for i in range(8)]
    chrome = page(*runs, width=375)
    wide, inner = chrome.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= inner == 375
    lefts = chrome.execute_script("return [...document.querySelectorAll('figure')].map((f) => f.offsetLeft)")
    assert len(set(lefts)) == 1


def test_names_are_text_and_nothing_else(page: Any, tmp_path: Path) -> None:
    chrome = page(write_run(tmp_path / "run"), write_run(tmp_path / "other"), names=[EVIL, "other"])
    assert chrome.title == f"pdadmm-g: {EVIL}, other"
    assert count(chrome, "img") == 0
    assert find(chrome, "#legend button").text == EVIL
    assert figure_ids(chrome) == ALL_FIGURES


def test_page_of_a_run_without_epochs(page: Any, tmp_path: Path) -> None:
    chrome = page(write_run(tmp_path / "run", epochs=0, summary=None))
    assert "No epoch has ended yet" in find(chrome, "#figures").text
    assert "UNFINISHED" in find(chrome, "#overview").text
