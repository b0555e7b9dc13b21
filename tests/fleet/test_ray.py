"""On a Ray cluster: same bits, failures named, deaths survived."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ray")

from tests.problem import simulate
from tunefree.core import Oracle, System
from tunefree.errors import FleetError
from tunefree.fleet.job import Job
from tunefree.fleet.ray import Ray
from tunefree.methods.registry import build
from tunefree.schedule.simulate import simulate as play
from tunefree.settings import load
from tunefree.testing import Problem, QuadraticOracle, quadratic

pytestmark = [
    pytest.mark.slow,  # a cluster takes seconds to start
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
SYS = System(N=5, S=3, K=2, T=8)


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


@pytest.mark.parametrize("name", ["padamfed", "comparfrefl"])
def test_same_bits_as_serial_although_an_actor_dies(name: str, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def die_once(job: Job) -> None:
        if job.client == 2 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    problem, algo = quadratic(N=5), build(name, SYS)
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Ray(algo, theta0, of(problem, die_once), workers=2)
    try:
        steps = list(play(algo, fleet, theta0, problem.seed))
    finally:
        fleet.close()
    assert died.exists()
    for step, expected in zip(steps, simulate(algo, problem).steps, strict=True):
        assert step.traffic == expected.traffic
        for mine, theirs in zip(step.server, expected.server, strict=True):
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(theirs))


def test_a_client_that_fails_is_named() -> None:
    def fail(job: Job) -> None:
        if job.client == 1:
            raise ValueError("no data")

    problem, algo = quadratic(N=5), build("padamfed", SYS)
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Ray(algo, theta0, of(problem, fail), workers=2)
    try:
        with pytest.raises(
            FleetError, match="client 1 failed in exchange 0 of the opening.*no data"
        ):
            list(play(algo, fleet, theta0, problem.seed))
    finally:
        fleet.close()


def test_a_run_on_ray_has_the_bits_of_a_serial_one(tmp_path: Path) -> None:
    from tunefree.run.run import prepare

    prints = set()
    for fleet in ("ray", "serial"):
        settings = {"clients": 6, "per_round": 3, "rounds": 40, "workers": 2}
        settings |= {"fleet": fleet, "out": str(tmp_path / f"{fleet}.sqlite")}  # type: ignore[dict-item]
        run = prepare(load(None, settings))
        for _ in run:
            pass
        prints.add(run.theta_sha256)
    assert len(prints) == 1
