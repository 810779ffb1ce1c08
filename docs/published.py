"""The tables of results/: what each is made of, and how. ``python docs/published.py`` writes them all."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from experiments import EXPERIMENTS, Request
from experiments.results import Results, Row, markdown
from pdadmm_g.utils import write_atomically

RESULTS = Path(__file__).resolve().parents[1] / "results"


def table_file(name: str) -> Path:
    """Where the table of that name is."""
    return RESULTS / f"{name}.md" if "/" in name else RESULTS / name / "table.md"


def rows_of(name: str) -> list[Row]:
    """What the table is made of: the rows of an experiment, or those of some scripts."""
    if name in EXPERIMENTS:
        return Results(RESULTS / name, "").rows()
    known = {row["method"]: row for row in Results(table_file(name).parent, "").rows()}
    return [known[file] for file in MEASURED[name][1]]


def rendered(name: str) -> str:
    """The table as it follows from its rows."""
    if name not in EXPERIMENTS:
        return MEASURED[name][0](rows_of(name))
    request = Request(
        folder=RESULTS / name, data_root=None, datasets=None, seeds=None, workers=1, device="cpu", command="",
        quick=False,
    )  # fmt: skip
    return EXPERIMENTS[name](request).render(rows_of(name))


def epochs(files: Sequence[Row]) -> str:
    """Of ``python -m benchmarks.bench``: a line for each file, a column for each method."""
    methods = {"floor": "floor", "linearized": "linearized", "exact": "exact", "quantized": "p and q at 8 bits",
               "adam": "Adam"}  # fmt: skip
    lines = []
    for file in files:
        rows = {row["method"]: row for row in file["measured"]}
        size = file["measured"][0]
        lines.append([
            f"{size['nodes']} nodes, {size['features']} inputs, {size['layers']} x {size['hidden']}, "
            f"{size['precision']}",
            *(_epoch(rows[name]) if name in rows else "-" for name in methods),
        ])  # fmt: skip
    return markdown(["one epoch", *methods.values()], lines)


def _epoch(row: Row) -> str:
    """Time, multiple of the floor and, on a GPU, where it is the method's own, the peak of the memory."""
    entries = [f"{row['ms']:.0f} ms" if row["ms"] >= 100 else f"{row['ms']:.3g} ms"]
    if row["method"] != "floor":
        entries.append(f"{row['x_floor']:.2f} x")
        entries += [f"{row['peak_gib']:.1f} GiB"] * (row["device"] == "cuda" and row["peak_gib"] >= 1)
    return ", ".join(entries)


def precisions(files: Sequence[Row]) -> str:
    """The last objective, and mean test accuracy by data set."""
    (file,) = files
    datasets = [name for name, value in file["measured"][0].items() if isinstance(value, list)]
    lines = [[row["precision"], f"{row['objective']:.2f}", *(f"{statistics.mean(row[name]):.3f}" for name in datasets)]
             for row in file["measured"]]  # fmt: skip
    return markdown(["factors", "objective", *datasets], lines)


def augmentations(files: Sequence[Row]) -> str:
    """Time for each nonzero of A~ and feature, beside plain products; peak memory over input and output."""
    lines = []
    for file in files:
        where = file["hardware"]["gpu"] if file["device"] == "cuda" else f"{file['threads']} CPU threads"
        memory = file.get("peak_device_gib", file["peak_anonymous_gib"]) / file["input_and_output_gib"]
        plain = [f"{file[name]:.2g}" if name in file else "-" for name in ("torch_csr_ns", "scipy_csr_ns")]
        lines.append([
            f"{file['nodes']} nodes, {file['nonzeros']} nonzeros, {file['width']} features, {where}",
            f"{file['ns_per_nonzero_and_feature']:.2g}", *plain, f"{memory:.2f}",
        ])  # fmt: skip
    titles = ["one product", "ns per nonzero and feature: ours", "plain torch CSR", "plain scipy CSR",
              "peak memory over input and output"]  # fmt: skip
    return markdown(titles, lines)


def large_graphs(files: Sequence[Row]) -> str:
    """The steps from arrays on disk to predictions: seconds, and the memory of the largest process."""
    (file,) = files
    train, augment, size = file["train"], file["augment"], file["options"]

    def peak(step: Row) -> str:
        known = [each["peak_bytes"] for each in step.get("processes", [step]) if "peak_bytes" in each]
        return f"{max(known or [step['largest_process_so_far_bytes']]) / 1e9:.1f}"

    lines = [
        ["shard", f"{file['shard']['seconds']:.0f}", peak(file["shard"]), "-"],
        ["augment", f"{augment['seconds']:.0f}", "below", f"{augment.get('bytes_over_the_network', 0) / 1e9:.0f}"],
        [f"{size['epochs']} epochs", f"{train['seconds']:.0f}", peak(train), f"{train['bytes_sent'] / 1e9:.1f}"],
        ["train in all, with starting, reading and scoring", f"{train['wall_seconds']:.0f}", peak(train), ""],
        ["predict all nodes", f"{file['predict']['seconds']:.0f}", peak(file["predict"]), "-"],
    ]
    return markdown(["", "seconds", "GB in the largest process", "GB sent"], lines)


def shard_memory(files: Sequence[Row]) -> str:
    """The largest process of so many: its peak, and what it has beyond an empty one as a multiple of its share."""
    (file,) = files
    constant = file["constant_bytes"]
    lines = [
        [shards, f"{peak / 1e9:.2f}", f"{(peak - constant) / 1e9:.2f}",
         f"{file['times_one_part_of_one_process'][shards]:.2f}"]
        for shards, peak in file["peak_bytes"].items()
    ]  # fmt: skip
    titles = ["shards M", "GB in the largest process", f"without the constant, {constant / 1e9:.2f} GB",
              "times 1/M of one process"]  # fmt: skip
    return markdown(titles, lines)


def times_to_accuracy(files: Sequence[Row]) -> str:
    """Seconds and test accuracy by method and graph, means over the splits that were measured."""
    (file,) = files
    methods = list(dict.fromkeys(row["method"] for row in file["measured"]))
    datasets = list(dict.fromkeys(row["dataset"] for row in file["measured"]))
    lines = []
    for method in methods:
        entries = []
        for dataset in datasets:
            rows = [row for row in file["measured"] if (row["method"], row["dataset"]) == (method, dataset)]
            seconds, accuracy = ([row[name] for row in rows] for name in ("seconds", "accuracy"))
            entries.append(f"{statistics.mean(seconds):.2g} s, {statistics.mean(accuracy):.3f}" if rows else "-")
        lines.append([f"`{method}`" if "(" in method else method, *entries])
    return markdown(["", *datasets], lines)


def epochs_to_accuracy(files: Sequence[Row]) -> str:
    """Epochs to the goal by graph; seconds beside the algorithm as it is; what early stopping keeps, in points."""
    rows = [row for file in files for row in file["measured"]]
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    found = {(row["layers"], row["solver"], row["variant"], row["dataset"]): row for row in rows}
    lines = []
    for layers, solver, variant in dict.fromkeys(key[:3] for key in found):
        here = [found[layers, solver, variant, dataset] for dataset in datasets]
        plain = [found[layers, solver, "as it is", dataset] for dataset in datasets]
        seconds = [(a["seconds"], b["seconds"]) for a, b in zip(here, plain, strict=True)]
        kept = statistics.mean(a["kept_accuracy"] - b["kept_accuracy"] for a, b in zip(here, plain, strict=True))
        lines.append([
            f"{layers} layers, {solver}, {variant}",
            *("-" if row["epochs"] is None else str(row["epochs"]) for row in here),
            f"{statistics.geometric_mean(a / b for a, b in seconds if a and b):.2f}", f"{100 * kept:+.1f}",
        ])  # fmt: skip
    return markdown(["epochs to 99%", *datasets, "seconds, times", "kept, points"], lines)


def residual_depths(files: Sequence[Row]) -> str:
    """The best validation accuracy of a run by graph and depth."""
    rows = [row for file in files for row in file["measured"]]
    depths = sorted({row["layers"] for row in rows})
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        name = f"{row['method']}, {row['kind']}"
        if "nu" in row:
            name += f", nu = {row['nu']:g}"
            name += f", rho = {row['rho']:g} nu" if row["rho"] != 1 else ""
            name += f", hidden decay x {row['hold']:g}" if row["hold"] != 1 else ""
            name += f", hidden layers from epoch {row['warm']:g} on" if row["warm"] else ""
        trained_on = f"{row['dataset']}, {row['rows']} rows"
        trained_on += f" and {row['unlabelled']} without labels" if "unlabelled" in row else ""
        trained_on += f" that weigh x {row['trust']:g}" if row.get("trust", 3) != 3 else ""
        found.setdefault(trained_on, {}).setdefault(name, {})[row["layers"]] = row["best"]
    lines = [
        [trained_on, name, *(f"{by_depth[depth]:.3f}" if depth in by_depth else "-" for depth in depths)]
        for trained_on, by_name in found.items()
        for name, by_depth in by_name.items()
    ]
    return markdown(["data set", "trained at once", *map(str, depths)], lines)


#: Graphs of which the area under the ROC curve is shown, not accuracy.
TABLES = ("users", "twitch")
COMPARED = {"ours": "`GAMLPClassifier()`", "lr-graph": "logistic regression + neighbours",
            "hgb-graph": "boosting + neighbours", "lr": "logistic regression", "hgb": "boosting", "sgc": "SGC",
            "sign": "SIGN", "gcn": "GCN"}  # fmt: skip


def compared(files: Sequence[Row]) -> str:
    """By graph and method the mean over the splits, and how far ours is ahead of the best other; then probabilities."""
    found: dict[str, dict[str, list[Row]]] = {}
    for file in files:
        for row in file["measured"]:
            found.setdefault(row["graph"], {}).setdefault(row["method"], []).append(row)

    def mean(rows: list[Row], figure: str) -> float | None:
        values = [row[figure] for row in rows]
        return None if not values or None in values else statistics.mean(values)

    def entry(value: float | None, form: str = ".3f") -> str:
        return "-" if value is None else f"{value:{form}}"

    scores, probabilities = [], []
    for graph, methods in found.items():
        figure = "roc_auc_ovr" if graph.startswith(TABLES) else "accuracy"
        means = {method: mean(methods.get(method, []), figure) for method in COMPARED}
        ours = means["ours"]
        best = max((value for method, value in means.items() if value is not None and method != "ours"), default=None)
        ahead = None if ours is None or best is None else ours - best
        name = f"{graph}, {'AUROC' if figure == 'roc_auc_ovr' else 'accuracy'}, {len(methods['ours'])} splits"
        scores.append([name, *(entry(value) for value in means.values()), entry(ahead, "+.3f")])
        pairs = ((method, each) for each in ("calibration_error", "log_loss") for method in ("ours", "lr-graph"))
        probabilities.append([graph, *(entry(mean(methods.get(method, []), each)) for method, each in pairs)])
    text = markdown(["", *COMPARED.values(), "ahead of the best other"], scores)
    titles = ["", "calibration error", "of logistic regression + neighbours", "log loss",
              "of logistic regression + neighbours"]  # fmt: skip
    return text + "\n" + markdown(titles, probabilities)


def soak(files: Sequence[Row]) -> str:
    """How often each fault was caused, and what the runs were."""
    (file,) = files
    lines = [[kind, str(found["caused"]), str(found["in_mid_training"])] for kind, found in file["by_fault"].items()]
    lines.append(["all", str(file["faults"]), str(sum(int(line[2]) for line in lines))])
    text = markdown(["fault", "times", "in mid training"], lines)
    text += f"\n{file['runs']} runs, {file['attempts']} attempts, {len(file['failures'])} failures.\n"
    if "by_shards" not in file:
        return text
    data = ", ".join(f"{count} on {name}" for name, count in file["by_dataset"].items())
    return text + (
        f"Attempts by workers of a chain: {_counts(file['by_workers'])}; by shards: {_counts(file['by_shards'])}. "
        f"Runs: {data}; {file['with_unlabelled']} with nodes without labels, {file['with_class_weights']} with weights "
        f"of classes, {file['runs'] - file['by_quantization'].get('none', 0)} quantized, {file['shards_changed']} "
        "with other shards after every fault.\n"
    )


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count} of {number}" for number, count in found.items())


def fuzz(files: Sequence[Row]) -> str:
    """How the cases of each target ended."""
    (file,) = files
    endings = ("cases", "accepted", "refused", "violation")
    lines = [[name, *(f"{target[end]:,}" for end in endings)] for name, target in sorted(file["targets"].items())]
    text = markdown(["target", "cases", "accepted", "refused", "violations"], lines)
    return (
        text
        + f"\n{file['cases']:,} cases, {sum(target['violation'] for target in file['targets'].values())} violations.\n"
    )


def mutants(files: Sequence[Row]) -> str:
    """How many changes of each module were noticed, and those that were not."""
    (file,) = files
    modules = sorted({entry["name"].partition(":")[0] for entry in file["mutants"]})
    lines = []
    for module in modules:
        own = [entry for entry in file["mutants"] if entry["name"].startswith(f"{module}:")]
        lines.append([f"`{module}`", str(len(own)), str(sum(entry["killed_by"] is not None for entry in own))])
    lines.append(["all", str(file["count"]), str(file["killed"])])
    text = markdown(["module", "mutants", "killed"], lines)
    left = [entry for entry in file["mutants"] if entry["killed_by"] is None]
    text += f"\n{file['killed']} of {file['count']} were killed.\n"
    if not left:
        return text
    rest = [
        [f"`{entry['name'].partition(' ')[0]}`", *_change(entry["diff"]), entry["equivalent"] or "wants a test"]
        for entry in left
    ]
    return text + "\n" + markdown(["not killed", "was", "became", "why"], rest)


def _change(diff: str) -> list[str]:
    """The lines that went and came, as code in a table."""
    lines = diff.replace("|", "\\|").splitlines()
    return ["<br>".join(f"`{line[1:].strip()}`" for line in lines if line.startswith(sign)) for sign in "-+"]


#: Tables of other files of results/: how they are made, and of which, beside them.
MEASURED: dict[str, tuple[Callable[[Sequence[Row]], str], tuple[str, ...]]] = {
    "performance/cpu": (epochs, (
        "cpu-1000", "cpu-500", "cpu-cora-size",
    )),
    "performance/gpu": (epochs, (
        "h200-tf32", "h200-bf16", "h200-fp32", "h200-arxiv-size", "h200-cora",
    )),
    "performance/time-to-accuracy": (times_to_accuracy, ("time-to-accuracy",)),
    "performance/compare-varied": (compared, ("compare-varied",)),
    "performance/precision": (precisions, ("precision-h200",)),
    "performance/augmentation": (augmentations, (
        "augmentation-flickr", "augmentation-ogbn-arxiv", "augmentation-flickr-h200", "augmentation-ogbn-arxiv-h200",
    )),
    "performance/large-graph": (large_graphs, ("large-graph",)),
    "performance/shard-memory": (shard_memory, ("shard-memory",)),
    "performance/epochs-to-accuracy": (epochs_to_accuracy, ("epochs-to-accuracy",)),
    "performance/residual-depth": (residual_depths, (
        "residual-depth-cora", "residual-depth-pubmed", "residual-depth-amazon-photo",
        "residual-depth-rows", "residual-depth-unlabelled",
    )),
    "soak": (soak, ("soak",)),
    "fuzz": (fuzz, ("fuzz",)),
    "mutants": (mutants, ("mutants",)),
}  # fmt: skip
#: Every table that there is; an experiment that was not run yet has none.
PUBLISHED = (*(name for name in EXPERIMENTS if (RESULTS / name / "results.jsonl").exists()), *MEASURED)


if __name__ == "__main__":
    for name in PUBLISHED:
        write_atomically(table_file(name), rendered(name))
