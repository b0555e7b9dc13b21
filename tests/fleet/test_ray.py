"""On a Ray cluster of two nodes: same bits, failures named, deaths of actors and nodes survived."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ray")

import ray

import tunefree
from tests.blobs import blobs
from tests.problem import simulate
from tunefree.core import Oracle, System
from tunefree.errors import FleetError
from tunefree.fleet.job import Job
from tunefree.fleet.ray import SILENT, Ray, places
from tunefree.methods.registry import build
from tunefree.schedule.simulate import simulate as play
from tunefree.testing import Problem, QuadraticOracle, quadratic

# Ray leaves open the files to which its processes write.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
SYS = System(N=5, S=3, K=2, T=8)
FAST = {"health_check_period_ms": 500}  # a dead node is noticed after the fifth
SECONDS = 60.0  # for anything to happen


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each; we are on the first."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": FAST}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SILENT.items():
            patch.setenv(name, value)
        made: Any = None
        try:
            try:
                made = Cluster(initialize_head=True, head_node_args=head)
                made.add_node(num_cpus=1)
                ray.init(address=made.address, log_to_driver=False)
            except Exception as error:  # its own limits on time, on a busy machine
                pytest.skip(f"Ray does not start here: {error}")
            yield made
        finally:
            ray.shutdown()
            if made is not None:
                made.shutdown()


@pytest.fixture
def fleets(cluster: Any) -> Iterator[Callable[..., Ray]]:
    opened: list[Ray] = []

    def make(name: str, wrong: Callable[[Job], None]) -> Ray:
        problem, algo = quadratic(N=5), build(name, SYS)
        opened.append(Ray(algo, torch.from_numpy(problem.theta0), of(problem, wrong), workers=2))
        return opened[-1]

    yield make
    for fleet in opened:
        fleet.close()


def of(problem: Problem, wrong: Callable[[Job], None]) -> Callable[[Job], Oracle]:
    def oracle_of(job: Job) -> Oracle:
        oracle = QuadraticOracle(problem, job)
        draw = oracle.draw

        def wrongly() -> Any:
            wrong(job)
            return draw()

        oracle.draw = wrongly  # type: ignore[method-assign]
        return oracle

    return oracle_of


def steps(fleet: Ray, name: str) -> list[Any]:
    problem = quadratic(N=5)
    theta0 = torch.from_numpy(problem.theta0)
    return list(play(build(name, SYS), fleet, theta0, problem.seed))


@pytest.mark.slow
def test_a_run_starts_a_cluster_of_its_own() -> None:
    assert not ray.is_initialized()
    assert train("ray") == train("serial")
    assert not ray.is_initialized()


@pytest.mark.parametrize("name", ["padamfed", pytest.param("comparfrefl", marks=pytest.mark.slow)])
def test_same_bits_as_serial_although_an_actor_dies(
    name: str, tmp_path: Path, fleets: Callable[..., Ray]
) -> None:
    died = tmp_path / "died"

    def die_once(job: Job) -> None:
        if job.client == 2 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    found = steps(fleets(name, die_once), name)
    assert died.exists()
    for step, expected in zip(found, simulate(build(name, SYS), quadratic(N=5)).steps, strict=True):
        assert step.traffic == expected.traffic
        for mine, theirs in zip(step.server, expected.server, strict=True):
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(theirs))


def test_a_client_that_fails_is_named(fleets: Callable[..., Ray]) -> None:
    def fail(job: Job) -> None:
        if job.client == 1:
            raise ValueError("no data")

    fleet = fleets("padamfed", fail)
    with pytest.raises(FleetError, match=r"client 1 failed in exchange 0 of the opening.*no data"):
        steps(fleet, "padamfed")


def train(fleet: Any, loss: Any = torch.nn.functional.cross_entropy) -> str:
    torch.manual_seed(0)
    return tunefree.train(
        torch.nn.Linear(4, 3),
        blobs(),
        loss=loss,
        rounds=12,
        per_round=4,
        local_steps=2,
        fleet=fleet,
        workers=2,
        progress=False,
    ).theta_sha256


def test_a_node_that_is_killed_in_a_round_changes_no_bit(cluster: Any, tmp_path: Path) -> None:
    """Its jobs are done again on the other one; a new node is used again."""
    home, doomed = ray.get_runtime_context().get_node_id(), next(iter(cluster.worker_nodes))
    working = tmp_path / "working"

    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        import ray

        if ray.is_initialized() and ray.get_runtime_context().get_node_id() != home:
            working.open("a").write(".")
            if working.stat().st_size == 20:
                time.sleep(SECONDS)  # in the middle of a round
        return torch.nn.functional.cross_entropy(out, y)

    def kill() -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not (working.exists() and working.stat().st_size >= 20):
            time.sleep(0.05)
        cluster.remove_node(doomed, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    found = train("ray", loss)
    killer.join()
    assert working.stat().st_size == 20
    end = time.monotonic() + SECONDS
    while places() > 1 and time.monotonic() < end:  # until Ray has noticed
        time.sleep(0.1)
    assert places() == 1
    assert found == train("serial")

    cluster.add_node(num_cpus=1)
    assert found == train("ray", loss)
    assert working.stat().st_size > 20
