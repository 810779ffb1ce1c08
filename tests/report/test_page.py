from __future__ import annotations

import json
import re
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pdadmm_g.report.page
from helpers.run_files import ALL_FIGURES, EVIL, write_rounds, write_run
from pdadmm_g.report.collect import names_of, read_run
from pdadmm_g.report.page import SCRIPT, embedded, joined_script, render

# ---------------------------------------------------------------------------------------------------- the command


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

    def open_page(
        *paths: Path, width: int = 1200, scheme: str = "light", names: list[str] | None = None, opened: bool = True
    ) -> Any:
        runs = [read_run(path, name) for path, name in zip(paths, names or names_of(paths), strict=True)]
        (tmp_path / "page.html").write_text(render(runs), encoding="utf-8")
        feature = {"name": "prefers-color-scheme", "value": scheme}
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 700}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get((tmp_path / "page.html").as_uri())
        if opened:
            find(browser, "summary").click()
            # Its figures are drawn when it is open, soon after.
            browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 50))")
        return browser

    yield open_page
    assert browser.get_log("browser") == []


def find(chrome: Any, selector: str) -> Any:
    return chrome.find_element("css selector", selector)


def press(chrome: Any, selector: str) -> None:
    """Also below the header of the page, which stays when it is scrolled."""
    chrome.execute_script("arguments[0].click()", find(chrome, selector))


def count(chrome: Any, selector: str) -> int:
    return len(chrome.find_elements("css selector", selector))


def figure_ids(chrome: Any) -> list[str]:
    return [figure.get_attribute("id") for figure in chrome.find_elements("css selector", "figure")]


def test_page_of_one_run(page: Any, tmp_path: Path) -> None:
    chrome = page(write_run(tmp_path / "run"))
    assert figure_ids(chrome) == ALL_FIGURES
    find(chrome, "#rho .fold").click()
    assert all(count(chrome, f"#{name} svg text") >= 2 for name in ALL_FIGURES)
    overview = find(chrome, "#overview").text
    for text in ("digits, seed 0", "EARLY_STOPPED", "0.700\nexpected accuracy", "0.580\u20130.820", "0.750\ntest"):
        assert text in overview
    assert "1,234\nparameters" in find(chrome, "#trained").text
    assert count(chrome, "#accuracy .stage") == 1
    assert "worker 1: layers 3\u20135" in find(chrome, "#plan").text
    assert count(chrome, "#confusion svg rect") == 4
    assert "cat (4)" in find(chrome, "#classes").text
    assert "12\nedges" in find(chrome, "#facts .data").text
    assert (count(chrome, "#reliability circle"), count(chrome, "#times rect")) == (2, 2)
    settings = find(chrome, "#configuration")
    assert "layers 5" in settings.text
    assert "rho" not in settings.text
    find(chrome, "#configuration button").click()
    assert "rho 5.0" in settings.text


def test_what_is_asked_first_comes_first_and_training_is_folded(page: Any, tmp_path: Path) -> None:
    chrome = page(write_run(tmp_path / "run"), opened=False)
    ours = re.compile("admm|lagrangian|residual|epoch|worker|layer|penalty|stage|round", re.IGNORECASE)
    assert not ours.search(find(chrome, "main").text.replace("curves, workers, settings", ""))
    drawn = [
        figure.get_attribute("id") for figure in chrome.find_elements("css selector", "figure") if figure.is_displayed()
    ]
    assert drawn == ["estimate", "classes", "confusion", "reliability", "importance"]
    assert find(chrome, "#estimate svg").text.startswith("accuracy 0.700, 0.580 to 0.820\nAUROC 0.800")
    assert count(chrome, "#estimate .chance") == 2
    assert (count(chrome, "#importance rect"), count(chrome, "#importance .whisker")) == (3, 2)
    assert "n7 cat 0.510" in find(chrome, "#uncertain").text
    assert EVIL in find(chrome, "#contradicted").text
    find(chrome, "summary").click()
    assert count(chrome, "#accuracy .curve") == 2


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
    press(chrome, "#axes button[value=seconds]")
    assert "seconds of training" in find(chrome, "#objective svg").text

    press(chrome, "#axes button[value=epoch]")
    find(chrome, "#rho .fold").click()
    find(chrome, "#rho svg").send_keys(*[Keys.ARROW_RIGHT] * 3)
    tip = find(chrome, "#rho .tip")
    assert re.fullmatch(r"epoch \d+\nrun\n5", tip.text)
    find(chrome, "#rho svg").send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_rounds(page: Any, tmp_path: Path) -> None:
    from selenium.webdriver import Keys

    chrome = page(write_rounds(tmp_path / "run"))
    assert sorted(figure_ids(chrome)) == sorted([*ALL_FIGURES, "rounds"])
    assert (count(chrome, "#rounds .curve"), count(chrome, "#rounds circle")) == (3, 15 + 14 + 13)
    assert count(chrome, "#rounds .stage") == 1
    assert (count(chrome, "#accuracy .stage"), count(chrome, "#accuracy .round")) == (1, 14)
    assert (count(chrome, "#workers .round"), count(chrome, "#rounds .round")) == (14, 0)
    svg, tip = find(chrome, "#rounds svg"), find(chrome, "#rounds .tip")
    svg.send_keys(Keys.ARROW_RIGHT)
    assert tip.text == "round 0, epochs 1\u20133\nvalidation\n0.55"
    svg.send_keys(*[Keys.ARROW_RIGHT] * 14)
    assert tip.text.startswith("round 14, epochs 43\u201345\n")
    assert re.search(r"copies agree\n0.78\nclass changed\n0.06$", tip.text)
    find(chrome, "#accuracy svg").send_keys(*[Keys.ARROW_RIGHT] * 3)
    assert re.match(r"epoch 4, round 1\n", find(chrome, "#accuracy .tip").text)
    press(chrome, "#axes button[value=seconds]")
    assert find(chrome, "#rounds svg").text.endswith("\nround")


def test_odd_values_do_not_stop_the_script(page: Any, tmp_path: Path) -> None:
    odd: list[Any] = [1e308, -1e308, 2**53, 0, None]
    runs = [
        write_rounds(tmp_path / f"{place}", agreement=value, changed=value, val_accuracy=value)
        for place, value in enumerate(odd)
    ]
    for paths in (runs, *([path] for path in runs)):
        chrome = page(*paths)
        assert "Written" in find(chrome, "#footer").text


def test_png_buttons(page: Any, tmp_path: Path) -> None:
    chrome = page(write_run(tmp_path / "run"), write_run(tmp_path / "other"))
    folder = tmp_path / "downloads"
    folder.mkdir()
    chrome.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    width = chrome.execute_script("return document.querySelector('#accuracy svg').viewBox.baseVal.width")
    drawn = [name for name in ALL_FIGURES if name != "rho"][:10]  # that is folded away, and Chromium takes no more
    for name in drawn:
        press(chrome, f"#{name} .png")
    deadline = time.monotonic() + 20
    while len(list(folder.glob("*.png"))) < len(drawn) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(path.stem for path in folder.iterdir()) == sorted(drawn)
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
