"""What is left open: learning from unlabelled nodes, weight decay, workers and shards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier
from pdadmm_g.config import ModelConfig
from pdadmm_g.errors import InputError
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training import choose
from pdadmm_g.training.choose import DECAYS_PER_LABEL, KEPT, OPERATORS, SHARPNESSES, choose_mesh, choose_weight_decay
from pdadmm_g.training.prepare import prepare_graph
from pdadmm_g.training.train import train

SMALL = {"layers": 2, "hidden": 8, "epochs": 5}


@pytest.fixture(autouse=True)
def short(monkeypatch) -> None:
    monkeypatch.setattr(choose, "ROUNDS", 1)


def prepared(data, **settings):
    return prepare_graph(data, ModelConfig(**SMALL | settings).resolved(), seed=0)


def scored(monkeypatch, *, alone: float, taught: float | None = None) -> list[ModelConfig]:
    """Short runs end with these accuracies, where given, alone and taught; the settings of each."""
    entry, ran = choose.Race._entry, []

    def run(race, config):
        ran.append(config)
        found = entry(race, config)._replace(alone=alone)
        return found if taught is None else found._replace(score=(taught, 0.0))

    monkeypatch.setattr(choose.Race, "_entry", run)
    return ran


@pytest.mark.parametrize(
    ("data", "settings", "why"),
    [
        (communities(noise=4.0, homophily=False), {}, "hardly more often than chance"),
        (communities(24), {}, "38% of all nodes train"),
        (communities(), {"augment": "hops"}, "not averages over hops but hops"),
    ],
    ids=["heterophily", "plenty of labels", "hop blocks"],
)
def test_where_they_cannot_help_nodes_without_labels_are_not_asked(data, settings, why, monkeypatch) -> None:
    monkeypatch.setattr(choose.Race, "run", lambda *_, **__: pytest.fail("a race was run"))
    problem = prepared(data, **settings)
    assert problem.config.unlabelled == 0
    assert problem.copies is None
    assert problem.config.components is None
    reason, features = problem.reasons
    assert features.startswith("features: ")
    assert reason.startswith("nodes without labels do not teach: ")
    assert why in reason


def test_without_validation_nodes_labelled_ones_are_alone() -> None:
    data = communities()
    del data.val_mask
    reasons = prepared(data, validation=0).reasons
    assert any("nodes without labels do not teach: there are no validation nodes" in reason for reason in reasons)


def test_the_race_fills_in_all_that_is_open_and_says_why(monkeypatch) -> None:
    ran = scored(monkeypatch, alone=0.0)
    problem = prepared(communities(200, noise=4.0, labels=2))
    config = problem.config
    assert config.unlabelled == choose.UNLABELLED
    assert problem.copies is not None
    assert (config.hops, config.teleport) in OPERATORS
    assert config.normalize in ("unit", "centered")
    assert config.weight_decay in [pytest.approx(each * 6) for each in DECAYS_PER_LABEL]
    assert config.sharpness in SHARPNESSES
    assert config.drop_entries == 0.0  # hardly any of the features is zero
    # The features that suit a linear model best with both decays, and the best of these with other exponents.
    assert len({(each.hops, each.teleport, each.normalize) for each in ran}) == KEPT
    assert len(ran) == len(DECAYS_PER_LABEL) * KEPT + len(SHARPNESSES) - 1
    assert problem.reasons[0].startswith("nodes without labels teach: validation 0.")
    assert f"average of {config.hops} hops" in problem.reasons[1]


def test_single_features_are_dropped_where_most_are_zero_unless_that_does_harm(monkeypatch) -> None:
    scored(monkeypatch, alone=0.0)
    data = communities(200, noise=4.0, labels=2, features=40)
    data.x *= torch.rand(data.x.shape, generator=torch.Generator().manual_seed(1)) < 0.08
    monkeypatch.setattr(choose, "_score", lambda entry: (entry.config.drop_entries, *entry.score))
    problem = prepared(data)
    assert problem.config.drop_entries == 0.6
    assert problem.copies.drop_entries == 0.6
    assert "single features dropped with probability 0.6" in problem.reasons[2]
    monkeypatch.setattr(choose, "_score", lambda entry: (-entry.config.drop_entries, *entry.score))
    assert prepared(data, unlabelled=20).config.drop_entries == 0.0


def test_runs_at_the_same_time_are_as_they_are_alone(monkeypatch) -> None:
    runs, races = choose.short_runs, []
    for cores in ({0}, {0, 1, 2}):
        races.append([])
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores)
        monkeypatch.setattr(choose, "short_runs", lambda *given: (found := runs(*given), races[-1].extend(found))[0])
        prepared(communities(200, noise=4.0, labels=2))
    assert races[0] == races[1]
    assert len(races[0]) == len(DECAYS_PER_LABEL) * KEPT + len(SHARPNESSES) - 1


def test_what_is_given_stays_and_nothing_is_raced_where_nothing_is_open(monkeypatch) -> None:
    monkeypatch.setattr(choose.Race, "_entry", lambda *_: pytest.fail("a short run"))
    given = {"hops": 3, "teleport": 0.1, "normalize": "unit", "weight_decay": 0.2, "sharpness": 4.0, "unlabelled": 10}
    config = prepared(communities(), **given).config
    assert {name: getattr(config, name) for name in given} == given
    assert config.augment == "average"


def test_where_they_do_not_help_on_validation_labelled_nodes_are_alone(monkeypatch) -> None:
    scored(monkeypatch, alone=0.99, taught=0.9)
    problem = prepared(communities())
    assert problem.config.unlabelled == 0
    why = "nodes without labels do not teach: validation 0.900 with them, 0.990 without (short runs)"
    assert problem.reasons[0] == why
    # Whoever asks for them gets them.
    assert prepared(communities(), unlabelled=20).config.unlabelled == 20


@pytest.mark.parametrize(("augment", "words"), [("none", "own features"), ("hops", "4 hop blocks")])
def test_asked_for_they_teach_with_any_features_and_more_than_there_are_means_all(augment: str, words: str) -> None:
    settings = SMALL | {"unlabelled": 10**6, "rounds": 1, "random_state": 0}
    classifier = GAMLPClassifier(**settings, augment=augment).fit(communities())
    assert (classifier.config_.augment, classifier.config_.unlabelled) == (augment, 10**6)
    assert f"features: {words}, " in classifier.choices_[1]
    assert 0 < classifier.history_[-1]["agreement"] <= 1


def test_asked_for_without_validation_they_teach_with_usual_settings() -> None:
    data = communities()
    del data.val_mask
    config = prepared(data, unlabelled=20, validation=0).config
    assert (config.hops, config.teleport, config.sharpness) == (*OPERATORS[0], SHARPNESSES[0])


def test_a_graph_without_other_nodes_has_nobody_to_ask() -> None:
    data = communities(30)
    data.train_mask[:] = True
    del data.val_mask, data.test_mask
    assert prepared(data, validation=0).config.unlabelled == 0
    assert prepared(data, unlabelled=20, validation=0).config.unlabelled == 0


def test_nodes_that_come_later_are_predicted_too() -> None:
    """The test nodes are not there yet when the model is trained."""
    data = communities(noise=2.0)
    known = (~data.test_mask).nonzero().view(-1)
    classifier = GAMLPClassifier(**SMALL | {"epochs": 30}, unlabelled=50, random_state=0).fit(
        data.to_pyg().subgraph(known)
    )
    assert classifier.score(data) > 0.6


@pytest.fixture(autouse=True)
def two_weight_decays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the grid, for speed."""
    monkeypatch.setattr(choose, "WEIGHT_DECAYS", (0.1, 1.0))


def test_weight_decay_comes_from_the_grid_and_scales_with_the_nodes() -> None:
    generator = torch.Generator().manual_seed(0)

    def examples(nodes: int) -> Examples:
        y = torch.arange(nodes) % 2
        return Examples(torch.eye(2, 4)[y] + torch.randn(nodes, 4, generator=generator), y)

    config = ModelConfig(layers=3, hidden=4).resolved()
    few = choose_weight_decay(examples(50), examples(50), 2, config, seed=0)[0].weight_decay
    assert few in choose.WEIGHT_DECAYS
    many = choose_weight_decay(examples(4000), examples(50), 2, config, seed=0)[0].weight_decay
    assert many is not None
    assert many / 4 in choose.WEIGHT_DECAYS


@pytest.mark.parametrize(("stages", "pilot"), [(None, 2), ((5,), 5)])
def test_weight_decay_is_tried_on_the_first_stage(monkeypatch: pytest.MonkeyPatch, stages, pilot: int) -> None:
    depths = set()

    def recorded(*arguments, **keywords):
        depths.add(arguments[3].stages)
        return train(*arguments, **keywords)

    monkeypatch.setattr(choose, "train", recorded)
    X, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    config = ModelConfig(layers=5, stages=stages, hidden=4).resolved()
    choose_weight_decay(Examples(X, y), Examples(X, y), 2, config, seed=0)
    assert depths == {(pilot,)}


def chosen(rows: int, processes: int | None = None, **settings) -> tuple[int, int]:
    config = ModelConfig(**{"workers": "auto", "layers": 6, "hidden": 1000, "unlabelled": 0, **settings}).resolved()
    team = None if processes is None else SimpleNamespace(size=processes)
    result, (sentence,) = choose_mesh(config, (rows, 500), 10, team)
    assert ("one process" in sentence) is (result.workers * result.shards == 1)
    assert choose_mesh(result, (rows, 500), 10, team) == (result, ())
    return result.workers, result.shards


@pytest.mark.parametrize(
    ("cores", "rows", "settings", "mesh"),
    [
        (4, 5000, {}, (4, 1)),
        (16, 5000, {}, (6, 1)),  # no more than layers
        (4, 5000, {"threads": 2}, (2, 1)),
        (4, 5000, {"shards": 2}, (2, 2)),
        (2, 5000, {"shards": 5}, (1, 5)),
        (4, 100, {"hidden": 10}, (1, 1)),  # done before processes have started
        (1, 5000, {}, (1, 1)),
    ],
)
def test_on_one_machine_a_chain_takes_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, rows: int, settings: dict, mesh: tuple[int, int]
) -> None:
    monkeypatch.setattr(choose, "usable_cores", lambda: cores)
    assert chosen(rows, **settings) == mesh


@pytest.mark.parametrize(
    ("processes", "rows", "settings", "mesh"),
    [
        (6, 5000, {}, (6, 1)),
        (8, 5000, {}, (4, 2)),
        (7, 5000, {}, (1, 7)),
        (8, 5000, {"shards": 4}, (2, 4)),
        (1, 5000, {}, (1, 1)),
    ],
)
def test_a_team_uses_all_of_its_processes(processes: int, rows: int, settings: dict, mesh: tuple[int, int]) -> None:
    assert chosen(rows, processes, **settings) == mesh


@pytest.mark.parametrize(("processes", "settings"), [(34, {}), (8, {"shards": 3})])
def test_processes_that_make_no_mesh_are_refused(processes: int, settings: dict) -> None:
    with pytest.raises(InputError, match=f"{processes} processes"):
        chosen(1, processes, **settings)
