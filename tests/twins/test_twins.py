"""Every iterate of the library's run is that of a naive float64 transcription of the page."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from tests.problem import simulate
from tests.twins.fedavg import fedavg
from tests.twins.padamfed import padamfed
from tests.twins.padamfed_vr import padamfed_vr
from tests.twins.parfrefl import parfrefl
from tests.twins.scaffold import scaffold
from tunefree.core import System, Vec, bind
from tunefree.fleet.job import Job
from tunefree.fleet.serial import Serial
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.padamfed import PAdaMFed
from tunefree.methods.padamfed_vr import PAdaMFedVR
from tunefree.methods.parfrefl import ParFreFL
from tunefree.methods.scaffold import Scaffold
from tunefree.schedule.simulate import simulate as play
from tunefree.settings import Opening
from tunefree.testing import Array, Problem, QuadraticOracle, quadratic

SYSTEMS = [
    pytest.param(System(N=3, S=3, K=2, T=20), id="full"),
    pytest.param(System(N=7, S=3, K=4, T=30), id="partial"),
    pytest.param(System(N=9, S=1, K=3, T=25), id="one-a-round"),
    pytest.param(System(N=5, S=2, K=1, T=12), id="one-local-step"),
    pytest.param(System(N=6, S=5, K=5, T=4), id="beta-clipped"),  # S K > T^2: for VR as well
]
STARTS: list[Opening] = ["gradients", "zero"]

all_systems = pytest.mark.parametrize("sys", SYSTEMS)
both_starts = pytest.mark.parametrize("start", STARTS)


def problem_of(sys: System) -> Problem:
    return quadratic(N=sys.N, seed=sys.T)


def theory(cls: Any, sys: System) -> Any:
    """The theorem's steps, whether or not beta is clipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return bind(cls(), sys)


def agree(ours: list[Array], page: list[Array], T: int, atol: float = 1e-12) -> None:
    assert len(ours) == len(page) == T + 1
    assert not np.allclose(page[0], page[-1], rtol=1e-3)
    np.testing.assert_allclose(np.array(ours), np.array(page), rtol=1e-9, atol=atol)


@both_starts
@all_systems
def test_padamfed(sys: System, start: Opening) -> None:
    problem = problem_of(sys)
    trace = simulate(theory(PAdaMFed, sys), problem, start)
    agree(trace.thetas, padamfed(problem, trace.cohorts, sys.K, start), sys.T)


@pytest.mark.parametrize("momentum", ["storm", "ema"])
@both_starts
@all_systems
def test_padamfed_vr(sys: System, start: Opening, momentum: str) -> None:
    problem, K = problem_of(sys), sys.K
    steps = theory(PAdaMFedVR, sys)
    algo = bind(PAdaMFedVR(steps.eta, steps.gamma, steps.beta, momentum), sys)  # type: ignore[arg-type]
    trace = simulate(algo, problem, start)
    agree(trace.thetas, padamfed_vr(problem, trace.cohorts, K, momentum, start), sys.T)


def test_padamfed_vr_is_storm_by_default() -> None:
    sys = System(N=7, S=3, K=4, T=30)
    trace = simulate(bind(PAdaMFedVR(), sys), problem_of(sys))
    agree(trace.thetas, padamfed_vr(problem_of(sys), trace.cohorts, sys.K, "storm"), sys.T)


@both_starts
@all_systems
def test_parfrefl(sys: System, start: Opening) -> None:
    problem = problem_of(sys)
    trace = simulate(theory(ParFreFL, sys), problem, start)
    agree(trace.thetas, parfrefl(problem, trace.cohorts, sys.K, start), sys.T)


@pytest.mark.parametrize("s", [1.0, 0.6])
@all_systems
def test_fedavg(sys: System, s: float) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedAvg(eta=0.07, s=s), sys), problem)
    agree(trace.thetas, fedavg(problem, trace.cohorts, sys.K, 0.07, s), sys.T)


class SizedOracle(QuadraticOracle):
    """Client i has 1 + i² samples."""

    def __init__(self, problem: Problem, job: Job) -> None:
        super().__init__(problem, job)
        self.n = 1 + job.client**2


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@all_systems
def test_fedavg_weights_clients(sys: System, weighting: str) -> None:
    problem = problem_of(sys)
    algo = bind(FedAvg(eta=0.07, s=1.3, weighting=weighting), sys)  # type: ignore[arg-type]
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Serial(algo, theta0, lambda job: SizedOracle(problem, job))
    steps = list(play(algo, fleet, theta0, problem.seed))
    sizes = [1 + i**2 for i in range(sys.N)] if weighting == "examples" else None
    page = fedavg(problem, [step.clients for step in steps[1:]], sys.K, 0.07, 1.3, sizes)
    agree([step.server.theta.numpy() for step in steps], page, sys.T)


@pytest.mark.parametrize("s", [1.0, 1.5])
@pytest.mark.parametrize("option", ["I", "II"])
@both_starts
@all_systems
def test_scaffold(sys: System, start: Opening, option: str, s: float) -> None:
    problem = problem_of(sys)
    algo = bind(Scaffold(eta=0.05, s=s, option=option, start=start), sys)  # type: ignore[arg-type]
    trace = simulate(algo, problem)
    agree(trace.thetas, scaffold(problem, trace.cohorts, sys.K, 0.05, s, option, start), sys.T)


def test_scaffold_is_option_two_from_zero_by_default() -> None:
    sys = System(N=7, S=3, K=4, T=30)
    trace = simulate(bind(Scaffold(eta=0.05), sys), problem_of(sys))
    agree(trace.thetas, scaffold(problem_of(sys), trace.cohorts, 4, 0.05, 1.0, "II"), sys.T)


class Float32Oracle(QuadraticOracle):
    """The same client seen through single precision."""

    def grad(self, theta: Vec, xi: Array) -> Vec:
        return super().grad(theta.double(), xi).float()


def test_single_precision_stays_near_the_page() -> None:
    sys = System(N=7, S=3, K=4, T=60)
    problem, algo = problem_of(sys), bind(PAdaMFedVR(), sys)
    theta0 = torch.from_numpy(problem.theta0).float()
    fleet = Serial(algo, theta0, lambda job: Float32Oracle(problem, job))
    steps = list(play(algo, fleet, theta0, problem.seed))
    page = padamfed_vr(problem, [step.clients for step in steps[1:]], sys.K, "storm")
    assert steps[-1].server.theta.dtype == torch.float32
    ours = np.array([step.server.theta.numpy() for step in steps])
    np.testing.assert_allclose(ours, np.array(page), rtol=2e-4, atol=1e-5)
