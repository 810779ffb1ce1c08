"""pdADMM-G: deep graph-augmented MLPs trained without backpropagation, layer by layer, with few bits on the wire."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison import compare
    from .errors import InputError
    from .estimator import GAMLPClassifier, GAMLPRegressor, NodeClassifier
    from .graph.augmentation import GraphAugment
    from .graph.datasets import load_dataset
    from .graph.graph import Graph
    from .graph.readers import as_graph
    from .model import GAMLP
    from .status import Status

__version__ = "0.2.0"
__all__ = [
    "GAMLP", "GAMLPClassifier", "GAMLPRegressor", "Graph", "GraphAugment", "InputError", "NodeClassifier", "Status",
    "as_graph", "compare", "load_dataset",
]  # fmt: skip

_HOME = {
    "GAMLP": "model",
    "GAMLPClassifier": "estimator",
    "GAMLPRegressor": "estimator",
    "Graph": "graph.graph",
    "GraphAugment": "graph.augmentation",
    "InputError": "errors",
    "NodeClassifier": "estimator",
    "Status": "status",
    "as_graph": "graph.readers",
    "compare": "comparison",
    "load_dataset": "graph.datasets",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that the command line answers --help without importing torch.
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
