from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from experiments import cells
from pdadmm_g import GAMLP, GAMLPClassifier, InputError
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.augmentation import GraphAugment, whole_graph
from pdadmm_g.data.examples import Examples, WholeGraph
from pdadmm_g.data.propagation import renormalized_adjacency
from pdadmm_g.model import GCN, _dropped
from pdadmm_g.runs.export import export
from pdadmm_g.training.gcn import train_gcn

#: A path of four nodes given one way, one edge of it twice, a loop, and a node alone.
EDGES = torch.tensor([[0, 1, 1, 2, 3], [1, 2, 2, 3, 3]])
X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
SETTINGS = {"method": "gcn", "hidden": 8, "epochs": 60, "random_state": 0}


@pytest.fixture
def model() -> GCN:
    torch.manual_seed(1)
    model = GCN([4, 3, 2])
    with torch.no_grad():
        for linear in model.linears:
            linear.bias.normal_()
    return model.eval()


@pytest.fixture
def fitted(tiny_graph: Data) -> GAMLPClassifier:
    return GAMLPClassifier(**SETTINGS).fit(tiny_graph)


def test_forward_by_hand(model: GCN) -> None:
    A = np.eye(5)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        A[a, b] = A[b, a] = 1
    scale = 1 / np.sqrt(A.sum(1))
    A = scale[:, None] * A * scale
    (W1, b1), (W2, b2) = ((linear.weight.detach().numpy(), linear.bias.detach().numpy()) for linear in model.linears)
    hidden = np.maximum(A @ X.numpy() @ W1.T + b1, 0)
    with torch.no_grad():
        logits = model(X, renormalized_adjacency(EDGES, 5))
        alone = model(X)
    np.testing.assert_allclose(logits, A @ hidden @ W2.T + b2, atol=1e-6)
    np.testing.assert_allclose(alone, np.maximum(X.numpy() @ W1.T + b1, 0) @ W2.T + b2, atol=1e-6)


def test_the_same_as_that_of_torch_geometric(model: GCN) -> None:
    both_ways = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    theirs = X
    with torch.no_grad():
        for index, linear in enumerate(model.linears):
            layer = GCNConv(linear.in_features, linear.out_features)
            layer.lin.weight.copy_(linear.weight)
            layer.bias.copy_(linear.bias)
            theirs = layer(theirs.relu() if index else theirs, both_ways)
        torch.testing.assert_close(model(X, renormalized_adjacency(EDGES, 5)), theirs)


def test_starts_as_glorot_and_bengio_say() -> None:
    weight, bias = (parameter.detach() for parameter in GCN([200, 100, 2]).linears[0].parameters())
    assert float(weight.abs().max()) == pytest.approx((6 / 300) ** 0.5, rel=1e-2)
    assert not bias.any()


def test_sparse_features_are_the_same_features() -> None:
    words = torch.zeros(5, 60)
    words[torch.arange(5), torch.arange(5) * 7] = torch.arange(1.0, 6.0)
    augment = GraphAugment("none", 1, row_normalize=False, normalize="none")
    graph = whole_graph(Data(x=words, edge_index=EDGES), augment, "cpu")
    assert graph.X.layout == torch.sparse_csr
    wide = GCN([60, 3, 2])
    wide(*graph).sum().backward()
    ours = [parameter.grad.clone() for parameter in wide.parameters()]
    wide.zero_grad()
    wide(words, graph.A).sum().backward()
    torch.testing.assert_close(ours, [parameter.grad for parameter in wide.parameters()])
    torch.manual_seed(0)
    dropped = _dropped(graph.X, 0.5).to_dense()
    left = dropped != 0
    assert 0 < int(left.sum()) < 5
    assert torch.equal(dropped[left], 2 * words[left])
    assert whole_graph(Data(x=X, edge_index=EDGES), augment, "cpu").X.layout == torch.strided


def test_only_the_first_layer_is_pulled_to_zero() -> None:
    """Without features there is no gradient for the weights: what moves is what weight decay moves."""
    graph = WholeGraph(torch.zeros(5, 4), renormalized_adjacency(EDGES, 5))
    training = Examples(torch.tensor([0, 3]), torch.tensor([0, 1]))
    config = ModelConfig(method="gcn", hidden=3, epochs=5, weight_decay=1.0, patience=None)
    torch.manual_seed(7)
    start = GCN([4, 3, 2])
    trained = train_gcn(training, None, 2, config, graph=graph, seed=7).model
    assert bool(trained.linears[0].weight.norm() < start.linears[0].weight.norm())
    assert torch.equal(trained.linears[1].weight, start.linears[1].weight)


def test_learns_and_keeps_the_best_epoch(tiny_graph: Data, fitted: GAMLPClassifier) -> None:
    assert fitted.score(tiny_graph) > 0.9
    config = fitted.config_
    assert (config.augment, config.normalize, config.learning_rate, config.weight_decay) == ("none", "none", 0.01, 0.07)
    best = max(record["val_accuracy"] for record in fitted.history_)
    assert fitted.score(tiny_graph, tiny_graph.val_mask) == best
    again = GAMLPClassifier(**SETTINGS).fit(tiny_graph)
    for a, b in zip(fitted.model_.parameters(), again.model_.parameters(), strict=True):
        assert torch.equal(a, b)


def test_save_and_load(fitted: GAMLPClassifier, tiny_graph: Data, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    again = GAMLPClassifier.load(tmp_path / "model.safetensors")
    assert isinstance(again.model_, GCN)
    np.testing.assert_array_equal(again.predict_proba(tiny_graph), fitted.predict_proba(tiny_graph))
    nodes = [7, 2]
    np.testing.assert_array_equal(again.predict(tiny_graph, nodes), fitted.predict(tiny_graph)[nodes])
    isolated = Data(x=tiny_graph.x, edge_index=torch.empty(2, 0, dtype=torch.int64))
    assert np.abs(again.predict_proba(isolated) - fitted.predict_proba(tiny_graph)).max() > 1e-3


def test_a_file_of_another_network_than_its_method(fitted: GAMLPClassifier, tmp_path: Path) -> None:
    fitted.model_ = GAMLP(fitted.model_.widths)
    fitted.save(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="its network is not that of its method"):
        GAMLPClassifier.load(tmp_path / "model.safetensors")


def test_what_needs_the_graph_says_so(fitted: GAMLPClassifier, tiny_graph: Data, tmp_path: Path) -> None:
    matrix = tiny_graph.x.numpy()
    with pytest.raises(InputError, match="method gcn needs a graph: pass a torch_geometric Data, not a matrix"):
        GAMLPClassifier(**SETTINGS).fit(matrix, tiny_graph.y.numpy())
    with pytest.raises(InputError, match="fitted on a graph"):
        fitted.predict(matrix)
    lost = tiny_graph.clone()
    lost.edge_index = None
    for ask in (GAMLPClassifier(**SETTINGS).fit, fitted.predict):
        with pytest.raises(InputError, match="'edge_index' is missing; method gcn needs it"):
            ask(lost)
    with pytest.raises(InputError, match="cannot be exported"):
        export(fitted, tmp_path / "model.onnx", "onnx")


def test_as_a_cell_of_a_table(graph_file: Path) -> None:
    """Also after another method with the same features, whose rows are not nodes."""
    alone = {"method": "adam", "augment": "none", "normalize": "none", "layers": 2, "hidden": 8, "epochs": 2}
    cells.run_once(str(graph_file), alone, 0, None)
    row = cells.run_once(str(graph_file), {"method": "gcn", "hidden": 8, "epochs": 60}, 0, None)
    assert row["test_accuracy"] > 0.9
    assert row["val_accuracy"] > 0.9
