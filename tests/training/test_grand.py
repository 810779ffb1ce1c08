from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from experiments import cells
from pdadmm_g import GAMLP, GAMLPClassifier, InputError
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.augmentation import GraphAugment, NodeCopies
from pdadmm_g.data.examples import Examples
from pdadmm_g.runs.export import export
from pdadmm_g.training import grand
from pdadmm_g.training.fit import fit
from pdadmm_g.training.grand import CopiesLearner
from pdadmm_g.training.prepare import prepare_graph

#: A path of four nodes, and a node alone.
EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])
X = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
TRAINING = torch.tensor([3, 0])
SETTINGS = {"method": "grand", "hops": 2, "hidden": 8, "epochs": 60, "random_state": 0}


@pytest.fixture
def fitted(tiny_graph: Data) -> GAMLPClassifier:
    return GAMLPClassifier(**SETTINGS).fit(tiny_graph)


def node_copies(normalize: str = "unit") -> NodeCopies:
    augment = GraphAugment("average", 3, teleport=1 / 4, normalize=normalize)
    return NodeCopies.of(augment.copies(augment.source(Data(x=X, edge_index=EDGES))), TRAINING)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits)
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("weights", [None, torch.tensor([3.0, 0.5])])
def test_the_loss_of_a_step_by_hand(weights: torch.Tensor | None) -> None:
    """Everything from the adjacency on; which nodes were dropped is read off the copies of raw features."""
    torch.manual_seed(1)
    model = GAMLP([4, 3, 2])
    examples = Examples(torch.zeros(2, 4), torch.tensor([1, 0]), weights)
    learner = CopiesLearner(model, 0.0, node_copies("none"), 4, seed=5)
    loss = float(learner.loss(examples, "cross-entropy").detach())

    A = np.eye(5)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        A[a, b] = A[b, a] = 1
    scale = 1 / np.sqrt(A.sum(1))
    A = scale[:, None] * A * scale
    mean = sum(np.linalg.matrix_power(A, k) for k in range(4)) / 4
    H = X.numpy() / X.numpy().sum(1, keepdims=True)
    generator = torch.Generator().manual_seed(5)
    others = np.array([1, 2, 4])[torch.randperm(3, generator=generator).numpy()]
    dropped = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
    (W1, b1), (W2, b2) = ((linear.weight.detach().numpy(), linear.bias.detach().numpy()) for linear in model.linears)
    P = []
    for _ in range(4):
        kept = torch.rand(5, 1, generator=dropped).numpy() >= 0.5
        rows = (mean @ (2 * kept * H))[[3, 0, *others]]
        P.append(softmax(np.maximum(rows @ W1.T + b1, 0) @ W2.T + b2))
    shares = np.array([1, 1]) if weights is None else weights.numpy()
    risk = np.mean([-(shares * np.log([p[0, 1], p[1, 0]])).sum() / shares.sum() for p in P])
    agreed = np.mean(P, axis=0) ** 2
    agreed /= agreed.sum(1, keepdims=True)
    apart = np.mean([((agreed - p) ** 2).sum(1).mean() for p in P])
    assert apart > 1e-3
    assert loss == pytest.approx(risk + apart, rel=1e-5)


def test_no_gradient_goes_through_what_the_copies_agree_on() -> None:
    logits = torch.randn(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    grand.disagreement(logits).backward()
    P = torch.softmax(logits.detach(), dim=2)
    agreed = P.mean(0) ** 2
    agreed /= agreed.sum(1, keepdim=True)
    pull = 2 * (P - agreed) / 12
    torch.testing.assert_close(logits.grad, P * (pull - (P * pull).sum(2, keepdim=True)))


def test_copies_serve_a_few_steps_and_are_drawn_anew() -> None:
    learner = CopiesLearner(GAMLP([4, 3, 2]), 0.0, node_copies(), 4, seed=0)
    seen = []
    for _ in range(2 * grand.STEPS):
        learner.loss(Examples(torch.zeros(2, 4), torch.tensor([1, 0])), "cross-entropy")
        seen.append(learner.rows)
    first, second = seen[: grand.STEPS], seen[grand.STEPS :]
    assert all(rows is first[0] for rows in first)
    assert all(rows is second[0] for rows in second)
    assert not torch.equal(first[0], second[0])


def test_rows_that_train_come_first_and_others_are_a_sample() -> None:
    copies = node_copies()
    assert copies.others.tolist() == [1, 2, 4]
    generator = torch.Generator().manual_seed(0)
    seed = torch.Generator().manual_seed(0)
    torch.randperm(3, generator=seed)
    rows = copies.draw(3, 1, generator)
    assert rows.shape == (3, 3, 4)
    wanted = copies.copies.draw(TRAINING, 3, int(torch.randint(2**62, (), generator=seed)))
    assert torch.equal(rows[:, :2], wanted)


def test_learns_and_is_the_same_for_a_seed(tiny_graph: Data, fitted: GAMLPClassifier) -> None:
    assert fitted.score(tiny_graph) > 0.9
    best = max(record["val_accuracy"] for record in fitted.history_)
    assert fitted.score(tiny_graph, tiny_graph.val_mask) == best
    again, other = (GAMLPClassifier(**SETTINGS | {"random_state": seed}).fit(tiny_graph) for seed in (0, 1))
    for a, b in zip(fitted.model_.parameters(), again.model_.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(fitted.model_.linears[0].weight, other.model_.linears[0].weight)


def test_what_is_usual_for_it() -> None:
    config = ModelConfig(method="grand").resolved()
    assert (config.augment, config.hops, config.teleport, config.normalize) == ("average", 8, 1 / 9, "unit")
    assert (config.learning_rate, config.weight_decay) == (0.01, 0.07)
    assert config.resolved() == config
    assert ModelConfig(method="grand", hops=3).resolved().teleport == 1 / 4
    assert ModelConfig(method="grand", teleport=0.05).resolved().teleport == 0.05
    assert ModelConfig(method="grand", augment="hops").resolved().hops == 4
    assert ModelConfig(method="adam").resolved().teleport is None


def test_a_graph_on_which_every_node_trains(tiny_graph: Data) -> None:
    tiny_graph.train_mask[:] = True
    del tiny_graph.val_mask, tiny_graph.test_mask
    config = ModelConfig(method="grand", hops=2, hidden=8, epochs=60, validation=0).resolved()
    problem = prepare_graph(tiny_graph, config, seed=0)
    assert problem.copies is not None
    assert len(problem.copies.others) == 0
    result = fit(problem, seed=0)
    assert problem.training.targets.accuracy(result.model(problem.training.X)) > 0.9


def test_save_load_and_export(fitted: GAMLPClassifier, tiny_graph: Data, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    again = GAMLPClassifier.load(tmp_path / "model.safetensors")
    assert (again.config_.method, again.config_.teleport) == ("grand", 1 / 3)
    np.testing.assert_array_equal(again.predict_proba(tiny_graph), fitted.predict_proba(tiny_graph))
    nodes = [7, 2]
    np.testing.assert_array_equal(again.predict(tiny_graph, nodes), fitted.predict(tiny_graph)[nodes])
    export(again, tmp_path / "exported.safetensors", "safetensors")
    assert (tmp_path / "exported.safetensors").exists()


def test_what_needs_the_graph_says_so(tiny_graph: Data) -> None:
    with pytest.raises(InputError, match="method grand needs a graph: pass a torch_geometric Data, not a matrix"):
        GAMLPClassifier(**SETTINGS).fit(tiny_graph.x.numpy(), tiny_graph.y.numpy())
    tiny_graph.edge_index = None
    with pytest.raises(InputError, match="'edge_index' is missing; method grand needs it"):
        GAMLPClassifier(**SETTINGS).fit(tiny_graph)


def test_as_a_cell_of_a_table(graph_file: Path) -> None:
    """Also after another method with the same features, of which it needs no copies."""
    same = {"augment": "average", "hops": 2, "teleport": 1 / 3, "normalize": "unit", "hidden": 8}
    cells.run_once(str(graph_file), same | {"method": "adam", "layers": 2, "epochs": 2}, 0, None)
    row = cells.run_once(str(graph_file), same | {"method": "grand", "epochs": 60}, 0, None)
    assert row["test_accuracy"] > 0.9
    assert row["val_accuracy"] > 0.9
