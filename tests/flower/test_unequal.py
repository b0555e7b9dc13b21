"""Unequal clients and own algorithms in a deployment, on a Grid of nodes in this process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import Context, Message

import tunefree
from tests.flower.nodes import N_SAMPLES, Nodes, build_model, config, load_data, samples
from tests.flower.test_federation import assert_means, federated, federation, quick, trained
from tunefree.errors import ConfigError, FleetError
from tunefree.flower import settings as flower_settings
from tunefree.flower.clientapp import client_app
from tunefree.flower.envelope import Envelope, unpack
from tunefree.methods import FedAvg, registry
from tunefree.run.run import Run
from tunefree.schedule.membership import cohort

__all__ = ["quick"]  # short waits, in every test here too
pytestmark = pytest.mark.filterwarnings("ignore:the formula gives beta ")
PLACES = (0, 5, 20)  # they have 24, 29 and 44 samples: 3, 4 and 6 batches of 8


def deployed(tmp_path: Path, places: Any = PLACES, **settings: Any) -> Nodes:
    run_config = config(tmp_path, **settings)
    if "local_epochs" in settings:
        del run_config["local_steps"]
    return Nodes(tmp_path, places, run_config)


def simulated(**settings: Any) -> Run:
    torch.manual_seed(int(tunefree.core.stream(0, "model").integers(2**31)))
    data = [samples(place) for place in PLACES]
    usual: dict[str, Any] = {"rounds": 8, "batch_size": 8, "fleet": "serial", "progress": False}
    return tunefree.train(build_model(), data, **(usual | settings))


@pytest.mark.parametrize("name", ["polarfl", "padamfed", "scaffold"])
def test_epochs_give_the_simulators_bits(name: str, tmp_path: Path) -> None:
    nodes = deployed(tmp_path, algorithm=name, local_epochs=2)
    run, _ = trained(nodes)
    assert run.algo.sys.K == round((6 + 8 + 12) / 3) == 9
    same = simulated(algorithm=name, local_epochs=2)
    assert run.theta_sha256 == same.theta_sha256
    assert run.history[-1]["samples"] == same.history[-1]["samples"]
    assert_means(nodes, run, N=3)
    assert run.record.facts().sizes == [24, 29, 44]


@pytest.mark.parametrize("choice", ["sampling", "weighting"])
def test_examples_give_the_simulators_bits(choice: str, tmp_path: Path) -> None:
    choices: dict[str, Any] = {"algorithm": "fedprox", "per_round": 2, choice: "examples"}
    run, _ = trained(deployed(tmp_path, **choices))
    assert run.theta_sha256 == simulated(local_steps=1, **choices).theta_sha256
    plain = simulated(local_steps=1, algorithm="fedprox", per_round=2)
    assert run.theta_sha256 != plain.theta_sha256


def test_a_restarted_server_knows_the_sizes_of_disconnected_clients(tmp_path: Path) -> None:
    choices: dict[str, Any] = {"local_epochs": 1, "sampling": "examples", "per_round": 2}
    whole, _ = trained(deployed(tmp_path / "a", **choices))
    trained(deployed(tmp_path / "b", **choices), rounds=5)
    again = deployed(tmp_path / "b", places=(0, 5), clients=2, **choices)
    rest, rows = trained(again)
    assert rows[0]["t"] == 5
    assert rest.algo.sys == whole.algo.sys
    assert rest.record.facts().sizes == [24, 29, 44]
    cohorts = [cohort(0, t, rest.algo.sys, rest.members.odds) for t in range(5, 8)]  # type: ignore[attr-defined]
    assert any(2 in chosen for chosen in cohorts)  # and was replaced


def test_a_newcomer_changes_the_mean(tmp_path: Path) -> None:
    nodes = deployed(tmp_path, places=(0, 5), clients=2, local_epochs=1)
    run = federated(nodes)
    for row in run:
        if row["t"] == 2:
            assert round((3 + 4) / 2) == run.algo.sys.K
            nodes.places[1020] = 20
    assert round((3 + 4 + 6) / 3) == run.algo.sys.K
    assert run.record.facts().system["K"] == run.algo.sys.K
    assert_means(nodes, run, N=3)


def test_late_clients_are_asked_by_their_odds(tmp_path: Path) -> None:
    choices: dict[str, Any] = {"schedule": "buffered", "per_round": 1, "concurrency": 1}
    nodes = deployed(tmp_path, places=range(0, 400, 100), clients=4, rounds=40, **choices)
    nodes.run_config["sampling"] = "examples"
    run, _ = trained(nodes)
    uploads = run.record.uploads()
    assert uploads[3] > 2 * uploads.get(0, 0)  # 324 samples, and 24


def test_a_run_does_not_resume_with_other_sampling_or_epochs(tmp_path: Path) -> None:
    trained(deployed(tmp_path, local_epochs=1), rounds=2)
    with pytest.raises(ConfigError, match="local_epochs was 1, and now it is 2; change"):
        federated(deployed(tmp_path, local_epochs=2))
    with pytest.raises(ConfigError, match="local_steps was not given, and now it is 1; local_"):
        federated(deployed(tmp_path))
    with pytest.raises(ConfigError, match="sampling was uniform, and now it is examples; change"):
        federated(deployed(tmp_path, local_epochs=1, sampling="examples"))


def test_a_run_does_not_resume_with_another_way_to_aggregate(tmp_path: Path) -> None:
    trained(deployed(tmp_path, algorithm="fedprox"), rounds=2)
    changes = [
        ("weighting", "uniform", "examples"),
        ("decay", "none", "linear"),
        ("robust", "none", "median"),
        ("average", "off", "on"),
    ]
    for key, before, now in changes:
        with pytest.raises(ConfigError, match=f"{key} was {before}, and now it is {now}; change"):
            federated(deployed(tmp_path, algorithm="fedprox", **{key: now}))


def test_clients_report_their_size_only_if_it_is_needed(tmp_path: Path) -> None:
    """A client does not load its data to say hello, and an older one understands the message."""
    nodes = deployed(tmp_path)
    run, _ = trained(nodes)
    hellos = [m for m in nodes.received if "place" in cast("Any", m.content["tunefree"])]
    assert hellos
    assert all(set(cast("Any", m.content["tunefree"])) == {"place"} for m in hellos)
    job = next(m for m in nodes.sent if m.metadata.message_type == "train")
    assert "K" not in cast("Any", job.content["tunefree"])
    assert unpack(job.content, Envelope, "the server").K == 0
    assert run.record.facts().sizes == []


def test_a_node_that_stays_loads_its_data_once_hello_included(tmp_path: Path) -> None:
    loaded: list[int] = []

    def load(context: Context) -> Any:
        loaded.append(context.node_id)
        return load_data(context)

    nodes = deployed(tmp_path, places=[5], clients=1, local_epochs=1, evaluate_on_clients=True)
    nodes.app = client_app(build_model, load)
    run, _ = trained(nodes)
    assert run.record.facts().sizes == [29]
    assert loaded == [1005]


@pytest.mark.parametrize("epochs", [False, True])
def test_a_node_that_stays_reads_its_settings_and_builds_its_algorithm_once(
    epochs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of messages, as long as N and K stay the same."""
    counts = Counter[str]()
    for owner, name in ((flower_settings, "load"), (registry, "configure")):
        counted(counts, owner, name, monkeypatch)
    settings: dict[str, Any] = {"local_epochs": 1} if epochs else {}
    nodes = deployed(tmp_path, places=[5], clients=1, evaluate_on_clients=True, **settings)
    run = federation(nodes).run()
    before, seen = Counter[str](), 0
    for row in run:
        if row["t"] == 1:  # the opening and two rounds: both sides have what they need
            before, seen = counts.copy(), len(nodes.sent)
    assert len(nodes.sent) > seen + 6
    assert counts == before
    assert counts["configure"] == 3  # for the check, the server and the client


def counted(counts: Counter[str], owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the calls of a module's function."""
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        counts[name] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


def test_a_client_that_does_not_report_its_size_is_named(tmp_path: Path) -> None:
    nodes = deployed(tmp_path, local_epochs=1)

    def silent(node: int, reply: Message) -> Message:
        words = cast("Any", reply.content.get("tunefree"))
        if node == 1005 and words is not None and "samples" in words:
            del words["samples"]
        return reply

    nodes.change = silent
    with pytest.raises(FleetError, match="partition 5 did not report how many samples it has"):
        federated(nodes)


def test_a_client_whose_data_fails_is_named(tmp_path: Path) -> None:
    nodes = deployed(tmp_path, local_epochs=1, wait=0.05)
    nodes.places = {1000: 0, 1005: 5, 1001: -N_SAMPLES}  # which has no samples at all
    with pytest.raises(FleetError, match=r"2 of 3 clients connected within .* \(node 1001: "):
        federated(nodes)


OWN = "tests.flower.own_method:Mine"


def test_an_own_algorithm_by_its_path(tmp_path: Path) -> None:
    run, _ = trained(deployed(tmp_path, algorithm=OWN, **{"option.eta": 0.2}))
    assert run.record.facts().title == "Mine"
    assert run.theta_sha256 == simulated(algorithm=FedAvg(eta=0.2), local_steps=1).theta_sha256
    with pytest.raises(ConfigError, match="option.etta = 0.2 is not an option of Mine"):
        federated(deployed(tmp_path / "b", algorithm=OWN, **{"option.etta": 0.2}))
