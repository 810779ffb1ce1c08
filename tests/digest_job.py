"""Trains every configuration of the list below and prints the digests of its weights and records as JSON.

Only what users import is used, so that the same file tells what another version of the package computes:
``PYTHONPATH=OTHER/src python tests/digest_job.py``; ``python tests/digest_job.py --against OTHER/src`` runs both and
names the cases that differ. Bits depend on the processor unless MKL and torch are told to take the path that every
x86-64 processor has, see ``PORTABLE``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

#: Environment under which the bits are the same on every x86-64 processor.
PORTABLE = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"}

#: A digits graph with fixed features, 5 labels a class, trained to the last epoch, and grown where not said otherwise.
BASE: dict[str, Any] = {
    "augment": "average", "hops": 4, "normalize": "centered", "weight_decay": 0.1, "layers": 4, "stages": (2, 4),
    "hidden": 24, "epochs": 8, "patience": None, "tolerance": 0.0, "unlabelled": 0, "calibrate": False,
    "row_normalize": True, "validation": 0.2, "teleport": 0.05, "label_hops": 0,
}  # fmt: skip
LINEARIZED = {"solver": "linearized"}
#: Settings that other methods know nothing of, as they are where nobody names them.
OTHER = {"unlabelled": None}
#: A small graph with communities, see ``communities``, and a smaller network.
SMALL = {"data": "communities", "hops": 2, "hidden": 8, "layers": 3, "stages": (2, 3), "epochs": 6}
#: Unlabelled nodes train too, and nothing is chosen by the data.
ROUNDS = SMALL | {
    "teleport": 0.2, "components": 8, "sharpness": 3.0, "drop_entries": 0.0, "unlabelled": 40, "rounds": 3, "copies": 2,
}  # fmt: skip
#: Everything that may be left to the data is.
CHOSEN = SMALL | {
    "augment": "auto", "hops": None, "normalize": "auto", "weight_decay": None, "patience": 5, "epochs": 15,
}  # fmt: skip
FOLDER = {"command": ("shard", "train"), "augment": "auto", "normalize": "auto", "hops": 3, "patience": 5}
CASES: dict[str, dict[str, Any]] = {
    "exact": {},
    "linearized": LINEARIZED,
    "seed": {"random_state": 7},
    "chosen by the data": {"augment": "auto", "hops": None, "normalize": "auto", "weight_decay": None, "patience": 4},
    "hops": {"augment": "hops", "normalize": "unit"},
    "no decay, below the bound": {"weight_decay": 0.0, "rho": 0.5, **LINEARIZED},
    "deep and stacked": {"layers": 8, "stages": (2, 8), "hidden": 16},
    "wide, in blocks of rows": {"data": "matrix", "hidden": 320, "augment": "none", "stages": (4,), **LINEARIZED},
    "wide, inverted now and then": {"data": "matrix", "hidden": 512, "augment": "none", "stages": (3,), "layers": 3},
    "leaky-relu": {"activation": "leaky-relu"},
    "tanh": {"activation": "tanh", **LINEARIZED},
    "sigmoid": {"activation": "sigmoid"},
    "identity": {"activation": "identity"},
    "squared-error": {"risk": "squared-error"},
    "p, 8 bits": {"quantize": "p", "bits": 8},
    "p and q, 4 bits": {"quantize": "pq", "bits": 4, **LINEARIZED},
    "the paper's levels": {"quantize": "p", "levels": "paper"},
    "levels of one's own": {"quantize": "pq", "levels": (0.0, 0.5, 1.0, 2.5)},
    "bfloat16 products": {"precision": "bf16"},
    "bfloat16 products, linearized": {"precision": "bf16", **LINEARIZED},
    "rare evaluation": {"eval_every": 3},
    "a plan": {"plan": (1, 3)},
    "killed and resumed": {"command": ("train",), "resume": 5},
    **{method: {"method": method, "weight_decay": 0.01, **OTHER} for method in ("gd", "adadelta", "adagrad", "adam")},
    "sgc": {"method": "sgc", "augment": "auto", "hops": None, **OTHER},
    "sign": {"method": "sign", "augment": "hops", **OTHER},
    "gcn": {"method": "gcn", "augment": "auto", "hops": None, "normalize": "auto", **OTHER},
    # Unlabelled nodes.
    "rounds": ROUNDS,
    "rounds, linearized": ROUNDS | LINEARIZED,
    "rounds, p and q at 6 bits": ROUNDS | {"quantize": "pq", "bits": 6},
    "rounds, weights of rows": ROUNDS | {"weights": True},
    "rounds, weights of classes": ROUNDS | {"class_weight": "balanced"},
    "rounds, resumed inside a round": ROUNDS | {"command": ("train",), "resume": 15},
    "rounds, resumed with two workers": ROUNDS | {"command": ("train",), "resume": 15, "then": ("--workers", 2)},
    "rounds chosen by the data": CHOSEN | {"unlabelled": None, "rounds": 3},
    "rounds chosen by the data, refit": CHOSEN | {"unlabelled": None, "rounds": 3, "refit": True, "seed": 3},
    # What is chosen by the data, and on which nodes.
    "small, chosen by the data": CHOSEN,
    "validation set aside": CHOSEN | {"data": "labels only"},
    "less validation set aside": CHOSEN | {"data": "labels only", "validation": 0.1, "random_state": 3},
    "no validation": CHOSEN | {"data": "labels only", "validation": 0.0},
    "out of fold": CHOSEN | {"data": "labels only", "validation": None},
    "out of fold, tables": CHOSEN | {"data": "tables", "validation": None, "row_normalize": None},
    "nothing given": dict.fromkeys(("hidden", "calibrate", "row_normalize"))
    | CHOSEN
    | {"hidden": None, "unlabelled": None, "rounds": 2},
    "the second split": CHOSEN | {"data": "splits", "split": 1},
    "validation log loss": CHOSEN | {"scoring": "neg_log_loss"},
    "growth by gain": CHOSEN | {"growth": "gain", "layers": 5, "stages": None},
    "growth through all": CHOSEN | {"growth": "all", "layers": 5, "stages": None},
    "refit": CHOSEN | {"refit": True},
    "refit of set-aside nodes": CHOSEN | {"refit": True, "data": "labels only"},
    "calibrated": CHOSEN | {"calibrate": True},
    # What is learned.
    "several labels": CHOSEN | {"data": "several labels", "risk": "logistic"},
    "several labels of a matrix": SMALL | {"data": "several labels of a matrix", "augment": "none", "hops": None},
    "numbers": CHOSEN | {"data": "numbers", "estimator": "GAMLPRegressor"},
    "one number, weights of rows": SMALL
    | {"data": "a number", "estimator": "GAMLPRegressor", "weights": True, "activation": "tanh"},
    "soft labels": SMALL | {"data": "soft labels"},
    "weights of rows": SMALL | {"weights": True},
    "weights of rows of a matrix": {"data": "matrix", "augment": "none", "weights": True},
    "weights of classes": SMALL | {"class_weight": "balanced"},
    "weights of named classes": CHOSEN | {"data": "tables", "class_weight": {"red": 2.0, "green": 0.5}},
    "nodes as samples": SMALL | {"estimator": "NodeClassifier"},
    # What the graph adds.
    "apart": SMALL | {"augment": "apart", "hops": 3},
    "power": SMALL | {"augment": "power", "normalize": "none", "row_normalize": False},
    "teleport": SMALL | {"teleport": 0.3, "normalize": "unit", "row_normalize": False},
    "components": SMALL | {"components": 6},
    "edges weigh": SMALL | {"data": "edges weigh"},
    "edges weigh, hops": CHOSEN | {"data": "edges weigh"},
    "out": SMALL | {"data": "directed", "directed": "out", "augment": "hops"},
    "in": SMALL | {"data": "directed", "directed": "in"},
    "both": SMALL | {"data": "directed", "directed": "both", "augment": "hops"},
    "directions chosen by the data": CHOSEN | {"data": "directed"},
    "directions, unlabelled nodes": CHOSEN | {"data": "directed", "unlabelled": None, "rounds": 2},
    "no features": CHOSEN | {"data": "no features"},
    "tables": CHOSEN | {"data": "tables", "unlabelled": None, "rounds": 2},
    "a sparse adjacency": CHOSEN | {"data": "sparse"},
    # From another network.
    "init": SMALL | {"init": {"epochs": 4, "layers": 2, "stages": (2,)}, "random_state": 5},
    "init, rounds": ROUNDS | {"init": {"unlabelled": 0, "components": 8}},
    # Rows in shards: other sums, so to rounding only.
    **{
        f"folder, {mesh}": SMALL | FOLDER | {"shards": int(mesh[0]), "workers": int(mesh[2]), "rounding": True}
        for mesh in ("1x1", "2x2")
    },
}  # fmt: skip
#: What a record says that the trained weights depend on, or that is measured of them.
MEASURED = (
    "stage", "round", "stage_epoch", "objective", "risk", "primal_residual", "dual_residual", "descent", "c_k", "rho",
    "train_loss", "train_accuracy", "val_loss", "val_accuracy", "val_score", "agreement", "changed",
)  # fmt: skip
#: What of a case is not a setting.
ABOUT = ("data", "estimator", "weights", "init", "command", "resume", "then", "rounding", "seed")


class Killed(BaseException):
    """Nothing that is trained catches this, so that no more is left than of a process that was killed."""


# ----------------------------------------------------------------------------------------------------------- the data


def communities(nodes: int = 150, classes: int = 3, features: int = 20, labels: int = 4) -> dict[str, Any]:
    """Noisy features in three communities, four labels in each, a third of the rest to validate and to test."""
    draw = np.random.default_rng(0)
    y = np.arange(nodes) % classes
    x = draw.normal(size=(classes, features))[y] + 1.5 * draw.normal(size=(nodes, features))
    near = draw.random((nodes, nodes)) < np.where(y[:, None] == y, 0.065, 0.005)
    edges = np.stack(np.triu(near, 1).nonzero())
    rest = labels * classes + draw.permutation(nodes - labels * classes)
    parts = {"train_mask": np.arange(labels * classes), "val_mask": rest[::3], "test_mask": rest[1::3]}
    masks = {name: np.isin(np.arange(nodes), part) for name, part in parts.items()}
    return {"x": x.astype(np.float32), "edge_index": edges, "y": y.astype(np.int64), **masks}


def changed(**changes: Any) -> dict[str, Any]:
    """The communities with other entries; None takes one away."""
    return {name: value for name, value in (communities() | changes).items() if value is not None}


def inputs(kind: str) -> dict[str, Any]:
    """The arguments of ``fit``: X and what stands beside it."""
    from pdadmm_g import load_dataset

    draw, data = np.random.default_rng(1), communities()
    number, labels, numbers = len(data["y"]), data["x"][:, :2] > 0.2, data["x"][:, 2:4].astype(np.float64)
    known = np.arange(number) < 60
    unmasked = dict.fromkeys(("train_mask", "val_mask", "test_mask"))
    if kind == "digits":
        return {"X": load_dataset("digits")}
    if kind == "matrix":
        digits = load_dataset("digits")
        return {"X": digits.x.numpy()[:1500], "y": digits.y.numpy()[:1500]}
    if kind == "several labels of a matrix":
        return {"X": data["x"], "y": labels.astype(np.int64)}
    if kind == "tables":
        import pandas as pd

        names = np.array(["red", "green", "blue"])[data["y"]]
        nodes = pd.DataFrame(data["x"], columns=[f"f{place}" for place in range(data["x"].shape[1])])
        nodes.insert(0, "id", [f"n{number - place}" for place in range(number)])
        nodes.insert(1, "label", np.where(known, names, None))
        ends = nodes["id"].to_numpy()[data["edge_index"]]
        weight = 1 + draw.integers(0, 3, ends.shape[1])
        return {"X": nodes, "y": pd.DataFrame({"source": ends[0], "target": ends[1], "weight": weight})}
    if kind == "sparse":
        import scipy.sparse

        adjacency = scipy.sparse.coo_array((np.ones(data["edge_index"].shape[1]), data["edge_index"]), [number] * 2)
        return {"X": data["x"], "y": np.where(known, data["y"], -1), "edge_index": adjacency.tocsr()}
    changes = {
        "communities": {},
        "labels only": unmasked | {"y": np.where(known, data["y"], -1)},
        "splits": {
            name: np.stack([data[name], np.roll(data[name], 1), np.roll(data[name], 2)], axis=1) for name in unmasked
        },
        "several labels": {"y": labels.astype(np.float32)},
        "numbers": {"y": numbers.astype(np.float32)},
        "a number": {"y": numbers[:, :1].astype(np.float32)},
        "soft labels": {"y": draw.dirichlet([0.3] * 3, number).astype(np.float32)},
        "edges weigh": {"edge_weight": draw.gamma(2.0, size=data["edge_index"].shape[1]).astype(np.float32)},
        "directed": {"edge_index": data["edge_index"][:, draw.random(data["edge_index"].shape[1]) < 0.8]},
        "no features": {"x": None, "num_nodes": number},
    }[kind]
    return {"X": graph(changed(**changes), undirected=kind not in ("directed", "edges weigh"))}


def graph(entries: dict[str, Any], *, undirected: bool = False) -> Any:
    """The graph of these arrays."""
    import torch

    from pdadmm_g import Graph

    if undirected:
        entries["edge_index"] = np.concatenate([entries["edge_index"], entries["edge_index"][::-1]], axis=1)
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
        for name, value in entries.items()
    }
    return Graph(**tensors)


# ---------------------------------------------------------------------------------------------------------- training


def fitted(settings: dict[str, Any], name: str, seed: int, arguments: dict[str, Any]) -> Any:
    """The estimator of this name, fitted; with a method, that one to compare with."""
    import pdadmm_g

    if "method" in settings:
        from pdadmm_g.baselines import Baseline

        model = Baseline(settings["method"], random_state=seed)
        return model.set_params(**{key: settings[key] for key in settings.keys() & model.get_params().keys()}).fit(
            **arguments
        )
    if name == "NodeClassifier":
        data = arguments["X"]
        nodes = data.train_mask.nonzero().view(-1).numpy()
        classifier = pdadmm_g.GAMLPClassifier(**{"random_state": seed, **settings})
        return pdadmm_g.NodeClassifier(classifier, data).fit(nodes, data.y.numpy()[nodes])
    return getattr(pdadmm_g, name)(**{"random_state": seed, **settings}).fit(**arguments)


def digests_of(case: dict[str, Any]) -> dict[str, Any]:
    """The digests of a case."""
    case = BASE | {"data": "digits", "estimator": "GAMLPClassifier"} | case
    settings = {name: value for name, value in case.items() if name not in ABOUT}
    with tempfile.TemporaryDirectory() as folder:
        if "command" in case:
            return by_command(Path(folder), case, settings)
        arguments = inputs(case["data"])
        if case.get("weights"):
            number = len(arguments["X"].y if hasattr(arguments["X"], "y") else arguments["X"])
            arguments["sample_weight"] = np.random.default_rng(2).integers(0, 4, number).astype(np.float64) + (
                np.arange(number) % 2
            )
        seed = case.get("seed", 0)
        if "init" in case:
            first = fitted(settings | case["init"] | {"random_state": 0}, case["estimator"], seed, dict(arguments))
            if "rounds" in settings:
                first.save(Path(folder, "first.safetensors"))
            arguments["init"] = first if "rounds" not in settings else Path(folder, "first.safetensors")
        estimator = fitted(settings, case["estimator"], seed, arguments)
        estimator = getattr(estimator, "classifier_", getattr(estimator, "estimator_", estimator))
        if hasattr(estimator, "save"):
            estimator.save(Path(folder, "model.safetensors"))
        else:
            estimator.model_.save(Path(folder, "model.safetensors"), None, estimator.augmentation_.learned())
        if "method" in settings:
            estimator.choices_ = ()
        asked = {name: value for name, value in arguments.items() if name not in ("sample_weight", "init")}
        if "edge_index" in asked:
            del asked["y"]  # labels
        elif not hasattr(asked["X"], "edge_index") and case["data"] != "tables":
            asked = {"X": asked["X"]}
        elif case["data"] == "tables":
            asked = {"X": asked["X"], "edge_index": asked["y"]}
        predict = getattr(estimator, "predict_proba", estimator.predict)
        return digests(estimator, Path(folder, "model.safetensors"), predict(**asked), rounding=False)


def by_command(folder: Path, case: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The digests of a run of the command, perhaps from a folder of shards, perhaps interrupted and resumed."""
    from pdadmm_g import GAMLPClassifier
    from pdadmm_g.cli import main

    def run(*words: Any) -> None:
        with contextlib.suppress(SystemExit):
            main([str(word) for word in words])

    train = ["train", "--out", folder / "run", "--quiet"]
    for name, value in settings.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            train.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            train.append(f"--{option}={_text(value)}")
    train += [f"--{name}=none" for name in ("patience",) if settings[name] is None]
    if case["data"] != "digits":
        np.savez(folder / "graph.npz", **_symmetric(communities()))
        train += ["--dataset", folder / ("shards" if "shard" in case["command"] else "graph.npz")]
    if "shard" in case["command"]:
        run("shard", folder / "graph.npz", "--shards", 4, "--out", folder / "shards", "--quiet")
    if "resume" in case:
        train += ["--checkpoint-every", 1]
        with interrupted(case["resume"]):
            run(*train)
        assert not (folder / "run" / "model.safetensors").exists()
        train += ["--resume", *case.get("then", ())]
    run(*train)
    model = folder / "run" / "model.safetensors"
    assert model.is_file(), "the run failed"
    # Of a folder of shards only the labels are predicted: the graph in one file tells what the model makes of it.
    asked = () if case["data"] == "digits" else ("--dataset", folder / "graph.npz")
    run("predict", folder / "run", "--out", folder / "labels.csv", "--probabilities", "--quiet", *asked)
    estimator = GAMLPClassifier.load(model)
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    estimator.history_ = [line for line in lines if "task" not in line]
    estimator.choices_ = json.loads((folder / "run" / "summary.json").read_text())["choices"]
    predictions = np.genfromtxt(folder / "labels.csv", delimiter=",", skip_header=1)
    return digests(estimator, model, predictions, rounding=bool(case.get("rounding")))


@contextlib.contextmanager
def interrupted(after: int) -> Any:
    """What trains is killed after so many epochs: processes of its own with the first."""
    from pdadmm_g.engine.worker import Worker

    epoch, done = Worker.epoch, []

    def counted(worker: Worker) -> Any:
        done.append(1)
        if len(done) > after:
            raise Killed
        return epoch(worker)

    Worker.epoch = counted
    with contextlib.suppress(Killed):
        yield
    Worker.epoch = epoch
    assert len(done) == after + 1


def _symmetric(entries: dict[str, Any]) -> dict[str, Any]:
    edges = entries["edge_index"]
    return entries | {"edge_index": np.concatenate([edges, edges[::-1]], axis=1)}


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


# ----------------------------------------------------------------------------------------------------------- digests


def digests(estimator: Any, path: Path, predictions: Any, *, rounding: bool) -> dict[str, Any]:
    """Of the weights and of what was measured, and the norms of the weights for machines with other bits.

    Where ``rounding`` may differ, norms and projections of all tensors in many digits.
    """
    from safetensors.numpy import load_file

    weights = [parameter.detach().numpy() for parameter in estimator.model_.parameters()]
    tensors = dict(sorted(load_file(path).items()))
    choices = [choice for choice in getattr(estimator, "choices_", ()) if "should take" not in choice]  # seconds
    if rounding:
        values = [*(tensor.astype(np.float64) for tensor in tensors.values()), np.nan_to_num(predictions)]
        probes = [np.cos(np.arange(value.size)) @ value.reshape(-1) for value in values]
        return {"rounded": [float(f"{probe:.8g}") for probe in probes], "choices": choices}
    measured = [[record.get(name) for name in MEASURED] for record in estimator.history_]
    return {
        "weights": _sha(b"".join(weight.tobytes() for weight in weights)),
        "tensors": _sha(b"".join(name.encode() + tensor.tobytes() for name, tensor in tensors.items())),
        "predictions": _sha(np.ascontiguousarray(predictions).tobytes()),
        "records": _sha(json.dumps(measured).encode()),
        "choices": choices,
        "norms": [float(f"{np.linalg.norm(weight.astype(np.float64)):.6g}") for weight in weights[::2]],
    }


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def main(names: list[str]) -> None:
    """Print the digests of the cases of these names, or of all."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    result = {}
    for name in names or CASES:
        try:
            result[name] = digests_of(CASES[name])
        except Exception as error:
            raise RuntimeError(f"case {name!r}") from error
    json.dump({"torch": torch.__version__.split("+")[0], "cases": result}, sys.stdout, indent=1)
    print()


def against(other: str, names: list[str]) -> None:
    """Name the cases in which the package of this folder computes something else than the one that is imported here."""
    found = []
    for path in (os.environ.get("PYTHONPATH", ""), other):
        environment = os.environ | {"PYTHONPATH": path}
        job = subprocess.run([sys.executable, __file__, *names], stdout=subprocess.PIPE, env=environment, check=True)
        found.append(json.loads(job.stdout)["cases"])
    for name, here in found[0].items():
        for what in here if here != found[1][name] else ():
            print(f"{name}: {what}: {'same' if here[what] == found[1][name][what] else 'DIFFERENT'}")
    print(f"{sum(here != found[1][name] for name, here in found[0].items())} of {len(found[0])} cases differ")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in PORTABLE.items()) and "--native" not in sys.argv:
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | PORTABLE)
    if "--against" in sys.argv:
        place = sys.argv.index("--against")
        against(sys.argv[place + 1], sys.argv[1:place] + sys.argv[place + 2 :])
    else:
        main([name for name in sys.argv[1:] if name != "--native"])
