"""The documentation does what it says: its examples run, and its site builds without a warning."""

from __future__ import annotations

import html
import importlib.util
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from experiments.results import origin
from experiments.tables import COMPLETE, DEFAULT, LABELLED_ONLY, PEERS, best_of_paper, columns
from pdadmm_g import model
from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.risks import RISKS
from pdadmm_g.cli import main
from pdadmm_g.training import choose

ROOT = Path(__file__).parents[1]
specification = importlib.util.spec_from_file_location("published", ROOT / "docs/published.py")
assert specification is not None
assert specification.loader is not None
published = importlib.util.module_from_spec(specification)
specification.loader.exec_module(published)
#: Those with examples; what the other pages say of several workers is tested in tests/engine.
PAGES = [
    "README.md", "docs/index.md", "docs/tutorials/tables-to-labels.md", "docs/guides/own-data.md",
    "docs/guides/quantization.md", "docs/guides/tuning.md", "docs/guides/judging.md", "docs/guides/extending.md",
    "docs/guides/going-on.md", "docs/guides/targets.md",
]  # fmt: skip


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """What the guide to extending registers is gone afterwards."""
    kept = [(registry, dict(registry)) for registry in (ACTIVATIONS, RISKS, model._MODULES)]
    yield
    for registry, content in kept:
        registry.clear()
        registry.update(content)


def write_tables() -> None:
    """nodes.csv and edges.csv, small: two kinds of nodes, linked among themselves, a third not labelled."""
    rng = np.random.default_rng(0)
    nodes = range(60)
    rows = [
        f"n{node},{'' if node >= 40 else 'odd' if node % 2 else 'even'},{node % 2 + 0.3 * rng.standard_normal()},1"
        for node in nodes
    ]
    links = [f"n{one},n{other}" for one in nodes for other in range(one) if one % 2 == other % 2]
    Path("nodes.csv").write_text("\n".join(["id,label,size,age", *rows, ""]))
    Path("edges.csv").write_text("\n".join(["source,target", *links, ""]))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python and shell blocks, in their order, in a folder with the tables that a reader has and nothing else."""
    monkeypatch.chdir(tmp_path)
    for name in ("SHORT", "FIRST_EPOCHS"):  # what is chosen is not looked at
        monkeypatch.setattr(choose, name, 10)
    write_tables()
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, block in blocks:
        if language == "python":
            exec(compile(block, page, "exec"), namespace)
            continue
        for line in block.splitlines():
            program, *arguments = line.split()
            assert program == "pdadmm-g"
            with pytest.raises(SystemExit) as caught:
                main(arguments)
            assert not caught.value.code, line


@pytest.mark.timeout(120)
def test_site_builds_without_a_warning_and_without_the_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stderr
    pages = {path: path.read_text() for path in tmp_path.rglob("*.html")}
    for path, text in pages.items():
        assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="https?://[^"]*"', text) == [], path
    everything = html.unescape("".join(pages.values()))
    for name in published.PUBLISHED:
        assert origin(published.rows_of(name)) in everything, name
    assert "<!-- table" not in everything
    assert "<!-- settings" not in everything
    algorithm = pages[tmp_path / "algorithm.html"]
    assert algorithm.count("<math ") >= 5
    assert "arithmatex" not in "".join(pages.values())
    # Files that pages link to outside of docs/ come along, and docstrings have their formulas.
    assert (tmp_path / "files/results/depth/figure.png").is_file()
    reference = pages[tmp_path / "api.html"]
    assert ":math:" not in reference
    assert ".. math::" not in reference
    assert "<td><code>weight_decay</code></td>" in reference


@pytest.mark.parametrize("name", published.PUBLISHED)
def test_a_table_is_what_its_figures_say(name: str) -> None:
    """If not: python docs/published.py writes them all."""
    assert published.table_file(name).read_text() == published.rendered(name)


def test_every_table_is_on_one_page_with_a_link_to_it() -> None:
    """Where Markdown is shown as it is, a marker shows nothing."""
    linked = {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for name, link in re.findall(r"<!-- table: (\S+) -->\n\(\[table\]\(([^)]+)\)", page.read_text()):
            assert name not in linked
            linked[name] = (page.parent / link).resolve()
    assert linked == {name: published.table_file(name) for name in published.PUBLISHED}


def test_the_readme_has_the_figures_of_tables_and_graphs() -> None:
    table = published.table_file("performance/compare-varied").read_text().splitlines()
    measured = {line.split(",")[0].strip("| "): [cell.strip() for cell in line.split("|")[2:-1]] for line in table}
    titles = [cell.strip() for cell in table[0].split("|")[2:-1]]
    names = {"messy table": "users", "Twitch users, German": "twitch-de-few", "Twitch users, Spanish": "twitch-es-few",
             "LastFM": "lastfm-few", "political blogs": "polblogs-few", "UAI": "uai-few",
             "Flickr": "flickr7575-few", "web pages of Wisconsin": "wisconsin"}  # fmt: skip
    lines = (ROOT / "README.md").read_text().splitlines()
    head = next(line for line in lines if "boosting + neighbours" in line)
    for start, graph in names.items():
        (line,) = (line for line in lines if line.startswith(f"| {start}"))
        for title, cell in zip(head.split("|")[2:-1], line.split("|")[2:-1], strict=True):
            assert cell.strip() == measured[graph][titles.index(title.strip())], (graph, title)


def test_the_readme_has_the_figures_of_the_table() -> None:
    rows = published.rows_of("table-best")
    means = {(row["method"], row["dataset"]): row["mean"] for row in rows}
    datasets = columns(rows)
    assert datasets == list(COMPLETE)
    known = [name for name in (DEFAULT, LABELLED_ONLY, *PEERS) if all((name, dataset) in means for dataset in datasets)]
    own = {DEFAULT: "`GAMLPClassifier()`", LABELLED_ONLY: "`GAMLPClassifier(unlabelled=0)`"}
    *others, last = (name for name in known if name in PEERS)
    lines = {
        **{title: [means[name, dataset] for dataset in datasets] for name, title in own.items() if name in known},
        "paper, best of six methods and two widths": [best_of_paper(dataset) for dataset in datasets],
        f"best of {', '.join(others)} and {last} here": [
            max(means[name, dataset] for name in (*others, last)) for dataset in datasets
        ],
    }
    text = (ROOT / "README.md").read_text()
    for title, values in lines.items():
        assert f"| {title} | " + " | ".join(f"{value:.3f}" for value in values) + " |" in text


def test_the_readme_has_the_means_of_the_random_splits() -> None:
    means: dict[str, dict[str, float]] = {}
    for row in published.rows_of("random-splits"):
        means.setdefault(row["method"], {})[row["dataset"]] = row["mean"]
    averages = {name: statistics.mean(graphs.values()) for name, graphs in means.items()}
    graphs = {"cora": "Cora", "citeseer": "Citeseer", "pubmed": "PubMed", "amazon-computers": "Computers",
              "amazon-photo": "Photo", "coauthor-cs": "CS", "coauthor-physics": "Physics"}  # fmt: skip
    table = ["| | " + " | ".join(graphs.values()) + " | average |", "|---" * (len(graphs) + 2) + "|"]
    for name in sorted(averages, key=lambda name: -averages[name]):
        title = "`GAMLPClassifier()`" if name == DEFAULT else name
        table.append("| " + " | ".join([title, *(f"{means[name][graph]:.3f}" for graph in graphs)])
                     + f" | {averages[name]:.3f} |")  # fmt: skip
    assert "\n".join(table) in (ROOT / "README.md").read_text()
