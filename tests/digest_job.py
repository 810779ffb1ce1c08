"""Trains every configuration of the list below and prints the digests of its weights and records as JSON.

Only what users import is used, so that the same file tells what another version of the package computes:
``PYTHONPATH=OTHER/src python tests/digest_job.py``. Bits depend on the processor unless MKL and torch are told to
take the path that every x86-64 processor has, see ``PORTABLE``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

#: Environment under which the bits are the same on every x86-64 processor.
PORTABLE = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"}

#: A digits graph with fixed features, 5 labels a class, trained to the last epoch, and grown where not said otherwise.
BASE: dict[str, Any] = {
    "augment": "average", "hops": 4, "normalize": "centered", "weight_decay": 0.1, "layers": 4, "stages": (2, 4),
    "hidden": 24, "epochs": 8, "patience": None, "tolerance": 0.0, "unlabelled": 0,
}  # fmt: skip
LINEARIZED = {"solver": "linearized"}
#: Settings that other methods know nothing of, as they are where nobody names them.
OTHER = {"unlabelled": None}
CASES: dict[str, dict[str, Any]] = {
    "exact": {},
    "linearized": LINEARIZED,
    "seed": {"random_state": 7},
    "chosen by the data": {"augment": "auto", "hops": None, "normalize": "auto", "weight_decay": None, "patience": 4},
    "hops": {"augment": "hops", "normalize": "unit"},
    "no decay, below the bound": {"weight_decay": 0.0, "rho": 0.5, **LINEARIZED},
    "deep and stacked": {"layers": 8, "stages": (2, 8), "hidden": 16},
    "wide, in blocks of rows": {"hidden": 320, "augment": "none", "matrix": True, "stages": (4,), **LINEARIZED},
    "wide, inverted now and then": {"hidden": 512, "augment": "none", "matrix": True, "stages": (3,), "layers": 3},
    "wide, two workers": {"hidden": 512, "augment": "none", "matrix": True, "stages": (3,), "layers": 3, "workers": 2},
    "leaky-relu": {"activation": "leaky-relu"},
    "tanh": {"activation": "tanh", **LINEARIZED},
    "sigmoid": {"activation": "sigmoid"},
    "identity": {"activation": "identity"},
    "squared-error": {"risk": "squared-error"},
    "p, 8 bits": {"quantize": "p", "bits": 8},
    "p and q, 4 bits": {"quantize": "pq", "bits": 4, **LINEARIZED},
    "the paper's levels": {"quantize": "p", "levels": "paper"},
    "bfloat16 products": {"precision": "bf16"},
    "bfloat16 products, linearized": {"precision": "bf16", **LINEARIZED},
    "stalling penalty": {"penalty": "stall", "epochs": 24, "stages": (4,)},
    "balanced penalty": {"penalty": "balance", "epochs": 24, "stages": (4,), **LINEARIZED},
    "rare evaluation": {"eval_every": 3},
    "two workers": {"workers": 2},
    "three workers, p and q at 5 bits": {"workers": 3, "quantize": "pq", "bits": 5, **LINEARIZED},
    "killed and resumed": {"resume": 5},
    **{method: {"method": method, "weight_decay": 0.01, **OTHER} for method in ("gd", "adadelta", "adagrad", "adam")},
    "sgc": {"method": "sgc", "augment": "auto", "hops": None, **OTHER},
    "sign": {"method": "sign", "augment": "hops", **OTHER},
}
#: What a record says that the trained weights depend on, or that is measured of them.
MEASURED = ("objective", "risk", "primal_residual", "dual_residual", "descent", "c_k", "rho", "train_loss", "val_loss")


class Killed(BaseException):
    """Nothing that is trained catches this, so that no more is left than of a process that was killed."""


def trained(settings: dict[str, Any]) -> Any:
    """The fitted estimator of a case."""
    from pdadmm_g import GAMLPClassifier, load_dataset

    settings = BASE | settings
    interrupted_after, matrix = settings.pop("resume", None), settings.pop("matrix", False)
    if interrupted_after is not None:
        return resumed(settings, interrupted_after)
    classifier = GAMLPClassifier(**{"random_state": 0, **settings})
    data = load_dataset("digits")
    if matrix:
        return classifier.fit(data.x.numpy()[:1500], data.y.numpy()[:1500])
    return classifier.fit(data)


def resumed(settings: dict[str, Any], after: int) -> Any:
    """The estimator of a run that was interrupted after so many epochs, and then went on from its checkpoint."""
    from pdadmm_g import GAMLPClassifier
    from pdadmm_g.cli import main
    from pdadmm_g.engine.worker import Worker

    epoch, done = Worker.epoch, []

    def counted(worker: Worker) -> Any:
        done.append(1)
        if len(done) > after:
            raise Killed
        return epoch(worker)

    with tempfile.TemporaryDirectory() as folder:
        options = [f"--{name.replace('_', '-')}={_text(value)}" for name, value in settings.items()]
        command = ["train", *options, "--out", f"{folder}/run", "--checkpoint-every", "1", "--quiet"]
        Worker.epoch = counted
        with contextlib.suppress(Killed):
            main(command)
        Worker.epoch = epoch
        assert len(done) == after + 1
        assert not Path(folder, "run", "model.safetensors").exists()
        with contextlib.suppress(SystemExit):
            main([*command, "--resume"])
        classifier = GAMLPClassifier.load(f"{folder}/run/model.safetensors")
        lines = Path(folder, "run", "metrics.jsonl").read_text().splitlines()
        classifier.history_ = [json.loads(line) for line in lines if "task" not in json.loads(line)]
        return classifier


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


def digests(classifier: Any) -> dict[str, Any]:
    """Of the weights and of what was measured, and the norms of the weights for machines with other bits."""
    weights = [parameter.detach() for parameter in classifier.model_.parameters()]
    content = b"".join(weight.numpy().tobytes() for weight in weights)
    measured = [[record.get(name) for name in MEASURED] for record in classifier.history_]
    return {
        "weights": hashlib.sha256(content).hexdigest()[:32],
        "records": hashlib.sha256(json.dumps(measured).encode()).hexdigest()[:32],
        "norms": [float(f"{weight.double().norm().item():.6g}") for weight in weights[::2]],
    }


def main(names: list[str]) -> None:
    """Print the digests of the cases of these names, or of all."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    result = {name: digests(trained(CASES[name])) for name in names or CASES}
    json.dump({"torch": torch.__version__.split("+")[0], "cases": result}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in PORTABLE.items()) and "--native" not in sys.argv:
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | PORTABLE)
    main([name for name in sys.argv[1:] if name != "--native"])
