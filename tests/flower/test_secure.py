"""Secure sums in a federation: ServerApp and ClientApps on a Grid of nodes in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("flwr")

import torch

import tunefree
from tests.flower.nodes import Nodes, build_model, config, load_test, samples
from tunefree.flower.federation import Federation
from tunefree.run.engine import Training
from tunefree.secure.roster import Roster, new_identity

METHODS = ("polarfl", "polarfl_stateless", "padamfed", "parfrefl", "mime", "fedavgm")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(f"tunefree.flower.pace.{name}", 0.001)
    monkeypatch.setattr("tunefree.flower.transport.FRESH", 0.0)
    monkeypatch.setattr("tunefree.flower.nodes.AGAIN", 0.01)
    node = pytest.importorskip("tunefree.secure.node")
    monkeypatch.setattr(node, "SCHEMA", node.SCHEMA.replace("= EXTRA", "= OFF"))


def secured(folder: Path, places: Iterable[int], **settings: Any) -> Nodes:
    """Nodes with a roster and a key each, of a run with secure sums."""
    places = list(places)
    keys = {place: new_identity(folder / f"key{place}").public for place in places}
    (folder / "roster").write_text(Roster("tests", keys).text())
    given = {"secure": True, "roster": str(folder / "roster"), "clients": len(places)}
    nodes = Nodes(folder, places, config(folder, **given | settings))
    nodes.config = {"roster": str(folder / "roster"), "roster-key": str(folder / "key{}")}
    return nodes


def federated(nodes: Nodes) -> Training:
    return Federation(cast("Any", nodes), nodes.run_config, build_model, load_test(None)).run()


def trained(nodes: Nodes) -> Training:
    run = federated(nodes)
    list(run)
    return run


def simulated(n: int, name: str, rounds: int = 8) -> tunefree.Run:
    torch.manual_seed(int(tunefree.core.stream(0, "model").integers(2**31)))
    return tunefree.train(
        build_model(),
        [samples(place) for place in range(n)],
        samples(99),
        algorithm=name,
        rounds=rounds,
        local_steps=1,
        batch_size=8,
        eval_every=4,
        secure=True,
        progress=False,
    )


@pytest.mark.parametrize("name", METHODS)
def test_the_same_bits_and_traffic_as_the_simulator(name: str, tmp_path: Path) -> None:
    run = trained(secured(tmp_path, range(4), algorithm=name))
    expected = simulated(4, name)
    assert run.theta_sha256 == expected.theta_sha256
    for kind in ("bits_up", "bits_down", "accuracy"):
        assert run.record.history()[-1][kind] == expected.history[-1][kind]
