"""The methods to compare with: what each computes, what training keeps, what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch_geometric.data import Data

from helpers.communities import communities, renormalized_adjacency
from pdadmm_g import GAMLP, Graph, InputError, Status, baselines
from pdadmm_g.baselines import (
    METHODS,
    Baseline,
    agreement_loss,
    averaged_powers,
    copies_of,
    disagreement,
    forward,
)
from pdadmm_g.graph.augmentation import GraphAugment
from pdadmm_g.training.prepare import prepare_graph

#: A path of four nodes given one way, one edge of it twice, a loop, and a node alone.
EDGES = torch.tensor([[0, 1, 1, 2, 3], [1, 2, 2, 3, 3]])
X = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
FAST = {"adadelta": {"learning_rate": 1.0}, "adagrad": {"learning_rate": 0.05}, "adam": {"learning_rate": 0.01}}


def path(**masks: list[int]) -> Graph:
    """The path with two training nodes."""
    named = {name: torch.isin(torch.arange(5), torch.tensor(nodes)) for name, nodes in masks.items()}
    return Graph(x=X, edge_index=EDGES, y=torch.tensor([1, 0, 1, 0, 0]), **named)


def operator() -> np.ndarray:
    """The renormalised adjacency of the path."""
    A = np.eye(5)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        A[a, b] = A[b, a] = 1
    scale = 1 / np.sqrt(A.sum(1))
    return scale[:, None] * A * scale


def weights(model: GAMLP) -> list[np.ndarray]:
    return [parameter.detach().numpy() for parameter in model.parameters()]


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits)
    return powers / powers.sum(-1, keepdims=True)


# --------------------------------------------------------------------------------------------------------- all methods


@pytest.mark.parametrize("name", METHODS)
def test_each_learns_and_keeps_the_best_epoch(name: str) -> None:
    data = communities()
    model = Baseline(name, layers=3, hidden=8, random_state=0, **FAST.get(name, {})).fit(data)
    assert model.score(data) > 0.75
    assert len(model.model_.linears) == {"sgc": 1, "s2gc": 1, "sign": 2, "gcn": 2, "grand": 2}.get(name, 3)
    assert model.status_ in (Status.EARLY_STOPPED, Status.MAX_EPOCHS)
    assert model.score(data, data.val_mask) == max(
        record["val_accuracy"] for record in model.history_ if record["stage"] == model.history_[-1]["stage"]
    )
    P = model.predict_proba(data)
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(model.predict(data, [7, 2]), model.classes_[P[[7, 2]].argmax(1)])


def test_patience_ends_training_and_without_it_the_last_epoch_is_kept() -> None:
    data = communities()
    settings = {"hidden": 8, "epochs": 60, "augment": "hops", "hops": 2, "normalize": "unit", "random_state": 0}
    short, whole = (Baseline("sign", patience=patience, **settings).fit(data) for patience in (5, None))
    assert (short.status_, whole.status_) == (Status.EARLY_STOPPED, Status.MAX_EPOCHS)
    scores = [(record["val_accuracy"], -record["val_loss"]) for record in short.history_]
    assert len(scores) == 1 + max(range(len(scores)), key=scores.__getitem__) + 5
    assert whole.n_iter_ == 60
    assert whole.score(data, data.val_mask) == whole.history_[-1]["val_accuracy"]


def test_one_step_of_gradient_descent_by_hand() -> None:
    rows, y = load_iris(return_X_y=True)
    start, expected = GAMLP([4, 5, 3]), GAMLP([4, 5, 3])
    expected.load_state_dict(start.state_dict())
    features, labels = torch.from_numpy(rows).float(), torch.from_numpy(y)
    torch.nn.functional.cross_entropy(expected(features), labels).backward()
    settings = {"layers": 2, "hidden": 5, "epochs": 1, "learning_rate": 0.5, "weight_decay": 15.0}
    model = Baseline("gd", **settings, random_state=0).fit(rows, y, start=start)
    for before, after in zip(expected.parameters(), model.model_.parameters(), strict=True):
        # 15 is spread over 150 rows: the mean loss gets 0.1 / 2 |W|^2.
        torch.testing.assert_close(after, before - 0.5 * (before.grad + 0.1 * before))


@pytest.mark.parametrize(("patience", "eval_every", "noticed"), [(None, 1, 5), (10, 1, 5), (None, 3, 6)])
def test_a_failure_keeps_the_last_sound_weights(patience, eval_every: int, noticed: int, monkeypatch) -> None:
    """What a step broke is known when it is measured, or used by the next one."""
    steps = itertools.count(1)

    class Bomb(torch.optim.SGD):
        def step(self):
            super().step()
            if next(steps) >= 5:
                self.param_groups[0]["params"][0].data.fill_(torch.inf)

    monkeypatch.setattr(torch.optim, "SGD", Bomb)
    settings = {"layers": 2, "hidden": 8, "augment": "none", "normalize": "unit", "random_state": 0}
    model = Baseline("gd", patience=patience, eval_every=eval_every, **settings).fit(communities())
    assert (model.status_, model.n_iter_) == (Status.NON_FINITE, noticed)
    assert all(np.isfinite(parameter).all() for parameter in weights(model.model_))


# ----------------------------------------------------------------------------------------------------------------- GCN


def test_graph_convolutions_by_hand() -> None:
    model = GAMLP([4, 3, 2])
    W1, b1, W2, b2 = weights(model)
    A = operator()
    expected = A @ np.maximum(A @ X.numpy() @ W1.T + b1, 0) @ W2.T + b2
    with torch.no_grad():
        found = forward(model, X, renormalized_adjacency(EDGES, 5))
        sparse = forward(model, X.to_sparse_csr(), renormalized_adjacency(EDGES, 5))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(sparse, expected, atol=1e-6)


def test_only_the_first_layer_of_gcn_decays() -> None:
    """Without features there is no gradient for the weights: what moves is what weight decay moves."""
    data = path(train_mask=[0, 3])
    data.x = torch.zeros(5, 4)
    settings = {"hidden": 3, "epochs": 5, "weight_decay": 1.0, "patience": None, "random_state": 0}
    start = GAMLP([4, 3, 2])
    torch.nn.init.zeros_(start.linears[0].bias)
    trained = Baseline("gcn", **settings).fit(data, start=start).model_
    assert bool(trained.linears[0].weight.norm() < start.linears[0].weight.norm())
    assert torch.equal(trained.linears[1].weight, start.linears[1].weight)


# --------------------------------------------------------------------------------------------------------------- GRAND


def test_averaged_powers_are_those_of_the_augmentation_up_to_small_entries(monkeypatch) -> None:
    augment = GraphAugment("average", 3, teleport=1 / 4, normalize="none")
    A = operator()
    whole = sum(np.linalg.matrix_power(A, k) for k in range(4)) / 4
    np.testing.assert_allclose(averaged_powers(path(), augment).toarray(), whole, atol=1e-6)
    monkeypatch.setattr(baselines, "LEAST", 0.2)
    part = averaged_powers(path(), augment).toarray()
    assert (part <= whole + 1e-6).all()
    assert (part == 0).sum() > (whole == 0).sum()


def test_the_loss_of_a_step_of_grand_by_hand() -> None:
    """Everything from the adjacency on; which nodes were dropped is drawn again."""
    data = path(train_mask=[0, 3])
    config = Baseline("grand", hops=3, normalize="none", validation=0.0).config()
    problem = prepare_graph(data, config, seed=0)
    model = GAMLP([4, 3, 2])
    loss = float(agreement_loss(model, next(copies_of(data, problem, seed=5)), problem.training.y, 0.0).detach())
    generator = torch.Generator().manual_seed(5)
    nodes = [0, 3, *np.array([1, 2, 4])[torch.randperm(3, generator=generator).numpy()]]
    A = operator()
    mean = sum(np.linalg.matrix_power(A, k) for k in range(4)) / 4
    H = X.numpy() / X.numpy().sum(1, keepdims=True)
    W1, b1, W2, b2 = weights(model)
    P = []
    for _ in range(4):
        kept = torch.rand(5, generator=generator).numpy() >= 0.5
        copy = (mean @ (2 * kept[:, None] * H))[nodes]
        P.append(softmax(np.maximum(copy @ W1.T + b1, 0) @ W2.T + b2))
    risk = np.mean([-np.log([p[0, 1], p[1, 0]]).mean() for p in P])
    agreed = np.mean(P, axis=0) ** 2
    agreed /= agreed.sum(1, keepdims=True)
    apart = np.mean([((agreed - p) ** 2).sum(1).mean() for p in P])
    assert apart > 1e-4
    assert loss == pytest.approx(risk + apart, rel=1e-5)


def test_no_gradient_goes_through_what_the_copies_agree_on() -> None:
    logits = torch.randn(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    disagreement(logits).backward()
    P = torch.softmax(logits.detach(), dim=2)
    agreed = P.mean(0) ** 2
    pull = 2 * (P - agreed / agreed.sum(1, keepdim=True)) / (4 * 3)
    torch.testing.assert_close(logits.grad, P * (pull - (P * pull).sum(2, keepdims=True)))


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "gat"}, "name must be one of gd, .*, got 'gat'"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"hidden": 0}, "hidden must be"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Baseline(**{"name": "adam"} | settings).fit(communities())


@pytest.mark.parametrize("name", ["gcn", "grand"])
def test_what_needs_a_graph_says_so(name: str, tiny_graph: Data) -> None:
    with pytest.raises(InputError, match=f"{name} needs a graph"):
        Baseline(name).fit(tiny_graph.x.numpy(), tiny_graph.y.numpy())
    fitted = Baseline(name, hidden=8, epochs=2).fit(tiny_graph)
    with pytest.raises(InputError, match="1 features, the model was"):
        fitted.predict(Data(x=tiny_graph.x[:, :1], edge_index=tiny_graph.edge_index))
    tiny_graph.edge_index = None
    for ask in (Baseline(name).fit, fitted.predict):
        with pytest.raises(InputError, match="'edge_index' is missing"):
            ask(tiny_graph)
