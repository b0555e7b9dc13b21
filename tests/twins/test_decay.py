"""Linear decay: round t has 1 - t / T times the step, on the clients and on the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch

from tests.problem import simulate
from tests.variants import METHODS
from tunefree.core import About, System
from tunefree.errors import ConfigError
from tunefree.fleet.job import Job
from tunefree.fleet.work import do
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.played import Decayed, decaying
from tunefree.methods.registry import build, check_rounds
from tunefree.testing import Array, Problem, QuadraticOracle, quadratic

SYS = System(N=7, S=3, K=4, T=30)
PROBLEM = quadratic(N=SYS.N, seed=5)


def local(problem: Problem, i: int, t: int, theta: Array, eta: float) -> Array:
    """K steps of SGD from the model of round t."""
    rng = problem.noises(i, t)
    for _ in range(SYS.K):
        theta = theta - eta * problem.grad(i, theta, problem.draw(rng))
    return theta


def test_fedavg() -> None:
    trace = simulate(build("fedavg", SYS, {"eta": 0.05, "decay": "linear"}), PROBLEM)
    theta = PROBLEM.theta0
    for t, cohort in enumerate(trace.cohorts):
        eta = 0.05 * (1 - t / SYS.T)
        theta = np.mean([local(PROBLEM, i, t, theta, eta) for i in cohort], axis=0)
        np.testing.assert_allclose(trace.thetas[t + 1], theta, rtol=1e-9)


def test_the_servers_own_step_decays_where_there_is_one() -> None:
    given = {"eta": 0.05, "eta_s": 0.1, "epsilon": 1e-3, "decay": "linear"}
    trace = simulate(build("fedadam", SYS, given), PROBLEM)
    theta, m, v = PROBLEM.theta0, np.zeros(PROBLEM.d), np.full(PROBLEM.d, 1e-6)
    for t, cohort in enumerate(trace.cohorts):
        D = theta - np.mean([local(PROBLEM, i, t, theta, 0.05) for i in cohort], axis=0)
        m, v = 0.9 * m + 0.1 * D, 0.99 * v + 0.01 * D * D
        theta = theta - 0.1 * (1 - t / SYS.T) * m / (np.sqrt(v) + 1e-3)
        np.testing.assert_allclose(trace.thetas[t + 1], theta, rtol=1e-9)


def test_without_decay_it_is_the_method_itself() -> None:
    assert build("fedavg", SYS, {"decay": "none"}) == build("fedavg", SYS)


@pytest.mark.parametrize("name", [name for name, cls in METHODS.items() if cls.about.grid])
def test_every_tuned_method_has_a_step_that_decays(name: str) -> None:
    algo = build(name, SYS._replace(S=SYS.N), {"decay": "linear"})
    assert isinstance(algo, Decayed)
    first, middle = algo.at(0), algo.at(SYS.T // 2)
    assert first == algo.at(-1) == algo.inner
    for step in decaying(algo.inner):
        assert getattr(middle, step) == 0.5 * getattr(first, step)


def test_a_late_client_works_with_the_step_of_the_round_it_was_sent() -> None:
    algo, half = build("fedbuff", SYS, {"eta": 0.05, "decay": "linear"}), SYS.T // 2
    theta = torch.from_numpy(PROBLEM.theta0)
    (exchange,) = algo.round()
    job = Job(2, half, "round", 0, exchange.down(algo.server(theta)))
    _, done = do(algo, partial(QuadraticOracle, PROBLEM), algo.client(theta), job)
    moved = PROBLEM.theta0 - local(PROBLEM, 2, half, PROBLEM.theta0, 0.025)
    np.testing.assert_allclose(done.up.delta, moved, rtol=1e-9)


@pytest.mark.parametrize("name", ["polarfl", "padamfed", "delta_sgd"])
def test_a_method_without_a_step_of_its_own_has_none_to_decay(name: str) -> None:
    with pytest.raises(ConfigError, match="has no step of its own to decay; omit it"):
        build(name, SYS, {"decay": "linear"})


def test_other_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="decay"):
        build("fedavg", SYS, {"decay": "cosine"})


def test_a_decaying_run_cannot_be_given_more_rounds() -> None:
    before, after = (
        build("fedavg", sys, {"decay": "linear"}) for sys in (SYS, SYS._replace(T=2 * SYS.T))
    )
    with pytest.raises(ConfigError, match=r"depend on T \(decay = 1 - t / T\)"):
        check_rounds(before, after)


def test_a_weighted_run_without_a_horizon_can_be_given_more_rounds() -> None:
    before, after = (
        build("fedavgm", sys, {"weighting": "examples"}) for sys in (SYS, SYS._replace(T=2 * SYS.T))
    )
    check_rounds(before, after)


@dataclass(frozen=True)
class Renamed(FedAvg):
    """A user's own method whose step has another name."""

    eta: int = 0
    rate: float = 0.1

    about: ClassVar[About] = About("Renamed", "", "", grid={"rate": (0.1, 0.3)})


def test_a_step_by_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="Renamed has no step of its own to decay"):
        build(Renamed, SYS, {"decay": "linear"})
